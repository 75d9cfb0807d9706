# SPDX-License-Identifier: Apache-2.0
"""What a flush promises: a crash undoes no write that had ended before it began, whatever is written meanwhile."""
from __future__ import annotations

import contextlib
import pathlib
import threading
from typing import Callable, Iterator

import pytest

import penstock
import support


def node(folder: pathlib.Path, fault: str = "") -> support.Node:
    return support.start_node("--unix", f"{folder}/socket", "--shards=1", "--dram=64M", "--page-size=64K", f"--ssd={folder}/ssd",
                              "--ssd-bytes=128M", "--ssd-segment=2M", environment={"PENSTOCK_FAULTS": fault},
                              within=support.faulty() if fault else ())


@contextlib.contextmanager
def writing(url: str, key: str, size: int, ttl: float = 0) -> Iterator[Callable[[], int]]:
    """Another client overwrites the key all the time, by numbers; until the node goes. Yields what tells the last one."""
    count, ends = 0, False

    def write() -> None:
        nonlocal count
        with penstock.open(url) as writer, contextlib.suppress(penstock.Error):  # of the one that the crash meets
            while not ends:
                writer.put(key, str(count + 1).encode().ljust(size), **({"ttl": ttl} if ttl else {}))
                count += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        support.wait_until("it is written", lambda: count > 10)
        yield lambda: count
    finally:
        ends = True
        thread.join()


def overwritten(folder: pathlib.Path, durable: bool, size: int, other: int) -> tuple[int, int]:
    """The number that a key had before a flush, and which it has after the crash behind it."""
    url = f"node+unix://{folder}/socket"
    with node(folder) as first:
        with penstock.open(url) as store:
            for i in range(400):
                store.put(f"a/{i}", bytes(other))
            store.put("z/key", b"0".ljust(size), durable=durable)
            with writing(url, "z/key", size) as count:
                before = count()
                store.flush()
                first.kill()
    with node(folder) as second, penstock.open(url) as store:
        value = store.get("z/key") if store.exists("z/key") else b"-1"
        second.stop()
    return before, int(value)


@pytest.mark.parametrize(("size", "other"), [(10, 65536), (10, 100), (100_000, 65536)])
@pytest.mark.parametrize("durable", [True, False])
def test_a_key_that_is_written_all_the_time(tmp_path: pathlib.Path, durable: bool, size: int, other: int) -> None:
    before, after = overwritten(tmp_path, durable, size, other)
    assert after >= before


def test_what_values_with_an_end_have_overwritten(tmp_path: pathlib.Path) -> None:
    """They do not outlive the node, and what was durable before them does not come back."""
    url = f"node+unix://{tmp_path}/socket"
    for _ in range(5):
        with node(tmp_path) as first, penstock.open(url) as store:
            for i in range(2000):
                store.put(f"a/{i}", bytes(1000))
            store.put("z/key", b"0", durable=True)
            with writing(url, "z/key", 10, ttl=3600):
                store.flush()
                first.kill()
        with node(tmp_path) as second, penstock.open(url) as store:
            assert not store.exists("z/key")
            second.stop()


def test_what_a_cleared_value_has_overwritten(tmp_path: pathlib.Path) -> None:
    """It stays until its pin ends, and then nothing of it is there."""
    url = f"node+unix://{tmp_path}/socket"
    with node(tmp_path) as first, penstock.open(url) as store:
        store.put("z/key", b"0", durable=True)
        store.put("z/key", b"1")
        store.pin("z/key")
        store.clear()
        store.flush()
        first.kill()
    with node(tmp_path) as second, penstock.open(url) as store:
        assert not store.exists("z/key")
        second.stop()


@pytest.mark.parametrize("fault", ["disk_write_eio", "disk_write_enospc"])
def test_a_flush_that_says_ok_although_writes_failed(tmp_path: pathlib.Path, fault: str) -> None:
    """Of a value that was overwritten meanwhile, too: then the log has what is there now. And files that failed are tried
    again when no others are left: at the end of each life a flush has room."""
    url, flushed = f"node+unix://{tmp_path}/socket", 0
    for life in range(24):
        before = -1
        with node(tmp_path, f"seed={life},{fault}:per_million=300000") as first:
            with penstock.open(url) as store:
                store.put("z/key", b"0".ljust(2_000_000))
                with writing(url, "z/key", 2_000_000) as count:
                    for _ in range(life % 5 + 1):
                        now = count()
                        with contextlib.suppress(penstock.Error):
                            store.flush()
                            before, flushed = now, flushed + 1
                    first.kill()
        with node(tmp_path) as second, penstock.open(url) as store:
            assert (int(store.get("z/key")) if store.exists("z/key") else -1) >= before
            store.delete("z/key")
            store.flush()
            second.stop()
    assert flushed > 10


def test_durable_puts_of_a_key_that_is_written_all_the_time(tmp_path: pathlib.Path) -> None:
    """Each writes its own value, and not what comes behind it for as long as there is something."""
    url, count, size = f"node+unix://{tmp_path}/socket", 20, 1 << 20
    with node(tmp_path) as first, penstock.open(url) as store, writing(url, "z/key", size), writing(url, "z/key", size):
        before = store.stat().ssd_appended_bytes
        for _ in range(count):
            store.put("z/key", b"0".ljust(size), durable=True)
        assert store.stat().ssd_appended_bytes - before < 3 * count * size
        first.kill()


@pytest.mark.parametrize("ends", [True, False])
def test_pinned_values_of_the_device(tmp_path: pathlib.Path, ends: bool) -> None:
    """They are more than memory takes at once, and none of them may leave it."""
    url = f"mem:?dram=32M&page_size=64K&shards=1&hbm=host:96M&ssd={tmp_path}/ssd&ssd_bytes=256M&ssd_segment=4M"
    with penstock.open(url) as store:
        for i in range(80):
            store.put(f"k/{i}", bytes([i]) * (1 << 20))
            support.wait_until("it is on the device", lambda: store.stat().hbm_keys > i)
            store.pin(f"k/{i}")
        if not ends:
            store.flush()
            assert store.stat().hbm_keys == 80
            assert store.get("k/0") == bytes(1 << 20)
    with penstock.open(url) as store:
        assert [i for i in range(80) if store.get(f"k/{i}") != bytes([i]) * (1 << 20)] == []
