# SPDX-License-Identifier: Apache-2.0
"""Pods that fetch files while others put new versions of them, each by either transport."""

import random
import shutil
import time

from procs import BenchError
from store_scene import Expected, Observer, Scene, judge
from store_work import get_command, is_miss

PAUSE_S = 0.05


class Reader:
    """Fetches the files of workers, one after the other, each to a new place.

    Parameters
    ----------
    scene : Scene
    observer : Observer
    names : list of str
    """

    def __init__(self, scene: Scene, observer: Observer, names: list[str]) -> None:
        self._scene, self._observer, self._names = scene, observer, names
        self._dice = random.Random(f"{scene.order.seed} reader")
        self._folder = scene.places / "read"

    def run(self) -> None:
        """Until the faults are over."""
        try:
            while not self._scene.over.is_set():
                name = self._dice.choice(self._names)
                if self._scene.ledger.read(name)[0]:
                    self._read(name)
                time.sleep(PAUSE_S)
        except (BenchError, OSError) as error:
            if not self._scene.gone.is_set():
                self._scene.fault(f"reader: {error}")

    def _read(self, name: str) -> None:
        """Once. It may fail only while something is done to the store, or the file is put."""
        scene, out = self._scene, self._folder / name
        read, before = scene.clock.read(), scene.ledger.read(name)
        # An rsync whose client was killed may still finish a version of before.
        expected = Expected(name, lambda: range(max(before[0] - 1, 1), scene.ledger.read(name)[1] + 1))
        self._folder.mkdir()
        with self._observer.watching(out, expected):
            by_rsync = self._dice.random() < 0.5
            outcome = scene.call("read", get_command(scene, by_rsync, name, out))
            calm = scene.clock.calm_since(read) and before[0] == before[1] and scene.ledger.read(name) == before
            there = judge(scene, out, expected)
        if outcome.code == 0 and not there:
            scene.fault(f"get of {name} beside a put has succeeded, and nothing is at {out}")
        elif is_miss(by_rsync, outcome):
            scene.fault(f"get of {name} beside a put does not find it: {outcome}")
        elif outcome.code and calm:
            scene.fault(f"get of {name} failed, though nothing was done to it: {outcome}")
        scene.count(checked=1, **{"reads" if outcome.code == 0 else "failed_reads": 1})
        shutil.rmtree(self._folder)
