"""What `tidelog tiers verify` finds: every object of a segment, damaged in every way, on stores
with and without a manifest; and nothing where nothing is wrong."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from support.logs import NOW, append, batch, open_log
from support.remote import copy_candidates
from tidelog_protocol.records import ControlType, build_end_transaction_marker
from tidelog_storage.config import LogConfig
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.remote.api import (
    IndexKind,
    RemoteResourceNotFound,
    RetriableRemoteStorageError,
)
from tidelog_storage.remote.checks import UnreadableStoreError, check_segment
from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.layout import INDEX_ENDINGS, folder_name, object_name

if TYPE_CHECKING:
    from pathlib import Path

    from support.remote_places import DirectoryPlace, S3Place
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import RemoteSegment, RemoteStorage

SETTINGS = LogConfig({"internal.segment.bytes": 1 << 20, "index.interval.bytes": 200})
ENDINGS = (".log", ".manifest.json", *INDEX_ENDINGS.values())
WAYS = {
    "bit": lambda data: bytes([*data[:-1], data[-1] ^ 1]),
    "first": lambda data: bytes([data[0] ^ 0x40, *data[1:]]),
    "cut": lambda data: data[: len(data) // 2],
    "emptied": lambda data: b"",
    "removed": lambda data: None,
}


def grow(log, first_sequence, epoch, size):
    """A segment: records of two epochs, of a producer, two transactions of which one is aborted."""
    for number in range(6):
        append(
            log, leader_epoch=epoch + number // 3, timestamp=NOW + size * (number % 4), size=size
        )
    for number, kind in enumerate((ControlType.ABORT, ControlType.COMMIT)):
        log.append_as_leader(
            batch(
                producer_id=9,
                producer_epoch=0,
                base_sequence=first_sequence + number,
                transactional=True,
            ),
            leader_epoch=epoch + 1,
            now_ms=NOW,
        )
        marker = build_end_transaction_marker(
            kind, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
        )
        log.append_as_leader(
            memoryview(bytearray(marker)), leader_epoch=epoch + 1, now_ms=NOW, from_client=False
        )
    log.set_high_watermark(log.log_end_offset)
    log.roll(NOW)


@pytest.fixture
def log(tmp_path):
    log = open_log(OsFileSystem(), tmp_path / "t-0", SETTINGS)
    grow(log, 0, 0, 200)
    grow(log, 2, 2, 201)
    append(log, leader_epoch=3)
    log.roll(NOW)
    return log


# ---- our own stores ------------------------------------------------------------------------------


def path_of(segment, ending):
    return f"{folder_name(segment.topic_id_partition)}/{object_name(segment, ending)}"


def test_any_damage_to_any_object_is_found(
    place: DirectoryPlace | S3Place, store: RemoteStorage, log: Log
) -> None:
    first, second, last = copy_candidates(log, store)
    assert [check_segment(store, each) for each in (first, second, last)] == [[], [], []]
    assert (first.txn_index_empty, last.txn_index_empty) == (False, True)
    for ending in ENDINGS:
        name = path_of(first, ending)
        data = place.read(name)
        for way, damage in WAYS.items():
            place.put(name, damage(data))
            assert check_segment(store, first), (ending, way)
        place.put(name, place.read(path_of(second, ending)))
        assert check_segment(store, first), (ending, "another segment's")
        place.put(name, data)
        assert check_segment(store, first) == []
    assert [check_segment(store, each) for each in (second, last)] == [[], []]


def test_the_contents_of_a_manifest_are_checked(
    place: DirectoryPlace | S3Place, store: RemoteStorage, log: Log
) -> None:
    segment, *_ = copy_candidates(log, store)
    name = path_of(segment, ".manifest.json")
    good = json.loads(place.read(name))

    def told(**changes):
        place.put(name, json.dumps(good | changes).encode())
        return check_segment(store, segment)

    assert told() == []
    assert told(maker="somebody") == []
    assert told(endOffset=7) == ["the manifest tells another endOffset"]
    assert told(leaderEpochs={"0": 0}) == ["the manifest tells another leaderEpochs"]
    objects = dict(good["objects"])
    del objects[object_name(segment, ".snapshot")]
    assert told(objects=objects)[0] == "the manifest does not name the .snapshot"
    for junk in (b"[]", b"{}", b"\xff", json.dumps(good | {"objects": 1}).encode()):
        place.put(name, junk)
        assert check_segment(store, segment)[0].startswith("the manifest can't be read: ")


def test_the_epochs_of_a_log_that_was_cut_from_its_start(
    place: DirectoryPlace | S3Place, store: RemoteStorage, log: Log
) -> None:
    """What was deleted before the copy is in the segment, but not in the metadata."""
    log.maybe_increment_log_start(1, "test")
    segment, *_ = copy_candidates(log, store)
    assert (segment.start_offset, segment.epochs) == (0, ((0, 1), (1, 3)))
    assert check_segment(store, segment) == []
    log.maybe_increment_log_start(4, "test")
    segment, *_ = copy_candidates(log, store)
    assert (segment.start_offset, segment.epochs) == (0, ((1, 4),))
    assert check_segment(store, segment) == []
    wrong = replace(segment, epochs=((2, 4),))
    assert any("is of epoch 1" in fault for fault in check_segment(store, wrong))


def test_a_segment_that_is_not_there_at_all_is_one_fault(
    place: DirectoryPlace | S3Place, store: RemoteStorage, log: Log
) -> None:
    segment, *_ = copy_candidates(log, store)
    place.put(path_of(segment, ".log"), None)
    (fault,) = check_segment(store, segment)
    assert fault.startswith("can't be read: "), "its manifest is there"
    store.delete_segment(segment)
    (fault,) = check_segment(store, segment)
    assert fault.startswith("is not there: ")


class Refusing(DirectoryStore):
    """It gives no file whose name ends so."""

    endings = ("",)

    def _file(self, segment, ending):
        if ending.endswith(self.endings):
            raise RetriableRemoteStorageError(f"no {ending} today")
        return super()._file(segment, ending)

    def fetch_index(self, segment, kind):
        self._file(segment, INDEX_ENDINGS[kind]).close()
        return super().fetch_index(segment, kind)


def test_a_store_that_gives_nothing_is_no_fault_of_a_segment(log: Log, tmp_path: Path) -> None:
    store = Refusing()
    store.configure({"dir": str(tmp_path / "tier")})
    segment, *_ = copy_candidates(log, store)
    with pytest.raises(UnreadableStoreError, match=r"^no \.log today$"):
        check_segment(store, segment)
    store.endings = (".log",)
    assert check_segment(store, segment) == ["can't be read: no .log today"]


class Wrapping(DirectoryStore):
    """What a user may have made of ours: other bytes lie there than are read."""

    def fetch_segment(self, segment, start, end=None):
        with super().fetch_segment(segment, 0) as stream:
            data = bytes(byte ^ 255 for byte in stream.read())
        return io.BytesIO(data[start : None if end is None else end + 1])


class Described(Wrapping):
    """And that tells of it."""

    def fetch_manifest(self, segment):
        raise RemoteResourceNotFound("no manifest today")


def test_a_store_with_its_own_way_to_read_is_not_judged_by_our_manifest(
    log: Log, tmp_path: Path
) -> None:
    store = Wrapping()
    store.configure({"dir": str(tmp_path / "tier")})
    segment, *_ = copy_candidates(log, store)
    path = tmp_path / "tier" / path_of(segment, ".log")
    path.write_bytes(bytes(byte ^ 255 for byte in path.read_bytes()))
    assert check_segment(store, segment) == []
    store = Described()
    store.configure({"dir": str(tmp_path / "tier")})
    assert check_segment(store, segment) == ["the manifest is not there: no manifest today"]


# ---- stores that have no manifest ----------------------------------------------------------------


class Plain:
    """A user's store: whatever it is given."""

    def __init__(self):
        self.objects = {}

    def copy_segment(self, segment, data):
        paths = (data.log, data.offset_index, data.time_index, data.producer_snapshot)
        endings = (".log", ".index", ".timeindex", ".snapshot")
        if data.transaction_index is not None:
            paths, endings = (*paths, data.transaction_index), (*endings, ".txnindex")
        for path, ending in zip(paths, endings, strict=True):
            with open(path, "rb") as file:
                self.objects[segment.segment_id, ending] = file.read()
        epochs = INDEX_ENDINGS[IndexKind.LEADER_EPOCH]
        self.objects[segment.segment_id, epochs] = data.leader_epoch_checkpoint

    def _get(self, segment, ending):
        data = self.objects.get((segment.segment_id, ending))
        if data is None:
            raise RemoteResourceNotFound(f"no {ending}")
        return io.BytesIO(data)

    def fetch_segment(self, segment, start, end=None):
        return self._get(segment, ".log")

    def fetch_index(self, segment, kind):
        return self._get(segment, INDEX_ENDINGS[kind])


@pytest.fixture
def plain(log):
    store = Plain()
    return store, copy_candidates(log, store)


def flipped(data):
    """All that differ by a bit, and where."""
    for at in range(len(data)):
        for bit in range(8):
            yield at, bytes([*data[:at], data[at] ^ 1 << bit, *data[at + 1 :]])


# What no other thing tells: of a transaction, where it began (up to its end), and the last stable
# offset behind it.
UNTOLD = {".txnindex": {*range(16, 18), *range(26, 34)}}


@pytest.mark.parametrize("ending", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_bit_is_missed_by_what_lies_beside_it(
    plain: tuple[Plain, list[RemoteSegment]], ending: str
) -> None:
    store, (segment, *_) = plain
    key = segment.segment_id, ending
    data = store.objects[key]
    assert data
    assert check_segment(store, segment) == []
    for at, other in flipped(data):
        store.objects[key] = other
        if at not in UNTOLD.get(ending, ()):
            assert check_segment(store, segment), (at, other)


def test_other_damage_without_a_manifest(plain: tuple[Plain, list[RemoteSegment]]) -> None:
    store, (first, second, last) = plain
    assert [check_segment(store, each) for each in (first, second, last)] == [[], [], []]

    def told(segment, ending, data):
        key = segment.segment_id, ending
        before = store.objects.pop(key, None)
        if data is not None:
            store.objects[key] = data
        try:
            return check_segment(store, segment)
        finally:
            store.objects.pop(key, None)
            if before is not None:
                store.objects[key] = before

    def of(segment, ending):
        return store.objects[segment.segment_id, ending]

    assert told(first, ".index", of(first, ".index")[:8] * 2) == ["the OFFSET index does not rise"]
    assert told(first, ".index", of(first, ".index")[:-1]) == ["the OFFSET index has a torn entry"]
    times = of(first, ".timeindex")
    assert told(first, ".timeindex", times[:-1]) == ["the TIMESTAMP index has a torn entry"]
    assert told(first, ".timeindex", times[:-12]) == ["the TIMESTAMP index ends early"]
    assert told(first, ".timeindex", b"") == ["the TIMESTAMP index ends early"]
    assert told(first, ".timeindex", times[:12] + times) == ["the TIMESTAMP index does not rise"]
    aborted = of(first, ".txnindex")
    assert told(first, ".txnindex", None) == ["the TRANSACTION index is not there"]
    assert told(first, ".txnindex", b"") == ["the TRANSACTION index is empty"]
    assert told(first, ".txnindex", aborted[:-1]) == ["the TRANSACTION index has a torn entry"]
    assert len(told(first, ".txnindex", aborted * 2)) == 1
    assert told(last, ".txnindex", b"") == []
    assert told(last, ".txnindex", aborted) == [
        "the TRANSACTION index is not empty, but the metadata says it is"
    ]
    assert told(replace(last, txn_index_empty=False), ".txnindex", None) == []  # before KIP-1058
    (fault,) = told(first, ".snapshot", of(second, ".snapshot"))
    assert fault.startswith("the PRODUCER_SNAPSHOT knows of offset ")
    assert "can't be used" in told(first, ".snapshot", b"")[0]
    epochs = INDEX_ENDINGS[IndexKind.LEADER_EPOCH]
    assert of(second, epochs) == b"0\n4\n0 0\n1 3\n2 10\n3 13\n"
    for wrong in (
        b"0\n3\n0 0\n1 3\n2 10\n",
        b"0\n4\n0 0\n1 3\n2 10\n3 14\n",
        b"0\n4\n0 0\n1 3\n4 10\n3 13\n",
        b"0\n0\n",
        b"",
    ):
        (fault,) = told(second, epochs, wrong)
        assert fault == "the LEADER_EPOCH checkpoint has other epochs than the metadata"
    for junk in (b"1\n0\n", b"0\n4\n0 0\n", b"\xff"):
        assert "can't be used" in told(second, epochs, junk)[0]
    for ending in (".index", ".timeindex", ".snapshot", epochs):
        assert "is not there" in told(second, ending, None)[0]
