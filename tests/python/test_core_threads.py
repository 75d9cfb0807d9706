# SPDX-License-Identifier: Apache-2.0
"""Many threads on one store, forks in the midst of them, and nodes that die and come back."""
from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable

import pytest

import penstock
import support
from ports import free_port

KILL_AFTER_S = 0.2
CALL_S = 3


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Runs work(0), work(1), ... at once; fails with the first thing that any of them raised."""
    faults: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * support.WAIT_S)
        assert not thread.is_alive()
    if faults:
        raise faults[0]


def test_threads_see_whole_values_and_their_own(store: penstock.Store) -> None:
    def work(number: int) -> None:
        for turn in range(60):
            value = bytes([number]) * (turn * 997)
            store.put(f"own/{number}", value)
            store.put("shared", value)
            assert store.get(f"own/{number}") == value
            assert len(set(store.get("shared"))) <= 1
            assert store.get_many([f"own/{number}", "none"]) == [value, None]
            assert f"own/{number}" in [entry.name for entry in store.list("own/")]
            if not store.url.startswith("node://"):
                with store.view("shared") as view:
                    assert len(set(bytes(view))) <= 1

    in_threads(8, work)


def test_a_value_that_grows_while_it_is_read(store: penstock.Store) -> None:
    stop = threading.Event()

    def grow() -> None:
        turn = 0
        while not stop.is_set():
            turn = (turn + 1) % 40
            store.put("k", bytes(100_000 * turn + 1))

    store.put("k", b"")
    thread = threading.Thread(target=grow)
    thread.start()
    try:
        for _ in range(20):
            assert not any(store.get("k")) and store.get_many(["k", "none"])[1] is None
    finally:
        stop.set()
        thread.join(support.WAIT_S)


def test_the_rest_of_a_value_is_of_one_value(store: penstock.Store) -> None:
    short, long = b"s" * 10, b"l" * 200
    stop = threading.Event()

    def write() -> None:
        with penstock.open(store.url) if store.lane != "memory" else contextlib.nullcontext(store) as other:
            while not stop.is_set():
                other.put("k", long)
                other.put("k", short)

    store.put("k", short)
    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(300 if store.lane != "memory" else 200_000):
            assert store.get("k", offset=2) in (short[2:], long[2:])
    finally:
        stop.set()
        thread.join(support.WAIT_S)
    with pytest.raises(penstock.Invalid, match="range outside"):
        store.get("k", offset=11)
    assert store.get("k", offset=10) == b""


def test_a_close_under_the_feet_of_threads(urls: dict[str, str]) -> None:
    for url in urls.values():
        store = penstock.open(url)
        store.put("k", bytes(100_000))
        ended = []

        def work(number: int) -> None:
            with pytest.raises(penstock.Invalid, match="closed"):
                while number or not ended:
                    store.get("k")
                    store.put_many([(f"k{number}", b"v")] * 3)
            ended.append(number)

        threading.Timer(0.05, store.close).start()
        in_threads(4, lambda number: work(number + 1))
        assert len(ended) == 4


def end_of_child(pid: int) -> int:
    """Exit code of a forked child; one that hangs is killed."""
    end = time.monotonic() + support.WAIT_S
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")


def child_is_refused_and_opens_anew(store: penstock.Store, held: list[object], url: str) -> int:
    """What a forked child does. 0, or which step failed. (Forked from the midst of calls to a node, it may find a lock of
    UCX's taken that nobody gives back: docs/reference/python.md, Forks. So it opens `url` only where nobody was within UCX.)"""
    refused = (lambda: store.get("k"), lambda: store.put("k", b"child"), lambda: store.get_many(["k"]),
               lambda: store.put_many({"k": b""}), lambda: store.list(), store.stat, store.ping, store.clear,
               lambda: store.exists("k"), lambda: store.watch(), lambda: store.head("k"))
    for step, call in enumerate(refused, 1):
        try:
            call()
            return step
        except penstock.ForkError:
            pass
    for one in held:
        try:
            next(one)  # type: ignore[call-overload]
            return 50
        except (penstock.ForkError, TypeError):
            pass
    held.clear()
    store.close()
    del store
    gc.collect()
    with penstock.open(url) as own:
        own.put("child", b"v")
        return 0 if own.get("child") == b"v" else 60


@pytest.mark.parametrize("busy", [False, pytest.param(True, marks=pytest.mark.skipif(
    support.sanitized(), reason="a sanitizer's own locks do not outlive a fork of several threads"))])
def test_a_forked_child_is_refused_and_opens_anew(store: penstock.Store, busy: bool) -> None:
    store.put("k", bytes(300_000))
    held: list[object] = [store.list(), store.watch("k")]
    if not store.url.startswith("node://"):
        held.append(store.view("k"))
    stop = threading.Event()

    def hammer() -> None:
        room = bytearray(300_000)
        while not stop.is_set():
            store.get_into("k", room)
            store.put_many([("t", b"v"), ("u", room)])

    threads = [threading.Thread(target=hammer) for _ in range(2 if busy else 0)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8 if busy else 1):
            pid = os.fork()
            if pid == 0:
                code = 99
                try:
                    code = child_is_refused_and_opens_anew(store, held, "mem:" if busy else store.url)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            assert end_of_child(pid) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join(support.WAIT_S)
    assert store.get("k") == bytes(300_000)
    assert next(store.list("k")).size == 300_000
    assert next(held[0]).name == "k"  # type: ignore[call-overload]


@pytest.mark.parametrize("kind", ["mem", "unix", "tcp"])
def test_a_forked_child_comes_to_its_end(urls: dict[str, str], kind: str) -> None:
    """The interpreter of the child ends in order, with all that was open in the parent."""
    program = """
import os, sys, penstock
store = penstock.open(sys.argv[1])
store.put("k", bytes(100000))
held = [store.list(), store.watch(), penstock.Node(dram="64M", listen="127.0.0.1:0")]
stream = store.stream("s")
stream.write(b"part")
if "node://" not in sys.argv[1]:
    held.append(store.view("k"))
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
    assert store.get("k") == bytes(100000)
    stream.commit()
    assert store["s"] == b"part"
print("end of", "parent" if pid else "child", flush=True)
"""
    environment = support.python_environment()
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", program, urls[kind]], capture_output=True,
                          text=True, timeout=2 * support.WAIT_S, env=environment)
    assert (done.returncode, done.stdout) == (0, "end of child\nend of parent\n"), done.stderr


@pytest.mark.parametrize("kind", ["unix", "tcp"])
@pytest.mark.parametrize("way", ["get_into", "put", "get_many"])
def test_a_node_killed_in_mid_transfer_and_back(tmp_path: pathlib.Path, kind: str, way: str) -> None:
    large = bytearray(32 << 20)
    uses: dict[str, Callable[[penstock.Store], object]] = {
        "get_into": lambda store: store.get_into("k", large), "put": lambda store: store.put("k", large),
        "get_many": lambda store: store.get_many(["k"])}
    arguments = ["--dram", "128M", "--unix", str(tmp_path / "socket"), "--listen"]
    port = free_port()
    with support.start_node(*arguments, f"127.0.0.1:{port}", listeners=2) as node:
        url = f"node+unix://{tmp_path}/socket" if kind == "unix" else f"node://127.0.0.1:{port}?lane=tcp"
        store = penstock.open(url, timeout=CALL_S)
        store.put("k", large)
        killer = threading.Timer(KILL_AFTER_S, node.process.kill)
        killer.start()
        begin = time.monotonic()
        with pytest.raises(penstock.Unreachable):
            while time.monotonic() < begin + support.WAIT_S:
                begin_call = time.monotonic()
                uses[way](store)
        assert time.monotonic() - begin_call < support.WAIT_S  # its deadline is CALL_S and a half
        killer.join()
    with support.start_node(*arguments, f"127.0.0.1:{port}", listeners=2):
        store.put("again", b"v")
        assert store["again"] == b"v"
        store.close()
