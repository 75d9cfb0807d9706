# SPDX-License-Identifier: Apache-2.0
"""What pods do with a data store under faults: puts, gets and broadcasts, each again until it succeeds, each judged."""

import http.client
import itertools
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from procs import BenchError
from store_rig import Outcome
from store_scene import Expected, Observer, Scene, judge, known
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
        self.file = f"file{number}"
        self._put_at_once = True

    def run(self) -> None:
        """Rounds until the faults are over, and one more, in which nothing may fail."""
        try:
            for turn in itertools.count(1):
                last = self._scene.over.is_set()
                self._file(turn)
                if not self._by_rsync:
                    self._tree(turn)
                    self._evolving(turn)
                self._scene.count(rounds=1, last_rounds=int(last))
                if last:
                    return
        except (BenchError, OSError) as error:
            if not self._scene.gone.is_set():
                self._scene.fault(f"worker {self._number}: {error}")

    def _file(self, version: int) -> None:
        """A single file, of which each put is a new version under the same name."""
        name = self.file
        source, stored = self._sources / name, self._scene.store.files / name
        before_or_now = known(name, version - 1, version)
        write_version(self._scene.order.seed, name, version, source)
        self._scene.ledger.begin(name, version)
        with self._observer.watching(stored, before_or_now):
            at_once = self._until_done("put", self._put(name, source), lambda: judge(self._scene, stored, before_or_now))
            self._scene.ledger.acknowledge(name)
            # An rsync whose client was killed may still finish: nothing orders it before the next put.
            late_put = self._by_rsync and not (at_once and self._put_at_once)
            self._put_at_once = at_once
            self._fetch("get", before_or_now if late_put else known(name, version), self._get, self._place(name, "get"))
        shutil.rmtree(self._place(name, "get"))

    def _tree(self, version: int) -> None:
        """A tree that appears whole, in the store and at each destination."""
        name = f"tree{self._number}-{version}"
        self._put_and_fetch(known(name, version), known(name, version), f"{name}")
        self._remove(name)
        for folder in (self._sources / name, *self._places(name)):
            shutil.rmtree(folder)

    def _evolving(self, version: int) -> None:
        """A tree that is brought up to date, file by file, in the store and at each destination."""
        name = f"evolving{self._number}"
        self._put_and_fetch(known(name, version), known(name, version - 1, version, mixed=True), f"{name}-{version}")

    def _put_and_fetch(self, now: Expected, meanwhile: Expected, group: str) -> None:
        source, stored = self._sources / now.name, self._scene.store.files / now.name
        write_version(self._scene.order.seed, now.name, now.versions()[-1], source)
        with self._observer.watching(stored, meanwhile):
            self._until_done("put", self._put(now.name, source), lambda: judge(self._scene, stored, meanwhile))
            if self._scene.plants("lost"):
                shutil.rmtree(stored)
            if not judge(self._scene, stored, now):
                self._scene.fault(f"the store does not have {now.name}, which was put")
            first, *members = self._places(now.name)
            self._fetch("get", now, self._get, first, meanwhile)
            with ThreadPoolExecutor(MEMBERS) as pool:
                for done in [pool.submit(self._fetch, "broadcast", now, partial(self._broadcast, group), folder, meanwhile)
                             for folder in members]:
                    done.result()

    def _place(self, name: str, what: str) -> Path:
        return self._scene.places / f"{name}-{what}"

    def _places(self, name: str) -> list[Path]:
        return [self._place(name, what) for what in ("get", *(f"member{number}" for number in range(MEMBERS)))]

    def _fetch(self, what: str, now: Expected, command: Callable[[str, Path], list[str]], folder: Path,
               meanwhile: Expected | None = None) -> None:
        """Into a folder, in which nothing else lies once it has succeeded."""
        folder.mkdir(exist_ok=True)
        out, meanwhile = folder / now.name, meanwhile or now
        with self._observer.watching(out, meanwhile):
            self._until_done(what, command(now.name, out), lambda: judge(self._scene, out, meanwhile))
            if not judge(self._scene, out, now):
                self._scene.fault(f"{what} of {now.name} has succeeded, and nothing is at {out}")
        if self._scene.plants("leftover"):
            (folder / f".penstock-{now.name}.part").mkdir()
        if left := sorted(path.name for path in folder.iterdir() if path != out):
            self._scene.fault(f"{what} of {now.name} has succeeded, and {left} is left at its destination")

    def _put(self, name: str, source: Path) -> list[str]:
        return put_command(self._scene, self._by_rsync, name, source)

    def _get(self, name: str, out: Path) -> list[str]:
        return get_command(self._scene, self._by_rsync, name, out)

    def _broadcast(self, group: str, name: str, out: Path) -> list[str]:
        return [self._scene.stage.program("penstock"), "tree", "broadcast", f"--group={group}", f"--members={MEMBERS}",
                tree_url(self._scene, name), str(out)]

    def _until_done(self, what: str, command: list[str], judged: Callable[[], object]) -> bool:
        """Call until it succeeds; whether it did at once.

        What has appeared is judged after each try, and each failure must have had a cause.
        """
        scene = self._scene
        for attempt in range(ATTEMPTS_MAX):
            if scene.gone.is_set():
                raise BenchError("the store is gone")
            read = scene.clock.read()
            outcome = scene.call(what, self._planted(what) or command)
            calm = scene.clock.calm_since(read)
            scene.count(checked=1, **{f"{what}s" if outcome.code == 0 else f"failed_{what}s": 1})
            judged()
            if outcome.code == 0:
                return attempt == 0
            self._judge_failure(what, command, outcome, calm)
            time.sleep(ATTEMPT_PAUSE_S)
        raise BenchError(f"{what} has failed {ATTEMPTS_MAX} times, the last time with {outcome}")

    def _planted(self, what: str) -> list[str]:
        """A call that never ends, crashes, or fails without a cause, if that is to be planted."""
        if what == "get" and self._scene.plants("late"):
            return ["sleep", "3600"]
        if what == "get" and self._scene.plants("crash"):
            return ["sh", "-c", "kill -ABRT $$"]
        return ["false"] if self._scene.over.is_set() and self._scene.plants("refused") else []

    def _judge_failure(self, what: str, command: list[str], outcome: Outcome, calm: bool) -> None:
        if calm:
            self._scene.fault(f"{what} failed, though nothing was done to it: {command[-2:]}: {outcome}")
        elif what != "put" and is_miss(self._by_rsync, outcome):
            self._scene.fault(f"{what}: the store has lost what it acknowledged: {command[-2:]}: {outcome}")

    def _remove(self, name: str) -> None:
        """From the store, again while it is away or has no room to note it."""
        for _ in range(ATTEMPTS_MAX):
            read = self._scene.clock.read()
            try:
                status, told = self._scene.store.ask("DELETE", name, "?recursive=true")
            except (OSError, http.client.HTTPException, ValueError) as error:
                status, told = 0, error
            if status == 200:
                return
            if self._scene.clock.calm_since(read):
                self._scene.fault(f"{name} cannot be deleted, though nothing was done to the store: {told}")
            time.sleep(4 * ATTEMPT_PAUSE_S)
        raise BenchError(f"{name} cannot be deleted: {told}")


def is_miss(by_rsync: bool, outcome: Outcome) -> bool:
    """Whether a get says that there is nothing of this name."""
    return "KeyNotFound" in outcome.said if by_rsync else outcome.code == MISS


def put_command(scene: Scene, by_rsync: bool, name: str, source: Path) -> list[str]:
    """Put a file or a folder under a name."""
    if by_rsync:
        return [sys.executable, "-c", f"{FRONT}ds.put({name!r}, {str(source)!r}, force=True)"]
    return [scene.stage.program("penstock"), "tree", "put", str(source), tree_url(scene, name)]


def get_command(scene: Scene, by_rsync: bool, name: str, out: Path) -> list[str]:
    """Get a name as a path that ends with it."""
    if by_rsync:
        return [sys.executable, "-c", f"{FRONT}ds.get({name!r}, {str(out.parent)!r})"]
    return [scene.stage.program("penstock"), "tree", "get", tree_url(scene, name), str(out)]


def tree_url(scene: Scene, name: str) -> str:
    """Of a name, through the cable."""
    return f"tree://127.0.0.1:{scene.trees.port}/default/{name}"
