# SPDX-License-Identifier: Apache-2.0
"""Values that are put from, and read to, several places of memory each, by offsets."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import Error, Invalid
from ..records import each_key
from ..store import Store

if TYPE_CHECKING:
    from .._core import Address, Key

Ranges = Sequence[Sequence[int]]
_EXISTS = 2
_MISS = 1


def _check(keys: Sequence[Key], **lists: Sequence[object]) -> None:
    each_key(keys)
    for name, found in lists.items():
        if len(found) != len(keys):
            raise Invalid(f"{len(keys)} keys and {len(found)} {name}")


def _runs(number: int, ptrs: Sequence[int], sizes: Sequence[int], offsets: Sequence[int]) -> list[tuple[int, Address]]:
    """Pieces of one value with their offsets in it, in order; those of no bytes left out."""
    if not len(ptrs) == len(sizes) == len(offsets):
        raise Invalid(f"ptrs[{number}], sizes[{number}] and offsets[{number}] have {len(ptrs)}, {len(sizes)} and {len(offsets)}"
                      " items")
    runs = [(offset, (ptr, size)) for ptr, size, offset in zip(ptrs, sizes, offsets) if size]
    for offset, (ptr, size) in runs:
        if ptr <= 0 or size < 0 or offset < 0:
            raise Invalid(f"item {number} has a range of {size} bytes at {offset} with the address {ptr}")
    return runs if all(a[0] <= b[0] for a, b in zip(runs, runs[1:])) else sorted(runs, key=lambda run: run[0])


def _tiles(runs: list[tuple[int, Address]], size: int) -> bool:
    at = 0
    for offset, (_, length) in runs:
        if offset != at:
            return False
        at += length
    return at == size and size > 0


def put_ranges(store: Store, keys: Sequence[Key], object_sizes: Sequence[int], ptrs: Ranges, sizes: Ranges, offsets: Ranges,
               durable: bool) -> tuple[list[bool], Exception | None]:
    """Which values are there now, and the error of the first that failed."""
    _check(keys, object_sizes=object_sizes, ptrs=ptrs, sizes=sizes, offsets=offsets)
    runs = [_runs(i, *of) for i, of in enumerate(zip(ptrs, sizes, offsets))]
    good = [i for i, size in enumerate(object_sizes) if _tiles(runs[i], size)]
    failure: Exception | None = None
    if len(good) < len(keys):
        failure = Invalid("the ranges of a value are not all of it, or meet")
    done = [False] * len(keys)
    results = [0] * len(good)
    try:
        if good:
            store.put_many([(keys[i], [piece for _, piece in runs[i]]) for i in good], if_absent=True, durable=durable)
    except Error as error:
        if error.results is None:
            raise
        results = error.results
        failure = error if any(result not in (0, _EXISTS) for result in results) else failure
    for i, result in zip(good, results):
        done[i] = result in (0, _EXISTS)
    return done, failure


def _joined(runs: list[tuple[int, Address]]) -> list[tuple[int, list[Address]]]:
    """Runs that follow one another in the value as one read."""
    joined: list[tuple[int, list[Address]]] = []
    end = -1
    for offset, piece in runs:
        if offset == end:
            joined[-1][1].append(piece)
        else:
            joined.append((offset, [piece]))
        end = offset + piece[1]
    return joined


def get_ranges(store: Store, keys: Sequence[Key], ptrs: Ranges, sizes: Ranges,
               offsets: Ranges) -> tuple[list[bool], Exception | None]:
    """Of which values all was read, and the error of the first that failed."""
    _check(keys, ptrs=ptrs, sizes=sizes, offsets=offsets)
    reads = [(i, offset, pieces) for i, of in enumerate(zip(ptrs, sizes, offsets)) for offset, pieces in _joined(_runs(i, *of))]
    done, failure = [True] * len(keys), None
    if not reads:
        return done, None
    try:
        found = store.get_into_many([keys[i] for i, _, _ in reads], [pieces for _, _, pieces in reads],
                                    offsets=[offset for _, offset, _ in reads])
        there = [count is not None for count in found]
    except Error as error:
        if error.results is None:
            raise
        there, failure = [result == 0 for result in error.results], error
    for (i, _, _), ok in zip(reads, there):
        done[i] = done[i] and ok
    return done, failure
