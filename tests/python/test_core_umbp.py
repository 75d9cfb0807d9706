# SPDX-License-Identifier: Apache-2.0
"""UMBP's calls: their names, what they answer, and what they refuse, on stores of every kind."""
from __future__ import annotations

import ctypes
import inspect
import json
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import penstock
import support
from penstock import umbp
from penstock.umbp import UMBPTierType
from members import Master, master, member

CALLS = {
    "put_from_ptr": ["key", "src", "size"],
    "get_into_ptr": ["key", "dst", "size"],
    "batch_put_from_ptr": ["keys", "ptrs", "sizes"],
    "batch_put_from_ptr_with_depth": ["keys", "ptrs", "sizes", "depths"],
    "batch_get_into_ptr": ["keys", "ptrs", "sizes"],
    "batch_put_ranges_from_ptr": ["keys", "object_sizes", "ptrs", "sizes", "offsets"],
    "batch_get_ranges_into_ptr": ["keys", "ptrs", "sizes", "offsets"],
    "exists": ["key"],
    "batch_exists": ["keys"],
    "batch_exists_consecutive": ["keys"],
    "clear": [],
    "flush": [],
    "close": [],
    "is_distributed": [],
    "get_deployment_mode": [],
    "get_backend_mode": [],
    "supports_ranged_io": [],
    "register_memory": ["ptr", "size", "loc", "device"],
    "deregister_memory": ["ptr"],
    "report_external_kv_blocks": ["hashes", "tier"],
    "revoke_external_kv_blocks": ["hashes", "tier"],
    "revoke_all_external_kv_blocks_at_tier": ["tier"],
    "match_external_kv": ["hashes", "count_as_hit"],
    "get_external_kv_hit_counts": ["hashes"],
}
KEYS = [f"block/{i}" for i in range(9)]
SIZES = [1, 100, 2048, 2049, 65536, 300_000, 1 << 20, 3, 70_001]


class Memory:
    """Blocks of SIZES behind one another, by address."""

    def __init__(self, fill: int | None = None) -> None:
        self.bytes = (ctypes.c_ubyte * sum(SIZES))()
        self.at = [ctypes.addressof(self.bytes) + sum(SIZES[:i]) for i in range(len(SIZES))]
        for i, size in enumerate(SIZES):
            ctypes.memset(self.at[i], i + 1 if fill is None else fill, size)

    def block(self, i: int) -> bytes:
        return ctypes.string_at(self.at[i], SIZES[i])


def config_of(url: str) -> umbp.UMBPConfig:
    config = umbp.UMBPConfig()
    if url.startswith("mem:"):
        config.dram.capacity_bytes = 64 << 20
    else:
        config.distributed = umbp.UMBPDistributedConfig()
        config.distributed.master_config.master_address = url
    return config


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master with two nodes."""
    patient = ("--member-ttl-ms=10000", "--lease-ms=3000", "--lease-margin-ms=1000")
    with (master(tmp_path_factory.mktemp("pool"), *patient) as m, member(m, "--dram=128M"), member(m, "--dram=128M")):
        m.has(2)
        yield m.address


@pytest.fixture(params=["mem", "unix", "tcp", "pool"])
def client(request: pytest.FixtureRequest, urls: dict[str, str]) -> Iterator[umbp.UMBPClient]:
    url = request.getfixturevalue("pool") if request.param == "pool" else urls[request.param]
    with umbp.create_umbp_client(config_of(url)) as client:
        assert client.is_distributed() == (request.param != "mem")
        client.clear()
        yield client


def test_names() -> None:
    found = {name: list(inspect.signature(call).parameters)[1:]
             for name, call in inspect.getmembers(umbp.UMBPClient, inspect.isfunction) if not name.startswith("_")}
    assert found == CALLS
    assert inspect.signature(umbp.UMBPClient.match_external_kv).parameters["count_as_hit"].default is False
    assert umbp.UMBPDistributedConfig().dram_page_size == 2 << 20
    assert [tier.name for tier in umbp.UMBPTierType] == ["Unknown", "HBM", "DRAM", "SSD"]
    with pytest.raises(AttributeError):
        setattr(umbp.UMBPConfig(), "dramm", None)


def test_blocks_come_back(client: umbp.UMBPClient) -> None:
    source, into = Memory(), Memory(fill=0)
    assert client.put_from_ptr(KEYS[0], source.at[0], SIZES[0])
    assert client.batch_put_from_ptr(KEYS, source.at, SIZES) == [True] * 9
    assert client.batch_get_into_ptr(KEYS, into.at, SIZES) == [True] * 9
    assert bytes(into.bytes) == bytes(source.bytes)
    assert client.get_into_ptr(KEYS[4], into.at[4], SIZES[4]) and into.block(4) == source.block(4)
    assert client.failure is None
    assert client.batch_put_from_ptr([], [], []) == [] and client.batch_get_into_ptr([], [], []) == []


def test_what_is_there_stays(client: umbp.UMBPClient) -> None:
    first, second = Memory(), Memory(fill=0xff)
    assert client.put_from_ptr("k", first.at[6], SIZES[6])
    before = client.store.head("k").generation
    assert client.batch_put_from_ptr(["k", "new"], [second.at[6], second.at[1]], [SIZES[6], SIZES[1]]) == [True, True]
    assert client.failure is None
    assert client.store.head("k").generation == before
    assert client.store.get("k") == first.block(6) and client.store.get("new") == second.block(1)


def test_what_is_not_there_leaves_memory_alone(client: umbp.UMBPClient) -> None:
    source, into = Memory(), Memory(fill=0xee)
    untouched = bytes(into.bytes)
    assert not client.get_into_ptr("none", into.at[6], SIZES[6]) and client.failure is None
    for i in (1, 6):
        assert client.put_from_ptr(f"{i}", source.at[i], SIZES[i])
        for other in (SIZES[i] - 1, SIZES[i] + 1):  # neither a part of the value, nor a stale end behind it
            assert not client.get_into_ptr(f"{i}", into.at[i] - 5, other)
            assert "size" in str(client.failure)
    assert bytes(into.bytes) == untouched
    assert client.batch_get_into_ptr(["none", "1"], into.at[:2], [100, 100]) == [False, True]
    assert client.failure is None and into.block(1) == source.block(1)


def test_exists(client: umbp.UMBPClient) -> None:
    source = Memory()
    there = KEYS[:4] + KEYS[5:]
    client.batch_put_from_ptr(there, [source.at[1]] * 8, [100] * 8)
    assert client.exists(KEYS[0]) and not client.exists(KEYS[4])
    assert client.batch_exists(KEYS) == [key in there for key in KEYS]
    assert client.batch_exists(iter(KEYS[3:6])) == [True, False, True]
    assert client.batch_exists_consecutive(KEYS) == 4
    assert client.batch_exists_consecutive(KEYS[5:]) == 4
    assert client.batch_exists_consecutive(KEYS[4:]) == client.batch_exists_consecutive([]) == 0


def test_clear_is_true_once_nothing_is_left(client: umbp.UMBPClient) -> None:
    source = Memory()
    client.batch_put_from_ptr(KEYS[:3], source.at[:3], SIZES[:3])
    client.store.pin(KEYS[1])
    assert not client.clear()
    assert client.batch_exists(KEYS[:3]).count(True) <= 1 and not client.clear()
    client.store.unpin(KEYS[1])
    assert client.clear() and client.batch_exists_consecutive(KEYS[1:2]) == 0


def test_memory(client: umbp.UMBPClient) -> None:
    source = Memory()
    assert client.register_memory(source.at[0], sum(SIZES))
    assert client.batch_put_from_ptr(KEYS, source.at, SIZES) == [True] * 9
    client.deregister_memory(source.at[0])
    with pytest.raises(penstock.Invalid):
        client.deregister_memory(source.at[0])
    for ptr, size, name in ((0, 8, "ptr"), (source.at[0], 0, "size"), (-1, 8, "ptr")):
        with pytest.raises(ValueError, match=name):
            client.register_memory(ptr, size)
    with pytest.raises(ValueError, match="ptr"):
        client.deregister_memory(0)


def test_what_is_wrong_is_named_and_moves_nothing(client: umbp.UMBPClient) -> None:
    source = Memory()
    at, size = source.at[1], SIZES[1]
    cases: list[tuple[list[object], str, str]] = [
        ([["a", "b"], [at, 0], [size, size]], "ValueError", r"ptrs\[1\] is null"),
        ([["a", "b"], [at, at], [size, 0]], "ValueError", r"sizes\[1\] is 0"),
        ([["a", "b"], [at], [size, size]], "ValueError", "2 keys and 1 ptrs"),
        ([["a", "b"], [at, at], [size]], "ValueError", "2 keys and 1 sizes"),
        ([["a"], [at], [-1]], "ValueError", "sizes must be"),
        ([["a"], [-at], [size]], "ValueError", "ptrs must be"),
        ([["a"], [1 << 64], [size]], "ValueError", "ptrs must be"),
        ([["a"], [1.5], [size]], "TypeError", "ptrs must be an int"),
        ([["a"], at, [size]], "TypeError", "ptrs must be an iterable"),
        (["ab", [at, at], [size, size]], "TypeError", "keys must be an iterable"),
        ([["a", ""], [at, at], [size, size]], "ValueError", r"keys\[1\] has 0 bytes"),
        ([["k" * 4097], [at], [size]], "ValueError", r"keys\[0\] has 4097 bytes"),
        ([[7], [at], [size]], "TypeError", "key must be"),
    ]
    for arguments, kind, text in cases:
        for call in (client.batch_put_from_ptr, client.batch_get_into_ptr):
            with pytest.raises({"ValueError": ValueError, "TypeError": TypeError}[kind], match=text):
                call(*arguments)  # type: ignore[arg-type]
    for depths, text in (([0], "2 keys and 1 depths"), ([0, -2], r"depths\[1\] is -2")):
        with pytest.raises(ValueError, match=text):
            client.batch_put_from_ptr_with_depth(["a", "b"], [at, at], [size, size], depths)
    assert client.batch_exists(["a", "b"]) == [False, False]


def test_what_does_not_fit_is_false_and_says_why(client: umbp.UMBPClient) -> None:
    source = Memory()
    size = 1 << 40  # of which no byte is looked at
    assert client.batch_put_from_ptr(["huge", "a"], [source.at[0]] * 2, [size, 1]) == [False, True]
    assert isinstance(client.failure, penstock.Invalid) and "huge" in str(client.failure)
    assert client.put_from_ptr("a", source.at[0], 1) and client.failure is None


def test_closed(urls: dict[str, str]) -> None:
    client = umbp.create_umbp_client(config_of(urls["unix"]))
    client.close()
    client.close()
    for call in (lambda: client.exists("k"), client.clear, client.flush, lambda: client.put_from_ptr("k", 8, 8)):
        with pytest.raises(penstock.Invalid, match="closed"):
            call()


def test_a_node_that_goes_is_no_error_of_the_caller(tmp_path: pathlib.Path) -> None:
    source = Memory()
    socket = tmp_path / "socket"
    with support.start_node("--dram", "64M", "--unix", str(socket)) as node:
        with umbp.create_umbp_client(config_of(f"node+unix://{socket}"), timeout=1) as client:
            assert client.put_from_ptr("k", source.at[0], 1)
            node.kill()
            assert client.batch_exists(["k", "l"]) == [False, False]
            assert isinstance(client.failure, (penstock.Unreachable, penstock.TimedOut))
            assert not client.put_from_ptr("l", source.at[0], 1) and client.failure is not None
            assert not client.clear() and client.failure is not None


def test_others_run_while_bytes_move(client: umbp.UMBPClient) -> None:
    source, into = Memory(), Memory(fill=0)
    wrong = []

    def work(name: str) -> None:
        for turn in range(20):
            keys = [f"{name}/{turn}/{key}" for key in KEYS]
            if not all(client.batch_put_from_ptr(keys, source.at, SIZES)):
                wrong.append(client.failure)

    threads = [threading.Thread(target=work, args=(str(i),)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert client.batch_get_into_ptr([f"2/19/{key}" for key in KEYS], into.at, SIZES) == [True] * 9
    assert bytes(into.bytes) == bytes(source.bytes)


# ---- blocks that engines hold in memory of their own ----

IDS = ["a1" * 16, "b2" * 16]
HASHES = [f"{i:064x}" for i in range(600)]  # three questions


def engine(m: Master, node_id: str, timeout: float = 10.0, kind: str = "pool") -> umbp.UMBPClient:
    config = config_of({"node": f"node://{m.address}", "pool": f"127.0.0.1:1,{m.address}"}[kind])  # nobody is at the first
    assert config.distributed
    config.distributed.master_config.node_id = node_id
    return umbp.create_umbp_client(config, timeout=timeout)


@pytest.mark.parametrize("kind", ["node", "pool"])
def test_blocks_of_engines(tmp_path: pathlib.Path, kind: str) -> None:
    HBM, DRAM, SSD, UNKNOWN = UMBPTierType.HBM, UMBPTierType.DRAM, UMBPTierType.SSD, UMBPTierType.Unknown
    with (master(tmp_path) as m, member(m, f"--node-id={IDS[0]}") as one, member(m, f"--node-id={IDS[1]}") as two,
          engine(m, IDS[0], kind=kind) as first, engine(m, IDS[1], kind=kind) as second):
        m.has(2)
        assert second.match_external_kv(HASHES) == [] and first.get_external_kv_hit_counts(HASHES) == []
        with pytest.raises(TypeError, match="hashes must be an iterable of keys, not str"):
            first.report_external_kv_blocks("abc", HBM)
        assert first.report_external_kv_blocks(HASHES[:500], HBM)
        assert first.report_external_kv_blocks(HASHES[250:300], DRAM)
        assert first.report_external_kv_blocks(HASHES[250:301] + HASHES[550:560], UNKNOWN)  # shadows no known tier
        assert second.report_external_kv_blocks(HASHES[:3], SSD)
        assert first.report_external_kv_blocks([], HBM)

        found = {match.node_id: match for match in second.match_external_kv(HASHES)}
        assert sorted(found) == IDS
        assert found[IDS[0]].peer_address == f"127.0.0.1:{one.ports()[0]}"
        assert found[IDS[1]].peer_address == f"127.0.0.1:{two.ports()[0]}"
        assert list(found[IDS[0]].hashes_by_tier.items()) == [
            (HBM, HASHES[:500]), (DRAM, HASHES[250:300]), (UNKNOWN, HASHES[550:560])]
        assert found[IDS[0]].matched_hash_count() == 510
        assert found[IDS[1]].hashes_by_tier == {SSD: HASHES[:3]} and found[IDS[1]].matched_hash_count() == 3
        assert first.match_external_kv([]) == []

        assert first.revoke_external_kv_blocks(HASHES[100:], HBM)
        assert first.revoke_external_kv_blocks(HASHES[:1], SSD)  # that the other one has there
        assert first.revoke_all_external_kv_blocks_at_tier(UNKNOWN)
        match, = [match for match in first.match_external_kv(HASHES) if match.node_id == IDS[0]]
        assert match.hashes_by_tier == {HBM: HASHES[:100], DRAM: HASHES[250:300]}

        two.stop()
        m.has(1)
        assert [match.node_id for match in first.match_external_kv(HASHES)] == [IDS[0]]
        assert second.revoke_external_kv_blocks(HASHES[:3], SSD)
        assert second.report_external_kv_blocks(HASHES[:3], SSD)  # of a node that is none any more: ignored
        assert [match.node_id for match in first.match_external_kv(HASHES)] == [IDS[0]]


# ---- processes that bring memory along ----

PROCESS = """
import ctypes, sys
from penstock import umbp

config = umbp.UMBPConfig(dram=umbp.UMBPDramConfig(capacity_bytes=64 << 20))
config.distributed = umbp.UMBPDistributedConfig(
    umbp.UMBPMasterClientConfig(sys.argv[1], "second", "127.0.0.1"), dram_page_size=65536)
with umbp.create_umbp_client(config) as client:
    print(client.node.urls[0], flush=True)
    for line in sys.stdin:
        what, first, end = line.split()
        numbers = range(int(first), int(end))
        values = b"".join(b"%08d" % i * 1000 for i in numbers)
        memory = ctypes.create_string_buffer(values if what == "put" else b"", len(values))
        call = client.batch_put_from_ptr if what == "put" else client.batch_get_into_ptr
        at = ctypes.addressof(memory)
        done = call([f"block/{i}" for i in numbers], [at + 8000 * i for i in range(len(numbers))], [8000] * len(numbers))
        print(sum(done) if memory.raw == values else "other bytes", flush=True)
"""


def block(i: int) -> bytes:
    return b"%08d" % i * 1000


def bringing(m: Master, name: str, bytes_of: int = 64 << 20) -> umbp.UMBPConfig:
    config = umbp.UMBPConfig(dram=umbp.UMBPDramConfig(capacity_bytes=bytes_of))
    config.distributed = umbp.UMBPDistributedConfig(
        umbp.UMBPMasterClientConfig(m.address, name, "127.0.0.1", tags=["role=prefill", "rack=7"]), dram_page_size=65536)
    return config


def test_processes_that_are_the_pool(tmp_path: pathlib.Path) -> None:
    """Each has what the other put, in memory of both. One is killed: what it had is gone, the rest goes on."""
    keys, sizes, values = [f"block/{i}" for i in range(200)], [8000] * 200, b"".join(map(block, range(200)))
    memory = ctypes.create_string_buffer(values, len(values))
    ptrs = [ctypes.addressof(memory) + 8000 * i for i in range(200)]
    env = support.python_environment()
    with (master(tmp_path, "--incomplete-ms=500", "--nodes-min=2", place=None) as m,
          umbp.create_umbp_client(bringing(m, "first"), timeout=4) as first,
          subprocess.Popen([sys.executable, "-c", PROCESS, m.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                           env=env) as second):
        def say(what: str, start: int, end: int) -> str:
            assert second.stdin and second.stdout
            second.stdin.write(f"{what} {start} {end}\n")
            second.stdin.flush()
            return second.stdout.readline().strip()

        assert second.stdout and first.node is not None
        address = second.stdout.readline().strip()
        m.has(2)
        assert {one["id"]: one["address"] for one in m.members()} == {
            b"first".ljust(16, b"\0").hex(): first.node.urls[0].removeprefix("node://"),
            b"second".ljust(16, b"\0").hex(): address.removeprefix("node://")}
        assert "role=prefill,rack=7" in [one["tags"] for one in m.members()]
        assert say("put", 100, 200) == "100"
        assert first.batch_put_from_ptr(keys[:100], ptrs[:100], sizes[:100]) == [True] * 100
        ctypes.memset(memory, 0, len(memory))
        assert first.batch_get_into_ptr(keys, ptrs, sizes) == [True] * 200, first.failure
        assert memory.raw == values
        assert say("get", 0, 200) == "200"
        here = len(first.node)
        with penstock.open(address) as there:
            assert 0 < here < 200 and here + len(list(there)) == 200

        second.kill()
        second.wait()
        support.own_sockets(second.pid)[0].unlink()
        assert sum(first.batch_get_into_ptr(keys, ptrs, sizes)) == here  # within a call's time, and a cache may lose
        with umbp.create_umbp_client(bringing(m, "third")) as third:
            support.wait_until("its place is taken", lambda: third.batch_put_from_ptr(keys, ptrs, sizes) == [True] * 200)
            ctypes.memset(memory, 0, len(memory))
            assert first.batch_get_into_ptr(keys, ptrs, sizes) == [True] * 200


def test_what_a_process_brings_along(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ssd").mkdir()
    with master(tmp_path, place=None) as m:
        config = bringing(m, "a name of more than fifteen bytes", 16 << 20)
        config.ssd = umbp.UMBPSsdConfig(True, str(tmp_path / "ssd"), 64 << 20, 4 << 20)
        with umbp.create_umbp_client(config) as client:
            m.has(1)
            assert client.is_distributed() and client.report_external_kv_blocks(HASHES[:3], UMBPTierType.HBM)
            match, = client.match_external_kv(HASHES)
            assert match.node_id == "a name of more than fifteen bytes"
            assert client.node is not None and match.peer_address == client.node.urls[0].removeprefix("node://")
            figures = m.figures()
            assert figures["dram_capacity_bytes"] == 16 << 20 and 0 < figures["ssd_capacity_bytes"] <= 64 << 20
        support.wait_until("it has left", lambda: m.members() == [])
        assert client.node.closed
        client.close()
        with umbp.create_umbp_client(bringing(m, "short")) as client:
            m.has(1)
            assert client.report_external_kv_blocks(HASHES[:3], UMBPTierType.DRAM)
            assert [match.node_id for match in client.match_external_kv(HASHES)] == ["short"]
            taken = bringing(m, "other")
            assert taken.distributed and client.node is not None
            taken.distributed.peer_service_port = int(client.node.urls[0].rpartition(":")[2])
            with pytest.raises(penstock.Error, match="in use"):
                umbp.create_umbp_client(taken)
        alone = bringing(m, "alone")
        assert alone.distributed
        alone.distributed.master_config.auto_heartbeat = False
        with umbp.create_umbp_client(alone) as client:
            assert client.node is None


def test_a_process_ends_without_its_master(tmp_path: pathlib.Path) -> None:
    with master(tmp_path, place=None) as m:
        client = umbp.create_umbp_client(bringing(m, "one"))
        m.has(1)
        m.node.kill()
        client.close()
        with pytest.raises(penstock.Unreachable):
            umbp.create_umbp_client(bringing(m, "one"), timeout=1)
    assert not list(pathlib.Path("/dev/shm").glob(f"penstock-member-{os.getpid()}-*"))


def test_hits(tmp_path: pathlib.Path) -> None:
    with master(tmp_path, "--blocks-max=1024") as m, member(m, f"--node-id={IDS[0]}"), engine(m, IDS[0]) as client:
        m.has(1)
        assert client.report_external_kv_blocks(HASHES[:300], UMBPTierType.DRAM)
        client.match_external_kv(HASHES)
        for _ in range(2):
            client.match_external_kv(HASHES[200:400] + HASHES[299:301], count_as_hit=True)
        client.match_external_kv(HASHES[299:301], True)
        counts = {entry.hash: entry.hit_count_total for entry in client.get_external_kv_hit_counts(HASHES + HASHES[:9])}
        assert counts == {**dict.fromkeys(HASHES[200:299], 2), HASHES[299]: 3}

        figures = json.loads(support.penstock("--url", f"pool://127.0.0.1:1,{m.address}", "stat", "--json").stdout)["pool"]
        assert figures["call_match"] >= 6 and figures["call_hits"] >= 3 and figures["call_match_failed"] == 0

        assert not client.report_external_kv_blocks([f"more/{i}" for i in range(1000)], UMBPTierType.HBM)
        assert isinstance(client.failure, penstock.NoSpace) and "no room" in str(client.failure)
        with engine(m, IDS[0], timeout=0.2) as hasty:
            m.node.kill()
            assert hasty.match_external_kv(HASHES) == [] and hasty.failure is not None
            assert not hasty.revoke_all_external_kv_blocks_at_tier(UMBPTierType.HBM)
        m.back()
        m.has(1)  # what engines hold went with the master, the pool's hashes did not
        assert client.match_external_kv(HASHES) == [] and client.failure is None
        assert client.report_external_kv_blocks(HASHES[:1], UMBPTierType.HBM)


@pytest.mark.parametrize("client", ["mem", "unix"], indirect=True)
def test_blocks_without_a_master(client: umbp.UMBPClient) -> None:
    with pytest.raises(ValueError, match="node_id"):
        client.report_external_kv_blocks(HASHES[:1], UMBPTierType.HBM)
    for call in (lambda: client.match_external_kv(HASHES[:1]), lambda: client.get_external_kv_hit_counts(HASHES[:1]),
                 lambda: client.store.report_blocks(bytes(16), 1, ["h"]), lambda: client.store.revoke_blocks(bytes(16), 1)):
        with pytest.raises(penstock.Unsupported, match="master"):
            call()
    for arguments, text in (((bytes(15), 1, ["h"]), "node_id has 15"), ((bytes(16), 4, ["h"]), "tier must be"),
                            ((bytes(16), 1, ["h", ""]), "block 1 is empty")):
        with pytest.raises(ValueError, match=text):
            client.store.report_blocks(*arguments)


# ---- a store inside this process ----

def test_all_blocks_may_go(tmp_path: pathlib.Path) -> None:
    block = ctypes.create_string_buffer(b"b" * 500_000, 500_000)
    config = umbp.UMBPConfig()
    config.dram.capacity_bytes = 16 << 20
    with umbp.create_umbp_client(config) as client:
        for i in range(100):  # 50 MB
            assert client.put_from_ptr(f"{i}", ctypes.addressof(block), 500_000), client.failure
        assert client.exists("99") and not client.exists("0")


def test_the_end_of_a_chain_goes_first() -> None:
    block = ctypes.create_string_buffer(b"b" * 500_000, 500_000)
    config = umbp.UMBPConfig(eviction=umbp.UMBPEvictionConfig("prefix_aware_lru"))
    config.dram.capacity_bytes = 16 << 20
    chain = [f"chain/{i}" for i in range(20)]
    with umbp.create_umbp_client(config) as client:
        at = [ctypes.addressof(block)] * 20
        assert all(client.batch_put_from_ptr_with_depth(chain, at, [500_000] * 20, range(20)))
        assert client.store.head(chain[7]).depth == 7
        assert client.batch_put_from_ptr_with_depth(["recent"], at[:1], [500_000], [-1]) == [True]
        assert client.store.head("recent").depth is None
        for i in range(18):
            assert client.put_from_ptr(f"more/{i}", at[0], 500_000)
        kept = client.batch_exists(chain)
        assert kept[0] and not all(kept) and kept == sorted(kept, reverse=True)


def test_ssd(tmp_path: pathlib.Path) -> None:
    source, into = Memory(), Memory(fill=0)
    config = umbp.UMBPConfig()
    config.dram.capacity_bytes = 16 << 20
    config.ssd = umbp.UMBPSsdConfig(enabled=True, storage_dir=f"{tmp_path / 'a'},{tmp_path / 'b'}",
                                    capacity_bytes=64 << 20, segment_size_bytes=2 << 20)
    with umbp.create_umbp_client(config) as client:
        assert client.batch_put_from_ptr(KEYS, source.at, SIZES) == [True] * 9
        assert client.flush()
        assert 0 < client.store.stat().ssd_capacity_bytes < 64 << 20
    with umbp.create_umbp_client(config) as client:
        assert client.batch_get_into_ptr(KEYS, into.at, SIZES) == [True] * 9
    assert bytes(into.bytes) == bytes(source.bytes)


def test_flush_without_an_ssd(client: umbp.UMBPClient) -> None:
    assert client.flush() and client.failure is None


def test_configurations_that_cannot_be() -> None:
    none = umbp.UMBPConfig(distributed=umbp.UMBPDistributedConfig())
    policy = umbp.UMBPConfig(eviction=umbp.UMBPEvictionConfig("random"))
    folder = umbp.UMBPConfig(ssd=umbp.UMBPSsdConfig(enabled=True, storage_dir=""))
    small = umbp.UMBPConfig(dram=umbp.UMBPDramConfig(capacity_bytes=7))
    node = umbp.UMBPConfig(distributed=umbp.UMBPDistributedConfig(umbp.UMBPMasterClientConfig("node://127.0.0.1:1", "a", "127.0.0.1")))
    nowhere = umbp.UMBPConfig(distributed=umbp.UMBPDistributedConfig(umbp.UMBPMasterClientConfig("127.0.0.1:1", "a", "no host")))
    for config, text in ((none, "master_address"), (policy, "eviction.policy"), (folder, "storage_dir"), (small, "dram"),
                         (node, "joins a pool")):
        with pytest.raises(ValueError, match=text):
            umbp.create_umbp_client(config)
    with pytest.raises(penstock.NotAllowed, match="no host:0"):
        umbp.create_umbp_client(nowhere)
