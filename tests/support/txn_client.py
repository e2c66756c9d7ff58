"""A transactional producer of raw requests, which finds leaders and coordinators as clients do."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from support.wire_client import WireClient
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_protocol.messages.data import FetchRequest, ListOffsetsRequest, ProduceRequest
from tidelog_protocol.messages.group_offsets import OffsetFetchRequest
from tidelog_protocol.messages.groups import FindCoordinatorRequest
from tidelog_protocol.messages.txns import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from tidelog_protocol.records import Record, build_batch, iter_batches, iter_records

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

WAIT_S = 60.0
RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)


class Nodes:
    """Connections to the brokers of a cluster; who leads what is asked each time."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap = bootstrap_servers.split(",")
        self._open: dict[str, WireClient] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._open.values():
            client.writer.close()

    async def ask(self, address: str, message: Any, version: int) -> Any:
        """Ask one broker; a connection that broke is made again by the next call."""
        client = self._open.get(address)
        if client is None:
            client = self._open[address] = await WireClient.connect(address)
        try:
            return await client.ask(message, version)
        except (OSError, asyncio.IncompleteReadError, EOFError):
            self._open.pop(address).writer.close()
            raise

    async def any(self, message: Any, version: int) -> Any:
        """Ask the first broker that answers."""
        for address in self.bootstrap:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, EOFError):
                return await self.ask(address, message, version)
        raise OSError("no broker answers")

    async def create(self, name: str, partitions: int = 1, replicas: int = 1) -> None:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas
        )
        made = await self.any(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
        assert made.topics[0].error_code == 0, made

    async def leader(self, topic: str, index: int) -> str:
        asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        metadata = await self.any(asked, 9)
        nodes = {each.node_id: f"{each.host}:{each.port}" for each in metadata.brokers}
        for each in metadata.topics[0].partitions:
            if each.partition_index == index and each.leader_id in nodes:
                return nodes[each.leader_id]
        raise OSError(f"{topic}-{index} has no leader")

    async def coordinator(self, key: str, key_type: int) -> str:
        asked = FindCoordinatorRequest(key=key, key_type=key_type)
        found = await self.any(asked, 3)
        if found.error_code:
            raise OSError(ErrorCode(found.error_code).name)
        return f"{found.host}:{found.port}"

    async def fetched(
        self, topic: str, index: int = 0, *, committed: bool = True, offset: int = 0
    ) -> tuple[list[bytes], Any]:
        """Values that a consumer of this isolation sees, and the answer's partition."""
        partition = FetchRequest.FetchTopic.FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        asked = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=int(committed),
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
        )
        answer = await self.ask(await self.leader(topic, index), asked, 11)
        data = answer.responses[0].partitions[0]
        assert data.error_code == 0, data
        aborted = {}
        for each in data.aborted_transactions or ():
            aborted.setdefault(each.producer_id, []).append(each.first_offset)
        records = bytes(data.records or b"")
        values = []
        skipping: set[int] = set()
        for position, header in iter_batches(records):
            producer = header.producer_id
            if header.is_control:
                skipping.discard(producer)
                continue
            starts = aborted.get(producer, [])
            if starts and header.base_offset >= starts[0]:
                starts.pop(0)
                skipping.add(producer)
            if not (header.is_transactional and producer in skipping and committed):
                values += [bytes(each.value or b"") for each in iter_records(records, position)]
        return values, data

    async def end_offset(self, topic: str, *, committed: bool) -> int:
        partition = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
            partition_index=0, timestamp=-1
        )
        asked = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])],
        )
        answer = await self.ask(await self.leader(topic, 0), asked, 5)
        offset: int = answer.topics[0].partitions[0].offset
        return offset

    async def committed(
        self, group: str, topic: str, *, require_stable: bool = False
    ) -> tuple[int, ErrorCode]:
        """A group's offset of partition 0, and its error."""
        wanted = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
        asked = OffsetFetchRequest(group_id=group, topics=[wanted], require_stable=require_stable)

        async def ask() -> tuple[int, ErrorCode]:
            answer = await self.ask(await self.coordinator(group, 0), asked, 7)
            if answer.error_code:
                return -1, ErrorCode(answer.error_code)
            each = answer.topics[0].partitions[0]
            return each.committed_offset, ErrorCode(each.error_code)

        offset, error = await ask()
        while error in RETRIABLE - {ErrorCode.UNSTABLE_OFFSET_COMMIT}:
            await asyncio.sleep(0.02)
            offset, error = await ask()
        return offset, error


class TxnProducer:
    """One transactional producer. `version` 2 is the protocol of KIP-890, 1 the one before."""

    def __init__(self, nodes: Nodes, transactional_id: str, *, version: int = 2) -> None:
        self.nodes = nodes
        self.transactional_id = transactional_id
        self.is_v2 = version == 2
        self.producer_id = self.epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}
        self._added: set[tuple[str, int]] = set()

    async def _until(self, ask: Callable[[], Any]) -> Any:
        """Ask until the error does not pass by itself; (error, answer)."""
        end = time.monotonic() + WAIT_S
        while True:
            try:
                error, answer = await ask()
            except (OSError, asyncio.IncompleteReadError, EOFError):
                error, answer = ErrorCode.NETWORK_EXCEPTION, None
            if error not in RETRIABLE and error is not ErrorCode.NETWORK_EXCEPTION:
                return error, answer
            assert time.monotonic() < end, error
            await asyncio.sleep(0.02)

    async def _coordinator(self, message: Any, version: int) -> Any:
        address = await self.nodes.coordinator(self.transactional_id, 1)
        return await self.nodes.ask(address, message, version)

    async def init(self, timeout_ms: int = 60_000) -> ErrorCode:
        asked = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
        )

        async def ask() -> Any:
            answer = await self._coordinator(asked, 4)
            return ErrorCode(answer.error_code), answer

        error, answer = await self._until(ask)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        self._added.clear()
        return ErrorCode(error)

    async def add(self, topic: str, index: int = 0) -> ErrorCode:
        """AddPartitionsToTxn of the first protocol."""
        Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic  # noqa: N806
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[Topic(name=topic, partitions=[index])],
        )

        async def ask() -> Any:
            answer = await self._coordinator(asked, 3)
            topics = answer.results_by_topic_v3_and_below
            return ErrorCode(topics[0].results_by_partition[0].partition_error_code), answer

        return ErrorCode((await self._until(ask))[0])

    async def send(
        self, topic: str, *values: bytes, index: int = 0, add: bool = True, ago_ms: int = 0
    ) -> ErrorCode:
        """One batch; the partition is added before if the protocol asks for it.

        Without `add` the coordinator is not told, as if that request had been lost.
        """
        if add and not self.is_v2 and (topic, index) not in self._added:
            error = await self.add(topic, index)
            if error is not ErrorCode.NONE:
                return error
            self._added.add((topic, index))
        sequence = self._sequences.get((topic, index), 0)
        batch = build_batch(
            # Of today: a marker of today behind records of long ago would roll the segment.
            [
                Record(delta, int(time.time() * 1000) - ago_ms, None, value)
                for delta, value in enumerate(values)
            ],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = ProduceRequest.TopicProduceData(
            name=topic,
            partition_data=[
                ProduceRequest.TopicProduceData.PartitionProduceData(index=index, records=batch)
            ],
        )
        asked = ProduceRequest(
            transactional_id=self.transactional_id, acks=-1, timeout_ms=30_000, topic_data=[data]
        )

        async def ask() -> Any:
            address = await self.nodes.leader(topic, index)
            answer = await self.nodes.ask(address, asked, 12 if self.is_v2 else 9)
            return ErrorCode(answer.responses[0].partition_responses[0].error_code), answer

        error = ErrorCode((await self._until(ask))[0])
        if error is ErrorCode.NONE:
            self._sequences[topic, index] = sequence + len(values)
        return error

    async def send_offsets(
        self, group: str, topic: str, offset: int, *, metadata: str = "", generation: int = -1
    ) -> ErrorCode:
        """Commit an offset of partition 0 with the transaction."""
        if not self.is_v2:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )

            async def add() -> Any:
                answer = await self._coordinator(adding, 3)
                return ErrorCode(answer.error_code), answer

            error = (await self._until(add))[0]
            if error is not ErrorCode.NONE:
                return ErrorCode(error)
        Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic  # noqa: N806
        Partition = Topic.TxnOffsetCommitRequestPartition  # noqa: N806
        asked = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=generation,
            topics=[
                Topic(
                    name=topic,
                    partitions=[
                        Partition(
                            partition_index=0,
                            committed_offset=offset,
                            committed_metadata=metadata,
                        )
                    ],
                )
            ],
        )

        async def ask() -> Any:
            address = await self.nodes.coordinator(group, 0)
            answer = await self.nodes.ask(address, asked, 5 if self.is_v2 else 3)
            return ErrorCode(answer.topics[0].partitions[0].error_code), answer

        return ErrorCode((await self._until(ask))[0])

    async def end(self, *, commit: bool) -> ErrorCode:
        """EndTxn; with the second protocol this producer goes on with the next epoch."""
        asked = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )

        async def ask() -> Any:
            answer = await self._coordinator(asked, 5 if self.is_v2 else 3)
            return ErrorCode(answer.error_code), answer

        error, answer = await self._until(ask)
        self._added.clear()
        if self.is_v2 and error is ErrorCode.NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
        return ErrorCode(error)
