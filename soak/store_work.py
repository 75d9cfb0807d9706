# SPDX-License-Identifier: Apache-2.0
"""What pods do with a data store under faults: puts, gets and broadcasts, each again until it succeeds, each judged."""

import http.client
import itertools
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from procs import BenchError
from store_rig import Outcome
from store_scene import Observer, Scene, judge
from tree_versions import write_version

MEMBERS = 3
ATTEMPTS_MAX = 60
ATTEMPT_PAUSE_S = 0.05
MISS = 1  # the exit status of `penstock tree` when the store has no such tree
FRONT = "import sys\nfrom penstock import data_store as ds\n"


class Worker:
    """Puts trees and files of its own names, fetches them, and looks at whatever appears.

    Parameters
    ----------
    scene : Scene
    observer : Observer
    number : int
        The worker's. Odd ones put and get a file by rsync from Python, even ones a file and trees by the protocol for trees.
    """

    def __init__(self, scene: Scene, observer: Observer, number: int) -> None:
        self._scene, self._observer, self._number, self._by_rsync = scene, observer, number, number % 2 == 1
        self._sources = scene.stage.folder / f"sources{number}"

    def run(self) -> None:
        """Rounds until the faults are over, and one more, in which nothing may fail."""
        try:
            for turn in itertools.count(1):
                last = self._scene.over.is_set()
                self._file(turn)
                if not self._by_rsync:
                    self._tree(turn)
                self._scene.count(rounds=1, last_rounds=int(last))
                if last:
                    return
        except (BenchError, OSError) as error:
            if not self._scene.gone.is_set():
                self._scene.fault(f"worker {self._number}: {error}")

    def _file(self, version: int) -> None:
        """A single file, of which each put is a new version under the same name."""
        name = f"file{self._number}"
        source, stored = self._sources / name, self._scene.store.files / name
        before_or_now = range(max(version - 1, 1), version + 1)
        now = range(version, version + 1)
        write_version(self._scene.order.seed, name, version, source)
        with self._observer.watching(stored, name, before_or_now):
            self._until_done("put", self._put(name, source), lambda: judge(self._scene, name, before_or_now, stored))
            # An rsync whose client was killed may still finish: nothing orders it before the next put.
            self._fetch("get", name, before_or_now if self._by_rsync else now, self._get)

    def _tree(self, version: int) -> None:
        """A tree that appears whole, in the store and at each destination."""
        name = f"tree{self._number}-{version}"
        source, stored = self._sources / name, self._scene.store.files / name
        known = range(version, version + 1)
        write_version(self._scene.order.seed, name, version, source)
        with self._observer.watching(stored, name, known):
            self._until_done("put", self._put(name, source), lambda: judge(self._scene, name, known, stored))
            if self._scene.plants("lost"):
                shutil.rmtree(stored)
            if not judge(self._scene, name, known, stored):
                self._scene.fault(f"the store does not have {name}, which was put")
            self._fetch("get", name, known, self._get)
            with ThreadPoolExecutor(MEMBERS) as members:
                list(members.map(lambda number: self._fetch("broadcast", name, known, self._broadcast, number), range(MEMBERS)))
        self._remove(name)
        shutil.rmtree(source)

    def _fetch(self, what: str, name: str, known: range, command: Callable[[str, Path], list[str]], number: int = 0) -> None:
        """To a folder of its own, in which nothing else lies once it has succeeded."""
        folder = self._scene.places / f"{name}-{known[-1]}-{what}{number}"
        folder.mkdir()
        out = folder / name
        with self._observer.watching(out, name, known):
            self._until_done(what, command(name, out), lambda: judge(self._scene, name, known, out))
            if not judge(self._scene, name, known, out):
                self._scene.fault(f"{what} of {name} has succeeded, and nothing is at {out}")
        if self._scene.plants("leftover"):
            (folder / f".penstock-{name}.part").mkdir()
        if left := sorted(path.name for path in folder.iterdir() if path != out):
            self._scene.fault(f"{what} of {name} has succeeded, and {left} is left at its destination")
        shutil.rmtree(folder)

    def _put(self, name: str, source: Path) -> list[str]:
        if self._by_rsync:
            return [sys.executable, "-c", f"{FRONT}ds.put({name!r}, {str(source)!r}, force=True)"]
        return [*self._tree_command("put"), str(source), self._url(name)]

    def _get(self, name: str, out: Path) -> list[str]:
        if self._by_rsync:
            return [sys.executable, "-c", f"{FRONT}ds.get({name!r}, {str(out.parent)!r})"]
        return [*self._tree_command("get"), self._url(name), str(out)]

    def _broadcast(self, name: str, out: Path) -> list[str]:
        return [*self._tree_command("broadcast"), f"--group={name}", f"--members={MEMBERS}", self._url(name), str(out)]

    def _tree_command(self, action: str) -> list[str]:
        return [self._scene.stage.program("penstock"), "tree", action]

    def _url(self, name: str) -> str:
        return f"tree://127.0.0.1:{self._scene.trees.port}/default/{name}"

    def _until_done(self, what: str, command: list[str], judged: Callable[[], object]) -> None:
        """Call until it succeeds. What has appeared is judged after each try, and each failure must have had a cause."""
        scene = self._scene
        for _ in range(ATTEMPTS_MAX):
            if scene.gone.is_set():
                raise BenchError("the store is gone")
            read = scene.clock.read()
            planted = what == "get" and scene.plants("late")
            outcome = scene.pods.call(["sleep", "3600"] if planted else command, scene.python_environment())
            calm = scene.clock.calm_since(read)
            scene.count(checked=1, **{f"{what}s" if outcome.code == 0 else f"failed_{what}s": 1})
            judged()
            if outcome.late:
                scene.fault(f"{what} does not end within its bound: {command}: {outcome}")
            elif outcome.code == 0:
                return
            else:
                self._judge_failure(what, command, outcome, calm)
            time.sleep(ATTEMPT_PAUSE_S)
        raise BenchError(f"{what} has failed {ATTEMPTS_MAX} times, the last time with {outcome}")

    def _judge_failure(self, what: str, command: list[str], outcome: Outcome, calm: bool) -> None:
        if calm:
            self._scene.fault(f"{what} failed, though nothing was done to it: {command[-2:]}: {outcome}")
        elif what != "put" and not self._by_rsync and outcome.code == MISS:
            self._scene.fault(f"{what}: the store has lost what it acknowledged: {command[-2:]}: {outcome}")

    def _remove(self, name: str) -> None:
        """From the store, again while it is away or has no room to note it."""
        told: object = None
        for _ in range(ATTEMPTS_MAX):
            try:
                status, told = self._scene.store.ask("DELETE", name, "?recursive=true")
                if status == 200:
                    return
            except (OSError, http.client.HTTPException, ValueError) as error:
                told = error
            time.sleep(4 * ATTEMPT_PAUSE_S)
        raise BenchError(f"{name} cannot be deleted: {told}")
