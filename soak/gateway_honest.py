#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gateway_honest.py HOST PORT SEED MS PREFIX PLANT: an honest client of the soak hostile_gateway.

Writes, reads, lists and deletes values of its own, and knows what each has to be. Its figures are the last line, as JSON.
"""

import json
import random
import sys
import time
from collections.abc import Callable

from http2 import Caller, Failed, fields, field, message, messages, value_of

KEYS = 12
SIZES = (10, 3_000, 60_000, 70_000, 300_000, 1_100_000, 3_000_000)
PART_BYTES = 1 << 20


class Client:
    """What it has written, and what it found."""

    def __init__(self, host: str, port: int, seed: int, prefix: bytes, plant: str) -> None:
        self.caller = Caller(host, port)
        self.dice = random.Random(seed)
        self.prefix = prefix
        self.plant = plant
        self.may_be: dict[bytes, set[bytes | None]] = {prefix + b"%02d" % number: {None} for number in range(KEYS)}
        self.counts = dict.fromkeys(("checked", "violations", "writes", "reads", "lists", "deletes", "failed"), 0)

    def violation(self, text: str) -> None:
        self.counts["violations"] += 1
        print(f"  {text}", flush=True)

    def write(self, key: bytes) -> None:
        value = self.dice.randbytes(self.dice.choice(SIZES))
        wrong = self.plant == "byte"
        sent = bytes([value[0] ^ 1]) + value[1:] if wrong else value
        parts = [sent[at:at + PART_BYTES] for at in range(0, len(sent), PART_BYTES)]
        self.may_be[key].add(value)
        first, *rest = parts
        self.caller.call("Write", message(field(1, key) + field(3, first)) + b"".join(message(field(3, part)) for part in rest))
        self.may_be[key] = {value}
        self.counts["writes"] += 1

    def read(self, key: bytes) -> None:
        value = value_of(self.caller.call("Read", message(field(1, key))))
        self.counts["checked"] += 1
        self.counts["reads"] += 1
        if value not in self.may_be[key]:
            told = "nothing" if value is None else f"{len(value)} bytes"
            self.violation(f"{key!r} is read as {told}, and is none of the {len(self.may_be[key])} it may be")
        self.may_be[key] = {value}

    def delete(self, key: bytes) -> None:
        self.may_be[key].add(None)
        self.caller.call("Delete", message(field(1, key)))
        self.may_be[key] = {None}
        self.counts["deletes"] += 1

    def list_all(self, key: bytes) -> None:
        if not any(None not in may for may in self.may_be.values()):
            return  # an empty listing has no message
        request = message(field(1, field(1, self.prefix) + field(2, self.prefix + b"\xff")))
        names = {dict(fields(entry))[1] for one in messages(self.caller.call("List", request)) for tag, entry in fields(one)
                 if tag == 2}
        self.counts["checked"] += 1
        self.counts["lists"] += 1
        for name, may in self.may_be.items():
            if (name in names and may == {None}) or (name not in names and None not in may):
                self.violation(f"{name!r} is {'in' if name in names else 'not in'} the listing of what is there")
        if names - set(self.may_be):
            self.violation(f"a listing has {names - set(self.may_be)}")

    def act(self) -> None:
        acts: tuple[Callable[[bytes], None], ...] = (self.write, self.read, self.read, self.read, self.list_all, self.delete)
        keys = list(self.may_be)
        if not self.counts["reads"]:  # of each one at least, however short the run is
            acts = (self.read,) if self.counts["writes"] else (self.write,)
            keys = keys[:1]
        try:
            self.dice.choice(acts)(self.dice.choice(keys))
        except Failed:
            self.counts["failed"] += 1
            time.sleep(0.02)
        except (ValueError, IndexError) as error:
            self.violation(f"an answer that is none: {error}")
            self.caller.close()


def main() -> int:
    host, port, seed, ms, prefix, plant = sys.argv[1:]
    client = Client(host, int(port), int(seed), prefix.encode(), plant)
    end = time.monotonic() + int(ms) / 1000
    while time.monotonic() < end:
        client.act()
    client.caller.close()
    print(json.dumps({"client": prefix} | client.counts))
    return 1 if client.counts["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
