# SPDX-License-Identifier: Apache-2.0
"""What workers, faults and the observer of the soak data_store share."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cable import Cable
from procs import Stage
from soaks import Findings, Order
from store_rig import Pods, Store
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


@dataclass
class Scene:
    """All that lasts as long as the soak."""

    stage: Stage
    order: Order
    store: Store
    pods: Pods
    trees: Cable
    rsync: Cable
    places: Path  # where destinations lie
    clock: FaultClock = field(default_factory=FaultClock)
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

    def python_environment(self, **more: str) -> dict[str, str]:
        """What a pod in Python needs to reach the store through the cables, by rsync."""
        return {"PYTHONPATH": str(self.stage.build / "python"), "PENSTOCK_DATA_TRANSPORT": "rsync",
                "PENSTOCK_DATA_URL": f"http://127.0.0.1:{self.store.http_port}", "POD_NAMESPACE": "default",
                "PENSTOCK_DATA_RSYNC": f"127.0.0.1:{self.rsync.port}", **more}


@dataclass
class Place:
    """A final name, and the versions of which one may lie there whole."""

    path: Path
    name: str
    versions: range
    lock: threading.Lock = field(default_factory=threading.Lock)  # held while somebody looks
    watched: bool = True


class Observer:
    """Looks at all final names, again and again: nothing lies there, or one of the versions, whole."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._lock = threading.Lock()
        self._places: list[Place] = []

    @contextlib.contextmanager
    def watching(self, path: Path, name: str, versions: range) -> Iterator[None]:
        """Look at a place within the block, and never after it."""
        place = Place(path, name, versions)
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
        """Look, until the soak's last round is over."""
        while True:
            with self._lock:
                places = list(self._places)
            for place in places:
                with place.lock:
                    if place.watched:
                        self._look(place)
            time.sleep(LOOK_PAUSE_S)

    def _look(self, place: Place) -> None:
        there = judge(self._scene, place.name, place.versions, place.path, "looked at while it may arrive: ")
        self._scene.count(looks=1, looks_at_something=int(there))


def judge(scene: Scene, name: str, versions: range, path: Path, when: str = "") -> bool:
    """Tell unless what lies there, if anything does, is one of these versions, whole; whether anything does."""
    there = path.exists()
    if there and (scene.plants("byte") or scene.plants("half")):
        damage(next(file for file in (path, *sorted(path.rglob("*"))) if file.is_file()), scene.order.plant == "half")
    if there and (wrong := fault_of(scene.order.seed, name, versions, path)):
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
