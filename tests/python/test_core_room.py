# SPDX-License-Identifier: Apache-2.0
"""Who goes when there is no room: what may, though something colder cannot; and never what the write itself needs."""
from __future__ import annotations

import pathlib
import time
from typing import Callable

import pytest

import penstock

PAGE = 64 << 10
SMALL = f"mem:?dram=8M&page_size={PAGE}&shards=1&cache=c/"


def ssd(folder: pathlib.Path, size: str) -> str:
    return f"&ssd={folder}/ssd&ssd_bytes={size}&ssd_segment=1M"


@pytest.mark.parametrize("policy", ["chains", "lru"])
def test_cache_values_go_where_the_ssd_is_full(tmp_path: pathlib.Path, policy: str) -> None:
    """The coldest value in memory is one that the SSD does not take any more, and that is never dropped."""
    with penstock.open(f"{SMALL}&policy={policy}{ssd(tmp_path, '16M')}") as store:
        count = 0
        with pytest.raises(penstock.NoSpace):
            for count in range(1000):
                store.put(f"k/{count}", bytes(PAGE))
        for i in range(count - 40, count):
            store.delete(f"k/{i}")
        time.sleep(0.7)  # the SSD is asked again, and has no room
        for i in range(40):
            store.put(f"c/{i}", bytes(PAGE))
        for i in range(12):
            store.put(f"n/{i}", bytes(PAGE))
        assert store.stat().evictions > 0


def test_nothing_goes_for_what_cannot_have_its_pages(tmp_path: pathlib.Path) -> None:
    """With an SSD a write leaves a sixteenth of the pages free, and two, here 10 of 128."""
    with penstock.open(SMALL + ssd(tmp_path, "64M")) as store:
        for i in range(100):
            store.put(f"c/{i}", bytes(PAGE), ttl=3600)
        with pytest.raises(penstock.NoSpace):
            store.put("large", bytes(119 * PAGE))
        assert store.stat().evictions == 0
        store.put("large", bytes(117 * PAGE))
        assert store.stat().evictions > 0


def by_put(store: penstock.Store, value: bytes, generation: int) -> None:
    store.put("c/cold", value, if_generation=generation)


def by_stream(store: penstock.Store, value: bytes, generation: int) -> None:
    with store.stream("c/cold", if_generation=generation) as stream:
        stream.write(value)


def by_reservation(store: penstock.Store, value: bytes, generation: int) -> None:
    reservation = store.reserve("c/cold", len(value), if_generation=generation)
    reservation.write(value)
    reservation.commit()


@pytest.mark.parametrize("quota", ["", "&quota=c/=4M"], ids=["memory", "quota"])
@pytest.mark.parametrize("write", [by_put, by_stream, by_reservation])
def test_others_go_than_what_a_condition_names(write: Callable[[penstock.Store, bytes, int], None], quota: str) -> None:
    with penstock.open(f"{SMALL}&policy=lru{quota}") as store:
        generation = store.put("c/cold", bytes(1 << 20))
        for i in range(3 if quota else 6):
            store.put(f"c/{i}", bytes(1 << 20))
        write(store, b"v" * (1 << 20), generation)
        assert store.get("c/cold") == b"v" * (1 << 20)


def test_an_end_does_not_wait_for_what_was_cleared(tmp_path: pathlib.Path) -> None:
    """A pinned value stays until its pin has ended, and none on the device does: neither a flush nor the end brings it down."""
    store = penstock.open(f"{SMALL}&hbm=host:16M{ssd(tmp_path, '64M')}")
    store.put("k", bytes(4 * PAGE))
    end = time.monotonic() + 60
    while store.stat().hbm_keys == 0:
        assert time.monotonic() < end
        time.sleep(0.01)
    store.pin("k")
    store.clear()
    store.flush()
    store.close()


@pytest.mark.parametrize("shards", [1, 4])
def test_a_quota_is_kept_on_the_ssd_too(tmp_path: pathlib.Path, shards: int) -> None:
    """Values of a cache prefix that lie on the SSD go for new ones, before those in memory."""
    with penstock.open(f"mem:?dram=16M&page_size={PAGE}&shards={shards}&cache=c/&quota=c/=32M{ssd(tmp_path, '128M')}") as store:
        for i in range(1500):
            store.put(f"c/{i}", i.to_bytes(2, "little") * (PAGE // 2))
        stat = store.stat()
        assert stat.ssd_keys > 0 and stat.evictions >= 1500 - 512
        kept = [i for i in range(1500) if store.exists(f"c/{i}")]
        assert len(kept) > 480 and set(range(1450, 1500)) <= set(kept)
        assert [i for i in kept if store.get(f"c/{i}") != i.to_bytes(2, "little") * (PAGE // 2)] == []
        for i in range(600):  # all of it goes to the SSD
            store.put(f"k/{i}", bytes(PAGE))
        for i in range(40):
            store.put(f"c/new/{i}", bytes(PAGE))


def test_a_quota_full_of_what_may_not_go() -> None:
    """In whichever shard that lies."""
    with penstock.open(f"mem:?dram=16M&page_size={PAGE}&shards=2&cache=c/&quota=c/=1M") as store:
        for i in range(16):
            store.put(f"c/{i}", bytes(PAGE))
            store.pin(f"c/{i}")
        for i in range(8):
            with pytest.raises(penstock.NoSpace):
                store.put(f"c/more/{i}", bytes(PAGE))
        store.unpin("c/3")
        for i in range(8):
            store.put(f"c/more/{i}", bytes(PAGE))


@pytest.mark.parametrize(("pages", "page", "size"), [
    (128, PAGE, 8 * PAGE), (128, PAGE, 8 * PAGE - 40_000), (128, PAGE, 7 * PAGE + 20_000), (16, PAGE, PAGE + 20_000),
    (24, PAGE, PAGE), (8, 2 * PAGE, 2 * PAGE + 40_000)])
@pytest.mark.parametrize("other", [PAGE, 30_000, 100])
def test_what_writes_leave_is_enough_to_read_any_value(tmp_path: pathlib.Path, pages: int, page: int, size: int, other: int) -> None:
    """From the SSD, while memory is full of values with an end, which do not leave it."""
    with penstock.open(f"mem:?dram={pages * page}&page_size={page}&shards=1{ssd(tmp_path, '64M')}") as store:
        for i in range(30):
            store.put(f"k/{i}", bytes([i]) * size)
        with pytest.raises(penstock.NoSpace):
            for i in range(100_000):
                store.put(f"t/{i}", bytes(other), ttl=3600)
        assert [i for i in range(30) if store.get(f"k/{i}") != bytes([i]) * size] == []


def test_a_quota_with_many_keys_that_may_not_go(tmp_path: pathlib.Path) -> None:
    """Between those that may: more than are looked at in one go."""
    with penstock.open(f"mem:?dram=32M&page_size={PAGE}&shards=1&cache=c/z/&quota=c/=16M{ssd(tmp_path, '128M')}") as store:
        for i in range(12_000):
            store.put(f"c/a/{i}", b"")
        for i in range(256):
            store.put(f"c/z/{i}", bytes(PAGE))
        for i in range(600):
            store.put(f"k/{i}", bytes(PAGE))
        for i in range(300):
            store.put(f"c/z/new/{i}", bytes(PAGE))
        assert store.stat().evictions == 300


@pytest.mark.parametrize("prefix", ["c", "k"], ids=["cache", "keep"])
@pytest.mark.parametrize("shards", [(1, 4, 2, 8), (2, 11, 1, 3)])
def test_a_full_ssd_whose_shards_become_more(tmp_path: pathlib.Path, prefix: str, shards: tuple[int, ...]) -> None:
    """Each shard needs something to write to, and fewer segments than shards are left."""
    url = f"mem:?dram=32M&page_size={PAGE}&cache=c/{ssd(tmp_path, '40M')}"
    with penstock.open(f"{url}&shards={shards[0]}") as store:
        for i in range(3_000):
            try:
                store.put(f"{prefix}/{i}", bytes(20_000))
            except penstock.NoSpace:
                break
    gone: list[bytes] = []
    for count in shards[1:]:
        with penstock.open(f"{url}&shards={count}") as store:
            keys = [entry.key for entry in store.list(f"{prefix}/")]
            assert not set(gone) & set(keys)
            gone += keys[:100]
            for key in keys[:100]:
                store.delete(key)
            if prefix == "c":
                for i in range(100):
                    store.put(f"c/new/{count}/{i}", bytes(20_000))
            store.flush()
            assert store.stat().ssd_errors == 0
    with penstock.open(f"{url}&shards={shards[0]}") as store:
        for key in [entry.key for entry in store.list("")][::2]:
            store.delete(key)
        store.put("last", bytes(20_000), durable=True)


def test_a_file_of_the_ssd_whose_head_is_damaged(tmp_path: pathlib.Path) -> None:
    """It is counted, and its space is lost until it is deleted."""
    url = f"mem:?dram=32M&page_size={PAGE}&shards=1{ssd(tmp_path, '8M')}"
    penstock.open(url).close()
    files = sorted((tmp_path / "ssd").glob("segment-*"))
    for file in files[1:]:
        with file.open("r+b") as head:
            head.write(b"x" * 8192)
    with penstock.open(url) as store:
        assert store.stat().ssd_corrupt == 7
        with pytest.raises(penstock.Error):
            for i in range(8):
                store.put(f"k/{i}", bytes(500_000), durable=True)
    for file in files[1:]:
        file.unlink()
    with penstock.open(url) as store:
        for i in range(8):
            store.put(f"k/{i}", bytes(500_000), durable=True)
        assert store.stat().ssd_corrupt == 0
