# SPDX-License-Identifier: Apache-2.0
"""What clients of a node with --tsgrpc should not do, by hand. The node answers, or ends the connection."""
from __future__ import annotations

import random
import socket
import struct

import support
from http2 import (CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS,
                   frame, header, message, request)
from support import Node, penstock
from tsgrpc import Peer, resident_bytes, settled


def garbage(node: Node) -> None:
    rng = random.Random(5)
    for _ in range(30):
        with Peer(node, rng.randbytes(rng.randrange(1, 5000))) as peer:
            peer.socket.shutdown(socket.SHUT_WR)
            peer.ends()
    for _ in range(50):
        with Peer(node) as peer:
            peer.send(frame(rng.randrange(12), rng.randrange(256), rng.randrange(4), rng.randbytes(rng.randrange(300))) * 3)
            peer.socket.shutdown(socket.SHUT_WR)
            peer.ends()


def headers_without_end(node: Node) -> None:
    with Peer(node) as peer:
        peer.send(request(1, "Read", 0))
        more = frame(CONTINUATION, 0, 1, header("x" * 100, "y" * 10_000))
        for _ in range(2000):
            if not peer.send(more):
                return
        peer.ends()


def headers_too_large(node: Node) -> None:
    with Peer(node) as peer:
        block = b"".join(header(f"x-{number}", "y" * 1000) for number in range(40))
        peer.send(request(1, "Read", 0) + b"".join(frame(CONTINUATION, 0, 1, block[at:at + 10_000])
                                                    for at in range(0, len(block), 10_000))
                  + frame(CONTINUATION, END_HEADERS, 1))
        peer.wait_for(RST_STREAM, 1)


def frame_too_large(node: Node) -> None:
    with Peer(node) as peer:
        peer.send(request(1, "Write") + b"\xff\xff\xff\0\0\0\0\0\1" + bytes(100_000))
        peer.wait_for(GOAWAY, 0)


def resets(node: Node) -> None:
    with Peer(node) as peer:
        body = frame(DATA, END_STREAM, 1, message(b"\x0a\x01k"))
        for number in range(5000):
            stream = number * 2 + 1
            if not peer.send(request(stream, "Read") + body[:5] + struct.pack("!I", stream) + body[9:]
                             + frame(RST_STREAM, 0, stream, struct.pack("!I", 8))):
                return


def pings(node: Node) -> None:
    with Peer(node) as peer:
        for _ in range(2000):
            if not peer.send(frame(PING, 0, 0, bytes(8)) * 100 + frame(SETTINGS, 0, 0) * 100):
                return


def too_many_streams(node: Node) -> None:
    with Peer(node) as peer:
        for stream in range(1, 2 * 300, 2):
            peer.send(request(stream, "Write"))
        assert struct.unpack("!I", peer.wait_for(RST_STREAM, 2 * 257 - 1))[0] == 7  # refused


def too_many_calls(node: Node) -> None:
    """More than the door has in all, over many connections, each with some of a value."""
    peers = [Peer(node) for _ in range(9)]
    some = message(b"\x0a\x01k\x1a\xff\xff\x03" + bytes(1000), 65_542)
    for peer in peers:
        for stream in range(1, 2 * 256, 2):
            peer.send(request(stream, "Write") + frame(DATA, 0, stream, some))
    assert struct.unpack("!I", peers[-1].wait_for(RST_STREAM, 2 * 256 - 1))[0] == 7  # refused
    assert resident_bytes(node) < 256 << 20  # 80 KiB a call at the most
    for peer in peers:
        peer.close()
    settled(node)


def lengths_that_lie(node: Node) -> None:
    for method, body in (("Read", message(b"\x0a\x01k", 1000)), ("Write", message(b"\x0a\x01k\x1a", 0xffffffff)),
                         ("Read", message(b"\x0a\xff\xff\xff\xff\x0fk")), ("List", b"\0\0"), ("Write", b"\0"),
                         ("Read", message(b"", 0x7fffffff))):
        with Peer(node) as peer:
            peer.send(request(1, method) + frame(DATA, END_STREAM, 1, body))
            peer.wait_for(HEADERS, 1, END_STREAM)


def beyond_the_window(node: Node) -> None:
    with Peer(node) as peer:
        peer.send(request(1, "Write") + frame(DATA, 0, 1, message(b"\x0a\x01k", 16 << 20)))
        for _ in range(1000):
            if not peer.send(frame(DATA, 0, 1, bytes(16_000))):
                break
        peer.wait_for(RST_STREAM, 1)


def never_reads(node: Node) -> None:
    assert penstock("--url", node.url, "put", "not read", "-", stdin=bytes(8 << 20)).returncode == 0
    no_window = PREFACE + frame(SETTINGS, 0, 0, struct.pack("!HI", 4, 0))
    peers = [Peer(node, no_window) for _ in range(3)]
    for peer in peers:
        for stream in (1, 3, 5):
            peer.send(request(stream, "Read") + frame(DATA, END_STREAM, stream, message(b"\x0a\x08not read")))
        peer.send(request(7, "List") + frame(DATA, END_STREAM, 7, message(b"")))
        peer.wait_for(HEADERS, 7)
    for peer in peers:
        peer.close()


def not_grpc(node: Node) -> None:
    with Peer(node) as peer:
        peer.send(request(1, "Read", END_HEADERS | END_STREAM, content_type="text/html"))
        peer.wait_for(HEADERS, 1, END_STREAM)
    with Peer(node, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as peer:
        peer.ends()


ABUSES = [garbage, headers_without_end, headers_too_large, frame_too_large, resets, pings, too_many_streams,
          too_many_calls, lengths_that_lie, beyond_the_window, never_reads, not_grpc]


def leave_nothing_behind(node: Node) -> None:
    """All of them, several times: no memory and no descriptors are lost."""
    def all_of_it() -> None:
        for abuse in ABUSES:
            if abuse is not too_many_calls:  # a thousand calls at once spread what they have over the heap
                abuse(node)
        settled(node)

    all_of_it()
    descriptors, bytes_before = len(support.file_numbers(node.pid)), resident_bytes(node)
    for _ in range(3):
        all_of_it()
    support.wait_until("no more descriptors", lambda: len(support.file_numbers(node.pid)) <= descriptors)
    assert resident_bytes(node) < bytes_before + (16 << 20)
