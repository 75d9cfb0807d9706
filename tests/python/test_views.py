# SPDX-License-Identifier: Apache-2.0
"""What ends with a view, and when."""
from __future__ import annotations

import pathlib
import threading

import penstock
import support


def test_a_release_waits_for_nobody(tmp_path: pathlib.Path) -> None:
    with support.start_node("--unix", f"{tmp_path}/socket", "--dram", "64M") as node:
        with penstock.open(f"node+unix://{tmp_path}/socket", timeout=10 * support.WAIT_S) as store:
            store.put("k", bytes(1 << 20))
            views = [store.view("k") for _ in range(20)]
            assert store.stat().pinned_bytes > 0
            with node.stopped():
                releases = threading.Thread(target=lambda: [view.release() for view in views], daemon=True)
                releases.start()
                releases.join(support.WAIT_S)
                assert not releases.is_alive()
            assert store.stat().pinned_bytes == 0
        node.stop()


def test_a_store_is_closed_with_releases_underway(tmp_path: pathlib.Path) -> None:
    with support.start_node("--unix", f"{tmp_path}/socket", "--dram", "64M") as node:
        url = f"node+unix://{tmp_path}/socket"
        with penstock.open(url) as other:
            for dies in (False, True):
                store = penstock.open(url)
                other.put("k", bytes(1 << 20))
                views = [store.view("k") for _ in range(100)]
                if dies:
                    node.kill()
                for view in views:
                    view.release()
                store.close()
                if not dies:
                    assert other.stat().pinned_bytes == 0
