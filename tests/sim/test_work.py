"""Which seeds have which kinds of work."""

from __future__ import annotations

from sim.cluster.work.seeds import FIRST, KINDS, SHARES, work_of
from sim.run import run_seed


def test_a_part_of_the_seeds_has_each_kind() -> None:
    drawn = [work_of(seed) for seed in range(300)]
    assert {kind for kinds in drawn for kind in kinds} == {*KINDS, *SHARES}
    assert not any(drawn[:FIRST])
    assert len([kinds for kinds in drawn if kinds]) < 130


def test_topics_that_come_while_a_run_lasts_are_moved() -> None:
    verdict = run_seed(52, brokers=3)
    assert verdict.failure is None
    assert verdict.counts["reassignments of new topics"] > 3


def test_a_share_group_loses_answers_beside_other_work() -> None:
    verdict = run_seed(43, brokers=3)
    assert verdict.failure is None
    assert verdict.counts["deliveries"] > 100
    assert verdict.counts["answers lost"] > 2


def test_voters_change_beside_other_work() -> None:
    verdict = run_seed(49, brokers=4)
    assert verdict.failure is None
    assert verdict.counts["voters removed"] > 1
    assert verdict.counts["voters added"] > 1
