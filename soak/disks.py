# SPDX-License-Identifier: Apache-2.0
"""The soaks of values on disk: a node, an embedded store and the log by itself, killed, cut off, failed, damaged."""

import json
import subprocess
from collections.abc import Callable

from procs import BenchError, Stage, closing
from soaks import Findings, Order, Soak

MIB = 1 << 20
END_S_MAX = 120.0
RECOVERY_MIB = 10 << 10
RECOVERY_S_MAX = 10.0
RECOVERY_MIB_S = 1000  # of a short run: what is written in a second or so
VALUE_BYTES = 2 * MIB
FAULTY = "tests/faulty/penstockd"  # a node with fault points, in builds without them
DEPTH = 4


def closing_line(findings: Findings, name: str, done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """The figures that a program printed last; without any it is a violation."""
    told, counts = closing(done.stdout)
    if told:
        print("\n".join(told), flush=True)
    if counts is None:
        findings.fault(f"{name} ended with {done.returncode}: {done.stderr.strip()}")
        return {}
    if done.returncode not in (0, 1) or (done.returncode == 1) != bool(counts["violations"]):
        findings.fault(f"{name} ended with {done.returncode}")
    return counts


def command_of(stage: Stage, order: Order, program: str, name: str, ms: int) -> list[str]:
    """One run of soak_tier, a store with an SSD, or of soak_log, the log alone."""
    plain, faulty = stage.program("penstockd"), stage.build / FAULTY
    nodes = [plain, str(faulty) if faulty.exists() else plain] if program == "soak_tier" else []
    return [stage.program(program), name, str(stage.folder / f"{program}-{name}"), str(order.seed), str(ms), *nodes,
            *([order.plant] if order.plant else [])]


def runs(*shares: tuple[str, str, float]) -> Callable[[Stage, Order], Findings]:
    """A soak of these runs of these programs, with these shares of the time."""
    def soak(stage: Stage, order: Order) -> Findings:
        findings = Findings()
        for program, name, share in shares:
            ms = int(order.for_s * 1000 * share)
            try:
                done = subprocess.run(command_of(stage, order, program, name, ms), capture_output=True,
                                      text=True, check=False, timeout=ms / 1000 + END_S_MAX,
                                      stdin=subprocess.DEVNULL)
            except subprocess.TimeoutExpired:
                findings.fault(f"{program} {name} does not end")
                continue
            counts = closing_line(findings, f"{program} {name}", done)
            findings.add(counts)
            if program == "soak_log":
                findings.add({f"log_{name}": counts.get("checked", 0)})
        return findings
    return soak


def recovery(stage: Stage, order: Order) -> Findings:
    """Values written, the log closed in the midst of a segment, and all of them found again."""
    findings = Findings()
    mib = min(RECOVERY_MIB, int(order.for_s * RECOVERY_MIB_S))
    done = subprocess.run([stage.program("log_figures"), str(stage.folder / "log"), str(mib),
                           str(VALUE_BYTES), str(DEPTH), "", *([order.plant] if order.plant else [])],
                          capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode not in (0, 1) or not done.stdout:
        raise BenchError(done.stderr.strip() or f"log_figures ended with {done.returncode}")
    told = json.loads(done.stdout)
    findings.add({"checked": told["values"], "found": told["found"], "mib": mib,
                  "recovery_ms": int(told["recovery_s"] * 1000)})
    if told["found"] != told["values"]:
        findings.fault(f"{told['values']} values were flushed, {told['found']} found")
    findings.expect("recovery_ms", int(told["recovery_s"] * 1000), int(RECOVERY_S_MAX * 1000))
    return findings


SOAKS = (
    Soak("crash_points", "a node with an SSD that is killed, a store whose disk forgets what was not synced",
         ("amnesia", "byte"), runs(("soak_tier", "kill", 0.7), ("soak_tier", "cut", 0.1),
                                   ("soak_log", "kill", 0.1), ("soak_log", "cut", 0.1))),
    Soak("bit_flips", "a node with bits turned on its SSD", ("byte",),
         runs(("soak_tier", "flips", 0.8), ("soak_log", "flips", 0.2))),
    Soak("disk_faults", "a node and a store whose disk's reads, writes and syncs fail", ("byte",),
         runs(("soak_tier", "faults", 0.8), ("soak_log", "faults", 0.2))),
    Soak("recovery", f"{RECOVERY_MIB >> 10} GiB of values on disk, found again within {RECOVERY_S_MAX:g} s",
         ("lost",), recovery),
)
