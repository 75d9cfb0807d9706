# SPDX-License-Identifier: Apache-2.0
"""A client of the stream that says what it likes: docs/reference/protocol.md, without a secret, without TLS."""
from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct

VERSION = 8
HELLO, PROOF, ADDRESS, READY, ATTACH = 1, 3, 5, 6, 10
ASKS_FOR_STREAM = 1 << 3
EAGER, REQUEST = 1, 3
GET = 2
WAIT = 1 << 10


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        assert more, "the node ended the connection"
        data += more
    return data


class RawClient:
    """A session with a node of one shard; `shard` is its connection, of which nothing is read."""

    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self._requests = 0
        self._boot = socket.create_connection(self._to)
        hello = self._say(HELLO, struct.pack("<IIQQ", ASKS_FOR_STREAM, 0, 0, 0) + bytes(40) + os.urandom(32))
        self._transcript = hello + b"".join(self._hear())
        self._say(PROOF, self._mac(b"pst client"))
        self._token = struct.unpack_from("<Q", self._hear()[1], 32)[0]
        waits = b"pst-strm" + struct.pack("<IIII", 1, 0, 0, 0)
        self._say(ADDRESS, self._mac(b"pst address", waits) + waits)
        assert self._hear()[0][6] == READY
        self.shard = socket.create_connection(self._to)
        which = struct.pack("<QII", self._token, 0, 0)
        self.shard.sendall(self._frame(ATTACH, self._mac(b"pst attach", which) + which))

    @staticmethod
    def _frame(kind: int, body: bytes) -> bytes:
        return b"PSTB" + struct.pack("<HHI", VERSION, kind, len(body)) + body

    def _say(self, kind: int, body: bytes = b"") -> bytes:
        frame = self._frame(kind, body)
        self._boot.sendall(frame)
        return frame

    def _hear(self) -> tuple[bytes, bytes]:
        head = _receive(self._boot, 12)
        return head, _receive(self._boot, struct.unpack_from("<I", head, 8)[0])

    def _mac(self, label: bytes, rest: bytes = b"") -> bytes:
        return hmac.new(b"", label.ljust(16, b"\0") + self._transcript + rest, hashlib.sha256).digest()

    def get(self, key: bytes, timeout_ms: int, wait_ms: int = 0) -> bytes:
        """The message that asks for a value of up to 1 MiB, and waits for its key."""
        flags = WAIT if wait_ms else 0
        operation = struct.pack("<BBHHHIIQ", GET, 0, len(key), 0, 0, flags, wait_ms, 1 << 20) + key
        head = struct.pack("<BBHIQII", REQUEST, VERSION, 1, self._requests, self._token, timeout_ms, 0)
        self._requests += 1
        return struct.pack("<BBHIQQ", EAGER, 0, len(head), len(operation), 0, 0) + head + operation

    def hears(self) -> bool:
        """Whether the node has begun to answer; takes nothing of it."""
        return bool(self.shard.recv(1, socket.MSG_PEEK))

    def close(self) -> None:
        self.shard.close()
        self._boot.close()
