# SPDX-License-Identifier: Apache-2.0
"""The words that UMBP has for kinds, with its numbers."""
from __future__ import annotations

import enum


class UMBPRole(enum.IntEnum):
    """A process's part in an SSD that several processes of a host share."""

    Standalone = 0
    """None: its SSD is its own."""
    SharedSSDLeader = 1
    """It has the SSD, and serves the others on a socket in the first folder of it."""
    SharedSSDFollower = 2
    """It reads what the leader has, and puts nothing."""


class UMBPDeploymentMode(enum.IntEnum):
    """Where a client's store is."""

    Local = 0
    StandaloneProcess = 1
    Distributed = 2


class UMBPSsdLayoutMode(enum.IntEnum):
    """How values lie on the SSD."""

    SegmentedLog = 1


class UMBPIoBackend(enum.IntEnum):
    """What reads and writes the SSD; io_uring gives way to the other if the system does not allow it."""

    Posix = 0
    IoUring = 1


class UMBPDurabilityMode(enum.IntEnum):
    """Whether a put to the SSD ends when a crash would not lose it."""

    Strict = 0
    Relaxed = 1


class CacheRemoteAdmission(enum.IntEnum):
    """Which blocks that came from another node a node keeps, too."""

    SIZE = 0
    NEVER = 1
    ALWAYS = 2


class UMBPTierType(enum.IntEnum):
    """Where an engine holds a block."""

    Unknown = 0
    HBM = 1
    DRAM = 2
    SSD = 3


class MemoryLocationType(enum.IntEnum):
    """Where registered memory is."""

    Unknown = 0
    CPU = 1
    GPU = 2


class UMBPHostBufferBacking(enum.IntEnum):
    """What is under memory of :class:`UMBPHostMemAllocator`: pages of 4 KiB or huge ones, in memory that can be shared or not."""

    Anonymous = 0
    AnonymousHugetlb = 1
    AnonymousShm = 2
    AnonymousShmHugetlb = 3
