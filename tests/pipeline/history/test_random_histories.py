"""Random histories of two leaders, read from the tier as tasks read them: what a consumer of the
last leader gets, among dead branches and with transactions across segments."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="the spark extra is not installed")

from support.branches import World
from support.remote import PARTITION
from tidelog_pipeline.history.aborted import aborted_in
from tidelog_pipeline.history.decoder import Group, Kept, decode
from tidelog_pipeline.history.planner import LogView, Split, cut, pieces_of
from tidelog_pipeline.history.segments import remote_batches
from tidelog_protocol.records import ControlType, control_type, iter_batches, iter_records

COLUMNS = ["offset", "key", "value", "timestamp"]


class Truth:
    """The last leader's log, batch by batch."""

    def __init__(self, world: World) -> None:
        self.records: dict[int, tuple[int | None, bytes]] = {}  # (producer, value) by offset
        self.aborted: list[tuple[int, int, int]] = []  # (producer, first offset, marker's offset)
        begun: dict[int, int] = {}
        for _, data in world.batches():
            ((position, header),) = iter_batches(data)
            listed = list(iter_records(data, position))
            if header.is_control:
                first = begun.pop(header.producer_id, None)
                if first is not None and control_type(listed[0]) == ControlType.ABORT:
                    self.aborted.append((header.producer_id, first, header.base_offset))
                continue
            producer = header.producer_id if header.is_transactional else None
            if producer is not None:
                begun.setdefault(producer, header.base_offset)
            for record in listed:
                self.records[record.offset] = (producer, bytes(record.value))

    def is_aborted(self, offset: int, producer: int | None) -> bool:
        return any(one == producer and first <= offset < end for one, first, end in self.aborted)

    def open_at(self, offset: int) -> list[tuple[int, int]]:
        """What a broker says of transactions aborted behind an offset (Fetch)."""
        return [(one, first) for one, first, end in self.aborted if first < offset <= end]

    def rows(self, start: int, end: int, *, is_committed: bool) -> list[tuple[int, bytes]]:
        return [
            (offset, value)
            for offset, (producer, value) in sorted(self.records.items())
            if start <= offset < end and not (is_committed and self.is_aborted(offset, producer))
        ]


def view_of(world: World) -> LogView:
    log = world.log
    return LogView(
        "t",
        PARTITION.topic_id.bytes,
        0,
        tuple(tuple(entry) for entry in log.epochs.entries),
        log.log_start_offset,
        world.view.local_log_start_offset,
        log.log_end_offset,
        -1,
        tuple(world.metadata.of[PARTITION].segments()),
    )


@pytest.mark.parametrize("seed", range(15))
def test_the_tier_gives_what_a_consumer_of_the_last_leader_gets(seed: int) -> None:
    world = World(seed)
    world.play()
    truth, log = Truth(world), view_of(world)
    start = world.rng.choice([0, world.rng.randrange(log.local_start)])
    pieces = tuple(pieces_of(log, start, log.end))
    border = max(piece.end for piece in pieces if piece.part is not None)
    assert border == log.local_start
    for is_committed in (False, True):
        for split in cut(Split("t", PARTITION.topic_id.bytes, 0, pieces), world.rng.randint(1, 9)):
            for piece in split.pieces:
                if piece.part is None:
                    assert piece.start >= border
                    continue
                aborted = (
                    aborted_in(world.store, piece, truth.open_at(border), truth.open_at)
                    if is_committed
                    else []
                )
                size = world.rng.choice([200, 1000, 1 << 20])
                batches = list(remote_batches(world.store, piece, aborted, size))
                kept = Kept(piece.start, piece.end)
                rows = []
                if batches:
                    found = decode(Group("t", 0, batches, kept), COLUMNS)
                    rows = list(
                        zip(found.column(0).to_pylist(), found.column(2).to_pylist(), strict=True)
                    )
                expected = truth.rows(piece.start, piece.end, is_committed=is_committed)
                assert rows == expected


def test_there_are_aborted_transactions_across_segments_among_them() -> None:
    across = 0
    for seed in range(15):
        world = World(seed)
        world.play()
        ends = [each.end_offset for each in world.metadata.of[PARTITION].segments()]
        across += any(
            first <= end < marker for _, first, marker in Truth(world).aborted for end in ends
        )
    assert across > 3
