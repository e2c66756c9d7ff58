"""OffsetCommit, OffsetFetch, OffsetDelete in every version."""

from __future__ import annotations

import asyncio

import pytest

from broker.group_broker import GroupBroker, topic, version_range
from broker.test_group_coordinator import committed, join_request, stable_member
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.coordinators.groups.records import decode
from tidelog.network.wide_requests import PART_MAX
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from tidelog_protocol.records import iter_batches, iter_records

NONE = ErrorCode.NONE
_CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
_CommitPartition = OffsetCommitRequest.OffsetCommitRequestPartition
_FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup
_FetchTopics = OffsetFetchRequest.OffsetFetchRequestTopics


def commit(broker: GroupBroker, version: int, group: str = "g", **more):
    """Commit 10, 11, 12 to partitions of topics that exist and of some that do not."""
    topics = [
        ("missing", b"x" * 16, [0]),
        ("a", b"a" * 16, [0, 7, 1]),
        ("b", b"b" * 16, [0, -1]),
    ]
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            _CommitTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    _CommitPartition(
                        partition_index=index,
                        committed_offset=10 + index,
                        committed_leader_epoch=3,
                        committed_metadata=more.get("metadata", "m"),
                    )
                    for index in indexes
                ],
            )
            for name, topic_id, indexes in topics
        ],
        member_id=more.get("member_id", ""),
        generation_id_or_member_epoch=more.get("generation", -1),
        retention_time_ms=more.get("retention_ms", -1),
    )
    answer = broker.ask(request, version)
    key = "topic_id" if version >= 10 else "name"
    return {
        (getattr(each, key)[:1], partition.partition_index): partition.error_code
        for each in answer.topics
        for partition in each.partitions
    }


def fetch(broker: GroupBroker, version: int, group: str = "g", topics=(("a", [0, 1, 2]),)):
    """Offsets by (topic, partition); the error code if the group has one."""
    if version < 8:
        request = OffsetFetchRequest(
            group_id=group,
            topics=None
            if topics is None
            else [
                OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in topics
            ],
        )
        answer = broker.ask(request, version)
    else:
        asked = None
        if topics is not None:
            asked = [
                _FetchTopics(name=name, topic_id=name.encode() * 16, partition_indexes=indexes)
                for name, indexes in topics
            ]
        request = OffsetFetchRequest(groups=[_FetchGroup(group_id=group, topics=asked)])
        (answer,) = broker.ask(request, version).groups
    if answer.error_code:
        return answer.error_code
    return {
        (each.topic_id[:1].decode() if version >= 10 else each.name, one.partition_index): (
            one.committed_offset,
            one.metadata,
            one.error_code,
        )
        for each in answer.topics
        for one in each.partitions
    }


@pytest.mark.parametrize("version", version_range(ApiKey.OFFSET_COMMIT))
def test_commit_in_every_version(version: int) -> None:
    broker = GroupBroker()
    errors = commit(broker, version)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    by_id = version >= 10
    assert errors == {
        (b"x" if by_id else "m", 0): ErrorCode.UNKNOWN_TOPIC_ID if by_id else unknown,
        (b"a" if by_id else "a", 7): unknown,
        (b"b" if by_id else "b", -1): unknown,
        (b"a" if by_id else "a", 0): NONE,
        (b"a" if by_id else "a", 1): NONE,
        (b"b" if by_id else "b", 0): NONE,
    }
    offset = broker.coordinator.shard_of("g").committed.of_group("g")["a"][1]
    assert (offset.offset, offset.metadata, offset.topic_id) == (11, "m", b"a" * 16)
    assert offset.leader_epoch == (3 if version >= 6 else -1)
    assert offset.commit_timestamp == broker.time.wall_ms()


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_retention_time_of_old_versions_is_kept(version: int) -> None:
    broker = GroupBroker()
    commit(broker, version, retention_ms=60_000)
    shard = broker.coordinator.shard_of("g")
    offset = shard.committed.of_group("g")["a"][0]
    expected = broker.time.wall_ms() + 60_000 if version <= 4 else -1
    assert offset.expire_timestamp == expected
    log = broker.log_bytes(shard.index)
    position, _ = next(iter_batches(log))
    record = next(iter_records(log, position))
    assert decode(record.key, record.value).offset.expire_timestamp == expected
    assert record.value[1] == (1 if version <= 4 else 4)


@pytest.mark.parametrize(
    ("retention_ms", "expected"), [((1 << 63) - 1, (1 << 63) - 1), (-(1 << 63), None)]
)
def test_a_retention_time_without_end_is_kept(retention_ms: int, expected: int | None) -> None:
    broker = GroupBroker()
    assert commit(broker, 4, retention_ms=retention_ms)["a", 0] == ErrorCode.NONE
    offset = broker.coordinator.shard_of("g").committed.of_group("g")["a"][0]
    assert offset.expire_timestamp == (expected or broker.time.wall_ms() + retention_ms)


@pytest.mark.parametrize("version", [8, 9, 10])
def test_commits_of_members_and_strangers(version: int) -> None:
    broker = GroupBroker()
    gone = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    a = b"a" if version >= 10 else "a"
    assert commit(broker, version, generation=0, member_id="m")[(a, 0)] == gone
    member_id = stable_member(broker)
    errors = [
        commit(broker, version)[(a, 0)],
        commit(broker, version, member_id=member_id, generation=0)[(a, 0)],
        commit(broker, version, member_id="m", generation=1)[(a, 0)],
        commit(broker, version, member_id=member_id, generation=1)[(a, 0)],
    ]
    assert errors == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        NONE,
    ]
    joining = broker.send(join_request(member_id=member_id), 3)
    assert joining.answer.generation_id == 2
    rebalancing = commit(broker, version, member_id=member_id, generation=2)
    assert rebalancing[(a, 0)] == ErrorCode.REBALANCE_IN_PROGRESS


def test_metadata_has_a_limit_by_partition() -> None:
    broker = GroupBroker(offset_metadata_max_bytes="4")
    assert commit(broker, 8, metadata="four")[("a", 0)] == NONE
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit(broker, 8, group="h", metadata="fives")[("a", 0)] == too_large
    assert commit(broker, 8, group="h", metadata="😀😀")[("a", 0)] == NONE
    assert commit(broker, 8, group="i", metadata="😀😀😀")[("a", 0)] == too_large
    assert commit(broker, 8, group="i", metadata=None)[("a", 0)] == NONE
    assert fetch(broker, 8, "i")[("a", 0)] == (10, "", NONE)


@pytest.mark.parametrize("version", version_range(ApiKey.OFFSET_FETCH))
def test_fetch_in_every_version(version: int) -> None:
    broker = GroupBroker()
    commit(broker, 9)
    assert fetch(broker, version) == {
        ("a", 0): (10, "m", NONE),
        ("a", 1): (11, "m", NONE),
        ("a", 2): (-1, "", NONE),
    }
    assert fetch(broker, version, "nobody", [("a", [0])]) == {("a", 0): (-1, "", NONE)}
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else NONE
    assert fetch(broker, version, topics=[("z", [5])]) == {("z", 5): (-1, "", unknown)}
    if version >= 2:
        assert fetch(broker, version, topics=None).keys() == {("a", 0), ("a", 1), ("b", 0)}
        assert fetch(broker, version, "nobody", None) == {}


def test_unknown_topic_ids_come_last() -> None:
    broker = GroupBroker()
    asked = [b"z" * 16, b"b" * 16, b"y" * 16, b"a" * 16]
    topics = [_FetchTopics(topic_id=each, partition_indexes=[0]) for each in asked]
    request = OffsetFetchRequest(groups=[_FetchGroup(group_id="g", topics=topics)])
    (answer,) = broker.ask(request, 10).groups
    assert [(each.topic_id[:1], each.partitions[0].error_code) for each in answer.topics] == [
        (b"b", NONE),
        (b"a", NONE),
        (b"z", ErrorCode.UNKNOWN_TOPIC_ID),
        (b"y", ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_several_groups_at_once() -> None:  # KIP-709
    broker = GroupBroker()
    for group in "gh":
        commit(broker, 9, group)
    request = OffsetFetchRequest(
        groups=[
            _FetchGroup(group_id=group, topics=[_FetchTopics(name="a", partition_indexes=[1])])
            for group in ("h", "nobody", "g")
        ],
        require_stable=True,
    )
    answer = broker.ask(request, 8)
    assert [each.group_id for each in answer.groups] == ["h", "nobody", "g"]
    assert [each.topics[0].partitions[0].committed_offset for each in answer.groups] == [11, -1, 11]
    assert broker.ask(OffsetFetchRequest(), 8).groups == []


@pytest.mark.parametrize("version", version_range(ApiKey.OFFSET_FETCH))
def test_errors_of_a_group(version: int) -> None:
    broker = GroupBroker(partitions=0)
    answer = fetch(broker, version)
    error = ErrorCode.NOT_COORDINATOR
    if version < 2:
        assert answer == {("a", index): (-1, "", error) for index in range(3)}
    else:
        assert answer == error


def test_a_topic_created_again_has_no_offsets_under_its_new_id() -> None:
    broker = GroupBroker()
    commit(broker, 10)
    broker.topics["a"] = topic("a", b"A" * 16, 3)
    old = broker.image
    broker.coordinator.on_image, on_image = (lambda *_: None), broker.coordinator.on_image
    broker.apply()  # the tombstones are not written yet
    request = OffsetFetchRequest(
        groups=[
            _FetchGroup(
                group_id="g", topics=[_FetchTopics(topic_id=b"A" * 16, partition_indexes=[0])]
            )
        ]
    )
    partition = broker.ask(request, 10).groups[0].topics[0].partitions[0]
    assert (partition.committed_offset, partition.error_code) == (-1, NONE)
    assert committed(broker, "g") == 10  # by name it is still told
    on_image(MetadataDelta(old, broker.image), broker.image)
    assert committed(broker, "g") == -1


def delete(broker: GroupBroker, group: str, topics: list[tuple[str, list[int]]]):
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name=name,
                partitions=[
                    OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index)
                    for index in indexes
                ],
            )
            for name, indexes in topics
        ],
    )
    answer = broker.ask(request, 0)
    if answer.error_code:
        return answer.error_code
    return {
        (each.name, one.partition_index): one.error_code
        for each in answer.topics
        for one in each.partitions
    }


def test_delete_offsets() -> None:  # KIP-496
    broker = GroupBroker()
    assert delete(broker, "g", [("a", [0])]) == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(broker, "", [("a", [0])]) == ErrorCode.INVALID_GROUP_ID
    commit(broker, 9)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(broker, "g", [("z", [0]), ("a", [0, 2, 9])]) == {
        ("z", 0): unknown,
        ("a", 9): unknown,
        ("a", 0): NONE,
        ("a", 2): NONE,
    }
    assert (committed(broker, "g"), committed(broker, "g", partition=1)) == (-1, 11)
    broker.kill()
    assert (committed(broker, "g"), committed(broker, "g", partition=1)) == (-1, 11)


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    broker = GroupBroker()
    commit(broker, 9)
    stable_member(broker)  # reads topic a
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete(broker, "g", [("a", [0]), ("b", [0])]) == {
        ("a", 0): subscribed,
        ("b", 0): NONE,
    }
    stable_member(broker, "connect", protocol_type="connect")
    assert delete(broker, "connect", [("a", [0])]) == ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize("known", [True, False])
def test_a_wide_commit_is_checked_and_encoded_in_turns(known: bool) -> None:
    broker = GroupBroker()
    broker.topics["wide"] = topic("wide", b"w" * 16, 2 * PART_MAX)
    broker.apply()
    partitions = [
        _CommitPartition(partition_index=index, committed_offset=index)
        for index in range(2 * PART_MAX)
    ]
    name = "wide" if known else "missing"
    request = OffsetCommitRequest(
        group_id="g", topics=[_CommitTopic(name=name, partitions=partitions)]
    )

    async def test() -> int:
        pending = broker.send(request, 9)
        turns = 0
        while pending.parked:
            turns += 1
            await asyncio.sleep(0)
        (answered,) = pending.answer.topics
        error = NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [(each.partition_index, each.error_code) for each in answered.partitions] == [
            (index, error) for index in range(2 * PART_MAX)
        ]
        return turns

    assert asyncio.run(test()) > (5 if known else 2)
    if known:
        assert committed(broker, "g", "wide", 2 * PART_MAX - 1) == 2 * PART_MAX - 1
