# SPDX-License-Identifier: Apache-2.0
"""ci/summary --again: a test that failed by accident is run once more, and what is final stays failed."""
from __future__ import annotations

import importlib.machinery
import importlib.util
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


MESON = """
project('planted')
test('first_time', find_program('first_time.sh'), suite: 'e2e')
test('rule', find_program('rule.sh'), suite: 'house')
"""


def meson_closing(folder: pathlib.Path, rule: int) -> tuple[int, list[str]]:
    """The same of Meson's tests, of which one is a rule of the house that ends with `rule`."""
    (folder / "meson.build").write_text(MESON)
    (folder / "first_time.sh").write_text(f"#!/bin/sh\n[ -e {folder}/seen ] && exit 0\ntouch {folder}/seen\nexit 1\n")
    (folder / "rule.sh").write_text(f"#!/bin/sh\nexit {rule}\n")
    for script in folder.glob("*.sh"):
        script.chmod(0o755)
    subprocess.run(["meson", "setup", "build"], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60)
    done = subprocess.run([sys.executable, "-B", SUMMARY, "--again", "build"], cwd=folder, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    return done.returncode, [line for line in lines if line.startswith("FAILED")] + lines[-1:]


def test_mesons_tests_are_run_again(tmp_path: pathlib.Path) -> None:
    code, lines = meson_closing(tmp_path, 0)
    assert code == 0 and len(lines) == 2 and lines[-1] == "2 passed, 0 failed", lines
    assert lines[0].startswith("FAILED, AND PASSED WHEN RUN AGAIN:") and "first_time" in lines[0]


def test_rules_of_the_house_are_final(tmp_path: pathlib.Path) -> None:
    code, lines = meson_closing(tmp_path, 1)
    assert code == 1 and lines[-1] == "1 passed, 1 failed" and "rule" in lines[-2], lines


def test_what_was_not_run_again_stays() -> None:
    """Such as a rule of the house that failed beside a test."""
    loader = importlib.machinery.SourceFileLoader("summary", str(SUMMARY))
    spec = importlib.util.spec_from_loader("summary", loader)
    assert spec
    summary = importlib.util.module_from_spec(spec)
    sys.modules["summary"] = summary
    loader.exec_module(summary)
    rule, missed, good = (summary.Case(f"{name}: case", result, test=name)
                          for name, result in (("rule", "failed"), ("missed", "failed"), ("good", "passed")))
    assert summary.may_be_again([rule, missed])
    assert summary.merged([rule, missed, good], [rule, missed], [missed._replace(result="passed")]) == [
        rule, good, missed._replace(result="passed")]
    assert summary.merged([rule, good], [rule], []) == [rule, good]
    assert summary.passed_again == [missed]
