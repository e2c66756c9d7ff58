"""Guards of transactional batches (KIP-890), late markers (KIP-1228), offsets that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.data_path import NOW_MS, DataPath, batch
from tidelog.awaiting import drive
from tidelog.coordinators.groups.now import Now
from tidelog.coordinators.groups.offsets import OffsetAndMetadata, OffsetChange
from tidelog.coordinators.groups.pending import PendingOffsets
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.transactions.marker_writer import MarkerWriter
from tidelog.coordinators.transactions.markers import Marker
from tidelog.coordinators.transactions.verification import Verifications
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidelog.coordinators.transactions.verification import Guard
    from tidelog.replication.partition import Partition

PRODUCER, EPOCH = 7, 3
FOO = TopicPartition("foo", 0)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.create("foo")
    yield path
    path.logs.abandon()


@pytest.fixture
def partition(path: DataPath) -> Partition:
    return path.partition("foo")


def refusal(
    verifications: Verifications,
    guard: Guard | None,
    partition: Partition,
    sequence: int,
    *,
    begins_with_0: bool = False,
) -> ErrorCode:
    assert guard is not None
    try:
        verifications.redeem(guard, partition, sequence, begins_with_0=begins_with_0)
    except StorageError as error:
        return error.code
    return ErrorCode.NONE


def begin_transaction(partition: Partition, epoch: int = EPOCH) -> None:
    sent = batch(2, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=0, transactional=True)
    partition.append(sent, acks=1, now_ms=NOW_MS)


def test_a_later_batch_does_not_begin_what_an_earlier_one_asked_for(partition: Partition) -> None:
    verifications = Verifications()
    guard = verifications.begin(partition, PRODUCER, EPOCH, 0)
    assert guard is verifications.begin(partition, PRODUCER, EPOCH, 2)
    assert guard is not None
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(verifications, guard, partition, 2) is out_of_order
    assert refusal(verifications, guard, partition, 0) is ErrorCode.NONE


def test_a_producer_without_state_begins_with_0_in_the_second_protocol(
    partition: Partition,
) -> None:
    verifications = Verifications()
    guard = verifications.begin(partition, PRODUCER, EPOCH, 5)
    assert refusal(verifications, guard, partition, 5) is ErrorCode.NONE
    refused = refusal(verifications, guard, partition, 5, begins_with_0=True)
    assert refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_refusal_names_the_sequence_that_is_due(partition: Partition) -> None:
    verifications = Verifications()
    guard = verifications.begin(partition, PRODUCER, EPOCH, 5)
    assert guard is not None
    with pytest.raises(StorageError, match="must have sequence 5, not 7"):
        verifications.redeem(guard, partition, 7)
    with pytest.raises(StorageError, match="must have sequence 0, not 7"):
        verifications.redeem(guard, partition, 7, begins_with_0=True)


def test_a_guard_is_void_after_its_transaction_and_for_another_leader(partition: Partition) -> None:
    verifications = Verifications()
    guard = verifications.begin(partition, PRODUCER, EPOCH, 0)
    verifications.forget(FOO, PRODUCER, EPOCH - 1)  # a marker of long ago
    assert refusal(verifications, guard, partition, 0) is ErrorCode.NONE
    verifications.forget(FOO, PRODUCER, EPOCH)
    assert refusal(verifications, guard, partition, 0) is ErrorCode.INVALID_TXN_STATE
    newer = verifications.begin(partition, PRODUCER, EPOCH, 0)
    assert newer is not guard
    assert verifications.begin(partition, PRODUCER, EPOCH + 1, 0) is not newer
    assert refusal(verifications, newer, partition, 0) is ErrorCode.INVALID_TXN_STATE


def test_a_guard_that_is_renewed_outlives_the_marker_of_the_last_transaction(
    partition: Partition,
) -> None:
    verifications = Verifications()
    guard = verifications.begin(partition, PRODUCER, EPOCH, 0)
    assert guard is not None
    verifications.forget(FOO, PRODUCER, EPOCH)  # the marker has the epoch of the next one already
    later = verifications.begin(partition, PRODUCER, EPOCH, 2)
    assert verifications.renew(guard) is later
    assert refusal(verifications, later, partition, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(verifications, later, partition, 0) is ErrorCode.NONE
    newer = verifications.begin(partition, PRODUCER, EPOCH + 1, 0)
    assert verifications.renew(guard) is guard
    assert refusal(verifications, guard, partition, 0) is ErrorCode.INVALID_TXN_STATE
    assert refusal(verifications, newer, partition, 0) is ErrorCode.NONE


def test_no_coordinator_is_asked_while_the_transaction_is_open(partition: Partition) -> None:
    begin_transaction(partition)
    verifications = Verifications()
    assert verifications.begin(partition, PRODUCER, EPOCH, 2) is None
    assert verifications.begin(partition, PRODUCER, EPOCH + 1, 0) is not None


async def no_offsets(index: int, marker: memoryview) -> ErrorCode:
    raise AssertionError(f"nothing is for group partition {index}: {marker!r}")


@pytest.mark.parametrize(
    ("version", "epoch", "error"),
    [
        (0, EPOCH, ErrorCode.NONE),
        (1, EPOCH, ErrorCode.NONE),
        (2, EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),  # of the transaction before
        (2, EPOCH + 1, ErrorCode.NONE),
        (2, EPOCH - 1, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_markers_have_an_epoch_of_their_own_in_the_second_protocol(
    path: DataPath, partition: Partition, version: int, epoch: int, error: ErrorCode
) -> None:
    begin_transaction(partition)
    writer = MarkerWriter(path.replicas, Verifications(), no_offsets, timeout_ms=1000)
    heard: list[list[dict[TopicPartition, ErrorCode]]] = []
    marker = Marker(PRODUCER, epoch, True, 0, version, (FOO,))
    drive(writer.write([marker]), heard.append)
    assert heard == [[{FOO: error}]]
    drive(writer.write([marker]), heard.append)  # once more: its answer was lost
    assert heard[1] == heard[0]
    assert partition.log.last_stable_offset == (0 if error else 4)


def test_the_last_stable_offset_is_never_below_the_log_start(partition: Partition) -> None:
    begin_transaction(partition)
    assert partition.log.last_stable_offset == 0
    partition.log.maybe_increment_log_start(1, "DeleteRecords")
    assert partition.log.last_stable_offset == 1
    partition.log.maybe_increment_log_start(2, "DeleteRecords")
    assert partition.log.last_stable_offset == 2


def change(partition: int, offset: int | None = 5, group: str = "g") -> OffsetChange:
    value = None if offset is None else OffsetAndMetadata(offset)
    return OffsetChange(group, "foo", partition, value)


def test_deleted_offsets_do_not_come_back_with_the_commit() -> None:
    pending = PendingOffsets()
    pending.add(PRODUCER, [change(0), change(1), change(2), change(0, group="other")])
    pending.supersede([change(1, 9)])
    deleted = pending.forget_group("g")
    assert deleted == [change(0, None), change(2, None)]
    assert pending.of_group("g") == {("foo", 0), ("foo", 1), ("foo", 2)}
    pending.supersede([change(0, None), change(1, None)])
    assert pending.of_group("g") == {("foo", 2)}
    assert pending.end(PRODUCER, is_commit=True) == [change(2), change(0, group="other")]
    assert not pending
    assert pending.of_group("g") == set()


def test_several_transactions_change_one_offset() -> None:
    pending = PendingOffsets()
    for producer in (1, 2, 3):
        pending.add(producer, [change(0, producer)])
    pending.add(2, [change(1)])
    assert pending.end(1, is_commit=False) == []
    assert pending.of_group("g") == {("foo", 0), ("foo", 1)}
    assert pending.forget_group("g") == [change(0, None), change(1, None)]
    assert pending.forget_topics({"foo": [bytes(16)]}) == [change(0, None), change(1, None)]
    assert pending.forget_topics({"foo": [b"other id of foo."], "bar": [bytes(16)]}) == []
    pending.supersede([change(0, 9)])
    assert pending.end(3, is_commit=True) == []
    assert pending.end(2, is_commit=True) == [change(1)]
    assert pending.forget_group("g") == []


def test_the_coordinator_is_not_asked_about_an_older_epoch(partition: Partition) -> None:
    begin_transaction(partition)
    with pytest.raises(StorageError, match="smaller than the last seen epoch 3") as refused:
        Verifications().begin(partition, PRODUCER, EPOCH - 1, 0)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_last_change_of_an_offset_counts_whichever_transaction_ends_first() -> None:
    pending = PendingOffsets()
    for producer in (1, 2, 3, 1):
        pending.add(producer, [change(0, producer)])
    assert pending.end(2, is_commit=True) == [change(0, 2)]
    assert pending.end(1, is_commit=True) == [change(0, 1)]
    assert pending.end(3, is_commit=True) == []


def test_two_transactions_commit_one_offset() -> None:
    shard = GroupShard(0, 0)
    now = Now(0, NOW_MS)
    shard.appended_in_transaction([change(0, 3)], 1, 2, now)
    shard.appended_in_transaction([change(0, 1)], 2, 1, now)
    shard.ended(2, 3, now, is_commit=True)
    shard.ended(1, 4, now, is_commit=True)
    assert shard.latest.of_group("g") == {"foo": {0: OffsetAndMetadata(1)}}
