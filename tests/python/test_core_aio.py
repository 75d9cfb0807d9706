"""The store under asyncio."""
from __future__ import annotations

import asyncio
import gc
import os
import pathlib
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


def test_a_cancelled_call_keeps_its_memory_until_the_end(store: penstock.Store) -> None:
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
        await asyncio.sleep(0.1)
        assert gone() is None

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
        waiting = asyncio.ensure_future(store.aio.get("late", wait=1))
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
