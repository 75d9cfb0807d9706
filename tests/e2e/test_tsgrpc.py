# SPDX-License-Identifier: Apache-2.0
"""penstockd --tsgrpc: TensorStore's own wheel writes and reads through it, and bad clients do it no harm."""
from __future__ import annotations

import pathlib
import re
import resource
import signal
from typing import Iterator

import pytest
import support
from http2 import ACK, DATA, END_STREAM, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, frame, message, request
from support import Node, fails_to_start, penstock, start_node
from tsgrpc import (LOOPBACK, Peer, address_of, answers, client, figures, python, settled,  # noqa: F401: a fixture
                    succeeds)
from tsgrpc_abuses import ABUSES, leave_nothing_behind

USAGE, FAILURE = 2, 1


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    path = tmp_path_factory.mktemp("tsgrpc") / "socket"
    with start_node("--unix", str(path), "--dram", "1G", "--shards", "2", "--tsgrpc", LOOPBACK) as started:
        started.url = f"node+unix://{path}"
        yield started
        settled(started)
        started.stop()


# ---- the wheel


@pytest.mark.parametrize("what", ["values", "conditions", "listing 3000", "arrays", "transactions", "large 256",
                                  "statuses", "give_up"])
def test_wheel(python: str, node: Node, what: str) -> None:  # noqa: F811
    succeeds(client(python, node, *what.split()))
    settled(node)


def test_wheels_at_once(python: str, node: Node) -> None:  # noqa: F811
    clients = [client(python, node, "count", "50") for _ in range(3)]
    clients += [client(python, node, "overwrite", "20") for _ in range(2)]
    for process in clients:
        succeeds(process)
    assert penstock("--url", node.url, "get", "number").stdout == b"150"


def test_wheel_and_command_line_see_the_same(python: str, node: Node) -> None:  # noqa: F811
    assert penstock("--url", node.url, "rm", "number").returncode in (0, 1)
    succeeds(client(python, node, "count", "1"))
    assert penstock("--url", node.url, "get", "number").stdout == b"1"
    assert penstock("--url", node.url, "put", "number", "-", stdin=b"41").returncode == 0
    succeeds(client(python, node, "count", "1"))
    assert penstock("--url", node.url, "get", "number").stdout == b"42"


def test_full_store(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    with start_node("--unix", f"{tmp_path}/socket", "--dram", "64M", "--tsgrpc", LOOPBACK) as node:
        node.url = f"node+unix://{tmp_path}/socket"
        succeeds(client(python, node, "full"))
        settled(node)
        assert figures(node)["keys"] == 0
        node.stop()


def test_killed_in_the_middle_of_reads(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    with start_node("--unix", f"{tmp_path}/socket", "--tsgrpc", LOOPBACK) as node:
        process = client(python, node, "read_until_killed")
        assert process.stdout.readline() == "reading\n"
        node.process.send_signal(signal.SIGKILL)
        succeeds(process)


def test_next_node_at_the_same_address(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    with start_node("--unix", f"{tmp_path}/socket", "--tsgrpc", LOOPBACK) as node:
        process = client(python, node, "read_on")
        assert process.stdout.readline() == "reading\n"
        node.process.send_signal(signal.SIGKILL)
        node.wait()
        with start_node("--unix", f"{tmp_path}/socket", "--tsgrpc", address_of(node)):
            succeeds(process)


def test_stopped_in_the_middle_of_reads(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    """SIGTERM with calls underway ends them, and the node as ever."""
    with start_node("--unix", f"{tmp_path}/socket", "--tsgrpc", LOOPBACK) as node:
        process = client(python, node, "read_until_killed")
        assert process.stdout.readline() == "reading\n"
        node.stop()
        succeeds(process)


def test_behind_a_secret(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    secret = support.secret_file(tmp_path / "secret")
    with start_node("--unix", f"{tmp_path}/socket", "--secret-file", str(secret), "--tsgrpc", LOOPBACK) as node:
        succeeds(client(python, node, "values"))
        node.stop()


# ---- where it listens


def test_socket_of_its_own(tmp_path: pathlib.Path) -> None:
    with start_node("--listen", "127.0.0.1:0", "--folder", "/dev/shm", "--tsgrpc", "localhost:0") as node:
        path, = support.own_sockets(node.pid)
        assert path.is_socket() and f"listening on unix://{path}," in node.log()
        assert support.is_loopback("127.0.0.1") and set(map(support.is_loopback, support.listening_addresses(node.pid))) == {True}
        node.stop()
        assert not path.exists()


@pytest.mark.parametrize(("address", "code", "text"), [
    ("0.0.0.0:0", FAILURE, "tsgrpc_network=yes"), ("[::]:0", FAILURE, "tsgrpc_network=yes"),
    ("*:0", FAILURE, "tsgrpc_network=yes"), ("192.0.2.1:0", FAILURE, "tsgrpc_network=yes"),
    ("somewhere", USAGE, "host:port"), ("127.0.0.1:70000", USAGE, "invalid port number"),
    ("unix:///tmp/socket", USAGE, "host:port")])
def test_refused_addresses(tmp_path: pathlib.Path, address: str, code: int, text: str) -> None:
    got, log = fails_to_start("--unix", f"{tmp_path}/socket", "--tsgrpc", address)
    assert got == code and address in log and text in log, log


def test_taken_address(node: Node, tmp_path: pathlib.Path) -> None:
    code, log = fails_to_start("--unix", f"{tmp_path}/socket", "--tsgrpc", address_of(node))
    assert code == FAILURE and "Address already in use" in log and address_of(node) in log


def test_off_loopback_when_told(tmp_path: pathlib.Path) -> None:
    with start_node("--unix", f"{tmp_path}/socket", "--dram", "16M", "--tsgrpc", "0.0.0.0:0",
                    "--tsgrpc-network") as node:
        address_of(node)
        assert "0.0.0.0" in support.listening_addresses(node.pid)
        node.stop()


def test_library_does_without() -> None:
    """What the door needs is the daemon's to have."""
    assert b"libnghttp2" in (support.BUILD / "penstockd").read_bytes()
    assert b"libnghttp2" not in (support.BUILD / "libpenstock.so").read_bytes()


@pytest.mark.parametrize("abuse", ABUSES, ids=lambda abuse: abuse.__name__)
def test_abuse(node: Node, abuse) -> None:
    abuse(node)
    answers(node)
    settled(node)


def test_abuse_leaves_nothing_behind(node: Node) -> None:
    leave_nothing_behind(node)


def test_silent_clients_end(node: Node) -> None:
    """Who says nothing, not even hello, is shown the door; who does may be quiet for as long as it likes."""
    with Peer(node, b"") as silent, Peer(node, PREFACE) as half, Peer(node) as quiet:
        silent.ends()
        half.ends()
        quiet.send(frame(PING, 0, 0, bytes(8)))
        quiet.wait_for(PING, 0, ACK)


def test_deadlines(node: Node) -> None:
    """A call of a client that names a time ends by it, though the client does not."""
    with Peer(node) as peer:
        peer.send(request(1, "Write", grpc_timeout="300m") + frame(DATA, 0, 1, message(b"\x0a\x01k", 1000)))
        peer.wait_for(HEADERS, 1, END_STREAM)
        peer.wait_for(RST_STREAM, 1)
    assert penstock("--url", node.url, "get", "k").returncode == 1


def test_bound_of_connections(tmp_path: pathlib.Path) -> None:
    with start_node("--unix", f"{tmp_path}/socket", "--dram", "16M", "--tsgrpc", LOOPBACK,
                    "--tsgrpc-connections", "3") as node:
        peers = [Peer(node) for _ in range(3)]
        for peer in peers:
            peer.wait_for(SETTINGS, 0)
        with Peer(node) as one_more:
            one_more.ends()
        peers[0].close()
        support.wait_until("room for another", lambda: _welcome(node))
        # A full house again, in which nobody does anything: who has been quiet for long makes room.
        support.wait_until("a full house", lambda: _moves_in(node, peers))
        support.wait_until("room made", lambda: _welcome(node))
        for peer in peers:
            peer.close()
        node.stop()


def test_few_descriptors(tmp_path: pathlib.Path) -> None:
    """Connections of the door's that are yet to come are not sessions of the node's."""
    def sessions(*arguments: str) -> int:
        with start_node("--unix", f"{tmp_path}/socket", "--dram", "16M", "--shards", "1", *arguments,
                        before_exec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))) as node:
            if arguments:
                peers = [Peer(node) for _ in range(100)]
                for peer in peers:
                    peer.wait_for(SETTINGS, 0)
                    peer.close()
            node.stop()
            return int(re.search(r"leaves room for (\d+) of 1024 sessions", node.log())[1])

    assert sessions("--tsgrpc", LOOPBACK, "--tsgrpc-connections", "100") <= sessions() - 33
    code, log = fails_to_start("--unix", f"{tmp_path}/socket", "--tsgrpc", LOOPBACK, "--tsgrpc-connections", "4096",
                               before_exec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))
    assert code == FAILURE and "Too many open files" in log


def _moves_in(node: Node, peers: list[Peer]) -> bool:
    """Takes the first place; the door may still be busy with the end of who had it before."""
    peers[0] = Peer(node)
    return any(kind == SETTINGS for kind, *_ in peers[0].frames())


def _welcome(node: Node) -> bool:
    with Peer(node) as peer:
        return any(kind == SETTINGS for kind, *_ in peer.frames())
