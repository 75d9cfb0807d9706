# SPDX-License-Identifier: Apache-2.0
"""The extension: C over libpenstock's public calls. Use it through the package."""
import builtins
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, Union, overload

from _typeshed import ReadableBuffer, WriteableBuffer

from .records import Entry, Event, KeyStat, PoolNode

KEY_BYTES_MAX: int
ATTR_BYTES_MAX: int

T = TypeVar("T")
Key = Union[str, ReadableBuffer]
Address = tuple[int, int]
"""Address and bytes of memory that outlives the call."""
Readable = Union[ReadableBuffer, Address]
Writable = Union[WriteableBuffer, Address]
Value = Union[Readable, Sequence[Readable]]
Room = Union[Writable, Sequence[Writable]]


def _trace(traceparent: str | None) -> None: ...


class View:
    """A value read in place, as a read-only buffer: ``memoryview(view)``, ``numpy.frombuffer(view)``, ``numpy.from_dlpack(view)``.

    The bytes stay as they are whatever happens to the key. The pin that keeps them ends with the last buffer that was
    handed out, once the view is released: by :meth:`release`, the end of its ``with`` block, or with the object.
    Anything but :meth:`release` raises ValueError afterwards.
    """

    @property
    def nbytes(self) -> int:
        """Bytes of the value."""
    @property
    def generation(self) -> int:
        """Of the value that is seen."""
    @property
    def released(self) -> bool:
        """Whether :meth:`release` was called."""
    def release(self) -> None:
        """Give the value up. Does nothing the second time."""
    def tobytes(self) -> bytes:
        """A copy of the value. Other threads run meanwhile, which they do not with ``bytes(view)``."""
    def __len__(self) -> int: ...
    def __dlpack__(self, *, stream: None = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __enter__(self) -> View: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None, /) -> None: ...

class Listing(Iterator[Entry]):
    def __next__(self) -> Entry: ...

class Stream:
    """A value that is written bit by bit, and visible whole with :meth:`commit`; without one it is as if nothing had
    been written. One thread at a time. The end of its ``with`` block commits it; an exception there aborts it."""

    def write(self, data: Value) -> int:
        """Append bytes. How many.

        Raises
        ------
        NotFound
            The connection was lost, and with it what had been written.
        NoSpace, Invalid
            The store is full; it could not hold the value even when empty.
        """
    def commit(self) -> int:
        """End the stream. The new value's generation.

        Raises
        ------
        Exists, Stale
            The condition does not hold any more.
        """
    def abort(self) -> None:
        """End the stream without a trace. Does nothing after the end."""
    def __enter__(self) -> Stream: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None, /) -> None: ...

class Reservation:
    """Memory for a key's next value, which nobody sees before :meth:`commit`; without one it is as if there had been
    nothing. Bytes come by :meth:`write` or by slices, ``reservation[0:4] = b"head"``, in any order and from several threads at
    once. The end of its ``with`` block commits it; an exception there aborts it."""

    @property
    def nbytes(self) -> int | None:
        """Bytes of the value to be; None for a reservation that grows."""
    @property
    def location(self) -> str:
        """Where its memory lies, as the store's other clients spell it; empty for a reservation that grows."""
    def write(self, data: Value, offset: int | None = None) -> int:
        """Write bytes at `offset`, or behind those that were written last. How many. A write that fails does not count.

        Raises
        ------
        Invalid
            They reach beyond the reservation, or leave more than 32 gaps at a time.
        NotFound
            The connection was lost, and with it the reservation.
        """
    def __setitem__(self, where: slice, data: Value) -> None: ...
    def commit(self, *, durable: bool = False) -> int:
        """Make it the key's value. The new value's generation. `durable` as of :meth:`Store.put`.

        Raises
        ------
        Invalid
            Not all of it is written. It is given up.
        Exists, Stale
            The condition does not hold any more. It is given up.
        Busy, Unsupported
            Nothing was done; it may be tried again, or without `durable` in a store that has no SSD.
        """
    def abort(self) -> None:
        """Give it up. Does nothing after the end."""
    def __enter__(self) -> Reservation: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None, /) -> None: ...

class Watch(Iterator[Event]):
    """What happens to the keys of a prefix, as an iterator that waits for the next event. One thread at a time; another
    may :meth:`close` it, which ends the iteration."""

    def __next__(self) -> Event: ...
    def poll(self, timeout: float = 0) -> Event | None:
        """The next event, or None when none comes within `timeout` seconds."""
    def fileno(self) -> int:
        """Becomes readable when there may be an event; poll until there is none before waiting for it."""
    def close(self) -> None:
        """End it. A thread that waits for an event ends its iteration."""
    def __enter__(self) -> Watch: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None, /) -> None: ...

class Queue:
    """What :class:`penstock.aio.AsyncStore` stands on: add, flush, reap."""

    def add(self, token: object, code: int, key: Key, data: object, a: int | None, b: int | None, wait: float | None,
            /) -> None:
        """Prepare one operation of penstock.h: key, value or memory, and what its code takes. Nothing travels yet."""
    def add_many(self, token: object, code: int, items: builtins.list[tuple[Key, object, int | None, int | None]],
                 /) -> None:
        """Prepare operations whose results come as one list, when all have ended: tuples (key, data, a, b)."""
    def flush(self) -> None:
        """Begin what was added, together."""
    def reap(self) -> list[tuple[Any, object]]:
        """Tokens of what has ended, each with its result or exception."""
    def fileno(self) -> int:
        """Becomes readable when there may be something to reap."""
    @property
    def underway(self) -> int:
        """How many operations have begun and not ended."""

class Node:
    def __init__(self, settings: tuple[str, ...], log_fd: int, connect_timeout: float, /) -> None: ...
    @property
    def urls(self) -> list[str]:
        """Where it serves, as :func:`penstock.open` takes it."""
    @property
    def closed(self) -> bool:
        """Whether it has stopped serving."""
    def close(self) -> None:
        """Stop serving. The values are gone."""
    def __len__(self) -> int:
        """The number of keys, as of a moment ago."""

class Store:
    def __init__(self, url: str = "mem:", secret_file: str | os.PathLike[str] | None = None, *,
                 timeout: float = 10.0, connect_timeout: float = 5.0) -> None: ...
    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
    @property
    def lane(self) -> str:
        """The way bytes travel: ``posix``, ``tcp``, ``memory``."""
    @property
    def copies(self) -> int:
        """How many copies the last :meth:`put` of this store made, the least of the last :meth:`put_many`: over a pool as many
        as were achieved of those asked for, elsewhere 1; 0 before the first. Threads that look at it want a store each."""
    def close(self) -> None:
        """End the store for Python. Views, listings and calls of other threads that still use it end in peace; the
        connection, or the memory of ``mem:``, goes with the last of them."""
    def put(self, key: Key, value: Value, *, if_absent: bool = False, if_generation: int | None = None,
            checksum: bool = False, depth: int | None = None, attrs: ReadableBuffer | None = None,
            ttl: float | None = None, durable: bool = False) -> int:
        """Store a value, visible whole or not at all.

        Parameters
        ----------
        key : str or bytes-like
        value : contiguous buffer, ``(address, bytes)``, or a list or tuple of these, in bytes
        if_absent : bool
            Only when there is no such key.
        if_generation : int, optional
            Only over this generation; 0 means that the key must be absent.
        checksum : bool
            Keep a CRC-32C, which every get of the whole value checks.
        depth : int, optional
            Place in a prefix chain, for eviction: 0 to 65,534.
        attrs : bytes-like, optional
            Up to 256 bytes that :meth:`head` returns.
        ttl : float, optional
            Seconds after which the value is gone.
        durable : bool
            Return when a crash would not lose the value: wants a store with an SSD, and no `ttl`.

        Returns
        -------
        int
            The new value's generation.

        Raises
        ------
        Exists, Stale
            The condition does not hold.
        NoSpace
            The store is full.
        Invalid
            Key too long, or value larger than the store; durable, and with an end.
        Unsupported
            Durable, and the store has no SSD.
        Unknown
            The connection failed: the value may or may not have been stored.
        """
    @overload
    def get(self, key: Key, *, offset: int | None = None, length: int | None = None,
            wait: float | None = None, if_generation: int | None = None) -> bytes: ...
    @overload
    def get(self, key: Key, default: T = ..., *, offset: int | None = None, length: int | None = None,
            wait: float | None = None, if_generation: int | None = None) -> bytes | T:
        """Read a value, or a range of it.

        Parameters
        ----------
        default : object, optional
            What is returned if there is no such key.
        offset : int, optional
            First byte of the range; a negative one counts from the value's end.
        length : int, optional
            Bytes of the range, all of them inside of the value; without it, up to the end.
        wait : float, optional
            Seconds to wait for a key that is not there.
        if_generation : int, optional
            Only of this generation.

        Raises
        ------
        NotFound
            No such key, also after the wait, and no `default`.
        Stale
            The value has another generation.
        Invalid
            The range is not inside of the value.
        Corrupt
            The value's checksum is wrong.
        """
    def get_into(self, key: Key, buffer: Room, *, offset: int | None = None, length: int | None = None,
                 wait: float | None = None, if_generation: int | None = None) -> int:
        """Read a value into memory; with `offset`, as many bytes of it as the memory holds, or `length`.

        Returns
        -------
        int
            Bytes read.

        Raises
        ------
        Invalid
            The memory is smaller than the value, or the range is not inside of it.
        ValueError
            The memory is read-only, or not contiguous.
        """
    def view(self, key: Key) -> View:
        """Look at a value in place, without a copy.

        Raises
        ------
        NotFound
            No such key.
        Unsupported
            No memory is shared with this store: only with ``mem:``, and with a node of the same user over a unix socket.
        LimitReached
            Too many views, or bytes in them.
        """
    def stream(self, key: Key, *, if_absent: bool = False, if_generation: int | None = None, checksum: bool = False,
               depth: int | None = None, attrs: ReadableBuffer | None = None, ttl: float | None = None,
               durable: bool = False) -> Stream:
        """Begin to put a value whose length is not known yet; parameters as of :meth:`put`. Takes 1 MiB here."""
    def reserve(self, key: Key, nbytes: int | None = None, *, depth: int | None = None, attrs: ReadableBuffer | None = None,
                if_generation: int | None = None, replace: bool = False, ttl: float | None = None) -> Reservation:
        """Take memory for a value that is written in several steps.

        Parameters
        ----------
        nbytes : int, optional
            Bytes of the value; without it the reservation grows as it is written.
        depth, attrs, ttl
            As of :meth:`put`.
        if_generation : int, optional
            The key must have this generation, now and at the commit, rather than be absent.
        replace : bool
            Over what is there and beside other writers, like a put. Without it, the reservation has the key for itself.

        Raises
        ------
        Exists
            There is such a key, or another reservation has it.
        NoSpace, LimitReached
            The store is full; this client has too many reservations.
        """
    def reserve_pairs(self, pairs: builtins.list[tuple[Key, int | None]], depth: int | None, replace: bool,
                      /) -> builtins.list[Reservation]:
        """What :meth:`reserve_many` calls."""
    def commit_many(self, reservations: Iterable[Reservation], *, durable: bool = False) -> builtins.list[int]:
        """Commit many reservations in one go, each by itself. Generations, in the order of `reservations`. `durable` as of :meth:`put`.

        Raises
        ------
        Error
            Of the first one that failed, after all have ended; its ``results`` has the result of each.
        """
    def exists(self, key: Key) -> bool:
        """Whether there is such a key."""
    def __contains__(self, key: Key) -> bool: ...
    def head(self, key: Key) -> KeyStat:
        """What is known of a key, without its value.

        Raises
        ------
        NotFound
            No such key.
        """
    def delete(self, key: Key, *, if_generation: int | None = None) -> bool:
        """Delete a key. Whether it was there.

        Raises
        ------
        Stale
            The value has another generation than `if_generation`.
        """
    def delete_prefix(self, prefix: Key) -> int:
        """Delete every key with `prefix` (empty: all keys). How many there were."""
    def delete_range(self, start: Key, end: Key | None = None) -> int:
        """Delete keys from `start` on and before `end`. How many there were."""
    def clear(self) -> int:
        """Delete all but pinned keys. How many are left."""
    def list(self, prefix: Key = "", *, start: Key | None = None, end: Key | None = None) -> Listing:
        """Keys with `prefix`, from `start` on and before `end`, in the order of their bytes, fetched as they are asked
        for. A key that is there throughout comes exactly once.

        Returns
        -------
        Listing
            An iterator of :class:`~penstock.Entry`.
        """
    def watch(self, prefix: Key = "") -> Watch:
        """Be told of writes, deletions and evictions of keys with `prefix`, from now on.

        Returns
        -------
        Watch
            An iterator of :class:`~penstock.Event`. The store keeps 64 KiB of events; when that was not enough one says so.
        """
    def queue(self) -> Queue:
        """A queue of its own for one event loop."""
    def commit_ops(self, changes: builtins.list[tuple[Key, Value | None, int | None]],
                   checks: builtins.list[tuple[Key, Value | None, int | None]], /) -> builtins.list[int]:
        """What :meth:`commit` stands on: (key, value or None to delete, generation or None)."""
    def pin(self, key: Key, seconds: float | None = None) -> None:
        """Keep a key from eviction, for some time or until as many unpins. In a pool its pins end when the key goes to another
        node.

        Raises
        ------
        NotFound
            No such key.
        LimitReached
            More pins than the node grants one client.
        """
    def unpin(self, key: Key) -> None:
        """Take back one pin without a time."""
    def put_many(self, items: Mapping[Key, Value] | Iterable[tuple[Key, Value]], *, if_absent: bool = False,
                 checksum: bool = False, depth: int | None = None, durable: bool = False) -> builtins.list[int]:
        """Store many values in one go. Each is stored or not by itself, in no order. `durable` values share their syncs.

        Returns
        -------
        list of int
            Generations, in the order of `items`.

        Raises
        ------
        Error
            Of the first one that failed, after all have ended; its ``results`` has the result of each.
        """
    def get_many(self, keys: Iterable[Key], *,
                 ranges: Sequence[tuple[int, int]] | None = None) -> builtins.list[bytes | None]:
        """Read many values in one go, or of each a range ``(offset, length)``; None for keys that are not there. If one cannot be
        read, the error's ``values`` has the others."""
    def get_into_many(self, keys: Iterable[Key], buffers: Iterable[Room], *,
                      offsets: Sequence[int] | None = None) -> builtins.list[int | None]:
        """Read many values into memory. Bytes read of each; None for keys that are not there."""
    def move_many(self, keys: Iterable[Key], ptrs: Iterable[int], sizes: Iterable[int], depths: Iterable[int] | None, puts: bool,
                  durable: bool, /) -> tuple[builtins.list[bool], Exception | None]:
        """What :mod:`penstock.umbp` stands on: values of exactly these sizes, from or to these addresses. What is there
        already is left as it is. Which of them are there now, and the error of the first that failed."""
    def exists_many(self, keys: Iterable[Key]) -> builtins.list[bool]:
        """Whether there is each of many keys."""
    def delete_many(self, keys: Iterable[Key]) -> builtins.list[bool]:
        """Delete many keys. Whether each was there."""
    def figures(self) -> dict[str, int]:
        """What :meth:`stat` returns, as a dictionary."""
    def flush(self) -> None:
        """Return when a crash would not undo any write or delete that had ended before.

        Raises
        ------
        Unsupported
            The store has no SSD.
        NoSpace
            The SSD is full: not all of it is there.
        """
    def report_blocks(self, node_id: ReadableBuffer, tier: int, names: Iterable[Key]) -> int:
        """Say that a member of the pool holds blocks, in memory of its own, on a tier: 0 unknown, 1 HBM, 2 DRAM, 3 SSD. The
        store is the pool's master. How many of them it has no room for.

        Parameters
        ----------
        node_id : bytes
            The member's 16.

        Raises
        ------
        Unsupported
            The store is no pool's master.
        Unreachable
            There is no such member.
        """
    def revoke_blocks(self, node_id: ReadableBuffer, tier: int, names: Iterable[Key] | None = None) -> None:
        """Take :meth:`report_blocks` back, for these or for all that the member holds on the tier."""
    def match_blocks(self, names: Iterable[Key], *, hit: bool = False) -> builtins.list[tuple[bytes, str, int, bytes]]:
        """Who has which of these blocks: members by id and address, the number of those that each has, and for each name a
        byte whose bits are the tiers. `hit`: this is for a user's request, and counts."""
    def block_hits(self, names: Iterable[Key]) -> builtins.list[int]:
        """How often each block was a hit lately."""
    def nodes(self) -> builtins.list[PoolNode]:
        """The nodes of the pool, as its master sees them.

        Raises
        ------
        Unsupported
            The store is no pool.
        """
    def drain_id(self, node_id: ReadableBuffer, drains: bool) -> None:
        """What :meth:`drain` and :meth:`undrain` call."""
    def forgive(self) -> None:
        """Say that what was lost with nodes of the pool is known: keys that are not found raise :class:`NotFound` from now on,
        rather than :class:`Lost`. Other stores may raise the latter once more.

        Raises
        ------
        Unsupported
            The store is no pool.
        """
    def ping(self) -> float:
        """Seconds that a round trip to every shard took."""
    def register(self, buffer: Writable) -> None:
        """Tell the transport of memory that will be used for large transfers often. It must outlive
        :meth:`deregister`, or the store."""
    def deregister(self, buffer: Writable) -> None:
        """Take back :meth:`register`, before the memory goes."""
