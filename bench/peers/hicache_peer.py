# SPDX-License-Identifier: Apache-2.0
"""Pages of KV through a storage of sglang's HiCache, as its controller moves them: asked for, put, asked for and got.

Run by the environment of integrations/engines. Prints one JSON line: bytes that were put and got, a second.
"""

import argparse
import json
import pathlib
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / "tests/lib")]
import hicache
import torch

PAGES, TOKENS, LAYERS, HEADS, DIM = 128, 64, 16, 8, 64  # K and V of bfloat16: 2 MiB a page


class Whole:
    """A storage that moves pages from and to where they lie."""

    def __init__(self, storage: Any, pool: Any) -> None:
        self.storage, self.places = storage, torch.arange(PAGES * TOKENS)

    def put(self, keys: list[str]) -> bool:
        return all(self.storage.batch_set_v1(keys, self.places))

    def get(self, keys: list[str]) -> bool:
        return all(self.storage.batch_get_v1(keys, self.places))

    def there(self, keys: list[str]) -> int:
        return self.storage.batch_exists(keys)


class Copied(Whole):
    """One that takes and gives pages as tensors."""

    def __init__(self, storage: Any, pool: Any) -> None:
        super().__init__(storage, pool)
        self.pool = pool

    def put(self, keys: list[str]) -> bool:
        return self.storage.batch_set(keys, [self.pool.get_data_page(i * TOKENS) for i in range(PAGES)])

    def get(self, keys: list[str]) -> bool:
        found = self.storage.batch_get(keys, [self.pool.get_dummy_flat_data_page() for _ in keys])
        if any(page is None for page in found):
            return False
        for i, page in enumerate(found):
            self.pool.set_from_flat_data_page(i * TOKENS, page)
        return True


def opened(args: argparse.Namespace) -> tuple[Whole, Any]:
    """A storage of the kind, and its host pool, full of numbers."""
    hicache.stand_in()
    sglang = hicache.load()
    pool = hicache.mha_pool(sglang, "page_first", pages=PAGES, tokens=TOKENS, layers=LAYERS, heads=HEADS, dim=DIM)
    pool.kv_buffer.copy_(torch.randn(pool.kv_buffer.shape, dtype=torch.bfloat16))
    if args.storage == "penstock":
        return Whole(hicache.opened(sglang, "dynamic", pool, hicache.penstock_config(args.where)), pool), pool
    if args.storage == "mooncake":
        config = {"master_server_address": args.where, "local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE",
                  "global_segment_size": 0, "protocol": "tcp"}
        return Whole(hicache.opened(sglang, "mooncake", pool, config), pool), pool
    return Copied(hicache.opened(sglang, "file", pool, {"file_storage_path": args.where}), pool), pool


def cycles(storage: Whole, pool: Any, seconds: float) -> Iterator[float]:
    """Seconds of each cycle with keys of its own; what came back is compared in the first."""
    kept, end, number, run = pool.kv_buffer.clone(), time.monotonic() + seconds, 0, uuid.uuid4().hex
    while time.monotonic() < end or number < 3:
        keys = [f"{run}{number:016x}{i:016x}" for i in range(PAGES)]
        begin = time.perf_counter()
        before, put = storage.there(keys), storage.put(keys)
        after, got = storage.there(keys), storage.get(keys)
        took_s = time.perf_counter() - begin
        if before != 0 or not put or after != PAGES or not got or not torch.equal(kept, pool.kv_buffer):
            raise RuntimeError(f"cycle {number}: {before} pages before, put {put}, {after} after, got {got}")
        yield took_s
        number += 1
        storage.storage.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("storage", choices=("penstock", "mooncake", "file"))
    parser.add_argument("where", help="a store's URL, a master's address, a folder")
    parser.add_argument("--seconds", type=float, default=3.0)
    args = parser.parse_args()
    storage, pool = opened(args)
    times = sorted(cycles(storage, pool, args.seconds))
    print(json.dumps({"bytes_per_s": 2 * pool.kv_buffer.nbytes / times[len(times) // 2], "cycles": len(times)}), flush=True)


if __name__ == "__main__":
    main()
