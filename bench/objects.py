# SPDX-License-Identifier: Apache-2.0
"""Objects of S3: boto3 against penstockd --s3, and against moto's server, which keeps objects in memory as well."""

from collections.abc import Callable
from pathlib import Path

from node import GIB, Node
from ports import free_port
from procs import Stage, run, run_json

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "bench" / "peers" / "s3_peer.py"
RUN_S = 2


def against_moto(what: str, size: int) -> Callable[[Stage], tuple]:
    """Gets or puts of `size` bytes, one after the other, by the same program.

    rclone's `serve s3` would be another peer; Debian's rclone is too old to have it.
    """
    def prepare(stage: Stage) -> tuple[Callable[[], float], Callable[[], float]]:
        python = run([str(ROOT / "ci" / "venv"), "s3-bench", "bench/peers/s3_requirements.txt"]).strip()
        node = Node(stage, GIB, 1, "--s3", "127.0.0.1:0")
        ours = node.process.wait_text(r"s3: listening on (\S+)")[1]
        port = free_port()
        stage.start([python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]).wait_port(port)

        def taken(address: str) -> float:
            return run_json([python, str(PROGRAM), f"http://{address}", what, str(size), str(RUN_S)])["bytes_per_s"]
        return lambda: taken(ours), lambda: taken(f"127.0.0.1:{port}")
    return prepare
