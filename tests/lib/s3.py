# SPDX-License-Identifier: Apache-2.0
"""Clients of a node with --s3: those of PyPI, each in a process of its own, and requests that are signed by hand."""
from __future__ import annotations

import contextlib
import datetime
import hashlib
import hmac
import http.client
import pathlib
import re
import subprocess
import urllib.parse
from collections.abc import Iterator

import pytest
import support
from support import Node
from tsgrpc import settled

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = pathlib.Path(__file__).with_name("s3_client.py")
CLIENT_S = 240
LOOPBACK = "127.0.0.1:0"
ID, SECRET = "AKIDFORTESTS", "a/secret+for/tests"
EMPTY = hashlib.sha256(b"").hexdigest()
UNSIGNED = "UNSIGNED-PAYLOAD"


@pytest.fixture(scope="module")
def python() -> str:
    """The Python that has boto3, s3fs and TensorStore."""
    done = subprocess.run([ROOT / "ci" / "venv", "s3", "tests/lib/s3_requirements.txt"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def address_of(node: Node) -> str:
    node.wait_for("s3: listening on ")
    return re.search(r"s3: listening on (\S+)", node.log())[1]


def credentials(folder: pathlib.Path) -> pathlib.Path:
    return support.secret_file(folder / "credentials", f"# a comment\n{ID} {SECRET}\nANOTHER other\n")


@contextlib.contextmanager
def serving(folder: pathlib.Path, *more: str) -> Iterator[Node]:
    """A node that serves S3 beside its unix socket, its `url`. What tests asked of it has left nothing behind."""
    with support.start_node("--unix", f"{folder}/socket", "--s3", LOOPBACK, *more) as node:
        node.url = f"node+unix://{folder}/socket"
        yield node
        settled(node)
        node.stop()


def client(python: str, node: Node, what: str, *arguments: str, scheme: str = "http",
           certificate: str = "") -> subprocess.CompletedProcess[str]:
    """One of s3_client.py's parts, which ends well or fails the test."""
    trusted = {"AWS_CA_BUNDLE": certificate} if certificate else {}
    environment = support.clean_environment(AWS_ACCESS_KEY_ID=ID, AWS_SECRET_ACCESS_KEY=SECRET, **trusted,
                                            AWS_EC2_METADATA_DISABLED="true", AWS_CONFIG_FILE="/dev/null")
    done = subprocess.run([python, "-B", CLIENT, what, f"{scheme}://{address_of(node)}", *arguments],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CLIENT_S, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr + node.log()[-2000:]
    return done


# ---- by hand


def now(seconds: float = 0) -> str:
    """The time of a request, so many seconds from now."""
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return at.strftime("%Y%m%dT%H%M%SZ")


def mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signing_key(secret: str, day: str) -> bytes:
    key = b"AWS4" + secret.encode()
    for part in (day, "us-east-1", "s3", "aws4_request"):
        key = mac(key, part)
    return key


def signed(method: str, path: str, host: str, headers: dict[str, str] | None = None, payload: str = EMPTY, time: str = "",
           key: tuple[str, str] = (ID, SECRET)) -> dict[str, str]:
    """The headers of a request with its signature."""
    time = time or now()
    scope = f"{time[:8]}/us-east-1/s3/aws4_request"
    every = {"host": host, "x-amz-date": time, "x-amz-content-sha256": payload, **(headers or {})}
    names = ";".join(sorted(name.lower() for name in every))
    lines = "".join(f"{name.lower()}:{every[name]}\n" for name in sorted(every, key=str.lower))
    bare, _, query = path.partition("?")
    query = "&".join(sorted(part if "=" in part else part + "=" for part in query.split("&"))) if query else ""
    canonical = f"{method}\n{bare}\n{query}\n{lines}\n{names}\n{payload}"
    text = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signature = mac(signing_key(key[1], time[:8]), text).hex()
    return {**every, "Authorization":
            f"AWS4-HMAC-SHA256 Credential={key[0]}/{scope}, SignedHeaders={names}, Signature={signature}"}


def presigned(method: str, path: str, host: str, more: dict[str, str]) -> str:
    """The path with a signature in its query, and with `more` there, which it signs, too."""
    time = now()
    scope = f"{time[:8]}/us-east-1/s3/aws4_request"
    every = {"X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": f"{ID}/{scope}", "X-Amz-Date": time,
             "X-Amz-Expires": "60", "X-Amz-SignedHeaders": "host", **more}
    query = "&".join(f"{name}={urllib.parse.quote(every[name], safe='-_.~')}" for name in sorted(every))
    canonical = f"{method}\n{path}\n{query}\nhost:{host}\n\nhost\n{UNSIGNED}"
    text = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    return f"{path}?{query}&X-Amz-Signature={mac(signing_key(SECRET, time[:8]), text).hex()}"


def chunk_signature(before: str, data: bytes, time: str) -> str:
    scope = f"{time[:8]}/us-east-1/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256-PAYLOAD\n{time}\n{scope}\n{before}\n{EMPTY}\n{hashlib.sha256(data).hexdigest()}"
    return mac(signing_key(SECRET, time[:8]), text).hex()


def trailer_signature(before: str, line: str, time: str) -> str:
    scope = f"{time[:8]}/us-east-1/s3/aws4_request"
    signed_line = hashlib.sha256(f"{line}\n".encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256-TRAILER\n{time}\n{scope}\n{before}\n{signed_line}"
    return mac(signing_key(SECRET, time[:8]), text).hex()


class Answer:
    """Status, body and headers of an answer; `code` is that of S3's error document."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.body = response.read()
        self.headers = response.headers
        found = re.search(rb"<Code>(\w+)</Code>", self.body)
        self.code = found[1].decode() if found else ""


def ask(node: Node, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
    """A request over a connection of its own, with these headers and no others."""
    connection = http.client.HTTPConnection(address_of(node), timeout=support.WAIT_S)
    try:
        connection.putrequest(method, path, skip_host="host" in (headers or {}), skip_accept_encoding=True)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        if body or method == "PUT":
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body or None)
        return Answer(connection.getresponse())
    finally:
        connection.close()


def ask_signed(node: Node, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None,
               **how: object) -> Answer:
    """The same with a signature over the body, unless `how` says otherwise (see signed())."""
    how.setdefault("payload", hashlib.sha256(body).hexdigest())
    return ask(node, method, path, body, signed(method, path, address_of(node), headers, **how))


def quoted(key: str) -> str:
    return urllib.parse.quote(key, safe="/-._~")
