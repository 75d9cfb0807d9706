# SPDX-License-Identifier: Apache-2.0
"""etcd on loopback: one server, or three that agree, each a process with a folder and ports of its own."""
from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import shutil
import signal
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from typing import Any, Iterator

import pytest
import support
from ports import free_port
from support import wait_until

ETCD, ETCDCTL = shutil.which("etcd"), shutil.which("etcdctl")
NO_ETCD = "etcd is not installed: ci/install full"
needs_etcd = pytest.mark.skipif(not ETCD, reason=NO_ETCD)  # of tests whose etcd another program starts
USER, PASSWORD = "root", "opens"
# A slow machine is to change no leader by itself.
TIMES = ("--heartbeat-interval=100", "--election-timeout=1000")


class Server:
    """One of an etcd's servers."""

    def __init__(self, name: str, folder: pathlib.Path, scheme: str) -> None:
        self.name, self.folder, self.scheme = name, folder, scheme
        self.port, self.peer_port = free_port(), free_port()
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self.peer_url = f"http://127.0.0.1:{self.peer_port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.trust = ssl.create_default_context()

    def start(self, cluster: str, *more: str) -> None:
        if not ETCD:
            pytest.skip(NO_ETCD)
        with open(self.folder / f"{self.name}.log", "ab") as log:
            self.process = subprocess.Popen(
                [ETCD, f"--name={self.name}", f"--data-dir={self.folder / self.name}", f"--listen-client-urls={self.url}",
                 f"--advertise-client-urls={self.url}", f"--listen-peer-urls={self.peer_url}",
                 f"--initial-advertise-peer-urls={self.peer_url}", f"--initial-cluster={cluster}", *TIMES, *more],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=support.clean_environment())

    def send(self, what: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(what)

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def ask(self, path: str, token: str = "", **question: Any) -> dict[str, Any]:
        """What it answers, within seconds; an error of etcd's is an answer, too."""
        request = urllib.request.Request(f"{self.url}/v3/{path}", json.dumps(question).encode(),
                                         {"Authorization": token} if token else {})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}),
                                             urllib.request.HTTPSHandler(context=self.trust))
        try:
            with opener.open(request, timeout=5) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as refused:
            return json.loads(refused.read())


class Etcd:
    """All of its servers."""

    def __init__(self, folder: pathlib.Path, count: int, *more: str, scheme: str = "http") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.more = folder, more
        self.servers = [Server(f"e{i}", folder, scheme) for i in range(count)]
        self.urls = ",".join(server.url for server in self.servers)
        self._cluster = ",".join(f"{server.name}={server.peer_url}" for server in self.servers)

    def start(self, *which: Server) -> None:
        for server in which or self.servers:
            if not server.process:
                server.start(self._cluster, *self.more)

    def await_leader(self) -> None:
        wait_until("etcd has a leader", lambda: self.leader() is not None)

    def leader(self) -> Server | None:
        """The server that the others follow; None: there is none that answers."""
        for server in self.servers:
            with contextlib.suppress(OSError, ValueError):
                said = server.ask("maintenance/status")
                if said.get("leader") == said["header"]["member_id"]:
                    return server
        return None

    def ask(self, path: str, token: str = "", **question: Any) -> dict[str, Any]:
        return self.servers[0].ask(path, token, **question)

    def get(self, key: str, token: str = "") -> dict[str, Any] | None:
        """The entry of a key, its value decoded; None: there is none."""
        kvs = self.ask("kv/range", token, key=base64.b64encode(key.encode()).decode()).get("kvs")
        return kvs[0] | {"value": base64.b64decode(kvs[0].get("value", ""))} if kvs else None

    def put(self, key: str, value: bytes) -> dict[str, Any]:
        return self.ask("kv/put", key=base64.b64encode(key.encode()).decode(), value=base64.b64encode(value).decode())

    def delete(self, key: str) -> dict[str, Any]:
        return self.ask("kv/deleterange", key=base64.b64encode(key.encode()).decode())

    def want_password(self) -> str:
        """From now on it answers those alone who have a token; one of these."""
        self.ask("auth/user/add", name=USER, password=PASSWORD)
        self.ask("auth/role/add", name="root")
        self.ask("auth/user/grant", user=USER, role="root")
        self.ask("auth/enable")
        return self.ask("auth/authenticate", name=USER, password=PASSWORD)["token"]

    def kill(self) -> None:
        for server in self.servers:
            server.kill()


@contextlib.contextmanager
def etcd(count: int = 1, *more: str) -> Iterator[Etcd]:
    """In memory, as others may keep the disk busy: it syncs each change."""
    with tempfile.TemporaryDirectory(prefix="penstock-etcd-", dir=support.SHM) as folder:
        e = Etcd(pathlib.Path(folder), count, *more)
        try:
            e.start()
            e.await_leader()
            yield e
        finally:
            e.kill()
