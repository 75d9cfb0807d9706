# SPDX-License-Identifier: Apache-2.0
"""penstockd --s3: boto3, s3fs and TensorStore's s3 driver as PyPI has them, on a node of its own."""
from __future__ import annotations

import pathlib
import subprocess
from typing import Iterator

import pytest
from members import keys_of, master, member
from s3 import LOOPBACK, ask, client, credentials, python, serving  # noqa: F401: a fixture
from support import Node, fails_to_start, penstock, start_node
from tsgrpc import settled

USAGE, FAILURE = 2, 1


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("s3")
    with serving(folder, "--dram", "512M", "--shards", "2", "--s3-credentials", str(credentials(folder))) as started:
        yield started


@pytest.fixture(scope="module")
def anonymous(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("s3")
    with serving(folder, "--dram", "256M", "--s3-domain", "s3.localhost") as started:
        yield started


@pytest.mark.parametrize("what", ["objects", "ranges", "conditions", "race", "odd_keys", "listing", "buckets", "copies",
                                  "checksums", "presigned", "uploads", "ends", "aborts", "transfers", "deletions",
                                  "overwrites"])
def test_boto3(python: str, node: Node, what: str) -> None:  # noqa: F811
    client(python, node, what)
    settled(node)


@pytest.mark.parametrize("what", ["s3fs_files", "tensorstore"])
def test_other_clients(python: str, node: Node, what: str) -> None:  # noqa: F811
    client(python, node, what)
    settled(node)


def test_too_large(python: str, node: Node) -> None:  # noqa: F811
    client(python, node, "too_large", str(600 << 20))


@pytest.mark.parametrize("what", ["objects", "conditions", "copies"])
def test_boto3_without_credentials(python: str, anonymous: Node, what: str) -> None:  # noqa: F811
    client(python, anonymous, what)
    settled(anonymous)


def test_full_store(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    with start_node("--unix", f"{tmp_path}/socket", "--dram", "64M", "--s3", LOOPBACK) as node:
        node.url = f"node+unix://{tmp_path}/socket"
        client(python, node, "full")
        settled(node)
        node.stop()


def test_tls(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-addext",
                           "subjectAltName=IP:127.0.0.1", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "certificate.pem"],
                          capture_output=True, timeout=60)
    assert made.returncode == 0, made.stderr
    with start_node("--unix", f"{tmp_path}/socket", "--dram", "256M", "--s3", LOOPBACK, "--s3-credentials",
                    str(credentials(tmp_path)), "--tls-certificate", f"{tmp_path}/certificate.pem", "--tls-key",
                    f"{tmp_path}/key.pem") as node:
        for what in ("checksums", "objects"):
            client(python, node, what, scheme="https", certificate=f"{tmp_path}/certificate.pem")
        node.stop()


def test_pool(python: str, tmp_path: pathlib.Path) -> None:  # noqa: F811
    """Every member serves the whole pool."""
    with master(tmp_path, place=None) as m, member(m, "--s3", LOOPBACK) as one, member(m, "--s3", LOOPBACK) as two:
        for node in (one, two):
            node.wait_for("penstockd: ready")
        for what in ("conditions", "ranges", "aborts", "deletions"):
            client(python, one, what)
        for size in (10, 300000, 3 << 20):
            for i in range(4):
                client(python, one if i % 2 else two, "put_plain", f"pooled/{size}/{i}", str(size))
        for size in (10, 300000, 3 << 20):
            for i in range(4):
                client(python, two if i % 2 else one, "get_plain", f"pooled/{size}/{i}", str(size))
        assert len(keys_of(one)) > 0 and len(keys_of(two)) > 0
        one.stop()
        two.stop()


@pytest.mark.parametrize("size", [2, 300000])
def test_the_command_line_sees_the_same(python: str, node: Node, size: int) -> None:  # noqa: F811
    client(python, node, "put_plain", "shared", str(size))
    assert penstock("--url", node.url, "get", "bucket/shared").stdout == b"s3" * (size // 2)
    assert penstock("--url", node.url, "put", "bucket/shared", "-", stdin=b"other").returncode == 0
    client(python, node, "no_metadata", "shared", "other")


def test_buckets_as_hosts(anonymous: Node) -> None:
    assert ask(anonymous, "PUT", "/a/k", b"by host", {"host": "hosted.s3.localhost:9000"}).status == 200
    assert ask(anonymous, "GET", "/hosted/a/k").body == b"by host"
    assert b"<Key>a/k</Key>" in ask(anonymous, "GET", "/?list-type=2", headers={"host": "hosted.s3.localhost"}).body
    assert ask(anonymous, "GET", "/hosted/a/k", headers={"host": "s3.localhost"}).body == b"by host"


def test_bytes_of_any_key_are_listed(anonymous: Node) -> None:
    """Keys that no client of S3 can have written: not UTF-8, control characters, a NUL."""
    for key in (b"raw/\xff\xfe", b"raw/\x01"):
        assert penstock("--url", anonymous.url, "put", key, "-", stdin=b"x").returncode == 0
    listed = ask(anonymous, "GET", "/raw?list-type=2&encoding-type=url").body
    assert b"<Key>%01</Key>" in listed and b"<Key>%FF%FE</Key>" in listed, listed
    listed = ask(anonymous, "GET", "/raw?list-type=2").body
    listed.decode()
    assert ask(anonymous, "GET", "/raw/%FF%FE").body == b"x"


def test_refused_starts(tmp_path: pathlib.Path) -> None:
    open_file = tmp_path / "open"
    open_file.write_text("ID secret\n")
    open_file.chmod(0o644)
    bad = credentials(tmp_path)
    for options, said, status in (
            (("--s3", "0.0.0.0:0"), "off loopback it needs s3_credentials", FAILURE),
            (("--s3", "nonsense"), "server address must be host:port", USAGE),
            (("--s3", LOOPBACK, "--s3-credentials", str(open_file)), "mode 0600", FAILURE),
            (("--s3", LOOPBACK, "--s3-credentials", f"{tmp_path}/none"), "No such file", FAILURE),
            (("--s3", LOOPBACK, "--tls-key", str(bad)), "tls_certificate and tls_key go together", USAGE),
            (("--s3", LOOPBACK, "--tls-key", str(bad), "--tls-certificate", str(bad)), "s3 127.0.0.1:0: ", USAGE)):
        code, log = fails_to_start("--unix", f"{tmp_path}/socket", *options)
        assert code == status and said in log
    bad.write_text("ID\n")
    code, log = fails_to_start("--unix", f"{tmp_path}/socket", "--s3", LOOPBACK, "--s3-credentials", str(bad))
    assert code == USAGE and "line 1 is no access key and secret" in log
