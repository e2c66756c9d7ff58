"""The kinds of groups: classic ones, consumer groups (KIP-848), share groups (KIP-932) and streams
groups (KIP-1071).

All have `group_id`, `type`, `protocol_type`, `state`, `members`, `is_empty`, `is_subscribed`,
`retention_start_ms`, `next_deadline_ms`, `resume` and `topics_changed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tidelog.coordinators.groups.classic.group import Group
    from tidelog.coordinators.groups.consumer.group import ConsumerGroup
    from tidelog.coordinators.groups.share.group import ShareGroup
    from tidelog.coordinators.groups.streams.group import StreamsGroup

__all__ = ["AnyGroup", "MemberGroup"]

MemberGroup: TypeAlias = "ConsumerGroup | ShareGroup | StreamsGroup"
"""Its members follow a target assignment that the coordinator computes."""

AnyGroup: TypeAlias = "Group | MemberGroup"
