# SPDX-License-Identifier: Apache-2.0
"""penstock data put, get, ls, rm, mkdir, sync, watch against penstockd --role store, by both transports."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pty
import random
import shutil
import signal
import socket
import subprocess
import threading
from typing import Iterator

import pytest
from data_store import DataStore, files_of
from ports import free_port
from support import BUILD, clean_environment, secret_file, wait_until
from trees import SlowWay, small_disk

MIB = 1 << 20
NOT_FOUND, USAGE, NO_SPACE, NOT_ALLOWED, UNREACHABLE, CORRUPT, OTHER = range(1, 8)


class Client:
    """`penstock data` on one store, by one transport."""

    def __init__(self, store: DataStore, transport: str = "auto") -> None:
        self.url = f"http://127.0.0.1:{store.http_port}"
        self.options = ["--store", self.url, "--rsync", f"127.0.0.1:{store.rsync_port}"]
        self.moving = ["--transport", transport]
        self.transport = transport

    def start(self, command: str, *arguments: object, **more: str) -> subprocess.Popen[str]:
        options = self.options if command in ("put", "get", "sync") else self.options[:2]
        moving = self.moving if command in ("put", "get", "sync") else []
        return subprocess.Popen([BUILD / "penstock", "data", command, *options, *moving, *map(str, arguments)], text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=clean_environment(**more))

    def __call__(self, command: str, *arguments: object, code: int = 0, **more: str) -> str:
        """What it prints, or says when it ends with `code`."""
        process = self.start(command, *arguments, **more)
        out, error = process.communicate(timeout=120)
        assert process.returncode == code, (process.args, out, error)
        return error if code else out

    def json(self, command: str, *arguments: object) -> dict:
        return json.loads(self(command, "--json", *arguments))


@contextlib.contextmanager
def forwarded(port: int) -> Iterator[int]:
    """A port of 127.0.0.2 that leads to one of 127.0.0.1."""
    def carry(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, far = listener.accept()[0], socket.create_connection(("127.0.0.1", port))
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=carry, args=ends, daemon=True).start()

    with socket.create_server(("127.0.0.2", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture(params=["native", "rsync"])
def data(request: pytest.FixtureRequest, store: DataStore) -> Client:
    return Client(store, request.param)


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "tree"
    (root / "sub/deep").mkdir(parents=True)
    for name in ("a", "sub/b", "sub/deep/ünï code", "sub/[x]*", ".hidden", "empty"):
        (root / name).write_bytes(random.Random(name).randbytes(0 if name == "empty" else 70_000))
    return root


def test_there_and_back(store: DataStore, data: Client, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    told = data.json("put", "svc/m", tree)
    assert (told["files"], told["bytes"]) == (6, 350_000) and told["moved"] == 350_000
    assert files_of(store.files / "svc/m/tree") == files_of(tree)
    assert data("ls", "svc/m/tree").split("\n") == ["sub/", "a", "empty", ""]
    told = data.json("get", "svc/m/tree", tmp_path / "to/here")
    assert told["files"] == 6 and files_of(tmp_path / "to/here/tree") == files_of(tree)
    assert data.json("get", "svc/m/tree", tmp_path / "to/here")["moved"] == 0
    data("get", "svc/m/tree", tmp_path / "bare", "--contents")
    assert files_of(tmp_path / "bare") == files_of(tree)
    data("get", "svc/m/tree/sub/[x]*", tmp_path)
    assert (tmp_path / "[x]*").read_bytes() == (tree / "sub/[x]*").read_bytes()
    assert data("rm", "svc/m", code=USAGE)
    data("rm", "svc/m", "-r")
    assert data("get", "svc/m/tree", tmp_path / "again", code=NOT_FOUND) == "penstock: svc/m/tree: nobody has this key\n"
    assert not list(tmp_path.rglob(".penstock*"))


def test_a_file_and_several(store: DataStore, data: Client, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    data("put", "one/name", tree / "a")
    assert (store.files / "one/name").read_bytes() == (tree / "a").read_bytes()
    data("put", "more", tree / "a", tree / "sub")
    assert files_of(store.files / "more") == {name: there for name, there in files_of(tree).items() if name[0] in "as"}
    data("put", "flat", tree, "--contents")
    assert files_of(store.files / "flat") == files_of(tree)
    assert store.key("GET", "flat")[1]["store_pod_ip"] == "127.0.0.1"
    here = subprocess.run([BUILD / "penstock", "data", "get", *data.options, *data.moving, "one/name"], cwd=tmp_path, check=True,
                          capture_output=True, text=True, env=clean_environment())
    assert here.stdout.startswith("get 1 files, 70000 bytes in ") and (tmp_path / "name").read_bytes() == (tree / "a").read_bytes()


def test_a_file_does_not_go_into_a_folder_that_has_its_name(store: DataStore, data: Client, tree: pathlib.Path) -> None:
    data("put", "pod/m", tree, "--contents")
    before = files_of(store.files)
    assert "pod/m: Is a directory" in data("put", "pod/m", tree / "a", code=OTHER)
    assert files_of(store.files) == before


def test_what_is_there_is_brought_up_to_date(store: DataStore, data: Client, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    data("put", "m", tree, "--contents")
    data("get", "m", tmp_path / "out")
    (tmp_path / "out/m/own").write_text("stays")
    (tree / "a").write_bytes(b"changed")
    (tree / "sub/new").write_bytes(b"new")
    assert data.json("put", "m", tree, "--contents")["moved"] == 10
    assert data.json("get", "m", tmp_path / "out")["moved"] == 10
    assert files_of(tmp_path / "out/m") == files_of(tree) | {"own": b"stays"}
    data("get", "m/a", tmp_path / "out")
    data("get", "m", tmp_path / "out/m", "--contents")
    assert (tmp_path / "out/a").read_bytes() == b"changed" and files_of(tmp_path / "out/m") == files_of(tree) | {"own": b"stays"}


def test_force_and_filters(store: DataStore, data: Client, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    data("put", "m", tree, "--contents", "--filter=+/sub/deep", "--filter=-sub/*", "--filter=-a")
    assert set(files_of(store.files / "m")) == {"sub/deep/ünï code", ".hidden", "empty"}
    old = (tree / "empty").stat()
    (store.files / "m/.hidden").write_bytes(b"x" * 70_000)
    os.utime(store.files / "m/.hidden", ns=(1, (tree / ".hidden").stat().st_mtime_ns))
    data("put", "m", tree, "--contents")
    assert (store.files / "m/.hidden").read_bytes() == b"x" * 70_000 and old == (tree / "empty").stat()
    data("put", "m", tree, "--contents", "--force")
    assert files_of(store.files / "m") == files_of(tree)
    assert "filter" in data("put", "m", tree, "--filter=a", code=USAGE)


def test_sync(store: DataStore, data: Client, tree: pathlib.Path) -> None:
    assert data.json("sync", tree, "m")["files"] == 6
    assert files_of(store.files / "m") == files_of(tree)
    (tree / ".hidden").unlink()
    (tree / "sub/b").unlink()
    (tree / "sub/deep/ünï code").unlink()
    (tree / "sub/deep").rmdir()
    (tree / "new").write_bytes(b"new")
    before = files_of(store.files / "m")
    data("sync", tree, "m")
    assert files_of(store.files / "m") == before | {"new": b"new"}
    (store.files / "m/.penstock-x.tree").mkdir()
    data("sync", tree, "m", "--delete")
    assert files_of(store.files / "m") == files_of(tree) and not (store.files / "m/sub/deep").exists()
    assert (store.files / "m/.penstock-x.tree").exists()  # of a transfer that is underway
    assert "no folder" in data("sync", tree / "a", "m", "--delete", code=USAGE)
    data("sync", tree / "none", "m", "--delete", code=NOT_FOUND)
    assert files_of(store.files / "m") == files_of(tree)


def test_a_key_may_be_called_list(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    data = Client(store)
    assert "nobody has this key" in data("ls", "list", code=NOT_FOUND)
    data("put", "list", tree / "a")
    data("get", "list", tmp_path / "back")
    assert (tmp_path / "back/list").read_bytes() == (tree / "a").read_bytes()
    data("rm", "list")
    assert data("ls") == ""


def test_names(store: DataStore, tree: pathlib.Path) -> None:
    data = Client(store)
    data("mkdir", "a/b/c", "d")
    assert data("ls") == "a/\nd/\n" and data("ls", "d") == ""
    data("put", "a/file", tree / "a")
    assert data("ls", "-l", "a") == "folder  store                 b/\nfile    store                 file\n"
    assert [json.loads(line) for line in data("ls", "a", "--json").splitlines()] == [
        {"name": "b", "is_directory": True, "locale": "store"},
        {"name": "file", "is_directory": False, "locale": "store"}]
    assert data("ls", "a/file") == "file\n"
    assert "nobody has this key" in data("ls", "a/none", code=NOT_FOUND)
    store.key("POST", "pod/key", "/publish", {"ip": "10.0.0.1", "pod_name": "pod-1"})
    assert data("ls", "-l", "pod") == "file    pod-1                 key\n"
    assert "(HTTP 409)" in data("mkdir", "a/file/below", code=OTHER)
    data("rm", "none", "d", code=NOT_FOUND)
    assert data("ls") == "a/\npod/\n"
    data("put", "pre-1", tree / "a")
    data("put", "pre-2", tree / "a")
    data("rm", "--prefix", "pre-")
    assert data("ls") == "a/\npod/\n"
    assert "no key begins so" in data("rm", "--prefix", "pre-", code=NOT_FOUND)


def test_a_key_ends_at_the_root(store: DataStore, data: Client, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    data("put", "../../x/../y", tree / "a")
    assert set(files_of(tmp_path / "data/files")) == {"default/y"}
    data("get", "/../y//", tmp_path / "out")
    assert files_of(tmp_path / "out") == {"y": (tree / "a").read_bytes()}
    for key in ("..", "", "/", "a\nb", "x" * 300):
        assert "key '" in data("put", key, tree / "a", code=USAGE)
        assert "key '" in data("get", key, tmp_path / "none", code=USAGE)
        assert "key '" in data("rm", key, code=USAGE)
    assert not (tmp_path / "none").exists()


def test_links(store: DataStore, tree: pathlib.Path) -> None:
    (tree / "link").symlink_to("a")
    Client(store, "native")("put", "kept", tree, "--contents")
    assert os.readlink(store.files / "kept/link") == "a"
    Client(store)("put", "followed", tree, "--contents")
    assert not (store.files / "followed/link").is_symlink() and files_of(store.files / "followed") == files_of(tree)


@pytest.mark.parametrize("transport", ["native", "rsync"])
def test_a_token(tmp_path: pathlib.Path, tree: pathlib.Path, transport: str) -> None:
    right, wrong = secret_file(tmp_path / "right", "let-me-in"), secret_file(tmp_path / "wrong", "let-me-out")
    with DataStore(tmp_path / "data", "--token-file", str(right)) as store:
        data = Client(store, transport)
        for more in ((), ("--token-file", wrong)):
            said = data("put", "m", tree, *more, code=NOT_ALLOWED)
            assert "token" in said or "auth failed" in said
        data("put", "m", tree, "--token-file", right)
        data("get", "m/tree", tmp_path / "out", PENSTOCK_DATA_TOKEN_FILE=str(right))
        data("get", "m/tree", tmp_path / "out", PENSTOCK_DATA_TOKEN="let-me-in")
        assert files_of(tmp_path / "out/tree") == files_of(tree)
        readable = secret_file(tmp_path / "open", mode=0o644)
        assert "must be its user's alone" in data("get", "m", tmp_path, "--token-file", readable, code=NOT_ALLOWED)


def test_where_the_store_is(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    def run(*arguments: object, code: int = 0, **more: str) -> str:
        done = subprocess.run([BUILD / "penstock", "data", *map(str, arguments)], capture_output=True, text=True, timeout=60,
                              env=clean_environment(**more))
        assert done.returncode == code, done
        return done.stdout + done.stderr

    url = f"http://127.0.0.1:{store.http_port}"
    run("put", "m", tree, PENSTOCK_DATA_URL=url + "/")
    run("put", "m", tree, "--transport=rsync", "--force", KT_API_URL=url)  # on the HTTP port
    assert run("ls", "m", PENSTOCK_DATA_URL="http://127.0.0.1:1", code=UNREACHABLE).count("http://127.0.0.1:1/") == 1
    assert run("ls", "m", "--store", url, PENSTOCK_DATA_URL="http://127.0.0.1:1") == "tree/\n"
    run("put", "m", tree, "--store", url, POD_NAMESPACE="other")
    assert run("ls", "--store", url, "--namespace", "other") == "m/\n" and (store.files.parent / "other/m/tree/a").exists()
    for wrong in ("127.0.0.1:80", "ftp://host", "http://", "http://host:x", "http://host:99999", "http://h:1?a=b"):
        assert "is no http:// or https:// URL" in run("ls", "--store", wrong, code=USAGE)
    for wrong in ("--transport=fast", "--namespace=a/b", "--rsync=host:x"):
        run("put", "m", tree, "--store", url, wrong, code=USAGE)
    assert "does not take --contents" in run("ls", "--contents", "--store", url, code=USAGE)
    assert "which of its commands" in run(code=USAGE) and "unknown command 'data fetch'" in run("fetch", code=USAGE)
    assert "data sync" in run("--help") and "usage: penstock data get" in run("get", "--help")
    assert "reached by TLS alone" in run("put", "m", tree, "--store", f"https://127.0.0.1:{store.http_port}", code=UNREACHABLE)


def test_bytes_that_went_elsewhere_are_noticed(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with DataStore(tmp_path / "other") as other:
        data = Client(store, "rsync")
        data.options[-1] = f"127.0.0.1:{other.rsync_port}"
        assert "went to another store" in data("put", "m", tree, code=OTHER)


def test_without_the_port_for_trees_rsync_carries(tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """As behind a port-forward: rsync is reached on the HTTP port, and nothing listens on the port for trees."""
    with DataStore(tmp_path / "data") as store:
        store.rsync("-a", "--mkpath", f"{tree}/", "{data}default/there/")
        with forwarded(store.http_port) as port:
            for transport, code in (("native", UNREACHABLE), ("auto", 0)):
                data = Client(store, transport)
                data.options = ["--store", f"http://127.0.0.2:{port}"]
                data("get", "there", tmp_path / transport, code=code)
    assert files_of(tmp_path / "auto/there") == files_of(tree)


def test_peers_come_first(store: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with DataStore(tmp_path / "pod") as pod:
        Client(pod)("put", "offered", tree, "--contents")
        key = {"ip": "127.0.0.3", "src_path": f"rsync://127.0.0.1:{pod.rsync_port}/data/default/offered/"}
        dead = {"ip": "127.0.0.4", "src_path": f"rsync://127.0.0.1:{free_port()}/gone"}
        for source in (dead, key):
            assert store.key("POST", "team/m", "/publish", source)[0] == 200
        said = Client(store).start("get", "team/m", tmp_path / "out")
        out, error = said.communicate(timeout=60)
        assert said.returncode == 0 and files_of(tmp_path / "out/m") == files_of(tree), error
        sources = {source["ip"]: source["request_count"] for source in store.key("GET", "team/m")[1]["sources"]}
        assert sources.get("127.0.0.3") == 0 and ("127.0.0.4" in sources) == ("127.0.0.4" not in error)
    store.key("DELETE", "team/m", "/sources/127.0.0.4")
    assert "no pod that does could be reached" in Client(store)("get", "team/m", tmp_path / "again", code=UNREACHABLE)
    assert not (tmp_path / "again/m").exists()


def interrupted(data: Client, process: subprocess.Popen[str], hidden: pathlib.Path) -> None:
    """Ends a transfer by SIGINT once some of it has come."""
    def has_come() -> bool:
        return process.poll() is not None or sum(path.stat().st_size for path in hidden.rglob("*") if path.is_file()) > MIB

    wait_until("some of it has come", has_come)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


def test_an_interrupted_get_goes_on(store: DataStore, data: Client, tmp_path: pathlib.Path) -> None:
    (tmp_path / "m").mkdir()
    for number in range(3):
        (tmp_path / f"m/f{number}").write_bytes(random.randbytes(64 * MIB))
    data("put", "m", tmp_path / "m", "--contents")
    (tmp_path / "out").mkdir()
    hidden = tmp_path / "out" / (".penstock-m.tree" if data.transport == "native" else ".penstock-m.part")
    process = data.start("get", "m", tmp_path / "out")
    interrupted(data, process, hidden)
    assert process.returncode in (0, -signal.SIGINT)
    assert (tmp_path / "out/m").exists() == (process.returncode == 0)

    def ended() -> bool:  # rsync takes a moment to put away what it has
        second = data.start("get", "m", tmp_path / "out")
        said = second.communicate(timeout=120)
        return second.returncode == 0 or "arriving from elsewhere" not in said[1]

    wait_until("the second try has its turn", ended)
    sent = files_of(tmp_path / "m")
    same = {name: data == sent.get(name) for name, data in files_of(tmp_path / "out/m").items()}  # too long to be shown
    assert same == {"f0": True, "f1": True, "f2": True} and not hidden.exists()


def test_a_full_disk(data: Client, tmp_path: pathlib.Path) -> None:
    (tmp_path / "f").write_bytes(random.randbytes(32 * MIB))
    with small_disk(small := tmp_path / "small", 16):
        data("put", "f", tmp_path / "f")
        assert "No space left" in data("get", "f", small, code=NO_SPACE)
        assert not (small / "f").exists()
        for part in small.glob(".penstock-*"):  # what has come, for the next try
            shutil.rmtree(part)
        with DataStore(small / "data") as full:
            assert "No space left" in Client(full, data.transport)("put", "f", tmp_path / "f", code=NO_SPACE)
            assert not (full.files / "f").exists()


def test_progress_on_a_terminal(data: Client, tmp_path: pathlib.Path) -> None:
    (tmp_path / "f").write_bytes(random.randbytes(32 * MIB))
    parent, child = pty.openpty()
    done = subprocess.run([BUILD / "penstock", "data", "put", *data.options, *data.moving, "f", tmp_path / "f"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=child, env=clean_environment(), timeout=60)
    os.close(child)
    shown = os.read(parent, 65536).decode()
    os.close(parent)
    assert done.returncode == 0 and shown.rstrip().split("\r")[-1].startswith("put [##############################] 100 %  32.00 MiB  ")


def test_watch(store: DataStore, tmp_path: pathlib.Path) -> None:
    data = Client(store)
    assert "no broadcast has this group" in data("watch", "g", code=NOT_FOUND)
    (store.files / "m").mkdir(parents=True)
    (store.files / "m/f").write_bytes(random.randbytes(16 * MIB))

    def members() -> list[dict]:
        told = store.ask("GET", "/api/v1/fs/broadcast/groups/g")[1]["broadcasts"]
        return told[0]["members"] if told else []

    with SlowWay(store.tree_port) as way, contextlib.ExitStack() as stack:
        for number in (1, 2):
            process = subprocess.Popen(
                [BUILD / "penstock", "tree", "broadcast", "--group", "g", "--members", "4", "--timeout", "60000",
                 f"tree://127.0.0.1:{way.port}/default/m", tmp_path / f"out{number}"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())
            stack.callback(process.wait, timeout=60)
            stack.callback(process.kill)
            wait_until("it has joined", lambda: len(members()) == number)
        watches = [data.start("watch", "g", *more) for more in ([], ["--json"])]
        first = [watch.stdout.readline() for watch in watches if watch.stdout]
        way.open()
        rest = [watch.communicate(timeout=120) for watch in watches]
    assert [watch.returncode for watch in watches] == [0, 0], rest
    assert " fetching " in first[0] and json.loads(first[1])["group_id"] == "g"
    ends = json.loads(rest[1][0].splitlines()[-1])["broadcasts"][0]
    assert {member["state"] for member in ends["members"]} <= {"done", "left"} and len(ends["members"]) == 2
    assert "100 %   16.00 MiB" in rest[0][0].splitlines()[-1]
