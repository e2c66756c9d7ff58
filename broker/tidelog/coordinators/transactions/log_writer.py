"""Write records to `__transaction_state` and report when they are committed.

A record in the log of a leader is committed in the end, or another broker becomes the leader. The
change stays pending until then, however long that takes, so that a coordinator never knows less
than its log. (Apache Kafka abandons a change after request.timeout.ms.)
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.awaiting import answer_early, answer_of
from tidelog.coordinators.led_partitions import WRITE_ERRORS
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog.coordinators.led_partitions import LedPartitions
    from tidelog.coordinators.transactions.shard import TransactionShard
    from tidelog.replication.internal_topics import KeyValue

__all__ = ["append"]


async def append(
    led: LedPartitions[TransactionShard],
    shard: TransactionShard,
    records: list[KeyValue],
    now_ms: int,
) -> ErrorCode:
    """Append a batch as the shard's coordinator; return NONE when it is committed, else an error
    for clients.

    If this exceeds the timeout of the topic, the early answer is COORDINATOR_NOT_AVAILABLE.
    """
    topic = led.topic
    try:
        end_offset = topic.append(
            shard.index, records, leader_epoch=shard.leader_epoch, now_ms=now_ms
        )
    except StorageError as refusal:
        return WRITE_ERRORS.get(refusal.code, refusal.code)
    shard.end_offset = end_offset
    while True:
        error: ErrorCode = await answer_of(partial(topic.commit, shard.index, end_offset))
        if not led.holds(shard):
            return ErrorCode.NOT_COORDINATOR  # the new coordinator has what is committed
        if error is not ErrorCode.REQUEST_TIMED_OUT:
            break
        await answer_early(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
        return ErrorCode.NONE  # committed, but now in fewer replicas than required
    return WRITE_ERRORS.get(error, error)
