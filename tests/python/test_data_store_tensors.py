# SPDX-License-Identifier: Apache-2.0
"""penstock.data_store: tensors of one pod's memory in others, by agents of their own and a store that says where they are."""
from __future__ import annotations

import pathlib
import signal
import subprocess
import textwrap
from collections.abc import Iterator

import pytest
from data_store import DataStore
from descriptors import memfds_of
from pods import Pod, some_pods, store_of_pods
from support import wait_until

from penstock import data_store as ds

pytest.importorskip("numpy")

HEAD = "import numpy as np\nfrom penstock import sharing\n"
STATE = "{'w': np.arange(3_000_000, dtype=np.float32).reshape(1000, 3000), 'deep': [np.ones((2, 0)), {'step': 7, 'row': np.arange(60.)[::2]}]}"
SAME = textwrap.dedent("""
    def same(got, wanted):
        if isinstance(wanted, dict):
            return got.keys() == wanted.keys() and all(same(got[name], wanted[name]) for name in wanted)
        if isinstance(wanted, list):
            return len(got) == len(wanted) and all(map(same, got, wanted))
        return np.array_equal(got, wanted) and getattr(got, 'dtype', 0) == getattr(wanted, 'dtype', 0)
""")
WINDOW = "ds.BroadcastWindow(world_size=4, timeout=60)"


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Iterator[DataStore]:
    with store_of_pods(tmp_path) as it:
        yield it


@pytest.fixture
def pods(tmp_path: pathlib.Path, store: DataStore) -> Iterator[list[Pod]]:
    with some_pods(range(10, 14), tmp_path, store) as made:
        yield made


def end(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=60)


def finish(process: subprocess.Popen[str]) -> str:
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return out.strip()


def test_a_state_dict_goes_from_a_pod_to_the_others(pods: list[Pod]) -> None:
    getters = [pod.start(HEAD + SAME + f"got = ds.get('run/model', broadcast={WINDOW})\nassert same(got, {STATE}), got\n"
                         "got['w'][0, 0] = 5\nassert sharing.attach('default/run/model')['w'][0, 0] == 0\n") for pod in pods[1:]]
    owner = pods[0].hold(HEAD + f"ds.put('run/model', data={STATE}, locale='local', broadcast={WINDOW})\n")
    for getter in getters:  # two of them came before it was put
        finish(getter)
    assert not list(pods[0].folder.rglob("penstock-value*"))
    end(owner)


def test_tensors_are_filled_and_also_without_a_group(pods: list[Pod]) -> None:
    owner = pods[0].hold(HEAD + f"ds.put('m', data={STATE}, locale='local', broadcast={WINDOW})\n")
    pods[1].run(HEAD + SAME + f"wanted = {STATE}\nroom = {{'w': np.zeros_like(wanted['w']), 'deep': [np.ones((2, 0)), {{'step': 7, 'row': np.zeros(30)}}]}}\n"
                "assert ds.get('m', room) is room and same(room, wanted), room\n"
                "assert sharing.PodDataServerClient().list_keys() == []\nassert same(ds.get('m'), wanted)\n")
    wrong = ("import contextlib\ntry:\n    ds.get('m', {'w': np.zeros((1000, 3001), np.float32)})\nexcept ValueError as error:\n    print('refused')\n"
             "try:\n    ds.get('m', 'folder')\nexcept ds.DataStoreError as error:\n    print(error)\n")
    out = pods[2].run(HEAD + wrong)
    assert "refused" in out and "no path takes" in out
    end(owner)


def test_each_put_is_another_version(pods: list[Pod]) -> None:
    owner = pods[0].hold(HEAD + f"""if True:
        def put(number):
            ds.put('m', data=np.full(1000, number), locale='local', broadcast={WINDOW})
        put(0)
        print('ready', flush=True)
        for number in (1, 2):
            sys.stdin.readline()
            put(number)
            print('put', flush=True)
""")
    assert owner.stdin and owner.stdout
    for number in range(3):
        for pod in pods[1:3]:  # those of the version before may still be there
            assert pod.run(HEAD + f"print(set(ds.get('m', broadcast={WINDOW}).tolist()))") == f"{{{number}}}"
        if number < 2:
            owner.stdin.write("\n")
            owner.stdin.flush()
            assert owner.stdout.readline() == "put\n"
    end(owner)


def test_an_owner_that_has_gone_is_told_and_forgotten(store: DataStore, pods: list[Pod]) -> None:
    owner = pods[0].hold(HEAD + f"ds.put('m', data={STATE}, locale='local', broadcast={WINDOW})\n")
    owner.kill()
    end(owner)
    out = pods[1].run(HEAD + "try:\n    ds.get('m')\nexcept ds.KeyNotFound as error:\n    print(error)\n")
    assert "is gone" in out or "Key not found" in out, out
    assert not (store.key("GET", "m")[1].get("sources"))


def test_an_agent_that_has_gone_is_told_and_forgotten(store: DataStore, pods: list[Pod]) -> None:
    owner = pods[0].hold(HEAD + f"ds.put('m', data={STATE}, locale='local', broadcast={WINDOW})\n")
    pods[0].signal_agent(signal.SIGKILL)
    out = pods[1].run(HEAD + "try:\n    ds.get('m')\nexcept ds.AgentError as error:\n    print(error)\n")
    assert "nothing listens there" in out
    assert not (store.key("GET", "m")[1].get("sources"))
    end(owner)


def test_rm_withdraws_them(pods: list[Pod]) -> None:
    pods[0].run(HEAD + f"ds.put('m', data={STATE}, locale='local', broadcast={WINDOW})\nds.rm('m')\n"
                "assert sharing.PodDataServerClient().list_keys() == []\n"
                "try:\n    ds.get('m')\nexcept ds.KeyNotFound:\n    print('gone')\n")


def test_what_cannot_be_shared_becomes_a_file(pods: list[Pod]) -> None:
    owner = pods[0].hold(HEAD + f"ds.put('t', data='text', locale='local', broadcast={WINDOW})\n"
                         f"ds.put('s', data=np.zeros(3, [('a', 'i4')]), locale='local', broadcast={WINDOW})\n")
    assert pods[1].run(HEAD + "print(ds.get('t'), ds.get('s').dtype)") == "text [('a', '<i4')]"
    end(owner)


def test_a_value_in_the_store_takes_their_place(pods: list[Pod]) -> None:
    owner = pods[0].hold(HEAD + f"ds.put('m', data=np.ones(3), locale='local', broadcast={WINDOW})\n")
    pods[1].run(HEAD + "ds.put('m', data=np.zeros(3))\n")
    assert pods[2].run(HEAD + "print(ds.get('m'))") == "[0. 0. 0.]"
    end(owner)


def test_a_key_that_nobody_puts_is_not_waited_for_longer_than_the_window(pods: list[Pod]) -> None:
    code = "try:\n    ds.get('none', broadcast=ds.BroadcastWindow(world_size=2, timeout=0.5))\nexcept ds.KeyNotFound:\n    print('none')\n"
    assert pods[0].run(code) == "none"


def test_memory_of_a_getter_goes_with_it(pods: list[Pod]) -> None:
    owner = pods[0].hold(HEAD + f"ds.put('m', data={STATE}, locale='local', broadcast={WINDOW})\n")
    pods[1].run(HEAD + "ds.get('m')\n")
    agent = int(pods[1].agent.ping()["pid"])

    wait_until("the agent gave it back", lambda: memfds_of(agent, "penstock-t") == 0)
    end(owner)
    assert ds.pod_data_server.is_server_running(str(pods[1].socket))
