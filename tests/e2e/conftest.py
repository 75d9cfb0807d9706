# SPDX-License-Identifier: Apache-2.0
"""A data store for those who ask for one. What the tests leave in shared memory is swept when they have ended."""
from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import time
from collections.abc import Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
pytest.register_assert_rewrite("cli", "home_pool", "members", "metrics", "previous", "support", "trees", "tsgrpc", "tsgrpc_abuses", "tutorial")

import support  # noqa: E402
from data_store import DataStore  # noqa: E402
from support import pytest_runtest_makereport, pytest_runtest_teardown  # noqa: E402, F401: pytest calls them

LONG = ("test_simulated", "test_soak")  # each takes a sixth of the time or more: begun last, it would end long after all others
MADE_S_MAX = 60  # UCX unlinks a file at once when it is complete


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Iterator[DataStore]:
    """A data store for one test; a file that needs another one has a fixture of its own."""
    with DataStore(tmp_path / "data") as it:
        yield it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, when workers take a file each; else as they come."""
    items.sort(key=lambda item: item.path.stem not in LONG)


def open_files() -> set[tuple[int, int]]:
    """Device and inode of every file that a process has open."""
    found = set()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            for link in list((process / "fd").iterdir()):
                with contextlib.suppress(OSError):  # closed meanwhile
                    state = link.stat()
                    found.add((state.st_dev, state.st_ino))
    return found


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Processes that were killed while UCX made its memory have left it; no others' is touched."""
    held, old = open_files(), time.time() - MADE_S_MAX
    for path in support.SHM.glob("ucx_shm_posix_*"):
        with contextlib.suppress(OSError):  # somebody else was faster
            state = path.stat()
            if state.st_uid == os.geteuid() and state.st_mtime < old and (state.st_dev, state.st_ino) not in held:
                path.unlink()
