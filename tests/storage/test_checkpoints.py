"""The small text files, against Kafka's own, malformed, and over the real file system."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_protocol.primitives import uuid_from_str
from tidelog_storage.checkpoints import (
    CheckpointError,
    MetaProperties,
    OffsetCheckpoint,
    parse_checkpoint,
    read_meta_properties,
    read_partition_metadata,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
    write_partition_metadata,
)
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.types import TopicPartition

KAFKA = Path(__file__).parent / "vectors" / "kafka-4.3.1"
FILES = OsFileSystem()
TOPIC_ID = uuid_from_str("ah8hoS-5QgSYDg-wDNcZrQ")


class TestOffsets:
    def test_kafkas_own_file(self) -> None:
        offsets = OffsetCheckpoint(FILES, str(KAFKA / "replication-offset-checkpoint")).read()
        assert len(offsets) == 11
        assert offsets[TopicPartition("ftxn", 0)] == 33
        assert offsets[TopicPartition("__consumer_offsets", 0)] == 14

    def test_written_as_kafka_writes_it(self, tmp_path: Path) -> None:
        path = str(KAFKA / "replication-offset-checkpoint")
        copy = OffsetCheckpoint(FILES, str(tmp_path / "copy"))
        copy.write(OffsetCheckpoint(FILES, path).read())
        assert (tmp_path / "copy").read_bytes() == Path(path).read_bytes()

    def test_no_file_and_no_entries(self, tmp_path: Path) -> None:
        checkpoint = OffsetCheckpoint(FILES, str(tmp_path / "x"))
        assert checkpoint.read() == {}
        checkpoint.write({})
        assert (tmp_path / "x").read_bytes() == b"0\n0\n"
        assert checkpoint.read() == {}

    @pytest.mark.parametrize(
        "text",
        [
            "x\n",
            "0\n1\n",
            "0\nx\n",
            "0\n1\ntopic 0\n",
            "0\n1\ntopic 0 1 2\n",
            "0\n1\ntopic a 1\n",
            "0\n1\ntopic 0 99999999999999999999\n",
            "0\n-1\n",
            "0\n0\ntopic 0 1\n",
        ],
    )
    def test_malformed(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "x").write_text(text)
        with pytest.raises(CheckpointError, match="x:"):
            OffsetCheckpoint(FILES, str(tmp_path / "x")).read()

    def test_not_text(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"0\n1\n\xff 0 1\n")
        with pytest.raises(CheckpointError, match="not a text file"):
            OffsetCheckpoint(FILES, str(tmp_path / "x")).read()


@settings(derandomize=True, max_examples=150)
@given(st.text("0123456789 \n-at", max_size=40))
def test_no_text_raises_anything_else(text: str) -> None:
    with contextlib.suppress(CheckpointError):
        parse_checkpoint(text.encode(), "x")


class TestPartitionMetadata:
    def test_kafkas_own_file(self, tmp_path: Path) -> None:
        assert read_partition_metadata(FILES, str(KAFKA)) == TOPIC_ID
        write_partition_metadata(FILES, str(tmp_path), TOPIC_ID)
        written = (tmp_path / "partition.metadata").read_bytes()
        assert written == (KAFKA / "partition.metadata").read_bytes()

    def test_absent(self, tmp_path: Path) -> None:
        assert read_partition_metadata(FILES, str(tmp_path)) is None

    @pytest.mark.parametrize("text", ["", "version: 1\ntopic_id: x", "version: 0\ntopic_id: x"])
    def test_malformed(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "partition.metadata").write_text(text)
        with pytest.raises(CheckpointError):
            read_partition_metadata(FILES, str(tmp_path))


class TestMetaProperties:
    def test_kafkas_own_file(self) -> None:
        assert read_meta_properties(FILES, str(KAFKA)) == MetaProperties(
            "anchorAAAAAAAAAAAAAAAA", 1, uuid_from_str("swfonp8Rb3ur80FCpHNQdw")
        )

    def test_round_trip(self, tmp_path: Path) -> None:
        assert read_meta_properties(FILES, str(tmp_path)) is None
        properties = MetaProperties("c", 3, bytes(range(16)))
        write_meta_properties(FILES, str(tmp_path), properties)
        assert read_meta_properties(FILES, str(tmp_path)) == properties

    @pytest.mark.parametrize("missing", ["cluster.id", "node.id", "directory.id"])
    def test_a_key_is_missing(self, tmp_path: Path, missing: str) -> None:
        lines = (KAFKA / "meta.properties").read_text().splitlines()
        kept = [line for line in lines if not line.startswith(missing)]
        (tmp_path / "meta.properties").write_text("\n".join(kept))
        with pytest.raises(CheckpointError, match=f"no {missing}"):
            read_meta_properties(FILES, str(tmp_path))

    def test_unknown_version(self, tmp_path: Path) -> None:
        text = (KAFKA / "meta.properties").read_text().replace("version=1", "version=2")
        (tmp_path / "meta.properties").write_text(text)
        with pytest.raises(CheckpointError, match="unknown version"):
            read_meta_properties(FILES, str(tmp_path))


class TestCleanShutdown:
    def test_marker_as_kafka_writes_it(self, tmp_path: Path) -> None:
        write_clean_shutdown(FILES, str(tmp_path), 19)
        marker = tmp_path / ".kafka_cleanshutdown"
        assert marker.read_bytes() == (KAFKA / "kafka_cleanshutdown").read_bytes()

    def test_taken_once(self, tmp_path: Path) -> None:
        assert take_clean_shutdown(FILES, str(tmp_path)) is None
        write_clean_shutdown(FILES, str(tmp_path), 19)
        assert take_clean_shutdown(FILES, str(tmp_path)) == 19
        assert take_clean_shutdown(FILES, str(tmp_path)) is None
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(("text", "epoch"), [("", -1), ('{"version":0,"brokerEpoch":-1}', -1)])
    def test_epoch_unknown(self, tmp_path: Path, text: str, epoch: int) -> None:
        (tmp_path / ".kafka_cleanshutdown").write_text(text)
        assert take_clean_shutdown(FILES, str(tmp_path)) == epoch
