"""Walking over batches: across chunk borders, and up to what is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.logs import batch
from tidelog.simulation.disk import SimDisk
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.scan import batch_places, whole_batches
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog.simulation.disk_files import SimFile

SIZES = [10, 60_000, 10, 8_100, 300_000, 10, 1_200_000, 40, 5_000, 900_000, 20]


@pytest.fixture
def records():
    files = SimDisk(0).files()
    file = files.open("f", create=True)
    for offset, size in enumerate(SIZES):
        file.append((batch(1, size=size, base_offset=offset),))
    return file


def test_whole_batches_across_chunks(records: SimFile) -> None:
    found = list(whole_batches(records, 0, records.size()))
    assert [header.base_offset for _, header, _ in found] == list(range(len(SIZES)))
    for position, header, data in found:
        assert len(data) == header.size_in_bytes
        assert data == records.pread(position, len(data))


def test_whole_batches_stop_before_a_torn_one(records: SimFile) -> None:
    for cut in (1, 60, 61, 80):
        assert len(list(whole_batches(records, 0, records.size() - cut))) == len(SIZES) - 1


def test_whole_batches_stop_at_what_is_none(records: SimFile) -> None:
    positions = [position for position, _, _ in whole_batches(records, 0, records.size())]
    for at, change in ((16, 1), (8, 0x7F), (8, 0xFF)):
        kept = records.inode.data[positions[3] + at]
        records.inode.data[positions[3] + at] = change
        assert len(list(whole_batches(records, 0, records.size()))) == 3, at
        records.inode.data[positions[3] + at] = kept
    records.inode.data += bytes(100)
    assert len(list(whole_batches(records, 0, records.size()))) == len(SIZES)


def test_places(records: SimFile) -> None:
    found = list(batch_places(records, 0, records.size()))
    expected = [
        (position, header.size_in_bytes, header.base_offset, header.last_offset)
        for position, header, _ in whole_batches(records, 0, records.size())
    ]
    assert found == expected
    assert list(batch_places(records, found[4].position, records.size())) == expected[4:]
    assert list(batch_places(records, records.size(), records.size())) == []


def test_places_refuse_what_is_none(records: SimFile) -> None:
    records.inode.data += bytes(100)
    with pytest.raises(StorageError) as caught:
        list(batch_places(records, 0, records.size()))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
