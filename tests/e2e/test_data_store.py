# SPDX-License-Identifier: Apache-2.0
"""penstockd --role store by raw HTTP and the real rsync: every route's JSON, and what lasts."""
from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import threading
import time
from typing import Iterator

import pytest
from data_store import DataStore

MISSING = {"found": False, "error": "Key not found"}
PEER = {"ip": "10.0.0.5", "pod_name": "pod-5", "namespace": "team", "src_path": "work/model"}


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Iterator[DataStore]:
    with DataStore(tmp_path / "data", "--store-address", "store.local") as it:
        yield it


def put(store: DataStore, key: str, text: str = "x") -> None:
    path = store.files / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_health_and_stats(store: DataStore) -> None:
    assert store.ask("GET", "/health") == (200, {"status": "healthy"})
    assert store.ask("GET", "/api/v1/stats") == (200, {"total_keys": 0, "total_sources": 0, "keys_with_store_pod": 0})
    store.key("POST", "a/b", "/publish", PEER)
    store.key("POST", "a/b", "/store", {"ip": "store.ns.svc"})
    assert store.ask("GET", "/api/v1/stats") == (200, {"total_keys": 1, "total_sources": 2, "keys_with_store_pod": 1})


def test_a_peer_is_published_found_and_removed(store: DataStore) -> None:
    assert store.key("GET", "svc/model") == (200, MISSING)
    assert store.key("GET", "svc/model", "/source") == (200, MISSING)
    before = time.time()
    assert store.key("POST", "svc/model", "/publish", PEER) == (200, {"success": True, "data_type": "filesystem"})
    assert store.key("GET", "svc/model", "/source") == (200, {"ip": "10.0.0.5", "src_path": "work/model"})
    assert store.key("GET", "svc/model", "/source?external=true") == (200, {
        "pod_name": "pod-5", "namespace": "team", "proxy_through_store": False, "src_path": "work/model",
        "peer_ip": "10.0.0.5"})
    status, told = store.key("GET", "svc/model")
    published = told["sources"][0].pop("published_at")
    assert before - 1 <= published <= time.time() + 1
    assert (status, told) == (200, {"key": "svc/model", "found": True, "store_pod_ip": None,
                                    "sources": [{"ip": "10.0.0.5", "request_count": 2, "src_path": "work/model"}]})
    assert store.key("POST", "svc/model", "/source/complete", {"ip": "10.0.0.5"}) == (200, {"success": True})
    assert store.key("GET", "svc/model")[1]["sources"][0]["request_count"] == 1
    assert store.key("DELETE", "svc/model", "/sources/10.0.0.5") == (200, {"success": True, "removed": True})
    assert store.key("DELETE", "svc/model", "/sources/10.0.0.5") == (200, {"success": True, "removed": False})
    assert store.key("GET", "svc/model", "/source") == (200, MISSING)


def test_a_source_without_a_path_or_a_pod(store: DataStore) -> None:
    assert store.key("POST", "k", "/publish", {"ip": "10.0.0.6", "data_type": "array", "pod_name": None}) == (
        200, {"success": True, "data_type": "array"})
    assert store.key("GET", "k", "/source") == (200, {"ip": "10.0.0.6"})
    assert store.key("GET", "k", "/source?external=true") == (200, {
        "pod_name": None, "namespace": "default", "proxy_through_store": True, "peer_ip": "10.0.0.6"})


def test_the_store_serves_last_and_only_what_it_has(store: DataStore) -> None:
    store.key("POST", "svc/model", "/publish", PEER)
    assert store.key("POST", "svc/model", "/store", {"ip": "store.ns.svc"}) == (200, {"success": True})
    assert store.key("GET", "svc/model", "/source")[1]["ip"] == "10.0.0.5"  # the store has no such file
    assert store.key("GET", "svc/model")[1]["store_pod_ip"] is None
    put(store, "svc/model/weights")
    store.key("POST", "svc/model", "/store", {"ip": "127.0.0.1"})  # as a port-forward has it; the store knows its address
    assert store.key("GET", "svc/model", "/source")[1]["ip"] == "10.0.0.5"
    assert store.key("GET", "svc/model")[1]["store_pod_ip"] == "store.local"
    assert store.key("GET", "svc/model", "/source?external=true")[1] == {  # pods are mostly not reached from outside
        "pod_name": None, "namespace": "default", "proxy_through_store": True, "src_path": "default/svc/model",
        "peer_ip": "store.local"}
    store.key("DELETE", "svc/model", "/sources/10.0.0.5")
    assert store.key("GET", "svc/model", "/source") == (200, {"ip": "store.local", "src_path": "default/svc/model"})
    # A file within the tree, which nobody told the catalogue of.
    assert store.key("GET", "svc/model/weights", "/source") == (
        200, {"ip": "store.local", "src_path": "default/svc/model/weights"})
    assert store.key("GET", "svc/model/weights") == (
        200, {"key": "svc/model/weights", "found": True, "store_pod_ip": "store.local", "is_directory": False, "sources": []})


def test_a_store_without_an_address_is_called_what_clients_call_it(tmp_path: pathlib.Path) -> None:
    with DataStore(tmp_path / "data") as store:
        put(store, "svc/model/weights")
        store.key("POST", "svc/model", "/store", {"ip": "store.ns.svc"})
        assert store.key("GET", "svc/model", "/source") == (200, {"ip": "store.ns.svc", "src_path": "default/svc/model"})


def test_a_client_is_sent_to_itself_last(store: DataStore) -> None:
    store.key("POST", "k", "/publish", {"ip": "127.0.0.1"})
    assert store.key("GET", "k", "/source") == (200, {"ip": "127.0.0.1"})
    store.key("POST", "k", "/publish", {"ip": "10.0.0.7"})
    for _ in range(5):
        assert store.key("GET", "k", "/source") == (200, {"ip": "10.0.0.7"})


def test_sources_that_serve_enough_are_told(store: DataStore) -> None:
    store.key("POST", "k", "/publish", PEER)
    for _ in range(30):
        assert store.key("GET", "k", "/source")[0] == 200
    status, told = store.key("GET", "k", "/source")
    assert status == 503 and told["detail"]["ips"] == told["ips"] == ["10.0.0.5"] and told["detail"]["error"]
    store.key("POST", "k", "/source/complete", {"ip": "10.0.0.5"})
    assert store.key("GET", "k", "/source")[0] == 200


def test_the_store_serves_a_file_without_a_record_if_peers_are_full(store: DataStore) -> None:
    put(store, "tree/file")
    store.key("POST", "tree/file", "/publish", PEER)
    ours = {"ip": "store.local", "src_path": "default/tree/file"}
    assert store.key("GET", "tree/file", "/source?external=true")[1]["peer_ip"] == "store.local"
    told = [store.key("GET", "tree/file", "/source") for _ in range(32)]
    assert told[:30] == [(200, {"ip": "10.0.0.5", "src_path": "work/model"})] * 30
    assert told[30:] == [(200, ours)] * 2
    # Of the asker itself, too, the store has precedence.
    put(store, "tree/own")
    store.key("POST", "tree/own", "/publish", {"ip": "127.0.0.1"})
    assert store.key("GET", "tree/own", "/source")[1]["ip"] == "store.local"


def test_listings(store: DataStore) -> None:
    for key in ("svc/tree/a", "svc/tree/b", "svc/file", "svc/.hidden", "top"):
        put(store, key)
    for key in ("svc/zoo", "svc/dir/x", "svc/dir/y/z", "svc/dir-2", "svc/.secret", "svc/tree", "other/k"):
        store.key("POST", key, "/publish", PEER)
    store.key("POST", "svc/nameless", "/publish", {"ip": "10.0.0.9"})
    assert list(store.names("svc").items()) == [
        ("dir", (True, "pod-5")), ("tree", (True, "store")), ("dir-2", (False, "pod-5")), ("file", (False, "store")),
        ("nameless", (False, "local")), ("zoo", (False, "pod-5"))]
    assert store.names() == {"svc": (True, "store"), "other": (True, "pod-5"), "top": (False, "store")}
    assert store.names("svc/dir") == {"x": (False, "pod-5"), "y": (True, "pod-5")}
    assert store.names("svc/file") == {"file": (False, "store")}
    assert store.names("nothing/here") == {}


def test_a_listing_goes_on_behind_the_longest_key(store: DataStore) -> None:
    room = 4096 - len("default//")
    folder = "/".join(["d" * 255] * 15)[:room - 200]
    for name in ("a" * (room - len(folder)), "b", "z/under", "0"):
        assert store.key("POST", f"{folder}/{name}", "/publish", PEER)[0] == 200
    assert set(store.names(folder)) == {"a" * (room - len(folder)), "b", "z", "0"}


def test_a_key_may_have_the_name_of_a_route(store: DataStore) -> None:
    put(store, "list")
    assert store.ask("POST", "/api/v1/keys/list/store", {"ip": "store.local"}) == (200, {"success": True})
    assert store.ask("GET", "/api/v1/keys/list?prefix=")[1]["items"][0]["name"] == "list"
    assert store.ask("GET", "/api/v1/keys/%6Cist")[1]["store_pod_ip"] == "store.local"
    assert store.ask("PUT", "/api/v1/keys/list")[0] == 405
    assert store.ask("DELETE", "/api/v1/keys/list")[1]["deleted_fs_count"] == 1
    assert store.ask("GET", "/api/v1/keys/%6Cist") == (200, MISSING) and not (store.files / "list").exists()


def test_keys_are_decoded_once(store: DataStore) -> None:
    put(store, "100%41/x y+z")
    assert store.key("GET", "100%41/x y+z")[1]["store_pod_ip"] == "store.local"
    assert store.key("GET", "100A/x y+z") == (200, MISSING)
    assert store.names("100%41") == {"x y+z": (False, "store")}
    for quoted in ("a%2Fb%2Fc", "a/b/c", "a%2F%2Fb/./c", "x/..%2Fa/b/c"):
        assert store.ask("POST", f"/api/v1/keys/{quoted}/publish", PEER)[0] == 200
    assert store.ask("GET", "/api/v1/stats")[1]["total_keys"] == 1
    # A quoted slash belongs to the key, whatever route it looks like.
    assert store.key("POST", "a/publish", "/publish", PEER)[0] == 200
    assert store.key("GET", "a/publish")[1]["found"] is True
    assert store.ask("GET", "/api/v1/keys/a%2Fsource")[1] == MISSING


def test_directories_and_removals(store: DataStore) -> None:
    assert store.key("POST", "svc/new/deep", "/mkdir") == (200, {"success": True, "path": "svc/new/deep"})
    assert (store.files / "svc/new/deep").is_dir()
    put(store, "svc/new/file")
    status, told = store.key("POST", "svc/new/file/under", "/mkdir")
    assert status == 409 and "file" in told["detail"]
    store.key("POST", "svc/new/k", "/publish", PEER)
    status, told = store.key("DELETE", "svc/new")
    assert status == 400 and "not empty" in told["detail"]
    assert store.key("GET", "svc/new/k")[1]["found"] is True
    assert store.key("DELETE", "svc/new", "?recursive=true") == (200, {
        "success": True, "deleted_from_metadata": True, "deleted_from_filesystem": True, "deleted_metadata_count": 1,
        "deleted_fs_count": 3})
    assert not (store.files / "svc/new").exists() and (store.files / "svc").is_dir()
    assert store.key("DELETE", "svc/new", "?recursive=true") == (200, {
        "success": True, "deleted_from_metadata": False, "deleted_from_filesystem": False, "deleted_metadata_count": 0,
        "deleted_fs_count": 0})


def test_one_key_takes_anothers_place(store: DataStore) -> None:
    for key in ("svc/file", "svc/value/penstock-value.1.bin", "svc/value/.penstock-partial/x", "svc/more/penstock-value.1.bin",
                "svc/more/.hidden", "svc/deep/penstock-value.1/k"):
        put(store, key, key)
    assert [store.key("GET", f"svc/{key}")[1]["is_directory"] for key in ("file", "value")] == [False, True]
    for key in ("more", "deep"):
        assert store.key("POST", f"svc/{key}", "/replace", {"by": "svc/file"})[0] == 400
    for body, status in (({}, 422), ({"by": 1}, 422), ({"by": ".."}, 400), ({"by": "svc/none"}, 404), ({"by": "svc/file/x"}, 409),
                         ({"by": "svc"}, 400), ({"by": ".penstock-x"}, 400), ({"by": "svc/value"}, 400),
                         ({"by": "./svc//value/"}, 400), ({"by": "svc/x/../value"}, 400),
                         ({"by": "svc/value/penstock-value.1.bin"}, 400)):
        assert store.key("POST", "svc/value", "/replace", body)[0] == status, body
    assert store.key("POST", "svc/file", "/replace", {"by": "svc/file"})[0] == 400
    assert (store.files / "svc/value/penstock-value.1.bin").exists() and (store.files / "svc/file").read_text() == "svc/file"
    assert store.key("POST", "svc/value", "/replace", {"by": "svc/a/../file"}) == (200, {"success": True})
    assert (store.files / "svc/value").read_text() == "svc/file" and not (store.files / "svc/file").exists()
    put(store, "new/penstock-value.2.bin", "2")
    assert store.key("POST", "svc/value", "/replace", {"by": "new"})[0] == 200
    assert os.listdir(store.files / "svc/value") == ["penstock-value.2.bin"] and not (store.files / "new").exists()
    assert store.key("POST", "svc/new", "/replace", {"by": "svc/more"})[0] == 200
    assert set(os.listdir(store.files / "svc")) == {"value", "new", "deep"}


def test_a_name_that_comes_while_a_folder_is_replaced_stays(store: DataStore) -> None:
    """Whoever has the folder open still puts a name there, as rsync's daemon does."""
    for at in range(60):
        for number in range(200):  # so that it takes a while
            put(store, f"svc/{at}/penstock-value.{number}.bin")
        put(store, "svc/file", "a file")
        folder = os.open(store.files / f"svc/{at}", os.O_PATH | os.O_DIRECTORY)
        gate, told = threading.Barrier(2), list[int]()

        def replace() -> None:
            gate.wait()
            told.append(store.key("POST", f"svc/{at}", "/replace", {"by": "svc/file"})[0])

        thread = threading.Thread(target=replace)
        thread.start()
        gate.wait()
        made = False
        while not told and not made:
            time.sleep(at * 0.00005)
            with contextlib.suppress(FileNotFoundError):  # the folder is gone
                os.close(os.open("other", os.O_CREAT | os.O_EXCL | os.O_WRONLY, dir_fd=folder))
                made = True
        thread.join()
        os.close(folder)
        assert told == [400 if made else 200], at
        assert (store.files / f"svc/{at}/other").exists() == made
        assert (store.files / "svc/file").exists() == made


def test_removals_by_prefix(store: DataStore) -> None:
    for key in ("m/step-1/w", "m/step-2/w", "m/stop", "m/other"):
        put(store, key)
    for key in ("m/step-1", "m/step-3", "m/step-1/w", "m/stop"):
        store.key("POST", key, "/publish", PEER)
    status, told = store.key("DELETE", "m/step-", "?recursive=true&prefix_mode=true")
    assert status == 200 and told["deleted_fs_count"] == 4 and told["deleted_metadata_count"] == 3, told
    assert set(store.names("m")) == {"stop", "other"}


def test_keys_go_with_their_service(store: DataStore) -> None:
    for number in range(300):
        store.key("POST", f"svc/{number}", "/publish", {**PEER, "lifespan": "resource", "service_name": "svc",
                                                        "namespace": "default"})
    put(store, "svc/1/tree/file")
    put(store, "svc/kept")
    store.key("POST", "svc/stays", "/publish", {**PEER, "lifespan": "cluster", "service_name": "svc"})
    store.key("POST", "elsewhere/k", "/publish", {**PEER, "lifespan": "resource", "service_name": "svc-2"})
    assert store.ask("DELETE", "/api/v1/services/svc/cleanup?namespace=default") == (
        200, {"success": True, "deleted_count": 300})
    assert set(store.names("svc")) == {"kept", "stays"} and set(store.names("elsewhere")) == {"k"}
    assert store.ask("DELETE", "/api/v1/services/svc/cleanup?namespace=default")[1]["deleted_count"] == 0


def test_namespaces_are_apart(store: DataStore) -> None:
    store.ask("POST", "/api/v1/keys/k/publish?namespace=team", PEER)
    assert store.key("GET", "k") == (200, MISSING)
    assert store.ask("GET", "/api/v1/keys/k?namespace=team")[1]["found"] is True
    store.ask("POST", "/api/v1/keys/d/mkdir?namespace=team")
    assert (store.folder / "files/team/d").is_dir()
    for name in ("..", ".", "a%2Fb", ".hidden", "", "%00", "x" * 300):
        status, told = store.ask("GET", f"/api/v1/keys/k?namespace={name}")
        assert status == 400 and "namespace" in told["detail"], name


def test_tensors_on_devices(store: DataStore) -> None:
    body = {"keys": ["t/w", "t/b"], "ip": "10.0.0.8", "pod_name": "gpu-8", "namespace": "ns", "nccl_port": 29500,
            "gpu_server_port": 29400, "gpu_server_socket": "/tmp/s.sock"}
    assert store.ask("POST", "/api/v1/keys/_/gpu/publish", body) == (200, {"success": True, "count": 2, "data_type": "gpu"})
    known = {"found": True, **{name: body[name] for name in body if name != "keys"}}
    assert store.ask("POST", "/api/v1/keys/_/gpu/source", {"keys": ["t/w", "no"]}) == (
        200, {"sources": {"t/w": known, "no": {"found": False}}})
    for keys in ([], "t", [1], None):
        assert store.ask("POST", "/api/v1/keys/_/gpu/source", {"keys": keys})[0] == 422
    assert store.ask("POST", "/api/v1/keys/_/gpu/publish", {**body, "nccl_port": 70000})[0] == 422


def test_a_tree_through_rsync_and_back(store: DataStore, tmp_path: pathlib.Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub/file").write_bytes(bytes(range(256)) * 1000)
    (tree / "link").symlink_to("/etc/passwd")
    assert store.rsync("-a", "--mkpath", f"{tree}/", "{data}default/svc/tree/").returncode == 0
    assert store.key("GET", "svc/tree", "/source") == (200, {"ip": "store.local", "src_path": "default/svc/tree"})
    assert store.rsync("-a", "{data}default/svc/tree/", f"{tmp_path}/back/").returncode == 0
    assert (tmp_path / "back/sub/file").read_bytes() == (tree / "sub/file").read_bytes()
    # A link that leads out is one, and no key leads through it.
    assert store.names("svc/tree") == {"sub": (True, "store"), "link": (False, "store")}
    assert store.key("GET", "svc/tree/link/x") == (200, MISSING)


@pytest.mark.parametrize("more", [(), ("-s",)], ids=["plain", "protected"])
def test_no_path_of_rsync_climbs_out_of_its_namespace(store: DataStore, tmp_path: pathlib.Path, more: tuple[str, ...]) -> None:
    """Whoever made the client: rsync takes ".." for more than a key's."""
    (tmp_path / "f").write_text("a file")
    put(store, "x")
    for path in ("default/svc/../../other/x", "default/../x", "../default/x", "default/..", "default/a\\*/../../../other/x"):
        told = store.rsync("-a", *more, "--mkpath", f"{tmp_path}/f", f"{{data}}{path}")
        assert told.returncode and "may leave its namespace" in told.stdout + told.stderr, (path, told)
    for path in (("default/../default/x",), ("default/x", "default/../default/x"), ("default/..", "default/x")):
        assert store.rsync("-a", *more, *(f"{{data}}{one}" for one in path), f"{tmp_path}/got/").returncode
    assert set(os.listdir(store.folder / "files")) == {"default"} and not (tmp_path / "got/x").exists()
    for path in ("default/..y", "default/a../..b/y"):
        assert store.rsync("-a", *more, "--mkpath", f"{tmp_path}/f", f"{{data}}{path}").returncode == 0
        assert store.rsync("-a", *more, f"{{data}}{path}", f"{tmp_path}/got").returncode == 0
    assert set(os.listdir(store.files)) == {"x", "..y", "a.."}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_forgets_nothing(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    with DataStore(tmp_path / "data") as store:
        store.key("POST", "svc/k", "/publish", {**PEER, "lifespan": "resource", "service_name": "svc"})
        put(store, "svc/file")
        if number == signal.SIGTERM:
            store.stop()
        else:
            store.end(number)
    with DataStore(tmp_path / "data") as store:
        assert store.key("GET", "svc/k", "/source") == (200, {"ip": "10.0.0.5", "src_path": "work/model"})
        assert store.names("svc") == {"k": (False, "pod-5"), "file": (False, "store")}
        assert store.ask("DELETE", "/api/v1/services/svc/cleanup?namespace=team")[1]["deleted_count"] == 1
