"""The backlog of replicas: how many wait, in which order they are settled, and when."""

from __future__ import annotations

from support.data_path import ManualClock, ManualTimers
from tidelog.replication.backlog import AT_ONCE_MAX, SLICE, Backlog
from tidelog_storage.types import TopicPartition


def keys(count: int, name: str = "t") -> list[TopicPartition]:
    return [TopicPartition(name, index) for index in range(count)]


class Played:
    """A backlog, and the slices that it settled."""

    def __init__(self) -> None:
        self.timers = ManualTimers(ManualClock())
        self.slices: list[list[TopicPartition]] = []
        self.backlog = Backlog(self.timers, lambda some: self.slices.append(list(some)))


def test_the_first_changes_of_an_image_are_made_at_once() -> None:
    played = Played()
    played.backlog.begin()
    waits = [played.backlog.takes(key) for key in keys(AT_ONCE_MAX + 2)]
    assert waits == [False] * AT_ONCE_MAX + [True] * 2
    assert played.backlog.begin() == 0
    assert not played.backlog.takes(TopicPartition("next", 0))


def test_what_waits_is_settled_in_order_a_slice_in_each_turn() -> None:
    played = Played()
    played.backlog.begin(0)
    some = keys(2 * SLICE + 1)
    assert all(played.backlog.takes(key) for key in some)
    assert len(played.timers.pending) == 1
    played.timers.advance_ms(0)
    assert [len(each) for each in played.slices] == [SLICE, SLICE, 1]
    assert [key for each in played.slices for key in each] == some
    assert not played.backlog
    assert not played.timers.pending


def test_what_is_asked_for_is_settled_now_a_slice_in_each_turn() -> None:
    played = Played()
    played.backlog.begin(0)
    some = keys(SLICE + 3)
    assert all(played.backlog.takes(key) for key in some)
    asked = [played.backlog.settle_asked(key) for key in reversed(some)]
    assert asked == [True] * SLICE + [False] * 3
    assert not played.backlog.settle_asked(some[-1])  # it does not wait
    played.timers.advance_ms(0)
    assert played.slices == [*([key] for key in reversed(some[3:])), some[:3]]
    assert played.backlog.takes(some[0])
    assert played.backlog.settle_asked(some[0])


def test_a_later_change_waits_behind_an_earlier_one_of_the_same_replica() -> None:
    played = Played()
    played.backlog.begin(0)
    (key,) = keys(1)
    assert not played.backlog.takes(key, at_once=True)
    assert played.backlog.takes(key)
    played.backlog.begin()
    assert played.backlog.takes(key)
    assert played.backlog.takes(key, at_once=True)
    assert len(played.backlog) == 1


def test_a_cleared_backlog_settles_nothing() -> None:
    played = Played()
    played.backlog.begin(0)
    assert played.backlog.takes(TopicPartition("t", 0))
    played.backlog.clear()
    played.timers.advance_ms(0)
    assert not played.slices
