"""What a follower may do to its log, and which of its lives an image speaks of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import NOW_MS, DataPath, topic_id
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.types import StorageError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidelog.replication.partition import Partition


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.create("foo", replicas=(1, 2), isr=(1, 2))
    path.change("foo", leader=2, leader_epoch=5)
    yield path
    path.logs.abandon()


@pytest.fixture
def follower(path: DataPath) -> Partition:
    return path.partition("foo")


def from_leader(offset: int, count: int = 1, epoch: int = 5) -> memoryview:
    records = [Record(offset + index, NOW_MS, None, b"value") for index in range(count)]
    return memoryview(build_batch(records, base_offset=offset, leader_epoch=epoch))


class TestFollowing:
    def test_bytes_go_in_as_they_are_and_the_offsets_follow(self, follower: Partition) -> None:
        sent = from_leader(0, 3)
        result = follower.append_as_follower(sent, leader_epoch=5, now_ms=NOW_MS)
        assert result is not None
        assert (result.first_offset, result.last_offset) == (0, 2)
        log = follower.log
        assert (log.log_end_offset, log.high_watermark) == (3, 0)
        assert log.epochs.entries[-1] == (5, 0)
        assert follower.bytes_appended == len(sent)
        assert follower.advance_as_follower(2, 0)
        assert not follower.advance_as_follower(2, 0)
        assert log.high_watermark == 2
        follower.advance_as_follower(9, 0)
        assert log.high_watermark == 3  # clamped to what is here
        follower.advance_as_follower(1, 0)
        assert log.high_watermark == 1  # a new leader may know less

    def test_the_log_start_follows_up_to_the_high_watermark(self, follower: Partition) -> None:
        follower.append_as_follower(from_leader(0, 3), leader_epoch=5, now_ms=NOW_MS)
        assert follower.advance_as_follower(2, 1)
        assert follower.log.log_start_offset == 1
        follower.advance_as_follower(2, 3)
        assert follower.log.log_start_offset == 2
        follower.advance_as_follower(3, 0)
        assert follower.log.log_start_offset == 2  # never back

    def test_nothing_to_append(self, follower: Partition) -> None:
        empty = memoryview(b"")
        assert follower.append_as_follower(empty, leader_epoch=5, now_ms=NOW_MS) is None

    def test_truncation_may_cut_below_the_high_watermark(self, follower: Partition) -> None:
        for offset in range(4):
            follower.append_as_follower(from_leader(offset), leader_epoch=5, now_ms=NOW_MS)
        follower.advance_as_follower(4, 0)
        assert follower.followed_log(5).truncate_to(2, NOW_MS)
        assert (follower.log.log_end_offset, follower.log.high_watermark) == (2, 2)
        assert not follower.followed_log(5).truncate_to(2, NOW_MS)
        follower.followed_log(5).truncate_fully_and_start_at(7, 6, NOW_MS)
        log = follower.log
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (6, 7, 7)

    @pytest.mark.parametrize("leads", [True, False])
    def test_an_answer_for_an_earlier_role_is_void(
        self, path: DataPath, follower: Partition, leads: bool
    ) -> None:
        path.change("foo", leader=1 if leads else 2, leader_epoch=6)
        doors: list[Any] = [
            lambda: follower.append_as_follower(from_leader(0), leader_epoch=5, now_ms=NOW_MS),
            lambda: follower.followed_log(5).truncate_to(0, NOW_MS),
            lambda: follower.followed_log(5).truncate_fully_and_start_at(9, now_ms=NOW_MS),
        ]
        for door in doors:
            with pytest.raises(StorageError) as refused:
                door()
            assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH
        assert follower.log.log_end_offset == 0

    def test_a_leader_refuses_appends_as_follower(
        self, path: DataPath, follower: Partition
    ) -> None:
        path.change("foo", leader=1, leader_epoch=6)
        with pytest.raises(StorageError):
            follower.append_as_follower(from_leader(0), leader_epoch=6, now_ms=NOW_MS)


def test_a_log_with_newer_records_is_not_led_in_an_old_epoch(
    path: DataPath, follower: Partition
) -> None:
    path.change("foo", leader_epoch=7)
    follower.append_as_follower(from_leader(0, 3, epoch=7), leader_epoch=7, now_ms=NOW_MS)
    restarted = type(follower)(
        follower.topic_partition, follower.topic_id, follower.log, follower.node_id
    )
    restarted.update(PartitionImage(0, 1, 6, 9, (1, 2), (1, 2)))  # metadata that is behind
    assert not restarted.is_leader
    assert follower.log.epochs.entries[-1] == (7, 0)
    restarted.update(PartitionImage(0, 1, 8, 12, (1, 2), (1, 2)))
    assert restarted.is_leader
    assert restarted.leader_epoch_start_offset == 3


class TestFirstImage:
    """The first image after a restart."""

    def image(self, offset: int, **topics: PartitionImage) -> ClusterImage:
        return ClusterImage(
            cluster_id="test",
            brokers={1: BrokerImage(1, "h", 1), 2: BrokerImage(2, "h", 1)},
            topics={name: TopicImage(name, topic_id(name), (p,)) for name, p in topics.items()},
            topic_names={topic_id(name): name for name in topics},
            offset=offset,
        )

    def test_logs_that_it_does_not_place_here_are_set_aside(self, tmp_path: Path) -> None:
        before = DataPath(tmp_path)
        for name in ("kept", "moved", "gone"):
            before.create(name)
        before.logs.shutdown()
        path = DataPath(tmp_path, apply_first=False)
        elsewhere = PartitionImage(0, 2, 1, 0, (1, 2), (1, 2))
        image = self.image(8, kept=elsewhere, moved=elsewhere._replace(replicas=(2,), isr=(2,)))
        path.replicas.apply(MetadataDelta(None, image), image)
        assert [key for key, _ in path.logs.items()] == [TopicPartition("kept", 0)]
        assert not path.partition("kept").is_leader
        assert path.partition("kept").leader_epoch == 1
        path.logs.abandon()
