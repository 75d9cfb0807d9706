"""A node that joins a pool gets its share of the slots, and of what lies in them."""
from __future__ import annotations

import hashlib
import json
import pathlib

import pytest
import support
from support import penstock, wait_until
from test_home import keys_of
from test_master import Master, master, member

NEARLY_HALF = 1800  # of 4,096 slots: less than an eighth and some is no difference


def primaries(m: Master) -> list[int]:
    """How many slots each node serves."""
    said = penstock("--url", f"pool://{m.address}", "node", "list", "--json")
    assert said.returncode == 0, said.stderr
    return [json.loads(line)["primaries"] for line in said.stdout.splitlines()]


@pytest.mark.parametrize("copies", [1, 2])
def test_who_joins_gets_its_share(tmp_path: pathlib.Path, copies: int) -> None:
    """Under load, of which nothing is refused; what has moved is read, and lies where it went alone."""
    file = tmp_path / "value"
    digests = {}
    with master(tmp_path, f"--nodes-min={copies}", place=f"=home:{copies}") as m:
        url = f"pool://{m.address}"
        nodes = [member(m, f"--host=h{i}") for i in range(copies)]
        try:
            wait_until("slots are dealt out", lambda: m.ask("slots")["served"] == 4096)
            for i in range(18):
                value = str(i).encode() * (1 << i)
                file.write_bytes(value)
                assert penstock("--url", url, "put", f"key{i}", file).returncode == 0
                digests[f"key{i}"] = hashlib.sha256(value).hexdigest()
            with support.bench(url, "--op=put", "--prefix=load/", "--keys=300", "--size=5000", "--seconds=90") as load:
                nodes.append(member(m, f"--host=h{copies}"))
                share = NEARLY_HALF * 2 // len(nodes)
                wait_until("each has its share", lambda: len(primaries(m)) == len(nodes) and min(primaries(m)) > share, 60)
                assert load.poll() is None, load.stderr.read() if load.stderr else ""
                load.kill()
            for name, digest in digests.items():
                said = penstock("--url", url, "get", name)
                assert said.returncode == 0 and hashlib.sha256(said.stdout).hexdigest() == digest, (name, said.stderr)
            wait_until("nothing is left behind", lambda: sum(len(keys_of(node)) for node in nodes) == copies * len(
                set().union(*map(keys_of, nodes))), 30)
            assert m.figures()["balanced"] > share
        finally:
            for node in nodes:
                node.kill()
