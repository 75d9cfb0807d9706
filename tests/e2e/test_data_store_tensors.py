# SPDX-License-Identifier: Apache-2.0
"""penstockd --role store: pods that broadcast tensors, each rule once, over raw WebSockets."""
from __future__ import annotations

import json
import pathlib
import time
from typing import Iterator

import pytest
from data_store import CLOSE, TEXT, DataStore, WebSocket
from exchanges import Pod, completed, groups, ready_group, tensor, until, wanted

HANDLE = [0, {"_bytes": "AAEC/w=="}, 4096, 512, {"_bytes": ""}, 0, True, None, -1.5, {"nested": ["\u00e9\n\"\\", 9007199254740991]}]


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Iterator[DataStore]:
    with DataStore(tmp_path / "data") as it:
        yield it


def test_one_pod_sends_to_the_others(store: DataStore) -> None:
    putter = Pod(store, "putter", "10.0.0.1", [tensor("/m//b"), tensor("m/a", (), "torch.int8"), tensor("idle")], world_size=3,
                 pod_name="one", timeout=None)
    first = Pod(store, "getter", "10.0.0.2", [tensor("m/b", dest_ipc_handle=HANDLE), tensor("m/a/", (), "int8")], timeout=99,
                world_size=9, route="gpu-broadcast")
    waiting = {"group_id": "g", "state": "waiting", "putters_count": 1, "getters_count": 1, "world_size": 3,
               "pods": ["10.0.0.1", "10.0.0.2"], "completed": 0}
    assert groups(store) == [waiting]
    second = Pod(store, "getter", "10.0.0.3", [tensor("m/a", (), "torch.int8", dest_ipc_handle="x"),
                                               tensor("m/b", dest_ipc_handle={"y": []})])
    assert [pod.queued["position"] for pod in (putter, first, second)] == [1, 2, 3]
    same = {"event": "ready", "group_id": "g", "world_size": 3, "master_addr": "10.0.0.1", "master_port": 29700}
    assert putter.ready() == {**same, "rank": 0, "ancestors": [], "receives": [], "local_transfers": [], "sends": [
        {"key": "m/a", "src_tensor_key": "m/a", "to_ranks": [1, 2], "shape": [], "dtype": "torch.int8"},
        {"key": "m/b", "src_tensor_key": "/m//b", "to_ranks": [1, 2], "shape": [2, 3], "dtype": "torch.float32"}]}
    assert first.ready() == {**same, "rank": 1, "ancestors": ["10.0.0.1"], "sends": [], "local_transfers": [], "receives": [
        {"key": "m/a", "from_rank": 0, "dest_ipc_handle": None, "shape": [], "dtype": "int8"},
        {"key": "m/b", "from_rank": 0, "dest_ipc_handle": HANDLE, "shape": [2, 3], "dtype": "torch.float32"}]}
    told = second.ready()
    assert (told["rank"], [one["dest_ipc_handle"] for one in told["receives"]]) == (2, ["x", {"y": []}])
    first.say(action="heartbeat")
    first.say(action="complete", success=True)
    until(lambda: groups(store) == [{**waiting, "state": "ready", "getters_count": 2, "completed": 1,
                                     "pods": ["10.0.0.1", "10.0.0.2", "10.0.0.3"]}])
    first.close()  # it has what it came for
    completed(putter, second)
    until(lambda: groups(store) == [])


def test_what_a_pod_has_is_copied_within_it(store: DataStore) -> None:
    """And all participants of a pod are told the same."""
    more = {"world_size": 5}
    both = [Pod(store, "putter", "10.0.0.1", [tensor("a"), tensor("b")], **more),
            Pod(store, "getter", "10.0.0.1", [tensor("b", dest_ipc_handle=7)], **more)]
    other = Pod(store, "getter", "10.0.0.2", wanted("a"), **more)
    alone = [Pod(store, "getter", "10.0.0.3", wanted("a"), **more), Pod(store, "putter", "10.0.0.3", [tensor("a")], **more)]
    copy = {"key": "b", "src_tensor_key": "b", "dest_ipc_handle": 7, "shape": [2, 3], "dtype": "torch.float32"}
    told = [pod.ready() for pod in both]
    assert told[0] == told[1] and told[0]["local_transfers"] == [copy] and told[0]["world_size"] == 2
    assert [one["key"] for one in told[0]["sends"]] == ["a"]
    assert other.ready()["rank"] == 1
    told = [pod.ready() for pod in alone]
    assert told[0] == told[1] and told[0]["local_transfers"][0]["dest_ipc_handle"] == ["a"]
    assert [told[0][name] for name in ("rank", "world_size", "master_addr", "ancestors", "sends", "receives")] == [
        0, 1, "10.0.0.3", [], [], []]
    completed(*both, other, *alone)


def test_a_window_closes_by_its_time(store: DataStore) -> None:
    begun = time.monotonic()
    pods = [Pod(store, "putter", "10.0.0.1", [tensor("a")], timeout=0.7, world_size=99),
            Pod(store, "getter", "10.0.0.2", wanted("a"))]
    assert groups(store)[0]["world_size"] == 99
    assert [pod.ready()["rank"] for pod in pods] == [0, 1]
    assert 0.65 < time.monotonic() - begun < 10
    completed(*pods)


@pytest.mark.parametrize("members, words", [
    ([("putter", "1", "a")], ["getter"]),
    ([("getter", "1", "a")], ["putter"]),
    ([("putter", "1", "a"), ("getter", "2", "a b")], ["nobody", "b", "10.0.0.2"]),
    ([("putter", "1", "a"), ("putter", "2", "b"), ("getter", "3", "a b")], ["no pod", "10.0.0.1", "b"]),
    ([("putter", "1", "a b"), ("getter", "2", "a"), ("getter", "3", "a b")], ["b", "10.0.0.2"]),
    ([("putter", "1", "a"), ("getter", "2", "a"), ("getter", "2", "a")], ["twice", "10.0.0.2", "a"]),
    ([("putter", "1", "a"), ("getter", "2", "a:9,9")], ["[2, 3]", "[9, 9]", "10.0.0.1", "10.0.0.2"]),
    ([("putter", "1", "a"), ("getter", "1", "a:2")], ["[2, 3]", "[2]"]),
])  # fmt: skip
def test_what_cannot_be_is_an_error_for_all(store: DataStore, members: list[tuple[str, str, str]], words: list[str]) -> None:
    def tensors(text: str) -> list[dict]:
        parts = [word.partition(":") for word in text.split()]
        return [tensor(key, tuple(int(length) for length in shape.split(",")) if shape else (2, 3)) for key, _, shape in parts]

    pods = [Pod(store, role, f"10.0.0.{ip}", tensors(text), world_size=len(members)) for role, ip, text in members]
    told = {pod.fault() for pod in pods}
    assert len(told) == 1
    message = told.pop()
    assert all(word in message for word in words), message
    assert groups(store) == []


def test_a_name_is_free_once_its_group_is_ready(store: DataStore) -> None:
    old = [Pod(store, "putter", "10.0.0.1", [tensor("a")], world_size=2), Pod(store, "getter", "10.0.0.2", wanted("a"))]
    ports = [pod.ready()["master_port"] for pod in old]
    new = [Pod(store, "putter", "10.0.0.1", [tensor("a")], world_size=2)]
    assert new[0].queued["position"] == 1
    assert [group["state"] for group in groups(store)] == ["ready", "waiting"]
    new.append(Pod(store, "getter", "10.0.0.2", wanted("a")))
    ports += [pod.ready()["master_port"] for pod in new]
    assert [len({pod.round for pod in pods}) for pods in (old, new, old + new)] == [1, 1, 2]
    assert ports == [29700, 29700, 29701, 29701]
    completed(*new)
    completed(*old)


def test_a_group_has_its_namespace(store: DataStore) -> None:
    one = Pod(store, "putter", "10.0.0.1", [tensor("a")], world_size=2, group="a/b %")
    other = Pod(store, "putter", "10.0.0.1", [tensor("a")], world_size=2, group="a/b %", query="?namespace=team")
    getter = Pod(store, "getter", "10.0.0.2", wanted("a"), group="a/b %", query="?x=1&namespace=team")
    assert (other.queued["position"], getter.queued["position"], one.queued["position"]) == (1, 2, 1)
    assert [pod.ready()["rank"] for pod in (other, getter)] == [0, 1]
    completed(other, getter)
    for path in ("/ws/broadcast/", "/ws/broadcast/%zz", "/ws/broadcast/" + "x" * 1025, "/ws/broadcast/g?namespace=..", "/ws/broadcast"):
        with WebSocket(store.http_port, path) as refused:
            assert refused.status != 101 or refused.receive()[0] == CLOSE, path


def test_who_leaves_while_it_waits_is_taken_out(store: DataStore) -> None:
    putter = Pod(store, "putter", "10.0.0.1", [tensor("a")], world_size=3)
    gone = Pod(store, "getter", "10.0.0.9", wanted("never"))
    gone.close()
    until(lambda: groups(store)[0]["pods"] == ["10.0.0.1"])
    getters = [Pod(store, "getter", f"10.0.0.{ip}", wanted("a")) for ip in (2, 3)]
    assert [getter.queued["position"] for getter in getters] == [2, 3]
    for pod in (putter, *getters):
        pod.ready()
    completed(putter, *getters)
    Pod(store, "putter", "10.0.0.1", [], world_size=2).close()
    until(lambda: groups(store) == [])


def test_who_leaves_a_group_that_is_ready_fails_it(store: DataStore) -> None:
    pods = ready_group(store)
    pods[0].say(action="complete", success=True)
    begun = time.monotonic()
    pods[1].close()
    for pod in (pods[0], pods[2]):
        message = pod.fault()
        assert "10.0.0.2" in message and "pod-2" in message, message
    assert time.monotonic() - begun < 5 and groups(store) == []


def test_who_has_completed_may_close_at_once(store: DataStore) -> None:
    """Also while the store reads what others say."""
    joins = json.dumps({"action": "join", "role": "getter", "pod_ip": "10.9.9.9", "world_size": 99,
                        "tensors": [tensor(f"k{n}", dest_ipc_handle=[0.1] * 200) for n in range(800)]}).encode()
    for _ in range(5):
        others = [Pod(store, group="other") for _ in range(3)]
        pods = ready_group(store)
        for other in others:
            other.send(joins)
        pods[0].say(action="complete", success=True)
        pods[0].close()
        for pod in pods[1:]:
            pod.say(action="complete", success=True)
        assert [pod.hear()["event"] for pod in pods[1:]] == ["completed", "completed"]
        for other in others:
            other.close()
        until(lambda: groups(store) == [])


@pytest.mark.parametrize("success", [False, None])
def test_one_failure_is_an_error_for_all(store: DataStore, success: bool | None) -> None:
    pods = ready_group(store)
    pods[0].say(action="complete", success=True)
    pods[2].say(action="complete", success=success)
    for pod in pods:
        assert "10.0.0.3" in pod.fault()
    assert groups(store) == []


def test_a_group_ends_with_its_time(store: DataStore) -> None:
    pods = ready_group(store, timeout=1)
    begun = time.monotonic()
    pods[1].say(action="complete", success=True)
    for pod in pods:
        message = pod.fault()
        assert "10.0.0.1" in message and "10.0.0.3" in message and "10.0.0.2" not in message, message
    assert 0.9 < time.monotonic() - begun < 10


def test_in_nccl_only_the_kernel_answers(store: DataStore) -> None:
    """The store asks by TCP's keepalive whether a pod is there, once its client may be silent."""
    def probed(pod: Pod) -> bool:
        ends = f":{store.http_port:04X} ", f":{pod.socket.getsockname()[1]:04X} "
        rows = [line for line in pathlib.Path("/proc/net/tcp").read_text().splitlines() if all(end in line for end in ends)]
        return any(row.split()[1].endswith(ends[0].strip()) and row.split()[5].startswith("02:") for row in rows)

    pods = [Pod(store, "putter", "10.0.0.1", [tensor("a")], world_size=2)]
    assert not probed(pods[0])
    pods.append(Pod(store, "getter", "10.0.0.2", wanted("a")))
    for pod in pods:
        pod.ready()
        until(lambda one=pod: probed(one))
    completed(*pods)


def test_heartbeats(store: DataStore) -> None:
    """One may come right behind the join, and the store sends one every 10 s."""
    begun = time.monotonic()
    pod = Pod(store)
    pod.say(action="heartbeat")
    pod.say(action="join", role="putter", pod_ip="10.0.0.1", tensors=[tensor("a")], world_size=2)
    pod.say(action="heartbeat")
    assert pod.hear()["event"] == "queued"
    assert pod.receive() == (TEXT, b'{"event":"heartbeat"}')
    assert 9.5 < time.monotonic() - begun < 18
    pod.say(action="heartbeat")
    getter = Pod(store, "getter", "10.0.0.2", wanted("a"))
    pod.ready()
    getter.ready()
    completed(pod, getter)
