# SPDX-License-Identifier: Apache-2.0
"""What a client of a data store keeps between calls, and how it lets go."""
from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from data_store import DataStore
from support import BUILD, clean_environment, wait_until

from penstock import data_store as ds
from penstock.data_store import data_store_cmds

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
