"""A heartbeat that is refused, and the answer to one. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.coordinators.groups.modern.member import Partitions

__all__ = ["Answer", "RefusedError", "invalid"]


class RefusedError(Exception):
    """A request that the group refuses; it changes nothing."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


def invalid(message: str) -> RefusedError:
    """Return the refusal of a field."""
    return RefusedError(ErrorCode.INVALID_REQUEST, message)


class Answer(NamedTuple):
    """What a member gets; `assigned` is None if it has not changed."""

    member_id: str
    epoch: int
    assigned: Partitions | None = None
    heartbeat_interval_ms: int = 0  # not for a member that leaves
