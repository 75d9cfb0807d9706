# SPDX-License-Identifier: Apache-2.0
"""Arrays and tensors in a GPU's memory as other processes reach them: tensors of torch, and whatever has ``__cuda_array_interface__``.

NVIDIA's driver is loaded at run time, and asked by its own calls (source: CUDA driver API, "libcuda.so.1"): neither CUDA's
toolkit nor a package is needed. Any thread; a child made by fork() has no GPU.
"""
from __future__ import annotations

import collections
import contextlib
import ctypes
import math
import os
import re
import struct
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ._places import dense, is_torch, unfillable, without_memory

__all__ = ["GpuArray", "GpuError", "GpuPlace", "check_fillable", "handle_of", "is_gpu", "opened", "said_of", "settle"]

CUDA = 2  # of handles
HEAD = struct.Struct("<4sBBHQQ")
IPC_BYTES = 64
RANK_MAX = 32
LAZY_PEER_ACCESS = 1
DEVICE_ORDINAL = 9  # of a pointer's attributes

# What the array interface calls an element, by torch's names. Others have no name there, and go as unsigned numbers.
TYPESTRS = {"bool": "|b1", "uint8": "|u1", "int8": "|i1", "uint16": "<u2", "int16": "<i2", "uint32": "<u4", "int32": "<i4", "uint64": "<u8",
            "int64": "<i8", "float16": "<f2", "float32": "<f4", "float64": "<f8", "complex64": "<c8", "complex128": "<c16"}
DTYPES = {typestr: dtype for dtype, typestr in TYPESTRS.items()}

Handle = tuple[int, bytes]  # a device, and what its driver calls a memory


class GpuError(RuntimeError):
    """The driver is not there, or refuses."""


class Driver:
    """The driver's calls, found when the first is made."""

    def __init__(self) -> None:
        self._calls: ctypes.CDLL | None = None
        self.lock = threading.Lock()

    def ask(self, name: str, *arguments: Any) -> None:
        with self.lock:
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
    writable: bool
    value: Any  # which keeps the memory

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.element_bytes

    @classmethod
    def of(cls, name: str, value: Any) -> GpuPlace:
        """Raises TypeError if what it says of itself cannot be, or is not known here."""
        if is_torch(value):
            return cls._of_torch(name, value)
        dtype, element, shape, strides, address, writable = described(name, value)
        return cls(dtype, element, shape, strides, address, ordinal_of(address) if math.prod(shape) else 0, writable, value)

    @classmethod
    def _of_torch(cls, name: str, value: Any) -> GpuPlace:
        if fault := without_memory(value):
            raise TypeError(f"tensor {name!r} {fault}")
        is_view = not (value.is_conj() or value.is_neg())
        if not is_view:  # of such a view the bytes are others
            value = value.detach().resolve_conj().resolve_neg()
        element = value.element_size()
        return cls(str(value.dtype).removeprefix("torch."), element, tuple(value.shape), tuple(step * element for step in value.stride()),
                   value.data_ptr(), value.device.index, is_view, value)


def described(name: str, value: Any) -> tuple[str, int, tuple[int, ...], tuple[int, ...], int, bool]:
    """What an array says of itself: dtype, bytes of an element, shape, steps in bytes, address, and whether it can be written."""
    try:
        said = value.__cuda_array_interface__
        typestr, mask = str(said["typestr"]).replace("=", "<"), said.get("mask")
        shape = tuple(whole(length) for length in said["shape"])
        address, read_only = int(said["data"][0]), bool(said["data"][1])
        strides = said.get("strides")
        strides = None if strides is None else tuple(whole(step) for step in strides)
    except Exception as error:
        raise TypeError(f"array {name!r} says of itself what cannot be: {type(error).__name__}: {error}") from error
    if typestr not in DTYPES:
        raise TypeError(f"array {name!r} has elements {typestr}, which are not known")
    if mask is not None:
        raise TypeError(f"array {name!r} is masked, and would lose its mask")
    if len(shape) > RANK_MAX or any(length < 0 for length in shape) or (strides is not None and len(strides) != len(shape)):
        raise TypeError(f"array {name!r} has shape {shape} and strides {strides}")
    element = int(typestr[2:])
    return DTYPES[typestr], element, shape, dense(shape, element) if strides is None else strides, address, not read_only


def whole(number: Any) -> int:
    found = int(number)
    if found != number or not -1 << 63 <= found < 1 << 63:
        raise ValueError(f"{number!r} is no whole number of 64 bits")
    return found


def check_fillable(name: str, place: GpuPlace) -> None:
    """Raises ValueError if what lies there cannot be filled."""
    fault = unfillable(place.value) if is_torch(place.value) else None
    if not place.writable:
        fault = "cannot be written"
    elif not fault and place.size and any(step == 0 and length > 1 for length, step in zip(place.shape, place.strides)):
        fault = "has elements on top of each other"
    if fault:
        raise ValueError(f"{name!r} {fault}")


def element_bytes_of(dtype: str) -> int:
    bits = re.search("[0-9]+", dtype)
    return max(int(bits[0]) // 8, 1) if bits else 1


def ordinal_of(address: int) -> int:
    ordinal = ctypes.c_int()
    driver.ask("cuPointerGetAttribute", ctypes.byref(ordinal), DEVICE_ORDINAL, ctypes.c_uint64(address))
    return ordinal.value


class Exported(NamedTuple):
    """An allocation of this process as others reach it."""

    handle: Handle
    base: int
    size: int


def handle_of(place: GpuPlace) -> Exported:
    """The allocation in which elements lie.

    Raises
    ------
    GpuError
        It cannot be shared: it was not allocated as one piece, as by torch with ``expandable_segments``.
    """
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    ipc = (ctypes.c_char * IPC_BYTES)()
    if place.size:
        with driver.device(place.ordinal):
            driver.ask("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(place.address))
            driver.ask("cuIpcGetMemHandle", ipc, base)
    return Exported((place.ordinal, bytes(ipc)), base.value, size.value)


def said_of(key: str, place: GpuPlace, exported: Exported | None = None) -> dict[str, Any]:
    """A tensor as frames of an agent say it. Its memory must stay as long as others may use it. Raises as :func:`handle_of`."""
    exported = exported or handle_of(place)
    rank = len(place.shape)
    offset = place.address - exported.base if place.size else 0
    handle = HEAD.pack(b"pst1", CUDA, rank, 0, exported.size, offset) + struct.pack(f"<{rank}q", *place.strides) + exported.handle[1]
    return {"key": key, "ipc_handle": handle.hex(), "shape": list(place.shape), "dtype": place.dtype, "device": f"cuda:{place.ordinal}"}


def settle(places: Iterable[GpuPlace]) -> None:
    """Wait for all that the GPUs of these places have been told to do."""
    for ordinal in {place.ordinal for place in places}:
        with driver.device(ordinal):
            driver.ask("cuCtxSynchronize")


# ---- what other processes have


class IpcHandle(ctypes.Structure):
    """What the driver takes by value."""

    _fields_ = [("bytes", ctypes.c_char * IPC_BYTES)]


class Imports:
    """Memories of other processes, each opened once: the driver refuses a handle a second time. It is closed with its last user."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Handle, list[int]] = {}  # address, users
        self._given: collections.deque[Handle] = collections.deque()

    def __len__(self) -> int:
        return len(self._open)

    def take(self, handle: Handle) -> int:
        """Its address. Each call wants a :meth:`give`."""
        with self._lock:
            self._drain()
            if handle not in self._open:
                self._open[handle] = [self._import(handle), 0]
            found = self._open[handle]
            found[1] += 1
        self._try_drain()
        return found[0]

    def give(self, handle: Handle) -> None:
        """Anywhere, also where a collection of garbage interrupts :meth:`take`."""
        self._given.append(handle)
        self._try_drain()

    def _try_drain(self) -> None:
        while self._given and self._lock.acquire(blocking=False):
            try:
                self._drain()
            finally:
                self._lock.release()

    def _drain(self) -> None:
        while self._given:
            handle = self._given.popleft()
            found = self._open[handle]
            found[1] -= 1
            if found[1] == 0:
                del self._open[handle]
                with contextlib.suppress(GpuError):  # the process may end, and the driver before it
                    with driver.device(handle[0]):
                        driver.ask("cuIpcCloseMemHandle", ctypes.c_uint64(found[0]))
                    driver.release(handle[0])

    @staticmethod
    def _import(handle: Handle) -> int:
        at = ctypes.c_uint64()
        driver.retain(handle[0])  # the mapping belongs to its context
        try:
            with driver.device(handle[0]):
                driver.ask("cuIpcOpenMemHandle_v2", ctypes.byref(at), IpcHandle.from_buffer_copy(handle[1]), LAZY_PEER_ACCESS)
        except GpuError:
            driver.release(handle[0])
            raise
        return at.value


imports = Imports()


def _after_fork() -> None:
    """A child has none of the threads that held its parent's locks, and nothing of a GPU."""
    global imports
    imports = Imports()
    driver.lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


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

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, device: int) -> None:
        self.shape, self.strides, self.dtype, self.device = shape, strides, dtype, device
        element = element_bytes_of(dtype)
        self.__cuda_array_interface__ = {
            "shape": shape, "strides": strides, "typestr": TYPESTRS.get(dtype, f"{'|' if element == 1 else '<'}u{element}"),
            "data": (address, False), "version": 3}

    def torch(self) -> Any:
        """The same as a tensor of torch, in this memory."""
        import torch as module  # type: ignore[import-not-found, unused-ignore]

        found = module.as_tensor(self, device=f"cuda:{self.device}")
        return found if self.dtype in TYPESTRS else found.view(getattr(module, self.dtype))


def opened(said: dict[str, Any], own: Mapping[Handle, int]) -> GpuArray:
    """The array that an agent says of a process. It is valid as long as that lives and keeps its memory.

    Parameters
    ----------
    said : dict
        ``ipc_handle``, ``shape``, ``dtype``, ``device``.
    own : mapping
        Where this process's own memory lies, whose handles the driver does not open here.

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
        return GpuArray(0, shape, tuple(strides), dtype, ordinal)
    reach = [(length - 1) * step for length, step in zip(shape, strides, strict=True)]
    if offset + sum(step for step in reach if step < 0) < 0 or offset + sum(step for step in reach if step > 0) + element_bytes_of(dtype) > size:
        raise ValueError("it lies beyond its memory")
    handle = (ordinal, ipc)
    if handle in own:
        return GpuArray(own[handle] + offset, shape, tuple(strides), dtype, ordinal)
    found = GpuArray(imports.take(handle) + offset, shape, tuple(strides), dtype, ordinal)
    weakref.finalize(found, imports.give, handle)
    return found
