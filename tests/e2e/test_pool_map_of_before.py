# SPDX-License-Identifier: Apache-2.0
"""A master that begins from an older copy of its pool map, as of a file or an etcd that was restored."""
from __future__ import annotations

import json
import pathlib

from members import MISS, ROUTED, Master, master, member
from support import penstock, wait_until

OLDER = "its pool map is older than this node's"


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


def test_former_owners(tmp_path: pathlib.Path) -> None:
    """No node serves by it, so that what was acknowledged elsewhere is not called missing. The last one is good."""
    with master(tmp_path, place="=home:1") as m, member(m, "--host=h1") as one:
        wait_until("it has all", lambda: m.ask("partitions")["served"] == 4096)
        older = m.map_file.read_bytes()
        with member(m, "--host=h2") as two:
            m.has(2)
            wait_until("half has moved", lambda: m.ask("partitions")["served"] == 4096 and len(m.members()) == 2
                       and min(counts(m)) > 1500)
            url = f"pool://{m.address}"
            for i in range(20):
                assert penstock("--url", url, "put", f"k{i}", stdin=b"value").returncode == 0
            m.node.stop()
            last = m.map_file.read_bytes()
            begin_with(m, older)
            for node in (one, two):
                node.wait_for(OLDER)
            for i in range(20):
                said = penstock("--url", url, "--timeout", "300", "get", f"k{i}")
                # Until the lease ends the value is served by the node that has it; then the pool is busy.
                assert said.stdout == b"value" or (said.returncode in (5, 7) and b"not found" not in said.stderr), said
            begin_with(m, last)
            m.has(2)
            for i in range(20):
                assert penstock("--url", url, "get", f"k{i}").stdout == b"value"


def counts(m: Master) -> list[int]:
    """Partitions of each node."""
    said = penstock("--url", f"pool://{m.address}", "node", "list", "--json")
    return [json.loads(line)["primaries"] for line in said.stdout.splitlines()]
