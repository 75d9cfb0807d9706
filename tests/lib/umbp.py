# SPDX-License-Identifier: Apache-2.0
"""Clients of a master with --umbp, which say what mori's clients say. Fields have the numbers of mori's umbp.proto."""
from __future__ import annotations

import contextlib
import json
import pathlib
import re
import struct
import subprocess
from collections.abc import Iterable, Iterator, Sequence

import http2
import support

CLIENT = pathlib.Path(__file__).with_name("umbp_client.py")
CALL_S = 60
HBM, DRAM, SSD = 1, 2, 3
UNAVAILABLE, ROUTED, EXISTS = 0, 1, 2
GIB = 1 << 30


def number(tag: int, value: int) -> bytes:
    """A number as field `tag`; nothing for 0, as protobuf leaves it out."""
    return http2.varint(tag << 3) + http2.varint(value) if value else b""


def text(tag: int, value: str | bytes) -> bytes:
    """A string, bytes or a message as field `tag`."""
    data = value.encode() if isinstance(value, str) else value
    return http2.varint(tag << 3 | 2) + http2.varint(len(data)) + data


def double(tag: int, value: float) -> bytes:
    return http2.varint(tag << 3 | 1) + struct.pack("<d", value)


def texts(tag: int, values: Iterable[str | bytes]) -> bytes:
    return b"".join(text(tag, value) for value in values)


def packed(tag: int, values: Iterable[int]) -> bytes:
    return text(tag, b"".join(map(http2.varint, values)))


def parsed(message: bytes) -> dict[int, list]:
    """Fields of a message, by their numbers."""
    found: dict[int, list] = {}
    for tag, value in http2.fields(message):
        found.setdefault(tag, []).append(value)
    return found


def numbers(data: bytes) -> list[int]:
    """Those of a packed field."""
    found, value, shift = [], 0, 0
    for byte in data:
        value, shift = value | (byte & 0x7f) << shift, shift + 7
        if byte < 0x80:
            found.append(value)
            value = shift = 0
    return found


def tiers(tag: int, sizes: dict[int, tuple[int, int]]) -> bytes:
    """Of each tier what there is, and what is free."""
    return texts(tag, (number(1, tier) + number(2, total) + number(3, free) for tier, (total, free) in sizes.items()))


def added(key: str, tier: int, size: int) -> bytes:
    """An event."""
    return text(2, key) + number(3, tier) + number(4, size)


def removed(key: str, tier: int) -> bytes:
    return number(1, 1) + text(2, key) + number(3, tier)


def bundle(sequence: int, events: Sequence[bytes]) -> bytes:
    return number(1, sequence) + texts(2, events)


class Failed(Exception):
    """A call that ended with a status other than OK."""


class Mori:
    """A node of mori's: its client, by gRPC's own library."""

    def __init__(self, python: str, address: str, name: str, room: dict[int, tuple[int, int]] | None = None) -> None:
        self.name = name
        self.room = room if room is not None else {DRAM: (GIB, GIB)}
        self._process = subprocess.Popen([python, "-B", CLIENT, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def call(self, method: str, request: bytes) -> dict[int, list]:
        """The answer's fields; raises Failed."""
        self._process.stdin.write(json.dumps([method, request.hex(), CALL_S]) + "\n")
        self._process.stdin.flush()
        status, answer = json.loads(self._process.stdout.readline())
        if status != "OK":
            raise Failed(status, answer)
        return parsed(bytes.fromhex(answer))

    def register(self, peer: str | None = None, tags: Sequence[str] = ()) -> dict[int, list]:
        return self.call("RegisterClient", text(1, self.name) + text(2, "10.0.0.1:1") + tiers(3, self.room) +
                         text(4, f"{self.name}:9" if peer is None else peer) + text(5, b"\0engine\xff") + texts(13, tags))

    def unregister(self) -> None:
        self.call("UnregisterClient", text(1, self.name))

    def beat(self, *bundles: bytes, full: bool = False, baseline: int = 0, more: bytes = b"") -> tuple[int, int, int]:
        """Status, the last number that was taken, and whether all is to be told again."""
        answer = self.call("Heartbeat", text(1, self.name) + texts(2, bundles) + number(3, full) + tiers(4, self.room) +
                           number(6, baseline) + more)
        return tuple(answer.get(tag, [0])[0] for tag in (1, 2, 3))

    def get(self, key: str, excluded: Sequence[str] = ()) -> tuple[str, int, int, str] | None:
        """Node, tier, size and address."""
        found = self.call("RouteGet", text(1, key) + text(2, self.name) + texts(3, excluded))
        return (found[2][0].decode(), found[3][0], found[4][0], found[5][0].decode()) if found.get(1) else None

    def put(self, key: str, size: int, excluded: Sequence[str] = ()) -> tuple[int, str, int, str]:
        """Outcome; node, tier and address."""
        return self._outcome(self.call("RoutePut", text(1, key) + text(2, self.name) + number(3, size) + texts(4, excluded)))

    @staticmethod
    def _outcome(answer: dict[int, list]) -> tuple[int, str, int, str]:
        return (answer.get(1, [0])[0], answer.get(2, [b""])[0].decode(), answer.get(3, [0])[0], answer.get(4, [b""])[0].decode())

    def puts(self, keys: Sequence[str], sizes: Sequence[int], excluded: Sequence[str] = (), pack: bool = True) -> list[tuple]:
        size_bytes = packed(3, sizes) if pack else b"".join(http2.varint(3 << 3) + http2.varint(size) for size in sizes)
        answer = self.call("BatchRoutePut", text(1, self.name) + texts(2, keys) + size_bytes + texts(4, excluded))
        return [self._outcome(parsed(entry)) for entry in answer.get(1, [])]

    def gets(self, keys: Sequence[str], excluded: Sequence[str] = ()) -> list[tuple[str, int, int, str] | None]:
        answer = self.call("BatchRouteGet", text(1, self.name) + texts(2, keys) + texts(3, excluded))
        nodes = [tuple(value[0].decode() for value in parsed(node).values()) for node in answer.get(1, [])]
        assert len(set(nodes)) == len(nodes)
        columns = [numbers(answer[tag][0]) for tag in (2, 3, 4)]
        return [(nodes[ref - 1][0], tier, size, nodes[ref - 1][1]) if ref else None for ref, tier, size in zip(*columns, strict=True)]

    def has(self, keys: Sequence[str]) -> list[bool]:
        return [bool(value) for value in numbers(self.call("BatchLookup", text(1, self.name) + texts(2, keys)).get(1, [b""])[0])]

    def report(self, hashes: Sequence[str], tier: int) -> None:
        self.call("ReportExternalKvBlocks", text(1, self.name) + texts(2, hashes) + number(3, tier))

    def revoke(self, hashes: Sequence[str], tier: int) -> None:
        self.call("RevokeExternalKvBlocks", text(1, self.name) + texts(2, hashes) + number(3, tier))

    def match(self, hashes: Sequence[str], hit: bool = False) -> dict[str, tuple[str, dict[int, list[str]]]]:
        """Address and hashes by tier of each node that has any."""
        found = {}
        for match in self.call("MatchExternalKv", texts(1, hashes) + number(2, hit)).get(1, []):
            fields = parsed(match)
            by_tier = [parsed(tier) for tier in fields[3]]
            found[fields[1][0].decode()] = (fields[2][0].decode(), {tier.get(1, [0])[0]: [name.decode() for name in tier[2]]
                                                                    for tier in by_tier})
        return found

    def hits(self, hashes: Sequence[str]) -> dict[str, int]:
        entries = map(parsed, self.call("GetExternalKvHitCounts", texts(1, hashes)).get(1, []))
        return {entry[1][0].decode(): entry[2][0] for entry in entries}

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=CALL_S)
        self._process.stdout.close()

    def __enter__(self) -> Mori:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def peer(python: str) -> Iterator[subprocess.Popen[str]]:
    """A node's own service. Its output is its port, and then what it is told to evict."""
    process = subprocess.Popen([python, "-B", CLIENT.with_name("umbp_peer.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.communicate(timeout=CALL_S)


def start_master(folder: pathlib.Path, *more: str, address: str = "127.0.0.1:0") -> support.Node:
    """A master with --umbp; its pool map lasts in @folder."""
    node = support.start_node("--role", "master", "--unix", f"{folder}/master", "--pool-map", f"{folder}/map", "--umbp", address, *more)
    node.url = f"node+unix://{folder}/master"
    return node


def address_of(node: support.Node) -> str:
    node.wait_for("umbp: listening on ")
    return re.search(r"umbp: listening on (\S+)", node.log())[1]
