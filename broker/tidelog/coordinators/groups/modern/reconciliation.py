"""What the members of consumer and of streams groups wait for, by their states. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.modern.states import MemberState
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.coordinators.groups.modern.member import AnyMember

__all__ = ["must_wait"]


def must_wait(
    member: AnyMember, target_epoch: int, *, owns_any: bool, owns_revoked: bool, refusal: str
) -> bool:
    """Return whether a member stays as it is in this heartbeat. A step leads to UNREVOKED if it has
    to give something up, else to UNRELEASED if it has to wait for others, else to STABLE.

    The table of Kafka's CurrentAssignmentBuilder. A member that does not say what it owns may own
    anything. RefusedError for a member that must join again.
    """
    match member.state:
        case MemberState.STABLE:
            return member.epoch == target_epoch
        case MemberState.UNREVOKED:
            return owns_revoked
        case MemberState.UNRELEASED:
            return False
        case MemberState.UNKNOWN:
            if owns_any:
                raise RefusedError(ErrorCode.FENCED_MEMBER_EPOCH, refusal)
            return False
