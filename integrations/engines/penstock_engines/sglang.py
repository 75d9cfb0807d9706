# SPDX-License-Identifier: Apache-2.0
"""sglang's HiCache storage on a store, for ``--hicache-storage-backend dynamic``."""
from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import (HiCacheStorage, HiCacheStorageConfig, HiCacheStorageExtraInfo, PoolHitPolicy,
                                                  PoolName, PoolTransfer, PoolTransferResult)

from .pages import Pages, address_of, prefix_of

_log = logging.getLogger("penstock.engines")

Place = list[tuple[int, int]]


class PenstockStorage(HiCacheStorage):
    """Pages of sglang's host pools in a store.

    A page is one value, which is gathered from and scattered to where it lies in the host pool. Its key has model, shard, pool, layout,
    dtype, tokens and bytes of a page, and sglang's chained hash. So each engine sees the pages that fit it alone.

    Parameters
    ----------
    storage_config : HiCacheStorageConfig
        Its ``extra_config`` has ``url``, a store's; without it that of ``PENSTOCK_URL``. ``extra_backend_tag`` sets pages apart,
        ``interface_v1`` says that sglang moves pages without a copy.
    kwargs : dict, optional
        Not used.

    Raises
    ------
    ValueError
        There is no URL.
    penstock.Error
        The store cannot be opened.
    """

    def __init__(self, storage_config: HiCacheStorageConfig, kwargs: Mapping[str, Any] | None = None) -> None:
        extra = storage_config.extra_config or {}
        url = address_of(extra.get("url"), "hicache-storage-backend-extra-config has no url")
        tag = extra.get("extra_backend_tag")
        prefix = prefix_of("sglang", str(storage_config.model_name or ""), None if tag is None else str(tag))
        self._config, self._in_place = storage_config, bool(extra.get("interface_v1", 0))
        self._pages = Pages(url, prefix, secret_file=extra.get("secret_file"))
        self.mem_pool_host: Any = None
        self.registered_pools: dict[str, Any] = {}

    # ---- host pools ----

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        self._register(mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: str) -> None:
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        if host_pool is not self.mem_pool_host:
            self._register(host_pool)

    def _register(self, pool: Any) -> None:
        """Tell the transport of a pool's memory. Raises ValueError if it is a device's."""
        buffers = getattr(pool, "get_hybrid_pool_buffer", lambda: [getattr(pool, "kv_buffer", None)])()
        for buffer in (one for one in buffers if one is not None and one.numel()):
            if buffer.device.type != "cpu":
                raise ValueError(f"a pool of {buffer.device} is none that penstock moves pages of: host pools alone")
            self._pages.register(buffer.data_ptr(), buffer.numel() * buffer.element_size())

    def _pool(self, name: str) -> Any:
        pool = self.registered_pools.get(name)
        return self.mem_pool_host if pool is None and name == PoolName.KV else pool

    def _is_shared(self, name: str) -> bool:
        """Whether all ranks have the same pages of this pool, which one of them writes."""
        pool = self._pool(name)
        return self._config.is_mla_model and (name == PoolName.KV or (name != PoolName.MAMBA and not hasattr(pool, "v_buffer")))

    # ---- keys ----

    def _shard(self, name: str) -> str:
        c = self._config
        parts = [f"tp{c.tp_size}.{c.tp_rank}"]
        if self._is_shared(name):
            parts = ["mla", *([f"tp{c.tp_size}.dcp{c.dcp_size}.{c.dcp_rank}"] if c.dcp_size > 1 else [])]
        for what, rank, size in (("pp", c.pp_rank, c.pp_size), ("cp", c.attn_cp_rank, c.attn_cp_size)):
            if size > 1:
                parts.append(f"{what}{size}.{rank}")
        return "-".join(parts)

    def _keys(self, name: str, keys: Sequence[str], in_place: bool) -> list[str]:
        pool = self._pool(name)
        about = [str(getattr(pool, what, None) or "") for what in ("dtype", "page_size", "size_per_token", "storage_format_tag")]
        layout = str(getattr(pool, "layout", "")) if in_place else "flat"
        page = ".".join([layout, about[0].removeprefix("torch."), *about[1:]])
        return [f"{self._shard(name)}/{name!s}/{page}/{key}" for key in keys]

    # ---- pages where they lie ----

    def batch_exists(self, keys: list[str], extra_info: HiCacheStorageExtraInfo | None = None) -> int:
        """How many pages are there from the first on, in one round."""
        return self._pages.prefix_length(self._keys(PoolName.KV, keys, self._in_place))

    def batch_get_v1(self, keys: list[str], host_indices: torch.Tensor,
                     extra_info: HiCacheStorageExtraInfo | None = None) -> list[bool]:
        return self._get(PoolName.KV, keys, host_indices)

    def batch_set_v1(self, keys: list[str], host_indices: torch.Tensor,
                     extra_info: HiCacheStorageExtraInfo | None = None) -> list[bool]:
        return self._set(PoolName.KV, keys, host_indices)

    def _places(self, name: str, keys: Sequence[str], host_indices: torch.Tensor | None) -> list[Place] | None:
        """Where pages lie in their pool; None if the indices are not those of as many pages."""
        pool = self._pool(name)
        tokens = getattr(pool, "logical_page_size", None) or getattr(pool, "page_size", None) or 1
        if pool is None or host_indices is None or host_indices.numel() != len(keys) * tokens:
            _log.warning("%s: %d pages have no %d indices of a pool", name, len(keys), len(keys) * tokens)
            return None
        ptrs, sizes = pool.get_page_buffer_meta(host_indices)
        each = len(ptrs) // max(1, len(keys))
        if each * len(keys) != len(ptrs) or len(ptrs) != len(sizes):
            raise ValueError(f"{name}: {len(keys)} pages have {len(ptrs)} places and {len(sizes)} sizes")
        return [list(zip(ptrs[i:i + each], sizes[i:i + each])) for i in range(0, len(ptrs), each)] if each else []

    def _get(self, name: str, keys: Sequence[str], host_indices: torch.Tensor | None) -> list[bool]:
        places = self._places(name, keys, host_indices)
        if places is None:
            return [False] * len(keys)
        counts = self._pages.get_into(self._keys(name, keys, True), places)
        return [count == sum(size for _, size in place) for count, place in zip(counts, places)]

    def _set(self, name: str, keys: Sequence[str], host_indices: torch.Tensor | None) -> list[bool]:
        if self._is_shared(name) and not self._config.is_storage_writer:
            return [True] * len(keys)
        places = self._places(name, keys, host_indices)
        return [False] * len(keys) if places is None else self._pages.put(self._keys(name, keys, True), places)

    # ---- several pools at once ----

    def batch_exists_v2(self, keys: list[str], pool_transfers: list[PoolTransfer] | None = None,
                        extra_info: HiCacheStorageExtraInfo | None = None) -> PoolTransferResult:
        """The longest prefix that every pool can serve, all lengths that they can, and each pool's own."""
        transfers = [one for one in pool_transfers or [] if one.hit_policy != PoolHitPolicy.BLOCK_GROUPS]
        has_kv = getattr(self._pool(PoolName.KV), "kv_buffer", None) is not None
        names = [PoolName.KV] * has_kv + [one.name for one in transfers]
        found = self._pages.exists([key for name in names for key in self._keys(name, keys, True)])
        there = [found[i:i + len(keys)] for i in range(0, len(found), len(keys))] if keys else [[] for _ in names]
        length = _run(there.pop(0)) if has_kv else len(keys)
        hits = {PoolName.KV: length} if length else {}
        lengths = list(range(1, length + 1))
        for transfer, pages in zip(transfers, there):
            window = length if transfer.hit_policy == PoolHitPolicy.ALL_PAGES else max(1, len(transfer.keys or []))
            good = [end for end in range(1, length + 1) if all(pages[max(0, end - window):end])]
            if good:
                hits[transfer.name] = good[-1]
            lengths = sorted(set(lengths) & set(good))
        return PoolTransferResult(lengths[-1] if lengths else 0, hits, lengths)

    def batch_get_v2(self, transfers: list[PoolTransfer],
                     extra_info: HiCacheStorageExtraInfo | None = None) -> dict[str, list[bool]]:
        return {one.name: self._get(one.name, one.keys or [], one.host_indices) for one in transfers}

    def batch_set_v2(self, transfers: list[PoolTransfer],
                     extra_info: HiCacheStorageExtraInfo | None = None) -> dict[str, list[bool]]:
        return {one.name: self._set(one.name, one.keys or [], one.host_indices) for one in transfers}

    # ---- pages as tensors, without interface_v1 ----

    def get(self, key: str, target_location: torch.Tensor | None = None, target_sizes: Any = None) -> torch.Tensor | None:
        return self.batch_get([key], [target_location])[0]

    def batch_get(self, keys: list[str], target_locations: Sequence[torch.Tensor | None] | None = None,
                  target_sizes: Any = None) -> list[torch.Tensor | None]:
        """The pages in `target_locations`, contiguous tensors on the CPU; None for one that is missing."""
        targets = list(target_locations or [None] * len(keys))
        fits = [i for i, one in enumerate(targets) if one is not None and one.is_contiguous() and one.device.type == "cpu"]
        names = self._keys(PoolName.KV, keys, False)
        counts = self._pages.get_into([names[i] for i in fits], [(targets[i].data_ptr(), targets[i].nbytes) for i in fits])
        found: list[torch.Tensor | None] = [None] * len(keys)
        for i, count in zip(fits, counts):
            if count == targets[i].nbytes:
                found[i] = targets[i]
        return found

    def set(self, key: str, value: torch.Tensor | None = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        return self.batch_set([key], [value])

    def batch_set(self, keys: list[str], values: Sequence[torch.Tensor | None] | None = None, target_locations: Any = None,
                  target_sizes: Any = None) -> bool:
        """Whether all pages are there now."""
        if self._is_shared(PoolName.KV) and not self._config.is_storage_writer:
            return True
        if values is None or len(values) != len(keys) or any(value is None for value in values):
            return False
        whole = [value.detach().cpu().contiguous() for value in values if value is not None]
        return all(self._pages.put(self._keys(PoolName.KV, keys, False), [(one.data_ptr(), one.nbytes) for one in whole]))

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    # ---- all of them ----

    def clear(self) -> None:
        """Delete this model's pages, of all ranks."""
        self._pages.clear()

    def close(self) -> None:
        self._pages.close()


def _run(pages: Sequence[bool]) -> int:
    return next((i for i, there in enumerate(pages) if not there), len(pages))
