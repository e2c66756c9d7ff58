"""A tiered log against a dictionary: each record is here or in the remote tier, through any life.

The remote tier is what was copied of this lineage. A crash may take back the log start, to what is
still here or there, and a power failure the end, down to what was flushed; nothing else.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.logs import NOW, PARTITION, append, config, read_all
from tidelog.simulation.disk import SimDisk
from tidelog_protocol.records import iter_batches, iter_records
from tidelog_storage.manager import LogManager
from tidelog_storage.producer_snapshot import parse_snapshot
from tidelog_storage.types import InRemoteTier, OutOfRange, Records

ID = bytes(range(16))
SMALL = {"internal_segment_bytes": 700, "index_interval_bytes": 200, "file_delete_delay_ms": 0}
PLAIN = config(**SMALL)


class TieredLog(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1 << 20))
    def start(self, seed):
        self.disk = SimDisk(seed)
        self.records = {}  # offset: (leader epoch, value), of all that was ever in this lineage
        self.remote = {}  # the same, of what was copied
        self.epoch = 0
        self.limit = -1
        self.log_start = 0
        self.flushed = 0
        self.open()
        self.log = self.logs.create(PARTITION, ID, self.settings())
        self.log.assign_epoch(0)

    def settings(self, **more):
        return config(
            remote_storage_enable=True, local_retention_bytes=self.limit, **(SMALL | more)
        )

    def open(self):
        self.files = self.disk.files()
        self.logs = LogManager(self.files, ["data"], PLAIN, remote_storage_system_enable=True)
        self.logs.open(now_ms=NOW, cluster_id="c", node_id=1, new_directory_id=lambda: b"d" * 16)

    @property
    def end(self):
        return self.log.log_end_offset

    def copied_to(self):
        """Last offset up to which all from the log start on is copied; -1 if none is."""
        offset = max(self.log.log_start_offset, min(self.remote, default=0))
        while offset in self.remote:
            offset += 1
        return offset - 1

    # -- a leader ----------------------------------------------------------------------------------

    @rule(batches=st.integers(1, 6), count=st.integers(1, 3), size=st.integers(0, 120))
    def append(self, batches, count, size):
        base = self.end
        for _ in range(batches):
            append(self.log, count, size=size, leader_epoch=self.epoch, timestamp=NOW + base)
        for header, records in read_all(self.log, start=base):
            for record in records:
                self.records[record.offset] = (header.leader_epoch, record.value)

    @rule()
    def next_epoch(self):
        self.epoch += 1
        self.log.assign_epoch(self.epoch)

    @rule()
    def roll(self):
        self.log.roll(NOW)

    @rule(limit=st.sampled_from([0, 500]))
    def copy_and_delete(self, limit):
        """As leaders do all the time."""
        self.copy()
        self.copy()
        self.retention(limit)

    @rule()
    def copy(self):
        """The oldest sealed segment that is not remote."""
        log = self.log
        for segment in list(log.segments)[:-1]:
            files = log.sealed_files(segment)
            if files.next_base_offset - 1 > self.copied_to():
                task = log.prepare_flush(files.next_base_offset)
                if task is not None:
                    task()
                    log.flushed(task)
                self.flushed = max(self.flushed, files.next_base_offset)
                self.check_files(files)
                data = self.files.read_bytes(files.log)
                for position, header in iter_batches(data):
                    for record in iter_records(data, position):
                        self.remote[record.offset] = (header.leader_epoch, record.value)
                break
        log.set_highest_remote_offset(self.copied_to())

    def check_files(self, files):
        assert len(self.files.read_bytes(files.log)) == files.size
        assert self.files.exists(files.offset_index)
        assert self.files.exists(files.time_index)
        parse_snapshot(self.files.read_bytes(files.producer_snapshot))

    @rule(limit=st.sampled_from([-1, 0, 1, 500, 1500]))
    def retention(self, limit):
        self.limit = limit
        self.log.config = self.settings()
        self.log.delete_old_segments(NOW)
        self.log.removals.run(NOW)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share):
        log = self.log
        span = log.high_watermark - log.log_start_offset
        self.log_start += int(span * share)
        log.maybe_increment_log_start(self.log_start, "DeleteRecords")

    @rule()
    def leave_the_tier_and_join_again(self):
        self.log.config = PLAIN
        self.remote.clear()
        self.log.config = self.settings()
        self.log_start = self.log.local_log_start_offset

    # -- a follower --------------------------------------------------------------------------------

    @rule(share=st.floats(0, 1))
    def truncate(self, share):
        """At a batch's boundary, of the remote part too; cut are also the copies of another
        branch."""
        log = self.log
        local = log.local_log_start_offset
        bases = [header.base_offset for header, _ in read_all(log, start=local)]
        bases += [offset for offset in self.remote if log.log_start_offset <= offset < local]
        if not bases:
            return
        offset = sorted(bases)[int((len(bases) - 1) * share)]
        log.truncate_to(offset, NOW)
        assert self.end == offset
        self.forget_from(offset)
        self.log_start = min(self.log_start, offset)
        self.flushed = min(self.flushed, offset)
        self.epoch = max(self.epoch, log.epochs.latest_epoch)

    def forget_from(self, offset):
        for known in (self.records, self.remote):
            for gone in [one for one in known if one >= offset]:
                del known[gone]

    @precondition(lambda self: len(self.log.segments) < 3)
    @rule(count=st.integers(1, 9), deleted=st.integers(0, 9))
    def restart_from_remote(self, count, deleted):
        """The leader has `count` records more than we, all in the tier and none here."""
        log = self.log
        start = min(log.log_start_offset + deleted, log.log_end_offset)
        offset = self.end + count
        known = {one: self.records[one] for one in range(start, self.end) if one in self.records}
        if len(known) != self.end - start:
            return
        for one in range(self.end, offset):
            known[one] = (self.epoch, b"remote %d" % one)
        epochs = []
        for one, (epoch, _) in known.items():
            if not epochs or epochs[-1][0] != epoch:
                epochs.append((epoch, one))
        log.restart_from_remote(
            offset,
            log_start=start,
            epochs=epochs,
            snapshot=log.producers.snapshot_content(),
            now_ms=NOW,
        )
        self.records = dict(known)
        self.remote = dict(known)
        self.flushed = offset
        self.log_start = start
        assert self.end == offset

    # -- lives -------------------------------------------------------------------------------------

    @rule()
    def checkpoint(self):
        self.logs.upkeep.prepare_checkpoints()()

    @rule()
    def flush(self):
        self.log.flush()
        self.flushed = self.end

    @rule()
    def restart(self):
        before = (self.log.log_start_offset, self.log.local_log_start_offset, self.end)
        self.logs.shutdown(NOW)
        self.reopen()
        log = self.log
        assert before == (log.log_start_offset, log.local_log_start_offset, self.end)
        self.flushed = self.end

    @rule(power=st.booleans())
    def crash(self, power):
        start, end = self.log_start, self.end
        self.disk.power_failure() if power else self.disk.kill()
        self.reopen()
        self.log_start = self.log.log_start_offset
        assert self.log_start <= start
        assert self.end == end or (power and self.flushed <= self.end < end) or self.end == start
        self.forget_from(self.end)
        self.epoch = max(self.epoch, self.log.epochs.latest_epoch)

    def reopen(self):
        self.open()
        log = self.logs.get(PARTITION)
        if log is None:  # a power failure may take a log that was never written to
            log = self.logs.create(PARTITION, ID, self.settings())
        self.log = log
        self.log.config = self.settings()
        self.log.set_high_watermark(self.end)
        self.log.assign_epoch(self.epoch)

    # -- what holds always -------------------------------------------------------------------------

    @invariant()
    def there_is_no_hole(self):
        log = self.log
        local = log.local_log_start_offset
        assert log.log_start_offset == self.log_start <= local <= log.high_watermark <= self.end
        for offset in range(log.log_start_offset, local):
            epoch, _ = self.remote[offset]
            assert log.read(offset, 1, upper_bound=self.end) == InRemoteTier(offset, epoch, local)
            assert self.remote[offset] == self.records[offset]
        assert isinstance(log.read(log.log_start_offset - 1, 1, upper_bound=self.end), OutOfRange)
        outcome = log.read(self.end, 1, upper_bound=self.end)
        assert outcome == Records((), 0, self.end)
        found = {
            record.offset: (header.leader_epoch, record.value)
            for header, records in read_all(log, start=local)
            for record in records
            if record.offset >= local
        }
        assert found == {offset: self.records[offset] for offset in range(local, self.end)}

    @invariant()
    def epochs_are_those_of_the_records(self):
        log = self.log
        for offset in range(log.log_start_offset, self.end):
            assert log.epochs.epoch_for_offset(offset) == self.records[offset][0]

    @precondition(lambda self: self.log.highest_remote_offset >= 0)
    @invariant()
    def what_counts_as_copied_is(self):
        log = self.log
        for offset in range(log.log_start_offset, log.highest_remote_offset + 1):
            assert self.remote[offset] == self.records[offset]

    def teardown(self):
        if hasattr(self, "logs"):
            self.logs.abandon()


TestTieredLog = pytest.mark.timeout(240)(TieredLog.TestCase)
TestTieredLog.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)


def test_what_is_no_longer_needed_is_not_looked_for_in_the_tier() -> None:
    """Segments that went because the log start had passed them were never copied."""
    machine = TieredLog()
    machine.start(seed=0)
    for _ in range(4):
        machine.append(batches=3, count=3, size=100)
    machine.delete_records(share=0.5)
    machine.retention(limit=-1)
    assert machine.log.segments.first.base_offset > 0
    machine.crash(power=False)
    machine.there_is_no_hole()
    machine.teardown()
