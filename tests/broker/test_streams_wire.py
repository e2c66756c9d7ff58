"""Messages of streams groups from and to the pure group; commits by member epochs."""

from __future__ import annotations

from typing import Any

import pytest

from support.streams_groups import AT_ONCE, Client, StreamsLife, word_count
from tidelog.coordinators.groups.consumer.commits import Commit
from tidelog.coordinators.groups.streams.commits import commit_error, fetch_error
from tidelog.coordinators.groups.streams.endpoints import EndpointPartitions
from tidelog.coordinators.groups.streams.member import Endpoint
from tidelog.coordinators.groups.streams.requests import StreamsAnswer
from tidelog.coordinators.groups.streams.tasks import HeldTasks
from tidelog.coordinators.groups.streams.topology import GroupStatus, InternalTopic, Status
from tidelog.coordinators.groups.streams.wire import (
    creatable,
    described,
    heartbeat_of,
    response_of,
)
from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.streams_groups import (
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

Request = StreamsGroupHeartbeatRequest
Response = StreamsGroupHeartbeatResponse


def topology() -> Any:
    """`word_count`, as a client sends it."""
    words = Request.TopicInfo(name="words")
    counts = Request.TopicInfo(name="counts")
    return Request.Topology(
        epoch=0,
        subtopologies=[
            Request.Subtopology(
                subtopology_id="0", source_topics=["lines"], repartition_sink_topics=["words"]
            ),
            Request.Subtopology(
                subtopology_id="1",
                repartition_source_topics=[words],
                state_changelog_topics=[counts],
            ),
        ],
    )


def through_bytes(message: Any) -> Any:
    each = codec(type(message), 0)
    return each.decode(each.encode(message))


def test_a_joining_request_is_read_whole() -> None:
    request = Request(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=7,
        rack_id="r",
        topology=topology(),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
        user_endpoint=Request.Endpoint(host="h", port=65535),
        client_tags=[Request.KeyValue(key="b", value="2"), Request.KeyValue(key="a", value="1")],
    )
    found = heartbeat_of(through_bytes(request), "client", "/host")
    assert found.topology == word_count()
    assert (found.member_id, found.epoch, found.rebalance_timeout_ms) == ("m", 0, 7)
    assert (found.owned, found.process_id, found.rack_id) == (({}, {}, {}), "p", "r")
    assert (found.user_endpoint, found.client_tags) == (("h", 65535), (("a", "1"), ("b", "2")))
    assert (found.client_id, found.client_host) == ("client", "/host")


def test_a_request_without_changes_says_nothing() -> None:
    found = heartbeat_of(Request(member_id="m", member_epoch=3), "", "")
    assert (found.owned, found.topology, found.client_tags, found.user_endpoint) == (None,) * 4
    tasks = [Request.TaskIds(subtopology_id="0", partitions=[2, 1]), Request.TaskIds()]
    request = Request(
        member_epoch=3,
        active_tasks=tasks,
        standby_tasks=[],
        warmup_tasks=[],
        task_offsets=[],
        shutdown_application=True,
    )
    found = heartbeat_of(request, "", "")
    assert found.owned == ({"0": {1, 2}}, {}, {})
    assert (found.has_task_offsets, found.has_task_end_offsets) == (True, False)
    assert found.shuts_down


def test_an_answer_is_written_whole() -> None:
    answer = StreamsAnswer(
        "m",
        3,
        5000,
        HeldTasks({"1": {1: 3, 0: 2}}, {"0": frozenset([4])}),
        (GroupStatus(Status.STALE_TOPOLOGY, "old"),),
        2,
        (EndpointPartitions(Endpoint("h", 1), [("t", [0])], []),),
    )
    found = through_bytes(response_of(answer))
    assert found == Response(
        member_id="m",
        member_epoch=3,
        heartbeat_interval_ms=5000,
        status=[Response.Status(status_code=0, status_detail="old")],
        active_tasks=[Response.TaskIds(subtopology_id="1", partitions=[0, 1])],
        standby_tasks=[Response.TaskIds(subtopology_id="0", partitions=[4])],
        warmup_tasks=[],
        endpoint_information_epoch=2,
        partitions_by_user_endpoint=[
            Response.EndpointToPartitions(
                user_endpoint=Response.Endpoint(host="h", port=1),
                active_partitions=[Response.TopicPartition(topic="t", partitions=[0])],
                standby_partitions=[],
            )
        ],
    )
    same = response_of(StreamsAnswer("m", 3))
    assert (same.active_tasks, same.partitions_by_user_endpoint, same.status) == (None, None, [])


def test_internal_topics_are_created_with_their_settings() -> None:
    found = creatable(InternalTopic("t", 3, 0, {"cleanup.policy": "compact"}))
    assert (found.name, found.num_partitions, found.replication_factor) == ("t", 3, -1)
    assert [(each.name, each.value) for each in found.configs] == [("cleanup.policy", "compact")]
    assert creatable(InternalTopic("t", 3, 2, {})).replication_factor == 2


def test_a_group_is_described_with_its_topology_and_members() -> None:
    life = StreamsLife(lines=2)
    client = Client(life, "m", "p")
    client.join(user_endpoint=Endpoint("h", 9), client_tags=(("a", "1"),), client_id="c")
    found = through_bytes(described(life.group))
    assert (found.group_id, found.group_state, found.group_epoch) == ("g", "NotReady", 2)
    changelog = found.topology.subtopologies[1].state_changelog_topics[0]
    assert (changelog.name, changelog.partitions) == ("counts", 0)
    life.create()
    client.beat()
    found = through_bytes(described(life.group))
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 3, 3)
    changelog = found.topology.subtopologies[1].state_changelog_topics[0]
    assert (changelog.name, changelog.partitions) == ("counts", 2)
    (member,) = found.members
    assert (member.member_id, member.member_epoch, member.process_id) == ("m", 3, "p")
    assert (member.user_endpoint.port, member.client_tags[0].key) == (9, "a")
    assert member.assignment == member.target_assignment
    table = StreamsGroupDescribeResponse.TaskIds
    assert member.assignment.active_tasks == [
        table(subtopology_id="0", partitions=[0, 1]),
        table(subtopology_id="1", partitions=[0, 1]),
    ]


def lagging() -> StreamsLife:
    """m is asked to give back tasks in epoch 2; n waits for them in epoch 3."""
    life = StreamsLife(AT_ONCE, lines=2, words=2, counts=2)
    for name in "mn":
        Client(life, name).join()
    client = Client(life, "m")
    client.epoch = 2
    client.beat(active={key: frozenset([0, 1]) for key in "01"})
    return life


@pytest.mark.parametrize(
    ("commit", "error"),
    [
        (Commit("m", 2), ErrorCode.NONE),
        (Commit("m", 3), ErrorCode.STALE_MEMBER_EPOCH),
        (Commit("m", 2, version=8), ErrorCode.UNSUPPORTED_VERSION),
        (Commit("m", 2, version=3, is_transactional=True), ErrorCode.NONE),
        (Commit("n", 2), ErrorCode.STALE_MEMBER_EPOCH),
        (Commit("x", 2), ErrorCode.UNKNOWN_MEMBER_ID),
        (Commit("", -1), ErrorCode.UNKNOWN_MEMBER_ID),
        (Commit("", -1, is_transactional=True), ErrorCode.NONE),
        (Commit("m", 1), ErrorCode.STALE_MEMBER_EPOCH),
    ],
)
def test_commits_are_fenced_by_epochs(commit: Commit, error: ErrorCode) -> None:
    assert commit_error(lagging().group, commit, [("lines", 0), ("words", 1)]) is error


def test_a_member_may_commit_with_the_epoch_in_which_it_got_a_task() -> None:
    life = lagging()
    client = Client(life, "m")
    client.epoch = 2
    client.beat()  # it has given them back
    assert life.group.members["m"].epoch == 3
    kept = life.group.members["m"].assigned.active
    topics = {"0": "lines", "1": "words"}
    mine = [(topics[key], n) for key, each in kept.items() for n in each]
    assert commit_error(life.group, Commit("m", 2), mine) is ErrorCode.NONE
    everything = [(topic, n) for topic in topics.values() for n in range(2)]
    assert commit_error(life.group, Commit("m", 2), everything) is ErrorCode.STALE_MEMBER_EPOCH
    unknown = commit_error(life.group, Commit("m", 2), [("other", 0)])
    assert unknown is ErrorCode.STALE_MEMBER_EPOCH


def test_fetches_need_the_epoch_of_the_member() -> None:
    group = lagging().group
    assert fetch_error(group, None, -1) is ErrorCode.NONE
    assert fetch_error(group, "m", 2) is ErrorCode.NONE
    assert fetch_error(group, "m", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_error(group, "x", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_admin_client_commits_for_an_empty_group() -> None:
    group = StreamsLife().group
    assert commit_error(group, Commit("", -1), [("lines", 0)]) is ErrorCode.NONE
