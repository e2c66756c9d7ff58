"""Damage of any kind to a log's files: what is left is a whole, valid prefix, fully indexed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.logs import NOW, append, check_indexes, config, offsets, open_log
from tidelog.simulation.disk import SimDisk

SETTINGS = config(internal_segment_bytes=1500, index_interval_bytes=250)
FOLDER = "data/t-0"
CRC_FROM = 16  # base offset, length and leader epoch lie outside of the checksum


def build(batches=30):
    """A log of several segments, with an idempotent producer and three epochs; closed."""
    disk = SimDisk(0)
    files = disk.files()
    files.make_dirs(FOLDER)
    log = open_log(files, settings=SETTINGS)
    for index in range(batches):
        epoch = index // 12
        options = {"size": 20 + index * 7 % 90, "leader_epoch": epoch, "timestamp": NOW + index}
        if index % 3 == 0:
            options |= {"producer_id": 5, "producer_epoch": 0, "base_sequence": index // 3}
        append(log, 1 + index % 3 if index % 3 else 1, **options)
    log.close()
    return disk, files, log


def names(files, suffix):
    return [name for name in files.list(FOLDER) if name.endswith(suffix)]


def boundaries(files, name):
    """(position, last offset) of each batch of a segment, from the file."""
    data = files.read_bytes(f"{FOLDER}/{name}")
    position, found = 0, []
    while position < len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        base = int.from_bytes(data[position : position + 8], "big")
        last = base + int.from_bytes(data[position + 23 : position + 27], "big")
        found.append((position, position + size, last))
        position += size
    return found


def check(log, expected):
    assert offsets(log, max_bytes=300) == expected
    check_indexes(log)
    end = expected[-1][1] + 1 if expected else log.segments.first.base_offset
    assert log.log_end_offset == end
    for base, _ in expected:
        at = next(i for i, pair in enumerate(EXPECTED) if pair[0] == base)
        assert log.epochs.epoch_for_offset(base) == at // 12
    entry = log.producers.producers.get(5)
    kept = [i for i in range(len(expected)) if i % 3 == 0]
    assert (entry.last_sequence if entry else -1) == (len(kept) - 1)


EXPECTED = offsets(open_log(build()[1], settings=SETTINGS))


def test_the_undamaged_log() -> None:
    _, files, _ = build()
    log = open_log(files, settings=SETTINGS, clean=False)
    assert len(log.segments) > 3
    check(log, EXPECTED)


@settings(max_examples=150)
@given(data=st.data())
def test_cut_anywhere(data: st.DataObject) -> None:
    _, files, log = build()
    name = data.draw(st.sampled_from(names(files, ".log")))
    file = files.open(f"{FOLDER}/{name}")
    batches = boundaries(files, name)
    size = data.draw(st.integers(0, file.size()))
    file.truncate(size)
    is_whole = size == batches[-1][1]
    log = open_log(files, settings=SETTINGS, clean=False)
    first = int(name[:20])
    whole = [last for _, end, last in batches if end <= size]
    # Cut exactly between two batches nothing is torn: the gap tells.
    expected = [
        pair
        for pair in EXPECTED
        if pair[1] < first or pair[1] in whole or (is_whole and pair[0] > batches[-1][2])
    ]
    assert offsets(log) == expected
    check_indexes(log)


@settings(max_examples=150)
@given(data=st.data())
def test_a_flipped_bit_in_the_newest_segment(data: st.DataObject) -> None:
    _, files, log = build()
    name = names(files, ".log")[-1]
    batches = boundaries(files, name)
    position, _, last = data.draw(st.sampled_from(batches))
    end = next(end for start, end, _ in batches if start == position)
    at = data.draw(st.integers(position + CRC_FROM, end - 1))
    inode = files.open(f"{FOLDER}/{name}").inode
    inode.data[at] ^= 1 << data.draw(st.integers(0, 7))
    log = open_log(files, settings=SETTINGS, clean=False)
    check(log, [pair for pair in EXPECTED if pair[1] < last])


@settings(max_examples=150)
@given(data=st.data())
def test_noise_anywhere_never_breaks_loading(data: st.DataObject) -> None:
    """Also where no checksum looks: what is read back is then still in order and indexed."""
    _, files, log = build()
    name = data.draw(st.sampled_from(names(files, ".log")))
    inode = files.open(f"{FOLDER}/{name}").inode
    at = data.draw(st.integers(0, len(inode.data) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=40))
    inode.data[at : at + len(noise)] = noise
    log = open_log(files, settings=SETTINGS, clean=False)
    found = offsets(log)
    assert found == sorted(found)
    check_indexes(log)
    append(log, leader_epoch=9)
    assert offsets(log)[-1][1] == log.log_end_offset - 1


@pytest.mark.parametrize("clean", [True, False])
@settings(max_examples=100)
@given(data=st.data())
def test_indexes_missing_short_or_wrong(clean: bool, data: st.DataObject) -> None:
    """Short indexes are right but sparse; the newest entry is always there after a clean stop."""
    _, files, log = build()
    for name in names(files, ".index") + names(files, ".timeindex"):
        what = data.draw(st.sampled_from(["keep", "remove", "empty", "zeros", "torn", "noise"]))
        path = f"{FOLDER}/{name}"
        inode = files.open(path).inode
        if what == "remove":
            files.remove(path)
        elif what == "empty":
            del inode.data[:]
        elif what == "zeros":
            inode.data += bytes(24)
        elif what == "torn":
            inode.data += b"\x00\x01\x02"
        elif what == "noise":
            inode.data[: len(inode.data)] = b"\xff" * len(inode.data)
    log = open_log(files, settings=SETTINGS, clean=clean)
    for offset, _ in EXPECTED:
        assert offsets(log, start=offset)[0][0] == offset
    newest = [log.offset_for_timestamp(NOW + index) for index in range(30)]
    assert [found.timestamp for found in newest] == [NOW + index for index in range(30)]
    check_indexes(log)


@given(data=st.data())
def test_a_damaged_epoch_checkpoint_is_rebuilt(data: st.DataObject) -> None:
    _, files, log = build()
    path = f"{FOLDER}/leader-epoch-checkpoint"
    damage = data.draw(st.sampled_from([b"", b"0\n7\n", b"\x00\x00", b"0\n1\nx y\n", None]))
    if damage is None:
        files.remove(path)
    else:
        files.write_atomic(path, damage)
    heard = []
    log = open_log(files, settings=SETTINGS, clean=data.draw(st.booleans()), report=heard.append)
    check(log, EXPECTED)
    log.close()
    assert files.read_bytes(path).startswith(b"0\n3\n0 0\n1 ")


@pytest.mark.parametrize("clean", [True, False])
def test_damaged_snapshots_are_dropped(clean: bool) -> None:
    _, files, _ = build()
    for name in names(files, ".snapshot"):
        files.open(f"{FOLDER}/{name}").inode.data[4] ^= 1
    check(open_log(files, settings=SETTINGS, clean=clean), EXPECTED)


def test_torn_in_spite_of_a_clean_stop() -> None:
    """Somebody touched the files: the last segment is recovered all the same."""
    _, files, log = build()
    name = names(files, ".log")[-1]
    file = files.open(f"{FOLDER}/{name}")
    file.truncate(file.size() - 3)
    heard = []
    log = open_log(files, settings=SETTINGS, clean=True, report=heard.append)
    assert offsets(log) == EXPECTED[:-1]
    assert any("torn after a clean stop" in text for text in heard)
