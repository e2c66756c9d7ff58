"""Streams groups over real logs: members, topics, sessions, restarts, offsets; through dispatch."""

from __future__ import annotations

from typing import Any

import pytest

from broker.group_broker import GroupBroker, topic
from broker.test_acls import acl
from broker.test_consumer_membership import join as consumer_join
from broker.test_group_coordinator import commit_request, join_request, stable_member
from tidelog.coordinators.groups.streams.group import StreamsGroup
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from tidelog_protocol.messages.group_offsets import OffsetDeleteRequest, OffsetFetchRequest
from tidelog_protocol.messages.groups import HeartbeatRequest
from tidelog_protocol.messages.share_groups import ShareGroupHeartbeatRequest
from tidelog_protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
)

NONE = ErrorCode.NONE
MISSING_SOURCES, MISSING_INTERNAL, DELAYED = 1, 3, 5
SESSION_S = 45
Topology = StreamsGroupHeartbeatRequest.Topology
TASKS = {"0": [0, 1, 2], "1": [0, 1, 2]}


def word_count(source: str = "a") -> Any:
    """Topic a is split into words, which are counted."""
    info = Topology.Subtopology.TopicInfo
    return Topology(
        subtopologies=[
            Topology.Subtopology(
                subtopology_id="0", source_topics=[source], repartition_sink_topics=["words"]
            ),
            Topology.Subtopology(
                subtopology_id="1",
                repartition_source_topics=[info(name="words")],
                state_changelog_topics=[info(name="counts")],
            ),
        ]
    )


def new_broker(**settings: Any) -> GroupBroker:
    at_once = {
        "group_streams_assignment_interval_ms": "0",
        "group_streams_initial_rebalance_delay_ms": "0",
    }
    return GroupBroker(**{**at_once, **settings})


def beat(broker: GroupBroker, member_id: str, epoch: int, **fields: Any) -> Any:
    fields = {"group_id": "g", **fields}
    return broker.ask(
        StreamsGroupHeartbeatRequest(member_id=member_id, member_epoch=epoch, **fields), 0
    )


def join_fields(member_id: str, **fields: Any) -> dict[str, Any]:
    """What a member says when it joins."""
    nothing: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    of_all = {"topology": word_count(), "rebalance_timeout_ms": 60_000, "process_id": member_id}
    return {**nothing, **of_all, **fields}


def join(broker: GroupBroker, member_id: str, **fields: Any) -> Any:
    return beat(broker, member_id, 0, **join_fields(member_id, **fields))


def tasks(answer: Any) -> dict[str, list[int]] | None:
    """The active tasks of an answer without an error."""
    assert answer.error_code == NONE, (ErrorCode(answer.error_code), answer.error_message)
    if answer.active_tasks is None:
        return None
    return {each.subtopology_id: each.partitions for each in answer.active_tasks}


def status(answer: Any) -> list[tuple[int, str]]:
    return [(each.status_code, each.status_detail) for each in answer.status]


def refused(answer: Any) -> tuple[ErrorCode, str | None]:
    return ErrorCode(answer.error_code), answer.error_message


def described(broker: GroupBroker, group_id: str = "g", **fields: Any) -> Any:
    return broker.ask(StreamsGroupDescribeRequest(group_ids=[group_id], **fields), 0).groups[0]


def group_of(broker: GroupBroker, group_id: str = "g") -> StreamsGroup:
    found = broker.admin.find(group_id)
    assert isinstance(found, StreamsGroup)
    return found


def worker(broker: GroupBroker, member_id: str = "m") -> None:
    """A member that has all tasks, in epoch 3."""
    join(broker, member_id)
    broker.create()
    assert tasks(beat(broker, member_id, 2)) == TASKS


def test_a_member_joins_works_and_leaves() -> None:
    broker = new_broker()
    answer = join(broker, "m")
    assert tasks(answer) == {}
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m", 2, 5000)
    assert status(answer) == [(MISSING_INTERNAL, "Internal topics are missing: counts, words")]
    (creation,) = broker.creations
    assert [(each.name, each.num_partitions) for each in creation.topics] == [
        ("counts", 3),
        ("words", 3),
    ]
    assert described(broker).group_state == "NotReady"
    broker.create()
    answer = beat(broker, "m", 2)
    assert (tasks(answer), answer.member_epoch, answer.status) == (TASKS, 3, [])
    assert tasks(beat(broker, "m", 3)) is None
    assert described(broker).group_state == "Stable"
    answer = beat(broker, "m", -1)
    assert (answer.member_epoch, answer.status) == (-1, [])
    assert group_of(broker).is_empty
    unknown = "Member m is not a member of group g."
    assert refused(beat(broker, "m", 3)) == (ErrorCode.UNKNOWN_MEMBER_ID, unknown)


def test_internal_topics_need_create() -> None:
    """On the cluster or on each; without it on one, none is created (Kafka: KafkaApis)."""
    broker = new_broker(acls={b"1": acl("allow ANONYMOUS create topic words")})
    denied = "Internal topics are missing: counts, words; Unauthorized to CREATE on topics counts."
    assert status(join(broker, "m")) == [(MISSING_INTERNAL, denied)]
    assert broker.creations == []
    broker = new_broker(acls={b"1": acl("allow ANONYMOUS create cluster kafka-cluster")})
    missing = "Internal topics are missing: counts, words"
    assert status(join(broker, "m")) == [(MISSING_INTERNAL, missing)]
    assert len(broker.creations) == 1


def test_a_creation_that_fails_is_in_the_status_and_is_tried_again_after_two_heartbeats() -> None:
    broker = new_broker()
    join(broker, "m")
    missing = "Internal topics are missing: counts, words"
    assert status(beat(broker, "m", 2)) == [(MISSING_INTERNAL, missing)]
    assert len(broker.creations) == 1, "it is under way"
    broker.creations.pop().on_done({"counts": "no room", "words": "too many"})
    detail = f"{missing}; Creation failed: counts (no room), words (too many)."
    assert status(beat(broker, "m", 2)) == [(MISSING_INTERNAL, detail)]
    broker.time.pass_(9.9)
    assert status(beat(broker, "m", 2)) == [(MISSING_INTERNAL, detail)]
    assert broker.creations == []
    broker.time.pass_(0.1)
    assert status(beat(broker, "m", 2)) == [(MISSING_INTERNAL, missing)]
    assert len(broker.creations) == 1
    broker.create()
    assert tasks(beat(broker, "m", 2)) == TASKS


def test_only_some_failures_are_named() -> None:
    broker = new_broker()
    info = Topology.Subtopology.TopicInfo
    names = [f"log-{n}" for n in range(5)]
    topology = Topology(
        subtopologies=[
            Topology.Subtopology(
                subtopology_id="0",
                source_topics=["a"],
                state_changelog_topics=[info(name=each) for each in names],
            )
        ]
    )
    join(broker, "m", topology=topology)
    broker.creations.pop().on_done(dict.fromkeys(names, "no room"))
    ((_, detail),) = status(beat(broker, "m", 2))
    assert detail.endswith("(no room) and 2 more.")
    assert detail.count("no room") == 3


def test_missing_sources_are_waited_for() -> None:
    broker = new_broker()
    answer = join(broker, "m", topology=word_count("lines"))
    assert status(answer) == [(MISSING_SOURCES, "Source topics lines are missing.")]
    assert broker.creations == []
    broker.topics["lines"] = topic("lines", b"l" * 16, 2)
    broker.apply()
    assert status(beat(broker, "m", 2))[0][0] == MISSING_INTERNAL
    broker.create()
    assert tasks(beat(broker, "m", 3)) == {"0": [0, 1], "1": [0, 1]}


def test_the_first_assignment_waits_for_more_members() -> None:
    broker = new_broker(group_streams_initial_rebalance_delay_ms="3000")
    for name in ("words", "counts"):
        broker.topics[name] = topic(name, name.encode().ljust(16), 3)
    broker.apply()
    first = join(broker, "m")
    assert (status(first)[0][0], first.member_epoch) == (DELAYED, 1)
    broker.time.pass_(2)
    assert join(broker, "n").member_epoch == 1
    assert described(broker).group_state == "Assigning"
    broker.time.pass_(1)
    assert described(broker).group_state == "Reconciling"
    one, other = tasks(beat(broker, "m", 1)), tasks(beat(broker, "n", 1))
    assert one is not None
    assert other is not None
    assert {key: sorted([*one[key], *other[key]]) for key in TASKS} == TASKS


def test_groups_live_through_a_crash() -> None:
    broker = new_broker()
    worker(broker)
    before = group_of(broker)
    broker.kill()
    after = group_of(broker)
    assert after is not before
    assert (after.members, after.targets) == (before.members, before.targets)
    assert (after.topology, after.epoch) == (before.topology, before.epoch)
    assert described(broker).group_state == "Stable"
    assert tasks(beat(broker, "m", 3)) is None
    broker.time.pass_(SESSION_S)
    assert group_of(broker).is_empty


def test_members_without_heartbeats_are_removed() -> None:
    broker = new_broker()
    worker(broker)
    join(broker, "n")
    broker.time.pass_(SESSION_S - 1)
    assert beat(broker, "n", 4).error_code == NONE
    broker.time.pass_(1)
    assert group_of(broker).members.keys() == {"n"}
    assert tasks(beat(broker, "n", 4)) == TASKS


def test_settings_of_the_group_take_effect() -> None:
    broker = new_broker()
    own = {"streams.session.timeout.ms": "50000", "streams.heartbeat.interval.ms": "7000"}
    broker.group_configs = {"g": own}
    broker.apply()
    assert join(broker, "m").heartbeat_interval_ms == 7000
    broker.time.pass_(49)
    assert group_of(broker).members
    broker.time.pass_(1)
    assert group_of(broker).is_empty
    join(broker, "m")
    broker.group_configs = {"g": {"streams.num.standby.replicas": "1"}}
    broker.apply()
    epoch = group_of(broker).epoch
    answer = beat(broker, "m", epoch)
    assert (answer.heartbeat_interval_ms, answer.member_epoch) == (5000, epoch + 1)


def test_a_session_that_is_shorter_now_ends_sooner() -> None:
    broker = new_broker()
    broker.group_configs = {"g": {"streams.session.timeout.ms": "60000"}}
    broker.apply()
    worker(broker)
    broker.group_configs = {}
    broker.apply()
    beat(broker, "m", 3)
    broker.time.pass_(SESSION_S)
    assert group_of(broker).is_empty


def test_a_cluster_without_the_feature_refuses_all_of_it() -> None:
    broker = new_broker()
    broker.features = {}
    broker.apply()
    assert refused(join(broker, "m")) == (ErrorCode.UNSUPPORTED_VERSION, None)
    assert refused(described(broker)) == (ErrorCode.UNSUPPORTED_VERSION, None)


def test_a_full_group() -> None:
    broker = new_broker(group_streams_max_size="1")
    join(broker, "m")
    assert refused(join(broker, "n"))[0] == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "__consumer_offsets",
            "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is "
            "prohibited.",
        ),
        ("a b", "Topic names a b are not valid topic names."),
    ],
)
def test_names_of_topics_are_checked(name: str, message: str) -> None:
    answer = join(new_broker(), "m", topology=word_count(name))
    assert refused(answer) == (ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def test_groups_that_are_not_there_or_of_another_type() -> None:
    broker = new_broker()
    missing = ErrorCode.GROUP_ID_NOT_FOUND
    assert refused(beat(broker, "m", 3)) == (missing, "Streams group g not found.")
    assert refused(beat(broker, "m", -1)) == (missing, "Group g not found.")
    assert refused(described(broker)) == (missing, "Group g not found.")
    assert refused(described(broker, "")) == (ErrorCode.INVALID_GROUP_ID, None)
    consumer_join(broker, "m")
    other = (missing, "Group g is not a streams group.")
    assert refused(join(broker, "m")) == other
    assert refused(described(broker)) == other


def test_other_members_cannot_use_a_streams_group() -> None:
    broker = new_broker()
    join(broker, "m")
    assert refused(consumer_join(broker, "n")) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a consumer group.",
    )
    share = ShareGroupHeartbeatRequest(group_id="g", member_id="n", subscribed_topic_names=["a"])
    assert refused(broker.ask(share, 1)) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a share group.",
    )
    joined = broker.ask(join_request(), 4)
    assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    classic = broker.ask(HeartbeatRequest(group_id="g", member_id="m", generation_id=2), 4)
    assert classic.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_empty_groups_change_places_with_classic_ones() -> None:
    broker = new_broker()
    broker.ask(commit_request("g", 5), 9)
    worker(broker)
    assert group_of(broker).members.keys() == {"m"}
    beat(broker, "m", -1)
    broker.kill()
    assert group_of(broker).is_empty
    stable_member(broker)
    found = broker.admin.find("g")
    assert not isinstance(found, ErrorCode)
    assert found.type == "classic"
    broker.kill()
    found = broker.admin.find("g")
    assert not isinstance(found, ErrorCode)
    assert found.type == "classic"
    assert not found.is_empty


def test_administration() -> None:
    broker = new_broker()
    worker(broker)
    (listed,) = broker.ask(ListGroupsRequest(types_filter=["streams"]), 5).groups
    assert (listed.group_id, listed.group_type, listed.protocol_type, listed.group_state) == (
        "g",
        "streams",
        "streams",
        "Stable",
    )
    join(broker, "m", group_id="h", topology=word_count("none"))
    for name, found in (("NotReady", []), ("not_ready", ["h"]), ("STABLE", ["g"])):
        groups = broker.ask(ListGroupsRequest(states_filter=[name]), 5).groups
        assert [each.group_id for each in groups] == found
    group = broker.ask(DescribeGroupsRequest(groups=["g"]), 6).groups[0]
    assert refused(group) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")
    assert described(broker, include_authorized_operations=True).authorized_operations > 0
    deletion = DeleteGroupsRequest(groups_names=["g"])
    assert broker.ask(deletion, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    beat(broker, "m", -1)
    assert broker.ask(deletion, 2).results[0].error_code == NONE
    assert broker.admin.find("g") is ErrorCode.GROUP_ID_NOT_FOUND
    broker.kill()
    assert broker.admin.find("g") is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_are_fenced_by_the_epoch_of_the_member() -> None:
    broker = new_broker()
    worker(broker)

    def commit(epoch: int, version: int = 9) -> ErrorCode:
        answer = broker.ask(
            commit_request("g", 5, generation_id_or_member_epoch=epoch, member_id="m"), version
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def fetch(epoch: int) -> ErrorCode:
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id="g", member_id="m", member_epoch=epoch, topics=None
        )
        return ErrorCode(broker.ask(OffsetFetchRequest(groups=[asked]), 9).groups[0].error_code)

    assert commit(3) is NONE
    assert commit(4) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(2) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(3, 8) is ErrorCode.UNSUPPORTED_VERSION
    assert fetch(3) is NONE
    assert fetch(2) is ErrorCode.STALE_MEMBER_EPOCH
    asked = OffsetDeleteRequest.OffsetDeleteRequestTopic(
        name="a", partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)]
    )
    deleted = broker.ask(OffsetDeleteRequest(group_id="g", topics=[asked]), 0)
    assert deleted.error_code == NONE
    error = deleted.topics[0].partitions[0].error_code
    assert error == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_offsets_and_the_empty_group_expire() -> None:
    broker = new_broker(offsets_retention_minutes="1")
    worker(broker)
    broker.ask(commit_request("g", 5, generation_id_or_member_epoch=3, member_id="m"), 9)
    for _ in range(5):
        broker.time.pass_(30)
        beat(broker, "m", 3)
    broker.admin.expire_offsets()
    assert not group_of(broker).is_empty
    beat(broker, "m", -1)
    broker.admin.expire_offsets()
    assert broker.admin.find("g") is ErrorCode.GROUP_ID_NOT_FOUND


def test_descriptions_show_partitions_of_internal_topics_as_kafka_does() -> None:
    """At the group's next write after the heartbeat that brought the topology."""
    broker = new_broker()
    for name in ("words", "counts"):
        broker.topics[name] = topic(name, name.encode().ljust(16), 3)
    broker.apply()

    def partitions() -> list[int]:
        one, other = described(broker).topology.subtopologies
        assert [each.name for each in other.repartition_source_topics] == ["words"]
        assert (one.source_topics, one.repartition_sink_topics) == (["a"], ["words"])
        return [each.partitions for each in other.state_changelog_topics]

    assert tasks(join(broker, "m")) == TASKS
    assert partitions() == [0]
    beat(broker, "m", 2)
    assert partitions() == [0]
    join(broker, "n")
    assert partitions() == [3]
    broker.kill()
    assert partitions() == [0]


def test_sessions_end_by_order() -> None:
    broker = new_broker()
    worker(broker)
    join(broker, "n")
    assert broker.coordinator.end_sessions("g", "m") == 1
    assert group_of(broker).members.keys() == {"n"}
    assert broker.coordinator.end_sessions("g") == 1
    assert group_of(broker).is_empty
