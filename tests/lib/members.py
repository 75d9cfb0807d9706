# SPDX-License-Identifier: Apache-2.0
"""A pool for a test: a master, and nodes that join it."""
from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
from typing import Any, Iterator

import support
from support import penstock, start_node, wait_until

TIMES = ("--heartbeat-ms=100", "--lease-ms=500", "--lease-margin-ms=100", "--reaper-ms=100", "--member-ttl-ms=2000")
if support.watches_races():
    TIMES = ("--heartbeat-ms=500", "--lease-ms=4000", "--lease-margin-ms=500", "--reaper-ms=500", "--member-ttl-ms=10000")
ROUTED, EXISTS, UNAVAILABLE, MISS, INCOMPLETE = range(5)  # what a route says


def figures(url: str) -> dict[str, Any]:
    said = penstock("--url", url, "stat", "--json")
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


class Master:
    """A master, which may end and come back at the same address with the same view."""

    def __init__(self, folder: pathlib.Path, *more: str, place: str | None = "=anywhere") -> None:
        self.map_file = folder / "view"
        self.more = (*([f"--place={place}"] if place else []), *more)
        self.node = start_node("--role=master", "--listen=127.0.0.1:0", "--shards=2", f"--pool-map={self.map_file}", *TIMES,
                               *self.more)
        self.address = f"127.0.0.1:{self.node.ports()[0]}"

    def back(self) -> None:
        self.node = start_node("--role=master", f"--listen={self.address}", "--shards=2", f"--pool-map={self.map_file}",
                               *TIMES, *self.more)

    def ask(self, *question: object, secret: str | None = None) -> dict[str, Any]:
        said = subprocess.run([support.BUILD / "tests/e2e/pool_ask", self.address, *([secret] if secret else []), "--",
                               *map(str, question)], capture_output=True, timeout=support.WAIT_S, check=True)
        return json.loads(said.stdout)

    def figures(self) -> dict[str, int]:
        return figures(f"node://{self.address}")["pool"]

    def members(self) -> list[dict[str, Any]]:
        return self.ask("map")["members"]

    def has(self, count: int) -> None:
        wait_until(f"{count} members", lambda: len(self.members()) == count)
        wait_until("all reported", lambda: self.figures()["members_reporting"] == 0)

    def statuses(self, *keys: str) -> list[int]:
        return [route["status"] for route in self.ask("locate", *keys)["routes"]]


@contextlib.contextmanager
def master(folder: pathlib.Path, *more: str, place: str | None = "=anywhere") -> Iterator[Master]:
    m = Master(folder, *more, place=place)
    try:
        yield m
    finally:
        m.node.leave()


def member(m: Master, *more: str) -> support.Node:
    return start_node("--listen=127.0.0.1:0", "--dram=64M", "--shards=2", f"--master={m.address}", "--report-ms=5", *more,
                      listeners=2)


def keys_of(node: support.Node) -> set[str]:
    return set(penstock("--url", node.tcp, "ls").stdout.decode().split())
