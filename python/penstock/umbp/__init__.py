# SPDX-License-Identifier: Apache-2.0
"""The calls of UMBP, the pool of ROCm's mori, on a store: what was written for ``mori.umbp`` runs on this package.

Memory is named by addresses: ints, of memory that outlives the call and is moved from and to as it lies there. The package
``penstock-mori`` has all of this under the names ``mori.umbp`` and ``mori.cpp``.
"""
from .blocks import UMBPExternalKvHitCountEntry, UMBPExternalKvMatch, UMBPExternalKvNodeMatch, UMBPMasterClient
from .client import UMBPClient, create_umbp_client
from .config import (UMBPConfig, UMBPCopyPipelineConfig, UMBPDistributedConfig, UMBPDramConfig, UMBPDurabilityConfig,
                     UMBPEvictionConfig, UMBPHbmConfig, UMBPIoConfig, UMBPIoEngineConfig, UMBPMasterClientConfig, UMBPSsdConfig,
                     UMBPStandaloneProcessConfig)
from .host_memory import UMBPHostBufferHandle, UMBPHostMemAllocator
from .kinds import (CacheRemoteAdmission, MemoryLocationType, UMBPDeploymentMode, UMBPDurabilityMode, UMBPHostBufferBacking,
                    UMBPIoBackend, UMBPRole, UMBPSsdLayoutMode, UMBPTierType)

__all__ = [
    "CacheRemoteAdmission", "MemoryLocationType", "UMBPClient", "UMBPConfig", "UMBPCopyPipelineConfig", "UMBPDeploymentMode",
    "UMBPDistributedConfig", "UMBPDramConfig", "UMBPDurabilityConfig", "UMBPDurabilityMode", "UMBPEvictionConfig",
    "UMBPExternalKvHitCountEntry", "UMBPExternalKvMatch", "UMBPExternalKvNodeMatch", "UMBPHbmConfig", "UMBPHostBufferBacking",
    "UMBPHostBufferHandle", "UMBPHostMemAllocator", "UMBPIoBackend", "UMBPIoConfig", "UMBPIoEngineConfig", "UMBPMasterClient",
    "UMBPMasterClientConfig", "UMBPRole", "UMBPSsdConfig", "UMBPSsdLayoutMode", "UMBPStandaloneProcessConfig", "UMBPTierType",
    "create_umbp_client",
]
