# SPDX-License-Identifier: Apache-2.0
"""A node that keeps its memory comes back, with other shards, to handles that stay open."""
from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator

import penstock
import pytest
import support

KEYS = 64


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """A folder in a tmpfs, for arenas and socket."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="penstock-keep-") as path:
        yield pathlib.Path(path)


def start(folder: pathlib.Path, shards: int) -> support.Node:
    return support.start_node("--unix", f"{folder}/socket", "--folder", str(folder), "--keep", "warm", "--dram", "32M",
                              "--page-size", "64K", "--shards", str(shards))


def value(i: int) -> bytes:
    return bytes([i]) * (100 + 1000 * i)


def test_no_key_is_missed(folder: pathlib.Path) -> None:
    """What was on its way to a shard is asked again where its key is now."""
    node = start(folder, 1)
    try:
        with penstock.open(f"node+unix://{folder}/socket", timeout=support.WAIT_S) as store:
            for i in range(KEYS):
                store.put(f"k{i}", value(i))
            held = store.view("k63")
            for round, shards in enumerate((4, 3, 1, 4, 2, 4, 1, 3)):
                node.kill()
                node = start(folder, shards)
                with store.view(f"k{round}") as view:  # the first thing that the new node is asked
                    assert bytes(view) == value(round)
                assert all(bytes(store.get(f"k{i}")) == value(i) for i in range(KEYS))
            assert bytes(held) == value(63)  # it has been there all the time
            held.release()
            node.kill()
            node = start(folder, 2)
            assert store.delete_prefix("k") == KEYS
            assert [entry.key for entry in store.list()] == []
        node.stop()
    finally:
        node.kill()


def test_a_listing_goes_on_with_other_shards(folder: pathlib.Path) -> None:
    node = start(folder, 1)
    try:
        with penstock.open(f"node+unix://{folder}/socket", timeout=support.WAIT_S) as store:
            for i in range(3000):  # more than a page
                store.put(f"{i:0200}", b"x")
            for shards in (1, 3, 1):
                listing = store.list()
                first = next(listing)
                node.kill()
                node = start(folder, shards)
                assert [entry.name for entry in (first, *listing)] == [f"{i:0200}" for i in range(3000)]
        node.stop()
    finally:
        node.kill()
