# SPDX-License-Identifier: Apache-2.0
"""What a client stands on: UMBP's configuration, field by field. What it comes to is in ``opening.py``.

A field that has nothing like it here is accepted. The log names those that were set, once (``UNUSED`` in ``opening.py``).
"""
from __future__ import annotations

import dataclasses
from dataclasses import field

from . import environment
from .kinds import CacheRemoteAdmission, UMBPDurabilityMode, UMBPIoBackend, UMBPRole, UMBPSsdLayoutMode


@dataclasses.dataclass(slots=True)
class UMBPDramConfig:
    """Memory of a store inside this process, or of the node that it is of a pool.

    Attributes
    ----------
    capacity_bytes : int
        From 1 MiB on.
    high_watermark : float
        Share of it in use at which blocks are evicted.
    prefault : bool
        Memory is touched before it is used, always.
    use_shared_memory, shm_name, low_watermark, use_hugepages, hugepage_size, numa_node
        Not used: a node's memory is shared memory, one part for each NUMA node; eviction stops where it began.
    """

    capacity_bytes: int = 4 << 30
    high_watermark: float = 0.9
    low_watermark: float = 0.7
    use_shared_memory: bool = False
    shm_name: str = "/umbp_dram"
    use_hugepages: bool = False
    hugepage_size: int = 2 << 20
    numa_node: int = -1
    prefault: bool = True


@dataclasses.dataclass(slots=True)
class UMBPIoConfig:
    """How the SSD is read and written; `queue_depth` is not used."""

    backend: UMBPIoBackend = UMBPIoBackend.IoUring
    queue_depth: int = 4096


@dataclasses.dataclass(slots=True)
class UMBPDurabilityConfig:
    """What a put waits for.

    Attributes
    ----------
    mode : UMBPDurabilityMode
        Strict, and with ``copy_pipeline.async_enabled`` off: each put waits until the SSD has the block.
    enable_background_gc : bool
        Segments are taken back in the background, always.
    """

    mode: UMBPDurabilityMode = UMBPDurabilityMode.Strict
    enable_background_gc: bool = True


@dataclasses.dataclass(slots=True)
class UMBPSsdConfig:
    """SSD below that memory. Unlike UMBP's it is in use only when switched on.

    Attributes
    ----------
    enabled : bool
    storage_dir : str
        A folder, which is made if need be, or several with commas between them.
    capacity_bytes : int
        All folders together.
    segment_size_bytes : int
        Of a file there; less if the capacity is small.
    io, durability
        As :class:`UMBPIoConfig` and :class:`UMBPDurabilityConfig` say.
    layout_mode, high_watermark, low_watermark, ssd_backend, spdk_*
        Not used: values lie in a log in files, whose oldest segments are taken back.
    """

    enabled: bool = False
    storage_dir: str = "/tmp/umbp_ssd"
    capacity_bytes: int = 32 << 30
    segment_size_bytes: int = 256 << 20
    layout_mode: UMBPSsdLayoutMode = UMBPSsdLayoutMode.SegmentedLog
    high_watermark: float = 0.9
    low_watermark: float = 0.7
    io: UMBPIoConfig = field(default_factory=UMBPIoConfig)
    durability: UMBPDurabilityConfig = field(default_factory=UMBPDurabilityConfig)
    ssd_backend: str = "file"
    spdk_bdev_name: str = ""
    spdk_reactor_mask: str = "0x1"
    spdk_mem_size_mb: int = 256
    spdk_nvme_pci_addr: str = ""
    spdk_nvme_ctrl_name: str = "NVMe0"
    spdk_io_workers: int = 4
    spdk_proxy_shm_name: str = "/umbp_spdk_proxy"
    spdk_proxy_bin: str = ""
    spdk_proxy_tenant_id: int = 0
    spdk_proxy_tenant_quota_bytes: int = 0
    spdk_proxy_max_channels: int = 8
    spdk_proxy_data_per_channel_mb: int = 32
    spdk_proxy_startup_timeout_ms: int = 30000
    spdk_proxy_auto_start: bool = True
    spdk_proxy_idle_exit_timeout_ms: int = 30000
    spdk_proxy_allow_borrow: bool = False
    spdk_proxy_reserved_shared_bytes: int = 0


@dataclasses.dataclass(slots=True)
class UMBPEvictionConfig:
    """Which blocks of this process go first.

    Attributes
    ----------
    policy : str
        ``lru``; ``prefix_aware_lru``, which has the end of a chain go before its beginning, by the depths of puts;
        ``s3fifo``; ``chains``.
    candidate_window, auto_promote_on_read
        Not used: all blocks are candidates, and what is read often comes back to memory.
    """

    policy: str = "lru"
    candidate_window: int = 16
    auto_promote_on_read: bool = True


@dataclasses.dataclass(slots=True)
class UMBPCopyPipelineConfig:
    """How blocks come to the SSD.

    Attributes
    ----------
    async_enabled : bool
        False: a put waits until the SSD has the block, if there is one. True: blocks go there when memory wants room, and with
        :meth:`UMBPClient.flush`.
    queue_depth, worker_threads, batch_max_ops
        Not used.
    """

    async_enabled: bool = True
    queue_depth: int = 4096
    worker_threads: int = 2
    batch_max_ops: int = 128


@dataclasses.dataclass(slots=True)
class UMBPMasterClientConfig:
    """Where the pool is.

    Attributes
    ----------
    master_address : str
        ``HOST:PORT`` of the pool's master, of several with commas between them; or the URL of any store,
        ``node+unix:///run/penstock.sock``.
    node_id : str
        Name of this process's node, or of the one for which blocks are reported that an engine keeps by itself. 32 hexadecimal
        digits are a node's ``--node-id``; other text of any length comes back as it is.
    node_address : str
        The host where others reach this process: with it the process is a node of the pool, and `dram`, `ssd` and `eviction` of
        :class:`UMBPConfig` say what it brings along. Without it the process is a client, and memory is that of ``penstockd``.
    auto_heartbeat : bool
        False: a client alone, whatever `node_address` says.
    tags : list of str
        What the pool map says of the node, 63 bytes together.
    """

    master_address: str = ""
    node_id: str = ""
    node_address: str = ""
    auto_heartbeat: bool = True
    tags: list[str] = field(default_factory=list)


@dataclasses.dataclass(slots=True)
class UMBPIoEngineConfig:
    """As UMBP has it, and not used: UCX finds its way."""

    host: str = ""
    port: int = 0


@dataclasses.dataclass(slots=True)
class UMBPHbmConfig:
    """Memory of a GPU as a tier, which there is not: not used."""

    enabled: bool = False
    device: int = 0
    capacity_bytes: int = 0


@dataclasses.dataclass(slots=True)
class UMBPDistributedConfig:
    """A pool.

    Attributes
    ----------
    master_config : UMBPMasterClientConfig
    dram_page_size : int
        Bytes of a page of the memory that this process brings along, from 64 KiB to 1 GiB and no more than fit; 0: what nodes
        have unless told otherwise. Values of any size fit whichever it is.
    peer_service_port : int
        Where its node listens; 0: on a port that is free.
    io_engine, staging_buffer_size, ssd_staging_buffer_size, ssd_staging_buffer_slots, ranged_scratch_size, hbm, enable_ssd_tier
        Not used: transfers need no buffers between.
    cache_remote_fetches, cache_remote_admission, admission_max_block_bytes
        Not used: a block stays where it is.
    """

    master_config: UMBPMasterClientConfig = field(default_factory=UMBPMasterClientConfig)
    io_engine: UMBPIoEngineConfig = field(default_factory=UMBPIoEngineConfig)
    dram_page_size: int = 2 << 20
    peer_service_port: int = 0
    staging_buffer_size: int = 64 << 20
    ssd_staging_buffer_size: int = 256 << 20
    ssd_staging_buffer_slots: int = 16
    ranged_scratch_size: int = 0
    cache_remote_fetches: bool = True
    cache_remote_admission: CacheRemoteAdmission = CacheRemoteAdmission.SIZE
    admission_max_block_bytes: int = 16 << 20
    hbm: UMBPHbmConfig = field(default_factory=UMBPHbmConfig)
    enable_ssd_tier: bool = True


@dataclasses.dataclass(slots=True)
class UMBPStandaloneProcessConfig:
    """A ``penstockd`` of this host that the host's processes share.

    Attributes
    ----------
    address : str
        Its socket, ``unix:///run/penstock.sock`` or a path; or ``HOST:PORT``, or any store's URL.
    auto_start : bool
        With a socket on which nobody listens: start ``penstockd`` from the PATH, or the program that UMBP_STANDALONE_BIN names,
        with `dram`, `ssd` and `eviction`. It outlives this process.
    startup_timeout_ms : int
        How long to wait for it.
    worker_node_id : str
        Takes the place of ``master_config.node_id`` for blocks that this process's engine holds.
    worker_node_address, tags
        Not used.
    """

    address: str = ""
    auto_start: bool = True
    startup_timeout_ms: int = 30000
    worker_node_id: str = ""
    worker_node_address: str = ""
    tags: list[str] = field(default_factory=list)


@dataclasses.dataclass(slots=True)
class UMBPConfig:
    """What a client stands on.

    Attributes
    ----------
    dram : UMBPDramConfig
    ssd : UMBPSsdConfig
    eviction : UMBPEvictionConfig
    copy_pipeline : UMBPCopyPipelineConfig
    role : UMBPRole
        Of a store inside this process; `follower_mode` and `force_ssd_copy_on_write` are older words for follower and leader.
    distributed : UMBPDistributedConfig, optional
        Without it the store is one inside this process, as the others say; with it a pool, to which they are added if this
        process is a node of it.
    standalone_process : UMBPStandaloneProcessConfig, optional
        A store in another process of this host, instead.
    """

    dram: UMBPDramConfig = field(default_factory=UMBPDramConfig)
    ssd: UMBPSsdConfig = field(default_factory=UMBPSsdConfig)
    eviction: UMBPEvictionConfig = field(default_factory=UMBPEvictionConfig)
    distributed: UMBPDistributedConfig | None = None
    copy_pipeline: UMBPCopyPipelineConfig = field(default_factory=UMBPCopyPipelineConfig)
    role: UMBPRole = UMBPRole.Standalone
    follower_mode: bool = False
    force_ssd_copy_on_write: bool = False
    standalone_process: UMBPStandaloneProcessConfig | None = None

    @staticmethod
    def from_environment() -> UMBPConfig:
        """The defaults, as far as UMBP's variables do not say otherwise (``UMBP_DRAM_CAPACITY``, ``UMBP_SSD_DIR``, ...).

        Raises
        ------
        Invalid
            A variable is no number; the text names it.
        """
        config = UMBPConfig()
        environment.apply(config)
        return config

    def resolved_role(self) -> UMBPRole:
        """The role, also where an older field says it."""
        if self.role != UMBPRole.Standalone:
            return self.role
        if self.follower_mode:
            return UMBPRole.SharedSSDFollower
        return UMBPRole.SharedSSDLeader if self.force_ssd_copy_on_write else UMBPRole.Standalone
