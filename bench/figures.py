# SPDX-License-Identifier: Apache-2.0
"""The figures: one row each, naming its bar, what runs on our side and what on the peer's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from arrays import against_files, against_wheel
from broadcasts import eight, thousand
from engines import hicache_file, hicache_mooncake, lmcache_redis, mooncake_api
from links import stripes, three_nodes
from node import GIB, Node
from node_figures import bytes_per_key, idle_share, lookups_per_s, mixed_fill_bytes, shares_lookups_per_s, ssd_bytes_per_key
from objects import against_moto
from peers import MIB, Cache, Mooncake, cache_bytes_per_key, memory, perftest_bytes_per_s, raw_tcp_bytes_per_s
from pools import beside_direct, beside_mooncake
from procs import Stage
from pycalls import OVERHEAD_US_MAX, batches, overhead
from pydata import ARRAY_BYTES, STATE_BYTES, against
from scrapes import gets_while_scraped
from ssd import gets_while_putting, gets_while_spilling, reads, spill
from traces import CLIENTS, NODES, PERCENT, SHARDS, SHARES, pool_hits, trace_hits
from trees import LARGE, SMALL, anew, changed, pooled, tunnel, unchanged
from weights import against_gloo, publish

KIB = 1 << 10
RUN_S = 2
SMALL_KEYS = 1_000_000
SSD_KEYS = 500_000
SMALL_BYTES = 64

Taker = Callable[[], float]
Takers = tuple[Taker, Taker]


@dataclass(frozen=True)
class Figure:
    """One figure.

    Parameters
    ----------
    name : str
    bar : float
        The least ratio that is good enough.
    unit : str
    needs : str
        The peers that bench/setup must have installed; empty for none.
    against : str
        The peer, in words for the table.
    prepare : Callable[[Stage], Takers]
        Starts and fills both sides; returns what takes one value of ours and one of the peer's.
    less_is_better : bool
        Times and memory: ratio = peer / ours; otherwise ours / peer.
    runs : int
        Pairs of values; more where one differs much from the next.
    """

    name: str
    bar: float
    unit: str
    needs: str
    against: str
    prepare: Callable[[Stage], Takers]
    less_is_better: bool = False
    runs: int = 3

    def ratio(self, ours: float, peer: float) -> float:
        """How many times better ours is."""
        return peer / ours if self.less_is_better else ours / peer


def window(op: str, batch: int, inflight: int) -> list[Any]:
    """The arguments that both sides' commands share."""
    return ["--op", op, "--batch", batch, "--inflight", inflight, "--seconds", RUN_S]


def small(op: str, lane: str, batch: int, inflight: int, field: str) -> Callable[[Stage], Takers]:
    """64 B values at 10^6 keys against redis, with equal windows.

    Redis's client sleeps in recv() for its reply, as the clients that come with redis do. One at a
    time the wake-up can be most of the round trip, so a client that polls is printed beside it.
    """
    def prepare(stage: Stage) -> Takers:
        node, redis = Node(stage), Cache(stage, "redis")
        way = "tcp" if lane == "stream" else lane
        redis.fill(SMALL_BYTES, SMALL_KEYS)
        node.fill(lane, SMALL_BYTES, SMALL_KEYS, 128)
        args = [*window(op, batch, inflight), "--size", SMALL_BYTES, "--keys", SMALL_KEYS]
        if batch == 1:
            polling = redis.bench(way, *args, "--spin-us", 200)["p50_us"]
            print(f"  for orientation, redis, client polling: {polling:.1f} us", flush=True)
        return (lambda: node.bench(lane, *args)[field], lambda: redis.bench(way, *args)[field])
    return prepare


def large(op: str, lane: str, size: int, keys: int, batch: int, inflight: int,
          peer: Callable[[Stage], float]) -> Callable[[Stage], Takers]:
    """Bandwidth of large values against `peer`, the keys as warm or cold as the peer's memory."""
    def prepare(stage: Stage) -> Takers:
        node = Node(stage, 3 * GIB)
        node.fill(lane, size, keys, batch)
        args = [*window(op, batch, inflight), "--size", size, "--keys", keys]
        return (lambda: node.bench(lane, *args)["bytes_per_s"], lambda: peer(stage))
    return prepare


def cold_copy(stage: Stage) -> float:
    """Bytes a second of a cold memcpy on one thread."""
    args = ["--op", "copy", "--size", 2 * MIB, "--seconds", RUN_S]
    return memory(stage, *args)["bytes_per_s"]


def view_walk(stage: Stage) -> Takers:
    """Time to read a byte of each page of a 64 MiB view, and of as much private memory."""
    node = Node(stage, 3 * GIB)
    size = 64 * MIB
    node.fill("local", size, 4, 1)
    args = [*window("view-walk", 1, 1), "--size", size, "--keys", 4]
    peer = ["--op", "walk", "--region", size, "--seconds", RUN_S]
    return (lambda: node.bench("local", *args)["p50_us"], lambda: memory(stage, *peer)["p50_us"])


def batch_of_128(op: str, size: int, keys: int, lane: str = "tcp") -> Callable[[Stage], Takers]:
    """Batches of 128 values, one batch at a time, against Mooncake over the same key space."""
    def prepare(stage: Stage) -> Takers:
        node, mooncake = Node(stage, 2 * GIB), Mooncake(stage)
        node.fill(lane, size, keys, 128)
        args = ["--op", op, "--batch", 128, "--size", size, "--keys", keys, "--seconds", 2]
        return (lambda: node.bench(lane, *args, "--inflight", 1)["bytes_per_s"],
                lambda: mooncake.bench(*args)["bytes_per_s"])
    return prepare


def memory_per_key(stage: Stage) -> Takers:
    """What a key of 16 B with a value of 64 B costs, against memcached."""
    redis = cache_bytes_per_key(stage, "redis", SMALL_KEYS, SMALL_BYTES)
    print(f"  for orientation, redis: {redis:.1f} bytes a key", flush=True)
    return (lambda: bytes_per_key(stage, SMALL_KEYS, SMALL_BYTES),
            lambda: cache_bytes_per_key(stage, "memcached", SMALL_KEYS, SMALL_BYTES))


def ssd_memory_per_key(stage: Stage) -> Takers:
    """Memory that a key takes beside its own bytes, its value on SSD, against 64 bytes.

    Of all lengths up to 256 the one that wastes most: 233 bytes leave 7 of their cell unused, and its cells 256 of their span.
    """
    return lambda: ssd_bytes_per_key(stage, SSD_KEYS, 2049, 233), lambda: 64.0


def mixed_fill(stage: Stage) -> Takers:
    """Value bytes that 4 GiB and 8 shards hold at the first NO_SPACE, against the 4 GiB."""
    dram_bytes = 4 * GIB
    mix = f"{4 * KIB}:70,{256 * KIB}:20,{3 * MIB}:10"
    return lambda: mixed_fill_bytes(stage, dram_bytes, 8, mix), lambda: float(dram_bytes)


def idle_cpu(stage: Stage) -> Takers:
    """Share of a core that an idle node uses, against one per cent."""
    return lambda: idle_share(stage, 5.0), lambda: 0.01


def master_lookups(stage: Stage) -> Takers:
    """Look-ups in batches of 128 among 10^7 keys, against a million a second."""
    return lambda: lookups_per_s(stage, 10_000_000, 128, RUN_S), lambda: 1e6


def directory_shards4(stage: Stage) -> Takers:
    """Look-ups in batches of 128 among 4 * 10^6 keys in four shares, each on a core of its own in turn, against one share."""
    return (lambda: shares_lookups_per_s(stage, 4_000_000, 4, 128, RUN_S),
            lambda: shares_lookups_per_s(stage, 4_000_000, 1, 128, RUN_S))


def perftest(size: int) -> Callable[[Stage], float]:
    """The peer of a TCP bandwidth figure.

    By default ucx_perftest has no error handling, and UCX 1.13 writes straight into the receiver's
    buffer. With it (-e), which a server needs to survive its clients, UCX leaves that path.
    """
    def take(stage: Stage) -> float:
        surviving = perftest_bytes_per_s(stage, size, "-e") / 1e9
        print(f"  for orientation, ucx_perftest -e: {surviving:.2f} GB/s", flush=True)
        return perftest_bytes_per_s(stage, size)
    return take


M2, K64 = 2 * MIB, 64 * KIB

# ucx_perftest moves one buffer over and over; its rows give ours 8 MiB of keys, which a cache
# holds too. Rows against a cold copy walk through 1 GiB.
GET2M_TCP = large("get", "tcp", M2, 4, 1, 4, perftest(M2))
PUT2M_TCP = large("put", "tcp", M2, 4, 1, 4, perftest(M2))
GET64K_TCP = large("get", "tcp", K64, 128, 32, 4, perftest(K64))
PUT2M_LOCAL = large("put", "local", M2, 512, 1, 4, cold_copy)
GET2M_LOCAL = large("get", "local", M2, 512, 1, 4, cold_copy)

BATCH_PUT_2M = batch_of_128("put", M2, 512)
BATCH_GET_2M = batch_of_128("get", M2, 512)
BATCH_PUT_64K = batch_of_128("put", K64, 8192)
BATCH_GET_64K = batch_of_128("get", K64, 8192)

GET64_TCP = small("get", "tcp", 128, 4, "ops_per_s")
GET64_LOCAL = small("get", "local", 128, 4, "ops_per_s")
EXISTS_TCP = small("exists", "tcp", 128, 4, "ops_per_s")
GET64_P50_TCP = small("get", "tcp", 1, 1, "p50_us")
GET64_P50_LOCAL = small("get", "local", 1, 1, "p50_us")

# Over frames of our own; the peer of bandwidth is what one connection carries.
STREAM_GET2M = large("get", "stream", M2, 4, 1, 4, raw_tcp_bytes_per_s)
STREAM_PUT2M = large("put", "stream", M2, 4, 1, 4, raw_tcp_bytes_per_s)
STREAM_GET64K = large("get", "stream", K64, 128, 32, 4, raw_tcp_bytes_per_s)
STREAM_GET64 = small("get", "stream", 128, 4, "ops_per_s")
STREAM_EXISTS = small("exists", "stream", 128, 4, "ops_per_s")
STREAM_GET64_P50 = small("get", "stream", 1, 1, "p50_us")

REDIS_TCP, REDIS_UNIX = "redis, TCP", "redis, unix socket"
PERFTEST, COPY, WALK = "ucx_perftest am, TCP", "cold memcpy, one thread", "a walk, private memory"
MOONCAKE = "Mooncake, TCP"
RAW = "one TCP connection, writes of 1 MiB"
LINK = "what TCP can carry over the link, 1 Gbit/s, 5 ms of queue"
DIRECT = "the pool's one node, asked directly"

FILES, WHEEL = "TensorStore's file driver, tmpfs", "TensorStore's wheel, --tsgrpc"
MOTO = "moto's server, boto3 on both"
TS_WRITE_1M = against_files("write", MIB, "bytes_per_s")
TS_READ_1M = against_files("read", MIB, "bytes_per_s")
TS_READ_64K = against_files("read", K64, "bytes_per_s")
TS_READ_4K = against_files("get", 4 * KIB, "values_per_s")

FIGURES = (
    Figure("get64_batch128_tcp", 5.0, "ops/s", "redis", REDIS_TCP, GET64_TCP),
    Figure("get64_batch128_local", 8.0, "ops/s", "redis", REDIS_UNIX, GET64_LOCAL),
    Figure("exists128_tcp", 5.0, "ops/s", "redis", REDIS_TCP, EXISTS_TCP),
    Figure("get64_p50_tcp", 1.3, "us", "redis", REDIS_TCP, GET64_P50_TCP, True),
    Figure("get64_p50_local", 4.0, "us", "redis", REDIS_UNIX, GET64_P50_LOCAL, True),
    Figure("get2m_tcp", 0.9, "B/s", "ucx", PERFTEST, GET2M_TCP),
    Figure("put2m_tcp", 0.9, "B/s", "ucx", PERFTEST, PUT2M_TCP),
    Figure("get64k_batch_tcp", 0.9, "B/s", "ucx", PERFTEST, GET64K_TCP),
    Figure("stream_get2m", 0.95, "B/s", "", RAW, STREAM_GET2M),
    Figure("stream_put2m", 0.95, "B/s", "", RAW, STREAM_PUT2M),
    Figure("stream_get64k_batch", 0.85, "B/s", "", RAW, STREAM_GET64K),
    Figure("stream_get64_batch128", 6.0, "ops/s", "redis", REDIS_TCP, STREAM_GET64),
    Figure("stream_exists128", 5.0, "ops/s", "redis", REDIS_TCP, STREAM_EXISTS),
    Figure("stream_get64_p50", 2.0, "us", "redis", REDIS_TCP, STREAM_GET64_P50, True),
    Figure("stream_vs_mooncake_get", 2.2, "B/s", "mooncake", MOONCAKE, batch_of_128("get", M2, 512, "stream")),
    Figure("stream_vs_mooncake_put", 2.2, "B/s", "mooncake", MOONCAKE, batch_of_128("put", M2, 512, "stream")),
    Figure("put2m_local", 0.9, "B/s", "", COPY, PUT2M_LOCAL),
    Figure("get2m_local", 0.9, "B/s", "", COPY, GET2M_LOCAL),
    Figure("view64m_local", 0.8, "us", "", WALK, view_walk, True),
    Figure("batch128x2m_put_tcp", 1.8, "B/s", "mooncake", MOONCAKE, BATCH_PUT_2M),
    Figure("batch128x2m_get_tcp", 1.8, "B/s", "mooncake", MOONCAKE, BATCH_GET_2M),
    Figure("batch128x64k_put_tcp", 2.0, "B/s", "mooncake", MOONCAKE, BATCH_PUT_64K),
    Figure("batch128x64k_get_tcp", 2.0, "B/s", "mooncake", MOONCAKE, BATCH_GET_64K),
    Figure("mooncake_api", 1.5, "B/s", "mooncake", f"{MOONCAKE}, the same script", mooncake_api),
    Figure("hicache_batch128", 1.5, "B/s", "engines", "sglang's file storage, tmpfs", hicache_file),
    Figure("hicache_batch128_mooncake", 1.3, "B/s", "engines mooncake", f"sglang's storage of {MOONCAKE}", hicache_mooncake),
    Figure("lmcache_get", 2.0, "B/s", "engines redis", f"LMCache's connector, {REDIS_TCP}", lmcache_redis),
    Figure("pool_batch128x2m_put", 0.9, "B/s", "", DIRECT, beside_direct("put", M2, 512)),
    Figure("pool_batch128x2m_get", 0.9, "B/s", "", DIRECT, beside_direct("get", M2, 512)),
    Figure("pool_mooncake_put", 1.7, "B/s", "mooncake", MOONCAKE, beside_mooncake("put", M2, 512, "bytes_per_s")),
    Figure("pool_mooncake_get", 1.7, "B/s", "mooncake", MOONCAKE, beside_mooncake("get", M2, 512, "bytes_per_s")),
    Figure("pool_exists128", 2.0, "ops/s", "mooncake", MOONCAKE, beside_mooncake("exists", K64, 8192, "ops_per_s")),
    Figure("pool_shaped3", 2.7, "B/s", "namespaces", "one node, links of 1 Gbit/s", three_nodes),
    Figure("shaped_stripe", 0.95, "B/s", "namespaces", LINK, stripes("get", 64 * MIB, 8, 1)),
    Figure("shaped_stripe_put", 0.95, "B/s", "namespaces", LINK, stripes("put", 64 * MIB, 8, 1)),
    Figure("shaped_stripe_batch", 0.95, "B/s", "namespaces", LINK, stripes("get", M2, 64, 32)),
    Figure("memory_per_key", 1.1, "B/key", "memcached", "memcached", memory_per_key, True),
    Figure("ssd_bytes_a_key", 1.0, "B/key", "", "64 B beside the key", ssd_memory_per_key, True),
    Figure("mixed_fill", 0.88, "B", "", "the arenas, 4 GiB", mixed_fill),
    Figure("ts_write1m", 0.9, "B/s", "tensorstore", FILES, TS_WRITE_1M),
    Figure("ts_read1m", 0.9, "B/s", "tensorstore", FILES, TS_READ_1M),
    Figure("ts_read64k", 1.0, "B/s", "tensorstore", FILES, TS_READ_64K),
    Figure("ts_read4k_pipelined", 1.5, "ops/s", "tensorstore", FILES, TS_READ_4K),
    Figure("ts_tsgrpc_read1m", 2.0, "B/s", "tensorstore tensorstore-wheel", WHEEL, against_wheel),
    Figure("s3_get8m", 2.0, "B/s", "moto", MOTO, against_moto("get", 8 * MIB)),
    Figure("s3_put8m", 2.0, "B/s", "moto", MOTO, against_moto("put", 8 * MIB)),
    Figure("zarr256m_write", 1.5, "B/s", "python", "zarr's LocalStore, tmpfs", against("zarr256m_write", ARRAY_BYTES)),
    Figure("zarr256m_read", 1.5, "B/s", "python", "zarr's LocalStore, tmpfs", against("zarr256m_read", ARRAY_BYTES)),
    Figure("zarr256m_read_fsspec", 3.0, "B/s", "redis python", "zarr over redis, unix socket", against("zarr256m_read_fsspec", ARRAY_BYTES)),
    Figure("view100m", 3.0, "us", "python", "ray.get of 100 MB", against("view100m", 0), True),
    Figure("statedict1g_load", 1.0, "B/s", "python", "safetensors' load_file and copy, tmpfs", against("statedict1g_load", STATE_BYTES)),
    Figure("weights_delta", 10.0, "us", "python", "all of 512 MiB; ours with 1 tensor in 20 changed, and named", against("weights_delta", 0), True),
    Figure("weights_publish4", 0.83, "s", "namespaces", "1 GiB over one link of 1 Gbit/s; 4 receivers", publish, True),
    Figure("weights_gloo", 1.5, "s", "namespaces python", "torch.distributed's gloo, 128 MiB to 4 receivers, the same links", against_gloo, True),
    Figure("statedict1g_view", 1.5, "B/s", "python", "safetensors' load_file, tmpfs, every page read", against("statedict1g_view", STATE_BYTES)),
    Figure("tensor_handoff", 50.0, "B/s", "python", "torch.save and torch.load, tmpfs", against("tensor_handoff", STATE_BYTES)),
    Figure("py_batch128_local", 0.77, "ops/s", "", "the C library, mem:", batches),
    Figure("py_get64_overhead", 1.0, "us", "", f"{OVERHEAD_US_MAX} us over the C library, mem:", overhead, True),
    *(Figure(f"trace_hit_{percent}", 0.99, "%", "trace", f"the best other policy, {percent} % of the pages fit", trace_hits(percent), runs=1)
      for percent in SHARES),
    Figure("trace_hit_worst", 0.99, "%", "trace", "the best other policy, at the trace, size and shards (4, 16) where ours does worst, means of 24",
           trace_hits(*SHARES, shards=SHARDS), runs=1),
    Figure("pool_trace_hit", 1.0, "%", "trace", f"one node less 2 points, {CLIENTS} clients, {NODES} nodes, {PERCENT} % of the pages fit",
           pool_hits(2.0)),
    Figure("master_lookups", 1.0, "ops/s", "", "10^6 look-ups/s, one core", master_lookups),
    Figure("directory_shards4", 3.2, "ops/s", "", "one share of the same keys; a core for each share, in turn", directory_shards4),
    Figure("ssd_get2m", 0.9, "B/s", "fio", "fio, random reads, 4 underway", reads(M2, 4), runs=7),
    Figure("ssd_get64k_q16", 0.9, "B/s", "fio", "fio, random reads, 16 underway", reads(K64, 16), runs=7),
    Figure("ssd_get4k_q32", 0.8, "B/s", "fio", "fio, random reads, 32 underway", reads(4 * KIB, 32), runs=7),
    Figure("ssd_spill", 0.85, "B/s", "fio", "fio, writes of 2 MiB, 8 underway", spill),
    Figure("dram_p99_spilling", 0.66, "us", "", "the same without spilling", gets_while_spilling(False), True),
    Figure("dram_p99_spilling_fio", 1.0, "us", "fio", "the same while fio writes to the SSD in our place", gets_while_spilling(True), True),
    Figure("dram_p99_putting", 0.0, "us", "", "the same without a client that puts 2 MiB values, no SSD", gets_while_putting, True),
    Figure("tree_put_large", 2.0, "s", "rsync", "rsync -a, 1 GiB in 8 files", anew(LARGE), True),
    Figure("tree_put_small", 2.0, "s", "rsync", "rsync -a, 20,000 files of 4 KiB", anew(SMALL), True),
    Figure("tree_same", 1.0, "s", "rsync", "rsync -a, the small files, nothing changed", unchanged(SMALL), True),
    Figure("tree_delta", 2.0, "s", "rsync", "rsync -a, 1 % of 1 GiB changed in place", changed(LARGE), True),
    Figure("tree_delta_whole", 1.0, "s", "rsync", "rsync -a --delay-updates, the same: old files stay until all has come",
           changed(LARGE, True), True),
    Figure("pool_tree_put", 0.5, "s", "rsync", "rsync -a into a folder, 1 GiB in 8 files; ours cuts and hashes them", pooled("put"), True),
    Figure("pool_tree_get", 0.5, "s", "rsync", "rsync -a into a folder, 1 GiB in 8 files; ours checks digests", pooled("get"), True),
    Figure("tunnel_put", 0.8, "B/s", "rsync", "rsync without the tunnel", tunnel("auto")),
    Figure("tunnel_rsync", 0.8, "B/s", "rsync", "rsync without the tunnel", tunnel("rsync")),
    Figure("file_broadcast8", 0.87, "s", "namespaces", "256 MiB over one link of 1 Gbit/s; 8 members", eight(late=False), True),
    Figure("file_broadcast8_late", 0.62, "s", "namespaces", "the same; four of the members join at half-time", eight(late=True), True),
    Figure("file_broadcast1000", 0.77, "s", "", "256 MiB over one link of 1 Gbit/s; 1,000 members, simulated", thousand, True, runs=1),
    Figure("scrape_cost", 0.99, "ops/s", "", "the same node while nobody scrapes; ours is scraped every second, 10^6 keys",
           gets_while_scraped(SMALL_KEYS, SMALL_BYTES, ["--batch", 128, "--inflight", 4]), runs=7),
    Figure("idle_cpu", 1.0, "core", "", "1 % of a core", idle_cpu, True),
)
