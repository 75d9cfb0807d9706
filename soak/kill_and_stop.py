# SPDX-License-Identifier: Apache-2.0
"""The soaks that kill and stop: actors, a node, and what is done to them while they act."""

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

from actors import LIFE_S_MAX, Actor, Cast
from history import FOCUSES
from node import Node
from procs import BenchError, Process, Stage, run
from soaks import MIB, SETTLE_S_MAX, Findings, Order, Soak, check_empty, check_end, settled

DRAM_BYTES = 48 * MIB
SHARDS = 2
OPTIONS = ("--page-size", "64K", "--class", "c/=cache")
LANES = ("tcp", "local")


def descriptors(node: Node) -> Counter[str]:
    """What the node's descriptors are, each socket with its addresses and its state."""
    proc = Path(f"/proc/{node.process.pid}")
    sockets = {}
    for table, inode, *fields in (("tcp", 9, 1, 2, 3), ("tcp6", 9, 1, 2, 3), ("unix", 6, 4, 5, 7)):
        for line in (proc / "net" / table).read_text().splitlines()[1:]:
            words = line.split()
            told = " ".join(words[field] for field in fields if field < len(words))
            sockets[f"socket:[{words[inode]}]"] = f"{table} {told}"
    open_now: Counter[str] = Counter()
    for entry in (proc / "fd").iterdir():
        try:
            target = os.readlink(entry)
        except FileNotFoundError:
            continue
        open_now[sockets.get(target, target)] += 1
    return open_now


def check_exact(node: Node, findings: Findings) -> None:
    """The node's figures against a count of what it lists; of one that has died the end tells."""
    if node.process.popen.poll() is not None:
        return
    stat = settled(node, ("pinned",))
    findings.expect("pinned", stat["pinned"], 0)
    findings.expect("sessions", stat["sessions"], 1)
    if findings.violations:
        return  # what is wrong has been told, and the rest would only follow from it
    listed = [json.loads(line) for line in
              run([node.client, "ls", "--url", node.urls["local"], "--json"]).splitlines()]
    counted = {"keys": len(listed), "value_bytes": sum(entry["bytes"] for entry in listed),
               "cache_keys": sum(entry["class"] == "cache" for entry in listed)}
    for name, count in counted.items():
        findings.add({"checked": 1})
        if stat[name] != count:
            findings.fault(f"the node counts {stat[name]} {name}, but lists {count}")
    run([node.client, "clear", "--url", node.urls["local"]])
    check_empty(node, findings)


def check_descriptors(node: Node, findings: Findings, before: Counter[str]) -> None:
    """All descriptors that clients cost are back, but for receive buffers, which a UCX port that had
    use for them keeps."""
    if findings.violations or node.process.popen.poll() is not None:
        return
    limits = (others(before), before.total() - others(before) + RECEIVE_BUFFERS_MAX * SHARDS)
    deadline = time.monotonic() + SETTLE_S_MAX
    while True:
        now = descriptors(node)
        good = others(now) <= limits[0] and now.total() - others(now) <= limits[1]
        if good or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    findings.add({"checked": 1})
    if not good:
        findings.fault(f"{now.total()} descriptors, {before.total()} before; new: "
                       f"{', '.join((now - before).elements())}; gone: "
                       f"{', '.join((before - now).elements())}")


def others(open_now: Counter[str]) -> int:
    """How many descriptors are not UCX's memory for messages."""
    return sum(count for name, count in open_now.items() if "/ucx_shm_posix_" not in name)


# ---- kill_clients

RECEIVE_BUFFERS_MAX = 2  # that a port gets beyond those that it opens with
VICTIMS = 6
FLOODS = 3
KILLS = 1000
LIVES_S = (0.0, 0.08)


def flood(stage: Stage, node: Node, *more: object) -> Process:
    """A client with many large values on their way to it over TCP: most of a node's writes are cut short there."""
    command = [node.client, "bench", "--url", node.urls["tcp"], "--size", MIB, "--keys", 8, "--batch", 1,
               "--inflight", 16, *more]
    return stage.start([str(word) for word in command])


def kill_clients(stage: Stage, order: Order) -> Findings:
    """Clients that are killed in the middle of what they do, and others that go on working."""
    findings, dice = Findings(), random.Random(order.seed)
    node = Node(stage, DRAM_BYTES, SHARDS, *OPTIONS)
    node.stat()
    before = descriptors(node)
    cast = Cast(stage, node.urls, order, findings)
    steady = [cast.enter(lane, pause_us=1000, timeout_ms=20000) for lane in LANES]
    victims: list[Actor] = []
    flood(stage, node, "--op", "put", "--fill").popen.wait()
    floods = [flood(stage, node, "--op", "get", "--seconds", LIFE_S_MAX) for _ in range(FLOODS)]
    deadline = time.monotonic() + order.for_s
    serial = 0
    while findings.counts.get("kills", 0) < KILLS and time.monotonic() < deadline:
        while len(victims) < VICTIMS:
            focus, lane = FOCUSES[1 + serial % (len(FOCUSES) - 1)], LANES[serial // 5 % 2]
            victims.append(cast.enter("local" if focus == "view" else lane, focus=focus))
            serial += 1
        victim = victims.pop(0)
        victim.await_begin()
        time.sleep(dice.uniform(*LIVES_S))
        cast.kill(victim)
        floods.pop(0).stop()
        findings.add({"kills": 1, "killed_flood": 1})
        floods.append(flood(stage, node, "--op", "get", "--seconds", LIFE_S_MAX))
    for process in floods:
        process.stop()
    for victim in victims:
        victim.await_begin()
    if order.plant == "leak":
        victims.pop().send(signal.SIGSTOP)
    for victim in victims:
        cast.kill(victim)
    cast.bow(steady)
    cast.judge([])
    check_exact(node, findings)
    if order.plant == "descriptor":  # one of the first counts as new
        before.subtract([name for name in before if "eventfd" in name][:1])
    check_descriptors(node, findings, before)
    check_end(node, findings)
    return findings


# ---- stop_clients

STOPPED = 6
STOPS = 100
STOP_S = (0.05, 4.0)
STOPPED_TIMEOUT_MS = 1500


def stop_clients(stage: Stage, order: Order) -> Findings:
    """Clients that are stopped in the middle of what they do and go on later."""
    findings, dice = Findings(), random.Random(order.seed)
    node = Node(stage, DRAM_BYTES, SHARDS, *OPTIONS)
    cast = Cast(stage, node.urls, order, findings)
    crew = [cast.enter("tcp" if i % 3 == 2 else "local", timeout_ms=STOPPED_TIMEOUT_MS)
            for i in range(STOPPED)]
    calm = [cast.enter(lane, pause_us=1000, timeout_ms=20000, calm=1) for lane in LANES]
    for actor in (*crew, *calm):
        actor.await_begin()
    deadline, stopped = time.monotonic() + order.for_s, {}
    longest = min(STOP_S[1], order.for_s / 2)
    while stopped or (findings.counts.get("stops", 0) < STOPS and time.monotonic() < deadline):
        now = time.monotonic()
        for actor in [actor for actor, until in stopped.items() if now >= until]:
            actor.send(signal.SIGCONT)
            del stopped[actor]
        awake = [actor for actor in crew if actor not in stopped]
        if len(awake) > STOPPED // 2 and now < deadline and findings.counts.get("stops", 0) < STOPS:
            actor = dice.choice(awake)
            actor.send(signal.SIGSTOP)
            stopped[actor] = now + dice.uniform(STOP_S[0], longest)
            findings.add({"stops": 1})
        time.sleep(0.02)
    cast.bow(crew)
    cast.bow(calm)
    cast.judge([])
    check_exact(node, findings)
    check_end(node, findings)
    return findings


# ---- kill_node

CLIENTS = 8
NODE_KILLS = 200
NODE_LIFE_S = (0.05, 1.0)
KILLED_TIMEOUT_MS = 3000
CARRY_ON_S = 20.0


def carry_on(actors: list[Actor], since_ns: int, findings: Findings, cast: Cast) -> None:
    """Every actor works with the last node by itself; they end as soon as all do."""
    time.sleep(1.0)
    for number, history in enumerate(cast.bow(actors)):
        done = sum(op.begun > since_ns and op.told for ops in history.ops.values() for op in ops)
        findings.add({"checked": 1})
        if not done:
            findings.fault(f"client {number} has done nothing since the last restart")


def kill_node(stage: Stage, order: Order) -> Findings:
    """A node that is killed and started again, and clients that keep their handles."""
    findings, dice = Findings(), random.Random(order.seed)
    node = Node(stage, DRAM_BYTES, SHARDS, *OPTIONS)
    cast = Cast(stage, node.urls, order, findings)
    actors = cast.enter_all(CLIENTS, pause_us=2000, timeout_ms=KILLED_TIMEOUT_MS)
    resets: list[tuple[int, int]] = []
    deadline = time.monotonic() + order.for_s
    while len(resets) < NODE_KILLS and time.monotonic() < deadline:
        time.sleep(dice.uniform(*NODE_LIFE_S))
        begun = time.monotonic_ns()
        if node.process.popen.poll() is not None:
            raise BenchError(f"the node ended by itself: {node.process.said()}")
        node.process.popen.kill()
        node.process.popen.wait()
        resets.append((begun, time.monotonic_ns()))
        node.start_again()
    findings.add({"kills": len(resets)})
    carry_on(actors, time.monotonic_ns(), findings, cast)
    cast.judge(resets)
    check_exact(node, findings)
    check_end(node, findings)
    return findings


# ---- linearizable


def linearizable(stage: Stage, order: Order) -> Findings:
    """Clients that are left alone: one order explains all that they were told."""
    findings = Findings()
    node = Node(stage, DRAM_BYTES, SHARDS, *OPTIONS)
    cast = Cast(stage, node.urls, order, findings)
    actors = cast.enter_all(CLIENTS, pause_us=2000, calm=1, timeout_ms=20000)
    time.sleep(order.for_s)
    cast.bow(actors)
    cast.judge([])
    check_exact(node, findings)
    check_end(node, findings)
    return findings


SOAKS = (
    Soak("kill_clients", "1000 clients killed in the middle of puts, gets and views; others work",
         ("torn", "leak", "descriptor"), kill_clients),
    Soak("stop_clients", "clients stopped 100 times and continued; others work",
         ("view", "late"), stop_clients),
    Soak("kill_node", "a node killed and restarted 200 times under 8 clients",
         ("lost", "late"), kill_node),
    Soak("linearizable", "8 clients on shared keys; all that they were told fits one order",
         ("stale", "lost", "torn"), linearizable),
)
