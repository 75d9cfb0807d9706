# SPDX-License-Identifier: Apache-2.0
"""Mooncake's small types."""
from __future__ import annotations

import ctypes
import enum
import mmap
from dataclasses import dataclass, field


class _Named(enum.IntEnum):
    """A number whose text is its name."""

    __str__ = enum.Enum.__str__


class ObjectDataType(_Named):
    """What a value is; penstock does not ask."""

    UNKNOWN = 0
    KVCACHE = 1
    TENSOR = 2
    WEIGHT = 3
    SAMPLE = 4
    ACTIVATION = 5
    GRADIENT = 6
    OPTIMIZER_STATE = 7
    METADATA = 8
    GENERAL = 9


class SoftPinAction(_Named):
    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2


class ReplicaStatus(_Named):
    UNDEFINED = 0
    INITIALIZED = 1
    PROCESSING = 2
    COMPLETE = 3
    REMOVED = 4
    FAILED = 5


@dataclass
class ReplicateConfig:
    """How a value is to be kept. `replica_num` is at least 1, and the pool's own copies count; `with_hard_pin` pins the key while
    the client is there. The other fields are accepted, and not used."""

    replica_num: int = 1
    nof_replica_num: int = 0
    dfs_replica_num: int = 0
    soft_pin_action: SoftPinAction = SoftPinAction.PRESERVE
    soft_pin_ttl_ms: int | None = None
    with_hard_pin: bool = False
    preferred_segments: list[str] = field(default_factory=list)
    preferred_nof_segments: list[str] = field(default_factory=list)
    preferred_segment: str = ""
    prefer_alloc_in_same_node: bool = False
    data_type: ObjectDataType = ObjectDataType.UNKNOWN
    group_ids: list[str] | None = None


class BufferHandle(bytearray):
    """A value in memory of this process; any buffer's calls work on it."""

    def ptr(self) -> int:
        """Address of its first byte, as long as the handle is there."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self)) if self else 0

    def size(self) -> int:
        """Bytes."""
        return len(self)


@dataclass(frozen=True)
class Descriptor:
    """Where a value is: penstock hands out no addresses of a node's memory."""

    size: int = 0
    buffer_address: int = 0
    transport_endpoint: str = ""


@dataclass(frozen=True)
class MemoryDescriptor:
    buffer_descriptor: Descriptor


@dataclass(frozen=True)
class ReplicaDescriptor:
    """That there is a value, and of what size."""

    status: ReplicaStatus
    _memory: MemoryDescriptor

    def is_memory_replica(self) -> bool:
        return True

    def is_disk_replica(self) -> bool:
        return False

    def is_local_disk_replica(self) -> bool:
        return False

    def get_memory_descriptor(self) -> MemoryDescriptor:
        return self._memory


class MooncakeHostMemAllocator:
    """Memory of this process by its address."""

    def __init__(self) -> None:
        self._taken: dict[int, mmap.mmap] = {}

    def alloc(self, size: int) -> int:
        """Address of `size` bytes, at the start of a page. Raises RuntimeError if there are not so many, or none are asked for."""
        try:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError, ValueError) as error:
            raise RuntimeError(f"memory of {size} bytes: {error}") from None
        if not size:
            raise RuntimeError("memory of 0 bytes")
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._taken[address] = memory
        return address

    def free(self, address: int) -> int:
        """Give it back: 0; -1 for an address that :meth:`alloc` did not return."""
        memory = self._taken.pop(address, None)
        if memory is None:
            return -1
        memory.close()
        return 0
