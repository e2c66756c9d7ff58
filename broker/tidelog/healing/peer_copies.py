"""Asks other in-sync replicas for the records of a damaged range.

The request is that of a consumer which reads from the closest replica (KIP-392): a replica answers
below its high watermark, so the records can't be truncated later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.network.peers import Channels
from tidelog_protocol.batch import iter_batches
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.messages.data import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.network.peers import PeerChannel
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog_storage.types import Damage

__all__ = ["NoCopyError", "PeerCopies", "take"]

FETCH_BYTES = 8 << 20
COPY_BYTES_MAX = 2**31 - 1  # positions in a segment are int32


class NoCopyError(Exception):
    """A source does not have the records; the text says why."""


class PeerCopies:
    """Channels to other brokers' client listeners."""

    def __init__(
        self, new_channel: Callable[[str, int], PeerChannel], replicas: ReplicaManager
    ) -> None:
        self._channels = Channels(new_channel, self._address_of)
        self._replicas = replicas

    def _address_of(self, node_id: int) -> tuple[str, int] | None:
        image = self._replicas.image
        return None if image is None else image.address_of(node_id)

    def close(self) -> None:
        """Close the channels."""
        self._channels.close()

    def sources(self, partition: Partition) -> list[int]:
        """Return the other replicas that are in sync and alive; the leader is first, as it has the
        most records."""
        image, node_id = self._replicas.image, self._replicas.node_id
        state = None if image is None else image.partition(*partition.topic_partition)
        if image is None or state is None:
            return []
        others = [one for one in state.isr if one != node_id and image.is_alive(one)]
        return sorted(others, key=lambda one: one != state.leader)

    async def fetch(self, partition: Partition, damage: Damage, source: int) -> memoryview:
        """Fetch all records of a damaged range that a replica has. NoCopyError, PeerError."""
        offset = damage.first_offset
        parts: list[memoryview] = []
        size = 0
        while offset < damage.end_offset:
            data = await self._ask(partition, offset, source)
            taken, offset = take(memoryview(data.records or b""), offset, damage.end_offset)
            if not taken and offset < damage.end_offset:
                if data.high_watermark < damage.end_offset:
                    raise NoCopyError(f"its high watermark is {data.high_watermark}")
                break  # the log has nothing there
            parts += taken
            size += sum(map(len, taken))
            if size > COPY_BYTES_MAX:
                raise NoCopyError("it is larger than a segment can be")
        return memoryview(b"".join(parts))

    async def _ask(self, partition: Partition, offset: int, source: int) -> Any:
        asked = FetchRequest.FetchTopic.FetchPartition(
            partition=partition.topic_partition.partition,
            fetch_offset=offset,
            partition_max_bytes=FETCH_BYTES,
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic_id=partition.topic_id, partitions=[asked])],
        )
        response = await self._channels.to(source).ask(request)
        answers = [each for topic in response.responses for each in topic.partitions]
        error = answers[0].error_code if len(answers) == 1 else response.error_code
        if error or len(answers) != 1:
            raise NoCopyError(ErrorCode(error).name)
        return answers[0]


def take(records: memoryview, offset: int, end_offset: int) -> tuple[list[memoryview], int]:
    """Return the whole batches of [offset, end offset), and the offset to continue at.

    Batches that end at or below `offset` are skipped. NoCopyError if all of them do.
    """
    taken: list[memoryview] = []
    after = offset
    try:
        for position, header in iter_batches(records):
            if header.base_offset >= end_offset:
                return taken, end_offset
            if header.next_offset > offset:
                taken.append(records[position : position + header.size_in_bytes])
                after = header.next_offset
    except ProtocolError as error:
        raise NoCopyError(str(error)) from error
    if len(records) and not taken:
        raise NoCopyError(f"offset {offset} is not there")
    return taken, after
