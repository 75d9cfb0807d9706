# SPDX-License-Identifier: Apache-2.0
"""Tensors in the memory of a GPU that this machine does not have: between processes, and between pods by data_store.put and get."""
from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import fake_gpu
import numpy as np
import pytest
from agent import Agent
from data_store import DataStore
from fake_gpu import Driver, Memory
from support import BUILD, clean_environment, wait_until

from penstock import gpus, sharing
from penstock.data_store import AgentError, KeyNotFound

#: Of pods, other ones in each process that runs tests beside this one.
IPS = [f"127.0.{50 + int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0')[2:])}.{number}" for number in (2, 3, 4)]
HEAD = """
    import os, sys
    sys.path.insert(0, os.environ["TEST_LIB"])
    import numpy as np
    from fake_gpu import Array, Driver, Said
    from penstock import data_store, gpus, sharing
    from penstock.data_store import BroadcastWindow
    driver = Driver()
"""


@pytest.fixture(scope="module")
def driver() -> Driver:
    return Driver()


@pytest.fixture
def agent(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    with Agent(tmp_path, environment=fake_gpu.environment()) as it:
        monkeypatch.setenv("PENSTOCK_AGENT_SOCKET", str(it.socket))
        yield it


def child(code: str, **environment: str) -> subprocess.Popen[str]:
    """Code in a process of its own, beside a GPU."""
    found = clean_environment(PYTHONPATH=str(BUILD / "python"), TEST_LIB=str(pathlib.Path(__file__).resolve().parents[1] / "lib"),
                              PENSTOCK_BUILD=str(BUILD), **fake_gpu.environment(**environment))
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(HEAD) + textwrap.dedent(code)], env=found, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end_of(process: subprocess.Popen[str]) -> str:
    """Its last line; of one that failed its error."""
    out, fault = process.communicate(timeout=120)
    return out.strip().splitlines()[-1] if process.returncode == 0 and out.strip() else fault.strip().splitlines()[-1] if fault.strip() else ""


# ---- between processes


def test_memory_is_shared_as_it_is(agent: Agent, driver: Driver) -> None:
    """A state dict of a GPU's arrays and the host's, attached twice, and written to."""
    array = fake_gpu.Array(driver, np.arange(60, dtype=np.float32).reshape(3, 4, 5))
    view = array.view(np.s_[1:, ::2, 1], "float32")
    sharing.share("run/w", {"a": array, "view": view, "host": np.arange(3), "step": 7})
    process = child("""
        for _ in range(2):
            got = sharing.attach("run/w")
        assert got["step"] == 7 and got["host"].tolist() == [0, 1, 2]
        assert isinstance(got["a"], gpus.GpuArray) and got["a"].shape == (3, 4, 5) and got["a"].dtype == "float32"
        whole, view = Array.seen(got["a"]), Array.seen(got["view"])
        assert whole.tolist() == np.arange(60).reshape(3, 4, 5).tolist() and view.tolist() == whole[1:, ::2, 1].tolist()
        whole[0, 0, 0] = 99
        assert len(gpus.imports) == 1
        got = whole = view = None
        import gc; gc.collect()
        assert len(gpus.imports) == 0
        print("done")
    """, PENSTOCK_AGENT_SOCKET=str(agent.socket))
    assert end_of(process) == "done"
    assert array.read()[0, 0, 0] == 99
    assert sharing.unshare("run/w")
    array.close()


def kept_by(agent: Agent) -> list[str]:
    return [key for socket, key in sharing.kept.places if socket == str(agent.socket)]


def test_the_memory_stays_while_it_is_shared(agent: Agent, driver: Driver) -> None:
    held = fake_gpu.Array(driver, np.ones(4, np.float32))
    sharing.share("run/w", held)
    assert [place.value for place, _ in sharing.kept.places[str(agent.socket), "run/w"]] == [held]
    sharing.share("run/w", np.ones(3))
    assert not kept_by(agent)
    sharing.share("run//w/", held)
    assert sharing.unshare("run/w") and not kept_by(agent)
    sharing.share("run/w/below", held)
    sharing.share("run/w2", held)
    sharing.share("run/w", np.ones(3))
    assert kept_by(agent) == ["run/w2"]
    assert sharing.unshare("run") and not kept_by(agent)
    held.close()


def test_a_gpu_that_is_not_here_and_memory_that_is_gone(agent: Agent, driver: Driver) -> None:
    array = fake_gpu.Array(driver, np.ones(4, np.float32))
    sharing.share("run/w", array)
    without = end_of(child('os.environ["LD_LIBRARY_PATH"] = ""; gpus.driver._calls = None; gpus.ctypes.CDLL = lambda name: (_ for _ in ()).throw('
                           'OSError(name + ": not there"))\nsharing.attach("run/w")', PENSTOCK_AGENT_SOCKET=str(agent.socket)))
    assert without == "penstock.gpus.GpuError: no CUDA here: libcuda.so.1: not there"
    array.close()  # without unsharing it
    assert end_of(child('sharing.attach("run/w")', PENSTOCK_AGENT_SOCKET=str(agent.socket))).startswith("penstock.gpus.GpuError: cuIpcOpenMemHandle")
    owner = child('array = Array(driver, np.ones(4, np.float32)); sharing.share("run/x", array); print("ready", flush=True); sys.stdin.read()',
                  PENSTOCK_AGENT_SOCKET=str(agent.socket))
    assert owner.stdout and owner.stdout.readline() == "ready\n"
    assert sharing.attach("run/x").shape == (4,)
    gc.collect()
    owner.kill()
    owner.communicate()

    def is_gone() -> bool:
        try:
            sharing.attach("run/x")
        except KeyNotFound:
            return True
        return False

    wait_until("an owner that has ended is noticed", is_gone)


def test_what_cannot_be_shared(agent: Agent, driver: Driver) -> None:
    array = fake_gpu.Array(driver, np.ones(4, np.float32))
    with pytest.raises(TypeError, match="<U2"):
        sharing.share("run/w", fake_gpu.Said(array, typestr="<U2"))
    with pytest.raises(TypeError, match="masked"):
        sharing.share("run/w", fake_gpu.Said(array, mask=array))
    with pytest.raises(AgentError, match="does not lie within its memory"):
        sharing.share("run/w", fake_gpu.Said(array, shape=(5,)))
    with pytest.raises(gpus.GpuError, match="cuPointerGetAttribute"):
        sharing.share("run/w", fake_gpu.Said(array, data=(8, False)))
    sharing.share("run/w", array)
    assert fake_gpu.Array.seen(sharing.attach("run/w")).tolist() == [1, 1, 1, 1]  # its own
    with pytest.raises(TypeError, match="only tensors of torch"):
        sharing.attach("run/w", into=array)
    assert sharing.shared_like({"x": array})["x"].tolist() == [0, 0, 0, 0]
    array.close()


def test_memory_that_goes_may_run_anything(agent: Agent, driver: Driver) -> None:
    """Whose last reference is the one of what is shared."""
    class Owner(fake_gpu.Said):
        def __del__(self) -> None:
            ended.append(sharing.unshare("run/other"))

    ended: list[bool] = []
    array = fake_gpu.Array(driver, np.ones(4, np.float32))
    sharing.share("run/other", array)
    sharing.share("run/w", Owner(array))
    sharing.share("run/w", np.ones(3))
    assert ended == [True] and not kept_by(agent)
    array.close()


def test_threads_attach_and_let_go(agent: Agent, driver: Driver) -> None:
    """Of the same memory, which is opened by one while another one closes it."""
    array = fake_gpu.Array(driver, np.ones(4, np.float32))
    sharing.share("run/w", array)
    assert end_of(child("""
        import concurrent.futures
        def attach(_):
            for _ in range(300):
                assert sharing.attach("run/w").shape == (4,)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(attach, range(4)))
        print("opened", len(gpus.imports))
    """, PENSTOCK_AGENT_SOCKET=str(agent.socket))) == "opened 0"
    array.close()


# ---- between pods


class Pods:
    """Agents of pods with addresses of their own, and a store."""

    def __init__(self, folder: pathlib.Path, stack: contextlib.ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.store = stack.enter_context(DataStore(folder / "data"))

    def add(self, ip: str, **environment: str) -> Agent:
        folder = self.folder / ip
        folder.mkdir()
        agent = Agent(folder, "--agent-listen", f"{ip}:0", "--agent-network=yes", environment=fake_gpu.environment(**environment))
        return self.stack.enter_context(agent)

    def child(self, agent: Agent, ip: str, code: str) -> subprocess.Popen[str]:
        return child(code, PENSTOCK_AGENT_SOCKET=str(agent.socket), POD_IP=ip, POD_NAME=f"pod-{ip}",
                     PENSTOCK_DATA_URL=f"http://127.0.0.1:{self.store.http_port}", PENSTOCK_DATA_RSYNC=f"127.0.0.1:{self.store.rsync_port}")


@pytest.fixture
def pods(tmp_path: pathlib.Path) -> Iterator[Pods]:
    with contextlib.ExitStack() as stack:
        yield Pods(tmp_path, stack)


PUT = """
    source = np.arange(6000, dtype=np.float32).reshape(60, 100)
    array, vector = Array(driver, source), Array(driver, np.arange(9, dtype=np.int8))
    data_store.put("svc/w", data={"layer": {"w": array, "rows": array.view(np.s_[::2, :7], "float32")}, "b": vector,
                                     "none": Array(driver, np.zeros((2, 0), np.int16)), "one": Array(driver, np.array(7.5))}, broadcast=%s)
    print("put")
"""
KILL = """
    def execute(self, *more):
        os.kill(self.ping()["pid"], 9)
        raise data_store.AgentError("it was killed")

    data_store.PodDataServerClient.execute_broadcast_group = execute
"""
GET = """
    dests = [Array(driver, np.zeros(shape, dtype)) for shape, dtype in (((60, 100), np.float32), ((30, 7), np.float32), (9, np.int8),
                                                                           ((2, 0), np.int16), ((), np.float64))]
    dest = {"layer": {"w": dests[0], "rows": dests[1]}, "b": dests[2], "none": dests[3], "one": dests[4]}
    assert data_store.get("svc/w", dest, broadcast=%s) is dest
    source = np.arange(6000, dtype=np.float32).reshape(60, 100)
    assert [dest.read().tolist() for dest in dests] == [source.tolist(), source[::2, :7].tolist(), list(range(9)), [[], []], 7.5]
    print("got")
"""


def test_a_state_dict_goes_from_gpu_to_gpus(pods: Pods) -> None:
    """One pod puts; two others get, one of them with two processes; then once more."""
    ips = IPS
    agents = [pods.add(ip) for ip in ips]
    window = "BroadcastWindow(timeout=40, world_size=3)"
    for _ in range(2):
        processes = [pods.child(agents[1], ips[1], GET % window), pods.child(agents[0], ips[0], PUT % window),
                     pods.child(agents[2], ips[2], GET % window)]
        assert [end_of(process) for process in processes] == ["got", "put", "got"]
    assert agents[0].ask("list_keys")["keys"] == []
    window = "BroadcastWindow(timeout=40, world_size=3, group_id='other')"
    processes = [pods.child(agents[0], ips[0], PUT % window), pods.child(agents[0], ips[0], GET % window),
                 pods.child(agents[1], ips[1], GET % window)]
    assert [end_of(process) for process in processes] == ["put", "got", "got"]


def test_a_group_that_cannot_be(pods: Pods) -> None:
    agent = pods.add(IPS[0])
    window = "BroadcastWindow(timeout=2)"
    told = end_of(pods.child(agent, IPS[0], GET % window))
    assert told.startswith("penstock.data_store.errors.StoreRefused: group svc/w: ") and "putter" in told, told


MANY = """
    import threading
    faults, window = [], lambda group: BroadcastWindow(timeout=40, world_size=2, group_id=group)
    sharing.share("default/svc/w", Array(driver, np.full(4, 9.0)))
    def run(number):
        array = Array(driver, np.full(1000, %s, np.float32))
        try:
            data_store.%s
        except Exception as error:
            faults.append(repr(error))
        if array.read().tolist() != [number] * 1000:
            faults.append(f"{number} has {array.read()[:3]}")
    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    got = Array.seen(sharing.attach("default/svc/w")).tolist()
    print(faults, got)
"""


def test_threads_move_at_once_under_one_key(pods: Pods) -> None:
    """Each to its own group; and what is shared under the key stays."""
    ips = IPS[:2]
    agents = [pods.add(ip) for ip in ips]
    processes = [pods.child(agents[0], ips[0], MANY % ("number", 'put("svc/w", data=array, broadcast=window(f"g{number}"))')),
                 pods.child(agents[1], ips[1], MANY % ("-1", 'get("svc/w", array, broadcast=window(f"g{number}"))'))]
    assert [end_of(process) for process in processes] == ["[] [9.0, 9.0, 9.0, 9.0]"] * 2


FAULTS = """
    array, other = Array(driver, np.ones(6, np.float32)), Array(driver, np.zeros((2, 3), np.int64))
    window = BroadcastWindow(timeout=1)
    nested = array
    for _ in range(200):
        nested = {"x": nested}
    said = array.__cuda_array_interface__
    for what, data in (("twice", {"a.b": array, "a": {"b": other}}), ("deep", nested), ("many", {str(i): array for i in range(5000)}),
                       ("no interface", Said(array, shape=None)), ("part", Said(array, shape=(2.5,))), ("strides", Said(array, strides=(4, 4))),
                       ("rank", Said(array, shape=(1,) * 33)), ("long", {"x" * 3000 + str(i): array for i in range(500)})):
        for call in (lambda: data_store.put("svc/w", data=data, broadcast=window), lambda: data_store.get("svc/w", data, broadcast=window)):
            try:
                call()
                print(what, "no error")
            except (TypeError, ValueError) as error:
                pass
    for what, dest in (("read-only", Said(array, data=(said["data"][0], True))), ("on top", Said(array, strides=(0,)))):
        try:
            data_store.get("svc/w", dest, broadcast=window)
            print(what, "no error")
        except ValueError as error:
            pass
    try:
        data_store.put("svc/w", data=array, broadcast=BroadcastWindow(ips=["10.0.0.1"]))
        print("ips", "no error")
    except ValueError as error:
        pass
    print("done")
"""


def test_what_cannot_be_moved(pods: Pods) -> None:
    agent = pods.add(IPS[0])
    process = pods.child(agent, IPS[0], FAULTS)
    out, fault = process.communicate(timeout=120)
    assert out == "done\n", out + fault
    assert agent.ask("list_keys")["keys"] == []


def test_a_put_is_interrupted(pods: Pods) -> None:
    """And so is what the agent does for it: the memory is nobody's any more when put returns."""
    ips = IPS[:2]
    agents = [pods.add(ips[0], FAKE_NCCL="hang"), pods.add(ips[1])]
    window = "BroadcastWindow(timeout=60, world_size=2)"
    putter = pods.child(agents[0], ips[0], PUT % window)
    getter = pods.child(agents[1], ips[1], GET % window)
    wait_until("NCCL is at work", lambda: movers_of(agents[0].pid))
    time.sleep(1)
    putter.send_signal(signal.SIGINT)
    assert end_of(putter) == "KeyboardInterrupt"
    told = end_of(getter)
    assert "rank 0: the process that asked for it has gone" in told or ips[0] in told, told
    wait_until("its mover ends", lambda: not movers_of(agents[0].pid))


def movers_of(pid: int) -> list[str]:
    return [child for file in pathlib.Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]


def test_a_client_that_is_closed_waits_no_longer(pods: Pods) -> None:
    agent = pods.add(IPS[0])
    told = end_of(pods.child(agent, IPS[0], """
        import threading, time
        client = data_store.DataStoreClient()
        threading.Timer(1, client.close).start()
        try:
            client.put("svc/w", data=Array(driver, np.ones(4)), broadcast=BroadcastWindow(world_size=2))
        except data_store.DataStoreError as error:
            print(type(error).__name__)
    """))
    assert told == "StoreUnreachable"
    assert agent.ask("list_keys")["keys"] == []


def test_arrays_of_a_gpu_come_as_the_hosts(pods: Pods) -> None:
    """By the way that goes through the memory of the hosts."""
    ips = IPS[:2]
    agents = [pods.add(ip) for ip in ips]
    owner = pods.child(agents[0], ips[0], """
        data_store.put("svc/w", data={"g": Array(driver, np.arange(4, dtype=np.float32)), "h": np.ones(3)}, locale="local",
                       broadcast=BroadcastWindow(timeout=20))
        print("put", flush=True)
        sys.stdin.read()
    """)
    assert owner.stdout and owner.stdout.readline() == "put\n"
    assert end_of(pods.child(agents[1], ips[1], """
        got = data_store.get("svc/w", broadcast=BroadcastWindow(timeout=20))
        into = {"g": np.zeros(4, np.float32), "h": np.zeros(3)}
        data_store.get("svc/w", into, broadcast=BroadcastWindow(timeout=20))
        print(got["g"].tolist(), got["g"].dtype, into["g"].tolist(), into["h"].tolist())
    """)) == "[0.0, 1.0, 2.0, 3.0] float32 [0.0, 1.0, 2.0, 3.0] [1.0, 1.0, 1.0]"
    owner.communicate("")


def test_a_pod_whose_nccl_fails(pods: Pods) -> None:
    """Every process hears of it, in its own words or the store's."""
    ips = IPS[:2]
    agents = [pods.add(ips[0]), pods.add(ips[1], FAKE_NCCL="crash")]
    window = "BroadcastWindow(timeout=20, world_size=2)"
    told = [end_of(process) for process in (pods.child(agents[0], ips[0], PUT % window), pods.child(agents[1], ips[1], GET % window))]
    assert all("ended by signal 6" in one for one in told), told
    assert agents[0].ask("list_keys")["keys"] == []


def test_a_pod_whose_agent_ends(pods: Pods) -> None:
    """The others hear of it from the store, and do not wait for it to come."""
    ips = IPS[:2]
    agents = [pods.add(ip) for ip in ips]
    window = "BroadcastWindow(timeout=60, world_size=2)"
    putter = pods.child(agents[0], ips[0], KILL + PUT % window)
    told = [end_of(process) for process in (putter, pods.child(agents[1], ips[1], GET % window))]
    assert told[0] == "penstock.data_store.errors.AgentError: it was killed"
    assert told[1].startswith("penstock.data_store.errors.StoreRefused: group svc/w: ") and ips[0] in told[1], told


def test_a_value_of_the_store_fills_a_gpu_as_before(pods: Pods) -> None:
    """A key under which there is something needs nobody who puts: torch alone can fill a GPU from the host."""
    agent = pods.add(IPS[0])
    told = end_of(pods.child(agent, IPS[0], """
        data_store.put("svc/w", data=np.zeros((2, 2)))
        try:
            data_store.get("svc/w", Array(driver, np.ones((2, 2))), broadcast=BroadcastWindow(timeout=1))
        except TypeError as error:
            print("TypeError", error)
    """))
    assert told.startswith("TypeError"), told


def test_names_of_elements() -> None:
    sizes: dict[str, Any] = {name: gpus.element_bytes_of(name) for name in sharing.DTYPES}
    assert {name: size for name, size in sizes.items() if name.startswith(("float8", "float4", "bool", "int8", "uint8"))}.items() >= {
        ("bool", 1), ("int8", 1), ("uint8", 1), ("float8_e4m3fn", 1), ("float4_e2m1fn_x2", 1)}
    assert [sizes[name] for name in ("bfloat16", "float32", "int64", "complex32", "complex64", "complex128")] == [2, 4, 8, 4, 8, 16]
    assert os.environ.get("PENSTOCK_BUILD")
