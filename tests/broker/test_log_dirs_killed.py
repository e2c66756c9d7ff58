"""A broker is killed in the middle of a move between its log directories, and takes it up again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import tidelog
from support.clusters import run
from support.wire_client import WireClient
from tidelog_protocol.messages.admin import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest
from tidelog_protocol.messages.data import FetchRequest, ProduceRequest
from tidelog_protocol.records import Record, build_batch
from tier.admin import create_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BATCHES, BATCH_BYTES = 40, 50_000
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_BROKER, _SET = 4, 0


async def ask(server: str, request: Any, version: int) -> Any:
    async with await WireClient.connect(server) as client:
        return await client.ask(request, version)


async def limit(server: str, bytes_per_second: int) -> None:
    """So many bytes a second are moved."""
    config = IncrementalAlterConfigsRequest.AlterableConfig(
        name=RATE, config_operation=_SET, value=str(bytes_per_second)
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=_BROKER, resource_name="1", configs=[config]
    )
    answer = await ask(server, IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer


async def produce(server: str, number: int) -> None:
    value = bytes([number % 251]) * BATCH_BYTES
    records = memoryview(bytearray(build_batch([Record(0, 1, None, value)])))
    data = ProduceRequest.TopicProduceData
    topic = data(name="t", partition_data=[data.PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[topic])
    answer = (await ask(server, request, 9)).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (0, number)


async def places(server: str) -> dict[tuple[str, bool], tuple[int, int]]:
    """Size and lag by the directory's name and whether it is a future log."""
    answer = await ask(server, DescribeLogDirsRequest(topics=None), 4)
    return {
        (one.log_dir.rpartition("/")[2], partition.is_future_key): (
            partition.partition_size,
            partition.offset_lag,
        )
        for one in answer.results
        for topic in one.topics
        for partition in topic.partitions
        if topic.name == "t"
    }


async def until_placed(server: str, is_so: Callable[[dict[tuple[str, bool], Any]], bool]) -> None:
    for _ in range(10_000):
        if is_so(await places(server)):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(await places(server))


async def first_bytes(server: str, count: int) -> list[int]:
    """One byte of each record's value."""
    found: list[int] = []
    while len(found) < count:
        asked = FetchRequest.FetchTopic(
            topic="t",
            partitions=[
                FetchRequest.FetchTopic.FetchPartition(
                    partition=0, fetch_offset=len(found), partition_max_bytes=1
                )
            ],
        )
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=[asked])
        data = (await ask(server, request, 11)).responses[0].partitions[0]
        assert data.error_code == 0
        found.append(bytes(data.records)[-2])  # the last is the number of headers
    return found


def test_a_move_resumes_after_a_kill(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {"log.dirs": "one,two", "replica.fetch.max.bytes": 1}
        with tidelog.run(settings, data_dir=tmp_path) as cluster:
            server = cluster.bootstrap_servers
            await create_topic(server, "t", {0: [1]}, {"segment.bytes": "1048576"})
            for number in range(BATCHES):
                await produce(server, number)
            await limit(server, BATCH_BYTES // 5)  # it takes 200 s
            (source,) = [name for name, _ in await places(server)]
            target = "two" if source == "one" else "one"
            one = AlterReplicaLogDirsRequest.AlterReplicaLogDir
            topics = [one.AlterReplicaLogDirTopic(name="t", partitions=[0])]
            request = AlterReplicaLogDirsRequest(
                dirs=[one(path=f"{tmp_path}/{target}", topics=topics)]
            )
            answer = await ask(server, request, 2)
            assert answer.results[0].partitions[0].error_code == 0
            await until_placed(server, lambda now: now[target, True][0] >= BATCH_BYTES)
            cluster.kill()
            cluster.start()
            server = cluster.bootstrap_servers
            halves = await places(server)
            assert halves[source, False][0] >= BATCHES * BATCH_BYTES
            assert 0 < halves[target, True][1] < BATCHES
            await produce(server, BATCHES)
            await limit(server, 2**40)
            await until_placed(server, lambda now: (target, True) not in now)
            assert (await places(server)).keys() == {(target, False)}
            expected = [number % 251 for number in range(BATCHES + 1)]
            assert await first_bytes(server, BATCHES + 1) == expected
            assert sorted(path.name for path in (tmp_path / target).glob("t-0*")) == ["t-0"]

    run(test)
