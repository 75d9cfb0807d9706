# SPDX-License-Identifier: Apache-2.0
"""penstockd --role master and the nodes that join it: real processes, asked over the real protocol."""
from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time

import pytest
import support
from members import EXISTS, INCOMPLETE, MISS, ROUTED, UNAVAILABLE, Master, figures, master, member
from ports import free_port
from previous import PREVIOUS, VERSION, previous  # noqa: F401: a fixture
from support import penstock, start_node, wait_until

HEARTBEAT, LOCATE, PLACE = 66, 69, 70
HELLO, OTHER_VERSION = 1, 1
UNREACHABLE, OTHER = 5, 7
DRAM, SSD = 2, 3


def put(node: support.Node, key: str, value: bytes = b"value") -> None:
    assert penstock("--url", node.tcp, "put", key, stdin=value).returncode == 0


def has_no_pool(node: support.Node) -> None:
    """Without a view it cannot know which keys are still its own."""
    said = penstock("--url", node.tcp, "--timeout", "200", "put", "k", stdin=b"value")
    assert said.returncode == 7 and b"busy" in said.stderr, said.stderr
    assert penstock("--url", node.tcp, "ls").returncode == 0


def test_join_locate_leave(tmp_path: pathlib.Path) -> None:
    with master(tmp_path) as m, member(m, "--tags=rack=7") as node:
        m.has(1)
        seen = m.members()[0]
        assert seen["address"] == f"127.0.0.1:{node.ports()[0]}" and seen["tags"] == "rack=7"
        assert m.statuses("a", "b") == [MISS, MISS]
        put(node, "a")
        put(node, "b")
        wait_until("both located", lambda: m.statuses("a", "b", "c") == [ROUTED, ROUTED, MISS])
        place = m.ask("locate", "a")["routes"][0]["places"]
        assert [(p["member"], p["tier"]) for p in place] == [(seen["member"], DRAM)] and place[0]["generation"] > 0
        assert [route["status"] for route in m.ask("place", 1000, "a", "new")["routes"]] == [EXISTS, ROUTED]
        assert m.ask("place", 1 << 40, "huge")["routes"][0]["status"] == UNAVAILABLE
        assert penstock("--url", node.tcp, "rm", "a").returncode == 0
        wait_until("its end is known", lambda: m.statuses("a", "b") == [MISS, ROUTED])
        figures = m.figures()
        assert figures["members"] == figures["registrations"] == 1 and figures["heartbeats"] > 0
        assert figures["dram_capacity_bytes"] == 64 << 20 and figures["location_hits"] >= 3
        assert figures["call_locate"] == sum(v for k, v in figures.items() if k.startswith("call_locate_us_"))
        node.stop()
        wait_until("it has left", lambda: m.members() == [])
        assert m.statuses("b") == [MISS] and m.figures()["deaths"] == 0
        m.node.stop()


def test_what_was_there_before(tmp_path: pathlib.Path) -> None:
    """A full report tells of the keys from before, and goes on where changes were too many to be told one by one."""
    with master(tmp_path) as m, member(m, "--class=x=cache", "--report-ms=1000") as node:
        def known() -> bool:
            return m.figures()["keys"] == json.loads(penstock("--url", node.tcp, "stat", "--json").stdout)["keys"]

        m.has(1)
        subprocess.run([support.BUILD / "penstock", "--url", node.tcp, "bench", "--op=put", "--size=100", "--keys=12000",
                        "--batch=128", "--inflight=8", "--seconds=1"], check=True, capture_output=True)
        wait_until("all are known", known)
        assert m.figures()["keys"] > 5000
        subprocess.run([support.BUILD / "penstock", "--url", node.tcp, "clear"], check=True, capture_output=True)
        wait_until("none are left", lambda: m.figures()["keys"] == 0)
        for i in range(60):  # more than there is room for
            put(node, f"x{i}", bytes(2 << 20))
        names = [f"x{i}" for i in range(60)]

        def evicted_is_known() -> bool:
            """The node may free some more when it is asked."""
            listed = penstock("--url", node.tcp, "ls").stdout.decode().split()
            assert 0 < len(listed) < 60
            return m.statuses(*names) == [ROUTED if name in listed else MISS for name in names]

        wait_until("what was evicted is known", evicted_is_known)


def test_the_tier_where_a_key_lies(tmp_path: pathlib.Path) -> None:
    """A node with little memory reports what goes down to its SSD, what comes back, and in full where each lies."""
    keys = [f"k{i:02}" for i in range(24)]
    (tmp_path / "ssd").mkdir()
    ssd = (f"--ssd={tmp_path}/ssd", "--ssd-bytes=256M", "--ssd-segment=4M", "--dram=16M", "--page-size=64K")

    def tiers(m: Master, of: list[str]) -> list[int]:
        routes = m.ask("locate", *of)["routes"]
        assert all(len(route["places"]) == 1 for route in routes), routes  # on one tier at a time
        return [route["places"][0]["tier"] for route in routes]

    def on_ssd() -> int:
        return json.loads(penstock("--url", node.tcp, "stat", "--json").stdout)["ssd_keys"]

    with master(tmp_path) as m, member(m, *ssd) as node:
        m.has(1)
        put(node, keys[0], bytes(1 << 20))
        wait_until("the first is known", lambda: m.statuses(keys[0]) == [ROUTED])
        assert tiers(m, keys[:1]) == [DRAM]
        for key in keys[1:]:
            put(node, key, bytes(1 << 20))
        wait_until("all are known", lambda: m.statuses(*keys) == [ROUTED] * len(keys))
        wait_until("the first went down", lambda: tiers(m, keys[:1]) == [SSD])
        wait_until("as many on the SSD as are there", lambda: tiers(m, keys).count(SSD) == on_ssd() > 0)
        figures = m.figures()
        assert figures["ssd_used_bytes"] > 0 and 0 < figures["ssd_capacity_bytes"] <= 256 << 20
        for key in keys[1:-1]:
            assert penstock("--url", node.tcp, "rm", key).returncode == 0
        assert penstock("--url", node.tcp, "get", keys[0]).stdout == bytes(1 << 20)
        wait_until("the first came back", lambda: tiers(m, keys[:1]) == [DRAM])

        for key in keys:
            put(node, key, bytes(1 << 20))
        m.node.kill()
        m.back()
        m.has(1)
        wait_until("it tells them apart", lambda: tiers(m, keys).count(SSD) == on_ssd() > 0)


def test_killed_node_is_reaped(tmp_path: pathlib.Path) -> None:
    with master(tmp_path) as m, member(m) as one, member(m) as two:
        m.has(2)
        put(one, "one")
        put(two, "two")
        wait_until("both located", lambda: m.statuses("one", "two") == [ROUTED, ROUTED])
        one.kill()
        wait_until("one is gone", lambda: len(m.members()) == 1)
        assert m.statuses("one", "two") == [MISS, ROUTED]
        assert m.figures()["deaths"] == 1
        assert m.members()[0]["address"] == f"127.0.0.1:{two.ports()[0]}"


def test_two_nodes_with_one_id(tmp_path: pathlib.Path) -> None:
    name = tmp_path / "id"
    with master(tmp_path) as m, member(m, f"--node-id={name}") as one:
        m.has(1)
        digits = name.read_text().split()[0]
        assert m.members()[0]["id"] == digits
        with member(m, f"--node-id={digits}") as two:
            two.wait_for(f"the id is a living node's, at 127.0.0.1:{one.ports()[0]}")
            assert m.figures()["refused_twice"] > 0 and len(m.members()) == 1
            assert figures(two.tcp)["pool"]["joins_refused"] > 0 and figures(one.tcp)["pool"]["joins_refused"] == 0
            one.kill()
            two.wait_for("joined as member")
            m.has(1)
            assert m.members()[0]["address"] == f"127.0.0.1:{two.ports()[0]}"


def test_wrong_secret(tmp_path: pathlib.Path) -> None:
    for name in ("right", "wrong"):
        (tmp_path / name).write_text(f"{name} secret of the pool\n")
        (tmp_path / name).chmod(0o600)
    with master(tmp_path, f"--secret-file={tmp_path}/right") as m, member(m, f"--secret-file={tmp_path}/wrong") as node:
        node.wait_for(f"pool: master {m.address}: ")
        assert "secret" in node.log().rpartition("pool: master")[2]
        m.node.wait_for("secret")
        with member(m, f"--secret-file={tmp_path}/right") as good:
            good.wait_for("joined as member")
            assert len(m.ask("map", secret=f"{tmp_path}/right")["members"]) == 1
        assert figures(f"node://{m.address}?secret_file={tmp_path}/right")["refused_secret"] > 0
        seen = figures(f"{node.tcp}?secret_file={tmp_path}/wrong")
        assert seen["pool"]["masters_unreached"] > 0 and seen["pool"]["joins"] == 0
        everywhere = ("--listen=0.0.0.0:0", "--dram=16M", "--fabric=trusted", f"--secret-file={tmp_path}/right")
        with support.Node(*everywhere, f"--master={m.address}") as node:
            assert node.wait() == 2 and "advertise: 0.0.0.0:" in node.log(), node.log()


def test_wrong_heartbeats(tmp_path: pathlib.Path) -> None:
    with master(tmp_path) as m, member(m) as node:
        m.has(1)
        put(node, "k")
        wait_until("located", lambda: m.statuses("k") == [ROUTED])
        who, epoch = m.members()[0]["member"], m.members()[0]["epoch"]
        assert m.ask("beat", who, epoch, 1, 0)["result"] == -errno.EALREADY
        assert m.ask("beat", who, epoch + 1, 1000, 0)["result"] == -errno.ESTALE
        assert m.ask("beat", 5000, epoch, 1, 0)["result"] == -errno.ESTALE
        assert m.ask("raw", HEARTBEAT, 50000)["result"] == -errno.EINVAL
        assert m.ask("raw", HEARTBEAT, 3)["result"] == -errno.EINVAL
        assert m.ask("raw", 95, 3)["result"] == -errno.EOPNOTSUPP
        for code in (LOCATE, PLACE):  # more keys than one may ask about
            assert m.ask("raw", code, 50000)["result"] == -errno.EINVAL
        seen = m.figures()
        assert (seen["heartbeats_past"], seen["heartbeats_stale"], seen["malformed"]) == (1, 2, 4)
        assert seen["gaps"] == 0
        said = m.ask("beat", who, epoch, 1 << 40, 0)
        assert said["result"] == -errno.EILSEQ and said["sync"] == 1
        assert m.figures()["gaps"] == 1 and m.statuses("k") == [ROUTED]


def test_oversized_requests(tmp_path: pathlib.Path) -> None:
    """One with more operations than it may have, or than come, ends its session alone."""
    with master(tmp_path) as m, member(m) as node:
        m.has(1)
        address = m.address
        for bystander in (m.node, node):
            m.address = f"127.0.0.1:{bystander.ports()[0]}"
            assert m.ask("oversized", 257) == m.ask("oversized", 256) == {"ended": 1}
            bystander.wait_for("malformed message")
            bystander.wait_for("malformed request")
            assert figures(f"node://{m.address}")["malformed"] == 2
        m.address = address
        put(node, "k")
        wait_until("located", lambda: m.statuses("k") == [ROUTED])


def test_version_of_long_ago(tmp_path: pathlib.Path) -> None:
    with master(tmp_path) as m, socket.create_connection(m.address.split(":")) as client:
        client.sendall(struct.pack("<4sHHI96x", b"PSTB", 1, HELLO, 96))
        assert client.recv(64)[-4:] == struct.pack("<I", OTHER_VERSION)
        m.node.wait_for(": version 1 asked for, ")
        assert figures(f"node://{m.address}")["refused_version"] == 1


def test_wrong_masters() -> None:
    """Nothing that listens there, and a node that is none: a node and a client are told which."""
    with start_node("--listen=127.0.0.1:0", "--dram=16M") as plain, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        cases = (f"127.0.0.1:{taken.getsockname()[1]}", "nothing listens there", "masters_unreached"), \
                (f"127.0.0.1:{plain.ports()[0]}", "not a master of this version", "joins_refused")
        for address, why, counter in cases:
            with start_node("--listen=127.0.0.1:0", "--dram=16M", f"--master={address}", listeners=2) as node:
                node.wait_for(f"pool: master {address}: {why}")
                wait_until("it is counted", lambda: figures(node.tcp)["pool"][counter] > 0)
                assert figures(node.tcp)["pool"]["joins"] == 0
                has_no_pool(node)
            said = penstock("--url", f"pool://{address}", "--timeout", "1000", "get", "k")
            assert said.returncode in (UNREACHABLE, OTHER) and address.encode() in said.stderr, said.stderr
        assert "pool" not in figures(plain.tcp)


def test_ready_means_that_puts_work(tmp_path: pathlib.Path) -> None:
    """In a pool that takes its master, which may come later; alone it is at once."""
    address = f"127.0.0.1:{free_port()}"
    with start_node("--listen=127.0.0.1:0", "--dram=16M", f"--master={address}", listeners=2) as node:
        node.wait_for(f"pool: master {address}: nothing listens there")
        assert ": ready" not in node.log()
        with start_node("--role=master", f"--listen={address}", "--place==anywhere", f"--pool-map={tmp_path}/map") as m:
            m.wait_for(": ready")
            node.wait_for(": ready")
            assert penstock("--url", f"pool://{address}", "put", "k", stdin=b"value").returncode == 0
            assert node.log().index("joined as member") < node.log().index(": ready")
            node.stop()
        assert node.log().count(": ready") == 1


def test_troubles_with_two_masters_are_told_once() -> None:
    """Each of its own: that they differ is no news."""
    with start_node("--listen=127.0.0.1:0", "--dram=16M") as plain, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        masters = [f"127.0.0.1:{port}" for port in (taken.getsockname()[1], plain.ports()[0])]
        with start_node("--listen=127.0.0.1:0", "--dram=16M", *(f"--master={m}" for m in masters), listeners=2) as node:
            for counter in ("masters_unreached", "joins_refused"):
                wait_until("each was tried often", lambda: figures(node.tcp)["pool"][counter] > 5)
            lines = [line for line in node.log().splitlines() if "pool:" in line]
            assert [sum(m in line for line in lines) for m in masters] == [1, 1], lines


def test_a_key_anywhere_is_deleted_with_its_generation(tmp_path: pathlib.Path) -> None:
    """Though other nodes, which do not have it, are asked as well, and may answer last."""
    with master(tmp_path) as m, member(m) as one, member(m) as two:
        m.has(2)
        keys = [f"k{i}" for i in range(16)]
        for i, key in enumerate(keys):
            put((one, two)[i % 2], key)
        said = subprocess.run([support.BUILD / "tests/e2e/delete_keys", f"pool://{m.address}", *keys, "absent"],
                              capture_output=True, text=True, timeout=support.WAIT_S, check=True)
        *deleted, absent = (tuple(map(int, line.split())) for line in said.stdout.splitlines())
        assert len(deleted) == len(keys) and all(result == 0 and generation for result, generation in deleted), deleted
        assert absent == (1, 0)


def test_master_comes_back(tmp_path: pathlib.Path) -> None:
    with master(tmp_path) as m, member(m) as one, member(m) as two:
        m.has(2)
        put(one, "one")
        put(two, "two")
        wait_until("both located", lambda: m.statuses("one", "two") == [ROUTED, ROUTED])
        before = m.ask("map")
        m.node.kill()
        put(one, "meanwhile")
        m.back()
        assert [e["epoch"] for e in m.members()] == [e["epoch"] for e in before["members"]]
        wait_until("all located", lambda: m.statuses("one", "two", "meanwhile", "never") == [ROUTED, ROUTED, ROUTED, MISS])
        after = m.ask("map")
        assert after["members"] == before["members"] and after["term"] == before["term"] + 1
        assert one.log().count("joined") == two.log().count("joined") == 1
        m.node.process.send_signal(signal.SIGKILL)
        m.node.wait()
        one.kill()
        m.back()  # until it may be dead, what is not found may be its
        assert m.statuses("two") in ([INCOMPLETE], [ROUTED])
        wait_until("one is gone", lambda: len(m.members()) == 1)
        wait_until("two has reported", lambda: m.statuses("one", "two") == [MISS, ROUTED])


def test_a_master_that_lost_its_view(tmp_path: pathlib.Path) -> None:
    """It refuses nodes full of a pool's values, and never says that a key of theirs is not there, until it is told to go on."""
    with master(tmp_path, "--incomplete-ms=1000") as m, member(m) as node, member(m) as other:
        m.has(2)
        pool = f"pool://{m.address}"
        put(node, "k")
        wait_until("located", lambda: m.statuses("k") == [ROUTED])
        name = re.findall(r"pool ([0-9a-f]{32})", m.node.log())[-1]
        before = m.ask("map")
        m.node.kill()
        kept = m.map_file.read_bytes()
        m.map_file.unlink()
        m.back()
        for who in (node, other):
            who.wait_for(f"it is another pool's, and this node has values of pool {name}")
        wait_until("both were refused", lambda: m.figures()["strangers"] > 4)
        assert m.members() == [] and m.statuses("k") == [INCOMPLETE]
        assert f"with values of pool {name} is refused" in m.node.log(), m.node.log()
        said = penstock("--url", pool, "--timeout", "1000", "get", "k")
        assert said.returncode == 7 and b"not all of the pool has reported" in said.stderr, said.stderr
        m.node.kill()
        m.map_file.write_bytes(kept)  # it was found: all goes on as if nothing had been
        m.back()
        m.has(2)
        assert m.members() == before["members"] and m.statuses("k") == [ROUTED]
        assert node.log().count("joined as") == 1
        m.node.kill()
        m.map_file.unlink()  # it was not
        m.more = (*m.more, f"--adopt={name}")
        m.back()
        m.has(2)
        assert m.statuses("k") == [ROUTED] and m.ask("map")["version"] > before["version"]
        assert penstock("--url", pool, "get", "k").stdout == b"value"
        m.node.kill()
        m.more = (*m.more[:-1], "--adopt=" + "ab" * 16)
        code, log = support.fails_to_start("--role=master", "--listen=127.0.0.1:0", f"--pool-map={m.map_file}", m.more[-1])
        assert code == 1 and f"has members of pool {name}" in log, log


def test_a_node_remembers_its_pool(tmp_path: pathlib.Path) -> None:
    """Beside what it keeps, by whatever name it comes back; without that it is anyone's."""
    ssd = (f"--ssd={tmp_path}/ssd", "--ssd-bytes=256M", "--ssd-segment=4M")
    keep = (f"--keep=master-{os.getpid()}-pool",)
    (tmp_path / "other").mkdir()
    try:
        with master(tmp_path) as m, master(tmp_path / "other") as other:
            for kept in (ssd, keep):
                with member(m, *kept, f"--node-id={tmp_path}/id") as node:
                    node.wait_for("joined as member")
                    node.stop()
                for more in ((), (f"--node-id={tmp_path}/other/id",)):
                    with member(other, *kept, *more) as node:
                        node.wait_for("another pool's")
            assert other.figures()["registrations"] == 0 and other.figures()["strangers"] >= 4
            for i in range(20):  # names that somebody draws do not fill the log
                assert other.ask("stranger", f"{i + 1:032x}")["result"] == -errno.EXDEV
            assert other.node.log().count("is refused: this is pool") <= 3
            with member(other, f"--node-id={tmp_path}/id") as node:
                node.wait_for("joined as member")
    finally:
        for path in support.SHM.glob(f"penstock-*{keep[0][7:]}*"):
            path.unlink()


def test_a_process_that_never_heard_that_it_joined(tmp_path: pathlib.Path) -> None:
    """It was killed before, and has the values of the membership before. The next master knows; it tells nobody."""
    name = f"master-{os.getpid()}-unheard"
    kept = (f"--node-id={tmp_path}/id", f"--keep={name}")
    try:
        with master(tmp_path, place="=home:1") as m:
            with member(m, *kept) as node:
                wait_until("it has all", lambda: m.ask("partitions")["served"] == 4096)
                assert penstock("--url", f"pool://{m.address}", "put", "k", stdin=b"value").returncode == 0
                node.kill()
            first = int(re.findall(r"epoch (\d+)", node.log())[-1])
            identity = (tmp_path / "id").read_text().split()[0]
            wait_until("it is taken in", lambda: m.ask("join", identity, 777, first)["result"] == 0)
            assert [(told["epoch"] > first, told["kept"]) for told in m.members()] == [(True, 0)]
            m.node.kill()
            m.back()
            with member(m, *kept) as node:
                node.wait_for(f", with all of epoch {first}")
                wait_until("it has all", lambda: m.ask("partitions")["served"] == 4096)
                assert m.ask("partitions")["lost"] == 0
                assert penstock("--url", f"pool://{m.address}", "get", "k").stdout == b"value"
    finally:
        for path in support.SHM.glob(f"penstock-*{name}*"):
            path.unlink()


def test_memory_that_was_kept(tmp_path: pathlib.Path) -> None:
    """A node that comes back with its memory says which membership's values it has; with other memory it does not."""
    names = [f"master-{os.getpid()}-{letter}" for letter in "ab"]
    identity = f"--node-id={tmp_path}/id"
    try:
        with master(tmp_path) as m:
            with member(m, identity, f"--keep={names[0]}") as node:
                node.wait_for("joined as member")
                assert "with all of" not in node.log()
                put(node, "k")
            first = int(re.findall(r"epoch (\d+)", node.log())[-1])
            with member(m, identity, f"--keep={names[0]}") as node:
                node.wait_for(f", with all of epoch {first}")
                wait_until("located", lambda: m.statuses("k") == [ROUTED])
            for other in (f"--keep={names[1]}", f"--tags={names[1]}"):
                with member(m, identity, other) as node:
                    node.wait_for("joined as member")
                    assert "with all of" not in node.log()
            with member(m, identity, f"--keep={names[0]}") as node:  # somebody else was there meanwhile
                node.wait_for("joined as member")
                assert "with all of" not in node.log()
            (tmp_path / "id").write_text("no digits\n")
            with support.Node("--listen=127.0.0.1:0", "--dram=16M", f"--master={m.address}", identity) as node:
                assert node.wait() == 2 and "does not hold 32 hexadecimal digits" in node.log()
    finally:
        for name in names:
            for path in support.SHM.glob(f"penstock-*{name}*"):
                path.unlink()


def served(node: support.Node, key: str) -> str:
    """A put that only that node is asked for: what it said."""
    said = penstock("--url", node.tcp, "--timeout", "1000", "put", key, stdin=b"value")
    return said.stderr.decode() if said.returncode else "done"


def test_keys_that_have_a_home(tmp_path: pathlib.Path) -> None:
    """Only its partition's primary serves such a key, and without a master only as long as its lease."""
    keys = [f"home/{i}" for i in range(20)]
    of_one: list[str] = []
    with master(tmp_path, "--place=home/=home", "--nodes-min=2") as m, member(m) as one, member(m) as two:
        m.has(2)

        def one_each() -> bool:
            said = {key: [served(node, key) for node in (one, two)] for key in keys}
            of_one[:] = [key for key, answers in said.items() if answers[0] == "done"]
            return all(sorted(answers)[0] == "done" and "by another table" in "".join(answers) for answers in said.values())

        wait_until("each key has one primary", one_each)
        assert 0 < len(of_one) < len(keys)
        with m.node.stopped():
            wait_until("the lease is over", lambda: "busy" in served(one, of_one[0]))
            assert served(one, "anywhere") == "done"
            assert penstock("--url", one.tcp, "ls").returncode == 0
        wait_until("there is a lease again", lambda: served(one, of_one[0]) == "done")


def test_what_no_prefix_covers_has_a_home(tmp_path: pathlib.Path) -> None:
    """So the second value of a key is its value. Where an operator says otherwise, that stays with the view."""
    with master(tmp_path, place=None) as m, member(m) as one, member(m) as two:
        m.has(2)
        pool = f"pool://{m.address}"
        for value in (b"first", b"second"):
            for key in ("a", "b", "c"):
                assert penstock("--url", pool, "put", key, stdin=value).returncode == 0
        assert [penstock("--url", pool, "get", key).stdout for key in ("a", "b", "c")] == 3 * [b"second"]
        wait_until("one node serves it", lambda: ["done" in served(node, "a") for node in (one, two)].count(True) == 1)
    with master(tmp_path, place="=anywhere") as m:
        m.node.kill()
        m.more = ()
        m.back()
        with member(m) as one, member(m) as two:
            m.has(2)
            assert [served(node, "a") for node in (one, two)] == ["done", "done"]


def test_view_that_cannot_be_stored(tmp_path: pathlib.Path) -> None:
    """Nobody is a member before the view that says so is on the disk."""
    with master(tmp_path) as m:
        before = m.ask("map")
        in_the_way = tmp_path / "view.new"
        in_the_way.mkdir()
        with member(m) as node:
            m.node.wait_for("could not be stored, and changes nothing")
            wait_until("it has asked", lambda: m.figures()["call_join"] > 1)
            assert m.ask("map") == before and "joined" not in node.log()
            in_the_way.rmdir()
            node.wait_for("joined as member")
            m.has(1)
            assert m.ask("map")["version"] > before["version"]


def test_view_is_one_masters(tmp_path: pathlib.Path) -> None:
    with master(tmp_path) as m:
        code, log = support.fails_to_start("--role=master", "--listen=127.0.0.1:0", f"--pool-map={m.map_file}")
        assert code == 1 and f"in use by process {m.node.pid}" in log, log
        m.node.stop()
    stored = m.map_file.read_bytes()
    for damaged, why in ((b"something else", "damaged, or not a pool map"), (stored[:-1], "damaged"),
                         (stored[:4] + b"\xff\x7f" + stored[6:], "format"), (b"", "not a pool map")):
        m.map_file.write_bytes(damaged)
        code, log = support.fails_to_start("--role=master", "--listen=127.0.0.1:0", f"--pool-map={m.map_file}")
        assert code == 1 and why in log, log
        assert m.map_file.read_bytes() == damaged
    code, log = support.fails_to_start("--role=master", "--listen=127.0.0.1:0")
    assert code == 2 and "set pool_map" in log
    code, log = support.fails_to_start("--role=servant", "--listen=127.0.0.1:0")
    assert code == 2 and "'servant' is none of 'master', 'store' and 'agent'" in log


def test_previous_version_is_no_master(previous: pathlib.Path) -> None:  # noqa: F811
    with subprocess.Popen([previous / "penstockd", "--listen=127.0.0.1:0", "--dram=16M"], stderr=subprocess.PIPE, text=True,
                          env=support.clean_environment()) as process:
        try:
            assert process.stderr
            address = next(line for line in process.stderr if "listening on" in line).split("on ")[1].split(",")[0]
            with start_node("--listen=127.0.0.1:0", "--dram=16M", f"--master={address}", listeners=2) as node:
                node.wait_for(f"pool: master {address}: the node speaks version {PREVIOUS}, "
                              f"this client {VERSION} to {VERSION}")
                wait_until("it is counted", lambda: figures(node.tcp)["pool"]["masters_unreached"] > 0)
        finally:
            process.kill()


def test_sockets_of_killed_members_go(tmp_path: pathlib.Path) -> None:
    """The next member removes those that nobody serves, but for new ones, whose server may just begin."""
    with tempfile.TemporaryDirectory(dir=support.SHM) as name, master(tmp_path) as m, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        for file, served, aged in (("left", False, True), ("served", True, True), ("new", False, False)):
            with contextlib.ExitStack() as own:
                server = own.enter_context(socket.socket(socket.AF_UNIX))
                server.bind(f"{folder}/penstock-member-{file}.sock")
                if served:
                    server.listen()
                    stack.enter_context(own.pop_all())
            if aged:
                os.utime(f"{folder}/penstock-member-{file}.sock", (0, 0))
        with member(m, f"--folder={folder}") as node:
            node.wait_for("joined as member")
            assert sorted(p.name for p in folder.glob("penstock-member-[a-z]*.sock")) == [
                "penstock-member-new.sock", "penstock-member-served.sock"]
            assert [path.is_socket() for path in support.own_sockets(node.pid, folder)] == [True]


def test_end_without_a_master(tmp_path: pathlib.Path) -> None:
    """A node ends although its master is stopped, gone, or never was."""
    with master(tmp_path) as m, member(m, "--shutdown-ms=300") as one, member(m, "--shutdown-ms=300") as two:
        m.has(2)
        with m.node.stopped():
            one.stop()
        m.node.kill()
        two.stop()
    with start_node("--listen=127.0.0.1:0", "--dram=16M", f"--master={m.address}", listeners=2) as node:
        node.wait_for(f"pool: master {m.address}: ")
        has_no_pool(node)
        node.stop()


def test_the_next_master(tmp_path: pathlib.Path) -> None:
    """Of several masters the one that is there is found."""
    with master(tmp_path) as m:
        with start_node("--listen=127.0.0.1:0", "--dram=16M", "--master=127.0.0.1:1", f"--master={m.address}",
                        listeners=2) as node:
            node.wait_for("joined as member")
            m.has(1)


def test_a_lease_of_the_master_before(tmp_path: pathlib.Path) -> None:
    """It may have been longer than those of this one: until it has ended nobody gets the partitions of who had it."""
    def primaries() -> list[int]:
        said = penstock("--url", f"pool://{m.address}", "node", "list", "--json")
        return [json.loads(line)["primaries"] for line in said.stdout.splitlines()]

    with master(tmp_path, "--lease-ms=6000", "--nodes-min=2", place="=home:2") as m, member(m, "--host=h1") as one, \
            member(m, "--host=h2"):
        m.has(2)
        wait_until("each has half", lambda: sum(primaries()) == 4096 and min(primaries()) > 1500)
        with one.stopped():
            m.node.kill()
            m.more = ("--place==home:2", "--nodes-min=2")
            begins = time.monotonic()
            m.back()
            wait_until("one has all", lambda: 4096 in primaries())
            assert time.monotonic() - begins >= 6


def test_blocks_of_engines(tmp_path: pathlib.Path) -> None:
    with master(tmp_path) as m, member(m) as one, member(m) as two:
        m.has(2)
        ids = [next(e["id"] for e in m.members() if e["address"].endswith(f":{n.ports()[0]}")) for n in (one, two)]
        unknown, hbm, dram = 0, 1, 2
        of_hashes, of_tier, of_node = 0, 1, 2

        def match(*hashes: str) -> dict[str, tuple[int, list[int]]]:
            return {e["id"]: (e["count"], e["tiers"]) for e in m.ask("match", *hashes)["nodes"]}

        assert m.ask("report", ids[0], hbm, 0, "a", "b")["result"] == 0
        assert m.ask("report", ids[0], dram, 0, "b", "c")["result"] == 0
        assert m.ask("report", ids[0], unknown, 0, "b", "d")["result"] == 0
        assert m.ask("report", ids[1], dram, 0, "a")["result"] == 0
        assert m.ask("report", "00" * 16, dram, 0, "a")["result"] == -errno.ESTALE
        assert match("a", "b", "c", "d") == {ids[0]: (4, [8, 3, 6, 0]), ids[1]: (1, [0, 0, 1, 0])}
        assert match("none") == {}
        assert m.ask("hits", "a", "c", "none")["hits"] == [1, 1, 0]
        assert m.ask("revoke", ids[0], hbm, of_hashes, "b", "none")["generation"] == 1
        assert match("a", "b")[ids[0]] == (2, [0, 1, 2, 0])
        assert m.ask("revoke", ids[0], dram, of_tier)["generation"] == 2
        assert match("a", "b", "c")[ids[0]] == (2, [2, 1, 0, 0])
        assert m.ask("revoke", ids[0], 0, of_node)["generation"] == 3
        assert match("a", "b", "c", "d") == {ids[1]: (1, [0, 0, 1, 0])}
        two.stop()
        wait_until("its blocks went with it", lambda: match("a") == {})
        assert m.figures()["blocks"] == 0


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__]))
