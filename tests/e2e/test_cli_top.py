# SPDX-License-Identifier: Apache-2.0
"""`penstock top`."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pty
import signal
import subprocess
import time
from typing import Iterator

import pytest
import support
from cli import OTHER, UNREACHABLE, USAGE, Cli
from members import master, member
from support import penstock, start_node, wait_until


@pytest.fixture
def cli(tmp_path: pathlib.Path) -> Iterator[Cli]:
    with start_node("--dram=64M", "--unix", str(tmp_path / "s")) as node:
        yield Cli(f"node+unix://{tmp_path}/s", node)
        node.stop()


@contextlib.contextmanager
def start(url: str, *arguments: str, stdout: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    top = subprocess.Popen([support.BUILD / "penstock", "--url", url, "top", "--every=100", *arguments], stdin=subprocess.DEVNULL,
                           stdout=stdout, stderr=subprocess.PIPE, text=True, env=support.clean_environment(), process_group=0)
    with top:
        try:
            yield top
        finally:
            top.kill()


def test_objects_tell_what_the_store_has_and_does(cli: Cli) -> None:
    cli("put", "k", stdin=b"x" * 1000)
    with start(cli.url, "--json") as top:
        try:
            first = json.loads(top.stdout.readline())
            stat = cli.json("stat")
            assert first["keys"] == 1 and first["value_bytes"] == 1000 and first["gets_per_s"] == 0
            assert first["memory_bytes"] == stat["pages"] * stat["page_bytes"] == 64 << 20
            assert first["memory_used_bytes"] == stat["pages_used"] * stat["page_bytes"]
            assert first["ping_us"] > 0 and first["sessions"] >= 1 and "nodes" not in first
            cli("get", "k"), cli("get", "none", code=1)
            gets = hits = 0.0

            def both_were_seen() -> bool:
                nonlocal gets, hits
                look = json.loads(top.stdout.readline())
                gets, hits = gets + look["gets_per_s"], hits + look["hits_per_s"]
                return 0 < hits < gets
            wait_until("one of two gets is a hit", both_were_seen)
        finally:
            top.send_signal(signal.SIGINT)
            assert top.wait(support.WAIT_S) == 0


def test_lines_and_their_count(cli: Cli) -> None:
    lines = cli("top", "--every=100", "--count=3").decode().splitlines()
    assert len(lines) == 4 and lines[0].split()[:2] == ["keys", "memory"]
    assert [line.split()[0] for line in lines[1:]] == ["0"] * 3
    assert cli.json("top", "--count=1")["keys"] == 0


def test_a_store_that_goes_and_comes_back(tmp_path: pathlib.Path) -> None:
    arguments = ("--dram=16M", "--unix", str(tmp_path / "s"))
    with start_node(*arguments) as node:
        url = f"node+unix://{tmp_path}/s"
        with start(url, "--json", "--timeout=300") as top:
            try:
                assert json.loads(top.stdout.readline())["keys"] == 0
                node.kill()
                wait_until("it is told", lambda: str(tmp_path) in json.loads(top.stdout.readline()).get("error", ""))
                with start_node(*arguments):
                    Cli(url)("put", "k", stdin=b"x")
                    wait_until("it is back", lambda: json.loads(top.stdout.readline()).get("keys") == 1)
            finally:
                top.terminate()
                top.wait(support.WAIT_S)
    assert penstock("--url", url, "top", "--count=1", "--timeout=300").returncode == UNREACHABLE


def nodes(url: str) -> list[dict]:
    return Cli(url).json("top", "--count=1")["nodes"]


def test_nodes_of_a_pool(tmp_path: pathlib.Path) -> None:
    with master(tmp_path, "--nodes-min=2", place="=home") as m, member(m, "--dram=16M"), member(m, "--dram=16M"):
        m.has(2)
        url = f"pool://{m.address}"
        wait_until("both serve all", lambda: sum(node["primaries"] for node in nodes(url) if node["state"] == "serving") == 4096)
        look = nodes(url)
        assert len(look) == 2
        assert all(node["capacity_bytes"] == 16 << 20 for node in look)


def screen_of(url: str, *arguments: str) -> str:
    """What it writes to a terminal until it is interrupted."""
    ours, theirs = pty.openpty()
    try:
        with start(url, *arguments, stdout=theirs) as top:
            text = b""
            while b"puts/s" not in text or text.count(b"\033[H") < 3:
                text += os.read(ours, 65536)
            top.send_signal(signal.SIGINT)
            assert top.wait(support.WAIT_S) == 0, top.stderr.read()
            while not text.endswith(b"\033[?1049l"):
                text += os.read(ours, 65536)
        return text.decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_screen_that_is_given_back(cli: Cli) -> None:
    cli("put", "k", stdin=b"x" * 1000)
    text = screen_of(cli.url)
    assert text.startswith("\033[?1049h\033[?25l\033[?7l")  # no line goes on in the next one
    assert text.endswith("\033[?7h\033[?25h\033[?1049l")
    assert "1 keys, 1000 B" in text and "of 64.00 MiB" in text and "node " not in text
    assert "\n" not in text  # which would scroll a terminal that has too few lines


@pytest.mark.skipif(support.build_option("b_sanitize") == "thread", reason="the thread sanitizer lets no signal stop what handles one")
def test_a_screen_that_is_given_back_while_stopped(cli: Cli) -> None:
    """And had again from then on, as often as that happens."""
    ours, theirs = pty.openpty()
    try:
        with start(cli.url, stdout=theirs) as top:
            for _ in range(2):
                text = b""
                while b"puts/s" not in text:
                    text += os.read(ours, 65536)
                assert text.startswith(b"\033[?1049h")
                top.send_signal(signal.SIGTSTP)
                while not text.endswith(b"\033[?1049l"):  # it cannot write to a screen that nobody reads
                    text += os.read(ours, 65536)
                wait_until("it stops", lambda: pathlib.Path(f"/proc/{top.pid}/stat").read_text().split()[2] == "T")
                top.send_signal(signal.SIGCONT)
            top.send_signal(signal.SIGINT)
            assert top.wait(support.WAIT_S) == 0
    finally:
        os.close(ours)
        os.close(theirs)


def test_nobody_reads_it_any_more(cli: Cli) -> None:
    with start(cli.url) as top:
        assert top.stdout.readline().startswith("      keys")
        top.stdout.close()
        assert top.wait(support.WAIT_S) != 0


def test_output_that_is_lost_is_told(cli: Cli) -> None:
    """Each look is written at once, so that nothing is left to fail at the end."""
    with open("/dev/full", "wb") as full, start(cli.url, "--json", "--count=1", stdout=full) as top:
        assert top.wait(support.WAIT_S) == OTHER
        assert "standard output" in top.stderr.read()


@pytest.mark.parametrize("on_screen", [False, True])
def test_a_node_that_does_not_answer_holds_nobody(cli: Cli, on_screen: bool) -> None:
    ours, theirs = pty.openpty()
    try:
        with start(cli.url, stdout=theirs if on_screen else subprocess.DEVNULL) as top:
            time.sleep(0.5)
            with cli.node.stopped():
                time.sleep(0.5)  # it looks, and waits
                before = time.monotonic()
                top.send_signal(signal.SIGINT)
                assert top.wait(support.WAIT_S) == 0
                assert time.monotonic() - before < 2
            assert not on_screen or os.read(ours, 65536).endswith(b"\033[?7h\033[?25h\033[?1049l")
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("arguments", [["--every=99"], ["--every=x"], ["--count=-1"], ["key"], ["--seconds=1"]])
def test_mistakes(cli: Cli, arguments: list[str]) -> None:
    cli("top", *arguments, code=USAGE)
