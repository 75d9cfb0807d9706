# SPDX-License-Identifier: Apache-2.0
"""A data store's daemon of its own, and raw HTTP to it."""
from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import pathlib
import re
import socket
import stat
import struct
import subprocess
from typing import Any
from urllib.parse import quote

from support import NOBODY, Node, clean_environment

ASK_S_MAX = 30
TEXT, BINARY, CLOSE = 1, 2, 8


def files_of(root: pathlib.Path) -> dict[str, bytes]:
    """What the files below a folder have, by their paths in it."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def make_powerful(folder: pathlib.Path) -> None:
    """A folder with a program that runs as another user, and a device; for root alone."""
    folder.mkdir()
    (folder / "program").write_text("#!/bin/sh\n")
    os.chown(folder / "program", NOBODY, NOBODY)
    (folder / "program").chmod(0o6755)
    os.mknod(folder / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))


class WebSocket:
    """A client's side of a WebSocket, frame by frame."""

    def __init__(self, port: int, path: str, token: str = "") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), ASK_S_MAX)
        key = base64.b64encode(os.urandom(16)).decode()
        more = f"Authorization: Bearer {token}\r\n" if token else ""
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{more}"
                            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        headers = http.client.parse_headers(self.file)
        if self.status == 101:
            wanted = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
            assert headers["Sec-WebSocket-Accept"] == base64.b64encode(wanted).decode()

    def send(self, data: bytes, kind: int = TEXT) -> None:
        mask = os.urandom(4)
        if len(data) < 126:
            size = struct.pack(">B", 0x80 | len(data))
        else:
            size = struct.pack(">BH", 0xFE, len(data)) if len(data) < 1 << 16 else struct.pack(">BQ", 0xFF, len(data))
        masks = (mask * (len(data) // 4 + 1))[:len(data)]
        masked = (int.from_bytes(data, "big") ^ int.from_bytes(masks, "big")).to_bytes(len(data), "big")
        self.socket.sendall(bytes([0x80 | kind]) + size + mask + masked)

    def receive(self) -> tuple[int, bytes]:
        """Kind and bytes of the next frame; CLOSE at the end of the stream, too."""
        head = self.file.read(2)
        if len(head) < 2:
            return CLOSE, b""
        size = head[1] & 0x7F
        if size >= 126:
            size = int.from_bytes(self.file.read(2 if size == 126 else 8), "big")
        return head[0] & 0xF, self.file.read(size)

    def ask(self, message: Any) -> Any:
        """The JSON that answers a message."""
        self.send(message if isinstance(message, bytes) else json.dumps(message).encode())
        kind, data = self.receive()
        assert kind == TEXT, (kind, data)
        return json.loads(data)

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def __enter__(self) -> WebSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DataStore(Node):
    """penstockd --role store below `folder`, ready when constructed; the ports are free ones."""

    def __init__(self, folder: pathlib.Path, *more: str, environment: dict[str, str] | None = None,
                 within: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.files = folder / "files" / "default"
        super().__init__("--role", "store", "--data", str(folder), "--http", "127.0.0.1:0", "--rsync-port", "0", *more,
                         environment=environment, within=within)
        try:
            self.wait_for("store: ready")
        except BaseException:
            self.kill()
            raise
        self.http_port, self.rsync_port, self.tree_port = (self._port(what) for what in ("HTTP", "rsync", "trees"))

    def _port(self, what: str) -> int:
        found = re.search(rf"store: {what} on \S+:(\d+)", self.log())
        assert found, self.log()
        return int(found[1])

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
        """Status and parsed answer; `body`: bytes as they are, all else as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=ASK_S_MAX)
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def key(self, method: str, key: str, route: str = "", body: Any = None) -> tuple[int, Any]:
        """The same for a key's route, with the key quoted as clients quote it; `route` begins with '/' or '?'."""
        return self.ask(method, f"/api/v1/keys/{quote(key, safe='')}{route}", body)

    def join(self, group: str, key: str, ip: str, query: str = "", **more: Any) -> Any:
        """What a pod is told that joins a broadcast; `query` is empty or begins with '?'."""
        with WebSocket(self.http_port, f"/ws/fs-broadcast/{quote(group, safe='')}{query}") as joined:
            return joined.ask({"action": "join", "key": key, "pod_ip": ip, **more})

    def names(self, prefix: str = "") -> dict[str, tuple[bool, str]]:
        """What a listing has: name to whether it is a directory, and its locale."""
        status, told = self.ask("GET", f"/api/v1/keys/list?prefix={quote(prefix, safe='')}")
        assert status == 200 and told["prefix"] == prefix, told
        return {item["name"]: (item["is_directory"], item["locale"]) for item in told["items"]}

    def rsync(self, *arguments: str, token: str = "") -> subprocess.CompletedProcess[str]:
        """The real rsync; {data} in an argument is the URL of the module with its slash."""
        url = f"rsync://penstock@127.0.0.1:{self.rsync_port}/data/"
        return subprocess.run(["rsync", *(argument.replace("{data}", url) for argument in arguments)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                              env=clean_environment(RSYNC_PASSWORD=token))
