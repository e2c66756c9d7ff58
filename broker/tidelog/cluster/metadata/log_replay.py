"""Replays the batches of the metadata log into images, some records at a time.

One operation is one batch, so an image has only whole batches. A broker that has fallen behind
applies many: other work of the loop has its turn between the parts. Kafka's MetadataLoader also
publishes images of whole batches, on a thread of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.metadata.records import decode_batch
from tidelog.cluster.metadata.replay import ImageBuilder
from tidelog_protocol.batch import crc_is_valid, iter_batches
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages import metadata_records as tables
from tidelog_protocol.records import ControlType, control_type, iter_records
from tidelog_storage.types import Records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog_protocol.batch import BatchHeader
    from tidelog_protocol.schema import Message
    from tidelog_storage.log import Log

__all__ = ["RECORDS_AT_ONCE", "LogReplay", "Transactions"]

RECORDS_AT_ONCE = 1000
"""Records of one turn of the loop: 10 to 20 ms, with what the listeners make of them."""

_READ_BYTES = 1 << 20


class Transactions:
    """Applies records; those of a transaction together, when it ends (KIP-868)."""

    def __init__(self) -> None:
        self._held: list[Message] | None = None

    @property
    def is_open(self) -> bool:
        """Whether records are held, because their transaction has not ended."""
        return self._held is not None

    def forget(self) -> None:
        """Forget the open one."""
        self._held = None

    def apply(self, builder: ImageBuilder, record: Message) -> None:
        """Apply a record. ReplayError if it does not fit."""
        if isinstance(record, tables.BeginTransactionRecord):
            self._held = []
        elif isinstance(record, tables.EndTransactionRecord):
            for held in self._held or ():
                builder.apply(held)
            self._held = None
        elif isinstance(record, tables.AbortTransactionRecord):
            self._held = None
        elif self._held is not None:
            self._held.append(record)
        else:
            builder.apply(record)


class LogReplay:
    """The replay of one log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.transactions = Transactions()

    def image(self, image: ClusterImage, end: int) -> ClusterImage:
        """Return an image with all batches below `end`, a batch boundary."""
        for each in self.images(image, end, end):
            image = each or image
        return image

    def images(
        self, image: ClusterImage, end: int, at_once: int | None = None
    ) -> Iterator[ClusterImage | None]:
        """Yield images with more and more batches, the last one with all below `end`; None within
        a batch. `at_once` records are applied between two, and what is left of the last batch.

        ProtocolError, ReplayError or StorageError for records that cannot be applied.
        """
        at_once = at_once or RECORDS_AT_ONCE
        builder, count = ImageBuilder(image), 0
        leader = (image.leader_epoch, image.controller_id)
        for header, batch in self.batches(image.offset + 1, end):
            if header.is_control:
                leader = self._apply_control(builder, header, batch) or leader
            else:
                for record in decode_batch(batch):
                    if count and not count % at_once:
                        yield None
                    count += 1
                    self.transactions.apply(builder, record)
            if count >= at_once or header.next_offset >= end:
                epoch, controller_id = leader
                image = builder.build(
                    offset=header.last_offset, leader_epoch=epoch, controller_id=controller_id
                )
                yield image
                builder, count = ImageBuilder(image), 0

    def _apply_control(
        self, builder: ImageBuilder, header: BatchHeader, batch: memoryview
    ) -> tuple[int, int] | None:
        """Apply a control batch; return the epoch and the leader that it begins with, if it
        does."""
        leader = None
        for record in iter_records(batch):
            if control_type(record) == ControlType.LEADER_CHANGE and record.value is not None:
                leader = (header.leader_epoch, int.from_bytes(record.value[2:6], signed=True))
                self.transactions.forget()  # a new leader does not continue another's transaction
            else:
                builder.apply_control(record)
        return leader

    def batches(self, position: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the batches of [position, end), batch boundaries. ProtocolError for a changed
        one."""
        while position < end:
            outcome = self._log.read(position, _READ_BYTES, upper_bound=end, min_one_batch=True)
            assert isinstance(outcome, Records)
            assert outcome.size, f"nothing to read at {position} of {self._log}"
            data = memoryview(b"".join(outcome.parts))
            for start, header in iter_batches(data):
                if not crc_is_valid(data, header, start):
                    raise ProtocolError(f"the metadata log is damaged at {header.base_offset}")
                if position <= header.base_offset < end:
                    yield header, data[start : start + header.size_in_bytes]
                position = max(position, header.next_offset)
