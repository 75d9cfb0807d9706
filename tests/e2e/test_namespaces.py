# SPDX-License-Identifier: Apache-2.0
"""Clients that are not quite here: another user, namespaces of their own. Each works over what it is allowed."""
from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Iterator

import pytest
import support

NOT_ALLOWED, UNREACHABLE = 4, 5
SETTLE_S = 20

NAMESPACES = {
    "user": ("unshare", "--user", "--map-root-user"),
    "pid": ("unshare", "--pid", "--fork"),
    "ipc": ("unshare", "--ipc"),
    "all": ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--ipc"),
}

# Opens a store, looks at a key in place, and says what came of it.
VIEW = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
store, view = ctypes.c_void_p(), ctypes.create_string_buffer(64)
assert lib.penstock_open(sys.argv[2].encode(), None, ctypes.byref(store)) == 0
print(lib.penstock_view(store, b"key", 3, view))
"""


def permitted(*command: str) -> bool:
    return (shutil.which(command[0]) is not None
            and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0)


pytestmark = [
    pytest.mark.skipif(support.sanitized(), reason="python cannot load a library that wants a sanitizer's runtime"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user"),
    pytest.mark.skipif(not permitted(*NAMESPACES["all"]), reason="unshare is not permitted here"),
]


class Place:
    """A node whose unix socket lies where everyone may look."""

    def __init__(self, node: support.Node, path: pathlib.Path) -> None:
        self.node = node
        self.path = path
        self.unix = f"node+unix://{path}"
        self.tcp = node.tcp

    def run(self, url: str, *arguments: str, within: tuple[str, ...] = ()) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*within, str(support.BUILD / "penstock"), "--url", url, *arguments], timeout=60,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False,
                              env=support.clean_environment())

    def lane(self, url: str, within: tuple[str, ...] = ()) -> str:
        done = self.run(url, "ping", "--json", within=within)
        assert done.returncode == 0, done
        return json.loads(done.stdout.splitlines()[-1])["lane"]  # UCX may have warned of a missing network before

    def view(self, url: str, within: tuple[str, ...] = ()) -> int:
        done = subprocess.run([*within, sys.executable, "-c", VIEW, str(support.BUILD / "libpenstock.so"), url],
                              timeout=60, capture_output=True, check=False, env=support.clean_environment())
        assert done.returncode == 0, done
        return int(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="penstock-ns-") as folder:
        os.chmod(folder, 0o755)
        path = pathlib.Path(folder) / "socket"
        with support.start_node("--listen", "127.0.0.1:0", "--unix", str(path), "--dram", "16M", listeners=2) as node:
            place = Place(node, path)
            assert support.penstock("--url", place.unix, "put", "key", stdin=b"v" * 100_000).returncode == 0
            yield place
            node.stop()


def arenas_of(pid: int) -> list[str]:
    """Arenas that a process or its only child holds."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    files = support.file_numbers(int(children[0]) if children else pid)
    return [name for name in files if name.startswith((f"{support.SHM}/#", f"{support.SHM}/penstock-"))]


def held_arenas(place: Place, url: str, within: tuple[str, ...] = ()) -> list[str]:
    """Arenas that a client holds while it works."""
    client = subprocess.Popen([*within, str(support.BUILD / "penstock"), "--url", url, "bench", "--op", "exists",
                               "--seconds", "20"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, env=support.clean_environment())

    def sessions() -> int:
        return json.loads(place.run(place.tcp, "stat", "--json").stdout)["sessions"]

    try:
        support.wait_until("the client's session", lambda: sessions() == 2)
        time.sleep(0.1)
        return arenas_of(client.pid)
    finally:
        for child in pathlib.Path(f"/proc/{client.pid}/task/{client.pid}/children").read_text().split():
            os.kill(int(child), 9)
        client.kill()
        client.wait(support.WAIT_S)
        support.wait_until("the session's end", lambda: sessions() == 1, SETTLE_S)


def test_own_user_and_namespaces(place: Place) -> None:
    assert place.lane(place.unix) == "posix" and place.lane(place.tcp) == "posix"
    assert place.view(place.unix) == 0
    assert held_arenas(place, place.unix)
    assert held_arenas(place, place.tcp) == []


@pytest.mark.parametrize("name", NAMESPACES)
def test_other_namespaces(place: Place, name: str) -> None:
    """The network's lane, no descriptor of an arena and no view, whatever the client says of itself."""
    within = NAMESPACES[name]
    assert place.lane(place.unix, within) == "tcp"
    assert place.lane(place.tcp, within) == "tcp"
    assert place.run(place.unix, "get", "key", within=within).stdout == b"v" * 100_000
    assert place.view(place.unix, within) == -errno.EOPNOTSUPP
    assert held_arenas(place, place.unix, within) == []


def test_other_user(place: Place) -> None:
    refused = place.run(place.unix, "ping", within=support.AS_NOBODY)
    assert refused.returncode == NOT_ALLOWED and b"no permission for the socket" in refused.stderr, refused
    assert place.lane(place.tcp, support.AS_NOBODY) == "tcp"
    mode = place.path.stat().st_mode
    place.path.chmod(0o666)  # an operator who lets others in
    try:
        assert place.lane(place.unix, support.AS_NOBODY) == "tcp"
        assert place.view(place.unix, support.AS_NOBODY) == -errno.EOPNOTSUPP
        assert held_arenas(place, place.unix, support.AS_NOBODY) == []
    finally:
        place.path.chmod(mode)


@pytest.mark.parametrize("name", [(), ("--ipc",)])
def test_other_network(place: Place, name: tuple[str, ...]) -> None:
    """A unix socket leads out of a network namespace, but UCX then has neither memory nor a network in common with
    the node: that is said, within the time to connect."""
    within = ("unshare", "--net", *name)
    refused = place.run(place.unix, "ping", within=within)
    assert refused.returncode == UNREACHABLE and b"(UCX_NET_DEVICES, UCX_TLS" in refused.stderr, refused
    refused = place.run(place.tcp, "ping", within=within)
    assert refused.returncode == UNREACHABLE and refused.stderr.startswith(b"penstock: "), refused


@contextlib.contextmanager
def two_networks() -> Iterator[tuple[tuple[str, ...], ...]]:
    """Two network namespaces, 10.79.0.1 and 10.79.0.2, joined by a cable: what to run a command in either with."""
    names = [f"penstock-{side}-{os.getpid()}" for side in "ab"]

    def ip(words: str) -> str:
        return subprocess.run(["ip", *words.split()], check=True, capture_output=True, text=True).stdout

    try:
        for name in names:
            ip(f"netns add {name}")
        ip(f"link add veth0 netns {names[0]} type veth peer name veth0 netns {names[1]}")
        for number, name in enumerate(names, 1):
            ip(f"-n {name} addr add 10.79.0.{number}/24 dev veth0")
            ip(f"-n {name} link set veth0 up")
            ip(f"-n {name} link set lo up")
        for name in names:  # UCX looks once
            support.wait_until("the cable", lambda: "state UP" in ip(f"-n {name} link show veth0"))
        yield tuple(("ip", "netns", "exec", name) for name in names)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.mark.skipif(not permitted("ip", "netns", "list"), reason="no iproute2 here")
def test_networks_with_a_way(tmp_path: pathlib.Path) -> None:
    """Another network namespace alone keeps shared memory out: UCX could not wake the other side there."""
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("0123456789abcdef" * 2)
    with two_networks() as (here, there):
        with support.start_node("--listen", "10.79.0.1:0", "--unix", f"{tmp_path}/s", "--dram", "16M", "--fabric",
                                "trusted", "--secret-file", str(secret), listeners=2, within=here) as node:
            place = Place(node, tmp_path / "s")
            for url in (place.unix, f"node://10.79.0.1:{node.ports()[0]}"):
                url += f"?fabric=trusted&secret_file={secret}"
                assert place.lane(url, here) == "posix"
                assert place.lane(url, there) == "tcp"
            node.stop()


def test_sockets_of_clients_stay_on_loopback(place: Place) -> None:
    """Without a trusted fabric no process listens on the network, whatever the environment asks of UCX."""
    for url in (f"{place.tcp}?lane=tcp", place.tcp, place.unix):
        client = subprocess.Popen([str(support.BUILD / "penstock"), "--url", url, "bench", "--op", "exists",
                                   "--seconds", "20"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, env=support.clean_environment(UCX_NET_DEVICES="all"))
        try:
            support.wait_until("a socket that listens", lambda: support.listening_addresses(client.pid))
            time.sleep(0.3)
            for address in support.listening_addresses(client.pid) + support.listening_addresses(place.node.pid):
                assert support.is_loopback(address), (url, address)
        finally:
            client.kill()
            client.wait(support.WAIT_S)
