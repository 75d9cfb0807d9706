# SPDX-License-Identifier: Apache-2.0
"""The soak of a simulated pool: one thread and one seed, in which everything goes wrong that may."""

import subprocess

from disks import closing_line
from procs import Stage
from soaks import Findings, Order, Soak

END_S_MAX = 60.0


def simulate(program: str, stage: Stage, order: Order) -> Findings:
    """Runs of tests/sim from the seed on, until the time is over; a violation names its seed."""
    findings = Findings()
    command = [stage.program(program), "--seed", str(order.seed), "--for-ms", str(int(order.for_s * 1000)),
               *(["--plant", order.plant] if order.plant else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                              timeout=order.for_s + END_S_MAX)
    except subprocess.TimeoutExpired:
        findings.fault("the simulation does not end")
        return findings
    counts = closing_line(findings, program, done)
    counts.pop("seed", None)
    findings.add(counts)
    return findings


def pool(stage: Stage, order: Order) -> Findings:
    return simulate("sim_pool", stage, order)


def copies(stage: Stage, order: Order) -> Findings:
    return simulate("sim_copies", stage, order)


SOAKS = (
    Soak("simulated_pool", "a directory, nodes and clients on a network that loses, doubles and reorders, with crashes,"
         " freezes and clocks that jump", ("early_answer", "no_lease", "slow_clock", "empty_join", "two_minds",
                                           "deaf_to_gaps", "hearsay"), pool),
    Soak("simulated_copies", "the same with the product's senders of copies: nodes without an SSD or without room refuse"
         " writes while others join, are handed partitions, drop out", ("one_round", "old_copy", "no_lease", "slow_clock"), copies),
)
