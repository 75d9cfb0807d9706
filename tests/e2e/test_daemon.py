# SPDX-License-Identifier: Apache-2.0
"""penstockd: settings, who may connect, what it survives, what it leaves behind."""
from __future__ import annotations

import json
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import time

import procs
import pytest
import support
from support import Node, fails_to_start, penstock, start_node

USAGE = 2
SMALL = ("--dram", "16M")
LOOPBACK = ("--listen", "127.0.0.1:0")


def figures(url: str) -> dict:
    done = penstock("--url", url, "stat", "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def lives(node: Node) -> None:
    assert node.process.poll() is None, node.log()
    assert penstock("--url", node.tcp, "ping").returncode == 0, node.log()


# ---- settings


def test_help_lists_every_option() -> None:
    text = support.daemon_says("--help")
    for name in ("listen", "unix", "dram", "page-size", "arena-size", "shards", "class", "watermark", "secret-file",
                 "fabric", "devices", "folder", "sessions", "requests", "spin-us", "config", "help", "version"):
        assert f"  --{name} " in text, name
    assert "PENSTOCK_NAME" in text and "SIGUSR1" in text
    text = support.daemon_says("--version")
    assert re.fullmatch(r"penstockd \d+\.\d+\.\d+\n", text)


def test_precedence(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"# a comment\n\nlisten = 127.0.0.1:0\nunix={tmp_path}/file\n  shards = 3 # behind it too\n"
                      "dram = 32M\nwatermark = 50\npage-size = 64K\n")
    environment = {"PENSTOCK_WATERMARK": "60", "PENSTOCK_DRAM": "48M", "PENSTOCK_UNIX": f"{tmp_path}/environment"}
    with start_node("--config", str(config), "--dram=64M", "--unix", f"{tmp_path}/flag", listeners=2,
                    environment=environment) as node:
        settings = dict(word.split("=", 1) for word in node.lines[0].split("settings: ")[1].split())
        assert settings["dram"] == str(64 << 20)  # flag over environment over file
        assert settings["watermark"] == "60"  # environment over file
        assert settings["shards"] == "3" and settings["page_size"] == "65536"  # file over default
        assert settings["sessions"] == "1024"  # default
        assert settings["unix"] == f"{tmp_path}/flag"
        told = figures(f"node+unix://{tmp_path}/flag")
        assert told["shards"] == 3 and told["page_bytes"] == 65536 and told["pages"] == 1024
        assert not (tmp_path / "file").exists() and not (tmp_path / "environment").exists()
        node.stop()
    with start_node(environment={"PENSTOCK_CONFIG": str(config)}, listeners=2) as node:
        assert figures(f"node+unix://{tmp_path}/file")["pages"] == 512
        node.stop()


def test_variables_of_umbp(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "config"
    config.write_text("watermark = 50\n")
    umbp = {"UMBP_DRAM_CAPACITY": str(48 << 20), "UMBP_DRAM_HIGH_WM": "0.900000"}
    for file, ours, dram, watermark in (
            ([], {}, 48 << 20, 90),
            (["--config", str(config)], {"PENSTOCK_DRAM": "32M"}, 32 << 20, 50)):
        with start_node(*LOOPBACK, *file, environment=umbp | ours) as node:
            assert f" dram={dram} " in node.lines[0] and f" watermark={watermark} " in node.lines[0]
            node.stop()
    code, log = fails_to_start(*LOOPBACK, environment={"UMBP_DRAM_HIGH_WM": "high"})
    assert code == USAGE and "UMBP_DRAM_HIGH_WM: 'high'" in log
    page = (pathlib.Path(__file__).parents[2] / "docs" / "reference" / "environment.md").read_text()
    assert "| `PENSTOCK_WATERMARK` | `UMBP_DRAM_HIGH_WM` times 100 |" in page


def test_lists_come_from_one_source(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "config"
    config.write_text("listen = 127.0.0.1:0\nlisten = 127.0.0.1:0\ndram = 16M\nclass = f/=cache\nclass = g/=cache\n"
                      f"unix = {tmp_path}/socket\n")
    by_file, by_environment = ["--config", str(config)], {"PENSTOCK_CLASS": "e/=cache"}
    for arguments, environment, listeners, cached in (
            ([], {}, 3, "fg"),
            ([], by_environment, 3, "e"),
            (["--class", "a/=cache", "--class=b/=cache"], by_environment, 3, "ab"),
            (["--class="], by_environment, 3, ""),
            (["--listen", "127.0.0.1:0"], {}, 2, "fg"),
            ([], {"PENSTOCK_LISTEN": ""}, 1, "fg")):
        with start_node(*by_file, *arguments, environment=environment, listeners=listeners) as node:
            assert node.log().count("listening on ") == listeners, node.log()
            url = f"node+unix://{tmp_path}/socket"
            for name in "abefg":
                assert penstock("--url", url, "put", f"{name}/", stdin=b"x").returncode == 0
            rows = [json.loads(line) for line in penstock("--url", url, "ls", "--json").stdout.splitlines()]
            assert [row["key"][0] for row in rows if row["class"] == "cache"] == list(cached)
            node.stop()


@pytest.mark.parametrize("arguments,words", [
    (["--colour", "red"], "unknown option '--colour'"),
    (["--dram"], "'--dram'"),
    (["fast"], "'fast'"),
    (["--dram", "lots"], "dram: 'lots' is not a size"),
    (["--dram", "1K"], "dram: 1K is outside"),
    (["--dram", "-5"], "dram: '-5'"),
    (["--dram", "99999999999999999999"], "dram"),
    (["--page-size", "3"], "page_size: 3 is outside"),
    (["--page-size", "65537"], "page"),
    (["--shards", "257"], "shards: 257 is outside"),
    (["--shards", "2K"], "shards: '2K' is not a number"),
    (["--watermark", "101"], "watermark: 101"),
    (["--class", "prefix"], "'prefix' is not PREFIX=cache"),
    (["--class", "p=gold"], "'p=gold'"),
    (["--fabric", "open"], "'open' is not 'trusted'"),
    (["--config", "/nowhere"], "/nowhere"),
])
def test_bad_settings(arguments: list[str], words: str) -> None:
    code, log = fails_to_start(*LOOPBACK, *arguments)
    assert code == USAGE and words in log, (code, log)


@pytest.mark.parametrize("arguments,words", [
    (["--listen", "here"], "listen here: server address must be host:port"),
    (["--listen", "127.0.0.1:http"], "listen 127.0.0.1:http: invalid port number"),
    (["--unix", "/" + 120 * "x"], "unix path too long"),
    (["--unix", "folder/socket"], "unix path must be /PATH or unix:///PATH"),
])
def test_bad_addresses(arguments: list[str], words: str) -> None:
    code, log = fails_to_start(*SMALL, *arguments)
    assert code == USAGE and words in log, (code, log)


@pytest.mark.parametrize("arguments,words", [
    (["--role=master", "--umbp-keys=5000"], "umbp_keys: it belongs to umbp, which is not set"),
    (["--s3-credentials=/none"], "s3_credentials: it belongs to s3, which is not set"),
    (["--http-token-file=/none"], "http_token_file: it belongs to http, which is not set"),
    (["--follow-prefix=x"], "follow_prefix: it belongs to follow, which is not set"),
    (["--tls-key=/none"], "tls_certificate and tls_key go together"),
    (["--place==anywhere"], "place: only role=master takes it"),
    (["--pool-map=/none"], "pool_map: only role=master takes it"),
    (["--umbp=127.0.0.1:0"], "umbp: only role=master takes it"),
    (["--data=/none"], "data: only role=store takes it"),
    (["--token-file=/none"], "token_file: a node does not take it"),
    (["--agent-network"], "agent_network: only role=agent takes it"),
    (["--role=store", "--data=/none"], "listen: a data store does not take it"),
    (["--ssd-bytes=1G"], "ssd_bytes: it belongs to ssd, which is not set"),
    (["--ssd=/none"], "ssd_bytes: not set: how much ssd '/none' may take"),
    (["--tags=x"], "tags: it belongs to master, which is not set"),
    (["--role=master", "--node-id=x"], "node_id: it belongs to master, which is not set"),
    (["--master=127.0.0.1:1", "--tsgrpc=127.0.0.1:0"], "tsgrpc: a member of a pool serves a part of the keys alone"),
    (["--master=127.0.0.1:1", "--follow=node://127.0.0.1:1"], "follow: a member of a pool serves a part of the keys alone"),
    (["--role=agent"], "listen: an agent does not take it"),
    (["--role=master", "--directory-shard=1", "--master=127.0.0.1:1", "--nodes-min=3"], "nodes_min: the master that leads says that"),
    (["--role=master", "--pool-map=/none", "--umbp=127.0.0.1:0", "--umbp-ttl-ms=50"], "umbp_ttl_ms: 50 is not above umbp_heartbeat_ms, 5000"),
])
def test_options_that_would_do_nothing(arguments: list[str], words: str) -> None:
    code, log = fails_to_start(*LOOPBACK, *SMALL, *arguments)
    assert code == USAGE and words in log, log


@pytest.mark.parametrize("arguments,words", [
    (["--heartbeat-ms=1000"], "heartbeat_ms: only role=master takes it"),
    (["--shards", "0"], "shards: a data store does not take it"),
    (["--dram=7"], "dram: a data store does not take it"),
    (["--listen="], "listen: a data store does not take it"),
    (["--config", "CONFIG"], "CONFIG:2: dram: a data store does not take it"),
    (["--role=none"], "none of 'master', 'store' and 'agent'; without a role it is a node"),
])
def test_options_of_another_role(tmp_path: pathlib.Path, arguments: list[str], words: str) -> None:
    """Refused, too, if they say what is so without them."""
    config = tmp_path / "config"
    config.write_text("data = /none\ndram = 1G\n")
    code, log = fails_to_start("--role=store", *(str(config) if word == "CONFIG" else word for word in arguments))
    assert code == USAGE and words.replace("CONFIG", str(config)) in log, log


@pytest.mark.parametrize("line,words", [
    ("colour = red", "config:2: unknown option 'colour'"),
    ("dram", "config:2: 'dram' is not name = value"),
    ("dram = x", "config:2: dram: 'x'"),
])
def test_bad_config(tmp_path: pathlib.Path, line: str, words: str) -> None:
    (tmp_path / "config").write_text(f"shards = 1\n{line}\n")
    code, log = fails_to_start(*LOOPBACK, "--config", str(tmp_path / "config"))
    assert code == USAGE and words in log, log


def test_bad_environment() -> None:
    code, log = fails_to_start(*LOOPBACK, environment={"PENSTOCK_SHARDS": "many"})
    assert code == USAGE and "PENSTOCK_SHARDS: shards: 'many'" in log


@pytest.mark.parametrize("dram,words", [("100T", r"dram: 100T is outside"), ("15T", r"dram: .*(MiB|GiB)")])
def test_more_memory_than_there_is(dram: str, words: str) -> None:
    begin = time.monotonic()
    _, log = fails_to_start(*LOOPBACK, "--dram", dram)
    assert re.search(words, log), log
    assert time.monotonic() - begin < 10  # nothing was touched on the way


# ---- who may connect


def test_secret_file_is_checked(tmp_path: pathlib.Path) -> None:
    for name, mode, text in (("group", 0o640, "s"), ("world", 0o644, "s"), ("empty", 0o600, ""),
                             ("long", 0o600, "x" * 5000)):
        path = support.secret_file(tmp_path / name, text, mode)
        _, log = fails_to_start(*LOOPBACK, *SMALL, "--secret-file", str(path))
        assert str(path) in log
    assert "0600" in fails_to_start(*LOOPBACK, *SMALL, "--secret-file", str(tmp_path / "world"))[1]
    assert "secret file" in fails_to_start(*LOOPBACK, *SMALL, "--secret-file", str(tmp_path / "none"))[1]


def test_network_address_needs_secret_and_fabric(tmp_path: pathlib.Path) -> None:
    address = support.network_address() or "192.0.2.1"
    secret = ("--secret-file", str(support.secret_file(tmp_path / "secret")))
    for more in ([], secret, ["--fabric", "trusted"]):
        _, log = fails_to_start("--listen", f"{address}:0", *SMALL, *more)
        assert f"{address}:0" in log and "and tls or fabric=trusted" in log
    if not support.network_address():
        pytest.skip("no network address to serve on")
    with start_node("--listen", f"{address}:0", *SMALL, *secret, "--fabric", "trusted") as node:
        url = f"node://{address}:{node.ports()[0]}"
        assert penstock("--url", f"{url}?fabric=trusted", "ping", *secret).returncode == 0
        untold = penstock("--url", url, "ping", *secret)  # the client's side has to say so, too
        assert untold.returncode == 4 and b"fabric=trusted" in untold.stderr
        node.stop()


@pytest.mark.parametrize("wildcard", ["0.0.0.0:0", "[::]:0", ":0", "*:0"])
def test_wildcard_serves_loopback_only(wildcard: str) -> None:
    with start_node("--listen", wildcard, *SMALL) as node:
        told = [line for line in node.lines if "serves loopback only" in line]
        assert len(told) == 1 and "secret_file" in told[0] and "fabric=trusted" in told[0]
        addresses = support.listening_addresses(node.pid)
        assert addresses and all(support.is_loopback(address) for address in addresses)
        host = "[::1]" if "[" in wildcard else "127.0.0.1"
        assert penstock("--url", f"node://{host}:{node.ports()[0]}", "ping").returncode == 0
        node.stop()


def test_every_listening_address_is_loopback(tmp_path: pathlib.Path) -> None:
    with start_node(*LOOPBACK, "--listen", "localhost:0", "--unix", f"{tmp_path}/s", *SMALL, "--shards", "3",
                    listeners=3) as node:
        idle = support.listening_addresses(node.pid)
        assert len(idle) >= 2  # the sockets of its own; the transport's come on top
        for url in (f"{node.tcp}?lane=tcp", f"node+unix://{tmp_path}/s"):
            with support.bench(url, "--op", "exists", "--seconds", "60") as client:
                support.wait_until("the client's session", lambda: figures(node.tcp)["sessions"] == 2)
                connected = support.listening_addresses(node.pid), support.listening_addresses(client.pid)
                assert client.poll() is None
                client.kill()
            for address in [*idle, *connected[0], *connected[1]]:
                assert support.is_loopback(address), (url, idle, connected)
            support.wait_until("the session's end", lambda: figures(node.tcp)["sessions"] == 1)
        node.stop()


# ---- what comes in by the bootstrap port

HEAD = struct.Struct("<4sHHI")  # magic, version, type, length of the body
HELLO, REFUSED = 1, 9
OLDEST, VERSION = 8, 8
HELLO_BYTES = 108


def talk(port: int, data: bytes, seconds: float = 10) -> bytes:
    """Sends and reads until the node closes."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        try:
            connection.sendall(data)
            while part := connection.recv(4096):
                answer += part
        except ConnectionError:
            pass
    return answer


def test_other_version_is_refused() -> None:
    with start_node(*LOOPBACK, *SMALL) as node:
        for version in range(OLDEST):
            answer = talk(node.ports()[0], HEAD.pack(b"PSTB", version, HELLO, HELLO_BYTES) + bytes(HELLO_BYTES))
            magic, own, kind, length = HEAD.unpack(answer[:HEAD.size])
            assert (magic, own, kind, length) == (b"PSTB", VERSION, REFUSED, 4)
            assert answer[HEAD.size:] == struct.pack("<I", 1)  # because of the version
        for version in range(OLDEST):
            node.wait_for(f"version {version} asked for, {OLDEST} to {VERSION} spoken")
        lives(node)
        node.stop()


def test_random_bytes() -> None:
    generator = random.Random(7)
    with start_node(*LOOPBACK, *SMALL) as node:
        lives(node)
        support.wait_until("a quiet node", lambda: figures(node.tcp)["sessions"] == 1)
        before = len(support.file_numbers(node.pid))
        for number in range(200):
            data = generator.randbytes(generator.randrange(1, 3000))
            if number % 2:  # a frame's head, and then anything
                length = generator.choice([0, 4, 32, HELLO_BYTES, len(data), 2**32 - 1])
                data = HEAD.pack(b"PSTB", 1, generator.randrange(12), length) + data
            try:
                with socket.create_connection(("127.0.0.1", node.ports()[0]), timeout=5) as connection:
                    connection.sendall(data)
            except ConnectionError:
                pass
        lives(node)
        support.wait_until("descriptors back", lambda: len(support.file_numbers(node.pid)) <= before)
        node.stop()


def test_bytes_one_by_one() -> None:
    """A slow peer neither holds others up nor harms."""
    with start_node(*LOOPBACK, *SMALL) as node:
        slow = [socket.create_connection(("127.0.0.1", node.ports()[0]), timeout=5) for _ in range(20)]
        for connection, byte in zip(slow, b"PSTB" * 5):
            connection.sendall(b"PSTB"[:1] if byte % 2 else b"P")
        lives(node)
        for connection in slow:
            connection.close()
        lives(node)
        node.stop()


def test_many_clients_come_and_go(tmp_path: pathlib.Path) -> None:
    with start_node("--unix", f"{tmp_path}/s", *LOOPBACK, *SMALL, listeners=2) as node:
        for number in range(12):
            assert penstock("--url", f"node+unix://{tmp_path}/s", "put", f"k{number}", stdin=b"x").returncode == 0
        support.wait_until("sessions gone", lambda: figures(node.tcp)["sessions"] == 1)
        assert figures(node.tcp)["keys"] == 12
        node.stop()


def test_session_limit() -> None:
    with start_node(*LOOPBACK, *SMALL, "--sessions", "1") as node:
        client = support.bench(node.tcp + "?lane=tcp", "--op", "exists", "--seconds", "20")
        try:
            impatient = node.tcp + "?connect_ms=1000"  # to be refused is tried again until then
            support.wait_until("a refusal", lambda: penstock("--url", impatient, "ping").returncode != 0)
            refused = penstock("--url", impatient, "ping")
            assert b"no room for another session" in refused.stderr
        finally:
            client.kill()
            client.wait(support.WAIT_S)
        support.wait_until("room again", lambda: penstock("--url", node.tcp, "ping").returncode == 0)
        assert figures(node.tcp)["refused_busy"] > 0
        node.stop()


def test_few_descriptors(tmp_path: pathlib.Path) -> None:
    """Clients are bounded by what the process may open; without room for one it says so and ends."""
    def limited(files: int) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    with start_node(*LOOPBACK, *SMALL, "--shards", "1", before_exec=lambda: limited(64)) as node:
        assert re.search(r"the limit on open files leaves room for \d+ of 1024 sessions", node.log())
        lives(node)
        wait = [support.BUILD / "penstock", "--url", node.tcp + "?lane=tcp&connect_ms=60000", "get", "nothing", "--wait=1000"]
        crowd = [subprocess.Popen(wait, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  env=support.clean_environment()) for _ in range(16)]
        for client in crowd:  # there is room for all of them, one after another
            words = client.communicate(timeout=90)[1]
            assert client.returncode == 1, words
        lives(node)
        node.stop()
    _, log = fails_to_start(*LOOPBACK, *SMALL, "--shards", "1", before_exec=lambda: limited(36))
    assert "RLIMIT_NOFILE" in log


# ---- signals, and what is left behind


@pytest.mark.skipif(not shutil.which("strace") or support.sanitized(), reason="no strace, or a process that cannot be traced")
def test_idle_clients_are_left_alone(tmp_path: pathlib.Path) -> None:
    """UCX's keepalive looks at each client of this host; one that does not poll keeps the node awake in the end."""
    trace = tmp_path / "trace"
    with start_node(f"--unix={tmp_path}/socket", "--dram=64M") as node:
        url = f"node+unix://{tmp_path}/socket"
        client = subprocess.Popen([support.BUILD / "penstock", "--url", url, "watch"], env=support.clean_environment())
        support.wait_until("the client is there", lambda: figures(url)["watches"] > 0)
        tracer = subprocess.Popen(["strace", "-f", "-qq", "-o", trace, "-e", "trace=openat", "-p", str(node.pid)])
        time.sleep(4)
        assert penstock("--url", url, "ping").returncode == 0
        for process in (tracer, client):
            process.terminate()
            process.wait()
    assert "openat" in trace.read_text(), "the ping's session opens something"
    assert f"/proc/{client.pid}/stat" not in trace.read_text()


def test_signals_and_traces(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "socket"
    with start_node(*LOOPBACK, "--unix", str(path), *SMALL, listeners=2) as node:
        assert f"listening on 127.0.0.1:{node.ports()[0]}, UCX worker ready" in node.log()
        assert stat.S_ISSOCK(path.stat().st_mode) and stat.S_IMODE(path.stat().st_mode) == 0o600
        arenas = support.arena_files(node.pid)
        assert arenas and all(stat.S_IMODE(arena.stat().st_mode) == 0o600 for arena in arenas)
        assert 16 << 20 <= sum(arena.stat().st_size for arena in arenas) < 24 << 20
        for number in range(3):
            penstock("--url", node.tcp, "put", f"k{number}", stdin=b"x")

        def told() -> bool:
            """The figure is published with the shard's tick."""
            node.process.send_signal(signal.SIGUSR1)
            return "3 keys stored" in node.log()

        support.wait_until("3 keys are told of", told)
        node.stop()
        assert not path.exists()
        assert not [arena for arena in arenas if arena.exists()]


def test_sigint_ends_too() -> None:
    with start_node(*LOOPBACK, *SMALL) as node:
        node.process.send_signal(signal.SIGINT)
        assert node.wait() == 0
        assert support.arena_files(node.pid) == []


def test_stop_with_a_client_at_work() -> None:
    with start_node(*LOOPBACK, "--dram", "64M") as node:
        client = support.bench(node.tcp, "--timeout", "2000", "--op", "put", "--size", "1M", "--keys", "20",
                               "--seconds", "4")
        support.wait_until("puts", lambda: figures(node.tcp)["puts"] > 20)
        node.stop()
        _, errors = client.communicate(timeout=60)
        assert client.returncode != 0 and errors.startswith(b"penstock: ")


def test_stale_socket_is_replaced(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "socket"
    with start_node("--unix", str(path), *SMALL) as node:
        node.kill()
    assert path.exists()
    assert penstock("--url", f"node+unix://{path}", "ping").returncode == 5
    with start_node("--unix", str(path), *SMALL) as node:
        assert penstock("--url", f"node+unix://{path}", "ping").returncode == 0
        node.stop()


def test_live_socket_is_respected(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "socket"
    with start_node("--unix", str(path), *LOOPBACK, *SMALL, listeners=2) as node:
        _, log = fails_to_start("--unix", str(path), *SMALL)
        assert str(path) in log and "in use" in log
        _, log = fails_to_start("--listen", f"127.0.0.1:{node.ports()[0]}", *SMALL)
        assert "in use" in log
        assert penstock("--url", f"node+unix://{path}", "ping").returncode == 0
        node.stop()


def test_other_files_are_no_sockets(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("mine")
    fails_to_start("--unix", str(tmp_path / "file"), *SMALL)
    assert (tmp_path / "file").read_text() == "mine"
    fails_to_start("--unix", str(tmp_path / "none" / "socket"), *SMALL)


# Over shared memory a sender that dies may block the node's receive queue: the node must notice and open another.
LANES = ["?lane=tcp", "", "?transport=stream"]


@pytest.mark.parametrize("lane", LANES)
def test_clients_killed_while_they_connect(lane: str) -> None:
    """At every moment from the first system call to the first answer."""
    dice = random.Random(1)
    with start_node(*LOOPBACK, *SMALL, "--shards", "4") as node:
        begin = time.monotonic()
        lives(node)
        span_s = time.monotonic() - begin
        for _ in range(30):
            clients = [support.bench(node.tcp + lane, "--seconds", "30") for _ in range(3)]
            for client in clients:
                time.sleep(dice.uniform(0, span_s / 2))
                client.kill()
            for client in clients:
                client.wait(support.WAIT_S)
        lives(node)
        support.wait_until("one session", lambda: figures(node.tcp)["sessions"] == 1)
        node.stop()


@pytest.mark.parametrize("lane", LANES)
def test_client_killed_in_the_middle_of_puts(lane: str) -> None:
    """What a dead writer held comes back, and nothing half-written shows."""
    with start_node(*LOOPBACK, "--dram", "256M", "--shards", "2") as node:
        for _ in range(3):
            client = support.bench(node.tcp + lane, "--op", "put", "--size", "5M", "--keys", "12", "--batch", "4",
                                   "--inflight", "2", "--seconds", "30")
            puts = figures(node.tcp)["puts"]
            support.wait_until("puts", lambda: figures(node.tcp)["puts"] > puts + 10)
            client.kill()
            client.wait(support.WAIT_S)
            lives(node)
        support.wait_until("nothing pinned", lambda: figures(node.tcp)["pinned"] == 0)
        support.wait_until("one session", lambda: figures(node.tcp)["sessions"] == 1)
        told = figures(node.tcp)
        assert told["value_bytes"] == told["keys"] * (5 << 20)
        assert penstock("--url", node.tcp, "clear").returncode == 0
        support.wait_until("all pages back", lambda: figures(node.tcp)["pages_used"] <= 2 * 4)
        node.stop()


@pytest.mark.parametrize("lane", LANES)
def test_client_killed_in_the_middle_of_gets(lane: str) -> None:
    with start_node(*LOOPBACK, "--dram", "128M") as node:
        filled = penstock("--url", node.tcp, "bench", "--op", "put", "--fill", "--keys", "10", "--size", "5M")
        assert filled.returncode == 0
        client = support.bench(node.tcp + lane, "--op", "get", "--size", "5M", "--keys", "10", "--batch", "4",
                               "--seconds", "30")
        gets = figures(node.tcp)["gets"]
        support.wait_until("gets", lambda: figures(node.tcp)["gets"] > gets + 10)
        client.kill()
        client.wait(support.WAIT_S)
        support.wait_until("nothing pinned", lambda: figures(node.tcp)["pinned"] == 0)
        lives(node)
        node.stop()


def test_inherited_transport_settings_are_told() -> None:
    with start_node(*LOOPBACK, *SMALL, environment={"UCX_NET_DEVICES": "all"}) as node:
        assert "inherited from the environment: UCX_NET_DEVICES=all" in node.log()
        assert all(support.is_loopback(address) for address in support.listening_addresses(node.pid))
        node.stop()


def test_idle_node_sleeps(tmp_path: pathlib.Path) -> None:
    with start_node(*LOOPBACK, *SMALL, "--shards", "4") as node:
        lives(node)
        time.sleep(0.5)

        before, begin = procs.cpu_s(node.pid), time.monotonic()
        time.sleep(2)
        used_s = procs.cpu_s(node.pid) - before
        assert used_s <= 0.02 * (time.monotonic() - begin) + 0.01  # one per cent of a core, and the clock's coarseness
        node.stop()
