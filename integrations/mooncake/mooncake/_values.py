# SPDX-License-Identifier: Apache-2.0
"""Values: put, get, exists, remove, and the same from and to memory that is named by address."""
from __future__ import annotations

import ctypes
import errno
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import penstock

from ._codes import Calls, EXISTS, INVALID, NOT_FOUND, NOT_READY, OK, TRANSFER, log
from ._kinds import BufferHandle, Descriptor, MemoryDescriptor, ReplicaDescriptor, ReplicaStatus, ReplicateConfig

if TYPE_CHECKING:
    from collections.abc import Buffer

BATCH_KEYS = 4096

T = TypeVar("T")
Address = tuple[int, int]
Places = Sequence[Sequence[int]]


def batches(items: Iterable[T]) -> Iterator[list[T]]:
    """Lists of what one call of the store takes."""
    left = iter(items)
    while batch := list(itertools.islice(left, BATCH_KEYS)):
        yield batch


def accessible(address: int) -> bool:
    """Whether this process can read the byte; a GPU's memory it cannot. True if the system does not say."""
    byte = ctypes.create_string_buffer(1)
    ours = (ctypes.c_void_p * 2)(ctypes.addressof(byte), 1)
    theirs = (ctypes.c_void_p * 2)(address, 1)
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.process_vm_readv(os.getpid(), ours, 1, theirs, 1, 0) == 1 or ctypes.get_errno() != errno.EFAULT


class Values:
    """The calls on values. A code below 0 says why something was not done; `b""`, None or 0 that there is nothing."""

    _store: penstock.Store | None = None
    _prefix = ""

    def __init__(self) -> None:
        self._calls = Calls()
        self._regions: dict[int, int] = {}
        self._regions_lock = threading.Lock()

    # ---- what all stand on ----

    def _put_all(self, keys: Sequence[str], values: Sequence[object], config: ReplicateConfig | None,
                 replace: bool = False, exists: int = OK) -> list[int]:
        """Codes; a key that is there keeps its value, unless `replace`. Of a key that comes twice the first counts, and with
        `replace` the last: its code is that of all. A value of None is one that nobody may put."""
        store = self._store
        if not all(isinstance(key, str) for key in keys):
            raise TypeError("a key must be a str")
        if len(keys) != len(values) or (config is not None and config.replica_num < 1):
            return [INVALID] * len(keys)
        if store is None:
            return [NOT_READY] * len(keys)
        codes = [OK if key and value is not None else INVALID for key, value in zip(keys, values)]
        of_key: dict[str, int] = {}
        for i, key in enumerate(keys):
            if not codes[i] and (replace or key not in of_key):
                of_key[key] = i
        for batch in batches(of_key.values()):
            items = [(self._prefix + keys[i], values[i]) for i in batch]
            _, found = self._calls.many("put", len(batch), lambda: store.put_many(items, if_absent=not replace))
            for i, code in zip(batch, found):
                codes[i] = exists if code == EXISTS else code
        codes = [code or codes[of_key[key]] for key, code in zip(keys, codes)]
        if config is not None and config.with_hard_pin:
            for key in (key for key, i in of_key.items() if codes[i] == OK):
                self._calls.one(f"pin {key!r}", lambda: store.pin(self._prefix + key))
        return codes

    def _one(self, codes: Sequence[int]) -> int:
        """Of several keys at once the first code that is none of success."""
        return next((code for code in codes if code), OK)

    def _get_all(self, keys: Sequence[str]) -> list[bytes | None]:
        store = self._store
        if store is None:
            return [None] * len(keys)
        values: list[bytes | None] = []
        for batch in batches(keys):
            found, _ = self._calls.many("get", len(batch), lambda: store.get_many([self._prefix + key for key in batch]))
            values += found
        return values

    def _get_into_all(self, keys: Sequence[str], rooms: Sequence[object]) -> list[int]:
        """Bytes of each, or its code. A room of None is none."""
        store = self._store
        if store is None:
            return [NOT_READY] * len(keys)
        sizes = [NOT_FOUND if room is not None else INVALID for room in rooms]
        for batch in batches(i for i, room in enumerate(rooms) if room is not None):
            names, into = [self._prefix + keys[i] for i in batch], [rooms[i] for i in batch]
            counts, codes = self._calls.many("get", len(batch), lambda: store.get_into_many(names, into))
            for i, count, code in zip(batch, counts, codes):
                sizes[i] = code or (NOT_FOUND if count is None else count)
        return sizes

    # ---- bytes ----

    def put(self, key: str, value: Buffer, config: ReplicateConfig | None = None) -> int:
        """Store a value; 0 also if the key is there, which keeps its value."""
        return self.put_batch([key], [value], config)

    def put_batch(self, keys: list[str], values: list[Buffer], config: ReplicateConfig | None = None) -> int:
        """The same for many in one go: 0, or the first code that was none."""
        return self._put_bytes(keys, values, config, False)

    def _put_bytes(self, keys: list[str], values: list[Buffer], config: ReplicateConfig | None, replace: bool) -> int:
        if len(keys) != len(values):
            return INVALID
        held = [memoryview(value) for value in values]
        whole = [view if view.c_contiguous else view.tobytes() for view in held]
        return self._one(self._put_all(keys, [value if view.nbytes else None for value, view in zip(whole, held)], config, replace))

    def put_parts(self, key: str, *parts: Buffer, config: ReplicateConfig | None = None) -> int:
        """Store parts, one behind the other, as one value."""
        return self._put_parts(key, parts, config, False)

    def _put_parts(self, key: str, parts: Sequence[Buffer], config: ReplicateConfig | None, replace: bool) -> int:
        pieces = [part for part in map(memoryview, parts) if part.nbytes]
        return self._put_all([key], [pieces], config, replace)[0] if pieces else OK

    def upsert(self, key: str, value: Buffer, config: ReplicateConfig | None = None) -> int:
        """Store a value, over one that is there."""
        return self.upsert_batch([key], [value], config)

    def upsert_batch(self, keys: list[str], values: list[Buffer], config: ReplicateConfig | None = None) -> int:
        return self._put_bytes(keys, values, config, True)

    def upsert_parts(self, key: str, *parts: Buffer, config: ReplicateConfig | None = None) -> int:
        return self._put_parts(key, parts, config, True)

    def get(self, key: str) -> bytes:
        """The value; without one `b""`."""
        return self._get_all([key])[0] or b""

    def get_batch(self, keys: list[str]) -> list[bytes]:
        return [value or b"" for value in self._get_all(keys)]

    def get_buffer(self, key: str) -> BufferHandle | None:
        """The value in memory that may be written."""
        return self.batch_get_buffer([key])[0]

    def batch_get_buffer(self, keys: list[str]) -> list[BufferHandle | None]:
        return [None if value is None else BufferHandle(value) for value in self._get_all(keys)]

    # ---- memory by address ----

    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """Tell the transport of memory that is used often. It must be this process's own, and not overlap with what is
        registered."""
        if buffer_ptr <= 0 or size <= 0:
            return INVALID
        if not accessible(buffer_ptr) or not accessible(buffer_ptr + size - 1):
            log.warning("register %d bytes at %#x: this process cannot read them; a GPU's memory is none that penstock takes",
                        size, buffer_ptr)
            return INVALID
        with self._regions_lock:
            store = self._store
            if store is None:
                return NOT_READY
            if any(start < buffer_ptr + size and buffer_ptr < start + length for start, length in self._regions.items()):
                return INVALID
            _, code = self._calls.one(f"register {size} bytes", lambda: store.register((buffer_ptr, size)))
            if code == OK:
                self._regions[buffer_ptr] = size
            return code

    def unregister_buffer(self, buffer_ptr: int) -> int:
        """Take that back, before the memory goes."""
        with self._regions_lock:
            store, size = self._store, self._regions.pop(buffer_ptr, None)
            if store is None or size is None:
                return INVALID
            return self._calls.one("unregister", lambda: store.deregister((buffer_ptr, size)))[1]

    def put_from(self, key: str, buffer_ptr: int, size: int, config: ReplicateConfig | None = None) -> int:
        return self.batch_put_from([key], [buffer_ptr], [size], config)[0]

    def batch_put_from(self, keys: list[str], buffer_ptrs: list[int], sizes: list[int],
                       config: ReplicateConfig | None = None) -> list[int]:
        """Store what lies at these addresses; a code for each."""
        return self._put_from(keys, buffer_ptrs, sizes, config, False)

    def upsert_from(self, key: str, buffer_ptr: int, size: int, config: ReplicateConfig | None = None) -> int:
        return self.batch_upsert_from([key], [buffer_ptr], [size], config)[0]

    def batch_upsert_from(self, keys: list[str], buffer_ptrs: list[int], sizes: list[int],
                          config: ReplicateConfig | None = None) -> list[int]:
        return self._put_from(keys, buffer_ptrs, sizes, config, True)

    def _put_from(self, keys: list[str], ptrs: list[int], sizes: list[int], config: ReplicateConfig | None,
                  replace: bool) -> list[int]:
        if not len(keys) == len(ptrs) == len(sizes):
            return [INVALID] * len(keys)
        values = [(ptr, size) if ptr > 0 and size > 0 else None for ptr, size in zip(ptrs, sizes)]
        codes = self._put_all(keys, values, config, replace)
        return [OK if key and ptr > 0 and size == 0 else code for key, ptr, size, code in zip(keys, ptrs, sizes, codes)]

    def put_from_with_metadata(self, key: str, buffer_ptr: int, metadata_buffer_ptr: int, size: int, metadata_size: int,
                               config: ReplicateConfig | None = None) -> int:
        """Store the metadata and what lies at `buffer_ptr` behind it, as one value."""
        return self.batch_put_from_multi_buffers([key], [[metadata_buffer_ptr, buffer_ptr]], [[metadata_size, size]], config)[0]

    def batch_put_from_multi_buffers(self, keys: list[str], all_buffer_ptrs: Places, all_sizes: Places,
                                     config: ReplicateConfig | None = None) -> list[int]:
        """Store values that are gathered from several places each."""
        if not len(keys) == len(all_buffer_ptrs) == len(all_sizes):
            return [INVALID] * len(keys)
        return self._put_all(keys, [_pieces(*place) for place in zip(all_buffer_ptrs, all_sizes)], config)

    def get_into(self, key: str, buffer_ptr: int, size: int) -> int:
        return self.batch_get_into([key], [buffer_ptr], [size])[0]

    def batch_get_into(self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]) -> list[int]:
        """Read values to these addresses: bytes of each, or a code. Memory that is too small keeps its bytes."""
        if not len(keys) == len(buffer_ptrs) == len(sizes):
            return [INVALID] * len(keys)
        rooms = [(ptr, size) if ptr > 0 and size > 0 else None for ptr, size in zip(buffer_ptrs, sizes)]
        return self._get_into_all(keys, rooms)

    def batch_get_into_multi_buffers(self, keys: list[str], all_buffer_ptrs: Places, all_sizes: Places,
                                     prefer_alloc_in_same_node: bool = False) -> list[int]:
        """Read values to several places each, which together have as many bytes as the value: bytes of each, or a code."""
        if not len(keys) == len(all_buffer_ptrs) == len(all_sizes):
            return [INVALID] * len(keys)
        counts = self._get_into_all(keys, [_pieces(*place) for place in zip(all_buffer_ptrs, all_sizes)])
        return [TRANSFER if 0 <= count < sum(sizes) else count for count, sizes in zip(counts, all_sizes)]

    # ---- what is there ----

    def is_exist(self, key: str) -> int:
        """1, 0, or a code if nobody could be asked."""
        return self.batch_is_exist([key])[0]

    def batch_is_exist(self, keys: list[str]) -> list[int]:
        store = self._store
        if store is None:
            return [NOT_READY] * len(keys)
        answers: list[int] = []
        for batch in batches(keys):
            found, codes = self._calls.many("exists", len(batch), lambda: store.exists_many([self._prefix + key for key in batch]))
            answers += [int(bool(there)) if code == OK else 0 if code == NOT_FOUND else code for there, code in zip(found, codes)]
        return answers

    def get_size(self, key: str) -> int:
        """Bytes of the value, or a code."""
        store = self._store
        if store is None:
            return NOT_READY
        stat, code = self._calls.one(f"size of {key!r}", lambda: store.head(self._prefix + key))
        return code if stat is None else stat.size

    def get_replica_desc(self, key: str) -> list[ReplicaDescriptor]:
        """One descriptor of a value that is there; penstock names no places."""
        return self.batch_get_replica_desc([key]).get(key, [])

    def batch_get_replica_desc(self, keys: list[str]) -> dict[str, list[ReplicaDescriptor]]:
        url = "" if self._store is None else self._store.url
        sizes = {key: self.get_size(key) for key in keys}
        return {key: [ReplicaDescriptor(ReplicaStatus.COMPLETE, MemoryDescriptor(Descriptor(size, 0, url)))]
                for key, size in sizes.items() if size >= 0}

    # ---- removing ----

    def remove(self, key: str, force: bool = False) -> int:
        """Remove a value. Values have no leases here, so `force` changes nothing."""
        return self.batch_remove([key], force)[0]

    def batch_remove(self, keys: list[str], force: bool = False) -> list[int]:
        store = self._store
        if store is None:
            return [NOT_READY] * len(keys)
        answers: list[int] = []
        for batch in batches(keys):
            gone, codes = self._calls.many("remove", len(batch), lambda: store.delete_many([self._prefix + key for key in batch]))
            answers += [code or (OK if was else NOT_FOUND) for was, code in zip(gone, codes)]
        return answers

    def batch_replica_clear(self, keys: list[str], segment_name: str = "") -> list[str]:
        """Remove values, and say which were there; of one segment alone nothing can be removed."""
        return [] if segment_name else [key for key, code in zip(keys, self.batch_remove(keys)) if code == OK]

    def remove_by_regex(self, regex_pattern: str, force: bool = False) -> int:
        """Remove all whose key has a match somewhere. How many, or a code."""
        try:
            pattern = re.compile(regex_pattern)
        except re.error as error:
            log.warning("remove_by_regex: %r: %s", regex_pattern, error)
            return INVALID
        return self._counted("remove_by_regex", lambda store: sum(
            sum(store.delete_many(batch)) for batch in batches(
                entry.key for entry in store.list(self._prefix) if pattern.search(entry.name[len(self._prefix):]))))

    def remove_all(self, force: bool = False) -> int:
        """Remove all of this tenant's values. How many, or a code."""
        return self._counted("remove_all", lambda store: store.delete_prefix(self._prefix))

    def _counted(self, what: str, call: Callable[[penstock.Store], int]) -> int:
        store = self._store
        if store is None:
            return NOT_READY
        count, code = self._calls.one(what, lambda: call(store))
        return code if count is None else count


def _pieces(ptrs: Sequence[int], sizes: Sequence[int]) -> list[Address] | None:
    """Places of memory; None for what is none."""
    if len(ptrs) != len(sizes) or any(ptr <= 0 or size < 0 for ptr, size in zip(ptrs, sizes)):
        return None
    return [(ptr, size) for ptr, size in zip(ptrs, sizes) if size] or None
