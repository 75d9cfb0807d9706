# SPDX-License-Identifier: Apache-2.0
"""An fsspec filesystem: ``penstock://HOST:PORT/path``.

>>> import pandas
>>> frame = pandas.read_parquet("penstock://127.0.0.1:7000/tables/a.parquet")

The host's place may also hold ``unix:%2Frun%2Fpenstock.sock`` (a socket's path, percent-encoded) or ``mem:`` (memory of this
process), or ``url:`` and any URL of a store, percent-encoded. Without one (``penstock:///path``) the option `store_url` says where,
else ``PENSTOCK_URL``.

Files are values and their paths keys, without a slash in front. Directories are implied by keys: there are no empty
ones. Nothing is cached: an open file reads one generation of its value, in place where the store shares memory.
"""
from __future__ import annotations

import codecs
import contextlib
import datetime
import glob
import io
import os
import struct
import time
import urllib.parse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from fsspec import register_implementation
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.compression import compr
from fsspec.config import apply_config
from fsspec.core import get_compression
from fsspec.implementations.local import make_path_posix
from fsspec.spec import AbstractFileSystem, make_instance
from fsspec.utils import isfilelike, other_paths

from ._fs_files import CompressedWriter, Held, PenstockFile, PenstockWriter, TextWriter, open_stream
from ._places import keep_or_warn, map_file, mappable_bytes, shared_store, view_or_none, whole_file
from ._tree import children, is_directory
from .errors import Error, Exists, ForkError, Invalid, NotFound, Stale
from .records import key_bytes

if TYPE_CHECKING:
    from . import Store

PROTOCOL = "penstock"
BLOCK_BYTES = 1 << 20
PIECE_BYTES = 16 << 20
_NAMED_MAX = 20
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
    if host.startswith("url:"):
        return urllib.parse.unquote(host.removeprefix("url:"))
    if host.startswith("unix:"):
        return "node+unix://" + urllib.parse.unquote(host.removeprefix("unix:"))
    return host if host == "mem:" else f"node://{host}"


def _is_below(path: str, folder: str) -> bool:
    """Whether it is the folder or lies in it, wherever links in it may lead."""
    rest = path.removeprefix(folder)
    return path.startswith(folder) and rest[:1] in ("", "/") and "\0" not in rest and not {".", ".."} & set(rest.split("/"))


def _now() -> bytes:
    return _MODIFIED.pack(_WORD, time.time_ns())


def _remake(cls: Any, args: Any, options: Any, process: int | None) -> Any:
    if process is not None and process != os.getpid():
        raise ValueError(f"a filesystem in memory of process {process}: another one cannot open it")
    return make_instance(cls, args, options)


class _Named(type(AbstractFileSystem)):  # type: ignore[misc]
    """Has a filesystem know its store's URL before fsspec looks for one with the same options: so it is pickled, too."""

    def __call__(cls, store_url: str | None = None, **options: Any) -> Any:
        options = apply_config(cls, options)
        configured = options.pop("store_url", None)
        url = store_url or configured or os.environ.get("PENSTOCK_URL")
        if not url:
            raise ValueError("no store: neither penstock://HOST:PORT/, nor store_url, nor PENSTOCK_URL (memory of this process is mem:)")
        return super().__call__(store_url=url, **options)


class PenstockFileSystem(AbstractFileSystem, metaclass=_Named):  # type: ignore[misc]
    """Values of a store as files.

    Parameters
    ----------
    store_url : str, optional
        As of :func:`penstock.open`; else ``PENSTOCK_URL``. Instances with the same URL and options share one connection, or with
        ``mem:`` one memory.
    secret_file, timeout, connect_timeout : optional
        As of :func:`penstock.open`.
    """

    protocol = PROTOCOL
    root_marker = ""
    async_impl = False

    def __init__(self, store_url: str, *, secret_file: str | None = None, timeout: float = 10.0,
                 connect_timeout: float = 5.0, **options: Any) -> None:
        super().__init__(store_url=store_url, secret_file=secret_file, timeout=timeout,
                         connect_timeout=connect_timeout, **options)
        self.url = store_url
        self._options = {"secret_file": secret_file, "timeout": timeout, "connect_timeout": connect_timeout}
        self._process = 0

    def __repr__(self) -> str:
        return f"<penstock.fs.PenstockFileSystem of {self.url}>"

    @property
    def store(self) -> Store:
        """The store underneath; after a fork the child's own, but of memory there is none."""
        if self._process != os.getpid():
            if self._process and self.url.startswith("mem:"):
                raise ForkError(f"{self!r} is memory of process {self._process}")
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
        if path == f"{_PREFIX}[":
            raise ValueError("an address of IPv6, which fsspec takes apart at ::, is penstock://url:node%3A%2F%2F%5B%3A%3A1%5D%3A7000/")
        return {"store_url": _store_url(host)} if host else {}

    def unstrip_protocol(self, name: str) -> str:
        host = "url:" + urllib.parse.quote(self.url, safe="")
        if self.url == "mem:":
            host = self.url
        elif self.url.startswith("node://") and not {"?", "["} & set(self.url):
            host = self.url.removeprefix("node://")
        elif self.url.startswith("node+unix://") and "?" not in self.url:
            host = "unix:" + urllib.parse.quote(self.url.removeprefix("node+unix://"), safe="")
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
        there = self._head(path)
        if there is None and not self._has_inside(path):
            raise FileNotFoundError(path)
        return self._entry(path, there)

    def _head(self, path: str) -> Any:
        """What is known of a file; None if there is none, as of a name that no key can have."""
        try:
            return self.store.head(path)
        except (NotFound, Invalid):
            return None

    def _has_inside(self, path: str) -> bool:
        try:
            return not path or is_directory(self.store, key_bytes(f"{path}/"))
        except Invalid:  # too long
            return False

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        path = self._strip_protocol(path)
        prefix = f"{path}/" if path else ""
        try:
            out = [self._entry(prefix + child.name.decode("utf-8", "surrogateescape"), child.entry)
                   for child in children(self.store, key_bytes(prefix))]
        except Invalid:  # too long
            out = []
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
        return self._head(path) is not None

    def isdir(self, path: str) -> bool:
        path = self._strip_protocol(path)
        return self._head(path) is None and self._has_inside(path)

    def find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False,
             **options: Any) -> Any:
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **options)
        path = self._strip_protocol(path)
        entries = self.store.list(f"{path}/" if path else "")
        out = {entry.name: self._entry(entry.name, entry) for entry in entries
               if not entry.key.endswith(b"/") and not entry.key.startswith((b"/", _PREFIX.encode()))}
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
        with contextlib.suppress(FileExistsError):
            if truncate or not self._intrans:
                self.pipe_file(path, b"", "overwrite" if truncate else "create")
            else:
                with self.open(path, "xb") as file:
                    file.may_exist = True

    def checksum(self, path: str) -> int:
        return int(self.info(path).get("generation", 0))

    # ---- reading

    def open(self, path: str, mode: str = "rb", block_size: int | None = None, cache_options: Any = None,
             compression: str | None = None, **options: Any) -> Any:
        """As of fsspec. What is written appears when it is closed, whole, and not at all after an exception within the ``with``
        block; but :func:`fsspec.open` closes what it writes in any case."""
        if "r" in mode:
            return super().open(path, mode, block_size, cache_options, compression, **options)
        # A file that was opened is written when nobody has it any more: what is wrong is found before.
        text = {name: options.pop(name) for name in ("encoding", "errors", "newline") if name in options}
        compression = get_compression(path, compression)
        io.TextIOWrapper(io.BytesIO(), **text)
        codecs.lookup_error(text.get("errors") or "strict")
        file = super().open(path, mode if "b" in mode else mode.replace("t", "") + "b", block_size, cache_options, **options)
        if compression:
            file = CompressedWriter(file, compr[compression], mode[0])
        return file if "b" in mode else TextWriter(file, **text)

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
        if not self.isfile(path):
            raise FileNotFoundError(path)

    def _writer(self, path: str, mode: str, autocommit: bool) -> PenstockWriter:
        if not path:
            raise IsADirectoryError(path)
        generation, before = None, b""
        if mode == "ab":
            try:
                generation = self.store.head(path).generation
                before = self.store.get(path)
            except NotFound:
                generation = 0  # absent, also when it is closed
        conditions = {"if_absent": mode == "xb", "if_generation": generation, "attrs": _now()}
        stream = open_stream(self.store, path, conditions) if autocommit else Held(self.store, path, self.transaction, conditions)
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
            there = self.store.head(path)
            first, behind, _ = slice(start, end).indices(there.size)
            if first >= behind:
                return b""
            try:
                return self.store.get(path, offset=first, length=behind - first, if_generation=there.generation)
            except Stale:  # overwritten meanwhile: all of it is of one generation
                return self.store.get(path)[start:end]
        except (NotFound, Invalid):
            self._missing(path)
            raise

    def cat_ranges(self, paths: list[str], starts: Any, ends: Any, max_gap: Any = None, on_error: str = "return",
                   **options: Any) -> list[Any]:
        firsts, lasts = (list(some) if isinstance(some, Iterable) else [some] * len(paths) for some in (starts, ends))
        if all(a is not None and b is not None and 0 <= a <= b for a, b in zip(firsts, lasts, strict=True)):
            try:
                found = self.store.get_many([self._strip_protocol(path) for path in paths],
                                            ranges=[(a, b - a) for a, b in zip(firsts, lasts)])
                if None not in found:
                    return list(found)
            except Error:  # each by itself tells which
                pass
        return list(super().cat_ranges(paths, firsts, lasts, on_error=on_error, **options))

    def get(self, rpath: Any, lpath: Any, recursive: bool = False, callback: Any = DEFAULT_CALLBACK, maxdepth: int | None = None,
            **options: Any) -> None:
        """As of fsspec. Names that no file below `lpath` can have, as with ``..`` in them, are left out: ValueError says which,
        once all others are there."""
        if not isinstance(lpath, str):
            super().get(rpath, lpath, recursive, callback, maxdepth, **options)
            return
        root = make_path_posix(lpath)
        found, odd = [], []
        for source, target in self._pairs(rpath, root, recursive, maxdepth, os.path.isdir):
            if _is_below(target, root.rstrip("/")):
                found.append((source, target))
            else:
                odd.append(source)
        super().get([source for source, _ in found], [target for _, target in found], callback=callback, **options)
        if odd:
            more = f", and {len(odd) - _NAMED_MAX} more" if len(odd) > _NAMED_MAX else ""
            raise ValueError(f"no file below {lpath!r} can have these names: {', '.join(map(repr, odd[:_NAMED_MAX]))}{more}")

    def get_file(self, rpath: str, lpath: Any = None, callback: Any = DEFAULT_CALLBACK, outfile: Any = None,
                 **options: Any) -> None:
        """As of fsspec. The file appears under its name when it is whole."""
        if outfile is not None or isfilelike(lpath):
            super().get_file(rpath, lpath, callback, outfile, **options)
            return
        try:
            source = self.open(rpath, "rb", **options)
        except IsADirectoryError:
            os.makedirs(lpath, exist_ok=True)
            return
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        with source, whole_file(lpath) as file:
            callback.set_size(getattr(source, "size", None))  # of a compressed one nobody knows it
            while piece := source.read(PIECE_BYTES):
                callback.relative_update(file.write(piece))

    # ---- writing

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **options: Any) -> None:
        if self._intrans:
            with self.open(path, "xb" if mode == "create" else "wb") as file:
                file.write(value)
        else:
            self._put(self._strip_protocol(path), value, mode)

    def _put(self, path: str, value: Any, mode: str = "overwrite") -> None:
        if not path:
            raise IsADirectoryError(path)
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
            size = mappable_bytes(file)
            callback.set_size(size)
            if size:
                with map_file(file) as mapped, memoryview(mapped) as memory:
                    self._put_memory(rpath, memory, mode, callback)
                return
            with self.open(rpath, "xb" if mode == "create" else "wb") as writer:
                while piece := file.read(PIECE_BYTES):
                    callback.relative_update(writer.write(piece))

    def _put_memory(self, path: str, memory: memoryview, mode: str, callback: Any) -> None:
        """At once, unless somebody looks at how far it is."""
        if callback is DEFAULT_CALLBACK or memory.nbytes <= PIECE_BYTES:
            self.pipe_file(path, memory, mode)
            callback.relative_update(memory.nbytes)
            return
        with self.open(path, "xb" if mode == "create" else "wb") as writer:
            for at in range(0, memory.nbytes, PIECE_BYTES):
                with memory[at:at + PIECE_BYTES] as piece:
                    callback.relative_update(writer.write(piece))

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        try:
            view = view_or_none(self.store, source)
            self._put(target, self.store.get(source) if view is None else view)
        except NotFound:
            if not self.isdir(source):
                raise FileNotFoundError(source) from None

    def _pairs(self, path1: Any, path2: Any, recursive: bool, maxdepth: int | None, isdir: Callable[[str], bool]) -> list[Any]:
        """Sources and targets, as fsspec's copy() and get() have them; `isdir` is of the targets' side."""
        if isinstance(path1, list) and isinstance(path2, list):
            return list(zip(path1, path2, strict=True))
        one = isinstance(path1, str)
        sources = self.expand_path(path1, recursive=recursive, maxdepth=maxdepth)
        if one and (not recursive or maxdepth is not None):
            sources = [source for source in sources if not self.isdir(source)]
        if not sources:
            return []
        if one and glob.has_magic(path1):
            inside = len(sources) == 1
        else:
            inside = one and isinstance(path2, str) and (path2.endswith("/") or isdir(path2)) and not path1.endswith("/")
        return list(zip(sources, other_paths(sources, path2, exists=inside, flatten=not one)))

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """As of fsspec. It deletes what it has copied, all of it first; what another one writes meanwhile stays. Files that
        would have the same name, or be moved into themselves, raise ValueError before."""
        if self._strip_protocol(path1) == self._strip_protocol(path2):
            return
        pairs = [tuple(map(self._strip_protocol, pair)) for pair in self._pairs(path1, path2, recursive, maxdepth, self.isdir)]
        if not pairs:
            self._missing(self._strip_protocol(path1))
        moves = list(dict.fromkeys((source, target) for source, target in pairs if source != target))
        if ({source for source, _ in pairs} & {target for _, target in moves}
                or recursive and any(target.startswith(f"{source}/") and self._has_inside(source) for source, target in moves)):
            raise ValueError(f"{path1!r}: cannot be moved into itself, to {path2!r}")
        generations = {}
        for source, _ in moves:
            with contextlib.suppress(NotFound):  # a directory
                generations[source] = self.store.head(source).generation
        targets = [target for source, target in moves if source in generations]
        if len(set(targets)) < len(targets):
            raise ValueError(f"{path1!r}: more than one would have the same name in {path2!r}")
        for source, target in moves:
            self.cp_file(source, target)
        for source, generation in generations.items():
            with contextlib.suppress(Stale):
                self.store.delete(source, if_generation=generation)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        whole = recursive and maxdepth is None
        paths = self.expand_path(path, recursive=recursive and not whole, maxdepth=maxdepth)
        if not recursive:
            for one in paths:
                self._missing(one) if not self.isfile(one) else None
        count = sum(self.store.delete_prefix(f"{one}/" if one else "") for one in paths) if whole else 0
        count += sum(self.store.delete_many([one for one in paths if one]))
        if whole and not count and "" not in paths:
            raise FileNotFoundError(path)

    def _rm(self, path: str) -> None:
        path = self._strip_protocol(path)
        if not self.isfile(path) or not self.store.delete(path):
            raise FileNotFoundError(path)


# An installed package is found by its entry point; one that is used from a build folder is not.
register_implementation(PROTOCOL, PenstockFileSystem, clobber=True)
