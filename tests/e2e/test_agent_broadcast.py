# SPDX-License-Identifier: Apache-2.0
"""penstockd --role agent: tensors from one pod to many, by frames; who dies when, and what is left."""
from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any, Iterator

import pytest
from agent import Agent
from data_store import DataStore
from descriptors import memfds_of
from support import wait_until
from tensor_frames import BYTES, ask, handle, memories_of, memory, put, receive, send, tensor

MIB = 1 << 20
LARGE = 64 * MIB
ENDS_S = 60
SEAL_FUTURE_WRITE = 0x10  # of linux/fcntl.h


class Pods(list[Agent]):
    """Agents, each a pod's."""

    def __init__(self, folder: pathlib.Path, stack: contextlib.ExitStack) -> None:
        super().__init__()
        self.folder, self.stack = folder, stack

    def add(self, *more: str) -> Agent:
        folder = self.folder / str(len(self))
        folder.mkdir()
        self.append(self.stack.enter_context(Agent(folder, *more)))
        return self[-1]


@pytest.fixture
def pods(tmp_path: pathlib.Path) -> Iterator[Pods]:
    with contextlib.ExitStack() as stack:
        yield Pods(tmp_path, stack)


def serve(agent: Agent, key: str, group: str | None = "g") -> int:
    told = agent.ask("serve_broadcast", state_dict=key, group_id=group)
    assert told["status"] == "ok", told
    return int(told["port"])


def order(port: int, key: str = "svc/w", **more: Any) -> dict[str, Any]:
    return {"state_dict": key, "group_id": "g", "ip": "127.0.0.1", "port": port, "timeout": 20, **more}


def get(agent: Agent, port: int, key: str = "svc/w", **more: Any) -> tuple[Any, list[int]]:
    return ask(agent, "receive_broadcast", **order(port, key, **more))


def contents(fds: list[int]) -> list[bytes]:
    """What the memories have; closes them."""
    out = [os.pread(fd, os.fstat(fd).st_size, 0) for fd in fds]
    for fd in fds:
        os.close(fd)
    return out


def received_by(agent: Agent) -> int:
    """How many memories that came from other pods it has open."""
    return memfds_of(agent.pid, "penstock-t")


def put_large(agent: Agent, data: bytes) -> None:
    fd = memory(data, len(data))
    answer, _ = ask(agent, "put_tensor", [fd], tensors=[tensor("svc/w/x", (len(data),), size=len(data))], state_dict="svc/w", pid=os.getpid())
    os.close(fd)
    assert answer["status"] == "ok", answer


# ---- what goes in comes out ----

def test_tensors_arrive_in_every_pod(pods: Pods) -> None:
    source = pods.add()
    fds = [memory(os.urandom(BYTES)), memory(os.urandom(3 * MIB), 3 * MIB)]
    said = [tensor("svc/w/a", (2, 2), offset=1, strides=(2, 1)), tensor("svc/w/b", (), "float64", strides=()),
            tensor("svc/w/c.d", (3, 0), strides=(8, 8), dtype="int64"),
            {**tensor("svc/w/e", (1024, 256), "float32"), "ipc_handle": handle(1, 4096, (2048, -4), size=3 * MIB)}]
    answer, _ = ask(source, "put_tensor", fds, tensors=said, state_dict="svc/w", pid=os.getpid())
    assert answer["status"] == "ok", answer
    port = serve(source, "svc//w")
    takers = [pods.add() for _ in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda taker: get(taker, port, world_size=4), takers))
    wanted = contents(fds)
    for taker, (told, came) in zip(takers, results):
        assert told["status"] == "ok" and told["state_dict"] == "svc/w" and told["registered"] is True, told
        assert [(one["key"], one["dtype"], one["shape"], one["pid"]) for one in told["tensors"]] == [
            (one["key"], one["dtype"], one["shape"], os.getpid()) for one in sorted(said, key=lambda one: str(one["key"]))]
        assert sorted(one["ipc_handle"] for one in told["tensors"]) == sorted(str(one["ipc_handle"]) for one in said)
        assert contents(came) == wanted
        again, fds_again = ask(taker, "get_tensor", state_dict="svc/w")
        assert again["tensors"] == told["tensors"] and contents(fds_again) == wanted
    for agent in pods:
        agent.stop()


def test_what_has_come_stays_as_it_is(pods: Pods) -> None:
    source, taker = pods.add(), pods.add()
    put(source, "svc/w", b"hello")
    told, [fd] = get(taker, serve(source, "svc/w"))
    assert told["status"] == "ok"
    seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    assert seals & fcntl.F_SEAL_SHRINK and seals & SEAL_FUTURE_WRITE
    with pytest.raises(PermissionError):
        os.ftruncate(os.open(f"/proc/self/fd/{fd}", os.O_RDWR), 0)
    with pytest.raises(OSError):
        os.write(fd, b"x")
    assert os.pread(fd, 5, 0) == b"hello"
    os.close(fd)
    assert ask(taker, "unregister", key="svc/w")[0]["key"] == "svc/w"
    wait_until("the memory is given back", lambda: received_by(taker) == 0)


def test_processes_of_a_pod_share_what_comes(pods: Pods) -> None:
    source, taker = pods.add(), pods.add()
    put_large(source, os.urandom(LARGE))
    port = serve(source, "svc/w")
    source.process.send_signal(signal.SIGSTOP)
    with contextlib.ExitStack() as stack:
        asked = [stack.enter_context(taker.connect()) for _ in range(4)]
        for connection in asked:
            send(connection, json.dumps({"command": "receive_broadcast", **order(port)}).encode(), [])
        source.process.send_signal(signal.SIGCONT)
        results = [receive(connection) for connection in asked]
    assert [told["status"] for told, _ in results] == ["ok"] * 4, results
    assert len({os.fstat(fds[0]).st_ino for _, fds in results}) == 1
    assert sorted("registered" in told for told, _ in results) == [False, False, False, True]
    for _, fds in results:
        os.close(fds[0])


def test_a_new_group_gets_what_is_there_by_then(pods: Pods) -> None:
    source, taker = pods.add(), pods.add()
    for text in (b"one", b"two"):
        put(source, "svc/w", text)
        port = serve(source, "svc/w", text.decode())
        told, fds = get(taker, port, group_id=text.decode())
        assert told["registered"] is True and contents(fds)[0].rstrip(b"\0") == text


def test_a_key_that_another_process_has_there_stays_its_own(pods: Pods) -> None:
    source, taker = pods.add(), pods.add()
    put(source, "svc/w", b"theirs")
    code = ("import os, sys\nsys.path.insert(0, sys.argv[1])\nfrom tensor_frames import memory, tensor, send, receive\nimport json, socket\n"
            "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[2])\n"
            "send(s, json.dumps({'command': 'put_tensor', 'tensors': [tensor('svc/w')], 'pid': os.getpid()}).encode(), [memory(b'own')])\n"
            "assert receive(s)[0]['status'] == 'ok'\nprint('ready', flush=True)\nsys.stdin.read()\n")
    holder = subprocess.Popen([sys.executable, "-c", code, str(pathlib.Path(__file__).parents[1] / "lib"), str(taker.socket)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout and holder.stdout.readline() == "ready\n"
    told, fds = get(taker, serve(source, "svc/w"))
    assert told["status"] == "ok" and told["registered"] is False and contents(fds)[0].startswith(b"theirs")
    assert contents(ask(taker, "get_tensor", keys=["svc/w"])[1])[0].startswith(b"own")
    holder.communicate()


# ---- what is refused ----

def test_nothing_is_sent_that_is_not_served(pods: Pods) -> None:
    source, taker = pods.add(), pods.add()
    put(source, "svc/w", b"x")
    put(source, "svc/secret", b"y")
    port = serve(source, "svc/w")
    assert "Key not found: svc/secret" in get(taker, port, "svc/secret")[0]["error"]
    assert "Key not found: svc/w" in get(taker, port, group_id="other")[0]["error"]
    assert get(taker, serve(source, "svc/w", None), group_id="any")[0]["status"] == "ok"
    assert "Key not found: svc/none" in source.ask("serve_broadcast", state_dict="svc/none", group_id="g")["error"]
    source.ask("unregister", key="svc/w")
    assert "Key not found: svc/w" in get(taker, port, group_id="late")[0]["error"]


def test_without_the_token_nothing_is_sent(pods: Pods) -> None:
    token = pods.folder / "token"
    token.write_text("t" * 32)
    token.chmod(0o600)
    source, friend, stranger = pods.add("--token-file", str(token)), pods.add("--token-file", str(token)), pods.add()
    put(source, "svc/w", b"x")
    port = serve(source, "svc/w")
    assert "token" in get(stranger, port)[0]["error"]
    assert get(friend, port)[0]["status"] == "ok"


def test_trees_of_a_store_are_no_tensors(pods: Pods, tmp_path: pathlib.Path) -> None:
    taker = pods.add()
    with DataStore(tmp_path / "data") as store:
        folder = tmp_path / "data/files/default/m"
        folder.mkdir(parents=True)
        for name in ("a", "b"):
            (folder / name).write_bytes(os.urandom(40 * MIB))
        told, _ = get(taker, store.tree_port, "default/m", world_size=64)
    assert told["status"] == "error" and "no tensors" in told["error"] and received_by(taker) == 0


@pytest.mark.parametrize("wrong", [{"ip": "localhost"}, {"ip": None}, {"ip": "1.2.3.4.5"}, {"port": 0}, {"port": 65536}, {"port": "1"},
                                   {"world_size": -1}, {"world_size": 20001}, {"timeout": -1}, {"group_id": ""}, {"group_id": "a\nb"},
                                   {"group_id": "x" * 1025}, {"state_dict": ""}, {"state_dict": 7}])
def test_orders_that_cannot_be(pods: Pods, wrong: dict[str, Any]) -> None:
    taker = pods.add()
    told, fds = ask(taker, "receive_broadcast", **{**order(1), **wrong})
    assert told["status"] == "error" and told["error"] and not fds
    assert taker.ask("ping")["status"] == "ok"


def test_others_cannot_ask_for_it_over_tcp(pods: Pods) -> None:
    source = pods.add()
    put(source, "svc/w", b"x")
    for command in ("serve_broadcast", "receive_broadcast"):
        assert "Unknown remote command" in source.ask(command, remote=True, **order(1))["error"]


# ---- who dies when ----

def test_a_source_that_is_not_there_is_told(pods: Pods) -> None:
    source, taker = pods.add(), pods.add()
    put(source, "svc/w", b"x")
    port = serve(source, "svc/w")
    source.kill()
    told, _ = get(taker, port)
    assert told["status"] == "error" and "nothing listens" in told["error"], told


def test_an_owner_that_ended_serves_nobody(pods: Pods) -> None:
    source, taker = pods.add(), pods.add()
    code = ("import os, sys\nsys.path.insert(0, sys.argv[1])\nfrom tensor_frames import memory, tensor, send, receive\nimport json, socket\n"
            "def ask(**frame):\n    s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[2])\n"
            "    send(s, json.dumps(frame).encode(), [memory(b'x')] if 'tensors' in frame else [])\n    return receive(s)[0]\n"
            "ask(command='put_tensor', tensors=[tensor('svc/w')], pid=os.getpid())\n"
            "print(ask(command='serve_broadcast', state_dict='svc/w', group_id='g')['port'])\n")
    done = subprocess.run([sys.executable, "-c", code, str(pathlib.Path(__file__).parents[1] / "lib"), str(source.socket)],
                          capture_output=True, text=True, timeout=60, check=True)
    told, _ = get(taker, int(done.stdout))
    assert told["status"] == "error" and ("is gone" in told["error"] or "Key not found" in told["error"]), told
    wait_until("the memory is given back", lambda: memories_of(source) == 0)


def test_a_source_that_dies_in_the_middle_ends_it_for_all(pods: Pods) -> None:
    source, takers = pods.add(), [pods.add() for _ in range(3)]
    put_large(source, os.urandom(4 * LARGE))
    port = serve(source, "svc/w")
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        results = [pool.submit(get, taker, port, timeout=3) for taker in takers]
        wait_until("something comes", lambda: any(received_by(taker) for taker in takers))
        source.kill()
        told = [result.result()[0] for result in results]
    for one, taker in zip(told, takers):  # whoever had it all by then has it
        assert one["status"] == "ok" or one["error"], one
        if one["status"] != "ok":
            wait_until("what came is given back", lambda taker=taker: received_by(taker) == 0)
    assert time.monotonic() - begun < ENDS_S


def test_a_source_that_stops_ends_it_within_the_timeout(pods: Pods) -> None:
    source, taker = pods.add(), pods.add()
    put_large(source, os.urandom(LARGE))
    port = serve(source, "svc/w")
    source.process.send_signal(signal.SIGSTOP)
    told, _ = get(taker, port, timeout=2)
    source.process.send_signal(signal.SIGCONT)
    assert told["status"] == "error" and told["error"], told
    wait_until("what came is given back", lambda: received_by(taker) == 0)


def test_a_member_that_dies_is_stepped_over(pods: Pods) -> None:
    source, takers = pods.add(), [pods.add() for _ in range(4)]
    data = os.urandom(2 * LARGE)
    put_large(source, data)
    port = serve(source, "svc/w")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = [pool.submit(get, taker, port) for taker in takers]
        wait_until("something comes", lambda: received_by(takers[1]) > 0)
        takers[1].kill()
        for result in results[:1] + results[2:]:
            told, fds = result.result()
            assert told["status"] == "ok", told
            assert contents(fds) == [data]
        with contextlib.suppress(OSError):
            results[1].result()


def test_what_nobody_waits_for_is_given_up(pods: Pods) -> None:
    source, taker = pods.add(), pods.add()
    put_large(source, os.urandom(LARGE))
    port = serve(source, "svc/w")
    code = ("import sys\nsys.path.insert(0, sys.argv[1])\nfrom tensor_frames import send\nimport json, socket\n"
            "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[2])\nsend(s, sys.argv[3].encode(), [])\nprint('sent', flush=True)\nsys.stdin.read()\n")
    frame = json.dumps({"command": "receive_broadcast", **order(port, timeout=600)})
    source.process.send_signal(signal.SIGSTOP)
    process = subprocess.Popen([sys.executable, "-c", code, str(pathlib.Path(__file__).parents[1] / "lib"), str(taker.socket), frame],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "sent\n"
    process.kill()
    process.communicate()
    source.process.send_signal(signal.SIGCONT)
    wait_until("nothing is left of it", lambda: received_by(taker) == 0)
    taker.stop()


def test_an_agent_that_ends_tells_those_who_wait(pods: Pods) -> None:
    source, taker = pods.add(), pods.add()
    put_large(source, os.urandom(LARGE))
    port = serve(source, "svc/w")
    source.process.send_signal(signal.SIGSTOP)
    with taker.connect() as connection:
        send(connection, json.dumps({"command": "receive_broadcast", **order(port, timeout=600)}).encode(), [])
        taker.ask("ping")
        taker.process.send_signal(signal.SIGTERM)
        told, _ = receive(connection)
    source.process.send_signal(signal.SIGCONT)
    assert told is None or "stopping" in told["error"], told
    assert taker.wait() == 0, taker.log()


def test_memory_of_a_group_is_given_back_when_it_is_over(pods: Pods) -> None:
    source, taker = pods.add(), pods.add()
    put_large(source, os.urandom(MIB))
    assert get(taker, serve(source, "svc/w"))[0]["status"] == "ok"
    source.ask("unregister", key="svc/w", recursive=True)
    wait_until("the source gave it back", lambda: memories_of(source) == 0)
    taker.ask("unregister", key="svc/w", recursive=True)
    wait_until("the taker gave it back", lambda: received_by(taker) == 0)
