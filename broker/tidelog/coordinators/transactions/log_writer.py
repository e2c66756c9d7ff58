"""Write records to `__transaction_state` and report when they are committed.

A record in the log of a leader is committed in the end, or another broker becomes the leader. The
change stays pending until then, however long that takes, so that a coordinator never knows less
than its log. (Apache Kafka abandons a change after request.timeout.ms.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tidelog.coordinators.led_partitions import WRITE_ERRORS
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.coordinators.led_partitions import LedPartitions
    from tidelog.coordinators.transactions.shard import TransactionShard
    from tidelog.replication.internal_topics import KeyValue

__all__ = ["append", "once"]

T = TypeVar("T")


def append(
    led: LedPartitions[TransactionShard],
    shard: TransactionShard,
    records: list[KeyValue],
    *,
    now_ms: int,
    on_done: Callable[[ErrorCode], None],
    on_late: Callable[[], None] | None,
) -> None:
    """Append a batch as the shard's coordinator.

    `on_done` is called once, perhaps before this returns: with NONE when it is committed, else with
    an error for clients. `on_late` is called whenever this exceeds the timeout of the topic.
    """

    topic = led.topic

    def settled(error: ErrorCode) -> None:
        # After a takeover, the new coordinator has what is committed.
        if not led.holds(shard):
            on_done(ErrorCode.NOT_COORDINATOR)
        elif error is ErrorCode.REQUEST_TIMED_OUT:
            if on_late is not None:
                on_late()
            topic.commit(shard.index, end_offset, settled)
        elif error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            on_done(ErrorCode.NONE)  # committed, but now in fewer replicas than required
        else:
            on_done(WRITE_ERRORS.get(error, error))

    try:
        result = topic.append(shard.index, records, leader_epoch=shard.leader_epoch, now_ms=now_ms)
    except StorageError as error:
        on_done(WRITE_ERRORS.get(error.code, error.code))
        return
    end_offset = shard.end_offset = result.last_offset + 1
    topic.commit(shard.index, end_offset, settled)


def once(tell: Callable[[T], None]) -> Callable[[T], None]:
    """Wrap a function so that only its first call has an effect."""
    is_told = False

    def first(outcome: T) -> None:
        nonlocal is_told
        if not is_told:
            is_told = True
            tell(outcome)

    return first
