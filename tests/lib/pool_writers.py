# SPDX-License-Identifier: Apache-2.0
"""Writers of a pool that check what they read: pool_writers.py URL SECONDS SEED PLANT.

Each of four threads has keys of its own and knows what may be there: the last value that was acknowledged, and those
that were sent behind it with an end that nobody knows. Whatever is read must be one of these. Values
say their key and number, and are as small as a record or larger than a message.
Ends early at an end of its standard input. Prints its figures as one JSON line; exit status 1 when something was
violated.
"""

import collections
import json
import random
import select
import sys
import threading
import time

import penstock
from penstock import errors

THREADS, KEYS, TIMEOUT_S, SETTLE_S = 4, 16, 5.0, 20.0
SIZES = (20, 20, 20, 1500, 5000, 300_000)


def value_of(key: str, number: int, size: int) -> bytes:
    """A value that says what it is, to its last byte."""
    head = f"{key}:{number}:{size}:".encode()
    return head + bytes([number % 251]) * size


class Known:
    """What may be at a key: None is no value."""

    def __init__(self) -> None:
        self.sure: bytes | None = None
        self.maybe: list[bytes | None] = []
        self.generation: int | None = 0

    def settle(self, value: bytes | None, generation: int | None) -> None:
        """A write was acknowledged."""
        self.sure, self.maybe, self.generation = value, [], generation

    def doubt(self, value: bytes | None) -> None:
        """Nobody knows whether a write was done."""
        self.maybe.append(value)
        self.generation = None

    def allows(self, value: bytes | None) -> bool:
        """Whether it may be there."""
        return value == self.sure or value in self.maybe


class Writer(threading.Thread):
    """One thread and its keys."""

    def __init__(self, url: str, name: str, seed: int, plant: str, end: threading.Event) -> None:
        super().__init__()
        self.store = penstock.open(url, timeout=TIMEOUT_S)
        self.dice, self.plant, self.end = random.Random(f"{seed} {name}"), plant, end
        self.known = {f"{name}/{i}": Known() for i in range(KEYS)}
        self.number = 0
        self.counts: collections.Counter[str] = collections.Counter()
        self.told: list[str] = []

    def violation(self, text: str) -> None:
        """Something that no pool may do."""
        self.counts["violations"] += 1
        self.told.append(text)

    def put(self, key: str, known: Known, condition: int | None) -> None:
        """Write the next value."""
        self.number += 1
        value = value_of(key, self.number, self.dice.choice(SIZES))
        try:
            known.settle(value, self.store.put(key, value, if_generation=condition))
            self.counts["puts"] += 1
        except errors.Stale:
            if not known.maybe:
                self.violation(f"{key}: its generation is not the one that was acknowledged")
            known.generation = None
            self.counts["stale"] += 1
        except (errors.Busy, errors.Incomplete, errors.NoSpace):
            self.counts["refused"] += 1
        except (errors.TimedOut, errors.Unreachable):
            known.doubt(value)
            self.counts["unknown"] += 1

    def delete(self, key: str, known: Known) -> None:
        """Delete it."""
        try:
            there = self.store.delete(key)
            if not known.allows(None) and not there:
                self.violation(f"{key}: an acknowledged value was not there to be deleted")
            known.settle(None, 0)
            self.counts["deletes"] += 1
        except (errors.Busy, errors.Incomplete):
            self.counts["refused"] += 1
        except (errors.TimedOut, errors.Unreachable):
            known.doubt(None)
            self.counts["unknown"] += 1

    def get(self, key: str, known: Known) -> bool:
        """Read it, and compare. Whether there was an answer."""
        value: bytes | None = None
        try:
            value = self.store.get(key)
        except errors.NotFound:
            pass
        except errors.Lost:
            self.violation(f"{key}: LOST")
        except errors.Corrupt:
            self.violation(f"{key}: damaged")
        except errors.Error:
            self.counts["unanswered"] += 1
            return False
        if self.plant == "lost" and value is not None and self.dice.random() < 0.01:
            value = None
        self.counts["checked"] += 1
        self.counts["hits"] += value is not None
        if not known.allows(value):
            self.violation(f"{key}: {value[:30] if value else value!r} where "
                           f"{[known.sure and known.sure[:30], *(m and m[:30] for m in known.maybe)]} may be")
        return True

    def run(self) -> None:
        """Until the end, and then look at everything once more."""
        while not self.end.is_set():
            key, known = self.dice.choice(list(self.known.items()))
            act = self.dice.random()
            if act < 0.5:
                self.put(key, known, known.generation if act < 0.15 else None)
            elif act < 0.6:
                self.delete(key, known)
            else:
                self.get(key, known)
        deadline = time.monotonic() + SETTLE_S
        for key, known in self.known.items():
            while not self.get(key, known):
                if time.monotonic() > deadline:
                    self.violation(f"{key}: no answer at the end")
                    break
                time.sleep(0.05)


def main() -> int:
    """The exit status."""
    url, seconds, seed, plant = sys.argv[1:]
    end = threading.Event()
    writers = [Writer(url, f"w{i}", int(seed), plant, end) for i in range(THREADS)]
    for writer in writers:
        writer.start()
    print("acting", flush=True)
    select.select([sys.stdin], [], [], float(seconds))
    end.set()
    counts: collections.Counter[str] = collections.Counter(violations=0)
    for writer in writers:
        writer.join()
        counts.update(writer.counts)
        for text in writer.told[:20]:
            print(f"violation: {text}")
    print(json.dumps(counts), flush=True)
    return 1 if counts["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
