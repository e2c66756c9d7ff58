"""A heartbeat of a consumer group's member: its fields and the checks of them. Pure.

The errors and their messages are those of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.consumer.assignors import ASSIGNORS
from tidelog.coordinators.groups.modern.member import LEAVING, LEAVING_STATIC
from tidelog.coordinators.groups.modern.requests import RefusedError, invalid
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tidelog.coordinators.groups.modern.member import ClassicMetadata, Partitions

__all__ = ["Heartbeat", "check"]


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat request. None and -1: unchanged since the last one."""

    member_id: str
    epoch: int  # 0 joins, LEAVING and LEAVING_STATIC leave
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    classic: ClassicMetadata | None = None  # of a JoinGroup, which does not say an epoch
    may_describe: Callable[[str], bool] | None = None  # a topic; None without an authorizer

    @property
    def is_full(self) -> bool:
        """Return whether the member says all; it does so when it joins and after an error."""
        return self.epoch == 0 or (
            self.rebalance_timeout_ms != -1
            and (self.topic_names is not None or self.topic_regex is not None)
            and self.owned is not None
        )


def check(
    group_id: str,
    request: Heartbeat,
    *,
    needs_member_id: bool,
    assignors: Collection[str] = ASSIGNORS,
) -> None:
    """Check the fields of a request; RefusedError for the first wrong one, as in Kafka.

    From v1 on (KIP-1082), `needs_member_id`: the consumer makes its own member id.
    """
    if not request.member_id and (needs_member_id or request.epoch > 0 or request.epoch == LEAVING):
        raise invalid("MemberId can't be empty.")
    if not group_id:
        raise invalid("GroupId can't be empty.")
    if request.instance_id == "":
        raise invalid("InstanceId can't be empty.")
    if request.rack_id == "":
        raise invalid("RackId can't be empty.")
    if request.epoch == 0:
        _check_join(request)
    elif request.epoch == LEAVING_STATIC and request.instance_id is None:
        raise invalid("InstanceId can't be null.")
    elif request.epoch < LEAVING_STATIC:
        raise invalid("MemberEpoch is invalid.")
    name = request.server_assignor
    if name is not None and name not in assignors:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {name} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: Heartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        raise invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise invalid("TopicPartitions must be empty when (re-)joining.")
    if request.topic_names is None and request.topic_regex is None:
        raise invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )
