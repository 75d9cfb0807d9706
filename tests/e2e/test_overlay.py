# SPDX-License-Identifier: Apache-2.0
"""The Bazel overlay of integrations/tensorstore, put into TensorStore's real tree and checked without Bazel."""
from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BAZEL = ROOT / "integrations/tensorstore/bazel"
CACHE = pathlib.Path(os.environ.get("PENSTOCK_TENSORSTORE_CACHE", ROOT / "build-tensorstore/cache"))
SOURCES = next((path.parent for path in sorted(CACHE.glob("*/ready"))), None)

pytestmark = pytest.mark.skipif(SOURCES is None, reason="ci/tensorstore has not fetched TensorStore")


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=300, check=False)


@pytest.fixture(name="tree")
def overlaid_tree(tmp_path: pathlib.Path) -> pathlib.Path:
    assert SOURCES
    tree = tmp_path / "tensorstore"
    shutil.copytree(SOURCES / "tensorstore", tree)
    done = run(BAZEL / "overlay", tree)
    assert done.returncode == 0, done
    return tree


def check(tree: pathlib.Path) -> subprocess.CompletedProcess[str]:
    assert SOURCES
    return run(sys.executable, "-B", BAZEL / "check.py", tree, SOURCES / "abseil")


def test_overlay_names_what_it_includes(tree: pathlib.Path) -> None:
    done = check(tree)
    assert done.returncode == 0 and " 0 faults" in done.stdout, done
    build = tree / "tensorstore/kvstore/remote_dram/BUILD"
    for line, told in (('        "//tensorstore/util:future",\n', "which no direct dependency exports"),
                       ('        "read.cc",\n', "")):
        whole = build.read_text()
        assert line in whole
        build.write_text(whole.replace(line, line.replace("future", "futures").replace("read.cc", "reed.cc"), 1))
        done = check(tree)
        assert done.returncode == 1 and told in done.stdout, done
        build.write_text(whole)


def test_overlay_adds_and_changes_nothing(tree: pathlib.Path) -> None:
    assert SOURCES
    assert run(BAZEL / "overlay", tree).returncode == 0  # again
    for name in ("WORKSPACE", "examples/BUILD"):
        before, after = (SOURCES / "tensorstore" / name).read_text(), (tree / name).read_text()
        assert after.startswith(before) and after.count("# remote_dram: ") == 1
    listed = {path.relative_to(tree) for path in tree.rglob("*") if path.is_file()}
    old = {path.relative_to(SOURCES / "tensorstore") for path in (SOURCES / "tensorstore").rglob("*") if path.is_file()}
    assert old <= listed
    changed = {str(name) for name in old if (tree / name).read_bytes() != (SOURCES / "tensorstore" / name).read_bytes()}
    assert changed == {"WORKSPACE", "examples/BUILD"}


def test_overlay_wants_a_tree(tmp_path: pathlib.Path) -> None:
    done = run(BAZEL / "overlay", tmp_path)
    assert done.returncode == 2 and "WORKSPACE" in done.stderr
