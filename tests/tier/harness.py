"""A cluster with a remote tier and the words in which Kafka's tiered-storage tests are told.

`TieredCluster` starts brokers in this loop over a recording store. Produced records are batches of
their own, so "two a segment" means two records. Expectations wait, with generous bounds. Brokers
are counted from 0 as in Kafka's tests; node ids here begin with 1.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import tidelog
from support.clusters import image_of, until
from support.wire_client import WireClient
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import (
    FetchRequest,
    ListOffsetsRequest,
    ProduceRequest,
)
from tidelog_protocol.records import Record, build_batch, iter_batches, iter_records
from tier import admin
from tier.recording_store import COPY, DELETE, FETCH, HISTORIES, INDEX, History, RecordingStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from tidelog_storage.remote.api import RemoteSegment

# As Kafka's tests have them, but that everything is looked at sooner.
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "tier.recording_store.RecordingStore",
    "remote.log.manager.task.interval.ms": "200",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
    "log.cleaner.enable": "false",
    "broker.heartbeat.interval.ms": "300",
}
EARLIEST, LATEST, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -4, -5
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_FETCH_BYTES = 1 << 20
_NAMES = itertools.count()


class Told(NamedTuple):
    """A record as consumers see it."""

    offset: int
    key: bytes | None
    value: bytes | None


def kv(*numbers: int) -> list[tuple[bytes, bytes]]:
    """The records k0 v0, k1 v1 …"""
    return [(b"k%d" % number, b"v%d" % number) for number in numbers]


class TieredCluster:
    """Brokers over one remote store; used by `async with`."""

    def __init__(
        self,
        store: dict[str, str],
        *,
        brokers: int = 1,
        settings: dict[str, str] | None = None,
        data_dir: Any = None,
    ) -> None:
        """`store`: `inner` and the properties of the store itself."""
        name = f"history-{next(_NAMES)}"
        self.history = HISTORIES[name] = History()
        self._store = {**store, "history": name, "node.id": "0"}
        given = {f"rsm.config.{key}": value for key, value in {**store, "history": name}.items()}
        self.cluster = tidelog.Cluster(
            {**SETTINGS, **given, **(settings or {})}, brokers=brokers, data_dir=data_dir
        )
        self._clock_ms = int(time.time() * 1000) - 60_000

    async def __aenter__(self) -> Self:
        await self.cluster.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.cluster.stop()

    # ---- brokers -----------------------------------------------------------------------------

    def node(self, broker: int) -> Any:
        return self.cluster.brokers[broker]

    def server(self, broker: int = -1) -> str:
        """The address of one broker, or of any that runs."""
        if broker >= 0:
            return str(self.node(broker).bootstrap_server)
        return self.cluster.bootstrap_servers.split(",")[0]

    async def stop(self, broker: int) -> None:
        await self.node(broker).stop()

    async def start(self, broker: int) -> None:
        await self.node(broker).start()

    def partition(self, broker: int, topic: str, index: int) -> Any:
        """A replica as its broker has it, None where it has none."""
        found = self.node(broker).server.replicas.partition(topic, index)
        return None if isinstance(found, ErrorCode) else found

    def replicas(self, topic: str, index: int) -> list[Any]:
        """On all brokers that run and have one."""
        running = [number for number, node in enumerate(self.cluster.brokers) if node.is_running]
        found = [self.partition(number, topic, index) for number in running]
        return [one for one in found if one is not None]

    def leader(self, topic: str, index: int) -> int:
        """The broker that leads and knows it; -1 for none."""
        for number, node in enumerate(self.cluster.brokers):
            if node.is_running:
                partition = self.partition(number, topic, index)
                if partition is not None and partition.is_leader:
                    return number
        return -1

    async def expect_leader(
        self, topic: str, index: int, broker: int, *, elect: bool = False
    ) -> None:
        """The broker leads; with `elect` after a preferred election."""
        if elect:
            await admin.elect_preferred(self.server(), topic, index)
        await until(lambda: self.leader(topic, index) == broker, f"{broker} leads {topic}-{index}")

    # ---- topics ------------------------------------------------------------------------------

    async def create(
        self,
        topic: str,
        assignments: Sequence[Sequence[int]] = ((0,),),
        *,
        batches_per_segment: int = 1,
        tiered: bool = True,
        configs: dict[str, str] | None = None,
    ) -> None:
        """As Kafka's TieredStorageTestUtils makes topics."""
        settings = {
            "remote.storage.enable": "true" if tiered else "false",
            "index.interval.bytes": "1",
            "segment.index.bytes": str(12 * batches_per_segment),
        }
        if tiered:
            settings["local.retention.bytes"] = "1"
        await admin.create_topic(
            self.server(),
            topic,
            {i: [one + 1 for one in brokers] for i, brokers in enumerate(assignments)},
            settings | (configs or {}),
        )
        for index in range(len(assignments)):
            await until(lambda at=index: self.leader(topic, at) >= 0, f"{topic}-{index} is led")

    async def alter(self, topic: str, configs: dict[str, str]) -> None:
        """Set configurations; return when all brokers have them."""
        assert await admin.alter_configs(self.server(), topic, configs) == ErrorCode.NONE
        await until(
            lambda: all(
                str(getattr(replica.log.config, key.replace(".", "_"))).lower() == value
                for index in range(len(self.replica_counts(topic)))
                for replica in self.replicas(topic, index)
                for key, value in configs.items()
            ),
            f"{topic} is configured",
        )

    def replica_counts(self, topic: str) -> list[int]:
        """How many replicas each partition has."""
        node = next(node for node in self.cluster.brokers if node.is_running)
        return [len(state.replicas) for state in image_of(node).topics[topic].partitions]

    async def reassign(self, topic: str, index: int, brokers: Sequence[int]) -> None:
        """Move a partition to these brokers; return when it has."""
        wanted = tuple(broker + 1 for broker in brokers)
        await admin.reassign(self.server(), topic, index, list(wanted))

        def moved() -> bool:
            node = next(node for node in self.cluster.brokers if node.is_running)
            state = image_of(node).partition(topic, index)
            return state.replicas == wanted and not state.adding_replicas

        await until(moved, f"{topic}-{index} moves to {brokers}")

    async def expect_in_sync(self, topic: str, index: int, brokers: set[int]) -> None:
        """These and no others are in sync."""

        def in_sync() -> set[int]:
            node = next(node for node in self.cluster.brokers if node.is_running)
            return {one - 1 for one in image_of(node).partition(topic, index).isr}

        await until(lambda: in_sync() == brokers, f"{topic}-{index}: in sync {brokers}")

    async def delete_records(self, topic: str, index: int, offset: int) -> None:
        """Delete what is below the offset, everywhere."""
        server = self.server(self.leader(topic, index))
        assert await admin.delete_records(server, topic, index, offset) == offset

    def now_ms(self) -> int:
        """A time that the next records may have."""
        return self._clock_ms

    def set_now_ms(self, now_ms: int) -> None:
        """Give the next records times from there on."""
        self._clock_ms = now_ms

    def topic_id(self, topic: str) -> bytes:
        node = next(node for node in self.cluster.brokers if node.is_running)
        return bytes(image_of(node).topics[topic].topic_id)

    async def produce(
        self,
        topic: str,
        index: int,
        records: Sequence[tuple[bytes, bytes]],
        *,
        timestamps: Sequence[int] | None = None,
        acks: int = -1,
    ) -> int:
        """Each record as a batch of its own, to the leader; the first one's offset."""
        first = -1
        async with await WireClient.connect(self.server(self.leader(topic, index))) as client:
            for number, (key, value) in enumerate(records):
                self._clock_ms += 1
                timestamp = self._clock_ms if timestamps is None else timestamps[number]
                batch = build_batch([Record(0, timestamp, key, value)])
                data = ProduceRequest.TopicProduceData(
                    name=topic,
                    partition_data=[
                        ProduceRequest.TopicProduceData.PartitionProduceData(
                            index=index, records=batch
                        )
                    ],
                )
                request = ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=[data])
                answer = (await client.ask(request, 9)).responses[0].partition_responses[0]
                assert answer.error_code == 0, ErrorCode(answer.error_code).name
                first = answer.base_offset if first < 0 else first
        return first

    # ---- expectations ------------------------------------------------------------------------

    def finished(self, topic: str, index: int) -> list[RemoteSegment]:
        """Segments that were copied, in the order they were."""
        return [call.segment for call in self.history.calls(COPY, topic, index)]

    async def expect_offloaded(
        self, broker: int, topic: str, index: int, base: int, records: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """The broker copied a segment with this base offset, and it holds exactly these records."""

        def copied() -> list[RemoteSegment]:
            return [
                call.segment
                for call in self.history.calls(COPY, topic, index)
                if call.segment.start_offset == base and call.node_id == broker + 1
            ]

        await until(copied, f"{topic}-{index}: broker {broker} offloads {base}")
        told = await asyncio.to_thread(self._remote_records, copied()[-1])
        found = [(one.key, one.value) for one in told]
        assert found == list(records), (found, copied())
        assert told[0].offset == base

    def _remote_records(self, segment: RemoteSegment) -> list[Told]:
        """What the store has of a segment, without its history hearing of it."""
        store = RecordingStore()
        store.configure(self._store)
        try:
            with store.inner.fetch_segment(segment, 0) as stream:
                data = stream.read()
        finally:
            store.close()
        return records_of(data)

    async def expect_earliest_local(self, topic: str, index: int, offset: int) -> None:
        """On every live replica the local log begins exactly here."""

        def starts() -> set[int]:
            return {one.log.segments.first.base_offset for one in self.replicas(topic, index)}

        await until(lambda: starts() == {offset}, f"{topic}-{index}: earliest local {offset}")

    async def expect_deletions(self, broker: int, topic: str, index: int, count: int) -> None:
        """That broker has deleted so many remote segments by now, and not more."""

        def deleted() -> int:
            calls = self.history.calls(DELETE, topic, index)
            return len({call.segment.segment_id for call in calls if call.node_id == broker + 1})

        await until(lambda: deleted() >= count, f"{topic}-{index}: {count} deletions")
        assert deleted() == count

    async def expect_first_epoch(
        self, broker: int, topic: str, index: int, epoch: int, start: int
    ) -> None:
        """The first entry of the epoch cache."""

        def first() -> tuple[int, int]:
            return tuple(self.partition(broker, topic, index).log.epochs.entries[0])

        await until(lambda: first() == (epoch, start), f"{topic}-{index}: epoch {epoch}@{start}")

    async def expect_empty_store(self, topic: str, topic_id: bytes, indices: Sequence[int]) -> None:
        """Nothing of these partitions is left in the store."""
        gone: dict[int, bool] = dict.fromkeys(indices, False)

        def check() -> bool:
            for index in indices:
                copied = {s.segment_id for s in self.finished(topic, index)}
                deleted = {
                    call.segment.segment_id for call in self.history.calls(DELETE, topic, index)
                }
                gone[index] = copied <= deleted
            return all(gone.values())

        await until(check, f"nothing of {topic} is remote: {gone}")
        del topic_id

    # ---- reading -----------------------------------------------------------------------------

    def fetch_counts(self, broker: int, topic: str, index: int) -> tuple[int, int]:
        """How often that broker has asked for a segment, and for an index, so far."""
        return tuple(
            sum(call.node_id == broker + 1 for call in self.history.calls(what, topic, index))
            for what in (FETCH, INDEX)
        )

    async def expect_goes_on(self, broker: int, topic: str, index: int, *numbers: int) -> None:
        """The broker leads a log of one record a segment. It takes these, after which all but the
        last are remote alone, and serves them all, asking the store once for each segment."""
        await self.produce(topic, index, kv(*numbers))
        last = numbers[-1]
        await self.expect_earliest_local(topic, index, last)
        before = self.fetch_counts(broker, topic, index)[0]
        await self.consume(topic, index, 0, last + 1, last)
        assert self.fetch_counts(broker, topic, index)[0] == before + last

    async def fetch(
        self,
        topic: str,
        index: int,
        offset: int,
        *,
        broker: int = -1,
        client: WireClient | None = None,
        isolation: int = READ_UNCOMMITTED,
        max_bytes: int = _FETCH_BYTES,
        max_wait_ms: int = 500,
    ) -> Any:
        """One Fetch as a consumer; the partition's answer."""
        topic_data = FetchRequest.FetchTopic(
            topic=topic,
            topic_id=self.topic_id(topic),
            partitions=[
                FetchRequest.FetchTopic.FetchPartition(
                    partition=index, fetch_offset=offset, partition_max_bytes=max_bytes
                )
            ],
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=isolation,
            topics=[topic_data],
        )
        if client is None:
            server = self.server(self.leader(topic, index) if broker < 0 else broker)
            answer = await admin.ask(server, request, 16)
        else:
            answer = await client.ask(request, 16)
        assert answer.error_code == 0
        return answer.responses[0].partitions[0]

    async def consume(
        self,
        topic: str,
        index: int,
        start: int,
        total: int,
        remote: int,
        *,
        isolation: int = READ_UNCOMMITTED,
    ) -> list[Told]:
        """Read `total` records from `start`, of which the first `remote` are those of the tier.

        OFFSET_OUT_OF_RANGE resets to the log start, as a consumer with `earliest` does.
        """
        leader = self.leader(topic, index)
        remote_only = await self._records_in_tier(topic, index, start)
        found: list[Told] = []
        offset = start
        async with asyncio.timeout(250):
            while len(found) < total:
                data = await self.fetch(topic, index, offset, isolation=isolation)
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    log = self.partition(leader, topic, index).log
                    assert offset < log.log_start_offset
                    offset = log.log_start_offset
                    continue
                assert data.error_code in (0, ErrorCode.UNKNOWN_SERVER_ERROR)
                told = [one for one in records_of(data.records or b"") if one.offset >= offset]
                found += told
                if told:
                    offset = told[-1].offset + 1
        assert len(found) == total
        assert [one.offset for one in found] == sorted({one.offset for one in found})
        if remote_only or remote:
            assert len(remote_only) == remote
            assert found[:remote] == remote_only
        return found

    async def _records_in_tier(self, topic: str, index: int, start: int) -> list[Told]:
        """Records of the store at or after `start` (its live segments), each once, in order."""
        deleted = {c.segment.segment_id for c in self.history.calls(DELETE, topic, index)}
        found: dict[int, Told] = {}
        for segment in self.finished(topic, index):
            if segment.segment_id not in deleted and segment.end_offset >= start:
                for told in await asyncio.to_thread(self._remote_records, segment):
                    if told.offset >= start:
                        found[told.offset] = told
        return [found[offset] for offset in sorted(found)]

    async def list_offsets(
        self,
        topic: str,
        index: int,
        timestamp: int,
        *,
        version: int = 9,
        isolation: int = READ_UNCOMMITTED,
    ) -> tuple[int, int]:
        """(epoch, offset), as Kafka's tests write it."""
        asked = ListOffsetsRequest.ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            ],
        )
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=[asked], timeout_ms=20_000
        )
        answer = await admin.ask(self.server(self.leader(topic, index)), request, version)
        (found,) = answer.topics[0].partitions
        assert found.error_code == 0, ErrorCode(found.error_code).name
        return (found.leader_epoch, found.offset)


def records_of(data: Any) -> list[Told]:
    """The data records of whole batches."""
    return [
        Told(record.offset, record.key, record.value)
        for position, header in iter_batches(data)
        if not header.is_control
        for record in iter_records(data, position)
    ]
