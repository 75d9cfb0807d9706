# SPDX-License-Identifier: Apache-2.0
"""Two machines' worth of soft RoCE in one kernel: a device each, with a cable to a switch, and processes that use one of the two.

The devices live in one network namespace, since soft RoCE of Linux 6.12 knows only the first. Rules of routing see to it that
what goes from one address to the other leaves by the cable, as if the addresses were two machines'.
"""
from __future__ import annotations

import collections
import os
import pathlib
import re
import struct
import subprocess
import time
from typing import Callable, NamedTuple

BUILD = pathlib.Path(os.environ["PENSTOCK_BUILD"])
FILTER = os.environ["VERBS_FILTER"]
FOLDER = pathlib.Path("/run/rdma")
SECRET = FOLDER / "secret"
COUNTS = FOLDER / "counts"
MODULES = ("crc32_generic", "ib_uverbs", "rdma_rxe", "veth", "bridge")
MTU = 4200  # room for packets of 4 KiB
WAIT_S = 240  # an emulated machine on a busy one
OPCODES = ("write", "write_imm", "send", "send_imm", "read", "swap", "add", "opcode7")
COUNTED = struct.Struct(f"{2 * len(OPCODES) + 3}L")


def call(command: str) -> str:
    """Runs a command of plain words; what it prints."""
    done = subprocess.run(command.split(), capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def wait_until(what: str, test: Callable[[], object], seconds: float = WAIT_S) -> None:
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)


class Counts(NamedTuple):
    """What verbs_filter.c has counted of a process."""

    posted: collections.Counter[str]
    bytes: collections.Counter[str]
    datagrams: int
    sleeps: int
    blind_sleeps: int


def counts_of(pid: int) -> Counts:
    path = COUNTS / str(pid)
    numbers = COUNTED.unpack(path.read_bytes()) if path.exists() else (0,) * (2 * len(OPCODES) + 3)
    kinds = len(OPCODES)
    return Counts(collections.Counter(dict(zip(OPCODES, numbers))), collections.Counter(dict(zip(OPCODES, numbers[kinds:]))),
                  *numbers[2 * kinds:])


class Host:
    """One of the machines: a device, an address, and the environment of processes there."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.address = f"10.1.0.{number + 1}"
        self.device, self.port, self.rdma = f"v{number}", f"p{number}", f"rxe{number}"
        self.environment = {
            "PENSTOCK_TRANSPORT": "ucx",  # a slow hello is waited for
            "UCX_TLS": "rc_verbs,ud_verbs",
            "UCX_NET_DEVICES": f"{self.rdma}:1",
            # UCX reads the kind of a datagram from where hardware of one maker puts it, and soft RoCE nothing.
            "UCX_UD_ETH_DGID_CHECK": "n",
            "LD_PRELOAD": FILTER,
            "VERBS_FILTER_FOLDER": str(COUNTS),
            "VERBS_FILTER_ADDRESS": self.address,
            "PYTHONPATH": os.environ["PYTHONPATH"],
        }

    def url(self, port: int) -> str:
        return f"node://{self.address}:{port}?fabric=trusted&secret_file={SECRET}&connect_ms=60000"

    def start(self, program: str | pathlib.Path, *arguments: str, log: str, stdin: int = subprocess.DEVNULL,
              **environment: str) -> Process:
        return Process([str(program), *arguments], FOLDER / log, {**os.environ, **self.environment, **environment}, stdin)

    def node(self, name: str, *arguments: str, port: int) -> Process:
        """A penstockd that serves on the trusted fabric."""
        node = self.start(BUILD / "penstockd", "--listen", f"{self.address}:{port}", "--dram=64M", "--fabric=trusted",
                          f"--secret-file={SECRET}", *arguments, log=f"{name}.log")
        node.wait_for("listening on")
        return node

    def run(self, program: str | pathlib.Path, *arguments: str, log: str = "client.log", seconds: float = WAIT_S,
            **environment: str) -> Process:
        """A process to its end."""
        process = self.start(program, *arguments, log=log, **environment)
        process.wait(seconds)
        return process


class Process:
    """A process of a host, and what it has printed."""

    def __init__(self, command: list[str], log: pathlib.Path, environment: dict[str, str], stdin: int) -> None:
        self.path = log
        with log.open("wb") as out:
            self.popen = subprocess.Popen(command, stdin=stdin, stdout=out, stderr=subprocess.STDOUT, env=environment)
        self.pid = self.popen.pid

    def log(self) -> str:
        return self.path.read_text(errors="replace")

    def alive(self) -> bool:
        return self.popen.poll() is None

    def counts(self) -> Counts:
        return counts_of(self.pid)

    def wait_for(self, pattern: str, seconds: float = WAIT_S) -> None:
        wait_until(f"{pattern!r} in the log", lambda: re.search(pattern, self.log()) or not self.alive(), seconds)
        assert re.search(pattern, self.log()), self.log()

    def wait(self, seconds: float = WAIT_S) -> int:
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.path.name}: has not ended within {seconds} s: {self.log()[-2000:]}") from None

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def stop(self) -> int:
        self.popen.terminate()
        return self.wait()


def active(host: Host) -> bool:
    port = pathlib.Path(f"/sys/class/infiniband/{host.rdma}/ports/1")
    gids = [gid.read_text().strip() for gid in (port / "gids").iterdir()]
    mapped = "".join(f"{int(part):02x}" for part in host.address.split("."))
    return "ACTIVE" in (port / "state").read_text() and any(gid.replace(":", "").endswith(mapped) for gid in gids)


def lay_cables() -> tuple[Host, Host]:
    """The two hosts, each with a cable to one switch."""
    hosts = Host(0), Host(1)
    for module in MODULES:
        call(f"modprobe {module}")
    call(f"ip link add switch mtu {MTU} type bridge")
    call("ip link set switch up")
    pathlib.Path("/proc/sys/net/ipv4/conf/all/rp_filter").write_text("0")
    call("ip rule add pref 100 lookup local")
    call("ip rule del pref 0")
    for host in hosts:
        call(f"ip link add {host.device} mtu {MTU} type veth peer name {host.port} mtu {MTU}")
        call(f"ip link set {host.port} master switch up")
        call(f"ip address add {host.address}/24 dev {host.device}")
        call(f"ip link set {host.device} up")
        settings = pathlib.Path(f"/proc/sys/net/ipv4/conf/{host.device}")
        (settings / "rp_filter").write_text("0")
        (settings / "accept_local").write_text("1")
    for host, other in (hosts, hosts[::-1]):
        mac = pathlib.Path(f"/sys/class/net/{other.device}/address").read_text().strip()
        table = 101 + host.number
        call(f"ip neighbour replace {other.address} lladdr {mac} dev {host.device} nud permanent")
        call(f"ip route add {other.address} dev {host.device} src {host.address} table {table}")
        call(f"ip rule add pref {10 + host.number} from {host.address} to {other.address} iif lo lookup {table}")
        call(f"rdma link add {host.rdma} type rxe netdev {host.device}")
    for host in hosts:
        wait_until(f"{host.rdma} is active", lambda: active(host))
    return hosts


def cut(host: Host) -> None:
    """At the switch, which loses the port: nothing reaches the host or leaves it any more.

    The host's own link stays up: when it goes down, soft RoCE fails datagrams that are underway, and UCX aborts over that.
    """
    call(f"ip link set {host.port} nomaster")


def mend(host: Host) -> None:
    call(f"ip link set {host.port} master switch")
