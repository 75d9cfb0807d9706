# SPDX-License-Identifier: Apache-2.0
"""The client of the soak python_threads: python_threads_client.py URL SECONDS SEED PLANT.

Eight threads put, get, view, list, delete and batch the same keys. A value says in its first bytes how the others
must look, and each read is checked. Halfway through the run, and at its end, all threads rest
while the process's memory is measured: its own may have grown by 2 % of all that it has, or by as
much as allocators hold back. Prints its figures as one JSON line; exit status 1 when something
was violated.
"""

import asyncio
import collections
import ctypes
import gc
import json
import random
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import penstock

THREADS, KEYS, VALUE_BYTES_MAX = 8, 200, 300_000
WARM_SHARE, GROWTH_SHARE, HELD_BYTES = 0.5, 0.02, 3 << 20
LEAK_BYTES = 8192


def value_of(seed: int, size: int) -> bytes:
    """Eight bytes that say the seed, and as many more as asked for, which follow from it."""
    return seed.to_bytes(8, "little") + (bytes([seed % 251]) * size)


def is_whole(value: bytes | memoryview) -> bool:
    """Whether all of a value is of one write."""
    seed = int.from_bytes(value[:8], "little")
    return bytes(value[8:]) == bytes([seed % 251]) * (len(value) - 8)


def memory_bytes() -> tuple[int, int]:
    """Private memory of this process, and all that is resident, once what is free has been given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = dict(re.findall(r"^(\w+):\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE))
    return int(status["RssAnon"]) * 1024, int(status["VmRSS"]) * 1024


class Actor:
    """One thread's acts, and what it counted."""

    def __init__(self, store: penstock.Store, number: int, seed: int, plant: str) -> None:
        self.store, self.number, self.plant = store, number, plant
        self.dice = random.Random(seed * THREADS + number)
        self.counts: collections.Counter[str] = collections.Counter()
        self.kept: list[bytes] = []
        self.room = bytearray(VALUE_BYTES_MAX + 8)
        self.acts: list[Callable[[], None]] = [
            self.put, self.put, self.get, self.get, self.get_into, self.put_many, self.get_many, self.view, self.list,
            self.delete, self.stream, self.reservations, self.condition, self.refused]
        if number == 0:
            self.acts += [self.coroutines] * 3

    def key(self) -> str:
        return f"soak/{self.dice.randrange(KEYS)}"

    def value(self) -> bytes:
        size = self.dice.choice([0, 56, 2000, 5000, 70_000, self.dice.randrange(VALUE_BYTES_MAX)])
        value = value_of(self.dice.randrange(1 << 60), size)
        if self.plant == "torn" and self.dice.random() < 0.01:
            value += b"\xff"
        return value

    def check(self, value: bytes | memoryview) -> None:
        self.counts["hits"] += 1
        self.counts["checked"] += 1
        if not is_whole(value):
            self.counts["violations"] += 1
            print(f"a value of {len(value)} bytes is of more than one write", flush=True)

    def put(self) -> None:
        self.store.put(self.key(), self.value())
        self.counts["puts"] += 1

    def get(self) -> None:
        try:
            self.check(self.store.get(self.key()))
        except penstock.NotFound:
            self.counts["misses"] += 1

    def get_into(self) -> None:
        try:
            self.check(memoryview(self.room)[:self.store.get_into(self.key(), self.room)])
        except penstock.NotFound:
            self.counts["misses"] += 1

    def put_many(self) -> None:
        items = [(self.key(), self.value()) for _ in range(self.dice.randrange(20))]
        self.store.put_many(items)
        self.counts["puts"] += len(items)

    def get_many(self) -> None:
        for value in self.store.get_many([self.key() for _ in range(self.dice.randrange(20))]):
            if value is not None:
                self.check(value)

    def view(self) -> None:
        try:
            with self.store.view(self.key()) as view, memoryview(view) as memory:
                self.check(memory)
                self.counts["views"] += 1
        except (penstock.NotFound, penstock.Unsupported):
            self.counts["misses"] += 1

    def list(self) -> None:
        names = [entry.name for entry in self.store.list("soak/")]
        self.counts["lists"] += 1
        if names != sorted(set(names)):
            self.counts["violations"] += 1
            print("a listing is out of order", flush=True)

    def delete(self) -> None:
        self.store.delete_many([self.key(), self.key()])
        self.counts["deletes"] += 2

    def stream(self) -> None:
        value = self.value()
        with self.store.stream(self.key()) as stream:
            stream.write(value[:len(value) // 2])
            stream.write(value[len(value) // 2:])
            stream.commit()
        self.counts["puts"] += 1

    def reservations(self) -> None:
        """Their ends are written first; some are left without a commit."""
        values = {self.key(): self.value() for _ in range(self.dice.randrange(4))}
        reservations = self.store.reserve_many({key: len(value) for key, value in values.items()}, replace=True)
        for reservation, value in zip(reservations, values.values()):
            reservation.write(value[len(value) // 2:], len(value) // 2)
            reservation[:len(value) // 2] = value[:len(value) // 2]
        self.store.commit_many(reservations[self.dice.randrange(2):])
        self.counts["reservations"] += len(reservations)

    def condition(self) -> None:
        try:
            self.store.put(self.key(), self.value(), if_absent=True)
        except penstock.Exists:
            self.counts["refused"] += 1

    def refused(self) -> None:
        for wrong in (lambda: self.store.put(self.key(), "text"), lambda: self.store.get(7),  # type: ignore[arg-type]
                      lambda: self.store.get_into(self.key(), b"")):  # type: ignore[arg-type]
            try:
                wrong()
                self.counts["violations"] += 1
            except (TypeError, ValueError, KeyError):
                self.counts["refused"] += 1

    def coroutines(self) -> None:
        async def read_some() -> None:
            aio = self.store.aio
            keys = [self.key() for _ in range(20)]
            await aio.put(keys[0], self.value())
            for value in await asyncio.gather(*(aio.get(key) for key in keys), return_exceptions=True):
                if isinstance(value, bytes):
                    self.check(value)
            await aio.put_many([(key, self.value()) for key in keys[:5]])
            for value in await aio.get_many(keys):
                if value is not None:
                    self.check(value)
            tasks = [asyncio.ensure_future(aio.get_into(keys[0], bytearray(len(self.room)))),
                     asyncio.ensure_future(aio.get_into_many(keys[:2], [bytearray(len(self.room)) for _ in range(2)]))]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()

        asyncio.run(read_some())
        self.counts["coroutines"] += 25

    def run_until(self, end: float) -> None:
        while time.monotonic() < end:
            self.dice.choice(self.acts)()
            if self.plant == "leak":
                self.kept.append(bytes(LEAK_BYTES))


def run_threads(actors: list[Actor], end: float, faults: list[BaseException]) -> None:
    """All of them, until @end; what one raises is a fault."""
    def run(actor: Actor) -> None:
        try:
            actor.run_until(end)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(actor,)) for actor in actors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> int:
    """The exit status that the module's text promises."""
    url, seconds, seed, plant = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    faults: list[BaseException] = []
    begin = time.monotonic()
    with penstock.open(url) as store:
        actors = [Actor(store, number, seed, plant) for number in range(THREADS)]
        run_threads(actors, begin + seconds * WARM_SHARE, faults)
        before, resident = memory_bytes()
        run_threads(actors, begin + seconds, faults)
        after, _ = memory_bytes()
        store.delete_prefix("soak/")
    counts = sum((actor.counts for actor in actors), collections.Counter())
    for fault in faults:
        print(f"a thread ended with {fault!r}", flush=True)
    grown = after - before > max(resident * GROWTH_SHARE, HELD_BYTES)
    if grown:
        print(f"memory of its own grew from {before} to {after} bytes", flush=True)
    counts["violations"] += len(faults) + grown
    counts["checked"] += 1
    print(json.dumps({**counts, "grown_bytes": max(after - before, 0), "own_bytes": after, "resident_bytes": resident}), flush=True)
    return 1 if counts["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
