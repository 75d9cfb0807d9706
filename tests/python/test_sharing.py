# SPDX-License-Identifier: Apache-2.0
"""penstock.sharing: tensors from one process to another, in its memory, by a real agent."""
from __future__ import annotations

import gc
import os
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from agent import Agent
from all_arrays import arrays
from descriptors import memfds_of
from support import BUILD, clean_environment, wait_until

from penstock import sharing
from penstock.data_store import AgentError, KeyNotFound
from penstock.data_store.pod_data_server import PodDataServerClient

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

needs_torch = pytest.mark.skipif(torch is None, reason="needs torch")
SWEEPS_S = 30


@pytest.fixture
def agent(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    with Agent(tmp_path) as it:
        monkeypatch.setenv("PENSTOCK_AGENT_SOCKET", str(it.socket))
        yield it


def child(agent: Agent, code: str, *, wait: bool = True) -> Any:
    """Run code in a process of its own: its last line of output, or the process if it is not waited for."""
    environment = clean_environment(PENSTOCK_AGENT_SOCKET=str(agent.socket), PYTHONPATH=str(BUILD / "python"))
    head = "import os, sys, time\nimport numpy as np\nfrom penstock import sharing\n"
    process = subprocess.Popen([sys.executable, "-c", head + textwrap.dedent(code)], env=environment, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout
    if not wait:
        assert process.stdout.readline() == "ready\n"
        return process
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    return out.strip().splitlines()[-1] if out.strip() else ""


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def mapped_here() -> list[str]:
    return [line for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if "memfd:penstock-tensor" in line]


def open_in(pid: int) -> int:
    return memfds_of(pid, "penstock-tensor")


@pytest.mark.parametrize("name", list(arrays()))
def test_arrays_arrive_equal(agent: Agent, name: str) -> None:
    array = arrays()[name]
    sharing.share("key", {name: array})
    got = sharing.attach("key")
    assert list(got) == [name] and got[name].dtype == array.dtype and got[name].shape == array.shape
    assert got[name].tobytes() == array.tobytes() and not got[name].flags.writeable


def test_arrays_of_one_name_go_where_they_were(agent: Agent) -> None:
    tree = {"a.b": np.ones(2), "a": {"b": np.zeros(2)}, 1: np.full(2, 3.0), "1": np.full(2, 4.0)}
    sharing.share("key", tree)
    into = {"1": np.empty(2), 1: np.empty(2), "a": {"b": np.empty(2)}, "a.b": np.empty(2)}
    sharing.attach("key", into=into)
    assert [into["a.b"][0], into["a"]["b"][0], into[1][0], into["1"][0]] == [1, 0, 3, 4]
    sharing.share("key", {"a": {"b": np.ones(2)}})
    with pytest.raises(ValueError, match="several tensors are called 'a.b'"):
        sharing.attach("key", into={"a.b": np.empty(2), "": {"a.b": np.empty(2)}})


@needs_torch
def test_a_meta_tensor_is_not_filled(agent: Agent) -> None:
    sharing.share("key", {"other": np.ones(2), "w": torch.ones(2)})
    other = np.zeros(2)
    with pytest.raises(ValueError, match="'w' is on the meta device"):
        sharing.attach("key", into={"other": other, "w": torch.empty(2, device="meta")})
    assert not other.any()


@needs_torch
def test_tensors_without_memory_of_their_own_are_refused(agent: Agent, wrappers: dict[str, Any]) -> None:
    other = np.zeros(2)
    for kind, tensor in wrappers.items():
        with pytest.raises(TypeError, match=f"'w' is a {kind} without memory of its own"):
            sharing.share("key", {"other": np.ones(2), "w": tensor})
        sharing.share("there", {"other": np.ones(2), "w": torch.ones(4)})
        with pytest.raises(ValueError, match=f"'w' is a {kind} without memory of its own"):
            sharing.attach("there", into={"other": other, "w": tensor})
        assert not other.any()
    with pytest.raises(KeyNotFound):
        sharing.attach("key")
    sharing.share("key", {"w": torch.nn.Parameter(torch.ones(2))})
    assert sharing.attach("key")["w"].tolist() == [1, 1]


def test_a_nesting_comes_back(agent: Agent) -> None:
    tree = {"a": [1, (None, "text", 2.5, np.arange(3))], 7: {"b": b"bytes", "": b"", "x": True}, "a.1": np.zeros(2)}
    sharing.share("run//weights/", tree)
    got = sharing.attach("run/weights")
    assert list(got) == ["a", 7, "a.1"] and got["a"][1][:3] == (None, "text", 2.5) and got[7] == tree[7]
    assert got["a"][1][3].tolist() == [0, 1, 2] and got["a.1"].tolist() == [0, 0]
    sharing.share("run/weights", np.arange(4))
    assert sharing.attach("run/weights").tolist() == [0, 1, 2, 3]  # and nothing of what was there
    assert {one["key"] for one in agent.ask("list_keys")["keys"]} == {"run/weights", "run/weights/~tree"}
    assert sharing.unshare("run/weights") and not sharing.unshare("run/weights")
    with pytest.raises(KeyNotFound, match="run/weights"):
        sharing.attach("run/weights")


def test_nothing_is_copied(agent: Agent) -> None:
    """What lies in shared memory is the same memory on both sides; what does not is copied into one memory."""
    mine = sharing.empty_shared((4, 1000), "float64")
    mine[:] = np.arange(4000).reshape(4, 1000)
    sharing.share("key", {"whole": mine, "part": mine[1:3, ::2], "copied": np.ones(5), "too": np.ones(6)})
    assert open_in(agent.pid) == 2
    got = sharing.attach("key")
    assert got["part"].tolist() == mine[1:3, ::2].tolist() and np.shares_memory(got["whole"], got["part"])
    mine[1, 0] = -5
    assert got["whole"][1, 0] == got["part"][0, 0] == -5
    with pytest.raises(ValueError, match="read-only"):
        got["whole"][0, 0] = 1
    with pytest.raises(PermissionError, match="reading only"):
        sharing.attach("key", writable=True)
    sharing.share("key", {"whole": mine}, writable=True)
    sharing.attach("key", writable=True)["whole"][0, 0] = 9
    assert mine[0, 0] == 9


def test_a_state_dict_in_one_memory(agent: Agent) -> None:
    tree = {"a": [np.ones((3, 5), np.int16), {"b": np.ones(7, np.complex64)}], "c": "text", "d": b"bytes", "none": np.ones((0, 2))}
    mine = sharing.shared_like(tree)
    assert mine["a"][0].shape == (3, 5) and mine["a"][0].dtype == np.int16 and mine["c"] == "text" and mine["d"] == b"bytes"
    assert not mine["a"][0].any() and len(mapped_here()) == 1
    mine["a"][0][:], mine["a"][1]["b"][:] = 5, 1j
    sharing.share("key", mine)
    assert open_in(agent.pid) == 2
    got = sharing.attach("key")
    mine["a"][0][2, 4] = 6
    assert got["a"][0].tolist() == [[5] * 5, [5] * 5, [5, 5, 5, 5, 6]] and got["a"][1]["b"].tolist() == [1j] * 7
    with pytest.raises(TypeError, match="'x' has the dtype object"):
        sharing.shared_like({"x": np.array([None])})


def test_arrays_that_share_memory_share_it_again(agent: Agent) -> None:
    base = np.arange(20, dtype=np.int32)
    sharing.share("key", {"a": base[2:12], "b": base[8:], "c": base[4:6].view(np.int64), "other": np.arange(3)}, writable=True)
    got = sharing.attach("key", writable=True)
    got["a"][6] = 100
    got["c"][0] = 0
    assert got["b"][0] == 100 and got["a"][2:4].tolist() == [0, 0] and base[8] == 8
    assert not np.shares_memory(got["a"], got["other"])


def test_a_mapping_ends_with_the_last_array(agent: Agent) -> None:
    mine = sharing.empty_shared(1000, "uint8")
    sharing.share("key", {"a": mine, "b": mine[5:]})
    del mine
    gc.collect()
    assert mapped_here() == [] and open_in(os.getpid()) == 0 and open_in(agent.pid) == 2
    got = sharing.attach("key")
    assert len(mapped_here()) == 1  # the nesting has been read
    part = got["b"][10:]
    del got
    gc.collect()
    assert len(mapped_here()) == 1 and part.tolist() == [0] * 985
    del part
    gc.collect()
    assert mapped_here() == []


def test_into_is_filled(agent: Agent) -> None:
    sharing.share("key", {"a": np.arange(6).reshape(2, 3), "b": [np.float32([1, 2])]})
    into = {"a": np.zeros((2, 3), int), "b": [np.zeros(2, np.float32)]}
    assert sharing.attach("key", into=into) is into
    assert into["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and into["b"][0].tolist() == [1, 2] and into["a"].flags.writeable
    gc.collect()
    assert mapped_here() == []
    for wrong, kind in (({"a": into["a"]}, ValueError), ({**into, "c": np.zeros(1)}, ValueError), ({**into, "a": np.zeros((2, 3))}, TypeError),
                        ({**into, "a": np.zeros((3, 2), int)}, ValueError)):
        with pytest.raises(kind):
            sharing.attach("key", into=wrong)
    client = PodDataServerClient()
    client.put_tensor("one", np.arange(3))
    assert client.get_tensor("one").tolist() == [0, 1, 2]
    assert client.get_tensor("one", np.zeros(3, int)).tolist() == [0, 1, 2]


def test_what_others_have_put_comes_under_its_names(agent: Agent) -> None:
    names = ["layer.0", "layer/0/w", "100%", "%2F"]
    memory = sharing.allocate(len(names))
    memory[:] = bytes(range(len(names)))
    said = [{"key": f"model/{name}", "ipc_handle": (sharing.HEAD.pack(b"pst1", sharing.HOST, 0, 0, len(names), i) + bytes(4)).hex(),
             "shape": [], "dtype": "uint8"} for i, name in enumerate(names)]
    PodDataServerClient().register_tensors(said, [memory.fd], "model")
    assert {name: int(one) for name, one in sharing.attach("model").items()} == {name: i for i, name in enumerate(names)}


def test_as_many_tensors_as_an_agent_knows(agent: Agent) -> None:
    state = {f"model.language_model.layers.{i}.mlp.experts.weight_scale_inv": np.array([i]) for i in range(32_767)}  # and the nesting
    sharing.share("run/model", state)
    found = sharing.attach("run/model")
    assert found.keys() == state.keys() and all(found[name][0] == state[name][0] for name in state)
    with pytest.raises(AgentError, match="1 to 32768"):
        sharing.share("run/model", {**state, "one more": np.array([0])})


def test_into_is_filled_whole_or_not(agent: Agent) -> None:
    sharing.share("key", {"a": np.ones(3), "b": np.ones(3), "bytes": b"theirs", "number": 1})
    into = {"a": np.zeros(3), "b": np.zeros(3), "bytes": b"mine", "number": 2}
    assert sharing.attach("key", into=into) is into
    assert into["a"].all() and into["b"].all() and (into["bytes"], into["number"]) == (b"mine", 2)
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    piled = np.lib.stride_tricks.as_strided(np.zeros(1), (3,), (0,))
    for wrong, why in ((frozen, "'b' cannot be written"), (piled, "'b' has elements on top of each other")):
        first = np.zeros(3)
        with pytest.raises(ValueError, match=why):
            sharing.attach("key", into={**into, "a": first, "b": wrong})
        assert not first.any()


@pytest.mark.parametrize("value, why", [
    (np.array(["text"]), "<U4|str"), (np.array([None]), "object"), (np.zeros(2, ">f4"), ">f4"), (np.zeros(2, np.longdouble), "128"),
    (np.zeros(2, "datetime64[s]"), "datetime64"), (np.ma.array([1, 2], mask=[0, 1]), "its mask"), (np.zeros(2, [("a", "i4")]), "'x'"), ({1, 2}, "set"), ({(1,): 2}, "key"),
])
def test_what_cannot_be_shared(agent: Agent, value: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        sharing.share("key", {"fine": np.zeros(1), "x": value})
    assert agent.ask("list_keys")["keys"] == []


def test_memory_that_there_is_not() -> None:
    for bad, kind in ((1 << 62, MemoryError), ((-1,), ValueError)):
        with pytest.raises(kind):
            sharing.empty_shared(bad, "uint8")
    with pytest.raises(TypeError, match="object"):
        sharing.empty_shared(1, object)
    with pytest.raises(TypeError, match="float31"):
        sharing.empty_shared(1, "float31")
    assert sharing.empty_shared((0, 3)).shape == (0, 3) and sharing.empty_shared((), "bool").item() is False


def test_no_agent(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AgentError, match="none.sock"):
        sharing.attach("key", agent=PodDataServerClient(str(tmp_path / "none.sock")))
    monkeypatch.setenv("PENSTOCK_PENSTOCKD", str(BUILD / "penstockd"))
    monkeypatch.setenv("PENSTOCK_AGENT_LISTEN", "127.0.0.1:0")
    client = PodDataServerClient(str(tmp_path / "started.sock"))
    sharing.share("key", np.arange(3), agent=client)
    assert sharing.attach("key", agent=client).tolist() == [0, 1, 2]
    os.kill(int(client.ping()["pid"]), 15)


# ---- between processes ----

def test_another_process_attaches(agent: Agent) -> None:
    mine = sharing.empty_shared(1 << 20, "uint8")
    mine[:] = np.arange(1 << 20) % 251
    sharing.share("key", {"a": mine, "b": np.arange(3)}, writable=True)
    told = f"{int(mine.astype(np.int64).sum())} [0, 1, 2]"
    assert child(agent, """
        got = sharing.attach("key", writable=True)
        print(int(got["a"].sum()), got["b"].tolist())
        got["a"][5] = 255
    """) == told
    assert mine[5] == 255


OWNER = """
    mine = sharing.empty_shared(5000, "uint8")
    mine[:] = 7
    sharing.share("key", {"a": mine, "copied": np.full(9, 8)})
    print("ready", flush=True)
    time.sleep(600)
"""


def test_who_is_attached_reads_on(agent: Agent) -> None:
    owner = child(agent, OWNER, wait=False)
    with pytest.raises(AgentError, match="process's|process "):
        sharing.share("key", np.zeros(1))
    got = sharing.attach("key")
    end(owner)
    with pytest.raises(KeyNotFound, match=f"gone: process {owner.pid} has ended"):
        sharing.attach("key")
    wait_until("the agent has none of it", lambda: open_in(agent.pid) == 0, SWEEPS_S)
    assert got["a"].tolist() == [7] * 5000 and got["copied"].tolist() == [8] * 9
    del got
    gc.collect()
    assert mapped_here() == []
    sharing.share("key", np.zeros(1))


@pytest.mark.parametrize("step", ["before", "attached"])
def test_a_receiver_that_is_killed_keeps_nothing(agent: Agent, step: str) -> None:
    mine = sharing.empty_shared(5000, "uint8")
    sharing.share("key", mine)
    inode = os.fstat(sharing.own[mine.ctypes.data].fd).st_ino
    if step == "before":  # it has asked, and has not taken the answer
        code = """
            from penstock.data_store import pod_data_server as pds
            def never(connection, size, fds):
                print("ready", flush=True)
                time.sleep(600)
            pds.receive_with = never
            sharing.attach("key")
        """
    else:
        code = "got = sharing.attach('key')\nprint('ready', flush=True)\ntime.sleep(600)"
    receiver = child(agent, code, wait=False)
    has = any(f" {inode} " in line for line in pathlib.Path(f"/proc/{receiver.pid}/maps").read_text().splitlines())
    assert has == (step == "attached")
    end(receiver)
    assert sharing.unshare("key")
    wait_until("the agent has closed it", lambda: open_in(agent.pid) == 0)
    assert sharing.empty_shared(1) is not None and mine.tolist() == [0] * 5000


def test_an_agent_that_is_killed_takes_nothing_along(agent: Agent, tmp_path: pathlib.Path) -> None:
    mine = sharing.empty_shared(5000, "uint8")
    mine[:] = 3
    sharing.share("key", {"a": mine, "b": np.full(3, 4)})
    got = sharing.attach("key")
    os.kill(agent.pid, 9)
    agent.process.wait()
    with pytest.raises(AgentError, match="refused"):
        sharing.attach("key")
    assert got["a"].tolist() == [3] * 5000 and got["b"].tolist() == [4] * 3
    with Agent(tmp_path):
        sharing.share("key", {"a": mine})
        assert sharing.attach("key")["a"].tolist() == [3] * 5000


def test_an_agent_that_answers_nonsense(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    sharing.share("key", np.zeros(3))
    real = PodDataServerClient.find_tensors

    def changed(self: PodDataServerClient, key: str) -> Any:
        found = real(self, key)
        for said in found.tensors:
            said["ipc_handle"] = said["ipc_handle"][:-8] + "ffffffff"
        return found

    monkeypatch.setattr(PodDataServerClient, "find_tensors", changed)
    with pytest.raises(AgentError, match="handle"):
        sharing.attach("key")
    gc.collect()
    assert [line for line in mapped_here() if " r--s " in line] == []


# ---- torch ----

def tensors() -> dict[str, Any]:
    if torch is None:
        return {"torch": None}
    base = torch.arange(60, dtype=torch.float32).reshape(6, 10)
    out = {}
    for name in sorted(sharing.DTYPES):
        dtype = getattr(torch, name, None)
        if dtype is not None:
            out[name] = torch.arange(64, dtype=torch.uint8).view(dtype).reshape(2, -1) if dtype != torch.bool else torch.tensor([True, False])
    out.update(number=torch.tensor(7.5), none=torch.empty(3, 0, 2), row=base[1:5, 2:7], turned=base.T, same=torch.tensor(3.0).expand(4, 5),
               column=base[:, 3], conj=torch.tensor([1 + 2j]).conj(), grad=torch.ones(3, requires_grad=True), permuted=torch.randn(
                   2, 3, 4).permute(2, 0, 1), narrow=base.narrow(1, 9, 1))
    return out


def raw(tensor: Any) -> bytes:
    flat = tensor.detach().resolve_conj().contiguous()
    return bytes(flat.reshape(-1).view(torch.uint8).numpy().tobytes()) if flat.dim() else bytes(flat.reshape(1).view(torch.uint8).numpy().tobytes())


@needs_torch
@pytest.mark.parametrize("name", list(tensors()))
def test_tensors_arrive_equal(agent: Agent, name: str) -> None:
    tensor = tensors()[name]
    sharing.share("key", {name: tensor})
    got = sharing.attach("key")[name]
    assert got.dtype == tensor.dtype and got.shape == tensor.shape and raw(got) == raw(tensor)


@needs_torch
def test_tied_tensors_stay_tied(agent: Agent) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    model[1].weight = model[0].weight
    sharing.share("model", model.state_dict())
    got = sharing.attach("model")
    assert got["0.weight"].data_ptr() == got["1.weight"].data_ptr() and torch.equal(got["0.weight"], model[0].weight)
    other = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    sharing.attach("model", into=other.state_dict())
    assert torch.equal(other[1].weight, model[0].weight) and torch.equal(other[1].bias, model[1].bias)


@needs_torch
def test_tensors_in_shared_memory_are_not_copied(agent: Agent) -> None:
    mine = sharing.empty_shared((100, 10), torch.bfloat16)
    mine.copy_(torch.arange(1000).reshape(100, 10))
    sharing.share("key", {"a": mine, "b": mine[5:7, 1:], "numpy": np.ones(2)})
    got = sharing.attach("key")
    assert torch.equal(got["a"], mine) and torch.equal(got["b"], mine[5:7, 1:]) and isinstance(got["numpy"], np.ndarray)
    mine[5, 1] = -1
    assert got["a"][5, 1] == got["b"][0, 0] == -1
    del got, mine
    gc.collect()
    assert mapped_here() == []


@needs_torch
def test_a_model_in_one_memory(agent: Agent) -> None:
    with torch.device("meta"):
        model = torch.nn.Linear(3, 5, dtype=torch.bfloat16)
    mine = sharing.shared_like(model.state_dict())
    mine["weight"].fill_(2)
    model.load_state_dict(mine, assign=True)
    sharing.share("model", model.state_dict())
    got = sharing.attach("model")
    model.weight.data[4, 2] = 7
    assert got["weight"][4].tolist() == [2, 2, 7] and got["bias"].tolist() == [0] * 5 and got["bias"].dtype == torch.bfloat16


@needs_torch
def test_tensors_that_cannot_be_shared(agent: Agent) -> None:
    for bad, why in ((torch.eye(2).to_sparse(), "'x' is no dense tensor"), (torch.empty(2, device="meta"), "'x'"),
                     (torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8), "'x'")):
        with pytest.raises(TypeError, match=why):
            sharing.share("key", {"x": bad})
