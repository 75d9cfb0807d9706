# SPDX-License-Identifier: Apache-2.0
"""A data store and an agent that can be killed and started again, small disks, and pods that can be killed and stopped."""

import contextlib
import http.client
import json
import os
import random
import select
import signal
import socket
import sqlite3
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ports import free_port
from procs import BenchError, Stage, listening

ASK_S_MAX = 30.0
CRASHES = tuple(-number for number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE))


class Store:
    """penstockd --role store below a folder; its ports stay when it is started again."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self._stage, self._folder = stage, folder
        self.files = folder / "files" / "default"
        self._ports = {"HTTP": 0, "rsync": 0, "trees": 0}
        self.start()

    def start(self) -> None:
        """On the same folder and ports; raises BenchError when it is not ready in time."""
        http_port, rsync, trees = self._ports.values()
        self.process = self._stage.start([
            self._stage.program("penstockd"), "--role=store", f"--data={self._folder}", f"--http=127.0.0.1:{http_port}",
            f"--rsync-port={rsync}", f"--tree-port={trees}", "--store-address=127.0.0.1"])
        self.process.wait_text("store: ready")
        for what in self._ports:
            self._ports[what] = int(self.process.wait_text(rf"store: {what} on \S+:(\d+)")[1])

    def kill(self) -> None:
        """In the middle of whatever it does; raises BenchError when it has ended by itself."""
        if self.process.popen.poll() is not None:
            raise BenchError(f"the store ended by itself: {self.process.said()}")
        self.process.kill()

    def age_sources(self, seconds: float) -> None:
        """While it is away: as if pods had published their sources so much earlier."""
        with contextlib.closing(sqlite3.connect(self._folder / "catalogue.sqlite")) as catalogue, catalogue:
            catalogue.execute("UPDATE sources SET published_ms = published_ms - ? WHERE is_store = 0", (int(seconds * 1000),))

    def kill_rsync(self) -> bool:
        """Its rsync daemon, until it has started that again; whether it had one."""
        before = children(self.process.pid)
        for daemon in before:
            os.kill(daemon, signal.SIGKILL)
        self.process.wait_for(lambda: set(children(self.process.pid)) - set(before) and listening(self.rsync_port))
        return bool(before)

    @property
    def http_port(self) -> int:
        """Of its routes."""
        return self._ports["HTTP"]

    @property
    def rsync_port(self) -> int:
        """Of its rsync daemon."""
        return self._ports["rsync"]

    @property
    def tree_port(self) -> int:
        """Of the protocol for trees."""
        return self._ports["trees"]

    def ask(self, method: str, key: str, route: str = "") -> tuple[int, Any]:
        """Status and answer of a key's route; raises OSError, HTTPException or ValueError while the store is away."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=ASK_S_MAX)
        with contextlib.closing(connection):
            connection.request(method, f"/api/v1/keys/{quote(key, safe='')}{route}")
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())


class Agent:
    """penstockd --role agent of a pod; its socket and port stay when it is started again."""

    def __init__(self, stage: Stage, ip: str) -> None:
        self._stage = stage
        self.ip, self.port, self.socket = ip, free_port(), stage.folder / "agent.sock"
        self.start()

    def start(self) -> None:
        """Raises BenchError when it is not ready in time."""
        self._process = self._stage.start([self._stage.program("penstockd"), "--role=agent", f"--agent-socket={self.socket}",
                                           f"--agent-listen={self.ip}:{self.port}", "--rsync-port=0"])
        self._process.wait_text("agent: ready")

    def kill(self) -> None:
        """With all that it serves; raises BenchError when it has ended by itself."""
        if self._process.popen.poll() is not None:
            raise BenchError(f"the agent ended by itself: {self._process.said()}")
        self._process.kill()

    def ask(self, command: str) -> Any:
        """The answer to a frame; raises OSError or struct.error while it is away."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ASK_S_MAX)
            connection.connect(str(self.socket))
            asked = json.dumps({"command": command}).encode()
            connection.sendall(struct.pack(">I", len(asked)) + asked)
            with connection.makefile("rb") as file:
                return json.loads(file.read(struct.unpack(">I", file.read(4))[0]))


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # its thread has ended
            found += map(int, path.read_text().split())
    return found


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A disk of so many bytes at a new folder."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "penstock", folder], capture_output=True,
                          text=True, check=False)
    if made.returncode:
        raise BenchError(f"no small disk: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """The disk has no byte left within the block."""
    filler = disk / "filler"
    try:
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(64 << 10))
        yield
    finally:
        filler.unlink(missing_ok=True)


@dataclass(frozen=True)
class Outcome:
    """How a pod's call ended."""

    code: int
    said: str
    late: bool  # it did not end by itself within its bound

    @property
    def crashed(self) -> bool:
        """Whether it found itself at fault; a kill is none of this."""
        return self.code in CRASHES or "Sanitizer" in self.said

    def __str__(self) -> str:
        return f"exit {self.code}: {' '.join(self.said.split())[-300:]}"


class Pods:
    """Calls, each in a process group of its own, as a pod is: any of them may be killed or stopped at any time.

    Parameters
    ----------
    bound_s : float
        When a call is late.
    """

    def __init__(self, bound_s: float) -> None:
        self._bound_s = bound_s
        self._lock = threading.Lock()  # whoever signals or reaps has it, so that no signal finds another process
        self._live: list[subprocess.Popen[bytes]] = []
        self._ended = False

    def call(self, command: Sequence[str], env: dict[str, str] | None = None) -> Outcome:
        """Run one until it ends, or is killed because it is late."""
        with tempfile.TemporaryFile() as out:
            with self._lock:
                if self._ended:
                    raise BenchError("the soak has ended")
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                           env=os.environ | (env or {}), start_new_session=True)
                self._live.append(process)
            late = not ends_within(process.pid, self._bound_s)
            with self._lock:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                self._live.remove(process)
                code = process.wait()
            out.seek(0)
            return Outcome(code, out.read().decode(errors="replace"), late)

    def signal_one(self, dice: random.Random, *numbers: signal.Signals, pause: Callable[[], None] | None = None) -> bool:
        """Signals to one of them, with a pause in between; whether there was one."""
        with self._lock:
            victim = dice.choice(self._live) if self._live else None
        for position, number in enumerate(numbers):
            if position and pause:
                pause()
            with self._lock:
                if victim not in self._live:
                    return position > 0
                os.killpg(victim.pid, number)
        return victim is not None

    def __enter__(self) -> "Pods":
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ended = True
            for process in self._live:
                os.killpg(process.pid, signal.SIGKILL)


def ends_within(pid: int, seconds: float) -> bool:
    """Whether a child that nobody has reaped ends by then."""
    fd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(fd)
