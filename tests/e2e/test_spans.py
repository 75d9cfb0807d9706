# SPDX-License-Identifier: Apache-2.0
"""Spans of traced requests, as a collector gets them; and collectors that are not well."""
from __future__ import annotations

import contextlib
import http.client
import os
import pathlib
import shlex
import socket
from typing import Iterator

import metrics
import pytest
import s3
import support
from collector import HANGS, Collector, Span, collector
from data_store import DataStore
from ports import free_port
from support import penstock, start_node, wait_until

USAGE = 2
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{CALLER}-01"
RING = 4096
NODE = ("--listen", "127.0.0.1:0", "--dram", "64M", "--shards", "1")


@pytest.fixture
def gets() -> Iterator[Collector]:
    with collector() as c:
        yield c


def one(spans: list[Span], **wanted: str) -> Span:
    found = [span for span in spans if all(getattr(span, name) == value for name, value in wanted.items())]
    assert len(found) == 1, (wanted, spans)
    return found[0]


def get(url: str, key: str = "k", parent: str = PARENT, **environment: str) -> int:
    return penstock("--url", url, "--traceparent", parent, "get", key, environment=environment).returncode


def figure(node: support.Node, name: str) -> float:
    return metrics.Watched(node).metrics()[name].value()


def test_a_get_that_reads_the_ssd(gets: Collector, tmp_path: pathlib.Path) -> None:
    ssd = f"ssd={tmp_path}/ssd&ssd_bytes=64M&ssd_segment=2M"
    value = b"v" * 50000
    assert penstock("--url", f"mem:?dram=8M&page_size=64K&{ssd}", "put", "k", "--durable", stdin=value).returncode == 0
    with start_node("--listen=127.0.0.1:0", "--dram=8M", "--page-size=64K", f"--ssd={tmp_path}/ssd", "--ssd-bytes=64M",
                    "--ssd-segment=2M", "--otlp", gets.url) as node:
        assert get(node.tcp, PENSTOCK_OTLP=gets.url) == 0
        spans = gets.wait_for(3, TRACE)
    calls = [span for span in spans if span.service == "penstock-client" and span.name == "get"]
    served = one(spans, service="penstock-node", name="get")
    read = one(spans, service="penstock-node", name="ssd read")
    assert [span.parent for span in calls] == [CALLER] * len(calls)
    call = next(span for span in calls if span.id == served.parent)
    assert (call.kind, served.kind, read.kind) == ("client", "server", "internal")
    assert read.parent == served.id and served.begin_ns <= read.begin_ns < read.end_ns <= served.end_ns
    assert served.attributes["penstock.tier"] == read.attributes["penstock.tier"] == "ssd"
    assert served.attributes["penstock.bytes_out"] >= len(value) and not served.failed
    assert "k" not in map(str, served.attributes.values())


def test_only_what_is_sampled(gets: Collector) -> None:
    with start_node(*NODE, "--otlp", gets.url + "/") as node:
        assert get(node.tcp, parent=PARENT[:-2] + "00", PENSTOCK_OTLP=gets.url) == 1
        assert penstock("--url", node.tcp, "put", "k", stdin=b"v").returncode == 0
        assert get(node.tcp) == 0
        node.stop()
    assert [span.name for span in gets.spans()] == ["get"]
    assert set(gets.asked) == {("/v1/traces", "application/json")}


def test_a_share_of_what_has_no_trace(gets: Collector) -> None:
    with start_node(*NODE, "--otlp", gets.url + "/v1/traces", "--trace-sample", "1") as node:
        assert penstock("--url", node.tcp, "put", "k", stdin=b"v" * 5_000_000).returncode == 0
        node.stop()
    spans = gets.spans()
    assert {"reserve", "write", "reservation-commit"} <= {span.name for span in spans}
    assert {span.parent for span in spans} == {""} and len({span.trace for span in spans}) == len(spans)


def test_a_failure_is_named(gets: Collector) -> None:
    with start_node(*NODE, "--otlp", gets.url) as node:
        assert penstock("--url", node.tcp, "put", "k", stdin=b"v" * 100).returncode == 0
        done = penstock("--url", node.tcp, "--traceparent", PARENT, "get", "k", "--range", "90:20")
        assert done.returncode == USAGE, done
        assert get(node.tcp, "missing") == 1
        node.stop()
    assert sorted((span.failed, span.attributes.get("error.type", "")) for span in gets.spans()) == [
        (False, ""), (True, "ERANGE")]


def test_headers_for_the_collector(gets: Collector) -> None:
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20a%3Db%2Cc, x-tenant = one two"}
    with start_node(*NODE, "--otlp", gets.url, environment=support.clean_environment(**headers)) as node:
        assert get(node.tcp, PENSTOCK_OTLP=gets.url, **headers) == 1
        node.stop()
    assert len(gets.headers) == 2
    assert {(said["authorization"], said["x-tenant"]) for said in gets.headers} == {("Bearer a=b,c", "one two")}


@pytest.mark.parametrize("headers", ["secret", "=secret", "a b=secret", "a=secret%0d%0aHost:%20x", "a=secret%zz", "a=", "a=secret,,b=c",
                                     "a=" + "s" * 5000, ",".join(["a=b"] * 33)])
def test_headers_that_cannot_be(gets: Collector, headers: str) -> None:
    code, said = support.fails_to_start(*NODE, "--otlp", gets.url, environment={"OTEL_EXPORTER_OTLP_HEADERS": headers})
    assert code == USAGE and "otlp: OTEL_EXPORTER_OTLP_HEADERS: part " in said and "secret" not in said, said


@pytest.mark.parametrize("url", ["http://user:PASSWORD@127.0.0.1:9/p", "http://127.0.0.1:9/p?token=PASSWORD", "http://127.0.0.1:9/#PASSWORD"])
def test_a_url_with_a_secret_is_refused(url: str) -> None:
    """It would stand in the log."""
    code, said = support.fails_to_start(*NODE, "--otlp", url)
    assert code == USAGE and "OTEL_EXPORTER_OTLP_HEADERS" in said and "PASSWORD" not in said, said


@pytest.mark.parametrize("name", ["ä" * 100, b"\xff\xfename".decode(errors="surrogateescape")], ids=["cut", "bytes"])
def test_a_service_whose_name_is_no_text(gets: Collector, name: str) -> None:
    """A collector reads the spans all the same: of what is cut off within a character, too."""
    with start_node(*NODE) as node:
        assert get(node.tcp, PENSTOCK_OTLP=gets.url, OTEL_SERVICE_NAME=name) == 1
        assert {"?" in span.service for span in gets.wait_for(1, TRACE)} == {True}
        node.stop()


def test_a_collector_that_is_not_there() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with start_node(*NODE, "--otlp", url) as node:
        for _ in range(3):
            assert get(node.tcp, PENSTOCK_OTLP=url) == 1
        node.wait_for("does not take spans")
        assert get(node.tcp, PENSTOCK_OTLP=url) == 1
        node.stop()
        assert node.log().count("otlp: ") == 1


def test_a_collector_that_hangs(gets: Collector) -> None:
    gets.status = HANGS
    with start_node(*NODE, "--otlp", gets.url) as node:
        assert get(node.tcp, PENSTOCK_OTLP=gets.url) == 1
        wait_until("it was asked", lambda: len(gets.asked) >= 2)
        assert get(node.tcp) == 1
        node.stop()
    assert not gets.spans()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may have files of its own in the place of others")
def test_a_collector_whose_name_nobody_resolves(tmp_path: pathlib.Path) -> None:
    """The resolver waits for its servers, a node that ends does not wait for the resolver."""
    settings = tmp_path / "resolv.conf"
    settings.write_text("nameserver 127.83.0.1\noptions timeout:30 attempts:5\n")
    within = ("unshare", "--mount", "sh", "-c", f"mount --bind {shlex.quote(str(settings))} /etc/resolv.conf && exec \"$@\"", "sh")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.83.0.1", 53))
        silent.settimeout(support.WAIT_S)
        with start_node(*NODE, "--otlp", "HTTP://collector.example:4318", within=within) as node:
            assert get(node.tcp) == 1
            silent.recv(1000)
            node.stop()
            assert "collector" in node.log() and "application callback" not in node.log()


def test_a_url_that_is_too_long() -> None:
    code, said = support.fails_to_start(*NODE, "--otlp", "http://127.0.0.1:9/" + "p" * 2000)
    assert code != 0 and "has more than 2000 bytes" in said, said


def test_a_collector_that_is_busy_for_a_while(gets: Collector) -> None:
    gets.status = 503
    with start_node(*NODE, "--otlp", gets.url) as node:
        assert get(node.tcp) == 1
        node.wait_for("does not take spans; those that find no room are dropped: HTTP 503")
        wait_until("it was asked again", lambda: len(gets.asked) >= 2)
        gets.status = 200
        assert len(gets.wait_for(1)) == 1
        node.wait_for("takes spans again")
        assert get(node.tcp) == 1
        assert len(gets.wait_for(2)) == 2
        node.stop()
        assert node.log().count("otlp: ") == 2


def test_requests_over_s3(gets: Collector, tmp_path: pathlib.Path) -> None:
    """Each belongs to the trace that it names: what comes behind one on the same connection, to none."""
    with s3.serving(tmp_path, "--otlp", gets.url) as node:
        connection = http.client.HTTPConnection(s3.address_of(node), timeout=support.WAIT_S)
        for method, target, body, parent in [("PUT", "/bucket", b"", ""), ("PUT", "/bucket/k", b"v" * 5000, PARENT),
                                             ("GET", "/bucket/k", b"", "00-bad"), ("GET", "/bucket/k", b"", PARENT)]:
            connection.request(method, target, body, {"traceparent": parent} if parent else {})
            answer = connection.getresponse()
            assert (answer.status, len(answer.read())) == (200, 5000 if method == "GET" else 0)
        connection.close()
    spans = gets.spans()
    calls = [span for span in spans if span.kind == "client"]
    assert {span.trace for span in spans} == {TRACE} and {span.parent for span in calls} == {CALLER}
    assert sorted({span.name for span in spans if span.kind == "server"}) == ["get", "put", "stat"]


def test_what_a_collector_refuses_is_dropped_and_counted(gets: Collector) -> None:
    gets.status = 400
    with start_node(*NODE, "--otlp", gets.url, "--http", "127.0.0.1:0", listeners=2) as node:
        assert get(node.tcp) == 1
        wait_until("it is dropped", lambda: figure(node, "penstock_spans_dropped_total") == 1)
        gets.status = 200
        assert get(node.tcp) == 1
        wait_until("it is sent", lambda: figure(node, "penstock_spans_sent_total") == 1)
        assert len(gets.asked) == 2


def test_more_than_the_ring_has_room_for(gets: Collector) -> None:
    gets.status = 429
    with start_node(*NODE, "--otlp", gets.url, "--http", "127.0.0.1:0", listeners=2) as node:
        def overflows() -> bool:
            done = penstock("--url", node.tcp, "bench", "--op", "exists", "--keys", "10", "--seconds", "1",
                            environment={"TRACEPARENT": PARENT})
            assert done.returncode == 0, done
            return figure(node, "penstock_spans_dropped_total") > 0

        wait_until("the ring is full", overflows)
        assert figure(node, "penstock_spans_sent_total") == 0
        gets.status = 200
        wait_until("the rest is taken", lambda: figure(node, "penstock_spans_sent_total") == RING)
        assert get(node.tcp) == 1
        node.stop()
    assert len(gets.spans()) == RING + 1


def test_answers_over_http(gets: Collector, tmp_path: pathlib.Path) -> None:
    with DataStore(tmp_path, "--otlp", gets.url) as store:
        for path, header in (("/health", PARENT), ("/nothing", PARENT), ("/health", PARENT[:-2] + "00"), ("/health", "x"),
                             ("/health", None)):
            connection = http.client.HTTPConnection("127.0.0.1", store.http_port, timeout=support.WAIT_S)
            with contextlib.closing(connection):
                connection.request("GET", path, headers={"traceparent": header} if header else {})
                assert connection.getresponse().status in (200, 404)
        store.stop()
    assert {(span.service, span.name, span.parent, span.failed) for span in gets.spans()} == {("penstock-store", "GET", CALLER, False)}
    assert [span.attributes["http.response.status_code"] for span in gets.spans(TRACE)] == [200, 404]


def test_an_agent_has_none(tmp_path: pathlib.Path) -> None:
    code, said = support.fails_to_start("--role", "agent", "--agent-socket", f"{tmp_path}/socket", "--otlp", "http://h")
    assert code == USAGE and "otlp: an agent does not take it" in said


@pytest.mark.parametrize("options", [("--trace-sample", "0.1"), ("--otlp", "here:4318"), ("--otlp", "http://h:99999"),
                                     ("--otlp", "http://h", "--trace-sample", "2"),
                                     ("--otlp", "http://h", "--trace-sample", "0"), ("--otlp", "http://h", "--trace-sample", "x")])
def test_what_cannot_be(options: tuple[str, ...]) -> None:
    code, said = support.fails_to_start(*NODE, *options)
    assert code == USAGE and ("trace_sample: " in said or "otlp: " in said), said
