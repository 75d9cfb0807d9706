# SPDX-License-Identifier: Apache-2.0
"""penstock.data_store by the real rsync: what earlier tries have left, patterns in keys, rights, many at once, processes that are killed."""
from __future__ import annotations

import multiprocessing
import os
import pathlib
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator

import pytest
from agent import Agent
from data_store import DataStore, files_of, make_powerful
from support import clean_environment, wait_until

from penstock import data_store as ds

MIB, NOBODY = 1 << 20, 65534
# Fetches with an rsync that a test holds.
HELD = """
import sys
from penstock import data_store as ds
ds.DataStoreClient("default", ds.Server(sys.argv[1], sys.argv[2]), "rsync").get("m", sys.argv[3])
"""


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Iterator[DataStore]:
    with DataStore(tmp_path / "data") as it:
        yield it


@pytest.fixture
def client(store: DataStore) -> ds.DataStoreClient:
    return client_of(store)


def client_of(store: DataStore) -> ds.DataStoreClient:
    return ds.DataStoreClient("default", ds.Server(f"http://127.0.0.1:{store.http_port}", f"127.0.0.1:{store.rsync_port}"), "rsync")


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "tree"
    (root / "sub").mkdir(parents=True)
    (root / "good").write_bytes(os.urandom(2 * MIB))
    (root / "sub/x").write_text("x")
    return root


@pytest.mark.parametrize("contents", [False, True])
@pytest.mark.parametrize("exists", [False, True])
def test_what_an_earlier_try_has_left_goes(client: ds.DataStoreClient, tree: pathlib.Path, tmp_path: pathlib.Path, contents: bool,
                                           exists: bool) -> None:
    client.put("m", tree, contents=True)
    final = tmp_path / "out" if contents else tmp_path / "out/m"
    part = final.parent / f".penstock-{final.name}.part"
    inner = final if exists else part if contents else part / "m"
    (inner / "sub/.penstock-partial").mkdir(parents=True)
    (inner / "sub/.penstock-partial/gone").write_text("half")
    if not exists:
        (inner / "stale").write_text("stale")
    client.get("m", tmp_path / "out", contents=contents)
    assert files_of(final) == files_of(tree)
    assert not list(tmp_path.glob("out/**/.penstock*")) and not part.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user")
def test_what_another_user_has_made_is_not_taken(client: ds.DataStoreClient, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    client.put("m", tree, contents=True)
    (tmp_path / ".penstock-out.part").mkdir()
    os.chown(tmp_path / ".penstock-out.part", NOBODY, NOBODY)
    with pytest.raises(PermissionError, match="another user has made it"):
        client.get("m", tmp_path / "out", contents=True)
    assert not (tmp_path / "out").exists()


def test_patterns_in_keys(store: DataStore, client: ds.DataStoreClient, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    client.put("svc/ab", tree, contents=True)
    before = files_of(store.files)
    for key in ("svc/a*", "svc/?b", "svc/[a]b"):
        with pytest.raises(ValueError, match="for a pattern"):
            client.put(key, tree, contents=True)
        assert files_of(store.files) == before
        (store.files / key).mkdir()
        (store.files / key / "own").write_text(key)
        client.get(key, tmp_path / "out")
        assert files_of(tmp_path / "out" / key.partition("/")[2]) == {"own": key.encode()}
        (store.files / key / "own").unlink()
        (store.files / key).rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_no_program_of_another_user_and_no_device_from_a_pod(store: DataStore, client: ds.DataStoreClient, tmp_path: pathlib.Path) -> None:
    make_powerful(offered := tmp_path / "offered")
    with Agent(tmp_path) as agent:
        place = agent.ask("register", key="k", path=str(offered))
        where = f"rsync://127.0.0.1:{place['rsync_port']}/{place['rsync_path']}"
        assert store.key("POST", "k", "/publish", {"ip": "127.0.0.1", "src_path": where})[0] == 200
        client.get("k", tmp_path / "out")
    program = tmp_path / "out/k/program"
    assert os.listdir(program.parent) == ["program"]
    assert stat.S_IMODE(program.stat().st_mode) == 0o755 and program.stat().st_uid == os.geteuid()


def fetch(store: tuple[str, str], out: str) -> str:
    try:
        ds.DataStoreClient("default", ds.Server(*store), "rsync").get("m", out)
    except ds.DataStoreError as error:
        return str(error)
    return ""


def test_eight_at_once(store: DataStore, client: ds.DataStoreClient, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    client.put("m", tree, contents=True)
    where = (f"http://127.0.0.1:{store.http_port}", f"127.0.0.1:{store.rsync_port}")
    with multiprocessing.get_context("spawn").Pool(8) as pool:
        for number in range(2):  # what was not there, and what is brought up to date
            (tree / "good").write_bytes(os.urandom(2 * MIB + 1 + number))
            client.put("m", tree, contents=True)
            assert pool.starmap(fetch, [(where, str(tmp_path / "out"))] * 8) == [""] * 8
            assert files_of(tmp_path / "out/m") == files_of(tree)
    assert not list(tmp_path.glob("out/.penstock*"))


def test_a_killed_process_keeps_its_turn_until_its_rsync_ends(store: DataStore, client: ds.DataStoreClient, tree: pathlib.Path,
                                                              tmp_path: pathlib.Path) -> None:
    client.put("m", tree, contents=True)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "rsync").write_text(f"#!/bin/sh\ntouch {tools}/runs\nwhile [ ! -e {tools}/go ]; do sleep 0.05; done\n")
    (tools / "rsync").chmod(0o755)
    process = subprocess.Popen([sys.executable, "-c", HELD, f"http://127.0.0.1:{store.http_port}", f"127.0.0.1:{store.rsync_port}",
                                str(tmp_path / "out")], env={**clean_environment(), "PYTHONPATH": os.pathsep.join(sys.path),
                                                             "PATH": f"{tools}:{os.environ['PATH']}"})
    wait_until("its rsync runs", (tools / "runs").exists)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    other = subprocess.Popen([sys.executable, "-c", HELD, f"http://127.0.0.1:{store.http_port}", f"127.0.0.1:{store.rsync_port}",
                              str(tmp_path / "out")], env={**clean_environment(), "PYTHONPATH": os.pathsep.join(sys.path)})
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(2)
    (tools / "go").touch()
    assert other.wait(60) == 0 and files_of(tmp_path / "out/m") == files_of(tree)
