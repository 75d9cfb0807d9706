# SPDX-License-Identifier: Apache-2.0
"""penstockd --tsgrpc and time: clients that take what they asked for late, a little at a time or never, and what it costs."""
from __future__ import annotations

import pathlib
import threading
import time
from typing import Callable, Iterator

import pytest
import support
from http2 import (CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, PRIORITY, RST_STREAM, SETTINGS,
                   WINDOW_UPDATE, field, frame, header, hello, message, number, read, request)
from support import Node, penstock, start_node
from tsgrpc import LOOPBACK, Peer, answers, figures, resident_bytes, settled

STALL_MS = 2500
BIG = 16 << 20
WIDE = hello(64 << 20) + frame(WINDOW_UPDATE, 0, 0, number(64 << 20))
CANCEL = number(8)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    path = tmp_path_factory.mktemp("stalls") / "socket"
    with start_node("--unix", str(path), "--dram", "256M", "--shards", "2", "--tsgrpc", LOOPBACK, "--tsgrpc-stall-ms",
                    str(STALL_MS)) as started:
        started.url = f"node+unix://{path}"
        assert penstock("--url", started.url, "put", "big", "-", stdin=bytes(range(256)) * (BIG // 256)).returncode == 0
        yield started
        settled(started)
        started.stop()


def pins(node: Node) -> int:
    return figures(node)["pinned_bytes"]


def pinned(node: Node) -> None:
    support.wait_until("a value is pinned", lambda: pins(node) > 0)


def released(node: Node) -> None:
    support.wait_until("nothing is pinned", lambda: pins(node) == 0)


def goes_on(peer: Peer, say: Callable[[], bytes], until: Callable[[], object]) -> None:
    """Says something again and again, and takes nothing."""
    def said() -> object:
        peer.send(say())
        return until()
    support.wait_until("the end of what it holds", said)


# ---- answers that are not taken


def test_deadline_passes_while_the_socket_is_full(node: Node) -> None:
    """The data frame that is on its way then is of no call any more: it is not sent, and the node lives."""
    with Peer(node, WIDE) as peer:
        peer.send(read(1, b"big", grpc_timeout="1S"))
        pinned(node)
        released(node)
        assert peer.wait_for(RST_STREAM, 1) == CANCEL
        peer.send(read(3, b"not there"))
        peer.wait_for(HEADERS, 3, END_STREAM)
    answers(node)


def test_slow_reader_lives(node: Node) -> None:
    """One that takes a little all the time gets all of it, however often the time of a stall goes by."""
    with Peer(node, WIDE, receive_bytes=1 << 16) as peer:
        peer.send(read(1, b"big"))
        begin, data, pauses, ended = time.monotonic(), bytearray(), 0, False
        for kind, flags, stream, payload in peer.frames():
            data += payload if kind == DATA else b""
            ended = (kind, stream, flags & END_STREAM) == (HEADERS, 1, END_STREAM)
            if ended:
                break
            if len(data) >> 18 > pauses:
                pauses += 1
                time.sleep(0.1)  # as slow as it is
        assert ended and len(data) > BIG and time.monotonic() - begin > 2 * STALL_MS / 1000
        assert bytes(range(256)) * 4096 in data


@pytest.mark.parametrize("say", [lambda: frame(WINDOW_UPDATE, 0, 0, number(1)), lambda: frame(PING, 0, 0, bytes(8)),
                                 lambda: frame(SETTINGS, 0, 0), lambda: frame(PRIORITY, 0, 999, bytes(5))],
                         ids=["window_updates", "pings", "settings", "priorities"])
def test_talk_pins_nothing(node: Node, say: Callable[[], bytes]) -> None:
    """Who takes nothing holds nothing for long, whatever it sends meanwhile."""
    with Peer(node, WIDE) as peer:
        peer.send(read(1, b"big"))
        pinned(node)
        goes_on(peer, say, lambda: pins(node) == 0)
    answers(node)


def test_window_of_one_byte_pins_nothing(node: Node) -> None:
    """A call whose client lets it have a byte at a time, beside calls that go on."""
    with Peer(node, hello(0)) as peer:
        peer.send(read(1, b"big"))
        pinned(node)
        goes_on(peer, lambda: frame(WINDOW_UPDATE, 0, 1, number(1)), lambda: pins(node) == 0)
        assert peer.wait_for(RST_STREAM, 1) == CANCEL
    answers(node)


def test_answers_that_nobody_takes_are_bounded(node: Node) -> None:
    """Refusals that wait for room in the socket are memory: beyond a bound, who does not take them is shown the door."""
    def refused(first: int) -> bytes:
        """Many calls, in as few bytes as HTTP/2 can."""
        return b"".join(frame(HEADERS, END_HEADERS, stream, b"\x83\x86\x84") for stream in range(first, first + 20_000, 2))

    with Peer(node, receive_bytes=1 << 14) as peer:
        peer.send(b"".join(request(stream, "Write") for stream in range(1, 513, 2)))  # as many as there may be
        peer.wait_for(SETTINGS, 0)
        before = resident_bytes(node)
        assert not all(peer.send(refused(first)) for first in range(513, 2_000_000, 20_000))
        assert resident_bytes(node) < before + (16 << 20)
    answers(node)


# ---- requests that do not end


def test_value_that_never_ends(node: Node) -> None:
    """A reservation of the store's is not for who sends a byte now and then."""
    with Peer(node, WIDE) as peer:
        peer.send(request(1, "Write") + frame(DATA, 0, 1, message(field(1, b"w") + b"\x1a\xff\xff\xff\x03", 8_388_617)))
        peer.wait_for(WINDOW_UPDATE, 1)
        for _ in range(100):
            peer.send(frame(DATA, 0, 1, bytes(16_000)))
        support.wait_until("a reservation", lambda: figures(node)["reservations"] == 1)
        goes_on(peer, lambda: frame(DATA, 0, 1, b"."), lambda: figures(node)["reservations"] == 0)
        assert peer.wait_for(RST_STREAM, 1) == CANCEL
    answers(node)


def test_turns_go_on_past_who_stalls(node: Node) -> None:
    """Those that write much have the memory for it in turns: who has it and sends nothing does not keep it from others."""
    begins = message(field(1, b"w") + b"\x1a\xff\xff\xff\x03", 8_388_617)
    with Peer(node) as hoarder, Peer(node, WIDE) as honest:
        for stream in range(1, 2 * 64, 2):
            hoarder.send(request(stream, "Write") + frame(DATA, 0, stream, begins))
        hoarder.wait_for(WINDOW_UPDATE, 1)
        part = field(1, b"honest") + field(3, bytes(200_000))
        honest.send(request(1, "Write") + frame(DATA, 0, 1, message(part)[:16_000]))
        honest.wait_for(WINDOW_UPDATE, 1)
        rest = message(part)[16_000:]
        honest.send(b"".join(frame(DATA, 0, 1, rest[at:at + 16_000]) for at in range(0, len(rest), 16_000)))
        honest.send(frame(DATA, END_STREAM, 1))
        honest.wait_for(DATA, 1)
    assert penstock("--url", node.url, "get", "honest").stdout == bytes(200_000)
    answers(node)


def test_key_again_behind_the_value(node: Node) -> None:
    """The reservation was reserved by the first key: another one neither moves it to another shard nor loses it."""
    for other in range(8):
        with Peer(node) as peer:
            data = message(field(1, b"first") + field(3, bytes(3 << 20)) + field(1, b"other %d" % other))
            peer.send(request(1, "Write"))
            at, window = 0, 65_535
            for kind, _, stream, payload in peer.frames():
                if (kind, stream) == (HEADERS, 1):
                    break
                window += int.from_bytes(payload, "big") if (kind, stream) == (WINDOW_UPDATE, 1) else 0
                while window and at < len(data):
                    part = data[at:at + min(window, 16_000)]
                    peer.send(frame(DATA, END_STREAM if at + len(part) == len(data) else 0, 1, part))
                    at, window = at + len(part), window - len(part)
    settled(node)
    assert not {b"first", *(b"other %d" % other for other in range(8))} & set(penstock("--url", node.url, "ls").stdout.splitlines())


def test_hello_a_byte_at_a_time(node: Node) -> None:
    """Settings, and a call's headers, are to be there within their time, not to go on arriving."""
    def says_little(peer: Peer) -> None:
        for byte in PREFACE[:-1] * 10:
            if not peer.send(bytes([byte]) if len(peer.left) == 0 else b""):
                return
            time.sleep(0.2)

    with Peer(node, b"") as dripping, Peer(node) as headers:
        talker = threading.Thread(target=says_little, args=(dripping,))
        talker.start()
        headers.send(request(1, "Read", 0))
        headers.wait_for(RST_STREAM, 1)
        headers.send(frame(CONTINUATION, END_HEADERS, 1, header("x", "y")) + read(3, b"not there"))
        headers.wait_for(HEADERS, 3, END_STREAM)
        dripping.ends()
        talker.join()
    answers(node)


# ---- room for others


def test_none_has_all_calls(node: Node) -> None:
    """However many calls others keep open, there is room for one more client's."""
    hoarders = [Peer(node) for _ in range(12)]
    for peer in hoarders:
        peer.send(b"".join(request(stream, "Write") for stream in range(1, 2 * 250, 2)))
    for peer in hoarders:
        peer.send(frame(PING, 0, 0, bytes(8)))
        peer.wait_for(PING, 0)
    answers(node)
    for peer in hoarders:
        peer.close()


def test_pings_keep_no_place(tmp_path: pathlib.Path) -> None:
    """In a full house those that make no calls give way, however much they talk."""
    with start_node("--unix", f"{tmp_path}/socket", "--dram", "16M", "--tsgrpc", LOOPBACK, "--tsgrpc-connections", "2") as node:
        talkers = [Peer(node) for _ in range(2)]

        def served() -> bool:
            for peer in talkers:
                peer.send(frame(PING, 0, 0, bytes(8)))
            with Peer(node) as peer:
                peer.send(read(1, b"not there"))
                return any(kind == HEADERS for kind, *_ in peer.frames())

        support.wait_until("room made", served)
        for peer in talkers:
            peer.close()
        node.stop()


def test_node_that_was_stopped_blames_nobody(node: Node) -> None:
    """The time in which the node itself was stopped counts against no client."""
    with Peer(node, WIDE, receive_bytes=1 << 16) as peer:
        peer.send(read(1, b"big"))
        pinned(node)
        with node.stopped():
            time.sleep(2 * STALL_MS / 1000)
        status = next((kind, flags) for kind, flags, stream, _ in peer.frames()
                      if stream == 1 and (kind == RST_STREAM or flags & END_STREAM))
        assert status == (HEADERS, END_HEADERS | END_STREAM)
    answers(node)
