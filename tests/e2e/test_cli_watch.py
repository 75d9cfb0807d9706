# SPDX-License-Identifier: Apache-2.0
"""penstock get --wait and penstock watch."""
from __future__ import annotations

import json
import pathlib
import signal
import subprocess

import pytest
import support
from cli import NOT_FOUND, OTHER, UNREACHABLE, USAGE, Cli, cli, node  # noqa: F401: a fixture


def start(cli: Cli, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([support.BUILD / "penstock", "--url", cli.url, *arguments], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
                            env=support.clean_environment())


def test_get_waits(cli: Cli) -> None:  # noqa: F811
    assert b"key 'late': not found" in cli("get", "late", "--wait=100", code=NOT_FOUND)
    getter = start(cli, "get", "late", "--wait")
    support.wait_until("the wait", lambda: cli.json("stat")["waits"] == 1)
    cli("put", "late", stdin=b"value")
    assert getter.communicate(timeout=support.WAIT_S) == ("value", "") and getter.returncode == 0
    assert cli("get", "late", "--wait", "--range", "1:3") == b"alu"
    assert cli.json("stat")["waits"] == 0
    assert b"wait: 'soon'" in cli("get", "late", "--wait=soon", code=USAGE)


def test_watch(cli: Cli) -> None:  # noqa: F811
    with start(cli, "watch", "w/", "--json") as watcher:
        try:
            assert watcher.stderr.readline() == "penstock: watching\n"
            assert cli.json("stat")["watches"] == 2
            first = cli.json("put", "w/a", stdin=b"12345")
            cli("put", "other", stdin=b"x")
            cli("rm", "w/a")
            events = [json.loads(watcher.stdout.readline()) for _ in range(2)]
            assert events == [{"event": what, "key": "w/a", "bytes": 5, "generation": first["generation"]}
                              for what in ("put", "deleted")]
            watcher.stdout.close()  # nobody reads: it ends by itself
            cli("put", "w/b", stdin=b"x")
            assert watcher.wait(support.WAIT_S) in (0, OTHER, -signal.SIGPIPE)
        finally:
            watcher.kill()
    support.wait_until("the watch's end", lambda: cli.json("stat")["watches"] == 0)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_watch_tells_everything(tmp_path: pathlib.Path, form: list[str]) -> None:
    """Puts, ends, evictions, what a slow reader missed, a lost connection."""
    arguments = ("--unix", f"{tmp_path}/s", "--dram", "16M", "--shards", "1", "--page-size", "64K", "--class", "cached/=cache")
    cli = Cli(f"node+unix://{tmp_path}/s")

    def event() -> tuple[str, str]:
        """What happened, and to which key or how often."""
        line = watcher.stdout.readline()
        assert line, watcher.stderr.read()
        if form:
            fields = json.loads(line)
            return fields["event"], fields.get("key") or str(fields.get("missed", ""))
        words = line.split()
        return words[0], words[1] if words[0] == "missed" else words[3] if words[0] != "reset" else ""

    def until(what: str) -> list[tuple[str, str]]:
        events = [event()]
        while events[-1][0] != what:
            events.append(event())
        return events

    with support.start_node(*arguments) as node, start(cli, "watch", *form) as watcher:
        try:
            assert watcher.stderr.readline() == "penstock: watching\n"
            cli("put", "key", stdin=b"12345")
            cli("rm", "key")
            assert until("deleted") == [("put", "key"), ("deleted", "key")]
            for number in range(5):
                cli("put", f"cached/{number}", stdin=bytes(4 << 20))
            assert ("evicted", "cached/0") in until("evicted")
            watcher.send_signal(signal.SIGSTOP)
            cli("bench", "--op", "put", "--fill", "--keys", "5000", "--batch", "100")
            cli("put", "last", stdin=b"x")
            watcher.send_signal(signal.SIGCONT)
            events = until("missed")
            missed = int(events[-1][1])
            while events[-1] != ("put", "last"):
                events.append(event())
            came = [key for what, key in events if what == "put" and len(key) == 16]  # those of the bench
            assert missed > 0 and len(set(came)) == len(came) and 5000 - missed <= len(came) < 5000
            node.kill()
            with support.start_node(*arguments):
                assert until("reset")[-1] == ("reset", "")
        finally:
            watcher.kill()


def test_watch_ends_when_the_node_stays_away(tmp_path: pathlib.Path) -> None:
    cli = Cli(f"node+unix://{tmp_path}/s")
    with support.start_node("--unix", f"{tmp_path}/s", "--dram", "16M") as node, start(cli, "watch", "--timeout", "2000") as watcher:
        try:
            assert watcher.stderr.readline() == "penstock: watching\n"
            node.kill()
            assert watcher.wait(support.WAIT_S) == UNREACHABLE
        finally:
            watcher.kill()


def test_watch_ends_with_its_reader(cli: Cli) -> None:  # noqa: F811
    with subprocess.Popen([support.BUILD / "penstock", "--url", cli.url, "watch"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, restore_signals=False,  # SIGPIPE is ignored
                          env=support.clean_environment()) as watcher:
        try:
            assert watcher.stderr.readline() == b"penstock: watching\n"
            watcher.stdout.close()
            cli("put", "k", stdin=b"x")
            assert watcher.wait(support.WAIT_S) == 0 and watcher.stderr.read() == b""
        finally:
            watcher.kill()


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_watch_outlives_the_node(tmp_path: pathlib.Path, shards: int) -> None:
    """A watcher is told that the connection was lost, and then of what comes; a wait goes on as well."""
    arguments = ("--unix", f"{tmp_path}/s", "--dram", "16M", "--shards")
    cli = Cli(f"node+unix://{tmp_path}/s")
    with support.start_node(*arguments, "2") as node, start(cli, "watch") as watcher, \
            start(cli, "get", "after", "--wait=60000") as getter:
        try:
            assert watcher.stderr.readline() == "penstock: watching\n"
            support.wait_until("the wait", lambda: cli.json("stat")["waits"] == 1)
            cli("put", "before", stdin=b"x")
            assert watcher.stdout.readline().split()[::3] == ["put", "before"]
            node.kill()
            with support.start_node(*arguments, str(shards)):
                assert watcher.stdout.readline().startswith("reset ")
                support.wait_until("the wait again", lambda: cli.json("stat")["waits"] == 1)
                cli("put", "after", stdin=b"x")
                assert watcher.stdout.readline().split()[::3] == ["put", "after"]
                assert getter.communicate(timeout=support.WAIT_S)[0] == "x"
        finally:
            watcher.kill()
            getter.kill()


def test_waiting_for_a_node_that_is_gone(tmp_path: pathlib.Path) -> None:
    with support.start_node("--unix", f"{tmp_path}/s", "--dram", "16M") as node:
        cli = Cli(f"node+unix://{tmp_path}/s")
        with start(cli, "get", "never", "--wait=5000", "--timeout", "500") as getter, \
                start(cli, "watch", "--timeout", "500") as watcher:
            try:
                assert watcher.stderr.readline() == "penstock: watching\n"
                support.wait_until("the wait", lambda: cli.json("stat")["waits"] == 1)
                node.kill()
                assert getter.wait(support.WAIT_S) == UNREACHABLE
                assert watcher.wait(support.WAIT_S) == UNREACHABLE
            finally:
                getter.kill()
                watcher.kill()
