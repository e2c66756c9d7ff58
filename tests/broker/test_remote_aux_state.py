"""What a follower is given of the remote segment before the leader's local log start."""

from __future__ import annotations

import asyncio
import io
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from support.logs import NOW
from support.remote import PARTITION, remote_segment
from tidelog.metrics.meters import BROKER_TOPIC_METRICS, Meters, Name
from tidelog.runtime import DetachedExecutor
from tidelog.tiered.pools import Pool
from tidelog.tiered.tasks.aux_state import DamagedSegmentError, fetch_aux_state
from tidelog.tiered.tasks.partition import TieredPartition
from tidelog_storage.producer_snapshot import format_snapshot
from tidelog_storage.producer_state import ProducerEntry
from tidelog_storage.remote.api import (
    IndexKind,
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteStorageNotReady,
)

if TYPE_CHECKING:
    from tidelog.replication.aux_state import AuxState
    from tidelog_storage.remote.api import RemoteSegment, TopicIdPartition

TROUBLES = ("unknown", "not ready", "no index")
CHECKPOINT = b"0\n3\n0 0\n1 70\n2 100\n"
SNAPSHOT = format_snapshot([ProducerEntry(5, producer_epoch=2, last_timestamp=NOW)])
DAMAGES: dict[str, dict[IndexKind, bytes | None]] = {
    "bad epochs": {IndexKind.LEADER_EPOCH: b"0\n7\n0 0\n"},
    # a file that ends there has no entries: seed 10354 of three brokers
    "no epochs": {IndexKind.LEADER_EPOCH: b"0\n"},
    # looks like a whole one: the simulation's seed 10058 of five brokers
    "epochs cut short": {IndexKind.LEADER_EPOCH: b"0\n2\n0 0\n1 7"},
    "lost epochs": {IndexKind.LEADER_EPOCH: None},
    "a bad snapshot": {IndexKind.PRODUCER_SNAPSHOT: SNAPSHOT[:-1] + b"?"},
    "a lost snapshot": {IndexKind.PRODUCER_SNAPSHOT: None},
}


class Tier:
    """The parts of `RemoteSegments` that are asked, and what they answer."""

    def __init__(self) -> None:
        self.metadata = self.storage = self
        self.meters = Meters()
        self.segment: RemoteSegment | None = remote_segment(1, 0, 99, epochs=((0, 0), (1, 70)))
        self.indexes: dict[IndexKind, bytes | None] = {
            IndexKind.LEADER_EPOCH: CHECKPOINT,
            IndexKind.PRODUCER_SNAPSHOT: SNAPSHOT,
        }
        self.error: Exception | None = None
        self.asked: list[int] = []

    def segments(self, partition: TopicIdPartition, epoch: int) -> list[RemoteSegment]:
        assert partition == PARTITION
        self.asked.append(epoch)
        if self.error is not None:
            raise self.error
        return [] if self.segment is None else [self.segment]

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> io.BytesIO:
        if kind not in self.indexes:
            raise RemoteStorageError(kind.name)
        content = self.indexes[kind]
        if content is None:
            self.on_lost()
            raise RemoteResourceNotFound(kind.name)
        return io.BytesIO(content)

    def on_lost(self) -> None:
        """The store was asked for an object that it does not have."""

    def count(self, name: str) -> float:
        return self.meters.count(Name(*BROKER_TOPIC_METRICS, name), topic=PARTITION.topic)


def fetch(tier: Tier) -> AuxState:
    async def test() -> AuxState:
        pool = Pool(DetachedExecutor("remote-follower", 2), 2)
        try:
            return await fetch_aux_state(tier, pool, PARTITION, 1, 80)  # type: ignore[arg-type]
        finally:
            pool.close()

    return asyncio.run(test())


def test_aux_state_has_the_epochs_up_to_the_segments_end() -> None:
    tier = Tier()
    state = fetch(tier)
    assert state.next_offset == 100
    assert [tuple(entry) for entry in state.epochs] == [(0, 0), (1, 70)]
    assert state.snapshot == SNAPSHOT
    assert tier.asked == [1]
    assert tier.count("BuildRemoteLogAuxStateRequestsPerSec") == 1
    assert tier.count("BuildRemoteLogAuxStateErrorsPerSec") == 0


@pytest.mark.parametrize("trouble", TROUBLES)
def test_failure_to_build_aux_state_is_raised_and_counted(trouble: str) -> None:
    tier = Tier()
    expected: type[Exception] = RemoteStorageError
    if trouble == "unknown":
        tier.segment, expected = None, RemoteResourceNotFound
    elif trouble == "not ready":
        tier.error = RemoteStorageNotReady("t-0")
        expected = RemoteStorageNotReady
    elif trouble == "no index":
        del tier.indexes[IndexKind.PRODUCER_SNAPSHOT]
    with pytest.raises(expected):
        fetch(tier)
    assert tier.count("BuildRemoteLogAuxStateErrorsPerSec") == 1


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_segment_is_named(damage: str) -> None:
    tier = Tier()
    tier.indexes |= DAMAGES[damage]
    with pytest.raises(DamagedSegmentError, match=r"^remote segment 0\.\.99: ") as error:
        fetch(tier)
    assert error.value.segment == tier.segment
    assert tier.count("BuildRemoteLogAuxStateErrorsPerSec") == 1


def test_a_segment_that_was_just_deleted_is_not_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    tier = Tier()
    tier.indexes[IndexKind.LEADER_EPOCH] = None
    monkeypatch.setattr(tier, "on_lost", lambda: setattr(tier, "segment", None))
    with pytest.raises(RemoteResourceNotFound):
        fetch(tier)


def test_a_follower_that_asks_again_and_again_is_heard_each_time_it_did_so_often() -> None:
    log = SimpleNamespace(local_log_start_offset=5)
    it: Any = SimpleNamespace(_asked={}, replica=SimpleNamespace(log=log))
    often = [number for number in range(1, 100) if TieredPartition.has_asked_often(it, 2)]
    assert often == [32, 64, 96]
    assert not TieredPartition.has_asked_often(it, 3)
    log.local_log_start_offset = 9  # it begins elsewhere: this is another attempt
    assert not any(TieredPartition.has_asked_often(it, 2) for _ in range(31))
    assert TieredPartition.has_asked_often(it, 2)
