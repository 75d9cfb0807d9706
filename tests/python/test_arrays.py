# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays: dtype, shape and order come back, in place where memory is shared; what cannot is refused."""
from __future__ import annotations

import gc
import io
import itertools
import os
import subprocess
import sys
import warnings

import pytest

np = pytest.importorskip("numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")

import penstock  # noqa: E402
import support  # noqa: E402
from penstock._places import CacheWarning  # noqa: E402
from penstock.arrays import HEADER_BYTES_MAX  # noqa: E402

GRID = np.arange(24, dtype="f8").reshape(2, 3, 4)
STRUCTURE = np.dtype([("a", "<i4", (2,)), ("b", ">f8"), ("inner", [("c", "S3"), ("d", "?")])])
ARRAYS = {
    "C order": GRID,
    "Fortran order": np.asfortranarray(GRID),
    "neither": GRID.transpose(1, 0, 2),
    "strided": np.arange(40)[::3],
    "backwards": np.arange(5)[::-1],
    "0-d": np.array(2.5),
    "empty": np.zeros((0, 3), "i2"),
    "empty inside": np.zeros((2, 0, 5)),
    "byte-swapped": np.arange(7, dtype=">u2"),
    "structured": np.array([((1, 2), 2.5, (b"x", True)), ((3, 4), -1, (b"yz", False))], STRUCTURE),
    "aligned structure": np.array([(1, 2.5)], np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    "many fields": np.zeros(1, [(f"field_{i}", "i2") for i in range(3000)]),
    "names beyond ASCII": np.ones(2, [("größe", "f4")]),
    "dates": np.array(["2026-11-21", "NaT"], "M8[D]"),
    "times": np.arange(3, dtype="m8[ns]"),
    "text": np.array(["é", "text"]),
    "bytes": np.array([b"a", b"bc"]),
    "void": np.zeros(3, "V5"),
    "bool": np.array([[True], [False]]),
    "complex": np.arange(3) + 1j,
    "half": np.arange(3, dtype="f2"),
    "long double": np.arange(3, dtype="g"),
    "bfloat16": np.arange(9).astype(ml_dtypes.bfloat16).reshape(3, 3),
    "float8": np.arange(4).astype(ml_dtypes.float8_e4m3fn),
    "0-d bfloat16": np.array(1.5, ml_dtypes.bfloat16),
    "large": np.arange((5 << 20) // 4, dtype="i4").reshape(5, -1),
}


def same(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return (ours.dtype == theirs.dtype and ours.shape == theirs.shape
            and (ours.tobytes() == theirs.tobytes() or ours.tolist() == theirs.tolist()))


@pytest.mark.parametrize("name", ARRAYS)
def test_it_comes_back(store: penstock.Store, name: str) -> None:
    array = ARRAYS[name]
    generation = store.put_array("k", array)
    assert store.head("k").generation == generation
    for copy in (None, True):
        back = store.get_array("k", copy=copy)
        assert same(back, array)
        if array.flags.c_contiguous or array.flags.f_contiguous:
            assert (back.flags.c_contiguous, back.flags.f_contiguous) == (array.flags.c_contiguous, array.flags.f_contiguous)
    assert back.flags.writeable and back.flags.aligned
    room = np.empty_like(array)
    assert store.get_array("k", out=room) is room and same(room, array)
    strided = np.empty((2, *array.shape), array.dtype).T[..., 0]
    if strided.shape == array.shape:
        assert same(store.get_array("k", out=strided), array)


@pytest.mark.parametrize("name", ARRAYS)
def test_the_value_is_a_npy_file(store: penstock.Store, name: str) -> None:
    array = ARRAYS[name]
    store.put_array("k", array)
    if array.dtype.isbuiltin == 2:
        return
    file = io.BytesIO(store.get("k"))
    assert same(np.load(file, max_header_size=HEADER_BYTES_MAX), array)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy.save, about names beyond ASCII
        np.save(written := io.BytesIO(), array)
    store.put("k", written.getvalue())
    assert same(store.get_array("k"), array)


def test_data_lie_at_a_multiple_of_64_bytes(store: penstock.Store) -> None:
    store.put_array("k", ARRAYS["large"])
    value = store.get("k")
    assert (len(value) - ARRAYS["large"].nbytes) % 64 == 0


def test_in_place(store: penstock.Store) -> None:
    array = ARRAYS["large"]
    store.put_array("k", array)
    if store.lane == "tcp":
        with pytest.raises(penstock.Unsupported):
            store.get_array("k", copy=False)
        assert store.get_array("k").flags.writeable
        return
    view = store.get_array("k", copy=False)
    part = view[1:3, ::2]
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1
    store.put_array("k", array + 1)
    store.delete("k")
    assert same(view, array)
    assert store.stat().pinned_bytes >= array.nbytes
    del view
    gc.collect()
    assert same(part, array[1:3, ::2]) and store.stat().pinned_bytes >= array.nbytes
    del part
    gc.collect()
    support.wait_until("nothing is pinned", lambda: store.stat().pinned_bytes == 0)


def test_what_would_need_pickling_is_refused(store: penstock.Store) -> None:
    for bad, text in ((np.array([1, "a"], object), "pickling"), (np.zeros(1, [("x", "O")]), "pickling"),
                      (np.zeros(1, [("x", ml_dtypes.bfloat16)]), "ml_dtypes"), (np.ma.array([1], mask=[1]), "mask"),
                      ({"a": 1}, "pickling")):
        with pytest.raises(TypeError, match=text):
            store.put_array("k", bad)
    assert not store.exists("k")


def test_out_that_does_not_fit_is_not_touched(store: penstock.Store) -> None:
    store.put_array("k", np.arange(6.0))
    for bad, kind, text in ((np.zeros(6, "f4"), TypeError, "float32.*float64"), (np.zeros(5), ValueError, r"\(5,\).*\(6,\)"),
                            (np.zeros((2, 3)), ValueError, "shape"), (np.zeros(6, ">f8"), TypeError, "dtype"),
                            ([0.0] * 6, TypeError, "numpy.ndarray"), (bytearray(48), TypeError, "bytearray")):
        with pytest.raises(kind, match=text):
            store.get_array("k", out=bad)
        assert not np.any(bad)
    fixed = np.zeros(6)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        store.get_array("k", out=fixed)


@pytest.mark.parametrize("value", [
    b"", b"short", b"no array at all", b"\x93NUMPY\x09\x00v\x00" + b" " * 118, b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 99,
    b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(118) + b"12345678",
    b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }".ljust(118) + b"12345678",
    b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }".ljust(118) + b"12345678",
    b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (10**99,), }".ljust(118),
    b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<f8', 'fortran_order': 1, 'shape': (1,), }".ljust(118) + b"12345678",
    b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': (), 'fortran_order': False, 'shape': (1,), }".ljust(118) + b"1",
    b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': [('a',[('b',())])], 'fortran_order': False, 'shape': (1,), }".ljust(118) + b"1",
    b"\x93NUMPY\x01\x00\x76\x00" + b"__import__('os').abort()".ljust(118),
    b"\x93NUMPY\x01\x00\x76\x00" + b"[" * 118, b"\x93NUMPY\x02\x00\xf4\xff\x00\x00" + b"(" * 65524,
    b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': [(('ml_dtypes','nothing'),'<u2')], 'fortran_order': False, 'shape': (1,), }".ljust(118) + b"12",
])
def test_a_value_that_is_no_array(store: penstock.Store, value: bytes) -> None:
    store.put("k", value)
    for read in (lambda: store.get_array("k"), lambda: store.get_array("k", copy=True),
                 lambda: store.get_array("k", out=np.zeros(1))):
        with pytest.raises(ValueError):
            read()
    assert store.get("k") == value


def npy(descr: object, data: bytes) -> bytes:
    """A value of one such element."""
    return b"\x93NUMPY\x01\x00\x76\x00" + repr({"descr": descr, "fortran_order": False, "shape": (1,)}).encode().ljust(118) + data


def test_a_title_names_numbers_of_ml_dtypes_alone() -> None:
    """What else the package has NumPy would take for objects, and the value's bytes for their addresses."""
    with penstock.open("mem:?dram=16M") as store:
        for name, item_bytes in itertools.product(sorted({*dir(ml_dtypes), "finfo", "iinfo", "__name__"}), (1, 2, 4, 8)):
            store.put("k", npy([(("ml_dtypes", name), f"<u{item_bytes}")], b"A" * item_bytes))
            try:
                dtype = store.get_array("k").dtype
            except ValueError:
                continue
            assert (dtype.name, dtype.itemsize, dtype.isbuiltin, dtype.hasobject) == (name, item_bytes, 2, False)
            assert issubclass(dtype.type, np.generic)


def test_conditions(store: penstock.Store) -> None:
    generation = store.put_array("k", GRID, if_absent=True, checksum=True)
    with pytest.raises(penstock.Exists):
        store.put_array("k", GRID, if_absent=True)
    store.put_array("k", GRID + 1, if_generation=generation)
    with pytest.raises(penstock.Stale):
        store.put_array("k", GRID, if_generation=generation)
    with pytest.raises(KeyError):
        store.get_array("none")


def test_dlpack(store: penstock.Store) -> None:
    class Exported:
        """Has DLPack's methods alone."""

        def __dlpack__(self, **options: object) -> object:
            return GRID.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return GRID.__dlpack_device__()

    store.put_array("k", Exported())
    assert same(np.from_dlpack(store.get_array("k")), GRID)


def test_a_cache_prefix_is_warned_of_once(store: penstock.Store) -> None:
    with pytest.warns(CacheWarning, match="cache/a"):
        store.put_array("cache/a", GRID)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.put_array("cache/b", GRID)
        store.put_array("elsewhere/a", GRID)


READER = """
import sys, numpy, penstock
with penstock.open(sys.argv[1]) as store:
    for name in store.keys("a/"):
        array = store.get_array(name)
        print(name, array.dtype.str, array.shape, array.tobytes().hex())
"""


def test_another_process_reads_them(urls: dict[str, str]) -> None:
    names = ("C order", "byte-swapped", "dates", "0-d")
    for kind in ("unix", "tcp"):
        with penstock.open(urls[kind]) as store:
            store.delete_prefix("")
            for name in names:
                store.put_array(f"a/{name}", ARRAYS[name])
            read = subprocess.run([sys.executable, "-c", READER, urls[kind]], capture_output=True, text=True, check=True,
                                  timeout=60, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
            expected = [f"a/{name} {ARRAYS[name].dtype.str} {ARRAYS[name].shape} {ARRAYS[name].tobytes().hex()}"
                        for name in sorted(names)]
            assert read.stdout.splitlines() == expected
