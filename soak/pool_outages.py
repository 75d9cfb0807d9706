# SPDX-License-Identifier: Apache-2.0
"""Soaks of a pool whose nodes and master fall silent, die and come back, each in namespaces of its own."""

import contextlib
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from actors import Cast
from kill_nodes import COPIES, NODES, Place, Pool, listens
from networks import CUTS, Machine, network, refused
from procs import BenchError, Process, Stage, closing, run
from soaks import Findings, Order, Soak

ZOMBIE = Path(__file__).parent / "zombie_client.py"
PLACES = (f"--place=k/=home:{COPIES}", f"--place=c/=anywhere:{COPIES}")
ACTORS, STOPS, DROPS = 5, 50, 50
TIMEOUT_MS, HASTY_MS = 2000, 300
SILENT_S_MAX, MOVES_S_MAX, PUT_S_MAX, ZOMBIE_S = 3.0, 15.0, 20.0, 6.0
MASTER = -1


def trusted(stage: Stage, machines: list[Machine]) -> list[Place]:
    """Machines on a network of one secret."""
    path = stage.folder / "secret"
    path.touch(mode=0o600)
    path.write_text(secrets.token_hex(32))
    return [Place(machine.host, machine.signalled, ("--fabric=trusted", f"--secret-file={path}"), (str(path),),
                  f"secret_file={path}&fabric=trusted") for machine in machines]


class Outages:
    """A pool on a bridge, actors that use it, and what is done to it, one thing at a time."""

    def __init__(self, stage: Stage, order: Order, findings: Findings) -> None:
        self._stage, self.findings = stage, findings
        self.dice = random.Random(order.seed)
        if refused():
            raise BenchError(refused())
        self._machines: list[Machine] = stage.keep(network(NODES + 2))
        places = trusted(stage, self._machines)
        self._here = places[-1]
        self.pool = Pool(stage, places, PLACES)
        self._client = [*self._here.within, stage.program("penstock")]
        self._cast = Cast(stage, {"pool": f"{self.pool.url}&host=client"}, order, findings, self._here.within)
        self._actors = [actor for hasty in (False, True)
                        for actor in self._cast.enter_all(ACTORS - 1 if not hasty else 1, pool=1, pause_us=4000,
                                                          timeout_ms=HASTY_MS if hasty else TIMEOUT_MS)]

    def put(self, key: str, value: str) -> None:
        """Through the pool, again until it is acknowledged; raises BenchError when it is not."""
        path, deadline = self._stage.folder / "value", time.monotonic() + PUT_S_MAX
        path.write_text(value)
        while True:
            try:
                run([*self._client, "put", "--url", self.pool.url, key, str(path)])
                return
            except BenchError:
                if time.monotonic() > deadline:
                    raise

    def get(self, key: str) -> str:
        """Through the pool."""
        return run([*self._client, "get", "--url", self.pool.url, key])

    def anyone(self) -> int:
        """One of the nodes, or the master."""
        return self.dice.choice((MASTER, *range(NODES)))

    def process(self, who: int) -> Process:
        """Its process."""
        return self.pool.master if who == MASTER else self.pool.nodes[who]

    def _still(self, who: int, how: str, now: bool) -> None:
        machine = self._machines[1 + who]
        others = [other for other in self._machines if other is not machine]
        if how == "stop":
            self.process(who).popen.send_signal(signal.SIGSTOP if now else signal.SIGCONT)
        else:
            (machine.cut if now else machine.mend)(how, others)

    @contextlib.contextmanager
    def silence(self, who: int, how: str) -> Iterator[None]:
        """Nothing is heard of it: it is stopped, or its link is cut. It is not the only one that has a partition."""
        self._still(who, how, True)
        try:
            while who != MASTER and not self.pool.keeps_copies():
                self._still(who, how, False)
                self.pool.await_copies()
                self._still(who, how, True)
            yield
        finally:
            self._still(who, how, False)

    def silence_for_a_while(self, who: int, how: str) -> None:
        """Shorter than a lease, or longer than a membership."""
        with self.silence(who, how):
            time.sleep(self.dice.uniform(0.05, 0.5) if self.dice.random() < 0.5 else self.dice.uniform(0.5, SILENT_S_MAX))

    def suffer(self, what: str, trial: Callable[[], None]) -> None:
        """One thing is done, and all is as it should be again; otherwise a violation, and the rest would follow from it."""
        try:
            trial()
            self.pool.await_copies()
        except BenchError as error:
            self.findings.fault(f"{what}: {error}")

    def end(self) -> None:
        """Whether all that the actors were told is right."""
        self._cast.bow(self._actors)
        self._cast.judge([], pool=True)
        for who in (MASTER, *range(NODES)):
            code = self.process(who).popen.poll()
            if code is not None:
                self.findings.fault(f"{listens(self.process(who))} ended with {code}: {self.process(who).said()}")

    # ---- one that comes back

    def owner(self, key: str) -> int:
        """The node that has a key's partition."""
        return [listens(node) for node in self.pool.nodes].index(self.pool.primary(key))

    def await_successor(self, key: str, who: int) -> None:
        """Another node has the key's partition; raises BenchError when none takes it."""
        deadline = time.monotonic() + MOVES_S_MAX
        while self.pool.primary(key) in ("", listens(self.process(who))):
            if time.monotonic() > deadline:
                raise BenchError(f"no other node has taken {key} within {MOVES_S_MAX:.0f} s")
            time.sleep(0.02)

    def haunt(self, how: str, plant: bool) -> None:
        """A client of a node alone writes to it while it is silent, and a successor has taken its place."""
        name = f"zombie-{self.findings.counts.get('haunted', 0)}"
        key, old, new, evil = f"k/{name}", f"{name} old", f"{name} new", f"{name} evil"
        self.put(key, old)
        who = self.owner(key)
        zombie = self._stage.start([*self._here.within, sys.executable, "-B", str(ZOMBIE),
                                    f"node://{listens(self.process(who))}?{self._here.url}", key, evil, str(ZOMBIE_S)],
                                   {"PYTHONPATH": str(self._stage.build / "python")}, hold_stdin=True)
        zombie.wait_text("open")
        with self.silence(who, how):
            self.await_successor(key, who)
            self.put(key, new)
            assert zombie.popen.stdin
            zombie.popen.stdin.write(b"now\n")
            zombie.popen.stdin.flush()
            time.sleep(0.1)  # its requests are on their way
        try:
            zombie.popen.wait(2 * ZOMBIE_S)
        except subprocess.TimeoutExpired:
            self.findings.fault(f"{key}: requests to a node that came back do not end")
            return
        told = closing(zombie.text())[1]
        if told is None:
            raise BenchError(f"a client said nothing: {zombie.said()}")
        if plant:
            self.put(key, evil)
        self.judge_zombie(key, who, (old, new, evil), told)

    def judge_zombie(self, key: str, who: int, values: tuple[str, str, str], told: dict[str, int | str]) -> None:
        """What it was told, and what is there now; the node may have the partition again, and rightly then."""
        old, new, evil = values
        now, rightly = self.get(key), self.pool.primary(key) == listens(self.process(who))
        self.findings.add({"checked": 3, "haunted": 1, "fenced": not isinstance(told["put"], int)})
        if told["get"] == old:
            self.findings.fault(f"{key}: a node that came back showed what it had before")
        if isinstance(told["put"], int) and not rightly:
            self.findings.fault(f"{key}: a node that came back took a write")
        if now != new and not (rightly and now == evil):
            self.findings.fault(f"{key}: {now!r} is there, where {new!r} was written")


def freeze_and_drop(stage: Stage, order: Order) -> Findings:
    """Every request ends, and a node that comes back has no say any more."""
    findings = Findings()
    outages = Outages(stage, order, findings)
    deadline = time.monotonic() + order.for_s
    left = ["stops"] * STOPS + ["drops"] * DROPS
    outages.dice.shuffle(left)
    while left and time.monotonic() < deadline and not findings.faults:
        kind = left.pop()
        how = "stop" if kind == "stops" else outages.dice.choice(CUTS)
        if outages.dice.random() < 0.5 and order.plant != "zombie":
            outages.suffer(how, partial(outages.silence_for_a_while, outages.anyone(), how))
        else:
            outages.suffer(how, partial(outages.haunt, how, order.plant == "zombie"))
        findings.add({kind: 1, f"how_{how}": 1})
    outages.end()
    return findings


# ---- pool_linearizable


def kill_master(outages: Outages) -> None:
    """It comes back with its view, in a moment."""
    outages.pool.master.popen.kill()
    outages.pool.master.popen.wait()
    time.sleep(outages.dice.uniform(0, 1.0))
    outages.pool.start_master()


def kill_node(outages: Outages) -> None:
    """Another comes in its place, before the pool has seen it go, or later."""
    who = outages.dice.randrange(NODES)
    outages.pool.kill(who)
    time.sleep(outages.dice.uniform(0, 0.6))
    outages.pool.nodes[who] = outages.pool.start(who)


def restart_node(outages: Outages) -> None:
    """It leaves in order, and another comes."""
    who = outages.dice.randrange(NODES)
    outages.pool.freeze(who)
    outages.process(who).popen.send_signal(signal.SIGCONT)
    outages.process(who).stop()
    if outages.process(who).popen.returncode != 0:
        outages.findings.fault(f"a node ended with {outages.process(who).popen.returncode}: {outages.process(who).said()}")
    outages.pool.nodes[who] = outages.pool.start(who)


def stop_anyone(outages: Outages) -> None:
    """It is stopped, and goes on."""
    outages.silence_for_a_while(outages.anyone(), "stop")


def cut_anyone(outages: Outages) -> None:
    """Its link is cut, and mended."""
    outages.silence_for_a_while(outages.anyone(), outages.dice.choice(CUTS))


TRIALS = {"kills": kill_node, "master_kills": kill_master, "restarts": restart_node, "stops": stop_anyone, "drops": cut_anyone}


def pool_linearizable(stage: Stage, order: Order) -> Findings:
    """One order explains, for each key that has a home, all that was said of it, whatever happens to the pool."""
    findings = Findings()
    outages = Outages(stage, order, findings)
    deadline = time.monotonic() + order.for_s
    left: list[str] = []
    while time.monotonic() < deadline and not findings.faults:
        if not left:
            left = outages.dice.sample(list(TRIALS), len(TRIALS))
        kind = left.pop()
        outages.suffer(kind, partial(TRIALS[kind], outages))
        findings.add({kind: 1})
    outages.end()
    return findings


SOAKS = (
    Soak("freeze_and_drop", f"a pool's nodes and master stopped {STOPS} times, and their links cut {DROPS} times: every request "
         "ends, and who comes back is fenced", ("zombie", "late", "lost"), freeze_and_drop),
    Soak("pool_linearizable", "a pool with kills, stops, cut links and restarts of all kinds: what was said of a key fits one order",
         ("stale", "lost", "torn"), pool_linearizable),
)
