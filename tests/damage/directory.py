"""The data directories that are damaged: of one broker, stopped in order or killed."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

from support.txn_client import RETRIABLE, Nodes, TxnProducer
from tidelog.cluster.formatting import bootstrap_checkpoint
from tidelog.config.broker import BrokerConfig
from tidelog.embedded.cluster_settings import broker_properties
from tidelog.embedded.tiered import with_tier
from tidelog.runtime import system_runtime
from tidelog.server import BrokerServer
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.group_offsets import OffsetCommitRequest

if TYPE_CHECKING:
    from pathlib import Path

STOPS = ("clean", "kill")
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "0",
    "log.cleaner.enable": "false",
}
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
SEGMENTS = {"internal.segment.bytes": "1200", "index.interval.bytes": "200", "retention.ms": "-1"}
TIERED = {**SEGMENTS, "remote.storage.enable": "true", "local.retention.bytes": "1"}
TOPICS = {"t": SEGMENTS, "u": SEGMENTS, "r": TIERED}
BATCHES = 30
GROUP = "group"


class Truth(NamedTuple):
    """What was acknowledged: values by topic, and the group's offset."""

    values: dict[str, list[bytes]]
    offset: int


def server_on(folder: Path, tier: Path) -> BrokerServer:
    """A broker on a directory, its remote tier in another."""
    settings = with_tier({**SETTINGS, "rsm.config.dir": str(tier)}, None, 1)
    settings |= SETTINGS | SNAPSHOTS  # over the shorter defaults of a tier
    properties = broker_properties(settings, port=0, data_dir=str(folder))
    return BrokerServer(BrokerConfig.from_properties(properties), system_runtime(durable=False))


def flip(path: Path) -> None:
    """Flip a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


async def build(folder: Path) -> Truth:
    """Write `folder/clean` and `folder/kill`, each with `data` and `tier`."""
    (data := folder / "clean" / "data").mkdir(parents=True)
    (data / "bootstrap.checkpoint").write_bytes(bootstrap_checkpoint(0))  # as `tidelog format`
    server = server_on(data, folder / "clean" / "tier")
    await server.start()
    async with Nodes(server.bootstrap_servers) as nodes:
        truth = await write(nodes)
    await _settle(server)
    shutil.copytree(folder / "clean", folder / "kill")
    await server.stop()
    for stop in STOPS:  # as the cleaner; only logs that are not in it are looked at for gaps
        cleaned = "0\n1\n__consumer_offsets 0 0\n"
        (folder / stop / "data" / "cleaner-offset-checkpoint").write_text(cleaned)
    return truth


async def write(nodes: Nodes, replicas: int = 1) -> Truth:
    """All topics, each with so many replicas, with transactions that end in both ways."""
    for name, config in TOPICS.items():
        await create(nodes, name, config, replicas)
    producer = TxnProducer(nodes, "producer")
    assert await producer.init() is ErrorCode.NONE
    values: dict[str, list[bytes]] = {}
    for topic in TOPICS:
        values[topic] = [f"{topic}{number:02}".encode() * 30 for number in range(BATCHES)]
        for number, value in enumerate(values[topic]):
            if number in (5, 15):
                assert await producer.send(topic, b"aborted" * 10) is ErrorCode.NONE
                assert await producer.end(commit=False) is ErrorCode.NONE
            assert await producer.send(topic, value) is ErrorCode.NONE
            if number % 5 == 4:
                assert await producer.end(commit=True) is ErrorCode.NONE
    await _commit(nodes, 7)
    return Truth(values, 7)


async def create(nodes: Nodes, name: str, config: dict[str, str], replicas: int = 1) -> None:
    Config = CreateTopicsRequest.CreatableTopicConfig  # noqa: N806
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=replicas,
        configs=[Config(name=key, value=value) for key, value in config.items()],
    )
    made = await nodes.any(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    assert made.topics[0].error_code == 0, made


async def _commit(nodes: Nodes, offset: int) -> None:
    Topic = OffsetCommitRequest.OffsetCommitRequestTopic  # noqa: N806
    asked = OffsetCommitRequest(
        group_id=GROUP,
        topics=[
            Topic(
                name="t",
                partitions=[
                    Topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
                ],
            )
        ],
    )
    error = ErrorCode.NOT_COORDINATOR
    while error in RETRIABLE:
        answer = await nodes.ask(await nodes.coordinator(GROUP, 0), asked, 7)
        error = ErrorCode(answer.topics[0].partitions[0].error_code)
        await asyncio.sleep(0.01)
    assert error is ErrorCode.NONE, answer


async def _settle(server: Any) -> None:
    """All that is sealed is copied and durable, and the checkpoints are written."""
    from support.clusters import until

    tiered = server.replicas.partition("r", 0).log
    await until(lambda: len(tiered.segments) == 1, "the remote tier has all sealed segments")
    snapshots = server.metadata._snapshotter
    await until(lambda: snapshots.task is None, "the metadata's snapshot is written")
    settle_disk(server)


def settle_disk(server: Any) -> None:
    """All is durable, and the checkpoints say so."""
    logs = server.replicas.logs
    for log in logs.loaded():
        log.flush()
    logs.upkeep.prepare_checkpoints()()
