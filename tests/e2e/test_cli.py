# SPDX-License-Identifier: Apache-2.0
"""The command line: every command, every exit code, JSON that parses."""
from __future__ import annotations

import base64
import hashlib
import json
import mmap
import os
import pathlib
import shutil
import subprocess

import pytest
import support
from cli import (CORRUPT, NO_SPACE, NOT_ALLOWED, NOT_FOUND, OTHER, UNREACHABLE, USAGE, Cli,  # noqa: F401: a fixture
                 binary, cli, node, peak_mib)
from support import penstock


# ---- put and get


@pytest.mark.parametrize("size", [0, 1, 2048, 2049, 65536, 65537, 3_000_000])
def test_put_and_get(cli: Cli, tmp_path: pathlib.Path, size: int) -> None:  # noqa: F811
    value = binary(size)
    (tmp_path / "in").write_bytes(value)
    cli("put", "by file", str(tmp_path / "in"))
    cli("put", "by stdin", stdin=value)
    cli("put", "by dash", "-", stdin=value)
    assert cli("get", "by file") == value
    assert cli("get", "by stdin", "-") == value
    cli("get", "by dash", str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == value


def test_binary_key(cli: Cli) -> None:  # noqa: F811
    key = bytes(range(1, 256)) + "/\u00e9".encode()
    cli("put", key, stdin=b"value")
    assert cli("get", key) == b"value"
    assert cli("ls") == key + b"\n"
    assert json.loads(cli("ls", "--json"))["bytes"] == 5


def test_range(cli: Cli) -> None:  # noqa: F811
    value = binary(100_000)
    cli("put", "k", stdin=value)
    assert cli("get", "k", "--range", "10:20") == value[10:30]
    assert cli("get", "k", "--range=99990:10") == value[99990:]
    assert cli("get", "k", "--range", "0:0") == b""
    assert b"range" in cli("get", "k", "--range", "99990:11", code=USAGE)


def test_conditions(cli: Cli) -> None:  # noqa: F811
    first = cli.json("put", "k", "--if-absent", stdin=b"one")
    assert first["key"] == "k" and first["bytes"] == 3 and first["generation"] > 0
    assert b"exists already" in cli("put", "k", "--if-absent", stdin=b"two", code=OTHER)
    assert b"another generation" in cli("put", "k", "--if-generation", "5", stdin=b"two", code=OTHER)
    second = cli.json("put", "k", "--if-generation", str(first["generation"]), "--checksum", stdin=b"two")
    assert second["generation"] > first["generation"]
    assert cli("get", "k") == b"two"
    cli("rm", "k", "--if-generation", str(first["generation"]), code=OTHER)
    cli("rm", "k", "--if-generation", str(second["generation"]))
    cli("get", "k", code=NOT_FOUND)


def test_get_json(cli: Cli, tmp_path: pathlib.Path) -> None:  # noqa: F811
    for size in (0, 1, 2, 3, 100_000):
        value = binary(size)
        put = cli.json("put", "k", stdin=value)
        got = cli.json("get", "k")
        assert base64.b64decode(got.pop("base64"), validate=True) == value
        assert got == {"key": "k", "bytes": size, "generation": put["generation"]}
        assert cli.json("get", "k", str(tmp_path / "out")) == got
        assert (tmp_path / "out").read_bytes() == value
    part = cli.json("get", "k", "--range", "5:10")
    assert base64.b64decode(part["base64"]) == value[5:15] and part["bytes"] == 10
    cli("get", "absent", "--json", code=NOT_FOUND)


# ---- ls, rm, clear


def test_ls(cli: Cli) -> None:  # noqa: F811
    for key in ("b/2", "a", "b/1", "cached/x"):
        cli("put", key, stdin=key.encode())
    assert cli("ls") == b"a\nb/1\nb/2\ncached/x\n"
    assert cli("ls", "b/") == b"b/1\nb/2\n"
    assert cli("ls", "zzz") == b""
    rows = [line.split() for line in cli("ls", "--long", "--bytes").decode().splitlines()]
    assert [(row[0], row[2], row[3]) for row in rows] == [
        ("1", "keep", "a"), ("3", "keep", "b/1"), ("3", "keep", "b/2"), ("8", "cache", "cached/x")]
    assert cli("ls", "--long", "a").decode().split()[:2] == ["1", "B"]
    entries = [json.loads(line) for line in cli("ls", "--json", "--long").splitlines()]
    assert [entry["key"] for entry in entries] == ["a", "b/1", "b/2", "cached/x"]
    assert [entry["class"] for entry in entries] == ["keep", "keep", "keep", "cache"]
    assert [str(entry["generation"]) for entry in entries] == [row[1] for row in rows]


def test_rm(cli: Cli) -> None:  # noqa: F811
    for number in range(30):
        cli("put", f"{'one' if number % 3 else 'two'}/{number}", stdin=b"x")
    cli("rm", "two/0", "two/3")
    assert b"key 'two/0': not found" in cli("rm", "two/0", "two/6", code=NOT_FOUND)  # the others go all the same
    cli("get", "two/6", code=NOT_FOUND)
    assert cli.json("rm", "two/9", "two/12") == {"deleted": 2}
    assert cli("rm", "--prefix", "two/") == b"5 keys deleted\n"
    assert cli.json("rm", "--prefix", "one/") == {"deleted": 20}
    assert cli("ls") == b""


def test_clear(cli: Cli) -> None:  # noqa: F811
    cli("put", "k", stdin=b"x")
    assert cli("clear") == b""
    assert cli.json("clear") == {"remaining": 0}
    assert cli("ls") == b""


# ---- stat, ping


def test_stat(cli: Cli) -> None:  # noqa: F811
    cli("put", "k", stdin=b"12345")
    figures = cli.json("stat")
    assert figures["keys"] == 1 and figures["value_bytes"] == 5 and figures["shards"] == 2
    assert figures["pages"] * figures["page_bytes"] == 64 << 20
    assert figures["sessions"] == 1 and figures["lane"] == "posix"
    text = cli("stat", "--all").decode()
    assert text.startswith("1 keys stored, lane posix\nvalues\n")
    assert all(name in text for name in figures.keys() - {"lane", "times"})
    lines = {line.split()[0]: line.split() for line in cli("stat").decode().splitlines()}
    assert lines["page_bytes"][1:3] == ["64.00", "KiB"] and lines["value_bytes"][1:3] == ["5", "B"]
    assert "refused" not in lines and "evictions" not in lines  # zero, and a heading without figures
    assert f"page_bytes {64 << 10} " in " ".join(cli("stat", "--bytes").decode().split())
    one = cli.json("stat", "k")
    assert one["bytes"] == 5 and one["generation"] > 0 and one["attributes"] == ""
    assert b"size        5 B" in cli("stat", "k")
    assert b"key 'absent': not found" in cli("stat", "absent", code=NOT_FOUND)


def test_ping(cli: Cli) -> None:  # noqa: F811
    assert b"all shards answered in" in cli("ping")
    pong = cli.json("ping")
    assert 0 < pong["round_trip_us"] < 5e6 and pong["lane"] == "posix"
    tcp = json.loads(Cli(cli.node.tcp + "?lane=tcp")("ping", "--json"))
    assert tcp["lane"] == "tcp"


# ---- many files


def test_files(cli: Cli, tmp_path: pathlib.Path) -> None:  # noqa: F811
    files = []
    for number, size in enumerate([0, 1, 5000, 700_000, 2_000_000, 17]):
        files.append(tmp_path / f"file {number}")
        files[-1].write_bytes(binary(size + number))
    before = {path: path.read_bytes() for path in files}
    listing = tmp_path / "list"
    listing.write_text("".join(f"{path}\n" for path in files))
    assert b"put 6 files" in cli("put", "--files", str(listing), "--prefix", "all", "--checksum")
    assert cli("ls", "--json").count(b"\n") == 6
    done = cli("get", "--files", str(listing), "--prefix", "all", "--sha256").decode()
    sums = dict(line.split("  ", 1)[::-1] for line in done.splitlines())
    assert sums == {str(path): hashlib.sha256(value).hexdigest() for path, value in before.items()}
    for path in files:
        path.unlink()
    cli("get", "--files", str(listing), "--prefix", "all")
    assert {path: path.read_bytes() for path in files} == before
    report = cli.json("put", "--files", str(listing))
    assert report["files"] == 6 and report["bytes"] == sum(len(value) for value in before.values())
    assert 0 <= report["transfer_seconds"] <= report["seconds"]
    assert b"not found" in cli("get", "--files", str(listing), "--prefix", "none", code=NOT_FOUND)
    cli("put", "--files", str(tmp_path / "no list"), code=OTHER)
    listing.write_text(str(tmp_path / "no file"))
    assert b"no file" in cli("put", "--files", str(listing), code=OTHER)
    cli("put", "key", "--files", str(listing), code=USAGE)


# ---- bench


@pytest.mark.parametrize("op,more", [
    ("get", []),
    ("get", ["--batch", "16", "--inflight", "4"]),
    ("put", ["--size", "100K"]),
    ("exists", ["--batch", "128"]),
])
def test_bench(cli: Cli, op: str, more: list[str]) -> None:  # noqa: F811
    cli("bench", "--op", "put", "--fill", "--keys", "200", "--batch", "32", "--size", "1000")
    assert cli.json("stat")["keys"] == 200
    figures = cli.json("bench", "--op", op, "--keys", "200", "--size", "1000", "--seconds", "1", *more)
    assert figures["op"] == op and figures["ops"] > 0 and figures["misses"] == 0
    assert 1 <= figures["seconds"] < 5 and figures["p50_us"] <= figures["p99_us"]
    assert figures["ops_per_s"] == pytest.approx(figures["ops"] / figures["seconds"], rel=0.01)
    assert figures["bytes_per_s"] == (0 if op == "exists" else pytest.approx(figures["ops_per_s"] * figures["size"], rel=0.01))
    figures = cli.json("bench", "--op=get", "--prefix=none/", "--keys=200", "--size=1000", "--seconds=1")
    assert figures["misses"] == figures["ops"] > 0 and figures["bytes_per_s"] == 0


def test_bench_prefix(cli: Cli) -> None:  # noqa: F811
    """Two of them at one store stay apart."""
    for prefix, size in (("a/", "1K"), ("b/", "5K")):
        cli("bench", "--op", "put", "--fill", "--prefix", prefix, "--keys", "3", "--size", size)
    assert cli("ls", "a/").split() == [b"a/%016d" % i for i in range(3)]
    assert cli.json("bench", "--prefix", "a/", "--keys", "3", "--size", "1K", "--seconds", "1")["misses"] == 0
    assert cli.json("stat", "b/%016d" % 2)["bytes"] == 5 << 10


def test_bench_views(node: support.Node) -> None:  # noqa: F811
    cli = Cli(node.socket)
    cli("clear")
    cli("bench", "--op", "put", "--fill", "--keys", "4", "--size", "4M")
    assert cli.json("bench", "--op", "view-walk", "--keys", "4", "--size", "4M", "--seconds", "1")["ops"] > 0
    assert b"not possible" in Cli(node.tcp)("bench", "--op", "view-walk", "--keys", "4", "--seconds", "1", code=OTHER)


def test_bench_until_full(cli: Cli) -> None:  # noqa: F811
    figures = json.loads(cli("bench", "--until-full", "--mix", "4K:70,100K:20,1M:10", "--json"))
    assert figures["value_bytes"] > 40 << 20
    assert cli.json("stat")["keys"] == figures["keys"]
    assert b"mix" in cli("bench", "--until-full", code=USAGE)
    assert b"mix" in cli("bench", "--until-full", "--mix", "4K:50", code=USAGE)


# ---- what goes wrong


def test_help_and_version() -> None:
    text = penstock("--help").stdout.decode()
    for word in ("put         KEY", "get         KEY", "ls", "rm", "stat", "ping", "clear", "dump        [PREFIX]", "load        [FILE|-]",
                 "watch       [PREFIX]", "follow      SOURCE", "replay      TRACE", "data put    KEY", "bench", "--url", "--json", "--range",
                 "exit codes"):
        assert word in text
    assert penstock("help").stdout.decode() == text
    one = penstock("put", "--help").stdout.decode()
    assert one == penstock("help", "put").stdout.decode() == penstock("--help", "put").stdout.decode()
    assert "usage: penstock put " in one and "--durable" in one and "--url" in one
    assert "--sha256" not in one and "commands:" not in one
    for arguments in (["help", "nope"], ["nope", "--help"]):
        done = penstock(*arguments)
        assert done.returncode == USAGE and b"unknown command 'nope'" in done.stderr
    assert penstock("--version").stdout.startswith(b"penstock ")


def test_the_transport_logs_elsewhere(cli: Cli, tmp_path: pathlib.Path) -> None:  # noqa: F811
    value = binary(100_000)
    cli("put", "k", stdin=value)

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
        done = penstock("--url", cli.url, *arguments, environment={"UCX_LOG_LEVEL": "info", **environment})
        assert done.returncode == 0, done
        return done

    got = run("get", "k")
    assert got.stdout == value and b"UCX  INFO" in got.stderr
    assert json.loads(run("stat", "--json").stdout)["keys"] == 1
    to_file = run("get", "k", UCX_LOG_FILE=str(tmp_path / "log"))  # who says where it goes has it there
    assert to_file.stdout == value and b"UCX" not in to_file.stderr
    assert b"UCX  INFO" in (tmp_path / "log").read_bytes()
    assert b"UCX  INFO" in run("get", "k", UCX_LOG_FILE="stdout").stdout


def test_unreachable(tmp_path: pathlib.Path) -> None:
    for url in ("node://127.0.0.1:1", f"node+unix://{tmp_path}/none",
                "node://no-such-host.invalid:7000?fabric=trusted"):
        done = penstock("--url", url, "ping")
        assert done.returncode == UNREACHABLE and url.encode() in done.stderr, done


def test_nothing_on_the_default_socket(tmp_path: pathlib.Path) -> None:
    if os.geteuid() == 0 and pathlib.Path("/run/penstock.sock").exists():
        pytest.skip("a node may listen on the default socket")
    done = penstock("ping", environment={"XDG_RUNTIME_DIR": str(tmp_path)})
    assert done.returncode == UNREACHABLE
    for words in (b"no node listens on /", b"start penstockd", b"PENSTOCK_URL"):
        assert words in done.stderr


def test_url_from_the_environment(cli: Cli) -> None:  # noqa: F811
    cli("put", "k", stdin=b"value")
    assert penstock("get", "k", environment={"PENSTOCK_URL": cli.url}).stdout == b"value"
    assert penstock("--url", cli.url, "get", "k", environment={"PENSTOCK_URL": "node://127.0.0.1:1"}).stdout == b"value"


def test_no_space(cli: Cli, tmp_path: pathlib.Path) -> None:  # noqa: F811
    cli("put", "there", stdin=b"before")
    (tmp_path / "big").write_bytes(bytes(65 << 20))
    assert b"larger than the store" in cli("put", "big", str(tmp_path / "big"), code=NO_SPACE)
    words = cli("put", "big", stdin=bytes(65 << 20), code=NO_SPACE)  # of unknown length: where it ends depends on what is there
    assert b"no space" in words or b"larger than the store" in words
    for number in range(4):
        done = penstock("--url", cli.url, "put", f"part/{number}", stdin=bytes(20 << 20))
        assert done.returncode == (0 if number < 3 else NO_SPACE), done
    assert b"key 'part/3': no space" in done.stderr
    assert cli("get", "there") == b"before"
    cli("get", "big", code=NOT_FOUND)


def test_secret(tmp_path: pathlib.Path) -> None:
    right = str(support.secret_file(tmp_path / "right"))
    wrong = str(support.secret_file(tmp_path / "wrong", "another secret\n"))
    loose = str(support.secret_file(tmp_path / "loose", mode=0o644))
    with support.start_node("--listen", "127.0.0.1:0", "--unix", f"{tmp_path}/s", "--dram", "16M",
                            "--secret-file", right, listeners=2) as node:
        for url in (node.tcp, f"node+unix://{tmp_path}/s"):
            assert penstock("--url", url, "--secret-file", right, "ping").returncode == 0
            assert penstock("--url", url, "ping", environment={"PENSTOCK_SECRET_FILE": right}).returncode == 0
            none = penstock("--url", url, "ping")
            assert none.returncode == NOT_ALLOWED and b"the node wants a secret" in none.stderr
            other = penstock("--url", url, "ping", "--secret-file", wrong)
            assert other.returncode == NOT_ALLOWED and b"wrong secret" in other.stderr
        readable = penstock("--url", node.tcp, "ping", "--secret-file", loose)
        assert readable.returncode == NOT_ALLOWED and b"0600" in readable.stderr
        missing = penstock("--url", node.tcp, "ping", "--secret-file", f"{tmp_path}/none")
        assert missing.returncode == OTHER and b"/none" in missing.stderr
        node.wait_for("wrong secret", 2)
        node.stop()


def test_corrupt(cli: Cli) -> None:  # noqa: F811
    value = b"damage me" + binary(5000)
    cli("put", "sum", "--checksum", stdin=value)
    found = 0
    for path in support.arena_files(cli.node.pid):
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as arena:
            at = arena.find(value)
            while at >= 0:  # a stream's last page leaves a copy behind
                arena[at] ^= 1
                found += 1
                at = arena.find(value)
    assert found >= 1
    assert b"key 'sum': corrupt" in cli("get", "sum", code=CORRUPT)
    cli("put", "sum", "--checksum", stdin=value)
    assert cli("get", "sum") == value


def test_put_from_a_pipe_is_never_held_as_a_whole(cli: Cli, tmp_path: pathlib.Path) -> None:  # noqa: F811
    for mib in (1, 40):
        (tmp_path / str(mib)).write_bytes(bytes(mib << 20))
    assert peak_mib(cli, "put piped", tmp_path / "40") - peak_mib(cli, "put piped", tmp_path / "1") < 20
    assert cli("get", "piped") == bytes(1 << 20)


def test_output_that_cannot_be_written(cli: Cli) -> None:  # noqa: F811
    cli("put", "k", stdin=binary(200_000))
    with open("/dev/full", "wb") as full:
        done = subprocess.run([support.BUILD / "penstock", "--url", cli.url, "get", "k"], stdout=full,
                              stderr=subprocess.PIPE, timeout=support.WAIT_S, env=support.clean_environment())
    assert done.returncode == OTHER and b"No space left on device" in done.stderr
    cli("get", "k", "/nowhere/file", code=OTHER)
    cli("put", "k", "/nowhere/file", code=OTHER)


# ---- embedded


def test_embedded_opens_no_socket(tmp_path: pathlib.Path) -> None:
    if not shutil.which("strace"):
        pytest.skip("no strace here")
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-o", trace, "-e", "trace=network,open,openat", support.BUILD / "penstock", "--url",
               "mem:?dram=16M", "ping"]
    # A sanitized build cannot look for leaks while it is traced.
    environment = {**support.clean_environment(), "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(command, capture_output=True, timeout=support.WAIT_S, env=environment)
    lines = trace.read_text().splitlines()
    assert done.returncode == 0 and b"over memory" in done.stdout, done
    assert any("openat" in line for line in lines)
    assert not [line for line in lines if "socket(" in line or "bind(" in line or "connect(" in line]
    # The linker opens the transport's libraries by name; its plug-ins lie in a folder of their own and stay closed.
    assert not [line for line in lines if "/ucx/lib" in line or "libuct_" in line or "libucx_" in line]
    assert not [line for line in lines if "/dev/infiniband" in line or "/dev/shm" in line]


def test_embedded_lives_for_one_command() -> None:
    assert penstock("--url", "mem:?dram=16M", "put", "k", stdin=b"value").returncode == 0
    assert penstock("--url", "mem:?dram=16M", "get", "k").returncode == NOT_FOUND
    assert json.loads(penstock("--url", "mem:?dram=16M&shards=3", "stat", "--json").stdout)["shards"] == 3
