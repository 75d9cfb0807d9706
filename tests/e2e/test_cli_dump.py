# SPDX-License-Identifier: Apache-2.0
"""penstock dump and load."""
from __future__ import annotations

import os
import pathlib
import signal
import struct
import subprocess
import time

import support
from cli import CORRUPT, NO_SPACE, OTHER, USAGE, Cli, binary, cli, node, peak_mib  # noqa: F401: a fixture
from support import penstock


def parse_dump(stream: bytes) -> dict[bytes, bytes]:
    """What docs/reference/dump-format.md says, without the checksums."""
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


def test_dump_and_load(cli: Cli, tmp_path: pathlib.Path) -> None:  # noqa: F811
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


def test_load_over_what_is_there(cli: Cli) -> None:  # noqa: F811
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


def test_load_finds_damage(cli: Cli, tmp_path: pathlib.Path) -> None:  # noqa: F811
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


def test_dump_while_keys_are_written(cli: Cli, tmp_path: pathlib.Path) -> None:  # noqa: F811
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


def test_dump_while_values_change_all_the_time(cli: Cli) -> None:  # noqa: F811
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


def test_a_large_value_is_loaded_in_bounded_memory(cli: Cli, tmp_path: pathlib.Path) -> None:  # noqa: F811
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
    assert cli("ls") == b"" and cli.json("stat")["reservations"] == 0
    assert cli.json("load", "--checksum", str(stream))["stored"] == 2
    assert cli("get", "large") == value
    cli("clear")
    cli("put", "in the way", stdin=bytes(30 << 20))
    assert b"key 'large': no space" in cli("load", str(stream), code=NO_SPACE)
    assert cli.json("stat")["reservations"] == 0 and cli("ls") == b"in the way\n"


def test_no_room_for_the_output(cli: Cli, tmp_path: pathlib.Path) -> None:  # noqa: F811
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


def test_load_refuses_a_newer_version(cli: Cli) -> None:  # noqa: F811
    head = b"PSTDUMP\n" + (2).to_bytes(4, "little")
    crc = 0xFFFFFFFF
    for byte in head:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    words = cli("load", stdin=head + (crc ^ 0xFFFFFFFF).to_bytes(4, "little") + bytes(100), code=OTHER)
    assert b"version" in words and b"2; this one reads 1" in words
