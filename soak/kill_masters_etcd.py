# SPDX-License-Identifier: Apache-2.0
"""The soak kill_masters_etcd: masters that share an etcd are killed and stopped, and so is the etcd, under load."""

import random
import shutil
import signal
import sys
import time
from typing import Any

from kill_nodes import CLIENT, COPIES, NODES, Pool
from ports import free_port
from procs import BenchError, Process, Stage, run_json
from soaks import END_S_MAX, Findings, Order, Soak, await_client

MASTERS, LEASE_MS = 3, 3000
# Nobody is silent for so long by itself: whoever ends as a member was taken for gone by a master that was wrong.
TIMES = ("--heartbeat-ms=100", "--lease-ms=2000", "--lease-margin-ms=1000", "--reaper-ms=100", "--member-ttl-ms=10000")
STOP_S = (0.1, 2.0 * LEASE_MS / 1000)
ANSWER_S_MAX = 60.0


class SharedPool(Pool):
    """Masters, of which one leads, their etcd, and nodes that know them all."""

    def __init__(self, stage: Stage) -> None:
        etcd = shutil.which("etcd")
        if not etcd:
            raise BenchError("etcd is not installed: ci/install test")
        self._etcd, self._urls = etcd, (f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}")
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(MASTERS)]
        self.asked = 0
        super().__init__(stage)
        self.url = f"pool://{','.join(self.addresses)}"

    def start_etcd(self) -> None:
        """At the addresses of the last one, with what it had."""
        client, peer = self._urls
        self.etcd = self._stage.start([
            self._etcd, f"--data-dir={self._stage.folder / 'etcd'}", f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}"])
        self.etcd.wait_text("ready to serve")

    def start_master(self) -> None:
        """The etcd, and all masters."""
        self.start_etcd()
        self.masters = [self.start_one(address) for address in self.addresses]
        self.address = self.addresses[0]

    def start_one(self, address: str) -> Process:
        """A master at its address."""
        master = self._stage.start([
            self._stage.program("penstockd"), "--shards=2", "--role=master", f"--listen={address}", *TIMES,
            f"--place==home:{COPIES}", f"--nodes-min={NODES}", f"--etcd={self._urls[0]}", f"--etcd-lease-ms={LEASE_MS}"])
        master.wait_text("listening on")
        return master

    def start(self, number: int) -> Process:
        node = self._stage.start([
            self._stage.program("penstockd"), "--shards=2", "--listen=127.0.0.1:0", "--dram=64M", f"--host=h{number}",
            "--replica-ms=5000", *(f"--master={address}" for address in self.addresses)])
        node.wait_text("joined as member")
        return node

    def ask(self, *question: str) -> dict[str, Any]:
        """What the leader answers; raises BenchError when there is none for a while."""
        deadline = time.monotonic() + ANSWER_S_MAX
        while True:
            try:
                said = run_json([self._program, self.addresses[self.asked], "--", *question])
                if "error" not in said:
                    return said
            except BenchError:
                pass
            if time.monotonic() > deadline:
                raise BenchError(f"no master leads within {ANSWER_S_MAX:.0f} s")
            self.asked = (self.asked + 1) % MASTERS
            time.sleep(0.05)

    def epochs(self) -> dict[str, int]:
        """Of the members, by their addresses."""
        return {member["address"]: member["epoch"] for member in self.ask("map")["members"]}

    def term(self) -> int:
        """So many times a master began to lead."""
        return int(self.ask("map")["term"])

    def disturb(self, dice: random.Random) -> str:
        """One thing goes, or sleeps, and comes back; what that was."""
        what = dice.choice(["master_kills", "master_stops", "etcd_kills", "etcd_stops"])
        self.ask("map")  # to know who leads
        victim = self.masters[self.asked] if what.startswith("master") else self.etcd
        if what.endswith("stops"):
            victim.popen.send_signal(signal.SIGSTOP)
            time.sleep(dice.uniform(*STOP_S))
            victim.popen.send_signal(signal.SIGCONT)
            return what
        victim.popen.kill()
        victim.popen.wait()
        time.sleep(dice.uniform(*STOP_S))
        if victim is self.etcd:
            self.start_etcd()
        else:
            self.masters[self.asked] = self.start_one(self.addresses[self.asked])
        return what


def kill_masters_etcd(stage: Stage, order: Order) -> Findings:
    """What was acknowledged is there, and no node that lives is taken for gone."""
    findings, dice = Findings(), random.Random(order.seed)
    pool = SharedPool(stage)
    members, term = pool.epochs(), pool.term()
    client = stage.start([sys.executable, "-B", str(CLIENT), pool.url, "86400", str(order.seed), order.plant or "none"],
                         {"PYTHONPATH": str(stage.build / "python")}, hold_stdin=True)
    client.wait_text("acting")
    end = time.monotonic() + order.for_s
    while time.monotonic() < end and client.popen.poll() is None:
        findings.add({pool.disturb(dice): 1})
        last, term = term, pool.term()
        if term < last:
            findings.fault(f"the term was {last} and is {term}: a pool map of before is back")
        if pool.epochs() != members:
            findings.fault(f"members were {members} and are {pool.epochs()}")
            break
    if client.popen.stdin:
        client.popen.stdin.close()
        client.popen.stdin = None
    await_client(client, findings, time.monotonic() + END_S_MAX)
    findings.add({"terms": term})
    return findings


SOAKS = (
    Soak("kill_masters_etcd", f"{MASTERS} masters that share an etcd, killed and stopped as the etcd is, under load; nothing "
         "acknowledged is lost, and no node that lives is taken for gone", ("lost",), kill_masters_etcd),
)
