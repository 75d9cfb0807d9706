# SPDX-License-Identifier: Apache-2.0
"""An embedded store that has what another one has: mem:?follow=URL."""
from __future__ import annotations

import os
import pathlib

import penstock
import pytest
import support

DRAM = ("--dram", "64M", "--page-size", "64K", "--shards", "2")


def names(store: penstock.Store) -> list[tuple[str, int]]:
    return [(entry.name, entry.size) for entry in store.list()]


def test_it_follows_and_evicts_on_its_own(tmp_path: pathlib.Path) -> None:
    socket = tmp_path / "socket"
    url = f"node+unix://{socket}"
    values = {f"a/{i:02}": bytes([i]) * 500_000 for i in range(40)}  # 20 MB

    def same(mirror: penstock.Store, source: penstock.Store) -> bool:
        return dict(names(mirror)).items() <= dict(names(source)).items() and ("a/last", 4) in names(mirror)

    with support.start_node("--unix", str(socket), *DRAM) as node, penstock.open(url) as source:
        source.put_many(values)
        source.put("b/1", b"1")
        source.put("a/attrs", b"1", attrs=b"of it", depth=7)
        with penstock.open(f"mem:?dram=16M&page_size=64K&cache=a/&follow={url}&prefix=a/") as mirror:
            source.put("a/last", b"last")
            support.wait_until("the last", lambda: same(mirror, source))
            assert mirror.head("a/attrs")[2:] == (b"of it", True, 7)
            assert mirror.stat().evictions > 0 and not mirror.exists("b/1")
            assert len(source) == len(values) + 3 and source.stat().evictions == 0  # which is the mirror's affair
            for key in [key for key in values if mirror.exists(key)]:
                assert mirror.get(key) == values[key]
            source.delete("a/last")
            source.put("a/new", b"new")
            support.wait_until("changes", lambda: mirror.exists("a/new") and not mirror.exists("a/last"))
            mirror.delete("a/new")
            assert source["a/new"] == b"new"
            node.kill()
            socket.unlink(missing_ok=True)
            with support.start_node("--unix", str(socket), *DRAM) as again:
                source.put("a/afresh", b"afresh")
                support.wait_until("the new source's", lambda: names(mirror) == [("a/afresh", 6)])
                again.stop()


def test_a_source_that_comes_later(tmp_path: pathlib.Path) -> None:
    socket = tmp_path / "socket"
    with penstock.open(f"mem:?dram=16M&follow=node+unix://{socket}") as mirror:
        with support.start_node("--unix", str(socket), *DRAM) as node:
            with penstock.open(f"node+unix://{socket}") as source:
                source["k"] = b"v"
                support.wait_until("the key", lambda: mirror.exists("k"))
            node.stop()
    # It ends though nobody is there.


def test_a_child_closes_its_copy(tmp_path: pathlib.Path) -> None:
    with penstock.open(f"mem:?dram=16M&follow=node+unix://{tmp_path}/none") as mirror:
        child = os.fork()
        if child == 0:
            try:
                mirror.close()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        mirror["k"] = b"v"
        assert mirror["k"] == b"v"


@pytest.mark.parametrize("follow", ["nowhere", "mem:", "node://127.0.0.1:1&prefix=" + "p" * 4097])
def test_what_is_no_source(follow: str) -> None:
    with pytest.raises(penstock.Invalid):
        penstock.open(f"mem:?dram=16M&follow={follow}")
