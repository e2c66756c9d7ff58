"""Produce and Fetch over real sockets, against a whole broker in this loop."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import tidelog
from support.data_path import batch, bytes_of, data_of, fetch_request
from support.wire_client import WireClient
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_protocol.messages.data import FetchRequest, ListOffsetsRequest, ProduceRequest
from tidelog_protocol.messages.txns import InitProducerIdRequest
from tidelog_protocol.records import iter_batches

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NEVER_MS = 60_000  # a wait that only an event may end; the client gives up before


def produce_request(*values: bytes, acks: int = -1, topic: str = "foo") -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    return ProduceRequest(
        acks=acks,
        timeout_ms=60_000,
        topic_data=[
            data(
                name=topic,
                partition_data=[
                    data.PartitionProduceData(index=index, records=bytes(batch(1, value)))
                ],
            )
            for index, value in enumerate(values)
        ],
    )


@asynccontextmanager
async def broker() -> AsyncIterator[str]:
    """A broker with topic foo of two partitions."""
    async with tidelog.Cluster() as cluster:
        async with await WireClient.connect(cluster.bootstrap_servers) as client:
            topic = CreateTopicsRequest.CreatableTopic(
                name="foo", num_partitions=2, replication_factor=1
            )
            response = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5)
            assert response.topics[0].error_code == 0
        yield cluster.bootstrap_servers


def test_what_is_produced_is_fetched() -> None:
    async def main() -> None:
        async with broker() as address, await WireClient.connect(address) as client:
            values = [b"a" * 10, b"b" * 300_000]  # one small, one larger than a socket buffer
            response = await client.ask(produce_request(*values), 9)
            answers = [topic.partition_responses[0] for topic in response.responses]
            assert [(a.error_code, a.base_offset) for a in answers] == [(0, 0), (0, 0)]
            fetched = await client.ask(fetch_request(("foo", 0, 0), ("foo", 1, 0)), 12)
            for index, value in enumerate(values):
                assert value in bytes_of(data_of(fetched, index))
                assert data_of(fetched, index).high_watermark == 1

    asyncio.run(main())


def test_a_parked_fetch_is_woken_by_another_connections_produce() -> None:
    async def main() -> None:
        async with (
            broker() as address,
            await WireClient.connect(address) as consumer,
            await WireClient.connect(address) as producer,
        ):
            await consumer.ask(MetadataRequest(topics=None), 9)
            consumer.send(fetch_request(("foo", 0, 0), max_wait_ms=NEVER_MS), 12)
            for number in range(20):
                response = await producer.ask(produce_request(b"value"), 9)
                assert response.responses[0].partition_responses[0].base_offset == number
                fetched = await consumer.receive()
                batches = list(iter_batches(bytes_of(data_of(fetched))))
                assert [header.base_offset for _, header in batches] == [number]
                consumer.send(fetch_request(("foo", 0, number + 1), max_wait_ms=NEVER_MS), 12)

    asyncio.run(main())


def test_a_parked_fetch_ends_when_another_request_comes_on_its_connection() -> None:
    async def main() -> None:
        async with broker() as address, await WireClient.connect(address) as client:
            client.send(fetch_request(("foo", 0, 0), max_wait_ms=NEVER_MS), 12)
            topic = ListOffsetsRequest.ListOffsetsTopic
            asked = topic.ListOffsetsPartition(partition_index=0, timestamp=-1)
            client.send(
                ListOffsetsRequest(replica_id=-1, topics=[topic(name="foo", partitions=[asked])]), 6
            )
            fetched = await client.receive()
            assert data_of(fetched).error_code == 0
            offsets = await client.receive()
            assert offsets.topics[0].partitions[0].offset == 0

    asyncio.run(main())


def test_pipelined_produces_keep_their_order_and_acks_0_is_silent() -> None:
    async def main() -> None:
        async with broker() as address, await WireClient.connect(address) as client:
            for number in range(50):
                if number % 5 == 4:
                    request = produce_request(b"silent", acks=0)
                    client.send(request, 9)
                    client._sent.pop()  # nobody answers it
                else:
                    client.send(produce_request(b"told"), 9)
            expected = [number for number in range(50) if number % 5 != 4]
            answers = [await client.receive() for _ in expected]
            bases = [a.responses[0].partition_responses[0].base_offset for a in answers]
            assert bases == expected

    asyncio.run(main())


def test_acks_0_closes_the_connection_when_it_fails() -> None:
    async def main() -> None:
        async with broker() as address, await WireClient.connect(address) as client:
            client.send(produce_request(b"x", acks=0, topic="nope"), 9)
            assert await client.closed()

    asyncio.run(main())


def test_a_session_lives_across_connections() -> None:
    async def main() -> None:
        async with broker() as address:
            async with await WireClient.connect(address) as client:
                opened = await client.ask(fetch_request(("foo", 0, 0), session_epoch=0), 12)
                session = {"session_id": opened.session_id}
                assert opened.session_id
            async with await WireClient.connect(address) as client:
                await client.ask(produce_request(b"x"), 9)
                request = fetch_request(**session, session_epoch=1, max_wait_ms=NEVER_MS)
                assert data_of(await client.ask(request, 12)).high_watermark == 1
                stale: FetchRequest = fetch_request(**session, session_epoch=1)
                error = (await client.ask(stale, 12)).error_code
                assert error == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    asyncio.run(main())


def test_producer_ids_are_not_repeated() -> None:
    async def main() -> None:
        async with broker() as address, await WireClient.connect(address) as client:
            request = InitProducerIdRequest(transactional_id=None)
            ids = [(await client.ask(request, 4)).producer_id for _ in range(3)]
            assert len(set(ids)) == 3

    asyncio.run(main())


def test_a_broker_stops_with_requests_parked() -> None:
    async def main() -> None:
        async with broker() as address:
            client = await WireClient.connect(address)
            client.send(fetch_request(("foo", 0, 0), max_wait_ms=NEVER_MS), 12)
            await asyncio.sleep(0)
        await client.close()

    asyncio.run(main())
