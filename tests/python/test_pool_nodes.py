# SPDX-License-Identifier: Apache-2.0
"""Processes that are nodes of a pool: ready when they are open, and gone in order when they close."""
from __future__ import annotations

import asyncio
import contextlib
import itertools
import pathlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import penstock
import pytest
import support
from members import Master, master
from penstock import umbp

VALUE = b"v" * 5000


def node_of(m: Master, **more: penstock.node.Setting) -> penstock.Node:
    return penstock.Node(master=m.address, dram="32M", page_size="64K", listen="127.0.0.1:0", **more)


@pytest.mark.parametrize("place", ["=anywhere", None])
def test_a_node_is_ready_when_it_is_open(tmp_path: pathlib.Path, place: str | None) -> None:
    with master(tmp_path, place=place) as m:
        for turn in range(6):
            config = umbp.UMBPConfig(dram=umbp.UMBPDramConfig(capacity_bytes=32 << 20))
            config.distributed = umbp.UMBPDistributedConfig(
                umbp.UMBPMasterClientConfig(m.address, f"node {turn}", "127.0.0.1"), dram_page_size=65536)
            with umbp.create_umbp_client(config) as client:
                assert client.report_external_kv_blocks([f"{turn}"], umbp.UMBPTierType.HBM), client.failure
                assert client.store.put(f"k{turn}", VALUE) > 0 and client.store.get(f"k{turn}") == VALUE


@pytest.mark.parametrize("place", ["=anywhere", None])
def test_the_only_node_is_replaced(tmp_path: pathlib.Path, place: str | None) -> None:
    """Whoever uses the pool meanwhile goes on. All that might have been evicted is missing, not lost."""
    with master(tmp_path, place=place) as m:
        first = node_of(m, class_="=cache")
        with penstock.open(f"pool://{m.address}") as store:
            store.put("k", VALUE)
            first.close()
            with node_of(m, class_="=cache"):
                store.put("l", VALUE)
                assert store.get("l") == VALUE and not store.exists("k")
            assert m.figures()["partitions_lost"] == 0


def test_what_had_to_last_is_lost_with_the_only_node(tmp_path: pathlib.Path) -> None:
    with master(tmp_path, place=None) as m:
        first = node_of(m)
        with penstock.open(f"pool://{m.address}") as store:
            store.put("k", VALUE)
            first.close()
            with node_of(m):
                store.put("l", VALUE)
                with pytest.raises(penstock.Lost):
                    store.get("k")
                store.forgive()

                def is_missing() -> bool:
                    try:
                        return not store.exists("k")
                    except penstock.Lost:
                        return False

                support.wait_until("the loss is known", is_missing)


def test_one_that_may_come_back_is_waited_for(tmp_path: pathlib.Path) -> None:
    """It left in order, and kept its SSD and its name."""
    same = {"node_id": str(tmp_path / "id"), "ssd": str(tmp_path / "ssd"), "ssd_bytes": "64M", "ssd_segment": "2M"}
    (tmp_path / "ssd").mkdir()
    with master(tmp_path, "--incomplete-ms=1000", place=None) as m:
        with node_of(m, **same), penstock.open(f"pool://{m.address}") as store:
            store.put("k", VALUE, durable=True)
        support.wait_until("it has left", lambda: m.members() == [])
        with node_of(m, **same), penstock.open(f"pool://{m.address}") as store:
            assert store.get("k") == VALUE


@pytest.mark.parametrize("place", [None, "=home:2"])
def test_nodes_come_and_go_while_keys_are_written_and_deleted(tmp_path: pathlib.Path, place: str | None) -> None:
    """Partitions are handed over meanwhile: each write ends well, and what was deleted is not listed."""
    def use(store: penstock.Store, seconds: float) -> None:
        until = time.monotonic() + seconds
        for turn in itertools.count():
            key, value = f"k{turn % 300}", b"v" * (1, 100_000, 1 << 20)[turn % 3]
            generation = store.put(key, value, if_absent=True)
            assert len(store.get(key)) == len(value) and list(store.keys("k")) == [key]
            generation = store.put(key, value, if_generation=generation)
            assert store.delete(key, if_generation=generation)
            assert turn % 5 or list(store.keys("k")) == []
            generation = store.commit({f"c{turn % 50}": value})[f"c{turn % 50}"]  # a commit's keys are one node's
            assert store.head(f"c{turn % 50}").generation == generation
            if turn % 50 == 49:
                assert store.delete_prefix("c") == 50
            if time.monotonic() > until:
                store.delete_prefix("c")
                return

    with contextlib.ExitStack() as stack, master(tmp_path, place=place) as m:
        stack.enter_context(node_of(m, host="a"))
        with penstock.open(f"pool://{m.address}") as store:
            for host in "bc":
                stack.enter_context(node_of(m, host=host))
                use(store, 1.5)
            store.drain(store.nodes()[0])
            use(store, 1.5)


def test_who_leaves_in_order_answers_what_it_was_asked(tmp_path: pathlib.Path) -> None:
    with contextlib.ExitStack() as stack, master(tmp_path, place="=home:2") as m:
        nodes = [stack.enter_context(node_of(m, host=host)) for host in "abcd"]
        stop = threading.Event()

        def write(name: str) -> int:
            with penstock.open(f"pool://{m.address}") as store:
                for turn in itertools.count():
                    store.put(f"{name}/{turn % 50}", VALUE)
                    if stop.is_set():
                        return turn
            raise AssertionError

        def has_copies() -> bool:
            said = m.ask("partitions")
            return bool(said["copies"][2] == said["served"] == 4096)

        with ThreadPoolExecutor() as pool:
            writers = [pool.submit(write, name) for name in "wxyz"]
            try:
                for node in nodes[:2]:
                    support.wait_until("all partitions have their copies", has_copies)
                    node.close()
            finally:
                stop.set()
            assert min(writer.result() for writer in writers) > 0


def test_a_delete_of_what_lies_anywhere_asks_the_nodes_there_are(tmp_path: pathlib.Path) -> None:
    """Also by a client that was open before one of them joined, or left."""
    with master(tmp_path, place="=anywhere:2") as m, node_of(m, host="a"), node_of(m, host="b") as second:
        with penstock.open(f"pool://{m.address}") as early:
            early.put("first", VALUE)
            with node_of(m, host="c"), penstock.open(f"pool://{m.address}") as late:
                keys = [f"k{i}" for i in range(60)]
                for key in keys:
                    late.put(key, VALUE)
                assert all(early.delete(key) for key in keys)
                assert not any(late.exists(key) or early.exists(key) for key in keys)
                for key in keys:
                    early.put(key, VALUE)
                second.close()
                for key in keys:
                    early.delete(key)
                    with pytest.raises(penstock.NotFound):
                        early.get(key)


def test_a_get_finds_what_lies_on_a_node_that_came_later(tmp_path: pathlib.Path) -> None:
    """The client knows another place, which has it no more."""
    with master(tmp_path, place="=anywhere") as m, node_of(m, host="a") as first:
        with penstock.open(f"pool://{m.address}") as early, penstock.open(first.urls[0]) as there:
            early.put("k", VALUE)
            with node_of(m, host="b") as second, penstock.open(second.urls[0]) as here, penstock.open(f"pool://{m.address}") as late:
                assert there.delete("k")
                here.put("k", VALUE)
                support.wait_until("the master has heard of it", lambda: late.exists("k"))
                assert early.get("k") == VALUE


@pytest.mark.parametrize("place", ["=anywhere", "=home"])
def test_who_comes_before_the_first_node_waits_for_it(tmp_path: pathlib.Path, place: str) -> None:
    with master(tmp_path, place=place) as m, penstock.open(f"pool://{m.address}", timeout=30) as store, ThreadPoolExecutor() as pool:
        put, deleted = pool.submit(store.put, "k", VALUE), pool.submit(store.delete, "none")
        got = [pool.submit(store.get, "w", wait=30) for _ in range(3)]
        time.sleep(0.3)
        with node_of(m):
            assert put.result() > 0 and not deleted.result()
            with node_of(m):
                time.sleep(0.3)
                store.put("w", VALUE)
                assert [one.result() for one in got] == [VALUE] * 3


def is_shared(store: penstock.Store) -> bool:
    """Two nodes have their parts of the keys."""
    return len(rows := store.nodes()) == 2 and min(row.primaries + row.copies for row in rows) > 1500


def test_a_stream_whose_key_goes_says_so(tmp_path: pathlib.Path) -> None:
    with contextlib.ExitStack() as stack, master(tmp_path, place=None) as m:
        stack.enter_context(node_of(m))
        with penstock.open(f"pool://{m.address}") as store:
            streams = {f"k{i}": store.stream(f"k{i}") for i in range(40)}
            for stream in streams.values():
                stream.write(b"first")
            stack.enter_context(node_of(m))
            support.wait_until("each has its part", lambda: is_shared(store))
            gone = set()
            for key, stream in streams.items():
                try:
                    stream.commit()
                except penstock.Unreachable as error:
                    assert f"key '{key}': what was written is gone" in str(error)
                    gone.add(key)
            assert 0 < len(gone) < 40 and set(store) == set(streams) - gone


@pytest.mark.parametrize("place", [None, "=home:2"])
def test_a_wait_goes_along_with_its_key(tmp_path: pathlib.Path, place: str | None) -> None:
    with contextlib.ExitStack() as stack, master(tmp_path, place=place) as m:
        stack.enter_context(node_of(m, host="a"))
        store = stack.enter_context(penstock.open(f"pool://{m.address}", timeout=60))
        other = stack.enter_context(penstock.open(f"pool://{m.address}"))

        async def main() -> None:
            waits = [asyncio.ensure_future(store.aio.get(f"k{i}", wait=60)) for i in range(100)]
            await asyncio.sleep(0)
            stack.enter_context(node_of(m, host="b"))
            while not is_shared(store):
                await asyncio.sleep(0.05)
            other.put_many({f"k{i}": b"v" for i in range(100)})
            done, late = await asyncio.wait(waits, timeout=10)
            assert not late and {wait.result() for wait in done} == {b"v"}

        asyncio.run(main())


@pytest.mark.parametrize("place", [None, "=home:2"])
def test_a_watch_goes_along_with_the_pool(tmp_path: pathlib.Path, place: str | None) -> None:
    """Keys that move to a node that joins are no events, nor are their copies; what happens to them there is one."""
    with contextlib.ExitStack() as stack, master(tmp_path, place=place) as m:
        stack.enter_context(node_of(m, host="a"))
        with penstock.open(f"pool://{m.address}") as store, penstock.open(f"pool://{m.address}") as other:
            for i in range(50):
                other.put(f"k{i}", VALUE)
            told: list[penstock.Event] = []
            with store.watch("k") as watch:
                def next_told() -> bool:
                    seen = len(told)
                    while (event := watch.poll()) is not None:
                        told.append(event)
                    return len(told) > seen

                def is_quiet() -> bool:
                    tells = False
                    for _ in range(50):  # more than two of its looks
                        time.sleep(0.05)
                        tells |= next_told()
                    return not tells and is_shared(store)

                stack.enter_context(node_of(m, host="b"))
                support.wait_until("each has its part, and the watch knows", is_quiet)
                assert {event.what for event in told} == {"reset"}
                told.clear()
                for i in range(100):
                    other.put(f"k/{i}", VALUE)
                    other.delete(f"k/{i}")
                support.wait_until("all is told", lambda: next_told() or len(told) >= 200)
                time.sleep(1.5)  # what is left behind goes in a moment
                next_told()
                assert len(store) == 50
                assert sorted((event.key, event.what) for event in told) == sorted(
                    (f"k/{i}".encode(), what) for i in range(100) for what in ("put", "deleted"))


def test_a_mirror_made_of_events_is_right(tmp_path: pathlib.Path) -> None:
    """Also if nobody reads them while their keys go to another node and are written there."""
    with contextlib.ExitStack() as stack, master(tmp_path, place=None) as m:
        for _ in range(2):
            stack.enter_context(node_of(m))
        with penstock.open(f"pool://{m.address}") as store, penstock.open(f"pool://{m.address}") as other:
            support.wait_until("each has its part", lambda: is_shared(other))
            names = [f"k{i}" for i in range(1000)]
            mirror: set[bytes] = set()
            with store.watch("k") as watch:
                other.put_many((name, b"v") for name in names)
                other.drain(other.nodes()[0])
                support.wait_until("one is drained", lambda: other.nodes()[0].state == "drained")
                other.delete_many(names[::2])
                end = time.monotonic() + 4
                while time.monotonic() < end:
                    event = watch.poll()
                    if event is None:
                        time.sleep(0.01)
                    elif event.what == "reset":
                        mirror = {entry.key for entry in store.list("k")}
                    elif event.what == "put":
                        mirror.add(event.key)
                    else:
                        mirror.discard(event.key)
            assert mirror == {entry.key for entry in store.list("k")} and len(mirror) == 500


def test_a_node_that_no_master_takes_says_why(tmp_path: pathlib.Path) -> None:
    with master(tmp_path, f"--secret-file={support.secret_file(tmp_path / 'secret')}") as m:
        with pytest.raises(penstock.NotAllowed, match=f"master {m.address}: .*secret"):
            node_of(m, connect_timeout=0.5)
        m.node.kill()
        with pytest.raises(penstock.Unreachable, match=f"master {m.address}: nothing listens there"):
            node_of(m, connect_timeout=0.5)
    for wrong in (-1, "soon"):
        with pytest.raises((ValueError, TypeError), match="connect_timeout"):
            penstock.Node(dram="16M", listen="127.0.0.1:0", connect_timeout=wrong)  # type: ignore[arg-type]
