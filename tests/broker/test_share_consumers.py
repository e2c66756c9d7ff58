"""Share consumers over sockets, with their state in `__share_group_state`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tidelog
from support.clusters import image_of, run, until
from support.data_path import batch
from support.share_path import acquired
from support.wire_client import WireClient
from tidelog.control import broker_state
from tidelog.control.state import ReadState, ShareState
from tidelog.coordinators.share.values import Initialization, Outcome
from tidelog_protocol.messages.data import ProduceRequest
from tidelog_protocol.messages.share_consumers import (
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {"share.coordinator.state.topic.num.partitions": "1"}


def produce(count: int) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    partition = data.PartitionProduceData(index=0, records=batch(count))
    topic = data(name="t", partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[topic])


def fetch(topic_id: bytes, member: str, epoch: int, wait_ms: int = 0) -> ShareFetchRequest:
    topic = ShareFetchRequest.FetchTopic(
        topic_id=topic_id, partitions=[ShareFetchRequest.FetchPartition(partition_index=0)]
    )
    return ShareFetchRequest(
        group_id="g",
        member_id=member,
        share_session_epoch=epoch,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=100,
        batch_size=100,
        topics=[topic],
    )


def acknowledge(topic_id: bytes, member: str, epoch: int, *ack: Any) -> ShareAcknowledgeRequest:
    first, last, kinds = ack
    kind = ShareAcknowledgeRequest.AcknowledgementBatch
    partition = ShareAcknowledgeRequest.AcknowledgePartition(
        partition_index=0,
        acknowledgement_batches=[
            kind(first_offset=first, last_offset=last, acknowledge_types=kinds)
        ],
    )
    topic = ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=topic_id, partitions=[partition])
    return ShareAcknowledgeRequest(
        group_id="g", member_id=member, share_session_epoch=epoch, topics=[topic]
    )


async def open_and_fetch(client: WireClient, topic_id: bytes, member: str) -> Any:
    """Open a session; the answer comes when the state is loaded, and there are records."""
    return acquired(await client.ask(fetch(topic_id, member, 0, 60_000), 2))


def test_records_are_shared_and_the_state_outlives_the_broker(tmp_path: Path) -> None:
    async def test() -> None:
        async with tidelog.Cluster(SETTINGS, data_dir=tmp_path) as cluster:
            await cluster.create_topic("t")
            broker = cluster.brokers[0]
            await until(lambda: "t" in image_of(broker).topics)
            topic_id = image_of(broker).topics["t"].topic_id
            states = broker.server.parts.share_states
            begun = await states.initialize("g", [Initialization(topic_id, 0, 0, 0)])
            assert begun == [Outcome()]
            async with await WireClient.connect(cluster.bootstrap_servers) as a:
                await a.ask(produce(3), 12)
                assert await open_and_fetch(a, topic_id, "a") == [(0, 2, 1)]
                response = await a.ask(acknowledge(topic_id, "a", 1, 0, 1, [1, 2]), 2)
                assert response.responses[0].partitions[0].error_code == 0
                async with await WireClient.connect(cluster.bootstrap_servers) as b:
                    assert await open_and_fetch(b, topic_id, "b") == [(1, 1, 2)]
                    part = broker_state.read(broker.server, ReadState())
                    # a holds the third record, b the second one.
                    assert part.shares == (ShareState("g", "t", 0, 1, 3, 2, 0, 2),)
            async with await WireClient.connect(cluster.bootstrap_servers) as c:
                # What a and b held is released with their connections, soon.
                got = await open_and_fetch(c, topic_id, "c")
                epoch = 1
                while len(got) < 2:
                    got += acquired(await c.ask(fetch(topic_id, "c", epoch, 60_000), 2))
                    epoch += 1
                assert sorted(got) == [(1, 1, 3), (2, 2, 2)]
                response = await c.ask(acknowledge(topic_id, "c", epoch, 1, 1, [1]), 2)
                assert response.responses[0].partitions[0].error_code == 0
            await broker.stop()
            await broker.start()
            async with await WireClient.connect(cluster.bootstrap_servers) as d:
                await d.ask(produce(1), 12)
                assert (await open_and_fetch(d, topic_id, "d"))[0] == (2, 2, 3)

    run(test)
