"""One replica: roles, the high watermark, fences, bounds of reads, offsets by time."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import NOW_MS, DataPath, batch
from tidelog.cluster.metadata.image import PartitionImage
from tidelog.replication.fetch_sessions import FetchedPartition
from tidelog.replication.partition import (
    HIGH_WATERMARK,
    LOG_END,
    TRANSACTION_COMMITTED,
    FetchParams,
    Partition,
)
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchRequest
from tidelog_protocol.primitives import ZERO_UUID
from tidelog_protocol.records import LOG_APPEND_TIME, build_own_batch, crc_is_valid, read_header
from tidelog_storage.config import LogConfig
from tidelog_storage.segment import Segment
from tidelog_storage.types import OffsetAndEpoch, OffsetAndTimestamp, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ELSEWHERE = 2


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.create("foo")
    yield path
    path.logs.abandon()


@pytest.fixture
def partition(path: DataPath) -> Partition:
    return path.partition("foo")


def image(**changes: Any) -> PartitionImage:
    return PartitionImage(0, 1, 0, 0, (1,), (1,))._replace(**changes)


def append(partition: Partition, count: int = 1, *, acks: int = 1, **options: Any) -> None:
    partition.append(batch(count, **options), acks=acks, now_ms=NOW_MS)


def request(offset: int, **fields: Any) -> FetchedPartition:
    asked = FetchRequest.FetchTopic.FetchPartition(
        fetch_offset=offset, partition_max_bytes=1 << 20, **fields
    )
    return FetchedPartition("foo", ZERO_UUID, asked)


def read(
    partition: Partition, offset: int, params: FetchParams | None = None, **fields: Any
) -> Any:
    return partition.read(
        request(offset, **fields), params or FetchParams(), 1 << 20, min_one_batch=True
    )


class TestHighWatermark:
    def test_an_isr_of_one_commits_at_once(self, partition: Partition) -> None:
        append(partition, 3)
        assert (partition.log.high_watermark, partition.log.log_end_offset) == (3, 3)

    def test_an_unknown_follower_holds_it(self, partition: Partition) -> None:
        append(partition, 2)
        partition.update(image(partition_epoch=1, replicas=(1, 2), isr=(1, 2)))
        append(partition, 3)
        assert (partition.log.high_watermark, partition.log.log_end_offset) == (2, 5)
        partition.update(image(partition_epoch=2, replicas=(1, 2), isr=(1,)))
        assert partition.log.high_watermark == 5

    def test_it_stands_still_below_the_minimum_of_replicas(self, path: DataPath) -> None:
        path.create("two", replicas=(1, 2), isr=(1,), configs={"min.insync.replicas": "2"})
        partition = path.partition("two")
        append(partition, 2, acks=1)
        assert partition.log.high_watermark == 0
        with pytest.raises(StorageError) as refused:
            append(partition, 1, acks=-1)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert partition.log.log_end_offset == 2
        path.apply(topic_configs={"two": {"min.insync.replicas": "1"}})
        assert partition.log.high_watermark == 2

    def test_the_minimum_is_at_most_the_number_of_replicas(self, path: DataPath) -> None:
        path.create("one", configs={"min.insync.replicas": "2"})
        append(path.partition("one"), acks=-1)
        assert path.partition("one").log.high_watermark == 1


class TestRole:
    def test_older_partition_epochs_are_ignored(self, partition: Partition) -> None:
        partition.update(image(partition_epoch=5, leader_epoch=3))
        partition.update(image(partition_epoch=4, leader_epoch=2, leader=ELSEWHERE))
        assert partition.is_leader
        assert partition.leader_epoch == 3

    def test_a_new_epoch_starts_at_the_log_end_and_is_in_the_cache_before_any_append(
        self, partition: Partition
    ) -> None:
        append(partition, 2)
        partition.update(image(partition_epoch=1, leader_epoch=4))
        assert partition.leader_epoch_start_offset == 2
        assert partition.log.epochs.entries[-1] == (4, 2)
        append(partition)
        assert partition.log.end_offset_for_epoch(0) == OffsetAndEpoch(2, 0)

    def test_the_same_epoch_keeps_its_start(self, partition: Partition) -> None:
        append(partition, 2)
        partition.update(image(partition_epoch=1))
        assert partition.leader_epoch_start_offset == 0

    def test_a_follower_refuses_appends_and_knows_no_isr(self, partition: Partition) -> None:
        partition.update(image(partition_epoch=1, leader_epoch=1, leader=ELSEWHERE))
        assert partition.isr == ()
        with pytest.raises(StorageError) as refused:
            append(partition)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    @pytest.mark.parametrize(
        ("leads", "asked", "needs_leader", "error"),
        [
            (True, 5, True, None),
            (True, -1, True, None),
            (True, 4, True, ErrorCode.FENCED_LEADER_EPOCH),
            (True, 6, True, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (False, 5, True, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (False, -1, True, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (False, 4, True, ErrorCode.FENCED_LEADER_EPOCH),  # the epoch is judged before the role
            (False, 6, True, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (False, 5, False, None),  # KIP-392
        ],
    )
    def test_fencing(
        self,
        partition: Partition,
        leads: bool,
        asked: int,
        needs_leader: bool,
        error: ErrorCode | None,
    ) -> None:
        partition.update(image(partition_epoch=1, leader_epoch=5, leader=1 if leads else ELSEWHERE))
        assert partition.leader_error(asked, leader_only=needs_leader) is error
        params = FetchParams(leader_only=needs_leader)
        assert read(partition, 0, params, current_leader_epoch=asked).error == (error or 0)

    @pytest.mark.parametrize(
        ("asked", "error"),
        [(0, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)],
    )
    def test_a_follower_that_is_not_assigned(
        self, partition: Partition, asked: int, error: ErrorCode
    ) -> None:
        params = FetchParams(replica_id=7, isolation=LOG_END)
        assert read(partition, 0, params, current_leader_epoch=asked).error is error


class TestRead:
    def test_consumers_see_up_to_the_high_watermark_and_replicas_the_log_end(
        self, partition: Partition
    ) -> None:
        append(partition, 2)
        partition.update(image(partition_epoch=1, replicas=(1, 2), isr=(1, 2)))
        append(partition, 3)
        consumer = read(partition, 0)
        follower = read(partition, 0, FetchParams(replica_id=2, isolation=LOG_END))
        assert consumer.high_watermark == follower.high_watermark == 2
        assert 0 < consumer.size < follower.size
        # between the bound and the log end: nothing, and no error
        beyond = read(partition, 4)
        assert (beyond.error, beyond.size) == (0, 0)

    @pytest.mark.parametrize("offset", [-5, 0, 1, 6])
    def test_out_of_range(self, partition: Partition, offset: int) -> None:
        append(partition, 5)
        assert partition.delete_records(2) == 2
        result = read(partition, offset)
        assert result.error is ErrorCode.OFFSET_OUT_OF_RANGE
        offsets = (result.high_watermark, result.last_stable_offset, result.log_start_offset)
        assert offsets == (-1, -1, -1)

    def test_offsets_beside_the_records(self, partition: Partition) -> None:
        append(partition, 5)
        partition.delete_records(2)
        result = read(partition, 5)
        assert (result.high_watermark, result.last_stable_offset) == (5, 5)
        assert (result.log_start_offset, result.size, result.aborted) == (2, 0, None)

    def test_read_committed_gets_a_list_of_aborted_transactions(self, partition: Partition) -> None:
        append(partition)
        params = FetchParams(isolation=TRANSACTION_COMMITTED)
        assert list(read(partition, 0, params).aborted) == []
        assert list(read(partition, 1, params).aborted) == []

    def test_a_full_answer_reads_nothing_but_still_checks_the_range(
        self, partition: Partition
    ) -> None:
        append(partition, 2)
        params = FetchParams()
        assert partition.read(request(0), params, 0, min_one_batch=False).size == 0
        refused = partition.read(request(3), params, 0, min_one_batch=False)
        assert refused.error is ErrorCode.OFFSET_OUT_OF_RANGE

    @pytest.mark.parametrize(
        ("epochs", "last_fetched", "offset", "expected"),
        [
            # replication.md 7.1; epochs are (epoch, records)
            ([(0, 20), (1, 60), (2, 40)], 2, 120, None),
            ([(0, 20), (1, 60), (2, 40)], 1, 80, None),
            ([(0, 20), (1, 60), (2, 40)], 1, 81, (80, 1)),
            ([(0, 20), (1, 60), (2, 40)], 3, 120, ErrorCode.OFFSET_OUT_OF_RANGE),
            ([(0, 20), (2, 60), (5, 40)], 4, 70, (80, 2)),  # an epoch we never had
            ([(0, 1), (1, 2)], 0, 2, (1, 0)),  # KIP-101 scenario 2
            ([(0, 5), (2, 2)], 1, 3, (5, 0)),
        ],
    )
    def test_divergence(
        self,
        partition: Partition,
        epochs: list[tuple[int, int]],
        last_fetched: int,
        offset: int,
        expected: tuple[int, int] | ErrorCode | None,
    ) -> None:
        for number, (epoch, count) in enumerate(epochs):
            partition.update(image(partition_epoch=number + 1, leader_epoch=epoch))
            append(partition, count)
        result = read(partition, offset, last_fetched_epoch=last_fetched)
        if isinstance(expected, ErrorCode):
            assert result.error is expected
        elif expected is None:
            assert (result.error, result.diverging) == (0, None)
        else:
            assert (result.error, result.size) == (0, 0)
            assert result.diverging == expected

    def test_below_the_log_start_is_out_of_range_whatever_the_epochs_say(
        self, partition: Partition
    ) -> None:
        append(partition, 5)
        partition.delete_records(3)
        result = read(partition, 1, last_fetched_epoch=0)
        assert result.error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert result.diverging is None


class TestAcknowledgement:
    def test_cases(self, partition: Partition) -> None:
        append(partition, 2)
        assert partition.acknowledged(2) is ErrorCode.NONE
        assert partition.acknowledged(3) is None
        partition.min_isr = 2  # the in-sync replicas shrank after the append
        assert partition.acknowledged(2) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        partition.remove()
        assert partition.acknowledged(2) is ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestDeleteRecords:
    def test_moves_the_log_start_and_never_back(self, partition: Partition) -> None:
        append(partition, 5)
        assert partition.delete_records(3) == 3
        assert partition.delete_records(1) == 1  # below: no change
        assert partition.low_watermark == 3
        assert partition.delete_records(-1) == 5
        assert partition.records_deleted(5) is ErrorCode.NONE
        assert partition.records_deleted(6) is None

    @pytest.mark.parametrize("offset", [-2, 6])
    def test_out_of_range(self, partition: Partition, offset: int) -> None:
        append(partition, 5)
        assert partition.delete_records(offset) is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_a_compacted_topic_refuses(self, path: DataPath) -> None:
        path.create("keys", configs={"cleanup.policy": "compact"})
        path.create("both", configs={"cleanup.policy": "compact,delete"})
        assert path.partition("keys").delete_records(0) is ErrorCode.POLICY_VIOLATION
        assert path.partition("both").delete_records(0) == 0

    def test_without_a_cleanup_policy_it_is_the_only_way(self, path: DataPath) -> None:
        """KIP-1161: nothing goes by itself then."""
        path.create("kept", configs={"cleanup.policy": ""})
        partition = path.partition("kept")
        append(partition, 5)
        assert partition.delete_records(3) == partition.log.log_start_offset == 3

    def test_only_the_leader(self, partition: Partition) -> None:
        partition.update(image(partition_epoch=1, leader_epoch=1, leader=ELSEWHERE))
        assert partition.delete_records(0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.records_deleted(0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_replicas_may_ask_for_offsets_that_are_not_committed(partition: Partition) -> None:
    partition.update(image(partition_epoch=1, replicas=(1, 2), isr=(1, 2)))
    append(partition, 3)

    def latest(isolation: int) -> Any:
        return partition.offset_for(
            -1, isolation=isolation, current_leader_epoch=-1, leader_only=True
        )

    assert latest(LOG_END) == OffsetAndTimestamp(3, -1, 0)
    assert latest(HIGH_WATERMARK) == OffsetAndTimestamp(0, -1, 0)


def test_bytes_appended_only_grow_by_what_was_appended(partition: Partition) -> None:
    data = batch(2)
    size = len(data)
    partition.append(data, acks=1, now_ms=NOW_MS)
    partition.delete_records(2)
    assert partition.bytes_appended == size


def append_own(partition: Partition, size: int = 5, *, leader_epoch: int = 0) -> None:
    pairs = [(b"k", bytes(size)), (b"k", None)]
    end_offset = partition.log.log_end_offset
    partition.append_own(*build_own_batch(pairs, NOW_MS, end_offset, leader_epoch, 0), NOW_MS)


def test_own_records_are_stored_and_committed_like_others(partition: Partition) -> None:
    append(partition)
    append_own(partition)
    log = partition.log
    assert (log.log_end_offset, log.high_watermark) == (3, 3)
    own = read(partition, 1)
    header = read_header(b"".join(own.records))
    assert (header.base_offset, header.records_count, header.leader_epoch) == (1, 2, 0)
    assert crc_is_valid(b"".join(own.records), header)
    assert partition.bytes_appended == len(batch(1)) + own.size
    partition.update(image(partition_epoch=1, replicas=(1, 2), isr=(1, 2)))
    append_own(partition)
    assert (log.log_end_offset, log.high_watermark) == (5, 3), "the follower does not have it"


def test_own_records_are_refused_like_others(partition: Partition) -> None:
    def refusal(**options: Any) -> int:
        with pytest.raises(StorageError) as refused:
            append_own(partition, **options)
        assert partition.log.log_end_offset == 0
        return refused.value.code

    assert refusal(leader_epoch=1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(size=2 << 20) is ErrorCode.MESSAGE_TOO_LARGE
    partition.min_isr = 2
    assert refusal() is ErrorCode.NOT_ENOUGH_REPLICAS
    assert refusal(size=2 << 20) is ErrorCode.NOT_ENOUGH_REPLICAS
    partition.update(image(partition_epoch=1, leader=ELSEWHERE))
    assert refusal() is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_own_records_follow_the_topics_settings(partition: Partition) -> None:
    partition.log.config = LogConfig({"message.timestamp.type": "LogAppendTime"})
    append_own(partition)
    header = read_header(b"".join(read(partition, 0).records))
    assert header.timestamp_type == LOG_APPEND_TIME


def test_a_disk_that_fails_an_own_append_is_reported(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = []
    partition._rules.append_failed = lambda *failed: failures.append(failed)
    monkeypatch.setattr(Segment, "append", _full)
    with pytest.raises(StorageError) as refused:
        append_own(partition)
    assert failures == [(partition, refused.value)]
    assert (partition.log.log_end_offset, partition.bytes_appended) == (0, 0)


def _full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")
