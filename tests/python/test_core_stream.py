# SPDX-License-Identifier: Apache-2.0
"""Values written bit by bit."""
from __future__ import annotations

import threading

import pytest

import penstock

PART = bytes(range(256)) * 4096


def test_parts_become_one_value_with_the_commit(store: penstock.Store) -> None:
    with store.stream("k", attrs=b"a", checksum=True) as stream:
        assert stream.write(b"head") == 4
        assert stream.write([PART, bytearray(b"x")]) == len(PART) + 1
        for _ in range(3):
            stream.write(memoryview(PART))
        assert not store.exists("k")
        generation = stream.commit()
    assert store.get("k") == b"head" + PART + b"x" + 3 * PART
    stat = store.head("k")
    assert (stat.generation, stat.attrs) == (generation, b"a")


def test_what_is_not_committed_was_never_there(store: penstock.Store) -> None:
    with pytest.raises(RuntimeError, match="^no$"), store.stream("k") as stream:
        stream.write(PART)
        raise RuntimeError("no")
    stream.abort()
    with pytest.raises(ValueError, match="has ended"):
        stream.write(b"x")
    with pytest.raises(ValueError, match="has ended"):
        stream.commit()
    stream = store.stream("k")
    stream.write(PART)
    del stream
    assert not store.exists("k")
    assert store.stat().reservations == 0


def test_the_end_of_a_block_commits(store: penstock.Store) -> None:
    with store.stream("k") as stream:
        stream.write(b"bit ")
        stream.write(b"by bit")
    assert store.get("k") == b"bit by bit"
    with pytest.raises(penstock.Stale), store.stream("k", if_generation=store.head("k").generation) as stream:
        store.put("k", b"other")
    assert store.get("k") == b"other"
    with store.stream("k") as stream:
        stream.write(b"x")
        stream.abort()
    assert store.get("k") == b"other"


def test_an_empty_one(store: penstock.Store) -> None:
    store.stream("k").commit()
    assert store.get("k") == b""


def test_conditions(store: penstock.Store) -> None:
    generation = store.put("k", b"1")
    with pytest.raises(penstock.Exists):
        store.stream("k", if_absent=True)
    stream = store.stream("k", if_generation=generation)
    store.put("k", b"2")
    with pytest.raises(penstock.Stale):
        stream.commit()
    assert store.get("k") == b"2"


def test_one_that_outlives_its_store_s_close(store: penstock.Store) -> None:
    stream = store.stream("k")
    store.close()
    stream.write(PART)
    assert stream.commit() > 0


def test_bad_arguments(store: penstock.Store) -> None:
    with pytest.raises(TypeError, match="key"):
        store.stream(5)
    with store.stream("k") as stream:
        with pytest.raises(TypeError, match="data"):
            stream.write("text")


def test_more_than_the_store_holds(store: penstock.Store) -> None:
    with pytest.raises(penstock.Invalid, match="larger than the store"), store.stream("k") as stream:
        for _ in range(300):
            stream.write(PART)
    with pytest.raises(penstock.Invalid), store.stream("k") as stream:
        with pytest.raises(penstock.Invalid, match="larger than the store"):
            for _ in range(300):
                stream.write(PART)  # nobody heeds it, and still nothing is committed
    assert not store.exists("k")
    store.put("k", PART)


def test_many_at_once(store: penstock.Store) -> None:
    def write(name: str) -> None:
        for _ in range(5):
            with store.stream(name) as stream:
                for _ in range(4):
                    stream.write(PART)
                stream.commit()

    threads = [threading.Thread(target=write, args=(f"k{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get_many([f"k{i}" for i in range(4)]) == [4 * PART] * 4
