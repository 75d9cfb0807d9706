# SPDX-License-Identifier: Apache-2.0
"""Values that have a home, and copies on other nodes: what was acknowledged outlives the node that did."""
from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
import support
from home_pool import CachePool, DevicePool, NamedPool, Pool, SsdPool, pool
from members import keys_of, master, member
from support import penstock, start_node, wait_until

INCOMPLETE, LOST = b"not all of the pool has reported", b"lost: the node that had it is gone"


def in_python(code: str) -> None:
    env = support.python_environment()
    subprocess.run([sys.executable, "-B", "-c", "import penstock; " + code], env=env, check=True, timeout=support.WAIT_S)


def member_of(p: Pool, at: int) -> int:
    """The number of a node in the pool, once it has one; -1 before."""
    port = p.nodes[at].ports()[0]
    return next((m["member"] for m in p.master.members() if m["address"].endswith(f":{port}")), -1)


def test_killed_nodes_lose_nothing(tmp_path: pathlib.Path) -> None:
    """The one that a key is asked of, and then the one that has its copy, while others write."""
    with pool(tmp_path, 2) as p, p.load() as told:
        p.put("key", b"before")
        for which in (0, 1):
            at = p.holder("key", which)
            p.kill(at)
            p.put("key", b"%d" % which)
            p.settled(2)
            p.nodes[at] = p.node(at)
            p.settled(3)
            assert p.get("key") == b"%d" % which
    for what in ("puts", "hits", "deletes", "checked"):
        assert told[what] > 0, told


def test_a_stopped_node_is_fenced(tmp_path: pathlib.Path) -> None:
    """One that wakes up neither shows what it had, nor takes writes, before it has caught up."""
    with pool(tmp_path, 2) as p:
        p.put("key", b"before")
        at = p.holders("key")[0]
        node = p.nodes[at]
        os.kill(node.process.pid, signal.SIGSTOP)
        p.put("key", b"after")
        os.kill(node.process.pid, signal.SIGCONT)
        assert penstock("--url", node.tcp, "get", "key").stdout != b"before"
        assert p.get("key") == b"after"
        p.settled(3)


# Reads a key, and writes it when told to; prints what came of that.
WRITER = """
import penstock, sys
store = penstock.open(sys.argv[1], timeout=0.5)
for _ in range(60):
    try:
        print(store.get("key").decode(), flush=True)
        break
    except penstock.Error as error:
        print(error, file=sys.stderr)
sys.stdin.readline()
try:
    store.put("key", b"late")
except penstock.Error as error:
    print(type(error).__name__)
"""


def test_a_client_that_cannot_learn_of_a_new_home_is_told_busy(tmp_path: pathlib.Path) -> None:
    """It asks the node that had the partition before, and no master says who has it now."""
    with pool(tmp_path, 2, "--balance-partitions=0") as p:  # nor does that node get it back
        p.put("key", b"before")
        env = support.python_environment()
        with subprocess.Popen([sys.executable, "-c", WRITER, p.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env,
                              text=True) as writer:
            assert writer.stdout and writer.stdout.readline() == "before\n"
            at = p.holders("key")[0]
            os.kill(p.nodes[at].pid, signal.SIGSTOP)
            wait_until("another has it", lambda: p.master.ask("partition", "key")["copies"][0] != member_of(p, at))
            os.kill(p.nodes[at].pid, signal.SIGCONT)
            p.settled(3)
            p.master.node.kill()
            assert writer.communicate("now\n", timeout=30)[0] == "Busy\n"


def test_copies_are_where_they_should_be(tmp_path: pathlib.Path) -> None:
    """Every write gets to the copies, whatever its form, and a node that joins has only what is there."""
    with pool(tmp_path, 2) as p:
        for i in range(30):
            p.put(f"k{i}", b"x" * (1 << i % 20))
        for i in range(0, 30, 3):
            assert penstock("--url", p.url, "rm", f"k{i}").returncode == 0
        left = {f"k{i}" for i in range(30) if i % 3}
        for key in sorted(left)[:4]:
            here = {i for i, node in enumerate(p.nodes) if key in keys_of(node)}
            assert here == set(p.holders(key)), key
        assert sum(len(keys_of(node)) for node in p.nodes) == 2 * len(left)
        p.kill(0)
        p.settled(2)
        assert keys_of(p.nodes[1]) == keys_of(p.nodes[2]) == left
        for i in range(1, 30, 3):
            assert penstock("--url", p.url, "rm", f"k{i}").returncode == 0
        p.nodes[0] = p.node(0)
        p.settled(3)
        for i in range(2, 30, 3):
            assert p.get(f"k{i}") == b"x" * (1 << i % 20)


def test_all_of_many_keys_go(tmp_path: pathlib.Path) -> None:
    """Keys with copies go one by one, pinned ones stay, and of all that goes nothing is left on any node."""
    files = []
    for i in range(300):
        (tmp_path / f"{'ab'[i % 2]}{i}").write_bytes(b"%d" % i)
        files.append(str(tmp_path / f"{'ab'[i % 2]}{i}"))
    (tmp_path / "list").write_text("\n".join(files) + "\n")
    with pool(tmp_path, 2) as p:
        def everywhere() -> set[str]:
            return set().union(*(keys_of(node) for node in p.nodes))

        assert penstock("--url", p.url, "put", "--files", str(tmp_path / "list")).returncode == 0
        assert everywhere() == set(files)
        said = penstock("--url", p.url, "rm", "--prefix", str(tmp_path / "a"))
        assert said.returncode == 0 and b"150" in said.stderr + said.stdout, said
        assert everywhere() == {file for file in files if f"{tmp_path}/b" in file}
        if not support.sanitized():
            in_python(f"s = penstock.open('{p.url}'); s.pin('{files[1]}'); assert s.clear() == 1; s.unpin('{files[1]}')")
            assert everywhere() == {files[1]}
        assert penstock("--url", p.url, "clear").returncode == 0
        assert everywhere() == set()


def test_durable_values_are_so_at_all_their_nodes(tmp_path: pathlib.Path) -> None:
    """Whatever their form: each node that has a copy finds it again, alone."""
    values = {str(tmp_path / "small"): b"s" * 100, str(tmp_path / "large"): b"l" * 300_000, "read": b"r" * 70_000, "stream": b"t" * 5_000_000}
    for name in list(values)[:2]:
        pathlib.Path(name).write_bytes(values[name])
    (tmp_path / "list").write_text("\n".join(list(values)[:2]) + "\n")
    with pool(tmp_path, 2, kind=SsdPool) as p:
        assert penstock("--url", p.url, "put", "--files", str(tmp_path / "list"), "--durable").returncode == 0
        for key, copies in (("read", 2), ("stream", None)):  # a value of more than 4 MiB comes as a stream, whose copies nobody counts
            said = penstock("--url", p.url, "put", key, "--durable", "--json", stdin=values[key])
            assert said.returncode == 0, said.stderr
            assert json.loads(said.stdout).get("copies") == copies
        p.settled(3)
        holders = {key: p.holders(key) for key in values}
        for node in p.nodes:
            os.kill(node.pid, signal.SIGSTOP)
        for node in p.nodes:
            node.kill()
        for number in range(3):
            with support.start_node("--listen=127.0.0.1:0", "--shards=2", *p.ssd(number)) as node:
                for key in (key for key in values if number in holders[key]):
                    assert penstock("--url", node.tcp, "get", key).stdout == values[key], (key, number)
        assert sum(len(found) for found in holders.values()) == 8


def commit_reservations(url: str, *how: str) -> str:
    done = subprocess.run([support.BUILD / "tests/e2e/commit_reservations", url, *how], capture_output=True, text=True,
                          env=support.clean_environment(), timeout=support.WAIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_reservation_is_committed_with_copies_as_without(tmp_path: pathlib.Path) -> None:
    """Again for the same answer, without losing it to a busy node, and after it could not be durable."""
    some = ("--dram=32M", "--page-size=64K", "--replica-ms=10000")
    ssd = (f"--ssd={tmp_path}/ssd", "--ssd-bytes=64M", "--ssd-segment=2M")
    with master(tmp_path, "--nodes-min=2", "--lease-ms=5000", place="=home:2") as m:
        url = f"pool://{m.address}"
        nodes = [member(m, "--host=h0", *some, *ssd), member(m, "--host=h1", *some)]
        try:
            wait_until("partitions have copies", lambda: m.ask("partitions")["copies"][2] == 4096)
            for how in (("again",), ("durable",), ("busy", str(nodes[1].pid))):
                said = commit_reservations(url, *how)
                assert how != ("durable",) or int(said) > 0, "no commit was refused"
                assert penstock("--url", url, "rm", "--prefix", "reservation").returncode == 0
        finally:
            for node in nodes:
                node.kill()


def test_a_refused_write_is_not_what_a_newcomer_has(tmp_path: pathlib.Path) -> None:
    """A copy without SSD refuses durable puts while another node, with one, is being filled: the value stays."""
    ssd = [("--dram=8M", "--page-size=64K", f"--ssd={tmp_path}/{i}", "--ssd-bytes=64M", "--ssd-segment=2M") for i in range(2)]
    with master(tmp_path, "--nodes-min=2", place="=home:3") as m:
        url = f"pool://{m.address}"
        nodes = [member(m, "--host=h0", "--repair-bytes=1K", *ssd[0]), member(m, "--host=h1", "--repair-bytes=1K")]
        try:
            wait_until("partitions are dealt out", lambda: m.ask("partitions")["copies"][2] == 4096)

            def member_of(node: support.Node) -> int:
                return next(one["member"] for one in m.members() if one["address"].endswith(f":{node.ports()[0]}"))

            first = member_of(nodes[0])
            keys = [key for key in (f"key{i}" for i in range(40)) if m.ask("partition", key)["copies"][0] == first][:6]
            values = {key: b"first " + bytes(500) for key in keys}
            for key, value in values.items():
                assert penstock("--url", url, "put", key, stdin=value).returncode == 0
            nodes.append(member(m, "--host=h2", *ssd[1]))
            m.has(3)
            third, refused, lacking = member_of(nodes[2]), set(), keys
            while lacking:
                lacking = [key for key in keys if third not in m.ask("partition", key)["copies"]]
                for key in lacking:
                    said = penstock("--url", url, "put", key, "--durable", stdin=b"second " + bytes(500))
                    if said.returncode == 0:
                        values[key] = b"second " + bytes(500)
                    else:
                        refused.add(key)
            assert refused, "nobody was being filled"
            for node in nodes[:2]:
                node.kill()
            for key, value in values.items():
                wait_until("it is served", lambda key=key: penstock("--url", url, "get", key).returncode == 0)
                assert penstock("--url", url, "get", key).stdout == value, key
        finally:
            for node in nodes:
                node.kill()


def test_who_joins_has_durable_values_for_good(tmp_path: pathlib.Path) -> None:
    """And of what it had before, only what nobody touched: neither what was deleted meanwhile nor what was overwritten."""
    with pool(tmp_path, 2, kind=SsdPool) as p:
        values = {f"k{i}": b"%d" % i * (10 if i % 2 else 30_000) for i in range(8)}
        gone = [f"gone{i}" for i in range(8)]
        same = {f"same{i}": b"%d" % i * (10 if i % 2 else 30_000) for i in range(8)}
        for key, value in same.items():
            assert penstock("--url", p.url, "put", key, "--durable", stdin=value).returncode == 0
        for key in (*values, *gone):
            assert penstock("--url", p.url, "put", key, "--durable", stdin=b"old").returncode == 0
        p.kill(0)
        p.settled(2)
        assert penstock("--url", p.url, "rm", *gone).returncode == 0
        for key, value in values.items():
            assert penstock("--url", p.url, "put", key, "--durable", stdin=value).returncode == 0
        p.nodes[0] = p.node(0)
        p.settled(3)
        p.kill(1)
        p.settled(2)
        p.nodes[0].kill()
        with support.start_node("--listen=127.0.0.1:0", "--shards=2", *p.ssd(0)) as node:
            assert keys_of(node) == {*values, *same}
            for key, value in {**values, **same}.items():
                assert penstock("--url", node.tcp, "get", key).stdout == value, key


@pytest.mark.parametrize("case", ["all", "with the master", "one stays away", "one was dropped"])
def test_durable_values_outlive_a_power_failure(tmp_path: pathlib.Path, case: str) -> None:
    """And who asks for others is told that they may have been lost."""
    durable = {f"d{i}": b"%d" % i * (10 if i % 2 else 30_000) for i in range(8)}
    with pool(tmp_path, 2, "--incomplete-ms=3000", kind=NamedPool) as p:
        for key in durable:
            assert penstock("--url", p.url, "put", key, "--durable", stdin=b"old").returncode == 0
        if case == "one was dropped":
            p.kill(2)
            p.settled(2)
        for key, value in durable.items():
            assert penstock("--url", p.url, "put", key, "--durable", stdin=value).returncode == 0
        for i in range(4):
            p.put(f"m{i}", b"in memory")
        for node in p.nodes:
            if node.process.poll() is None:
                os.kill(node.pid, signal.SIGSTOP)
        for node in p.nodes:
            node.kill()
        if case == "with the master":
            p.master.node.kill()
            p.master.back()
        p.nodes = [p.node(i) for i in ([0, 1] if case == "one stays away" else [2, 1, 0])]
        p.settled(len(p.nodes))
        for key, value in durable.items():
            assert p.get(key) == value, key
        for i in range(4):
            assert LOST in penstock("--url", p.url, "get", f"m{i}").stderr.lower()
        assert p.master.figures()["partitions_recovered"] > 0
        assert penstock("--url", p.url, "node", "forgive").returncode == 0
        for i in range(4):
            assert b"not found" in penstock("--url", p.url, "get", f"m{i}").stderr.lower()
        for key, value in durable.items():
            assert p.get(key) == value, key


def test_a_partition_that_is_dealt_out_anew_is_empty(tmp_path: pathlib.Path) -> None:
    """A node that was dropped comes back with its SSD, and alone: what it has was overwritten since, and is nobody's."""
    files = [str(tmp_path / f"k{i}") for i in range(16)]
    (tmp_path / "list").write_text("\n".join(files) + "\n")
    with pool(tmp_path, 2, "--incomplete-ms=1000", "--nodes-min=1", kind=NamedPool) as p:
        def put(value: bytes) -> None:
            for i, name in enumerate(files):
                pathlib.Path(name).write_bytes(value * (1 if i % 2 else 30_000))
            command = ("--url", p.url, "put", "--files", str(tmp_path / "list"), "--durable")
            wait_until("all are there", lambda: penstock(*command).returncode == 0)

        def is_lost(key: str) -> bool:
            said = penstock("--url", p.url, "--timeout=1000", "get", key)
            assert said.returncode != 0, said.stdout[:9]
            return LOST in said.stderr.lower()

        put(b"old")
        p.kill(0)
        p.settled(2)
        put(b"new")
        for node in p.nodes[1:]:
            os.kill(node.pid, signal.SIGSTOP)
        for node in p.nodes[1:]:
            node.kill()
        for _ in range(2):  # of what it has dropped a crash brings nothing back
            p.nodes[0] = p.node(0)
            wait_until("it has all partitions", lambda: p.master.ask("partitions")["served"] == 4096)
            for name in files:
                wait_until("it is said to be lost", lambda name=name: is_lost(name))
            assert keys_of(p.nodes[0]) == set()
            p.nodes[0].kill()


@pytest.mark.skipif(support.sanitized(), reason="a sanitizer wants to be the first library")
def test_a_node_that_cannot_sync_gives_partitions_back(tmp_path: pathlib.Path) -> None:
    """What is dealt out anew has to be cleared for good first: who cannot says so, and others have it."""
    with master(tmp_path, "--incomplete-ms=500", place="=home") as m:
        def ssd(name: str) -> tuple[str, ...]:
            return "--ssd-driver=posix", f"--ssd={tmp_path}/{name}", "--ssd-bytes=64M", "--ssd-segment=2M", f"--host={name}"

        with member(m, *ssd("broken")) as broken:
            wait_until("it has all partitions", lambda: m.ask("partitions")["served"] == 4096)
            for i in range(20):
                said = penstock("--url", f"pool://{m.address}", "put", f"k{i}", "--durable", stdin=b"value" * 1000)
                assert said.returncode == 0, said.stderr
            broken.kill()
        broken = start_node("--listen=127.0.0.1:0", "--dram=64M", "--shards=2", f"--master={m.address}", *ssd("broken"),
                            listeners=2, environment={"LD_PRELOAD": support.preloadable(support.BUILD / "tests/e2e/no_sync.so")})
        with broken, member(m, *ssd("sound")) as sound:
            wait_until("all were lost, and are served", lambda: m.ask("partitions")["lost"] == m.ask("partitions")["served"] == 4096)
            broken.wait_for("the SSD could not be synced, so this node gives partitions back")
            assert m.figures()["partitions_refused"] > 0
            assert "gives partitions back" not in sound.log()


def test_values_on_ssd_are_sent_to_who_joins(tmp_path: pathlib.Path) -> None:
    files = [str(tmp_path / f"v{i}") for i in range(40)]
    for i, name in enumerate(files):
        pathlib.Path(name).write_bytes(bytes([i]) * 500_000)
    (tmp_path / "list").write_text("\n".join(files) + "\n")
    with pool(tmp_path, 2, kind=SsdPool) as p:
        assert penstock("--url", p.url, "put", "--files", str(tmp_path / "list")).returncode == 0
        for node in p.nodes:
            assert json.loads(penstock("--url", node.tcp, "stat", "--json").stdout)["ssd_keys"] > 0
        p.kill(0)
        p.settled(2)
        assert keys_of(p.nodes[1]) == keys_of(p.nodes[2]) == set(files)
        p.nodes[0] = p.node(0)  # with what it had on its SSD, which it is to forget
        p.settled(3)
        p.kill(1)
        p.settled(2)
        for i, name in enumerate(files):
            assert p.get(name) == bytes([i]) * 500_000


def test_values_in_device_memory_are_sent_to_who_joins(tmp_path: pathlib.Path) -> None:
    with pool(tmp_path, 2, kind=DevicePool) as p:
        for i in range(20):
            p.put(f"v{i}", bytes([i]) * 500_000)
        p.kill(0)
        p.settled(2)
        assert keys_of(p.nodes[1]) == keys_of(p.nodes[2]) == {f"v{i}" for i in range(20)}
        p.nodes[0] = p.node(0)
        p.settled(3)
        p.kill(1)
        p.settled(2)
        assert json.loads(penstock("--url", p.nodes[2].tcp, "stat", "--json").stdout)["hbm_keys"] > 0
        for i in range(20):
            assert p.get(f"v{i}") == bytes([i]) * 500_000


def test_generations_grow_over_a_deletion_and_new_homes(tmp_path: pathlib.Path) -> None:
    """A node that was never told of a key, and counts from an earlier start, becomes its primary."""
    with pool(tmp_path, 2) as p:
        def last_of_all(key: str) -> bool:
            return p.holders(key) == [2, 1]  # the first node began to count first

        def generation(key: str) -> int:
            p.put(key, b"x")
            return int(json.loads(penstock("--url", p.url, "--json", "stat", key).stdout)["generation"])

        key = next(name for name in map(str, range(1000)) if last_of_all(name))
        before = generation(key)
        assert penstock("--url", p.url, "rm", key).returncode == 0
        p.kill(1)
        p.settled(2)
        p.kill(2, 2)
        p.settled(1)
        assert generation(key) > before


def test_without_copies_values_are_lost_and_said_to_be(tmp_path: pathlib.Path) -> None:
    with pool(tmp_path, 1, "--incomplete-ms=3000") as p:
        at = {}
        for key in (f"k{i}" for i in range(12)):
            p.put(key, key.encode())
            at[key] = p.holders(key)[0]
        gone = at["k0"]
        p.nodes[gone].kill()

        def said(key: str) -> bytes:
            return penstock("--url", p.url, "--timeout=300", "get", key).stderr.lower()

        wait_until("it is not known whether it comes back", lambda: INCOMPLETE in said("k0"))
        p.master.node.wait_for("none of the nodes that had the keys of")
        p.nodes[gone] = p.node(gone)
        p.master.node.wait_for("all partitions have a node again")
        for key in at:
            if at[key] == gone:
                wait_until(f"{key} is lost", lambda key=key: LOST in said(key))
            else:
                assert p.get(key) == key.encode()
        assert penstock("--url", p.url, "node", "forgive").returncode == 0
        for key in at:
            if at[key] == gone:
                assert b"not found" in said(key)
            else:
                assert p.get(key) == key.encode()


def test_three_copies_survive_two_nodes(tmp_path: pathlib.Path) -> None:
    """One after the other, and an answer says how many copies there were."""
    with pool(tmp_path, 3) as p:
        assert p.put_file("key", b"one") == 3
        p.kill(p.holder("key", 0))
        p.settled(2)
        assert p.put_file("key", b"two") == 2
        p.kill(p.holder("key", 0), 2)
        p.settled(1)
        assert p.get("key") == b"two"
        assert p.put_file("key", b"three") == 1


def test_three_copies_survive_two_nodes_at_once(tmp_path: pathlib.Path) -> None:
    with pool(tmp_path, 3) as p:
        p.put("key", b"one")
        p.put("key", b"two")
        p.settled(3)
        first, heir, last = p.holders("key")
        for at in (first, heir):
            os.kill(p.nodes[at].pid, signal.SIGKILL)
        p.settled(1)
        assert p.get("key") == b"two"
        assert p.nodes[last].process.poll() is None


def test_what_a_primary_evicted(tmp_path: pathlib.Path) -> None:
    """Its copies may still have it: until it is deleted or written anew, and never again from then on."""
    with pool(tmp_path, 2, kind=CachePool) as p:
        keys: list[str] = []
        evicted: list[str] = []

        def known() -> bool:
            for i in range(len(keys), min(len(keys) + 32, 128)):  # which of the node's are evicted is chance
                keys.append(f"c/{i}")
                p.put(keys[-1], b"first" * 100_000)
            there = [keys_of(node) for node in p.nodes]
            evicted[:] = [key for key in keys if p.holder(key, 0) == 0 and key not in there[0] and key in there[p.holder(key, 1)]]
            return len(evicted) >= 3

        wait_until("some are gone where they are asked for", known)
        deleted, again, left = evicted[:3]
        for key in evicted[:3]:
            said = penstock("--url", p.url, "get", key)
            assert said.returncode != 0 and b"not found" in said.stderr, said.stderr
            assert key in keys_of(p.nodes[p.holder(key, 1)])
        assert penstock("--url", p.url, "rm", deleted).returncode != 0  # it is not there, they say
        p.put(again, b"second")
        p.kill(0)
        p.settled(2)
        assert penstock("--url", p.url, "get", deleted).returncode != 0
        assert p.get(again) == b"second" and p.get(left) == b"first" * 100_000
        p.nodes[0] = p.node(0)
        p.settled(3)
        assert p.get(again) == b"second"
        for i in range(64):
            p.put(f"c/more/{i}", b"more" * 100_000)
        assert penstock("--url", p.url, "clear").returncode == 0
        assert [keys_of(node) for node in p.nodes] == [set()] * 3
