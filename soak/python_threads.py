# SPDX-License-Identifier: Apache-2.0
"""The soak python_threads: many threads of one Python process on one store, of each kind in turn."""

import sys
import time
from pathlib import Path

from node import Node
from procs import Stage
from soaks import END_S_MAX, MIB, Findings, Order, Soak, await_client, check_service

CLIENT = Path(__file__).parent / "python_threads_client.py"
DRAM_BYTES = 256 * MIB


def python_threads(stage: Stage, order: Order) -> Findings:
    """Every value that is read is checked, and the process's own memory must not grow."""
    findings = Findings()
    node = Node(stage, DRAM_BYTES, 2)
    urls = ("mem:?dram=256M&shards=2", node.urls["local"], node.urls["tcp"])
    for number, url in enumerate(urls):
        # What is kept after a call fits into the C library's own arenas, so that growth is growth.
        environment = {"PYTHONPATH": str(stage.build / "python"), "MALLOC_ARENA_MAX": "2"}
        client = stage.start([sys.executable, "-X", "faulthandler", str(CLIENT), url, str(order.for_s / len(urls)),
                              str(order.seed + number), order.plant or "none"], environment)
        await_client(client, findings, time.monotonic() + order.for_s + END_S_MAX)
    check_service(node, findings)
    return findings


SOAKS = (
    Soak("python_threads", "8 threads of a Python process, mixed calls, on mem:, a unix socket and TCP",
         ("torn", "leak"), python_threads),
)
