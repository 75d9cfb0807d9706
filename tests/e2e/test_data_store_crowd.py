# SPDX-License-Identifier: Apache-2.0
"""penstockd --role store among thousands of connections that begin and do not go on."""
from __future__ import annotations

import contextlib
import http.client
import pathlib
import resource
import socket
from collections.abc import Iterator

import pytest
from data_store import DataStore
from procs import rss_bytes
from support import wait_until

SLOW = 10_000
AT_ONCE = 500  # connections between two questions of a client that means it
RESIDENT_MAX = 400 << 20
BEGINNINGS = (b"", b"G", b"GET /health HT", b"GET /ws/fs-broadcast/g HTTP/1.1\r\nHost: h\r\nUpgr", b"@RSYNCD",
              b"POST /api/v1/keys/k/store HTTP/1.1\r\nHost: h\r\nContent-Length: 4000000\r\n\r\n{")


@pytest.fixture
def many_files() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SLOW + 1000
    if limits[1] != resource.RLIM_INFINITY and limits[1] < wanted:
        pytest.skip(f"a process may have {limits[1]} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def begin(port: int, says: bytes) -> socket.socket:
    """A connection, made or underway, that says the beginning of something as soon as it can."""
    slow = socket.socket()
    slow.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        slow.connect(("127.0.0.1", port))
    with contextlib.suppress(BlockingIOError, ConnectionError):
        slow.send(says)
    return slow


def serves(store: DataStore) -> bool:
    """One that comes may be the one that gives way to those behind it: it comes again."""
    try:
        return store.ask("GET", "/api/v1/keys/list?prefix=")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


@pytest.mark.usefixtures("many_files")
def test_slow_connections_keep_nobody_out(tmp_path: pathlib.Path) -> None:
    with DataStore(tmp_path) as store:
        assert store.key("POST", "k", "/publish", {"ip": "10.0.0.5"})[0] == 200
        slow: list[socket.socket] = []
        try:
            while len(slow) < SLOW:
                slow += [begin(store.http_port, BEGINNINGS[number % len(BEGINNINGS)]) for number in range(AT_ONCE)]
                wait_until("a client is served among them", lambda: serves(store))
                assert rss_bytes(store.pid) < RESIDENT_MAX
            assert store.key("GET", "k")[1]["found"]
        finally:
            for connection in slow:
                connection.close()
        wait_until("a client is served after them", lambda: serves(store))
        store.stop()
