# SPDX-License-Identifier: Apache-2.0
"""penstockd --role agent: peers at the meeting of a group's agents that say what they should not, or nothing."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import threading
import time
from typing import Any, Callable, Iterator

import pytest
from agent import Agent
from agent_rounds import Pods, Round, put_writable, read_and_close, receive_of, send_of
from support import wait_until
from tensor_frames import put

TIMEOUT_S = 6
LATE_S = 6  # beside the timeout, on a busy machine


@pytest.fixture
def pods(tmp_path: pathlib.Path) -> Iterator[Pods]:
    with contextlib.ExitStack() as stack:
        yield Pods(tmp_path, stack)


class Peer:
    """A rank, or a stranger, that this test plays."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.file = connection.makefile("rb")
        self.stop = threading.Event()

    @classmethod
    def to(cls, port: int) -> Peer:
        end = time.monotonic() + 10
        while True:
            try:
                return cls(socket.create_connection(("127.0.0.1", port)))
            except ConnectionRefusedError:
                assert time.monotonic() < end
                time.sleep(0.02)

    def say(self, *lines: Any) -> None:
        self.connection.sendall(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines))

    def hear(self, name: str) -> Any:
        """The next line with that member."""
        for line in self.file:
            told = json.loads(line)
            if name in told:
                return told[name]
        return None

    def repeat(self, line: bytes, every_s: float) -> None:
        def run() -> None:
            with contextlib.suppress(OSError):
                while not self.stop.wait(every_s):
                    self.connection.sendall(line)

        threading.Thread(target=run, daemon=True).start()

    def close(self) -> None:
        self.stop.set()
        self.connection.close()
        self.file.close()


def digest_of(pods: Pods, key: str = "dest/a") -> str:
    """What a rank with these tensors says of them, as it tells a rank 0 that this test plays."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = Round(2, master_port=listener.getsockname()[1], timeout=TIMEOUT_S)
        one.ask(pods[1], 1, receives=[receive_of("w/a", {"key": key}, (8192,))])
        peer = Peer(listener.accept()[0])
        digest = peer.hear("tensors")
        peer.say({"error": "that was all"})
        assert one.faults() == ["that was all"]
        peer.close()
    return str(digest)


def hello(one: Round, digest: str, rank: int = 1, **more: Any) -> dict[str, Any]:
    return {"group_id": "g", "rank": rank, "world_size": one.common["world_size"], "tensors": digest, "no_nccl": "a test", **more}


@pytest.fixture
def two(pods: Pods) -> Iterator[tuple[Pods, int]]:
    """A pod that has a tensor, one that takes it, and the latter's memory."""
    put(pods.add(), "w/a", b"x" * 8192)
    fd = put_writable(pods.add(), "dest/a", 8192)
    yield pods, fd
    os.close(fd)
    assert [agent.ask("ping")["status"] for agent in pods] == ["ok"] * len(pods)


def fault_of(one: Round, begun: float, late_s: float = LATE_S) -> list[str]:
    faults = one.faults()
    assert time.monotonic() - begun < TIMEOUT_S + late_s, faults
    return faults


@pytest.mark.parametrize("lines, words", [
    ([{"end": True}], "says that all are done, and this rank is not"), ([{"way": "pigeon"}], "a way that is not known here"),
    ([{"way": "row", "port": 0, "group": "g"}], "not known here"), ([{"way": "row", "port": 1, "group": "g" * 5000}], "Bad message"),
    ([{"way": "row", "port": 1, "group": "g" * 40}], "not known here"), ([{"way": "nccl", "id": "00" * 127}], "not known here"),
    ([{"way": "nccl", "id": "00" * 128}], "wants NCCL, which this rank has not"), ([{"way": "row", "port": 1, "group": "g"}], "nothing listens there"),
    ([b"\0\xff\n"], "Bad message"), ([b"[]\n"], "Bad message"), ([{}, b"half"], "has gone"), ([{"error": "\x1b[31mred\n"}], "red"),
    ([{}] * 500, "Message too long"),
])  # fmt: skip
def test_a_rank_0_that_says_what_it_should_not(two: tuple[Pods, int], lines: list[Any], words: str) -> None:
    pods, _ = two
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one, begun = Round(2, master_port=listener.getsockname()[1], timeout=TIMEOUT_S), time.monotonic()
        one.ask(pods[1], 1, receives=[receive_of("w/a", {"key": "dest/a"}, (8192,))])
        peer = Peer(listener.accept()[0])
        peer.hear("tensors")
        peer.say(*lines)
        if b"half" in lines:
            peer.connection.shutdown(socket.SHUT_WR)
        assert words in fault_of(one, begun)[0]
        peer.close()


@pytest.mark.parametrize("flood", [False, True])
def test_a_rank_0_that_never_says_how(two: tuple[Pods, int], flood: bool) -> None:
    """It is there, and says so; or says nothing else as quickly as it can."""
    pods, _ = two
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one, begun = Round(2, master_port=listener.getsockname()[1], timeout=TIMEOUT_S), time.monotonic()
        one.ask(pods[1], 1, receives=[receive_of("w/a", {"key": "dest/a"}, (8192,))])
        peer = Peer(listener.accept()[0])
        peer.repeat(b"{}\n" * (10000 if flood else 1), 0 if flood else 0.5)
        assert ("Message too long" if flood else f"not all ranks came within {TIMEOUT_S} s") in fault_of(one, begun)[0]
        peer.close()


def test_a_rank_0_that_lets_a_rank_go_is_called_again(two: tuple[Pods, int]) -> None:
    pods, _ = two
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = Round(2, master_port=listener.getsockname()[1], timeout=TIMEOUT_S)
        one.ask(pods[1], 1, receives=[receive_of("w/a", {"key": "dest/a"}, (8192,))])
        for _ in range(3):
            listener.accept()[0].close()
        peer = Peer(listener.accept()[0])
        peer.hear("tensors")
        peer.say({"error": "enough"})
        assert one.faults() == ["enough"]
        peer.close()


def says_nothing_more(peer: Peer) -> None:
    pass


def closes(peer: Peer) -> None:
    peer.close()


@pytest.mark.parametrize("lines, then, words", [
    ([{"done": True}], says_nothing_more, "says that it is done when it cannot be"), ([{"done": True}], closes, "says that it is done when it cannot be"),
    ([], closes, "has gone"), ([{"error": "\x07 bell"}], says_nothing_more, "bell"),
    ([{"error": "e" * 4000}], says_nothing_more, "eeee"), ([{"error": "é" * 600}], says_nothing_more, "éééé"), ([b'{"error":"\xff\xfe"}\n'], says_nothing_more, "Bad message"),
    ([b"x" * 5000], says_nothing_more, "Bad message"), ([{}] * 500, says_nothing_more, "Message too long"),
])  # fmt: skip
def test_a_rank_that_says_what_it_should_not(two: tuple[Pods, int], lines: list[Any], then: Callable[[Peer], None], words: str) -> None:
    """Rank 2 is honest, and hears why."""
    pods, _ = two
    digest = digest_of(pods)
    one, begun = Round(4, timeout=TIMEOUT_S), time.monotonic()
    one.ask(pods[0], 0, sends=[send_of("w/a", 4)])
    peer = Peer.to(one.common["master_port"])
    one.ask(pods[1], 2, receives=[receive_of("w/a", {"key": "dest/a"}, (8192,))])
    time.sleep(1)
    peer.say(hello(one, digest), *lines)
    then(peer)
    faults = fault_of(one, begun)
    assert faults[0] == faults[1] and faults[0].startswith("rank 1 (127.0.0.1)") and words in faults[0], faults
    peer.close()


def test_a_rank_that_goes_when_it_has_heard_how(two: tuple[Pods, int]) -> None:
    """Whatever the other one is at, it hears who has gone."""
    pods, _ = two
    digest = digest_of(pods)
    for _ in range(5):
        one, begun = Round(3, timeout=TIMEOUT_S), time.monotonic()
        one.ask(pods[0], 0, sends=[send_of("w/a", 3)])
        one.ask(pods[1], 2, receives=[receive_of("w/a", {"key": "dest/a"}, (8192,))])
        peer = Peer.to(one.common["master_port"])
        peer.say(hello(one, digest))
        assert peer.hear("way") == "row"
        peer.close()
        assert fault_of(one, begun) == ["rank 1 (127.0.0.1) has gone"] * 2


def test_a_rank_that_is_done_may_go(two: tuple[Pods, int]) -> None:
    """It has what it came for; the others are waited for."""
    pods, fd = two
    digest = digest_of(pods)
    one = Round(3)
    one.ask(pods[0], 0, sends=[send_of("w/a", 3)])
    peer = Peer.to(one.common["master_port"])
    peer.say(hello(one, digest))
    peer.repeat(b"{}\n", 0.5)
    doomed = pods[1].connect()
    frame = json.dumps({"command": "execute_broadcast_group", **one.common, "rank": 2,
                        "receives": [receive_of("w/a", {"key": "dest/a"}, (8192,))]}).encode()
    doomed.sendall(len(frame).to_bytes(4, "big") + frame)
    assert peer.hear("way") == "row"
    wait_until("the tensor is there", lambda: os.pread(fd, 8192, 0) == b"x" * 8192)
    time.sleep(1)  # and its agent has said so
    pods.pop(1).kill()
    doomed.close()
    time.sleep(0.5)
    peer.say({"done": True})
    assert one.ways() == ["row"]
    peer.close()


def test_a_rank_that_floods(two: tuple[Pods, int]) -> None:
    pods, _ = two
    digest = digest_of(pods)
    one, begun = Round(3, timeout=TIMEOUT_S), time.monotonic()
    one.ask(pods[0], 0, sends=[send_of("w/a", 3)])
    peer = Peer.to(one.common["master_port"])
    peer.say(hello(one, digest))
    peer.repeat(b"{}\n" * 10000, 0)
    assert "rank 1 (127.0.0.1) Message too long" in fault_of(one, begun)
    peer.close()


def test_strangers_without_a_word_make_room(two: tuple[Pods, int]) -> None:
    """More of them than may wait: a rank that comes after them is heard, and the first of them is let go."""
    pods, fd = two
    one = Round(2, timeout=TIMEOUT_S)
    one.ask(pods[0], 0, sends=[send_of("w/a", 2)])
    strangers = [Peer.to(one.common["master_port"]) for _ in range(80)]
    assert strangers[0].file.read() == b""
    one.ask(pods[1], 1, receives=[receive_of("w/a", {"key": "dest/a"}, (8192,))])
    assert one.ways() == ["row", "row"]
    assert os.pread(fd, 8192, 0) == b"x" * 8192
    for stranger in strangers:
        stranger.close()


def test_a_participant_that_is_late_does_not_get_the_round_before(two: tuple[Pods, int]) -> None:
    """One that is underway is asked for first, and what it brings is new."""
    pods, fd = two
    receives = [receive_of("w/a", {"key": "dest/a"}, (8192,))]
    one = Round(2, timeout=TIMEOUT_S)
    one.ask(pods[1], 1, receives=receives, participant="first")
    one.ask(pods[0], 0, sends=[send_of("w/a", 2)])
    assert one.ways() == ["row", "row"]
    put(pods[0], "w/a", b"y" * 8192)
    two_more = Round(2, timeout=TIMEOUT_S)
    two_more.common = one.common
    two_more.ask(pods[1], 1, receives=receives, participant="first")
    time.sleep(1)
    two_more.ask(pods[1], 1, receives=receives, participant="second")
    time.sleep(1)
    assert not any(asked.done() for asked in two_more.asked)
    two_more.ask(pods[0], 0, sends=[send_of("w/a", 2)])
    assert two_more.ways() == ["row"] * 3
    assert os.pread(fd, 8192, 0) == b"y" * 8192


def test_the_same_words_are_another_round(two: tuple[Pods, int]) -> None:
    """A store that was started again says them once more: who has not asked before does not hear of the round before."""
    pods, fd = two
    receives = [receive_of("w/a", {"key": "dest/a"}, (8192,))]
    one = Round(2, timeout=TIMEOUT_S)
    for data in (b"x", b"y"):
        put(pods[0], "w/a", data * 8192)
        again = Round(2, timeout=TIMEOUT_S)
        again.common = one.common
        again.ask(pods[1], 1, receives=receives, participant=data.decode())
        time.sleep(0.5)
        again.ask(pods[0], 0, sends=[send_of("w/a", 2)], participant=data.decode())
        assert again.ways() == ["row", "row"]
        assert os.pread(fd, 8192, 0) == data * 8192


def test_an_agent_ends_in_the_middle(pods: Pods, tmp_path: pathlib.Path) -> None:
    put(pods.add(), "w/a", b"x" * 8192)
    fds = [put_writable(pods.add(), "dest/a", 8192)]
    one = Round(3, timeout=60)
    one.ask(pods[0], 0, sends=[send_of("w/a", 3)])
    one.ask(pods[1], 1, receives=[receive_of("w/a", {"key": "dest/a"}, (8192,))])
    time.sleep(1)
    begun = time.monotonic()
    assert isinstance(pods[1], Agent)
    pods[1].stop()
    assert time.monotonic() - begun < 10
    assert "rank 1 (127.0.0.1)" in one.asked[0].result(20)["error"]
    assert [read_and_close(fd) for fd in fds] == [bytes(8192)]
