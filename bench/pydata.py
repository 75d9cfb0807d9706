# SPDX-License-Identifier: Apache-2.0
"""Arrays and state dicts in Python, against what people use instead; both sides in one process of the full environment."""

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from node import GIB, Node
from peers import Cache
from procs import BenchError, Stage, run

PROGRAM = Path(__file__).parent / "peers" / "data_calls.py"
ROOT = Path(__file__).parent.parent
ARRAY_BYTES = 256 << 20
STATE_BYTES = 1 << 30


@contextmanager
def _asked(command: list[str], env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """The program, which ends with its input."""
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    try:
        yield program
    finally:
        program.stdin.close()
        try:
            program.wait(10)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()


def against(name: str, total_bytes: int) -> Callable[[Stage], tuple]:
    """What takes one side's B/s of a figure that moves `total_bytes`, or its us with none."""
    def prepare(stage: Stage) -> tuple[Callable[[], float], Callable[[], float]]:
        python = run([str(ROOT / "ci" / "venv"), "full", "tests/python/requirements-full.txt"]).strip()
        url = "" if name == "tensor_handoff" else Node(stage, 2 * GIB).urls["local"]
        folder = stage.keep(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="penstock-bench-"))
        socket = Cache(stage, "redis").addresses["local"] if name.endswith("fsspec") else ""
        agent = stage.folder / "agent.sock"
        if name == "tensor_handoff":
            stage.start([stage.program("penstockd"), "--role", "agent", "--agent-socket", str(agent), "--agent-listen", "127.0.0.1:0",
                         "--rsync-port", "0"]).wait_text("agent: ready")
        env = {"PENSTOCK_AGENT_SOCKET": str(agent), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(stage.build / "python"), "HOME": str(stage.folder)}
        program = stage.keep(_asked([python, "-W", "ignore", str(PROGRAM), name, url, folder, socket], env))

        def take(side: str) -> float:
            print(side, file=program.stdin, flush=True)
            try:
                seconds = json.loads(program.stdout.readline())
            except ValueError:
                raise BenchError(f"{PROGRAM.name} {name} ended") from None
            return total_bytes / seconds if total_bytes else seconds * 1e6

        for line in program.stdout:  # ray has a word to say
            if line == "ready\n":
                return lambda: take("ours"), lambda: take("peer")
        raise BenchError(f"{PROGRAM.name} {name} ended")
    return prepare
