# SPDX-License-Identifier: Apache-2.0
"""The soak impatient: clients over UCX's TCP that give large batches too little time, close, and come back at once."""

import sys
import time
from pathlib import Path

from node import Node
from procs import Stage
from soaks import END_S_MAX, MIB, Findings, Order, Soak, await_client, check_service

CLIENT = Path(__file__).parent / "impatient_client.py"
CLIENTS = 2
DRAM_BYTES = 1200 * MIB


def impatient(stage: Stage, order: Order) -> Findings:
    """The node ends sessions with values underway: it lives, serves who comes next, and keeps each value whole."""
    findings = Findings()
    node = Node(stage, DRAM_BYTES, 1)
    environment = {"PYTHONPATH": str(stage.build / "python")}
    clients = [stage.start([sys.executable, str(CLIENT), node.urls["tcp"], str(order.for_s), str(order.seed + number),
                            order.plant or "none"], environment) for number in range(CLIENTS)]
    for client in clients:
        await_client(client, findings, time.monotonic() + order.for_s + END_S_MAX)
    findings.counts["ended_sessions"] = node.process.text().count("a request ran past its deadline")
    check_service(node, findings)
    return findings


SOAKS = (Soak("impatient", "clients over TCP whose time is too short for their batches", ("torn",), impatient),)
