# SPDX-License-Identifier: Apache-2.0
"""LMCache's own classes on CPU, with penstock behind them: its remote backend, and its L2 adapter for native connectors."""
from __future__ import annotations

import asyncio
import importlib.util
import os
import pathlib
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import penstock
import pytest
import support
from members import master, member

torch = pytest.importorskip("torch", reason="torch is not installed")
if importlib.util.find_spec("lmcache") is None:
    pytest.skip("lmcache is not installed", allow_module_level=True)

import lmcaches  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(lmcaches.OURS))

from lmcache.v1.distributed.api import ObjectKey  # noqa: E402
from lmcache.v1.distributed.l2_adapters.native_plugin_l2_adapter import (  # noqa: E402
    NativePluginL2AdapterConfig, _create_native_plugin_l2_adapter)
from lmcache.v1.memory_management import MemoryFormat  # noqa: E402
from lmcache.v1.protocol import RemoteMetadata  # noqa: E402
from penstock_engines import pages  # noqa: E402
from penstock_engines.lmcache import PenstockNativeConnector  # noqa: E402

TOKENS, LAYERS, HEADS, DIM = 16, 3, 2, 8
COUNT = 9

PATIENT = ("--member-ttl-ms=10000", "--lease-ms=3000", "--lease-margin-ms=1000", "--incomplete-ms=500")


class Engine(lmcaches.Engine):
    """One with small chunks, of so many layers."""

    def __init__(self, url: str, *, layers: int = LAYERS, **more: Any) -> None:
        super().__init__(url, lmcaches.Shape(TOKENS, layers, HEADS, DIM), **more)


@pytest.fixture
def node() -> Iterator[support.Node]:
    with support.start_node("--dram", "256M", "--listen", "127.0.0.1:0", "--class", "lmcache=cache") as node:
        yield node


def url_of(node: support.Node) -> str:
    return node.tcp.replace("node://", "penstock://") + "?lane=tcp"


@pytest.mark.parametrize("more", [{}, {"save_chunk_meta": False}])
def test_chunks_come_back(node: support.Node, more: dict[str, Any]) -> None:
    engine, other = Engine(url_of(node), **more), Engine(url_of(node), **more)
    keys, objects = [engine.key(i) for i in range(COUNT)], engine.pages(COUNT)
    assert engine.backend.batched_contains(keys) == 0
    engine.put(keys, objects)
    assert other.backend.batched_contains([*keys, other.key(99)]) == COUNT
    assert other.backend.contains(keys[3]) and not other.backend.contains(other.key(99))
    found = other.backend.batched_get_blocking([keys[0], other.key(99), *keys[1:]])
    assert found.pop(1) is None
    for ours, theirs in zip(objects, found, strict=True):
        assert theirs.tensor.dtype == torch.bfloat16 and torch.equal(ours.tensor, theirs.tensor)
    alone = other.backend.get_blocking(keys[2])
    assert torch.equal(alone.tensor, objects[2].tensor)
    assert other.backend.remove(keys[2]) and not engine.backend.contains(keys[2])
    for engine_of in (engine, other):
        engine_of.close()


@pytest.mark.parametrize("more", [{}, {"save_chunk_meta": False}])
def test_part_of_a_chunk(node: support.Node, more: dict[str, Any]) -> None:
    engine = Engine(url_of(node), **more)
    part, = engine.pages(1, tokens=5)
    engine.put([engine.key(0)], [part])
    back = engine.backend.get_blocking(engine.key(0))
    assert back.tensor.shape == part.tensor.shape and torch.equal(back.tensor, part.tensor)
    engine.close()


def test_prefix_without_waiting(node: support.Node) -> None:
    engine = Engine(url_of(node))
    keys, objects = [engine.key(i) for i in range(COUNT)], engine.pages(COUNT)
    engine.put([*keys[:4], *keys[5:]], [*objects[:4], *objects[5:]])
    before = engine.used()

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, engine.loop).result(30)
    assert run(engine.backend.batched_async_contains("a", keys)) == 4
    found = run(engine.backend.batched_get_non_blocking("a", keys))
    assert [torch.equal(a.tensor, b.tensor) for a, b in zip(objects, found)] == [True] * 4 and len(found) == 4
    for one in found:
        one.ref_count_down()
    assert engine.used() == before  # what lay behind the gap was given back
    engine.close()


def test_other_settings_share_nothing(node: support.Node) -> None:
    engines = [Engine(url_of(node)), Engine(url_of(node), model="another/model"), Engine(url_of(node), dtype=torch.float16),
               Engine(url_of(node), layers=LAYERS + 1), Engine(url_of(node), worker=1)]
    for number, engine in enumerate(engines):
        assert not engine.backend.contains(engine.key(0))
        engine.put([engine.key(0)], kept := engine.pages(1, seed=number))
        assert torch.equal(engine.backend.get_blocking(engine.key(0)).tensor, kept[0].tensor)
    for engine in engines:
        engine.close()


def test_chunks_that_are_none(node: support.Node) -> None:
    engine = Engine(url_of(node))
    whole, = engine.pages(1)
    engine.put([engine.key(0)], [whole])
    before = engine.used()
    with penstock.open(node.tcp) as store:
        name, = store.keys("lmcache/")
        assert name == f"lmcache/KV_2LTD.2x{LAYERS}x{TOKENS}x{HEADS * DIM}.bfloat16/{engine.key(0).to_string()}"
        good = store[name]
        for bad in (b"", b"x", good[:-1], good + b"x", bytes(len(good)), good[:4] + b"\xff" + good[5:], b"\xff" * len(good)):
            store[name] = bad
            assert engine.backend.get_blocking(engine.key(0)) is None
        assert engine.used() == before
        store[name] = good
    assert torch.equal(engine.backend.get_blocking(engine.key(0)).tensor, whole.tensor)
    engine.close()


def head_of(*shape: int, length: int) -> bytes:
    fmt = MemoryFormat.KV_2LTD if len(shape) == 4 else MemoryFormat.KV_T2D
    return RemoteMetadata(length, [torch.Size(shape)], [torch.bfloat16], fmt).serialize()


def test_chunks_whose_shape_is_not_their_length(node: support.Node) -> None:
    engine = Engine(url_of(node))
    engine.put([engine.key(0)], engine.pages(1))
    before = engine.used()
    size = 2 * LAYERS * TOKENS * HEADS * DIM * 2
    with penstock.open(node.tcp) as store:
        name, = store.keys("lmcache/")
        for tokens, length in ((TOKENS, size // 2), (5, size), (5, size // 2), (0, size), (-TOKENS, size), (1 << 30, size)):
            store[name] = head_of(2, LAYERS, tokens, HEADS * DIM, length=length) + bytes(length)
            assert engine.backend.get_blocking(engine.key(0)) is None
            assert engine.used() == before
    engine.close()


def test_layers_larger_than_a_chunk_are_none(node: support.Node) -> None:
    engine = Engine(url_of(node), layerwise=True)
    layer = engine.memory.allocate(torch.Size([TOKENS, 2, HEADS * DIM]), torch.bfloat16, MemoryFormat.KV_T2D)
    layer.tensor.copy_(torch.randn(layer.tensor.shape))
    engine.put([engine.key(0)], [layer])
    before, size = engine.used(), TOKENS * 2 * HEADS * DIM * 2
    back = engine.backend.get_blocking(engine.key(0))
    assert torch.equal(back.tensor, layer.tensor)
    back.ref_count_down()
    with penstock.open(node.tcp) as store:
        name, = store.keys("lmcache/")
        for tokens, length in ((TOKENS, size // 2), (-TOKENS, size), (1 << 30, size), (1 << 20, size << 16)):
            store[name] = head_of(tokens, 2, HEADS * DIM, length=length) + bytes(min(length, size))
            assert engine.backend.get_blocking(engine.key(0)) is None
            assert engine.used() == before
    engine.close()


def test_a_batch_that_fails_gives_its_memory_back(node: support.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(url_of(node))
    keys = [engine.key(i) for i in range(COUNT)]
    engine.put(keys, engine.pages(COUNT))
    before, allocate, taken = engine.used(), engine.memory.allocate, []

    def failing(*given: Any) -> Any:
        if len(taken) == COUNT - 1:
            raise RuntimeError("no more")
        taken.append(allocate(*given))  # held, for LMCache gives back what is collected as garbage
        return taken[-1]
    monkeypatch.setattr(engine.memory, "allocate", failing)
    with pytest.raises(RuntimeError, match="no more"):
        asyncio.run_coroutine_threadsafe(engine.backend.connection.batched_get(keys), engine.loop).result(30)
    assert engine.used() == before
    engine.close()


OTHER = """
import sys
sys.path[:0] = {paths!r}
from test_integration_lmcache import COUNT, Engine
engine = Engine({url!r})
engine.put([engine.key(i) for i in range(COUNT)], engine.pages(COUNT, seed=7))
engine.close()
"""


def test_two_processes_and_a_killed_node_of_a_pool(tmp_path: pathlib.Path) -> None:
    with master(tmp_path, *PATIENT) as m, member(m, "--class", "lmcache=cache") as one, \
            member(m, "--class", "lmcache=cache") as two:
        m.has(2)
        paths = [str(ROOT / "tests/python"), str(ROOT / "tests/lib"), str(support.BUILD / "python")]
        subprocess.run([sys.executable, "-c", OTHER.format(paths=paths, url=f"pool://{m.address}")], check=True, timeout=120,
                       stdin=subprocess.DEVNULL, env=dict(os.environ))
        engine = Engine(f"pool://{m.address}")
        keys, wanted = [engine.key(i) for i in range(COUNT)], engine.pages(COUNT, seed=7)
        assert engine.backend.batched_contains(keys) == COUNT
        for ours, theirs in zip(wanted, engine.backend.batched_get_blocking(keys), strict=True):
            assert torch.equal(ours.tensor, theirs.tensor)
            theirs.ref_count_down()
        engine.put([engine.key(100 + i) for i in range(COUNT)], wanted)
        one.kill()
        found = engine.backend.batched_get_blocking([*keys, *(engine.key(100 + i) for i in range(COUNT))])
        for ours, theirs in zip([*wanted, *wanted], found, strict=True):
            assert theirs is None or torch.equal(ours.tensor, theirs.tensor)
        assert None in found  # the node had some of them
        engine.close()
        two.stop()


def test_killed_node(node: support.Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "CALL_S", 1.0)
    engine = Engine(url_of(node))
    keys, objects = [engine.key(i) for i in range(COUNT)], engine.pages(COUNT)
    engine.put(keys, objects)
    before = engine.used()
    node.kill()
    assert engine.backend.batched_get_blocking(keys) == [None] * COUNT
    assert engine.backend.batched_contains(keys) == 0 and not engine.backend.contains(keys[0])
    engine.put(keys, objects)
    assert engine.used() == before
    assert len([record for record in caplog.records if record.name == "penstock.engines"]) == 1
    engine.close()


def test_gives_up_while_a_transfer_is_underway(node: support.Node) -> None:
    """LMCache cancels what takes too long: memory must not be given back while the node may still write to it."""
    engine = Engine(url_of(node))
    keys, objects = [engine.key(i) for i in range(COUNT)], engine.pages(COUNT)
    engine.put(keys, objects)
    before = engine.used()
    with node.stopped():
        work = asyncio.run_coroutine_threadsafe(engine.backend.connection.batched_get(keys), engine.loop)
        support.wait_until("memory is taken", lambda: engine.used() > before)
        work.cancel()
        time.sleep(0.2)
        assert engine.used() > before
    support.wait_until("memory is given back", lambda: engine.used() == before)
    engine.close()


# ---- the native connector


def key_of(number: int) -> Any:
    return ObjectKey(chunk_hash=number.to_bytes(8, "big"), model_name="a/model", kv_rank=0)


def ends(fd: int) -> None:
    assert select.select([fd], [], [], 30)[0]
    os.eventfd_read(fd)


def test_native_adapter(node: support.Node) -> None:
    config = NativePluginL2AdapterConfig.from_dict({
        "type": "native_plugin", "module_path": "penstock_engines.lmcache", "class_name": "PenstockNativeConnector",
        "adapter_params": {"url": url_of(node)}})
    adapter, engine = _create_native_plugin_l2_adapter(config), Engine(url_of(node))
    keys, objects, rooms = [key_of(i) for i in range(COUNT)], engine.pages(COUNT), engine.pages(COUNT + 1, seed=5)
    adapter.submit_store_task(keys, objects)
    ends(adapter.get_store_event_fd())
    (stored,), = [list(adapter.pop_completed_store_tasks().values())]
    assert stored.is_successful()
    task = adapter.submit_lookup_and_lock_task([*keys, key_of(99)], {})
    ends(adapter.get_lookup_and_lock_event_fd())
    assert [adapter_bit for adapter_bit in _bits(adapter.query_lookup_and_lock_result(task), COUNT + 1)] == [True] * COUNT + [False]
    task = adapter.submit_load_task([key_of(99), *keys], rooms)
    ends(adapter.get_load_event_fd())
    assert _bits(adapter.query_load_result(task), COUNT + 1) == [False] + [True] * COUNT
    assert all(torch.equal(a.tensor, b.tensor) for a, b in zip(objects, rooms[1:], strict=True))
    adapter.delete(keys[:2])
    task = adapter.submit_lookup_and_lock_task(keys, {})
    ends(adapter.get_lookup_and_lock_event_fd())
    assert _bits(adapter.query_lookup_and_lock_result(task), COUNT) == [False] * 2 + [True] * (COUNT - 2)
    adapter.close()
    engine.close()


def _bits(bitmap: Any, count: int) -> list[bool]:
    return [bitmap.test(i) for i in range(count)]


def completions(native: Any, wanted: int) -> dict[int, Any]:
    found: dict[int, Any] = {}
    while len(found) < wanted:
        assert select.select([native.event_fd()], [], [], 30)[0]
        for number, *rest in native.drain_completions():
            assert number not in found
            found[number] = rest
    return found


def test_native_connector_ends_each_batch_once(node: support.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "CALL_S", 1.0)
    native = PenstockNativeConnector(url_of(node))
    page, small, large = (bytearray(b"p" * 64), bytearray(32), bytearray(128))
    first = native.submit_batch_set(["k"], [memoryview(page)])
    assert completions(native, 1) == {first: [True, "", [True]]}
    numbers = [native.submit_batch_get(["k", "k", "none"], [memoryview(small), memoryview(large), memoryview(bytearray(64))]),
               native.submit_batch_get(["k", "l"], [memoryview(page)]), native.submit_batch_exists(["k", "none"])]
    found = completions(native, 3)
    assert found[numbers[0]] == [True, "", [False, False, False]]  # of another size is missing
    assert found[numbers[1]][:2] == [False, "ValueError: get: 2 keys and 1 places"] and small == bytes(32)
    assert found[numbers[2]] == [True, "", [True, False]]
    node.kill()
    numbers = [native.submit_batch_set(["m"], [memoryview(page)]), native.submit_batch_get(["k"], [memoryview(page)]),
               native.submit_batch_exists(["k"]), native.submit_batch_delete(["k"])]
    found = completions(native, 4)
    assert found[numbers[0]] == [False, "1 of 1 pages were not put", [False]]
    assert [found[number] for number in numbers[1:]] == [[True, "", [False]]] * 3
    native.close()
    native.close()
