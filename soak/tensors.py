# SPDX-License-Identifier: Apache-2.0
"""The soak tensors: owners of tensors, those who take them, their agents, the store and a node are killed and stopped all the time.

Three of them move tensors from GPU to GPU, by libraries that stand in for NVIDIA's.
"""

import collections
import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from descriptors import memfds_of
from ports import free_port
from procs import BenchError, Process, Stage, run
from soaks import MIB, Findings, Order, Soak
from store_rig import CRASHES, Store

ROOT = Path(__file__).parent.parent
CLIENT = Path(__file__).parent / "tensors_client.py"
FAULTS_MAX = 300
BOUND_S, PLANTED_BOUND_S = 90, 4  # of a call
PODS = ("127.0.78.1", "127.0.78.2", "127.0.78.3")
PAUSE_S, AWAY_S, STOPPED_S = (0.05, 0.5), (0.0, 0.3), (0.05, 2.5)
GIVEN_BACK_S_MAX = 30.0
QUIET_S_MAX = 60.0
NODE_BYTES = 256 * MIB
# Which process runs in which pod.
CREW = (("owner", 0), ("taker", 0), ("taker", 0), ("getter", 1), ("getter", 1), ("getter", 2), ("publisher", None), ("subscriber", None),
        ("sender", 0), ("filler", 1), ("filler", 2))
WORDS = {"checked": "checked", "put": "puts", "published": "published", "sent": "sent", "failed": "failed"}
KINDS = ("attached", "held", "got", "filled", "updated", "moved")
NO_NCCL_SHARE = 0.3  # of the agents' lives


def library_folder(stage: Stage) -> Path:
    """Where the libraries of a GPU are that this machine does not have."""
    return stage.build / "tests" / "unit"


class Agent:
    """A pod's agent; its socket and port stay when it is started again."""

    def __init__(self, stage: Stage, ip: str, dice: random.Random) -> None:
        self._stage, self.ip, self._port, self._dice = stage, ip, free_port(), dice
        self.socket = stage.folder / f"{ip}.sock"
        self.start()

    def start(self) -> None:
        """Sometimes it has no NCCL. Raises BenchError when it is not ready in time."""
        libraries = [str(library_folder(self._stage))]
        if self._dice.random() < NO_NCCL_SHARE:
            broken = self._stage.folder / "no-nccl"
            broken.mkdir(exist_ok=True)
            (broken / "libnccl.so.2").touch()
            libraries.insert(0, str(broken))
        self.process = self._stage.start([self._stage.program("penstockd"), "--role=agent", f"--agent-socket={self.socket}",
                                          f"--agent-listen={self.ip}:{self._port}", "--rsync-port=0"],
                                         {"LD_LIBRARY_PATH": ":".join(libraries)})
        self.process.wait_text("agent: ready")

    def restart(self, away_s: float) -> None:
        """By SIGKILL; raises BenchError when it has ended by itself."""
        if self.process.popen.poll() is not None:
            raise BenchError(f"the agent of {self.ip} ended by itself: {self.process.said()}")
        self.process.kill()
        time.sleep(away_s)
        self.start()

    def memories(self) -> int:
        """How many memories of tensors it has."""
        return memfds_of(self.process.pid, "penstock-t")


def movers_of(pid: int) -> list[int]:
    """The agent's children that move tensors."""
    found = []
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            found += [int(child) for child in path.read_text().split() if b"--move-tensors" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return found


class NodeOfWeights:
    """A node without a disk; its socket stays when it is started again, its values do not."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._socket = stage, stage.folder / "node.sock"
        self.url = f"node+unix://{self._socket}"
        self.start()

    def start(self) -> None:
        """Raises BenchError when it is not ready in time."""
        self.process = self._stage.start([self._stage.program("penstockd"), f"--dram={NODE_BYTES}", f"--unix={self._socket}"])
        self.process.wait_text("listening on")

    def restart(self, away_s: float) -> None:
        """By SIGKILL; raises BenchError when it has ended by itself."""
        if self.process.popen.poll() is not None:
            raise BenchError(f"the node ended by itself: {self.process.said()}")
        self.process.kill()
        time.sleep(away_s)
        self.start()


class Scene:
    """All processes of the soak."""

    def __init__(self, stage: Stage, order: Order) -> None:
        self._stage, self._order = stage, order
        self._python = run([str(ROOT / "ci/venv"), "lean", "tests/python/requirements.txt"]).strip()
        self.findings = Findings()
        self.dice = random.Random(order.seed)
        self.store = Store(stage, stage.folder / "data")
        self.agents = [Agent(stage, ip, self.dice) for ip in PODS]
        self.node = NodeOfWeights(stage)
        self.crew: list[Process] = [self._start(place) for place in range(len(CREW))]
        self._ended: list[Process] = []

    def _start(self, place: int) -> Process:
        role, pod = CREW[place]
        agent = self.agents[pod or 0]
        bound_s = PLANTED_BOUND_S if self._order.plant == "late" else BOUND_S
        env = {"PYTHONPATH": f"{self._stage.build / 'python'}:{ROOT / 'tests' / 'lib'}", "PENSTOCK_BUILD": str(self._stage.build),
               "LD_LIBRARY_PATH": str(library_folder(self._stage)), "POD_IP": agent.ip, "PENSTOCK_AGENT_SOCKET": str(agent.socket),
               "PENSTOCK_PENSTOCKD": "/bin/false",  # agents are the driver's to start
               "PENSTOCK_DATA_URL": f"http://127.0.0.1:{self.store.http_port}", "PENSTOCK_DATA_RSYNC": f"127.0.0.1:{self.store.rsync_port}"}
        return self._stage.start([self._python, "-X", "faulthandler", str(CLIENT), role, str(self._order.seed), str(bound_s),
                                  self._order.plant or "none", self.node.url], env, kill=True)

    def kill_one(self) -> None:
        """One of the crew, and another takes its place."""
        place = self.dice.randrange(len(CREW))
        self.end(place)
        self.crew[place] = self._start(place)

    def end(self, place: int) -> None:
        """It must have lived until now."""
        process = self.crew[place]
        code = process.popen.poll()
        if code is not None:
            said = "crashes" if code in CRASHES else f"ended with {code}"
            self.findings.fault(f"a {CREW[place][0]} {said}: {process.said()}")
        process.kill()
        self._ended.append(process)

    def look(self) -> None:
        """Whoever has ended by itself is replaced."""
        for place, process in enumerate(self.crew):
            if process.popen.poll() is not None:
                self.end(place)
                self.crew[place] = self._start(place)

    def kill_mover(self) -> None:
        """A process that moves tensors by NCCL, if there is one."""
        for agent in self.agents:
            for pid in movers_of(agent.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                return

    def stop_one(self, stopped_s: float) -> None:
        """One of the crew, or an agent, stands still for a moment."""
        process = self.dice.choice([*self.crew, *(agent.process for agent in self.agents)])
        if process.popen.poll() is not None:
            return
        process.popen.send_signal(signal.SIGSTOP)
        time.sleep(stopped_s)
        process.popen.send_signal(signal.SIGCONT)

    def told(self) -> collections.Counter[str]:
        """What the crew has said so far, by its words, and of what it has checked."""
        counts: collections.Counter[str] = collections.Counter()
        for process in {id(process): process for process in (*self._ended, *self.crew)}.values():
            for line in process.text().splitlines():
                word, _, rest = line.partition(" ")
                counts[word] += 1
                counts[f"{word} {rest}"] += 1
        return counts

    def close(self) -> None:
        """Ends the crew; what it has said counts."""
        for place in range(len(CREW)):
            if not (self._order.plant == "leak" and CREW[place][0] == "owner"):
                self.end(place)
        counts = self.told()
        self.findings.add({name: counts[word] for word, name in WORDS.items()})
        self.findings.add({kind: counts[f"checked {kind}"] for kind in KINDS})
        for text in (key.partition(" ")[2] for key in counts if key.startswith("violation ")):
            if text:
                self.findings.fault(text)


def faults_of(scene: Scene) -> tuple[Callable[[], None], ...]:
    """What can be done to the scene."""
    def away(restart: Callable[[float], None]) -> None:
        restart(scene.dice.uniform(*AWAY_S))

    def restart_store(away_s: float) -> None:
        scene.store.kill()
        time.sleep(away_s)
        scene.store.start()

    return (scene.kill_one, scene.kill_one, scene.kill_one, scene.kill_mover, lambda: scene.stop_one(scene.dice.uniform(*STOPPED_S)),
            lambda: away(scene.dice.choice(scene.agents).restart), lambda: away(scene.node.restart), lambda: away(restart_store))


def disturb(scene: Scene, order: Order) -> None:
    """One fault after the other, until the time is over or there were FAULTS_MAX."""
    deadline, made, kinds = time.monotonic() + order.for_s, 0, faults_of(scene)
    while made < FAULTS_MAX and time.monotonic() < deadline:
        time.sleep(scene.dice.uniform(*PAUSE_S))
        scene.look()
        (kinds[made] if made < len(kinds) else scene.dice.choice(kinds))()
        made += 1
    scene.findings.add({"faults": made})


def settle(scene: Scene) -> None:
    """Once nothing is done to them any more, all that is shared arrives everywhere."""
    before, deadline = scene.told(), time.monotonic() + QUIET_S_MAX
    missing = list(KINDS)
    while missing and time.monotonic() < deadline:
        time.sleep(0.2)
        scene.look()
        now = scene.told()
        missing = [kind for kind in KINDS if now[f"checked {kind}"] <= before[f"checked {kind}"]]
    scene.findings.add({"checked": 1})
    if missing:
        scene.findings.fault(f"{QUIET_S_MAX:.0f} s after the last fault nothing is {' or '.join(missing)}")


def give_back(scene: Scene) -> None:
    """All processes have ended: the agents have none of their memory."""
    deadline = time.monotonic() + GIVEN_BACK_S_MAX
    for agent in scene.agents:
        while agent.memories() > 0 and time.monotonic() < deadline:
            time.sleep(0.1)
        scene.findings.expect(f"memories of {agent.ip}'s agent", agent.memories(), 0)
        agent.process.stop()
        if agent.process.popen.returncode:
            scene.findings.fault(f"the agent of {agent.ip} ended with {agent.process.popen.returncode}: {agent.process.said()}")


def tensors(stage: Stage, order: Order) -> Findings:
    """No wrong byte, no mixture, no call without an end, and all memory is given back."""
    scene = Scene(stage, order)
    try:
        disturb(scene, order)
        settle(scene)
        scene.close()
        give_back(scene)
    except BenchError as error:
        scene.findings.fault(f"the store, the node or an agent does not come back: {error}")
    return scene.findings


SOAKS = (
    Soak("tensors", f"owners and takers of tensors in three pods, their agents, a store and a node are killed and stopped {FAULTS_MAX} times",
         ("byte", "torn", "stale", "late", "crash", "leak"), tensors),
)
