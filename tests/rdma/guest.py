# SPDX-License-Identifier: Apache-2.0
"""What `make test-rdma` tests, within the machine: guest.py ONLY. See machine.py.

A node and its clients over soft RoCE alone, byte by byte, with the RDMA READs that were posted as proof; clients that are killed
at each step of connecting and in the middle of transfers; a pool of two replicas, with a node killed and the cable cut.
"""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
import traceback
from typing import Callable

import rdma_hosts
from rdma_hosts import BUILD, FOLDER, SECRET, Host, Process, cut, mend, wait_until

HERE = pathlib.Path(__file__).resolve().parent
WRITERS = HERE.parent / "lib/pool_writers.py"
PORT, MASTER_PORT, MEMBER_PORT = 7000, 7100, 7200
READ_BYTES_MIN = 65536  # from here on a value is read alone by remote DMA, in no more pieces than it has pages
PAGE_BYTES = 2 << 20
DATAGRAMS_MIN, DATAGRAMS_MAX = 3, 6  # of a client that connects: the faster it goes the fewer
CUT_S = 30
CUT_S_MAX = 120  # within which its calls end, of 5 s each
UD_TIMEOUT_S = 30  # UCX's own, after which it looked at what a killed client left
CLIENT_DIED = -9
UNREACHABLE, OTHER = 5, 7  # exit statuses of the command line
FILE_BYTES = 5_000_000
FILE_READS = 3
PARTITIONS = 4096
POOL_SIZES = (64, 65536, 5_000_000)
WRITE_S_MAX = 300
LOSS_S = 20  # for which clients write on after something was lost


class World:
    """Both hosts, and the node that most cases share."""

    def __init__(self) -> None:
        FOLDER.mkdir()
        rdma_hosts.COUNTS.mkdir()
        SECRET.touch(mode=0o600)
        SECRET.write_bytes(os.urandom(32))
        self.here, self.there = rdma_hosts.lay_cables()
        self.node = self.here.node("node", port=PORT)
        self.url = self.here.url(PORT)
        self.died_s = time.monotonic()  # the last client that was killed while connecting
        self.pool: Pool | None = None
        self.pool_tried = False

    def penstock(self, *arguments: str, seconds: float = rdma_hosts.WAIT_S, **environment: str) -> Process:
        """The command line, on the other host."""
        return self.there.run(BUILD / "penstock", "--url", self.url, "--timeout", "60000", *arguments, seconds=seconds,
                              **environment)

    def bench(self, operation: str, *more: str) -> Process:
        """A client that moves values of 1 MiB, or finds that there are none."""
        return self.there.start(BUILD / "penstock", "bench", "--url", self.url, "--op", operation, "--size", "1048576",
                                "--keys", "8", "--batch", "2", "--inflight", "2", *more, log="bench.log")

    def put_file(self) -> None:
        (FOLDER / "file").write_bytes(os.urandom(FILE_BYTES))
        said = self.penstock("put", "file", str(FOLDER / "file"))
        assert said.popen.returncode == 0, said.log()

    def get_file(self) -> None:
        """It is what was put."""
        said = self.penstock("get", "file", str(FOLDER / "file.back"))
        assert said.popen.returncode == 0, said.log()
        assert (FOLDER / "file").read_bytes() == (FOLDER / "file.back").read_bytes()

    def ping(self) -> None:
        said = self.penstock("ping")
        assert said.popen.returncode == 0 and "rc_verbs" in said.log(), said.log()


class Pool:
    """A master and a node for each host."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.master = world.there.node("master", "--role=master", "--shards=1", f"--pool-map={FOLDER}/map", "--place==home:2",
                                       "--nodes-min=2", port=MASTER_PORT)
        self.address = f"{world.there.address}:{MASTER_PORT}"
        self.url = f"pool://{self.address}?fabric=trusted&secret_file={SECRET}&connect_ms=60000"
        self.nodes: list[Process] = []
        for host in (world.here, world.there):
            self.nodes.append(self.node(host))
        self.settle()

    def node(self, host: Host) -> Process:
        node = host.node(f"member{host.number}", f"--host=h{host.number}", "--shards=1", f"--master={self.address}",
                         "--shutdown-ms=30000", "--replica-ms=10000", port=MEMBER_PORT)
        node.wait_for("pool: joined as member")
        return node

    def settle(self) -> None:
        """All partitions have both copies, as the master says as soon as it is reached."""
        def settled() -> bool:
            said = self.world.there.run(BUILD / "tests/e2e/pool_ask", self.address, str(SECRET), "--", "partitions",
                                        log="ask.log")
            return said.popen.returncode == 0 and json.loads(said.log())["copies"][2] == PARTITIONS

        wait_until("two copies of all", settled)

    def penstock(self, *arguments: str) -> Process:
        """The command line, again until it has reached the pool: for that it waits three seconds, whatever it is told."""
        said: list[Process] = []

        def well() -> bool:
            said.append(self.world.there.run(BUILD / "penstock", "--url", self.url, "--timeout", "60000", *arguments))
            assert said[-1].popen.returncode in (0, UNREACHABLE, OTHER), said[-1].log()
            return said[-1].popen.returncode == 0

        wait_until("the pool is reached", well)
        return said[-1]

    def write(self) -> Process:
        """Clients that write, delete and read, and check what they are told; underway when this returns."""
        begun: list[Process] = []
        self.penstock("rm", "--prefix", "w")  # those of writers before

        def act() -> bool:
            begun.append(self.world.there.start(sys.executable, str(WRITERS), self.url, str(WRITE_S_MAX), "7", "none",
                                                log="writers.log", stdin=subprocess.PIPE))
            wait_until("they act", lambda: "acting" in begun[-1].log() or not begun[-1].alive())
            return begun[-1].alive()

        wait_until("the writers reach the pool", act)
        wait_until("values move", lambda: begun[-1].counts().posted["send"] > 500 or not begun[-1].alive())
        assert begun[-1].alive(), begun[-1].log()
        return begun[-1]

    def judge(self, writers: Process) -> None:
        """They go on for a while. Every call of theirs ends, and none brings a wrong byte."""
        assert writers.popen.stdin
        time.sleep(LOSS_S)
        writers.popen.stdin.close()
        status = writers.wait(WRITE_S_MAX)
        print(f"  {writers.log().splitlines()[-1]}", flush=True)
        assert status == 0 and json.loads(writers.log().splitlines()[-1])["puts"] > 0, writers.log()


# ---- values ----


def values(world: World) -> None:
    """Each value comes back as it went. A page of it is one RDMA READ: of the node at a put, of the client at a get."""
    moved = world.there.run(sys.executable, str(HERE / "moves.py"), world.url, str(world.node.pid), seconds=240)
    assert moved.popen.returncode == 0, moved.log()
    steps = [json.loads(line) for line in moved.log().splitlines()]
    assert len(steps) == 16, moved.log()
    wrong = []
    for step in steps:
        reads, read_bytes, sent_bytes = step["node" if step["what"].startswith("put") else "client"]
        total = step["count"] * step["size"]
        print("  {what} {count} x {size}: right {right}, node {node}, client {client}".format(**step), flush=True)
        well = step["right"]
        if step["size"] >= READ_BYTES_MIN:
            well = well and reads <= step["count"] * -(-step["size"] // PAGE_BYTES) and read_bytes == total
        elif total >= READ_BYTES_MIN:
            well = well and read_bytes == total and reads < step["count"]
        if not well:
            wrong.append(step)
    assert not wrong, wrong


def files(world: World) -> None:
    """A file is read by the node from where it is mapped, alone and among others."""
    before = world.node.counts()
    world.put_file()
    after = world.node.counts()
    assert after.posted["read"] - before.posted["read"] == FILE_READS, (before, after)
    assert after.bytes["read"] - before.bytes["read"] == FILE_BYTES, (before, after)
    world.get_file()
    (FOLDER / "list").write_text(f"{FOLDER}/file\n{FOLDER}/file.back\n")
    said = world.penstock("put", "--files", str(FOLDER / "list"))
    assert said.popen.returncode == 0, said.log()
    assert world.node.counts().posted["read"] - after.posted["read"] == 2 * FILE_READS


# ---- what may be lost ----


def no_sleep_is_blind(world: World) -> None:
    """A thread looks into a completion queue once more between arming it and its sleep."""
    said = world.bench("put", "--fill")
    assert said.wait() == 0, said.log()
    for who, counts in (("node", world.node.counts()), ("client", said.counts())):
        print(f"  {who}: {counts.sleeps} sleeps, {counts.blind_sleeps} blind", flush=True)
        assert counts.blind_sleeps == 0 and (who == "client" or counts.sleeps > 0), (who, counts)


def connecting_clients_die(world: World) -> None:
    """Clients that are killed by each of their first datagrams. What UCX keeps of them it forgets later: see the_node_lives."""
    for number in range(DATAGRAMS_MAX):
        said = world.penstock("ping", VERBS_FILTER_DIE=str(number))
        if said.popen.returncode == 0 and number >= DATAGRAMS_MIN:
            break
        assert said.popen.returncode == CLIENT_DIED, (number, said.log())
        world.died_s = time.monotonic()
    world.ping()


def moving_clients_die(world: World) -> None:
    """Clients that are killed in the middle of transfers; the values of others stay what they are."""
    for number in range(6):
        client = world.bench("get" if number % 2 else "put", "--seconds", "300")
        wait_until("the client moves values", lambda: client.counts().posted["send"] > 20 + number or not client.alive())
        assert client.alive(), client.log()
        client.kill()
    world.ping()


def the_cable_is_cut(world: World) -> None:
    """In the middle of a transfer: the client's calls end, and later clients get what is there, over the same cable."""
    world.put_file()
    for operation in ("put", "get"):
        client = world.bench(operation, "--seconds", str(CUT_S), "--timeout", "5000")
        wait_until("the client moves values", lambda: client.counts().posted["send"] > 30 or not client.alive())
        assert client.alive(), client.log()
        cut(world.here)
        try:
            status = client.wait(CUT_S_MAX)
        finally:
            mend(world.here)
        assert status > 0, (status, client.log())  # an error, not a signal
        world.ping()
    world.get_file()


def the_node_lives(world: World) -> None:
    """Through all of that, and when UCX has given up what killed clients had begun."""
    wait_until("UCX has given up", lambda: time.monotonic() > world.died_s + UD_TIMEOUT_S + 5 or not world.node.alive())
    assert world.node.alive(), world.node.log()
    world.ping()
    log = world.node.log()
    assert "shared memory" not in log, log
    assert world.node.stop() == 0, log


# ---- a pool ----


def pool_of(world: World) -> Pool:
    if not world.pool:
        assert not world.pool_tried, "there is no pool"
        world.pool_tried = True
        world.pool = Pool(world)
    return world.pool


def pool_has_two_copies(world: World) -> None:
    """Of values of all sizes, each of which either node has."""
    pool = pool_of(world)
    for size in POOL_SIZES:
        (FOLDER / "value").write_bytes(os.urandom(size))
        said = pool.penstock("--json", "put", f"copied/{size}", str(FOLDER / "value"))
        assert said.popen.returncode == 0 and json.loads(said.log())["copies"] == 2, said.log()
        said = pool.penstock("get", f"copied/{size}", str(FOLDER / "value.back"))
        assert said.popen.returncode == 0, said.log()
        assert (FOLDER / "value").read_bytes() == (FOLDER / "value.back").read_bytes()
    assert [node.counts().posted["read"] > 0 for node in pool.nodes] == [True, True]


def pool_member_is_killed(world: World) -> None:
    """In the middle of transfers; then another takes its place and gets copies of all."""
    pool = pool_of(world)
    writers = pool.write()
    pool.nodes[0].kill()
    pool.judge(writers)
    pool.nodes[0] = pool.node(world.here)
    pool.settle()


def pool_cable_is_cut(world: World) -> None:
    """In the middle of transfers; then the node that was away is a member again."""
    pool = pool_of(world)
    writers = pool.write()
    cut(world.here)
    try:
        pool.judge(writers)
    finally:
        mend(world.here)
    pool.settle()
    assert [node.alive() for node in pool.nodes] == [True, True]
    for size in POOL_SIZES:
        said = pool.penstock("get", f"copied/{size}", str(FOLDER / "value.back"))
        assert said.popen.returncode == 0 and (FOLDER / "value.back").stat().st_size == size, said.log()


def pool_ends(world: World) -> None:
    """Each of its processes by itself."""
    pool = pool_of(world)
    assert [process.stop() for process in (*pool.nodes, pool.master)] == [0, 0, 0]


CASES: tuple[Callable[[World], None], ...] = (connecting_clients_die, values, files, no_sleep_is_blind, moving_clients_die,
                                              the_cable_is_cut, the_node_lives, pool_has_two_copies,
                                              pool_member_is_killed, pool_cable_is_cut, pool_ends)


def main() -> int:
    only = [name for name in sys.argv[1].split(",") if name]
    world = World()
    passed = failed = 0
    for case in CASES:
        if only and case.__name__ not in only:
            continue
        begun = time.monotonic()
        try:
            case(world)
            passed += 1
            print(f"ok     {case.__name__} ({time.monotonic() - begun:.0f} s)", flush=True)
        except Exception:  # whatever it is, the next case runs
            failed += 1
            print(f"FAILED {case.__name__} ({time.monotonic() - begun:.0f} s)\n{traceback.format_exc()[-3000:]}\n"
                  f"  the node's log ends:\n{world.node.log()[-500:]}", flush=True)
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
