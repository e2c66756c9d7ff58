"""What a consumer shows of fetched bytes: read_committed leaves aborted records out, as Kafka's
consumers do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from support.wire_client import WireClient
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


class Reader:
    """A consumer of one partition: `found` is what it has seen from its start."""

    def __init__(self, cluster: TieredCluster, topic: str, start: int, isolation: int) -> None:
        self.start = self.offset = start
        self.isolation = isolation
        self.found: list[Told] = []
        self._cluster = cluster
        self._topic = topic

    async def step(
        self,
        client: WireClient,
        *,
        index: int = 0,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 500,
    ) -> None:
        """One Fetch. What fails for now is asked for again by the next one."""
        answer = await self._cluster.fetch(
            self._topic,
            index,
            self.offset,
            client=client,
            isolation=self.isolation,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
        )
        assert answer.error_code in (0, ErrorCode.UNKNOWN_SERVER_ERROR), answer
        if answer.error_code == 0:
            told, self.offset = visible(answer, self.offset, self.isolation)
            self.found += told


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
    """All that a consumer sees from `start` to before `end`."""
    reader = Reader(cluster, topic, start, isolation)
    server = cluster.server(cluster.leader(topic, index))
    async with await WireClient.connect(server) as client, asyncio.timeout(200):
        while reader.offset < end:
            await reader.step(client, index=index, max_bytes=max_bytes)
    return reader.found
