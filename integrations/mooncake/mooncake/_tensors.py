# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch, each with a head that says what it is, and tensors that are cut for the ranks of tensor parallelism.

A head, little-endian: magic, version, its bytes, dtype, dimensions, 8 bytes of nothing, its bytes, bytes of the data, the shape twice
with -1 behind its end, and nothing up to 304 bytes. The data follow, contiguous.
"""
from __future__ import annotations

import ctypes
import math
import os
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ._codes import INVALID, NOT_OFFERED, OK, log
from ._kinds import ReplicateConfig
from ._ranges import Ranges

if TYPE_CHECKING:
    import torch

HEAD_BYTES = 304
_MAGIC, _VERSION, _DIMENSIONS = 0x4D4F4F4E, 1, 8
_FIELDS = struct.Struct("<IHHII8xQQ")
_SHAPE = struct.Struct(f"<{_DIMENSIONS}q")
_DTYPES = ("float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool", "float16",
           "bfloat16", "float8_e4m3fn", "float8_e5m2")


def tensor_head(tensor: torch.Tensor) -> bytes | None:
    """The head of a tensor; None: it cannot be stored."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _DTYPES or tensor.dim() > _DIMENSIONS or tensor.layout.__repr__() != "torch.strided" or tensor.is_meta:
        return None
    shape = _SHAPE.pack(*tensor.shape, *[-1] * (_DIMENSIONS - tensor.dim()))
    fields = _FIELDS.pack(_MAGIC, _VERSION, HEAD_BYTES, _DTYPES.index(name), tensor.dim(), HEAD_BYTES, tensor.nbytes)
    return (fields + shape * 2).ljust(HEAD_BYTES, b"\0")


def tensor_in(memory: bytearray | memoryview) -> torch.Tensor | None:
    """The tensor that memory has, head and data: it lies in that memory. None: it has none."""
    import torch
    if len(memory) < HEAD_BYTES:
        return None
    magic, version, head, dtype, dims, again, size = _FIELDS.unpack_from(memory)
    if (magic, version, head, again) != (_MAGIC, _VERSION, HEAD_BYTES, HEAD_BYTES):
        return None
    if dtype >= len(_DTYPES) or dims > _DIMENSIONS or size != len(memory) - HEAD_BYTES:
        return None
    shape = _SHAPE.unpack_from(memory, _FIELDS.size)[:dims]
    kind = getattr(torch, _DTYPES[dtype])
    if any(length < 0 for length in shape) or math.prod(shape) * kind.itemsize != size:
        return None
    if not size:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(memory, dtype=kind, offset=HEAD_BYTES).reshape(shape)


def _memory_at(ptr: int, size: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * size).from_address(ptr)).cast("B")


def _tensor_at(ptr: int, size: int) -> torch.Tensor | None:
    return tensor_in(_memory_at(ptr, size)) if ptr > 0 and size >= HEAD_BYTES else None


def shard_key(key: str, rank: int, size: int) -> str:
    """Of a rank's part of a tensor."""
    return key if size <= 1 else f"{key}_tp_{rank}"


def _shards(key: str, tensor: object, size: int, dim: int) -> list[tuple[str, torch.Tensor]] | None:
    """Parts of a tensor for all ranks; None: it cannot be cut so."""
    if size <= 1 or not hasattr(tensor, "chunk"):
        return [(key, tensor)]
    if not 0 <= dim < tensor.dim() or tensor.shape[dim] % size:
        return None
    return [(shard_key(key, rank, size), part) for rank, part in enumerate(tensor.chunk(size, dim))]


class Tensors(Ranges):
    """The calls on tensors. A tensor comes back with dtype and shape; what is none is None."""

    # ---- putting ----

    def _put_tensors(self, pairs: Sequence[tuple[str, object]], config: ReplicateConfig | None, replace: bool) -> list[int]:
        values: list[object] = []
        kept = []  # their memory is read until the put has ended
        for _, tensor in pairs:
            head = tensor_head(tensor) if hasattr(tensor, "data_ptr") and hasattr(tensor, "layout") else None
            if head is None:
                values.append(None)
                continue
            whole = tensor.detach().cpu().resolve_neg().contiguous()  # of a view that says so the bytes are others
            if whole.nbytes and not whole.data_ptr():  # one that wraps others, such as a DTensor
                values.append(None)
                continue
            kept.append(whole)
            values.append([head, (whole.data_ptr(), whole.nbytes)] if whole.nbytes else [head])
        return self._put_all([key for key, _ in pairs], values, config, replace)

    def _put_cut(self, keys: Sequence[str], tensors: Sequence[object], tp_size: int, split_dim: int, config: ReplicateConfig | None,
                 replace: bool = False) -> list[int]:
        """Put the parts of every rank: a code for each tensor, all of whose parts or none it speaks of."""
        if len(keys) != len(tensors):
            return [INVALID] * len(keys)
        cut = [_shards(key, tensor, tp_size, split_dim) for key, tensor in zip(keys, tensors)]
        codes = iter(self._put_tensors([pair for pairs in cut if pairs for pair in pairs], config, replace))
        return [INVALID if pairs is None else self._one([next(codes) for _ in pairs]) for pairs in cut]

    def put_tensor(self, key: str, tensor: object) -> int:
        """Store a tensor; 0 also if the key is there, which keeps its value."""
        return self._put_cut([key], [tensor], 1, 0, None)[0]

    def batch_put_tensor(self, keys: list[str], tensors_list: list) -> list[int]:
        return self._put_cut(keys, tensors_list, 1, 0, None)

    def pub_tensor(self, key: str, tensor: object, config: ReplicateConfig | None = None) -> int:
        return self._put_cut([key], [tensor], 1, 0, config)[0]

    def batch_pub_tensor(self, keys: list[str], tensors_list: list, config: ReplicateConfig | None = None) -> list[int]:
        return self._put_cut(keys, tensors_list, 1, 0, config)

    def upsert_tensor(self, key: str, tensor: object) -> int:
        return self._put_cut([key], [tensor], 1, 0, None, True)[0]

    def batch_upsert_tensor(self, keys: list[str], tensors_list: list) -> list[int]:
        return self._put_cut(keys, tensors_list, 1, 0, None, True)

    def upsert_pub_tensor(self, key: str, tensor: object, config: ReplicateConfig | None = None) -> int:
        return self._put_cut([key], [tensor], 1, 0, config, True)[0]

    def batch_upsert_pub_tensor(self, keys: list[str], tensors_list: list, config: ReplicateConfig | None = None) -> list[int]:
        return self._put_cut(keys, tensors_list, 1, 0, config, True)

    def put_tensor_with_tp(self, key: str, tensor: object, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> int:
        """Store the parts of all ranks, of one length each along `split_dim`."""
        return self._put_cut([key], [tensor], tp_size, split_dim, None)[0]

    def batch_put_tensor_with_tp(self, base_keys: list[str], tensors_list: list, tp_rank: int = 0, tp_size: int = 1,
                                 split_dim: int = 0) -> list[int]:
        return self._put_cut(base_keys, tensors_list, tp_size, split_dim, None)

    def pub_tensor_with_tp(self, key: str, tensor: object, config: ReplicateConfig | None = None, tp_rank: int = 0,
                           tp_size: int = 1, split_dim: int = 0) -> int:
        return self._put_cut([key], [tensor], tp_size, split_dim, config)[0]

    def batch_pub_tensor_with_tp(self, base_keys: list[str], tensors_list: list, config: ReplicateConfig | None = None,
                                 tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> list[int]:
        return self._put_cut(base_keys, tensors_list, tp_size, split_dim, config)

    # ---- putting from memory that has head and data ----

    def _put_from_memory(self, keys: list[str], ptrs: list[int], sizes: list[int], tp_size: int = 1, split_dim: int = 0,
                         replace: bool = False) -> list[int]:
        if not len(keys) == len(ptrs) == len(sizes):
            return [INVALID] * len(keys)
        return self._put_cut(keys, [_tensor_at(*place) for place in zip(ptrs, sizes)], tp_size, split_dim, None, replace)

    def put_tensor_from(self, key: str, buffer_ptr: int, size: int) -> int:
        return self._put_from_memory([key], [buffer_ptr], [size])[0]

    def batch_put_tensor_from(self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]) -> list[int]:
        return self._put_from_memory(keys, buffer_ptrs, sizes)

    def put_tensor_with_tp_from(self, key: str, buffer_ptr: int, size: int, tp_rank: int = 0, tp_size: int = 1,
                                split_dim: int = 0) -> int:
        return self._put_from_memory([key], [buffer_ptr], [size], tp_size, split_dim)[0]

    def batch_put_tensor_with_tp_from(self, base_keys: list[str], buffer_ptrs: list[int], sizes: list[int], tp_rank: int = 0,
                                      tp_size: int = 1, split_dim: int = 0) -> list[int]:
        return self._put_from_memory(base_keys, buffer_ptrs, sizes, tp_size, split_dim)

    def upsert_tensor_from(self, key: str, buffer_ptr: int, size: int) -> int:
        return self._put_from_memory([key], [buffer_ptr], [size], replace=True)[0]

    def batch_upsert_tensor_from(self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]) -> list[int]:
        return self._put_from_memory(keys, buffer_ptrs, sizes, replace=True)

    # ---- getting ----

    def _get_tensors(self, keys: Sequence[str]) -> list[torch.Tensor | None]:
        return [None if memory is None else tensor_in(memory) for memory in self.batch_get_buffer(list(keys))]

    def get_tensor(self, key: str) -> torch.Tensor | None:
        return self._get_tensors([key])[0]

    def batch_get_tensor(self, keys: list[str]) -> list[torch.Tensor | None]:
        return self._get_tensors(keys)

    def get_tensor_with_tp(self, key: str, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> torch.Tensor | None:
        """A rank's part, as it was cut."""
        return self._get_tensors([shard_key(key, tp_rank, tp_size)])[0]

    def batch_get_tensor_with_tp(self, base_keys: list[str], tp_rank: int = 0, tp_size: int = 1) -> list[torch.Tensor | None]:
        return self._get_tensors([shard_key(key, tp_rank, tp_size) for key in base_keys])

    def get_tensor_into(self, key: str, buffer_ptr: int, size: int) -> torch.Tensor | None:
        """Read head and data to an address; the tensor lies there."""
        return self.batch_get_tensor_into([key], [buffer_ptr], [size])[0]

    def batch_get_tensor_into(self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]) -> list[torch.Tensor | None]:
        counts = self.batch_get_into(keys, buffer_ptrs, sizes)
        return [_tensor_at(ptr, count) for ptr, count in zip(buffer_ptrs, counts)]

    def get_tensor_with_tp_into(self, key: str, buffer_ptr: int, size: int, tp_rank: int = 0, tp_size: int = 1,
                                split_dim: int = 0) -> torch.Tensor | None:
        return self.batch_get_tensor_into([shard_key(key, tp_rank, tp_size)], [buffer_ptr], [size])[0]

    def batch_get_tensor_with_tp_into(self, base_keys: list[str], buffer_ptrs: list[int], sizes: list[int], tp_rank: int = 0,
                                      tp_size: int = 1) -> list[torch.Tensor | None]:
        return self.batch_get_tensor_into([shard_key(key, tp_rank, tp_size) for key in base_keys], buffer_ptrs, sizes)

    # ---- files ----

    def save_tensor_to_safetensor(self, key: str, file_name: str | os.PathLike[str] | None = None) -> int:
        """Write a tensor to a safetensors file, `KEY.safetensors` by default."""
        from safetensors.torch import save_file
        tensor = self.get_tensor(key)
        if tensor is None:
            return INVALID
        save_file({key: tensor}, os.fspath(file_name or f"{key}.safetensors"))
        return OK

    def load_tensor_from_safetensor(self, key: str | None = None,
                                    file_name: str | os.PathLike[str] = "") -> torch.Tensor | None:
        """Read the tensor of a safetensors file, and store it under `key`, or the name that it has there."""
        from safetensors.torch import load_file
        tensors = load_file(os.fspath(file_name))
        if len(tensors) != 1:
            log.warning("load_tensor_from_safetensor: %s has %d tensors", file_name, len(tensors))
            return None
        (name, tensor), = tensors.items()
        return tensor if self.upsert_tensor(key or name, tensor) == OK else None

    # ---- what is not offered ----

    def get_tensor_into_cuda(self, key: str, tensor: object) -> int:
        return self.batch_get_tensor_into_cuda([key], [tensor])[0]

    def batch_get_tensor_into_cuda(self, keys: list[str], tensors_list: list) -> list[int]:
        return [INVALID if getattr(tensor, "is_cuda", False) is False else NOT_OFFERED for tensor in tensors_list]


def _parallel(plain: Callable[..., object], refused: Callable[[int], object], one: bool) -> Callable[..., object]:
    """A call `..._with_parallelism`, which is the plain one unless it names axes."""
    def call(self: Tensors, *args: object, **named: object) -> object:
        if any(named.pop(name, None) is not None for name in _AXES):
            log.warning("%s: axes of parallelism are not offered; use the calls with tp", plain.__name__)
            return refused(1 if one else len(args[0]))  # type: ignore[arg-type]
        return plain(self, *args, **named)
    return call


_AXES = ("target", "targets", "parallelism", "parallelisms", "writer_partition", "writer_partitions")
for _verb, _refused in (("get", lambda count: None), ("put", lambda count: NOT_OFFERED), ("upsert", lambda count: NOT_OFFERED)):
    for _batch in ("", "batch_"):
        for _where, _plain in (("", ""), ("_into" if _verb == "get" else "_from",) * 2):
            _many = (lambda refused: lambda count: [refused(count)] * count)(_refused)
            setattr(Tensors, f"{_batch}{_verb}_tensor_with_parallelism{_where}",
                    _parallel(getattr(Tensors, f"{_batch}{_verb}_tensor{_plain}"), _many if _batch else _refused, not _batch))
