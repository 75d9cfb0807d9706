# SPDX-License-Identifier: Apache-2.0
"""Pods: processes that have an address and an agent of their own, and share a data store."""
from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

from data_store import DataStore
from support import BUILD, clean_environment, wait_until

from penstock import data_store as ds

FRONT = "import os, sys\nfrom penstock import data_store as ds\n"
HOLD = "print('ready', flush=True)\nsys.stdin.read()\n"


class Pod:
    """A pod on an address of the loopback's: its processes, and the agent that they start."""

    def __init__(self, number: int, folder: pathlib.Path, store: DataStore) -> None:
        self.ip = f"127.0.0.{number}"
        self.folder = folder / f"pod{number}"
        self.folder.mkdir()
        self.socket = self.folder / "agent.sock"
        self.environment = clean_environment(
            POD_IP=self.ip, POD_NAME=f"pod-{number}", PENSTOCK_AGENT_SOCKET=str(self.socket), PENSTOCK_PENSTOCKD=str(BUILD / "penstockd"),
            PENSTOCK_DATA_URL=f"http://127.0.0.1:{store.http_port}", PENSTOCK_DATA_RSYNC=f"127.0.0.1:{store.rsync_port}",
            PYTHONPATH=str(BUILD / "python"))

    def start(self, code: str) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", FRONT + code], cwd=self.folder, env=self.environment, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, code: str) -> str:
        process = self.start(code)
        out, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
        return out.strip()

    def hold(self, code: str) -> subprocess.Popen[str]:
        """A process that has run the code, and lives until its standard input ends."""
        process = self.start(code + HOLD)
        assert process.stdout
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        return process

    @property
    def agent(self) -> ds.PodDataServerClient:
        return ds.PodDataServerClient(str(self.socket))

    def signal_agent(self, number: int) -> None:
        try:
            os.kill(int(self.agent.ping()["pid"]), number)
        except ds.AgentError:  # it was never started
            return
        if number != signal.SIGSTOP:
            wait_until("the agent has ended", lambda: not ds.pod_data_server.is_server_running(str(self.socket)))


def store_of_pods(folder: pathlib.Path) -> DataStore:
    """A data store that pods of the loopback reach."""
    return DataStore(folder / "data", "--store-address", "127.0.0.1")


@contextlib.contextmanager
def some_pods(numbers: range, folder: pathlib.Path, store: DataStore) -> Iterator[list[Pod]]:
    """Pods with these numbers of 20 that a test may have. Their agents end with the block."""
    # Workers of pytest take other addresses: the agents' port is the same everywhere.
    first = 10 + 20 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    made = [Pod(first + number, folder, store) for number in numbers]
    yield made
    for pod in made:
        pod.signal_agent(signal.SIGTERM)
