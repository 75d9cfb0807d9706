# SPDX-License-Identifier: Apache-2.0
"""penstockd --role agent: execute_broadcast_group, by frames: tensors of the host and of a GPU that this machine does not have."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import struct
import time
import uuid
from typing import Any, Iterator

import fake_gpu
import pytest
from agent import Agent
from agent_rounds import Pods, Round, put_writable, read_and_close, receive_of, send_of
from fake_gpu import Driver, Memory
from ports import free_port
from support import wait_until
from tensor_frames import ask, handle, memory, put, tensor


@pytest.fixture
def pods(tmp_path: pathlib.Path) -> Iterator[Pods]:
    with contextlib.ExitStack() as stack:
        yield Pods(tmp_path, stack)


@pytest.fixture(scope="module")
def driver() -> Driver:
    return Driver()


def put_on_gpu(agent: Agent, memory: Memory, key: str, **more: Any) -> None:
    told = agent.ask("put_tensor", tensors=[memory.tensor(key, **more)], pid=os.getpid())
    assert told == {"status": "ok", "count": 1}, told


def test_gpus_by_nccl(pods: Pods, driver: Driver) -> None:
    """Three pods; tensors that lie behind one another in a memory, with gaps, and of more than one piece."""
    data = os.urandom(3 << 20)
    source = Memory(driver, len(data), data)
    dests = [Memory(driver, len(data)) for _ in range(2)]
    gaps = {"shape": (1000, 16), "strides": (64, 1), "offset": 1 << 20}
    put_on_gpu(pods.add(), source, "w/a", shape=(1 << 20,))
    put_on_gpu(pods[0], source, "w/b", **gaps)
    one = Round(3)
    one.ask(pods[0], 0, sends=[send_of("w/b", 3), send_of("w/a", 3, shape=[1 << 20], dtype="torch.uint8")])
    for rank, dest in enumerate(dests, 1):
        one.ask(pods.add(), rank, receives=[receive_of("w/a", dest.handle(), (1 << 20,)),
                                            receive_of("w/b", {"ipc_handle": dest.handle(1 << 20, (64, 1)), "device": "cuda:0"}, (1000, 16))])
    assert one.answers() == [{"status": "ok", "group_id": "g", "rank": rank, "way": "nccl"} for rank in range(3)]
    wanted = bytearray(len(data))
    wanted[:1 << 20] = data[:1 << 20]
    for row in range(1000):
        at = (1 << 20) + 64 * row
        wanted[at:at + 16] = data[at:at + 16]
    assert [dest.read() == wanted for dest in dests] == [True, True]
    for memory in (source, *dests):
        memory.close()


@pytest.mark.parametrize("device, way", [("cuda:0", "nccl"), ("cuda:1", "row")])
def test_tensors_on_several_gpus(pods: Pods, driver: Driver, device: str, way: str) -> None:
    """They go through the memory of the hosts. One without elements lies nowhere, and is in nobody's way."""
    source, dest = Memory(driver, 4096, os.urandom(4096)), Memory(driver, 4096)
    tensors = [{**source.tensor("w/a", (1024,)), "device": device}, source.tensor("w/b", (1024,), offset=2048),
               {**source.tensor("w/c", (0,)), "device": "cuda:1"}]
    assert pods.add().ask("put_tensor", tensors=tensors, pid=os.getpid())["count"] == 3
    pods.add()
    one = Round(2)
    one.ask(pods[0], 0, sends=[send_of(f"w/{name}", 2) for name in "abc"])
    one.ask(pods[1], 1, receives=[receive_of("w/a", dest.handle(), (1024,)), receive_of("w/b", dest.handle(2048), (1024,)),
                                  receive_of("w/c", {"ipc_handle": dest.handle(), "device": "cuda:1"}, (0,))])
    assert one.ways() == [way, way]
    assert (dest.read()[:1024], dest.read()[2048:3072]) == (source.read()[:1024], source.read()[2048:3072])
    assert ("several GPUs" in pods[0].log()) == (way == "row")
    source.close(), dest.close()


def test_tensors_without_elements(pods: Pods, driver: Driver) -> None:
    memory = Memory(driver, 64)
    put_on_gpu(pods.add(), memory, "w/a", shape=(3, 0), strides=(1, 1))
    pods.add()
    one = Round(2)
    one.ask(pods[0], 0, sends=[send_of("w/a", 2)])
    one.ask(pods[1], 1, receives=[receive_of("w/a", memory.handle(0, (1, 1)), (3, 0))])
    assert one.ways() == ["row", "row"]
    memory.close()


def test_a_row_has_tensors_of_the_host_and_of_gpus(pods: Pods, driver: Driver) -> None:
    """The latter come without gaps, and are the host's there; those that lie nowhere come, too."""
    source = Memory(driver, 4096, bytes(range(256)) * 16)
    put(pods.add(), "w/host", b"x" * 8192)
    put_on_gpu(pods[0], source, "w/gpu", shape=(4, 3), strides=(16, 2), offset=5)
    put_on_gpu(pods[0], source, "w/none", shape=(0,))
    port = pods[0].ask("serve_broadcast", state_dict="w", group_id="g")["port"]
    told, fds = ask(pods.add(), "receive_broadcast", state_dict="w", group_id="g", ip="127.0.0.1", port=port, timeout=20)
    assert told["status"] == "ok", told
    found = {tensor["key"]: tensor for tensor in told["tensors"]}
    assert {key: (tensor["shape"], tensor["device"]) for key, tensor in found.items()} == {
        "w/gpu": ([4, 3], "cpu"), "w/host": ([8192], "cpu"), "w/none": ([0], "cpu")}
    _, _, _, _, size, offset, *strides, index = struct.unpack("<4sBBHQQ2qI", bytes.fromhex(found["w/gpu"]["ipc_handle"]))
    assert strides == [3, 1]
    assert os.pread(fds[index], 12, offset) == bytes(5 + 16 * row + 2 * column for row in range(4) for column in range(3))
    for fd in fds:
        os.close(fd)
    source.close()


def test_gpus_without_nccl(pods: Pods, driver: Driver, tmp_path: pathlib.Path) -> None:
    """One pod has no NCCL: all goes through the host's memory."""
    only_cuda = tmp_path / "libraries"
    only_cuda.mkdir()
    (only_cuda / "libcuda.so.1").symlink_to(fake_gpu.LIBRARIES / "libcuda.so.1")
    (only_cuda / "libnccl.so.2").touch()  # in front of one that this machine may have
    data = os.urandom(200_000)
    source, dest = Memory(driver, len(data), data), Memory(driver, len(data))
    put_on_gpu(pods.add(), source, "w/a", shape=(100_000,), offset=50_000)
    pods.add(LD_LIBRARY_PATH=str(only_cuda))
    one = Round(2)
    one.ask(pods[0], 0, sends=[send_of("w/a", 2)])
    one.ask(pods[1], 1, receives=[receive_of("w/a", dest.handle(7), (100_000,))])
    assert one.ways() == ["row", "row"]
    assert dest.read()[7:100_007] == data[50_000:150_000]
    assert "without NCCL: rank 1 (127.0.0.1): no NCCL here: " in pods[0].log()
    source.close(), dest.close()


def test_host_to_host_and_gpu(pods: Pods, driver: Driver) -> None:
    """Tensors of the host, to one that lies there and one on a GPU."""
    data = os.urandom(8192)
    put(pods.add(), "w/a", data)
    put(pods[0], "w/b", data[::-1], shape=(4096,), strides=(2,))
    pods.add()
    fds = [put_writable(pods[1], f"dest/{name}", size) for name, size in (("a", 8192), ("b", 4096))]
    there = Memory(driver, 3 * 4096)
    pods.add()
    one = Round(3)
    one.ask(pods[0], 0, sends=[send_of("w/a", 3), send_of("w/b", 3)])
    one.ask(pods[1], 1, receives=[receive_of("w/a", {"key": "dest/a"}, (8192,)), receive_of("w/b", {"key": "dest/b"}, (4096,))])
    one.ask(pods[2], 2, receives=[receive_of("w/a", there.handle(), (8192,)), receive_of("w/b", there.handle(8192), (4096,))])
    assert one.ways() == ["row"] * 3
    assert [read_and_close(fd) for fd in fds] == [data, data[::-2]]
    assert there.read() == data + data[::-2]
    there.close()


def test_many_tensors_of_one_memory_take_one_descriptor(pods: Pods) -> None:
    """Of agents that have few."""
    data, count, few = os.urandom(8192), 4096, ("prlimit", "--nofile=128:128")
    agents = []
    for name in ("source", "dest"):
        folder = pods.folder / name
        folder.mkdir()
        agents.append(pods.stack.enter_context(Agent(folder, within=few)))
        fd = memory(data if name == "source" else b"", 8192)
        told, _ = ask(agents[-1], "put_tensor", [fd], state_dict="w", pid=os.getpid(),
                      tensors=[tensor(f"w/{i:04}", (2,), offset=2 * i) for i in range(count)])
        assert told["count"] == count, told
    one = Round(2)
    one.ask(agents[0], 0, sends=[send_of(f"w/{i:04}", 2) for i in range(count)])
    one.ask(agents[1], 1, receives=[receive_of(f"w/{i:04}", {"key": f"w/{i:04}"}, (2,)) for i in reversed(range(count))])
    assert one.ways() == ["row", "row"]
    assert read_and_close(fd) == data


def test_copies_within_a_pod(pods: Pods, driver: Driver) -> None:
    data = os.urandom(8192)
    put(pods.add(), "w/a", data)
    gpu = Memory(driver, 8192)
    fd = put_writable(pods[0], "dest/a", 8192)
    put_on_gpu(pods[0], gpu, "w/b")
    for source, dest in (("w/a", gpu.handle()), ("w/b", {"key": "dest/a"})):
        told = pods[0].ask("execute_broadcast_group", group_id="g", rank=0, world_size=1, master_addr="10.0.0.1", master_port=29500,
                           sends=[], receives=[], local_transfers=[{"key": source, "src_tensor_key": source, "dest_ipc_handle": dest,
                                                                    "shape": [8192], "dtype": "torch.uint8"}])
        assert told == {"status": "ok", "group_id": "g", "rank": 0, "way": "copy"}
    assert gpu.read() == read_and_close(fd) == data
    gpu.close()


def test_memory_that_is_not_there_is_not_filled(pods: Pods) -> None:
    """A file of memory may be larger than the host's; what of it is to be copied is what counts."""
    size = 4 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    pods.add()
    for name in ("a", "b"):
        fd = memory(b"", size)
        tensors = [tensor(f"{name}/all", (size,), size=size), tensor(f"{name}/part", (8,), offset=size // 2, size=size)]
        os.pwrite(fd, name.encode() * 8, size // 2)
        told, _ = ask(pods[0], "put_tensor", [fd], tensors=tensors, pid=os.getpid())
        assert told["count"] == 2, told
        os.close(fd)
    frame = {"group_id": "g", "rank": 0, "world_size": 1, "master_addr": "10.0.0.1", "master_port": 29700}
    for name, said in (("all", ("error", "Cannot allocate memory")), ("part", ("ok", None))):
        told = pods[0].ask("execute_broadcast_group", **frame, local_transfers=[
            {"key": "x", "src_tensor_key": f"a/{name}", "dest_ipc_handle": {"key": f"b/{name}"}}])
        assert (told["status"], told.get("error")) == said
    told, fds = ask(pods[0], "get_tensor", keys=["b/part"])
    assert os.pread(fds[0], 8, size // 2) == b"a" * 8
    os.close(fds[0])


def test_rounds_that_are_done_make_room(pods: Pods) -> None:
    """More of them than an agent keeps."""
    put(pods.add(), "w/a", b"x" * 8192)
    fd = put_writable(pods[0], "dest/a", 8192)
    for number in range(300):
        told = pods[0].ask("execute_broadcast_group", group_id="g", round_id=str(number), rank=0, world_size=1, master_addr="10.0.0.1",
                           master_port=29700, local_transfers=[{"key": "w/a", "dest_ipc_handle": {"key": "dest/a"}}])
        assert told["status"] == "ok", told
    assert read_and_close(fd) == b"x" * 8192


def test_participants_of_a_pod_share_a_round(pods: Pods) -> None:
    """It is done once for all; who asks again asks for another round, which finds nobody."""
    put(pods.add(), "w/a", b"x" * 8192)
    fd = put_writable(pods.add(), "dest/a", 8192)
    one = Round(2, timeout=8, round_id="1")
    receives = [receive_of("w/a", {"key": "dest/a"}, (8192,))]
    for participant in ("a", "b"):
        one.ask(pods[1], 1, receives=receives, participant=participant)
    one.ask(pods[0], 0, sends=[send_of("w/a", 2)], participant="a")
    assert [told["status"] for told in one.answers()] == ["ok"] * 3
    late = pods[1].ask("execute_broadcast_group", **one.common, rank=1, receives=receives, participant="late")
    assert late["status"] == "ok"
    again = pods[1].ask("execute_broadcast_group", **{**one.common, "timeout": 1}, rank=1, receives=receives, participant="a")
    assert "rank 0 (127.0.0.1:" in again["error"] and "did not come within 1 s" in again["error"], again
    assert read_and_close(fd) == b"x" * 8192


@pytest.mark.parametrize("what, words", [("error", ["NCCL broadcast: unhandled system error: told to fail"]), ("crash", ["ended by signal 6"]),
                                         ("hang", ["NCCL has moved nothing for 3 s"]), ("alone", ["NCCL has moved nothing for 3 s"])])
def test_nccl_that_fails_harms_nobody(pods: Pods, driver: Driver, what: str, words: list[str]) -> None:
    """Whatever it does, all ranks hear why, and the agents go on."""
    source, dest = Memory(driver, 4096, b"y" * 4096), Memory(driver, 4096)
    put_on_gpu(pods.add(), source, "w/a")
    pods.add(FAKE_NCCL=what)
    one = Round(2, timeout=3)
    one.ask(pods[0], 0, sends=[send_of("w/a", 2)])
    one.ask(pods[1], 1, receives=[receive_of("w/a", dest.handle(), (4096,))])
    faults = one.faults()
    assert any(all(word in fault for word in words) for fault in faults), faults
    assert all("rank 1" in faults[0] or word in faults[0] for word in words), faults
    assert [agent.ask("ping")["status"] for agent in pods] == ["ok", "ok"]
    wait_until("movers that were left", lambda: not movers(pods))
    source.close(), dest.close()


@pytest.mark.parametrize("what", ["early", "close", "flood", "fork"])
def test_a_mover_that_is_odd(pods: Pods, driver: Driver, what: str) -> None:
    """It counts as one without NCCL, if it does not come so far as to move; whatever it has started ends with it."""
    source, dest = Memory(driver, 4096, b"y" * 4096), Memory(driver, 4096)
    put_on_gpu(pods.add(), source, "w/a")
    pods.add(FAKE_NCCL=what, TEST_MARK=(mark := uuid.uuid4().hex))
    one = Round(2, timeout=6)
    one.ask(pods[0], 0, sends=[send_of("w/a", 2)])
    one.ask(pods[1], 1, receives=[receive_of("w/a", dest.handle(), (4096,))])
    assert one.ways() == ["nccl" if what == "fork" else "row"] * 2
    assert dest.read() == b"y" * 4096
    wait_until("movers that were left", lambda: not movers_with(mark))
    source.close(), dest.close()


def movers_with(mark: str) -> list[str]:
    """Those that have it in their environment, wherever they have gone."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes() and b"--move-tensors" in (path.parent / "cmdline").read_bytes():
                found.append(path.parent.name)
    return found


def movers(pods: Pods) -> list[str]:
    found = []
    for agent in pods:
        children = pathlib.Path(f"/proc/{agent.pid}/task").glob("*/children")
        found += [pid for file in children for pid in file.read_text().split()]
    return [pid for pid in found if b"--move-tensors" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_rank_that_does_not_come(pods: Pods) -> None:
    put(pods.add(), "w/a", b"x" * 8192)
    fds = [put_writable(pods.add(), "dest/a", 8192) for _ in range(2)]
    one = Round(12, timeout=2)
    begun = time.monotonic()
    one.ask(pods[0], 0, sends=[send_of("w/a", 12)])
    for rank in (1, 2):
        one.ask(pods[rank], rank, receives=[receive_of("w/a", {"key": "dest/a"}, (8192,))])
    assert one.faults() == ["9 of 12 ranks did not come within 2 s: rank 3, 4, 5, 6, 7, 8, 9, 10 and others"] * 3
    assert time.monotonic() - begun < 15
    assert [read_and_close(fd) for fd in fds] == [bytes(8192)] * 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_dies_or_hangs(pods: Pods, number: int) -> None:
    """One of three waits in the meeting when its agent is killed, or stops."""
    put(pods.add(), "w/a", b"x" * 8192)
    fds = [put_writable(pods.add(), "dest/a", 8192) for _ in range(2)]
    one = Round(4, timeout=10)
    one.ask(pods[0], 0, sends=[send_of("w/a", 4)])
    one.ask(pods[1], 1, receives=[receive_of("w/a", {"key": "dest/a"}, (8192,))])
    doomed = pods[2]
    connection = doomed.connect()
    frame = json.dumps({"command": "execute_broadcast_group", **one.common, "rank": 2,
                        "receives": [receive_of("w/a", {"key": "dest/a"}, (8192,))]}).encode()
    connection.sendall(len(frame).to_bytes(4, "big") + frame)
    time.sleep(1.5)
    os.kill(doomed.pid, number)
    faults = one.faults()
    assert faults[0] == faults[1]
    assert ("rank 2 (127.0.0.1) has gone" if number == signal.SIGKILL else "rank 2 (127.0.0.1) has said nothing for ") in faults[0]
    os.kill(doomed.pid, signal.SIGKILL)
    connection.close()
    for fd in fds:
        os.close(fd)


def test_ranks_that_expect_something_else(pods: Pods) -> None:
    put(pods.add(), "w/a", b"x" * 8192)
    fd = put_writable(pods.add(), "dest/a", 4096)
    one = Round(2)
    one.ask(pods[0], 0, sends=[send_of("w/a", 2)])
    one.ask(pods[1], 1, receives=[receive_of("w/a", {"key": "dest/a"}, (4096,))])
    assert one.faults() == ["rank 1 (127.0.0.1) receives other tensors than rank 0 sends"] * 2
    os.close(fd)


def asking(agent: Agent, one: Round, rank: int, **more: Any) -> socket.socket:
    """A process that has asked, and waits."""
    connection = agent.connect()
    frame = json.dumps({"command": "execute_broadcast_group", **one.common, "rank": rank, **more}).encode()
    connection.sendall(len(frame).to_bytes(4, "big") + frame)
    return connection


def test_a_round_goes_on_while_somebody_waits(pods: Pods) -> None:
    """The first to ask goes, whose thread does the work, and one that waits for it."""
    put(pods.add(), "w/a", b"x" * 8192)
    fd = put_writable(pods.add(), "dest/a", 8192)
    one = Round(2, round_id="1")
    receives = [receive_of("w/a", {"key": "dest/a"}, (8192,))]
    first, second = (asking(pods[1], one, 1, receives=receives, participant=name) for name in "ab")
    time.sleep(0.5)
    one.ask(pods[1], 1, receives=receives, participant="c")
    time.sleep(0.5)
    first.close(), second.close()
    time.sleep(1.5)
    one.ask(pods[0], 0, sends=[send_of("w/a", 2)])
    assert one.ways() == ["row", "row"]
    assert read_and_close(fd) == b"x" * 8192


def test_a_round_ends_when_nobody_waits(pods: Pods) -> None:
    """Before the others have come, and while they wait."""
    put(pods.add(), "w/a", b"x" * 8192)
    fd = put_writable(pods.add(), "dest/a", 8192)
    one = Round(3, timeout=60)
    one.ask(pods[1], 1, receives=[receive_of("w/a", {"key": "dest/a"}, (8192,))])
    source = asking(pods[0], one, 0, sends=[send_of("w/a", 3)])
    time.sleep(1)
    source.close()
    assert one.faults() == ["rank 0: the process that asked for it has gone"]
    os.close(fd)


def test_groups_meet_at_one_port_one_after_the_other(pods: Pods) -> None:
    """Whose members come in any order."""
    for name in "gh":
        put(pods.add(), "w/a", name.encode() * 8192)
    fds = [put_writable(pods.add(), "dest/a", 8192) for _ in range(2)]
    first, second = Round(2, timeout=30), Round(2, timeout=30, group_id="h")
    second.common["master_port"] = first.common["master_port"]
    first.ask(pods[0], 0, sends=[send_of("w/a", 2)])
    time.sleep(0.5)
    second.ask(pods[1], 0, sends=[send_of("w/a", 2)])
    second.ask(pods[3], 1, receives=[receive_of("w/a", {"key": "dest/a"}, (8192,))])
    time.sleep(1)
    assert not any(asked.done() for asked in first.asked + second.asked)
    first.ask(pods[2], 1, receives=[receive_of("w/a", {"key": "dest/a"}, (8192,))])
    assert first.ways() == second.ways() == ["row", "row"]
    assert [read_and_close(fd) for fd in fds] == [b"g" * 8192, b"h" * 8192]


def test_a_port_that_is_taken(pods: Pods) -> None:
    put(pods.add(), "w/a", b"x" * 8192)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        one = Round(2, timeout=1, master_port=taken.getsockname()[1])
        one.ask(pods[0], 0, sends=[send_of("w/a", 2)])
        assert one.faults() == [f"rank 0 cannot listen on port {one.common['master_port']}: Address already in use"]


def test_the_token_is_asked_for(pods: Pods, tmp_path: pathlib.Path) -> None:
    """And strangers at the port of a meeting are sent away, or wait in vain, without harm."""
    tokens = [tmp_path / name for name in ("right", "wrong")]
    for path in tokens:
        path.write_text(path.name)
        path.chmod(0o600)
    put(pods.add("--token-file", str(tokens[0])), "w/a", b"x" * 8192)
    fds = [put_writable(pods.add("--token-file", str(token)), "dest/a", 8192) for token in (tokens[1], tokens[0])]
    one = Round(2)
    one.ask(pods[0], 0, sends=[send_of("w/a", 2)])
    wrong = Round(2)
    wrong.common = one.common
    wrong.ask(pods[1], 1, receives=[receive_of("w/a", {"key": "dest/a"}, (8192,))])
    assert wrong.faults() == ["no token, or a wrong one"]
    strangers = [socket.create_connection(("127.0.0.1", one.common["master_port"])) for _ in range(20)]
    for number, stranger in enumerate(strangers):
        stranger.sendall([b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b'{"token":"right","group_id":"h","rank":1}\n', b"[" * 5000,
                          b'{"token":"right","group_id":"g","rank":7}\n'][number % 5])
    one.ask(pods[2], 1, receives=[receive_of("w/a", {"key": "dest/a"}, (8192,))])
    assert [told["status"] for told in one.answers()] == ["ok", "ok"]
    assert [read_and_close(fd) for fd in fds] == [bytes(8192), b"x" * 8192]
    for stranger in strangers:
        stranger.close()


@pytest.mark.parametrize("change, words", [
    ({"rank": 2}, "'rank' and 'world_size'"), ({"world_size": 0}, "'rank' and 'world_size'"), ({"world_size": 5000}, "'rank' and 'world_size'"),
    ({"master_addr": "pod.name"}, "'master_addr'"), ({"master_port": 0}, "'master_addr'"), ({"group_id": ""}, "'group_id'"), ({"group_id": "a\x01"}, "control characters"),
    ({"round_id": "x" * 65}, "'round_id'"), ({"round_id": 7}, "'round_id'"), ({"round_id": "\n"}, "'round_id'"),
    ({"timeout": -1}, "'timeout'"), ({"participant": ""}, "'participant'"), ({"participant": "x" * 65}, "'participant'"),
    ({"sends": 7}, "'sends' must be a list"), ({"sends": [7]}, "'key'"), ({"sends": [send_of("nobody", 2)]}, "Key not found: nobody"),
    ({"sends": [send_of("w/a", 3)]}, "'to_ranks'"), ({"sends": [send_of("w/a", 2, shape=[9])]}, "another dtype or shape"),
    ({"sends": [send_of("w/a", 2, dtype="torch.int8")]}, "another dtype or shape"), ({"sends": [send_of("w/a", 2), send_of("/w//a", 2)]}, "it comes twice"),
    ({"sends": [send_of("w/a", 2)], "receives": [receive_of("w/a", {"key": "w/a"}, (8192,))]}, "rank 0 must have the 'sends'"),
    ({"rank": 1, "receives": [receive_of("w/a", None, (8192,))]}, "does not say where it goes"),
    ({"rank": 1, "receives": [receive_of("w/a", handle(), (8192,))]}, "its descriptor did not come"),
    ({"rank": 1, "receives": [receive_of("w/a", {"key": "nobody"}, (8192,))]}, "Key not found: nobody"),
    ({"rank": 1, "receives": [{**receive_of("w/a", {"key": "w/a"}, (8192,)), "from_rank": 1}]}, "'from_rank' must be 0"),
    ({"world_size": 1, "sends": [send_of("w/a", 1)]}, "there is nobody to send to"),
])  # fmt: skip
def test_what_cannot_be(pods: Pods, change: dict[str, Any], words: str) -> None:
    put(pods.add(), "w/a", b"x" * 8192)
    frame = {"group_id": "g", "rank": 0, "world_size": 2, "master_addr": "127.0.0.1", "master_port": free_port(), "timeout": 1, **change}
    told = pods[0].ask("execute_broadcast_group", **frame)
    assert told["status"] == "error" and words in told["error"], told
