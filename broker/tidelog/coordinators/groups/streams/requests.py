"""A heartbeat of a streams group's member: its fields, the checks of them, and its answer. Pure.

The errors and their messages are those of Kafka 4.3.1, which has no static members, no warm-up
tasks and no regular expressions of source topics yet.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tidelog.cluster.controller.names import invalid_topic_reason
from tidelog.cluster.metadata.image import is_internal_topic
from tidelog.coordinators.groups.modern.member import LEAVING_STATIC
from tidelog.coordinators.groups.modern.requests import RefusedError, invalid
from tidelog.coordinators.groups.streams.tasks import TaskSets
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.coordinators.groups.streams.endpoints import EndpointPartitions
    from tidelog.coordinators.groups.streams.member import Endpoint
    from tidelog.coordinators.groups.streams.tasks import HeldTasks, Tasks
    from tidelog.coordinators.groups.streams.topology import GroupStatus
    from tidelog_protocol.messages.streams_group_records import StreamsGroupTopologyValue

    Subtopology = StreamsGroupTopologyValue.Subtopology

__all__ = ["StreamsAnswer", "StreamsHeartbeat", "check", "is_no_topology", "points_outside"]


class StreamsHeartbeat(NamedTuple):
    """A StreamsGroupHeartbeat request. None and -1: unchanged since the last one."""

    member_id: str
    epoch: int  # 0 joins, LEAVING leaves
    endpoint_epoch: int = 0  # of the endpoints that the member knows
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: StreamsGroupTopologyValue | None = None
    active: Tasks | None = None
    standby: Tasks | None = None
    warmup: Tasks | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] | None = None  # by key
    has_task_offsets: bool = False
    has_task_end_offsets: bool = False
    shuts_down: bool = False  # the whole application
    client_id: str = ""
    client_host: str = ""

    @property
    def owned(self) -> TaskSets | None:
        """The tasks that the member says it has, None if it does not say."""
        if self.active is None or self.standby is None or self.warmup is None:
            return None
        return TaskSets(self.active, self.standby, self.warmup)


class StreamsAnswer(NamedTuple):
    """What a member gets; None where nothing has changed."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0  # not for a member that leaves
    assigned: HeldTasks | None = None
    status: tuple[GroupStatus, ...] = ()
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None


def check(group_id: str, request: StreamsHeartbeat) -> None:
    """Check the fields of a request; RefusedError for the first wrong one, as in Kafka."""
    if request.topology is not None:
        _check_names(request.topology)
    _check_supported(request)
    _not_blank(request.member_id, "MemberId can't be empty.")
    _not_blank(group_id, "GroupId can't be empty.")
    _not_blank(request.rack_id, "RackId can't be empty.")
    if request.epoch == 0:
        _check_join(request)
    elif request.epoch == LEAVING_STATIC:
        raise invalid("InstanceId can't be null.")
    elif request.epoch < LEAVING_STATIC:
        raise invalid(f"MemberEpoch is {request.epoch}, but must be greater than or equal to -2.")
    said = [each is not None for each in (request.active, request.standby, request.warmup)]
    if any(said) and not all(said):
        raise invalid("If one task-type is non-null, all must be non-null.")
    if request.epoch != 0 and request.topology is not None:
        raise invalid("Topology can only be provided when (re-)joining.")


def _check_names(topology: StreamsGroupTopologyValue) -> None:
    """Check the names of all topics, as Kafka does before it looks at anything else."""
    names = dict.fromkeys(
        name
        for each in topology.subtopologies
        for name in chain(
            each.source_topics,
            each.repartition_sink_topics,
            (topic.name for topic in each.repartition_source_topics),
            (topic.name for topic in each.state_changelog_topics),
        )
    )
    internal = ",".join(filter(is_internal_topic, names))
    if internal:
        message = f"Use of Kafka internal topics {internal} in a Kafka Streams topology is "
        raise RefusedError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message + "prohibited.")
    invalid = [name for name in names if invalid_topic_reason(name) is not None]
    if invalid:
        message = f"Topic names {','.join(invalid)} are not valid topic names."
        raise RefusedError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def _check_supported(request: StreamsHeartbeat) -> None:
    if request.instance_id is not None:
        raise invalid("Static membership is not yet supported.")
    if request.has_task_offsets:
        raise invalid("TaskOffsets are not supported yet.")
    if request.has_task_end_offsets:
        raise invalid("TaskEndOffsets are not supported yet.")
    if request.warmup:
        raise invalid("WarmupTasks are not supported yet.")
    if request.topology is not None and any(
        each.source_topic_regex for each in request.topology.subtopologies
    ):
        raise invalid("Regular expressions for source topics are not supported yet.")


def _check_join(request: StreamsHeartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        raise invalid("RebalanceTimeoutMs must be provided in first request.")
    for name, tasks in (
        ("ActiveTasks", request.active),
        ("StandbyTasks", request.standby),
        ("WarmupTasks", request.warmup),
    ):
        if tasks is None or tasks:
            raise invalid(f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        raise invalid("Topology must be non-null when (re-)joining.")
    _check_topology(request.topology)


def _check_topology(topology: StreamsGroupTopologyValue) -> None:
    for each in topology.subtopologies:
        for topic in each.state_changelog_topics:
            if topic.partitions != 0:
                raise RefusedError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it "
                    f"is set to {topic.partitions}.",
                )


def is_no_topology(topology: StreamsGroupTopologyValue) -> bool:
    """Return whether Kafka's code fails to read a topology (`StreamsTopology`)."""
    ids = [each.subtopology_id for each in topology.subtopologies]
    return topology.epoch < 0 or len({*ids}) < len(ids)


def points_outside(subtopology: Subtopology) -> bool:
    """Return whether numbers of topics or partitions are none."""
    sources, internal = subtopology.source_topics, subtopology.repartition_source_topics
    return any(topic.partitions < 0 for topic in internal) or any(
        each not in range(len(listed))
        for group in subtopology.copartition_groups
        for listed, indexes in (
            (sources, group.source_topics),
            (internal, group.repartition_source_topics),
        )
        for each in indexes
    )


def _not_blank(text: str | None, message: str) -> None:
    if text is not None and not text.strip():
        raise invalid(message)
