# SPDX-License-Identifier: Apache-2.0
"""The soak kill_masters_etcd: masters that share three etcd servers are killed, stopped and cut off, and so are these."""

import json
import random
import shutil
import signal
import time
from collections.abc import Callable
from typing import Any

from actors import Cast
from kill_nodes import COPIES, NODES, Place, Pool
from networks import CUTS, Machine, network, refused
from pool_outages import TIMEOUT_MS, trusted
from procs import BenchError, Process, Stage, run, run_json
from soaks import Findings, Order, Soak

RACKS, ETCD_LEASE_MS = 3, 3000
# Nodes serve on between one leader and the next. None is silent for so long by itself: whoever ends as a member was
# taken for gone by a master that was wrong.
TIMES = ("--heartbeat-ms=100", "--lease-ms=6000", "--lease-margin-ms=1000", "--reaper-ms=100", "--member-ttl-ms=20000")
# A slow machine is to change no leader of etcd's by itself.
ETCD_TIMES = ("--heartbeat-interval=100", "--election-timeout=1000")
PLACES = (f"--place=k/=home:{COPIES}", f"--place=c/=anywhere:{COPIES}", "--place=m/=anywhere:1")
TRIALS = {"master_kills": 100, "etcd_kills": 20, "partitions": 10, "master_stops": 10, "etcd_stops": 10}
FEW, MANY, MANY_FROM_S, SAMPLE = 3_000, 1_000_000, 60.0, 50
AWAY_S = (0.0, 2.0 * ETCD_LEASE_MS / 1000)
ANSWER_S_MAX, COMPLETE_S_MAX, PAUSE_S = 60.0, 5.0, 0.05
ACTORS, PAUSE_US = 4, 4000


class Rack:
    """A machine with a master and one of etcd's servers."""

    def __init__(self, stage: Stage, number: int, machine: Machine, place: Place) -> None:
        self._stage, self._number, self.machine, self._place = stage, number, machine, place
        self.client_url, self._peer_url = f"http://{machine.host}:2379", f"http://{machine.host}:2380"
        self.initial = f"e{number}={self._peer_url}"
        self.address = f"{machine.host}:7100"
        self.etcd: Process
        self.master: Process

    def start_etcd(self, cluster: str) -> None:
        """With what it had, if there was one before."""
        self.etcd = self._stage.start([
            *self._place.within, "etcd", f"--name=e{self._number}", f"--data-dir={self._stage.folder / f'etcd{self._number}'}",
            f"--listen-client-urls={self.client_url}", f"--advertise-client-urls={self.client_url}",
            f"--listen-peer-urls={self._peer_url}", f"--initial-advertise-peer-urls={self._peer_url}",
            f"--initial-cluster={cluster}", *ETCD_TIMES])

    def start_master(self, etcd_urls: str) -> None:
        """It stands by, or leads."""
        self.master = self._stage.start([
            *self._place.within, self._stage.program("penstockd"), *self._place.options, "--shards=2", "--role=master",
            f"--listen={self.address}", *TIMES, *PLACES, f"--nodes-min={NODES}", f"--etcd={etcd_urls}",
            f"--etcd-lease-ms={ETCD_LEASE_MS}"])
        self.master.wait_text("listening on")


class SharedPool(Pool):
    """Racks, nodes that know all masters, and many keys of which the masters say where they are."""

    def __init__(self, stage: Stage, dice: random.Random, keys: int) -> None:
        if not shutil.which("etcd") or not shutil.which("etcdctl"):
            raise BenchError("etcd is not installed: ci/install full")
        if refused():
            raise BenchError(refused())
        self._dice = dice
        machines: list[Machine] = stage.keep(network(RACKS + NODES + 1))
        places = trusted(stage, machines)
        self.racks = [Rack(stage, i, machines[i], places[i]) for i in range(RACKS)]
        self._cluster = ",".join(rack.initial for rack in self.racks)
        self._etcd_urls = ",".join(rack.client_url for rack in self.racks)
        self._machines, self.here, self.leading = machines, places[-1], 0
        super().__init__(stage, [places[0], *places[RACKS:]])
        self.url = f"pool://{','.join(rack.address for rack in self.racks)}?{self.here.url}"
        self._fill(stage, keys)

    def _fill(self, stage: Stage, keys: int) -> None:
        run([*self.here.within, stage.program("penstock"), "bench", "--url", self.url, "--fill", "--op", "put", "--size", "64",
             "--keys", str(keys), "--batch", "128", "--inflight", "4", "--prefix", "m/", "--seconds", "1"])
        self._sample = [f"m/{number:016}" for number in self._dice.sample(range(keys), SAMPLE)]
        deadline = time.monotonic() + ANSWER_S_MAX
        while self.reporting() or any(route["status"] for route in self.routes()):
            if time.monotonic() > deadline:
                raise BenchError("the master does not know the nodes' keys to begin with")
            time.sleep(PAUSE_S)
        self.known = self.routes()

    def start_master(self) -> None:
        """All racks."""
        for rack in self.racks:
            rack.start_etcd(self._cluster)
        for rack in self.racks:
            rack.etcd.wait_text("ready to serve")
        for rack in self.racks:
            rack.start_master(self._etcd_urls)

    def start(self, number: int) -> Process:
        """A node with nothing in it."""
        place = self._where[1 + number]
        node = self._daemon(place, f"--listen={place.host}:0", "--dram=512M", f"--host=h{number}", "--replica-ms=5000",
                            *(f"--master={rack.address}" for rack in self.racks))
        node.wait_text("joined as member")
        return node

    def ask(self, *question: str) -> dict[str, Any]:
        """What the leader answers; raises BenchError when there is none for a while."""
        deadline = time.monotonic() + ANSWER_S_MAX
        while True:
            try:
                said = run_json([*self.here.within, "timeout", "2", self._program, self.racks[self.leading].address,
                                 *self.here.secret, "--", *question])
                if "error" not in said:
                    return said
            except BenchError:
                pass
            if time.monotonic() > deadline:
                raise BenchError(f"no master leads within {ANSWER_S_MAX:.0f} s")
            self.leading = (self.leading + 1) % RACKS
            time.sleep(PAUSE_S)

    def reporting(self) -> int:
        """Members whose keys the leader does not know yet; another master may lead meanwhile."""
        self.ask("map")
        said = run([*self.here.within, self._stage.program("penstock"), "stat", "--json", "--url",
                    f"node://{self.racks[self.leading].address}?{self.here.url}"])
        return int(json.loads(said)["pool"].get("members_reporting", NODES))

    def routes(self) -> list[dict[str, Any]]:
        """Where the leader says that the sampled keys are."""
        return self.ask("locate", *self._sample)["routes"]

    def epochs(self) -> dict[str, int]:
        """Of the members, by their addresses."""
        return {member["address"]: member["epoch"] for member in self.ask("map")["members"]}

    def etcd_leader(self) -> Rack:
        """The rack whose etcd leads; raises BenchError when none does for a while."""
        deadline = time.monotonic() + ANSWER_S_MAX
        while time.monotonic() < deadline:
            for rack in self.racks:
                try:
                    said = json.loads(run([*self.here.within, "etcdctl", f"--endpoints={rack.client_url}",
                                           "--command-timeout=1s", "endpoint", "status", "--write-out=json"]))[0]["Status"]
                except BenchError:
                    continue
                if said.get("leader", 0) == said["header"]["member_id"]:
                    return rack
            time.sleep(PAUSE_S)
        raise BenchError(f"no etcd leads within {ANSWER_S_MAX:.0f} s")

    def leader(self) -> Rack:
        """The rack whose master leads."""
        self.ask("map")
        return self.racks[self.leading]

    def away(self) -> None:
        """Some of a lease, or more than one."""
        time.sleep(self._dice.uniform(*AWAY_S))

    # ---- what is done to it

    def kill_master(self) -> None:
        """The one that leads."""
        rack = self.leader()
        rack.master.kill()
        self.away()
        rack.start_master(self._etcd_urls)

    def kill_etcd(self) -> None:
        """The one that leads."""
        rack = self.etcd_leader()
        rack.etcd.kill()
        self.away()
        rack.start_etcd(self._cluster)

    def stop(self, process: Process) -> None:
        """It hears and says nothing for a while."""
        process.popen.send_signal(signal.SIGSTOP)
        self.away()
        process.popen.send_signal(signal.SIGCONT)

    def cut_off(self) -> None:
        """A rack with one of the leaders."""
        rack = self._dice.choice((self.leader, self.etcd_leader))()
        how, others = self._dice.choice(CUTS), [machine for machine in self._machines if machine is not rack.machine]
        rack.machine.cut(how, others)
        self.away()
        rack.machine.mend(how, others)

    def trial(self, kind: str) -> Callable[[], None]:
        """What to do for one of TRIALS."""
        return {"master_kills": self.kill_master, "etcd_kills": self.kill_etcd, "partitions": self.cut_off,
                "master_stops": lambda: self.stop(self.leader().master),
                "etcd_stops": lambda: self.stop(self.etcd_leader().etcd)}[kind]

    def await_complete(self) -> tuple[float, bool]:
        """Seconds that a leader takes to know all keys again, from when it answers; whether it says where they were."""
        self.ask("map")
        begin = time.monotonic()
        while self.reporting() or self.routes() != self.known:
            if time.monotonic() - begin > ANSWER_S_MAX:
                return time.monotonic() - begin, False
            time.sleep(PAUSE_S)
        return time.monotonic() - begin, True


def watch(pool: SharedPool, findings: Findings, members: dict[str, int], term: int) -> tuple[int, float]:
    """What has to hold after each trial; the term, and the seconds until the directory was complete."""
    took_s, right = pool.await_complete()
    if not right:
        findings.fault(f"keys are said to be elsewhere {took_s:.0f} s after a master leads: {pool.routes()[:1]}")
    now = int(pool.ask("map")["term"])
    if now < term:
        findings.fault(f"the term was {term} and is {now}: a pool map of before is back")
    if pool.epochs() != members:
        findings.fault(f"members were {members} and are {pool.epochs()}")
    findings.add({"checked": SAMPLE + NODES + 1})
    return now, took_s


def kill_masters_etcd(stage: Stage, order: Order) -> Findings:
    """One order explains what was said of each key, no node that lives is taken for gone, and a leader soon knows all keys."""
    findings, dice = Findings(), random.Random(order.seed)
    many = order.for_s >= MANY_FROM_S
    pool = SharedPool(stage, dice, MANY if many else FEW)
    members, first = pool.epochs(), int(pool.ask("map")["term"])
    cast = Cast(stage, {"pool": f"{pool.url}&host=client"}, order, findings, pool.here.within)
    actors = cast.enter_all(ACTORS, pool=1, pause_us=PAUSE_US, timeout_ms=TIMEOUT_MS)
    left = [kind for kind, count in TRIALS.items() for _ in range(count)]
    dice.shuffle(left)
    deadline, term, slowest_s = time.monotonic() + order.for_s, first, 0.0
    while left and time.monotonic() < deadline and not findings.faults:
        kind = left.pop()
        pool.trial(kind)()
        findings.add({kind: 1})
        term, took_s = watch(pool, findings, members, term)
        slowest_s = max(slowest_s, took_s)
    if many and slowest_s > COMPLETE_S_MAX:
        findings.fault(f"a leader knew all keys after {slowest_s:.1f} s, {COMPLETE_S_MAX:.0f} at most are right")
    cast.bow(actors)
    cast.judge([], pool=True)
    for process in (*(rack.master for rack in pool.racks), *pool.nodes):
        if process.popen.poll() is not None:
            findings.fault(f"one ended with {process.popen.returncode}: {process.said()}")
    findings.add({"terms": term - first, "keys": MANY if many else FEW, "complete_ms_max": round(slowest_s * 1000)})
    return findings


SOAKS = (
    Soak("kill_masters_etcd", f"{RACKS} masters that share {RACKS} etcd servers: leaders killed, stopped and cut off under load; "
         "what was said of a key fits one order, and no node that lives is taken for gone", ("stale", "lost"), kill_masters_etcd),
)
