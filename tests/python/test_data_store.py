# SPDX-License-Identifier: Apache-2.0
"""penstock.data_store against penstockd --role store, with the real rsync, directly and through the tunnel."""
from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import socket
import threading
from collections.abc import Iterator

import pytest
from data_store import DataStore, files_of
from support import BUILD

from penstock import data_store as ds
from penstock.data_store import metadata_client

TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataStore]:
    folder = tmp_path_factory.mktemp("store")
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    with DataStore(folder / "data", "--token-file", str(folder / "token"), "--store-address", "127.0.0.1") as it:
        yield it


@pytest.fixture(params=["direct", "tunnel", "native", "native-tunnel"])
def client(request: pytest.FixtureRequest, daemon: DataStore, monkeypatch: pytest.MonkeyPatch) -> ds.DataStoreClient:
    """An empty store, its files reached in each way."""
    rsync = None if "tunnel" in request.param else f"127.0.0.1:{daemon.rsync_port}"
    monkeypatch.setenv("PENSTOCK_COMMAND", str(BUILD / "penstock"))
    client = ds.DataStoreClient("default", ds.Server(f"http://127.0.0.1:{daemon.http_port}", rsync, TOKEN),
                                "native" if "native" in request.param else "rsync")
    for item in client.ls():
        client.rm(item["name"], recursive=True)
    return client


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "tree"
    (root / "sub").mkdir(parents=True)
    (root / "a file").write_bytes(os.urandom(300_000))
    (root / "sub/script").write_text("#!/bin/sh\n")
    (root / "sub/script").chmod(0o755)
    (root / "sub/empty").touch()
    return root


def test_a_tree_there_and_back(client: ds.DataStoreClient, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    client.put("svc/model", tree, contents=True)
    assert {item["name"]: item["is_directory"] for item in client.ls("svc/model")} == {"sub": True, "a file": False}
    client.get("svc/model", tmp_path / "out")
    assert files_of(tmp_path / "out/model") == files_of(tree)
    assert (tmp_path / "out/model/sub/script").stat().st_mode & 0o777 == 0o755
    client.get("svc/model", tmp_path / "flat", contents=True)
    assert files_of(tmp_path / "flat") == files_of(tree)
    client.get("svc/model/sub/script", tmp_path / "one")
    assert (tmp_path / "one/script").read_text() == "#!/bin/sh\n"
    assert not list(tmp_path.rglob(".penstock*"))


def test_a_folder_and_a_file_keep_their_names(client: ds.DataStoreClient, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    client.put("svc/here", tree)
    assert [item["name"] for item in client.ls("svc/here")] == ["tree"]
    client.put(["svc/x", "svc/y"], tree / "a file")
    assert {item["name"] for item in client.ls("svc")} == {"here", "x", "y"}
    client.get(["svc/x", "svc/y"], tmp_path / "out")
    assert (tmp_path / "out/x").read_bytes() == (tmp_path / "out/y").read_bytes() == (tree / "a file").read_bytes()


def test_a_key_of_one_part_may_be_a_file_or_a_folder(client: ds.DataStoreClient, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    client.put("file", tree / "a file")
    client.put("folder", tree, contents=True)
    for _ in range(2):  # new, and brought up to date
        client.get(["file", "folder"], tmp_path / "out", force=True)
        assert files_of(tmp_path / "out") == {"file": (tree / "a file").read_bytes()} | {
            f"folder/{path}": data for path, data in files_of(tree).items()}
    client.get("folder", tmp_path / "flat", contents=True)
    assert files_of(tmp_path / "flat") == files_of(tree)


def test_what_is_there_is_brought_up_to_date(client: ds.DataStoreClient, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    client.put("svc/m", tree, contents=True)
    client.get("svc/m", tmp_path / "out")
    (tmp_path / "out/m/own").write_text("mine")
    (tree / "a file").write_bytes(b"new")
    client.put("svc/m", tree, contents=True)
    client.get("svc/m", tmp_path / "out")
    assert files_of(tmp_path / "out/m") == {**files_of(tree), "own": b"mine"}


LANDINGS = [(".", False, {"tree/a", "tree/sub/b"}), (".", True, {"a", "sub/b"}), ("../tree", False, {"tree/a", "tree/sub/b"}),
            ("../tree/", False, {"tree/a", "tree/sub/b"}), ("../tree/.", False, {"tree/a", "tree/sub/b"}),
            ("../tree/sub/..", True, {"a", "sub/b"}), ("../link", False, {"tree/a", "tree/sub/b"}),
            ("../link/", False, {"tree/a", "tree/sub/b"}), ("../link/", True, {"a", "sub/b"}), ("../link/sub", False, {"sub/b"}),
            ("a", False, {""}), ("a", True, {""}), ("../to a", False, {""}), (["a", "sub/b"], False, {"a", "b"}),
            (["a", "sub"], False, {"a", "sub/b"}), (["a", "sub"], True, {"a", "b"})]


@pytest.mark.parametrize("source, contents, landed", LANDINGS, ids=lambda value: str(sorted(value)) if isinstance(value, set) else str(value))
def test_where_a_source_lands(client: ds.DataStoreClient, daemon: DataStore, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
                              source: str | list[str], contents: bool, landed: set[str]) -> None:
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/a").write_text("a")
    (tmp_path / "tree/sub/b").write_text("b")
    (tmp_path / "link").symlink_to("tree")
    (tmp_path / "to a").symlink_to("tree/a")
    monkeypatch.chdir(tmp_path / "tree")
    client.put("svc/k", source, contents=contents)
    root = daemon.files / "svc/k"
    assert {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} == landed - {""}
    assert root.is_file() == ("" in landed)


@pytest.mark.parametrize("key, lands", [("svc/../../other/x", "other/x"), ("../x", "x"), ("/svc//./a/b/../x", "svc/a/x")])
def test_dots_in_a_key_end_at_its_namespace(client: ds.DataStoreClient, daemon: DataStore, tmp_path: pathlib.Path,
                                            key: str, lands: str) -> None:
    (tmp_path / "f").write_text("a file")
    client.put(key, tmp_path / "f")
    assert files_of(daemon.folder / "files") == {f"default/{lands}": b"a file"}
    client.get(key, tmp_path / "out")
    assert files_of(tmp_path / "out") == {"x": b"a file"}
    client.rsync(ds.parse_key("svc")).upload(str(tmp_path / "f"), f"../{key}")
    client.rsync(ds.parse_key("svc")).download(f"../{key}", str(tmp_path / "again"))
    assert files_of(tmp_path / "again") == {"x": b"a file"} and len(files_of(daemon.folder / "files")) == 1
    client.rm(key)
    assert files_of(daemon.folder / "files") == {}
    client.put(key, data="a value")
    assert client.get(key) == "a value" and {path.split("/penstock-")[0] for path in files_of(daemon.folder / "files")} == {f"default/{lands}"}
    client.rm(key)


def test_a_key_of_dots_alone_is_empty(client: ds.DataStoreClient, daemon: DataStore, tmp_path: pathlib.Path) -> None:
    (tmp_path / "f").write_text("a file")
    client.put("svc/k", tmp_path / "f")
    for key in ("", "/", "..", "svc/..", "svc/../.."):
        for call in (lambda: client.put(key, tmp_path / "f"), lambda: client.put(key, tmp_path, contents=True),
                     lambda: client.get(key, tmp_path / "out"), lambda: client.rm(key, recursive=True),
                     lambda: client.rm(key, recursive=True, prefix=True), lambda: client.mkdir(key)):
            with pytest.raises(ValueError, match="a key is empty"):
                call()
        assert [item["name"] for item in client.ls(key)] == ["svc"]
    with pytest.raises(ValueError, match="a key is empty"):
        client.rsync(ds.parse_key("svc")).upload(str(tmp_path / "f"), "..")
    assert files_of(daemon.folder / "files") == {"default/svc/k": b"a file"}


def test_what_cannot_be_put(client: ds.DataStoreClient, tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name, fault in (("pipe", ValueError), ("dangling", FileNotFoundError), ("nothing", FileNotFoundError)):
        with pytest.raises(fault, match="nowhere" if name == "dangling" else name):
            client.put("svc/k", tmp_path / name)
    for path in ("/", []):
        with pytest.raises(ValueError, match="nothing to put|no name"):
            client.put("svc/k", path)
    assert client.ls() == []


def test_a_link_that_leads_nowhere(daemon: DataStore, tree: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent of what rsync could not send whole, whether or not the program for trees is there."""
    (tree / "sub/dangling").symlink_to("nowhere")
    server = ds.Server(f"http://127.0.0.1:{daemon.http_port}", f"127.0.0.1:{daemon.rsync_port}", TOKEN)
    for command in (str(BUILD / "penstock"), "/no/such/program"):
        monkeypatch.setenv("PENSTOCK_COMMAND", command)
        with ds.DataStoreClient("default", server) as client:
            with pytest.raises(FileNotFoundError, match="sub/dangling leads nowhere"):
                client.put("dangling/k", tree)
            assert client.ls("dangling") == []
            client.put("excluded/k", tree, filter_options="--exclude=dangling")
            client.rm("excluded", recursive=True)


def test_filters_and_force(client: ds.DataStoreClient, tree: pathlib.Path) -> None:
    client.put("svc/m", tree, contents=True, filter_options="--exclude='*' --include='a file'")
    assert [item["name"] for item in client.ls("svc/m")] == ["a file"]
    old = (tree / "a file").stat()
    (tree / "a file").write_bytes(b"x" * old.st_size)
    os.utime(tree / "a file", ns=(old.st_atime_ns, old.st_mtime_ns))
    client.put("svc/m", tree, contents=True)  # rsync sees the same size and time
    client.put("svc/forced", tree, contents=True, force=True)
    for options in ("--rsh=touch", "--include", "-e sh", "--exclude=a; --delete"):
        with pytest.raises(ValueError):
            client.put("svc/m", tree, filter_options=options)


def test_keys_come_and_go(client: ds.DataStoreClient, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert client.mkdir("svc/a/b") is True
    with pytest.raises(ds.StoreRefused, match="not empty") as refused:
        client.rm("svc/a")
    assert refused.value.status == 400
    client.rm("svc/a", recursive=True)
    assert client.ls("svc") == []
    with pytest.raises(ds.KeyNotFound, match="svc/a"):
        client.get("svc/a", tmp_path)
    for key in ("", "/", []):
        with pytest.raises(ValueError):
            client.get(key, tmp_path)
    with pytest.raises(FileNotFoundError):
        client.put("svc/a", tree / "nothing")
    with pytest.raises(ValueError, match="neither"):
        client.put("svc/a", tree, locale="elsewhere")  # type: ignore[arg-type]


def test_keys_of_a_service_go_with_it(client: ds.DataStoreClient, tree: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="KT_SERVICE_NAME"):
        client.put("svc/m", tree, lifespan="resource")
    monkeypatch.setenv("KT_SERVICE_NAME", "svc")
    client.put("svc/m", tree, lifespan="resource")
    client.put("svc/kept", tree)
    assert client.metadata_client.cleanup_service_keys("svc") == {"success": True, "deleted_count": 1}
    assert [item["name"] for item in client.ls("svc")] == ["kept"]


def test_a_peer_that_is_gone_is_taken_off_the_list(daemon: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    client = ds.DataStoreClient("default", ds.Server(f"http://127.0.0.1:{daemon.http_port}", f"127.0.0.1:{daemon.rsync_port}", TOKEN))
    meta = client.metadata_client
    meta.publish_key("peers/m", "127.0.0.9", pod_name="gone", src_path="m")  # nothing listens there
    with pytest.raises(ds.DataStoreError, match="no pod that does could be reached"):
        client.get("peers/m", tmp_path)
    assert meta.key_info("peers/m") is None
    client.put("peers/m", tree, contents=True)
    meta.publish_key("peers/m", "127.0.0.9", src_path="m")
    client.get("peers/m", tmp_path / "out")
    assert files_of(tmp_path / "out/m") == files_of(tree)
    told = meta.key_info("peers/m")
    assert told and all(source["request_count"] == 0 for source in told["sources"])


@pytest.mark.parametrize("path", ["rsync://[bad/x", "rsync://a:b:c/x/y", "rsync://h\u2100/x", "rsync://"])
def test_a_peer_that_says_no_path_is_taken_off_the_list(daemon: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path, path: str) -> None:
    """The store has the key, too, and nobody is kept from it."""
    client = ds.DataStoreClient("default", ds.Server(f"http://127.0.0.1:{daemon.http_port}", f"127.0.0.1:{daemon.rsync_port}", TOKEN))
    client.put("peers/odd", tree, contents=True)
    client.metadata_client.publish_key("peers/odd", "127.0.0.9", src_path=path)
    client.get("peers/odd", tmp_path / "out")
    assert files_of(tmp_path / "out/odd") == files_of(tree)
    told = client.metadata_client.key_info("peers/odd")
    assert told and "127.0.0.9" not in str(told["sources"])
    client.rm("peers/odd", recursive=True)


def test_an_agent_that_names_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in ({}, {"rsync_port": None, "rsync_path": "a"}, {"rsync_port": "none", "rsync_path": "a"}):
        monkeypatch.setattr(ds.PodDataServerClient, "_ask", lambda *_, **__: answer)
        with pytest.raises(ds.AgentError):
            ds.PodDataServerClient("nothing").register("k", "/")


def test_sources_of_a_key(daemon: DataStore) -> None:
    meta = ds.MetadataClient("default", ds.Server(f"http://127.0.0.1:{daemon.http_port}", None, TOKEN))
    assert meta.get_source_ip("svc/p") is None and meta.has_store_pod("svc/p") is False
    assert meta.publish_key("svc/p", "10.0.0.5", pod_name="five") is True
    assert meta.get_source_ip("svc/p") == "10.0.0.5"
    assert meta.get_source_ip("svc/p", external=True) == {
        "pod_name": "five", "namespace": "default", "proxy_through_store": False, "peer_ip": "10.0.0.5"}
    for _ in range(28):
        meta.get_source_ip("svc/p")
    with pytest.raises(ds.Saturated) as full:
        meta.get_source_ip("svc/p")
    assert full.value.ips == ["10.0.0.5"]
    assert meta.remove_source("svc/p", "10.0.0.5") is True and meta.key_info("svc/p") is None
    window = ds.BroadcastWindow(world_size=1)
    told = meta.join_broadcast(["svc/p"], "putter", "10.0.0.5", broadcast=window)
    assert told["status"] == "ready"
    assert meta.get_broadcast_status(told["broadcast_id"], "10.0.0.5")["putters"][0]["pod_ip"] == "10.0.0.5"
    assert meta.complete_broadcast(told["broadcast_id"], "10.0.0.5") is True
    assert meta.stats()["total_keys"] >= 0


def test_a_key_may_be_called_list(client: ds.DataStoreClient, daemon: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    meta = ds.MetadataClient("default", ds.Server(f"http://127.0.0.1:{daemon.http_port}", None, TOKEN))
    client.put("list", tree)
    assert meta.has_store_pod("list") is True and (meta.key_info("list") or {})["key"] == "list"
    client.get("list", tmp_path / "back")
    client.rm("list", recursive=True)
    assert meta.key_info("list") is None


def test_what_is_no_store_is_said(tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def nonsense(said: bytes) -> None:
            connection = listener.accept()[0]
            connection.recv(4096)
            connection.sendall(said)
            connection.close()

        for said in (b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
                     b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<br/>", b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n"):
            thread = threading.Thread(target=nonsense, args=(said,))
            thread.start()
            with pytest.raises(ds.StoreUnreachable, match="127.0.0.1"):
                ds.MetadataClient("default", ds.Server(url)).stats()
            thread.join()
    with pytest.raises(ds.StoreUnreachable):
        ds.DataStoreClient("default", ds.Server(url)).ls()
    with pytest.raises(ds.StoreUnreachable, match="/rsync/"):
        (tmp_path / "f").touch()
        ds.RsyncClient("default", "svc", ds.Server(url)).upload(str(tmp_path / "f"), "f")
    for bad in ("127.0.0.1:1", "ftp://h", "http://"):
        with pytest.raises(ValueError):
            ds.Server(bad)


def test_answers_have_a_bound_and_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_client, "ANSWER_BYTES_MAX", 1 << 20)
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    ends = threading.Event()

    def drip(connection: socket.socket, first: bytes, again: bytes) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(4096)
            connection.sendall(first)
            while not ends.wait(0 if len(again) > 1 else 0.02):
                connection.sendall(again)

    for first, again, fault in ((head, b" " * 65536, "no data store"), (head, b" ", "timed out"),
                                (b"HTTP/1.1 200 OK\r\nX: ", b"x", "timed out")):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = ds.MetadataClient("default", ds.Server(f"http://127.0.0.1:{listener.getsockname()[1]}"), timeout=1.0)
            thread = threading.Thread(target=lambda first=first, again=again: drip(listener.accept()[0], first, again))  # type: ignore[misc]
            ends.clear()
            thread.start()
            with pytest.raises(ds.StoreUnreachable, match=fault):
                client.stats()
            ends.set()
            thread.join()
    with pytest.raises(ds.StoreUnreachable, match="no data store"), socket.create_server(("127.0.0.1", 0)) as listener:
        deep = head.replace(b"\r\n\r\n", b"\r\nContent-Length: 200000\r\n\r\n") + b"[" * 200_000
        ends.set()
        thread = threading.Thread(target=lambda: drip(listener.accept()[0], deep, b""))
        thread.start()
        try:
            ds.MetadataClient("default", ds.Server(f"http://127.0.0.1:{listener.getsockname()[1]}")).stats()
        finally:
            thread.join()


def test_a_key_with_a_long_name_comes_by_each_way(client: ds.DataStoreClient, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for bytes_ in (240, 241, 255):
        key = "svc/" + "k" * bytes_
        client.put(key, tree, contents=True)
        client.get(key, tmp_path / "out")
        assert files_of(tmp_path / key.replace("svc", "out")) == files_of(tree)
    assert not list((tmp_path / "out").glob(".penstock*"))


def test_a_wrong_token_is_said(daemon: DataStore, tree: pathlib.Path) -> None:
    server = ds.Server(f"http://127.0.0.1:{daemon.http_port}", f"127.0.0.1:{daemon.rsync_port}", "wrong")
    with pytest.raises(ds.RsyncError, match="auth failed") as failed:
        ds.DataStoreClient("default", server).put("svc/m", tree)
    assert failed.value.code == 5 and "wrong" not in str(failed.value) and "wrong" not in repr(server)


def test_a_broken_get_leaves_nothing_under_its_name(daemon: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    server = ds.Server(f"http://127.0.0.1:{daemon.http_port}", f"127.0.0.1:{daemon.rsync_port}", TOKEN)
    client = ds.DataStoreClient("default", server)
    client.put("broken/m", tree, contents=True)
    (daemon.files / "broken/m/sub").chmod(0)
    (daemon.files / "broken/m/gone").symlink_to("nowhere")
    real, rsync = client.rsync(ds.parse_key("broken/m")), ds.RsyncClient("default", "broken", server)
    command = real.build_rsync_command

    def broken(sources: list[str], *arguments: object) -> list[str]:
        return command([*sources, sources[0].rstrip("/") + "-nothing"], *arguments)  # type: ignore[arg-type]

    rsync.build_rsync_command = broken  # type: ignore[assignment]
    with pytest.raises(ds.RsyncError):
        rsync.download("m", str(tmp_path / "out"))
    (daemon.files / "broken/m/sub").chmod(0o755)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".penstock-m.part"]
    client.get("broken/m", tmp_path / "out")  # goes on, and ends well
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["m"]
    assert files_of(tmp_path / "out/m") == files_of(tree)


def test_the_environment_names_the_store(daemon: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PENSTOCK_DATA_URL", "KT_API_URL", "PENSTOCK_DATA_RSYNC", "PENSTOCK_DATA_TOKEN", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    assert ds.Server.from_environment("ns") == ds.Server("http://127.0.0.1:8081", "127.0.0.1:873")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert ds.Server.from_environment("ns").rsync == "kubetorch-data-store.ns.svc.cluster.local:873"
    monkeypatch.setenv("KT_API_URL", f"http://127.0.0.1:{daemon.http_port}/")
    (tmp_path / "token").write_text(TOKEN + "\n")
    monkeypatch.setenv("PENSTOCK_DATA_TOKEN_FILE", str(tmp_path / "token"))
    assert ds.Server.from_environment("ns").rsync is None
    ds.put("env/m", tree, contents=True)
    asyncio.run(ds.rsync_async(str(tree / "a file"), "beside", service_name="env"))
    assert {item["name"] for item in ds.ls("env")} == {"m", "beside"}
    assert ds.mkdir("env/new") is True
    ds.get("env/m", tmp_path / "out")
    assert files_of(tmp_path / "out/m") == files_of(tree)
    ds.rm("env", recursive=True)
    assert ds.ls("env") == []


def test_keys_are_cut_at_their_first_slash() -> None:
    for key, service, path, full in (("a/b/c", "a", "b/c", "a/b/c"), ("/a/", "a", "", "a"), ("", None, "", "")):
        parsed = ds.parse_key(key)
        assert (parsed.service_name, parsed.path, parsed.full_key, parsed.original_key) == (service, path, full, key)
    assert ds.parse_key("").storage_path == "store" and ds.parse_key("a/b").storage_path == "b"
    with pytest.raises(ValueError, match="at least one"):
        ds.BroadcastWindow()


def test_native_says_why_it_is_not(daemon: DataStore, tree: pathlib.Path, tmp_path: pathlib.Path,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    url, rsync = f"http://127.0.0.1:{daemon.http_port}", f"127.0.0.1:{daemon.rsync_port}"
    monkeypatch.setenv("PENSTOCK_COMMAND", str(BUILD / "penstock"))
    with pytest.raises(ds.TreeError, match="token"):
        ds.DataStoreClient("default", ds.Server(url, rsync, "wrong"), "native").put("native/m", tree)
    client = ds.DataStoreClient("default", ds.Server(url, rsync, TOKEN), "native")
    (tree / "link").symlink_to("a file")
    client.put("native/m", tree, contents=True)
    assert os.readlink(daemon.files / "native/m/link") == "a file"
    client.get("native/m", tmp_path / "out")
    assert os.readlink(tmp_path / "out/m/link") == "a file" and files_of(tmp_path / "out/m") == files_of(tree)
    monkeypatch.delenv("PENSTOCK_COMMAND")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ds.TreeError, match="PENSTOCK_COMMAND"):
        ds.DataStoreClient("default", ds.Server(url, rsync, TOKEN), "native").put("native/m", tree)
    with pytest.raises(ValueError, match="none of auto, rsync, native"):
        ds.DataStoreClient("default", ds.Server(url, rsync, TOKEN), "pigeon")  # type: ignore[arg-type]
