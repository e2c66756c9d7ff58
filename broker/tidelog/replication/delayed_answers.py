"""Responses that wait for a watermark: Produce with acks=-1, and DeleteRecords."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.replication.purgatory import DelayedOperation
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.replication.partition import Partition

__all__ = ["DelayedAnswers"]


class DelayedAnswers(DelayedOperation[tuple[str, int]]):
    """Kafka's DelayedProduce and DelayedDeleteRecords: some partitions of a request are undecided.

    Case A: the high watermark (Produce) or the low watermark (DeleteRecords) reached the offset:
    answered.
    Case B: this broker no longer leads the partition, or it is gone: NOT_LEADER_OR_FOLLOWER.
    Case C: the deadline: REQUEST_TIMED_OUT for those still undecided; what was appended stays.
    Woken by: the partitions, whenever a watermark moves or their role changes.
    """

    __slots__ = ("_ask", "_errors", "_on_done", "_pending")

    def __init__(
        self,
        waits: Sequence[tuple[Partition, int]],
        ask: Callable[[Partition, int], ErrorCode | None],
        on_done: Callable[[list[ErrorCode]], None],
    ) -> None:
        """`ask(partition, offset)` decides one partition; `on_done` gets the error codes in the
        order of `waits`."""
        super().__init__()
        self._ask = ask
        self._on_done = on_done
        self._errors: list[ErrorCode] = [ErrorCode.REQUEST_TIMED_OUT] * len(waits)
        self._pending: dict[int, tuple[Partition, int]] = dict(enumerate(waits))
        self._poll(None)

    @property
    def decided(self) -> bool:
        """Return whether no partition is pending."""
        return not self._pending

    @property
    def errors(self) -> list[ErrorCode]:
        """Return one code per wait."""
        return self._errors

    def pending_keys(self) -> list[tuple[str, int]]:
        """Return the keys to watch."""
        return list({p.topic_partition: None for p, _ in self._pending.values()})

    def touch(self, key: tuple[str, int]) -> bool:
        """Decide one partition again."""
        self._poll(key)
        return not self._pending

    def complete(self, *, expired: bool) -> None:
        """Answer; undecided partitions stay REQUEST_TIMED_OUT."""
        self._on_done(self._errors)

    def fail(self) -> None:
        """Answer with UNKNOWN_SERVER_ERROR for undecided partitions."""
        for index in self._pending:
            self._errors[index] = ErrorCode.UNKNOWN_SERVER_ERROR
        self._on_done(self._errors)

    def _poll(self, key: tuple[str, int] | None) -> None:
        for index, (partition, offset) in list(self._pending.items()):
            if key is None or partition.topic_partition == key:
                error = self._ask(partition, offset)
                if error is not None:
                    self._errors[index] = error
                    del self._pending[index]
