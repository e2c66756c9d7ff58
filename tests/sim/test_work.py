"""The work of a part of the seeds is done in them, and what they check finds planted bugs."""

from __future__ import annotations

import pytest

from sim.cluster.work.seeds import FIRST, KINDS, work_of
from sim.mutants import planted
from sim.mutants.work import HOMES
from sim.run import run_seed

# By `python -m sim --mutants --brokers 3`.
FOUND_AT = {
    "another-append-time-is-answered": 41,
    "append-time-of-the-producer": 41,
    "elect-past-the-in-sync": 42,
    "one-segment-too-many": 45,
    "recover-by-half": 41,
    "retention-ahead-of-time": 67,
    "sessions-forget-nothing": 45,
    "sessions-stay-where-they-began": 39,
}


def test_a_part_of_the_seeds_has_each_kind():
    drawn = [work_of(seed) for seed in range(300)]
    assert {kind for kinds in drawn for kind in kinds} == set(KINDS)
    assert not any(drawn[:FIRST])
    assert len([kinds for kinds in drawn if kinds]) < 100


@pytest.mark.parametrize("name", HOMES)
def test_a_planted_bug_is_found(name):
    assert HOMES[name][0] in work_of(FOUND_AT[name])
    with planted(name):
        failure = run_seed(FOUND_AT[name], brokers=3).failure
    assert failure is not None
    assert failure.startswith("Violation:"), failure
