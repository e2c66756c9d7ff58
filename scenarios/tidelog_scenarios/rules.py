"""The rules by which a play's brokers follow and read: today's, and older ones, which lose records.

A stage takes a rule. `HIGH_WATERMARK` is Kafka's before KIP-101 (0.10 and older). `OFFSETS_ALONE`
reads the remote tier without the leader epochs that KIP-405 asks for. Both work in the brokers of
one play only: by its fetchers (`fetch_gate.py`), and by the `segment_at` of its remote reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_scenarios.fetch_gate import GatedFetcher
from tidelog_storage.remote.api import RemoteResourceNotFound, SegmentState
from tidelog_storage.types import UNDEFINED_EPOCH

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition
    from tidelog.tiered.reads.reader import SegmentAt
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import RemoteLogMetadata, RemoteSegment, TopicIdPartition

__all__ = ["HIGH_WATERMARK", "LEADER_EPOCHS", "OFFSETS_ALONE", "Rule"]


class Rule(NamedTuple):
    """How the brokers of a play follow and read; `segment_at` of None is the broker's own."""

    title: str
    text: str
    fetcher: type[GatedFetcher] = GatedFetcher
    segment_at: SegmentAt | None = None


class HighWatermarkFetcher(GatedFetcher):
    """Truncates to its own high watermark, and knows no leader epochs."""

    def add(self, partition: Partition, leader_epoch: int) -> None:
        """Follow a partition; in a new leader epoch, drop what is not known to be committed."""
        state = self.state(partition.topic_id, partition.topic_partition.partition)
        if state is None or state.leader_epoch != leader_epoch:
            log = partition.followed_log(leader_epoch)
            log.truncate_to(log.high_watermark, self.now_ms())
        super().add(partition, leader_epoch)

    def _update_session(self) -> None:
        """Ask as a Fetch of version 11 or older does: the leader can then find no divergence."""
        super()._update_session()
        for key, asked in list(self._session.asked.items()):
            self._session.update(key, asked._replace(last_fetched_epoch=UNDEFINED_EPOCH))


def _by_offset_alone(
    partition: TopicIdPartition, offset: int, _log: Log, metadata: RemoteLogMetadata
) -> tuple[RemoteSegment, int]:
    """Return the newest segment that has the offset, and its physical end."""
    holding = [
        segment
        for segment in metadata.segments(partition)
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED
        and segment.start_offset <= offset <= segment.end_offset
    ]
    if not holding:
        raise RemoteResourceNotFound(f"no remote segment has offset {offset}")
    newest = max(holding, key=_finished_at)
    return newest, newest.end_offset + 1


def _finished_at(segment: RemoteSegment) -> Any:
    return segment.event_timestamp, segment.start_offset


LEADER_EPOCHS = Rule(
    "leader epochs",
    "A follower truncates where the leader's log has another epoch, and a remote read takes the"
    " segment of (epoch, offset) and stops where that epoch ends.",
)
HIGH_WATERMARK = Rule(
    "high watermark",
    "Before KIP-101: a follower truncates to its own high watermark when it starts to follow, and"
    " nothing compares leader epochs.",
    fetcher=HighWatermarkFetcher,
)
OFFSETS_ALONE = Rule(
    "offsets alone",
    "Without the leader epochs of KIP-405: a remote read takes the newest segment that has the"
    " offset and reads it to its end.",
    segment_at=_by_offset_alone,
)
