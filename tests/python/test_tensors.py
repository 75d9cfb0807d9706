# SPDX-License-Identifier: Apache-2.0
"""State dicts and safetensors files: what went in comes out, in other processes and programs too; nothing is pickled."""
from __future__ import annotations

import copy
import json
import os
import pathlib
import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

import penstock  # noqa: E402
from penstock import safetensors  # noqa: E402
from penstock._places import CacheWarning  # noqa: E402
from penstock.safetensors import FormatError  # noqa: E402
from penstock.tensors import load_state_dict, save_state_dict  # noqa: E402
from penstock.weights import Publisher, Subscriber  # noqa: E402


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, torch.Tensor):
        return ours.dtype == theirs.dtype and ours.shape == theirs.shape and bits(ours) == bits(theirs)
    if isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(same(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, (list, tuple)):
        return type(ours) is type(theirs) and len(ours) == len(theirs) and all(map(same, ours, theirs))
    return type(ours) is type(theirs) and ours == theirs


def shared(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def floats(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


DTYPES = [getattr(torch, name) for name in (
    "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64",
    "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu") if hasattr(torch, name)]


@pytest.fixture
def nested() -> dict[Any, Any]:
    weight, line = floats(30, 20), torch.arange(100.0)
    return {
        "weight": weight,
        "inner": {"tied": weight, "transposed": weight.T, "rows": weight[5:10], "bfloat16": floats(7).bfloat16()},
        3: [1, 2.5, float("inf"), None, "text", True, (torch.tensor(7), torch.empty(0, 3))],
        "every other": line.reshape(10, 10)[:, ::2],
        "first": line[:60], "last": line[40:],
        "scalar": torch.zeros(()),
        "odd bytes": torch.arange(7, dtype=torch.uint8),
        "a.b": floats(2), "a": {"b": floats(3)},
        "empty": {},
    }


def test_it_comes_back(store: penstock.Store, nested: dict[Any, Any]) -> None:
    generation = save_state_dict(store, "m", nested)
    assert store.head("m").generation == generation
    for copied in (True, None):
        assert same(load_state_dict(store, "m", copy=copied), nested)
    if store.lane == "tcp":
        with pytest.raises(penstock.Unsupported):
            load_state_dict(store, "m", copy=False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(store: penstock.Store, dtype: torch.dtype) -> None:
    raw = torch.arange(96, dtype=torch.uint8) % (2 if dtype == torch.bool else 100)
    tensor = raw.view(dtype)
    state = {"odd": raw[:3].clone(), "t": tensor, "0-d": tensor[1].clone(), "strided": tensor[::2]}
    save_state_dict(store, "m", state)
    for copied in (True, None):
        assert same(load_state_dict(store, "m", copy=copied), state)
    into = {name: torch.zeros_like(value) for name, value in state.items()}
    assert same(load_state_dict(store, "m", into=into), state)


def test_tied_tensors_are_stored_once_and_tied_again(store: penstock.Store, nested: dict[Any, Any]) -> None:
    save_state_dict(store, "m", {"a": floats(1000), "b": floats(1000)})
    twice = store.head("m").size
    weight = floats(1000)
    save_state_dict(store, "m", {"a": weight, "b": weight})
    assert store.head("m").size < twice - 3500
    save_state_dict(store, "m", nested)
    back = load_state_dict(store, "m")
    inner = back["inner"]
    assert shared(back["weight"], inner["tied"]) and shared(back["weight"], inner["transposed"])
    back["weight"][5, 0] = 99
    assert inner["transposed"][0, 5] == inner["rows"][0, 0] == inner["tied"][5, 0] == 99
    back["first"][50] = -1
    assert back["last"][10] == -1 and not shared(back["weight"], back["first"])


def test_conjugated_views_are_stored_as_they_look(store: penstock.Store) -> None:
    base = torch.tensor([1 + 2j, 3 - 1j])
    state = {"base": base, "conj": base.conj(), "negative": base.conj().imag, "one": torch.tensor([1 + 2j]).conj().imag}
    save_state_dict(store, "m", state)
    loaded = load_state_dict(store, "m")
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())


def test_arrays_bytes_and_sizes(store: penstock.Store) -> None:
    arrays = {"f4": np.arange(6, dtype="f4").reshape(2, 3), "back": np.arange(8)[::-1], "0-d": np.array(7), "none": np.zeros((0, 3))}
    read_only = np.arange(3)
    read_only.setflags(write=False)
    state = {"arrays": arrays | {"read-only": read_only}, "raw": [b"", b"\0bytes"], "size": torch.Size([2, 3]),
             "w": torch.ones(2)}
    save_state_dict(store, "k", state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = load_state_dict(store, "k")
    for name, array in state["arrays"].items():
        assert type(found["arrays"][name]) is np.ndarray and found["arrays"][name].dtype == array.dtype
        assert found["arrays"][name].shape == array.shape and np.array_equal(found["arrays"][name], array)
    assert found["raw"] == state["raw"] and found["size"] == torch.Size([2, 3]) and type(found["size"]) is torch.Size
    assert load_state_dict(store, "k", keys="arrays.f4")["arrays"].keys() == {"f4"}
    into = {"arrays": {"f4": np.zeros((2, 3), dtype="f4")}}
    load_state_dict(store, "k", into=into, keys="arrays.f4")
    assert np.array_equal(into["arrays"]["f4"], arrays["f4"])
    for path, target in (("arrays.read-only", read_only), ("arrays.back", np.arange(8)[::-1]), ("raw.1", b"")):
        first, _, last = path.partition(".")
        with pytest.raises(ValueError, match=f"{path}.*cannot be filled"):
            load_state_dict(store, "k", into={first: {last: target}}, keys=path)
    for wrong in (np.array(["text"]), np.array([None]), np.zeros(1, dtype=[("a", "i4")])):
        with pytest.raises(TypeError, match="'a.b' is an array"):
            save_state_dict(store, "k", {"a": {"b": wrong}})


def test_views_of_wider_elements(store: penstock.Store) -> None:
    """They begin where they like within what others have, and values begin at multiples of 8."""
    flat, raw = floats(8), torch.arange(40, dtype=torch.uint8)
    states: list[dict[str, Any]] = [
        {"flat": flat[1:], "z": torch.view_as_complex(flat[2:6].view(2, 2))},
        {"buf": raw[4:], "x": raw[8:24].view(torch.float64)},
        {"buf": raw[3:20], "h": raw[16:32].view(torch.complex128)},
        {"a": floats(3).double(), "x": (pair := floats(4).double()), "z": torch.view_as_complex(pair.view(2, 2))},
        {"a": raw[16:].clone()[1:4], "z": torch.view_as_complex(floats(2, 2).double())[1:]}]
    for state in states:
        for more in range(4):  # the header's length moves what follows
            state["x" * (8 * more + 1) + "y"] = torch.zeros(1, dtype=torch.float64)
            save_state_dict(store, "m", state)
            for copied in (True, None):
                assert same(load_state_dict(store, "m", copy=copied), state)
            into = {name: torch.zeros_like(value) for name, value in state.items()}
            assert same(load_state_dict(store, "m", into=into), state)
    save_state_dict(store, "m", states[1])
    back = load_state_dict(store, "m", copy=True)
    back["buf"][4] = 77
    assert bits(back["x"])[0] == 77


def test_arrays_that_share_memory(store: penstock.Store) -> None:
    """Torch has a storage for each array, from its first element on."""
    a, raw = np.arange(16.0).reshape(4, 4), np.arange(64, dtype="u1")
    loose = [np.ndarray((2,), "f8", raw, offset) for offset in (1, 5)]
    states = [{"t": a.T, "r": a[0]}, {"r": a[0], "t": a.T}, {"a": a, "b": a[2:]},
              {"x": a[:3, ::2], "y": a[1:, 1:], "z": torch.from_numpy(a)[2]},
              {"raw": raw[3:], "wide": raw[8:24].view("f8"), "flat": raw[4:8].view("f4")}, {"one": loose[0], "two": loose[1]},
              {"raw": raw, "one": loose[0], "again": loose[0]}]
    for state in states:
        save_state_dict(store, "k", state)
        for copied in (True, None):
            found = load_state_dict(store, "k", copy=copied)
            assert list(found) == list(state)
            assert all(found[name].tolist() == value.tolist() and type(found[name]) is type(value) for name, value in state.items())
    for state in states[:5]:
        save_state_dict(store, "k", state)
        found = list(load_state_dict(store, "k").values())
        assert np.shares_memory(np.asarray(found[0]), np.asarray(found[1]))
    once = store.put_array("a", a) and store.head("a").size
    save_state_dict(store, "k", {"large": (large := np.zeros(100_000)), "part": large[5:]})
    assert store.head("k").size < large.nbytes + 2 * once


def test_an_empty_tensor_that_is_not_aligned(store: penstock.Store) -> None:
    """Other writers of the format may put it anywhere."""
    header = safetensors.build([("a", "U8", (3,)), ("none", "F64", (0, 2)), ("b", "U8", (5,))], {})
    store.put("m", header + b"12345678")
    for copied in (True, None):
        found = load_state_dict(store, "m", copy=copied)
        assert same(found["none"], torch.empty(0, 2, dtype=torch.float64)) and bits(found["b"]) == b"45678"


def test_a_slice_is_stored_without_what_it_was_cut_from(store: penstock.Store) -> None:
    large = floats(1_000_000)
    save_state_dict(store, "m", {"a": large[5:10], "b": large[500:505]})
    assert store.head("m").size < 1000
    back = load_state_dict(store, "m")
    assert not shared(back["a"], back["b"])


def test_into_tensors_that_are_there(store: penstock.Store, nested: dict[Any, Any]) -> None:
    save_state_dict(store, "m", nested)
    into = copy.deepcopy(nested)
    into["inner"]["bfloat16"] = torch.zeros(14, dtype=torch.bfloat16)[::2]
    pointer = into["weight"].data_ptr()
    for tensor in (into["weight"], into["first"], into["last"], into["odd bytes"], into["every other"], into["a"]["b"]):
        tensor.zero_()
    assert load_state_dict(store, "m", into=into) is into
    assert same(into, nested) and into["weight"].data_ptr() == pointer


def test_tensors_of_one_name_go_where_they_were(store: penstock.Store) -> None:
    """The paths ("a.b",) and ("a", "b") join to one name, as do 1 and "1", and "" adds nothing: whatever the order, none is swapped."""
    state = {"a.b": torch.ones(2), "a": {"b": torch.zeros(2)}, 1: floats(2), "1": floats(2, seed=2), "a.b'": floats(2, seed=3),
             "": {"x": floats(2, seed=4)}, "x": floats(2, seed=5)}
    save_state_dict(store, "m", state)
    room = copy.deepcopy(dict(reversed(state.items())))
    for tensor in (*[one for one in room.values() if isinstance(one, torch.Tensor)], room["a"]["b"], room[""]["x"]):
        tensor.fill_(-1)
    load_state_dict(store, "m", into=room)
    assert same({key: room[key] for key in state}, state)
    for part in ({"a": {"b": torch.ones(2)}}, {"1": torch.ones(2)}, {"a.b'": torch.ones(2)}, {"x": torch.ones(2)}):
        load_state_dict(store, "m", into=part, strict=False)
        assert same(part, {key: state[key] for key in part})
    other = torch.full((2,), 7.0)
    save_state_dict(store, "m", {"x": {"a.b": torch.ones(2), "a": {"b": torch.zeros(2)}}})
    with pytest.raises(ValueError, match="several tensors are called 'x.a.b'"):
        load_state_dict(store, "m", into={"x.a": {"b": other}}, strict=False)
    save_state_dict(store, "m", {"x": {"a": {"b": torch.ones(2)}}})
    with pytest.raises(ValueError, match="several tensors are called 'x.a.b'"):
        load_state_dict(store, "m", into={"x": {"a.b": other}, "x.a": {"b": other}}, strict=False)
    assert (other == 7).all()
    load_state_dict(store, "m", into={"x.a.b": other})  # nothing else is called so
    assert (other == 1).all()
    save_state_dict(store, "m", {"tensor": torch.zeros(2)})
    load_state_dict(store, "m", into=other)
    assert (other == 0).all()


def test_a_module(store: penstock.Store) -> None:
    def module() -> torch.nn.Module:
        stack = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 50, bias=False))
        stack[2].weight = stack[0].weight
        return stack

    torch.manual_seed(1)
    trained = module()
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3, betas=(0.9, 0.99))
    trained(torch.arange(50)).square().mean().backward()
    optimizer.step()
    state = {"model": trained.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}
    save_state_dict(store, "run/1", state)
    torch.manual_seed(2)
    other = module()
    other_optimizer = torch.optim.AdamW(other.parameters())
    back = load_state_dict(store, "run/1", copy=None)
    other.load_state_dict(back["model"])
    other_optimizer.load_state_dict(copy.deepcopy(back["optimizer"]))
    assert same(dict(other.state_dict()), dict(trained.state_dict())) and shared(other[2].weight, other[0].weight)
    assert other_optimizer.state_dict()["param_groups"][0]["betas"] == (0.9, 0.99)
    assert bits(other(torch.arange(5))) == bits(trained(torch.arange(5)))
    third = module()
    load_state_dict(store, "run/1", into=third.state_dict(), keys="model.*", strict=False)
    load_state_dict(store, "run/1", into={"model": third.state_dict()}, keys="model.*")
    assert same(dict(third.state_dict()), dict(trained.state_dict()))


def test_parts(store: penstock.Store) -> None:
    state = {"layers": {str(i): {"w": floats(16, 6, seed=i), "b": floats(6, seed=i + 50)} for i in range(4)}, "n": 4}
    save_state_dict(store, "m", state)
    one = load_state_dict(store, "m", keys="layers.1.*")
    assert same(one, {"layers": {"0": {}, "1": state["layers"]["1"], "2": {}, "3": {}}, "n": 4})
    biases = load_state_dict(store, "m", keys=lambda name: name.endswith(".b"), copy=None)
    assert same(biases["layers"]["3"], {"b": state["layers"]["3"]["b"]})
    for index in (slice(4, 8), (slice(4, 8),), (slice(12, None), slice(1, 3)), slice(0, 0), slice(2, 15, 5),
                  (slice(None), slice(None, None, 2))):
        for copied in (True, None):
            part = load_state_dict(store, "m", keys=["layers.2.w"], slices={"layers.2.w": index}, copy=copied)
            expected = state["layers"]["2"]["w"][index]
            assert same(part["layers"]["2"]["w"], expected)
            room = {"layers": {"2": {"w": torch.zeros(expected.shape)}}}
            load_state_dict(store, "m", into=room, keys="layers.2.w", slices={"layers.2.w": index})
            assert same(room["layers"]["2"]["w"], expected)


def test_strict(store: penstock.Store) -> None:
    save_state_dict(store, "m", {"a": floats(3), "b": floats(4)})
    room = {"a": torch.zeros(3), "c": torch.zeros(1)}
    with pytest.raises(ValueError, match=r"not stored: \['c'\]; nowhere to load into: \['b'\]"):
        load_state_dict(store, "m", into=room)
    assert not room["a"].any()
    load_state_dict(store, "m", into=room, strict=False)
    assert same(room["a"], floats(3)) and not room["c"].any()
    for bad, kind, text in ((torch.zeros(3, dtype=torch.float64), TypeError, "float32.*float64"),
                            (torch.zeros(4), ValueError, r"shape \(3,\).*\(4,\)")):
        with pytest.raises(kind, match=text):
            load_state_dict(store, "m", into={"b": torch.zeros(4), "a": bad})
        assert not bad.any()
    with pytest.raises(ValueError, match="not stored"):
        load_state_dict(store, "m", slices={"x": slice(1)})
    with pytest.raises(KeyError):
        load_state_dict(store, "none")


def test_what_cannot_be_filled_is_named_first(store: penstock.Store) -> None:
    save_state_dict(store, "m", {"a": floats(4), "t": floats(4)})
    room = torch.zeros(4)
    for bad, text in ((torch.empty(4, device="meta"), "'t' is on the meta device"), (torch.zeros(1).expand(4), "'t' has elements on top"),
                      (np.ma.zeros(4, dtype="f4"), "'t' is a masked array")):
        with pytest.raises((TypeError, ValueError), match=text):
            load_state_dict(store, "m", into={"a": room, "t": bad})
        assert not room.any()


def test_what_would_need_pickling_is_refused(store: penstock.Store) -> None:
    class Own:
        pass

    sparse = torch.eye(3).to_sparse()
    for bad, text in (({"a": {"b": Own()}}, "'a.b' is a Own and would need pickling"), ({"f": print}, "pickling"),
                      ({(1, 2): floats(1)}, "neither text nor a whole number"), ({"s": {1, 2}}, "set"),
                      ({"x": sparse}, "dense"), ({"x": torch.empty(3, device="meta")}, "meta"),
                      ({"n": np.float64(1)}, "float64"), ({"n": np.ma.array([1.0, 2.0], mask=[0, 1])}, "'n' is a masked array")):
        with pytest.raises(TypeError, match=text):
            save_state_dict(store, "m", bad)
    endless: dict[str, Any] = {}
    endless["again"] = endless
    with pytest.raises(ValueError, match="nested deeper"):
        save_state_dict(store, "m", endless)
    assert not store.exists("m")


def test_tensors_without_memory_of_their_own_are_refused(wrappers: dict[str, Any]) -> None:
    with penstock.open("mem:?dram=16M") as store:
        for kind, tensor in wrappers.items():
            for put in (lambda: store.put_array("k", tensor), lambda: save_state_dict(store, "k", {"w": tensor}),
                        lambda: Publisher(store, "k").publish({"w": tensor}), lambda: Subscriber(store, "k", {"w": tensor})):
                with pytest.raises(TypeError, match=f"is a {kind} without memory of its own"):
                    put()
        assert not list(store.keys())
        save_state_dict(store, "k", {"w": floats(4)})
        other = torch.zeros(4)
        for kind, tensor in wrappers.items():
            save_state_dict(store, "k", {"other": floats(4), "w": floats(4)})
            with pytest.raises(ValueError, match=f"'w' is a {kind} without memory of its own"):
                load_state_dict(store, "k", into={"other": other, "w": tensor})
            assert not other.any()
        own = torch.nn.Parameter(floats(4))
        for put in (lambda: store.put_array("k", own.detach()), lambda: save_state_dict(store, "k", {"w": own}),
                    lambda: Publisher(store, "k").publish({"w": own})):
            put()


def test_more_tensors_than_one_put_takes(store: penstock.Store) -> None:
    state = {f"t{i}": torch.full((17_000,), i, dtype=torch.int32) for i in range(1100)}
    save_state_dict(store, "m", state)
    assert same(load_state_dict(store, "m"), state)
    into = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    assert same(load_state_dict(store, "m", into=into), state)


def test_conditions(store: penstock.Store) -> None:
    generation = save_state_dict(store, "m", {"a": floats(2)}, if_absent=True, checksum=True)
    with pytest.raises(penstock.Exists):
        save_state_dict(store, "m", {}, if_absent=True)
    save_state_dict(store, "m", {"a": floats(3)}, if_generation=generation)
    with pytest.raises(penstock.Stale):
        save_state_dict(store, "m", {}, if_generation=generation)


def test_readers_never_mix_two_states(store: penstock.Store) -> None:
    states = [{"a": torch.full((300_000,), float(i)), "b": torch.full((4,), float(i))} for i in range(2)]
    save_state_dict(store, "m", states[0])
    ended = threading.Event()

    def write() -> None:
        for i in range(100):
            save_state_dict(store, "m", states[i % 2])
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while not ended.is_set():
        try:
            found = load_state_dict(store, "m", keys=lambda name: True)
        except penstock.Stale:
            continue
        assert same(found, states[0]) or same(found, states[1])
        reads += 1
    writer.join()
    assert reads or store.lane == "tcp"


@pytest.mark.parametrize("change", [
    {"tree": {"d": [["a", {"t": "a"}, 1]]}}, {"tree": 5}, {"tree": {"x": []}}, {"views": 5}, {"tree": {"v": [1]}},
    {"views": {"v": {"of": "none", "dtype": "float32", "offset": 0, "shape": [1], "stride": [1]}}},
    {"views": {"v": {"of": "a", "dtype": "float32", "offset": 0, "shape": [5], "stride": [1]}}},
    {"views": {"v": {"of": "a", "dtype": "float32", "offset": 2, "shape": [1], "stride": [1]}}},
    {"views": {"v": {"of": "a", "dtype": "float32", "offset": 0, "shape": [2], "stride": [2**40]}}},
    {"views": {"v": {"of": "a", "dtype": "float32", "offset": -4, "shape": [1], "stride": [1]}}},
    {"views": {"v": {"of": "a", "dtype": "save", "offset": 0, "shape": [1], "stride": [1]}}},
    {"views": {"v": 5}}, {"views": {"v": {"of": ["a"], "dtype": "float32", "offset": 0, "shape": [1], "stride": [1]}}},
    {"views": {"v": {"of": "a", "dtype": "qint8", "offset": 0, "shape": [1], "stride": [1]}}},
    {"views": {"v": {"of": "a", "dtype": "bfloat16", "offset": 0, "shape": [2], "stride": [1]}}, "tree": {"n": "v"}},
    {"views": {"v": {"of": "a", "dtype": "bfloat16", "offset": 0, "shape": [2], "stride": [1]}}, "tree": {"y": "v"}},
    {"tree": {"s": [1 << 80]}},
])
def test_a_damaged_note(store: penstock.Store, change: dict[str, Any]) -> None:
    header = safetensors.build([("a", "F32", (4,))], {"penstock": json.dumps(change)})
    store.put("m", header + bytes(16))
    for copied in (True, None):
        with pytest.raises(FormatError):
            load_state_dict(store, "m", copy=copied)


def test_a_cache_prefix_is_warned_of(store: penstock.Store) -> None:
    with pytest.warns(CacheWarning, match="cache/m"):
        save_state_dict(store, "cache/m", {"a": floats(1)})


def test_torch_and_numpy_exchange_tensors_by_dlpack(store: penstock.Store) -> None:
    tensor = floats(5, 4)
    store.put_array("k", tensor)
    assert store.get_array("k").tobytes() == bits(tensor)
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    for look in (numbers.conj().imag, numbers.conj(), torch.nn.Parameter(numbers.conj().imag)):
        store.put_array("look", look)
        assert store.get_array("look").tolist() == look.tolist()
    assert same(torch.from_dlpack(store.get_array("k", copy=True)), tensor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about arrays that are read-only
        assert same(torch.from_dlpack(store.get_array("k")), tensor)


LOADER = """
import sys, penstock
from penstock.tensors import load_state_dict, save_state_dict
with penstock.open(sys.argv[1]) as store:
    save_state_dict(store, "back", load_state_dict(store, "m", copy=None))
"""


def test_another_process_loads_it(urls: dict[str, str], nested: dict[Any, Any]) -> None:
    for kind in ("unix", "tcp"):
        with penstock.open(urls[kind]) as store:
            save_state_dict(store, "m", nested)
            subprocess.run([sys.executable, "-W", "error", "-c", LOADER, urls[kind]], check=True, timeout=120,
                           env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
            assert same(load_state_dict(store, "back"), nested)
            assert store.head("back").size == store.head("m").size


def test_safetensors_reads_what_we_write_and_the_other_way(store: penstock.Store, tmp_path: pathlib.Path) -> None:
    reference = pytest.importorskip("safetensors.torch")
    from penstock.safetensors import get_safetensors, put_safetensors
    state = {"w": floats(33, 7), "b": floats(5).bfloat16(), "n": torch.arange(3), "odd": torch.ones(3, dtype=torch.uint8)}
    save_state_dict(store, "m", state)
    assert get_safetensors(store, "m", tmp_path / "ours") == store.head("m").size == (tmp_path / "ours").stat().st_size
    found = reference.load_file(tmp_path / "ours")
    assert same(dict(sorted(found.items())), dict(sorted(state.items())))
    reference.save_file(state, tmp_path / "theirs", metadata={"format": "pt", "note": "ours"})
    put_safetensors(store, "m", tmp_path / "theirs")
    assert store.get("m") == (tmp_path / "theirs").read_bytes()
    for copied in (True, None):
        found = load_state_dict(store, "m", copy=copied)
        assert same(dict(sorted(found.items())), dict(sorted(state.items())))
    assert list(tmp_path.iterdir()) == [tmp_path / "ours", tmp_path / "theirs"] or len(list(tmp_path.iterdir())) == 2
