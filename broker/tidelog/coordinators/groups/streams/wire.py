"""Heartbeats and descriptions of streams groups, from and to the messages of KIP-1071. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.streams.member import Endpoint
from tidelog.coordinators.groups.streams.requests import StreamsHeartbeat
from tidelog.coordinators.groups.streams.tasks import NO_TASKS
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.streams_group_records import StreamsGroupTopologyValue
from tidelog_protocol.messages.streams_groups import (
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tidelog.coordinators.groups.streams.endpoints import EndpointPartitions, TopicPartitions
    from tidelog.coordinators.groups.streams.group import StreamsGroup
    from tidelog.coordinators.groups.streams.member import StreamsMember
    from tidelog.coordinators.groups.streams.requests import StreamsAnswer
    from tidelog.coordinators.groups.streams.tasks import HeldTasks, TaskSets
    from tidelog.coordinators.groups.streams.topology import InternalTopic

    RequestTopic = StreamsGroupHeartbeatRequest.Topology.Subtopology.TopicInfo
    RecordTopic = StreamsGroupTopologyValue.Subtopology.TopicInfo
    DescribedTopic = StreamsGroupDescribeResponse.DescribedGroup.Topology.Subtopology.TopicInfo
    Assignment = StreamsGroupDescribeResponse.DescribedGroup.Member.Assignment

__all__ = ["creatable", "described", "heartbeat_of", "response_of"]

_Answer = StreamsGroupHeartbeatResponse
_Described = StreamsGroupDescribeResponse
_DescribedMember = StreamsGroupDescribeResponse.Member
_Topology = StreamsGroupTopologyValue


# ---- heartbeats ----------------------------------------------------------------------------------


def heartbeat_of(
    request: StreamsGroupHeartbeatRequest, client_id: str, client_host: str
) -> StreamsHeartbeat:
    """Return the heartbeat of a request."""
    endpoint, tags = request.user_endpoint, request.client_tags
    return StreamsHeartbeat(
        request.member_id,
        request.member_epoch,
        request.endpoint_information_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if request.topology is None else _topology(request.topology),
        _tasks(request.active_tasks),
        _tasks(request.standby_tasks),
        _tasks(request.warmup_tasks),
        request.process_id,
        None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        None if tags is None else tuple(sorted((each.key, each.value) for each in tags)),
        has_task_offsets=request.task_offsets is not None,
        has_task_end_offsets=request.task_end_offsets is not None,
        shuts_down=request.shutdown_application,
        client_id=client_id,
        client_host=client_host,
    )


def _tasks(
    listed: Iterable[StreamsGroupHeartbeatRequest.TaskIds] | None,
) -> dict[str, frozenset[int]] | None:
    if listed is None:
        return None
    found: dict[str, frozenset[int]] = {}
    for each in listed:
        if each.partitions:
            known = found.get(each.subtopology_id, frozenset())
            found[each.subtopology_id] = known | frozenset(each.partitions)
    return found


def _topology(topology: StreamsGroupHeartbeatRequest.Topology) -> StreamsGroupTopologyValue:
    """Return a topology as the group's record has it."""
    return _Topology(
        epoch=topology.epoch,
        subtopologies=[
            _Topology.Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=each.source_topics,
                source_topic_regex=each.source_topic_regex,
                state_changelog_topics=[*map(_topic, each.state_changelog_topics)],
                repartition_sink_topics=each.repartition_sink_topics,
                repartition_source_topics=[*map(_topic, each.repartition_source_topics)],
                copartition_groups=[
                    _Topology.CopartitionGroup(
                        source_topics=group.source_topics,
                        source_topic_regex=group.source_topic_regex,
                        repartition_source_topics=group.repartition_source_topics,
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in topology.subtopologies
        ],
    )


def _topic(topic: RequestTopic) -> RecordTopic:
    return _Topology.TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[
            _Topology.TopicConfig(key=each.key, value=each.value) for each in topic.topic_configs
        ],
    )


def response_of(answer: StreamsAnswer) -> StreamsGroupHeartbeatResponse:
    """Return the response to a heartbeat."""
    response = _Answer(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        status=[
            _Answer.Status(status_code=each.status, status_detail=each.detail)
            for each in answer.status
        ],
        endpoint_information_epoch=answer.endpoint_epoch,
    )
    if answer.assigned is not None:
        response.active_tasks = _listed(answer.assigned.active)
        response.standby_tasks = _listed(answer.assigned.standby)
        response.warmup_tasks = _listed(answer.assigned.warmup)
    if answer.endpoints is not None:
        response.partitions_by_user_endpoint = [*map(_endpoint, answer.endpoints)]
    return response


def _listed(
    tasks: Mapping[str, Collection[int]],
) -> list[StreamsGroupHeartbeatResponse.TaskIds]:
    return [
        _Answer.TaskIds(subtopology_id=key, partitions=sorted(tasks[key])) for key in sorted(tasks)
    ]


def _endpoint(each: EndpointPartitions) -> StreamsGroupHeartbeatResponse.EndpointToPartitions:
    return _Answer.EndpointToPartitions(
        user_endpoint=_Answer.Endpoint(host=each.endpoint.host, port=each.endpoint.port),
        active_partitions=_partitions(each.active),
        standby_partitions=_partitions(each.standby),
    )


def _partitions(
    listed: Sequence[TopicPartitions],
) -> list[StreamsGroupHeartbeatResponse.EndpointToPartitions.TopicPartition]:
    return [_Answer.TopicPartition(topic=name, partitions=each) for name, each in listed]


def creatable(topic: InternalTopic) -> CreateTopicsRequest.CreatableTopic:
    """Return an internal topic as CreateTopics has it."""
    return CreateTopicsRequest.CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or -1,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
            for name, value in topic.configs.items()
        ],
    )


# ---- descriptions --------------------------------------------------------------------------------


def described(group: StreamsGroup) -> StreamsGroupDescribeResponse.DescribedGroup:
    """Describe a group."""
    return _Described.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_described_topology(group),
        members=[
            _described_member(member, group.targets.get(member_id, NO_TASKS))
            for member_id, member in sorted(group.members.items())
        ],
    )


def _described_topology(
    group: StreamsGroup,
) -> StreamsGroupDescribeResponse.DescribedGroup.Topology | None:
    """Describe the topology with the partitions of its internal topics, if the group has been
    written with all topics there since they were looked at; else as the application sent it."""
    topology, configured = group.topology, group.described
    if topology is None:
        return None
    counts: dict[str, int] = {}
    if configured is not None and configured.is_ready:
        for each in (configured.subtopologies or {}).values():
            for topics in (each.repartition_source_topics, each.changelog_topics):
                counts.update((name, topic.partitions) for name, topic in topics.items())
    return _Described.Topology(
        epoch=topology.epoch,
        subtopologies=[
            _Described.Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=sorted(each.source_topics),
                repartition_sink_topics=sorted(each.repartition_sink_topics),
                state_changelog_topics=_infos(each.state_changelog_topics, counts),
                repartition_source_topics=_infos(each.repartition_source_topics, counts),
            )
            for each in sorted(topology.subtopologies, key=lambda one: one.subtopology_id)
        ],
    )


def _infos(topics: Iterable[RecordTopic], counts: Mapping[str, int]) -> list[DescribedTopic]:
    table = _Described.TopicInfo
    return [
        table(
            name=each.name,
            partitions=counts.get(each.name, each.partitions),
            replication_factor=each.replication_factor,
            topic_configs=[
                table.KeyValue(key=one.key, value=one.value) for one in each.topic_configs
            ],
        )
        for each in sorted(topics, key=lambda topic: topic.name)
    ]


def _described_member(
    member: StreamsMember, target: TaskSets
) -> StreamsGroupDescribeResponse.DescribedGroup.Member:
    said = member.description
    endpoint = said.user_endpoint
    table = _DescribedMember
    return table(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=said.instance_id,
        rack_id=said.rack_id,
        client_id=said.client_id,
        client_host=said.client_host,
        topology_epoch=said.topology_epoch,
        process_id=said.process_id,
        user_endpoint=None
        if endpoint is None
        else table.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[table.KeyValue(key=key, value=value) for key, value in said.client_tags],
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: HeldTasks | TaskSets) -> Assignment:
    return _Described.Assignment(
        active_tasks=_ids(tasks.active),
        standby_tasks=_ids(tasks.standby),
        warmup_tasks=_ids(tasks.warmup),
    )


def _ids(tasks: Mapping[str, Collection[int]]) -> list[Assignment.TaskIds]:
    return [
        _Described.TaskIds(subtopology_id=key, partitions=sorted(tasks[key]))
        for key in sorted(tasks)
    ]
