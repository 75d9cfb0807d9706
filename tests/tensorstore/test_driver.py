# SPDX-License-Identifier: Apache-2.0
"""The remote_dram driver in processes of its own: beside TensorStore's wheel, killed in mid-write, over a network."""
from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
from typing import Iterator

import pytest
import support
from driver import DRIVER, array_spec
from ports import free_port
from support import penstock, start_node, wait_until
from tsgrpc import CLIENT, LOOPBACK, address_of, python  # noqa: F401: a fixture

LIMIT_S = 120
LOG = {"TENSORSTORE_VERBOSE_LOGGING": "remote_dram"}
MIB = 1 << 20


def run(*command: object, **environment: str) -> str:
    """What a command that succeeds says."""
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=LIMIT_S, check=False, env=support.clean_environment(**environment))
    assert done.returncode == 0, done.stdout
    return done.stdout


def zarr(store: dict, side: int, chunk_side: int) -> dict:
    return {"driver": "zarr", "kvstore": store | {"path": "zarr/"},
            "metadata": {"shape": [side, side], "chunks": [chunk_side, chunk_side], "dtype": "<f4", "compressor": None}}


# ---- the wheel beside it


@pytest.mark.parametrize("name", ["zarr", "zarr3", "ocdbt"])
def test_driver_and_wheel_read_each_other(python: str, name: str) -> None:  # noqa: F811
    with start_node("--listen", "127.0.0.1:0", "--folder", str(support.SHM), "--tsgrpc", LOOPBACK) as node:
        stores = {"driver": {"driver": "remote_dram", "remote_addr": node.tcp.removeprefix("node://")},
                  "wheel": {"driver": "tsgrpc_kvstore", "address": address_of(node)}}

        def array(who: str, what: str, path: str) -> None:
            spec = json.dumps(array_spec(name, stores[who] | {"path": path}))
            run(*([DRIVER / "ts_arrays", what] if who == "driver" else [python, "-B", CLIENT, f"array_{what}"]), spec)

        for writer, reader in (("driver", "wheel"), ("wheel", "driver")):
            array(writer, "write", f"of {writer}/")
            array(reader, "check", f"of {writer}/")
        node.stop()


# ---- one writer, one server, one reader


@pytest.fixture(name="server")
def logging_server(tmp_path: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    """The example's server, which reports what it stores: its address and its log."""
    address, log = f"127.0.0.1:{free_port()}", tmp_path / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen([DRIVER / "remote_dram_server", f"--listen_addr={address}"], stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=subprocess.STDOUT, env=support.clean_environment(**LOG))
    try:
        wait_until("a server", lambda: "ready to receive" in log.read_text())
        yield address, log
        process.terminate()
        assert process.wait(support.WAIT_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def reported(log: pathlib.Path) -> tuple[set[str], int]:
    """The keys whose storing the server has reported, and how many it has said that there are."""
    text = log.read_text()
    return set(re.findall(r'Server stored key-value pair: key="([^"]+)"', text)), int(re.findall(r"(\d+) keys stored", text)[-1])


def test_writer_killed_in_mid_write(server: tuple[str, pathlib.Path]) -> None:
    """What was written before is there, and every value is one of the writer's as a whole."""
    address, log = server
    spec = zarr({"driver": "remote_dram", "remote_addr": address}, 2048, 512)
    chunks = {f"zarr/{i}.{j}" for i in range(4) for j in range(4)}
    for _ in range(3):
        penstock("--url", f"node://{address}", "rm", "zarr/.zarray")
        writer = subprocess.Popen([DRIVER / "ts_arrays", "churn", json.dumps(spec)], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, text=True)
        assert writer.stdout
        for _ in range(5):
            assert writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        rest, _ = writer.communicate(timeout=support.WAIT_S)
        assert writer.returncode == -signal.SIGKILL
        written = int(rest.split()[-1]) if rest else 5
        listed = penstock("--url", f"node://{address}", "ls", "zarr/").stdout.decode().split()
        assert chunks < set(listed), listed
        for key in chunks:
            value = penstock("--url", f"node://{address}", "get", key).stdout
            assert len(value) == MIB and value == value[:4] * (MIB // 4), key
            assert struct.unpack("<f", value[:4])[0] in (written, written + 1), key
        wait_until("the server's report", lambda: chunks < reported(log)[0] and reported(log)[1] == len(listed))


def test_three_processes(server: tuple[str, pathlib.Path]) -> None:
    """On one machine UCX takes shared memory, or TCP where it is told to."""
    address, log = server
    store = {"driver": "remote_dram", "remote_addr": address}
    write = run(DRIVER / "ts_arrays", "write", json.dumps(zarr(store, 1024, 512)), **LOG)
    assert re.search(r'WriteRemote: key="zarr/0.0" bytes=1048576 .* transport=posix', write), write
    read = run(DRIVER / "ts_arrays", "check", json.dumps(zarr(store | {"lane": "tcp"}, 1024, 512)), **LOG)
    assert re.search(r'ReadRemote: key="zarr/0.0" bytes=1048576 .* transport=tcp found=yes', read), read
    wait_until("the server's report", lambda: len(reported(log)[0]) == 5 and reported(log)[1] == 5)


# ---- in namespaces

NODE = ("unshare", "--pid", "--ipc", "--mount", "--fork", "--kill-child", "--mount-proc")


def permitted() -> bool:
    name = f"pst-{os.getpid()}-try"
    try:
        return all(subprocess.run(command, capture_output=True, check=False).returncode == 0 for command in (
            ["ip", "netns", "add", name], ["ip", "netns", "exec", name, *NODE, "true"]))
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.fixture(name="nodes")
def joined_namespaces() -> Iterator[dict[str, str]]:
    """Three namespaces: the server's has a bridge, to which the others are joined."""
    if os.geteuid() != 0 or not shutil.which("ip") or not permitted():
        pytest.skip("network namespaces need root, iproute2, and to be allowed")
    nodes = {name: f"pst-{os.getpid()}-{name}" for name in ("server", "writer", "reader")}
    try:
        for name in nodes.values():
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", nodes["server"], "link", "add", "bridge0", "type", "bridge")
        for number, name in enumerate(("writer", "reader"), 2):
            run("ip", "link", "add", "veth0", "netns", nodes[name], "type", "veth", "peer", "name", f"veth{number}",
                "netns", nodes["server"])
            run("ip", "-n", nodes["server"], "link", "set", f"veth{number}", "master", "bridge0", "up")
            run("ip", "-n", nodes[name], "addr", "add", f"10.79.0.{number}/24", "dev", "veth0")
            run("ip", "-n", nodes[name], "link", "set", "veth0", "up")
        run("ip", "-n", nodes["server"], "addr", "add", "10.79.0.1/24", "dev", "bridge0")
        run("ip", "-n", nodes["server"], "link", "set", "bridge0", "up")
        # UCX looks once, so both ends have to know that they are connected.
        for name, device in (("server", "bridge0"), ("writer", "veth0"), ("reader", "veth0")):
            wait_until(f"{device} up", lambda n=name, d=device: "state UP" in run("ip", "-n", nodes[n], "link", "show", d))
        yield nodes
    finally:
        for name in nodes.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def bytes_received(namespace: str) -> int:
    return int(run("ip", "netns", "exec", namespace, "cat", "/sys/class/net/veth0/statistics/rx_bytes"))


def test_three_namespaces(nodes: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Writer, server and reader without network, IPC or processes in common: the bytes go over the wire between them."""
    secret = support.secret_file(tmp_path / "secret")
    address, log = "10.79.0.1:12345", tmp_path / "server.log"

    def within(name: str, *command: object) -> list[str]:
        return ["ip", "netns", "exec", nodes[name], *NODE, *map(str, command)]

    with log.open("wb") as out:
        server = subprocess.Popen(
            within("server", DRIVER / "remote_dram_server", f"--listen_addr={address}", f"--secret_file={secret}",
                   "--fabric=trusted"), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            env=support.clean_environment(**LOG))
    try:
        wait_until("a server", lambda: "ready to receive" in log.read_text())
        store = {"driver": "remote_dram", "remote_addr": address, "secret_file": str(secret), "fabric": "trusted"}
        spec = json.dumps(zarr(store, 2048, 512))
        write = run(*within("writer", DRIVER / "ts_arrays", "write", spec), **LOG)
        before = bytes_received(nodes["reader"])
        read = run(*within("reader", DRIVER / "ts_arrays", "check", spec), **LOG)
        assert bytes_received(nodes["reader"]) - before > 16 * MIB
        for said, word in ((write, "WriteRemote"), (read, "ReadRemote")):
            assert set(re.findall(rf"{word}: .* transport=(\w+)", said)) == {"tcp"}, said
        wait_until("the server's report", lambda: len(reported(log)[0]) == 17 and reported(log)[1] == 17)
    finally:
        server.kill()  # unshare, which takes its child along
        server.wait()
