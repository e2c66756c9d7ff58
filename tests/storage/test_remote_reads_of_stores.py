"""A log read back from every remote store, whole and damaged."""

from __future__ import annotations

import pytest

from support.logs import NOW, append, config, open_log
from support.remote import PARTITION, KnownSegments, LogView, WatchedStore, copy_log
from support.remote_reads import InlineLoader, at_once
from tidelog.tiered.reads.reader import RemoteRead, read, search
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.remote.api import RemoteResourceNotFound
from tidelog_storage.remote.chunk_cache import ChunkCache
from tidelog_storage.remote.chunks import CorruptRemoteDataError
from tidelog_storage.remote.index_cache import IndexCache
from tidelog_storage.remote.sources import Sources

SETTINGS = config(internal_segment_bytes=30_000, index_interval_bytes=1000, retention_ms=-1)


class Reader:
    def __init__(self, place, tmp_path):
        self.files = OsFileSystem(syncs=False)
        self.log = open_log(self.files, tmp_path / "log/t-0", SETTINGS)
        for number in range(160):
            append(self.log, 3, size=300, timestamp=NOW + 10 * number, leader_epoch=number // 50)
        self.store = WatchedStore(place.open_store())
        self.segments = copy_log(self.log, self.store, self.files)
        assert len(self.segments) > 3
        self.metadata = KnownSegments(self.segments)
        self.view = LogView(self.log, self.log.segments.active.base_offset)
        self.folder = tmp_path / "cache"
        self.forget()

    def forget(self):
        cache = IndexCache(self.files, str(self.folder), 1 << 20)
        cache.open(NOW)
        cache.remove([segment.segment_id for segment in self.segments], NOW)
        self.loader = InlineLoader(Sources(self.store, cache, ChunkCache(chunk_bytes=5000)))

    def run(self, work):
        return at_once(work)

    def read_all(self):
        data, offset = [], 0
        while offset < self.view.local_log_start_offset:
            request = RemoteRead(PARTITION, offset, 4000, committed=True)
            records = self.run(read(request, self.view, self.metadata, self.loader))
            assert records.aborted == []
            data += records.parts
            offset = records.next_offset
        return b"".join(data)

    def local(self):
        data, offset = [], 0
        while offset < self.view.local_log_start_offset:
            records = self.log.read(offset, 4000, upper_bound=self.log.log_end_offset)
            data += records.parts
            offset = records.next_offset
        return b"".join(data)


@pytest.fixture
def reader(place, tmp_path):
    reader = Reader(place, tmp_path)
    yield reader
    reader.log.close()
    reader.store.close()


def test_a_log_comes_back_byte_for_byte(reader: Reader) -> None:
    assert reader.read_all() == reader.local()
    assert reader.store.bytes_fetched(of_log=True) == len(reader.local())


def test_offsets_by_time(reader: Reader) -> None:
    for timestamp in (0, NOW + 55, NOW + 700):
        found = reader.run(
            search(timestamp, PARTITION, reader.view, reader.metadata, reader.loader)
        )
        assert found == reader.log.offset_for_timestamp(timestamp)


def test_damage_is_an_error_until_it_is_undone(reader: Reader) -> None:
    for change in (
        lambda data: data[:-1],
        lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:] if len(data) > 1000 else data,
        lambda data: b"",
    ):
        reader.forget()
        reader.store.change = change
        with pytest.raises(CorruptRemoteDataError):
            reader.read_all()
        reader.store.change = lambda data: data
        assert reader.read_all() == reader.local()


def test_a_missing_segment_raises_its_own_error(reader: Reader) -> None:
    reader.store.delete_segment(reader.segments[1])
    with pytest.raises(RemoteResourceNotFound):
        reader.read_all()
