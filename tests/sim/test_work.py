"""Which seeds have which kinds of work."""

from __future__ import annotations

from sim.cluster.work.seeds import FIRST, KINDS, SHARES, work_of


def test_a_part_of_the_seeds_has_each_kind() -> None:
    drawn = [work_of(seed) for seed in range(300)]
    assert {kind for kinds in drawn for kind in kinds} == {*KINDS, *SHARES}
    assert not any(drawn[:FIRST])
    assert len([kinds for kinds in drawn if kinds]) < 100
