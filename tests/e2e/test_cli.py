"""The command line: every command, every exit code, JSON that parses."""
from __future__ import annotations

import base64
import hashlib
import json
import mmap
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from typing import Iterator

import pytest
import support
from support import penstock

NOT_FOUND, USAGE, NO_SPACE, NOT_ALLOWED, UNREACHABLE, CORRUPT, OTHER = range(1, 8)


class Cli:
    """`penstock --url URL`, with what it should end with."""

    def __init__(self, url: str, node: support.Node | None = None) -> None:
        self.url = url
        self.node = node

    def __call__(self, *arguments: str | bytes, stdin: bytes = b"", code: int = 0) -> bytes:
        done = penstock("--url", self.url, *arguments, stdin=stdin)
        assert done.returncode == code, done
        return done.stdout if code == 0 else done.stderr

    def json(self, *arguments: str, stdin: bytes = b"") -> dict:
        return json.loads(self(*arguments, "--json", stdin=stdin))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[support.Node]:
    folder = tmp_path_factory.mktemp("cli")
    with support.start_node("--listen", "127.0.0.1:0", "--unix", str(folder / "socket"), "--dram", "64M",
                            "--shards", "2", "--page-size", "64K", "--class", "cached/=cache", listeners=2) as node:
        node.socket = f"node+unix://{folder}/socket"
        yield node
        node.stop()


@pytest.fixture(params=["tcp", "unix"])
def cli(request: pytest.FixtureRequest, node: support.Node) -> Cli:
    cli = Cli(node.tcp if request.param == "tcp" else node.socket, node)
    cli("clear")
    return cli


def binary(size: int) -> bytes:
    return random.Random(size).randbytes(size)


# ---- put and get


@pytest.mark.parametrize("size", [0, 1, 2048, 2049, 65536, 65537, 3_000_000])
def test_put_and_get(cli: Cli, tmp_path: pathlib.Path, size: int) -> None:
    value = binary(size)
    (tmp_path / "in").write_bytes(value)
    cli("put", "by file", str(tmp_path / "in"))
    cli("put", "by stdin", stdin=value)
    cli("put", "by dash", "-", stdin=value)
    assert cli("get", "by file") == value
    assert cli("get", "by stdin", "-") == value
    cli("get", "by dash", str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == value


def test_binary_key(cli: Cli) -> None:
    key = bytes(range(1, 256)) + "/\u00e9".encode()
    cli("put", key, stdin=b"value")
    assert cli("get", key) == b"value"
    assert cli("ls") == key + b"\n"
    assert json.loads(cli("ls", "--json"))["bytes"] == 5


def test_range(cli: Cli) -> None:
    value = binary(100_000)
    cli("put", "k", stdin=value)
    assert cli("get", "k", "--range", "10:20") == value[10:30]
    assert cli("get", "k", "--range=99990:10") == value[99990:]
    assert cli("get", "k", "--range", "0:0") == b""
    assert b"range" in cli("get", "k", "--range", "99990:11", code=USAGE)


def test_conditions(cli: Cli) -> None:
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


def test_get_json(cli: Cli, tmp_path: pathlib.Path) -> None:
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


# ---- dump and load


def parse_dump(stream: bytes) -> dict[bytes, bytes]:
    """What docs/dump-format.md says, without the checksums."""
    values, at = {}, 16
    assert stream[:12] == b"PSTDUMP\n\1\0\0\0"
    while stream[at] == 1:
        _, _, key_bytes, attr_bytes, _, value_bytes = struct.unpack_from("<BBHHHQ", stream, at)
        key, value = stream[at + 16:at + 16 + key_bytes], b""
        at += 16 + key_bytes + attr_bytes + 4
        while stream[at] == 2:
            length, = struct.unpack_from("<I", stream, at + 4)
            value += stream[at + 8:at + 8 + length]
            at += 8 + length
        if stream[at] == 3:
            assert len(value) == value_bytes and key not in values
            values[key] = value
        at += 8
    _, records, length, _ = struct.unpack("<B7xQQI", stream[at:])
    assert (records, length) == (len(values), at)
    return values


def dump_and_values(cli: Cli, folder: pathlib.Path) -> tuple[bytes, dict[bytes, bytes]]:
    sizes = {f"small {number}": number * 40 for number in range(200)} | {"middle": 3_000_000, "large": 9_000_001}
    for name, size in sizes.items():
        (folder / name).write_bytes(binary(size))
    (folder / "list").write_text("".join(f"{folder / name}\n" for name in sizes))
    cli("put", "--files", str(folder / "list"))
    cli("put", b"bin\xff\n", stdin=b"")
    values = {str(folder / name).encode(): binary(size) for name, size in sizes.items()}
    return cli("dump"), values | {b"bin\xff\n": b""}


def contents(cli: Cli) -> dict[bytes, bytes]:
    return parse_dump(cli("dump"))


def test_dump_and_load(cli: Cli, tmp_path: pathlib.Path) -> None:
    stream, values = dump_and_values(cli, tmp_path)
    assert parse_dump(stream) == values
    assert list(parse_dump(stream)) == sorted(values)
    path = str(tmp_path / "all")
    report = cli.json("dump", "", path)
    assert pathlib.Path(path).read_bytes() == stream
    assert report["keys"] == len(values) and report["bytes"] == sum(map(len, values.values()))
    cli("clear")
    report = cli.json("load", path)
    assert (report["keys"], report["stored"], report["skipped"]) == (len(values), len(values), 0)
    assert contents(cli) == values
    part = cli("dump", f"{tmp_path}/small 1")
    cli("clear")
    assert b"111 stored" in cli("load", stdin=part)  # 1, 10 to 19, 100 to 199
    assert contents(cli) == {key: value for key, value in values.items() if b"/small 1" in key}
    assert cli.json("load", "-", stdin=cli("dump", "nothing"))["keys"] == 0


def test_load_over_what_is_there(cli: Cli) -> None:
    cli("put", "a", stdin=b"dumped")
    cli("put", "b", stdin=b"dumped")
    stream = cli("dump")
    cli("clear")
    cli("put", "a", stdin=b"newer")
    assert cli.json("load", "--if-absent", stdin=stream)["skipped"] == 1
    assert contents(cli) == {b"a": b"newer", b"b": b"dumped"}
    assert cli.json("load", "--replace", stdin=stream)["stored"] == 2
    assert contents(cli) == {b"a": b"dumped", b"b": b"dumped"}
    assert b"either" in cli("load", "--replace", "--if-absent", stdin=stream, code=USAGE)


def test_load_finds_damage(cli: Cli, tmp_path: pathlib.Path) -> None:
    stream, values = dump_and_values(cli, tmp_path)
    cli("clear")
    for at in (0, 9, 15, 16, 5_000, len(stream) // 2, len(stream) - 1):
        damaged = bytearray(stream)
        damaged[at] ^= 0x10
        words = cli("load", stdin=bytes(damaged), code=CORRUPT)
        assert b"record " in words and b"offset " in words, words
        assert all(values[key] == value for key, value in contents(cli).items())
    for length in (0, 5, 16, 20, 100_000, len(stream) - 1):
        assert b"ends too early" in cli("load", stdin=stream[:length], code=CORRUPT)
    assert b"something follows the end" in cli("load", stdin=stream + b"x", code=CORRUPT)
    cli("clear")
    words = cli("load", stdin=stream[:4_000_000], code=CORRUPT)
    assert b'/large"' in words
    assert f"{tmp_path}/large".encode() not in contents(cli)


def test_dump_while_keys_are_written(cli: Cli, tmp_path: pathlib.Path) -> None:
    """Every value is one that was written, whole, and every key that stays comes once."""
    _, stable = dump_and_values(cli, tmp_path)
    size = 6_000_000  # more than a piece
    for letter in "ab":
        (tmp_path / letter).write_bytes(letter.encode() * size)
    script = 'while :; do for l in a b; do "$0" --url "$1" put hot "$2/$l" || exit; done; done'
    writer = subprocess.Popen(["sh", "-c", script, support.BUILD / "penstock", cli.url, tmp_path],
                              env=support.clean_environment(), start_new_session=True)
    try:
        support.wait_until("the hot key", lambda: penstock("--url", cli.url, "get", "hot", "--range", "0:1").returncode == 0)
        streams = [cli("dump") for _ in range(5)]
    finally:
        os.killpg(writer.pid, signal.SIGKILL)
        writer.wait()
    support.wait_until("the writer's session has ended", lambda: cli.json("stat")["sessions"] == 1)
    for stream in streams:
        cli("clear")
        cli("load", stdin=stream)
        found = contents(cli)
        assert found == parse_dump(stream)
        hot = found.pop(b"hot", None)
        assert hot is None or hot in (b"a" * size, b"b" * size)
        assert found == stable


def test_dump_while_values_change_all_the_time(cli: Cli) -> None:
    """A value that is overwritten between its pieces leaves a void record, and comes whole in the end."""
    size = 6_000_000
    cli("bench", "--op", "put", "--fill", "--keys", "2", "--size", str(size), "--seconds", "1")
    writer = support.bench(cli.url, "--op", "put", "--keys", "2", "--size", str(size), "--seconds", "60")
    try:
        voids, end = 0, time.monotonic() + support.WAIT_S
        while not voids and time.monotonic() < end:
            stream = cli("dump")
            values = parse_dump(stream)
            assert {len(value) for value in values.values()} == {size} and len(values) == 2
            assert all(value.count(b"\x5a") == size for value in values.values())
            voids = len(stream) > 2 * size + 10_000  # pieces that did not count
        assert voids, "no value changed between its pieces"
    finally:
        writer.kill()
        writer.communicate()


def test_a_large_value_is_loaded_in_bounded_memory(cli: Cli, tmp_path: pathlib.Path) -> None:
    """By a stream, which obeys the same rules as the puts of small values."""
    value, stream = binary(40 << 20), tmp_path / "stream"
    cli("put", "large", stdin=value)
    cli("put", "small", stdin=b"small")
    cli("dump", "", str(stream))
    cli("clear")
    assert peak_mib(cli, "load", stream) - peak_mib(cli, "stat", pathlib.Path("/dev/null")) < 20
    assert cli("get", "large") == value and cli("get", "small") == b"small"
    report = cli.json("load", "--if-absent", str(stream))
    assert (report["stored"], report["skipped"]) == (0, 2)
    damaged = bytearray(stream.read_bytes())
    damaged[30 << 20] ^= 1
    cli("clear")
    assert b'key \"large\"' in cli("load", "--checksum", stdin=bytes(damaged), code=CORRUPT)
    assert cli("ls") == b"" and cli.json("stat")["slots"] == 0
    assert cli.json("load", "--checksum", str(stream))["stored"] == 2
    assert cli("get", "large") == value
    cli("clear")
    cli("put", "in the way", stdin=bytes(30 << 20))
    assert b"key 'large': no space" in cli("load", str(stream), code=NO_SPACE)
    assert cli.json("stat")["slots"] == 0 and cli("ls") == b"in the way\n"


def test_no_room_for_the_output(cli: Cli, tmp_path: pathlib.Path) -> None:
    cli("put", "key", stdin=b"v" * 3_000_000)
    cli("put", "large", stdin=b"v" * 9_000_000)  # written piece by piece
    for arguments in (["dump", "", "/dev/full"], ["dump", "l", "/dev/full"], ["get", "key", "/dev/full"]):
        assert b"/dev/full: No space left on device" in cli(*arguments, code=OTHER)
    for arguments in (["dump", "", f"{tmp_path}/none/file"], ["get", "key", f"{tmp_path}/none/file"], ["load", f"{tmp_path}/none"]):
        assert b"No such file or directory" in cli(*arguments, code=OTHER)
    with open("/dev/full", "wb") as full:
        done = subprocess.run([support.BUILD / "penstock", "--url", cli.url, "dump"], stdout=full, stderr=subprocess.PIPE,
                              env=support.clean_environment(), timeout=support.WAIT_S)
    assert done.returncode == OTHER and b"No space left on device" in done.stderr


def test_load_refuses_a_newer_version(cli: Cli) -> None:
    head = b"PSTDUMP\n" + (2).to_bytes(4, "little")
    crc = 0xFFFFFFFF
    for byte in head:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    words = cli("load", stdin=head + (crc ^ 0xFFFFFFFF).to_bytes(4, "little") + bytes(100), code=OTHER)
    assert b"version" in words and b"2; this one reads 1" in words


# ---- waiting and watching


def start(cli: Cli, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([support.BUILD / "penstock", "--url", cli.url, *arguments], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
                            env=support.clean_environment())


def test_get_waits(cli: Cli) -> None:
    assert b"key 'late': not found" in cli("get", "late", "--wait=100", code=NOT_FOUND)
    getter = start(cli, "get", "late", "--wait")
    support.wait_until("the wait", lambda: cli.json("stat")["waits"] == 1)
    cli("put", "late", stdin=b"value")
    assert getter.communicate(timeout=support.WAIT_S) == ("value", "") and getter.returncode == 0
    assert cli("get", "late", "--wait", "--range", "1:3") == b"alu"
    assert cli.json("stat")["waits"] == 0
    assert b"wait: 'soon'" in cli("get", "late", "--wait=soon", code=USAGE)


def test_watch(cli: Cli) -> None:
    with start(cli, "watch", "w/", "--json") as watcher:
        try:
            assert watcher.stderr.readline() == "penstock: watching\n"
            assert cli.json("stat")["watches"] == 2
            first = cli.json("put", "w/a", stdin=b"12345")
            cli("put", "other", stdin=b"x")
            cli("rm", "w/a")
            events = [json.loads(watcher.stdout.readline()) for _ in range(2)]
            assert events == [{"event": what, "key": "w/a", "bytes": 5, "generation": first["generation"]}
                              for what in ("put", "deleted")]
            watcher.stdout.close()  # nobody reads: it ends by itself
            cli("put", "w/b", stdin=b"x")
            assert watcher.wait(support.WAIT_S) in (0, OTHER, -signal.SIGPIPE)
        finally:
            watcher.kill()
    support.wait_until("the watch's end", lambda: cli.json("stat")["watches"] == 0)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_watch_tells_everything(tmp_path: pathlib.Path, form: list[str]) -> None:
    """Puts, ends, evictions, what a slow reader missed, a lost connection."""
    arguments = ("--unix", f"{tmp_path}/s", "--dram", "16M", "--shards", "1", "--page-size", "64K", "--class", "cached/=cache")
    cli = Cli(f"node+unix://{tmp_path}/s")

    def event() -> tuple[str, str]:
        """What happened, and to which key or how often."""
        line = watcher.stdout.readline()
        assert line, watcher.stderr.read()
        if form:
            fields = json.loads(line)
            return fields["event"], fields.get("key") or str(fields.get("missed", ""))
        words = line.split()
        return words[0], words[1] if words[0] == "missed" else words[3] if words[0] != "reset" else ""

    def until(what: str) -> list[tuple[str, str]]:
        events = [event()]
        while events[-1][0] != what:
            events.append(event())
        return events

    with support.start_node(*arguments) as node, start(cli, "watch", *form) as watcher:
        try:
            assert watcher.stderr.readline() == "penstock: watching\n"
            cli("put", "key", stdin=b"12345")
            cli("rm", "key")
            assert until("deleted") == [("put", "key"), ("deleted", "key")]
            for number in range(5):
                cli("put", f"cached/{number}", stdin=bytes(4 << 20))
            assert ("evicted", "cached/0") in until("evicted")
            watcher.send_signal(signal.SIGSTOP)
            cli("bench", "--op", "put", "--fill", "--keys", "5000", "--batch", "100")
            cli("put", "last", stdin=b"x")
            watcher.send_signal(signal.SIGCONT)
            events = until("missed")
            missed = int(events[-1][1])
            while events[-1] != ("put", "last"):
                events.append(event())
            came = [key for what, key in events if what == "put" and len(key) == 16]  # those of the bench
            assert missed > 0 and len(set(came)) == len(came) and 5000 - missed <= len(came) < 5000
            node.kill()
            with support.start_node(*arguments):
                assert until("reset")[-1] == ("reset", "")
        finally:
            watcher.kill()


def test_watch_ends_when_the_node_stays_away(tmp_path: pathlib.Path) -> None:
    cli = Cli(f"node+unix://{tmp_path}/s")
    with support.start_node("--unix", f"{tmp_path}/s", "--dram", "16M") as node, start(cli, "watch", "--timeout", "2000") as watcher:
        try:
            assert watcher.stderr.readline() == "penstock: watching\n"
            node.kill()
            assert watcher.wait(support.WAIT_S) == UNREACHABLE
        finally:
            watcher.kill()


def test_watch_ends_with_its_reader(cli: Cli) -> None:
    with subprocess.Popen([support.BUILD / "penstock", "--url", cli.url, "watch"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, restore_signals=False,  # SIGPIPE is ignored
                          env=support.clean_environment()) as watcher:
        try:
            assert watcher.stderr.readline() == b"penstock: watching\n"
            watcher.stdout.close()
            cli("put", "k", stdin=b"x")
            assert watcher.wait(support.WAIT_S) == 0 and watcher.stderr.read() == b""
        finally:
            watcher.kill()


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_watch_outlives_the_node(tmp_path: pathlib.Path, shards: int) -> None:
    """A watcher is told that the connection was lost, and then of what comes; a wait goes on as well."""
    arguments = ("--unix", f"{tmp_path}/s", "--dram", "16M", "--shards")
    cli = Cli(f"node+unix://{tmp_path}/s")
    with support.start_node(*arguments, "2") as node, start(cli, "watch") as watcher, \
            start(cli, "get", "after", "--wait=60000") as getter:
        try:
            assert watcher.stderr.readline() == "penstock: watching\n"
            support.wait_until("the wait", lambda: cli.json("stat")["waits"] == 1)
            cli("put", "before", stdin=b"x")
            assert watcher.stdout.readline().split()[::3] == ["put", "before"]
            node.kill()
            with support.start_node(*arguments, str(shards)):
                assert watcher.stdout.readline().startswith("reset ")
                support.wait_until("the wait again", lambda: cli.json("stat")["waits"] == 1)
                cli("put", "after", stdin=b"x")
                assert watcher.stdout.readline().split()[::3] == ["put", "after"]
                assert getter.communicate(timeout=support.WAIT_S)[0] == "x"
        finally:
            watcher.kill()
            getter.kill()


def test_waiting_for_a_node_that_is_gone(tmp_path: pathlib.Path) -> None:
    with support.start_node("--unix", f"{tmp_path}/s", "--dram", "16M") as node:
        cli = Cli(f"node+unix://{tmp_path}/s")
        with start(cli, "get", "never", "--wait=5000", "--timeout", "500") as getter, \
                start(cli, "watch", "--timeout", "500") as watcher:
            try:
                assert watcher.stderr.readline() == "penstock: watching\n"
                support.wait_until("the wait", lambda: cli.json("stat")["waits"] == 1)
                node.kill()
                assert getter.wait(support.WAIT_S) == UNREACHABLE
                assert watcher.wait(support.WAIT_S) == UNREACHABLE
            finally:
                getter.kill()
                watcher.kill()


# ---- ls, rm, clear


def test_ls(cli: Cli) -> None:
    for key in ("b/2", "a", "b/1", "cached/x"):
        cli("put", key, stdin=key.encode())
    assert cli("ls") == b"a\nb/1\nb/2\ncached/x\n"
    assert cli("ls", "b/") == b"b/1\nb/2\n"
    assert cli("ls", "zzz") == b""
    rows = [line.split() for line in cli("ls", "--long").decode().splitlines()]
    assert [(row[0], row[2], row[3]) for row in rows] == [
        ("1", "keep", "a"), ("3", "keep", "b/1"), ("3", "keep", "b/2"), ("8", "cache", "cached/x")]
    entries = [json.loads(line) for line in cli("ls", "--json", "--long").splitlines()]
    assert [entry["key"] for entry in entries] == ["a", "b/1", "b/2", "cached/x"]
    assert [entry["class"] for entry in entries] == ["keep", "keep", "keep", "cache"]
    assert [str(entry["generation"]) for entry in entries] == [row[1] for row in rows]


def test_rm(cli: Cli) -> None:
    for number in range(30):
        cli("put", f"{'one' if number % 3 else 'two'}/{number}", stdin=b"x")
    cli("rm", "two/0", "two/3")
    assert b"key 'two/0': not found" in cli("rm", "two/0", "two/6", code=NOT_FOUND)  # the others go all the same
    cli("get", "two/6", code=NOT_FOUND)
    assert cli.json("rm", "two/9", "two/12") == {"deleted": 2}
    assert cli("rm", "--prefix", "two/") == b"5 keys deleted\n"
    assert cli.json("rm", "--prefix", "one/") == {"deleted": 20}
    assert cli("ls") == b""


def test_clear(cli: Cli) -> None:
    cli("put", "k", stdin=b"x")
    assert cli("clear") == b""
    assert cli.json("clear") == {"remaining": 0}
    assert cli("ls") == b""


# ---- stat, ping


def test_stat(cli: Cli) -> None:
    cli("put", "k", stdin=b"12345")
    figures = cli.json("stat")
    assert figures["keys"] == 1 and figures["value_bytes"] == 5 and figures["shards"] == 2
    assert figures["pages"] * figures["page_bytes"] == 64 << 20
    assert figures["sessions"] == 1 and figures["lane"] == "posix"
    text = cli("stat").decode()
    assert text.startswith("1 keys stored, lane posix\n")
    assert all(name in text for name in figures)
    one = cli.json("stat", "k")
    assert one["bytes"] == 5 and one["generation"] > 0 and one["attributes"] == ""
    assert b"bytes       5" in cli("stat", "k")
    assert b"key 'absent': not found" in cli("stat", "absent", code=NOT_FOUND)


def test_ping(cli: Cli) -> None:
    assert b"all shards answered in" in cli("ping")
    pong = cli.json("ping")
    assert 0 < pong["round_trip_us"] < 5e6 and pong["lane"] == "posix"
    tcp = json.loads(Cli(cli.node.tcp + "?lane=tcp")("ping", "--json"))
    assert tcp["lane"] == "tcp"


# ---- many files


def test_files(cli: Cli, tmp_path: pathlib.Path) -> None:
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
def test_bench(cli: Cli, op: str, more: list[str]) -> None:
    cli("bench", "--op", "put", "--fill", "--keys", "200", "--batch", "32", "--size", "1000")
    assert cli.json("stat")["keys"] == 200
    figures = cli.json("bench", "--op", op, "--keys", "200", "--size", "1000", "--seconds", "1", *more)
    assert figures["op"] == op and figures["ops"] > 0 and figures["misses"] == 0
    assert 1 <= figures["seconds"] < 5 and figures["p50_us"] <= figures["p99_us"]
    assert figures["ops_per_s"] == pytest.approx(figures["ops"] / figures["seconds"], rel=0.01)


def test_bench_prefix(cli: Cli) -> None:
    """Two of them at one store stay apart."""
    for prefix, size in (("a/", "1K"), ("b/", "5K")):
        cli("bench", "--op", "put", "--fill", "--prefix", prefix, "--keys", "3", "--size", size)
    assert cli("ls", "a/").split() == [b"a/%016d" % i for i in range(3)]
    assert cli.json("bench", "--prefix", "a/", "--keys", "3", "--size", "1K", "--seconds", "1")["misses"] == 0
    assert cli.json("stat", "b/%016d" % 2)["bytes"] == 5 << 10


def test_bench_views(node: support.Node) -> None:
    cli = Cli(node.socket)
    cli("clear")
    cli("bench", "--op", "put", "--fill", "--keys", "4", "--size", "4M")
    assert cli.json("bench", "--op", "view-walk", "--keys", "4", "--size", "4M", "--seconds", "1")["ops"] > 0
    assert b"not possible" in Cli(node.tcp)("bench", "--op", "view-walk", "--keys", "4", "--seconds", "1", code=OTHER)


def test_bench_until_full(cli: Cli) -> None:
    figures = json.loads(cli("bench", "--until-full", "--mix", "4K:70,100K:20,1M:10", "--json"))
    assert figures["value_bytes"] > 40 << 20
    assert cli.json("stat")["keys"] == figures["keys"]
    assert b"mix" in cli("bench", "--until-full", code=USAGE)
    assert b"mix" in cli("bench", "--until-full", "--mix", "4K:50", code=USAGE)


# ---- what goes wrong


def test_help_and_version() -> None:
    text = penstock("--help").stdout.decode()
    for word in ("put    KEY", "get    KEY", "ls", "rm", "stat", "ping", "clear", "dump   [PREFIX]", "load   [FILE|-]", "watch  [PREFIX]", "follow SOURCE", "replay TRACE", "bench", "--url", "--json", "--range",
                 "exit codes"):
        assert word in text
    assert penstock("--version").stdout.startswith(b"penstock ")


def test_the_transport_logs_elsewhere(cli: Cli, tmp_path: pathlib.Path) -> None:
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


def test_url_from_the_environment(cli: Cli) -> None:
    cli("put", "k", stdin=b"value")
    assert penstock("get", "k", environment={"PENSTOCK_URL": cli.url}).stdout == b"value"
    assert penstock("--url", cli.url, "get", "k", environment={"PENSTOCK_URL": "node://127.0.0.1:1"}).stdout == b"value"


def test_no_space(cli: Cli, tmp_path: pathlib.Path) -> None:
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


def test_corrupt(cli: Cli) -> None:
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


def peak_mib(cli: Cli, command: str, stdin: pathlib.Path) -> float:
    """Memory of a command that reads a file through a pipe, at its peak."""
    # A child counts from what its parent had when it forked: the parent is to be a small one.
    measure = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=sys.stderr, check=True); "
               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    with subprocess.Popen(["cat", stdin], stdout=subprocess.PIPE) as pipe:
        done = subprocess.run([sys.executable, "-c", measure, support.BUILD / "penstock", "--url", cli.url, *command.split()],
                              stdin=pipe.stdout, capture_output=True, timeout=support.WAIT_S, env=support.clean_environment())
    assert done.returncode == 0, done
    return int(done.stdout) / 1024


def test_put_from_a_pipe_is_never_held_as_a_whole(cli: Cli, tmp_path: pathlib.Path) -> None:
    for mib in (1, 40):
        (tmp_path / str(mib)).write_bytes(bytes(mib << 20))
    assert peak_mib(cli, "put piped", tmp_path / "40") - peak_mib(cli, "put piped", tmp_path / "1") < 20
    assert cli("get", "piped") == bytes(1 << 20)


def test_output_that_cannot_be_written(cli: Cli) -> None:
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
