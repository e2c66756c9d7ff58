"""A start that is refused for what a newer Kafka wrote changes no file."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tidelog.cluster.formatting import bootstrap_checkpoint
from tidelog.cluster.metadata.image import ClusterImage
from tidelog.cluster.metadata.levels_on_disk import levels_on_disk
from tidelog.cluster.metadata.settings import METADATA_PARTITION
from tidelog.cluster.metadata.snapshots import encode_snapshot, write_snapshot
from tidelog.config.broker import BrokerConfig
from tidelog.embedded.cluster_settings import broker_properties
from tidelog.foundation import open_logs
from tidelog.runtime import system_runtime
from tidelog.server import BrokerServer
from tidelog.start_error import StartError
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages import metadata_records as tables
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.os_files import OsFileSystem

if TYPE_CHECKING:
    from pathlib import Path

FILES = OsFileSystem()


def feature(level: int, name: str = "group.version") -> bytes:
    return tables.encode_record(tables.FeatureLevelRecord(name=name, feature_level=level), 0)


def batch(offset: int, *values: bytes) -> bytes:
    rows = [Record(number, 0, None, value) for number, value in enumerate(values, offset)]
    return bytes(build_batch(rows, base_offset=offset, leader_epoch=1))


def log_of(directory: Path, base: int, *batches: bytes) -> Path:
    path = directory / str(METADATA_PARTITION) / f"{base:020d}.log"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(batches))
    return path


def test_an_empty_directory_has_none(tmp_path: Path) -> None:
    assert levels_on_disk(FILES, str(tmp_path)).levels == {}
    (tmp_path / "bootstrap.checkpoint").write_bytes(bootstrap_checkpoint(0))
    assert levels_on_disk(FILES, str(tmp_path)).levels["group.version"] == 1


def test_the_log_goes_on_from_the_newest_snapshot(tmp_path: Path) -> None:
    log_of(
        tmp_path, 0, batch(0, feature(3), feature(4)), batch(2, feature(5)), batch(3, feature(6))
    )
    image = ClusterImage("c", offset=2, leader_epoch=1, features={"group.version": 1, "a": 2})
    snapshot, data = encode_snapshot(image, 0)
    (tmp_path / str(METADATA_PARTITION) / snapshot.file_name).write_bytes(data)
    assert levels_on_disk(FILES, str(tmp_path)).levels == {"group.version": 6, "a": 2}
    log_of(tmp_path, 4, batch(4, feature(7)))
    assert levels_on_disk(FILES, str(tmp_path)).levels == {"group.version": 7, "a": 2}


@pytest.mark.parametrize("position", [0, 1, 10**6], ids=["none", "wrong", "behind the end"])
def test_an_index_saves_time_only(tmp_path: Path, position: int) -> None:
    first, second, third = (batch(number, feature(number + 1)) for number in range(3))
    path = log_of(tmp_path, 0, first, second, third)
    image = ClusterImage("c", offset=1, leader_epoch=1)
    snapshot, data = encode_snapshot(image, 0)
    (path.parent / snapshot.file_name).write_bytes(data)
    entries = [(1, position or len(first)), (2, len(first) + len(second)), (0, 0), (0, 0)]
    written = b"".join(each.to_bytes(4, "big") for entry in entries for each in entry)
    path.with_suffix(".index").write_bytes(written)
    assert levels_on_disk(FILES, str(tmp_path)).levels == {"group.version": 3}


def test_damage_ends_the_reading(tmp_path: Path) -> None:
    whole, torn = batch(0, feature(1)), bytearray(batch(1, feature(9)))
    torn[-1] ^= 1
    for tail in (bytes(torn), bytes(torn[:-1]), b"\0" * 100, b"\xff" * 100):
        log_of(tmp_path, 0, whole, tail)
        assert levels_on_disk(FILES, str(tmp_path)).levels == {"group.version": 1}


@pytest.mark.parametrize(
    ("value", "refusal", "words"),
    [
        (feature(7), StartError, "group.version 7"),
        (feature(1, "new.version"), StartError, "new.version 1"),
        (b"\x01\x63\x00\x00", ProtocolError, "unknown api key 99: a newer Apache Kafka wrote it"),
    ],
    ids=["level", "feature", "record"],
)
def test_a_refused_start_changes_no_file(
    value: bytes, refusal: type[Exception], words: str, tmp_path: Path
) -> None:
    config = BrokerConfig.from_properties(broker_properties({"log.dirs": str(tmp_path)}, port=0))
    runtime = system_runtime(durable=False)
    logs, *_ = open_logs(config, runtime)
    logs.abandon()
    log_of(tmp_path, 0, batch(0, feature(1), value))
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":"5"}')
    before = contents(tmp_path)
    with pytest.raises(refusal, match=words):
        open_logs(config, runtime)
    assert contents(tmp_path) == before


def test_a_start_that_finds_a_damaged_snapshot_changes_no_file(tmp_path: Path) -> None:
    config = BrokerConfig.from_properties(broker_properties({"log.dirs": str(tmp_path)}, port=0))
    runtime = system_runtime(durable=False)
    logs, *_ = open_logs(config, runtime)
    logs.abandon()
    path = log_of(tmp_path, 0, batch(0, feature(1)))
    snapshot, data = encode_snapshot(ClusterImage("c", offset=0, leader_epoch=1), 0)
    (path.parent / snapshot.file_name).write_bytes(data[:-1])
    before = contents(tmp_path)
    with pytest.raises(ProtocolError, match=snapshot.file_name):
        open_logs(config, runtime)
    assert contents(tmp_path) == before


class CountedReads(OsFileSystem):
    """It notes the files that are read as a whole."""

    def __init__(self) -> None:
        super().__init__(syncs=False)
        self.read: list[str] = []

    def read_bytes(self, path: str) -> bytes:
        self.read.append(path.rpartition("/")[2])
        return super().read_bytes(path)


def test_a_start_reads_the_newest_snapshot_once(tmp_path: Path) -> None:
    config = BrokerConfig.from_properties(broker_properties({"log.dirs": str(tmp_path)}, port=0))
    files = CountedReads()

    async def live() -> ClusterImage:
        server = BrokerServer(config, system_runtime(files))
        await server.start()
        image = server.metadata.image
        await server.stop()
        return image

    image = asyncio.run(live())
    snapshot = write_snapshot(files, str(tmp_path / str(METADATA_PARTITION)), image, 0)
    files.read.clear()
    assert asyncio.run(live()).features == image.features
    assert files.read.count(snapshot.file_name) == 1


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
