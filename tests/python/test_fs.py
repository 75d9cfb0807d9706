# SPDX-License-Identifier: Apache-2.0
"""The fsspec filesystem: fsspec's own suites, and what they do not look at."""
from __future__ import annotations

import datetime
import gc
import io
import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

fsspec = pytest.importorskip("fsspec")

import fsspec.tests.abstract as abstract  # noqa: E402
import support  # noqa: E402

import penstock  # noqa: E402
from penstock._places import CacheWarning  # noqa: E402
from penstock.fs import PenstockFileSystem  # noqa: E402

LARGE = bytes(range(256)) * (3 << 13)


@pytest.fixture(params=("mem", "unix", "tcp", "pool"))
def filesystem(request: pytest.FixtureRequest, urls: dict[str, str]) -> PenstockFileSystem:
    """A filesystem without files, of each kind of store in turn."""
    fs = PenstockFileSystem(urls[request.param])
    fs.store.delete_prefix("")
    return fs


@pytest.fixture
def fs(filesystem: PenstockFileSystem) -> PenstockFileSystem:
    return filesystem


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, filesystem: PenstockFileSystem) -> PenstockFileSystem:
        return filesystem

    @pytest.fixture
    def fs_path(self) -> str:
        return "root"

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda *parts: "/".join(map(str, parts))

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestCopy(Fixtures, abstract.AbstractCopyTests):
    pass


class TestGet(Fixtures, abstract.AbstractGetTests):
    pass


class TestPut(Fixtures, abstract.AbstractPutTests):
    pass


class TestOpen(Fixtures, abstract.AbstractOpenTests):
    pass


class TestPipe(Fixtures, abstract.AbstractPipeTests):
    pass


def test_directories_are_implied(fs: PenstockFileSystem) -> None:
    for path in ("a/b/c", "a/b/d", "a/e", "a.txt", "f"):
        fs.pipe_file(path, path.encode())
    fs.pipe({f"a/many/{i:04}": b"" for i in range(500)})
    assert fs.ls("", detail=False) == ["a", "a.txt", "f"]
    assert fs.ls("a", detail=False) == ["a/b", "a/e", "a/many"] == fs.ls("/a/", detail=False)
    assert len(fs.ls("a/many")) == 500
    assert [entry["type"] for entry in sorted(fs.ls("a"), key=lambda entry: entry["name"])] == ["directory", "file", "directory"]
    assert fs.info("a/b") == {"name": "a/b", "size": 0, "type": "directory"}
    assert fs.info("a/b/c")["size"] == 5 and fs.info("a/b/c")["type"] == "file"
    assert fs.isdir("a/b") and not fs.isfile("a/b") and fs.isfile("a/e") and not fs.isdir("a/e") and fs.isdir("")
    assert fs.find("a/b") == ["a/b/c", "a/b/d"] and fs.find("f") == ["f"] and fs.glob("a/*/c") == ["a/b/c"]
    assert fs.du("a/b") == 10
    assert [(top, dirs, sorted(files)) for top, dirs, files in fs.walk("a/b")] == [("a/b", [], ["c", "d"])]
    fs.rm("a", recursive=True)
    assert fs.find("") == ["a.txt", "f"] and not fs.exists("a")
    for missing in (fs.info, fs.ls, fs.cat_file, fs.rm, fs.open, fs.rm_file):
        with pytest.raises(FileNotFoundError):
            missing("none")
    fs.pipe_file("d/x", b"")
    for directory in (fs.cat_file, fs.open, fs.rm):
        with pytest.raises(IsADirectoryError):
            directory("d")


@pytest.mark.parametrize("size", (0, 10, 300_000, len(LARGE)))
def test_reading(fs: PenstockFileSystem, size: int) -> None:
    content = LARGE[:size]
    fs.pipe_file("f", content)
    with fs.open("f", block_size=1000) as file:
        assert file.size == size and file.readable() and file.seekable()
        assert file.read(7) == content[:7] and file.tell() == min(7, size)
        assert file.seek(-5, io.SEEK_END) == size - 5 if size else file.seek(0) == 0
        assert file.read() == content[-5:]
        assert file.read(10) == b""
        file.seek(3)
        room = bytearray(5000)
        count = file.readinto(room)
        assert bytes(room[:count]) == content[3:3 + count] and count == min(5000, max(0, size - 3))
        file.seek(size + 100)
        assert file.read() == b""
    for start, end in ((None, None), (0, 4), (2, None), (None, 3), (-4, None), (-4, -1), (1, -1), (3, 10**9), (10**9, None)):
        assert fs.cat_file("f", start, end) == content[start:end]
    assert fs.cat_ranges(["f", "f", "f"], [0, 2, 5], [3, 4, 10**9]) == [content[:3], content[2:4], content[5:]]
    found = fs.cat_ranges(["f", "none"], [0, 0], [1, 1])
    assert found[0] == content[:1] and isinstance(found[1], FileNotFoundError)


def test_an_open_file_is_of_one_generation(fs: PenstockFileSystem) -> None:
    fs.pipe_file("f", b"a" * 100_000)
    with fs.open("f", block_size=1000) as file:
        assert file.read(10) == b"a" * 10
        fs.pipe_file("f", b"b" * 100_000)
        file.seek(50_000)
        if fs.store.lane == "tcp":
            with pytest.raises(penstock.Stale):
                file.read(10)
        else:
            assert file.read(10) == b"a" * 10
    gc.collect()
    support.wait_until("nothing is pinned", lambda: fs.store.stat().pinned_bytes == 0)


def test_writing(fs: PenstockFileSystem) -> None:
    with fs.open("f", "wb") as file:
        for _ in range(3):
            assert file.write(LARGE) == len(LARGE)
        assert file.tell() == 3 * len(LARGE)
        assert not fs.exists("f")
    assert fs.cat_file("f") == 3 * LARGE
    with pytest.raises(RuntimeError, match="half way"):
        with fs.open("g", "wb") as file:
            file.write(LARGE)
            raise RuntimeError("half way")
    assert not fs.exists("g") and fs.store.stat().reservations == 0
    with fs.open("f", "ab") as file:
        file.write(b"end")
    assert fs.cat_file("f") == 3 * LARGE + b"end"
    with fs.open("new", "ab") as file:
        file.write(b"begin")
    assert fs.cat_file("new") == b"begin"
    with fs.open("t", "wt", encoding="utf-8") as text:
        text.write("Grüße\nund mehr\n")
    with fs.open("t", "rt", encoding="utf-8") as text:
        assert list(text) == ["Grüße\n", "und mehr\n"]
    with fs.open("z.gz", "wb", compression="infer") as file:
        file.write(LARGE)
    assert fs.info("z.gz")["size"] < len(LARGE)
    with fs.open("z.gz", compression="infer") as file:
        assert file.read() == LARGE
    with pytest.raises(ValueError, match="r\\+b"):
        fs.open("f", "r+b")
    with pytest.raises(FileExistsError):
        with fs.open("x", "xb") as file:
            fs.pipe_file("x", b"another was faster")
            file.write(b"too late")
    assert fs.cat_file("x") == b"another was faster"


@pytest.mark.parametrize("mode", ["wb", "w", "at"])
def test_a_block_that_fails_leaves_what_was_there(fs: PenstockFileSystem, mode: str) -> None:
    fs.pipe("a", b"before")
    with pytest.raises(ZeroDivisionError), fs.open("a", mode) as file:
        file.write(b"part" if "b" in mode else "part")
        raise ZeroDivisionError
    assert fs.cat("a") == b"before"


def test_who_they_are(fs: PenstockFileSystem) -> None:
    assert repr(fs) == f"<penstock.fs.PenstockFileSystem of {fs.url}>"
    with fs.open("a", "wb") as file:
        assert repr(file) == f"<penstock.fs.PenstockWriter 'a' of {fs.url}>"
    with fs.open("a") as file:
        assert repr(file) == f"<penstock.fs.PenstockFile 'a' of {fs.url}>"


def test_text(fs: PenstockFileSystem) -> None:
    with fs.open("a", "w", encoding="utf-16-le", newline="\r\n") as file:
        file.write("ü\n")
    assert fs.cat("a") == "ü\r\n".encode("utf-16-le") and fs.open("a", "r", encoding="utf-16-le").read() == "ü\n"


def test_transactions(fs: PenstockFileSystem) -> None:
    with fs.transaction:
        for name in ("a", "b"):
            with fs.open(name, "wb") as file:
                file.write(name.encode())
        assert not fs.exists("a")
    assert fs.cat_file("a") == b"a" and fs.cat_file("b") == b"b"
    with pytest.raises(RuntimeError), fs.transaction:
        with fs.open("c", "wb") as file:
            file.write(b"c")
        raise RuntimeError
    assert not fs.exists("c") and fs.store.stat().reservations == 0


def test_when_a_file_was_written(fs: PenstockFileSystem) -> None:
    before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=1)
    fs.pipe("d/a", b"1")
    with fs.open("d/b", "wb") as file:
        file.write(b"2")
    fs.store.put("d/value", b"3")  # which says nothing of the time
    for name in ("d/a", "d/b"):
        assert before < fs.modified(name) == fs.created(name) < datetime.datetime.now(datetime.timezone.utc)
    assert fs.modified("d/value").tzinfo is not None
    for name in ("d/none", "d", ""):
        with pytest.raises(FileNotFoundError):
            fs.modified(name)


def test_touch(fs: PenstockFileSystem) -> None:
    fs.touch("new", truncate=False)
    assert fs.cat("new") == b""
    fs.pipe("old", b"bytes")
    fs.touch("old", truncate=False)
    assert fs.cat("old") == b"bytes"
    fs.touch("old")
    assert fs.cat("old") == b""


def test_blocks_in_a_cache(fs: PenstockFileSystem, tmp_path: pathlib.Path) -> None:
    """Only what is read is fetched, and what was fetched is read from the cache."""
    fs.pipe("large", LARGE)
    cached = fsspec.filesystem("blockcache", fs=fs, cache_storage=str(tmp_path))
    with cached.open("large", "rb", block_size=4096) as file:
        assert file.seek(100_000) == 100_000 and file.read(10_000) == LARGE[100_000:110_000]
        assert file.read() == LARGE[110_000:]
    with cached.open("large", "rb", block_size=4096) as file:
        assert file.read() == LARGE
    assert any(path.is_file() and path.stat().st_size == len(LARGE) for path in tmp_path.rglob("*"))


def test_progress(fs: PenstockFileSystem, tmp_path: pathlib.Path) -> None:
    file, back = tmp_path / "file", tmp_path / "back"
    file.write_bytes(bytes(40 << 20))
    steps = []

    class Callback(fsspec.Callback):  # type: ignore[misc]
        def relative_update(self, inc: int = 1) -> None:
            super().relative_update(inc)
            steps.append(inc)

    up, down = Callback(), Callback()
    fs.put_file(str(file), "f", callback=up)
    assert (up.size, up.value) == (40 << 20, 40 << 20) and len(steps) == 3
    fs.get_file("f", str(back), callback=down)
    assert down.value == down.size == 40 << 20 and back.read_bytes() == bytes(40 << 20)
    with pytest.raises(FileExistsError):
        fs.put_file(str(file), "f", callback=up, mode="create")


def test_copy_and_move(fs: PenstockFileSystem, tmp_path: pathlib.Path) -> None:
    (tmp_path / "tree/deep").mkdir(parents=True)
    (tmp_path / "tree/large").write_bytes(LARGE)
    (tmp_path / "tree/deep/empty").write_bytes(b"")
    fs.put(str(tmp_path / "tree"), "up", recursive=True)
    assert fs.find("up") == ["up/deep/empty", "up/large"]
    fs.cp("up", "copy", recursive=True)
    fs.mv("copy/large", "moved")
    assert fs.cat_file("moved") == LARGE and fs.find("copy") == ["copy/deep/empty"]
    fs.get("up", str(tmp_path / "down"), recursive=True)
    assert (tmp_path / "down/large").read_bytes() == LARGE and (tmp_path / "down/deep/empty").read_bytes() == b""
    with pytest.raises(FileNotFoundError):
        fs.cp("none", "x")


def test_urls(urls: dict[str, str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("unix", "tcp"):
        url = urls[kind].partition("?")[0]
        fs, path = fsspec.core.url_to_fs(PenstockFileSystem(url).unstrip_protocol("dir/file"))
        assert (fs.url, path) == (url, "dir/file")
        fs.pipe_file(path, b"x")
        with fsspec.open(fs.unstrip_protocol(path)) as file:
            assert file.read() == b"x"
        again = pickle.loads(pickle.dumps(fs))
        assert again is fs and again.fsid == fs.fsid
    assert fsspec.core.url_to_fs("penstock://mem:/a")[0].url == "mem:"
    fs, path = fsspec.core.url_to_fs("penstock://dir/file", store_url=urls["unix"])
    assert (fs.url, path) == (urls["unix"], "dir/file")
    monkeypatch.setenv("PENSTOCK_URL", urls["unix"])
    fs, path = fsspec.core.url_to_fs("penstock:///dir/file", skip_instance_cache=True)
    assert (fs.url, path) == (urls["unix"], "dir/file")
    memory = pickle.dumps(PenstockFileSystem("mem:"))
    code = "import pickle, sys, penstock.fs; pickle.loads(bytes.fromhex(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, memory.hex()], capture_output=True, text=True, timeout=60,
                          env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
    assert done.returncode == 1 and "another one cannot open it" in done.stderr


def test_a_node_that_is_not_there(tmp_path: pathlib.Path) -> None:
    fs = PenstockFileSystem(f"node+unix://{tmp_path}/none", connect_timeout=0.2)
    for call in (fs.exists, fs.info, fs.ls, fs.cat_file):
        with pytest.raises(ConnectionError):
            call("a")


def test_a_cache_prefix_is_warned_of(fs: PenstockFileSystem) -> None:
    with pytest.warns(CacheWarning, match="cache/w/a"), fs.open("cache/w/a", "wb") as file:
        file.write(b"x")
