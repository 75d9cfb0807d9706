# SPDX-License-Identifier: Apache-2.0
"""The soak of masters that are killed: nodes keep their membership, and what they have is known again."""

import json
import random
import time
from pathlib import Path
from typing import Any

from node import GIB, Node
from procs import BenchError, Process, Stage, run
from soaks import Findings, Order, Soak

KILLS = 100
TIMES = ("--heartbeat-ms", "100", "--reaper-ms", "100", "--lease-ms", "1000", "--lease-margin-ms", "500")
MEMBER_TTL_MS = 60_000  # of a node on a machine that does other things, too
MASTER_LIFE_S = (0.05, 0.5)
NODES = 2
FEW, MANY = 5_000, 500_000  # keys of a node
MANY_FROM_S = 20.0
COMPLETE_S_MAX, PATIENCE_S = 5.0, 60.0
SAMPLE = 100
THERE, MISSING = 0, 3


class Master:
    """A penstockd with the role of a master; its view lies in the stage's folder."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._asker, self._client = stage.program("pool_ask"), stage.program("penstock")
        self.view = stage.folder / "view"
        self.address = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        """A process, at the address of the last one."""
        self.process: Process = self._stage.start([
            self._stage.program("penstockd"), "--role", "master", "--listen", self.address, "--pool-map", str(self.view),
            "--place", "=anywhere", "--member-ttl-ms", str(MEMBER_TTL_MS), *TIMES])
        self.address = self.process.wait_text(r"listening on (127\.0\.0\.1:\d+)")[1]

    def ask(self, *question: str) -> dict[str, Any]:
        """What it answers."""
        return json.loads(run([self._asker, self.address, "--", *question]))

    def reporting(self) -> int:
        """Members whose report is not complete."""
        stat = run([self._client, "stat", "--url", f"node://{self.address}", "--json"])
        return json.loads(stat)["pool"]["members_reporting"]


class Share:
    """One node of the pool, and some of its keys: what is there, and what is there no more."""

    def __init__(self, stage: Stage, master: Master, keys: int, dice: random.Random) -> None:
        self.node = Node(stage, GIB if keys == MANY else GIB // 8, 1, "--master", master.address,
                         "--shutdown-ms", "500")
        self.node.bench("local", "--fill", "--op", "put", "--size", 64, "--keys", keys, "--batch", 128, "--inflight", 4,
                        "--prefix", f"{self.node.port}/")  # no two nodes have the same keys
        self.there = dice.sample(self._run("ls").split(), SAMPLE)
        self.gone: list[str] = []
        self.changes = 0

    def _run(self, *command: str) -> str:
        return run([self.node.client, *command, "--url", self.node.urls["local"]])

    def change(self) -> None:
        """One key goes, and one comes."""
        self.changes += 1
        self._run("rm", self.there[0])
        self.gone = [*self.gone[-SAMPLE // 2:], self.there.pop(0)]
        self.there.append(f"change-{self.node.port}-{self.changes}")
        self._run("put", self.there[-1], self.node.client)

    def lose(self) -> None:
        """The planted fault: a key goes that should be there."""
        self._run("rm", self.there[-1])

    def wrong(self, master: Master, member: int) -> list[str]:
        """Keys that the master says something else of."""
        names, routes = [*self.there, *self.gone], master.ask("locate", *self.there, *self.gone)["routes"]
        expected = [(THERE, [member])] * len(self.there) + [(MISSING, [])] * len(self.gone)
        told = [(route["status"], [place["member"] for place in route["places"]]) for route in routes]
        return [name for name, is_told, is_so in zip(names, told, expected, strict=True) if is_told != is_so]


def membership(master: Master) -> dict[str, tuple[int, int]]:
    """Number and epoch of each member, by its address."""
    return {entry["address"]: (entry["member"], entry["epoch"]) for entry in master.ask("map")["members"]}


def check_view(master: Master, members: dict[str, tuple[int, int]], term: int, findings: Findings) -> None:
    """A master that came back goes on with the view of the one before: the same members, and the next term."""
    told = master.ask("map")["term"]
    if told != term:
        findings.fault(f"the term is {told}, not {term}: the view is another")
    if membership(master) != members:
        findings.fault(f"members of term {term} are {membership(master)}, not {members}")


def await_complete(master: Master, shares: list[Share], members: dict[str, tuple[int, int]],
                   patience_s: float) -> tuple[float, list[str]]:
    """Until all have reported and the sampled keys are where they are; how long that took, and what is wrong."""
    begin, wrong = time.monotonic(), ["nothing was asked"]
    while time.monotonic() < begin + patience_s:
        if master.reporting() == 0:
            wrong = [name for share in shares
                     for name in share.wrong(master, members[f"127.0.0.1:{share.node.port}"][0])]
            if not wrong:
                break
        time.sleep(0.02)
    return time.monotonic() - begin, wrong


def kill_masters(stage: Stage, order: Order) -> Findings:
    """Masters are killed; between one and the next keys come and go."""
    findings, dice = Findings(), random.Random(order.seed)
    many = order.for_s >= MANY_FROM_S
    patience_s = COMPLETE_S_MAX if many else 1.0 if order.plant else PATIENCE_S
    master = Master(stage)
    shares = [Share(stage.keep(stage.sub()), master, MANY if many else FEW, dice) for _ in range(NODES)]
    master.process.wait_for(lambda: len(membership(master)) == NODES and master.reporting() == 0)
    members = membership(master)
    if await_complete(master, shares, members, PATIENCE_S)[1]:
        raise BenchError("the master does not know its nodes' keys to begin with")
    first_term = master.ask("map")["term"]
    deadline, kills, slowest_s = time.monotonic() + order.for_s, 0, 0.0
    while kills < KILLS and time.monotonic() < deadline and not findings.faults:
        time.sleep(dice.uniform(*MASTER_LIFE_S))
        master.process.popen.kill()
        master.process.popen.wait()
        kills += 1
        for share in shares:
            share.change()
        if order.plant == "view":
            Path(master.view).unlink()
        elif order.plant == "lost":
            shares[0].lose()
        master.start()
        took_s, wrong = await_complete(master, shares, members, patience_s)
        slowest_s = max(slowest_s, took_s)
        findings.expect(f"keys that are said to be elsewhere {patience_s:g} s after kill {kills} ({wrong[:1]})",
                        len(wrong), 0)
        check_view(master, members, first_term + kills, findings)
        findings.add({"checked": NODES * SAMPLE})
    findings.add({"kills": kills, "keys": sum(share.node.stat()["keys"] for share in shares),
                  "complete_ms_max": round(slowest_s * 1000)})
    return findings


SOAKS = (
    Soak("kill_masters", "a pool's master killed 100 times: its view lasts, and its nodes' keys are known again within 5 s",
         ("view", "lost"), kill_masters),
)
