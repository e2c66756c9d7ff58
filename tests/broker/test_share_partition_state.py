"""The records in flight of a share partition: acquired, acknowledged, released, out of time."""

from __future__ import annotations

import pytest

from tidelog.coordinators.share.values import StateBatch
from tidelog.shares.acquiring import LogBatch, Wish, acquire
from tidelog.shares.partition_state import AckBatch, Change, ShareLimits, SharePartitionState
from tidelog.shares.records import TRANSITIONS, AckType, RecordState, ShareError, Span
from tidelog_protocol.errors import ErrorCode

LIMITS = ShareLimits()
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = RecordState
GAP, ACCEPT, RELEASE, REJECT, RENEW = AckType


def log(*bounds: tuple[int, int]) -> list[LogBatch]:
    return [LogBatch(*each) for each in bounds]


def take(
    state: SharePartitionState,
    batches: list[LogBatch],
    *,
    member: str = "m",
    at: int | None = None,
    most: int = 500,
    size: int = 500,
    strict: bool = False,
    until: float = 30.0,
    limits: ShareLimits = LIMITS,
) -> list[tuple[int, int, int]]:
    """Acquire from these batches, as if read where the state wants to read next."""
    offset = state.next_fetch_offset if at is None else at
    wish = Wish(member, offset, most, size, strict, until)
    acquired = acquire(state, wish, limits, batches)
    state.in_flight.check()
    return [tuple(each) for each in acquired]  # type: ignore[misc]


def ack(
    state: SharePartitionState, first: int, last: int, *types: int, member: str = "m"
) -> Change:
    return state.acknowledge(member, [AckBatch(first, last, types)], LIMITS, 0.0)


def done(state: SharePartitionState, change: Change, *, is_written: bool = True) -> None:
    state.complete(change, is_written=is_written)
    state.in_flight.check()


def refused(state: SharePartitionState, first: int, last: int, *types: int) -> ErrorCode:
    with pytest.raises(ShareError) as caught:
        ack(state, first, last, *types)
    return caught.value.code


def shown(state: SharePartitionState) -> list[tuple[int, int, str, int]]:
    return [(s.first, s.last, s.state.name, s.delivery_count) for s in state.in_flight.spans]


def test_a_record_moves_only_as_the_table_says() -> None:
    span = Span(0, 1, AVAILABLE, 0)
    with pytest.raises(AssertionError):
        span.step(ACKNOWLEDGED)
    span.step(ACQUIRED)
    span.step(ACKNOWLEDGED)
    assert not TRANSITIONS[ACKNOWLEDGED] | TRANSITIONS[ARCHIVED]


class TestAcquire:
    def test_new_records_come_in_whole_batches(self) -> None:
        state = SharePartitionState(0)
        assert take(state, log((0, 4), (5, 9)), most=3) == [(0, 4, 1)]
        assert state.next_fetch_offset == 5
        assert take(state, log((5, 9))) == [(5, 9, 1)]

    def test_large_reads_are_divided_at_batch_bounds(self) -> None:
        state = SharePartitionState(0)
        batches = log((0, 4), (5, 9), (10, 14), (15, 19))
        assert take(state, batches, size=8) == [(0, 9, 1), (10, 19, 1)]

    def test_the_record_limit_mode_gives_no_more_than_asked(self) -> None:
        state = SharePartitionState(0)
        assert take(state, log((0, 9), (10, 19)), most=4, strict=True) == [(0, 3, 1)]
        assert shown(state) == [(0, 3, "ACQUIRED", 1), (4, 9, "AVAILABLE", 0)]
        assert take(state, log((0, 9), (10, 19)), most=8, strict=True) == [(4, 9, 1), (10, 11, 1)]

    def test_records_before_the_start_offset_are_left_out(self) -> None:
        state = SharePartitionState(7)
        assert take(state, log((5, 9))) == [(7, 9, 1)]
        assert take(SharePartitionState(10), log((5, 9))) == []

    def test_a_hole_behind_the_end_is_passed(self) -> None:
        state = SharePartitionState(0)
        assert take(state, log((3, 5))) == [(3, 5, 1)]
        assert state.start_offset == 3
        assert take(state, log((8, 9)), at=6) == [(8, 9, 1)]
        done(state, ack(state, 3, 5, ACCEPT))
        assert state.start_offset == 8

    def test_released_records_are_given_out_again_first(self) -> None:
        state = SharePartitionState(0)
        batches = log((0, 4), (5, 9))
        take(state, batches, size=5)
        done(state, ack(state, 2, 6, RELEASE))
        assert state.next_fetch_offset == 2
        assert take(state, batches, member="n") == [(2, 4, 2), (5, 6, 2)]
        assert state.next_fetch_offset == 10

    def test_released_batches_that_compaction_took_are_archived(self) -> None:
        state = SharePartitionState(0)
        take(state, log((0, 4), (5, 9)), size=5)
        done(state, ack(state, 0, 9, RELEASE))
        assert take(state, log((5, 9)), at=0) == [(5, 9, 2)]
        assert state.start_offset == 5

    def test_no_more_than_the_limit_is_in_flight(self) -> None:
        limits = ShareLimits(in_flight_max=10)
        state = SharePartitionState(0)
        assert take(state, log((0, 4), (5, 9)), limits=limits) == [(0, 9, 1)]
        assert not state.can_acquire(limits)
        assert take(state, log((10, 14)), limits=limits) == []
        done(state, ack(state, 5, 9, RELEASE))
        assert state.can_acquire(limits)
        assert take(state, log((5, 9), (10, 14)), limits=limits) == [(5, 9, 2)]

    def test_a_record_at_its_last_delivery_comes_alone(self) -> None:
        state = SharePartitionState(0, [StateBatch(0, 3, AVAILABLE, 4)])
        batches = log((0, 3), (4, 9))
        assert take(state, batches) == [(0, 0, 5)]
        assert take(state, batches) == [(1, 1, 5)]

    def test_fewer_records_come_the_more_often_they_were_delivered(self) -> None:
        limits = ShareLimits(deliveries_max=6)
        state = SharePartitionState(0, [StateBatch(0, 15, AVAILABLE, 3)])
        assert take(state, log((0, 15)), limits=limits) == [(0, 7, 4)]
        state = SharePartitionState(0, [StateBatch(0, 15, AVAILABLE, 4)])
        assert take(state, log((0, 15)), limits=limits) == [(0, 3, 5)]

    def test_throttled_records_do_not_come_behind_others(self) -> None:
        stored = [StateBatch(0, 1, AVAILABLE, 1), StateBatch(2, 3, AVAILABLE, 3)]
        state = SharePartitionState(0, stored)
        batches = log((0, 3), (4, 9))
        assert take(state, batches) == [(0, 1, 2)]
        assert take(state, batches) == [(2, 2, 4)]


class TestStoredState:
    def test_gaps_in_it_are_read_again(self) -> None:
        stored = [StateBatch(5, 9, ACKNOWLEDGED, 1), StateBatch(15, 19, ARCHIVED, 5)]
        state = SharePartitionState(0, stored)
        assert (state.start_offset, state.next_fetch_offset) == (0, 0)
        assert state.delivery_complete_count == 10
        assert take(state, log((0, 4), (5, 9), (10, 19), (20, 29)), most=5) == [(0, 4, 1)]
        assert state.next_fetch_offset == 10
        assert take(state, log((10, 19), (20, 29))) == [(10, 14, 1), (20, 29, 1)]
        done(state, ack(state, 0, 4, ACCEPT))
        assert state.start_offset == 10
        done(state, ack(state, 10, 14, ACCEPT))
        assert state.start_offset == 20

    def test_a_gap_that_has_no_records_is_passed(self) -> None:
        state = SharePartitionState(0, [StateBatch(5, 9, ACKNOWLEDGED, 1)])
        assert take(state, log((7, 9), (10, 12))) == [(10, 12, 1)]
        assert state.start_offset == 10

    def test_half_a_gap_may_come_first(self) -> None:
        state = SharePartitionState(0, [StateBatch(8, 9, ACKNOWLEDGED, 1)])
        assert take(state, log((0, 2), (3, 9)), most=2) == [(0, 2, 1)]
        assert take(state, log((3, 9)), most=2, strict=True) == [(3, 4, 1)]
        assert take(state, log((3, 9))) == [(5, 7, 1)]

    def test_done_records_at_its_start_are_passed(self) -> None:
        state = SharePartitionState(3, [StateBatch(3, 5, ARCHIVED, 1), StateBatch(6, 6, 0, 2)])
        assert (state.start_offset, state.next_fetch_offset) == (6, 6)

    @pytest.mark.parametrize(
        "stored", [[StateBatch(2, 4, 0, 1)], [StateBatch(9, 8, 0, 1)]], ids=str
    )
    def test_a_state_that_contradicts_itself_is_refused(self, stored: list[StateBatch]) -> None:
        with pytest.raises(ShareError, match="goes on at offset 5"):
            SharePartitionState(5, stored)


class TestAcknowledge:
    def held(self) -> SharePartitionState:
        state = SharePartitionState(0)
        take(state, log((0, 4), (5, 9)), size=5)
        return state

    def test_it_counts_once_it_is_written(self) -> None:
        state = self.held()
        change = ack(state, 0, 9, ACCEPT)
        assert change.batches == [StateBatch(0, 4, 2, 1), StateBatch(5, 9, 2, 1)]
        assert state.start_offset == 0
        assert state.delivery_complete_count == 10
        done(state, change)
        assert (state.start_offset, state.next_fetch_offset, shown(state)) == (10, 10, [])

    def test_what_is_not_written_is_held_as_before(self) -> None:
        state = self.held()
        before = shown(state)
        done(state, ack(state, 0, 9, ACCEPT), is_written=False)
        assert shown(state) == before
        assert state.delivery_complete_count == 0
        done(state, ack(state, 0, 9, ACCEPT))

    def test_each_offset_may_have_its_type(self) -> None:
        state = self.held()
        done(state, ack(state, 0, 4, ACCEPT, GAP, RELEASE, REJECT, ACCEPT))
        assert shown(state)[:3] == [
            (2, 2, "AVAILABLE", 1),
            (3, 3, "ARCHIVED", 1),
            (4, 4, "ACKNOWLEDGED", 1),
        ]

    def test_a_record_released_too_often_is_archived(self) -> None:
        state = SharePartitionState(0, [StateBatch(0, 0, AVAILABLE, 4)])
        take(state, log((0, 0)))
        change = ack(state, 0, 0, RELEASE)
        assert change.batches == [StateBatch(0, 0, ARCHIVED, 5)]

    def test_nothing_is_acknowledged_twice(self) -> None:
        state = self.held()
        change = ack(state, 0, 4, ACCEPT)
        assert refused(state, 0, 4, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
        done(state, change)
        ack(state, 0, 4, ACCEPT)  # below the start offset: nothing to do
        done(state, ack(state, 7, 7, ACCEPT))
        assert refused(state, 7, 7, RELEASE) is ErrorCode.INVALID_RECORD_STATE

    def test_nothing_is_acknowledged_twice_in_one_request(self) -> None:
        state = self.held()
        twice = [AckBatch(0, 2, (ACCEPT,)), AckBatch(2, 4, (ACCEPT,))]
        with pytest.raises(ShareError, match="The offset is not acquired"):
            state.acknowledge("m", twice, LIMITS, 0.0)
        done(state, ack(state, 0, 4, ACCEPT))

    def test_a_refusal_changes_nothing(self) -> None:
        state = self.held()
        done(state, ack(state, 7, 7, ACCEPT))
        before = shown(state)
        assert refused(state, 0, 9, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
        assert shown(state) == before

    def test_only_the_owner_may(self) -> None:
        state = self.held()
        with pytest.raises(ShareError, match="not the owner"):
            ack(state, 0, 4, ACCEPT, member="other")

    @pytest.mark.parametrize(
        ("first", "last", "types", "code"),
        [
            (0, 0, (5,), ErrorCode.INVALID_REQUEST),
            (0, 0, (-1,), ErrorCode.INVALID_REQUEST),
            (10, 12, (1,), ErrorCode.INVALID_REQUEST),
            (8, 10, (1,), ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_malformed_ones_are_refused(
        self, first: int, last: int, types: tuple[int, ...], code: ErrorCode
    ) -> None:
        assert refused(self.held(), first, last, *types) is code

    def test_with_nothing_in_flight(self) -> None:
        assert refused(SharePartitionState(0), 0, 4, ACCEPT) is ErrorCode.INVALID_RECORD_STATE

    def test_a_renewal_moves_the_end_of_the_lock(self) -> None:
        state = self.held()
        limits = ShareLimits(lock_ms=10_000)
        change = state.acknowledge("m", [AckBatch(0, 4, [RENEW])], limits, 25.0)
        assert not change.batches
        assert state.expire(31.0, limits) == [StateBatch(5, 9, AVAILABLE, 1)]
        assert state.next_deadline == 35.0

    def test_renewals_may_be_forbidden(self) -> None:
        state = self.held()
        with pytest.raises(ShareError, match="Renewing"):
            state.acknowledge("m", [AckBatch(0, 4, [RENEW])], ShareLimits(renews=False), 0.0)


class TestRelease:
    def test_a_member_that_leaves_returns_its_records(self) -> None:
        state = SharePartitionState(0)
        take(state, log((0, 4)), member="a")
        take(state, log((5, 9)), member="b")
        change = state.release("a", LIMITS)
        assert change.batches == [StateBatch(0, 4, AVAILABLE, 1)]
        done(state, change)
        assert take(state, log((0, 4), (5, 9)), member="c") == [(0, 4, 2)]
        [last] = state.release("c", ShareLimits(deliveries_max=2)).batches
        assert last == StateBatch(0, 4, ARCHIVED, 2)

    def test_a_lock_that_ends_while_a_write_fails_ends_after_it(self) -> None:
        state = SharePartitionState(0)
        take(state, log((0, 4)), until=30.0)
        change = ack(state, 0, 4, ACCEPT)
        assert state.expire(31.0, LIMITS) == []
        done(state, change, is_written=False)
        assert state.next_deadline == 30.0
        assert state.expire(31.0, LIMITS) == [StateBatch(0, 4, AVAILABLE, 1)]

    def test_the_last_delivery_ends_in_the_archive(self) -> None:
        state = SharePartitionState(0, [StateBatch(0, 0, AVAILABLE, 4)])
        take(state, log((0, 0)), until=30.0)
        assert state.expire(30.0, LIMITS) == [StateBatch(0, 0, ARCHIVED, 5)]
        assert state.start_offset == 1


class TestLogStart:
    def test_records_below_it_are_forgotten(self) -> None:
        state = SharePartitionState(0)
        take(state, log((0, 4), (5, 9)), size=5)
        change = ack(state, 5, 9, RELEASE)
        assert state.move_start(7)
        state.in_flight.check()
        assert state.start_offset == 7
        done(state, change)
        assert shown(state) == [(7, 9, "AVAILABLE", 1)]
        ack(state, 0, 4, ACCEPT)  # too late, and no error
        assert not state.move_start(3)

    def test_it_may_pass_all(self) -> None:
        state = SharePartitionState(0)
        take(state, log((0, 4)))
        change = ack(state, 0, 4, ACCEPT)
        assert state.move_start(20)
        state.in_flight.check()
        assert (state.start_offset, state.next_fetch_offset) == (20, 20)
        done(state, change)
        assert take(state, log((20, 24))) == [(20, 24, 1)]
