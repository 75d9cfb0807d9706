# SPDX-License-Identifier: Apache-2.0
"""A node that keeps its values comes back, with keys at other shards, to handles that stay open."""
from __future__ import annotations

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator

import penstock
import pytest
import support
from members import master, member

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


NAMES = [f"{i:0200}" for i in range(3000)]  # more than a page


def with_ssd(folder: pathlib.Path) -> list[str]:
    """Each node with these options has other keys at each shard: only the values outlive it."""
    return ["--dram", "64M", "--page-size", "64K", "--shards", "2", "--ssd", f"{folder}/ssd", "--ssd-bytes", "64M",
            "--ssd-segment", "2M"]


def test_a_listing_goes_on_with_keys_at_other_shards(tmp_path: pathlib.Path) -> None:
    node = support.start_node("--unix", f"{tmp_path}/socket", *with_ssd(tmp_path))
    try:
        with penstock.open(f"node+unix://{tmp_path}/socket", timeout=support.WAIT_S) as store:
            store.put_many([(name, b"x") for name in NAMES], durable=True)
            for _ in range(3):
                listing = store.list()
                first = next(listing)
                node.stop()
                node = support.start_node("--unix", f"{tmp_path}/socket", *with_ssd(tmp_path))
                assert [entry.name for entry in (first, *listing)] == NAMES
        node.stop()
    finally:
        node.kill()


def test_a_listing_of_a_pool_goes_on_with_keys_at_other_shards(tmp_path: pathlib.Path) -> None:
    """Without a master: nobody says that the node came back."""
    with contextlib.ExitStack() as ends, master(tmp_path, place="=home") as m:
        node = member(m, *with_ssd(tmp_path))
        port = node.ports()[0]
        ends.callback(lambda: node.kill())
        with penstock.open(f"pool://{m.address}", timeout=support.WAIT_S) as store:
            support.wait_until("it has all partitions", lambda: m.ask("partitions")["served"] == 4096)
            store.put_many([(name, b"x") for name in NAMES], durable=True)
            m.node.kill()
            for _ in range(3):
                listing = store.list()
                first = next(listing)
                node.kill()
                node = support.start_node(f"--listen=127.0.0.1:{port}", f"--master={m.address}", *with_ssd(tmp_path))
                assert [entry.name for entry in (first, *listing)] == NAMES
