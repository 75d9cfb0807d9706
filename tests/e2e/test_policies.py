"""What a node lets go: policies and quotas, seen from the command line."""
from __future__ import annotations

import json

import pytest
import support
from support import penstock

NO_SPACE, USAGE = 3, 2


def put(url: str, key: str, size: int, *flags: str) -> int:
    done = penstock("--url", url, "put", key, "-", *flags, stdin=b"x" * size)
    assert done.returncode in (0, NO_SPACE), done
    return done.returncode


def keys(url: str, prefix: str) -> list[str]:
    return penstock("--url", url, "ls", prefix).stdout.decode().split()


def stat(url: str) -> dict:
    return json.loads(penstock("--url", url, "stat", "--json").stdout)


@pytest.fixture(params=["1", "3"])
def node(request: pytest.FixtureRequest):
    with support.start_node("--listen", "127.0.0.1:0", "--dram", "64M", "--page-size", "64K", "--shards", request.param,
                            "--class", "kv/=cache", "--quota", "kv/small/=100K", "--quota", "tenant=a/=50K") as node:
        yield node
        node.stop()


def test_a_cache_prefix_holds_no_more_than_its_quota(node: support.Node) -> None:
    assert put(node.tcp, "kv/other", 30000) == 0
    for i in range(30):
        assert put(node.tcp, f"kv/small/{i}", 10000) == 0
    there = keys(node.tcp, "kv/small/")
    assert len(there) == 10 and "kv/small/29" in there
    assert keys(node.tcp, "kv/other") == ["kv/other"]
    assert stat(node.tcp)["evictions"] == 20
    assert stat(node.tcp)["no_space"] == 0


def test_a_keep_prefix_is_refused_more_than_its_quota(node: support.Node) -> None:
    for i in range(5):
        assert put(node.tcp, f"tenant=a/{i}", 10000) == 0
    done = penstock("--url", node.tcp, "put", "tenant=a/more", "-", stdin=b"x" * 2000)
    assert done.returncode == NO_SPACE
    assert b"keys with 'tenant=a/' may hold 51200 bytes" in done.stderr
    assert put(node.tcp, "tenant=a/4", 10000) == 0
    assert put(node.tcp, "tenant=b/1", 1000000) == 0
    assert len(keys(node.tcp, "tenant=a/")) == 5


@pytest.mark.parametrize("flags, named", [(["--quota", "x"], "quota 'x' is not PREFIX=BYTES"),
                                          (["--quota", "x=many"], "quota 'x=many'"),
                                          (["--policy", "fifo"], "policy 'fifo' is not one of s3fifo, prefix, lru")])
def test_settings_that_are_none(flags: list[str], named: str) -> None:
    assert named in support.fails_to_start("--listen", "127.0.0.1:0", "--dram", "64M", *flags)[1]
    url = "mem:?dram=64M&" + "=".join(flag.removeprefix("--") for flag in flags)
    done = penstock("--url", url, "ls")
    assert done.returncode == USAGE and b" is not " in done.stderr
