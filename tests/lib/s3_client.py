# SPDX-License-Identifier: Apache-2.0
"""s3_client.py WHAT URL [ARGUMENT]...: one part of the tests of penstockd --s3, with clients from PyPI."""
from __future__ import annotations

import concurrent.futures
import datetime
import http.client
import io
import os
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

MIB = 1 << 20


def connect(url: str, **how: Any) -> Any:
    config = Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}, **how)
    return boto3.client("s3", endpoint_url=url, region_name="us-east-1", config=config)


def refused(code: str, call: Callable[..., Any], **arguments: Any) -> ClientError:
    """The call fails with that code, or with that status where there is no document."""
    try:
        call(**arguments)
    except ClientError as error:
        assert error.response["Error"]["Code"] == code, error.response
        return error
    raise AssertionError(f"{code} was expected")


def body(s3: Any, key: str, **arguments: Any) -> bytes:
    return s3.get_object(Bucket="bucket", Key=key, **arguments)["Body"].read()


def make(url: str) -> Any:
    s3 = connect(url)
    try:
        s3.create_bucket(Bucket="bucket")
    except s3.exceptions.BucketAlreadyOwnedByYou:
        pass
    return s3


# ---- parts


def objects(url: str) -> None:
    """Values of all sizes, with what is kept beside them."""
    s3 = make(url)
    for size in (0, 1, 4096, 65536, 65537, 256 << 10, (256 << 10) + 1, MIB, MIB + 1, 9 * MIB + 7):
        data = os.urandom(size)
        put = s3.put_object(Bucket="bucket", Key=f"size/{size}", Body=data)
        got = s3.get_object(Bucket="bucket", Key=f"size/{size}")
        assert got["Body"].read() == data and got["ETag"] == put["ETag"] and got["ContentLength"] == size
        assert s3.head_object(Bucket="bucket", Key=f"size/{size}")["ContentLength"] == size
    s3.put_object(Bucket="bucket", Key="kept", Body=b"x", ContentType="text/x", CacheControl="no-cache",
                  ContentDisposition="inline", ContentEncoding="gzip", ContentLanguage="de", Metadata={"one": "1", "two": "a b"})
    head = s3.head_object(Bucket="bucket", Key="kept")
    assert head["ContentType"] == "text/x" and head["CacheControl"] == "no-cache" and head["ContentLanguage"] == "de", head
    assert head["ContentDisposition"] == "inline" and head["ContentEncoding"] == "gzip", head
    assert head["Metadata"] == {"one": "1", "two": "a b"}, head
    age = datetime.datetime.now(datetime.timezone.utc) - head["LastModified"]
    assert abs(age.total_seconds()) < 60, head
    got = s3.get_object(Bucket="bucket", Key="kept", ResponseContentType="text/y", ResponseCacheControl="private")
    assert got["ContentType"] == "text/y" and got["CacheControl"] == "private" and got["ContentLanguage"] == "de", got
    refused("MetadataTooLarge", s3.put_object, Bucket="bucket", Key="kept", Body=b"y", Metadata={"one": "1" * 300})
    assert body(s3, "kept") == b"x"
    s3.delete_object(Bucket="bucket", Key="kept")
    s3.delete_object(Bucket="bucket", Key="kept")
    refused("NoSuchKey", s3.get_object, Bucket="bucket", Key="kept")
    refused("404", s3.head_object, Bucket="bucket", Key="kept")


def ranges(url: str) -> None:
    s3 = make(url)
    for size in (100, 3 * MIB):
        data = os.urandom(size)
        s3.put_object(Bucket="bucket", Key="ranged", Body=data)
        for text, part in (("0-9", data[:10]), ("10-", data[10:]), ("-5", data[-5:]), ("-999999999", data),
                           (f"7-{size + 5}", data[7:]), (f"{size - 1}-{size - 1}", data[-1:])):
            got = s3.get_object(Bucket="bucket", Key="ranged", Range=f"bytes={text}")
            assert got["Body"].read() == part and got["ResponseMetadata"]["HTTPStatusCode"] == 206, text
            first = data.find(part) if len(part) > 8 else size - len(part)
            assert got["ContentRange"] == f"bytes {first}-{first + len(part) - 1}/{size}", got["ContentRange"]
        refused("InvalidRange", s3.get_object, Bucket="bucket", Key="ranged", Range=f"bytes={size}-")
        assert body(s3, "ranged", Range="bytes=5-2") == data


def conditions(url: str) -> None:
    s3 = make(url)
    there = {"Bucket": "bucket", "Key": "conditional"}
    s3.delete_object(**there)
    for size in (1, MIB):  # put in one step, and by a reservation
        refused("NoSuchKey", s3.put_object, **there, Body=b"x" * size, IfMatch='"00000000000000ff-p"')
        first = s3.put_object(**there, Body=b"1" * size, IfNoneMatch="*")["ETag"]
        refused("PreconditionFailed", s3.put_object, **there, Body=b"2" * size, IfNoneMatch="*")
        second = s3.put_object(**there, Body=b"2" * size, IfMatch=first)["ETag"]
        assert second != first
        refused("PreconditionFailed", s3.put_object, **there, Body=b"3" * size, IfMatch=first)
        assert body(s3, "conditional", IfMatch=second) == b"2" * size
        refused("PreconditionFailed", s3.get_object, **there, IfMatch=first)
        refused("304", s3.get_object, **there, IfNoneMatch=second)
        assert body(s3, "conditional", IfNoneMatch=first) == b"2" * size
        written = s3.head_object(**there)["LastModified"]
        refused("304", s3.get_object, **there, IfModifiedSince=written)
        refused("PreconditionFailed", s3.get_object, **there, IfUnmodifiedSince=written - datetime.timedelta(seconds=1))
        refused("PreconditionFailed", s3.delete_object, **there, IfMatch=first)
        s3.delete_object(**there, IfMatch=second)


def race(url: str) -> None:
    """Of many that create or change an object at once, one at a time does."""
    s3 = make(url)
    won: list[int] = []

    def create(i: int) -> None:
        try:
            s3.put_object(Bucket="bucket", Key="raced", Body=b"%d" % i * MIB, IfNoneMatch="*")
            won.append(i)
        except ClientError as error:
            assert error.response["Error"]["Code"] == "PreconditionFailed", error

    s3.delete_object(Bucket="bucket", Key="raced")
    threads = [threading.Thread(target=create, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and body(s3, "raced") == b"%d" % won[0] * MIB, won


def overwrites(url: str) -> None:
    """Readers see one value or another, never parts of two."""
    s3 = make(url)
    s3.put_object(Bucket="bucket", Key="overwritten", Body=b"0" * 3 * MIB)
    over = threading.Event()

    def write(digit: bytes) -> None:
        while not over.is_set():
            s3.put_object(Bucket="bucket", Key="overwritten", Body=digit * 3 * MIB)

    threads = [threading.Thread(target=write, args=(digit,)) for digit in (b"1", b"2")]
    for thread in threads:
        thread.start()
    try:
        for i in range(30):
            got = s3.get_object(Bucket="bucket", Key="overwritten", **({"Range": f"bytes={i}-{2 * MIB}"} if i % 2 else {}))
            data = got["Body"].read()
            assert data == data[:1] * len(data) and len(data) == got["ContentLength"]
    finally:
        over.set()
        for thread in threads:
            thread.join()
    s3.delete_object(Bucket="bucket", Key="overwritten")


def full(url: str) -> None:
    """A store of 64 MiB: it says so, and goes on once there is room."""
    s3 = make(url)
    stored = 0
    while True:
        try:
            s3.put_object(Bucket="bucket", Key=f"full/{stored}", Body=b"x" * 4 * MIB)
            stored += 1
        except ClientError as error:
            assert error.response["Error"]["Code"] == "StorageFull", error
            break
    assert 8 < stored <= 16, stored
    upload = s3.create_multipart_upload(Bucket="bucket", Key="full")["UploadId"]
    refused("StorageFull", s3.upload_part, Bucket="bucket", Key="full", UploadId=upload, PartNumber=1, Body=b"x" * 4 * MIB)
    s3.abort_multipart_upload(Bucket="bucket", Key="full", UploadId=upload)
    s3.delete_object(Bucket="bucket", Key="full/0")
    s3.put_object(Bucket="bucket", Key="full/0", Body=b"y" * 4 * MIB)
    assert all(body(s3, f"full/{i}") == (b"x" if i else b"y") * 4 * MIB for i in range(stored))


ODD_KEYS = ["a b", "a+b", "a%20b", "ä/ö/ü", "日本語", "a/../b", "../../etc/passwd", "/leading", "trailing/", "a//b", "?query&x=1#y",
            "quote\"'<>&", "tab\tand\nline", "~!@$^*()_-=[]{}|;:,.", "k" * 1000, "\U0001f600", ".", "..", "a/./b"]


def odd_keys(url: str) -> None:
    s3 = make(url)
    for key in ODD_KEYS:
        s3.put_object(Bucket="bucket", Key="odd/" + key, Body=key.encode())
    for key in ODD_KEYS:
        assert body(s3, "odd/" + key) == key.encode(), key
    listed = [item["Key"] for item in s3.list_objects_v2(Bucket="bucket", Prefix="odd/")["Contents"]]
    assert listed == sorted(("odd/" + key for key in ODD_KEYS), key=str.encode), listed
    assert [item["Key"] for item in s3.list_objects(Bucket="bucket", Prefix="odd/")["Contents"]] == listed


def listing(url: str) -> None:
    s3 = make(url)
    s3.create_bucket(Bucket="list")
    keys = sorted(f"{i % 50:02d}/{i // 50:02d}/{i:04d}" for i in range(2600)) + ["z"]
    for key in keys:
        s3.put_object(Bucket="list", Key=key, Body=key.encode())
    s3.put_object(Bucket="listed", Key="of another bucket", Body=b"")

    def pages(call: str, **arguments: Any) -> tuple[list[str], list[str]]:
        found: tuple[list[str], list[str]] = ([], [])
        for page in s3.get_paginator(call).paginate(Bucket="list", **arguments):
            found[0].extend(item["Key"] for item in page.get("Contents", []))
            found[1].extend(item["Prefix"] for item in page.get("CommonPrefixes", []))
        return found

    folders = [f"{i:02d}/" for i in range(50)]
    for call in ("list_objects_v2", "list_objects"):
        assert pages(call) == (keys, [])
        assert pages(call, PaginationConfig={"PageSize": 7}, Prefix="07/") == ([key for key in keys if key[:3] == "07/"], [])
        assert pages(call, Delimiter="/") == (["z"], folders)
        assert pages(call, Delimiter="/", PaginationConfig={"PageSize": 7}) == (["z"], folders)
        assert pages(call, Delimiter="/", Prefix="07/", PaginationConfig={"PageSize": 3}) == \
            ([], sorted({key[:6] for key in keys if key[:3] == "07/"}))
        assert pages(call, Prefix="nothing") == ([], [])
    page = s3.list_objects_v2(Bucket="list", MaxKeys=1, StartAfter="07/")
    assert page["KeyCount"] == 1 and page["IsTruncated"] and page["Contents"][0]["Key"].startswith("07/00/"), page
    assert s3.list_objects_v2(Bucket="list", MaxKeys=0)["KeyCount"] == 0
    page = s3.list_objects_v2(Bucket="list", Prefix=keys[0], MaxKeys=1)
    assert not page["IsTruncated"] and page["Contents"][0]["Size"] == len(keys[0]), page
    assert page["Contents"][0]["ETag"] == s3.head_object(Bucket="list", Key=keys[0])["ETag"]
    refused("NoSuchBucket", s3.list_objects_v2, Bucket="not-there")
    refused("InvalidArgument", s3.list_objects_v2, Bucket="list", ContinuationToken="x")


def buckets(url: str) -> None:
    s3 = connect(url)
    refused("404", s3.head_bucket, Bucket="fresh")
    s3.create_bucket(Bucket="fresh")
    refused("BucketAlreadyOwnedByYou", s3.create_bucket, Bucket="fresh")
    s3.head_bucket(Bucket="fresh")
    assert s3.list_objects_v2(Bucket="fresh")["KeyCount"] == 0
    s3.put_object(Bucket="implied", Key="k", Body=b"")
    s3.head_bucket(Bucket="implied")
    names = [item["Name"] for item in s3.list_buckets()["Buckets"]]
    assert {"fresh", "implied"} <= set(names) and names == sorted(set(names)), names
    refused("BucketNotEmpty", s3.delete_bucket, Bucket="implied")
    s3.delete_object(Bucket="implied", Key="k")
    refused("NoSuchBucket", s3.delete_bucket, Bucket="implied")
    s3.delete_bucket(Bucket="fresh")
    refused("404", s3.head_bucket, Bucket="fresh")
    assert s3.get_bucket_location(Bucket="bucket" if "bucket" in names else make(url) and "bucket")["LocationConstraint"] is None


def copies(url: str) -> None:
    s3 = make(url)
    for size in (10, 3 * MIB):
        data = os.urandom(size)
        etag = s3.put_object(Bucket="bucket", Key="from ä", Body=data, Metadata={"a": "b"}, ContentType="text/x")["ETag"]
        source = {"Bucket": "bucket", "Key": "from ä"}
        copied = s3.copy_object(Bucket="bucket", Key="to", CopySource=source)["CopyObjectResult"]["ETag"]
        head = s3.head_object(Bucket="bucket", Key="to")
        assert body(s3, "to") == data and head["ETag"] == copied != etag and head["Metadata"] == {"a": "b"}, head
        s3.copy_object(Bucket="bucket", Key="to", CopySource=source, MetadataDirective="REPLACE", Metadata={"c": "d"})
        head = s3.head_object(Bucket="bucket", Key="to")
        assert head["Metadata"] == {"c": "d"} and head["ContentType"] == "binary/octet-stream", head
        s3.copy_object(Bucket="bucket", Key="to", CopySource={"Bucket": "bucket", "Key": "to"}, MetadataDirective="REPLACE",
                       Metadata={"e": "f"})
        assert body(s3, "to") == data
        refused("PreconditionFailed", s3.copy_object, Bucket="bucket", Key="to", CopySource=source, CopySourceIfNoneMatch=etag)
        refused("PreconditionFailed", s3.copy_object, Bucket="bucket", Key="to", CopySource=source, CopySourceIfMatch=copied)
        refused("PreconditionFailed", s3.copy_object, Bucket="bucket", Key="to", CopySource=source, IfNoneMatch="*")
        refused("NoSuchKey", s3.copy_object, Bucket="bucket", Key="to", CopySource={"Bucket": "bucket", "Key": "not there"})


class Pipe(io.RawIOBase):
    """A body whose length nobody knows."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._data.read(size)


def checksums(url: str) -> None:
    """Those that boto3 sends; over TLS they come behind the body, whose length may be unknown then."""
    s3 = make(url)
    for size in (0, 10, 300000, 3 * MIB) if url.startswith("https") else ():
        data = os.urandom(size)
        assert s3.put_object(Bucket="bucket", Key="piped", Body=Pipe(data))["ChecksumCRC32"] and body(s3, "piped") == data
    for name in ("CRC32", "SHA1", "SHA256"):
        for data in (b"", b"x" * 100, os.urandom(2 * MIB + 1)):
            put = s3.put_object(Bucket="bucket", Key="checked", Body=data, ChecksumAlgorithm=name)
            assert put[f"Checksum{name}"] and body(s3, "checked") == data
    refused("BadDigest", s3.put_object, Bucket="bucket", Key="checked", Body=b"x", ChecksumSHA256="A" * 43 + "=")
    refused("BadDigest", s3.put_object, Bucket="bucket", Key="checked", Body=b"x", ContentMD5="A" * 22 + "==")
    assert body(s3, "checked") == data


def presigned(url: str) -> None:
    make(url)
    s3 = connect(url, signature_version="s3v4")
    path = {"Bucket": "bucket", "Key": "pre signed/ä"}
    put = s3.generate_presigned_url("put_object", Params=path, ExpiresIn=60)
    with urllib.request.urlopen(urllib.request.Request(put, data=b"by url", method="PUT")) as answer:
        assert answer.status == 200
    get = s3.generate_presigned_url("get_object", Params=path | {"ResponseContentType": "text/z"}, ExpiresIn=60)
    with urllib.request.urlopen(get) as answer:
        assert answer.read() == b"by url" and answer.headers["content-type"] == "text/z"
    for changed in (get.replace("signed", "signet"), get.replace("text", "tex"), get[:-1] + ("0" if get[-1] != "0" else "1"),
                    put):
        try:
            urllib.request.urlopen(changed)
            raise AssertionError(changed)
        except urllib.error.HTTPError as error:
            assert error.code == 403 and b"SignatureDoesNotMatch" in error.read()


def uploads(url: str) -> None:
    """Uploads in parts: in any order, twice, listed, given up, completed in part."""
    s3 = make(url)
    there = {"Bucket": "bucket", "Key": "in parts ä"}
    parts = {3: os.urandom(100), 1: os.urandom(5 * MIB), 2: os.urandom(5 * MIB + 1)}
    upload = s3.create_multipart_upload(**there, Metadata={"a": "b"}, ContentType="text/x")["UploadId"]
    one = {**there, "UploadId": upload}
    s3.upload_part(**one, PartNumber=2, Body=b"another")
    etags = {number: s3.upload_part(**one, PartNumber=number, Body=data)["ETag"] for number, data in parts.items()}
    listed = s3.list_parts(**one)["Parts"]
    assert [(part["PartNumber"], part["ETag"], part["Size"]) for part in listed] == \
        [(number, etags[number], len(parts[number])) for number in sorted(parts)], listed
    page = s3.list_parts(**one, MaxParts=2)
    assert page["IsTruncated"] and page["NextPartNumberMarker"] == 2 and len(page["Parts"]) == 2, page
    assert [part["PartNumber"] for part in s3.list_parts(**one, PartNumberMarker=2)["Parts"]] == [3]
    refused("NoSuchKey", s3.get_object, **there)

    def named(*numbers: int, **etag: str) -> dict[str, Any]:
        return {"Parts": [{"PartNumber": number, "ETag": etag.get("etag", etags[number])} for number in numbers]}

    refused("InvalidPartOrder", s3.complete_multipart_upload, **one, MultipartUpload=named(2, 1, 3))
    refused("InvalidPart", s3.complete_multipart_upload, **one, MultipartUpload=named(1, etag=etags[2]))
    refused("MalformedXML", s3.complete_multipart_upload, **one, MultipartUpload={"Parts": []})
    refused("NoSuchUpload", s3.complete_multipart_upload, **there | {"Key": "another"}, UploadId=upload,
            MultipartUpload=named(1))
    done = s3.complete_multipart_upload(**one, MultipartUpload=named(1, 2, 3), IfNoneMatch="*")
    head = s3.head_object(**there)
    assert body(s3, there["Key"]) == parts[1] + parts[2] + parts[3]
    assert head["Metadata"] == {"a": "b"} and head["ContentType"] == "text/x" and head["ETag"] == done["ETag"], head
    assert s3.complete_multipart_upload(**one, MultipartUpload=named(1, 2, 3))["ETag"] == done["ETag"]
    refused("NoSuchUpload", s3.upload_part, **one, PartNumber=1, Body=b"")
    s3.delete_object(**there)


def ends(url: str) -> None:
    """Of several requests that complete or give up an upload at once, one does; the others learn which."""
    s3 = make(url)
    for turn in range(8):
        there = {"Bucket": "bucket", "Key": "ended"}
        one = {**there, "UploadId": s3.create_multipart_upload(**there)["UploadId"]}
        parts = [{"PartNumber": n, "ETag": s3.upload_part(**one, PartNumber=n, Body=os.urandom(5 * MIB))["ETag"]} for n in (1, 2)]
        won: list[str] = []

        def end(aborts: bool) -> None:
            try:
                if aborts:
                    s3.abort_multipart_upload(**one)
                else:
                    s3.complete_multipart_upload(**one, MultipartUpload={"Parts": parts})
                won.append("aborted" if aborts else "completed")
            except ClientError as error:
                assert error.response["Error"]["Code"] in ({"NoSuchUpload", "SlowDown"} if aborts else {"NoSuchUpload"}), error

        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(end, [False, turn % 2 == 0, False, turn % 4 == 0]))
        assert won == ["aborted"] or won and set(won) == {"completed"}, won
        if won[0] == "completed":
            s3.delete_object(**there)
        else:
            refused("NoSuchKey", s3.get_object, **there)


def aborts(url: str) -> None:
    s3 = make(url)
    made = [s3.create_multipart_upload(Bucket="bucket", Key=f"given up/{i // 2}")["UploadId"] for i in range(5)]
    s3.upload_part(Bucket="bucket", Key="given up/0", UploadId=made[0], PartNumber=1, Body=os.urandom(2 * MIB))
    s3.put_object(Bucket="bucket", Key="source", Body=b"0123456789")
    copied = s3.upload_part_copy(Bucket="bucket", Key="given up/0", UploadId=made[0], PartNumber=2, CopySource="bucket/source",
                                 CopySourceRange="bytes=2-4")["CopyPartResult"]["ETag"]
    parts = s3.list_parts(Bucket="bucket", Key="given up/0", UploadId=made[0])["Parts"]
    assert (parts[1]["ETag"], parts[1]["Size"]) == (copied, 3), parts
    found = [item for page in s3.get_paginator("list_multipart_uploads").paginate(
        Bucket="bucket", Prefix="given up/", PaginationConfig={"PageSize": 2}) for item in page["Uploads"]]
    assert [item["Key"] for item in found] == [f"given up/{i // 2}" for i in range(5)], found
    assert {item["UploadId"] for item in found} == set(made)
    for item in found:
        s3.abort_multipart_upload(Bucket="bucket", Key=item["Key"], UploadId=item["UploadId"])
        refused("NoSuchUpload", s3.abort_multipart_upload, Bucket="bucket", Key=item["Key"], UploadId=item["UploadId"])
    assert "Uploads" not in s3.list_multipart_uploads(Bucket="bucket")
    refused("NoSuchUpload", s3.list_parts, Bucket="bucket", Key="given up/0", UploadId="0" * 32)
    refused("NoSuchUpload", s3.list_parts, Bucket="bucket", Key="given up/0", UploadId="../../etc")
    s3.delete_object(Bucket="bucket", Key="source")


def transfers(url: str) -> None:
    """boto3's own transfers, of several threads."""
    s3 = make(url)
    data = os.urandom(21 * MIB)
    with open("/dev/shm/penstock-s3-%d" % os.getpid(), "w+b") as file:
        os.unlink(file.name)
        file.write(data)
        file.seek(0)
        s3.upload_fileobj(file, "bucket", "transferred")
    with open("/dev/shm/penstock-s3-%d" % os.getpid(), "w+b") as file:
        os.unlink(file.name)
        s3.download_fileobj("bucket", "transferred", file)
        file.seek(0)
        assert file.read() == data
    s3.delete_object(Bucket="bucket", Key="transferred")


def deletions(url: str) -> None:
    s3 = make(url)
    keys = ["many/%d ä&<" % i for i in range(1000)]
    for key in keys[:20]:
        s3.put_object(Bucket="bucket", Key=key, Body=b"x")
    kept = s3.head_object(Bucket="bucket", Key=keys[0])["ETag"]
    done = s3.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": key} for key in keys[1:]]})
    assert [item["Key"] for item in done["Deleted"]] == keys[1:] and "Errors" not in done
    done = s3.delete_objects(Bucket="bucket", Delete={"Quiet": True, "Objects": [{"Key": keys[0], "ETag": '"x"'},
                                                                                 {"Key": "k" * 4200}]})
    assert [item["Code"] for item in done["Errors"]] == ["PreconditionFailed", "KeyTooLongError"] and "Deleted" not in done, done
    s3.delete_objects(Bucket="bucket", Delete={"Quiet": True, "Objects": [{"Key": keys[0], "ETag": kept}]})
    assert s3.list_objects_v2(Bucket="bucket", Prefix="many/")["KeyCount"] == 0


def too_large(url: str, limit: str) -> None:
    """5 GiB and other sizes that the store does not have: refused by name before their bytes are sent."""
    s3 = make(url)
    signed = connect(url, signature_version="s3v4")
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    for size in (5 << 30, 1 << 50, int(limit)):
        put = urllib.parse.urlsplit(signed.generate_presigned_url("put_object", Params={"Bucket": "bucket", "Key": "huge"}))
        connection.putrequest("PUT", f"{put.path}?{put.query}")
        connection.putheader("Content-Length", str(size))
        connection.endheaders()
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status in (400, 507) and ("EntityTooLarge" in text or "StorageFull" in text), (answer.status, text)
        connection.close()
    refused("404", s3.head_object, Bucket="bucket", Key="huge")


# ---- other clients


def s3fs_files(url: str) -> None:
    import s3fs

    files = s3fs.S3FileSystem(endpoint_url=url, skip_instance_cache=True)
    files.mkdir("s3fs-bucket")
    assert files.ls("s3fs-bucket") == [] and "s3fs-bucket" in files.ls("")
    data = os.urandom(12 * MIB)
    with files.open("s3fs-bucket/a/large", "wb") as file:
        for at in range(0, len(data), MIB):
            file.write(data[at:at + MIB])
    with files.open("s3fs-bucket/a/large", "rb") as file:
        file.seek(5 * MIB + 3)
        assert file.read(1000) == data[5 * MIB + 3:5 * MIB + 1003]
    assert files.cat("s3fs-bucket/a/large") == data and files.size("s3fs-bucket/a/large") == len(data)
    files.pipe({f"s3fs-bucket/b/{i}": b"%d" % i for i in range(30)})
    assert len(files.ls("s3fs-bucket/b")) == 30 and len(files.find("s3fs-bucket")) == 31
    assert sorted(files.ls("s3fs-bucket")) == ["s3fs-bucket/a", "s3fs-bucket/b"]
    assert files.cat_ranges(["s3fs-bucket/a/large"] * 2, [0, 10], [5, 20]) == [data[:5], data[10:20]]
    files.copy("s3fs-bucket/b/7", "s3fs-bucket/c/7")
    files.mv("s3fs-bucket/b/8", "s3fs-bucket/c/8")
    assert files.cat("s3fs-bucket/c/8") == b"8" and not files.exists("s3fs-bucket/b/8")
    try:
        files.pipe_file("s3fs-bucket/c/7", b"x", mode="create")
        raise AssertionError("a file was made anew")
    except OSError:  # s3fs has no name of its own for it
        pass
    with files.transaction:
        with files.open("s3fs-bucket/d", "wb") as file:
            file.write(b"later")
        assert not files.exists("s3fs-bucket/d")
    assert files.cat("s3fs-bucket/d") == b"later"
    try:
        files.cat("s3fs-bucket/none")
        raise AssertionError("a file that is not there")
    except FileNotFoundError:
        pass
    files.rm("s3fs-bucket", recursive=True)
    assert not files.exists("s3fs-bucket")


def tensorstore(url: str) -> None:
    import numpy
    import tensorstore as ts

    store = {"driver": "s3", "bucket": "bucket", "endpoint": url, "aws_region": "us-east-1"}
    context = ts.Context({"aws_credentials": {"type": "environment"}})
    values = ts.KvStore.open({**store, "path": "kv/"}, context=context).result()
    first = values.write("k", b"one").result().generation
    assert values.read("k").result().value == b"one"
    assert values.read("none").result().state == "missing"
    assert values.write("k", b"two", if_equal=first).result().generation not in (b"", first)
    assert values.write("k", b"three", if_equal=first).result().generation == b""
    assert values["k"] == b"two"
    for i in range(5):
        values[f"list/{i}"] = b"x"
    assert sorted(values.list(ts.KvStore.KeyRange("list/", "list0")).result()) == [b"list/%d" % i for i in range(5)]
    values.delete_range(ts.KvStore.KeyRange("list/", "list0")).result()
    assert values.list(ts.KvStore.KeyRange("list/", "list0")).result() == []
    array = ts.open({"driver": "zarr3", "kvstore": {**store, "path": "array/"},
                     "metadata": {"shape": [512, 512], "data_type": "float32", "chunk_grid": {
                         "name": "regular", "configuration": {"chunk_shape": [256, 256]}}}}, create=True, context=context).result()
    data = numpy.random.default_rng(1).random((512, 512), dtype="float32")
    array[...] = data
    assert (array.read().result() == data).all() and (array[100:300, 5:7].read().result() == data[100:300, 5:7]).all()


# ---- beside others


def put_plain(url: str, key: str, size: str) -> None:
    make(url).put_object(Bucket="bucket", Key=key, Body=b"s3" * (int(size) // 2), Metadata={"a": "b"})


def get_plain(url: str, key: str, size: str) -> None:
    assert body(connect(url), key) == b"s3" * (int(size) // 2)


def no_metadata(url: str, key: str, text: str) -> None:
    """Somebody else has written it: nothing of what was there before is said of it."""
    head = connect(url).head_object(Bucket="bucket", Key=key)
    assert head["Metadata"] == {} and head["ContentLength"] == len(text), head
    assert body(connect(url), key) == text.encode()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
