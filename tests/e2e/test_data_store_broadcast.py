# SPDX-License-Identifier: Apache-2.0
"""penstockd --role store: pods that join a broadcast of files over raw WebSockets, and rsync's tunnel over one."""
from __future__ import annotations

import concurrent.futures
import pathlib
import socket
import threading
from typing import Iterator

import pytest
from data_store import BINARY, CLOSE, DataStore, WebSocket

PEER = {"ip": "10.0.0.5", "pod_name": "pod-5", "src_path": "work/model"}


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Iterator[DataStore]:
    with DataStore(tmp_path / "data", "--store-address", "store.local") as it:
        yield it


def test_members_get_ranks_and_parents(store: DataStore) -> None:
    store.key("POST", "svc/model", "/publish", PEER)
    assert store.join("g/1", "svc/model", "10.1.0.1", pod_name="a", fanout=2) == {
        "event": "ready", "group_id": "g/1", "key": "svc/model", "rank": 1, "total_participants": 1, "parent_rank": 0,
        "parent_ip": "10.0.0.5", "parent_pod_name": "pod-5", "parent_path": "work/model", "source_ip": "10.0.0.5",
        "source_pod_name": "pod-5", "source_path": "work/model"}
    for rank in range(2, 8):
        told = store.join("g/1", "/svc//model/", f"10.1.0.{rank}")
        assert (told["rank"], told["parent_rank"]) == (rank, (rank - 1) // 2)
        assert told["parent_ip"] == (f"10.1.0.{(rank - 1) // 2}" if rank > 2 else "10.0.0.5")
        assert told["parent_path"] == (None if rank > 2 else "work/model") and told["source_path"] == "work/model"
    again = store.join("g/1", "svc/model", "10.1.0.3")
    assert (again["rank"], again["total_participants"]) == (3, 7)
    assert store.ask("GET", "/api/v1/fs/broadcast/groups") == (200, {"groups": [
        {"group_id": "g/1", "key": "svc/model", "source_ip": "10.0.0.5", "fanout": 2, "total_participants": 7,
         "unreachable": 0}]})
    assert store.key("GET", "svc/model")[1]["sources"][0]["request_count"] == 0


def test_the_store_is_the_source_of_what_it_has(store: DataStore) -> None:
    store.key("POST", "svc/tree", "/mkdir")
    told = store.join("g", "svc/tree", "10.1.0.1")
    assert (told["source_ip"], told["source_path"]) == ("store.local", "default/svc/tree")


def test_a_join_has_its_namespace(store: DataStore) -> None:
    """Of two keys of one name a pod is told of that of its namespace, and reports its parent there."""
    team = "?namespace=team"
    store.key("POST", "k", "/publish", PEER)
    store.key("POST", "k", f"/publish{team}", {"ip": "10.0.0.9", "src_path": "team/model"})
    store.key("POST", "only", f"/publish{team}", {"ip": "10.0.0.9"})
    told = [store.join("g", "k", f"10.1.0.{rank}", team, fanout=1) for rank in (1, 2)]
    assert [(one["rank"], one["source_ip"], one["source_path"]) for one in told] == [
        (1, "10.0.0.9", "team/model"), (2, "10.0.0.9", "team/model")]
    assert store.join("g", "k", "10.1.0.2")["source_ip"] == PEER["ip"]
    assert store.join("g", "only", "10.1.0.1", "?token=x&namespace=%74eam")["source_ip"] == "10.0.0.9"
    assert store.join("g", "only", "10.1.0.1")["event"] == "error"
    status, told = store.ask("POST", f"/api/v1/fs/broadcast/report-unreachable{team}", {
        "group_id": "g", "key": "k", "reporter_ip": "10.1.0.2", "unreachable_ip": "10.1.0.1"})
    assert (status, told["status"], told["parent_ip"]) == (200, "ok", "10.0.0.9")
    for query in ("", "..", ".x", "a/b", "a%2Fb", "%zz", "x" * 300):
        with WebSocket(store.http_port, f"/ws/fs-broadcast/g?namespace={query}") as refused:
            assert refused.receive()[0] == CLOSE, query


def test_a_dead_parent_is_stepped_over(store: DataStore) -> None:
    def report(reporter: int, lost: str) -> tuple[int, dict]:
        return store.ask("POST", "/api/v1/fs/broadcast/report-unreachable", {
            "group_id": "g", "key": "k", "reporter_ip": f"10.1.0.{reporter}", "unreachable_ip": lost})

    store.key("POST", "k", "/publish", PEER)
    for rank in range(1, 6):
        store.join("g", "k", f"10.1.0.{rank}", fanout=2)
    assert report(3, "10.1.0.1") == (200, {
        "status": "ok", "parent_rank": 0, "parent_ip": "10.0.0.5", "parent_pod_name": "pod-5", "parent_path": "work/model",
        "source_ip": "10.0.0.5", "source_pod_name": "pod-5", "source_path": "work/model"})
    assert report(4, "10.1.0.1")[1]["parent_rank"] == 0
    assert store.ask("GET", "/api/v1/fs/broadcast/groups")[1]["groups"][0]["unreachable"] == 1
    for reporter, lost in ((3, "10.0.0.5"), (3, "10.9.9.9"), (99, "10.1.0.1")):
        status, told = report(reporter, lost)
        assert status == 200 and told["status"] == "error" and told["error"], told
    assert store.ask("POST", "/api/v1/fs/broadcast/report-unreachable", {"group_id": "g"})[0] == 422


def test_joins_that_cannot_be(store: DataStore) -> None:
    store.key("POST", "k", "/publish", PEER)
    with WebSocket(store.http_port, "/ws/fs-broadcast/g") as joined:
        for said in (b"{", b"[]", {"action": "leave"}, {"action": "join"}, {"action": "join", "key": "k"},
                     {"action": "join", "key": "none", "pod_ip": "10.1.0.1"},
                     {"action": "join", "key": "..", "pod_ip": "10.1.0.1"},
                     {"action": "join", "key": "k", "pod_ip": "x" * 100},
                     {"action": "join", "key": "k", "pod_ip": "10.1.0.1/module"},
                     {"action": "join", "key": "k", "pod_ip": "user@10.1.0.1"},
                     {"action": "join", "key": "k", "pod_ip": "10.1.0.1", "fanout": 0},
                     {"action": "join", "key": "k", "pod_ip": "10.1.0.1", "fanout": "2"}):
            told = joined.ask(said)
            assert told["event"] == "error" and told["message"], said
        assert joined.ask({"action": "join", "key": "k", "pod_ip": "10.1.0.1"})["rank"] == 1
        joined.send(b"\x00\x01", BINARY)
        assert joined.receive()[0] == CLOSE
    for path in ("/ws/fs-broadcast/", "/ws/other/g", "/ws/fs-broadcast/%zz", "/ws/fs-broadcast/" + "x" * 2000):
        with WebSocket(store.http_port, path) as refused:
            assert refused.status != 101 or refused.receive()[0] == CLOSE, path
    assert store.ask("GET", "/health")[0] == 200


def test_many_join_at_once_and_leave(store: DataStore) -> None:
    store.key("POST", "k", "/publish", PEER)

    def one(number: int) -> int:
        if number % 3 == 0:  # gone before its answer
            with WebSocket(store.http_port, "/ws/fs-broadcast/g") as hasty:
                hasty.send(b'{"action": "join", "key": "k", "pod_ip": "10.2.0.1"}')
        return store.join("g", "k", f"10.1.{number // 250}.{number % 250}")["rank"]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        ranks = list(pool.map(one, range(400)))
    assert len(set(ranks)) == 400 and max(ranks) <= 401


def test_a_quorum_begins_when_all_are_there(store: DataStore) -> None:
    def join(role: str, ip: str, **more: object) -> tuple[int, dict]:
        return store.ask("POST", "/api/v1/broadcast/join", {"keys": ["b", "a"], "role": role, "pod_ip": ip, "timeout": None,
                                                            "world_size": 2, "ips": None, "group_id": None, **more})

    status, told = join("putter", "10.1.0.1", pod_name="one")
    name = told["broadcast_id"]
    assert (status, told) == (200, {"broadcast_id": name, "status": "waiting", "putters_count": 1, "getters_count": 0})
    assert store.ask("POST", f"/api/v1/broadcast/{name}/complete?pod_ip=10.1.0.1")[0] == 409
    assert join("getter", "10.1.0.2", keys=["a", "b"])[1] == {
        "broadcast_id": name, "status": "ready", "putters_count": 1, "getters_count": 1}
    assert store.ask("GET", f"/api/v1/broadcast/{name}/status?pod_ip=10.1.0.1") == (200, {
        "broadcast_id": name, "status": "ready", "putters_count": 1, "getters_count": 1,
        "putters": [{"pod_ip": "10.1.0.1", "pod_name": "one"}], "getters": [{"pod_ip": "10.1.0.2", "pod_name": None}]})
    assert store.ask("GET", f"/api/v1/broadcast/{name}/status?pod_ip=10.1.0.9")[1]["status"] == "missed"
    for ip in ("10.1.0.1", "10.1.0.2"):
        status, told = store.ask("POST", f"/api/v1/broadcast/{name}/complete?pod_ip={ip}")
        assert status == 200 and told["success"] is True
    assert told["status"] == "completed"
    assert join("getter", "10.1.0.3")[1]["broadcast_id"] != name
    for path in (f"/api/v1/broadcast/{name}/status", "/api/v1/broadcast/none/status?pod_ip=1",
                 "/api/v1/broadcast//status?pod_ip=1"):
        assert store.ask("GET", path)[0] in (404, 422)
    for more in ({"world_size": None}, {"role": "leader"}, {"world_size": 0}, {"timeout": -1}, {"timeout": "1"}, {"ips": ["", "1"]},
                 {"ips": "1"}, {"keys": [], "group_id": ""}, {"keys": "k"}, {"pod_ip": None}):
        status, told = join(str(more.pop("role", "getter")), "10.1.0.4", **{"group_id": "another", **more})
        assert status == 422 and told["detail"], more


def test_a_quorum_has_its_namespace(store: DataStore) -> None:
    def join(namespace: str, ip: str, **name: object) -> dict:
        status, told = store.ask("POST", f"/api/v1/broadcast/join?namespace={namespace}",
                                 {"role": "getter", "pod_ip": ip, "world_size": 2, **name})
        assert status == 200, told
        return told

    for name in ({"keys": ["model"]}, {"group_id": "g"}, {"group_id": "x" * 4096}):
        first, other, second = (join(namespace, f"10.1.0.{ip}", **name) for ip, namespace in enumerate(("a", "b", "a")))
        assert (first["status"], other["status"], other["getters_count"]) == ("waiting", "waiting", 1)
        assert (second["status"], second["broadcast_id"]) == ("ready", first["broadcast_id"])


def carry(store: DataStore, local: socket.socket) -> None:
    """One connection of rsync through a tunnel, until either side ends."""
    with local, WebSocket(store.http_port, "/rsync/default/") as tunnel:
        def back() -> None:
            while (frame := tunnel.receive())[0] != CLOSE:
                local.sendall(frame[1])
            local.shutdown(socket.SHUT_WR)

        reader = threading.Thread(target=back)
        reader.start()
        while data := local.recv(65535):
            tunnel.send(data, BINARY)
        reader.join()


def test_rsync_through_the_tunnel(store: DataStore, tmp_path: pathlib.Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    for number in range(50):
        (tree / "sub" / str(number)).write_bytes(bytes([number]) * 70000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for source, to in ((f"{tree}/", f"rsync://127.0.0.1:{port}/data/default/svc/tree/"),
                           (f"rsync://127.0.0.1:{port}/data/default/svc/tree/", f"{tmp_path}/back/")):
            carrier = threading.Thread(target=lambda: carry(store, listener.accept()[0]))
            carrier.start()
            assert store.rsync("-a", "--mkpath", source, to).returncode == 0
            carrier.join()
    assert {path.name: path.read_bytes() for path in (tmp_path / "back/sub").iterdir()} == {
        path.name: path.read_bytes() for path in (tree / "sub").iterdir()}
