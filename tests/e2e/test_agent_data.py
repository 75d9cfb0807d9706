# SPDX-License-Identifier: Apache-2.0
"""penstockd --role agent with --agent-data-port: paths below a module "data", and pods in namespaces of their own."""
from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
from typing import Iterator

import networks
import pytest
from agent import Agent
from ports import free_port
from support import wait_until

# A child of a broadcast in another pod: it asks its parent's agent for the path, and fetches that as kubetorch's client does.
CHILD = """
import json, socket, struct, subprocess, sys
host, port, data_port, into = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
with socket.create_connection((host, port), 60) as parent, parent.makefile("rb") as file:
    frame = json.dumps({"command": "fs_broadcast_get_path", "group_id": "g", "key": "k", "timeout": 60}).encode()
    parent.sendall(struct.pack(">I", len(frame)) + frame)
    answer = json.loads(file.read(struct.unpack(">I", file.read(4))[0]))
assert answer["status"] == "ok", answer
for name, url in (("old", f"rsync://{host}:{data_port}/data/{answer['local_path']}/"), ("new", f"rsync://{host}:{answer['rsync_port']}/{answer['rsync_path']}/")):
    subprocess.run(["rsync", "--archive", "--mkpath", url, f"{into}/{name}/"], check=True, timeout=60)
print(json.dumps(answer))
"""


class DataAgent(Agent):
    """An agent that has the module "data", on a port of its own."""

    def __init__(self, folder: pathlib.Path, *more: str, within: tuple[str, ...] = ()) -> None:
        self.data_port = free_port()
        super().__init__(folder, "--agent-data-port", str(self.data_port), *more, within=within)

    def fetch(self, path: str, into: pathlib.Path, *more: str) -> subprocess.CompletedProcess[str]:
        """The real rsync from "data/" and `path`, as kubetorch's client calls it."""
        return self.rsync({"rsync_port": self.data_port}, into, "--mkpath", *more, path=f"data/{path}")


@pytest.fixture
def agent(tmp_path: pathlib.Path) -> Iterator[DataAgent]:
    with DataAgent(tmp_path) as it:
        yield it


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "a tree [1] *"
    (folder / "sub dir").mkdir(parents=True)
    (folder / "a").write_text("A")
    (folder / "sub dir/b?").write_text("B")
    (tmp_path / "secret").write_text("not offered")
    (folder / "link").symlink_to(tmp_path)
    return folder


def names_in(folder: pathlib.Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")} if folder.exists() else set()


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("more", [(), ("--secluded-args",)])
def test_paths_are_fetched_by_their_names(agent: DataAgent, tree: pathlib.Path, tmp_path: pathlib.Path, named: bool, more: tuple[str, ...]) -> None:
    assert agent.ask("register", key="k", path=str(tree), named=named)["status"] == "ok"
    inside = {"a", "link", "sub dir", "sub dir/b?"}
    for number, (path, names) in enumerate(((str(tree), {tree.name} | {f"{tree.name}/{name}" for name in inside}), (f"{tree}/", inside),
                                            (str(tree)[1:], {tree.name} | {f"{tree.name}/{name}" for name in inside}),
                                            (f"{tree}/sub dir", {"sub dir", "sub dir/b?"}), (f"{tree}/sub dir/", {"b?"}), (f"{tree}/a", {"a"}))):
        # rsync takes a name for a pattern: as its users do, quote what would be one
        path = "".join(f"\\{letter}" if letter in "*?[" else letter for letter in path)
        done = agent.fetch(path, tmp_path / f"got{number}", *more)
        assert done.returncode == 0, (path, done.stderr)
        assert names_in(tmp_path / f"got{number}") == names, path


def test_a_file_and_a_tree_that_has_finished(agent: DataAgent, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    agent.ask("register", key="k", path=str(tree / "a"))
    assert agent.ask("fs_broadcast_complete", group_id="g", key="k", local_path=str(tree / "sub dir"))["status"] == "ok"
    assert agent.fetch(f"{tree}/a".replace("*", "\\*").replace("[", "\\["), tmp_path / "file").returncode == 0
    assert names_in(tmp_path / "file") == {"a"}
    assert agent.fetch(f"{tree}/sub dir/".replace("*", "\\*").replace("[", "\\["), tmp_path / "sub").returncode == 0
    assert names_in(tmp_path / "sub") == {"b?"}


def test_nothing_that_is_not_offered(agent: DataAgent, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    plain = tmp_path / "plain"
    (plain / "sub").mkdir(parents=True)
    (plain / "link").symlink_to(tmp_path)
    (plain / "direct").symlink_to(tmp_path / "secret")
    agent.ask("register", key="k", path=str(plain))
    for number, path in enumerate((str(tree), f"{tmp_path}/", f"{tmp_path}/secret", f"{plain}/../secret", f"{plain}/sub/../../secret", "", "/", "etc/passwd",
                                   f"{plain}/link/secret", f"{plain}/link/", f"{plain}/li*/secret", f"{plain}x", f"{plain}/./link/secret", "../etc/passwd")):
        for more in ((), ("--secluded-args",), ("--relative",), ("--copy-links",)):
            into = tmp_path / f"into{number}"
            agent.fetch(path, into, *more)
            assert not any(file.is_file() for file in into.rglob("*") if not file.is_symlink()), (path, more)
    lost = agent.fetch(str(tree / "a"), tmp_path / "lost")
    assert lost.returncode == 23 and "No such file" in lost.stderr, lost.stderr
    agent.ask("unregister", key="k")
    assert agent.fetch(f"{plain}/", tmp_path / "late").returncode != 0


def test_several_paths_and_other_modules(agent: DataAgent, tmp_path: pathlib.Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / name).mkdir(parents=True)
        place = agent.ask("register", key=name, path=str(tmp_path / name))
    url = f"rsync://127.0.0.1:{agent.data_port}"
    both = ["rsync", "-a", f"{url}/data{tmp_path}/one/one", f"{url}/data{tmp_path}/one/one", f"{tmp_path}/got/"]
    assert subprocess.run(both, check=False, timeout=60, capture_output=True).returncode == 0
    # One connection has one module.
    apart = ["rsync", "-a", f"{url}/data{tmp_path}/one", f"{url}/data{tmp_path}/two", f"{tmp_path}/apart/"]
    assert subprocess.run(apart, check=False, timeout=60, capture_output=True).returncode != 0
    assert agent.rsync({"rsync_port": agent.data_port}, tmp_path / "by module", path=place["rsync_path"] + "/").returncode == 0
    assert names_in(tmp_path / "by module") == {"two"}
    assert "Unknown module" in agent.rsync({"rsync_port": agent.data_port}, tmp_path / "no", path="none/").stderr
    # kubetorch's client asks so whether there is a daemon.
    listed = subprocess.run(["rsync", f"{url}/"], check=False, timeout=60, capture_output=True, text=True)
    assert listed.returncode == 0 and listed.stdout == "", listed


def test_clients_that_are_no_rsync(agent: DataAgent, tmp_path: pathlib.Path) -> None:
    head = b"@RSYNCD: 31.0 md5\ndata\n"
    for data in (b"", b"GET / HTTP/1.1\r\n\r\n", b"@RSYNCD: 28.0\ndata\n--server\n.\ndata/etc\n\n", head, head + b"\0", head + b"\0\0\0", head + b".\0\0",
                 head + b"--server\0.\0data/" + b"x" * 70000 + b"\0\0", b"x" * 100000, head + b"--server\0--sender\0.\0" + b"data/a\0" * 20000):
        with socket.create_connection(("127.0.0.1", agent.data_port), 60) as raw:
            raw.settimeout(60)
            try:
                raw.sendall(data)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(4096):
                    pass
            except ConnectionError:
                pass
    assert agent.ask("ping")["status"] == "ok"


def test_the_end_comes_while_a_client_waits(agent: DataAgent) -> None:
    with socket.create_connection(("127.0.0.1", agent.data_port), 60) as silent, silent.makefile("rb") as file:
        assert file.readline().startswith(b"@RSYNCD:")
        agent.stop()
        assert file.read() == b""


def test_a_token_has_no_place_there(tmp_path: pathlib.Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("let-me-in")
    secret.chmod(0o600)
    with pytest.raises(AssertionError, match="no token to show"):
        DataAgent(tmp_path, "--token-file", str(secret))


@pytest.mark.skipif(networks.refused() != "", reason=networks.refused() or "-")
def test_a_pod_fetches_from_another(tmp_path: pathlib.Path, tree: pathlib.Path) -> None:
    """Each with a network, mount and PID namespace of its own."""
    with networks.network(2) as (parent, child):
        with DataAgent(tmp_path, "--agent-listen", f"{parent.host}:0", "--agent-network", within=parent.within) as agent:
            # Of another PID namespace: nobody's, so it stays until it is withdrawn.
            assert agent.ask("register", key="k", path=str(tree))["status"] == "ok"
            assert agent.ask("list_keys")["keys"][0]["pid"] == 0
            arguments = [parent.host, str(agent.tcp_port), str(agent.data_port), str(tmp_path / "child")]
            with subprocess.Popen([*child.within, sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, text=True) as fetches:
                wait_until("its question is there", lambda: f"{child.host}:" in subprocess.run(
                    ["ip", "netns", "exec", parent.name, "ss", "-tn"], check=True, capture_output=True, text=True).stdout)
                (tmp_path / "whole").mkdir()
                (tmp_path / "whole/file").write_text("W")
                assert agent.ask("fs_broadcast_complete", group_id="g", key="k", local_path=str(tmp_path / "whole"))["status"] == "ok"
                out = fetches.communicate(timeout=120)[0]
            assert fetches.returncode == 0 and json.loads(out)["local_path"] == str(tmp_path / "whole")
            for name in ("old", "new"):
                assert (tmp_path / "child" / name / "file").read_text() == "W"
            os.kill(agent.pid, signal.SIGKILL)  # unshare, which takes the agent with it
            agent.ended_by = signal.SIGKILL
