# SPDX-License-Identifier: Apache-2.0
"""TensorStore's wheel as a peer: what ts_bench.cc does with a whole array, from Python.

Reads an array of 256 MiB of float32, zarr, uncompressed, through a kvstore, into the same memory
again and again for some seconds, and prints one JSON line.
"""

import json
import sys
import time

import numpy as np
import tensorstore as ts

SIDE = 8192  # elements


def main() -> None:
    """KVSTORE (a JSON specification), CHUNK_BYTES, SECONDS."""
    store, chunk_bytes, seconds = json.loads(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    chunk_side = int((chunk_bytes / 4) ** 0.5)
    spec = {"driver": "zarr", "kvstore": store | {"path": f"array{chunk_bytes}/"},
            "metadata": {"dtype": "<f4", "shape": [SIDE, SIDE], "chunks": [chunk_side, chunk_side],
                         "compressor": None}}
    array = ts.open(spec, create=True, open=True).result()
    sent = np.arange(SIDE, dtype=np.float32)[:, None] * 31 + np.arange(SIDE, dtype=np.float32)
    array.write(sent).result()
    local = np.empty_like(sent)
    target = ts.array(local)
    target.write(array).result()
    assert (local == sent).all()
    passes, begin = 0, time.monotonic()
    while passes == 0 or time.monotonic() < begin + seconds:
        target.write(array).result()
        passes += 1
    print(json.dumps({"bytes_per_s": passes * sent.nbytes / (time.monotonic() - begin)}))


if __name__ == "__main__":
    main()
