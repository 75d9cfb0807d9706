# SPDX-License-Identifier: Apache-2.0
"""What a node of its own costs: memory for a key, a share of a core; and what it looks up."""

import time

from node import Node
from procs import BenchError, Stage, run, run_json

NUMBER_BYTES = 16  # of a key of `penstock bench`, behind its prefix


def bytes_per_key(stage: Stage, keys: int, value_bytes: int) -> float:
    """What one key costs a fresh node in memory, key and value included."""
    with stage.sub() as own:
        node = Node(own)
        empty = node.used_bytes()
        node.fill("tcp", value_bytes, keys, 128)
        stored = node.stat()["keys"]
        if stored != keys:
            raise BenchError(f"the node says it holds {stored} keys, not {keys}")
        return (node.used_bytes() - empty) / keys


def ssd_bytes_per_key(stage: Stage, keys: int, value_bytes: int, key_bytes: int) -> float:
    """Memory for a key beyond its own bytes, where its value is on SSD alone: of the record, its reservation, both indexes.

    Against the same node with few keys, begun again as well: what a log has open is no key's.
    """
    with stage.sub() as own:
        node = Node(own, 256 << 20, 1, "--page-size", "256K", "--ssd", str(own.folder / "ssd"),
                    "--ssd-bytes", str(2 * keys * value_bytes), "--ssd-segment", "4M")

        def used_with(count: int) -> int:
            node.bench("local", "--fill", "--op", "put", "--size", value_bytes, "--keys", count, "--batch", 128,
                       "--inflight", 4, "--prefix", "k" * (key_bytes - NUMBER_BYTES))
            node.process.stop()
            node.start_again()
            there = node.stat()
            if there["ssd_keys"] != count:
                raise BenchError(f"the node says that {there['ssd_keys']} values are on SSD, not {count}")
            print(f"  {count} keys, by its own account: "
                  f"{(there['slab_bytes'] + there['index_bytes']) / count - key_bytes:.1f}", flush=True)
            return node.used_bytes()

        few = keys // 50
        empty = used_with(few)
        return (used_with(keys) - empty) / (keys - few) - key_bytes


def mixed_fill_bytes(stage: Stage, dram_bytes: int, shards: int, mix: str) -> float:
    """Value bytes that a fresh node holds when it first says that there is no space."""
    with stage.sub() as own:
        node = Node(own, dram_bytes, shards)
        return node.bench("local", "--op", "put", "--mix", mix, "--until-full")["value_bytes"]


def idle_share(stage: Stage, seconds: float) -> float:
    """CPU share of a fresh node that nobody talks to."""
    with stage.sub() as own:
        node = Node(own)
        run([node.client, "ping", "--url", node.urls["local"]])
        time.sleep(0.5)
        return node.cpu_share(seconds)


def lookups_per_s(stage: Stage, keys: int, batch: int, seconds: float) -> float:
    """Keys a second that one core finds in a directory of so many."""
    said = run_json([stage.program("directory_figures"), str(keys), str(batch), str(seconds)])
    print(f"  {said['bytes_per_key']} bytes a key, filled at {said['adds_per_s']:.3g} keys/s", flush=True)
    return said["lookups_per_s"]


def shares_lookups_per_s(stage: Stage, keys: int, shares: int, batch: int, seconds: float) -> float:
    """Keys a second that the shares of a directory find, each on a core of its own, one after the other."""
    said = run_json([stage.program("shares_figures"), str(keys), "100", str(shares), str(batch), str(seconds / shares)])
    print(f"  {shares} shares: reported in {said['report_s']} s of a core each", flush=True)
    return said["lookups_per_s"]
