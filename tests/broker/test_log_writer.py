"""Writes of transaction coordinators: pending until it is sure whether the log has them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.awaiting import drive
from tidelog.coordinators.transactions.log_writer import append
from tidelog.coordinators.transactions.shard import TransactionShard
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable


class Topic:
    """Appends one record; what is committed is the test's to say."""

    def __init__(self) -> None:
        self.refusal: ErrorCode | None = None
        self.waiting: list[tuple[int, Callable[[ErrorCode], None]]] = []

    def append(self, _index: int, _records: Any, **_options: Any) -> int:
        if self.refusal is not None:
            raise StorageError(self.refusal)
        return 7  # the end of the log

    def commit(self, _index: int, end_offset: int, on_done: Callable[[ErrorCode], None]) -> None:
        self.waiting.append((end_offset, on_done))


class Write:
    """One write, and who heard what."""

    def __init__(self, refusal: ErrorCode | None = None) -> None:
        self.topic, self.shard, self.is_held = Topic(), TransactionShard(0, 3), True
        self.topic.refusal = refusal
        self.answers: list[ErrorCode] = []
        self.heard: list[ErrorCode] = []
        led: Any = SimpleNamespace(topic=self.topic, holds=lambda _: self.is_held)
        drive(self._write(led), self.answers.append)

    async def _write(self, led: Any) -> ErrorCode:
        error = await append(led, self.shard, [(b"key", b"value")], 0)
        self.heard.append(error)
        return error

    def settle(self, error: ErrorCode) -> None:
        end_offset, on_done = self.topic.waiting.pop()
        assert end_offset == self.shard.end_offset == 7
        on_done(error)


@pytest.mark.parametrize(
    ("outcome", "heard"),
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NONE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_what_takes_long_is_late_and_then_known(outcome: ErrorCode, heard: ErrorCode) -> None:
    write = Write()
    late = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    for _ in range(2):
        write.settle(ErrorCode.REQUEST_TIMED_OUT)
        assert (write.answers, write.heard) == (late, [])
    write.settle(outcome)
    assert (write.answers, write.heard) == (late, [heard])
    assert not write.topic.waiting


@pytest.mark.parametrize("outcome", [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT])
def test_what_another_coordinator_has_is_not_ours(outcome: ErrorCode) -> None:
    write = Write()
    write.is_held = False
    write.settle(outcome)
    assert write.heard == [ErrorCode.NOT_COORDINATOR]
    assert not write.topic.waiting


def test_what_is_not_appended_is_known_at_once() -> None:
    write = Write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert write.heard == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert write.shard.end_offset == 0
