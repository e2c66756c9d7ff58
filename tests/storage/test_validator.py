"""Produced batches: each row of the specification's table, and what the broker sets."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    BatchHeader,
    Codec,
    ControlType,
    Record,
    assemble,
    build_batch,
    build_end_transaction_marker,
    crc_is_valid,
    iter_records,
    read_header,
)
from tidelog_storage import inspection, validator
from tidelog_storage.config import LogConfig
from tidelog_storage.inspection import AppendTarget, Inspection
from tidelog_storage.types import RecordError, StorageError, TopicPartition
from tidelog_storage.validator import ValidatedAppend

NOW = 1_700_000_000_000
HOUR = 3_600_000
WHERE = TopicPartition("topic", 3)
RECORDS = [Record(i, NOW + i, b"k%d" % i, b"v%d" % i, (("h", None),)) for i in range(4)]


def config(**overrides: object) -> LogConfig:
    texts = {name.replace("_", "."): str(value) for name, value in overrides.items()}
    return LogConfig.from_overrides(LogConfig(), texts)


def validate(
    batch: bytes, settings_: LogConfig | None = None, *, version: int = 13, from_client: bool = True
) -> ValidatedAppend:
    buffer = memoryview(bytearray(batch))
    target = AppendTarget(
        1000,
        7,
        NOW,
        settings_ or LogConfig(),
        WHERE,
        produce_version=version,
        from_client=from_client,
    )
    return validate_and_assign(buffer, target)


def validate_and_assign(records: memoryview, target: AppendTarget) -> ValidatedAppend:
    """As `Log.append_as_leader` does it."""
    config_ = target.config
    if target.from_client and config_.keeps_batches and target.produce_version >= 7:
        header = validator.place_plain(
            records, target.next_offset, target.leader_epoch, target.now_ms, config_
        )
        if header is not None:
            return ValidatedAppend(records, header)
    try:
        return validator.validate_slowly(records, target)
    except inspection.TooMuchAtOnceError as error:
        inspect_in_steps(error.inspection)
        return validator.validate_slowly(records, target, error.inspection)


def inspect_in_steps(large: Inspection) -> int:
    """As the broker does it; return the number of pauses."""
    large.keep_own_copy()
    large.decompress()
    pauses = sum(1 for _ in large.check())
    large.recompress()
    return pauses


def refused(
    batch: bytes, settings_: LogConfig | None = None, *, version: int = 13, from_client: bool = True
) -> StorageError:
    with pytest.raises(StorageError) as caught:
        validate(batch, settings_, version=version, from_client=from_client)
    return caught.value


def changed(batch: bytes, **fields: int) -> bytes:
    """The batch with header fields changed and its checksum put right again."""
    header: BatchHeader = read_header(batch)._replace(**fields)
    return assemble(header, batch[61:])


PLAIN = build_batch(RECORDS)


class TestPlainPath:
    def test_only_offset_and_epoch_are_written(self) -> None:
        buffer = memoryview(bytearray(PLAIN))
        done = validate_and_assign(buffer, AppendTarget(1000, 7, NOW, LogConfig(), WHERE))
        assert done.buffer is buffer
        assert done.header == read_header(buffer)
        assert (done.header.base_offset, done.header.leader_epoch) == (1000, 7)
        assert bytes(buffer[16:]) == PLAIN[16:]
        assert list(iter_records(buffer)) == [
            record._replace(offset=1000 + record.offset) for record in RECORDS
        ]

    @pytest.mark.parametrize("codec", list(Codec))
    def test_records_are_not_looked_at(self, codec: Codec) -> None:
        header = read_header(build_batch(RECORDS, codec=codec))
        garbage = assemble(header, b"not records at all")
        assert bytes(validate(garbage).buffer[16:]) == garbage[16:]

    @settings(derandomize=True, database=None, max_examples=400)
    @given(
        st.dictionaries(
            st.sampled_from([name for name in BatchHeader._fields if name != "crc"]),
            st.sampled_from([-(2**15), -2, -1, 0, 1, 2, 3, 4, 5, 8, 16, 32, 64, 127]),
            max_size=3,
        ),
        st.sampled_from([-1, 0, 1, HOUR, HOUR + 1]),
    )
    def test_it_takes_nothing_that_the_long_way_refuses(
        self, fields: dict[str, int], ahead: int
    ) -> None:
        """One condition against many checks: the same verdict, the same bytes, the same header."""
        fields = {
            name: max(-128, value) if name == "magic" else value for name, value in fields.items()
        }
        batch = changed(PLAIN, **{"max_timestamp": NOW + ahead, **fields})
        quick, slow = bytearray(batch), bytearray(batch)
        header = validator.place_plain(memoryview(quick), 1000, 7, NOW, LogConfig())
        try:
            expected = validator.validate_slowly(
                memoryview(slow), AppendTarget(1000, 7, NOW, LogConfig(), WHERE)
            )
        except StorageError:
            assert header is None
        if header is None:
            assert quick == batch
        else:
            assert (header, quick) == (expected.header, slow)

    def test_idempotent_and_transactional(self) -> None:
        batch = build_batch(
            RECORDS, producer_id=5, producer_epoch=1, base_sequence=0, transactional=True
        )
        assert validate(batch).header.is_transactional

    def test_a_batch_in_the_middle_of_a_buffer(self) -> None:
        buffer = memoryview(bytearray(b"before" + PLAIN + b"after"))
        validate_and_assign(buffer[6:-5], AppendTarget(5, 0, NOW, LogConfig(), WHERE))
        assert bytes(buffer[:6]) == b"before"
        assert bytes(buffer[-5:]) == b"after"
        assert read_header(buffer, 6).base_offset == 5


class TestShape:
    @pytest.mark.parametrize("length", [0, 5, 12, 16, 30, 60, len(PLAIN) - 1])
    def test_no_whole_batch(self, length: int) -> None:
        error = refused(PLAIN[:length])
        assert error.code == ErrorCode.INVALID_RECORD
        assert error.message == (
            "Produce requests with version 13 must have at least one record batch per partition"
        )

    @pytest.mark.parametrize("rest", [PLAIN, b"x"])
    def test_more_than_one_batch(self, rest: bytes) -> None:
        error = refused(PLAIN + rest, version=9)
        assert error.code == ErrorCode.INVALID_RECORD
        assert error.message == (
            "Produce requests with version 9 are only allowed to contain exactly one record batch"
            " per partition"
        )

    @pytest.mark.parametrize("magic", [0, 1])
    def test_old_formats(self, magic: int) -> None:
        old = bytearray(PLAIN)
        old[16] = magic
        error = refused(bytes(old))
        assert error.code == ErrorCode.INVALID_RECORD
        assert "magic version 2" in str(error)

    @pytest.mark.parametrize("magic", [3, 127, 255])
    def test_formats_that_are_none(self, magic: int) -> None:
        unknown = bytearray(PLAIN)
        unknown[16] = magic
        assert refused(bytes(unknown)).code == ErrorCode.CORRUPT_MESSAGE

    @pytest.mark.parametrize("length", [-1, 0, 13, 48])
    def test_lengths_that_are_too_small(self, length: int) -> None:
        small = bytearray(PLAIN)
        small[8:12] = length.to_bytes(4, "big", signed=True)
        assert refused(bytes(small)).code == ErrorCode.CORRUPT_MESSAGE

    @pytest.mark.parametrize("position", [17, 21, 40, 61, len(PLAIN) - 1])
    def test_a_wrong_checksum(self, position: int) -> None:
        broken = bytearray(PLAIN)
        broken[position] ^= 0x08
        error = refused(bytes(broken))
        assert error.code == ErrorCode.CORRUPT_MESSAGE
        assert "Record is corrupt (stored crc = " in str(error)

    @settings(derandomize=True, max_examples=200, deadline=None)
    @given(st.binary(max_size=120), st.sampled_from([b"", PLAIN[:20], PLAIN[:61]]))
    def test_garbage_is_refused_by_a_code(self, data: bytes, prefix: bytes) -> None:
        assert refused(prefix + data).code in {
            ErrorCode.INVALID_RECORD,
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        }


class TestSizes:
    def test_above_max_message_bytes(self) -> None:
        size = len(PLAIN)
        assert validate(PLAIN, config(max_message_bytes=size)).header.base_offset == 1000
        error = refused(PLAIN, config(max_message_bytes=size - 1))
        assert error.code == ErrorCode.MESSAGE_TOO_LARGE
        assert error.message == (
            f"The record batch size in the append to topic-3 is {size} bytes which exceeds the"
            f" maximum configured value of {size - 1})."
        )

    def test_above_segment_bytes(self) -> None:
        size = len(PLAIN)
        assert validate(PLAIN, config(internal_segment_bytes=size))
        error = refused(PLAIN, config(internal_segment_bytes=size - 1))
        assert error.code == ErrorCode.RECORD_LIST_TOO_LARGE

    def test_grown_by_recompression(self) -> None:
        batch = build_batch([Record(0, NOW, b"k", bytes(5000))], codec=Codec.ZSTD)
        limits = config(compression_type="uncompressed", max_message_bytes=1000)
        error = refused(batch, limits)
        assert error.code == ErrorCode.MESSAGE_TOO_LARGE
        assert "which exceeds the maximum configured size of 1000." in str(error)


class TestHeader:
    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"base_offset": 1}, "The baseOffset of the record batch in the append to topic-3"),
            ({"records_count": 3}, "Inconsistent batch offset range [0, 3] and count of records 3"),
            ({"last_offset_delta": 4}, "Inconsistent batch offset range [0, 4]"),
            ({"records_count": 0, "last_offset_delta": -1}, "invalid offset range: [0, -1]"),
            ({"records_count": 0}, "Invalid reported count for record batch: 0"),
            ({"records_count": -1, "last_offset_delta": 0}, "reported count for record batch: -1"),
            ({"attributes": 0x20}, "Clients are not allowed to write control records"),
            ({"producer_id": 5}, "Invalid sequence number -1 in record batch with producerId 5"),
        ],
    )
    def test_what_does_not_fit_together(self, fields: dict[str, int], words: str) -> None:
        error = refused(changed(PLAIN, **fields))
        assert error.code == ErrorCode.INVALID_RECORD
        assert words in str(error)

    def test_coordinators_write_control_batches(self) -> None:
        marker = build_end_transaction_marker(
            ControlType.COMMIT,
            producer_id=5,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=NOW,
        )
        assert refused(marker).code == ErrorCode.INVALID_RECORD
        # Never recompressed, whatever the topic says.
        done = validate(marker, config(compression_type="gzip"), from_client=False)
        assert (done.header.is_control, done.header.codec) == (True, Codec.NONE)

    @pytest.mark.parametrize("codec", [5, 6, 7])
    def test_unknown_codecs(self, codec: int) -> None:
        error = refused(changed(PLAIN, attributes=codec))
        assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR  # as Kafka

    @pytest.mark.parametrize("version", [3, 6, 7])
    def test_zstd_needs_produce_7(self, version: int) -> None:
        batch = build_batch(RECORDS, codec=Codec.ZSTD)
        if version >= 7:
            assert validate(batch, version=version).header.codec == Codec.ZSTD
            return
        error = refused(batch, version=version)
        assert error.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert error.message == (
            f"Produce requests with version {version} are not allowed to use ZStandard compression"
        )


class TestTimestamps:
    def test_too_far_ahead(self) -> None:
        batch = build_batch([Record(0, NOW, None, b""), Record(1, NOW + HOUR + 1, None, b"")])
        error = refused(batch)
        assert error.code == ErrorCode.INVALID_TIMESTAMP
        assert error.message == "One or more records have been rejected due to invalid timestamp"
        assert error.record_errors == (
            RecordError(
                batch_index=1,
                message=f"Timestamp {NOW + HOUR + 1} of message with offset 1 is out of range. The"
                f" timestamp should be within [{NOW - 2**63 + 1}, {NOW + HOUR}]",
            ),
        )

    def test_just_within(self) -> None:
        assert validate(build_batch([Record(0, NOW + HOUR, None, b"")]))
        assert validate(build_batch([Record(0, 0, None, b"")]))  # no lower limit by default

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
    def test_a_lower_limit_counts_for_each_record(self, codec: Codec) -> None:
        limits = config(message_timestamp_before_max_ms=10)
        times = [NOW, NOW - 11, NOW - 10, -1]
        batch = build_batch([Record(i, t, None, b"") for i, t in enumerate(times)], codec=codec)
        assert [e.batch_index for e in refused(batch, limits).record_errors] == [1]
        fine = build_batch([Record(0, NOW - 10, None, b""), Record(1, -1, None, b"")], codec=codec)
        done = validate(fine, limits)
        assert bytes(done.buffer[16:]) == fine[16:]

    def test_records_without_a_time(self) -> None:
        assert validate(build_batch([Record(0, -1, None, b"")])).header.max_timestamp == -1

    def test_the_time_of_the_append(self) -> None:
        done = validate(build_batch(RECORDS, codec=Codec.GZIP), config(**LOG_APPEND))
        assert done.header == read_header(done.buffer)
        assert crc_is_valid(done.buffer, done.header)
        assert (done.header.timestamp_type, done.header.max_timestamp) == (LOG_APPEND_TIME, NOW)
        assert {record.timestamp for record in iter_records(done.buffer)} == {NOW}

    def test_future_times_do_not_matter_then(self) -> None:
        batch = build_batch([Record(0, NOW * 2, None, b"")])
        assert validate(batch, config(**LOG_APPEND)).header.max_timestamp == NOW

    def test_producers_do_not_set_that_bit(self) -> None:
        batch = build_batch(RECORDS, timestamp_type=LOG_APPEND_TIME)
        error = refused(batch, config(**LOG_APPEND))
        assert error.code == ErrorCode.INVALID_TIMESTAMP
        assert len(error.record_errors) == len(RECORDS)
        # On a CreateTime topic Kafka takes the time and clears the bit.
        done = validate(batch)
        assert done.header.timestamp_type == CREATE_TIME
        assert crc_is_valid(done.buffer, read_header(done.buffer))

    def test_a_wrong_max_timestamp_is_put_right_where_it_is_seen(self) -> None:
        lying = changed(PLAIN, max_timestamp=NOW + 2 * HOUR)
        done = validate(lying)
        assert done.header.max_timestamp == NOW + 3
        assert bytes(done.buffer[16:]) == PLAIN[16:]


LOG_APPEND = {"message_timestamp_type": "LogAppendTime"}
COMPACT = {"cleanup_policy": "compact"}


class TestCompactedTopics:
    @pytest.mark.parametrize("codec", list(Codec))
    def test_every_record_needs_a_key(self, codec: Codec) -> None:
        keys = [b"a", None, b"", None, None, None]
        records = [Record(i, NOW, key, b"v") for i, key in enumerate(keys)]
        error = refused(build_batch(records, codec=codec), config(**COMPACT))
        assert error.code == ErrorCode.INVALID_RECORD
        text = "Compacted topic cannot accept message without key in topic partition topic-3"
        assert error.record_errors == tuple(
            RecordError(batch_index=index, message=text) for index in (1, 3, 4, 5)
        )
        shown = ", ".join(f"RecordError(batchIndex={i}, message='{text}')" for i in (1, 3, 4))
        assert error.message == (
            "One or more records have been rejected due to 4 record errors in total, and only"
            f" showing the first three errors at most: [{shown}]"
        )

    @pytest.mark.parametrize("codec", list(Codec))
    def test_good_batches_stay_as_they_are(self, codec: Codec) -> None:
        batch = build_batch(RECORDS, codec=codec)
        done = validate(batch, config(cleanup_policy="compact,delete"))
        assert bytes(done.buffer[16:]) == batch[16:]

    @pytest.mark.parametrize("codec", list(Codec))
    def test_malformed_records(self, codec: Codec) -> None:
        header = read_header(build_batch(RECORDS, codec=codec))
        error = refused(assemble(header, b"\x07not records"), config(**COMPACT))
        assert error.code == ErrorCode.INVALID_RECORD

    def test_offset_deltas_count_from_zero(self) -> None:
        gap = build_batch([RECORDS[0], RECORDS[2]])
        error = refused(changed(gap, last_offset_delta=1), config(**COMPACT))
        assert error.code == ErrorCode.INVALID_RECORD
        assert "offset delta 2 of record 1" in str(error)

    def test_a_large_record_in_a_small_batch(self) -> None:
        batch = build_batch([Record(0, NOW, b"k", bytes(1000))], codec=Codec.ZSTD)
        limits = config(**COMPACT, max_decompressed_message_bytes=1000)
        error = refused(batch, limits)
        assert error.code == ErrorCode.INVALID_RECORD
        assert "decompressed record of 1001 bytes" in str(error)
        plain = build_batch([Record(0, NOW, b"k", bytes(1000))])
        assert validate(plain, limits)  # the limit is for what is decompressed

    def test_the_brokers_own_batches_are_trusted(self) -> None:
        batch = build_batch([Record(0, NOW, None, b"v")])
        assert validate(batch, config(**COMPACT), from_client=False)


NAMES = {
    Codec.NONE: "uncompressed",
    Codec.GZIP: "gzip",
    Codec.SNAPPY: "snappy",
    Codec.LZ4: "lz4",
    Codec.ZSTD: "zstd",
}


class TestHeaderBudget:
    """A record of 60 million headers, to a compacted topic, ended a broker of 4 GiB."""

    @staticmethod
    def batch(headers: int, records: int = 1) -> bytes:
        each = (("", None),) * headers
        return build_batch(
            [Record(number, NOW, b"k", b"v", each) for number in range(records)], codec=Codec.GZIP
        )

    def test_headers_of_a_record(self) -> None:
        validate(self.batch(inspection.RECORD_HEADERS_MAX), config(**COMPACT))
        batch = self.batch(inspection.RECORD_HEADERS_MAX + 1)
        error = refused(batch, config(**COMPACT))
        assert error.code == ErrorCode.INVALID_RECORD
        assert "record with 2001 headers, at most 2000 are allowed" in error.message
        assert validate(batch).header.records_count == 1, "the broker does not look inside"

    def test_they_are_refused_before_one_is_read(self) -> None:
        batch = self.batch(100_000)
        tracemalloc.start()
        try:
            refused(batch, config(**COMPACT))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 1_000_000, "the two bytes of each, and copies of them"

    def test_headers_of_a_batch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(inspection, "BATCH_HEADERS_MAX", 100)
        validate(self.batch(20, 5), config(**COMPACT))
        error = refused(self.batch(20, 6), config(**COMPACT))
        assert error.code == ErrorCode.INVALID_RECORD
        assert "more than 100 record headers" in error.message


class TestRecompression:
    @pytest.mark.parametrize("source", list(Codec))
    @pytest.mark.parametrize("target", list(Codec))
    def test_to_the_topics_codec(self, source: Codec, target: Codec) -> None:
        batch = build_batch(
            RECORDS, codec=source, producer_id=9, producer_epoch=2, base_sequence=77
        )
        done = validate(batch, config(compression_type=NAMES[target]))
        header = read_header(done.buffer)
        assert done.header == header
        assert crc_is_valid(done.buffer, header)
        assert header.codec == target
        assert (header.base_offset, header.leader_epoch) == (1000, 7)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 77)
        assert [r._replace(offset=r.offset - 1000) for r in iter_records(done.buffer)] == RECORDS
        if source == target:
            assert bytes(done.buffer[16:]) == batch[16:]

    def test_with_the_time_of_the_append(self) -> None:
        done = validate(PLAIN, config(compression_type="zstd", **LOG_APPEND))
        assert crc_is_valid(done.buffer, done.header)
        assert {record.timestamp for record in iter_records(done.buffer)} == {NOW}

    def test_of_the_brokers_own_batches(self) -> None:
        done = validate(PLAIN, config(compression_type="gzip"), from_client=False)
        assert done.header.codec == Codec.GZIP

    def test_levels_are_used(self) -> None:
        text = b"".join(b"%d " % (i * i) for i in range(20_000))
        batch = build_batch([Record(0, NOW, b"k", text)])
        sizes = [
            len(validate(batch, config(compression_type="gzip", compression_gzip_level=n)).buffer)
            for n in (1, 9)
        ]
        assert sizes[0] > sizes[1]

    def test_malformed_input(self) -> None:
        broken = assemble(read_header(build_batch(RECORDS, codec=Codec.LZ4)), b"nonsense")
        for from_client in (True, False):
            error = refused(broken, config(compression_type="gzip"), from_client=from_client)
            assert error.code == ErrorCode.INVALID_RECORD

    def test_a_bomb(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(inspection, "BATCH_DECOMPRESSED_BYTES_MAX", 1_000_000)
        batch = build_batch([Record(0, NOW, b"k", bytes(2_000_000))], codec=Codec.ZSTD)
        assert len(batch) < 1000
        error = refused(batch, config(compression_type="gzip"))
        assert error.code == ErrorCode.INVALID_RECORD
