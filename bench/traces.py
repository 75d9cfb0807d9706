"""Hit rates on a trace of requests: our default policy against LRU, both in the engine; and a pool against one node."""

import os
from collections.abc import Callable

from ours import Node
from procs import Stage, run_json

Takers = tuple[Callable[[], float], Callable[[], float]]
PREFIX, PAGE_BYTES, SPARE_BYTES = "penstock-replay/", 4096, 64 << 20
NODES, CLIENTS, PERCENT = 3, 4, 10


def replay(stage: Stage, *options: object) -> dict[str, float]:
    """What a replay of PENSTOCK_TRACE says of the trace, and of its one run."""
    told = run_json([stage.program("penstock"), "replay", os.environ["PENSTOCK_TRACE"], "--json", *map(str, options)])
    return {"unique": told["unique"]} | told["runs"][0]


def trace_hits(percent: int) -> Callable[[Stage], Takers]:
    """Share of the pages of PENSTOCK_TRACE that hit, in per cent, where this share of its different pages fits."""

    def rate(stage: Stage, policy: str) -> float:
        return 100 * replay(stage, "--policy", policy, "--capacity", f"{percent}%")["hit_rate"]

    return lambda stage: (lambda: rate(stage, "s3fifo"), lambda: rate(stage, "lru"))


def node(stage: Stage, value_bytes: int, *more: str) -> Node:
    """A node with room for so many bytes of pages."""
    return Node(stage.keep(stage.sub()), 2 * value_bytes + SPARE_BYTES, 1, "--class", f"{PREFIX}=cache", "--quota",
                f"{PREFIX}={value_bytes}", *more)


def rate_at(stage: Stage, url: str) -> float:
    """Per cent that hit where clients share what is there."""
    return 100 * replay(stage, "--url", url, "--page-size", PAGE_BYTES, "--clients", CLIENTS)["hit_rate"]


def of_pool(stage: Stage, value_bytes: int) -> float:
    """In a pool of nodes that have so many bytes together."""
    with stage.sub() as own:
        master = own.start([own.program("penstockd"), "--role", "master", "--listen", "127.0.0.1:0", "--view",
                            str(own.folder / "view"), "--place", f"{PREFIX}=anywhere", "--warm-up-ms", "1"])
        address = master.wait_text(r"listening on (127\.0\.0\.1:\d+)")[1]
        for number in range(NODES):  # as on machines of their own; requests come in a second that took an hour
            one = node(own, value_bytes // NODES, "--master", address, "--host", f"h{number}", "--report-ms", "1")
            one.process.wait_text("joined as member")
        return rate_at(own, f"pool://{address}")


def of_node(stage: Stage, value_bytes: int) -> float:
    """In one node with all of them."""
    with stage.sub() as own:
        return rate_at(own, node(own, value_bytes).urls["tcp"])


def pool_hits(points: float) -> Callable[[Stage], Takers]:
    """A pool's rate, and one node's less so many points."""

    def prepare(stage: Stage) -> Takers:
        unique = replay(stage, "--policy", "lru", "--capacity", "1")["unique"]
        value_bytes = int(unique) * PERCENT // 100 * PAGE_BYTES
        return lambda: of_pool(stage, value_bytes), lambda: of_node(stage, value_bytes) - points

    return prepare
