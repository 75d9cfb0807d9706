# SPDX-License-Identifier: Apache-2.0
"""The soak hostile_bootstrap: what anyone who reaches a node's bootstrap sockets can say to it."""

import os
import shutil
import subprocess
import time

from procs import BenchError, Process, Stage, closing
from soaks import Findings, Order, Soak

MESSAGES = 1_000_000
WARM_MESSAGES = 5_000
NODE_FILES = 64
RSS_SHARE_MAX = 1.05
SETTLE_S_MAX = 20.0
TALK_S = 0.5
SECRET = "a secret for the soak"
BUSY = ("no room for another session", "no answer in time", "timed out")


class Besieged:
    """A node that may open 64 files, and a genuine client that stays connected to it.

    Parameters
    ----------
    stage : Stage
    order : Order
        Names the leak to plant.
    secret : bool
        Whether the node wants one.
    """

    def __init__(self, stage: Stage, order: Order, secret: bool) -> None:
        self.stage = stage
        self.environment = {}
        more = []
        if secret:
            path = stage.folder / "secret"
            path.write_text(SECRET)
            path.chmod(0o600)
            more = ["--secret-file", str(path)]
            self.environment["PENSTOCK_SECRET_FILE"] = str(path)
        preload = {}
        if order.plant:  # from where no path has a space: the list of what is preloaded cannot hold one
            leak = shutil.copy(stage.program("libsoak_leak.so"), stage.folder)
            preload = {"LD_PRELOAD": str(leak), "SOAK_LEAK": order.plant}
        self.path = str(stage.folder / "node.sock")
        self.node = stage.start([
            "prlimit", f"--nofile={NODE_FILES}:{NODE_FILES}", stage.program("penstockd"),
            "--listen", "127.0.0.1:0", "--unix", self.path, "--dram", "32M", "--shards", "1", *more],
            env=preload)
        self.port = self.node.wait_text(r"listening on 127\.0\.0\.1:(\d+)")[1]
        self.node.wait_text(r"listening on unix:")
        self.url = f"node://127.0.0.1:{self.port}?lane=tcp"
        self.client = stage.program("penstock")
        self.secret = secret

    def ended(self) -> bool:
        return self.node.popen.poll() is not None

    def genuine(self, seconds: int) -> Process:
        """A client that connected before the siege and reads and writes all through it."""
        return self.stage.start([
            self.client, "bench", "--url", self.url, "--op", "put", "--size", "5000",
            "--keys", "100", "--seconds", str(seconds), "--json"], env=self.environment)

    def storm(self, count: int, seconds: float, seed: int) -> Process:
        return self.stage.start([
            self.stage.program("soak_hostile"), str(seed), str(count), str(int(seconds * 1000)),
            SECRET if self.secret else "-", f"127.0.0.1:{self.port}", self.path])

    def ping(self) -> tuple[bool, str]:
        """Whether a client that comes now is served, and what it is told otherwise."""
        done = subprocess.run([self.client, "ping", "--url", self.url], capture_output=True,
                              text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
                              env=os.environ | self.environment)
        return done.returncode == 0, done.stderr.strip()


def figures(process: Process, seconds: float, findings: Findings) -> dict[str, int]:
    """The last line of a process that has to end well within `seconds`."""
    try:
        code = process.popen.wait(seconds)
    except subprocess.TimeoutExpired:
        findings.fault(f"{process.log.name} does not end: {process.text()[-300:]}")
        return {}
    if code != 0:
        findings.fault(f"{process.log.name} ended with {code}: {process.text()[-300:]}")
        return {}
    counts = closing(process.text())[1]
    if counts is None:
        findings.fault(f"{process.log.name} ended without figures: {process.text()[-300:]}")
    return counts or {}


def watch(besieged: Besieged, storm: Process, findings: Findings, deadline: float) -> None:
    """Clients come all through the storm: each is served, or told that there is no room."""
    while storm.popen.poll() is None and time.monotonic() < deadline and not besieged.ended():
        served, told = besieged.ping()
        findings.add({"checked": 1, "served": int(served), "busy": int(not served)})
        if not served and not besieged.ended() and not any(words in told for words in BUSY):
            findings.fault(f"a genuine client is told: {told}")
        time.sleep(TALK_S)


def settle(node: Process, most: int) -> int:
    """Open files of a node once they are `most` at the most, within SETTLE_S_MAX."""
    deadline = time.monotonic() + SETTLE_S_MAX
    while (now := node.files()) > most and time.monotonic() < deadline:
        time.sleep(0.1)
    return now


def quiet(besieged: Besieged) -> int:
    """Open files of a node that nobody talks to: the same for a second."""
    deadline, since, last = time.monotonic() + SETTLE_S_MAX, time.monotonic(), besieged.node.files()
    while time.monotonic() < min(deadline, since + 1.0):
        time.sleep(0.1)
        if (now := besieged.node.files()) != last:
            last, since = now, time.monotonic()
    return last


def end_genuine(genuine: Process, findings: Findings) -> None:
    """The client that was connected from the beginning has been served to the end."""
    code = genuine.popen.poll()
    if code is None:
        genuine.stop()
    elif code != 0:
        findings.fault(f"the client that was connected ended with {code}: {genuine.text()[-300:]}")


def siege(stage: Stage, order: Order, secret: bool, findings: Findings) -> None:
    """One node, half of the messages."""
    besieged, seconds, kind = Besieged(stage, order, secret), order.for_s / 2, "secret" if secret else "open"
    served, told = besieged.ping()
    if not served:
        raise BenchError(f"no genuine client is served: {told}")
    files = quiet(besieged)
    figures(besieged.storm(WARM_MESSAGES, seconds, order.seed + 1), seconds + 30, findings)
    if besieged.ended():
        findings.fault(f"the node has ended: {besieged.node.text()[-500:]}")
        return
    rss = besieged.node.rss_bytes()
    genuine = besieged.genuine(int(seconds) + 60)
    storm = besieged.storm(MESSAGES // 2, seconds, order.seed)
    watch(besieged, storm, findings, time.monotonic() + seconds + 60)
    said = figures(storm, 60, findings)
    findings.add(said | {"checked": sum(said.values()), "messages": sum(said.values())})
    end_genuine(genuine, findings)
    if besieged.ended():
        findings.fault(f"the node has ended: {besieged.node.text()[-500:]}")
        return
    findings.expect("the number of open files", settle(besieged.node, files), files)
    after = besieged.node.rss_bytes()
    findings.expect("resident memory in kB", after >> 10, int(rss * RSS_SHARE_MAX) >> 10)
    findings.add({f"rss_kb_{kind}": rss >> 10, f"rss_kb_{kind}_after": after >> 10})
    served, told = besieged.ping()
    if not served:
        findings.fault(f"nobody is served any more: {told}")
    besieged.node.stop()
    if besieged.node.popen.returncode != 0:
        findings.fault(f"the node ended with {besieged.node.popen.returncode}: {besieged.node.text()[-500:]}")


def hostile_bootstrap(stage: Stage, order: Order) -> Findings:
    """A million hostile messages to the sockets of two nodes, one of which has a secret."""
    findings = Findings()
    for secret in (False, True):
        with stage.sub() as own:
            siege(own, order, secret, findings)
    return findings


SOAKS = (
    Soak("hostile_bootstrap", "10^6 hostile messages to nodes that may open 64 files",
         ("descriptor", "memory"), hostile_bootstrap),
)
