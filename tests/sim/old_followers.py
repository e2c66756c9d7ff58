"""Followers of earlier days, to be put in place of the real one: they lose and mix records.

`HighWatermarkPartition` is Kafka's before KIP-101 (0.10 and older): who becomes follower, after a
restart too, cuts its log at its own high watermark; nobody compares epochs.
`EndOffsetPartition` and `cut_at_the_end_offset` are Kafka's between KIP-101 and KIP-279 (0.11 to
1.1): the follower cuts where the leader says its last epoch ended, and neither of them looks which
epoch that answer is about.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from unittest import mock

from tidelog.replication import replica_fetcher, replica_manager
from tidelog.replication.partition import Partition
from tidelog.replication.truncation import Truncation
from tidelog_storage import log
from tidelog_storage.replicated import check_replicated
from tidelog_storage.types import UNDEFINED_EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.cluster.metadata.image import PartitionImage
    from tidelog.replication.fetch_sessions import FetchedPartition
    from tidelog.replication.reads import ReadResult
    from tidelog_storage.types import OffsetAndEpoch


class HighWatermarkPartition(Partition):
    """A replica that knows no leader epochs but that of the leader it follows."""

    __slots__ = ()

    def update(self, image: PartitionImage) -> None:
        """As follower of a new leader: drop what is not known to be committed."""
        is_new = image.leader_epoch > self.leader_epoch
        super().update(image)
        if is_new and not self.is_leader and self.leader >= 0:
            self.log.truncate_to(self.log.high_watermark, 0)

    def _diverges(self, *_: Any) -> bool:
        """Fetches named no epoch then."""
        return False


class EndOffsetPartition(Partition):
    """A replica that compares where epochs end, and not which they are."""

    __slots__ = ()

    def _diverges(self, request: FetchedPartition, result: ReadResult) -> bool:
        end = self.log.end_offset_for_epoch(request.last_fetched_epoch)
        if 0 <= request.fetch_offset <= end.offset:
            return False
        return super()._diverges(request, result)


def cut_at_the_end_offset(
    leader_end: OffsetAndEpoch, _own_end: OffsetAndEpoch, *, log_end_offset: int, **_: int
) -> Truncation:
    """Not asked again: whatever lies below is taken for the leader's."""
    return Truncation(min(leader_end.offset, log_end_offset), done=True)


def take_any_epoch(
    records: memoryview, log_end_offset: int, leader_epoch: int, _latest_epoch: int
) -> list[Any]:
    """Nor did they refuse a batch of an older epoch than their newest."""
    return check_replicated(records, log_end_offset, leader_epoch, UNDEFINED_EPOCH)


@contextlib.contextmanager
def followers(kind: str) -> Iterator[None]:
    """How brokers follow while the block runs: `high-watermark`, `KIP-101` or `real`."""
    with contextlib.ExitStack() as stack:
        patch = mock.patch.object
        if kind != "real":
            stack.enter_context(patch(log, "check_replicated", take_any_epoch))
        if kind == "high-watermark":
            stack.enter_context(patch(replica_manager, "Partition", HighWatermarkPartition))
        elif kind == "KIP-101":
            stack.enter_context(patch(replica_manager, "Partition", EndOffsetPartition))
            stack.enter_context(
                patch(replica_fetcher, "follower_truncation", cut_at_the_end_offset)
            )
        else:
            assert kind == "real", kind
        yield
