# SPDX-License-Identifier: Apache-2.0
"""Directories, which a store does not have: a key with slashes implies them."""
from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, NamedTuple

if TYPE_CHECKING:
    from . import Entry, Store

# A directory's keys are read through up to this many, then skipped by a listing that begins behind them.
_READ_THROUGH = 100


class Child(NamedTuple):
    """What lies directly in a directory: a key, or with `entry` None a directory."""

    name: bytes
    entry: Entry | None


def children(store: Store, directory: bytes) -> Iterator[Child]:
    """What lies in a directory (empty, or with a slash at its end), each name once, in the order of their bytes.

    A name that is a key as well as a directory comes twice, the key first. An empty name, as between two slashes, is none.
    """
    start: bytes | None = None
    while True:
        inner, count = b"", 0
        for entry in store.list(directory, start=start):
            name, slash, _ = entry.key[len(directory):].partition(b"/")
            if not slash:
                if name:
                    yield Child(name, entry)
                continue
            if name != inner:
                inner, count = name, 0
                if name:
                    yield Child(name, None)
            count += 1
            if count > _READ_THROUGH:
                break
        else:
            return
        start = directory + inner + b"0"  # the byte behind the slash


def is_directory(store: Store, directory: bytes) -> bool:
    """Whether there is any key in a directory (with a slash at its end)."""
    return any(True for _ in store.list(directory))
