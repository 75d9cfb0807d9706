# SPDX-License-Identifier: Apache-2.0
"""What engines call, ours in place of theirs, with the same script on both sides."""

import os
import sys
import tempfile
from collections.abc import Callable

from node import GIB, Node
from peers import SOURCE, Cache, Mooncake
from procs import Stage, run, run_json

ROOT = SOURCE.parent

PAGES = ["--op", "cycle", "--batch", 128, "--size", 64 << 10, "--keys", 8192, "--seconds", 2]


def mooncake_api(stage: Stage) -> tuple[Callable[[], float], Callable[[], float]]:
    """Pages of 64 KiB in batches of 128: asked for, put, asked for and got."""
    node, mooncake = Node(stage, 2 * GIB), Mooncake(stage)
    path = os.pathsep.join([str(stage.build / "python"), str(ROOT / "integrations" / "mooncake")])
    command = [sys.executable, str(SOURCE / "peers" / "mooncake_peer.py"), "client", "--master", node.urls["tcp"]]
    ours = [*command, *map(str, PAGES)]
    return (lambda: run_json(ours, os.environ | {"PYTHONPATH": path})["bytes_per_s"],
            lambda: mooncake.bench(*PAGES)["bytes_per_s"])


def engine(stage: Stage, program: str, *args: str) -> float:
    """What a program says that runs with the engines' own packages."""
    python = run([str(ROOT / "ci" / "venv"), "engines", "integrations/engines/requirements.txt"]).strip()
    path = os.pathsep.join([str(stage.build / "python"), str(ROOT / "integrations" / "engines")])
    return run_json([python, str(SOURCE / "peers" / program), *args], os.environ | {"PYTHONPATH": path})["bytes_per_s"]


def hicache_file(stage: Stage) -> tuple[Callable[[], float], Callable[[], float]]:
    """Pages of 2 MiB in batches of 128 through sglang's storages: asked for, put, asked for and got."""
    node = Node(stage, 2 * GIB)
    folder = stage.keep(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="penstock-bench-"))
    return (lambda: engine(stage, "hicache_peer.py", "penstock", node.urls["local"]),
            lambda: engine(stage, "hicache_peer.py", "file", folder))


def hicache_mooncake(stage: Stage) -> tuple[Callable[[], float], Callable[[], float]]:
    """The same over TCP."""
    node, mooncake = Node(stage, 2 * GIB), Mooncake(stage)
    return (lambda: engine(stage, "hicache_peer.py", "penstock", node.urls["tcp"]),
            lambda: engine(stage, "hicache_peer.py", "mooncake", mooncake.master))


def lmcache_redis(stage: Stage) -> tuple[Callable[[], float], Callable[[], float]]:
    """Chunks of 8 MiB in batches of 16, got by LMCache's remote backend over TCP."""
    node, redis = Node(stage, GIB), Cache(stage, "redis")
    return (lambda: engine(stage, "lmcache_peer.py", node.urls["tcp"]),
            lambda: engine(stage, "lmcache_peer.py", f"redis://{redis.addresses['tcp']}"))
