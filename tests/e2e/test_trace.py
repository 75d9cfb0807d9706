# SPDX-License-Identifier: Apache-2.0
"""A request's trace: said by the client, named by every node that takes part."""
from __future__ import annotations

import pathlib

import home_pool
import pytest
import support
from support import penstock, start_node

USAGE = 2
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
LARGE = bytes(48 << 20)  # takes longer than a millisecond anywhere


def traced_lines(node: support.Node) -> list[str]:
    return [line for line in node.log().splitlines() if line.rstrip().endswith(f", trace {TRACE}")]


@pytest.mark.skipif(support.sanitized(), reason="a sanitizer wants to be the first library")
def test_slow_lines_name_the_trace(tmp_path: pathlib.Path) -> None:
    """Of puts that wait for a disk which takes longer than --slow-ms."""
    slow = {"LD_PRELOAD": support.preloadable(support.BUILD / "tests/e2e/slow_sync.so")}
    put = ("put", "--durable")
    with start_node("--listen", "127.0.0.1:0", "--dram", "64M", "--slow-ms", "1", f"--ssd={tmp_path}/ssd", "--ssd-bytes=64M",
                    "--ssd-segment=2M", "--ssd-driver=posix", environment=slow) as node:
        assert penstock("--url", node.tcp, *put, "without", stdin=b"value").returncode == 0
        node.wait_for("first key 'without'")
        assert not traced_lines(node)
        assert penstock("--url", node.tcp, "--traceparent", PARENT, *put, "by-flag", stdin=b"value").returncode == 0
        environment = support.clean_environment(TRACEPARENT=PARENT)
        assert penstock("--url", node.tcp, *put, "by-variable", stdin=b"value", environment=environment).returncode == 0
        node.wait_for("first key 'by-variable'")
        keys = {line.split("first key '")[1].split("'")[0] for line in traced_lines(node)}
        assert keys == {"by-flag", "by-variable"}


@pytest.mark.parametrize("text", ["x", PARENT.upper(), PARENT + "-", f"00-{'0' * 32}-00f067aa0ba902b7-01"])
def test_what_is_no_traceparent(text: str) -> None:
    with start_node("--listen", "127.0.0.1:0", "--dram", "16M") as node:
        done = penstock("--url", node.tcp, "--traceparent", text, "put", "key", stdin=b"value")
        assert done.returncode == USAGE and b"is no traceparent" in done.stderr
        environment = support.clean_environment(TRACEPARENT=text)
        assert penstock("--url", node.tcp, "put", "key", stdin=b"value", environment=environment).returncode == 0


class SlowPool(home_pool.Pool):
    """Whose nodes log all that takes a millisecond."""

    def node(self, number: int) -> support.Node:
        return home_pool.member(self.master, f"--host=h{number}", "--replica-ms=5000", "--dram=256M", "--slow-ms=1")


def test_copies_belong_to_the_trace_of_their_put(tmp_path: pathlib.Path) -> None:
    with home_pool.pool(tmp_path, 2, kind=SlowPool) as pool:
        assert penstock("--url", pool.url, "--traceparent", PARENT, "put", "key", stdin=LARGE).returncode == 0
        support.wait_until("two nodes have logged it", lambda: sum(bool(traced_lines(node)) for node in pool.nodes) == 2)
        words = [{line.split("operations (")[1].split(")")[0] for line in traced_lines(node)} for node in pool.nodes]
        assert {"copy"} in words and set() in words
        assert any("reservation-commit" in those for those in words)
