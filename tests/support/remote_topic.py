"""`__remote_log_metadata` in memory: partitions as lists, and a client that can fail."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import REMOTE_LOG_METADATA_TOPIC
from tidelog.replication.purgatory import Purgatory
from tidelog.tiered.metadata.client import Chunk, TopicError
from tidelog.tiered.metadata.settings import ClientSettings
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog_protocol.messages.admin import CreateTopicsRequest

CHUNK_RECORDS_MAX = 3


class MemoryTopic:
    """The topic as all brokers share it. `starts` are log starts; `on_image` tells brokers that it
    came or went."""

    def __init__(self, partitions: int = 0) -> None:
        self.topic_id = b"metadata-topic-1"
        self.partitions: list[list[bytes | None]] = [[] for _ in range(partitions)]
        self.starts: dict[int, int] = {}
        self.created: list[CreateTopicsRequest.CreatableTopic] = []
        self.create_error = ErrorCode.NONE
        self.broker_count = 1
        self.clients: list[MemoryClient] = []
        self.on_image: Callable[[], None] = lambda: None

    async def create(self, topic: CreateTopicsRequest.CreatableTopic) -> ErrorCode:
        """The controller's part."""
        self.created.append(topic)
        if self.create_error is ErrorCode.NONE:
            if not self.partitions:
                self.partitions = [[] for _ in range(topic.num_partitions)]
            self.on_image()
        return self.create_error

    def delete(self) -> None:
        """Somebody deletes it; the next one has another id."""
        self.partitions = []
        self.topic_id = self.topic_id[:-1] + bytes([self.topic_id[-1] + 1])
        self.on_image()

    def append(self, index: int, value: bytes | None) -> int:
        """Write past all clients."""
        self.partitions[index].append(value)
        for client in self.clients:
            client.moved(index)
        return len(self.partitions[index]) - 1


class MemoryClient:
    """One broker's client: reads here, or by fetches if it is `far`.

    `error` fails what is published and asked; `is_stuck` gives nothing to read.
    """

    def __init__(self, topic: MemoryTopic, *, far: bool = False) -> None:
        self.name = REMOTE_LOG_METADATA_TOPIC
        self.topic = topic
        self.far = far
        self.settings = ClientSettings.of({}, request_timeout_ms=30_000)
        self.error: ErrorCode | None = None
        self.is_stuck = False
        self.is_closed = False
        self.reads: list[tuple[int, int]] = []  # (partition, offset) that gave records
        self.node_id = 1
        self.fetch_purgatory: Purgatory[tuple[str, int]] = Purgatory(asyncio.get_running_loop())
        self.replicas = self
        self._moved = asyncio.Event()
        topic.clients.append(self)

    @property
    def broker_count(self) -> int:
        return self.topic.broker_count

    @property
    def partition_count(self) -> int:
        return len(self.topic.partitions)

    @property
    def topic_id(self) -> bytes:
        return self.topic.topic_id

    def leader_of(self, index: int) -> int:
        if not self.topic.partitions:
            return -1
        return 2 + index % 2 if self.far else self.node_id

    def place_of(self, index: int) -> int:
        return self.leader_of(index)

    def moved(self, index: int) -> None:
        self.fetch_purgatory.check((self.name, index))
        self._moved.set()

    def _fail(self) -> None:
        if self.error is not None:
            raise TopicError(self.error, self.error.name)
        if not self.topic.partitions:
            raise TopicError(ErrorCode.LEADER_NOT_AVAILABLE, "it was deleted")

    async def publish(self, index: int, value: bytes) -> int:
        await asyncio.sleep(0)
        self._fail()
        return self.topic.append(index, value)

    async def end_offset(self, index: int) -> int:
        await asyncio.sleep(0)
        self._fail()
        return len(self.topic.partitions[index])

    async def start_offset(self, index: int) -> int:
        self._fail()
        return self.topic.starts.get(index, 0)

    def read_here(self, index: int, offset: int) -> Chunk | None:
        if self.is_stuck:
            return Chunk([], offset)
        records = self.topic.partitions[index]
        start = self.topic.starts.get(index, 0)
        if offset < start:
            return Chunk([], start)
        if offset > len(records):
            raise TopicError(ErrorCode.OFFSET_OUT_OF_RANGE, "out of range")
        found = list(enumerate(records))[offset : offset + CHUNK_RECORDS_MAX]
        if found:
            self.reads.append((index, offset))
        return Chunk(found, offset + len(found))

    async def fetch(self, leader: int, offsets: Mapping[int, int]) -> dict[int, Chunk | ErrorCode]:
        assert all(self.leader_of(index) == leader for index in offsets)
        answers: dict[int, Chunk | ErrorCode] = {}
        for _ in range(2):
            self._moved.clear()
            for index, offset in offsets.items():
                try:
                    chunk = self.read_here(index, offset)
                except TopicError as error:
                    answers[index] = error.code
                else:
                    assert chunk is not None
                    answers[index] = chunk
            if any(answer != Chunk([], offsets[index]) for index, answer in answers.items()):
                break
            try:
                async with asyncio.timeout(0.5):
                    await self._moved.wait()
            except TimeoutError:
                break
        return answers

    def close(self) -> None:
        self.is_closed = True
