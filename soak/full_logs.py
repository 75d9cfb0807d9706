# SPDX-License-Identifier: Apache-2.0
"""The soak full_logs: a node whose SSD is as full as it may be is killed over and over on one folder."""

import random
import signal
import sys
import time
from statistics import mean

from node import Node
from procs import Stage
from restarts import end
from soaks import MIB, Findings, Order, Soak

DRAM_BYTES = 32 * MIB
CACHE_KEYS = 3000
VALUE_BYTES = (3000, 20000, 60000)
LIVES = 12  # on one folder
OPERATIONS = (300, 1800)  # in one life
SHARDS_MAX = 4
SSD_MIB = (40, 64)
KEPT_SHARE = 0.65  # of the capacity with most shards
FLUSHES = 3  # one of so many finds room
KILLED_MID_WRITE = 0.6


class Folder:
    """A node with its SSD below a folder of its own, and what each key may have.

    Values and deletions are numbered. `latest` is the last one of a key, `now` the one that it has since this life
    wrote or read it, and `durable` the one behind which no kill takes it.
    """

    def __init__(self, stage: Stage, order: Order, findings: Findings, number: int) -> None:
        sys.path.append(str(stage.build / "python"))
        import penstock  # pylint: disable=import-outside-toplevel
        self.penstock, self.findings, self.plant = penstock, findings, order.plant
        self.dice = random.Random(f"{order.seed} {number}")
        self.numbers = 0
        ssd_mib = self.dice.choice(SSD_MIB)
        self.kept_keys = self.dice.choice((40, int(KEPT_SHARE * (ssd_mib - 2 * SHARDS_MAX) * MIB / mean(VALUE_BYTES))))
        self.latest: dict[str, int] = {}
        self.now: dict[str, int] = {}
        self.durable: dict[str, int] = {}
        self.node = Node(stage, DRAM_BYTES, self.dice.randint(1, SHARDS_MAX), "--page-size", "64K",
                         "--class", "c/=cache", "--ssd", str(stage.folder / "ssd"),
                         "--ssd-bytes", f"{ssd_mib}M", "--ssd-segment", "1M")
        self.store = penstock.open(self.node.urls["local"])

    def next_number(self, key: str) -> int:
        """Of the value or the deletion that the key gets."""
        self.numbers += 1
        self.latest[key] = self.now[key] = self.numbers
        return self.numbers

    def put(self, key: str, durable: bool) -> None:
        """A new value of one of the sizes."""
        number = self.next_number(key)
        self.store.put(key, f"{key} {number} ".encode().ljust(self.dice.choice(VALUE_BYTES)), durable=durable)
        if durable:
            self.durable[key] = number

    def get(self, key: str) -> None:
        """What is found is the key's, and one that it may have; only values that may go are missing."""
        least, latest = self.now.get(key, self.durable.get(key, 0)), self.latest.get(key, 0)
        self.findings.add({"checked": 1})
        try:
            name, number = self.store.get(key)[:64].split()[:2]
        except self.penstock.NotFound:
            if not key.startswith("c/") and least:
                self.findings.fault(f"{key} is gone, it had value {least}")
            return
        if self.plant == "older":
            least = latest + 1
        if name.decode() != key or not least <= int(number) <= latest:
            self.findings.fault(f"{key} has {name!r} {number!r}, not value {least} to {latest}")
        self.latest[key] = self.now[key] = int(number)

    def delete(self, key: str) -> None:
        """A key without a value, until a kill brings one back that no flush has passed."""
        try:
            self.store.delete(key)
        except self.penstock.NotFound:
            pass
        self.next_number(key)

    def work(self) -> None:
        """Puts, gets and deletes, more than the memory and the SSD hold."""
        kept_share = self.kept_keys / (self.kept_keys + CACHE_KEYS / 4)
        for _ in range(self.dice.randint(*OPERATIONS)):
            kept, choice = self.dice.random() < kept_share, self.dice.random()
            key = f"k/{self.dice.randrange(self.kept_keys)}" if kept else f"c/{self.dice.randrange(CACHE_KEYS)}"
            if choice < 0.6 or (kept and choice > 0.9):
                self.put(key, durable=kept and choice < 0.3)
            elif choice < 0.9:
                self.get(key)
            else:
                self.delete(key)

    def flush(self) -> None:
        """No kill takes keys behind what they have now; a log that stays full is a violation."""
        for _ in range(FLUSHES):
            try:
                self.store.flush()
            except self.penstock.NoSpace:
                self.findings.add({"no_space": 1})
                continue
            self.findings.add({"flushes": 1})
            self.durable.update(self.now)
            return
        self.findings.fault(f"{FLUSHES} flushes found no space: {self.store.stat()}")

    def life(self) -> None:
        """One process: work, and its end by a signal, mostly in the midst of writes."""
        try:
            self.work()
        except self.penstock.Error as error:
            self.findings.fault(f"{error}; the node: {self.node.process.said()}")
            return
        if self.dice.random() >= KILLED_MID_WRITE:
            self.flush()
        self.store.close()
        end(self.node, signal.SIGKILL)
        self.findings.add({"kills": 1})
        self.now.clear()
        self.node.start_again("--shards", str(self.dice.randint(1, SHARDS_MAX)))
        self.store = self.penstock.open(self.node.urls["local"])
        self.flush()
        for i in range(self.kept_keys):
            self.get(f"k/{i}")


def full_logs(stage: Stage, order: Order) -> Findings:
    """Folder after folder, until the time is over or something was found."""
    findings = Findings()
    deadline, number = time.monotonic() + order.for_s, 0
    while time.monotonic() < deadline and not findings.violations:
        with stage.sub() as own:
            folder = Folder(own, order, findings, number)
            for _ in range(LIVES):
                folder.life()
                if time.monotonic() >= deadline or findings.violations:
                    break
            folder.store.close()
        number += 1
    findings.add({"folders": number})
    return findings


SOAKS = (
    Soak("full_logs", "a node whose SSD is full is killed many times in a row, and has other numbers of shards", ("older",),
         full_logs),
)
