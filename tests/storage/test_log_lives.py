"""Random lives of one log: what an orderly stop keeps is all, what a kill keeps are the records."""

from __future__ import annotations

import random

import pytest

from support.logs import NOW, append, config, offsets
from support.tiered_log import LOCAL, Broker

PLAIN = {
    "internal_segment_bytes": 900,
    "index_interval_bytes": 100,
    "retention_bytes": 1800,
    "file_delete_delay_ms": 100,
}
TIERED = {
    **LOCAL,
    "index_interval_bytes": 100,
    "remote_storage_enable": True,
    "local_retention_bytes": 900,
}
STEPS = 40


class Life:
    """One log that things happen to."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.is_tiered = self.rng.random() < 0.4
        self.settings = config(**(TIERED if self.is_tiered else PLAIN))
        self.broker = Broker(enable=self.is_tiered or self.rng.random() < 0.5)
        self.log = self.broker.create(settings=self.settings)
        self.epoch = 0
        self.ends = [0]  # of batches

    def append(self):
        for _ in range(self.rng.randint(1, 4)):
            append(self.log, self.rng.randint(1, 4), leader_epoch=self.epoch)
            self.ends.append(self.log.log_end_offset)

    def roll(self):
        if self.log.segments.active.size:
            self.log.roll(NOW)

    def flush(self):
        self.log.flush()

    def checkpoint(self):
        self.broker.logs.upkeep.prepare_checkpoints()()

    def lead(self):
        self.epoch += 1
        self.log.assign_epoch(self.epoch)

    def delete_records(self):
        log = self.log
        start = self.rng.choice([log.high_watermark, log.log_start_offset])
        start = self.rng.randint(start, log.high_watermark)
        log.maybe_increment_log_start(start, "DeleteRecords")

    def retention(self):
        self.log.delete_old_segments(NOW)
        self.log.removals.run(NOW + self.rng.choice([0, 1000]))

    def copied(self):
        if self.is_tiered and len(self.log.segments) > 1:
            following = list(self.log.segments)[1:]
            self.log.set_highest_remote_offset(self.rng.choice(following).base_offset - 1)

    def truncate(self):
        log = self.log
        lowest = max(log.local_log_start_offset, log.highest_remote_offset + 1)
        offset = self.rng.choice([end for end in self.ends if end >= lowest] or [lowest])
        log.truncate_to(offset)
        self.ends = [end for end in self.ends if end <= offset]

    def begin_anew(self):
        if not self.is_tiered:
            offset = self.log.log_end_offset + self.rng.randint(0, 5)
            self.log.truncate_fully_and_start_at(offset)
            self.ends = [offset]

    def restart(self):
        before = self.state()
        self.log = self.broker.restart(self.settings)
        assert self.state() == before
        assert self.log.lost_start is self.log.lost_end is None

    def kill(self):
        log = self.log
        start, local, end, _, batches, _ = self.state()
        self.log = log = self.broker.crash(self.settings)
        assert log.log_end_offset == end
        assert log.log_start_offset <= start  # its checkpoint may be older
        assert log.local_log_start_offset <= local
        assert set(batches) <= set(offsets(log, start=log.local_log_start_offset))
        assert log.lost_end is None

    def state(self):
        log = self.log
        local, end = log.local_log_start_offset, log.log_end_offset
        epochs = [entry for entry in log.epochs.entries if entry.start_offset < end]
        batches = offsets(log, start=local)
        return log.log_start_offset, local, end, log.high_watermark, batches, epochs


OPERATIONS = (
    *(Life.append, Life.append, Life.append, Life.roll, Life.flush, Life.checkpoint, Life.lead),
    *(Life.delete_records, Life.retention, Life.copied, Life.truncate, Life.begin_anew),
    *(Life.restart, Life.kill),
)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_a_log_is_the_same_after_each_start(first: int) -> None:
    for seed in range(first, first + 50):
        life = Life(seed)
        for _ in range(STEPS):
            life.rng.choice(OPERATIONS)(life)
        life.restart()
