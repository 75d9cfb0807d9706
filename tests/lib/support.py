# SPDX-License-Identifier: Apache-2.0
"""A node of its own for a test, the commands, and what /proc tells about a process. Every wait is bounded."""
from __future__ import annotations

import atexit
import collections
import contextlib
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from typing import Callable, Iterator

import pytest

BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", "build")).resolve()
LEAVE_S = 5
NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
SHM = pathlib.Path("/dev/shm")
RACE = 66  # exit status of ThreadSanitizer
CRASHES = {-signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL, -signal.SIGSEGV, RACE}
crashed: list[str] = []  # logs of nodes that ended so by themselves


@functools.cache
def build_option(name: str) -> str | bool:
    """What the build was set up with."""
    options = json.loads((BUILD / "meson-info/intro-buildoptions.json").read_text())
    return next(option["value"] for option in options if option["name"] == name)


def watches_races() -> bool:
    """Whether the build has ThreadSanitizer."""
    return (BUILD / "meson-info").exists() and build_option("b_sanitize") == "thread"


WAIT_S = 120 if watches_races() else 30  # with it all is some ten times slower
if watches_races():
    os.environ["UCX_MEM_EVENTS"] = "n"  # its hook of madvise() runs in threads that ThreadSanitizer has let go


def counts_lines() -> bool:
    """Whether the build counts the lines that run."""
    return bool(build_option("b_coverage"))


def sanitized() -> bool:
    """Whether the build is instrumented by a sanitizer."""
    return build_option("b_sanitize") != "none"


failed = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """What a test wrote goes with it unless it failed: those of a whole run together would fill a disk of 10 GB."""
    item.stash[failed] = item.stash.get(failed, False) or call.excinfo is not None
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if call.when == "teardown" and folder and not item.stash[failed]:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """After all fixtures of a test: a node that crashed fails it, also where nobody missed that node."""
    logs = "\n".join(crashed)
    crashed.clear()
    assert not logs, f"final: {logs}"  # ci/summary: seen once is enough


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without what would change the commands' defaults, unless the tests are to run over another transport."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("PENSTOCK_", "UMBP_", "UCX_")) or name in ("PENSTOCK_TRANSPORT", "UCX_MEM_EVENTS")}
    return kept | more


def python_environment(**more: str) -> dict[str, str]:
    """The environment of a client in Python. Skips the test if its library wants a sanitizer, unless this interpreter has that."""
    if sanitized() and "LD_PRELOAD" not in os.environ:
        pytest.skip("Python has no sanitizer")
    return clean_environment(PYTHONPATH=str(BUILD / "python"), **more)


@functools.cache
def preloadable(library: pathlib.Path) -> str:
    """A name of the library for LD_PRELOAD, in which blanks and colons part one name from the next."""
    if not re.search("[ :]", str(library)):
        return str(library)
    folder = tempfile.mkdtemp(prefix="penstock-preload-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    link = pathlib.Path(folder, library.name)
    link.symlink_to(library)
    return str(link)


def wait_until(what: str, test: Callable[[], object], seconds: float = WAIT_S) -> None:
    """Polls until @test holds; fails with @what after @seconds."""
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def arena_files(pid: int) -> list[pathlib.Path]:
    """Arena files that the process made."""
    return sorted(SHM.glob(f"penstock-{pid}-*"))


def own_sockets(pid: int, folder: pathlib.Path = SHM) -> list[pathlib.Path]:
    """Unix sockets that the process named itself."""
    return sorted(folder.glob(f"penstock-*-{pid}-*.sock"))


class Node:
    """penstockd as a child process, with its log. End it with stop() or kill()."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None,
                 before_exec: Callable[[], None] | None = None, within: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*within, BUILD / "penstockd", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", env=clean_environment(**(environment or {})),
            preexec_fn=before_exec)
        self.pid = self.process.pid
        self.ended_by = 0
        self.lines: collections.deque[str] = collections.deque(maxlen=10000)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def log(self) -> str:
        return "\n".join(list(self.lines))

    def wait_for(self, text: str, count: int = 1) -> None:
        def there() -> bool:
            return self.log().count(text) >= count or self.process.poll() is not None
        wait_until(f"{text!r} in the log", there)
        self.reader.join(0 if self.process.poll() is None else WAIT_S)
        assert self.log().count(text) >= count, self.log()

    def ports(self) -> list[int]:
        return [int(port) for port in re.findall(r"listening on (?:\[[^]]*\]|[^:\s]+):(\d+),", self.log())]

    @property
    def tcp(self) -> str:
        return f"node://127.0.0.1:{self.ports()[0]}"

    def stop(self) -> None:
        """SIGTERM; the node must end by itself, with 0, and leave no arena behind."""
        self.process.send_signal(signal.SIGTERM)
        assert self.wait() == 0, self.log()
        assert "stopped" in self.log()
        assert arena_files(self.pid) == []

    def wait(self) -> int:
        code = self.process.wait(WAIT_S)
        self.reader.join(WAIT_S)
        return code

    def end(self, number: signal.Signals) -> None:
        """By a signal that it does not handle."""
        self.ended_by = number
        self.process.send_signal(number)
        assert self.wait() == -number, self.log()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        code = self.wait()
        if code in CRASHES and code != -self.ended_by:
            crashed.append(f"node {self.pid} crashed, exit status {code}:\n{self.log()}")
        for path in arena_files(self.pid):
            path.unlink(missing_ok=True)  # another node that starts clears away what killed ones left
        for path in own_sockets(self.pid):
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """None of its threads runs within the block: SIGSTOP, which takes effect in its own time, and SIGCONT."""
        def states() -> set[str]:
            stats = [stat.read_text() for stat in pathlib.Path(f"/proc/{self.pid}/task").glob("*/stat")]
            return {stat.rpartition(")")[2].split()[0] for stat in stats}

        self.process.send_signal(signal.SIGSTOP)
        try:
            wait_until("all threads stopped", lambda: states() == {"T"})
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Node:
        return self

    def leave(self) -> None:
        """Its end after a test. If the build counts lines, by itself: a killed process writes no counts."""
        if counts_lines() and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(LEAVE_S)
        self.kill()

    def __exit__(self, *_: object) -> None:
        self.leave()


def start_node(*arguments: str, listeners: int = 1, environment: dict[str, str] | None = None,
               before_exec: Callable[[], None] | None = None, within: tuple[str, ...] = ()) -> Node:
    """A node that listens."""
    node = Node(*arguments, environment=environment, before_exec=before_exec, within=within)
    try:
        node.wait_for("listening on ", listeners)
    except BaseException:
        node.kill()
        raise
    return node


def another_user(folder: pathlib.Path) -> tuple[str, ...]:
    """For start_node(within=...): `folder` becomes this user's, who may enter what leads there."""
    if os.geteuid() != 0:
        pytest.skip("only root becomes another user")
    for parent in folder.parents:
        if parent != pathlib.Path("/") and not parent.stat().st_mode & 1:
            parent.chmod(parent.stat().st_mode | 0o11)
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", folder], check=True)
    return AS_NOBODY


def faulty() -> tuple[str, ...]:
    """For start_node(within=...): a node with fault points, for PENSTOCK_FAULTS, in builds without them."""
    program = BUILD / ("penstockd" if build_option("faults") else "tests/faulty/penstockd")
    return "sh", "-c", f'shift; exec {shlex.quote(str(program))} "$@"', "sh"


def fails_to_start(*arguments: str, environment: dict[str, str] | None = None,
                   before_exec: Callable[[], None] | None = None) -> tuple[int, str]:
    """Exit code and log of a node that must not start."""
    with Node(*arguments, environment=environment, before_exec=before_exec) as node:
        code = node.wait()
        assert code != 0, node.log()
        assert "listening on" not in node.log()
        assert arena_files(node.pid) == []
        return code, node.log()


def penstock(*arguments: str | bytes, stdin: bytes = b"", environment: dict[str, str] | None = None,
             seconds: float = WAIT_S) -> subprocess.CompletedProcess[bytes]:
    """Runs the command line."""
    return subprocess.run([BUILD / "penstock", *arguments], input=stdin, capture_output=True, timeout=seconds,
                          env=clean_environment(**(environment or {})))


def bench(url: str, *arguments: str) -> subprocess.Popen[bytes]:
    """`penstock bench` in the background; its errors are kept."""
    return subprocess.Popen([BUILD / "penstock", "--url", url, "bench", *arguments], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=clean_environment())


def daemon_says(*arguments: str) -> str:
    """What penstockd prints to standard output; it must end with 0."""
    return subprocess.run([BUILD / "penstockd", *arguments], capture_output=True, text=True, timeout=WAIT_S, check=True,
                          env=clean_environment()).stdout


def file_numbers(pid: int) -> list[str]:
    """What the process's descriptors point to."""
    targets = []
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            targets.append(os.readlink(entry))
        except FileNotFoundError:
            pass
    return targets


def _printed(address: str) -> str:
    """An address of /proc/net/tcp, whose words are in the host's order."""
    words = [bytes.fromhex(address[i:i + 8])[::-1] for i in range(0, len(address), 8)]
    raw = b"".join(words)
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def listening_addresses(pid: int) -> list[str]:
    """Addresses of the TCP sockets on which the process listens."""
    inodes = {match[1] for target in file_numbers(pid) if (match := re.fullmatch(r"socket:\[(\d+)\]", target))}
    addresses = []
    for table in ("tcp", "tcp6"):
        path = pathlib.Path(f"/proc/{pid}/net/{table}")
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                addresses.append(_printed(fields[1].split(":")[0]))
    return addresses


def is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith(("127.", "::ffff:127."))


def network_address() -> str | None:
    """An address of this machine that is not loopback, if there is one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # sends nothing: only asks which address would be used
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if is_loopback(address) or address == "0.0.0.0" else address


def secret_file(path: pathlib.Path, text: str = "a secret for the tests\n", mode: int = 0o600) -> pathlib.Path:
    path.write_text(text)
    path.chmod(mode)
    return path
