# SPDX-License-Identifier: Apache-2.0
"""The stream transport: who chooses it, its one port, and clients that break its frames or die in the middle of them."""
from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import time
from typing import Iterator

import pytest
import support
from cli import UNREACHABLE, Cli, binary
from raw_stream import RawClient
from support import penstock, start_node, wait_until

SMALL = ("--dram=64M", "--page-size=64K", "--shards=2", "--listen=127.0.0.1:0")
SIZES = (0, 1, 100, 4096, 65536, 300_000, 5_000_003)


@pytest.fixture
def place(tmp_path: pathlib.Path) -> str:
    return f"--unix={tmp_path}/socket"


@pytest.fixture
def node(place: str) -> Iterator[support.Node]:
    """One that offers the stream alone."""
    with start_node(*SMALL, place, "--transport=stream", listeners=2) as node:
        yield node


def lane(url: str, **environment: str) -> str:
    done = penstock("--url", url, "ping", environment=environment)
    assert done.returncode == 0, done
    return done.stdout.decode().rsplit(maxsplit=1)[-1]


def keys_stay(url: str) -> None:
    cli = Cli(url)
    for size in SIZES:
        cli("put", f"k{size}", stdin=binary(size))
    for size in SIZES:
        assert cli("get", f"k{size}") == binary(size)
    assert len(cli("ls").splitlines()) == len(SIZES)
    cli("clear")


def test_one_port_carries_everything(node: support.Node, place: str) -> None:
    assert support.listening_addresses(node.pid) == ["127.0.0.1"]
    local = f"node+unix://{place.partition('=')[2]}"
    assert (lane(node.tcp), lane(local)) == ("stream", "stream-unix")
    keys_stay(node.tcp)
    keys_stay(local)
    assert "UCX" not in node.log()
    node.stop()


def test_each_side_chooses(place: str) -> None:
    wishes = ("ucx", "stream", "auto")
    lanes = {"ucx": ("tcp", None, "tcp"), "stream": (None, "stream", "stream"), "auto": ("tcp", "stream", "tcp")}
    for offer in wishes:
        with start_node(*SMALL, place, f"--transport={offer}", listeners=2) as node:
            for wish, wanted in zip(wishes, lanes[offer]):
                url = f"{node.tcp}?lane=tcp&transport={wish}"
                if wanted:
                    assert lane(url) == wanted
                    assert lane(f"{node.tcp}?lane=tcp", PENSTOCK_TRANSPORT=wish) == wanted
                    assert f"over {wanted}" in Cli(f"{node.tcp}?lane=tcp")("ping", f"--transport={wish}").decode()
                else:
                    done = penstock("--url", url, "ping")
                    assert done.returncode == UNREACHABLE and b"the node does not offer" in done.stderr, done
            node.stop()
    assert "transport: 'smoke' is not 'ucx', 'stream' or 'auto'" in support.fails_to_start(*SMALL, "--transport=smoke")[1]


def test_who_has_no_ucx_that_works_uses_the_stream(place: str) -> None:
    unusable = {"UCX_TLS": "no_such_transport"}
    with start_node(*SMALL, place, listeners=2) as node:
        assert lane(node.tcp, **unusable) == "stream"
    with start_node(*SMALL, place, listeners=2, environment=unusable) as node:
        assert "UCX found no usable device: clients use the stream" in node.log()
        assert lane(node.tcp) == "stream"
        keys_stay(node.tcp)


def test_views_need_no_ucx(node: support.Node, place: str) -> None:
    cli = Cli(f"node+unix://{place.partition('=')[2]}")
    keys = ("--keys", "10", "--size", "100000", "--seconds", "1")
    cli("bench", "--op", "put", "--fill", *keys)
    assert b"lane stream-unix" in cli("bench", "--op", "view-walk", *keys)


def test_clients_that_are_killed_leave_nothing(node: support.Node) -> None:
    values = ("--size", "1M", "--keys", "20", "--batch", "8")
    Cli(node.tcp)("bench", "--op", "put", "--fill", *values)
    wait_until("the first client is gone", lambda: "session 0000 ended" in node.log())
    before = len(support.file_numbers(node.pid))
    for op in ("put", "get", "put", "get"):
        client = support.bench(node.tcp, "--op", op, *values, "--seconds", "60")
        wait_until("it is connected", lambda: len(support.file_numbers(node.pid)) >= before + 3)
        client.send_signal(signal.SIGKILL)
        client.wait(support.WAIT_S)
        wait_until("its descriptors are back", lambda: len(support.file_numbers(node.pid)) <= before)
    Cli(node.tcp)("clear")
    keys_stay(node.tcp)
    node.stop()


def test_a_client_outlives_its_node(place: str) -> None:
    with start_node(*SMALL, place, "--transport=stream", listeners=2) as node:
        port = node.ports()[0]
        code = ("import sys, penstock\n"
                "store = penstock.open(sys.argv[1], timeout=30)\n"
                "store.put('a', b'1')\n"
                "print('up', flush=True)\n"
                "sys.stdin.readline()\n"
                "print('a' in store, flush=True)\n")

        client = subprocess.Popen([sys.executable, "-c", code, node.tcp], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                  env=support.python_environment())
        assert client.stdout and client.stdout.readline() == "up\n"
        node.end(signal.SIGKILL)
    with start_node(*SMALL[:-1], f"--listen=127.0.0.1:{port}", "--transport=stream"):
        assert client.communicate("\n", support.WAIT_S)[0] == "False\n"
        assert client.returncode == 0


def test_who_takes_no_answers_leaves_room_for_others() -> None:
    """Two sessions ask for more large values than a shard answers at once, are patient, and take none."""
    with start_node("--dram=64M", "--page-size=64K", "--shards=1", "--listen=127.0.0.1:0", "--transport=stream") as node:
        cli = Cli(node.tcp)
        cli("put", "k", stdin=b"a value")
        cli("put", "large", stdin=binary(300_000))
        silent = [RawClient(node.ports()[0]) for _ in range(2)]
        for client in silent:
            client.shard.sendall(b"".join(client.get(b"large", timeout_ms=600_000) for _ in range(512)))
        wait_until("what they asked for is in flight", lambda: all(client.hears() for client in silent))
        for _ in range(20):
            assert cli("get", "k") == b"a value"
        for client in silent:
            client.close()
        node.stop()


def test_who_is_silent_gives_way_when_requests_are_scarce() -> None:
    """Sessions have all of a shard's requests and take nothing. One that takes what it asked for keeps its session."""
    with start_node("--dram=64M", "--page-size=64K", "--shards=1", "--requests=64", "--silent-ms=2000", "--listen=127.0.0.1:0",
                    "--transport=stream") as node:
        cli = Cli(node.tcp)
        cli("put", "k", stdin=b"a value")
        cli("put", "large", stdin=binary(300_000))
        assert penstock("--url", node.tcp, "bench", "--op=put", "--fill", "--keys=4", "--size=300000").returncode == 0
        with support.bench(node.tcp, "--op=get", "--keys=4", "--size=300000", "--inflight=4", "--seconds=6") as active:
            wait_until("a client is at work", lambda: cli.json("stat")["gets"] > 10)
            silent = [RawClient(node.ports()[0]) for _ in range(8)]
            for client in silent:
                client.shard.sendall(b"".join(client.get(b"large", timeout_ms=600_000) for _ in range(512)))
            wait_until("the first of them has ended", lambda: "requests are scarce" in node.log())
            wait_until("others are served", lambda: penstock("--url", node.tcp, "--timeout=200", "get", "k").stdout == b"a value")
            assert active.wait(support.WAIT_S) == 0, active.stderr.read() if active.stderr else ""
        assert node.log().count("requests are scarce") <= len(silent)
        for client in silent:
            client.close()
        wait_until("nothing is left of them", lambda: cli.json("stat")["pinned"] == 0)
        node.stop()


@pytest.mark.skipif(support.sanitized(), reason="a sanitizer wants to be the first library")
def test_who_waits_for_the_disk_is_not_silent(tmp_path: pathlib.Path) -> None:
    """All requests wait for a disk that reads nothing for a while: it is not their clients who take nothing."""
    slow = tmp_path / "slow"
    environment = {"LD_PRELOAD": support.preloadable(support.BUILD / "tests/e2e/slow_reads.so"), "SLOW_READS": str(slow)}
    with start_node("--dram=8M", "--page-size=64K", "--shards=1", "--requests=16", "--silent-ms=1000", "--listen=127.0.0.1:0",
                    "--transport=stream", f"--ssd={tmp_path}/ssd", "--ssd-bytes=64M", "--ssd-segment=2M", "--ssd-driver=posix",
                    environment=environment) as node:
        keys = ("--keys=100", "--size=300000")
        assert penstock("--url", node.tcp, "bench", "--op=put", "--fill", *keys).returncode == 0
        clients = [support.bench(node.tcp, "--op=get", *keys, "--inflight=8", "--seconds=5") for _ in range(4)]
        wait_until("clients are at work", lambda: Cli(node.tcp).json("stat")["gets"] > 50)
        slow.touch()
        time.sleep(2)
        slow.unlink()
        assert [client.wait(support.WAIT_S) for client in clients] == [0] * 4
        assert "requests are scarce" not in node.log()
        node.stop()


def test_who_waits_for_a_key_leaves_room_for_others() -> None:
    """Two sessions wait for one large value more often than a shard answers at once, and take none of it."""
    with start_node("--dram=64M", "--page-size=64K", "--shards=1", "--listen=127.0.0.1:0", "--transport=stream") as node:
        cli = Cli(node.tcp)
        cli("put", "k", stdin=b"a value")
        silent = [RawClient(node.ports()[0]) for _ in range(2)]
        for client in silent:
            client.shard.sendall(b"".join(client.get(b"large", 600_000, wait_ms=600_000) for _ in range(1000)))
        wait_until("they wait", lambda: cli.json("stat")["waits"] == 2000)
        cli("put", "large", stdin=binary(300_000))
        wait_until("they are answered", lambda: all(client.hears() for client in silent))
        for _ in range(20):
            assert cli("get", "k") == b"a value"
        for client in silent:
            client.close()
        wait_until("nothing is left of them", lambda: cli.json("stat")["pinned"] == 0)
        node.stop()
