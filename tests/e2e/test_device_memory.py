# SPDX-License-Identifier: Apache-2.0
"""Device memory above the memory (`--hbm`), here the host's: what the command line and a pool's master tell of it."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest
import support
from cli import Cli
from members import master, member
from support import penstock, start_node, wait_until

LARGE = 200_000
HBM = 1


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
    with master(tmp_path) as m, member(m, "--hbm=host:8M") as node:
        m.has(1)
        wait_until("the member has told", lambda: m.figures().get("hbm_capacity_bytes") == 8 << 20)
        assert penstock("--url", node.tcp, "put", "k", stdin=bytes(LARGE)).returncode == 0
        wait_until("the key is on the device", lambda: [
            place["tier"] for place in m.ask("locate", "k")["routes"][0].get("places", [])] == [HBM])


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


@pytest.mark.parametrize("mib", [1, 2])
@pytest.mark.parametrize("flushes", [True, False])
def test_values_come_down_into_what_memory_keeps_free(tmp_path: pathlib.Path, flushes: bool, mib: int) -> None:
    """Values with an end stay in memory, here in all of it: those of the device go to the SSD through the pages that writes leave."""
    options = ["--unix", str(tmp_path / "s"), "--shards=1", "--dram=32M", "--page-size=64K", "--hbm=host:64M", f"--ssd={tmp_path}/ssd",
               "--ssd-bytes=128M", "--ssd-segment=4M"]
    values = {f"k{i}": os.urandom(mib << 20) for i in range(24)}
    url = f"node+unix://{tmp_path}/s"

    def put(key: str, value: bytes, *more: str) -> int:
        (tmp_path / "value").write_bytes(value)
        return support.penstock("--url", url, "put", *more, key, tmp_path / "value").returncode

    with start_node(*options) as node:
        assert [put(key, value) for key, value in values.items()] == [0] * len(values)
        wait_until("all are on the device", lambda: Cli(url).json("stat")["hbm_keys"] == len(values))
        filled = [put(f"t{i}", bytes(1 << 20), "--ttl=3600000") for i in range(40)]
        assert filled[0] == 0 and filled[-1] != 0, "memory is full"
        if flushes:
            Cli(url)("flush")
        node.stop()
        assert "could be written" not in node.log()
    with start_node(*options) as node:
        assert [key for key, value in values.items() if support.penstock("--url", url, "get", key).stdout != value] == []
        node.stop()
