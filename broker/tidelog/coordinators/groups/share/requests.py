"""A heartbeat of a share group's member: its fields and the checks of them. Pure.

The errors and their messages are those of Kafka 4.3.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.coordinators.groups.modern.member import LEAVING
from tidelog.coordinators.groups.modern.requests import RefusedError, invalid
from tidelog_protocol.errors import ErrorCode

__all__ = ["ShareHeartbeat", "check"]

_MEMBER_ID_MAX = 36  # characters, those of a UUID


class ShareHeartbeat(NamedTuple):
    """A ShareGroupHeartbeat request. None: unchanged since the last one."""

    member_id: str
    epoch: int  # 0 joins, LEAVING leaves
    rack_id: str | None = None
    topic_names: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""


def check(group_id: str, request: ShareHeartbeat) -> None:
    """Check the fields of a request; RefusedError for the first wrong one, as in Kafka."""
    if not 0 < len(request.member_id) <= _MEMBER_ID_MAX:
        raise RefusedError(ErrorCode.INVALID_REQUEST)  # without a message, as in Kafka
    if not group_id:
        raise invalid("GroupId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise invalid("RackId can't be empty.")
    if request.epoch == 0 and not request.topic_names:
        raise invalid("SubscribedTopicNames must be set in first request.")
    if request.epoch < LEAVING:
        raise invalid("MemberEpoch is invalid.")
