# SPDX-License-Identifier: Apache-2.0
"""Folders through the command line (`put -r`, `get -r`), and what shells complete."""
from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
from typing import Iterator

import pytest
import support
from support import penstock

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOT_FOUND, USAGE, OTHER = 1, 2, 7
TREE = {"a": b"", "b/c": b"x" * 70_000, "b/d e/\u00e9": b"deep", "f.bin": os.urandom(3 << 20)}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with support.start_node("--listen", "127.0.0.1:0", "--dram", "64M", "--shards", "2") as node:
        yield node.tcp
        node.stop()


@pytest.fixture
def folder(url: str, tmp_path: pathlib.Path) -> pathlib.Path:
    assert penstock("--url", url, "clear").returncode == 0
    for name, value in TREE.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)
    return tmp_path / "in"


def run(url: str, *arguments: object, code: int = 0) -> str:
    done = penstock("--url", url, *map(str, arguments))
    assert done.returncode == code, done
    return (done.stdout if code == 0 else done.stderr).decode()


def files_below(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("prefix", ["models/llama", "models/llama/", ""])
def test_a_folder_there_and_back(url: str, folder: pathlib.Path, prefix: str) -> None:
    assert "put 4 files" in run(url, "put", "-r", folder, prefix)
    base = f"{prefix.rstrip('/')}/" if prefix else ""
    assert run(url, "ls").splitlines() == sorted(base + name for name in TREE)
    run(url, "get", "-r", prefix, folder.parent / "out")
    assert files_below(folder.parent / "out") == TREE
    run(url, "get", "--recursive", prefix, folder.parent / "out")  # over what is there
    assert files_below(folder.parent / "out") == TREE
    sums = dict(reversed(line.split("  ", 1)) for line in run(url, "get", "-r", "--sha256", prefix).splitlines())
    assert sums == {name: hashlib.sha256(value).hexdigest() for name, value in TREE.items()}


def test_a_sibling_with_the_same_beginning_is_left_alone(url: str, folder: pathlib.Path) -> None:
    run(url, "put", "-r", folder, "model")
    run(url, "put", "models", folder / "f.bin")
    run(url, "get", "-r", "model", folder.parent / "out")
    assert files_below(folder.parent / "out") == TREE


def test_absent_only(url: str, folder: pathlib.Path) -> None:
    run(url, "put", "t/b/c", folder / "a")
    assert "1 of them were there already" in run(url, "put", "-r", "--if-absent", folder, "t")
    run(url, "get", "-r", "t", folder.parent / "out")
    assert files_below(folder.parent / "out") == {**TREE, "b/c": b""}


def test_links_are_followed_and_circles_refused(url: str, folder: pathlib.Path) -> None:
    (folder / "link").symlink_to("b/c")
    (folder / "pipe").unlink(missing_ok=True)
    os.mkfifo(folder / "pipe")
    done = penstock("--url", url, "put", "-r", str(folder), "t")
    assert done.returncode == 0 and b"pipe: left out" in done.stderr
    assert hashlib.sha256(TREE["b/c"]).hexdigest() + "  link" in run(url, "get", "-r", "--sha256", "t")
    (folder / "circle").symlink_to(".")
    assert "circle: Too many levels" in run(url, "put", "-r", folder, "u", code=OTHER)
    assert "u/" not in run(url, "ls")  # the list is made before anything is sent
    (folder / "circle").unlink()
    (folder / "circle").symlink_to("nowhere")
    assert "circle: No such file" in run(url, "put", "-r", folder, "u", code=OTHER)


@pytest.mark.parametrize("key", ["t/../escape", "t//abs", "t/./x", "t/a/..", "t/x/"])
def test_a_key_that_leaves_the_folder_writes_nothing(url: str, folder: pathlib.Path, key: str) -> None:
    run(url, "put", "t/good", folder / "a")
    run(url, "put", key, folder / "f.bin")
    out = folder.parent / "below" / "out"
    out.parent.mkdir()
    assert "nothing was written" in run(url, "get", "-r", "t", out, code=OTHER)
    assert files_below(folder.parent / "below") == {}


def test_a_link_in_the_folder_is_not_followed(url: str, folder: pathlib.Path) -> None:
    run(url, "put", "-r", folder, "t")
    out = folder.parent / "out"
    (folder.parent / "elsewhere").mkdir()
    out.mkdir()
    (out / "b").symlink_to(folder.parent / "elsewhere")
    (out / "a").symlink_to(folder.parent / "elsewhere" / "victim")
    assert "b/" in run(url, "get", "-r", "t", out, code=OTHER)
    assert files_below(folder.parent / "elsewhere") == {}
    assert not list(out.rglob(".penstock-*"))


def test_a_file_and_a_folder_of_one_name(url: str, folder: pathlib.Path) -> None:
    run(url, "put", "t/x", folder / "a")
    run(url, "put", "t/x/y", folder / "a")
    assert "x" in run(url, "get", "-r", "t", folder.parent / "out", code=OTHER)


def test_what_an_interrupted_run_left_is_in_nobodys_way(url: str, folder: pathlib.Path) -> None:
    """Processes have few numbers in a container, so the next one may have the same."""
    run(url, "put", "-r", folder, "t")
    out = folder.parent / "out"
    out.mkdir()
    subprocess.run(["sh", "-c", f'touch "$1/.penstock-$$"; exec "$2" --url "$3" get -r t "$1"', "sh", out, support.BUILD / "penstock", url],
                   check=True, timeout=60)
    for left in out.glob(".penstock-*"):
        left.unlink()
    assert files_below(out) == TREE


def test_only_what_was_written_is_counted(url: str, folder: pathlib.Path) -> None:
    run(url, "put", "t/f", folder / "f.bin")
    (folder.parent / "out" / "f" / "there").mkdir(parents=True)
    assert "get 0 files, 0 bytes" in run(url, "get", "-r", "t", folder.parent / "out", code=OTHER)


def test_a_value_that_grows_meanwhile(url: str, folder: pathlib.Path) -> None:
    with subprocess.Popen([support.BUILD / "tests/e2e/grow", url, "t/grows"], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout and writer.stdout.readline() == b"ready\n"
            for _ in range(20):
                done = penstock("--url", url, "get", "-r", "t", str(folder.parent / "out"))
                assert done.returncode == 0, done
                size = (folder.parent / "out" / "grows").stat().st_size
                assert f"get 1 files, {size} bytes" in done.stderr.decode()
        finally:
            writer.kill()


def test_usage(url: str, folder: pathlib.Path) -> None:
    assert "DIR PREFIX" in run(url, "put", "-r", folder, code=USAGE)
    assert "PREFIX DIR" in run(url, "get", "-r", "t", code=USAGE)
    assert "--range" in run(url, "get", "-r", "t", folder, "--range", "0:1", code=USAGE)
    assert "--if-generation" in run(url, "put", "-r", folder, "t", "--if-generation", "1", code=USAGE)
    assert "no key begins with 'none/'" in run(url, "get", "-r", "none", folder, code=NOT_FOUND)
    run(url, "put", "-r", folder / "no such", "t", code=OTHER)
    assert "Not a directory" in run(url, "put", "-r", folder / "a", "t", code=OTHER)


# ---- completion


def completed(*words: str) -> list[str]:
    """What bash offers behind `penstock WORDS`."""
    script = (f"source '{ROOT}/completion/penstock.bash'; COMP_WORDS=(penstock \"$@\"); COMP_CWORD=$#; _penstock; "
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, "bash", *words], check=True, capture_output=True, text=True)
    return done.stdout.split()


def test_bash_completes() -> None:
    assert completed("pu") == ["put"]
    assert set(completed("")) >= {"put", "get", "ls", "stat", "help", "replay"}
    assert completed("put", "--if") == ["--if-absent", "--if-generation"]
    assert completed("ls", "--if") == []
    assert completed("help", "cle") == ["clear"]
    assert "--url" in completed("--url", "mem:", "stat", "--u")


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh here")
def test_zsh_reads_its_completion() -> None:
    subprocess.run(["zsh", "-n", f"{ROOT}/completion/_penstock"], check=True)
