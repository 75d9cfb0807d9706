# SPDX-License-Identifier: Apache-2.0
"""Pods whose agents execute a group together, and the frames with which they are asked to."""
from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pathlib
from typing import Any

import fake_gpu
from agent import Agent
from ports import free_port
from tensor_frames import ask, memory, tensor

ENDS_S = 60


class Pods(list[Agent]):
    """Agents, each a pod's, that find the GPU's libraries."""

    def __init__(self, folder: pathlib.Path, stack: contextlib.ExitStack) -> None:
        super().__init__()
        self.folder, self.stack = folder, stack

    def add(self, *more: str, **environment: str) -> Agent:
        folder = self.folder / str(len(self))
        folder.mkdir()
        self.append(self.stack.enter_context(Agent(folder, *more, environment=fake_gpu.environment(**environment))))
        return self[-1]


class Round:
    """One execution of a group: each rank's frame, and its answer."""

    def __init__(self, ranks: int, **more: Any) -> None:
        self.common = {"group_id": "g", "world_size": ranks, "master_addr": "127.0.0.1", "master_port": free_port(), "timeout": 20, **more}
        self.pool = concurrent.futures.ThreadPoolExecutor(16)
        self.asked: list[concurrent.futures.Future[Any]] = []

    def ask(self, agent: Agent, rank: int, **more: Any) -> None:
        self.asked.append(self.pool.submit(agent.ask, "execute_broadcast_group", **self.common, rank=rank, **more))

    def answers(self) -> list[Any]:
        return [one.result(ENDS_S) for one in self.asked]

    def ways(self) -> list[str]:
        told = self.answers()
        assert all(one["status"] == "ok" for one in told), told
        return [one["way"] for one in told]

    def faults(self) -> list[str]:
        told = self.answers()
        assert all(one["status"] == "error" for one in told), told
        return [one["error"] for one in told]


def send_of(key: str, ranks: int, **more: Any) -> dict[str, Any]:
    return {"key": key, "src_tensor_key": key, "to_ranks": list(range(1, ranks)), **more}


def receive_of(key: str, dest: Any, shape: tuple[int, ...], dtype: str = "uint8") -> dict[str, Any]:
    return {"key": key, "from_rank": 0, "dest_ipc_handle": dest, "shape": list(shape), "dtype": dtype}


def put_writable(agent: Agent, key: str, size: int) -> int:
    """A tensor of the host that is to be filled; its memory."""
    fd = memory(b"", size)
    told, _ = ask(agent, "put_tensor", [fd], tensors=[tensor(key, (size,), size=size)], pid=os.getpid())
    assert told["status"] == "ok", told
    return fd


def read_and_close(fd: int) -> bytes:
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    os.close(fd)
    return data
