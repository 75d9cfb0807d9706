# SPDX-License-Identifier: Apache-2.0
"""A penstockd of its own for a figure or a soak, and `penstock bench` against it."""

import json
import time
from typing import Any

from procs import Process, Stage, run, run_json

GIB = 1 << 30


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
                     "stream": f"node://127.0.0.1:{port}?transport=stream",
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
