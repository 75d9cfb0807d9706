# SPDX-License-Identifier: Apache-2.0
"""TLS on a node's port: who comes in, who is refused by what name, what can be read on the way, and pools."""
from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from typing import Iterator

import members
import pytest
import support
from support import fails_to_start, penstock, secret_file, start_node

SMALL = ("--dram=16M", "--page-size=64K", "--shards=1", "--listen=127.0.0.1:0")
NOT_ALLOWED, UNREACHABLE = 4, 5
TLS_FIRST_BYTE = 0x16
SECRET = "a secret that nobody reads on the way"
# Which ways to carry a session this build has: over one of its own all of it goes through the port.
TRANSPORTS = ["ucx"] + (["stream"] if "--transport" in support.daemon_says("--help") else [])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("certificates")
    subprocess.run([pathlib.Path(support.__file__).with_name("certificates"), folder], check=True)
    return folder


@pytest.fixture
def secret(tmp_path: pathlib.Path) -> pathlib.Path:
    return secret_file(tmp_path / "secret", SECRET + "\n")


def has(folder: pathlib.Path, name: str) -> tuple[str, str]:
    """The options of whoever has that certificate."""
    return f"--tls-certificate={folder / name}.pem", f"--tls-key={folder / name}.key"


def knows(folder: pathlib.Path) -> str:
    return f"--tls-ca={folder / 'ca.pem'}"


def says(url: str, *arguments: str, stdin: bytes = b"", **environment: str) -> tuple[int, str]:
    """Exit code, and all that was said."""
    done = penstock("--url", url, *arguments, stdin=stdin, environment=environment)
    return done.returncode, (done.stdout + done.stderr).decode()


def counters(node: support.Node, *how: str) -> dict[str, int]:
    """Refusals that are not zero, by their figures."""
    done = penstock("--url", node.tcp, *how, "stat", "--json")
    assert done.returncode == 0, done.stderr
    return {name: count for name, count in json.loads(done.stdout).items() if name.startswith("refused_") and count}


class Relay:
    """Stands between a client and a node, and notes what each of them said; with `strips` it is no way to the node, and
    answers the client in plain what a node without TLS would. With `joins`, a certificate and its key that the client
    believes, every connection but the first is two of TLS, joined here: what it notes of them is plain."""

    def __init__(self, node: support.Node, strips: bool = False, joins: tuple[pathlib.Path, pathlib.Path] | None = None,
                 ) -> None:
        self.said = [bytearray(), bytearray()]  # the client, the node
        self.joined = 0
        self._strips, self._joins = strips, joins
        self._to = ("127.0.0.1", node.ports()[0])
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._strips:
                    threading.Thread(target=self._strip, args=(client,), daemon=True).start()
                    continue
                node = socket.create_connection(self._to)
                if self._joins and self._open:
                    client, node = self._join(client, node, *self._joins)
                self._open += [client, node]
                for side, (come, go) in enumerate([(client, node), (node, client)]):
                    threading.Thread(target=self._pass, args=(come, go, self.said[side]), daemon=True).start()

    def _join(self, client: socket.socket, node: socket.socket, certificate: pathlib.Path, key: pathlib.Path,
              ) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
        to_client, to_node = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        to_client.load_cert_chain(certificate, key)
        to_node.check_hostname, to_node.verify_mode = False, ssl.CERT_NONE
        joined = to_client.wrap_socket(client, server_side=True), to_node.wrap_socket(node)
        self.joined += 1
        return joined

    def _strip(self, client: socket.socket) -> None:
        challenge = b"PSTB" + bytes([7, 0, 2, 0, 36, 0, 0, 0]) + bytes([1, 0, 0, 0]) + bytes(32)
        with contextlib.suppress(OSError), client:
            client.sendall(challenge)
            while data := client.recv(4096):
                self.said[0].extend(data)

    @staticmethod
    def _pass(come: socket.socket, go: socket.socket, note: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := come.recv(1 << 16):
                note.extend(data)
                go.sendall(data)
        with contextlib.suppress(OSError):
            go.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            connection.close()


@contextlib.contextmanager
def relay(node: support.Node, strips: bool = False, joins: tuple[pathlib.Path, pathlib.Path] | None = None,
          ) -> Iterator[Relay]:
    between = Relay(node, strips, joins)
    try:
        yield between
    finally:
        between.close()


# ---- who comes in


def test_certificates_on_both_sides(certificates: pathlib.Path) -> None:
    with start_node(*SMALL, *has(certificates, "node"), knows(certificates)) as node:
        mine = (*has(certificates, "client"), knows(certificates))
        assert says(node.tcp, *mine, "put", "k", stdin=b"value") == (0, "")
        assert says(node.tcp, *mine, "get", "k") == (0, "value")
        in_url = f"{node.tcp}?tls-ca={certificates}/ca.pem&tls_certificate={certificates}/client.pem" \
                 f"&tls_key={certificates}/client.key"
        assert says(in_url, "get", "k") == (0, "value")
        assert says(node.tcp, "get", "k", PENSTOCK_TLS_CA=f"{certificates}/ca.pem",
                    PENSTOCK_TLS_CERTIFICATE=f"{certificates}/client.pem",
                    PENSTOCK_TLS_KEY=f"{certificates}/client.key") == (0, "value")
        assert counters(node, *mine) == {}


def test_the_secret_alone(secret: pathlib.Path) -> None:
    with start_node(*SMALL, "--tls", "--tls-required", f"--secret-file={secret}") as node:
        assert says(node.tcp, f"--secret-file={secret}", "--tls", "put", "k", stdin=b"value") == (0, "")
        assert says(f"{node.tcp}?tls=1", f"--secret-file={secret}", "get", "k") == (0, "value")
        assert says(node.tcp, "get", "k", PENSTOCK_TLS="1", PENSTOCK_SECRET_FILE=str(secret)) == (0, "value")


def test_a_certificate_of_the_node_and_the_secret(certificates: pathlib.Path, secret: pathlib.Path) -> None:
    mine = (f"--secret-file={secret}", knows(certificates))
    with start_node(*SMALL, *has(certificates, "node"), f"--secret-file={secret}") as node:
        assert says(node.tcp, *mine, "put", "k", stdin=b"value") == (0, "")
        assert says(node.tcp, f"--secret-file={secret}", "get", "k") == (0, "value")  # plain, from this host
        assert says(node.tcp, knows(certificates), "get", "k")[0] == NOT_ALLOWED
        assert counters(node, *mine) == {"refused_secret": 1}
    with start_node(*SMALL, *has(certificates, "node")) as node:  # nobody is asked to prove anything: as without TLS
        assert says(node.tcp, "ping")[0] == 0
        assert says(node.tcp, knows(certificates), "ping")[0] == 0
    with start_node(*SMALL, *has(certificates, "node"), knows(certificates)) as node:  # plain would be a way around
        assert says(node.tcp, "ping")[0] == NOT_ALLOWED
    with start_node(*SMALL, *has(certificates, "node"), knows(certificates), "--tls-optional",
                    f"--secret-file={secret}") as node:
        assert says(node.tcp, *mine, "put", "k", stdin=b"value") == (0, "")


def test_unix_sockets_have_none(certificates: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with start_node(*SMALL, f"--unix={tmp_path}/socket", *has(certificates, "node"), knows(certificates), listeners=2) as node:
        assert node.pid
        for more in ((), (knows(certificates),)):
            assert says(f"node+unix://{tmp_path}/socket", *more, "ping")[0] == 0


def test_without_tls_all_is_as_before(certificates: pathlib.Path, secret: pathlib.Path) -> None:
    with start_node(*SMALL, f"--secret-file={secret}") as node:
        assert says(node.tcp, f"--secret-file={secret}", "ping")[0] == 0
        code, said = says(node.tcp, f"--secret-file={secret}", knows(certificates), "ping")
        assert code == UNREACHABLE and "the node speaks no TLS" in said
        assert counters(node, f"--secret-file={secret}") == {"refused_tls": 1}
        assert "it speaks TLS, which the node has not been given" in node.log()


# ---- who does not

EXPIRED, FOREIGN = "its certificate has expired", "its certificate has an unknown issuer"


@pytest.mark.parametrize("node_has, client_has, client_says, figure, node_says", [
    ("node", "expired", "the node refuses this client: an expired certificate", "refused_expired", EXPIRED),
    ("node", "future", "the node refuses this client: a wrong certificate", "refused_expired",
     "its certificate is not yet valid"),
    ("node", "foreign", "the node refuses this client: a certificate with an unknown issuer", "refused_certificate", FOREIGN),
    ("node", "mail", "the node refuses this client: a certificate for another purpose", "refused_certificate",
     "its certificate is for another purpose"),
    ("node", None, "the node refuses this client: no certificate", "refused_certificate", "no certificate"),
    ("expired", "client", "the node's certificate has expired", "refused_by_client",
     "it refuses the node: an expired certificate"),
    ("foreign", "client", "the node's certificate has an unknown issuer", "refused_by_client",
     "it refuses the node: a certificate with an unknown issuer"),
    ("elsewhere", "client", "the node's certificate is of another address", "refused_by_client",
     "it refuses the node: a wrong certificate"),
])
def test_wrong_certificates(certificates: pathlib.Path, secret: pathlib.Path, tmp_path: pathlib.Path, node_has: str,
                            client_has: str | None, client_says: str, figure: str, node_says: str) -> None:
    with start_node(*SMALL, f"--unix={tmp_path}/socket", f"--secret-file={secret}", *has(certificates, node_has),
                    knows(certificates), listeners=2) as node:
        mine = (*(has(certificates, client_has) if client_has else ()), knows(certificates))
        code, said = says(node.tcp, f"--secret-file={secret}", *mine, "ping")
        assert code == NOT_ALLOWED
        assert client_says in said
        assert counters(node, f"--secret-file={secret}") == {figure: 1}
        node.wait_for(f"refused 127.0.0.1:")
        assert node_says in node.log()


def test_wrong_host_name(certificates: pathlib.Path) -> None:
    with start_node(*SMALL, *has(certificates, "elsewhere"), knows(certificates)) as node:
        mine = (*has(certificates, "client"), knows(certificates))
        code, said = says(node.tcp.replace("127.0.0.1", "localhost"), *mine, "ping")
        assert code == NOT_ALLOWED and "the node's certificate is of another host name" in said
        assert counters(node, *mine, "--tls-name=elsewhere.test") == {"refused_by_client": 1}


def test_wrong_secrets(tmp_path: pathlib.Path, secret: pathlib.Path) -> None:
    other = secret_file(tmp_path / "other", "another secret\n")
    with start_node(*SMALL, "--tls", "--tls-required", f"--secret-file={secret}") as node:
        code, said = says(node.tcp, "--tls", f"--secret-file={other}", "ping")
        assert code == NOT_ALLOWED and "wrong secret" in said
        code, said = says(node.tcp, f"--secret-file={secret}", "ping")
        assert code == NOT_ALLOWED and "the node wants TLS" in said
        assert counters(node, "--tls", f"--secret-file={secret}") == {"refused_secret": 1, "refused_plain": 1}


@pytest.mark.skipif(support.network_address() is None, reason="this machine has no address beside loopback")
def test_plain_from_elsewhere(certificates: pathlib.Path, secret: pathlib.Path) -> None:
    """A client at the host's other address counts as one from another host."""
    there = support.network_address()
    mine = (f"--secret-file={secret}", knows(certificates))
    theirs = (f"--listen={there}:0", "--fabric=trusted", f"--secret-file={secret}", *has(certificates, "node"))
    with start_node(*SMALL, *theirs, listeners=2) as node:
        url = f"node://{there}:{node.ports()[1]}?fabric=trusted"
        code, said = says(url, f"--secret-file={secret}", "ping")
        assert code == NOT_ALLOWED and "the node wants TLS" in said
        assert says(url, *mine, "--tls-name=node.test", "ping")[0] == 0
        assert counters(node, *mine) == {"refused_plain": 1}
    with start_node(*SMALL, *theirs, "--insecure", listeners=2) as node:
        assert says(f"node://{there}:{node.ports()[1]}?fabric=trusted", f"--secret-file={secret}", "ping")[0] == 0


@pytest.mark.skipif(support.network_address() is None, reason="this machine has no address beside loopback")
@pytest.mark.skipif("stream" not in TRANSPORTS, reason="UCX carries sessions, and nothing protects it")
def test_a_network_that_nobody_trusts(certificates: pathlib.Path, secret: pathlib.Path) -> None:
    """TLS and a proof do in place of a trusted fabric; TLS alone does not, nor a plain client, nor UCX."""
    there = f"{support.network_address()}"
    with start_node(*SMALL[:-1], f"--listen={there}:0", "--tls", f"--secret-file={secret}") as node:
        url, mine = f"node://{there}:{node.ports()[0]}", (f"--secret-file={secret}", "--tls")
        assert says(url, *mine, "put", "k", stdin=b"v" * 100000) == (0, "")
        assert says(url, *mine, "get", "k") == (0, "v" * 100000)
        for wrong in (mine[:1], (*mine, "--transport=ucx")):
            code, said = says(url, *wrong, "ping")
            assert code == NOT_ALLOWED and "tls=1 or ?fabric=trusted" in said
        code, said = says(f"{url}?fabric=trusted", *mine[:1], "ping")
        assert code == NOT_ALLOWED and "the node wants TLS" in said
    for more in (has(certificates, "node"), ("--tls", f"--secret-file={secret}", "--insecure"),
                 ("--tls", f"--secret-file={secret}", "--transport=ucx")):
        assert "and tls or fabric=trusted" in fails_to_start(*SMALL[:-1], f"--listen={there}:0", *more)[1]


# ---- who stands between


@pytest.mark.parametrize("way", ["secret", "certificates"])
def test_what_was_said_counts_once(certificates: pathlib.Path, secret: pathlib.Path, way: str) -> None:
    """The bytes of a client that came in, said once more."""
    node_has = ("--tls", "--tls-required", f"--secret-file={secret}") if way == "secret" else \
        (*has(certificates, "node"), knows(certificates))
    mine = ("--tls", f"--secret-file={secret}") if way == "secret" else (*has(certificates, "client"), knows(certificates))
    with start_node(*SMALL, *node_has) as node:
        with relay(node) as between:
            assert says(f"node://{between.address}", *mine, "ping")[0] == 0
        with socket.create_connection(("127.0.0.1", node.ports()[0])) as again:
            again.settimeout(support.WAIT_S)
            again.sendall(between.said[0])
            with contextlib.suppress(ConnectionResetError):
                while again.recv(4096):
                    pass
        node.wait_for("a TLS record that was replayed or changed")
        assert counters(node, *mine) == {"refused_replayed": 1}


@pytest.mark.parametrize("way", ["secret", "certificates"])
def test_nobody_is_talked_out_of_tls(certificates: pathlib.Path, secret: pathlib.Path, way: str) -> None:
    mine = ("--tls",) if way == "secret" else (knows(certificates),)
    with start_node(*SMALL, f"--secret-file={secret}") as node, relay(node, strips=True) as between:
        code, said = says(f"node://{between.address}", f"--secret-file={secret}", *mine, "ping")
        assert code == UNREACHABLE and "no TLS" in said
        assert between.said[0][0] == TLS_FIRST_BYTE
        assert b"PSTB" not in between.said[0]


@pytest.mark.skipif("stream" not in TRANSPORTS, reason="this build has no stream")
def test_no_shard_hears_somebody_in_between(certificates: pathlib.Path, secret: pathlib.Path) -> None:
    """Who has a certificate of the node's name passes the bootstrap on, and joins the connections to the shards."""
    stolen = certificates / "node.pem", certificates / "node.key"
    mine = (f"--secret-file={secret}", knows(certificates), "--transport=stream")
    with start_node(*SMALL, f"--secret-file={secret}", *has(certificates, "node"), "--transport=stream") as node:
        with relay(node) as between:
            assert says(f"node://{between.address}", *mine, "put", "k", stdin=b"a value")[0] == 0
        with relay(node, joins=stolen) as between:
            code, text = says(f"node://{between.address}", *mine, "--timeout=5000", "get", "k")
            assert between.joined >= 1 and b"a value" not in between.said[1]
            assert code != 0 and "a value" not in text
        assert "a connection of no session" in node.log()
        assert says(node.tcp, *mine, "get", "k") == (0, "a value")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("way", ["secret", "certificates"])
def test_a_capture_tells_nothing(certificates: pathlib.Path, secret: pathlib.Path, way: str, transport: str) -> None:
    key, value = "a key that nobody reads on the way", b"a value that nobody reads on the way" * 10000
    node_has = ("--tls", "--tls-required") if way == "secret" else (*has(certificates, "node"), knows(certificates))
    mine = ("--tls",) if way == "secret" else (*has(certificates, "client"), knows(certificates))
    chosen = () if transport == "ucx" else (f"--transport={transport}",)
    with start_node(*SMALL, f"--secret-file={secret}", *node_has, *chosen) as node, relay(node) as between:
        url = f"node://{between.address}"
        for arguments, stdin in ((("put", key), value), (("get", key), b""), (("ls",), b"")):
            assert says(url, f"--secret-file={secret}", *mine, *chosen, *arguments, stdin=stdin)[0] == 0
        said = bytes(between.said[0] + between.said[1])
    assert len(said) > (2 * len(value) if transport == "stream" else 2000)
    assert said[0] == TLS_FIRST_BYTE
    for word in (SECRET.encode(), key.encode(), value[:36], b"PSTB"):
        assert word not in said


# ---- pools


@pytest.mark.parametrize("way", ["secret", "certificates"])
def test_a_pool_speaks_tls(certificates: pathlib.Path, secret: pathlib.Path, tmp_path: pathlib.Path, way: str) -> None:
    """Members and master, members among each other, and clients; nobody says a word in plain."""
    options = ("--tls-required", f"--secret-file={secret}",
               *((*has(certificates, "node"), knows(certificates)) if way == "certificates" else ("--tls",)))
    mine = (f"--secret-file={secret}",
            *((*has(certificates, "client"), knows(certificates)) if way == "certificates" else ("--tls",)))
    with members.master(tmp_path, *options, "--nodes-min=2", place="=home:2") as m, members.member(m, *options, "--host=a") as a, \
            members.member(m, *options, "--host=b") as b:
        def pool_has(count: int) -> bool:
            done = penstock("--url", f"node://{m.address}", *mine, "stat", "--json")
            return done.returncode == 0 and json.loads(done.stdout)["pool"]["members"] == count
        support.wait_until("two members", lambda: pool_has(2))
        url = f"pool://{m.address}"
        for i in range(20):
            assert says(url, *mine, "put", f"k{i}", stdin=b"v" * i) == (0, "")
        assert says(url, *mine, "get", "k9") == (0, "v" * 9)
        for node in (m.node, a, b):
            assert "refused" not in node.log()
            assert counters(node, *mine) == {}


# ---- rotation


def test_certificates_are_read_again(certificates: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Who is connected goes on; who comes later meets the new certificate; a wrong file changes nothing."""
    def give(name: str) -> None:
        for ending in ("key", "pem"):
            shutil.copy(certificates / f"{name}.{ending}", tmp_path / f"new.{ending}")
            (tmp_path / f"new.{ending}").rename(tmp_path / f"own.{ending}")

    give("node")
    mine = (*has(certificates, "client"), knows(certificates))
    with start_node(*SMALL, *has(tmp_path, "own"), knows(certificates)) as node, subprocess.Popen(
            [support.BUILD / "penstock", "--url", node.tcp, *mine, "watch", "--json"], text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=support.clean_environment()) as watcher:
        try:
            assert watcher.stdout and watcher.stderr
            assert watcher.stderr.readline() == "penstock: watching\n"
            (tmp_path / "own.pem").write_text("no certificate")
            node.process.send_signal(signal.SIGHUP)
            node.wait_for("the certificates of before stay")
            assert says(node.tcp, *mine, "put", "before", stdin=b"v")[0] == 0
            give("elsewhere")
            node.process.send_signal(signal.SIGHUP)
            node.wait_for("TLS: certificates were read again")
            code, said = says(node.tcp, *mine, "ping")
            assert code == NOT_ALLOWED and "of another address" in said
            assert says(node.tcp, *mine, "--tls-name=elsewhere.test", "put", "after", stdin=b"v")[0] == 0
            assert [json.loads(watcher.stdout.readline())["key"] for _ in range(2)] == ["before", "after"]
        finally:
            watcher.kill()


# ---- settings that do not go together


@pytest.mark.parametrize("options, text", [
    (("--tls",), "TLS needs a certificate, an authority or a secret"),
    (("--tls-certificate={folder}/node.pem",), "tls_certificate and tls_key go together"),
    (("--tls-ca={folder}/ca.pem",), "a node needs tls_certificate and tls_key"),
    (("--tls-certificate={folder}/node.pem", "--tls-key={folder}/client.key"), "it does not belong to the certificate"),
    (("--tls-certificate={folder}/node.pem", "--tls-key={folder}/none.key"), "none.key: No such file"),
    (("--tls-certificate={folder}/node.pem", "--tls-key={folder}/node.key", "--tls-optional"), "need secret_file"),
    (("--tls-certificate={folder}/node.pem", "--tls-key={folder}/node.key", "--insecure"), "need secret_file"),
    (("--insecure",), "need TLS"),
    (("--tls-certificate={folder}/node.pem", "--tls-key={folder}/node.key", "--master=127.0.0.1:1"), "a node of a pool needs it"),
])
def test_settings_are_checked(certificates: pathlib.Path, options: tuple[str, ...], text: str) -> None:
    said = fails_to_start(*SMALL, *(option.format(folder=certificates) for option in options))[1]
    assert text in said


def test_clients_settings_are_checked(certificates: pathlib.Path) -> None:
    for more, text in ((("--tls",), "TLS needs a certificate, an authority or a secret"),
                       (has(certificates, "client"), "needs tls_ca"),
                       ((f"--tls-ca={certificates}/none.pem",), "No such file")):
        code, said = says("node://127.0.0.1:1", *more, "ping")
        assert code != 0 and text in said


def test_keys_are_their_users_alone(certificates: pathlib.Path, tmp_path: pathlib.Path) -> None:
    key = tmp_path / "node.key"
    key.write_bytes((certificates / "node.key").read_bytes())
    key.chmod(0o644)
    said = fails_to_start(*SMALL, f"--tls-certificate={certificates}/node.pem", f"--tls-key={key}")[1]
    assert "other users may use it (mode 0644)" in said

