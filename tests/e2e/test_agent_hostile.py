# SPDX-License-Identifier: Apache-2.0
"""penstockd --role agent against strangers and bad luck: frames cut short, links, processes that end at the wrong moment."""
from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import resource
import signal
import socket
import struct
import subprocess
from typing import Iterator

import pytest
from agent import Agent, answer_of, exchange
from support import BUILD, another_user, clean_environment, sanitized, wait_until

GROUP = {"group_id": "g", "key": "k"}
SWEEPS_S = 30


@pytest.fixture
def agent(tmp_path: pathlib.Path) -> Iterator[Agent]:
    with Agent(tmp_path) as it:
        yield it


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "a").write_text("A")
    return folder


def keys_of(agent: Agent) -> list[str]:
    return [key["key"] for key in agent.ask("list_keys")["keys"]]


def wakes_of(agent: Agent) -> int:
    """How often threads of an idle agent have woken; only the one that sweeps does."""
    states = [path.read_text() for path in pathlib.Path(f"/proc/{agent.pid}/task").glob("*/status")]
    return sum(int(line.split()[1]) for state in states for line in state.splitlines() if line.startswith("voluntary_ctxt_switches"))


# ---- frames ----

@pytest.mark.parametrize("remote", [False, True])
def test_the_answer_to_a_long_frame_arrives(agent: Agent, remote: bool) -> None:
    """A client that sends all of its frame before it reads still gets the answer."""
    with agent.connect(remote) as connection:
        connection.settimeout(60)
        connection.sendall(struct.pack(">I", 32 << 20) + bytes(32 << 20))
        assert "too long" in answer_of(connection)["error"]


def test_a_frame_that_does_not_come_is_answered(agent: Agent) -> None:
    with agent.connect() as silent, agent.connect(True) as half:
        half.sendall(b"\0\0\0\x09{")
        for one in (silent, half):
            one.settimeout(60)
            assert "in time" in answer_of(one)["error"]
    assert agent.ask("ping")["status"] == "ok"


def test_bytes_behind_a_frame_keep_nobody_waiting(agent: Agent) -> None:
    """Clients that wait, send more and leave: their places are free again long before their timeout."""
    frame = json.dumps({"command": "fs_broadcast_get_path", "timeout": 3600, **GROUP}).encode()
    waiting = []

    def wait() -> None:
        waiting.append(agent.connect(True))
        waiting[-1].sendall(struct.pack(">I", len(frame)) + frame + b"more")

    def pinged() -> str:  # one too many may be ended before its frame has come
        try:
            return str(agent.ask("ping", True))
        except ConnectionResetError:
            return "too many"

    def is_full() -> bool:
        wait()  # one whose frame has not been seen yet made room for the ping
        return "too many" in pinged()

    for _ in range(384):
        wait()
    wait_until("all places are taken", is_full)
    for one in waiting:
        one.close()
    wait_until("there is room again", lambda: "'ok'" in pinged())


# ---- owners ----

def test_an_owner_that_nobody_reaps_has_ended(agent: Agent, tree: pathlib.Path) -> None:
    owner = subprocess.Popen(["sleep", "600"])
    try:
        assert agent.ask("register", key="k", path=str(tree), pid=owner.pid)["status"] == "ok"
        owner.kill()
        stat = pathlib.Path(f"/proc/{owner.pid}/stat")
        wait_until("it is a zombie", lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
        assert "no process" in agent.ask("register", key="l", path=str(tree), pid=owner.pid)["error"]
        wait_until("its offer has gone", lambda: keys_of(agent) == [], SWEEPS_S)
    finally:
        owner.wait()


def test_offers_outlive_a_lack_of_descriptors(tmp_path: pathlib.Path, tree: pathlib.Path) -> None:
    """Without a descriptor the agent cannot look whether an owner lives: it must not take that for its end."""
    with Agent(tmp_path) as agent:
        assert agent.ask("register", key="k", path=str(tree))["status"] == "ok"
        fds = len(os.listdir(f"/proc/{agent.pid}/fd"))
        resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (fds, resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)[1]))
        before = wakes_of(agent)
        wait_until("it has swept twice", lambda: wakes_of(agent) >= before + 2, SWEEPS_S)
        limit = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (4096, limit[1]))
        assert keys_of(agent) == ["k"] and "goes with" not in agent.log(), agent.log()


# ---- paths ----

@pytest.mark.parametrize("path", ["{tmp}/link/", "{tmp}/link/.", "{tmp}/link/./", "{tmp}/link//"])
def test_a_link_is_one_whatever_stands_behind_it(agent: Agent, tree: pathlib.Path, tmp_path: pathlib.Path, path: str) -> None:
    (tmp_path / "link").symlink_to(tree)
    answer = agent.ask("register", key="k", path=path.format(tmp=tmp_path))
    assert answer["status"] == "error" and "symbolic link" in answer["error"], answer


@pytest.mark.parametrize("path", ["/proc/self/root/", "/proc/self/root/.", "/proc", "/proc/self", "/proc/self/cwd/", "/sys", "/sys/kernel", "/./.", "/tmp/.."])
def test_what_is_never_offered(agent: Agent, path: str) -> None:
    answer = agent.ask("register", key="k", path=path)
    assert answer["status"] == "error", answer
    assert "error" in agent.ask("fs_broadcast_complete", local_path=path, **GROUP)


def test_the_agents_own_folder_is_never_offered(tmp_path: pathlib.Path, tree: pathlib.Path) -> None:
    with Agent(tmp_path, environment={"TMPDIR": str(tmp_path)}) as agent:
        own, = tmp_path.glob("penstock-agent-*")
        for path in (own, tmp_path, tmp_path.parent):
            assert "keeps for itself" in agent.ask("register", key="k", path=str(path))["error"]
        assert agent.ask("register", key="k", path=str(tree))["status"] == "ok"
        for path in (own, own / "rsyncd.conf"):
            assert "keeps for itself" in agent.ask("register", key="l", path=str(path))["error"]


def test_a_folder_on_the_way_that_is_a_link(agent: Agent, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What was offered stays what is served, wherever the link leads later."""
    (tmp_path / "other/tree").mkdir(parents=True)
    (tmp_path / "other/tree/secret").write_text("not offered")
    (tmp_path / "way").symlink_to(tmp_path)
    place = agent.ask("register", key="k", path=f"{tmp_path}/way/tree")
    (tmp_path / "way").unlink()
    (tmp_path / "way").symlink_to(tmp_path / "other")
    assert agent.rsync(place, tmp_path / "got", path=place["rsync_path"] + "/").returncode == 0
    assert [path.name for path in (tmp_path / "got").iterdir()] == ["a"]


NAMED = [("folder", True), ("file", False)]


@pytest.mark.parametrize(("what", "named"), NAMED)
def test_what_lies_beside_an_offer_stays_there(agent: Agent, tree: pathlib.Path, tmp_path: pathlib.Path, what: str, named: bool) -> None:
    """Links in a tree that is offered under its name, and beside a file, lead to no neighbour."""
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside/secret").write_text("not offered")
    (tree / "link").symlink_to("../beside")
    (tree / "away").symlink_to("/beside")
    (tree / "direct").symlink_to("../beside/secret")
    (tree / "file").symlink_to("../beside/secret")
    place = agent.ask("register", key="k", path=str(tree if named else tree / "a"), named=named)
    module = place["rsync_path"].split("/")[0]
    (tmp_path / "names").write_text("tree/link/secret\nlink/secret\ntree/away/secret\n")
    for number, path in enumerate(("/tree/link/", "/tree/link/secret", "/tree/away/secret", "/tree/link/./secret", "/tree/./link/secret", "//tree/link",
                                   "/link/secret", "/link/", "/tree/l*/secret", "/*/link/secret", "/tree/direct", "/direct", "/beside/secret", "/", "")):
        into = tmp_path / f"into{number}"
        for more in ((), ("--secluded-args",)):
            agent.rsync(place, into, *more, path=module + path)
            assert not any(file.is_file() and "not offered" in file.read_text() for file in into.rglob("*") if not file.is_symlink()), (path, more)
    assert agent.rsync(place, tmp_path / "listed", f"--files-from={tmp_path}/names", path=module + "/").returncode != 0
    assert not (tmp_path / "listed").exists() or not list((tmp_path / "listed").rglob("secret"))
    for number, path in enumerate(("", "/", "/tree", "/tree/") if named else ("", "/", "/a")):
        got = tmp_path / f"got{number}"
        assert agent.rsync(place, got, path=module + path).returncode == 0
        assert [file.read_text() for file in got.rglob("a")] == ["A"], path


def test_a_folder_named_in_front_of_the_paths(agent: Agent, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Arguments that no rsync sends: the folder in which the paths begin."""
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside/secret").write_text("not offered")
    (tree / "link").symlink_to("../beside")
    place = agent.ask("register", key="k", path=str(tree), named=True)
    module = place["rsync_path"]
    for arguments in (["tree/link", ".", f"{module}/tree"], ["tree/link"], ["tree/link", f"{module}/tree"], [".", "."], []):
        with socket.create_connection(("127.0.0.1", place["rsync_port"]), 60) as raw, raw.makefile("rb") as file:
            raw.sendall(b"@RSYNCD: 31.0 md5\n" + module.encode() + b"\n")
            assert file.readline().startswith(b"@RSYNCD:") and file.readline() == b"@RSYNCD: OK\n"
            raw.sendall(b"".join(part.encode() + b"\0" for part in ["--server", "--sender", "-r", *arguments, ""]))
            raw.shutdown(socket.SHUT_WR)
            told = file.read()
            assert b"fetched whole" in told and b"secret" not in told, (arguments, told)


def test_a_path_that_vanished_is_an_error(agent: Agent, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    folder, file = agent.ask("register", key="k", path=str(tree)), agent.ask("register", key="f", path=str(tree / "a"))
    (tree / "a").unlink()
    assert agent.rsync(file, tmp_path / "got").returncode != 0
    tree.rmdir()
    assert agent.rsync(folder, tmp_path / "got", path=folder["rsync_path"] + "/").returncode != 0
    assert not any((tmp_path / "got").glob("**/*")) and len(keys_of(agent)) == 2


def test_another_user_than_root_serves_what_is_offered_alone(tmp_path: pathlib.Path) -> None:
    """Without a chroot: links in a tree lead nowhere for clients."""
    home = tmp_path / "home"
    (home / "tree/sub").mkdir(parents=True)
    (home / "tree/sub/b").write_text("B")
    (home / "outside").mkdir()
    (home / "outside/secret").write_text("not offered")
    (home / "tree/link").symlink_to(home / "outside")
    (home / "tree/direct").symlink_to(home / "outside/secret")
    with Agent(home, environment={"TMPDIR": str(home)}, within=another_user(home)) as agent:
        place = agent.ask("register", key="k", path=str(home / "tree"))
        assert place["status"] == "ok", place
        module = place["rsync_path"]
        assert agent.rsync(place, tmp_path / "got", path=module + "/").returncode == 0
        assert (tmp_path / "got/sub/b").read_text() == "B"
        for number, path in enumerate((f"{module}/link/", f"{module}/link/secret", f"{module}/link/./secret", f"{module}/../outside/",
                                       f"{module}/sub/../../outside/secret", f"{module}/{home}/outside/secret")):
            into = tmp_path / f"into{number}"
            for more in ((), ("--relative",), ("--no-implied-dirs", "--relative"), ("--no-links",)):
                agent.rsync(place, into, *more, path=path)
            assert not any(file.is_file() and "not offered" in file.read_text() for file in into.rglob("*") if not file.is_symlink()), path


# ---- the agent's beginning and end ----

def test_of_many_agents_that_begin_at_once_one_serves(tmp_path: pathlib.Path) -> None:
    with Agent(tmp_path) as first:
        first.kill()  # it leaves its socket
    command = [BUILD / "penstockd", "--role", "agent", "--agent-socket", first.socket, "--agent-listen", "127.0.0.1:0", "--rsync-port", "0"]
    many = [subprocess.Popen(command, stderr=subprocess.DEVNULL, env=clean_environment()) for _ in range(12)]
    try:
        wait_until("all others have ended", lambda: sum(one.poll() is None for one in many) == 1)
        serving, = (one for one in many if one.poll() is None)
        wait_until("it answers", first.socket.exists)
        assert first.ask("ping")["pid"] == serving.pid
    finally:
        for one in many:
            one.kill()
            one.wait()


def test_a_killed_rsync_is_started_again(agent: Agent, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    place = agent.ask("register", key="k", path=str(tree))
    children = pathlib.Path(f"/proc/{agent.pid}/task").glob("*/children")
    for pid in (int(pid) for path in children for pid in path.read_text().split()):
        os.kill(pid, signal.SIGKILL)
    agent.wait_for("is started again")
    wait_until("it serves again", lambda: agent.rsync(place, tmp_path / "got", path=place["rsync_path"] + "/").returncode == 0)
    assert agent.ask("register", key="l", path=str(tree))["rsync_port"] == place["rsync_port"]


def test_without_rsync_an_offer_says_so(tmp_path: pathlib.Path, tree: pathlib.Path) -> None:
    with Agent(tmp_path, environment={"PATH": "/nonexistent"}) as agent:
        for _ in range(2):
            assert "no program 'rsync'" in agent.ask("register", key="k", path=str(tree))["error"]
        assert keys_of(agent) == [] and agent.ask("ping", True)["status"] == "ok"


# ---- many at once ----

def test_trees_that_finish_at_once_and_again(agent: Agent, tmp_path: pathlib.Path) -> None:
    """Whichever of two finished one tree last: the place that is told of serves it."""
    trees = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "which").write_text(name)
        trees.append(str(tmp_path / name))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda number: agent.ask("fs_broadcast_complete", local_path=trees[number % 2], **GROUP), range(200)))
    assert all(answer == {"status": "ok"} for answer in done)
    place = agent.ask("fs_broadcast_get_path", True, timeout=0, **GROUP)
    assert agent.rsync(place, tmp_path / "got", path=place["rsync_path"] + "/").returncode == 0
    assert (tmp_path / "got/which").read_text() == pathlib.Path(place["local_path"]).name


def test_neither_descriptors_nor_memory_grow(agent: Agent, tree: pathlib.Path) -> None:
    def use() -> tuple[int, int]:
        rss = next(line for line in pathlib.Path(f"/proc/{agent.pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
        return len(os.listdir(f"/proc/{agent.pid}/fd")), int(rss.split()[1])

    def round_of(number: int) -> None:
        agent.ask("register", key=f"k{number}", path=str(tree))
        agent.ask("fs_broadcast_complete", local_path=str(tree), group_id="g", key="k")
        agent.ask("fs_broadcast_get_path", True, timeout=0, group_id="g", key="k")
        agent.ask("fs_broadcast_get_path", True, timeout=0, group_id="g", key="none")
        with agent.connect(True) as bad:
            exchange(bad, b"{")
        agent.ask("unregister", key=f"k{number}")

    for number in range(100):
        round_of(number)
    before = use()
    for number in range(600):
        round_of(number)
    wait_until("as many descriptors as before", lambda: use()[0] <= before[0])
    # A sanitizer keeps what was freed.
    assert sanitized() or use()[1] < before[1] + 4096, (before, use())
