# SPDX-License-Identifier: Apache-2.0
"""Arrays through TensorStore: our driver against its file driver on tmpfs, and against its wheel at our own door."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from node import GIB, Node
from procs import Stage, run, run_json

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "build-tensorstore" / "driver" / "ts_bench"
WHEEL_PROGRAM = ROOT / "bench" / "peers" / "tensorstore_peer.py"
RUN_S = 2


def driver(node: Node, what: str, size: int) -> dict[str, float]:
    """One run of our driver."""
    store = {"driver": "remote_dram", "remote_addr": f"127.0.0.1:{node.port}"}
    return run_json([str(PROGRAM), json.dumps(store), what, str(size), str(RUN_S)])


def against_files(what: str, size: int, field: str) -> Callable[[Stage], tuple]:
    """Whole arrays of 256 MiB in chunks of `size` bytes, or values of `size` with 256 reads underway.

    The driver reaches a penstockd over shared memory through UCX; the file driver writes into /dev/shm.
    """
    def prepare(stage: Stage) -> tuple[Callable[[], float], Callable[[], float]]:
        node = Node(stage, 2 * GIB)
        folder = stage.keep(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="penstock-bench-"))
        peer = [str(PROGRAM), json.dumps({"driver": "file", "path": f"{folder}/"}), what, str(size), str(RUN_S)]
        return lambda: driver(node, what, size)[field], lambda: run_json(peer)[field]
    return prepare


def against_wheel(stage: Stage) -> tuple[Callable[[], float], Callable[[], float]]:
    """Whole arrays of 256 MiB in chunks of 1 MiB: our driver, and PyPI's wheel through --tsgrpc, on one node.

    On this machine the wheel opens four connections by itself.
    """
    node = Node(stage, 2 * GIB, 1, "--tsgrpc", "127.0.0.1:0")
    door = node.process.wait_text(r"tsgrpc: listening on (\S+)")[1]
    size = 1 << 20
    python = run([str(ROOT / "ci" / "wheel")]).strip()
    peer = [python, str(WHEEL_PROGRAM), json.dumps({"driver": "tsgrpc_kvstore", "address": door}), str(size), str(RUN_S)]
    return lambda: driver(node, "read", size)["bytes_per_s"], lambda: run_json(peer)["bytes_per_s"]
