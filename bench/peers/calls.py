# SPDX-License-Identifier: Apache-2.0
"""What calls from Python cost on a store inside the process: what peer_calls.c measures from C.

calls.py get|batch|cffi SECONDS: one value of 64 B at a time; batches of 128 keys, put and then
read; or single gets through cffi in API mode, which is built in a temporary folder for that.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import penstock

BATCH, BATCHES, VALUE, SINGLE_CALLS = 128, 64, bytes(64), 1000
KEYS = [[f"key/{batch:03}/{i:07}" for i in range(BATCH)] for batch in range(BATCHES)]


def pass_of_batches(store: penstock.Store) -> Callable[[], int]:
    """Put and read each batch once; the number of operations."""
    items = [[(key, VALUE) for key in keys] for keys in KEYS]

    def run() -> int:
        for keys, pairs in zip(KEYS, items):
            store.put_many(pairs)
            values = store.get_many(keys)
        assert values[-1] == VALUE
        return 2 * BATCHES * BATCH
    return run


def pass_of_gets(store: penstock.Store) -> Callable[[], int]:
    """Read one value again and again; the number of operations."""
    store.put(KEYS[0][5], VALUE)
    key, get = KEYS[0][5], store.get

    def run() -> int:
        for _ in range(SINGLE_CALLS):
            get(key)
        return SINGLE_CALLS
    return run


def pass_of_cffi(build: Path, folder: str) -> Callable[[], int]:
    """The same gets through a binding by cffi's API mode."""
    from cffi import FFI

    build_ffi, calls = FFI(), ("int penstock_open(const char *, void *, void **);"
                               "int penstock_put(void *, const char *, size_t, const char *, uint64_t);"
                               "int penstock_get(void *, const char *, size_t, char *, uint64_t, uint64_t *);")
    build_ffi.cdef(calls)
    build_ffi.set_source("_calls", f"#include <stddef.h>\n#include <stdint.h>\n{calls}", libraries=["penstock"],
                         library_dirs=[str(build)], extra_link_args=[f"-Wl,-rpath,{build}"])
    build_ffi.compile(tmpdir=folder)
    sys.path.insert(0, folder)
    from _calls import ffi, lib  # type: ignore[import-not-found]

    out = ffi.new("void **")
    assert lib.penstock_open(b"mem:", ffi.NULL, out) == 0
    store, key, room, size = out[0], KEYS[0][5], ffi.new("char[32768]"), ffi.new("uint64_t *")

    def get(name: str) -> bytes:
        raw = name.encode()
        if lib.penstock_get(store, raw, len(raw), room, 32768, size):
            raise KeyError(name)
        return ffi.buffer(room, size[0])[:]

    assert lib.penstock_put(store, key.encode(), len(key), VALUE, len(VALUE)) == 0 and get(key) == VALUE

    def run() -> int:
        for _ in range(SINGLE_CALLS):
            get(key)
        return SINGLE_CALLS
    return run


def main() -> None:
    """The fastest pass counts, since what disturbs one only makes it slower."""
    what, seconds = sys.argv[1], float(sys.argv[2])
    with penstock.open() as store, tempfile.TemporaryDirectory() as folder:
        if what == "cffi":
            run = pass_of_cffi(Path(os.environ["PENSTOCK_BUILD"]), folder)
        else:
            run = {"get": pass_of_gets, "batch": pass_of_batches}[what](store)
        end, best = time.perf_counter() + seconds, 1e9
        while time.perf_counter() < end:
            begin = time.perf_counter()
            count = run()
            best = min(best, (time.perf_counter() - begin) / count)
    print(json.dumps({"us": best * 1e6, "ops_per_s": 1 / best}))


if __name__ == "__main__":
    main()
