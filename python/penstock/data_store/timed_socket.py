# SPDX-License-Identifier: Apache-2.0
"""Sockets with one time for a whole conversation: a peer that says a byte now and then ends it no later."""
from __future__ import annotations

import io
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["TimedSocket"]


class TimedReader(io.RawIOBase):
    """What comes from a socket until a time has come, however slowly."""

    def __init__(self, connected: socket.socket, end: float) -> None:
        self._socket, self._end = connected, end
        self._raw = connected.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int | None:
        self._socket.settimeout(left_until(self._end))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class TimedSocket:
    """A socket whose calls end at a time, seconds of :func:`time.monotonic`; what :mod:`http.client` uses of one."""

    def __init__(self, connected: socket.socket, end: float) -> None:
        self._socket, self._end = connected, end

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(TimedReader(self._socket, self._end))

    def sendall(self, data: Buffer) -> None:
        self._socket.settimeout(left_until(self._end))
        self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()


def left_until(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left
