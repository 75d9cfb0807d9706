# SPDX-License-Identifier: Apache-2.0
"""A pool's directory in shares: real processes that are killed and come back, and nodes and clients beside them."""
from __future__ import annotations

import contextlib
import errno
import json
import pathlib
import subprocess
import sys

import support
from directory_shares import (FOUND, MISSING, PUT, UNKNOWN, SharedDirectory, client, run_python, shared_directory,
                              value_of)
from etcd import etcd
from masters import Masters
from members import TIMES, figures, member
from support import fails_to_start, penstock, wait_until

KEYS = [f"key{i}" for i in range(24)]


def of_share(pool: SharedDirectory, share: int, keys: list[str]) -> list[str]:
    return [key for key, its in zip(keys, pool.share_of(*keys)) if its == share]


def test_each_share_has_its_keys_alone(tmp_path: pathlib.Path) -> None:
    with shared_directory(tmp_path, 3) as pool:
        pool.join(3)
        pool.put(KEYS)
        wait_until("all are known", lambda: pool.known() == len(KEYS))
        for share in pool.all_shares():
            said = pool.figures(share)
            assert said["keys"] == len(of_share(pool, share, KEYS)) > 0
            assert (said["directory_shard"], said["directory_shards"]) == (share, 3) and said["leads"] == (share == 0)
        assert pool.finds(KEYS)
        assert pool.get(["absent1", "absent2", "absent3", "absent4"]) == {MISSING: ["absent1", "absent2", "absent3", "absent4"]}
        total = figures_of_pool(pool)
        assert total["keys"] == len(KEYS) and total["members"] == 3 and total["leads"] == 1
        assert total["directory_shards_silent"] == 0
        assert penstock("--url", pool.url, "rm", *KEYS[:6]).returncode == 0
        wait_until("their end is known", lambda: pool.known() == len(KEYS) - 6)
        assert pool.get(KEYS) == {MISSING: KEYS[:6], FOUND: KEYS[6:]}


def figures_of_pool(pool: SharedDirectory) -> dict[str, int]:
    said = penstock("--url", pool.url, "stat", "--json")
    assert said.returncode == 0, said.stderr
    figures: dict[str, int] = json.loads(said.stdout)["pool"]
    return figures


def test_a_share_that_is_killed_and_returns(tmp_path: pathlib.Path) -> None:
    absent = [f"absent{i}" for i in range(60)]
    with shared_directory(tmp_path, 3) as pool:
        pool.join(3)
        pool.put(KEYS)
        lost, unknown = of_share(pool, 1, KEYS), of_share(pool, 1, absent)
        others = [key for key in KEYS if key not in lost]
        port = pool.kill(1)
        assert pool.get(lost) == {UNKNOWN: lost}  # neither found nor missing
        assert figures_of_pool(pool)["directory_shards_silent"] == 1
        assert pool.finds(others)
        assert pool.get(absent) == {UNKNOWN: unknown, MISSING: [key for key in absent if key not in unknown]}
        more = [f"more{i}" for i in range(12)]
        pool.put(more)  # those of the share that is away, too
        assert pool.finds([key for key in more if key not in of_share(pool, 1, more)])
        pool.back(1, port)
        wait_until("its keys are found again", lambda: pool.finds(lost))
        wait_until("nothing is unknown", lambda: pool.get(absent) == {MISSING: absent})
        assert pool.finds(KEYS + more)
        pool.kill(2)
        pool.back(2)  # at another port: it waits until the one before is given up
        wait_until("the other's keys are found", lambda: pool.finds(KEYS + more))


def test_the_master_ends_and_shares_go_on(tmp_path: pathlib.Path) -> None:
    with shared_directory(tmp_path, 2) as pool:
        pool.join(2)
        pool.put(KEYS)
        mine = of_share(pool, 1, KEYS)
        wait_until("all are known", lambda: pool.known() == len(KEYS))
        with subprocess.Popen([sys.executable, "-c", OPEN_CLIENT, pool.url, *mine], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, env=support.python_environment()) as client:
            assert client.stdin and client.stdout
            assert client.stdout.readline() == "open\n"
            pool.master.node.kill()
            client.stdin.write("\n")
            client.stdin.flush()
            assert client.stdout.readline() == f"{len(mine)} found\n"
        pool.master.back()
        wait_until("all are found", lambda: pool.finds(KEYS))
        assert pool.figures(1)["syncs"] == 2, "the share knew its keys all along"


OPEN_CLIENT = """
import sys, penstock
store = penstock.open(sys.argv[1])
print("open", flush=True)
sys.stdin.readline()
print(sum(store.get(key) is not None for key in sys.argv[2:]), "found", flush=True)
"""


def test_a_replaced_process_stands_by(tmp_path: pathlib.Path) -> None:
    with shared_directory(tmp_path, 2) as pool:
        pool.join(1)
        pool.put(KEYS)
        with pool.shares[1].stopped():
            second = pool.share(1)
            with second:
                before = pool.shares[1]
                pool.shares[1] = second
                wait_until("another one has its share", lambda: pool.finds(KEYS))
                pool.shares[1] = before
        wait_until("it is the only one again", lambda: pool.finds(KEYS))


def test_copies_and_drains(tmp_path: pathlib.Path) -> None:
    with shared_directory(tmp_path, 3, "--repair-again-ms=200", place="=anywhere:2") as pool:
        pool.join(3)
        pool.put(KEYS)
        wait_until("each has two copies", lambda: pool.known() == 2 * len(KEYS))
        pool.nodes[0].kill()
        wait_until("each has two copies again", lambda: pool.known() == 2 * len(KEYS) and pool.has_all(1))
        pool.join(1)
        said = penstock("--url", pool.url, "node", "drain", pool.master.members()[0]["id"], "--wait")
        assert said.returncode == 0, said.stderr
        assert pool.finds(KEYS)


BLOCKS = """
import sys, penstock
store = penstock.open(sys.argv[1])
node, other = (member.id for member in store.nodes())
names = [f"block{i}" for i in range(600)]
assert store.report_blocks(node, 1, names) == 0 and store.report_blocks(other, 2, names[::3]) == 0
found = {who: (count, tiers) for who, _, count, tiers in store.match_blocks(names + ["nobody's"], hit=True)}
assert found[node] == (600, bytes([2] * 600 + [0])), found[node][0]
assert found[other] == (200, bytes([4, 0, 0] * 200 + [0])), found[other][0]
assert store.block_hits(names + ["nobody's"]) == [1] * 600 + [0]
store.revoke_blocks(node, 1, names[:100])
assert {who: count for who, _, count, _ in store.match_blocks(names)} == {node: 500, other: 200}
store.revoke_blocks(node, 1)
assert [who for who, *_ in store.match_blocks(names)] == [other]
print("right")
"""


def test_what_engines_hold(tmp_path: pathlib.Path) -> None:
    with shared_directory(tmp_path, 3) as pool:
        pool.join(2)
        assert run_python(BLOCKS, pool.url) == "right\n"
        assert all(pool.figures(share)["block_matches"] > 0 for share in pool.all_shares())
        assert figures_of_pool(pool)["blocks"] == 200
        ended = pool.nodes.pop()
        ended.stop()  # in order: what it held goes with it, at each share
        wait_until("one node's are left", lambda: figures_of_pool(pool)["blocks"] in (0, 200) and pool.has_all(1))


def test_masters_that_share_an_etcd(tmp_path: pathlib.Path) -> None:
    """Who has a share follows whoever leads."""
    with etcd() as e, Masters(e, 2, "--directory-shards=2", place="=anywhere") as masters:
        addresses = [f"--master={address}" for address in masters.addresses]
        with contextlib.ExitStack() as stack:
            share = stack.enter_context(support.start_node("--role=master", "--listen=127.0.0.1:0", "--shards=2",
                                                           "--directory-shard=1", *addresses, *TIMES))
            for _ in range(2):
                stack.enter_context(support.start_node("--listen=127.0.0.1:0", "--dram=64M", "--shards=2", *addresses, listeners=2))
            url = f"pool://{masters.address}"
            keys = [f"{i}" for i in range(16)]
            values = [value_of(key) for key in keys]
            assert client(url, "put", keys) == [PUT] * 16
            wait_until("all are found first", lambda: client(url, "get", keys) == values)
            masters.nodes[masters.leader()].kill()
            masters.leader()
            wait_until("all are found", lambda: client(url, "get", keys) == values)
            share_url = f"node://127.0.0.1:{share.ports()[0]}"
            wait_until("the share has followed", lambda: figures(share_url)["pool"]["term"] == 2)
            wait_until("nodes have told it of keys", lambda: figures(share_url)["pool"]["keys"] > 0)


def test_a_pool_that_begins_anew(tmp_path: pathlib.Path) -> None:
    """With another number of shares, and as another pool: who has a share follows."""
    with shared_directory(tmp_path, 2) as pool:
        pool.join(1)
        pool.put(KEYS)
        pool.master.node.kill()
        pool.master.more = (*pool.master.more, "--directory-shards=3")  # the last one counts
        pool.master.back()
        pool.back(2)
        wait_until("three shares have them", lambda: pool.finds(KEYS) and all(pool.has_all(s) for s in pool.all_shares()))
        assert [pool.figures(share)["keys"] for share in pool.all_shares()] == [len(of_share(pool, s, KEYS)) for s in range(3)]
        pool.nodes.pop().kill()
        pool.master.node.kill()
        pool.master.map_file.unlink()
        pool.master.back()
        pool.join(1)  # another pool's, and none of the values
        wait_until("all are known to be missing", lambda: pool.get(KEYS) == {MISSING: KEYS})


def test_with_a_secret(tmp_path: pathlib.Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of this pool")
    secret.chmod(0o600)
    with shared_directory(tmp_path, 2, secret=str(secret)) as pool:
        pool.nodes.append(member(pool.master, *pool.secrets))
        pool.put(KEYS)
        wait_until("all are found", lambda: pool.finds(KEYS))


def test_what_is_refused(tmp_path: pathlib.Path) -> None:
    with shared_directory(tmp_path, 2) as pool:
        ask = pool.master.ask
        assert ask("share", 0, 7, "a:1")["result"] == -errno.EINVAL
        assert ask("share", 2, 7, "a:1")["result"] == -errno.EINVAL
        assert ask("share", 200, 7, "a:1")["result"] == -errno.EINVAL
        assert ask("share", 1, 7, "a\x1b:1")["result"] == -errno.EINVAL
        wait_until("it has it", lambda: ask("share", 1, 7, "a:1")["result"] == -errno.EEXIST)
        keys = [*of_share(pool, 0, KEYS)[:1], *of_share(pool, 1, KEYS)[:1]]
        assert ask("locate", keys[0])["result"] == 0 and ask("locate", *keys)["result"] == -errno.ENXIO
        assert ask("place", 10, keys[1])["result"] == -errno.ENXIO
        assert ask("match", keys[1])["result"] == -errno.ENXIO
    code, log = fails_to_start("--role=master", "--listen=127.0.0.1:0", "--directory-shard=1")
    assert code == 2 and "set master" in log
    code, log = fails_to_start("--role=master", "--listen=127.0.0.1:0", "--directory-shard=1", "--master=127.0.0.1:1",
                               f"--pool-map={tmp_path}/other")
    assert code == 2 and "pool map" in log
    code, log = fails_to_start("--listen=127.0.0.1:0", "--directory-shard=1", "--master=127.0.0.1:1")
    assert code == 2 and "role=master" in log
    with support.Node("--role=master", f"--unix={tmp_path}/socket", "--directory-shard=1", "--master=127.0.0.1:1") as node:
        assert node.wait() == 2 and "set advertise" in node.log()  # nobody else would reach it


def test_another_pool_where_a_share_was(tmp_path: pathlib.Path) -> None:
    """Its share, which knows none of the keys, is not believed."""
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    with shared_directory(tmp_path / "one", 2) as pool, shared_directory(tmp_path / "other", 2) as other:
        pool.join(1)
        other.join(1)
        pool.put(KEYS)
        lost = of_share(pool, 1, KEYS)
        port = pool.kill(1)
        other.kill(1)
        other.back(1, port)
        wait_until("the other pool's share is there", lambda: other.get(lost) == {MISSING: lost})
        assert pool.get(lost) == {UNKNOWN: lost}
