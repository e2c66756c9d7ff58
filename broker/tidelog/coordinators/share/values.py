"""What is asked of the state of share partitions, and what is answered. Pure values.

-1 stands for what a request leaves alone: an epoch that is not checked, a start offset that is not
written.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.primitives import uuid_from_str, uuid_to_str

__all__ = [
    "UNINITIALIZED",
    "Deletion",
    "Initialization",
    "Outcome",
    "Reading",
    "SharePartition",
    "StateBatch",
    "StateOutcome",
    "SummaryOutcome",
    "Writing",
]

UNINITIALIZED = -1  # a start offset or a delivery complete count that is not known


class SharePartition(NamedTuple):
    """A partition of a topic, as one share group sees it. Kafka's SharePartitionKey."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key by which FindCoordinator finds its share coordinator."""
        return f"{self.group_id}:{uuid_to_str(self.topic_id)}:{self.partition}"

    @classmethod
    def of_coordinator_key(cls, key: str) -> SharePartition | None:
        """Return the share partition of a key, None for any other text. Colons at the end are
        overlooked, as in Kafka."""
        parts = key.rstrip(":").rsplit(":", 2)
        if len(parts) != 3 or not parts[0].strip() or not parts[2].lstrip("+-").isdecimal():
            return None
        try:
            partition = int(parts[2])
            found = cls(parts[0], uuid_from_str(parts[1]), partition)
        except ValueError:
            return None
        return found if -(1 << 31) <= partition < 1 << 31 else None


class StateBatch(NamedTuple):
    """Records with the same delivery state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class Initialization(NamedTuple):
    """Begin the state of a share partition; start offset -1: decided at the first read."""

    topic_id: bytes
    partition: int
    state_epoch: int
    start_offset: int = UNINITIALIZED


class Reading(NamedTuple):
    """Read a state or its summary. A read as a new leader fences the one before."""

    topic_id: bytes
    partition: int
    leader_epoch: int = -1


class Writing(NamedTuple):
    """Change the state of a share partition, as its leader."""

    topic_id: bytes
    partition: int
    state_epoch: int
    leader_epoch: int
    start_offset: int = UNINITIALIZED
    delivery_complete_count: int = UNINITIALIZED
    batches: tuple[StateBatch, ...] = ()


class Deletion(NamedTuple):
    """Delete the state of a share partition; without one it is no error."""

    topic_id: bytes
    partition: int


class Outcome(NamedTuple):
    """NONE once the change is committed, or why it may not be."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class StateOutcome(NamedTuple):
    """The state of a share partition, or the error."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    start_offset: int = 0
    batches: tuple[StateBatch, ...] = ()


class SummaryOutcome(NamedTuple):
    """The state of a share partition without its batches, or the error."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = UNINITIALIZED
