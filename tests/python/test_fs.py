# SPDX-License-Identifier: Apache-2.0
"""The fsspec filesystem: fsspec's own suites, and what they do not look at."""
from __future__ import annotations

import gc
import io
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
from typing import Any

import pytest

fsspec = pytest.importorskip("fsspec")

import fsspec.tests.abstract as abstract  # noqa: E402
import support  # noqa: E402

import penstock  # noqa: E402
from penstock.fs import PenstockFileSystem  # noqa: E402

LARGE = bytes(range(256)) * (3 << 13)


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


def test_names_that_are_no_text(fs: PenstockFileSystem) -> None:
    """Whoever may put a key may name it as they like: everybody else's directories can be gone through all the same."""
    odd = b"dir\xff".decode("utf-8", "surrogateescape")
    for key in (b"dir\xff/a\xfe", b"ok/a", b"x/!a/b", b"x//y", b"x/c"):
        fs.store.put(key, b"1")
    fs.pipe({f"many//{i:04}": b"" for i in range(500)} | {"many/!/a": b"", "many/b": b""})
    assert fs.ls("", detail=False) == [odd, "many", "ok", "x"]
    assert fs.info(odd)["type"] == "directory" and fs.isdir(odd) and fs.ls(odd, detail=False) == [odd + "/a\udcfe"]
    assert fs.info(odd + "/a\udcfe")["size"] == 1 == fs.du(odd) and fs.glob(odd + "/*") == [odd + "/a\udcfe"]
    assert {top for top, _, _ in fs.walk("")} == {"", odd, "many", "many/!", "ok", "x", "x/!a"}  # an empty name is no directory
    assert "ok/a" in fs.glob("**") and fs.ls("many", detail=False) == ["many/!", "many/b"]
    fs.rm(odd, recursive=True)
    assert not fs.exists(odd) and fs.exists("ok/a")


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


def test_ranges_of_any_sequence(fs: PenstockFileSystem) -> None:
    numpy = pytest.importorskip("numpy")
    fs.pipe("f", b"0123456789")
    for kind in (list, tuple, numpy.array):
        assert fs.cat_ranges(["f", "f"], kind([0, 5]), kind([3, 9])) == [b"012", b"5678"]
        assert fs.cat_ranges(["f", "f"], kind([-3, 5]), 9) == [b"78", b"5678"]
    assert fs.cat_ranges(["f", "f"], numpy.int64(2), numpy.int64(4)) == [b"23", b"23"]


@pytest.mark.parametrize("start, end", ((-8, None), (7, None), (None, -4), (-8, -4), (None, None), (7, 10**9)))
def test_a_part_is_read_without_the_rest(fs: PenstockFileSystem, monkeypatch: pytest.MonkeyPatch, start: int, end: int) -> None:
    fs.pipe("f", LARGE)
    get, read = fs.store.get, []

    def watched(key: Any, **options: Any) -> bytes:
        value: bytes = get(key, **options)
        read.append(len(value))
        return value

    monkeypatch.setattr(fs.store, "get", watched)
    assert fs.cat_file("f", start, end) == LARGE[start:end]
    assert start is end is None or read == [len(LARGE[start:end])]
    head = fs.store.head
    monkeypatch.setattr(fs.store, "head", lambda key: (head(key), fs.pipe("f", LARGE[1:]))[0])
    assert fs.cat_file("f", start, end) in (LARGE[start:end], LARGE[1:][start:end])


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


def test_who_they_are(fs: PenstockFileSystem) -> None:
    assert repr(fs) == f"<penstock.fs.PenstockFileSystem of {fs.url}>"
    with fs.open("a", "wb") as file:
        assert repr(file) == f"<penstock.fs.PenstockWriter 'a' of {fs.url}>"
    with fs.open("a") as file:
        assert repr(file) == f"<penstock.fs.PenstockFile 'a' of {fs.url}>"


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


def test_a_got_file_is_whole_or_as_it_was(fs: PenstockFileSystem, tmp_path: pathlib.Path) -> None:
    class Overtaken(fsspec.Callback):  # type: ignore[misc]
        def relative_update(self, inc: int = 1) -> None:
            if inc:
                fs.pipe_file("f", b"newer" * (8 << 20))

    fs.pipe_file("f", bytes(40 << 20))
    there = tmp_path / "dir/there"
    there.parent.mkdir()
    there.write_bytes(b"before")
    there.chmod(0o640)
    if fs.store.lane == "tcp":
        with pytest.raises(penstock.Stale):
            fs.get_file("f", str(there), callback=Overtaken())
        assert there.read_bytes() == b"before"
    else:
        fs.get_file("f", str(there), callback=Overtaken())
        assert there.read_bytes() == bytes(40 << 20)
    assert os.listdir(there.parent) == ["there"] and there.stat().st_mode & 0o777 == 0o640
    with pytest.raises(FileNotFoundError):
        fs.get_file("none", str(tmp_path / "none"))
    room = io.BytesIO()
    fs.get_file("f", room)
    fs.get_file("f", str(tmp_path / "new/f"))
    assert (tmp_path / "new/f").read_bytes() == room.getvalue() == b"newer" * (8 << 20) and not (tmp_path / "none").exists()


def test_no_key_leads_out_of_the_folder_it_is_got_to(fs: PenstockFileSystem, tmp_path: pathlib.Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fsspec makes of such names, of which older ones take no note; and all others are there."""
    monkeypatch.setattr(fsspec.spec, "check_contained", lambda root, paths: None, raising=False)
    odd = ["h/../../escaped", "h/..", "h/../h/b", "h/./ok", "h/z/../../../escaped", "h/nul\0"]
    fs.pipe({name: b"odd" for name in odd} | {"h/ok": b"ok", "h/z/last": b"last", "h/..a": b"a", "plain": b"plain"})
    down = tmp_path / "deep/er"
    down.mkdir(parents=True)

    def there() -> set[str]:
        return {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}

    for target, made in ((down / "new", "new/"), (f"{down}/", ""), (os.path.relpath(down), "")):
        with pytest.raises(ValueError) as left:
            fs.get("h", str(target), recursive=True)
        assert all(repr(name) in str(left.value) for name in odd) and "'h/ok'" not in str(left.value)
        assert there() == {f"deep/er/{made}{name}" for name in ("ok", "z/last", "..a")}
        shutil.rmtree(down)
        down.mkdir()
    for source in (["h/ok", "h/.."], "h/*", "h/*/*", "h/../*/*"):
        with pytest.raises(ValueError, match="h/"):
            fs.get(source, f"{down}/", recursive=source == "h/../*/*")
        assert all(name.startswith("deep/er/") for name in there())
    fs.get("h/../../escaped", str(down / "chosen"))  # a place that the caller names
    fs.get(["h/.."], [str(down / "listed")])
    assert (down / "chosen").read_bytes() == (down / "listed").read_bytes() == b"odd"


def test_urls(urls: dict[str, str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("unix", "tcp", "tcp?", "pool", "mem"):
        url = urls[kind.rstrip("?")] if kind != "tcp" else urls[kind].partition("?")[0]
        fs, path = fsspec.core.url_to_fs(PenstockFileSystem(url).unstrip_protocol("dir/file"))
        assert (fs.url, path) == (url, "dir/file")
        fs.pipe_file(path, b"x")
        with fsspec.open(fs.unstrip_protocol(path)) as file:
            assert file.read() == b"x"
        again = pickle.loads(pickle.dumps(fs))
        assert again is fs and again.fsid == fs.fsid
    assert fsspec.core.url_to_fs("penstock://mem:/a")[0].url == "mem:"
    six = PenstockFileSystem("node://[::1]:7000")
    fs, path = fsspec.core.url_to_fs(six.unstrip_protocol("a"))
    assert fs is six and path == "a"
    with pytest.raises(ValueError, match="url:"):  # fsspec takes it apart at its colons
        fsspec.core.url_to_fs("penstock://[::1]:7000/a", store_url="mem:")
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


def test_keys_that_are_no_paths(fs: PenstockFileSystem) -> None:
    """They hold nothing up, and nothing that is removed stays for their sake."""
    for key in ("d/", "d/x", "d//y", "d//", "/abs/x", "penstock://h:1/x", "e/y"):
        fs.store.put(key, b"1")
    assert fs.find("") == ["d//y", "d/x", "e/y"] and fs.du("e") == fs.du("d/x") == 1 and fs.du("") == 3
    fs.rm("d", recursive=True)
    assert not fs.exists("d") and not fs.isdir("d") and fs.ls("", detail=False) == ["e", "penstock:"]
    with pytest.raises(FileNotFoundError):
        fs.rm("d", recursive=True)
    fs.pipe({"a/b": b"", "a/c/d": b"", "a/e": b"", "ab": b"", "a": b""})
    fs.rm("a", recursive=True, maxdepth=1)
    assert fs.find("") == ["a/c/d", "ab", "e/y"]
    fs.rm(["a", "none", "ab"], recursive=True)
    fs.rm("e/*")
    assert fs.find("") == []
    fs.rm("", recursive=True)
    assert not list(fs.store.keys())
    fs.rm("", recursive=True)


def test_names_that_no_key_can_have(fs: PenstockFileSystem, tmp_path: pathlib.Path) -> None:
    for name in ("long" * 1024, "long" * 2000):
        assert not fs.exists(name) and not fs.isfile(name) and not fs.isdir(name)
        for missing in (fs.info, fs.ls, fs.cat, fs.open, fs.rm, fs.rm_file, fs.modified, fs.size):
            with pytest.raises(FileNotFoundError):
                missing(name)
    with pytest.raises(penstock.Invalid):
        fs.pipe("long" * 2000, b"")
    for write in (fs.touch, lambda name: fs.pipe_file(name, b""), lambda name: fs.open(name, "wb")):
        with pytest.raises(IsADirectoryError):
            write("")


def test_an_open_file_goes_to_another_process(fs: PenstockFileSystem) -> None:
    fs.pipe("f", LARGE)
    with fs.open("f", block_size=4096) as file:
        assert file.read(7) == LARGE[:7]
        sent = pickle.dumps(file)
        again = pickle.loads(sent)
        assert again.tell() == 7 and again.read() == LARGE[7:] and again.blocksize == 4096 and file.tell() == 7
        if fs.url.startswith("mem:"):
            return
        code = "import pickle, sys, penstock.fs; sys.stdout.buffer.write(pickle.loads(bytes.fromhex(sys.argv[1])).read(5))"
        done = subprocess.run([sys.executable, "-c", code, sent.hex()], check=True, stdout=subprocess.PIPE, timeout=support.WAIT_S,
                              env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        assert done.stdout == LARGE[7:12]
        fs.pipe("f", LARGE)
        with pytest.raises(penstock.Stale):  # what lies there now is another file
            pickle.loads(sent)


def test_a_store_is_named(urls: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever makes the filesystem: whoever unpickles it, or has another environment, has the same one."""
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    for nameless in (PenstockFileSystem, lambda: fsspec.open("penstock:///a"), lambda: fsspec.filesystem("penstock", timeout=1)):
        with pytest.raises(ValueError, match="PENSTOCK_URL"):
            nameless()
    monkeypatch.setenv("PENSTOCK_URL", urls["unix"])
    fs, file = PenstockFileSystem(), fsspec.open("penstock:///named", "wb")
    sent, said = pickle.dumps((fs, file)), fs.to_json()
    monkeypatch.setenv("PENSTOCK_URL", urls["pool"])
    assert fs.url == urls["unix"] and PenstockFileSystem().url == urls["pool"]
    assert PenstockFileSystem(urls["unix"]) is fs is fsspec.filesystem("penstock", store_url=urls["unix"])
    assert fsspec.AbstractFileSystem.from_json(said) is fs
    code = """
import pickle, sys, penstock.fs
fs, file = pickle.loads(bytes.fromhex(sys.argv[1]))
fs.pipe("worker", b"1")
with file as file:
    file.write(b"2")
"""
    environment = {name: value for name, value in os.environ.items() if name != "PENSTOCK_URL"}
    subprocess.run([sys.executable, "-c", code, sent.hex()], check=True, timeout=support.WAIT_S,
                   env=dict(environment, PYTHONPATH=os.pathsep.join(sys.path)))
    assert fs.cat(["worker", "named"]) == {"worker": b"1", "named": b"2"}


def test_memory_is_of_its_process() -> None:
    code = """
import os, penstock
from penstock.fs import PenstockFileSystem
fs = PenstockFileSystem("mem:")
fs.pipe("a", b"1")
if not os.fork():
    try:
        fs.pipe("a", b"2")
    except penstock.ForkError:
        PenstockFileSystem("mem:").pipe("own", b"3")
        os._exit(0)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0 and fs.cat("a") == b"1"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=support.WAIT_S,
                   env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))


def test_a_node_that_is_not_there(tmp_path: pathlib.Path) -> None:
    fs = PenstockFileSystem(f"node+unix://{tmp_path}/none", connect_timeout=0.2)
    for call in (fs.exists, fs.info, fs.ls, fs.cat_file):
        with pytest.raises(ConnectionError):
            call("a")
