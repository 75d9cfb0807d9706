# SPDX-License-Identifier: Apache-2.0
"""Files in and out, and `python -m penstock` on a terminal."""
from __future__ import annotations

import fcntl
import os
import pathlib
import pty
import struct
import subprocess
import sys
import termios
import threading

import pytest

import penstock
import support
from penstock import files
from penstock.__main__ import shows_progress

LARGE = files.LONG_BYTES + 12345


@pytest.mark.parametrize("size", [0, 1, files.PIECE_BYTES, 3 * files.PIECE_BYTES + 17])
def test_a_file_goes_in_and_out(store: penstock.Store, tmp_path: pathlib.Path, size: int) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(os.urandom(size))
    generation = files.put_file(store, "f", source, checksum=True)
    assert store.head("f").generation == generation and store["f"] == source.read_bytes()
    assert files.get_file(store, "f", target) == size
    assert target.read_bytes() == source.read_bytes()
    with pytest.raises(penstock.Exists):
        files.put_file(store, "f", source, if_absent=True)
    with pytest.raises(penstock.NotFound):
        files.get_file(store, "none", tmp_path / "untouched")
    assert not (tmp_path / "untouched").exists()


def test_a_file_that_is_there_stays_until_the_new_one_is_whole(store: penstock.Store, tmp_path: pathlib.Path) -> None:
    target, link = tmp_path / "there", tmp_path / "link"
    target.write_bytes(b"as it was")
    target.chmod(0o640)
    link.symlink_to(target)

    class Overwritten(penstock.Store):
        """Its value is replaced after the first piece was read."""

        def get_into(self, key: str, *arguments: object, **options: object) -> int:
            count = super().get_into(key, *arguments, **options)
            self.put(key, b"newer")
            return count

    with Overwritten(store.url) as other:
        other["f"] = bytes(files.PIECE_BYTES + 1)
        with pytest.raises(penstock.Stale):
            files.get_file(other, "f", target)
        assert target.read_bytes() == b"as it was" and sorted(tmp_path.iterdir()) == [link, target]
        assert files.get_file(other, "f", link) == 5
    assert target.read_bytes() == b"newer" and link.is_symlink() and target.stat().st_mode & 0o777 == 0o640
    assert sorted(tmp_path.iterdir()) == [link, target]


def test_what_is_no_file_is_written_as_it_is(store: penstock.Store, tmp_path: pathlib.Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    store["f"] = b"through a pipe"
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert files.get_file(store, "f", pipe) == 14 and os.read(reader, 99) == b"through a pipe"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    with pytest.raises(IsADirectoryError):
        files.get_file(store, "f", tmp_path)


def fill(pipe: pathlib.Path, data: bytes) -> threading.Thread:
    """Writes to a pipe once someone reads it."""
    thread = threading.Thread(target=pipe.write_bytes, args=(data,), daemon=True)
    thread.start()
    return thread


def test_what_has_no_length_is_read_to_its_end(store: penstock.Store, tmp_path: pathlib.Path) -> None:
    pipe, data = tmp_path / "pipe", os.urandom(files.PIECE_BYTES + 17)
    os.mkfifo(pipe)
    store["f"] = b"as it was"
    writing = fill(pipe, data)
    generation = files.put_file(store, "f", pipe, checksum=True)
    writing.join(support.WAIT_S)
    assert store.head("f").generation == generation and store["f"] == data
    files.put_file(store, "f", "/proc/self/cmdline", if_generation=generation)
    assert store["f"] == pathlib.Path("/proc/self/cmdline").read_bytes() != b""
    files.put_file(store, "f", "/dev/null")
    assert store["f"] == b""
    with pytest.raises(penstock.Exists):
        files.put_file(store, "f", "/proc/self/cmdline", if_absent=True)


def on_terminal(url: str, *arguments: str, **variables: str) -> tuple[int, str]:
    """Exit code of `python -m penstock`, and what it says on the terminal that its errors go to."""
    shown, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    environment = support.python_environment(PENSTOCK_URL=url, **variables)
    process = subprocess.Popen([sys.executable, "-m", "penstock", *arguments], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=theirs, env=environment)
    os.close(theirs)
    said = b""
    while True:
        try:
            said += os.read(shown, 4096)
        except OSError:  # its end is closed
            break
    os.close(shown)
    return process.wait(support.WAIT_S), said.decode()


def test_long_transfers_show_a_bar(urls: dict[str, str], tmp_path: pathlib.Path) -> None:
    pytest.importorskip("tqdm")
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(bytes(LARGE))
    code, said = on_terminal(urls["unix"], "put", "bar", str(source))
    assert code == 0 and "put: 100%" in said
    code, said = on_terminal(urls["unix"], "get", "bar", str(target))
    assert code == 0 and "get: 100%" in said and target.read_bytes() == source.read_bytes()
    source.write_bytes(b"short")
    assert on_terminal(urls["unix"], "put", "bar", str(source)) == (0, "")


@pytest.mark.parametrize("arguments", [("get", "none", "/dev/null"), ("put", "k", "/no/such/file"), ("put", "k"),
                                       ("get", "k" * 5000, "/dev/null"), ("put", "k", "/")])
def test_a_terminal_changes_no_outcome(urls: dict[str, str], arguments: tuple[str, ...]) -> None:
    code, said = on_terminal(urls["unix"], *arguments)
    plain = support.penstock("--url", urls["unix"], *arguments)
    assert (code, said.replace("\r\n", "\n")) == (plain.returncode, plain.stderr.decode())


def test_a_terminal_changes_no_outcome_without_a_node() -> None:
    assert on_terminal("node://127.0.0.1:1", "get", "k", "/dev/null")[0] == 5


@pytest.mark.parametrize("variable", ["PENSTOCK_TLS", "PENSTOCK_TLS_CA", "PENSTOCK_TLS_CERTIFICATE", "PENSTOCK_TLS_KEY",
                                      "PENSTOCK_TLS_NAME", "TRACEPARENT"])
def test_a_terminal_changes_nothing_of_what_the_environment_asks_for(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setenv("PENSTOCK_URL", "node://127.0.0.1:1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert shows_progress(["put", "k", "file"])
    monkeypatch.setenv(variable, "yes")
    assert not shows_progress(["put", "k", "file"])


def test_a_terminal_sends_nothing_in_plain_text(urls: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The node has no TLS, so with it nothing can be sent."""
    (tmp_path / "f").write_bytes(b"for the right node alone")
    url = urls["tcp"].partition("?")[0]
    code, said = on_terminal(url, "put", "plain", str(tmp_path / "f"), PENSTOCK_TLS="yes")
    with penstock.open(url) as store:
        assert code != 0 and said and "plain" not in store
