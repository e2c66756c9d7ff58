"""The states of one followed partition, and their transitions.

Pure: time (seconds of the monotonic clock) and random numbers come as arguments.
`replica_fetcher.py` keeps one for each partition and leader epoch, so that an answer from an
earlier epoch finds no state to change. Kafka: PartitionFetchState.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition

__all__ = ["BACK_OFF_JITTER", "TRANSITIONS", "Backoff", "Event", "FetchState", "State", "event_of"]

BACK_OFF_JITTER = 0.2
_FIRST_SHARE = 32  # the longest pause is this many times the first


class State(Enum):
    """The state of a followed partition.

    - FETCHING: it is part of the next fetch. A diverging log is truncated when the leader says so,
      and the next fetch asks again for its end: that needs no other state.
    - TRUNCATING: the leader lacks the fetch offset; the follower asks where its log begins and
      ends (ListOffsets), then truncates or restarts its own. Not fetched meanwhile.
    - BUILDING_REMOTE_LOG_AUX: the leader has the offset only in the remote tier; the follower
      fetches the state that it needs of the remote part (`aux_state.py`), then restarts its log.
    - DELAYED: an error; after a pause it returns to its previous state (`resume`).
    - FAILED: this broker's disk failed, or the leader epoch has ended. It stays so in this leader
      epoch: newer metadata brings a new state.
    """

    FETCHING = auto()
    TRUNCATING = auto()
    BUILDING_REMOTE_LOG_AUX = auto()
    DELAYED = auto()
    FAILED = auto()


class Event(Enum):
    """An event of a followed partition."""

    PROGRESS = auto()  # the leader answered, with records or without
    OUT_OF_RANGE = auto()
    TRUNCATED = auto()  # the log now is a prefix of the leader's
    MOVED_TO_TIER = auto()
    BUILT = auto()  # the log now begins within the leader's local log
    ERROR = auto()  # it may be transient
    PAUSE_OVER = auto()
    FATAL = auto()


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.FETCHING, Event.PROGRESS): State.FETCHING,
    (State.FETCHING, Event.OUT_OF_RANGE): State.TRUNCATING,
    (State.FETCHING, Event.MOVED_TO_TIER): State.BUILDING_REMOTE_LOG_AUX,
    (State.FETCHING, Event.ERROR): State.DELAYED,
    (State.FETCHING, Event.FATAL): State.FAILED,
    (State.TRUNCATING, Event.TRUNCATED): State.FETCHING,
    (State.TRUNCATING, Event.MOVED_TO_TIER): State.BUILDING_REMOTE_LOG_AUX,  # KIP-1023
    (State.TRUNCATING, Event.ERROR): State.DELAYED,
    (State.TRUNCATING, Event.FATAL): State.FAILED,
    (State.BUILDING_REMOTE_LOG_AUX, Event.BUILT): State.FETCHING,
    (State.BUILDING_REMOTE_LOG_AUX, Event.ERROR): State.DELAYED,
    (State.BUILDING_REMOTE_LOG_AUX, Event.FATAL): State.FAILED,
    (State.DELAYED, Event.PAUSE_OVER): State.FETCHING,  # or TRUNCATING, if it was that
}

# The epoch of the fetch has ended: metadata with the next one is on its way.
_FATAL = frozenset({ErrorCode.FENCED_LEADER_EPOCH})


def event_of(error: int) -> Event:
    """Return the event of an error in a leader's answer."""
    if error == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Event.OUT_OF_RANGE
    if error == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
        return Event.MOVED_TO_TIER
    return Event.FATAL if error in _FATAL else Event.ERROR


class Backoff:
    """Pauses after failures in a row: each doubles, up to a limit, with jitter.

    Kafka always waits the whole replica.fetch.backoff.ms. Most of these failures end as soon as the
    leader has read the metadata that this broker has, so the first pauses are short.
    """

    __slots__ = ("_failures", "_seconds_max")

    def __init__(self, seconds_max: float) -> None:
        """`seconds_max`: replica.fetch.backoff.ms."""
        self._seconds_max = seconds_max
        self._failures = 0

    def next_pause(self, chance: float) -> float:
        """Return the seconds to wait after one more failure; `chance` in [0, 1]."""
        seconds = min(self._seconds_max, self._seconds_max / _FIRST_SHARE * (1 << self._failures))
        self._failures = min(self._failures + 1, 16)
        return seconds * (1 - BACK_OFF_JITTER + 2 * BACK_OFF_JITTER * chance)

    def succeeded(self) -> None:
        """Reset: the next failure is a first one."""
        self._failures = 0


class FetchState:
    """One partition under one leader epoch; compared by identity.

    Invariants: `due` is set only while DELAYED, and `resume` is the state after that. The offset to
    fetch next is the log's end: nothing else appends to a follower's log.
    """

    __slots__ = ("backoff", "due", "leader_epoch", "partition", "resume", "state")

    def __init__(self, partition: Partition, leader_epoch: int, backoff_s_max: float) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = State.FETCHING
        self.resume = State.FETCHING
        self.due = 0.0
        self.backoff = Backoff(backoff_s_max)

    def step(self, event: Event) -> None:
        """Take a transition of the table; KeyError if there is none."""
        state = TRANSITIONS[self.state, event]
        if event is Event.PAUSE_OVER:
            state = self.resume
        elif event is Event.PROGRESS:
            self.backoff.succeeded()
        self.state = state

    def pause(self, now: float, chance: float) -> float:
        """Pause after an error; return until when, on the clock of `now`."""
        building = (
            self.state is State.BUILDING_REMOTE_LOG_AUX
        )  # the leader may answer differently by then
        self.resume = State.FETCHING if building else self.state
        self.step(Event.ERROR)
        self.due = now + self.backoff.next_pause(chance)
        return self.due
