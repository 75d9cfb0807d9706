"""The soak of a simulated pool: one thread and one seed, in which everything goes wrong that may."""

import subprocess

from disks import closing_line
from procs import Stage
from soaks import Findings, Order, Soak

END_S_MAX = 60.0


def pool(stage: Stage, order: Order) -> Findings:
    """Runs of tests/sim from the seed on, until the time is over; a violation names its seed."""
    findings = Findings()
    command = [stage.program("sim_pool"), "--seed", str(order.seed), "--for-ms", str(int(order.for_s * 1000)),
               *(["--plant", order.plant] if order.plant else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                              timeout=order.for_s + END_S_MAX)
    except subprocess.TimeoutExpired:
        findings.fault("the simulation does not end")
        return findings
    counts = closing_line(findings, "sim_pool", done)
    counts.pop("seed", None)
    findings.add(counts)
    return findings


SOAKS = (
    Soak("simulated_pool", "a directory, nodes and clients on a network that loses, doubles and reorders, with crashes,"
         " freezes and clocks that jump", ("early_answer", "no_lease", "slow_clock", "empty_join", "two_minds",
                                           "deaf_to_gaps", "hearsay"), pool),
)
