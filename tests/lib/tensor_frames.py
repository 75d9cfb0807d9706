# SPDX-License-Identifier: Apache-2.0
"""Tensors as an agent's frames say them: memory files, handles, and descriptors beside a frame's length."""
from __future__ import annotations

import array
import fcntl
import json
import os
import pathlib
import socket
import struct
from typing import Any

from agent import Agent
from descriptors import memfds_of

BYTES = 8192
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def memory(data: bytes = b"", size: int = BYTES, seals: int = SEALS) -> int:
    fd = os.memfd_create("test-tensor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    os.pwrite(fd, data, 0)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def handle(descriptor: int = 0, offset: int = 0, strides: tuple[int, ...] = (1,), size: int = BYTES) -> str:
    return (b"pst1" + struct.pack(f"<BBHQQ{len(strides)}qI", 1, len(strides), 0, size, offset, *strides, descriptor)).hex()


def tensor(key: str, shape: tuple[int, ...] = (BYTES,), dtype: str = "uint8", **where: Any) -> dict[str, Any]:
    return {"key": key, "ipc_handle": handle(**where), "shape": list(shape), "dtype": dtype, "device": "cpu"}


def send(connection: socket.socket, frame: bytes, fds: list[int]) -> None:
    """A frame whose length carries the descriptors, 253 with each byte."""
    head = struct.pack(">I", len(frame))
    for i in range(4):
        part = array.array("i", fds[253 * i:253 * (i + 1)])
        connection.sendmsg([head[i:i + 1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, part)] if part else [])
    connection.sendall(frame)


def receive(connection: socket.socket) -> tuple[Any, list[int]]:
    head, fds = b"", []
    connection.settimeout(60)
    while len(head) < 4:
        part, ancillary, _, _ = connection.recvmsg(4 - len(head), socket.CMSG_SPACE(253 * 4), socket.MSG_CMSG_CLOEXEC)
        if not part:
            return None, fds
        head += part
        for _, _, data in ancillary:
            fds += array.array("i", data[:len(data) // 4 * 4]).tolist()
    with connection.makefile("rb") as file:
        return json.loads(file.read(struct.unpack(">I", head)[0])), fds


def ask(agent: Agent, command: str, fds: list[int] | None = None, **more: Any) -> tuple[Any, list[int]]:
    with agent.connect() as connection:
        send(connection, json.dumps({"command": command, **more}).encode(), fds or [])
        return receive(connection)


def put(agent: Agent, key: str, data: bytes, **more: Any) -> None:
    fd = memory(data)
    answer, _ = ask(agent, "put_tensor", [fd], tensors=[tensor(key, **more)], pid=os.getpid())
    os.close(fd)
    assert answer == {"status": "ok", "count": 1}


def memories_of(agent: Agent) -> int:
    """How many memories the agent has open."""
    return memfds_of(agent.pid, "test-tensor")


def mapped_by(pid: int) -> bool:
    return "memfd:test-tensor" in pathlib.Path(f"/proc/{pid}/maps").read_text()
