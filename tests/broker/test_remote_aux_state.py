"""What a follower is given of the remote segment before the leader's local log start."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING

import pytest

from support.remote import PARTITION, remote_segment
from tidelog.metrics.meters import BROKER_TOPIC_METRICS, Meters, Name
from tidelog.runtime import DetachedExecutor
from tidelog.tiered.pools import Pool
from tidelog.tiered.tasks.aux_state import fetch_aux_state
from tidelog_storage.remote.api import (
    IndexKind,
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteStorageNotReady,
)

if TYPE_CHECKING:
    from tidelog.replication.aux_state import AuxState
    from tidelog_storage.remote.api import RemoteSegment, TopicIdPartition

TROUBLES = ("unknown", "not ready", "no index", "bad", "empty", "cut short")
CHECKPOINT = b"0\n3\n0 0\n1 70\n2 100\n"


class Tier:
    """The parts of `RemoteSegments` that are asked, and what they answer."""

    def __init__(self) -> None:
        self.metadata = self.storage = self
        self.meters = Meters()
        self.segment: RemoteSegment | None = remote_segment(1, 0, 99, epochs=((0, 0), (1, 70)))
        self.indexes = {
            IndexKind.LEADER_EPOCH: CHECKPOINT,
            IndexKind.PRODUCER_SNAPSHOT: b"producers",
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
        return io.BytesIO(self.indexes[kind])

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
    assert state.snapshot == b"producers"
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
    elif trouble == "bad":
        tier.indexes[IndexKind.LEADER_EPOCH] = b"0\n7\n0 0\n"
    elif trouble == "empty":  # a file that ends there has no entries: seed 10354 of three brokers
        tier.indexes[IndexKind.LEADER_EPOCH] = b"0\n"
    else:  # looks like a whole one: the simulation's seed 10058 of five brokers
        tier.indexes[IndexKind.LEADER_EPOCH] = b"0\n2\n0 0\n1 7"
    with pytest.raises(expected):
        fetch(tier)
    assert tier.count("BuildRemoteLogAuxStateErrorsPerSec") == 1
