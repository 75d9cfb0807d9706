# SPDX-License-Identifier: Apache-2.0
"""penstockd --keep: values outlive the node, and nothing that is not theirs is taken for them."""
from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import signal
import tempfile
from collections.abc import Iterator

import pytest
from support import Node, WAIT_S, fails_to_start, penstock, start_node

SIZES = (0, 1, 100, 2048, 2049, 40_000, 65_536, 70_000, 1_000_000)
USAGE, FAILURE, CORRUPT = 2, 1, 6


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """A folder in a tmpfs, for arenas and socket."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="penstock-keep-") as path:
        yield pathlib.Path(path)


def keep(folder: pathlib.Path, *more: str) -> list[str]:
    """Options of a node that keeps its memory; later ones win."""
    return ["--unix", f"{folder}/socket", "--folder", str(folder), "--keep", "warm", "--dram", "32M", "--page-size",
            "64K", "--class", "c/=cache", "--shards", "2", *more]


def url(folder: pathlib.Path) -> str:
    return f"node+unix://{folder}/socket"


def run(folder: pathlib.Path, *arguments: str, stdin: bytes = b"") -> bytes:
    done = penstock("--url", url(folder), *arguments, stdin=stdin)
    assert done.returncode == 0, done
    return done.stdout


def value(seed: int) -> bytes:
    return hashlib.shake_128(str(seed).encode()).digest(SIZES[seed % len(SIZES)])


def keys() -> dict[str, int]:
    """Keys and the seeds of their values."""
    return {f"{'c/' if seed % 4 == 0 else 'k/'}{seed}": seed for seed in range(2 * len(SIZES))}


def put_all(folder: pathlib.Path) -> bytes:
    """Stores values of all shapes; what the node then lists."""
    for key, seed in keys().items():
        run(folder, "put", key, *(["--checksum"] if seed % 2 else []), stdin=value(seed))
    run(folder, "put", "gone", stdin=b"x" * 100_000)
    run(folder, "rm", "gone")
    return run(folder, "ls", "--json")


def expect_all(folder: pathlib.Path, listed: bytes) -> None:
    assert run(folder, "ls", "--json") == listed
    for key, seed in keys().items():
        assert run(folder, "get", key) == value(seed), key


def kept_files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.glob("*.kept"))


def end(node: Node, number: signal.Signals) -> None:
    if number == signal.SIGTERM:
        node.stop()
    else:
        node.end(number)


def test_values_outlive_the_node(folder: pathlib.Path) -> None:
    with start_node(*keep(folder)) as node:
        assert "keep warm" not in node.log()
        listed = put_all(folder)
        end(node, signal.SIGKILL)
    generation = 0
    for number, shards in ((signal.SIGTERM, "2"), (signal.SIGABRT, "3"), (signal.SIGKILL, "1"), (signal.SIGTERM, "16")):
        with start_node(*keep(folder, "--shards", shards)) as node:
            found = re.search(r"keep warm: (\d+) keys, (\d+) bytes found in \d+ ms; (\d+) dropped, (\d+) moved", node.log())
            assert found and int(found[1]) == len(keys()) and int(found[3]) == 0, node.log()
            assert int(found[2]) == sum(SIZES[seed % len(SIZES)] for seed in keys().values())
            assert (int(found[4]) > 0) == (number != signal.SIGTERM or shards == "16")
            expect_all(folder, listed)
            stat = json.loads(run(folder, "stat", "--json"))
            assert stat["keys"] == len(keys()) and stat["cache_keys"] == sum(key.startswith("c/") for key in keys())
            # It serves as before: views in place over the passed descriptors, writes above all generations.
            if shards == "3":
                size = ("--keys", "20", "--size", "131072")
                run(folder, "bench", "--op", "put", "--fill", *size)
                run(folder, "bench", "--op", "view-walk", "--seconds", "1", *size)
                for key in set(run(folder, "ls").decode().split()) - keys().keys():
                    run(folder, "rm", key)
            run(folder, "put", "again", stdin=b"new")
            latest = max(entry["generation"] for entry in map(json.loads, run(folder, "ls", "--json").splitlines()))
            assert latest > generation
            generation = latest
            run(folder, "rm", "again")
            end(node, number)
    assert len(kept_files(folder)) == 1
    kept_files(folder)[0].unlink()  # the way to get rid of it
    with start_node(*keep(folder)) as node:
        assert run(folder, "ls") == b""
        node.stop()


@pytest.mark.parametrize("first, then", [("", "c/"), ("c/", "")])
def test_a_value_that_comes_back_has_the_class_that_it_had(folder: pathlib.Path, tmp_path: pathlib.Path, first: str, then: str) -> None:
    """It was written under other classes than today's, and has gone down to the SSD and come back since."""
    def start(prefix: str) -> Node:
        ssd = ("--ssd", str(tmp_path / "ssd"), "--ssd-bytes", "256M", "--ssd-segment", "16M")
        options = [f"{prefix or 'none/'}=cache" if option == "c/=cache" else option for option in keep(folder, "--shards", "1", *ssd)]
        return start_node(*options, listeners=1)

    with start(first) as node:
        run(folder, "put", "c/x", stdin=b"x" * 1_000_000)
        node.stop()
    with start(then) as node:
        for turn in range(3):
            for i in range(60):
                run(folder, "put", f"k/{i}", stdin=bytes([turn]) * 1_000_000)
            for _ in range(3):
                assert run(folder, "get", "c/x") == b"x" * 1_000_000
        run(folder, "rm", "c/x")
        assert json.loads(run(folder, "stat", "--json"))["cache_keys"] == 0
        node.stop()


def test_without_a_name_nothing_stays(folder: pathlib.Path) -> None:
    arguments = [word for word in keep(folder) if word not in ("--keep", "warm")]
    with start_node(*arguments) as node:
        run(folder, "put", "k", stdin=b"v")
        node.stop()
    assert list(folder.iterdir()) == []
    with start_node(*arguments) as node:
        assert run(folder, "ls") == b""
        node.stop()


def test_what_does_not_fit_is_refused(folder: pathlib.Path) -> None:
    with start_node(*keep(folder)) as node:
        listed = put_all(folder)
        for name, code, words in (("warm", FAILURE, f"in use by process {node.pid}"), ("a/b", USAGE, "letters, digits")):
            got, log = fails_to_start(*keep(folder, "--unix", f"{folder}/other", "--keep", name))
            assert got == code and words in log, log
        end(node, signal.SIGKILL)
    for more, words in ((("--dram", "64M"), "512 pages of 64 KiB, asked for are 1 of 1024"),
                        (("--page-size", "128K"), "asked for are 1 of 256 of 128 KiB"),
                        (("--arena-size", "8M"), "asked for are 4 of 128 of 64 KiB"),):
        code, log = fails_to_start(*keep(folder, *more))
        assert code == USAGE and words in log and "give the same dram" in log, log
    path, = kept_files(folder)
    path.chmod(0o644)
    assert "no other may use" in fails_to_start(*keep(folder))[1]
    path.chmod(0o600)
    moved = path.rename(folder / "moved")
    path.symlink_to(moved)
    assert "symbolic link" in fails_to_start(*keep(folder))[1]
    path.unlink()
    path.write_bytes(b"somebody's notes\n" * 1000)
    path.chmod(0o600)
    assert "not an arena of penstock's" in fails_to_start(*keep(folder))[1]
    assert path.read_bytes() == b"somebody's notes\n" * 1000
    moved.rename(path)
    whole = path.read_bytes()
    with path.open("r+b") as file:  # the layout of a later version
        file.seek(len(whole) - 4096 + 8)
        file.write((99).to_bytes(4, "little"))
    code, log = fails_to_start(*keep(folder))
    assert code == FAILURE and "layout version 99, this program knows " in log, log
    path.write_bytes(whole)
    with start_node(*keep(folder)) as node:  # nothing of all that has touched it
        expect_all(folder, listed)
        node.stop()


def test_damage_is_told_and_not_served(folder: pathlib.Path) -> None:
    with start_node(*keep(folder)) as node:
        run(folder, "put", "bad", "--checksum", stdin=b"B" * 200_000)
        run(folder, "put", "good", "--checksum", stdin=b"G" * 200_000)
        end(node, signal.SIGKILL)
    path, = kept_files(folder)
    at = path.read_bytes().find(b"B" * 150_000)
    with path.open("r+b") as file:
        file.seek(at + 77_777)
        file.write(b"b")
    with start_node(*keep(folder)) as node:
        for arguments in (["bad"], ["bad", "--range", "0:10"]):
            assert penstock("--url", url(folder), "get", *arguments, seconds=WAIT_S).returncode == CORRUPT
        assert run(folder, "get", "good", "--range", "5:3") == b"GGG"
        run(folder, "put", "bad", stdin=b"better")
        assert run(folder, "get", "bad") == b"better"
        node.stop()


def test_memory_that_was_taken_away_is_named(folder: pathlib.Path) -> None:
    with start_node(*keep(folder, "--listen", "127.0.0.1:0"), listeners=2) as node:
        put_all(folder)
        for path in kept_files(folder):
            os.truncate(path, 0)
        node.ended_by = signal.SIGBUS
        penstock("--url", node.tcp, "--timeout", "2000", "put", "k", stdin=b"x" * 100_000)
        assert node.wait() == -signal.SIGBUS
        assert "memory of a mapped file is gone" in node.log()
    assert "not an arena of penstock's" in fails_to_start(*keep(folder))[1]
