# SPDX-License-Identifier: Apache-2.0
"""Spans of a client, its nodes and its master as one tree, read with OpenTelemetry's own messages."""
from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import support
from collector import Collector, Span, collector
from home_pool import Pool
from members import master, member

proto = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
json_format = pytest.importorskip("google.protobuf.json_format")

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{CALLER}-01"


@pytest.fixture
def gets() -> Iterator[Collector]:
    with collector() as c:
        yield c


def run(url: str, lines: str, gets: Collector, **environment: str) -> None:
    """A program of its own, whose spans go to the collector; `store` is there, its calls belong to the trace."""
    program = (f"import penstock\nwith penstock.open({url!r}) as store, penstock.traced({PARENT!r}):\n"
               + "".join(f"    {line}\n" for line in lines.splitlines()))
    more = {"PYTHONPATH": str(support.BUILD / "python"), **(environment or {"PENSTOCK_OTLP": gets.url})}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=support.WAIT_S, env=support.clean_environment(**more))


def as_bytes(message: Any) -> Any:
    """Ids as protobuf's own JSON has them: OTLP writes hexadecimal digits."""
    if isinstance(message, list):
        return [as_bytes(item) for item in message]
    if not isinstance(message, dict):
        return message
    return {name: base64.b64encode(bytes.fromhex(value)).decode() if name in ("traceId", "spanId", "parentSpanId")
            else as_bytes(value) for name, value in message.items()}


def check_messages(gets: Collector) -> None:
    """They are what the collector's protocol has, member by member."""
    count = 0
    for body in gets.bodies:
        request = json_format.ParseDict(as_bytes(json.loads(body)), proto.ExportTraceServiceRequest())
        for span in (span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans):
            assert len(span.trace_id) == 16 and len(span.span_id) == 8 and len(span.parent_span_id) in (0, 8)
            assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano and span.name
            assert span.flags & 1
            count += 1
    assert count == len(gets.spans())


def below(spans: list[Span], parent: str) -> list[Span]:
    return [span for span in spans if span.parent == parent]


class TracedPool(Pool):
    gets: Collector

    def node(self, number: int) -> support.Node:
        return member(self.master, f"--host=h{number}", "--replica-ms=5000", "--otlp", self.gets.url)


def test_a_put_with_two_copies(gets: Collector, tmp_path: pathlib.Path) -> None:
    TracedPool.gets = gets
    pool = TracedPool(tmp_path, 2, "--otlp", gets.url)
    with contextlib.closing(pool):
        run(pool.url, "store.put('key', bytes(100_000))", gets)
        spans = gets.wait_for(3, TRACE)
    call, = below(spans, CALLER)
    served, = below(spans, call.id)
    copied, = below(spans, served.id)
    assert [(span.service, span.name, span.kind) for span in (call, served, copied)] == [
        ("penstock-client", "put", "client"), ("penstock-node", "put", "server"), ("penstock-node", "copy", "server")]
    assert call.begin_ns < served.begin_ns < copied.begin_ns
    assert all(span.begin_ns < span.end_ns for span in spans)
    assert served.attributes["penstock.bytes_in"] >= 100_000 and copied.attributes["penstock.bytes_in"] >= 100_000
    assert not below(spans, copied.id) and len(spans) == 3
    check_messages(gets)


def test_a_master_that_is_asked(gets: Collector, tmp_path: pathlib.Path) -> None:
    with (master(tmp_path, "--otlp", gets.url) as m, member(m, "--otlp", gets.url)):
        m.has(1)
        run(f"pool://{m.address}", "store.put('page', bytes(5000))", gets)
        spans = gets.wait_for(3, TRACE)
    call, = below(spans, CALLER)
    assert {(span.service, span.name) for span in below(spans, call.id)} == {("penstock-master", "pool"), ("penstock-node", "put")}
    check_messages(gets)


def test_calls_of_many_kinds(gets: Collector) -> None:
    with support.start_node("--listen", "127.0.0.1:0", "--dram", "64M", "--otlp", gets.url) as node:
        run(node.tcp, """\
store.put_many({f'k{i}': b'v' * 10 for i in range(20)})
assert store.get('k1') == b'v' * 10
assert store.get('missing', None) is None
import asyncio
async def both():
    return await asyncio.gather(store.aio.get('k2'), store.aio.exists('k3'))
assert asyncio.run(both()) == [b'v' * 10, True]""", gets)
        node.stop()
    calls = below(gets.spans(TRACE), CALLER)
    said = [(span.name, span.attributes.get("db.operation.batch.size", 1), span.failed) for span in calls]
    assert ("put", 20, False) in said and said.count(("get", 1, False)) >= 2 and ("mixed", 2, False) in said
    assert next(span for span in calls if span.name == "put").attributes["penstock.bytes_out"] == 200
    assert all(below(gets.spans(TRACE), span.id) for span in calls)
    check_messages(gets)


@pytest.mark.parametrize("environment, comes", [
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "URL", "OTEL_SERVICE_NAME": 'a "name"'}, True),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "URL", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "URL", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False),
    ({"OTEL_SERVICE_NAME": "somebody"}, False)])
def test_variables_of_opentelemetry(gets: Collector, environment: dict[str, str], comes: bool) -> None:
    said = {name: value.replace("URL", gets.url) for name, value in environment.items()}
    run("mem:", "store.put('key', b'value')", gets, **said)
    assert [(span.service, span.name) for span in gets.spans(TRACE)] == (
        [(environment.get("OTEL_SERVICE_NAME", "penstock-client"), "put")] if comes else [])


def test_a_child_of_a_fork_has_spans_of_its_own(gets: Collector) -> None:
    run("mem:", """\
store.put('parent', b'value')
import os
child = os.fork()
if child == 0:
    other = penstock.open('mem:')
    other.put_many({'a': b'1', 'b': b'2'})
    other.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert store.get('parent') == b'value'""", gets)
    spans = gets.spans(TRACE)
    assert sorted((span.name, span.attributes.get("db.operation.batch.size", 1)) for span in spans) == [
        ("get", 1), ("put", 1), ("put", 2)]
    assert len({os.fspath(span.id) for span in spans}) == 3


def test_a_node_within_a_program(gets: Collector, tmp_path: pathlib.Path) -> None:
    run("mem:", f"""\
with penstock.Node(unix="{tmp_path}/socket", dram="16M") as node:
    with penstock.open("node+unix://{tmp_path}/socket") as other:
        other.put('key', b'value')""", gets)
    spans = gets.spans(TRACE)
    call, = below(spans, CALLER)
    served, = below(spans, call.id)
    assert (call.kind, served.kind, served.name) == ("client", "server", "put")
