"""The previous version's client on this node, and this client on the previous version's node: each its own suite."""
from __future__ import annotations

import fcntl
import os
import pathlib
import shutil
import subprocess

import pytest
import support

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COMMIT, VERSION = [line for line in (HERE / "previous.txt").read_text().splitlines() if not line.startswith("#")][0].split()
SUITE = pathlib.Path("tests/e2e/test_store")
BUILD_S_MAX = 600


def run(*command: str | pathlib.Path, **options: object) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", timeout=BUILD_S_MAX, **options)
    assert done.returncode == 0, done.stdout[-8000:]


@pytest.fixture(scope="module")
def previous() -> pathlib.Path:
    """Build folder of the previous version, made once."""
    known = subprocess.run(["git", "-C", ROOT, "cat-file", "-e", COMMIT + "^{commit}"], capture_output=True)
    if known.returncode:
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


def suite(program: pathlib.Path, node: pathlib.Path, **environment: str) -> None:
    """Runs @program's tests against the penstockd of @node."""
    run(program / SUITE, "unix", "4", "64K", env=support.clean_environment(PENSTOCK_BUILD=str(node), **environment))


def test_previous_client_on_this_node(previous: pathlib.Path) -> None:
    suite(previous, support.BUILD)


def test_this_client_on_previous_node(previous: pathlib.Path) -> None:
    suite(support.BUILD, previous, E2E_NODE_VERSION=VERSION)


def test_tensorstore_on_previous_node(previous: pathlib.Path) -> None:
    """The driver reads in two steps what that node cannot do in one; atomic transactions it has not."""
    program = ROOT / "build-tensorstore" / "driver" / "remote_dram_kvstore_test"
    if not program.exists():
        pytest.skip("the TensorStore driver is not built")
    run(program, "--gtest_filter=Node.*-*.TransactionalWriteOps/*", env=dict(os.environ, PENSTOCK_BUILD=str(previous)))
