# SPDX-License-Identifier: Apache-2.0
"""penstock tree prune where names are odd, chunks are bad, and a pool's keys move while it looks at them."""
from __future__ import annotations

import hashlib
import json
import pathlib
import random
from typing import Iterator

import pytest
from home_pool import Pool, pool
from members import member
from support import Node, penstock, start_node, wait_until
from trees import run_tree, start_tree, state_of

USAGE, CORRUPT, OTHER = 2, 6, 7
TREES = 60


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Iterator[str]:
    with start_node(f"--unix={tmp_path}/socket", "--dram=512M") as _:
        yield f"node+unix://{tmp_path}/socket"


def put_value(url: str, key: str, value: bytes) -> None:
    said = penstock("--url", url, "put", key, stdin=value)
    assert said.returncode == 0, said.stderr


def test_names_that_begin_with_a_slash(node: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"bytes")
    assert "slash" in run_tree("put", tmp_path / "file", f"{node}//5", code=USAGE)
    run_tree("put", tmp_path / "file", f"{node}/m")
    put_value(node, "tree//5", b"another's")
    assert "it is no tree" in run_tree("prune", node, code=CORRUPT)
    run_tree("get", f"{node}/m", tmp_path / "out")


@pytest.mark.parametrize("size", [10, 10_000])
def test_force_mends_a_chunk_with_other_bytes(node: str, tmp_path: pathlib.Path, size: int) -> None:
    data = random.Random(7).randbytes(10_000)
    (tmp_path / "file").write_bytes(data)
    put_value(node, f"chunk/{hashlib.sha256(data).hexdigest()}", bytes(size))
    run_tree("put", "--force", tmp_path / "file", f"{node}/m")
    run_tree("get", f"{node}/m", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == data


class LargePool(Pool):
    """With room for chunks of all sizes."""

    def node(self, number: int) -> Node:
        return member(self.master, f"--host=h{number}", "--replica-ms=1000", "--dram=256M")


def test_nothing_is_lost_while_keys_move(tmp_path: pathlib.Path) -> None:
    """A listing may miss what goes from a node that it has not asked yet to one that it has."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tmp_path / "pool").mkdir()
    with pool(tmp_path / "pool", 1, "--place=chunk/=anywhere", kind=LargePool) as three:
        for number in range(TREES):
            (tree / "file").write_bytes(random.Random(number).randbytes(2000))
            run_tree("put", tree, f"{three.url}/{number}")
        name = f"127.0.0.1:{three.nodes[2].ports()[0]}"
        assert penstock("--url", three.url, "node", "drain", name).returncode == 0

        def drained() -> bool:
            prune = start_tree("--json", "prune", three.url)
            said, fault = prune.communicate(timeout=60)
            assert prune.returncode in (0, OTHER), fault
            assert "keys moved" in fault if prune.returncode else json.loads(said)["chunks"] == 0, fault
            nodes = penstock("--url", three.url, "node", "list", "--json").stdout.splitlines()
            return any(json.loads(each)["state"] == "drained" for each in nodes)

        wait_until("the node is drained", drained, 60)
        run_tree("prune", three.url)
        for number in range(TREES):
            (tree / "file").write_bytes(random.Random(number).randbytes(2000))
            run_tree("get", f"{three.url}/{number}", tmp_path / "out")
            assert (tmp_path / "out/file").read_bytes() == (tree / "file").read_bytes()
