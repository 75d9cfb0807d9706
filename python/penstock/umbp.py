# SPDX-License-Identifier: Apache-2.0
"""The calls of UMBP, the pool of ROCm's mori, on a store: what was written for ``mori.umbp`` runs on this module.

Memory is named by addresses: ints, of memory that outlives the call and is moved from and to as it lies there.
"""
from __future__ import annotations

import dataclasses
import enum
import hashlib
import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qs, urlsplit

from .errors import Error, ForkError, Invalid, NoSpace, Unsupported
from .node import Node
from .store import Store

if TYPE_CHECKING:
    from ._core import Key

__all__ = ["UMBPClient", "UMBPConfig", "UMBPDistributedConfig", "UMBPDramConfig", "UMBPEvictionConfig",
           "UMBPExternalKvHitCountEntry", "UMBPExternalKvMatch", "UMBPExternalKvNodeMatch", "UMBPIoEngineConfig",
           "UMBPMasterClientConfig", "UMBPSsdConfig", "UMBPTierType", "create_umbp_client"]

T = TypeVar("T")

_POLICIES = {"lru": "lru", "prefix_aware_lru": "prefix", "s3fifo": "s3fifo", "chains": "chains"}
_MISUSE = (Invalid, Unsupported, ForkError)


@dataclasses.dataclass(slots=True)
class UMBPDramConfig:
    """Memory of a store inside this process, or of the node that it is of a pool.

    Attributes
    ----------
    capacity_bytes : int
    high_watermark : float
        Share of it in use at which blocks are evicted.
    """

    capacity_bytes: int = 4 << 30
    high_watermark: float = 0.9


@dataclasses.dataclass(slots=True)
class UMBPSsdConfig:
    """SSD below that memory. Unlike UMBP's it is in use only when switched on.

    Attributes
    ----------
    enabled : bool
    storage_dir : str
        A folder, or several with commas between them.
    capacity_bytes : int
        All folders together.
    segment_size_bytes : int
        Of a file there.
    """

    enabled: bool = False
    storage_dir: str = ""
    capacity_bytes: int = 32 << 30
    segment_size_bytes: int = 256 << 20


@dataclasses.dataclass(slots=True)
class UMBPEvictionConfig:
    """Which blocks of this process go first.

    Attributes
    ----------
    policy : str
        ``lru``; ``prefix_aware_lru``, which has the end of a chain go before its beginning, by the depths of puts;
        ``s3fifo``.
    """

    policy: str = "lru"


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
        digits are a node's ``--node-id``; other text is one made of it, and comes back as it is when it has up to 15 bytes.
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
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class UMBPIoEngineConfig:
    """As UMBP has it, and not used: UCX finds its way."""

    host: str = ""
    port: int = 0


@dataclasses.dataclass(slots=True)
class UMBPDistributedConfig:
    """A pool.

    Attributes
    ----------
    master_config : UMBPMasterClientConfig
    io_engine : UMBPIoEngineConfig
    dram_page_size : int
        Bytes of a page of the memory that this process brings along; 0: what nodes have unless told otherwise. Values of any
        size fit whichever it is.
    peer_service_port : int
        Where its node listens; 0: on a port that is free.
    """

    master_config: UMBPMasterClientConfig = dataclasses.field(default_factory=UMBPMasterClientConfig)
    io_engine: UMBPIoEngineConfig = dataclasses.field(default_factory=UMBPIoEngineConfig)
    dram_page_size: int = 2 << 20
    peer_service_port: int = 0


@dataclasses.dataclass(slots=True)
class UMBPConfig:
    """What a client stands on.

    Attributes
    ----------
    dram : UMBPDramConfig
    ssd : UMBPSsdConfig
    eviction : UMBPEvictionConfig
    distributed : UMBPDistributedConfig, optional
        Without it the store is one inside this process, as the others say; with it a pool, to which they are added where this
        process is a node of it.
    """

    dram: UMBPDramConfig = dataclasses.field(default_factory=UMBPDramConfig)
    ssd: UMBPSsdConfig = dataclasses.field(default_factory=UMBPSsdConfig)
    eviction: UMBPEvictionConfig = dataclasses.field(default_factory=UMBPEvictionConfig)
    distributed: UMBPDistributedConfig | None = None


class UMBPTierType(enum.IntEnum):
    """Where an engine holds a block."""

    Unknown = 0
    HBM = 1
    DRAM = 2
    SSD = 3


_FASTEST_FIRST = (UMBPTierType.HBM, UMBPTierType.DRAM, UMBPTierType.SSD, UMBPTierType.Unknown)


@dataclasses.dataclass(slots=True)
class UMBPExternalKvNodeMatch:
    """What one node holds of the blocks that were asked for.

    Attributes
    ----------
    node_id : str
    peer_address : str
        ``HOST:PORT``, empty where the node has none.
    hashes_by_tier : dict of UMBPTierType to list of str
        In the order of the question, on every tier that has any, the fastest first; Unknown only where no tier is known.
    """

    node_id: str = ""
    peer_address: str = ""
    hashes_by_tier: dict[UMBPTierType, list[str]] = dataclasses.field(default_factory=dict)

    def matched_hash_count(self) -> int:
        """How many blocks the node holds: one on two tiers counts once."""
        return len({one for hashes in self.hashes_by_tier.values() for one in hashes})


UMBPExternalKvMatch = UMBPExternalKvNodeMatch  # UMBP has one for its clients, and one for those of its master alone


@dataclasses.dataclass(slots=True)
class UMBPExternalKvHitCountEntry:
    """How often a block was a hit."""

    hash: str = ""
    hit_count_total: int = 0


def _settings(config: UMBPConfig) -> dict[str, str | int | list[str]]:
    """What a store in this process and a node of it are both told."""
    policy = _POLICIES.get(config.eviction.policy)
    if policy is None:
        raise ValueError(f"eviction.policy is {config.eviction.policy!r}, not one of {', '.join(_POLICIES)}")
    settings: dict[str, str | int | list[str]] = {
        "dram": config.dram.capacity_bytes, "watermark": round(config.dram.high_watermark * 100), "policy": policy}
    if config.ssd.enabled:
        folders = [folder for folder in config.ssd.storage_dir.split(",") if folder]
        if not folders or any(sign in config.ssd.storage_dir for sign in "?&"):
            raise ValueError(f"ssd.storage_dir is {config.ssd.storage_dir!r}: a folder, without '?' and '&'")
        settings |= {"ssd": folders, "ssd_bytes": config.ssd.capacity_bytes, "ssd_segment": config.ssd.segment_size_bytes}
    return settings


def _embedded_url(config: UMBPConfig) -> str:
    pairs = [(name, one) for name, value in _settings(config).items() for one in (value if isinstance(value, list) else [value])]
    return "mem:?cache_all=yes&" + "&".join(f"{name}={value}" for name, value in pairs)


def _url(config: UMBPConfig) -> str:
    if config.distributed is None:
        return _embedded_url(config)
    address = config.distributed.master_config.master_address
    if not address:
        raise ValueError("distributed.master_config.master_address is empty")
    return address if "://" in address else f"pool://{address}"


def _node_of(config: UMBPConfig, secret_file: str | os.PathLike[str] | None) -> Node | None:
    """The node that this process is of its pool; None: it is a client alone."""
    pool = config.distributed
    if pool is None or not pool.master_config.node_address or not pool.master_config.auto_heartbeat:
        return None
    master = pool.master_config
    url = urlsplit(_url(config))
    if url.scheme != "pool":
        raise ValueError(f"distributed.master_config.master_address is {master.master_address!r}: a node joins a pool alone")
    settings = _settings(config)
    if pool.dram_page_size:
        settings["page_size"] = pool.dram_page_size
    if master.node_id:
        settings["node_id"] = _node_bytes(master.node_id).hex()
    if master.tags:
        settings["tags"] = ",".join(master.tags)
    if secret_file is not None:
        settings["secret_file"] = os.fspath(secret_file)
    if "trusted" in parse_qs(url.query).get("fabric", []):
        settings["fabric"] = "trusted"
    return Node(log=None, master=url.netloc.split(","), listen=f"{master.node_address}:{pool.peer_service_port}", class_="=cache",
                **settings)


def _node_bytes(name: str) -> bytes:
    """A node's id: 32 hexadecimal digits, a name that fits and ends with a zero, or what stands for a longer one."""
    try:
        if len(name) == 32:
            return bytes.fromhex(name)
    except ValueError:
        pass
    raw = name.encode()
    return raw.ljust(16, b"\0") if len(raw) < 16 else hashlib.blake2b(raw, digest_size=16).digest()


def _node_name(node: bytes) -> str:
    """The other way round."""
    name = node.rstrip(b"\0").decode(errors="replace")
    return name if name and _node_bytes(name) == node and name.isprintable() else node.hex()


class UMBPClient:
    """A client with the calls of UMBP's.

    Keys are text or bytes. What could not be done is False, and :attr:`failure` says why; what is wrong with a call
    raises: TypeError or ValueError, which name the argument, and :class:`penstock.Invalid` after :meth:`close`. Threads may
    share a client; others run during its calls.

    Attributes
    ----------
    store : Store
        What it stands on.
    node : Node or None
        What this process brings along to the pool, if it does.
    failure : Error or None
        Why the last answer of False was none better; None when keys were only not there.
    """

    def __init__(self, config: UMBPConfig | None = None, *, secret_file: str | os.PathLike[str] | None = None,
                 timeout: float = 10.0) -> None:
        self._config = config or UMBPConfig()
        self.failure: Exception | None = None
        url = _url(self._config)
        self.node = _node_of(self._config, secret_file)
        try:
            self.store = Store(url, secret_file=secret_file, timeout=timeout)
        except BaseException:
            self._leave()
            raise

    def __enter__(self) -> UMBPClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def is_distributed(self) -> bool:
        """Whether the store is elsewhere than in this process."""
        return self._config.distributed is not None

    def close(self) -> None:
        """End the client, and leave the pool with what this process brought along. Does nothing the second time."""
        self.store.close()
        self._leave()

    def _leave(self) -> None:
        if self.node is not None:
            self.node.close()

    # ---- values ----

    def put_from_ptr(self, key: Key, src: int, size: int) -> bool:
        """Put `size` bytes at `src` under `key`. Whether they are there; a value that was there already stays."""
        return self.batch_put_from_ptr([key], [src], [size])[0]

    def get_into_ptr(self, key: Key, dst: int, size: int) -> bool:
        """Read a value of exactly `size` bytes to `dst`. Whether it is there; memory keeps its bytes otherwise."""
        return self.batch_get_into_ptr([key], [dst], [size])[0]

    def batch_put_from_ptr(self, keys: Iterable[Key], ptrs: Iterable[int], sizes: Iterable[int]) -> list[bool]:
        """:meth:`put_from_ptr` for many in one go, each by itself."""
        return self._moved(self.store.move_many(keys, ptrs, sizes, None, True))

    def batch_put_from_ptr_with_depth(self, keys: Iterable[Key], ptrs: Iterable[int], sizes: Iterable[int],
                                      depths: Iterable[int]) -> list[bool]:
        """The same with the place of each block in its chain, 0 for the first; -1: in none, it goes by recency alone."""
        return self._moved(self.store.move_many(keys, ptrs, sizes, depths, True))

    def batch_get_into_ptr(self, keys: Iterable[Key], ptrs: Iterable[int], sizes: Iterable[int]) -> list[bool]:
        """:meth:`get_into_ptr` for many in one go, each by itself."""
        return self._moved(self.store.move_many(keys, ptrs, sizes, None, False))

    def exists(self, key: Key) -> bool:
        """Whether there is a value."""
        return self.batch_exists([key])[0]

    def batch_exists(self, keys: Iterable[Key]) -> list[bool]:
        """Whether there is each of many, in one round."""
        keys = list(keys)
        return self._tried(lambda: self.store.exists_many(keys), [False] * len(keys))

    def batch_exists_consecutive(self, keys: Iterable[Key]) -> int:
        """How many are there from the first on, up to the first that is not."""
        found = self.batch_exists(keys)
        return found.index(False) if False in found else len(found)

    def clear(self) -> bool:
        """Delete all values. True when none is left; what is pinned goes when its last pin does: call again."""
        return self._tried(lambda: self.store.clear() == 0, False)

    def flush(self) -> bool:
        """Return when what was put survives a crash, in a store with an SSD. True also where there is none: nothing waits to
        be written."""
        try:
            return self._done(self.store.flush)
        except Unsupported:
            return True

    # ---- memory ----

    def register_memory(self, ptr: int, size: int) -> bool:
        """Tell the transport of memory that is used often, so that it need not do so for each transfer."""
        region = _region(ptr, size)
        return self._done(lambda: self.store.register(region))

    def deregister_memory(self, ptr: int) -> None:
        """Take :meth:`register_memory` back, before the memory goes.

        Raises
        ------
        Invalid
            It was not registered.
        """
        self.store.deregister(_region(ptr, 1))

    # ---- blocks that engines hold in memory of their own ----

    def report_external_kv_blocks(self, hashes: Iterable[str], tier: UMBPTierType) -> bool:
        """Say that the node of the configuration's `node_id` holds blocks on a tier, too. Whether the master has noted all.

        Raises
        ------
        Unsupported
            The store has no master: nobody else could ask.
        ValueError
            The configuration has no `node_id`.
        """
        hashes, node, tier = list(hashes), self._node_id(), UMBPTierType(tier)
        refused = self._tried(lambda: self.store.report_blocks(node, tier, hashes), len(hashes))
        if refused and self.failure is None:
            self.failure = NoSpace(f"the master has no room for {refused} of {len(hashes)} blocks")
        return self.failure is None

    def revoke_external_kv_blocks(self, hashes: Iterable[str], tier: UMBPTierType) -> bool:
        """Take a report back for this tier; what is on others stays."""
        hashes, node, tier = list(hashes), self._node_id(), UMBPTierType(tier)
        return self._done(lambda: self.store.revoke_blocks(node, tier, hashes))

    def revoke_all_external_kv_blocks_at_tier(self, tier: UMBPTierType) -> bool:
        """Take back all that was reported for the node on this tier."""
        node, tier = self._node_id(), UMBPTierType(tier)
        return self._done(lambda: self.store.revoke_blocks(node, tier))

    def match_external_kv(self, hashes: Iterable[str], count_as_hit: bool = False) -> list[UMBPExternalKvNodeMatch]:
        """Who holds which of these blocks; who holds none is not among them. `count_as_hit` belongs to users' requests alone."""
        names = list(dict.fromkeys(hashes))
        none: list[tuple[bytes, str, int, bytes]] = []
        found = self._tried(lambda: self.store.match_blocks(names, hit=count_as_hit), none)
        return [UMBPExternalKvNodeMatch(_node_name(node), address, _by_tier(names, tiers)) for node, address, _, tiers in found]

    def get_external_kv_hit_counts(self, hashes: Iterable[str]) -> list[UMBPExternalKvHitCountEntry]:
        """How often blocks were hits lately; those that were none are left out."""
        names = list(dict.fromkeys(hashes))
        hits = self._tried(lambda: self.store.block_hits(names), [0] * len(names))
        return [UMBPExternalKvHitCountEntry(name, count) for name, count in zip(names, hits) if count]

    def _node_id(self) -> bytes:
        name = self._config.distributed.master_config.node_id if self._config.distributed else ""
        if not name:
            raise ValueError("distributed.master_config.node_id is empty")
        return _node_bytes(name)

    # ---- answers ----

    def _moved(self, moved: tuple[list[bool], Exception | None]) -> list[bool]:
        done, self.failure = moved
        return done

    def _done(self, call: Callable[[], object]) -> bool:
        return self._tried(lambda: call() is None, False)

    def _tried(self, call: Callable[[], T], otherwise: T) -> T:
        self.failure = None
        try:
            return call()
        except _MISUSE:
            raise
        except Error as error:
            self.failure = error
            return otherwise


def _by_tier(names: list[str], tiers: bytes) -> dict[UMBPTierType, list[str]]:
    held = {tier: [name for name, bits in zip(names, tiers) if bits >> tier & 1] for tier in _FASTEST_FIRST}
    return {tier: hashes for tier, hashes in held.items() if hashes}


def _region(ptr: int, size: int) -> tuple[int, int]:
    for name, value in (("ptr", ptr), ("size", size)):
        if not isinstance(value, int):
            raise TypeError(f"{name} must be an int, not {type(value).__name__}")
        if value <= 0:
            raise ValueError(f"{name} is {value}")
    return ptr, size


def create_umbp_client(config: UMBPConfig | None = None, *, secret_file: str | os.PathLike[str] | None = None,
                       timeout: float = 10.0) -> UMBPClient:
    """Open what `config` describes.

    Parameters
    ----------
    config : UMBPConfig, optional
        A store inside this process by default.
    secret_file : path, optional
        File with the nodes' shared secret.
    timeout : float
        Seconds that a call may take.

    Raises
    ------
    Invalid
        This process cannot be the node that `config` describes: an address that is in use, no room in memory.
    Unreachable, TimedOut, NotAllowed
        Neither a master nor a node could be reached, or wants another secret.
    ValueError
        Something in `config` is not possible.
    """
    return UMBPClient(config, secret_file=secret_file, timeout=timeout)
