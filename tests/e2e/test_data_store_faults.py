# SPDX-License-Identifier: Apache-2.0
"""penstockd --role store and what it refuses: requests, settings, folders that are damaged or taken."""
from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
from typing import Any

import pytest
from data_store import DataStore
from support import BUILD, Node, preloadable, sanitized, wait_until

PEER = {"ip": "10.0.0.5"}
TOKEN = "a-token-of-this-test"


def tree_of(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize(("body", "status"), [
    (b"", 400), (b"{", 400), (b"[1]", 422), (b"nonsense", 400), ({}, 422), ({"ip": 5}, 422), ({"ip": ""}, 422),
    ({"ip": None}, 422), ({"ip": "a/../b"}, 422), ({"ip": "x" * 64}, 422), ({**PEER, "lifespan": "long"}, 422),
    ({**PEER, "lifespan": "resource"}, 422), ({**PEER, "src_path": []}, 422), ({**PEER, "pod_name": "x" * 254}, 400),
    (b'{"ip": "a\\u0000b"}', 400), (b"\xff\xfe", 400), (b"[" * 100, 413), (b'{"ip": "10.0.0.5"} more', 400)])
def test_bodies_that_cannot_be(store: DataStore, body: Any, status: int) -> None:
    publish_alone = isinstance(body, dict) and {"src_path", "pod_name"} & set(body)
    for route in ("/publish",) if publish_alone else ("/publish", "/store"):
        got, told = store.key("POST", "k", route, body)
        assert got == status and told["detail"], told
    assert store.ask("GET", "/api/v1/stats")[1]["total_keys"] == 0


def test_routes_that_are_not_there(store: DataStore) -> None:
    for method, path, status in (("GET", "/", 404), ("GET", "/api/v2/keys/k", 404), ("PUT", "/api/v1/keys/k", 405),
                                 ("POST", "/health", 405), ("POST", "/api/v1/keys/k", 405),
                                 ("GET", "/api/v1/services/s/cleanup", 405), ("GET", "/api/v1/keys/", 404)):
        got, told = store.ask(method, path)
        assert got == status and told["detail"], (method, path, told)


@pytest.mark.parametrize("key", ["", "..", "../..", "/", ".", "%zz", "a%", "a%00b", "a%0Ab", "x" * 300, "a/" * 200 + "b"])
def test_keys_that_cannot_be(store: DataStore, key: str) -> None:
    quoted = key if "%" in key else key.replace("/", "%2F")
    for method, route in (("POST", "/publish"), ("POST", "/mkdir"), ("DELETE", "")):
        if not quoted and not route:
            continue
        status, _ = store.ask(method, f"/api/v1/keys/{quoted}{route}", PEER if route == "/publish" else None)
        assert status in (400, 404, 405), (method, quoted, route)
    assert store.ask("GET", "/api/v1/stats")[1]["total_keys"] == 0


def test_nothing_leaves_the_namespace(store: DataStore, tmp_path: pathlib.Path) -> None:
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    (outside / "file").write_text("precious")
    (store.folder / "files" / "other").mkdir()
    (store.folder / "files" / "other" / "file").write_text("another's")
    store.key("POST", "here", "/mkdir")
    (store.files / "link").symlink_to(outside)
    before = tree_of(outside)
    for climb in ("..%2F..%2F..%2Foutside", "../../../outside", "here/..%2f..%2F..%2F..%2Foutside", "..%2Fother",
                  "link", "link%2Fsub", "link/file", "%2Fetc", "here%2F..%2F..%2Fother"):
        for method, route in (("DELETE", "?recursive=true"), ("DELETE", "?recursive=true&prefix_mode=true"),
                              ("POST", "/mkdir"), ("GET", ""), ("GET", "/source")):
            store.ask(method, f"/api/v1/keys/{climb}{route}")
        store.ask("GET", f"/api/v1/keys/list?prefix={climb}")
    assert tree_of(outside) == before
    assert (store.folder / "files/other/file").read_text() == "another's"
    assert (store.folder / "catalogue.sqlite").exists()
    for path in ("../catalogue.sqlite", "default/../../catalogue.sqlite", "../rsyncd/"):
        assert store.rsync("-a", "{data}" + path, str(tmp_path / "got")).returncode != 0
    store.rsync("-a", str(outside / "file"), "{data}default/link/stolen")
    assert tree_of(outside) == before


def test_a_token_is_needed_where_others_come_from(tmp_path: pathlib.Path) -> None:
    secret = tmp_path / "token"
    secret.write_text(TOKEN + "\n")
    secret.chmod(0o600)
    with DataStore(tmp_path / "data", "--http", "0.0.0.0:0", "--token-file", str(secret)) as store:
        assert store.ask("GET", "/api/v1/stats")[0] == 200  # loopback
        assert store.rsync("-a", "{data}", str(tmp_path / "got")).returncode != 0
        assert store.rsync("-a", "{data}", str(tmp_path / "got"), token=TOKEN).returncode == 0
        assert TOKEN not in store.log()


def fails(folder: pathlib.Path, *more: str) -> str:
    with Node("--role", "store", "--data", str(folder), "--rsync-port", "0", "--http", "127.0.0.1:0", *more) as node:
        assert node.wait() in (1, 2), node.log()
        return node.log()


def test_settings_that_cannot_be(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "data"
    assert "needs token_file" in fails(folder, "--http", "0.0.0.0:0")
    assert "host:port" in fails(folder, "--http", "here")
    assert "certificate" in fails(folder, "--tls-key", "/nowhere")
    assert "secret file" in fails(folder, "--token-file", "/nowhere")
    assert "No such file" in fails(folder / "deep" / "er")
    assert "catalogue_bytes" in fails(folder, "--catalogue-bytes", "1")
    with Node("--role", "store", "--http", "127.0.0.1:0") as node:
        assert node.wait() == 2 and "needs a folder" in node.log()
    with Node("--data", str(folder)) as node:
        assert node.wait() == 2 and "role=store" in node.log()
    with Node("--role", "stores", "--data", str(folder)) as node:
        assert node.wait() == 2 and "'stores'" in node.log()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "another process" in fails(folder, "--http", f"127.0.0.1:{port}")
        assert "in use" in fails(folder, "--rsync-port", str(port))


def test_a_folder_has_one_store(store: DataStore) -> None:
    assert "data: " in fails(store.folder)
    assert store.ask("GET", "/health")[0] == 200
    assert store.rsync("{data}").returncode == 0


def test_a_folder_that_others_may_write_is_refused(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o777)
    assert str(folder) in fails(folder)


def test_a_damaged_catalogue_is_named(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "data"
    with DataStore(folder) as store:
        for number in range(200):
            store.key("POST", f"k{number}", "/publish", PEER)
        store.stop()
    catalogue = folder / "catalogue.sqlite"
    whole = catalogue.read_bytes()
    for damage in (b"no database at all" * 100, whole[:len(whole) // 2], whole[:4096] + bytes(len(whole) - 4096)):
        catalogue.write_bytes(damage)
        assert "catalogue.sqlite" in fails(folder)
        assert catalogue.read_bytes() == damage
    catalogue.write_bytes(whole)
    with DataStore(folder) as store:
        assert store.ask("GET", "/api/v1/stats")[1]["total_keys"] == 200


def test_a_full_catalogue_is_said(tmp_path: pathlib.Path) -> None:
    with DataStore(tmp_path / "data", "--catalogue-bytes", "65536") as store:
        statuses = {store.key("POST", f"k{number:04}" + "x" * 200, "/publish", PEER)[0] for number in range(400)}
        assert statuses == {200, 507}
        keys = store.ask("GET", "/api/v1/stats")[1]["total_keys"]
        assert keys > 0 and store.key("GET", "k0000" + "x" * 200)[1]["found"] is True


@pytest.mark.skipif(sanitized(), reason="a sanitizer wants to be the first library")
def test_a_poll_leaves_a_key_that_comes_meanwhile(tmp_path: pathlib.Path) -> None:
    """Of a pod that waits for a key: its look for the file may be older than the record that a put has made."""
    gate = tmp_path / "gate"
    gate.touch()
    late = {"LD_PRELOAD": preloadable(BUILD / "tests/e2e/late_stat.so"), "LATE_STAT": str(gate)}
    with DataStore(tmp_path / "data", "--store-address", "store.local", environment=late) as store, \
            concurrent.futures.ThreadPoolExecutor(1) as pod:
        (store.files / "svc").mkdir(parents=True)
        try:
            poll = pod.submit(store.key, "GET", "svc/polled", "/source")
            wait_until("the poll has looked for the file", (tmp_path / "gate.at").exists)
            (store.files / "svc/polled").write_text("x")
            assert store.key("POST", "svc/polled", "/store", {"ip": "store.local", "lifespan": "resource",
                                                              "service_name": "svc"})[0] == 200
        finally:
            gate.unlink()
        assert poll.result() == (200, {"ip": "store.local", "src_path": "default/svc/polled"})
        assert store.ask("GET", "/api/v1/stats")[1]["keys_with_store_pod"] == 1
        assert store.ask("DELETE", "/api/v1/services/svc/cleanup")[1]["deleted_count"] == 1
        assert not (store.files / "svc/polled").exists()


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found: list[int] = []
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # its thread has ended
            found += map(int, path.read_text().split())
    return found


def test_a_killed_store_starts_again_on_a_port_that_its_rsync_has_still(tmp_path: pathlib.Path) -> None:
    with DataStore(tmp_path / "data") as store:
        (daemon,) = children(store.pid)
        os.kill(daemon, signal.SIGSTOP)  # it does not hear that the store ends
        try:
            store.end(signal.SIGKILL)
            with Node("--role", "store", "--data", str(store.folder), "--http", "127.0.0.1:0",
                      "--rsync-port", str(store.rsync_port)) as again:
                again.wait_for("another process has its port")
                os.kill(daemon, signal.SIGCONT)
                again.wait_for("store: ready")
                assert store.rsync("{data}").returncode == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(daemon, signal.SIGKILL)


@pytest.mark.parametrize("what", ["daemon killed", "store stopped"])
def test_an_upload_that_ends_with_rsync_leaves_nothing(tmp_path: pathlib.Path, what: str) -> None:
    (tmp_path / "big").write_bytes(bytes(64 << 20))
    with DataStore(tmp_path / "data") as store:
        upload = subprocess.Popen(["rsync", "--bwlimit=1m", str(tmp_path / "big"), f"rsync://127.0.0.1:{store.rsync_port}/data/default/"],
                                  stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until("it arrives", lambda: list(store.files.glob(".big.*")))
            if what == "store stopped":
                store.stop()
            else:
                os.kill(children(store.pid)[0], signal.SIGKILL)
                store.wait_for("is started again")
            assert list(store.files.iterdir()) == []
            assert upload.wait(30) != 0
        finally:
            upload.kill()
            upload.wait()
