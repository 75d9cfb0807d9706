# SPDX-License-Identifier: Apache-2.0
"""What a flush promises: a crash undoes no write that had ended before it began, whatever is written meanwhile."""
from __future__ import annotations

import contextlib
import pathlib
import threading

import pytest

import penstock
import support


def node(folder: pathlib.Path) -> support.Node:
    return support.start_node("--unix", f"{folder}/socket", "--shards=1", "--dram=64M", "--page-size=64K", f"--ssd={folder}/ssd",
                              "--ssd-bytes=128M", "--ssd-segment=2M")


def overwritten(folder: pathlib.Path, durable: bool, size: int, other: int) -> tuple[int, int]:
    """The number that a key had before a flush, and which it has after the crash behind it."""
    url = f"node+unix://{folder}/socket"
    with node(folder) as first:
        with penstock.open(url) as store, penstock.open(url) as writer:
            for i in range(400):
                store.put(f"a/{i}", bytes(other))
            store.put("z/key", b"0".ljust(size), durable=durable)
            count = 0

            def write() -> None:
                nonlocal count
                with contextlib.suppress(penstock.Error):  # of the one that the crash meets
                    while True:
                        writer.put("z/key", str(count + 1).encode().ljust(size))
                        count += 1

            thread = threading.Thread(target=write)
            thread.start()
            support.wait_until("it is written", lambda: count > 10)
            before = count
            store.flush()
            first.kill()
            thread.join()
    with node(folder) as second, penstock.open(url) as store:
        value = store.get("z/key") if store.exists("z/key") else b"-1"
        second.stop()
    return before, int(value)


@pytest.mark.parametrize(("size", "other"), [(10, 65536), (10, 100), (100_000, 65536)])
@pytest.mark.parametrize("durable", [True, False])
def test_a_key_that_is_written_all_the_time(tmp_path: pathlib.Path, durable: bool, size: int, other: int) -> None:
    before, after = overwritten(tmp_path, durable, size, other)
    assert after >= before
