# SPDX-License-Identifier: Apache-2.0
"""NIXL's agent on CPU, with the back end PENSTOCK. PENSTOCK_NIXL names the source tree of NIXL with the headers for it."""
from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import penstock
import pytest
import support

if importlib.util.find_spec("nixl_cu12") is None:
    pytest.skip("nixl-cu12 is not installed", allow_module_level=True)
if not os.environ.get("PENSTOCK_NIXL"):
    pytest.skip("PENSTOCK_NIXL names no source tree of NIXL", allow_module_level=True)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BYTES = 100_000
COUNT = 9


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """NIXL's module, which finds the back end."""
    folder = tmp_path_factory.mktemp("nixl")
    environment = dict(os.environ, PKG_CONFIG_PATH=str(support.BUILD / "meson-uninstalled"), CXX="g++")
    subprocess.run(["meson", "setup", folder, ROOT / "integrations/nixl", f"-Dnixl={os.environ['PENSTOCK_NIXL']}", "--werror"],
                   check=True, env=environment, stdin=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", folder], check=True, env=environment, stdin=subprocess.DEVNULL)
    os.environ["NIXL_PLUGIN_DIR"] = str(folder)
    ctypes.CDLL(str(support.BUILD / "libpenstock.so.0"))
    import nixl_cu12._api as api
    return api


@pytest.fixture
def node() -> Iterator[support.Node]:
    with support.start_node("--dram", "64M", "--listen", "127.0.0.1:0") as node:
        yield node


class Agent:
    """An agent of NIXL with a store, and memory that it has registered."""

    def __init__(self, api: Any, url: str, name: str = "me", **more: str) -> None:
        self.name, self.agent = name, api.nixl_agent(name, api.nixl_agent_config(backends=[]))
        self.agent.create_backend("PENSTOCK", {"url": url, **more})
        self.room = ctypes.create_string_buffer(COUNT * BYTES)
        self.agent.register_memory([(ctypes.addressof(self.room), len(self.room), 0, "")], "DRAM")

    def objects(self, names: list[str], size: int = BYTES) -> None:
        self.agent.register_memory([(0, size, 1 + i, name) for i, name in enumerate(names)], "OBJ")

    def places(self, count: int, size: int = BYTES) -> Any:
        base = ctypes.addressof(self.room)
        return self.agent.get_xfer_descs([(base + i * BYTES, size, 0) for i in range(count)], "DRAM")

    def prepared(self, what: str, count: int, offset: int = 0, size: int = BYTES) -> Any:
        remote = self.agent.get_xfer_descs([(offset, size, 1 + i) for i in range(count)], "OBJ")
        return self.agent.initialize_xfer(what, self.places(count, size), remote, self.name)

    def done(self, transfer: Any) -> str:
        state = self.agent.transfer(transfer)
        while state == "PROC":
            state = self.agent.check_xfer_state(transfer)
        return state

    def value(self, i: int, size: int = BYTES) -> bytes:
        return self.room.raw[i * BYTES:i * BYTES + size]


def values() -> list[bytes]:
    return [bytes([1 + i]) * (BYTES - 8) + i.to_bytes(8, "big") for i in range(COUNT)]


def written(api: Any, node: support.Node, names: list[str]) -> Agent:
    agent = Agent(api, node.tcp)
    agent.objects(names)
    ctypes.memmove(agent.room, b"".join(values()), COUNT * BYTES)
    assert agent.done(agent.prepared("WRITE", len(names))) == "DONE"
    return agent


def test_objects_come_back(api: Any, node: support.Node) -> None:
    names = [f"object {i}" for i in range(COUNT)]
    agent = written(api, node, names)
    with penstock.open(node.tcp) as store:
        assert [store[f"nixl/{name}"] for name in names] == values()
    other = Agent(api, node.tcp, "other")
    other.objects(names)
    found = other.agent.query_memory([(0, 1, 1, name) for name in [*names, "none"]], "PENSTOCK", "OBJ")
    assert found == [{"bytes": str(BYTES)}] * COUNT + [None]
    read = other.prepared("READ", COUNT)
    for _ in range(2):  # a transfer may be posted again
        ctypes.memset(other.room, 0, COUNT * BYTES)
        assert other.done(read) == "DONE"
        assert [other.value(i) for i in range(COUNT)] == values()
    assert agent.done(agent.prepared("READ", 2, BYTES - 8, 8)) == "DONE"
    assert [agent.value(i, 8) for i in range(2)] == [bytes(8), bytes(7) + b"\1"]


def test_prepared_lists(api: Any, node: support.Node) -> None:
    agent = written(api, node, [str(i) for i in range(COUNT)])
    ctypes.memset(agent.room, 0, COUNT * BYTES)
    local = agent.agent.prep_xfer_dlist("NIXL_INIT_AGENT", agent.places(COUNT))
    remote = agent.agent.prep_xfer_dlist(agent.name, agent.agent.get_xfer_descs([(0, BYTES, 1 + i) for i in range(COUNT)], "OBJ"))
    transfer = agent.agent.make_prepped_xfer("READ", local, [0, 1, 2], remote, [2, 0, 1])
    assert agent.done(transfer) == "DONE"
    assert [agent.value(i) for i in range(3)] == [values()[i] for i in (2, 0, 1)]


def test_what_is_not_there(api: Any, node: support.Node) -> None:
    agent = written(api, node, ["there", "removed"])
    with penstock.open(node.tcp) as store:
        store.delete("nixl/removed")
    with pytest.raises(Exception, match="NOT_FOUND"):
        agent.done(agent.prepared("READ", 2))
    assert agent.done(agent.prepared("READ", 1)) == "DONE"
    with penstock.open(node.tcp) as store:
        store["nixl/there"] = b"short"
    with pytest.raises(Exception, match="MISMATCH"):
        agent.done(agent.prepared("READ", 1))
    with pytest.raises(Exception, match="NOT_SUPPORTED"):
        agent.prepared("WRITE", 1, 8, 8)


def test_released_while_underway(api: Any, node: support.Node) -> None:
    agent = written(api, node, [str(i) for i in range(COUNT)])
    for _ in range(20):
        read = agent.prepared("READ", COUNT)
        agent.agent.transfer(read)
        read.release()
    assert [agent.value(i) for i in range(COUNT)] == values()


def test_forked_while_underway(api: Any, node: support.Node) -> None:
    agent = written(api, node, ["a"])
    read = agent.prepared("READ", 1)
    codes: list[int] = []
    with node.stopped():
        agent.agent.transfer(read)
        child = os.fork()
        if child == 0:
            with contextlib.suppress(api.nixlBind.nixlBackendError):
                if agent.agent.check_xfer_state(read) == "PROC":
                    os._exit(1)
            read.release()
            os._exit(7)

        def has_ended() -> bool:
            pid, status = os.waitpid(child, os.WNOHANG)
            codes.extend([os.waitstatus_to_exitcode(status)] * (pid == child))
            return bool(codes)
        try:
            support.wait_until("the child has ended", has_ended)
        finally:
            if not codes:
                os.kill(child, signal.SIGKILL)
    assert codes == [7]
    support.wait_until("the transfer has ended", lambda: agent.agent.check_xfer_state(read) == "DONE")


def test_a_killed_node(api: Any, node: support.Node) -> None:
    agent = written(api, node, ["a"])
    node.kill()
    with pytest.raises(Exception, match="BACKEND"):
        agent.done(agent.prepared("READ", 1))
    with support.start_node("--dram", "64M", "--listen", node.tcp.removeprefix("node://")):
        assert agent.done(agent.prepared("WRITE", 1)) == "DONE"  # the agent itself was not gone
        assert agent.done(agent.prepared("READ", 1)) == "DONE"


def test_many_pieces_of_memory(api: Any, node: support.Node) -> None:
    agent = written(api, node, ["a"])
    pieces = ctypes.create_string_buffer(3000 * 64)
    base = ctypes.addressof(pieces)
    agent.agent.register_memory([(base + i * 64, 64, 0, "") for i in range(3000)], "DRAM")
    remote = agent.agent.get_xfer_descs([(i, 64, 1) for i in range(3000)], "OBJ")
    local = agent.agent.get_xfer_descs([(base + i * 64, 64, 0) for i in range(3000)], "DRAM")
    assert agent.done(agent.agent.initialize_xfer("READ", local, remote, agent.name)) == "DONE"
    assert pieces.raw[:64 * 3000] == b"\1" * 64 * 3000


def test_removed_from_the_agent_before_it_is_posted(api: Any, node: support.Node) -> None:
    agent = written(api, node, ["a" * 3000, "b" * 3000])
    read = agent.prepared("READ", 2)
    objects = agent.agent.get_reg_descs([(0, BYTES, 1 + i, name * 3000) for i, name in enumerate("ab")], "OBJ")
    agent.agent.deregister_memory(objects)
    assert agent.done(read) == "DONE"
    assert [agent.value(i) for i in range(2)] == values()[:2]


def test_one_object_for_a_device_id(api: Any, node: support.Node) -> None:
    agent = written(api, node, ["a", "b"])
    assert not registered(agent, 1, "c") and registered(agent, 1, "a") and registered(agent, 3, "c")
    ctypes.memset(agent.room, 0, COUNT * BYTES)
    assert agent.done(agent.prepared("READ", 2)) == "DONE"
    assert [agent.value(i) for i in range(2)] == values()[:2]


def registered(agent: Agent, object_id: int, name: str) -> bool:
    try:
        agent.agent.register_memory([(0, BYTES, object_id, name)], "OBJ")
    except Exception:
        return False
    return True


def test_parameters_that_nixl_offers(api: Any, node: support.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", node.tcp)
    agent = api.nixl_agent("me", api.nixl_agent_config(backends=["PENSTOCK"]))
    assert agent.query_memory([(0, 1, 1, "none")], "PENSTOCK", "OBJ") == [None]
    agent = api.nixl_agent("other", api.nixl_agent_config(backends=[]))
    agent.create_backend("PENSTOCK", agent.get_plugin_params("PENSTOCK"))
    assert agent.query_memory([(0, 1, 1, "none")], "PENSTOCK", "OBJ") == [None]


def test_no_store(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    for url in ("", "node://127.0.0.1:1"):
        with pytest.raises(Exception, match="BACKEND"):
            Agent(api, url)
