# SPDX-License-Identifier: Apache-2.0
"""ci/summary --again: a test that failed by accident is run once more, and what is final stays failed."""
from __future__ import annotations

import pathlib
import subprocess
import sys

SUMMARY = pathlib.Path(__file__).resolve().parents[2] / "ci" / "summary"
PLANTED = """
import pathlib
HERE = pathlib.Path(__file__).parent
def test_first_time():
    seen = HERE / "seen"
    again = seen.exists()
    seen.touch()
    assert again, "a miss"
def test_good():
    pass
"""


def closing(folder: pathlib.Path, more: str) -> tuple[int, list[str]]:
    """Exit status, and the closing lines: what passed only when run again, what failed, the count."""
    (folder / "build/meson-logs").mkdir(parents=True)
    (folder / "planted").mkdir()
    (folder / "planted/test_planted.py").write_text(PLANTED + more)
    done = subprocess.run([sys.executable, "-B", SUMMARY, "--again", "--no-meson", "--e2e", folder / "planted", folder / "build"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    return done.returncode, [line for line in lines if line.startswith(("FAILED, AND", "FAILED ")) and "::" not in line] + lines[-1:]


def test_an_accident_is_named(tmp_path: pathlib.Path) -> None:
    code, lines = closing(tmp_path, "")
    assert code == 0 and len(lines) == 2, lines
    assert lines[0].startswith("FAILED, AND PASSED WHEN RUN AGAIN:") and lines[0].endswith("test_first_time")
    assert lines[1] == "2 passed, 0 failed"


def test_what_fails_twice_fails(tmp_path: pathlib.Path) -> None:
    code, lines = closing(tmp_path, "def test_bad():\n    assert 0, 'a fault'\n")
    assert code == 1 and lines[-1] == "2 passed, 1 failed", lines
    assert lines[-2].startswith("FAILED ") and lines[-2].endswith("test_bad")


def test_what_is_final_is_not_run_again(tmp_path: pathlib.Path) -> None:
    code, lines = closing(tmp_path, "def test_bad():\n    assert 0, 'final: a violation'\n")
    assert code == 1 and lines[-1] == "1 passed, 2 failed", lines


def test_many_failures_are_no_accident(tmp_path: pathlib.Path) -> None:
    many = "import pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_once(n):\n" \
           "    seen = HERE / str(n)\n    again = seen.exists()\n    seen.touch()\n    assert again\n"
    code, lines = closing(tmp_path, many)
    assert code == 1 and lines[-1] == "1 passed, 4 failed", lines
