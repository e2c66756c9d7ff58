"""States of share partitions, step by step: begin, read, write, fence, snapshot, delete, load."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.coordinators.share.records import ShareRecord, Snapshot, Update, decode, encode
from tidelog.coordinators.share.shard import ShareShard
from tidelog.coordinators.share.values import (
    UNINITIALIZED,
    Deletion,
    Initialization,
    Outcome,
    Reading,
    SharePartition,
    StateBatch,
    StateOutcome,
    SummaryOutcome,
    Writing,
)
from tidelog_protocol.errors import ErrorCode, ProtocolError

TOPIC_ID = bytes(range(16))
KEY = SharePartition("g", TOPIC_ID, 0)
WALL_MS = 1_795_247_400_000
ACKNOWLEDGED = StateBatch(10, 19, 2, 1)


class Life:
    """A shard whose records go through a log: their bytes, and their offsets."""

    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.updates_per_snapshot = updates_per_snapshot
        self.shard = ShareShard(0, 0, updates_per_snapshot)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = WALL_MS

    def append(self, record: ShareRecord) -> None:
        self.log.append(encode(record))
        read = decode(*self.log[-1])
        assert read == record
        self.shard.replay(record, len(self.log) - 1)

    def ask(self, request: str, item: Any, key: SharePartition = KEY, *, known: bool = True) -> Any:
        handle = getattr(self.shard, request)
        answer, record = handle(key, item, self.now_ms, is_known=known)
        if record is not None:
            self.append(record)
        return answer

    def begin(self, epoch: int = 1, start: int = UNINITIALIZED, partition: int = 0) -> Outcome:
        item = Initialization(TOPIC_ID, partition, epoch, start)
        outcome: Outcome = self.ask("initialize", item, KEY._replace(partition=partition))
        return outcome

    def read(self, leader_epoch: int = -1) -> StateOutcome:
        outcome: StateOutcome = self.ask("read", Reading(TOPIC_ID, 0, leader_epoch))
        return outcome

    def write(self, *batches: StateBatch, **fields: int) -> Outcome:
        fields = {"state_epoch": 1, "leader_epoch": 1, **fields}
        outcome: Outcome = self.ask("write", Writing(TOPIC_ID, 0, batches=batches, **fields))
        return outcome

    def summary(self) -> SummaryOutcome:
        outcome: SummaryOutcome = self.ask("read_summary", Reading(TOPIC_ID, 0))
        return outcome

    def kinds(self) -> str:
        """The records in the log: S a snapshot, U an update, D a deletion."""
        letters = {Snapshot: "S", Update: "U", type(None): "D"}
        records = [decode(*each) for each in self.log]
        return "".join(letters[type(each.value)] for each in records if each is not None)

    def loaded(self) -> ShareShard:
        """A shard loaded from the log."""
        shard = ShareShard(0, 1, self.updates_per_snapshot)
        for offset, each in enumerate(self.log):
            record = decode(*each)
            assert record is not None
            shard.replay(record, offset)
        return shard


def test_a_state_begins_without_an_offset() -> None:
    life = Life()
    assert life.begin() == Outcome()
    assert life.read() == StateOutcome(state_epoch=1, start_offset=UNINITIALIZED)
    assert life.summary() == SummaryOutcome(state_epoch=1, start_offset=UNINITIALIZED)
    assert life.kinds() == "S", "a read without a leader epoch writes nothing"


def test_a_state_that_has_not_begun_is_neither_read_nor_written() -> None:
    life = Life()
    assert life.read(1).error is ErrorCode.INVALID_REQUEST
    assert life.write(ACKNOWLEDGED).error is ErrorCode.INVALID_REQUEST
    assert life.summary() == SummaryOutcome(start_offset=UNINITIALIZED)
    assert life.log == []


def test_a_write_changes_what_it_names() -> None:
    life = Life()
    life.begin(start=0)
    life.read(1)
    assert life.write(ACKNOWLEDGED, start_offset=5, delivery_complete_count=10) == Outcome()
    assert life.write(StateBatch(30, 39, 0, 1)) == Outcome()
    assert life.read() == StateOutcome(
        state_epoch=1, start_offset=5, batches=(ACKNOWLEDGED, StateBatch(30, 39, 0, 1))
    )
    assert life.summary() == SummaryOutcome(ErrorCode.NONE, None, 1, 1, 5, UNINITIALIZED)
    assert life.kinds() == "SUUU"


def test_batches_before_the_start_offset_go() -> None:
    life = Life()
    life.begin(start=0)
    life.write(ACKNOWLEDGED)
    life.write(start_offset=15)
    assert life.read().batches == (StateBatch(15, 19, 2, 1),)


def test_a_read_of_a_new_leader_fences_the_one_before() -> None:
    life = Life()
    life.begin()
    life.read(5)
    assert life.write(leader_epoch=4).error is ErrorCode.FENCED_LEADER_EPOCH
    assert life.read(4).error is ErrorCode.FENCED_LEADER_EPOCH
    assert life.write(leader_epoch=6) == Outcome()
    assert life.summary().leader_epoch == 5, "a write does not set it"
    assert life.write(leader_epoch=5) == Outcome()
    assert life.kinds() == "SUUU", "each write is a record, and the first read"
    assert life.loaded().state(KEY) == life.shard.state(KEY)


def test_an_earlier_state_is_fenced() -> None:
    life = Life()
    life.begin(epoch=3, start=7)
    assert life.begin(epoch=2).error is ErrorCode.FENCED_STATE_EPOCH
    assert life.write(state_epoch=2).error is ErrorCode.FENCED_STATE_EPOCH
    assert life.begin(epoch=4, start=9) == Outcome()
    state = life.shard.state(KEY)
    assert state is not None
    assert (state.snapshot_epoch, state.state_epoch, state.start_offset) == (1, 4, 9)
    assert state.delivery_complete_count == 0


def test_epochs_of_minus_one_are_not_compared() -> None:
    life = Life()
    life.begin(epoch=3)
    life.read(5)
    assert life.write(state_epoch=-1, leader_epoch=-1) == Outcome()
    assert life.begin(epoch=-1) == Outcome()


@pytest.mark.parametrize("request_", ["initialize", "read", "write", "delete", "read_summary"])
def test_a_partition_that_does_not_exist(request_: str) -> None:
    life = Life()
    life.begin()
    items = {
        "initialize": Initialization(TOPIC_ID, 0, 1),
        "write": Writing(TOPIC_ID, 0, 1, 1),
        "delete": Deletion(TOPIC_ID, 0),
    }
    item = items.get(request_, Reading(TOPIC_ID, 0, 1))
    outcome = life.ask(request_, item, known=False)
    assert outcome.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    outcome = life.ask(request_, item, KEY._replace(partition=-1))
    assert outcome.error is ErrorCode.INVALID_REQUEST
    assert outcome.message == "The partition id cannot be a negative number."
    assert life.kinds() == "S"


@pytest.mark.parametrize("batch", [StateBatch(10, 9, 0, 1), StateBatch(-1, 9, 0, 1)])
def test_a_batch_without_records_is_refused(batch: StateBatch) -> None:
    life = Life()
    life.begin(start=0)
    assert life.write(batch).error is ErrorCode.INVALID_REQUEST
    assert life.kinds() == "S"


def test_a_snapshot_comes_after_as_many_updates_as_configured() -> None:
    life = Life(updates_per_snapshot=2)
    life.begin(start=0)
    for first in range(10, 70, 10):
        life.write(StateBatch(first, first + 9, 2, 1))
    assert life.kinds() == "SUUSUUS"
    state = life.shard.state(KEY)
    assert state is not None
    assert (state.snapshot_epoch, state.batches) == (2, (StateBatch(10, 69, 2, 1),))
    assert life.loaded().state(KEY) == state


def test_without_updates_every_record_is_a_snapshot() -> None:
    life = Life(updates_per_snapshot=0)
    life.begin(start=0)
    life.write(ACKNOWLEDGED)
    assert life.read(2).batches == (ACKNOWLEDGED,)
    assert life.kinds() == "SSS"


def test_a_deleted_state_may_begin_anew_with_an_earlier_epoch() -> None:
    life = Life()
    life.begin(epoch=3)
    assert life.ask("delete", Deletion(TOPIC_ID, 0)) == Outcome()
    assert life.read().error is ErrorCode.INVALID_REQUEST
    assert life.ask("delete", Deletion(TOPIC_ID, 0)) == Outcome()
    assert life.begin(epoch=1) == Outcome()
    assert life.kinds() == "SDS"


def test_states_of_deleted_topics_are_found() -> None:
    life = Life()
    life.begin()
    life.begin(partition=1)
    assert life.shard.of_topics({bytes(16)}) == []
    for record in life.shard.of_topics({TOPIC_ID}):
        life.append(record)
    assert len(life.shard) == len(life.loaded()) == 0


def test_cold_states_get_a_snapshot_once() -> None:
    life = Life()
    life.begin(start=3)
    life.now_ms += 1000
    life.begin(partition=1)
    [record] = life.shard.cold_snapshots(life.now_ms, 1000)
    assert record.key == KEY
    assert isinstance(record.value, Snapshot)
    assert record.value[:4] == (1, 1, 0, 3)
    assert (record.value.create_ms, record.value.write_ms) == (WALL_MS, WALL_MS + 1000)
    life.append(record)
    life.now_ms += 1000
    for record in life.shard.cold_snapshots(life.now_ms, 1000):
        life.append(record)
    assert life.shard.cold_snapshots(life.now_ms + 5000, 1000) == [], "all are cold already"


def test_what_comes_before_every_states_last_snapshot_is_redundant() -> None:
    life = Life(updates_per_snapshot=1)
    assert life.shard.redundant_offset == 0
    life.begin(start=0)  # offset 0
    life.begin(partition=1)
    life.write(ACKNOWLEDGED)
    life.write(ACKNOWLEDGED)  # offset 3, a snapshot
    assert life.kinds() == "SSUS"
    assert life.shard.redundant_offset == 1
    life.ask("delete", Deletion(TOPIC_ID, 1), KEY._replace(partition=1))
    assert life.shard.redundant_offset == 3
    life.ask("delete", Deletion(TOPIC_ID, 0))
    assert life.shard.redundant_offset == 5 == len(life.log) - 1


def test_a_pruned_log_loads_the_same() -> None:
    life = Life(updates_per_snapshot=3)
    life.begin(start=0, partition=1)
    life.begin(start=0)
    life.read(1)
    for first in range(10, 90, 10):
        life.write(StateBatch(first, first + 9, 2, 1), start_offset=first)
        if first == 40:
            life.begin(start=0, partition=1, epoch=2)
    offset = life.shard.redundant_offset
    assert offset > 2
    shard = ShareShard(0, 1, 3)
    for position in range(offset, len(life.log)):
        record = decode(*life.log[position])
        assert record is not None
        shard.replay(record, position)
    keys = [KEY, KEY._replace(partition=1)]
    assert [shard.state(key) for key in keys] == [life.shard.state(key) for key in keys]
    assert shard.redundant_offset == offset


def test_records_of_other_types_are_left_out_and_damaged_ones_refused() -> None:
    key, value = encode(ShareRecord(KEY, Update(0, 1, 5, -1, (ACKNOWLEDGED,))))
    assert decode(b"\0\7" + key[2:], value) is None
    assert decode(key, None) is None, "only snapshots have deletions"
    assert value is not None
    for broken in (
        (None, value),
        (b"\0", value),
        (key[:-1], value),
        (key, b"\0"),
        (key, b"\0\1" + value[2:]),
        (key, value[:-1]),
    ):
        with pytest.raises(ProtocolError):
            decode(*broken)
