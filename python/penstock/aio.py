# SPDX-License-Identifier: Apache-2.0
"""The store for asyncio: what is begun in one turn of the event loop travels together."""
from __future__ import annotations

import asyncio
import builtins
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, SupportsFloat, TypeVar

from . import _core, tracing
from .errors import Lost, NotFound
from .records import Entry, Event, KeyStat, PoolNode, each_key

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from ._core import Key, Reservation, Room, Stream, Value, Writable
    from .arrays import Array
    from .store import Store, StoreStat, View

__all__ = ["AsyncStore"]

P = ParamSpec("P")
T = TypeVar("T")

# Operations and flags of penstock.h.
_PUT, _GET, _STAT_KEY, _DELETE = 1, 2, 3, 4
_IF_ABSENT, _CHECKSUM, _DURABLE = 1, 4, 64
_LIST_ENTRIES = 512
_COPY_BYTES = 1 << 20
_WAIT_SLICE_S = 0.5  # how long an operation may go on waiting for its key when nobody waits for it any more
_WAIT_S_MAX = 86400
_RAISE = object()


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
        self._trace: str | None = None  # of what was added

    def _begin(self, code: int, key: Key, data: object = None, a: int | None = None, b: int | None = None,
               wait: float | None = None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._keep_traces_apart()
        self._queue.add(future, code, key, data, a, b, wait)
        self._add(future)
        return future

    async def _many(self, code: int, items: list[tuple[Key, object, int | None, int | None]]) -> list[Any]:
        if not items:
            return []
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        self._keep_traces_apart()
        self._queue.add_many(future, code, items)
        self._add(future)
        return await future

    def _add(self, future: asyncio.Future[Any]) -> None:
        if not self._added:
            self._loop.call_soon(self._flush)
        self._added.append(future)

    def _keep_traces_apart(self) -> None:
        # What travels together belongs to one trace.
        trace = tracing.current() if tracing.used() else None
        if self._added and trace != self._trace:
            self._flush()
        self._trace = trace

    def _flush(self) -> None:
        added, self._added = self._added, []
        try:
            if tracing.used():
                _core._trace(self._trace)
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

    def __repr__(self) -> str:
        return f"<penstock.AsyncStore of {self._store.url}>"

    async def _in_thread(self, call: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> T:
        return await asyncio.to_thread(call, *args, **keywords)

    async def _in_slices(self, wait: float | None, get: Callable[[float | None], Awaitable[T]]) -> T:
        """What `get(seconds)` gives, which waits for its key: slice by slice, so that the last one is over soon after this is
        cancelled. Who ends the queue or the loop's threads waits for that."""
        if not isinstance(wait, SupportsFloat) or not _WAIT_SLICE_S < float(wait) <= _WAIT_S_MAX:
            return await get(wait)  # which says what is wrong with it
        until = self._loop.time() + float(wait)
        while True:
            left = until - self._loop.time()
            try:
                return await get(max(0.0, min(left, _WAIT_SLICE_S)))
            except (NotFound, Lost):
                if left <= _WAIT_SLICE_S or self._store.closed:
                    raise

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

    async def get(self, key: Key, default: Any = _RAISE, *, offset: int | None = None, length: int | None = None,
                  wait: float | None = None, if_generation: int | None = None) -> Any:
        """See :meth:`penstock.Store.get`."""
        try:
            if if_generation is not None or (length is None and offset is not None and offset >= 0):
                # Of the latter it remains to be asked how long it is.
                return await self._in_slices(wait, lambda wait: self._in_thread(
                    self._store.get, key, offset=offset, length=length, wait=wait, if_generation=if_generation))
            if length is None and offset is not None:
                length = -offset
            if length is not None and offset is None:
                offset = 0
            return await self._in_slices(wait, lambda wait: self._begin(_GET, key, None, offset, length, wait))
        except NotFound:
            if default is _RAISE:
                raise
            return default

    async def get_into(self, key: Key, buffer: Room, *, offset: int | None = None, length: int | None = None,
                       wait: float | None = None, if_generation: int | None = None) -> int:
        """See :meth:`penstock.Store.get_into`."""
        if length is not None or if_generation is not None or (self._copies and _is_large(buffer)):
            return await self._in_slices(wait, lambda wait: self._in_thread(
                self._store.get_into, key, buffer, offset=offset, length=length, wait=wait, if_generation=if_generation))
        count: int = await self._in_slices(wait, lambda wait: self._begin(_GET, key, buffer, offset, None, wait))
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
            return await self._many(_GET, [(key, None, None, None) for key in each_key(keys)])
        return await self._many(_GET, [(key, None, offset, length)
                                       for key, (offset, length) in zip(each_key(keys), ranges, strict=True)])

    async def get_into_many(self, keys: Iterable[Key], buffers: Iterable[Room], *,
                            offsets: list[int] | None = None) -> list[int | None]:
        """See :meth:`penstock.Store.get_into_many`."""
        if self._copies:
            return await self._in_thread(self._store.get_into_many, keys, buffers, offsets=offsets)
        places: Iterable[int | None] = itertools.repeat(None) if offsets is None else offsets
        pairs = list(zip(each_key(keys), buffers, strict=True))
        return await self._many(_GET, [(key, buffer, offset, None) for (key, buffer), offset
                                       in zip(pairs, places, strict=offsets is not None)])

    async def exists_many(self, keys: Iterable[Key]) -> list[bool]:
        """See :meth:`penstock.Store.exists_many`."""
        return await self._many(_STAT_KEY, [(key, None, None, None) for key in each_key(keys)])

    async def delete_many(self, keys: Iterable[Key]) -> list[bool]:
        """See :meth:`penstock.Store.delete_many`."""
        return await self._many(_DELETE, [(key, None, None, None) for key in each_key(keys)])

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

    async def keys(self, prefix: Key = "") -> AsyncIterator[str]:
        """See :meth:`penstock.Store.keys`."""
        async for entry in self.list(prefix):
            yield entry.name

    async def items(self, prefix: Key = "") -> AsyncIterator[tuple[str, bytes]]:
        """See :meth:`penstock.Store.items`."""
        items = self._store.items(prefix)
        while (item := await self._in_thread(next, items, None)) is not None:
            yield item

    async def values(self, prefix: Key = "") -> AsyncIterator[bytes]:
        """See :meth:`penstock.Store.values`."""
        async for _, value in self.items(prefix):
            yield value

    # ---- what is rarely called, in threads ----

    async def delete_range(self, start: Key, end: Key | None = None) -> int:
        """See :meth:`penstock.Store.delete_range`."""
        return await self._in_thread(self._store.delete_range, start, end)

    async def clear(self) -> int:
        """See :meth:`penstock.Store.clear`."""
        return await self._in_thread(self._store.clear)

    async def pop(self, key: Key, default: Any = _RAISE) -> Any:
        """See :meth:`penstock.Store.pop`."""
        return await self._in_thread(self._store.pop, key, *(() if default is _RAISE else (default,)))

    async def setdefault(self, key: Key, default: Value) -> bytes:
        """See :meth:`penstock.Store.setdefault`."""
        return await self._in_thread(self._store.setdefault, key, default)

    async def update(self, items: Mapping[Key, Value] | Iterable[tuple[Key, Value]] = (), /, **more: Value) -> None:
        """See :meth:`penstock.Store.update`."""
        await self._in_thread(self._store.update, items, **more)

    async def pin(self, key: Key, seconds: float | None = None) -> None:
        """See :meth:`penstock.Store.pin`."""
        await self._in_thread(self._store.pin, key, seconds)

    async def unpin(self, key: Key) -> None:
        """See :meth:`penstock.Store.unpin`."""
        await self._in_thread(self._store.unpin, key)

    async def commit(self, puts: Mapping[Key, Value] | None = None, *, deletes: Iterable[Key] = (),
                     checks: Mapping[Key, int] | None = None) -> dict[Key, int]:
        """See :meth:`penstock.Store.commit`."""
        return await self._in_thread(self._store.commit, puts, deletes=deletes, checks=checks)

    async def stream(self, key: Key, **options: Any) -> Stream:
        """See :meth:`penstock.Store.stream`; what is written to it waits for the store, so write in a thread."""
        return await self._in_thread(self._store.stream, key, **options)

    async def reserve(self, key: Key, nbytes: int | None = None, **options: Any) -> Reservation:
        """See :meth:`penstock.Store.reserve`; write to it in a thread."""
        return await self._in_thread(self._store.reserve, key, nbytes, **options)

    async def reserve_many(self, items: Mapping[Key, int | None] | Iterable[tuple[Key, int | None]], *, depth: int | None = None,
                           replace: bool = False) -> builtins.list[Reservation]:
        """See :meth:`penstock.Store.reserve_many`."""
        return await self._in_thread(self._store.reserve_many, items, depth=depth, replace=replace)

    async def commit_many(self, reservations: Iterable[Reservation], *, durable: bool = False) -> builtins.list[int]:
        """See :meth:`penstock.Store.commit_many`."""
        return await self._in_thread(self._store.commit_many, reservations, durable=durable)

    async def put_array(self, key: Key, array: object, *, if_absent: bool = False, if_generation: int | None = None,
                        checksum: bool = False) -> int:
        """See :meth:`penstock.Store.put_array`."""
        return await self._in_thread(self._store.put_array, key, array, if_absent=if_absent, if_generation=if_generation,
                                     checksum=checksum)

    async def get_array(self, key: Key, *, out: Array | None = None, copy: bool | None = None) -> Array:
        """See :meth:`penstock.Store.get_array`."""
        return await self._in_thread(self._store.get_array, key, out=out, copy=copy)

    async def nodes(self) -> builtins.list[PoolNode]:
        """See :meth:`penstock.Store.nodes`."""
        return await self._in_thread(self._store.nodes)

    async def drain(self, node: PoolNode | str) -> None:
        """See :meth:`penstock.Store.drain`."""
        await self._in_thread(self._store.drain, node)

    async def undrain(self, node: PoolNode | str) -> None:
        """See :meth:`penstock.Store.undrain`."""
        await self._in_thread(self._store.undrain, node)

    async def forgive(self) -> None:
        """See :meth:`penstock.Store.forgive`."""
        await self._in_thread(self._store.forgive)

    async def report_blocks(self, node_id: ReadableBuffer, tier: int, names: Iterable[Key]) -> int:
        """See :meth:`penstock.Store.report_blocks`."""
        return await self._in_thread(self._store.report_blocks, node_id, tier, names)

    async def revoke_blocks(self, node_id: ReadableBuffer, tier: int, names: Iterable[Key] | None = None) -> None:
        """See :meth:`penstock.Store.revoke_blocks`."""
        await self._in_thread(self._store.revoke_blocks, node_id, tier, names)

    async def match_blocks(self, names: Iterable[Key], *, hit: bool = False) -> builtins.list[tuple[bytes, str, int, bytes]]:
        """See :meth:`penstock.Store.match_blocks`."""
        return await self._in_thread(self._store.match_blocks, names, hit=hit)

    async def block_hits(self, names: Iterable[Key]) -> builtins.list[int]:
        """See :meth:`penstock.Store.block_hits`."""
        return await self._in_thread(self._store.block_hits, names)

    async def register(self, buffer: Writable) -> None:
        """See :meth:`penstock.Store.register`."""
        await self._in_thread(self._store.register, buffer)

    async def deregister(self, buffer: Writable) -> None:
        """See :meth:`penstock.Store.deregister`."""
        await self._in_thread(self._store.deregister, buffer)

    async def ping(self) -> float:
        """See :meth:`penstock.Store.ping`."""
        return await self._in_thread(self._store.ping)

    async def flush(self) -> None:
        """See :meth:`penstock.Store.flush`."""
        await self._in_thread(self._store.flush)

    async def stat(self) -> StoreStat:
        """See :meth:`penstock.Store.stat`."""
        return await self._in_thread(self._store.stat)


def _flags(if_absent: bool, checksum: bool, durable: bool) -> int | None:
    """Of a put, as the queue takes them."""
    return (_IF_ABSENT if if_absent else 0) | (_CHECKSUM if checksum else 0) | (_DURABLE if durable else 0) or None


def _is_large(value: Any) -> bool:
    """Whether copying takes long enough for others to wait for it."""
    try:
        return memoryview(value).nbytes >= _COPY_BYTES
    except TypeError:  # pieces, an address; or no value, which is said where it is borrowed
        return isinstance(value, (list, tuple))
