# SPDX-License-Identifier: Apache-2.0
"""The soaks: what each has running, what it asks for, and what it looks for."""

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from node import Node
from procs import BenchError, Process, Stage, closing

MIB = 1 << 20
END_S_MAX = 60.0
SETTLE_S_MAX = 10.0


@dataclass(frozen=True)
class Order:
    """What a run is asked for: seconds of load, the seed, and the fault to plant, if any."""

    for_s: float
    seed: int
    plant: str | None = None


@dataclass
class Findings:
    """What a soak has counted, and the violations that it tells in words."""

    counts: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def add(self, counts: dict[str, int]) -> None:
        """Add figures to those of the same names."""
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def fault(self, text: str) -> None:
        """A violation that the clients did not count themselves."""
        self.faults.append(text)

    def expect(self, name: str, value: int, most: int) -> None:
        """One judged figure; a violation when it is above `most`."""
        self.add({"checked": 1})
        if value > most:
            self.fault(f"{name} is {value}, {most} at most may be left")

    @property
    def violations(self) -> int:
        """All of them: the clients' own and those in words."""
        return self.counts.get("violations", 0) + len(self.faults)


@dataclass(frozen=True)
class Soak:
    """A soak, its text for --list, and the faults that it can plant, the default first."""

    name: str
    text: str
    plants: tuple[str, ...]
    run: Callable[[Stage, Order], Findings]


# ---- churn

CHURN_CLIENTS = 3
CHURN_DRAM_BYTES = 256 * MIB
CHURN_SHARDS = 4
CHURN_BATCH_MAX = 8  # BATCH_MAX of soak/churn/churn.h
STALL_S = (0.001, 0.1)
CHURN_OPTIONS = ("--page-size", "64K", "--class", "c/=cache")


def stall_clients(clients: list[Process], order: Order) -> None:
    """Stop one client after the other for a moment, until all have ended or are late.

    A transfer that is half done then stays so, while the others write, delete and evict.
    """
    dice = random.Random(order.seed)
    deadline = time.monotonic() + order.for_s
    while time.monotonic() < deadline and any(one.popen.poll() is None for one in clients):
        stopped = dice.choice(clients).popen
        stopped.send_signal(signal.SIGSTOP)
        try:
            time.sleep(dice.uniform(*STALL_S))
        finally:
            stopped.send_signal(signal.SIGCONT)
        time.sleep(dice.uniform(*STALL_S))


def await_client(client: Process, findings: Findings, deadline: float) -> None:
    """Wait for a client's end and take its figures; without end or figures it is a violation."""
    try:
        code = client.popen.wait(max(deadline - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        findings.fault(f"client {client.pid} does not end: {client.said()}")
        return
    told, counts = closing(client.text())
    if told:
        print("\n".join(told), flush=True)
    if counts is None:
        findings.fault(f"a client ended with {code} and no figures: {client.said()}")
        return
    findings.add({name: count for name, count in counts.items() if name != "client"})
    if code not in (0, 1) or (code == 1) != bool(counts["violations"]):
        findings.fault(f"client {counts['client']} ended with {code}")


def settled(node: Node, empty: Iterable[str]) -> dict[str, Any]:
    """The node's figures once those named are 0 and all clients are gone, within SETTLE_S_MAX."""
    deadline = time.monotonic() + SETTLE_S_MAX
    while True:
        stat = node.stat()
        empty_now = stat["sessions"] <= 1 and not any(stat[name] for name in empty)
        if empty_now or time.monotonic() >= deadline:
            return stat
        time.sleep(0.05)


def check_empty(node: Node, findings: Findings) -> None:
    """What the node holds after every client deleted its keys and released its views: nothing.

    Not a page either: a slab page goes back with its last cell, and none is kept in reserve.
    """
    names = ("keys", "cache_keys", "value_bytes", "pinned", "slab_bytes", "slab_pages",
             "pages_used")
    stat = settled(node, names)
    for name in names:
        findings.expect(name, stat[name], 0)
    findings.expect("sessions", stat["sessions"], 1)
    findings.add({name: stat[name] for name in ("pages_used", "evictions", "moved")})


def start_clients(stage: Stage, node: Node, order: Order) -> list[Process]:
    """The clients, which share a table of progress; the first one has the planted fault."""
    program, table = stage.program("soak_churn"), str(stage.folder / "progress")
    clients = []
    for number in range(CHURN_CLIENTS):
        plant = order.plant if order.plant and number == 0 else "none"
        clients.append(stage.start([
            program, str(number), str(CHURN_CLIENTS), str(order.seed),
            str(int(order.for_s * 1000)), table, plant, node.urls["local"], node.urls["tcp"]]))
    return clients


def check_unknown(node: Node, findings: Findings, clients: int) -> None:
    """Writes of unknown outcome: at most what clients had underway whenever a shard opened its port anew."""
    anew = node.process.text().count(": clients connect anew")
    findings.add({"ports_anew": anew})
    findings.expect("the number of unknown outcomes", findings.counts.get("unknown", 0), anew * clients * CHURN_BATCH_MAX)


def check_end(node: Node, findings: Findings) -> None:
    """Stop the node, which must have lived until now."""
    node.process.stop()
    code = node.process.popen.returncode
    if code != 0:
        findings.fault(f"the node ended with {code}: {node.process.said()}")
    if findings.violations:
        print("what the node said:")
        for line in node.process.text().splitlines():
            if "connection closed" not in line:
                print(f"  {line}")


def check_service(node: Node, findings: Findings) -> None:
    """The node lived until now, and its clients read something."""
    check_end(node, findings)
    if node.process.popen.returncode == 0 and not findings.counts.get("hits"):
        raise BenchError("the clients read nothing")


def churn(stage: Stage, order: Order) -> Findings:
    """Clients that write, read, delete, list, pin and view, and a node with too little memory."""
    findings = Findings()
    node = Node(stage, CHURN_DRAM_BYTES, CHURN_SHARDS, *CHURN_OPTIONS)
    deadline = time.monotonic() + order.for_s + END_S_MAX
    clients = start_clients(stage, node, order)
    stall_clients(clients, order)
    for client in clients:
        await_client(client, findings, deadline)
    if node.process.popen.poll() is None:
        try:
            check_empty(node, findings)
        except BenchError as error:
            findings.fault(f"the node does not answer: {error}")
    findings.expect("the number of unknown outcomes", findings.counts.get("unknown", 0), 0)
    check_service(node, findings)
    return findings


SOAKS = (
    Soak("churn", "3 clients that write, delete, list, pin and view, one node that evicts",
         ("byte", "write"), churn),
)
