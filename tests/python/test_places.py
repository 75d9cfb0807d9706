# SPDX-License-Identifier: Apache-2.0
"""The stores that modules share, and the warning of `cache` prefixes: forks and garbage while a store is opened."""
from __future__ import annotations

import gc
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

import pytest

import penstock
import support
from penstock._places import CacheWarning, keep_or_warn, shared_store

FORKS = """
import os, sys, threading, time
from penstock._places import keep_or_warn, shared_store
opener = threading.Thread(target=shared_store, args=(sys.argv[1],), kwargs={"connect_timeout": 600.0}, daemon=True)
opener.start()
sys.stdin.readline()
child = os.fork()
if child == 0:
    store = shared_store("mem:")
    store.put("a/b", b"")
    keep_or_warn(store, "a/b")
    os._exit(0)
print(child, flush=True)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""


def test_a_child_that_was_forked_while_a_store_was_opened_opens_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(support.WAIT_S)
        url = f"node://127.0.0.1:{silent.getsockname()[1]}?lane=tcp"
        with subprocess.Popen([sys.executable, "-c", FORKS, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env=support.python_environment(PENSTOCK_TRANSPORT="stream")) as parent:
            assert parent.stdin and parent.stdout
            try:
                with silent.accept()[0]:  # it has begun to open it, and waits for an answer
                    parent.stdin.write("\n")
                    parent.stdin.flush()
                    child = int(parent.stdout.readline())
                    end = threading.Timer(support.WAIT_S, os.kill, (child, 9))
                    end.start()
                    assert int(parent.stdout.readline()) == 0
                    end.cancel()
            finally:
                parent.kill()


class Dropped:
    """Something in a cycle that says when it is collected where it was put, as a file does."""

    def __init__(self, store: penstock.Store) -> None:
        self.store, self.me = store, self

    def __del__(self) -> None:
        keep_or_warn(self.store, "dropped/file")


class Collects(penstock.Store):
    """A store whose place in a dictionary is looked for while garbage is collected."""

    dropped: Dropped | None = None

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        self.dropped = None
        gc.collect()
        return id(self)


def test_files_may_be_dropped_while_a_store_is_opened(store: penstock.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real, opened = penstock.open, []

    def opens(url: str, **options: object) -> penstock.Store:
        Dropped(store)
        gc.collect()
        return real(url, **options)

    def work() -> None:
        opened.append(shared_store("mem:?dram=16M"))

    store.put("dropped/file", b"")
    monkeypatch.setattr(penstock, "open", opens)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(support.WAIT_S)
    assert opened and shared_store("mem:?dram=16M") is opened[0]


def test_files_may_be_dropped_while_a_place_is_looked_for(store: penstock.Store) -> None:
    store.put("dropped/file", b"")
    with Collects("mem:?dram=16M") as other:
        other.put("a/b", b"")
        other.dropped = Dropped(store)
        thread = threading.Thread(target=keep_or_warn, args=(other, "a/b"), daemon=True)
        thread.start()
        thread.join(support.WAIT_S)
        assert other.dropped is None and not thread.is_alive()


def test_threads_share_a_store_whoever_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real, times, opened = penstock.open, [], []

    def opens(url: str, **options: object) -> penstock.Store:
        times.append(url)
        time.sleep(0.05)
        return real(url, **options)

    monkeypatch.setattr(penstock, "open", opens)
    threads = [threading.Thread(target=lambda: opened.append(shared_store("mem:?dram=32M"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(support.WAIT_S)
    assert len(times) == 1 and len(opened) == 8 and len({id(one) for one in opened}) == 1


def test_a_place_that_may_not_be_read_is_not_warned_of(tmp_path: pathlib.Path) -> None:
    (tmp_path / "secret").write_text("0123456789abcdef-writer")
    (tmp_path / "grants").write_text("[w]\nrights = write\nprefix = in/\nsecret-file = secret\n")
    for path in tmp_path.iterdir():
        path.chmod(0o600)
    with support.start_node("--dram=64M", "--unix", f"{tmp_path}/socket", "--grants", f"{tmp_path}/grants") as node:
        with penstock.open(f"node+unix://{tmp_path}/socket", secret_file=tmp_path / "secret") as store:
            for place in ("in/a", "in/a", "in/b"):
                store.put(f"{place}/x", b"")
                keep_or_warn(store, f"{place}/x")
            with pytest.raises(penstock.NotAllowed):
                store.head("in/a/x")
        node.stop()


def test_what_was_put_is_no_failure_when_nobody_answers_any_more() -> None:
    class Slow(penstock.Store):
        """Answers no first question."""

        asked = 0

        def head(self, key: str) -> penstock.KeyStat:
            self.asked += 1
            if self.asked == 1:
                raise penstock.TimedOut("later")
            return super().head(key)

    with Slow("mem:?dram=16M&cache=cache/") as store:
        for key in ("cache/a", "cache/b"):
            store.put(key, b"")
        keep_or_warn(store, "cache/a")
        with pytest.warns(CacheWarning, match="cache/b"):
            keep_or_warn(store, "cache/b")
        keep_or_warn(store, "cache/a")
        assert store.asked == 2
