# SPDX-License-Identifier: Apache-2.0
"""Machines that share the wire and nothing else: namespaces of one kernel, on a bridge.

Each has a network, IPC and PID namespace of its own and its own /dev/shm, so that no memory crosses. Root may make them.
A process that is started there is the first of its PID namespace: what it leaves goes with it. Whoever started it ends it by SIGKILL,
since unshare(1), which stands in between, keeps other signals from it.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

BURST_BYTES = 128 << 10
CUTS = ("down", "mute")
NOWHERE = "02:00:00:00:00:00"  # an address of no machine's
# Of a full packet, link layer and all, as tc counts, what TCP carries: behind headers with time stamps.
PAYLOAD_SHARE = 1448 / 1514
WITHIN = ("unshare", "--ipc", "--pid", "--mount-proc", "--fork", "--kill-child", "sh", "-c",
          'mount -t tmpfs penstock /dev/shm && exec "$@"', "sh")


class Machine:
    """A machine with an address and a cable to the switch.

    Attributes
    ----------
    host : str
        Its address.
    within : tuple[str, ...]
        What to put in front of a command that is to run there.
    signalled : tuple[str, ...]
        The same for one that is to get signals: it has a network and IPC namespace, and its PID is known here.
    """

    def __init__(self, number: int, switch: str) -> None:
        self.host = f"10.77.77.{number}"
        self.name = f"psd-{os.getpid()}-{number}"
        self.within = ("ip", "netns", "exec", self.name, *WITHIN)
        self.signalled = ("ip", "netns", "exec", self.name, "unshare", "--ipc")
        self._ends = ((self.name, "eth0"), (switch, f"port{number}"))

    def connect(self) -> None:
        """Make its namespace and plug the cable in."""
        (_, device), (switch, port) = self._ends
        call(f"ip netns add {self.name}")
        call(f"ip -n {self.name} link add {device} type veth peer name {port} netns {switch}")
        call(f"ip -n {switch} link set {port} master bridge up")
        call(f"ip -n {self.name} address add {self.host}/24 dev {device}")
        call(f"ip -n {self.name} link set lo up")
        call(f"ip -n {self.name} link set {device} up")

    def shape(self, bits_per_s: int, queue_ms: int) -> None:
        """Let the cable carry so much either way, and keep what comes faster for so long before it is dropped."""
        for name, device in self._ends:
            call(f"tc -n {name} qdisc replace dev {device} root tbf rate {bits_per_s}bit burst {BURST_BYTES} "
                 f"latency {queue_ms}ms")

    def cut(self, how: str, others: Sequence["Machine"]) -> None:
        """Nothing gets through, silently: "down", in neither direction; "mute", from here to the others."""
        if how == "down":
            call("ip -n {} link set {} down".format(*self._ends[1]))
        for other in others if how == "mute" else ():
            call(f"ip -n {self.name} neigh replace {other.host} lladdr {NOWHERE} dev eth0 nud permanent")

    def mend(self, how: str, others: Sequence["Machine"]) -> None:
        """Undo that."""
        if how == "down":
            call("ip -n {} link set {} up".format(*self._ends[1]))
        for other in others if how == "mute" else ():
            call(f"ip -n {self.name} neigh del {other.host} dev eth0")


def call(command: str) -> str:
    """Run a command of plain words; what it prints."""
    return subprocess.run(command.split(), check=True, capture_output=True, text=True).stdout


def refused() -> str:
    """Why there can be no such machines here; empty: there can."""
    if os.geteuid() != 0:
        return "only root may make namespaces"
    name = f"psd-{os.getpid()}-try"
    try:
        call(f"ip netns add {name}")
        call(f"ip netns del {name}")
        call("unshare --ipc --pid --mount-proc --fork true")
    except (OSError, subprocess.CalledProcessError) as error:
        return f"namespaces are not to be had here: {error}"
    return ""


def remove_stale() -> None:
    """Remove what a process made that was killed before it could."""
    for name in re.findall(r"^psd-\d+-\S+", call("ip netns list"), re.MULTILINE):
        if not os.path.exists(f"/proc/{name.split('-')[1]}"):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@contextmanager
def network(count: int) -> Iterator[list[Machine]]:
    """So many machines on one switch, until the context is left."""
    switch = f"psd-{os.getpid()}-switch"
    made = [Machine(number, switch) for number in range(1, count + 1)]
    remove_stale()
    with ExitStack() as stack:
        for name in (switch, *(machine.name for machine in made)):
            stack.callback(subprocess.run, ["ip", "netns", "del", name], check=False, capture_output=True)
        call(f"ip netns add {switch}")
        call(f"ip -n {switch} link add bridge type bridge")
        call(f"ip -n {switch} link set bridge up")
        for machine in made:
            machine.connect()
        yield made
