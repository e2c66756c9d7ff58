"""What an audit keeps of the batches of one place: counts, gaps, sequences. Pure.

A batch-level gap is the trace of compaction or of a loss: markers and aborted records have batches.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog_protocol.batch import BatchHeader

__all__ = ["Run", "Scan", "merged"]

LISTED_MAX = 100  # of a kind; the counts are whole
_SEQUENCES = 1 << 31
Span = tuple[int, int]
"""Offsets [start, end)."""


class Run(NamedTuple):
    """Batches of one producer with sequences that follow one another."""

    epoch: int
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class Scan:
    """Batches with offsets [start, end), in order. `thin` batches lack some of their records."""

    start: int
    end: int
    batches: int = 0
    records: int = 0
    size: int = 0
    markers: int = 0
    thin: int = 0
    missing: int = 0  # offsets in gaps
    gaps: list[Span] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    jumps: int = 0  # sequences that are ahead: the broker had forgotten the producer
    faults: list[str] = field(default_factory=list)
    timestamps: tuple[int, int] | None = None
    runs: dict[int, list[Run]] = field(default_factory=dict)  # first and last one by producer id
    position: int = -1

    def add(self, header: BatchHeader) -> None:
        """Take the next batch; offsets outside of the range are not looked at."""
        first, after = max(header.base_offset, self.start), min(header.next_offset, self.end)
        if first >= after:
            return
        position = self.start if self.position < 0 else self.position
        if header.base_offset < position and position != self.start:
            self.fault(f"the batch at {header.base_offset} is there after offset {position - 1}")
        elif first > position:
            self._gap(position, first)
        self.position = max(position, after)
        self.batches += 1
        self.size += header.size_in_bytes
        if header.is_control:
            self.markers += 1
            return
        self.records += header.records_count
        whole = header.last_offset_delta + 1
        self.thin += header.records_count < whole
        self._note_time(header)
        if header.has_producer_id and header.base_sequence >= 0:
            self._note_sequence(header)

    def finish(self) -> None:
        """All batches were added."""
        position = self.start if self.position < 0 else self.position
        if position < self.end:
            self._gap(position, self.end)
        self.position = self.end

    def fault(self, text: str) -> None:
        """Note a fault."""
        if len(self.faults) < LISTED_MAX:
            self.faults.append(text)

    def _gap(self, start: int, end: int) -> None:
        self.missing += end - start
        if len(self.gaps) < LISTED_MAX:
            self.gaps.append((start, end))

    def _note_time(self, header: BatchHeader) -> None:
        low, high = self.timestamps or (header.base_timestamp, header.max_timestamp)
        self.timestamps = min(low, header.base_timestamp), max(high, header.max_timestamp)

    def _note_sequence(self, header: BatchHeader) -> None:
        run = Run(
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            header.last_offset,
        )
        known = self.runs.setdefault(header.producer_id, [])
        if known and self._follows(header.producer_id, known[-1], run):
            known[-1] = known[-1]._replace(
                last_sequence=run.last_sequence, last_offset=run.last_offset
            )
            return
        known[1:] = [run]

    def _follows(self, producer_id: int, before: Run, run: Run) -> bool:
        """Whether a run goes on in sequence; notes a duplicate, or a jump ahead."""
        if run.epoch != before.epoch:
            return False
        ahead = (run.first_sequence - before.last_sequence - 1) % _SEQUENCES
        if not ahead:
            return True
        if ahead < _SEQUENCES // 2:
            self.jumps += 1
        elif len(self.duplicates) < LISTED_MAX:
            self.duplicates.append(
                f"producer {producer_id} epoch {run.epoch}: the sequences from "
                f"{run.first_sequence} at offset {run.first_offset} were there before"
            )
        return False

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Scan:
        """From `as_json`, also after a file of JSON, which has no tuples and no numbers as keys."""
        times = given["timestamps"]
        return cls(
            **given
            | {
                "gaps": [(start, end) for start, end in given["gaps"]],
                "timestamps": times and (times[0], times[1]),
                "runs": {
                    int(key): [Run(*run) for run in runs] for key, runs in given["runs"].items()
                },
            }
        )

    def join(self, later: Scan) -> None:
        """Add the batches of the place that comes next."""
        for name in ("batches", "records", "size", "markers", "thin", "missing", "jumps"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        for name in ("gaps", "duplicates", "faults"):
            listed = getattr(self, name) + getattr(later, name)
            setattr(self, name, listed[:LISTED_MAX])
        for times in filter(None, (later.timestamps,)):
            low, high = self.timestamps or times
            self.timestamps = min(low, times[0]), max(high, times[1])
        for producer_id, runs in later.runs.items():
            known = self.runs.get(producer_id)
            if known is None:
                self.runs[producer_id] = list(runs)
            else:
                self._follows(producer_id, known[-1], runs[0])
                known[1:] = runs[-1:]
        self.end = later.end


def merged(scans: Iterable[Scan]) -> Scan | None:
    """All scans of a partition as one, in order; None without any."""
    found: Scan | None = None
    for scan in sorted(scans, key=lambda each: each.start):
        if found is None:
            found = scan
        else:
            found.join(scan)
    return found
