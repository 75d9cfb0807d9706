"""penstockd --tsgrpc: TensorStore's own wheel writes and reads through it, and bad clients do it no harm."""
from __future__ import annotations

import json
import pathlib
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import time
from typing import Iterator

import pytest
import support
from support import Node, fails_to_start, penstock, start_node

USAGE, FAILURE = 2, 1
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


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    path = tmp_path_factory.mktemp("tsgrpc") / "socket"
    with start_node("--unix", str(path), "--dram", "1G", "--shards", "2", "--tsgrpc", LOOPBACK) as started:
        started.url = f"node+unix://{path}"
        yield started
        settled(started)
        started.stop()


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
    text = pathlib.Path(f"/proc/{node.pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", text)[1]) << 10


def settled(node: Node) -> None:
    """Nothing is left of calls that have ended, however they did."""
    support.wait_until("no slots, no views", lambda: {figures(node)[name] for name in ("slots", "pinned_bytes")} == {0})


# ---- the wheel


@pytest.mark.parametrize("what", ["values", "conditions", "listing 3000", "arrays", "transactions", "large 256",
                                  "statuses", "give_up"])
def test_wheel(python: str, node: Node, what: str) -> None:
    succeeds(client(python, node, *what.split()))
    settled(node)


def test_wheels_at_once(python: str, node: Node) -> None:
    clients = [client(python, node, "count", "50") for _ in range(3)]
    clients += [client(python, node, "overwrite", "20") for _ in range(2)]
    for process in clients:
        succeeds(process)
    assert penstock("--url", node.url, "get", "number").stdout == b"150"


def test_wheel_and_command_line_see_the_same(python: str, node: Node) -> None:
    assert penstock("--url", node.url, "rm", "number").returncode in (0, 1)
    succeeds(client(python, node, "count", "1"))
    assert penstock("--url", node.url, "get", "number").stdout == b"1"
    assert penstock("--url", node.url, "put", "number", "-", stdin=b"41").returncode == 0
    succeeds(client(python, node, "count", "1"))
    assert penstock("--url", node.url, "get", "number").stdout == b"42"


def test_full_store(python: str, tmp_path: pathlib.Path) -> None:
    with start_node("--unix", f"{tmp_path}/socket", "--dram", "64M", "--tsgrpc", LOOPBACK) as node:
        node.url = f"node+unix://{tmp_path}/socket"
        succeeds(client(python, node, "full"))
        settled(node)
        assert figures(node)["keys"] == 0
        node.stop()


def test_killed_in_the_middle_of_reads(python: str, tmp_path: pathlib.Path) -> None:
    with start_node("--unix", f"{tmp_path}/socket", "--tsgrpc", LOOPBACK) as node:
        process = client(python, node, "read_until_killed")
        assert process.stdout.readline() == "reading\n"
        node.process.send_signal(signal.SIGKILL)
        succeeds(process)


def test_next_node_at_the_same_address(python: str, tmp_path: pathlib.Path) -> None:
    with start_node("--unix", f"{tmp_path}/socket", "--tsgrpc", LOOPBACK) as node:
        process = client(python, node, "read_on")
        assert process.stdout.readline() == "reading\n"
        node.process.send_signal(signal.SIGKILL)
        node.wait()
        with start_node("--unix", f"{tmp_path}/socket", "--tsgrpc", address_of(node)):
            succeeds(process)


def test_stopped_in_the_middle_of_reads(python: str, tmp_path: pathlib.Path) -> None:
    """SIGTERM with calls underway ends them, and the node as ever."""
    with start_node("--unix", f"{tmp_path}/socket", "--tsgrpc", LOOPBACK) as node:
        process = client(python, node, "read_until_killed")
        assert process.stdout.readline() == "reading\n"
        node.stop()
        succeeds(process)


def test_behind_a_secret(python: str, tmp_path: pathlib.Path) -> None:
    secret = support.secret_file(tmp_path / "secret")
    with start_node("--unix", f"{tmp_path}/socket", "--secret-file", str(secret), "--tsgrpc", LOOPBACK) as node:
        succeeds(client(python, node, "values"))
        node.stop()


# ---- where it listens


def test_socket_of_its_own(tmp_path: pathlib.Path) -> None:
    with start_node("--listen", "127.0.0.1:0", "--folder", "/dev/shm", "--tsgrpc", "localhost:0") as node:
        port = address_of(node).rsplit(":", 1)[1]
        path = pathlib.Path(f"/dev/shm/penstock-tsgrpc:{port}.sock")
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


# ---- HTTP/2 by hand

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SERVICE = "/tensorstore_grpc.kvstore.KvStoreService/"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack("!I", len(payload))[1:] + bytes([kind, flags]) + struct.pack("!I", stream) + payload


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
    fields = {":method": "POST", ":scheme": "http", ":path": SERVICE + method, ":authority": "x",
              "content-type": "application/grpc", "te": "trailers"} | {k.replace("_", "-"): v for k, v in more.items()}
    return frame(HEADERS, flags, stream, b"".join(header(*field) for field in fields.items()))


def message(body: bytes, length: int | None = None) -> bytes:
    return b"\0" + struct.pack("!I", len(body) if length is None else length) + body


class Peer:
    """A client that says what it likes."""

    def __init__(self, node: Node, hello: bytes = PREFACE + frame(SETTINGS, 0, 0)) -> None:
        host, port = address_of(node).rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), support.WAIT_S)
        self.left = b""
        self.send(hello)

    def send(self, data: bytes) -> bool:
        """False: the other side has closed."""
        try:
            self.socket.sendall(data)
        except ConnectionError:
            return False
        return True

    def frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """What comes, until the other side closes."""
        while True:
            while len(self.left) >= 9 and len(self.left) >= 9 + int.from_bytes(self.left[:3], "big"):
                size = int.from_bytes(self.left[:3], "big")
                kind, flags, stream = struct.unpack("!BBI", self.left[3:9])
                payload, self.left = self.left[9:9 + size], self.left[9 + size:]
                yield kind, flags, stream, payload
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionError:
                return
            if not data:
                return
            self.left += data

    def wait_for(self, kind: int, stream: int, flags: int = 0) -> bytes:
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

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def answers(node: Node) -> None:
    """The door does what it should, for a client that behaves."""
    with Peer(node) as peer:
        peer.send(request(1, "Read") + frame(DATA, END_STREAM, 1, message(b"\x0a\x01k")))
        peer.wait_for(HEADERS, 1)
        assert b"\x18\x01" in peer.wait_for(DATA, 1)  # missing
        peer.wait_for(HEADERS, 1, END_STREAM)


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


@pytest.mark.parametrize("abuse", ABUSES, ids=lambda abuse: abuse.__name__)
def test_abuse(node: Node, abuse) -> None:
    abuse(node)
    answers(node)
    settled(node)


def test_abuse_leaves_nothing_behind(node: Node) -> None:
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
