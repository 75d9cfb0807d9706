# SPDX-License-Identifier: Apache-2.0
"""Pools of three nodes, whose keys have a home and copies."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Iterator

import support
from members import Master, member
from support import penstock, wait_until

CLIENT = pathlib.Path(__file__).with_name("pool_writers.py")


class Pool:
    """A master and three nodes, each on a host of its own."""

    def __init__(self, folder: pathlib.Path, copies: int, *more: str) -> None:
        self.copies, self.folder = copies, folder
        self.nodes: list[support.Node] = []
        self.master = Master(folder, "--nodes-min=3", *more, place=f"=home:{copies}")
        self.url = f"pool://{self.master.address}"
        try:
            for i in range(3):
                self.nodes.append(self.node(i))
            self.settled(3)
        except BaseException:
            self.close()
            raise

    def node(self, number: int) -> support.Node:
        return member(self.master, f"--host=h{number}", "--replica-ms=1000")

    def has_copies(self, nodes: int) -> bool:
        """So many nodes are known, and all partitions have all copies that these can hold."""
        assert all(node.process.poll() in (None, -signal.SIGKILL) for node in self.nodes), "a node ended by itself"
        known = len(self.master.members())  # first: partitions are those of whoever is known then, or later
        said = self.master.ask("partitions")
        return known == nodes and said["copies"][min(self.copies, nodes)] == said["served"] == 4096

    def settled(self, nodes: int) -> None:
        try:
            wait_until("all partitions have their copies", lambda: self.has_copies(nodes))
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.master.ask('partitions')} of {self.master.members()}") from late

    def kill(self, at: int, nodes: int = 3) -> None:
        """Kills one that is not the only holder of anything: a slow machine may have made it one for a moment."""
        def stopped_at_a_good_moment() -> bool:
            self.settled(nodes)
            os.kill(self.nodes[at].pid, signal.SIGSTOP)
            good = self.has_copies(nodes)
            time.sleep(0.15)  # what it asked for before is in a view a little later
            good = good and self.has_copies(nodes)
            if not good:
                os.kill(self.nodes[at].pid, signal.SIGCONT)
            return good

        wait_until("there are copies of all that it has", stopped_at_a_good_moment)
        self.nodes[at].kill()

    def holders(self, key: str) -> list[int]:
        """Nodes by their places in `nodes`, the primary first."""
        addresses = {m["member"]: m["address"] for m in self.master.members()}
        ports = [node.ports()[0] for node in self.nodes]
        return [ports.index(int(addresses[m].rpartition(":")[2])) for m in self.master.ask("partition", key)["copies"]]

    def holder(self, key: str, which: int) -> int:
        """0: the primary, 1: its first copy, which a slow machine may have to make anew."""
        found: list[int] = []

        def there() -> bool:
            found[:] = self.holders(key)
            return len(found) > which

        wait_until(f"copy {which} of the key", there)
        return found[which]

    def put(self, key: str, value: bytes) -> None:
        said = penstock("--url", self.url, "put", key, stdin=value)
        assert said.returncode == 0, said.stderr

    def put_file(self, key: str, value: bytes) -> int:
        """How many copies there are."""
        file = self.folder / "value"
        file.write_bytes(value)
        said = penstock("--url", self.url, "--json", "put", key, str(file))
        assert said.returncode == 0, said.stderr
        return int(json.loads(said.stdout)["copies"])

    def get(self, key: str) -> bytes:
        said = penstock("--url", self.url, "get", key)
        assert said.returncode == 0, said.stderr
        return said.stdout

    @contextlib.contextmanager
    def load(self) -> Iterator[dict[str, Any]]:
        """Clients that write, delete and read until the end, and check what they are told."""
        told: dict[str, Any] = {}
        env = support.python_environment()
        with subprocess.Popen([sys.executable, "-B", CLIENT, self.url, "60", "7", "none"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, env=env, text=True) as client:
            assert client.stdout and client.stdout.readline() == "acting\n"
            try:
                yield told
            finally:
                said = client.communicate(timeout=60)[0]
            assert client.returncode == 0, said
            told.update(json.loads(said.splitlines()[-1]))

    def close(self) -> None:
        for node in self.nodes:
            node.leave()
        self.master.node.leave()


class SsdPool(Pool):
    """With an SSD for each node, which it finds again, and less memory."""

    def ssd(self, number: int) -> tuple[str, ...]:
        return ("--dram=8M", "--page-size=64K", f"--ssd={self.folder}/{number}", "--ssd-bytes=64M", "--ssd-segment=8M")

    def node(self, number: int) -> support.Node:
        return member(self.master, f"--host=h{number}", "--replica-ms=5000", *self.ssd(number))


class NamedPool(SsdPool):
    """Whose nodes are the same ones in the pool after a crash."""

    def node(self, number: int) -> support.Node:
        return member(self.master, f"--host=h{number}", "--replica-ms=5000", f"--node-id={self.folder}/id{number}",
                      *self.ssd(number))


class DevicePool(Pool):
    """With device memory above the memory of each node."""

    def node(self, number: int) -> support.Node:
        return member(self.master, f"--host=h{number}", "--replica-ms=5000", "--page-size=64K", "--hbm=host:64M")


class CachePool(Pool):
    """Values of one prefix may be evicted, and one node has little memory."""

    def node(self, number: int) -> support.Node:
        little = () if number else ("--dram=16M",)
        return member(self.master, f"--host=h{number}", "--replica-ms=1000", "--class=c/=cache", "--page-size=64K", *little)


@contextlib.contextmanager
def pool(folder: pathlib.Path, copies: int, *more: str, kind: Callable[..., Pool] = Pool) -> Iterator[Pool]:
    p = kind(folder, copies, *more)
    try:
        yield p
    finally:
        p.close()
