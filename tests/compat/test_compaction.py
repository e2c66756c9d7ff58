"""Apache Kafka compacts a log, and so do we from the same files: what is left is the same.

Two passes: the first gives tombstones and markers their delete horizon, the second, with a delete
retention of 0, drops them. Indexes and transaction indexes are compared byte for byte, and so are
records where no codec's library had a say.
"""

from __future__ import annotations

import random
import re
import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from compat.eventually import eventually
from compat.jvm import require_jars
from compat.reference import ApacheKafka
from support.compaction import PARTITION, clean
from support.logs import NOW
from tidelog_protocol.records import iter_batches, iter_records
from tidelog_storage.checkpoints import OffsetCheckpoint, read_meta_properties
from tidelog_storage.config import LogConfig
from tidelog_storage.manager import LogManager
from tidelog_storage.os_files import OsFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.nightly,  # a Kafka of its own
    pytest.mark.reference,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("compaction"),  # a JVM, for half a minute
    pytest.mark.slow,
]

TOPIC = {
    "internal.segment.bytes": "8000",
    "index.interval.bytes": "500",
    "delete.retention.ms": "0",
    "min.cleanable.dirty.ratio": "0.01",
    "retention.ms": "-1",
}
KEYS = 80
CHECKPOINT = "cleaner-offset-checkpoint"


class Pass(NamedTuple):
    """The log directory before and after one pass of Kafka's."""

    before: Path
    after: Path
    active_base: int


class Reference:
    """A broker that compacts when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = ApacheKafka(folder / "broker", {"log.cleaner.backoff.ms": "200"})
        self.broker.start()
        self.data = folder / "broker" / "kafka" / "data"
        self.admin = AdminClient(self._client())
        topic = NewTopic("t", 1, 1, config={**TOPIC, "cleanup.policy": "delete"})
        self.admin.create_topics([topic])["t"].result(30)
        self.rng = random.Random(7)

    def _client(self, **more: object) -> dict:
        common = {"bootstrap.servers": self.broker.bootstrap, "log_level": 0, "linger.ms": 20}
        return common | {name.replace("_", "."): value for name, value in more.items()}

    def policy(self, value: str) -> None:
        entry = ConfigEntry("cleanup.policy", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def fill(self, producer: Producer, count: int, prefix: str) -> None:
        rng = self.rng
        for _ in range(count):
            producer.produce(
                "t",
                key=f"{prefix}{rng.randrange(KEYS)}",
                value=None if rng.random() < 0.2 else rng.randbytes(rng.randrange(40)),
                timestamp=NOW + rng.randrange(100_000),
                headers=[("h", b"x")] if rng.random() < 0.1 else None,
            )
            if rng.random() < 0.1:
                producer.flush()
        producer.flush()

    def write(self, kinds: tuple[str, ...]) -> None:
        """Plain, idempotent and transactional batches; what comes last overwrites in part."""
        for codec in kinds:
            idempotent = codec in ("none", "lz4")
            producer = Producer(self._client(compression_type=codec, enable_idempotence=idempotent))
            self.fill(producer, 250, codec)
        transactional = [
            Producer(self._client(transactional_id=f"x{number}")) for number in range(2)
        ]
        for producer in transactional:
            producer.init_transactions(30)
        for turn in range(12):
            for producer in transactional:
                producer.begin_transaction()
            for producer in transactional:
                self.fill(producer, 12, "transaction")
            for number, producer in enumerate(transactional):
                if (turn + number) % 3:
                    producer.commit_transaction(30)
                else:
                    producer.abort_transaction(30)
        self.fill(Producer(self._client()), 150, "transaction")

    def copy(self, folder: Path) -> None:
        """The topic's partition with what the log directory's files say of it."""
        going = shutil.ignore_patterns("*.deleted")  # at any time
        shutil.copytree(self.data / "t-0", folder / "t-0", ignore=going)
        for name in (CHECKPOINT, "meta.properties"):
            if (self.data / name).exists():
                shutil.copy(self.data / name, folder)

    def compact(self, name: str) -> Pass:
        """Let the broker compact all but the active segment."""
        before, after = self.folder / f"{name}-before", self.folder / f"{name}-after"
        self.copy(before)
        active_base = max(int(path.stem) for path in (self.data / "t-0").glob("*.log"))
        self.policy("compact")
        files = OsFileSystem()
        checkpoint = OffsetCheckpoint(files, str(self.data / CHECKPOINT))
        eventually(checkpoint.read, lambda offsets: offsets.get(PARTITION) == active_base)
        self.policy("delete")
        self.copy(after)
        return Pass(before, after, active_base)


@pytest.fixture(scope="module")
def passes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Pass]]:
    require_jars()
    reference = Reference(tmp_path_factory.mktemp("compaction"))
    try:
        reference.write(("none", "gzip", "snappy", "lz4", "zstd"))
        first = reference.compact("first")
        reference.write(("none",))
        yield [first, reference.compact("second")]
    finally:
        reference.broker.stop()
        shutil.rmtree(reference.folder, ignore_errors=True)


def batches(folder: Path, active_base: int) -> list[tuple]:
    """Of all sealed segments: the headers' fields, the records, and the bytes if uncompressed."""
    found = []
    for path in sorted((folder / "t-0").glob("*.log")):
        data = path.read_bytes()
        for position, header in iter_batches(data if int(path.stem) < active_base else b""):
            records = list(iter_records(data, position))
            raw = data[position : position + header.size_in_bytes]
            known = header if not header.codec else header._replace(batch_length=0, crc=0)
            found.append((path.name, known, records, b"" if header.codec else raw))
    return found


def compact_copy(folder: Path, one: Pass, now_ms: int) -> Path:
    """Our cleaner on a copy of what Kafka's began with."""
    data = folder / "ours"
    shutil.copytree(one.before, data)
    files = OsFileSystem(syncs=False)
    owner = read_meta_properties(files, str(data))
    assert owner is not None
    checkpoint = OffsetCheckpoint(files, str(data / "recovery-point-offset-checkpoint"))
    checkpoint.write({PARTITION: one.active_base})
    settings = LogConfig.from_overrides(LogConfig(), {**TOPIC, "cleanup.policy": "compact"})
    manager = LogManager(files, [str(data)], settings)
    manager.open(
        now_ms=NOW,  # no producer has expired
        cluster_id=owner.cluster_id,
        node_id=owner.node_id,
        new_directory_id=lambda: b"d" * 16,
    )
    log = manager.get(PARTITION)
    assert log is not None
    log.config = settings  # as the broker does when it knows the topic
    log.set_high_watermark(log.log_end_offset)
    assert clean(manager, now_ms) == 1
    manager.shutdown()
    return data


@pytest.mark.parametrize("number", [0, 1])
def test_the_same_is_left(passes: list[Pass], number: int, tmp_path: Path) -> None:
    one = passes[number]
    theirs = batches(one.after, one.active_base)
    horizons = [row[1].base_timestamp for row in theirs if row[1].has_delete_horizon]
    ours = compact_copy(tmp_path, one, max(horizons))  # the time at which Kafka's pass began
    assert batches(ours, one.active_base) == theirs
    names = [
        path.name
        for path in sorted((one.after / "t-0").iterdir())
        if re.fullmatch(r"\d{20}\.(index|timeindex|txnindex|log)", path.name)
        and int(path.stem) < one.active_base
    ]
    assert names == sorted(
        path.name
        for path in (ours / "t-0").iterdir()
        if path.suffix != ".deleted" and path.name[0] == "0" and path.suffix != ".snapshot"
        if int(path.stem) < one.active_base
    )
    compressed = {row[0] for row in theirs if row[1].codec}
    for name in names:
        if not name.endswith(".log") and name.split(".")[0] + ".log" not in compressed:
            content = (one.after / "t-0" / name).read_bytes()
            assert (ours / "t-0" / name).read_bytes() == content, name
    assert OffsetCheckpoint(OsFileSystem(), str(ours / CHECKPOINT)).read() == {
        PARTITION: one.active_base
    }


def test_the_comparison_met_all_there_is(passes: list[Pass]) -> None:
    """Else it would prove little."""
    first, second = (batches(one.after, one.active_base) for one in passes)
    assert {row[1].codec for row in first} >= {0, 1, 2, 3, 4}
    assert any(row[1].records_count < row[1].last_offset_delta + 1 for row in first)
    assert any(not row[1].records_count and row[1].has_producer_id for row in first)
    for rows in (first, second):
        horizons = [row for row in rows if row[1].has_delete_horizon]
        assert any(row[1].is_control for row in rows)
        assert any(record.value is None for row in horizons for record in row[2])
    gone = {record.offset for row in first for record in row[2] if record.value is None}
    left = {record.offset for row in second for record in row[2]}
    assert gone - left
