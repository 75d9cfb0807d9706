# SPDX-License-Identifier: Apache-2.0
"""penstock tree with trees that lie in a node or a pool, as values."""
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
from typing import Any, Iterator

import pytest
from home_pool import Pool, pool
from members import master, member
from support import Node, penstock, start_node, wait_until
from trees import make_tree, start_tree, state_of

MIB = 1 << 20
NOT_FOUND, USAGE, NO_SPACE, UNREACHABLE, CORRUPT, OTHER = 1, 2, 3, 5, 6, 7


def start(action: str, *arguments: object) -> subprocess.Popen[str]:
    return start_tree("--json", action, *arguments)


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    """What it printed, or what it says as it fails with `code`."""
    out, error = process.communicate(timeout=180)
    assert process.returncode == code, (process.returncode, out, error)
    return error if code else out


def run(action: str, *arguments: object) -> dict[str, Any]:
    """The figures of a command."""
    return json.loads(ended(start(action, *arguments)) or "{}")


def fails(action: str, *arguments: object, code: int) -> str:
    return ended(start(action, *arguments), code)


def names(url: str) -> list[str]:
    return [json.loads(line)["name"] for line in ended(start("ls", url)).splitlines()]


def keys(url: str, prefix: str) -> list[str]:
    said = penstock("--url", url, "ls", prefix)
    assert said.returncode == 0, said.stderr
    return said.stdout.decode().splitlines()


def put_value(url: str, key: str, value: bytes) -> None:
    said = penstock("--url", url, "put", key, stdin=value)
    assert said.returncode == 0, said.stderr


def remove(url: str, key: str) -> None:
    said = penstock("--url", url, "rm", key)
    assert said.returncode == 0, said.stderr


def figure(url: str, name: str) -> int:
    return json.loads(penstock("--url", url, "stat", "--json").stdout)[name]


def key_of(data: bytes) -> str:
    return f"chunk/{hashlib.sha256(data).hexdigest()}"


@pytest.fixture(params=["tcp", "unix"])
def either(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[str]:
    """A node's URL."""
    listens = "--listen=127.0.0.1:0" if request.param == "tcp" else f"--unix={tmp_path}/socket"
    with start_node(listens, "--dram=256M") as it:
        yield it.tcp if request.param == "tcp" else f"node+unix://{tmp_path}/socket"


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Iterator[str]:
    with start_node(f"--unix={tmp_path}/socket", "--dram=512M") as _:
        yield f"node+unix://{tmp_path}/socket"


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    return make_tree(tmp_path / "tree")


@contextlib.contextmanager
def caught(url: str, lock: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A put that holds its lock and is stopped, until the block ends."""
    for _ in range(50):
        process = start("put", *arguments)
        wait_until("a lock or an end", lambda: process.poll() is not None or keys(url, lock))
        process.send_signal(signal.SIGSTOP)
        if process.poll() is None and keys(url, lock):
            break
        process.send_signal(signal.SIGCONT)
        ended(process)
    else:
        raise AssertionError("no put was caught in its middle")
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.wait(180)


def test_a_tree_there_and_back(either: str, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    told = run("put", tree, f"{either}/team/m")
    assert told["files"] == 10 and told["moved"] == told["bytes"] and told["matched"] == 0
    run("get", f"{either}/team/m", tmp_path / "out")
    assert state_of(tmp_path / "out") == state_of(tree)
    assert run("get", f"{either}/team/m", tmp_path / "out")["moved"] == 0
    assert not list(tmp_path.rglob(".penstock*"))
    assert names(either) == ["team/m"] and keys(either, "tree-") == []
    listed = [json.loads(line) for line in ended(start("ls", f"{either}/team/m")).splitlines()]
    assert {each["path"]: (each["kind"], each["bytes"]) for each in listed}["a file"] == ("file", 300_000)
    paths = {each["path"].encode("latin-1").decode() for each in listed}  # JSON has its bytes
    assert paths == {"", *(str(p.relative_to(tree)) for p in tree.rglob("*"))}


def test_what_is_no_file_is_left_out_and_told(node: str, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    os.mkfifo(tree / "pipe")
    process = start("put", tree, f"{node}/m")
    assert "left out: 1 name" in process.communicate(timeout=60)[1] and process.returncode == 0
    run("get", f"{node}/m", tmp_path / "out")
    assert set(os.listdir(tree)) - set(os.listdir(tmp_path / "out")) == {"pipe"}


def test_a_get_that_has_no_place_leaves_nothing(node: str, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    run("put", tree, f"{node}/m")
    (tmp_path / "file").write_text("a file")
    assert "Not a directory" in fails("get", f"{node}/m", tmp_path / "file", code=OTHER)
    assert (tmp_path / "file").read_text() == "a file" and not list(tmp_path.glob(".penstock*"))


def test_a_file_is_a_tree(node: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "one").write_bytes(b"one")
    run("put", tmp_path / "one", f"{node}/one")
    run("get", f"{node}/one", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"one"
    (tmp_path / "one").write_bytes(b"")
    run("put", tmp_path / "one", f"{node}/one")
    run("get", f"{node}/one", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b""


@pytest.mark.parametrize("how", [[], ["--in-place"]])
def test_only_what_has_changed_moves(node: str, tmp_path: pathlib.Path, how: list[str]) -> None:
    file, chunk = tmp_path / "tree/file", 256 << 10
    file.parent.mkdir()
    file.write_bytes(random.Random(2).randbytes(32 * MIB))
    assert run("put", file.parent, f"{node}/m")["moved"] == 32 * MIB
    run("get", f"{node}/m", tmp_path / "out")
    with open(file, "r+b") as changed:
        changed.seek(10 * MIB)
        changed.write(random.Random(3).randbytes(MIB // 3))
    told = run("put", file.parent, f"{node}/m")
    assert MIB // 3 <= told["moved"] <= MIB // 3 + 3 * chunk and told["matched"] == 32 * MIB - told["moved"]
    back = run("get", f"{node}/m", tmp_path / "out", *how)
    assert back["moved"] == told["moved"] and back["matched"] == told["matched"]
    assert state_of(tmp_path / "out") == state_of(file.parent)


def test_files_that_have_not_changed_are_not_read(node: str, tmp_path: pathlib.Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("a", "b"):
        (tree / name).write_bytes(random.Random(name).randbytes(MIB))
    (tree / "small").write_bytes(b"old")
    run("put", tree, f"{node}/m")
    before = state_of(tree)
    (tree / "small").write_bytes(b"new")
    times = (tree / "a").stat()
    (tree / "a").write_bytes(bytes(MIB))
    os.utime(tree / "a", ns=(times.st_atime_ns, times.st_mtime_ns))
    told = run("put", tree, f"{node}/m")
    assert told["moved"] == 3 and told["matched"] == 2 * MIB
    run("get", f"{node}/m", tmp_path / "out")
    assert state_of(tmp_path / "out")["a"] == before["a"] and state_of(tmp_path / "out")["small"] == state_of(tree)["small"]
    remove(node, key_of(b"new"))
    for key in keys(node, "chunk/")[::2]:  # what is missing is read, and put
        remove(node, key)
    (tree / "a").write_bytes(before["a"][0])
    os.utime(tree / "a", ns=(times.st_atime_ns, times.st_mtime_ns))
    run("put", tree, f"{node}/m")
    assert run("get", f"{node}/m", tmp_path / "again")["bytes"] == 2 * MIB + 3
    assert state_of(tmp_path / "again") == state_of(tree)
    (tree / "a").write_bytes(bytes(MIB))
    os.utime(tree / "a", ns=(times.st_atime_ns, times.st_mtime_ns))
    run("put", tree, f"{node}/m", "--force")
    run("get", f"{node}/m", tmp_path / "forced")
    assert (tmp_path / "forced/a").read_bytes() == bytes(MIB)


def test_bytes_put_in_move_few_chunks(node: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "file"
    data = random.Random(4).randbytes(8 * MIB)
    file.write_bytes(data)
    run("put", file, f"{node}/m")
    file.write_bytes(data[:MIB] + b"put in" + data[MIB:])
    assert run("put", file, f"{node}/m")["moved"] < MIB


def test_trees_share_what_they_both_have(node: str, tmp_path: pathlib.Path) -> None:
    for name, own in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shared").write_bytes(random.Random(5).randbytes(4 * MIB))
        (tmp_path / name / "own").write_bytes(random.Random(own).randbytes(100))
    run("put", tmp_path / "a", f"{node}/a")
    before = len(keys(node, "chunk/"))
    told = run("put", tmp_path / "b", f"{node}/b")
    assert told["moved"] == 100 and told["matched"] == 4 * MIB
    assert len(keys(node, "chunk/")) == before + 2  # its own file, its list
    run("rm", f"{node}/a")
    run("prune", node)
    run("get", f"{node}/b", tmp_path / "out")
    assert state_of(tmp_path / "out") == state_of(tmp_path / "b")


def test_small_files_travel_together(node: str, tmp_path: pathlib.Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    for i in range(2000):
        (root / f"{i}").write_bytes(random.Random(i).randbytes(500))
    run("put", root, f"{node}/m")
    assert len(keys(node, "chunk/")) < 100
    run("get", f"{node}/m", tmp_path / "out")
    assert state_of(tmp_path / "out") == state_of(root)
    (root / "777").write_bytes(b"another")
    assert run("put", root, f"{node}/m")["moved"] < 600_000


def test_holes_stay_holes(node: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "sparse"
    with open(file, "wb") as out:
        for at in (5 * MIB, 70 * MIB):
            out.seek(at)
            out.write(b"x" * 5000)
        out.truncate(200 * MIB)
    assert run("put", file, f"{node}/s")["moved"] < MIB
    told = run("get", f"{node}/s", tmp_path / "out")
    assert told["bytes"] == 200 * MIB and (tmp_path / "out").read_bytes() == file.read_bytes()
    assert (tmp_path / "out").stat().st_blocks * 512 < MIB


def test_the_same_bytes_travel_once(node: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "zeros").write_bytes(bytes(40 * MIB))
    assert run("put", tmp_path / "zeros", f"{node}/z")["moved"] < 2 * MIB
    run("get", f"{node}/z", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == bytes(40 * MIB)


def test_in_place_and_filters(node: str, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    run("put", tree, f"{node}/m", "--filter=-large", "--filter=-sub")
    told = run("get", f"{node}/m", tmp_path / "out", "--in-place")
    assert told["files"] == 7
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in tree.iterdir()} - {"large", "sub"}


def test_a_file_that_is_the_same_is_read_only_by_force(node: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"right")
    run("put", tmp_path / "file", f"{node}/m")
    run("get", f"{node}/m", tmp_path / "out")
    times = (tmp_path / "out").stat()
    (tmp_path / "out").write_bytes(b"wrong")
    os.utime(tmp_path / "out", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert run("get", f"{node}/m", tmp_path / "out")["moved"] == 0
    assert run("get", f"{node}/m", tmp_path / "out", "--force")["moved"] == 5
    assert (tmp_path / "out").read_bytes() == b"right"


def test_a_chunk_that_is_gone(node: str, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tree / "large").write_bytes(data := random.Random(6).randbytes(10_000))
    run("put", tree, f"{node}/m")
    run("put", tree / "large", f"{node}/alone")
    remove(node, key_of(data))
    said = fails("get", f"{node}/alone", tmp_path / "alone", code=NOT_FOUND)
    assert "alone: " in said and key_of(data) in said
    assert not (tmp_path / "alone").exists()
    run("put", tree / "large", f"{node}/alone")
    run("get", f"{node}/alone", tmp_path / "alone")
    for key in keys(node, "chunk/"):
        remove(node, key)
    assert "list of tree m" in fails("get", f"{node}/m", tmp_path / "out", code=NOT_FOUND)
    assert "list of tree" in fails("prune", node, code=NOT_FOUND)  # nobody knows what it names
    run("put", tree, f"{node}/m")
    run("get", f"{node}/m", tmp_path / "out")
    assert state_of(tmp_path / "out") == state_of(tree)


def test_a_chunk_with_other_bytes(node: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(data := random.Random(7).randbytes(10_000))
    run("put", tmp_path / "file", f"{node}/m")
    put_value(node, key_of(data), bytes(10_000))
    assert "other bytes" in fails("get", f"{node}/m", tmp_path / "out", code=CORRUPT)
    put_value(node, key_of(data), bytes(10))
    assert "other bytes" in fails("get", f"{node}/m", tmp_path / "out", code=CORRUPT)
    assert "other bytes" in fails("put", tmp_path / "file", f"{node}/m", code=CORRUPT)
    assert not (tmp_path / "out").exists()


def plant(url: str, name: str, entries: list[tuple[int, int, bytes, bytes]], data: bytes) -> None:
    """A tree as another program would make it: kinds, sizes, paths and targets of its entries, and one chunk."""
    listed = b"".join(struct.pack("<BIQq", kind, 0 if kind == 3 else 0o700, size, 0) + struct.pack("<H", len(path)) + path +
                      struct.pack("<H", len(target)) + target for kind, size, path, target in entries)
    listed += struct.pack("<I", 0) + struct.pack("<I", len(data)) + hashlib.sha256(data).digest()
    files = [size for kind, size, _, _ in entries if kind == 2]
    root = struct.pack("<7sBIIIQQII", b"PSTTREE", 1, 0, len(entries), len(files), sum(files), len(data), 1, 1)
    root += struct.pack("<I", len(listed)) + hashlib.sha256(listed).digest()
    for key, value in ((key_of(data), data), (key_of(listed), listed), (f"tree/{name}", root)):
        put_value(url, key, value)


@pytest.mark.parametrize("entries", [[(2, 4, b"../evil", b"")], [(2, 4, b"/evil", b"")], [(3, 0, b"a", b".."), (2, 4, b"a/evil", b"")],
                                     [(2, 4, b"a", b""), (2, 0, b"a", b"")], [(2, 5, b"a", b"")], [(2, 4, b"a", b""), (7, 0, b"b", b"")]])
def test_no_tree_leads_outside(node: str, tmp_path: pathlib.Path, entries: list[tuple[int, int, bytes, bytes]]) -> None:
    plant(node, "good", [(1, 0, b"", b""), (2, 4, b"file", b"")], b"evil")
    (tmp_path / "in").mkdir()
    run("get", f"{node}/good", tmp_path / "in/good")
    plant(node, "m", [(1, 0, b"", b""), *entries], b"evil")
    before = state_of(tmp_path)
    assert "its list is none" in fails("get", f"{node}/m", tmp_path / "in/out", code=CORRUPT)
    assert state_of(tmp_path) == before
    put_value(node, "tree/m", b"no root")
    assert "it is no tree" in fails("get", f"{node}/m", tmp_path / "in/out", code=CORRUPT)
    assert "it is no tree" in fails("prune", node, code=CORRUPT)


def test_puts_of_one_name_at_once(node: str, tmp_path: pathlib.Path) -> None:
    for i in range(4):
        (tmp_path / f"t{i}").mkdir()
        for name in range(20):
            (tmp_path / f"t{i}/{name}").write_bytes(random.Random(100 * i + name).randbytes(100_000))
    for process in [start("put", tmp_path / f"t{i}", f"{node}/m") for i in range(4)]:
        ended(process)
    run("get", f"{node}/m", tmp_path / "out")
    assert state_of(tmp_path / "out") in [state_of(tmp_path / f"t{i}") for i in range(4)]
    assert keys(node, "tree-lock/") == []


def test_a_prune_waits_for_a_put_and_removes_nothing_that_it_relies_on(node: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").write_bytes(random.Random(8).randbytes(100 * MIB))
    run("put", tmp_path / "tree", f"{node}/m")
    remove(node, "tree/m")  # its chunks are named by nobody
    with caught(node, "tree-lock/m", tmp_path / "tree", f"{node}/m") as put:
        assert "a put is underway: tree-lock/m" in fails("prune", node, "--timeout", "500", code=OTHER)
        prune = start("prune", node, "--timeout", "60000")
        wait_until("the prune waits", lambda: keys(node, "tree-prune"))
    ended(put)
    assert json.loads(ended(prune))["chunks"] == 0
    run("get", f"{node}/m", tmp_path / "out")
    assert state_of(tmp_path / "out") == state_of(tmp_path / "tree")


def test_a_put_whose_lock_ended_says_so(node: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").write_bytes(random.Random(8).randbytes(100 * MIB))
    run("put", tmp_path / "tree", f"{node}/m")
    remove(node, "tree/m")
    with caught(node, "tree-lock/m", tmp_path / "tree", f"{node}/m") as put:
        remove(node, "tree-lock/m")  # as if it had been stopped for longer than its time
        assert run("prune", node)["chunks"] > 100
    assert "held up for too long" in ended(put, OTHER)
    run("put", tmp_path / "tree", f"{node}/m")
    run("get", f"{node}/m", tmp_path / "out")
    assert state_of(tmp_path / "out") == state_of(tmp_path / "tree")


def test_a_put_waits_for_a_prune(node: str, tree: pathlib.Path) -> None:
    put_value(node, "tree-prune", b"another one's")
    before = figure(node, "puts")
    put = start("put", tree, f"{node}/m")
    wait_until("it has taken its lock twice", lambda: figure(node, "puts") >= before + 2)
    assert put.poll() is None and keys(node, "chunk/") == []
    remove(node, "tree-prune")
    ended(put)
    assert names(node) == ["m"]


def test_a_get_of_a_tree_that_is_replaced_meanwhile(node: str, tmp_path: pathlib.Path) -> None:
    for i in range(2):
        (tmp_path / f"t{i}").mkdir()
        (tmp_path / f"t{i}/file").write_bytes(random.Random(i).randbytes(MIB))
    run("put", tmp_path / "t0", f"{node}/m")
    hidden = tmp_path / ".penstock-out.tree"
    hidden.mkdir(0o700)
    held = os.open(hidden, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)  # it has the list, and waits for its turn
    before = figure(node, "gets")
    get = start("get", f"{node}/m", tmp_path / "out")
    wait_until("it has read root and list", lambda: figure(node, "gets") >= before + 2 or get.poll() is not None)
    run("put", tmp_path / "t1", f"{node}/m")
    assert run("prune", node)["chunks"] > 2
    os.close(held)
    ended(get)
    assert state_of(tmp_path / "out") == state_of(tmp_path / "t1")


def test_a_put_that_was_killed(node: str, tmp_path: pathlib.Path) -> None:
    """The old tree stays, and the next put says what it waits for."""
    for name, size in (("old", MIB), ("new", 100 * MIB)):
        (tmp_path / name).write_bytes(random.Random(name).randbytes(size))
    run("put", tmp_path / "old", f"{node}/m")
    with caught(node, "tree-lock/m", tmp_path / "new", f"{node}/m") as put:
        put.kill()
    run("get", f"{node}/m", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "old").read_bytes()
    again = start("put", tmp_path / "new", f"{node}/m")
    assert again.stderr and "tree-lock/m: another command has it" in again.stderr.readline()
    remove(node, "tree-lock/m")  # rather than to wait for its end
    ended(again)
    run("get", f"{node}/m", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "new").read_bytes()


def test_a_store_that_is_full(tmp_path: pathlib.Path) -> None:
    url = f"node+unix://{tmp_path}/socket"
    for name, size in (("old", MIB), ("new", 40 * MIB)):
        (tmp_path / name).write_bytes(random.Random(name).randbytes(size))
    with start_node(f"--unix={tmp_path}/socket", "--dram=16M", "--page-size=64K", "--shards=1"):
        run("put", tmp_path / "old", f"{url}/m")
        assert "no space" in fails("put", tmp_path / "new", f"{url}/m", code=NO_SPACE)
        assert keys(url, "tree-") == []
        assert run("prune", url)["chunks"] > 10
        run("get", f"{url}/m", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "old").read_bytes()


def test_chunks_that_may_be_evicted(tmp_path: pathlib.Path) -> None:
    url = f"node+unix://{tmp_path}/socket"
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(random.Random(name).randbytes(10 * MIB))
    with start_node(f"--unix={tmp_path}/socket", "--dram=16M", "--page-size=64K", "--shards=1", "--class=chunk/=cache"):
        run("put", tmp_path / "one", f"{url}/one")
        run("put", tmp_path / "two", f"{url}/two")
        assert "the store does not have it any more" in fails("get", f"{url}/one", tmp_path / "out", code=NOT_FOUND)
        assert not (tmp_path / "out").exists()
        run("rm", f"{url}/two")
        assert 0 < run("put", tmp_path / "one", f"{url}/one")["moved"]
        run("get", f"{url}/one", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "one").read_bytes()


def test_rm_and_prune(node: str, tree: pathlib.Path) -> None:
    put_value(node, "chunk/of somebody else", b"x")
    run("put", tree, f"{node}/m")
    count = len(keys(node, "chunk/"))
    assert run("prune", node) == {"chunks": 0, "bytes": 0, "kept": count - 1}
    run("rm", f"{node}/m")
    assert "there is no such tree" in fails("rm", f"{node}/m", code=NOT_FOUND)
    assert "there is no such tree" in fails("get", f"{node}/m", "out", code=NOT_FOUND)
    told = run("prune", node)
    assert told["chunks"] == count - 1 and told["kept"] == 0 and told["bytes"] > 3 * MIB
    assert keys(node, "") == ["chunk/of somebody else"]


def test_arguments_that_are_none(node: str, tree: pathlib.Path) -> None:
    for arguments in (("put", tree, node), ("get", node, "out"), ("prune", f"{node}/m"), ("rm", node), ("ls", "tree://127.0.0.1:1/m"),
                      ("ls", "node+unix:///no/where"), ("put", tree, f"{node}/m", "--in-place"), ("rm", f"{node}/m", "--force"), ("get", f"{node}/m", "out", "--filter", "-x"),
                      ("put", tree, f"{node}/{'m' * 1025}"), ("get", f"{node}/m"), ("ls", "pool:///m"), ("broadcast", f"{node}/m", "out"),
                      ("put", tree, f"{node}/m", "--group", "g")):
        fails(*map(str, arguments), code=USAGE)
    assert keys(node, "") == []


def test_durable(node: str, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    fails("put", tree, f"{node}/m", "--durable", code=OTHER)  # it has no SSD
    assert names(node) == []
    ssd = ["--dram=64M", f"--ssd={tmp_path}/ssd", "--ssd-bytes=256M", "--ssd-segment=2M"]
    with start_node(f"--unix={tmp_path}/other", *ssd) as it:
        run("put", tree, f"node+unix://{tmp_path}/other/m", "--durable")
        it.kill()
    with start_node(f"--unix={tmp_path}/other", *ssd):
        run("get", f"node+unix://{tmp_path}/other/m", tmp_path / "out")
    assert state_of(tmp_path / "out") == state_of(tree)


# ---- pools ----


class LargePool(Pool):
    """With room for chunks of all sizes."""

    def node(self, number: int) -> Node:
        return member(self.master, f"--host=h{number}", "--replica-ms=1000", "--dram=256M")


@pytest.fixture
def three(tmp_path: pathlib.Path) -> Iterator[Pool]:
    """Roots have a home and a copy, chunks lie on any two nodes."""
    (tmp_path / "pool").mkdir()
    with pool(tmp_path / "pool", 2, "--place=chunk/=anywhere:2", kind=LargePool) as it:
        yield it


def test_a_tree_in_a_pool(three: Pool, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    told = run("put", tree, f"{three.url}/team/m")
    assert told["moved"] == told["bytes"]
    assert run("put", tree, f"{three.url}/other?replicas=2")["moved"] == 0
    run("get", f"{three.url}/team/m", tmp_path / "out")
    assert state_of(tmp_path / "out") == state_of(tree)
    assert names(three.url) == ["other", "team/m"]
    assert run("prune", three.url)["chunks"] == 0
    run("rm", f"{three.url}/team/m")
    run("rm", f"{three.url}/other")
    assert run("prune", three.url)["kept"] == 0 and keys(three.url, "") == []


def test_a_node_dies_while_a_tree_is_read(three: Pool, tmp_path: pathlib.Path) -> None:
    (tmp_path / "tree").mkdir()
    for name in range(10):
        (tmp_path / f"tree/{name}").write_bytes(random.Random(name).randbytes(3 * MIB))
    run("put", tmp_path / "tree", f"{three.url}/m")
    hidden = tmp_path / ".penstock-out.tree"
    hidden.mkdir(0o700)
    held = os.open(hidden, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)  # the get has its session with the pool, and waits for its turn
    get = start("get", f"{three.url}/m", tmp_path / "out")
    wait_until("it has the folder open", lambda: get.poll() is not None or any(
        os.path.realpath(f"/proc/{get.pid}/fd/{fd}") == str(tmp_path) for fd in os.listdir(f"/proc/{get.pid}/fd")))
    three.kill(1)
    os.close(held)
    ended(get)
    assert state_of(tmp_path / "out") == state_of(tmp_path / "tree")


def test_a_node_dies_while_a_tree_is_put(three: Pool, tmp_path: pathlib.Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").write_bytes(random.Random(9).randbytes(60 * MIB))
    with caught(three.url, "tree-lock/m", tmp_path / "tree", f"{three.url}/m") as put:
        three.kill(three.holder("tree-lock/m", 0))
    ended(put)
    run("get", f"{three.url}/m", tmp_path / "out")
    assert state_of(tmp_path / "out") == state_of(tmp_path / "tree")
    wait_until("a prune", lambda: start("prune", three.url).wait(60) == 0)
    assert run("put", tmp_path / "tree", f"{three.url}/m")["moved"] == 0
    assert keys(three.url, "tree-") == []


def test_a_pool_that_has_lost_roots_is_not_pruned(tmp_path: pathlib.Path, tree: pathlib.Path) -> None:
    with pool(tmp_path, 1, "--place=chunk/=anywhere:2", "--incomplete-ms=500") as p:
        run("put", tree, f"{p.url}/m")
        lost = p.holder("tree/m", 0)
        lock_is_lost = p.holder("tree-prune", 0) == lost
        p.nodes[lost].kill()
        wait_until("it is a member no more", lambda: len(p.master.members()) == 2)
        chunks = keys(p.url, "chunk/")
        if lock_is_lost:  # it cannot tell whether another prune is underway
            assert "tree-prune: not all of the pool has reported" in fails("prune", p.url, "--timeout", "1000", code=OTHER)
        else:
            assert "keys would be missing" in fails("prune", p.url, "--timeout", "1000", code=UNREACHABLE)
        p.nodes.append(p.node(3))
        wait_until("it is known what is lost", lambda: p.master.ask("partitions")["served"] == 4096)
        assert "lost values" in fails("prune", p.url, code=OTHER)
        assert keys(p.url, "chunk/") == chunks
        assert penstock("--url", p.url, "node", "forgive").returncode == 0
        assert run("prune", p.url)["kept"] == 0


def test_a_pool_that_orders_no_writes_of_roots(tmp_path: pathlib.Path, tree: pathlib.Path) -> None:
    with master(tmp_path) as m, member(m):
        m.has(1)
        said = fails("put", tree, f"pool://{m.address}/m", code=OTHER)
        assert "--place tree=home" in said
