# SPDX-License-Identifier: Apache-2.0
"""rsync and trees from where only the store's HTTP port is reached: each connection goes through a WebSocket of its own."""
from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .errors import DataStoreError, StoreUnreachable
from .server import Server

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

__all__ = ["Conversation", "Tunnels", "WebSocketRsyncTunnel", "converse", "reach"]

FRAME_BYTES = 64 << 10
MESSAGE_BYTES_MAX = 1 << 20
CONNECT_S = 10.0
CLOSE_S = 2.0
AGAIN_S = 0.1


class WebSocketRsyncTunnel:
    """A port of this host from which connections are carried to a store's rsync daemon, or to its server for trees.

    It is open within a ``with`` block, or from :meth:`open` to :meth:`close`.

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
        self._acceptor: threading.Thread | None = None
        self._lock = threading.Lock()
        self._carried: dict[threading.Thread, list[socket.socket]] = {}  # both sides' sockets
        self._closing = False
        self.pid = 0  # of the process that opened it
        self.fault: Exception | None = None  # why the last connection that could not be carried was not

    def open(self) -> None:
        """Listen, and carry what comes."""
        need_websockets("a tunnel")
        self._listener = socket.create_server(("127.0.0.1", self.local_port))
        self.local_port = self._listener.getsockname()[1]
        self.pid = os.getpid()
        self._acceptor = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """End it with all connections. A child made by fork() lets go of its own end alone."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        if self.pid != os.getpid():
            listener.close()
            return
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        listener.close()
        if self._acceptor:
            self._acceptor.join()
        with self._lock:
            self._closing = True
            carried = list(self._carried)
            for sockets in self._carried.values():
                for side in sockets:  # the store may have more to say for minutes
                    with contextlib.suppress(OSError):
                        side.shutdown(socket.SHUT_RDWR)
        for thread in carried:
            thread.join()

    def __enter__(self) -> WebSocketRsyncTunnel:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                local = listener.accept()[0]
            except OSError:
                if self._listener is not listener:
                    return  # the tunnel has been closed
                time.sleep(AGAIN_S)  # the process has no descriptor left, for example
                continue
            self._begin(local)

    def _begin(self, local: socket.socket) -> None:
        thread = threading.Thread(target=self._carry, args=(local,), daemon=True)
        with self._lock:
            self._carried[thread] = [local]
        try:
            thread.start()
        except RuntimeError as error:  # the process may have no more threads
            self.fault = error
            with self._lock:
                del self._carried[thread]
            local.close()

    def _carry(self, local: socket.socket) -> None:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        with local:
            try:
                with connect(self.ws_url, additional_headers=self._headers, ssl=self._tls, compression=None, max_size=MESSAGE_BYTES_MAX,
                             open_timeout=CONNECT_S) as remote:
                    with self._lock:
                        if self._closing:
                            return
                        self._carried[threading.current_thread()].append(remote.socket)
                    back = threading.Thread(target=take_back, args=(remote, local), daemon=True)
                    back.start()
                    while data := local.recv(FRAME_BYTES):
                        remote.send(data)
                    back.join()
            except (OSError, RuntimeError, WebSocketException) as error:  # as in _begin()
                self.fault = error
            finally:
                with self._lock:
                    del self._carried[threading.current_thread()]


class Tunnels:
    """The tunnels of one client, each opened when it is first needed. Threads may share them."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._open: dict[str, WebSocketRsyncTunnel] = {}
        self._closed = False

    def at(self, path: str) -> WebSocketRsyncTunnel:
        """The one to a path of the store's; a child made by fork() opens its own."""
        with self._lock:
            if self._closed:
                raise ValueError("the client is closed")
            tunnel = self._open.get(path)
            if tunnel is None or tunnel.pid != os.getpid():
                tunnel = new_tunnel(self._server, path)
                tunnel.open()
                self._open[path] = tunnel
            return tunnel

    def close(self) -> None:
        with self._lock:
            self._closed = True
            tunnels, self._open = list(self._open.values()), {}
        for tunnel in tunnels:
            tunnel.close()


@contextlib.contextmanager
def reach(server: Server, address: str | None, path: str, tunnels: Tunnels | None = None) -> Iterator[str]:
    """The "host:port" of a server of the store's: `address`, or if there is none that of a tunnel at `path`."""
    if address:
        yield address
        return
    with contextlib.nullcontext(tunnels.at(path)) if tunnels else new_tunnel(server, path) as tunnel:
        before = tunnel.fault
        try:
            yield f"127.0.0.1:{tunnel.local_port}"
        except DataStoreError as error:
            if tunnel.fault and tunnel.fault is not before:
                raise StoreUnreachable(f"{tunnel.ws_url}: {tunnel.fault}") from error
            raise


def new_tunnel(server: Server, path: str) -> WebSocketRsyncTunnel:
    return WebSocketRsyncTunnel(0, f"ws{server.url.removeprefix('http')}{path}", server.token, server.ca_file)


def need_websockets(what: str) -> None:
    try:
        import websockets.sync.client  # noqa: F401
    except ImportError as error:
        raise StoreUnreachable(f"{what} needs the package websockets: pip install penstock[data]") from error


class Conversation:
    """JSON over a WebSocket of the store, open within a ``with`` block.

    Needs the package ``websockets`` (``pip install penstock[data]``). Every call raises :class:`StoreUnreachable` if the store
    does not answer, or says no object.
    """

    def __init__(self, server: Server, target: str) -> None:
        need_websockets("a broadcast")
        self.url = f"ws{server.url.removeprefix('http')}{target}"
        self._headers = {"Authorization": f"Bearer {server.token}"} if server.token else {}
        self._tls = ssl.create_default_context(cafile=server.ca_file) if self.url.startswith("wss:") else None
        self._remote: ClientConnection | None = None

    def __enter__(self) -> Conversation:
        from websockets.sync.client import connect

        with self._failing():
            self._remote = connect(self.url, additional_headers=self._headers, ssl=self._tls, compression=None, open_timeout=CONNECT_S,
                                   close_timeout=CLOSE_S, ping_interval=None)  # the store shows by messages that it is there
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Whoever waits for the store, in any thread, hears that it does not answer."""
        if self._remote:
            self._remote.close()

    def say(self, message: dict[str, Any]) -> None:
        assert self._remote
        with self._failing():
            self._remote.send(json.dumps(message))

    def hear(self, seconds: float) -> dict[str, Any]:
        told = self.hear_within(seconds)
        if told is None:
            raise StoreUnreachable(f"{self.url}: it has said nothing for {seconds:.0f} s")
        return told

    def hear_within(self, seconds: float) -> dict[str, Any] | None:
        """What it says next; None: nothing in that time."""
        assert self._remote
        with self._failing():
            try:
                told = json.loads(self._remote.recv(seconds))
            except TimeoutError:
                return None
        if not isinstance(told, dict):
            raise StoreUnreachable(f"{self.url}: what answers there is no data store")
        return told

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        from websockets.exceptions import WebSocketException

        try:
            yield
        except (OSError, WebSocketException, ValueError, RecursionError) as error:
            raise StoreUnreachable(f"{self.url}: {error or type(error).__name__}") from error


def converse(server: Server, target: str, message: dict[str, Any], timeout: float) -> dict[str, Any]:
    """The answer to one message on a WebSocket of the store."""
    with Conversation(server, target) as store:
        store.say(message)
        return store.hear(timeout)


def take_back(remote: ClientConnection, local: socket.socket) -> None:
    """What the store's daemon says, until it has ended."""
    from websockets.exceptions import WebSocketException

    with contextlib.suppress(OSError, WebSocketException):
        for data in remote:
            local.sendall(data if isinstance(data, bytes) else data.encode())
    with contextlib.suppress(OSError):
        local.shutdown(socket.SHUT_RDWR)
