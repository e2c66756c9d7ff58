"""`tidelog spark audit` of real topics that were damaged in every way; most without Spark."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from confluent_kafka import Producer

from support.history import broker, create_tiered, produce, wait_until_remote
from support.spark import MARKS
from tidelog_pipeline.operations import OperationError, Source, audit, write_audit
from tidelog_pipeline.operations.audit_report import as_json
from tidelog_pipeline.operations.audit_tasks import check_all

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tidelog_pipeline.operations import AuditReport


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("remote")


@pytest.fixture(scope="module")
def servers(store: Path):
    with broker(str(store)) as servers:
        yield servers


@pytest.fixture
def look_at(monkeypatch: pytest.MonkeyPatch):
    """Audits a topic of a broker in this process."""

    def run(_spark, units, settings, compares_all):
        return list(check_all(units, settings, compares_all=compares_all))

    module = sys.modules["tidelog_pipeline.operations.audit"]  # the package's `audit` is a function
    monkeypatch.setattr(module, "_run", run)

    def look_at(servers: str, topic: str, *, whole: bool = False) -> AuditReport:
        return audit(None, Source(servers, topic), compares_all=whole)  # type: ignore[arg-type]

    return look_at


@pytest.fixture
def look(servers: str, look_at):
    """Audits a topic in this process."""
    return partial(look_at, servers)


def filled(servers: str, count: int = 300) -> str:
    topic = create_tiered(servers)
    produce(servers, topic, range(count))
    wait_until_remote(servers, topic)
    return topic


def segments(store: Path, topic: str) -> list[Path]:
    return sorted(store.glob(f"**/{topic}-0-*/*.log"))


@pytest.mark.parametrize("whole", [False, True])
def test_a_sound_topic_has_no_faults(servers: str, look, whole: bool) -> None:
    topic = filled(servers)
    one = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    one.init_transactions(30)
    for turn in range(4):
        one.begin_transaction()
        one.produce(topic, b"in a transaction")
        one.flush()
        if turn % 2:
            one.abort_transaction(30)
        else:
            one.commit_transaction(30)
    report = look(topic, whole=whole)
    assert report.faults == []
    (partition,) = report.partitions
    assert partition.scan is not None
    assert (partition.scan.records, partition.scan.markers) == (304, 4)
    assert "4 offsets are markers of transactions" in partition.notes
    assert partition.compared > 3


def test_a_byte_that_differs_is_damage(servers: str, store: Path, look) -> None:
    topic = filled(servers)
    file = segments(store, topic)[1]
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    file.write_bytes(data)
    report = look(topic)
    assert any("bad checksum" in each for each in report.partitions[0].damage)
    file.write_bytes(data[:-5])
    assert look(topic).faults


def test_a_segment_that_is_not_there_is_a_loss(servers: str, store: Path, look) -> None:
    topic = filled(servers)
    for file in segments(store, topic)[0].parent.glob(segments(store, topic)[0].stem + "*"):
        file.unlink()
    assert look(topic).faults


def test_a_local_segment_that_is_not_there_is_a_loss(look_at, tmp_path: Path) -> None:
    """Found by hand: an audit took it for one that went to the tier, and counted no record."""
    place = {"log_dirs": str(tmp_path / "data")}
    with broker(str(tmp_path / "tier"), **place) as servers:
        topic = create_tiered(servers, remote_storage_enable="false")
        produce(servers, topic, range(400))
    logs = sorted((tmp_path / "data").glob(f"**/{topic}-0/*.log"))
    for file in logs[2].parent.glob(f"{logs[2].stem}.*"):
        file.unlink()
    first, after = int(logs[2].stem), int(logs[3].stem)
    with broker(str(tmp_path / "tier"), **place) as servers:
        (partition,) = look_at(servers, topic).partitions
    (loss,) = partition.losses
    assert loss.startswith(f"offsets {first} to 399: a consumer gets ")
    assert partition.scan is not None
    assert partition.scan.records == first < after


def test_offsets_that_no_place_has_are_lost(servers: str, look, monkeypatch) -> None:
    topic = filled(servers)
    from tidelog.embedded.tier_metadata import MetadataLog

    whole = MetadataLog.segments
    monkeypatch.setattr(
        MetadataLog, "segments", lambda *given: [*whole(*given)[:1], *whole(*given)[2:]]
    )
    report = look(topic)
    (loss,) = report.partitions[0].losses
    assert "neither in the remote tier nor at the brokers" in loss


def test_what_was_deleted_is_explained(servers: str, look) -> None:
    topic = filled(servers)
    delete_records(servers, topic, 120)
    report = look(topic)
    assert report.faults == []
    assert "offsets 0 to 119: deleted by retention or DeleteRecords" in report.partitions[0].notes


def test_compaction_explains_gaps(servers: str, look) -> None:
    topic = create_tiered(
        servers,
        remote_storage_enable="false",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
    )
    produce(servers, topic, [n for n in range(500) if n % 5])
    end = time.perf_counter() + 60
    while not any("compaction removed" in note for note in look(topic).partitions[0].notes):
        assert time.perf_counter() < end
        time.sleep(0.2)
    assert look(topic).faults == []


def test_an_unknown_topic_is_one_line(look) -> None:
    with pytest.raises(OperationError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        look("none")


def test_a_run_after_one_that_was_killed_reads_the_rest(
    servers: str, look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = filled(servers)
    expected = as_json(look(topic))
    monkeypatch.setattr("tidelog_pipeline.operations.journal.WAVE_BYTES", 1)
    monkeypatch.setattr("tidelog_pipeline.operations.audit_tasks.LOCAL_BYTES", 1)
    module = sys.modules["tidelog_pipeline.operations.audit"]
    whole, read = module._run, []  # type: ignore[attr-defined]

    def run(spark, units, *given):
        if len(read) == 3:
            raise RuntimeError("killed")
        read.extend(each.name for each in units)
        return whole(spark, units, *given)

    monkeypatch.setattr(module, "_run", run)
    journal = tmp_path / "report" / "unfinished.jsonl"
    with pytest.raises(OperationError, match="killed"):
        audit(None, Source(servers, topic), journal=journal)  # type: ignore[arg-type]
    with journal.open("a") as stream:
        stream.write('["0 20')  # a kill inside a line
    before = read.copy()
    read.append("no more kills")
    found = audit(None, Source(servers, topic), journal=journal)  # type: ignore[arg-type]
    assert as_json(found) == expected
    assert len(before) == 3
    assert len(set(read)) == len(read) > 4
    count = len(read)
    audit(None, Source(servers, topic), journal=journal, compares_all=True)  # type: ignore[arg-type]
    assert len(read) - count == count - 1


def test_what_was_not_sound_is_read_again(servers: str, store: Path, look, tmp_path: Path) -> None:
    topic = filled(servers)
    file = segments(store, topic)[1]
    sound = file.read_bytes()
    file.write_bytes(sound[:200] + bytes([sound[200] ^ 1]) + sound[201:])
    source, journal = Source(servers, topic), tmp_path / "unfinished.jsonl"
    assert audit(None, source, journal=journal).faults  # type: ignore[arg-type]
    file.write_bytes(sound)
    assert not audit(None, source, journal=journal).faults  # type: ignore[arg-type]


def test_reports_are_json_and_a_picture(servers: str, store: Path, look, tmp_path: Path) -> None:
    topic = filled(servers)
    shutil.rmtree(segments(store, topic)[0].parent)
    files = write_audit(look(topic), tmp_path / "report")
    assert [each.name for each in files] == ["audit.json", "audit.html"]
    said = json.loads(files[0].read_text())
    assert said["isWhole"] is False
    assert said["partitions"][0]["remoteSegments"]
    page = files[1].read_text()
    assert "<svg" in page
    assert 'class="bad"' in page
    assert "<title>lost 0 to " in page


def delete_records(servers: str, topic: str, before: int) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
    from aiokafka.structs import TopicPartition

    async def delete() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        await admin.delete_records(
            {TopicPartition(topic, 0): RecordsToDelete(before_offset=before)}
        )
        await admin.close()

    asyncio.run(delete())


class TestBySpark:
    """The same by tasks of Spark."""

    pytestmark = MARKS

    def test_tasks_find_what_this_process_finds(
        self, spark: SparkSession, servers: str, store: Path
    ) -> None:
        topic = filled(servers)
        assert audit(spark, Source(servers, topic)).faults == []
        segments(store, topic)[0].unlink()
        assert audit(spark, Source(servers, topic)).faults
