# SPDX-License-Identifier: Apache-2.0
"""penstock tree against penstockd --role store: trees by their own protocol."""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import random
import select
import socket
import struct
import subprocess
import threading
from typing import Any

import pytest
from data_store import DataStore
from support import BUILD, clean_environment, wait_until
from trees import SlowWay, frame, hello, make_tree, small_disk, state_of, tree_url

MIB = 1 << 20
CHALLENGE_BYTES = 5 + 2 + 48


def start(action: str, first: object, second: object, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen([BUILD / "penstock", "tree", "--json", *more, action, str(first), str(second)], text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())


def run(action: str, first: object, second: object, *more: str, code: int = 0) -> Any:
    """The figures of a transfer, or what it says when it fails with `code`."""
    process = start(action, first, second, *more)
    out, error = process.communicate(timeout=120)
    assert process.returncode == code, (out, error)
    return error if code else json.loads(out)


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    return make_tree(tmp_path / "tree")


def test_a_tree_there_and_back(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    told = run("put", tree, tree_url(store, "svc/m"))
    assert told["files"] == 10 and told["moved"] == told["bytes"] and told["matched"] == 0
    assert state_of(store.files / "svc/m") == state_of(tree)
    run("get", tree_url(store, "svc/m"), tmp_path / "out")
    assert state_of(tmp_path / "out") == state_of(tree)
    assert run("get", tree_url(store, "svc/m"), tmp_path / "out")["moved"] == 0
    run("get", tree_url(store, "svc/m/sub/script"), tmp_path / "script")
    assert (tmp_path / "script").read_text() == "#!/bin/sh\n"
    assert not list(tmp_path.rglob(".penstock*"))
    assert store.names("svc") == {"m": (True, "store")}


def test_what_is_there_is_brought_up_to_date(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    run("put", tree, tree_url(store, "m"))
    there = store.files / "m"
    (there / "own").write_text("stays")
    with open(tree / "large", "r+b") as file:
        file.seek(MIB)
        file.write(b"changed")
    (tree / "a file").chmod(0o600)
    (tree / "sub/link").unlink()
    (tree / "sub/link").symlink_to("other")
    (tree / "sub/new").write_text("new")
    told = run("put", tree, tree_url(store, "m"))
    assert told["moved"] == 65536 + 3 and told["matched"] == 3 * MIB - 65536
    assert {name: state for name, state in state_of(there).items() if name != "own"} == state_of(tree)
    assert (there / "own").read_text() == "stays"


def test_bytes_that_moved_are_found(store: DataStore, tmp_path: pathlib.Path) -> None:
    data = random.randbytes(8 * MIB)
    (tmp_path / "f").write_bytes(data)
    run("put", tmp_path / "f", tree_url(store, "f"))
    (tmp_path / "f").write_bytes(data[:100] + b"put in" + data[100:])
    told = run("put", tmp_path / "f", tree_url(store, "f"))
    assert told["moved"] < MIB and told["moved"] + told["matched"] == len(data) + 6
    assert (store.files / "f").read_bytes() == (tmp_path / "f").read_bytes()
    (tmp_path / "f").write_bytes(data[: 3 * MIB])
    run("put", tmp_path / "f", tree_url(store, "f"))
    assert (store.files / "f").read_bytes() == data[: 3 * MIB]


def test_the_port_is_told(store: DataStore) -> None:
    assert store.ask("GET", "/api/v1/transport") == (
        200, {"tree_port": store.tree_port, "tree_tunnel": "/tree/", "version": 1, "broadcast_version": 2})


def test_force_reads_what_looks_the_same(store: DataStore, tmp_path: pathlib.Path) -> None:
    (tmp_path / "f").write_bytes(b"a" * MIB)
    run("put", tmp_path / "f", tree_url(store, "f"))
    old = (tmp_path / "f").stat()
    (tmp_path / "f").write_bytes(b"b" * MIB)
    os.utime(tmp_path / "f", ns=(1, old.st_mtime_ns))
    assert run("put", tmp_path / "f", tree_url(store, "f"))["moved"] == 0
    run("put", tmp_path / "f", tree_url(store, "f"), "--force")
    assert (store.files / "f").read_bytes() == b"b" * MIB


def test_holes_stay_holes(store: DataStore, tmp_path: pathlib.Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.write(b"begin")
        file.seek(5 << 30)
        file.write(b"end")
    told = run("put", tmp_path / "sparse", tree_url(store, "sparse"))
    there = store.files / "sparse"
    assert told["moved"] < MIB and there.stat().st_size == (5 << 30) + 3 and there.stat().st_blocks * 512 < MIB
    with open(there, "rb") as file:
        assert file.read(5) == b"begin"
        file.seek(5 << 30)
        assert file.read() == b"end"


def test_holes_stay_holes_when_chunks_are_taken_over(store: DataStore, tmp_path: pathlib.Path) -> None:
    sparse, there = tmp_path / "sparse", store.files / "sparse"
    for content in (b"begin", b"other"):
        with open(sparse, "wb") as file:
            file.write(content)
            file.seek(32 * MIB)
            file.write(random.randbytes(MIB) if content == b"begin" else b"")  # then there is a hole instead
            file.truncate(64 * MIB)
        told = run("put", sparse, tree_url(store, "sparse"))
    assert told["matched"] > 60 * MIB
    assert there.read_bytes() == sparse.read_bytes()
    assert there.stat().st_blocks * 512 < MIB


def test_filters(store: DataStore, tree: pathlib.Path) -> None:
    run("put", tree, tree_url(store, "m"), "--filter=+/sub/deep", "--filter=-/sub/*", "--filter=-*file", "--filter=-large")
    names = set(state_of(store.files / "m"))
    assert names == {".", ".hidden", "empty", "empty folder", "new\nline", "sub", "sub-", "sub.b", "sub/deep", "sub/deep/x", "ünïcode"}
    assert "+PATTERN" in run("put", tree, tree_url(store, "m"), "--filter=x", code=2)


def test_files_that_are_none_are_left_out(store: DataStore, tree: pathlib.Path) -> None:
    os.mkfifo(tree / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tree / "socket"))
        assert "left out: 2 names" in start("put", tree, tree_url(store, "m")).communicate(timeout=60)[1]
    assert not {"pipe", "socket"} & set(os.listdir(store.files / "m"))
    for what in ("pipe", "sub/link"):
        assert what.rpartition("/")[2] in run("put", tree / what, tree_url(store, "p"), code=7)


@pytest.mark.parametrize("name, code", [
    ("nothing", 1), ("m/nothing", 1), ("m/a file/below", 7), ("../../../etc", 1), ("..", 2), ("m/..", 2), (".penstock-m.tree", 2), ("x/.penstock-m.tree/tree", 2), ("m/sub/link", 7), ("m/out/secret", 7),
])
def test_gets_of_what_there_is_not(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path, name: str, code: int) -> None:
    run("put", tree, tree_url(store, "m"))
    (tmp_path / "secret").write_text("secret")
    (store.files / "m/out").symlink_to(tmp_path)
    assert "penstock: " in run("get", tree_url(store, name), tmp_path / "got", code=code)
    assert not (tmp_path / "got").exists()


def test_puts_stay_below_the_folder(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "victim").mkdir()
    store.files.mkdir(parents=True, exist_ok=True)
    (store.files / "out").symlink_to(tmp_path / "victim")
    run("put", tree, tree_url(store, "out"), code=7)
    run("put", tree, tree_url(store, "out/m"), code=7)
    for name in ("../../../../../x", "a/../../other/x", "./x//"):  # ".." ends at the namespace
        run("put", tree, tree_url(store, name))
        run("get", tree_url(store, name), tmp_path / "back")
    assert set(os.listdir(store.files.parent)) == {"default"} and {"x", "other"} < set(os.listdir(store.files))
    for name in ("../x", "..//x", ".hidden/x", "x", "/x", "", "x" * 300 + "/x"):
        run("put", tree, tree_url(store, "").replace("/default/", f"/{name}"), code=2)
    (store.files / "m").mkdir()
    (store.files / "m/sub").symlink_to(tmp_path / "victim")
    run("put", tree, tree_url(store, "m"))  # a folder comes in the link's place
    assert os.listdir(tmp_path / "victim") == [] and state_of(store.files / "m") == state_of(tree)
    (store.files / "f").write_text("a file")
    assert "Not a directory" in run("put", tree, tree_url(store, "f"), code=7)
    (store.files / "d").mkdir()
    assert "Is a directory" in run("put", tree / "a file", tree_url(store, "d"), code=7)
    assert not list(store.files.glob(".penstock*"))


@pytest.mark.parametrize("victim", ["client", "server"])
def test_a_transfer_that_broke_off_goes_on(store: DataStore, tmp_path: pathlib.Path, victim: str) -> None:
    (tmp_path / "m").mkdir()
    for number in range(4):
        (tmp_path / f"m/f{number}").write_bytes(random.randbytes(48 * MIB))
    process = start("put", tmp_path / "m", tree_url(store, "m"))
    hidden = store.files / ".penstock-m.tree"
    wait_until("a file has come whole", lambda: (hidden / "tree/f0").exists() or process.poll() is not None)
    if victim == "client":
        process.kill()
        process.communicate()
        again = store
    else:
        store.kill()
        assert process.communicate(timeout=60)[1]
        again = DataStore(tmp_path / "data")
    assert not (store.files / "m").exists() or process.returncode == 0
    with again if victim == "server" else threading.Lock():
        told = run("put", tmp_path / "m", tree_url(again, "m"))
        assert told["moved"] <= 3.5 * 48 * MIB
        assert state_of(again.files / "m") == state_of(tmp_path / "m")
        assert not hidden.exists()


def test_an_update_that_broke_off_goes_on(store: DataStore, tmp_path: pathlib.Path) -> None:
    """What had come of the new version, and all of the old one that stays, comes no more."""
    file, there = tmp_path / "file", store.files / "file"
    halves = [random.randbytes(8 * MIB) for _ in range(2)]
    file.write_bytes(halves[0] + random.randbytes(8 * MIB))
    run("put", file, tree_url(store, "file"))
    file.write_bytes(halves[0] + halves[1])
    hidden = store.files / ".penstock-file.tree"
    hidden.mkdir(mode=0o700)
    (hidden / f"fresh-{hashlib.sha256(b'').hexdigest()}").write_bytes(bytes(8 * MIB) + halves[1][:6 * MIB] + bytes(2 * MIB))
    told = run("put", file, tree_url(store, "file"))
    assert (told["moved"], told["matched"]) == (2 * MIB, 14 * MIB)
    assert there.read_bytes() == file.read_bytes() and not hidden.exists()


def test_what_another_tree_has_left_stays_behind(store: DataStore, tmp_path: pathlib.Path) -> None:
    """A transfer broke off; since then files have gone, and others have become folders, or folders files."""
    left = store.files / ".penstock-m.tree"
    (left / "tree/gone/deep").mkdir(parents=True)
    (left / "tree/folder").mkdir()
    (left / "tree/kept").mkdir()
    for name in ("gone/deep/file", "folder/file", "file", "kept/gone"):
        (left / "tree" / name).write_text("stale")
    (left / "tree/kept/link").symlink_to("file")
    left.chmod(0o700)
    (tmp_path / "m/file").mkdir(parents=True)
    (tmp_path / "m/kept").mkdir()
    for name in ("file/inside", "folder", "kept/file", "kept/link"):
        (tmp_path / "m" / name).write_text(name)
    run("put", tmp_path / "m", tree_url(store, "m"))
    assert state_of(store.files / "m") == state_of(tmp_path / "m") and not left.exists()
    run("get", tree_url(store, "m"), tmp_path / "out")
    (tmp_path / ".penstock-new.tree").mkdir(mode=0o700)
    (tmp_path / ".penstock-new.tree/tree").write_text("a file")
    run("get", tree_url(store, "m"), tmp_path / "new")
    assert state_of(tmp_path / "new") == state_of(tmp_path / "out") == state_of(tmp_path / "m")


def test_one_after_the_other(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """All ranks of a host put or get the same tree at the same moment."""
    for action, ends in (("put", (tree, tree_url(store, "m"))), ("get", (tree_url(store, "m"), tmp_path / "out"))):
        for _ in range(3):
            processes = [start(action, *ends) for _ in range(8)]
            ended = [(process.communicate(timeout=120), process.returncode) for process in processes]
            assert [code for _, code in ended] == [0] * 8, ended
    assert state_of(store.files / "m") == state_of(tree) == state_of(tmp_path / "out")
    assert not list(tmp_path.rglob(".penstock-*"))


def test_one_waits_for_the_other(store: DataStore, tmp_path: pathlib.Path) -> None:
    (tmp_path / "f").write_bytes(random.randbytes(64 * MIB))
    run("put", tmp_path / "f", tree_url(store, "f"))
    with SlowWay(store.tree_port) as way:
        first = start("get", f"tree://127.0.0.1:{way.port}/default/f", tmp_path / "out")
        wait_until("it arrives", lambda: list(tmp_path.glob(".penstock-out.tree/fresh-*")))
        second = start("get", tree_url(store, "f"), tmp_path / "out")
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(timeout=1)
        way.open()
        assert json.loads(first.communicate(timeout=60)[0])["moved"] == 64 * MIB
        assert json.loads(second.communicate(timeout=60)[0])["moved"] == 0


def test_a_full_disk_is_said(tmp_path: pathlib.Path) -> None:
    with small_disk(tmp_path / "small", 16), DataStore(tmp_path / "small/data") as store:
        (tmp_path / "f").write_bytes(random.randbytes(32 * MIB))
        assert "No space left" in run("put", tmp_path / "f", tree_url(store, "f"), code=3)
        assert not (store.files / "f").exists()
        (tmp_path / "g").write_bytes(b"fits")
        store.key("DELETE", "f")


def test_a_token(tmp_path: pathlib.Path, tree: pathlib.Path) -> None:
    for name, text in (("token", "let-me-in"), ("wrong", "let-me-out")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    with DataStore(tmp_path / "data", "--token-file", str(tmp_path / "token")) as store:
        for more in ((), ("--token-file", str(tmp_path / "wrong"))):
            assert "token" in run("put", tree, tree_url(store, "m"), *more, code=4)
        run("put", tree, tree_url(store, "m"), "--token-file", str(tmp_path / "token"))
        assert state_of(store.files / "m") == state_of(tree)


def entry(kind: int, path: bytes, size: int = 0, target: bytes = b"", mode: int = 0o644) -> bytes:
    return struct.pack("<BIQqH", kind, mode, size, 0, len(path)) + path + struct.pack("<H", len(target)) + target


@pytest.mark.parametrize("stream", [
    b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, frame(2, b""), frame(2, struct.pack("<HBB32xH", 9, 1, 0, 0)), hello(3, b"default/x"),
    hello(1, b"default/x") + frame(6, struct.pack("<I", 0)), hello(1, b"default/x") + frame(5, entry(2, b"../x", 4)),
    hello(1, b"default/x") + frame(5, entry(1, b"") + entry(3, b"l", 0, b"/etc", 0) + entry(2, b"l/passwd", 4)),
    hello(1, b"default/x") + frame(5, entry(1, b"") + entry(2, b"/etc/passwd", 4)),
    hello(1, b"default/x") + frame(5, entry(2, b"", 4)) + frame(6, struct.pack("<I", 2)),
    hello(1, b"default/x") + frame(5, entry(2, b"", 4)) + frame(6, struct.pack("<I", 1)) + frame(12, b""),
    hello(1, b"default/x") + frame(5, entry(2, b"", 4)) + frame(6, struct.pack("<I", 1)) + frame(11, struct.pack("<IQI16x", 7, 0, 4)),
    hello(1, b"default/x") + frame(5, entry(2, b"", 4)) + frame(6, struct.pack("<I", 1)) + frame(11, struct.pack("<IQI16x", 0, 1 << 60, 1 << 31 | 5)),
    hello(1, b"default/x") + frame(5, entry(2, b"", 4)) + frame(6, struct.pack("<I", 1)) + frame(11, struct.pack("<IQI16s", 0, 0, 4, b"x" * 16) + b"evil"),
    hello(1, b"default/x") + frame(5, entry(2, b"", 1 << 20)) + frame(6, struct.pack("<I", 1)) + frame(9, struct.pack("<IBI16x", 0, 1, 0)),
    hello(2, b"default/there") + frame(7, struct.pack("<IB", 9, 1)), hello(2, b"default/there") + frame(10, b"xxxx"),
    hello(2, b"default/there") + frame(7, struct.pack("<IB", 0, 2)) + frame(8, b"") + frame(10, struct.pack("<I", 5)),
])
def test_peers_that_lie(store: DataStore, stream: bytes) -> None:
    store.files.mkdir(parents=True, exist_ok=True)
    (store.files / "there").write_bytes(b"t" * 200_000)
    with socket.create_connection(("127.0.0.1", store.tree_port), 30) as connection:
        connection.sendall(stream)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    assert not (store.files / "x").exists() and not (store.files.parent.parent / "x").exists()
    assert (store.files / "there").read_bytes() == b"t" * 200_000
    assert store.ask("GET", "/health")[0] == 200


def test_a_client_that_only_says_that_it_lives(store: DataStore, tree: pathlib.Path) -> None:
    """It is not known, so it does not keep its connection for as long as it likes."""
    with socket.create_connection(("127.0.0.1", store.tree_port), 60) as connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        assert connection.recv(4096)  # the challenge
        for _ in range(60):
            connection.sendall(frame(14, b""))
            if select.select([connection], [], [], 1)[0] and not connection.recv(4096):
                break
        else:
            pytest.fail("it is connected still")
    run("put", tree, tree_url(store, "m"))


def test_a_listing_ends_with_its_client(tmp_path: pathlib.Path, tree: pathlib.Path) -> None:
    """Few trees are listed at a time, and patterns may make that slow: gets that nobody waits for delay no other, nor the store's end."""
    pattern = b"*[" + b"b" * 16000 + b"]"
    asking = hello(2, b"default/many", struct.pack("<BH", 1, len(pattern)) + pattern)
    store = DataStore(tmp_path / "store")
    try:
        run("put", tree, tree_url(store, "m"))
        (store.files / "many").mkdir()
        for number in range(20000):
            (store.files / "many" / f"{number:05}".ljust(255, "a")).touch()
        for _ in range(4):
            with socket.create_connection(("127.0.0.1", store.tree_port), 30) as connection:
                connection.sendall(asking)
                with connection.makefile("rb") as file:
                    assert file.read(CHALLENGE_BYTES + 5).endswith(frame(3, b""))  # it is accepted
        run("get", tree_url(store, "m"), tmp_path / "out")
        store.stop()
    finally:
        store.kill()


def test_filters_have_a_bound(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    run("put", tree, tree_url(store, "m"))
    for size, code in ((16 << 10, 0), ((16 << 10) + 1, 7)):
        said = run("get", tree_url(store, "m"), tmp_path / "out", "--filter=-" + "x" * size, code=code)
        assert code == 0 or "the filters are too long" in said


def test_a_peer_that_ends_the_connection_is_said(tmp_path: pathlib.Path, tree: pathlib.Path) -> None:
    """Many times: what a client read of a greeting that had not come was whatever lay on its stack."""
    def end_all(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                server.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        ending = threading.Thread(target=end_all, args=(server,))
        ending.start()
        try:
            url = f"tree://127.0.0.1:{server.getsockname()[1]}/default/m"
            for _ in range(50):
                for arguments in (("put", tree, url), ("get", url, tmp_path / "out")):
                    assert "the peer has ended the connection" in run(*arguments, code=5)
        finally:
            server.shutdown(socket.SHUT_RDWR)
            ending.join()


def test_what_cannot_be_asked(tmp_path: pathlib.Path, tree: pathlib.Path) -> None:
    for arguments in (("put", tree, tmp_path), ("get", tree, tmp_path), ("move", tree, "tree://h:1/x"), ("put", tree, "tree://h:1"),
                      ("put", tree, "tree://nonsense/x")):
        assert "penstock: " in run(*arguments, code=2)
    assert "127.0.0.1:1" in run("put", tree, "tree://127.0.0.1:1/x", code=5)
    assert "nothing" in run("put", tmp_path / "nothing/at/all", "tree://127.0.0.1:1/x", code=1)
