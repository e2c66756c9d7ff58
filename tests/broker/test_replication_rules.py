"""Rows of the specification's rule tables that no vector and no other test stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import NOW_MS, DataPath, batch, bytes_of, data_of
from tidelog.cluster.metadata.image import BrokerImage
from tidelog.replication.truncation import StartOffset, start_offset
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import iter_batches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EPOCH = 10  # of every broker


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.apply(brokers={node: BrokerImage(node, "h", 1, epoch=EPOCH) for node in (1, 2, 3)})
    yield path
    path.logs.abandon()


@pytest.mark.parametrize(
    "refusal", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED]
)
def test_a_refused_isr_expansion_holds_back_no_high_watermark(
    path: DataPath, refusal: ErrorCode
) -> None:
    """2.1 rule 4: the high watermark is looked at again when a change of the ISR is given up."""
    path.create("foo", replicas=(1, 2), isr=(1,))
    partition = path.partition("foo")
    partition.remotes[2].record_fetch(0, 0, leader_end=0, now_ms=NOW_MS, broker_epoch=EPOCH)
    change = partition.propose_expansion(2)
    assert change is not None
    partition.append(batch(), acks=1, now_ms=NOW_MS)
    assert partition.log.high_watermark == 0, "2 may be in sync already"
    path.apply(brokers={**path.image.brokers, 2: path.image.brokers[2]._replace(fenced=True)})
    assert not partition.change_refused(change, refusal)
    assert partition.maximal_isr == (1,)
    assert partition.log.high_watermark == 1


class TestBecomingLeader:
    """Section 3: what a new leader takes its followers for, before they have fetched."""

    def elected(self, path: DataPath, isr: tuple[int, ...]) -> Any:
        path.create("foo", replicas=(1, 2, 3), isr=(1, 2, 3))
        path.partition("foo").append(batch(3), acks=1, now_ms=NOW_MS)
        path.change("foo", leader=2, leader_epoch=1)
        path.change("foo", leader=1, leader_epoch=2, isr=isr)
        return path.partition("foo")

    def test_members_of_the_isr_have_the_whole_lag(self, path: DataPath) -> None:
        partition = self.elected(path, (1, 2))
        path.clock.now_ms += path.replicas.rules.lag_ms_max
        assert partition.propose_shrink() is None
        path.clock.now_ms += 1
        change = partition.propose_shrink()
        assert change is not None
        assert change.isr == (1,)

    def test_others_have_not_been_caught_up(self, path: DataPath) -> None:
        partition = self.elected(path, (1, 2))
        for follower, offset in ((2, 3), (3, 1)):
            partition.remotes[follower].record_fetch(
                offset, 0, leader_end=3, now_ms=path.clock.now_ms, broker_epoch=EPOCH
            )
        partition.advance_high_watermark()
        assert partition.log.high_watermark == 3, "3 has less, and is not about to join"


def test_below_the_log_start_is_out_of_range_even_if_it_diverges(path: DataPath) -> None:
    """7.1: to be told of an end below the log start would not help the follower on."""
    path.create("foo")
    partition = path.partition("foo")
    partition.append(batch(5), acks=1, now_ms=NOW_MS)
    path.change("foo", leader_epoch=2)
    partition.append(batch(5), acks=1, now_ms=NOW_MS)
    partition.delete_records(4)
    for offset, error in ((4, ErrorCode.NONE), (3, ErrorCode.OFFSET_OUT_OF_RANGE)):
        response = path.fetch(("foo", 0, offset, {"last_fetched_epoch": 1}), version=12)
        answer = data_of(response)
        assert ErrorCode(answer.error_code) is error
        assert (answer.diverging_epoch is None) is bool(error), "never both"


def test_a_parked_fetch_ends_when_its_log_becomes_another_one(path: DataPath) -> None:
    """10.2: also if that has brought nothing to read."""
    path.create("foo")
    log = path.partition("foo").log
    path.partition("foo").append(batch(3), acks=1, now_ms=NOW_MS)
    asked = ("foo", 0, 3, {"last_fetched_epoch": 0})
    assert path.fetch(asked, version=12, max_wait_ms=1000) is None
    parked = path.context
    log.truncate_to(0)
    log.append_as_follower(batch(3, leader_epoch=1), leader_epoch=1, now_ms=NOW_MS)
    assert log.log_end_offset == 3
    path.replicas.fetch_purgatory.check(("foo", 0))
    diverging = data_of(path.answer_of(parked)).diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (0, 0)


def test_a_log_that_ends_where_the_leader_s_begins_is_kept() -> None:
    """7.3: fetched from max(start, own LEO), nothing dropped."""
    assert start_offset(10, leader_log_end=20, leader_log_start=10) == StartOffset(10)
    assert start_offset(9, leader_log_end=20, leader_log_start=10) == StartOffset(10, restart=True)


def test_committed_readers_stop_at_the_last_stable_offset(path: DataPath) -> None:
    """10.3: an open transaction hides what comes after its begin, though it is replicated."""
    path.create("foo")
    partition = path.partition("foo")
    partition.append(batch(2), acks=1, now_ms=NOW_MS)
    open_one = batch(1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    partition.append(open_one, acks=1, now_ms=NOW_MS)
    partition.append(batch(1), acks=1, now_ms=NOW_MS)
    assert (partition.log.last_stable_offset, partition.log.high_watermark) == (2, 4)
    for offset, isolation, ends in ((0, 0, [1, 2, 3]), (0, 1, [1]), (2, 1, [])):
        answer = data_of(path.fetch(("foo", 0, offset, {}), version=12, isolation_level=isolation))
        assert (answer.error_code, answer.last_stable_offset) == (0, 2)
        assert [header.last_offset for _, header in iter_batches(bytes_of(answer))] == ends


def test_records_are_deleted_up_to_the_high_watermark(path: DataPath) -> None:
    """10.6: what is not committed may not go, and -1 is all that is."""
    path.create("foo", replicas=(1, 2), isr=(1, 2))
    partition = path.partition("foo")
    partition.append(batch(5), acks=1, now_ms=NOW_MS)
    partition.remotes[2].record_fetch(3, 0, leader_end=5, now_ms=NOW_MS, broker_epoch=EPOCH)
    partition.advance_high_watermark()
    assert partition.delete_records(4) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.log.log_start_offset == 0
    assert partition.delete_records(2) == partition.log.log_start_offset == 2
    assert partition.delete_records(1) == 1
    assert partition.log.log_start_offset == 2, "never back"
    assert partition.delete_records(-1) == partition.log.log_start_offset == 3
