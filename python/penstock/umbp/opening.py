# SPDX-License-Identifier: Apache-2.0
"""What a configuration comes to: a store, and a node that this process serves for it."""
from __future__ import annotations

import logging
import math
import os
import shutil
import subprocess
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..errors import Invalid, NotAllowed, TimedOut, Unreachable
from ..node import Node
from ..store import Store
from .blocks import CONNECT_S
from .config import UMBPConfig
from .environment import local_rank
from .kinds import UMBPDurabilityMode, UMBPIoBackend, UMBPRole
from .names import node_bytes

_log = logging.getLogger("penstock.umbp")
_named: set[str] = set()

Settings = dict[str, str | int | list[str]]

_POLICIES = {"lru": "lru", "prefix_aware_lru": "prefix", "s3fifo": "s3fifo", "chains": "chains"}
PAGE_BYTES, PAGE_BYTES_MIN, PAGE_BYTES_MAX = 2 << 20, 64 << 10, 1 << 30
PAGES_MIN = 16
SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX = 1 << 20, 256 << 20
SEGMENTS_MIN = 16
FOLLOW_S = 30.0
RETRY_S = 0.05

UNUSED = (
    "dram.use_shared_memory", "dram.shm_name", "dram.low_watermark", "dram.use_hugepages", "dram.hugepage_size", "dram.numa_node",
    "dram.prefault", "ssd.layout_mode", "ssd.high_watermark", "ssd.low_watermark", "ssd.io.queue_depth",
    "ssd.durability.enable_background_gc", "ssd.ssd_backend", "eviction.candidate_window", "eviction.auto_promote_on_read",
    "copy_pipeline.queue_depth", "copy_pipeline.worker_threads", "copy_pipeline.batch_max_ops", "distributed.io_engine.host",
    "distributed.io_engine.port", "distributed.staging_buffer_size", "distributed.ssd_staging_buffer_size",
    "distributed.ssd_staging_buffer_slots", "distributed.ranged_scratch_size", "distributed.cache_remote_fetches",
    "distributed.cache_remote_admission", "distributed.admission_max_block_bytes", "distributed.hbm.enabled",
    "distributed.hbm.device", "distributed.hbm.capacity_bytes", "distributed.enable_ssd_tier",
    "standalone_process.worker_node_address", "standalone_process.tags",
)


def _at(config: object, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name, None)
    return config


def name_unused(config: UMBPConfig) -> None:
    """Log fields that were set and are not used, each once in this process."""
    plain = UMBPConfig()
    if config.distributed is not None:
        plain.distributed = type(config.distributed)()
    if config.standalone_process is not None:
        plain.standalone_process = type(config.standalone_process)()
    spdk = tuple(f"ssd.{name}" for name in type(config.ssd).__dataclass_fields__ if name.startswith("spdk_"))
    for path in UNUSED + spdk:
        if _at(config, path) != _at(plain, path) and path not in _named:
            _named.add(path)
            _log.warning("%s has nothing like it in penstock, and is not used", path)


# ---- sizes: what is asked for, as far as it is possible


def page_bytes(wanted: int, dram: int) -> int:
    """A page near `wanted` bytes (0: any), of which memory has some."""
    largest = max(PAGE_BYTES_MIN, dram // PAGES_MIN >> 12 << 12)
    return int(min(max(math.ceil((wanted or PAGE_BYTES) / 4096) * 4096, PAGE_BYTES_MIN), PAGE_BYTES_MAX, largest))


def segment_bytes(wanted: int, capacity: int) -> int:
    """A file of the SSD near `wanted` bytes, of which its capacity has some."""
    largest = max(SEGMENT_BYTES_MIN, capacity // SEGMENTS_MIN >> 20 << 20)
    return min(max(wanted >> 20 << 20, SEGMENT_BYTES_MIN), SEGMENT_BYTES_MAX, largest)


def _ssd_settings(config: UMBPConfig) -> Settings:
    ssd = config.ssd
    folders = [folder for folder in ssd.storage_dir.split(",") if folder]
    if not folders or any(sign in ssd.storage_dir for sign in "?&"):
        raise Invalid(f"ssd.storage_dir is {ssd.storage_dir!r}: a folder, without '?' and '&'")
    for folder in folders:
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise Invalid(f"ssd.storage_dir: {folder}: {error.strerror}") from None
    capacity = max(ssd.capacity_bytes, SEGMENTS_MIN * SEGMENT_BYTES_MIN)
    settings: Settings = {"ssd": folders, "ssd_bytes": capacity, "ssd_segment": segment_bytes(ssd.segment_size_bytes, capacity)}
    return settings | ({"ssd_driver": "posix"} if ssd.io.backend == UMBPIoBackend.Posix else {})


def _settings(config: UMBPConfig) -> Settings:
    """What a store in this process and a node of it are both told."""
    policy = _POLICIES.get(config.eviction.policy)
    if policy is None:
        raise Invalid(f"eviction.policy is {config.eviction.policy!r}, not one of {', '.join(_POLICIES)}")
    dram = config.dram.capacity_bytes
    wanted = config.distributed.dram_page_size if config.distributed else 0
    watermark = min(max(round(config.dram.high_watermark * 100), 10), 100)
    settings: Settings = {"dram": dram, "page_size": page_bytes(wanted, dram), "watermark": watermark, "policy": policy}
    return settings | (_ssd_settings(config) if config.ssd.enabled else {})


def waits_for_ssd(config: UMBPConfig) -> bool:
    """Whether a put ends when the SSD has the block."""
    strict = config.ssd.durability.mode == UMBPDurabilityMode.Strict
    return config.ssd.enabled and strict and not config.copy_pipeline.async_enabled


# ---- a store inside this process


def embedded_url(config: UMBPConfig) -> str:
    """Such a store, all of whose blocks may be evicted."""
    pairs = [(name, one) for name, value in _settings(config).items() for one in (value if isinstance(value, list) else [value])]
    return "mem:?cache_all=yes&" + "&".join(f"{name}={value}" for name, value in pairs)


def _shared_socket(config: UMBPConfig) -> str:
    folder = next((folder for folder in config.ssd.storage_dir.split(",") if folder), "")
    if not folder:
        raise Invalid("ssd.storage_dir is empty: the role of a leader or a follower wants the folder that they share")
    return os.path.abspath(os.path.join(folder, "leader.sock"))


def _open_leader(config: UMBPConfig, options: dict[str, Any]) -> tuple[Node, Store]:
    """The SSD is this process's, which serves its store to the followers."""
    settings = _settings(config)
    path = _shared_socket(config)
    node = Node(log=None, connect_timeout=CONNECT_S, unix=path, class_="=cache", **settings)
    try:
        return node, Store(f"node+unix://{path}", **options)
    except BaseException:
        node.close()
        raise


def _open_when_there(url: str, seconds: float, options: dict[str, Any]) -> Store:
    """Opens what another process is about to serve."""
    until = time.monotonic() + seconds
    while True:
        try:
            return Store(url, **options)
        except (Unreachable, TimedOut, NotAllowed):
            if time.monotonic() >= until:
                raise
        time.sleep(RETRY_S)


# ---- a process of the host


def _process_url(address: str) -> str:
    if not address:
        raise Invalid("standalone_process.address is empty")
    if "://" in address and not address.startswith("unix:"):
        return address
    if address.startswith(("unix:", "/")):  # as gRPC has it: unix:PATH, unix:///PATH
        path = address.removeprefix("unix:")
        return "node+unix://" + (path[2:] if path.startswith("//") else path)
    return f"node://{address}"


def _start_process(config: UMBPConfig, path: str) -> None:
    program = os.environ.get("UMBP_STANDALONE_BIN") or shutil.which("penstockd")
    if not program:
        raise Unreachable(f"standalone_process.auto_start: nobody listens on {path}, and no penstockd is on the PATH")
    settings = _settings(config)
    flags = [f"--{name.replace('_', '-')}={one}" for name, value in settings.items()
             for one in (value if isinstance(value, list) else [value])]
    subprocess.Popen([program, f"--unix={path}", "--class==cache", *flags], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                     stderr=subprocess.DEVNULL, start_new_session=True)


def _open_process(config: UMBPConfig, options: dict[str, Any]) -> Store:
    process = config.standalone_process
    assert process is not None
    url = _process_url(process.address)
    try:
        return Store(url, **options)
    except (Unreachable, TimedOut):
        if process.auto_start and url.startswith("node+unix://") and not local_rank():
            _start_process(config, url.removeprefix("node+unix://"))
    return _open_when_there(url, process.startup_timeout_ms / 1000, options)


# ---- a pool


def pool_url(config: UMBPConfig) -> str:
    """The pool of a configuration that has one."""
    assert config.distributed is not None
    address = config.distributed.master_config.master_address
    if not address:
        raise Invalid("distributed.master_config.master_address is empty")
    return address if "://" in address else f"pool://{address}"


def _pool_node(config: UMBPConfig, options: dict[str, Any]) -> Node | None:
    """The node that this process is of its pool; None: it is a client alone."""
    pool = config.distributed
    if pool is None or not pool.master_config.node_address or not pool.master_config.auto_heartbeat:
        return None
    master = pool.master_config
    url = urlsplit(pool_url(config))
    if url.scheme != "pool":
        raise Invalid(f"distributed.master_config.master_address is {master.master_address!r}: a node joins a pool alone")
    settings = _settings(config)
    if master.node_id:
        settings["node_id"] = node_bytes(master.node_id).hex()
    if master.tags:
        settings["tags"] = ",".join(master.tags)
    if options["secret_file"] is not None:
        settings["secret_file"] = os.fspath(options["secret_file"])
    if "trusted" in parse_qs(url.query).get("fabric", []):
        settings["fabric"] = "trusted"
    return Node(log=None, connect_timeout=CONNECT_S, master=url.netloc.split(","),
                listen=f"{master.node_address}:{pool.peer_service_port}", class_="=cache", **settings)


def _open_pool(config: UMBPConfig, options: dict[str, Any]) -> tuple[Node | None, Store]:
    node = _pool_node(config, options)
    try:
        return node, Store(pool_url(config), **options)
    except BaseException:
        if node is not None:
            node.close()
        raise


def open_store(config: UMBPConfig, options: dict[str, Any]) -> tuple[Node | None, Store]:
    """What a client of this configuration stands on; the node is to be closed after the store. `options`: of :class:`Store`."""
    if config.distributed is not None and config.standalone_process is not None:
        raise Invalid("distributed and standalone_process: a client has one of them")
    name_unused(config)
    if config.distributed is not None:
        return _open_pool(config, options)
    if config.standalone_process is not None:
        return None, _open_process(config, options)
    role = config.resolved_role()
    if role == UMBPRole.SharedSSDLeader:
        return _open_leader(config, options)
    if role == UMBPRole.SharedSSDFollower:
        return None, _open_when_there(f"node+unix://{_shared_socket(config)}", FOLLOW_S, options)
    return None, Store(embedded_url(config), **options)
