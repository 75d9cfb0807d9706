# SPDX-License-Identifier: Apache-2.0
"""UMBP in a pool: names of nodes, blocks that engines hold, values in ranges, and a client of the master alone."""
from __future__ import annotations

import ctypes
import pathlib
from collections.abc import Iterator

import penstock
import pytest
from members import Master, master
from penstock import umbp
from penstock.umbp import UMBPTierType, names
from penstock.umbp.names import PREFIX

HASHES = [f"{i:064x}" for i in range(20)]
NAMES = ["10.0.0.12:dp0:pp0:tp0", "a name of more than fifteen bytes", "ü" * 400, "short", "ab" * 16, "AB" * 16, "zero\0"]
HBM, DRAM, SSD = UMBPTierType.HBM, UMBPTierType.DRAM, UMBPTierType.SSD
DATA = bytes(range(251)) * 800
MEMORY = ctypes.create_string_buffer(DATA, len(DATA))
AT = ctypes.addressof(MEMORY)


@pytest.fixture(scope="module", params=["=anywhere", None])
def pool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Master]:
    patient = ("--member-ttl-ms=10000", "--lease-ms=3000", "--lease-margin-ms=1000")
    with master(tmp_path_factory.mktemp("pool"), *patient, place=request.param) as m:
        yield m


def config_of(m: Master, name: str) -> umbp.UMBPConfig:
    config = umbp.UMBPConfig(dram=umbp.UMBPDramConfig(capacity_bytes=32 << 20))
    config.distributed = umbp.UMBPDistributedConfig(umbp.UMBPMasterClientConfig(m.address, name, "127.0.0.1"), dram_page_size=512)
    return config


@pytest.mark.parametrize("name", NAMES)
def test_names_come_back(pool: Master, name: str) -> None:
    with umbp.create_umbp_client(config_of(pool, name)) as client, umbp.create_umbp_client(config_of(pool, "other")) as other:
        assert client.report_external_kv_blocks(HASHES, HBM), client.failure
        for asked in (other, client, umbp.UMBPMasterClient(pool.address)):
            match, = asked.match_external_kv(HASHES)
            assert match.node_id == name and match.hashes_by_tier == {HBM: HASHES}
        assert other.clear(), other.failure  # the values, not the name
        match, = umbp.UMBPMasterClient(pool.address).match_external_kv(HASHES)
        assert match.node_id == name
        assert all(entry.name.startswith(PREFIX) for entry in other.store.list())


def test_a_name_that_was_cleared_is_told_again(pool: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "TOLD_S", 0.0)
    with umbp.create_umbp_client(config_of(pool, NAMES[1])) as client, penstock.open(f"pool://{pool.address}") as store:
        assert client.report_external_kv_blocks(HASHES, HBM)
        store.clear()
        assert client.report_external_kv_blocks(HASHES, HBM)
        match, = umbp.UMBPMasterClient(pool.address).match_external_kv(HASHES)
        assert match.node_id == NAMES[1]


def test_a_node_without_a_name_is_waited_for_once(pool: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "NAMELESS_S", 0.0)
    node = bytes(range(16))
    with penstock.open(f"pool://{pool.address}") as store:
        known = names.NodeNames(store)
        assert known.of([node]) == {node: node.hex()}
        monkeypatch.setattr(names.time, "sleep", lambda seconds: pytest.fail("it is waited for again"))
        assert known.of([node]) == {node: node.hex()}


def test_clear_takes_the_nodes_own_blocks_back(pool: Master) -> None:
    with umbp.create_umbp_client(config_of(pool, "one")) as one, umbp.create_umbp_client(config_of(pool, "two")) as two:
        for tier in (HBM, DRAM, SSD):
            assert one.report_external_kv_blocks(HASHES, tier)
        assert two.report_external_kv_blocks(HASHES[:3], DRAM)
        assert one.put_from_ptr("k", AT, 100) and one.clear() and not two.exists("k")
        match, = two.match_external_kv(HASHES)
        assert match.node_id == "two" and match.hashes_by_tier == {DRAM: HASHES[:3]}


def test_a_node_that_the_pool_does_not_have_is_ignored(pool: Master) -> None:
    config = config_of(pool, "nobody there")
    assert config.distributed
    config.distributed.master_config.auto_heartbeat = False
    with umbp.create_umbp_client(config) as client:
        assert client.node is None and client.report_external_kv_blocks(HASHES, HBM) and client.failure is None
        assert client.revoke_external_kv_blocks(HASHES, HBM) and client.match_external_kv(HASHES) == []


def test_a_client_of_the_master_alone(pool: Master) -> None:
    with umbp.create_umbp_client(config_of(pool, "engine")) as engine:
        router = umbp.UMBPMasterClient(pool.address, "router", "127.0.0.1")
        assert repr(router) == f"<UMBPMasterClient pool://{pool.address}>" and not router.is_registered()
        router.report_external_kv_blocks("engine", HASHES, DRAM)
        router.report_external_kv_blocks("router", HASHES, DRAM)  # ignored: it is no member
        match, = router.match_external_kv(HASHES, count_as_hit=True)
        assert match.node_id == "engine" and match.matched_hash_count() == len(HASHES)
        assert {one.hash: one.hit_count_total for one in router.get_external_kv_hit_counts(HASHES)} == dict.fromkeys(HASHES, 1)
        router.register_self({DRAM: (1 << 30, 1 << 30)})
        with pytest.raises(RuntimeError, match="registered already"):
            router.register_self()
        assert router.is_registered()
        router.report_external_kv_blocks("router", HASHES[:2], HBM)
        assert {one.node_id for one in engine.match_external_kv(HASHES)} == {"engine", "router"}
        router.revoke_all_external_kv_blocks_at_tier("router", HBM)
        router.revoke_external_kv_blocks("engine", HASHES[1:], DRAM)
        match, = router.match_external_kv(HASHES)
        assert match.hashes_by_tier == {DRAM: HASHES[:1]}
        router.unregister_self()
        router.unregister_self()
        assert not router.is_registered()
        router.close()
        with pytest.raises(RuntimeError, match="closed"):
            router.match_external_kv(HASHES)
    with pytest.raises(RuntimeError, match="node_id"):
        umbp.UMBPMasterClient(pool.address).register_self()


def test_ranges(pool: Master) -> None:
    """A value is gathered from places in any order, and read in parts."""
    with umbp.create_umbp_client(config_of(pool, "ranges")) as client:
        size = 150_000
        parts = [(100_000, 50_000), (0, 7), (7, 99_993)]  # offsets and sizes
        ptrs, sizes, offsets = [[AT + o for o, _ in parts]], [[s for _, s in parts]], [[o for o, _ in parts]]
        assert client.batch_put_ranges_from_ptr(["v"], [size], ptrs, sizes, offsets) == [True]
        assert client.store.get("v") == DATA[:size]
        assert client.batch_put_ranges_from_ptr(["v", "w"], [size, size], ptrs * 2, sizes * 2, offsets * 2) == [True, True]
        gap, twice, short = [[0, 7, 100_000]], [[0, 0, 7]], [[0, 7, 8]]
        for wrong in (gap, twice, short):
            assert client.batch_put_ranges_from_ptr(["x", "y"], [size, size], [ptrs[0]] * 2, [[7, 5, 9], sizes[0]],
                                                    [wrong[0], offsets[0]]) == [False, True]
            assert "ranges" in str(client.failure) and not client.exists("x")

        into = ctypes.create_string_buffer(size)
        at = ctypes.addressof(into)
        wanted = [(140_000, 5000), (3, 10), (13, 20), (60_000, 1)]
        got = client.batch_get_ranges_into_ptr(["v", "none", "w"], [[at + o for o, _ in wanted], [at], [at + 90_000]],
                                               [[s for _, s in wanted], [1], [100]], [[o for o, _ in wanted], [0], [90_000]])
        assert got == [True, False, True] and client.failure is None
        for offset, length in [*wanted, (90_000, 100)]:
            assert into.raw[offset:offset + length] == DATA[offset:offset + length]
        assert into.raw[34:60_000] == bytes(59_966)
        assert client.batch_get_ranges_into_ptr(["v", "w"], [[at], [at]], [[10], [10]], [[size - 5], [0]]) == [False, True]
        assert isinstance(client.failure, penstock.Invalid)
        assert client.batch_get_ranges_into_ptr([], [], [], []) == []
        for call, text in ((lambda: client.batch_get_ranges_into_ptr(["v"], [], [[1]], [[0]]), "1 keys and 0 ptrs"),
                           (lambda: client.batch_get_ranges_into_ptr(["v"], [[at]], [[1, 2]], [[0]]), r"sizes\[0\]"),
                           (lambda: client.batch_put_ranges_from_ptr(["v"], [1], [[0]], [[1]], [[0]]), "address 0")):
            with pytest.raises(ValueError, match=text):
                call()


def test_chains_that_are_deeper_than_any(pool: Master) -> None:
    with umbp.create_umbp_client(config_of(pool, "deep")) as client:
        assert client.batch_put_from_ptr_with_depth(["d/1", "d/2"], [AT] * 2, [10] * 2, [65534, 1 << 40]) == [True, True]
        assert client.store.head("d/2").depth == 65534


def test_what_was_lost_is_missing_alone(tmp_path: pathlib.Path) -> None:
    """Of the keys that nobody can say anything about, and of those alone, the answer is that they are not there."""
    with master(tmp_path, "--incomplete-ms=300", place=None) as m:
        first = umbp.create_umbp_client(config_of(m, "first"))
        with umbp.create_umbp_client(config_of(m, "second")) as second:
            keys = [f"{i}" for i in range(64)]
            assert first.batch_put_from_ptr(keys, [AT] * 64, [100] * 64) == [True] * 64
            here = [key in {entry.name for entry in second.store.list()} for key in keys]
            assert all(here)
            first.close()
            found = second.batch_exists(keys)
            assert second.failure is None and 0 <= found.count(True) <= 64
            assert second.batch_put_from_ptr(keys, [AT] * 64, [100] * 64) == [True] * 64, second.failure
            assert second.batch_exists(keys) == [True] * 64
