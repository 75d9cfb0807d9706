# SPDX-License-Identifier: Apache-2.0
"""A cable between pods and a port of this host: it carries so much a second, and can be frozen and pulled out."""

import contextlib
import socket
import threading
import time

GULP_BYTES = 64 << 10
CONNECT_S_MAX = 5.0


class Cable:
    """A port of loopback that leads to another one, slowly.

    Parameters
    ----------
    port : int
        Where it leads.
    gulp_s : float
        How long 64 KiB of one connection take in one direction.
    """

    def __init__(self, port: int, gulp_s: float) -> None:
        self._to, self._gulp_s = port, gulp_s
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._flows = threading.Event()
        self._flows.set()
        self._server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._server.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()

    def pull(self) -> int:
        """End all connections in the middle of whatever they carry; how many there were."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            return len(self._open) // 2

    def freeze(self) -> None:
        """Carry nothing, while all connections stay."""
        self._flows.clear()

    def thaw(self) -> None:
        """Carry on."""
        self._flows.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._to), CONNECT_S_MAX) as far:
            far.settimeout(None)
            with self._lock:
                self._open |= {near, far}
            back = threading.Thread(target=self._copy, args=(far, near), daemon=True)
            back.start()
            self._copy(near, far)
            back.join()
            with self._lock:
                self._open -= {near, far}

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(GULP_BYTES):
                self._flows.wait()
                sink.sendall(data)
                time.sleep(self._gulp_s * len(data) / GULP_BYTES)
        for each, how in ((source, socket.SHUT_RD), (sink, socket.SHUT_WR)):
            with contextlib.suppress(OSError):
                each.shutdown(how)

    def __enter__(self) -> "Cable":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._server.close()
        self.thaw()
        self.pull()
