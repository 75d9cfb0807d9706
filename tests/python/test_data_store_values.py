# SPDX-License-Identifier: Apache-2.0
"""Values in a data store: bytes, text, arrays, tensors and state dicts, there and back by each transport."""
from __future__ import annotations

import concurrent.futures
import os
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from data_store import DataStore, files_of
from support import BUILD

from penstock import data_store as ds
from penstock.data_store.values import ValueName

np = pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataStore]:
    with DataStore(tmp_path_factory.mktemp("store") / "data", "--store-address", "127.0.0.1") as it:
        yield it


@pytest.fixture(params=["direct", "tunnel", "native"])
def client(request: pytest.FixtureRequest, daemon: DataStore, monkeypatch: pytest.MonkeyPatch) -> ds.DataStoreClient:
    """An empty store, reached in each way."""
    rsync = None if request.param == "tunnel" else f"127.0.0.1:{daemon.rsync_port}"
    monkeypatch.setenv("PENSTOCK_COMMAND", str(BUILD / "penstock"))
    client = ds.DataStoreClient("default", ds.Server(f"http://127.0.0.1:{daemon.http_port}", rsync),
                                "native" if request.param == "native" else "rsync")
    for item in client.ls():
        client.rm(item["name"], recursive=True)
    return client


def names(client: ds.DataStoreClient, key: str) -> list[str]:
    return [item["name"] for item in client.ls(key)]


def kinds(client: ds.DataStoreClient, key: str) -> list[str]:
    """Of the values that lie there."""
    return [name.kind for name in map(ValueName.of, names(client, key)) if name]


def value_in(folder: pathlib.Path) -> pathlib.Path:
    path, = folder.glob("penstock-value.*")
    return path


def test_bytes_and_text(client: ds.DataStoreClient, tmp_path: pathlib.Path) -> None:
    big = os.urandom(3_000_000)
    for key, value in (("b", b"\x93NUMPY raw \0"), ("empty", b""), ("big", big), ("text", "grüße\n\ud800"), ("none", "")):
        client.put(f"svc/{key}", data=value)
        got = client.get(f"svc/{key}")
        assert got == value and type(got) is type(value)
    client.put("svc/view", data=memoryview(bytearray(b"abcdef"))[::2])
    assert client.get(["svc/view", "svc/text"]) == [b"ace", "grüße\n\ud800"]
    client.get("svc/big", tmp_path / "out")
    assert value_in(tmp_path / "out/big").read_bytes() == big
    with pytest.raises(TypeError, match="cannot fill a ndarray"):
        client.get("svc/big", np.zeros(1))


def test_a_put_takes_the_place_of_what_is_of_another_kind(client: ds.DataStoreClient, daemon: DataStore, tmp_path: pathlib.Path) -> None:
    (tmp_path / "f").write_text("a file")
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/b").write_text("b")

    def there() -> dict[str, bytes]:
        """What the store has, with hidden keys; values without their numbers."""
        return {path.partition(".")[0]: data for path, data in files_of(daemon.files).items()}

    for key in ("svc/x", "x"):
        client.put(key, data="a value")
        client.put(key, tmp_path / "f")
        assert there() == {key: b"a file"}
        client.get(key, tmp_path / "out")
        assert (tmp_path / "out/x").read_text() == "a file"
        client.put(key, data="another")
        assert client.get(key) == "another" and there() == {f"{key}/penstock-value": b"another"}
        client.put(key, tmp_path / "f")
        client.put(key, tmp_path / "tree", contents=True)
        assert there() == {f"{key}/sub/b": b"b"}
        client.put(key, data="beside")
        with pytest.raises(ds.DataStoreError, match="a folder with other keys"):
            client.put(key, tmp_path / "f")
        assert client.get(key) == "beside" and there() == {f"{key}/sub/b": b"b", f"{key}/penstock-value": b"beside"}
        client.rm(key.partition("/")[0], recursive=True)
        (tmp_path / "out/x").unlink()
    assert not list(daemon.files.rglob(".*"))


def test_a_put_that_fails_leaves_what_was_there(client: ds.DataStoreClient, daemon: DataStore, tmp_path: pathlib.Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_text("a file")
    client.put("svc/value", data="a value")
    client.put("svc/file", tmp_path / "f")
    before = files_of(daemon.files)

    def refused(*_: object) -> bool:
        raise ds.StoreUnreachable("just now")

    monkeypatch.setattr(client.metadata_client, "replace_key", refused)
    for put in (lambda: client.put("svc/value", tmp_path / "f"), lambda: client.put("svc/file", data="a value")):
        with pytest.raises(ds.StoreUnreachable):
            put()
        assert files_of(daemon.files) == before


def test_of_two_puts_of_two_kinds_at_once_one_is_the_last(client: ds.DataStoreClient, daemon: DataStore, tmp_path: pathlib.Path) -> None:
    other = ds.DataStoreClient("default", client.server, client.transport)
    for at in range(12):
        key, file, gate = f"svc/k{at}", tmp_path / f"f{at}", threading.Barrier(2)
        file.write_text(key)

        def put(one: ds.DataStoreClient, *src: pathlib.Path, **data: str) -> None:
            gate.wait()
            one.put(key, *src, **data)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(put, client, file), pool.submit(put, other, data="a value")]:
                done.result()
        there = {path.partition(".")[0]: data for path, data in files_of(daemon.files).items() if path.startswith(key)}
        assert there in ({key: key.encode()}, {f"{key}/penstock-value": b"a value"})
        client.rm("svc", recursive=True)


def test_what_a_killed_put_left_is_in_nobodys_way(client: ds.DataStoreClient, daemon: DataStore, tmp_path: pathlib.Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_text("a file")

    def killed(*_: object, **__: object) -> bool:
        raise ds.StoreUnreachable("just now")

    for key in ("svc/v", "svc/w"):
        client.put(key, data="a value")
        client.put(f"{key}/x", data="a value")
        with monkeypatch.context() as patch:
            patch.setattr(client.metadata_client, "replace_key", killed)
            patch.setattr(client.metadata_client, "delete_key", killed)
            with pytest.raises(ds.StoreUnreachable):
                client.put(f"{key}/x", tmp_path / "f")
        assert [path for path in (daemon.files / key).iterdir() if path.name.startswith(".")]
        client.rm(f"{key}/x")
    client.get("svc", tmp_path / "out")
    assert set(files_of(tmp_path / "out")) == set(path for path in files_of(daemon.files) if "/." not in path)
    client.put("svc/v", tmp_path / "f")
    assert (daemon.files / "svc/v").read_bytes() == b"a file"
    client.rm("svc/w")
    assert os.listdir(daemon.files / "svc") == ["v"]


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_a_link_is_no_value(client: ds.DataStoreClient, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Others may put a link below a key; where it leads is on the getter's own host."""
    own, planted = tmp_path / "own", tmp_path / "planted"
    if kind == "file":
        own.write_text("the getter's own")
    else:
        os.mkfifo(own)
    planted.mkdir()
    (planted / f"penstock-value.{10 ** 15}.txt").symlink_to(own)
    client.put("svc/x", data="a value")
    ds.DataStoreClient("default", client.server, "native").put("svc/x", planted, contents=True)
    with pytest.raises(ds.DataStoreError):
        client.get("svc/x")


def test_a_value_takes_the_place_of_another_kind(client: ds.DataStoreClient) -> None:
    client.put(["svc/x", "svc/y"], data=b"one")
    client.put("svc/x", data="two")
    assert client.get("svc/x") == "two" and kinds(client, "svc/x") == ["txt"]
    client.put("svc/x", data=np.arange(3))
    client.put("svc/x", data=np.arange(4))
    assert client.get("svc/x").tolist() == [0, 1, 2, 3] and kinds(client, "svc/x") == ["npy"]
    client.put("svc/x/below", data=b"below")
    client.rm("svc/x")
    with pytest.raises(ds.KeyNotFound):
        client.get("svc/x", np.zeros(4))
    assert client.get("svc/x/below") == b"below" and client.get("svc/y") == b"one"
    client.rm("svc/x/below")
    client.rm("svc/y")
    with pytest.raises(ds.KeyNotFound):
        client.get("svc/y")


def test_arrays_of_all_kinds(client: ds.DataStoreClient) -> None:
    structured = np.array([(1, 2.5)], dtype=[("a", "<i4"), ("b", ">f8")])
    arrays = [np.float32(1.5), np.zeros((0, 3), "f2"), np.array(True), np.arange(24).reshape(2, 3, 4)[:, ::-2, 1:], structured,
              np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.array([1 + 2j]), np.array(["é", "b"]), np.arange(5, dtype=">u2")]
    try:
        import ml_dtypes
        arrays += [np.arange(4).astype(kind) for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)]
    except ImportError:
        pass
    keys = [f"svc/a{at}" for at in range(len(arrays))]
    for key, array in zip(keys, arrays):
        client.put(key, data=array)
    for array, got in zip(arrays, client.get(keys)):
        assert got.dtype == array.dtype and got.shape == array.shape and got.tobytes() == np.asarray(array).tobytes()
        got[...] = got  # its own memory
    target = np.zeros((4, 3), "i8").T[:2, ::2][:, :2]
    client.put("svc/t", data=np.array([[1, 2], [3, 4]]))
    assert client.get("svc/t", target) is target and target.tolist() == [[1, 2], [3, 4]]
    for bad, error in ((np.zeros((2, 2)), TypeError), (np.zeros((2, 3), "i8"), ValueError)):
        with pytest.raises(error, match="out has"):
            client.get("svc/t", bad)
        assert not bad.any()


def test_what_cannot_be_a_value(client: ds.DataStoreClient, tmp_path: pathlib.Path) -> None:
    for bad, named in ((1.5, "float"), ({1, 2}, "set"), (object(), "object"), (np.array([object()]), "pickling"),
                       (np.ma.masked_array([1]), "mask")):
        with pytest.raises(TypeError, match=named):
            client.put("svc/x", data=bad)
    with pytest.raises(TypeError, match="either src or data"):
        client.put("svc/x")
    with pytest.raises(TypeError, match="either src or data"):
        client.put("svc/x", str(tmp_path), data=b"")
    with pytest.raises(ValueError, match="neither contents"):
        client.put("svc/x", data=b"", contents=True)
    with pytest.raises(ValueError, match="several keys"):
        client.get(["svc/x", "svc/y"], np.zeros(1))
    assert names(client, "svc") == []


def test_what_lies_there_is_checked(client: ds.DataStoreClient, tmp_path: pathlib.Path) -> None:
    for name, said, error in (("penstock-value.1.npy", b"\x93NUMPY", ValueError), ("penstock-value.1.npy", b"", ValueError),
                              ("penstock-value.1.zst", b"x", ds.DataStoreError)):
        (tmp_path / name).write_bytes(said)
        client.put(f"svc/d/{name}", tmp_path / name)
        with pytest.raises(error):
            client.get("svc/d")
        client.rm("svc/d")
    assert ValueName.of("penstock-value.01.npy") is None


def test_a_value_is_a_file_under_its_own_key(client: ds.DataStoreClient, tmp_path: pathlib.Path,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    client.put("svc/x", data=b"x")
    name, = names(client, "svc/x")
    assert client.get(f"svc/x/{name}") is None
    assert (tmp_path / name).read_bytes() == b"x"


def test_a_put_of_files_takes_a_values_place(client: ds.DataStoreClient, tmp_path: pathlib.Path,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_text("file")
    for contents in (False, True):
        client.put("svc/x", data=b"value")
        client.put("svc/x", tmp_path / "folder", contents=contents)
        assert kinds(client, "svc/x") == []
        assert client.get("svc/x", tmp_path / "out") is None
        assert (tmp_path / ("out/x/file" if contents else "out/x/folder/file")).read_text() == "file"


def test_an_older_value_that_comes_back_is_not_taken(client: ds.DataStoreClient, tmp_path: pathlib.Path) -> None:
    """As one that another pod offers once more, which had been removed."""
    client.put("svc/x", data=b"old")
    name, = names(client, "svc/x")
    client.rm("svc/x")
    client.put("svc/x", data=b"new")
    (tmp_path / name).write_bytes(b"old")
    client.put(f"svc/x/{name}", tmp_path / name)
    assert client.get("svc/x") == b"new"
    client.put("svc/x", data=b"newer")
    assert client.get("svc/x") == b"newer" and kinds(client, "svc/x") == ["bin"]


def test_no_value_is_put_where_no_other_can_follow(client: ds.DataStoreClient, tmp_path: pathlib.Path) -> None:
    last = "penstock-value.999999999999999999.bin"
    (tmp_path / last).write_bytes(b"last")
    client.put(f"svc/x/{last}", tmp_path / last)
    with pytest.raises(ds.DataStoreError, match="no other can come"):
        client.put("svc/x", data=b"new")
    assert client.get("svc/x") == b"last"


def test_a_reader_sees_the_old_value_or_the_new(client: ds.DataStoreClient) -> None:
    values: list[Any] = [b"%d" % number * 1000 if number % 2 else str(number) * 1000 for number in range(8)]
    client.put("svc/x", data=values[0])
    faults: list[BaseException] = []

    def write() -> None:
        try:
            for value in values[1:]:
                client.put("svc/x", data=value)
        except BaseException as error:
            faults.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    last = 0
    while writer.is_alive():
        at = values.index(client.get("svc/x"))
        assert at >= last
        last = at
    writer.join()
    assert not faults and client.get("svc/x") == values[-1] and len(names(client, "svc/x")) == 1


def test_of_many_writers_one_is_the_last(client: ds.DataStoreClient) -> None:
    values: list[Any] = [b"bytes", "text", np.arange(3), "other text"]
    client.put("svc/x", data=values[0])
    faults: list[BaseException] = []

    def work(value: Any) -> None:
        try:
            for _ in range(4):
                client.put("svc/x", data=value)
                got = client.get("svc/x")
                assert any(np.array_equal(got, one) for one in values)
        except BaseException as error:
            faults.append(error)

    writers = [threading.Thread(target=work, args=(value,)) for value in values]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not faults
    client.put("svc/x", data=b"last")
    assert client.get("svc/x") == b"last" and len(names(client, "svc/x")) == 1


def test_values_of_a_service_go_with_it(client: ds.DataStoreClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KT_SERVICE_NAME", "svc")
    client.put("svc/x", data=b"x", lifespan="resource")
    client.put("svc/kept", data=b"kept")
    client.metadata_client.cleanup_service_keys("svc")
    assert names(client, "svc") == ["kept"] and client.get("svc/kept") == b"kept"


class TestTensors:
    """What torch has. State dicts are nested, tied and strided as training makes them."""

    @pytest.fixture(autouse=True)
    def torch(self) -> Any:
        return pytest.importorskip("torch")

    def test_tensors_of_all_kinds(self, client: ds.DataStoreClient, torch: Any) -> None:
        kinds = [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.float64, torch.int64]
        state: dict[str, Any] = {str(kind): torch.arange(6, dtype=torch.float32).to(kind).reshape(2, 3) for kind in kinds}
        plain = torch.tensor([1 + 2j, 3 - 1j])
        state |= {"bool": torch.tensor([True, False]), "c64": plain, "c128": plain.to(torch.complex128), "conj": plain.conj(),
                  "neg": plain[:1].conj().imag, "0-d": torch.tensor(3.5), "empty": torch.zeros(0, 4),
                  "strided": torch.arange(24).reshape(4, 6)[::2, 1::2], "t": torch.arange(6).reshape(2, 3).T,
                  "expanded": torch.tensor([1.0]).expand(5), "parameter": torch.nn.Parameter(torch.ones(2))}
        client.put("svc/state", data=state)
        got = client.get("svc/state")
        assert list(got) == list(state)
        for name, tensor in state.items():
            assert got[name].dtype == tensor.dtype and got[name].shape == tensor.shape, name
            assert torch.equal(got[name].to(torch.complex128), tensor.to(torch.complex128)), name
        client.put("svc/one", data=state["strided"])
        one = client.get("svc/one")
        assert torch.equal(one, state["strided"])
        one += 1  # its own memory
        assert torch.equal(client.get("svc/one"), state["strided"])

    def test_a_nested_state_dict(self, client: ds.DataStoreClient, torch: Any) -> None:
        weight = torch.randn(4, 4)
        state = {"model": {"embed.weight": weight, "head": {"weight": weight}}, "steps": [1, 2.5, "three", None, True],
                 "groups": ({"lr": 0.1, 0: torch.ones(1)},), "nothing": {}}
        client.put("svc/state", data=state)
        got = client.get("svc/state")
        assert torch.equal(got["model"]["embed.weight"], weight) and torch.equal(got["model"]["head"]["weight"], weight)
        assert got["steps"] == state["steps"] and got["groups"][0]["lr"] == 0.1 and got["nothing"] == {}
        with pytest.raises(TypeError, match="'a.b' is a set"):
            client.put("svc/state", data={"a": {"b": {1}}})

    def test_targets_are_filled(self, client: ds.DataStoreClient, torch: Any) -> None:
        state = {"a": torch.arange(6.0).reshape(2, 3), "b": {"c": torch.ones(3, dtype=torch.bfloat16)}}
        client.put("svc/state", data=state)
        client.put("svc/one", data=state["a"])
        into = {"a": torch.zeros(3, 2).T, "b": {"c": torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))}}
        assert client.get("svc/state", into) is into
        assert torch.equal(into["a"], state["a"]) and torch.equal(into["b"]["c"], state["b"]["c"])
        one = torch.zeros(2, 3)
        assert client.get("svc/one", one) is one and torch.equal(one, state["a"])
        for bad, error in (({"a": torch.zeros(2, 3)}, ValueError), (torch.zeros(2, 3), ValueError), (np.zeros((2, 3)), TypeError),
                           ({"a": torch.zeros(2, 3), "b": {"c": torch.zeros(3)}}, TypeError),
                           ({"a": torch.zeros(3, 2), "b": {"c": torch.zeros(3, dtype=torch.bfloat16)}}, ValueError)):
            with pytest.raises(error):
                client.get("svc/state", bad)
            assert not isinstance(bad, dict) or not bad["a"].any()

    def test_others_read_the_files(self, client: ds.DataStoreClient, torch: Any, tmp_path: pathlib.Path) -> None:
        load_file = pytest.importorskip("safetensors.torch").load_file
        client.put("svc/state", data={"a": torch.arange(3), "b": torch.ones(2, dtype=torch.bfloat16)})
        client.put("svc/array", data=np.arange(3))
        client.get(["svc/state", "svc/array"], tmp_path)
        assert load_file(value_in(tmp_path / "state"))["a"].tolist() == [0, 1, 2]
        assert np.load(value_in(tmp_path / "array"), allow_pickle=False).tolist() == [0, 1, 2]
