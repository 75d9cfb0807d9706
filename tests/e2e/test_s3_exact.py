# SPDX-License-Identifier: Apache-2.0
"""penstockd --s3 does what a request asks for, or says that it does not: conditions, ranges, parameters and uploads."""
from __future__ import annotations

import base64
import concurrent.futures
import html
import http.client
import pathlib
import re
import socket
import threading
import zlib
from collections.abc import Iterator

import pytest
import support
from s3 import LOOPBACK, Answer, address_of, ask, ask_signed, credentials, quoted, serving
from support import Node, penstock, start_node

PART = bytes(range(256)) * 4096
LONG_MAX = 2**63 - 1


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("s3")
    with serving(folder, "--dram", "512M") as started:
        yield started


def begin_upload(node: Node, path: str) -> str:
    found = re.search(rb"<UploadId>(\w+)</UploadId>", ask(node, "POST", f"{path}?uploads").body)
    assert found
    return found[1].decode()


def put_part(node: Node, path: str, upload: str, number: int, body: bytes = PART) -> Answer:
    return ask(node, "PUT", f"{path}?partNumber={number}&uploadId={upload}", body)


def complete(node: Node, path: str, upload: str, etags: list[str], headers: dict[str, str] | None = None) -> Answer:
    parts = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>" for number, etag in enumerate(etags, 1))
    return ask(node, "POST", f"{path}?uploadId={upload}",
               f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode(), headers)


def still(waits: concurrent.futures.Future[Answer]) -> None:
    """A request has no answer."""
    with pytest.raises(concurrent.futures.TimeoutError):
        waits.result(1)


def etag_of(answer: Answer) -> str:
    """That of the object that an upload became."""
    found = re.search(rb"<ETag>([^<]*)</ETag>", answer.body)
    assert found, answer.body
    return html.unescape(found[1].decode())


@pytest.mark.parametrize("last", [LONG_MAX, 2**64 - 1, 10**30])
def test_a_range_may_end_behind_every_end(node: Node, last: int) -> None:
    ask(node, "PUT", "/b/range", b"0123456789")
    answer = ask(node, "GET", "/b/range", headers={"Range": f"bytes=4-{last}"})
    assert (answer.status, answer.body) == (206, b"456789")


def test_a_range_goes_on_with_the_object_that_it_began_with(node: Node) -> None:
    etag = ask(node, "PUT", "/b/again", b"0123456789").headers["ETag"]
    wanted = {"Range": "bytes=4-", "If-Range": etag}
    assert ask(node, "GET", "/b/again", headers=wanted).body == b"456789"
    ask(node, "PUT", "/b/again", b"abcdefghij")
    answer = ask(node, "GET", "/b/again", headers=wanted)
    assert (answer.status, answer.body) == (200, b"abcdefghij")


@pytest.mark.parametrize("body", [b"0123456789", b""])
def test_a_range_that_is_behind_the_end_learns_of_it(node: Node, body: bytes) -> None:
    ask(node, "PUT", "/b/short", body)
    answer = ask(node, "GET", "/b/short", headers={"Range": "bytes=10-"})
    assert (answer.status, answer.code, answer.headers["Content-Range"]) == (416, "InvalidRange", f"bytes */{len(body)}")


def test_weak_etags_are_of_the_same_object(node: Node) -> None:
    etag = ask(node, "PUT", "/b/weak", b"weak").headers["ETag"]
    assert ask(node, "GET", "/b/weak", headers={"If-None-Match": f"W/{etag}"}).status == 304
    assert ask(node, "GET", "/b/weak", headers={"If-Match": f"W/{etag}"}).status == 412


@pytest.mark.parametrize(("size", "code"), [(8 << 10, ""), ((8 << 10) + 1, "InvalidArgument"), (20000, "InvalidArgument")])
def test_fields_of_an_answer_that_a_query_asks_for_are_bounded(node: Node, size: int, code: str) -> None:
    ask(node, "PUT", "/b/typed", b"typed")
    answer = ask(node, "GET", f"/b/typed?response-expires=x&response-content-type={'t' * (size - 1)}")
    assert (answer.status, answer.code) == (400 if code else 200, code), answer.body


@pytest.mark.parametrize(("text", "code"), [("0-4", "InvalidArgument"), ("bytes=5-2", "InvalidArgument"),
                                            ("bytes=0-99", "InvalidRange"), (f"bytes=1-{LONG_MAX}", "InvalidRange")])
def test_a_part_is_all_of_the_range_or_nothing(node: Node, text: str, code: str) -> None:
    ask(node, "PUT", "/b/source", b"0123456789")
    upload = begin_upload(node, "/b/copied")
    copy = {"x-amz-copy-source": "/b/source", "x-amz-copy-source-range": text}
    assert ask(node, "PUT", f"/b/copied?partNumber=1&uploadId={upload}", headers=copy).code == code


def test_conditions_that_nobody_looks_at_delete_nothing(node: Node) -> None:
    ask(node, "PUT", "/b/kept", b"kept")
    for leaf in ("<VersionId>abc</VersionId>", "<Size>99</Size>", "<LastModifiedTime>x</LastModifiedTime>"):
        answer = ask(node, "POST", "/b?delete", f"<Delete><Object><Key>kept</Key>{leaf}</Object></Delete>".encode())
        assert answer.status == 200 and answer.code == "NotImplemented", answer.body
    for name in ("x-amz-if-match-size", "x-amz-if-match-last-modified-time"):
        assert ask(node, "DELETE", "/b/kept", headers={name: "99"}).code == "NotImplemented"
    assert ask(node, "GET", "/b/kept").body == b"kept"
    document = b"<Delete><Object><Key>kept</Key><VersionId>null</VersionId></Object></Delete>"
    assert ask(node, "POST", "/b?delete", document).code == ""
    assert ask(node, "GET", "/b/kept").status == 404


@pytest.mark.parametrize("name", ["x-amz-copy-source=%2Fb%2Fk", "x-amz-meta-a=1", "x-amz-checksum-crc32=AAAAAA%3D%3D",
                                  "x-amz-server-side-encryption=AES256"])
def test_fields_in_the_query_are_not_passed_by(node: Node, name: str) -> None:
    assert ask(node, "PUT", f"/b/query?{name}", b"body").code == "NotImplemented"
    assert ask(node, "GET", "/b/query").status == 404
    assert ask(node, "PUT", "/b/query?x-id=PutObject", b"body").status == 200
    ask(node, "DELETE", "/b/query")


def test_a_digest_in_the_query_is_of_the_body(tmp_path: pathlib.Path) -> None:
    with start_node("--unix", f"{tmp_path}/s", "--dram", "64M", "--s3", LOOPBACK) as node:
        answer = ask(node, "PUT", f"/b/k?X-Amz-Content-Sha256={'0' * 64}", b"other bytes")
        assert answer.code == "XAmzContentSHA256Mismatch"
        assert ask(node, "GET", "/b/k").status == 404
        node.stop()


def test_secrets_are_printed_characters(tmp_path: pathlib.Path) -> None:
    secrets = support.secret_file(tmp_path / "credentials", "NU \0abc\n")
    with pytest.raises(AssertionError, match="line 1 is no access key"):
        with start_node("--unix", f"{tmp_path}/s", "--dram", "64M", "--s3", LOOPBACK, "--s3-credentials", str(secrets)):
            pass


def test_an_upload_ends_once(node: Node) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for turn in range(10):
            path = f"/b/once{turn}"
            upload = begin_upload(node, path)
            etags = [put_part(node, path, upload, number).headers["ETag"] for number in (1, 2)]
            completes = [pool.submit(complete, node, path, upload, etags) for _ in range(3)]
            abort = pool.submit(ask, node, "DELETE", f"{path}?uploadId={upload}")
            answers = [each.result() for each in completes]
            good = [answer for answer in answers if answer.status == 200]
            assert bool(good) != (abort.result().status == 204)
            assert abort.result().code in ("", "NoSuchUpload", "SlowDown")
            assert {answer.code for answer in answers} == {"" if good else "NoSuchUpload"}
            there = ask(node, "GET", path)
            assert there.body == 2 * PART if good else there.status == 404
            assert {etag_of(answer) for answer in good} == ({there.headers["ETag"]} if good else set())


def test_a_complete_that_is_asked_again_is_answered_again(node: Node) -> None:
    upload = begin_upload(node, "/b/asked")
    etags = [put_part(node, "/b/asked", upload, number).headers["ETag"] for number in (1, 2)]
    once = complete(node, "/b/asked", upload, etags, {"If-None-Match": "*"})
    again = complete(node, "/b/asked", upload, etags, {"If-None-Match": "*"})
    assert once.status == again.status == 200 and etag_of(once) == etag_of(again), again.body
    assert etag_of(once) == ask(node, "HEAD", "/b/asked").headers["ETag"]
    assert b"<UploadId>" not in ask(node, "GET", "/b?uploads&prefix=asked").body
    path = f"/b/asked?uploadId={upload}"
    for answer in (put_part(node, "/b/asked", upload, 1), ask(node, "GET", path), ask(node, "DELETE", path)):
        assert answer.code == "NoSuchUpload"
    assert penstock("--url", node.url, "ls", f".s3/parts/{upload}").stdout == b""
    assert complete(node, "/b/another", upload, etags).code == "NoSuchUpload"


def test_completes_of_an_upload_need_room_for_one_object(tmp_path: pathlib.Path) -> None:
    with start_node("--unix", f"{tmp_path}/s", "--dram", "80M", "--s3", LOOPBACK) as node, \
            concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            upload = begin_upload(node, "/b/large")
            etags = [put_part(node, "/b/large", upload, number, 16 * PART).headers["ETag"] for number in (1, 2)]
            answers = list(pool.map(lambda _: complete(node, "/b/large", upload, etags), range(4)))
            assert [answer.status for answer in answers] == [200] * 4, [answer.code for answer in answers]
            assert {etag_of(answer) for answer in answers} == {ask(node, "HEAD", "/b/large").headers["ETag"]}
            assert ask(node, "DELETE", "/b/large").status == 204
        node.stop()


def test_a_complete_waits_for_another_one(node: Node) -> None:
    """Whose claim ends by itself, if the other's gateway has ended."""
    upload = begin_upload(node, "/b/claimed")
    etag = put_part(node, "/b/claimed", upload, 1).headers["ETag"]
    claim = f".s3/claims/{upload}"
    assert penstock("--url", node.url, "put", claim, "-", stdin=b"").returncode == 0
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waits = pool.submit(complete, node, "/b/claimed", upload, [etag])
        still(waits)
        assert put_part(node, "/b/claimed", upload, 2).status == 200
        assert ask(node, "GET", "/b/claimed").status == 404
        aborted = ask(node, "DELETE", f"/b/claimed?uploadId={upload}")
        assert (aborted.status, aborted.code) == (503, "SlowDown")
        assert penstock("--url", node.url, "rm", claim).returncode == 0
        assert waits.result().status == 200
    assert penstock("--url", node.url, "ls", ".s3/claims/").stdout == b""


def test_an_upload_whose_complete_fails_is_there_all_the_time(node: Node) -> None:
    """Nobody is told that it is gone, neither who puts a part nor who gives it up."""
    upload = begin_upload(node, "/b/lives")
    etag = put_part(node, "/b/lives", upload, 1, b"").headers["ETag"]
    failed = threading.Event()

    def put() -> set[str]:
        codes = set()
        while not failed.is_set():
            codes.add(put_part(node, "/b/lives", upload, 2, b"another").code)
        return codes

    ask(node, "PUT", "/b/lives", b"in the way")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        puts = [pool.submit(put) for _ in range(3)]
        try:
            for _ in range(200):
                assert complete(node, "/b/lives", upload, [etag], {"If-None-Match": "*"}).code == "PreconditionFailed"
        finally:
            failed.set()
        assert {code for each in puts for code in each.result()} == {""}
    assert ask(node, "DELETE", f"/b/lives?uploadId={upload}").status == 204


def test_a_gateway_ends_while_a_complete_waits(tmp_path: pathlib.Path) -> None:
    with start_node("--unix", f"{tmp_path}/s", "--dram", "64M", "--s3", LOOPBACK) as node:
        upload = begin_upload(node, "/b/k")
        etag = put_part(node, "/b/k", upload, 1).headers["ETag"]
        url = f"node+unix://{tmp_path}/s"
        assert penstock("--url", url, "put", f".s3/claims/{upload}", "-", stdin=b"").returncode == 0
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waits = pool.submit(complete, node, "/b/k", upload, [etag])
            still(waits)
            node.stop()
            with pytest.raises((OSError, http.client.HTTPException)):
                waits.result()


def test_uploads_are_listed_page_by_page(node: Node) -> None:
    keys = ["a!", "a-1", "a.b", "a", "b", "b.c"]
    for key in keys + ["a"]:
        begin_upload(node, f"/pages/{key}")
    seen, query = [], "uploads&max-uploads=2"
    while query:
        page = ask(node, "GET", f"/pages?{query}").body
        seen += re.findall(rb"<Key>([^<]*)</Key>", page)
        key, upload = (re.search(rb"<%s>([^<]*)<" % name, page) for name in (b"NextKeyMarker", b"NextUploadIdMarker"))
        query = f"uploads&max-uploads=2&key-marker={quoted(key[1].decode())}&upload-id-marker={upload[1].decode()}" if key else ""
    assert sorted(seen) == sorted(key.encode() for key in keys + ["a"])
    for query in ("uploads&max-uploads=0", f"max-parts=0&uploadId={begin_upload(node, '/pages/none')}"):
        path = "/pages" if query.startswith("uploads") else "/pages/none"
        assert b"<IsTruncated>false</IsTruncated>" in ask(node, "GET", f"{path}?{query}").body


@pytest.mark.parametrize(("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)])
def test_pages_of_others_show_no_objects(node: Node, site: str, status: int) -> None:
    ask(node, "PUT", "/b/shown", b"shown")
    assert ask(node, "GET", "/b/shown", headers={"Sec-Fetch-Site": site}).status == status


def test_pages_of_long_keys_are_short(node: Node) -> None:
    keys = [f"{number:03}{'k' * 3900}" for number in range(200)]
    for key in keys:
        assert ask(node, "PUT", f"/long/{key}", b"x").status == 200
    seen, token, sizes = [], "", []
    while token is not None:
        page = ask(node, "GET", f"/long?list-type=2{token}").body
        sizes.append(len(page))
        seen += re.findall(rb"<Key>([^<]*)</Key>", page)
        found = re.search(rb"<NextContinuationToken>([^<]*)<", page)
        token = f"&continuation-token={quoted(found[1].decode())}" if found else None
    assert seen == [key.encode() for key in keys]
    assert max(sizes) < 2 << 20 and len(sizes) > 2


@pytest.mark.parametrize("after", ["list-type=2&start-after", "marker"])
def test_a_listing_begins_behind_what_no_key_is_as_long_as(node: Node, after: str) -> None:
    for key in ("a", "b", "c/x"):
        assert ask(node, "PUT", f"/behind/{key}", b"x").status == 200
    for letter, behind in (("a", [b"b", b"c/x"]), ("b", [b"c/x"]), ("d", [])):
        for length in (4088, 4089, 4090, 4096):
            page = ask(node, "GET", f"/behind?{after}={letter * length}").body
            assert re.findall(rb"<Key>([^<]*)</Key>", page) == behind, (letter, length)
    assert ask(node, "GET", f"/behind?{after}={'a' * 4097}").code == "KeyTooLongError"


def test_checksums_of_a_complete_are_of_the_object(node: Node) -> None:
    whole = base64.b64encode(zlib.crc32(2 * PART).to_bytes(4, "big")).decode()
    for headers, code in (({"x-amz-checksum-crc32": "AAAAAA=="}, "BadDigest"), ({"x-amz-mp-object-size": "5"}, "InvalidRequest"),
                          ({"x-amz-checksum-crc32": "AAAAAA==-2"}, "NotImplemented"),
                          ({"x-amz-checksum-crc32": whole, "x-amz-mp-object-size": str(2 * len(PART))}, "")):
        upload = begin_upload(node, "/b/checked")
        etags = [put_part(node, "/b/checked", upload, number).headers["ETag"] for number in (1, 2)]
        answer = complete(node, "/b/checked", upload, etags, headers)
        assert answer.code == code, answer.body
        assert ask(node, "GET", "/b/checked").status == (404 if code else 200)
        if code:
            assert ask(node, "DELETE", f"/b/checked?uploadId={upload}").status == 204  # it is there still


@pytest.mark.parametrize(("method", "path", "headers", "code"), [
    ("GET", "/?prefix=b", {}, "NotImplemented"), ("PUT", "/b/k", {"If-Match": "*"}, "NotImplemented"),
    ("PUT", "/b/k", {"x-amz-copy-source": "/b/a?x"}, "InvalidArgument"),
    ("PUT", "/b/k", {"x-amz-copy-source": "/b/a?versionId=1"}, "NotImplemented"),
    ("PUT", "/b/k", {"Content-Encoding": "gzip, aws-chunked"}, "InvalidRequest")])
def test_what_is_not_done_is_said(node: Node, method: str, path: str, headers: dict[str, str], code: str) -> None:
    assert ask(node, method, path, headers=headers).code == code


def test_a_body_has_no_more_than_it_says(node: Node) -> None:
    body = b"80000\r\n" + bytes(1 << 19) + b"\r\n0\r\n\r\n"
    headers = {"x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "x-amz-decoded-content-length": str(300 << 10)}
    assert ask(node, "PUT", "/b/more", body, headers).code == "IncompleteBody"
    assert ask(node, "GET", "/b/more").status == 404


def test_a_part_that_comes_too_late_is_gone(node: Node) -> None:
    upload = begin_upload(node, "/b/late")
    host, port = address_of(node).rsplit(":", 1)
    with socket.create_connection((host, int(port)), support.WAIT_S) as late:
        late.sendall(f"PUT /b/late?partNumber=1&uploadId={upload} HTTP/1.1\r\nHost: h\r\n"
                     f"Content-Length: {len(PART)}\r\nExpect: 100-continue\r\n\r\n".encode())
        assert late.recv(100).startswith(b"HTTP/1.1 100")
        assert ask(node, "DELETE", f"/b/late?uploadId={upload}").status == 204
        late.sendall(PART)
        assert b"NoSuchUpload" in late.recv(1 << 16)
    keys = support.penstock("--url", node.url, "ls", ".s3/parts/" + upload)
    assert keys.returncode == 0 and keys.stdout == b""


def test_requests_behind_each_other_are_not_idle(tmp_path: pathlib.Path) -> None:
    """The second one of a client that has sent two at once is under way when others fill the places."""
    secrets = credentials(tmp_path)
    with start_node("--unix", f"{tmp_path}/s", "--dram", "64M", "--s3", LOOPBACK, "--s3-credentials", str(secrets),
                    "--s3-connections", "4") as node:
        host, port = address_of(node).rsplit(":", 1)
        crowd = []
        try:
            for _ in range(12):  # which say a byte, and so nothing that anybody knows
                crowd.append(socket.create_connection((host, int(port)), support.WAIT_S))
                crowd[-1].sendall(b"G")
            assert ask_signed(node, "PUT", "/b/k", b"body").status == 200
        finally:
            for each in crowd:
                each.close()
        node.stop()
