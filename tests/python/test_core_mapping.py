# SPDX-License-Identifier: Apache-2.0
"""A store as a mapping, how it prints, pickles and completes; and values of many pieces, of which one may be bad."""
from __future__ import annotations

import asyncio
import pathlib
import pickle
import subprocess
import sys

import penstock
import pytest
import support

PIECES = [bytes([i % 251]) * (i % 3) for i in range(5000)]  # more than an operation takes, and some are empty
WHOLE = b"".join(PIECES)


def test_the_mapping_s_calls(store: penstock.Store) -> None:
    assert store.get("none", b"d") == b"d" and store.get("none", None) is None and store.get("none", default=7) == 7
    assert store.setdefault("k", [b"a", b"b"]) == b"ab" and store.setdefault("k", b"other") == b"ab"
    store.update({"l": b"1"}, m=b"2")
    store.update([("n", b"3")])
    store.update()
    assert dict(store.items()) == {"k": b"ab", "l": b"1", "m": b"2", "n": b"3"}
    assert list(store.items("m")) == [("m", b"2")] and list(store.values("l")) == [b"1"]
    assert store.pop("k") == b"ab" and "k" not in store and store.pop("k", None) is None
    with pytest.raises(KeyError):
        store.pop("k")
    with pytest.raises(penstock.Invalid):
        store.get("k" * 5000, b"default")  # which is no miss


def test_items_of_any_number_and_size() -> None:
    with penstock.open("mem:?dram=128M") as store:
        store.update({f"{i:05}": b"x" * i for i in range(700)})
        store.update({f"big/{i}": bytes(9 << 20) for i in range(4)})
        found = dict(store.items())
        assert found == {name: store[name] for name in store} and len(found) == 704


def test_one_bad_key_loses_no_value(store: penstock.Store) -> None:
    store.update({"a": b"1", "b": b"22"})
    keys, room = ["a", "", "none", "b"], [bytearray(2) for _ in range(4)]
    calls = {
        "get_many": (lambda: store.get_many(keys), [b"1", None, None, b"22"]),
        "ranges": (lambda: store.get_many(keys[::3], ranges=[(0, 9), (0, 1)]), [None, b"2"]),
        "get_into_many": (lambda: store.get_into_many(keys, room), [1, None, None, 2]),
        "exists_many": (lambda: store.exists_many(keys), [True, False, False, True]),
        "put_many": (lambda: store.put_many([("c", b"3"), ("", b"")]), None),
    }
    for name, (call, values) in calls.items():
        with pytest.raises(penstock.Invalid) as error:
            call()
        assert error.value.values == values if values else error.value.values[1] is None and error.value.values[0] > 0, name

    async def get() -> None:
        with pytest.raises(penstock.Invalid) as error:
            await store.aio.get_many(keys)
        assert error.value.values == [b"1", None, None, b"22"]

    asyncio.run(get())


def test_a_value_of_many_pieces(store: penstock.Store) -> None:
    store.put("k", PIECES)
    store.put_many({"l": PIECES})
    store.commit({"m": PIECES})
    with store.reserve("n", len(WHOLE)) as reservation:
        reservation.write(PIECES)
    with store.stream("o") as stream:
        stream.write(PIECES)
    assert store.get_many(list("klmno")) == [WHOLE] * 5
    rooms = [[bytearray(len(piece)) for piece in PIECES] + [bytearray(9)] for _ in range(3)]
    assert store.get_into("k", rooms[0]) == len(WHOLE)
    assert store.get_into_many(["l", "none"], [rooms[1], bytearray(1)]) == [len(WHOLE), None]

    async def move() -> None:
        await store.aio.put("p", PIECES)
        assert await store.aio.get_into("p", rooms[2]) == len(WHOLE)

    asyncio.run(move())
    for room in rooms:
        assert b"".join(room) == WHOLE + bytes(9)


def test_a_part_into_memory(store: penstock.Store) -> None:
    store.put("k", bytes(range(100)))
    room = bytearray(10)
    assert store.get_into("k", room, offset=20, length=3) == 3 and room == bytes([20, 21, 22]) + bytes(7)
    assert store.get_into("k", room, length=2) == 2 and room[:3] == bytes([0, 1, 22])
    assert store.get_into("k", [memoryview(room)[:1], memoryview(room)[1:]], offset=-5, length=4) == 4
    assert room[:4] == bytes([95, 96, 97, 98])
    with pytest.raises(penstock.Invalid, match="buffer has 10 bytes"):
        store.get_into("k", room, length=11)
    with pytest.raises(penstock.Invalid):
        store.get_into("k", room, offset=95, length=6)


def test_how_things_print(store: penstock.Store) -> None:
    store.put("k", b"v")
    assert repr(store) == f"<penstock.Store {store.url}>"
    reservation, stream, watch = store.reserve("r", 1), store.stream("s\n"), store.watch()
    assert repr(reservation) == f"<penstock.Reservation 'r' of {store.url}>"
    assert repr(stream) == f"<penstock.Stream 's\n' of {store.url}>" and repr(watch) == f"<penstock.Watch of {store.url}>"
    assert repr(store.list()) == f"<penstock.Listing of {store.url}>"
    watch.close()
    reservation.abort()
    assert repr(reservation) == "<penstock.Reservation, ended>" and repr(watch) == "<penstock.Watch, ended>"
    try:
        with store.view("k") as view:
            assert repr(view) == f"<penstock.View of {store.url}>"
        assert repr(view) == "<penstock.View, ended>"
    except penstock.Unsupported:
        pass
    store.close()
    assert repr(store) == f"<penstock.Store {store.url}, closed>"


def test_pickling_by_url(store: penstock.Store) -> None:
    store.put("k", b"v")
    if store.url.startswith("mem:"):
        with pytest.raises(pickle.PicklingError, match="memory"):
            pickle.dumps(store)
        return
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).get('k'))"
    done = subprocess.run([sys.executable, "-B", "-c", code], input=pickle.dumps(store), capture_output=True, check=True,
                          env=support.python_environment())
    assert done.stdout == b"b'v'\n"


def test_paths_and_arguments_are_named(tmp_path: pathlib.Path) -> None:
    socket = tmp_path / "socket"
    (tmp_path / "ssd").mkdir()
    with (penstock.Node(unix=socket, dram="16M", ssd=[tmp_path / "ssd"], ssd_bytes="64M", ssd_segment="2M") as node,
          penstock.open(socket) as store):
        assert repr(node) == f"<penstock.Node node+unix://{socket}>" and store.url == f"node+unix://{socket}"
        store.put("k", b"v", durable=True)
    assert repr(node) == "<penstock.Node closed>"
    with pytest.raises(TypeError, match="url must be"):
        penstock.open(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="secret_file must be"):
        penstock.open(secret_file=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dram must be"):
        penstock.Node(dram=1.5)  # type: ignore[arg-type]


def test_what_completes() -> None:
    assert {"CacheWarning", "Stream", "Watch", "open"} <= set(dir(penstock)) and "errors" not in dir(penstock)
    assert set(penstock.__all__) < set(dir(penstock))
    with penstock.open("mem:?dram=16M") as store:
        names = set(dir(store))
        assert not names & {"move_many", "commit_ops", "drain_id", "reserve_pairs"}
        asynchronous = {name for name in dir(penstock.aio.AsyncStore) if not name.startswith("_")}
        assert {name for name in names if not name.startswith("_")} - asynchronous == {
            "aio", "close", "closed", "copies", "lane", "url"}
