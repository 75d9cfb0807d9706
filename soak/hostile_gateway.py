# SPDX-License-Identifier: Apache-2.0
"""The soak hostile_gateway: what anyone who reaches penstockd --tsgrpc can say to it, beside clients that behave."""

import json
import shutil
import sys
import time
from pathlib import Path

from hostile_bootstrap import figures, quiet, settle
from procs import Process, Stage, run
from soaks import Findings, Order, Soak, await_client

FRAMES = 1_000_000
WARM_FRAMES = 20_000
WARM_S = 8.0
HONEST = 2
STALL_MS = 4000
RSS_BYTES_MAX = 80 << 20  # that the node may have more after the storm: 64 MiB of it are kept for large writes
SETTLE_S_MAX = 20.0  # more than a call's headers may take, and a stall
FOLDER = Path(__file__).resolve().parent


class Gateway:
    """A node with a gateway that has little patience; the fault that is planted, if any."""

    def __init__(self, stage: Stage, order: Order) -> None:
        self.stage = stage
        self.client = stage.program("penstock")
        self.path = str(stage.folder / "node.sock")
        environment = {"MALLOC_MMAP_THRESHOLD_": str(64 << 10)}  # what connections and calls had goes back, and can be seen to
        if order.plant == "descriptor":
            leak = shutil.copy(stage.program("libsoak_leak.so"), stage.folder)
            environment |= {"LD_PRELOAD": str(leak), "SOAK_LEAK": order.plant}
        stall_ms = 3_600_000 if order.plant == "stall" else STALL_MS
        self.node = stage.start([
            stage.program("penstockd"), "--unix", self.path, "--dram", "512M", "--shards", "2", "--tsgrpc", "127.0.0.1:0",
            "--tsgrpc-stall-ms", str(stall_ms)], env=environment)
        self.port = self.node.wait_text(r"tsgrpc: listening on 127\.0\.0\.1:(\d+)")[1]

    def ended(self) -> bool:
        return self.node.popen.poll() is not None

    def stat(self) -> dict[str, int]:
        return json.loads(run([self.client, "stat", "--url", f"node+unix://{self.path}", "--json"]))

    def start(self, program: str, *arguments: object) -> Process:
        return self.stage.start([sys.executable, "-B", str(FOLDER / program), "127.0.0.1", self.port, *map(str, arguments)],
                                env={"PYTHONPATH": str(FOLDER.parent / "tests/lib")})

    def hostile(self, seed: int, frames: int, seconds: float) -> Process:
        return self.start("gateway_hostile.py", seed, frames, int(seconds * 1000))

    def honest(self, which: int, order: Order, seconds: float) -> Process:
        plant = order.plant if which == 0 and order.plant == "byte" else "none"
        return self.start("gateway_honest.py", order.seed + which, int(seconds * 1000), f"honest{which}/", plant)


def let_go(gateway: Gateway, findings: Findings, when: str) -> None:
    """Nothing is pinned, and no reservation taken, once a stall's time has gone by without anyone who moves."""
    deadline = time.monotonic() + SETTLE_S_MAX
    while True:
        stat = gateway.stat()
        left = {name: stat[name] for name in ("pinned_bytes", "reservations")}
        if not any(left.values()) or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    for name, value in left.items():
        findings.expect(f"{name} {when}", value, 0)


def hold_still(gateway: Gateway, findings: Findings) -> None:
    """Clients that ask for much, take nothing and go on talking: what they pin is free again in time."""
    sys.path.insert(0, str(FOLDER))
    from gateway_hostile import BIG, WIDE
    from http2 import WINDOW_UPDATE, Peer, frame, number, read

    peers = [Peer("127.0.0.1", int(gateway.port), WIDE + read(1, BIG)) for _ in range(8)]
    deadline = time.monotonic() + SETTLE_S_MAX
    seen = 0
    while (pinned := gateway.stat()["pinned_bytes"]) or not seen:
        seen = max(seen, pinned)
        if time.monotonic() > deadline:
            break
        for peer in peers:
            peer.send(frame(WINDOW_UPDATE, 0, 0, number(1)))
        time.sleep(0.02)
    findings.expect("pinned_bytes of those that take nothing", pinned, 0)
    findings.add({"pinned_bytes_most": seen})
    for peer in peers:
        peer.close()


def storm(gateway: Gateway, order: Order, findings: Findings) -> None:
    """The hostile client and the honest ones, until the storm is over."""
    honest = [gateway.honest(which, order, order.for_s) for which in range(HONEST)]
    hostile = gateway.hostile(order.seed, FRAMES, order.for_s)
    deadline = time.monotonic() + order.for_s + 60
    most = 0
    while hostile.popen.poll() is None and not gateway.ended() and time.monotonic() < deadline:
        most = max(most, gateway.node.rss_bytes("RssAnon"))
        time.sleep(0.2)
    findings.add(figures(hostile, 60, findings))
    findings.add({"rss_kb_most": most >> 10})
    for client in honest:
        await_client(client, findings, deadline)
    if not findings.counts.get("reads") or not findings.counts.get("writes"):
        findings.fault("no honest client was served")


def hostile_gateway(stage: Stage, order: Order) -> Findings:
    """Up to a million hostile frames; the node lives, is bounded, and others' values are what they were."""
    findings = Findings()
    gateway = Gateway(stage, order)
    figures(gateway.hostile(order.seed + 1, WARM_FRAMES, WARM_S), WARM_S + 60, findings)
    if not gateway.ended():
        let_go(gateway, findings, "after the first storm")
        files, rss = quiet(gateway), gateway.node.rss_bytes("RssAnon")
        storm(gateway, order, findings)
    if not gateway.ended():
        hold_still(gateway, findings)
        let_go(gateway, findings, "after the storm")
        findings.expect("the number of open files", settle(gateway.node, files), files)
        after = gateway.node.rss_bytes("RssAnon")
        findings.expect("memory in kB", after >> 10, (rss + RSS_BYTES_MAX) >> 10)
        findings.add({"rss_kb": rss >> 10, "rss_kb_after": after >> 10, "files": files})
    if gateway.ended():
        findings.fault(f"the node has ended: {gateway.node.text()[-500:]}")
        return findings
    gateway.node.stop()
    if gateway.node.popen.returncode != 0:
        findings.fault(f"the node ended with {gateway.node.popen.returncode}: {gateway.node.text()[-500:]}")
    return findings


SOAKS = (
    Soak("hostile_gateway", "10^6 hostile HTTP/2 frames, with stalls, to penstockd --tsgrpc beside honest clients",
         ("stall", "byte", "descriptor"), hostile_gateway),
)
