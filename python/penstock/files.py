# SPDX-License-Identifier: Apache-2.0
"""Files in and out, with a bar on a terminal where that takes a while and tqdm is installed."""
from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ._places import PIECE_BYTES, map_file, mappable_bytes, pieces_of, whole_file

if TYPE_CHECKING:
    from ._core import Key
    from .store import Store

__all__ = ["get_file", "put_file"]

LONG_BYTES = 64 << 20


@contextlib.contextmanager
def progress(what: str, total_bytes: int) -> Iterator[Callable[[int], object]]:
    """What is called with each piece's bytes; without a terminal, without tqdm or for what is short it shows nothing."""
    shown = total_bytes >= LONG_BYTES and sys.stderr.isatty()
    try:
        if shown:
            from tqdm import tqdm
    except ImportError:
        shown = False
    if not shown:
        yield lambda count: None
        return
    with tqdm(desc=what, total=total_bytes, unit="B", unit_scale=True, unit_divisor=1024) as bar:
        yield bar.update


def put_file(store: Store, key: Key, path: str | os.PathLike[str], *, if_absent: bool = False,
             if_generation: int | None = None, checksum: bool = False) -> int:
    """Store a file, which is mapped rather than read. A pipe or a device is read to its end.

    Returns
    -------
    int
        The value's generation.

    Raises
    ------
    OSError
        The file cannot be read.
    Exists, Stale, NoSpace
        As of :meth:`penstock.Store.put`.
    """
    with open(path, "rb") as file:
        size = mappable_bytes(file)
        if size == 0:
            with store.stream(key, if_absent=if_absent, if_generation=if_generation, checksum=checksum) as stream:
                while piece := file.read(PIECE_BYTES):
                    stream.write(piece)
                return stream.commit()
        with (map_file(file) as mapped, memoryview(mapped) as memory,
              progress("put", size) as advance,
              store.stream(key, if_absent=if_absent, if_generation=if_generation, checksum=checksum) as stream):
            for at in range(0, size, PIECE_BYTES):
                advance(stream.write(memory[at:at + PIECE_BYTES]))
            return stream.commit()


def get_file(store: Store, key: Key, path: str | os.PathLike[str]) -> int:
    """Write a value to a file, which appears whole under its name, or not at all.

    Returns
    -------
    int
        Bytes written.

    Raises
    ------
    NotFound
        No such key.
    Stale
        The value was overwritten meanwhile.
    OSError
        The file cannot be written.
    """
    stat = store.head(key)
    with whole_file(path) as file, progress("get", stat.size) as advance:
        for piece in pieces_of(store, key, stat.size, stat.generation):
            advance(file.write(piece))
    return stat.size
