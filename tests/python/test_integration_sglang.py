# SPDX-License-Identifier: Apache-2.0
"""sglang's HiCache storage, made by sglang's own factory on its own host pools, on CPU, with penstock behind it."""
from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import penstock
import pytest
import support
from members import master, member
from ports import free_port

torch = pytest.importorskip("torch", reason="torch is not installed")
if importlib.util.find_spec("sglang") is None:
    pytest.skip("sglang is not installed (pip install --no-deps sglang)", allow_module_level=True)

import hicache  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE_TOKENS, LAYERS, HEADS, DIM = 4, 3, 2, 8
PAGES = 128
KEYS = [f"{i:064x}" for i in range(PAGES)]
LAYOUTS = ["layer_first", "page_first", "page_first_direct"]

PATIENT = ("--member-ttl-ms=10000", "--lease-ms=3000", "--lease-margin-ms=1000", "--incomplete-ms=500")


@pytest.fixture(scope="module")
def sglang() -> Iterator[dict[str, Any]]:
    kept = sys.modules.pop("sglang", None)
    hicache.stand_in()
    try:
        yield hicache.load()
    finally:
        sys.path.remove(str(hicache.OURS))
        for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
            del sys.modules[name]
        sys.modules.pop("penstock_engines.sglang", None)
        if kept is not None:
            sys.modules["sglang"] = kept


@pytest.fixture
def node() -> Iterator[support.Node]:
    with support.start_node("--dram", "256M", "--listen", "127.0.0.1:0", "--class", "sglang/=cache") as node:
        yield node


def mha_pool(sglang: dict[str, Any], layout: str = "page_first", seed: int | None = None, dtype: Any = torch.bfloat16,
             tokens: int = PAGE_TOKENS) -> Any:
    return filled(hicache.mha_pool(sglang, layout, pages=PAGES, tokens=tokens, layers=LAYERS, heads=HEADS, dim=DIM, dtype=dtype), seed)


def mla_pool(sglang: dict[str, Any], layout: str = "page_first", seed: int | None = None) -> Any:
    rows = tuple(torch.zeros(8, 1, 24, dtype=torch.bfloat16) for _ in range(LAYERS))
    about = sglang["device_pool_info"].MLABufferInfo(
        buffers=rows, data_ptrs=torch.tensor([one.data_ptr() for one in rows], dtype=torch.uint64),
        layer_indices=tuple(range(LAYERS)), device_layer_num=LAYERS, page_size=PAGE_TOKENS, kv_lora_rank=16, qk_rope_head_dim=8,
        kv_cache_dim=24, dtype=torch.bfloat16, device=torch.device("cpu"))
    pool = sglang["mla"].MLATokenToKVPoolHost(about, 1.0, 0, PAGE_TOKENS, layout, pin_memory=False, device_capacity_tokens=8,
                                              start_layer=0, end_layer=LAYERS, target_layer_num=LAYERS,
                                              host_token_capacity=PAGES * PAGE_TOKENS)
    return filled(pool, None if seed is None else seed)


def filled(pool: Any, seed: int | None) -> Any:
    pool.kv_buffer.zero_()
    if seed is not None:
        pool.kv_buffer.copy_(torch.randn(pool.kv_buffer.shape, generator=torch.Generator().manual_seed(seed)))
    return pool


def opened(sglang: dict[str, Any], pool: Any, url: str, *, mla: bool = False, rank: int = 0, ranks: int = 1, model: str = "a/model",
           **more: Any) -> Any:
    return hicache.opened(sglang, "dynamic", pool, hicache.penstock_config(url, **more), mla=mla, rank=rank, ranks=ranks, model=model)


def url_of(node: support.Node) -> str:
    return node.tcp.replace("node://", "penstock://") + "?lane=tcp"


def indices(pages: int = PAGES, tokens: int = PAGE_TOKENS) -> Any:
    return torch.arange(pages * tokens)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mla", [False, True])
def test_pages_without_a_copy(sglang: dict[str, Any], node: support.Node, layout: str, mla: bool) -> None:
    make = mla_pool if mla else mha_pool
    source, target = make(sglang, layout, 1), make(sglang, layout)
    first, second = (opened(sglang, pool, url_of(node), mla=mla) for pool in (source, target))
    assert first.batch_exists(KEYS) == 0 and not first.exists(KEYS[0])
    assert first.batch_set_v1(KEYS[:64], indices(64)) == [True] * 64
    assert second.batch_exists(KEYS) == 64 and second.exists(KEYS[63])
    assert first.batch_set_v1(KEYS, indices()) == [True] * PAGES
    assert second.batch_get_v1(["none", *KEYS[1:]], indices()) == [False] + [True] * (PAGES - 1)
    assert second.batch_get_v1(KEYS[:1], indices(1)) == [True]
    assert torch.equal(source.kv_buffer, target.kv_buffer)
    assert second.batch_get_v1(KEYS[:2], indices(1)) == [False] * 2  # indices of another number of pages
    second.clear()
    assert first.batch_exists(KEYS) == 0
    for storage in (first, second):
        storage.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pages_as_tensors(sglang: dict[str, Any], node: support.Node, layout: str) -> None:
    """What sglang does without interface_v1; pages of one layout serve the others."""
    source, target = mha_pool(sglang, layout, 2), mha_pool(sglang, layout)
    first, second = (opened(sglang, pool, url_of(node), v1=0) for pool in (source, target))
    assert first.batch_set(KEYS, [source.get_data_page(i * PAGE_TOKENS) for i in range(PAGES)])
    assert second.batch_exists([*KEYS, "none"]) == PAGES
    found = second.batch_get([*KEYS, "none"], [target.get_dummy_flat_data_page() for _ in range(PAGES + 1)])
    assert found.pop() is None
    for i, page in enumerate(found):
        target.set_from_flat_data_page(i * PAGE_TOKENS, page)
    assert torch.equal(source.kv_buffer, target.kv_buffer)
    assert first.set("one", found[0]) and torch.equal(second.get("one", torch.zeros_like(found[0])), found[0])
    assert second.get("one", torch.zeros(3)) is None and second.get("one") is None  # of another size is missing
    for storage in (first, second):
        storage.close()


def test_what_differs_shares_nothing(sglang: dict[str, Any], node: support.Node) -> None:
    pools = [mha_pool(sglang, "page_first", 1), mha_pool(sglang, "layer_first", 2), mha_pool(sglang, dtype=torch.float16, seed=3),
             mha_pool(sglang, tokens=2 * PAGE_TOKENS, seed=4)]
    storages = [opened(sglang, pool, url_of(node)) for pool in pools]
    storages += [opened(sglang, pools[0], url_of(node), **more) for more in (
        {"model": "b/model"}, {"rank": 0, "ranks": 2}, {"rank": 1, "ranks": 2}, {"extra_backend_tag": "test"})]
    for storage in storages:
        pool = storage.mem_pool_host
        assert storage.batch_exists(KEYS) == 0
        assert storage.batch_set_v1(KEYS[:4], indices(4, pool.page_size)) == [True] * 4
    with penstock.open(node.tcp) as store:
        assert len(store) == 4 * len(storages)
        name = f"sglang/a%2Fmodel/tp1.0/kv/page_first.bfloat16.{PAGE_TOKENS}.{LAYERS * HEADS * DIM * 2 * 2}./{KEYS[0]}"
        good = store[name]
        for bad in (b"", good[:-1], good + b"x"):  # of another size is missing
            store[name] = bad
            assert storages[0].batch_get_v1(KEYS[:2], indices(2)) == [False, True]
    for storage in storages:
        storage.close()


def test_ranks_share_what_one_of_them_writes(sglang: dict[str, Any], node: support.Node) -> None:
    source, target = mla_pool(sglang, seed=1), mla_pool(sglang, seed=9)
    writer, reader = (opened(sglang, pool, url_of(node), mla=True, rank=i, ranks=2) for i, pool in enumerate((source, target)))
    assert reader.batch_set_v1(KEYS, indices()) == [True] * PAGES and reader.batch_exists(KEYS) == 0  # it writes nothing
    assert writer.batch_set_v1(KEYS, indices()) == [True] * PAGES
    assert reader.batch_get_v1(KEYS, indices()) == [True] * PAGES
    assert torch.equal(source.kv_buffer, target.kv_buffer)
    writer.close()
    reader.close()


class StatePool:
    """A pool of states beside the pages, one a page."""

    layout, page_size, dtype = "page_first", 1, torch.float32

    def __init__(self, seed: int | None) -> None:
        self.states = torch.zeros(PAGES, 16)
        if seed is not None:
            self.states.normal_(generator=torch.Generator().manual_seed(seed))

    def get_hybrid_pool_buffer(self) -> list[Any]:
        return [self.states]

    def get_page_buffer_meta(self, at: Any) -> tuple[list[int], list[int]]:
        return [self.states[i].data_ptr() for i in at.tolist()], [64] * len(at)


def test_pools_at_once(sglang: dict[str, Any], node: support.Node) -> None:
    module = sglang["hicache_storage"]
    transfer, policy, name = module.PoolTransfer, module.PoolHitPolicy, module.PoolName
    source, target, states, others = mha_pool(sglang, seed=1), mha_pool(sglang), StatePool(1), StatePool(None)
    first, second = (opened(sglang, pool, url_of(node)) for pool in (source, target))
    for storage, pool, side in ((first, source, states), (second, target, others)):
        storage.register_mem_host_pool_v2(pool, name.KV)
        for of in (name.MAMBA, name.INDEXER):
            storage.register_mem_host_pool_v2(side, of)
    have = [0, 1, 2, 5, 7]
    done = first.batch_set_v2([
        transfer(name=name.KV, host_indices=indices(8), keys=KEYS[:8]),
        transfer(name=name.MAMBA, host_indices=torch.tensor(have), keys=[KEYS[i] for i in have]),
        transfer(name=name.INDEXER, host_indices=torch.arange(6), keys=KEYS[:6])])
    assert done == {name.KV: [True] * 8, name.MAMBA: [True] * 5, name.INDEXER: [True] * 6}

    def ask(*transfers: Any) -> Any:
        return second.batch_exists_v2(KEYS[:10], list(transfers))
    last = transfer(name=name.MAMBA, keys=["x"], hit_policy=policy.TRAILING_PAGES)
    both = transfer(name=name.MAMBA, keys=["x", "y"], hit_policy=policy.TRAILING_PAGES)
    whole = transfer(name=name.INDEXER, hit_policy=policy.ALL_PAGES)
    for transfers, lengths, hits in (((), list(range(1, 9)), {name.KV: 8}), ((last,), [1, 2, 3, 6, 8], {name.KV: 8, name.MAMBA: 8}),
                                     ((both,), [1, 2, 3], {name.KV: 8, name.MAMBA: 3}),
                                     ((last, whole), [1, 2, 3, 6], {name.KV: 8, name.MAMBA: 8, name.INDEXER: 6})):
        found = ask(*transfers)
        assert (found.restorable_prefix_pages, found.kv_hit_pages, found.extra_pool_hit_pages) == (lengths, lengths[-1], hits)
    assert second.batch_exists_v2(["none"], [last]).kv_hit_pages == 0 and second.batch_exists_v2([], [last]).kv_hit_pages == 0
    got = second.batch_get_v2([transfer(name=name.KV, host_indices=indices(8), keys=KEYS[:8]),
                               transfer(name=name.MAMBA, host_indices=torch.arange(8), keys=KEYS[:8])])
    assert got == {name.KV: [True] * 8, name.MAMBA: [i in have for i in range(8)]}
    assert torch.equal(states.states[have], others.states[have]) and torch.equal(
        source.get_data_page(0), target.get_data_page(0))
    assert second.batch_get_v2([transfer(name=name.SWA, host_indices=indices(1), keys=KEYS[:1])]) == {name.SWA: [False]}
    first.close()
    second.close()


OTHER = """
import sys
sys.path[:0] = {paths!r}
import test_integration_sglang as t
t.hicache.stand_in()
sglang = t.hicache.load()
storage = t.opened(sglang, t.mha_pool(sglang, seed=7), {url!r})
assert all(storage.batch_set_v1(t.KEYS, t.indices()))
storage.close()
"""


def test_two_processes_and_a_killed_node_of_a_pool(sglang: dict[str, Any], tmp_path: pathlib.Path) -> None:
    with master(tmp_path, *PATIENT, place=None) as m, member(m, "--class", "sglang/=cache") as one, \
            member(m, "--class", "sglang/=cache") as two:
        m.has(2)
        paths = [str(ROOT / "tests/python"), str(ROOT / "tests/lib"), str(support.BUILD / "python")]
        subprocess.run([sys.executable, "-W", "ignore", "-c", OTHER.format(paths=paths, url=f"pool://{m.address}")], check=True,
                       timeout=400, stdin=subprocess.DEVNULL, env=dict(os.environ))
        wanted, target = mha_pool(sglang, seed=7), mha_pool(sglang)
        storage = opened(sglang, target, f"pool://{m.address}")
        assert storage.batch_exists(KEYS) == PAGES
        one.kill()
        found = storage.batch_get_v1(KEYS, indices())
        assert True in found and False in found  # each node had some of them
        for i, there in enumerate(found):
            page = target.get_data_page(i * PAGE_TOKENS)
            assert not there or torch.equal(page, wanted.get_data_page(i * PAGE_TOKENS))
        assert storage.batch_exists(KEYS) in (0, found.index(False))  # none if the node was waited for: then pages miss for a while
        storage.close()
        two.stop()


def test_killed_node(sglang: dict[str, Any], node: support.Node, caplog: pytest.LogCaptureFixture,
                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_engines.pages.CALL_S", 1.0)
    pool = mha_pool(sglang, seed=1)
    storage = opened(sglang, pool, url_of(node))
    assert all(storage.batch_set_v1(KEYS, indices()))
    before = pool.kv_buffer.clone()
    node.kill()
    assert storage.batch_get_v1(KEYS, indices()) == [False] * PAGES
    assert storage.batch_set_v1(KEYS, indices()) == [False] * PAGES
    assert storage.batch_exists(KEYS) == 0 and storage.clear() is None and not storage.set(KEYS[0], torch.zeros(4))
    assert torch.equal(before, pool.kv_buffer)
    assert len([record for record in caplog.records if record.name == "penstock.engines"]) == 1
    storage.close()


def test_what_cannot_be_opened(sglang: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    with pytest.raises(ValueError, match="has no url"):
        opened(sglang, mha_pool(sglang), "")
    with pytest.raises(penstock.Unreachable):
        opened(sglang, mha_pool(sglang), f"penstock://127.0.0.1:{free_port()}")
