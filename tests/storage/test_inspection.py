"""Large batches are not looked into at once: a budget of bytes, records and headers, then steps."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from tidelog_protocol.batch import read_header
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import Codec, Record, build_batch
from tidelog_storage import inspection, validator
from tidelog_storage.config import LogConfig
from tidelog_storage.inspection import AppendTarget, TooMuchAtOnceError
from tidelog_storage.types import StorageError, TopicPartition

NOW = 1_700_000_000_000
COMPACTED = {"cleanup.policy": "compact", "max.message.bytes": "9999999"}
AT_ONCE = inspection.ITEMS_AT_ONCE


def batch(
    records: int = 1, *, value: bytes = b"v", headers: int = 0, codec: Codec = Codec.ZSTD
) -> memoryview:
    each = (("", None),) * headers
    listed = [Record(n, NOW + n % 7, b"k", value, each) for n in range(records)]
    return memoryview(bytearray(build_batch(listed, codec=codec)))


def target(*, from_client: bool = True, **settings: str) -> AppendTarget:
    config = LogConfig.from_overrides(LogConfig(), settings or COMPACTED)
    where = TopicPartition("t", 0)
    return AppendTarget(1000, 7, NOW, config, where, from_client=from_client)


@pytest.mark.parametrize(
    "large",
    [
        batch(AT_ONCE + 1),
        batch(value=bytes(inspection.BYTES_AT_ONCE), codec=Codec.NONE),
        *(batch(value=bytes(inspection.BYTES_AT_ONCE), codec=codec) for codec in list(Codec)[1:]),
        batch(2, headers=AT_ONCE // 2 + 1),
    ],
    ids=["records", "bytes", "gzip", "snappy", "lz4", "zstd", "headers"],
)
def test_a_large_batch_is_left_alone(large: memoryview) -> None:
    before = bytes(large)
    with pytest.raises(TooMuchAtOnceError):
        validator.validate_slowly(large, target())
    assert bytes(large) == before


@pytest.mark.parametrize("settings", [COMPACTED, {"compression.type": "lz4"}])
def test_steps_give_what_an_append_at_once_gives(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    large = batch(AT_ONCE + 1)
    own, again = memoryview(bytearray(large)), memoryview(bytearray(large))
    with pytest.raises(TooMuchAtOnceError) as caught:
        validator.validate_slowly(own, target(**settings))
    steps = caught.value.inspection
    steps.keep_own_copy()
    own[:] = bytes(len(own))  # the receive buffer has other bytes by then
    steps.decompress()
    pauses = sum(1 for _ in steps.check())
    steps.recompress()
    appended = validator.validate_slowly(own, target(**settings), steps)
    assert pauses == AT_ONCE // inspection.SLICE_ITEMS
    monkeypatch.setattr(inspection, "ITEMS_AT_ONCE", 100_000)
    at_once = validator.validate_slowly(again, target(**settings))
    assert bytes(appended.buffer) == bytes(at_once.buffer)
    assert appended.header == at_once.header == read_header(appended.buffer)


def test_a_slice_counts_headers_as_well() -> None:
    steps = inspection.Inspection(large := batch(4, headers=1000), read_header(large), target())
    steps.decompress()
    assert list(steps.check()) == [1000, 2001, 3002, 4003]


def test_a_refusal_is_raised_by_the_append() -> None:
    large = batch(AT_ONCE + 1)
    large[-1] ^= 1
    steps = inspection.Inspection(large, read_header(large), target())
    steps.decompress()
    assert list(steps.check()) == []
    steps.recompress()
    with pytest.raises(StorageError, match="zstd") as caught:
        validator.validate_slowly(large, target(), steps)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_records_of_a_batch_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "BATCH_RECORDS_MAX", 10)
    assert validator.validate_slowly(batch(10), target()).header.records_count == 10
    with pytest.raises(StorageError, match="batch with more than 10 records"):
        validator.validate_slowly(batch(11), target())


def test_the_brokers_own_batches_are_never_left_alone() -> None:
    large = batch(AT_ONCE + 1)
    own = target(from_client=False, **{"compression.type": "gzip"})
    assert validator.validate_slowly(large, own).header.codec == Codec.GZIP


def test_a_refused_batch_keeps_no_memory() -> None:
    large = batch(headers=inspection.RECORD_HEADERS_MAX + 1, value=bytes(3 << 20))
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        steps = inspection.Inspection(large, read_header(large), target())
        steps.decompress()
        assert list(steps.check()) == []
        steps.recompress()
        with pytest.raises(StorageError, match="2001 headers"):
            validator.validate_slowly(large, target(), steps)
        del steps
        left, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left < 1 << 20, peak


def test_a_large_batch_that_grows_above_the_limit_is_refused() -> None:
    large = batch(AT_ONCE + 1, codec=Codec.ZSTD)
    settings = {"compression.type": "uncompressed", "max.message.bytes": str(len(large))}
    steps = inspection.Inspection(large, read_header(large), target(**settings))
    steps.decompress()
    assert sum(1 for _ in steps.check()) > 0
    steps.recompress()
    with pytest.raises(StorageError) as caught:
        validator.validate_slowly(steps.buffer, target(**settings), steps)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
