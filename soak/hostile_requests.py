# SPDX-License-Identifier: Apache-2.0
"""The soak hostile_requests: what sessions that know the secret can say to a node, beside honest ones."""

import time

from hostile_bootstrap import figures, settle
from node import Node
from procs import Process, Stage, run
from soaks import (CHURN_OPTIONS, END_S_MAX, MIB, Findings, Order, Soak, await_client, check_empty,
                   check_service, check_unknown)

REQUESTS = 1_000_000
WARM_REQUESTS = 20_000
HONEST = 2
SHARDS = 2
DRAM_BYTES = 512 * MIB
RSS_SHARE_MAX = 1.25
RSS_MORE_BYTES = 16 * MIB
FILES_MORE = 4  # of UCX's own
SECRET = "a secret for the soak"
LIMITS = ("--quota", "h=48M", "--session-pinned-bytes", "96M", "--session-reservations", "200", "--session-pins", "48",
          "--value-ms", "10000", "--slow-ms", "0")


def honest(stage: Stage, node: Node, order: Order, seconds: float) -> list[Process]:
    """Clients that write, read, delete, list, pin and view keys of their own, and check every byte."""
    program, table = stage.program("soak_churn"), str(stage.folder / "progress")
    return [stage.start([program, str(number), str(HONEST), str(order.seed), str(int(seconds * 1000)), table,
                         "none", node.urls["local"], node.urls["tcp"]]) for number in range(HONEST)]


def storm(stage: Stage, node: Node, seed: int, count: int, seconds: float, plant: str | None) -> Process:
    return stage.start([stage.program("soak_requests"), str(seed), str(count), str(int(seconds * 1000)), SECRET,
                        plant or "none", str(stage.folder / "node.sock")])


def sweep(node: Node) -> None:
    """Takes away what the hostile ones left: their keys, and pins on them that are nobody's any more."""
    run([node.client, "rm", "--prefix", "h", "--url", node.urls["local"]])


def hostile_requests(stage: Stage, order: Order) -> Findings:
    """A million requests of hostile sessions, and honest sessions that see nothing of them."""
    findings = Findings()
    secret = stage.folder / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    node = Node(stage, DRAM_BYTES, SHARDS, *CHURN_OPTIONS, *LIMITS, "--secret-file", str(secret))
    node.urls = {lane: f"{url}{'&' if '?' in url else '?'}secret_file={secret}" for lane, url in node.urls.items()}
    besiege(stage, order, findings, node)
    return findings


def besiege(stage: Stage, order: Order, findings: Findings, node: Node) -> None:
    """The storm, and what must be as before when it is over."""
    deadline = time.monotonic() + order.for_s + END_S_MAX
    figures(storm(stage, node, order.seed + 1, WARM_REQUESTS, order.for_s / 4, None), order.for_s + 30, findings)
    opened, rss = node.process.files(), node.stat()["rss_anon_bytes"]
    clients = honest(stage, node, order, order.for_s)
    hostile = storm(stage, node, order.seed, REQUESTS, order.for_s, order.plant)
    if order.plant == "leak":
        hostile.wait_text(r"hostile_sessions")
    else:
        findings.add(figures(hostile, order.for_s + 30, findings))
    for client in clients:
        await_client(client, findings, deadline)
    if node.process.popen.poll() is None:
        findings.expect("the number of open files", settle(node.process, opened + FILES_MORE), opened + FILES_MORE)
        sweep(node)
        check_empty(node, findings)
        after = node.stat()["rss_anon_bytes"]
        findings.expect("resident memory in kB", after >> 10, int(rss * RSS_SHARE_MAX + RSS_MORE_BYTES) >> 10)
        findings.add({"rss_kb": rss >> 10, "rss_kb_after": after >> 10, "files": opened})
    check_unknown(node, findings, HONEST)
    check_service(node, findings)


SOAKS = (
    Soak("hostile_requests", "10^6 requests of sessions that know the secret and keep to no rule, beside honest ones",
         ("foreign", "leak"), hostile_requests),
)
