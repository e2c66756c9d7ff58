"""The log against a list: whatever happens to it, it holds what the list holds.

Crashes are a killed process (all written bytes survive) and a power failure (the simulated disk
loses and tears what was not synced): the log then holds a prefix of the list that contains all that
was flushed.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from support.logs import NOW, append, batch, check_indexes, config, open_log, read_all
from tidelog.simulation.disk import SimDisk
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import OutOfRange, Records, StorageError

SETTINGS = config(
    internal_segment_bytes=1600,
    index_interval_bytes=250,
    retention_bytes=3000,
    retention_ms=5000,
    file_delete_delay_ms=1000,
)


class Kept(NamedTuple):
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp: int
    producer_id: int
    sequence: int
    values: tuple[bytes, ...]


def kept(header, records):
    return Kept(
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        header.max_timestamp,
        header.producer_id,
        header.base_sequence,
        tuple(record.value for record in records),
    )


class LogAgainstList(RuleBasedStateMachine):
    appended = Bundle("appended")

    @initialize(seed=st.integers(0, 1 << 20))
    def start(self, seed):
        self.disk = SimDisk(seed)
        self.files = self.disk.files()
        self.files.make_dirs("data/t-0")
        self.files.fsync_dir("data")
        self.batches: list[Kept] = []
        self.epoch = 0
        self.now = NOW
        self.epochs_from = 0
        self.sequences = {7: 0, 8: 0}
        self.checkpoint()
        self.open(clean=True)
        self.log.assign_epoch(0)

    # the broker's part

    def checkpoint(self, log=None):
        """What lies in the log directory's checkpoints."""
        self.checkpointed = {
            "recovery_point": log.recovery_point if log else 0,
            "log_start_offset": log.log_start_offset if log else 0,
            "high_watermark": log.high_watermark if log else 0,
        }

    def lowered(self, offset):
        self.checkpointed["recovery_point"] = offset

    def open(self, *, clean):
        self.log = open_log(
            self.files,
            settings=SETTINGS,
            clean=clean,
            on_recovery_point_lowered=self.lowered,
            **self.checkpointed,
        )

    @property
    def end(self):
        return self.log.log_end_offset

    # what producers and leaders do

    @rule(
        count=st.integers(1, 4),
        size=st.integers(0, 300),
        codec=st.sampled_from([0, 0, 0, 1, 4]),
        older_ms=st.integers(0, 3000),
    )
    def append_as_leader(self, count, size, codec, older_ms):
        result = append(
            self.log,
            count,
            size=size,
            codec=codec,
            timestamp=self.now - older_ms,
            leader_epoch=self.epoch,
            now_ms=self.now,
        )
        assert (result.first_offset, result.last_offset) == (self.end - count, self.end - 1)
        self.note(result, count, size, self.now - older_ms)

    @rule(times=st.integers(5, 20), size=st.integers(20, 200))
    def append_many(self, times, size):
        """Hypothesis likes short runs: this makes logs of several segments likely."""
        for _ in range(times):
            self.now += 10
            self.append_as_leader(2, size, 0, 0)

    def note(self, result, count, size, timestamp, producer_id=-1, sequence=-1):
        self.batches.append(
            Kept(
                result.first_offset,
                result.last_offset,
                self.epoch,
                timestamp + count - 1,
                producer_id,
                sequence,
                tuple(bytes([index]) * size for index in range(count)),
            )
        )

    @rule(producer_id=st.sampled_from([7, 8]), count=st.integers(1, 3), twice=st.booleans())
    def append_idempotent(self, producer_id, count, twice):
        sequence = self.sequences[producer_id]
        options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        options |= {"timestamp": self.now, "leader_epoch": self.epoch, "now_ms": self.now}
        try:
            result = append(self.log, count, **options)
        except StorageError as error:
            # a crash took batches: the producer would start anew; here its state must say so
            assert error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # noqa: PT017
            assert self.last_sequence(producer_id) + 1 != sequence
            self.sequences[producer_id] = self.last_sequence(producer_id) + 1
            return
        if result.duplicate:
            last = [batch for batch in self.batches if batch.producer_id == producer_id][-5:]
            assert any(
                (result.first_offset, sequence) == (batch.base_offset, batch.sequence)
                for batch in last
            )
            self.sequences[producer_id] = self.last_sequence(producer_id) + 1
            return
        self.note(result, count, 50, self.now, producer_id, sequence)
        self.sequences[producer_id] += count
        if twice:
            again = append(self.log, count, **options)
            assert again.duplicate
            assert again.first_offset == result.first_offset

    def last_sequence(self, producer_id):
        """-1 without a batch."""
        found = [batch for batch in self.batches if batch.producer_id == producer_id]
        return found[-1].sequence + len(found[-1].values) - 1 if found else -1

    @rule(
        counts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
        gap=st.sampled_from([0, 0, 5]),
        torn=st.integers(0, 60),
        newer=st.booleans(),
    )
    def append_as_follower(self, counts, gap, torn, newer):
        self.epoch += newer
        data = b""
        offset = self.end + gap
        for count in counts:
            one = batch(count, base_offset=offset, leader_epoch=self.epoch, timestamp=self.now)
            data += one
            values = tuple(bytes([index]) * 50 for index in range(count))
            self.batches.append(
                Kept(offset, offset + count - 1, self.epoch, self.now + count - 1, -1, -1, values)
            )
            offset += count
        data += bytes(one)[:torn]
        result = self.log.append_as_follower(
            memoryview(data), leader_epoch=self.epoch, now_ms=self.now
        )
        assert result is not None
        assert self.end == offset
        self.log.set_high_watermark(self.end)

    @rule()
    def new_leader(self):
        self.epoch += 1
        self.log.assign_epoch(self.epoch)

    @rule()
    def roll(self):
        self.log.roll(self.now)

    @rule(milliseconds=st.integers(1, 2000))
    def time_goes(self, milliseconds):
        self.now += milliseconds

    # cutting

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data):
        offset = data.draw(st.sampled_from([batch.base_offset for batch in self.batches]))
        self.log.truncate_to(offset, self.now)
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.epochs_from = min(self.epochs_from, offset)
        assert self.end == offset
        self.epoch += 1  # whoever leads now does so in a new epoch
        self.log.assign_epoch(self.epoch)

    @rule(forward=st.integers(0, 100))
    def truncate_fully(self, forward):
        self.log.truncate_fully_and_start_at(self.end + forward, now_ms=self.now)
        self.batches = []
        self.epoch += 1
        self.log.assign_epoch(self.epoch)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def delete_records(self, data):
        offset = data.draw(st.integers(self.log.log_start_offset, self.end))
        before = self.log.log_start_offset
        assert self.log.maybe_increment_log_start(offset, "test") == (offset > before)
        assert self.log.log_start_offset == offset

    @rule()
    def retention(self):
        first = self.log.segments.base_offsets
        count = self.log.delete_old_segments(self.now)
        gone = first[:count]
        assert not set(gone) & set(self.log.segments.base_offsets)
        self.log.removals.run(self.now)

    # durability

    @rule()
    def flush(self):
        task = self.log.prepare_flush()
        if task is not None:
            task()
            self.log.flushed(task)
        self.checkpoint(self.log)

    @rule(count=st.integers(1, 3))
    def flush_beside_appends(self, count):
        task = self.log.prepare_flush()
        self.append_as_leader(count, 10, 0, 0)
        if task is not None:
            task()
            self.log.flushed(task)
            assert self.log.recovery_point <= self.end - count

    @rule()
    def reopen(self):
        self.log.close()
        self.checkpoint(self.log)
        before = self.log.log_end_offset, self.log.log_start_offset, self.log.epochs.entries
        self.open(clean=True)
        assert (self.end, self.log.log_start_offset) == before[:2] or self.has_gap_at_end
        entries = [entry for entry in before[2] if entry.start_offset < self.end]
        assert self.log.epochs.entries == entries
        self.log.set_high_watermark(self.end)
        self.follow_end()

    @property
    def has_gap_at_end(self):
        return not self.batches or self.batches[-1].last_offset + 1 < self.end

    @rule(power=st.booleans())
    def crash(self, power):
        recovery_point = self.log.recovery_point
        if power:
            self.disk.power_failure()
        else:
            self.disk.kill()
        self.files = self.disk.files()
        durable = min(recovery_point, self.end)
        end = self.end
        self.checkpointed["high_watermark"] = min(self.checkpointed["high_watermark"], end)
        self.open(clean=False)
        if power:
            lost = [batch for batch in self.batches if batch.base_offset >= self.end]
            assert all(batch.base_offset >= durable for batch in lost)
        else:
            lost = []
            assert self.end == end or self.has_gap_at_end
        self.batches = [batch for batch in self.batches if batch not in lost]
        self.log.set_high_watermark(self.end)
        self.follow_end()

    def follow_end(self):
        """The epoch of a log without records at its end is given again by the next leader."""
        self.epoch += 1
        self.log.assign_epoch(self.epoch)

    # what must hold

    def readable(self):
        start = self.log.log_start_offset
        return [batch for batch in self.batches if batch.last_offset >= start]

    @invariant()
    def offsets_are_in_order(self):
        log = self.log
        assert 0 <= log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.last_stable_offset <= log.high_watermark
        assert log.recovery_point <= log.log_end_offset
        assert log.segments.active.base_offset <= log.log_end_offset

    @invariant()
    def it_holds_what_the_list_holds(self):
        assert [kept(header, records) for header, records in read_all(self.log, 400)] == (
            self.readable()
        )

    @invariant()
    def indexes_equal_the_records(self):
        check_indexes(self.log)

    @invariant()
    def epochs_equal_the_records(self):
        # A crash may take the log start back to its checkpoint, but not the epochs before it.
        self.epochs_from = max(self.epochs_from, self.log.log_start_offset)
        for one in self.readable():
            offset = max(one.base_offset, self.epochs_from)
            if offset > one.last_offset:
                continue
            assert self.log.epochs.epoch_for_offset(offset) == one.leader_epoch

    @invariant()
    def producers_equal_the_records(self):
        for producer_id, entry in self.log.producers.producers.items():
            assert entry.last_sequence == self.last_sequence(producer_id)

    @rule(data=st.data(), bound=st.integers(0, 3), max_bytes=st.integers(0, 2000))
    def read_anywhere(self, data, bound, max_bytes):
        log = self.log
        start, end = log.log_start_offset, self.end
        offset = data.draw(st.integers(max(start - 1, 0), end + 1))
        below = self.readable()[: len(self.readable()) - bound] if bound else self.readable()
        upper_bound = end if not bound else (below[-1].last_offset + 1 if below else start)
        outcome = log.read(offset, max_bytes, upper_bound=upper_bound)
        if not start <= offset <= end:
            assert outcome == OutOfRange(start, end)
            return
        assert isinstance(outcome, Records)
        expected = [one for one in below if one.last_offset >= offset]
        if offset >= upper_bound or not expected:
            assert outcome.size == 0
            return
        assert outcome.parts[0][:8] == expected[0].base_offset.to_bytes(8, "big")
        assert outcome.next_offset <= upper_bound

    @rule(data=st.data())
    def look_up_a_time(self, data):
        readable = self.readable()
        times = [
            (one.max_timestamp - len(one.values) + 1 + index, one.base_offset + index)
            for one in readable
            for index in range(len(one.values))
            if one.base_offset + index >= self.log.log_start_offset
        ]
        asked = data.draw(st.integers(self.now - 4000, self.now + 5))
        found = self.log.offset_for_timestamp(asked)
        first = next(((time, offset) for time, offset in times if time >= asked), None)
        assert (found and (found.timestamp, found.offset)) == first


LogAgainstList.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.timeout(300)
class TestLogAgainstList(LogAgainstList.TestCase):
    pass
