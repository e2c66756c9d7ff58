"""The metadata log refuses damage below what it had on disk; a torn end it cuts."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from support.metadata import Metadata
from support.quorum_nodes import setting, settings_in
from tidelog.cluster.metadata.durable import DURABLE_END, DurableEnd
from tidelog.simulation.disk import SimDisk
from tidelog_protocol.batch import iter_batches
from tidelog_storage.types import StorageError

STATE = "data/__cluster_metadata-0/quorum-state"
NOTE = f"data/__cluster_metadata-0/{DURABLE_END}"
LOG = "data/__cluster_metadata-0/00000000000000000000.log"


def damaged(metadata: Metadata, position: int) -> None:
    """The process is killed, and a bit rots."""
    metadata.disk.kill()
    metadata.disk.names[LOG].data[position] ^= 0x10


@pytest.mark.parametrize("position", [3, 20, 90, 400, -5])
def test_damage_below_what_was_on_disk_is_refused_not_cut(position: int) -> None:
    async def run() -> None:
        metadata = Metadata()
        await metadata.register()
        await metadata.log.commit([setting("kept")])
        size, end = metadata.disk.files().open(LOG).size(), metadata.log.log.log_end_offset
        damaged(metadata, position)
        before = bytes(metadata.disk.names[LOG].data)
        with pytest.raises(StorageError, match=f"all below {end} was on disk"):
            metadata.start()
        assert metadata.disk.names[LOG].data == before
        damaged(metadata, position)  # the bit turns back
        metadata.start()
        assert settings_in(metadata.log.image) == {"kept": "1"}
        assert metadata.disk.files().open(LOG).size() > size

    asyncio.run(run())


def test_no_offset_or_epoch_of_a_batch_is_believed_that_does_not_follow() -> None:
    """No checksum covers them. A voter that believed such an epoch took the quorum with it."""

    async def run() -> None:
        metadata = Metadata()
        await metadata.register()
        for name in "ab":
            metadata.disk.kill()
            metadata.start()
            await metadata.log.commit([setting(name)])
        metadata.disk.kill()
        data = metadata.disk.names[LOG].data
        batches = list(iter_batches(memoryview(bytes(data))))
        assert {header.leader_epoch for _, header in batches} == {1, 2, 3}
        for (position, _), at in itertools.product(batches, (*range(8), *range(12, 16))):
            for bit in range(8):
                data[position + at] ^= 1 << bit
                with pytest.raises(StorageError, match="put back a whole copy"):
                    metadata.start()
                data[position + at] ^= 1 << bit
        metadata.start()
        assert settings_in(metadata.log.image) == {"a": "1", "b": "1"}

    asyncio.run(run())


def test_a_torn_end_whose_header_was_lost_is_cut() -> None:
    """A power failure may keep a batch's checksum and what it covers, and not what is before."""

    async def run() -> None:
        metadata = Metadata()
        await metadata.register()
        promised = metadata.disk.files().read_bytes(NOTE)
        await metadata.log.commit([setting("kept")])
        await metadata.log.commit([setting("torn")])
        metadata.disk.kill()
        data = metadata.disk.names[LOG].data
        (position, header) = list(iter_batches(memoryview(bytes(data))))[-1]
        data[position + 12 : position + 16] = bytes(4)
        metadata.disk.files().write_atomic(NOTE, promised)
        metadata.start()
        assert settings_in(metadata.log.image) == {"kept": "1"}
        assert metadata.log.log.epochs.entries[-1].start_offset == header.base_offset

    asyncio.run(run())


def test_a_log_that_is_short_is_refused() -> None:
    async def run() -> None:
        metadata = Metadata()
        await metadata.register()
        sizes = [metadata.disk.files().open(LOG).size()]
        await metadata.log.commit([setting("kept")])
        await metadata.close()
        metadata.disk.kill()
        metadata.disk.files().open(LOG).truncate(sizes[0])
        with pytest.raises(StorageError, match="put back a whole copy"):
            metadata.start()

    asyncio.run(run())


def test_the_durable_end_outlives_torn_notes() -> None:
    files = SimDisk(0).files()
    files.make_dirs("data")
    note = DurableEnd(files, "data")
    assert note.read() == 0
    for offset in (5, 7, 9):
        note.advance(offset)
    note.close()
    file = files.open("data/durable-end-offset")
    assert note.read() == 9
    file.truncate(file.size() - 3)
    assert note.read() == 7
    file.append([bytes(40)])
    assert note.read() == 7
    again = DurableEnd(files, "data")
    for offset in range(10, 700):
        again.advance(offset)
    assert again.read() == 699
    assert files.open("data/durable-end-offset").size() <= 4096
    again.lower(3)
    assert again.read() == 3
    again.advance(4)
    assert again.read() == 4


def test_a_vote_outlives_a_power_failure() -> None:
    """The name of the metadata log's folder was not durable: a node forgot how it had voted."""
    for seed in range(10):
        disk = SimDisk(seed)
        disk.is_apart = True
        disk.files().make_dirs("data")
        disk.sync_names()
        metadata = Metadata(disk)  # has begun an epoch
        election = metadata.disk.files().read_bytes(STATE)
        disk.power_failure()
        assert disk.files().read_bytes(STATE) == election
