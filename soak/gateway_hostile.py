#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gateway_hostile.py HOST PORT SEED FRAMES MS: says FRAMES hostile frames to penstockd --tsgrpc, or as many as fit into MS.

It floods, lies, stalls and never ends: in every phase, on many connections. What it writes and deletes begins with
"hostile/". Its figures are the last line, as JSON.
"""

import json
import random
import struct
import sys
import time
from collections.abc import Callable

from http2 import (CONTINUATION, DATA, END_HEADERS, END_STREAM, HELLO, PING, PREFACE, PRIORITY, RST_STREAM, SETTINGS,
                   WIDE_BYTES, WINDOW_UPDATE, Caller, Failed, Peer, field, frame, header, hello, message, number, read,
                   request)

HELD_MAX = 150
CALL_S = 0.3  # how long it waits with what it says
BIG = b"hostile/big"
BIG_BYTES = 8 << 20
WIDE = hello(WIDE_BYTES) + frame(WINDOW_UPDATE, 0, 0, number(WIDE_BYTES))
TIMEOUTS = ("100m", "1S", "5S", "99999999H")


class Held:
    """A connection that is kept, and what it says whenever its turn comes."""

    def __init__(self, peer: Peer, nudge: Callable[[], bytes], takes: int) -> None:
        self.peer = peer
        self.nudge = nudge
        self.takes = takes  # bytes at a time


class Hostile:
    """One who means harm."""

    def __init__(self, host: str, port: int, seed: int) -> None:
        self.address = host, port
        self.dice = random.Random(seed)
        self.held: list[Held] = []
        self.frames = 0
        self.counts: dict[str, int] = {}

    def peer(self, said: bytes = HELLO) -> Peer:
        return Peer(*self.address, said, CALL_S, self.dice.choice((0, 1 << 14)))

    def say(self, peer: Peer, data: bytes, frames: int = 1) -> None:
        self.frames += frames
        try:
            peer.send(data)
        except TimeoutError:
            pass  # it does not listen so fast

    def hold(self, peer: Peer, nudge: Callable[[], bytes], takes: int = 0) -> None:
        if len(self.held) >= HELD_MAX:
            self.held.pop(self.dice.randrange(HELD_MAX)).peer.close()
        peer.socket.setblocking(False)
        self.held.append(Held(peer, nudge, takes))

    def nudge(self) -> None:
        """A few of those that are held say and take a little."""
        for one in self.dice.sample(self.held, min(10, len(self.held))):
            try:
                self.frames += 1
                one.peer.socket.send(one.nudge())
                if one.takes and not one.peer.socket.recv(one.takes):
                    raise ConnectionError
            except BlockingIOError:
                pass
            except OSError:
                self.held.remove(one)
                one.peer.close()

    # ---- what it does; each says frames of its own

    def noise(self) -> None:
        with self.peer(b"" if self.dice.random() < 0.3 else HELLO) as peer:
            self.say(peer, self.dice.randbytes(self.dice.randrange(1, 5000)))

    def strange_frames(self) -> None:
        with self.peer() as peer:
            data = b"".join(frame(self.dice.randrange(12), self.dice.randrange(256), self.dice.randrange(8),
                                  self.dice.randbytes(self.dice.randrange(40))) for _ in range(20))
            self.say(peer, read(1, BIG) + data, 22)

    def flood(self) -> None:
        zeros = bytes(8)
        kinds = (frame(PING, 0, 0, zeros), frame(SETTINGS, 0, 0), frame(PRIORITY, 0, 2001, zeros[:5]),
                 frame(WINDOW_UPDATE, 0, 0, number(1)), frame(DATA, 0, 1), frame(SETTINGS, 0, 0, zeros[:6] * 30),
                 frame(CONTINUATION, 0, 1), frame(RST_STREAM, 0, 1, number(8)))
        with self.peer() as peer:
            count = self.dice.choice((100, 2000))
            self.say(peer, request(1, "Write") + self.dice.choice(kinds) * count, count + 1)

    def rapid_resets(self) -> None:
        with self.peer(WIDE) as peer:
            count = self.dice.choice((50, 900))
            self.say(peer, b"".join(read(stream, BIG) + frame(RST_STREAM, 0, stream, number(8))
                                    for stream in range(1, 2 * count, 2)), 3 * count)

    def refusals(self) -> None:
        with self.peer() as peer:
            self.say(peer, b"".join(request(stream, "Write") for stream in range(1, 2 * 1500, 2)), 1500)

    def large_headers(self) -> None:
        block = b"".join(header(f"x-{at}", "y" * self.dice.randrange(3000)) for at in range(20))
        pieces = [block[at:at + 8000] for at in range(0, len(block), 8000)]
        with self.peer() as peer:
            self.say(peer, request(1, "Read", 0) + b"".join(frame(CONTINUATION, 0, 1, piece) for piece in pieces)
                     + frame(CONTINUATION, END_HEADERS, 1) + frame(DATA, END_STREAM, 1, b"x"), len(pieces) + 3)

    def lies(self) -> None:
        bodies = (message(b"\x0a\x01k", 1000), message(b"\x0a\xff\xff\xff\xff\x0fk"), b"\0\0", message(b"", 0x7fffffff),
                  message(field(1, b"hostile/k") + field(3, b"v") + field(1, b"hostile/l")), message(b"\x0a\x01k") * 2,
                  b"\1" + message(b"")[1:], message(field(1, b"k" * 5000)), message(field(2, b"\x0a")))
        with self.peer() as peer:
            said = b"".join(request(stream, self.dice.choice(("Read", "Write", "Delete", "List", "Compact")))
                            + frame(DATA, self.dice.choice((0, END_STREAM)), stream, self.dice.choice(bodies))
                            for stream in range(1, 41, 2))
            self.say(peer, said, 40)

    def no_hello(self) -> None:
        drip = iter(PREFACE * 100)
        self.frames += 1
        self.hold(self.peer(b""), lambda: bytes([next(drip)]))

    def no_end_of_headers(self) -> None:
        peer = self.peer()
        self.say(peer, request(1, "Read", 0))
        self.hold(peer, lambda: frame(CONTINUATION, 0, 1, header("x", "y")))

    def no_end_of_body(self) -> None:
        peer = self.peer()
        begins = message(field(1, b"hostile/w") + b"\x1a\xff\xff\xff\x03", 8_388_621)
        for stream in range(1, 2 * self.dice.choice((1, 40)), 2):
            self.say(peer, request(stream, "Write") + frame(DATA, 0, stream, begins + bytes(self.dice.choice((0, 9_000)))), 2)
        self.hold(peer, lambda: frame(DATA, 0, 1, b"."), 100)

    def takes_nothing(self) -> None:
        """Reads and lists of which it takes little or nothing, while it talks."""
        peer = self.peer(self.dice.choice((WIDE, hello(0), HELLO)))
        for stream in range(1, 2 * self.dice.choice((1, 3, 20)), 2):
            more = {"grpc_timeout": self.dice.choice(TIMEOUTS)}
            self.say(peer, read(stream, BIG, **more), 2)
            self.say(peer, request(stream + 100, "List", **more) + frame(DATA, END_STREAM, stream + 100, message(b"")), 2)
        talk = self.dice.choice((frame(WINDOW_UPDATE, 0, 0, number(1)), frame(WINDOW_UPDATE, 0, 1, number(1)),
                                 frame(PING, 0, 0, bytes(8)), b""))
        self.hold(peer, lambda: talk, self.dice.choice((0, 1, 100, 1 << 20)))

    def takes_late(self) -> None:
        """Stalls past the call's deadline, and then takes all."""
        peer = self.peer(WIDE)
        self.say(peer, read(1, BIG, grpc_timeout="100m"), 2)
        self.hold(peer, lambda: b"", self.dice.choice((1, 1 << 20)))

    def gives_up(self) -> None:
        with self.peer(WIDE) as peer:
            data = message(field(1, b"hostile/given up") + field(3, bytes(60_000)))
            self.say(peer, request(1, "Write") + frame(DATA, 0, 1, data[:16_000]) + frame(DATA, 0, 1, data[16_000:32_000]), 3)
            if self.dice.random() < 0.5:
                peer.socket.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER: a reset

    def deletes(self) -> None:
        with self.peer() as peer:
            ranges = field(2, field(1, b"hostile/a") + field(2, b"hostile/b"))
            self.say(peer, b"".join(request(stream, "Delete") + frame(DATA, END_STREAM, stream, message(ranges))
                                    for stream in range(1, 21, 2)), 20)

    def acts(self) -> list[Callable[[], None]]:
        return [self.noise, self.strange_frames, self.flood, self.rapid_resets, self.refusals, self.large_headers, self.lies,
                self.no_hello, self.no_end_of_headers, self.no_end_of_body, self.takes_nothing, self.takes_late,
                self.gives_up, self.deletes]

    def run(self, frames: int, seconds: float) -> None:
        end, acts = time.monotonic() + seconds, self.acts()
        while self.frames < frames and time.monotonic() < end:
            act = self.dice.choice(acts)
            try:
                act()
                self.nudge()
                self.counts[act.__name__] = self.counts.get(act.__name__, 0) + 1
            except OSError:  # no room, or shown the door
                self.counts["refused"] = self.counts.get("refused", 0) + 1
                time.sleep(0.01)
        for one in self.held:
            one.peer.close()


def main() -> int:
    host, port, seed, frames, ms = sys.argv[1:]
    hostile = Hostile(host, int(port), int(seed))
    owner = Caller(host, int(port))
    while True:
        try:
            parts = [message(field(3, bytes(1 << 20)))] * (BIG_BYTES >> 20)
            owner.call("Write", message(field(1, BIG)) + b"".join(parts))
            break
        except Failed:
            time.sleep(0.1)
    owner.close()
    hostile.run(int(frames), int(ms) / 1000)
    print(json.dumps(hostile.counts | {"frames": hostile.frames}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
