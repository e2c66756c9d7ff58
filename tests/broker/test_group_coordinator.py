"""The coordinator over real logs: elections, loading, durability, timers; all through dispatch."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.group_broker import GroupBroker, Pending, topic
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.image import GROUP_METADATA_TOPIC
from tidelog.coordinators.groups import coordinator
from tidelog.coordinators.groups.classic.group import GroupState
from tidelog.coordinators.groups.modern.records import Record, encode
from tidelog.coordinators.groups.records import GroupChange, decode
from tidelog.java_order import java_hash
from tidelog.replication import internal_topics
from tidelog.replication.internal_topics import partition_for
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages import consumer_records as tables
from tidelog_protocol.messages.group_admin import DeleteGroupsRequest, ListGroupsRequest
from tidelog_protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from tidelog_protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tidelog_protocol.primitives import uuid_from_str
from tidelog_protocol.records import iter_batches, iter_records
from tidelog_storage.types import TopicPartition

VECTORS = Path(__file__).parent / "vectors"
NONE = ErrorCode.NONE


def test_a_restarted_coordinator_leads_by_its_first_image() -> None:
    broker = GroupBroker()
    led = len(broker.coordinator.led.active())
    assert led
    broker.kill()
    coordinator = broker.new_coordinator()
    assert not coordinator.led.active()
    coordinator.on_image(MetadataDelta(None, broker.image), broker.image)
    broker.time.pass_()
    assert len(coordinator.led.active()) == led


def join_request(group: str = "g", member_id: str = "", **more) -> JoinGroupRequest:
    fields = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": [
            JoinGroupRequest.JoinGroupRequestProtocol(
                name="range", metadata=b"\x00\x00\x00\x00\x00\x01\x00\x01a\xff\xff\xff\xff"
            )
        ],
    }
    return JoinGroupRequest(group_id=group, member_id=member_id, **(fields | more))


def commit_request(group: str, offset: int, *, topic: str = "a", partition: int = 0, **more):
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata="m"
                    )
                ],
            )
        ],
        **more,
    )


def committed(broker: GroupBroker, group: str, topic: str = "a", partition: int = 0, **more) -> int:
    answer = broker.ask(
        OffsetFetchRequest(
            groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)], **more
        ),
        8,
    )
    (found,) = answer.groups
    assert found.error_code == NONE, ErrorCode(found.error_code)
    offsets = {
        (each.name, every.partition_index): every.committed_offset
        for each in found.topics
        for every in each.partitions
    }
    return offsets.get((topic, partition), -1)


def stable_member(broker: GroupBroker, group: str = "g", **more) -> str:
    """A group of one member, joined and synced; its id."""
    pending = broker.send(join_request(group, **more), 3)
    broker.time.pass_(0)
    joined = pending.answer
    assert joined.error_code == NONE
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=joined.member_id, assignment=b"all"
            )
        ],
    )
    assert broker.ask(sync, 3).assignment == b"all"
    return joined.member_id


def heartbeat(broker: GroupBroker, member_id: str, generation: int = 1, group: str = "g") -> int:
    request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
    return broker.ask(request, 3).error_code


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(1 << 31)), ("😀", 1772899)],
)
def test_java_hash(text: str, value: int) -> None:
    assert java_hash(text) == value
    assert 0 <= partition_for(text, 50) < 50
    assert partition_for("polygenelubricants", 50) == 0


def test_a_captured_kafka_consumer_gets_kafkas_answers_byte_for_byte() -> None:
    broker = GroupBroker(partitions=1)
    broker.topics["fc-none"] = topic("fc-none", uuid_from_str("zPQP5IaNSRu_Hmhu2lFoCg"), 1)
    broker.apply()
    broker.rng.given = [bytes.fromhex("d08f41cf4a804ccdbe9d18d46f2ec2cf")]
    lines = [
        line.split() for line in (VECTORS / "kafka-classic-consumer.txt").read_text().splitlines()
    ]
    answers = {line[3]: line[4] for line in lines if line[0] == "response"}
    apis = []
    for direction, api, _version, correlation, data in lines:
        if direction == "response" or correlation == "0":  # before the topic was there
            continue
        pending = Pending(broker.dispatcher.dispatch(broker.peer, bytes.fromhex(data)))
        broker.time.pass_(0)
        assert pending.frame is not None
        assert pending.frame[4:].hex() == answers[correlation], api
        apis.append(int(api))
    assert apis == [10, 11, 11, 14, 9, 8, 13]
    # The log says the same as Kafka's: the new group, its generation, the offset, the empty group.
    log, kafka_log = broker.log_bytes(0), (VECTORS / "kafka-consumer-offsets.log").read_bytes()
    ours, kafkas = (
        [
            decode(record.key, record.value)
            for position, _ in iter_batches(data)
            for record in iter_records(data, position)
        ][:4]
        for data in (log, kafka_log)
    )
    for mine, theirs in zip(ours, kafkas, strict=True):
        if isinstance(mine, GroupChange):
            assert mine.value is not None
            mine.value.current_state_timestamp = theirs.value.current_state_timestamp
            assert mine == theirs
        else:
            assert mine._replace(offset=None) == theirs._replace(offset=None)
            assert mine.offset._replace(commit_timestamp=theirs.offset.commit_timestamp) == (
                theirs.offset
            )


def test_offsets_and_groups_survive_kill_9() -> None:
    broker = GroupBroker()
    member = stable_member(broker)
    request = commit_request(
        "g", 42, member_id=member, generation_id_or_member_epoch=1, partition=1
    )
    assert broker.ask(request, 7).topics[0].partitions[0].error_code == NONE
    for number in range(20):
        broker.ask(commit_request(f"simple-{number}", number), 7)
    broker.kill()
    assert committed(broker, "g", partition=1) == 42
    assert [committed(broker, f"simple-{number}") for number in range(20)] == list(range(20))
    # The member goes on as if nothing had happened, within its session.
    assert heartbeat(broker, member) == NONE
    broker.time.pass_(9.9)
    assert heartbeat(broker, member) == NONE
    broker.time.pass_(10)
    assert heartbeat(broker, member) == ErrorCode.UNKNOWN_MEMBER_ID


def test_deleted_groups_stay_deleted_after_a_restart() -> None:
    broker = GroupBroker()
    broker.ask(commit_request("g", 1), 7)
    broker.ask(commit_request("g", 2, partition=2), 7)
    member = stable_member(broker, "h")
    answer = broker.ask(DeleteGroupsRequest(groups_names=["g", "h", "nobody", "g"]), 2)
    assert [(each.group_id, each.error_code) for each in answer.results] == [
        ("g", NONE),
        ("h", ErrorCode.NON_EMPTY_GROUP),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    broker.kill()
    assert committed(broker, "g") == -1
    assert [each.group_id for each in broker.ask(ListGroupsRequest(), 4).groups] == ["h"]
    assert heartbeat(broker, member, group="h") == NONE


def test_a_group_is_not_served_while_it_loads() -> None:
    broker = GroupBroker(partitions=1)
    member = stable_member(broker)
    broker.ask(commit_request("simple", 5), 7)
    broker.disk.kill()
    broker.time.heap.clear()
    broker.start()  # and the loop has not run since
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert broker.send(join_request(), 3).answer.error_code == loading
    assert broker.ask(ListGroupsRequest(), 4).error_code == loading
    assert broker.ask(commit_request("simple", 6), 7).topics[0].partitions[0].error_code == loading
    assert heartbeat(broker, member) == NONE  # left in peace
    fetch = OffsetFetchRequest(
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="simple", topics=None)]
    )
    assert broker.ask(fetch, 8).groups[0].error_code == loading
    broker.time.pass_(0)
    assert committed(broker, "simple") == 5


def test_loading_takes_many_chunks_and_lets_the_loop_run_between_them() -> None:
    broker = GroupBroker(partitions=1, offsets_load_buffer_size="1000")
    for number in range(100):
        broker.ask(commit_request("g", number, partition=number % 3), 7)
    broker.disk.kill()
    broker.time.heap.clear()
    broker.start()
    before = broker.time.set_count
    broker.time.pass_(0)
    assert broker.time.set_count - before > 10
    assert [committed(broker, "g", partition=index) for index in range(3)] == [99, 97, 98]


def test_a_wide_batch_is_loaded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_topics, "LOAD_CHUNK_RECORDS", 1)
    broker = GroupBroker(partitions=1)
    request = commit_request("g", 7)
    (asked,) = request.topics
    asked.partitions = [
        type(asked.partitions[0])(
            partition_index=index, committed_offset=index, committed_metadata=""
        )
        for index in range(3)
    ]
    broker.ask(request, 7)
    broker.disk.kill()
    broker.time.heap.clear()
    broker.start()
    before = broker.time.set_count
    broker.time.pass_(0)
    assert broker.time.set_count - before > 3
    assert [committed(broker, "g", partition=index) for index in range(3)] == [0, 1, 2]


def test_following_a_change_of_leader() -> None:
    broker = GroupBroker(partitions=1)
    member = stable_member(broker)
    other = broker.send(join_request(), 3)
    assert other.parked
    offsets = broker.topics[GROUP_METADATA_TOPIC]
    broker.topics[GROUP_METADATA_TOPIC] = topic(
        GROUP_METADATA_TOPIC, offsets.topic_id, 1, leader=2, epoch=1
    )
    broker.apply()
    assert other.answer.error_code == ErrorCode.NOT_COORDINATOR
    assert heartbeat(broker, member) == ErrorCode.NOT_COORDINATOR
    assert broker.ask(commit_request("x", 1), 7).topics[0].partitions[0].error_code == (
        ErrorCode.NOT_COORDINATOR
    )
    assert not broker.ask(ListGroupsRequest(), 4).groups
    broker.topics[GROUP_METADATA_TOPIC] = topic(GROUP_METADATA_TOPIC, offsets.topic_id, 1, epoch=2)
    broker.apply()
    broker.time.pass_(0)
    assert heartbeat(broker, member) == NONE  # loaded from the log: the generation that was synced


def test_another_leader_between_two_images_has_the_partition_loaded_again() -> None:
    broker = GroupBroker(partitions=1)
    broker.ask(commit_request("g", 1), 7)
    offsets = broker.topics[GROUP_METADATA_TOPIC]
    for epoch, is_loaded_again in ((1, False), (3, True)):
        before = broker.coordinator.led.active()[0]
        broker.topics[GROUP_METADATA_TOPIC] = topic(
            GROUP_METADATA_TOPIC, offsets.topic_id, 1, epoch=epoch
        )
        broker.apply()
        broker.time.pass_(0)
        assert (broker.coordinator.led.active()[0] is not before) == is_loaded_again
        assert committed(broker, "g") == 1


def test_a_coordinator_that_has_not_heard_of_its_successor_writes_nothing() -> None:
    broker = GroupBroker(partitions=1)
    broker.ask(commit_request("g", 1), 7)
    size = len(broker.log_bytes(0))
    partition = broker.replica_manager.partition(GROUP_METADATA_TOPIC, 0)
    partition.leader_epoch += 1
    for request in (commit_request("g", 2), commit_request("new", 2)):
        answer = broker.ask(request, 7)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert broker.send(join_request("new"), 3).answer.error_code == ErrorCode.NOT_COORDINATOR
    assert len(broker.log_bytes(0)) == size
    assert committed(broker, "g") == 1


def test_answers_and_reads_wait_for_the_high_watermark() -> None:
    broker = GroupBroker(partitions=1)
    broker.ask(commit_request("g", 1), 7)
    partition = broker.replica_manager.partition(GROUP_METADATA_TOPIC, 0)
    partition._sole_replica, isr = False, partition.isr
    partition.isr = (1, 2)  # a follower whose log end is not known
    pending = broker.send(commit_request("g", 2), 7)
    stable = broker.send(
        OffsetFetchRequest(
            groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)],
            require_stable=True,
        ),
        8,
    )
    assert pending.parked
    assert stable.parked
    assert committed(broker, "g") == 1
    partition.isr = isr
    assert partition.advance_high_watermark()
    broker.replica_manager.appended([partition.topic_partition])
    assert pending.answer.topics[0].partitions[0].error_code == NONE
    assert stable.answer.groups[0].topics[0].partitions[0].committed_offset == 2
    assert committed(broker, "g") == 2


def test_a_commit_that_takes_too_long_is_refused_and_may_still_count() -> None:
    broker = GroupBroker(partitions=1)
    partition = broker.replica_manager.partition(GROUP_METADATA_TOPIC, 0)
    partition._sole_replica, isr = False, partition.isr
    partition.isr = (1, 2)
    pending = broker.send(commit_request("g", 2), 7)
    broker.time.pass_(5)
    assert pending.answer.topics[0].partitions[0].error_code == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    assert committed(broker, "g") == -1
    partition.isr = isr
    partition.advance_high_watermark()
    assert committed(broker, "g") == 2


def test_heartbeats_set_no_timers() -> None:
    broker = GroupBroker()
    member = stable_member(broker)
    before = broker.time.set_count
    for _ in range(100):
        broker.time.pass_(0.09)
        assert heartbeat(broker, member) == NONE
    assert broker.time.set_count == before
    broker.time.pass_(9)
    assert broker.time.set_count == before + 1  # looked once, found it alive
    broker.time.pass_(1.1)
    assert heartbeat(broker, member) == ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_deleted_topics_go_at_once() -> None:
    broker = GroupBroker()
    for name in "ab":
        broker.ask(commit_request("g", 7, topic=name), 7)
    del broker.topics["a"]
    broker.apply()
    assert (committed(broker, "g", "a"), committed(broker, "g", "b")) == (-1, 7)
    broker.kill()
    assert (committed(broker, "g", "a"), committed(broker, "g", "b")) == (-1, 7)


def test_topics_that_are_deleted_together_take_their_offsets_in_one_batch() -> None:
    broker = GroupBroker(partitions=1)
    for name in "ab":
        broker.ask(commit_request("g", 7, topic=name), 7)
    (shard,) = broker.coordinator.led.active()
    written = []
    write, broker.coordinator.write_offsets = (
        broker.coordinator.write_offsets,
        lambda shard, changes: written.append(changes) or write(shard, changes),
    )
    del broker.topics["a"], broker.topics["b"]
    broker.apply()
    assert [len(changes) for changes in written] == [2]
    assert not shard.latest
    broker.kill()


def test_a_topic_deleted_while_a_partition_loads_takes_its_offsets_too() -> None:
    broker = GroupBroker(partitions=1)
    broker.ask(commit_request("g", 7), 7)
    broker.disk.kill()
    broker.time.heap.clear()
    broker.start()
    del broker.topics["a"]
    broker.apply()
    broker.time.pass_(0)
    assert committed(broker, "g") == -1


def test_expired_offsets_and_empty_groups_go_with_the_check() -> None:
    broker = GroupBroker(
        offsets_retention_minutes="10", offsets_retention_check_interval_ms="60000"
    )
    broker.admin.start()
    broker.ask(commit_request("g", 1), 7)
    broker.time.pass_(6 * 60)
    broker.ask(commit_request("g", 1, partition=1), 7)
    broker.time.pass_(5 * 60)
    assert (committed(broker, "g"), committed(broker, "g", partition=1)) == (-1, 1)
    broker.time.pass_(6 * 60)
    assert not broker.ask(ListGroupsRequest(), 4).groups
    broker.admin.stop()
    broker.kill()
    assert not broker.ask(ListGroupsRequest(), 4).groups


def test_a_loaded_group_above_the_size_limit_rebalances() -> None:
    broker = GroupBroker(partitions=1)
    first = broker.send(join_request(), 3)
    second = broker.send(join_request(), 3)
    broker.time.pass_(0)
    assert first.answer.generation_id == second.answer.generation_id == 1
    request = SyncGroupRequest(
        group_id="g", generation_id=1, member_id=first.answer.member_id, assignments=[]
    )
    broker.ask(request, 3)
    broker.config.__dict__["group_max_size"] = 1
    broker.kill()
    shard = broker.coordinator.led.active()[0]
    assert shard.groups["g"].state is GroupState.PREPARING_REBALANCE


def test_stopping_answers_whoever_waits() -> None:
    broker = GroupBroker()
    waiting = broker.send(join_request(), 3)
    broker.coordinator.close()
    assert waiting.answer.error_code == ErrorCode.NOT_COORDINATOR
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.ask(join_request(), 3).error_code == gone
    assert broker.ask(ListGroupsRequest(), 4).error_code == gone
    leave = LeaveGroupRequest(group_id="g", member_id="m")
    assert broker.ask(leave, 2).error_code == gone


def test_a_log_of_apache_kafka_is_served() -> None:
    broker = GroupBroker(partitions=1)
    path = f"/data/{GROUP_METADATA_TOPIC}-0/{0:020}.log"
    broker.disk.kill()
    files = broker.disk.files()
    files.remove(path)
    files.open(path, create=True).append([(VECTORS / "kafka-consumer-offsets.log").read_bytes()])
    broker.start()
    broker.time.pass_(0)
    assert committed(broker, "wire1", "fc-none") == 10
    assert committed(broker, "wire2", "fc-none") == 10
    stable_member(broker, "wire1")


def test_an_unreadable_record_is_passed_over_and_named(caplog: pytest.LogCaptureFixture) -> None:
    """A client that calls itself `__admin_client` may write one. Its partition was not served."""
    broker = GroupBroker(partitions=4)
    groups = {broker.coordinator.partition_for(name): name for name in "abcdefgh"}
    assert len(groups) == 4
    for name in groups.values():
        broker.ask(commit_request(name, 3), 7)
    topic_ = broker.coordinator.topic
    topic_.append(0, [(b"\x00\x01\x00", b"")], leader_epoch=0, now_ms=0)
    broker.ask(commit_request(groups[0], 4), 7)
    broker.kill()
    assert "__consumer_offsets-0: passed over the unreadable record at offset 1:" in caplog.text
    assert [committed(broker, groups[index]) for index in range(4)] == [4, 3, 3, 3]
    assert broker.replica_manager.suspects == set()


def test_only_the_first_unreadable_records_are_named(caplog: pytest.LogCaptureFixture) -> None:
    broker = GroupBroker(partitions=1)
    broker.ask(commit_request("g", 3), 7)
    unreadable = [(b"\x00\x01\x00%d" % number, b"") for number in range(25)]
    broker.coordinator.topic.append(0, unreadable, leader_epoch=0, now_ms=0)
    broker.kill()
    assert caplog.text.count("passed over the unreadable record") == 10
    assert "__consumer_offsets-0: passed over 25 unreadable records" in caplog.text
    assert committed(broker, "g") == 3


def test_records_of_topics_that_kafka_4_0_wrote_are_loaded_and_deleted_with_their_group() -> None:
    """`ConsumerGroupPartitionMetadata`: the load of its partition ended in the middle."""
    broker = GroupBroker(partitions=1)
    key = tables.ConsumerGroupPartitionMetadataKey(group_id="g")
    epoch = tables.ConsumerGroupMetadataValue(epoch=3)
    records = [
        Record(tables.ConsumerGroupMetadataKey(group_id="g"), epoch),
        Record(key, tables.ConsumerGroupPartitionMetadataValue()),
        Record(tables.ConsumerGroupMetadataKey(group_id="h"), epoch),
    ]
    broker.coordinator.topic.append(0, list(map(encode, records)), leader_epoch=0, now_ms=0)
    broker.kill()
    listed = broker.ask(ListGroupsRequest(), 5).groups
    assert [each.group_id for each in listed] == ["g", "h"]
    answer = broker.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
    assert answer.results[0].error_code == NONE
    broker.kill()
    assert [each.group_id for each in broker.ask(ListGroupsRequest(), 5).groups] == ["h"]


def test_a_record_that_contradicts_itself_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    """It reads well, but a member has more partitions than epochs of them."""
    broker = GroupBroker(partitions=1)
    key = tables.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")
    value = tables.ConsumerGroupCurrentMemberAssignmentValue(
        assigned_partitions=[
            tables.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
                topic_id=b"a" * 16, partitions=[0, 1], assignment_epochs=[1]
            )
        ]
    )
    broker.coordinator.topic.append(0, [encode(Record(key, value))], leader_epoch=0, now_ms=0)
    broker.ask(commit_request("h", 4), 7)
    broker.kill()
    assert "__consumer_offsets-0: passed over the unreadable record at offset 0:" in caplog.text
    assert committed(broker, "h") == 4


def test_a_rotten_offset_is_not_served(caplog: pytest.LogCaptureFixture) -> None:
    """A bit of the value has flipped: it still reads well, as another offset."""
    broker = GroupBroker(partitions=1)
    broker.ask(commit_request("g", 3), 7)
    path = f"/data/{GROUP_METADATA_TOPIC}-0/{0:020}.log"
    offset = broker.log_bytes(0).rindex((3).to_bytes(8, "big"))
    broker.disk.flip(path, offset + 7, 2)
    topic_id = broker.topics[GROUP_METADATA_TOPIC].topic_id
    broker.topics[GROUP_METADATA_TOPIC] = topic(GROUP_METADATA_TOPIC, topic_id, 1, epoch=2)
    broker.apply()  # somebody else has led meanwhile
    broker.time.pass_()
    assert "the batch does not match its checksum" in caplog.text
    assert heartbeat(broker, "m", group="g") == ErrorCode.NOT_COORDINATOR
    assert broker.replica_manager.suspects == {TopicPartition(GROUP_METADATA_TOPIC, 0)}
    broker.time.pass_(1.5)
    assert heartbeat(broker, "m", group="g") == ErrorCode.NOT_COORDINATOR
    broker.disk.flip(path, offset + 7, 2)  # another replica had it whole
    broker.time.pass_(2)
    assert committed(broker, "g") == 3
    assert caplog.text.count("Loading __consumer_offsets-0 failed") == 2


def test_thousands_of_joins_are_answered_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader's answer, which has all members, has a turn of its own."""
    monkeypatch.setattr(coordinator, "ANSWERS_AT_ONCE", 10)
    answered_in: list[int] = []

    async def test() -> None:
        broker = GroupBroker(partitions=1, group_initial_rebalance_delay_ms="1000")
        joins = [broker.send(join_request(), 3) for _ in range(25)]
        broker.time.pass_(1)  # more members may come
        broker.time.pass_(1)
        assert all(each.parked for each in joins)
        for _ in range(4):
            await asyncio.sleep(0)
            answered_in.append(sum(not each.parked for each in joins))
        assert [len(each.answer.members) for each in joins] == [25, *[0] * 24]
        broker.kill()

    asyncio.run(test())
    assert answered_in == [1, 11, 21, 25]
