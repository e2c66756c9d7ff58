"""The metadata log: Kafka's bytes, restart, crashes at any moment, order and failure of commits."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.metadata import CLUSTER_ID, DIRECTORY_ID, NODE_ID, Metadata
from support.quorum_nodes import setting, settings_in
from tidelog.cluster.metadata.features import initial_levels
from tidelog.cluster.metadata.image import ClusterImage
from tidelog.cluster.metadata.log import MetadataLog
from tidelog.cluster.metadata.records import decode_batch, levels_after, record_version
from tidelog.cluster.metadata.settings import METADATA_TOPIC_ID
from tidelog.cluster.metadata.snapshots import encode_snapshot
from tidelog.simulation.disk import SimDisk
from tidelog_protocol.batch import iter_batches
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.messages import metadata_records as tables
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.primitives import uuid_from_str, uuid_to_str
from tidelog_protocol.records import Record, build_batch, iter_records
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog_protocol.schema import Message

VECTORS = Path(__file__).parent / "vectors" / "cluster_metadata"
FOLDER = "data/__cluster_metadata-0"
LOG = f"{FOLDER}/00000000000000000000.log"


def feature(name: str, level: int = 1) -> tables.FeatureLevelRecord:
    return tables.FeatureLevelRecord(name=name, feature_level=level)


def kafka_batches() -> list[tuple[Any, bytes]]:
    data = (VECTORS / "00000000000000000000.log").read_bytes()
    return [
        (header, data[position : position + header.size_in_bytes])
        for position, header in iter_batches(data)
    ]


# ---- Kafka's own log ----------------------------------------------------------------------------


def kafka_disk() -> SimDisk:
    disk = SimDisk(0)
    files = disk.files()
    files.make_dirs(FOLDER)
    for path in VECTORS.iterdir():
        if path.suffix != ".log":
            files.write_atomic(f"{FOLDER}/{path.name}", path.read_bytes())
    log = files.open(LOG, create=True)
    log.append([(VECTORS / "00000000000000000000.log").read_bytes()])
    log.fsync()
    log.close()
    return disk


def test_a_kafkas_metadata_is_understood() -> None:
    metadata = Metadata(kafka_disk())
    image = metadata.log.image
    assert sorted(image.topics) == [
        "__consumer_offsets",
        "__transaction_state",
        "fc-gzip",
        "fc-lz4",
        "fc-none",
        "fc-snappy",
        "fc-zstd",
        "fidx",
        "ftxn",
        "wirenew",
    ]
    assert uuid_to_str(image.topics["fc-none"].topic_id) == "zPQP5IaNSRu_Hmhu2lFoCg"
    assert len(image.topics["wirenew"].partitions) == 2
    assert image.topic_config("ftxn") == {"retention.ms": "-1", "index.interval.bytes": "1"}
    assert image.broker_configs == {"": {"min.insync.replicas": "1"}}
    assert image.features["metadata.version"] == 30
    assert image.features["transaction.version"] == 2
    assert image.next_producer_id == 1000
    broker = image.brokers[1]
    assert (broker.host, broker.port, broker.epoch) == ("127.0.0.1", 22292, 11)
    assert broker.fenced, "it was stopped"
    stopped = image.topics["fc-none"].partitions[0]
    assert (stopped.leader, stopped.leader_epoch, stopped.partition_epoch) == (-1, 1, 1)
    assert stopped.eligible_leader_replicas == (1,)
    assert image.leader_epoch == 2, "a new epoch after Kafka's 1"


def test_records_are_written_as_kafka_writes_them() -> None:
    seen = set()
    for header, batch in kafka_batches():
        if header.is_control:
            continue
        decoded = [tables.decode_record(record.value or b"") for record in iter_records(batch)]
        assert [record for record, _ in decoded] == list(decode_batch(memoryview(batch)))
        rebuilt = build_batch(
            [
                Record(
                    header.base_offset + index,
                    header.base_timestamp,
                    None,
                    tables.encode_record(record, version),
                )
                for index, (record, version) in enumerate(decoded)
            ],
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
        )
        assert rebuilt == batch
        seen.update(
            type(record)
            for record, version in decoded
            if version == record_version(type(record), 30)
        )
    assert {
        tables.TopicRecord,
        tables.PartitionRecord,
        tables.PartitionChangeRecord,
        tables.ConfigRecord,
        tables.ProducerIdsRecord,
        tables.RegisterBrokerRecord,
        tables.BrokerRegistrationChangeRecord,
        tables.FeatureLevelRecord,
        tables.BeginTransactionRecord,
    } <= seen


def test_creating_a_topic_writes_kafkas_bytes() -> None:
    kafkas = next((header, batch) for header, batch in kafka_batches() if header.base_offset == 17)
    header, batch = kafkas

    async def run() -> bytes:
        metadata = Metadata()
        await metadata.register_at("h", 1, uuid_from_str("swfonp8Rb3ur80FCpHNQdw"))
        metadata.clock.wall = header.base_timestamp
        metadata.rng.uuid = lambda: uuid_from_str("zPQP5IaNSRu_Hmhu2lFoCg")  # type: ignore[method-assign]
        topic = CreateTopicsRequest.CreatableTopic(
            name="fc-none",
            num_partitions=1,
            replication_factor=1,
            configs=[CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="-1")],
        )
        await metadata.controller.create_topics(CreateTopicsRequest(topics=[topic]))
        data = metadata.disk.files().read_bytes(LOG)
        *_, (position, last) = iter_batches(data)
        return data[position : position + last.size_in_bytes]

    ours = asyncio.run(run())
    assert ours[8:12] == batch[8:12], "length"
    assert ours[16:] == batch[16:], "all but base offset and leader epoch"


def test_leader_change_is_kafkas() -> None:
    header, batch = kafka_batches()[0]
    data = Metadata().disk.files().read_bytes(LOG)
    ours = data[: len(batch)]
    assert [r[2:] for r in iter_records(ours)] == [r[2:] for r in iter_records(batch)]
    assert (header.attributes, header.leader_epoch) == (32, 1)
    assert ours[21:23] == batch[21:23]


def test_a_new_cluster_begins_as_kafkas() -> None:
    """Levels of features, and a `min.insync.replicas` of all brokers for the eligible replicas."""
    data = Metadata().disk.files().read_bytes(LOG)
    position, ours = list(iter_batches(data))[1]
    header, kafkas = kafka_batches()[1]
    assert (ours.base_offset, ours.attributes) == (header.base_offset, header.attributes)
    first = data[position : position + ours.size_in_bytes]
    assert [record[2:] for record in iter_records(first)] == [
        record[2:] for record in iter_records(kafkas)
    ]


def test_files_beside_the_log() -> None:
    metadata = Metadata()
    asyncio.run(metadata.register())
    files = metadata.disk.files()
    kafkas = {path.name: path.read_bytes() for path in VECTORS.iterdir()}
    for name in ("partition.metadata", "quorum-state", "leader-epoch-checkpoint"):
        expected = kafkas[name]
        assert files.read_bytes(f"{FOLDER}/{name}").rstrip() == expected.rstrip(), name
    assert metadata.log.log.topic_id == METADATA_TOPIC_ID


# ---- lives ------------------------------------------------------------------------------------


def test_first_start_and_restart() -> None:
    async def run() -> None:
        metadata = Metadata()
        assert metadata.log.image.features == {
            "metadata.version": 30,
            "eligible.leader.replicas.version": 1,
            "transaction.version": 2,
            "group.version": 1,
            "share.version": 1,
            "streams.version": 1,
        }
        assert metadata.seen == []
        epoch = await metadata.register()
        assert metadata.log.image.brokers[NODE_ID].epoch == epoch
        await metadata.log.commit([setting("a")])
        before = metadata.log.image
        await metadata.close()

        metadata.seen.clear()
        metadata.start()
        image = metadata.log.image
        assert image.cluster_id == CLUSTER_ID
        assert settings_in(image) == settings_in(before) == {"a": "1"}
        assert image.brokers == before.brokers
        assert image.leader_epoch == before.leader_epoch + 1
        assert image.features == initial_levels(), "bootstrapped once"
        assert metadata.seen == [], "nobody acts on the run before"
        await metadata.register()
        (old, registered), (before, new) = metadata.seen
        assert old is None
        assert before is registered
        assert registered.brokers[NODE_ID].fenced
        assert new is metadata.log.image

    asyncio.run(run())


def formatted_disk(levels: dict[str, int]) -> SimDisk:
    disk = SimDisk(0)
    files = disk.files()
    files.make_dirs("data")
    image = ClusterImage(cluster_id="", features=levels)
    files.write_atomic("data/bootstrap.checkpoint", encode_snapshot(image, 1)[1])
    return disk


@pytest.mark.parametrize("eligible", [{}, {"eligible.leader.replicas.version": 0}])
def test_a_directory_keeps_the_levels_that_it_was_formatted_with(eligible: dict[str, int]) -> None:
    """An older tidelog's, or one of `kafka-storage format --feature`: nothing is turned on."""
    levels = {"metadata.version": 30, "transaction.version": 2, **eligible}
    metadata = Metadata(formatted_disk(levels))
    for _ in range(2):
        asyncio.run(metadata.register())
        image = metadata.log.image
        assert {name: level for name, level in image.features.items() if level} == {
            name: level for name, level in levels.items() if level
        }
        assert image.broker_configs == {}
        metadata.disk.kill()
        metadata.start()


def test_levels_of_the_format_are_known_before_anything_is_written() -> None:
    levels = {"metadata.version": 31, "new.version": 1}
    disk = formatted_disk(levels)
    log = MetadataLog(Metadata().log._settings._replace(files=disk.files()))
    log.open()
    assert log.levels_at_end() == levels
    assert log.log.log_end_offset == 0


def test_a_format_without_a_metadata_version_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"bootstrap\.checkpoint names no metadata\.version"):
        Metadata(formatted_disk({}))


def test_epochs_never_come_twice_even_if_the_log_lost_them() -> None:
    metadata = Metadata()
    assert metadata.log.image.leader_epoch == 1
    metadata.disk.power_failure()  # nothing was forced to disk but the epoch itself
    metadata.start()
    assert metadata.log.image.leader_epoch == 2
    metadata.disk.files().write_atomic(f"{FOLDER}/quorum-state", b"{broken")
    metadata.disk.kill()
    metadata.start()
    assert metadata.log.image.leader_epoch == 3, "from the log's own epochs"


def test_transactions_of_several_batches() -> None:
    """Kafka's controller writes large operations so; ours does not, but reads them."""
    metadata = Metadata()
    log = metadata.log
    for records in (
        [tables.BeginTransactionRecord(name="a"), feature("a")],
        [feature("b"), tables.EndTransactionRecord()],
        [tables.BeginTransactionRecord(name="c"), feature("c")],
        [tables.AbortTransactionRecord(reason="no")],
        [feature("d")],
        [tables.BeginTransactionRecord(name="e"), feature("e")],
    ):
        values = [Record(i, 1, None, tables.encode_record(r, 0)) for i, r in enumerate(records)]
        log._append_batch(values, 1)
    metadata.disk.kill()
    metadata.start()
    assert metadata.log.image.features.keys() - initial_levels() == {"a", "b", "d"}


@pytest.mark.parametrize("seed", range(40))
def test_power_failure_leaves_old_or_new_never_half(seed: int) -> None:
    """Acknowledged operations survive, in order; one that was under way is there whole or not."""
    chance = random.Random(seed)

    async def live(metadata: Metadata, count: int) -> list[int]:
        acknowledged: list[int] = []

        async def one(number: int) -> None:
            parts = [setting(f"op.{number}.{part}", str(number)) for part in range(5)]
            await metadata.log.commit(parts)
            acknowledged.append(number)

        await metadata.register()
        start = len(settings_in(metadata.log.image)) // 5
        tasks = [asyncio.ensure_future(one(start + number)) for number in range(count)]
        for _ in range(chance.randint(0, 12)):
            await asyncio.sleep(0)
        metadata.disk.power_failure()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return acknowledged

    async def run() -> None:
        metadata = Metadata(SimDisk(seed))
        total = 0
        for _ in range(4):
            acknowledged = await live(metadata, chance.randint(1, 6))
            metadata.start()
            settings = settings_in(metadata.log.image)
            assert len(settings) % 5 == 0, "an operation is whole"
            operations = len(settings) // 5
            assert operations >= total + len(acknowledged)
            for number in range(operations):
                assert all(f"op.{number}.{part}" in settings for part in range(5))
            total = operations

    asyncio.run(run())


@pytest.mark.parametrize("cut", range(1, 300, 7))
def test_torn_tail(cut: int) -> None:
    async def run() -> None:
        metadata = Metadata()
        await metadata.register()
        await metadata.log.commit([setting("kept")])
        kept = metadata.disk.files().open(LOG).size()
        metadata.log.append([setting(f"lost.{part}") for part in range(6)])
        metadata.disk.kill()
        file = metadata.disk.files().open(LOG)
        size = max(kept, file.size() - cut)
        file.truncate(size)
        metadata.start()
        assert settings_in(metadata.log.image) == {"kept": "1"}
        await metadata.register()
        await metadata.log.commit([setting("next")])
        assert settings_in(metadata.log.image) == {"kept": "1", "next": "1"}

    asyncio.run(run())


# ---- commits ------------------------------------------------------------------------------------


def test_listeners_are_called_in_order_before_commit_returns() -> None:
    async def run() -> None:
        metadata = Metadata()
        told: list[tuple[str, ClusterImage | None, ClusterImage]] = []
        metadata.log.subscribe(lambda delta, new: told.append(("first", delta.old, new)))
        metadata.log.subscribe(lambda delta, new: told.append(("second", delta.old, new)))
        await metadata.register()
        before = metadata.log.image
        told.clear()
        await metadata.log.commit([setting("a")])
        assert [name for name, _, _ in told] == ["first", "second"]
        assert told[0][1] is before
        assert told[0][2] is metadata.log.image
        assert settings_in(metadata.log.image) == {"a": "1"}

    asyncio.run(run())


def test_commits_during_an_fsync_share_the_next_one() -> None:
    async def run() -> None:
        metadata = Metadata()
        await metadata.register()
        runs, metadata.executor.runs = metadata.executor.runs, 0
        assert runs == 2, "registered, unfenced"
        metadata.seen.clear()
        metadata.executor.hold()
        order: list[int] = []

        async def one(number: int) -> None:
            await metadata.log.commit([setting(f"k{number}")])
            order.append(number)

        first = asyncio.ensure_future(one(0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(one(number)) for number in range(1, 9)]
        await asyncio.sleep(0)
        assert settings_in(metadata.log.image) == {}, "nothing is shown before it is on disk"
        assert len(settings_in(metadata.log.latest)) == 9
        metadata.executor.release()
        await asyncio.gather(first, *others)
        assert order == list(range(9))
        assert metadata.executor.runs == 2
        assert len(metadata.seen) == 2

    asyncio.run(run())


def test_an_empty_commit_waits_for_what_it_saw() -> None:
    async def run() -> None:
        metadata = Metadata()
        await metadata.register()
        await asyncio.wait_for(metadata.log.commit(), 60)
        metadata.executor.hold()
        writing = asyncio.ensure_future(metadata.log.commit([setting("a")]))
        await asyncio.sleep(0)
        reading = asyncio.ensure_future(metadata.log.commit())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not reading.done()
        metadata.executor.release()
        await asyncio.gather(writing, reading)

    asyncio.run(run())


def test_a_cancelled_commit_happens_all_the_same() -> None:
    async def run() -> None:
        metadata = Metadata()
        await metadata.register()
        metadata.executor.hold()
        task = asyncio.ensure_future(metadata.log.commit([setting("a")]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        metadata.executor.release()
        await metadata.log.commit([setting("b")])
        assert settings_in(metadata.log.image) == {"a": "1", "b": "1"}

    asyncio.run(run())


def test_a_failed_fsync_is_the_end() -> None:
    async def run() -> None:
        metadata = Metadata()
        await metadata.register()
        metadata.executor.error = OSError("disk on fire")
        with pytest.raises(StorageError, match="disk on fire") as caught:
            await metadata.log.commit([setting("a")])
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert [str(failure) for failure in metadata.failures] == ["disk on fire"]
        assert settings_in(metadata.log.image) == {}
        metadata.executor.error = None
        for records in ([setting("b")], []):
            with pytest.raises(StorageError, match="has failed"):
                await metadata.log.commit(records)
        await metadata.close()

    asyncio.run(run())


def test_a_full_disk_refuses_one_operation() -> None:
    async def run() -> None:
        metadata = Metadata()
        await metadata.register()
        metadata.disk.capacity_bytes = metadata.disk.used_bytes() + 50
        with pytest.raises(StorageError) as caught:
            await metadata.log.commit([setting("a" * 200)])
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert metadata.failures == []
        assert metadata.log.latest is metadata.log.image
        metadata.disk.capacity_bytes = None
        await metadata.log.commit([setting("b")])
        assert settings_in(metadata.log.image) == {"b": "1"}
        metadata.disk.power_failure()
        metadata.start()
        assert settings_in(metadata.log.image) == {"b": "1"}

    asyncio.run(run())


def test_records_that_do_not_fit_never_reach_the_disk() -> None:
    async def run() -> None:
        metadata = Metadata()
        await metadata.register()
        end = metadata.log.next_offset
        with pytest.raises(Exception, match="unknown topic id"):
            await metadata.log.commit([tables.RemoveTopicRecord(topic_id=DIRECTORY_ID)])
        assert metadata.log.next_offset == end

    asyncio.run(run())


def test_close_waits_and_refuses_afterwards() -> None:
    async def run() -> None:
        metadata = Metadata()
        await metadata.register()
        metadata.executor.hold()
        task = asyncio.ensure_future(metadata.log.commit([setting("a")]))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(metadata.close())
        await asyncio.sleep(0)
        metadata.executor.release()
        await asyncio.gather(task, closing)
        with pytest.raises(StorageError):
            await metadata.log.commit([setting("b")])
        metadata.start()
        assert settings_in(metadata.log.image) == {"a": "1"}

    asyncio.run(run())


def test_levels_after_a_log_and_an_unknown_record_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def batch(*records: Message) -> memoryview:
        values = [tables.encode_record(record, 0) for record in records]
        rows = [Record(offset, 0, None, value) for offset, value in enumerate(values)]
        return memoryview(build_batch(rows, base_offset=0, leader_epoch=1))

    batches = [batch(feature("a", 2), setting("s")), batch(feature("b"), feature("a", 0))]
    assert levels_after({"a": 1, "c": 3}, batches) == {"a": 0, "b": 1, "c": 3}
    known = {key: table for key, table in tables.RECORDS.items() if table is not tables.NoOpRecord}
    later = [batch(setting("s"), tables.NoOpRecord())]
    assert levels_after({}, later) == {}
    monkeypatch.setattr(tables, "RECORDS", known)
    with pytest.raises(ProtocolError, match="unknown api key 20: a newer Apache Kafka wrote it"):
        levels_after({}, later)
