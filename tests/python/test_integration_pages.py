# SPDX-License-Identifier: Apache-2.0
"""What engines and callers of Mooncake see of a pool that has lost a node: they wait for it once, not with every call."""
from __future__ import annotations

import importlib
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import support
from members import master, member

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEYS = [f"key-{i}" for i in range(64)]
LIMITS = ("--member-ttl-ms=3000", "--lease-ms=1000", "--lease-margin-ms=300", "--nodes-min=2")


def opened_pages(url: str) -> Callable[[], int]:
    pages = importlib.import_module("penstock_engines.pages").Pages(url, "p/")
    assert all(pages.put(KEYS, [b"value"] * len(KEYS)))
    return lambda: sum(pages.exists(KEYS))


def opened_mooncake(url: str) -> Callable[[], int]:
    store = importlib.import_module("mooncake.store").MooncakeDistributedStore()
    assert store.setup("127.0.0.1", url) == 0
    assert store.put_batch(KEYS, [b"value"] * len(KEYS)) == 0
    return lambda: store.batch_is_exist(KEYS).count(1)


@pytest.fixture(params=["engines", "mooncake"])
def opened(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(sys, "path", [str(ROOT / "integrations" / request.param), *sys.path])
    yield {"engines": opened_pages, "mooncake": opened_mooncake}[request.param]


def test_more_bytes_than_pass_within_the_time_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where not even a batch passes gives each call more."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "integrations/engines"), *sys.path])
    module = importlib.import_module("penstock_engines.pages")
    size, keys, room = 1 << 20, [str(i) for i in range(1024)], bytearray(1 << 30)
    with support.start_node("--dram", "1200M", "--listen", "127.0.0.1:0") as node:
        rooms = [memoryview(room)[i * size:(i + 1) * size] for i in range(len(keys))]
        for call_s in (0.5, 2.0, 8.0):
            monkeypatch.setattr(module, "CALL_S", call_s)
            pages = module.Pages(node.tcp + "?lane=tcp", "p/")
            whole = all(pages.put(keys, rooms)) and pages.get_into(keys, rooms) == [size] * len(keys)
            pages.close()
            if whole:
                break
        assert whole


def test_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "integrations/engines"), *sys.path])
    module = importlib.import_module("penstock_engines.pages")
    monkeypatch.setattr(module, "BATCH_BYTES", 10)
    monkeypatch.setattr(module, "BATCH_KEYS", 3)
    large = b"x" * 20
    for places, counts in ((["key"] * 7, [3, 3, 1]), ([(4096, 4), b"sixth!", (0, 1)], [2, 1]), ([(0, 5)] * 4, [2, 2]),
                           ([large, [b"1234", b"56"], large], [1, 1, 1]), ([], [])):
        batches = list(module._batches([(str(i), place) for i, place in enumerate(places)]))
        assert [len(batch) for batch in batches] == counts
        assert [place for batch in batches for _, place in batch] == places


def test_a_pool_that_waits_for_a_node_is_waited_for_once(opened: Any, tmp_path: pathlib.Path) -> None:
    with master(tmp_path, *LIMITS, place=None) as m, member(m), member(m) as lost:
        m.has(2)
        count_there = opened(f"pool://{m.address}")
        assert count_there() == len(KEYS)
        lost.kill()
        time.sleep(6)  # until it counts as gone: its partitions are incomplete then
        assert 0 < count_there() < len(KEYS)
        began = time.monotonic()
        for _ in range(3):
            assert count_there() == 0
        assert time.monotonic() - began < 3


def test_a_model_is_cleared_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its name begins another's, or is another's tag."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "integrations" / "engines"), *sys.path])
    pages = importlib.import_module("penstock_engines.pages")
    named = [("a", None), ("a/b", None), ("a/b/c", None), ("b", "a"), ("b/c", "a"), ("c", "a/b"), ("a:b", None), ("", None), ("", "a")]
    prefixes = [pages.prefix_of("engine", model, tag) for model, tag in named]
    assert not [(one, other) for one in prefixes for other in prefixes if one is not other and other.startswith(one)]
