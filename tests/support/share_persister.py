"""The state of share partitions in memory: a `Persister` for tests of what uses one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.share.batches import merge
from tidelog.coordinators.share.values import (
    UNINITIALIZED,
    Outcome,
    SharePartition,
    StateBatch,
    StateOutcome,
    SummaryOutcome,
)
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.coordinators.share.persister import Persister
    from tidelog.coordinators.share.values import Deletion, Initialization, Reading, Writing


class Kept(NamedTuple):
    """A share partition's state."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()


class MemoryPersister:
    """Answers as a share coordinator does. While `failure` is set, every call fails with it."""

    def __init__(self) -> None:
        self.states: dict[SharePartition, Kept] = {}
        self.failure = ErrorCode.NONE

    async def initialize(self, group_id: str, items: Sequence[Initialization]) -> list[Outcome]:
        return [self._initialize(SharePartition(group_id, *each[:2]), each) for each in items]

    def _initialize(self, key: SharePartition, item: Initialization) -> Outcome:
        kept = self.states.get(key)
        if self.failure:
            return Outcome(self.failure)
        if kept is not None and kept.state_epoch > item.state_epoch:
            return Outcome(ErrorCode.FENCED_STATE_EPOCH)
        complete = UNINITIALIZED if item.start_offset == UNINITIALIZED else 0
        self.states[key] = Kept(item.state_epoch, 0, item.start_offset, complete)
        return Outcome()

    def _refusal(self, key: SharePartition, leader_epoch: int) -> ErrorCode:
        kept = self.states.get(key)
        if self.failure:
            return self.failure
        if kept is None:
            return ErrorCode.INVALID_REQUEST
        is_fenced = -1 < leader_epoch < kept.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_fenced else ErrorCode.NONE

    async def read(self, group_id: str, items: Sequence[Reading]) -> list[StateOutcome]:
        return [self._read(SharePartition(group_id, *each[:2]), each) for each in items]

    def _read(self, key: SharePartition, item: Reading) -> StateOutcome:
        refusal = self._refusal(key, item.leader_epoch)
        if refusal:
            return StateOutcome(refusal)
        kept = self.states[key]
        leader_epoch = max(item.leader_epoch, kept.leader_epoch)
        self.states[key] = kept._replace(leader_epoch=leader_epoch)
        return StateOutcome(
            state_epoch=kept.state_epoch, start_offset=kept.start_offset, batches=kept.batches
        )

    async def write(self, group_id: str, items: Sequence[Writing]) -> list[Outcome]:
        return [self._write(SharePartition(group_id, *each[:2]), each) for each in items]

    def _write(self, key: SharePartition, item: Writing) -> Outcome:
        refusal = self._refusal(key, item.leader_epoch)
        if refusal:
            return Outcome(refusal)
        kept = self.states[key]
        if -1 < item.state_epoch < kept.state_epoch:
            return Outcome(ErrorCode.FENCED_STATE_EPOCH)
        start = kept.start_offset if item.start_offset == UNINITIALIZED else item.start_offset
        leader_epoch = max(item.leader_epoch, kept.leader_epoch)
        batches = merge(kept.batches, item.batches, start)
        complete = item.delivery_complete_count
        self.states[key] = Kept(kept.state_epoch, leader_epoch, start, complete, batches)
        return Outcome()

    async def delete(self, group_id: str, items: Sequence[Deletion]) -> list[Outcome]:
        if not self.failure:
            for each in items:
                self.states.pop(SharePartition(group_id, *each), None)
        return [Outcome(self.failure) for _ in items]

    async def read_summary(self, group_id: str, items: Sequence[Reading]) -> list[SummaryOutcome]:
        return [self._summary(SharePartition(group_id, *each[:2])) for each in items]

    def _summary(self, key: SharePartition) -> SummaryOutcome:
        kept = self.states.get(key)
        if self.failure:
            return SummaryOutcome(self.failure)
        if kept is None:
            return SummaryOutcome(start_offset=UNINITIALIZED, delivery_complete_count=UNINITIALIZED)
        return SummaryOutcome(ErrorCode.NONE, None, *kept[:4])


def persister() -> Persister:
    """A persister without states."""
    return MemoryPersister()
