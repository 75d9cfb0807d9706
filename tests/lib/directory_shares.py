# SPDX-License-Identifier: Apache-2.0
"""A pool for a test whose directory is in shares: a master, a process for each other share, and three nodes."""
from __future__ import annotations

import contextlib
import pathlib
import subprocess
import sys
from typing import Any, Iterator

import support
from members import TIMES, Master, figures, member
from support import start_node, wait_until


PUT, FOUND, MISSING, UNKNOWN = "put", "found", "None", "Incomplete"
CLIENT = """
import sys, penstock
url, secret, what = sys.argv[1:]
store = penstock.open(url, **({"secret_file": secret} if secret else {}))
keys = sys.stdin.read().split()
if what == "put":
    for key in keys:
        store.put(key, f"the value of {key}".encode())
        print("put")
else:
    for key in keys:
        try:
            value = store.get(key, None)
            print(value.decode() if value is not None else None)
        except penstock.Error as error:
            print(type(error).__name__)
"""


def client(url: str, what: str, keys: list[str], secret: str = "") -> list[str]:
    """What a client of its own, which knows no key's place, makes of each of the keys: "put" or "get"."""
    return run_python(CLIENT, url, secret, what, given="\n".join(keys)).split("\n")[:-1]


def run_python(code: str, *arguments: str, given: str = "") -> str:
    """What a program prints that has the package."""
    return subprocess.run([sys.executable, "-c", code, *arguments], input=given, capture_output=True, text=True,
                          timeout=support.WAIT_S, check=True,
                          env=support.python_environment()).stdout


class SharedDirectory:
    """The first share is the master's; `shares` has the processes of the others, by number."""

    def __init__(self, folder: pathlib.Path, shares: int, *more: str, secret: str | None = None, place: str = "=anywhere") -> None:
        self.more = more
        self.secret = secret or ""
        self.secrets = (f"--secret-file={secret}",) if secret else ()
        self.master = Master(folder, f"--directory-shards={shares}", *self.secrets, *more, place=place)
        self.url = f"pool://{self.master.address}"
        self.shares = {number: self.share(number) for number in range(1, shares)}
        self.nodes: list[support.Node] = []

    def share(self, number: int, port: int = 0) -> support.Node:
        return start_node("--role=master", f"--listen=127.0.0.1:{port}", "--shards=2", f"--directory-shard={number}",
                          f"--master={self.master.address}", *TIMES, *self.secrets, *self.more)

    def join(self, count: int, *more: str) -> None:
        for _ in range(count):
            self.nodes.append(member(self.master, f"--host=h{len(self.nodes)}", *self.secrets, *more))
        for share in self.all_shares():
            wait_until("all have reported", lambda share=share: self.has_all(share))

    def all_shares(self) -> list[int]:
        return [0, *self.shares]

    def figures(self, share: int) -> dict[str, int]:
        """What the process with the share says of itself."""
        return figures(f"node://{self.address(share)}")["pool"]

    def address(self, share: int) -> str:
        return self.master.address if share == 0 else f"127.0.0.1:{self.shares[share].ports()[0]}"

    def has_all(self, share: int) -> bool:
        said = self.figures(share)
        living = sum(node.process.poll() is None for node in self.nodes)
        return said.get("members") == living and said["members_reporting"] == 0

    def kill(self, number: int) -> int:
        """kill -9; returns its port."""
        port = self.shares[number].ports()[0]
        self.shares.pop(number).kill()
        return port

    def back(self, number: int, port: int = 0) -> None:
        self.shares[number] = self.share(number, port)

    def share_of(self, *keys: str) -> list[int]:
        """Which share each key falls to."""
        said: dict[str, Any] = self.master.ask("shares", *keys)
        return said["shares"]

    def client(self, what: str, keys: list[str]) -> list[str]:
        return client(self.url, what, keys, self.secret)

    def put(self, keys: list[str]) -> None:
        assert self.client("put", keys) == [PUT] * len(keys)

    def get(self, keys: list[str]) -> dict[str, list[str]]:
        """Reads the keys all at once; returns them by what became of it."""
        results: dict[str, list[str]] = {}
        for key, said in zip(keys, self.client("get", keys), strict=True):
            results.setdefault(FOUND if said == value_of(key) else said, []).append(key)
        return results

    def finds(self, keys: list[str]) -> bool:
        return set(self.get(keys)) == {FOUND}

    def known(self) -> int:
        """Places of keys that all shares together know."""
        return sum(self.figures(share)["keys"] for share in self.all_shares())

    def close(self) -> None:
        for node in [*self.nodes, *self.shares.values(), self.master.node]:
            node.leave()


def value_of(key: str) -> str:
    return f"the value of {key}"


@contextlib.contextmanager
def shared_directory(folder: pathlib.Path, shares: int, *more: str, secret: str | None = None,
                     place: str = "=anywhere") -> Iterator[SharedDirectory]:
    pool = SharedDirectory(folder, shares, *more, secret=secret, place=place)
    try:
        yield pool
    finally:
        pool.close()
