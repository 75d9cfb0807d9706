# SPDX-License-Identifier: Apache-2.0
"""Tensors from the GPUs of one pod to those of others: this process joins the group at the store, and this pod's agent moves them."""
from __future__ import annotations

import contextlib
import os
import socket
import threading
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from .errors import AgentError, DataStoreError, StoreRefused, StoreUnreachable
from .local_offers import own_ip
from .pod_data_server import start_server_if_needed
from .types import BroadcastWindow
from .websocket_tunnel import Conversation

if TYPE_CHECKING:
    from ..gpus import GpuPlace
    from .data_store_client import DataStoreClient

__all__ = ["get_by_exchange", "gpu_places", "put_by_exchange"]

SILENCE_S = 70.0  # of a store, which says something every ten seconds while a group waits
LOOK_S = 0.2  # between two looks at what the store says while the agent is at work
END_S = 600.0  # as long a store keeps a group that is ready, if its window has no timeout


def gpu_places(data: Any) -> dict[str, GpuPlace]:
    """Where the leaves of a tensor, an array or a state dict lie, by their names ("" of one alone); empty unless all lie on GPUs."""
    from ..gpus import GpuPlace, is_gpu

    found: dict[str, Any] = {}

    def collect(value: Any, path: str) -> bool:
        if is_gpu(value):
            found[path] = value
            return True
        if not isinstance(value, Mapping) or not value:
            return False
        return all(collect(inner, f"{path}.{name}" if path else str(name)) for name, inner in value.items())

    return {name: GpuPlace.of(name, value) for name, value in found.items()} if collect(data, "") else {}


def put_by_exchange(client: DataStoreClient, full_key: str, places: dict[str, GpuPlace], window: BroadcastWindow) -> None:
    """Send tensors to the pods of a group, and wait until all have them."""
    from ..gpus import said_of, settle

    said = [said_of(key_of(client, full_key, name), place) for name, place in sorted(places.items())]
    settle(places.values())
    with registered(client, key_of(client, full_key, ""), said):
        take_part(client, "putter", group_of(window, full_key), [shown(one) for one in said], window)


def get_by_exchange(client: DataStoreClient, full_key: str, places: dict[str, GpuPlace], window: BroadcastWindow) -> None:
    """Fill these with what another pod of the group sends."""
    from ..gpus import said_of, settle

    said = [said_of(key_of(client, full_key, name), place) for name, place in sorted(places.items())]
    settle(places.values())
    start_server_if_needed(client.agent.socket_path)
    tensors = [{**shown(one), "dest_ipc_handle": {"ipc_handle": one["ipc_handle"], "device": one["device"]}} for one in said]
    take_part(client, "getter", group_of(window, full_key), tensors, window)


def group_of(window: BroadcastWindow, full_key: str) -> str:
    return window.group_id or full_key


def key_of(client: DataStoreClient, full_key: str, name: str) -> str:
    """A tensor's key, for agents and for the store."""
    from ..sharing import key_of as below

    return below(f"{client.namespace}/{full_key}", name)


def shown(said: dict[str, Any]) -> dict[str, Any]:
    return {"key": said["key"], "shape": said["shape"], "dtype": said["dtype"]}


@contextlib.contextmanager
def registered(client: DataStoreClient, key: str, said: list[dict[str, Any]]) -> Any:
    """A block in which this pod's agent knows the tensors."""
    agent = client.agent
    start_server_if_needed(agent.socket_path)
    agent.register_tensors(said, (), key)
    try:
        yield
    finally:
        with contextlib.suppress(AgentError):
            agent.unregister_tensors(key)


def take_part(client: DataStoreClient, role: str, group: str, tensors: list[dict[str, Any]], window: BroadcastWindow) -> None:
    """Join a group, do this pod's part, and wait until all have done theirs.

    Raises
    ------
    StoreRefused
        The group has failed: the message says which pod did what.
    AgentError
        This pod's agent could not move the tensors.
    """
    size = window.world_size or (len(window.ips) if window.ips else None)
    join = {"action": "join", "role": role, "pod_ip": own_ip(client.server.url), "pod_name": os.environ.get("POD_NAME"), "tensors": tensors,
            "timeout": window.timeout, "world_size": size}
    target = f"/ws/broadcast/{quote(group, safe='')}?{urlencode({'namespace': client.namespace})}"
    with Conversation(client.server, target) as store:
        store.say({name: value for name, value in join.items() if value is not None})
        ready = hear(store, group, "ready", SILENCE_S)
        fault = Part(client, ready, window).done(store, group)
        try:
            with contextlib.suppress(StoreUnreachable):  # one that has ended the group has said why
                store.say({"action": "complete", "success": fault is None})
            hear(store, group, "completed", (window.timeout or END_S) + SILENCE_S)
        except DataStoreError as error:
            raise fault or error from None
    if fault:
        raise fault


def hear(store: Conversation, group: str, event: str, seconds: float) -> dict[str, Any]:
    """What the store says next that is no sign of life."""
    while True:
        told = store.hear(seconds)
        if told.get("event") == event:
            return told
        check(told, group)
        if told.get("event") == "heartbeat":
            store.say({"action": "heartbeat"})


def check(told: Mapping[str, Any], group: str) -> None:
    if told.get("event") == "error":
        raise StoreRefused(0, f"group {group}: {told.get('message') or 'refused'}")


class Part(threading.Thread):
    """What the agent does for this pod. A group that has failed elsewhere is given up here."""

    def __init__(self, client: DataStoreClient, ready: Mapping[str, Any], window: BroadcastWindow) -> None:
        super().__init__(daemon=True)
        self._client, self._ready, self._timeout = client, ready, window.timeout
        self._connection: socket.socket | None = None
        self._fault: DataStoreError | None = None

    def run(self) -> None:
        try:
            self._client.agent.execute_broadcast_group(self._ready, uuid.uuid4().hex, self._timeout, self._take)
        except DataStoreError as error:
            self._fault = error

    def _take(self, connection: socket.socket) -> None:
        self._connection = connection

    def done(self, store: Conversation, group: str) -> DataStoreError | None:
        """Wait for it. Returns why it has failed, if it has."""
        self.start()
        try:
            while self.is_alive():
                self.join(LOOK_S)
                told = store.hear_within(0) if self.is_alive() else None
                if told:
                    check(told, group)
        finally:
            if self._connection and self.is_alive():
                with contextlib.suppress(OSError):  # it may just have ended
                    self._connection.shutdown(socket.SHUT_RDWR)
            self.join()
        return self._fault
