# SPDX-License-Identifier: Apache-2.0
"""Memory of a host for an engine's pages: huge pages if there are any, near a CPU, touched before it is used."""
from __future__ import annotations

import ctypes
import errno
import logging
import mmap
import os
import platform

from .kinds import UMBPHostBufferBacking

_log = logging.getLogger("penstock.umbp")

_MAP_HUGETLB, _MFD_HUGETLB, _HUGE_SHIFT = 0x40000, 4, 26
_MBIND = {"x86_64": 237, "aarch64": 235}
_MPOL_BIND = 2
_NODES_MAX = 1024
_HUGETLB = (UMBPHostBufferBacking.AnonymousHugetlb, UMBPHostBufferBacking.AnonymousShmHugetlb)
_SHM = (UMBPHostBufferBacking.AnonymousShm, UMBPHostBufferBacking.AnonymousShmHugetlb)
_PLAIN = {UMBPHostBufferBacking.AnonymousHugetlb: UMBPHostBufferBacking.Anonymous,
          UMBPHostBufferBacking.AnonymousShmHugetlb: UMBPHostBufferBacking.AnonymousShm}


class UMBPHostBufferHandle:
    """A run of memory of :class:`UMBPHostMemAllocator`; false when there is none, or no more.

    Attributes
    ----------
    ptr : int
        Its address; 0: none.
    requested_size, mapped_size : int
        Bytes that were asked for, and that there are.
    actual_backing : UMBPHostBufferBacking
    actual_alignment : int
        Bytes, of a page.
    """

    __slots__ = ("_memory", "actual_alignment", "actual_backing", "mapped_size", "ptr", "requested_size")

    def __init__(self) -> None:
        self.ptr = self.requested_size = self.mapped_size = self.actual_alignment = 0
        self.actual_backing = UMBPHostBufferBacking.Anonymous
        self._memory: mmap.mmap | None = None

    def __bool__(self) -> bool:
        return self.ptr != 0

    def __repr__(self) -> str:
        return (f"<UMBPHostBufferHandle ptr={self.ptr:#x} requested_size={self.requested_size} mapped_size={self.mapped_size}"
                f" backing={self.actual_backing.name}>")


def _map(size: int, backing: UMBPHostBufferBacking, page: int) -> mmap.mmap:
    """Raises OSError."""
    huge = page.bit_length() - 1 << _HUGE_SHIFT if backing in _HUGETLB else 0
    if backing not in _SHM:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (_MAP_HUGETLB | huge if huge else 0))
    file = os.memfd_create("penstock-host", os.MFD_CLOEXEC | (_MFD_HUGETLB | huge if huge else 0))
    try:
        os.ftruncate(file, size)
        return mmap.mmap(file, size, flags=mmap.MAP_SHARED)
    finally:
        os.close(file)


def _bind(ptr: int, size: int, numa_node: int) -> None:
    """To a NUMA node, as far as the system does that."""
    number = _MBIND.get(platform.machine())
    mask = (ctypes.c_ulong * (_NODES_MAX // (8 * ctypes.sizeof(ctypes.c_ulong))))()
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    mask[numa_node // bits] = 1 << numa_node % bits
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_void_p(ptr), ctypes.c_ulong(size), ctypes.c_int(_MPOL_BIND), mask, ctypes.c_ulong(_NODES_MAX),
                 ctypes.c_uint(0))
    if number is None or libc.syscall(ctypes.c_long(number), *arguments) != 0:
        why = os.strerror(ctypes.get_errno() or errno.ENOSYS)
        _log.warning("memory of %d bytes is not bound to NUMA node %d: %s", size, numa_node, why)


class UMBPHostMemAllocator:
    """Allocates and frees; what is not freed goes with its handle. Threads may share it."""

    def alloc(self, size: int, backing: UMBPHostBufferBacking = UMBPHostBufferBacking.Anonymous, hugepage_size: int = 2 << 20,
              numa_node: int = -1, prefault: bool = True) -> UMBPHostBufferHandle:
        """Take memory.

        Parameters
        ----------
        size : int
            Bytes; rounded up to whole pages.
        backing : UMBPHostBufferBacking
            If there are no huge pages, it is one with small ones: ``handle.actual_backing``.
        hugepage_size : int
            Bytes, a power of two.
        numa_node : int
            -1: any.
        prefault : bool
            Touch all of it now.

        Returns
        -------
        UMBPHostBufferHandle
            False if there is not so much memory.

        Raises
        ------
        ValueError
            An argument is out of range.
        """
        backing = UMBPHostBufferBacking(backing)
        if size < 0 or hugepage_size <= 0 or hugepage_size & (hugepage_size - 1):
            raise ValueError(f"size is {size}, hugepage_size {hugepage_size}: at least 0, and a power of two")
        if not -1 <= numa_node < _NODES_MAX:
            raise ValueError(f"numa_node is {numa_node}, not -1 to {_NODES_MAX - 1}")
        handle = UMBPHostBufferHandle()
        if size == 0:
            return handle
        for kind in dict.fromkeys((backing, _PLAIN.get(backing, backing))):
            page = hugepage_size if kind in _HUGETLB else mmap.PAGESIZE
            mapped = -(-size // page) * page
            try:
                memory = _map(mapped, kind, page)
            except (OSError, OverflowError, ValueError):
                continue
            handle._memory, handle.requested_size, handle.mapped_size = memory, size, mapped
            handle.actual_backing, handle.actual_alignment = kind, page
            handle.ptr = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            break
        if handle and numa_node >= 0:
            _bind(handle.ptr, handle.mapped_size, numa_node)
        if handle and prefault:
            ctypes.memset(handle.ptr, 0, handle.mapped_size)
        return handle

    def free(self, handle: UMBPHostBufferHandle) -> None:
        """Give it back. Does nothing the second time."""
        memory, handle._memory, handle.ptr = handle._memory, None, 0
        if memory is not None:
            memory.close()
