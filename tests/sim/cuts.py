"""One log on a simulated disk, cut again and again, by a process that dies inside of its file
operations: what the mixed workload meets seldom.

After a kill the segments on the disk are a chain without a hole. After every start the log is a
prefix of what it was, no shorter than a cut asked for, or, if the power failed, than what was
durable.
"""

from __future__ import annotations

import random
from itertools import pairwise

from sim.history import require
from sim.raw_logs import read_log
from support.logs import NOW, append, config
from tidelog.simulation.disk import MachineDiedError, SimDisk
from tidelog_storage.manager import LogManager
from tidelog_storage.types import TopicPartition

PARTITION = TopicPartition("t", 0)
FOLDER = f"data/{PARTITION}"
SETTINGS = config(internal_segment_bytes=600, index_interval_bytes=150, retention_bytes=1500)
LIVES = 8
STEPS_MAX = 14


class Cuts:
    """A seed's lives of one log."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"{seed}:cuts")
        self.disk = SimDisk(f"{seed}:cuts")
        self.disk.on_death = self._on_death
        self.lost_power = False
        self.batches: dict[int, bytes] = {}  # on the disk after the last step, by base offset
        self.end = self.floor = 0
        self.durable_end = 0
        self.is_emptied = False  # or about to be: the log may begin anew at `end`
        self.deaths = 0

    def run(self) -> None:
        """All lives; Violation if a promise is broken."""
        for _ in range(LIVES):
            try:
                self._start()
                for _ in range(self.rng.randint(1, STEPS_MAX)):
                    self._step()
            except MachineDiedError:
                self.deaths += 1
            else:
                self._on_death()
            self.disk.unwinding = False
            self.disk.die_at = None
        self._start()

    def _on_death(self) -> None:
        self.lost_power = self.rng.random() < 0.5
        if self.lost_power:
            self.disk.power_failure()
            self.floor = min(self.floor, self.durable_end)
            return
        self._check_chain()
        self.disk.kill()

    def _check_chain(self) -> None:
        log = read_log(self.disk, FOLDER)
        bases = sorted(log.segments)
        for base, following in pairwise(bases):
            last = log.segments[base][-1:]
            end = last[0].header.last_offset + 1 if last else base
            require(end == following, f"a kill left a hole from {end} to {following}")

    def _start(self) -> None:
        self.logs = LogManager(self.disk.files(), ["data"], SETTINGS)
        self.logs.open(now_ms=NOW, cluster_id="c", node_id=1, new_directory_id=lambda: b"d" * 16)
        self.log = self.logs.create(PARTITION, b"t" * 16, SETTINGS)
        self._check_start()
        self.log.set_high_watermark(self.log.log_end_offset)
        self._note()

    def _check_start(self) -> None:
        raw, end = read_log(self.disk, FOLDER), self.log.log_end_offset
        expected = min(raw.segments)
        for batch in raw.batches():
            base = batch.header.base_offset
            require(base == expected, f"a hole from {expected} to {base}")
            require(self.batches.get(base, batch.data) == batch.data, f"{base} is another batch")
            expected = batch.header.last_offset + 1
        require(expected == end and not any(raw.torn.values()), f"{expected} is not the end {end}")
        began_anew = self.is_emptied and not raw.batches()
        require(end >= self.floor or began_anew, f"ends at {end}, is to be {self.floor} at least")

    def _note(self) -> None:
        """What a crash must leave from now on."""
        raw, log = read_log(self.disk, FOLDER), self.log
        self.batches = {batch.header.base_offset: batch.data for batch in raw.batches()}
        self.end = self.floor = log.log_end_offset
        self.durable_end = log.recovery_point
        self.is_emptied = not self.batches

    # -- steps -------------------------------------------------------------------------------------

    def _step(self) -> None:
        log, rng = self.log, self.rng
        if rng.random() < 0.2:
            self.disk.die_at = self.disk.operations + rng.randint(1, 12)
        match rng.choices(
            ("append", "roll", "flush", "checkpoint", "cut", "empty", "retain"),
            (12, 2, 3, 2, 3, 1, 1),
        )[0]:
            case "append":
                for _ in range(rng.randint(1, 4)):
                    append(log, rng.randint(1, 3), size=rng.randint(10, 90))
                    self._note()
            case "roll":
                log.roll(NOW)
            case "flush":
                log.flush()
            case "checkpoint":
                self.logs.upkeep.prepare_checkpoints()()
            case "cut":
                offset = rng.choice([*self.batches, log.log_end_offset])
                self._is_to_end_at(offset)
                log.truncate_to(offset, NOW)
            case "empty":
                self.is_emptied = True
                offset = rng.randint(log.log_start_offset, log.log_end_offset + 5)
                self._is_to_end_at(min(offset, log.log_start_offset))
                self.batches.clear()
                log.truncate_fully_and_start_at(offset, now_ms=NOW)
            case "retain":
                log.delete_old_segments(NOW)
        self.disk.die_at = None
        self._note()

    def _is_to_end_at(self, offset: int) -> None:
        self.floor = min(self.floor, offset)
        self.durable_end = min(self.durable_end, offset)


def run_cuts(seed: int) -> Cuts:
    """All lives of a seed."""
    cuts = Cuts(seed)
    cuts.run()
    return cuts
