"""Reads of the remote tier: the same batches as a local read gives, of the log's own lineage."""

from __future__ import annotations

import random

import pytest

from support.logs import NOW, append, batch, config, open_log
from support.remote import (
    PARTITION,
    KnownSegments,
    LogView,
    WatchedStore,
    copy_log,
    remote_segment,
    segment_files,
)
from support.remote_reads import InlineLoader, at_once
from tidelog.simulation.disk import SimDisk
from tidelog.tiered.reads.reader import RemoteRead, read, search
from tidelog_protocol.records import ControlType, build_end_transaction_marker, iter_batches
from tidelog_storage.remote.api import RemoteResourceNotFound, SegmentState
from tidelog_storage.remote.chunk_cache import ChunkCache
from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.index_cache import IndexCache
from tidelog_storage.remote.sources import Sources

SETTINGS = config(internal_segment_bytes=3000, index_interval_bytes=300, retention_ms=-1)


class Tier:
    """A log that is all copied but its active segment, and what reads it back."""

    def __init__(self, settings=SETTINGS, *, chunk_bytes=700, capacity_bytes=1 << 20):
        self.disk = SimDisk(0)
        self.files = self.disk.files()
        self.files.make_dirs("data")
        self.settings = settings
        self.log = open_log(self.files, settings=settings)
        self.store = WatchedStore(DirectoryStore(self.files, "tier"))
        self.cache = IndexCache(self.files, "data", 1 << 30)
        self.cache.open(NOW)
        chunks = ChunkCache(capacity_bytes, chunk_bytes=chunk_bytes)
        self.loader = InlineLoader(Sources(self.store, self.cache, chunks))
        self.metadata = KnownSegments()
        self.segments = []

    def copy(self, **options):
        copied = copy_log(self.log, self.store, self.files, **options)
        self.metadata.add(*copied)
        self.segments += copied
        self.view = LogView(self.log, self.log.segments.active.base_offset)
        return copied

    def read(self, offset, max_bytes=1 << 20, **options):
        request = RemoteRead(PARTITION, offset, max_bytes, **options)
        return at_once(read(request, self.view, self.metadata, self.loader))

    def search(self, timestamp):
        return at_once(search(timestamp, PARTITION, self.view, self.metadata, self.loader))

    def read_all(self, start=0, max_bytes=1 << 20, **options):
        data = []
        offset = start
        while offset < self.view.local_log_start_offset:
            records = self.read(offset, max_bytes, **options)
            data += records.parts
            assert sum(map(len, records.parts)) == records.size
            assert records.next_offset > offset
            offset = records.next_offset
        return b"".join(data)

    def local(self, start=0, stop=None):
        """The same from the log itself."""
        stop = self.view.local_log_start_offset if stop is None else stop
        data = []
        offset = start
        while offset < stop:
            records = self.log.read(offset, 1 << 20, upper_bound=self.log.log_end_offset)
            data += records.parts
            offset = records.next_offset
        return b"".join(data)


def grown(seed=0, batches=60, settings=SETTINGS, **options):
    """Batches of several sizes under rising epochs."""
    tier = Tier(settings, **options)
    rng = random.Random(seed)
    epoch = 0
    for number in range(batches):
        epoch += rng.random() < 0.1
        size = rng.choice([10, 50, 400])
        append(
            tier.log,
            rng.randint(1, 4),
            size=size,
            leader_epoch=epoch,
            timestamp=NOW + 100 * number,
        )
    tier.copy()
    assert len(tier.segments) > 3
    return tier


def bounds(data):
    return [(header.base_offset, header.last_offset) for _, header in iter_batches(data)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("chunk_bytes", [100, 700, 1 << 20])
def test_all_batches_come_back_once_and_in_order(seed: int, chunk_bytes: int) -> None:
    tier = grown(seed, chunk_bytes=chunk_bytes)
    for max_bytes in (1, 500, 2000, 1 << 20):
        assert tier.read_all(max_bytes=max_bytes) == tier.local()


@pytest.mark.parametrize("seed", range(3))
def test_a_read_begins_with_the_batch_that_holds_its_offset(seed: int) -> None:
    tier = grown(seed, chunk_bytes=600)
    everything = bounds(tier.local())
    for offset in range(tier.view.local_log_start_offset):
        for max_bytes in (0, 700, 5000):
            records = tier.read(offset, max_bytes)
            data = b"".join(records.parts)
            found = bounds(data)
            expected = [pair for pair in everything if pair[1] >= offset][: len(found)]
            assert found == expected
            assert records.size == len(data) > 0
            assert records.size <= max_bytes or len(found) == 1
            assert records.next_offset == found[-1][1] + 1


@pytest.mark.parametrize("chunk_bytes", [100, 700, 1 << 20])
@pytest.mark.parametrize("seed", range(3))
def test_a_read_returns_where_the_next_one_begins(seed: int, chunk_bytes: int) -> None:
    """If an epoch ended with a chunk, and the next chunk was in memory, that was passed over."""
    tier = grown(seed, chunk_bytes=chunk_bytes)
    places = {}
    for segment in tier.segments:
        with tier.store.fetch_segment(segment, 0) as stream:
            for position, header in iter_batches(stream.read()):
                places[header.base_offset] = (segment, position)
    for max_bytes in (1, 500, 2000, 1 << 20):  # after the first round, all is in memory
        offset = 0
        while offset < tier.view.local_log_start_offset:
            records = tier.read(offset, max_bytes)
            segment, position = records.place
            if records.next_offset > segment.end_offset:
                assert position == segment.size
            else:
                assert places[records.next_offset] == (segment, position)
            offset = records.next_offset


def test_the_first_batch_is_left_out_if_it_need_not_come() -> None:
    tier = Tier()
    for _ in range(20):
        append(tier.log, 1, size=300)
    tier.copy()
    records = tier.read(0, 100, min_one_batch=False)
    assert (records.size, records.next_offset, list(records.parts)) == (0, 0, [])
    assert bounds(b"".join(tier.read(0, 100).parts)) == [(0, 0)]
    assert bounds(b"".join(tier.read(0, 800, min_one_batch=False).parts)) == [(0, 0), (1, 1)]


def test_a_read_takes_no_more_than_is_in_memory_once_it_has_something() -> None:
    tier = grown(chunk_bytes=600)
    first = tier.read(0)
    assert first.size <= 1200
    before = len(tier.store.fetched)
    assert tier.read(0).size == first.size
    assert len(tier.store.fetched) == before


def test_offsets_outside_of_the_tier_are_not_found() -> None:
    tier = grown()
    tier.view.log_start_offset = 3
    for offset in (-1, 2, tier.log.log_end_offset):
        with pytest.raises(RemoteResourceNotFound):
            tier.read(offset)
    tier.metadata.update(tier.segments[0], SegmentState.DELETE_SEGMENT_STARTED)
    with pytest.raises(RemoteResourceNotFound):
        tier.read(3)


def test_a_gap_at_a_segments_end_goes_on_in_the_next_one() -> None:
    """As compaction leaves them: the metadata's offsets reach further than the records."""
    tier = Tier()
    files, log = tier.files, tier.log
    append(log, 2)
    log.roll(NOW)
    append(log, 2)
    log.roll(NOW)
    first, second = copy_log(log, tier.store, files)
    path = f"{log.folder}/{0:020d}"
    data = files.read_bytes(f"{path}.log")
    longer = remote_segment(7, 0, 9, size=first.size)
    sources = segment_files("data", data, txn_index=None, write=files.write_atomic)
    files.write_atomic(sources.offset_index, b"")
    files.write_atomic(sources.time_index, b"")
    tier.store.copy_segment(longer, sources)
    moved = remote_segment(8, 10, 11, size=second.size, epochs=((0, 10),))
    shifted = bytearray(files.read_bytes(f"{log.folder}/{2:020d}.log"))
    shifted[:8] = (10).to_bytes(8, "big")
    files.write_atomic(sources.log, bytes(shifted))
    tier.store.copy_segment(moved, sources)
    tier.metadata.add(longer, moved)
    tier.view = LogView(log, 12)
    log.log_end_offset = 12
    assert bounds(b"".join(tier.read(2).parts)) == [(10, 11)]
    assert bounds(b"".join(tier.read(9).parts)) == [(10, 11)]
    assert bounds(b"".join(tier.read(1).parts)) == [(0, 1)]
    tier.view = LogView(log, 10)  # and if the next one is local, the reader is told where
    tier.metadata.update(moved, SegmentState.DELETE_SEGMENT_STARTED)
    records = tier.read(5, committed=True)
    assert (records.size, records.next_offset, records.aborted) == (0, 10, ())


# ---- lineage -------------------------------------------------------------------------------------


def test_a_read_is_cut_where_its_epoch_ends_in_the_lineage() -> None:
    """KIP-405 scenario 3: the copied segment goes on with records that an unclean election lost."""
    tier = Tier()
    dead = open_log(tier.files, "data/dead-0", SETTINGS)
    for _ in range(3):
        append(dead, 2, leader_epoch=0)
    dead.roll(NOW)
    copied = copy_log(dead, tier.store, tier.files)
    assert [segment.end_offset for segment in copied] == [5]
    tier.metadata.add(*copied)
    live = open_log(tier.files, "data/live-0", SETTINGS)
    append(live, 2, leader_epoch=0)
    append(live, 2, leader_epoch=3, size=99)
    append(live, 2, leader_epoch=3, size=99)
    live.roll(NOW)
    tier.view = LogView(live, 6)
    tier.log = live
    assert bounds(b"".join(tier.read(0).parts)) == [(0, 1)]
    with pytest.raises(RemoteResourceNotFound):
        tier.read(2)
    tier.metadata.add(*copy_log(live, tier.store, tier.files, first_id=5))
    assert tier.read_all() == tier.local()
    assert bounds(b"".join(tier.read(2).parts)) == [(2, 3), (4, 5)]


def test_a_dead_branch_hides_nothing() -> None:
    """KIP-405 scenario 5: two segments of one start offset, in either order."""
    for order in (1, -1):
        tier = Tier()
        live = open_log(tier.files, "data/live-0", SETTINGS)
        append(live, 2, leader_epoch=0)
        append(live, 2, leader_epoch=2)
        live.roll(NOW)
        dead = open_log(tier.files, "data/dead-0", SETTINGS)
        append(dead, 1, leader_epoch=0)
        append(dead, 4, leader_epoch=1)
        dead.roll(NOW)
        copied = copy_log(live, tier.store, tier.files, first_id=1)
        copied += copy_log(dead, tier.store, tier.files, first_id=2)
        tier.metadata.add(*copied[::order])
        tier.log, tier.view = live, LogView(live, 4)
        assert tier.read_all() == tier.local()


def test_a_read_is_cut_where_its_epoch_ends_in_the_segment() -> None:
    """The branch left the epoch before the log did, and only its copy holds the first offsets."""
    tier = Tier()
    dead = open_log(tier.files, "data/dead-0", SETTINGS)
    append(dead, 2, leader_epoch=0)
    append(dead, 3, leader_epoch=1)
    dead.roll(NOW)
    live = open_log(tier.files, "data/live-0", SETTINGS)
    for _ in range(2):
        append(live, 1, leader_epoch=0)
    live.roll(NOW)
    append(live, 3, leader_epoch=0, size=99)
    append(live, 1, leader_epoch=2, size=99)
    live.roll(NOW)
    copied = copy_log(live, tier.store, tier.files, first_id=1)
    assert [segment.start_offset for segment in copied] == [0, 2]
    tier.metadata.add(*copy_log(dead, tier.store, tier.files, first_id=5), copied[1])
    tier.log, tier.view = live, LogView(live, 6)
    assert bounds(b"".join(tier.read(0).parts)) == [(0, 1)]
    assert bounds(b"".join(tier.read(2).parts)) == [(2, 4)]
    assert b"".join(tier.read(2).parts) + b"".join(tier.read(5).parts) == tier.local(2)
    assert tier.search(NOW + 2).offset == 4


# ---- aborted transactions ------------------------------------------------------------------------


def transactional(log, producer_id, sequence, count=1, size=300):
    log.append_as_leader(
        batch(
            count,
            size=size,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        ),
        leader_epoch=0,
        now_ms=NOW,
    )


def mark(log, producer_id, kind):
    marker = build_end_transaction_marker(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
    )
    log.append_as_leader(
        memoryview(bytearray(marker)), leader_epoch=0, now_ms=NOW, from_client=False
    )
    log.set_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("seed", range(8))
def test_aborted_transactions_are_those_of_a_local_read(seed: int) -> None:
    rng = random.Random(seed)
    tier = Tier(config(internal_segment_bytes=1500, index_interval_bytes=300, retention_ms=-1))
    log = tier.log
    sequences = dict.fromkeys(range(1, 5), 0)
    is_open = dict.fromkeys(sequences, False)
    for _ in range(70):
        producer_id = rng.choice(list(sequences))
        if is_open[producer_id] and rng.random() < 0.4:
            mark(log, producer_id, rng.choice([ControlType.ABORT, ControlType.COMMIT]))
            is_open[producer_id] = False
        else:
            transactional(log, producer_id, sequences[producer_id])
            sequences[producer_id] += 1
            is_open[producer_id] = True
    for producer_id in [key for key, value in is_open.items() if value]:
        mark(log, producer_id, ControlType.ABORT)
    tier.copy()
    assert any(not segment.txn_index_empty for segment in tier.segments)
    for remote_until in (len(tier.segments), len(tier.segments) // 2):
        boundary = tier.segments[remote_until - 1].end_offset + 1
        tier.view = LogView(log, boundary)
        for offset in range(0, boundary, 3):
            records = tier.read(offset, 900, committed=True)
            expected = log.aborted_transactions(offset, records.next_offset)
            assert sorted(records.aborted) == sorted(set(expected))
        assert tier.read(0).aborted is None


def test_a_follower_without_the_marker_gives_no_record_of_an_aborted_transaction() -> None:
    """Its log begins behind a remote segment in which the transaction is open; the leader has the
    marker locally, and has copied the segment after it."""
    tier = Tier()
    log = tier.log
    append(log, 3)
    transactional(log, 7, 0)
    append(log, 2)
    log.roll(NOW)
    mark(log, 7, ControlType.ABORT)
    (segment,) = tier.copy()
    settings = config(remote_storage_enable=True)
    follower = open_log(tier.files, "data/follower-0", settings, remote_storage_system_enable=True)
    follower.restart_from_remote(
        segment.end_offset + 1,
        log_start=0,
        epochs=log.epochs.entries_in_range(0, segment.end_offset + 1),
        snapshot=tier.files.read_bytes(log.producers.snapshot_path(segment.end_offset + 1)),
    )
    assert (follower.local_log_start_offset, follower.last_stable_offset) == (6, 3)
    tier.view = follower
    assert tier.read(0, committed=False).next_offset == 6
    read = tier.read(0, committed=True)
    assert (read.next_offset, read.aborted) == (3, [])
    assert tier.read(3, committed=True)[:3] == ((), 0, 3)
    data = log.read(6, 1 << 20, upper_bound=log.log_end_offset).parts
    follower.append_as_follower(memoryview(b"".join(data)), leader_epoch=0, now_ms=NOW)
    follower.set_high_watermark(follower.log_end_offset)
    read = tier.read(0, committed=True)
    assert (read.next_offset, read.aborted) == (6, [(7, 3)])


def test_the_marker_of_a_dead_branch_aborts_nothing() -> None:
    tier = Tier()
    dead = open_log(tier.files, "data/dead-0", SETTINGS)
    transactional(dead, 1, 0)
    mark(dead, 1, ControlType.ABORT)
    dead.roll(NOW)
    live = open_log(tier.files, "data/live-0", SETTINGS)
    transactional(live, 1, 0)
    append(live, 1, leader_epoch=4)
    mark_of_live = build_end_transaction_marker(
        ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
    )
    live.append_as_leader(
        memoryview(bytearray(mark_of_live)), leader_epoch=4, now_ms=NOW, from_client=False
    )
    live.set_high_watermark(live.log_end_offset)
    tier.metadata.add(*copy_log(dead, tier.store, tier.files))
    tier.log, tier.view = live, LogView(live, 1)
    records = tier.read(0, committed=True)
    assert bounds(b"".join(records.parts)) == [(0, 0)]
    assert records.aborted == []


def test_a_marker_below_the_log_start_of_a_forgotten_epoch_aborts_nothing() -> None:
    """Records were deleted up to where the epoch changes before their segment was copied."""
    tier = Tier()
    log = tier.log
    transactional(log, 1, 0)
    mark(log, 1, ControlType.ABORT)
    append(log, 1, leader_epoch=4)
    log.set_high_watermark(log.log_end_offset)
    assert log.maybe_increment_log_start(2, "test")
    log.roll(NOW)
    (segment,) = tier.copy()
    assert (segment.start_offset, segment.epochs) == (0, ((4, 2),))
    records = tier.read(2, committed=True)
    assert bounds(b"".join(records.parts)) == [(2, 2)]
    assert records.aborted == []


# ---- by time -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_offsets_by_time_are_those_of_a_local_look_up(seed: int) -> None:
    tier = grown(seed, batches=40)
    newest = NOW + 100 * 40
    for timestamp in [0, NOW - 1, *range(NOW, newest, 37), newest + 1000]:
        expected = tier.log.offset_for_timestamp(timestamp)
        if expected is not None and expected.offset >= tier.view.local_log_start_offset:
            expected = None
        assert tier.search(timestamp) == expected


def test_offsets_by_time_begin_at_the_log_start() -> None:
    tier = grown(1)
    for log_start in (5, 17, 30):
        tier.view.log_start_offset = log_start
        assert tier.search(0).offset == log_start


def test_segments_that_are_too_old_are_not_fetched() -> None:
    tier = grown(2)
    last = tier.segments[-1]
    tier.store.fetched.clear()
    found = tier.search(last.max_timestamp)
    assert last.start_offset <= found.offset <= last.end_offset
    assert {segment_id for segment_id, _, _ in tier.store.fetched} == {last.segment_id}
    tier.view.local_log_start_offset = last.start_offset
    tier.store.fetched.clear()
    assert tier.search(last.max_timestamp) is None
    assert tier.store.fetched == []


def test_a_search_over_many_segments_pauses() -> None:
    tier = Tier(config(internal_segment_bytes=130, retention_ms=-1))
    for _ in range(450):
        append(tier.log, 1)
    segments = [remote_segment(n + 1, n, n, epochs=((0, n),)) for n in range(449)]
    tier.metadata.add(*segments)
    tier.view = LogView(tier.log, 449)
    assert tier.search(NOW + 10) is None
