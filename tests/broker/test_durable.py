"""The metadata log refuses damage below what it had on disk; a torn end it cuts."""

from __future__ import annotations

import asyncio

import pytest

from sim.disk import SimDisk
from support.metadata import Metadata
from support.quorum_nodes import setting
from tidelog.metadata.durable import DurableEnd
from tidelog_storage.types import StorageError

STATE = "data/__cluster_metadata-0/quorum-state"
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
        size = metadata.disk.files().open(LOG).size()
        damaged(metadata, position)
        before = bytes(metadata.disk.names[LOG].data)
        with pytest.raises(StorageError, match="all below 7 was on disk"):
            metadata.start()
        assert metadata.disk.names[LOG].data == before
        damaged(metadata, position)  # the bit turns back
        metadata.start()
        assert metadata.log.image.broker_configs == {"": {"kept": "1"}}
        assert metadata.disk.files().open(LOG).size() > size

    asyncio.run(run())


def test_a_log_that_is_short_is_refused() -> None:
    async def run() -> None:
        metadata = Metadata()
        await metadata.register()
        sizes = [metadata.disk.files().open(LOG).size()]
        await metadata.log.commit([setting("kept")])
        await metadata.log.close()
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
