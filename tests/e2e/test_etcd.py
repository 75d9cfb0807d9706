# SPDX-License-Identifier: Apache-2.0
"""The pool map in etcd: masters of which one leads, and an etcd that ends, stops, is full or wants a password."""
from __future__ import annotations

import contextlib
import http.server
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from typing import Iterator

import pytest
import support
from etcd import ETCDCTL, PASSWORD, USER, Etcd, etcd
from masters import TIMES, Masters, SharedPool, shared_pool
from members import ROUTED, master, member
from metrics import Watched
from ports import free_port
from support import fails_to_start, penstock, start_node, wait_until

LEADS, LEADS_NOT_NOW, FULL = "this master leads", "does not lead for now", "database space exceeded"


def killed(pool: SharedPool, which: int) -> int:
    """Kills a master that leads, and awaits the next."""
    pool.master.nodes[which].kill()
    return pool.master.leader(which)


def test_a_standby_takes_over(tmp_path: pathlib.Path) -> None:
    """Whoever was killed comes back and stands by. Members stay, and what was acknowledged is there."""
    with etcd() as e, shared_pool(tmp_path, e) as p:
        members, term = p.master.members(), p.master.ask("map")["term"]
        with p.load() as told:
            for _ in range(3):
                before = p.master.leader()
                killed(p, before)
                last, term = term, p.master.ask("map")["term"]
                assert p.master.members() == members and term > last
                p.master.back(before)
                p.master.nodes[before].wait_for("this one a standby")
                p.settled(3)
                e.ask("kv/compaction", revision=e.ask("kv/range", key="YQ==")["header"]["revision"], physical=True)
        assert told["puts"] > 100, told
        assert e.get("penstock/leader")["value"].decode() in p.master.addresses
        p.kill(0)
        p.settled(2)
        p.nodes[0] = p.node(0)
        p.settled(3)


def test_a_standby_says_who_leads(tmp_path: pathlib.Path) -> None:
    with etcd() as e, Masters(e, 2) as masters:
        leader = masters.leader()
        standby = masters.nodes[1 - leader]
        said = penstock("--url", f"pool://{masters.addresses[1 - leader]}?connect-ms=300", "ls")
        assert said.returncode == 5 and b"no master that the URL names leads the pool" in said.stderr, said
        standby.wait_for(f"the pool's master is {masters.addresses[leader]}, and this one a standby")
        with start_node("--listen=127.0.0.1:0", "--dram=64M", f"--master={masters.addresses[1 - leader]}") as node:
            node.wait_for(f"it does not lead; the pool's master is {masters.addresses[leader]}")
            masters.nodes[leader].stop()  # in order: nobody waits for its lease
            wait_until("the other leads", lambda: masters.leads(1 - leader))
            node.wait_for("joined as member")


def tells_that_it_leads(watched: Watched, leads: bool) -> bool:
    """All of the pool that a master tells over HTTP, or refuses to tell."""
    page = watched.metrics()
    asked = [watched.ask(path) for path in ("/api/v1/pool/map", "/api/v1/pool/nodes")]
    return (page["penstock_pool_leads"].value() == leads and ("penstock_pool_map_version" in page) >= leads
            and [status for status, _, _ in asked] == [200 if leads else 503] * 2
            and all(leads or "this master does not lead" in text for _, _, text in asked))


def test_masters_tell_over_http_who_leads(tmp_path: pathlib.Path) -> None:
    """One that stands by has no pool map; one whose lease etcd let end leads no more, whatever it told before."""
    with etcd() as e, Masters(e, 2, "--http=127.0.0.1:0", "--etcd-grace-ms=1000") as masters:
        leader = masters.leader()
        watched = [Watched(node) for node in masters.nodes]
        wait_until("one leads", lambda: tells_that_it_leads(watched[leader], True))
        assert watched[leader].metrics()["penstock_pool_takeovers_total"].value() == 1
        wait_until("one stands by", lambda: tells_that_it_leads(watched[1 - leader], False))
        assert watched[leader].json("/ready") == {"status": "ready"}
        stands_by = {"status": "ready", "detail": f"stands by: {masters.addresses[leader]} leads"}
        wait_until("it is ready to", lambda: watched[1 - leader].json("/ready") == stands_by)
        assert "penstock_pool_map_version" not in watched[1 - leader].metrics()
        assert watched[1 - leader].ask("/health")[0] == 200
        assert watched[leader].json("/api/v1/pool/map")["term"] == 1
        masters.nodes[leader].stop()
        wait_until("the other leads", lambda: tells_that_it_leads(watched[1 - leader], True))
        assert watched[1 - leader].json("/api/v1/pool/map")["term"] == 2
        e.servers[0].send(signal.SIGSTOP)
        wait_until("it leads no more", lambda: tells_that_it_leads(watched[1 - leader], False))
        wait_until("nobody leads", lambda: watched[1 - leader].ask("/ready")[0] == 503)
        e.servers[0].send(signal.SIGCONT)
        wait_until("it leads again", lambda: tells_that_it_leads(watched[1 - leader], True))


def test_a_stopped_leader_does_not_act(tmp_path: pathlib.Path) -> None:
    """It goes on when another one leads: it changes nothing, and then stands by."""
    with etcd() as e, shared_pool(tmp_path, e) as p:
        with p.load() as told:
            for _ in range(2):
                old = p.master.leader()
                node = p.master.nodes[old]
                with node.stopped():
                    p.master.stopped.add(old)
                    new = p.master.asked = p.master.leader(old)
                    p.nodes.append(p.node(3))
                    wait_until("another node joined", lambda: len(p.master.members()) == 4)
                    term = p.master.ask("map")["term"]
                p.master.stopped.clear()
                node.wait_for(f"the pool's master is {p.master.addresses[new]}, and this one a standby")
                assert p.master.ask("map")["term"] >= term  # one of its own would be of an earlier one
                p.nodes.pop().stop()
                p.settled(3)
        assert told["puts"] > 100, told


def test_a_server_of_etcd_is_lost(tmp_path: pathlib.Path) -> None:
    """One that leads, of three: the pool map can be changed, and a master taken over from."""
    with etcd(3) as e, shared_pool(tmp_path, e) as p:
        with p.load() as told:
            lost = e.leader()
            assert lost
            lost.kill()
            p.kill(0)
            p.settled(2)
            p.nodes[0] = p.node(0)
            p.settled(3)
            old = p.master.leader()
            killed(p, old)
            e.start(lost)
            p.master.back(old)
        assert told["puts"] > 100, told


@pytest.mark.parametrize("how", ["ended", "divided"])
def test_a_pool_without_etcd(how: str, tmp_path: pathlib.Path) -> None:
    """The leader says on what is. With etcd one leads again, and nothing has moved."""
    with etcd(3) as e, shared_pool(tmp_path, e, "--etcd-grace-ms=600000") as p:
        p.quiet()
        leader = p.master.leader()
        before = p.master.members()
        with p.load() as told:
            for server in e.servers[:2] if how == "divided" else e.servers:
                if how == "divided":
                    server.send(signal.SIGSTOP)
                else:
                    server.kill()
            p.master.nodes[leader].wait_for(LEADS_NOT_NOW)
            assert p.serves("without")
            with p.node(3) as late:
                late.wait_for("it does not lead")
                assert p.serves("without") and "joined as" not in late.log()
            wait_until("some time has passed", lambda: p.serves("again"))
            for server in e.servers:
                if server.process:
                    server.send(signal.SIGCONT)
            e.start()
            p.master.leader()
            p.settled(3)
        assert p.master.members() == before
        assert told["puts"] > 100, told


def test_behind_the_grace_nothing_is_served(tmp_path: pathlib.Path) -> None:
    """Another master might lead by then. With etcd one leads again, and what was written is there."""
    with etcd() as e, shared_pool(tmp_path, e, "--etcd-grace-ms=1000") as p:
        p.quiet()
        leader = p.master.leader()
        assert p.serves("before")
        with penstock_open(p.url) as ask:
            assert ask("before") == "before"
            e.kill()
            p.master.nodes[leader].wait_for("grants no lease any more")
            wait_until("its nodes are busy", lambda: ask("before") == "Busy")
            e.start()
            wait_until("it serves again", lambda: ask("before") == "before")
        assert p.serves("after")


# Reads the keys that it is told.
READER = """
import penstock, sys
store = penstock.open(sys.argv[1], timeout=1)
for line in sys.stdin:
    try:
        print(store.get(line.strip()).decode(), flush=True)
    except penstock.Error as error:
        print(type(error).__name__, flush=True)
"""


@contextlib.contextmanager
def penstock_open(url: str):  # noqa: ANN201: a function
    """A client that is open already, and knows the pool map."""
    env = support.python_environment()
    with subprocess.Popen(["/usr/bin/python3", "-c", READER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env,
                          text=True) as reader:
        assert reader.stdin and reader.stdout

        def ask(key: str) -> str:
            assert reader.stdin and reader.stdout
            reader.stdin.write(f"{key}\n")
            reader.stdin.flush()
            return reader.stdout.readline().strip()

        yield ask
        reader.stdin.close()


def test_etcd_is_full(tmp_path: pathlib.Path) -> None:
    """The leader leads on, and says why nothing changes; when there is room, what waited happens."""
    with etcd(1, "--quota-backend-bytes=16777216") as e, shared_pool(tmp_path, e) as p:
        p.quiet()
        leader = p.master.leader()
        for _ in range(40):
            if FULL in str(e.put("filler", bytes(900_000))):
                break
        assert FULL in str(e.put("filler", b"1"))
        with p.node(3) as late:
            p.master.nodes[leader].wait_for(FULL)
            assert p.serves("full") and p.master.leads(leader) and "joined as" not in late.log()
            old = e.ask("kv/range", key="YQ==")["header"]["revision"]
            e.ask("kv/compaction", revision=old, physical=True)
            e.ask("maintenance/defragment")
            for alarm in e.ask("maintenance/alarm", action="GET")["alarms"]:
                e.ask("maintenance/alarm", action="DEACTIVATE", **alarm)
            late.wait_for("joined as member")
            assert p.master.leads(leader) and p.serves("full")
            late.stop()
        p.settled(3)
        assert p.master.nodes[leader].log().count(FULL) <= 3  # once, not at each try


def test_a_leader_that_changed_nothing(tmp_path: pathlib.Path) -> None:
    """It ended before it stored a pool map: the one before it goes on with that, and begins no pool of its own."""
    with etcd() as e, shared_pool(tmp_path, e, count=1) as p:
        p.quiet()
        assert p.serves("key")
        before, node = p.master.members(), p.master.nodes[0]
        with node.stopped():
            wait_until("its lease has ended", lambda: e.get("penstock/leader") is None)
            e.put("penstock/leader", b"192.0.2.1:1")
        node.wait_for("the pool's master is 192.0.2.1:1, and this one a standby")
        e.delete("penstock/leader")
        p.master.leader()
        assert p.master.members() == before and node.log().count("this is pool") == 2
        wait_until("its nodes serve", lambda: p.serves("key"))


def test_etcd_comes_back_empty(tmp_path: pathlib.Path) -> None:
    """Who led puts the pool map back, and no other begins a new pool; masters that know of none do."""
    with etcd() as e, shared_pool(tmp_path, e, count=3) as p:
        p.quiet()
        assert p.serves("key")
        before = p.master.members()
        e.kill()
        shutil.rmtree(e.folder / e.servers[0].name)
        e.start()
        e.await_leader()
        wait_until("the pool map is back", lambda: e.get("penstock/map") is not None)
        p.master.leader()
        assert p.master.members() == before
        wait_until("its nodes serve", lambda: p.serves("key"))
        p.kill(0)
        p.settled(2)
        leader = p.master.leader()
        p.master.nodes[leader].kill()
        e.delete("penstock/map")
        e.delete("penstock/leader")
        p.master.nodes[leader - 1].wait_for("was there and is gone")
        assert e.get("penstock/map") is None


def test_the_pool_map_is_deleted_under_a_leader(tmp_path: pathlib.Path) -> None:
    """It puts its own back, without another change, and leads on in the same term."""
    with etcd() as e, shared_pool(tmp_path, e, count=1) as p:
        p.quiet()
        assert p.serves("key")
        term, node = p.master.ask("map")["term"], p.master.nodes[0]
        e.delete("penstock/map")
        node.wait_for("it was deleted in etcd, and is put back")
        wait_until("it is there", lambda: e.get("penstock/map") is not None)
        p.kill(0)
        p.settled(2)
        assert e.get("penstock/map") and p.master.ask("map")["term"] == term
        assert node.log().count("this is pool") == 1 and p.serves("key")
        e.delete("penstock/map")
        e.delete("penstock/leader")
        p.nodes[0] = p.node(0)
        p.settled(3)
        assert e.get("penstock/map") and p.master.ask("map")["term"] == term


class Way:
    """Between masters and an etcd, whose answers it may lose: what was asked for has happened."""

    def __init__(self, e: Etcd) -> None:
        self.lost = 0
        self.loses = False  # the next answer to a master that makes `leader`
        way = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # noqa: N802: http.server's name
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = urllib.request.Request(f"{e.urls}{self.path}", body)
                try:
                    with urllib.request.urlopen(request, timeout=support.WAIT_S) as answer:
                        status, said = 200, answer.read()
                except urllib.error.HTTPError as refused:
                    status, said = refused.code, refused.read()
                except OSError:
                    return
                if way.loses and self.path == "/v3/kv/txn" and b'"lease"' in body:
                    way.loses, way.lost = False, way.lost + 1
                    return
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.urls = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> Way:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_a_master_knows_its_own_key(tmp_path: pathlib.Path) -> None:
    """It made `leader` in an etcd that came back empty, and did not hear of it: nobody else leads."""
    with etcd() as e, Way(e) as way, shared_pool(tmp_path, way, count=1) as p:
        p.quiet()
        assert p.serves("key")
        before, node = p.master.members(), p.master.nodes[0]
        e.kill()
        shutil.rmtree(e.folder / e.servers[0].name)
        way.loses = True
        e.start()
        e.await_leader()
        wait_until("an answer is lost", lambda: way.lost == 1)
        wait_until("the pool map is back", lambda: e.get("penstock/map") is not None)
        p.master.leader()
        assert p.master.members() == before and node.log().count("this is pool") == 1
        assert "a standby" not in node.log()
        wait_until("its nodes serve", lambda: p.serves("key"))


def test_the_leader_is_deleted_under_it(tmp_path: pathlib.Path) -> None:
    """It makes the key again if nobody else has, and stands by if another one leads."""
    with etcd() as e, shared_pool(tmp_path, e, count=1) as p:
        p.quiet()
        before, node, term = p.master.members(), p.master.nodes[0], p.master.ask("map")["term"]
        e.delete("penstock/leader")
        wait_until("it has made it again", lambda: e.get("penstock/leader") is not None)
        p.master.leader()
        assert p.master.members() == before and p.master.ask("map")["term"] == term
        assert node.log().count("this is pool") == 1
        e.delete("penstock/leader")
        e.put("penstock/leader", b"192.0.2.1:1")
        node.wait_for("the pool's master is 192.0.2.1:1, and this one a standby")
        assert not p.master.leads(0)


def test_etcd_wants_a_password(tmp_path: pathlib.Path) -> None:
    """A wrong one is told, and tried again; the right one is read from the file when it is there."""
    secret = tmp_path / "password"
    secret.write_text("wrong\n")
    secret.chmod(0o600)
    with etcd() as e:
        e.want_password()
        with Masters(e, 1, f"--etcd-user={USER}", f"--etcd-password-file={secret}", "--etcd-grace-ms=3000", "--nodes-min=3") as masters:
            masters.nodes[0].wait_for("the pool map cannot be taken")
            masters.nodes[0].wait_for("authentication failed, invalid user ID or password")
            secret.write_text(f"{PASSWORD}\n")
            masters.nodes[0].wait_for(LEADS)
            with SharedPool(tmp_path, masters) as p:
                p.quiet()
                e.kill()
                masters.nodes[0].wait_for(LEADS_NOT_NOW)
                e.start()  # tokens of before are taken no more
                wait_until("it leads again", lambda: masters.leads(0))
                p.kill(0)
                p.settled(2)


def test_etcd_changes_the_password_under_a_leader(tmp_path: pathlib.Path) -> None:
    """Its lease is renewed without one: it leads on, and changes nothing."""
    secret = tmp_path / "password"
    secret.write_text(f"{PASSWORD}\n")
    secret.chmod(0o600)
    times = ("--etcd-lease-ms=3000", "--etcd-grace-ms=1000", "--nodes-min=3")
    with etcd() as e:
        token = e.want_password()
        with Masters(e, 1, f"--etcd-user={USER}", f"--etcd-password-file={secret}", *times) as masters:
            masters.nodes[0].wait_for(LEADS)
            e.ask("auth/user/changepw", token, name=USER, password="another")
            time.sleep(6)
            assert masters.leads(0) and LEADS_NOT_NOW not in masters.nodes[0].log()


def test_etcd_begins_to_want_a_password(tmp_path: pathlib.Path) -> None:
    """A master that has none leads on, and changes nothing; a new one cannot begin."""
    with etcd() as e, shared_pool(tmp_path, e, count=1) as p:
        p.quiet()
        e.want_password()
        with p.node(3) as late, start_node("--role=master", "--listen=127.0.0.1:0", f"--etcd={e.urls}") as nameless:
            nameless.wait_for("user name is empty")
            p.master.nodes[0].wait_for("user name is empty")
            assert p.serves("key") and p.master.leads(0) and "joined as" not in late.log()


@pytest.fixture(name="certificates", scope="module")
def make_certificates(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("certificates")
    subprocess.run([pathlib.Path(support.__file__).with_name("certificates"), folder], check=True)
    return folder


def test_etcd_over_tls(certificates: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Both sides show certificates. Who shows none, or trusts another authority, is told why."""
    c = certificates
    e = Etcd(tmp_path / "etcd", 1, f"--cert-file={c}/node.pem", f"--key-file={c}/node.key", "--client-cert-auth",
             f"--trusted-ca-file={c}/ca.pem", scheme="https")
    for server in e.servers:
        server.trust.load_verify_locations(f"{c}/ca.pem")
        server.trust.load_cert_chain(f"{c}/client.pem", f"{c}/client.key")
    shows = (f"--etcd-cert={c}/client.pem", f"--etcd-key={c}/client.key")
    try:
        e.start()
        e.await_leader()
        for more in ((f"--etcd-ca={c}/ca.pem",), (f"--etcd-ca={c}/stranger.pem", *shows)):
            with Masters(e, 1, *more) as masters:
                masters.nodes[0].wait_for("the pool map cannot be taken: https://")
            assert e.get("penstock/leader") is None
        with Masters(e, 1, f"--etcd-ca={c}/ca.pem", *shows) as masters:
            masters.nodes[0].wait_for(LEADS)
    finally:
        e.kill()


def test_what_lies_there_is_none(tmp_path: pathlib.Path) -> None:
    """A map that is damaged is left as it is, and so is a grace that is no number."""
    for key, value, why in (("map", b"garbage", "damaged, or not a pool map"), ("map", bytes(1 << 20), "more bytes than a pool map"),
                            ("leader", b"a" * 300, "penstock/leader has more bytes than an address"),
                            ("grace", b"soon", "no number of milliseconds"), ("leader", b"\x00\xff\n" * 9, "a standby")):
        with etcd() as e:
            e.put(f"penstock/{key}", value)
            with Masters(e, 1) as masters:
                masters.nodes[0].wait_for(why)
                assert e.get(f"penstock/{key}")["value"] == value and not masters.leads(0)
                masters.nodes[0].stop()


@pytest.mark.skipif(not ETCDCTL, reason="etcdctl is not installed: ci/install full")
def test_from_a_file_to_etcd_and_back(tmp_path: pathlib.Path) -> None:
    """By the commands of docs/how-to/pool.md: the pool goes on with its members and keys."""
    def etcdctl(command: str) -> None:
        subprocess.run(["sh", "-ec", f"{ETCDCTL} {command}"], check=True, capture_output=True, timeout=support.WAIT_S,
                       env=support.clean_environment(ETCDCTL_API="3", ETCDCTL_ENDPOINTS=e.urls))

    with etcd() as e, master(tmp_path) as m, member(m) as node:
        m.has(1)
        assert penstock("--url", node.tcp, "put", "k", stdin=b"v").returncode == 0
        before = m.members()
        m.node.stop()
        etcdctl(f"put penstock/map < {m.map_file}")
        with start_node("--role=master", f"--listen={m.address}", f"--etcd={e.urls}", *TIMES) as other:
            other.wait_for(LEADS)
            wait_until("the key is known", lambda: m.statuses("k") == [ROUTED])
            assert m.members() == before
            other.stop()
        m.map_file.unlink()
        etcdctl(f"get --print-value-only penstock/map | head -c -1 > {m.map_file}")
        m.map_file.chmod(0o600)
        m.back()
        wait_until("the key is known again", lambda: m.statuses("k") == [ROUTED])
        assert m.members() == before


HEADER = '"header":{"revision":"7"}'
ANSWERS = {
    "truncated": '{"responses":[{"response_range":',
    "array": "[1,2]",
    "text": "what?",
    "empty": "",
    "types": f'{{{HEADER},"responses":{{"kvs":7}},"succeeded":"yes"}}',
    "numbers": '{"header":{"revision":"99999999999999999999"},"responses":[]}',
    "entries": f'{{{HEADER},"responses":[{",".join(["{}"] * 100)}]}}',
    "base64": f'{{{HEADER},"responses":[{{"response_range":{{"kvs":[{{"create_revision":"1","mod_revision":"2","value":"?"}}]}}}}]}}',
    "lease": f'{{{HEADER},"ID":"9223372036854775807","TTL":"-1"}}',
    "zeros": f'{{{HEADER},"ID":"0","TTL":"0"}}',
    "deep": "[" * 100_000,
}


@contextlib.contextmanager
def serves(answer: bytes) -> Iterator[int]:
    """A server that has one answer for whatever is asked."""
    def serve() -> None:
        while True:
            try:
                peer = listener.accept()[0]
            except OSError:
                return
            with peer, contextlib.suppress(OSError):
                while peer.recv(65536):
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer))
                    peer.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(support.WAIT_S)


@pytest.mark.parametrize("what", [*ANSWERS, "huge"])
def test_what_is_no_etcd(what: str) -> None:
    """The master leads nothing, says so once, and ends in order."""
    with serves(b'{"a":"' + bytes(20 << 20) if what == "huge" else ANSWERS[what].encode()) as port:
        with start_node("--role=master", "--listen=127.0.0.1:0", f"--etcd=http://127.0.0.1:{port}") as node:
            node.wait_for("the pool map cannot be taken")
            time.sleep(1.5)  # it has tried once more
            assert node.log().count("the pool map cannot be taken") == 1
            node.stop()


def test_options_that_cannot_be(tmp_path: pathlib.Path) -> None:
    url = f"--etcd=http://127.0.0.1:{free_port()}"
    (tmp_path / "open").write_text("secret")
    for more, why in (((url, f"--pool-map={tmp_path}/map"), "a pool map is in one of them"),
                      (("--etcd=ftp://127.0.0.1",), "is no http:// or https:// URL"),
                      (("--etcd=http://127.0.0.1:99999",), "is no http:// or https:// URL"),
                      (("--etcd=,",), "URL"),
                      ((f"--etcd={','.join(['http://127.0.0.1'] * 17)}",), "more than 16 URLs"),
                      ((url, "--etcd-user=u"), "neither is of use without the other"),
                      ((url, "--etcd-cert=c"), "c: No such file"),
                      ((url, f"--etcd-ca={tmp_path}/none"), "none: No such file"),
                      ((url, "--etcd-prefix="), "etcd_prefix"),
                      ((url, "--etcd-user=u", f"--etcd-password-file={tmp_path}/open"), "mode 0600")):
        assert why in fails_to_start("--role=master", "--listen=127.0.0.1:0", *more)[1], more
    assert "only role=master" in fails_to_start("--listen=127.0.0.1:0", url)[1]
