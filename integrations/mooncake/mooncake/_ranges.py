# SPDX-License-Identifier: Apache-2.0
"""Parts of values: ranges, and sessions in which a value is read or written range by range."""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import penstock

from ._codes import EXISTS, INVALID, NOT_READY, OK
from ._values import Places, Values

SESSION_KEYS_MAX = 65536


class Ranges(Values):
    """The calls on parts of values. All parts that one call reads of a value are of one generation, and in a session all of it."""

    def __init__(self) -> None:
        super().__init__()
        self._reading: dict[str, int] = {}
        self._writing: dict[str, penstock.Reservation] = {}
        self._sessions_lock = threading.Lock()

    def get_into_ranges(self, buffer_ptrs: list[int], all_keys: list[list[str]], all_dst_offsets: list[list[list[int]]],
                        all_src_offsets: list[list[list[int]]], all_sizes: list[list[list[int]]]) -> list[list[list[int]]]:
        """Read ranges of values into several buffers: for each buffer, key and range its bytes, or a code."""
        if not len(buffer_ptrs) == len(all_keys) == len(all_dst_offsets) == len(all_src_offsets) == len(all_sizes):
            return [[[INVALID] for _ in keys] for keys in all_keys]
        return [self._ranges_of_buffer(*of) for of in zip(buffer_ptrs, all_keys, all_dst_offsets, all_src_offsets, all_sizes)]

    def _ranges_of_buffer(self, ptr: int, keys: list[str], dst: Places, src: Places, sizes: Places) -> list[list[int]]:
        if not len(keys) == len(dst) == len(src) == len(sizes):
            return [[INVALID] for _ in keys]
        answers = []
        for key, to, offsets, lengths in zip(keys, dst, src, sizes):
            if len(to) == len(offsets) == len(lengths):
                places = [ptr + offset if ptr > 0 and offset >= 0 else 0 for offset in to]
                answers.append(self._read(key, places, lengths, offsets, self._generation(key)))
            else:
                answers.append([INVALID])
        return answers

    def _generation(self, key: str) -> int:
        """Of the value that is there, or a code."""
        store = self._store
        if store is None:
            return NOT_READY
        stat, code = self._calls.one(f"get {key!r}", lambda: store.head(self._prefix + key))
        return code if stat is None else stat.generation

    def _read(self, key: str, ptrs: Sequence[int], sizes: Sequence[int], offsets: Sequence[int], generation: int) -> list[int]:
        store = self._store
        if store is None or generation < 0:
            return [NOT_READY if store is None else generation] * len(sizes)

        def one(ptr: int, size: int, offset: int) -> int:
            if ptr <= 0 or size < 0 or offset < 0:
                return INVALID
            count, code = self._calls.one(f"get {key!r}", lambda: store.get_into(
                self._prefix + key, (ptr, size), offset=offset, length=size, if_generation=generation)) if size else (0, OK)
            return code if count is None else count
        return [one(*of) for of in zip(ptrs, sizes, offsets)]

    # ---- sessions that read ----

    def batch_get_session_start(self, keys: list[str]) -> list[int]:
        """Hold on to the values as they are: 0 or a code for each. A value that goes meanwhile is a miss of the ranges."""
        found = [self._generation(key) for key in keys]
        with self._sessions_lock:
            for i, (key, generation) in enumerate(zip(keys, found)):
                if generation >= 0 and len(self._reading) < SESSION_KEYS_MAX:
                    self._reading[key], found[i] = generation, OK
                elif generation >= 0:
                    found[i] = INVALID
        return found

    def batch_get_into_multi_buffer_ranges(self, keys: list[str], all_buffer_ptrs: Places, all_sizes: Places,
                                           all_src_offsets: Places) -> list[int]:
        """Read ranges of values of the session: bytes of each value, or a code."""
        def read(key: str, ptrs: Sequence[int], sizes: Sequence[int], offsets: Sequence[int]) -> int:
            return _sum(self._read(key, ptrs, sizes, offsets, self._reading.get(key, INVALID)))
        return _each(keys, all_buffer_ptrs, all_sizes, all_src_offsets, read)

    def batch_get_session_end(self, keys: list[str]) -> int:
        with self._sessions_lock:
            for key in keys:
                self._reading.pop(key, None)
        return OK

    # ---- sessions that write ----

    def batch_put_session_start(self, keys: list[str], sizes: list[int], config: object = None) -> list[int]:
        """Take memory for values: 0 or a code for each."""
        if len(keys) != len(sizes):
            return [INVALID] * len(keys)
        return [self._reserve(key, size) for key, size in zip(keys, sizes)]

    def _reserve(self, key: str, size: int) -> int:
        store = self._store
        if store is None or not key or size <= 0:
            return NOT_READY if store is None else INVALID
        reservation, code = self._calls.one(f"put {key!r}", lambda: store.reserve(self._prefix + key, size))
        if reservation is None:
            return code
        with self._sessions_lock:
            known = self._writing.setdefault(key, reservation)
        if known is not reservation:
            reservation.abort()
            return EXISTS
        return OK

    def batch_put_from_multi_buffer_ranges(self, keys: list[str], all_buffer_ptrs: Places, all_sizes: Places,
                                           all_dst_offsets: Places) -> list[int]:
        """Write ranges of values of the session: bytes of each value, or a code."""
        def write(key: str, ptrs: Sequence[int], sizes: Sequence[int], offsets: Sequence[int]) -> int:
            reservation = self._writing.get(key)
            if reservation is None or any(ptr <= 0 or size <= 0 or offset < 0 for ptr, size, offset in zip(ptrs, sizes, offsets)):
                return INVALID
            return _sum([self._written(reservation, key, *of) for of in zip(ptrs, sizes, offsets)])
        return _each(keys, all_buffer_ptrs, all_sizes, all_dst_offsets, write)

    def _written(self, reservation: penstock.Reservation, key: str, ptr: int, size: int, offset: int) -> int:
        count, code = self._calls.one(f"put {key!r}", lambda: reservation.write((ptr, size), offset))
        return code if count is None else count

    def batch_put_session_end(self, keys: list[str]) -> list[int]:
        """Make the values readable: 0 or a code for each; one that is not all written is given up."""
        taken = self._taken(keys)
        there = [reservation for reservation in taken if reservation is not None]
        store = self._store
        if store is None:
            return [NOT_READY] * len(keys)
        _, codes = self._calls.many("put", len(there), lambda: store.commit_many(there)) if there else (None, [])
        left = iter(codes)
        return [INVALID if reservation is None else next(left) for reservation in taken]

    def batch_put_session_revoke(self, keys: list[str]) -> list[int]:
        """Give values up: 0 or a code for each."""
        taken = self._taken(keys)
        return [INVALID if reservation is None else self._calls.one(f"revoke {key!r}", reservation.abort)[1]
                for key, reservation in zip(keys, taken)]

    def _taken(self, keys: Sequence[str]) -> list[penstock.Reservation | None]:
        with self._sessions_lock:
            return [self._writing.pop(key, None) for key in keys]

    def _end_sessions(self) -> None:
        self.batch_put_session_revoke(list(self._writing))
        self._reading.clear()


def _sum(counts: Sequence[int]) -> int:
    """Of all ranges, or the first code."""
    return next((count for count in counts if count < 0), sum(counts))


def _each(keys: Sequence[str], ptrs: Places, sizes: Places, offsets: Places,
          call: Callable[[str, Sequence[int], Sequence[int], Sequence[int]], int]) -> list[int]:
    if not len(keys) == len(ptrs) == len(sizes) == len(offsets):
        return [INVALID] * len(keys)
    return [call(key, *of) if len(of[0]) == len(of[1]) == len(of[2]) else INVALID for key, *of in zip(keys, ptrs, sizes, offsets)]
