# SPDX-License-Identifier: Apache-2.0
"""What users of `pip install tensorstore` do, through penstockd --tsgrpc: tsgrpc_client.py WHAT ADDRESS [ARGUMENT...].

Runs in the environment that ci/wheel makes, for test_tsgrpc.py. Ends with 0 when all is as it should be.
"""
from __future__ import annotations

import json
import os
import sys
import time
from typing import Iterator

import grpc
import numpy as np
import tensorstore as ts

ABSENT = b"\x02"
SIZES = (0, 1, 2048, 2049, 65_535, 65_536, 65_537, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (2 << 20) + 1, 5_000_003)


def kvstore(address: str, path: str = "") -> dict:
    return {"driver": "tsgrpc_kvstore", "address": address, "path": path}


def open_keys(address: str, path: str = "") -> ts.KvStore:
    return ts.KvStore.open(kvstore(address, path)).result()


def pattern(size: int, seed: int = 1) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def cold() -> ts.Context:
    """A context without a cache, so that reads are reads."""
    return ts.Context({"cache_pool": {"total_bytes_limit": 0}})


def fails(word: str, future: ts.Future) -> None:
    try:
        future.result()
    except Exception as error:  # TensorStore maps statuses to several types
        assert word in f"{type(error).__name__}: {error}", error
        return
    raise AssertionError(f"no failure: {word}")


# ---- keys


def values(address: str) -> None:
    """Sizes around every bound, written and read whole and in ranges, all at once."""
    keys = open_keys(address, "values/")
    sent = {str(size): pattern(size) for size in SIZES}
    for write in [keys.write(key, value) for key, value in sent.items()]:
        assert write.result().generation
    for key, read in {key: keys.read(key) for key in sent}.items():
        assert read.result().value == sent[key], key
    for key, value in sent.items():
        size = len(value)
        for low, high in ((0, size // 2), (size // 3, None), (None, size), (size, None), (-min(size, 100) or None, None)):
            got = keys.read(key, byte_range=slice(low, high)).result()
            assert got.state == "value" and got.value == value[low:high], (key, low, high)
    fails("range", keys.read("2048", byte_range=slice(2000, 2049)))
    fails("range", keys.read("5000003", byte_range=slice(5_000_004, None)))
    assert keys.read("not there").result().state == "missing"
    assert keys.read("not there", byte_range=slice(1, 2)).result().state == "missing"
    assert open_keys(address).read("").result().state == "missing"
    fails("empty key", open_keys(address).write("", b"value"))
    fails("longer than 4096 bytes", keys.write("k" * 4097, b"value"))


def conditions(address: str) -> None:
    keys = open_keys(address, "conditions/")
    for size in (10, 100_000, 3_000_000):
        key = f"of {size}"
        assert keys.write(key, b"no", if_equal=b"\x00" + bytes([1] * 8)).result().generation == b""
        first = keys.write(key, pattern(size), if_equal=ABSENT).result().generation
        assert len(first) == 9
        assert keys.write(key, pattern(size, 2), if_equal=ABSENT).result().generation == b""
        assert keys.write(key, pattern(size, 2), if_equal=b"\x00" + bytes(8)).result().generation == b""
        assert keys.write(key, pattern(size, 2), if_equal=b"some other store's").result().generation == b""
        assert keys[key] == pattern(size)
        assert keys.read(key, if_not_equal=first).result().state == "unspecified"
        assert keys.read(key, if_not_equal=first, byte_range=slice(-5, None)).result().state == "unspecified"
        second = keys.write(key, pattern(size, 2), if_equal=first).result().generation
        assert second not in (first, b"")
        got = keys.read(key, if_not_equal=first).result()
        assert got.value == pattern(size, 2) and got.stamp.generation == second
        assert keys.write(key, None, if_equal=first).result().generation == b""
        assert keys.write(key, None, if_equal=ABSENT).result().generation == b""
        assert keys.write(key, None, if_equal=second).result().generation == ABSENT
        assert keys.read(key).result().state == "missing"
        assert keys.write(key, None, if_equal=ABSENT).result().generation == ABSENT
        assert keys.write(key, None, if_equal=second).result().generation == b""
        assert keys.write(key, None).result().generation == ABSENT
        third = keys.write(key, pattern(size)).result().generation
        assert third not in (first, second)  # of the same bytes


def listing(address: str, count: str) -> None:
    keys = open_keys(address, "listing/")
    names = [b"%06d/%s" % (number, b"n" * (number % 50)) for number in range(int(count))]
    for write in [keys.write(name, b"v") for name in names]:
        write.result()
    assert keys.list().result() == names  # in order, and without the path
    assert keys.list(keys.KeyRange("000100", "000200")).result() == names[100:200]
    assert keys.list(strip_prefix_length=7).result() == [name[7:] for name in names]
    assert keys.list(keys.KeyRange("x", "a")).result() == []
    keys.delete_range(keys.KeyRange("000010", "000020")).result()
    keys.delete_range(keys.KeyRange("x", "a")).result()
    assert keys.list().result() == names[:10] + names[20:]
    keys.delete_range(keys.KeyRange("000020", "")).result()
    assert keys.list().result() == names[:10]
    keys.delete_range(keys.KeyRange()).result()
    assert keys.list().result() == []


# ---- arrays


def array_specs(address: str) -> Iterator[tuple[str, dict]]:
    shape = [300, 200]
    yield "zarr", {"driver": "zarr", "kvstore": kvstore(address, "zarr/"),
                   "metadata": {"shape": shape, "chunks": [64, 64], "dtype": "<f4"}}
    codecs = [{"name": "sharding_indexed", "configuration": {"chunk_shape": [16, 16]}}]
    yield "zarr3", {"driver": "zarr3", "kvstore": kvstore(address, "zarr3/"),
                    "metadata": {"shape": shape, "data_type": "float32", "codecs": codecs,
                                 "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [64, 64]}}}}
    yield "ocdbt", {"driver": "zarr3", "kvstore": {"driver": "ocdbt", "base": kvstore(address, "ocdbt/"), "path": "a/"},
                    "metadata": {"shape": shape, "data_type": "float32",
                                 "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [64, 64]}}}}


def arrays(address: str) -> None:
    data = np.random.default_rng(1).random((300, 200), dtype=np.float32)
    for name, spec in array_specs(address):
        array = ts.open(spec, create=True, context=cold()).result()
        array.write(data).result()
        array[10:20, 30:33] = 7
        again = ts.open(dict(spec), open=True, context=cold()).result()
        expected = data.copy()
        expected[10:20, 30:33] = 7
        assert (again.read().result() == expected).all(), name
        assert (again[5:40, 100].read().result() == expected[5:40, 100]).all(), name
        again.resize(exclusive_max=[400, 200]).result()
        assert ts.open(dict(spec, metadata={}), open=True, context=cold()).result().shape == (400, 200), name


def array_write(spec: str) -> None:
    """What `ts_arrays write` does."""
    array = ts.open(json.loads(spec), create=True).result()
    rows, columns = array.shape
    array.write(np.arange(rows, dtype=np.float32)[:, None] * 1000 + np.arange(columns, dtype=np.float32)).result()
    array[10:20, 30:33] = 7


def array_check(spec: str) -> None:
    """What `ts_arrays check` does."""
    array = ts.open(json.loads(spec), open=True, context=cold()).result()
    rows, columns = array.shape
    expected = np.arange(rows, dtype=np.float32)[:, None] * 1000 + np.arange(columns, dtype=np.float32)
    expected[10:20, 30:33] = 7
    assert (array.read().result() == expected).all()


def transactions(address: str) -> None:
    keys = open_keys(address, "transactions/")
    keys["before"] = b"1"
    with ts.Transaction() as both:
        inside = keys.with_transaction(both)
        inside["new"] = pattern(3_000_000)
        del inside["before"]
        assert inside["new"] == pattern(3_000_000) and keys.list().result() == [b"before"]
    assert keys.list().result() == [b"new"] and keys["new"] == pattern(3_000_000)
    database = ts.KvStore.open({"driver": "ocdbt", "base": kvstore(address, "transactions/ocdbt/")}).result()
    with ts.Transaction(atomic=True) as both:
        inside = database.with_transaction(both)
        inside["a"], inside["b"] = b"1", pattern(100_000)
        assert database.list().result() == []
    assert database["a"] == b"1" and database["b"] == pattern(100_000)
    # What was read and has changed meanwhile is not overwritten: the transaction's part is done again on top.
    spec = next(array_specs(address))[1]
    array = ts.open(spec, create=True, delete_existing=True, context=cold()).result()
    late = ts.Transaction()
    array.with_transaction(late)[0, 0] = 1
    array[0, 1] = 2
    late.commit_async().result()
    assert array[0, :2].read().result().tolist() == [1, 2]


def large(address: str, mebibytes: str) -> None:
    count = int(mebibytes) << 18
    data = np.random.default_rng(3).random((count,), dtype=np.float32)
    spec = {"driver": "zarr", "kvstore": kvstore(address, "large/"),
            "metadata": {"shape": [count], "chunks": [1 << 18], "dtype": "<f4", "compressor": None}}
    ts.open(spec, create=True, context=cold()).result().write(data).result()
    assert (ts.open(spec, open=True, context=cold()).result().read().result() == data).all()
    open_keys(address, "one ")["value"] = data.tobytes()
    assert open_keys(address, "one ")["value"] == data.tobytes()


# ---- several at once


def count(address: str, times: str) -> None:
    """Adds one to a number, so often; others do the same."""
    keys = open_keys(address)
    for _ in range(int(times)):
        while True:
            got = keys.read("number").result()
            number = int(got.value) if got.state == "value" else 0
            # An unconditional read of what is missing has a generation, too.
            done = keys.write("number", b"%d" % (number + 1), if_equal=got.stamp.generation).result()
            if done.generation:
                break


def overwrite(address: str, times: str) -> None:
    """Values of 4 MB that are of one byte throughout, written over one another and read: none is of two bytes."""
    keys = open_keys(address)
    keys["torn"] = bytes(4_000_000)
    for number in range(int(times)):
        write = keys.write("torn", bytes([os.getpid() % 251 + number % 5]) * 4_000_000)
        for read in [keys.read("torn") for _ in range(3)]:
            value = read.result().value
            assert len(value) == 4_000_000 and value == value[:1] * 4_000_000
        write.result()


# ---- calls that TensorStore does not make

SERVICE = "/tensorstore_grpc.kvstore.KvStoreService/"
LAST_TWO = b"\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # a range


def field(number: int, data: bytes) -> bytes:
    size, length = len(data), b""
    while size > 0x7f:
        length += bytes([size & 0x7f | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


def calls(channel: grpc.Channel, name: str) -> grpc.UnaryStreamMultiCallable:
    return channel.unary_stream(SERVICE + name)


def status_of(call: Iterator[bytes]) -> grpc.StatusCode:
    try:
        for _ in call:
            pass
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def statuses(address: str) -> None:
    code = grpc.StatusCode
    open_keys(address)["key"] = b"value"
    with grpc.insecure_channel(address) as channel:
        for name, message, expected in (
                ("Read", field(1, b"key"), code.OK),
                ("Read", b"", code.OK),
                ("Read", b"\x0a\x05key", code.INVALID_ARGUMENT),
                ("Read", b"\xff" * 100, code.INVALID_ARGUMENT),
                ("Read", field(1, b"k" * 5000), code.INVALID_ARGUMENT),
                ("Read", field(1, b"k" * 5000) + field(5, LAST_TWO), code.INVALID_ARGUMENT),
                ("Read", field(1, b"key") + field(5, b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
                                                  b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), code.OUT_OF_RANGE),
                ("Read", field(1, b"k" * 100_000), code.INVALID_ARGUMENT),
                ("Delete", field(2, b"\x0a"), code.INVALID_ARGUMENT),
                ("Delete", field(2, field(1, b"a" * 4097)), code.INVALID_ARGUMENT),
                ("Delete", field(2, field(1, b"x") + field(2, b"a")), code.OK),
                ("Delete", field(1, b"key") + field(3, b"some other store's"), code.OK),
                ("Delete", field(3, ABSENT), code.OK),
                ("List", field(1, field(1, b"x") + field(2, b"a")), code.OK),
                ("List", field(1, b"\x0a"), code.INVALID_ARGUMENT),
                ("List", field(1, field(1, b"a" * 4097)), code.INVALID_ARGUMENT),
                ("Write", field(1, b"key") + b"\x1a", code.INVALID_ARGUMENT),
                ("Write", field(1, b"k" * 5000), code.INVALID_ARGUMENT),
                ("Write", field(3, b"value"), code.INVALID_ARGUMENT),
                ("Write", field(1, b"key") + field(3, b"a") + field(3, b"b"), code.INVALID_ARGUMENT),
                ("Compact", b"", code.UNIMPLEMENTED)):
            assert status_of(calls(channel, name)(message)) == expected, (name, message[:20])
        assert open_keys(address)["key"] == b"value"
        assert status_of(channel.unary_stream("/some.Service/Read")(b"")) == code.UNIMPLEMENTED
        assert status_of(channel.stream_stream(SERVICE + "Read")(iter([b"", b""]))) == code.INVALID_ARGUMENT
        assert status_of(channel.stream_stream(SERVICE + "Read")(iter([]))) == code.INVALID_ARGUMENT
        assert status_of(channel.stream_stream(SERVICE + "Write")(iter([]))) == code.INVALID_ARGUMENT
        zipped = calls(channel, "Read")(field(1, b"k" * 4000), compression=grpc.Compression.Gzip)
        assert status_of(zipped) == code.UNIMPLEMENTED
        # An answer that comes early: the rest of what is sent is not waited for.
        endless = (field(1, b"key") + field(9, bytes(100_000)) + b"\x1b" for _ in range(10_000))
        assert status_of(channel.stream_stream(SERVICE + "Write")(endless)) == code.INVALID_ARGUMENT


def read_until_killed(address: str) -> None:
    """The same value again and again. The last read, in whose middle the node ends, is told so."""
    open_keys(address)["long"] = pattern(64 << 20)
    end, status = time.monotonic() + 60, grpc.StatusCode.OK
    with grpc.insecure_channel(address) as channel:
        print("reading", flush=True)
        while status == grpc.StatusCode.OK and time.monotonic() < end:
            status = status_of(calls(channel, "Read")(field(1, b"long")))
    assert status == grpc.StatusCode.UNAVAILABLE, status


def read_on(address: str) -> None:
    """TensorStore itself tries again, and sees what the next node at this address has: nothing."""
    keys = open_keys(address)
    keys["key"] = b"value"
    print("reading", flush=True)
    end = time.monotonic() + 60
    while time.monotonic() < end and keys.read("key").result().state == "value":
        pass
    assert keys.read("key").result().state == "missing"


def full(address: str) -> None:
    """A store without room says so, whichever way the value comes, and keeps what it has."""
    keys = open_keys(address)
    keys["kept"] = b"kept"
    with grpc.insecure_channel(address) as channel:
        def write(key: bytes, mebibytes: int) -> grpc.StatusCode:
            first = field(1, key) + field(3, bytes(1 << 20))
            return status_of(channel.stream_stream(SERVICE + "Write")(
                iter([first] + [field(3, bytes(1 << 20))] * (mebibytes - 1))))

        number = 0
        while (status := write(b"small %d" % number, 1)) == grpc.StatusCode.OK:
            number += 1
        assert status == grpc.StatusCode.FAILED_PRECONDITION and 20 < number < 64
        assert write(b"large", 30) == grpc.StatusCode.FAILED_PRECONDITION
        assert write(b"larger than the store", 200) == grpc.StatusCode.FAILED_PRECONDITION
    # TensorStore does not try that again: who writes is told.
    fails("no space", keys.write("late", bytes(20 << 20)))
    assert keys["kept"] == b"kept" and {keys.read(key).result().state for key in ("large", "late")} == {"missing"}
    keys.delete_range(keys.KeyRange("small", "smalm")).result()
    assert keys.write("late", bytes(20 << 20)).result().generation
    keys.delete_range(keys.KeyRange()).result()


def give_up(address: str) -> None:
    """Calls that their client ends in the middle."""
    parts = (field(1, b"given up") + field(3, bytes(1 << 20)) for _ in range(1000))
    open_keys(address)["long"] = bytes(20 << 20)
    with grpc.insecure_channel(address) as channel:
        for _ in range(20):
            write = channel.stream_stream(SERVICE + "Write")(parts)
            read = calls(channel, "Read")(field(1, b"long"))
            lists = [calls(channel, "List")(b"") for _ in range(80)]
            assert next(read)
            for call in [write, read, *lists]:
                call.cancel()
    assert open_keys(address).read("given up").result().state == "missing"


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
