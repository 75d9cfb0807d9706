# SPDX-License-Identifier: Apache-2.0
"""Actors: clients that write down what they did, and what one store that they share must be able to answer."""

import signal
import struct
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from history import History, check, read
from procs import Process, Stage
from soaks import END_S_MAX, Findings, Order

LIFE_S_MAX = 3600


@dataclass(eq=False)
class Actor:
    """A running soak_actor and its history."""

    process: Process
    path: Path
    died_ns: int = 0

    def begun(self) -> bool:
        """Whether it has begun its first operation."""
        try:
            with self.path.open("rb") as file:
                return struct.unpack("<Q", file.read(8))[0] > 0
        except (OSError, struct.error):
            return False

    def await_begin(self) -> None:
        """Wait until it acts; raises BenchError when it does not."""
        self.process.wait_for(self.begun)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.popen.send_signal(number)


class Cast:
    """The actors of a soak, those that have left, and what their histories say."""

    def __init__(self, stage: Stage, urls: dict[str, str], order: Order, findings: Findings, within: Sequence[str] = ()) -> None:
        self._stage, self._urls, self._order, self._findings, self._within = stage, urls, order, findings, within
        self._count = 0
        self._histories: list[History] = []

    def enter(self, lane: str, **settings: object) -> Actor:
        """Start an actor; the first of all has the planted fault."""
        path = self._stage.folder / f"history-{self._count}"
        plant = self._order.plant if self._count == 0 and self._order.plant else "none"
        settings = {"number": self._count, "seed": self._order.seed, "url": self._urls[lane],
                    "for_ms": LIFE_S_MAX * 1000, "timeout_ms": 10000, "plant": plant} | settings
        self._count += 1
        words = [f"{name}={value}" for name, value in settings.items()]
        return Actor(self._stage.start([*self._within, self._stage.program("soak_actor"), str(path), *words]), path)

    def enter_all(self, count: int, **settings: object) -> list[Actor]:
        """Start actors on all lanes in turn, and wait until all of them act."""
        lanes = list(self._urls)
        actors = [self.enter(lanes[i % len(lanes)], **settings) for i in range(count)]
        for actor in actors:
            actor.await_begin()
        return actors

    def kill(self, actor: Actor) -> None:
        """End an actor in the middle of whatever it does."""
        if actor.process.popen.poll() is not None:
            self._findings.fault(f"an actor ended by itself: {actor.process.said()}")
        actor.process.popen.kill()
        actor.process.popen.wait()
        actor.died_ns = time.monotonic_ns()
        history = self._leave(actor)
        self._findings.add({"kills": 1, f"killed_{history.underway}": 1})

    def bow(self, actors: list[Actor]) -> list[History]:
        """End actors in order; their histories."""
        for actor in actors:
            actor.send(signal.SIGTERM)
        deadline = time.monotonic() + END_S_MAX
        histories = []
        for actor in actors:
            try:
                code = actor.process.popen.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                code = None
            if code not in (0, 1):
                self._findings.fault(f"an actor ended with {code}: {actor.process.said()}")
            actor.died_ns = time.monotonic_ns()
            histories.append(self._leave(actor))
        return histories

    def _leave(self, actor: Actor) -> History:
        """The history of an actor that has ended, its counts and violations told."""
        actor.process.stop()
        history = read(actor.path, actor.died_ns)
        actor.path.unlink()
        for told in history.told:
            print(f"violation: {told}", flush=True)
        self._findings.add(history.counts)
        self._histories.append(history)
        return history

    def judge(self, resets: list[tuple[int, int]], pool: bool = False) -> None:
        """Whether one store could have answered all that was answered."""
        checked, faults = check(self._histories, resets, pool)
        self._findings.add({"checked": checked, "in_histories": checked})
        for fault in faults:
            self._findings.fault(fault)
