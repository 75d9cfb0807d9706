# SPDX-License-Identifier: Apache-2.0
"""penstockd --role store: participants of broadcasts of tensors that say what they should not, and too much."""
from __future__ import annotations

import concurrent.futures
import json
import pathlib
import random
from typing import Any, Iterator

import pytest
from data_store import BINARY, CLOSE, DataStore, WebSocket
from exchanges import Pod, completed, groups, ready_group, tensor, until, wanted

JOIN = {"action": "join", "role": "getter", "pod_ip": "10.0.0.9", "world_size": 9, "tensors": [tensor("a")]}


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Iterator[DataStore]:
    with DataStore(tmp_path / "data") as it:
        yield it


def deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def with_tensor(**more: Any) -> dict:
    return {**JOIN, "tensors": [{**tensor("a"), **more}]}


WRONG: list[tuple[bytes | dict, str]] = [
    (b"{", "JSON"), (b"[]", "action"), (b"", ""), (b"\xff", ""), (b'{"action":7}', "action"), ({"action": "leave"}, "action"),
    ({"action": "complete", "success": True}, "not ready"), ({"action": "complete", "success": "yes"}, "success"),
    ({"action": "complete"}, "success"),
    ({**JOIN, "role": "leader"}, "role"), ({**JOIN, "role": None}, "role"),
    ({**JOIN, "pod_ip": None}, "pod_ip"), ({**JOIN, "pod_ip": "10.0.0.1/x"}, "pod_ip"), ({**JOIN, "pod_ip": "1" * 64}, "pod_ip"),
    ({**JOIN, "pod_ip": ""}, "pod_ip"),
    ({**JOIN, "pod_name": 7}, "pod_name"), ({**JOIN, "pod_name": "x" * 254}, "pod_name"),
    ({**JOIN, "world_size": None}, "at least one"), ({**JOIN, "world_size": 0}, "world_size"),
    ({**JOIN, "world_size": 4097}, "world_size"), ({**JOIN, "world_size": 1.5}, "world_size"), ({**JOIN, "world_size": "2"}, "world_size"),
    ({**JOIN, "timeout": 0}, "timeout"), ({**JOIN, "timeout": -1}, "timeout"), ({**JOIN, "timeout": 86401}, "timeout"),
    ({**JOIN, "timeout": "1"}, "timeout"), (b'{"action":"join","role":"getter","pod_ip":"1.1.1.1","timeout":1e999,"tensors":[]}', "timeout"),
    ({**JOIN, "tensors": None}, "tensors"), ({**JOIN, "tensors": {}}, "tensors"), ({**JOIN, "tensors": ["a"]}, "tensors"),
    ({**JOIN, "tensors": [tensor("a")] * 4097}, "4096"),
    (with_tensor(key=None), "key"), (with_tensor(key=""), "key"), (with_tensor(key="x" * 300), "key"), (with_tensor(key="a/" * 3000), "key"),
    (with_tensor(key="a\x07"), "key"), (with_tensor(key=".."), "key"),
    (with_tensor(shape=None), "shape"), (with_tensor(shape="2"), "shape"), (with_tensor(shape=[1.5]), "shape"),
    (with_tensor(shape=[-1]), "below 0"), (with_tensor(shape=[2**53]), "shape"), (with_tensor(shape=[1] * 17), "16"),
    (with_tensor(dtype=None), "dtype"), (with_tensor(dtype=""), "dtype"), (with_tensor(dtype="x" * 65), "64"),
    (with_tensor(dest_ipc_handle="x" * 4095), "4096"), (with_tensor(dest_ipc_handle=[2**53]), "2^53"),
    (with_tensor(dest_ipc_handle=deep(40)), "deep"),
]  # fmt: skip


def test_joins_that_cannot_be(store: DataStore) -> None:
    for said, word in WRONG:
        with Pod(store) as pod:
            pod.send(said if isinstance(said, bytes) else json.dumps(said).encode())
            if said == b"\xff":  # which libwebsockets finds out
                assert pod.receive()[0] == CLOSE
            else:
                message = pod.fault()
                assert word in message, (said, message)
    with Pod(store) as pod:
        pod.send(b"\x00", BINARY)
        assert pod.receive()[0] == CLOSE
    assert groups(store) == [] and store.ask("GET", "/health")[0] == 200
    largest = with_tensor(key="/".join(["x" * 255] * 15), shape=[2**53 - 1] * 16, dtype="x" * 64, dest_ipc_handle="x" * 4094)
    with Pod(store) as pod:
        pod.say(**largest)
        assert pod.hear()["event"] == "queued"


@pytest.mark.parametrize("path", ["/ws/broadcast/%ff", "/ws/fs-broadcast/%c3", "/ws/broadcast/", "/ws/broadcast/%00"])
def test_names_that_cannot_be(store: DataStore, path: str) -> None:
    assert WebSocket(store.http_port, path).receive()[0] == CLOSE


def test_a_socket_joins_once(store: DataStore) -> None:
    for second, word in ((JOIN, "once"), ({"action": "complete", "success": True}, "not ready"), ({"action": "what"}, "action")):
        pods = [Pod(store, "putter", "10.0.0.1", [tensor("a")], world_size=3), Pod(store, "getter", "10.0.0.2", wanted("a"))]
        pods[1].say(**second)
        assert word in pods[1].fault()
        until(lambda: groups(store)[0]["pods"] == ["10.0.0.1"])
        pods[0].close()
        until(lambda: groups(store) == [])
    pods = ready_group(store)
    pods[1].say(**JOIN)
    assert "once" in pods[1].fault()
    for pod in (pods[0], pods[2]):
        assert "10.0.0.2" in pod.fault()
    pods = ready_group(store)
    for _ in range(2):
        pods[1].say(action="complete", success=True)
    assert "once" in pods[1].fault()
    completed(pods[0], pods[2])


def large(name: str, count: int, handle_bytes: int) -> list[dict]:
    return [tensor(f"{name}/{number}", dest_ipc_handle="x" * handle_bytes) for number in range(count)]


def test_more_than_a_message_may_have(store: DataStore) -> None:
    """A pod's lists are one message: two of its getters that fit each do not fit together."""
    pods = [Pod(store, "putter", "10.0.0.1", large("a", 150, 0) + large("b", 150, 0), world_size=3)]
    pods += [Pod(store, "getter", "10.0.0.2", large(name, 150, 4000)) for name in "ab"]
    for pod in pods:
        message = pod.fault()
        assert "1 MiB" in message and "10.0.0.2" in message
    pods = [Pod(store, "putter", "10.0.0.1", large("a", 230, 0), world_size=2), Pod(store, "getter", "10.0.0.2", large("a", 230, 4000))]
    assert [len(pod.ready()["receives"]) for pod in pods] == [0, 230]
    completed(*pods)


def test_more_than_the_store_keeps(store: DataStore) -> None:
    pods = [Pod(store, "getter", "10.0.0.2", large("a", 240, 4000), world_size=99) for _ in range(68)]
    with Pod(store) as late:
        late.say(**{**JOIN, "tensors": large("a", 240, 4000)})
        assert "64 MiB" in late.fault()
    small = Pod(store, "getter", "10.0.0.3", wanted("a"))
    assert small.queued["position"] == 69
    for pod in pods:
        pod.close()
    until(lambda: groups(store)[0]["pods"] == ["10.0.0.3"])
    assert Pod(store, "getter", "10.0.0.2", large("a", 240, 4000)).queued["position"] == 2


def test_all_that_many_are_told_is_bounded(store: DataStore) -> None:
    pods = [Pod(store, "putter", "10.0.0.1", large("a", 230, 0), world_size=82),
            Pod(store, "getter", "10.0.0.2", large("a", 230, 4000)),
            *(Pod(store, "getter", "10.0.0.2", []) for _ in range(80))]
    for pod in pods:
        assert "64 MiB" in pod.fault()


def test_who_does_not_wait_for_answers(store: DataStore) -> None:
    """A store that is busy with others' messages keeps a few of a participant, and not all that it says."""
    slow = json.dumps({**JOIN, "tensors": [tensor(f"k{number}", dest_ipc_handle=[0.1] * 200) for number in range(800)]}).encode()
    busy = [Pod(store) for _ in range(5)]
    for pod in busy:
        pod.send(slow)
    with Pod(store) as hasty:
        for _ in range(20):
            hasty.say(action="heartbeat")
        assert "wait" in hasty.fault()
    assert sorted(pod.hear()["position"] for pod in busy) == [1, 2, 3, 4, 5]


def test_many_at_once(store: DataStore) -> None:
    """Groups of many pods at the same time, in some of which one is killed."""
    def one(number: int) -> str:
        group, index = f"group-{number % 10}", number // 10
        pod = Pod(store, "putter" if index == 7 else "getter", f"10.{number % 10}.0.{index}", wanted("b", "a"), group=group, world_size=30)
        told = pod.ready()
        assert told["world_size"] == 30 and (told["rank"] == 0) == (index == 7), told
        assert [one["key"] for one in told["sends"] + told["receives"]] == ["a", "b"]
        if group < "group-3" and index == 11:
            pod.close()
            return "killed"
        pod.say(action="complete", success=True)
        told = pod.hear()
        assert pod.hear() is None
        return told["event"]

    with concurrent.futures.ThreadPoolExecutor(300) as pool:
        ends = list(pool.map(one, range(300)))
    assert [ends.count(end) for end in ("completed", "error", "killed")] == [210, 87, 3]
    until(lambda: groups(store) == [])


def test_whatever_is_said_the_store_lives(store: DataStore) -> None:
    chance = random.Random(3)
    words = [JOIN, {**JOIN, "world_size": 2}, {**JOIN, "role": "putter", "world_size": 3, "timeout": 0.01}, {"action": "heartbeat"},
             {"action": "complete", "success": True}, {"action": "complete", "success": False}]

    def one(_: int) -> None:
        with Pod(store, group=f"g{chance.randrange(4)}") as pod:
            pod.socket.settimeout(0.1)
            try:
                for _ in range(chance.randrange(6)):
                    said = bytearray(json.dumps(chance.choice(words)).encode())
                    if chance.random() < 0.2:
                        said[chance.randrange(len(said))] = chance.randrange(128)
                    pod.send(bytes(said))
                    if chance.random() < 0.3:
                        pod.receive()
            except OSError:
                pass  # its part was over, or there was nothing to hear

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        list(pool.map(one, range(1500)))
    until(lambda: groups(store) == [])
    completed(*ready_group(store))
    left = [*ready_group(store), Pod(store, "getter", "10.0.0.9", wanted("a"), world_size=2)]
    store.stop()
    assert [pod.hear() for pod in left] == [None] * 4
