# SPDX-License-Identifier: Apache-2.0
"""UMBP's client, on a store."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from ..errors import Error, ForkError, Invalid, Unsupported
from .blocks import Blocks, UMBPExternalKvHitCountEntry, UMBPExternalKvNodeMatch
from .config import UMBPConfig
from .kinds import MemoryLocationType, UMBPDeploymentMode, UMBPRole, UMBPTierType
from .opening import open_store, waits_for_ssd
from .ranges import get_ranges, put_ranges

if TYPE_CHECKING:
    from .._core import Key

T = TypeVar("T")

_MISUSE = (Invalid, Unsupported, ForkError)


class UMBPClient:
    """A client with the calls of UMBP's.

    Keys are text or bytes. What could not be done is False, and :attr:`failure` says why; what is wrong with a call
    raises: TypeError or ValueError, which name the argument, and :class:`penstock.Invalid` after :meth:`close`. Threads may
    share a client; others run during its calls. A client that is dropped is closed.

    Attributes
    ----------
    store : Store
        What it stands on.
    node : Node or None
        What this process serves: what it brings along to the pool, or to the followers of its SSD.
    failure : Error or None
        Why the last answer of False was none better; None when keys were only not there.
    """

    def __init__(self, config: UMBPConfig | None = None, *, secret_file: str | os.PathLike[str] | None = None,
                 timeout: float = 10.0) -> None:
        self._config = config or UMBPConfig()
        self.failure: Exception | None = None
        self._durable = waits_for_ssd(self._config)
        self.node, self.store = open_store(self._config, {"secret_file": secret_file, "timeout": timeout})
        self._blocks = Blocks(self.store)

    def __repr__(self) -> str:
        return f"<UMBPClient {self.store.url}{' with a node' if self.node is not None else ''}>"

    def __enter__(self) -> UMBPClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the client, and leave the pool with what this process brought along. Does nothing the second time."""
        self.store.close()
        if self.node is not None:
            self.node.close()

    # ---- what it is ----

    def is_distributed(self) -> bool:
        """Whether the store is a pool, or what else ``config.distributed`` names."""
        return self._config.distributed is not None

    def get_deployment_mode(self) -> UMBPDeploymentMode:
        """Where the store is: in this process, in another one of this host, or in a pool."""
        if self._config.distributed is not None:
            return UMBPDeploymentMode.Distributed
        if self._config.standalone_process is not None:
            return UMBPDeploymentMode.StandaloneProcess
        return UMBPDeploymentMode.Local

    def get_backend_mode(self) -> UMBPDeploymentMode:
        """What is behind a process of the host: a pool, or that process alone. Otherwise as :meth:`get_deployment_mode`."""
        if self.get_deployment_mode() == UMBPDeploymentMode.StandaloneProcess:
            return UMBPDeploymentMode.Distributed if self.store.url.startswith("pool://") else UMBPDeploymentMode.Local
        return self.get_deployment_mode()

    def supports_ranged_io(self) -> bool:
        """Whether :meth:`batch_put_ranges_from_ptr` and :meth:`batch_get_ranges_into_ptr` work: always."""
        return True

    def _is_follower(self) -> bool:
        alone = self._config.distributed is None and self._config.standalone_process is None
        return alone and self._config.resolved_role() == UMBPRole.SharedSSDFollower

    # ---- values ----

    def put_from_ptr(self, key: Key, src: int, size: int) -> bool:
        """Put `size` bytes at `src` under `key`. Whether they are there; a value that was there already stays."""
        return self.batch_put_from_ptr([key], [src], [size])[0]

    def get_into_ptr(self, key: Key, dst: int, size: int) -> bool:
        """Read a value of exactly `size` bytes to `dst`. Whether it is there; memory keeps its bytes otherwise."""
        return self.batch_get_into_ptr([key], [dst], [size])[0]

    def batch_put_from_ptr(self, keys: Iterable[Key], ptrs: Iterable[int], sizes: Iterable[int]) -> list[bool]:
        """:meth:`put_from_ptr` for many in one go, each by itself."""
        return self._put(keys, ptrs, sizes, None)

    def batch_put_from_ptr_with_depth(self, keys: Iterable[Key], ptrs: Iterable[int], sizes: Iterable[int],
                                      depths: Iterable[int]) -> list[bool]:
        """The same with the place of each block in its chain, 0 for the first; -1: in none, it goes by recency alone. Places
        from 65,534 on count as one."""
        return self._put(keys, ptrs, sizes, depths)

    def _put(self, keys: Iterable[Key], ptrs: Iterable[int], sizes: Iterable[int], depths: Iterable[int] | None) -> list[bool]:
        if self._is_follower():
            return self._refused(len(list(keys)))
        return self._moved(self.store.move_many(keys, ptrs, sizes, depths, True, self._durable))

    def batch_get_into_ptr(self, keys: Iterable[Key], ptrs: Iterable[int], sizes: Iterable[int]) -> list[bool]:
        """:meth:`get_into_ptr` for many in one go, each by itself."""
        return self._moved(self.store.move_many(keys, ptrs, sizes, None, False, False))

    def batch_put_ranges_from_ptr(self, keys: Sequence[Key], object_sizes: Sequence[int], ptrs: Sequence[Sequence[int]],
                                  sizes: Sequence[Sequence[int]], offsets: Sequence[Sequence[int]]) -> list[bool]:
        """Put values that are gathered: of each, runs of `sizes` bytes at `ptrs` to `offsets` in it, which are all of its
        `object_sizes` bytes and meet nowhere. Otherwise it is False."""
        if self._is_follower():
            return self._refused(len(keys))
        return self._moved(put_ranges(self.store, keys, object_sizes, ptrs, sizes, offsets, self._durable))

    def batch_get_ranges_into_ptr(self, keys: Sequence[Key], ptrs: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]],
                                  offsets: Sequence[Sequence[int]]) -> list[bool]:
        """Read parts of values: of each, runs of `sizes` bytes from `offsets` in it to `ptrs`. Whether all of them are there;
        memory of one that is False may have been written."""
        return self._moved(get_ranges(self.store, keys, ptrs, sizes, offsets))

    def exists(self, key: Key) -> bool:
        """Whether there is a value."""
        return self.batch_exists([key])[0]

    def batch_exists(self, keys: Iterable[Key]) -> list[bool]:
        """Whether there is each of many, in one round."""
        keys, self.failure = list(keys), None
        try:
            return self.store.exists_many(keys)
        except _MISUSE:
            raise
        except Error as error:  # of the first that nobody could be asked about; of the others it is known
            self.failure = error
            return [result == 0 for result in error.results or [error.result] * len(keys)]

    def batch_exists_consecutive(self, keys: Iterable[Key]) -> int:
        """How many are there from the first on, up to the first that is not."""
        found = self.batch_exists(keys)
        return found.index(False) if False in found else len(found)

    def clear(self) -> bool:
        """Delete all values, and take back what was reported for this client's node. True when none is left; what is pinned
        goes when its last pin does: call again. A follower deletes nothing: its values are the leader's."""
        if self._is_follower():
            return self._refused(1)[0]
        node = self._node_id_or_none()
        if node and self.store.url.startswith("pool://"):
            for tier in UMBPTierType:
                self._done(lambda: self._blocks.revoke(node, None, tier))
        return self._tried(lambda: self._blocks.names.clear_all_but() == 0, False)

    def flush(self) -> bool:
        """Return when what was put survives a crash, in a store with an SSD. True also where there is none: nothing waits to
        be written."""
        try:
            return self._done(self.store.flush)
        except Unsupported:
            return True

    # ---- memory ----

    def register_memory(self, ptr: int, size: int, loc: MemoryLocationType = MemoryLocationType.CPU, device: int = -1) -> bool:
        """Tell the transport of memory that is used often, so that it need not do so for each transfer.

        Parameters
        ----------
        ptr, size : int
            Address and bytes.
        loc : MemoryLocationType
            GPU: False, and :attr:`failure` says that transfers from and to a GPU's memory are not possible.
        device : int
            Of that GPU; not used.
        """
        region = _region(ptr, size)
        if loc == MemoryLocationType.GPU:
            self.failure = Unsupported("transfers from and to a GPU's memory are not possible")
            return False
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
        """Say that the node of the configuration's `node_id` holds blocks on a tier, too. Whether the master has noted all. A
        node that the pool does not have is ignored.

        Raises
        ------
        Unsupported
            The store has no master: nobody else could ask.
        ValueError
            The configuration has no `node_id`.
        """
        node = self._node_id()
        return self._done(lambda: self._blocks.report(node, hashes, tier))

    def revoke_external_kv_blocks(self, hashes: Iterable[str], tier: UMBPTierType) -> bool:
        """Take a report back for this tier; what is on others stays."""
        node = self._node_id()
        return self._done(lambda: self._blocks.revoke(node, hashes, tier))

    def revoke_all_external_kv_blocks_at_tier(self, tier: UMBPTierType) -> bool:
        """Take back all that was reported for the node on this tier."""
        node = self._node_id()
        return self._done(lambda: self._blocks.revoke(node, None, tier))

    def match_external_kv(self, hashes: Iterable[str], count_as_hit: bool = False) -> list[UMBPExternalKvNodeMatch]:
        """Who holds which of these blocks; who holds none is not among them. `count_as_hit` belongs to users' requests alone."""
        none: list[UMBPExternalKvNodeMatch] = []
        return self._tried(lambda: self._blocks.match(hashes, count_as_hit), none)

    def get_external_kv_hit_counts(self, hashes: Iterable[str]) -> list[UMBPExternalKvHitCountEntry]:
        """How often blocks were hits lately; those that were none are left out."""
        none: list[UMBPExternalKvHitCountEntry] = []
        return self._tried(lambda: self._blocks.hits(hashes), none)

    def _node_id_or_none(self) -> str:
        pool, process = self._config.distributed, self._config.standalone_process
        return pool.master_config.node_id if pool else process.worker_node_id if process else ""

    def _node_id(self) -> str:
        name = self._node_id_or_none()
        if not name:
            raise Invalid("distributed.master_config.node_id is empty")
        return name

    # ---- answers ----

    def _refused(self, count: int) -> list[bool]:
        self.failure = Unsupported("a follower of a shared SSD changes nothing")
        return [False] * count

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


def _region(ptr: int, size: int) -> tuple[int, int]:
    for name, value in (("ptr", ptr), ("size", size)):
        if not isinstance(value, int):
            raise TypeError(f"{name} must be an int, not {type(value).__name__}")
        if value <= 0:
            raise Invalid(f"{name} is {value}")
    return ptr, size


def create_umbp_client(config: UMBPConfig | None = None, *, secret_file: str | os.PathLike[str] | None = None,
                       timeout: float = 10.0) -> UMBPClient:
    """Open what `config` describes. It is ready when it returns: of a pool this process is a member then.

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
        Something in `config` is not possible, or this process cannot be the node that it describes: an address that is in use,
        no room in memory.
    Unreachable, TimedOut, NotAllowed
        Neither a master nor a node could be reached, or wants another secret.
    """
    return UMBPClient(config, secret_file=secret_file, timeout=timeout)
