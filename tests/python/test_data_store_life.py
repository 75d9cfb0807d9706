# SPDX-License-Identifier: Apache-2.0
"""What a client of a data store keeps between calls, and how it lets go."""
from __future__ import annotations

import errno
import itertools
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest
from data_store import DataStore
from support import BUILD, clean_environment, wait_until

from penstock import data_store as ds
from penstock.data_store import data_store_cmds, local_offers, spool

COMMAND = str(BUILD / "penstock")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataStore]:
    with DataStore(tmp_path_factory.mktemp("store") / "data", "--store-address", "127.0.0.1") as it:
        yield it


@pytest.fixture
def direct(daemon: DataStore) -> ds.Server:
    return ds.Server(f"http://127.0.0.1:{daemon.http_port}", f"127.0.0.1:{daemon.rsync_port}")


@pytest.fixture
def tunnelled(daemon: DataStore) -> ds.Server:
    return ds.Server(f"http://127.0.0.1:{daemon.http_port}")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stores that were asked how they carry trees, and told."""
    told: list[str] = []
    real = ds.MetadataClient.transport

    def transport(self: ds.MetadataClient) -> dict[str, Any]:
        answer = real(self)
        told.append(self.server.url)
        return answer

    monkeypatch.setattr(ds.MetadataClient, "transport", transport)
    return told


def test_tunnels_are_kept_and_closed(tunnelled: ds.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_COMMAND", COMMAND)
    before = set(threading.enumerate())
    for transport in ("rsync", "native"):
        with ds.DataStoreClient("default", tunnelled, transport) as client:  # type: ignore[arg-type]
            client.put("svc/x", data=b"x")
            tunnel = client.tunnels.at(f"/{'tree' if transport == 'native' else 'rsync'}/default/")
            assert client.get("svc/x") == b"x" and client.tunnels.at(tunnel.ws_url[tunnel.ws_url.index("/", 5 + 2):]) is tunnel
            rsync = client.tunnels.at("/rsync/default/")
            with socket.create_connection(("127.0.0.1", rsync.local_port)) as peer:
                assert peer.recv(7) == b"@RSYNCD"
                client.close()
                while peer.recv(4096):
                    pass
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", tunnel.local_port))
            client.close()
            for call in (lambda: client.get("svc/x"), lambda: client.put("svc/x", data=b""), lambda: client.ls(),
                         lambda: client.rm("svc/x"), lambda: client.mkdir("svc/y"), lambda: client.tunnels.at("/rsync/default/")):
                with pytest.raises(ValueError, match="is closed"):
                    call()
    wait_until("their threads have ended", lambda: set(threading.enumerate()) <= before)


def test_a_fault_of_a_tunnel_is_that_of_its_call(tunnelled: ds.Server, daemon: DataStore, tmp_path: pathlib.Path) -> None:
    (tmp_path / "f").write_text("f")
    with ds.DataStoreClient("default", tunnelled, "rsync") as client:
        tunnel = client.tunnels.at("/rsync/default/")
        url, tunnel.ws_url = tunnel.ws_url, f"ws://127.0.0.1:{daemon.http_port}/nowhere"
        with pytest.raises(ds.StoreUnreachable, match="nowhere"):
            client.put("svc/f", tmp_path / "f")
        tunnel.ws_url = url
        client.put("svc/f", tmp_path / "f")
        with pytest.raises(ds.RsyncError):  # not the tunnel's old fault
            client.rsync(ds.parse_key("svc/f")).download("nothing", str(tmp_path))


@pytest.mark.parametrize("fault", ["accept", "first thread", "second thread"])
def test_a_tunnel_outlives_a_lack_of_descriptors_or_threads(tunnelled: ds.Server, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    failed, started = threading.Event(), []
    accept, start = socket.socket.accept, threading.Thread.start

    def failing_accept(self: socket.socket) -> Any:
        if fault != "accept" or failed.is_set():
            return accept(self)
        failed.set()
        raise OSError(errno.EMFILE, "Too many open files")

    def failing_start(self: threading.Thread) -> None:
        if fault != "accept" and threading.current_thread() is not threading.main_thread():
            started.append(self)
        if len(started) != (1 if fault == "first thread" else 2) or failed.is_set():
            return start(self)
        failed.set()
        raise RuntimeError("can't start new thread")

    def greeting() -> bytes:
        with socket.create_connection(("127.0.0.1", tunnel.local_port), 30) as peer:
            return peer.recv(7)

    monkeypatch.setattr(socket.socket, "accept", failing_accept)
    monkeypatch.setattr(threading.Thread, "start", failing_start)
    with ds.DataStoreClient("default", tunnelled, "rsync") as client:
        tunnel = client.tunnels.at("/rsync/default/")
        if fault != "accept":
            assert greeting() == b"" and failed.is_set()  # told at once that nothing comes
            assert "new thread" in str(tunnel.fault)
        assert greeting() == b"@RSYNCD" and failed.is_set()
    assert not tunnel._acceptor.is_alive()


class Leaving:
    """A process that ends, with offers at some stores: seconds until a store answers, or what it is asked in vain with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stores: dict[str, float | Exception], each: int) -> None:
        self.now, self.stores = 1000.0, stores
        self.asked: list[str] = []
        self.forgotten = 0
        monkeypatch.setenv("POD_IP", "127.0.0.1")
        monkeypatch.setattr(ds.MetadataClient, "remove_source", lambda metadata, key, ip: self.remove(metadata))
        monkeypatch.setattr(ds.PodDataServerClient, "unregister", lambda agent, key, pid: self.forget())
        monkeypatch.setattr(local_offers, "time", types.SimpleNamespace(monotonic=lambda: self.now), raising=False)
        offers = local_offers.LocalOffers()
        offers._pid = os.getpid()
        agent = ds.PodDataServerClient("nothing")
        for number, store in itertools.product(map(str, range(each)), stores):
            metadata = ds.MetadataClient("default", ds.Server(f"http://{store}:1"))
            offers._offers[store, "default", number] = local_offers.Offer(metadata, agent, number, "/", False, "cluster", None)
        offers.close()
        assert self.forgotten == each * len(stores)

    def remove(self, metadata: ds.MetadataClient) -> bool:
        store = metadata.server.url.removeprefix("http://").removesuffix(":1")
        self.asked.append(store)
        answer = self.stores[store]
        if isinstance(answer, Exception):
            raise answer
        self.now += min(answer, metadata.timeout)
        if answer > metadata.timeout:
            raise ds.StoreUnreachable("timed out")
        return True

    def forget(self) -> bool:
        self.forgotten += 1
        return True


def test_a_process_that_ends_asks_a_store_that_is_not_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Leaving(monkeypatch, {"answers": 0.0, "gone": ds.StoreUnreachable("gone"), "refuses": ds.StoreRefused(403, "no")}, 100)
    assert [it.asked.count(store) for store in it.stores] == [100, 1, 100] and it.now == 1000.0


def test_a_process_that_ends_waits_a_few_seconds_for_all_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Leaving(monkeypatch, {"silent": 999.0}, 100)
    assert it.asked == ["silent"] and it.now == 1000.0 + local_offers.LEAVE_S
    it = Leaving(monkeypatch, {"slow": 1.0}, 100)
    assert it.asked == ["slow"] * int(local_offers.LEAVE_S) and it.now == 1000.0 + local_offers.LEAVE_S


@pytest.mark.parametrize("fault", [OSError(errno.EMFILE, "Too many open files"), KeyError("rsync_port"), ds.StoreUnreachable("gone")])
def test_offers_that_cannot_be_told_again_are_told_the_next_time(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    offers = local_offers.LocalOffers()
    told: list[str] = []

    def publish(offer: local_offers.Offer, again: bool = False) -> bool:
        told.append(offer.key)
        if offer.key == "first" and again and told.count("first") == 2:
            raise fault
        return True

    monkeypatch.setattr(local_offers.Offer, "publish", publish)
    metadata = ds.MetadataClient("default", ds.Server("http://127.0.0.1:1"))
    for key in ("first", "second"):
        offers.add(local_offers.Offer(metadata, ds.PodDataServerClient("nothing"), key, "/", False, "cluster", None))
    for _ in range(2):
        offers.publish_again()
    offers._stop.set()
    offers._offers.clear()
    assert told == 3 * ["first", "second"]


def test_a_spool_keeps_what_others_may_fetch(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(spool, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    it = spool.Spool()
    with it.kept("k") as first:  # threads that fetch the same at once do not lose their folders
        for _ in range(3):
            with it.kept("k"):
                pass
        assert first.exists()
    with it.kept("k") as second:
        pass
    assert first.exists() and second.exists() and len(list(first.parent.iterdir())) == spool.KEPT
    with pytest.raises(ZeroDivisionError), it.kept("other") as failed:
        raise ZeroDivisionError
    assert not failed.exists()
    for step in range(50):
        now[0] += spool.KEPT_S / 10 + 1
        with it.kept(f"run/step-{step}"):
            pass
    assert len(list(first.parent.iterdir())) == len(it._kept) == 10


def test_the_store_is_asked_once(direct: ds.Server, asked: list[str], monkeypatch: pytest.MonkeyPatch,
                                 tmp_path: pathlib.Path) -> None:
    monkeypatch.delenv("PENSTOCK_COMMAND", raising=False)
    rsync = shutil.which("rsync")
    assert rsync
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/rsync").symlink_to(rsync)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    client = ds.DataStoreClient("default", direct)
    client.put("svc/x", data=b"by rsync")
    assert client.trees() is None and asked == []
    monkeypatch.setenv("PENSTOCK_COMMAND", COMMAND)
    client.put("svc/x", data=b"by trees")
    monkeypatch.delenv("PENSTOCK_COMMAND")
    assert client.get("svc/x") == b"by trees" and len(asked) == 1
    found = client.trees()
    assert found
    found.address = "127.0.0.1:1"  # the store serves trees elsewhere since
    with pytest.raises(ds.TreeError):
        client.put("svc/x", data=b"lost")
    monkeypatch.setenv("PENSTOCK_COMMAND", COMMAND)
    client.put("svc/x", data=b"found")
    assert client.get("svc/x") == b"found" and len(asked) == 2


def test_a_store_that_does_not_tell_is_asked_again(direct: ds.Server, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_COMMAND", COMMAND)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        client = ds.DataStoreClient("default", ds.Server(f"http://127.0.0.1:{nobody.getsockname()[1]}", direct.rsync), "native")
    for _ in range(2):
        with pytest.raises(ds.TreeError, match="refused"):
            client.trees()
    client.metadata_client.server = direct
    assert client.trees() is client.trees() is not None and len(asked) == 1


def test_the_calls_keep_one_client(tunnelled: ds.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PENSTOCK_DATA_RSYNC", "PENSTOCK_DATA_TOKEN", "PENSTOCK_DATA_TOKEN_FILE", "POD_NAMESPACE", "PENSTOCK_COMMAND"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PENSTOCK_DATA_URL", tunnelled.url)
    monkeypatch.setenv("PENSTOCK_DATA_TRANSPORT", "rsync")
    ds.put("svc/x", data=b"x")
    assert data_store_cmds.kept
    first = data_store_cmds.kept.client
    assert ds.get("svc/x") == b"x" and data_store_cmds.kept.client is first
    with data_store_cmds.shared_client(None) as used:
        assert used is first
        ds.put("svc/x", data=b"other", namespace="other")
        assert data_store_cmds.kept.client.namespace == "other"
        assert used.get("svc/x") == b"x"  # goes on until it is not used any more
    with pytest.raises(ValueError, match="closed"):
        first.ls()
    assert ds.get("svc/x", namespace="other") == b"other"
    data_store_cmds.close()
    assert data_store_cmds.kept is None and ds.get("svc/x") == b"x"
    data_store_cmds.close()


def test_a_process_ends_with_its_client(tunnelled: ds.Server) -> None:
    code = """
import os
from penstock import data_store as ds
ds.put('svc/fork', data=b'parent')
child = os.fork()
if child == 0:
    assert ds.data_store_cmds.kept is None
    ds.put('svc/child', data=ds.get('svc/fork'))
    ds.data_store_cmds.close()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(ds.get('svc/fork'), ds.get('svc/child'))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=clean_environment(
        PENSTOCK_DATA_URL=tunnelled.url, PENSTOCK_DATA_TRANSPORT="rsync", PYTHONPATH=str(BUILD / "python")))
    assert done.returncode == 0 and done.stdout.strip() == "b'parent' b'parent'" and not done.stderr, done
