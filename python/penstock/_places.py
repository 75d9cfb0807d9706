# SPDX-License-Identifier: Apache-2.0
"""What arrays, tensors and files share: views where there are any, a word where a value may be evicted, files that appear whole."""
from __future__ import annotations

import contextlib
import mmap
import os
import pathlib
import secrets
import stat
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from .errors import Error, LimitReached, NotAllowed, NotFound, Unsupported
from .records import key_bytes

if TYPE_CHECKING:
    from . import Store, View
    from ._core import Key

PIECE_BYTES = 16 << 20  # of a file that goes piece by piece
_PLACES_MAX = 1024
_MAP_NORESERVE = 0x4000  # Linux's; mmap names it from Python 3.13 on
_checked: weakref.WeakKeyDictionary[Store, set[bytes]] = weakref.WeakKeyDictionary()
_handles: weakref.WeakValueDictionary[tuple[Any, ...], Store] = weakref.WeakValueDictionary()
_opening: weakref.WeakValueDictionary[tuple[Any, ...], threading.RLock] = weakref.WeakValueDictionary()
_lock = threading.RLock()  # a collection of garbage may come here within it; never held while a store is waited for


def _fresh_locks() -> None:
    """A forked child has none of the threads that held its parent's."""
    global _lock
    _lock = threading.RLock()
    _opening.clear()


os.register_at_fork(after_in_child=_fresh_locks)


class CacheWarning(UserWarning):
    """Something that cannot be made anew lies in a `cache` prefix, from which the store may evict it."""


def is_torch(value: object, kind: str = "Tensor") -> bool:
    """Whether it is of that class of torch, which nobody need have imported."""
    module = sys.modules.get("torch")
    return module is not None and isinstance(value, getattr(module, kind))


def without_memory(tensor: Any) -> str | None:
    """Why a tensor of torch has no bytes, to follow its name: it wraps others, as a DTensor does, or none. None if it has."""
    is_plain = type(tensor).__torch_dispatch__ is sys.modules["torch"].Tensor.__torch_dispatch__
    if is_plain and tensor.device.type != "cpu" or tensor.numel() == 0:  # a device's tensor need have no address
        return None
    try:
        if tensor.data_ptr():
            return None
    except RuntimeError:  # torch's word that there is none
        pass
    return f"is a {type(tensor).__name__} without memory of its own: take what it wraps, as by DTensor.to_local()"


def unfillable(target: Any) -> str | None:
    """Why an array or tensor cannot be filled, to follow its name; None if it can."""
    if is_torch(target):
        if target.is_meta:
            return "is on the meta device and has no data"
        if fault := without_memory(target):
            return fault
    if not is_torch(target) and not target.flags.writeable:
        return "cannot be written"
    strides = target.stride() if is_torch(target) else target.strides
    if 0 not in target.shape and any(step == 0 and length > 1 for length, step in zip(target.shape, strides)):
        return "has elements on top of each other"
    return None


def dense(shape: Sequence[int], element_bytes: int) -> tuple[int, ...]:
    """Steps in bytes without gaps, the last dimension's the smallest."""
    strides, step = [], element_bytes
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def keep_or_warn(store: Store, key: Key) -> None:
    """Warn when `key`, which is there, belongs to a `cache` prefix. Asks once for each place (what is before the last slash).

    What was put is there whatever becomes of the question: a store that does not answer it is asked again at the next key.
    """
    place = key_bytes(key).rpartition(b"/")[0]
    with _lock:
        places = _checked.setdefault(store, set())
        if place in places or len(places) >= _PLACES_MAX:
            return
        places.add(place)
    try:
        cache = store.head(key).cache
    except (NotFound, NotAllowed):  # deleted since; or may be written only
        return
    except Error:
        places.discard(place)
        return
    if cache:
        warnings.warn(f"{key!r} lies in a cache prefix: the store may evict it", CacheWarning, stacklevel=3)


def view_or_none(store: Store, key: Key, *, required: bool = False) -> View | None:
    """A view of the value; None where the store shares no memory or has granted all that it does, unless `required`."""
    try:
        return store.view(key)
    except (Unsupported, LimitReached):
        if required:
            raise
        return None


def shared_store(url: str, **options: Any) -> Store:
    """The one store of this process with that URL and those options; it is closed when nobody uses it any more."""
    from . import open as open_store

    name = (os.getpid(), url, *sorted(options.items()))
    with _lock:
        turn = _opening.setdefault(name, threading.RLock())
    with turn:  # who opens that one waits for who does; nobody else
        store = _handles.get(name)
        if store is None or store.closed:
            store = _handles[name] = open_store(url, **options)
        return store


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to be read and written that takes the place of `path` at the block's end, and leaves no trace when the block fails.

    A link stays one, as do a file's permissions. What is no regular file, such as a device, is written as it is.
    """
    target = pathlib.Path(path).resolve()
    there = target.stat() if target.exists() else None
    if there and not target.is_file():
        with open(target, "wb") as file:
            yield file
        return
    beside = target.with_name(f".penstock-{secrets.token_hex(8)}")
    try:
        with open(beside, "x+b") as file:
            if there:
                os.fchmod(file.fileno(), there.st_mode & 0o7777)
            yield file
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def pieces_of(store: Store, key: Key, size: int, generation: int) -> Iterator[memoryview]:
    """A value from its beginning to its end. The next piece takes the memory of the one before."""
    room = memoryview(bytearray(min(size, PIECE_BYTES)))
    for at in range(0, size, PIECE_BYTES):
        yield room[:store.get_into(key, room[:min(size - at, PIECE_BYTES)], offset=at, if_generation=generation)]


def mappable_bytes(file: BinaryIO) -> int:
    """How long an open file is that can be mapped; 0: it has to be read. Of a pipe, a device or a file of ``/proc`` nobody
    knows how long it is."""
    there = os.fstat(file.fileno())
    return there.st_size if stat.S_ISREG(there.st_mode) else 0


def map_file(file: BinaryIO) -> mmap.mmap:
    """An open file, mapped to be put. Remote DMA registers only what may be written; what is written stays here."""
    return mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE | _MAP_NORESERVE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
