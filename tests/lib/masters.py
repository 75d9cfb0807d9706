# SPDX-License-Identifier: Apache-2.0
"""Masters that share an etcd, and a pool of three nodes that knows them all."""
from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import time
from typing import Any, Iterator

import support
from etcd import Etcd
from home_pool import Pool
from members import figures
from ports import free_port
from support import penstock, start_node, wait_until

LEASE_MS = 4000
# So long that a slow machine moves nothing by itself.
TIMES = ("--heartbeat-ms=100", "--lease-ms=1500", "--lease-margin-ms=500", "--reaper-ms=100", "--member-ttl-ms=4000")


class Masters:
    """Of which one leads. Each may end and come back at its address."""

    def __init__(self, etcd: Etcd, count: int, *more: str, place: str = "=home:2") -> None:
        self.etcd = etcd
        self.more = (f"--place={place}", f"--etcd={etcd.urls}", f"--etcd-lease-ms={LEASE_MS}", *TIMES, *more)
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(count)]
        self.address = ",".join(self.addresses)  # in a URL
        self.nodes: list[support.Node] = []
        self.asked = 0  # the one that led last
        self.stopped: set[int] = set()  # who cannot be asked
        for address in self.addresses:
            self.nodes.append(self.start(address))

    def start(self, address: str, *more: str) -> support.Node:
        return start_node("--role=master", f"--listen={address}", "--shards=2", *self.more, *more)

    def back(self, which: int) -> None:
        self.nodes[which] = self.start(self.addresses[which])

    def leads(self, which: int) -> bool:
        """What a living master says of itself."""
        return self.nodes[which].process.poll() is None and figures(f"node://{self.addresses[which]}")["pool"]["leads"] == 1

    def leader(self, *others: int) -> int:
        """The one that leads once there is one; @others are not asked."""
        found: list[int] = []

        def one_leads() -> bool:
            found[:] = [i for i in range(len(self.nodes)) if i not in others and self.leads(i)]
            return len(found) == 1

        wait_until("one master leads", one_leads)
        return found[0]

    def ask(self, *question: object) -> dict[str, Any]:
        """What the leader answers."""
        told: list[str] = []
        for _ in range(5):
            done = subprocess.run([support.BUILD / "tests/e2e/pool_ask", self.addresses[self.asked], "--",
                                   *map(str, question)], capture_output=True, timeout=support.WAIT_S, text=True)
            said = json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr}
            if "error" not in said:
                return said
            told.append(f"{self.addresses[self.asked]}: {said}")
            self.asked = self.leader(*self.stopped)
        raise AssertionError(f"{question}: {told}")

    def members(self) -> list[dict[str, Any]]:
        return self.ask("map")["members"]

    def leave(self) -> None:
        for node in self.nodes:
            node.leave()

    def __enter__(self) -> Masters:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


class SharedPool(Pool):
    """Three nodes, whose keys have two copies, and masters."""

    def __init__(self, folder: pathlib.Path, masters: Masters) -> None:
        self.copies, self.folder = 2, folder
        self.master: Any = masters
        self.url = f"pool://{masters.address}"
        self.nodes = []

    def __enter__(self) -> SharedPool:
        try:
            self.nodes = [self.node(i) for i in range(3)]
            self.settled(3)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def node(self, number: int) -> support.Node:
        return start_node("--listen=127.0.0.1:0", "--dram=64M", "--shards=2", "--report-ms=5", "--replica-ms=5000",
                          f"--host=h{number}", *(f"--master={address}" for address in self.master.addresses), listeners=2)

    def quiet(self) -> None:
        """Nothing is about to move: partitions are balanced, too."""
        def still() -> bool:
            before = self.master.ask("map")["version"]
            time.sleep(1)
            return self.has_copies(len(self.nodes)) and self.master.ask("map")["version"] == before

        wait_until("nothing moves", still)

    def serves(self, key: str) -> bool:
        """A write, and a read of it, both within a second."""
        put = penstock("--url", self.url, "--timeout", "1000", "put", key, stdin=key.encode())
        return put.returncode == 0 and penstock("--url", self.url, "--timeout", "1000", "get", key).stdout == key.encode()

    def close(self) -> None:
        for node in self.nodes:
            node.leave()


@contextlib.contextmanager
def shared_pool(folder: pathlib.Path, etcd: Etcd, *more: str, count: int = 3) -> Iterator[SharedPool]:
    with Masters(etcd, count, "--nodes-min=3", *more) as masters, SharedPool(folder, masters) as pool:
        yield pool
