# SPDX-License-Identifier: Apache-2.0
"""``mooncake.store`` on penstock: the names, arguments and return codes of Mooncake's wheel."""
from __future__ import annotations

import threading
from collections.abc import Mapping

import penstock

from ._codes import Calls, FAILED, INVALID, NO_TASK, NOT_OFFERED, OK, log
from ._kinds import (BufferHandle, Descriptor, MemoryDescriptor, MooncakeHostMemAllocator, ObjectDataType, ReplicaDescriptor,
                     ReplicaStatus, ReplicateConfig, SoftPinAction)
from ._setup import Wanted, opened
from ._tensors import HEAD_BYTES, Tensors

__all__ = ["BufferHandle", "Descriptor", "MemoryDescriptor", "MooncakeDistributedStore", "MooncakeHostMemAllocator",
           "ObjectDataType", "ReplicaDescriptor", "ReplicaStatus", "ReplicateConfig", "SoftPinAction", "bind_to_numa_node"]


def bind_to_numa_node(node: int) -> None:
    """Accepted: a client of penstock keeps no memory of its own that would have to lie there."""


def _tensor_metadata_size() -> int:
    """Bytes of a tensor's head."""
    return HEAD_BYTES


class MooncakeDistributedStore(Tensors):
    """A store of penstock with Mooncake's calls.

    :meth:`setup` opens it; before that, and after :meth:`close`, calls answer with a code. Threads may share one. Errors of the store
    are codes or misses, and one line of the log ``penstock.mooncake`` each; wrong types raise TypeError.
    """

    def __init__(self) -> None:
        super().__init__()
        self._node: penstock.Node | None = None
        self._host = ""
        self._memory = MooncakeHostMemAllocator()
        self._life = threading.Lock()

    # ---- life ----

    def setup(self, local_hostname: str | Mapping[str, object] = "", metadata_server: str = "", global_segment_size: int = 0,
              local_buffer_size: int = 0, protocol: str = "tcp", rdma_devices: str = "", master_server_addr: str = "",
              engine: object = None, enable_ssd_offload: bool = False, ssd_offload_path: str = "", tenant_id: str = "default",
              enable_client_http_server: bool = False, client_http_port: int = 9300, *,
              config: Mapping[str, object] | None = None) -> int:
        """Open the store: 0, or a code.

        Parameters
        ----------
        local_hostname : str, or dict
            Where others reach this process; or the settings by Mooncake's names.
        metadata_server, master_server_addr : str
            ``HOST:PORT`` of a pool's master, or a penstock's URL in either.
        global_segment_size : int
            Bytes that this process brings along to the pool as a node; 0: it is a client alone.
        tenant_id : str
            Keys of tenants do not meet.
        """
        settings = config if config is not None else local_hostname
        try:
            wanted = (Wanted.of_settings(settings) if isinstance(settings, Mapping)
                      else Wanted(settings, metadata_server, global_segment_size, master_server_addr, tenant_id))
        except (KeyError, TypeError, ValueError) as error:
            log.error("setup: %s is missing or wrong", error)
            return INVALID
        return self._open(wanted)

    def _open(self, wanted: Wanted) -> int:
        with self._life:
            if self._store is not None:
                log.error("setup: the store is open already")
                return INVALID
            self._prefix = f"mooncake/{wanted.tenant or 'default'}/"
            try:
                self._store, self._node = opened(wanted, self._prefix)
            except (penstock.Error, ValueError) as error:
                log.error("setup: %s", error)
                return FAILED
            self._calls, self._host = Calls(), wanted.host
            if self._node is not None:
                self._host = self._node.urls[0].removeprefix("node://").partition("?")[0]
            return OK

    def setup_dummy(self, mem_pool_size: int, local_buffer_size: int, server_address: str) -> int:
        """Open the store of another process of this host: a node's URL, or its ``HOST:PORT``."""
        url = server_address if "://" in server_address else f"node://{server_address}"
        return self._open(Wanted("localhost", "", 0, url))

    def init_all(self, protocol: str, device_name: str, mount_segment_size: int) -> int:
        """Open the store of a master on this host, or what ``PENSTOCK_URL`` names."""
        return self._open(Wanted("localhost", "", mount_segment_size, "127.0.0.1:50051"))

    def close(self) -> int:
        """End the client, and leave the pool with what this process brought along. 0 also the second time."""
        with self._life:
            store, node, self._node = self._store, self._node, None
            if store is not None:
                self._end_sessions()
                self._store = None
                self._regions.clear()
                store.close()
            if node is not None:
                node.close()
        return OK

    def __del__(self) -> None:
        if getattr(self, "_store", None) is not None:
            self.close()

    def health_check(self) -> int:
        """0; 1 if it is not open; 2 if nobody answers."""
        store = self._store
        if store is None:
            return 1
        return 2 if self._calls.one("ping", store.ping)[1] else OK

    def get_hostname(self) -> str:
        """Where others reach this process: with a segment its node's ``HOST:PORT``."""
        return self._host

    # ---- memory of the host ----

    def alloc_from_mem_pool(self, size: int) -> int:
        """Address of memory of this process, or 0. It goes with the store."""
        try:
            return self._memory.alloc(size)
        except RuntimeError:
            return 0

    # ---- what a pool of penstock does by itself ----

    def mount_segment(self, path: str, size: int, offset: int = 0, protocol: str = "tcp", location: str = "") -> dict[str, object]:
        return self._no_segment()

    def allocate_and_mount_segment(self, size: int, protocol: str = "tcp", location: str = "") -> dict[str, object]:
        return self._no_segment()

    def _no_segment(self) -> dict[str, object]:
        log.warning("segments are not mounted one by one: say global_segment_size to setup(), or start a penstockd")
        return {"ret": NOT_OFFERED, "segment_ids": []}

    def unmount_segment(self, segment_ids: list[str], grace_period_seconds: int = 0) -> int:
        return NOT_OFFERED

    def unmount_and_free_segment(self, segment_ids: list[str], grace_period_seconds: int = 0) -> int:
        return NOT_OFFERED

    def unmount_local_disk_segment(self, grace_period_seconds: int = 0) -> int:
        return NOT_OFFERED

    def get_offload_rpc_read_count(self) -> int:
        return 0

    def create_copy_task(self, key: str, targets: list[str]) -> tuple[tuple[int, int], int]:
        return (0, 0), NOT_OFFERED

    def create_move_task(self, key: str, source: str, target: str) -> tuple[tuple[int, int], int]:
        return (0, 0), NOT_OFFERED

    def query_task(self, task_id: tuple[int, int]) -> tuple[None, int]:
        return None, NO_TASK
