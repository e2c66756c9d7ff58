"""Consumers: Fetch sessions over all partitions, each record once and in order."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Protocol

from sim.history import Violation, require
from sim.wire import Client, Lost
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchRequest, ListOffsetsRequest
from tidelog_protocol.records import crc_is_valid, iter_batches, iter_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from sim.history import PartitionHistory
    from sim.world import World
    from tidelog_protocol.records import BatchHeader

EARLIEST, LATEST = -2, -1
SESSION_LOST = frozenset(
    {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH}
)
LATER = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


class Place:
    """How far one partition was read. `life` is the broker's that told so."""

    def __init__(self, history: PartitionHistory) -> None:
        self.history = history
        self.position = 0
        self.epoch = -1  # of the last record read
        self.life = 0
        self.is_told = False  # the session knows this position

    def move(self, position: int) -> None:
        """Go on elsewhere."""
        self.position, self.epoch, self.is_told = position, -1, False


class Reading(Protocol):
    """How far a partition was read."""

    position: int
    epoch: int  # of the last record read


def new_records(
    place: Reading, batch: memoryview, header: BatchHeader, high_watermark: int, name: str
) -> Iterator[tuple[int, bytes]]:
    """Offset and value of a batch's records that were not read, none left out; `place` moves on."""
    require(
        header.base_offset <= place.position <= header.last_offset,
        f"{name}: batch {header.base_offset}..{header.last_offset} at {place.position}",
    )
    require(
        header.last_offset < high_watermark,
        f"{name}: {header.last_offset} is above the high watermark {high_watermark}",
    )
    require(header.leader_epoch >= place.epoch, f"{name}: leader epochs fall")
    for record in iter_records(batch):
        if record.offset >= place.position:
            require(record.offset == place.position, f"{name}: hole at {place.position}")
            assert record.value is not None
            yield record.offset, record.value
            place.position += 1
    place.epoch = header.leader_epoch


class Consumer:
    """Reads to the end of all partitions of the base topics."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.rng = random.Random(f"{world.seed}:{name}")
        self.client = Client(world.machine, name)
        self.version = self.rng.choice((12, 16, 18))
        self.partition_bytes = self.rng.choice((200, 2000, 50_000))
        self.is_slow = self.rng.random() < 0.4
        self.places = {
            (topic.name, index): Place(topic.partition(index))
            for topic in world.base_topics
            for index in range(topic.partitions_min)
        }
        self._ids = {topic.topic_id: topic.name for topic in world.base_topics}
        self._session = 0
        self._epoch = 0
        self._power_failures = 0

    async def run(self) -> None:
        """Read until everything is written, and then to the end."""
        ends: dict[tuple[str, int], int] | None = None
        while ends is None or any(
            place.position < ends.get(key, 0) for key, place in self.places.items()
        ):
            try:
                if ends is None and self.world.all_written:
                    ends = await self._offsets(LATEST)
                await self._fetch()
            except Lost:
                self._reset()
            failures = len(self.world.history.power_failures)
            if failures != self._power_failures:
                ends, self._power_failures = None, failures
        await self._close()

    async def _close(self) -> None:
        while self._session:
            self._epoch = -1
            with contextlib.suppress(Lost):
                await self.client.ask(self._request([]), self.version)
            self._session = 0
        self.client.close()

    def _reset(self) -> None:
        self._session = self._epoch = 0
        for place in self.places.values():
            place.is_told = False

    def _request(self, asked: list[tuple[str, int]]) -> FetchRequest:
        topics = []
        for name, index in asked:
            place = self.places[name, index]
            partition = FetchRequest.FetchPartition(
                partition=index,
                fetch_offset=place.position,
                last_fetched_epoch=place.epoch,
                partition_max_bytes=self.partition_bytes,
            )
            topics.append(
                FetchRequest.FetchTopic(
                    topic=name, topic_id=place.history.topic.topic_id, partitions=[partition]
                )
            )
            place.is_told = True
        return FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=200_000,
            session_id=self._session,
            session_epoch=self._epoch,
            topics=topics,
        )

    async def _fetch(self) -> None:
        asked = [
            key for key, place in self.places.items() if not self._session or not place.is_told
        ]
        connection = await self.client.connection()
        future = connection.send(self._request(asked), self.version)
        if self.is_slow and self.rng.random() < 0.1:
            connection.transport.pause_reading()
            await asyncio.sleep(self.rng.uniform(0.05, 0.6))
            connection.transport.resume_reading()
        response = await connection.receive(future)
        if response.error_code != ErrorCode.NONE:
            error = ErrorCode(response.error_code)
            require(error in SESSION_LOST, f"{self.name}: Fetch was answered {error.name}")
            self._reset()
            return
        if not self._session:
            self._session, self._epoch = response.session_id, 0
        if self._session:
            self._epoch += 1
        for topic in response.responses:
            name = topic.topic if self.version < 13 else self._ids[topic.topic_id]
            for answer in topic.partitions:
                await self._take(self.places[name, answer.partition_index], answer, connection.life)

    async def _take(self, place: Place, answer: Any, life: int) -> None:
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._find_range(place)
            return
        if error is not ErrorCode.NONE:
            require(error in LATER, f"{self.name}: {place.history} was answered {error.name}")
            await asyncio.sleep(0.02)
            return
        diverging = answer.diverging_epoch
        if diverging is not None and diverging.end_offset >= 0:
            self._need_power_failure(place, f"diverges at {diverging.end_offset}")
            place.move(min(place.position, diverging.end_offset))
            return
        require(
            answer.log_start_offset <= answer.high_watermark
            and answer.last_stable_offset <= answer.high_watermark,
            f"{place.history}: offsets out of order in {answer!r}",
        )
        if answer.records:
            self._read(place, bytes(answer.records), answer.high_watermark, life)

    def _read(self, place: Place, data: bytes, high_watermark: int, life: int) -> None:
        name = f"{place.history} for {self.name}"
        for position, header in iter_batches(data):
            batch = memoryview(data)[position : position + header.size_in_bytes]
            require(crc_is_valid(batch, header), f"{name}: bad CRC at {header.base_offset}")
            for offset, value in new_records(place, batch, header, high_watermark, name):
                place.history.learn(offset, value, life, acked=False)
            require(place.position == header.last_offset + 1, f"{name}: short batch")
        self.world.history.count("batches consumed")
        place.life = life
        place.is_told = False

    def _need_power_failure(self, place: Place, what: str) -> None:
        require(
            self.world.history.power_failed_since(place.life),
            f"{place.history} for {self.name}, read up to {place.position}: {what}, and there was"
            " no power failure",
        )

    async def _find_range(self, place: Place) -> None:
        key = (place.history.topic.name, place.history.index)
        first, end = (await self._offsets(EARLIEST))[key], (await self._offsets(LATEST))[key]
        if place.position < first:
            require(
                place.history.topic.has_retention or first <= place.history.delete_bound,
                f"{place.history}: the log starts at {first}, nobody asked for that",
            )
            place.move(first)
        elif place.position > end:
            self._need_power_failure(place, f"ends at {end}")
            place.move(end)
        else:
            place.is_told = False

    async def _offsets(self, timestamp: int) -> dict[tuple[str, int], int]:
        """Earliest or latest offsets of all partitions."""
        topics: dict[str, list[Any]] = {}
        for name, index in self.places:
            topics.setdefault(name, []).append(
                ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            )
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        while True:
            response = await self.client.ask(request, 7)
            answers = {
                (topic.name, answer.partition_index): answer
                for topic in response.topics
                for answer in topic.partitions
            }
            errors = {ErrorCode(answer.error_code) for answer in answers.values()}
            if errors == {ErrorCode.NONE}:
                return {key: answer.offset for key, answer in answers.items()}
            unexpected = sorted(errors - LATER - {ErrorCode.NONE})
            if unexpected:
                raise Violation(f"{self.name}: ListOffsets was answered {unexpected}")
            await asyncio.sleep(0.05)
