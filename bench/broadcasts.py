# SPDX-License-Identifier: Apache-2.0
"""Broadcasts of a tree of files to many members, beside the time that the tree takes over one link."""

from collections.abc import Callable

from procs import Stage, run_json

MIB = 1 << 20
TREE_BYTES = 256 * MIB
LINK_BITS_PER_S, LATENCY_US = 1_000_000_000, 100

Takers = tuple[Callable[[], float], Callable[[], float]]


def thousand(stage: Stage) -> Takers:
    """A pipelined broadcast to 1,000 simulated members, by the code that decides in a real one."""
    said = run_json([stage.program("chain_figures"), "1000", str(TREE_BYTES), str(LINK_BITS_PER_S), str(LATENCY_US), "0", "0", "1"])
    print(f"  pieces of {said['piece_bytes']} bytes, {said['events']} events", flush=True)
    return lambda: said["seconds"], lambda: said["bound_s"]
