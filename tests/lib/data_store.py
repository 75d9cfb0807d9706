# SPDX-License-Identifier: Apache-2.0
"""A data store's daemon of its own, and raw HTTP to it."""
from __future__ import annotations

import http.client
import json
import pathlib
import re
import subprocess
from typing import Any
from urllib.parse import quote

from support import Node, clean_environment

ASK_S_MAX = 30


class DataStore(Node):
    """penstockd --role store below `folder`, ready when constructed; the ports are free ones."""

    def __init__(self, folder: pathlib.Path, *more: str, environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.files = folder / "files" / "default"
        super().__init__("--role", "store", "--data", str(folder), "--http", "127.0.0.1:0", "--rsync-port", "0", *more,
                         environment=environment)
        try:
            self.wait_for("store: ready")
        except BaseException:
            self.kill()
            raise
        self.http_port, self.rsync_port = (self._port(what) for what in ("HTTP", "rsync"))

    def _port(self, what: str) -> int:
        found = re.search(rf"store: {what} on \S+:(\d+)", self.log())
        assert found, self.log()
        return int(found[1])

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
        """Status and parsed answer; `body`: bytes as they are, all else as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=ASK_S_MAX)
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def key(self, method: str, key: str, route: str = "", body: Any = None) -> tuple[int, Any]:
        """The same for a key's route, with the key quoted as clients quote it; `route` begins with '/' or '?'."""
        return self.ask(method, f"/api/v1/keys/{quote(key, safe='')}{route}", body)

    def names(self, prefix: str = "") -> dict[str, tuple[bool, str]]:
        """What a listing has: name to whether it is a directory, and its locale."""
        status, told = self.ask("GET", f"/api/v1/keys/list?prefix={quote(prefix, safe='')}")
        assert status == 200 and told["prefix"] == prefix, told
        return {item["name"]: (item["is_directory"], item["locale"]) for item in told["items"]}

    def rsync(self, *arguments: str, token: str = "") -> subprocess.CompletedProcess[str]:
        """The real rsync; {data} in an argument is the URL of the module with its slash."""
        url = f"rsync://penstock@127.0.0.1:{self.rsync_port}/data/"
        return subprocess.run(["rsync", *(argument.replace("{data}", url) for argument in arguments)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                              env=clean_environment(RSYNC_PASSWORD=token))
