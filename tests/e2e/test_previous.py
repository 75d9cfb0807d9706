# SPDX-License-Identifier: Apache-2.0
"""The previous version's client on this node, and this client on the previous version's node: refused by name."""
from __future__ import annotations

import pathlib

import pytest
import support
from previous import PREVIOUS, VERSION, previous  # noqa: F401: a fixture

UNREACHABLE = 5


def test_previous_client_is_refused(previous: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with support.start_node("--listen", "127.0.0.1:0", "--dram", "64M") as node:
        with monkeypatch.context() as patch:
            patch.setattr(support, "BUILD", previous)
            done = support.penstock("--url", node.tcp, "ping")
        assert done.returncode == UNREACHABLE
        assert f"the node speaks version {VERSION}, this client {PREVIOUS} to {PREVIOUS}".encode() in done.stderr
        node.wait_for(f"version {PREVIOUS} asked for, {VERSION} to {VERSION} spoken")
        assert support.penstock("--url", node.tcp, "ping").returncode == 0


def test_previous_node_is_refused(previous: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(support, "BUILD", previous)
        node = support.start_node("--listen", "127.0.0.1:0", "--dram", "64M")
    with node:
        done = support.penstock("--url", node.tcp, "ping")
        assert done.returncode == UNREACHABLE
        assert f"the node speaks version {PREVIOUS}, this client {VERSION} to {VERSION}".encode() in done.stderr
        with monkeypatch.context() as patch:
            patch.setattr(support, "BUILD", previous)
            assert support.penstock("--url", node.tcp, "ping").returncode == 0
