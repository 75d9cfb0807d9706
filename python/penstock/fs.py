# SPDX-License-Identifier: Apache-2.0
"""An fsspec filesystem: ``penstock://HOST:PORT/path``.

>>> import pandas
>>> frame = pandas.read_parquet("penstock://127.0.0.1:7000/tables/a.parquet")

The host's place may also hold ``unix:%2Frun%2Fpenstock.sock`` (a socket's path, percent-encoded) or ``mem:`` (memory of this
process). Without one (``penstock:///path``) the option `store_url` says where, else ``PENSTOCK_URL``, else it is ``mem:``.

Files are values and their paths keys, without a slash in front. Directories are implied by keys: there are no empty
ones. Nothing is cached: an open file reads one generation of its value, in place where the store shares memory.
"""
from __future__ import annotations

import datetime
import io
import os
import struct
import time
import urllib.parse
from typing import TYPE_CHECKING, Any

from fsspec import register_implementation
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractFileSystem, make_instance

from ._places import keep_or_warn, map_file, shared_store, view_or_none
from ._tree import children, is_directory
from .errors import Error, Exists, Invalid, NotFound

if TYPE_CHECKING:
    from . import Store
    from ._core import Stream

PROTOCOL = "penstock"
BLOCK_BYTES = 1 << 20
PIECE_BYTES = 16 << 20
_MODIFIED = struct.Struct("<6sQ")  # attributes of a value that was written as a file: b"mtime:", nanoseconds since 1970
_WORD = b"mtime:"
_PREFIX = f"{PROTOCOL}://"


def _split(path: str) -> tuple[str, str]:
    """Host and path of a URL; a path that is none has no host."""
    if not path.startswith(_PREFIX):
        return "", path
    path = path.removeprefix(_PREFIX)
    first, _, rest = path.partition("/")
    return (first, rest) if ":" in first else ("", path)


def _store_url(host: str) -> str:
    if host.startswith("unix:"):
        return "node+unix://" + urllib.parse.unquote(host.removeprefix("unix:"))
    return host if host == "mem:" else f"node://{host}"


def _now() -> bytes:
    return _MODIFIED.pack(_WORD, time.time_ns())


class _Bytes(io.RawIOBase):
    """One generation of a value, read in place, by ranges, or through a cache of fsspec's."""

    mode = "rb"

    def __init__(self, store: Store, path: str) -> None:
        super().__init__()
        self.name = path
        self._store = store
        self._at = 0
        self.cache: Any = None
        view = view_or_none(store, path)
        self._memory = None if view is None else memoryview(view)
        if self._memory is not None:
            self.size = self._memory.nbytes
        else:
            there = store.head(path)
            self.size, self._generation = there.size, there.generation

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        if at < 0:
            raise ValueError(f"seek before the beginning: {at}")
        self._at = at
        return at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer) as room, room.cast("B") as room:
            count = max(0, min(room.nbytes, self.size - self._at))
            if not count:
                return 0
            if self.cache is not None:
                room[:count] = self.cache._fetch(self._at, self._at + count)
            else:
                self.fetch_into(self._at, room[:count])
        self._at += count
        return count

    def fetch_into(self, start: int, room: memoryview) -> None:
        """Bytes from `start` on, which are all inside of the value."""
        if self._memory is not None:
            room[:] = self._memory[start:start + room.nbytes]
        else:
            self._store.get_into(self.name, room, offset=start, if_generation=self._generation)

    def close(self) -> None:
        self._memory = None
        super().close()


class PenstockFile(io.BufferedReader):
    """A file that is read; `size` is its length in bytes."""

    def __init__(self, fs: PenstockFileSystem, path: str, block_size: int) -> None:
        self._bytes = _Bytes(fs.store, path)
        self.fs, self.path, self.size, self.blocksize = fs, path, self._bytes.size, block_size
        super().__init__(self._bytes, block_size)

    def __repr__(self) -> str:
        return f"<penstock.fs.PenstockFile {self.path!r} of {self.fs.url}>"

    @property
    def cache(self) -> Any:
        """What reads go through: ``blockcache::`` sets one."""
        return self._bytes.cache

    @cache.setter
    def cache(self, cache: Any) -> None:
        self._bytes.cache = cache

    @property
    def closed(self) -> bool:
        return super().closed

    @closed.setter
    def closed(self, closed: bool) -> None:
        """Such a cache says so once it has closed the file."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        room = bytearray(max(0, min(end, self.size) - start))
        if room:
            self._bytes.fetch_into(start, memoryview(room))
        return bytes(room)


class PenstockWriter(io.RawIOBase):
    """A file that is written; it appears under its name when it is closed, whole.

    One that is left by an exception inside of its ``with`` block leaves no trace.
    """

    mode = "wb"

    def __init__(self, store: Store, path: str, stream: Stream, autocommit: bool) -> None:
        super().__init__()
        self.name = self.path = path
        self._store, self._stream, self._autocommit = store, stream, autocommit
        self._at = 0

    def __repr__(self) -> str:
        return f"<penstock.fs.PenstockWriter {self.path!r} of {self._store.url}>"

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        count = self._stream.write(data)
        self._at += count
        return count

    def commit(self) -> None:
        """What a transaction does at its end."""
        try:
            self._stream.commit()
        except Exists:
            raise FileExistsError(self.path) from None
        keep_or_warn(self._store, self.path)

    def discard(self) -> None:
        """Have it leave no trace."""
        self._autocommit = False
        self._stream.abort()

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._autocommit:
            self.commit()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.discard()
        self.close()


class _TextWriter(io.TextIOWrapper):
    """Text that becomes a :class:`PenstockWriter`'s bytes. An exception within its ``with`` block reaches that."""

    buffer: PenstockWriter

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.buffer.__exit__(kind, error, trace)


def _remake(cls: Any, args: Any, options: Any, process: int | None) -> Any:
    if process is not None and process != os.getpid():
        raise ValueError(f"a filesystem in memory of process {process}: another one cannot open it")
    return make_instance(cls, args, options)


class PenstockFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Values of a store as files.

    Parameters
    ----------
    store_url : str, optional
        As of :func:`penstock.open`; else ``PENSTOCK_URL``, else ``mem:``. Instances with the same URL and options share one
        connection, or with ``mem:`` one memory.
    secret_file, timeout, connect_timeout : optional
        As of :func:`penstock.open`.
    """

    protocol = PROTOCOL
    root_marker = ""
    async_impl = False

    def __init__(self, store_url: str | None = None, *, secret_file: str | None = None, timeout: float = 10.0,
                 connect_timeout: float = 5.0, **options: Any) -> None:
        super().__init__(store_url=store_url, secret_file=secret_file, timeout=timeout,
                         connect_timeout=connect_timeout, **options)
        self.url = store_url or os.environ.get("PENSTOCK_URL") or "mem:"
        self._options = {"secret_file": secret_file, "timeout": timeout, "connect_timeout": connect_timeout}
        self._process = 0

    def __repr__(self) -> str:
        return f"<penstock.fs.PenstockFileSystem of {self.url}>"

    @property
    def store(self) -> Store:
        """The store underneath; after a fork the child's own."""
        if self._process != os.getpid():
            self._store = shared_store(self.url, **self._options)
            self._process = os.getpid()
        return self._store

    def __reduce__(self) -> Any:
        process = os.getpid() if self.url.startswith("mem:") else None
        return _remake, (type(self), self.storage_args, self.storage_options, process)

    # ---- paths

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return _split(os.fspath(path))[1].strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        host, _ = _split(path)
        return {"store_url": _store_url(host)} if host else {}

    def unstrip_protocol(self, name: str) -> str:
        host = ""
        if self.url.startswith("node://") and "?" not in self.url:
            host = self.url.removeprefix("node://")
        elif self.url.startswith("node+unix://") and "?" not in self.url:
            host = "unix:" + urllib.parse.quote(self.url.removeprefix("node+unix://"), safe="")
        elif self.url == "mem:":
            host = self.url
        return f"{_PREFIX}{host}/{self._strip_protocol(name)}"

    @property
    def fsid(self) -> str:
        return f"{PROTOCOL}-{self.url}"

    # ---- what there is

    def _entry(self, name: str, entry: Any) -> dict[str, Any]:
        if entry is None:
            return {"name": name, "size": 0, "type": "directory"}
        return {"name": name, "size": entry.size, "type": "file", "generation": entry.generation}

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if path:
            try:
                return self._entry(path, self.store.head(path))
            except NotFound:
                pass
            if not is_directory(self.store, f"{path}/".encode()):
                raise FileNotFoundError(path)
        return self._entry(path, None)

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        path = self._strip_protocol(path)
        prefix = f"{path}/" if path else ""
        out = [self._entry(prefix + child.name.decode("utf-8", "surrogateescape"), child.entry)
               for child in children(self.store, prefix.encode())]
        if not out and path:
            out = [self.info(path)]
        return out if detail else sorted({entry["name"] for entry in out})

    def exists(self, path: str, **options: Any) -> bool:
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def isfile(self, path: str) -> bool:
        path = self._strip_protocol(path)
        return bool(path) and self.store.exists(path)

    def isdir(self, path: str) -> bool:
        path = self._strip_protocol(path)
        return not path or is_directory(self.store, f"{path}/".encode())

    def find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False,
             **options: Any) -> Any:
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **options)
        path = self._strip_protocol(path)
        entries = self.store.list(f"{path}/" if path else "")
        out = {entry.name: self._entry(entry.name, entry) for entry in entries if not entry.key.endswith(b"/")}
        if not out and self.isfile(path):
            out[path] = self.info(path)
        return out if detail else list(out)

    def modified(self, path: str) -> datetime.datetime:
        """When the file was written. Of a value that was not written as a file it is known only that it was not before: the
        time is that of its generation, when its node began or later."""
        path = self._strip_protocol(path)
        try:
            there = self.store.head(path)
        except (NotFound, Invalid):
            raise FileNotFoundError(path) from None
        ns = there.generation
        if len(there.attrs) == _MODIFIED.size and there.attrs.startswith(_WORD):
            ns = _MODIFIED.unpack(there.attrs)[1]
        return datetime.datetime.fromtimestamp(ns / 1e9, datetime.timezone.utc)

    def created(self, path: str) -> datetime.datetime:
        """As :meth:`modified`: a file is written as a whole."""
        return self.modified(path)

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        """Make an empty file. Without `truncate` a file that is there stays as it is."""
        try:
            self.pipe_file(path, b"", "overwrite" if truncate else "create")
        except FileExistsError:
            pass

    def checksum(self, path: str) -> int:
        return int(self.info(path).get("generation", 0))

    # ---- reading

    def open(self, path: str, mode: str = "rb", block_size: int | None = None, cache_options: Any = None,
             compression: str | None = None, **options: Any) -> Any:
        """As of fsspec. What is written appears when it is closed, whole, and not at all after an exception within the ``with``
        block; but :func:`fsspec.open` and `compression` close what they write in any case."""
        if "b" in mode or "r" in mode or compression:
            return super().open(path, mode, block_size, cache_options, compression, **options)
        text = {name: options.pop(name) for name in ("encoding", "errors", "newline") if name in options}
        return _TextWriter(self.open(path, mode.replace("t", "") + "b", block_size, cache_options, **options), **text)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, autocommit: bool = True,
              cache_options: Any = None, **options: Any) -> Any:
        path = self._strip_protocol(path)
        if mode == "rb":
            try:
                return PenstockFile(self, path, block_size or BLOCK_BYTES)
            except (NotFound, Invalid):
                self._missing(path)
                raise
        if mode not in ("wb", "xb", "ab"):
            raise ValueError(f"{path!r}: files are read or written from their beginning, or appended to; not {mode!r}")
        return self._writer(path, mode, autocommit)

    def _missing(self, path: str) -> None:
        """Raise what a file that could not be opened for reading is."""
        if self.isdir(path):
            raise IsADirectoryError(path)
        if not self.store.exists(path):
            raise FileNotFoundError(path)

    def _writer(self, path: str, mode: str, autocommit: bool) -> PenstockWriter:
        if not path:
            raise IsADirectoryError(path)
        try:
            there = self.store.head(path) if mode == "ab" else None
        except NotFound:
            there = None
        before = self.store.get(path) if there else b""
        try:
            stream = self.store.stream(path, if_absent=mode == "xb", if_generation=there.generation if there else None,
                                       attrs=_now())
        except Exists:
            raise FileExistsError(path) from None
        writer = PenstockWriter(self.store, path, stream, autocommit)
        if before:
            writer.write(before)
        return writer

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        path = self._strip_protocol(path)
        try:
            if start is None and end is None:
                view = view_or_none(self.store, path)
                return self.store.get(path) if view is None else view.tobytes()
            start = start or 0
            if start >= 0 and end is not None and end >= start:
                try:
                    return self.store.get(path, offset=start, length=end - start)
                except Invalid:  # reaches beyond the end
                    pass
            return self.store.get(path)[start:end]
        except NotFound:
            self._missing(path)
            raise

    def cat_ranges(self, paths: list[str], starts: Any, ends: Any, max_gap: Any = None, on_error: str = "return",
                   **options: Any) -> list[Any]:
        firsts = starts if isinstance(starts, list) else [starts] * len(paths)
        lasts = ends if isinstance(ends, list) else [ends] * len(paths)
        if all(a is not None and b is not None and 0 <= a <= b for a, b in zip(firsts, lasts, strict=True)):
            try:
                found = self.store.get_many([self._strip_protocol(path) for path in paths],
                                            ranges=[(a, b - a) for a, b in zip(firsts, lasts)])
                if None not in found:
                    return list(found)
            except Error:  # each by itself tells which
                pass
        return list(super().cat_ranges(paths, firsts, lasts, on_error=on_error, **options))

    # ---- writing

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **options: Any) -> None:
        path = self._strip_protocol(path)
        try:
            self.store.put(path, value, if_absent=mode == "create", attrs=_now())
        except Exists:
            raise FileExistsError(path) from None
        keep_or_warn(self.store, path)

    def put_file(self, lpath: Any, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite",
                 **options: Any) -> None:
        if os.path.isdir(lpath):
            return
        with open(lpath, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            callback.set_size(size)
            if size:
                with map_file(file) as mapped, memoryview(mapped) as memory:
                    self._put_memory(rpath, memory, mode, callback)
            else:
                self.pipe_file(rpath, b"", mode)

    def _put_memory(self, path: str, memory: memoryview, mode: str, callback: Any) -> None:
        """At once, unless somebody looks at how far it is."""
        if callback is DEFAULT_CALLBACK or memory.nbytes <= PIECE_BYTES:
            self.pipe_file(path, memory, mode)
            callback.relative_update(memory.nbytes)
            return
        with self._writer(self._strip_protocol(path), "xb" if mode == "create" else "wb", True) as writer:
            for at in range(0, memory.nbytes, PIECE_BYTES):
                with memory[at:at + PIECE_BYTES] as piece:
                    callback.relative_update(writer.write(piece))

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        try:
            view = view_or_none(self.store, source)
            self.pipe_file(target, self.store.get(source) if view is None else view)
        except NotFound:
            if not self.isdir(source):
                raise FileNotFoundError(source) from None

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        paths = self.expand_path(path, recursive=recursive, maxdepth=maxdepth)
        if not recursive:
            for one in paths:
                self._missing(one) if not self.isfile(one) else None
        self.store.delete_many([one for one in paths if one])

    def _rm(self, path: str) -> None:
        path = self._strip_protocol(path)
        if not self.store.delete(path):
            raise FileNotFoundError(path)


# An installed package is found by its entry point; one that is used from a build folder is not.
register_implementation(PROTOCOL, PenstockFileSystem, clobber=True)
