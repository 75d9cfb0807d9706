# SPDX-License-Identifier: Apache-2.0
"""Calls of ``mooncake.store``, whoever's it is, with a line printed for each: `mooncake_calls.py MASTER [bytes|tensors]`.

Two runs that print the same lines answer alike. What the two are known to answer differently is not asked; docs/how-to/mooncake.md
lists it.
"""
from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from typing import Any

from mooncake.store import MooncakeDistributedStore, ReplicateConfig

SEGMENT_BYTES = 64 << 20
MEMORY_BYTES = 1 << 20
HEAD_BYTES = 304


class Session:
    """A store that is set up, and memory that is registered with it."""

    def __init__(self, master: str) -> None:
        self.store = MooncakeDistributedStore()
        self.count = 0
        self.say("setup", self.store.setup("127.0.0.1", "P2PHANDSHAKE", SEGMENT_BYTES, SEGMENT_BYTES, "tcp", "", master))
        self.memory = mmap.mmap(-1, MEMORY_BYTES)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def say(self, name: str, answer: object) -> None:
        self.count += 1
        print(f"{self.count} {name}: {answer!r}", flush=True)

    def fails(self, name: str, call: Callable[[], object]) -> None:
        try:
            self.say(name, call())
        except TypeError:
            self.say(name, "TypeError")

    def call(self, name: str, *arguments: Any, **named: Any) -> None:
        self.say(name, getattr(self.store, name)(*arguments, **named))

    def seen(self, offset: int, length: int) -> None:
        self.say("memory", self.memory[offset:offset + length])


def values(s: Session) -> None:
    for value in (b"one", b"other"):
        s.call("put", "a", value)
    for key in ("a", "none", ""):
        for ask in ("get", "is_exist", "get_size"):
            s.call(ask, key)
    s.call("put", "e", b"")
    s.call("put", "", b"x")
    s.call("put", "ba", bytearray(b"xx"))
    s.fails("text", lambda: s.store.put("text", "text"))
    s.fails("number", lambda: s.store.put(3, b"number"))
    s.call("put_batch", ["b1", "b2"], [b"1", b"22"])
    s.call("put_batch", ["b1", "b3"], [b"9", b"333"])
    s.call("put_batch", ["b1", "b3"], [b"9"])
    s.call("put_batch", ["d", "d"], [b"9", b"8"])
    s.call("put_batch", [], [])
    s.call("get_batch", ["b1", "none", "b2", "b3", "d"])
    s.call("put_parts", "p", b"ab", b"cd", memoryview(b"ef"))
    s.call("put_parts", "p", b"zz")
    s.call("put_parts", "p0")
    s.call("get", "p")
    s.call("batch_is_exist", ["a", "none", "b1", "p0"])
    s.call("batch_is_exist", [])
    config = ReplicateConfig()
    s.call("put", key="kw", value=b"x", config=config)
    config.replica_num, config.with_hard_pin = 2, True
    s.call("put", "pinned", b"x", config)
    config.replica_num = 0
    s.call("put", "r0", b"x", config)
    handle = s.store.get_buffer("p")
    s.say("buffer", (bytes(memoryview(handle)), handle.size(), handle.ptr() != 0, memoryview(handle).readonly))
    s.call("get_buffer", "none")
    s.say("buffers", [handle and handle.size() for handle in s.store.batch_get_buffer(["p", "none", "a"])])
    s.say("descriptors", [(str(one.status), one.is_memory_replica(), one.get_memory_descriptor().buffer_descriptor.size)
                          for one in s.store.get_replica_desc("p")])
    s.call("get_replica_desc", "none")


def addresses(s: Session) -> None:
    base = s.base
    for place in ((base, MEMORY_BYTES), (base, MEMORY_BYTES), (0, 10), (base, 0), (base + 4096, 4096)):
        s.call("register_buffer", *place)
    s.memory[:10] = b"0123456789"
    s.call("put_from", "f", base, 10)
    s.call("put_from", "f", base, 5)
    s.call("put_from", "f0", base, 0)
    s.call("is_exist", "f0")
    for room in (100, 10, 5, 0):
        s.call("get_into", "f", base + 100, room)
        s.seen(100, 12)
    s.call("get_into", "none", base, 10)
    alone = ctypes.create_string_buffer(b"unregistered")
    s.call("put_from", "fu", ctypes.addressof(alone), 12)
    s.call("get_into", "f", ctypes.addressof(alone), 12)
    s.say("alone", (s.store.get("fu"), alone.raw))
    s.call("batch_put_from", ["g1", "g2", "f"], [base, base + 1, base + 2], [3, 4, 5])
    s.call("batch_get_into", ["g1", "none", "g2", "f"], [base + 400 + 10 * i for i in range(4)], [10, 10, 4, 4])
    s.seen(400, 50)
    for verb in ("batch_put_from", "batch_get_into"):
        s.call(verb, ["g1", "g2"], [base], [3])
        s.call(verb, [], [], [])
    s.call("batch_put_from_multi_buffers", ["m1", "m2", "f"], [[base, base + 5], [base + 1], [base]], [[2, 3], [4], [2]])
    s.call("get_batch", ["m1", "m2", "f"])
    s.call("batch_get_into_multi_buffers", ["m1", "none", "m2"], [[base + 500, base + 510], [base + 520], [base + 530]],
           [[2, 3], [4], [4]])
    s.seen(500, 40)
    s.call("batch_get_into_multi_buffers", ["m1"], [[base + 540, base + 545]], [[2, 2]])
    s.call("batch_get_into_multi_buffers", ["m1"], [[base + 550, base + 560]], [[4, 4]])
    s.call("batch_get_into_multi_buffers", ["m1"], [[base + 540, base + 545]], [[2]])
    s.call("put_from_with_metadata", "pm", base, base + 5, 3, 2)
    s.call("get", "pm")


def ranges(s: Session) -> None:
    base = s.base
    s.call("get_into_ranges", [base + 600], [["f", "p"]], [[[0, 20], [40]]], [[[1, 4], [2]]], [[[3, 2], [3]]])
    s.seen(600, 50)
    s.call("get_into_ranges", [base + 600], [["none", "p"]], [[[0], [40]]], [[[1], [2]]], [[[3], [3]]])
    s.call("get_into_ranges", [base + 600], [["f", "p"]], [[[0], [40]]], [[[8], [2]]], [[[5], [3]]])
    s.call("get_into_ranges", [base + 600], [["f", "p"]], [[[0]]], [[[8], [2]]], [[[5], [3]]])
    s.call("batch_get_session_start", ["f", "none"])
    s.call("batch_get_into_multi_buffer_ranges", ["f"], [[base + 800, base + 810]], [[2, 3]], [[0, 4]])
    s.seen(800, 20)
    s.call("batch_get_session_end", ["f", "none"])
    s.call("batch_get_into_multi_buffer_ranges", ["p"], [[base + 800, base + 810]], [[2, 3]], [[0, 1]])
    s.call("batch_put_session_start", ["s1", "s2", "f"], [6, 4, 4])
    s.call("batch_put_from_multi_buffer_ranges", ["s1"], [[base, base + 5]], [[3, 3]], [[3, 0]])
    s.call("is_exist", "s1")
    s.call("batch_put_session_end", ["s1", "none"])
    s.call("get", "s1")
    s.call("batch_put_session_revoke", ["s2", "none"])
    s.call("is_exist", "s2")


def changes(s: Session) -> None:
    base = s.base
    s.call("upsert", "a", b"newer value")
    s.call("upsert", "un", b"new")
    s.call("get_batch", ["a", "un"])
    s.call("upsert_parts", "a", b"p1", b"p2")
    s.call("get", "a")
    s.call("upsert_batch", ["a", "un"], [b"1", b"2"])
    s.call("upsert_from", "a", base, 4)
    s.call("batch_upsert_from", ["a", "un"], [base, base], [4, 5])
    s.call("get_batch", ["a", "un"])
    s.call("remove", "f", True)
    s.call("remove", "none")
    s.call("remove", "")
    s.call("put", "fresh", b"1")
    s.call("remove", "fresh")
    s.call("batch_remove", ["g1", "none"], True)
    for pattern in ("^b[0-9]", "[", "^zz", "n$"):
        s.call("remove_by_regex", pattern, True)
    s.call("batch_is_exist", ["b1", "b2", "b3", "ba", "un", "pm"])
    s.call("unregister_buffer", base)
    s.call("unregister_buffer", base)
    s.call("put", "large", b"x" * (512 << 20 | 1))
    s.call("remove_all", True)
    s.call("is_exist", "a")


def tensors(s: Session) -> None:
    import torch
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    for tensor in (x, x + 1):
        s.call("put_tensor", "t", tensor)
    for ask in ("get_tensor", "get_size"):
        s.call(ask, "t")
        s.call(ask, "none")
    s.say("bytes", s.store.get("t"))
    s.call("put_tensor", "n", None)
    s.call("put_tensor", "n", x.numpy())
    for key, tensor in (("turned", x.t()), ("empty", torch.zeros(0, 3)), ("deep", torch.zeros(1, 2, 3, 1, 1, 1, 1, 1, 1))):
        s.call("put_tensor", key, tensor)
        s.call("get_tensor", key)
    for name in ("bool", "uint8", "int8", "int16", "uint16", "int32", "int64", "float16", "bfloat16", "float64", "float8_e4m3fn",
                 "float8_e5m2", "complex64"):
        s.call("put_tensor", name, torch.ones(2).to(getattr(torch, name)))
        s.call("get_tensor", name)
    for junk in (b"x" * 10, b"x" * 400):
        s.call("put", f"junk{len(junk)}", junk)
        s.call("get_tensor", f"junk{len(junk)}")
    s.call("batch_put_tensor", ["b1", "b2", "t"], [x, x + 1, x])
    s.call("batch_put_tensor", ["b3", "b4"], [x, None])
    s.call("batch_put_tensor", ["b1"], [x, x])
    s.call("batch_get_tensor", ["b1", "none", "b2", "b4"])
    config = ReplicateConfig()
    s.call("pub_tensor", "pub", x, config)
    s.call("batch_pub_tensor", ["pub1", "pub2"], [x, x], config)
    for change in ("upsert_tensor", "upsert_pub_tensor"):
        s.call(change, "t", x * 5)
        s.call(f"batch_{change}", ["t"], [x * 6])
        s.call("get_tensor", "t")
    s.call("put_tensor_with_parallelism", "plain", x)
    s.call("get_tensor_with_parallelism", "plain")
    s.call("get_tensor_into_cuda", "t", x)


def cut_tensors(s: Session) -> None:
    import torch
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    for arguments in (("tp", x, 0, 2, 1), ("tq", x, 1, 2, 1), ("odd", torch.arange(5.), 0, 2, 0), ("one", x, 0, 1, 0),
                      ("minus", x, 0, 2, -1), ("nine", x, 0, 2, 9), ("many", x, 0, 8, 0)):
        s.call("put_tensor_with_tp", *arguments)
        s.call("batch_is_exist", [arguments[0], f"{arguments[0]}_tp_0", f"{arguments[0]}_tp_1"])
    for where in ((0, 2, 1), (1, 2, 1), (1, 2, 0), (2, 2, 1), ()):
        s.call("get_tensor_with_tp", "tp", *where)
    s.call("batch_put_tensor_with_tp", ["v1", "v2"], [x, x * 2], 0, 2, 1)
    s.call("batch_get_tensor_with_tp", ["v1", "none", "v2"], 1, 2)
    s.call("pub_tensor_with_tp", "pt", x, ReplicateConfig(), 0, 2, 1)
    s.call("batch_pub_tensor_with_tp", ["pt1"], [x], ReplicateConfig(), 0, 3, 0)
    s.call("batch_is_exist", ["pt_tp_1", "pt1_tp_2"])
    s.call("register_buffer", s.base, MEMORY_BYTES)
    whole = HEAD_BYTES + 48
    s.call("put_tensor", "w", x)
    for room in (whole, whole + 100, whole - 8):
        s.call("get_tensor_into", "w", s.base, room)
    s.say("in place", s.store.get_tensor_into("w", s.base, whole).data_ptr() - s.base)
    s.call("batch_get_tensor_into", ["w", "none"], [s.base, s.base + 4096], [whole, whole])
    s.call("get_tensor_with_tp_into", "tp", s.base + 4096, 1000, 1, 2, 1)
    s.call("batch_get_tensor_with_tp_into", ["v1", "none"], [s.base + 8192, s.base + 9216], [1000, 1000], 1, 2)
    for key, ptr, size in (("f1", s.base, whole), ("f2", s.base, whole - 40), ("f3", s.base, whole + 48),
                           ("f4", s.base + 100000, whole), ("f5", s.base, 8)):
        s.call("put_tensor_from", key, ptr, size)
    s.call("get_tensor", "f1")
    s.call("batch_put_tensor_from", ["q1", "q2"], [s.base] * 2, [whole] * 2)
    s.call("put_tensor_with_tp_from", "c", s.base, whole, 1, 2, 1)
    s.call("get_tensor_with_tp", "c", 1, 2, 1)
    s.call("batch_put_tensor_with_tp_from", ["c1"], [s.base], [whole], 0, 2, 1)
    s.call("upsert_tensor_from", "w", s.base, whole)
    s.call("batch_upsert_tensor_from", ["w"], [s.base], [whole])


def main() -> None:
    session = Session(sys.argv[1])
    for part in (tensors, cut_tensors) if sys.argv[2:] == ["tensors"] else (values, addresses, ranges, changes):
        part(session)
    session.say("health", session.store.health_check())
    for _ in range(2):
        session.call("close")
    session.say("health", session.store.health_check())


if __name__ == "__main__":
    main()
