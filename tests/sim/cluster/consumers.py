"""Consumers of a cluster: from leaders or, by rack, from followers; each record once, in order."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.cluster.client import PAUSE_S, ClusterClient
from sim.consumers import new_records
from sim.history import Violation, require
from sim.wire import Lost
from tidelog.simulation.machines import RACKS
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.messages.data import FetchRequest, ListOffsetsRequest
from tidelog_protocol.records import crc_is_valid, iter_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.cluster.client import Key
    from sim.cluster.world import ClusterWorld
    from sim.history import PartitionHistory, TopicHistory
    from tidelog_protocol.records import BatchHeader

EARLIEST, LATEST = -2, -1
LATER = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,  # the name has come back, and not everybody knows
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
SESSIONLESS = -1
REWIND = 0.01  # what was read once is read again, and is still the same
REWIND_TIERED = 0.12  # the more if it may be elsewhere by then


def later_of(topic: TopicHistory) -> frozenset[ErrorCode]:
    """Errors that pass, of a topic in the remote tier: the store may be away."""
    is_tiered = "remote.storage.enable" in topic.config
    return frozenset({ErrorCode.UNKNOWN_SERVER_ERROR}) if is_tiered else frozenset()


class Place:
    """How far one partition was read, and from which follower if not from the leader."""

    def __init__(self, history: PartitionHistory) -> None:
        self.history = history
        self.position = 0
        self.epoch = -1  # of the last record read
        self.follower: int | None = None


class ClusterConsumer:
    """Reads to the end of all partitions that stay, one broker after the other.

    Who fetches by topic id reads topics that come and go as well.
    """

    def __init__(self, world: ClusterWorld, name: str) -> None:
        self.world, self.name = world, name
        self.rng = random.Random(f"{world.seed}:{name}")
        self.cluster = ClusterClient(world.machines, name, self.rng)
        self.version = self.rng.choice((12, 16, 18))
        self.rack = self.rng.choice((*RACKS, ""))
        self.partition_bytes = self.rng.choice((200, 2000, 50_000))
        self.wait_ms = 50 if world.tier.is_on else 120  # the tier is found out by many reads
        self.places: dict[Key, Place] = {}

    async def run(self) -> None:
        """Read until everything is written, and then to the end."""
        ends: dict[Key, int] | None = None
        self._look_around()
        rewind = REWIND_TIERED if self.world.tier.is_on else REWIND
        while ends is None or any(
            place.position < ends.get(key, 0) for key, place in self.places.items()
        ):
            for place in list(self.places.values()):
                if ends is None and self.rng.random() < rewind:
                    place.position, place.epoch = 0, -1
                try:
                    await self._fetch(place)
                except Lost:
                    place.follower = None
                    await asyncio.sleep(PAUSE_S)
                    await self.cluster.refresh()
            if ends is None and self.world.all_written:
                ends = {key: await self._offset(p, LATEST) for key, p in self.places.items()}
            self._look_around(only_old=ends is not None)
        self.cluster.close()

    def _look_around(self, *, only_old: bool = False) -> None:
        """Topics may have come, grown or gone."""
        for key, place in list(self.places.items()):
            if place.history.topic.state != "exists":
                del self.places[key]
        by_id = self.version >= 13
        for topic in self.world.history.existing() if by_id else self.world.base_topics:
            for index in range(0 if only_old else topic.partitions_min):
                key = (topic.topic_id, index)
                if key not in self.places:
                    self.places[key] = Place(topic.partition(index))

    async def _offset(self, place: Place, timestamp: int, version: int = 7) -> int:
        """The first or the end offset of a partition as its leader tells it, or that of a time; 0
        if it is gone."""
        topic = place.history.topic
        while topic.state == "exists":
            try:
                epoch, node_id = await self.cluster.leader(place.history)
                if node_id < 0:
                    raise Lost("no leader")
                asked = ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=place.history.index,
                    current_leader_epoch=epoch,
                    timestamp=timestamp,
                )
                request = ListOffsetsRequest(
                    replica_id=-1,
                    topics=[
                        ListOffsetsRequest.ListOffsetsTopic(name=topic.name, partitions=[asked])
                    ],
                )
                response = await self.cluster.ask(node_id, request, version)
            except Lost:
                pass
            else:
                answer = response.topics[0].partitions[0]
                error = ErrorCode(answer.error_code)
                if error is ErrorCode.NONE:
                    return int(answer.offset)
                require(
                    error in LATER or error in later_of(topic),
                    f"{self.name}: ListOffsets of {topic.name} gives {error.name}",
                )
            await asyncio.sleep(PAUSE_S)
            await self.cluster.refresh()
        return 0

    async def _fetch(self, place: Place) -> None:
        epoch, leader = await self.cluster.leader(place.history)
        node_id = leader if place.follower is None else place.follower
        if node_id < 0:
            raise Lost("no leader")
        topic = place.history.topic
        name, topic_id = topic.name, topic.topic_id
        asked = FetchRequest.FetchPartition(
            partition=place.history.index,
            current_leader_epoch=epoch,
            fetch_offset=place.position,
            last_fetched_epoch=place.epoch,
            # In the end it hurries: there is a lot to read, and a time by which it is read.
            partition_max_bytes=self.partition_bytes * (20 if self.world.all_written else 1),
        )
        request = FetchRequest(
            max_wait_ms=0 if self.world.all_written else self.wait_ms,
            min_bytes=1,
            max_bytes=200_000,
            session_epoch=SESSIONLESS,
            topics=[FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=[asked])],
            rack_id=self.rack,
        )
        response = await self.cluster.ask(node_id, request, self.version)
        error = ErrorCode(response.error_code)
        if error is not ErrorCode.NONE:
            raise Violation(f"{self.name}: Fetch was answered {error.name}")
        await self._take(place, response.responses[0].partitions[0], node_id)

    async def _take(self, place: Place, answer: Any, node_id: int) -> None:
        error = ErrorCode(answer.error_code)
        from_leader = place.follower is None
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and not from_leader:
            place.follower = None  # it is behind: the leader knows
            return
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and (
            place.history.topic.has_retention or place.position < place.history.delete_bound
        ):
            await self._skip_deleted(place)
            return
        if error is not ErrorCode.NONE:
            require(
                error in LATER
                or error in later_of(place.history.topic)
                or self.world.rot.refuses(error, node_id, place.history),
                f"{self.name}: {place.history} at {place.position} (epoch {place.epoch}) was"
                f" answered {error.name} by {node_id}",
            )
            raise Lost(error.name)
        diverging = answer.diverging_epoch
        is_behind = diverging is not None and 0 <= diverging.end_offset < place.position
        if is_behind and not from_leader:
            place.follower = None  # it lost its end, and has not fetched all of it again
            self.world.history.count("followers behind their consumers")
            return
        require(
            not is_behind,
            f"{place.history} for {self.name}, read up to {place.position}, diverges"
            f" at {diverging and diverging.end_offset} from {node_id}",
        )
        if answer.preferred_read_replica >= 0:
            place.follower = answer.preferred_read_replica
            self.world.history.count("sent to a follower")
            return
        if answer.records:
            self._read(place, bytes(answer.records), answer.high_watermark, node_id)
            if not from_leader:
                self.world.history.count("batches consumed from followers")
        elif not from_leader and self.rng.random() < 0.2:
            place.follower = None

    async def _skip_deleted(self, place: Place) -> None:
        first = await self._offset(place, EARLIEST)
        require(
            place.history.topic.has_retention or first <= place.history.delete_bound,
            f"{place.history} starts at {first}, and nobody deleted more than"
            f" {place.history.delete_bound}",
        )
        if first > place.position:
            place.position, place.epoch = first, -1

    def _read(self, place: Place, data: bytes, high_watermark: int, node_id: int) -> None:
        history = place.history
        name = f"{place.history} for {self.name}"
        for batch, header in self._whole(place, data, node_id):
            for offset, value in new_records(place, batch, header, high_watermark, name):
                require(value in history.sent, f"{name}: nobody sent {value[:40]!r} at {offset}")
                history.learn(offset, value, 0, acked=False)
        self.world.history.count("batches consumed")

    def _whole(
        self, place: Place, data: bytes, node_id: int
    ) -> Iterator[tuple[memoryview, BatchHeader]]:
        """Batches up to the first bad one, which may only come from a disk that rots; then Lost."""
        for batch, header in _checked(data):
            if header is None:
                require(
                    self.world.rot.seen(node_id, place.history),
                    f"{place.history} for {self.name}: a bad batch after {place.position} from"
                    f" {node_id}",
                )
                raise Lost("bad checksum")
            yield batch, header


def _checked(data: bytes) -> Iterator[tuple[memoryview, BatchHeader | None]]:
    """Batches; None for the header of the first bad one, which is the last."""
    try:
        for position, header in iter_batches(data):
            batch = memoryview(data)[position : position + header.size_in_bytes]
            if not crc_is_valid(batch, header):
                yield batch, None
                return
            yield batch, header
    except ProtocolError:
        yield memoryview(b""), None
