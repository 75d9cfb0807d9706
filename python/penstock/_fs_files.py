# SPDX-License-Identifier: Apache-2.0
"""The files of :mod:`penstock.fs`: values that are read, and values that come to be when they are closed."""
from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, SupportsIndex

from ._places import keep_or_warn, view_or_none
from .errors import Exists, Stale

if TYPE_CHECKING:
    from . import Store
    from ._core import Stream
    from .fs import PenstockFileSystem

HELD_FILE_BYTES_MAX = 64 << 10
HELD_BYTES_MAX = 64 << 20  # of all files of a transaction


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
        if view is not None and self._memory is not None:
            self.size, self.generation = self._memory.nbytes, view.generation
        else:
            there = store.head(path)
            self.size, self.generation = there.size, there.generation

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
            self._store.get_into(self.name, room, offset=start, if_generation=self.generation)

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

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return _reopen, (self.fs, self.path, self.blocksize, self._bytes.generation, self.tell())

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


def _reopen(fs: PenstockFileSystem, path: str, block_size: int, generation: int, at: int) -> PenstockFile:
    file: PenstockFile = fs.open(path, block_size=block_size)
    if file._bytes.generation != generation:
        raise Stale(f"{path!r} was overwritten since it was opened")
    file.seek(at)
    return file


class Held:
    """The stream of a file in a transaction. What is small waits in this process, where no session's reservations bound it."""

    def __init__(self, store: Store, path: str, transaction: Any, conditions: dict[str, Any]) -> None:
        self._store, self._path, self._transaction, self._conditions = store, path, transaction, conditions
        self._bytes = bytearray()
        self._stream: Stream | None = None
        if store.exists(path) and conditions["if_absent"]:  # which also tells at once what no key can be
            raise FileExistsError(path)

    def _hold(self, data: Any) -> bool:
        """Whether there is room for it here."""
        try:
            with memoryview(data) as view:
                held = getattr(self._transaction, "held_bytes", 0) + view.nbytes
                fits = view.c_contiguous and len(self._bytes) + view.nbytes <= HELD_FILE_BYTES_MAX and held <= HELD_BYTES_MAX
                if fits:
                    self._bytes += view.tobytes()
                    self._transaction.held_bytes = held
        except TypeError:  # several pieces, or nothing that can be written
            fits = False
        return fits

    def write(self, data: Any) -> int:
        before = len(self._bytes)
        if self._stream is None and self._hold(data):
            return len(self._bytes) - before
        if self._stream is None:
            self._stream = open_stream(self._store, self._path, self._conditions)
            self._stream.write(self._bytes)
            self._bytes.clear()
        return self._stream.write(data)

    def commit(self) -> int:
        if self._stream is not None:
            return self._stream.commit()
        return self._store.put(self._path, self._bytes, **self._conditions)

    def abort(self) -> None:
        self._bytes.clear()
        if self._stream is not None:
            self._stream.abort()


def open_stream(store: Store, path: str, conditions: dict[str, Any]) -> Stream:
    try:
        return store.stream(path, **conditions)
    except Exists:
        raise FileExistsError(path) from None


class PenstockWriter(io.RawIOBase):
    """A file that is written; it appears under its name when it is closed, whole.

    One that is left by an exception inside of its ``with`` block leaves no trace.
    """

    mode = "wb"
    may_exist = False  # if it does by the time of the commit, it stays

    def __init__(self, store: Store, path: str, stream: Stream | Held, autocommit: bool) -> None:
        super().__init__()
        self.name = self.path = path
        self._store, self._stream, self._autocommit = store, stream, autocommit
        self._at, self._discarded = 0, False

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
        """What a transaction does at its end, also with a file that was discarded before."""
        if self._discarded:
            return
        try:
            self._stream.commit()
        except Exists:
            if self.may_exist:
                return
            raise FileExistsError(self.path) from None
        keep_or_warn(self._store, self.path)

    def discard(self) -> None:
        """Have it leave no trace."""
        self._discarded, self._autocommit = True, False
        self._stream.abort()

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._autocommit:
            self.commit()

    def __del__(self) -> None:
        """One that was dropped is closed, unless nothing was written to it: then it is left by what failed at its beginning."""
        if not self.closed and not self._at:
            self.discard()
        super().__del__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.discard()
        self.close()


class CompressedWriter(io.BufferedIOBase):
    """What becomes a :class:`PenstockWriter`'s bytes through a compression: from the first write on, as gzip begins with a header."""

    def __init__(self, file: PenstockWriter, compress: Callable[..., Any], mode: str) -> None:
        super().__init__()
        self.name = file.name
        self._file, self._compress, self._mode = file, compress, mode
        self._compressor: Any = None
        self._at = 0

    def _through(self) -> Any:
        if self._compressor is None:
            self._compressor = self._compress(self._file, mode=self._mode)
        return self._compressor

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        count: int = self._through().write(data)
        self._at += count
        return count

    def flush(self) -> None:
        if self._compressor is not None:
            self._compressor.flush()

    def close(self) -> None:
        self._end(True)

    def _end(self, keep: bool) -> None:
        if self.closed:
            return
        compressor, self._compressor = self._through(), None
        compressor.close()
        super().close()
        if not keep:
            self._file.discard()
        self._file.close()

    def __del__(self) -> None:
        """As of a :class:`PenstockWriter`."""
        if self._compressor is not None:
            super().__del__()
        elif not self.closed:
            self._file.discard()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._end(kind is None)


class TextWriter(io.TextIOWrapper):
    """Text that becomes another writer's bytes. An exception within its ``with`` block reaches that."""

    buffer: PenstockWriter | CompressedWriter

    def __del__(self) -> None:
        """One that was dropped leaves to the other what becomes of that."""
        if not self.closed:
            self.detach()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.buffer.__exit__(kind, error, trace)
