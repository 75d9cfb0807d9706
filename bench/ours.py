"""Our side of a figure: a penstockd of its own, and `penstock bench` against it."""

import json
import time
from typing import Any

from procs import BenchError, Process, Stage, run, run_json

GIB = 1 << 30
NUMBER_BYTES = 16  # of a key of `penstock bench`, behind its prefix


class Node:
    """A penstockd on a free loopback port and a unix socket, ready when constructed.

    Parameters
    ----------
    stage : Stage
    dram_bytes : int
        Size of the arenas.
    shards : int
    more : str
        Further options of penstockd.
    """

    def __init__(self, stage: Stage, dram_bytes: int = GIB, shards: int = 1, *more: str) -> None:
        self.client = stage.program("penstock")
        self._stage = stage
        self._path = stage.folder / "node.sock"
        self._options = ("--dram", str(dram_bytes), "--shards", str(shards), *more)
        self._start(0)

    def _start(self, port: int, *more: str) -> None:
        self.process: Process = self._stage.start([
            self._stage.program("penstockd"), "--listen", f"127.0.0.1:{port}",
            "--unix", str(self._path), *self._options, *more])
        port = int(self.process.wait_text(r"listening on 127\.0\.0\.1:(\d+)")[1])
        self.process.wait_text(r"listening on unix:")
        self.port = port
        self.urls = {"tcp": f"node://127.0.0.1:{port}?lane=tcp",
                     "local": f"node+unix://{self._path}"}

    def start_again(self, *more: str) -> None:
        """A new process with the same addresses and options, but for those, when the last one has ended."""
        self._start(self.port, *more)

    def bench(self, lane: str, *args: object) -> dict[str, Any]:
        """One `penstock bench` over "tcp" or "local"; its JSON."""
        command = [self.client, "bench", "--url", self.urls[lane], "--json"]
        return run_json([*command, *map(str, args)])

    def fill(self, lane: str, size: int, keys: int, batch: int) -> None:
        """Store every key of the key space once."""
        self.bench(lane, "--fill", "--op", "put", "--size", size, "--keys", keys,
                   "--batch", batch, "--inflight", 4)

    def stat(self) -> dict[str, Any]:
        """The node's `penstock stat`."""
        return json.loads(run([self.client, "stat", "--url", self.urls["local"], "--json"]))

    def used_bytes(self) -> int:
        """Private memory of the daemon and the arena pages in use, in bytes."""
        stat = self.stat()
        return self.process.rss_bytes("RssAnon") + stat["pages_used"] * stat["page_bytes"]

    def cpu_share(self, seconds: float) -> float:
        """Share of one core that the node uses over `seconds`; one clock tick at least."""
        before, begin = self.process.cpu_s(), time.monotonic()
        time.sleep(seconds)
        return max(self.process.cpu_s() - before, 0.01) / (time.monotonic() - begin)


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
    """Memory for a key beyond its own bytes, where its value is on SSD alone: of the record, its slot, both indexes.

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
