"""The soaks of values on disk: the log by itself, which is killed, cut off, failed and damaged."""

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


def runs(*names: str) -> Callable[[Stage, Order], Findings]:
    """A soak of these runs of soak_log, with the same time for each."""
    def soak(stage: Stage, order: Order) -> Findings:
        findings = Findings()
        for name in names:
            ms = int(order.for_s * 1000 / len(names))
            command = [stage.program("soak_log"), name, str(stage.folder / name), str(order.seed),
                       str(ms), *([order.plant] if order.plant else [])]
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False,
                                      timeout=ms / 1000 + END_S_MAX, stdin=subprocess.DEVNULL)
            except subprocess.TimeoutExpired:
                findings.fault(f"{name} does not end")
                continue
            counts = closing_line(findings, name, done)
            findings.add(counts)
            findings.add({name: counts.get("checked", 0)})
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
    Soak("crash_points", "a log on disk whose process is killed, whose disk forgets what was not synced",
         ("amnesia", "byte"), runs("kill", "cut")),
    Soak("bit_flips", "a log on disk with bits turned in its segments", ("byte",), runs("flips")),
    Soak("disk_faults", "a log on disk whose reads, writes and syncs fail", ("byte",), runs("faults")),
    Soak("recovery", f"{RECOVERY_MIB >> 10} GiB of values on disk, found again within {RECOVERY_S_MAX:g} s",
         ("lost",), recovery),
)
