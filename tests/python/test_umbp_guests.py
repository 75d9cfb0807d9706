# SPDX-License-Identifier: Apache-2.0
"""Engines on penstock's own UMBP client, and mori's nodes: a router finds the blocks of both, whichever protocol it speaks."""
from __future__ import annotations

import pathlib

import pytest
from members import master
from penstock import umbp
from penstock.umbp import UMBPTierType
from tsgrpc import python  # noqa: F401: a fixture
from umbp import DRAM, HBM, Mori, address_of

HASHES = [f"{i:064x}" for i in range(400)]


@pytest.mark.parametrize("name", ["guest", "a guest of a long name"])
def test_one_table_of_blocks(python: str, tmp_path: pathlib.Path, name: str) -> None:  # noqa: F811
    with master(tmp_path, "--umbp", "127.0.0.1:0") as m, Mori(python, address_of(m.node), name) as guest:
        config = umbp.UMBPConfig(dram=umbp.UMBPDramConfig(capacity_bytes=32 << 20))
        config.distributed = umbp.UMBPDistributedConfig(umbp.UMBPMasterClientConfig(m.address, "member", "127.0.0.1"))
        guest.register()
        with umbp.create_umbp_client(config) as member:
            assert member.report_external_kv_blocks(HASHES[:300], UMBPTierType.HBM), member.failure
            guest.report(HASHES[200:], DRAM)
            found = guest.match(HASHES)
            assert found["member"][1] == {HBM: HASHES[:300]} and found[name][1] == {DRAM: HASHES[200:]}
            by_name = {match.node_id: match.hashes_by_tier for match in umbp.UMBPMasterClient(m.address).match_external_kv(HASHES)}
            assert by_name.pop("member") == {UMBPTierType.HBM: HASHES[:300]}
            (shown, tiers), = by_name.items()
            assert tiers == {UMBPTierType.DRAM: HASHES[200:]} and (shown == name or len(name) > 15)
