# SPDX-License-Identifier: Apache-2.0
"""penstockd --role master --umbp: nodes of ROCm's mori find their master there, by gRPC's own client."""
from __future__ import annotations

import contextlib
import pathlib
import re
import socket
import struct
import urllib.request
from collections.abc import Callable, Iterator

import http2
import procs
import pytest
import support
from etcd import etcd
from http2 import DATA as DATA_FRAME, END_STREAM, HEADERS, frame, message
from masters import Masters
from ports import free_port
from support import Node, fails_to_start
from tsgrpc import python  # noqa: F401: a fixture
from umbp import (DRAM, EXISTS, GIB, HBM, ROUTED, SSD, UNAVAILABLE, Failed, Mori, added, address_of, bundle, double, number,
                  numbers, packed, parsed, peer, removed, start_master, text, texts)

USAGE, FAILURE = 2, 1
ROOT = pathlib.Path(__file__).resolve().parents[2]
Nodes = Callable[..., Mori]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with start_master(tmp_path_factory.mktemp("umbp")) as started:
        yield started
        started.stop()


@pytest.fixture
def nodes(python: str, master: Node) -> Iterator[Nodes]:  # noqa: F811
    """Registers nodes of the names that are asked for, until the test ends."""
    with contextlib.ExitStack() as stack:
        def node(name: str, room: dict[int, tuple[int, int]] | None = None, registers: bool = True) -> Mori:
            mori = stack.enter_context(Mori(python, address_of(master), name, room))
            if registers:
                mori.register()
                stack.callback(mori.unregister)
            return mori
        yield node


# ---- coming, going and heartbeats


def test_registers_once(nodes: Nodes) -> None:
    one = nodes("once", registers=False)
    assert one.register() == {1: [5000]}
    with pytest.raises(Failed, match="ALREADY_EXISTS"):
        one.register()
    one.unregister()
    assert one.register() == {1: [5000]}
    one.unregister()
    one.unregister()


def test_unknown_node_is_to_register(nodes: Nodes) -> None:
    one = nodes("stranger", registers=False)
    assert one.beat(bundle(1, [added("k", DRAM, 1)])) == (0, 0, 0)
    assert one.get("k") is None and one.has(["k"]) == [False]


def test_events_in_order(nodes: Nodes) -> None:
    one = nodes("orderly")
    assert one.beat() == (1, 0, 0)
    assert one.beat(bundle(1, [added("o/a", DRAM, 10), added("o/b", DRAM, 20)]), bundle(2, [removed("o/a", DRAM)])) == (1, 2, 0)
    assert one.has(["o/a", "o/b"]) == [False, True]
    assert one.beat(bundle(2, [removed("o/b", DRAM)]), bundle(3, [added("o/c", SSD, 5)])) == (1, 3, 0), "what came twice counts once"
    assert one.has(["o/b", "o/c"]) == [True, True]
    assert one.get("o/c") == ("orderly", SSD, 5, "orderly:9")


def test_gap_makes_a_full_report(nodes: Nodes) -> None:
    one = nodes("gappy")
    assert one.beat(bundle(1, [added("g/old", DRAM, 1), added("g/both", DRAM, 1)])) == (1, 1, 0)
    assert one.beat(bundle(3, [added("g/missed", DRAM, 1)])) == (1, 1, 1)
    assert one.has(["g/old", "g/missed"]) == [True, False]
    assert one.beat(bundle(3, [added("g/both", HBM, 2), added("g/new", DRAM, 3)]), full=True, baseline=3) == (1, 3, 0)
    assert one.has(["g/old", "g/both", "g/new"]) == [False, True, True]
    assert one.get("g/both")[1:3] == (HBM, 2), "the place on DRAM went with the report"
    assert one.beat(bundle(4, [removed("g/new", DRAM)])) == (1, 4, 0)
    assert one.beat(full=True, baseline=4) == (1, 4, 0), "mori's Clear(): nothing is left"
    assert one.has(["g/both", "g/new"]) == [False, False]


def test_large_report(nodes: Nodes) -> None:
    """More events than one turn takes; and as many keys in one question."""
    one, count = nodes("large"), 50_000
    keys = [f"l/{i:058d}" for i in range(count)]
    assert one.beat(bundle(7, [added(key, DRAM, 4096) for key in keys]), full=True, baseline=7) == (1, 7, 0)
    assert one.has(keys + ["l/none"]) == [True] * count + [False]
    assert one.gets(keys[:20_000]) == [("large", DRAM, 4096, "large:9")] * 20_000
    assert set(one.puts(keys[:9000], [1] * 9000)) == {(EXISTS, "", 0, "")}


def test_ends_with_a_node(nodes: Nodes) -> None:
    one, other = nodes("ends", registers=False), nodes("stays")
    one.register()
    one.beat(bundle(1, [added("e/a", DRAM, 1)]))
    one.report(["e/hash"], HBM)
    assert other.get("e/a")[0] == "ends" and set(other.match(["e/hash"])) == {"ends"}
    one.unregister()
    assert other.get("e/a") is None
    support.wait_until("blocks go with their node", lambda: other.match(["e/hash"]) == {})
    one.register()
    assert one.beat(bundle(1, [added("e/b", DRAM, 1)])) == (1, 1, 0), "it begins anew"
    assert other.has(["e/a", "e/b"]) == [False, True]
    one.unregister()


def test_silent_node_expires(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    with start_master(tmp_path, "--umbp-ttl-ms", "2000", "--umbp-heartbeat-ms", "100") as master:
        address = address_of(master)
        with Mori(python, address, "silent") as silent, Mori(python, address, "lively") as lively:
            assert silent.register() == {1: [100]}
            lively.register()
            silent.beat(bundle(1, [added("s", DRAM, 1)]))

            def gone() -> bool:
                assert lively.beat()[0] == 1
                return lively.get("s") is None
            support.wait_until("a silent node expires", gone)
            assert silent.beat(bundle(2, [])) == (0, 0, 0)
            silent.register(peer="")
            silent.beat(bundle(1, [added("s", DRAM, 1)]), full=True, baseline=1)
            assert lively.get("s") == ("silent", DRAM, 1, "silent:9"), "as mori's clients register again, without saying where"
        master.stop()


def connects(one: Mori) -> bool:
    try:
        return one.has(["k"]) == [False]
    except Failed:
        return False


def test_master_that_restarts_learns_anew(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    port = free_port()
    with start_master(tmp_path, address=f"127.0.0.1:{port}") as master, Mori(python, f"127.0.0.1:{port}", "survivor") as one:
        one.register()
        one.beat(bundle(1, [added("r", DRAM, 1)]))
        master.kill()
        with start_master(tmp_path, address=f"127.0.0.1:{port}") as again:
            support.wait_until("the client has connected anew", lambda: connects(one))
            assert one.beat(bundle(2, [added("q", DRAM, 1)])) == (0, 0, 0)
            assert one.register() == {1: [5000]}
            assert one.beat(bundle(2, [added("q", DRAM, 1)])) == (1, 0, 1), "only a full report will do"
            assert one.beat(bundle(2, [added("r", DRAM, 1), added("q", DRAM, 1)]), full=True, baseline=2) == (1, 2, 0)
            assert one.has(["r", "q"]) == [True, True]
            again.stop()


def test_standby_does_not_answer_and_leads_anew(python: str) -> None:  # noqa: F811
    with etcd() as servers, Masters(servers, 2, "--umbp", "127.0.0.1:0") as masters:
        leader = masters.leader()
        standby = 1 - leader
        with Mori(python, address_of(masters.nodes[leader]), "mover") as one, Mori(python, address_of(masters.nodes[standby]), "mover") as other:
            one.register()
            one.beat(bundle(1, [added("s", DRAM, 1)]))
            for ask_standby in other.register, other.beat, lambda: other.has(["s"]), lambda: other.match(["h"]):
                with pytest.raises(Failed, match="UNAVAILABLE.*does not lead"):
                    ask_standby()
            masters.nodes[leader].kill()
            assert masters.leader(leader) == standby
            assert other.beat(bundle(2, [])) == (0, 0, 0)
            other.register()
            assert other.beat(bundle(2, [added("s", DRAM, 1)]), full=True, baseline=2) == (1, 2, 0)
            assert other.has(["s"]) == [True]


# ---- routes


def test_put_goes_where_room_is(nodes: Nodes) -> None:
    small, large = nodes("small", {DRAM: (GIB, GIB)}), nodes("large-room", {DRAM: (8 * GIB, 3 * GIB), SSD: (99 * GIB, 99 * GIB)})
    assert small.put("p/a", 1 << 20) == (ROUTED, "large-room", DRAM, "large-room:9")
    assert small.put("p/a", 1 << 20, ["large-room", "nobody"]) == (ROUTED, "small", DRAM, "small:9")
    assert small.put("p/a", 4 * GIB) == (UNAVAILABLE, "", 0, ""), "there is room on SSD, which a node fills itself"
    hbm = nodes("hbm", {HBM: (GIB, 1 << 20), DRAM: (9 * GIB, 9 * GIB)})
    assert small.put("p/b", 1 << 20) == (ROUTED, "hbm", HBM, "hbm:9"), "the fastest tier comes first"
    assert small.put("p/c", 1 << 20)[1:3] == ("hbm", DRAM), "what was given out is not given out again"
    hbm.beat()
    assert small.put("p/d", 1 << 20)[1:3] == ("hbm", HBM), "until the node says how much there is"
    large.beat(bundle(1, [added("p/e", SSD, 7)]))
    assert small.put("p/e", 7) == (EXISTS, "", 0, "")


def test_batch_of_puts(nodes: Nodes) -> None:
    one, two = nodes("batch-1", {DRAM: (GIB, 3 << 20)}), nodes("batch-2", {DRAM: (GIB, 2 << 20)})
    one.beat(bundle(1, [added("b/there", DRAM, 1)]))
    keys = ["b/there", *(f"b/{i}" for i in range(6))]
    for pack in True, False:
        outcomes = one.puts(keys, [1 << 20] * 7, pack=pack)
        assert outcomes[0] == (EXISTS, "", 0, "")
        assert sorted(outcome[1] for outcome in outcomes[1:6]) == ["batch-1"] * 3 + ["batch-2"] * 2
        assert outcomes[6] == (UNAVAILABLE, "", 0, "")
        one.beat()
        two.beat()
    assert [outcome[1] for outcome in one.puts(["b/x"], [1], excluded=["batch-1"])] == ["batch-2"]
    with pytest.raises(Failed, match="INVALID_ARGUMENT"):
        one.puts(["b/x", "b/y"], [1])
    assert one.puts([], []) == []


def test_get_takes_the_fastest_and_the_nearest(nodes: Nodes) -> None:
    one, two, three = nodes("near"), nodes("far"), nodes("slow")
    for node, tier in (one, DRAM), (two, DRAM), (three, SSD):
        node.beat(bundle(1, [added("n/k", tier, 5)]))
    two.beat(bundle(2, [added("n/k", SSD, 5)]))
    assert {one.get("n/k")[0] for _ in range(20)} == {"near"}
    assert {three.get("n/k")[0] for _ in range(40)} == {"near", "far"}, "those who have it share the work"
    assert one.get("n/k", ["near"]) == ("far", DRAM, 5, "far:9")
    assert one.get("n/k", ["near", "far"]) == ("slow", SSD, 5, "slow:9")
    assert one.get("n/k", ["near", "far", "slow"]) is None
    two.beat(bundle(3, [removed("n/k", DRAM)]))
    assert one.gets(["n/k", "n/none", "n/k"], excluded=["near"])[1] is None
    assert {found[1] for found in one.gets(["n/k"] * 9, excluded=["near"])} == {SSD}
    assert one.gets([]) == []
    for method in "RouteGet", "RoutePut":
        with pytest.raises(Failed, match="INVALID_ARGUMENT.*empty key"):
            one.call(method, text(2, "near"))


# ---- eviction


def test_full_node_is_told_to_evict(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    with start_master(tmp_path, "--umbp-evict-ms", "100", "--umbp-lease-ms", "60000") as master, peer(python) as service, \
            Mori(python, address_of(master), "full", {DRAM: (1000, 100), SSD: (1000, 0)}) as one:
        one.register(peer=f"127.0.0.1:{service.stdout.readline().strip()}")
        one.beat(bundle(1, [added(f"v{i}", DRAM, 100) for i in range(9)] + [added("ssd", SSD, 1000)]))
        one.get("v0")
        told = parsed(bytes.fromhex(service.stdout.readline()))
        while told[1][0] == b"v0":  # it was told of before anyone had used it
            told = parsed(bytes.fromhex(service.stdout.readline()))
        assert told[1] == [b"v1", b"v2"] and numbers(told[2][0]) == [DRAM] * 2, "down to 70 of 100, the least recent first"
        again = parsed(bytes.fromhex(service.stdout.readline()))
        assert again == told, "until it has"
        one.room[DRAM] = 1000, 300
        one.beat(bundle(2, [removed("v1", DRAM), removed("v2", DRAM)]))
        one.room[DRAM] = 1000, 0
        one.beat()
        while told[1][0] == b"v1":
            told = parsed(bytes.fromhex(service.stdout.readline()))
        assert told[1] == [b"v3", b"v4", b"v5"]
        master.stop()


def test_peers_that_do_not_answer(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    """They cost the master a second now and then, and nobody else anything."""
    with contextlib.ExitStack() as stack:
        deaf, garbage = (stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2))
        master = stack.enter_context(start_master(tmp_path, "--umbp-evict-ms", "10"))
        ends = [f"127.0.0.1:{end.getsockname()[1]}" for end in (deaf, garbage)]
        for number_, end in enumerate([*ends, "127.0.0.1:1", "nowhere", "unix:///tmp/socket", "/tmp/socket", "[::1", ":"]):
            one = stack.enter_context(Mori(python, address_of(master), f"n{number_}", {DRAM: (1000, 0)}))
            one.register(peer=end)
            one.beat(bundle(1, [added(f"k{number_}", DRAM, 1000)]))
        for _ in range(3):
            connection, _ = garbage.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(1000))
        assert one.beat() == (1, 1, 0)
        master.stop()


# ---- blocks that engines hold


def test_blocks(nodes: Nodes) -> None:
    one, two = nodes("engine-1"), nodes("engine-2")
    hashes = [f"h{i}" for i in range(1000)]
    one.report(hashes[:600], HBM)
    one.report(hashes[:10], DRAM)
    two.report(hashes[500:], SSD)
    assert one.match(hashes) == {"engine-1": ("engine-1:9", {HBM: hashes[:600], DRAM: hashes[:10]}),
                                 "engine-2": ("engine-2:9", {SSD: hashes[500:]})}
    one.revoke(hashes[1:600], HBM)
    assert one.match(hashes[:20])["engine-1"][1] == {HBM: ["h0"], DRAM: hashes[:10]}
    one.call("RevokeAllExternalKvBlocksAtTier", text(1, "engine-1") + number(2, DRAM))
    assert one.match(hashes[:20]) == {"engine-1": ("engine-1:9", {HBM: ["h0"]})}
    assert one.hits(hashes) == {}
    for _ in range(3):
        one.match(["h0", "h999", "nowhere"], hit=True)
    assert one.hits(["h0", "h1", "h999"]) == {"h0": 3, "h999": 3}
    two.call("RevokeAllExternalKvBlocksForNode", text(1, "engine-2"))
    assert set(one.match(hashes)) == {"engine-1"}
    with pytest.raises(Failed, match="INVALID_ARGUMENT"):
        one.report([], HBM)
    with pytest.raises(Failed, match="INVALID_ARGUMENT"):
        one.hits([str(i) for i in range(4097)])
    nodes("nobody", registers=False).report(["h1"], HBM)  # mori's master lets it pass
    assert one.match(["h1"]) == {}


# ---- what clients should not say


BAD = {"a length beyond the end": b"\x0a\x7fx", "a number without an end": b"\x08\xff\xff", "field 0": b"\x00\x01",
       "a group": b"\x0b", "half a bundle": text(2, b"\x12\x7f"), "half an event": text(2, text(2, b"\x12\x05a")),
       "half a tier": text(4, b"\x08")}


@pytest.mark.parametrize("what", BAD)
def test_malformed(nodes: Nodes, what: str) -> None:
    one = nodes("malformed")
    with pytest.raises(Failed, match="INVALID_ARGUMENT"):
        one.call("Heartbeat", text(1, "malformed") + BAD[what])
    assert one.beat() == (1, 0, 0)


def test_bounds(nodes: Nodes) -> None:
    one = nodes("bounds")
    for name in "", "n" * 256:
        with pytest.raises(Failed, match="INVALID_ARGUMENT"):
            one.call("RegisterClient", text(1, name))
    for wrong in text(1, b"\xff"), text(1, "n") + text(4, b"\xc0\x80"), text(1, "n") + text(13, b"a=\xed\xa0\x80"), text(1, "n\0"), text(1, "a\nb"):
        with pytest.raises(Failed, match="INVALID_ARGUMENT"):
            one.call("RegisterClient", wrong)
    with pytest.raises(Failed, match="INVALID_ARGUMENT"):
        one.call("RegisterClient", text(1, "tagged") + texts(13, ["t" * 600] * 2))
    with pytest.raises(Failed, match="INVALID_ARGUMENT"):
        one.has(["k"] * 131_073)
    with pytest.raises(Failed, match="INVALID_ARGUMENT"):
        one.get("k", ["x"] * 4097)
    with pytest.raises(Failed, match="UNIMPLEMENTED"):
        one.call("FinalizeAllocation", b"")
    assert one.beat(bundle(1, [added("k" * 5000, DRAM, 1), added("", DRAM, 1), added("x/tier", 9, 1), added("x/ok", DRAM, 1)]))[1] == 1
    assert one.has(["k" * 5000, "x/tier", "x/ok"]) == [False, False, True], "what cannot be kept is left out"
    huge = (1 << 64) - 1
    one.room = {DRAM: (huge, huge), HBM: (huge, 0)}
    one.beat()
    assert one.put("x/new", 1, ["nobody"])[0] == UNAVAILABLE or one.put("x/new", 1)[1] != "bounds"
    one.call("ReportMetrics", text(1, "bounds") + text(2, text(1, "m") + double(4, 1.0)))


def test_bounds_of_the_master(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    with start_master(tmp_path, "--umbp-nodes", "8", "--umbp-keys", "1024") as master, \
            Mori(python, address_of(master), "first") as one:
        for i in range(8):
            one.call("RegisterClient", text(1, f"n{i}"))
        with pytest.raises(Failed, match="RESOURCE_EXHAUSTED.*umbp-nodes"):
            one.register()
        one.call("UnregisterClient", text(1, "n0"))
        one.register()
        keys = [f"k{i}" for i in range(2000)]
        one.beat(bundle(1, [added(key, DRAM, 1) for key in keys]))
        assert one.has(keys) == [True] * 1024 + [False] * 976
        master.stop()


def test_thousands_of_nodes(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    with start_master(tmp_path, "--umbp-nodes", "2048") as master, Mori(python, address_of(master), "asker", {}) as one:
        for i in range(2048):
            one.call("RegisterClient", text(1, f"node-{i}") + text(3, number(1, DRAM) + number(2, GIB + i) + number(3, GIB + i)))
        outcomes = one.puts([f"k{i}" for i in range(4096)], [1 << 20] * 4096)
        assert len({outcome[1] for outcome in outcomes}) == 2048, "each has as much room as the others"
        master.stop()


@pytest.mark.parametrize(("address", "code", "words"), [
    ("0.0.0.0:0", FAILURE, "umbp_network=yes"), ("somewhere", USAGE, "host:port"), ("unix:///tmp/socket", USAGE, "host:port")])
def test_refused_addresses(tmp_path: pathlib.Path, address: str, code: int, words: str) -> None:
    got, log = fails_to_start("--role", "master", "--unix", f"{tmp_path}/socket", "--pool-map", f"{tmp_path}/map", "--umbp", address)
    assert got == code and words in log


@pytest.mark.parametrize("more", [("--directory-shards=2",), ("--directory-shard=1", "--master=127.0.0.1:1")])
def test_a_directory_in_shares_has_it_not(tmp_path: pathlib.Path, more: tuple[str, ...]) -> None:
    got, log = fails_to_start("--role", "master", "--unix", f"{tmp_path}/socket", "--umbp", "127.0.0.1:0", *more)
    assert got == USAGE and "one share" in log


def test_it_evicts_down_not_up(tmp_path: pathlib.Path) -> None:
    got, log = fails_to_start("--role", "master", "--unix", f"{tmp_path}/socket", "--umbp", "127.0.0.1:0", "--umbp-high=50", "--umbp-low=70")
    assert got == USAGE and "umbp_low: 70 is above umbp_high, 50" in log


def test_only_a_master_has_it(tmp_path: pathlib.Path) -> None:
    got, log = fails_to_start("--unix", f"{tmp_path}/socket", "--umbp", "127.0.0.1:0")
    assert got == USAGE and "role=master" in log


# ---- streams


def ask(stream: int, method: str) -> bytes:
    return http2.request(stream, "", **{":path": f"/umbp.UMBPMaster/{method}"})


def connect(master: Node) -> http2.Peer:
    host, port = address_of(master).rsplit(":", 1)
    return http2.Peer(host, int(port), wait_s=support.WAIT_S)


def test_stalled_stream_loses_its_call(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    with start_master(tmp_path, "--umbp-stall-ms", "300") as master:
        with connect(master) as peer:
            peer.send(ask(1, "Heartbeat") + frame(DATA_FRAME, 0, 1, message(text(1, "x"), 64 << 20)))
            assert peer.wait_for(http2.RST_STREAM, 1)
        with Mori(python, address_of(master), "behaves") as one:
            one.register()
        master.stop()


def test_announced_bytes_cost_nothing(master: Node) -> None:
    """A thousand calls that announce 64 MiB each, and send little."""
    before = procs.rss_bytes(master.pid, "RssAnon")
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            peer = stack.enter_context(connect(master))
            for stream in range(1, 501, 2):
                peer.send(ask(stream, "Heartbeat") + frame(DATA_FRAME, 0, stream, message(b"\x0a", 64 << 20)))
            peer.send(ask(501, "BatchLookup") + frame(DATA_FRAME, END_STREAM, 501, message(b"")))
            peer.wait_for(HEADERS, 501, END_STREAM)
        assert support.sanitized() or procs.rss_bytes(master.pid, "RssAnon") < before + (256 << 20)


def test_message_beyond_the_bound(master: Node) -> None:
    with connect(master) as peer:
        peer.send(ask(1, "Heartbeat") + frame(DATA_FRAME, 0, 1, message(b"\x0a", (64 << 20) + 1)))
        peer.wait_for(HEADERS, 1, END_STREAM)


def test_garbage_on_the_socket(master: Node, nodes: Nodes) -> None:
    host, port = address_of(master).rsplit(":", 1)
    for data in b"GET / HTTP/1.1\r\n\r\n", bytes(100), http2.PREFACE + b"\xff" * 100:
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(data)
    assert nodes("after-garbage").beat() == (1, 0, 0)


def test_log_says_where(master: Node) -> None:
    assert re.search(r"umbp: listening on 127\.0\.0\.1:\d+", master.log())


# ---- metrics by mori's names


def counter(name: str, value: float, **labels: str | bytes) -> bytes:
    return text(1, name) + text(2, "help") + texts(3, (text(1, key) + text(2, label) for key, label in labels.items())) + double(4, value)


def gauge(name: str, value: float) -> bytes:
    return text(1, name) + double(5, value)


def histogram(name: str, bounds: list[float], counts: list[int], count: int, total: float) -> bytes:
    return text(1, name) + text(3, text(1, "rpc") + text(2, "Get")) + text(6, text(1, struct.pack(f"<{len(bounds)}d", *bounds)) +
                                                                          packed(2, counts) + number(3, count) + double(4, total))


def documented() -> dict[str, str]:
    """Types of metrics, by mori's names, as the reference has them."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    return dict(re.findall(r"^\| `(mori_umbp_\w+)` \| (\w+) \|", page, re.M))


def scraped(port: str) -> tuple[dict[str, str], dict[str, float]]:
    """Types of mori's metrics, and values of their series."""
    with urllib.request.urlopen(f"http://{port}/metrics", timeout=support.WAIT_S) as answer:
        page = answer.read().decode()
    types = dict(re.findall(r"^# TYPE (mori_\w+) (\w+)$", page, re.M))
    return types, {name: float(value) for name, value in re.findall(r"^((?:mori_|penstock_pool_guest)\S*) (\S+)$", page, re.M)}


def test_metrics(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    with start_master(tmp_path, "--http", "127.0.0.1:0", "--metrics-umbp") as master, \
            Mori(python, address_of(master), "n\"1", {DRAM: (1000, 250)}) as one, Mori(python, address_of(master), "n2") as two:
        master.wait_for("http: listening on ")
        port = re.search(r"http: listening on (\S+)", master.log())[1]
        one.register(tags=["sgl_role=prefill", "sgl_role=twice", "no tag", "tier=no", "bad-name=x"])
        two.register()
        one.beat(bundle(1, [added("m", DRAM, 5)]), bundle(9, []), more=texts(7, [number(1, DRAM) + number(2, 77)]))
        one.get("m")
        one.gets(["m", "m"])
        one.put("m2", 5)
        one.report(["h"], HBM)
        one.match(["h", "i"])
        for _ in range(2):
            one.call("ReportMetrics", text(1, one.name) + texts(2, [
                counter("mori_umbp_x_total", 2.5, code="a\"b"), counter("mori_umbp_x_total", 1, code="c"), gauge("mori_umbp_y", -3),
                histogram("mori_umbp_z_seconds", [0.001, 0.5], [1, 3], 4, 2.25)]))
        types, values = scraped(port)
        told = documented()
        assert told and {name: types.get(name) for name in told} == told, "the reference has what is there"
        assert set(types) - set(told) == {"mori_umbp_x_total", "mori_umbp_y", "mori_umbp_z_seconds"}
        assert types["mori_umbp_z_seconds"] == "histogram"
        node, tagged = r'node="n\"1"', r'node="n\"1",sgl_role="prefill"'
        mixed = f'{node},rpc="Get",sgl_role="prefill",tier="no"'
        assert values[f'mori_umbp_x_total{{code="a\\"b",{tagged},tier="no"}}'] == 5
        assert values[f'mori_umbp_y{{{tagged},tier="no"}}'] == -3
        assert values[f'mori_umbp_z_seconds_bucket{{{mixed},le="0.5"}}'] == 6
        assert values[f'mori_umbp_z_seconds_bucket{{{mixed},le="+Inf"}}'] == 8
        assert values[f'mori_umbp_z_seconds_sum{{{mixed}}}'] == 4.5
        assert values["mori_umbp_client_count"] == 2
        assert values[f'mori_umbp_client_capacity_used_bytes{{{node},tier="DRAM"}}'] == 750
        assert values[f'mori_umbp_client_capacity_utilization_ratio{{{node},tier="DRAM"}}'] == 0.75
        assert values[f'mori_umbp_client_kv_live_count{{{tagged},tier="DRAM"}}'] == 77
        assert values[f"mori_umbp_client_kv_live_count_total{{{tagged}}}"] == 77
        assert values[f"mori_umbp_client_route_get_total{{{node}}}"] == 1
        assert values[f"mori_umbp_client_batch_route_get_total{{{node}}}"] == 2
        assert values['mori_umbp_client_route_put_total{node="n2"}'] == 1
        assert values[f"mori_umbp_heartbeat_events_applied_total{{{node}}}"] == 1
        assert values[f"mori_umbp_heartbeat_seq_gap_total{{{node}}}"] == 1
        assert values[f'mori_umbp_external_kv_report_total{{{node},tier="HBM",result="ok"}}'] == 1
        assert values["mori_umbp_external_kv_match_queried_blocks_total"] == 2
        assert values["mori_umbp_external_kv_match_matched_blocks_total"] == 1
        master.stop()


def drops(port: str, count: int) -> None:
    """The master has dropped so many samples, as far as it has told yet."""
    support.wait_until("dropped samples are counted", lambda: scraped(port)[1]["penstock_pool_guest_samples_dropped_total"] == count)


def test_metrics_that_are_another_series(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    """No series is told twice: not by another order of its labels, not by the three names of a histogram; and none is infinite."""
    with start_master(tmp_path, "--http", "127.0.0.1:0", "--metrics-umbp") as master, Mori(python, address_of(master), "n") as one:
        master.wait_for("http: listening on ")
        port = re.search(r"http: listening on (\S+)", master.log())[1]
        one.register()
        one.call("ReportMetrics", text(1, "n") + texts(2, [
            counter("mori_umbp_x_total", 1, b='"\\,a="', a="1", z="z"), counter("mori_umbp_x_total", 2, z="z", a="1", b='"\\,a="'),
            histogram("mori_umbp_t", [1.0], [1], 1, 0), gauge("mori_umbp_t_count", 1), gauge("mori_umbp_u_sum", 1),
            histogram("mori_umbp_u", [1.0], [1], 1, 0), counter("mori_umbp_y_total", 1e308), counter("mori_umbp_y_total", 1e308)]))
        _, values = scraped(port)
        ours = {name: value for name, value in values.items() if re.match("mori_umbp_[xtuy]_", name)}
        assert ours == {'mori_umbp_x_total{a="1",b="\\"\\\\,a=\\"",node="n",z="z"}': 3, 'mori_umbp_t_bucket{node="n",rpc="Get",le="1"}': 1,
                        'mori_umbp_t_bucket{node="n",rpc="Get",le="+Inf"}': 1, 'mori_umbp_t_sum{node="n",rpc="Get"}': 0, 'mori_umbp_t_count{node="n",rpc="Get"}': 1,
                        'mori_umbp_u_sum{node="n"}': 1, 'mori_umbp_y_total{node="n"}': 1e308}
        drops(port, 3)
        master.stop()


def test_metrics_by_names_of_others(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    """Labels that Prometheus sets itself, and a histogram of which a series is called as one of the master's, are not told."""
    with start_master(tmp_path, "--http", "127.0.0.1:0", "--metrics-umbp") as master, Mori(python, address_of(master), "n") as one:
        master.wait_for("http: listening on ")
        port = re.search(r"http: listening on (\S+)", master.log())[1]
        one.register(tags=["__name__=evil", "le=7", "zone=a"])
        one.call("ReportMetrics", text(1, "n") + texts(2, [histogram("mori_umbp_client", [1.0], [1], 1, 0),
                                                           histogram("mori_umbp_near", [1.0, 1.0000000000001], [1, 1], 1, 0)]))
        _, values = scraped(port)
        assert values["mori_umbp_client_count"] == 1
        assert not [name for name in values if "evil" in name or 'le="7"' in name or re.match("mori_umbp_client_(bucket|sum)", name)]
        assert 'mori_umbp_client_kv_live_count_total{node="n",zone="a"}' in values
        bounds = [re.search('le="(.*)"', name)[1] for name in values if name.startswith("mori_umbp_near_bucket")]
        assert bounds == ["1", "1.0000000000001", "+Inf"]
        master.stop()


def test_metrics_that_are_none(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    """What would break the page, or has no room, is dropped and counted; the page is read as before."""
    with start_master(tmp_path, "--http", "127.0.0.1:0", "--metrics-umbp") as master, Mori(python, address_of(master), "n") as one:
        master.wait_for("http: listening on ")
        port = re.search(r"http: listening on (\S+)", master.log())[1]
        one.register()
        ok = "mori_umbp_ok_total"
        bad = [counter("penstock_keys", 1), counter("mori_umbp_a b", 1), counter("mori_umbp_a\n", 1), counter(ok, -1), counter(ok, float("nan")),
               counter(ok, 1, node="twice"), counter(ok, 1, **{"le gal": "x"}), counter(ok, 1, bad=b"\xff"), counter(ok, 1, le="7"),
               counter(ok, 1, __name__="x"), counter("mori_umbp_" + "n" * 200, 1), text(1, ok) + text(3, b"\x0a\x7f"),
               histogram("mori_umbp_h", [2, 1], [1, 1], 1, 0), histogram("mori_umbp_h", [1, 2], [2, 1], 2, 0),
               histogram("mori_umbp_h", [1], [1, 1], 2, 0), histogram("mori_umbp_h", [float(i) for i in range(40)], [0] * 40, 0, 0), b"\x0b"]
        one.call("ReportMetrics", text(1, "n") + texts(2, [counter(ok, 1), *bad, gauge(ok, 1)]))
        one.call("ReportMetrics", text(1, "stranger") + texts(2, [counter(ok, 1)]))
        _, values = scraped(port)
        assert {name for name in values if "ok_total" in name or "mori_umbp_h{" in name or "mori_umbp_h_" in name} == {'mori_umbp_ok_total{node="n"}'}
        drops(port, len(bad) + 1)
        one.call("ReportMetrics", text(1, "n") + texts(2, [counter("mori_umbp_many_total", 1, i=str(i)) for i in range(5000)]))
        drops(port, len(bad) + 1 + 5000 - 4095)
        one.unregister()
        one.name = "m"
        one.register()
        one.call("ReportMetrics", text(1, "m") + texts(2, [counter(ok, 7)]))
        _, values = scraped(port)
        assert [name for name in values if name.startswith("mori_umbp_many")] == [], "series of a node that is gone give way"
        assert values['mori_umbp_ok_total{node="m"}'] == 7
        master.stop()


def test_metrics_are_off_unless_asked_for(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    with start_master(tmp_path, "--http", "127.0.0.1:0") as master:
        master.wait_for("http: listening on ")
        assert scraped(re.search(r"http: listening on (\S+)", master.log())[1])[0] == {}
        master.stop()
    got, log = fails_to_start("--unix", f"{tmp_path}/socket", "--http", "127.0.0.1:0", "--metrics-umbp")
    assert got == USAGE and "umbp" in log
