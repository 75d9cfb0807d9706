# SPDX-License-Identifier: Apache-2.0
"""What it costs a node that Prometheus asks it for its metrics."""

import http.client
import threading
from collections.abc import Callable
from typing import Any

from node import Node
from procs import BenchError, Stage

SCRAPE_S = 1.0
RUN_S = 2
ASK_S_MAX = 5.0

Takers = tuple[Callable[[], float], Callable[[], float]]


class Scraper(threading.Thread):
    """Asks for a node's metrics, at once and then every second, until it is stopped."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port, self._ended = port, threading.Event()
        self.pages = 0

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ASK_S_MAX)
        while True:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            self.pages += answer.status == 200 and b"penstock_keys " in answer.read()
            if self._ended.wait(SCRAPE_S):
                connection.close()
                return

    def stop(self) -> None:
        """BenchError unless it has asked in every second."""
        self._ended.set()
        self.join(ASK_S_MAX)
        if self.pages < RUN_S / SCRAPE_S:
            raise BenchError(f"only {self.pages} scrapes in {RUN_S} s")


def gets_while_scraped(keys: int, value_bytes: int, args: list[Any]) -> Callable[[Stage], Takers]:
    """Gets a second while a client asks for the metrics, and of the same node while none does."""
    def prepare(stage: Stage) -> Takers:
        node = Node(stage, 1 << 30, 1, "--http", "127.0.0.1:0")
        port = int(node.process.wait_text(r"http: listening on \S+:(\d+)")[1])
        node.fill("local", value_bytes, keys, 128)

        def gets() -> float:
            return node.bench("local", "--op", "get", "--size", value_bytes, "--keys", keys, *args, "--seconds", RUN_S)["ops_per_s"]

        def scraped() -> float:
            scraper = Scraper(port)
            scraper.start()
            try:
                return gets()
            finally:
                scraper.stop()

        return scraped, gets
    return prepare
