"""Arrays through TensorStore: our driver against its file driver on tmpfs, the same program for both."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from ours import GIB, Node
from procs import Stage, run_json

PROGRAM = Path(__file__).parent.parent / "build-tensorstore" / "driver" / "ts_bench"
RUN_S = 2


def against_files(what: str, size: int, field: str) -> Callable[[Stage], tuple]:
    """Whole arrays of 256 MiB in chunks of `size` bytes, or values of `size` with 256 reads underway.

    The driver reaches a penstockd over shared memory through UCX; the file driver writes into /dev/shm.
    """
    def prepare(stage: Stage) -> tuple[Callable[[], float], Callable[[], float]]:
        node = Node(stage, 2 * GIB)
        folder = stage.keep(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="penstock-bench-"))
        ours = {"driver": "remote_dram", "remote_addr": f"127.0.0.1:{node.port}"}
        peer = {"driver": "file", "path": f"{folder}/"}

        def take(store: dict[str, str]) -> float:
            return run_json([str(PROGRAM), json.dumps(store), what, str(size), str(RUN_S)])[field]
        return lambda: take(ours), lambda: take(peer)
    return prepare
