# SPDX-License-Identifier: Apache-2.0
"""Clients of a node with --tsgrpc: TensorStore's wheel, and HTTP/2 by hand."""
from __future__ import annotations

import json
import pathlib
import re
import subprocess

import http2
import procs
import pytest
import support
from http2 import DATA, END_STREAM, HEADERS, frame, message, request
from support import Node, penstock

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = pathlib.Path(__file__).with_name("tsgrpc_client.py")
CLIENT_S = 240
LOOPBACK = "127.0.0.1:0"


@pytest.fixture(scope="module")
def python() -> str:
    """The Python that has TensorStore."""
    done = subprocess.run([ROOT / "ci" / "wheel"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def address_of(node: Node) -> str:
    node.wait_for("tsgrpc: listening on ")
    return re.search(r"tsgrpc: listening on (\S+)", node.log())[1]


def client(python: str, node: Node, *arguments: str) -> subprocess.Popen[str]:
    what, *more = arguments
    return subprocess.Popen([python, "-B", CLIENT, what, address_of(node), *more], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def succeeds(process: subprocess.Popen[str]) -> None:
    try:
        output, _ = process.communicate(timeout=CLIENT_S)
    finally:
        process.kill()
    assert process.returncode == 0, output


def figures(node: Node) -> dict:
    done = penstock("--url", node.url, "stat", "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def resident_bytes(node: Node) -> int:
    """Memory of its own; 0 with a sanitizer, which adds some to each block and keeps what was freed for a while."""
    if support.sanitized():
        return 0
    return procs.rss_bytes(node.pid, "RssAnon")


def settled(node: Node) -> None:
    """Nothing is left of calls that have ended, however they did."""
    support.wait_until("no reservations, no views", lambda: {figures(node)[name] for name in ("reservations", "pinned_bytes")} == {0})


class Peer(http2.Peer):
    """A client of a node's gateway."""

    def __init__(self, node: Node, hello: bytes = http2.HELLO, receive_bytes: int = 0) -> None:
        host, port = address_of(node).rsplit(":", 1)
        super().__init__(host, int(port), hello, support.WAIT_S, receive_bytes)


def answers(node: Node) -> None:
    """The door does what it should, for a client that behaves."""
    with Peer(node) as peer:
        peer.send(request(1, "Read") + frame(DATA, END_STREAM, 1, message(b"\x0a\x01k")))
        peer.wait_for(HEADERS, 1)
        assert b"\x18\x01" in peer.wait_for(DATA, 1)  # missing
        peer.wait_for(HEADERS, 1, END_STREAM)
