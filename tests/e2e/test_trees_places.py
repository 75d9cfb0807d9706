# SPDX-License-Identifier: Apache-2.0
"""Where trees go: mounted folders, links to folders, folders in others' own, and entries that have become something else."""
from __future__ import annotations

import os
import pathlib
import random
import shutil
import tempfile

import pytest
from data_store import DataStore, files_of
from trees import run_tree, small_disk, state_of, tree_url

MIB = 1 << 20
NOBODY, OTHER = 65534, 7


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "tree"
    (root / "sub/deep").mkdir(parents=True)
    (root / "large").write_bytes(random.randbytes(MIB))
    (root / "sub/file").write_bytes(random.randbytes(200_000))
    (root / "sub/deep/small").write_bytes(b"12345")
    (root / "sub/link").symlink_to("file")
    with (root / "sub/sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(4 * MIB)
        file.write(b"middle")
        file.truncate(8 * MIB)
    (root / "sub/deep").chmod(0o555)
    os.utime(root / "sub/file", ns=(1, 10**18))
    return root


@pytest.mark.parametrize("how", [[], ["--in-place"]], ids=["whole", "in-place"])
@pytest.mark.parametrize("where", ["out", "out/sub"])
def test_a_mounted_folder(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path, where: str, how: list[str]) -> None:
    """It is the destination, or within it."""
    with small_disk(tmp_path / where, 32):
        for _ in range(2):
            run_tree("put", tree, tree_url(store))
            run_tree(*how, "get", tree_url(store), tmp_path / "out")
            assert state_of(tmp_path / "out") == state_of(tree)
            assert (tmp_path / "out/sub/sparse").stat().st_blocks * 512 < MIB
            run_tree(*how, "get", tree_url(store), tmp_path / "out")
            (tree / "sub/file").write_bytes(random.randbytes(300_000))
            (tree / "sub/link").unlink()
            (tree / "sub/link").symlink_to("deep/small")
        assert not list(tmp_path.rglob(".penstock*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user")
def test_a_folder_in_one_of_others(store: DataStore, tree: pathlib.Path) -> None:
    run_tree("put", tree, tree_url(store))
    with tempfile.TemporaryDirectory(prefix="penstock-test-", dir="/tmp") as name:
        out = pathlib.Path(name) / "out"
        pathlib.Path(name).chmod(0o755)
        out.mkdir()
        os.chown(out, NOBODY, NOBODY)
        run_tree("get", tree_url(store), out, user=NOBODY)
        assert state_of(out) == state_of(tree) and os.listdir(name) == ["out"]


def test_a_folder_by_another_name(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "link").symlink_to("tree")
    (tmp_path / "to").symlink_to("out")
    run_tree("put", tmp_path / "link", tree_url(store))
    for name, cwd in ((tmp_path / "to", tmp_path), ("to/", tmp_path), (".", out), ("./", out), ("sub/..", out)):
        shutil.rmtree(out / "sub/deep", ignore_errors=True)
        run_tree("get", tree_url(store), name, cwd=cwd)
        assert state_of(out) == state_of(tree)
    run_tree("put", ".", tree_url(store, "again"), cwd=out)
    assert state_of(store.files / "again") == state_of(tree)
    assert (tmp_path / "to").is_symlink() and not list(tmp_path.rglob(".penstock*"))


@pytest.mark.parametrize("how", [[], ["--in-place"]], ids=["whole", "in-place"])
def test_what_becomes_something_else(store: DataStore, tmp_path: pathlib.Path, how: list[str]) -> None:
    tree, there = tmp_path / "tree", store.files / "m"
    tree.mkdir()
    (tree / "a").write_text("1")
    (tree / "x").write_text("a file")
    (tree / "y").symlink_to("a")
    (tree / "z").write_text("1")
    run_tree("put", tree, tree_url(store))
    for name in ("x", "y"):
        (tree / name).unlink()
        (tree / name).mkdir()
        (tree / name / "in").write_text("it")
    (tree / "a").write_text("22")
    run_tree(*how, "put", tree, tree_url(store))
    assert files_of(there) == files_of(tree)
    for name in ("x", "y"):  # the folder may have what nobody else knows of: all stays as it was
        old = files_of(there)
        shutil.rmtree(tree / name)
        if name == "x":
            (tree / name).write_text("a file again")
        else:
            (tree / name).symlink_to("a")
        (tree / "a").write_text("333")
        assert f"m/{name}: Is a directory" in run_tree(*how, "put", tree, tree_url(store), code=OTHER)
        assert files_of(there) == old
        shutil.rmtree(there / name)
        run_tree(*how, "put", tree, tree_url(store))
        assert files_of(there) == files_of(tree)
