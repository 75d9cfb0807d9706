# SPDX-License-Identifier: Apache-2.0
"""A master that begins from an older copy of its pool map, as of a file or an etcd that was restored."""
from __future__ import annotations

import pathlib

from members import MISS, ROUTED, Master, master, member
from support import penstock, wait_until


def begin_with(m: Master, file: bytes) -> None:
    m.node.kill()
    m.map_file.write_bytes(file)
    m.back()


def test_an_epoch_that_comes_again(tmp_path: pathlib.Path) -> None:
    """The node is another member of the same epoch: it tells what it has, as any that joins."""
    with master(tmp_path) as m:
        with member(m) as first:
            m.has(1)
            older = m.map_file.read_bytes()
            first.stop()
        wait_until("it has left", lambda: m.members() == [])
        with member(m) as node:
            node.wait_for("joined as member 0, epoch 2")
            assert penstock("--url", node.tcp, "put", "k", stdin=b"value").returncode == 0
            begin_with(m, older)
            node.wait_for("joined as member 1, epoch 2")
            wait_until("its key is known", lambda: m.statuses("k") == [ROUTED])
            assert penstock("--url", f"pool://{m.address}", "get", "k").stdout == b"value"
            wait_until("the first one is missed", lambda: m.statuses("none") == [MISS])
