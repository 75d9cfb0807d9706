"""The previous version's client on this node, and this client on the previous version's node: each its own suite."""
from __future__ import annotations

import fcntl
import os
import pathlib
import re
import shutil
import subprocess

import pytest
import support

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COMMIT = [line for line in (HERE / "previous.txt").read_text().splitlines() if not line.startswith("#")][0]
SUITE = pathlib.Path("tests/e2e/test_store")
BUILD_S_MAX = 600


def run(*command: str | pathlib.Path, **options: object) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", timeout=BUILD_S_MAX, **options)
    assert done.returncode == 0, done.stdout[-8000:]


@pytest.fixture(scope="module")
def previous() -> pathlib.Path:
    """Build folder of the previous version, made once."""
    known = shutil.which("git") and subprocess.run(["git", "-C", ROOT, "cat-file", "-e", COMMIT + "^{commit}"],
                                                   capture_output=True)
    if not known or known.returncode:
        pytest.skip(f"commit {COMMIT} is not in this clone: the previous version cannot be built")
    folder = support.BUILD / "previous" / COMMIT
    source, build = folder / "source", folder / "build"
    source.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (build / "build.ninja").exists():
            archive = subprocess.run(["git", "-C", ROOT, "archive", COMMIT], capture_output=True, check=True)
            subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
            shutil.rmtree(build, ignore_errors=True)
            run("meson", "setup", build, source, "--buildtype=plain", "-Doptimization=1",
                env=dict(os.environ, CC="gcc"))
        run("ninja", "-C", build, "penstockd", SUITE)
    return build


def failures(program: pathlib.Path, node: pathlib.Path) -> set[str]:
    """Runs @program's tests against the penstockd of @node; the names of those that fail."""
    # A case that fails, as some have to, leaves its memory behind.
    sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    environment = support.clean_environment(PENSTOCK_BUILD=str(node), CMOCKA_MESSAGE_OUTPUT="TAP", ASAN_OPTIONS=sanitizer,
                                            **({"TEST_WITHOUT_SSD": "1"} if node != support.BUILD else {}))
    done = subprocess.run([program / SUITE, "unix", "4", "64K"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=BUILD_S_MAX, env=environment)
    outcomes = re.findall(r"^(ok|not ok) \d+ - (\w+)", done.stdout, re.MULTILINE)
    failed = {name for outcome, name in outcomes if outcome == "not ok"}
    assert len(outcomes) > 90 and len(failed) == done.returncode, done.stdout[-8000:]
    return failed


def test_previous_client_on_this_node(previous: pathlib.Path) -> None:
    # Its packets are shorter, so this node moves its bytes over TCP, where it expects shared memory; and of a chain it
    # expects that eviction looks for the deepest, where now chains stand in order.
    assert failures(previous, support.BUILD) - {"cache_keeps_the_front_of_a_chain"} == {"lane_and_ping"}


def test_this_client_on_previous_node(previous: pathlib.Path) -> None:
    # It knows no values that end, and this client says so; and a chain that took it longer than a second is none to it.
    assert failures(support.BUILD, previous) - {"cache_keeps_the_front_of_a_chain"} == {"values_end"}


def test_tensorstore_on_previous_node(previous: pathlib.Path) -> None:
    program = ROOT / "build-tensorstore" / "driver" / "remote_dram_kvstore_test"
    if not program.exists():
        pytest.skip("the TensorStore driver is not built")
    run(program, "--gtest_filter=Node.*", env=dict(os.environ, PENSTOCK_BUILD=str(previous)))
