"""The cache of remote indexes on the local disk."""

from __future__ import annotations

import io
import random
import struct
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from support.logs import NOW, append, config, open_log
from support.remote import WatchedStore, copy_log
from tidelog.simulation.disk import MachineDiedError, SimDisk
from tidelog_protocol.primitives import uuid_to_str
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.remote.api import (
    IndexKind,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tidelog_storage.remote.chunks import CorruptRemoteDataError
from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.index_cache import FOLDER, REMOVE_DELAY_MS, IndexCache

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SETTINGS = config(internal_segment_bytes=2000, index_interval_bytes=100, retention_ms=-1)
ALL = 1 << 30


class World:
    """Ten remote segments, and caches of one life after the other."""

    def __init__(self, seed=0):
        self.disk = SimDisk(seed)
        self.disk.on_death = self.disk.kill
        self.reboot()
        self.files.make_dirs("data")
        self.log = open_log(self.files, settings=SETTINGS)
        for number in range(130):
            append(self.log, 1, size=100, timestamp=NOW + number)
        self.segments = copy_log(self.log, self.store, self.files)
        assert len(self.segments) >= 10
        self.store.fetched.clear()

    def reboot(self):
        self.disk.unwinding = False
        self.files = self.disk.files()
        self.store = WatchedStore(DirectoryStore(self.files, "tier"))

    def cache(self, capacity_bytes=ALL, **options):
        cache = IndexCache(self.files, "data", capacity_bytes, **options)
        cache.open(NOW)
        return cache

    def load(self, cache, segment, now_ms=NOW, **options):
        """As a reader would."""
        found = cache.get(segment.segment_id, now_ms)
        if found is None:
            cache.begin(segment.segment_id)
            try:
                found = cache.load(segment, self.store, **options)
            except RemoteStorageError:
                cache.give_up(segment.segment_id, now_ms)
                raise
            cache.put(segment, found, now_ms)
        return found

    def names(self):
        return self.files.list(f"data/{FOLDER}")

    def path(self, segment, ending):
        stem = f"{segment.start_offset}_{uuid_to_str(segment.segment_id.bytes)}"
        return f"data/{FOLDER}/{stem}{ending}"


@pytest.fixture
def world():
    return World()


def test_indexes_are_fetched_once_and_named_as_kafkas(world: World) -> None:
    cache = world.cache()
    segment = world.segments[3]
    indexes = world.load(cache, segment)
    assert world.load(cache, segment) is indexes
    assert len(world.store.fetched) == 2  # there is no transaction index, and the metadata says so
    stem = f"{segment.start_offset}_AAAAAAAAAAAAAAAAAAAABA"
    assert world.names() == [stem + ".index", stem + ".timeindex", stem + ".txnindex"]
    assert world.files.read_bytes(world.path(segment, ".txnindex")) == b""
    base = f"data/t-0/{segment.start_offset:020d}"
    for ending in (".index", ".timeindex"):
        assert world.files.read_bytes(world.path(segment, ending)) == world.files.read_bytes(
            base + ending
        )
    assert cache.bytes == indexes.size == sum(world.files.sizes(f"data/{FOLDER}").values())


def test_positions_and_times(world: World) -> None:
    local = next(iter(world.log.segments))
    indexes = world.load(world.cache(), world.segments[0], with_times=True)
    for offset in range(local.base_offset, world.segments[0].end_offset + 3):
        assert indexes.offsets.lookup(offset) == local.offset_index.lookup(offset)
    for timestamp in range(NOW - 1, NOW + 20):
        assert indexes.times.lookup(timestamp) == local.time_index.lookup(timestamp)
    assert world.load(world.cache(), world.segments[1]).times is None


def test_a_transaction_index_that_is_missing_is_an_empty_file(world: World) -> None:
    segment = replace(world.segments[0], txn_index_empty=False)
    indexes = world.load(world.cache(), segment)
    assert indexes.transactions == ()
    assert world.files.read_bytes(world.path(segment, ".txnindex")) == b""


def test_the_least_recently_used_go_first(world: World) -> None:
    size = world.load(world.cache(), world.segments[0]).size
    cache = world.cache(3 * size + size // 2)
    for segment in world.segments[:3]:
        world.load(cache, segment)
    world.load(cache, world.segments[0])
    world.load(cache, world.segments[3])
    kept = [segment.segment_id in cache for segment in world.segments[:4]]
    assert kept == [True, False, True, True]
    assert world.path(world.segments[1], ".index").rpartition("/")[2] not in world.names()
    assert cache.bytes <= 3 * size + size // 2
    cache.resize(1, NOW)  # the newest stays: a reader has just asked for it
    assert [segment.segment_id in cache for segment in world.segments[:4]] == [False] * 3 + [True]


def test_what_is_not_used_for_long_goes(world: World) -> None:
    cache = world.cache(ttl_ms=1000)
    world.load(cache, world.segments[0], NOW)
    world.load(cache, world.segments[1], NOW + 500)
    world.load(cache, world.segments[0], NOW + 900)
    cache.expire(NOW + 1500)
    assert [segment.segment_id in cache for segment in world.segments[:2]] == [True, False]
    forever = world.cache(ttl_ms=-1)
    world.load(forever, world.segments[2], NOW)
    forever.expire(NOW + 10**12)
    assert world.segments[2].segment_id in forever


def test_dropped_files_are_renamed_and_removed_later(world: World) -> None:
    cache = world.cache()
    indexes = world.load(cache, world.segments[0])
    cache.remove((world.segments[0].segment_id, UUID(int=99)), NOW)
    assert len(cache) == cache.bytes == 0
    assert [name.rpartition(".")[2] for name in world.names()] == ["deleted"] * 3
    assert cache.expire(NOW + REMOVE_DELAY_MS - 1) == []
    assert cache.has_removals
    due = cache.expire(NOW + REMOVE_DELAY_MS)
    cache.remove_files(due)
    assert world.names() == []
    assert not cache.has_removals
    assert indexes.offsets.lookup(5) >= 0  # whoever had it may go on


def test_a_segment_deleted_while_it_is_loaded_is_not_kept(world: World) -> None:
    cache = world.cache()
    segment = world.segments[0]
    cache.begin(segment.segment_id)
    indexes = cache.load(segment, world.store)
    cache.remove((segment.segment_id,), NOW)
    cache.put(segment, indexes, NOW)
    assert len(cache) == cache.bytes == 0
    assert [name.rpartition(".")[2] for name in world.names()] == ["deleted"] * 3


def test_what_is_being_loaded_is_not_evicted(world: World) -> None:
    cache = world.cache(1)
    first, second = world.segments[:2]
    world.load(cache, first)
    cache.begin(first.segment_id)  # again, with its time index
    world.load(cache, second)
    assert first.segment_id in cache
    cache.put(first, cache.load(first, world.store, with_times=True), NOW)
    assert [name for name in world.names() if name.startswith("0_") and "deleted" not in name]


def test_the_next_life_takes_whole_triples_and_nothing_else(world: World) -> None:
    cache = world.cache()
    for segment in world.segments[:4]:
        world.load(cache, segment)
    cache.close()
    cache.close()
    with pytest.raises(AssertionError, match="closed"):
        cache.get(world.segments[0].segment_id, NOW)
    files = world.files
    files.remove(world.path(world.segments[1], ".timeindex"))
    files.rename(
        world.path(world.segments[2], ".index"), world.path(world.segments[2], ".index.deleted")
    )
    strangers = {"x.tmp", "junk", "1_short.index"}
    for name in (*strangers, "1_AAAAAAAAAAAAAAAAAAAABA.index.tmp"):
        files.open(f"data/{FOLDER}/{name}", create=True).append((b"x",))
    world.store.fetched.clear()
    cache = world.cache()
    assert [segment.segment_id in cache for segment in world.segments[:4]] == [
        True,
        False,
        False,
        True,
    ]
    assert len(world.names()) == 6 + len(strangers)
    assert strangers < set(world.names()), "what no broker made stays"
    for name in strangers:
        files.remove(f"data/{FOLDER}/{name}")
    world.load(cache, world.segments[0])
    assert world.store.fetched == []
    assert cache.bytes == sum(world.files.sizes(f"data/{FOLDER}").values())


@pytest.mark.parametrize("ending", [".index", ".timeindex"])
@pytest.mark.parametrize("content", [b"x", b"\xff" * 24, bytes(24), b""])
def test_a_corrupt_file_of_the_cache_is_fetched_again(
    world: World, ending: str, content: bytes
) -> None:
    segment = world.segments[0]
    expected = world.load(world.cache(), segment, with_times=True)
    world.files.write_atomic(world.path(segment, ending), content)
    world.store.fetched.clear()
    cache = world.cache()
    indexes = world.load(cache, segment, with_times=True)
    if content:
        assert len(world.store.fetched) == 2
        assert indexes.offsets.offsets == expected.offsets.offsets
        assert indexes.times.timestamps == expected.times.timestamps


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: b"\xff" * len(data),
        lambda data: bytes(len(data)),
        lambda data: data * 100_000,
        lambda data: data[::-1],
    ],
)
def test_a_corrupt_answer_is_an_error_and_nothing_is_kept(
    world: World, change: Callable[[bytes], bytes]
) -> None:
    cache = world.cache()
    world.store.change = change
    for _ in range(2):
        with pytest.raises(CorruptRemoteDataError):
            world.load(cache, world.segments[0], with_times=True)
        assert len(cache) == 0
        assert world.names() == []
    world.store.change = lambda data: data
    assert world.load(cache, world.segments[0]).offsets


@pytest.mark.parametrize(
    "entry",
    [
        (0, 1, 500, 501, 502),  # of another segment
        (0, 1, 5, 3, 6),  # ends before it begins
        (1, 1, 0, 3, 4),  # of a version that nobody knows
    ],
)
def test_transactions_that_cannot_be_are_an_error(
    world: World, entry: tuple[int, int, int, int, int]
) -> None:
    segment = replace(world.segments[0], txn_index_empty=False)
    fetch = world.store.fetch_index
    answer = []

    def fetch_index(segment, kind):  # as of a store that keeps no sums of its own
        return io.BytesIO(*answer) if kind is IndexKind.TRANSACTION else fetch(segment, kind)

    world.store.fetch_index = fetch_index
    whole = struct.pack(">hqqqq", 0, 1, 0, 3, 4)
    for data in (struct.pack(">hqqqq", *entry), whole + b"torn"):
        answer[:] = [data]
        with pytest.raises(CorruptRemoteDataError):
            world.load(world.cache(), segment)
    answer[:] = [whole]
    assert world.load(world.cache(), segment).transactions[0].first_offset == 0


def test_errors_of_the_store_are_passed_on(world: World) -> None:
    cache = world.cache()
    for error in (RetriableRemoteStorageError("away"), RemoteResourceNotFound("gone")):
        world.store.error = error
        with pytest.raises(type(error)):
            world.load(cache, world.segments[0])
        assert (len(cache), world.names()) == (0, [])


def test_a_full_local_disk_is_an_error(world: World) -> None:
    world.disk.capacity_bytes = world.disk.used_bytes() + 10
    cache = world.cache()
    with pytest.raises(RemoteStorageError, match="full"):
        world.load(cache, world.segments[0])
    world.disk.capacity_bytes = None
    assert world.load(cache, world.segments[0])


@pytest.mark.parametrize("power_failure", [False, True])
def test_a_crash_in_any_file_operation_leaves_nothing_wrong(power_failure: bool) -> None:
    for operation in range(1, 40):
        world = World(operation)
        cache = world.cache(1)  # every load evicts the one before
        world.disk.die_at = world.disk.operations + operation
        try:
            for segment in world.segments[:3]:
                world.load(cache, segment)
        except MachineDiedError:
            died = True
        else:
            died = False
            world.disk.die_at = None
        if power_failure:
            world.disk.power_failure()
        world.reboot()
        cache = world.cache()
        assert len(world.names()) == 3 * len(cache)
        for number, segment in enumerate(world.segments[:4]):
            indexes = world.load(cache, segment, with_times=True)
            base = f"tier/{world.files.list('tier')[0]}"
            names = [n for n in world.files.list(base) if n.endswith(".index")]
            assert len(indexes.offsets) * 8 == len(
                world.files.read_bytes(f"{base}/{names[number]}")
            )
        if not died:
            break
    assert operation > 10


def test_random_use_keeps_the_figures(world: World) -> None:
    rng = random.Random(1)
    cache = world.cache(1500, ttl_ms=50)
    now = NOW
    for _ in range(400):
        now += rng.randint(0, 5)
        segment = rng.choice(world.segments)
        verb = rng.random()
        if verb < 0.8:
            world.load(cache, segment, now)
        elif verb < 0.9:
            cache.remove((segment.segment_id,), now)
        else:
            cache.resize(rng.choice([200, 1500, 5000]), now)
        cache.remove_files(cache.expire(now))
        live = {n: s for n, s in world.files.sizes(f"data/{FOLDER}").items() if "deleted" not in n}
        assert len(live) == 3 * len(cache)
        assert sum(live.values()) == cache.bytes


def test_a_folder_that_is_a_symbolic_link_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "a").write_bytes(b"a")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / FOLDER).symlink_to(tmp_path / "kept")
    with pytest.raises(OSError, match=f"{FOLDER} is a symbolic link, and none is followed"):
        IndexCache(OsFileSystem(), f"{tmp_path}/data", ALL).open(NOW)
    assert (tmp_path / "kept" / "a").read_bytes() == b"a"
