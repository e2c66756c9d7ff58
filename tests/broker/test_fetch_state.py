"""Steps of a followed partition, and pauses after errors."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.replication.fetch_state import (
    TRANSITIONS,
    Backoff,
    Event,
    FetchState,
    State,
    event_of,
)
from tidelog_protocol.errors import ErrorCode

NO_NODE: Any = None


def state() -> FetchState:
    return FetchState(NO_NODE, 1, 1.0)


def test_what_is_not_in_the_table_is_refused() -> None:
    for before in State:
        for event in Event:
            one = state()
            one.state = before
            if (before, event) in TRANSITIONS:
                one.step(event)
            else:
                with pytest.raises(KeyError):
                    one.step(event)
                assert one.state is before


def test_nothing_leads_out_of_failure() -> None:
    assert not [key for key in TRANSITIONS if key[0] is State.FAILED]
    assert set(TRANSITIONS.values()) == set(State)


@pytest.mark.parametrize("before", [State.FETCHING, State.TRUNCATING])
def test_a_pause_ends_where_it_began(before: State) -> None:
    one = state()
    one.state = before
    due = one.pause(100.0, 0.5)
    assert (one.state, one.due) == (State.DELAYED, due)
    assert due == pytest.approx(100 + 1 / 32)
    one.step(Event.PAUSE_OVER)
    assert one.state is before


def test_after_a_failure_the_leader_is_asked_again_where_the_offset_is() -> None:
    one = state()
    one.step(Event.MOVED_TO_TIER)
    assert one.state is State.BUILDING_REMOTE_LOG_AUX
    one.pause(100.0, 0.5)
    one.step(Event.PAUSE_OVER)
    assert one.state is State.FETCHING


def test_errors() -> None:
    assert event_of(ErrorCode.OFFSET_OUT_OF_RANGE) is Event.OUT_OF_RANGE
    assert event_of(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE) is Event.MOVED_TO_TIER
    assert event_of(ErrorCode.FENCED_LEADER_EPOCH) is Event.FATAL
    for error in (
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ):
        assert event_of(error) is Event.ERROR


def test_pauses_grow_to_the_limit_and_restart_after_success() -> None:
    backoff = Backoff(1.0)
    pauses = [backoff.next_pause(0.5) for _ in range(8)]
    assert pauses == pytest.approx([1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 1, 1])
    assert (backoff.next_pause(0.0), backoff.next_pause(1.0)) == pytest.approx((0.8, 1.2))
    backoff.succeeded()
    assert backoff.next_pause(0.5) == pytest.approx(1 / 32)


def test_progress_makes_the_next_failure_a_first_one() -> None:
    one = state()
    for _ in range(3):
        one.pause(0.0, 0.5)
        one.step(Event.PAUSE_OVER)
    one.step(Event.OUT_OF_RANGE)
    one.step(Event.TRUNCATED)
    assert one.pause(0.0, 0.5) == pytest.approx(1 / 4), "a start that was found is not yet progress"
    one.step(Event.PAUSE_OVER)
    one.step(Event.PROGRESS)
    assert one.pause(0.0, 0.5) == pytest.approx(1 / 32)
