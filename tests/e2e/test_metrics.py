# SPDX-License-Identifier: Apache-2.0
"""penstockd --http: every metric beside `penstock stat --json`, keys by pages, members and map, and Prometheus itself."""
from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
from typing import Any, Iterator
from urllib.parse import quote

import members
import pytest
import support
from metrics import Family, Port, Row, Watched, rows
from ports import free_port
from support import Node, bench, penstock, secret_file, start_node, wait_until

HTTP = "--http=127.0.0.1:0"
SMALL = ("--dram=64M", "--page-size=64K", "--shards=2")
MOVING = {"uptime_ms", "rss_anon_bytes", "sessions"}  # they differ from one question to the next
PER_SECOND = {"ms": 1e3, "us": 1e6, "ns": 1e9}
ASKING = ("other", "pool")  # what asking for figures counts as
TIMES = "penstock_operation_duration_seconds"
CALLS = "penstock_pool_call_duration_seconds"


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Iterator[Node]:
    with start_node(*SMALL, HTTP, f"--unix={tmp_path}/socket", "--listen=127.0.0.1:0", listeners=2) as it:
        yield it


def url(tmp_path: pathlib.Path) -> str:
    return f"node+unix://{tmp_path}/socket"


def do(at: str, *arguments: str | bytes, stdin: bytes = b"") -> bytes:
    done = penstock("--url", at, *arguments, stdin=stdin)
    assert done.returncode == 0, done
    return done.stdout


def stat(at: str) -> dict[str, Any]:
    return json.loads(do(at, "stat", "--json"))


def busy(at: str) -> None:
    """Operations of several kinds, and refusals of some."""
    for number in range(20):
        do(at, "put", f"key/{number}", stdin=b"x" * (100 << number % 12))
    for number in range(0, 20, 2):
        do(at, "get", f"key/{number}")
    assert penstock("--url", at, "get", "no such key").returncode != 0
    do(at, "rm", "key/3")
    do(at, "ls", "key/")
    assert penstock("--url", at, "put", "too much", stdin=b"y" * (65 << 20)).returncode != 0


# ---- beside penstock stat ----


def told_as(row: Row, figures: dict[str, Any]) -> dict[str, int]:
    """What of penstock stat's figures a row shows, by what its label has."""
    pattern = re.compile(re.escape(row.figure).replace(r"\*", "(.+)"))
    return {match[1] if "*" in row.figure else "": value for name, value in figures.items() if (match := pattern.fullmatch(name))}


def factor(row: Row, figure: str) -> float:
    """How many of the figure's units are one of the metric's."""
    return PER_SECOND.get(figure.rpartition("_")[2], 1) if row.unit == "seconds" else 1


def pairs(page: dict[str, Family], told: dict[str, Any]) -> Iterator[tuple[str, str, float, float]]:
    """Metric, figure, and the value of each, of all that are no histograms; each series is somewhere among them."""
    pool, seen = told.get("pool", {}), 0
    for row in rows():
        family = page.get(row.metric)
        if row.kind == "histogram" or row.figure == "-" or not family:
            continue
        assert (family.kind, family.text) == (row.kind, row.text)
        for label, value in told_as(row, pool if row.metric.startswith(("penstock_pool_", "penstock_grant_")) else told).items():
            labels = {row.labels: label} if label else {}
            yield row.metric, row.figure, family.value(**labels), value / factor(row, row.figure)
            seen += 1
    own = ("_http_", "_spans_", "_build_")
    plain = [family for name, family in page.items() if family.kind != "histogram" and not any(part in name for part in own)]
    assert seen == sum(len(family.series) for family in plain)


def same_times(page: dict[str, Family], told: dict[str, Any], but: tuple[str, ...]) -> int:
    """Compares the histograms of operations; those that asking changes are left out. Returns how many operations there are."""
    count = 0
    for kind, time_of in told["times"].items():
        if not any(time_of["counts"]) or kind in but:
            continue
        of = (("operation", kind),)
        assert page[TIMES].counts[of] == sum(time_of["counts"])
        assert page[TIMES].sums[of] == pytest.approx(time_of["total_ns"] / 1e9, abs=1e-9)
        before = 0.0
        for number, (bound, sum_of) in enumerate(page[TIMES].buckets(operation=kind)):
            assert bound == (float("inf") if number == 25 else pytest.approx(256e-9 * 2**number))
            assert sum_of - before == time_of["counts"][number]
            before = sum_of
        count += sum(time_of["counts"])
    return count


def test_every_metric_is_a_figure_of_stat(node: Node, tmp_path: pathlib.Path) -> None:
    watched = Watched(node)
    busy(url(tmp_path))
    page, told = watched.metrics(), stat(url(tmp_path))
    compared = set()
    for metric, figure, shown, figure_value in pairs(page, told):
        if figure not in MOVING:
            assert shown == figure_value, metric
        compared.add(figure)
    in_no_metric = {"times", "write_amplification", "lane", "nodes"}
    assert compared == told.keys() - in_no_metric - {"pool"}
    wait_until("none but the port's own is there", lambda: watched.metrics()["penstock_sessions"].value() == 1)
    assert 0 <= told["uptime_ms"] / 1000 - page["penstock_uptime_seconds"].value() < 60
    assert page["penstock_puts_total"].value() == 20 and page["penstock_misses_total"].value() == 1
    assert same_times(page, told, but=ASKING) > 30
    assert told["times"]["other"]["total_ns"] > 0


def test_stats_are_those_of_the_command(node: Node, tmp_path: pathlib.Path) -> None:
    watched = Watched(node)
    busy(url(tmp_path))
    here, told = watched.json("/api/v1/pool/stats"), stat(url(tmp_path))
    for found in (here, told):
        for kind in ASKING:
            del found["times"][kind]
        for name in MOVING:
            del found[name]
    assert {name: told[name] for name in told.keys() - {"lane", "write_amplification"}} == here


def test_operations_are_counted_by_kind(node: Node, tmp_path: pathlib.Path) -> None:
    watched, at = Watched(node), url(tmp_path)
    assert {of[0][1] for of in watched.metrics().get(TIMES, Family("", "")).counts} <= {"other"}
    for op in ("put", "get"):
        do(at, "bench", "--op", op, "--keys", "1000", "--batch", "16", "--fill")
    penstock("--url", at, "rm", "nothing")
    page = watched.metrics()
    counts = {of[0][1]: count for of, count in page[TIMES].counts.items()}
    assert counts["get"] == page["penstock_gets_total"].value() == 1000
    assert counts["put"] == page["penstock_puts_total"].value() == 1000
    assert counts["delete"] >= 1
    assert all(0 < page[TIMES].sums[("operation", kind),] < 60 * counts[kind] for kind in counts)


# ---- a pool ----


def test_a_master_and_its_members(tmp_path: pathlib.Path) -> None:
    with members.master(tmp_path, HTTP) as m:
        watched = Watched(m.node)
        assert watched.ask("/ready")[0] == 200
        with members.member(m, HTTP) as one, members.member(m, HTTP) as two:
            m.has(2)
            pool = f"pool://{m.address}"
            for number in range(30):
                do(pool, "put", f"key/{number}", stdin=b"v" * 1000)
            wait_until("the keys are reported", lambda: watched.metrics()["penstock_pool_keys"].value() >= 30)
            between_two_stats(watched, f"node://{m.address}")
            here = [Watched(one), Watched(two)]
            for of, at in zip(here, (one.tcp, two.tcp)):
                assert of.ask("/ready")[0] == 200
                joined = of.metrics()["penstock_pool_joins_total"].value()
                assert joined == stat(at)["pool"]["joins"] >= 1
                assert of.ask("/api/v1/pool/map")[0] == of.ask("/api/v1/pool/nodes")[0] == 404
            keys = [of.metrics()["penstock_keys"].value() for of in here]
            assert sum(keys) == stat(pool)["keys"] == 30
            members_are_told(m, watched)


def between_two_stats(watched: Watched, at: str) -> None:
    """A master counts all the time, and its metrics are as old as its last tick."""
    before = stat(at)

    def is_newer() -> bool:
        page = watched.metrics()
        return all(shown >= value for metric, _, shown, value in pairs(page, before) if page[metric].kind == "counter")

    wait_until("the metrics have what was counted", is_newer)
    page = watched.metrics()
    for metric, _, shown, value in pairs(page, stat(at)):
        if page[metric].kind == "counter":
            assert shown <= value, metric
        elif metric in ("penstock_pool_members", "penstock_pool_keys", "penstock_pool_term", "penstock_pool_map_version"):
            assert shown == value, metric
    calls = page[CALLS]
    after = stat(at)["pool"]
    for kind in ("heartbeat", "join", "locate", "place"):
        of = (("call", kind),)
        assert before["pool"][f"call_{kind}"] <= calls.counts[of] <= after[f"call_{kind}"]
        assert before["pool"][f"call_{kind}_total_us"] / 1e6 <= calls.sums[of] <= after[f"call_{kind}_total_us"] / 1e6


def members_are_told(m: members.Master, watched: Watched) -> None:
    nodes, seen = watched.json("/api/v1/pool/nodes")["nodes"], m.members()
    assert {(one["member"], one["address"], one["state"]) for one in nodes} == {
        (one["member"], one["address"], "serving") for one in seen}
    found = watched.json("/api/v1/pool/map")
    assert found["version"] == m.figures()["map_version"] and found["term"] == m.figures()["term"]
    assert {one["member"]: one["address"] for one in found["members"]} == {one["member"]: one["address"] for one in seen}
    assert {one["id"] for one in found["members"]} == {one["id"] for one in nodes}
    assert found["prefixes"] == [{"prefix": "", "placement": "anywhere", "replicas": found["prefixes"][0]["replicas"]}]
    assert len(found["partitions"]) == 4096


def test_a_member_is_ready_once_it_has_joined(tmp_path: pathlib.Path) -> None:
    port = free_port()
    with start_node("--listen=127.0.0.1:0", *SMALL, HTTP, f"--master=127.0.0.1:{port}") as node:
        node.wait_for("http: listening on")
        watched = Watched(node)
        status, _, text = watched.ask("/ready")
        assert status == 503 and json.loads(text)["status"] == "not ready" and "master" in json.loads(text)["detail"], text
        assert watched.ask("/health")[0] == 200
        assert watched.metrics()["penstock_pool_joins_total"].value() == 0
        with start_node("--role=master", f"--listen=127.0.0.1:{port}", "--shards=1", f"--pool-map={tmp_path}/map", "--place==anywhere",
                        *members.TIMES):
            wait_until("it has joined", lambda: watched.ask("/ready")[0] == 200)
            assert watched.metrics()["penstock_pool_joins_total"].value() == 1


def test_a_master_is_ready_while_all_partitions_have_a_node(tmp_path: pathlib.Path) -> None:
    with members.master(tmp_path, HTTP, "--incomplete-ms=86400000", place="=home:1") as m:
        watched = Watched(m.node)
        with members.member(m, "--host=h1") as only:
            wait_until("it serves", lambda: m.ask("partitions")["served"] == 4096)
            assert watched.ask("/ready")[0] == 200
            assert watched.metrics()["penstock_pool_partitions_absent"].value() == 0
            only.kill()
            wait_until("it is missed", lambda: watched.ask("/ready")[0] == 503)
        assert "4096 partitions" in watched.ask("/ready")[2]
        assert watched.metrics()["penstock_pool_partitions_absent"].value() == 4096
        assert watched.ask("/health")[0] == 200


# ---- keys ----


def all_keys(watched: Watched, **question: str) -> tuple[list[dict[str, Any]], int]:
    """All keys, and how many answers they took."""
    keys: list[dict[str, Any]] = []
    after: str | None = None
    for answers in range(1, 1000):
        more = question | ({"after": after} if after else {})
        found = watched.json("/api/v1/pool/keys?" + "&".join(f"{name}={quote(value)}" for name, value in more.items()))
        assert len(found["keys"]) <= int(question.get("limit", 100))
        keys += found["keys"]
        after = found["next"]
        if after is None:
            return keys, answers
    raise AssertionError("it does not end")


def test_keys_come_in_pages(node: Node, tmp_path: pathlib.Path) -> None:
    watched, at = Watched(node), url(tmp_path)
    assert watched.json("/api/v1/pool/keys") == {"keys": [], "next": None}
    names = [f"a/{number:04}" for number in range(230)] + ["b/\u00fc &=%2F+?", "b/2"]
    for name in names:
        do(at, "put", name, stdin=name.encode())
    for limit, answers in ((None, 3), ("1000", 1), ("232", 1), ("231", 2), ("29", 8)):
        keys, asked = all_keys(watched, **({"limit": limit} if limit else {}))
        assert [key["key"] for key in keys] == sorted(names, key=str.encode) and asked == answers, limit
        assert all(key["bytes"] == len(key["key"].encode()) for key in keys)
    told = [json.loads(line) for line in do(at, "ls", "--json").splitlines()]
    assert [key["generation"] for key in all_keys(watched)[0]] == [str(key["generation"]) for key in told]
    assert [key["key"] for key in all_keys(watched, prefix="a/00")[0]] == names[:100]
    assert [key["key"] for key in all_keys(watched, prefix="b/\u00fc", limit="1")[0]] == names[230:231]
    assert all_keys(watched, prefix="c")[0] == []


def test_keys_that_are_no_text(node: Node, tmp_path: pathlib.Path) -> None:
    watched, at = Watched(node), url(tmp_path)
    raw = [b"\xff\xfe", b"\x80", b"quote\"back\\line\n"]
    for key in raw:
        do(at, "put", key, stdin=b"v")
    found = all_keys(watched, limit="1")[0]
    assert {bytes.fromhex(key["key_hex"]) if "key_hex" in key else key["key"].encode() for key in found} == set(raw)


@pytest.mark.parametrize("question", ["limit=0", "limit=1001", "limit=", "limit=-1", "limit=1e3", "limit=99999999999999999999999", "after=0",
                                      "after=zz", "after=" + "00" * 4097, "prefix=%00", "prefix=%zz", "prefix=" + "k" * 4097])
def test_bad_questions_for_keys(node: Node, question: str) -> None:
    watched = Watched(node)
    status, _, text = watched.ask(f"/api/v1/pool/keys?{question}")
    assert status == 400 and json.loads(text)["detail"].startswith(question.partition("=")[0] + ":"), text
    assert watched.ask("/ready")[0] == 200


# ---- Prometheus ----


def needs(program: str) -> str:
    found = shutil.which(program)
    if not found:
        pytest.skip(f"{program} is not installed (Debian's package prometheus)")
    return found


def promtool(page: str) -> None:
    done = subprocess.run([needs("promtool"), "check", "metrics"], input=page.encode(), capture_output=True, timeout=support.WAIT_S)
    assert done.returncode == 0, done


def test_promtool_finds_no_fault(tmp_path: pathlib.Path) -> None:
    needs("promtool")
    with members.master(tmp_path, HTTP) as m, members.member(m, HTTP) as node:
        m.has(1)
        busy(node.tcp)
        for watched in (Watched(m.node), Watched(node)):
            promtool(watched.page())


def test_prometheus_has_the_figures(tmp_path: pathlib.Path) -> None:
    program = needs("prometheus")
    token = secret_file(tmp_path / "token", "a token\n")
    with start_node(*SMALL, HTTP, f"--http-token-file={token}", f"--unix={tmp_path}/socket") as node:
        watched = Watched(node, "a token")
        busy(url(tmp_path))
        port = free_port()
        (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": [{
            "job_name": "penstock", "scrape_interval": "1s", "authorization": {"credentials_file": str(token)},
            "static_configs": [{"targets": [f"127.0.0.1:{watched.port}"]}]}]}))
        with open(tmp_path / "log", "wb") as log:
            peer = subprocess.Popen([program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
                                     f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        try:
            own = Port(port)

            def said(question: str) -> list[str]:
                try:
                    found = own.json(f"/api/v1/query?query={quote(question)}")
                except (OSError, AssertionError):
                    return []
                return [one["value"][1] for one in found["data"]["result"]]

            wait_until("Prometheus has scraped it", lambda: said("up") == ["1"])
            told = stat(url(tmp_path))
            for metric, figure in (("penstock_keys", "keys"), ("penstock_puts_total", "puts"), ("penstock_value_bytes", "value_bytes")):
                assert said(metric) == [str(told[figure])]
            median = said(f'histogram_quantile(0.5, {TIMES}_bucket{{operation="get"}})')
            assert len(median) == 1 and 0 < float(median[0]) < 60
        finally:
            peer.terminate()
            peer.wait(support.WAIT_S)


# ---- under load ----


def test_counters_never_fall(node: Node, tmp_path: pathlib.Path) -> None:
    watched, at = Watched(node), url(tmp_path)
    loads = [bench(at, "--op", op, "--keys", "1000", "--size", "512", "--seconds", "3", "--fill") for op in ("put", "get")]
    try:
        pages = [watched.metrics()]
        while len(pages) < 40 or (any(load.poll() is None for load in loads) and len(pages) < 400):
            pages.append(watched.metrics())
    finally:
        for load in loads:
            load.kill()
            load.wait()
    for before, after in zip(pages, pages[1:]):
        assert before.keys() <= after.keys()
        for name, family in before.items():
            for part in ("series", "sums", "counts") if family.kind != "gauge" else ():
                for of, value in getattr(family, part).items():
                    assert value <= getattr(after[name], part)[of], (name, of)
    assert pages[-1]["penstock_puts_total"].value() > pages[0]["penstock_puts_total"].value()
    assert pages[-1]["penstock_http_scrapes_total"].value() == pages[0]["penstock_http_scrapes_total"].value() + len(pages) - 1
    assert pages[-1]["penstock_http_series_dropped_total"].value() == 0
