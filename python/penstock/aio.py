# SPDX-License-Identifier: Apache-2.0
"""The store for asyncio: what is begun in one turn of the event loop travels together."""
from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .records import Entry, Event, KeyStat

if TYPE_CHECKING:
    from ._core import Key, Room, Value
    from .store import Store, StoreStat, View

__all__ = ["AsyncStore"]

P = ParamSpec("P")
T = TypeVar("T")

# Operations and flags of penstock.h.
_PUT, _GET, _STAT_KEY, _DELETE = 1, 2, 3, 4
_IF_ABSENT, _CHECKSUM, _DURABLE = 1, 4, 64
_LIST_ENTRIES = 512
_COPY_BYTES = 1 << 20


class AsyncStore:
    """A store's calls as coroutines, for one event loop: ``store.aio``.

    Values and memory are borrowed until the operation has ended, also when the coroutine that waits for it is cancelled: a
    cancelled put may be applied, and the buffer of a cancelled ``get_into`` may be written until then.

    Operations and batches go through a queue of the store. Listings and what is rarely called run in threads; on ``mem:``
    so do batches of puts and gets, and puts and gets into memory of 1 MiB and more, which are copies there.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._queue = store.queue()
        self._added: list[asyncio.Future[Any]] = []
        self._reading = False
        self._copies = store.lane == "memory"

    def _begin(self, code: int, key: Key, data: object = None, a: int | None = None, b: int | None = None,
               wait: float | None = None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queue.add(future, code, key, data, a, b, wait)
        self._add(future)
        return future

    async def _many(self, code: int, items: list[tuple[Key, object, int | None, int | None]]) -> list[Any]:
        if not items:
            return []
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        self._queue.add_many(future, code, items)
        self._add(future)
        return await future

    def _add(self, future: asyncio.Future[Any]) -> None:
        if not self._added:
            self._loop.call_soon(self._flush)
        self._added.append(future)

    def _flush(self) -> None:
        added, self._added = self._added, []
        try:
            self._queue.flush()
            self._collect()
            if self._queue.underway and not self._reading:
                self._loop.add_reader(self._queue.fileno(), self._read)
                self._reading = True
                self._collect()  # what ended before there was a descriptor
        except Exception as error:
            for future in added:
                if not future.done():
                    future.set_exception(error)

    def _collect(self) -> int:
        ended = self._queue.reap()
        for future, result in ended:
            if future.done():
                continue  # cancelled meanwhile
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
        return len(ended)

    def _read(self) -> None:
        # The descriptor wakes now and then as long as someone looks at it.
        if not self._collect() and not self._queue.underway:
            self._loop.remove_reader(self._queue.fileno())
            self._reading = False

    async def _in_thread(self, call: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> T:
        return await asyncio.to_thread(call, *args, **keywords)

    # ---- one key ----

    async def put(self, key: Key, value: Value, *, if_absent: bool = False, if_generation: int | None = None,
                  checksum: bool = False, depth: int | None = None, attrs: bytes | None = None,
                  ttl: float | None = None, durable: bool = False) -> int:
        """See :meth:`penstock.Store.put`."""
        rare = depth is not None or attrs is not None or ttl is not None or (if_absent and if_generation is not None)
        if rare or (self._copies and _is_large(value)):
            return await self._in_thread(self._store.put, key, value, if_absent=if_absent, if_generation=if_generation,
                                         checksum=checksum, depth=depth, attrs=attrs, ttl=ttl, durable=durable)
        flags = _flags(if_absent, checksum, durable)
        generation: int = await self._begin(_PUT, key, value, if_generation, flags)
        return generation

    async def get(self, key: Key, *, offset: int | None = None, length: int | None = None,
                  wait: float | None = None) -> bytes:
        """See :meth:`penstock.Store.get`."""
        if length is None and offset is not None:
            if offset >= 0:  # how long it is remains to be asked
                return await self._in_thread(self._store.get, key, offset=offset, wait=wait)
            length = -offset
        if length is not None and offset is None:
            offset = 0
        value: bytes = await self._begin(_GET, key, None, offset, length, wait)
        return value

    async def get_into(self, key: Key, buffer: Room, *, offset: int | None = None, wait: float | None = None) -> int:
        """See :meth:`penstock.Store.get_into`."""
        if self._copies and _is_large(buffer):
            return await self._in_thread(self._store.get_into, key, buffer, offset=offset, wait=wait)
        count: int = await self._begin(_GET, key, buffer, offset, None, wait)
        return count

    async def exists(self, key: Key) -> bool:
        """See :meth:`penstock.Store.exists`."""
        found: bool = await self._begin(_STAT_KEY, key)
        return found

    async def delete(self, key: Key, *, if_generation: int | None = None) -> bool:
        """See :meth:`penstock.Store.delete`."""
        found: bool = await self._begin(_DELETE, key, None, if_generation)
        return found

    async def view(self, key: Key) -> View:
        """See :meth:`penstock.Store.view`."""
        return await self._in_thread(self._store.view, key)

    async def head(self, key: Key) -> KeyStat:
        """See :meth:`penstock.Store.head`."""
        return await self._in_thread(self._store.head, key)

    # ---- many keys ----

    async def put_many(self, items: Mapping[Key, Value] | Iterable[tuple[Key, Value]], *, if_absent: bool = False,
                       checksum: bool = False, depth: int | None = None, durable: bool = False) -> list[int]:
        """See :meth:`penstock.Store.put_many`."""
        if self._copies or depth is not None:
            return await self._in_thread(self._store.put_many, items, if_absent=if_absent, checksum=checksum, depth=depth,
                                         durable=durable)
        flags = _flags(if_absent, checksum, durable)
        pairs = items.items() if isinstance(items, Mapping) else items
        return await self._many(_PUT, [(key, value, None, flags) for key, value in pairs])

    async def get_many(self, keys: Iterable[Key], *, ranges: list[tuple[int, int]] | None = None) -> list[bytes | None]:
        """See :meth:`penstock.Store.get_many`."""
        if self._copies:
            return await self._in_thread(self._store.get_many, keys, ranges=ranges)
        if ranges is None:
            return await self._many(_GET, [(key, None, None, None) for key in _each(keys)])
        return await self._many(_GET, [(key, None, offset, length)
                                       for key, (offset, length) in zip(_each(keys), ranges, strict=True)])

    async def get_into_many(self, keys: Iterable[Key], buffers: Iterable[Room], *,
                            offsets: list[int] | None = None) -> list[int | None]:
        """See :meth:`penstock.Store.get_into_many`."""
        if self._copies:
            return await self._in_thread(self._store.get_into_many, keys, buffers, offsets=offsets)
        places: Iterable[int | None] = itertools.repeat(None) if offsets is None else offsets
        pairs = list(zip(_each(keys), buffers, strict=True))
        return await self._many(_GET, [(key, buffer, offset, None) for (key, buffer), offset
                                       in zip(pairs, places, strict=offsets is not None)])

    async def exists_many(self, keys: Iterable[Key]) -> list[bool]:
        """See :meth:`penstock.Store.exists_many`."""
        return await self._many(_STAT_KEY, [(key, None, None, None) for key in _each(keys)])

    async def delete_many(self, keys: Iterable[Key]) -> list[bool]:
        """See :meth:`penstock.Store.delete_many`."""
        return await self._many(_DELETE, [(key, None, None, None) for key in _each(keys)])

    async def delete_prefix(self, prefix: Key) -> int:
        """See :meth:`penstock.Store.delete_prefix`."""
        return await self._in_thread(self._store.delete_prefix, prefix)

    async def list(self, prefix: Key = "", *, start: Key | None = None,
                   end: Key | None = None) -> AsyncIterator[Entry]:
        """See :meth:`penstock.Store.list`."""
        listing = await self._in_thread(self._store.list, prefix, start=start, end=end)
        while entries := await self._in_thread(tuple, itertools.islice(listing, _LIST_ENTRIES)):
            for entry in entries:
                yield entry

    async def watch(self, prefix: Key = "") -> AsyncIterator[Event]:
        """See :meth:`penstock.Store.watch`. Watching begins with the first event that is waited for."""
        with await self._in_thread(self._store.watch, prefix) as watch:
            readable = asyncio.Event()
            self._loop.add_reader(watch.fileno(), readable.set)
            try:
                while True:
                    readable.clear()
                    while (event := watch.poll()) is not None:
                        yield event
                    await readable.wait()
            finally:
                self._loop.remove_reader(watch.fileno())

    async def flush(self) -> None:
        """See :meth:`penstock.Store.flush`."""
        await self._in_thread(self._store.flush)

    async def stat(self) -> StoreStat:
        """See :meth:`penstock.Store.stat`."""
        return await self._in_thread(self._store.stat)


def _flags(if_absent: bool, checksum: bool, durable: bool) -> int | None:
    """Of a put, as the queue takes them."""
    return (_IF_ABSENT if if_absent else 0) | (_CHECKSUM if checksum else 0) | (_DURABLE if durable else 0) or None


def _each(keys: Iterable[Key]) -> Iterable[Key]:
    """Text or bytes are one key, and no keys."""
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"keys must be an iterable of keys, not {type(keys).__name__}")
    return keys


def _is_large(value: Any) -> bool:
    """Whether copying takes long enough for others to wait for it."""
    try:
        return memoryview(value).nbytes >= _COPY_BYTES
    except TypeError:  # pieces, an address; or no value, which is said where it is borrowed
        return isinstance(value, (list, tuple))
