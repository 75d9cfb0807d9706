# SPDX-License-Identifier: Apache-2.0
"""S3 at a member of a pool while another member is silent: nothing is said to be missing, and nothing is left behind."""
from __future__ import annotations

import os
import pathlib
import re
import signal

from members import keys_of, master, member
from s3 import LOOPBACK, ask
from support import Node, wait_until

UPLOADS, PARTS, KEYS = 6, 4, 40


def begin(node: Node, path: str) -> str:
    found = re.search(rb"<UploadId>(\w+)</UploadId>", ask(node, "POST", f"{path}?uploads").body)
    assert found
    for number in range(1, PARTS + 1):
        assert ask(node, "PUT", f"{path}?partNumber={number}&uploadId={found[1].decode()}", b"p" * 1000).status == 200
    return f"{path}?uploadId={found[1].decode()}"


def test_a_member_that_is_silent(tmp_path: pathlib.Path) -> None:
    with master(tmp_path, "--incomplete-ms=60000", place="=home:1") as m, member(m, "--s3", LOOPBACK) as one, member(m) as two:
        one.wait_for("penstockd: ready")
        wait_until("both have partitions", lambda: m.ask("partitions")["served"] == 4096 and len(m.members()) == 2)
        uploads = [begin(one, f"/b/up{i}") for i in range(UPLOADS)]
        assert all(ask(one, "PUT", f"/c/{i}", b"v").status == 200 for i in range(KEYS))
        assert ask(one, "PUT", "/alone/key", b"v").status == 200
        os.kill(two.pid, signal.SIGSTOP)
        try:
            wait_until("its partitions are served no more", lambda: m.ask("partitions")["served"] < 4096)
            assert ask(one, "GET", "/c?list-type=2").status == 503
            assert ask(one, "GET", "/").status == 503
            assert ask(one, "HEAD", "/nothing").status == 503
            assert ask(one, "HEAD", "/alone").status in (200, 503)
            assert {ask(one, "DELETE", upload).status for upload in uploads} == {503}
        finally:
            os.kill(two.pid, signal.SIGCONT)
        wait_until("all is served", lambda: m.ask("partitions")["served"] == 4096)
        wait_until("all is listed", lambda: ask(one, "GET", "/c?list-type=2").body.count(b"<Key>") == KEYS)
        for upload in uploads:
            assert ask(one, "DELETE", upload).status == 204, upload
        assert not [key for node in (one, two) for key in keys_of(node) if key.startswith(".s3/")]
        two.stop()
        one.stop()
