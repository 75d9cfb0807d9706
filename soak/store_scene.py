# SPDX-License-Identifier: Apache-2.0
"""What workers, faults and the observer of the soak data_store share."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cable import Cable
from procs import Stage
from soaks import Findings, Order
from store_rig import Agent, Outcome, Pods, Store
from tree_versions import fault_of

LOOK_PAUSE_S = 0.02


class FaultClock:
    """Whether something was done to the store or to pods at a moment between two readings."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = self._ended = 0

    def begin(self) -> None:
        """A fault begins."""
        with self._lock:
            self._begun += 1

    def end(self) -> None:
        """It is over: all is as it was before."""
        with self._lock:
            self._ended += 1

    def read(self) -> tuple[int, int]:
        """Faults that have begun, and those of them that are over."""
        with self._lock:
            return self._begun, self._ended

    def calm_since(self, read: tuple[int, int]) -> bool:
        """No fault was underway at that reading, and none has begun since."""
        return read == self.read() and read[0] == read[1]


class Ledger:
    """How far the versions of names have come: the last one that was acknowledged, and the last that was put."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._versions: dict[str, tuple[int, int]] = {}

    def begin(self, name: str, version: int) -> None:
        """From now on this version may be found."""
        with self._lock:
            self._versions[name] = (self._versions.get(name, (0, 0))[0], version)

    def acknowledge(self, name: str) -> None:
        """The version that was put is there."""
        with self._lock:
            self._versions[name] = (self._versions[name][1],) * 2

    def read(self, name: str) -> tuple[int, int]:
        """Acknowledged, and put."""
        with self._lock:
            return self._versions.get(name, (0, 0))


@dataclass
class Scene:
    """All that lasts as long as the soak."""

    stage: Stage
    order: Order
    store: Store
    agent: Agent
    pods: Pods
    http: Cable
    trees: Cable
    rsync: Cable
    places: Path  # where destinations lie
    clock: FaultClock = field(default_factory=FaultClock)
    ledger: Ledger = field(default_factory=Ledger)
    findings: Findings = field(default_factory=Findings)
    over: threading.Event = field(default_factory=threading.Event)  # no more faults
    gone: threading.Event = field(default_factory=threading.Event)  # the store does not come back
    orphans: list[str] = field(default_factory=list)  # keys whose only sources were processes that have been killed
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _planted: bool = False

    def count(self, **counts: int) -> None:
        """Figures of any thread."""
        with self._lock:
            self.findings.add(counts)

    def fault(self, text: str) -> None:
        """A violation of any thread."""
        with self._lock:
            self.findings.fault(text)

    def plants(self, fault: str) -> bool:
        """Whether this fault is to be planted; once."""
        with self._lock:
            if self._planted or self.order.plant != fault:
                return False
            self._planted = True
            return True

    def call(self, what: str, command: Sequence[str], **more: str) -> Outcome:
        """What becomes of a pod's call. It must end, and may fail, but not crash."""
        outcome = self.pods.call(command, self.python_environment(**more))
        if outcome.late:
            self.fault(f"{what} does not end within its bound: {list(command)}: {outcome}")
        elif outcome.crashed:
            self.fault(f"{what} crashes: {list(command)}: {outcome}")
        return outcome

    def python_environment(self, **more: str) -> dict[str, str]:
        """What a pod in Python needs to reach the store through the cables, and by rsync."""
        return {"PYTHONPATH": str(self.stage.build / "python"), "PENSTOCK_DATA_TRANSPORT": "rsync",
                "PENSTOCK_DATA_URL": f"http://127.0.0.1:{self.http.port}", "POD_NAMESPACE": "default",
                "PENSTOCK_DATA_RSYNC": f"127.0.0.1:{self.rsync.port}", **more}


@dataclass(frozen=True)
class Expected:
    """What may lie under a final name: nothing, or one of these versions, whole. With `mixed` each file may be of another one."""

    name: str
    versions: Callable[[], range]
    mixed: bool = False


def known(name: str, first: int, last: int = 0, mixed: bool = False) -> Expected:
    """The versions from the first, 1 at the least, to the last; one of them without that."""
    versions = range(max(first, 1), max(first, last) + 1)
    return Expected(name, lambda: versions, mixed)


@dataclass(eq=False)
class Place:
    """A final name, and what may lie there."""

    path: Path
    expected: Expected
    lock: threading.Lock = field(default_factory=threading.Lock)  # held while somebody looks
    watched: bool = True


class Observer:
    """Looks at all final names, again and again."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._lock = threading.Lock()
        self._places: list[Place] = []

    @contextlib.contextmanager
    def watching(self, path: Path, expected: Expected) -> Iterator[None]:
        """Look at a place within the block, and never after it."""
        place = Place(path, expected)
        with self._lock:
            self._places.append(place)
        try:
            yield
        finally:
            with self._lock:
                self._places.remove(place)
            with place.lock:
                place.watched = False

    def run(self) -> None:
        """Look, as long as the soak lasts."""
        while True:
            with self._lock:
                places = list(self._places)
            for place in places:
                with place.lock:
                    if place.watched:
                        self._look(place)
            time.sleep(LOOK_PAUSE_S)

    def _look(self, place: Place) -> None:
        there = judge(self._scene, place.path, place.expected, "looked at while it may arrive: ")
        self._scene.count(looks=1, looks_at_something=int(there))


def judge(scene: Scene, path: Path, expected: Expected, when: str = "") -> bool:
    """Tell unless what lies there, if anything does, is as expected; whether anything does."""
    there = path.exists()
    if there and (scene.plants("byte") or scene.plants("half")):
        damage(next(file for file in (path, *sorted(path.rglob("*"))) if file.is_file()), scene.order.plant == "half")
    if there and (wrong := fault_of(scene.order.seed, expected.name, expected.versions(), path, expected.mixed)):
        scene.fault(f"{when}{wrong}")
    scene.count(checked=1, verified=int(there))
    return there


def damage(file: Path, half: bool) -> None:
    """What must be found: half of a file, or a wrong byte."""
    data = bytearray(file.read_bytes())
    if half:
        del data[len(data) // 2:]
    else:
        data[len(data) // 2] ^= 1
    file.write_bytes(data)
