# SPDX-License-Identifier: Apache-2.0
"""To which trace calls belong, by context, seen in the log of the node that they ask."""
from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator

import pytest
import support

import penstock
from penstock import tracing

LARGE = bytes(48 << 20)  # takes longer than a millisecond anywhere
SPAN = "00f067aa0ba902b7"


def parent(number: int) -> str:
    return f"00-{number:032x}-{SPAN}-01"


@pytest.fixture
def node() -> Iterator[support.Node]:
    with support.start_node("--listen", "127.0.0.1:0", "--dram", "512M", "--slow-ms", "1") as node:
        yield node


def trace_of(node: support.Node, key: str) -> int | None:
    """Of the put of the key, that is logged for its time."""
    node.wait_for(f"(put), first key '{key}'")
    line = next(line for line in node.log().splitlines() if f"(put), first key '{key}'" in line)
    return int(line.rsplit(", trace ", 1)[1], 16) if ", trace " in line else None


def test_calls_belong_to_the_innermost(node: support.Node) -> None:
    store = penstock.open(node.tcp)
    store.put("before", LARGE)
    with penstock.traced(parent(1)):
        store.put("outer", LARGE)
        with penstock.traced(parent(2)):
            store.put("inner", LARGE)
        store.put("outer again", LARGE)
    store.put("behind", LARGE)
    store.close()
    assert [trace_of(node, key) for key in ("before", "outer", "inner", "outer again", "behind")] == [None, 1, 2, 1, None]


def test_threads_and_contexts_keep_theirs(node: support.Node) -> None:
    store = penstock.open(node.tcp)
    with penstock.traced(parent(1)):
        fresh = threading.Thread(target=store.put, args=("thread", LARGE))
        taken = threading.Thread(target=contextvars.copy_context().run, args=(store.put, "taken along", LARGE))
        fresh.start()
        fresh.join()
        taken.start()
        taken.join()
    store.close()
    assert [trace_of(node, key) for key in ("thread", "taken along")] == [None, 1]


def test_tasks_keep_theirs(node: support.Node) -> None:
    async def put(store: penstock.Store, number: int) -> None:
        if number == 0:
            await store.aio.put(f"task {number}", LARGE)
            return
        with penstock.traced(parent(number)):
            await store.aio.put(f"task {number}", LARGE)

    async def all_at_once() -> None:
        with penstock.open(node.tcp) as store:
            await asyncio.gather(*(put(store, number) for number in range(4)))

    asyncio.run(all_at_once())
    assert [trace_of(node, f"task {number}") for number in range(4)] == [None, 1, 2, 3]


@pytest.mark.parametrize("text", ["", "x", parent(0), parent(1).upper().replace("1-", "A-"), parent(1) + "-"])
def test_what_is_no_traceparent(text: str) -> None:
    if text == "":
        with penstock.traced(None):
            assert tracing.current() is None
        return
    with pytest.raises(penstock.Invalid, match="is no traceparent"), penstock.traced(text):
        raise AssertionError("not reached")
    assert tracing.current() is None


def test_a_current_span_of_opentelemetry(node: support.Node) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    tracer = sdk.TracerProvider().get_tracer("test")
    store = penstock.open(node.tcp)
    store.put("outside", LARGE)
    with tracer.start_as_current_span("a request") as span:
        number = span.get_span_context().trace_id
        store.put("within", LARGE)
        with penstock.traced(parent(7)):
            store.put("said", LARGE)
    store.put("behind", LARGE)
    store.close()
    assert [trace_of(node, key) for key in ("outside", "within", "said", "behind")] == [None, number, 7, None]
