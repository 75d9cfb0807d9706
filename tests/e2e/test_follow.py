# SPDX-License-Identifier: Apache-2.0
"""`penstock follow`: a node that has what another one has."""
from __future__ import annotations

import contextlib
import pathlib
import subprocess
from typing import Iterator

import support
from support import penstock

USAGE, UNREACHABLE = 2, 5


def put(url: str, key: str, value: bytes, *flags: str) -> None:
    done = penstock("--url", url, "put", key, "-", *flags, stdin=value)
    assert done.returncode == 0, done


def listing(url: str) -> list[str]:
    """Sizes and keys."""
    lines = penstock("--url", url, "ls", "--long", "--bytes").stdout.decode().splitlines()
    return [f"{line.split()[0]} {line.split()[3]}" for line in lines]


def rm(url: str, *keys: str) -> None:
    assert penstock("--url", url, "rm", *keys).returncode == 0


def start(folder: pathlib.Path, name: str, *more: str) -> support.Node:
    return support.start_node("--unix", str(folder / name), "--dram", "64M", "--page-size", "64K", "--shards", "2", *more)


@contextlib.contextmanager
def following(source: str, mirror: str, *more: str) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen([support.BUILD / "penstock", "follow", source, *more, "--url", mirror, "--timeout", "2000"],
                               stderr=subprocess.DEVNULL, env=support.clean_environment())
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_mirror_follows(tmp_path: pathlib.Path) -> None:
    source, mirror = (f"node+unix://{tmp_path}/{name}" for name in ("source", "mirror"))
    with start(tmp_path, "source", "--class", "c/=cache") as origin, start(tmp_path, "mirror", "--class", "=cache", "--dram", "160M") as copy:
        for i in range(300):
            put(source, f"k/{i:03}", b"x" * i * (50 if i % 10 else 1000)) if i % 7 == 0 else None
        put(mirror, "k/003", b"of before")
        put(mirror, "zzz", b"of before")

        def same() -> bool:
            return listing(source) == listing(mirror)

        with following(source, mirror):
            support.wait_until("all of it is there", same)
            put(source, "k/007", b"another value")
            put(source, "new", b"n" * 3000000)
            put(source, "z" * 4096, b"the longest key")
            rm(source, "k/000", "k/014")
            support.wait_until("changes follow", same)
            assert penstock("--url", mirror, "get", "k/007").stdout == b"another value"
            # Its own evictions are its own.
            rm(mirror, "k/021")
            put(source, "last", b"1")
            support.wait_until("a later change", lambda: "1 last" in listing(mirror))
            assert "k/021" in " ".join(listing(source)) and "k/021" not in " ".join(listing(mirror))
            # Evictions of the source are followed, and it has room for all that come in between.
            for i in range(90):
                put(source, f"c/{i}", bytes(1000000))
            support.wait_until("evictions follow", lambda: [key for key in listing(source) if "k/021" not in key] == listing(mirror))
            assert len([key for key in listing(source) if " c/" in key]) < 70
            # A source that is new has nothing; then it has something.
            origin.kill()
            (tmp_path / "source").unlink(missing_ok=True)
            with start(tmp_path, "source") as again:
                put(source, "afresh", b"a")
                support.wait_until("the new source's", lambda: listing(mirror) == ["1 afresh"])
                again.stop()
        copy.stop()


def test_a_node_follows_by_itself(tmp_path: pathlib.Path) -> None:
    source, mirror = (f"node+unix://{tmp_path}/{name}" for name in ("source", "mirror"))
    secret = str(support.secret_file(tmp_path / "secret"))
    follow = ("--class", "=cache", "--follow", source, "--follow-prefix", "a/", "--follow-secret-file", secret)
    with start(tmp_path, "mirror", *follow) as copy:  # before there is a source
        copy.wait_for("follow: ")
        with start(tmp_path, "source", "--secret-file", secret) as origin:
            for key in ("a/1", "b/1"):
                assert penstock("--url", source, "--secret-file", secret, "put", key, "-", stdin=b"1").returncode == 0
            support.wait_until("a/1", lambda: listing(mirror) == ["1 a/1"])
            copy.wait_for("keys of node+unix://")
            copy.stop()
            with start(tmp_path, "mirror", *follow) as again:  # it has nothing, and gets everything
                support.wait_until("a/1 again", lambda: listing(mirror) == ["1 a/1"])
                origin.stop()
                again.stop()
    # Listening on TCP alone it has a socket for itself.
    with support.start_node("--listen", "127.0.0.1:0", "--dram", "64M", "--follow", source) as copy:
        copy.wait_for("follow: ")
        copy.stop()
    for url, why in ((mirror, "a node cannot follow itself"), ("mem:", "only a node can be followed")):
        with support.Node("--unix", str(tmp_path / "mirror"), "--dram", "64M", "--follow", url) as copy:
            assert copy.wait() == USAGE and why in copy.log()


def test_a_prefix_is_followed(tmp_path: pathlib.Path) -> None:
    source, mirror = (f"node+unix://{tmp_path}/{name}" for name in ("source", "mirror"))
    with start(tmp_path, "source") as origin, start(tmp_path, "mirror") as copy:
        put(source, "a/1", b"1")
        put(source, "b/1", b"1")
        put(mirror, "b/mine", b"mine")
        put(mirror, "a/gone", b"gone")
        with following(source, mirror, "a/"):
            support.wait_until("a/ is the same", lambda: listing(mirror) == ["1 a/1", "4 b/mine"])
            put(source, "b/2", b"2")
            put(source, "a/2", b"2")
            support.wait_until("a/2", lambda: listing(mirror) == ["1 a/1", "1 a/2", "4 b/mine"])
        assert listing(source) == ["1 a/1", "1 a/2", "1 b/1", "1 b/2"]
        done = penstock("--url", source, "follow", source)
        assert done.returncode == USAGE and b"itself" in done.stderr
        assert penstock("--url", mirror, "follow", f"node+unix://{tmp_path}/none").returncode == UNREACHABLE
        origin.stop()
        copy.stop()
