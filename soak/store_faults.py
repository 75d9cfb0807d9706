# SPDX-License-Identifier: Apache-2.0
"""The soak data_store: pods, their cables, the store and its disk fail while trees are put, fetched and broadcast."""

import random
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from cable import Cable
from procs import BenchError, Stage
from soaks import MIB, Findings, Order, Soak
from store_offers import LEASE_S, Offers, is_listed
from store_readers import Reader
from store_rig import Agent, Pods, Store, filled, small_disk
from store_scene import Observer, Scene
from store_work import Worker

FAULTS_MAX, WORKERS = 300, 4
CALL_S_MAX, MARGIN_S = 60.0, 30.0  # a peer that does not move is given up after 60 s
PLANTED_BOUND_S = 5.0  # of a call that is planted never to end
GULP_S = 0.004
POD_IP = "127.0.77.1"
DISK_BYTES = 96 * MIB
AWAY_S, STOPPED_S, FULL_S, PAUSE_S = (0.0, 0.3), (0.05, 2.5), (0.1, 0.6), (0.05, 0.4)
END_S_MAX = CALL_S_MAX + 2 * MARGIN_S


class Faults:
    """What is done to the store, its disks, the cables and the pods, one thing at a time."""

    def __init__(self, scene: Scene, disks: tuple[Path, ...]) -> None:
        self._scene, self._disks = scene, disks
        self._dice = random.Random(scene.order.seed)
        self._cables = (scene.http, scene.trees, scene.rsync)
        self._kinds: tuple[Callable[[], str], ...] = (
            self._kill_pod, self._kill_pod, self._stop_pod, self._pull, self._freeze, self._restart, self._fill, self._outlive,
            self._kill_rsync, self._kill_agent)

    def run(self) -> None:
        """Until the time is over, or there were FAULTS_MAX; raises BenchError if the store or the agent is gone for good."""
        deadline = time.monotonic() + self._scene.order.for_s
        made = 0
        while made < FAULTS_MAX and time.monotonic() < deadline:
            time.sleep(self._dice.uniform(*PAUSE_S))
            kind = self._kinds[made] if made < len(self._kinds) else self._dice.choice(self._kinds)
            self._scene.clock.begin()
            try:
                name = kind()
            finally:
                self._scene.clock.end()
            if name:
                made += 1
                self._scene.count(faults=1, **{name: 1})

    def _wait(self, between: tuple[float, float]) -> None:
        time.sleep(self._dice.uniform(*between))

    def _kill_pod(self) -> str:
        return "pod_kills" if self._scene.pods.signal_one(self._dice, signal.SIGKILL) else ""

    def _stop_pod(self) -> str:
        done = self._scene.pods.signal_one(self._dice, signal.SIGSTOP, signal.SIGCONT, pause=lambda: self._wait(STOPPED_S))
        return "pod_stops" if done else ""

    def _pull(self) -> str:
        return "cuts" if sum(cable.pull() for cable in self._cables) else ""

    def _freeze(self) -> str:
        """The cables carry nothing for a while; then each goes on, or is pulled."""
        for cable in self._cables:
            cable.freeze()
        self._wait(STOPPED_S)
        for cable in self._cables:
            if self._dice.random() < 0.5:
                cable.pull()
            cable.thaw()
        return "freezes"

    def _restart(self) -> str:
        self._scene.store.kill()
        self._wait(AWAY_S)
        self._scene.store.start()
        return "store_kills"

    def _kill_rsync(self) -> str:
        return "rsync_kills" if self._scene.store.kill_rsync() else ""

    def _kill_agent(self) -> str:
        self._scene.agent.kill()
        self._wait(AWAY_S)
        self._scene.agent.start()
        return "agent_kills"

    def _outlive(self) -> str:
        """The store is away for longer than a lease."""
        outlive(self._scene)
        return "leases"

    def _fill(self) -> str:
        with filled(self._dice.choice(self._disks)):
            self._wait(FULL_S)
        return "full_disks"


def outlive(scene: Scene) -> None:
    """Kill the store, let all leases end, start it again: it lists no source that was killed before."""
    orphans = list(scene.orphans)
    listed = sum(is_listed(scene, name) for name in orphans)
    scene.count(dead_sources=listed)
    scene.store.kill()
    if not (listed and scene.plants("stale-source")):
        scene.store.age_sources(LEASE_S + 1)
    scene.store.start()
    for name in orphans:
        scene.count(checked=1, leases_over=1)
        if is_listed(scene, name):
            scene.fault(f"the store still lists {name} after the lease of its only source, which was killed")


def check_store(scene: Scene) -> None:
    """What the store has at the end: whole files of workers, nothing that was deleted, nothing half; and it lives."""
    left = sorted(str(path.relative_to(scene.store.files)) for path in scene.store.files.rglob("*"))
    scene.count(checked=1)
    if wrong := [name for name in left if not re.fullmatch(r"file\d|evolving\d(/sub)?(/\d)?", name)]:
        scene.fault(f"the store has {wrong}, which nobody put, which were deleted, or which a broken put has left")
    scene.store.process.stop()
    if scene.store.process.popen.returncode:
        scene.fault(f"the store ended with {scene.store.process.popen.returncode}: {scene.store.process.said()}")


def await_crew(scene: Scene, crew: list[threading.Thread]) -> None:
    """No more faults: each does what it does once more, and ends."""
    scene.over.set()
    deadline = time.monotonic() + END_S_MAX
    for each in crew:
        each.join(max(deadline - time.monotonic(), 0))
    if late := sum(each.is_alive() for each in crew):
        scene.fault(f"{late} workers have not ended {END_S_MAX:.0f} s after the last fault")


def data_store(stage: Stage, order: Order) -> Findings:
    """Every tree that appears is whole and right, every call ends, the store comes back, and dead sources are forgotten."""
    disks = tuple(stage.keep(small_disk(stage.folder / name, DISK_BYTES)) for name in ("store", "pods"))
    store = Store(stage, disks[0] / "data")
    pods = stage.keep(Pods(PLANTED_BOUND_S if order.plant == "late" else CALL_S_MAX + MARGIN_S))
    cables = (stage.keep(Cable(port, GULP_S)) for port in (store.http_port, store.tree_port, store.rsync_port))
    scene = Scene(stage, order, store, Agent(stage, POD_IP), pods, *cables, places=disks[1])
    observer = Observer(scene)
    workers = [Worker(scene, observer, number) for number in range(WORKERS)]
    crew = [threading.Thread(target=actor.run, daemon=True)
            for actor in (*workers, Reader(scene, observer, [worker.file for worker in workers]), Offers(scene, observer))]
    for each in (*crew, threading.Thread(target=observer.run, daemon=True)):
        each.start()
    try:
        Faults(scene, disks).run()
        await_crew(scene, crew)
        outlive(scene)
        check_store(scene)
    except BenchError as error:
        scene.gone.set()
        scene.fault(f"the store or the agent does not come back: {error}")
        await_crew(scene, crew)
    return scene.findings


SOAKS = (
    Soak("data_store", f"pods, cables, the store and its disk fail {FAULTS_MAX} times under puts, gets and broadcasts of trees",
         ("half", "byte", "lost", "refused", "late", "crash", "leftover", "stale-offer", "stale-source"), data_store),
)
