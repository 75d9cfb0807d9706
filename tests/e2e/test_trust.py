# SPDX-License-Identifier: Apache-2.0
"""Whom a node and its clients believe: sockets, folders and files that another user may have made."""
from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from typing import Callable, Iterator

import pytest
import support
from support import fails_to_start, penstock, start_node

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")

STRANGER, OTHER = 64321, 64322  # users of whom nobody here has heard
NOT_ALLOWED, UNREACHABLE = 4, 5
SMALL = ("--dram=4M", "--page-size=64K", "--shards=1")


def become(user: int) -> Callable[[], None]:
    def change() -> None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        os.umask(0o022)
    return change


def says(user: int, *arguments: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command line as that user has it."""
    return subprocess.run([support.BUILD / "penstock", *arguments], input=stdin, capture_output=True, timeout=support.WAIT_S,
                          env=support.clean_environment(**environment), preexec_fn=become(user))


@pytest.fixture
def place() -> Iterator[pathlib.Path]:
    """A folder that everybody can enter; root's."""
    folder = pathlib.Path(tempfile.mkdtemp(dir="/tmp", prefix="penstock-trust-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def folder_of(place: pathlib.Path, user: int, mode: int = 0o755, name: str = "own") -> pathlib.Path:
    folder = place / name
    folder.mkdir()
    os.chown(folder, user, user)
    folder.chmod(mode)
    return folder


def given(path: pathlib.Path, user: int) -> pathlib.Path:
    os.chown(path, user, user)
    return path


@pytest.fixture
def squatter(place: pathlib.Path) -> Iterator[support.Node]:
    """A real node of a stranger's, on a socket that everybody may open."""
    path = folder_of(place, STRANGER) / "socket"
    with start_node(*SMALL, f"--unix={path}", before_exec=become(STRANGER)) as node:
        path.chmod(0o666)
        yield node


# ---- who serves a unix socket


def test_a_stranger_is_sent_nothing(place: pathlib.Path, squatter: support.Node) -> None:
    url = f"node+unix://{place}/own/socket"
    for user in (0, OTHER):
        done = says(user, "--url", url, "put", "k", stdin=b"a secret value")
        assert done.returncode == NOT_ALLOWED, done
        assert f"user {STRANGER}".encode() in done.stderr and b"secret" in done.stderr
    assert says(STRANGER, "--url", url, "get", "k").returncode == 1  # its owner sees no such key


def test_python_asks_as_well(place: pathlib.Path, squatter: support.Node) -> None:
    program = f"import penstock; penstock.open('node+unix://{place}/own/socket').put('k', b'v')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          env=support.python_environment())
    assert "NotAllowed" in done.stderr and f"user {STRANGER}" in done.stderr, done.stderr


def test_a_member_does_not_join_a_stranger(place: pathlib.Path) -> None:
    path = folder_of(place, STRANGER) / "socket"
    with start_node("--role=master", f"--unix={path}", f"--pool-map={path}.view", before_exec=become(STRANGER)):
        path.chmod(0o666)
        with start_node(*SMALL, "--listen=127.0.0.1:0", f"--master=unix://{path}", listeners=2) as node:
            node.wait_for(f"user {STRANGER}")
            assert "joined" not in node.log()


def test_root_is_believed(place: pathlib.Path) -> None:
    with start_node(*SMALL, f"--unix={place}/socket"):
        url = f"node+unix://{place}/socket"
        assert says(OTHER, "--url", url, "ping").returncode == NOT_ALLOWED  # the socket's mode is 0600
        (place / "socket").chmod(0o666)
        assert says(OTHER, "--url", url, "put", "k", stdin=b"v").returncode == 0


def test_a_secret_proves_who_serves(place: pathlib.Path) -> None:
    path = folder_of(place, STRANGER) / "socket"
    theirs, wrong = given(support.secret_file(place / "theirs"), STRANGER), support.secret_file(place / "wrong", "other\n")
    ours = support.secret_file(place / "ours")
    with start_node(*SMALL, f"--unix={path}", f"--secret-file={theirs}", before_exec=become(STRANGER)):
        path.chmod(0o666)
        url = f"node+unix://{path}"
        assert penstock("--url", url, "--secret-file", str(ours), "put", "k", stdin=b"v").returncode == 0
        assert penstock("--url", url, "--secret-file", str(wrong), "ping").returncode == NOT_ALLOWED
        assert penstock("--url", url, "ping").returncode == NOT_ALLOWED


def test_members_of_another_user_are_reached_over_tcp(place: pathlib.Path) -> None:
    """Their unix socket is near and closed to this client: there is the other address."""
    own, others = support.secret_file(place / "own"), given(support.secret_file(place / "others"), OTHER)
    with start_node("--role=master", "--listen=127.0.0.1:0", f"--pool-map={place}/view", f"--secret-file={own}") as m:
        with start_node(*SMALL, "--listen=127.0.0.1:0", f"--secret-file={own}", f"--unix={place}/socket",
                        f"--master=127.0.0.1:{m.ports()[0]}", listeners=2) as node:
            node.wait_for("joined as member")
            pool = ("--url", f"pool://127.0.0.1:{m.ports()[0]}", "--secret-file", str(others))
            done = says(OTHER, *pool, "put", "k", stdin=b"v")
            assert done.returncode == 0, done
            assert says(OTHER, *pool, "get", "k").stdout == b"v"


# ---- the socket that nobody names


def default_folder(user: int) -> pathlib.Path:
    return pathlib.Path(f"/tmp/penstock-{user}")


@pytest.fixture
def no_default() -> Iterator[None]:
    """Users without a folder of theirs, before and after."""
    def clear() -> None:
        for user in (STRANGER, OTHER):
            for path in (default_folder(user), pathlib.Path(f"/tmp/penstock-{user}.sock")):
                if path.is_symlink() or path.is_file() or path.is_socket():
                    path.unlink()
                elif path.exists():
                    shutil.rmtree(path)
    clear()
    yield
    clear()


def test_default_socket_is_in_a_private_folder(no_default: None) -> None:
    for environment in ({}, {"XDG_RUNTIME_DIR": ""}):
        with start_node(*SMALL, before_exec=become(OTHER), environment=environment) as node:
            path = default_folder(OTHER) / "penstock.sock"
            node.wait_for(f"listening on unix://{path},")
            state = path.parent.lstat()
            assert stat.S_ISDIR(state.st_mode) and (state.st_uid, stat.S_IMODE(state.st_mode)) == (OTHER, 0o700)
            assert says(OTHER, "put", "k", stdin=b"v", **environment).returncode == 0
            node.stop()
    done = says(OTHER, "ping")
    assert done.returncode == UNREACHABLE and f"no node listens on {path}".encode() in done.stderr


def taken_by_another(user: int) -> None:
    folder = default_folder(user)
    folder.mkdir(0o700)
    os.chown(folder, STRANGER, STRANGER)


def open_to_all(user: int) -> None:
    folder = default_folder(user)
    folder.mkdir()
    os.chown(folder, user, user)
    folder.chmod(0o777)


def a_link(user: int) -> None:
    folder = default_folder(STRANGER)
    folder.mkdir(0o700)
    os.chown(folder, user, user)
    default_folder(user).symlink_to(folder)
    os.chown(default_folder(user), STRANGER, STRANGER, follow_symlinks=False)


def a_file(user: int) -> None:
    default_folder(user).write_text("")


@pytest.mark.parametrize(("prepare", "why"), [(taken_by_another, f"user {STRANGER}"), (open_to_all, "mode 0777"),
                                              (a_link, "link"), (a_file, "folder")])
def test_default_folder_that_others_made(no_default: None, prepare: Callable[[int], None], why: str) -> None:
    prepare(OTHER)
    _, log = fails_to_start(*SMALL, before_exec=become(OTHER))
    done = says(OTHER, "put", "k", stdin=b"v")
    assert done.returncode == NOT_ALLOWED
    for text in (log, done.stderr.decode()):
        assert str(default_folder(OTHER)) in text and why in text, text
        assert "XDG_RUNTIME_DIR" in text and ("--unix" in text or "--url" in text), text


def test_a_runtime_folder_that_is_not_ours(place: pathlib.Path, no_default: None) -> None:
    """As `su` leaves it behind."""
    folder = folder_of(place, STRANGER, 0o777)
    for wrong, why in ((str(folder), f"user {STRANGER}"), ("relative", "XDG_RUNTIME_DIR"), (str(place / "none"), "No such"),
                       (f"{place}/{'long' * 50}", "long")):
        _, log = fails_to_start(*SMALL, before_exec=become(OTHER), environment={"XDG_RUNTIME_DIR": wrong})
        done = says(OTHER, "put", "k", stdin=b"v", XDG_RUNTIME_DIR=wrong)
        for text in (log, done.stderr.decode()):
            assert "XDG_RUNTIME_DIR" in text and why in text, text
    right = folder_of(place, OTHER, 0o700, "right")
    with start_node(*SMALL, before_exec=become(OTHER), environment={"XDG_RUNTIME_DIR": str(right)}):
        assert says(OTHER, "ping", XDG_RUNTIME_DIR=str(right)).returncode == 0


# ---- names in a folder that everybody may write to


def test_a_members_socket_cannot_be_guessed(place: pathlib.Path) -> None:
    """Whoever knows the name before the node does can keep it from starting."""
    folder = folder_of(place, 0, 0o1777)
    with start_node("--role=master", "--listen=127.0.0.1:0", f"--pool-map={place}/view") as m:
        for _ in range(2):
            with start_node(*SMALL, "--listen=127.0.0.1:0", f"--folder={folder}",
                            f"--master=127.0.0.1:{m.ports()[0]}", listeners=2) as node:
                node.wait_for("joined as member")
                name = next(folder.glob("penstock-member-*.sock")).name
                assert len(name.removeprefix(f"penstock-member-{node.pid}-").removesuffix(".sock")) == 16, name
                node.stop()
            assert list(folder.iterdir()) == []


def test_secrets_that_another_user_knows(place: pathlib.Path) -> None:
    secret = given(support.secret_file(place / "secret"), STRANGER)
    _, log = fails_to_start(*SMALL, f"--unix={place}/socket", f"--secret-file={secret}")
    assert str(secret) in log and f"user {STRANGER}" in log
    done = penstock("--url", f"node+unix://{place}/socket", "--secret-file", str(secret), "ping")
    assert done.returncode == NOT_ALLOWED and f"user {STRANGER}".encode() in done.stderr


def member_fails(place: pathlib.Path, *more: str) -> str:
    with support.Node(*SMALL, f"--unix={place}/socket", "--master=127.0.0.1:1", *more) as node:
        assert node.wait() != 0  # it listens already when it looks who it is
        return node.log()


def test_identities_of_others(place: pathlib.Path) -> None:
    folder = folder_of(place, 0, 0o1777)
    victim = place / "victim"
    victim.write_text("")
    (folder / "link").symlink_to(victim)
    (folder / "theirs").write_text("0123456789abcdef0123456789abcdef\n")
    given(folder / "theirs", STRANGER)
    (folder / "open").write_text("0123456789abcdef0123456789abcdef\n")
    (folder / "open").chmod(0o666)
    os.mkfifo(folder / "pipe")
    for name, why in (("link", "link"), ("theirs", f"user {STRANGER}"), ("open", "mode 0666"), ("pipe", "regular")):
        log = member_fails(place, f"--node-id={folder}/{name}")
        assert f"{folder}/{name}" in log and why in log, log
    assert victim.read_text() == ""


def test_notes_of_the_pool_of_others(place: pathlib.Path) -> None:
    """What a node that keeps its memory was a member of, beside that memory."""
    folder = folder_of(place, 0, 0o1777)
    victim = place / "victim"
    victim.write_text("")
    (folder / "penstock-link.pool").symlink_to(victim)
    os.link(victim, folder / "penstock-hard.pool")
    (folder / "penstock-theirs.pool").write_text("")
    given(folder / "penstock-theirs.pool", STRANGER)
    (folder / "penstock-open.pool").write_text("")
    (folder / "penstock-open.pool").chmod(0o666)
    os.mkfifo(folder / "penstock-pipe.pool")
    for name, why in (("link", "symbolic link"), ("hard", "hard link"), ("theirs", f"user {STRANGER}"),
                      ("open", "mode 0666"), ("pipe", "regular")):
        log = member_fails(place, f"--folder={folder}", f"--keep={name}")
        assert f"{folder}/penstock-{name}.pool" in log and why in log, log
    assert victim.read_text() == ""


def master_fails(place: pathlib.Path, view: pathlib.Path) -> str:
    return fails_to_start("--role=master", f"--unix={place}/socket", f"--pool-map={view}")[1]


def test_views_of_others(place: pathlib.Path) -> None:
    folder = folder_of(place, 0, 0o1777)
    for name, prepare, why in (
            ("theirs", lambda path: given(path, STRANGER), f"user {STRANGER}"),
            ("open", lambda path: path.chmod(0o666), "mode 0666")):
        view = folder / name
        view.write_bytes(b"anything")
        prepare(view)
        log = master_fails(place, view)
        assert str(view) in log and why in log, log
        lock = folder / f"other-{name}.lock"
        lock.write_text("1\n")
        prepare(lock)
        log = master_fails(place, folder / f"other-{name}")
        assert why in log and "lock" in log, log
    (folder / "new").symlink_to(place / "victim")
    assert "link" in master_fails(place, folder / "new")
    (place / "victim").write_text("precious")
    os.link(place / "victim", folder / "hard.lock")
    assert "link" in master_fails(place, folder / "hard")
    assert (place / "victim").read_text() == "precious"


def test_a_view_is_not_written_into_a_strangers_file(place: pathlib.Path) -> None:
    """Whoever made the file beside it has it open still."""
    folder = folder_of(place, 0, 0o1777)
    beside = folder / "view.new"
    beside.write_bytes(b"")
    given(beside, STRANGER)
    victim = place / "victim"
    victim.write_text("precious")
    os.link(victim, folder / "other.new")
    for name in ("view", "other"):
        with start_node("--role=master", "--listen=127.0.0.1:0", f"--pool-map={folder}/{name}") as m:
            with start_node(*SMALL, "--listen=127.0.0.1:0", f"--master=127.0.0.1:{m.ports()[0]}", listeners=2) as node:
                node.wait_for("joined as member")
        state = (folder / name).stat()
        assert (state.st_uid, stat.S_IMODE(state.st_mode), state.st_nlink) == (0, 0o600, 1)
    assert victim.read_text() == "precious"


def test_ssd_folders_of_others(place: pathlib.Path) -> None:
    for name, user, mode, why in (("theirs", STRANGER, 0o700, f"user {STRANGER}"), ("open", 0, 0o777, "mode 0777"),
                                  ("sticky", 0, 0o1777, "mode 1777")):
        folder = folder_of(place, user, mode, name)
        _, log = fails_to_start(*SMALL, f"--unix={place}/socket", f"--ssd={folder}", "--ssd-bytes=64M", "--ssd-segment=4M")
        assert str(folder) in log and why in log, log
        assert list(folder.iterdir()) == []


def test_kept_memory_of_others(place: pathlib.Path) -> None:
    folder = folder_of(place, 0, 0o1777)
    for name, kind in (("../x", "name"), ("a/b", "name"), ("a\nb", "name"), ("x" * 65, "name"), ("theirs", "this user")):
        if name == "theirs":
            (folder / "penstock-theirs-0.kept").write_bytes(b"")
            given(folder / "penstock-theirs-0.kept", STRANGER)
        _, log = fails_to_start(*SMALL, f"--unix={place}/socket", f"--folder={folder}", f"--keep={name}")
        assert kind in log, log


HOLD = """
import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(held := open(sys.argv[1]), fcntl.F_SETLEASE, fcntl.F_RDLCK)
print("held", flush=True)
signal.pause()
"""


def test_leases_of_others(place: pathlib.Path) -> None:
    """Whoever opens such a file to write it waits for 45 s; its own user's is from a node that was killed."""
    with tempfile.TemporaryDirectory(dir=support.SHM, prefix="trust-") as name:
        folder = pathlib.Path(name)
        for arena, user in (("theirs", STRANGER), ("own", 0)):
            (folder / f"penstock-1-{arena}.arena").write_bytes(b"")
            given(folder / f"penstock-1-{arena}.arena", user)
        folder.chmod(0o1777)
        holder = subprocess.Popen([sys.executable, "-c", HOLD, folder / "penstock-1-theirs.arena"], stdout=subprocess.PIPE,
                                  preexec_fn=become(STRANGER))
        try:
            assert holder.stdout and holder.stdout.readline() == b"held\n"
            with start_node(*SMALL, f"--unix={place}/socket", f"--folder={folder}") as node:
                assert [path.name for path in folder.glob("penstock-1-*")] == ["penstock-1-theirs.arena"]
                node.stop()
        finally:
            holder.kill()
            holder.communicate()


def test_a_configuration_of_others(place: pathlib.Path) -> None:
    config = place / "config"
    config.write_text(f"unix = {place}/socket\n")
    for change, why in ((lambda: given(config, STRANGER), f"user {STRANGER}"), (lambda: config.chmod(0o666), "mode 0666")):
        given(config, 0)
        change()
        _, log = fails_to_start(*SMALL, f"--config={config}")
        assert str(config) in log and why in log, log
    given(config, 0)
    config.chmod(0o644)
    (place / "link").symlink_to(config)
    with start_node(*SMALL, f"--config={place}/link"):
        pass


FORGED = "2026-01-01T00:00:00.000Z penstockd: stopped"


def test_what_is_quoted_makes_no_line(place: pathlib.Path) -> None:
    """Keys are anybody's, and so are arguments of scripts."""
    with (start_node("--dram=64M", "--shards=1", f"--unix={place}/large") as large,
          start_node(*SMALL, f"--unix={place}/small", f"--follow=node+unix://{place}/large", f"--devices=\n{FORGED}") as small):
        small.wait_for("follow: ")
        penstock("--url", f"node+unix://{place}/large", "put", f"k\n{FORGED}\x1b[31m", stdin=bytes(16 << 20))
        small.wait_for("k?2026")
        for log in (small.log(), large.log()):
            assert FORGED not in log.split("\n") and "\x1b" not in log, log
    for done in (penstock("--url", f"node+unix://{place}/\n{FORGED}", "ping"), penstock("ls", f"--timeout=\n{FORGED}"),
                 subprocess.run([support.BUILD / "penstockd", f"--dram=\n{FORGED}"], capture_output=True)):
        assert done.returncode and done.stderr.count(b"\n") == 1 and FORGED.encode() in done.stderr, done


def test_the_socket_stays_whose_it_is(place: pathlib.Path) -> None:
    """What somebody else has put in the socket's place is left alone at the end."""
    folder = folder_of(place, 0, 0o777)
    with start_node(*SMALL, f"--unix={folder}/socket") as node, contextlib.closing(socket.socket(socket.AF_UNIX)) as other:
        (folder / "socket").unlink()
        other.bind(f"{folder}/socket")
        node.stop()
        assert (folder / "socket").is_socket()
