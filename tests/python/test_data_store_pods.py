# SPDX-License-Identifier: Apache-2.0
"""penstock.data_store between pods: processes with an address and an agent of their own, and a store beside them."""
from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from data_store import DataStore, files_of
from pods import Pod, some_pods, store_of_pods
from support import BUILD, clean_environment, wait_until

from penstock import data_store as ds


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Iterator[DataStore]:
    with store_of_pods(tmp_path) as it:
        yield it


@pytest.fixture
def pods(tmp_path: pathlib.Path, store: DataStore) -> Iterator[list[Pod]]:
    with some_pods(range(6), tmp_path, store) as made:
        yield made


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "tree"
    (root / "sub").mkdir(parents=True)
    (root / "a file").write_bytes(os.urandom(300_000))
    (root / "sub/b").write_text("B")
    (tmp_path / "beside").write_text("not offered")
    return root


def test_a_local_put_looks_like_one_into_the_store(store: DataStore, pods: list[Pod], tree: pathlib.Path) -> None:
    calls = [("folder", f"{str(tree)!r}"), ("contents", f"{str(tree)!r}, contents=True"), ("file", f"{str(tree / 'a file')!r}")]
    owner = pods[0].hold("".join(f"ds.put('svc/local/{name}', {call}, locale='local')\nds.put('svc/stored/{name}', {call})\n"
                                 for name, call in calls))
    pods[1].run("".join(f"for way in ('local', 'stored'):\n"
                        f"    for twice in range(2):\n"
                        f"        ds.get(f'svc/{{way}}/{name}', f'got/{{way}}')\n"
                        f"        ds.get(f'svc/{{way}}/{name}', f'got/{{way}}-{name}', contents={name != 'file'})\n"
                        for name, _ in calls))
    got = pods[1].folder / "got"
    assert files_of(got / "local") == files_of(got / "stored") and len(files_of(got / "local")) == 5
    for name, _ in calls:
        assert files_of(got / f"local-{name}") == files_of(got / f"stored-{name}") != {}
    assert not list(got.rglob(".penstock*"))
    assert {(item["key"], item["pid"]) for item in pods[0].agent.list_keys()} == {
        (f"default/svc/local/{name}", owner.pid) for name, _ in calls}
    assert {item["name"]: item["locale"] for item in store.ask("GET", "/api/v1/keys/list?prefix=svc%2Flocal")[1]["items"]} == {
        name: "pod-" + pods[0].ip.rpartition(".")[2] for name, _ in calls}
    owner.communicate(timeout=60)
    assert owner.returncode == 0
    assert store.key("GET", "svc/local/file") == (200, {"found": False, "error": "Key not found"})
    assert pods[0].agent.list_keys() == []
    code = "try:\n    ds.get('svc/local/file', 'x')\nexcept ds.KeyNotFound as error:\n    print(repr(error))"
    assert "KeyNotFound" in pods[1].run(code)


def test_an_owner_that_is_killed(store: DataStore, pods: list[Pod], tree: pathlib.Path) -> None:
    owner = pods[0].hold(f"ds.put('svc/m', {str(tree)!r}, locale='local', contents=True)\n")
    owner.kill()
    owner.communicate()
    wait_until("the agent has withdrawn it", lambda: pods[0].agent.list_keys() == [])
    code = "try:\n    ds.get('svc/m', 'x')\nexcept ds.DataStoreError as error:\n    print(error)"
    assert "no pod that does could be reached" in pods[1].run(code)
    assert "nobody has this key" in pods[1].run(code)  # the source has been taken off the list
    pods[2].run(f"ds.put('svc/m', {str(tree)!r}, contents=True)")
    pods[1].run("ds.get('svc/m', 'x')")
    assert files_of(pods[1].folder / "x/m") == files_of(tree)


def test_rm_withdraws_and_a_second_put_replaces(store: DataStore, pods: list[Pod], tree: pathlib.Path) -> None:
    out = pods[0].run(f"""
ds.put('svc/m', {str(tree)!r}, locale='local')
ds.put('svc/m', {str(tree / 'sub')!r}, locale='local')
agent = ds.PodDataServerClient()
print([os.path.basename(key['path']) for key in agent.list_keys()])
ds.rm('svc/m')
print(agent.list_keys(), ds.ls('svc'))
for bad in (dict(src='/no/such'), dict(src=['a', 'b']), dict(src='.', filter_options='--exclude=x')):
    try:
        ds.put('svc/n', locale='local', **bad)
    except (ValueError, FileNotFoundError) as error:
        print(type(error).__name__)
""")
    assert out.splitlines() == ["['sub']", "[] []", "FileNotFoundError", "ValueError", "ValueError"]


def test_a_value_is_offered_from_where_it_was_made(pods: list[Pod], tmp_path: pathlib.Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    pods[0].environment["TMPDIR"] = str(temporary)

    def files() -> list[str]:
        return sorted(path.suffix for path in temporary.rglob("penstock-value.*"))

    owner = pods[0].hold("ds.put('svc/x', data=b'first', locale='local')\nds.put('svc/x', data='second', locale='local')\n")
    assert files() == [".txt"]
    assert pods[1].run("print(ds.get('svc/x'), [(item['name'][-4:], item['locale']) for item in ds.ls('svc/x')])") == (
        f"second [('.txt', 'pod-{pods[0].ip.rpartition('.')[2]}')]")
    pods[1].run("ds.put('svc/x', data=b'third')")
    assert pods[2].run("print(ds.get('svc/x'))") == "b'third'"
    killed = pods[0].hold("ds.put('svc/y', data=b'y', locale='local')\n")
    killed.kill()
    killed.communicate()
    assert len(files()) == 2
    assert pods[0].run("ds.put('svc/z', data=b'z', locale='local')\nds.rm('svc/z')\nprint(ds.ls('svc/z'))") == "[]"
    assert files() == [".txt"]  # the owner lives
    owner.communicate(timeout=60)
    assert files() == []
    wait_until("the agent has withdrawn what the killed process offered", lambda: pods[0].agent.list_keys() == [])


@pytest.mark.parametrize("change", ["ds.rm('svc/x')", "ds.put('svc/x', data=b'new')"])
def test_what_others_deleted_is_not_offered_again(pods: list[Pod], change: str) -> None:
    """The owner lives on, and tells the store of its offers from time to time."""
    owner = pods[0].start("""
from penstock.data_store.local_offers import offers
ds.put('svc/x', data=b'old', locale='local')
ds.put('svc/y', data=b'y', locale='local')
print('ready', flush=True)
while input():
    offers.publish_again()
    print('published', flush=True)
""")
    assert owner.stdin and owner.stdout
    assert owner.stdout.readline() == "ready\n", owner.communicate()[1]
    pods[1].run(change)
    print("again", file=owner.stdin, flush=True)
    assert owner.stdout.readline() == "published\n", owner.communicate()[1]
    told = pods[2].run("print(ds.get('svc/y'))\ntry:\n print(ds.get('svc/x'))\nexcept ds.KeyNotFound: print('gone')")
    assert told.splitlines() == ["b'y'", "gone" if "rm" in change else "b'new'"]
    assert [key["key"].split("/")[2] for key in pods[0].agent.list_keys()] == ["y"]
    print(file=owner.stdin, flush=True)
    owner.communicate(timeout=60)


def test_rm_withdraws_what_lies_below(pods: list[Pod]) -> None:
    out = pods[0].run("""
import re
agent = ds.PodDataServerClient()
def offered():
    return sorted(re.sub('value[.][0-9]+', 'value', key['key'].removeprefix('default/')) for key in agent.list_keys())
for key in ('a', 'a/b', 'ab', 'ab/c', 'b'):
    ds.put('svc/' + key, data=b'', locale='local')
ds.rm('svc/a', recursive=True)
print(offered())
ds.put('svc/a', data=b'', locale='local')
ds.put('svc/a b', src='/etc/hosts', locale='local')
ds.rm('svc/a', prefix=True)
print(offered())
ds.rm('svc/a', prefix=True, recursive=True)
print(offered(), ds.get('svc/b'))
""")
    value = "penstock-value.bin"
    assert out.splitlines() == [
        str([f"svc/ab/c/{value}", f"svc/ab/{value}", f"svc/b/{value}"]),
        str([f"svc/a/{value}", f"svc/ab/c/{value}", f"svc/ab/{value}", f"svc/b/{value}"]), f"{[f'svc/b/{value}']} b''"]


def test_one_agent_for_all(pods: list[Pod]) -> None:
    started = [pods[0].start("print(ds.start_server_if_needed())") for _ in range(6)]
    pids = {process.communicate(timeout=60)[0].strip() for process in started}
    assert pids == {str(pods[0].agent.ping()["pid"])}
    pods[0].signal_agent(signal.SIGKILL)
    assert pods[0].run("print(ds.start_server_if_needed())") not in pids


def test_an_agent_that_cannot_be(pods: list[Pod], tmp_path: pathlib.Path) -> None:
    pods[0].environment["PENSTOCK_AGENT_LISTEN"] = "nonsense"
    code = "try:\n    ds.start_server_if_needed()\nexcept ds.AgentError as error:\n    print(error)"
    assert "host:port" in pods[0].run(code)
    pods[0].environment["PENSTOCK_PENSTOCKD"] = str(tmp_path / "nothing")
    assert "nothing" in pods[0].run(code.replace("ds.AgentError", "(ds.AgentError, OSError)"))


def test_a_broadcast_of_a_stored_tree(store: DataStore, pods: list[Pod], tree: pathlib.Path) -> None:
    pods[0].run(f"ds.put('svc/m', {str(tree)!r}, contents=True)\nds.put('svc/f', {str(tree / 'a file')!r})")
    code = "ds.get(['svc/m', 'svc/f'], 'got', broadcast=ds.BroadcastWindow(timeout=60, group_id='g', fanout=2))"
    started = [pod.start(code) for pod in pods]
    for process in started:
        error = process.communicate(timeout=120)[1]
        assert process.returncode == 0, error
    for pod in pods:
        assert files_of(pod.folder / "got/m") == files_of(tree)
        assert (pod.folder / "got/f").read_bytes() == (tree / "a file").read_bytes()
    groups = store.ask("GET", "/api/v1/fs/broadcast/groups")[1]["groups"]
    assert {(group["key"], group["total_participants"], group["unreachable"]) for group in groups} == {
        ("svc/m", 6, 0), ("svc/f", 6, 0)}


def test_a_broadcast_of_a_value(pods: list[Pod]) -> None:
    pods[0].run("ds.put('svc/x', data=b'x' * 100_000)")
    code = "assert ds.get('svc/x', broadcast=ds.BroadcastWindow(timeout=60, group_id='g', fanout=1)) == b'x' * 100_000\n"
    holders = [pod.hold(code * 3) for pod in pods[:4]]
    agents = [pod.agent.ping() for pod in pods[:4]]
    assert len({agent["pid"] for agent in agents}) == 4
    for holder in holders:
        holder.communicate(timeout=60)
        assert holder.returncode == 0


def test_a_broadcast_in_a_row(store: DataStore, pods: list[Pod], tree: pathlib.Path) -> None:
    (tree / "large").write_bytes(os.urandom(12 << 20))
    pods[0].run(f"ds.put('svc/m', {str(tree)!r}, contents=True)\nds.put('svc/x', data=b'value')")
    code = ("window = ds.BroadcastWindow(world_size=4, group_id='g')\nds.get('svc/m', 'got', broadcast=window)\n"
            "assert ds.get('svc/x', broadcast=window) == b'value'")
    for pod in pods[:4]:
        pod.environment["PENSTOCK_COMMAND"] = str(BUILD / "penstock")
    started = [pod.start(code) for pod in pods[:4]]
    for process in started:
        error = process.communicate(timeout=120)[1]
        assert process.returncode == 0, error
    for pod in pods[:4]:
        assert files_of(pod.folder / "got/m") == files_of(tree)
    metadata = ds.MetadataClient("default", ds.Server(f"http://127.0.0.1:{store.http_port}"))
    rows = {row["key"]: row for row in metadata.fs_broadcast_rows("g")}
    # Those who come after all have left make a new row; a pod that was slow may have been taken for gone, and have come again.
    assert {member["state"] for member in rows["default/svc/m"]["members"]} <= {"done", "left", "unreachable"}
    assert metadata.fs_broadcasts() == []


def test_a_row_is_not_for_all(store: DataStore, pods: list[Pod], tree: pathlib.Path) -> None:
    metadata = ds.MetadataClient("default", ds.Server(f"http://127.0.0.1:{store.http_port}"))
    for pod in pods[:3]:
        pod.environment["PENSTOCK_COMMAND"] = str(BUILD / "penstock")
    owner = pods[0].hold(f"ds.put('svc/m', {str(tree)!r}, locale='local', contents=True)\n")
    pods[1].run("ds.get('svc/m', 'got', broadcast=ds.BroadcastWindow(world_size=2, group_id='pods alone'))")
    owner.communicate(timeout=60)
    pods[0].run(f"ds.put('svc/m', {str(tree)!r}, contents=True)")
    code = "ds.get('svc/m', 'got', broadcast=ds.BroadcastWindow(world_size=2, group_id={!r}){})"
    pods[1].run("ds.tree_client.BROADCAST_VERSION = 3\n" + code.format("version", ""))
    pods[2].run(code.format("filters", ", filter_options='--exclude=sub'"))
    assert {told["group_id"] for told in metadata.fs_broadcasts()} == {"pods alone", "version", "filters"}
    assert files_of(pods[1].folder / "got/m") == files_of(tree) and set(files_of(pods[2].folder / "got/m")) == {"a file"}
    (store.files / "svc/m").rename(store.files / "svc/gone")  # a row that fails
    pods[2].run("real = ds.TreeClient.broadcast\n"
                "def late(*arguments):\n    try:\n        real(*arguments)\n    finally:\n"
                f"        os.rename({str(store.files / 'svc/gone')!r}, {str(store.files / 'svc/m')!r})\n"
                "ds.TreeClient.broadcast = late\nds.metadata_client.MetadataClient.has_store_pod = lambda self, key: True\n"
                + code.format("late", "").replace("'got'", "'late'"))
    assert files_of(pods[2].folder / "late/m") == files_of(tree)


def test_a_broadcast_goes_round_dead_parents(store: DataStore, pods: list[Pod], tree: pathlib.Path) -> None:
    owner = pods[0].hold(f"ds.put('svc/m', {str(tree)!r}, locale='local')\n")
    code = "ds.get('svc/m', 'got', broadcast=ds.BroadcastWindow(timeout=60, group_id='g', fanout=1))"
    pods[1].run(code)
    pods[2].run(code)
    pods[2].signal_agent(signal.SIGKILL)  # the parent of the next
    pods[3].run(code)
    stopped = int(pods[3].agent.ping()["pid"])
    os.kill(stopped, signal.SIGSTOP)
    pods[4].run(code.replace("timeout=60", "timeout=1"))
    os.kill(stopped, signal.SIGCONT)
    pods[5].run(code)
    for pod in pods[1:]:
        assert files_of(pod.folder / "got/m/tree") == files_of(tree)
    owner.communicate(timeout=60)


def test_without_agents_a_broadcast_is_a_get(pods: list[Pod], store: DataStore, tree: pathlib.Path) -> None:
    pods[0].run(f"ds.put('svc/m', {str(tree)!r}, contents=True)")
    pods[1].environment["PENSTOCK_AGENT_LISTEN"] = "nonsense"
    pods[1].run("ds.get('svc/m', 'got', broadcast=ds.BroadcastWindow(world_size=2))")
    assert files_of(pods[1].folder / "got/m") == files_of(tree)
    (pods[2].folder / "own").mkdir()
    (pods[2].folder / "own/mine").write_text("mine")
    pods[2].run("ds.get('svc/m', 'own', contents=True, broadcast=ds.BroadcastWindow(world_size=2, group_id='g'))")
    assert files_of(pods[2].folder / "own") == {**files_of(tree), "mine": b"mine"}
    assert store.ask("GET", "/api/v1/fs/broadcast/groups")[1]["groups"] == []  # what lay there is not for others


def test_a_full_disk_is_no_fault_of_its_source(pods: list[Pod], store: DataStore, tree: pathlib.Path) -> None:
    owner = pods[0].hold(f"ds.put('svc/m', {str(tree)!r}, locale='local')\n")
    small = pods[1].folder / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "penstock", small], capture_output=True).returncode:
        pytest.skip("mounts are not allowed here")
    try:
        for more in ("", ", broadcast=ds.BroadcastWindow(timeout=60, group_id='g')"):
            code = f"try:\n    ds.get('svc/m', 'small'{more})\nexcept ds.RsyncError as error:\n    print(error.is_local, error)"
            told = pods[1].run(code)
            assert told.startswith("True") and "No space left" in told, told
    finally:
        subprocess.run(["umount", "-l", small], check=True)
    info = store.key("GET", "svc/m")[1]
    assert [source["ip"] for source in info["sources"]] == [pods[0].ip] and info["sources"][0]["request_count"] == 0
    pods[2].run("ds.get('svc/m', 'got')")
    assert files_of(pods[2].folder / "got/m/tree") == files_of(tree)
    owner.communicate(timeout=60)


def test_the_demo() -> None:
    demo = pathlib.Path(__file__).resolve().parents[2] / "ci/demo-data"
    done = subprocess.run([sys.executable, demo, BUILD], capture_output=True, text=True, timeout=240, env=clean_environment())
    assert done.returncode == 0 and done.stdout.endswith("demo-data: done\n"), done.stdout + done.stderr


def test_a_put_does_not_wait_for_its_window(pods: list[Pod], tree: pathlib.Path, store: DataStore) -> None:
    pods[0].run(f"ds.put('svc/m', {str(tree)!r}, broadcast=ds.BroadcastWindow(world_size=3, group_id='quorum'))")
    getter = {"role": "getter", "pod_ip": "10.0.0.9", "group_id": "quorum", "world_size": 3}
    told = store.ask("POST", "/api/v1/broadcast/join", getter)[1]
    assert (told["putters_count"], told["getters_count"], told["status"]) == (1, 1, "waiting")
    pods[1].run("ds.get('svc/m', 'got', broadcast=ds.BroadcastWindow(world_size=3, group_id='quorum'))")
    told = store.ask("GET", f"/api/v1/broadcast/{told['broadcast_id']}/status?pod_ip=10.0.0.9")[1]
    assert (told["putters_count"], told["getters_count"], told["status"]) == (1, 2, "ready")
