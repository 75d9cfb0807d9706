# SPDX-License-Identifier: Apache-2.0
"""A pod's agent of its own, and frames to it."""
from __future__ import annotations

import json
import pathlib
import re
import socket
import struct
import subprocess
from typing import Any

from support import Node, clean_environment

ASK_S_MAX = 60


def exchange(connection: socket.socket, frame: bytes) -> Any:
    """The parsed answer to a frame whose bytes are given without their length; None at the end of the stream."""
    connection.settimeout(ASK_S_MAX)
    connection.sendall(struct.pack(">I", len(frame)) + frame)
    return answer_of(connection)


def answer_of(connection: socket.socket) -> Any:
    with connection.makefile("rb") as file:
        head = file.read(4)
        return json.loads(file.read(struct.unpack(">I", head)[0])) if len(head) == 4 else None


class Agent(Node):
    """penstockd --role agent with its socket in `folder`, ready when constructed; the ports are free ones."""

    def __init__(self, folder: pathlib.Path, *more: str, environment: dict[str, str] | None = None,
                 within: tuple[str, ...] = ()) -> None:
        self.socket = folder / "agent.sock"
        super().__init__("--role", "agent", "--agent-socket", str(self.socket), "--agent-listen", "127.0.0.1:0",
                         "--rsync-port", "0", *more, environment={"TMPDIR": str(folder)} | (environment or {}), within=within)
        try:
            self.wait_for("agent: ready")
        except BaseException:
            self.kill()
            raise
        found = re.search(r"agent: ready on \S+ and \S+:(\d+)", self.log())
        assert found, self.log()
        self.tcp_port = int(found[1])

    def connect(self, remote: bool = False) -> socket.socket:
        """A connection of this process, or as another pod has it."""
        if remote:
            return socket.create_connection(("127.0.0.1", self.tcp_port), ASK_S_MAX)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.socket))
        return connection

    def ask(self, command: str, remote: bool = False, **more: Any) -> Any:
        with self.connect(remote) as connection:
            return exchange(connection, json.dumps({"command": command, **more}).encode())

    def rsync(self, place: dict[str, Any], into: pathlib.Path, *more: str, path: str | None = None,
              token: str = "") -> subprocess.CompletedProcess[str]:
        """The real rsync from where an answer says that a path is offered; `path`: instead of its rsync_path."""
        user = "penstock@" if token else ""
        url = f"rsync://{user}127.0.0.1:{place['rsync_port']}/{place['rsync_path'] if path is None else path}"
        return subprocess.run(["rsync", "--archive", *more, url, f"{into}/"], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=ASK_S_MAX, env=clean_environment(RSYNC_PASSWORD=token))
