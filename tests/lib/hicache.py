# SPDX-License-Identifier: Apache-2.0
"""sglang's HiCache on a machine without a GPU: its own modules, its host pools, and its storages by its own factory.

A stand-in takes the place of the ``__init__`` of sglang's package, which wants a GPU.
"""
from __future__ import annotations

import importlib
import importlib.util
import pathlib
import sys
import types
from typing import Any

import torch

OURS = pathlib.Path(__file__).resolve().parents[2] / "integrations" / "engines"
MODULES = ("hicache_storage", "storage.backend_factory", "device_pool_info", "pool_host.mha", "pool_host.mla")


def stand_in() -> None:
    """Put the stand-in in place, and our package where sglang finds it."""
    spec = importlib.util.find_spec("sglang")
    assert spec is not None and spec.submodule_search_locations
    package = types.ModuleType("sglang")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["sglang"] = package
    sys.path.insert(0, str(OURS))


def load() -> dict[str, Any]:
    """sglang's modules by their last names; the stand-in is to be in place."""
    return {name.rpartition(".")[2]: importlib.import_module(f"sglang.srt.mem_cache.{name}") for name in MODULES}


def mha_pool(sglang: dict[str, Any], layout: str, *, pages: int, tokens: int, layers: int, heads: int, dim: int,
             dtype: Any = torch.bfloat16) -> Any:
    """A host pool of so many pages, of K and V each."""
    info = sglang["device_pool_info"]
    k, v = (tuple(torch.zeros(8, heads, dim, dtype=dtype) for _ in range(layers)) for _ in range(2))
    ptrs = [torch.tensor([one.data_ptr() for one in of], dtype=torch.uint64) for of in (k, v)]
    buffers = info.KVBuffers(k=k, v=v, k_data_ptrs=ptrs[0], v_data_ptrs=ptrs[1], layout=info.KVBufferLayout.NHD)
    about = info.MHABufferInfo(buffers=buffers, page_size=tokens, head_num=heads, head_dim=dim, v_head_dim=dim, dtype=dtype,
                               device=torch.device("cpu"))
    return sglang["mha"].MHATokenToKVPoolHost(about, 1.0, 0, tokens, layout, pin_memory=False, device_capacity_tokens=8,
                                              start_layer=0, end_layer=layers, host_token_capacity=pages * tokens)


def opened(sglang: dict[str, Any], backend: str, pool: Any, extra_config: dict[str, Any], *, mla: bool = False, rank: int = 0,
           ranks: int = 1, model: str = "a/model") -> Any:
    """A storage for the pool, as sglang's controller makes it."""
    config = sglang["hicache_storage"].HiCacheStorageConfig(
        tp_rank=rank, tp_size=ranks, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=mla,
        enable_storage_metrics=False, is_page_first_layout=pool.layout != "layer_first", model_name=model, extra_config=extra_config)
    storage = sglang["backend_factory"].StorageBackendFactory.create_backend(backend, config, pool)
    storage.register_mem_pool_host(pool)
    storage.on_host_pools_registered()
    return storage


def penstock_config(url: str, v1: int = 1, **more: Any) -> dict[str, Any]:
    """The line that sglang's users write, for the back end ``dynamic``."""
    return {"backend_name": "penstock", "module_path": "penstock_engines.sglang", "class_name": "PenstockStorage",
            "interface_v1": v1, "url": url} | more
