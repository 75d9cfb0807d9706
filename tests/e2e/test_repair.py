# SPDX-License-Identifier: Apache-2.0
"""What had copies has them again when a node has gone, and a node that drains can go."""
from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import pathlib
import re
from typing import Any, Iterator

import pytest
import support
from support import penstock, wait_until
from members import Master, keys_of, master, member


class Pool:
    """A master and three nodes, each on a host of its own."""

    def __init__(self, folder: pathlib.Path, *places: str) -> None:
        self.nodes: list[support.Node] = []
        self.master = Master(folder, *(f"--place={place}" for place in places), "--repair-again-ms=500", "--nodes-min=3",
                             place=None)
        self.file = folder / "value"
        try:
            for i in range(3):
                self.nodes.append(self.node(i))
            self.master.has(3)
        except BaseException:
            self.close()
            raise

    def node(self, number: int) -> support.Node:
        return member(self.master, f"--host=h{number}", "--class=c/=cache")

    def put(self, names: list[str], replicas: int = 0) -> dict[str, str]:
        """Puts a value under each name, from 1 byte to 1 MiB. Return: their digests."""
        url = f"pool://{self.master.address}" + (f"?replicas={replicas}" if replicas else "")
        digests = {}
        for i, name in enumerate(names):
            value = name.encode() * (1 << i % 18)
            self.file.write_bytes(value)
            said = penstock("--url", url, "put", name, self.file)
            assert said.returncode == 0, said.stderr
            digests[name] = hashlib.sha256(value).hexdigest()
        return digests

    def living(self) -> list[support.Node]:
        return [node for node in self.nodes if node.process.poll() is None]

    def copies(self) -> dict[str, int]:
        """By key, how many nodes have it."""
        return dict(collections.Counter(key for node in self.living() for key in keys_of(node)))

    def check(self, digests: dict[str, str]) -> None:
        """Every node has the right bytes of what it has."""
        for node in self.living():
            for key in keys_of(node):
                value = penstock("--url", node.tcp, "get", key).stdout
                assert hashlib.sha256(value).hexdigest() == digests[key], key

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
        self.master.node.kill()


@contextlib.contextmanager
def pool(folder: pathlib.Path, *places: str) -> Iterator[Pool]:
    p = Pool(folder, *places)
    try:
        yield p
    finally:
        p.close()


def test_a_killed_nodes_copies_are_made_again(tmp_path: pathlib.Path) -> None:
    """By the prefix, and by what the client asked for; what a node let go of by itself is not."""
    with pool(tmp_path, "two/=anywhere:2", "one/=anywhere", "c/=anywhere:2") as p:
        two = [f"two/{i}" for i in range(19)]
        asked = [f"one/asked{i}" for i in range(5)]
        digests = p.put(two) | p.put(asked, 2) | p.put([f"one/{i}" for i in range(5)]) | p.put(["c/kept", "c/dropped"])
        placed = p.copies()
        assert all(placed[name] == 2 for name in [*two, *asked, "c/kept", "c/dropped"]), placed
        one_of = next(node for node in p.nodes if "c/dropped" in keys_of(node))
        assert penstock("--url", one_of.tcp, "rm", "c/dropped").returncode == 0
        placed["c/dropped"] = 1
        wait_until("all is known", lambda: p.master.figures()["keys"] == sum(placed.values()))
        p.nodes[0].kill()
        wait_until("there are two again", lambda: {*two, *asked, "c/kept"} <= {k for k, n in p.copies().items() if n == 2})
        assert all(count <= placed[name] for name, count in p.copies().items())
        p.check(digests)

        def told() -> bool:
            figures = p.master.figures()
            return figures["repairs_done"] == figures["repairs"] > 0 and figures["repair_bytes"] > 0

        wait_until("the master has heard of it", told)
        assert p.master.figures()["repairs_failed"] == 0
        assert penstock("--url", f"pool://{p.master.address}", "rm", "two/1").returncode == 0
        assert "two/1" not in p.copies()


def test_copies_wait_for_a_host(tmp_path: pathlib.Path) -> None:
    """With nowhere to go they are made when there is; also by a master that has begun anew."""
    with pool(tmp_path, "two/=anywhere:2") as p:
        digests = p.put([f"two/{i}" for i in range(20)])
        wait_until("all is known", lambda: p.master.figures()["keys"] == 40)
        p.nodes[1].kill()
        p.nodes[2].kill()
        p.master.has(1)
        left = p.copies()
        p.master.node.kill()
        p.master.back()
        p.master.has(1)
        p.nodes[2] = p.node(2)
        wait_until("all that is left has two copies", lambda: p.copies() == dict.fromkeys(left, 2))
        p.check(digests)


@pytest.mark.parametrize("lost", [False, True])
def test_copies_asked_for_outlive_the_master(tmp_path: pathlib.Path, lost: bool) -> None:
    """What a client wants is kept with each value: a master that begins anew, with its file or without, has it from the nodes."""
    with pool(tmp_path, "any/=anywhere") as p:
        three = [f"any/three{i}" for i in range(19)]
        digests = p.put(three, 3) | p.put([f"any/one{i}" for i in range(9)])
        placed = p.copies()
        wait_until("all is known", lambda: p.master.figures()["keys"] == sum(placed.values()))
        name = re.findall(r"pool ([0-9a-f]{32})", p.master.node.log())[-1]
        p.master.node.kill()
        if lost:
            p.master.map_file.unlink()
            p.master.more = (*p.master.more, f"--adopt={name}")
        p.master.back()
        p.master.has(3)
        p.nodes[0].kill()
        p.nodes.append(p.node(3))
        wait_until("there are three again", lambda: {*three} <= {k for k, n in p.copies().items() if n == 3})
        assert all(count <= placed[name] for name, count in p.copies().items())
        p.check(digests)


def test_copies_asked_for_outlive_the_node(tmp_path: pathlib.Path) -> None:
    """On its SSD, too, and when a value was overwritten by one that asks for nothing, it is that one's."""
    ssd = (f"--ssd={tmp_path}/ssd", "--ssd-bytes=256M", "--ssd-segment=4M")

    def asked() -> int:
        return json.loads(penstock("--url", node.tcp, "stat", "--json").stdout)["copies_asked"]

    with master(tmp_path) as m:
        with member(m, *ssd) as node:
            m.has(1)
            for key, more in ("a", "?replicas=3"), ("b", "?replicas=2"), ("c", ""), ("d", "?replicas=3"):
                (tmp_path / "value").write_bytes(key.encode() * 5000)
                said = penstock("--url", f"pool://{m.address}{more}", "put", key, tmp_path / "value")
                assert said.returncode == 0, said.stderr
            assert penstock("--url", node.tcp, "put", "d", stdin=b"another").returncode == 0
            assert asked() == 2
            assert penstock("--url", node.tcp, "flush").returncode == 0
            node.kill()
        with member(m, *ssd) as node:
            assert asked() == 2
            assert penstock("--url", node.tcp, "rm", "a").returncode == 0
            assert asked() == 1


def state(p: Pool, at: int) -> dict[str, Any]:
    """What the list says of the node."""
    said = penstock("--url", f"pool://{p.master.address}", "node", "list", "--json")
    assert said.returncode == 0, said.stderr
    rows = [json.loads(line) for line in said.stdout.splitlines()]
    return next(row for row in rows if row["address"] == f"127.0.0.1:{p.nodes[at].ports()[0]}")


def drain(p: Pool, at: int, word: str = "drain") -> None:
    said = penstock("--url", f"pool://{p.master.address}", "node", word, f"127.0.0.1:{p.nodes[at].ports()[0]}")
    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize("copies", [1, 2])
def test_a_drained_node_can_stop(tmp_path: pathlib.Path, copies: int) -> None:
    """Under load, what lies anywhere and what has a home goes to others; when the list says so nothing is left."""
    with pool(tmp_path, f"any/=anywhere:{copies}", f"=home:{copies}") as p:
        wait_until("partitions are dealt out", lambda: p.master.ask("partitions")["served"] == 4096)
        digests = p.put([f"any/{i}" for i in range(10)] + [f"home/{i}" for i in range(10)])
        url = f"pool://{p.master.address}"
        with support.bench(url, "--op=put", "--prefix=load/", "--keys=300", "--size=5000", "--seconds=60") as load:
            drain(p, 0)
            wait_until("it is drained", lambda: state(p, 0)["state"] == "drained", 60)
            assert load.poll() is None, load.stderr.read() if load.stderr else ""
            row = state(p, 0)
            assert row["primaries"] == row["copies"] == row["keys_left"] == 0, row
            p.nodes[0].stop()
            p.master.has(2)
            load.kill()
        for name, digest in digests.items():
            said = penstock("--url", url, "get", name)
            assert said.returncode == 0 and hashlib.sha256(said.stdout).hexdigest() == digest, (name, said.stderr)
        assert p.master.ask("partitions")["incomplete"] == 0


def test_a_drain_is_waited_for(tmp_path: pathlib.Path) -> None:
    """As a node's service ends: when the command ends the node may stop; and it says why it gave up."""
    with pool(tmp_path, "=home:2") as p:
        wait_until("partitions have their copies", lambda: p.master.ask("partitions")["copies"][2] == 4096)
        p.put([f"home/{i}" for i in range(10)])
        url, names = f"pool://{p.master.address}", [f"127.0.0.1:{node.ports()[0]}" for node in p.nodes]
        said = penstock("--url", url, "node", "drain", names[0], "--wait")
        assert (said.returncode, said.stderr) == (0, b"")
        assert state(p, 0)["state"] == "drained"
        p.nodes[0].stop()
        p.master.has(2)
        said = penstock("--url", url, "node", "drain", names[1], "--wait=300")
        assert said.returncode == 7 and b"is not drained after 300 ms" in said.stderr, said.stderr
        assert penstock("--url", url, "node", "drain", names[1], "--wait=soon").returncode == 2
        drain(p, 1, "undrain")
        assert penstock("--url", url, "node", "drain", names[0], "--wait").returncode == 1


def test_a_drain_does_not_wait_for_heartbeats(tmp_path: pathlib.Path) -> None:
    """With next to nothing to move it ends soon: what one heartbeat wanted is done long before the next would come."""
    slow = ("--heartbeat-ms=4000", "--lease-ms=12000", "--member-ttl-ms=40000", "--nodes-min=3")
    with master(tmp_path, *slow, place="=home:2") as m, contextlib.ExitStack() as running:
        nodes = [running.enter_context(member(m, f"--host=h{i}")) for i in range(3)]
        m.has(3)
        wait_until("partitions have their copies", lambda: m.ask("partitions")["copies"][2] == 4096)
        said = penstock("--url", f"pool://{m.address}", "node", "drain", f"127.0.0.1:{nodes[0].ports()[0]}", "--wait=20000")
        assert (said.returncode, said.stderr) == (0, b"")


def test_a_drain_ends_when_no_keys_have_homes_any_more(tmp_path: pathlib.Path) -> None:
    """Partitions that were dealt out before go to other nodes, and the values that came when keys had homes as well."""
    with pool(tmp_path, "=home") as p:
        wait_until("partitions are dealt out", lambda: p.master.ask("partitions")["served"] == 4096)
        digests = p.put([f"home/{i}" for i in range(20)])
        p.master.node.kill()
        p.master.more = ("--place==anywhere", "--repair-again-ms=500", "--nodes-min=3")
        p.master.back()
        p.master.has(3)
        url, name = f"pool://{p.master.address}", f"127.0.0.1:{p.nodes[0].ports()[0]}"
        said = penstock("--url", url, "node", "drain", name, "--wait=60000")
        assert (said.returncode, said.stderr) == (0, b""), state(p, 0)
        p.nodes[0].stop()
        p.master.has(2)
        for key, digest in digests.items():
            said = penstock("--url", url, "get", key)
            assert said.returncode == 0 and hashlib.sha256(said.stdout).hexdigest() == digest, (key, said.stderr)


@pytest.mark.parametrize("place", ["=home:3", "=anywhere:3"])
def test_a_drain_that_cannot_end_says_so(tmp_path: pathlib.Path, place: str) -> None:
    """As many nodes as copies: at once, or when the node has looked; and it goes on when another node joins."""
    with pool(tmp_path, place) as p:
        if place == "=home:3":
            wait_until("partitions have their copies", lambda: p.master.ask("partitions")["copies"][3] == 4096)
        p.put(["a", "b"])
        wait_until("all is known", lambda: all(len(keys_of(node)) == 2 for node in p.nodes))
        url, name = f"pool://{p.master.address}", f"127.0.0.1:{p.nodes[0].ports()[0]}"
        said = penstock("--url", url, "node", "drain", name)
        assert said.returncode == 0, said.stderr
        if place == "=home:3":
            assert f"node {name} drains, but the other nodes are on too few hosts".encode() in said.stderr, said.stderr
        wait_until("it says so", lambda: state(p, 0)["state"] == "stuck")
        p.nodes.append(p.node(3))
        wait_until("it is drained", lambda: state(p, 0)["state"] == "drained", 60)
        drain(p, 0, "undrain")
        assert state(p, 0)["state"] == "serving"


def test_what_drains_is_given_nothing(tmp_path: pathlib.Path) -> None:
    """Also after the master began anew; and once it drains no more it is."""
    with pool(tmp_path, "any/=anywhere") as p:
        drain(p, 0)
        p.master.node.kill()
        p.master.back()
        p.master.has(3)
        assert state(p, 0)["state"] in ("draining", "drained")
        p.put([f"any/{i}" for i in range(19)])
        assert keys_of(p.nodes[0]) == set()
        assert penstock("--url", f"pool://{p.master.address}", "node", "drain", "127.0.0.1:1").returncode == 1
        drain(p, 0, "undrain")
        assert state(p, 0)["state"] == "serving"
        drain(p, 1)
        drain(p, 2)
        p.put([f"any/again{i}" for i in range(5)])
        assert keys_of(p.nodes[0]) >= {f"any/again{i}" for i in range(5)}


@pytest.mark.parametrize("words", [["list"], ["drain", "127.0.0.1:1"], ["forgive"]])
def test_one_store_has_no_nodes(words: list[str]) -> None:
    """Also one within the process, where there is nobody to ask."""
    said = penstock("--url", "mem:", "node", *words)
    assert said.returncode > 0 and b"no pool" in said.stderr, said
