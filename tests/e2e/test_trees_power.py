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
from trees import SlowWay

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


def test_a_file_that_is_written_to_meanwhile_does_not_arrive(tmp_path: pathlib.Path) -> None:
    large, out = tmp_path / "large", tmp_path / "out"
    large.write_bytes(bytes(16 * MIB))
    with DataStore(tmp_path / "data") as store, SlowWay(store.tree_port) as way:
        url = f"tree://127.0.0.1:{store.tree_port}/default/large"
        subprocess.run(command("put", large, url), check=True, timeout=120, env=clean_environment())
        there = store.files / "large"
        there.write_bytes(random.randbytes(16 * MIB))
        process = subprocess.Popen(command("get", f"tree://127.0.0.1:{way.port}/default/large", out), stderr=subprocess.PIPE,
                                   text=True, env=clean_environment())
        wait_until("it arrives", lambda: list(tmp_path.glob(".penstock-out.tree/fresh-*")))
        with there.open("r+b") as file:
            file.seek(15 * MIB)
            file.write(b"other")
        way.open()
        assert "changed while it was read" in process.communicate(timeout=60)[1] and process.returncode == OTHER
        assert not out.exists()
        subprocess.run(command("get", url, out), check=True, timeout=120, env=clean_environment())
        assert out.read_bytes() == there.read_bytes()
