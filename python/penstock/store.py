# SPDX-License-Identifier: Apache-2.0
"""The store: named byte values, in this process or in a node."""
from __future__ import annotations

import asyncio
import itertools
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import _core
from .aio import AsyncStore
from .errors import Exists, NotFound, Stale, Unreachable, Unsupported
from .records import PoolNode, each_key, key_bytes
from .usage import StoreStat

if TYPE_CHECKING:
    from ._core import Key, Value
    from .arrays import Array

__all__ = ["Reservation", "Store", "StoreStat", "Stream", "View", "Watch", "open"]

Reservation = _core.Reservation
Stream = _core.Stream
View = _core.View
Watch = _core.Watch

T = TypeVar("T")
_INTERNAL = {"commit_ops", "drain_id", "figures", "move_many", "queue", "reserve_pairs"}
_RAISE = object()
_BATCH_KEYS, _BATCH_BYTES = 256, 16 << 20


class Store(_core.Store):
    """A store of named byte values.

    Parameters
    ----------
    url : str or path
        ``mem:`` (the default): a store inside this process, ``mem:?dram=4G&page_size=2M&shards=2&cache=PREFIX``;
        ``node://HOST:PORT``, ``node+unix:///PATH``: a node; a path object is a node's socket. ``pool://HOST:PORT``: a pool.
    secret_file : path, optional
        File with the node's shared secret.
    tls : bool
        TLS over TCP; the secret proves both sides, unless there are certificates.
    tls_ca, tls_certificate, tls_key : path, optional
        PEM files: the authorities of the node's certificate; this client's certificate, and its private key. With
        any of them there is TLS.
    transport : {"auto", "ucx", "stream"}, optional
        What carries operations. ``auto`` takes UCX if both sides have it and there is no TLS.
    timeout, connect_timeout : float
        Seconds that a call may take, and that connecting may take.

    Raises
    ------
    Unreachable, TimedOut, NotAllowed
        The node could not be reached, or wants another secret or certificate.
    Invalid
        The URL is none.

    Notes
    -----
    Keys are ``str`` (UTF-8) or bytes-like, 1 to 4,096 bytes. Values are contiguous buffers of any kind, a pair
    ``(address, bytes)`` of memory that outlives the call, or a list or tuple of these, stored behind one another.
    Any number of threads may use one store. After a fork the child's copy raises :class:`ForkError`. A store of another process
    may be pickled: whoever unpickles it opens the same URL.

    Examples
    --------
    >>> import penstock
    >>> with penstock.open() as store:
    ...     generation = store.put("greeting", b"hello")
    ...     store.get("greeting", offset=1, length=3)
    b'ell'
    """

    url: str
    """What the store was opened with."""

    def __init__(self, url: str | os.PathLike[str] = "mem:", *, secret_file: str | os.PathLike[str] | None = None,
                 timeout: float = 10.0, connect_timeout: float = 5.0, tls: bool = False,
                 tls_ca: str | os.PathLike[str] | None = None, tls_certificate: str | os.PathLike[str] | None = None,
                 tls_key: str | os.PathLike[str] | None = None, transport: str | None = None) -> None:
        if not isinstance(url, str):
            if not isinstance(url, os.PathLike):
                raise TypeError(f"url must be a str or a path, not {type(url).__name__}")
            url = f"node+unix://{os.path.abspath(url)}"
        if secret_file is not None and not isinstance(secret_file, (str, bytes, os.PathLike)):
            raise TypeError(f"secret_file must be a path, not {type(secret_file).__name__}")
        more = {"tls_ca": tls_ca, "tls_certificate": tls_certificate, "tls_key": tls_key, "transport": transport}
        super().__init__(_url_with(url, tls, more), secret_file, timeout=timeout, connect_timeout=connect_timeout)
        self.url = url
        self._options = {"secret_file": secret_file, "timeout": timeout, "connect_timeout": connect_timeout, "tls": tls, **more}
        self._aio: dict[asyncio.AbstractEventLoop, AsyncStore] = {}

    def __repr__(self) -> str:
        return f"<penstock.Store {self.url}{', closed' if self.closed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.url.startswith("mem:"):
            raise pickle.PicklingError(f"{self!r} is this process's memory: another process cannot open it")
        return _reopen, (type(self), self.url, self._options)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in _INTERNAL]

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    @property
    def aio(self) -> AsyncStore:
        """The store's calls as coroutines, for the event loop that runs now."""
        loop = asyncio.get_running_loop()
        if loop not in self._aio:
            for ended in [one for one in list(self._aio) if one.is_closed()]:
                self._aio.pop(ended, None)  # with its queue, once nothing of it is underway
            self._aio[loop] = AsyncStore(self)
        return self._aio[loop]

    # ---- the mapping protocol ----

    def __getitem__(self, key: Key) -> bytes:
        return self.get(key)

    def __setitem__(self, key: Key, value: Value) -> None:
        self.put(key, value)

    def __delitem__(self, key: Key) -> None:
        if not self.delete(key):
            raise NotFound(f"key {key!r}: not found")

    def __len__(self) -> int:
        # A pool's figure counts copies, and what nodes have not dropped yet that keys have left.
        return sum(1 for _ in self.list()) if self.url.startswith("pool:") else self.figures()["keys"]

    def __bool__(self) -> bool:
        return True  # a store without keys is a store

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def keys(self, prefix: Key = "") -> Iterator[str]:
        """Names of all keys with `prefix`, in order. Bytes that are no UTF-8 come as surrogates."""
        return (entry.name for entry in self.list(prefix))

    def items(self, prefix: Key = "") -> Iterator[tuple[str, bytes]]:
        """Names of all keys with `prefix`, in order, and their values, which are fetched many at a time. A key that is deleted
        meanwhile is left out."""
        entries = iter(self.list(prefix))
        for first in entries:
            batch, size = [first], first.size
            for entry in itertools.islice(entries, _BATCH_KEYS - 1) if size < _BATCH_BYTES else ():
                batch.append(entry)
                size += entry.size
                if size >= _BATCH_BYTES:
                    break
            values = self.get_many([entry.key for entry in batch])
            yield from ((entry.name, value) for entry, value in zip(batch, values) if value is not None)

    def values(self, prefix: Key = "") -> Iterator[bytes]:
        """Values of all keys with `prefix`, in the order of the keys."""
        return (value for _, value in self.items(prefix))

    def pop(self, key: Key, default: Any = _RAISE) -> Any:
        """Read a value and delete its key; of several that do so at once one has it. Without the key `default`, or NotFound."""
        while True:
            try:
                generation = self.head(key).generation
                value = self.get(key, if_generation=generation)
                if self._delete_of(key, generation):
                    return value
            except Stale:  # another value has come
                continue
            except NotFound:
                if default is _RAISE:
                    raise
                return default

    def _delete_of(self, key: Key, generation: int) -> bool:
        try:
            return self.delete(key, if_generation=generation)
        except Unsupported:  # a key that lies anywhere has one value, and each copy a generation of its own
            return self.delete(key)

    def setdefault(self, key: Key, default: Value) -> bytes:
        """The value of a key, which is `default` from now on if there was none."""
        while True:
            try:
                self.put(key, default, if_absent=True)
            except Exists:
                pass
            try:
                return self.get(key)
            except NotFound:  # deleted since
                continue

    def update(self, items: Mapping[Key, Value] | Iterable[tuple[Key, Value]] = (), /, **more: Value) -> None:
        """Store many values: :meth:`put_many`."""
        if items:
            self.put_many(items)
        if more:
            self.put_many(more.items())

    # ---- several keys at once ----

    def commit(self, puts: Mapping[Key, Value] | None = None, *, deletes: Iterable[Key] = (),
               checks: Mapping[Key, int] | None = None) -> dict[Key, int]:
        """Apply changes of several keys, all of them or none, in one moment.

        Parameters
        ----------
        puts : mapping of keys to values, optional
        deletes : iterable of keys
        checks : mapping of keys to generations, optional
            What must hold, of keys that are changed and of others: this generation, or with 0 that there is no such
            key. Together at most 255 keys.

        Returns
        -------
        dict
            New generations, by the keys of `puts`.

        Raises
        ------
        Stale, Exists, NotFound, NoSpace
            Of the first key in the way, when nothing was applied; the error's ``results`` has one for each key of `puts`,
            `deletes` and the other `checks`, in this order.
        Unknown
            The connection failed: all of it was applied, or nothing.
        """
        puts, checks = puts or {}, checks or {}
        for name, of in (("puts", puts), ("checks", checks)):
            if not isinstance(of, Mapping):
                raise TypeError(f"{name} must be a mapping, not {type(of).__name__}")
        wanted = {key_bytes(key): generation for key, generation in checks.items()}
        changes: list[tuple[Key, Value | None, int | None]] = [
            (key, value, wanted.pop(key_bytes(key), None)) for key, value in puts.items()]
        changes += [(key, None, wanted.pop(key_bytes(key), None)) for key in each_key(deletes, "deletes")]
        rest: list[tuple[Key, Value | None, int | None]] = [
            (key, None, generation) for key, generation in wanted.items()]
        return dict(zip(puts, self.commit_ops(changes, rest)))

    def reserve_many(self, items: Mapping[Key, int | None] | Iterable[tuple[Key, int | None]], *, depth: int | None = None,
                     replace: bool = False) -> list[Reservation]:
        """Take memory for many values in one go, for all of them or for none: :meth:`reserve`, :meth:`commit_many`.

        Parameters
        ----------
        items : mapping of keys to sizes in bytes, or pairs of both; None for a reservation that grows

        Returns
        -------
        list of Reservation
            In the order of `items`.

        Raises
        ------
        Error
            Of the first that could not be had; its ``results`` has the result of each. None is kept.
        """
        pairs = list(items.items() if isinstance(items, Mapping) else items)
        return self.reserve_pairs(pairs, depth, replace)

    # ---- arrays ----

    def put_array(self, key: Key, array: object, *, if_absent: bool = False, if_generation: int | None = None,
                  checksum: bool = False) -> int:
        """Store a NumPy array, or what becomes one: :func:`penstock.arrays.put_array`."""
        from .arrays import put_array
        return put_array(self, key, array, if_absent=if_absent, if_generation=if_generation, checksum=checksum)

    def get_array(self, key: Key, *, out: Array | None = None, copy: bool | None = None) -> Array:
        """Read a NumPy array, in place where that is possible: :func:`penstock.arrays.get_array`."""
        from .arrays import get_array
        return get_array(self, key, out=out, copy=copy)

    # ---- the nodes of a pool ----

    def drain(self, node: PoolNode | str) -> None:
        """Say that a node of the pool is to go: it is given nothing new, and what it has goes to others while it serves on.

        It is done when its state in :meth:`nodes` is ``drained``.

        Parameters
        ----------
        node : PoolNode or str
            One of :meth:`nodes`, or its address there.

        Raises
        ------
        Unreachable
            There is no such node in the pool.
        """
        self.drain_id(self._node_id(node), True)

    def undrain(self, node: PoolNode | str) -> None:
        """Take :meth:`drain` back."""
        self.drain_id(self._node_id(node), False)

    def _node_id(self, node: PoolNode | str) -> bytes:
        if isinstance(node, PoolNode):
            return node.id
        for known in self.nodes():
            if known.address == node:
                return known.id
        raise Unreachable(f"no node {node!r} in the pool")

    # ---- about the store ----

    def stat(self) -> StoreStat:
        """Figures of the whole store.

        Returns
        -------
        StoreStat
            Counts, and sizes in bytes; in a notebook a table.
        """
        return StoreStat(**self.figures(), store=self)


def _reopen(cls: type[Store], url: str, options: dict[str, Any]) -> Store:
    return cls(url, **options)


def _url_with(url: str, tls: bool, more: dict[str, str | os.PathLike[str] | None]) -> str:
    settings = []
    for name, value in more.items():
        if isinstance(value, (str, os.PathLike)):
            settings.append(f"{name}={os.fspath(value)}")
        elif value is not None:
            raise TypeError(f"{name} must be a str or a path, not {type(value).__name__}")
    if tls:
        settings.append("tls=1")
    if not settings:
        return url
    return url + ("&" if "?" in url else "?") + "&".join(settings)


def open(url: str | os.PathLike[str] = "mem:", *, secret_file: str | os.PathLike[str] | None = None, timeout: float = 10.0,
         connect_timeout: float = 5.0, tls: bool = False, tls_ca: str | os.PathLike[str] | None = None,
         tls_certificate: str | os.PathLike[str] | None = None,
         tls_key: str | os.PathLike[str] | None = None, transport: str | None = None) -> Store:
    """Open a store; its parameters are those of :class:`Store`.

    Returns
    -------
    Store
        To be closed, or used in a ``with`` block.
    """
    return Store(url, secret_file=secret_file, timeout=timeout, connect_timeout=connect_timeout, tls=tls, tls_ca=tls_ca,
                 tls_certificate=tls_certificate, tls_key=tls_key, transport=transport)
