# SPDX-License-Identifier: Apache-2.0
"""The previous version of the wire, built from its last commit."""
from __future__ import annotations

import fcntl
import os
import pathlib
import shutil
import subprocess

import pytest
import support

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMIT = [line for line in (ROOT / "tests/e2e/previous.txt").read_text().splitlines() if not line.startswith("#")][0]
PREVIOUS, VERSION = 7, 8  # of the wire: that commit's, and this tree's
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
        run("ninja", "-C", build, "penstockd", "penstock")
    return build
