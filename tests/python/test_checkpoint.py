# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint through penstock, in one process and in several."""
from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner  # noqa: E402

import penstock  # noqa: E402
from penstock._places import CacheWarning, shared_store  # noqa: E402
from members import master, member  # noqa: E402
from penstock.checkpoint import METADATA, PenstockReader, PenstockWriter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(params=("mem", "unix", "tcp"))
def url(request: pytest.FixtureRequest, urls: dict[str, str]) -> Any:
    handle = shared_store(urls[request.param])
    handle.delete_prefix("")
    yield urls[request.param]


def floats(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def state(seed: int) -> dict[str, Any]:
    return {
        "model": {"w": floats(40, 30, seed=seed), "b": floats(30, seed=seed + 1).bfloat16(),
                  "t": floats(8, 6, seed=seed + 2).T, "e": torch.zeros(0, 4), "s": torch.tensor(float(seed)),
                  "f8": floats(16, seed=seed).to(torch.float8_e4m3fn)},
        "optimizer": [{"lr": 0.5 * seed}, floats(3, seed=seed)],
        "step": seed,
    }


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, torch.Tensor):
        return ours.dtype == theirs.dtype and ours.shape == theirs.shape and bits(ours) == bits(theirs)
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs


def test_save_and_load(url: str) -> None:
    saved, found = state(1), state(2)
    dcp.save(saved, storage_writer=PenstockWriter(url, "run/1"), no_dist=True)
    dcp.load(found, storage_reader=PenstockReader(url, "run/1"), no_dist=True)
    assert same(found, saved)
    handle = shared_store(url)
    assert b"pickle" not in handle.get(f"run/1/{METADATA}")
    values = [entry for entry in handle.list("run/1/") if entry.size == 40 * 30 * 4]
    assert [handle.get(entry.key) for entry in values] == [bits(saved["model"]["w"])]


def test_conjugated_views_and_what_is_no_tensor(url: str) -> None:
    base = torch.tensor([1 + 2j, 3 - 4j])
    state = {"conj": base.conj(), "neg": base.conj().imag, "raw": b"bytes", "size": torch.Size([2]), "step": 7}
    dcp.save(state, storage_writer=PenstockWriter(url, "conj"), no_dist=True)
    found = {"conj": torch.zeros(2, dtype=base.dtype), "neg": torch.zeros(2), "raw": b"", "size": torch.Size([]), "step": 0}
    dcp.load(found, storage_reader=PenstockReader(url, "conj"), no_dist=True)
    assert torch.equal(found["conj"], base.conj().resolve_conj()) and torch.equal(found["neg"], -base.imag)
    assert (found["raw"], found["size"], found["step"]) == (b"bytes", torch.Size([2]), 7)


def test_saving_over_one_replaces_it(url: str) -> None:
    handle = shared_store(url)
    handle.put("run/1/notes", b"somebody else's")
    for seed in (1, 2, 3):
        dcp.save(state(seed), storage_writer=PenstockWriter(url), checkpoint_id="run/1", no_dist=True)
        count = len(handle)
    found = state(4)
    dcp.load(found, storage_reader=PenstockReader(url), checkpoint_id="run/1", no_dist=True)
    assert same(found, state(3)) and handle.get("run/1/notes") == b"somebody else's"
    dcp.save({"w": floats(1)}, storage_writer=PenstockWriter(url, "run/2"), no_dist=True)
    assert len(handle) == count + 2


class Broken(PenstockWriter):
    """Ends before the metadata."""

    def finish(self, *args: Any, **options: Any) -> None:
        raise OSError("it broke")


class Overtaken(PenstockWriter):
    """Another save of `theirs` begins and ends before the metadata."""

    theirs: dict[str, Any]

    def finish(self, *args: Any, **options: Any) -> None:
        dcp.save(self.theirs, storage_writer=PenstockWriter(self.url, self.checkpoint_id), no_dist=True)
        super().finish(*args, **options)


def loaded(url: str, checkpoint_id: str) -> torch.Tensor:
    found = {"w": torch.zeros(9)}
    dcp.load(found, storage_reader=PenstockReader(url, checkpoint_id), no_dist=True)
    return found["w"]


def test_a_writer_keeps_the_store_that_nobody_else_uses() -> None:
    writer = PenstockWriter("mem:?dram=16M&shards=1", "run")
    dcp.save({"w": floats(9)}, storage_writer=writer, no_dist=True)
    assert torch.equal(loaded(writer.url, "run"), floats(9))


def test_two_saves_at_once_leave_one_of_them(url: str) -> None:
    dcp.save({"w": floats(9)}, storage_writer=PenstockWriter(url, "run"), no_dist=True)
    ours = Overtaken(url, "run")
    ours.theirs = {"w": floats(9, seed=2)}
    with pytest.raises(CheckpointException, match="another save to 'run' has ended"):
        dcp.save({"w": floats(9, seed=3)}, storage_writer=ours, no_dist=True)
    assert torch.equal(loaded(url, "run"), floats(9, seed=2))
    assert len(shared_store(url)) == 2


def test_one_that_lies_anywhere_is_not_replaced(tmp_path: pathlib.Path) -> None:
    with master(tmp_path) as m, member(m):
        m.has(1)
        url = f"pool://{m.address}"
        dcp.save({"w": floats(9)}, storage_writer=PenstockWriter(url, "run"), no_dist=True)
        with pytest.raises(CheckpointException, match="'run' is there"):
            dcp.save({"w": floats(9, seed=2)}, storage_writer=PenstockWriter(url, "run"), no_dist=True)
        assert torch.equal(loaded(url, "run"), floats(9)) and len(shared_store(url)) == 2


def test_a_broken_save_leaves_what_was_there_and_the_next_one_sweeps(url: str) -> None:
    dcp.save({"w": floats(9)}, storage_writer=PenstockWriter(url, "run"), no_dist=True)
    with pytest.raises(CheckpointException, match="it broke"):
        dcp.save({"w": floats(9, seed=2)}, storage_writer=Broken(url, "run"), no_dist=True)
    assert torch.equal(loaded(url, "run"), floats(9)) and len(shared_store(url)) == 3
    dcp.save({"w": floats(9, seed=3)}, storage_writer=PenstockWriter(url, "run"), no_dist=True)
    assert torch.equal(loaded(url, "run"), floats(9, seed=3)) and len(shared_store(url)) == 2


def test_a_plan_that_torch_uses_again_writes_over_nothing(url: str) -> None:
    class Caching(DefaultSavePlanner):
        """Plans that torch keeps, by the name of their class."""

    for seed, writer in ((1, PenstockWriter), (2, PenstockWriter), (3, Broken)):
        try:
            dcp.save({"w": floats(9, seed=seed)}, storage_writer=writer(url, "run"), no_dist=True,
                     planner=Caching(enable_plan_caching=True))
        except CheckpointException:
            assert writer is Broken
        assert torch.equal(loaded(url, "run"), floats(9, seed=min(seed, 2)))


def test_checkpoints_below_another_stay(url: str) -> None:
    below = ("runs/0123456789abcdef", "runs/0123456789abcdef/0.0")
    for checkpoint_id in (*below, "runs"):
        dcp.save({"w": floats(9)}, storage_writer=PenstockWriter(url, checkpoint_id), no_dist=True)
    for checkpoint_id in (*below, "runs"):
        assert torch.equal(loaded(url, checkpoint_id), floats(9))


def test_parts_and_what_is_missing(url: str) -> None:
    dcp.save(state(1), storage_writer=PenstockWriter(url, "run/1"), no_dist=True)
    part = {"model": {"w": torch.zeros(40, 30)}}
    dcp.load(part, storage_reader=PenstockReader(url, "run/1"), no_dist=True)
    assert same(part["model"]["w"], state(1)["model"]["w"])
    with pytest.raises(CheckpointException, match="more"):
        dcp.load({"more": torch.zeros(1)}, storage_reader=PenstockReader(url, "run/1"), no_dist=True)
    with pytest.raises(CheckpointException, match="no checkpoint 'run/9'"):
        dcp.load(part, storage_reader=PenstockReader(url, "run/9"), no_dist=True)


@pytest.mark.parametrize("text", [b"", b"nonsense", b"[]", b'{"format":2}', b'{"format":1,"items":{"w":{"dtype":"save","size":[1],"chunks":[]}}}',
                                  b'{"format":1,"items":{"w":5},"paths":null,"values":[]}'])
def test_damaged_metadata(url: str, text: bytes) -> None:
    shared_store(url).put(f"run/1/{METADATA}", text)
    with pytest.raises(CheckpointException, match="malformed"):
        dcp.load({"w": torch.zeros(1)}, storage_reader=PenstockReader(url, "run/1"), no_dist=True)


def test_a_value_of_another_size(url: str) -> None:
    handle = shared_store(url)
    dcp.save({"w": floats(100)}, storage_writer=PenstockWriter(url, "run/1"), no_dist=True)
    [value] = [entry.key for entry in handle.list("run/1/") if entry.size == 400]
    handle.put(value, bytes(399))
    with pytest.raises(CheckpointException, match="has 399 bytes"):
        dcp.load({"w": torch.zeros(100)}, storage_reader=PenstockReader(url, "run/1"), no_dist=True)


def test_a_cache_prefix_is_warned_of(url: str) -> None:
    with pytest.warns(CacheWarning, match="cache/run"):
        dcp.save({"w": floats(1)}, storage_writer=PenstockWriter(url, "cache/run"), no_dist=True)


RANK = """
import datetime, sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from penstock.checkpoint import PenstockReader, PenstockWriter
what, url, rank, world, rendezvous = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=60))
mesh = init_device_mesh("cpu", (world,))
whole = torch.arange(60.0).reshape(10, 6)
dim = 0 if what != "load columns" else 1
full = whole if what.startswith("save") else torch.zeros(10, 6)
state = {"w": distribute_tensor(full, mesh, [Shard(dim)]), "r": distribute_tensor(full + 1, mesh, [Replicate()]), "step": 7 if what.startswith("save") else 0}
if what == "save":
    dcp.save(state, storage_writer=PenstockWriter(url, "run/dist"))
elif what == "save in the background":
    dcp.async_save(state, storage_writer=PenstockWriter(url, "run/dist")).result()
else:
    dcp.load(state, storage_reader=PenstockReader(url, "run/dist"))
    assert torch.equal(state["w"].full_tensor(), whole), state["w"]
    assert torch.equal(state["r"].to_local(), whole + 1) and state["step"] == 7
dist.barrier()
dist.destroy_process_group()
"""


def run_ranks(what: str, url: str, world: int, rendezvous: pathlib.Path) -> None:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), OMP_NUM_THREADS="1")
    ranks = [subprocess.Popen([sys.executable, "-c", RANK, what, url, str(rank), str(world), str(rendezvous)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
             for rank in range(world)]
    try:
        outputs = [rank.communicate(timeout=150)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * world, "\n".join(outputs)


def test_two_ranks_save_and_three_load(urls: dict[str, str], tmp_path: pathlib.Path) -> None:
    run_ranks("save", urls["tcp"], 2, tmp_path / "a")
    run_ranks("load columns", urls["tcp"], 3, tmp_path / "b")


def test_saved_in_the_background(urls: dict[str, str], tmp_path: pathlib.Path) -> None:
    run_ranks("save in the background", urls["unix"], 2, tmp_path / "a")
    run_ranks("load rows", urls["unix"], 2, tmp_path / "b")
