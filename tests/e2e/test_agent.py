# SPDX-License-Identifier: Apache-2.0
"""penstockd --role agent: its frames over both sockets, and what the real rsync gets from it."""
from __future__ import annotations

import concurrent.futures
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
from typing import Iterator

import pytest
from agent import Agent, answer_of, exchange
from support import wait_until

GROUP = {"group_id": "group 1", "key": "svc/model"}


@pytest.fixture
def agent(tmp_path: pathlib.Path) -> Iterator[Agent]:
    with Agent(tmp_path) as it:
        yield it


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "tree"
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_text("A")
    (folder / "sub/b").write_text("B")
    (tmp_path / "secret").write_text("not offered")
    return folder


def test_ping_from_both_sides(agent: Agent) -> None:
    for remote in (False, True):
        assert agent.ask("ping", remote) == {"status": "ok", "pid": agent.process.pid, "tcp_port": agent.tcp_port}


def test_an_offered_folder_is_fetched(agent: Agent, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    place = agent.ask("register", key="svc//model/", path=str(tree))
    assert place["status"] == "ok" and place["key"] == "svc/model", place
    listed = agent.ask("list_keys")["keys"]
    assert [(key["key"], key["path"], key["pid"]) for key in listed] == [("svc/model", str(tree), os.getpid())]
    assert agent.rsync(place, tmp_path / "got", path=place["rsync_path"] + "/").returncode == 0
    assert (tmp_path / "got/sub/b").read_text() == "B" and not (tmp_path / "got/secret").exists()
    assert agent.ask("unregister", key="svc/model") == {"status": "ok", "key": "svc/model"}
    assert agent.ask("unregister", key="svc/model") == {"status": "ok", "message": "Key not registered"}
    gone = agent.rsync(place, tmp_path / "late")
    assert gone.returncode != 0 and "Unknown module" in gone.stderr, gone.stderr


def test_a_folder_under_its_name(agent: Agent, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    wild = tree.rename(tmp_path / "tree [1]*?")
    (tmp_path / "tree 1x").mkdir()
    (wild / "tree").mkdir()
    place = agent.ask("register", key="k", path=str(wild), named=True)
    assert agent.rsync(place, tmp_path / "got", path=place["rsync_path"] + "/").returncode == 0
    assert sorted(str(path.relative_to(tmp_path / "got")) for path in (tmp_path / "got").rglob("*")) == [
        wild.name, *(f"{wild.name}/{name}" for name in ("a", "sub", "sub/b", "tree"))]


@pytest.mark.parametrize("name", ["plain.bin", "one [x]*.txt", "back\\slash", "b\\[1]?", " blank ", "ünïcode", "#hash", "- minus"])
def test_an_offered_file_is_alone(agent: Agent, tmp_path: pathlib.Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / name).write_text("this one")
    for other in ("other", "one [x].txt", "plain", "back", "b\\1x"):
        (folder / other).write_text("another")
    place = agent.ask("register", key="file", path=str(folder / name))
    assert place["status"] == "ok" and place["rsync_path"].endswith("/" + name), place
    module = place["rsync_path"].partition("/")[0]
    assert agent.rsync(place, tmp_path / "all", path=module + "/").returncode == 0
    assert [(path.name, path.read_text()) for path in (tmp_path / "all").iterdir()] == [(name, "this one")]
    assert agent.rsync(place, tmp_path / "other", path=module + "/other").returncode != 0
    assert not (tmp_path / "other/other").exists()


def test_nothing_else_gets_out(agent: Agent, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tree / "link").symlink_to(tmp_path)
    (tree / "direct").symlink_to(tmp_path / "secret")
    place = agent.ask("register", key="k", path=str(tree))
    module = place["rsync_path"]
    for number, path in enumerate((f"{module}/../secret", f"{module}/%2e%2e/secret", f"{module}/link/secret", f"{module}/link/",
                                   f"{module}//{tmp_path}/secret", "data/", "/", f"../{module}")):
        into = tmp_path / f"into{number}"
        agent.rsync(place, into, path=path)
        assert not any(file.is_file() and "not offered" in file.read_text() for file in into.rglob("*") if not file.is_symlink())
    for option in ("--copy-links", "--copy-unsafe-links", "--copy-dirlinks"):
        refused = agent.rsync(place, tmp_path / "links", option, path=module + "/")
        assert refused.returncode != 0 and "refuse" in refused.stderr, refused.stderr
    assert not (tmp_path / "links/direct").exists()
    url = f"rsync://127.0.0.1:{place['rsync_port']}/{module}/"
    pushed = subprocess.run(["rsync", str(tmp_path / "secret"), url], capture_output=True, text=True, timeout=60, check=False)
    assert pushed.returncode != 0 and "read only" in pushed.stderr, pushed.stderr
    listed = subprocess.run(["rsync", url.rpartition("/p-")[0] + "/"], capture_output=True, text=True, timeout=60, check=False)
    assert listed.stdout == "", listed.stdout


@pytest.mark.parametrize("path, why", [
    ("relative", "absolute"), ("/", "root"), ("//.", "root"), ("/tmp/../etc", "'..'"), ("/tmp/..", "'..'"), ("/no/such/thing", "No such"),
    ("{tmp}/link", "symbolic"), ("{tmp}/pipe", "Not a directory"), ("/" + "x" * 5000, "absolute"), ("{tmp}/two\nlines", "Invalid"),
])
def test_paths_that_cannot_be_offered(agent: Agent, tree: pathlib.Path, tmp_path: pathlib.Path, path: str, why: str) -> None:
    (tmp_path / "link").symlink_to(tree)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "two\nlines").write_text("")
    answer = agent.ask("register", key="k", path=path.replace("{tmp}", str(tmp_path)))
    assert answer["status"] == "error" and why in answer["error"], answer
    assert agent.ask("list_keys")["keys"] == []


def test_a_key_belongs_to_a_process(agent: Agent, tree: pathlib.Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        assert agent.ask("register", key="k", path=str(tree), pid=other.pid)["status"] == "ok"
        taken = agent.ask("register", key="k", path=str(tree / "a"))
        assert taken["status"] == "error" and f"process {other.pid}" in taken["error"]
        assert "another process" in agent.ask("unregister", key="k", pid=os.getpid())["error"]
        other.kill()
    # It need not wait for the sweep.
    assert agent.ask("register", key="k", path=str(tree / "a"))["status"] == "ok"
    assert "no process" in agent.ask("register", key="l", path=str(tree), pid=other.pid)["error"]


def test_what_dead_processes_offered_goes(agent: Agent, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as owner:
        place = agent.ask("register", key="theirs", path=str(tree), pid=owner.pid)
        agent.ask("register", key="mine", path=str(tree))
        owner.kill()
    wait_until("their offers have gone", lambda: [key["key"] for key in agent.ask("list_keys")["keys"]] == ["mine"], 30)
    wait_until("the log says so", lambda: f"goes with process {owner.pid}" in agent.log(), 30)
    assert "Unknown module" in agent.rsync(place, tmp_path / "late").stderr


def test_the_same_offer_keeps_its_place(agent: Agent, tree: pathlib.Path) -> None:
    place = agent.ask("register", key="k", path=str(tree))
    assert agent.ask("register", key="k", path=f"{tree}/") == place
    moved = agent.ask("register", key="k", path=str(tree / "a"))
    assert moved["rsync_path"] != place["rsync_path"] and len(agent.ask("list_keys")["keys"]) == 1


@pytest.mark.parametrize("how", ["register", "fs_broadcast_complete"])
@pytest.mark.parametrize("was_file", [True, False], ids=["file", "folder"])
def test_a_path_that_has_become_something_else(agent: Agent, tmp_path: pathlib.Path, how: str, was_file: bool) -> None:
    """Its module has the rules of what it was."""
    path = tmp_path / "x"

    def make(is_file: bool) -> pathlib.Path:
        file = path if is_file else path / "inner"
        file.parent.mkdir(exist_ok=True)
        file.write_text("it")
        return file

    def offer() -> dict[str, object]:
        if how == "register":
            return agent.ask(how, key="k", path=str(path))
        agent.ask(how, group_id="g", key="k", local_path=str(path))
        return agent.ask("fs_broadcast_get_path", group_id="g", key="k")

    made = make(was_file)
    offer()
    made.unlink()
    if not was_file:
        path.rmdir()
    make(not was_file)
    place = offer()
    done = agent.rsync(place, tmp_path / "got", path=f"{place['rsync_path']}{'/' if was_file else ''}")
    assert done.returncode == 0, done.stderr
    assert [file.name for file in (tmp_path / "got").iterdir()] == ["inner" if was_file else "x"]


def test_a_finished_tree_is_waited_for(agent: Agent, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    late = agent.ask("fs_broadcast_get_path", remote=True, timeout=0.1, **GROUP)
    assert late["status"] == "error" and "Timeout" in late["error"], late
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        waiting = [pool.submit(agent.ask, "fs_broadcast_get_path", True, timeout=60, **GROUP) for _ in range(40)]
        with agent.connect(remote=True) as leaves:  # one that does not wait for the end
            leaves.sendall(struct.pack(">I", 2) + b"{}")
        assert agent.ask("fs_broadcast_complete", local_path=str(tree), **GROUP) == {"status": "ok"}
        answers = [one.result() for one in waiting]
    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["status"] == "ok" and answers[0]["local_path"] == str(tree) and answers[0]["pod_ip"] is None
    assert agent.rsync(answers[0], tmp_path / "got", path=answers[0]["rsync_path"] + "/").returncode == 0
    assert (tmp_path / "got/sub/b").read_text() == "B"
    assert agent.ask("fs_broadcast_get_path", **GROUP) == answers[0]
    other = agent.ask("fs_broadcast_get_path", group_id="group 2", key="svc/model", timeout=0)
    assert other["status"] == "error"


def test_those_who_wait_are_told_of_the_end(tmp_path: pathlib.Path) -> None:
    with Agent(tmp_path) as agent, agent.connect(remote=True) as waits, concurrent.futures.ThreadPoolExecutor(1) as pool:
        told = pool.submit(exchange, waits, b'{"command":"fs_broadcast_get_path","group_id":"g","key":"k","timeout":600}')
        assert agent.ask("ping")["status"] == "ok"
        agent.process.send_signal(signal.SIGTERM)
        answer = told.result(timeout=60)
        assert answer is None or answer["status"] == "error", answer
        agent.stop()


@pytest.mark.parametrize("frame, why", [
    (b"", ""), (b"[]", "object"), (b"{", "JSON"), (b"\xff", ""), (b"{}", "'command'"), (b'{"command":5}', "'command'"),
    (b'{"command":"no_such"}', "Unknown command"), (b'{"command":"register"}', "'key'"), (b'{"command":"register","key":"/"}', "'key'"),
    (b'{"command":"register","key":"k"}', "'path'"), (b'{"command":"register","key":"k","path":"/tmp","pid":"x"}', "'pid'"),
    (b'{"command":"register","key":"k","path":"/tmp","pid":-1}', "'pid'"), (b'{"command":"register","key":"a\\nb","path":"/tmp"}', "'key'"),
    (b'{"command":"fs_broadcast_complete","group_id":"g","key":"k"}', "'local_path'"),
    (b'{"command":"fs_broadcast_complete","key":"k","local_path":"/tmp"}', "'group_id'"),
    (b'{"command":"fs_broadcast_get_path","group_id":"g\\n","key":"k"}', "'group_id'"),
    (b'{"command":"fs_broadcast_get_path","group_id":"g","key":"k","timeout":-1}', "'timeout'"),
    (b'{"command":"fs_broadcast_get_path","group_id":"g","key":"k","timeout":"1"}', "'timeout'"),
    (b'{"command":"put_tensor","tensors":[]}', "'tensors'"), (b'{"command":"execute_broadcast_group"}', "'group_id'"), (b'{"command":"put_tensors_broadcast"}', "joins no group"), (b"[" * 5000, ""),
])
def test_frames_that_ask_for_nothing(agent: Agent, frame: bytes, why: str) -> None:
    with agent.connect() as connection:
        answer = exchange(connection, frame)
    assert answer["status"] == "error" and why in answer["error"], answer


@pytest.mark.parametrize("command", ["register", "unregister", "list_keys", "fs_broadcast_complete"])
def test_other_pods_may_only_ask(agent: Agent, tree: pathlib.Path, command: str) -> None:
    answer = agent.ask(command, remote=True, path=str(tree), local_path=str(tree), **GROUP)
    assert answer == {"status": "error", "error": f"Unknown remote command: {command}"}


def test_frames_that_are_no_frames(agent: Agent) -> None:
    with agent.connect(remote=True) as long, agent.connect() as longer:
        long.sendall(struct.pack(">I", 65537))
        longer.sendall(struct.pack(">I", 0xFFFFFFFF))
        assert [answer_of(one)["error"] for one in (long, longer)] == ["the frame is too long"] * 2
    for data, why in ((b"", None), (b"\0\0", "ended"), (b"\0\0\0\x05", "ended"), (b"\0\0\0\x05{", "ended"), (b"\0\0\0\0", "")):
        with agent.connect(remote=True) as half:
            half.sendall(data)
            half.shutdown(socket.SHUT_WR)
            answer = answer_of(half)
            assert answer is None if why is None else why in answer["error"], (data, answer)
    assert agent.ask("ping")["status"] == "ok"


def test_silent_clients_are_bounded(agent: Agent) -> None:
    """Who sends no frame shows no token: the oldest make room, and keep no pod out."""
    silent = [agent.connect(remote=True) for _ in range(500)]
    try:
        assert [answer_of(one) for one in silent[:100]] == [None] * 100
        assert agent.ask("ping", remote=True)["status"] == "ok"
        assert agent.ask("ping")["status"] == "ok"  # processes of the pod have places of their own
    finally:
        for one in silent:
            one.close()


def test_a_second_agent_names_the_first(agent: Agent, tmp_path: pathlib.Path) -> None:
    with pytest.raises(AssertionError, match="another agent serves there"):
        Agent(tmp_path)
    assert agent.ask("ping")["pid"] == agent.process.pid


def test_a_killed_agent_leaves_its_socket_to_the_next(tmp_path: pathlib.Path, tree: pathlib.Path) -> None:
    with Agent(tmp_path) as first:
        place = first.ask("register", key="k", path=str(tree))
        first.kill()
        with Agent(tmp_path) as second:
            assert second.ask("list_keys")["keys"] == []
            wait_until("the first one's rsync has ended", lambda: first.rsync(place, tmp_path / "late").returncode != 0)
            assert second.ask("register", key="k", path=str(tree))["status"] == "ok"


def test_a_token_for_other_pods(tmp_path: pathlib.Path, tree: pathlib.Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("let-me-in\n")
    secret.chmod(0o600)
    with Agent(tmp_path, "--token-file", str(secret)) as agent:
        assert agent.ask("ping")["status"] == "ok"  # of the same pod, and the same user
        for wrong in ({}, {"token": ""}, {"token": "let-me-i"}, {"token": "let-me-inn"}, {"token": 5}):
            assert "token" in agent.ask("ping", remote=True, **wrong)["error"], wrong
        assert agent.ask("ping", remote=True, token="let-me-in")["status"] == "ok"
        place = agent.ask("register", key="k", path=str(tree))
        assert agent.rsync(place, tmp_path / "no", token="wrong").returncode != 0
        assert agent.rsync(place, tmp_path / "yes", token="let-me-in").returncode == 0


@pytest.mark.parametrize("arguments, why", [
    (("--agent-listen", "0.0.0.0:0"), "token_file"), (("--agent-listen", "nonsense"), "host:port"),
    (("--agent-listen", "localhost:0"), "IPv4"), (("--agent-socket", "/x" * 60), "too long"),
    (("--agent-socket", "/proc/no/agent.sock"), "agent_socket"),
])
def test_settings_that_cannot_be(tmp_path: pathlib.Path, arguments: tuple[str, ...], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        Agent(tmp_path, *arguments)


def test_the_socket_is_its_users_alone(agent: Agent) -> None:
    assert agent.socket.stat().st_mode & 0o777 == 0o600
    agent.stop()
    assert not agent.socket.exists()


def test_offers_from_many_processes_at_once(agent: Agent, tree: pathlib.Path) -> None:
    script = f"""
import json, socket, struct, sys
for number in range(40):
    for command in ("register", "unregister"):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect({str(agent.socket)!r})
        frame = json.dumps({{"command": command, "key": f"{{sys.argv[1]}}/{{number}}", "path": {str(tree)!r}}}).encode()
        connection.sendall(struct.pack(">I", len(frame)) + frame)
        head = connection.recv(4, socket.MSG_WAITALL)
        answer = json.loads(connection.recv(struct.unpack(">I", head)[0], socket.MSG_WAITALL))
        assert answer["status"] == "ok", answer
"""
    processes = [subprocess.Popen([sys.executable, "-c", script, str(number)]) for number in range(6)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 6
    assert agent.ask("list_keys")["keys"] == []
    agent.stop()
