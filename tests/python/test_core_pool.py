# SPDX-License-Identifier: Apache-2.0
"""pool://: several nodes and a master, all of them processes, behind one store. What messages were sent, its figures say."""
from __future__ import annotations

import asyncio
import contextlib
import pathlib
import time
from collections.abc import Iterator

import penstock
import pytest
import support
from members import INCOMPLETE, ROUTED, Master, master, member
from support import start_node, wait_until

HOSTS = ("a", "b", "c")
PAGES = {f"page/{i:03}": bytes([i]) * (4096 + 997 * i) for i in range(128)}
BATCH_BYTES = sum(map(len, PAGES.values()))


def url_of(m: Master, **settings: object) -> str:
    return f"pool://{m.address}" + "".join(f"{'&' if i else '?'}{k}={v}" for i, (k, v) in enumerate(settings.items()))


class Pool:
    """A master, and a node for each of HOSTS."""

    def __init__(self, m: Master, nodes: dict[str, support.Node]) -> None:
        self.m = m
        self.nodes = nodes

    def open(self, host: str = "elsewhere", timeout: float = 10, **settings: object) -> penstock.Store:
        return penstock.open(url_of(self.m, host=host, **settings), timeout=timeout)

    def keys_of(self, host: str) -> list[str]:
        return list(penstock.open(self.nodes[host].tcp))


@contextlib.contextmanager
def pool(folder: pathlib.Path, *more: str) -> Iterator[Pool]:
    with contextlib.ExitStack() as stack:
        m = stack.enter_context(master(folder, *more))
        nodes = {host: stack.enter_context(member(m, f"--host={host}", "--page-size=64K")) for host in HOSTS}
        m.has(len(HOSTS))
        yield Pool(m, nodes)


class Figures:
    """What a store's figures grew by since they were last asked for; asking is a message to the master and each node."""

    def __init__(self, store: penstock.Store) -> None:
        self.store = store
        self.last = store.stat()

    def grew(self) -> dict[str, int]:
        last, self.last = self.last, self.store.stat()
        grown = {name: getattr(self.last, f"pool_{name}") - getattr(last, f"pool_{name}")
                 for name in ("master_requests", "node_requests", "located", "existed", "put_bytes", "failovers")}
        shards = self.last.shards
        return grown | {"master_requests": grown["master_requests"] - 1, "node_requests": grown["node_requests"] - shards}


def test_a_batch_is_a_message(tmp_path: pathlib.Path) -> None:
    """One to the master where it has to be asked at all, and one to each shard with something to do."""
    with pool(tmp_path) as p, p.open(host="b") as store, p.open(host="c") as other:
        figures, others = Figures(store), Figures(other)
        shards = 2  # of each node

        store.put_many(PAGES)
        grown = figures.grew()
        assert (grown["master_requests"], grown["node_requests"]) == (1, shards), grown
        assert grown["put_bytes"] == BATCH_BYTES and grown["existed"] == 0
        assert sorted(p.keys_of("b")) == sorted(PAGES) and p.keys_of("a") == p.keys_of("c") == []  # the near one

        assert all(store.exists_many(PAGES))  # at once: its own writes
        assert store.get_many(PAGES) == list(PAGES.values())
        grown = figures.grew()
        assert (grown["master_requests"], grown["node_requests"]) == (0, 3 * shards), grown  # sizes, then values
        assert grown["located"] >= 2 * len(PAGES)

        assert other.get_many(PAGES) == list(PAGES.values())  # whether the node has reported them, or not yet
        assert others.grew()["master_requests"] <= 2  # some keys of one batch may be asked for again
        other.put_many(PAGES)
        grown = others.grew()
        assert (grown["master_requests"], grown["node_requests"]) == (0, shards), grown
        assert grown["put_bytes"] == 0 and grown["existed"] == len(PAGES)
        with pytest.raises(penstock.Exists):
            other.put("page/000", b"x", if_absent=True)
        assert list(other) == sorted(PAGES)
        other.delete("page/000")
        assert not store.exists("page/000") and not other.exists("page/000")


def test_a_handle_stays_with_its_pool(tmp_path: pathlib.Path) -> None:
    """What another pool's master does not know is not missing, and none of its nodes is asked."""
    (tmp_path / "other").mkdir()
    with pool(tmp_path) as p, p.open(host="a", timeout=2) as store, p.open(host="b", timeout=2) as other:
        store.put("k", b"value")
        p.m.node.kill()
        p.m.map_file.unlink()
        p.m.back()
        wait_until("the nodes were refused", lambda: p.m.figures()["strangers"] >= len(HOSTS))
        with start_node("--listen=127.0.0.1:0", "--dram=16M", f"--master={p.m.address}", listeners=2) as foreign:
            foreign.wait_for("joined as member")
            assert store.get("k") == b"value"  # it knows where
            for call in (lambda: other.get("k"), lambda: other.exists("k"), lambda: store.get("never")):
                with pytest.raises(Exception, match="another pool"):
                    call()
            other.put("new", b"value")
            assert list(penstock.open(foreign.tcp)) == []


def test_copies_on_distinct_hosts_survive_a_node(tmp_path: pathlib.Path) -> None:
    with pool(tmp_path) as p, p.open(host="a", replicas=2) as store, p.open(host="b") as other:
        store.put_many(PAGES)
        held = {host: set(p.keys_of(host)) for host in HOSTS}
        assert held["a"] == set(PAGES) and held["b"] | held["c"] == set(PAGES) and not held["b"] & held["c"]
        assert list(store) == sorted(PAGES)  # each once
        wait_until("all are reported", lambda: p.m.figures()["keys"] == 2 * len(PAGES))
        figures = Figures(store)
        p.nodes["a"].kill()
        assert store.get_many(PAGES) == list(PAGES.values())
        assert other.get_many(PAGES) == list(PAGES.values())
        store.put_many({f"new/{i}": bytes([i]) * 5000 for i in range(20)})
        assert store.get_many([f"new/{i}" for i in range(20)]) == [bytes([i]) * 5000 for i in range(20)]
        wait_until("the dead one is no member", lambda: len(p.m.members()) == 2)
        assert figures.grew()["failovers"] > 0
        assert len(list(store)) == len(PAGES) + 20
        assert not store.exists("never")


def test_a_master_that_is_gone(tmp_path: pathlib.Path) -> None:
    """What is known is read, puts go to nodes of the view, and the store closes; one that is back goes on as before."""
    with pool(tmp_path) as p:
        with p.open(host="a") as store, p.open(host="a") as late:
            store.put_many(PAGES)
            assert late.exists("page/001")
            p.m.node.kill()
            assert store.get_many(PAGES) == list(PAGES.values())
            store.put("without", b"a master")
            assert store.get("without") == b"a master"
            with pytest.raises(penstock.Unreachable):
                late.get("page/002")
        with pytest.raises(penstock.Unreachable):
            p.open()
        p.m.back()
        p.m.has(len(HOSTS))
        with p.open() as store:
            wait_until("all are known again", lambda: all(store.exists_many([*PAGES, "without"])))
            assert store.get_many(PAGES) == list(PAGES.values())


def test_looked_at_in_place(tmp_path: pathlib.Path) -> None:
    """Where the value lies on a node of the same host; elsewhere it is read."""
    with pool(tmp_path) as p, p.open(host="a") as store, p.open() as far:
        store.put_many(PAGES)
        for key in ("page/001", "page/127"):
            with store.view(key) as view:
                assert bytes(view) == PAGES[key]
        with pytest.raises(penstock.NotFound):
            store.view("never")
        with pytest.raises(penstock.Unsupported):
            far.view("page/001")


def test_the_next_master_of_the_url(tmp_path: pathlib.Path) -> None:
    with pool(tmp_path) as p, penstock.open(f"pool://127.0.0.1:1,{p.m.address}") as store:
        store.put("k", b"v")
        assert store.get("k") == b"v"


def test_a_stopped_node(tmp_path: pathlib.Path) -> None:
    with pool(tmp_path) as p, p.open(host="a", replicas=2, timeout=1) as store:
        store.put_many(PAGES)
        with p.nodes["a"].stopped():
            assert store.get_many(PAGES) == list(PAGES.values())
            assert store.get_many(PAGES) == list(PAGES.values())
        assert store.get_many(PAGES) == list(PAGES.values())


def test_a_stopped_node_holds_up_its_own_values_alone(tmp_path: pathlib.Path) -> None:
    """While a node does not answer who connects to it, the others of the pool are read over the same store."""
    with pool(tmp_path) as p, p.open(connect_ms=30000, timeout=30) as store:
        for host in ("a", "b"):
            with p.open(host=host) as near:
                near.put(f"of {host}", host.encode())
        wait_until("both are known", lambda: p.m.statuses("of a", "of b") == [ROUTED, ROUTED])

        async def main() -> None:
            with p.nodes["b"].stopped():
                waiting = asyncio.create_task(store.aio.get("of b"))
                for _ in range(32):
                    assert await store.aio.get("of a") == b"a"
                assert not waiting.done()
            assert await waiting == b"b"

        asyncio.run(main())


@pytest.mark.parametrize("gone", ("stopped", "killed"))
def test_nobody_waits_for_a_master(tmp_path: pathlib.Path, gone: str) -> None:
    """What it is asked ends long before an hour, and so do the store and a member that have something to tell it."""
    with pool(tmp_path, "--member-ttl-ms=60000") as p, p.open(host="a", timeout=3600) as store, contextlib.ExitStack() as stack:
        store.put_many(PAGES)
        if gone == "stopped":
            stack.enter_context(p.m.node.stopped())
        else:
            p.m.node.kill()
        with pytest.raises(penstock.Error):
            store.exists("never")
        assert store.get_many(PAGES) == list(PAGES.values())
        p.nodes["a"].kill()
        with pytest.raises(penstock.Error):
            store.get("page/000")
        store.close()
        p.nodes["b"].stop()


def test_home(tmp_path: pathlib.Path) -> None:
    """One node decides about a key, whatever its conditions are; what is asked of all nodes is put together."""
    with pool(tmp_path, "--place=h/=home", "--nodes-min=3") as p, p.open() as store, p.open() as other:
        values = {f"h/{key}": value for key, value in PAGES.items()}
        store.put_many(values)
        held = [p.keys_of(host) for host in HOSTS]
        assert sum(map(len, held)) == len(PAGES) and all(held)  # each is somewhere, and all have some
        other.put("h/page/000", b"second")
        assert store.get("h/page/000") == b"second"
        with pytest.raises(penstock.Exists):
            other.put("h/page/000", b"third", if_absent=True)
        store.put("elsewhere", b"x")
        assert list(other.keys("h/")) == sorted(values) and list(other) == sorted([*values, "elsewhere"])
        figures = Figures(other)
        assert other.get_many(list(values)[1:]) == list(values.values())[1:]
        assert figures.grew()["master_requests"] == 0
        mates = held[0][:2]
        store.commit({mates[0]: b"1", mates[1]: b"2"})
        assert other.get_many(mates) == [b"1", b"2"]
        for keys in ([mates[0], held[1][0]], [mates[0], "elsewhere"]):
            with pytest.raises(penstock.Unsupported):
                store.commit(dict.fromkeys(keys, b"3"))
        assert other.get(mates[0]) == b"1"
        assert store.delete_prefix("h/") == len(values)
        assert list(other) == ["elsewhere"]


def test_a_commit_that_only_checks(tmp_path: pathlib.Path) -> None:
    """Nothing of it goes to replicas, and it is told as any other is."""
    with pool(tmp_path, "--place=h/=home:2", "--nodes-min=3") as p, p.open(replicas=2) as store:
        generation = store.put("h/k", b"v")
        store.commit(checks={"h/k": generation})
        with pytest.raises(penstock.Stale):
            store.commit(checks={"h/k": generation + 1})
        assert store.get("h/k") == b"v"


def test_a_node_stands_in_front_of_the_master(tmp_path: pathlib.Path) -> None:
    """An address that was a master's, and is a node's now, hides no master behind it."""
    with pool(tmp_path, "--nodes-min=3") as p, start_node("--dram", "64M", "--listen", "127.0.0.1:0") as other:
        with penstock.open(f"pool://{other.tcp.removeprefix('node://')},{p.m.address}") as store:
            store.put("k", b"v")
            assert store.get("k") == b"v"


def test_nodes_and_copies(tmp_path: pathlib.Path) -> None:
    """A node goes without a loss, and a put says how many have its value."""
    with pool(tmp_path, "--place=h/=home:2", "--nodes-min=3") as p, p.open(replicas=2) as store:
        wait_until("partitions are dealt out", lambda: p.m.ask("partitions")["served"] == 4096)
        assert store.copies == 0
        store.put("two", b"x")
        assert store.copies == 2
        with p.open() as other:
            other.put_many({"one": b"x"})
            assert other.copies == 1
        store.put_many({"two/a": b"x", "two/b": b"x", "h/c": b"x"})
        assert store.copies == 2
        nodes = {node.address: node for node in store.nodes()}
        address = f"127.0.0.1:{p.nodes['a'].ports()[0]}"
        assert len(nodes) == len(HOSTS) and {node.state for node in nodes.values()} == {"serving"}
        assert sum(node.primaries for node in nodes.values()) == sum(node.copies for node in nodes.values()) == 4096
        assert nodes[address].capacity > 0 and len(nodes[address].id) == 16

        def state() -> str:
            return next(node.state for node in store.nodes() if node.address == address)

        store.drain(address)
        wait_until("it is drained", lambda: state() == "drained", 60)
        assert set(p.keys_of("a")) <= {*p.keys_of("b"), *p.keys_of("c")}
        store.undrain(nodes[address])
        assert state() == "serving"
        with pytest.raises(penstock.Unreachable, match="no node"):
            store.drain("127.0.0.1:1")
        with pytest.raises(penstock.Unreachable):
            store.drain_id(bytes(16), True)
        with pytest.raises(ValueError, match="16"):
            store.drain_id(b"id", True)
    with penstock.open() as alone:
        alone.put("key", b"x")
        assert alone.copies == 1
        for call in (alone.nodes, alone.forgive):
            with pytest.raises(penstock.Unsupported):
                call()


def test_a_view_follows_its_key(tmp_path: pathlib.Path) -> None:
    """A key has moved since the store last asked for the pool map: views look for it as every other call does."""
    keys = [f"h/{i}" for i in range(24)]
    with (master(tmp_path, "--place=h/=home", "--nodes-min=2") as m, member(m) as leaver, member(m),
          penstock.open(url_of(m), timeout=10) as store, penstock.open(url_of(m), timeout=10) as other):
        wait_until("partitions are dealt out", lambda: m.ask("partitions")["served"] == 4096)
        other.put_many(dict.fromkeys(keys[::2], b"x"))
        assert store.get_many(keys)[::2] == [b"x"] * 12  # it knows the map now
        address = f"127.0.0.1:{leaver.ports()[0]}"
        other.drain(address)
        wait_until("it is drained", lambda: next(node.state for node in other.nodes() if node.address == address) == "drained", 60)
        for key in keys[::2]:
            with store.view(key) as view:
                assert bytes(view) == b"x"
        for key in keys[1::2]:
            with pytest.raises(KeyError):
                store.view(key)


def test_what_left_its_known_place_may_be_elsewhere(tmp_path: pathlib.Path) -> None:
    """A store knows a node that has the key no more, and the master waits for another one's report: that is no miss."""
    with pool(tmp_path, "--member-ttl-ms=60000") as p, p.open(host="a") as store:
        store.put("k", b"value")
        assert p.keys_of("a") == ["k"] and store.get("k") == b"value"
        p.m.node.kill()
        p.nodes["b"].kill()
        p.m.back()
        with penstock.open(p.nodes["a"].tcp) as alone:
            alone.delete("k")
        wait_until("all but one have reported", lambda: p.m.figures()["members_reporting"] == 1)
        wait_until("its end is known", lambda: p.m.statuses("k") == [INCOMPLETE])
        with pytest.raises(penstock.Incomplete):
            store.get("k")


def test_one_key_is_asked_for_where_it_is(tmp_path: pathlib.Path) -> None:
    """head() lists its key: of six shards one is asked, and one for the value's attributes."""
    with pool(tmp_path, "--place=h/=home:1", "--nodes-min=3") as p, p.open() as store:
        wait_until("partitions are dealt out", lambda: p.m.ask("partitions")["served"] == 4096)
        store["h/k"] = b"x"
        figures = Figures(store)
        assert store.head("h/k").size == 1
        assert figures.grew()["node_requests"] == 2


def test_a_listing_follows_its_keys(tmp_path: pathlib.Path) -> None:
    """A node gives its keys away while a listing waits for its next page: to nodes all of whose keys the listing has."""
    short, long = [f"h/{i:04}" for i in range(300)], [f"h/{i:04}{'k' * 3900}" for i in range(300)]  # 8 long ones fill a page
    with (master(tmp_path, "--place=h/=home:1", "--nodes-min=3") as m, member(m) as leaver, member(m), member(m),
          penstock.open(url_of(m), timeout=10) as store, penstock.open(url_of(m), timeout=10) as other):
        wait_until("partitions are dealt out", lambda: m.ask("partitions")["served"] == 4096)
        other.put_many(dict.fromkeys(short + long, b"x"))
        with penstock.open(leaver.tcp) as alone:
            leavers = set(alone)
        for key in leavers.symmetric_difference(long):
            other.delete(key)
        keys = sorted(leavers.intersection(long) | set(short) - leavers)
        listing = iter(store)
        seen = [next(listing)]
        address = f"127.0.0.1:{leaver.ports()[0]}"
        other.drain(address)
        wait_until("it is drained", lambda: next(node.state for node in other.nodes() if node.address == address) == "drained", 60)
        assert seen + list(listing) == keys


def test_a_loss_is_forgiven(tmp_path: pathlib.Path) -> None:
    """What was lost is not found, once that is said; a store that was told of the loss hears of it."""
    with pool(tmp_path, "--place=h/=home", "--incomplete-ms=100", "--balance-partitions=0") as p, p.open() as other, p.open(timeout=1) as store:
        other.put("h/key", b"x")
        p.nodes[next(host for host in HOSTS if "h/key" in p.keys_of(host))].kill()

        def raised() -> type[Exception] | None:
            try:
                store.get("h/key")
            except penstock.Error as error:
                return type(error)
            return None

        wait_until("it is lost", lambda: raised() is penstock.Lost)
        store.forgive()
        wait_until("it is not found", lambda: raised() is penstock.NotFound)


def test_a_node_that_cannot_have_a_value_serves_others(tmp_path: pathlib.Path) -> None:
    """The next node after one without space; it refuses a value that no node of its size takes, which the client knows itself."""
    with master(tmp_path) as m, member(m, "--host=small", "--dram=16M", "--shards=1") as small, member(m, "--host=large", "--shards=1"):
        m.has(2)
        penstock.open(small.tcp).put("small", b"1")
        with penstock.open(url_of(m), timeout=0.2) as store:
            wait_until("told", lambda: store.exists("small"))
            with contextlib.suppress(penstock.Error):
                for number in range(4):
                    store.put(f"fill/{number}", bytes(20 << 20))
            for number in range(10):
                with pytest.raises((penstock.NoSpace, penstock.Invalid), match="20971520 bytes"):
                    store.put(f"over/{number}", bytes(20 << 20))
                time.sleep(0.3)  # longer than a call's time, which begins with the call
                assert store.get("small") == b"1" and not store.delete("none")


def test_not_a_pool(tmp_path: pathlib.Path) -> None:
    with support.start_node("--listen=127.0.0.1:0", "--dram=64M") as node:
        with pytest.raises(penstock.Unreachable, match="no master"):
            penstock.open(node.tcp.replace("node:", "pool:"))
    for url, error in (("pool://", penstock.Invalid), ("pool://127.0.0.1", penstock.Invalid),
                       ("pool://127.0.0.1:1?replicas=9", penstock.Invalid), ("pool://127.0.0.1:1", penstock.Unreachable)):
        with pytest.raises(error):
            penstock.open(url)
