# SPDX-License-Identifier: Apache-2.0
"""penstock data by the real rsync: what an earlier try has left, others' folders, patterns in keys, rights, many at once."""
from __future__ import annotations

import os
import pathlib
import random
import re
import stat
import struct
import subprocess

import pytest
from agent import Agent
from data_store import DataStore, files_of, make_powerful
from support import BUILD, NOBODY, another_user, clean_environment, secret_file, wait_until
from trees import small_disk, state_of

MIB, USAGE = 1 << 20, 2


class Client:
    """`penstock data` by rsync."""

    def __init__(self, store: DataStore) -> None:
        self.files = store.files
        self.more = ["--store", f"http://127.0.0.1:{store.http_port}", "--rsync", f"127.0.0.1:{store.rsync_port}",
                     "--transport", "rsync"]

    def start(self, command: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen([BUILD / "penstock", "data", command, *self.more, *map(str, arguments)], text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**clean_environment(), **environment})

    def __call__(self, command: str, *arguments: object, code: int = 0, **environment: str) -> str:
        process = self.start(command, *arguments, **environment)
        error = process.communicate(timeout=120)[1]
        assert process.returncode == code, (arguments, error)
        return error


@pytest.fixture
def data(store: DataStore) -> Client:
    return Client(store)


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "tree"
    (root / "sub").mkdir(parents=True)
    (root / "good").write_bytes(random.randbytes(2 * MIB))
    (root / "sub/x").write_text("x")
    return root


def test_a_key_with_a_long_name(data: Client, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for bytes_ in (240, 241, 255):
        name = "k" * bytes_
        data("put", f"svc/{name}", tree, "--contents")
        data("get", f"svc/{name}", tmp_path / "out")
        assert files_of(tmp_path / "out" / name) == files_of(tree)
    assert not list((tmp_path / "out").glob(".penstock*"))


@pytest.mark.parametrize("contents", [False, True])
def test_what_an_earlier_try_has_left_goes(data: Client, tree: pathlib.Path, tmp_path: pathlib.Path, contents: bool) -> None:
    data("put", "m", tree, "--contents")
    part = tmp_path / ("out/.penstock-m.part" if not contents else ".penstock-out.part")
    inner = part if contents else part / "m"
    (inner / "sub/gone").mkdir(parents=True)
    (inner / "stale").write_text("stale")
    (inner / "sub/gone/too").write_text("stale")
    (inner / ".penstock-partial").mkdir()
    (inner / ".penstock-partial/good").write_bytes((tree / "good").read_bytes()[:MIB])
    data("get", "m", tmp_path / "out", *(["--contents"] if contents else []))
    assert files_of(tmp_path / ("out" if contents else "out/m")) == files_of(tree)
    assert not list(tmp_path.rglob(".penstock*"))


def test_what_earlier_tries_have_left_beside_files_goes(data: Client, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    data("put", "m", tree, "--contents")
    (tmp_path / "out/sub/.penstock-partial").mkdir(parents=True)
    (tmp_path / "out/sub/.penstock-partial/gone").write_text("half")
    data("put", "n", tmp_path / "out", "--contents")
    data("get", "m", tmp_path / "out", "--contents")
    assert files_of(tmp_path / "out") == files_of(tree)
    assert not list(data.files.rglob(".penstock*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user")
def test_what_another_user_has_made_is_not_taken(data: Client, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    data("put", "m", tree, "--contents")
    (tmp_path / ".penstock-out.part").mkdir()
    os.chown(tmp_path / ".penstock-out.part", NOBODY, NOBODY)
    data("get", "m", tmp_path / "out", "--contents", code=4)
    assert not (tmp_path / "out").exists()


def test_no_link_leads_anywhere_in_another_users_store(tmp_path: pathlib.Path, tree: pathlib.Path) -> None:
    """Nobody but root can lock rsync up in the store's folder: links lie there as rsync's munged ones, whichever way they came."""
    links = {"in": "a", "over": "sub/../a", "out": "../../../outside", "whole": "/etc/passwd", "none": "nowhere", "twice": "/rsyncd-munged/a"}
    folder = tmp_path / "store"
    folder.mkdir()
    for name, target in links.items():
        (tree / name).symlink_to(target)
    for path in (*tree.rglob("*"), tree):
        os.utime(path, (1, 1), follow_symlinks=False)  # rsync does not set a link's time that is right but for parts of a second
    told = state_of(tree)
    with DataStore(folder, within=another_user(folder)) as store:
        data = Client(store)
        data("put", "native", tree, "--contents", "--transport", "native")
        assert store.rsync("-a", f"{tree}/", "{data}default/rsync/").returncode == 0
        for key in "native", "rsync":
            assert all((data.files / key / name).readlink().is_relative_to("/rsyncd-munged") for name in links), key
            data("get", key, tmp_path / f"{key}-native", "--contents", "--transport", "native")
            assert store.rsync("-a", f"{{data}}default/{key}/", str(tmp_path / f"{key}-rsync")).returncode == 0
        for copy in "native-native", "native-rsync", "rsync-native", "rsync-rsync":
            assert state_of(tmp_path / copy) == told, copy


def test_no_link_leads_anywhere_on_another_disk(tmp_path: pathlib.Path, tree: pathlib.Path) -> None:
    """So it is with those that are copied to what is mounted below the store's folder."""
    (tree / "sub/out").symlink_to("../../../outside")
    folder = tmp_path / "store"
    with small_disk(folder / "files/default/m/sub", 8), DataStore(folder, within=another_user(folder)) as store:
        data = Client(store)
        data("put", "m", tree, "--contents", "--transport", "native")
        assert str((data.files / "m/sub/out").readlink()) == "/rsyncd-munged/../../../outside"
        data("get", "m", tmp_path / "got", "--contents", "--transport", "native")
        assert str((tmp_path / "got/sub/out").readlink()) == "../../../outside"


def test_patterns_in_keys(store: DataStore, data: Client, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for key in ("svc/ab", "svc/ba\\ck", "svc/{a,b}", "svc/ü -x"):
        data("put", key, tree, "--contents")
    before = {name: value for name, value in state_of(store.files).items() if "svc" in name}
    for key in ("svc/a*", "svc/?b", "svc/[a]b", "svc/*"):
        assert "--transport native" in data("put", key, tree / "sub/x", code=USAGE)
        (store.files / key).mkdir()
        (store.files / key / "own").write_text(key)
        data("get", key, tmp_path / "out")
        assert files_of(tmp_path / "out" / key.partition("/")[2]) == {"own": key.encode()}
        (store.files / key / "own").unlink()
        (store.files / key).rmdir()
    assert {name: value[:2] for name, value in state_of(store.files).items() if "svc" in name} == {
        name: value[:2] for name, value in before.items()}
    data("get", "svc/ba\\ck", tmp_path / "out")
    assert files_of(tmp_path / "out/ba\\ck") == files_of(tree)


@pytest.mark.parametrize("transport", ["rsync", "native"])
def test_a_sync_deletes_nothing_of_another_key(store: DataStore, data: Client, tree: pathlib.Path, transport: str) -> None:
    data("put", "svc/x", tree, "--contents")
    (store.files / "svc/[x]").mkdir()
    (store.files / "svc/[x]/own").write_text("x")
    before = files_of(store.files)
    assert "for a pattern" in data("sync", tree / "sub", "svc/[x]", "--delete", "--transport", transport, code=USAGE)
    assert files_of(store.files) == before
    assert "for a pattern" in data("put", "svc/y", tree, POD_NAMESPACE="defaul[t]", code=USAGE)
    assert files_of(store.files) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_no_program_of_another_user_and_no_device(store: DataStore, tmp_path: pathlib.Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "program").write_text("#!/bin/sh\n")
    (source / "program").chmod(0o6755)
    os.setxattr(source / "program", "security.capability", struct.pack("<5I", 0x02000001, 1 << 7, 0, 0, 0))  # to become anyone
    os.mknod(source / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    done = subprocess.run(["rsync", "-aX", "--mkpath", f"{source}/", f"rsync://127.0.0.1:{store.rsync_port}/data/default/k/"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 23 and "null" in done.stderr, done
    assert stat.S_IMODE((store.files / "k/program").stat().st_mode) == 0o755
    assert os.listdir(store.files / "k") == ["program"]
    assert "security.capability" not in os.listxattr(store.files / "k/program")


def test_eight_at_once(data: Client, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    data("put", "m", tree, "--contents")
    for number, into in enumerate(("a", "b", "a")):  # what was not there, and what is brought up to date
        (tree / "good").write_bytes(random.randbytes(2 * MIB + 1 + number))
        data("put", "m", tree, "--contents")
        processes = [data.start("get", "m", tmp_path / into) for _ in range(8)]
        ended = [(process.communicate(timeout=120)[1], process.returncode) for process in processes]
        assert [code for _, code in ended] == [0] * 8, ended
        assert files_of(tmp_path / into / "m") == files_of(tree)
    assert not list(tmp_path.rglob(".penstock*"))


def test_many_may_wait_at_the_daemon(store: DataStore) -> None:
    said = subprocess.run(["ss", "-ltnH", f"sport = :{store.rsync_port}"], capture_output=True, text=True, check=True).stdout
    most = int(pathlib.Path("/proc/sys/net/core/somaxconn").read_text())
    assert int(re.split(r"\s+", said)[2]) == min(4096, most)


def test_what_the_daemon_writes_is_bounded(store: DataStore, data: Client, tree: pathlib.Path) -> None:
    output = store.folder / "rsyncd/output"
    with output.open("ab") as file:
        file.write(b"a line of a connection\n" * 100_000)
    wait_until("it is cut", lambda: output.stat().st_size < MIB)
    assert output.stat().st_size > 1000
    data("put", "m", tree, "--contents")


def test_a_large_listing(store: DataStore, data: Client) -> None:
    (store.files / "m").mkdir(parents=True)
    for number in range(70_000):
        (store.files / f"m/{number}").touch()
    done = subprocess.run([BUILD / "penstock", "data", "ls", *data.more[:2], "m"], capture_output=True, text=True, timeout=120,
                          env=clean_environment(), check=True)
    assert len(done.stdout.splitlines()) == 70_000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_no_program_of_another_user_and_no_device_from_a_pod(store: DataStore, data: Client, tmp_path: pathlib.Path) -> None:
    make_powerful(offered := tmp_path / "offered")
    os.mkfifo(offered / "pipe")
    with Agent(tmp_path) as agent:
        place = agent.ask("register", key="k", path=str(offered))
        where = f"rsync://127.0.0.1:{place['rsync_port']}/{place['rsync_path']}"
        assert store.key("POST", "k", "/publish", {"ip": "127.0.0.1", "src_path": where})[0] == 200
        data("get", "k", tmp_path / "out")
    program = tmp_path / "out/k/program"
    assert os.listdir(program.parent) == ["program"]
    assert stat.S_IMODE(program.stat().st_mode) == 0o755 and program.stat().st_uid == os.geteuid()


def test_a_token_that_ends_its_line(tmp_path: pathlib.Path, tree: pathlib.Path) -> None:
    secret = secret_file(tmp_path / "token", "token-of-the-tests\n")
    with DataStore(tmp_path / "data", "--token-file", str(secret)) as store:
        data = Client(store)
        data("put", "m", tree, "--contents", "--token-file", secret)
        data("get", "m", tmp_path / "out", "--token-file", secret)
        assert files_of(tmp_path / "out/m") == files_of(tree)
