# SPDX-License-Identifier: Apache-2.0
"""penstockd --s3 and clients that mean it harm: wrong signatures, old times, foreign keys, XML bombs, slow and cut bodies."""
from __future__ import annotations

import base64
import hashlib
import http.client
import pathlib
import re
import socket
import threading
import zlib
from typing import Iterator

import pytest
import support
from s3 import (EMPTY, ID, LOOPBACK, SECRET, UNSIGNED, address_of, ask, ask_signed, chunk_signature, credentials, now,
                presigned, serving, signed, trailer_signature)
from support import Node, penstock, start_node
from tsgrpc import figures, settled

MIB = 1 << 20


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("s3")
    with serving(folder, "--dram", "256M", "--s3-credentials", str(credentials(folder)), "--s3-connections", "8") as started:
        assert ask_signed(started, "PUT", "/bucket/there", b"there").status == 200
        yield started
        assert ask_signed(started, "GET", "/bucket/there").body == b"there"


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """For clients that are slow on purpose."""
    folder = tmp_path_factory.mktemp("s3")
    with serving(folder, "--dram", "256M", "--s3-stall-ms", "500") as started:
        yield started


@pytest.fixture(scope="module")
def anonymous(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("s3")
    with serving(folder, "--dram", "256M") as started:
        yield started


def is_refused(answer: object, status: int, code: str) -> None:
    assert (answer.status, answer.code) == (status, code), (answer.status, answer.body)


# ---- who it is


def test_signatures(node: Node) -> None:
    good = signed("GET", "/bucket/there", address_of(node))
    assert ask(node, "GET", "/bucket/there", headers=good).body == b"there"
    for changed, code in (({"Authorization": good["Authorization"][:-1] + ("1" if good["Authorization"][-1] == "0" else "0")},
                           "SignatureDoesNotMatch"),
                          ({"x-amz-content-sha256": UNSIGNED}, "SignatureDoesNotMatch"),
                          ({"host": "another"}, "SignatureDoesNotMatch"),
                          ({"x-amz-acl": "public-read"}, "AccessDenied"),
                          ({"Authorization": good["Authorization"].replace(ID, "NOBODY")}, "InvalidAccessKeyId")):
        is_refused(ask(node, "GET", "/bucket/there", headers=good | changed), 403, code)
    is_refused(ask(node, "GET", "/bucket/other", headers=good), 403, "SignatureDoesNotMatch")
    is_refused(ask(node, "GET", "/bucket/there?x-id=1", headers=good), 403, "SignatureDoesNotMatch")
    is_refused(ask(node, "DELETE", "/bucket/there", headers=good), 403, "SignatureDoesNotMatch")
    is_refused(ask(node, "GET", "/bucket/there"), 403, "AccessDenied")
    is_refused(ask_signed(node, "GET", "/bucket/there", key=(ID, SECRET + "x")), 403, "SignatureDoesNotMatch")
    is_refused(ask_signed(node, "GET", "/bucket/there", key=("ANOTHER", SECRET)), 403, "SignatureDoesNotMatch")
    assert ask_signed(node, "GET", "/bucket/there", key=("ANOTHER", "other")).status == 200
    for text in ("", "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Credential=,SignedHeaders=,Signature=", "Basic YTpi", "AWS a:b",
                 "AWS4-HMAC-SHA256 " + "," * 9000):
        is_refused(ask(node, "GET", "/bucket/there", headers=good | {"Authorization": text}), 400, "AuthorizationHeaderMalformed")


@pytest.mark.parametrize(["method", "more", "status"], [
    ("GET", {"x-amz-checksum-mode": "ENABLED", "x-id": "GetObject"}, 200),
    ("PUT", {"x-amz-sdk-checksum-algorithm": "CRC32", "x-id": "PutObject"}, 200),
    ("PUT", {"x-amz-checksum-crc32": "AAAAAA==", "x-amz-sdk-checksum-algorithm": "CRC32"}, 501)])
def test_urls_that_the_sdk_of_javascript_presigns(node: Node, method: str, more: dict[str, str], status: int) -> None:
    assert ask_signed(node, "PUT", "/bucket/presigned", b"body").status == 200
    path = presigned(method, "/bucket/presigned", address_of(node), more)
    answer = ask(node, method, path, b"" if method == "GET" else b"body")
    assert answer.status == status, answer.body
    is_refused(ask(node, method, path.replace("=ENABLED", "=DISABLED").replace("=CRC32", "=CRC64")), 403, "SignatureDoesNotMatch")
    assert ask_signed(node, "GET", "/bucket/presigned").body == b"body"


def test_replayed_and_future_times(node: Node) -> None:
    for seconds in (-901, 901, -86400 * 365):
        is_refused(ask_signed(node, "GET", "/bucket/there", time=now(seconds)), 403, "RequestTimeTooSkewed")
    for seconds in (-600, 600):
        assert ask_signed(node, "GET", "/bucket/there", time=now(seconds)).status == 200
    for text in ("20261126T000000", "yesterday", "99999999T999999Z"):
        is_refused(ask_signed(node, "GET", "/bucket/there", time=text.ljust(9)), 400, "AuthorizationHeaderMalformed")


def test_a_changed_body(node: Node) -> None:
    is_refused(ask_signed(node, "PUT", "/bucket/changed", b"one", payload=hashlib.sha256(b"two").hexdigest()), 400,
               "XAmzContentSHA256Mismatch")
    is_refused(ask_signed(node, "PUT", "/bucket/changed", b"1" * MIB, payload=hashlib.sha256(b"two").hexdigest()), 400,
               "XAmzContentSHA256Mismatch")
    is_refused(ask_signed(node, "PUT", "/bucket/changed", b"", payload=hashlib.sha256(b"two").hexdigest()), 400,
               "XAmzContentSHA256Mismatch")
    is_refused(ask_signed(node, "PUT", "/bucket/changed", b"x", payload="STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"), 501,
               "NotImplemented")
    is_refused(ask_signed(node, "PUT", "/bucket/changed", b"x", headers={"x-amz-checksum-crc32": "AAAA"}), 400, "BadDigest")
    is_refused(ask_signed(node, "PUT", "/bucket/changed", b"x", headers={"content-md5": "x" * 99}), 400, "InvalidDigest")
    is_refused(ask_signed(node, "GET", "/bucket/changed"), 404, "NoSuchKey")


# ---- chunks


def streamed(node: Node, pieces: list[bytes], spoil: int = -1, cut: bool = False, trailer: bytes = b"") -> object:
    """A PUT of signed chunks; the signature of chunk `spoil` is wrong."""
    kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
    headers = {"x-amz-decoded-content-length": str(sum(map(len, pieces))), "content-encoding": "aws-chunked"}
    every = signed("PUT", "/bucket/streamed", address_of(node), headers, payload=kind)
    before, body = every["Authorization"][-64:], b""
    for i, piece in enumerate([*pieces, b""]):
        before = chunk_signature(before, piece, every["x-amz-date"])
        shown = before if i != spoil else before[::-1]
        body += f"{len(piece):x};chunk-signature={shown}\r\n".encode() + piece + (b"\r\n" if piece else b"")
    body += trailer + b"\r\n"
    return ask(node, "PUT", "/bucket/streamed", body[:-3] if cut else body, every)


@pytest.mark.parametrize("pieces", [[b"x" * 100], [b"y" * 65536] * 9 + [b"z"], [b"p" * MIB, b"q"]])
def test_signed_chunks(node: Node, pieces: list[bytes]) -> None:
    assert ask_signed(node, "DELETE", "/bucket/streamed").status == 204
    for spoil in range(len(pieces) + 1):
        is_refused(streamed(node, pieces, spoil), 403, "SignatureDoesNotMatch")
    assert streamed(node, pieces, cut=True).status == 400
    is_refused(ask_signed(node, "GET", "/bucket/streamed"), 404, "NoSuchKey")
    assert streamed(node, pieces).status == 200
    assert ask_signed(node, "GET", "/bucket/streamed").body == b"".join(pieces)


@pytest.mark.parametrize(["body", "status", "code"], [
    (b"3\r\nabc\r\n0\r\nx-amz-checksum-crc32:NSRBwg==\r\n\r\n", 200, ""),
    (b"3\r\nabc\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", 400, "BadDigest"),
    (b"3\r\nabc\r\n0\r\n\r\n", 400, "BadDigest"),
    (b"2\r\nab\r\n0\r\nx-amz-checksum-crc32:NSRBwg==\r\n\r\n", 400, "IncompleteBody"),
    (b"4\r\nabcd\r\n0\r\nx-amz-checksum-crc32:NSRBwg==\r\n\r\n", 400, "IncompleteBody"),
    (b"3\r\nabcd\r\n0\r\n\r\n", 400, "InvalidRequest"),
    (b"ffffffffffffffff\r\nabc", 400, "InvalidRequest"),
    (b"-1\r\nabc", 400, "InvalidRequest"),
    (b"3\r\nabc\r\n0\r\n" + b"a:b\r\n" * 99 + b"\r\n", 400, "InvalidRequest"),
    (b"3\r\nabc\r\n0\r\n" + b"a" * 5000 + b"\r\n\r\n", 400, "InvalidRequest"),
    (b"3\r\nabc\r\n0\r\nx-amz-checksum-crc32:NSRBwg==\r\n\r\nmore", 400, "InvalidRequest"),
    (b"3\r\nabc\r\n0\r\nx-amz-checksum-crc32\r\n\r\n", 400, "InvalidRequest"),
    (b"", 400, "IncompleteBody"),
])
def test_trailers(anonymous: Node, body: bytes, status: int, code: str) -> None:
    headers = {"x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "x-amz-trailer": "x-amz-checksum-crc32",
               "x-amz-decoded-content-length": "3"}
    answer = ask(anonymous, "PUT", "/bucket/trailed", body, headers)
    assert (answer.status, answer.code) == (status, code), answer.body
    assert ask(anonymous, "DELETE", "/bucket/trailed").status == 204


@pytest.mark.parametrize(["lines", "status", "code"], [
    (b"x-amz-checksum-crc32:NSRBwg==\n\r\n", 200, ""), (b"x-amz-checksum-crc32:AAAAAA==\n\r\n", 400, "BadDigest"),
    (b"x-amz-checksum-crc32:NSRBwg==\nx:y\r\n", 400, "InvalidRequest")])
def test_trailers_of_minio(anonymous: Node, lines: bytes, status: int, code: str) -> None:
    """minio-go ends a line with the LF that it is signed with, and with HTTP's end behind it."""
    headers = {"x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "x-amz-trailer": "x-amz-checksum-crc32",
               "x-amz-decoded-content-length": "3"}
    answer = ask(anonymous, "PUT", "/bucket/trailed", b"3\r\nabc\r\n0\r\n" + lines + b"\r\n", headers)
    assert (answer.status, answer.code) == (status, code), answer.body


@pytest.mark.parametrize("end", ["\r\n", "\n\r\n"])
def test_signed_trailers(node: Node, end: str) -> None:
    data, name = b"hello" * 100, "x-amz-checksum-crc32"
    every = signed("PUT", "/bucket/trailed", address_of(node), {"x-amz-decoded-content-length": "500", "x-amz-trailer": name},
                   payload="STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER")
    before, body = every["Authorization"][-64:], b""
    for piece in (data, b""):
        before = chunk_signature(before, piece, every["x-amz-date"])
        body += f"{len(piece):x};chunk-signature={before}\r\n".encode() + piece + (b"\r\n" if piece else b"")
    line = f"{name}:{base64.b64encode(zlib.crc32(data).to_bytes(4, 'big')).decode()}"
    for spoiled, status in ((True, 403), (False, 200)):
        signature = trailer_signature(before, line + ("x" if spoiled else ""), every["x-amz-date"])
        trailer = f"{line}{end}x-amz-trailer-signature:{signature}\r\n\r\n"
        assert ask(node, "PUT", "/bucket/trailed", body + trailer.encode(), every).status == status


@pytest.mark.parametrize(["name", "digest"], [("crc32", "y/Q5Jg=="), ("crc32c", "4waSgw=="), ("crc64nvme", "rosUhgp5mIg="),
                                              ("sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="),
                                              ("sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=")])
def test_checksums_behind_the_body(anonymous: Node, name: str, digest: str) -> None:
    headers = {"x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "x-amz-trailer": f"x-amz-checksum-{name}",
               "x-amz-decoded-content-length": "9"}
    for text, status in ((digest, 200), (digest[1:] + digest[:1], 400)):
        body = f"4\r\n1234\r\n5\r\n56789\r\n0\r\nx-amz-checksum-{name}: {text}\r\n\r\n"
        answer = ask(anonymous, "PUT", "/bucket/trailed", body.encode(), headers)
        assert (answer.status, answer.code) == (status, "BadDigest" if status == 400 else ""), answer.body
    assert answer.status == 400 and ask(anonymous, "DELETE", "/bucket/trailed").status == 204


def test_unknown_trailer(anonymous: Node) -> None:
    headers = {"x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "x-amz-trailer": "x-amz-checksum-crc128",
               "x-amz-decoded-content-length": "3"}
    is_refused(ask(anonymous, "PUT", "/bucket/trailed", b"3\r\nabc\r\n0\r\n\r\n", headers), 501, "NotImplemented")


def test_a_length_that_nobody_knows(anonymous: Node) -> None:
    """HTTP's own chunks."""
    for pieces in ([], [b"abc"], [b"x" * 100000] * 30):
        connection = http.client.HTTPConnection(address_of(anonymous), timeout=support.WAIT_S)
        connection.request("PUT", "/bucket/chunked", iter(pieces), encode_chunked=True)
        assert connection.getresponse().read() == b""
        connection.request("GET", "/bucket/chunked")
        assert connection.getresponse().read() == b"".join(pieces)
        connection.close()


# ---- keys and documents


def test_nothing_outside_of_buckets(node: Node) -> None:
    assert penstock("--url", node.url, "put", ".s3/secret", "-", stdin=b"x").returncode == 0
    assert penstock("--url", node.url, "put", "plain", "-", stdin=b"x").returncode == 0
    for path in ("/.s3/secret", "/%2es3/secret", "/..", "/../plain", "/%2e%2e/plain", "//plain"):
        is_refused(ask_signed(node, "GET", path.replace("%2e", "."), headers={}), 400, "InvalidBucketName")
    is_refused(ask_signed(node, "GET", "/bucket/../plain"), 404, "NoSuchKey")
    is_refused(ask_signed(node, "GET", "/bucket/../.s3/secret"), 404, "NoSuchKey")
    is_refused(ask_signed(node, "GET", "/plain"), 404, "NoSuchBucket")
    assert b"<Name>.s3</Name>" not in ask_signed(node, "GET", "/").body
    assert ask_signed(node, "DELETE", "/bucket/../.s3/secret").status == 204
    assert penstock("--url", node.url, "get", ".s3/secret").stdout == b"x"
    for path in ("/a%00b/c", "/bucket/a%00", "/bucket/%zz", "/bucket/%4"):
        assert ask(node, "GET", path, headers={"host": "x"}).code in ("InvalidURI", "InvalidBucketName")


BOMB = b'<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa">' + b"".join(
    b'<!ENTITY %c "%s">' % (98 + i, b"&%c;" % (97 + i) * 10) for i in range(9)) + b"]>"


@pytest.mark.parametrize("document", [
    BOMB + b"<Delete><Object><Key>&j;</Key></Object></Delete>",
    b'<!DOCTYPE d [<!ENTITY f SYSTEM "file:///etc/passwd">]><Delete><Object><Key>&f;</Key></Object></Delete>',
    b"<Delete><Object><Key>there</Key></Object>",
    b"<Delete>" + b"<a>" * 5000 + b"</a>" * 5000 + b"</Delete>",
    b"<Delete>" + b"<Object><Key>a</Key></Object>" * 1001 + b"</Delete>",
    b"<Delete><Object><Key>" + b"a" * 100000 + b"</Key></Object></Delete>",
    b"<Delete><Object><Key></Key></Object></Delete>",
    b"\xff\xfe" * 100,
    b"",
])
def test_documents(node: Node, document: bytes) -> None:
    is_refused(ask_signed(node, "POST", "/bucket?delete", document, headers={"content-length": str(len(document))}
                          if not document else {}), 400, "MalformedXML")


def test_large_documents(node: Node) -> None:
    """Refused before they come."""
    every = signed("POST", "/bucket?delete", address_of(node), payload=UNSIGNED) | {"Content-Length": str(5 * MIB)}
    is_refused(ask(node, "POST", "/bucket?delete", headers=every), 400, "MalformedXML")


def test_uploads_that_are_not_completed(node: Node) -> None:
    """Cut and wrong documents complete nothing; giving up takes the parts away."""
    begun = ask_signed(node, "POST", "/bucket/up?uploads").body
    upload = re.search(rb"<UploadId>(\w+)</UploadId>", begun)[1].decode()
    path = f"/bucket/up?uploadId={upload}"
    etag = ask_signed(node, "PUT", f"/bucket/up?partNumber=1&uploadId={upload}", b"part").headers["ETag"]
    whole = f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    for document in (whole[:-1], whole[:40], whole.replace("1", "one", 1), whole + "x", BOMB.decode() + whole):
        is_refused(ask_signed(node, "POST", path, document.encode()), 400, "MalformedXML")
    is_refused(ask_signed(node, "POST", path, whole.replace(">1<", ">2<").encode()), 400, "InvalidPart")
    is_refused(ask_signed(node, "POST", path, whole.replace(">1<", ">0<").encode()), 400, "InvalidPart")
    for number in ("0", "10001", "-1", "x", ""):
        is_refused(ask_signed(node, "PUT", f"/bucket/up?partNumber={number}&uploadId={upload}", b"x"), 400, "InvalidArgument")
    is_refused(ask_signed(node, "GET", "/bucket/up"), 404, "NoSuchKey")
    assert ask_signed(node, "DELETE", path).status == 204
    is_refused(ask_signed(node, "POST", path, whole.encode()), 404, "NoSuchUpload")
    assert penstock("--url", node.url, "ls", f".s3/parts/{upload}").stdout == b""


def test_requests_for_what_is_not_there(node: Node) -> None:
    """None of them is taken for a simpler one."""
    for method, path in (("PUT", "/bucket/there?tagging"), ("PUT", "/bucket/there?acl"), ("GET", "/bucket/there?versionId=1"),
                         ("DELETE", "/bucket?policy"), ("PUT", "/bucket?versioning"), ("PUT", "/bucket/there?partNumber=1"),
                         ("GET", "/bucket?object-lock")):
        is_refused(ask_signed(node, method, path), 501, "NotImplemented")
    is_refused(ask_signed(node, "POST", "/bucket/there"), 405, "MethodNotAllowed")
    is_refused(ask_signed(node, "OPTIONS", "/bucket/there"), 405, "MethodNotAllowed")
    for name, value in (("x-amz-server-side-encryption", "AES256"), ("x-amz-acl", "public-read"), ("x-amz-storage-class", "GLACIER"),
                        ("x-amz-grant-read", "id=1")):
        is_refused(ask_signed(node, "PUT", "/bucket/there", headers={name: value}), 501, "NotImplemented")
    assert ask_signed(node, "GET", "/bucket/there").body == b"there"


def test_fields_that_would_end_a_line(node: Node) -> None:
    is_refused(ask_signed(node, "GET", "/bucket/there?response-content-type=a%0D%0Ab%3A%20c"), 400, "InvalidArgument")
    for name in ("response-content-type%20response-cache-control", "%20response-content-type", "response-expires%20", "%20"):
        is_refused(ask_signed(node, "GET", f"/bucket/there?{name}=x"), 501, "NotImplemented")


# ---- browsers


@pytest.mark.parametrize("headers", [{"Origin": "http://a.example"}, {"Origin": "null"}, {"host": "a.example"},
                                     {"host": "127.0.0.1.a.example:80"}, {"host": "a.localhost.example"}])
def test_pages_of_other_sites(anonymous: Node, headers: dict[str, str]) -> None:
    for method, path in (("GET", "/"), ("PUT", "/bucket/k"), ("POST", "/bucket?delete")):
        is_refused(ask(anonymous, method, path, headers=headers), 403, "AccessDenied")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:1", "node7", "b.localhost"])
def test_own_names(anonymous: Node, host: str) -> None:
    assert ask(anonymous, "GET", "/", headers={"host": host}).status == 200


# ---- heads, and slow clients


class Raw:
    """A connection that sends what it is told."""

    def __init__(self, node: Node, data: bytes = b"") -> None:
        host, port = address_of(node).rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=support.WAIT_S)
        self.socket.sendall(data)

    def rest(self) -> bytes:
        """All that comes until the node ends the connection."""
        data = b""
        with self.socket:
            try:
                while more := self.socket.recv(65536):
                    data += more
            except ConnectionResetError:
                pass
        return data


@pytest.mark.parametrize("head", [
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"GET / HTTP/3\r\nHost: a\r\n\r\n",
    b"GET /\r\nHost: a\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
])
def test_broken_heads(node: Node, head: bytes) -> None:
    answer = Raw(node, head).rest()
    assert answer.startswith(b"HTTP/1.1 400 ") and b"<Code>Invalid" in answer, answer


@pytest.mark.parametrize("head", [b"GET / HTTP/1.1\r\nHost: a\r\nx: " + b"y" * 40000 + b"\r\n\r\n",
                                  b"GET / HTTP/1.1\r\nHost: a\r\n" + b"x: y\r\n" * 200 + b"\r\n",
                                  b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_huge_heads(node: Node, head: bytes) -> None:
    answer = Raw(node, head).rest()
    assert b"<Code>RequestHeaderSectionTooLarge</Code>" in answer, answer


def test_slow_bodies(impatient: Node) -> None:
    """A body that does not come is answered, and what it had reserved is free again."""
    for size in (1000, 64 * MIB):
        head = f"PUT /bucket/slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\nabc"
        answer = Raw(impatient, head.encode()).rest()
        assert b"<Code>RequestTimeout</Code>" in answer, answer
    settled(impatient)
    assert penstock("--url", impatient.url, "ls").stdout == b""


def test_slow_heads(impatient: Node) -> None:
    """They are not answered, but they end."""
    for head in (b"", b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\n"):
        assert Raw(impatient, head).rest() == b""


def test_cut_bodies(node: Node) -> None:
    every = signed("PUT", "/bucket/cut", address_of(node), payload=UNSIGNED)
    head = "".join(f"{name}: {value}\r\n" for name, value in every.items())
    for size in (1000, 64 * MIB):
        raw = Raw(node, f"PUT /bucket/cut HTTP/1.1\r\n{head}Content-Length: {size}\r\n\r\n".encode() + b"x" * (size // 2))
        raw.socket.shutdown(socket.SHUT_WR)
        assert b"<Code>IncompleteBody</Code>" in raw.rest()
    settled(node)
    is_refused(ask_signed(node, "GET", "/bucket/cut"), 404, "NoSuchKey")


def test_readers_that_take_nothing(impatient: Node) -> None:
    """They lose their connection, and the value its pin."""
    assert penstock("--url", impatient.url, "put", "bucket/large", "-", stdin=b"x" * (32 * MIB)).returncode == 0
    raws = [Raw(impatient, b"GET /bucket/large HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(4)]
    support.wait_until("values are sent", lambda: figures(impatient)["pinned_bytes"] > 0)
    settled(impatient)
    for raw in raws:
        assert len(raw.rest()) < 32 * MIB
    assert penstock("--url", impatient.url, "rm", "bucket/large").returncode == 0


def test_idle_connections_make_room(node: Node) -> None:
    """More than there may be: those that ask for nothing give way to those that do."""
    idle = [Raw(node) for _ in range(20)]
    slow = [Raw(node, b"GET / HT") for _ in range(4)]
    for _ in range(5):
        assert ask_signed(node, "GET", "/bucket/there").body == b"there"
    for raw in idle + slow:
        raw.socket.close()


def test_pipelined_requests(node: Node) -> None:
    """One after the other, in their order, from one packet."""
    every = signed("GET", "/bucket/there", address_of(node))
    head = "".join(f"{name}: {value}\r\n" for name, value in every.items())
    request = f"GET /bucket/there HTTP/1.1\r\n{head}\r\n".encode()
    answer = Raw(node, request * 9 + request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")).rest()
    assert answer.count(b"HTTP/1.1 200 OK") == 10 and answer.count(b"\r\n\r\nthere") == 10, answer


def test_empty_lines_between_requests(node: Node) -> None:
    """However they come."""
    every = signed("GET", "/bucket/there", address_of(node))
    head = "".join(f"{name}: {value}\r\n" for name, value in every.items())
    request = f"GET /bucket/there HTTP/1.1\r\n{head}\r\n".encode()
    raw = Raw(node)
    raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for data in (b"\r", b"\n", b"\r\n\r", b"\n" + request, b"\r\n\r\n",
                 request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")):
        raw.socket.sendall(data)
        ask_signed(node, "GET", "/bucket/there")  # until when the node has seen it
    assert raw.rest().count(b"HTTP/1.1 200 OK") == 2


def test_killed_in_the_middle(tmp_path: pathlib.Path) -> None:
    """The node's end is the client's: nothing hangs."""
    with start_node("--unix", f"{tmp_path}/socket", "--dram", "256M", "--s3", LOOPBACK) as node:
        raw = Raw(node, b"PUT /bucket/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 67108864\r\n\r\n" + b"x" * MIB)
        ended: list[bytes] = []
        thread = threading.Thread(target=lambda: ended.append(raw.rest()))
        thread.start()
        node.stop()
        thread.join(support.WAIT_S)
        assert ended
