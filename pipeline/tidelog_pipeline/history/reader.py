"""One split as Arrow record batches, by one task with its own connections.

A segment that is deleted while it is read is replaced by what is left; `loss.py` reports the rest.
Memory: two ranges of bytes, and the records of about `GROUP_BYTES`.
"""

from __future__ import annotations

from collections import deque
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidelog.embedded.cluster_settings import ClusterError
from tidelog.embedded.tier_check import open_store_of
from tidelog_pipeline.history.aborted import aborted_in
from tidelog_pipeline.history.broker import GoneError, broker_batches
from tidelog_pipeline.history.client import HistoryClient, UnknownTopicError
from tidelog_pipeline.history.decoder import (
    ROWS_MAX,
    Group,
    Kept,
    decode,
    is_known_by_header,
    needs_records,
    opened,
)
from tidelog_pipeline.history.loss import lost
from tidelog_pipeline.history.segments import remote_batches
from tidelog_pipeline.history.views import check_range, split_of, views_of
from tidelog_storage.remote.api import RemoteResourceNotFound
from tidelog_storage.remote.chunks import CorruptRemoteDataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog_pipeline.history.decoder import RawBatch
    from tidelog_pipeline.history.planner import Piece, Split
    from tidelog_storage.remote.api import RemoteStorage

__all__ = ["ReadSettings", "read_split"]

GROUP_BYTES = 8 << 20
_SAME_MAX = 3  # plans in a row that bring a read no further


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """What a task needs beside its split. The store's properties are in no `repr`: they may be
    secret."""

    bootstrap_servers: str
    is_committed: bool
    fails_on_data_loss: bool
    store: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # with their prefixes
    store_class: str | None = field(default=None, repr=False)  # one that the user trusts
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # a client's properties

    def connect(self) -> HistoryClient:
        """Connections to the brokers, of one task."""
        return HistoryClient(
            self.bootstrap_servers,
            is_committed=self.is_committed,
            properties=dict(self.security),
        )

    def open_store(self) -> RemoteStorage:
        """The remote store; ClusterError if it can't be opened here."""
        try:
            return open_store_of(dict(self.store), {}, self.store_class)
        except (ClusterError, ValueError) as error:
            text = "the remote store can't be opened here; options rsm.config.* name another"
            raise ClusterError(f"{text}: {error}") from None


def read_split(split: Split, settings: ReadSettings, columns: Sequence[str]) -> Iterator[Any]:
    """The split's records as Arrow batches, by offset. DataLossError, RemoteStorageError,
    ClusterError, OSError, ProtocolError."""
    with closing(_Task(settings)) as task:
        batches = task.batches(split)
        for group in _groups(split, batches, is_opened=needs_records(columns)):
            yield decode(group, columns)


def _groups(
    split: Split, batches: Iterator[tuple[RawBatch, Kept]], *, is_opened: bool
) -> Iterator[Group]:
    """The batches, some megabytes at a time. Not `is_opened`: their headers are enough, until there
    is one that is not."""
    found: list[RawBatch] = []
    size = rows = 0
    of: tuple[Kept, bool] | None = None
    for raw, kept in batches:
        is_opened = is_opened or not is_known_by_header(raw.header)
        if of is not None and found and of != (kept, is_opened):
            yield Group(split.topic, split.partition, found, *of)
            found, size, rows = [], 0, 0
        of = kept, is_opened
        found.append(opened(raw) if is_opened else raw._replace(payload=b""))
        size += len(found[-1].payload)
        rows += raw.header.records_count
        if size >= GROUP_BYTES or rows >= ROWS_MAX:  # at once: the next range is on its way
            yield Group(split.topic, split.partition, found, *of)
            found, size, rows = [], 0, 0
    if of is not None and found:
        yield Group(split.topic, split.partition, found, *of)


class _Task:
    """The connections of one task."""

    def __init__(self, settings: ReadSettings) -> None:
        self._settings = settings
        self._opened_store: RemoteStorage | None = None
        self._opened_client: HistoryClient | None = None

    def close(self) -> None:
        if self._opened_store is not None:
            self._opened_store.close()
        if self._opened_client is not None:
            self._opened_client.close()

    def batches(self, split: Split) -> Iterator[tuple[RawBatch, Kept]]:
        """Batches, and which of their offsets count."""
        waiting = deque((split, piece) for piece in split.pieces)
        same = 0
        while waiting:
            of, piece = waiting.popleft()
            kept, position = Kept(piece.start, piece.end), piece.start
            try:
                for raw in self._of_piece(of, piece):
                    position, same = raw.header.next_offset, 0
                    yield raw, kept
            except (RemoteResourceNotFound, CorruptRemoteDataError, GoneError) as error:
                same += 1
                if position < piece.end:
                    again = self._again(of, position, piece, error, is_last=same >= _SAME_MAX)
                    waiting.extendleft((again, one) for one in reversed(again.pieces))

    def _of_piece(self, split: Split, piece: Piece) -> Iterator[RawBatch]:
        if piece.part is None:
            return broker_batches(self._client, split, piece)
        aborted = []
        if self._settings.is_committed:
            aborted = aborted_in(
                self._store,
                piece,
                split.aborted,
                lambda offset: self._client.aborted_behind(
                    split.topic, split.topic_id, split.partition, offset
                ),
            )
        return remote_batches(self._store, piece, aborted)

    def _again(
        self, split: Split, position: int, piece: Piece, error: Exception, *, is_last: bool
    ) -> Split:
        """What is left of [position, end of the piece), by a new look at the partition."""
        client = self._client
        name, fails = f"{split.topic}-{split.partition}", self._settings.fails_on_data_loss
        try:
            (log,) = views_of(client, split.topic, [split.partition])
        except UnknownTopicError:
            log = None
        if log is None or log.topic_id != split.topic_id:
            lost(f"{name} was deleted; [{position}, {piece.end}) is gone", fails=fails)
            return replace(split, pieces=())
        start, end = check_range(log, position, piece.end, fails=fails)
        if start >= end:
            return replace(split, pieces=())
        found = split_of(client, log, start, end, is_committed=self._settings.is_committed)
        first = found.pieces[0]
        is_same = (
            piece.part is not None
            and first.part is not None
            and first.part.segment.segment_id == piece.part.segment.segment_id
        )
        if is_same or is_last:
            raise error
        return found

    @property
    def _client(self) -> HistoryClient:
        if self._opened_client is None:
            self._opened_client = self._settings.connect()
        return self._opened_client

    @property
    def _store(self) -> RemoteStorage:
        if self._opened_store is None:
            self._opened_store = self._settings.open_store()
        return self._opened_store
