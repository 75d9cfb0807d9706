# SPDX-License-Identifier: Apache-2.0
"""Hit rates on traces of requests: the default policy against the others of the engine; and a pool against one node."""

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

from node import Node
from procs import Stage, run_json

Takers = tuple[Callable[[], float], Callable[[], float]]
PREFIX, PAGE_BYTES, SPARE_BYTES = "penstock-replay/", 4096, 64 << 20
NODES, CLIENTS, PERCENT = 3, 4, 10
SHARES = (5, 10, 20, 40)  # per cent of the pages that fit
SHARDS = (4, 16)  # a node has as many as cores
REPLAYS, REPLAYS_SURE, AT_ONCE = 3, 24, 2
BESIDE = Path(__file__).resolve().parents[2] / "shared/traces"
OURS, OTHERS = "chains", ("lru", "prefix", "s3fifo")


def traces() -> list[Path]:
    """What PENSTOCK_TRACE names, a trace or a folder of them, else those of the folder beside the checkout."""
    named = Path(os.environ.get("PENSTOCK_TRACE", BESIDE))
    return sorted(named.glob("*.jsonl")) if named.is_dir() else [named] if named.is_file() else []


def replay(stage: Stage, trace: Path, *options: object) -> dict[str, Any]:
    """What a replay says of a trace, and of its runs."""
    return run_json([stage.program("penstock"), "replay", trace, "--json", *map(str, options)])


def hit_rates(stage: Stage, trace: Path, percents: tuple[int, ...], shards: int, replays: int) -> dict[tuple[str, int], float]:
    """Per cent of the pages that hit, by policy and share of the pages: the mean of replays, whose shards get other keys each time."""
    def one(_: int) -> dict[tuple[str, int], float]:
        told = replay(stage, trace, "--policy", ",".join((OURS, *OTHERS)), "--capacity", ",".join(f"{p}%" for p in percents),
                      "--url", f"mem:?shards={shards}")
        sizes = sorted({run["capacity_pages"] for run in told["runs"]})
        return {(run["policy"], percents[sizes.index(run["capacity_pages"])]): 100 * run["hit_rate"] for run in told["runs"]}

    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = list(pool.map(one, range(replays if shards > 1 else 1)))
    return {place: mean(run[place] for run in runs) for place in runs[0]}


def worst(stage: Stage, percents: tuple[int, ...], shards: tuple[int, ...]) -> tuple[float, float]:
    """Per cent of the pages that hit, by default and with the best of the others, of the trace, capacity and shards where we do worst. A
    place that seems to be the worst by a few replays is replayed more often: their means differ by chance, and the best of three more so."""
    pairs: dict[tuple[Path, int, int], tuple[float, float]] = {}
    sure: set[tuple[Path, int, int]] = set()

    def take(trace: Path, count: int, shares: tuple[int, ...], replays: int) -> None:
        rates = hit_rates(stage, trace, shares, count, replays)
        for share in shares:
            ours, others = pairs[trace, count, share] = rates[OURS, share], max(rates[other, share] for other in OTHERS)
            print(f"  {trace.stem}, {count} shards, {share} %, {replays} replays: {ours:.2f} %, others at best {others:.2f} %", flush=True)

    for trace, count in itertools.product(traces(), shards):
        take(trace, count, percents, REPLAYS)
    while (place := min(pairs, key=lambda each: pairs[each][0] / pairs[each][1])) not in sure:
        sure.add(place)
        if place[1] > 1:
            take(place[0], place[1], (place[2],), REPLAYS_SURE)
    return pairs[place]


def trace_hits(*percents: int, shards: tuple[int, ...] = (1,)) -> Callable[[Stage], Takers]:
    """Where these shares of the traces' different pages fit: ours, and the best of the other policies."""

    def prepare(stage: Stage) -> Takers:
        pair: list[float] = []

        def ours() -> float:
            pair[:] = worst(stage, percents, shards)
            return pair[0]

        return ours, lambda: pair[1]

    return prepare


def node(stage: Stage, value_bytes: int, *more: str) -> Node:
    """A node with room for so many bytes of pages."""
    return Node(stage.keep(stage.sub()), 2 * value_bytes + SPARE_BYTES, 1, "--class", f"{PREFIX}=cache", "--quota",
                f"{PREFIX}={value_bytes}", *more)


def rate_at(stage: Stage, url: str) -> float:
    """Per cent that hit where clients share what is there."""
    told = replay(stage, traces()[-1], "--url", url, "--page-size", PAGE_BYTES, "--clients", CLIENTS)
    return 100 * float(told["runs"][0]["hit_rate"])


def of_pool(stage: Stage, value_bytes: int) -> float:
    """In a pool of nodes that have so many bytes together."""
    with stage.sub() as own:
        master = own.start([own.program("penstockd"), "--role", "master", "--listen", "127.0.0.1:0", "--pool-map",
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
        unique = replay(stage, traces()[-1], "--policy", "lru", "--capacity", "1")["unique"]
        value_bytes = int(unique) * PERCENT // 100 * PAGE_BYTES
        return lambda: of_pool(stage, value_bytes), lambda: of_node(stage, value_bytes) - points

    return prepare
