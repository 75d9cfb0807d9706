# SPDX-License-Identifier: Apache-2.0
"""Chunks of KV got by LMCache's remote backend, as its engine gets them: a batch at a time, into LMCache's memory on the host.

Run by the environment of integrations/engines. Prints one JSON line: bytes that were got, a second.
"""

import argparse
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / "tests/lib")]
import lmcaches
import torch

SHAPE = lmcaches.Shape(256, 16, 8, 64)  # K and V of bfloat16: 8 MiB a chunk
CHUNKS = 16


def gets(engine: lmcaches.Engine, keys: list[Any], wanted: list[Any], seconds: float) -> Iterator[float]:
    """Seconds of each batch; what came back is compared, outside of the time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.perf_counter()
        found = engine.backend.batched_get_blocking(keys)
        took_s = time.perf_counter() - begin
        if any(one is None or not torch.equal(one.tensor, kept.tensor) for one, kept in zip(found, wanted, strict=True)):
            raise RuntimeError("a chunk did not come back as it was put")
        for one in found:
            one.ref_count_down()
        yield took_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="a store of penstock, or redis://HOST:PORT")
    parser.add_argument("--seconds", type=float, default=3.0)
    args = parser.parse_args()
    sys.path.insert(0, str(lmcaches.OURS))
    engine = lmcaches.Engine(args.url, SHAPE, memory_gib=0.5)
    keys, objects = [engine.key(i) for i in range(CHUNKS)], engine.pages(CHUNKS)
    engine.put(keys, objects)
    times = sorted(gets(engine, keys, objects, args.seconds))
    size = sum(len(one.byte_array) for one in objects)
    print(json.dumps({"bytes_per_s": size / times[len(times) // 2], "batches": len(times)}), flush=True)
    os._exit(0)  # the close of LMCache's redis connector does not end


if __name__ == "__main__":
    main()
