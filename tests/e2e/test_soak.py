# SPDX-License-Identifier: Apache-2.0
"""soak/run: a short run finds nothing, and what is planted is found."""
from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
import support
from etcd import needs_etcd
from networks import refused

UNSANITIZED = pytest.mark.skipif(support.sanitized(), reason="a sanitizer adds memory, and descriptors, of its own")
NETWORKS = pytest.mark.skipif(bool(refused()), reason=refused())
NO_PYTHON = pytest.mark.skipif(support.sanitized(), reason="its clients are in Python, which has no sanitizer")
SOAK = pathlib.Path(__file__).resolve().parents[2] / "soak" / "run"


def soak(*arguments: str) -> tuple[int, dict]:
    """Exit status and closing line of a run, all of whose words pytest shows when its test fails."""
    done = subprocess.run([sys.executable, "-B", SOAK, "--build", support.BUILD, *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120, env=support.clean_environment())
    print(done.stdout, done.stderr)
    assert done.stdout, done.stderr
    assert done.returncode in (0, 1), "the soak could not be run"
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def soak_holds(*arguments: str) -> dict:
    """Closing line of a run, which found nothing."""
    code, told = soak(*arguments)
    assert told["violations"] == 0, f"final: {json.dumps(told)}"  # ci/summary: seen once is enough
    assert code == 0 and told["ok"], json.dumps(told)
    return told


def soak_finds(name: str, seconds: int, fault: str) -> dict:
    """Closing line of a run that found what is planted. A slow machine gets a longer run."""
    code, told = soak("--only", name, "--for-s", str(seconds), "--plant", fault)
    if code == 0:
        code, told = soak("--only", name, "--for-s", str(5 * seconds), "--plant", fault)
    assert code == 1 and not told["ok"] and told["violations"] >= 1, json.dumps(told)
    return told


def test_churn_holds() -> None:
    told = soak_holds("--only", "churn", "--for-s", "2", "--seed", "7")
    assert told["name"] == "churn" and told["seed"] == 7
    for name in ("checked", "hits", "puts", "deletes", "views", "lists", "sweeps"):
        assert told[name] > 0, name


@pytest.mark.parametrize("fault", ["byte", "write"])
def test_churn_finds_what_is_planted(fault: str) -> None:
    soak_finds("churn", 4, fault)


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
    told = soak_holds("--only", name, "--for-s", "3", "--seed", "7")
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
    soak_finds(name, 2, fault)


@UNSANITIZED
def test_hostile_bootstrap_holds() -> None:
    told = soak_holds("--only", "hostile_bootstrap", "--for-s", "4")
    for name in ("served", "messages", "random", "cut_off", "changed", "wrong_proof", "replayed", "slow", "silent"):
        assert told[name] > 0, name


@UNSANITIZED
def test_hostile_gateway_holds() -> None:
    told = soak_holds("--only", "hostile_gateway", "--for-s", "8")
    for name in ("frames", "reads", "writes", "flood", "takes_nothing", "takes_late", "no_end_of_body", "pinned_bytes_most"):
        assert told[name] > 0, name


@UNSANITIZED
def test_hostile_requests_hold() -> None:
    told = soak_holds("--only", "hostile_requests", "--for-s", "4")
    for name in ("requests", "replies", "done", "busy", "refused", "values", "hostile_sessions", "hits", "puts"):
        assert told[name] > 0, name


@UNSANITIZED
@pytest.mark.parametrize(("name", "fault", "seconds"),
                         [("hostile_bootstrap", "descriptor", 4), ("hostile_bootstrap", "memory", 4),
                          ("hostile_gateway", "stall", 6), ("hostile_gateway", "byte", 6), ("hostile_gateway", "descriptor", 6),
                          ("hostile_requests", "foreign", 4), ("hostile_requests", "leak", 4)])
def test_hostile_soak_finds_what_is_planted(name: str, fault: str, seconds: int) -> None:
    soak_finds(name, seconds, fault)


def test_kill_masters_holds() -> None:
    told = soak_holds("--only", "kill_masters", "--for-s", "3", "--seed", "7")
    assert told["kills"] > 0 and told["checked"] >= 200 and told["keys"] == 10000, json.dumps(told)


@pytest.mark.parametrize("fault", ["view", "lost"])
def test_kill_masters_finds_what_is_planted(fault: str) -> None:
    soak_finds("kill_masters", 2, fault)


@NETWORKS
@needs_etcd
def test_kill_masters_etcd_holds() -> None:
    told = soak_holds("--only", "kill_masters_etcd", "--for-s", "6", "--seed", "7")
    assert told["checked"] > 100 and told["hits"] > 0 and told["keys"] == 3000, json.dumps(told)


@NETWORKS
@needs_etcd
def test_kill_masters_etcd_finds_what_is_planted() -> None:
    soak_finds("kill_masters_etcd", 3, "lost")


@NO_PYTHON
def test_kill_nodes_finds_what_is_planted() -> None:
    assert soak_finds("kill_nodes", 2, "lost")["kills"] > 0


# What a short run of each must have seen.
POOL_SOAKS = {"freeze_and_drop": ("stops", "drops"), "pool_linearizable": ("kills", "master_kills", "restarts", "stops", "drops")}


@NETWORKS
@pytest.mark.parametrize("name", [pytest.param("freeze_and_drop", marks=NO_PYTHON), "pool_linearizable"])
def test_pool_soak_holds(name: str) -> None:
    told = soak_holds("--only", name, "--for-s", "4", "--seed", "7")
    assert told["hits"] > 0 and told["in_histories"] > 0 and any(told.get(figure) for figure in POOL_SOAKS[name]), json.dumps(told)


@NETWORKS
@pytest.mark.parametrize(("name", "fault"), [pytest.param("freeze_and_drop", "zombie", marks=NO_PYTHON), ("pool_linearizable", "lost")])
def test_pool_soak_finds_what_is_planted(name: str, fault: str) -> None:
    soak_finds(name, 5, fault)


def test_fail_nth_holds() -> None:
    told = soak_holds("--only", "fail_nth", "--for-s", "8")
    assert told["kinds"] == 5 and told["failed_calls"] > 100, json.dumps(told)


def test_fail_nth_finds_what_is_planted() -> None:
    soak_finds("fail_nth", 3, "leak")


@UNSANITIZED
def test_python_threads_hold() -> None:
    told = soak_holds("--only", "python_threads", "--for-s", "6", "--seed", "7")
    for name in ("checked", "puts", "hits", "views", "lists", "deletes", "refused", "coroutines"):
        assert told[name] > 0, name


@UNSANITIZED
@pytest.mark.parametrize("fault", ["torn", "leak"])
def test_python_threads_find_what_is_planted(fault: str) -> None:
    soak_finds("python_threads", 4, fault)


@UNSANITIZED
def test_impatient_holds() -> None:
    told = soak_holds("--only", "impatient", "--for-s", "8", "--seed", "7")
    for name in ("sessions", "refused", "cut_short", "ended_sessions"):
        assert told[name] > 0, name


@UNSANITIZED
def test_impatient_finds_what_is_planted() -> None:
    soak_finds("impatient", 4, "torn")


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
    told = soak_holds("--only", name, "--for-s", "1" if name == "recovery" else "3", "--seed", "7")
    for figure in ("checked", *DISK_SOAKS[name]):
        assert told[figure] > 0, figure


@pytest.mark.parametrize(("name", "fault"), [("crash_points", "amnesia"), ("bit_flips", "byte"),
                                             ("disk_faults", "byte"), ("recovery", "lost")])
def test_disk_soak_finds_what_is_planted(name: str, fault: str) -> None:
    soak_finds(name, 1, fault)


@NO_PYTHON
def test_full_logs_hold() -> None:
    told = soak_holds("--only", "full_logs", "--for-s", "5", "--seed", "7")
    for figure in ("checked", "kills", "flushes", "folders"):
        assert told[figure] > 0, figure


@NO_PYTHON
def test_full_logs_finds_what_is_planted() -> None:
    soak_finds("full_logs", 1, "older")


def test_simulated_pool_holds() -> None:
    told = soak_holds("--only", "simulated_pool", "--for-s", "2", "--seed", "7")
    assert told["seed"] == 7
    for name in ("checked", "runs", "writes", "crashes"):
        assert told[name] > 0, name


def test_simulated_pool_finds_what_is_planted() -> None:
    soak_finds("simulated_pool", 4, "hearsay")


@NETWORKS
@NO_PYTHON
def test_data_store_holds() -> None:
    told = soak_holds("--only", "data_store", "--for-s", "6", "--seed", "7")
    for name in ("faults", "puts", "gets", "reads", "broadcasts", "verified", "looks_at_something", "offers_ended", "leases_over"):
        assert told[name] > 0, name
    assert told["last_rounds"] == 4  # one for each worker


@NETWORKS
@NO_PYTHON
@pytest.mark.parametrize("fault", ["half", "byte", "lost", "refused", "late", "crash", "leftover", "stale-offer", "stale-source"])
def test_data_store_finds_what_is_planted(fault: str) -> None:
    soak_finds("data_store", 1, fault)


@NO_PYTHON
def test_tensors_hold() -> None:
    told = soak_holds("--only", "tensors", "--for-s", "6", "--seed", "7")
    for name in ("checked", "faults", "puts", "published", "attached", "held", "got", "filled", "updated", "sent", "moved"):
        assert told[name] > 0, name


@NO_PYTHON
@pytest.mark.parametrize("fault", ["byte", "torn", "stale", "late", "crash", "leak"])
def test_tensors_find_what_is_planted(fault: str) -> None:
    soak_finds("tensors", 3, fault)
