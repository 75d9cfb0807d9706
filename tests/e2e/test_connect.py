# SPDX-License-Identifier: Apache-2.0
"""A client's patience: until connect_ms is over for what may pass, none for what cannot."""
from __future__ import annotations

import contextlib
import pathlib
import re
import select
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator

import support
from ports import free_port
from support import start_node, wait_until

SMALL = ("--dram=4M", "--page-size=64K", "--shards=1")
LONG_MS = 10 * support.WAIT_S * 1000  # a client that tried so long would fail its test
NOT_ALLOWED, UNREACHABLE, OTHER = 4, 5, 7
RESET_AT_CLOSE = struct.pack("ii", 1, 0)
ESTABLISHED = "01"


def ping(url: str, connect_ms: int = LONG_MS, **environment: str) -> subprocess.Popen[bytes]:
    separator = "&" if "?" in url else "?"
    return subprocess.Popen([support.BUILD / "penstock", "--url", f"{url}{separator}connect_ms={connect_ms}", "ping"],
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            env=support.clean_environment(**environment))


def end_of(client: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Exit status and last words, within the time that every wait of a test has."""
    try:
        words = client.communicate(timeout=support.WAIT_S)[1]
        return client.returncode, words.decode()
    finally:
        client.kill()
        client.wait()


def listen(port: int = 0) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    listener.settimeout(support.WAIT_S)
    return listener


def drop_one(listener: socket.socket, reset: bool) -> None:
    """Takes the next client and lets it go without a word, as a node does that ends."""
    client, _ = listener.accept()
    if reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    client.close()


def connections(port: int) -> int:
    lines = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(line[1].endswith(f":{port:04X}") and line[3] == ESTABLISHED for line in lines)


@contextlib.contextmanager
def each_client(listener: socket.socket, serve: Callable[[socket.socket], None]) -> Iterator[None]:
    """Serves all that connect, one after the other: one that had no answer in time comes again."""
    stop = threading.Event()

    def accept() -> None:
        listener.settimeout(0.1)
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                serve(listener.accept()[0])

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield
    finally:
        stop.set()
        accepting.join()


def carry(client: socket.socket, port: int) -> None:
    """Passes on what a client and a node say to each other, until one of them closes."""
    with client, socket.create_connection(("127.0.0.1", port)) as node:
        while ready := select.select([client, node], [], [], support.WAIT_S)[0]:
            for side in ready:
                said = side.recv(1 << 16)
                if not said:
                    return
                (node if side is client else client).sendall(said)


def test_a_node_that_starts_anew() -> None:
    """The first attempts are dropped without a word."""
    with listen() as listener, start_node("--listen=127.0.0.1:0", *SMALL) as node:
        client = ping(f"node://127.0.0.1:{listener.getsockname()[1]}")
        for number in range(4):
            drop_one(listener, reset=number % 2 == 0)
        with each_client(listener, lambda accepted: carry(accepted, node.ports()[0])):
            assert end_of(client) == (0, "")
        node.stop()


def test_a_node_that_stands_still() -> None:
    with start_node("--listen=127.0.0.1:0", *SMALL) as node:
        port = node.ports()[0]
        with node.stopped():
            client = ping(node.tcp)
            wait_until("the client waits", lambda: connections(port) > 0)
        assert end_of(client) == (0, "")
        node.stop()


def test_patience_ends_with_connect_ms() -> None:
    with listen() as listener, each_client(listener, socket.socket.close):
        status, words = end_of(ping(f"node://127.0.0.1:{listener.getsockname()[1]}", connect_ms=300))
    assert status == UNREACHABLE and "connection" in words


def test_what_cannot_pass_ends_at_once(tmp_path: pathlib.Path) -> None:
    for name in ("right", "wrong"):
        (tmp_path / name).write_bytes(name.encode() * 8)
        (tmp_path / name).chmod(0o600)
    status, words = end_of(ping(f"node://127.0.0.1:{free_port()}"))
    assert status == UNREACHABLE and "nothing listens there" in words
    with start_node("--listen=127.0.0.1:0", f"--secret-file={tmp_path}/right", *SMALL) as node:
        for url in (node.tcp, f"{node.tcp}?secret_file={tmp_path}/wrong"):
            status, words = end_of(ping(url))
            assert status == NOT_ALLOWED and re.search("secret", words), words
        node.stop()
    with listen() as listener:  # which is no node
        client = ping(f"node://127.0.0.1:{listener.getsockname()[1]}")
        with listener.accept()[0] as stranger:
            stranger.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            status, words = end_of(client)
    assert status == UNREACHABLE and "not a penstock node" in words
