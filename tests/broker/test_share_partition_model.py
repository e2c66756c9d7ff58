"""Random lives of a share partition: members fetch, acknowledge, leave and time out, writes come
late or fail, leaders change, the log loses its begin and middle.

What must hold: no record is accepted twice, or held by two members; none is delivered more often
than the limit (by one leader: deliveries without an acknowledgement are not stored); and once all
goes well, every record is done.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from tidelog.coordinators.share.batches import merge
from tidelog.shares.acquiring import LogBatch, Wish, acquire
from tidelog.shares.partition_state import AckBatch, Change, ShareLimits, SharePartitionState
from tidelog.shares.records import AckType, RecordState, ShareError

if TYPE_CHECKING:
    from tidelog.coordinators.share.values import StateBatch

STEPS = 250
MEMBERS = ("a", "b", "c")


class Life:
    """A leader of a share partition, its members, its log, and what is stored about it."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.limits = ShareLimits(
            lock_ms=rng.choice((1000, 5000)),
            deliveries_max=rng.choice((2, 3, 5, 8)),
            in_flight_max=rng.choice((7, 30, 2000)),
        )
        self.log: list[LogBatch] = []
        end = 0
        for _ in range(rng.randint(3, 12)):
            first = end + (rng.randint(1, 3) if rng.random() < 0.2 else 0)
            end = first + rng.randint(1, 8)
            self.log.append(LogBatch(first, end - 1))
        self.log_start = 0
        self.now = 0.0
        self.stored_start = 0
        self.stored: tuple[StateBatch, ...] = ()
        self.state = SharePartitionState(0)
        self.writing: list[tuple[Change, bool]] = []
        self.accepted: set[int] = set()
        self.done: set[int] = set()  # accepted, rejected or delivered too often
        self.deliveries: Counter[int] = Counter()  # by this leader
        self.held: dict[int, str] = {}

    # -- what may happen --------------------------------------------------------------------------

    def fetch(self) -> None:
        state, rng = self.state, self.rng
        if not state.can_acquire(self.limits):
            return
        offset = state.next_fetch_offset
        if offset < self.log_start:
            state.move_start(self.log_start)
            return
        left = [batch for batch in self.log if batch.last_offset >= offset]
        batches = left[: rng.randint(1, 4)]
        member = rng.choice(MEMBERS)
        wish = Wish(
            member,
            offset,
            rng.randint(1, 20),
            rng.randint(1, 12),
            rng.random() < 0.3,
            self.now + self.limits.lock_ms / 1000,
        )
        acquired = acquire(state, wish, self.limits, batches)
        if wish.is_strict:
            assert sum(last - first + 1 for first, last, _ in acquired) <= wish.records_max
        for first, last, count in acquired:
            assert count <= self.limits.deliveries_max
            for each in range(first, last + 1):
                assert each not in self.accepted, f"{each} comes after it was accepted"
                assert each not in self.held, f"{each} is held by two members"
                self.held[each] = member
                self.deliveries[each] += 1

    def acknowledge(self) -> None:
        if not self.held:
            return
        rng = self.rng
        member = self.held[rng.choice(sorted(self.held))]
        if rng.random() < 0.1:
            self.acknowledge_as_a_stranger()
            return
        mine = sorted(each for each, owner in self.held.items() if owner == member)
        first = rng.choice(mine)
        last = first
        while last + 1 in mine and rng.random() < 0.8:
            last += 1
        kinds = [rng.randint(0, 4) for _ in range(first, last + 1)]
        if rng.random() < 0.5:
            kinds = kinds[:1]
        try:
            change = self.state.acknowledge(
                member, [AckBatch(first, last, kinds)], self.limits, self.now
            )
        except ShareError:
            return  # just being written, or its lock is over
        self.write(change)

    def acknowledge_as_a_stranger(self) -> None:
        each = self.rng.choice(sorted(self.held))
        ack = AckBatch(each, each, [AckType.ACCEPT])
        with pytest.raises(ShareError):
            self.state.acknowledge("stranger", [ack], self.limits, self.now)

    def leave(self) -> None:
        self.write(self.state.release(self.rng.choice(MEMBERS), self.limits))

    def write(self, change: Change) -> None:
        self.writing.append((change, self.rng.random() < 0.8))
        if self.rng.random() < 0.6:
            self.settle()

    def settle(self) -> None:
        """The oldest write ends, well or not."""
        if not self.writing:
            return
        change, goes_well = self.writing.pop(0)
        if goes_well:
            self.store(change.batches)
            self.note_done(change.batches)
        self.state.complete(change, is_written=goes_well)
        self.expire()

    def store(self, batches: list[StateBatch]) -> None:
        start = self.stored_start = max(self.stored_start, self.state.start_offset)
        self.stored = merge(self.stored, batches, start)

    def note_done(self, batches: list[StateBatch]) -> None:
        for first, last, kind, _ in batches:
            for each in range(max(first, self.log_start), last + 1):
                if kind == RecordState.ACKNOWLEDGED:
                    assert each not in self.accepted, f"{each} is accepted twice"
                    self.accepted.add(each)
                if kind != RecordState.AVAILABLE:
                    self.done.add(each)

    def wait(self) -> None:
        self.now += self.rng.choice((0.1, 1.0, 3.0))
        self.expire()

    def expire(self) -> None:
        deadline = self.state.next_deadline
        if deadline is not None and deadline <= self.now:
            batches = self.state.expire(self.now, self.limits)
            assert batches
            self.note_done(batches)
            if self.rng.random() < 0.8:
                self.store(batches)

    def change_leader(self) -> None:
        """Of what is being written, some is stored, and no answer comes."""
        for change, goes_well in self.writing:
            if goes_well:
                self.store(change.batches)
                self.note_done(change.batches)
        self.writing = []
        self.state = SharePartitionState(self.stored_start, self.stored)
        self.deliveries.clear()

    def lose_begin(self) -> None:
        self.log_start = min(self.log_start + self.rng.randint(1, 6), self.end - 1)

    def compact(self) -> None:
        if len(self.log) > 2:
            del self.log[self.rng.randrange(len(self.log) - 1)]

    # -- what must hold ---------------------------------------------------------------------------

    @property
    def end(self) -> int:
        return self.log[-1].last_offset + 1

    def check(self) -> None:
        flight = self.state.in_flight
        flight.check()
        self.held = {
            each: span.member_id
            for span in flight.spans
            if span.state is RecordState.ACQUIRED
            for each in range(span.first, span.last + 1)
        }
        assert all(count <= self.limits.deliveries_max for count in self.deliveries.values())

    def step(self) -> None:
        steps = (self.fetch, self.acknowledge, self.settle, self.wait, self.leave)
        rare = (self.change_leader, self.lose_begin, self.compact)
        chosen = self.rng.choices((*steps, *rare), weights=(30, 30, 15, 8, 4, 2, 1, 2))[0]
        chosen()
        self.check()

    def finish(self) -> None:
        """All goes well from now on: every record is fetched and acknowledged."""
        while self.writing:
            self.settle()
        for _ in range(4 * self.end + 50):
            self.now += self.limits.lock_ms / 1000
            self.expire()
            self.check()
            self.fetch()
            self.check()
            for each, member in sorted(self.held.items()):
                change = self.state.acknowledge(
                    member, [AckBatch(each, each, [AckType.ACCEPT])], self.limits, self.now
                )
                self.note_done(change.batches)
                self.state.complete(change, is_written=True)
            self.held = {}
            if self.state.start_offset >= self.end:
                self.check_that_none_is_lost()
                return
        pytest.fail(f"stuck: {self.state.in_flight.spans}")

    def check_that_none_is_lost(self) -> None:
        for base, last in self.log:
            for each in range(max(base, self.log_start), last + 1):
                assert each in self.done, f"{each} is lost"


@pytest.mark.parametrize("seed", range(60))
def test_no_record_is_accepted_twice_or_lost_or_stuck(seed: int) -> None:
    life = Life(seed)
    for _ in range(STEPS):
        life.step()
    life.finish()
