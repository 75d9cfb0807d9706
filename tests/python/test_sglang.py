# SPDX-License-Identifier: Apache-2.0
"""sglang's own UMBP store, as its wheel has it, on ``mori.umbp`` of penstock-mori: pages of a KV cache on CPU.

Of sglang only what the store imports is loaded: a stand-in takes the place of the package's ``__init__``, which wants a GPU, and
of the module with the host pools, of which the store takes a name for its annotations. The pool here is one of torch tensors.
"""
from __future__ import annotations

import importlib.util
import pathlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
from members import master
from support import wait_until

torch = pytest.importorskip("torch", reason="torch is not installed")
if importlib.util.find_spec("sglang") is None:
    pytest.skip("sglang is not installed (pip install --no-deps sglang)", allow_module_level=True)

PAGE_TOKENS, LAYERS, HEADS, DIM = 4, 3, 2, 8
PAGES = 128
KEYS = [f"{i:064x}" for i in range(PAGES)]


class HostPool:
    """A host's pages, the page first: of each one run of memory for K and one for V; of MLA one alone."""

    layout, page_size, stores_page_envelope, allocator = "page_first", PAGE_TOKENS, False, None

    def __init__(self, kinds: int, fill: bool) -> None:
        shape = (kinds, PAGES * PAGE_TOKENS, LAYERS, HEADS, DIM)
        self.kv_buffer = torch.randn(shape, dtype=torch.float16) if fill else torch.zeros(shape, dtype=torch.float16)

    def get_page_buffer_meta(self, indices: Any) -> tuple[list[int], list[int]]:
        size = self.get_page_buffer_element_size(1)
        first = indices.tolist()[::PAGE_TOKENS]
        ptrs = [self.kv_buffer[kind, token].data_ptr() for token in first for kind in range(self.kv_buffer.shape[0])]
        return ptrs, [size] * len(ptrs)

    def get_page_buffer_element_size(self, split: int) -> int:
        return PAGE_TOKENS * LAYERS * HEADS * DIM * 2 // split

    def get_ksize_per_token(self) -> int:
        return LAYERS * HEADS * DIM * 2


@pytest.fixture(scope="module")
def store_module() -> Iterator[Any]:
    """The module of sglang's UMBP store, and mori's names."""
    names = ("sglang", "sglang.srt.mem_cache.memory_pool_host")
    spec = importlib.util.find_spec("sglang")
    assert spec is not None and spec.submodule_search_locations
    kept = {name: sys.modules.pop(name, None) for name in names}
    package, pools = (types.ModuleType(name) for name in names)
    package.__path__ = list(spec.submodule_search_locations)
    setattr(pools, "HostKVCache", HostPool)
    sys.modules |= {names[0]: package, names[1]: pools}
    ours = str(pathlib.Path(__file__).parents[2] / "python/penstock-mori")
    sys.path.insert(0, ours)
    try:
        yield importlib.import_module("sglang.srt.mem_cache.storage.umbp.umbp_store")
    finally:
        sys.path.remove(ours)
        for name, module in kept.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module


def config_of(extra: dict[str, Any], mla: bool = False, rank: int = 0, ranks: int = 1) -> Any:
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
    return HiCacheStorageConfig(tp_rank=rank, tp_size=ranks, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
                                is_mla_model=mla, enable_storage_metrics=False, is_page_first_layout=True, model_name="a/model",
                                extra_config=extra)


def indices(pages: int = PAGES) -> Any:
    return torch.arange(pages * PAGE_TOKENS)


def check(module: Any, extra: dict[str, Any], mla: bool) -> None:
    """All pages in, asked for, and out into another pool; a store that sees half of a chain says so."""
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageExtraInfo
    source, target = HostPool(1 if mla else 2, True), HostPool(1 if mla else 2, False)
    store = module.UMBPStore(config_of(extra, mla), source)
    assert store.batch_exists(KEYS) == 0
    assert store.batch_set_v1(KEYS[:64], indices(64), HiCacheStorageExtraInfo(prefix_keys=[])) == [True] * 64
    assert store.batch_exists(KEYS) == 64 and store.exists(store._anchor_keys(KEYS[:1])[0][0])
    assert store.batch_set_v1(KEYS, indices()) == [True] * PAGES
    store.register_mem_pool_host(target)
    assert store.batch_get_v1(KEYS, indices()) == [True] * PAGES
    assert torch.equal(source.kv_buffer, target.kv_buffer)
    assert store.batch_get_v1(["none", KEYS[0]], indices(2)) == [False, True]
    store.clear()
    assert store.batch_exists(KEYS) == 0 and store.flush()
    store.close()


@pytest.mark.parametrize("mla", [False, True])
def test_in_this_process(store_module: Any, tmp_path: pathlib.Path, mla: bool) -> None:
    check(store_module, {"dram_capacity_bytes": 16 << 20, "eviction_policy": "prefix_aware_lru", "ssd_enabled": True,
                         "ssd_storage_dir": str(tmp_path / "ssd"), "ssd_capacity_bytes": 16 << 20, "ssd_io_backend": "posix",
                         "ssd_durability_mode": "relaxed", "ssd_copy_queue_depth": 128}, mla)


def test_in_a_pool(store_module: Any, tmp_path: pathlib.Path) -> None:
    with master(tmp_path) as m:
        check(store_module, {"master_address": m.address, "node_address": "127.0.0.1", "dram_capacity_bytes": 32 << 20,
                             "ssd_enabled": False, "node_tags": "sgl_role=prefill", "staging_buffer_size": 1 << 20}, False)


def test_two_share_a_prefix(store_module: Any, tmp_path: pathlib.Path) -> None:
    with master(tmp_path) as m:
        extra = {"master_address": m.address, "node_address": "127.0.0.1", "dram_capacity_bytes": 32 << 20, "ssd_enabled": False}
        source, target = HostPool(2, True), HostPool(2, False)
        first = store_module.UMBPStore(config_of(extra | {"node_id": "engine-of-a-long-name-0"}), source)
        second = store_module.UMBPStore(config_of(extra | {"node_id": "engine-of-a-long-name-1"}), target)
        assert all(first.batch_set_v1(KEYS, indices()))
        wait_until("the master has heard of all pages", lambda: second.batch_exists(KEYS) == PAGES)
        assert all(second.batch_get_v1(KEYS, indices())) and torch.equal(source.kv_buffer, target.kv_buffer)
        second.close()
        first.close()


def test_ranks_share_what_one_of_them_writes(store_module: Any, tmp_path: pathlib.Path) -> None:
    """MLA: the first rank leads, and the others read."""
    extra = {"dram_capacity_bytes": 16 << 20, "ssd_storage_dir": str(tmp_path / "ssd"), "ssd_capacity_bytes": 64 << 20}
    source, target = HostPool(1, True), HostPool(1, False)
    leader = store_module.UMBPStore(config_of(extra, True, 0, 2), source)
    follower = store_module.UMBPStore(config_of(extra, True, 1, 2), target)
    assert follower.is_mla_follower and all(leader.batch_set_v1(KEYS, indices()))
    assert follower.batch_exists(KEYS) == PAGES and all(follower.batch_get_v1(KEYS, indices()))
    assert torch.equal(source.kv_buffer, target.kv_buffer)
    follower.close()
    leader.close()
