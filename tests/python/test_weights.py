# SPDX-License-Identifier: Apache-2.0
"""Weights that are published and subscribed to, as arrays; and as tensors where there is torch."""
from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock
from penstock import weights
from penstock.weights import Part, Publisher, Subscriber

Array = np.ndarray[Any, np.dtype[Any]]


def numbers(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 1) -> Array:
    data = np.random.default_rng(seed).integers(0, 256, size=(*shape, np.dtype(dtype).itemsize), dtype=np.uint8)
    out: Array = np.ascontiguousarray(data).view(dtype).reshape(shape)
    return out


def same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def brought(store: penstock.Store, into: dict[str, Any], **options: Any) -> int | None:
    with Subscriber(store, "w", into, **options) as subscriber:
        return subscriber.update()


def test_every_dtype_and_form_arrives_equal(store: penstock.Store) -> None:
    sent: dict[str, Any] = {np.dtype(dtype).name: numbers((3, 5), dtype) for dtype in (
        "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16")}
    sent |= {"bool": np.arange(6) % 2 == 0, "scalar": np.array(2.5), "empty": np.empty((3, 0), np.float32),
             "strided": numbers((8, 6))[::2, 1::2], "fortran": np.asfortranarray(numbers((4, 7))),
             "reversed": numbers((9,))[::-1], "large": numbers((600, 700)), "layer": {"0": {"weight": numbers((4,))}}}
    sent["tied"] = sent["large"]
    ml_dtypes = pytest.importorskip("ml_dtypes")
    sent |= {name: numbers((17,), getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
    assert Publisher(store, "w").publish(sent) == 1
    into = {name: {"0": {"weight": np.zeros(4, np.float32)}} if name == "layer" else np.zeros(array.shape, array.dtype)
            for name, array in sent.items()}
    into["fortran"] = np.zeros((4, 7), np.float32, order="F")
    into["strided"] = np.zeros((4, 9), np.float32)[:, ::3]
    assert brought(store, into) == 1
    assert same(into.pop("layer")["0"]["weight"], sent.pop("layer")["0"]["weight"])
    assert [name for name in sent if not same(into[name], sent[name])] == []


def test_only_what_has_changed_travels(store: penstock.Store) -> None:
    state = {str(i): numbers((100_000,), seed=i) for i in range(20)}
    into = {name: np.zeros_like(array) for name, array in state.items()}
    publisher = Publisher(store, "w")
    assert repr(publisher) == f"<penstock.weights.Publisher of 'w' in {store.url}>"
    with Subscriber(store, "w", into) as subscriber:
        assert repr(subscriber) == f"<penstock.weights.Subscriber to 'w' in {store.url}, version None>"
        publisher.publish(state)
        assert subscriber.update() == 1
        before = store.stat()
        state["7"][3] = 42
        assert publisher.publish(state) == 2
        between = store.stat()
        assert between.puts - before.puts == 3  # the tensor, what the writer has, the version
        into["0"][:] = 0  # would be mended if it were fetched
        assert subscriber.update() == 2
        assert into["7"][3] == 42 and not into["0"].any() and same(into["7"], state["7"])
        assert subscriber.update() is None and subscriber.version == 2
        assert Publisher(store, "w").publish(state) == 3  # after a restart
        assert store.stat().puts - between.puts == 2
        assert subscriber.update() == 3


def test_a_publisher_that_knows_what_has_changed(store: penstock.Store) -> None:
    state = {"a": np.ones(9), "b": np.ones(9), "c": np.ones(9)}
    into = {name: np.zeros(9) for name in state}
    publisher = Publisher(store, "w")
    assert publisher.publish(state, changed=[]) == 1  # this object has published nothing yet
    assert brought(store, into) == 1 and all(array.all() for array in into.values())
    state["a"][:], state["b"][:], state["c"] = 2, 2, np.full(10, 2.0)
    into["c"] = np.zeros(10)
    assert publisher.publish(state, changed=["a"]) == 2  # "c" has another shape, "b" is believed to be the same
    assert brought(store, into) == 2
    assert [array[0] for array in into.values()] == [2, 1, 2]
    with pytest.raises(ValueError, match="'d'.* have changed"):
        publisher.publish(state, changed=["d"])


def sliced(whole: Array, cuts: tuple[int, ...]) -> list[tuple[Part, Array]]:
    """The whole in as many parts in each dimension, some of which may be empty."""
    edges = [[whole.shape[axis] * i // cut for i in range(cut + 1)] for axis, cut in enumerate(cuts)]
    out = []
    for at in itertools.product(*(range(cut) for cut in cuts)):
        box = tuple(slice(edges[axis][i], edges[axis][i + 1]) for axis, i in enumerate(at))
        out.append((Part(tuple(one.start for one in box), whole.shape), whole[box]))
    return out


@pytest.mark.parametrize("written, wanted", [((8, 1), (4, 1)), ((8, 1), (1, 4)), ((1, 3), (5, 1)), ((2, 3), (3, 2)), ((1, 1), (7, 7))])
def test_other_parts_than_were_written(store: penstock.Store, written: tuple[int, int], wanted: tuple[int, int]) -> None:
    whole = numbers((801, 603))
    ranks = sliced(whole, written)
    for writer, (part, array) in enumerate(ranks):
        assert brought(store, {"w": np.zeros_like(whole)}) is None  # not before all have put it
        Publisher(store, "w", writer=writer, writers=len(ranks)).publish({"w": array}, version=5, parts={"w": part})
    for part, array in sliced(whole, wanted):
        into = np.zeros_like(array)
        assert brought(store, {"w": into}, parts={"w": part}) == 5
        assert same(into, np.ascontiguousarray(array))


def test_random_parts() -> None:
    """Tensors of up to four dimensions, cut at random on both sides; small pieces of them."""
    chance = random.Random(7)
    with penstock.open("mem:?dram=64M") as store:
        for version in range(1, 60):
            shape = tuple(chance.randint(1, 24) for _ in range(chance.randint(1, 4)))
            whole = numbers(shape, chance.choice(["u1", "i2", "f4", "f8", "c16"]), seed=version)
            ranks = sliced(whole, tuple(chance.randint(1, 3) for _ in shape))
            for writer, (part, array) in enumerate(ranks):
                Publisher(store, "w", writer=writer, writers=len(ranks)).publish({"w": array}, version=version, parts={"w": part})
            for part, array in sliced(whole, tuple(chance.randint(1, 4) for _ in shape)):
                into = np.zeros_like(array, order=chance.choice("CF"))
                assert brought(store, {"w": into}, parts={"w": part}) == version
                assert same(into, np.ascontiguousarray(array))


@pytest.mark.parametrize("order", ["rows", "columns"])
def test_memory_beside_the_tensors(order: str) -> None:
    whole = numbers((4096, 4096))
    begin = Part((1024, 0) if order == "rows" else (0, 1024), whole.shape)
    into = np.zeros((1024, 4096) if order == "rows" else (4096, 1024), np.float32)
    with penstock.open("mem:?dram=256M") as store, Subscriber(store, "w", {"w": into}, parts={"w": begin}) as subscriber:
        Publisher(store, "w").publish({"w": whole})
        tracemalloc.start()
        try:
            assert subscriber.update() == 1
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert same(into, np.ascontiguousarray(whole[1024:2048] if order == "rows" else whole[:, 1024:2048]))
    assert peak < weights.CHUNK_BYTES + (1 << 20)


def test_waits_for_a_version(store: penstock.Store) -> None:
    into = {"w": np.zeros(1000)}
    with Subscriber(store, "w", into) as subscriber:
        assert subscriber.update(timeout=0.05) is None and subscriber.version is None
        later = threading.Timer(0.2, lambda: Publisher(store, "w").publish({"w": np.ones(1000)}))
        later.start()
        assert subscriber.update(timeout=60) == 1 and into["w"].all()
        later.join()


def test_versions_are_whole_while_others_replace_them(store: penstock.Store) -> None:
    """Every tensor has the same number, whatever version a subscriber gets."""
    last = 30

    def publish() -> None:
        for version in range(1, last + 1):
            Publisher(store, "w", keep=1).publish({str(i): np.full(50_000, version) for i in range(8)})

    into = {str(i): np.zeros(50_000, np.int64) for i in range(8)}
    publisher = threading.Thread(target=publish)
    with Subscriber(store, "w", into) as subscriber:
        publisher.start()
        seen = 0
        while seen < last:
            version = subscriber.update(timeout=60)
            assert version is not None and version > seen
            seen = version
            assert all((array == seen).all() for array in into.values())
        publisher.join()


def test_old_versions_are_deleted(store: penstock.Store) -> None:
    for version in range(1, 9):
        Publisher(store, "w", keep=2).publish({"changes": np.full(10, version), "stays": np.zeros(10)})
        Publisher(store, "other/w").publish({"w": np.full(10, version)})
    keys = [entry.key.decode() for entry in store.list("w/")]
    assert [key for key in keys if "/data/" not in key] == ["w/7/0", "w/8/0", "w/version"]
    assert len(keys) == 3 + 3  # two of the one, one of the other


Mistake = Callable[[penstock.Store], Any]


@pytest.mark.parametrize("mistake, error, text", [
    (lambda store: Publisher(store, ""), ValueError, "'' is no name"),
    (lambda store: Publisher(store, "w", writer=1), ValueError, "writer 1 of 1"),
    (lambda store: Publisher(store, "w").publish({"w": [1, 2]}), TypeError, "'w' is a list"),
    (lambda store: Publisher(store, "w").publish({"w": np.array(["text"])}), TypeError, "dtype <U4"),
    (lambda store: Publisher(store, "w").publish({"w": np.array([None])}), TypeError, "dtype object"),
    (lambda store: Publisher(store, "w").publish({"w": np.arange(3, dtype=">i4")}), TypeError, "dtype >i4"),
    (lambda store: Publisher(store, "w").publish({"w": np.ma.array([1, 2], mask=[0, 1])}), TypeError, "its mask"),
    (lambda store: Publisher(store, "w").publish({1: np.arange(3)}), TypeError, "key 1 of 'the state dict'"),
    (lambda store: Publisher(store, "w").publish({"a": {"b": np.arange(3)}, "a.b": np.arange(3)}), ValueError, "'a.b'"),
    (lambda store: Publisher(store, "w").publish({"a": np.arange(3)}, parts={"b": Part((0,), (3,))}), ValueError, "'b'"),
    (lambda store: Publisher(store, "w").publish({"a": np.arange(3)}, parts={"a": Part((1,), (3,))}), ValueError, "no part"),
    (lambda store: Publisher(store, "w").publish({"a": np.arange(3)}, parts={"a": Part((-1,), (3,))}), ValueError, "no part"),
    (lambda store: Publisher(store, "w").publish({"a": np.arange(3)}, parts={"a": Part((0, 0), (3, 3))}), ValueError, "no part"),
    (lambda store: Publisher(store, "w", writers=2).publish({"a": np.arange(3)}), ValueError, "version is to be named"),
    (lambda store: [Publisher(store, "w").publish({"a": np.arange(3)}, version=4) for _ in range(2)], ValueError, "not above 4"),
])
def test_mistakes_of_a_publisher(mistake: Mistake, error: type[Exception], text: str) -> None:
    with penstock.open("mem:?dram=16M") as store, pytest.raises(error, match=text):
        mistake(store)


@pytest.mark.parametrize("into, parts, error, text", [
    ({"w": np.zeros((2, 3)), "v": np.zeros(1)}, None, ValueError, "'v' is not published"),
    ({"w": np.zeros((2, 3), np.float32)}, None, TypeError, "'w' is float64, the tensor to fill float32"),
    ({"w": np.zeros((3, 2))}, None, ValueError, r"'w' has shape \(2, 3\)"),
    ({"w": np.zeros((1, 3))}, {"w": Part((1, 0), (4, 3))}, ValueError, r"has shape \(2, 3\).*of one of \(4, 3\)"),
])
def test_what_does_not_fit_is_not_written(into: dict[str, Array], parts: Any, error: type[Exception], text: str) -> None:
    with penstock.open("mem:?dram=16M") as store:
        Publisher(store, "w").publish({"w": np.ones((2, 3)), "ok": np.ones(3)})
        good = np.zeros(3)
        with pytest.raises(error, match=text):
            brought(store, {"ok": good, **into}, parts=parts)
        assert not good.any()


def test_parts_that_overlap_or_leave_out() -> None:
    with penstock.open("mem:?dram=16M") as store:
        Publisher(store, "w").publish({"w": np.ones(3)}, parts={"w": Part((0,), (4,))})
        with pytest.raises(ValueError, match="leave out"):
            brought(store, {"w": np.zeros(4)})
        assert brought(store, {"w": np.zeros(2)}, parts={"w": Part((1,), (4,))}) == 1
        for writer in range(2):
            Publisher(store, "v", writer=writer, writers=2).publish({"w": np.ones(3)}, version=1, parts={"w": Part((writer,), (4,))})
        with Subscriber(store, "v", {"w": np.zeros(4)}) as subscriber, pytest.raises(ValueError, match="overlap"):
            subscriber.update()


def test_parts_that_overlap_as_much_as_they_leave_out() -> None:
    with penstock.open("mem:?dram=16M") as store:
        for writer, start in enumerate([(0, 0), (0, 1), (2, 1), (2, 2)]):  # (0, 1) twice, (0, 3) never, and so on
            Publisher(store, "w", writer=writer, writers=4).publish(
                {"w": np.ones((2, 2))}, version=1, parts={"w": Part(start, (4, 4))})
        into = np.zeros((4, 4))
        with pytest.raises(ValueError, match="overlap"):
            brought(store, {"w": into})
        assert not into.any()
        with pytest.raises(ValueError, match="overlap"):
            brought(store, {"w": into[2:, :]}, parts={"w": Part((2, 0), (4, 4))})


def test_a_part_that_came_of_a_version_that_did_not() -> None:
    ones, into = np.ones(4), np.zeros(4)
    with penstock.open("mem:?dram=16M") as store, Subscriber(store, "w", {"w": into}) as subscriber:
        Publisher(store, "w").publish({"w": ones})
        assert subscriber.update() == 1
        for writer in range(2):
            Publisher(store, "w", writer=writer, writers=2).publish(
                {"w": np.full(2, 2.0 + writer)}, version=2, parts={"w": Part((2 * writer,), (4,))})
        store.delete_prefix("w/data/1/")
        with pytest.raises(penstock.NotFound, match="data of version 2"):
            subscriber.update()
        assert into.tolist() == [2, 2, 1, 1]
        Publisher(store, "w").publish({"w": np.full(2, 2.0)}, parts={"w": Part((0,), (4,))})  # all that has come is not all there is
        with pytest.raises(ValueError, match="leave out"):
            subscriber.update()
        Publisher(store, "w").publish({"w": ones})  # as the first, which is not there whole any more
        assert subscriber.update() == 4 and same(into, ones)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_store_that_lost_its_values(store: penstock.Store, is_restarted: bool) -> None:
    publisher, into = Publisher(store, "w"), {"w": np.zeros(4), "v": np.zeros(4)}
    with Subscriber(store, "w", into) as subscriber:
        for number in range(1, 4):
            publisher.publish({"w": np.full(4, float(number)), "v": np.ones(4)})
        assert subscriber.update() == 3
        store.delete_prefix("w/")
        assert subscriber.update() is None and subscriber.version == 3
        if is_restarted:
            publisher = Publisher(store, "w")
        version = 1 if is_restarted else 4
        assert publisher.publish({"w": np.full(4, 9.0), "v": np.ones(4)}, changed=["w"]) == version
        assert subscriber.update() == version and into["w"].tolist() == [9] * 4
        assert brought(store, {"v": np.zeros(4)}) == version  # believed to be unchanged, and put again
        store.put("w/version", store.get("w/version"))  # as of a dump that was loaded
        assert subscriber.update() is None and subscriber.version == version


def test_what_does_not_fit_leaves_nothing_behind() -> None:
    with penstock.open("mem:?dram=64M") as store:
        publisher, into = Publisher(store, "w"), {"a": np.zeros(10 << 20, np.uint8)}
        publisher.publish({"a": np.ones(10 << 20, np.uint8)})
        for number in range(10, 20):
            with pytest.raises(penstock.NoSpace):
                publisher.publish({"a": np.full(10 << 20, number, np.uint8), "b": np.zeros(50 << 20, np.uint8)})
        assert publisher.publish({"a": np.full(10 << 20, 2, np.uint8), "b": np.zeros(30 << 20, np.uint8)}) == 2
        assert brought(store, into) == 2 and (into["a"] == 2).all()


def frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("into, text", [
    (frozen(np.zeros(4)), "'b' cannot be written"),
    (np.lib.stride_tricks.as_strided(np.zeros(1), (4,), (0,)), "'b' has elements on top of each other"),
])
def test_what_cannot_be_filled(store: penstock.Store, into: Array, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Subscriber(store, "w", {"a": np.zeros(4), "b": into})


def test_tensors_that_share_memory_and_are_to_differ(store: penstock.Store) -> None:
    publisher, into = Publisher(store, "w"), np.zeros(4)
    with Subscriber(store, "w", {"a": into, "b": into[:], "none": into[:0]}) as subscriber:
        publisher.publish({"a": np.ones(4), "b": np.ones(4), "none": np.zeros(0)})
        assert subscriber.update() == 1 and into.all()
        publisher.publish({"a": np.full(4, 2.0), "b": np.full(4, 3.0), "none": np.zeros(0)})
        with pytest.raises(ValueError, match="'a' and 'b' share memory, and differ"):
            subscriber.update()
        assert subscriber.version == 1 and into.tolist() == [1] * 4
        publisher.publish({"a": np.full(4, 4.0), "b": np.full(4, 4.0), "none": np.zeros(0)})
        assert subscriber.update() == 3 and into.tolist() == [4] * 4


@pytest.mark.parametrize("version, error", [(1.5, TypeError), ("2", TypeError), (1 << 64, ValueError), (-1, ValueError)])
def test_a_version_that_is_none(version: Any, error: type[Exception]) -> None:
    with penstock.open("mem:?dram=16M") as store:
        with pytest.raises(error):
            Publisher(store, "w").publish({"w": np.ones(3)}, version=version)
        assert Publisher(store, "w").publish({"w": np.ones(3)}, version=np.int64(7)) == 7
        assert brought(store, {"w": np.zeros(3)}) == 7


def test_two_publishers_at_once(store: penstock.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put, into = Publisher._put_tensors, np.zeros(4)

    def late(self: Publisher, *what: Any) -> Any:
        monkeypatch.setattr(Publisher, "_put_tensors", put)
        assert Publisher(store, "w").publish({"w": np.ones(4)}) == 1
        return put(self, *what)

    monkeypatch.setattr(Publisher, "_put_tensors", late)
    with pytest.raises(penstock.Stale, match="another publisher has put version 1"):
        Publisher(store, "w").publish({"w": np.full(4, 2.0)})
    assert brought(store, {"w": into}) == 1 and into.tolist() == [1] * 4
    assert Publisher(store, "w").publish({"w": np.full(4, 2.0)}) == 2


@pytest.mark.parametrize("is_put", [False, True])
def test_a_publisher_that_was_killed(store: penstock.Store, is_put: bool) -> None:
    if is_put:
        store.put("w/1/0", json.dumps({"tensors": [["w", "float64", [4], [0], [4], "0" * 32]]}).encode())
    store.put("w/data/0/" + "0" * 32, np.zeros(4))
    into = np.zeros(4)
    assert brought(store, {"w": into}) is None
    assert Publisher(store, "w").publish({"w": np.ones(4)}) == 1
    assert brought(store, {"w": into}) == 1 and into.all()
    assert len(list(store.list("w/data/"))) == 1


class Run:
    """Publishers of one name, with other parts each time, and what each version has."""

    def __init__(self, store: penstock.Store, dice: random.Random) -> None:
        self.store, self.dice, self.version = store, dice, 0
        self.single = Publisher(store, "w")
        self.versions: dict[int, dict[str, Array]] = {}
        self.state = {"a": np.zeros((12, 5)), "b": np.zeros(40_000)}

    def publish(self, *, is_whole: bool) -> None:
        if self.versions and self.dice.random() < 0.3:
            self.state = self.dice.choice(list(self.versions.values()))
        self.state = {name: np.full(array.shape, self.dice.randrange(4) * 1.0) if self.dice.random() < 0.5 else array
                      for name, array in self.state.items()}
        self.version += 1
        writers = self.dice.choice([1, 2, 3]) if is_whole else 2
        parts = {name: sliced(array, (writers, 1)[:array.ndim]) for name, array in self.state.items()}
        for writer in range(writers if is_whole else 1):
            publisher = self.single if writers == 1 else Publisher(self.store, "w", writer=writer, writers=writers)
            publisher.publish({name: part[writer][1] for name, part in parts.items()}, version=self.version,
                              parts={name: part[writer][0] for name, part in parts.items()})
        if is_whole:
            self.versions[self.version] = self.state

    def lose(self) -> None:
        keys = [entry.key for entry in self.store.list("w/data/")]
        if self.dice.random() < 0.1:
            self.store.delete_prefix("w/")
        elif keys:
            self.store.delete(self.dice.choice(keys))


@pytest.mark.parametrize("seed", [*range(10), 60, 114, 158, 177, 184, 228])
def test_no_version_is_a_mixture(seed: int) -> None:
    dice = random.Random(seed)
    with penstock.open("mem:?dram=32M") as store:
        run = Run(store, dice)
        into = {name: np.full(array.shape, -1.0) for name, array in run.state.items()}
        with Subscriber(store, "w", into) as subscriber:
            for _ in range(60):
                what = dice.choice(["publish"] * 3 + ["begin"] + ["lose", "update"] * 3)
                if what == "lose":
                    run.lose()
                elif what != "update":
                    run.publish(is_whole=what == "publish")
                else:
                    with contextlib.suppress(penstock.NotFound):
                        subscriber.update()
                    if subscriber.version is not None:
                        assert [name for name in into if not same(into[name], run.versions[subscriber.version][name])] == []


def test_a_run_with_fewer_writers_deletes_what_the_others_left(store: penstock.Store) -> None:
    version = 0
    for run, writers in (("one", 4), ("two", 2)):
        for _ in range(3):
            version += 1
            for writer in reversed(range(writers)):
                part = np.full(8 // writers, version + writer)
                Publisher(store, "w", writer=writer, writers=writers, run=run).publish(
                    {"w": part}, version=version, parts={"w": Part((writer * part.size,), (8,))})
    assert {key.split("/")[-1] for key in store.keys("w/6/")} == {"0", "1"}
    assert not list(store.keys("w/3/")) and not [key for key in store.keys("w/data/") if key.split("/")[2] in "23"]
    mine = np.zeros(8, int)
    assert Subscriber(store, "w", {"w": mine}).update() == 6
    assert mine.tolist() == [6] * 4 + [7] * 4


def test_what_a_killed_run_left_does_not_count(store: penstock.Store) -> None:
    """Writer 0 of the first run is killed behind it; of the next one writer 1 is there first."""
    def put(run: str, writer: int, value: float) -> None:
        Publisher(store, "w", writer=writer, writers=2, run=run).publish(
            {"w": np.full(2, value, float)}, version=3, parts={"w": Part((2 * writer,), (4,))})
    into = {"w": np.zeros(4)}
    with Subscriber(store, "w", into) as subscriber:
        put("first", 0, 1)
        put("second", 1, 2)
        assert subscriber.update() is None and not into["w"].any()
        put("second", 0, 2)
        assert subscriber.update() == 3 and list(into["w"]) == [2] * 4
    with pytest.raises(TypeError, match="no text"):
        Publisher(store, "w", run=3)  # type: ignore[arg-type]


def test_writers_that_hold_the_same(store: penstock.Store) -> None:
    for writer in range(2):
        Publisher(store, "w", writer=writer, writers=2).publish({"w": np.ones(9)}, version=1)
    into = np.zeros(9)
    assert brought(store, {"w": into}) == 1 and into.all()


def test_data_that_is_gone(store: penstock.Store) -> None:
    publisher, into = Publisher(store, "w"), np.zeros(100_000)
    publisher.publish({"w": np.ones(100_000)})
    with Subscriber(store, "w", {"w": into}) as subscriber:
        store.delete_prefix("w/data/")
        with pytest.raises(penstock.NotFound, match="data of version 1"):
            subscriber.update()
        assert subscriber.version is None
        publisher.publish({"w": np.ones(100_000)})
        assert subscriber.update() == 2 and into.all()


@pytest.mark.parametrize("key, value", [
    ("w/version", b"{"), ("w/version", b"[]"), ("w/version", b'{"version": -1, "writers": 1}'),
    ("w/version", b'{"version": 2, "writers": "1"}'), ("w/version", b'{"version": 2, "writers": 1000000000000}'), ("w/version", b"[" * 100_000),
    ("w/1/0", b"no JSON"), ("w/1/0", b"{}"), ("w/1/0", b'{"tensors": [1]}'), ("w/1/0", b'{"tensors": [["w", "float64", [3], [2], [3], ""]]}'),
    ("w/1/0", b'{"tensors": [["w", "float64", [3], [0], "", ""]]}'), ("w/1/0", b'{"tensors": [["w", "float64", [3], [0], [3]]]}'),
])
def test_damage_is_named(key: str, value: bytes) -> None:
    with penstock.open("mem:?dram=16M") as store:
        Publisher(store, "w").publish({"w": np.ones(3)})
        store.put(key, value)
        into = np.zeros(3)
        with pytest.raises(ValueError, match=f"'{key}' is damaged"):
            brought(store, {"w": into})
        assert not into.any()


def test_tensors_of_torch(store: penstock.Store) -> None:
    torch = pytest.importorskip("torch")
    names = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
             "complex128", *(name for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name))]
    sent = {name: torch.randint(0, 2, (40, 30)).to(getattr(torch, name)) for name in names}
    sent |= {"conjugate": torch.randn(5, dtype=torch.complex64).conj(), "transposed": torch.randn(300, 200).t(),
             "parameter": torch.nn.Parameter(torch.randn(7))}
    Publisher(store, "w").publish(sent)
    into = {name: torch.zeros(tensor.shape, dtype=tensor.dtype) for name, tensor in sent.items()}
    assert brought(store, into) == 1
    for name, tensor in sent.items():
        assert into[name].dtype == tensor.dtype and (into[name].to(torch.complex128) == tensor.to(torch.complex128)).all(), name
    assert brought(store, {"float32": (array := np.zeros((40, 30), np.float32))}) == 1
    assert (torch.from_numpy(array) == sent["float32"]).all()
    with pytest.raises(TypeError, match="no dense tensor"):
        Publisher(store, "w").publish({"w": torch.eye(3).to_sparse()})


def test_parts_are_whole_numbers_of_any_kind() -> None:
    with penstock.open("mem:?dram=16M") as store:
        with pytest.raises(TypeError, match="int"):
            Publisher(store, "w").publish({"w": np.ones(2)}, parts={"w": Part((0.0,), (4,))})  # type: ignore[arg-type]
        whole = tuple(np.array([4]))
        for start in (0, 2):
            Publisher(store, "w", writer=start // 2, writers=2).publish({"w": np.full(2, float(start))}, version=1,
                                                                        parts={"w": Part((np.int64(start),), whole)})
        into = np.zeros(3)
        assert brought(store, {"w": into}, parts={"w": Part((np.int32(1),), whole)}) == 1
        assert into.tolist() == [0, 2, 2]


def test_tensors_of_another_device(store: penstock.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are filled by a copy; those without dimensions, such as counts of steps, too."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("penstock.weights._on_cpu", lambda tensor: False)
    sent = {"step": torch.tensor(7), "scale": torch.tensor(2.5, dtype=torch.bfloat16), "w": torch.randn(300, 200),
            "none": torch.zeros(0, 3)}
    Publisher(store, "w").publish(sent)
    into = {name: torch.zeros_like(tensor) for name, tensor in sent.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert brought(store, into) == 1
    assert all(torch.equal(into[name], tensor) for name, tensor in sent.items())
    half = torch.zeros(100, 50)
    assert brought(store, {"w": half}, parts={"w": Part((10, 20), (300, 200))}) == 1
    assert torch.equal(half, sent["w"][10:110, 20:70])
