# SPDX-License-Identifier: Apache-2.0
"""Arrays and tensors in a GPU's memory as other processes reach them: tensors of torch, and whatever has ``__cuda_array_interface__``.

NVIDIA's driver is loaded at run time, and asked by its own calls (source: CUDA driver API, "libcuda.so.1"): neither CUDA's
toolkit nor a package is needed. Any thread.
"""
from __future__ import annotations

import contextlib
import ctypes
import math
import re
import struct
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ._places import dense, is_torch

__all__ = ["GpuArray", "GpuError", "GpuPlace", "is_gpu", "opened", "said_of", "settle"]

CUDA = 2  # of handles
HEAD = struct.Struct("<4sBBHQQ")
IPC_BYTES = 64
LAZY_PEER_ACCESS = 1
DEVICE_ORDINAL = 9  # of a pointer's attributes

# What the array interface calls an element, by torch's names. Others have no name there, and go as unsigned numbers.
TYPESTRS = {"bool": "|b1", "uint8": "|u1", "int8": "|i1", "uint16": "<u2", "int16": "<i2", "uint32": "<u4", "int32": "<i4", "uint64": "<u8",
            "int64": "<i8", "float16": "<f2", "float32": "<f4", "float64": "<f8", "complex64": "<c8", "complex128": "<c16"}
DTYPES = {typestr: dtype for dtype, typestr in TYPESTRS.items()}


class GpuError(RuntimeError):
    """The driver is not there, or refuses."""


class Driver:
    """The driver's calls, found when the first is made."""

    def __init__(self) -> None:
        self._calls: ctypes.CDLL | None = None
        self._lock = threading.Lock()

    def ask(self, name: str, *arguments: Any) -> None:
        with self._lock:
            if self._calls is None:
                try:
                    self._calls = ctypes.CDLL("libcuda.so.1")
                except OSError as error:
                    raise GpuError(f"no CUDA here: {error}") from error
                self._check("cuInit", self._calls.cuInit(0))
        self._check(name, getattr(self._calls, name)(*arguments))

    def _check(self, name: str, result: int) -> None:
        if result:
            text = ctypes.c_char_p()
            assert self._calls
            self._calls.cuGetErrorString(result, ctypes.byref(text))
            raise GpuError(f"{name}: {(text.value or b'error').decode()} ({result})")

    def retain(self, ordinal: int) -> ctypes.c_void_p:
        """The device's context, which stays as long as somebody retains it."""
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.ask("cuDeviceGet", ctypes.byref(device), ordinal)
        self.ask("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        return context

    def release(self, ordinal: int) -> None:
        device = ctypes.c_int()
        self.ask("cuDeviceGet", ctypes.byref(device), ordinal)
        self.ask("cuDevicePrimaryCtxRelease_v2", device)

    @contextlib.contextmanager
    def device(self, ordinal: int) -> Iterator[None]:
        """A block in which calls are of that device."""
        context = self.retain(ordinal)
        try:
            self.ask("cuCtxPushCurrent_v2", context)
            try:
                yield
            finally:
                self.ask("cuCtxPopCurrent_v2", ctypes.byref(context))
        finally:
            self.release(ordinal)


driver = Driver()


# ---- what this process has


def is_gpu(value: object) -> bool:
    """Whether its elements lie in a GPU's memory."""
    if is_torch(value):
        return bool(value.is_cuda)  # type: ignore[attr-defined]
    return hasattr(value, "__cuda_array_interface__")


class GpuPlace(NamedTuple):
    """Where elements lie: the first at `address`, steps between them in bytes."""

    dtype: str
    element_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    ordinal: int  # of the GPU
    value: Any  # which keeps the memory

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.element_bytes

    @classmethod
    def of(cls, name: str, value: Any) -> GpuPlace:
        """Raises TypeError if it has a dtype that is not known, or lies in no order."""
        if is_torch(value):
            if value.is_conj() or value.is_neg():
                value = value.detach().resolve_conj().resolve_neg()
            element = value.element_size()
            return cls(str(value.dtype).removeprefix("torch."), element, tuple(value.shape), tuple(step * element for step in value.stride()),
                       value.data_ptr(), value.device.index, value)
        said = value.__cuda_array_interface__
        shape, typestr = tuple(said["shape"]), said["typestr"].replace("=", "<")
        if typestr not in DTYPES:
            raise TypeError(f"array {name!r} has elements {typestr}, which are not known")
        if said.get("mask") is not None:
            raise TypeError(f"array {name!r} is masked, and would lose its mask")
        element = int(typestr[2:])
        address = int(said["data"][0])
        return cls(DTYPES[typestr], element, shape, tuple(said.get("strides") or dense(shape, element)), address,
                   ordinal_of(address) if math.prod(shape) else 0, value)


def element_bytes_of(dtype: str) -> int:
    bits = re.search("[0-9]+", dtype)
    return max(int(bits[0]) // 8, 1) if bits else 1


def ordinal_of(address: int) -> int:
    ordinal = ctypes.c_int()
    driver.ask("cuPointerGetAttribute", ctypes.byref(ordinal), DEVICE_ORDINAL, ctypes.c_uint64(address))
    return ordinal.value


def said_of(key: str, place: GpuPlace) -> dict[str, Any]:
    """A tensor as frames of an agent say it. Its memory must stay as long as others may use it.

    Raises
    ------
    GpuError
        Its memory cannot be shared: it was not allocated as one piece, as by torch with ``expandable_segments``.
    """
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    ipc = (ctypes.c_char * IPC_BYTES)()
    with driver.device(place.ordinal):
        if place.size:
            driver.ask("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(place.address))
            driver.ask("cuIpcGetMemHandle", ipc, base)
            exported[place.ordinal, bytes(ipc)] = base.value
    rank = len(place.shape)
    offset = place.address - base.value if place.size else 0
    handle = HEAD.pack(b"pst1", CUDA, rank, 0, size.value, offset) + struct.pack(f"<{rank}q", *place.strides) + bytes(ipc)
    return {"key": key, "ipc_handle": handle.hex(), "shape": list(place.shape), "dtype": place.dtype, "device": f"cuda:{place.ordinal}"}


def settle(places: Iterable[GpuPlace]) -> None:
    """Wait for all that the GPUs of these places have been told to do."""
    for ordinal in {place.ordinal for place in places}:
        with driver.device(ordinal):
            driver.ask("cuCtxSynchronize")


# ---- what other processes have


class Import:
    """Another process's memory, opened. It is closed with the last array over it."""

    def __init__(self, ordinal: int, ipc: bytes) -> None:
        at = ctypes.c_uint64()
        driver.retain(ordinal)  # the mapping belongs to its context
        try:
            with driver.device(ordinal):
                driver.ask("cuIpcOpenMemHandle_v2", ctypes.byref(at), Handle.from_buffer_copy(ipc), LAZY_PEER_ACCESS)
        except GpuError:
            driver.release(ordinal)
            raise
        self.address = at.value
        weakref.finalize(self, close_import, ordinal, self.address)


class Handle(ctypes.Structure):
    """What the driver takes by value."""

    _fields_ = [("bytes", ctypes.c_char * IPC_BYTES)]


def close_import(ordinal: int, address: int) -> None:
    with contextlib.suppress(GpuError):  # the process may end, and the driver before it
        with driver.device(ordinal):
            driver.ask("cuIpcCloseMemHandle", ctypes.c_uint64(address))
        driver.release(ordinal)


#: Where this process's own memory lies, whose handles the driver does not open here.
exported: dict[tuple[int, bytes], int] = {}
#: A handle is opened once in a process: the driver refuses it a second time.
imports: weakref.WeakValueDictionary[tuple[int, bytes], Import] = weakref.WeakValueDictionary()
_lock = threading.Lock()


class GpuArray:
    """Elements in a process's memory, for whatever takes ``__cuda_array_interface__``: ``torch.as_tensor(array)``.

    Attributes
    ----------
    dtype : str
        As torch calls it. Those without a name in the array interface are unsigned numbers there, to be viewed as `dtype`.
    shape, strides : tuple of int
        The latter in bytes.
    device : int
        Which GPU.
    """

    def __init__(self, memory: Import | None, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, device: int) -> None:
        self.memory, self.shape, self.strides, self.dtype, self.device = memory, shape, strides, dtype, device
        element = element_bytes_of(dtype)
        self.__cuda_array_interface__ = {
            "shape": shape, "strides": strides, "typestr": TYPESTRS.get(dtype, f"{'|' if element == 1 else '<'}u{element}"),
            "data": (address, False), "version": 3}

    def torch(self) -> Any:
        """The same as a tensor of torch, in this memory."""
        import torch as module  # type: ignore[import-not-found, unused-ignore]

        found = module.as_tensor(self, device=f"cuda:{self.device}")
        return found if self.dtype in TYPESTRS else found.view(getattr(module, self.dtype))


def opened(said: dict[str, Any]) -> GpuArray:
    """The array that an agent says of another process. It is valid as long as that lives and keeps its memory.

    Raises
    ------
    GpuError
        There is no driver here, or the memory is gone.
    ValueError, LookupError, struct.error
        It is no such handle.
    """
    data = bytes.fromhex(said["ipc_handle"])
    magic, kind, rank, _, size, offset = HEAD.unpack_from(data)
    if (magic, kind) != (b"pst1", CUDA):
        raise ValueError("no handle of a GPU's memory")
    *strides, ipc = struct.unpack_from(f"<{rank}q{IPC_BYTES}s", data, HEAD.size)
    shape, dtype, ordinal = tuple(said["shape"]), str(said["dtype"]), int(str(said["device"]).partition(":")[2] or 0)
    if not math.prod(shape):
        return GpuArray(None, 0, shape, tuple(strides), dtype, ordinal)
    reach = [(length - 1) * step for length, step in zip(shape, strides, strict=True)]
    if offset + sum(step for step in reach if step < 0) < 0 or offset + sum(step for step in reach if step > 0) + element_bytes_of(dtype) > size:
        raise ValueError("it lies beyond its memory")
    with _lock:
        memory = imports.get((ordinal, ipc))
        own = exported.get((ordinal, ipc)) if memory is None else None
        if memory is None and own is None:
            memory = imports[ordinal, ipc] = Import(ordinal, ipc)
    return GpuArray(memory, (memory.address if memory else own or 0) + offset, shape, tuple(strides), dtype, ordinal)
