# SPDX-License-Identifier: Apache-2.0
"""Processes that offer a tree from where it lies, and are killed: their agent and, after its lease, the store forget them."""

import http.client
import itertools
import shutil
import struct
import sys
import time
from pathlib import Path

from procs import BenchError, Process
from store_scene import Observer, Scene, judge, known
from store_work import FRONT
from tree_versions import write_version

FORGET_S_MAX = 10.0  # the agent promises five seconds
LEASE_S = 3600.0  # of a source at the store
HOLD = "print('offered', flush=True)\nsys.stdin.read()\n"
OTHER_IP = "127.0.77.2"


class Offers:
    """A pod with an agent, and another one that fetches what it offers."""

    def __init__(self, scene: Scene, observer: Observer) -> None:
        self._scene, self._observer = scene, observer
        self._environment = {"POD_IP": scene.agent.ip, "POD_NAME": "pod", "PENSTOCK_AGENT_SOCKET": str(scene.agent.socket),
                             "PENSTOCK_AGENT_PORT": str(scene.agent.port)}

    def run(self) -> None:
        """One offer after the other until the faults are over, and one at the least."""
        ended = 0
        try:
            for turn in itertools.count(1):
                ended += self._offer(f"offer-{turn}", fetched_late=turn % 2 == 0)
                if self._scene.gone.is_set() or (ended and self._scene.over.is_set()):
                    return
        except (BenchError, OSError) as error:
            if not self._scene.gone.is_set():
                self._scene.fault(f"offers: {error}")

    def _offer(self, name: str, fetched_late: bool) -> bool:
        """Whether it was made, and ended. Half of them nobody fetches once they are dead: nobody tells the store of those."""
        folder = self._scene.stage.folder / name
        write_version(self._scene.order.seed, name, 1, folder)
        read = self._scene.clock.read()
        holder = self._hold(name, folder)
        if holder is None:
            return False
        code = self._fetch(name)
        if code and self._scene.clock.calm_since(read):
            self._scene.fault(f"{name} cannot be fetched from where it is offered, though nothing was done to it")
        if not self._scene.plants("stale-offer"):
            holder.kill()
        self._await_end(name, holder)
        self._scene.orphans.append(name)
        self._scene.count(checked=1, offers_ended=1)
        if fetched_late:
            self._fetch(name)
        return True

    def _hold(self, name: str, folder: Path) -> Process | None:
        """A process that offers the folder; None when the store was away just then."""
        read = self._scene.clock.read()
        code = f"{FRONT}ds.put({name!r}, {str(folder)!r}, locale='local', contents=True)\n{HOLD}"
        process = self._scene.stage.start([sys.executable, "-c", code], self._scene.python_environment(**self._environment),
                                           hold_stdin=True, kill=True)
        try:
            process.wait_text("^offered")
        except BenchError as error:
            if self._scene.clock.calm_since(read):
                self._scene.fault(f"{name} cannot be offered: {error}")
            process.kill()
            return None
        return process

    def _await_end(self, name: str, holder: Process) -> None:
        """Until the agent lists the holder no longer."""
        deadline = time.monotonic() + FORGET_S_MAX
        while self._lists(holder.pid):
            if time.monotonic() > deadline:
                self._scene.fault(f"the agent still lists {name} {FORGET_S_MAX:.0f} s after its process was to have died")
                holder.kill()
                return
            time.sleep(0.05)

    def _fetch(self, name: str) -> int:
        """The exit status. Whether it succeeds or not: what appears is whole, and it ends."""
        folder = self._scene.places / "fetched"
        folder.mkdir()
        out = folder / name
        with self._observer.watching(out, known(name, 1)):
            code = f"{FRONT}ds.get({name!r}, {str(out)!r}, contents=True)"
            outcome = self._scene.call("get of an offer", [sys.executable, "-c", code],
                                       **self._environment | {"POD_IP": OTHER_IP, "POD_NAME": "other"})
            there = judge(self._scene, out, known(name, 1))
        if outcome.code == 0 and not there:
            self._scene.fault(f"get of {name} has succeeded, and nothing is at {out}")
        self._scene.count(checked=1, offer_gets=int(outcome.code == 0), failed_offer_gets=int(outcome.code != 0))
        shutil.rmtree(folder)
        return outcome.code

    def _lists(self, pid: int) -> bool:
        """Whether the agent lists something of a process; it may while it is away."""
        try:
            return any(each["pid"] == pid for each in self._scene.agent.ask("list_keys")["keys"])
        except (OSError, struct.error):
            return True


def is_listed(scene: Scene, name: str) -> bool:
    """Whether the store names a source of a key."""
    try:
        return bool(scene.store.ask("GET", name)[1].get("sources"))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise BenchError(f"the store does not say who has {name}: {error}") from error
