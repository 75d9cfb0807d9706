# SPDX-License-Identifier: Apache-2.0
"""The client of the soak impatient: impatient_client.py URL SECONDS SEED PLANT.

One session after the other puts and gets 1024 values of 1 MiB, in batches of 128, each call with less or more time than
it takes. Each value that is read is checked. Prints its figures as one JSON line; exit status 1 when something was violated.
"""

import collections
import json
import random
import sys
import time

import penstock

KEYS, BATCH, VALUE_BYTES = 1024, 128, 1 << 20
TIMES_S = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8)


BATCHES = [[str(key) for key in range(first, first + BATCH)] for first in range(0, KEYS, BATCH)]


def fill(url: str, plant: str) -> None:
    """Put every key, with as much time as it takes."""
    value = bytearray(b"v" * VALUE_BYTES)
    if plant == "torn":
        value[-1] ^= 1
    with penstock.open(url) as store:
        for keys in BATCHES:
            store.put_many([(key, value) for key in keys])


def session(url: str, timeout_s: float, counts: collections.Counter[str]) -> None:
    """Put what is there already, and get it, as far as that comes within its time."""
    room = bytearray(BATCH * VALUE_BYTES)
    rooms = [memoryview(room)[i * VALUE_BYTES:(i + 1) * VALUE_BYTES] for i in range(BATCH)]
    with penstock.open(url, timeout=timeout_s) as store:
        for keys in BATCHES:
            try:
                store.put_many([(key, rooms[0]) for key in keys], if_absent=True)
            except penstock.Exists:
                counts["refused"] += BATCH
        for keys in BATCHES:
            for got, size in zip(rooms, store.get_into_many(keys, rooms)):
                counts["hits"] += 1
                counts["checked"] += 1
                if size != VALUE_BYTES or got != b"v" * VALUE_BYTES:
                    counts["violations"] += 1
                    print("a value is not what was put", flush=True)


def main() -> int:
    """The exit status that the module's text promises."""
    url, seconds, seed, plant = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    dice = random.Random(seed)
    counts: collections.Counter[str] = collections.Counter(violations=0)
    fill(url, plant)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        counts["sessions"] += 1
        try:
            session(url, dice.choice(TIMES_S), counts)
        except penstock.Error:
            counts["cut_short"] += 1
    print(json.dumps(counts), flush=True)
    return 1 if counts["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
