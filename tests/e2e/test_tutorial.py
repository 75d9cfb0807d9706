# SPDX-License-Identifier: Apache-2.0
"""The tutorials, a how-to and the README say what happens: their commands are run, and print what the pages show."""
from __future__ import annotations

import pathlib

import pytest
import support
import tutorial

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["first-store", "first-pool"])
def test_page(name: str, tmp_path: pathlib.Path) -> None:
    assert tutorial.run_page(tutorial.TUTORIALS / f"{name}.md", tmp_path) >= 10


def test_move_files(tmp_path: pathlib.Path) -> None:
    assert tutorial.run_page(ROOT / "docs/how-to/move-files.md", tmp_path) >= 15


def test_readme(tmp_path: pathlib.Path) -> None:
    """It runs in a checkout, and its node has the default socket."""
    if support.penstock("ping").returncode == 0:
        pytest.skip("a node serves the default socket")
    for name, target in {"build": support.BUILD, "LICENSE": ROOT / "LICENSE", "docs": ROOT / "docs"}.items():
        (tmp_path / name).symlink_to(target)
    assert tutorial.run_page(ROOT / "README.md", tmp_path) >= 20


def test_a_wrong_page_is_found(tmp_path: pathlib.Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo one \\\n> two\none two\n```\n\n```\n$ false\n```\n")
    assert tutorial.run_page(page, tmp_path) == 1
    for block in ("$ echo one\ntwo\n", "$ echo one\n", "$ exit\n", "$ penstock get none\n"):
        page.write_text(f"```console\n{block}```\n")
        with pytest.raises((AssertionError, BrokenPipeError)):
            tutorial.run_page(page, tmp_path)
