# SPDX-License-Identifier: Apache-2.0
"""The safetensors format: headers, checked before anything of them is believed, and files in and out.

A file is eight bytes (the header's length, little-endian), a JSON object and the tensors' bytes. A value is such a file,
so that ``put`` of a file and ``penstock get KEY > model.safetensors`` are enough to exchange them with everybody.
"""
from __future__ import annotations

import itertools
import json
import math
import mmap
import os
import stat
from typing import TYPE_CHECKING, Any, BinaryIO, Iterable, Mapping, NamedTuple

from ._places import keep_or_warn, map_file, pieces_of, view_or_none, whole_file

if TYPE_CHECKING:
    from . import Store
    from ._core import Key

HEADER_BYTES_MAX = 100_000_000  # the format's own limit
PREFIX_BYTES = 8
DATA_ALIGNMENT = 64
METADATA = "__metadata__"

# Bits of an element, by the format's names.
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}


class Tensor(NamedTuple):
    """Where a tensor lies: bytes [begin, end) of the value."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Layout(NamedTuple):
    """A header: its tensors by name, and its metadata; `data_begin` is where the first tensor's bytes may lie."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]
    data_begin: int
    total_bytes: int


class FormatError(ValueError):
    """The value or file is no safetensors file, or a damaged one."""


def header_bytes(start: bytes, total_bytes: int) -> int:
    """The length of prefix and header, by the first eight bytes of a file of `total_bytes`."""
    if len(start) < PREFIX_BYTES:
        raise FormatError(f"no safetensors file: it has {total_bytes} bytes")
    length = int.from_bytes(start[:PREFIX_BYTES], "little")
    if length < 2 or length > HEADER_BYTES_MAX or length > total_bytes - PREFIX_BYTES:
        raise FormatError(f"no safetensors file: its header would have {length} bytes, it has {total_bytes} itself")
    return PREFIX_BYTES + length


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise FormatError("damaged safetensors header: a name comes twice")
    return out


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _parse_tensor(name: str, entry: Any, data_begin: int) -> Tensor:
    def fault(what: str) -> FormatError:
        return FormatError(f"damaged safetensors header: tensor {name!r} {what}")

    if not isinstance(entry, dict) or not entry.keys() >= {"dtype", "shape", "data_offsets"}:
        raise fault("has not dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise fault(f"has the unknown dtype {dtype!r}")
    if not isinstance(shape, list) or not all(map(_is_size, shape)):
        raise fault(f"has the shape {shape!r}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise fault(f"has the offsets {offsets!r}")
    elements = 1
    for length in shape:
        elements *= length
        if not _is_size(elements):  # before it has as many digits as the header
            raise fault("has more elements than any file")
    if elements * BITS[dtype] != (offsets[1] - offsets[0]) * 8:
        raise fault(f"has {offsets[1] - offsets[0]} bytes for {dtype} of shape {shape}")
    return Tensor(dtype, tuple(shape), data_begin + offsets[0], data_begin + offsets[1])


def parse(header: bytes, total_bytes: int) -> Layout:
    """Check a header against its file's length.

    Parameters
    ----------
    header : bytes
        Prefix and header, as long as `header_bytes` said.
    total_bytes : int
        Length of the whole file.

    Raises
    ------
    FormatError
        Anything that the format does not allow: unknown dtypes, lengths that do not fit, tensors that overlap, holes,
        bytes behind the last tensor.
    """
    try:
        entries = json.loads(header[PREFIX_BYTES:].decode("utf-8"), object_pairs_hook=_no_doubles)
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FormatError(f"damaged safetensors header: {error}") from None
    if not isinstance(entries, dict):
        raise FormatError("damaged safetensors header: it is no JSON object")
    metadata = entries.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise FormatError("damaged safetensors header: metadata must be texts by name")
    tensors = {name: _parse_tensor(name, entry, len(header)) for name, entry in entries.items()}
    at = len(header)
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != at:
            raise FormatError(f"damaged safetensors header: tensor {name!r} begins at {tensor.begin}, not at {at}")
        at = tensor.end
    if at != total_bytes:
        raise FormatError(f"damaged safetensors file: {total_bytes} bytes, its tensors end at {at}")
    return Layout(tensors, metadata, len(header), total_bytes)


def build(tensors: Iterable[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str],
          order: Iterable[str] = ()) -> bytes:
    """Prefix and header of a file with these tensors (name, dtype, shape), whose bytes follow in this order.

    The data begin at a multiple of 64 bytes. In the header, which readers keep, those of `order` come last, in that order.
    """
    entries: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name, dtype, shape in tensors:
        if name in entries:
            raise ValueError(f"the name {name!r} comes twice, or is the format's own")
        end = at + math.prod(shape) * BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    entries |= {name: entries.pop(name) for name in list(order) if name in entries}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(PREFIX_BYTES + len(text)) % DATA_ALIGNMENT)
    if len(text) > HEADER_BYTES_MAX:
        raise ValueError(f"the header would have {len(text)} bytes, more than {HEADER_BYTES_MAX}")
    return len(text).to_bytes(PREFIX_BYTES, "little") + text


def read_layout(store: Store, key: Key) -> tuple[int, Layout]:
    """The value's generation, and its header."""
    there = store.head(key)
    start = store.get(key, offset=0, length=min(there.size, PREFIX_BYTES), if_generation=there.generation)
    header = store.get(key, offset=0, length=header_bytes(start, there.size), if_generation=there.generation)
    return there.generation, parse(header, there.size)


def check_memory(memory: memoryview) -> Layout:
    """The layout of a whole file in memory."""
    length = header_bytes(bytes(memory[:PREFIX_BYTES]), memory.nbytes)
    return parse(bytes(memory[:length]), memory.nbytes)


def put_safetensors(store: Store, key: Key, path: str | os.PathLike[str], *, if_absent: bool = False,
                    checksum: bool = False) -> int:
    """Store a safetensors file.

    The file is mapped and handed over from there; it does not pass through memory of this process.

    Returns
    -------
    int
        The value's generation.

    Raises
    ------
    FormatError
        The file is damaged; nothing was stored.
    """
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise FormatError("no safetensors file: it has 0 bytes")
        with map_file(file) as mapped, memoryview(mapped) as memory:
            check_memory(memory)
            generation = store.put(key, memory, if_absent=if_absent, checksum=checksum)
    keep_or_warn(store, key)
    return generation


def _write_file(store: Store, key: Key, file: BinaryIO) -> int:
    view = view_or_none(store, key)
    if view is not None:
        with memoryview(view) as memory:
            check_memory(memory)
            return file.write(memory)
    generation, layout = read_layout(store, key)
    size = layout.total_bytes
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a pipe or a device is not mapped
        return sum(map(file.write, pieces_of(store, key, size, generation)))
    os.posix_fallocate(file.fileno(), 0, size)  # a disk that is full says so here, rather than where the memory is touched
    with mmap.mmap(file.fileno(), size) as mapped, memoryview(mapped) as memory:
        return store.get_into(key, memory, if_generation=generation)


def get_safetensors(store: Store, key: Key, path: str | os.PathLike[str]) -> int:
    """Write a value to a safetensors file.

    The bytes go straight from the store to the file. The file appears whole under its name, or not at all.

    Returns
    -------
    int
        The file's length in bytes.

    Raises
    ------
    FormatError
        The value is no safetensors file.
    OSError
        The file cannot be written.
    """
    with whole_file(path) as file:
        return _write_file(store, key, file)


def runs(parts: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Groups the indices of parts (begin, end), in their order, where each begins at the end of the one before."""
    groups: list[list[int]] = []
    last_end = -1
    for index, (begin, end) in enumerate(parts):
        if begin != last_end:
            groups.append([])
        groups[-1].append(index)
        last_end = end
    return groups


def chunked(items: list[int], count: int) -> Iterable[list[int]]:
    """At most `count` of them at a time."""
    iterator = iter(items)
    while part := list(itertools.islice(iterator, count)):
        yield part
