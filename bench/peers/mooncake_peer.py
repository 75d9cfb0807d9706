# SPDX-License-Identifier: Apache-2.0
"""Mooncake Store as a peer: one process holds the segment, another moves batches over TCP.

`store` mounts the segment, prints "ready" and serves until its standard input ends. `client` owns
no segment, so every byte crosses between the two processes; it prints one JSON line. It moves
values from and into a registered buffer, the fastest interface the package has. As it names nothing
but Mooncake's own calls, it measures penstock-mooncake, too.
"""

import argparse
import ctypes
import json
import mmap
import sys
import time
from collections.abc import Callable, Iterator

from mooncake.store import MooncakeDistributedStore

LOCAL_BUFFER_BYTES = 512 << 20


def connect(master: str, segment_bytes: int) -> MooncakeDistributedStore:
    """Join the master, giving it `segment_bytes` of this process's memory."""
    store = MooncakeDistributedStore()
    code = store.setup(
        "127.0.0.1", "P2PHANDSHAKE", segment_bytes, LOCAL_BUFFER_BYTES, "tcp", "", master)
    if code != 0:
        raise RuntimeError(f"mooncake setup failed with {code}")
    return store


def serve(args: argparse.Namespace) -> None:
    """Hold the segment until standard input ends."""
    store = connect(args.master, args.segment)
    print("ready", flush=True)
    sys.stdin.read()
    store.close()


class Batches:
    """The key space, cut into batches, and the registered buffer that each is moved through.

    Parameters
    ----------
    store : MooncakeDistributedStore
    size : int
        Bytes of one value.
    batch, count : int
        Values a batch, and batches in the key space.
    """

    def __init__(self, store: MooncakeDistributedStore, size: int, batch: int, count: int) -> None:
        self.store = store
        self.memory = mmap.mmap(-1, size * batch)
        self.memory.write(b"\x5a" * (size * batch))
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        if store.register_buffer(base, size * batch) != 0:
            raise RuntimeError("mooncake refused the buffer")
        self.pointers = [base + i * size for i in range(batch)]
        self.sizes = [size] * batch
        self.keys = [[f"k{b * batch + i:015d}" for i in range(batch)] for b in range(count)]

    def put(self, index: int) -> None:
        """Store one batch; raises RuntimeError when a value is refused."""
        codes = self.store.batch_put_from(self.keys[index], self.pointers, self.sizes)
        if any(codes):
            raise RuntimeError(f"put failed: {sorted(set(codes))}")

    def get(self, index: int) -> None:
        """Read one batch; raises RuntimeError when a value does not come back whole."""
        lengths = self.store.batch_get_into(self.keys[index], self.pointers, self.sizes)
        if lengths != self.sizes:
            raise RuntimeError(f"get failed: {sorted(set(lengths))}")

    def exist(self, index: int) -> None:
        """Ask for one batch; raises RuntimeError when a value is not there."""
        found = self.store.batch_is_exist(self.keys[index])
        if any(code != 1 for code in found):
            raise RuntimeError(f"exist failed: {sorted(set(found))}")


def put_times(batches: Batches) -> Iterator[float]:
    """Seconds of each put; the key space is emptied, outside of the time, whenever it is full."""
    while True:
        batches.store.remove_all(True)
        for index in range(len(batches.keys)):
            start = time.perf_counter()
            batches.put(index)
            yield time.perf_counter() - start


def cycle_times(batches: Batches) -> Iterator[float]:
    """Seconds of each batch that is missed, put and got, as an engine does with pages; then the key space is emptied."""
    while True:
        batches.store.remove_all(True)
        for index, keys in enumerate(batches.keys):
            start = time.perf_counter()
            if any(batches.store.batch_is_exist(keys)):
                raise RuntimeError("a key is there that nobody has put")
            batches.put(index)
            batches.exist(index)
            batches.get(index)
            yield time.perf_counter() - start


def times_of(ask: Callable[[int], None], count: int) -> Iterator[float]:
    """Seconds of each question, round and round the filled key space of `count` batches."""
    while True:
        for index in range(count):
            start = time.perf_counter()
            ask(index)
            yield time.perf_counter() - start


def measure(args: argparse.Namespace) -> None:
    """Fill the key space, which also touches the segment's pages, then time batches."""
    store = connect(args.master, 0)
    batches = Batches(store, args.size, args.batch, args.keys // args.batch)
    store.remove_all(True)
    for index in range(len(batches.keys)):
        batches.put(index)
    ask = batches.get if args.op == "get" else batches.exist
    changing = {"put": put_times, "cycle": cycle_times}
    source = changing[args.op](batches) if args.op in changing else times_of(ask, len(batches.keys))
    next(source)
    times: list[float] = []
    while sum(times) < args.seconds:
        times.append(next(source))
    ops_per_s = len(times) * args.batch / sum(times)
    ranked = sorted(times)
    print(json.dumps({
        "op": args.op, "size": args.size, "batch": args.batch, "inflight": 1,
        "ops_per_s": round(ops_per_s, 1), "bytes_per_s": round(ops_per_s * args.size, 1),
        "p50_us": round(ranked[len(ranked) // 2] * 1e6, 1),
        "p99_us": round(ranked[len(ranked) * 99 // 100] * 1e6, 1),
    }), flush=True)
    store.close()


def main() -> None:
    """Parse the command line and run one of the two roles."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=("store", "client"))
    parser.add_argument("--master", required=True, metavar="HOST:PORT")
    parser.add_argument("--segment", type=int, default=3 << 30, metavar="BYTES")
    parser.add_argument("--op", choices=("put", "get", "exists", "cycle"), default="get")
    parser.add_argument("--size", type=int, default=2 << 20, metavar="BYTES")
    parser.add_argument("--keys", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=3.0)
    args = parser.parse_args()
    (serve if args.role == "store" else measure)(args)


if __name__ == "__main__":
    main()
