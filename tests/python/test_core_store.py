# SPDX-License-Identifier: Apache-2.0
"""The core of the package on every kind of store: values, ranges, views, batches, listings, and what is refused."""
from __future__ import annotations

import array
import errno
import gc
import inspect
import mmap
import threading
import time
from typing import Callable

import pytest

import penstock
import support

SIZES = (0, 1, 64, 2048, 2049, 32 << 10, (32 << 10) + 1, 300_000, (2 << 20) + 7, 9 << 20)


def pattern(size: int, seed: int = 0) -> bytes:
    return (bytes(range(seed, 251)) * (size // (251 - seed) + 1))[:size]


def has_views(store: penstock.Store) -> bool:
    return not store.url.startswith("node://")


@pytest.mark.parametrize("size", SIZES)
def test_a_value_comes_back(store: penstock.Store, size: int) -> None:
    value = pattern(size)
    generation = store.put("key", value)
    assert store.get("key") == value
    room = bytearray(size + 3)
    assert store.get_into("key", room) == size
    assert bytes(room) == value + bytes(3)
    stat = store.head("key")
    assert (stat.size, stat.generation, stat.attrs, stat.cache, stat.depth) == (size, generation, b"", False, None)
    assert store.put("key", value) > generation


def test_keys_are_text_or_bytes(store: penstock.Store) -> None:
    store.put("grün", b"1")
    assert store.get("grün".encode()) == store.get(bytearray("grün".encode())) == b"1"
    raw = b"\xff/\x00"
    store.put(memoryview(raw), b"2")
    entry = next(store.list(raw))
    assert entry.key == raw and store.get(entry.name) == b"2"
    assert list(store) == ["grün", entry.name]


@pytest.mark.parametrize("kind", ("unix", "pool"))
def test_the_time_of_a_call_begins_with_it(urls: dict[str, str], kind: str) -> None:
    with penstock.open(urls[kind], timeout=2) as store:
        store.put("timed", b"1")
        time.sleep(2.1)
        assert store.get("timed") == b"1"


def test_elements_that_lie_in_another_order_are_refused(store: penstock.Store) -> None:
    """Their bytes would come back transposed."""
    numpy = pytest.importorskip("numpy")
    rows = numpy.arange(6).reshape(2, 3)
    for value in (rows.T, [b"a", rows.T]):
        with pytest.raises(ValueError, match="value must be contiguous.*C-contiguous"):
            store.put("k", value)
    assert not store.exists("k")
    store.put("k", rows)
    room = numpy.zeros((2, 3), dtype=rows.dtype, order="F")
    with pytest.raises(ValueError, match="buffer must be contiguous.*C-contiguous"):
        store.get_into("k", room)
    assert not room.any()
    assert store.get_into("k", room.reshape(3, 2, order="F").T.copy()) == rows.nbytes


def test_values_are_any_contiguous_buffers(store: penstock.Store) -> None:
    doubles = array.array("d", [1.5, -2.0])
    store.put("k", doubles)
    assert store.get("k") == doubles.tobytes()
    back = array.array("d", [0, 0])
    store.get_into("k", back)
    assert back == doubles
    store.put("k", memoryview(b"abcdef")[2:4])
    assert store.get("k") == b"cd"
    with pytest.raises(ValueError, match="value must be contiguous"):
        store.put("k", memoryview(b"abcdef")[::2])
    assert store.get("k") == b"cd"


def test_pieces_are_gathered_and_scattered(store: penstock.Store) -> None:
    large = pattern(3 << 20)
    store.put("k", [b"head", large, bytearray(b"tail")])
    assert store.get("k") == b"head" + large + b"tail"
    head, rest = bytearray(4), bytearray(len(large) + 4)
    assert store.get_into("k", (head, rest)) == len(large) + 8
    assert bytes(head) == b"head" and bytes(rest) == large + b"tail"
    store.put("k", [])
    assert store.get("k") == b""


def test_addresses_name_memory(store: penstock.Store) -> None:
    source, target = array.array("q", range(1000)), array.array("q", bytes(8000))
    address, count = source.buffer_info()
    store.put("k", (address, count * 8))
    assert store.get_into("k", (target.buffer_info()[0], 8000)) == 8000
    assert target == source
    with pytest.raises(ValueError, match="null address"):
        store.put("k", (0, 8))


def test_reads_of_one_generation(store: penstock.Store) -> None:
    for size in (100, 3 << 20):
        value = pattern(size)
        old = store.put("k", value)
        new = store.put("k", value)
        assert store.get("k", if_generation=new) == value
        assert store.get("k", offset=3, length=5, if_generation=new) == value[3:8]
        room = bytearray(size)
        assert store.get_into("k", room, if_generation=new) == size
        for read in (lambda: store.get("k", if_generation=old), lambda: store.get("k", offset=1, if_generation=old),
                     lambda: store.get_into("k", room, if_generation=old)):
            with pytest.raises(penstock.Stale):
                read()


def test_ranges(store: penstock.Store) -> None:
    value = pattern(100_000)
    store.put("k", value)
    assert store.get("k", offset=10, length=70_000) == value[10:70_010]
    assert store.get("k", length=5) == value[:5]
    assert store.get("k", offset=99_000) == value[99_000:]
    assert store.get("k", offset=-7) == value[-7:]
    assert store.get("k", offset=-7, length=2) == value[-7:-5]
    assert store.get("k", offset=100_000, length=0) == b""
    room = bytearray(4)
    assert store.get_into("k", room, offset=1) == 4 and bytes(room) == value[1:5]
    assert store.get_into("k", room, offset=-4) == 4 and bytes(room) == value[-4:]
    for wrong in ({"offset": 99_999, "length": 2}, {"offset": 100_001}, {"offset": -100_001}):
        with pytest.raises(penstock.Invalid) as caught:
            store.get("k", **wrong)
        assert caught.value.result == -errno.ERANGE
    with pytest.raises(penstock.NotFound):
        store.get("none", offset=3)


def test_conditions(store: penstock.Store) -> None:
    first = store.put("k", b"1", if_absent=True)
    with pytest.raises(penstock.Exists, match="key 'k'") as caught:
        store.put("k", b"2", if_absent=True)
    assert caught.value.generation == first
    second = store.put("k", b"2", if_generation=first)
    with pytest.raises(penstock.Stale) as stale:
        store.put("k", b"3", if_generation=first)
    assert stale.value.generation == second
    with pytest.raises(penstock.Stale):
        store.delete("k", if_generation=first)
    assert store.get("k") == b"2"
    assert store.delete("k", if_generation=second) is True
    assert store.delete("k") is False
    with pytest.raises(ValueError, match="exclude"):
        store.put("k", b"", if_absent=True, if_generation=1)


def test_attributes_depth_and_class(store: penstock.Store) -> None:
    store.put("cache/k", b"v", attrs=b"\x00attr", depth=3, checksum=True)
    stat = store.head("cache/k")
    assert (stat.attrs, stat.depth, stat.cache) == (b"\x00attr", 3, True)
    with pytest.raises(ValueError, match="attrs has 257 bytes"):
        store.put("k", b"", attrs=bytes(257))
    store.put("cache/k2", b"", attrs=bytes(256))
    assert store.head("cache/k2").attrs == bytes(256)
    with pytest.raises(penstock.NotFound):
        store.head("cache/")
    longest = "l" * 4096
    store.put(longest, b"v", depth=7)
    assert store.head(longest).depth == 7


def test_a_value_ends(store: penstock.Store) -> None:
    store.put("ends", b"v", ttl=0.05)
    store.put("stays", b"v", ttl=3600)
    with store.reserve("reservation", 1, ttl=0.05) as reservation:
        reservation.write(b"v")
        reservation.commit()
    with store.stream("stream", ttl=0.05) as stream:
        stream.write(b"v")
    end = time.monotonic() + 30
    while set(store) != {"stays"} and time.monotonic() < end:
        time.sleep(0.01)
    assert set(store) == {"stays"}
    for wrong in (-1, "1"):
        with pytest.raises((TypeError, ValueError), match="ttl"):
            store.put("k", b"", ttl=wrong)


def test_mapping_protocol(store: penstock.Store) -> None:
    store["b"] = b"2"
    store["a"] = bytearray(b"1")
    assert store["a"] == b"1" and "a" in store and "c" not in store
    assert len(store) == 2 and list(store) == ["a", "b"] and list(store.keys("b")) == ["b"]
    del store["a"]
    with pytest.raises(KeyError):
        store["a"]
    with pytest.raises(penstock.NotFound, match="not found"):
        del store["a"]
    store.clear()
    assert len(store) == 0 and bool(store)


def test_listing_is_lazy_ordered_and_bounded(store: penstock.Store) -> None:
    names = sorted(f"{prefix}/{number:05}" for prefix in "ab" for number in range(3000))
    store.put_many((name, b"x" * (i % 7)) for i, name in enumerate(names))
    listing = store.list()
    assert next(listing).name == "a/00000"
    store.delete("b/02999")
    assert [entry.name for entry in listing] == names[1:-1]
    assert [entry.size for entry in store.list("b/", end="b/00003")] == [i % 7 for i in range(3000, 3003)]
    assert [entry.name for entry in store.list("b/", start="b/02997")] == ["b/02997", "b/02998"]
    assert store.delete_range("a/00010", "a/00020") == 10
    assert store.delete_prefix("a/") == 2990
    assert len(store) == 2999


def test_a_listing_of_one_key(store: penstock.Store) -> None:
    names = [f"k{i}" for i in range(40)] + ["k1/x", "k1\0"]
    store.put_many((name, name.encode()) for name in names)
    for name in (*names, "k", "none"):
        there = [name] if name in names else []
        assert [entry.name for entry in store.list(start=name, end=name + "\0")] == there
        assert [entry.name for entry in store.list(name, end=name + "\0")] == there
        assert [entry.name for entry in store.list("k", start=name, end=name + "\0")] == there
    assert [entry.name for entry in store.list(start="k1", end="k1\1")] == ["k1", "k1\0"]
    assert list(store.list("l", start="k1", end="k1\0")) == []


def test_batches(store: penstock.Store) -> None:
    items = {f"k{i}": pattern(size) for i, size in enumerate(SIZES)}
    generations = store.put_many(items)
    assert generations == [store.head(name).generation for name in items]
    names = ["none", *items, b"k1"]
    assert store.get_many(names) == [None, *items.values(), items["k1"]]
    assert store.exists_many(names) == [False] + [True] * (len(names) - 1)
    assert store.get_many(["k5", "none", "k5"], ranges=[(1, 4), (0, 1), (-3, 2)]) == [
        items["k5"][1:5], None, items["k5"][-3:-1]]
    rooms = [bytearray(len(value)) for value in items.values()]
    assert store.get_into_many(items, rooms) == list(SIZES)
    assert [bytes(room) for room in rooms] == list(items.values())
    assert store.get_into_many(["k7", "none"], [rooms[0], rooms[1]], offsets=[3, 0]) == [0, None]
    assert store.delete_many(["k0", "none", "k1"]) == [True, False, True]
    assert store.put_many([]) == store.get_many([]) == store.exists_many([]) == []
    assert store.put_many([("p", [b"a", b"b"])]) and store.get("p") == b"ab"


def test_batches_of_many(store: penstock.Store) -> None:
    items = [(f"many/{i}", i.to_bytes(8, "little") * 40) for i in range(5000)]
    store.put_many(items)
    assert store.get_many(name for name, _ in items) == [value for _, value in items]


def test_a_failed_batch_tells_each_result(store: penstock.Store) -> None:
    store.put("b", b"old")
    with pytest.raises(penstock.Exists, match="key 'b'") as caught:
        store.put_many({"a": b"1", "b": b"2", "c": b"3"}, if_absent=True)
    assert caught.value.results == [0, 2, 0]
    assert store.get_many(["a", "b", "c"]) == [b"1", b"old", b"3"]
    with pytest.raises(penstock.Invalid) as small:
        store.get_into_many(["a", "b"], [bytearray(1), bytearray(1)])
    assert small.value.results == [0, -errno.ENOBUFS]
    with pytest.raises(ValueError, match="2 keys and 1 buffers"):
        store.get_into_many(["a", "b"], [bytearray(1)])
    with pytest.raises(TypeError, match="iterable of keys"):
        store.get_many("abc")
    with pytest.raises(TypeError, match="key must be"):
        store.put_many([("x", b""), (7, b"")])
    with pytest.raises(TypeError, match="tuple"):
        store.put_many(["x"])
    assert not store.exists("x")


@pytest.mark.parametrize(("call", "words"), [
    (lambda: penstock.Node(dram=b"16M"), "dram must be a str, .*not bytes"),  # type: ignore[arg-type]
    (lambda: penstock.Node(dram="16M", log=5), "log must be a file with a descriptor, not int"),  # type: ignore[arg-type]
    (lambda: penstock.open("node://127.0.0.1:1", tls_ca=5), "tls_ca must be a str or a path, not int"),  # type: ignore[arg-type]
    (lambda: penstock.open().commit(5), "puts must be a mapping, not int"),  # type: ignore[arg-type]
    (lambda: penstock.open().commit(checks=[("k", 1)]), "checks must be a mapping, not list"),  # type: ignore[arg-type]
    (lambda: penstock.open().commit(deletes="key"), "deletes must be an iterable of keys, not str"),
    (lambda: penstock.open().put_many([("k",)]), r"each of items must be a tuple of two, \(key, value\)"),  # type: ignore[list-item]
])
def test_what_is_of_another_type_is_named(call: Callable[[], object], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        call()


def test_views(store: penstock.Store) -> None:
    value = pattern(5 << 20)
    generation = store.put("k", value)
    if not has_views(store):
        with pytest.raises(penstock.Unsupported):
            store.view("k")
        return
    view = store.view("k")
    assert (len(view), view.nbytes, view.generation) == (len(value), len(value), generation)
    memory = memoryview(view)
    assert memory.readonly and memory == value
    with pytest.raises((BufferError, TypeError)):
        memory[0] = 1
    with pytest.raises(ValueError, match="writable"):
        store.get_into("k", view)
    store.put("k", b"new")
    store.delete("k")
    assert memory == value  # pinned
    store.put("copy", view)
    assert store.get("copy") == value
    assert view.tobytes() == value
    view.release()
    view.release()
    assert memory == value  # the last buffer keeps it
    for use in (lambda: memoryview(view), view.tobytes, lambda: len(view), lambda: view.generation, view.__enter__):
        with pytest.raises(ValueError, match="released"):
            use()
    assert store.stat().pinned == 1
    memory.release()
    assert store.stat().pinned == 0
    with pytest.raises(penstock.NotFound):
        store.view("k")
    store.put("empty", b"")
    with store.view("empty") as empty:
        assert bytes(empty) == b""


def test_views_and_dlpack(store: penstock.Store) -> None:
    if not has_views(store):
        pytest.skip("no shared memory on this lane")
    numpy = pytest.importorskip("numpy", "2.1", reason="older ones know no read-only DLPack")
    value = pattern(3 << 20)
    store.put("k", value)
    view = store.view("k")
    assert view.__dlpack_device__() == (1, 0)
    array = numpy.from_dlpack(view)
    plain = numpy.frombuffer(view, numpy.uint8)
    assert array.__array_interface__["data"] == plain.__array_interface__["data"]
    assert not array.flags.writeable and array.tobytes() == value
    unused = view.__dlpack__(max_version=(1, 0))
    view.release()
    store.delete("k")
    del plain, unused
    gc.collect()
    assert array.tobytes() == value and store.stat().pinned == 1
    del array
    assert store.stat().pinned == 0
    store.put("k", b"v")
    with store.view("k") as view:
        for refused in ({}, {"max_version": (0, 8)}, {"max_version": (1, 0), "copy": True}):
            with pytest.raises(BufferError):
                view.__dlpack__(**refused)


def test_views_end_with_the_object_and_outlive_a_close(store: penstock.Store) -> None:
    if not has_views(store):
        pytest.skip("no shared memory on this lane")
    store.put("k", pattern(100_000))
    view = store.view("k")
    assert store.stat().pinned == 1
    del view
    assert store.stat().pinned == 0
    with store.view("k") as view:
        assert store.stat().pinned == 1
    assert store.stat().pinned == 0
    view = store.view("k")
    store.close()
    assert bytes(view) == pattern(100_000)
    view.release()
    store.close()


def test_a_view_in_a_cycle_is_collected(urls: dict[str, str]) -> None:
    with penstock.open(urls["unix"]) as store:
        store.put("k", b"v")
        other = penstock.open(urls["unix"])
        other.cycle = other.view("k")  # type: ignore[attr-defined]
        assert store.stat().pinned == 1
        del other
        gc.collect()
        assert store.stat().pinned == 0


def test_a_wait_ends_with_the_put(store: penstock.Store) -> None:
    with pytest.raises(penstock.NotFound):
        store.get("late", wait=0.02)

    def put_later() -> None:
        time.sleep(0.1)
        store.put("late", b"here")

    thread = threading.Thread(target=put_later)
    thread.start()
    assert store.get("late", wait=30) == b"here"
    thread.join()
    assert store.get_into("late", bytearray(4), wait=0) == 4


def test_a_closed_store_refuses(store: penstock.Store) -> None:
    listing = store.list()
    store.put("k", b"v")
    store.close()
    store.close()
    assert store.closed
    for use in (lambda: store.get("k"), lambda: store.put("k", b""), lambda: store.exists("k"), lambda: store.lane,
                lambda: store.get_many(["k"]), lambda: store.list(), lambda: store.view("k"), store.stat, store.ping):
        with pytest.raises(penstock.Invalid, match="closed"):
            use()
    assert len(list(listing)) <= 1


@pytest.mark.parametrize("key", [3, None, 1.5, ["k"], object()])
def test_keys_that_are_none(store: penstock.Store, key: object) -> None:
    for use in (store.get, store.exists, store.delete, store.head, store.view, store.pin, store.delete_prefix):
        with pytest.raises(TypeError, match="(key|prefix) must be str or bytes-like, not "):
            use(key)
    with pytest.raises(TypeError):
        store.put(key, b"")
    with pytest.raises(TypeError):
        store.get_many([key])


def test_wrong_arguments(store: penstock.Store) -> None:
    store.put("k", b"value")
    for key in ("", b"", "l" * 4097):
        with pytest.raises(penstock.Invalid):
            store.put(key, b"")
        with pytest.raises(ValueError):
            store.get(key)
    for value in (3, None, "text", object(), {"a": 1}, [b"a", "b"], [3]):
        with pytest.raises(TypeError, match="value must be"):
            store.put("k", value)
    with pytest.raises(penstock.Invalid, match="larger than the store"):
        store.put("k", mmap.mmap(-1, 300 << 20))
    for read_only in (b"12345", memoryview(b"12345")):
        with pytest.raises(ValueError, match="buffer must be contiguous and writable"):
            store.get_into("k", read_only)
    with pytest.raises(penstock.Invalid, match="smaller than the value"):
        store.get_into("k", bytearray(4))
    for wrong in ({"depth": -1}, {"depth": 65535}, {"if_generation": -1}, {"if_generation": 1 << 64}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            store.put("k", b"", **wrong)
    for wrong in ({"depth": "1"}, {"if_generation": 1.0}, {"attrs": "text"}, {"colour": 1}):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            store.put("k", b"", **wrong)
    with pytest.raises(ValueError, match="wait"):
        store.get("k", wait=-1)
    with pytest.raises(TypeError):
        store.put("k")
    with pytest.raises(TypeError):
        store.put("k", b"", b"")
    assert store.get("k") == b"value"


def test_registered_memory(store: penstock.Store) -> None:
    room = bytearray(1 << 20)
    store.register(room)
    store.put("k", pattern(1 << 20))
    store.get_into("k", room)
    assert bytes(room) == pattern(1 << 20)
    store.deregister(room)
    with pytest.raises(penstock.Invalid, match="not registered"):
        store.deregister(room)


def test_pins_keep_keys_and_clear_tells(store: penstock.Store) -> None:
    store.put_many({"a": b"", "b": b""})
    store.pin("a")
    assert store.clear() == 1 and not store.exists("b")
    store.unpin("a")
    assert store.clear() == 0 and len(store) == 0
    with pytest.raises(penstock.NotFound):
        store.pin("none")


def test_figures(store: penstock.Store) -> None:
    store.put("k", bytes(1000))
    stat = store.stat()
    assert stat.keys == 1 and stat.value_bytes == 1000 and stat.shards == 2
    assert stat.page_bytes * stat.pages == 256 << 20
    assert 0 < store.ping() < 10
    assert store.lane in ("memory", "posix", "tcp")


def test_figures_show_as_a_table(store: penstock.Store) -> None:
    assert "<table>" in store.stat()._repr_html_()
    store.put_many([(f"<b>{i:02}/{j}", bytes(1000 * i)) for i in range(20) for j in range(3)])
    store.put_many({"loose": bytes(5), b"\xff/x": b"", "cache/x": b"1"})
    stat = store.stat()
    prefixes, cut = stat.prefixes()
    assert prefixes[0] == ("<b>19/", 3, 57_000) and ("", 1, 5) in prefixes and len(prefixes) == 23 and not cut
    assert sum(one.size for one in prefixes) == stat.value_bytes
    assert stat.prefixes(10)[1] is True
    shown = stat._repr_html_()
    assert "&lt;b&gt;19/" in shown and "<b>" not in shown and "12 largest of 23" in shown and "256.0 MiB" in shown
    assert "62 keys kept, 1 that may be evicted" in shown
    store.close()
    assert "prefix" not in stat._repr_html_()


def test_every_call_tells_what_it_does() -> None:
    for kind in (penstock.Store, penstock.View, penstock.Reservation, penstock.Node):
        for name in dir(kind):
            if not name.startswith("_") and name not in ("url",):
                assert getattr(kind, name).__doc__, (kind, name)
    assert str(inspect.signature(penstock.Store.get_into)).startswith("(self, /, key, buffer, *, offset=None")


@pytest.mark.parametrize("url, error", [
    ("node://127.0.0.1:1", penstock.Unreachable), ("node+unix:///no/such/socket", penstock.Unreachable),
    ("http://x", penstock.Invalid), ("mem:?dram=lots", penstock.Invalid), ("node://", penstock.Invalid)])
def test_stores_that_do_not_open(url: str, error: type[penstock.Error]) -> None:
    with pytest.raises(error) as caught:
        penstock.open(url, connect_timeout=2)
    assert str(caught.value) and caught.value.result < 0


def test_a_secret_opens_the_door(tmp_path) -> None:
    secret, wrong = support.secret_file(tmp_path / "secret"), support.secret_file(tmp_path / "wrong", "another one\n")
    with support.start_node("--dram", "64M", "--listen", "127.0.0.1:0", "--secret-file", str(secret)) as node:
        with penstock.open(node.tcp, secret_file=secret) as store:
            assert store.put("k", b"v")
        with pytest.raises(PermissionError):
            penstock.open(node.tcp, secret_file=wrong)
        with pytest.raises(penstock.NotAllowed):
            penstock.open(node.tcp)


def test_a_write_with_nothing_before_it_finds_the_next_node(tmp_path) -> None:
    """Who had nothing underway when the node ended has nothing to lose: not "unknown"."""
    socket = str(tmp_path / "socket")
    with support.start_node("--dram", "64M", "--unix", socket) as node:
        store = penstock.open(f"node+unix://{socket}")
        store.put("key", b"value")
        node.kill()
    with store, support.start_node("--dram", "64M", "--unix", socket) as node:
        store.put("key", b"again")
        assert bytes(store.get("key")) == b"again"
        node.stop()
