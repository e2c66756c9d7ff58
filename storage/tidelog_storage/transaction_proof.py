"""What a segment's transaction index must hold, from its records.

`Log.transactions_of` compares a small segment at once, which takes less than a millisecond. A large
one, which was not written since the start, would hold up everything else for seconds:
`TransactionProof.run` may be called on another thread. It sees frozen values and opens the files
itself; `settle` belongs to the loop again.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tidelog_protocol.records import ControlType, control_type, iter_records
from tidelog_storage.indexes import AbortedEntry
from tidelog_storage.producer_state import ProducerStateManager
from tidelog_storage.scan import control_batches, whole_batches
from tidelog_storage.segment import LOG_SUFFIX, file_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.log import Log
    from tidelog_storage.seams import Buffer, File
    from tidelog_storage.segment import Segment

SMALL_BYTES = 16 << 20


def unproven_segment(log: Log, offset: int, upper_bound: int) -> Segment | None:
    """The first large segment that `Log.aborted_transactions` would have to compare."""
    for segment in log.segments.from_floor(offset):
        is_large = segment.size > SMALL_BYTES and not segment.transactions_are_proven
        if segment.base_offset >= upper_bound:
            oldest_open = log.oldest_open_before(segment) if is_large else segment.oldest_open
            if oldest_open is not None and oldest_open >= upper_bound:
                return None
        if is_large:
            return segment
    return None


class TransactionProof:
    """What the transaction index of one segment has to say; `run` on any thread."""

    def __init__(self, log: Log, segment: Segment) -> None:
        self._log = log
        self._segment = segment
        self._truncations = log.truncations
        following = log.segments.after(segment.base_offset)
        self._end_offset = log.log_end_offset if following is None else following.base_offset
        self._first = log.segments.first.base_offset
        self._files = segment.files
        self._producers = ProducerStateManager(
            self._files,
            log.folder,
            log.topic_partition,
            snapshot_offsets=[one for one in log.producers.snapshots if one <= segment.base_offset],
        )
        self._known = tuple(segment.transaction_index.entries)
        self._folder = log.folder
        self._places = [
            (one.base_offset, one.size)
            for one in log.segments
            if one.base_offset <= segment.base_offset
        ]

    def run(self) -> list[AbortedEntry]:
        """All aborted transactions that end in the segment. OSError, ProtocolError."""
        base_offset, size = self._places[-1]
        with closing(self._open(base_offset)) as records:
            if not has_abort_marker(records, size):
                return []
        producers = self._producers.before(base_offset + 1, self._first)
        lacks_beginnings = self._first > 0 and producers.latest_snapshot_offset is None
        known = self._known if lacks_beginnings else ()
        batches = self._batches(producers.map_end_offset)
        return find_aborted(producers, batches, base_offset, known)

    def _open(self, base_offset: int) -> File:
        return self._files.open(f"{self._folder}/{file_name(base_offset, LOG_SUFFIX)}")

    def _batches(self, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Those of all segments from the one that holds an offset on."""
        ends = [base for base, *_ in self._places[1:]]
        for (base, size), end in zip(self._places, [*ends, self._end_offset], strict=True):
            if end > offset:
                with closing(self._open(base)) as records:
                    for _, header, batch in whole_batches(records, 0, size):
                        yield header, batch

    def settle(self, aborted: list[AbortedEntry]) -> None:
        """Take note of what `run` has found, unless the log is another one by now."""
        log, segment = self._log, self._segment
        if (
            log.truncations != self._truncations
            or log.segments.floor(segment.base_offset) is not segment
            or segment.transactions_are_proven
        ):
            return
        index = segment.transaction_index
        later = index.entries[len(self._known) :]  # were appended meanwhile
        if index.entries != aborted + later or not index.is_whole:
            index.replace(aborted + later)
        segment.transactions_are_proven = True


def has_abort_marker(records: File, end: int) -> bool:
    """Return whether the segment's first `end` bytes contain an abort marker."""
    return any(_is_abort(batch) for batch in control_batches(records, end))


def _is_abort(batch: Buffer) -> bool:
    record = next(iter_records(batch), None)
    return record is not None and control_type(record) == ControlType.ABORT


def find_aborted(
    producers: ProducerStateManager,
    batches: Iterable[tuple[BatchHeader, Buffer]],
    base_offset: int,
    known: Sequence[AbortedEntry] = (),
) -> list[AbortedEntry]:
    """Return the right entries of the transaction index of the segment at `base_offset`.

    `producers` is the state at or below that offset, `batches` are those from its end offset on, to
    the segment's end. `known` are the index's present entries if `producers` may lack the beginning
    of a transaction, because that was deleted: of such a one, the entry is taken from there.
    """
    by_marker = {(entry.producer_id, entry.last_offset): entry for entry in known}
    found: list[AbortedEntry] = []
    for header, batch in batches:
        if header.producer_id < 0 or header.base_offset < producers.map_end_offset:
            continue
        completed = producers.update(header, batch)
        entry = by_marker.get((header.producer_id, header.base_offset))
        if completed is None:
            if entry is not None and header.is_control and _is_abort(batch):
                found.append(entry)
            continue
        if completed.is_aborted and completed.last_offset >= base_offset:
            made = AbortedEntry(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                producers.last_stable_offset(completed),
            )
            if entry is not None and entry.first_offset < made.first_offset:
                made = entry  # it began in the deleted part
            found.append(made)
        producers.complete_transaction(completed)
    return found
