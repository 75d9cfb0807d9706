# SPDX-License-Identifier: Apache-2.0
"""Where trees go: mounted folders, links to folders, folders in others' own, and entries that have become something else."""
from __future__ import annotations

import os
import pathlib
import random
import shutil
import subprocess
import tempfile

import pytest
from data_store import DataStore, files_of
from support import wait_until
from trees import SlowWay, run_tree, small_disk, start_tree, state_of, tree_url

MIB = 1 << 20
NOBODY, NO_SPACE, OTHER = 65534, 3, 7


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


def test_a_folder_that_comes_meanwhile_where_a_file_belongs(store: DataStore, tmp_path: pathlib.Path) -> None:
    """Nothing is changed by a tree that cannot be all there."""
    tree, small = tmp_path / "tree", tmp_path / "small"
    tree.mkdir()
    for name, size in (("a", 1), ("x", 12), ("z", 8 * MIB)):
        (tree / name).write_bytes(random.randbytes(size))
    small.write_text("another's")
    with SlowWay(store.tree_port, up=True) as way:
        process = start_tree("put", tree, tree_url(store, "k", way.port))
        wait_until("it arrives", lambda: (store.files / ".penstock-k.tree/tree/x").exists())
        run_tree("put", small, tree_url(store, "k/x/y"))
        way.open()
        said = process.communicate(timeout=60)[1]
    assert process.returncode == OTHER and "x: Is a directory" in said, said
    assert files_of(store.files / "k") == {"x/y": b"another's"}


def test_a_tree_that_is_deleted_while_another_comes(store: DataStore, tmp_path: pathlib.Path) -> None:
    """All of the other one is on its way, and nothing of the first is needed."""
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub/a").write_text("1")
    run_tree("put", tree, tree_url(store))
    (tree / "sub/a").write_text("22")
    (tree / "z").write_bytes(random.randbytes(8 * MIB))
    with SlowWay(store.tree_port, up=True) as way:
        process = start_tree("put", tree, tree_url(store, port=way.port))
        wait_until("it arrives", lambda: list(store.files.glob(".penstock-m.tree/tree/sub/a")))
        assert store.key("DELETE", "m", "?recursive=true")[0] == 200
        way.open()
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said
    assert files_of(store.files / "m") == files_of(tree)


def test_a_mounted_key_that_is_full_gets_free(store: DataStore, tmp_path: pathlib.Path) -> None:
    large, tree = tmp_path / "large", tmp_path / "tree"
    for folder, size in ((large, 20 * MIB), (tree, MIB)):
        folder.mkdir()
        (folder / "file").write_bytes(random.randbytes(size))
    with small_disk(store.files / "k", 10):
        run_tree("put", large, tree_url(store, "k"), code=NO_SPACE)
        wait_until("nothing of it is left", lambda: not os.listdir(store.files / "k"))
        run_tree("put", tree, tree_url(store, "k"))
        assert files_of(store.files / "k") == files_of(tree)
        assert store.key("DELETE", "k", "?recursive=true")[0] == 503  # the mounted folder stays, without what it had
        assert os.listdir(store.files / "k") == []


def test_what_another_tree_has_left_makes_room(store: DataStore, tmp_path: pathlib.Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    with small_disk(tmp_path / "disk", 10):
        for name, size, code in (("step-1", 20 * MIB, NO_SPACE), ("step-2", 3 * MIB, 0)):
            for old in tree.iterdir():
                old.unlink()
            (tree / name).write_bytes(random.randbytes(size))
            store.key("DELETE", "k", "?recursive=true")
            run_tree("put", tree, tree_url(store, "k"))
            run_tree("get", tree_url(store, "k"), tmp_path / "disk/k", code=code)
        assert files_of(tmp_path / "disk") == {"k/step-2": (tree / "step-2").read_bytes()}


@pytest.mark.parametrize("name", [".penstock-m.tree", "a/.penstock-x", ".penstock-partial/b"])
def test_names_of_what_has_not_arrived_are_no_keys(store: DataStore, name: str) -> None:
    assert store.key("POST", name, "/mkdir")[0] == 400
    assert store.key("GET", name)[0] == 400


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user")
@pytest.mark.parametrize("owner, follows", [(NOBODY, False), (0, True)])
def test_only_links_of_its_own_are_followed(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path, owner: int,
                                            follows: bool) -> None:
    run_tree("put", tree, tree_url(store))
    (tmp_path / "secret").mkdir()
    (tmp_path / "out").symlink_to("secret")
    os.lchown(tmp_path / "out", owner, owner)
    run_tree("get", tree_url(store), tmp_path / "out", code=0 if follows else OTHER)
    assert bool(os.listdir(tmp_path / "secret")) == follows


def test_another_mount_of_one_disk(store: DataStore, tmp_path: pathlib.Path) -> None:
    """What arrives lies where it belongs from the beginning: such volumes have bounds of their own."""
    (tmp_path / "f").write_bytes(random.randbytes(8 * MIB))
    for name in ("volume", "out"):
        (tmp_path / name).mkdir()
    tree = tmp_path / "tree"
    tree.mkdir()
    (tmp_path / "f").rename(tree / "f")
    run_tree("put", tree, tree_url(store))
    if subprocess.run(["mount", "--bind", tmp_path / "volume", tmp_path / "out"], capture_output=True).returncode:
        pytest.skip("mounts are not allowed here")
    try:
        with SlowWay(store.tree_port) as way:
            process = start_tree("get", tree_url(store, port=way.port), tmp_path / "out")
            wait_until("it arrives", lambda: list((tmp_path / "volume").glob(".penstock-.tree/fresh-*")))
            assert not list(tmp_path.glob(".penstock-*"))
            way.open()
            assert process.wait(60) == 0
        assert files_of(tmp_path / "volume") == files_of(tree)
    finally:
        subprocess.run(["umount", "-l", tmp_path / "out"], check=True)


@pytest.mark.parametrize("how", [[], ["--in-place"]], ids=["whole", "in-place"])
def test_a_mode_that_changes_between_two_tries(store: DataStore, tmp_path: pathlib.Path, how: list[str]) -> None:
    """Neither size nor time tells of it."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_bytes(b"secret")
    (tree / "a").chmod(0o666)
    (tree / "b").write_bytes(random.randbytes(8 * MIB))
    arriving = store.files / ("m" if how else ".penstock-m.tree/tree")
    with SlowWay(store.tree_port, up=True) as way:
        process = start_tree(*how, "put", tree, tree_url(store, port=way.port))
        wait_until("the first is there", (arriving / "a").exists)
        process.kill()
        process.communicate()
    (tree / "a").chmod(0o600)
    run_tree(*how, "put", tree, tree_url(store))
    assert state_of(store.files / "m") == state_of(tree)
