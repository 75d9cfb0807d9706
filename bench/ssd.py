# SPDX-License-Identifier: Apache-2.0
"""Values on SSD against fio: the same blocks, as many underway, in the same file system, in turn with ours."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from node import Node
from procs import BenchError, Stage, run, run_json

MIB = 1 << 20
GIB = 1 << 30
RUN_S = 1
FILE_BYTES = 2 * GIB
DRAM_BYTES = 64 * MIB
SPILL_DRAM_BYTES = 256 * MIB
SPILL_DEPTH = 8
COLD_DRAM_BYTES = 8 * GIB
COLD = ("--prefix", "cold/", "--size", 2 * MIB, "--keys", 3200)
SOON_S = 0.1
HOT = ("--prefix", "hot/", "--size", 64 << 10, "--keys", 1000)

Takers = tuple[Callable[[], float], Callable[[], float]]


def disk_folder(stage: Stage) -> Path:
    """A folder for the stage in PENSTOCK_BENCH_SSD, else in /var/tmp; in memory it would measure nothing."""
    root = os.environ.get("PENSTOCK_BENCH_SSD", "/var/tmp")
    folder = Path(stage.keep(TemporaryDirectory(prefix="penstock-bench-", dir=root)))
    kind = run(["stat", "--file-system", "--format", "%T", str(folder)]).strip()
    if kind in ("tmpfs", "ramfs"):
        raise BenchError(f"{root} is a {kind}: PENSTOCK_BENCH_SSD names a folder on a disk")
    free = shutil.disk_usage(folder).free
    if free < 12 * FILE_BYTES:
        raise BenchError(f"{root} has {free / 1e9:.1f} GB free, and {12 * FILE_BYTES / 1e9:.1f} are needed")
    print(f"  in {root}, {kind}", flush=True)
    return folder


def fio_command(folder: Path, kind: str, block: int, depth: int, seconds: float = 0) -> list[str]:
    """fio in one pass over its file, or for `seconds` in it; with registered files and memory, as ours has them."""
    limit = ["--time_based", f"--runtime={seconds}"] if seconds else []
    return ["fio", "--name=peer", f"--filename={folder}/fio", f"--size={FILE_BYTES}", f"--rw={kind}",
            f"--bs={block}", f"--iodepth={depth}", "--ioengine=io_uring", "--direct=1", "--fixedbufs=1",
            "--registerfiles=1", "--norandommap", "--randrepeat=0", "--invalidate=0",
            "--output-format=json", *limit]


def fio(folder: Path, kind: str, block: int, depth: int, seconds: float = 0) -> dict[str, Any]:
    """What fio tells of it."""
    told = run(fio_command(folder, kind, block, depth, seconds))
    return json.loads(told)["jobs"][0]["read" if "read" in kind else "write"]


def reads(size: int, depth: int) -> Callable[[Stage], Takers]:
    """Gets from an embedded store of values that are on SSD alone, `depth` underway, against fio's random reads."""
    def prepare(stage: Stage) -> Takers:
        folder = disk_folder(stage)
        url = f"mem:?dram={DRAM_BYTES}&ssd={folder}/ours&ssd_bytes={2 * FILE_BYTES}"
        bench = [stage.program("penstock"), "bench", "--url", url, "--json", "--size", str(size),
                 "--keys", str(FILE_BYTES // size)]
        run_json([*bench, "--op", "put", "--fill", "--batch", "16", "--inflight", "4"])
        fio(folder, "write", 2 * MIB, SPILL_DEPTH)

        def ours() -> float:
            told = run_json([*bench, "--op", "get", "--inflight", str(depth), "--seconds", str(RUN_S)])
            return told["bytes_per_s"] * (1 - DRAM_BYTES / FILE_BYTES)  # no more than that was in memory

        return ours, lambda: fio(folder, "randread", size, depth, RUN_S)["bw_bytes"]
    return prepare


def ssd_node(stage: Stage, folder: Path, dram_bytes: int) -> Node:
    """A node with an SSD, in a folder of its own, as a first use of a disk has it."""
    return Node(stage, dram_bytes, 1, "--ssd", str(folder / "ours"), "--ssd-bytes", str(10 * FILE_BYTES))


def spill(stage: Stage) -> Takers:
    """What puts of 2 MiB through a node with little memory have written by their end, against fio's writes."""
    folder = disk_folder(stage)

    def ours() -> float:
        with stage.sub() as own:
            node = ssd_node(own, folder, SPILL_DRAM_BYTES)
            told = node.bench("local", "--fill", "--op", "put", "--size", 2 * MIB, "--keys", FILE_BYTES // (2 * MIB),
                              "--inflight", SPILL_DEPTH)
            written = node.stat()["ssd_written_bytes"]
        shutil.rmtree(folder / "ours")
        return written / told["seconds"]

    def peer() -> float:
        (folder / "fio").unlink(missing_ok=True)
        return fio(folder, "write", 2 * MIB, SPILL_DEPTH)["bw_bytes"]

    return ours, peer


def gets(node: Node) -> float:
    """p99 of gets of values in memory."""
    return node.bench("local", "--op", "get", *HOT, "--seconds", RUN_S)["p99_us"]


def gets_beside(node: Node, command: list[object], wait_s: float) -> float:
    """p99 of gets while another process runs, from `wait_s` after its start on."""
    other = subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        time.sleep(wait_s)
        value = gets(node)
        if other.poll() is not None:
            raise BenchError(f"{command[0]} ended before the gets")
    finally:
        other.wait()
    if other.returncode != 0:
        raise BenchError(f"{command[0]} ended with {other.returncode}")
    return value


def client_of(node: Node, *command: object) -> list[object]:
    """A client's command line."""
    return [node.client, *command, "--url", node.urls["local"]]


def gets_while_spilling(against_fio: bool) -> Callable[[Stage], Takers]:
    """p99 of gets of values in memory while the node writes all others to the SSD as fast as it takes them, against the
    same without that, or while fio writes there as much in our place: what any writer costs on these cores.

    The others were put before, and did not spill: a client that puts large values meanwhile would take its share of
    the cores, and of the shard, whether they go to an SSD or not (`gets_while_putting`).
    """
    def prepare(stage: Stage) -> Takers:
        folder = disk_folder(stage)
        node = ssd_node(stage, folder, COLD_DRAM_BYTES)
        node.bench("local", "--fill", "--op", "put", *HOT)

        def spilling() -> float:
            node.bench("local", "--fill", "--op", "put", *COLD)
            return gets_beside(node, client_of(node, "flush"), SOON_S)

        if not against_fio:
            return spilling, lambda: gets(node)
        fio(folder, "write", 2 * MIB, SPILL_DEPTH)
        return spilling, lambda: gets_beside(node, fio_command(folder, "write", 2 * MIB, SPILL_DEPTH, 2 * RUN_S), 5 * SOON_S)
    return prepare


def gets_while_putting(stage: Stage) -> Takers:
    """p99 of gets while another client puts values of 2 MiB into memory, without an SSD, against the same without that."""
    node = Node(stage, GIB)
    node.bench("local", "--fill", "--op", "put", *HOT)
    put = client_of(node, "bench", "--op", "put", "--prefix", "cold/", "--size", 2 * MIB, "--keys", 300, "--seconds", RUN_S + 1)
    return lambda: gets_beside(node, put, SOON_S), lambda: gets(node)
