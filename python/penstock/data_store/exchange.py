# SPDX-License-Identifier: Apache-2.0
"""Tensors from the GPUs of one pod to those of others: this process joins the group at the store, and this pod's agent moves them."""
from __future__ import annotations

import collections
import contextlib
import json
import os
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from .errors import AgentError, DataStoreError, StoreRefused
from .local_offers import own_ip
from .pod_data_server import start_server_if_needed
from .types import BroadcastWindow
from .websocket_tunnel import MESSAGE_BYTES_MAX, Conversation

if TYPE_CHECKING:
    from ..gpus import GpuPlace
    from .data_store_client import DataStoreClient

__all__ = ["get_by_exchange", "gpu_places", "put_by_exchange"]

DEPTH_MAX = 100
TENSORS_MAX = 4096
SILENCE_S = 70.0  # of a store, which says something every ten seconds while a group waits
LOOK_S = 0.2  # between two looks at what the store says while the agent is at work
END_S = 600.0  # as long a store keeps a group that is ready, if its window has no timeout
FAILED_S = 10.0  # for the store to say that a group has failed, which is known here
LET_GO_S = 30.0  # for an agent that is to stop what it does
WITHDRAW_S = 5.0  # for the agent to forget what it was told


def gpu_places(data: Any) -> dict[str, GpuPlace]:
    """Where the leaves of a tensor, an array or a state dict lie, by their names ("" of one alone); empty unless all lie on GPUs.

    Raises
    ------
    TypeError
        An array that says of itself what cannot be.
    ValueError
        Two have one name, there are too many, or they are nested too deeply.
    """
    from ..gpus import GpuPlace, is_gpu

    found: list[tuple[str, Any]] = []

    def collect(value: Any, path: str, depth: int) -> bool:
        if is_gpu(value):
            found.append((path, value))
            return True
        if not isinstance(value, Mapping) or not value:
            return False
        if depth == DEPTH_MAX:
            raise ValueError(f"state dict nested deeper than {DEPTH_MAX} at {path!r}")
        return all(collect(inner, f"{path}.{name}" if path else str(name), depth + 1) for name, inner in value.items())

    if not collect(data, "", 0):
        return {}
    if len(found) > TENSORS_MAX:
        raise ValueError(f"{len(found)} tensors: a group moves {TENSORS_MAX} at the most")
    names = collections.Counter(name for name, _ in found)
    if len(names) < len(found):
        raise ValueError(f"two tensors have the name {names.most_common(1)[0][0]!r}")
    return {name: GpuPlace.of(name, value) for name, value in found}


def put_by_exchange(client: DataStoreClient, full_key: str, places: dict[str, GpuPlace], window: BroadcastWindow) -> None:
    """Send tensors to the pods of a group, and wait until all have them."""
    with known(client, places) as agent_keys:
        tensors = [{**said_of(client, full_key, name, place), "src_tensor_key": agent_keys[name]} for name, place in places.items()]
        take_part(client, "putter", window.group_id or full_key, tensors, window)


def get_by_exchange(client: DataStoreClient, full_key: str, places: dict[str, GpuPlace], window: BroadcastWindow) -> None:
    """Fill these with what another pod of the group sends."""
    from ..gpus import check_fillable

    for name, place in places.items():
        check_fillable(name, place)
    with known(client, places) as agent_keys:
        tensors = [{**said_of(client, full_key, name, place), "dest_ipc_handle": {"key": agent_keys[name]}} for name, place in places.items()]
        take_part(client, "getter", window.group_id or full_key, tensors, window)


def said_of(client: DataStoreClient, full_key: str, name: str, place: GpuPlace) -> dict[str, Any]:
    """A tensor for the store."""
    below = f"{client.namespace}/{full_key}"
    return {"key": f"{below}/{quote(name, safe='')}" if name else below, "shape": list(place.shape), "dtype": place.dtype}


@contextlib.contextmanager
def known(client: DataStoreClient, places: dict[str, GpuPlace]) -> Iterator[dict[str, str]]:
    """A block in which this pod's agent knows the tensors, by keys that nobody else has."""
    from .. import gpus

    below = f"exchange/{uuid.uuid4().hex}"
    keys = {name: f"{below}/{number}" for number, name in enumerate(places)}
    said = [gpus.said_of(keys[name], place) for name, place in places.items()]
    gpus.settle(places.values())
    agent = client.agent
    start_server_if_needed(agent.socket_path)
    agent.register_tensors(said, (), below)
    try:
        yield keys
    finally:
        with contextlib.suppress(AgentError):
            agent.unregister_tensors(below, WITHDRAW_S)


def take_part(client: DataStoreClient, role: str, group: str, tensors: list[dict[str, Any]], window: BroadcastWindow) -> None:
    """Join a group, do this pod's part, and wait until all have done theirs.

    Raises
    ------
    StoreRefused
        The group has failed: the message says which pod did what.
    AgentError
        This pod's agent could not move the tensors.
    ValueError
        The window has neither `timeout` nor `world_size`, or the tensors are more than the store hears of at once.
    """
    if window.timeout is None and window.world_size is None:
        raise ValueError("tensors of GPUs move with a window that has timeout or world_size, which counts those who put and get")
    join = {"action": "join", "role": role, "pod_ip": own_ip(client.server.url), "pod_name": os.environ.get("POD_NAME"), "tensors": tensors,
            "timeout": window.timeout, "world_size": window.world_size}
    said = {name: value for name, value in join.items() if value is not None}
    if len(json.dumps(said)) > MESSAGE_BYTES_MAX:
        raise ValueError(f"what a store has to know of {len(tensors)} tensors takes more than 1 MiB: move them in several groups")
    target = f"/ws/broadcast/{quote(group, safe='')}?{urlencode({'namespace': client.namespace})}"
    with client.conversation(target) as store:
        store.say(said)
        ready = hear(store, group, "ready", SILENCE_S)
        fault = Part(client, ready, window).done(store, group)
        try:
            ended = store.hear_within(0)  # to a store that has ended the group nothing is said: it would take its word back
            if ended:
                check(ended, group)
            store.say({"action": "complete", "success": fault is None})
            hear(store, group, "completed", FAILED_S if fault else (window.timeout or END_S) + SILENCE_S)
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


class Part:
    """What the agent does for this pod. A group that has failed elsewhere is given up here."""

    def __init__(self, client: DataStoreClient, ready: Mapping[str, Any], window: BroadcastWindow) -> None:
        self._client, self._ready, self._timeout = client, ready, window.timeout
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._given_up = False
        self._ended = threading.Event()  # an interrupted join() would say of a thread that runs that it does not
        self._fault: DataStoreError | None = None

    def _run(self) -> None:
        try:
            self._client.agent.execute_broadcast_group(self._ready, uuid.uuid4().hex, self._timeout, self._take)
        except DataStoreError as error:
            self._fault = error
        finally:
            self._ended.set()

    def _take(self, connection: socket.socket) -> None:
        with self._lock:
            self._connection = connection
            if self._given_up:
                connection.shutdown(socket.SHUT_WR)

    def _give_up(self, how: int) -> None:
        with self._lock:
            self._given_up = True
            if self._connection:
                with contextlib.suppress(OSError):  # it may just have ended
                    self._connection.shutdown(how)

    def done(self, store: Conversation, group: str) -> DataStoreError | None:
        """Wait for it. Returns why it has failed, if it has."""
        threading.Thread(target=self._run, daemon=True).start()
        try:
            while not self._ended.wait(LOOK_S):
                told = store.hear_within(0)
                if told:
                    check(told, group)
        finally:
            self._give_up(socket.SHUT_WR)  # the agent hears of it, and answers when it has let go of the memory
            if not self._ended.wait(LET_GO_S):
                self._give_up(socket.SHUT_RDWR)
                self._ended.wait()
        return self._fault
