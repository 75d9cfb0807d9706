# SPDX-License-Identifier: Apache-2.0
"""A zarr (v3) store in penstock.

>>> import zarr
>>> from penstock.zarr import PenstockStore
>>> store = PenstockStore("node+unix:///run/penstock.sock", "experiment")
>>> array = zarr.create_array(store, name="a", shape=(64, 1024), chunks=(1, 1024), dtype="f4")

Chunks and metadata are keys below the prefix. What is asked for at the same time travels together: zarr's event loop
queues requests, and a few threads carry them out, as many at a time as wait. Whole chunks are read in place where the store
shares memory; zarr's decoding is then the only copy.
"""
from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from . import Store as Handle
from ._places import keep_or_warn, shared_store, view_or_none
from ._tree import children, is_directory
from .errors import Exists, Invalid
from .records import key_bytes

__all__ = ["PenstockStore"]

THREADS = 4
BATCH_MAX = 5  # requests that one thread takes at a time
LINGER_S = 0.01
LISTING_PAGE = 1000
T = TypeVar("T")

_Call = tuple[asyncio.AbstractEventLoop, Callable[[], Any], "asyncio.Future[Any]"]
_Ended = tuple["asyncio.Future[Any]", Any, BaseException | None]  # with what it came to


class _Threads:
    """A few threads that carry out what event loops ask for, in the order in which it comes.

    Each takes what waits, up to a few calls, and stays a moment for more: to wake one costs an event loop less than to
    hand work to a pool.
    """

    def __init__(self) -> None:
        self.waiting: collections.deque[_Call] = collections.deque()
        self.lock = threading.Lock()
        # No SimpleQueue: where several wait, CPython's get(timeout) may wait without an end.
        self.more = threading.Condition(self.lock)
        self.working = 0

    def call(self, loop: asyncio.AbstractEventLoop, work: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = loop.create_future()
        with self.lock:
            self.waiting.append((loop, work, future))
            starts = self.working < THREADS
            self.working += starts
            self.more.notify()
        if starts:
            self._start()
        return future

    def _start(self) -> None:
        try:
            threading.Thread(target=self._work, name="penstock-zarr").start()
        except RuntimeError as error:  # there can be no more threads, or the interpreter ends: others do it, or nobody
            with self.lock:
                self.working -= 1
                if self.working:
                    return
                lost, self.waiting = self.waiting, collections.deque()
            for loop, _, future in lost:
                _tell(loop, [(future, None, error)])

    def _take(self) -> list[_Call]:
        """What waits, up to a few calls; none when none came for a moment, and this thread is not counted any more."""
        with self.lock:
            while not self.waiting:
                if not self.more.wait(LINGER_S) and not self.waiting:
                    self.working -= 1
                    return []
            return [self.waiting.popleft() for _ in range(min(len(self.waiting), BATCH_MAX))]

    def _work(self) -> None:
        while calls := self._take():
            _carry_out(calls)
            del calls  # and what they hold, while this waits


def _carry_out(calls: list[_Call]) -> None:
    ended: dict[asyncio.AbstractEventLoop, list[_Ended]] = {}
    together = _put_together([work for _, work, _ in calls if isinstance(work, _Put)])
    for loop, work, future in calls:
        try:
            outcome: tuple[Any, BaseException | None] = None if work in together else work(), None
        except BaseException as error:  # whatever it is belongs to who waits
            outcome = None, error
        ended.setdefault(loop, []).append((future, *outcome))
    for loop, futures in ended.items():
        _tell(loop, futures)


def _tell(loop: asyncio.AbstractEventLoop, ended: list[_Ended]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
        loop.call_soon_threadsafe(_settle, ended)


_threads = _Threads()


def _fresh_threads() -> None:
    """A forked child has none of its parent's threads."""
    global _threads
    _threads = _Threads()


os.register_at_fork(after_in_child=_fresh_threads)


class _Put:
    """A value to be stored; alone, where it could not be with others."""

    def __init__(self, store: PenstockStore, name: str, data: Any) -> None:
        self.store, self.name, self.data = store, name, data

    def __call__(self) -> None:
        self.store._handle.put(self.name, self.data)


def _put_together(puts: list[_Put]) -> list[_Put]:
    """Store values in one go, where they go to one store; those that are stored."""
    if len(puts) < 2 or any(put.store is not puts[0].store for put in puts):
        return []
    try:
        puts[0].store._handle.put_many([(put.name, put.data) for put in puts])
    except Exception:  # each alone tells its own
        return []
    return puts


def _settle(ended: list[_Ended]) -> None:
    for future, result, error in ended:
        if future.done():  # cancelled
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _range_of(byte_range: ByteRequest) -> tuple[int, int | None]:
    """Offset (negative: from the end) and length (None: all that is left)."""
    if isinstance(byte_range, RangeByteRequest):
        return byte_range.start, byte_range.end - byte_range.start
    if isinstance(byte_range, OffsetByteRequest):
        return byte_range.offset, None
    if isinstance(byte_range, SuffixByteRequest):
        return -byte_range.suffix, None
    raise TypeError(f"Unexpected byte_range, got {byte_range}.")


class PenstockStore(Store):
    """Zarr arrays and groups in a penstock store, below a prefix.

    Parameters
    ----------
    url : str
        As of :func:`penstock.open`. Stores of one process with the same URL and options share one connection, or with
        ``mem:`` one memory, as long as one of them is in use.
    prefix : str
        In front of all keys, with a slash behind it; empty: the whole store. Should be of class `keep`
        (`CacheWarning` otherwise): an evicted chunk would read as the fill value.
    read_only : bool
    **options
        `secret_file`, `timeout`, `connect_timeout`, as of :func:`penstock.open`.

    Notes
    -----
    Pickled by URL: another process opens a connection of its own. With ``mem:`` only the process itself, and not
    another one, can unpickle it.
    """

    supports_writes: bool = True
    supports_deletes: bool = True
    supports_listing: bool = True

    def __init__(self, url: str = "mem:", prefix: str = "", *, read_only: bool = False, **options: Any) -> None:
        super().__init__(read_only=read_only)
        self.url = url
        self.prefix = prefix.strip("/")
        self._options = options
        self._root = f"{self.prefix}/" if self.prefix else ""
        self._embedded = url.startswith("mem:")
        self._process = 0
        self._views = True

    @property
    def _handle(self) -> Handle:
        """The store of this process; after a fork the child's own."""
        if self._process != os.getpid():
            self._shared = shared_store(self.url, **self._options)
            self._process = os.getpid()
        return self._shared

    def _call(self, work: Callable[[], T], *, short: bool = False) -> Awaitable[T]:
        """Carry `work` out without holding the event loop up. What is `short` on a store in this process is done at once."""
        self._handle
        loop = asyncio.get_running_loop()
        if short and self._embedded:
            future: asyncio.Future[T] = loop.create_future()
            future.set_result(work())
            return future
        return _threads.call(loop, work)

    # ---- what it is

    def with_read_only(self, read_only: bool = False) -> PenstockStore:
        return type(self)(self.url, self.prefix, read_only=read_only, **self._options)

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, type(self)) and self.url == other.url and self.prefix == other.prefix
                and self._options == other._options)

    def __str__(self) -> str:
        return f"penstock+{self.url}#{self._root}"

    def __repr__(self) -> str:
        return f"PenstockStore({self.url!r}, {self.prefix!r})"

    def __getstate__(self) -> dict[str, Any]:
        state = {name: self.__dict__[name] for name in ("url", "prefix", "_options", "_read_only", "_is_open")}
        return state | {"process": os.getpid()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["url"].startswith("mem:") and state["process"] != os.getpid():
            raise ValueError(f"{state['url']!r} is memory of process {state['process']}: another one cannot open it")
        self.__init__(state["url"], state["prefix"], **state["_options"])  # type: ignore[misc]
        self._read_only, self._is_open = state["_read_only"], state["_is_open"]

    def close(self) -> None:
        super().close()
        self.__dict__.pop("_shared", None)
        self._process = 0

    # ---- reading

    def _view(self, key: str) -> Any:
        """A view, or the value's bytes; KeyError when there is no such key."""
        if self._views:
            view = view_or_none(self._handle, key)
            if view is not None:
                return view
            self._views = False
        return self._handle.get(key)

    def _range(self, key: str, offset: int, length: int | None) -> bytes:
        """A range, or what of it is inside of the value."""
        try:
            return self._handle.get(key, offset=offset, length=length)
        except Invalid:
            value = self._handle.get(key)
            start = max(0, len(value) + offset) if offset < 0 else offset
            return value[start:] if length is None else value[start:start + length]

    def get_sync(self, key: str, *, prototype: BufferPrototype | None = None,
                 byte_range: ByteRequest | None = None) -> Buffer | None:
        """What :meth:`get` does, in the calling thread."""
        buffer = (prototype or default_buffer_prototype()).buffer
        try:
            if byte_range is None:
                return buffer.from_bytes(self._view(self._root + key))
            return buffer.from_bytes(self._range(self._root + key, *_range_of(byte_range)))
        except KeyError:
            return None

    async def get(self, key: str, prototype: BufferPrototype | None = None,
                  byte_range: ByteRequest | None = None) -> Buffer | None:
        self._is_open = True
        return await self._call(lambda: self.get_sync(key, prototype=prototype, byte_range=byte_range),
                                short=byte_range is None)

    async def get_partial_values(self, prototype: BufferPrototype,
                                 key_ranges: Iterable[tuple[str, ByteRequest | None]]) -> list[Buffer | None]:
        return list(await asyncio.gather(*(self.get(key, prototype, byte_range) for key, byte_range in key_ranges)))

    async def exists(self, key: str) -> bool:
        return await self._call(lambda: self._handle.exists(self._root + key), short=True)

    async def getsize(self, key: str) -> int:
        try:
            return (await self._call(lambda: self._handle.head(self._root + key), short=True)).size
        except KeyError:
            raise FileNotFoundError(key) from None

    async def getsize_prefix(self, prefix: str) -> int:
        directory = self._directory(prefix)
        return await self._call(lambda: sum(entry.size for entry in self._handle.list(directory)))

    # ---- writing

    def _put(self, key: str, value: Buffer, if_absent: bool = False) -> None:
        if not isinstance(value, Buffer):
            raise TypeError(f"value must be a zarr Buffer, not {type(value).__name__}")
        name = self._root + key
        self._handle.put(name, value.as_buffer_like(), if_absent=if_absent)
        if key.endswith(".json"):  # one key of each node of the hierarchy says enough
            keep_or_warn(self._handle, name)

    def set_sync(self, key: str, value: Buffer) -> None:
        """What :meth:`set` does, in the calling thread."""
        self._check_writable()
        self._is_open = True
        self._put(key, value)

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        self._is_open = True
        if key.endswith(".json") or not isinstance(value, Buffer):
            await self._call(lambda: self._put(key, value))
        else:
            await self._call(_Put(self, self._root + key, value.as_buffer_like()))

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        self._check_writable()
        with contextlib.suppress(Exists):
            await self._call(lambda: self._put(key, value, if_absent=True))

    def delete_sync(self, key: str) -> None:
        """What :meth:`delete` does, in the calling thread."""
        self._check_writable()
        self._handle.delete(self._root + key)

    async def delete(self, key: str) -> None:
        self._check_writable()
        await self._call(lambda: self._handle.delete(self._root + key), short=True)

    async def delete_dir(self, prefix: str) -> None:
        self._check_writable()
        directory = self._directory(prefix)
        await self._call(lambda: self._handle.delete_prefix(directory))

    async def clear(self) -> None:
        self._check_writable()
        await self._call(lambda: self._handle.delete_prefix(self._root))

    # ---- listing

    def _directory(self, prefix: str) -> str:
        prefix = prefix.strip("/")
        return f"{self._root}{prefix}/" if prefix else self._root

    async def is_empty(self, prefix: str) -> bool:
        directory = key_bytes(self._directory(prefix))
        return not await self._call(lambda: is_directory(self._handle, directory))

    async def _paged(self, names: Iterator[str]) -> AsyncIterator[str]:
        while page := await self._call(lambda: list(itertools.islice(names, LISTING_PAGE))):
            for name in page:
                yield name

    def list(self) -> AsyncIterator[str]:
        return self.list_prefix("")

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        skip = len(key_bytes(self._root))
        entries = self._handle.list(self._root + prefix)
        return self._paged(entry.key[skip:].decode("utf-8", "surrogateescape") for entry in entries)

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        directory = key_bytes(self._directory(prefix))
        names = (child.name.decode("utf-8", "surrogateescape") for child in children(self._handle, directory))
        return self._paged(name for name, _ in itertools.groupby(names))
