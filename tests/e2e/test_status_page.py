# SPDX-License-Identifier: Apache-2.0
"""The page at / of --http, in a real browser: every number on it beside `penstock stat`."""
from __future__ import annotations

import contextlib
import http.server
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
from html.parser import HTMLParser
from typing import Iterator

import pytest
import support
from members import master, member
from metrics import Watched
from support import penstock, secret_file, start_node, wait_until

HTTP = "--http=127.0.0.1:0"
SOURCE = pathlib.Path(__file__).resolve().parents[2] / "src/monitor/page.html"
TIMES = "penstock_operation_duration_seconds"
STATS = dict.fromkeys(("keys", "value_bytes", "pinned", "pinned_bytes", "waits", "watches", "sessions", "shards", "pages", "pages_used",
                       "page_bytes", "ssd_capacity_bytes", "hbm_capacity_bytes", "gets", "hits", "puts", "evictions", "uptime_ms"), 0)
CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="no chromium: ci/install full has it")


class Page(HTMLParser):
    """What a browser made of the page."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.values: dict[str, float] = {}
        self.nodes: list[list[str]] = []
        self.rows: dict[str, list[str]] = {}  # texts by the last id before them
        self.data: dict[str, dict[str, str | None]] = {}
        self.texts: dict[str, str] = {}
        self._id = ""
        with tempfile.TemporaryDirectory() as profile:
            done = subprocess.run([CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
                                   "--virtual-time-budget=5000", "--dump-dom", f"http://127.0.0.1:{port}/"],
                                  capture_output=True, text=True, timeout=support.WAIT_S)
        assert done.returncode == 0, done.stderr
        self.feed(done.stdout)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        has = dict(attributes)
        if has.get("data-value"):
            self.values[has["data-figure"]] = float(has["data-value"])
        if "data-node" in has:
            self.nodes.append([])
        if "id" in has:
            self._id = has["id"] or ""
            self.data[self._id] = has

    def handle_data(self, text: str) -> None:
        if self.nodes and self._id == "nodes" and text.strip():
            self.nodes[-1].append(text.strip())
        if text.strip():
            self.rows.setdefault(self._id, []).append(text.strip())
        self.texts.setdefault(self._id, text)


def stat(url: str) -> dict:
    done = penstock("--url", url, "stat", "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def test_it_brings_everything_along() -> None:
    with start_node("--dram=16M", "--listen=127.0.0.1:0", HTTP) as node:
        status, kind, text = Watched(node).ask("/")
        assert (status, kind) == (200, "text/html; charset=utf-8")
        assert text == SOURCE.read_text()
        assert not re.search(r"(src|href)=.?(https?:)?//|@import|url\(", text)


@needs_chromium
def test_numbers_of_a_node(tmp_path: pathlib.Path) -> None:
    with start_node("--dram=64M", "--page-size=64K", f"--unix={tmp_path}/s", HTTP) as node:
        url = f"node+unix://{tmp_path}/s"
        for number in range(30):
            assert penstock("--url", url, "put", f"k/{number}", stdin=b"x" * 50_000).returncode == 0
        for key in ("k/1", "k/2", "k/3", "none"):
            penstock("--url", url, "get", key)
        page, told = Page(Watched(node).port), stat(url)
        assert page.texts["ready"] == "ready"
        assert {name: page.values[name] for name in ("keys", "value_bytes", "pinned", "waits", "watches", "shards")} == \
            {name: told[name] for name in ("keys", "value_bytes", "pinned", "waits", "watches", "shards")}
        assert page.values["memory_bytes"] == told["pages"] * told["page_bytes"] == 64 << 20
        assert page.values["memory_share"] == pytest.approx(told["pages_used"] / told["pages"])
        assert page.values["refused_rate"] == page.values["evictions_rate"] == 0
        assert "hidden" in page.data["nodes"] and "hidden" in page.data["partitions"] and "hidden" in page.data["fault"]


@needs_chromium
def test_numbers_of_a_pool(tmp_path: pathlib.Path) -> None:
    with master(tmp_path, "--nodes-min=2", HTTP, place="=home:2") as m, \
            member(m, "--dram=16M", "--host=a"), member(m, "--dram=32M", "--host=b"):
        m.has(2)
        url = f"pool://{m.address}"
        wait_until("it takes values", lambda: penstock("--url", url, "put", "k", stdin=b"x").returncode == 0)
        wait_until("both have all", lambda: [node["primaries"] + node["copies"] for node in nodes(url)] == [4096] * 2)
        page, told = Page(Watched(m.node).port), nodes(url)
        assert len(page.nodes) == 2
        assert sorted(row[:4] for row in page.nodes) == sorted(
            [node["address"], "serving", str(node["primaries"]), str(node["copies"])] for node in told)
        assert page.values["memory_bytes"] == sum(node["capacity_bytes"] for node in told) == 48 << 20
        assert (page.data["partition_text"]["data-short"], page.data["partition_text"]["data-lost"]) == ("0", "0")
        assert page.texts["partition_text"].startswith("4096 served;")


def nodes(url: str) -> list[dict]:
    return [json.loads(line) for line in penstock("--url", url, "node", "list", "--json").stdout.splitlines()]


@needs_chromium
def test_a_port_with_a_token(tmp_path: pathlib.Path) -> None:
    token = secret_file(tmp_path / "token", "a token")
    with start_node("--dram=16M", "--listen=127.0.0.1:0", HTTP, f"--http-token-file={token}") as node:
        page = Page(Watched(node).port)
        assert "hidden" not in page.data["ask"] and page.texts["fault"] == "this port wants a token"
        assert "keys" not in page.values


class Told(http.server.BaseHTTPRequestHandler):
    """A port that serves the page, and says of each look that 100 more gets took up to 16.8 ms and 50 more longer."""

    ready = (200, {"status": "ready"})
    leads = True
    looks = 0

    def do_GET(self) -> None:
        """By the path."""
        path = self.path.partition("?")[0]
        status, body = 200, ""
        if path == "/":
            body = SOURCE.read_text()
        elif path == "/ready":
            status, body = self.ready[0], json.dumps(self.ready[1])
        elif path == "/metrics":
            type(self).looks += 1
            counts = [0, 100 * self.looks, 150 * self.looks]
            body = "".join(f'{TIMES}_bucket{{operation="get",le="{le}"}} {count}\n'
                           for le, count in zip(("0.008388608", "0.016777216", "+Inf"), counts))
            body += f'{TIMES}_sum{{operation="get"}} 1.0\n{TIMES}_count{{operation="get"}} {counts[-1]}\n'
        elif not self.leads:
            status, body = 503, json.dumps({"detail": "this master does not lead"})
        elif path == "/api/v1/pool/stats":
            body = json.dumps(STATS)
        else:
            status, body = 404, "{}"
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if path == "/" else "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def told(**has: object) -> Iterator[Page]:
    """The page of a port that says what it is told to."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Port", (Told,), has)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield Page(server.server_address[1])
        finally:
            server.shutdown()


@needs_chromium
def test_operations_that_take_long() -> None:
    """As many as the column says: those of the bucket that ends at 16.8 ms are none."""
    with told() as page:
        name, rate, _, _, long = page.rows["operations"][-5:]
        assert name == "get" and float(long) > 0 and float(long) == pytest.approx(float(rate) / 3, rel=0.05), page.rows


@needs_chromium
def test_a_master_that_stands_by() -> None:
    with told(leads=False, ready=(503, {"status": "not ready", "detail": "this master does not lead"})) as page:
        assert page.texts["ready"] == "not ready: this master does not lead"
        assert page.texts["fault"] == "this master does not lead"
