# SPDX-License-Identifier: Apache-2.0
"""Trees where rights, other users and other transfers are in the way, and what a broken-off transfer leaves."""
from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import random
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
from typing import Iterator

import pytest
from data_store import DataStore
from support import BUILD, NOBODY, clean_environment, wait_until
from trees import SlowWay, frame, hello, run_tree, small_disk, start_tree, state_of, tree_url

MIB = 1 << 20
AT_FDCWD, RENAME_EXCHANGE = -100, 2
GETS = 60
NO_SPACE = 3


@pytest.fixture
def others() -> Iterator[pathlib.Path]:
    """A folder of another user, if this one is root."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-test-", dir="/tmp"))
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    yield folder
    for path in folder.rglob("*"):
        if path.is_dir():
            path.chmod(0o700)
    shutil.rmtree(folder)


@pytest.mark.parametrize("mode", [0o555, 0o444, 0o222, 0])
@pytest.mark.parametrize("how", [[], ["--in-place"]], ids=["whole", "in-place"])
def test_a_folder_that_its_owner_may_not_write_in(store: DataStore, others: pathlib.Path, tmp_path: pathlib.Path,
                                                  how: list[str], mode: int) -> None:
    tree, user = tmp_path / "tree", NOBODY if os.geteuid() == 0 else None
    (tree / "fixed/deep").mkdir(parents=True)
    for again in range(3):
        (tree / "fixed/deep").chmod(0o755)
        (tree / "fixed").chmod(0o755)
        tree.chmod(0o755)
        (tree / "fixed/file").write_bytes(random.randbytes(1000 + again))
        (tree / "fixed/deep/file").write_bytes(random.randbytes(MIB + again))
        (tree / f"fixed/new{again}").mkdir()
        for folder in ("fixed/deep", "fixed", "."):
            (tree / folder).chmod(mode)
        run_tree("put", tree, tree_url(store, "m"))
        run_tree(*how, "get", tree_url(store, "m"), others / "m", user=user)
        assert state_of(others / "m") == state_of(tree)
    assert os.listdir(others) == ["m"]


@contextlib.contextmanager
def exchanged(first: pathlib.Path, second: pathlib.Path) -> Iterator[None]:
    """Two names that change places all the time."""
    names, stop, exchange = (os.fsencode(first), os.fsencode(second)), threading.Event(), ctypes.CDLL(None).renameat2

    def swap() -> None:
        while not stop.is_set():
            for _ in range(100):
                exchange(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        yield
    finally:
        stop.set()
        swapper.join()


def test_no_link_gets_the_mode_of_a_file(store: DataStore, tmp_path: pathlib.Path) -> None:
    tree, out, victim, link = (tmp_path / name for name in ("tree", "out", "victim", "link"))
    tree.mkdir()
    out.mkdir()
    (tree / "f").write_bytes(b"12345")
    (tree / "f").chmod(0o666)
    victim.write_bytes(b"mine")
    victim.chmod(0o600)
    run_tree("put", tree, tree_url(store, "m"))
    for _ in range(GETS):
        shutil.copy2(tree / "f", out / "f", follow_symlinks=False)
        (out / "f").chmod(0o640)
        link.symlink_to(victim)
        with exchanged(link, out / "f"):
            subprocess.run([BUILD / "penstock", "tree", "get", tree_url(store, "m"), out], capture_output=True, timeout=60,
                           env=clean_environment())
        assert stat.S_IMODE(victim.stat().st_mode) == 0o600
        link.unlink()
        (out / "f").unlink()


@pytest.mark.parametrize("folder", [True, False], ids=["folder", "file"])
def test_a_destination_that_comes_meanwhile(store: DataStore, tmp_path: pathlib.Path, folder: bool) -> None:
    tree, out = tmp_path / "tree", tmp_path / "out"
    large = tree / "sub/large" if folder else tree
    if folder:
        (tree / "sub").mkdir(parents=True)
        (tree / "fixed").mkdir()
        (tree / "fixed/f").write_bytes(b"f")
        (tree / "fixed").chmod(0o555)
    large.write_bytes(random.randbytes(8 * MIB))
    run_tree("put", tree, tree_url(store, "m"))
    with SlowWay(store.tree_port) as way:
        process = subprocess.Popen([BUILD / "penstock", "tree", "get", tree_url(store, port=way.port), out],
                                   env=clean_environment())
        wait_until("it arrives", lambda: list(tmp_path.glob(".penstock-out.tree/fresh-*")))
        if folder:
            (out / "sub").mkdir(parents=True)
            (out / "sub/other").write_bytes(b"other")
        else:
            out.write_bytes(b"other")
        way.open()
        assert process.wait(60) == 0
    if folder:
        assert (out / "sub/other").read_bytes() == b"other"
        (out / "sub/other").unlink()
        assert {name: value[:2] for name, value in state_of(out).items()} == {
            name: value[:2] for name, value in state_of(tree).items()}
    else:
        assert state_of(out) == state_of(tree)
    assert not list(tmp_path.glob(".penstock-*"))


def is_locked(folder: pathlib.Path) -> bool:
    number = f":{folder.stat().st_ino}"
    return any(line.split()[5].endswith(number) for line in pathlib.Path("/proc/locks").read_text().splitlines())


def break_off(store: DataStore, name: str) -> pathlib.Path:
    """A put that ends in its middle, and is over. The hidden folder that it leaves."""
    hidden = store.files / os.path.dirname(name) / f".penstock-{os.path.basename(name)}.tree"
    with socket.create_connection(("127.0.0.1", store.tree_port), 30) as connection:
        path = f"default/{name}".encode()
        connection.sendall(hello(1, path) + frame(5, bytes.fromhex("02a4010000e803000000000000" + "00" * 12))
                           + frame(6, (1).to_bytes(4, "little")))
        wait_until("the store has made the hidden folder", lambda: hidden.exists() and is_locked(hidden))
    wait_until("the store has let go of it", lambda: not is_locked(hidden))
    return hidden


def test_a_delete_takes_what_a_broken_put_has_left(store: DataStore) -> None:
    hidden = break_off(store, "svc/m")
    wait_until("it is gone", lambda: store.key("DELETE", "svc/m")[1]["deleted_from_filesystem"])
    assert not hidden.exists()
    assert store.key("DELETE", "svc/m")[1]["deleted_from_filesystem"] is False


def test_a_delete_of_a_prefix_takes_what_broken_puts_have_left(store: DataStore) -> None:
    hidden, other = [break_off(store, f"svc/{name}") for name in ("model", "more")], break_off(store, "svc/n")
    for each in hidden:
        wait_until("it is gone", lambda: store.key("DELETE", "svc/mo", "?prefix_mode=true") and not each.exists())
    assert other.exists()


def test_a_delete_that_is_refused_takes_nothing(store: DataStore) -> None:
    hidden = break_off(store, "svc/m")
    (store.files / "svc/m/sub").mkdir(parents=True)
    assert store.key("DELETE", "svc/m")[0] == 400
    assert hidden.exists()


def test_a_full_store_keeps_nothing_of_a_put(tmp_path: pathlib.Path) -> None:
    with small_disk(tmp_path / "small", 16), DataStore(tmp_path / "small/data") as store:
        (tmp_path / "f").write_bytes(random.randbytes(32 * MIB))
        run_tree("put", tmp_path / "f", tree_url(store, "f"), code=NO_SPACE)
        wait_until("it is gone", lambda: not os.listdir(store.files))
        (tmp_path / "f").write_bytes(random.randbytes(8 * MIB))
        run_tree("put", tmp_path / "f", tree_url(store, "f"))


def test_a_key_that_stays_keeps_no_other(store: DataStore, tmp_path: pathlib.Path) -> None:
    for name in ("a", "b", "c"):
        (store.files / name).mkdir(parents=True)
        assert store.key("POST", name, "/store", {"ip": "h", "lifespan": "resource", "service_name": "svc"})[0] == 200
    (store.files / "a/full").mkdir()
    (store.files / "a").rename(tmp_path / "a")
    with small_disk(store.files / "a", 1):  # what is mounted cannot be removed
        assert store.ask("DELETE", "/api/v1/services/svc/cleanup?namespace=default")[0] >= 400
        assert os.listdir(store.files) == ["a"] and list(store.names()) == ["a"]
    (store.files / "a").rmdir()
    assert store.ask("DELETE", "/api/v1/services/svc/cleanup?namespace=default")[1]["deleted_count"] == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user")
def test_what_is_put_at_the_hidden_folders_name_stays(store: DataStore, others: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Its owner alone may rename what lies there, and could not remove it."""
    (tmp_path / "f").write_bytes(random.randbytes(8 * MIB))
    run_tree("put", tmp_path / "f", tree_url(store, "f"))
    (others / "precious").mkdir(0o700)
    (others / "precious/file").write_text("precious")
    with SlowWay(store.tree_port) as way:
        process = start_tree("get", tree_url(store, "f", way.port), others / "f")
        wait_until("it arrives", lambda: list(others.glob(".penstock-f.tree/fresh-*")))
        (others / ".penstock-f.tree").rename(others / "away")
        (others / "precious").rename(others / ".penstock-f.tree")
        way.open()
        process.communicate(timeout=60)
    assert (others / ".penstock-f.tree/file").read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user")
@pytest.mark.parametrize("how", [[], ["--in-place"]], ids=["whole", "in-place"])
def test_a_folder_without_rights_in_one_of_others(store: DataStore, tmp_path: pathlib.Path, how: list[str]) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    with tempfile.TemporaryDirectory(prefix="penstock-test-", dir="/tmp") as name:
        pathlib.Path(name).chmod(0o755)
        out = pathlib.Path(name) / "out"
        out.mkdir()
        os.chown(out, NOBODY, NOBODY)
        for number in range(3):
            tree.chmod(0o755)
            (tree / "file").write_bytes(random.randbytes(1000 + number))
            tree.chmod(0o555)
            run_tree("put", tree, tree_url(store, "m"))
            run_tree(*how, "get", tree_url(store, "m"), out, user=NOBODY)
            assert state_of(out) == state_of(tree) and os.listdir(name) == ["out"]
