# SPDX-License-Identifier: Apache-2.0
"""Versions of UCX, and settings that one of them does not take: on the UCX that is installed, which says it is another."""
from __future__ import annotations

import pathlib

import pytest
import support

OTHER = support.BUILD / "tests/e2e/libother_ucx.so"

pytestmark = pytest.mark.skipif(support.sanitized(), reason="a sanitizer wants to be loaded first")


def other(**what: str) -> dict[str, str]:
    return {"LD_PRELOAD": support.preloadable(OTHER)} | {f"OTHER_UCX_{name}": text for name, text in what.items()}


@pytest.mark.parametrize("what", ["UNKNOWN", "DEAF"])
@pytest.mark.parametrize("setting", ["TCP_RX_SEG_SIZE=512K", "MM_FIFO_SIZE=64"])
def test_setting_that_is_not_taken_is_named(what: str, setting: str) -> None:
    name = setting.partition("=")[0]
    _, log = support.fails_to_start("--listen", "127.0.0.1:0", environment=other(
        VERSION="1.22.7", **{what: f"{name} {name.partition('_')[2]}"}))
    assert f"UCX 1.22.7 does not take the setting UCX_{setting}" in log


def test_older_than_the_floor() -> None:
    _, log = support.fails_to_start("--listen", "127.0.0.1:0", environment=other(VERSION="1.12.1"))
    assert "UCX 1.12.1 is older than 1.13" in log


def test_client_names_the_setting(tmp_path: pathlib.Path) -> None:
    with support.start_node("--unix", str(tmp_path / "s"), "--dram", "64M") as node:
        done = support.penstock("--url", f"node+unix://{tmp_path}/s", "ping",
                                environment=other(UNKNOWN="TCP_CONN_NB CONN_NB"))
        assert done.returncode != 0 and b"does not take the setting UCX_TCP_CONN_NB=y" in done.stderr
        node.stop()


def test_version_that_nobody_has_tried(tmp_path: pathlib.Path) -> None:
    """It has all of its own functions, and talks to its own kind alone."""
    url = f"node+unix://{tmp_path}/s"
    with support.start_node("--unix", str(tmp_path / "s"), "--dram", "64M", environment=other(VERSION="1.99.3")) as node:
        node.wait_for("UCX 1.99.3, with which nobody has tried this")
        for lane in ("", "?lane=tcp"):
            alike = support.penstock("--url", url + lane, "put", "k", stdin=bytes(300000), environment=other(VERSION="1.99.0"))
            assert alike.returncode == 0, alike.stderr
            assert support.penstock("--url", url + lane, "get", "k", environment=other(VERSION="1.99.0")).stdout == bytes(300000)
        for version in ("1.13.1", "1.98.3", "2.99.3"):
            done = support.penstock("--url", url, "ping", environment=other(VERSION=version))
            assert done.returncode == 5
            assert f"the node has UCX 1.99.3, which does not go with this client's {version}" in done.stderr.decode()
            node.wait_for(f"it has UCX {version}, the node 1.99.3")
        node.stop()


def test_numbers_of_namespaces(tmp_path: pathlib.Path) -> None:
    """Over the loopback device nothing comes through between 1.21 and 1.22, so nobody tries."""
    with support.start_node("--listen", "127.0.0.1:0", "--dram", "64M", environment=other(VERSION="1.21.0")) as node:
        assert support.penstock("--url", node.tcp + "?lane=tcp", "ping", environment=other(VERSION="1.13.1")).returncode == 0
        done = support.penstock("--url", node.tcp + "?lane=tcp", "ping", environment=other(VERSION="1.22.0"))
        assert done.returncode == 5 and b"the node has UCX 1.21.0, which does not go with this client's 1.22.0" in done.stderr
        node.stop()


def test_environment_does_not_change_what_both_ends_need() -> None:
    """Each of these alone makes a pair of processes write over memory, or wait for what does not come."""
    wrong = {"UCX_TCP_RX_SEG_SIZE": "16k", "UCX_MM_SEG_SIZE": "4k", "UCX_MM_FIFO_SIZE": "256", "UCX_MM_FIFO_ELEM_SIZE": "256",
             "UCX_PROTO_ENABLE": "y", "UCX_LOG_LEVEL": "fatal"}
    with support.start_node("--listen", "127.0.0.1:0", "--dram", "64M", environment=wrong) as node:
        for lane in ("", "?lane=tcp"):
            value = bytes(range(256)) * 8192
            assert support.penstock("--url", node.tcp + lane, "put", "k", stdin=value).returncode == 0
            assert support.penstock("--url", node.tcp + lane, "get", "k").stdout == value
        node.stop()


@pytest.mark.parametrize("tls", ["tcp", "posix,self", "^tcp", "^shm", "^posix,sysv", "all"])
def test_transports_that_are_left_out_get_no_settings(tmp_path: pathlib.Path, tls: str) -> None:
    """UCX warns of settings that it has no use for."""
    with support.start_node("--unix", str(tmp_path / "s"), "--dram", "16M", environment={"UCX_TLS": tls}) as node:
        done = support.penstock("--url", f"node+unix://{tmp_path}/s", "ping", environment={"UCX_TLS": tls})
        assert done.returncode == 0 and b"UCX" not in done.stdout + done.stderr, done
        node.stop()
        assert "UCX  WARN" not in node.log(), node.log()
