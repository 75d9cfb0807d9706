# SPDX-License-Identifier: Apache-2.0
"""A pool's directory in shares: real processes that are killed and come back, and nodes and clients beside them."""
from __future__ import annotations

import errno
import json
import pathlib
import subprocess
import sys

import support
from directory_shares import FOUND, MISSING, UNKNOWN, SharedDirectory, shared_directory
from members import member
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
        assert penstock("--url", pool.url, "rm", *KEYS[:6]).returncode == 0
        wait_until("their end is known", lambda: pool.known() == len(KEYS) - 6)
        assert pool.get(KEYS) == {MISSING: KEYS[:6], FOUND: KEYS[6:]}


def figures_of_pool(pool: SharedDirectory) -> dict[str, int]:
    said = penstock("--url", pool.url, "stat", "--json")
    assert said.returncode == 0, said.stderr
    figures: dict[str, int] = json.loads(said.stdout)["pool"]
    return figures


def test_a_share_that_is_killed_and_returns(tmp_path: pathlib.Path) -> None:
    absent = [f"absent{i}" for i in range(12)]
    with shared_directory(tmp_path, 3) as pool:
        pool.join(3)
        pool.put(KEYS)
        lost = of_share(pool, 1, KEYS)
        others = [key for key in KEYS if key not in lost]
        port = pool.kill(1)
        assert pool.get(lost) == {UNKNOWN: lost}  # neither found nor missing
        assert pool.finds(others)
        codes = pool.get(absent)
        assert codes == {UNKNOWN: of_share(pool, 1, absent), MISSING: [a for a in absent if a not in codes[UNKNOWN]]}
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
                              text=True, env=support.clean_environment(PYTHONPATH=str(support.BUILD / "python"))) as client:
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
