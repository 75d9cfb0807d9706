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
    slot = store.reserve("k", 3 * len(PART) + 5, depth=2, attrs=b"a")
    assert slot.nbytes == 3 * len(PART) + 5 and slot.location
    assert slot.write(b"tail!", 3 * len(PART)) == 5
    assert slot.write(PART, offset=0) == len(PART)
    assert slot.write([memoryview(PART), bytearray(PART)]) == 2 * len(PART)  # behind the last one
    assert not store.exists("k")
    generation = slot.commit()
    assert store.get("k") == 3 * PART + b"tail!"
    there = store.head("k")
    assert (there.generation, there.attrs, there.depth) == (generation, b"a", 2)
    assert store.stat().slots == 0


def test_slices_are_filled_like_a_buffer_s(store: penstock.Store) -> None:
    with store.reserve("k", 10) as slot:
        slot[2:8] = b"cdefgh"
        slot[:2] = bytearray(b"ab")
        slot[-2:] = memoryview(b"ij")
        slot.commit()
    assert store["k"] == b"abcdefghij"
    with store.reserve("grown") as slot:
        assert slot.nbytes is None and slot.location == ""
        slot[3:6] = b"def"
        slot[6:] = b"ghi"
        slot[:] = b"abc"
        slot.commit()
    assert store["grown"] == b"abcdefghi"


def test_slices_that_do_not_fit(store: penstock.Store) -> None:
    slot, grows = store.reserve("k", 10), store.reserve("grown")
    for where in (slice(0, 4), slice(4, 0), slice(8, 20), slice(20, 23), slice(None)):
        with pytest.raises(ValueError, match="3 bytes do not fit"):
            slot[where] = b"abc"
    with pytest.raises(ValueError, match="without gaps"):
        slot[::2] = b"abcde"
    with pytest.raises(ValueError, match="no end to count from"):
        grows[-3:] = b"abc"
    with pytest.raises(TypeError, match="slice"):
        slot[3] = b"a"
    with pytest.raises(TypeError, match="deleted"):
        del slot[:]
    with pytest.raises(TypeError, match="data"):
        slot[:3] = "abc"
    slot[:] = b"0123456789"
    slot.commit()
    assert store["k"] == b"0123456789"


@pytest.mark.parametrize("nbytes", [0, None])
def test_an_empty_one(store: penstock.Store, nbytes: int | None) -> None:
    store.reserve("k", nbytes).commit()
    assert store["k"] == b""


def test_a_slot_has_its_key_for_itself(store: penstock.Store) -> None:
    generation = store.put("there", b"1")
    with pytest.raises(penstock.Exists) as there:
        store.reserve("there", 1)
    assert there.value.generation == generation
    with store.reserve("k", 1) as slot:
        with pytest.raises(penstock.Exists, match="another slot"):
            store.reserve("k", 1)
        slot.write(b"a")
        slot.commit()
    late = store.reserve("there", 1, if_generation=generation)
    store.put("there", b"2")
    late.write(b"x")
    with pytest.raises(penstock.Stale):
        late.commit()
    one, other = (store.reserve("k", 1, replace=True) for _ in range(2))
    one[:], other[:] = b"1", b"2"
    assert other.commit() and one.commit()
    assert store.get_many(["there", "k"]) == [b"2", b"1"]


def test_what_is_not_committed_was_never_there(store: penstock.Store) -> None:
    with store.reserve("k", len(PART)) as slot:
        slot.write(PART)
    slot.abort()
    for use in (lambda: slot.write(b"x"), slot.commit, slot.__enter__, lambda: slot.__setitem__(slice(1), b"x")):
        with pytest.raises(ValueError, match="has ended"):
            use()
    slot = store.reserve("k", len(PART))
    del slot
    with pytest.raises(RuntimeError), store.reserve("k", 1) as slot:
        slot.write(b"x")
        raise RuntimeError
    slot = store.reserve("k", 4)
    slot.write(b"abc")
    with pytest.raises(penstock.Invalid):
        slot.commit()  # a byte is missing
    with pytest.raises(ValueError, match="has ended"):
        slot.write(b"d")
    assert not store.exists("k") and store.stat().slots == 0


def test_many_at_once(store: penstock.Store) -> None:
    sizes = {f"k{i}": i * 1000 for i in range(100)}
    slots = store.reserve_many(sizes, depth=1)
    for slot, size in zip(slots, sizes.values()):
        slot.write(bytes([size % 251]) * size)
    generations = store.commit_many(iter(slots))
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
    assert store.stat().slots == 0
    slots = store.reserve_many([("a", 1), ("b", 1), ("c", 1)])
    slots[0].write(b"a")
    slots[2].write(b"c")
    with pytest.raises(penstock.Invalid) as incomplete:
        store.commit_many(slots)
    assert [result != 0 for result in incomplete.value.results] == [False, True, False]
    assert store.get_many("abc"[i] for i in range(3)) == [b"a", None, b"c"]
    assert store.stat().slots == 0


def test_slots_that_cannot_be_committed(store: penstock.Store) -> None:
    slot = store.reserve("k", 0)
    with penstock.open() as other:
        with pytest.raises(ValueError, match="another store"):
            other.commit_many([slot])
    for wrong in ([slot, slot], [slot, "text"], [slot, None]):
        with pytest.raises((TypeError, ValueError)):
            store.commit_many(wrong)
    assert store.commit_many([slot])  # it was left as it is
    with pytest.raises(ValueError, match="has ended"):
        store.commit_many([slot])


def test_threads_write_one_slot(store: penstock.Store) -> None:
    parts = 32
    slot = store.reserve("k", parts * len(PART))

    def write(first: int) -> None:
        for i in range(first, parts, 4):
            slot.write(bytes([i]) + PART[1:], i * len(PART))

    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    slot.commit()
    value = store["k"]
    assert len(value) == parts * len(PART)
    assert all(value[i * len(PART):(i + 1) * len(PART)] == bytes([i]) + PART[1:] for i in range(parts))


def test_a_commit_waits_for_no_writer(store: penstock.Store) -> None:
    """It is refused; and nobody writes what is being committed."""
    outcomes: list[object] = []

    def commit() -> None:
        while not outcomes:
            try:
                outcomes.append(slot.commit())
            except penstock.Invalid:  # between two writes
                outcomes.append(None)
            except ValueError:  # within one
                pass

    for _ in range(20):
        outcomes.clear()
        slot = store.reserve("k", len(PART), replace=True)
        committing = threading.Thread(target=commit)
        committing.start()
        try:
            for at in range(0, len(PART), 64 << 10):
                slot.write(PART[at:at + (64 << 10)], at)
        except ValueError as error:
            assert "ends the slot" in str(error) or "has ended" in str(error)
        committing.join()
        assert outcomes[0] is None or store["k"] == PART
    assert store.stat().slots == 0


def test_one_that_outlives_its_store_s_close(store: penstock.Store) -> None:
    slot = store.reserve("k", len(PART))
    store.close()
    slot.write(PART)
    assert slot.commit() > 0
    with pytest.raises(penstock.Invalid, match="closed"):
        store.reserve("k", 1)


def test_bad_arguments(store: penstock.Store) -> None:
    for arguments, error in (((5, 1), TypeError), (("k", -1), ValueError), (("k", "1"), TypeError), (("", 1), penstock.Invalid),
                             (("k" * 5000, 1), penstock.Invalid), (("k", 1 << 62), penstock.Invalid)):
        with pytest.raises(error):
            store.reserve(*arguments)
    with store.reserve("k", 4) as slot:
        for wrong in (b"12345", "text", object()):
            with pytest.raises((penstock.Invalid, TypeError)):
                slot.write(wrong)
        with pytest.raises(ValueError, match="offset"):
            slot.write(b"", -1)
        assert slot.write(b"1234", 0) == 4
        slot.commit()
    assert store["k"] == b"1234" and store.stat().slots == 0


def test_more_than_the_store_holds(store: penstock.Store) -> None:
    slots = []
    with pytest.raises(penstock.NoSpace):
        for i in range(300):
            slots.append(store.reserve(f"k{i}", len(PART)))
    slots.clear()
    store["k"] = PART


def test_a_node_that_dies_takes_its_slots_along(tmp_path: pathlib.Path) -> None:
    socket = str(tmp_path / "socket")
    with support.start_node("--dram", "64M", "--unix", socket) as node:
        store = penstock.open(f"node+unix://{socket}", timeout=2)
        slot, left = store.reserve("k", 8), store.reserve("left", 8)
        slot.write(b"1234")
        node.kill()
        for use in (lambda: slot.write(b"5678"), left.commit):
            with pytest.raises((penstock.Unreachable, penstock.NotFound)):
                use()
    with support.start_node("--dram", "64M", "--unix", socket):
        store["other"] = b""
        with pytest.raises(penstock.NotFound):
            slot.write(b"5678")
        slot.abort()
        with store.reserve("k", mmap.PAGESIZE) as slot:
            slot[:] = mmap.mmap(-1, mmap.PAGESIZE)
            slot.commit()
        assert store["k"] == bytes(mmap.PAGESIZE)
