# SPDX-License-Identifier: Apache-2.0
"""What lists, and what deletes many keys, while the only node that has some of them is silent."""
from __future__ import annotations

import os
import pathlib
import signal
from typing import Any

from home_pool import pool
from members import master, member
from support import penstock, wait_until

KEYS = [f"m/{i:02}" for i in range(60)]


def test_keys_of_a_silent_node_are_not_left_out(tmp_path: pathlib.Path) -> None:
    """Whatever is listed is all of it, or nothing is; what is to be deleted is gone, or that is told to have failed."""
    with pool(tmp_path, 1, "--incomplete-ms=60000") as p:
        for key in KEYS:
            p.put(key, key.encode())
        at = p.holder(KEYS[0], 0)

        def said(*command: str) -> Any:
            return penstock("--url", p.url, "--timeout", "1000", *command)

        os.kill(p.nodes[at].pid, signal.SIGSTOP)
        try:
            wait_until("its partitions are served no more", lambda: p.master.ask("partitions")["served"] < 4096)
            for _ in range(3):
                listed = said("ls", "m/")
                assert listed.returncode == 5 and b"of the 4096 partitions are away" in listed.stderr, listed
            assert said("ls", "m/00").returncode == 5
            assert said("rm", "--prefix", "m/3").returncode == 5
        finally:
            os.kill(p.nodes[at].pid, signal.SIGCONT)
        p.settled(3)
        left = said("ls", "m/").stdout.decode().split()
        assert set(KEYS) - set(left) <= {key for key in KEYS if key.startswith("m/3")}
        assert said("rm", "--prefix", "m/3").returncode == 0
        assert said("ls", "m/").stdout.decode().split() == [key for key in KEYS if not key.startswith("m/3")]


def test_keys_without_a_home_need_no_partitions(tmp_path: pathlib.Path) -> None:
    with (master(tmp_path, "--place=c/=anywhere", "--nodes-min=3", "--incomplete-ms=60000", place="=home:1") as m,
          member(m, "--host=h0"), member(m, "--host=h1"), member(m, "--host=h2") as gone):
        wait_until("all is served", lambda: m.ask("partitions")["served"] == 4096)

        def said(*command: str) -> Any:
            return penstock("--url", f"pool://{m.address}", "--timeout", "2000", *command, stdin=b"x")

        assert all(said("put", f"c/{i:02}").returncode == 0 for i in range(20))
        gone.kill()
        wait_until("its partitions are served no more", lambda: m.ask("partitions")["served"] < 4096)
        wait_until("it is a member no more", lambda: len(m.members()) == 2)
        assert [said("ls", prefix).returncode for prefix in ("c/", "c/0", "d/", "")] == [0, 0, 5, 5]
        assert [said("rm", "--prefix", prefix).returncode for prefix in ("c/1", "c")] == [0, 5]
