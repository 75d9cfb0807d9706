# SPDX-License-Identifier: Apache-2.0
"""penstockd --tsgrpc for longer than `make test` takes: arrays of a gigabyte, a crowd, and nodes that end under it."""
from __future__ import annotations

import pathlib
import signal

import support
from support import start_node
from tsgrpc import LOOPBACK, address_of, client, python, settled, succeeds  # noqa: F401: a fixture
from tsgrpc_abuses import leave_nothing_behind


def test_gigabyte(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    with start_node("--unix", f"{tmp_path}/socket", "--dram", "2500M", "--tsgrpc", LOOPBACK) as node:
        node.url = f"node+unix://{tmp_path}/socket"
        succeeds(client(python, node, "large", "1024"))
        settled(node)
        node.stop()


def test_crowd(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    with start_node("--unix", f"{tmp_path}/socket", "--shards", "4", "--tsgrpc", LOOPBACK) as node:
        node.url = f"node+unix://{tmp_path}/socket"
        clients = [client(python, node, "count", "200") for _ in range(8)]
        clients += [client(python, node, "overwrite", "60") for _ in range(4)]
        for process in clients:
            succeeds(process)
        assert support.penstock("--url", node.url, "get", "number").stdout == b"1600"
        settled(node)
        node.stop()


def test_nodes_that_end(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    """Ten times: killed, or told to end, with reads underway; the next one takes its address."""
    address = LOOPBACK
    for number in range(10):
        with start_node("--unix", f"{tmp_path}/socket", "--tsgrpc", address) as node:
            address = address_of(node)
            process = client(python, node, "read_until_killed")
            assert process.stdout.readline() == "reading\n"
            node.process.send_signal(signal.SIGKILL if number % 2 else signal.SIGTERM)
            succeeds(process)


def test_abuse_for_longer(tmp_path: pathlib.Path) -> None:
    with start_node("--unix", f"{tmp_path}/socket", "--tsgrpc", LOOPBACK) as node:
        node.url = f"node+unix://{tmp_path}/socket"
        for _ in range(10):
            leave_nothing_behind(node)
        node.stop()
