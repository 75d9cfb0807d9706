# SPDX-License-Identifier: Apache-2.0
"""What Python users of the remote_dram driver do: module_client.py WHAT [ARGUMENT...], for test_module.py."""
from __future__ import annotations

import json
import pickle
import sys

import numpy as np
import tensorstore as ts

SHAPE = (8, 6, 4)
ABSENT = b"\x02"


def remote(address: str, path: str = "") -> dict:
    return {"driver": "remote_dram", "remote_addr": address, "path": path}


def array_spec(driver: str, store: dict) -> dict:
    kind = {"dtype": "<f4", "chunks": [4, 6, 4]} if driver == "zarr" else {"data_type": "float32"}
    return {"driver": driver, "kvstore": store | {"path": f"{driver}/"}, "metadata": {"shape": list(SHAPE)} | kind}


def expected() -> np.ndarray:
    i, j, k = np.indices(SHAPE, dtype=np.float32)
    return i * 100 + j * 10 + k


def fails(word: str, spec: dict) -> None:
    try:
        ts.KvStore.open(spec).result()
    except ValueError as error:  # as TensorStore maps every status of these
        assert word in str(error), error
        return
    raise AssertionError(f"opened: {spec}")


def serve(address: str) -> None:
    """Is the server, and a client of it, until a line comes; then says what has been stored."""
    server = ts.KvStore.open({"driver": "remote_dram", "listen_addr": address, "dram": "64M"}).result()
    client = ts.KvStore.open(remote(address)).result()
    client["of the server"] = b"mine"
    print("serving", flush=True)
    sys.stdin.readline()
    assert server["of the server"] == b"mine"
    print(json.dumps(sorted(key.decode() for key in server.list().result())))


def write(address: str) -> None:
    ts.KvStore.open(remote(address)).result()["test_key_1"] = b"Hello from TensorStore remote DRAM!"
    for driver in ("zarr", "zarr3"):
        ts.open(array_spec(driver, remote(address)), create=True).result().write(expected()).result()


def read(address: str) -> None:
    assert ts.KvStore.open(f"remote_dram://{address}").result()["test_key_1"] == b"Hello from TensorStore remote DRAM!"
    for driver in ("zarr", "zarr3"):
        array = ts.open(array_spec(driver, remote(address)), open=True).result()
        for at in np.ndindex(*SHAPE):
            assert array[at].read().result() == at[0] * 100 + at[1] * 10 + at[2], (driver, at)
        assert (array.read().result() == expected()).all()


def keys(address: str) -> None:
    """Ranges, conditions, transactions, lists, specifications, and what is refused."""
    store = ts.KvStore.open(remote(address, "keys/")).result()
    first = store.write("a", b"0123456789").result()
    assert store.read("a", byte_range=slice(2, 5)).result().value == b"234"
    assert store.read("a", byte_range=slice(-3, None)).result().value == b"789"
    assert store.write("a", b"x", if_equal=ABSENT).result().generation == b""
    assert store.read("a", if_not_equal=first.generation).result().state == "unspecified"
    assert store.read("absent").result().state == "missing"
    with ts.Transaction(atomic=True) as both:
        inside = store.with_transaction(both)
        inside["b"], inside["c"] = b"1", bytes(3_000_000)
        assert store.list().result() == [b"a"]
    assert store.list().result() == [b"a", b"b", b"c"] and store["c"] == bytes(3_000_000)
    assert pickle.loads(pickle.dumps(store))["b"] == b"1"
    assert store.spec().to_json()["remote_addr"] == address
    assert ts.KvStore.open(store.url).result()["b"] == b"1"
    store.delete_range(ts.KvStore.KeyRange("a", "c")).result()
    assert store.list().result() == [b"c"]
    fails("needs", {"driver": "remote_dram"})
    fails("exclude each other", remote(address) | {"listen_addr": address})
    fails("UNAVAILABLE: Error connecting to the server at 127.0.0.1:1", remote("127.0.0.1:1"))
    fails("Server address must be in format host:port", remote("nowhere"))


def batch(address: str, count: str) -> None:
    """Reads of one batch, each with its own value."""
    store = ts.KvStore.open(remote(address, "batch/")).result()
    names = [f"{number:06}" for number in range(int(count))]
    for done in [store.write(name, name.encode()) for name in names]:
        done.result()
    with ts.Batch() as together:
        reads = [store.read(name, batch=together) for name in names]
    assert [one.result().value.decode() for one in reads] == names


if __name__ == "__main__":
    assert ts._tensorstore.__file__.endswith("/_tensorstore.so"), ts._tensorstore.__file__
    globals()[sys.argv[1]](*sys.argv[2:])
