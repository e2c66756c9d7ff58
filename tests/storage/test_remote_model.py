"""Random lives of a tiered partition: leaders change, cleanly or not, roll where they like, copy at
their own pace, expire what they do not need. Whatever happened, a reader is sent to a segment that
holds the leader's own record, and never to one of a dead branch.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from support.remote_model import Tier
from tidelog_storage.remote.api import RemoteSegment, SegmentState
from tidelog_storage.remote.expiry import RemoteRetention
from tidelog_storage.remote.lineage import part_end

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

LIMITS = st.tuples(st.integers(-1, 30), st.integers(-1, 20))  # ms, bytes
WHO = st.integers(0, 2)
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
ENDS = st.sampled_from([FINISHED, FINISHED, FINISHED, SegmentState.DELETE_SEGMENT_STARTED, None])


def check_reads(tier: Tier) -> None:
    """All that is remote only is found; all that is found is the leader's."""
    leader, metadata = tier.leader, tier.metadata
    for offset in range(leader.log_start, leader.log_end):
        epoch = leader.epoch_at(offset)
        assert epoch == leader.values[offset][0]
        found = metadata.segment_for(epoch, offset)
        if found is None:
            assert offset >= leader.local_start, f"{offset} is nowhere"
            assert offset > leader.highest_remote, f"{offset} counts as copied and is not"
            continue
        ours = leader.epochs.end_offset_for(epoch, leader.log_end).offset
        end = min(part_end(found, epoch) + 1, ours)
        copied = tier.copies[found.segment_id].values
        for at in range(offset, end):
            assert copied[at] == leader.values[at], f"{at} of another branch"


def check_offsets(tier: Tier) -> None:
    """The rules between the offsets of both tiers."""
    leader = tier.leader
    assert leader.log_start <= leader.local_start <= leader.log_end
    assert leader.highest_remote < leader.log_end
    if leader.highest_remote >= leader.log_start:
        assert leader.local_start <= leader.highest_remote + 1
    else:
        assert leader.local_start == leader.log_start


# ---- section 6 again, as it is written -----------------------------------------------------------


def holds_records(segment: RemoteSegment) -> list[int]:
    """Epochs of the segment that have records in it."""
    ends = [start for _, start in segment.epochs[1:]] + [segment.end_offset + 1]
    return [epoch for (epoch, start), end in zip(segment.epochs, ends, strict=True) if start < end]


def is_ours(tier: Tier, segment: RemoteSegment) -> bool:
    """In the lineage, by the records themselves: all from the log start on are the leader's, and so
    is at least the epoch of the others."""
    leader, copied = tier.leader, tier.copies[segment.segment_id].values
    if segment.end_offset >= leader.log_end:
        return False
    first = leader.lineage[0][0]
    if max(holds_records(segment)) < first:
        return False
    return all(
        leader.values[at] == value if at >= leader.log_start else value[0] <= first
        for at, value in copied.items()
    )


def kept_by_the_book(tier: Tier, retention: RemoteRetention) -> tuple[set[UUID], int]:
    leader = tier.leader
    first = leader.lineage[0][0]
    segments = tier.metadata.segments()

    def is_below(segment: RemoteSegment) -> bool:
        epochs = [epoch for epoch, _ in segment.epochs]
        return max(epochs) <= first and segment.end_offset < leader.log_start

    kept = {segment.segment_id for segment in segments}
    log_start = leader.log_start
    oldest_ms = tier.now_ms - retention.retention_ms if retention.retention_ms >= 0 else 0
    excess = 0
    if retention.retention_bytes >= 0:
        excess = tier.local_only_bytes - retention.retention_bytes + remote_bytes(tier, is_below)
    met = set()
    stopped = False
    for epoch, _ in leader.lineage:
        for segment in tier.metadata.segments(epoch):
            if stopped or segment.segment_id in met:
                continue
            met.add(segment.segment_id)
            if segment.segment_id in tier.copying:
                stopped = True
            elif segment.state is SegmentState.DELETE_SEGMENT_STARTED or is_below(segment):
                kept.discard(segment.segment_id)
            elif is_ours(tier, segment):
                if segment.max_timestamp < oldest_ms or 0 < segment.size <= excess:
                    excess = max(excess - segment.size, 0)
                    log_start = max(log_start, segment.end_offset + 1)
                    kept.discard(segment.segment_id)
                else:
                    stopped = True
    for segment in segments:
        newest = max(epoch for epoch, _ in segment.epochs)
        goes = newest < first or segment.state is SegmentState.DELETE_SEGMENT_STARTED
        if goes and segment.segment_id not in tier.copying:
            kept.discard(segment.segment_id)
    return kept, log_start


def remote_bytes(tier: Tier, is_below: Callable[[RemoteSegment], bool]) -> int:
    return sum(
        segment.size
        for segment in tier.metadata.segments()
        if segment.state is FINISHED and not is_below(segment) and is_ours(tier, segment)
    )


def check_expiry(tier: Tier, retention: RemoteRetention, fails: object) -> None:
    kept, log_start = kept_by_the_book(tier, retention)
    before = {segment.segment_id for segment in tier.metadata.segments()}
    found = tier.expire(retention, fails)
    assert before - {segment.segment_id for segment in found.deletions} == kept
    assert found.new_log_start == log_start


# ---- lives ---------------------------------------------------------------------------------------


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tier = Tier("ABC")

    @rule(count=st.integers(1, 4), then_roll=st.booleans())
    def produce(self, count: int, then_roll: bool) -> None:
        for _ in range(count):
            self.tier.produce()
        if then_roll:
            self.tier.leader.roll()

    @rule(who=WHO)
    def roll(self, who: int) -> None:
        self.tier.replicas[who].roll()

    @rule(who=WHO, most=st.integers(0, 9))
    def follow(self, who: int, most: int) -> None:
        self.tier.follow(self.tier.replicas[who], most)

    @rule(who=WHO)
    def elect(self, who: int) -> None:
        """Cleanly or not: the replica may lack anything, and have what nobody else has."""
        self.tier.elect(self.tier.replicas[who])

    @rule()
    def copy(self) -> None:
        self.tier.begin_copy()
        self.tier.end_copy(self.tier.leader, FINISHED)

    @rule()
    def begin_copy(self) -> None:
        self.tier.begin_copy()

    @rule(who=WHO, state=ENDS)
    def end_copy(self, who: int, state: SegmentState | None) -> None:
        self.tier.end_copy(self.tier.replicas[who], state)

    @rule(who=WHO)
    def delete_local(self, who: int) -> None:
        self.tier.delete_local(self.tier.replicas[who])

    @rule(limits=LIMITS, failing=st.sets(st.integers(0, 3)))
    def expire(self, limits: tuple[int, int], failing: set[int]) -> None:
        numbers = iter(range(1000))
        check_expiry(self.tier, RemoteRetention(*limits), lambda: next(numbers) in failing)

    @rule(share=st.integers(0, 4))
    def delete_records(self, share: int) -> None:
        leader = self.tier.leader
        leader.start_at(leader.log_start + (leader.log_end - leader.log_start) * share // 8)

    @invariant()
    def reads_are_right(self) -> None:
        check_reads(self.tier)

    @invariant()
    def offsets_are_right(self) -> None:
        check_offsets(self.tier)


TestLife = Life.TestCase
TestLife.settings = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize("seed", range(30))
def test_long_lives(seed: int) -> None:
    """Many steps, where all has happened already."""
    chance = random.Random(seed)
    tier = Tier("ABC")
    for _ in range(400):
        who = tier.replicas[chance.randrange(3)]
        action = chance.choice(ACTIONS)
        if action == "produce":
            for _ in range(chance.randint(1, 4)):
                tier.produce()
        elif action == "roll":
            who.roll()
        elif action == "follow":
            tier.follow(who, chance.randint(0, 12))
        elif action == "elect":
            tier.elect(who)
        elif action == "copy":
            tier.begin_copy()
        elif action == "end":
            tier.end_copy(who, chance.choice([FINISHED, FINISHED, FINISHED, None]))
        elif action == "local":
            tier.delete_local(who)
        else:
            retention = RemoteRetention(chance.choice([-1, 15, 40]), chance.choice([-1, 10, 30]))
            check_expiry(tier, retention, lambda: chance.random() < 0.2)
        check_reads(tier)
        check_offsets(tier)


ACTIONS = ["produce", "roll", "follow", "follow", "copy", "end", "end", "local", "expire"]
ACTIONS = ACTIONS * 3 + ["elect"]
