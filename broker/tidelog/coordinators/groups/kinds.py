"""The kinds of groups: classic ones and those of KIP-848.

Both have `group_id`, `type`, `protocol_type`, `state`, `members`, `is_empty`, `is_subscribed`,
`retention_start_ms`, `next_deadline_ms`, `resume` and `topics_changed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tidelog.coordinators.groups.consumer.group import ConsumerGroup
    from tidelog.coordinators.groups.group import Group

__all__ = ["AnyGroup"]

AnyGroup: TypeAlias = "Group | ConsumerGroup"
