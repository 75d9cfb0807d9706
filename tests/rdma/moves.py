# SPDX-License-Identifier: Apache-2.0
"""A client that moves values and checks them, and says what it has posted: moves.py URL NODE_PID. For guest.py.

Prints a JSON object for each step: what it did, whether all bytes were right, and the RDMA READs that either side posted for it.
"""
from __future__ import annotations

import json
import mmap
import os
import sys

import penstock
import rdma_hosts

SIZES = (64, 4096, 65536, 300_000, 2 << 20, 5_000_000)
BATCHES = ((16, 65536), (64, 8192))


def value_of(seed: int, size: int) -> bytes:
    """Which bytes these are says how far they are from the begin."""
    return (bytes((seed + 7 * i) % 251 for i in range(1021)) * (size // 1021 + 1))[:size]


def room_of(size: int) -> mmap.mmap:
    """Memory on pages of its own: UCX reads into what begins within one in two parts."""
    return mmap.mmap(-1, size)


class Reads:
    """RDMA READs of this process and of the node since the last look."""

    def __init__(self, node: int) -> None:
        self.pids = {"client": os.getpid(), "node": node}
        self.seen = {name: rdma_hosts.counts_of(pid) for name, pid in self.pids.items()}

    def take(self) -> dict[str, list[int]]:
        told = {}
        for name, pid in self.pids.items():
            now, before = rdma_hosts.counts_of(pid), self.seen[name]
            told[name] = [now.posted["read"] - before.posted["read"], now.bytes["read"] - before.bytes["read"],
                          now.bytes["send"] - before.bytes["send"]]
            self.seen[name] = now
        return told


def main() -> None:
    url, node = sys.argv[1], int(sys.argv[2])
    store = penstock.open(url, timeout=60, connect_timeout=60)
    store.put("first", b"")  # and whatever connecting takes
    reads = Reads(node)

    def tell(what: str, count: int, size: int, right: bool) -> None:
        print(json.dumps({"what": what, "count": count, "size": size, "right": right, **reads.take()}), flush=True)

    for size in SIZES:
        value, room = value_of(size, size), room_of(size)
        store.put(f"value/{size}", value)
        tell("put", 1, size, True)
        store.get_into(f"value/{size}", room)
        tell("get", 1, size, room[:] == value)
    for count, size in BATCHES:
        values = {f"batch/{size}/{i}": value_of(i, size) for i in range(count)}
        rooms = [room_of(size) for _ in values]
        store.put_many(values)
        tell("put_many", count, size, True)
        store.get_into_many(values, rooms)
        tell("get_many", count, size, [room[:] for room in rooms] == list(values.values()))
    store.close()


if __name__ == "__main__":
    main()
