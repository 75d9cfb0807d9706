# SPDX-License-Identifier: Apache-2.0
"""Tensors between processes of a host, without a copy: this pod's agent, ``penstockd --role agent``, tells others where they lie.

>>> from penstock import sharing
>>> weights = {"w": sharing.empty_shared((1024, 1024), "float32")}
>>> sharing.share("run/weights", weights)                        # doctest: +SKIP
>>> sharing.attach("run/weights")["w"]                           # in another process  # doctest: +SKIP

Memory is files without a name that are sealed, so that nobody can take a page away from who has them mapped. It lasts as long as
somebody has it mapped, or the process lives that shared it.
"""
from __future__ import annotations

import bisect
import contextlib
import ctypes
import fcntl
import json
import math
import mmap
import os
import re
import struct
import sys
import threading
import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import gpus
from ._nesting import flatten, leaves, partners, unflatten, unused
from ._places import dense, is_torch, unfillable, without_memory
from .data_store.errors import AgentError
from .data_store.key_utils import normal_key
from .data_store.pod_data_server import FDS_MAX, FoundTensors, PodDataServerClient, start_server_if_needed
from .safetensors import FormatError

if TYPE_CHECKING:
    import torch  # type: ignore[import-not-found, unused-ignore]

__all__ = ["attach", "empty_shared", "receive", "share", "shared_like", "unshare"]

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
ALIGN = 64  # of what is copied into shared memory
TREE = "~tree"  # below a key: the nesting, as JSON
HOST = 1
HEAD = struct.Struct("<4sBBHQQ")
DTYPES = frozenset((
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32", "float64",
    "complex32", "complex64", "complex128", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"))
NO_PART = re.compile(r"[%/\x00-\x1f\x7f]")  # what a part of a key has not
Array = np.ndarray[Any, np.dtype[Any]]

libc = ctypes.CDLL(None)
libc.memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
libc.memcpy.restype = ctypes.c_void_p


# ---- what lies on GPUs


class Kept:
    """What this process shares of GPUs' memory, which its owner must not free. It changes as the agent's table does."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # what goes may run anything
        self.places: dict[tuple[str, str], list[tuple[gpus.GpuPlace, gpus.Exported]]] = {}

    def own(self) -> dict[gpus.Handle, int]:
        with self.lock:
            return {exported.handle: exported.base for places in self.places.values() for _, exported in places}

    def drop(self, socket: str, key: str) -> None:
        """All that is shared under a key, and below it, by that agent."""
        with self.lock:
            gone = [self.places.pop(name) for name in list(self.places) if name[0] == socket and f"{name[1]}/".startswith(f"{normal_key(key)}/")]
        del gone  # outside of the lock

    def add(self, socket: str, key: str, places: list[tuple[gpus.GpuPlace, gpus.Exported]]) -> None:
        with self.lock:
            self.places[socket, normal_key(key)] = places


kept = Kept()


def _after_fork() -> None:
    """A child has none of the threads that held its parent's lock, and shares nothing."""
    global kept
    kept = Kept()


os.register_at_fork(after_in_child=_after_fork)


# ---- memory


class Memory(mmap.mmap):
    """A file of memory, mapped. It is unmapped with the last array or tensor over it."""

    address: int
    fd: int  # -1: another process's


#: What this process has allocated, by address.
own: weakref.WeakValueDictionary[int, Memory] = weakref.WeakValueDictionary()


def mapped(fd: int, size: int, writable: bool, private: bool = False) -> Memory:
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable or private else 0)
    memory = Memory(fd, size, mmap.MAP_PRIVATE if private else mmap.MAP_SHARED, protection)
    memory.address = int(np.frombuffer(memory, np.uint8).ctypes.data)
    memory.fd = -1
    return memory


def allocate(size: int) -> Memory:
    """Zeros. All pages are there: a host without memory says so here, and not when they are touched."""
    size = max(size, 1)
    left = left_bytes()
    if size > left:
        raise MemoryError(f"shared memory of {size} bytes: {left} are left")
    fd = os.memfd_create("penstock-tensor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        memory = mapped(fd, size, True)
    except OSError as error:
        os.close(fd)
        raise MemoryError(f"shared memory of {size} bytes: {error}") from error
    except BaseException:
        os.close(fd)
        raise
    memory.fd = fd
    weakref.finalize(memory, os.close, fd)
    own[memory.address] = memory
    return memory


def left_bytes() -> int:
    """What the machine has left. Files of memory get more than that, and then the kernel ends processes."""
    with contextlib.suppress(OSError), open("/proc/meminfo", encoding="ascii") as file:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", file.read(), re.MULTILINE)
        if found:
            return int(found[1]) << 10
    return sys.maxsize


def import_memory(fd: int, writable: bool, private: bool = False) -> Memory:
    """Map what an agent handed over; `private`: pages that are written become this process's own. Closes `fd`."""
    try:
        if not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            raise AgentError("the memory of a tensor is not sealed against shrinking")
        return mapped(fd, os.fstat(fd).st_size, writable, private)
    except PermissionError as error:
        raise PermissionError("its owner shares it for reading only") from error
    finally:
        os.close(fd)


# ---- dtypes


def torch_of(name: str) -> torch.dtype:
    import torch as module

    found = getattr(module, name, None)
    if not isinstance(found, module.dtype):
        raise TypeError(f"dtype {name}, which this torch has not")
    return found


def numpy_of(name: str) -> np.dtype[Any]:
    if name in DTYPES:
        with contextlib.suppress(TypeError):
            return np.dtype(name)
        with contextlib.suppress(ImportError, AttributeError):
            import ml_dtypes

            kind: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
            return kind
    raise TypeError(f"dtype {name}, which NumPy has not, nor ml_dtypes if that is there")


def dtype_of(value: Any) -> str:
    """The name of an array's or a tensor's dtype."""
    if is_torch(value):
        return str(value.dtype).removeprefix("torch.")
    return value.dtype.name if value.dtype.isnative else str(value.dtype)


# ---- arrays and tensors as places in memory


class Place(NamedTuple):
    """Where elements lie: the first at `address`; all of them touch [first, end)."""

    dtype: str
    element_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # bytes
    address: int
    first: int
    end: int
    value: Any

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.element_bytes

    @classmethod
    def of(cls, name: str, value: Any) -> Place:
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError(f"tensor {name!r} is a masked array, which would lose its mask: share .data and .mask")
        if isinstance(value, np.ndarray):
            dtype = dtype_of(value)
            element, strides, address = value.dtype.itemsize, value.strides, int(value.__array_interface__["data"][0])
        else:
            check_tensor(name, value)
            if value.is_conj() or value.is_neg():
                value = value.detach().resolve_conj().resolve_neg()
            dtype, element = dtype_of(value), value.element_size()
            strides, address = tuple(step * element for step in value.stride()), value.data_ptr()
        if dtype not in DTYPES:
            raise TypeError(f"tensor {name!r} has the dtype {dtype}, which cannot be shared")
        shape = tuple(value.shape)
        if 0 in shape:
            return cls(dtype, element, shape, strides, address, address, address, value)
        reach = [(length - 1) * step for length, step in zip(shape, strides)]
        return cls(dtype, element, shape, strides, address, address + sum(step for step in reach if step < 0),
                   address + sum(step for step in reach if step > 0) + element, value)


def check_tensor(name: str, tensor: torch.Tensor) -> None:
    import torch as module

    if tensor.layout != module.strided or tensor.is_quantized or tensor.is_meta:
        raise TypeError(f"tensor {name!r} is no dense tensor with data ({tensor.layout}, {tensor.dtype})")
    if tensor.device.type != "cpu":
        raise TypeError(f"tensor {name!r} lies on the device {tensor.device}; only memory of the host and of CUDA can be shared")
    if fault := without_memory(tensor):
        raise TypeError(f"tensor {name!r} {fault}")


class Laid(NamedTuple):
    """A place in shared memory."""

    memory: Memory
    offset: int
    strides: tuple[int, ...]


class Shelf:
    """Finds places in what this process has allocated, and lays the others into one memory more."""

    def __init__(self, places: dict[str, Place]) -> None:
        self.places = places
        self.laid: dict[str, Laid] = {}
        self.memories: list[Memory] = []
        self.index: dict[int, int] = {}  # by id()
        bases = sorted(own.items())
        addresses = [address for address, _ in bases]
        others = []
        for name, place in places.items():
            at = bisect.bisect_right(addresses, place.first) - 1
            memory = bases[at][1] if at >= 0 else None
            if memory and place.end <= memory.address + len(memory) and place.end > place.first and self._takes(memory):
                self.laid[name] = Laid(memory, place.address - memory.address, place.strides)
            else:
                others.append(name)
        self._copy(others)

    def _takes(self, memory: Memory) -> bool:
        if id(memory) not in self.index and len(self.memories) == FDS_MAX - 1:  # a memory is left for those that are copied
            return False
        self._add(memory)
        return True

    def _add(self, memory: Memory) -> None:
        if id(memory) not in self.index:
            self.index[id(memory)] = len(self.memories)
            self.memories.append(memory)

    def _copy(self, names: list[str]) -> None:
        """Those that touch the same bytes are copied as these bytes, and go on to share them."""
        end, groups = 0, list(together((name, self.places[name]) for name in names))
        at: list[int] = []
        for group in groups:
            first, last = span_of(self.places[name] for name in group)
            raw = is_raw(group, self.places)
            at.append(-(-end // ALIGN) * ALIGN + (first % ALIGN if raw else 0))
            end = at[-1] + (last - first if raw else self.places[group[0]].size)
        if not names:
            return
        memory = allocate(end)
        self._add(memory)
        for group, offset in zip(groups, at):
            if is_raw(group, self.places):
                first, last = span_of(self.places[name] for name in group)
                libc.memcpy(memory.address + offset, first, last - first)
                for name in group:
                    place = self.places[name]
                    self.laid[name] = Laid(memory, offset + place.address - first, place.strides)
            else:
                self._pack(group[0], memory, offset)

    def _pack(self, name: str, memory: Memory, offset: int) -> None:
        """Elements that lie apart, one behind the other."""
        place = self.places[name]
        strides = dense(place.shape, place.element_bytes)
        self.laid[name] = Laid(memory, offset, strides)
        if place.size == 0:
            return
        if isinstance(place.value, np.ndarray):
            np.ndarray(place.shape, place.value.dtype, memory, offset, strides)[...] = place.value
        else:
            over_torch(flat_torch(memory), place.value.dtype, offset, place.shape, strides).copy_(place.value.detach())


def together(places: Iterable[tuple[str, Place]]) -> Iterable[list[str]]:
    """Names of places that touch the same bytes, in groups; each name comes once."""
    group: list[str] = []
    end = 0
    for name, place in sorted(places, key=lambda one: (one[1].first, one[1].end)):
        if group and place.first < end:
            group.append(name)
        else:
            if group:
                yield group
            group = [name]
        end = max(end, place.end)
    if group:
        yield group


def span_of(places: Iterable[Place]) -> tuple[int, int]:
    spans = [(place.first, place.end) for place in places]
    return min(first for first, _ in spans), max(end for _, end in spans)


def is_raw(group: Sequence[str], places: dict[str, Place]) -> bool:
    """Whether it is copied as it lies: several, or one without gaps."""
    place = places[group[0]]
    return len(group) > 1 or 0 < place.end - place.first <= place.size


# ---- sharing


def empty_shared(shape: int | Sequence[int], dtype: Any = "float32") -> Any:
    """An array or a tensor, of zeros, in memory of its own that :func:`share` needs not copy.

    Each takes two descriptors; :func:`shared_like` takes them once for a whole state dict.

    Parameters
    ----------
    shape : int or sequence of int
    dtype : torch.dtype, or whatever NumPy takes for one
        With the former a tensor is returned.

    Raises
    ------
    MemoryError
        The host has less memory left.
    TypeError
        Such elements cannot be shared.
    """
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(length < 0 for length in shape):
        raise ValueError(f"shape {shape} has a length below zero")
    name = str(dtype).removeprefix("torch.") if is_torch(dtype, "dtype") else ""
    kind = None if name else np.dtype(dtype) if not isinstance(dtype, str) else numpy_of(dtype)
    if kind is not None and (kind.name not in DTYPES or not kind.isnative) or kind is None and name not in DTYPES:
        raise TypeError(f"elements of dtype {kind or name} cannot be shared")
    element = kind.itemsize if kind else dtype.itemsize
    memory = allocate(math.prod(shape) * element)
    if kind:
        return np.ndarray(shape, kind, memory)
    return over_torch(flat_torch(memory), dtype, 0, shape, dense(shape, element))


def shared_like(tensors: Any) -> Any:
    """A state dict like another, of zeros, in one memory that :func:`share` needs not copy.

    Parameters
    ----------
    tensors : array, tensor, or state dict
        As of :func:`share`. Only dtypes and shapes count: tensors may lie on any device, "meta" too. Those that share memory
        share none here.

    Raises
    ------
    MemoryError, TypeError
        As of :func:`empty_shared`.
    """
    values: dict[str, Any] = {}
    nesting = flatten(tensors, lambda value, path: leaf_of(value, path, values))
    values = {name: on_host(name, value) for name, value in values.items()}
    offsets, end = {}, 0
    for name, value in values.items():
        if dtype_of(value) not in DTYPES:
            raise TypeError(f"tensor {name!r} has the dtype {dtype_of(value)}, which cannot be shared")
        offsets[name] = -(-end // ALIGN) * ALIGN
        end = offsets[name] + math.prod(value.shape) * value.dtype.itemsize
    memory = allocate(end)
    flat = flat_torch(memory) if any(is_torch(value) for value in values.values()) else None

    def leaf(kind: str, inner: Any) -> Any:
        if kind == "s":
            return sys.modules["torch"].Size(inner)
        if kind not in ("t", "n", "y", "g"):
            return None
        value, offset = values[inner], offsets[inner]
        if kind == "t":
            assert flat is not None
            return over_torch(flat, value.dtype, offset, value.shape, dense(value.shape, value.dtype.itemsize))
        return np.ndarray(value.shape, value.dtype, memory, offset) if kind in ("n", "g") else value.tobytes()

    return unflatten(nesting, leaf)


def share(key: str, tensors: Any, *, writable: bool = False, agent: PodDataServerClient | None = None) -> None:
    """Let other processes of this host attach to tensors, until this process ends, or shares something else under the key.

    Parameters
    ----------
    key : str
    tensors : array, tensor, or state dict
        Dicts, lists and tuples, nested at will, of NumPy arrays, torch tensors, arrays with ``__cuda_array_interface__``, numbers,
        texts, bytes, None. What lies in memory of :func:`empty_shared` or :func:`shared_like`, or of a GPU, is shared as it is:
        writes to it show at once. All else is copied, once. Tensors that share memory share it again when they are attached.
    writable : bool
        Others may write to what they attach.
    agent : PodDataServerClient or None
        This pod's if not set, which is started if there is none.

    Raises
    ------
    TypeError
        A dtype that has no name here, or something that would need pickling.
    GpuError
        A GPU's memory that cannot be shared (:func:`penstock.gpus.said_of`).
    AgentError
        There is no agent, or another living process shares something under the key.
    """
    values: dict[str, Any] = {}
    tree = json.dumps(flatten(tensors, lambda value, path: leaf_of(value, path, values)))
    if TREE in values:
        raise ValueError(f"a tensor cannot be called {TREE!r}")
    there = {name: gpus.GpuPlace.of(name, value) for name, value in values.items() if gpus.is_gpu(value)}
    places = {name: Place.of(name, value) for name, value in values.items() if name not in there}
    places[TREE] = Place.of(TREE, np.frombuffer(tree.encode(), np.uint8))
    shelf = Shelf(places)
    said = [said_of(key_of(key, name), place, shelf.laid[name], shelf.index) for name, place in places.items()]
    exported = {name: gpus.handle_of(place) for name, place in there.items()}
    said += [gpus.said_of(key_of(key, name), place, exported[name]) for name, place in there.items()]
    gpus.settle(there.values())
    agent = agent or PodDataServerClient()
    start_server_if_needed(agent.socket_path)
    with contextlib.ExitStack() as stack:
        fds = []
        for memory in shelf.memories:
            fds.append(memory.fd if writable else os.open(f"/proc/self/fd/{memory.fd}", os.O_RDONLY | os.O_CLOEXEC))
            if not writable:
                stack.callback(os.close, fds[-1])
        with kept.lock if there or kept.places else contextlib.nullcontext():
            agent.register_tensors(said, fds, key)
            kept.drop(agent.socket_path, key)
            if there:
                kept.add(agent.socket_path, key, [(place, exported[name]) for name, place in there.items()])


def leaf_of(value: Any, path: str, values: dict[str, Any]) -> Any:
    kind = ("t" if is_torch(value) else "n" if isinstance(value, np.ndarray) else "y" if isinstance(value, bytes)
            else "g" if gpus.is_gpu(value) else "")
    if kind:
        name = unused(path, values)
        values[name] = value if kind != "y" else np.frombuffer(value, np.uint8)
        return {kind: name}
    return {"s": list(value)} if is_torch(value, "Size") else None


def on_host(name: str, value: Any) -> Any:
    """The value, or of an array of a GPU an array of the host with its shape and dtype."""
    if is_torch(value) or not gpus.is_gpu(value):
        return value
    dtype, _, shape, *_ = gpus.described(name, value)
    return np.broadcast_to(np.zeros((), numpy_of(dtype)), shape)


def said_of(key: str, place: Place, laid: Laid, index: dict[int, int]) -> dict[str, Any]:
    rank = len(place.shape)
    handle = HEAD.pack(b"pst1", HOST, rank, 0, len(laid.memory), laid.offset if place.size else 0)
    handle += struct.pack(f"<{rank}qI", *laid.strides, index[id(laid.memory)])
    return {"key": key, "ipc_handle": handle.hex(), "shape": list(place.shape), "dtype": place.dtype, "device": "cpu"}


def key_of(key: str, name: str) -> str:
    """Below a key a name is one part, whatever is in it."""
    part = NO_PART.sub(lambda found: f"%{ord(found[0]):02X}", name) if NO_PART.search(name) else name
    part = part.replace(".", "%2E") if part in (".", "..") else part
    return f"{key}/{part}" if part else key


def unshare(key: str, *, agent: PodDataServerClient | None = None) -> bool:
    """Let nobody attach to it any more. Whether it was shared; those who are attached keep what lies in the host's memory."""
    agent = agent or PodDataServerClient()
    with kept.lock if kept.places else contextlib.nullcontext():
        done = agent.unregister_tensors(key)
        kept.drop(agent.socket_path, key)
    return done


# ---- attaching


def attach(key: str, *, into: Any = None, writable: bool = False, agent: PodDataServerClient | None = None) -> Any:
    """What a process of this host shares under a key, in its memory: nothing is copied.

    Parameters
    ----------
    key : str
    into : array, tensor, or state dict, optional
        With the same names, dtypes and shapes, on any device: its arrays and tensors are filled, and nothing stays mapped.
    writable : bool
        The memory may be written, if its owner lets others do so. **Without it torch knows no read-only tensors: a write to one in
        place ends the process.** Arrays refuse it.
    agent : PodDataServerClient or None
        This pod's if not set.

    Returns
    -------
    As it was shared, or `into`. What is attached of the host stays as it is after its owner ended, and is unmapped with the last
    array or tensor over it. **What lies in a GPU's memory is its owner's, and valid as long as that lives**: a tensor of torch,
    or a :class:`penstock.gpus.GpuArray`, which can be written to.

    Raises
    ------
    KeyNotFound
        Nobody shares it, or who did has ended.
    PermissionError
        Its owner does not let others write.
    TypeError, ValueError
        `into` differs, or cannot be written; nothing was written then. Or it has a dtype that is not known here.
    """
    found = (agent or PodDataServerClient()).find_tensors(key)
    return brought(found, import_all(found.fds, writable and into is None), into)


def receive(key: str, group: str, ip: str, port: int, *, into: Any = None, timeout: float | None = None, world_size: int = 0,
            agent: PodDataServerClient | None = None) -> Any:
    """What a process of another pod shares under a key, and lets others receive (:meth:`PodDataServerClient.serve_broadcast`).

    It comes once into a pod, in a row of the pods that receive it as members of `group`. :func:`attach` finds it from then on, as
    long as this process lives; if it fills `into`, nothing stays of it.

    Parameters
    ----------
    key, group, ip, port, timeout, world_size
        As of :meth:`PodDataServerClient.receive_broadcast`.
    into : array, tensor, or state dict, optional
        As of :func:`attach`.
    agent : PodDataServerClient or None
        This pod's if not set, which is started if there is none.

    Returns
    -------
    As it was shared, or `into`. It may be written to: pages that are written become this process's own.

    Raises
    ------
    KeyNotFound
        Nobody shares it there, or who did has ended.
    AgentError
        The other pod is not there, or nothing more came from it.
    TypeError, ValueError
        As of :func:`attach`.
    """
    agent = agent or PodDataServerClient()
    start_server_if_needed(agent.socket_path)
    found = agent.receive_broadcast(key, group, ip, port, timeout, world_size)
    memories = import_all(found.fds, False, into is None)
    try:
        return brought(found, memories, into)
    finally:
        if into is not None:  # who has filled its own needs no second copy
            with contextlib.suppress(AgentError):  # another process has something there
                agent.unregister_tensors(found.key)


def brought(found: FoundTensors, memories: list[Memory], into: Any) -> Any:
    """The tree over these memories, or `into`, which is filled from it."""
    attached = Attached(found, memories)
    tree = unflatten(attached.nesting(), attached.leaf)
    if into is None:
        return tree
    fill(into, tree)
    return into


def import_all(fds: list[int], writable: bool, private: bool = False) -> list[Memory]:
    memories: list[Memory] = []
    try:
        while fds:
            memories.append(import_memory(fds.pop(0), writable, private))
        return memories
    finally:
        for fd in fds:
            os.close(fd)


class Attached:
    """Arrays and tensors over memory that an agent handed over."""

    def __init__(self, found: FoundTensors, memories: list[Memory]) -> None:
        self.memories = memories
        self.flat: dict[int, torch.Tensor] = {}  # a memory has one storage, so that tensors share it
        said = {str(one["key"]): one for one in found.tensors}
        self.tree = said.pop(f"{found.key}/{TREE}", None)
        # What others have put has no nesting, and names as they are.
        self.parts = [at[len(found.key) + 1:] for at in said]
        self.names = {key_of(found.key, at[len(found.key) + 1:]) if self.tree is None else at: one for at, one in said.items()}
        self.key = found.key

    def nesting(self) -> Any:
        if self.tree:
            try:
                return json.loads(self.array(self.tree).tobytes())
            except (ValueError, RecursionError) as error:
                raise FormatError(f"damaged state dict: {error}") from None
        kind = "t" if "torch" in sys.modules else "n"
        if list(self.names) == [self.key]:
            return {kind: ""}
        return {"d": [[name, {kind: name}] for name in self.parts if name]}

    def leaf(self, kind: str, inner: Any) -> Any:
        if kind == "s" and isinstance(inner, list):
            import torch as module

            return module.Size(inner)
        if kind not in ("t", "n", "y", "g") or not isinstance(inner, str):
            return None
        said = self.names.get(key_of(self.key, inner))
        if said is None:
            raise FormatError(f"damaged state dict: tensor {inner!r} is not there")
        try:
            if is_gpus(said):
                return self.gpu_array(said, kind)
            if kind == "t":
                return self.tensor(said)
            return self.array(said).tobytes() if kind == "y" else self.array(said)
        except TypeError as error:
            raise TypeError(f"tensor {inner!r}: {error}") from None

    @staticmethod
    def gpu_array(said: dict[str, Any], kind: str) -> Any:
        try:
            found = gpus.opened(said, kept.own())
        except (ValueError, LookupError, struct.error) as error:
            raise AgentError(f"a handle that is none: {error}") from error
        return found.torch() if kind == "t" else found

    def array(self, said: dict[str, Any]) -> Array:
        memory, offset, strides = self.place(said)
        return np.ndarray(said["shape"], numpy_of(said["dtype"]), memory, offset, strides)

    def tensor(self, said: dict[str, Any]) -> torch.Tensor:
        memory, offset, strides = self.place(said)
        dtype = torch_of(said["dtype"])
        if id(memory) not in self.flat:
            self.flat[id(memory)] = flat_torch(memory)
        return over_torch(self.flat[id(memory)], dtype, offset, said["shape"], strides)

    def place(self, said: dict[str, Any]) -> Laid:
        try:
            data = bytes.fromhex(said["ipc_handle"])
            magic, kind, rank, _, size, offset = HEAD.unpack_from(data)
            if (magic, kind) != (b"pst1", HOST):
                raise ValueError("another kind of memory")
            *strides, index = struct.unpack_from(f"<{rank}qI", data, HEAD.size)
            memory = self.memories[index]
            if len(memory) != size:
                raise ValueError("another size")
        except (ValueError, LookupError, struct.error) as error:
            raise AgentError(f"a handle that is none: {error}") from error
        return Laid(memory, offset, tuple(strides))


def is_gpus(said: dict[str, Any]) -> bool:
    return str(said.get("device")).startswith("cuda")


def flat_torch(memory: Memory) -> torch.Tensor:
    """All of a memory as a tensor of bytes. Torch knows none that are read-only, and says so."""
    import torch as module

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return module.frombuffer(memory, dtype=module.uint8)


def over_torch(flat: torch.Tensor, dtype: torch.dtype, offset: int, shape: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """A tensor in the storage of a flat one; a copy if that has no whole elements there."""
    import torch as module

    element = dtype.itemsize
    if offset % element or any(step % element for step in strides):
        raw = np.ndarray((*shape, element), np.uint8, flat.numpy(), offset, (*strides, 1))
        return module.from_numpy(raw.copy()).view(-1).view(dtype).view(tuple(shape))
    return module.empty(0, dtype=dtype).set_(flat.untyped_storage(), offset // element, tuple(shape),
                                             tuple(step // element for step in strides))


def room_of(value: Any, path: str, values: dict[str, Any]) -> Any:
    """The same of a tree to be filled: its texts, numbers and bytes stay as they are."""
    return {"v": None} if isinstance(value, bytes) else leaf_of(value, path, values)


def fill(into: Any, tree: Any) -> None:
    """Copy a tree's tensors into those of another one."""
    targets: dict[str, Any] = {}
    values: dict[str, Any] = {}
    wanted = leaves(flatten(into, lambda value, path: room_of(value, path, targets)))
    there = leaves(flatten(tree, lambda value, path: room_of(value, path, values)))
    found = partners(dict(wanted), dict(there))
    if targets.keys() != found.keys() or len(values) != len(found):
        raise ValueError(f"state dict: not shared: {sorted(targets.keys() - found.keys())[:10]}; "
                         f"nowhere to go: {sorted(values.keys() - found.values())[:10]}")
    values = {name: values[stored] for name, stored in found.items()}
    for name, target in targets.items():
        if isinstance(values[name], gpus.GpuArray) and is_torch(target):
            values[name] = values[name].torch()
        if gpus.is_gpu(target) and not is_torch(target):
            raise TypeError(f"{name!r} is a {type(target).__name__} in a GPU's memory, which only tensors of torch are filled in")
        if type(target) is not type(values[name]) and not (is_torch(target) and is_torch(values[name])):
            raise TypeError(f"{name!r} is a {type(values[name]).__name__}, and cannot fill a {type(target).__name__}")
        if target.dtype != values[name].dtype:
            raise TypeError(f"{name!r} is {values[name].dtype}, and cannot fill {target.dtype}")
        if target.shape != values[name].shape:
            raise ValueError(f"{name!r} has shape {tuple(values[name].shape)}, what it is to fill {tuple(target.shape)}")
        if fault := unfillable(target):
            raise ValueError(f"{name!r} {fault}")
    for name, target in targets.items():
        if is_torch(target):
            target.detach().copy_(values[name])
        else:
            target[...] = values[name]
