# SPDX-License-Identifier: Apache-2.0
"""penstock tree broadcast: members that fetch a tree from the store and pass its pieces on."""
from __future__ import annotations

import concurrent.futures
import errno
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from data_store import DataStore
from support import BUILD, clean_environment, sanitized, wait_until
from trees import FOLLOW, JOIN, LINK_ERROR, PLACE, TELL, SlowWay, Way, call_store, frame, hello, join, state_of, text

MIB = 1 << 20
NAME = b"default/m"


@pytest.fixture
def tree(store: DataStore) -> pathlib.Path:
    """16 MiB in the store: files of many sizes, some of which no piece has whole, others of which it has many."""
    root = store.files / "m"
    (root / "sub/deep").mkdir(parents=True)
    (root / "nothing here").mkdir()
    random.seed(1)
    for number in range(300):
        (root / f"sub/{number}").write_bytes(random.randbytes(number * 17))
    for name, size in (("a", 7 * MIB + 5), ("empty", 0), ("sub/deep/x", 1), ("z", 9 * MIB - 1)):
        (root / name).write_bytes(random.randbytes(size))
    (root / "link").symlink_to("a")
    (root / "z").chmod(0o640)
    os.utime(root / "z", ns=(1, 123456789_123456789))
    (root / "nothing here").chmod(0o500)
    return root


class Members:
    """Processes that take part in the broadcast `g` through a port, and what becomes of them."""

    def __init__(self, store: DataStore, folder: pathlib.Path, port: int) -> None:
        self.store, self.folder, self.port = store, folder, port
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, *more: str) -> None:
        self.processes.append(subprocess.Popen(
            [BUILD / "penstock", "tree", "--json", "--group", "g", *more, "broadcast", f"tree://127.0.0.1:{self.port}/default/m",
             self.folder / f"out{len(self.processes) + 1}"],
            text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment()))

    def add(self, *more: str) -> subprocess.Popen[str]:
        """One more, which has joined when this returns."""
        count = len(self.status())
        self.start("--members", "4", *more)
        wait_until("it has joined", lambda: len(self.status()) > count or self.processes[-1].poll() is not None)
        return self.processes[-1]

    def status(self) -> list[dict[str, Any]]:
        """The members as the store tells them, rank 1 first."""
        status, told = self.store.ask("GET", "/api/v1/fs/broadcast/groups/g")
        assert status == 200 and told["group_id"] == "g"
        return told["broadcasts"][0]["members"] if told["broadcasts"] else []

    def wait_pieces(self, count: int, *ranks: int) -> None:
        def there() -> bool:
            members = self.status()
            return all(members[rank - 1]["pieces"] >= count for rank in ranks)
        wait_until(f"members {ranks} have {count} pieces", there)

    def end(self, number: int, code: int = 0) -> Any:
        """What a member says at its end."""
        process = self.processes[number - 1]
        out, error = process.communicate(timeout=120)
        assert process.returncode == code, (number, out, error)
        return error if code else json.loads(out)

    def check(self, tree: pathlib.Path, *numbers: int) -> None:
        for number in numbers:
            told = self.end(number)
            assert told["files"] == 304 and told["moved"] == told["bytes"]
            assert state_of(self.folder / f"out{number}") == state_of(tree)
            assert not (self.folder / f".penstock-out{number}.tree").exists()

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def slow(store: DataStore, tmp_path: pathlib.Path, tree: pathlib.Path) -> Iterator[tuple[Members, SlowWay]]:
    """Members whose way to the source is slow until it is opened."""
    with SlowWay(store.tree_port) as way, Members(store, tmp_path, way.port) as members:
        yield members, way


def test_all_get_the_tree(slow: tuple[Members, SlowWay], tree: pathlib.Path) -> None:
    members, way = slow
    for _ in range(4):  # the last one joins before the others have all and leave
        members.add()
    way.open()
    members.check(tree, 1, 2, 3, 4)
    told = members.status()
    assert [(member["rank"], member["state"], member["reports"]) for member in told] == [(rank, "left", 0) for rank in (1, 2, 3, 4)]
    assert all(member["bytes"] == sum(path.stat().st_size for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
               for member in told)


def test_pieces_flow_while_they_come(slow: tuple[Members, SlowWay], tree: pathlib.Path) -> None:
    members, way = slow
    for _ in range(3):
        members.add()
    members.wait_pieces(2, 1, 2, 3)
    assert not (members.folder / "out1").exists()  # nothing is there before all is
    told = members.status()
    assert [member["parent_rank"] for member in told] == [0, 1, 2] and told[0]["pieces"] < 60
    way.open()
    members.check(tree, 1, 2, 3)


def test_a_dead_relay_is_stepped_over(slow: tuple[Members, SlowWay], tree: pathlib.Path) -> None:
    members, way = slow
    for _ in range(4):
        members.add()
    members.wait_pieces(2, 1, 2, 3, 4)
    members.processes[1].kill()
    wait_until("its child has another parent", lambda: members.status()[2]["parent_rank"] == 1)
    had = members.status()[2]["pieces"]
    members.wait_pieces(had + 2, 3, 4)
    told = members.status()
    assert told[1]["state"] == "unreachable" and told[1]["reports"] == 1 and told[3]["parent_rank"] == 3
    way.open()
    members.check(tree, 1, 3, 4)
    assert not (members.folder / "out2").exists()


def test_a_relay_that_is_stopped_comes_again(slow: tuple[Members, SlowWay], tree: pathlib.Path) -> None:
    members, way = slow
    for _ in range(3):
        members.add()
    members.wait_pieces(2, 1, 2, 3)
    members.processes[0].send_signal(signal.SIGSTOP)
    wait_until("its child fetches from the source", lambda: members.status()[1]["parent_rank"] == 0)
    had = members.status()[1]["pieces"]
    members.wait_pieces(had + 2, 2, 3)
    members.processes[0].send_signal(signal.SIGCONT)
    wait_until("it is the last", lambda: members.status()[0]["parent_rank"] == 3)
    way.open()
    members.check(tree, 1, 2, 3)


def test_a_late_member(slow: tuple[Members, SlowWay], tree: pathlib.Path) -> None:
    members, way = slow
    for _ in range(2):
        members.add()
    members.wait_pieces(8, 1, 2)
    members.add()
    assert members.status()[2]["parent_rank"] == 2
    members.wait_pieces(4, 3)
    way.open()
    members.check(tree, 1, 2, 3)
    members.add()  # all have left: the source is its parent
    members.check(tree, 4)


def test_wrong_bytes_are_refused_and_reported(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    def spoil(data: bytes, passed: int) -> bytes:
        return data if passed < MIB else data[:-1] + bytes([data[-1] ^ 1])

    with Way(store.tree_port, spoil) as liar, Members(store, tmp_path, store.tree_port) as members:
        assert call_store(store.tree_port, NAME, join(b"g", liar.port))[0] == PLACE
        members.add()
        members.check(tree, 1)
        first = members.status()[0]
        assert first["refused"] and first["reports"] == 1 and first["port"] == liar.port
        kind, place = call_store(store.tree_port, NAME, frame(TELL, struct.pack("<QIBII", 1, 1, 1, 0, 0) + text(b"g")))
        assert kind == PLACE
        members.add()  # not behind it
        members.check(tree, 2)
        assert members.status()[2]["reports"] == 0 and members.status()[0]["reports"] == 1


def test_the_source_dies(slow: tuple[Members, SlowWay], store: DataStore) -> None:
    members, _ = slow
    for _ in range(3):
        members.add("--timeout", "2000")
    members.wait_pieces(2, 1, 2, 3)
    store.kill()
    for number in (1, 2, 3):
        assert "no piece has come for 2000 ms" in members.end(number, 5)
        assert not (members.folder / f"out{number}").exists()


def test_members_of_a_store_that_starts_again_join_anew(slow: tuple[Members, SlowWay], store: DataStore,
                                                        tree: pathlib.Path) -> None:
    members, way = slow
    for _ in range(3):
        members.add()
    members.wait_pieces(2, 1, 2, 3)
    store.kill()
    with DataStore(store.folder, "--tree-port", str(store.tree_port)):
        way.open()
        members.check(tree, 1, 2, 3)


def test_members_of_a_time_before_are_not_told_that_the_tree_is_gone(store: DataStore, tree: pathlib.Path) -> None:
    """Nothing is known of their broadcast, or others have begun it anew."""
    tell = frame(TELL, struct.pack("<QIBII", 9, 1, 1, 0, 0) + text(b"g"))
    for fault in (b"no such broadcast", b"no such member"):
        kind, told = call_store(store.tree_port, NAME, tell)
        assert kind == LINK_ERROR and struct.unpack("<i", told[:4]) == (-errno.ESTALE,) and fault in told, told
        assert call_store(store.tree_port, NAME, join(b"g", 1))[0] == PLACE


def test_a_tree_that_changes_is_said(slow: tuple[Members, SlowWay], tree: pathlib.Path) -> None:
    members, way = slow
    for _ in range(2):
        members.add()
    members.wait_pieces(2, 1, 2)
    (tree / "z").write_bytes(b"other")
    way.open()
    for number in (1, 2):
        assert "z: changed since the broadcast began" in members.end(number, 7)
        assert not (members.folder / f"out{number}").exists()


def test_few_members_get_copies(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with Members(store, tmp_path, store.tree_port) as members:
        members.start("--members", "1")
        members.check(tree, 1)
        assert members.status() == []


def test_what_is_there_becomes_the_tree(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "out1").mkdir()
    (tmp_path / "out1/a").write_bytes(b"older")
    with Members(store, tmp_path, store.tree_port) as members:
        members.add()
        members.add()
        members.check(tree, 1, 2)


def test_a_file_and_a_token(tmp_path: pathlib.Path) -> None:
    (tmp_path / "token").write_text("let-me-in")
    (tmp_path / "token").chmod(0o600)
    with DataStore(tmp_path / "data", "--token-file", str(tmp_path / "token")) as store, ExitStack() as stack:
        store.files.mkdir(parents=True)
        (store.files / "m").write_bytes(random.randbytes(5 * MIB))
        members = stack.enter_context(Members(store, tmp_path, store.tree_port))
        for more in (("--token-file", str(tmp_path / "token")), ("--token-file", str(tmp_path / "token")), ()):
            members.start(*more)
        for number in (1, 2):
            assert members.end(number)["files"] == 1
            assert (tmp_path / f"out{number}").read_bytes() == (store.files / "m").read_bytes()
        assert "token" in members.end(3, 4)


def test_a_group_gets_the_tree_as_it_is_now(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Two broadcasts of one group, one after the other; in between a file comes, and another changes."""
    with Members(store, tmp_path, store.tree_port) as members:
        members.add()
        members.check(tree, 1)
        (tree / "a").write_bytes(b"other")
        (tree / "sub/299").rename(tree / "another name")
        members.start("--members", "4")
        members.check(tree, 2)


def test_holes_and_many_empty_files(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What a member has to make takes longer than it waits for a piece: that is no fault of its parent's."""
    for number in range(30_000):
        (tree / f"sub/e{number}").touch()
    with open(tree / "sparse", "wb") as file:
        file.write(b"begin")
        file.truncate(64 * MIB)
    with Members(store, tmp_path, store.tree_port) as members:
        for _ in range(3):
            members.start("--members", "4", "--timeout", "4000")
        for number in (1, 2, 3):
            assert members.end(number)["files"] == 30_305
            assert state_of(tmp_path / f"out{number}") == state_of(tree)
            assert (tmp_path / f"out{number}/sparse").stat().st_blocks * 512 < 4 * MIB
        assert [member["reports"] for member in members.status()] == [0, 0, 0]


def test_groups_that_are_over_keep_no_tree(store: DataStore) -> None:
    """As with a group an epoch, of a tree with many files."""
    (store.files / "m").mkdir(parents=True)
    for number in range(20_000):
        (store.files / f"m/{number:0100}").touch()
    (store.files / "m/large").write_bytes(bytes(64 * MIB))

    def resident() -> int:
        return int(pathlib.Path(f"/proc/{store.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for number in range(40):
        group = f"g{number}".encode()
        assert call_store(store.tree_port, NAME, join(group, 1))[0] == PLACE
        assert call_store(store.tree_port, NAME, frame(TELL, struct.pack("<QIBII", 1, 1, 5, 0, 0) + text(group)))[0] == PLACE
        if number == 4:
            before = resident()
    assert sanitized() or resident() - before < 32 * MIB


def test_a_group_that_begins_anew_closes_nothing_of_others(store: DataStore, tree: pathlib.Path) -> None:
    """What its first tree had open is others' by then."""
    def health(connection: http.client.HTTPConnection) -> int:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        answer.read()
        return answer.status

    with ExitStack() as stack:
        for _ in range(2):
            assert call_store(store.tree_port, NAME, join(b"g", 1))[0] == PLACE
            assert call_store(store.tree_port, NAME, frame(TELL, struct.pack("<QIBII", 1, 1, 5, 0, 0) + text(b"g")))[0] == PLACE
            others = [http.client.HTTPConnection("127.0.0.1", store.http_port, timeout=30) for _ in range(8)]
            for other in others:
                stack.callback(other.close)
                assert health(other) == 200
        assert call_store(store.tree_port, NAME, join(b"g", 1))[0] == PLACE
        assert [health(other) for other in others] == [200] * len(others)


def test_calls_and_reports_at_once(store: DataStore, tree: pathlib.Path) -> None:
    """A member is taken out of the row while it calls."""
    for number in (1, 2):
        assert call_store(store.tree_port, NAME, join(b"g", number, number))[0] == PLACE

    def calls(rank: int, word: int, parent: int) -> None:
        for _ in range(1500):
            call_store(store.tree_port, NAME, frame(TELL, struct.pack("<QIBII", rank, rank, word, parent, 0) + text(b"g")))

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        for done in [pool.submit(calls, *what) for what in ((1, 1, 0), (1, 1, 0), (2, 1, 0), (2, 3, 1), (1, 3, 2))]:
            done.result()
    assert store.ask("GET", "/health")[0] == 200


def test_a_child_before_the_store_has_answered(tmp_path: pathlib.Path) -> None:
    """The member's port is open before it has joined; it knows nothing yet that a child could want."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with subprocess.Popen([BUILD / "penstock", "tree", "--group", "g", "broadcast", f"tree://127.0.0.1:{listener.getsockname()[1]}/default/m",
                               tmp_path / "out"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=clean_environment()) as member:
            calls, _ = listener.accept()
            with calls, calls.makefile("rb") as said:
                calls.sendall(frame(1, struct.pack("<H", 1) + bytes(48)) + frame(3, b""))
                kinds = {}
                while JOIN not in kinds:
                    size, kind = struct.unpack("<IB", said.read(5))
                    kinds[kind] = said.read(size)
                port = struct.unpack_from("<H", kinds[JOIN], 14)[0]
                with socket.create_connection(("127.0.0.1", port), 30) as child, child.makefile("rb") as answers:
                    child.sendall(hello(FOLLOW, NAME) + frame(18, struct.pack("<H32xIB", 2, 0, 1) + text(b"g")))
                    last = b""
                    while head := answers.read(5):
                        size, kind = struct.unpack("<IB", head)
                        last = answers.read(size)
                    assert kind == LINK_ERROR and b"not joined" in last
            assert member.wait(60) == 5, member.communicate()


def test_a_member_has_an_address(store: DataStore, tree: pathlib.Path) -> None:
    for host in (b"", b"somewhere", b"127.0.0.1.example", b"::1"):
        kind, fault = call_store(store.tree_port, NAME, join(b"g", 1, host=host))
        assert kind == LINK_ERROR, fault


@pytest.mark.parametrize("stream", [
    hello(3, NAME), hello(3, NAME) + frame(15, b""), hello(3, NAME) + frame(15, b"\xff" * 60), hello(3, NAME) + frame(1, b""),
    hello(3, NAME) + join(b"", 1), hello(3, NAME) + join(b"g", 0), hello(3, NAME) + join(b"g", 1, host=b"x" * 64), hello(3, b"default/no") + join(b"g", 1),
    hello(3, b"../../etc/passwd") + join(b"g", 1), hello(3, NAME) + join(b"g\0h", 1),
    hello(3, NAME) + frame(16, struct.pack("<QIBII", 1, 1, 1, 0, 0) + text(b"none")),
    hello(3, NAME) + frame(16, struct.pack("<QIBII", 77, 1, 1, 0, 0) + text(b"g")), hello(3, NAME) + frame(16, struct.pack("<QIBII", 1, 1, 99, 0, 0) + text(b"g")),
    hello(3, NAME) + frame(16, struct.pack("<QIBII", 1, 9, 3, 7, 1 << 31) + text(b"g")), hello(4, NAME), hello(4, NAME) + frame(18, b"short"),
    hello(4, NAME) + frame(18, struct.pack("<H32sIB", 2, b"x" * 32, 0, 1) + text(b"g")), hello(4, NAME) + frame(18, struct.pack("<H32sIB", 9, b"", 0, 1) + text(b"g")),
    hello(4, NAME) + frame(18, struct.pack("<H32sIB", 2, b"", 0, 1) + text(b"none")), hello(5, NAME), hello(0, NAME),
])
def test_peers_that_lie(store: DataStore, tree: pathlib.Path, stream: bytes) -> None:
    kind, place = call_store(store.tree_port, NAME, join(b"g", 1))
    assert kind == PLACE
    with socket.create_connection(("127.0.0.1", store.tree_port), 30) as connection:
        connection.sendall(stream)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    assert store.ask("GET", "/health")[0] == 200
    assert call_store(store.tree_port, NAME, join(b"g", 1)) == (PLACE, place)
    assert call_store(store.tree_port, b"default/no", join(b"g", 1))[0] == LINK_ERROR


@pytest.mark.parametrize(("key", "following"), [("this", 1 << 31), ("another", 0)])
def test_a_child_that_is_of_another_broadcast(store: DataStore, tree: pathlib.Path, key: str, following: int) -> None:
    """Its next piece is beyond the end, or the broadcast has begun anew."""
    kind, place = call_store(store.tree_port, NAME, join(b"g", 1))
    assert kind == PLACE
    digest = place[-32:] if key == "this" else bytes(32)
    with socket.create_connection(("127.0.0.1", store.tree_port), 30) as connection, connection.makefile("rb") as file:
        connection.sendall(hello(FOLLOW, NAME) + frame(18, struct.pack("<H32sIB", 2, digest, following, 0) + text(b"g")))
        while head := file.read(5):
            size, kind = struct.unpack("<IB", head)
            payload = file.read(size)
    assert kind == LINK_ERROR and struct.unpack("<i", payload[:4]) == (-errno.ESTALE,), payload


def test_what_cannot_be_asked(tmp_path: pathlib.Path) -> None:
    for more, code, said in (((), 2, "--group"), (("--group", "g", "--force"), 2, "--force"), (("--group", "g"), 5, "127.0.0.1:1")):
        done = subprocess.run([BUILD / "penstock", "tree", *more, "broadcast", "tree://127.0.0.1:1/default/m", tmp_path / "out"],
                              text=True, capture_output=True, env=clean_environment(), timeout=60)
        assert done.returncode == code and said in done.stderr, done
