"""Hit rates on a trace of requests: our default policy against LRU, both in the engine."""

import os
from collections.abc import Callable

from procs import Stage, run_json

Takers = tuple[Callable[[], float], Callable[[], float]]


def trace_hits(percent: int) -> Callable[[Stage], Takers]:
    """Share of the pages of PENSTOCK_TRACE that hit, in per cent, where this share of its different pages fits."""

    def rate(stage: Stage, policy: str) -> float:
        told = run_json([stage.program("penstock"), "replay", os.environ["PENSTOCK_TRACE"], "--json",
                         "--policy", policy, "--capacity", f"{percent}%"])
        return 100 * told["runs"][0]["hit_rate"]

    return lambda stage: (lambda: rate(stage, "s3fifo"), lambda: rate(stage, "lru"))
