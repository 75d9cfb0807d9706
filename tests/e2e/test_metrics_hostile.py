# SPDX-License-Identifier: Apache-2.0
"""penstockd --http: who is let in, settings that are refused by name, and clients that ask for nonsense or for nothing."""
from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import random
import resource
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from typing import Iterator

import pytest
import support
from metrics import Watched
from procs import rss_bytes
from support import Node, fails_to_start, is_loopback, listening_addresses, penstock, secret_file, start_node, wait_until

HTTP = "--http=127.0.0.1:0"
SMALL = ("--dram=64M", "--page-size=64K", "--shards=2")
MANY = 1000
GROWS_MAX = 64 << 20
PATHS = ("/ready", "/metrics", "/api/v1/pool/stats", "/api/v1/pool/keys", "/api/v1/pool/nodes", "/api/v1/pool/map")


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Iterator[Node]:
    with start_node(*SMALL, HTTP, f"--unix={tmp_path}/socket") as it:
        yield it


def serves(tmp_path: pathlib.Path) -> None:
    """The node does, whatever its HTTP port is at."""
    at = f"node+unix://{tmp_path}/socket"
    assert penstock("--url", at, "put", "k", stdin=b"v").returncode == 0
    assert penstock("--url", at, "get", "k").stdout == b"v"


# ---- settings ----


@pytest.mark.parametrize("role", [(), ("--role=master", "--pool-map={}/map", "--listen=127.0.0.1:0")])
def test_off_loopback_without_a_token(tmp_path: pathlib.Path, role: tuple[str, ...]) -> None:
    for address in ("0.0.0.0:0", "[::]:0", f"{support.network_address() or '192.0.2.1'}:0"):
        code, log = fails_to_start(*SMALL, f"--unix={tmp_path}/socket", f"--http={address}",
                                   *(option.format(tmp_path) for option in role))
        assert code == 2 and "http: off loopback it needs http_token_file or tls_certificate" in log


@pytest.mark.parametrize(("http", "fault"), [("127.0.0.1", "http: "), ("127.0.0.1:99999", "http: "), ("127.0.0.1:0/metrics", "http: "),
                                            ("no.such.host.invalid:1", "http: "), ("192.0.2.1:1", "http: ")])
def test_addresses_that_are_none(tmp_path: pathlib.Path, http: str, fault: str) -> None:
    code, log = fails_to_start(*SMALL, f"--unix={tmp_path}/socket", f"--http={http}")
    assert code != 0 and fault in log


def test_a_port_that_another_has(tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, log = fails_to_start(*SMALL, f"--unix={tmp_path}/socket", f"--http=127.0.0.1:{taken.getsockname()[1]}")
        assert code == 1 and "http: another process listens there" in log


def test_token_files_that_are_refused(tmp_path: pathlib.Path) -> None:
    for name, text, mode in (("open", "token\n", 0o644), ("empty", "", 0o600), ("long", "t" * 5000, 0o600)):
        path = secret_file(tmp_path / name, text, mode)
        code, log = fails_to_start(*SMALL, f"--unix={tmp_path}/socket", HTTP, f"--http-token-file={path}")
        assert code in (1, 2) and str(path) in log, log
    code, log = fails_to_start(*SMALL, f"--unix={tmp_path}/socket", HTTP, f"--http-token-file={tmp_path}/none")
    assert code in (1, 2) and f"{tmp_path}/none" in log


def test_without_the_option_nothing_listens(tmp_path: pathlib.Path) -> None:
    def listeners(*more: str) -> int:
        with start_node(*SMALL, f"--unix={tmp_path}/socket", *more) as node:
            node.wait_for("penstockd: ready")
            assert ("http:" in node.log()) == bool(more)
            return len(listening_addresses(node.pid))

    assert listeners(HTTP) > listeners()


# ---- who is let in ----


def test_a_token_is_asked_for_everywhere(tmp_path: pathlib.Path) -> None:
    token = secret_file(tmp_path / "token", "the token\n")
    with start_node(*SMALL, "--http=0.0.0.0:0", f"--http-token-file={token}", f"--unix={tmp_path}/socket") as node:
        watched = Watched(node, "the token")
        assert not all(map(is_loopback, listening_addresses(node.pid)))
        for path in PATHS:
            assert watched.ask(path)[0] in (200, 404)
            for wrong in ("", "the toke", "the token2", "another"):
                status, _, text = watched.ask(path, token=wrong)
                assert status == 401 and "penstock_" not in text, (path, wrong)
        assert watched.ask("/health", token="")[0] == 200
        assert "the token" not in node.log()


def test_keys_are_told_to_those_who_prove_themselves(tmp_path: pathlib.Path) -> None:
    secret, token = secret_file(tmp_path / "secret"), secret_file(tmp_path / "token", "t\n")
    guarded = (*SMALL, HTTP, f"--secret-file={secret}", f"--unix={tmp_path}/socket")
    with start_node(*guarded) as node:
        watched = Watched(node)
        status, _, text = watched.ask("/api/v1/pool/keys")
        assert status == 403 and "http_token_file" in text
        assert watched.ask("/metrics")[0] == watched.ask("/ready")[0] == 200
    with start_node(*guarded, f"--http-token-file={token}") as node:
        assert Watched(node, "t").ask("/api/v1/pool/keys")[0] == 200
    with start_node("--dram=64M", HTTP, f"--unix={tmp_path}/socket") as node:  # which other users cannot open
        assert Watched(node).ask("/api/v1/pool/keys")[0] == 403


def test_grants_have_metrics_of_their_own(tmp_path: pathlib.Path) -> None:
    secret_file(tmp_path / "all", "secret of all\n")
    secret_file(tmp_path / "reads", "secret of readers\n")
    grants = tmp_path / "grants"
    grants.write_text("[all]\nrights = read write admin\nkeys = all\nsecret-file = all\n"
                      "[reads]\nrights = read\nprefix = a/\nsecret-file = reads\n")
    with start_node(*SMALL, HTTP, f"--grants={grants}", f"--unix={tmp_path}/socket") as node:
        watched = Watched(node)
        at = ("--url", f"node+unix://{tmp_path}/socket")
        assert penstock(*at, f"--secret-file={tmp_path}/reads", "put", "a/1", stdin=b"v").returncode != 0
        page = watched.metrics()
        told = json.loads(penstock(*at, f"--secret-file={tmp_path}/all", "stat", "--json").stdout)["pool"]
        assert page["penstock_grant_refused_write_total"].value(grant="reads") == told["grant.reads.refused_write"] >= 1
        assert page["penstock_grant_refused_write_total"].value(grant="all") == 0
        assert page["penstock_forbidden_total"].value() >= 1


def test_over_tls(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "certificates"
    subprocess.run([pathlib.Path(support.__file__).with_name("certificates"), folder], check=True)
    with start_node(*SMALL, "--http=0.0.0.0:0", f"--tls-certificate={folder}/node.pem", f"--tls-key={folder}/node.key",
                    "--listen=127.0.0.1:0") as node:
        watched = Watched(node)
        trusts = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        trusts.check_hostname = False
        with urllib.request.urlopen(f"https://127.0.0.1:{watched.port}/metrics", timeout=support.WAIT_S, context=trusts) as answer:
            assert answer.status == 200 and b"penstock_keys 0" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="403"):  # TLS keeps nobody out
            urllib.request.urlopen(f"https://127.0.0.1:{watched.port}/api/v1/pool/keys", timeout=support.WAIT_S, context=trusts)
        with pytest.raises((OSError, AssertionError)):
            watched.page()


# ---- nonsense ----


def raw(port: int, request: bytes) -> bytes:
    """All that comes back."""
    with socket.create_connection(("127.0.0.1", port), support.WAIT_S) as connection, contextlib.suppress(OSError):
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))
    return b""


@pytest.mark.parametrize("path", ["//", "/metrics/", "/metrics/x", "/%6detrics", "/METRICS", "/api/v1/pool", "/api/v1/pool/", "/../metrics",
                                  "/health/..", "/api/v1/pool/keys%00", "/ws/keys", "/rsync/x"])
def test_paths_that_are_none(node: Node, path: str) -> None:
    status, _, text = Watched(node).ask(path)
    assert status in (400, 404) and "penstock_" not in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get"])
def test_methods_that_are_none(node: Node, method: str) -> None:
    watched = Watched(node)
    for path in ("/health", *PATHS):
        said = raw(watched.port, f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        assert said.split()[1] in (b"400", b"403", b"405", b"501"), (path, said)
    assert watched.ask("/metrics", method="HEAD")[::2] == (200, "")


NONSENSE = {
    "zeros": b"\0" * 1000,
    "noise": random.Random(1).randbytes(5000),
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01",
    "rsync": b"@RSYNCD: 31.0\n",
    "no version": b"GET /metrics\r\n\r\n",
    "another version": b"GET /metrics HTTP/9.9\r\n\r\n",
    "a long path": b"GET " + b"/" * 40000 + b" HTTP/1.1\r\n\r\n",
    "a long head": b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n",
    "chunks": b"GET /metrics HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    "a long body": b"GET /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n",
    "another site's page": b"GET /metrics HTTP/1.1\r\nHost: evil.example.com\r\n\r\n",
}


@pytest.mark.parametrize("request_", NONSENSE.values(), ids=NONSENSE.keys())
def test_requests_that_are_none(node: Node, tmp_path: pathlib.Path, request_: bytes) -> None:
    watched = Watched(node)
    assert b"penstock_keys" not in raw(watched.port, request_)
    assert watched.ask("/metrics")[0] == 200
    serves(tmp_path)


# ---- too many, and too slow ----


@pytest.fixture
def many_files() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] < 2 * MANY:
        pytest.skip(f"a process may have {limits[1]} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2 * MANY), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def answers(watched: Watched) -> bool:
    """One that comes may be the one that gives way to those behind it: it comes again."""
    try:
        return watched.ask("/metrics")[0] == 200
    except OSError:
        return False


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("says", [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 50],
                         ids=["nothing", "a part", "much"])
def test_many_connections(node: Node, tmp_path: pathlib.Path, says: bytes) -> None:
    """They say nothing, not all, or read nothing of what they asked for."""
    watched = Watched(node)
    watched.page()
    before, files = rss_bytes(node.pid), len(support.file_numbers(node.pid))
    slow = []
    try:
        for _ in range(MANY):
            connection = socket.create_connection(("127.0.0.1", watched.port), support.WAIT_S)
            slow.append(connection)
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionError):
                connection.send(says)
        serves(tmp_path)
        wait_until("it answers among them", lambda: answers(watched))
        assert len(support.file_numbers(node.pid)) < files + 100
        assert support.sanitized() or rss_bytes(node.pid) < before + GROWS_MAX
    finally:
        for connection in slow:
            connection.close()
    wait_until("it answers after them", lambda: answers(watched))
    wait_until("all of them have ended", lambda: watched.metrics()["penstock_http_connections"].value() == 1)
    serves(tmp_path)


@contextlib.contextmanager
def halted(thread: int) -> Iterator[None]:
    """One thread of a child does not run within the block."""
    libc = ctypes.CDLL(None, use_errno=True)
    seize, interrupt, detach, all_kinds = 0x4206, 0x4207, 17, 0x40000000
    if libc.ptrace(seize, thread, None, None) < 0:
        pytest.skip(f"this process may trace no other: {os.strerror(ctypes.get_errno())}")
    try:
        assert libc.ptrace(interrupt, thread, None, None) == 0
        os.waitpid(thread, all_kinds)
        yield
    finally:
        libc.ptrace(detach, thread, None, None)


def run_ns(pid: int) -> dict[int, int]:
    """How long each thread of a process has run so far."""
    return {int(task.name): int((task / "schedstat").read_text().split()[0]) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()}


def test_a_shard_that_is_stuck(tmp_path: pathlib.Path) -> None:
    with start_node("--dram=64M", "--shards=1", HTTP, f"--unix={tmp_path}/socket", "--listen=127.0.0.1:0", listeners=2) as node:
        watched = Watched(node)
        before = run_ns(node.pid)
        assert penstock("--url", f"node+unix://{tmp_path}/socket", "bench", "--op", "put", "--seconds", "1").returncode == 0
        busy = {thread: ns - before.get(thread, 0) for thread, ns in run_ns(node.pid).items()}
        with halted(max(busy, key=busy.__getitem__)):  # the shard's
            for path in ("/metrics", "/ready", "/api/v1/pool/stats", "/api/v1/pool/keys"):
                status, _, text = watched.ask(path)
                assert status == 503 and "timed out" in text.lower(), (path, text, busy)
                assert watched.ask("/health")[0] == 200
        wait_until("it is ready again", lambda: watched.ask("/ready")[0] == 200)
        assert watched.metrics()["penstock_http_scrape_failures_total"].value() == 1
        serves(tmp_path)


def test_it_ends_in_order_while_clients_ask(tmp_path: pathlib.Path) -> None:
    with start_node(*SMALL, HTTP, f"--unix={tmp_path}/socket") as node:
        watched = Watched(node)
        with contextlib.ExitStack() as held:
            for _ in range(30):
                connection = held.enter_context(socket.create_connection(("127.0.0.1", watched.port), support.WAIT_S))
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            node.stop()
