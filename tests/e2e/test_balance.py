# SPDX-License-Identifier: Apache-2.0
"""A node that joins a pool gets its share of the partitions, and of what lies in them."""
from __future__ import annotations

import hashlib
import json
import pathlib

import pytest
import support
from support import penstock, wait_until
from members import Master, keys_of, master, member

NEARLY_HALF = 1800  # of 4,096 partitions: less than an eighth and some is no difference


def primaries(m: Master) -> list[int]:
    """How many partitions each node serves."""
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
            wait_until("partitions are dealt out", lambda: m.ask("partitions")["served"] == 4096)
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
            assert m.figures()["balanced"] > 0
        finally:
            for node in nodes:
                node.kill()


def test_what_was_not_filled_to_the_end_goes(tmp_path: pathlib.Path) -> None:
    """The primary that fills a node dies, and that node is not to have the partitions any more."""
    names = [str(tmp_path / f"key{i}") for i in range(1500)]
    for name in names:
        pathlib.Path(name).write_bytes(b"v" * 10000)
    (tmp_path / "list").write_text("\n".join(names) + "\n")
    with master(tmp_path, "--nodes-min=2", "--lease-ms=1000", place="=home:2") as m:
        url = f"pool://{m.address}"
        nodes = [member(m, f"--host=h{i}", "--repair-bytes=1K") for i in range(2)]
        try:
            wait_until("partitions are dealt out", lambda: m.ask("partitions")["copies"][2] == 4096)
            command = ("--url", url, "put", "--files", str(tmp_path / "list"))
            wait_until("all are there", lambda: penstock(*command).returncode == 0)
            nodes.append(member(m, "--host=h2"))
            m.has(3)
            numbers = {int(seen["address"].rpartition(":")[2]): seen["member"] for seen in m.members()}
            members = [numbers[node.ports()[0]] for node in nodes]

            primaries_of: dict[str, int] = {}

            def underway() -> bool:
                """Of what it has, there is what two others have."""
                primaries_of.clear()
                for key in keys_of(nodes[2]):
                    copies = m.ask("partition", key)["copies"]
                    if len(copies) == 2 and members[2] not in copies:
                        primaries_of[key] = members.index(copies[0])
                return bool(primaries_of)

            wait_until("it is being filled", underway)
            assert penstock("--url", url, "node", "drain", f"127.0.0.1:{nodes[2].ports()[0]}").returncode == 0
            wait_until("it is being filled", underway)
            key, primary = next(iter(primaries_of.items()))
            nodes[primary].kill()
            wait_until("what there is of it goes", lambda: key not in keys_of(nodes[2]))
            assert penstock("--url", url, "get", key).stdout == b"v" * 10000
        finally:
            for node in nodes:
                node.kill()
