# SPDX-License-Identifier: Apache-2.0
"""Values as files: raw bytes, text, ``.npy`` for arrays, safetensors for tensors and state dicts. Nothing is pickled.

The value of a key is one file below it, ``penstock-value.NUMBER.KIND``. Each put takes a new number, and the highest counts: a
reader finds the old value or the new one, whatever their kinds.
"""
from __future__ import annotations

import importlib
import mmap
import os
import pathlib
import re
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .errors import DataStoreError

__all__ = ["ValueName", "encode", "is_target", "newest", "read_value", "write_value"]

NAME = re.compile(r"penstock-value\.([0-9]{1,18})\.([a-z]{1,16})")
WRITES_MAX = 1000  # buffers of one writev()


class ValueName(NamedTuple):
    """A value's file. Of two the greater one counts."""

    number: int
    kind: str

    def __str__(self) -> str:
        return f"penstock-value.{self.number}.{self.kind}"

    @classmethod
    def of(cls, name: str) -> ValueName | None:
        """None: the file is no value."""
        found = NAME.fullmatch(name)
        return cls(int(found[1]), found[2]) if found and str(cls(int(found[1]), found[2])) == name else None


def newest(names: Iterable[ValueName]) -> ValueName | None:
    return max(names, default=None)


# ---- from Python to a file ----


def encode(data: Any) -> tuple[str, list[Any]]:
    """A value's kind, and its file as buffers that follow each other.

    Raises
    ------
    TypeError
        There is no such file for it, or something in it would need pickling.
    """
    if isinstance(data, str):
        return "txt", [data.encode("utf-8", "surrogatepass")]
    if isinstance(data, (bytes, bytearray)):
        return "bin", [data]
    if isinstance(data, memoryview):
        return "bin", [data if data.c_contiguous and data.format == "B" else data.tobytes()]
    if is_tensor(data) or isinstance(data, (Mapping, list, tuple)):
        return "safetensors", tensor_files().file_pieces(data)
    if is_array(data) or hasattr(data, "__dlpack__"):
        return "npy", array_files().file_pieces(data)
    raise TypeError(f"data of type {type(data).__name__} is neither bytes, text, an array, a tensor nor a state dict")


def write_value(path: pathlib.Path, pieces: list[Any]) -> None:
    """Make a value's file."""
    with open(path, "xb", buffering=0) as file:
        left = [memoryview(piece).cast("B") for piece in pieces if memoryview(piece).nbytes]
        while left:
            written = os.writev(file.fileno(), left[:WRITES_MAX])
            while left and written >= left[0].nbytes:
                written -= left.pop(0).nbytes
            if written:
                left[0] = left[0][written:]


# ---- from a file to Python ----


def is_target(dest: object) -> bool:
    """Whether a value can be read into it."""
    return is_tensor(dest) or is_array(dest) or isinstance(dest, (Mapping, list, tuple))


def read_bytes(memory: memoryview, dest: Any) -> bytes:
    if dest is not None:
        raise TypeError(f"the value is bytes or text, and cannot fill a {type(dest).__name__}")
    return bytes(memory)


def read_text(memory: memoryview, dest: Any) -> str:
    return read_bytes(memory, dest).decode("utf-8", "surrogatepass")


def read_array(memory: memoryview, dest: Any) -> Any:
    if dest is not None and not is_array(dest):
        raise TypeError(f"the value is an array, and cannot fill a {type(dest).__name__}")
    return array_files().array_in(memory, dest)


def read_tensors(memory: memoryview, dest: Any) -> Any:
    if is_array(dest):
        raise TypeError("the value is a tensor or a state dict, and cannot fill an array")
    return tensor_files().state_dict_in(memory, dest)


READERS: dict[str, Callable[[memoryview, Any], Any]] = {
    "bin": read_bytes, "txt": read_text, "npy": read_array, "safetensors": read_tensors}


def read_value(path: pathlib.Path, kind: str, dest: Any = None) -> Any:
    """The value of a file, or `dest`, which is filled. What is returned does not change with the file's name.

    Raises
    ------
    TypeError, ValueError
        `dest` has other dtypes, shapes or names than the value; it was not written. Or the file is damaged.
    """
    if kind not in READERS:
        raise DataStoreError(f"{path.name}: this version knows no values of kind {kind!r}")
    if not stat.S_ISREG(path.lstat().st_mode):  # whoever put a link there means a file of this host
        raise DataStoreError(f"{path.name}: the value is no file")
    with open(path, "rb") as file:
        # Pages that are written become this process's own. An empty file cannot be mapped.
        size = os.fstat(file.fileno()).st_size
        memory = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) if size else b"")
    return READERS[kind](memory, dest)


# ---- packages that a process may not have ----


def is_array(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def array_files() -> Any:
    return package("arrays", "arrays need the package numpy")


def tensor_files() -> Any:
    return package("tensors", "tensors and state dicts need the package torch")


def package(name: str, needs: str) -> Any:
    try:
        return importlib.import_module(f"penstock.{name}")
    except ImportError as error:
        raise ImportError(needs) from error
