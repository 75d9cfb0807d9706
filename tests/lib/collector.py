# SPDX-License-Identifier: Apache-2.0
"""A collector of OpenTelemetry: takes spans as OTLP over HTTP with JSON, and says what came."""
from __future__ import annotations

import contextlib
import http.server
import json
import threading
from dataclasses import dataclass
from typing import Any, Iterator

from support import wait_until

HANGS = 0  # as a status: it takes the request, and never answers
KINDS = {1: "internal", 2: "server", 3: "client"}


@dataclass
class Span:
    service: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str
    begin_ns: int
    end_ns: int
    attributes: dict[str, str | int]
    failed: bool


def value_of(value: dict[str, str]) -> str | int:
    return int(value["intValue"]) if "intValue" in value else value["stringValue"]


def attributes_of(holder: dict[str, Any]) -> dict[str, str | int]:
    return {pair["key"]: value_of(pair["value"]) for pair in holder["attributes"]}


def spans_of(message: dict[str, Any]) -> Iterator[Span]:
    for resource in message["resourceSpans"]:
        service = str(attributes_of(resource["resource"])["service.name"])
        for span in (span for scope in resource["scopeSpans"] for span in scope["spans"]):
            yield Span(service, span["name"], KINDS[span["kind"]], span["traceId"], span["spanId"], span["parentSpanId"],
                       int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]), attributes_of(span),
                       span["status"].get("code") == 2)


class Collector:
    """`status` is what it answers; `bodies` are those that it has taken."""

    def __init__(self) -> None:
        self.status = 200
        self.asked: list[tuple[str, str]] = []  # path and content type of each request
        self.headers: list[dict[str, str]] = []  # names in lower case
        self.bodies: list[bytes] = []
        self.ends = threading.Event()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.asked.append((self.path, self.headers["Content-Type"]))
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                status = collector.status
                if status == HANGS:
                    collector.ends.wait()
                    return
                if status == 200:
                    collector.bodies.append(body)
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self, trace: str | None = None) -> list[Span]:
        every = [span for body in list(self.bodies) for span in spans_of(json.loads(body))]
        return [span for span in every if trace is None or span.trace == trace]

    def wait_for(self, count: int, trace: str | None = None) -> list[Span]:
        wait_until(f"{count} spans have come", lambda: len(self.spans(trace)) >= count)
        return self.spans(trace)

    def close(self) -> None:
        self.ends.set()
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    c = Collector()
    try:
        yield c
    finally:
        c.close()
