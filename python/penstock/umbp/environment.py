# SPDX-License-Identifier: Apache-2.0
"""UMBP's variables, and the fields of a configuration that they set."""
from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, TypeVar

from ..errors import Invalid
from .kinds import UMBPRole

if TYPE_CHECKING:
    from .config import UMBPConfig

_N = TypeVar("_N", int, float, bool)

VARIABLES = {
    "UMBP_DRAM_CAPACITY": "dram.capacity_bytes",
    "UMBP_DRAM_HIGH_WM": "dram.high_watermark",
    "UMBP_DRAM_LOW_WM": "dram.low_watermark",
    "UMBP_DRAM_USE_HUGEPAGES": "dram.use_hugepages",
    "UMBP_DRAM_HUGEPAGE_SIZE": "dram.hugepage_size",
    "UMBP_DRAM_NUMA_NODE": "dram.numa_node",
    "UMBP_DRAM_PREFAULT": "dram.prefault",
    "UMBP_SSD_ENABLED": "ssd.enabled",
    "UMBP_SSD_DIR": "ssd.storage_dir",
    "UMBP_SSD_CAPACITY": "ssd.capacity_bytes",
    "UMBP_SSD_HIGH_WM": "ssd.high_watermark",
    "UMBP_SSD_LOW_WM": "ssd.low_watermark",
    "UMBP_SSD_BACKEND": "ssd.ssd_backend",
    "UMBP_EVICTION_POLICY": "eviction.policy",
    "UMBP_SPDK_BDEV": "ssd.spdk_bdev_name",
    "UMBP_SPDK_REACTOR_MASK": "ssd.spdk_reactor_mask",
    "UMBP_SPDK_MEM_MB": "ssd.spdk_mem_size_mb",
    "UMBP_SPDK_NVME_PCI": "ssd.spdk_nvme_pci_addr",
    "UMBP_SPDK_NVME_CTRL": "ssd.spdk_nvme_ctrl_name",
    "UMBP_SPDK_IO_WORKERS": "ssd.spdk_io_workers",
    "UMBP_SPDK_PROXY_SHM": "ssd.spdk_proxy_shm_name",
    "UMBP_SPDK_PROXY_BIN": "ssd.spdk_proxy_bin",
    "UMBP_SPDK_PROXY_TENANT_ID": "ssd.spdk_proxy_tenant_id",
    "UMBP_SPDK_PROXY_TENANT_QUOTA_BYTES": "ssd.spdk_proxy_tenant_quota_bytes",
    "UMBP_SPDK_PROXY_MAX_CHANNELS": "ssd.spdk_proxy_max_channels",
    "UMBP_SPDK_PROXY_DATA_PER_CHANNEL_MB": "ssd.spdk_proxy_data_per_channel_mb",
    "UMBP_SPDK_PROXY_TIMEOUT_MS": "ssd.spdk_proxy_startup_timeout_ms",
    "UMBP_SPDK_PROXY_AUTO_START": "ssd.spdk_proxy_auto_start",
    "UMBP_SPDK_PROXY_IDLE_EXIT_TIMEOUT_MS": "ssd.spdk_proxy_idle_exit_timeout_ms",
    "UMBP_SPDK_PROXY_ALLOW_BORROW": "ssd.spdk_proxy_allow_borrow",
    "UMBP_SPDK_PROXY_RESERVED_SHARED_BYTES": "ssd.spdk_proxy_reserved_shared_bytes",
}
_ROLES = {"standalone": UMBPRole.Standalone, "leader": UMBPRole.SharedSSDLeader, "follower": UMBPRole.SharedSSDFollower}
_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID")
_WORDS = {"true": 1, "yes": 1, "on": 1, "false": 0, "no": 0, "off": 0}


def local_rank() -> int | None:
    """This process's number among those of its host, if whoever started it says."""
    for name in _RANKS:
        if text := os.environ.get(name):
            return _number(name, text, int)
    return None


def _number(name: str, text: str, kind: type[_N]) -> _N:
    """The number of that kind; whole ones to the last digit, also as ``1e9``."""
    word = text.strip().lower()
    try:
        number = int(word) if word.isdecimal() else float(_WORDS.get(word, word))
        if math.isfinite(number) and (kind is bool or kind(number) == number):
            return kind(number)
    except (ValueError, OverflowError):
        pass
    raise Invalid(f"{name} is {text!r}, not a number") from None


def _role() -> UMBPRole:
    """As UMBP_ROLE says; else the first process of a host leads, and the others follow."""
    if text := os.environ.get("UMBP_ROLE"):
        if text not in _ROLES:
            raise Invalid(f"UMBP_ROLE is {text!r}, none of {', '.join(_ROLES)}")
        return _ROLES[text]
    rank = local_rank()
    if rank is None:
        return UMBPRole.Standalone
    return UMBPRole.SharedSSDFollower if rank else UMBPRole.SharedSSDLeader


def apply(config: UMBPConfig) -> None:
    """Set what the variables say."""
    for name, path in VARIABLES.items():
        if not (text := os.environ.get(name)):
            continue
        part, field = path.split(".")
        now = getattr(getattr(config, part), field)
        value = text if isinstance(now, str) else _number(name, text, type(now))
        setattr(getattr(config, part), field, value)
    config.role = _role()
