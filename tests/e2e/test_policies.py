# SPDX-License-Identifier: Apache-2.0
"""What a node lets go: policies and quotas, seen from the command line."""
from __future__ import annotations

import json
import pathlib
import random
import time
import xml.etree.ElementTree

import pytest
import support
from support import penstock

NO_SPACE, USAGE = 3, 2

POLICIES = ("lru", "prefix", "s3fifo", "chains")


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


@pytest.mark.parametrize("flags, named", [(["--quota", "x"], "quota 'x' is not PREFIX=NUMBER"),
                                          (["--quota", "x=many"], "quota 'x=many'"),
                                          (["--policy", "fifo"], "policy 'fifo' is not one of chains, s3fifo, prefix, lru")])
def test_settings_that_are_none(flags: list[str], named: str) -> None:
    assert named in support.fails_to_start("--listen", "127.0.0.1:0", "--dram", "64M", *flags)[1]
    url = "mem:?dram=64M&" + "=".join(flag.removeprefix("--") for flag in flags)
    done = penstock("--url", url, "ls")
    assert done.returncode == USAGE and b" is not " in done.stderr


def get(url: str, key: str) -> bytes | None:
    done = penstock("--url", url, "get", key)
    assert done.returncode in (0, 1), done
    return done.stdout if done.returncode == 0 else None


def test_a_value_ends(tmp_path: pathlib.Path) -> None:
    value = tmp_path / "value"
    value.write_bytes(b"y" * 100000)
    with support.start_node("--listen", "127.0.0.1:0", "--dram", "64M", "--shards", "2", "--ttl", "t/=1000") as node:
        assert put(node.tcp, "long", 100, "--ttl", "3600000") == 0
        begin = time.monotonic()
        for key in ("s1", "s2", "s3"):
            assert put(node.tcp, key, 5000, "--ttl", "1000") == 0
            assert penstock("--url", node.tcp, "put", key + "file", str(value), "--ttl", "1000").returncode == 0
            assert put(node.tcp, "t/" + key, 10) == 0
        there = get(node.tcp, "s1file")
        assert there == b"y" * 100000 or time.monotonic() - begin > 1
        support.wait_until("nine keys are gone", lambda: stat(node.tcp)["keys"] == 1)
        assert time.monotonic() - begin > 0.9
        assert keys(node.tcp, "") == ["long"] and get(node.tcp, "s1") is None
        assert get(node.tcp, "long") == b"x" * 100
        node.stop()


@pytest.mark.parametrize("ttl", ["0", "soon", "-1", "1s"])
def test_a_ttl_that_is_none(ttl: str) -> None:
    done = penstock("--url", "mem:?dram=64M", "put", "k", "-", f"--ttl={ttl}")
    assert done.returncode == USAGE and b"ttl" in done.stderr


# ---- penstock replay ----


def write_trace(path: pathlib.Path, requests: list[list[int]]) -> str:
    path.write_text("".join(json.dumps({"timestamp": i, "input_length": 512 * len(pages), "hash_ids": pages}) + "\n"
                            for i, pages in enumerate(requests)))
    return str(path)


def conversations(turns: int) -> list[list[int]]:
    """Chains that share a beginning and grow from turn to turn, among some that never come again."""
    source = random.Random(7)
    talks: list[list[int]] = []
    requests, fresh = [], 1000
    for _ in range(turns):
        if not talks or source.random() < 0.5:
            talks.append([0, 1, 2] if source.random() < 0.8 else [])
        chain = source.choice(talks[-40:])
        chain += range(fresh, fresh + source.randint(1, 12))
        fresh += 12
        requests.append(list(chain))
    return requests


def by_lru(requests: list[list[int]], capacity: int) -> int:
    """Hits by prefix in a cache of so many pages, of which the longest unused goes."""
    cache: dict[int, None] = {}
    hits = 0
    for pages in requests:
        missing = next((i for i, page in enumerate(pages) if page not in cache), len(pages))
        hits += missing
        for page in pages:
            if page in cache:
                del cache[page]
            elif len(cache) == capacity:
                del cache[next(iter(cache))]
            cache[page] = None
    return hits


def replay(*arguments: str, code: int = 0) -> dict:
    done = penstock("replay", *arguments, "--json")
    assert done.returncode == code, done
    return json.loads(done.stdout) if code == 0 else {"error": done.stderr.decode()}


def test_a_replay_hits_what_a_model_does(tmp_path: pathlib.Path) -> None:
    requests = conversations(400)
    trace = write_trace(tmp_path / "trace.jsonl", requests)
    unique = len({page for pages in requests for page in pages})
    told = replay(trace, "--policy", ",".join(POLICIES), "--capacity", "10%,300,100%", "--belady")
    assert (told["requests"], told["unique"]) == (400, unique)
    assert told["pages"] == sum(map(len, requests))
    runs = {(run["policy"], run["capacity_pages"]): run for run in told["runs"]}
    for capacity in (unique // 10, 300, unique):
        assert runs["lru", capacity]["hits"] == by_lru(requests, capacity)
        for policy in POLICIES:
            run = runs[policy, capacity]
            assert run["hit_rate"] <= run["hit_rate_optimum"] <= told["hit_rate_max"]
            assert run["refused"] == 0
            assert run["read_bytes"] == 4096 * run["hits"]
            # What was written is there or was evicted.
            assert 0 <= run["written_bytes"] // 4096 - run["evictions"] <= capacity
    for policy in POLICIES:
        assert runs[policy, unique]["hit_rate"] == told["hit_rate_max"] == runs[policy, unique]["hit_rate_optimum"]
        assert runs[policy, unique]["evictions"] == 0


def test_the_optimum_is_one(tmp_path: pathlib.Path) -> None:
    """Two pages of room: who knows the future keeps 1 and 2, or 7 and 8, and never what comes once."""
    requests = [[1, 2], [3, 4], [1, 2], [5, 6], [1, 2], [7, 8], [7, 8], [1, 2]]
    trace = write_trace(tmp_path / "trace.jsonl", requests)
    run = replay(trace, "--policy", "lru", "--capacity", "2", "--belady")["runs"][0]
    assert run["hits"] == 2
    assert round(run["hit_rate_optimum"] * 16) == 6  # 1 and 2 twice, then 7 and 8 in their place, or they once more


def test_a_replay_against_a_node(node: support.Node, tmp_path: pathlib.Path) -> None:
    requests = conversations(60)
    trace = write_trace(tmp_path / "trace.jsonl", requests)
    assert put(node.tcp, "mine", 100) == 0
    told = replay(trace, "--url", node.tcp, "--page-size", "10K")
    assert told["runs"][0]["hit_rate"] == told["hit_rate_max"]  # all of it fits
    assert told["runs"][0]["written_bytes"] == told["unique"] * 10240
    assert keys(node.tcp, "") == ["mine"]
    assert "mem:" in replay(trace, "--url", node.tcp, "--belady", code=USAGE)["error"]


def test_clients_share_a_replay(node: support.Node, tmp_path: pathlib.Path) -> None:
    """Each request is one client's, so what is written in all is what one alone writes."""
    trace = write_trace(tmp_path / "trace.jsonl", [[i, i + 1, i + 2] for i in range(0, 1500, 3)])
    told = replay(trace, "--url", node.tcp, "--page-size", "1K", "--clients", "4")
    assert told["runs"][0]["written_bytes"] == 1500 * 1024 and told["runs"][0]["hits"] == 0
    assert "clients" in replay(trace, "--clients", "2", code=USAGE)["error"]


def test_a_replay_tells_the_tiers_apart(tmp_path: pathlib.Path) -> None:
    trace = write_trace(tmp_path / "trace.jsonl", conversations(400))
    small = ["--url", "mem:?page_size=64K", "--page-size", "16K", "--capacity", "400,10000"]
    alone = replay(trace, *small)["runs"]
    assert all(run["hit_rate_memory"] == run["hit_rate"] > run["hit_rate_ssd"] == 0 for run in alone)
    runs = replay(trace, *small, "--belady", "--ssd", str(tmp_path / "ssd"), "--ssd-capacity", "2000")["runs"]
    little, much = runs
    for run in runs:
        assert abs(run["hit_rate_memory"] + run["hit_rate_ssd"] - run["hit_rate"]) < 2e-6
        assert run["hit_rate"] <= run["hit_rate_optimum"]
        assert run["memory_pages"] + run["ssd_pages"] == run["written_bytes"] // 16384 - run["evictions"]
    assert little["hit_rate_ssd"] > 0 and little["hit_rate"] > alone[0]["hit_rate"]
    assert 0 < little["memory_pages"] <= 400 and 0 < little["ssd_pages"] <= 2000
    assert little["ssd_appended_bytes"] > 0 and 1 <= little["write_amplification"] <= 1.2
    assert much["hit_rate_ssd"] == much["ssd_pages"] == much["write_amplification"] == 0  # all of it fits into memory


def test_a_replay_tells_the_tiers_of_a_node_apart(tmp_path: pathlib.Path) -> None:
    trace = write_trace(tmp_path / "trace.jsonl", conversations(200))
    with support.start_node("--listen", "127.0.0.1:0", "--dram", "16M", "--page-size", "64K", "--ssd", str(tmp_path / "ssd"),
                            "--ssd-bytes", "256M", "--ssd-segment", "4M") as node:
        told = replay(trace, "--url", node.tcp, "--page-size", "32K")
        node.stop()
    run = told["runs"][0]
    assert run["hit_rate"] == told["hit_rate_max"]  # nothing may be evicted
    assert run["hit_rate_ssd"] > 0 and abs(run["hit_rate_memory"] + run["hit_rate_ssd"] - run["hit_rate"]) < 2e-6
    assert run["ssd_pages"] > 0 and run["memory_pages"] + run["ssd_pages"] == told["unique"]


def test_a_plot_has_a_curve_for_each_policy(tmp_path: pathlib.Path) -> None:
    trace = write_trace(tmp_path / "trace.jsonl", conversations(100))
    replay(trace, "--policy", "lru,chains", "--belady", "--plot", str(tmp_path / "plot.svg"))
    root = xml.etree.ElementTree.parse(tmp_path / "plot.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert {"lru", "chains", "optimum"} <= {text.text for text in root.iter(space + "text")}
    assert len(list(root.iter(space + "circle"))) == 3 * 4


GOOD = '{"hash_ids": [1, 2]}'


@pytest.mark.parametrize("text, why", [
    ("", "line 0: no request names a page"),
    ("\n\n", "line 2: no request names a page"),
    (f"{GOOD}\n[1, 2]\n", "line 2: no JSON object"),
    (f"{GOOD}\n\n{{}}\n", "line 3: no hash_ids"),
    (f"{GOOD} {GOOD}\n", "line 1: more than one object"),
    (f"{GOOD}\n{GOOD[:-1]}\n", "line 2: ',' or '}' was to come"),
    ('{"hash_ids": [1, -2]}', "line 1: a hash id that is no whole number"),
    ('{"hash_ids": [1, 2.5]}', "line 1: hash_ids: ',' or ']' was to come"),
    ('{"hash_ids": ["a"]}', "line 1: a hash id that is no whole number"),
    ('{"hash_ids": [18446744073709551616]}', "line 1: a hash id beyond 64 bits"),
    ('{"hash_ids": 5}', "line 1: hash_ids is no array"),
    ('{"hash_ids": [1], "hash_ids": [2]}', "line 1: hash_ids twice"),
    ('{"x": "no end}', "line 1: a string without an end"),
    ('{"x": ' + "[" * 17, "line 1: nested too deeply"),
    ('{"x": what, "hash_ids": [1]}', "line 1: no JSON value"),
    ('{"x" 1, "hash_ids": [1]}', "line 1: ':' was to come"),
    ('{"hash_ids": [LONG]}', "line 1: more than 65534 pages in one request"),
])
def test_a_malformed_trace_is_named(text: str, why: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text.replace("LONG", "1," * 65534 + "1"))
    assert f"trace.jsonl: {why}\n" in replay(str(path), code=USAGE)["error"]


def test_what_else_a_line_holds_is_skipped(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('\r\n {"a": "\\"}]", "b": {"hash_ids": [[], {"c": null}]}, "hash_ids" : [ 7 , 18446744073709551615 ],'
                    ' "d": -1.5e3, "e": [true, false]} \r\n{"hash_ids": []}\n{"hash_ids":[7]}')
    told = replay(str(path), "--capacity", "2")
    assert (told["requests"], told["pages"], told["unique"]) == (3, 3, 2)
    assert told["runs"][0]["hits"] == 1


@pytest.mark.parametrize("arguments, why", [(["/nonexistent"], "No such file"), (["/tmp"], "not a regular file"),
                                            (["TRACE", "--capacity", "0"], "capacity: '0'"),
                                            (["TRACE", "--capacity", "101%"], "capacity: '101%'"),
                                            (["TRACE", "--capacity", ","], "capacity: ''"),
                                            (["TRACE", "--ssd", "/x", "--ssd-capacity", "0"], "ssd_capacity: '0'"),
                                            (["TRACE", "--ssd", "/dev/null", "--capacity", "10000"], "/dev/null"),
                                            (["TRACE", "--policy", "fifo"], "policy 'fifo' is not one of chains, s3fifo")])
def test_arguments_that_make_no_replay(arguments: list[str], why: str, tmp_path: pathlib.Path) -> None:
    path = write_trace(tmp_path / "trace.jsonl", [[1, 2, 3]])
    assert why in replay(*[path if argument == "TRACE" else argument for argument in arguments], code=USAGE)["error"]
