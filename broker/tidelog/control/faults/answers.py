"""Answers that a fault changes: stale leaders, errors beside true parts, damaged and shortened
records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog_protocol.naming import is_topics, partition_of, partitions_field, topic_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.control.faults.rules import Match
    from tidelog_protocol.errors import ErrorCode

__all__ = ["fail_topics", "partitions_in", "spoil", "stale"]


def partitions_in(
    answer: Any, match: Match, topic_names: Mapping[bytes, str]
) -> Iterator[tuple[Any, Any]]:
    """Yield each matching topic and partition of an answer."""
    for field in answer.FIELDS:
        if not is_topics(field):
            continue
        for topic in getattr(answer, field.name) or ():
            name, inner = topic_of(topic, topic_names), partitions_field(topic)
            for partition in getattr(topic, inner) if inner else ():
                if match.names(name, partition_of(partition)):
                    yield topic, partition


def fail_topics(
    answer: Any, match: Match, code: ErrorCode, topic_names: Mapping[bytes, str]
) -> None:
    """Set an error in the answer of Metadata or Fetch, whose other parts are true."""
    for topic, partition in partitions_in(answer, match, topic_names):
        if match.partition is None and hasattr(topic, "error_code"):
            topic.error_code = int(code)
            topic.partitions = []
            continue
        partition.error_code = int(code)
        if hasattr(partition, "records"):
            partition.records, partition.aborted_transactions = b"", None
            partition.high_watermark = partition.last_stable_offset = -1


def stale(answer: Any, match: Match, topic_names: Mapping[bytes, str]) -> None:
    """Name another broker as the leader of each matching partition, of the epoch before."""
    for _, partition in partitions_in(answer, match, topic_names):
        nodes = [*partition.replica_nodes, *(broker.node_id for broker in answer.brokers)]
        other = next((node for node in nodes if node != partition.leader_id), partition.leader_id)
        partition.leader_id = other
        partition.leader_epoch = max(0, partition.leader_epoch - 1)


def spoil(
    message: Any,
    match: Match,
    topic_names: Mapping[bytes, str],
    cut_to: int | None = None,
    *,
    cuts: bool = False,
) -> None:
    """Change a byte in the records of each matching partition, or cut them short."""
    for _, partition in partitions_in(message, match, topic_names):
        records = partition.records
        if not records:
            continue
        data = bytearray(records if not isinstance(records, list | tuple) else b"".join(records))
        if cuts:
            del data[len(data) // 2 if cut_to is None else cut_to :]
        elif data:
            data[-1] ^= 0xFF
        partition.records = memoryview(data)
