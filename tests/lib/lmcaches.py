# SPDX-License-Identifier: Apache-2.0
"""What an engine has of LMCache, on a machine without a GPU: memory on the host, and a remote backend with its event loop."""
from __future__ import annotations

import asyncio
import pathlib
import threading
from typing import Any, NamedTuple

import support
import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.remote_backend import RemoteBackend

OURS = pathlib.Path(__file__).resolve().parents[2] / "integrations" / "engines"


class Shape(NamedTuple):
    """Of a chunk."""

    tokens: int
    layers: int
    heads: int
    dim: int


class Engine:
    """LMCache with a store of penstock by its plug-in, which is in `OURS`, or with `url` redis://... by its own connector.

    `memory_gib`: of chunks on the host. `layerwise`: a chunk is one layer's.
    """

    def __init__(self, url: str, shape: Shape, *, model: str = "a/model", dtype: Any = torch.bfloat16, worker: int = 0,
                 memory_gib: float = 0.05, layerwise: bool = False, **more: Any) -> None:
        own = url.startswith("redis://")
        plugin: dict[str, Any] = {"remote_url": url} if own else {"remote_storage_plugins": ["penstock"], "extra_config": {
            "remote_storage_plugin.penstock.module_path": "penstock_engines.lmcache",
            "remote_storage_plugin.penstock.class_name": "PenstockAdapter",
            "remote_storage_plugin.penstock.url": url} | more}
        self.config = LMCacheEngineConfig.from_defaults(chunk_size=shape.tokens, local_cpu=False, max_local_cpu_size=memory_gib,
                                                        remote_serde="naive", blocking_timeout_secs=40, use_layerwise=layerwise,
                                                        **plugin)
        self.metadata = LMCacheMetadata(
            model_name=model, world_size=2, local_world_size=2, worker_id=worker, local_worker_id=worker, kv_dtype=dtype,
            kv_shape=(shape.layers, 2, shape.tokens, shape.heads, shape.dim), chunk_size=shape.tokens)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.memory = LocalCPUBackend(self.config, self.metadata, dst_device="cpu")
        self.backend = RemoteBackend(self.config, self.metadata, self.loop, self.memory, "cpu", plugin_name=None if own else "penstock")

    def key(self, number: int) -> Any:
        return CacheEngineKey(self.metadata.model_name, 2, self.metadata.worker_id, 0x1000 + number, self.metadata.kv_dtype)

    def pages(self, count: int, tokens: int = 0, seed: int = 0) -> list[Any]:
        """Chunks of KV in LMCache's memory, of so many tokens, or whole ones."""
        torch.manual_seed(seed)
        objects = []
        for _ in range(count):
            one = self.memory.allocate(self.metadata.get_shapes(tokens or self.metadata.chunk_size), self.metadata.get_dtypes(),
                                       MemoryFormat.KV_2LTD)
            one.tensor.copy_(torch.randn(one.tensor.shape))
            objects.append(one)
        return objects

    def put(self, keys: list[Any], objects: list[Any]) -> None:
        self.backend.batched_submit_put_task(keys, objects)
        support.wait_until("all is put", lambda: all(one.get_ref_count() == 1 for one in objects))

    def used(self) -> int:
        return self.memory.memory_allocator.pin_allocator.total_allocated_size

    def close(self) -> None:
        self.backend.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
