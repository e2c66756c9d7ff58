"""Planted bugs that clients alone can see: what a broker holds is right, its answer is not."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from tidelog.api import metadata
from tidelog.replication.partition import Partition
from tidelog_storage.types import OffsetAndTimestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    Patch = Callable[..., None]

LATEST = -1


def name_another_leader(patch: Patch) -> None:
    """Every third Metadata answer names another leader of the same leader epoch."""
    original = metadata._partition
    asked = 0

    def partition(image: Any, state: Any, version: int) -> Any:
        nonlocal asked
        asked += 1
        answer = original(image, state, version)
        if asked % 3 == 0 and answer.leader_id >= 0:
            answer.leader_id += 1
        return answer

    patch(metadata, "_partition", partition)


def answer_an_old_log_end(patch: Patch) -> None:
    """Every second question for the end of a log gets the one before."""
    original = Partition.offset_for
    asked = 0

    def offset_for(self: Partition, timestamp: int, **options: Any) -> Any:
        nonlocal asked
        found = original(self, timestamp, **options)
        if timestamp == LATEST and isinstance(found, OffsetAndTimestamp):
            asked += 1
            if asked % 2 == 0 and found.offset > 0:
                return found._replace(offset=found.offset - 1)
        return found

    patch(Partition, "offset_for", offset_for)


def pass_over_a_batch(patch: Patch) -> None:
    """Every tenth Fetch begins one offset late."""
    original = Partition.read
    asked = 0

    def read(self: Partition, request: Any, *rest: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked % 10 == 0 and request.fetch_offset + 5 < self.log.high_watermark:
            request = copy.copy(request)
            request.fetch_offset += 5
        return original(self, request, *rest, **options)

    patch(Partition, "read", read)


MUTANTS = {
    "answer-an-old-log-end": answer_an_old_log_end,
    "name-another-leader": name_another_leader,
    "pass-over-a-batch": pass_over_a_batch,
}
