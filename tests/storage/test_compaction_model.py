"""A compacted log against a model: whatever comes, readers see the newest record of each key.

The process is killed, or the power fails, inside any file operation of a pass or between them; the
next start finds each key's newest committed record of what was not lost, nothing that never was,
and nothing of aborted transactions.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.compaction import (
    PARTITION,
    clean,
    cleaner_of,
    compacted,
    end_transaction,
    fill,
    open_compacted,
    open_manager,
    put,
    records_of,
    run_pass,
    view_of,
)
from support.logs import NOW, check_indexes, read_all
from tidelog.simulation.disk import MachineDiedError, SimDisk
from tidelog_protocol.records import ControlType, control_type

VALUES = {
    "internal_segment_bytes": 700,
    "index_interval_bytes": 150,
    "delete_retention_ms": 2000,
    "file_delete_delay_ms": 500,
}
KEYS = [b"k%d" % index for index in range(6)]


def reopen(disk):
    """The next life; producers that were in a transaction are aborted, as a coordinator would."""
    disk.unwinding = False
    manager = open_manager(disk.files(), compacted(**VALUES))
    log = manager.get(PARTITION)
    if log is None:  # a power failure may take a log that was never written to
        log = manager.create(PARTITION, b"i" * 16, compacted(**VALUES))
        log.assign_epoch(0)
    log.set_high_watermark(log.log_end_offset)
    return manager, log


def die_with(disk):
    """What kills the process inside a file operation."""
    disk.on_death = disk.kill


# -- every operation of a pass ---------------------------------------------------------------------


def begun(seed):
    """A log with all that a pass has to do with: the disk, the manager, the log."""
    disk = SimDisk(seed)
    files = disk.files()
    files.make_dirs("data")
    manager, log = open_compacted(files, **VALUES)
    fill(log, 30)
    put(log, (b"k0", b"p"), producer_id=9, producer_epoch=0, base_sequence=0)
    put(log, (b"t", b"1"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    end_transaction(log, 5, commit=False)
    put(log, (b"k1", None), (b"u", b"1"))
    log.roll(NOW)
    clean(manager)
    fill(log, 20, timestamp=NOW + 1000)
    put(log, (b"k2", None))
    fill(log, 10, timestamp=NOW + 1000)
    log.roll(NOW)
    log.flush()
    manager.upkeep.prepare_checkpoints()()
    return disk, manager, log


@pytest.mark.parametrize("power", [False, True])
def test_death_in_any_operation_of_a_pass(power: bool) -> None:
    disk, manager, log = begun(0)
    view, end = view_of(log), log.log_end_offset
    start = disk.operations
    clean(manager, NOW + 9000)
    complete = view_of(log), records_of(log), log.producers.producers.keys()
    operations = disk.operations - start
    assert operations > 60
    for number in range(1, operations + 1):
        disk, manager, log = begun(number)
        disk.on_death = disk.kill
        disk.die_at = disk.operations + number
        with pytest.raises(MachineDiedError):
            clean(manager, NOW + 9000)
        if power:
            disk.power_failure()
        manager, log = reopen(disk)
        assert view_of(log) == view, number
        assert log.log_end_offset == end
        assert log.producers.producers.keys() == complete[2]
        left = [name for name in disk.names if name.endswith((".cleaned", ".swap", ".deleted"))]
        assert left == []
        check_indexes(log)
        clean(manager, NOW + 9000)
        assert (view_of(log), records_of(log)) == complete[:2], number


# -- anything in any order -------------------------------------------------------------------------


class Entry(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None
    transaction: int | None  # its number


class CompactedLog(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1 << 20))
    def start(self, seed):
        self.disk = SimDisk(seed)
        files = self.disk.files()
        files.make_dirs("data")
        files.fsync_dir("data")
        self.manager, self.log = open_compacted(files, **VALUES)
        self.now = NOW
        self.entries: list[Entry] = []
        self.outcomes: dict[int, bool] = {}  # of transactions: committed
        self.ongoing: dict[int, int] = {}  # producer id -> transaction
        self.sequences = {5: 0, 6: 0, 7: 0}
        self.serial = 0
        self.flushed_to = 0

    @property
    def end(self):
        return self.log.log_end_offset

    # writing

    def _put(self, pairs, transaction=None, **options):
        offset = self.end
        put(self.log, *pairs, timestamp=self.now, **options)
        self.entries += [
            Entry(offset + index, key, value, transaction)
            for index, (key, value) in enumerate(pairs)
        ]

    def _pairs(self, chosen, tombstone):
        self.serial += 1
        pairs = [(KEYS[index], b"%d-%d" % (self.serial, index)) for index in chosen]
        return [*pairs[:-1], (pairs[-1][0], None)] if tombstone else pairs

    keys = st.lists(st.integers(0, len(KEYS) - 1), min_size=1, max_size=4)

    @rule(chosen=keys, tombstone=st.booleans(), codec=st.sampled_from([0, 0, 1, 4]))
    def write(self, chosen, tombstone, codec):
        self._put(self._pairs(chosen, tombstone), codec=codec)

    @rule(times=st.integers(5, 25))
    def write_much(self, times):
        for index in range(times):
            self.now += 10
            self._put(self._pairs([index % 5, (index * 3) % 4], index % 9 == 0))

    @rule(chosen=keys)
    def write_idempotent(self, chosen):
        self._sequenced(7, self._pairs(chosen, tombstone=False))

    def _sequenced(self, producer_id, pairs, transaction=None, **options):
        known = self.log.producers.producers.get(producer_id)
        sequence = known.last_sequence + 1 if known is not None else 0
        options |= {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        self._put(pairs, transaction, **options)

    @rule(producer_id=st.sampled_from([5, 6]), chosen=keys, tombstone=st.booleans())
    def write_in_transaction(self, producer_id, chosen, tombstone):
        if producer_id not in self.ongoing:
            self.ongoing[producer_id] = len(self.outcomes)
            self.outcomes[self.ongoing[producer_id]] = False
        pairs = self._pairs(chosen, tombstone)
        self._sequenced(producer_id, pairs, self.ongoing[producer_id], transactional=True)

    @precondition(lambda self: self.ongoing)
    @rule(commit=st.booleans(), which=st.integers(0, 1))
    def end_transaction(self, commit, which):
        producer_id = sorted(self.ongoing)[which % len(self.ongoing)]
        end_transaction(self.log, producer_id, commit=commit, timestamp=self.now)
        self.outcomes[self.ongoing.pop(producer_id)] = commit

    # time and compaction

    @rule(milliseconds=st.integers(1, 3000))
    def time_goes(self, milliseconds):
        self.now += milliseconds
        for remove in filter(None, self.manager.upkeep.prepare_removals(self.now)):
            remove()

    @rule()
    def roll(self):
        self.log.roll(self.now)

    @rule(map_bytes=st.sampled_from([1 << 20, 1 << 20, 700]))
    def compact(self, map_bytes):
        self.log.roll(self.now)
        clean(self.manager, self.now, map_bytes=map_bytes)
        stable = min(self.log.last_stable_offset, self.log.segments.active.base_offset)
        below = self.log.segments.floor(stable).base_offset
        newest = {key: offset for offset, key, _ in records_of(self.log) if offset < below}
        if map_bytes > 1000:
            for offset, key, _ in records_of(self.log):
                assert offset >= below or newest[key] == offset

    @rule(steps=st.integers(0, 6))
    def leave_a_pass_unfinished(self, steps):
        cleaner = cleaner_of(self.manager)
        cleaning = cleaner.begin(self.now)
        if cleaning is None:
            return
        for _ in range(steps):
            task = cleaning.prepare_flush()
            if task is not None:
                task()
                self.log.flushed(task)
            checkpoint = cleaner.prepare_checkpoint(cleaning)
            if checkpoint is not None:
                checkpoint()
            if not cleaner.advance(cleaning, cleaning.rewriting.step(), self.now):
                break
        cleaner.end(cleaning)

    # lives

    @rule()
    def checkpoint(self):
        task = self.log.prepare_flush()
        if task is not None:
            task()
            self.log.flushed(task)
        self.manager.upkeep.prepare_checkpoints()()
        self.flushed_to = self.log.recovery_point

    @rule()
    def restart(self):
        self.manager.shutdown()
        self.disk.kill()
        self.manager, self.log = reopen(self.disk)

    @rule(power=st.booleans(), operation=st.integers(0, 80))
    def die_in_a_pass(self, power, operation):
        """`operation` 0: between two."""
        end = self.end
        cleaner = cleaner_of(self.manager)
        cleaning = cleaner.begin(self.now)
        self.disk.on_death = self.disk.kill
        self.disk.die_at = self.disk.operations + operation if operation else None
        try:
            if cleaning is not None:
                run_pass(cleaner, cleaning, self.now)
        except MachineDiedError:
            pass
        self.disk.die_at = None
        if power:
            self.disk.power_failure()
        else:
            self.disk.kill()
        self.manager, self.log = reopen(self.disk)
        if power:
            assert self.flushed_to <= self.end <= end
        else:
            assert self.end == end
        self._forget_what_was_lost()

    def _forget_what_was_lost(self):
        """And abort what is open: what was ended beyond the end as well."""
        self.entries = [entry for entry in self.entries if entry.offset < self.end]
        self.ongoing = {}
        for producer_id in sorted(self.log.producers.producers):
            if self.log.producers.producers[producer_id].current_txn_first_offset >= 0:
                first = self.log.producers.producers[producer_id].current_txn_first_offset
                lost = next(entry for entry in self.entries if entry.offset == first)
                self.outcomes[lost.transaction] = False
                end_transaction(self.log, producer_id, commit=False, timestamp=self.now)

    # what must hold

    @invariant()
    def readers_see_the_newest(self):
        stable = self.log.last_stable_offset
        expected = {
            entry.key: entry.value
            for entry in self.entries
            if entry.offset < stable
            and (entry.transaction is None or self.outcomes[entry.transaction])
        }
        expected = {key: value for key, value in expected.items() if value is not None}
        assert committed_view(self.log) == expected

    @invariant()
    def nothing_is_invented(self):
        known = {entry[:3] for entry in self.entries}
        rows = records_of(self.log)
        assert all(row in known for row in rows)
        assert [row[0] for row in rows] == sorted({row[0] for row in rows})

    @invariant()
    def indexes_equal_the_records(self):
        check_indexes(self.log)

    @invariant()
    def sequences_are_known(self):
        for producer_id, entry in self.log.producers.producers.items():
            batches = [h for h, _ in read_all(self.log) if h.producer_id == producer_id]
            last = [header for header in batches if not header.is_control]
            if last and entry.batches:
                assert last[-1].last_sequence == entry.last_sequence


def committed_view(log):
    """The newest values as a read_committed consumer finds them."""
    end = log.last_stable_offset
    aborted = sorted(log.aborted_transactions(0, end), key=lambda one: one.first_offset)
    excluded = set()
    view = {}
    for header, records in read_all(log, 300):
        if header.base_offset >= end:
            break
        while aborted and aborted[0].first_offset <= header.last_offset:
            excluded.add(aborted.pop(0).producer_id)
        if header.is_control:
            if records and control_type(records[0]) == ControlType.ABORT:
                excluded.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in excluded):
            view |= {record.key: record.value for record in records}
    return {key: value for key, value in view.items() if value is not None}


CompactedLog.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.timeout(300)
class TestCompactedLog(CompactedLog.TestCase):
    pass
