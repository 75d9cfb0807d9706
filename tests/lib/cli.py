# SPDX-License-Identifier: Apache-2.0
"""The command line of a node of two shards, over TCP and over its unix socket."""
from __future__ import annotations

import json
import pathlib
import random
import subprocess
import sys
from typing import Iterator

import pytest
import support
from support import penstock

NOT_FOUND, USAGE, NO_SPACE, NOT_ALLOWED, UNREACHABLE, CORRUPT, OTHER = range(1, 8)


class Cli:
    """`penstock --url URL`, with what it should end with."""

    def __init__(self, url: str, node: support.Node | None = None) -> None:
        self.url = url
        self.node = node

    def __call__(self, *arguments: str | bytes, stdin: bytes = b"", code: int = 0) -> bytes:
        done = penstock("--url", self.url, *arguments, stdin=stdin)
        assert done.returncode == code, done
        return done.stdout if code == 0 else done.stderr

    def json(self, *arguments: str, stdin: bytes = b"") -> dict:
        return json.loads(self(*arguments, "--json", stdin=stdin))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[support.Node]:
    folder = tmp_path_factory.mktemp("cli")
    with support.start_node("--listen", "127.0.0.1:0", "--unix", str(folder / "socket"), "--dram", "64M",
                            "--shards", "2", "--page-size", "64K", "--class", "cached/=cache", listeners=2) as node:
        node.socket = f"node+unix://{folder}/socket"
        yield node
        node.stop()


@pytest.fixture(params=["tcp", "unix"])
def cli(request: pytest.FixtureRequest, node: support.Node) -> Cli:
    cli = Cli(node.tcp if request.param == "tcp" else node.socket, node)
    cli("clear")
    return cli


def binary(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def peak_mib(cli: Cli, command: str, stdin: pathlib.Path) -> float:
    """Memory of a command that reads a file through a pipe, at its peak."""
    # A child counts from what its parent had when it forked: the parent is to be a small one.
    measure = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=sys.stderr, check=True); "
               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    with subprocess.Popen(["cat", stdin], stdout=subprocess.PIPE) as pipe:
        done = subprocess.run([sys.executable, "-c", measure, support.BUILD / "penstock", "--url", cli.url, *command.split()],
                              stdin=pipe.stdout, capture_output=True, timeout=support.WAIT_S, env=support.clean_environment())
    assert done.returncode == 0, done
    return int(done.stdout) / 1024
