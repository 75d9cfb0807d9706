# SPDX-License-Identifier: Apache-2.0
"""Watches, commits, and a node served from within Python."""
from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

import penstock
import support


def test_a_watch_tells_what_happens(store: penstock.Store) -> None:
    with store.watch("w/") as watch:
        assert watch.poll() is None
        first = store.put("w/a", b"12345")
        store.put("other", b"")
        store.delete("w/a")
        events = [watch.poll(timeout=30), next(watch)]
        assert [(e.what, e.name, e.size, e.generation) for e in events] == [
            ("put", "w/a", 5, first), ("deleted", "w/a", 5, first)]
        assert watch.poll(timeout=0.01) is None
        assert os.fstat(watch.fileno())
    with pytest.raises(ValueError, match="closed"):
        watch.poll()


def test_a_waiting_watch_ends_when_it_is_closed(store: penstock.Store) -> None:
    watch = store.watch()
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.extend(event.name for event in watch))
    thread.start()
    store.put("k", b"")
    support.wait_until("the event", lambda: seen == ["k"])
    with pytest.raises(ValueError, match="another thread"):
        next(watch)
    watch.close()
    thread.join(support.WAIT_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("store", ["mem", "unix", "tcp"], indirect=True)  # of a pool's nodes one alone may commit
def test_a_commit_is_all_or_nothing(store: penstock.Store) -> None:
    old = store.put("b", b"old")
    store.put("gone", b"")
    generations = store.commit({"a": b"1", b"b": [b"2", b"2"]}, deletes=["gone"], checks={"b": old, "none": 0})
    assert generations == {"a": store.head("a").generation, b"b": store.head("b").generation}
    assert store.get_many(["a", "b", "gone"]) == [b"1", b"22", None]
    with pytest.raises(penstock.Stale, match="key 'b'") as caught:
        store.commit({"a": b"3"}, deletes=["b"], checks={"b": old})
    assert caught.value.results == [0, 3] and caught.value.generation == generations[b"b"]
    assert store.get_many(["a", "b"]) == [b"1", b"22"]
    with pytest.raises(penstock.Error):
        store.commit({"new": b""}, checks={"a": 0})
    with pytest.raises(penstock.Stale):
        store.commit({"new": b""}, checks={"absent": 5, "absent too": 5})
    assert not store.exists("new")
    store.commit(checks={"a": generations["a"]})
    with pytest.raises(penstock.Invalid, match="more than 255"):
        store.commit({f"k{i}": b"" for i in range(256)})
    with pytest.raises(penstock.Invalid):
        store.commit()
    with pytest.raises(TypeError, match="value must be"):
        store.commit({"a": "text"})


def test_a_node_within_python() -> None:
    with penstock.Node(dram="64M", listen="127.0.0.1:0", class_=["cache/=cache"], shards=1) as node:
        assert len(node.urls) == 1 and node.urls[0].startswith("node://127.0.0.1:")
        with penstock.open(node.urls[0]) as store:
            store.put_many({"cache/a": b"1", "b": bytes(3 << 20)})
            assert store.head("cache/a").cache and len(store["b"]) == 3 << 20
            support.wait_until("both keys are counted", lambda: len(node) == 2)
        assert not node.closed
    assert node.closed
    node.close()
    with pytest.raises(penstock.Invalid, match="closed"):
        node.urls
    with pytest.raises(penstock.Unreachable):
        penstock.open(store.url, connect_timeout=1)


@pytest.mark.parametrize("settings, text", [({"colour": "red"}, "colour"), ({"dram": "lots"}, "dram"), ({}, "listen")])
def test_nodes_that_do_not_start(settings: dict[str, str], text: str) -> None:
    with pytest.raises(penstock.Invalid, match=text):
        penstock.Node(**settings)


def test_a_node_that_the_program_forgets_leaves_nothing() -> None:
    program = """
import os, sys, penstock
forever = penstock.Node(dram="64M", listen="127.0.0.1:0", log=sys.stderr)
forever.itself = forever
print(os.getpid(), penstock.open(forever.urls[0]).put("k", b""))
"""
    environment = support.python_environment()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=support.WAIT_S,
                          env=environment)
    assert done.returncode == 0, done.stderr
    assert support.arena_files(int(done.stdout.split()[0])) == []
    assert "listening on 127.0.0.1:" in done.stderr
