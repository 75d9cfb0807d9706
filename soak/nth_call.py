# SPDX-License-Identifier: Apache-2.0
"""The soak fail_nth: each operation with its Nth allocation and its Nth system call failing."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from procs import BenchError, Process, Stage, closing, said
from soaks import Findings, Order, Soak

CALLS_MAX = 5000
START_S_MAX = 60.0
MODES = ("hard", "interrupted")
VALUE = bytes(range(256)) * 40
OTHER_EXIT = 7  # an outcome that is not known is one of these
EMBEDDED = "mem:?dram=8M&page_size=64K&shards=2"


class Cli:
    """The commands, built so that one of their own calls fails."""

    def __init__(self, stage: Stage, url: str) -> None:
        self.url = url
        self.program = stage.program("penstock_nth_call")
        self.report = stage.folder / "report"
        self.end = 0.0
        self.complete = 0

    def run(self, arguments: list[str], nth: int, mode: str, stdin: bytes = b"",
            url: str | None = None) -> tuple[int, bytes, str]:
        """Exit status, standard output and error of a command whose `nth` call fails; 0: none does."""
        self.report.unlink(missing_ok=True)
        more = {"FAIL_NTH": str(nth), "FAIL_MODE": mode, "FAIL_REPORT": str(self.report)} if nth else {}
        done = subprocess.run([self.program, "--url", url or self.url, *arguments], input=stdin, capture_output=True,
                              timeout=60, check=False, env=os.environ | more)
        return done.returncode, done.stdout, done.stderr.decode(errors="replace")

    def hit(self) -> bool:
        """Whether a call of the last command failed; one that was killed counts as such."""
        return not self.report.exists() or self.report.read_text().startswith("1")

    def name(self) -> str:
        """What the last command's report says of the call."""
        return self.report.read_text().strip() if self.report.exists() else "no report"


def every_call(cli: Cli) -> Iterator[tuple[str, int]]:
    """Modes and numbers, until no call fails any more or the time is over."""
    for mode in MODES:
        for nth in range(1, CALLS_MAX):
            if time.monotonic() > cli.end:
                return
            yield mode, nth
            if not cli.hit():
                break
    cli.complete += 1


def judge(findings: Findings, cli: Cli, what: str, code: int, error: str, nth: int) -> bool:
    """Whether a command ended by itself and with a word where it failed."""
    findings.add({"checked": 1, "failed_calls": int(cli.hit())})
    where = f"{what}, call {nth} ({cli.name()})"
    if code < 0:
        findings.fault(f"{where}: ended by signal {-code}: {said(error)}")
    elif code and not error.strip():
        findings.fault(f"{where}: exit {code} without a word")
    elif code and not cli.hit():
        findings.fault(f"{where}: exit {code} though nothing failed: {said(error)}")
    return code == 0


def put(findings: Findings, cli: Cli) -> None:
    """`penstock put`: what it says has become of the value is so."""
    for mode, nth in every_call(cli):
        code, _, error = cli.run(["put", "key"], 0, mode, b"before")
        if code:
            raise BenchError(f"a put that nothing disturbs ends with {code}: {said(error)}")
        code, _, error = cli.run(["put", "key"], nth, mode, VALUE)
        judge(findings, cli, "put", code, error, nth)
        name = cli.name()
        _, now, _ = cli.run(["get", "key"], 0, mode)
        if code == 0 and now != VALUE:
            findings.fault(f"put, call {nth} ({name}): said to be done and is not")
        elif now not in (VALUE, b"before"):
            findings.fault(f"put, call {nth} ({name}): {len(now)} bytes that nobody put")
        elif code not in (0, OTHER_EXIT) and now != b"before":
            findings.fault(f"put, call {nth} ({name}): exit {code}, and it is done: {said(error)}")


def get(findings: Findings, cli: Cli) -> None:
    """`penstock get`: what it prints with success is the value."""
    cli.run(["put", "key"], 0, MODES[0], VALUE)
    for mode, nth in every_call(cli):
        code, out, error = cli.run(["get", "key"], nth, mode)
        if judge(findings, cli, "get", code, error, nth) and out != VALUE:
            findings.fault(f"get, call {nth} ({cli.name()}): success with {len(out)} of {len(VALUE)} bytes")


def daemon(findings: Findings, cli: Cli, stage: Stage) -> None:
    """penstockd starts and serves, or ends with a word and leaves nothing behind."""
    folder = stage.folder / "arenas"
    folder.mkdir()
    socket = stage.folder / "daemon.sock"
    for mode, nth in every_call(cli):
        cli.report.unlink(missing_ok=True)
        with stage.sub() as own:
            process = own.start([
                stage.program("penstockd_nth_call"), "--unix", str(socket), "--dram", "4M", "--page-size", "64K",
                "--shards", "1", "--folder", str(folder)],
                env={"FAIL_NTH": str(nth), "FAIL_MODE": mode, "FAIL_REPORT": str(cli.report)})
            started = await_start(process, findings, nth)
            # The call that fails may be one for the first client: the second is served.
            pings = [started and cli.run(["ping"], 0, mode, url=f"node+unix://{socket}")[0] for _ in range(2)]
            if all(pings):
                findings.fault(f"daemon, call {nth} ({mode}): listens and does not answer")
            if started:
                process.popen.send_signal(signal.SIGTERM)
            code = process.popen.wait(START_S_MAX)
            judge(findings, cli, "daemon", code, process.text(), nth)
            if started and code:
                findings.fault(f"daemon, call {nth} ({cli.name()}): ended with {code}: {process.said()}")
        if left := [path.name for path in folder.iterdir()]:
            findings.fault(f"daemon, call {nth} ({cli.name()}): leaves {left}")


def await_start(process: Process, findings: Findings, nth: int) -> bool:
    """Whether the daemon listens; False when it has ended."""
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        if "listening on" in process.text():
            return True
        if process.popen.poll() is not None:
            return False
        time.sleep(0.01)
    findings.fault(f"daemon, call {nth}: neither starts nor ends")
    process.popen.kill()
    return False


def library(findings: Findings, stage: Stage, order: Order, where: str, folder: Path, end: float) -> None:
    """The public operations, in one process for each kind of store."""
    ms = max(int((end - time.monotonic()) * 1000), 500)
    process = stage.start([stage.program("soak_nth_call"), where, str(folder), str(ms), order.plant or "none"])
    try:
        code = process.popen.wait(ms / 1000 + 200)
    except subprocess.TimeoutExpired:
        findings.fault(f"{where}: does not end: {process.said()}")
        return
    told, counts = closing(process.text())
    for line in told:
        if line.startswith("violation: "):
            print(f"{line} [{where}]", flush=True)
    if counts is None:
        findings.fault(f"{where}: ended with {code}: {process.said()}")
        return
    complete = counts.pop("complete")
    findings.add(counts | {"complete": int(complete), "kinds": 1})


def pool(stage: Stage) -> tuple[str, Process]:
    """URL of a master and a node, for keys with a home but those of batches, which may lie anywhere; and the node."""
    master = stage.start([stage.program("penstockd"), "--role", "master", "--listen", "127.0.0.1:0",
                          "--pool-map", str(stage.folder / "view"), "--place", "many/=anywhere", "--place", "put/=anywhere"])
    address = master.wait_text(r"listening on (127\.0\.0\.1:\d+)")[1]
    node = stage.start([stage.program("penstockd"), "--listen", "127.0.0.1:0", "--dram", "16M", "--page-size", "64K",
                        "--shards", "2", "--master", address])
    node.wait_text("joined as member")
    return f"pool://{address}", node


def fail_nth(stage: Stage, order: Order) -> Findings:
    """Every public operation on every kind of store, a node in the process, a pool, the commands."""
    findings = Findings()
    socket = stage.folder / "node.sock"
    node = stage.start([stage.program("penstockd"), "--listen", "127.0.0.1:0", "--unix", str(socket),
                        "--dram", "16M", "--page-size", "64K", "--shards", "2"])
    port = node.wait_text(r"listening on 127\.0\.0\.1:(\d+)")[1]
    node.wait_text(r"listening on unix:")
    url, member = pool(stage)
    begin = time.monotonic()
    wheres = (EMBEDDED, f"node+unix://{socket}", f"node://127.0.0.1:{port}?lane=tcp", "serve", url)
    for number, where in enumerate(wheres, 1):
        library(findings, stage, order, where, stage.folder, begin + order.for_s * number / 7)
    cli = Cli(stage, f"node+unix://{socket}")
    for number, command in enumerate((put, get), 1):
        cli.end = begin + order.for_s * (10 + number) / 14
        command(findings, cli)
    cli.end = begin + order.for_s
    daemon(findings, cli, stage)
    findings.add({"complete": cli.complete})
    for process in (node, member):
        process.stop()
        if process.popen.returncode != 0:
            findings.fault(f"the node ended with {process.popen.returncode}: {process.said()}")
    return findings


SOAKS = (
    Soak("fail_nth", "each operation with its Nth allocation or system call failing",
         ("leak",), fail_nth),
)
