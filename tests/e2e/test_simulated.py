# SPDX-License-Identifier: Apache-2.0
"""tests/sim: a pool in one thread and out of one seed keeps its promises, and breaks them when a rule is broken."""
from __future__ import annotations

import json
import pathlib
import subprocess

import pytest
import support

RUN_S_MAX = 400 if support.watches_races() else 110  # a run of some seconds takes minutes then
SIMULATORS = pathlib.Path(support.BUILD) / "tests" / "sim"
RULES = ["no_lease", "slow_clock", "early_answer", "empty_join", "two_minds", "deaf_to_gaps", "hearsay", "no_repair",
         "no_balance", "memory_join", "old_disk", "old_deal", "serves_on"]
# With the product's senders a run takes seconds: each rule has a seed that finds it soon.
RULES_OF_COPIES = ("one_round", "old_copy", "no_lease", "slow_clock", "old_disk", "hearsay")


def simulate(*arguments: str, simulator: str = "sim_pool") -> tuple[int, list[str], dict]:
    """Exit status, the lines and the figures of a run."""
    done = subprocess.run([SIMULATORS / simulator, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=RUN_S_MAX, check=False, env=support.clean_environment())
    assert done.stdout, done.stderr
    *lines, last = done.stdout.splitlines()
    return done.returncode, lines, json.loads(last)


def test_promises_hold() -> None:
    code, lines, told = simulate("--seed", "1", "--runs", "12")
    assert code == 0 and told["violations"] == 0 and told["runs"] == 12, lines
    for name in ("checked", "heartbeats", "writes", "reads", "puts", "crashes", "leaves", "ends", "master_crashes", "freezes", "cuts",
                 "jumps", "hand_overs", "drains", "repairs", "balanced", "partitions_lost", "power_failures",
                 "partitions_recovered"):
        assert told[name] > 0, name


def test_a_large_pool_holds() -> None:
    code, lines, told = simulate("--seed", "3", "--nodes", "1000", "--simulated-ms", "10000")
    assert code == 0 and told["violations"] == 0 and told["heartbeats"] > 50000, lines


def test_promises_hold_with_a_directory_in_shares() -> None:
    code, lines, told = simulate("--seed", "1", "--runs", "10", "--shares", "3")
    assert code == 0 and told["violations"] == 0 and told["runs"] == 10, lines
    for name in ("checked", "heartbeats", "puts", "shares_lost", "missing", "master_crashes", "repairs", "drains"):
        assert told[name] > 0, name


def test_a_share_that_calls_keys_missing_too_soon_is_found() -> None:
    code, lines, told = simulate("--seed", "1", "--runs", "60", "--shares", "3", "--plant", "hasty_share")
    assert code == 1 and told["violations"] > 0 and " is missing, says " in lines[0], lines


def test_a_seed_replays_its_run() -> None:
    first, again, other = (simulate("--seed", seed)[1][-1] for seed in ("77", "77", "78"))
    assert first.startswith("digest ") and first == again and first != other


@pytest.mark.parametrize("rule", RULES)
def test_a_broken_rule_is_found(rule: str) -> None:
    code, lines, told = simulate("--seed", "1", "--runs", "60", "--plant", rule)
    assert code == 1 and told["violations"] > 0 and lines[0].startswith("violation: seed "), lines
    seed = lines[0].removeprefix("violation: seed ").split()[0]
    assert simulate("--seed", seed, "--plant", rule)[1][0] == lines[0]


def test_senders_of_copies_keep_the_promises() -> None:
    code, lines, told = simulate("--seed", "3", "--runs", "2", simulator="sim_copies")
    assert code == 0 and told["violations"] == 0 and told["runs"] == 2, lines
    for name in ("checked", "writes", "reads", "refused", "crashes", "hand_overs", "drains", "balanced"):
        assert told[name] > 0, name


@pytest.mark.parametrize("seed", ["526", "9007"])
def test_balancing_ends(seed: str) -> None:
    code, lines, told = simulate("--seed", seed, simulator="sim_copies")
    assert code == 0 and told["balanced"] > 0, lines


@pytest.mark.parametrize("rule", RULES_OF_COPIES)
def test_a_rule_of_copies_that_is_broken_is_found(rule: str) -> None:
    code, lines, told = simulate("--seed", "1", "--runs", "60", "--plant", rule, simulator="sim_copies")
    assert code == 1 and told["violations"] > 0 and lines[0].startswith("violation: seed "), lines
    seed = lines[0].removeprefix("violation: seed ").split()[0]
    assert simulate("--seed", seed, "--plant", rule, simulator="sim_copies")[1][0] == lines[0]
