# SPDX-License-Identifier: Apache-2.0
"""Broadcasts of a tree of files to many members, beside the time that the tree takes over one link.

Store and members are machines of their own, on links of 1 Gbit/s either way that keep what comes faster for up to QUEUE_MS. The time is
that from the first member's start until the last one has ended. It counts all that a link carries, TCP's headers too.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from networks import network, refused
from procs import BenchError, Stage, run_json

MIB = 1 << 20
TREE_BYTES, FILES = 256 * MIB, 8
LINK_BITS_PER_S, LATENCY_US, QUEUE_MS = 1_000_000_000, 100, 5
LINK_S = TREE_BYTES * 8 / LINK_BITS_PER_S
MEMBERS = 8
MEMBER_S_MAX = 60

Takers = tuple[Callable[[], float], Callable[[], float]]


def thousand(stage: Stage) -> Takers:
    """A pipelined broadcast to 1,000 simulated members, by the code that decides in a real one."""
    said = run_json([stage.program("chain_figures"), "1000", str(TREE_BYTES), str(LINK_BITS_PER_S), str(LATENCY_US), "0", "0", "1"])
    print(f"  pieces of {said['piece_bytes']} bytes, {said['events']} events", flush=True)
    return lambda: said["seconds"], lambda: said["bound_s"]


class Row:
    """A store with a tree, and machines that want it."""

    def __init__(self, stage: Stage) -> None:
        if why := refused():
            raise BenchError(why)
        self._penstock = stage.program("penstock")
        self._folder = Path(stage.keep(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="penstock-bench-")))
        self._tree = self._folder / "data/files/default/m"
        self._tree.mkdir(parents=True)
        for number in range(FILES):
            (self._tree / str(number)).write_bytes(os.urandom(TREE_BYTES // FILES))
        self._store, *self._members = stage.keep(network(MEMBERS + 1))
        self._folder.joinpath("data").chmod(0o700)
        daemon = stage.start([*self._store.signalled, stage.program("penstockd"), "--role", "store", "--data", str(self._folder / "data"), "--http",
                              f"{self._store.host}:8081", "--http-network", "--rsync-port", "8730", "--tree-port", "7400"])
        daemon.wait_text("store: ready")
        for machine in (self._store, *self._members):
            machine.shape(LINK_BITS_PER_S, QUEUE_MS)
        self._runs = 0

    def take(self, late_s: float | None, *action: str) -> float:
        """Seconds until all members have the tree; half of them start `late_s` after the others."""
        self._runs += 1
        url = f"tree://{self._store.host}:7400/default/m"
        out = [self._folder / f"out-{self._runs}-{number}" for number in range(MEMBERS)]
        processes: list[subprocess.Popen[bytes]] = []
        begin = time.monotonic()
        for number, machine in enumerate(self._members):
            if late_s is not None and number == MEMBERS // 2:
                time.sleep(max(0.0, begin + late_s - time.monotonic()))
            processes.append(subprocess.Popen([*machine.signalled, self._penstock, "tree", *(part.format(run=self._runs) for part in action), url,
                                               str(out[number])], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
        faults = [process.communicate(timeout=MEMBER_S_MAX)[1] for process in processes]
        seconds = time.monotonic() - begin
        if any(process.returncode for process in processes):
            raise BenchError(f"a member failed: {b''.join(faults).decode(errors='replace')[-300:]}")
        for folder in out:
            subprocess.run(["diff", "-r", self._tree, folder], check=True)
            shutil.rmtree(folder)
        return seconds


def eight(late: bool) -> Callable[[Stage], Takers]:
    """Eight members, all at once or four of them at half-time, against the time of the tree over one link."""
    def prepare(stage: Stage) -> Takers:
        row = Row(stage)
        if not late:
            print(f"  for orientation, a tree of copies, of which all eight come from the source: {row.take(None, 'get'):.1f} s", flush=True)
        late_s = LINK_S / 2 if late else None
        return lambda: row.take(late_s, "--group", "g{run}", "--members", str(MEMBERS), "broadcast"), lambda: LINK_S
    return prepare
