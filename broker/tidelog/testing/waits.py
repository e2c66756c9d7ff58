"""Wait until a group has read a topic, or records are in the remote tier; with any Kafka broker."""

from __future__ import annotations

from tidelog.embedded.cluster_client import ClusterClient, Servers, opened
from tidelog.embedded.cluster_settings import ClusterError
from tidelog.testing.records import LATEST, list_offsets
from tidelog.testing.retries import SECONDS_MAX, Retries
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.group_offsets import OffsetFetchRequest
from tidelog_protocol.messages.groups import FindCoordinatorRequest

__all__ = ["wait_for_lag", "wait_until_tiered"]

BY_NAME = 9  # later versions name topics by their ids (KIP-848)
LATEST_TIERED = -5  # KIP-1005


def wait_for_lag(
    bootstrap_servers: Servers,
    group: str,
    topic: str,
    lag_max: int = 0,
    *,
    timeout_s: float = SECONDS_MAX,
) -> int:
    """Wait until a group has at most `lag_max` records of a topic left to commit; return its lag.

    A partition without a committed offset counts whole. TimeoutError has the last lag.
    """
    retries = Retries(timeout_s)
    while True:
        with opened(bootstrap_servers) as client:
            ends = list_offsets(client, topic, LATEST)
            committed = _committed(client, group, topic)
        lag = sum(max(end - committed.get(number, 0), 0) for number, end in ends.items())
        if committed and lag <= lag_max:
            return lag
        if not retries.again():
            raise TimeoutError(
                f"group {group} has lag {lag} in {topic} after {timeout_s:g} s: committed"
                f" {committed or 'nothing'}, ends {ends}"
            )


def wait_until_tiered(
    bootstrap_servers: Servers,
    topic: str,
    offset: int,
    partition: int = 0,
    *,
    timeout_s: float = SECONDS_MAX,
) -> None:
    """Wait until the record at an offset is in the remote tier. TimeoutError has the last offset
    there."""
    retries = Retries(timeout_s)
    while True:
        with opened(bootstrap_servers) as client:
            last = list_offsets(client, topic, LATEST_TIERED).get(partition)
        if last is None:
            raise ClusterError(f"topic {topic} has no partition {partition}")
        if last >= offset:
            return
        if not retries.again():
            raise TimeoutError(
                f"{topic}-{partition}: offset {offset} is not in the remote tier after"
                f" {timeout_s:g} s; the last one there is {last} (-1: none)"
            )


def _committed(client: ClusterClient, group: str, topic: str) -> dict[int, int]:
    """Return the committed offsets of a group by partition; none while it has no coordinator."""
    asked = FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=[group])
    (found,) = client.ask(asked).coordinators
    if found.error_code:
        code = ErrorCode(found.error_code)
        if code.retriable:
            return {}
        raise ClusterError(f"group {group}: {code.name}")
    one = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
    request = OffsetFetchRequest(group_id=group, topics=None, groups=[one])
    (fetched,) = client.broker(found.node_id).ask(request, version_max=BY_NAME).groups
    code = ErrorCode(fetched.error_code)
    if code and not code.retriable:
        raise ClusterError(f"group {group}: {code.name}")
    return {
        partition.partition_index: partition.committed_offset
        for known in fetched.topics
        if known.name == topic
        for partition in known.partitions
        if partition.committed_offset >= 0
    }
