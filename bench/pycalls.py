# SPDX-License-Identifier: Apache-2.0
"""What Python adds to calls of the C library, on a store inside the process."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from procs import BenchError, Stage, run_json

CALLS = Path(__file__).parent / "peers" / "calls.py"
RUN_S = 1.0
OVERHEAD_US_MAX = 1.5
CLOCK_US = 0.001


def from_python(stage: Stage, what: str) -> dict[str, float]:
    """One run of the package's calls."""
    environment = {"PYTHONPATH": str(stage.build / "python"), "PENSTOCK_BUILD": str(stage.build)}
    return run_json([sys.executable, str(CALLS), what, str(RUN_S)], os.environ | environment)


def from_c(stage: Stage, what: str) -> dict[str, float]:
    """One run of the library's."""
    return run_json([stage.program("peer_calls"), what, str(RUN_S)])


def batches(stage: Stage) -> tuple[Callable[[], float], Callable[[], float]]:
    """Operations a second in batches of 128, puts and gets in turn."""
    return lambda: from_python(stage, "batch")["ops_per_s"], lambda: from_c(stage, "batch")["ops_per_s"]


def overhead(stage: Stage) -> tuple[Callable[[], float], Callable[[], float]]:
    """Microseconds that one get takes longer from Python than from C, against what it may."""
    try:
        by_cffi = from_python(stage, "cffi")["us"]
        print(f"  for orientation, through cffi a get takes {by_cffi:.3f} us", flush=True)
    except BenchError:
        print("  without cffi (python3-cffi, python3-setuptools): not compared with it", flush=True)

    def extra_us() -> float:
        ours, theirs = from_python(stage, "get")["us"], from_c(stage, "get")["us"]
        print(f"  a get takes {ours:.3f} us from Python, {theirs:.3f} us from C", flush=True)
        return max(ours - theirs, CLOCK_US)
    return extra_us, lambda: OVERHEAD_US_MAX
