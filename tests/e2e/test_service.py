# SPDX-License-Identifier: Apache-2.0
"""What is installed: the manuals, and the systemd unit, whose restrictions the node must be able to live with."""
from __future__ import annotations

import ctypes
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest
import support

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNIT = support.BUILD / "src" / "daemon" / "penstockd.service"
PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1
EXPOSURE_MAX = 2.0


def unit_values(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def said_by(*command: str | pathlib.Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=support.WAIT_S).stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The tree that `meson install` makes."""
    folder = tmp_path_factory.mktemp("installed")
    said_by("meson", "install", "-C", support.BUILD, "--no-rebuild", "--destdir", folder)
    return folder


@pytest.mark.parametrize("tree", ["build folder", "installed"])
def test_programs_find_the_header(installed: pathlib.Path, tmp_path: pathlib.Path, tree: str) -> None:
    """The program of README.md, compiled with what pkg-config says."""
    if not shutil.which("pkg-config") or not shutil.which("cc"):
        pytest.skip("no pkg-config or no compiler here")
    program = re.search(r"^```c\n(#include <penstock/.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert program
    (tmp_path / "hello.c").write_text(program[1])
    environment = {**os.environ, "PKG_CONFIG_LIBDIR": str(support.BUILD / "meson-uninstalled")}
    if tree == "installed":
        environment |= {"PKG_CONFIG_LIBDIR": str(next(installed.glob("**/pkgconfig"))), "PKG_CONFIG_SYSROOT_DIR": str(installed)}
    flags = shlex.split(subprocess.run(["pkg-config", "--cflags", "penstock"], env=environment, check=True,
                                       capture_output=True, text=True, timeout=support.WAIT_S).stdout)
    said_by("cc", "-Wall", "-Werror", "-c", tmp_path / "hello.c", "-o", tmp_path / "hello.o", *flags)


def test_every_function_has_its_page(installed: pathlib.Path) -> None:
    names = re.findall(r" T (penstock_\w+)", said_by("nm", "-D", "--defined-only", support.BUILD / "libpenstock.so"))
    assert len(names) > 30
    manuals = next(installed.glob("**/man"))
    for page in [f"man3/{name}.3" for name in names] + ["man1/penstock.1", "man8/penstockd.8", "man7/penstock.h.7"]:
        assert (manuals / page).resolve().is_file(), page
    if shutil.which("man") and names:
        assert said_by("man", "-M", manuals, "-w", "penstock_get_range").strip()


def test_missing_words_are_found(tmp_path: pathlib.Path) -> None:
    """ci/manual sees a function, a command and an option that no page names, and a broken page."""
    pages = tmp_path / "man"
    shutil.copytree(ROOT / "man", pages)
    for path, word, other in (("penstock_pin.3", ".Nm penstock_unpin\n", ""), ("penstock.1", ".Ss ping", ".Ss pong"),
                              ("penstockd.8", "-watermark", "-highmark"), ("penstock_get.3", ".Fa buf ,", ".Fx buf [")):
        text = (pages / path).read_text()
        assert word in text
        (pages / path).write_text(text.replace(word, other))
    done = subprocess.run([ROOT / "ci" / "manual", "--pages", pages, support.BUILD, *os.listdir(pages)],
                          capture_output=True, text=True, timeout=support.WAIT_S)
    if done.returncode == 77:
        pytest.skip(done.stdout)
    assert done.returncode == 1
    for fault in ("penstock_unpin()", "'ping'", "--watermark"):
        assert fault in done.stdout


def test_unit_is_installed(installed: pathlib.Path) -> None:
    for unit in installed.glob("**/penstockd*.service"):
        program = re.search(r"^ExecStart=(\S+)", unit.read_text(), re.MULTILINE)
        assert program and (installed / program[1].lstrip("/")).is_file()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
def test_exposure() -> None:
    said = said_by("systemd-analyze", "security", "--offline=true", UNIT)
    level = re.search(r"exposure level for penstockd\.service: ([\d.]+)", said)
    assert level and float(level[1]) <= EXPOSURE_MAX, said


def system_calls(word: str) -> set[str]:
    """A system call, or the calls of a group such as @system-service."""
    if not word.startswith("@"):
        return {word}
    lines = [line.strip() for line in said_by("systemd-analyze", "syscall-filter", word).splitlines()[1:]]
    return set().union(*(system_calls(line) for line in lines if line and not line.startswith("#")))


@pytest.mark.skipif(not (shutil.which("systemd-analyze") and shutil.which("strace")), reason="no systemd-analyze or strace")
def test_system_calls(tmp_path: pathlib.Path) -> None:
    """Whatever a node asks of the kernel from its start to its end, the unit allows."""
    allowed = system_calls("@default") | {"execve"}
    for line in unit_values("SystemCallFilter"):
        calls = set().union(*map(system_calls, line.lstrip("~").split()))
        allowed = allowed - calls if line.startswith("~") else allowed | calls

    trace = tmp_path / "trace"
    path = tmp_path / "socket"
    command = ["strace", "-f", "-qq", "-o", trace, support.BUILD / "penstockd", "--dram", "64M", "--unix", path]
    node = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            env=support.clean_environment(ASAN_OPTIONS="detect_leaks=0"))
    try:
        support.wait_until("the node answers", lambda: node.poll() is not None or support.penstock(
            "--url", f"node+unix://{path}", "ping").returncode == 0)
        value = os.urandom(3_000_000)
        for lane in ("", "?lane=tcp"):
            url = f"node+unix://{path}{lane}"
            assert support.penstock("--url", url, "put", "key", stdin=value).returncode == 0
            assert support.penstock("--url", url, "get", "key").stdout == value
        child = pathlib.Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split()[0]
        os.kill(int(child), 15)
        assert node.wait(support.WAIT_S) == 0
    finally:
        node.kill()
        node.wait()
    used = set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(errors="replace"), re.MULTILINE))
    assert {"sendmsg", "mmap", "bind"} <= used
    assert used <= allowed, f"not in the unit's SystemCallFilter: {sorted(used - allowed)}"


def refuse_executable_memory() -> None:
    """What MemoryDenyWriteExecute= does, through the kernel's own switch."""
    if ctypes.CDLL(None).prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0):
        os._exit(77)


def test_no_executable_memory(tmp_path: pathlib.Path) -> None:
    variables = dict(line.split("=", 1) for line in unit_values("Environment") if line.startswith("UCX_"))
    path = tmp_path / "socket"
    node = subprocess.Popen([support.BUILD / "penstockd", "--dram", "64M", "--unix", path], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            preexec_fn=refuse_executable_memory, env=support.clean_environment(**variables))
    try:
        support.wait_until("the node answers", lambda: node.poll() is not None or support.penstock(
            "--url", f"node+unix://{path}", "ping").returncode == 0)
        if node.poll() == 77:
            pytest.skip("this kernel has no PR_SET_MDWE")
        assert support.penstock("--url", f"node+unix://{path}", "put", "key", stdin=b"v" * 100_000).returncode == 0
    finally:
        node.terminate()
        log = node.communicate(timeout=support.WAIT_S)[1]
    assert node.returncode == 0, log
    assert "UCX  ERROR" not in log and "UCX  WARN" not in log
