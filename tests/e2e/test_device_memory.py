# SPDX-License-Identifier: Apache-2.0
"""Device memory above the memory (`--hbm`), here the host's: what the command line and a pool's master tell of it."""
from __future__ import annotations

import json
import pathlib
import subprocess

import pytest
import support
from cli import Cli
from members import master, member
from support import start_node, wait_until

LARGE = 200_000


def test_figures_tell_what_is_there(tmp_path: pathlib.Path) -> None:
    with start_node("--dram=16M", "--page-size=64K", "--hbm=host:8M", "--unix", str(tmp_path / "s")) as node:
        cli = Cli(f"node+unix://{tmp_path}/s", node)
        for i in range(5):
            cli("put", f"k{i}", stdin=bytes([i]) * LARGE)
        wait_until("all are up", lambda: cli.json("stat")["hbm_keys"] == 5)
        stat = cli.json("stat")
        assert stat["hbm_bytes"] == 5 * LARGE and stat["hbm_capacity_bytes"] == 8 << 20
        assert stat["hbm_used_bytes"] == 20 << 16 and stat["hbm_errors"] == 0
        with subprocess.Popen([support.BUILD / "penstock", "--url", cli.url, "top", "--json"], stdout=subprocess.PIPE, text=True,
                              env=support.clean_environment()) as top:
            look = json.loads(top.stdout.readline())
            top.kill()
        assert look["hbm_bytes"] == 8 << 20 and look["hbm_used_bytes"] == 20 << 16
        assert cli.json("stat")["hbm_hits"] == 0
        node.stop()


def test_a_master_knows_the_tier(tmp_path: pathlib.Path) -> None:
    with master(tmp_path) as m, member(m, "--hbm=host:8M"):
        m.has(1)
        wait_until("the member has told", lambda: m.figures().get("hbm_capacity_bytes") == 8 << 20)


@pytest.mark.parametrize(("options", "why"), [
    (["--hbm=tape:1G"], "hbm 'tape:1G' is not SIZE, DEVICE:SIZE or DEVICE:NUMBER:SIZE"),
    (["--hbm=host:64K", "--shards=2"], "hbm: 65536 bytes for 2 shards: each has a page of 64 KiB at the least"),
    (["--hbm=host:18446744073709551615", "--shards=2"],
     "hbm: 18446744073709551615 bytes for 2 shards: each has 2^32 - 64 pages of 64 KiB at the most"),
    (["--hbm=host:1:8M"], "hbm: host has one device, and its number is 0"),
    (["--hbm=host:8M", "--keep=name"], "hbm: device memory ends with the node, and keep wants values to outlive it"),
])  # fmt: skip
def test_what_cannot_be_is_refused_at_the_start(tmp_path: pathlib.Path, options: list[str], why: str) -> None:
    done = subprocess.run([support.BUILD / "penstockd", "--dram=16M", "--unix", str(tmp_path / "s"), *options], timeout=20,
                          capture_output=True, text=True, check=False, env=support.clean_environment())
    assert done.returncode != 0 and why in done.stderr
