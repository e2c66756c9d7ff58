"""Batches from a leader that a follower does not take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.logs import NOW, append, open_log
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog.simulation.disk import SimFiles


def test_a_rotten_leader_epoch_does_not_rewrite_a_followers_epochs(files: SimFiles) -> None:
    log = open_log(files)
    for epoch in (0, 2, 4):
        append(log, 2, leader_epoch=epoch)
    follower = open_log(files, "data/f-0")
    taken = b"".join(log.read(0, 10_000, upper_bound=4).parts)
    follower.append_as_follower(memoryview(taken), leader_epoch=4, now_ms=NOW)
    assert follower.epochs.entries == [(0, 0), (2, 2)]
    data = bytearray(b"".join(log.read(4, 10_000, upper_bound=6).parts))
    for rotten in (0, 1, -4):
        data[12:16] = rotten.to_bytes(4, "big", signed=True)  # the checksum leaves it out
        with pytest.raises(StorageError, match="behind epoch 2") as refusal:
            follower.append_as_follower(memoryview(bytes(data)), leader_epoch=4, now_ms=NOW)
        assert refusal.value.code == ErrorCode.CORRUPT_MESSAGE
    assert follower.epochs.entries == [(0, 0), (2, 2)]
    assert follower.log_end_offset == 4
    two = bytearray(taken)
    two[12:16] = (3).to_bytes(4, "big")  # above the one behind it
    fresh = open_log(files, "data/g-0")
    with pytest.raises(StorageError, match="behind epoch 3"):
        fresh.append_as_follower(memoryview(bytes(two)), leader_epoch=4, now_ms=NOW)
    assert fresh.epochs.entries == []
