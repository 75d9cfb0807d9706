# SPDX-License-Identifier: Apache-2.0
"""Files and folders into a data store, by `penstock tree` and by the real rsync: the same files, the same store, in a tmpfs."""

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from procs import Stage, run

ROOT = Path(__file__).parent.parent
MIB = 1 << 20
LARGE = (8, 128 * MIB)  # files and bytes of each
SMALL = (20_000, 4 << 10)
CHANGES, CHANGE_BYTES = 20, 64 << 10  # in each large file: 1 %
A_FOLDER = 200  # small files

Takers = tuple[Callable[[], float], Callable[[], float]]


class Trees:
    """A data store, and a folder beside it that is put there."""

    def __init__(self, stage: Stage, count: int, size: int) -> None:
        self._stage = stage
        self.folder = Path(stage.keep(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="penstock-bench-")))
        daemon = stage.start([stage.program("penstockd"), "--role", "store", "--data", str(self.folder / "data"),
                              "--http", "127.0.0.1:0", "--rsync-port", "0"])
        daemon.wait_text("store: ready")
        self.http, self.rsync, self.tree = (daemon.wait_text(rf"store: {what} on \S+:(\d+)")[1] for what in ("HTTP", "rsync", "trees"))
        self.source = self.folder / "source"
        self.files = [self.source / f"{number // A_FOLDER}/{number}" for number in range(count)]
        for path in self.files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(size))

    def change(self) -> None:
        """Overwrite 1 % of the files, in place."""
        for path in self.files:
            with path.open("r+b") as file:
                for _ in range(CHANGES):
                    file.seek(random.randrange(path.stat().st_size - CHANGE_BYTES))
                    file.write(os.urandom(CHANGE_BYTES))

    def put(self, side: str, ours: Sequence[str] = (), rsync: Sequence[str] = ()) -> float:
        """Seconds of one put, with options of either side."""
        begin = time.monotonic()
        if side == "ours":
            run([self._stage.program("penstock"), "tree", *ours, "put", str(self.source),
                 f"tree://127.0.0.1:{self.tree}/default/ours"])
        else:
            run(["rsync", "-a", "--mkpath", *rsync, f"{self.source}/", f"rsync://127.0.0.1:{self.rsync}/data/default/peer/"])
        return time.monotonic() - begin

    def forget(self, side: str) -> None:
        shutil.rmtree(self.folder / "data/files/default" / side, ignore_errors=True)

    def compare(self, side: str) -> None:
        run(["diff", "-r", str(self.source), str(self.folder / "data/files/default" / side)])


def beside_rsync(files: tuple[int, int], before: Callable[[Trees, str], None], ours: Sequence[str] = (),
                 rsync: Sequence[str] = ()) -> Callable[[Stage], Takers]:
    """Seconds of a put, each after `before`."""
    def prepare(stage: Stage) -> Takers:
        trees = Trees(stage, *files)
        for side in ("ours", "peer"):
            trees.put(side)

        def take(side: str) -> float:
            before(trees, side)
            seconds = trees.put(side, ours, rsync)
            trees.compare(side)
            return seconds

        return lambda: take("ours"), lambda: take("peer")
    return prepare


def anew(files: tuple[int, int]) -> Callable[[Stage], Takers]:
    """Into a store that has nothing of it."""
    return beside_rsync(files, Trees.forget)


def unchanged(files: tuple[int, int]) -> Callable[[Stage], Takers]:
    """Into one that has all of it."""
    return beside_rsync(files, lambda trees, side: None)


def changed(files: tuple[int, int], whole: bool = False) -> Callable[[Stage], Takers]:
    """Into one that has what it was before: the same change for both sides, file by file or all at the end."""
    def before(trees: Trees, side: str) -> None:
        if side == "ours":
            trees.change()
    if whole:
        return beside_rsync(files, before, rsync=["--delay-updates"])
    return beside_rsync(files, before, ours=["--in-place"])


def pooled(action: str) -> Callable[[Stage], Takers]:
    """Seconds of 1 GiB into a node that has nothing of it, or from there into a new folder; and of rsync into one."""
    def prepare(stage: Stage) -> Takers:
        folder = Path(stage.keep(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="penstock-bench-")))
        url = f"node+unix://{folder}/socket"
        stage.start([stage.program("penstockd"), "--unix", f"{folder}/socket", "--dram", "2G"]).wait_text("listening on ")
        (folder / "source").mkdir()
        for number in range(LARGE[0]):
            (folder / f"source/{number}").write_bytes(os.urandom(LARGE[1]))
        run([stage.program("penstock"), "tree", "put", str(folder / "source"), f"{url}/m"])

        def take(side: str) -> float:
            shutil.rmtree(folder / "out", ignore_errors=True)
            if side == "peer":
                command = ["rsync", "-a", f"{folder}/source/", f"{folder}/out/"]
            elif action == "put":
                run([stage.program("penstock"), "--url", url, "clear"])
                command = [stage.program("penstock"), "tree", "put", str(folder / "source"), f"{url}/m"]
            else:
                command = [stage.program("penstock"), "tree", "get", f"{url}/m", str(folder / "out")]
            begin = time.monotonic()
            run(command)
            seconds = time.monotonic() - begin
            if (folder / "out").exists():
                run(["diff", "-r", str(folder / "source"), str(folder / "out")])
            return seconds

        return lambda: take("ours"), lambda: take("peer")
    return prepare


PUT = """
import sys, time
from penstock.data_store import DataStoreClient, Server
http, rsync, source, key, transport = sys.argv[1:]
client = DataStoreClient("default", Server(f"http://127.0.0.1:{http}", f"127.0.0.1:{rsync}" if rsync != "0" else None), transport)
begin = time.monotonic()
client.put(key, source, contents=True)
print(time.monotonic() - begin)
"""


def tunnel(transport: str) -> Callable[[Stage], Takers]:
    """Bytes a second of a put through the store's WebSocket tunnel, and of rsync without it."""
    def prepare(stage: Stage) -> Takers:
        trees = Trees(stage, 2, 128 * MIB)
        python = run([str(ROOT / "ci/venv"), "lean", "tests/python/requirements.txt"]).strip()
        environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "PYTHONPATH": str(stage.build / "python"),
                       "PENSTOCK_COMMAND": stage.program("penstock")}

        def take(side: str, rsync: str, by: str) -> float:
            trees.forget(side)
            said = run([python, "-c", PUT, trees.http, rsync, str(trees.source), f"{side}/m", by], env=environment)
            run(["diff", "-r", str(trees.source), str(trees.folder / "data/files/default" / side / "m")])
            return 256 * MIB / float(said)

        return lambda: take("ours", "0", transport), lambda: take("peer", trees.rsync, "rsync")
    return prepare
