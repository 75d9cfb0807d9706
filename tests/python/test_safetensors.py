# SPDX-License-Identifier: Apache-2.0
"""Safetensors files in and out, and headers that lie."""
from __future__ import annotations

import json
import os
import pathlib
import stat
import subprocess
import sys
from typing import Any

import pytest

import penstock
import support
from trees import small_disk
from penstock.safetensors import FormatError, build, get_safetensors, parse, put_safetensors

LARGE = bytes(range(256)) * (1 << 14)
GOOD = {"a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}, "b": {"dtype": "U8", "shape": [], "data_offsets": [8, 9]}}


def file_of(header: Any, data: bytes, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def test_files_go_in_and_out(store: penstock.Store, tmp_path: pathlib.Path) -> None:
    content = build([("big", "U8", (len(LARGE),)), ("none", "F64", (0, 3))], {"by": "us"}) + LARGE
    (tmp_path / "in").write_bytes(content)
    put_safetensors(store, "m", tmp_path / "in", checksum=True)
    assert store.get("m") == content
    (tmp_path / "out").write_bytes(b"an older file")
    assert get_safetensors(store, "m", tmp_path / "out") == len(content)
    assert (tmp_path / "out").read_bytes() == content
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o666 & ~umask
    with pytest.raises(penstock.Exists):
        put_safetensors(store, "m", tmp_path / "in", if_absent=True)


def test_what_is_no_regular_file_is_written_as_it_is(store: penstock.Store, tmp_path: pathlib.Path) -> None:
    content = build([("big", "U8", (len(LARGE),))], {}) + LARGE
    store.put("m", content)
    assert get_safetensors(store, "m", "/dev/null") == len(content)
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=(tmp_path / "out").open("wb")) as reader:
        try:
            assert get_safetensors(store, "m", tmp_path / "pipe") == len(content)
        except BaseException:
            reader.kill()
            raise
    assert (tmp_path / "out").read_bytes() == content


def test_data_begin_at_a_multiple_of_64_bytes() -> None:
    for name in ("a", "b" * 50, "ü"):
        assert len(build([(name, "F32", (1,))], {})) % 64 == 0


BAD = {
    "nothing": b"", "short": b"1234567", "no header": (0).to_bytes(8, "little"), "header beyond the end": file_of({}, b"", 99),
    "absurd length": file_of({}, b"", (1 << 64) - 1), "no JSON": file_of(b"{nonsense", b""), "no UTF-8": file_of(b"\xff\xfe", b""),
    "a list": file_of([], b""), "deep": file_of(b"[" * 100_000, b""), "metadata": file_of({"__metadata__": {"a": 1}}, b""),
    "a name twice": file_of(b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}',
                            b"x"),
    "more bytes": file_of(GOOD, bytes(10)), "fewer bytes": file_of(GOOD, bytes(8)),
    "overlap": file_of(GOOD | {"c": {"dtype": "U8", "shape": [1], "data_offsets": [7, 8]}}, bytes(9)),
    "hole": file_of({"a": GOOD["a"], "b": {"dtype": "U8", "shape": [], "data_offsets": [9, 10]}}, bytes(10)),
}
for _what, _entry in {
    "wrong size": {"dtype": "F64", "shape": [2], "data_offsets": [0, 8]},
    "dtype": {"dtype": "X", "shape": [8], "data_offsets": [0, 8]}, "dtype kind": {"dtype": [], "shape": [8], "data_offsets": [0, 8]},
    "backwards": {"dtype": "U8", "shape": [8], "data_offsets": [8, 0]},
    "negative": {"dtype": "U8", "shape": [-8], "data_offsets": [0, 8]},
    "shape kind": {"dtype": "U8", "shape": "8", "data_offsets": [0, 8]},
    "fraction": {"dtype": "U8", "shape": [8.0], "data_offsets": [0, 8]},
    "bool": {"dtype": "U8", "shape": [8, True], "data_offsets": [0, 8]},
    "huge": {"dtype": "U8", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 8]},
    "huge in many dimensions": {"dtype": "U8", "shape": [(1 << 62) + 1] * 200_000, "data_offsets": [0, 8]},  # would take an hour
    "huge, but none": {"dtype": "U8", "shape": [(1 << 62) + 1] * 200_000 + [0], "data_offsets": [8, 8]},
    "three offsets": {"dtype": "U8", "shape": [8], "data_offsets": [0, 4, 8]},
    "no offsets": {"dtype": "U8", "shape": [8]}, "text": "x",
}.items():
    BAD[_what] = file_of({"a": _entry}, bytes(8))


@pytest.mark.parametrize("name", BAD)
def test_a_damaged_file_goes_neither_in_nor_out(store: penstock.Store, tmp_path: pathlib.Path, name: str) -> None:
    (tmp_path / "in").write_bytes(BAD[name])
    with pytest.raises(FormatError):
        put_safetensors(store, "m", tmp_path / "in")
    assert not store.exists("m")
    store.put("m", BAD[name])
    with pytest.raises(FormatError):
        get_safetensors(store, "m", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_full_disk_is_an_error(store: penstock.Store, tmp_path: pathlib.Path) -> None:
    """And not the end of the process; nothing is left of the file."""
    content = build([("big", "U8", (len(LARGE),))], {}) + LARGE
    reader = f"""
import os, penstock, sys
from penstock.safetensors import build, get_safetensors
with penstock.open({store.url!r}) as store:
    if {store.url.startswith("mem:")}:
        store.put("m", open({str(tmp_path / 'in')!r}, "rb").read())
    try:
        get_safetensors(store, "m", {str(tmp_path / 'small/m')!r})
    except OSError as error:
        print(os.strerror(error.errno))
"""
    (tmp_path / "in").write_bytes(content)
    put_safetensors(store, "m", tmp_path / "in")
    with small_disk(tmp_path / "small", 2):
        done = subprocess.run([sys.executable, "-c", reader], env=support.python_environment(), capture_output=True, text=True,
                              timeout=support.WAIT_S)
        assert (done.returncode, done.stdout) == (0, "No space left on device\n"), done.stderr
        assert list((tmp_path / "small").iterdir()) == []


def test_what_is_not_there(store: penstock.Store, tmp_path: pathlib.Path) -> None:
    with pytest.raises(KeyError):
        get_safetensors(store, "none", tmp_path / "out")
    with pytest.raises(FileNotFoundError):
        put_safetensors(store, "m", tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_the_reference_agrees(tmp_path: pathlib.Path) -> None:
    reference = pytest.importorskip("safetensors")
    for name, content in BAD.items():
        if name == "a name twice":  # the reference takes the last
            continue
        with pytest.raises(Exception):
            reference.deserialize(content)
    good = build([("a", "F32", (2, 1)), ("b", "U8", ())], {"x": "y"}) + bytes(9)
    assert {name for name, _ in reference.deserialize(good)} == {"a", "b"}
    assert set(parse(good[:-9], len(good)).tensors) == {"a", "b"}
