"""Where a share group begins to read a partition of which it has no state yet.

Kafka: SharePartition.startOffsetDuringInitialization. Difference: if no record is as new as a
`by_duration` asks, the group begins at the high watermark; Kafka answers OFFSET_NOT_AVAILABLE until
there is one.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import TYPE_CHECKING

from tidelog.replication.partition import (
    EARLIEST_TIMESTAMP,
    HIGH_WATERMARK,
    LATEST_TIMESTAMP,
    SearchRemote,
)
from tidelog.shares.records import ShareError
from tidelog.tiered.segments import id_of
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition
    from tidelog.tiered.reads.remote_reads import RemoteReads
    from tidelog_storage.types import OffsetAndTimestamp

__all__ = ["first_offset", "milliseconds_of"]

_SPECIAL = {"latest": LATEST_TIMESTAMP, "earliest": EARLIEST_TIMESTAMP}
_PARTS = re.compile(r"([-+]?[\d.,]+)([DHMS])", re.IGNORECASE)
_UNIT_MS = {"D": 86_400_000, "H": 3_600_000, "M": 60_000, "S": 1000}


async def first_offset(
    partition: Partition, leader_epoch: int, reset: str, now_ms: int, remote: RemoteReads | None
) -> int:
    """Return the offset by a group's share.auto.offset.reset; ShareError if there is none.

    `now_ms` is the wall clock, `remote` None without a remote tier.
    """
    timestamp = _SPECIAL.get(reset)
    if timestamp is None:
        timestamp = max(0, now_ms - milliseconds_of(reset.partition(":")[2]))
    ask = partial(
        partition.offset_for,
        timestamp,
        isolation=HIGH_WATERMARK,
        current_leader_epoch=leader_epoch,
        leader_only=True,
    )
    found = ask()
    if isinstance(found, SearchRemote):
        there = None if remote is None else await _search(partition, remote, timestamp)
        found = ask(local_only=True) if there is None else there
    if isinstance(found, ErrorCode):
        raise ShareError(found, f"The first offset is not known: {found.name}.")
    assert not isinstance(found, SearchRemote), "the local log was searched"
    return partition.log.high_watermark if found.offset < 0 else found.offset


async def _search(
    partition: Partition, remote: RemoteReads, timestamp: int
) -> OffsetAndTimestamp | None:
    """Look in the remote tier; None: look in the local log."""
    is_done = asyncio.Event()
    pending = remote.offset_for_timestamp(timestamp, id_of(partition), partition.log, is_done.set)
    if not pending.is_done:
        await is_done.wait()
    if pending.error is not None:
        raise ShareError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The remote tier cannot be searched: {pending.error}"
        )
    return pending.result


def milliseconds_of(duration: str) -> int:
    """Return an ISO 8601 duration, as java.time.Duration prints and parses it, in milliseconds."""
    text = duration.upper()
    text = text.removeprefix("+")
    return sum(
        int(float(number.replace(",", ".")) * _UNIT_MS[unit])
        for number, unit in _PARTS.findall(text)
    )
