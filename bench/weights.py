# SPDX-License-Identifier: Apache-2.0
"""Weights from a trainer to four receivers, each a machine of its own, on links of 1 Gbit/s either way.

The time is that from the trainer's put until the last receiver has all tensors, beside what the links take at the least, or gloo.
"""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from networks import Machine, network, refused
from procs import BenchError, Stage, run

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "bench/peers/weights_calls.py"
MIB = 1 << 20
PUBLISH_BYTES, GLOO_BYTES = 1024 * MIB, 128 * MIB
LINK_BITS_PER_S, QUEUE_MS = 1_000_000_000, 5
RECEIVERS = 4
STORE_PORT, GLOO_PORT = 8081, 29500

Takers = tuple[Callable[[], float], Callable[[], float]]


class Crew:
    """Processes on machines, the first of which has the weights."""

    def __init__(self, stage: Stage, python: str, machines: list[Machine], roles: list[list[str]], envs: list[dict[str, str]]) -> None:
        self._processes = [subprocess.Popen([*machine.signalled, python, "-W", "ignore", str(PROGRAM), *role], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, text=True, env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **env})
                           for machine, role, env in zip(machines, roles, envs)]
        for process in self._processes:
            stage.keep(process)
            stage.keep(Ended(process))
        self._hear("ready\n")

    def _hear(self, wanted: str = "") -> list[str]:
        said = []
        for process in self._processes:
            assert process.stdout
            line = process.stdout.readline()
            while wanted and line and line != wanted:  # gloo has a word to say
                line = process.stdout.readline()
            said.append(line)
        if not all(said):
            raise BenchError(f"{PROGRAM.name}: a process has ended")
        return said

    def _ask(self, line: str) -> list[str]:
        for process in self._processes:
            print(line, file=process.stdin, flush=True)
        return self._hear()

    def take(self) -> float:
        """Seconds of one broadcast; what has come is compared."""
        begin = time.monotonic()
        self._ask("go")
        seconds = time.monotonic() - begin
        if len(set(self._ask("sum"))) != 1:
            raise BenchError("what has come differs from what was sent")
        self._ask("next")
        return seconds


class Ended:
    """Kills a process at the end."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __enter__(self) -> "Ended":
        return self

    def __exit__(self, *unused: object) -> None:
        self._process.kill()


def ours(stage: Stage, python: str, machines: list[Machine], size: int) -> Crew:
    """A store that tells where the weights are, and an agent on each machine."""
    trainer, *_ = machines
    stage.start([*trainer.signalled, stage.program("penstockd"), "--role", "store", "--data", str(stage.folder / "data"), "--http",
                 f"{trainer.host}:{STORE_PORT}", "--http-network", "--rsync-port", "8730"]).wait_text("store: ready")
    envs = []
    for machine in machines:
        socket = str(stage.folder / f"{machine.host}.sock")
        stage.start([*machine.signalled, stage.program("penstockd"), "--role", "agent", "--agent-socket", socket, "--agent-listen",
                     f"{machine.host}:29400", "--agent-network", "--rsync-port", "0"]).wait_text("agent: ready")
        envs.append({"PENSTOCK_DATA_URL": f"http://{trainer.host}:{STORE_PORT}", "PENSTOCK_DATA_RSYNC": f"{trainer.host}:8730",
                     "PENSTOCK_AGENT_SOCKET": socket, "POD_IP": machine.host, "PYTHONPATH": str(stage.build / "python")})
    return Crew(stage, python, machines, [["trainer", str(size)], *[["receiver"]] * RECEIVERS], envs)


def machines_of(stage: Stage) -> list[Machine]:
    """The trainer's, and the receivers'."""
    if why := refused():
        raise BenchError(why)
    machines: list[Machine] = stage.keep(network(RECEIVERS + 1))
    return machines


def shape(machines: list[Machine]) -> None:
    """From now on the links carry no more than they are to."""
    for machine in machines:
        machine.shape(LINK_BITS_PER_S, QUEUE_MS)


def publish(stage: Stage) -> Takers:
    """1 GiB in 64 tensors, against the time of as many bytes over one link."""
    machines = machines_of(stage)
    crew = ours(stage, run([str(ROOT / "ci/venv"), "lean", "tests/python/requirements.txt"]).strip(), machines, PUBLISH_BYTES)
    shape(machines)
    return crew.take, lambda: PUBLISH_BYTES * 8 / LINK_BITS_PER_S


def against_gloo(stage: Stage) -> Takers:
    """128 MiB, against torch.distributed's broadcast of one tensor over the same links."""
    machines = machines_of(stage)
    python = run([str(ROOT / "ci/venv"), "full", "tests/python/requirements-full.txt"]).strip()
    crew = ours(stage, python, machines, GLOO_BYTES)
    env = {"MASTER_ADDR": machines[0].host, "MASTER_PORT": str(GLOO_PORT), "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
    peer = Crew(stage, python, machines, [["gloo", str(rank), str(RECEIVERS + 1), str(GLOO_BYTES)] for rank in range(RECEIVERS + 1)],
                [env] * (RECEIVERS + 1))
    shape(machines)
    return crew.take, peer.take
