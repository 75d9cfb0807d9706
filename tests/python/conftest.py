# SPDX-License-Identifier: Apache-2.0
"""The package as the build has it, and stores of every kind to run it on."""
from __future__ import annotations

import pathlib
import sys
import time
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
pytest.register_assert_rewrite("members", "support", "tutorial")

import support  # noqa: E402

sys.path.insert(0, str(support.BUILD / "python"))
from members import Master, master, member  # noqa: E402
from support import pytest_runtest_makereport, pytest_runtest_teardown  # noqa: E402, F401: pytest calls them

if not list((support.BUILD / "python").glob("penstock/_core.*")):
    collect_ignore_glob = ["test_*.py"]  # built without Python's headers
else:
    import penstock

if TYPE_CHECKING:
    from penstock.fs import PenstockFileSystem

KINDS = ("mem", "unix", "tcp", "pool")


def is_settled(m: Master) -> bool:
    """All partitions are served, and none has gone to another node for longer than a watch looks away."""
    moved = m.figures()["balanced"]
    time.sleep(1.5)
    return bool(m.ask("partitions")["served"] == 4096 and m.figures()["balanced"] == moved)


@pytest.fixture(scope="session")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A URL of each kind; both kinds of node are one penstockd, a pool is two, where every key has a home."""
    folder = tmp_path_factory.mktemp("node")
    socket, cache = folder / "socket", ("--class", "cache/=cache")
    half = ("--dram=128M", "--shards=1")
    patient = ("--member-ttl-ms=10000", "--lease-ms=3000", "--lease-margin-ms=1000")
    with (support.start_node("--dram", "256M", "--shards", "2", "--unix", str(socket), "--listen", "127.0.0.1:0", *cache,
                             listeners=2) as node,
          master(folder, *patient, "--nodes-min=2", place=None) as m, member(m, *half, *cache), member(m, *half, *cache)):
        m.has(2)
        support.wait_until("the pool has settled", lambda: is_settled(m))
        yield {"mem": "mem:?dram=256M&shards=2&cache=cache/", "unix": f"node+unix://{socket}", "tcp": f"{node.tcp}?lane=tcp",
               "pool": f"pool://{m.address}"}
        node.stop()


@pytest.fixture
def wrappers() -> Iterator[dict[str, Any]]:
    """Tensors of torch that have no memory of their own, by their class's name."""
    torch, distributed = pytest.importorskip("torch"), pytest.importorskip("torch.distributed")
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import distribute_tensor
    from torch.masked import masked_tensor

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # masked tensors are a prototype
            yield {"DTensor": distribute_tensor(torch.ones(4), DeviceMesh("cpu", [0])),
                   "FakeTensor": FakeTensorMode().from_tensor(torch.ones(4)),
                   "MaskedTensor": masked_tensor(torch.ones(4), torch.tensor([True, False, True, True]))}
    finally:
        distributed.destroy_process_group()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, urls: dict[str, str]) -> Iterator[penstock.Store]:
    """An empty store of each kind in turn."""
    with penstock.open(urls[request.param]) as store:
        store.delete_prefix("")
        yield store


@pytest.fixture(params=KINDS)
def filesystem(request: pytest.FixtureRequest, urls: dict[str, str]) -> PenstockFileSystem:
    """A filesystem without files, of each kind of store in turn."""
    from penstock.fs import PenstockFileSystem

    fs = PenstockFileSystem(urls[request.param])
    fs.store.delete_prefix("")
    return fs


@pytest.fixture
def fs(filesystem: PenstockFileSystem) -> PenstockFileSystem:
    return filesystem
