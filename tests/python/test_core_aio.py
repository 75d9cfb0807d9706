# SPDX-License-Identifier: Apache-2.0
"""The store under asyncio."""
from __future__ import annotations

import asyncio
import gc
import os
import pathlib
import subprocess
import sys
import weakref

import pytest

import penstock
import support

LARGE = bytes(range(256)) * (12 << 10)


def test_calls_and_their_results(store: penstock.Store) -> None:
    async def main() -> None:
        aio = store.aio
        assert store.aio is aio
        generation = await aio.put("k", b"value")
        assert await aio.get("k") == b"value"
        assert await aio.get("k", offset=1, length=3) == await aio.get("k", offset=-4, length=3) == b"alu"
        assert await aio.get("k", offset=2) == b"lue" and await aio.get("k", offset=-2) == b"ue"
        assert await aio.get("k", length=2) == b"va"
        room = bytearray(5)
        assert await aio.get_into("k", room) == 5 and room == b"value"
        assert await aio.get_into("k", memoryview(room)[:2], offset=-2) == 2 and room == b"uelue"
        assert await aio.get_into("k", bytearray(0), offset=1) == 0
        await aio.put("large", [LARGE, b"end"])
        for _ in range(2):
            assert await aio.get("large") == LARGE + b"end"
        big = bytearray(len(LARGE) + 3)
        assert await aio.get_into("large", big) == len(big) and big == LARGE + b"end"
        assert await aio.exists("k") is True and await aio.exists("none") is False
        assert (await aio.head("k")).generation == generation
        assert await aio.delete("k") is True and await aio.delete("k") is False
        assert await aio.put_many({"a": b"1", "b": b"2"}, checksum=True) and await aio.get_many(["a", "c"]) == [b"1", None]
        assert await aio.exists_many(["a", "c"]) == [True, False]
        assert [entry.name async for entry in aio.list()] == ["a", "b", "large"]
        assert (await aio.stat()).keys == 3
        assert await aio.delete_many(["a"]) == [True] and await aio.delete_prefix("") == 2
        await aio.put("d", b"", depth=3, attrs=b"x")
        assert (await aio.head("d"))[2:] == (b"x", False, 3)

    asyncio.run(main())


def test_all_that_a_store_can_do(store: penstock.Store) -> None:
    async def main() -> None:
        aio = store.aio
        assert repr(aio) == f"<penstock.AsyncStore of {store.url}>"
        assert await aio.get("none", b"d") == b"d" and await aio.get("none", None, offset=1) is None
        generation = await aio.put("k", bytes(range(10)))
        assert await aio.get("k", if_generation=generation, length=2) == b"\0\1"
        room = bytearray(4)
        assert await aio.get_into("k", room, offset=3, length=2) == 2 and room == b"\3\4\0\0"
        assert await aio.setdefault("l", b"1") == b"1" and await aio.pop("l") == b"1" and await aio.pop("l", 5) == 5
        with pytest.raises(penstock.NotFound):
            await aio.pop("l")
        await aio.update({"a/1": b"1"}, m=b"2")
        assert [key async for key in aio.keys("a/")] == ["a/1"] and [one async for one in aio.values("m")] == [b"2"]
        assert [item async for item in aio.items("a/")] == [("a/1", b"1")]
        await aio.pin("m")
        await aio.unpin("m")
        if not store.url.startswith("pool:"):  # where two keys may belong to two nodes
            assert await aio.commit({"n": b"3"}, deletes=["m"]) and not await aio.exists("m")
        with await aio.stream("s", if_absent=True) as stream:
            stream.write(b"bits")
        with await aio.reserve("r", 2) as reservation:
            reservation.write(b"ab")
        reservations = await aio.reserve_many({"x": 1, "y": 1})
        for one in reservations:
            one.write(b"z")
        assert len(await aio.commit_many(reservations)) == 2 and await aio.get_many(["s", "r", "x"]) == [b"bits", b"ab", b"z"]
        assert await aio.ping() >= 0 and await aio.delete_range("x") == 2
        if store.url.startswith("pool:"):
            assert len(await aio.nodes()) == 2
            await aio.forgive()
        assert await aio.clear() == 0 and len(store) == 0

    asyncio.run(main())


def test_what_begins_at_once_travels_together(store: penstock.Store) -> None:
    async def main() -> None:
        values = {f"k{i}": bytes([i % 256]) * (i * 37) for i in range(300)}
        generations = await asyncio.gather(*(store.aio.put(key, value) for key, value in values.items()))
        assert len(set(generations)) == 300
        assert await asyncio.gather(*(store.aio.get(key) for key in values)) == list(values.values())
        await asyncio.gather(*(store.aio.delete(key) for key in values))

    asyncio.run(main())
    asyncio.run(main())  # another loop
    assert len(store) == 0


def test_batches(store: penstock.Store) -> None:
    async def main() -> None:
        aio = store.aio
        if store.lane != "memory":  # where batches are copies
            await asyncio.get_running_loop().shutdown_default_executor()
        values = {f"k{i}": bytes([i % 256]) * (i * 37) for i in range(500)} | {"large": LARGE}
        generations = await aio.put_many(values)
        assert len(set(generations)) == 501 and store.head("k7").generation == generations[7]
        assert await aio.get_many(values) == list(values.values())
        assert await aio.get_many(["k3", "none", b"k4"]) == [values["k3"], None, values["k4"]]
        assert await aio.get_many(["large", "none", "k9"], ranges=[(5, 4), (0, 1), (-3, 3)]) == [LARGE[5:9], None, b"\t\t\t"]
        rooms = [bytearray(37), bytearray(1), bytearray(2)]
        assert await aio.get_into_many(["k1", "none", "large"], rooms, offsets=[0, 0, -2]) == [37, None, 2]
        assert rooms[0] == values["k1"] and rooms[2] == LARGE[-2:]
        assert await aio.get_into_many(["k1"], [rooms[0]]) == [37]
        several = await asyncio.gather(*(aio.get_many([f"k{i}", "none"]) for i in range(50)), aio.get("k1"))
        assert several == [[values[f"k{i}"], None] for i in range(50)] + [values["k1"]]
        assert await aio.exists_many(["none", *values]) == [False] + [True] * 501
        assert await aio.delete_many(["none", "k1"]) == [False, True] and await aio.put_many([("k1", b"")], if_absent=True)
        assert await aio.get_many([]) == await aio.put_many({}) == []

    asyncio.run(main())


def test_a_failed_batch_tells_each_result(store: penstock.Store) -> None:
    async def main() -> None:
        aio = store.aio
        await aio.put_many([("a", b"12345"), ("b", b"1")])
        for failing, bad in ((aio.put_many([("c", b""), ("a", b""), ("b", b"")], if_absent=True), [False, True, True]),
                             (aio.get_into_many(["b", "none", "a"], [bytearray(3) for _ in range(3)]), [False, True, True]),
                             (aio.get_many(["b", "a", "none"], ranges=[(0, 1), (4, 2), (0, 1)]), [False, True, True]),
                             (aio.exists_many(["a", "l" * 5000]), [False, True])):
            with pytest.raises(penstock.Error) as error:
                await failing
            assert [result != 0 for result in error.value.results] == bad
        assert await aio.get("c") == b""

    asyncio.run(main())


def test_a_wrong_batch_begins_nothing(store: penstock.Store) -> None:
    async def main() -> None:
        aio = store.aio
        there = asyncio.ensure_future(aio.put("there", b"1"))
        await asyncio.sleep(0)
        for wrong in (aio.put_many([("k", b""), ("l", b""), 5]), aio.put_many([("k", b""), ("l", "text")]), aio.get_many(["k", 5]),
                      aio.get_many("text"), aio.get_many(["k"], ranges=[]), aio.get_into_many(["k"], [b"read-only"]),
                      aio.get_into_many(["k", "l"], [bytearray(1)]), aio.delete_many(["there", None]), aio.exists_many(5)):
            with pytest.raises((TypeError, ValueError)):
                await wrong
        await there
        assert await aio.exists_many(["k", "l", "there"]) == [False, False, True]

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_a_cancelled_batch_keeps_its_memory_until_the_end(tmp_path: pathlib.Path, kind: str) -> None:
    class Room(bytearray):
        pass

    async def main(store: penstock.Store, node: support.Node) -> None:
        await store.aio.put_many([(f"k{i}", LARGE) for i in range(3)])
        rooms, value = [Room(len(LARGE)) for _ in range(3)], Room(LARGE)
        gone = weakref.ref(value)
        with node.stopped():
            batches = [asyncio.ensure_future(store.aio.get_into_many(["k0", "k1", "k2"], rooms)),
                       asyncio.ensure_future(store.aio.put_many([("new", value), ("newer", value)]))]
            await asyncio.sleep(0.05)
            for batch in batches:
                batch.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await batch
            del value, batches, batch
            gc.collect()
            kept = gone()
            assert kept is not None
            for room in (*rooms, kept):
                with pytest.raises(BufferError):
                    room.extend(b"x")  # lent out
        del kept, room
        for _ in range(1000):
            await asyncio.sleep(0.01)
            if gone() is None and rooms == [LARGE] * 3:
                break
        assert gone() is None and rooms == [LARGE] * 3
        assert await store.aio.get_many(["new", "newer"]) == [LARGE, LARGE]
        for room in rooms:
            room.extend(b"x")

    socket = str(tmp_path / "socket")
    with support.start_node("--dram", "64M", "--unix", socket, "--listen", "127.0.0.1:0", listeners=2) as node:
        url = f"node+unix://{socket}" if kind == "unix" else f"{node.tcp}?lane=tcp"
        with penstock.open(url, timeout=support.WAIT_S) as store:
            asyncio.run(main(store, node))


def test_errors_are_their_callers_own(store: penstock.Store) -> None:
    async def main() -> None:
        aio = store.aio
        first = await aio.put("k", b"12345")
        outcomes = await asyncio.gather(
            aio.get("none"), aio.get("k"), aio.put("k", b"", if_absent=True), aio.put("k", b"", if_generation=first + 1),
            aio.delete("k", if_generation=first + 1), aio.get_into("k", bytearray(3)), aio.get("k", offset=3, length=9),
            aio.put("l" * 5000, b""), return_exceptions=True)
        kinds = [penstock.NotFound, bytes, penstock.Exists, penstock.Stale, penstock.Stale, penstock.Invalid,
                 penstock.Invalid, penstock.Invalid]
        assert [type(outcome) for outcome in outcomes] == kinds
        assert "'none'" in str(outcomes[0]) and outcomes[3].generation == first
        for wrong in (aio.get(3), aio.put("k", "text"), aio.get_into("k", b"read-only"), aio.put("k", object())):
            with pytest.raises((TypeError, ValueError)):
                await wrong
        assert await aio.get("k") == b"12345"

    asyncio.run(main())


def test_a_cancelled_call_keeps_its_memory_until_the_end(store: penstock.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(penstock.aio, "_WAIT_SLICE_S", 30)

    class Room(bytearray):
        pass

    async def main() -> None:
        room = Room(5)
        gone = weakref.ref(room)
        waiting = asyncio.ensure_future(store.aio.get_into("late", room, wait=30))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        del room, waiting
        gc.collect()
        kept = gone()
        assert kept is not None
        with pytest.raises(BufferError):
            kept.extend(b"x")  # lent out
        await store.aio.put("late", b"12345")
        for _ in range(1000):
            await asyncio.sleep(0.01)
            if kept == b"12345":
                break
        assert kept == b"12345"
        del kept
        for _ in range(1000):
            await asyncio.sleep(0.01)
            if gone() is None:
                break
        assert gone() is None

    asyncio.run(main())


GIVES_UP = """
import asyncio, gc, sys, penstock
async def main(store):
    room = bytearray(5)
    gets = (store.aio.get("none", wait=36000), store.aio.get("none", length=2, wait=36000), store.aio.get("none", offset=2, wait=36000),
            store.aio.get_into("none", room, wait=36000), store.aio.get_into("none", room, length=2, wait=36000))
    for waiting in [asyncio.ensure_future(get) for get in gets]:
        await asyncio.sleep(0.02)
        waiting.cancel()
with penstock.open(sys.argv[1]) as store:
    asyncio.run(main(store))
gc.collect()
"""


def test_a_wait_that_was_given_up_holds_nobody_up(store: penstock.Store) -> None:
    subprocess.run([sys.executable, "-c", GIVES_UP, store.url], check=True, timeout=support.WAIT_S,
                   env=support.python_environment())


def test_a_long_wait_goes_on(store: penstock.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(penstock.aio, "_WAIT_SLICE_S", 0.01)

    async def main() -> None:
        aio, room = store.aio, bytearray(5)
        gets = [aio.get("late", wait=30), aio.get("late", offset=1, wait=30), aio.get_into("late", room, wait=30),
                aio.get("none", None, wait=0.05)]
        waiting = [asyncio.ensure_future(get) for get in gets]
        await asyncio.sleep(0.1)
        await aio.put("late", b"12345")
        assert await asyncio.gather(*waiting) == [b"12345", b"2345", 5, None] and room == b"12345"
        with pytest.raises(penstock.NotFound):
            await aio.get("none", wait=0.05)
        with pytest.raises(penstock.Stale):
            await aio.get("late", if_generation=1, wait=30)
        for wrong, kind in (("1", TypeError), (-1, ValueError), (86401, ValueError), (float("nan"), ValueError)):
            with pytest.raises(kind, match="wait"):
                await aio.get("late", wait=wrong)

    asyncio.run(main())


def test_a_wait_holds_nobody_up(store: penstock.Store) -> None:
    async def main() -> None:
        waiting = [asyncio.ensure_future(store.aio.get(f"late{i}", wait=30)) for i in range(20)]
        await store.aio.put("other", b"o")
        assert await store.aio.get("other") == b"o"
        with pytest.raises(penstock.NotFound):
            await store.aio.get("never", wait=0.05)
        await asyncio.gather(*(store.aio.put(f"late{i}", bytes([i])) for i in range(20)))
        assert await asyncio.gather(*waiting) == [bytes([i]) for i in range(20)]

    asyncio.run(main())


def test_watching(store: penstock.Store) -> None:
    async def main() -> None:
        async def watched() -> list[str]:
            names = []
            async for event in store.aio.watch("w/"):
                names.append(event.name)
                if len(names) == 2:
                    break
            return names

        watching = asyncio.ensure_future(watched())
        for turn in range(1000):
            await store.aio.put(f"w/{turn}", b"")
            await asyncio.sleep(0.01)
            if watching.done():
                break
        first, second = (int(name[2:]) for name in await watching)
        assert second == first + 1

    asyncio.run(main())


def test_closing_with_calls_underway(urls: dict[str, str]) -> None:
    async def main(url: str) -> None:
        store = penstock.open(url, timeout=5)
        waiting = asyncio.ensure_future(store.aio.get("never there", wait=1))
        await asyncio.sleep(0.05)
        store.close()
        with pytest.raises(penstock.Invalid, match="closed"):
            await store.aio.put("k", b"")
        with pytest.raises(penstock.NotFound):
            await waiting

    for url in urls.values():
        asyncio.run(main(url))


def test_a_loop_that_ends_with_calls_underway(store: penstock.Store) -> None:
    async def main() -> None:
        store.aio
        asyncio.ensure_future(store.aio.get("late", wait=0.2))
        await asyncio.sleep(0.01)

    asyncio.run(main())
    gc.collect()
    store.put("k", b"v")
    assert store.get("k") == b"v"


def test_loops_that_have_ended_leave_nothing(store: penstock.Store) -> None:
    async def main() -> None:
        await store.aio.put("k", b"v")
        cut_off = asyncio.ensure_future(store.aio.get("late", wait=0.01))
        await asyncio.sleep(0)
        cut_off.cancel()

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    asyncio.run(main())
    before = descriptors()
    for _ in range(150):
        asyncio.run(main())
    assert descriptors() <= before


def test_a_node_that_dies(tmp_path: pathlib.Path) -> None:
    async def main(store: penstock.Store, node: support.Node) -> None:
        room = bytearray(8 << 20)
        await store.aio.put("k", room)
        asyncio.get_running_loop().call_later(0.1, node.process.kill)
        with pytest.raises(penstock.Unreachable):
            for _ in range(100_000):
                await asyncio.gather(*(store.aio.get_into("k", room) for _ in range(2)))

    with support.start_node("--dram", "64M", "--unix", str(tmp_path / "socket")) as node:
        asyncio.run(main(penstock.open(f"node+unix://{tmp_path}/socket", timeout=2), node))


def test_many_that_wait_for_one_key(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the node answers one session at once: the rest have their turn."""
    monkeypatch.setattr(penstock.aio, "_WAIT_SLICE_S", support.WAIT_S)  # all of them are there at once

    async def main(store: penstock.Store) -> None:
        waiting = [asyncio.create_task(store.aio.get("late", wait=support.WAIT_S)) for _ in range(100)]
        while (await store.aio.stat()).waits < len(waiting):
            await asyncio.sleep(0.01)
        await store.aio.put("late", LARGE)
        assert all(value == LARGE for value in await asyncio.gather(*waiting))

    with support.start_node("--dram=64M", "--shards=1", "--listen=127.0.0.1:0", "--session-requests=16") as node:
        with penstock.open(f"{node.tcp}?lane=tcp", timeout=support.WAIT_S) as store:
            asyncio.run(main(store))
