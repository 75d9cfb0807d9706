# SPDX-License-Identifier: Apache-2.0
"""Arguments of every method that call back, drawn: they close, end and change whatever there is, and the interpreter lives."""
from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, given, settings, strategies  # noqa: E402

import penstock  # noqa: E402
import support  # noqa: E402
from penstock import _core  # noqa: E402

URL = "mem:?dram=4M&page_size=64K&shards=1"
EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "100"))
PUT, GET, STAT_KEY = 1, 2, 3
NESTED_MAX = 2
THREADED = 10

Maker = Callable[["World"], Any]


class Raised(Exception):
    """What a callback raises, and nobody else."""


EXPECTED = (penstock.Error, Raised, TypeError, ValueError, BufferError, IndexError, MemoryError, RuntimeError, StopIteration)


class World:
    """A store with one of everything that hangs on it, which callbacks meddle with."""

    def __init__(self, seed: int, url: str = URL) -> None:
        self.of_seed, self.nested = random.Random(seed), 0  # drawn here: when the collector comes is not for Hypothesis to say
        self.store = penstock.open(url)
        self.store.delete_prefix("")
        self.store.put("there", bytes(3000))
        self.memory = (ctypes.c_char * 4096)()
        self.lists: list[Any] = []  # arguments of the call that runs
        self.queue = self.store.queue()
        self.reservations = [self.store.reserve("reservation", 64), self.store.reserve("grown")]
        self.stream = self.store.stream("stream")
        self.view = self.store.view("there")
        self.listing = self.store.list()
        self.watch = self.store.watch("")

    def of(self, *choices: Any) -> Any:
        return self.of_seed.choice(choices)

    def act(self) -> None:
        """What a callback does."""
        if self.nested == NESTED_MAX:
            return
        self.nested += 1
        try:
            self.of(*ACTIONS)(self)
        except Raised:
            raise
        except EXPECTED:
            pass
        finally:
            self.nested -= 1

    def end(self) -> None:
        self.nested = NESTED_MAX  # what is left calls nobody
        self.lists.clear()
        for call in (self.watch.close, self.view.release, self.stream.abort, *(reservation.abort for reservation in self.reservations)):
            call()
        self.queue = self.listing = None  # type: ignore[assignment]
        gc.collect()
        if not self.store.closed:
            figures = self.store.figures()
            assert (figures["reservations"], figures["watches"]) == (0, 0)
        self.store.close()


def raising(world: World) -> None:
    raise Raised


def meet(world: World) -> None:
    """Whatever the collector knows, also what nobody was given yet."""
    for one in gc.get_objects():
        if type(one) in (_core.Reservation, _core.Stream) and one not in (*world.reservations, world.stream):
            one.abort()


def change_lists(world: World) -> None:
    for one in world.lists:
        world.of(list.clear, list.pop, lambda items: items.extend([b"more"] * 70))(one)


ACTIONS: list[Callable[[World], object]] = [
    lambda w: None,
    raising,
    meet,
    change_lists,
    lambda w: gc.collect(),
    lambda w: w.store.close(),
    lambda w: w.of(*w.reservations).abort(),
    lambda w: w.of(*w.reservations).commit(),
    lambda w: w.of(*w.reservations).write(bytes(64), 0),
    lambda w: w.reservations[0].__setitem__(slice(0, 8), bytes(8)),
    lambda w: w.store.commit_many(w.reservations),
    lambda w: w.stream.write(bytes(100)),
    lambda w: w.stream.commit(),
    lambda w: w.stream.abort(),
    lambda w: w.view.release(),
    lambda w: w.view.tobytes(),
    lambda w: next(w.listing),
    lambda w: w.watch.poll(0),
    lambda w: w.watch.close(),
    lambda w: [w.queue.add(i, PUT, "there", b"v", None, None, None) for i in range(9)],
    lambda w: w.queue.add_many(0, GET, [("there", None, None, None)] * 5),
    lambda w: w.queue.flush(),
    lambda w: w.queue.reap(),
    lambda w: w.store.put("there", bytes(5000)),
    lambda w: w.store.put_many({b"a": b"1", b"b": b"2"}),
    lambda w: w.store.get_many(["there", "none"]),
    lambda w: w.store.delete_prefix(""),
]

# ---- what is passed, and calls back


class Number:
    def __init__(self, world: World, value: float) -> None:
        self.world, self.value = world, value

    def __index__(self) -> int:
        self.world.act()
        return int(self.value)

    def __float__(self) -> float:
        self.world.act()
        return float(self.value)

    def __bool__(self) -> bool:
        self.world.act()
        return bool(self.value)


class Items(list):  # type: ignore[type-arg]
    """A list whose methods call back, its own and those of what goes through it."""

    world: World

    def __len__(self) -> int:
        self.world.act()
        return list.__len__(self)

    def __getitem__(self, place: Any) -> Any:
        self.world.act()
        return list.__getitem__(self, place)

    def __iter__(self) -> Iterator[Any]:
        for one in list.__iter__(self):
            self.world.act()
            yield one


class Dying(bytearray):
    """Memory whose end calls back, through the object or a weak reference to it."""

    def __init__(self, world: World, count: int) -> None:
        super().__init__(count)
        self.ended = weakref.ref(self, lambda _: world.act())
        self.world = world

    def __del__(self) -> None:
        try:
            self.world.act()
        except Raised:
            pass


class Exporter:
    """Called back from Python 3.12 on; before, this is no buffer."""

    def __init__(self, world: World, count: int) -> None:
        self.world, self.bytes = world, bytearray(count)

    def __buffer__(self, flags: int) -> memoryview:
        self.world.act()
        return memoryview(self.bytes)

    def __release_buffer__(self, view: memoryview) -> None:
        try:
            self.world.act()
        except Raised:
            pass


def number(*values: float) -> Maker:
    def make(w: World) -> Any:
        value = w.of(*values)
        return w.of(value, Number(w, value))
    return make


def optional(maker: Maker) -> Maker:
    return lambda w: maker(w) if w.of(True, False) else None


def key(w: World) -> Any:
    return w.of("there", b"none", "\udc80", bytearray(b"reservation"), Exporter(w, 3), 7)


def memory(w: World) -> Any:
    return w.of(bytearray(64), memoryview(bytearray(64)), (ctypes.addressof(w.memory), 64), Dying(w, 64), Exporter(w, 64), b"x" * 64)


def value(w: World) -> Any:
    return items(memory)(w) if w.of(True, False) else memory(w)


def items(maker: Maker) -> Maker:
    def make(w: World) -> Any:
        made = Items(maker(w) for _ in range(w.of(2, 1, 0, 5)))
        made.world = w
        w.lists.append(made)
        return w.of(made, list(list.__iter__(made)), tuple(list.__iter__(made)), (one for one in made))
    return make


def pair(*makers: Maker) -> Maker:
    def make(w: World) -> Any:
        made = tuple(maker(w) for maker in makers)
        return w.of(made, made[:-1], list(made)) if w.of(False, False, True) else made
    return make


def listed(maker: Maker) -> Maker:
    """As those methods take them that Python's own call."""
    def make(w: World) -> Any:
        made = [maker(w) for _ in range(w.of(2, 1, 0, 5))]
        w.lists.append(made)
        return made
    return make


def mapped(w: World) -> Any:
    made = {f"key {i}": value(w) for i in range(3)}
    holder = [made]
    w.lists.append(holder)
    return made


def token(w: World) -> Any:
    return w.of(object(), Dying(w, 1))


def slice_of(w: World) -> slice:
    return slice(optional(number(0, 4))(w), optional(number(64, 8))(w), optional(number(1, 2))(w))


def ctype(count: int) -> Maker:
    return lambda w: bytes(count)


flag, seconds = number(0, 1), number(0, 0.001, -1)
generation, depth = number(0, 1, 2**64), number(0, 3, 2**16)
length, offset = number(0, 64, 2**63), number(0, 8, -8, 2**64)
address = number(0, 4096)  # never read: a size of nothing, or none
block_names, many_keys = items(key), items(key)
conditions = {"if_generation": optional(generation), "depth": optional(depth), "attrs": optional(memory), "ttl": optional(seconds)}


def real_address(w: World) -> Any:
    return number(ctypes.addressof(w.memory))(w)


CALLS: dict[str, tuple[Callable[[World], Any], tuple[Maker, ...], dict[str, Maker]]] = {
    "Store.put": (lambda w: w.store.put, (key, value), {"if_absent": flag, "checksum": flag, "durable": flag, **conditions}),
    "Store.get": (lambda w: w.store.get, (key,), {"offset": optional(offset), "length": optional(number(0, 64)),
                                                  "wait": optional(seconds), "if_generation": optional(generation)}),
    "Store.get_into": (lambda w: w.store.get_into, (key, value), {"offset": optional(offset), "wait": optional(seconds)}),
    "Store.exists": (lambda w: w.store.exists, (key,), {}),
    "Store.delete": (lambda w: w.store.delete, (key,), {"if_generation": optional(generation)}),
    "Store.pin": (lambda w: w.store.pin, (key, number(0.001)), {}),
    "Store.unpin": (lambda w: w.store.unpin, (key,), {}),
    "Store.view": (lambda w: w.store.view, (key,), {}),
    "Store.put_many": (lambda w: w.store.put_many, (lambda w: mapped(w) if w.of(True, False) else items(pair(key, value))(w),),
                       {"if_absent": flag, "checksum": flag, "depth": optional(depth), "durable": flag}),
    "Store.get_many": (lambda w: w.store.get_many, (many_keys,), {"ranges": optional(items(pair(offset, number(0, 64))))}),
    "Store.get_into_many": (lambda w: w.store.get_into_many, (many_keys, items(value)), {"offsets": optional(items(offset))}),
    "Store.move_many": (lambda w: w.store.move_many, (many_keys, items(real_address), items(number(0, 64)),
                                                      optional(items(depth)), flag), {}),
    "Store.exists_many": (lambda w: w.store.exists_many, (many_keys,), {}),
    "Store.delete_many": (lambda w: w.store.delete_many, (many_keys,), {}),
    "Store.head": (lambda w: w.store.head, (key,), {}),
    "Store.reserve": (lambda w: w.store.reserve, (key, optional(length)), {"replace": flag, **conditions}),
    "Store.reserve_pairs": (lambda w: w.store.reserve_pairs, (listed(pair(key, optional(length))), optional(depth), flag), {}),
    "Store.reserve_many": (lambda w: w.store.reserve_many, (items(pair(key, optional(length))),), {"replace": flag}),
    "Store.commit_many": (lambda w: w.store.commit_many, (lambda w: items(lambda w: w.of(*w.reservations, 7))(w),), {"durable": flag}),
    "Store.commit_ops": (lambda w: w.store.commit_ops, (listed(pair(key, optional(value), optional(generation))),
                                                        listed(pair(key, optional(value), optional(generation)))), {}),
    "Store.stream": (lambda w: w.store.stream, (key,), {"if_absent": flag, "checksum": flag, **conditions}),
    "Store.list": (lambda w: w.store.list, (optional(key),), {"start": optional(key), "end": optional(key)}),
    "Store.watch": (lambda w: w.store.watch, (optional(key),), {}),
    "Store.delete_prefix": (lambda w: w.store.delete_prefix, (key,), {}),
    "Store.delete_range": (lambda w: w.store.delete_range, (key, optional(key)), {}),
    "Store.report_blocks": (lambda w: w.store.report_blocks, (ctype(16), number(0, 9), block_names), {}),
    "Store.revoke_blocks": (lambda w: w.store.revoke_blocks, (memory, number(0, 9), optional(block_names)), {}),
    "Store.match_blocks": (lambda w: w.store.match_blocks, (block_names,), {"hit": flag}),
    "Store.block_hits": (lambda w: w.store.block_hits, (block_names,), {}),
    "Store.drain_id": (lambda w: w.store.drain_id, (memory, flag), {}),
    "Store.register": (lambda w: w.store.register, (value,), {}),
    "Store.deregister": (lambda w: w.store.deregister, (value,), {}),
    "Store.__init__": (lambda w: _core.Store.__new__(_core.Store).__init__, (), {"timeout": seconds, "connect_timeout": seconds}),
    "Reservation.write": (lambda w: w.of(*w.reservations).write, (value, optional(number(0, 8, 2**63))), {}),
    "Reservation.__setitem__": (lambda w: w.of(*w.reservations).__setitem__, (slice_of, value), {}),
    "Reservation.commit": (lambda w: w.of(*w.reservations).commit, (), {"durable": flag}),
    "Stream.write": (lambda w: w.stream.write, (value,), {}),
    "View.__dlpack__": (lambda w: w.view.__dlpack__, (), {"max_version": pair(number(0, 1), number(0)), "copy": flag}),
    "Watch.poll": (lambda w: w.watch.poll, (seconds,), {}),
    "Queue.add": (lambda w: w.queue.add, (token, number(PUT, GET, STAT_KEY), key, optional(value), optional(number(0, 8)),
                                          optional(number(0, 4, 64)), optional(seconds)), {}),
    "Queue.add_many": (lambda w: w.queue.add_many, (token, number(PUT, GET), listed(
        pair(key, optional(value), optional(number(0, 8)), optional(number(0, 64))))), {}),
    # without arguments, but on what others have left
    "Queue.flush": (lambda w: w.queue.flush, (), {}),
    "Queue.reap": (lambda w: w.queue.reap, (), {}),
}
PLAIN = {
    "Store": {"copies", "closed", "lane", "queue", "clear", "figures", "flush", "ping", "nodes", "forgive", "close"},
    "Reservation": {"abort", "nbytes", "location"}, "Stream": {"commit", "abort"},
    "View": {"release", "tobytes", "nbytes", "generation", "released"}, "Watch": {"fileno", "close"}, "Listing": set(),
    "Queue": {"fileno", "underway"}, "Node": {"close", "urls", "closed"},
}


def test_every_method_is_called() -> None:
    for name, plain in PLAIN.items():
        known = {call.partition(".")[2] for call in CALLS if call.startswith(f"{name}.")} | plain
        assert {one for one in vars(getattr(_core, name)) if not one.startswith("_")} <= known


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, print_blob=False,
          suppress_health_check=list(HealthCheck))
@given(names=strategies.lists(strategies.sampled_from(sorted(CALLS)), min_size=1, max_size=5),
       seed=strategies.integers(0, 2**32 - 1))
def test_arguments_that_call_back(names: list[str], seed: int) -> None:
    world = World(seed)
    try:
        for name in names:
            method, positional, named = CALLS[name]
            given_ones = chosen = result = None
            try:
                given_ones = [maker(world) for maker in positional]
                chosen = {one: maker(world) for one, maker in named.items() if world.of(False, True)}
                result = method(world)(*given_ones, **chosen)
                if isinstance(result, (_core.Reservation, _core.Stream)):
                    result.abort()
            except EXPECTED:
                pass
            given_ones = chosen = result = None
            world.lists.clear()
    finally:
        world.end()


@pytest.mark.parametrize("kind", ["mem", "unix"])
def test_threads_that_do_the_same(urls: dict[str, str], kind: str) -> None:
    """One ends what another is about to use, and the store under all of them."""
    for seed in range(THREADED):
        world = World(seed, urls[kind])

        def meddle(world: World = world) -> None:
            for _ in range(40):
                with contextlib.suppress(*EXPECTED):
                    world.of(*ACTIONS)(world)

        threads = [threading.Thread(target=meddle) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(support.WAIT_S)
            assert not thread.is_alive()
        world.end()
