# SPDX-License-Identifier: Apache-2.0
"""penstock-mooncake: the same script prints the same lines with Mooncake's own wheel and its master, and with ours."""
from __future__ import annotations

import ctypes
import importlib
import mmap
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import penstock
import pytest
import support
from members import master
from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = ROOT / "integrations" / "mooncake"
CALLS = ROOT / "tests" / "lib" / "mooncake_calls.py"
NOT_OFFERED = {"_pybind11_conduit_v1_", "_get_pyclient_capsule"}
PAGE = 64 << 10


@pytest.fixture(scope="module")
def module() -> Iterator[Any]:
    """Our ``mooncake.store``."""
    sys.path.insert(0, str(OURS))
    try:
        yield importlib.import_module("mooncake.store")
    finally:
        sys.path.remove(str(OURS))


@pytest.fixture(scope="module")
def wheel() -> str:
    """The Python that has Mooncake's wheel."""
    done = subprocess.run([ROOT / "ci" / "venv", "mooncake", "integrations/mooncake/requirements.txt"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    python = done.stdout.strip()
    loaded = subprocess.run([python, "-c", "import mooncake.store"], capture_output=True, text=True, timeout=60)
    if "cannot open shared object" in loaded.stderr:
        pytest.skip(f"Mooncake's wheel wants libibverbs1, libnuma1 and libcurl4: {loaded.stderr.strip().splitlines()[-1]}")
    assert loaded.returncode == 0, loaded.stderr
    return python


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def mooncake_master(wheel: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of Mooncake's own master."""
    port, other = free_port(), free_port()
    log = tmp_path_factory.mktemp("mooncake") / "log"
    program = subprocess.run([wheel, "-c", "import mooncake; print(mooncake.__path__[0])"], capture_output=True, text=True,
                             timeout=60, check=True).stdout.strip()
    with log.open("w") as out:
        process = subprocess.Popen(
            [f"{program}/mooncake_master", f"--rpc_port={port}", "--rpc_address=127.0.0.1", f"--metrics_port={other}",
             "--enable_metric_reporting=false", "--default_kv_lease_ttl=200"], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        support.wait_until("Mooncake's master listens", lambda: listens(port))
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
def node() -> Iterator[support.Node]:
    with support.start_node("--dram", "256M", "--listen", "127.0.0.1:0", "--class", "mooncake/=cache") as node:
        yield node


def lines_of(python: str, address: str, what: str, *paths: object) -> list[str]:
    path = os.pathsep.join(map(str, paths))
    done = subprocess.run([python, "-B", CALLS, address, what], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=120, env=support.clean_environment(PYTHONPATH=path, HOME="/tmp"))
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def opened(module: Any, url: str, **settings: Any) -> Any:
    store = module.MooncakeDistributedStore()
    assert store.setup({"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "global_segment_size": 0,
                        "master_server_addr": url, **settings}) == 0
    return store


@pytest.mark.parametrize("what", ["bytes", "tensors"])
def test_same_answers(wheel: str, mooncake_master: str, node: support.Node, what: str) -> None:
    more: list[object] = []
    if what == "tensors":
        pytest.importorskip("torch", reason="torch is not installed")
        more = [path for path in sys.path if path.endswith("site-packages")]
    theirs = lines_of(wheel, mooncake_master, what, *more)
    ours = lines_of(sys.executable, f"{node.tcp}?lane=tcp", what, support.BUILD / "python", OURS, *more)
    assert len(theirs) > 60
    assert ours == theirs


def test_all_calls_are_there(wheel: str, module: Any) -> None:
    asked = subprocess.run([wheel, "-c", "from mooncake.store import MooncakeDistributedStore as M; print(*M.__dict__)"],
                           capture_output=True, text=True, timeout=60, check=True)
    names = {name for name in asked.stdout.split() if not name.startswith("__")}
    assert len(names) > 90
    assert names - set(dir(module.MooncakeDistributedStore)) == NOT_OFFERED


def test_a_tensor_is_stored_as_it_looks(module: Any, node: support.Node, request: pytest.FixtureRequest) -> None:
    """The bytes of a view may say otherwise, or not be there."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    wrappers = request.getfixturevalue("wrappers")
    store = opened(module, f"{node.tcp}?lane=tcp")
    negative = torch.tensor([1 + 2j]).conj().imag
    assert store.put_tensor("negative", negative) == 0
    assert store.get_tensor("negative").tolist() == [-2]
    for kind, tensor in (*wrappers.items(), ("meta", torch.ones(3, device="meta"))):
        assert store.put_tensor(kind, tensor) == -600 and not store.is_exist(kind)
    assert store.close() == 0


def test_segment_is_a_node_of_the_pool(module: Any, tmp_path: pathlib.Path) -> None:
    with master(tmp_path, place=None) as m:  # every key has a home: what one puts, another sees at once
        engines = [module.MooncakeDistributedStore() for _ in range(2)]
        assert [one.setup("127.0.0.1:17000", "P2PHANDSHAKE", 64 << 20, 16 << 20, "tcp", "", m.address) for one in engines] == [0, 0]
        m.has(2)
        names = {one.get_hostname() for one in engines}
        assert len(names) == 2 and all(name.startswith("127.0.0.1:") for name in names)
        assert engines[0].put("k", b"value") == 0
        assert engines[1].get("k") == b"value"
        with penstock.open(f"pool://{m.address}") as store:
            entry, = store.list("mooncake/default/")
            assert entry.cache  # it may be evicted, as in Mooncake
        assert [one.close() for one in engines] == [0, 0]


def test_registered_memory_of_two_stores(module: Any, node: support.Node) -> None:
    count = 5000  # more than one call of the store takes
    ours, other = (opened(module, f"{node.tcp}?lane=tcp") for _ in range(2))
    memory, back = (mmap.mmap(-1, 2 * count * 512) for _ in range(2))
    memory.write(os.urandom(2 * count * 512))
    start, end = (ctypes.addressof(ctypes.c_char.from_buffer(one)) for one in (memory, back))
    assert ours.register_buffer(start, len(memory)) == 0 == other.register_buffer(end, len(back))
    keys, sizes = [f"page{i}" for i in range(count)], [512 + i % 512 for i in range(count)]
    assert ours.batch_put_from(keys, [start + 1024 * i for i in range(count)], sizes) == [0] * count
    assert other.batch_is_exist([*keys, "none"]) == [1] * count + [0]
    assert other.batch_get_into(keys, [end + 1024 * i for i in range(count)], [1024] * count) == sizes
    assert all(memory[1024 * i:1024 * i + size] == back[1024 * i:1024 * i + size] for i, size in enumerate(sizes))
    assert ours.remove_by_regex("^page1") == sum(key.startswith("page1") for key in keys)
    assert [ours.close(), other.close()] == [0, 0]


def test_tenants_do_not_meet(module: Any, node: support.Node) -> None:
    with penstock.open(node.tcp) as store:
        store.put("others", b"kept")
        one, two = (opened(module, node.tcp, tenant_id=name) for name in ("one", "two"))
        assert one.put("k", b"1") == two.put("k", b"22") == 0
        assert (one.get("k"), two.get("k")) == (b"1", b"22")
        assert one.remove_all() == 1
        assert (one.get("k"), two.get("k"), store.get("others")) == (b"", b"22", b"kept")
        one.close()
        two.close()


def test_killed_node_is_codes_and_misses(module: Any, node: support.Node, caplog: pytest.LogCaptureFixture) -> None:
    store = opened(module, f"{node.tcp}?lane=tcp")
    memory = mmap.mmap(-1, PAGE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert store.put("k", b"value") == 0
    node.kill()
    assert store.get("k") == b""
    assert store.get_batch(["k", "l"]) == [b"", b""]
    assert store.get_buffer("k") is None
    for code in (store.put("m", b"x"), store.get_into("k", base, PAGE), store.is_exist("k"), store.get_size("k"), store.remove("k"),
                 *store.batch_put_from(["m"], [base], [PAGE]), *store.batch_put_session_start(["m"], [PAGE]), store.remove_all()):
        assert code == -900
    assert store.health_check() == 2
    assert memory[:] == bytes(PAGE)
    assert store.close() == 0
    assert all(len(record.getMessage().splitlines()) == 1 for record in caplog.records)


def test_what_cannot_be_set_up(module: Any, node: support.Node, monkeypatch: pytest.MonkeyPatch,
                               caplog: pytest.LogCaptureFixture) -> None:
    store = module.MooncakeDistributedStore()
    assert [store.put("k", b"v"), store.is_exist("k"), store.health_check(), store.close()] == [-1010, -1010, 1, 0]
    assert store.get("k") == b"" and store.get_batch(["k"]) == [b""]
    for address in ("etcd://127.0.0.1:2379", "", f"127.0.0.1:{free_port()}"):
        assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", address) == -1
    assert store.setup({"local_hostname": "127.0.0.1"}) == -600
    assert store.setup("a", None) == store.setup("a", "b", None) == store.setup("a", "b", 0, 0, "tcp", "", None) == -600
    assert "'etcd://127.0.0.1:2379'" in caplog.text and "master: None" in caplog.text and "metadata_server" in caplog.text
    monkeypatch.setenv("PENSTOCK_URL", node.tcp)
    assert store.setup("127.0.0.1", "http://127.0.0.1/metadata", 1 << 20, 0, "rdma", "mlx5_0", "127.0.0.1:1") == 0
    assert store.setup("127.0.0.1", "", 0, 0, "tcp", "", node.tcp) == -600
    assert store.put("k", b"v") == 0
    dummy = module.MooncakeDistributedStore()
    assert dummy.setup_dummy(1 << 20, 1 << 20, node.tcp.removeprefix("node://")) == 0
    assert dummy.get("k") == b"v"
    assert [dummy.close(), store.close()] == [0, 0]


def test_memory_that_is_not_this_process_s(module: Any, node: support.Node) -> None:
    store = opened(module, node.tcp)
    memory = mmap.mmap(-1, PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    memory.close()
    assert store.register_buffer(address, PAGE) == -600
    pool = module.MooncakeHostMemAllocator()
    taken = pool.alloc(PAGE)
    assert store.register_buffer(taken, PAGE) == store.unregister_buffer(taken) == 0
    assert (pool.free(taken), pool.free(taken)) == (0, -1)
    store.close()


def test_key_that_comes_twice_has_one_outcome(module: Any) -> None:
    """What was not stored is stored for none of a batch's places that name it."""
    ours = module.MooncakeDistributedStore()
    url = f"mem:?dram=8M&page_size={PAGE}"
    assert ours.setup("localhost", url, 0, 0, "tcp", "", url) == 0
    large = ctypes.create_string_buffer(32 << 20)
    at, size = ctypes.addressof(large), len(large)
    for put in (ours.batch_put_from, ours.batch_upsert_from):
        one, other, small, empty, nowhere = put(["a", "a", "b", "a", "a"], [at, at, at, at, 0], [size, size, 10, 0, size])
        assert one == other < 0 == small == empty > nowhere, put
        assert ours.batch_is_exist(["a", "b"]) == [0, 1]
        assert put(["b", "b"], [at, at], [10, 10]) == [0, 0]
    assert ours.put_batch(["c", "c"], [b"1", b"2"]) == 0 and ours.get("c") == b"1"
    ours.close()


def test_ranges_outside_of_the_buffer(module: Any, node: support.Node) -> None:
    store, room = opened(module, node.tcp), (ctypes.c_char * 32)()
    middle = ctypes.addressof(room) + 16
    assert store.put("key", b"0123456789") == 0
    assert store.get_into_ranges([middle], [["key"]], [[[-8, 8]]], [[[0, 2]]], [[[4, 4]]]) == [[[-600, 4]]]
    assert store.get_into_ranges([0], [["key"]], [[[middle]]], [[[0]]], [[[4]]]) == [[[-600]]]
    assert room.raw == bytes(24) + b"2345" + bytes(4)
    store.close()


def test_reading_session_sees_one_value(module: Any, node: support.Node) -> None:
    store = opened(module, node.tcp)
    memory = mmap.mmap(-1, PAGE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert store.put("k", b"a" * 100) == 0
    assert store.batch_get_session_start(["k"]) == [0]
    assert store.batch_get_into_multi_buffer_ranges(["k"], [[base]], [[50]], [[0]]) == [50]
    assert store.upsert("k", b"b" * 100) == 0
    assert store.batch_get_into_multi_buffer_ranges(["k"], [[base + 50]], [[50]], [[50]]) == [-704]  # no bytes of another value
    assert memory[:100] == b"a" * 50 + bytes(50)
    store.close()
