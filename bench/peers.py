# SPDX-License-Identifier: Apache-2.0
"""The peers' side of a figure: each fairly tuned, and measured over one connection."""

from pathlib import Path
from typing import Any

from ports import free_port
from procs import BenchError, Stage, run, run_json

SOURCE = Path(__file__).parent
VENV_PYTHON = SOURCE.parent / "build" / "bench-venv" / "bin" / "python"
MIB = 1 << 20


class Cache:
    """A redis or a memcached and the load generator that speaks its protocol.

    Parameters
    ----------
    stage : Stage
    kind : str
        "redis" or "memcached".
    """

    def __init__(self, stage: Stage, kind: str) -> None:
        self.generator = stage.program(f"peer_{kind}")
        port = free_port()
        path = stage.folder / f"{kind}.sock"
        self.addresses = {"tcp": f"127.0.0.1:{port}", "local": str(path)}
        commands = {
            # No persistence, no I/O threads: those would spin on the cores that the client needs.
            "redis": [
                "redis-server", "--bind", "127.0.0.1", "--port", str(port), "--unixsocket",
                str(path), "--save", "", "--appendonly", "no", "--dir", str(stage.folder)],
            # -R: the default of 20 requests a turn holds pipelined reads back.
            "memcached": [
                "memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(port), "-U", "0",
                "-t", "1", "-R", "200", "-m", "4096"],
        }
        self.process = stage.start(commands[kind])
        self.process.wait_port(port)

    def fill(self, size: int, keys: int) -> None:
        """Store every key of the key space once."""
        self.bench("tcp", "--fill", "--size", size, "--keys", keys, "--batch", 128,
                   "--inflight", 4)

    def bench(self, lane: str, *args: object) -> dict[str, Any]:
        """One run of the load generator over "tcp" or "local"; its JSON."""
        return run_json([self.generator, "--connect", self.addresses[lane], *map(str, args)])


def cache_bytes_per_key(stage: Stage, kind: str, keys: int, value_bytes: int) -> float:
    """Growth of a fresh cache's resident memory for each key that it is given."""
    with stage.sub() as own:
        cache = Cache(own, kind)
        empty = cache.process.rss_bytes()
        cache.fill(value_bytes, keys)
        return (cache.process.rss_bytes() - empty) / keys


class Mooncake:
    """A Mooncake master, and a store process that holds the segment; each client is a process.

    The lease is longer than in Mooncake's examples: on a busy machine a batch can outlast 500 ms,
    and fails.
    """

    def __init__(self, stage: Stage, segment_bytes: int = 3 << 30) -> None:
        port, metrics_port = free_port(), free_port()
        self.master = f"127.0.0.1:{port}"
        stage.start([
            str(VENV_PYTHON.parent / "mooncake_master"), f"--rpc_port={port}",
            "--rpc_address=127.0.0.1", f"--metrics_port={metrics_port}",
            "--enable_metric_reporting=false", "--default_kv_lease_ttl=5000",
        ]).wait_port(port)
        stage.start([*self._command("store"), "--segment", str(segment_bytes)],
                    hold_stdin=True).wait_text(r"^ready")

    def _command(self, role: str) -> list[str]:
        script = SOURCE / "peers" / "mooncake_peer.py"
        return [str(VENV_PYTHON), str(script), role, "--master", self.master]

    def bench(self, *args: object) -> dict[str, Any]:
        """One client process; its JSON."""
        return run_json([*self._command("client"), *map(str, args)])


# The best of a sweep over windows and rendezvous thresholds: messages of 2 MiB like a short
# window, those of 64 KiB a long one, and both the default threshold (eager is erratic).
PERFTEST_BEST = {
    2 * MIB: ("-O", "1", "-n", "2000", "-w", "100"),
    64 << 10: ("-O", "64", "-n", "40000", "-w", "1000"),
}


def perftest_bytes_per_s(stage: Stage, size: int, *more: str) -> float:
    """Bandwidth of ucx_perftest's active messages of `size` bytes over loopback TCP; `more` options for both sides."""
    env = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"}
    port = free_port()
    with stage.sub() as own:
        own.start(["ucx_perftest", "-p", str(port), *more], env).wait_port(port)
        out = run(["ucx_perftest", "127.0.0.1", "-p", str(port), "-t", "ucp_am_bw",
                   "-s", str(size), "-f", *PERFTEST_BEST[size], *more], env)
    try:
        # Last line: iterations, us (percentile, average, overall), MB/s (average, overall), ...
        # Its MB is 2^20 bytes.
        return float(out.strip().splitlines()[-1].split()[5]) * MIB
    except (IndexError, ValueError):
        raise BenchError(f"ucx_perftest gave no figures: {out.strip()[-300:]}") from None


def raw_tcp_bytes_per_s(_: Stage) -> float:
    """Bandwidth of one TCP connection over loopback, written 1 MiB at a time."""
    return run_json(["/usr/bin/python3", str(SOURCE / "peers" / "raw_tcp.py")])["bytes_per_s"]


def memory(stage: Stage, *args: object) -> dict[str, Any]:
    """One run of peer_memory; its JSON."""
    return run_json([stage.program("peer_memory"), *map(str, args)])
