# SPDX-License-Identifier: Apache-2.0
"""The C examples, compiled by another build than the project's own, against the public header and library."""
from __future__ import annotations

import pathlib
import subprocess

import pytest
import support

pytestmark = pytest.mark.skipif(support.sanitized(), reason="a plain program cannot load a library that wants a sanitizer")
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("examples")
    for source in (ROOT / "examples/c").glob("*.c"):
        subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", str(source), "-o",
                        str(folder / source.stem), f"-L{support.BUILD}", f"-Wl,-rpath,{support.BUILD}", "-lpenstock"],
                       check=True)
    return folder


def run(program: pathlib.Path, url: str) -> list[str]:
    return subprocess.run([program, url], check=True, capture_output=True, text=True).stdout.splitlines()


def test_hello(built: pathlib.Path) -> None:
    assert run(built / "hello", "mem:") == ["42"]


def test_pages_of_two_prompts(built: pathlib.Path) -> None:
    said = [f"{name}: {there} of 8 pages were there"
            for name, there in (("first prompt", 0), ("second prompt", 5), ("first again", 8))]
    assert run(built / "kv_pages", "mem:?cache=kv/") == said
    with support.start_node("--listen", "127.0.0.1:0", "--dram", "64M", "--class", "kv/=cache") as node:
        assert run(built / "kv_pages", node.tcp) == said
        again = run(built / "kv_pages", node.tcp)
        assert all(line.endswith(": 8 of 8 pages were there") for line in again)
        node.stop()
