# SPDX-License-Identifier: Apache-2.0
"""A pool between two leading masters: keys that may lie anywhere are out of reach, and whoever waits gets them."""
from __future__ import annotations

import pytest

import penstock
from etcd import etcd
from masters import Masters
from penstock import errors
from support import start_node


def test_a_wait_outlasts_an_election() -> None:
    with etcd() as e, Masters(e, 2, place="=anywhere") as masters:
        node = start_node("--listen=127.0.0.1:0", "--dram=64M", *(f"--master={address}" for address in masters.addresses))
        with node, penstock.open(f"pool://{masters.address}") as writer, penstock.open(f"pool://{masters.address}") as reader:
            node.wait_for("joined as member")
            for i in range(3):
                writer.put(f"k{i}", b"v" * 1000)
            leader = masters.leader()
            assert reader.get("k0", wait=30) == b"v" * 1000
            masters.nodes[leader].kill()
            with pytest.raises(errors.Unreachable):
                reader.get("k1")
            assert reader.get("k2", wait=60) == b"v" * 1000
