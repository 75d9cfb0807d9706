# SPDX-License-Identifier: Apache-2.0
"""The soak kill_nodes: one of three nodes of a pool is killed, again and again, while clients write and read."""

import json
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from procs import BenchError, Process, Stage, run_json
from soaks import END_S_MAX, Findings, Order, Soak, await_client

CLIENT = Path(__file__).parent.parent / "tests/lib/pool_writers.py"
KILLS_MAX, NODES, COPIES, PARTITIONS = 300, 3, 2, 4096
REPAIR_S_MAX, ANSWER_S_MAX, ASKED_S = 30.0, 10.0, 0.15
TIMES = ("--heartbeat-ms=100", "--lease-ms=500", "--lease-margin-ms=100", "--reaper-ms=100", "--member-ttl-ms=1000")


@dataclass(frozen=True)
class Place:
    """Where a process of a pool runs, and what it needs there."""

    host: str = "127.0.0.1"
    within: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    url: str = ""  # parameters of a pool's URL


class Pool:
    """A master and nodes on hosts of their own, as far as the pool knows.

    Parameters
    ----------
    stage : Stage
    where : sequence of Place
        The master's, the nodes', and the clients'.
    places : str
        Options of the master: where keys are.
    """

    def __init__(self, stage: Stage, where: Sequence[Place] = (Place(),) * (NODES + 2),
                 places: Sequence[str] = (f"--place==home:{COPIES}",)) -> None:
        self._stage, self._program, self._where, self._places = stage, stage.program("pool_ask"), where, places
        self.address = f"{where[0].host}:0"
        self.start_master()
        self.url = f"pool://{self.address}?{where[-1].url}"
        self.nodes = [self.start(i) for i in range(NODES)]
        self.await_copies()

    def start_master(self) -> None:
        """A master, at the address of the last one."""
        self.master = self._daemon(self._where[0], f"--listen={self.address}", "--role=master", *self._places, *TIMES,
                                   f"--pool-map={self._stage.folder / 'view'}", f"--nodes-min={NODES}")
        self.address = listens(self.master)

    def start(self, number: int) -> Process:
        """A node with nothing in it."""
        place = self._where[1 + number]
        node = self._daemon(place, f"--listen={place.host}:0", "--dram=64M", f"--master={self.address}",
                            f"--host=h{number}", "--replica-ms=1000")
        node.wait_text("joined as member")
        return node

    def _daemon(self, place: Place, *options: str) -> Process:
        return self._stage.start([*place.within, self._stage.program("penstockd"), "--shards=2", *place.options, *options])

    def await_copies(self) -> None:
        """Wait until all is as it should be; raises BenchError when that takes too long."""
        deadline = time.monotonic() + REPAIR_S_MAX
        while not self.has_copies():
            if time.monotonic() > deadline:
                raise BenchError(f"not repaired within {REPAIR_S_MAX:.0f} s: {json.dumps(self.ask('partitions'))}")
            time.sleep(0.02)

    def has_copies(self) -> bool:
        """Whether the pool has these nodes, and every partition all of its copies."""
        alive = sorted(map(listens, self.nodes))
        members = sorted(member["address"] for member in self.ask("map")["members"])
        said = self.ask("partitions")  # behind it: they are those of these members, or of later ones
        return members == alive and said["copies"][COPIES] == PARTITIONS and said["served"] == PARTITIONS

    def keeps_copies(self) -> bool:
        """Whether it has them still when what a node asked for before it was stopped is in a view."""
        good = self.has_copies()
        time.sleep(ASKED_S)
        return good and self.has_copies()

    def ask(self, *question: str) -> dict[str, Any]:
        """What the master answers; raises BenchError when it does not for a while."""
        asker, deadline = self._where[-1], time.monotonic() + ANSWER_S_MAX
        while True:
            try:
                return run_json([*asker.within, self._program, self.address, *asker.secret, "--", *question])
            except BenchError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def primary(self, key: str) -> str:
        """The address of the node that has a key's partition; empty: none has it."""
        copies = self.ask("partition", key)["copies"]
        members = {member["member"]: member["address"] for member in self.ask("map")["members"]}
        return members.get(copies[0], "") if copies else ""

    def kill(self, number: int) -> None:
        """End a node in the middle of whatever it does, when it is not the only one that has a partition."""
        self.freeze(number)
        node = self.nodes[number].popen
        node.kill()
        node.wait()

    def freeze(self, number: int) -> None:
        """Stop a node when it is not the only one that has a partition.

        It is stopped first: a node that was slow for a moment, and is to be filled anew, would make it one.
        """
        node = self.nodes[number].popen
        while True:
            self.await_copies()
            node.send_signal(signal.SIGSTOP)
            if self.keeps_copies():
                return
            node.send_signal(signal.SIGCONT)


def listens(process: Process) -> str:
    """The address that a penstockd listens on."""
    return process.wait_text(r"listening on ([\d.]+:\d+)")[1]


def kill_nodes(stage: Stage, order: Order) -> Findings:
    """What was acknowledged is there, and nothing else is, as long as one node is gone at a time."""
    findings = Findings()
    pool = Pool(stage)
    dice = random.Random(order.seed)
    environment = {"PYTHONPATH": str(stage.build / "python")}
    client = stage.start([sys.executable, "-B", str(CLIENT), pool.url, "86400", str(order.seed),
                          order.plant or "none"], environment, hold_stdin=True)
    client.wait_text("acting")
    end = time.monotonic() + order.for_s
    kills = 0
    while kills < KILLS_MAX and time.monotonic() < end and client.popen.poll() is None:
        number = dice.randrange(NODES)
        pool.kill(number)
        kills += 1
        time.sleep(dice.uniform(0, 0.6))  # the next one may be back before the pool has seen it go, or long after
        pool.nodes[number] = pool.start(number)
    if client.popen.stdin:
        client.popen.stdin.close()
        client.popen.stdin = None
    await_client(client, findings, time.monotonic() + END_S_MAX)
    findings.add({"kills": kills})
    return findings


SOAKS = (
    Soak("kill_nodes", f"one of {NODES} nodes killed {KILLS_MAX} times under load, {COPIES} copies of each value; "
         "nothing acknowledged is lost, nothing comes back", ("lost",), kill_nodes),
)
