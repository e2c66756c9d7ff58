"""Where one followed partition stands with its leader, and which steps there are.

Pure: time (seconds of the clock that never goes back) and chance come as arguments. Kept by
`replica_fetcher.py`, one for each partition and leader epoch: whatever was asked for under another
one finds no state to change. replication.md 11 (states), 8 (what an error means).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition

__all__ = ["BACK_OFF_JITTER", "TRANSITIONS", "Backoff", "Event", "FetchState", "State", "event_of"]

BACK_OFF_JITTER = 0.2
_FIRST_SHARE = 32  # of the longest pause, that the first one is


class State(Enum):
    """What a followed partition waits for.

    - FETCHING: it is part of the next fetch. A log that diverged is cut when the leader says so,
      and the next fetch asks again where it ends: that takes no state of its own.
    - TRUNCATING: the leader does not have the offset that was asked for; where its log begins and
      ends is being asked (ListOffsets), then ours is cut or begun anew. Not fetched meanwhile.
    - BUILDING_REMOTE_LOG_AUX: the leader has the offset in the remote tier alone; what a replica
      must know of all that is there is being fetched (`aux_state.py`), then ours is begun anew.
    - DELAYED: an error; after a pause it is where it was before (`resume`).
    - FAILED: our disk refused it, or the leader epoch is over. Nothing more under this leader
      epoch: newer metadata brings a new state.
    """

    FETCHING = auto()
    TRUNCATING = auto()
    BUILDING_REMOTE_LOG_AUX = auto()
    DELAYED = auto()
    FAILED = auto()


class Event(Enum):
    """What can happen to a followed partition."""

    PROGRESS = auto()  # the leader answered: records, or nothing new
    OUT_OF_RANGE = auto()
    TRUNCATED = auto()  # the log now is a beginning of the leader's
    MOVED_TO_TIER = auto()
    BUILT = auto()  # the log now begins where the leader has it locally
    ERROR = auto()  # it may go away by itself
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

# The epoch that the fetch named is over: metadata that tells of the next one is on its way.
_FATAL = frozenset({ErrorCode.FENCED_LEADER_EPOCH})


def event_of(error: int) -> Event:
    """What an error in a leader's answer is."""
    if error == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Event.OUT_OF_RANGE
    if error == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
        return Event.MOVED_TO_TIER
    return Event.FATAL if error in _FATAL else Event.ERROR


class Backoff:
    """Pauses after failures in a row: each twice the one before, up to a limit, spread by chance.

    Kafka always waits the whole replica.fetch.backoff.ms. Most of these failures end as soon as
    the leader has read the metadata that we have read already, so the first pauses are short.
    """

    __slots__ = ("_failures", "_seconds_max")

    def __init__(self, seconds_max: float) -> None:
        """`seconds_max`: replica.fetch.backoff.ms."""
        self._seconds_max = seconds_max
        self._failures = 0

    def next_pause(self, chance: float) -> float:
        """Seconds to wait after one more failure; `chance` in [0, 1]."""
        seconds = min(self._seconds_max, self._seconds_max / _FIRST_SHARE * (1 << self._failures))
        self._failures = min(self._failures + 1, 16)
        return seconds * (1 - BACK_OFF_JITTER + 2 * BACK_OFF_JITTER * chance)

    def succeeded(self) -> None:
        """The next failure is a first one again."""
        self._failures = 0


class FetchState:
    """One partition under one leader epoch; compared by identity.

    Invariants: `due` is set only while DELAYED, and `resume` is where it goes back to then.
    The offset to fetch next is the log's end: nobody else appends to a follower's log.
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
        """Take a step of the table. KeyError for one that there is not."""
        state = TRANSITIONS[self.state, event]
        if event is Event.PAUSE_OVER:
            state = self.resume
        elif event is Event.PROGRESS:
            self.backoff.succeeded()
        self.state = state

    def pause(self, now: float, chance: float) -> float:
        """Wait after an error; until when, on the clock of `now`."""
        building = (
            self.state is State.BUILDING_REMOTE_LOG_AUX
        )  # the leader may say otherwise by then
        self.resume = State.FETCHING if building else self.state
        self.step(Event.ERROR)
        self.due = now + self.backoff.next_pause(chance)
        return self.due
