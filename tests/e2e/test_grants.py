# SPDX-License-Identifier: Apache-2.0
"""penstockd --grants: what the command line, Python, a pool and the gateway may do by the secret that each proves, and what a
new file changes while clients go on."""
from __future__ import annotations

import contextlib
import http.client
import json
import pathlib
import re
import signal
import subprocess
import sys
from typing import Iterator

import pytest
import support
from cli import NOT_ALLOWED, NOT_FOUND, USAGE
from http2 import DATA, END_STREAM, HEADERS, read
from support import Node, fails_to_start, penstock, start_node, wait_until
from tsgrpc import LOOPBACK, Peer

SMALL = ("--dram=64M", "--page-size=64K", "--shards=2")
ALL = "[all]\nrights = read write admin\nkeys = all\nsecret-file = all\n"
IN = "[in]\nrights = read write\nprefix = a/\nsecret-file = in\n"
READS = "[reads]\nrights = read\nprefix = a/\nsecret-file = reads\n"


class Place:
    """A folder with grants and their secrets, and the command line by each of them."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.file = folder / "grants"
        for name in ("all", "in", "reads", "next"):
            support.secret_file(folder / name, f"secret of {name}\n")

    def write(self, *grants: str) -> None:
        self.file.write_text("# who may do what\n" + "\n".join(grants))
        self.file.chmod(0o644)

    @property
    def url(self) -> str:
        return f"node+unix://{self.folder}/socket"

    def start(self, *more: str, listeners: int = 1) -> Node:
        return start_node(*SMALL, f"--unix={self.folder}/socket", f"--grants={self.file}", *more, listeners=listeners)

    def ask(self, grant: str, *arguments: str, url: str = "", stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return penstock("--url", url or self.url, "--secret-file", str(self.folder / grant), *arguments, stdin=stdin)

    def does(self, grant: str, *arguments: str, url: str = "", stdin: bytes = b"") -> bytes:
        done = self.ask(grant, *arguments, url=url, stdin=stdin)
        assert done.returncode == 0, done
        return done.stdout

    def denied(self, grant: str, right: str, *arguments: str, url: str = "", stdin: bytes = b"") -> None:
        done = self.ask(grant, *arguments, url=url, stdin=stdin)
        assert done.returncode == NOT_ALLOWED, done
        assert f"grant '{grant}' has no right to {right}".encode() in done.stderr, done

    def figures(self) -> dict[str, int]:
        stat = json.loads(self.does("all", "stat", "--json"))
        return stat["pool"] | {"forbidden": stat["forbidden"]}


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Place:
    made = Place(tmp_path)
    made.write(ALL, IN, READS)
    return made


@pytest.fixture
def node(place: Place) -> Iterator[Node]:
    with place.start() as started:
        place.does("all", "put", "b/k", stdin=b"theirs")
        yield started
        started.stop()


# ---- who does what


def test_command_line(place: Place, node: Node) -> None:
    place.does("in", "put", "a/k", stdin=b"ours")
    assert place.does("in", "get", "a/k") == b"ours"
    assert place.does("in", "ls", "a/") == b"a/k\n"
    place.does("in", "stat", "a/k")
    place.does("in", "stat")
    place.does("in", "ping")
    assert place.ask("in", "get", "a/none").returncode == NOT_FOUND
    for key in ("b/k", "b/none", "a", "a0", "../a/k", "a%2Fk"):  # there or not: the answer is the same
        place.denied("in", "write", "put", key, stdin=b"x")
        place.denied("in", "read", "get", key)
        place.denied("in", "read", "get", key, "--wait=10")
        place.denied("in", "read", "stat", key)
        place.denied("in", "write", "rm", key)
        place.denied("in", "read", "ls", key)
        place.denied("in", "write", "rm", "--prefix", key)
        place.denied("in", "read", "watch", key)
        place.denied("in", "read", "dump", key)
    for everything in (("ls",), ("dump",), ("watch",)):
        place.denied("in", "read", *everything)
    place.denied("in", "write", "clear")
    place.denied("reads", "write", "put", "a/k", stdin=b"x")
    place.denied("reads", "write", "rm", "a/k")
    assert place.does("reads", "get", "a/k") == b"ours"
    assert place.does("all", "get", "b/k") == b"theirs"
    place.does("in", "rm", "a/k")
    assert penstock("--url", place.url, "ping").returncode == NOT_ALLOWED
    support.secret_file(place.folder / "wrong", "no secret of any grant\n")
    assert place.ask("wrong", "ping").returncode == NOT_ALLOWED


def test_dumps_and_loads(place: Place, node: Node) -> None:
    place.does("in", "put", "a/1", stdin=b"one")
    place.does("all", "put", "a/2", stdin=b"two" * 100_000)
    own, everything = place.does("in", "dump", "a/"), place.does("all", "dump")
    place.does("in", "rm", "--prefix", "a/")
    place.does("in", "load", stdin=own)
    assert place.does("in", "get", "a/2") == b"two" * 100_000
    place.does("all", "rm", "b/k")
    done = place.ask("in", "load", stdin=everything)
    assert done.returncode == NOT_ALLOWED, done
    assert place.ask("all", "get", "b/k").returncode == NOT_FOUND


def test_python(place: Place, node: Node) -> None:
    program = f"""
import penstock
store = penstock.open({place.url!r}, secret_file={str(place.folder / "in")!r})
store.put("a/k", b"value")
assert bytes(store.get("a/k")) == b"value" and [entry.key for entry in store.list("a/")] == [b"a/k"]
for call in (lambda: store.put("b/k", b"x"), lambda: store.get("b/k"), lambda: store.exists("b/none"), lambda: list(store.list()),
             lambda: store.delete("b/k"), lambda: store.pin("b/k"), lambda: store.watch("b")):
    try:
        call()
    except penstock.NotAllowed as refused:
        assert "grant 'in' has no right to" in str(refused), refused
    else:
        raise AssertionError(call)
assert store.stat().forbidden >= 7
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=support.WAIT_S,
                   env=support.python_environment())


def test_refusals_are_counted_and_logged(place: Place, node: Node) -> None:
    place.denied("in", "read", "get", "b/k")
    place.denied("in", "write", "put", "b/k", stdin=b"x")
    node.wait_for("grant in has no right to read 'b/k'")
    assert "secret of" not in node.log()
    figures = place.figures()
    assert figures["forbidden"] == 2
    assert {name: figures[name] for name in figures if name.startswith("grant.in.")} == {
        "grant.in.connections": 0, "grant.in.refused_read": 1, "grant.in.refused_write": 1, "grant.in.refused_admin": 0}
    assert b"grant." not in place.does("in", "stat", "--all")  # others' names are the operator's
    keys = "".join(f"b/{i}\n" for i in range(100))
    (place.folder / "list").write_text(keys)
    for path in keys.split():
        (place.folder / path).parent.mkdir(exist_ok=True)
        (place.folder / path).write_text("x")
    place.ask("in", "put", "-r", str(place.folder / "b"), "b/")
    assert node.log().count("grant in has no right") < 100


def test_members_of_a_batch(place: Place, node: Node) -> None:
    """Files of a folder travel together; what lies outside fails alone."""
    for name in ("x", "y"):
        (place.folder / "tree" / name).mkdir(parents=True)
        (place.folder / "tree" / name / "file").write_text(name)
    place.does("in", "put", "-r", str(place.folder / "tree"), "a/")
    assert place.does("in", "ls", "a/") == b"a/x/file\na/y/file\n"
    assert place.ask("in", "put", "-r", str(place.folder / "tree"), "b/").returncode == NOT_ALLOWED


# ---- files


@pytest.mark.parametrize("text, fault", [
    ("", "grants:1: no grant"),
    ("[a]\nrights = read\nkeys = all\nsecret-file = none\n", "grants:4: secret file"),
    ("[a]\nrights = fly\n", "grants:2: 'fly' is none of read, write and admin"),
    ("[a]\nrights = read\nkeys = all\nsecret = a-secret-in-the-file\n", "mode 0600"),
])
def test_bad_files_are_refused(place: Place, text: str, fault: str) -> None:
    place.file.write_text(text)
    place.file.chmod(0o644)
    code, log = fails_to_start(*SMALL, f"--unix={place.folder}/socket", f"--grants={place.file}")
    assert fault in log and "a-secret-in-the-file" not in log
    assert code in (1, USAGE)


def reload(place: Place, node: Node, *grants: str) -> None:
    count = node.log().count("are in force")
    place.write(*grants)
    node.process.send_signal(signal.SIGHUP)
    node.wait_for("are in force", count + 1)


def test_rotation_under_load(place: Place, node: Node) -> None:
    """A client that puts all the time notices nothing while its secret is replaced."""
    command = [support.BUILD / "penstock", "--url", place.url, "--secret-file", place.folder / "in", "bench", "--op", "put",
               "--prefix", "a/", "--keys", "100", "--seconds", "3", "--json"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=support.clean_environment()) as writer:
        try:
            wait_until("puts", lambda: json.loads(place.does("all", "stat", "--json"))["puts"] > 100)
            reload(place, node, ALL, IN + "secret-file = next\n")
            place.does("next", "put", "a/by-next", stdin=b"x")
            reload(place, node, ALL, IN.replace("= in\n", "= next\n"))
            assert place.ask("in", "ping").returncode == NOT_ALLOWED
            _, errors = writer.communicate(timeout=support.WAIT_S)
            assert writer.returncode == 0, errors
        finally:
            writer.kill()
    assert place.does("next", "get", "a/by-next") == b"x"


def test_a_bad_file_changes_nothing(place: Place, node: Node) -> None:
    place.write("[in]\nrights = read\n")
    node.process.send_signal(signal.SIGHUP)
    node.wait_for("the grants of before stay")
    assert "grants:2: grant in has neither 'prefix' nor 'keys = all'" in node.log()
    place.does("in", "put", "a/k", stdin=b"x")


def test_a_grant_goes_and_comes(place: Place, node: Node) -> None:
    command = [support.BUILD / "penstock", "--url", place.url, "--secret-file", place.folder / "in", "watch", "a/"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=support.clean_environment()) as watcher:
        try:
            assert watcher.stderr.readline() == "penstock: watching\n"
            reload(place, node, ALL)
            node.wait_for("its grant is gone")
            assert watcher.wait(support.WAIT_S) == NOT_ALLOWED
        finally:
            watcher.kill()
    assert place.ask("in", "ping").returncode == NOT_ALLOWED
    reload(place, node, ALL, IN)
    place.does("in", "put", "a/k", stdin=b"x")
    assert "grant.reads.connections" not in place.figures()


# ---- a pool, the gateway, the network


@contextlib.contextmanager
def pool_of_two(place: Place, where: str) -> Iterator[tuple[Node, list[Node]]]:
    own = (f"--grants={place.file}", f"--secret-file={place.folder / 'pool'}", "--listen=127.0.0.1:0")
    support.secret_file(place.folder / "pool", "the pool's own secret\n")
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(start_node("--role=master", "--shards=1", f"--pool-map={place.folder}/map",
                                                f"--place={where}", *own))
        member = (*SMALL, f"--master=127.0.0.1:{master.ports()[0]}", *own)
        nodes = [stack.enter_context(start_node(f"--host=h{i}", *member, listeners=2)) for i in range(2)]
        for node in nodes:
            node.wait_for("joined as member")
        yield master, nodes


@pytest.mark.parametrize("where", ["=home:2", "=anywhere"])
def test_a_pool(place: Place, where: str) -> None:
    with pool_of_two(place, where) as (master, nodes):
        url = f"pool://127.0.0.1:{master.ports()[0]}"
        wait_until("the pool serves", lambda: place.ask("in", "put", "a/k", url=url, stdin=b"x" * 100_000).returncode == 0)
        assert place.does("reads", "get", "a/k", url=url) == b"x" * 100_000
        place.denied("in", "write", "put", "b/k", url=url, stdin=b"x")
        place.does("all", "put", "b/k", url=url, stdin=b"theirs")
        place.denied("in", "read", "get", "b/k", url=url)
        place.denied("in", "read", "ls", url=url)
        assert place.does("in", "ls", "a/", url=url) == b"a/k\n"
        listed = json.loads(place.does("in", "node", "list", "--json", url=url).splitlines()[0])
        place.denied("in", "administer", "node", "drain", listed["id"], url=url)
        for node in nodes:
            assert place.ask("in", "put", "b/k", url=node.tcp, stdin=b"x").returncode == NOT_ALLOWED
            assert "grant in has no right" in node.log() and "has no right to admin" not in node.log()
        assert place.does("all", "get", "b/k", url=url) == b"theirs"


def test_what_is_forbidden_hinders_nothing_else(place: Place) -> None:
    """The master refuses to place a value, and answers where others lie: the client asks it on."""
    with pool_of_two(place, "=anywhere") as (master, _):
        url = f"pool://127.0.0.1:{master.ports()[0]}"
        keys = [f"a/{i}" for i in range(30)]
        wait_until("the pool serves", lambda: place.ask("in", "put", "a/k", url=url, stdin=b"x").returncode == 0)
        for key in keys:
            place.does("in", "put", key, url=url, stdin=key.encode())
        program = f"""
import penstock
store = penstock.open({url!r}, secret_file={str(place.folder / "reads")!r})
for key in {keys!r}:
    try:
        store.put("a/k", b"y")
    except penstock.NotAllowed:
        assert store.get(key) == key.encode()
    else:
        raise AssertionError(key)
"""
        subprocess.run([sys.executable, "-c", program], check=True, timeout=support.WAIT_S, env=support.python_environment())


def test_a_member_needs_the_pools_secret(place: Place) -> None:
    code, log = fails_to_start(*SMALL, "--listen=127.0.0.1:0", f"--grants={place.file}", "--master=127.0.0.1:1")
    assert code == USAGE and "a node of a pool has to have secret_file" in log


def test_the_gateway_has_a_grant(place: Place) -> None:
    with place.start(f"--tsgrpc={LOOPBACK}", "--tsgrpc-grant=reads") as node:
        place.does("all", "put", "a/k", stdin=b"x" * 300_000)
        place.does("all", "put", "b/k", stdin=b"x")
        with Peer(node) as peer:
            peer.send(read(1, b"a/k"))
            assert len(peer.wait_for(DATA, 1)) > 1000
            for stream, key in ((3, b"b/k"), (5, b"b/none")):
                peer.send(read(stream, key))
                peer.wait_for(HEADERS, stream, END_STREAM)  # a status alone
        assert place.figures()["grant.reads.refused_read"] == 2
        node.stop()
    with place.start(f"--tsgrpc={LOOPBACK}") as node, Peer(node) as peer:  # as ever: everything
        place.does("all", "put", "b/k", stdin=b"x" * 1000)
        peer.send(read(1, b"b/k"))
        assert len(peer.wait_for(DATA, 1)) > 1000
    with Node(*SMALL, f"--unix={place.folder}/s2", f"--grants={place.file}", f"--tsgrpc={LOOPBACK}",
              "--tsgrpc-grant=nobody") as node:
        assert node.wait() == USAGE and "there is no grant 'nobody'" in node.log()


def test_s3_has_a_grant(place: Place) -> None:
    def status(path: str) -> int:
        with contextlib.closing(http.client.HTTPConnection(address, timeout=support.WAIT_S)) as connection:
            connection.request("GET", path)
            return connection.getresponse().status

    with place.start("--s3=127.0.0.1:0", "--s3-grant=reads") as node:
        node.wait_for("s3: listening on ")
        address = re.search(r"s3: listening on (\S+)", node.log())[1]
        place.does("all", "put", "a/k", stdin=b"x")
        place.does("all", "put", "b/k", stdin=b"x")
        assert [status(path) for path in ("/a/k", "/b/k", "/b/none")] == [200, 403, 403]
        node.stop()


def test_grants_open_the_network(place: Place) -> None:
    with start_node(*SMALL, "--listen=0.0.0.0:0", f"--grants={place.file}", "--fabric=trusted") as node:
        assert "serves loopback only" not in node.log()
        url = f"{node.tcp}?fabric=trusted"
        place.does("in", "put", "a/k", url=url, stdin=b"x")
        place.denied("in", "read", "get", "b/k", url=url)
