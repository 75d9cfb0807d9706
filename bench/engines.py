# SPDX-License-Identifier: Apache-2.0
"""What engines call, ours in place of theirs, with the same script on both sides."""

import os
import sys
from collections.abc import Callable

from node import GIB, Node
from peers import SOURCE, Mooncake
from procs import Stage, run_json

PAGES = ["--op", "cycle", "--batch", 128, "--size", 64 << 10, "--keys", 8192, "--seconds", 2]


def mooncake_api(stage: Stage) -> tuple[Callable[[], float], Callable[[], float]]:
    """Pages of 64 KiB in batches of 128: asked for, put, asked for and got."""
    node, mooncake = Node(stage, 2 * GIB), Mooncake(stage)
    path = os.pathsep.join([str(stage.build / "python"), str(SOURCE.parent / "integrations" / "mooncake")])
    command = [sys.executable, str(SOURCE / "peers" / "mooncake_peer.py"), "client", "--master", node.urls["tcp"]]
    ours = [*command, *map(str, PAGES)]
    return (lambda: run_json(ours, os.environ | {"PYTHONPATH": path})["bytes_per_s"],
            lambda: mooncake.bench(*PAGES)["bytes_per_s"])
