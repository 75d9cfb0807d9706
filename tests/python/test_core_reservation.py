# SPDX-License-Identifier: Apache-2.0
"""Values written in several steps, and seen with the commit."""
from __future__ import annotations

import mmap
import pathlib
import threading

import pytest

import penstock
import support

PART = bytes(range(256)) * 4096  # 1 MiB


def test_bytes_come_in_any_order(store: penstock.Store) -> None:
    reservation = store.reserve("k", 3 * len(PART) + 5, depth=2, attrs=b"a")
    assert reservation.nbytes == 3 * len(PART) + 5 and reservation.location
    assert reservation.write(b"tail!", 3 * len(PART)) == 5
    assert reservation.write(PART, offset=0) == len(PART)
    assert reservation.write([memoryview(PART), bytearray(PART)]) == 2 * len(PART)  # behind the last one
    assert not store.exists("k")
    generation = reservation.commit()
    assert store.get("k") == 3 * PART + b"tail!"
    there = store.head("k")
    assert (there.generation, there.attrs, there.depth) == (generation, b"a", 2)
    assert store.stat().reservations == 0


def test_slices_are_filled_like_a_buffer_s(store: penstock.Store) -> None:
    with store.reserve("k", 10) as reservation:
        reservation[2:8] = b"cdefgh"
        reservation[:2] = bytearray(b"ab")
        reservation[-2:] = memoryview(b"ij")
        reservation.commit()
    assert store["k"] == b"abcdefghij"
    with store.reserve("grown") as reservation:
        assert reservation.nbytes is None and reservation.location == ""
        reservation[3:6] = b"def"
        reservation[6:] = b"ghi"
        reservation[:] = b"abc"
        reservation.commit()
    assert store["grown"] == b"abcdefghi"


def test_slices_that_do_not_fit(store: penstock.Store) -> None:
    reservation, grows = store.reserve("k", 10), store.reserve("grown")
    for where in (slice(0, 4), slice(4, 0), slice(8, 20), slice(20, 23), slice(None)):
        with pytest.raises(ValueError, match="3 bytes do not fit"):
            reservation[where] = b"abc"
    with pytest.raises(ValueError, match="without gaps"):
        reservation[::2] = b"abcde"
    with pytest.raises(ValueError, match="no end to count from"):
        grows[-3:] = b"abc"
    with pytest.raises(TypeError, match="slice"):
        reservation[3] = b"a"
    with pytest.raises(TypeError, match="deleted"):
        del reservation[:]
    with pytest.raises(TypeError, match="data"):
        reservation[:3] = "abc"
    reservation[:] = b"0123456789"
    reservation.commit()
    assert store["k"] == b"0123456789"


@pytest.mark.parametrize("nbytes", [0, None])
def test_an_empty_one(store: penstock.Store, nbytes: int | None) -> None:
    store.reserve("k", nbytes).commit()
    assert store["k"] == b""


@pytest.mark.parametrize("nbytes", [3, None])
def test_an_empty_write_beyond_the_end(store: penstock.Store, nbytes: int | None) -> None:
    reservation = store.reserve("k", nbytes)
    reservation.write(b"abc")
    if nbytes is None:
        reservation.write(b"", 100)
    reservation.write(b"", 3)
    reservation.commit()
    assert store["k"] == b"abc"


def test_a_write_that_failed_moves_nothing_on(store: penstock.Store) -> None:
    with store.reserve("k", 8) as reservation:
        reservation.write(b"ab")
        for offset in (None, 5):
            with pytest.raises(penstock.Invalid):
                reservation.write(b"1234567", offset)
        assert reservation.write(b"cdefgh") == 6
    assert store["k"] == b"abcdefgh"
    with store.reserve("grown") as reservation:
        reservation.write(b"ab")
        with pytest.raises(penstock.Invalid):
            reservation.write(b"far", (1 << 63) - 1)
        reservation.write(b"cd")
        reservation[0:1] = b"A"
        reservation.write(b"B")
    assert store["grown"] == b"ABcd" and store.stat().reservations == 0


def test_a_reservation_has_its_key_for_itself(store: penstock.Store) -> None:
    generation = store.put("there", b"1")
    with pytest.raises(penstock.Exists) as there:
        store.reserve("there", 1)
    assert there.value.generation == generation
    with store.reserve("k", 1) as reservation:
        with pytest.raises(penstock.Exists, match="another reservation"):
            store.reserve("k", 1)
        reservation.write(b"a")
        reservation.commit()
    late = store.reserve("there", 1, if_generation=generation)
    store.put("there", b"2")
    late.write(b"x")
    with pytest.raises(penstock.Stale):
        late.commit()
    one, other = (store.reserve("k", 1, replace=True) for _ in range(2))
    one[:], other[:] = b"1", b"2"
    assert other.commit() and one.commit()
    assert store.get_many(["there", "k"]) == [b"2", b"1"]


def test_the_end_of_a_block_commits(store: penstock.Store) -> None:
    with store.reserve("k", 4) as reservation:
        reservation[0:4] = b"head"
    with store.reserve("grown") as reservation:
        reservation.write(PART)
    assert store.get_many(["k", "grown"]) == [b"head", PART] and store.stat().reservations == 0


def test_what_is_not_committed_was_never_there(store: penstock.Store) -> None:
    with store.reserve("k", len(PART)) as reservation:
        reservation.write(PART)
        reservation.abort()
    for use in (lambda: reservation.write(b"x"), reservation.commit, reservation.__enter__, lambda: reservation.__setitem__(slice(1), b"x")):
        with pytest.raises(ValueError, match="has ended"):
            use()
    reservation = store.reserve("k", len(PART))
    del reservation
    with pytest.raises(RuntimeError, match="^no$"), store.reserve("k", 1) as reservation:
        reservation.write(b"x")
        raise RuntimeError("no")
    with pytest.raises(penstock.Invalid), store.reserve("k", 2) as reservation:
        reservation.write(b"x")  # and no more: there is nothing to commit
    reservation = store.reserve("k", 4)
    reservation.write(b"abc")
    with pytest.raises(penstock.Invalid):
        reservation.commit()  # a byte is missing
    with pytest.raises(ValueError, match="has ended"):
        reservation.write(b"d")
    assert not store.exists("k") and store.stat().reservations == 0


def test_many_at_once(store: penstock.Store) -> None:
    sizes = {f"k{i}": i * 1000 for i in range(100)}
    reservations = store.reserve_many(sizes, depth=1)
    for reservation, size in zip(reservations, sizes.values()):
        reservation.write(bytes([size % 251]) * size)
    generations = store.commit_many(iter(reservations))
    assert len(set(generations)) == 100 and store.head("k9").generation == generations[9] and store.head("k9").depth == 1
    assert store.get_many(sizes) == [bytes([size % 251]) * size for size in sizes.values()]
    grown, fixed = store.reserve_many([("grown", None), ("fixed", 1)])
    grown.write(PART)
    fixed.write(b"x")
    store.commit_many((grown, fixed))
    assert store.get_many(["grown", "fixed"]) == [PART, b"x"]
    assert store.reserve_many([]) == [] and store.commit_many([]) == []


def test_all_are_reserved_or_none(store: penstock.Store) -> None:
    store["k2"] = b"there"
    with pytest.raises(penstock.Exists) as error:
        store.reserve_many([(f"k{i}", 10) for i in range(4)])
    assert [result != 0 for result in error.value.results] == [False, False, True, False]
    for wrong in ([("k", 1), "text"], [("k", 1), ("l", -1)], [("k", 1), (5, 1)], [("k", 1, 2)]):
        with pytest.raises((TypeError, ValueError)):
            store.reserve_many(wrong)
    assert store.stat().reservations == 0
    reservations = store.reserve_many([("a", 1), ("b", 1), ("c", 1)])
    reservations[0].write(b"a")
    reservations[2].write(b"c")
    with pytest.raises(penstock.Invalid) as incomplete:
        store.commit_many(reservations)
    assert [result != 0 for result in incomplete.value.results] == [False, True, False]
    assert store.get_many("abc"[i] for i in range(3)) == [b"a", None, b"c"]
    assert store.stat().reservations == 0


def test_reservations_that_cannot_be_committed(store: penstock.Store) -> None:
    reservation = store.reserve("k", 0)
    with penstock.open() as other:
        with pytest.raises(ValueError, match="another store"):
            other.commit_many([reservation])
    for wrong in ([reservation, reservation], [reservation, "text"], [reservation, None]):
        with pytest.raises((TypeError, ValueError)):
            store.commit_many(wrong)
    assert store.commit_many([reservation])  # it was left as it is
    with pytest.raises(ValueError, match="has ended"):
        store.commit_many([reservation])


def test_threads_write_one_reservation(store: penstock.Store) -> None:
    parts = 32
    reservation = store.reserve("k", parts * len(PART))

    def write(first: int) -> None:
        for i in range(first, parts, 4):
            reservation.write(bytes([i]) + PART[1:], i * len(PART))

    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reservation.commit()
    value = store["k"]
    assert len(value) == parts * len(PART)
    assert all(value[i * len(PART):(i + 1) * len(PART)] == bytes([i]) + PART[1:] for i in range(parts))


def test_a_commit_waits_for_no_writer(store: penstock.Store) -> None:
    """It is refused; and nobody writes what is being committed."""
    outcomes: list[object] = []

    def commit() -> None:
        while not outcomes:
            try:
                outcomes.append(reservation.commit())
            except penstock.Invalid:  # between two writes
                outcomes.append(None)
            except ValueError:  # within one
                pass

    for _ in range(20):
        outcomes.clear()
        reservation = store.reserve("k", len(PART), replace=True)
        committing = threading.Thread(target=commit)
        committing.start()
        try:
            for at in range(0, len(PART), 64 << 10):
                reservation.write(PART[at:at + (64 << 10)], at)
        except ValueError as error:
            assert "ends the reservation" in str(error) or "has ended" in str(error)
        committing.join()
        assert outcomes[0] is None or store["k"] == PART
    assert store.stat().reservations == 0


def test_one_that_outlives_its_store_s_close(store: penstock.Store) -> None:
    reservation = store.reserve("k", len(PART))
    store.close()
    reservation.write(PART)
    assert reservation.commit() > 0
    with pytest.raises(penstock.Invalid, match="closed"):
        store.reserve("k", 1)


def test_bad_arguments(store: penstock.Store) -> None:
    for arguments, error in (((5, 1), TypeError), (("k", -1), ValueError), (("k", "1"), TypeError), (("", 1), penstock.Invalid),
                             (("k" * 5000, 1), penstock.Invalid), (("k", 1 << 62), penstock.Invalid)):
        with pytest.raises(error):
            store.reserve(*arguments)
    with store.reserve("k", 4) as reservation:
        for wrong in (b"12345", "text", object()):
            with pytest.raises((penstock.Invalid, TypeError)):
                reservation.write(wrong)
        with pytest.raises(ValueError, match="offset"):
            reservation.write(b"", -1)
        assert reservation.write(b"1234", 0) == 4
        reservation.commit()
    assert store["k"] == b"1234" and store.stat().reservations == 0


def test_more_than_the_store_holds(store: penstock.Store) -> None:
    reservations = []
    with pytest.raises(penstock.NoSpace):
        for i in range(300):
            reservations.append(store.reserve(f"k{i}", len(PART)))
    reservations.clear()
    store["k"] = PART


def test_a_node_that_dies_takes_its_reservations_along(tmp_path: pathlib.Path) -> None:
    socket = str(tmp_path / "socket")
    with support.start_node("--dram", "64M", "--unix", socket) as node:
        store = penstock.open(f"node+unix://{socket}", timeout=2)
        reservation, left = store.reserve("k", 8), store.reserve("left", 8)
        reservation.write(b"1234")
        node.kill()
        for use in (lambda: reservation.write(b"5678"), left.commit):
            with pytest.raises((penstock.Unreachable, penstock.NotFound)):
                use()
    with support.start_node("--dram", "64M", "--unix", socket):
        store["other"] = b""
        with pytest.raises(penstock.NotFound):
            reservation.write(b"5678")
        reservation.abort()
        with store.reserve("k", mmap.PAGESIZE) as reservation:
            reservation[:] = mmap.mmap(-1, mmap.PAGESIZE)
            reservation.commit()
        assert store["k"] == bytes(mmap.PAGESIZE)
