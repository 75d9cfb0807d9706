# SPDX-License-Identifier: Apache-2.0
"""LMCache's remote connector on a store, for ``remote_storage_plugins``, and its native connector, for L2 adapters of the type
``native_plugin``."""
from __future__ import annotations

import asyncio
import itertools
import math
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lmcache.logging import init_logger
from lmcache.utils import CacheEngineKey
from lmcache.v1.memory_management import MemoryObj
from lmcache.v1.protocol import RemoteMetadata
from lmcache.v1.storage_backend.connector import ConnectorAdapter, ConnectorContext
from lmcache.v1.storage_backend.connector.base_connector import RemoteConnector

from .pages import Pages, address_of

logger = init_logger(__name__)

SCHEMES = ("penstock://", "pool://", "node://", "node+unix://", "plugin://penstock")
THREADS = 4


class PenstockAdapter(ConnectorAdapter):
    """Makes connectors for ``plugin://penstock``, whose store ``remote_storage_plugin.penstock.url`` names, and for stores' URLs."""

    def __init__(self) -> None:
        super().__init__("penstock://")

    def can_parse(self, url: str) -> bool:
        return url.startswith(SCHEMES)

    def create_connector(self, context: ConnectorContext) -> RemoteConnector:
        url = context.url
        if url.startswith("plugin://"):
            setting = f"remote_storage_plugin.{url.removeprefix('plugin://')}.url"
            url = address_of((context.config.extra_config or {}).get(setting), f"extra_config has no {setting}")
        return PenstockConnector(url, context)


class PenstockConnector(RemoteConnector):
    """Chunks of KV in a store.

    A chunk's key is LMCache's, below a prefix that names format, shapes and dtypes: a store may have chunks of many models and
    settings, and each process sees its own. What is stored has LMCache's metadata in front, unless ``save_chunk_meta`` is false.
    """

    def __init__(self, url: str, context: ConnectorContext) -> None:
        super().__init__(context.config, context.metadata)
        self._backend, self._loop = context.local_cpu_backend, context.loop
        self._layerwise = bool(context.config.use_layerwise)
        self._meta_bytes = self.remote_metadata_bytes if self.save_chunk_meta else 0
        self._pages = Pages(url, f"lmcache/{self._layout()}/")
        self._threads = ThreadPoolExecutor(THREADS, "penstock-lmcache")
        self._running: set[asyncio.Task[Any]] = set()

    def _layout(self) -> str:
        groups = [f"{'x'.join(map(str, shape))}.{str(dtype).removeprefix('torch.')}"
                  for shape, dtype in zip(self.meta_shapes, self.meta_dtypes)]
        return ".".join([self.meta_fmt.name, *groups, *(["layers"] if self._layerwise else []),
                         *([] if self.save_chunk_meta else ["plain"])])

    # ---- what LMCache asks ----

    async def exists(self, key: CacheEngineKey) -> bool:
        return (await self._on_thread(lambda: self._pages.exists([key.to_string()])))[0]

    def exists_sync(self, key: CacheEngineKey) -> bool:
        return self._pages.exists([key.to_string()])[0]

    def support_batched_contains(self) -> bool:
        return True

    def batched_contains(self, keys: Sequence[CacheEngineKey]) -> int:
        return self._pages.prefix_length([key.to_string() for key in keys])

    async def batched_async_contains(self, lookup_id: str, keys: Sequence[CacheEngineKey], pin: bool = False) -> int:
        return await self._on_thread(lambda: self.batched_contains(keys))

    async def get(self, key: CacheEngineKey) -> MemoryObj | None:
        return (await self.batched_get([key]))[0]

    def support_batched_get(self) -> bool:
        return True

    async def batched_get(self, keys: Sequence[CacheEngineKey]) -> list[MemoryObj | None]:
        return await self._to_its_end(self._fetch([key.to_string() for key in keys]), _release)

    async def batched_get_non_blocking(self, lookup_id: str, keys: Sequence[CacheEngineKey]) -> list[MemoryObj]:
        found = await self.batched_get(keys)
        length = next((i for i, one in enumerate(found) if one is None), len(found))
        _release(found[length:])
        return [one for one in found[:length] if one is not None]

    async def put(self, key: CacheEngineKey, memory_obj: MemoryObj) -> None:
        memory_obj.ref_count_up()  # the caller's reference ends with this call, the transfer perhaps later
        await self._to_its_end(self._send([key.to_string()], [memory_obj]), lambda _: None)

    def support_batched_put(self) -> bool:
        return True

    async def batched_put(self, keys: Sequence[CacheEngineKey], memory_objs: Sequence[MemoryObj]) -> None:
        for one in memory_objs:
            one.ref_count_up()
        await self._to_its_end(self._send([key.to_string() for key in keys], memory_objs), lambda _: None)

    def remove_sync(self, key: CacheEngineKey) -> bool:
        return self._pages.delete([key.to_string()])[0]

    async def list(self) -> list[str]:
        return await self._on_thread(self._pages.names)

    def support_ping(self) -> bool:
        return True

    async def ping(self) -> int:
        return 0 if await self._on_thread(self._pages.ping) else -1

    async def close(self) -> None:
        while self._running:
            await asyncio.wait(self._running)
        self._threads.shutdown()
        self._pages.close()

    # ---- moving chunks ----

    async def _on_thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _to_its_end(self, work: Coroutine[Any, Any, Any], release: Callable[[Any], None]) -> Any:
        """Does `work`, also if the caller gives up on it: memory stays taken until no transfer uses it."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(lambda done: done.cancelled() or done.exception() or release(done.result()))
            raise

    async def _send(self, names: list[str], objects: Sequence[MemoryObj]) -> None:
        try:
            values = [[*self._head(one), _bytes_of(one)] for one in objects]
            await self._on_thread(lambda: self._pages.put(names, values))
        finally:
            for one in objects:
                one.ref_count_down()

    def _head(self, one: MemoryObj) -> list[bytes]:
        if not self.save_chunk_meta:
            return []
        meta = one.metadata
        shapes, dtypes = ([meta.shape], [meta.dtype]) if meta.shapes is None else (meta.shapes, meta.dtypes)
        return [RemoteMetadata(len(one.byte_array), shapes, dtypes, meta.fmt).serialize()]

    async def _fetch(self, names: list[str]) -> list[MemoryObj | None]:
        plans = await self._on_thread(lambda: self._plans(names))
        objects: list[MemoryObj | None] = []
        try:
            for plan in plans:
                objects.append(plan and self._backend.allocate(*plan))
            there = [i for i, one in enumerate(objects) if one is not None]
            heads = [bytearray(self._meta_bytes) for _ in there]
            rooms = [[*([head] if head else []), _bytes_of(objects[i])] for i, head in zip(there, heads)]
            counts = await self._on_thread(lambda: self._pages.get_into([names[i] for i in there], rooms))
            for i, head, count in zip(there, heads, counts):
                one, objects[i] = objects[i], None
                objects[i] = self._checked(one, bytes(head), count)
        except BaseException:
            _release(objects)
            raise
        return objects

    def _plans(self, names: list[str]) -> list[tuple[Any, Any, Any] | None]:
        """Shapes, dtypes and format of the memory that each chunk needs: a whole chunk's, or for layers what is stored there."""
        if not self._layerwise:
            return [(self.meta_shapes, self.meta_dtypes, self.meta_fmt)] * len(names)
        heads = self._pages.get_ranges(names, 0, self._meta_bytes)
        metas = [self._meta_in(head) if head is not None else None for head in heads]
        return [meta and (meta.shapes, meta.dtypes, meta.fmt) for meta in metas]

    def _checked(self, one: MemoryObj, head: bytes, count: int | None) -> MemoryObj | None:
        """What was read, in the object or another one that has its shape; None if that is not what was to come. Memory that is
        not returned is free."""
        size = (count or 0) - self._meta_bytes
        found = None
        try:
            if size <= 0:
                raise ValueError("nothing was read")
            if head:
                found = self._shaped(one, self._checked_head(one, head, size))
            else:
                found = one if size == len(one.byte_array) else self.reshape_partial_chunk(one, size)
        except ValueError as error:
            if count is not None:
                logger.warning("penstock: a chunk of %d bytes is another's: %s", count, error)
        finally:
            if found is not one:
                one.ref_count_down()
        return found

    def _shaped(self, one: MemoryObj, meta: RemoteMetadata) -> MemoryObj | None:
        """The object itself, or of a chunk with fewer tokens one that has their shape."""
        if meta.length == len(one.byte_array):
            return one
        part = self._backend.allocate(meta.shapes, meta.dtypes, meta.fmt)
        if part is not None:
            _bytes_of(part)[:] = _bytes_of(one)[:meta.length]
        return part

    def _checked_head(self, one: MemoryObj, head: bytes, size: int) -> RemoteMetadata:
        meta = self._meta_in(head)
        if meta is None or meta.length != size or meta.fmt != one.metadata.fmt:
            raise ValueError(f"its metadata are {meta}")
        token = 2 if len(one.metadata.shape) == 4 else 0
        for stored, wanted, dtype, kind in zip(meta.shapes, self._shapes_of(one), meta.dtypes, self._dtypes_of(one)):
            same = [a == b or i == token and a < b for i, (a, b) in enumerate(zip(stored, wanted))]
            if len(stored) != len(wanted) or not all(same) or dtype != kind:
                raise ValueError(f"it has {list(stored)} {dtype}, not {list(wanted)} {kind}")
        return meta

    def _meta_in(self, head: bytes) -> RemoteMetadata | None:
        """What is in front of a chunk; None unless its shapes have the length that it says, which no whole chunk exceeds."""
        try:
            meta = RemoteMetadata.deserialize(head)
            size = sum(math.prod(shape) * dtype.itemsize for shape, dtype in zip(meta.shapes, meta.dtypes))
        except (KeyError, ValueError, TypeError, AttributeError):
            return None
        positive = all(length > 0 for shape in meta.shapes for length in shape)
        return meta if positive and meta.length == size <= self.full_chunk_size_bytes else None

    @staticmethod
    def _shapes_of(one: MemoryObj) -> Sequence[Any]:
        return [one.metadata.shape] if one.metadata.shapes is None else one.metadata.shapes

    @staticmethod
    def _dtypes_of(one: MemoryObj) -> Sequence[Any]:
        return [one.metadata.dtype] if one.metadata.dtypes is None else one.metadata.dtypes


def _bytes_of(one: MemoryObj) -> memoryview:
    return memoryview(one.byte_array).cast("B")


def _release(objects: Sequence[MemoryObj | None]) -> None:
    for one in objects:
        if one is not None:
            one.ref_count_down()


class PenstockNativeConnector:
    """What LMCache's ``native_plugin`` L2 adapter calls: batches whose ends it learns by an eventfd.

    Each submit has one completion, also when it failed. A page that is larger or smaller than its buffer is missing.

    Parameters
    ----------
    url : str
        The store: ``penstock://HOST:PORT``, ``pool://...`` and the like; without it what ``PENSTOCK_URL`` names.
    prefix : str
        Of the keys.
    threads : int
        How many batches are underway at a time.
    """

    def __init__(self, url: str = "", prefix: str = "lmcache-l2/", threads: int = THREADS) -> None:
        self._pages = Pages(address_of(url, "adapter_params has no url"), prefix)
        self._threads = ThreadPoolExecutor(threads, "penstock-lmcache-l2")
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._numbers = itertools.count(1)
        self._done: list[tuple[int, bool, str, list[bool] | None]] = []
        self._lock = threading.Lock()

    def event_fd(self) -> int:
        """Readable when there is a completion."""
        return self._fd

    def submit_batch_get(self, keys: list[str], views: list[memoryview]) -> int:
        """Read pages into buffers of exactly their sizes."""
        def get() -> list[bool]:
            rooms = [memoryview(view).cast("B") for view in views]
            return [count == len(room) for count, room in zip(self._pages.get_into(keys, rooms), rooms)]
        return self._submit(get, False)

    def submit_batch_set(self, keys: list[str], views: list[memoryview]) -> int:
        """Put pages. One that could not be put fails the batch."""
        return self._submit(lambda: self._pages.put(keys, [memoryview(view).cast("B") for view in views]), True)

    def submit_batch_exists(self, keys: list[str]) -> int:
        return self._submit(lambda: self._pages.exists(keys), False)

    def submit_batch_delete(self, keys: list[str]) -> int:
        return self._submit(lambda: self._pages.delete(keys), False)

    def _submit(self, call: Callable[[], list[bool]], whole: bool) -> int:
        number = next(self._numbers)

        def run() -> None:
            try:
                answers = call()
                ok = all(answers) or not whole
                end = (number, ok, "" if ok else f"{answers.count(False)} of {len(answers)} pages were not put", answers)
            except Exception as error:  # a buffer that is none: the adapter waits for an end all the same
                end = (number, False, f"{type(error).__name__}: {error}", None)
            with self._lock:
                self._done.append(end)
                if self._fd >= 0:
                    os.eventfd_write(self._fd, 1)
        self._threads.submit(run)
        return number

    def drain_completions(self) -> list[tuple[int, bool, str, list[bool] | None]]:
        """What has ended since the last call: number, whether it was done, why not, and an answer for each key."""
        with self._lock:
            try:
                os.eventfd_read(self._fd)
            except BlockingIOError:
                pass
            done, self._done = self._done, []
            return done

    def close(self) -> None:
        """End it when what is underway has ended. Does nothing the second time."""
        self._threads.shutdown()
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)
        self._pages.close()
