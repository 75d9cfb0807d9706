# SPDX-License-Identifier: Apache-2.0
"""--ssd and mem:?ssd=: what cannot be had is refused by name, and nothing of it is overwritten."""
from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import socket
import time

import pytest
import support

KINDS = ("penstockd", "mem:")


def node_options(path: pathlib.Path, size: str = "64M") -> list[str]:
    return ["--unix", f"{path.parent}/socket", "--dram", "8M", "--page-size", "64K", "--ssd", str(path), "--ssd-bytes",
            size, "--ssd-segment", "2M"]


def url(path: pathlib.Path, size: str = "64M") -> str:
    return f"mem:?dram=8M&page_size=64K&ssd={path}&ssd_bytes={size}&ssd_segment=2M"


def contents(path: pathlib.Path) -> dict[str, str]:
    """What lies in a folder, but for the lock, which names the process that looked last, and what a node writes just now."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in path.iterdir()
            if file.name not in ("lock", "penstock.new")}


def refused(kind: str, path: pathlib.Path, size: str = "64M") -> str:
    """What is said of a folder that cannot be had; nothing in it has changed then."""
    before = contents(path)
    if kind == "penstockd":
        code, said = support.fails_to_start(*node_options(path, size))
    else:
        done = support.penstock("--url", url(path, size), "stat")
        code, said = done.returncode, done.stderr.decode()
    assert code != 0 and str(path) in said, said
    assert contents(path) == before
    return said


@pytest.fixture
def ours(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder of ours with a value in it."""
    path = tmp_path / "ssd"
    done = support.penstock("--url", url(path), "put", "k", "--durable", stdin=b"v" * 5000)
    assert done.returncode == 0, done
    return path


def test_values_whose_size_is_not_known_leave_pages_free_too(tmp_path: pathlib.Path) -> None:
    """What is on the SSD is read into them, however full the memory is."""
    def fill(value: pathlib.Path | None) -> int:
        """How many values stay in memory: they have an end, and the SSD takes none of those."""
        for number in range(40):
            done = support.penstock("--url", address, "put", "--ttl", "3600000", f"k/{number:02}", *([value] if value else []),
                                    stdin=b"" if value else bytes(256 << 10))
            if done.returncode != 0:
                assert b"no space" in done.stderr, done
                break
        assert support.penstock("--url", address, "rm", "--prefix", "k/").returncode == 0
        return number

    address = f"node://{tmp_path}/socket"
    (tmp_path / "value").write_bytes(bytes(256 << 10))
    with support.start_node(*node_options(tmp_path / "ssd")) as node:
        known = fill(tmp_path / "value")
        assert 20 < known < 32
        assert fill(None) == known
        node.stop()


def test_a_start_that_is_refused_leaves_no_trace(ours: pathlib.Path) -> None:
    """Whatever refuses it, once the folder itself is right: the driver, an address, the part in a pool."""
    before, bad = contents(ours), ours.parent / "id"
    bad.write_text("my notes")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for more in (["--ssd-driver=tape"], [f"--listen=127.0.0.1:{taken.getsockname()[1]}"], ["--master=nowhere"],
                     ["--master=127.0.0.1:1", "--listen=127.0.0.1:0", f"--node-id={bad}"],
                     ["--master=127.0.0.1:1", "--listen=0.0.0.0:0", "--fabric=trusted", "--secret-file=/dev/null"]):
            support.fails_to_start(*node_options(ours), *more)
            assert {name: digest for name, digest in contents(ours).items() if name != "pool"} == before, more
    with support.start_node(*node_options(ours)):
        pass
    assert contents(ours) != before
    assert support.penstock("--url", url(ours), "get", "k").stdout == b"v" * 5000


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_others_is_left_alone(kind: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ssd"
    path.mkdir()
    (path / "letters").write_text("dear")
    assert "letters" in refused(kind, path)
    (path / "letters").unlink()
    (path / "penstock").write_text("something else\n")
    assert "is not one of penstock's" in refused(kind, path)


@pytest.mark.parametrize("kind", KINDS)
def test_another_format_is_left_alone(kind: str, ours: pathlib.Path) -> None:
    marker = ours / "penstock"
    text = marker.read_text()
    version = text.split("\n")[0].split()[-1]
    marker.write_text(text.replace(f"penstock ssd {version}\n", "penstock ssd 999\n", 1))
    said = refused(kind, ours)
    assert "format 999" in said and f"format {version}" in said
    marker.write_text(text.replace("seed", "sead", 1))
    assert "damaged" in refused(kind, ours)
    marker.write_text(text)
    assert support.penstock("--url", url(ours), "get", "k").stdout == b"v" * 5000


@pytest.mark.parametrize("kind", KINDS)
def test_more_than_the_disk_has_is_refused(kind: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ssd"
    path.mkdir()
    said = refused(kind, path, str((shutil.disk_usage(path).free >> 21 << 21) + (10 << 30)))
    assert "MiB more are needed" in said
    assert not list(path.glob("segment-*"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_does_not_shrink(kind: str, ours: pathlib.Path) -> None:
    assert "does not shrink" in refused(kind, ours, "32M")


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_has_one_store_at_a_time(kind: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ssd"
    with support.start_node("--listen", "127.0.0.1:0", *node_options(path)[2:]) as node:
        done = support.penstock("--url", node.tcp, "put", "k", "--durable", stdin=b"v" * 5000)
        assert done.returncode == 0, done
        support.wait_until("the node writes no more", lambda: contents(path) == (time.sleep(0.3) or contents(path)))
        assert f"in use by process {node.pid}" in refused(kind, path)
        assert support.penstock("--url", node.tcp, "get", "k").stdout == b"v" * 5000
        node.stop()


def test_a_value_with_an_end_is_not_durable(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ssd"
    with support.start_node("--listen", "127.0.0.1:0", "--ttl", "soon/=3600000", *node_options(path)[2:]) as node:
        for key, more, why in (("k", ["--ttl", "3600000"], "durable"), ("soon/k", [], "soon/k")):
            done = support.penstock("--url", node.tcp, "put", key, "--durable", *more, stdin=b"v" * 5000)
            assert done.returncode != 0 and why in done.stderr.decode(), done
        assert support.penstock("--url", node.tcp, "exists", "k").returncode != 0
        done = support.penstock("--url", node.tcp, "put", "soon/k", stdin=b"v" * 5000)
        assert done.returncode == 0, done
        done = support.penstock("--url", node.tcp, "flush")
        assert done.returncode == 0, done
        node.kill()
    assert support.penstock("--url", url(path), "exists", "soon/k").returncode != 0  # it was in memory alone


def test_an_end_makes_room_for_what_it_writes(tmp_path: pathlib.Path) -> None:
    """What is in memory at the end is more than the log has free: segments of what was overwritten are taken back first."""
    options = ["--unix", f"{tmp_path}/socket", "--shards=1", "--dram=64M", "--page-size=64K", f"--ssd={tmp_path}/ssd",
               "--ssd-bytes=128M", "--ssd-segment=4M"]
    files = {f"{name}/{i}": os.urandom(1 << 20) for name, count in (("old", 8), ("new", 40)) for i in range(count)}
    for name, value in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(value)

    def run(*arguments: str) -> None:
        done = support.penstock("--url", f"node://{tmp_path}/socket", *arguments)
        assert done.returncode == 0, (arguments, done.stderr)

    with support.start_node(*options) as node:
        for _ in range(20):
            run("put", "-r", f"{tmp_path}/old", "old")
            run("flush")
        run("put", "-r", f"{tmp_path}/new", "new")
        node.stop()
    (tmp_path / "got").mkdir()
    with support.start_node(*options):
        for name in "old", "new":
            run("get", "-r", name, f"{tmp_path}/got/{name}")
    got = {name: (tmp_path / "got" / name).read_bytes() for name in files if (tmp_path / "got" / name).exists()}
    assert sorted(got) == sorted(files) and got == files


@pytest.mark.parametrize("fault", ["disk_write_eio", "disk_write_enospc"])
def test_an_end_tries_again_what_failed(tmp_path: pathlib.Path, fault: str) -> None:
    """One write fails while all is flushed: what was in it goes elsewhere."""
    options = ["--unix", f"{tmp_path}/socket", "--shards=1", "--dram=16M", "--page-size=64K", f"--ssd={tmp_path}/ssd",
               "--ssd-bytes=64M", "--ssd-segment=2M"]
    address, keys = f"node://{tmp_path}/socket", [f"k{i}" for i in range(50)]
    with support.start_node(*options) as node:
        node.stop()
    with support.start_node(*options, environment={"PENSTOCK_FAULTS": f"{fault}:nth=5"}, within=support.faulty()) as node:
        for key in keys:
            assert support.penstock("--url", address, "put", key, stdin=key.encode() * 20000).returncode == 0
        node.stop()
        assert "could be written" not in node.log()
    with support.start_node(*options):
        assert [key for key in keys if support.penstock("--url", address, "get", key).stdout != key.encode() * 20000] == []


def test_an_end_says_what_it_could_not_write(tmp_path: pathlib.Path) -> None:
    """More in memory than the SSD takes at all: the end tells it, and what the SSD has is right."""
    options = ["--unix", f"{tmp_path}/socket", "--shards=2", "--dram=64M", "--page-size=64K", f"--ssd={tmp_path}/ssd",
               "--ssd-bytes=16M", "--ssd-segment=2M"]
    value, keys = os.urandom(1 << 20), [f"k{i}" for i in range(40)]
    with support.start_node(*options) as node:
        for key in keys:
            assert support.penstock("--url", f"node://{tmp_path}/socket", "put", key, stdin=value).returncode == 0
        node.stop()
        assert "ssd: not all that was in memory could be written: No space left on device" in node.log()
    with support.start_node(*options):
        got = [support.penstock("--url", f"node://{tmp_path}/socket", "get", key) for key in keys]
    assert {done.stdout for done in got if done.returncode == 0} == {value}


def test_a_full_ssd_whose_shards_become_more(tmp_path: pathlib.Path) -> None:
    """Fewer files than shards are free: they empty theirs together, and lend each other what can be written to."""
    options = ["--unix", f"{tmp_path}/socket", "--dram", "16M", "--page-size", "64K", "--ssd", f"{tmp_path}/ssd", "--ssd-bytes",
               "24M", "--ssd-segment", "1M"]
    address = ("--url", f"node+unix://{tmp_path}/socket")
    with support.start_node(*options, "--shards", "1") as node:
        assert support.penstock(*address, "bench", "--op", "put", "--size", "20000", "--keys", "1000", "--fill").returncode == 0
        assert support.penstock(*address, "flush").returncode == 0
        node.kill()
    deleted: set[bytes] = set()
    for shards in (4, 8, 2, 4):
        with support.start_node(*options, "--shards", str(shards)) as node:
            keys = support.penstock(*address, "ls").stdout.split()
            assert not deleted & set(keys)
            deleted |= set(keys[:200])
            assert support.penstock(*address, "rm", *keys[:200]).returncode == 0
            flushed = support.penstock(*address, "flush")
            assert flushed.returncode == 0, f"{shards} shards: {flushed.stderr.decode()}"
            node.kill()
