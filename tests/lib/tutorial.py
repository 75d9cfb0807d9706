# SPDX-License-Identifier: Apache-2.0
"""Runs the code blocks of a page: `console` blocks in one shell, `pycon` blocks in one interpreter, in their order.

In a `console` block a line behind "$ " is a command (a line behind "> " goes on with it), the others are what it prints, unless the block
is `console varies`. "..." stands for any text; spaces, fractions, and numbers of four digits and more may differ, and the folder is another one. Ports from
7100 to 7199 become free ones, and blocks of other kinds are left out.
"""
from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import threading

import support
from ports import free_port

TUTORIALS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tutorial"
BLOCK = re.compile(r"^```(console|console varies|pycon)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PORT = re.compile(r"(?<=:)71\d\d\b")
JOB_ENDED = re.compile(r"^\S*bash: line \d+: +\d+ (Killed|Terminated|Done).*\n", re.MULTILINE)
END = "\x1e"
PAGE_S = 120


def blocks(page: pathlib.Path) -> list[tuple[str, str]]:
    """Kind and text of each block that is run."""
    text = page.read_text()
    for port in sorted(set(PORT.findall(text))):
        text = re.sub(rf"(?<=:){port}\b", str(free_port()), text)
    return [(found[1], found[2]) for found in BLOCK.finditer(text)]


def commands(block: str) -> list[tuple[str, str]]:
    """Each command of a block, and what it prints."""
    found: list[tuple[str, str]] = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1] = (found[-1][0] + line[2:], "")
        else:
            assert found, f"a block begins with a command, not with {line!r}"
            found[-1] = (found[-1][0], found[-1][1] + line)
    return found


def plain(text: str) -> str:
    """The text without spaces, and without what is different each time."""
    return re.sub(r"[0-9a-f]{32}|[\d:T-]*\d\.\d+Z?|\d{4,}", "N", "".join(text.split()))


def matches(expected: str, printed: str) -> bool:
    """Whether a command printed what the page says."""
    return re.fullmatch(re.escape(plain(expected)).replace(r"\.\.\.", ".*"), plain(printed)) is not None


class Shell:
    """A bash with the build's programs in its path."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        path = f"{support.BUILD}:{pathlib.Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        environment = support.clean_environment(PATH=path, PYTHONPATH=str(support.BUILD / "python"))
        self.process = subprocess.Popen(["bash", "--norc"], cwd=folder, env=environment, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        self.watchdog = threading.Timer(PAGE_S, self.process.kill)
        self.watchdog.start()

    def run(self, command: str) -> str:
        """What the command prints."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{command}\nprintf '{END}\\n'\n")
        self.process.stdin.flush()
        printed = ""
        while not printed.endswith(END + "\n"):
            line = self.process.stdout.readline()
            assert line, f"the shell ended behind {command!r}: {printed}"
            printed += line
        return JOB_ENDED.sub("", printed[: -len(END) - 1])

    def close(self) -> None:
        """Ends the shell, and what the page has left running."""
        self.watchdog.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def run_page(page: pathlib.Path, folder: pathlib.Path) -> int:
    """Runs a page in an empty folder; the number of commands that it has."""
    found = blocks(page)
    last = max((place for place, (kind, _) in enumerate(found) if kind == "pycon"), default=-1)
    count = 0
    shell = Shell(folder)
    try:
        for place, (kind, block) in enumerate(found):
            for command, expected in commands(block) if kind.startswith("console") else ():
                printed = shell.run(command).replace(str(folder), "/tmp/tutorial")
                assert kind == "console varies" or matches(expected, printed), f"{page.name}: {command}the page says\n{expected}it printed\n{printed}"
                count += 1
            if place == last:
                session = folder / "session.txt"
                session.write_text("\n".join(text for kind, text in found if kind == "pycon"))
                count += session.read_text().count(">>> ")
                printed = shell.run(f"{shlex.quote(sys.executable)} -m doctest -o ELLIPSIS -o NORMALIZE_WHITESPACE session.txt")
                assert not printed, printed
    finally:
        shell.close()
    return count
