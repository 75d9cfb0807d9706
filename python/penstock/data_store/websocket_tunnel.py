# SPDX-License-Identifier: Apache-2.0
"""rsync and trees from where only the store's HTTP port is reached: each connection goes through a WebSocket of its own."""
from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .errors import DataStoreError, StoreUnreachable
from .server import Server

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

__all__ = ["WebSocketRsyncTunnel", "converse", "reach"]

FRAME_BYTES = 64 << 10
CONNECT_S = 10.0


class WebSocketRsyncTunnel:
    """A port of this host from which connections are carried to a store's rsync daemon, or to its server for trees.

    It is open within a ``with`` block.

    Needs the package ``websockets`` (``pip install penstock[data]``).

    Parameters
    ----------
    local_port : int
        0: one that is free; the attribute ``local_port`` has it.
    ws_url : str
        "ws://host:port/rsync/namespace/", or ".../tree/namespace/"; or wss.
    token : str
        That the store asks for; empty: none.
    ca_file : str or None
        Of those whom to trust with wss; the system's if not set.
    """

    def __init__(self, local_port: int, ws_url: str, token: str = "", ca_file: str | None = None) -> None:
        self.local_port = local_port
        self.ws_url = ws_url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._tls = ssl.create_default_context(cafile=ca_file) if ws_url.startswith("wss:") else None
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self.fault: Exception | None = None  # why a connection could not be carried

    def __enter__(self) -> WebSocketRsyncTunnel:
        need_websockets("a tunnel")
        self._listener = socket.create_server(("127.0.0.1", self.local_port))
        self.local_port = self._listener.getsockname()[1]
        self._start(self._accept, self._listener)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._listener:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._listener.close()
        for thread in self._threads:
            thread.join()

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the tunnel has been closed
            while True:
                self._start(self._carry, listener.accept()[0])

    def _carry(self, local: socket.socket) -> None:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        with local:
            try:
                with connect(self.ws_url, additional_headers=self._headers, ssl=self._tls, compression=None, max_size=None,
                             open_timeout=CONNECT_S) as remote:
                    back = threading.Thread(target=take_back, args=(remote, local), daemon=True)
                    back.start()
                    while data := local.recv(FRAME_BYTES):
                        remote.send(data)
                    back.join()
            except (OSError, WebSocketException) as error:
                self.fault = error


@contextlib.contextmanager
def reach(server: Server, address: str | None, path: str) -> Iterator[str]:
    """The "host:port" of a server of the store's: `address`, or if there is none that of a tunnel at `path`."""
    if address:
        yield address
        return
    url = f"ws{server.url.removeprefix('http')}{path}"
    with WebSocketRsyncTunnel(0, url, server.token, server.ca_file) as tunnel:
        try:
            yield f"127.0.0.1:{tunnel.local_port}"
        except DataStoreError as error:
            if tunnel.fault:
                raise StoreUnreachable(f"{url}: {tunnel.fault}") from error
            raise


def need_websockets(what: str) -> None:
    try:
        import websockets.sync.client  # noqa: F401
    except ImportError as error:
        raise StoreUnreachable(f"{what} needs the package websockets: pip install penstock[data]") from error


def converse(server: Server, target: str, message: dict[str, Any], timeout: float) -> dict[str, Any]:
    """The answer to one message on a WebSocket of the store."""
    need_websockets("a broadcast")
    from websockets.exceptions import WebSocketException
    from websockets.sync.client import connect

    url = f"ws{server.url.removeprefix('http')}{target}"
    headers = {"Authorization": f"Bearer {server.token}"} if server.token else {}
    tls = ssl.create_default_context(cafile=server.ca_file) if url.startswith("wss:") else None
    try:
        with connect(url, additional_headers=headers, ssl=tls, compression=None, open_timeout=CONNECT_S) as remote:
            remote.send(json.dumps(message))
            told = json.loads(remote.recv(timeout))
    except (OSError, WebSocketException, ValueError) as error:
        raise StoreUnreachable(f"{url}: {error or type(error).__name__}") from error
    if not isinstance(told, dict):
        raise StoreUnreachable(f"{url}: what answers there is no data store")
    return told


def take_back(remote: ClientConnection, local: socket.socket) -> None:
    """What the store's daemon says, until it has ended."""
    from websockets.exceptions import WebSocketException

    with contextlib.suppress(OSError, WebSocketException):
        for data in remote:
            local.sendall(data if isinstance(data, bytes) else data.encode())
    with contextlib.suppress(OSError):
        local.shutdown(socket.SHUT_RDWR)
