# SPDX-License-Identifier: Apache-2.0
"""Figures over links of a known rate: nodes and their client each on a machine of its own, joined by a switch.

A link carries LINK_BITS_PER_S either way and keeps what comes faster for up to QUEUE_MS, which is what the round trip grows by under load;
what comes faster still is dropped. A rate is that of the values' bytes, beside what TCP can carry of theirs in full packets.
"""

from collections.abc import Callable
from typing import Any

from networks import PAYLOAD_SHARE, Machine, network, refused
from procs import BenchError, Stage, run_json

LINK_BITS_PER_S, QUEUE_MS = 1_000_000_000, 5
LINK_BYTES_PER_S = LINK_BITS_PER_S / 8 * PAYLOAD_SHARE
PORT, PLAIN_PORT = 7000, 7001
SECRET = "0123456789abcdef" * 2
KIB, MIB = 1 << 10, 1 << 20

Takers = tuple[Callable[[], float], Callable[[], float]]

PLAIN_SERVER = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
while True:
    client, _ = server.accept()
    try:
        while True:
            client.sendall(bytes(1 << 20))
    except OSError:
        pass
"""

PLAIN_CLIENT = """
import socket, sys, time
server = socket.create_connection((sys.argv[1], int(sys.argv[2])))
buffer = bytearray(1 << 20)
def taken(seconds):
    begin, count = time.monotonic(), 0
    while (now := time.monotonic()) < begin + seconds:
        count += server.recv_into(buffer)
    return count / (now - begin)
taken(0.5)
print('{"bytes_per_s": %f}' % taken(2))
"""


class Links:
    """The machines of a figure and what runs on them."""

    def __init__(self, stage: Stage, count: int) -> None:
        if why := refused():
            raise BenchError(why)
        self._stage = stage
        self._secret = stage.folder / "secret"
        self._secret.touch(mode=0o600)
        self._secret.write_text(SECRET)
        self.machines: list[Machine] = stage.keep(network(count))

    def serve(self, machine: Machine, *options: object) -> str:
        """Start a penstockd on a machine; its address."""
        address = f"{machine.host}:{PORT}"
        node = self._stage.start([
            *machine.within, self._stage.program("penstockd"), "--listen", address, "--fabric", "trusted",
            "--secret-file", str(self._secret), "--shards", "1", *map(str, options)], kill=True)
        node.wait_text(f"listening on {address}")
        return address

    def pool(self, master: Machine, nodes: list[Machine], dram_bytes: int) -> str:
        """Start a pool whose keys have homes; its URL."""
        address = self.serve(master, "--role", "master", "--pool-map", self._stage.folder / f"view-{master.host}",
                             "--place", "=home", "--nodes-min", len(nodes))
        for node in nodes:
            self.serve(node, "--dram", dram_bytes, "--master", address, "--host", node.name)
        return self.url("pool", address)

    def url(self, scheme: str, address: str) -> str:
        """What a client on one of the machines opens."""
        return f"{scheme}://{address}?fabric=trusted&secret_file={self._secret}"

    def bench(self, client: Machine, url: str, *args: object) -> float:
        """Bytes a second by `penstock bench` on a machine."""
        command = [*client.within, self._stage.program("penstock"), "bench", "--url", url, "--json"]
        return run_json([*command, *map(str, args)])["bytes_per_s"]

    def plain(self, server: Machine, client: Machine) -> Callable[[], float]:
        """What takes the rate of one plain connection between two machines, in bytes a second."""
        where = (server.host, str(PLAIN_PORT))
        self._stage.start([*server.within, "/usr/bin/python3", "-c", PLAIN_SERVER, *where], kill=True).wait_text("listening")
        return lambda: run_json([*client.within, "/usr/bin/python3", "-c", PLAIN_CLIENT, *where])["bytes_per_s"]


def three_nodes(stage: Stage) -> Takers:
    """Gets from a pool of three nodes, and from a pool of one, each node behind a link of the same rate."""
    links = Links(stage, 7)
    client, *machines = links.machines
    # So many keys that no node has much more than a third of them, and so many underway that no link is left idle by chance.
    sides = ((links.pool(machines[0], machines[1:4], 512 * MIB), 2048), (links.pool(machines[4], machines[5:], 512 * MIB), 512))
    args: list[Any] = ["--size", 512 * KIB, "--batch", 4, "--inflight", 64]

    def gets(url: str, keys: int) -> Callable[[], float]:
        links.bench(client, url, "--fill", "--op", "put", "--keys", keys, *args)
        return lambda: links.bench(client, url, "--op", "get", "--keys", keys, "--seconds", 2, *args)

    three, one = (gets(*side) for side in sides)
    for node in (*machines[1:4], *machines[5:]):
        node.shape(LINK_BITS_PER_S, QUEUE_MS)
    return three, one


def stripes(op: str, size: int, keys: int, batch: int) -> Callable[[Stage], Takers]:
    """One transfer after the other over one link, against what the link can carry."""
    def prepare(stage: Stage) -> Takers:
        links = Links(stage, 2)
        client, node = links.machines
        url = links.url("node", links.serve(node, "--dram", "1G"))
        args = ["--size", size, "--keys", keys, "--batch", batch, "--inflight", 1]
        links.bench(client, url, "--fill", "--op", "put", *args)
        plain = links.plain(node, client)
        node.shape(LINK_BITS_PER_S, QUEUE_MS)

        def link() -> float:
            print(f"  for orientation, a plain TCP connection: {plain() / LINK_BYTES_PER_S:.3f} of it", flush=True)
            return LINK_BYTES_PER_S

        return lambda: links.bench(client, url, "--op", op, "--seconds", 2, *args), link
    return prepare
