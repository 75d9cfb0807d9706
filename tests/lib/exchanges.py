# SPDX-License-Identifier: Apache-2.0
"""Participants of broadcasts of tensors, over raw WebSockets."""
from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote

from data_store import CLOSE, TEXT, DataStore, WebSocket


def tensor(key: str, shape: tuple[int, ...] = (2, 3), dtype: str = "torch.float32", **more: Any) -> dict:
    return {"key": key, "shape": list(shape), "dtype": dtype, **more}


def wanted(*keys: str) -> list[dict]:
    return [tensor(key, dest_ipc_handle=[key]) for key in keys]


class Pod(WebSocket):
    """A participant that has joined, unless it has no role."""

    def __init__(self, store: DataStore, role: str = "", ip: str = "", tensors: list[dict] | None = None, *, group: str = "g",
                 route: str = "broadcast", query: str = "", **more: Any) -> None:
        super().__init__(store.http_port, f"/ws/{route}/{quote(group, safe='')}{query}")
        if role:
            self.say(action="join", role=role, pod_ip=ip, tensors=tensors or [], **more)
            self.queued = self.hear()
            assert self.queued["event"] == "queued", self.queued
            assert self.queued["group_id"] == group

    def say(self, **message: Any) -> None:
        self.send(json.dumps(message).encode())

    def hear(self) -> Any:
        """The next message that is no heartbeat; None at the end."""
        while True:
            kind, data = self.receive()
            if kind != TEXT:
                assert kind == CLOSE, (kind, data)
                return None
            told = json.loads(data)
            if told != {"event": "heartbeat"}:
                return told

    def ready(self) -> Any:
        """Without the round's name."""
        told = self.hear()
        assert told["event"] == "ready", told
        self.round = told.pop("round_id")
        assert len(self.round) == 32
        return told

    def fault(self) -> str:
        """The error that it is told, which is the last."""
        told = self.hear()
        assert told["event"] == "error", told
        assert self.hear() is None
        return told["message"]


def groups(store: DataStore) -> list[dict]:
    status, told = store.ask("GET", "/api/v1/gpu/broadcast/groups")
    assert status == 200
    return told["groups"]


def until(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def completed(*pods: Pod) -> None:
    for pod in pods:
        pod.say(action="complete", success=True)
    for pod in pods:
        told = pod.hear()
        assert told["event"] == "completed", told
        assert pod.hear() is None


def ready_group(store: DataStore, **more: Any) -> list[Pod]:
    pods = [Pod(store, "putter", "10.0.0.1", [tensor("a")], world_size=3, **more),
            *(Pod(store, "getter", f"10.0.0.{ip}", wanted("a"), pod_name=f"pod-{ip}") for ip in (2, 3))]
    for pod in pods:
        pod.ready()
    return pods
