"""Transactions in a compaction pass: drop aborted records, and markers that are not needed.

Everything below the last stable offset is decided, so the transaction indexes name all aborted
transactions beforehand. A marker stays until no batch of its transaction is left in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.records import ControlType, control_type, iter_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.indexes import AbortedEntry


class CleanedTransactions:
    """Processes every batch of a pass, in the order of the log."""

    def __init__(
        self,
        aborted: Iterable[AbortedEntry],
        on_kept: Callable[[AbortedEntry], None] = lambda _: None,
    ) -> None:
        """`aborted`: all that overlap the part that is read. `on_kept` is called with those whose
        marker is kept, for the transaction index of the new segment."""
        self.on_kept = on_kept
        self._ahead = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted: dict[int, AbortedEntry] = {}  # begun, marker not reached yet; by producer id
        self._with_batches: set[int] = set()  # of those, the ones with a batch
        self._committed: set[int] = set()  # producers with a batch of their transaction

    def _pass(self, offset: int) -> None:
        ahead = self._ahead
        while ahead and ahead[-1].first_offset <= offset:
            entry = ahead.pop()
            self._aborted.setdefault(entry.producer_id, entry)

    def on_batch(self, header: BatchHeader) -> bool:
        """Process a data batch; return whether it is part of an aborted transaction."""
        self._pass(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._with_batches.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def on_control_batch(self, header: BatchHeader, batch: memoryview) -> bool:
        """Process a control batch; return whether nothing is left of its transaction."""
        self._pass(header.last_offset)
        record = next(iter_records(batch), None)
        if record is None:
            return True  # compacted before
        producer_id = header.producer_id
        match control_type(record):
            case ControlType.ABORT:
                entry = self._aborted.pop(producer_id, None)
                if entry is None or producer_id not in self._with_batches:
                    return True
                self._with_batches.remove(producer_id)
                self.on_kept(entry)
                return False
            case ControlType.COMMIT:
                if producer_id not in self._committed:
                    return True
                self._committed.remove(producer_id)
                return False
            case _:
                return False
