# SPDX-License-Identifier: Apache-2.0
"""The zarr store: zarr's own suite, and arrays through nodes."""
from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import os
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

zarr = pytest.importorskip("zarr")
np = pytest.importorskip("numpy")
pytest.importorskip("pytest_asyncio")

import support  # noqa: E402
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest  # noqa: E402
from zarr.core.buffer import cpu, default_buffer_prototype  # noqa: E402
from zarr.testing.store import StoreTests  # noqa: E402

import penstock  # noqa: E402
from penstock._places import CacheWarning, shared_store  # noqa: E402
from penstock.zarr import THREADS, PenstockStore  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata")


@pytest.fixture(params=("mem", "unix", "tcp", "pool"))
def url(request: pytest.FixtureRequest, urls: dict[str, str]) -> Iterator[str]:
    """A store without keys, and a handle that keeps `mem:` alive."""
    handle = shared_store(urls[request.param])
    handle.delete_prefix("")
    yield urls[request.param]


class TestZarrsOwn(StoreTests[PenstockStore, cpu.Buffer]):
    store_cls = PenstockStore
    buffer_cls = cpu.Buffer

    @pytest.fixture(params=("", "some/prefix"))
    def store_kwargs(self, url: str, request: pytest.FixtureRequest) -> dict[str, Any]:
        return {"url": url, "prefix": request.param}

    async def set(self, store: PenstockStore, key: str, value: cpu.Buffer) -> None:
        shared_store(store.url).put(store._root + key, value.to_bytes())

    async def get(self, store: PenstockStore, key: str) -> cpu.Buffer:
        return self.buffer_cls.from_bytes(shared_store(store.url).get(store._root + key))

    def test_store_repr(self, store: PenstockStore) -> None:
        assert repr(store) == f"PenstockStore({store.url!r}, {store.prefix!r})"

    def test_store_supports_writes(self, store: PenstockStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: PenstockStore) -> None:
        assert store.supports_listing


def test_hierarchy(url: str) -> None:
    store = PenstockStore(url, "experiment")
    root = zarr.create_group(store, attributes={"title": "t"})
    data = np.arange(60, dtype="f4").reshape(6, 10)
    compressed = root.create_array("deep/inside/compressed", data=data, chunks=(2, 5))
    root.create_array("plain", data=data, chunks=(4, 3), compressors=None)
    assert sorted(root.group_keys()) == ["deep"] and sorted(root.array_keys()) == ["plain"]
    compressed[1:3, ::2] = -1
    again = zarr.open_group(PenstockStore(url, "experiment", read_only=True), mode="r")
    expected = data.copy()
    expected[1:3, ::2] = -1
    assert (again["deep/inside/compressed"][:] == expected).all()
    assert (again["plain"][2:5, 4] == data[2:5, 4]).all()
    assert again.attrs["title"] == "t"
    del root["deep"]
    assert sorted(again) == ["plain"]
    handle = shared_store(url)
    handle.put("experimental", b"another's")
    zarr.create_group(store, overwrite=True)
    assert list(handle.keys()) == ["experiment/zarr.json", "experimental"]


def test_shards_are_read_in_part(url: str) -> None:
    store = PenstockStore(url)
    data = np.random.default_rng(5).integers(0, 1000, (64, 64), "i4")
    array = zarr.create_array(store, name="s", data=data, shards=(32, 32), chunks=(4, 4), compressors=None)
    handle = shared_store(url)
    shard_bytes = handle.head("s/c/0/0").size
    assert shard_bytes > 32 * 32 * 4
    assert (array[5:7, 9:11] == data[5:7, 9:11]).all() and (array[:] == data).all()
    reads: list[tuple[Any, ...]] = []
    ranged = PenstockStore._range
    try:
        PenstockStore._range = lambda self, *what: reads.append(what) or ranged(self, *what)  # type: ignore[method-assign]
        assert (array[0:4, 0:4] == data[0:4, 0:4]).all()
    finally:
        PenstockStore._range = ranged  # type: ignore[method-assign]
    assert len(reads) == 2 and reads[1][2] == 4 * 4 * 4  # the index from the end, and one inner chunk


def test_ranges_beyond_the_end(url: str) -> None:
    store = PenstockStore(url)
    store.set_sync("k", cpu.Buffer.from_bytes(b"0123456789"))
    for request, expected in ((RangeByteRequest(8, 20), b"89"), (RangeByteRequest(20, 30), b""),
                              (OffsetByteRequest(9), b"9"), (OffsetByteRequest(30), b""), (SuffixByteRequest(30), b"0123456789")):
        assert store.get_sync("k", byte_range=request).to_bytes() == expected
    assert store.get_sync("none", byte_range=SuffixByteRequest(1)) is None


def test_chunks_that_are_read_stay_as_they_were(url: str) -> None:
    store = PenstockStore(url)
    store.set_sync("k", cpu.Buffer.from_bytes(b"a" * 100_000))
    chunk = store.get_sync("k")
    store.set_sync("k", cpu.Buffer.from_bytes(b"b" * 100_000))
    store.delete_sync("k")
    assert chunk.to_bytes() == b"a" * 100_000
    store.close()
    assert chunk.to_bytes() == b"a" * 100_000


def test_every_loop_and_thread_may_use_one(url: str) -> None:
    store = PenstockStore(url)

    async def round_trips(name: str) -> None:
        async def one(i: int) -> None:
            value = cpu.Buffer.from_bytes(f"{name} {i}".encode() * 1000)
            await store.set(f"{name}/{i}", value)
            assert (await store.get(f"{name}/{i}", default_buffer_prototype())) == value
        await asyncio.gather(*(one(i) for i in range(50)))

    threads = [threading.Thread(target=asyncio.run, args=(round_trips(f"t{i}"),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(shared_store(url)) == 200


def test_what_goes_out_together_goes_where_it_belongs(urls: dict[str, str]) -> None:
    stores = [PenstockStore(urls["mem"], "one"), PenstockStore(urls["unix"], "two"), PenstockStore(urls["unix"], "three")]

    async def main() -> None:
        await asyncio.gather(*(store.set(f"c/{i}", cpu.Buffer.from_bytes(f"{store.prefix}{i}".encode()))
                               for i in range(50) for store in stores))
        for store in stores:
            assert [(await store.get(f"c/{i}")).to_bytes() for i in range(50)] == [f"{store.prefix}{i}".encode() for i in range(50)]

    asyncio.run(main())
    assert not shared_store(urls["mem"]).exists("two/c/0") and not shared_store(urls["unix"]).exists("one/c/0")


def test_a_put_that_is_refused_holds_up_no_other(url: str) -> None:
    store, value = PenstockStore(url), cpu.Buffer.from_bytes(b"value")

    async def main() -> None:
        for _ in range(2 * THREADS):
            outcomes = await asyncio.wait_for(asyncio.gather(*(store.set(key, value) for key in ("a", "b\ud800", "c")),
                                                             return_exceptions=True), support.WAIT_S)
            assert [type(outcome) for outcome in outcomes] == [type(None), UnicodeEncodeError, type(None)]
        await asyncio.wait_for(store.set("d", value), support.WAIT_S)

    asyncio.run(main())
    assert shared_store(url).get_many(["a", "c", "d"]) == [b"value"] * 3


def test_a_stopped_node_does_not_stop_the_loop(tmp_path: Any) -> None:
    """And a read that is given up does not hurt those that come after it."""
    with support.start_node("--unix", f"{tmp_path}/socket", "--dram", "64M") as node:
        store = PenstockStore(f"node+unix://{tmp_path}/socket", timeout=support.WAIT_S)
        store.set_sync("k", cpu.Buffer.from_bytes(b"value"))

        async def read() -> None:
            with node.stopped():
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(store.get("k"), 0.2)
                ticks = 0
                waiting = asyncio.create_task(store.get("k"))
                for _ in range(10):
                    await asyncio.sleep(0.01)
                    ticks += not waiting.done()
                assert ticks == 10
            assert (await waiting).to_bytes() == b"value"

        asyncio.run(read())


def test_a_node_that_died(tmp_path: Any) -> None:
    with support.start_node("--unix", f"{tmp_path}/socket", "--dram", "64M") as node:
        store = PenstockStore(f"node+unix://{tmp_path}/socket", timeout=1.0)
        array = zarr.create_array(store, name="a", data=np.arange(8), chunks=(2,))
        node.kill()
        with pytest.raises((penstock.Unreachable, penstock.TimedOut)):
            array[:]
    with support.start_node("--unix", f"{tmp_path}/socket", "--dram", "64M"):
        again = zarr.create_array(store, name="a", data=np.arange(8), chunks=(2,))
        assert (again[:] == np.arange(8)).all()


WORKER = """
import pickle, sys
import numpy, zarr
store = pickle.loads(bytes.fromhex(sys.argv[1]))
array = zarr.open_array(store, path="a", mode="r+")
array[:] = array[:] * 2
"""


def test_threads_that_linger_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """However their moments of waiting end: else the interpreter would wait for them without an end."""
    monkeypatch.setattr("penstock.zarr.LINGER_S", 1e-5)
    threads = penstock.zarr._Threads()

    async def ask() -> None:
        for _ in range(500):
            await asyncio.gather(*(threads.call(asyncio.get_running_loop(), lambda: None) for _ in range(7)))

    asyncio.run(ask())
    support.wait_until("no thread lingers", lambda: threads.working == 0)


def test_threads_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks is told, in each loop, and the next one who asks has threads again."""
    threads, start = penstock.zarr._Threads(), threading.Thread.start

    async def ask() -> list[Any]:
        calls = [threads.call(asyncio.get_running_loop(), lambda: 7) for _ in range(6)]
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), support.WAIT_S)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    for _ in range(3):
        with monkeypatch.context() as within:
            within.setattr(threading.Thread, "start", refuse)
            assert {str(outcome) for outcome in asyncio.run(ask())} == {"can't start new thread"}
        assert threads.working == 0 and not threads.waiting
    assert threading.Thread.start is start
    assert asyncio.run(ask()) == [7] * 6


def test_another_process_opens_it_from_its_pickle(urls: dict[str, str]) -> None:
    for kind in ("unix", "tcp"):
        store = PenstockStore(urls[kind], "pickled")
        zarr.create_array(store, name="a", data=np.arange(10), chunks=(3,), overwrite=True)
        subprocess.run([sys.executable, "-c", WORKER, pickle.dumps(store).hex()], check=True, timeout=120,
                       env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        assert (zarr.open_array(store, path="a")[:] == np.arange(10) * 2).all()
    code = WORKER + "\n"
    done = subprocess.run([sys.executable, "-c", code, pickle.dumps(PenstockStore("mem:")).hex()], capture_output=True,
                          text=True, timeout=120, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
    assert done.returncode == 1 and "another one cannot open it" in done.stderr


def test_a_forked_child_opens_its_own(urls: dict[str, str]) -> None:
    store = PenstockStore(urls["unix"], "forked")
    store.set_sync("k", cpu.Buffer.from_bytes(b"value"))
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if asyncio.run(store.get("k")).to_bytes() == b"value" else 1)
        finally:
            os._exit(2)
    end = time.monotonic() + support.WAIT_S
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert done[1] == 0


def test_keys_that_are_none_of_zarr_s(url: str) -> None:
    """Others' keys below the prefix hinder nobody from seeing the hierarchy."""
    store = PenstockStore(url, "experiment")
    root = zarr.create_group(store)
    root.create_array("a", data=np.arange(4))
    for key in (b"experiment/!a/b", b"experiment//y", b"experiment/\xff", b"experiment/d\xff/e"):
        store._handle.put(key, b"1")

    async def names(found: Any) -> list[str]:
        return [name async for name in found]

    assert set(asyncio.run(names(store.list_dir("")))) == {"!a", "a", "zarr.json", "\udcff", "d\udcff"}
    assert set(asyncio.run(names(store.list()))) >= {"!a/b", "/y", "\udcff", "d\udcff/e", "a/zarr.json"}
    assert asyncio.run(names(store.list_prefix("d\udcff"))) == ["d\udcff/e"] == [
        "d\udcff/" + name for name in asyncio.run(names(store.list_dir("d\udcff")))]
    assert not asyncio.run(store.is_empty("d\udcff"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr's, of what is no node
        assert [name for name, _ in root.members(max_depth=None)] == ["a"]


def test_a_cache_prefix_is_warned_of(url: str) -> None:
    with pytest.warns(CacheWarning, match="cache/z/zarr.json"):
        zarr.create_array(PenstockStore(url, "cache/z"), shape=(2,), dtype="i4")


def test_what_is_no_buffer_is_refused(url: str) -> None:
    with pytest.raises(TypeError, match="zarr Buffer"):
        PenstockStore(url).set_sync("k", b"bytes")
