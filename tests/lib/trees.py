# SPDX-License-Identifier: Apache-2.0
"""The protocol for trees as bytes, what a transfer keeps of a tree, and a slow way between two sides."""
from __future__ import annotations

import contextlib
import os
import pathlib
import random
import socket
import stat
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from data_store import DataStore
from support import BUILD, clean_environment

CALL, FOLLOW = 3, 4
LINK_ERROR, JOIN, TELL, PLACE = 4, 15, 16, 17
TREAD_BYTES, TREAD_S = 32 << 10, 0.01


def tree_url(store: DataStore, name: str = "m", port: int = 0) -> str:
    """Of a tree of the default namespace; `port`: of a way that leads to the store."""
    return f"tree://127.0.0.1:{port or store.tree_port}/default/{name}"


def start_tree(*arguments: object, **more: Any) -> subprocess.Popen[str]:
    """`penstock tree` with its own process."""
    return subprocess.Popen([BUILD / "penstock", "tree", *map(str, arguments)], text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(), **more)


def run_tree(*arguments: object, code: int = 0, user: int | None = None, cwd: pathlib.Path | None = None) -> str:
    """What `penstock tree` says when it ends with `code`."""
    process = start_tree(*arguments, user=user, cwd=cwd)
    said = process.communicate(timeout=120)
    assert process.returncode == code, (arguments, said)
    return said[1]


@contextlib.contextmanager
def small_disk(path: pathlib.Path, mib: int) -> Iterator[None]:
    """A file system of its own at a folder that is made; skips the test where none may be mounted."""
    path.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "penstock", path], capture_output=True).returncode:
        pytest.skip("mounts are not allowed here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def state_of(root: pathlib.Path) -> dict[str, Any]:
    """Everything below a folder that a transfer keeps."""
    found: dict[str, Any] = {}
    for path in [root, *sorted(root.rglob("*"))]:
        state = path.lstat()
        what = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        mode = None if path.is_symlink() else stat.S_IMODE(state.st_mode)
        found[str(path.relative_to(root))] = (what, mode, state.st_mtime_ns)
    return found


def make_tree(root: pathlib.Path) -> pathlib.Path:
    """A folder with 10 files, and with what is easily lost: odd names, links, modes and times."""
    (root / "sub/deep").mkdir(parents=True)
    (root / "empty folder").mkdir()
    random.seed(1)
    for name, size in (("large", 3 << 20), ("a file", 300_000), ("new\nline", 5), ("ünïcode", 70_000), ("empty", 0), ("sub/deep/x", 1),
                       (".hidden", 9), ("sub-", 2), ("sub.b", 3)):
        (root / name).write_bytes(random.randbytes(size))
    (root / "sub/script").write_text("#!/bin/sh\n")
    (root / "sub/script").chmod(0o750)
    (root / "sub/link").symlink_to("../a file")
    (root / "sub/dangling").symlink_to("/no/where")
    os.utime(root / "a file", ns=(1, 123456789_123456789))
    os.utime(root / "empty", ns=(1, -5_500_000_000))
    (root / "empty folder").chmod(0o500)
    os.utime(root / "empty folder", ns=(1, 10**18))
    return root


def frame(kind: int, payload: bytes) -> bytes:
    return struct.pack("<IB", len(payload), kind) + payload


def hello(operation: int, name: bytes, filters: bytes = b"") -> bytes:
    return frame(2, struct.pack("<HBB32xH", 1, operation, 0, len(name)) + name + filters)


def text(value: bytes) -> bytes:
    return struct.pack("<H", len(value)) + value


def join(group: bytes, port: int, number: int = 1, members: int = 4, host: bytes = b"127.0.0.1") -> bytes:
    return frame(JOIN, struct.pack("<HQIH", 2, number, members, port) + text(host) + text(group))


def call_store(port: int, name: bytes, what: bytes) -> tuple[int, bytes]:
    """Type and payload of what the store answers a member."""
    with socket.create_connection(("127.0.0.1", port), 30) as connection, connection.makefile("rb") as file:
        connection.sendall(hello(CALL, name) + what)
        while True:
            size, kind = struct.unpack("<IB", file.read(5))
            payload = file.read(size)
            if kind in (LINK_ERROR, PLACE):
                return kind, payload


def as_it_is(data: bytes, _: int) -> bytes:
    return data


class Way:
    """A port of this host that leads to another one, and passes what comes back on by a rule.

    Parameters
    ----------
    port : int
        Where it leads.
    pass_on, pass_up : Callable[[bytes, int], bytes]
        What becomes of bytes from there, and to there, that follow so many others of their connection.
    """

    def __init__(self, port: int, pass_on: Callable[[bytes, int], bytes],
                 pass_up: Callable[[bytes, int], bytes] = as_it_is) -> None:
        self._to, self._pass_on, self._pass_up = port, pass_on, pass_up
        self._server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._server.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                self._sockets.append(near)
                try:
                    far = socket.create_connection(("127.0.0.1", self._to), 30)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                self._sockets.append(far)
                for what in (lambda n=near, f=far: self._copy(n, f, self._pass_up), lambda n=near, f=far: self._copy(f, n, self._pass_on)):
                    self._threads.append(threading.Thread(target=what))
                    self._threads[-1].start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket, pass_on: Callable[[bytes, int], bytes]) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(TREAD_BYTES):
                sink.sendall(pass_on(data, passed))
                passed += len(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Way:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in (self._server, *self._sockets):
            each.close()


class SlowWay(Way):
    """One that treads through a tree's bytes until it is opened; calls pass at once. `up`: those that are put."""

    def __init__(self, port: int, free_bytes: int = 256 << 10, up: bool = False) -> None:
        self._free_bytes, self._opened = free_bytes, threading.Event()
        super().__init__(port, as_it_is if up else self._tread, self._tread if up else as_it_is)

    def open(self) -> None:
        self._opened.set()

    def _tread(self, data: bytes, passed: int) -> bytes:
        if passed > self._free_bytes and not self._opened.is_set():
            time.sleep(TREAD_S)
        return data

    def __exit__(self, *more: object) -> None:
        self.open()
        super().__exit__(*more)
