# SPDX-License-Identifier: Apache-2.0
"""What a session may send that no client of the library would: the node answers, or ends the session, and serves on."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import time
from typing import Iterator

import procs
import pytest
import support
from support import penstock


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Iterator[support.Node]:
    with support.start_node("--unix", f"{tmp_path}/socket", "--dram", "128M", "--shards", "2", "--session-pinned-bytes", "8M",
                            "--session-pins", "1", "--value-ms", "1000") as node:
        yield node
        assert node.process.poll() is None, "the node has ended"
        node.stop()


def ask(path: pathlib.Path, question: str) -> list[str]:
    """The answers' results, a line for each."""
    done = subprocess.run([support.BUILD / "tests/e2e/raw_ask", f"unix://{path}/socket", question], capture_output=True,
                          text=True, timeout=60, check=True, stdin=subprocess.DEVNULL)
    return [line.strip() for line in done.stdout.splitlines()]


def served(path: pathlib.Path) -> bool:
    """Whether both shards answer."""
    return penstock("--url", f"node+unix://{path}/socket", "stat").returncode == 0


def pages_used(url: str) -> int:
    return int(json.loads(penstock("--url", url, "stat", "--json").stdout)["pages_used"])


def shared_with_clients(node: support.Node) -> int:
    """How many pieces of UCX's shared memory the node has mapped, its own among them."""
    return pathlib.Path(f"/proc/{node.pid}/maps").read_text().count("ucx_shm_posix")


def test_a_commit_without_its_value(tmp_path: pathlib.Path, node: support.Node) -> None:
    assert ask(tmp_path, "null_value") == ["-2 -2"]
    assert served(tmp_path)


def test_a_commit_that_changes_a_key_twice(tmp_path: pathlib.Path, node: support.Node) -> None:
    assert ask(tmp_path, "twice") == ["-22 0 0 -22"]
    assert served(tmp_path)


def test_a_write_into_a_reservation_that_a_commit_has(tmp_path: pathlib.Path, node: support.Node) -> None:
    """The write is told busy, and the commit applies what was there before it."""
    assert ask(tmp_path, "lent_reservation") == ["0", "0", "0 0 0 4"]
    assert served(tmp_path)


def test_a_small_write_into_a_reservation_that_a_commit_has(tmp_path: pathlib.Path, node: support.Node) -> None:
    assert ask(tmp_path, "lent_reservation_inline") == ["0", "0", "0 0 0 4"]
    got = penstock("--url", f"node+unix://{tmp_path}/socket", "ls", "k").stdout.decode().split()[0]
    value = penstock("--url", f"node+unix://{tmp_path}/socket", "get", got, "-").stdout
    assert value == bytes(8 << 20)


def test_puts_whose_values_do_not_come(tmp_path: pathlib.Path, node: support.Node) -> None:
    """What is announced counts against the session, and not for as long as the session likes."""
    assert ask(tmp_path, "held_puts") == ["4 4", "over"]
    node.wait_for("a request ran past its deadline")
    assert served(tmp_path)


def test_gets_whose_values_nobody_takes(tmp_path: pathlib.Path, node: support.Node) -> None:
    """Their session ends. What UCX still holds of it waits for its process, and others notice nothing."""
    url, value = f"node+unix://{tmp_path}/socket", os.urandom(1 << 20)
    with subprocess.Popen([support.BUILD / "tests/e2e/raw_ask", f"unix://{tmp_path}/socket", "held_gets"], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as taker:
        node.wait_for("told to go: a request ran past its deadline")
        ends = time.monotonic() + 12
        while time.monotonic() < ends:
            assert penstock("--url", url, "put", "other", "-", stdin=value).returncode == 0
            assert penstock("--url", url, "get", "other", "-").stdout == value
        assert "connect anew" not in node.log()
        assert taker.communicate("", timeout=support.WAIT_S)[0].split() == ["0", "over"]
    support.wait_until("its memory", lambda: served(tmp_path))
    for prefix in "k", "o":
        assert penstock("--url", url, "rm", "--prefix", prefix).returncode == 0
    support.wait_until("the pages of what was taken", lambda: pages_used(url) == 0)


def test_who_is_killed_while_it_takes_nothing(tmp_path: pathlib.Path, node: support.Node) -> None:
    """UCX waits for it without end; the node does not spend its cores on that."""
    before_it = shared_with_clients(node)
    with subprocess.Popen([support.BUILD / "tests/e2e/raw_ask", f"unix://{tmp_path}/socket", "held_gets"], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as taker:
        node.wait_for("told to go: a request ran past its deadline")
        taker.kill()
    node.wait_for("clients connect anew")
    support.wait_until("its port", lambda: served(tmp_path))
    support.wait_until("what UCX had of it", lambda: shared_with_clients(node) == before_it)
    before = procs.cpu_s(node.pid)
    time.sleep(4)
    assert procs.cpu_s(node.pid) - before < 2  # a thread that spins alone: 4
    assert served(tmp_path)


def test_gets_of_more_than_a_session_may_hold(tmp_path: pathlib.Path, node: support.Node) -> None:
    """A value that is read in part counts as a whole: all of it stays."""
    assert ask(tmp_path, "large_gets") == ["0", "0", "0 4", "0 4", "0", "-122 -122"]
    assert served(tmp_path)


def test_a_pin_counts_against_who_made_it(tmp_path: pathlib.Path, node: support.Node) -> None:
    assert ask(tmp_path, "pins") == ["0", "0", "0", "0", "0", "-122", "0"]


@pytest.mark.parametrize("nth", range(6, 12))
def test_who_is_lost_as_gets_that_waited_are_answered(tmp_path: pathlib.Path, nth: int) -> None:
    """Whichever of the node's messages fails: a client goes, the node does not."""
    url = f"node+unix://{tmp_path}/socket"
    with support.start_node("--unix", f"{tmp_path}/socket", "--transport", "stream", "--shards", "1", "--dram", "64M",
                            environment={"PENSTOCK_FAULTS": f"net_send_fails:nth={nth}"},
                            within=support.faulty()) as node:
        stream = support.clean_environment(PENSTOCK_TRANSPORT="stream")
        gets = [subprocess.Popen([support.BUILD / "penstock", "get", "--url", url, "--timeout", "1500", "--wait=1200", "k", "-"],
                                 env=stream, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for _ in range(2)]
        time.sleep(0.25)  # both wait
        penstock("--url", url, "put", "--timeout", "1500", "k", "-", stdin=b"value", environment={"PENSTOCK_TRANSPORT": "stream"})
        for get in gets:
            get.wait(support.WAIT_S)
        assert node.process.poll() is None, node.log()
        node.stop()
