# SPDX-License-Identifier: Apache-2.0
"""The soak of restarts that lose nothing: a node that keeps its memory is killed over and over under clients."""

import hashlib
import random
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from actors import Cast
from kill_and_stop import CLIENTS, DRAM_BYTES, KILLED_TIMEOUT_MS, NODE_LIFE_S, OPTIONS, carry_on, check_exact
from node import GIB, Node
from procs import BenchError, Stage, run
from soaks import Findings, Order, Soak, check_end

KILLS = 200
SHARDS_MAX = 4
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGABRT, signal.SIGTERM)
FOUND = r"keep \S+: (\d+) keys, (\d+) bytes found in (\d+) ms; (\d+) dropped, (\d+) moved"
MILLION = 1_000_000
MILLION_FROM_S = 20.0  # shorter runs leave the million keys out


def keeping(folder: str) -> tuple[str, ...]:
    """Options of a node whose memory lies in a folder of its own, so that it goes with that."""
    return ("--folder", folder, "--keep", "soak")


def end(node: Node, number: signal.Signals) -> None:
    """End the node, and wait until it has gone."""
    if node.process.popen.poll() is not None:
        raise BenchError(f"the node ended by itself: {node.process.said()}")
    node.process.popen.send_signal(number)
    node.process.popen.wait(60)


def found(node: Node) -> dict[str, int]:
    """What the node says that it took over."""
    told = node.process.wait_text(FOUND)
    names = ("keys", "bytes", "ms", "dropped", "moved")
    return {name: int(told[i + 1]) for i, name in enumerate(names)}


def kill_and_restart(stage: Stage, order: Order, findings: Findings, folder: str) -> None:
    """Clients keep their handles; what they were told must fit one store that was never restarted."""
    dice = random.Random(order.seed)
    node = Node(stage, DRAM_BYTES, 2, *OPTIONS, *keeping(folder))
    cast = Cast(stage, node.urls, replace(order, plant=None if order.plant == "cold" else order.plant), findings)
    actors = cast.enter_all(CLIENTS, pause_us=2000, timeout_ms=KILLED_TIMEOUT_MS)
    deadline, kills = time.monotonic() + order.for_s, 0
    while kills < KILLS and time.monotonic() < deadline:
        time.sleep(dice.uniform(*NODE_LIFE_S))
        end(node, dice.choice(SIGNALS))
        kills += 1
        if order.plant == "cold" and kills == 2:
            for path in Path(folder).glob("*.kept"):
                path.unlink()
            node.start_again()
            continue
        node.start_again("--shards", str(dice.randint(1, SHARDS_MAX)))
        findings.add(told := {f"found_{name}": count for name, count in found(node).items()})
        findings.expect("dropped", told["found_dropped"], 0)
    findings.add({"kills": kills})
    carry_on(actors, time.monotonic_ns(), findings, cast)
    cast.judge([])
    end(node, signal.SIGTERM)  # pages at which clients of earlier nodes looked are free from the next one on
    node.start_again()
    check_exact(node, findings)
    check_end(node, findings)


def digest(node: Node) -> str:
    """Of all that the node stores, keys and values in order, as `penstock dump` writes it."""
    with subprocess.Popen([node.client, "dump", "--url", node.urls["local"]], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as dump:
        assert dump.stdout
        made = hashlib.file_digest(dump.stdout, "sha256").hexdigest()
    if dump.returncode:
        raise BenchError(f"penstock dump ended with {dump.returncode}")
    return made


def million_keys(stage: Stage, findings: Findings, folder: str) -> None:
    """A killed node of 4 GiB: all of its keys are back, byte for byte, and how long that took."""
    node = Node(stage, 4 * GIB, 2, *keeping(folder))
    node.fill("local", 64, MILLION, 128)
    run([node.client, "put", "--url", node.urls["local"], "large", node.client])
    before, times = digest(node), []
    for _ in range(3):
        end(node, signal.SIGKILL)
        node.start_again()
        times.append(found(node)["ms"])
    findings.expect("keys missing", MILLION + 1 - node.stat()["keys"], 0)
    findings.add({"checked": MILLION, "million_keys_ms": sorted(times)[1]})
    if digest(node) != before:
        findings.fault("a million keys came back other than they were")
    check_end(node, findings)


def warm_restart(stage: Stage, order: Order) -> Findings:
    """A node with --keep that is killed and started again, with other numbers of shards."""
    findings = Findings()
    folder = stage.keep(TemporaryDirectory(dir="/dev/shm", prefix="penstock-soak-"))
    kill_and_restart(stage, order, findings, folder)
    if order.for_s >= MILLION_FROM_S:
        million_keys(stage, findings, stage.keep(TemporaryDirectory(dir="/dev/shm", prefix="penstock-soak-")))
    return findings


SOAKS = (
    Soak("warm_restart", "a node with --keep killed and restarted 200 times under 8 clients: nothing is lost",
         ("cold", "lost"), warm_restart),
)
