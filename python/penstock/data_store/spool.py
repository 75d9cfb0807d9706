# SPDX-License-Identifier: Apache-2.0
"""Files that this process has made for other pods to fetch. They go with it: at its end, or when another process makes some."""
from __future__ import annotations

import atexit
import collections
import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from .rsync_client import own_folder

__all__ = ["Spool", "spool"]

KEPT = 2  # folders of one name
KEPT_S = 3600.0  # as long as an agent serves what nobody uses


class Kept(NamedTuple):
    """A folder that is whole."""

    name: str
    folder: pathlib.Path
    made: float


class Spool:
    """A folder of this process below ``TMPDIR``. Threads may share one; a child made by fork() gets another folder.

    Its lock ends with the process, however that ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: pathlib.Path | None = None
        self._pid = 0
        self._kept: list[Kept] = []

    def new_folder(self) -> pathlib.Path:
        """An empty folder, which is there until :meth:`remove` or this process's end."""
        with self._lock:
            if self._pid != os.getpid():
                self._folder = open_folder()
                self._pid = os.getpid()
                self._kept.clear()
                atexit.register(self._close, self._pid)
            return pathlib.Path(tempfile.mkdtemp(dir=self._folder))

    @contextlib.contextmanager
    def kept(self, name: str) -> Iterator[pathlib.Path]:
        """A new folder for something that is made time and again, from which others may fetch once the block has ended.

        It goes if the block fails; else when there are newer ones of the same name, or after an hour, as soon as there is another.
        """
        folder = self.new_folder()
        try:
            yield folder
        except BaseException:
            self.remove(folder)
            raise
        now, newer = time.monotonic(), collections.Counter[str]()
        old: list[Kept] = []
        with self._lock:
            self._kept.append(Kept(name, folder, now))
            for one in reversed(self._kept):
                newer[one.name] += 1
                if newer[one.name] > KEPT or now - one.made > KEPT_S:
                    old.append(one)
            self._kept = [one for one in self._kept if one not in old] if old else self._kept
        for one in old:
            self.remove(one.folder)

    def remove(self, folder: pathlib.Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def _close(self, pid: int) -> None:
        if pid == os.getpid() and self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def open_folder() -> pathlib.Path:
    """A new folder, which this process holds locked. Those that nobody holds go."""
    root = pathlib.Path(tempfile.gettempdir()) / f"penstock-values-{os.geteuid()}"
    own_folder(root)
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)  # nobody removes a folder between its making and its lock
        for other in root.iterdir():
            with contextlib.suppress(OSError), held(other):
                shutil.rmtree(other)
        made = pathlib.Path(tempfile.mkdtemp(dir=root))
        fcntl.flock(os.open(made, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_EX)  # open until this process ends
        return made
    finally:
        os.close(fd)


@contextlib.contextmanager
def held(folder: pathlib.Path) -> Iterator[None]:
    """Raises BlockingIOError if another process holds the folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


#: That of this process.
spool = Spool()
