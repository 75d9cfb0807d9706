# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays as values, in the form of ``.npy`` files.

A value is a header and the array's bytes, exactly what :func:`numpy.save` writes: dtype (structured and byte-swapped
ones too), shape and order are kept, and ``penstock get KEY > a.npy`` is a file for everybody. The header is a multiple
of 64 bytes long, so that the data begins at such a multiple of the value, and a large value begins on a page.

NumPy's format has no names for the dtypes of ``ml_dtypes`` (bfloat16, float8 and their kin). They are written as a
structure of one field whose title is ``ml_dtypes`` and whose name is the dtype's.
"""
from __future__ import annotations

import ast
import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from ._places import is_torch, keep_or_warn, view_or_none, without_memory

if TYPE_CHECKING:
    from . import Store
    from ._core import Key

HEADER_BYTES_MAX = 1 << 20
DATA_ALIGNMENT = 64
_FIRST_READ_BYTES = 4096
_TITLE = "ml_dtypes"

Array = np.ndarray[Any, np.dtype[Any]]


class Header(NamedTuple):
    """What a value says of its array; `bytes` is the header's own length, `data_bytes` the array's."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    bytes: int

    @property
    def data_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


def _ml_dtypes() -> Any:
    try:
        import ml_dtypes
    except ImportError:
        raise ImportError("arrays of bfloat16 or float8 need the package ml_dtypes") from None
    return ml_dtypes


def _is_foreign(dtype: np.dtype[Any]) -> bool:
    """Whether a package other than NumPy made it."""
    return dtype.base.isbuiltin == 2


def _ml_dtype(name: str) -> np.dtype[Any] | None:
    """The dtype of ml_dtypes with that name. NumPy takes the package's other classes, such as finfo, for objects."""
    kind = getattr(_ml_dtypes(), name, None)
    if not isinstance(kind, type) or not issubclass(kind, np.generic):
        return None
    dtype: np.dtype[Any] = np.dtype(kind)
    return dtype if _is_foreign(dtype) and dtype.name == name and not dtype.hasobject else None


def _stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype as the header names it; TypeError for one that only pickling could store."""
    if dtype.hasobject:
        raise TypeError(f"an array of dtype {dtype} holds Python objects and would need pickling")
    if dtype.names is not None and any(_is_foreign(dtype[name]) for name in dtype.names):
        raise TypeError(f"dtype {dtype}: fields of ml_dtypes have no form in a .npy header")
    if not _is_foreign(dtype):
        return dtype
    if _ml_dtype(dtype.name) != dtype:
        raise TypeError(f"dtype {dtype} is neither NumPy's nor of ml_dtypes")
    out: np.dtype[Any] = np.dtype([((_TITLE, dtype.name), f"<u{dtype.itemsize}")])
    return out


def _real_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The inverse of `_stored_dtype`."""
    if dtype.names is None or len(dtype.names) != 1 or dtype.fields is None:
        return dtype
    field = dtype.fields[dtype.names[0]]
    if len(field) != 3 or field[2] != _TITLE:
        return dtype
    real = _ml_dtype(dtype.names[0])
    if real is None or real.itemsize != dtype.itemsize:
        raise ValueError(f"the value's dtype {dtype.names[0]} is none of ml_dtypes")
    return real


@functools.lru_cache(maxsize=256)
def _header_bytes(name: str, dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool) -> bytes:
    """The header of such an array; `name` tells apart dtypes that compare equal."""
    fields = {"descr": npy.dtype_to_descr(_stored_dtype(dtype)), "fortran_order": fortran, "shape": shape}
    text = repr(fields)
    encoded = text.encode("latin1" if text.isascii() else "utf-8")
    version = 3 if not text.isascii() else 1 if len(encoded) < 65000 else 2
    length_bytes = 2 if version == 1 else 4
    encoded += b" " * (-(9 + length_bytes + len(encoded)) % DATA_ALIGNMENT) + b"\n"
    header = npy.magic(version, 0) + len(encoded).to_bytes(length_bytes, "little") + encoded
    if len(header) > HEADER_BYTES_MAX:
        raise ValueError(f"dtype needs a header of {len(header)} bytes, more than {HEADER_BYTES_MAX}")
    return header


def _header_for(array: Array) -> bytes:
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    return _header_bytes(repr(array.dtype), array.dtype, array.shape, fortran)


def header_bytes(start: bytes) -> int:
    """The length of the header that begins with `start`, its first 12 bytes or more.

    Raises
    ------
    ValueError
        It is no header of an array.
    """
    if len(start) < 12 or start[:6] != b"\x93NUMPY" or start[6] not in (1, 2, 3) or start[7] != 0:
        raise ValueError("the value is no array: it does not begin as a .npy file does")
    length_bytes = 2 if start[6] == 1 else 4
    total = 8 + length_bytes + int.from_bytes(start[8:8 + length_bytes], "little")
    if total > HEADER_BYTES_MAX:
        raise ValueError(f"the value is no array: its header would have {total} bytes")
    return total


@functools.lru_cache(maxsize=256)
def _parse(header: bytes) -> Header:
    text = header[10 if header[6] == 1 else 12:].decode("utf-8" if header[6] == 3 else "latin1", "replace")
    try:
        fields = ast.literal_eval(text)
        if not isinstance(fields, dict) or fields.keys() != {"descr", "fortran_order", "shape"}:
            raise ValueError("its fields are others")
        dtype, shape, fortran = npy.descr_to_dtype(fields["descr"]), fields["shape"], fields["fortran_order"]
        if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape) or type(fortran) is not bool:
            raise ValueError("its shape or order is malformed")
    except (ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError, OverflowError) as error:
        raise ValueError(f"the value's array header is malformed: {error}") from None
    real = _real_dtype(dtype)
    if dtype.hasobject or real.hasobject:
        raise ValueError("the value's array holds pickled objects, which are never loaded")
    return Header(real, shape, fortran, len(header))


def _parse_value(start: bytes, value_bytes: int) -> Header:
    """The header of a value of `value_bytes` that begins with `start`, which holds all of it."""
    header = _parse(start[:header_bytes(start)])
    if header.bytes + header.data_bytes != value_bytes:
        raise ValueError(f"the value has {value_bytes} bytes, its array {header.bytes} + {header.data_bytes}")
    return header


def _array(buffer: Any, header: Header) -> Array:
    """The array that lies in a buffer of the whole value."""
    array: Array = np.ndarray(header.shape, header.dtype, buffer, header.bytes, order="F" if header.fortran else "C")
    return array


def file_pieces(array: Any) -> list[Any]:
    """The ``.npy`` file of an array, as buffers that follow each other, mostly not copied. Raises as :func:`put_array`."""
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("a masked array would lose its mask: store .data and .mask")
    given = array
    if is_torch(given):
        if fault := without_memory(given):  # NumPy would make up bytes for it
            raise TypeError(f"the array {fault}")
        given = given.detach().resolve_conj().resolve_neg()  # DLPack does not say that the bytes are others
    if not isinstance(given, np.ndarray) and hasattr(given, "__dlpack__"):
        given = np.from_dlpack(given)
    given = np.asarray(given)
    header = _header_for(given)
    data = given.T if given.flags.f_contiguous and not given.flags.c_contiguous else np.ascontiguousarray(given)
    # Not every dtype goes through the buffer protocol; bytes do.
    return [header, data.reshape(-1).view(np.uint8)] if data.nbytes else [header]


def array_in(memory: memoryview, out: Array | None = None) -> Array:
    """The array of a whole ``.npy`` file in memory: in that memory, or copied to `out`. Raises as :func:`get_array`."""
    header = _parse_value(bytes(memory[:_header_room(memory)]), memory.nbytes)
    if out is None:
        return _array(memory, header)
    _check_out(out, header)
    np.copyto(out, _array(memory, header), casting="no")
    return out


def put_array(store: Store, key: Key, array: Any, *, if_absent: bool = False, if_generation: int | None = None,
              checksum: bool = False) -> int:
    """Store an array.

    Parameters
    ----------
    store : Store
    key : str or bytes
        Should lie in a `keep` prefix, which is the default class; `CacheWarning` when it does not.
    array : array_like
        Anything that NumPy takes, or with ``__dlpack__``; any shape, 0-d and empty ones too. One that is neither C nor
        Fortran contiguous is copied first.
    if_absent, if_generation, checksum
        As of :meth:`Store.put`.

    Returns
    -------
    int
        The value's generation.

    Raises
    ------
    TypeError
        The dtype holds Python objects, or the array is masked, or a tensor that wraps others, such as a DTensor.
    """
    pieces = file_pieces(array)
    generation = store.put(key, pieces, if_absent=if_absent, if_generation=if_generation, checksum=checksum)
    keep_or_warn(store, key)
    return generation


def get_array(store: Store, key: Key, *, out: Array | None = None, copy: bool | None = None) -> Array:
    """Read an array.

    Parameters
    ----------
    store : Store
    key : str or bytes
    out : numpy.ndarray, optional
        Where it goes; must be writeable and have its dtype and shape. Any strides.
    copy : bool, optional
        None: a read-only array over the store's own memory where that is possible ("mem:", unix sockets), else a copy.
        False: such a view, or `Unsupported`. True: a copy in memory of its own, which may be written.

    Returns
    -------
    numpy.ndarray
        `out` where it was given. A view keeps the value's bytes as they are, whatever happens to its key, until
        the array and all that was made of it are gone.

    Raises
    ------
    NotFound
    ValueError
        The value is no array, or `out` has another shape or cannot be written.
    TypeError
        `out` has another dtype.
    Stale
        The value was replaced between its header and its data, and `out` not written.
    """
    if out is not None:
        return _read_into(store, key, out)
    view = None if copy else view_or_none(store, key, required=copy is False)
    if view is not None:
        return array_in(memoryview(view))
    while True:
        buffer = np.empty(store.head(key).size, np.uint8)
        try:
            count = store.get_into(key, buffer)
        except ValueError:  # it has grown meanwhile
            if store.head(key).size <= buffer.nbytes:
                raise
            continue
        return array_in(memoryview(buffer)[:count])


def _header_room(memory: memoryview) -> int:
    return header_bytes(bytes(memory[:12]))


def _check_out(out: Any, header: Header) -> None:
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a numpy.ndarray, not {type(out).__name__}")
    if not out.flags.writeable:
        raise ValueError("out is read-only")
    if out.dtype != header.dtype:
        raise TypeError(f"out has dtype {out.dtype}, the stored array {header.dtype}")
    if out.shape != header.shape:
        raise ValueError(f"out has shape {out.shape}, the stored array {header.shape}")


def _read_header(store: Store, key: Key) -> tuple[int, Header]:
    """The value's generation, and its header."""
    there = store.head(key)
    start = store.get(key, offset=0, length=min(there.size, _FIRST_READ_BYTES), if_generation=there.generation)
    length = header_bytes(start)
    if length > len(start):
        start = store.get(key, offset=0, length=min(there.size, length), if_generation=there.generation)
    return there.generation, _parse_value(start, there.size)


def _read_into(store: Store, key: Key, out: Array) -> Array:
    view = view_or_none(store, key)
    if view is not None:
        return array_in(memoryview(view), out)
    generation, header = _read_header(store, key)
    _check_out(out, header)
    same_order = out.flags.f_contiguous if header.fortran else out.flags.c_contiguous
    if not same_order:
        np.copyto(out, get_array(store, key, copy=True), casting="no")
        return out
    if out.nbytes:
        data = (out.T if header.fortran else out).reshape(-1).view(np.uint8)
        store.get_into(key, data, offset=header.bytes, if_generation=generation)
    return out
