# SPDX-License-Identifier: Apache-2.0
"""Real data through the packages that people use: in through one process, out identical through another."""
from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import Any

import pytest

np = pytest.importorskip("numpy")

import support  # noqa: E402

import penstock  # noqa: E402
from penstock._places import shared_store  # noqa: E402

NODES = ("unix", "tcp")


def python(code: str, *arguments: str) -> str:
    """Runs another Python, which must succeed; what it printed."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=180,
                          env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(params=NODES)
def url(request: pytest.FixtureRequest, urls: dict[str, str]) -> str:
    with penstock.open(urls[request.param]) as store:
        store.delete_prefix("")
    return urls[request.param]


# ---- pandas, pyarrow, xarray, dask

FRAME = """
import fsspec, numpy, pandas, penstock.fs, sys
options = {"store_url": sys.argv[1]}
def frame():
    random = numpy.random.default_rng(7)
    return pandas.DataFrame({"id": range(5000), "x": random.random(5000), "name": [f"n{i % 17}" for i in range(5000)],
                             "day": pandas.date_range("2026-01-01", periods=5000, freq="h")})
"""


def test_pandas_csv(url: str) -> None:
    pytest.importorskip("pandas")
    python(FRAME + "frame().to_csv('penstock:///tables/a.csv.gz', index=False, storage_options=options)", url)
    python(FRAME + """
found = pandas.read_csv('penstock:///tables/a.csv.gz', storage_options=options, parse_dates=['day'])
pandas.testing.assert_frame_equal(found, frame(), check_dtype=False)
""", url)


def test_pandas_and_pyarrow_parquet(url: str) -> None:
    pytest.importorskip("pyarrow")
    python(FRAME + "frame().to_parquet('penstock:///tables/a.parquet', storage_options=options, row_group_size=500)", url)
    python(FRAME + """
import pyarrow.parquet
pandas.testing.assert_frame_equal(pandas.read_parquet('penstock:///tables/a.parquet', storage_options=options), frame())
fs = fsspec.filesystem("penstock", **options)
part = pyarrow.parquet.read_table("tables/a.parquet", filesystem=fs, columns=["x"], filters=[("id", ">=", 4990)])
assert part["x"].to_pylist() == list(frame()["x"][4990:])
pyarrow.parquet.write_to_dataset(pyarrow.Table.from_pandas(frame()), "sets/b", partition_cols=["name"], filesystem=fs)
again = pyarrow.parquet.read_table("sets/b", filesystem=fs)
assert sorted(again["id"].to_pylist()) == list(range(5000)) and len(fs.ls("sets/b")) == 17
""", url)


def test_xarray(url: str) -> None:
    pytest.importorskip("xarray")
    code = """
import sys, numpy, xarray
from penstock.zarr import PenstockStore
data = xarray.Dataset({"t": (("time", "x"), numpy.random.default_rng(3).random((40, 30), "f4"))},
                      coords={"time": numpy.arange("2026-01-01", "2026-02-10", dtype="M8[D]"), "x": range(30)}, attrs={"title": "t"})
store = PenstockStore(sys.argv[1], "sets/c")
"""
    python(code + "data.to_zarr(store, mode='w', consolidated=False)", url)
    python(code + """
found = xarray.open_zarr(store, consolidated=False, chunks=None)
xarray.testing.assert_identical(found.load(), data)
assert float(found.t.sel(time="2026-01-05", x=3)) == float(data.t[4, 3])
""", url)


def test_xarray_through_a_url(url: str) -> None:
    pytest.importorskip("xarray")
    code = """
import fsspec, numpy, sys, xarray
import penstock.fs
data = xarray.Dataset({"v": (("x",), numpy.arange(1000.0))})
options = {"store_url": sys.argv[1]}
data.to_zarr("penstock:///sets/d", mode="w", storage_options=options, consolidated=False)
xarray.testing.assert_identical(xarray.open_zarr("penstock:///sets/d", storage_options=options, consolidated=False, chunks=None).load(), data)
"""
    python(code, url)


def test_dask(url: str) -> None:
    pytest.importorskip("dask")
    code = """
import sys, numpy
import dask, dask.array, dask.bag
import penstock.fs
from penstock.zarr import PenstockStore
if __name__ == "__main__":
    source = numpy.random.default_rng(3).random((200, 300))
    store = PenstockStore(sys.argv[1], "sets/e")
    dask.array.from_array(source, chunks=(50, 100)).to_zarr(store, component="a", overwrite=True)
    lazy = dask.array.from_zarr(store, component="a")
    for scheduler in ("threads", "processes"):
        with dask.config.set(scheduler=scheduler, num_workers=2):
            assert numpy.allclose(lazy.sum().compute(), source.sum())
            assert (lazy[10:20].compute() == source[10:20]).all()
    options = {"store_url": sys.argv[1]}
    dask.bag.from_sequence(map(str, range(100)), npartitions=4).to_textfiles("penstock:///bags/*.txt", storage_options=options)
    assert dask.bag.read_text("penstock:///bags/*.txt", storage_options=options).map(int).sum().compute(scheduler="threads") == 4950
"""
    python(code, url)


# ---- photographs, digits, a module


def digest_code(body: str) -> str:
    return """
import hashlib, sys, numpy, penstock
def digest(*arrays):
    return hashlib.sha256(b"".join(repr((a.dtype.str, a.shape)).encode() + a.tobytes() for a in arrays)).hexdigest()
""" + body


def test_photographs_and_digits(url: str) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    written = python(digest_code("""
import pathlib, sklearn.datasets, zarr
from penstock.zarr import PenstockStore
photographs, digits = sklearn.datasets.load_sample_images(), sklearn.datasets.load_digits()
with penstock.open(sys.argv[1]) as store:
    for name, image in zip(photographs.filenames, photographs.images):
        store.put_array(f"photographs/{pathlib.Path(name).name}", image)
    store.put_array("digits/data", digits.data)
    store.put_array("digits/target", digits.target)
zarr.create_array(PenstockStore(sys.argv[1], "zarr"), name="photographs", data=numpy.stack(photographs.images), chunks=(1, 100, 640, 3))
print(digest(*photographs.images, digits.data, digits.target))
"""), url)
    read = python(digest_code("""
import zarr
from penstock.zarr import PenstockStore
with penstock.open(sys.argv[1]) as store:
    images = [store.get_array(name) for name in ("photographs/china.jpg", "photographs/flower.jpg")]
    stacked = zarr.open_array(PenstockStore(sys.argv[1], "zarr"), path="photographs")[:]
    assert (stacked == numpy.stack(images)).all()
    print(digest(*images, store.get_array("digits/data"), store.get_array("digits/target", copy=True)))
"""), url)
    images, digits = datasets.load_sample_images().images, datasets.load_digits()
    expected = hashlib.sha256(b"".join(repr((a.dtype.str, a.shape)).encode() + a.tobytes()
                                       for a in (*images, digits.data, digits.target))).hexdigest()
    assert written.strip() == read.strip() == expected
    with penstock.open() as store:  # and in this process
        for i, image in enumerate(images):
            store.put_array(str(i), image)
            assert (store.get_array(str(i)) == image).all()


RESNET = """
import hashlib, sys, torch, penstock
from torch import nn
from penstock.tensors import load_state_dict, save_state_dict

class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside)
        self.conv2, self.bn2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)
        self.downsample = None if stride == 1 else nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        out = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (out + (x if self.downsample is None else self.downsample(x))).relu()

class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        self.layers = nn.Sequential(*(nn.Sequential(Block(i, o, s), Block(o, o, 1)) for i, o, s in widths))
        self.fc = nn.Linear(512, 1000)

    def forward(self, x):
        return self.fc(self.layers(self.stem(x)).mean((2, 3)))

def digest(state):
    return hashlib.sha256(b"".join(name.encode() + t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for name, t in state.items())).hexdigest()

torch.set_num_threads(1)
"""


def test_a_module_s_state_dict(url: str) -> None:
    pytest.importorskip("torch")
    written = python(RESNET + """
torch.manual_seed(3)
module = ResNet18().eval()
with penstock.open(sys.argv[1]) as store:
    save_state_dict(store, "resnet18", module.state_dict())
print(sum(p.numel() for p in module.parameters()), digest(module.state_dict()), digest({"out": module(torch.ones(1, 3, 64, 64)).detach()}))
""", url)
    read = python(RESNET + """
module = ResNet18().eval()
with penstock.open(sys.argv[1]) as store:
    load_state_dict(store, "resnet18", into=module.state_dict())
    assert digest(load_state_dict(store, "resnet18", copy=None)) == digest(module.state_dict())
print(sum(p.numel() for p in module.parameters()), digest(module.state_dict()), digest({"out": module(torch.ones(1, 3, 64, 64)).detach()}))
""", url)
    assert written == read and written.startswith("11689512 ")


# ---- memory


def test_views_of_two_gibibytes_cost_no_memory(tmp_path: Any) -> None:
    """A reader of 2 GiB in place keeps what it has of its own below 16 MiB more than before."""
    if support.sanitized():
        pytest.skip("a sanitizer's memory")
    with support.start_node("--unix", f"{tmp_path}/socket", "--dram", "2304M", "--shards", "2") as node:
        url = f"node+unix://{tmp_path}/socket"
        with penstock.open(url) as store:
            value = store.stream("part")
            value.abort()
            part = np.arange(1 << 25, dtype="u8")
            header = store.put_array("header", np.zeros(0, "u8"))
            assert header
            put_large(store, part, 8)
        output = python("""
import re, sys, numpy, penstock
def private():
    text = open("/proc/self/smaps_rollup").read()
    return sum(int(re.search(rf"{name}:\\s+(\\d+)", text)[1]) for name in ("Private_Clean", "Private_Dirty")) << 10
with penstock.open(sys.argv[1]) as store:
    store.get_array("small").sum()
    before = private()
    array = store.get_array("large", copy=False)
    total = sum(int(array[i:i + (1 << 20)].sum()) for i in range(0, len(array), 1 << 20))
    print(array.nbytes, total, private() - before)
""", url)
        nbytes, total, grown = map(int, output.split())
        assert nbytes == 2 << 30 and total == 8 * (((1 << 25) * ((1 << 25) - 1)) // 2) and grown <= 16 << 20
        node.stop()


def put_large(store: penstock.Store, part: Any, times: int) -> None:
    """An array of `times` times `part`, without that much memory here."""
    from penstock.arrays import _header_bytes
    store.put_array("small", part[:10])
    with store.stream("large") as stream:
        stream.write(_header_bytes(repr(part.dtype), part.dtype, (times * len(part),), False))
        for _ in range(times):
            stream.write(part)
        stream.commit()
