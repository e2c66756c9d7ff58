"""Whole runs: some dozens of seeds hold, and each of them replays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sim.faults import FAULTS, draw_plan
from sim.grounds import flushes_cut_short
from sim.mutants import planted
from sim.run import run_seed, shrink
from support.processes import under_another_hash_seed
from tidelog.simulation.disk import NAMES_APART
from tidelog.simulation.timeline import Event, lines

TESTS = Path(__file__).parent.parent
SEEDS_PER_TEST = 6


FIRSTS = [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(6, 36, SEEDS_PER_TEST))]


@pytest.mark.parametrize("first", FIRSTS)
def test_all_promises_hold(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        verdict = run_seed(seed)
        assert verdict.failure is None, f"cd tests && python -m sim --seed {seed}"
        assert verdict.counts["records acknowledged"] > 0
        assert verdict.counts["batches consumed"] > 0
        assert seed % 2 or verdict.counts["partitions compacted"] > 0


def test_plans_hold_every_fault() -> None:
    drawn = {fault.kind for seed in range(60) for fault in draw_plan(seed)}
    assert drawn == {*FAULTS} - {NAMES_APART}  # that is a habit of the disk


def test_a_seed_gives_the_same_run_twice() -> None:
    for seed in (1, 5):
        first, second = run_seed(seed), run_seed(seed)
        assert first.trace == second.trace
        assert first == second
    assert run_seed(2).trace != first.trace


def test_a_seed_gives_the_same_run_under_every_hash_seed() -> None:
    program = "from sim.run import run_seed\nfor seed in 3, 9: print(run_seed(seed).trace)"
    elsewhere = under_another_hash_seed(program).split()
    assert elsewhere == [run_seed(seed).trace for seed in (3, 9)]


def test_a_failing_plan_is_made_shorter() -> None:
    with planted("recovery-point-before-fsync"):
        verdict = next(
            verdict
            for verdict in (run_seed(seed, flushes_cut_short(seed)) for seed in range(60))
            if verdict.failure is not None and len(verdict.plan) > 1
        )
        best = shrink(verdict)
    assert best.failure is not None
    assert len(best.plan) < len(verdict.plan)
    assert any("power" in fault.kind for fault in best.plan)
    assert run_seed(best.seed, best.plan).failure is None


@pytest.mark.nightly  # it makes the plan shorter, run after run
def test_the_command_line_replays_a_failure() -> None:
    command = [sys.executable, "-m", "sim", "--mutant", "acknowledge-before-fsync"]
    command += ["--brokers", "1", "--processes", "1"]
    many = subprocess.run(
        [*command, "--seeds", "1"], cwd=TESTS, capture_output=True, text=True, check=False
    )
    assert many.returncode == 1, many.stdout + many.stderr
    assert "seed 0: 1 brokers" in many.stdout
    timeline = (
        many.stdout.partition("shortest schedule")[2].partition("replay:")[0].rstrip().splitlines()
    )
    assert "VIOLATED" in timeline[-1]
    assert any(" fault " in line for line in timeline)
    assert any(" ends: " in line for line in timeline)
    replay = next(line for line in many.stdout.splitlines() if "replay:" in line)
    words = replay.partition("python -m sim")[2].split()
    again = subprocess.run(
        [sys.executable, "-m", "sim", *words],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 1, again.stdout + again.stderr
    assert "Violation" in again.stdout


def test_the_command_line_ends_in_order_when_its_minutes_are_over() -> None:
    command = [sys.executable, "-m", "sim", "--minutes", "0.001", "--brokers", "1"]
    done = subprocess.run(
        [*command, "--processes", "2"], cwd=TESTS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seeds = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
    assert f"{len(seeds)} seeds, " in done.stdout
    assert all(line.endswith(": holds") for line in seeds)


def test_a_timeline_puts_what_repeats_into_one_line() -> None:
    events = [
        Event(1.0, "clients", "base-0-0", 5),
        Event(1.5, "clients", "base-0-0", 7),
        Event(2.0, "broker.1", "ends: kill"),
        Event(2.5, "broker.2", "ends: refused to start"),
        Event(3.0, "broker.3", "ends: refused to start"),
    ]
    assert [line.split("s", 1)[1].strip() for line in lines(events)] == [
        "clients          acknowledged: base-0-0 up to 7",
        "broker.1         ends: kill",
        "broker.3         ends: refused to start (2 times since 2.500 s)",
    ]


def test_the_command_line_sums_up() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sim", "--seeds", "2", "--brokers", "1", "--processes", "1"],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 seeds" in done.stdout
    assert "virtual hours" in done.stdout
    assert "faults:" in done.stdout
