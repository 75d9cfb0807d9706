# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 by hand: a client of penstockd --tsgrpc that may say anything, right or wrong."""

import socket
import struct
from collections.abc import Iterator

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
FRAME_HEAD_BYTES = 9
WINDOW_SETTING = 4
FIRST_WINDOW = 65_535  # HTTP/2's own
WIDE_BYTES = 64 << 20
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SERVICE = "/tensorstore_grpc.kvstore.KvStoreService/"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return struct.pack("!I", len(payload))[1:] + bytes([kind, flags]) + struct.pack("!I", stream) + payload


def number(value: int) -> bytes:
    """The payload of WINDOW_UPDATE and RST_STREAM."""
    return struct.pack("!I", value)


HELLO = PREFACE + frame(SETTINGS, 0, 0)


def hello(window: int) -> bytes:
    """Preface and settings of a client that lets each call's answer have `window` bytes."""
    return PREFACE + frame(SETTINGS, 0, 0, struct.pack("!HI", WINDOW_SETTING, window))


def header(name: str, value: str) -> bytes:
    """A literal header field without indexing; up to 16 KB."""
    def length(size: int) -> bytes:
        if size < 127:
            return bytes([size])
        out, size = b"\x7f", size - 127
        while size > 127:
            out, size = out + bytes([size & 127 | 128]), size >> 7
        return out + bytes([size])
    return b"\0" + length(len(name)) + name.encode() + length(len(value)) + value.encode()


def request(stream: int, method: str, flags: int = END_HEADERS, **more: str) -> bytes:
    """The headers of a call."""
    fields = {":method": "POST", ":scheme": "http", ":path": SERVICE + method, ":authority": "x",
              "content-type": "application/grpc", "te": "trailers"}
    fields |= {name.replace("_", "-"): value for name, value in more.items()}
    return frame(HEADERS, flags, stream, b"".join(header(*field) for field in fields.items()))


def message(body: bytes, length: int | None = None) -> bytes:
    """A message of gRPC's, or one that lies about its length."""
    return b"\0" + struct.pack("!I", len(body) if length is None else length) + body


def varint(value: int) -> bytes:
    """A number of protobuf's."""
    out = b""
    while value > 0x7f:
        out, value = out + bytes([value & 0x7f | 0x80]), value >> 7
    return out + bytes([value])


def field(tag: int, data: bytes) -> bytes:
    """Bytes as field `tag` of a protobuf message."""
    return bytes([tag << 3 | 2]) + varint(len(data)) + data


def read(stream: int, key: bytes, **more: str) -> bytes:
    """A whole call that reads a value."""
    return request(stream, "Read", **more) + frame(DATA, END_STREAM, stream, message(field(1, key)))


class Peer:
    """A client that says what it likes.

    Parameters
    ----------
    host, port
        Of the gateway.
    hello_bytes : bytes
        What it says first.
    wait_s : float
        How long it waits for bytes.
    receive_bytes : int
        Size of its socket's receive buffer; 0: the kernel's choice.
    """

    def __init__(self, host: str, port: int, hello_bytes: bytes = HELLO, wait_s: float = 30,
                 receive_bytes: int = 0) -> None:
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(wait_s)
        self.socket.connect((host, port))
        self.left = b""
        self.send(hello_bytes)

    def send(self, data: bytes) -> bool:
        """False: the other side has closed."""
        try:
            self.socket.sendall(data)
        except ConnectionError:
            return False
        return True

    def received(self) -> Iterator[tuple[int, int, int, bytes]]:
        """The frames that are here already: kind, flags, stream, payload."""
        while len(self.left) >= FRAME_HEAD_BYTES:
            end = FRAME_HEAD_BYTES + int.from_bytes(self.left[:3], "big")
            if len(self.left) < end:
                return
            kind, flags, stream = struct.unpack("!BBI", self.left[3:FRAME_HEAD_BYTES])
            payload, self.left = self.left[FRAME_HEAD_BYTES:end], self.left[end:]
            yield kind, flags, stream, payload

    def frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """What comes, until the other side closes."""
        while True:
            yield from self.received()
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionError:
                return
            if not data:
                return
            self.left += data

    def wait_for(self, kind: int, stream: int, flags: int = 0) -> bytes:
        """The payload of the first such frame."""
        for frame_kind, frame_flags, frame_stream, payload in self.frames():
            if (frame_kind, frame_stream) == (kind, stream) and frame_flags & flags == flags:
                return payload
        raise AssertionError(f"closed before frame {kind} of stream {stream}")

    def ends(self) -> None:
        """The other side closes."""
        for _ in self.frames():
            pass

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Failed(Exception):
    """A call that came to nothing: refused, reset, or ended with a status; a write may have been applied."""


class Caller:
    """A client that behaves: one call at a time, and connects again when it has to."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._peer: Peer | None = None
        self._stream = 0

    def _connect(self) -> Peer:
        if self._peer is None:
            self._peer = Peer(*self._address, hello(WIDE_BYTES) + frame(WINDOW_UPDATE, 0, 0, number(WIDE_BYTES)))
            self._stream = -1
        self._stream += 2
        return self._peer

    def close(self) -> None:
        if self._peer:
            self._peer.close()
        self._peer = None

    def _send(self, peer: Peer, data: bytes, frames: Iterator[tuple[int, int, int, bytes]]) -> None:
        """The request, as fast as the windows of call and connection allow."""
        windows, at = {self._stream: FIRST_WINDOW, 0: FIRST_WINDOW}, 0
        while at < len(data):
            count = min(len(data) - at, 16_000, *windows.values())
            if count > 0:
                end = END_STREAM if at + count == len(data) else 0
                if not peer.send(frame(DATA, end, self._stream, data[at:at + count])):
                    raise Failed("closed")
                windows, at = {name: left - count for name, left in windows.items()}, at + count
                continue
            kind, flags, stream, payload = next(frames, (GOAWAY, 0, 0, b""))
            if kind == WINDOW_UPDATE and stream in windows:
                windows[stream] += int.from_bytes(payload, "big")
            elif kind == GOAWAY or (stream == self._stream and kind in (RST_STREAM, HEADERS)):
                raise Failed(f"frame {kind} before the request's end")

    def _answer(self, peer: Peer, frames: Iterator[tuple[int, int, int, bytes]]) -> bytes:
        body = []
        for kind, flags, stream, payload in frames:
            if kind == DATA and stream == self._stream:
                body.append(payload)
                if payload:
                    peer.send(frame(WINDOW_UPDATE, 0, 0, number(len(payload))))
            elif kind == GOAWAY or (kind, stream) == (RST_STREAM, self._stream):
                break
            elif kind == HEADERS and stream == self._stream and flags & END_STREAM:
                if not body:
                    raise Failed("a status alone")
                return b"".join(body)
        raise Failed("reset or closed")

    def call(self, method: str, request_bytes: bytes) -> bytes:
        """The messages of the answer, of which there is one at least; raises Failed."""
        try:
            peer = self._connect()
            frames = peer.frames()
            if not peer.send(request(self._stream, method)):
                raise Failed("closed")
            self._send(peer, request_bytes, frames)
            return self._answer(peer, frames)
        except (Failed, OSError) as error:
            self.close()
            raise Failed(str(error)) from error


def messages(answer: bytes) -> Iterator[bytes]:
    """The gRPC messages of an answer; ValueError when it ends within one."""
    at = 0
    while at < len(answer):
        count = int.from_bytes(answer[at + 1:at + 5], "big")
        if at + 5 + count > len(answer):
            raise ValueError("an answer that ends within a message")
        yield answer[at + 5:at + 5 + count]
        at += 5 + count


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a protobuf message."""
    def take() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value, shift, at = value | (data[at] & 0x7f) << shift, shift + 7, at + 1
            if not data[at - 1] & 0x80:
                return value

    at = 0
    while at < len(data):
        tag = take()
        value: int | bytes = take()
        if tag & 7 == 2:
            at, value = at + value, data[at:at + value]
        yield tag >> 3, value


def value_of(answer: bytes) -> bytes | None:
    """The value that a Read's answer has; None: there is none."""
    parts, missing = [], False
    for one in messages(answer):
        for tag, value in fields(one):
            missing = missing or (tag, value) == (3, 1)
            if tag == 4:
                parts.append(value)
    return None if missing else b"".join(parts)
