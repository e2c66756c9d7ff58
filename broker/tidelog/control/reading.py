"""The call that reads the state of a cluster; `state.py` has its values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.control.calls import Call
from tidelog.control.errors import MISSING, ControlError
from tidelog.control.state import (
    BrokerPart,
    ClusterState,
    GroupState,
    HostedLog,
    ReadState,
    RunningBrokerState,
    ShareState,
    TopicState,
)

if TYPE_CHECKING:
    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl

__all__ = ["CALLS"]


async def _read(control: ClusterControl, args: ReadState) -> ClusterState:
    """Read the state of topics, groups, transactions and running brokers."""
    asked = {"topics": args.topics, "internal": args.internal}
    parts: list[BrokerPart] = list((await control.ask_all("broker.state", asked)).values())
    newest = max(parts, key=lambda part: part.metadata_offset, default=None)
    if newest is not None and not args.missing_ok:
        _check_named(args, newest)
    hosted: dict[tuple[str, int], list[HostedLog]] = {}
    for part in parts:
        for log in part.logs:
            hosted.setdefault((log.topic, log.partition), []).append(log)
    shares: dict[str, list[ShareState]] = {}
    for share in (share for part in parts for share in part.shares):
        shares.setdefault(share.group_id, []).append(share)
    ends = {
        key: one.log.high_watermark
        for key, logs in hosted.items()
        for one in logs
        if one.log.is_leader
    }
    return ClusterState(
        controller=-1 if newest is None else newest.controller,
        brokers=tuple(
            RunningBrokerState(
                node_id=part.node_id,
                metadata_offset=part.metadata_offset,
                wall_ms=part.wall_ms,
                purgatories=part.purgatories,
                connections=part.connections,
            )
            for part in parts
        ),
        topics=() if newest is None else tuple(_with_logs(one, hosted) for one in newest.topics),
        groups=tuple(
            _with_lag(replace(group, shares=tuple(shares.get(group.group_id, ()))), ends)
            for part in parts
            for group in part.groups
        ),
        transactions=tuple(one for part in parts for one in part.transactions),
    )


def _check_named(args: ReadState, part: BrokerPart) -> None:
    known = {topic.name for topic in part.topics}
    missing = [name for name in args.topics or () if name not in known]
    if missing:
        text = f"there is no topic {', '.join(map(repr, missing))}"
        raise ControlError(text, field="topics", status=MISSING)


def _with_logs(topic: TopicState, hosted: dict[tuple[str, int], list[HostedLog]]) -> TopicState:
    partitions = []
    for partition in topic.partitions:
        found = hosted.get((topic.name, partition.partition), [])
        remote = next((one.remote for one in found if one.log.broker == partition.leader), ())
        logs = tuple(one.log for one in found)
        partitions.append(replace(partition, logs=logs, remote=remote))
    return replace(topic, partitions=tuple(partitions))


def _with_lag(group: GroupState, ends: dict[tuple[str, int], int]) -> GroupState:
    offsets = []
    for committed in group.offsets:
        end = ends.get((committed.topic, committed.partition))
        lag = None if end is None else max(end - committed.offset, 0)
        offsets.append(replace(committed, lag=lag))
    return replace(group, offsets=tuple(offsets))


def _read_here(control: BrokerControl, args: ReadState) -> BrokerPart:
    """Read what this broker knows."""
    from tidelog.control.broker_state import read  # noqa: PLC0415 - in a broker only

    return read(control.server, args)


CALLS = (
    Call("cluster.state", "cluster", ReadState, ClusterState, _read),
    Call("broker.state", "broker", ReadState, BrokerPart, _read_here),
)
