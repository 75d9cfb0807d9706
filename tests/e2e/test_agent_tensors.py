# SPDX-License-Identifier: Apache-2.0
"""penstockd --role agent: tensors of this host's processes, by frames and descriptors; who dies when, and what is left."""
from __future__ import annotations

import array
import fcntl
import json
import mmap
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
from typing import Any, Iterator

import pytest
from agent import Agent
from support import wait_until
from tensor_frames import BYTES, ask, handle, mapped_by, memories_of, memory, put, receive, send, tensor

SWEEPS_S = 30


@pytest.fixture
def agent(tmp_path: pathlib.Path) -> Iterator[Agent]:
    with Agent(tmp_path) as it:
        yield it


# ---- what goes in comes out ----

def test_a_tensor_goes_from_process_to_process(agent: Agent) -> None:
    put(agent, "svc//x", b"hello", offset=1, shape=(2, 2), strides=(2, 1))
    answer, [fd] = ask(agent, "get_tensor", keys=["svc/x"])
    assert answer["tensors"] == [{"key": "svc/x", "shape": [2, 2], "dtype": "uint8", "device": "cpu", "pid": os.getpid(),
                                  "ipc_handle": handle(0, 1, (2, 1))}]
    with mmap.mmap(fd, BYTES) as mapped:
        assert mapped[:5] == b"hello"
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    os.close(fd)
    assert not mapped_by(agent.pid)
    listed = agent.ask("list_keys")["keys"]
    assert [(one["key"], one["dtype"], one["shape"], one["pid"]) for one in listed] == [("svc/x", "uint8", [2, 2], os.getpid())]
    assert agent.ask("unregister", key="svc/x")["key"] == "svc/x"
    assert "Key not found: svc/x" in ask(agent, "get_tensor", keys=["svc/x"])[0]["error"]
    assert memories_of(agent) == 0


def test_a_state_dict_is_replaced_whole(agent: Agent) -> None:
    """Many tensors in few memories; a later put takes the place of all that lay below the key, and of nothing else."""
    fds = [memory(bytes([i % 256])) for i in range(300)]
    tensors = [tensor(f"m/{i:04}", descriptor=i % 300) for i in range(900)]
    assert ask(agent, "put_tensor", fds, tensors=tensors, state_dict="m")[0] == {"status": "ok", "count": 900}
    put(agent, "m2", b"other")
    put(agent, "m!", b"other")
    for fd in fds:
        os.close(fd)
    assert memories_of(agent) == 302
    answer, got = ask(agent, "get_tensor", state_dict="m")
    assert len(got) == 300 and [one["key"] for one in answer["tensors"]] == [one["key"] for one in tensors]
    for i in (0, 299, 300, 899):
        descriptor = int.from_bytes(bytes.fromhex(answer["tensors"][i]["ipc_handle"])[-4:], "little")
        assert os.pread(got[descriptor], 1, 0) == bytes([i % 300 % 256])
    for fd in got:
        os.close(fd)
    fd = memory(b"new")
    ask(agent, "put_tensor", [fd], tensors=[tensor("m/b"), tensor("m/a")], state_dict="m")
    os.close(fd)
    wait_until("what was replaced and what was sent is given back", lambda: memories_of(agent) == 3)
    assert [one["key"] for one in agent.ask("list_keys")["keys"]] == ["m!", "m/a", "m/b", "m2"]
    assert agent.ask("unregister", key="m", recursive=True)["status"] == "ok"
    assert [one["key"] for one in agent.ask("list_keys")["keys"]] == ["m!", "m2"]


def test_register_takes_one_tensor(agent: Agent) -> None:
    fd = memory(b"one")
    answer, _ = ask(agent, "register", [fd], **tensor("a//b"))
    assert answer == {"status": "ok", "key": "a/b", "count": 1}
    os.close(fd)
    answer, [got] = ask(agent, "get_tensor", keys=["a/b"])
    assert os.pread(got, 3, 0) == b"one"
    os.close(got)


def test_the_agent_copies_into_what_the_caller_has(agent: Agent) -> None:
    put(agent, "a", bytes(range(12)), shape=(3, 4), strides=(4, 1))
    into = memory()
    more = {"keys": ["a"], "dest_ipc_handles": [handle(0, 100, (1, 3))], "shapes": [[3, 4]], "devices": ["cpu"]}
    answer, got = ask(agent, "get_tensor", [into], dtypes=["torch.uint8"], **more)
    assert answer == {"status": "ok", "tensors": [{"key": "a"}]} and got == []
    assert os.pread(into, 12, 100) == bytes(row * 4 + column for column in range(4) for row in range(3))
    assert not mapped_by(agent.pid)
    for wrong, why in (({"dtypes": ["int8"]}, "another dtype"), ({"dtypes": ["uint8"], "shapes": [[4, 3]]}, "another dtype or shape"),
                       ({"dtypes": ["uint8"], "shapes": [[12]]}, "'shape'"), ({}, "unknown dtype")):
        assert why in ask(agent, "get_tensor", [into], **{**more, **wrong})[0]["error"]
    assert "did not come" in ask(agent, "get_tensor", [], dtypes=["uint8"], **more)[0]["error"]
    read_only = os.open(f"/proc/self/fd/{into}", os.O_RDONLY)
    assert "not permitted" in ask(agent, "get_tensor", [read_only], dtypes=["uint8"], **more)[0]["error"]
    os.close(into)
    os.close(read_only)
    assert memories_of(agent) == 1


# ---- what does not come in ----

@pytest.mark.parametrize("wrong, why", [
    (tensor("k", dtype="torch.float31"), "'k': unknown dtype 'torch.float31'"), (tensor("k", dtype="object"), "unknown dtype"),
    (tensor("k", shape=(BYTES + 1,)), "within"), (tensor("k", offset=1), "within"), (tensor("k", strides=(-1,)), "within"),
    (tensor("k", shape=(1 << 52,), strides=(1 << 62,)), "within"), (tensor("k", shape=(2, 2)), "'shape'"),
    (tensor("k", shape=(-1,)), "'shape'"), (tensor("k", descriptor=1), "did not come"), (tensor("k", descriptor=1 << 31), "did not come"),
    (tensor("k", size=BYTES - 1), "another size"), (tensor("k", shape=(1,), size=BYTES + 1), "another size"), (tensor("\n"), "'key'"),
    ({**tensor("k"), "device": "cuda:0"}, "'device'"), ({**tensor("k"), "device": "meta"}, "'device'"),
    ({**tensor("k"), "ipc_handle": "00"}, "'ipc_handle'"), ({**tensor("k"), "ipc_handle": 5}, "'ipc_handle'"), ({}, "'key'"),
    (7, "'key'"),
])
def test_tensors_that_are_refused(agent: Agent, wrong: Any, why: str) -> None:
    """And with them those that are all right."""
    fd = memory()
    answer, _ = ask(agent, "put_tensor", [fd], tensors=[tensor("fine"), wrong])
    os.close(fd)
    assert answer["status"] == "error" and why in answer["error"], answer
    assert agent.ask("list_keys")["keys"] == [] and memories_of(agent) == 0


def test_memory_that_is_refused(agent: Agent, tmp_path: pathlib.Path) -> None:
    pipe = os.pipe()
    for fd in (memory(seals=0), memory(seals=fcntl.F_SEAL_GROW), os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT), *pipe):
        assert "sealed" in ask(agent, "put_tensor", [fd], tensors=[tensor("k")])[0]["error"]
        os.close(fd)
    fd = memory()
    for more, why in (({"state_dict": "other"}, "below"), ({"state_dict": "/"}, "'state_dict'"), ({"tensors": [tensor("k")] * 2}, "twice")):
        assert why in ask(agent, "put_tensor", [fd], **{"tensors": [tensor("k")], **more})[0]["error"]
    os.close(fd)
    assert memories_of(agent) == 0


def test_more_descriptors_than_there_is_room_for(agent: Agent) -> None:
    fd = memory()
    put(agent, "before", b"")
    open_now = len(os.listdir(f"/proc/{agent.pid}/fd"))
    limit = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (open_now + 20, limit[1]))
    assert "no room" in ask(agent, "put_tensor", [fd] * 200, tensors=[tensor("k")])[0]["error"]
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, limit)
    assert [one["key"] for one in agent.ask("list_keys")["keys"]] == ["before"]
    wait_until("all are closed", lambda: len(os.listdir(f"/proc/{agent.pid}/fd")) <= open_now)
    assert ask(agent, "put_tensor", [fd] * 1012, tensors=[tensor("k", descriptor=1011)])[0]["status"] == "ok"
    os.close(fd)
    wait_until("one is kept", lambda: memories_of(agent) == 2)


def test_other_pods_get_none(agent: Agent) -> None:
    for command in ("put_tensor", "get_tensor"):
        assert agent.ask(command, remote=True) == {"status": "error", "error": f"Unknown remote command: {command}"}


# ---- who dies when ----

OWNER = """
import os, sys, time
sys.path[:0] = {path!r}
import test_agent_tensors as t
class Agent: pass
agent = Agent()
import socket
def connect():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect({socket!r})
    return connection
agent.connect = connect
step = {step!r}
fd = t.memory(b"owned")
frame = t.json.dumps({{"command": "put_tensor", "tensors": [t.tensor({key!r} + "/a"), t.tensor({key!r} + "/b")], "state_dict": {key!r}, "pid": os.getpid()}}).encode()
connection = agent.connect()
if step == "head":  # a byte of the length, and the descriptor
    connection.sendmsg([b"\\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, t.array.array("i", [fd]))])
else:
    t.send(connection, frame, [fd])
if step == "answered":
    assert t.receive(connection)[0]["status"] == "ok"
print("there", flush=True)
time.sleep(600)
"""


def owner(agent: Agent, step: str, key: str = "d") -> subprocess.Popen[str]:
    text = OWNER.format(path=sys.path, socket=str(agent.socket), step=step, key=key)
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "there\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout
    process.stdout.close()


@pytest.mark.parametrize("step", ["head", "frame", "answered"])
def test_an_owner_that_is_killed_leaves_no_memory(agent: Agent, step: str) -> None:
    process = owner(agent, step)
    kill(process)
    wait_until("its memory is given back", lambda: memories_of(agent) == 0, SWEEPS_S)
    answer, fds = ask(agent, "get_tensor", state_dict="d")
    refused, put_before = "not found" in answer["error"], "gone" in answer["error"]
    # A whole frame may be read before or after its sender has ended.
    assert fds == [] and (refused and step != "answered" or put_before and step != "head"), answer
    put(agent, "d/a", b"mine")
    assert [one["key"] for one in agent.ask("list_keys")["keys"]] == ["d/a"]


def test_who_holds_a_tensor_reads_on_after_its_owner_died(agent: Agent) -> None:
    process = owner(agent, "answered")
    answer, [fd] = ask(agent, "get_tensor", keys=["d/a"])
    assert answer["tensors"][0]["pid"] == process.pid
    with mmap.mmap(fd, BYTES) as mapped:
        os.close(fd)
        kill(process)
        gone, fds = ask(agent, "get_tensor", keys=["d/a"])  # at once, not only when it is swept
        assert fds == [] and f"gone: process {process.pid} has ended" in gone["error"]
        wait_until("the agent has none of it", lambda: memories_of(agent) == 0, SWEEPS_S)
        assert mapped[:5] == b"owned" and mapped[5:] == bytes(BYTES - 5)


def test_another_living_process_keeps_its_tensors(agent: Agent) -> None:
    process = owner(agent, "answered")
    fd = memory(b"mine")
    for more in ({"tensors": [tensor("d/a")]}, {"tensors": [tensor("d/c")], "state_dict": "d"}):
        answer, _ = ask(agent, "put_tensor", [fd], pid=process.pid, **more)  # it is not who it says
        assert f"process {process.pid}'s" in answer["error"], answer
    assert "another process's" in agent.ask("unregister", key="d", recursive=True, pid=os.getpid())["error"]
    assert memories_of(agent) == 1
    kill(process)
    assert ask(agent, "put_tensor", [fd], tensors=[tensor("d/c")], state_dict="d")[0]["status"] == "ok"
    os.close(fd)
    assert [one["key"] for one in agent.ask("list_keys")["keys"]] == ["d/c"]


@pytest.mark.parametrize("key", ["", "a"])
def test_a_state_dict_outlives_those_below_it(agent: Agent, key: str) -> None:
    """Whether its own tensors come before or behind those of "m/d", which go with their owner."""
    process = owner(agent, "answered", "m/d")
    fd = memory(b"mine")
    mine = [f"m/{one}" for one in ("a", "z")] if key else ["m"]
    for one in mine:
        assert ask(agent, "put_tensor", [fd], tensors=[tensor(one)])[0]["status"] == "ok"
    os.close(fd)

    def found(state_dict: str) -> Any:
        answer, fds = ask(agent, "get_tensor", state_dict=state_dict)
        for fd in fds:
            os.close(fd)
        return answer.get("error") or sorted(one["key"] for one in answer["tensors"])

    assert found("m") == sorted([*mine, "m/d/a", "m/d/b"])
    kill(process)
    assert found("m") == sorted(mine)
    assert f"gone: process {process.pid} has ended" in found("m/d")
    assert agent.ask("unregister", key="m" if not key else "m/a")["status"] == "ok"
    if key:
        assert found("m") == ["m/z"]
        assert agent.ask("unregister", key="m/z")["status"] == "ok"
    assert f"gone: process {process.pid} has ended" in found("m")


@pytest.mark.parametrize("reads", [0, 1, 4])
def test_a_receiver_that_leaves_keeps_nothing(agent: Agent, reads: int) -> None:
    """At every point of an answer: descriptors on their way are closed with the socket."""
    put(agent, "k", b"x")
    connection = agent.connect()
    send(connection, json.dumps({"command": "get_tensor", "keys": ["k"]}).encode(), [])
    if reads:
        connection.recvmsg(reads)  # without room for descriptors
    connection.close()
    wait_until("one is left", lambda: memories_of(agent) == 1)
    assert agent.ask("unregister", key="k")["status"] == "ok"
    wait_until("none is left", lambda: memories_of(agent) == 0)


def test_an_agent_that_is_killed_takes_no_memory_with_it(tmp_path: pathlib.Path) -> None:
    with Agent(tmp_path) as agent:
        put(agent, "k", b"kept")
        _, [fd] = ask(agent, "get_tensor", keys=["k"])
        os.kill(agent.pid, signal.SIGKILL)
        agent.process.wait()
        with mmap.mmap(fd, BYTES) as mapped:
            os.close(fd)
            assert mapped[:4] == b"kept"
