# SPDX-License-Identifier: Apache-2.0
"""Processes of a figure or a soak: started, waited for, and stopped by pid when it ends."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

START_S_MAX = 20.0
STOP_S_MAX = 10.0
COMMAND_S_MAX = 60.0


class BenchError(Exception):
    """A figure that could not be taken, or a soak that could not run; its text says why."""


def rss_bytes(pid: int, field: str = "VmRSS") -> int:
    """One of the Rss fields of /proc/PID/status, in bytes."""
    match = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    if not match:
        raise BenchError(f"no {field} for pid {pid}")
    return int(match[1]) * 1024


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used so far, all threads, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Stage:
    """What one figure or soak has running, and its temporary folder. Leaving the context stops it all.

    Parameters
    ----------
    build : Path
        The build folder, searched for the programs that are ours.
    """

    def __init__(self, build: Path) -> None:
        self.build = build
        self._stack = ExitStack()
        self._serial = 0

    def __enter__(self) -> "Stage":
        self.folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="penstock-bench-")))
        return self

    def __exit__(self, *unused: object) -> None:
        self._stack.close()

    def keep(self, context: AbstractContextManager[Any]) -> Any:
        """Enter a context that lasts as long as the stage; what it gives."""
        return self._stack.enter_context(context)

    def sub(self) -> "Stage":
        """A stage for one run within a figure: to be entered, and left before the figure ends."""
        return Stage(self.build)

    def program(self, name: str) -> str:
        """Path of a program below the build folder; raises BenchError when it is not built."""
        for path in sorted(self.build.rglob(name)):
            if path.is_file() and os.access(path, os.X_OK):
                return str(path)
        raise BenchError(f"{name} is not built below {self.build}")

    def start(self, command: Sequence[str], env: dict[str, str] | None = None,
              hold_stdin: bool = False, kill: bool = False) -> "Process":
        """Start a server; its output goes to a log in the folder.

        With `hold_stdin` its standard input stays open until it is stopped; with `kill` it is stopped by force.
        """
        self._serial += 1
        log = self.folder / f"{self._serial}-{Path(command[0]).name}.log"
        with log.open("wb") as out:
            popen = subprocess.Popen(
                command, stdin=subprocess.PIPE if hold_stdin else subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, env=os.environ | (env or {}))
        process = Process(popen, log)
        self._stack.callback(process.kill if kill else process.stop)
        return process


class Process:
    """A running server and its log."""

    def __init__(self, popen: subprocess.Popen[bytes], log: Path) -> None:
        self.popen = popen
        self.log = log

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.popen.pid

    def wait_for(self, ready: Callable[[], Any]) -> Any:
        """Poll `ready` until it is true and return what it gave.

        Raises BenchError when the process ends before that, or is too slow.
        """
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            if value := ready():
                return value
            if self.popen.poll() is not None:
                break
            time.sleep(0.02)
        said = self.text()[-500:].strip()
        raise BenchError(f"{self.log.name}: not ready (exit {self.popen.poll()}): {said}")

    def wait_text(self, pattern: str) -> re.Match[str]:
        """Wait for a line of the log that matches `pattern`."""
        return self.wait_for(lambda: re.search(pattern, self.text(), re.MULTILINE))

    def wait_port(self, port: int) -> None:
        """Wait until something listens on a TCP port of this host (without connecting to it)."""
        self.wait_for(lambda: listening(port))

    def text(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace")

    def said(self) -> str:
        """What its log says of its end."""
        return said(self.text())

    def rss_bytes(self, field: str = "VmRSS") -> int:
        """One of the Rss fields of /proc/PID/status, in bytes."""
        return rss_bytes(self.pid, field)

    def files(self) -> int:
        """Number of its open files."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu_s(self) -> float:
        """Seconds of CPU used so far, all threads, user and system."""
        return cpu_s(self.pid)

    def kill(self) -> None:
        """End the process by force."""
        self.popen.kill()
        self.popen.wait()

    def stop(self) -> None:
        """End the process by its pid, by force when need be; harmless when it has ended."""
        if self.popen.stdin:
            self.popen.stdin.close()
        self.popen.terminate()
        self.popen.send_signal(signal.SIGCONT)  # one that is stopped would not hear of it
        try:
            self.popen.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()


def said(text: str) -> str:
    """The end of what a process said; where it tells of its death, from there on."""
    death = re.search(r"^.*(ERROR: |[Aa]ssertion |Fatal: |Caught signal).*$", text, re.MULTILINE)
    return text[death.start():][:2000] if death else text[-300:]


def listening(port: int) -> bool:
    """Whether a TCP socket of this host listens on `port`, from the kernel's table."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                return True
    return False


def run(command: Sequence[str], env: dict[str, str] | None = None) -> str:
    """Standard output of a command that must succeed within COMMAND_S_MAX."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=COMMAND_S_MAX, env=os.environ | (env or {}), check=False)
    except subprocess.TimeoutExpired:
        raise BenchError(f"{' '.join(map(str, command))}: took over {COMMAND_S_MAX:.0f} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-500:]
        raise BenchError(f"{' '.join(map(str, command))}: exit {done.returncode}: {said}")
    return done.stdout


def closing(text: str) -> tuple[list[str], dict[str, Any] | None]:
    """The lines that a program printed, and its closing JSON object; None: it printed none.

    UCX may log after that, while the program closes its stores.
    """
    told = text.strip().splitlines()
    for number in range(len(told) - 1, -1, -1):
        try:
            counts = json.loads(told[number])
        except json.JSONDecodeError:
            continue
        if isinstance(counts, dict):
            return told[:number] + told[number + 1:], counts
    return told, None


def run_json(command: Sequence[str], env: dict[str, str] | None = None) -> dict[str, Any]:
    """The JSON object on the last line that a command prints; a miss in it is an error."""
    result = closing(run(command, env))[1]
    if result is None:
        raise BenchError(f"{' '.join(command)}: printed no JSON")
    if result.get("misses", 0):
        raise BenchError(f"{' '.join(command)}: missed {result['misses']} stored keys")
    return result
