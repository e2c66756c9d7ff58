"""What a consumer shows of fetched bytes: read_committed leaves aborted records out, as Kafka's
consumers do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import iter_batches, iter_records
from tier.harness import READ_COMMITTED, READ_UNCOMMITTED, Told

if TYPE_CHECKING:
    from tier.harness import TieredCluster

_ABORT = b"\x00\x00\x00\x00"  # of a marker's key: version 0, type 0


def visible(answer: Any, offset: int, isolation: int) -> tuple[list[Told], int]:
    """The records of one partition's answer to a Fetch at `offset`, and where to go on."""
    data = bytes(answer.records or b"")
    to_come = sorted(
        (one.first_offset, one.producer_id) for one in answer.aborted_transactions or ()
    )
    aborted: set[int] = set()
    told: list[Told] = []
    end = offset
    for position, header in iter_batches(data):
        end = max(end, header.last_offset + 1)
        while to_come and to_come[0][0] <= header.last_offset:
            aborted.add(to_come.pop(0)[1])
        records = list(iter_records(data, position))
        if header.is_control:
            if bytes(records[0].key or b"") == _ABORT:
                aborted.discard(header.producer_id)
            continue
        is_hidden = header.is_transactional and header.producer_id in aborted
        if is_hidden and isolation == READ_COMMITTED:
            continue
        told += [Told(one.offset, one.key, one.value) for one in records if one.offset >= offset]
    return told, end


async def read(
    cluster: TieredCluster,
    topic: str,
    index: int,
    start: int,
    end: int,
    *,
    isolation: int = READ_UNCOMMITTED,
    max_bytes: int = 1 << 20,
) -> list[Told]:
    """All that a consumer sees from `start` to before `end`; it asks again what fails for now."""
    found: list[Told] = []
    offset = start
    async with asyncio.timeout(200):
        while offset < end:
            answer = await cluster.fetch(
                topic, index, offset, isolation=isolation, max_bytes=max_bytes
            )
            assert answer.error_code in (0, ErrorCode.UNKNOWN_SERVER_ERROR), answer
            if answer.error_code == 0:
                told, offset = visible(answer, offset, isolation)
                found += told
    return found
