"""What a client can read of a broker: values, errors, and the group's offset."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from damage.directory import GROUP
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.messages.data import FetchRequest
from tidelog_protocol.records import crc_is_valid, iter_batches, iter_records

if TYPE_CHECKING:
    from support.txn_client import Nodes

WAIT_S_MAX = 5.0
PASSING = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR})


class Seen(NamedTuple):
    """Values of read_committed, and what kept the rest from the client."""

    values: list[bytes]
    errors: list[str]


async def read_topic(nodes: Nodes, topic: str, end_offset: int) -> Seen:
    """All that read_committed gives of partition 0; goes on behind what gives an error."""
    seen = Seen([], [])
    offset, skipping = 0, set[int]()
    begun = asyncio.get_running_loop().time()
    while offset < end_offset:
        data = await _fetch(nodes, topic, offset)
        records = bytes(data.records or b"")
        if data.error_code in PASSING and not _is_over(begun):
            await asyncio.sleep(0.05)
        elif data.error_code or not records:
            if data.error_code == 0 and not _is_over(begun, 1.0):
                await asyncio.sleep(0.05)
                continue
            error = ErrorCode(data.error_code)
            text = f"{topic}-0 at {offset}: {error.name if error else 'nothing comes'}"
            seen.errors.append(text)
            if error in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE, *PASSING):
                offset = _next(data, offset, end_offset)
            else:
                offset += 1
        else:
            offset = _take(seen, data, records, offset, skipping)
    return seen


def _is_over(begun: float, seconds: float = WAIT_S_MAX) -> bool:
    return asyncio.get_running_loop().time() - begun > seconds


def _next(data: Any, offset: int, end_offset: int) -> int:
    start = data.log_start_offset
    return start if start > offset else min(offset + 1, end_offset)


def _take(seen: Seen, data: Any, records: bytes, offset: int, skipping: set[int]) -> int:
    aborted: dict[int, list[int]] = {}
    for each in data.aborted_transactions or ():
        aborted.setdefault(each.producer_id, []).append(each.first_offset)
    after = offset
    try:
        for position, header in iter_batches(records):
            if not crc_is_valid(records, header, position):
                seen.errors.append(f"client: batch at {header.base_offset} has a bad checksum")
                after = max(after, header.last_offset + 1)
                continue
            producer = header.producer_id
            if header.is_control:
                skipping.discard(producer)
            elif _is_aborted(header, aborted.get(producer, [])):
                pass
            else:
                seen.values.extend(
                    bytes(each.value or b"")
                    for each in iter_records(records, position)
                    if each.offset >= offset
                )
            after = max(after, header.last_offset + 1)
    except ProtocolError as error:
        seen.errors.append(f"client: {error}")
    return max(after, offset + 1)


def _is_aborted(header: Any, starts: list[int]) -> bool:
    """One batch a transaction that aborts."""
    return bool(header.is_transactional and header.base_offset in starts)


async def _fetch(nodes: Nodes, topic: str, offset: int) -> Any:
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    asked = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )
    answer = await nodes.ask(await nodes.leader(topic, 0), asked, 11)
    return answer.responses[0].partitions[0]


async def read_offset(nodes: Nodes) -> int:
    """The group's offset of t-0; -1 if there is none or it can't be read."""
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            offset, error = await nodes.committed(GROUP, "t")
    except (TimeoutError, OSError):
        return -1
    return -1 if error else offset
