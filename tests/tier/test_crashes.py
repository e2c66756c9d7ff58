"""A broker's process is killed (SIGKILL) at every point of a copy and of a deletion, and started
again: no record is lost or doubled, and nothing is left over (kafka-tests 4, point 3). Every file
operation of a copy and of a deletion: tests/storage/test_remote_directory_crashes.py.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidelog
from support.clusters import in_thread, run, until
from support.remote_places import DirectoryPlace
from support.wire_client import WireClient
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_protocol.messages.data import FetchRequest, ListOffsetsRequest, ProduceRequest
from tidelog_protocol.records import Record, build_batch, iter_batches, iter_records
from tier import admin
from tier.deadly_store import COMMAND, NAME
from tier.harness import EARLIEST, EARLIEST_LOCAL, SETTINGS

if TYPE_CHECKING:
    from typing import Self

TESTS = Path(__file__).parents[1]
TOPIC = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "1",
    "index.interval.bytes": "1",
    "segment.index.bytes": "12",
}
COPY = (
    "before COPY_SEGMENT_STARTED",
    "after COPY_SEGMENT_STARTED",
    "file 4",  # all are there but the manifest
    "before COPY_SEGMENT_FINISHED",
    "after COPY_SEGMENT_FINISHED",
    "local",
)
DELETION = (
    "before DELETE_SEGMENT_STARTED",
    "after DELETE_SEGMENT_STARTED",
    "removed 1",  # the manifest
    "before DELETE_SEGMENT_FINISHED",
    "after DELETE_SEGMENT_FINISHED",
)
DELETION_OF_A_TOPIC = (
    "before DELETE_PARTITION_MARKED",
    "after DELETE_PARTITION_MARKED",
    "removed 2",
    "before DELETE_PARTITION_FINISHED",
)


class Mortal:
    """One broker in a process of its own, and what a client that forgets nothing knows of it."""

    def __init__(self, folder: Path) -> None:
        self.place = DirectoryPlace(folder / "tier")
        self._order = folder / COMMAND
        settings = {
            **SETTINGS,
            "remote.log.storage.manager.class.name": NAME,
            "remote.log.storage.manager.class.path": str(TESTS),
            "rsm.config.dir": str(self.place.folder),
            "remote.partition.remover.task.interval.ms": "300",
        }
        self._broker = tidelog.run(settings, data_dir=folder / "data")
        self._numbers = itertools.count()
        self.sent: dict[str, list[str]] = {}
        self.acknowledged: dict[str, list[str]] = {}

    async def __aenter__(self) -> Self:
        await in_thread(self._broker.start)
        return self

    async def __aexit__(self, *error: object) -> None:
        await in_thread(self._broker.kill)
        self._broker.stop()

    @property
    def server(self) -> str:
        return self._broker.bootstrap_servers

    def order(self, point: str) -> None:
        """The broker is to die at this point."""
        self._order.write_text(point)

    async def dies(self, point: str) -> None:
        """Wait until it has, and start it again."""
        process: Any = self._broker._process
        await until(lambda: process.poll() is not None, f"it dies {point}")
        assert not self._order.exists(), f"it died, but not {point}: {self._broker.log}"
        await in_thread(self._broker.kill)
        await in_thread(self._broker.start)

    async def create(self, topic: str) -> None:
        self.sent[topic], self.acknowledged[topic] = [], []
        await admin.create_topic(self.server, topic, {0: [1]}, TOPIC)
        await self.led(topic)

    async def described(self, topic: str) -> Any:
        named = [MetadataRequest.MetadataRequestTopic(name=topic)]
        asked = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        return (await admin.ask(self.server, asked, 9)).topics[0]

    async def is_deleted(self, topic: str) -> None:
        """The broker may have died of what it still had to do for the topic before, and not have
        heard of this one's deletion."""
        found = await self.described(topic)
        if found.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            await admin.delete_topic(self.server, topic)

    async def led(self, topic: str) -> None:
        """Wait until the broker leads it again."""
        while True:
            found = await self.described(topic)
            if found.error_code == 0 and found.partitions[0].leader_id == 1:
                return
            await asyncio.sleep(0.02)

    async def produce(self, topic: str, count: int) -> None:
        """Each record is sent once. The broker may die meanwhile: nobody knows of that record."""
        try:
            async with await WireClient.connect(self.server) as client:
                for _ in range(count):
                    value = f"v{next(self._numbers)}"
                    self.sent[topic].append(value)
                    assert await self._sent(client, topic, value) == 0
                    self.acknowledged[topic].append(value)
        except (OSError, EOFError, asyncio.IncompleteReadError):
            pass

    async def _sent(self, client: WireClient, topic: str, value: str) -> int:
        batch = build_batch([Record(0, int(time.time() * 1000), None, value.encode())])
        partition = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=batch)
        data = ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
        request = ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[data])
        answer = await client.ask(request, 9)
        return int(answer.responses[0].partition_responses[0].error_code)

    async def start_of(self, topic: str, which: int) -> int:
        """EARLIEST or EARLIEST_LOCAL, as the broker answers."""
        asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=which)
        one = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])
        request = ListOffsetsRequest(replica_id=-1, topics=[one])
        found = (await admin.ask(self.server, request, 8)).topics[0].partitions[0]
        assert found.error_code == 0
        return int(found.offset)

    async def local_from(self, topic: str, offset: int) -> None:
        """Wait until all below the offset is remote only."""
        start = -1
        async with asyncio.timeout(120):
            while start < offset:
                start = await self.start_of(topic, EARLIEST_LOCAL)
                await asyncio.sleep(0.02)

    async def values(self, topic: str) -> list[str]:
        """All records, from the log start."""
        found: list[str] = []
        offset, end = await self.start_of(topic, EARLIEST), -1
        async with await WireClient.connect(self.server) as client, asyncio.timeout(120):
            while end < 0 or offset < end:
                place = FetchRequest.FetchTopic.FetchPartition(
                    partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
                )
                request = FetchRequest(
                    max_wait_ms=500,
                    min_bytes=1,
                    max_bytes=1 << 20,
                    topics=[FetchRequest.FetchTopic(topic=topic, partitions=[place])],
                )
                answer = (await client.ask(request, 11)).responses[0].partitions[0]
                if answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
                    continue  # the metadata is not read yet
                if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and not found:
                    offset = await self.start_of(topic, EARLIEST)  # it was raised meanwhile
                    continue
                assert answer.error_code == 0, ErrorCode(answer.error_code).name
                end = answer.high_watermark
                data = bytes(answer.records or b"")
                for position, header in iter_batches(data):
                    assert header.base_offset == offset, "a hole, or the same again"
                    found += [
                        bytes(one.value or b"").decode() for one in iter_records(data, position)
                    ]
                    offset = header.last_offset + 1
        return found

    async def check(self, topic: str) -> None:
        """Each acknowledged record is there once, in order; what was not may be."""
        found = await self.values(topic)
        assert len(found) == len(set(found)), "doubled"
        start = self.sent[topic].index(found[0])
        expected = self.sent[topic][start:]
        assert found == [value for value in expected if value in set(found)]
        assert set(self.acknowledged[topic]) & set(expected) <= set(found), "lost"

    async def nothing_is_remote(self) -> None:
        left = self.place.names
        try:
            await until(lambda: not left(), "the store is empty")
        except AssertionError:
            raise AssertionError(f"left over: {left()}") from None


def test_killed_at_every_point_of_a_copy(tmp_path: Path) -> None:
    async def test() -> None:
        async with Mortal(tmp_path) as it:
            await it.create("a")
            for point in COPY:
                it.order(point)
                await it.produce("a", 3)
                await it.dies(point)
                await it.led("a")
                await it.check("a")
            await it.produce("a", 2)
            end = len(await it.values("a"))
            await it.local_from("a", end - 1)
            await it.check("a")
            # Copies that were begun and never finished go with the rest.
            await admin.delete_records(it.server, "a", 0, end - 1)
            await it.nothing_is_remote()

    run(test)


def test_killed_at_every_point_of_a_deletion(tmp_path: Path) -> None:
    async def test() -> None:
        async with Mortal(tmp_path) as it:
            await it.create("a")
            await it.produce("a", 3 * len(DELETION) + 1)
            end = len(it.acknowledged["a"])
            await it.local_from("a", end - 1)
            for number, point in enumerate(DELETION, 1):
                it.order(point)
                await admin.delete_records(it.server, "a", 0, 3 * number - 1)
                await it.dies(point)
                await it.led("a")
                await it.check("a")
                assert await it.start_of("a", EARLIEST) < 3 * number
            await admin.delete_records(it.server, "a", 0, end - 1)
            await it.nothing_is_remote()
            assert await it.values("a") == it.acknowledged["a"][-1:]

    run(test)


def test_killed_at_every_point_of_the_deletion_of_a_topic(tmp_path: Path) -> None:
    async def test() -> None:
        async with Mortal(tmp_path) as it:
            for number in range(len(DELETION_OF_A_TOPIC)):
                await it.create(f"a{number}")
                await it.produce(f"a{number}", 3)
            await it.create("b")
            await it.produce("b", 3)
            for number in range(len(DELETION_OF_A_TOPIC)):
                await it.local_from(f"a{number}", 2)
            await it.local_from("b", 2)
            for number, point in enumerate(DELETION_OF_A_TOPIC):
                it.order(point)
                with suppress(asyncio.IncompleteReadError, ConnectionError):
                    # It may die before its answer goes out.
                    await admin.delete_topic(it.server, f"a{number}")
                await it.dies(point)
                await it.is_deleted(f"a{number}")
            await it.led("b")
            await it.check("b")
            await it.create("a0")
            await it.produce("a0", 1)
            assert await it.values("a0") == it.acknowledged["a0"]
            await admin.delete_topic(it.server, "b")
            await it.nothing_is_remote()

    run(test)
