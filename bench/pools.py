# SPDX-License-Identifier: Apache-2.0
"""Figures of a pool of one master and one node: beside the same node asked directly, and beside Mooncake with its master."""

from collections.abc import Callable

from node import GIB, Node
from peers import Mooncake
from procs import Stage, run

Takers = tuple[Callable[[], float], Callable[[], float]]
BATCH = 128


class Pool(Node):
    """A node that has joined a master; its URL "pool" is the master's, over TCP."""

    def __init__(self, stage: Stage, dram_bytes: int) -> None:
        master = stage.start([
            stage.program("penstockd"), "--role", "master", "--listen", "127.0.0.1:0",
            "--pool-map", str(stage.folder / "view")])
        address = master.wait_text(r"listening on (127\.0\.0\.1:\d+)")[1]
        super().__init__(stage, dram_bytes, 1, "--master", address)
        self.urls["pool"] = f"pool://{address}?lane=tcp"
        run([self.client, "put", "--url", self.urls["pool"], "joined", "/dev/null"])


def _batches(node: Node, lane: str, op: str, size: int, keys: int, field: str) -> Callable[[], float]:
    """One batch of 128 after the other."""
    args = ["--op", op, "--batch", BATCH, "--size", size, "--keys", keys, "--seconds", 2, "--inflight", 1]
    return lambda: node.bench(lane, *args)[field]


def beside_direct(op: str, size: int, keys: int) -> Callable[[Stage], Takers]:
    """Bandwidth through the pool, against the URL of its one node."""
    def prepare(stage: Stage) -> Takers:
        pool = Pool(stage, 2 * GIB)
        pool.fill("pool", size, keys, BATCH)
        return (_batches(pool, "pool", op, size, keys, "bytes_per_s"),
                _batches(pool, "tcp", op, size, keys, "bytes_per_s"))
    return prepare


def beside_mooncake(op: str, size: int, keys: int, field: str) -> Callable[[Stage], Takers]:
    """The same through both masters."""
    def prepare(stage: Stage) -> Takers:
        pool, mooncake = Pool(stage, 2 * GIB), Mooncake(stage)
        pool.fill("pool", size, keys, BATCH)
        args = ["--op", op, "--batch", BATCH, "--size", size, "--keys", keys, "--seconds", 2]
        return _batches(pool, "pool", op, size, keys, field), lambda: mooncake.bench(*args)[field]
    return prepare
