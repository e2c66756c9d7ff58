"""Two brokers lead by turns, uncleanly too, and copy what they have: whoever leads at the end reads
its own log back from the tier, every offset of it, and nothing of the branches that died."""

from __future__ import annotations

import pytest

from support.branches import World
from support.logs import NOW
from support.remote import PARTITION
from support.remote_reads import at_once
from tidelog.tiered.reads.reader import search


@pytest.mark.parametrize("seed", range(25))
def test_the_last_leader_reads_its_own_log(seed: int) -> None:
    world = World(seed)
    world.play()
    batches = world.batches()
    border = world.view.local_log_start_offset
    assert border > 0
    for offset in range(border):
        records = world.read(offset, world.rng.choice([1, 300, 2000]))
        data = b"".join(records.parts)
        expected = b"".join(data for last, data in batches if last >= offset)
        assert data
        assert expected.startswith(data)
        aborted = world.log.aborted_transactions(offset, records.next_offset)
        assert sorted(records.aborted) == sorted(set(aborted))
    for timestamp in range(NOW, world.now, 35):
        found = at_once(search(timestamp, PARTITION, world.view, world.metadata, world.loader))
        expected = world.log.offset_for_timestamp(timestamp)
        if expected is not None and expected.offset >= border:
            expected = None
        assert found == expected


def test_there_are_dead_branches_among_them() -> None:
    dead = 0
    for seed in range(25):
        world = World(seed)
        world.play()
        known = world.metadata.of[PARTITION]
        entries = dict(world.log.epochs.entries)
        dead += any(
            epoch not in entries for segment in known.segments() for epoch, _ in segment.epochs
        )
    assert dead > 5
