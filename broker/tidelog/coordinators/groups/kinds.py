"""The kinds of groups: classic ones, consumer groups (KIP-848) and share groups (KIP-932).

All have `group_id`, `type`, `protocol_type`, `state`, `members`, `is_empty`, `is_subscribed`,
`retention_start_ms`, `next_deadline_ms`, `resume` and `topics_changed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tidelog.coordinators.groups.consumer.group import ConsumerGroup
    from tidelog.coordinators.groups.group import Group
    from tidelog.coordinators.groups.share.group import ShareGroup

__all__ = ["AnyGroup", "MemberGroup"]

MemberGroup: TypeAlias = "ConsumerGroup | ShareGroup"
"""Its members follow a target assignment that the coordinator computes."""

AnyGroup: TypeAlias = "Group | MemberGroup"
