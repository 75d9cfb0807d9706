# SPDX-License-Identifier: Apache-2.0
"""--in-place: files of a tree get their place one by one, each whole, and the old ones make room for the new."""
from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess

import pytest
from data_store import DataStore
from support import BUILD, clean_environment, wait_until
from trees import run_tree, small_disk, state_of, tree_url

MIB = 1 << 20
NO_SPACE = 3


def run_data(*arguments: object) -> None:
    subprocess.run([BUILD / "penstock", "data", *map(str, arguments)], check=True, timeout=120, stdin=subprocess.DEVNULL,
                   env=clean_environment())


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "tree"
    (root / "sub/deep").mkdir(parents=True)
    (root / "none").mkdir()
    random.seed(3)
    for name, size in (("large", 3 * MIB), ("sub/small", 5), ("sub/deep/empty", 0), ("sub/deep/middle", 300_000)):
        (root / name).write_bytes(random.randbytes(size))
    (root / "link").symlink_to("sub/small")
    (root / "none").chmod(0o500)
    (root / "sub/small").chmod(0o640)
    os.utime(root / "none", ns=(1, 10**18))
    os.utime(root / "sub/deep", ns=(1, 10**18))
    return root


def test_there_and_back(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    remote, out = tree_url(store), tmp_path / "out"
    for _ in range(2):
        run_tree("--in-place", "put", tree, remote)
        assert state_of(store.files / "m") == state_of(tree)
        run_tree("--in-place", "get", remote, out)
        assert state_of(out) == state_of(tree)
        (tree / "large").write_bytes(random.randbytes(MIB) + (tree / "large").read_bytes()[MIB:])
        (tree / "sub/small").write_bytes(b"other")
        (tree / "sub/deep/empty").write_bytes(b"not any more")
    assert not list(tmp_path.rglob(".penstock-*"))
    run_tree("--in-place", "get", f"{remote}/sub/small", tmp_path / "file")  # a file has one place
    assert (tmp_path / "file").read_bytes() == b"other"
    assert "--in-place" in run_tree("--in-place", "--group", "g", "broadcast", remote, out, code=2)


@pytest.mark.parametrize("transport", ["native", "rsync"])
def test_there_and_back_by_either_transport(store: DataStore, tree: pathlib.Path, transport: str, tmp_path: pathlib.Path) -> None:
    where = ["--store", f"http://127.0.0.1:{store.http_port}", "--rsync", f"127.0.0.1:{store.rsync_port}", "--in-place",
             "--transport", transport]
    (tree / "link").unlink()  # rsync puts what it leads to
    (tree / "none").rmdir()
    (tmp_path / "out").mkdir()
    for _ in range(2):
        run_data("put", *where, "m", tree, "--contents")
        run_data("get", *where, "m", tmp_path / "out")
        run_data("get", *where, "m", tmp_path / "inside", "--contents")
        run_data("get", *where, "m/sub/small", tmp_path / "out")
        expected = {path.relative_to(tree): path.read_bytes() for path in tree.rglob("*") if path.is_file()}
        for folder in (tmp_path / "out/m", tmp_path / "inside"):
            assert {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()} == expected
        assert (tmp_path / "out/small").read_bytes() == (tree / "sub/small").read_bytes()
        (tree / "sub/small").write_bytes(b"other one")
    assert not list(tmp_path.rglob(".penstock-*"))


def test_old_files_make_room_for_new_ones(store: DataStore, tmp_path: pathlib.Path) -> None:
    remote, tree = tree_url(store), tmp_path / "tree"
    tree.mkdir()

    def change() -> None:
        for number in range(8):
            (tree / str(number)).write_bytes(random.randbytes(4 * MIB))
        run_tree("put", tree, remote)

    change()
    with small_disk(tmp_path / "small", 48):
        out = tmp_path / "small/m"
        run_tree("get", remote, out)
        change()
        run_tree("get", remote, out, code=NO_SPACE)
        run_tree("--in-place", "get", remote, out)
        assert state_of(out) == state_of(tree)


def test_what_breaks_off_is_there_in_part_and_goes_on(store: DataStore, tmp_path: pathlib.Path) -> None:
    remote, tree, out = tree_url(store), tmp_path / "tree", tmp_path / "out"
    tree.mkdir()
    for number in range(40):
        (tree / f"{number:02}").write_bytes(random.randbytes(4 * MIB))
    run_tree("put", tree, remote)
    process = subprocess.Popen([BUILD / "penstock", "tree", "--in-place", "get", remote, out], env=clean_environment())
    wait_until("a file is there", lambda: (out / "03").exists() or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    there = sorted(out.iterdir())
    assert there and all(path.read_bytes() == (tree / path.name).read_bytes() for path in there)
    run_tree("--in-place", "get", remote, out)
    assert state_of(out) == state_of(tree) and not list(tmp_path.glob(".penstock-*"))
