"""Fetch by followers: progress, watermarks, waiting; and consumers sent to followers (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import DataPath, batch, bytes_of, data_of, topic_id
from tidelog.api.fetch import RACK_AWARE_SELECTOR
from tidelog.cluster.metadata.image import BrokerImage
from tidelog.metrics.meters import BROKER_TOPIC_METRICS, Meters, Name, Sample
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import DeleteRecordsRequest, FetchRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EPOCH = 10  # of every broker


def brokers(**racks: str) -> dict[int, BrokerImage]:
    return {
        node: BrokerImage(node, "h", 1, rack=racks.get(f"b{node}"), epoch=EPOCH)
        for node in (1, 2, 3)
    }


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.apply(brokers=brokers())
    path.create("foo", replicas=(1, 2, 3), isr=(1, 2))
    yield path
    path.logs.abandon()


def follow(
    path: DataPath,
    offset: int,
    *,
    replica: int = 2,
    epoch: int = EPOCH,
    max_wait_ms: int = 0,
    topic: str = "foo",
    **fields: Any,
) -> Any:
    """A follower's fetch; the partition's answer, or None if it is parked."""
    response = path.fetch(
        (topic_id(topic), 0, offset, fields),
        version=17,
        max_wait_ms=max_wait_ms,
        replica_state=FetchRequest.ReplicaState(replica_id=replica, replica_epoch=epoch),
    )
    return None if response is None else data_of(response)


def test_what_consumers_get_is_counted_and_what_followers_get_is_not(tmp_path: Path) -> None:
    meters, name = Meters(), Name(*BROKER_TOPIC_METRICS, "BytesOutPerSec")
    path = DataPath(tmp_path, meters=meters)
    path.apply(brokers=brokers())
    for topic in ("foo", "bar"):
        path.create(topic, replicas=(1, 2), isr=(1, 2))
        path.produce(topic, 0, batch(3), acks=1)
        follow(path, 0, topic=topic)
        follow(path, 3, topic=topic)
    assert dict(meters.counts())[name] == [Sample((), 0)]
    got = {}
    for version, topic, other in ((12, "foo", "none"), (4, "bar", "bar")):  # and one with an error
        answer = path.fetch((topic, 0, 0), (other, 1, 0), version=version)
        got[topic] = len(bytes_of(data_of(answer)))
        assert got[topic] > 0
    of_topics = [Sample((("topic", topic),), got[topic]) for topic in ("bar", "foo")]
    assert dict(meters.counts())[name] == [Sample((), sum(got.values())), *of_topics]
    path.delete("foo")
    assert dict(meters.counts())[name] == [Sample((), sum(got.values())), of_topics[0]]
    path.logs.abandon()


class TestProgress:
    def test_a_fetch_offset_says_that_everything_below_is_there(self, path: DataPath) -> None:
        partition = path.partition("foo")
        path.produce("foo", 0, batch(3), acks=1)
        assert partition.remotes[2].log_end_offset == -1
        answer = follow(path, 0, log_start_offset=0)
        assert answer.high_watermark == 0
        assert bytes_of(answer)
        assert partition.remotes[2].log_end_offset == 0
        answer = follow(path, 3)
        assert answer.high_watermark == 3  # what its own progress has moved is told at once
        replica = partition.remotes[2]
        assert (replica.log_end_offset, replica.broker_epoch) == (3, EPOCH)
        assert partition.log.high_watermark == 3

    def test_errors_and_divergence_are_no_progress(self, path: DataPath) -> None:
        path.produce("foo", 0, batch(3), acks=1)
        follow(path, 3)
        remote = path.partition("foo").remotes[2]
        assert follow(path, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert follow(path, 3, current_leader_epoch=7).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        path.change("foo", leader_epoch=1)
        path.produce("foo", 0, batch(1), acks=1)
        diverging = follow(path, 4, last_fetched_epoch=0).diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == (0, 3)
        assert remote.log_end_offset == 3

    def test_an_earlier_life_of_a_broker_is_not_heard(self, path: DataPath) -> None:
        path.produce("foo", 0, batch(3), acks=1)
        follow(path, 3, epoch=EPOCH)
        stale = follow(path, 0, epoch=EPOCH - 1)
        assert stale.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (stale.high_watermark, bytes_of(stale)) == (-1, b"")
        assert path.partition("foo").remotes[2].log_end_offset == 3

        assert path.partition("foo").remotes[2].last_fetch_ms == path.clock.now_ms

    def test_a_fetch_without_a_broker_epoch_is_no_progress(self, path: DataPath) -> None:
        """Any client may send a Fetch below v15 with a follower's id: acks=all waits on."""
        assert path.produce("foo", 0, batch(3), acks=-1, timeout_ms=1000) is None
        replica = path.partition("foo").remotes[2]
        answer = follow(path, 3, epoch=-1)
        assert (answer.error_code, answer.high_watermark) == (0, 0)
        assert replica.log_end_offset == -1
        assert len(path.replicas.produce_purgatory) == 1
        follow(path, 3)
        assert path.partition("foo").log.high_watermark == 3
        assert not path.replicas.produce_purgatory

    def test_a_claimed_epoch_locks_no_follower_out(self, path: DataPath) -> None:
        """Any client may send a Fetch with a follower's id, and any epoch."""
        path.produce("foo", 0, batch(3), acks=1)
        replica = path.partition("foo").remotes[2]
        for epoch in (EPOCH + 1, 1 << 62):
            answer = follow(path, 3, epoch=epoch)
            assert (answer.error_code, answer.high_watermark) == (0, 0), epoch
            assert (replica.log_end_offset, replica.broker_epoch) == (-1, -1)
        answer = follow(path, 3)
        assert (answer.error_code, answer.high_watermark) == (0, 3)
        assert (replica.log_end_offset, replica.broker_epoch) == (3, EPOCH)

    def test_the_registered_epoch_is_that_of_the_newest_image(self, path: DataPath) -> None:
        path.produce("foo", 0, batch(3), acks=1)
        follow(path, 1)
        path.apply(brokers={**brokers(), 2: BrokerImage(2, "h", 1, epoch=EPOCH + 5)})
        assert follow(path, 3).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert follow(path, 3, epoch=EPOCH + 5).high_watermark == 3

    def test_a_new_leader_knows_no_follower_and_a_leader_that_stays_keeps_their_state(
        self, path: DataPath
    ) -> None:
        partition = path.partition("foo")
        path.produce("foo", 0, batch(3), acks=1)
        follow(path, 3)
        path.change("foo", leader_epoch=1)
        assert partition.remotes[2].log_end_offset == 3
        path.change("foo", leader_epoch=2, leader=2)
        assert not partition.remotes
        path.change("foo", leader_epoch=3, leader=1)
        assert partition.remotes[2].log_end_offset == -1
        follow(path, 3)
        path.change("foo", leader_epoch=5)  # somebody else may have led in 4
        assert partition.remotes[2].log_end_offset == -1
        path.produce("foo", 0, batch(1), acks=1)
        assert partition.log.high_watermark == 3

    def test_all_replicas_of_the_isr_have_to_have_it(self, path: DataPath) -> None:
        path.change("foo", isr=(1, 2, 3))
        assert path.produce("foo", 0, batch(2), acks=-1) is None
        producer = path.context
        follow(path, 2)
        assert path.answer_of(producer) is None
        follow(path, 1, replica=3)
        assert path.partition("foo").log.high_watermark == 1
        assert path.answer_of(producer) is None
        follow(path, 2, replica=3)
        answer = path.answer_of(producer).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 0)


class TestWaiting:
    def test_an_append_wakes_a_follower_before_it_is_committed(self, path: DataPath) -> None:
        assert follow(path, 0, max_wait_ms=500) is None
        follower = path.context
        path.produce("foo", 0, batch(2), acks=1)
        answer = data_of(path.answer_of(follower))
        assert bytes_of(answer)
        assert answer.high_watermark == 0

    def test_what_a_commit_has_appended_wakes_the_follower_that_committed_it(
        self, path: DataPath
    ) -> None:
        """As a transaction's markers, which its coordinator writes once the decision is
        committed: the fetch that commits it must not sleep over them."""
        path.produce("foo", 0, batch(2), acks=1)
        partition = path.partition("foo")

        def committed(errors: list[ErrorCode]) -> None:
            assert errors == [ErrorCode.NONE]
            partition.append(batch(1), acks=-1, now_ms=path.clock.wall_ms())
            path.replicas.appended([partition.topic_partition])

        path.replicas.await_acks([(partition, 2)], 1000, committed)
        assert follow(path, 0) is not None
        answer = follow(path, 2, max_wait_ms=500)
        assert answer is not None, "it sleeps"
        assert (answer.high_watermark, len(bytes_of(answer))) == (2, len(batch(1)))

    def test_a_high_watermark_wakes_consumers_but_no_follower(self, path: DataPath) -> None:
        path.produce("foo", 0, batch(2), acks=1)
        assert path.fetch(("foo", 0, 0), max_wait_ms=500) is None
        consumer = path.context
        path.change("foo", isr=(1, 2, 3))
        follow(path, 2, replica=3)
        assert follow(path, 2, max_wait_ms=500) is None
        follower = path.context
        assert data_of(path.answer_of(consumer)).high_watermark == 2
        assert path.answer_of(follower) is None

    def test_the_end_of_a_wait_returns_the_newest_high_watermark(self, path: DataPath) -> None:
        path.change("foo", isr=(1, 2, 3))
        path.produce("foo", 0, batch(2), acks=1)
        assert follow(path, 2, max_wait_ms=500) is None
        parked = path.context
        follow(path, 2, replica=3)
        path.timers.advance_ms(500)
        assert data_of(path.answer_of(parked)).high_watermark == 2

    def test_what_was_read_when_a_wait_ends_is_not_recorded_again(self, path: DataPath) -> None:
        follow(path, 0, max_wait_ms=500)
        replica = path.partition("foo").remotes[2]
        fetched_ms = replica.last_fetch_ms
        path.timers.advance_ms(300)
        path.produce("foo", 0, batch(2), acks=1)
        assert replica.last_fetch_ms == fetched_ms

    def test_a_lost_leadership_ends_it(self, path: DataPath) -> None:
        assert follow(path, 0, max_wait_ms=500, current_leader_epoch=0) is None
        parked = path.context
        path.change("foo", leader=2, leader_epoch=1)
        error = data_of(path.answer_of(parked)).error_code
        assert error == ErrorCode.FENCED_LEADER_EPOCH


class TestMinimumInSync:
    def test_too_few_after_the_append(self, path: DataPath) -> None:
        path.create("two", replicas=(1, 2), isr=(1, 2), configs={"min.insync.replicas": "2"})
        assert path.produce("two", 0, batch(), acks=-1) is None
        producer = path.context
        path.change("two", isr=(1,))
        assert path.answer_of(producer) is None  # the high watermark stands still
        follow(path, 1, topic="two")
        assert path.partition("two").log.high_watermark == 0
        path.change("two", isr=(1, 2))
        answer = path.answer_of(producer).responses[0].partition_responses[0]
        assert answer.error_code == 0

    def test_a_minimum_raised_meanwhile(self, path: DataPath) -> None:
        path.create("two", replicas=(1, 2), isr=(1, 2))
        assert path.produce("two", 0, batch(), acks=-1) is None
        producer = path.context
        partition = path.partition("two")
        partition.isr, partition.min_isr = (1,), 2
        partition.log.set_high_watermark(1)
        path.replicas.appended([partition.topic_partition])
        answer = path.answer_of(producer).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert answer.base_offset == 0


class TestDeleteRecords:
    def delete(self, path: DataPath, offset: int) -> Any:
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        asked = topic.DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(
            topics=[topic(name="foo", partitions=[asked])], timeout_ms=1000
        )
        return path.call(ApiKey.DELETE_RECORDS, 2, request)

    def test_every_live_replica_has_to_follow(self, path: DataPath) -> None:
        path.produce("foo", 0, batch(3), acks=1)
        follow(path, 3, log_start_offset=0)
        follow(path, 3, log_start_offset=0, replica=3)
        assert self.delete(path, 2) is None
        waiting = path.context
        assert follow(path, 3, log_start_offset=2).log_start_offset == 2
        assert path.answer_of(waiting) is None
        follow(path, 3, log_start_offset=2, replica=3)
        answer = path.answer_of(waiting).topics[0].partitions[0]
        assert (answer.error_code, answer.low_watermark) == (0, 2)

    def test_a_dead_replica_does_not_count(self, path: DataPath) -> None:
        path.produce("foo", 0, batch(3), acks=1)
        follow(path, 3, log_start_offset=0)
        assert self.delete(path, 2) is None
        waiting = path.context
        follow(path, 3, log_start_offset=2)
        path.apply(brokers={**brokers(), 3: brokers()[3]._replace(fenced=True)})
        assert path.answer_of(waiting).topics[0].partitions[0].low_watermark == 2


class TestRacks:
    @pytest.fixture
    def racked(self, tmp_path: Path) -> Iterator[DataPath]:
        path = DataPath(tmp_path / "racked", replica_selector_class=RACK_AWARE_SELECTOR)
        path.apply(brokers=brokers(b1="a", b2="b", b3="c"))
        path.create("foo", replicas=(1, 2, 3), isr=(1, 2, 3))
        path.produce("foo", 0, batch(3), acks=1)
        follow(path, 3, log_start_offset=0)
        follow(path, 3, log_start_offset=0, replica=3)
        yield path
        path.logs.abandon()

    @pytest.mark.parametrize(
        ("rack", "preferred"), [("a", -1), ("b", 2), ("c", 3), ("d", -1), ("", -1)]
    )
    def test_a_consumer_is_sent_to_its_rack(
        self, racked: DataPath, rack: str, preferred: int
    ) -> None:
        response = racked.fetch(("foo", 0, 0), rack_id=rack, max_wait_ms=500, min_bytes=1 << 20)
        if preferred < 0:
            assert response is None
            racked.context.deferred.hurry()  # type: ignore[union-attr]
            response = racked.answer_of(racked.context)
        assert response is not None
        answer = data_of(response)
        assert answer.preferred_read_replica == preferred
        assert bool(bytes_of(answer)) is (preferred < 0)
        assert (answer.error_code, answer.high_watermark) == (0, 3)

    def test_an_incremental_response_has_it_too(self, racked: DataPath) -> None:
        opened = racked.fetch(("foo", 0, 3), session_epoch=0)
        assert opened is not None
        again = racked.fetch(rack_id="b", session_id=opened.session_id, session_epoch=1)
        assert again is not None
        assert data_of(again).preferred_read_replica == 2

    def test_not_by_default_nor_before_version_11(self, racked: DataPath, path: DataPath) -> None:
        path.apply(brokers=brokers(b1="a", b2="b"))
        path.produce("foo", 0, batch(3), acks=1)
        follow(path, 3, log_start_offset=0)
        for which, version in ((path, 12), (racked, 10)):
            response = which.fetch(
                ("foo", 0, 0), version=version, **({"rack_id": "b"} if version > 10 else {})
            )
            assert response is not None
            assert data_of(response).preferred_read_replica == -1
            assert bytes_of(data_of(response))

    def test_the_epoch_is_judged_first(self, racked: DataPath) -> None:
        racked.change("foo", leader_epoch=2)
        response = racked.fetch(("foo", 0, 0, {"current_leader_epoch": 1}), rack_id="b")
        assert response is not None
        assert data_of(response).error_code == ErrorCode.FENCED_LEADER_EPOCH
