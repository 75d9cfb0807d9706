#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Versions of UCX against each other, for `make test-ucx`: every pair as node and client, kills, and the suites.

  matrix.py [--only PART[,PART...]] [--versions A,B,...] [--ms N]

matrix: each pair over TCP and shared memory moves values of 64 B, 64 KiB and 2 MiB, in puts, gets, batches, ranges and views,
and gets the right bytes back, or is refused in words that name both versions: a table with rates (MB/s, of 64 B in thousands a
second). kills: clients and nodes are killed in the middle of transfers, with the newest version and across versions. suites: the
tests of the transport and the end-to-end suite with each of some versions on both sides.

The installed UCX is the first version, the others are PyPI's libucx-cu12 (without verbs), which are fetched once into
build-ucx/VERSION. Ends with "N passed, N failed".
"""
from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Iterator, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import support  # noqa: E402

FOLDER = ROOT / "build-ucx"
INSTALLED = "installed"
FETCHED = ["1.14.1.post2", "1.15.0.post2", "1.16.0.post2", "1.17.0.post1", "1.18.1", "1.19.0", "1.20.1", "1.21.0", "1.22.0"]
SUITES_OF = ("1.15", "1.17", "1.19", "1.22")
SUITES = {"net": [], "net_close": [], "net_process": [], "ucx_address": [], "boot_ucx": []}
STORES = {"store_tcp": ["tcp", "1", "2M"], "store_unix": ["unix", "1", "2M"]}
LANES = {"tcp": "tcp", "shm": "posix"}
SIZES = ("64B", "64KiB", "2MiB")
PAIR_S_MAX = 90
REFUSED_S_MAX = 5
SUITE_S_MAX = 900
KILLS, NODE_KILLS = 10, 3
SHORT_NUMBERS = (1, 22)  # of namespaces; see src/net/ucx/version.h
INITIAL = {"pid": 4026531836, "ipc": 4026531839}


class Version(NamedTuple):
    name: str  # as UCX says it: 1.22.0
    library: str  # folder for LD_LIBRARY_PATH; "": the installed one

    @property
    def numbers(self) -> tuple[int, int]:
        major, minor = self.name.split(".")[:2]
        return int(major), int(minor)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": self.library} if self.library else {}


class Count:
    passed = failed = 0

    def add(self, well: bool, line: str, details: str = "") -> None:
        self.passed += well
        self.failed += not well
        print(("ok     " if well else "FAILED ") + line, flush=True)
        for detail in details.splitlines()[-15:] if not well else []:
            print("         " + detail, flush=True)


def fetch(release: str) -> pathlib.Path:
    """The folder of a release's libraries, from PyPI the first time."""
    folder = FOLDER / release
    if not (folder / "whole").exists():
        python = FOLDER / "venv/bin/python"
        if not python.exists():
            subprocess.run(["/usr/bin/python3", "-m", "venv", FOLDER / "venv"], check=True)
        print(f"fetching libucx-cu12 {release}", flush=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:",
                        "--target", folder, f"libucx-cu12=={release}"], check=True)
        (folder / "whole").touch()
    return folder / "libucx/lib"


def said_version(library: str) -> str:
    """What the UCX there calls itself."""
    code = "import ctypes; f = ctypes.CDLL('libucp.so.0').ucp_get_version_string; f.restype = ctypes.c_char_p; print(f().decode())"
    return subprocess.run([sys.executable, "-c", code], env=dict(os.environ, LD_LIBRARY_PATH=library), check=True, text=True,
                          capture_output=True).stdout.strip()


def versions_of(names: list[str]) -> list[Version]:
    found = []
    for release in [INSTALLED, *FETCHED]:
        if not names or any(release.startswith(name) or (release == INSTALLED and name == "1.13") for name in names):
            library = "" if release == INSTALLED else str(fetch(release))
            found.append(Version(said_version(library), library))
    return found


@contextlib.contextmanager
def node_of(version: Version, folder: pathlib.Path) -> Iterator[support.Node]:
    node = support.start_node("--listen", "127.0.0.1:0", "--unix", str(folder / "s"), "--dram", "512M", "--shards", "1",
                              listeners=2, environment=version.environment)
    with node:
        assert f"UCX {version.name}" in node.log(), node.log()
        yield node


def url_of(node: support.Node, folder: pathlib.Path, lane: str) -> str:
    return f"{node.tcp}?lane=tcp" if lane == "tcp" else f"node+unix://{folder}/s"


def pair(url: str, client: Version, ms: int) -> tuple[int, str, float]:
    """Runs the client's part. Returns its exit status, output, and seconds."""
    begun = time.monotonic()
    try:
        done = subprocess.run([support.BUILD / "tests/e2e/ucx_pair", url, str(ms)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=PAIR_S_MAX,
                              env=support.clean_environment(**client.environment))
    except subprocess.TimeoutExpired as late:
        return -1, f"not within {PAIR_S_MAX} s: {late.stdout!r}", PAIR_S_MAX
    return done.returncode, done.stdout, time.monotonic() - begun


# ---- matrix ----


def initial_namespaces() -> bool:
    return all(os.stat(f"/proc/self/ns/{kind}").st_ino == number for kind, number in INITIAL.items())


def to_be_refused(node: Version, client: Version, lane: str) -> bool:
    across = (node.numbers < SHORT_NUMBERS) != (client.numbers < SHORT_NUMBERS)
    return across and (lane == "tcp" or not initial_namespaces())


def judge(node: Version, client: Version, lane: str, status: int, output: str, seconds: float) -> tuple[bool, str]:
    """Whether that is as it should be, and the table's words for it."""
    if to_be_refused(node, client, lane):
        words = f"the node has UCX {node.name}, which does not go with this client's {client.name}"
        return status == 1 and words in output and seconds < REFUSED_S_MAX, "refused by name"
    rates = dict(re.findall(r"^(\w+) (\d+ \d+)$", output, re.MULTILINE))
    right = status == 0 and set(rates) == set(SIZES) and f"lane {LANES[lane]}\n" in output
    quiet = not re.search(r"UCX +(WARN|ERROR|FATAL)", output)
    columns = "  ".join(f"{size} {'%6s %6s' % tuple(rates[size].split())}" for size in SIZES if size in rates)
    return right and quiet, columns or "nothing came through"


def matrix(versions: list[Version], count: Count, ms: int) -> None:
    speeds: dict[str, dict[str, list[float]]] = {lane: {} for lane in LANES}
    print("                                  64 B: k/s put, get     64 KiB: MB/s      2 MiB: MB/s")
    for node_version in versions:
        with tempfile.TemporaryDirectory() as name, node_of(node_version, pathlib.Path(name)) as node:
            for client in versions:
                for lane in LANES:
                    status, output, seconds = pair(url_of(node, pathlib.Path(name), lane), client, ms)
                    well, words = judge(node_version, client, lane, status, output, seconds)
                    count.add(well, f"node {node_version.name}  client {client.name}  {lane}  {words}", output)
                    for size, get in re.findall(r"^(\w+) \d+ (\d+)$", output, re.MULTILINE):
                        speeds[lane].setdefault(size, []).append(float(get))
            node.stop()
            # An error alone may be that of a client's connection, on a busy machine.
            count.add(not re.search(r"UCX +(WARN|FATAL)", node.log()), f"node {node_version.name} is quiet", node.log())
    for lane, sizes in speeds.items():
        for size, gets in sizes.items():
            print(f"gets of {size} over {lane}: median {statistics.median(gets):.0f}, slowest pair {min(gets):.0f}, "
                  f"fastest {max(gets):.0f}")


# ---- kills ----


def bench(operation: str, *more: str) -> list[str]:
    return ["bench", "--op", operation, "--size", "2097152", "--keys", "32", "--batch", "8", "--inflight", "2",
            "--timeout", "3000", *more]


def busy(url: str, version: Version, operation: str, seconds: int) -> subprocess.Popen[bytes]:
    """A client that moves large values so long, or tries to."""
    filled = support.penstock("--url", url, *bench("put", "--fill"), environment=version.environment)
    assert filled.returncode == 0, filled.stderr
    return subprocess.Popen([support.BUILD / "penstock", "--url", url, *bench(operation, "--seconds", str(seconds))],
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            env=support.clean_environment(**version.environment))


def moved(url: str, version: Version) -> int:
    """Requests that the node has answered, as its figures say."""
    done = support.penstock("--url", url, "--json", "stat", environment=version.environment)
    assert done.returncode == 0, done.stderr
    found = re.search(rb'"puts": ?(\d+)', done.stdout), re.search(rb'"gets": ?(\d+)', done.stdout)
    return sum(int(match[1]) for match in found if match)


def kill_clients(node_version: Version, client: Version, lane: str, count: Count) -> None:
    with tempfile.TemporaryDirectory() as name, node_of(node_version, pathlib.Path(name)) as node:
        url = url_of(node, pathlib.Path(name), lane)
        for number in range(KILLS):
            process = busy(url, client, "put" if number % 2 else "get", 60)
            before = moved(url, client)
            support.wait_until("the client moves values", lambda: moved(url, client) > before + 40)
            assert process.poll() is None
            process.kill()
            process.wait()
        status, output, _ = pair(url, client, 1)
        alive = node.process.poll() is None
        count.add(alive and status == 0, f"{KILLS} kills of a client {client.name} of node {node_version.name} over {lane}",
                  output + node.log())


def kill_nodes(node_version: Version, client: Version, lane: str, count: Count) -> None:
    ends = []
    for _ in range(NODE_KILLS):
        with tempfile.TemporaryDirectory() as name, node_of(node_version, pathlib.Path(name)) as node:
            url = url_of(node, pathlib.Path(name), lane)
            process = busy(url, client, "get", 15)
            before = moved(url, client)
            support.wait_until("the client moves values", lambda: moved(url, client) > before + 40)
            assert process.poll() is None
            node.end(support.signal.SIGKILL)
            _, errors = process.communicate(timeout=PAIR_S_MAX)
            ends.append((process.returncode, errors.decode(errors="replace")))
    well = all(code > 0 for code, _ in ends)  # an error, not a signal
    count.add(well, f"{len(ends)} kills of node {node_version.name} under a client {client.name} over {lane}", repr(ends))


def kills(versions: list[Version], count: Count) -> None:
    newest, oldest, before = versions[-1], versions[0], versions[max(len(versions) - 2, 0)]
    for node_version, client in sorted({(newest, newest), (oldest, before), (before, oldest)}):
        for lane in LANES:
            kill_clients(node_version, client, lane, count)
            kill_nodes(node_version, client, lane, count)


# ---- suites ----


def suite(version: Version, name: str, command: list[str | pathlib.Path], count: Count) -> None:
    environment = support.clean_environment(PENSTOCK_BUILD=str(support.BUILD), CMOCKA_MESSAGE_OUTPUT="TAP", UCX_LOG_FILE="stderr",
                                            **version.environment)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", env=environment,
                              timeout=SUITE_S_MAX)
        status, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        status, output = -1, (late.stdout or b"").decode(errors="replace")
    cases = re.findall(r"^(ok|not ok) \d+ - (\S+)", output, re.MULTILINE)
    for outcome, case in cases:
        if outcome != "ok":
            count.add(False, f"{name} with {version.name}: {case}", output)
        else:
            count.passed += 1
    print(f"{name} with {version.name}: {len(cases)} cases, exit status {status}", flush=True)
    if not cases or (status != 0 and all(outcome == "ok" for outcome, _ in cases)):
        count.add(False, f"{name} with {version.name} did not end well: exit status {status}", output)


def suites(versions: list[Version], count: Count) -> None:
    for version in versions:
        if not version.name.startswith(SUITES_OF):
            continue
        for name, arguments in SUITES.items():
            suite(version, name, [support.BUILD / "tests/unit" / f"test_{name}", *arguments], count)
        for name, arguments in STORES.items():
            suite(version, name, [support.BUILD / "tests/e2e/test_store", *arguments], count)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="matrix,kills,suites")
    parser.add_argument("--versions", default="", help="of these alone")
    parser.add_argument("--ms", type=int, default=100, help="how long each rate is measured")
    options = parser.parse_args()
    versions = versions_of([name for name in options.versions.split(",") if name])
    parts = options.only.split(",")
    count = Count()
    if "matrix" in parts:
        matrix(versions, count, options.ms)
    if "kills" in parts:
        kills(versions, count)
    if "suites" in parts:
        suites(versions, count)
    print(f"\n{count.passed} passed, {count.failed} failed", flush=True)
    return 1 if count.failed or not count.passed else 0


if __name__ == "__main__":
    sys.exit(main())
