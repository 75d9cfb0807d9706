# SPDX-License-Identifier: Apache-2.0
"""Files that this process has made for other pods to fetch. They go with it: at its end, or when another process makes some."""
from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
import threading
from collections.abc import Iterator

from .rsync_client import own_folder

__all__ = ["Spool", "spool"]

KEPT = 2  # folders of one name


class Spool:
    """A folder of this process below ``TMPDIR``. Threads may share one; a child made by fork() gets another folder.

    Its lock ends with the process, however that ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: pathlib.Path | None = None
        self._pid = 0
        self._kept: dict[str, list[pathlib.Path]] = {}

    def new_folder(self) -> pathlib.Path:
        """An empty folder, which is there until :meth:`remove` or this process's end."""
        with self._lock:
            if self._pid != os.getpid():
                self._folder = open_folder()
                self._pid = os.getpid()
                self._kept.clear()
                atexit.register(self._close, self._pid)
            return pathlib.Path(tempfile.mkdtemp(dir=self._folder))

    def folder_of(self, name: str) -> pathlib.Path:
        """A new folder for something that is made time and again. Those before the last one go: nobody fetches from them."""
        folder = self.new_folder()
        with self._lock:
            kept = self._kept.setdefault(name, [])
            kept.append(folder)
            old, kept[:] = kept[:-KEPT], kept[-KEPT:]
        for one in old:
            self.remove(one)
        return folder

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
