"""Damage on one broker of three: it is found, and repaired from another in-sync replica."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from support.clusters import STEADY, has_isr_of, run, until
from support.wire_client import WireClient
from tidelog.healing.peer_copies import PeerCopies
from tidelog_protocol.messages.admin import CreateTopicsRequest, DeleteTopicsRequest
from tidelog_protocol.messages.data import FetchRequest, ProduceRequest
from tidelog_protocol.records import Record, build_batch, iter_records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

BATCHES = 30


@asynccontextmanager
async def cluster_on(folder: Path) -> AsyncIterator[Any]:
    async with tidelog.Cluster(STEADY, brokers=3, data_dir=str(folder)) as cluster:
        yield cluster


async def write(cluster: Any, **more: str) -> list[bytes]:
    """Records in some segments of a topic on all brokers."""
    config = {"internal.segment.bytes": "1200", "index.interval.bytes": "200", **more}
    Config = CreateTopicsRequest.CreatableTopicConfig  # noqa: N806
    topic = CreateTopicsRequest.CreatableTopic(
        name="t",
        num_partitions=1,
        replication_factor=3,
        configs=[Config(name=key, value=value) for key, value in config.items()],
    )
    values = [f"{number:02}".encode() * 60 for number in range(BATCHES)]
    async with await WireClient.connect(cluster.bootstrap_servers.split(",")[0]) as client:
        made = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
        assert made.topics[0].error_code == 0, made
    await until(lambda: has_isr_of(cluster, "t", 3), "all in sync")
    leader = leader_of(cluster)
    async with await WireClient.connect(leader.server.bootstrap_servers) as client:
        for number, value in enumerate(values):
            await send(client, value, number)
    await until(lambda: len({held(node).log.high_watermark for node in cluster.brokers}) == 1)
    return values


async def send(client: WireClient, value: bytes, number: int, acks: int = -1) -> None:
    batch = build_batch([Record(0, 1_700_000_000_000 + number, None, value)])
    part = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=batch)
    data = ProduceRequest.TopicProduceData(name="t", partition_data=[part])
    asked = ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[data])
    answer = await client.ask(asked, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def held(node: Any) -> Any:
    return node.server.replicas.partition("t", 0)


def leader_of(cluster: Any) -> Any:
    return next(node for node in cluster.brokers if held(node).is_leader)


async def read(node: Any, end: int = BATCHES) -> list[bytes]:
    """What a consumer gets of one replica (KIP-392)."""
    values: list[bytes] = []
    async with await WireClient.connect(node.server.bootstrap_servers) as client:
        while len(values) < end:
            part = FetchRequest.FetchTopic.FetchPartition(
                partition=0, fetch_offset=len(values), partition_max_bytes=1 << 20
            )
            data = FetchRequest.FetchTopic(topic="t", partitions=[part])
            answer = await client.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[data]), 11)
            data = answer.responses[0].partitions[0]
            assert data.error_code == 0, data
            assert data.records, f"nothing at {len(values)}"
            values += [bytes(each.value) for each in iter_records(bytes(data.records))]
    return values


def logs_of(folder: Path, node_id: int) -> list[Path]:
    return sorted(folder.glob(f"*{node_id}/t-0/*.log"))


def content(folder: Path, node_id: int) -> bytes:
    return b"".join(path.read_bytes() for path in logs_of(folder, node_id))


def flip(path: Path, at: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 0x10
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[list[Path]], None]] = {
    "a bit of the first segment": lambda logs: flip(logs[0]),
    "the first segment is gone": lambda logs: logs[0].unlink(),
    "two segments in the middle are gone": lambda logs: [each.unlink() for each in logs[1:3]],
    "a segment is empty": lambda logs: logs[2].write_bytes(b""),
    "the last segments are gone": lambda logs: [each.unlink() for each in logs[-2:]],
    "a bit of the last segment": lambda logs: flip(logs[-1]),
    "segments are exchanged": lambda logs: exchange(logs[1], logs[2]),
    "all is gone": lambda logs: [each.unlink() for each in logs],
}


def exchange(one: Path, other: Path) -> None:
    aside = one.with_suffix(".aside")
    shutil.move(one, aside)
    shutil.move(other, one)
    shutil.move(aside, other)


@pytest.mark.parametrize("what", DAMAGES)
def test_what_one_of_three_lost_comes_back_from_the_others(tmp_path: Path, what: str) -> None:
    """All stop in order and start again: the damaged one may have led, and may be asked to lead."""

    async def test() -> None:
        async with cluster_on(tmp_path) as cluster:
            values = await write(cluster)
            victim = next(node for node in cluster.brokers if held(node).is_leader).node_id
        DAMAGES[what](logs_of(tmp_path, victim))
        async with cluster_on(tmp_path) as cluster:
            node = cluster.brokers[victim - 1]
            await until(lambda: has_isr_of(cluster, "t", 3), "all in sync")
            await until(lambda: held(node).log.high_watermark == BATCHES, "its high watermark")
            await node.server.healing.healer.scrub_all()
            assert held(node).log.damages == ()
            for each in cluster.brokers:
                assert await read(each) == values
        assert len({content(tmp_path, node_id) for node_id in (1, 2, 3)}) == 1

    run(test)


def test_a_read_that_meets_a_damage_has_it_repaired(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster_on(tmp_path) as cluster:
            values = await write(cluster)
            node = next(node for node in cluster.brokers if held(node).is_leader)
            path = Path(list(held(node).log.segments)[1].path(".log"))
            before = content(tmp_path, node.node_id)
            flip(path, 9)  # the length of the first batch
            with pytest.raises(AssertionError, match="error_code=2"):
                await read(node)
            await until(lambda: content(tmp_path, node.node_id) == before, "a repair")
            await asyncio.sleep(0.1)
            assert await read(node) == values

    run(test)


def test_a_start_that_misses_segments_has_them_fetched_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster_on(tmp_path) as cluster:
            values = await write(cluster)
            victim = leader_of(cluster).node_id
        whole = content(tmp_path, victim)
        for path in logs_of(tmp_path, victim)[2:4]:
            path.unlink()
        async with cluster_on(tmp_path) as cluster:
            await until(lambda: content(tmp_path, victim) == whole, "a repair without a scrub")
            await until(lambda: held(cluster.brokers[victim - 1]).log.damages == ())
            await until(lambda: held(cluster.brokers[victim - 1]).log.high_watermark == BATCHES)
            assert await read(cluster.brokers[victim - 1]) == values

    run(test)


def test_what_is_appended_during_a_repair_of_the_last_segment_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader's active segment is damaged, and grows while a copy is fetched."""
    fetch = PeerCopies.fetch

    async def test() -> None:
        async with cluster_on(tmp_path) as cluster:
            values = await write(cluster)
            node = leader_of(cluster)
            async with await WireClient.connect(node.server.bootstrap_servers) as client:
                values.append(b"begins a segment" * 6)
                await send(client, values[-1], BATCHES)
                base_offset = held(node).log.segments.active.base_offset
                flip(Path(held(node).log.segments.active.path(".log")))

                async def grows_meanwhile(*args: Any) -> memoryview:
                    if len(values) < BATCHES + 4:
                        values.append(b"late")
                        await send(client, b"late", len(values), acks=1)
                    return await fetch(*args)

                monkeypatch.setattr(PeerCopies, "fetch", grows_meanwhile)
                await node.server.healing.healer.scrub(held(node))
            assert base_offset in held(node).log.segments.base_offsets
            assert held(node).log.damages == ()
            assert len(values) > BATCHES + 1
            await until(lambda: held(node).log.high_watermark == len(values))
            assert await read(node, len(values)) == values

    run(test)


@pytest.mark.parametrize("is_alone", [False, True])
def test_records_outweigh_a_damaged_epoch_checkpoint(tmp_path: Path, is_alone: bool) -> None:
    """Its batches are whole, and another replica has the same, or several say the same."""

    async def test() -> None:
        async with cluster_on(tmp_path) as cluster:
            values = await write(cluster)
            node = leader_of(cluster)
            log, healer = held(node).log, node.server.healing.healer
            right = log.epochs.entries
            log.epochs.replace([*right, (right[-1].epoch + 4, 8), (right[-1].epoch + 5, 21)])
            if is_alone:
                healer._peers = None
            await healer.scrub(held(node))
            assert log.damages == ()
            assert log.epochs.entries == right
            assert await read(node) == values

    run(test)


def test_a_topic_that_goes_before_its_turn_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A pass begins with all partitions, and takes a while."""

    async def test() -> None:
        async with tidelog.Cluster(STEADY, data_dir=str(tmp_path)) as cluster:
            (node,) = cluster.brokers
            async with await WireClient.connect(cluster.bootstrap_servers) as client:
                new = CreateTopicsRequest.CreatableTopic(
                    name="t", num_partitions=1, replication_factor=1
                )
                await client.ask(CreateTopicsRequest(topics=[new], timeout_ms=60_000), 7)
                await until(lambda: held(node) is not None)
                partition = held(node)
                await send(client, b"a record", 0)
                topic = DeleteTopicsRequest.DeleteTopicState(name="t")
                await client.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=60_000), 6)
            logs = node.server.replicas.logs
            await until(lambda: logs.get(partition.topic_partition) is None)
            await node.server.healing.healer.scrub_guarded(partition)

    run(test)
    assert "scrubbing" not in caplog.text


def rot_epochs(path: Path, batches: int) -> None:
    """Of the last two of so many batches, which are all of the same size."""
    data = bytearray(path.read_bytes())
    for number in (1, 2):
        data[-number * len(data) // batches + 12] = 1
    path.write_bytes(data)


def test_two_batches_whose_epochs_rotted_do_not_outweigh_the_epochs(tmp_path: Path) -> None:
    """No leader had that epoch: without a copy the batches count as damaged, and no others do."""

    async def test() -> None:
        async with cluster_on(tmp_path) as cluster:
            await write(cluster)
            node = leader_of(cluster)
            log, healer = held(node).log, node.server.healing.healer
            right, end = log.epochs.entries, log.log_end_offset
            healer._peers = None
            batches = end - log.segments.active.base_offset
            assert batches >= 2
            rot_epochs(Path(log.segments.active.path(".log")), batches)
            await healer.scrub(held(node))
            assert log.epochs.entries == right
            assert [offset for each in log.damages for offset in each[1:3]] == [end - 2, end]

    run(test)
