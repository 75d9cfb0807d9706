# SPDX-License-Identifier: Apache-2.0
"""penstock.sharing between pods: what an agent has received from another one, by real agents."""
from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from agent import Agent
from all_arrays import arrays

from penstock import sharing
from penstock.data_store import AgentError, KeyNotFound
from penstock.data_store.pod_data_server import PodDataServerClient

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

needs_torch = pytest.mark.skipif(torch is None, reason="needs torch")


class Pods:
    """Two agents: what one of them has, the other one receives."""

    def __init__(self, source: Agent, taker: Agent) -> None:
        self.source, self.taker = PodDataServerClient(str(source.socket)), PodDataServerClient(str(taker.socket))

    def bring(self, data: Any, **more: Any) -> Any:
        sharing.share("key", data, agent=self.source)
        port = self.source.serve_broadcast("key", "group")
        return sharing.receive("key", "group", "127.0.0.1", port, agent=self.taker, **more)


@pytest.fixture
def pods(tmp_path: pathlib.Path) -> Iterator[Pods]:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with Agent(tmp_path / "a") as source, Agent(tmp_path / "b") as taker:
        yield Pods(source, taker)


def test_arrays_of_all_kinds_arrive_equal(pods: Pods) -> None:
    wanted = arrays()
    got = pods.bring(wanted)
    assert list(got) == list(wanted)
    for name, array in wanted.items():
        assert got[name].dtype == array.dtype and got[name].shape == array.shape, name
        np.testing.assert_array_equal(got[name], array, err_msg=name)


def test_what_was_tied_is_tied_and_the_receiver_s_own(pods: Pods) -> None:
    base = np.arange(12.)
    got = pods.bring({"a": base, "b": base, "part": base[3:6], "n": 7, "t": "text", "y": b"bytes", "l": [None, (1, 2.5)]})
    got["a"][4] = -1
    assert got["b"][4] == -1 and got["part"][1] == -1 and base[4] == 4
    assert (got["n"], got["t"], got["y"], got["l"]) == (7, "text", b"bytes", [None, (1, 2.5)])
    there = sharing.attach("key", agent=pods.taker)
    assert there["a"][4] == 4
    with pytest.raises(ValueError, match="read-only"):
        there["a"][0] = 1


def test_one_array_without_a_dict(pods: Pods) -> None:
    np.testing.assert_array_equal(pods.bring(np.array(2.5)), np.array(2.5))


def test_what_is_filled_does_not_stay_in_the_agent(pods: Pods) -> None:
    room = {"w": np.zeros((3, 4), np.float32)}
    assert pods.bring({"w": np.ones((3, 4), np.float32)}, into=room) is room and room["w"].all()
    assert pods.taker.list_keys() == []


def test_what_does_not_fit_is_refused_by_name(pods: Pods) -> None:
    room = {"w": np.zeros((3, 5), np.float32)}
    with pytest.raises(ValueError, match="'w' has shape"):
        pods.bring({"w": np.ones((3, 4), np.float32)}, into=room)
    assert not room["w"].any() and pods.taker.list_keys() == []


def test_faults_are_told_apart(pods: Pods) -> None:
    sharing.share("key", np.ones(3), agent=pods.source)
    port = pods.source.serve_broadcast("key", "group")
    for key, group in (("other", "group"), ("key", "others")):
        with pytest.raises(KeyNotFound, match="Key not found"):
            sharing.receive(key, group, "127.0.0.1", port, agent=pods.taker)
    with pytest.raises(AgentError, match="nothing listens there"):
        sharing.receive("key", "group", "127.0.0.1", 1, agent=pods.taker)
    with pytest.raises(AgentError, match="'ip' and 'port'"):
        sharing.receive("key", "group", "localhost", port, agent=pods.taker)


@needs_torch
def test_torch_tensors_arrive_equal(pods: Pods) -> None:
    base = torch.arange(60, dtype=torch.float32).reshape(6, 10)
    tied = torch.nn.Parameter(torch.ones(4, 4))
    wanted = {"row": base[1:5, 2:7], "turned": base.T, "half": base.to(torch.bfloat16), "eighth": base.to(torch.float8_e4m3fn), "scalar": torch.tensor(3),
              "empty": torch.zeros(0, 3), "tied": tied, "again": tied, "bits": base > 7, "wave": torch.complex(base, base)}
    got = pods.bring(wanted)
    for name, tensor in wanted.items():
        assert got[name].dtype == tensor.dtype and got[name].shape == tensor.shape, name
        assert torch.equal(got[name].view(-1).view(torch.uint8) if name == "eighth" else got[name],
                           tensor.detach().view(-1).view(torch.uint8) if name == "eighth" else tensor), name
    got["tied"][0, 0] = 9
    assert got["again"][0, 0] == 9
