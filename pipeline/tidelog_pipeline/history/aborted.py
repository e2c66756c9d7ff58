"""Which offsets of a piece belong to aborted transactions (KIP-98, KIP-1058).

A remote piece is judged by transaction indexes: its segment's own, and those of later segments,
because a transaction is named where its marker is. What was aborted behind all remote pieces comes
with the split; what lies behind too many segments, from the brokers.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from tidelog_storage.indexes import TRANSACTION_ENTRY, AbortedEntry, CorruptIndexError
from tidelog_storage.remote.api import IndexKind, RemoteResourceNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog_pipeline.history.planner import LivePart, Piece
    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.remote.api import RemoteStorage

__all__ = ["AbortedRange", "aborted_in", "is_aborted"]


class AbortedRange(NamedTuple):
    """Offsets of one producer's aborted transaction; the last one is inclusive."""

    producer_id: int
    first: int
    last: int


def is_aborted(header: BatchHeader, ranges: Iterable[AbortedRange]) -> bool:
    """Whether a batch is part of one of these."""
    if not header.is_transactional:
        return False
    producer_id, offset = header.producer_id, header.base_offset
    return any(one.producer_id == producer_id and one.first <= offset <= one.last for one in ranges)


def aborted_in(
    store: RemoteStorage,
    piece: Piece,
    behind: Iterable[tuple[int, int]],
    ask_brokers: Callable[[int], Iterable[tuple[int, int]]],
) -> list[AbortedRange]:
    """The aborted transactions of a remote piece. RemoteStorageError, CorruptIndexError.

    `behind`: (producer id, first offset) of those aborted behind all segments. `ask_brokers`
    returns the same of those that were open at an offset and aborted behind it.
    """
    assert piece.part is not None
    found: list[AbortedRange] = []
    for part in (piece.part, *piece.later):
        if _collect(store, part, piece, found):
            return found
    rest = list(behind)
    if not piece.later_is_whole:
        rest += ask_brokers(piece.end)
    found += [AbortedRange(one, first, piece.end - 1) for one, first in rest if first < piece.end]
    return found


def _collect(store: RemoteStorage, part: LivePart, piece: Piece, found: list[AbortedRange]) -> bool:
    """Add a segment's transactions that overlap the piece; return whether later ones have none
    (Kafka: TransactionIndex.collectAbortedTxns)."""
    for entry in _entries(store, part):
        # A marker outside the lineage ended nothing in it.
        if not part.start <= entry.last_offset < part.end:
            continue
        if entry.last_offset >= piece.start and entry.first_offset < piece.end:
            found.append(AbortedRange(entry.producer_id, entry.first_offset, entry.last_offset))
        if entry.last_stable_offset >= piece.end:
            return True
    return False


def _entries(store: RemoteStorage, part: LivePart) -> list[AbortedEntry]:
    segment = part.segment
    if segment.txn_index_empty:
        return []
    try:
        with closing(store.fetch_index(segment, IndexKind.TRANSACTION)) as stream:
            data = stream.read()
    except RemoteResourceNotFound:
        store.fetch_segment(segment, 0, 0).close()  # raises if the whole segment is gone
        return []  # before KIP-1058 nothing said that there is none
    if len(data) % TRANSACTION_ENTRY.size:
        raise CorruptIndexError(f"the transaction index of {segment.segment_id} is cut")
    return [AbortedEntry(*fields) for _, *fields in TRANSACTION_ENTRY.iter_unpack(data)]
