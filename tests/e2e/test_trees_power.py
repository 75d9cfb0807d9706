# SPDX-License-Identifier: Apache-2.0
"""Trees at a store whose disk loses its power, and files that are written to while they are sent."""
from __future__ import annotations

import fcntl
import os
import pathlib
import random
import shutil
import struct
import subprocess
from typing import Iterator

import pytest
from data_store import DataStore, files_of
from support import BUILD, clean_environment, wait_until
from trees import SlowWay, run_tree, start_tree, tree_url

MIB = 1 << 20
OTHER = 7
SHUT_DOWN, WITHOUT_LOG = 0x8004587D, 2  # EXT4_IOC_SHUTDOWN, as linux/fs/ext4/ext4.h has it


class Disk:
    """An ext4 file system of its own, in a file."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._image, self.path = folder / "image", folder / "disk"
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(256 * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-F", self._image], check=True)

    def mount(self) -> bool:
        return subprocess.run(["mount", "-o", "loop", self._image, self.path], capture_output=True).returncode == 0

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", self.path], check=True)

    def cut(self) -> None:
        """What has not been written by now never will be."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUT_DOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(fd)

    def commit(self) -> None:
        """Sizes, times and names come to the disk; bytes need not."""
        with (self.path / "another").open("wb") as file:
            file.write(b"x")
            os.fsync(file.fileno())

    def restart(self) -> None:
        """With a copy of the image: another mount namespace may still have the first one mounted, as it was shut down."""
        self.unmount()
        copy = self._image.with_name("copy")
        subprocess.run(["cp", "--sparse=always", self._image, copy], check=True)
        copy.rename(self._image)
        assert self.mount()


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> Iterator[Disk]:
    if not shutil.which("mkfs.ext4"):
        pytest.skip("no mkfs.ext4 here")
    disk = Disk(tmp_path)
    if not disk.mount():
        pytest.skip("mounts of files are not allowed here")
    yield disk
    disk.unmount()


@pytest.fixture
def mounted(tmp_path: pathlib.Path) -> Iterator[Disk]:
    """A second one."""
    (tmp_path / "mounted").mkdir()
    disk = Disk(tmp_path / "mounted")
    yield disk


def command(action: str, first: object, second: object, *more: str) -> list[str]:
    return [str(BUILD / "penstock"), "tree", *more, action, str(first), str(second)]


@pytest.mark.parametrize("how", [[], ["--in-place"]], ids=["whole", "in-place"])
def test_what_was_acknowledged_survives_a_power_failure(disk: Disk, tmp_path: pathlib.Path, how: list[str]) -> None:
    tree = tmp_path / "tree"
    for again in range(2):  # what is new, and what is brought up to date
        for number in range(12):
            path = tree / f"{number % 3}/{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(random.randbytes(number * 40_000 + again))
        store = DataStore(disk.path / "data")
        try:
            url = f"tree://127.0.0.1:{store.tree_port}/default/m"
            subprocess.run(command("put", tree, url, *how), check=True, timeout=120, env=clean_environment())
            disk.cut()
        finally:
            store.kill()
        disk.restart()
        assert files_of(disk.path / "data/files/default/m") == files_of(tree)


@pytest.mark.parametrize("how", [[], ["--in-place"]], ids=["whole", "in-place"])
def test_what_a_broken_put_has_left_is_not_believed_after_a_power_failure(disk: Disk, tmp_path: pathlib.Path,
                                                                          how: list[str]) -> None:
    """The journal tells of sizes and times before the bytes come: of holes, and of what is not written from front to back."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(20):
        with (tree / f"{number:02}").open("wb") as file:
            file.write(random.randbytes(300_000))
            file.truncate(MIB)
    (tree / "last").write_bytes(random.randbytes(64 * MIB))
    store = DataStore(disk.path / "data")
    arriving = disk.path / "data/files/default" / ("m" if how else ".penstock-m.tree/tree")
    try:
        with SlowWay(store.tree_port, up=True, free_bytes=8 * MIB) as way:
            process = subprocess.Popen(command("put", tree, f"tree://127.0.0.1:{way.port}/default/m", *how), env=clean_environment())
            wait_until("the small files are there", lambda: arriving.is_dir() and len(list(arriving.glob("[01]*"))) == 20)
            process.kill()
            process.wait(60)
        disk.commit()
        disk.cut()
    finally:
        store.kill()
    disk.restart()
    with DataStore(disk.path / "data") as store:
        url = f"tree://127.0.0.1:{store.tree_port}/default/m"
        subprocess.run(command("put", tree, url, *how), check=True, timeout=120, env=clean_environment())
        assert files_of(store.files / "m") == files_of(tree)
        assert not list(store.files.glob(".penstock-*"))


def test_a_mounted_folder_survives_a_power_failure(disk: Disk, mounted: Disk, tmp_path: pathlib.Path) -> None:
    tree, there = tmp_path / "tree", disk.path / "data/files/default/m/sub"
    there.mkdir(parents=True)
    mounted.path = there
    for again in range(2):
        for number in range(12):
            path = tree / f"sub/{number % 3}/{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(random.randbytes(number * 40_000 + again))
        assert mounted.mount()
        store = DataStore(disk.path / "data")
        try:
            subprocess.run(command("put", tree, f"tree://127.0.0.1:{store.tree_port}/default/m"), check=True, timeout=120,
                           env=clean_environment())
            mounted.cut()
        finally:
            store.kill()
        mounted.restart()
        found = files_of(there)
        mounted.unmount()
        assert found == files_of(tree / "sub")


def test_what_was_registered_survives_a_power_failure(disk: Disk, tmp_path: pathlib.Path) -> None:
    """Though rsync brought it, which writes nothing to the disk itself."""
    (tmp_path / "f").write_bytes(random.randbytes(MIB))
    store = DataStore(disk.path / "data")
    try:
        subprocess.run([BUILD / "penstock", "data", "put", "--store", f"http://127.0.0.1:{store.http_port}", "--rsync",
                        f"127.0.0.1:{store.rsync_port}", "--transport", "rsync", "f", tmp_path / "f"], check=True, timeout=120,
                       env=clean_environment())
        disk.cut()
    finally:
        store.kill()
    disk.restart()
    assert files_of(disk.path / "data/files/default") == {"f": (tmp_path / "f").read_bytes()}


@pytest.mark.parametrize("how", [[], ["--in-place"]], ids=["whole", "in-place"])
@pytest.mark.parametrize("puts", [False, True], ids=["get", "put"])
def test_a_file_that_is_written_to_meanwhile_does_not_arrive(store: DataStore, tmp_path: pathlib.Path, puts: bool,
                                                             how: list[str]) -> None:
    """Nor does the next transfer believe what has come of it, if the file is again what it was."""
    tree, out = tmp_path / "tree", tmp_path / "out"
    tree.mkdir()
    (tree / "large").write_bytes(random.randbytes(16 * MIB))
    run_tree("put", tree, tree_url(store, "m"))
    source = tree if puts else store.files / "m"
    target = store.files / "n" if puts else out
    right, state = (source / "large").read_bytes(), (source / "large").stat()
    with SlowWay(store.tree_port, up=puts) as way:
        between = (tree, tree_url(store, "n", way.port)) if puts else (tree_url(store, "m", way.port), out)
        process = start_tree(*how, "put" if puts else "get", *between)
        wait_until("it arrives", lambda: list(tmp_path.rglob("fresh-*")))
        with (source / "large").open("r+b") as file:
            file.seek(8 * MIB)
            file.write(bytes(7 * MIB))
        way.open()
        assert "changed while it was read" in process.communicate(timeout=60)[1] and process.returncode == OTHER
    assert not (target / "large").exists()
    (source / "large").write_bytes(right)
    os.utime(source / "large", ns=(state.st_atime_ns, state.st_mtime_ns))
    run_tree(*how, *(("put", tree, tree_url(store, "n")) if puts else ("get", tree_url(store, "m"), out)))
    assert files_of(target) == {"large": right}
