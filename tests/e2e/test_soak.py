"""bench/soak: a short run finds nothing, and what is planted is found."""
from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
import support

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from networks import refused

UNSANITIZED = pytest.mark.skipif(support.sanitized(), reason="a sanitizer adds memory, and descriptors, of its own")
NETWORKS = pytest.mark.skipif(bool(refused()), reason=refused())
NO_PYTHON = pytest.mark.skipif(support.sanitized(), reason="its clients are in Python, which has no sanitizer")
SOAK = pathlib.Path(__file__).resolve().parents[2] / "bench" / "soak"


def soak(*arguments: str) -> tuple[int, dict]:
    """Exit status and closing line of a run."""
    done = subprocess.run([sys.executable, "-B", SOAK, "--build", support.BUILD, *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120, env=support.clean_environment())
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def test_churn_holds() -> None:
    code, told = soak("--only", "churn", "--for-s", "2", "--seed", "7")
    assert code == 0 and told["ok"] and told["violations"] == 0, told
    assert told["name"] == "churn" and told["seed"] == 7
    for name in ("checked", "hits", "puts", "deletes", "views", "lists", "sweeps"):
        assert told[name] > 0, name


@pytest.mark.parametrize("fault", ["byte", "write"])
def test_churn_finds_what_is_planted(fault: str) -> None:
    code, told = soak("--only", "churn", "--for-s", "1", "--plant", fault)
    assert code == 1 and not told["ok"] and told["violations"] >= 1, told


# What a short run of each must have seen, so that it did not look away.
FAULT_SOAKS = {
    "kill_clients": ("kills", "puts", "hits", "deletes", "views"),
    "stop_clients": ("stops", "puts", "hits", "deletes", "views", "evictions"),
    "kill_node": ("kills", "puts", "hits", "deletes", "unknown"),
    "warm_restart": ("kills", "puts", "hits", "deletes", "views", "found_keys"),
    "linearizable": ("puts", "hits", "deletes", "views", "in_histories"),
}


@pytest.mark.parametrize("name", FAULT_SOAKS)
def test_fault_soak_holds(name: str) -> None:
    code, told = soak("--only", name, "--for-s", "3", "--seed", "7")
    assert code == 0 and told["ok"] and told["violations"] == 0, told
    for figure in ("checked", "checked_bytes", *FAULT_SOAKS[name]):
        assert told[figure] > 0, figure


@pytest.mark.parametrize(("name", "fault"), [("kill_clients", "torn"), ("kill_clients", "leak"),
                                             ("kill_clients", "descriptor"),
                                             ("stop_clients", "view"), ("stop_clients", "late"),
                                             ("kill_node", "lost"), ("kill_node", "late"),
                                             ("warm_restart", "cold"),
                                             ("linearizable", "stale"), ("linearizable", "lost"),
                                             ("linearizable", "torn")])
def test_fault_soak_finds_what_is_planted(name: str, fault: str) -> None:
    code, told = soak("--only", name, "--for-s", "2", "--plant", fault)
    assert code == 1 and not told["ok"] and told["violations"] >= 1, told


@UNSANITIZED
def test_hostile_bootstrap_holds() -> None:
    code, told = soak("--only", "hostile_bootstrap", "--for-s", "4")
    assert code == 0 and told["ok"] and told["violations"] == 0, told
    for name in ("served", "messages", "random", "cut_off", "changed", "wrong_proof", "replayed", "slow", "silent"):
        assert told[name] > 0, name


@UNSANITIZED
@pytest.mark.parametrize("fault", ["descriptor", "memory"])
def test_hostile_bootstrap_finds_what_is_planted(fault: str) -> None:
    code, told = soak("--only", "hostile_bootstrap", "--for-s", "4", "--plant", fault)
    assert code == 1 and not told["ok"] and told["violations"] >= 1, told


def test_kill_masters_holds() -> None:
    code, told = soak("--only", "kill_masters", "--for-s", "3", "--seed", "7")
    assert code == 0 and told["ok"] and told["violations"] == 0, told
    assert told["kills"] > 0 and told["checked"] >= 200 and told["keys"] == 10000, told


@pytest.mark.parametrize("fault", ["view", "lost"])
def test_kill_masters_finds_what_is_planted(fault: str) -> None:
    code, told = soak("--only", "kill_masters", "--for-s", "2", "--plant", fault)
    assert code == 1 and not told["ok"] and told["violations"] >= 1, told


@NO_PYTHON
def test_kill_nodes_finds_what_is_planted() -> None:
    code, told = soak("--only", "kill_nodes", "--for-s", "2", "--plant", "lost")
    assert code == 1 and not told["ok"] and told["violations"] >= 1 and told["kills"] > 0, told


# What a short run of each must have seen.
POOL_SOAKS = {"freeze_and_drop": ("stops", "drops"), "pool_linearizable": ("kills", "master_kills", "restarts", "stops", "drops")}


@NETWORKS
@pytest.mark.parametrize("name", [pytest.param("freeze_and_drop", marks=NO_PYTHON), "pool_linearizable"])
def test_pool_soak_holds(name: str) -> None:
    code, told = soak("--only", name, "--for-s", "4", "--seed", "7")
    assert code == 0 and told["ok"] and told["violations"] == 0, told
    assert told["hits"] > 0 and told["in_histories"] > 0 and any(told.get(figure) for figure in POOL_SOAKS[name]), told


@NETWORKS
@pytest.mark.parametrize(("name", "fault"), [pytest.param("freeze_and_drop", "zombie", marks=NO_PYTHON), ("pool_linearizable", "lost")])
def test_pool_soak_finds_what_is_planted(name: str, fault: str) -> None:
    code, told = soak("--only", name, "--for-s", "5", "--plant", fault)
    assert code == 1 and not told["ok"] and told["violations"] >= 1, told


def test_fail_nth_holds() -> None:
    code, told = soak("--only", "fail_nth", "--for-s", "8")
    assert code == 0 and told["ok"] and told["violations"] == 0, told
    assert told["kinds"] == 5 and told["failed_calls"] > 100, told


def test_fail_nth_finds_what_is_planted() -> None:
    code, told = soak("--only", "fail_nth", "--for-s", "3", "--plant", "leak")
    assert code == 1 and not told["ok"] and told["violations"] >= 1, told


@UNSANITIZED
def test_python_threads_hold() -> None:
    code, told = soak("--only", "python_threads", "--for-s", "6", "--seed", "7")
    assert code == 0 and told["ok"] and told["violations"] == 0, told
    for name in ("checked", "puts", "hits", "views", "lists", "deletes", "refused", "coroutines"):
        assert told[name] > 0, name


@UNSANITIZED
@pytest.mark.parametrize("fault", ["torn", "leak"])
def test_python_threads_find_what_is_planted(fault: str) -> None:
    code, told = soak("--only", "python_threads", "--for-s", "4", "--plant", fault)
    assert code == 1 and not told["ok"] and told["violations"] >= 1, told


def test_unknown_names_are_refused() -> None:
    for arguments in (["--only", "idleness"], ["--only", "churn", "--plant", "nothing"]):
        done = subprocess.run([sys.executable, "-B", SOAK, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=30)
        assert done.returncode == 2 and arguments[-1] in done.stderr, done.stderr


# What a short run of each must have done.
DISK_SOAKS = {
    "crash_points": ("kills", "cuts", "log_kill", "log_cut", "durable", "reads", "deletes", "verified"),
    "bit_flips": ("noticed", "anywhere", "log_flips", "reads"),
    "disk_faults": ("faults", "durable", "reads", "failed"),
    "recovery": ("found",),
}


@pytest.mark.parametrize("name", DISK_SOAKS)
def test_disk_soak_holds(name: str) -> None:
    code, told = soak("--only", name, "--for-s", "1" if name == "recovery" else "3", "--seed", "7")
    assert code == 0 and told["ok"] and told["violations"] == 0, told
    for figure in ("checked", *DISK_SOAKS[name]):
        assert told[figure] > 0, figure


@pytest.mark.parametrize(("name", "fault"), [("crash_points", "amnesia"), ("bit_flips", "byte"),
                                             ("disk_faults", "byte"), ("recovery", "lost")])
def test_disk_soak_finds_what_is_planted(name: str, fault: str) -> None:
    code, told = soak("--only", name, "--for-s", "1", "--plant", fault)
    assert code == 1 and not told["ok"] and told["violations"] >= 1, told


def test_simulated_pool_holds() -> None:
    code, told = soak("--only", "simulated_pool", "--for-s", "2", "--seed", "7")
    assert code == 0 and told["ok"] and told["violations"] == 0 and told["seed"] == 7, told
    for name in ("checked", "runs", "writes", "crashes"):
        assert told[name] > 0, name


def test_simulated_pool_finds_what_is_planted() -> None:
    code, told = soak("--only", "simulated_pool", "--for-s", "4", "--plant", "hearsay")
    assert code == 1 and not told["ok"] and told["violations"] >= 1, told
