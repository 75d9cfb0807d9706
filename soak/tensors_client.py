# SPDX-License-Identifier: Apache-2.0
"""A process of the soak tensors: tensors_client.py ROLE SEED BOUND_S PLANT [URL]. It goes on until it is killed.

Each state dict has a version, from which all of its bytes follow; versions grow with time. Whatever arrives is checked: it is whole,
of one version, and of none before the last one. Every call ends within its bound, with a result or with an error that a fault explains.
Each finding is a line: "checked", "failed" and why, or "violation" and what.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fake_gpu import Array, Driver

import penstock
from penstock import data_store, sharing, weights

KEY, SHARED, NAME = "soak/state", "default/soak/state", "soak"
LARGE = (1500, 1000)
PAUSE_S = (0.0, 0.2)
WINDOW = data_store.BroadcastWindow(world_size=4, timeout=10)
GPU_KEY = "soak/gpu"
GPU_WINDOW = data_store.BroadcastWindow(world_size=3, timeout=10)


def tell(word: str, text: str = "") -> None:
    """A line at once: the next moment may be the last."""
    os.write(1, f"{word} {' '.join(text.split())}\n".encode())


def state_of(version: int) -> dict[str, Any]:
    """A state dict of a version: large, small, strided, tied, empty and without a dimension."""
    base = np.arange(LARGE[0] * LARGE[1], dtype=np.uint32) + np.uint32(version % 2**32)
    large = base.reshape(LARGE)
    return {"version": np.array(version), "large": large, "tied": large, "turned": large[:40, :30].T, "step": large[3, ::7],
            "empty": np.zeros((3, 0), np.float16), "deep": {"bytes": (base[:999] % 251).astype(np.uint8), "half": base[:8].astype(np.float16)}}


def flat(state: dict[str, Any], path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Arrays by their paths."""
    for name, value in state.items():
        if isinstance(value, dict):
            yield from flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


class Actor:
    """What one process does, again and again."""

    def __init__(self, role: str, seed: int, bound_s: int, plant: str, url: str) -> None:
        self.dice = random.Random(f"{seed} {role} {os.getpid()}")
        self.bound_s, self.plant, self.url = bound_s, plant, url
        self.last = 0  # version that was seen
        self.turns = 0
        self.arrays: dict[str, Array] = {}  # in the memory of a GPU
        self.act: Callable[[], None] = getattr(self, role)

    def run(self) -> None:
        signal.signal(signal.SIGALRM, self.late)
        while True:
            signal.alarm(self.bound_s)
            try:
                self.act()
            except (penstock.Error, OSError) as error:  # of the store, the node or the agent: the driver kills them
                tell("failed", f"{type(error).__name__}: {error}")
            except Exception as error:
                tell("violation", f"{self.act.__name__} raises {type(error).__name__}: {error}")
            signal.alarm(0)
            self.turns += 1
            time.sleep(self.dice.uniform(*PAUSE_S))

    def late(self, *_: object) -> None:
        tell("violation", f"{self.act.__name__} takes more than {self.bound_s} s")
        os._exit(1)

    def planted(self, what: str) -> bool:
        return self.plant == what and self.turns > 0

    def check(self, state: dict[str, Any], what: str) -> None:
        """All of it is of one version, which is not older than the one before."""
        version = int(state["version"])
        got, wanted = dict(flat(state)), dict(flat(state_of(version)))
        if got.keys() != wanted.keys():
            tell("violation", f"{what}: version {version} has {sorted(got)}")
        wrong = [name for name, array in wanted.items() if name in got and not np.array_equal(got[name], array)]
        if wrong:
            tell("violation", f"{what}: version {version} has other bytes in {wrong}")
        if version < self.last:
            tell("violation", f"{what}: version {version} comes behind {self.last}")
        self.last = version
        tell("checked", what)

    # ---- tensors between processes and pods ----

    def next_state(self) -> dict[str, Any]:
        version = time.time_ns() // 1000
        state = state_of(version - self.turns * 10**9 if self.planted("stale") else version)
        if self.planted("byte"):
            state["deep"]["bytes"][500] ^= 1
        if self.planted("torn"):
            state["deep"] = state_of(version + 1)["deep"]
        return state

    def owner(self) -> None:
        data_store.put(KEY, data=self.next_state(), locale="local", broadcast=WINDOW)
        tell("put")

    def taker(self) -> None:
        if self.planted("late"):
            time.sleep(self.bound_s + 5)
        if self.planted("crash"):
            os.abort()
        state = sharing.attach(SHARED)
        self.check(state, "attached")
        time.sleep(self.dice.uniform(*PAUSE_S))
        version, self.last = self.last, 0
        self.check(state, "held")  # whoever has ended meanwhile
        self.last = version

    def getter(self) -> None:
        if self.dice.random() < 0.5:
            self.check(data_store.get(KEY, broadcast=WINDOW), "got")
            return
        into = state_of(0)
        data_store.get(KEY, into, broadcast=WINDOW)
        into["tied"] = into["large"]
        self.check(into, "filled")

    # ---- tensors from GPU to GPU: the memory is the host's, the calls are those for a GPU ----

    def on_gpu(self, state: dict[str, Any]) -> dict[str, Any]:
        """A state dict on the GPU, of the same arrays each time, without those that share another one's memory."""
        flat_state = {name: array for name, array in flat(state) if name not in ("tied", "turned", "step")}
        if not self.arrays:
            driver = Driver()
            self.arrays = {name: Array(driver, array) for name, array in flat_state.items()}
        for name, array in flat_state.items():
            Array.seen(self.arrays[name])[...] = array
        large = self.arrays["large"]
        return {**self.arrays, "turned": large.view(np.s_[:40, :30], "uint32"), "step": large.view(np.s_[3, ::7], "uint32")}

    def sender(self) -> None:
        data_store.put(GPU_KEY, data=self.on_gpu(self.next_state()), broadcast=GPU_WINDOW)
        tell("sent")

    def filler(self) -> None:
        dest = self.on_gpu(state_of(0))
        data_store.get(GPU_KEY, dest, broadcast=GPU_WINDOW)
        came = {name: Array.seen(array).copy() for name, array in dest.items()}
        state = {name: array for name, array in came.items() if "." not in name}
        state["deep"] = {name.partition(".")[2]: array for name, array in came.items() if "." in name}
        self.check({**state, "tied": state["large"], "turned": state["turned"].T}, "moved")

    # ---- weights over a node ----

    def publisher(self) -> None:
        with penstock.open(self.url) as store:
            publisher = weights.Publisher(store, NAME)
            for _ in range(5):
                signal.alarm(self.bound_s)
                publisher.publish(self.next_state())
                tell("published")

    def subscriber(self) -> None:
        into = state_of(0)
        with penstock.open(self.url) as store, weights.Subscriber(store, NAME, into) as subscriber:
            for _ in range(10):
                signal.alarm(self.bound_s)
                if subscriber.update(timeout=0.3) is not None:
                    self.check(into, "updated")


def main() -> None:
    """Runs until it is killed."""
    role, seed, bound_s, plant, *url = sys.argv[1:]
    Actor(role, int(seed), int(bound_s), plant, *url or [""]).run()


if __name__ == "__main__":
    main()
