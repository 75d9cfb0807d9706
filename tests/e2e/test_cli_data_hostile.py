# SPDX-License-Identifier: Apache-2.0
"""penstock data against a server that answers with whatever JSON there is: a clear end, and nothing written elsewhere."""
from __future__ import annotations

import contextlib
import http.server
import json
import pathlib
import subprocess
import threading
from typing import Any, Iterator

import pytest
from support import BUILD, clean_environment

PEER = {"found": True, "store_pod_ip": "127.0.0.1", "ip": "127.0.0.9"}
ANSWERS: list[Any] = [
    {}, [], "text", None, {"found": "yes"}, {"found": True}, {"found": True, "ip": ""}, {"found": True, "store_pod_ip": ""},
    PEER | {"ip": "", "src_path": ""}, PEER | {"src_path": 7}, PEER | {"src_path": "../" * 1000}, PEER | {"ip": "a" * 100_000},
    PEER | {"src_path": "rsync://"}, PEER | {"src_path": "rsync://-oProxyCommand=touch/x"}, PEER | {"src_path": "--version"},
    PEER | {"ip": "-e.sh"}, PEER | {"ips": [], "ip": None}, PEER | {"version": 1, "tree_port": -1},
    PEER | {"version": 1, "tree_port": 1 << 62}, {"items": [{"name": "\x1b[2J", "locale": "x"}, 5, {"name": 5}]},
    {"items": {"name": "x"}}, {"detail": {"error": "\x1b]0;title\x07"}},
]


@contextlib.contextmanager
def answering(status: int, answer: Any) -> Iterator[str]:
    """The URL of a server that says the same to everything."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = json.dumps(answer).encode()
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_any_answer_has_an_end(status: int, answer: Any, tmp_path: pathlib.Path) -> None:
    own, folder = tmp_path / "own", tmp_path / "got"
    own.mkdir()
    folder.mkdir()
    (own / "file").write_text("mine")
    with answering(status, answer) as url:
        for command in (["get", "a/key", folder], ["put", "a/key", own], ["ls", "a/key"], ["rm", "a/key"], ["mkdir", "a/key"],
                        ["watch", "group"]):
            moving = ["--rsync", "127.0.0.1:9"] if command[0] in ("get", "put") else []
            done = subprocess.run([BUILD / "penstock", "data", command[0], "--store", url, *moving, *command[1:]],
                                  capture_output=True, timeout=60, stdin=subprocess.DEVNULL, env=clean_environment())
            assert 0 <= done.returncode <= 7, (command, done)
            assert done.returncode == 0 or done.stderr, command
            assert b"\x1b" not in done.stdout + done.stderr, (command, done)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["got", "own"]
    assert not any(path.is_file() for path in folder.rglob("*"))
