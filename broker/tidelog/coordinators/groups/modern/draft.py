"""When a target assignment is due, and its records. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.coordinators.groups.modern.records import GroupRecords, Record
    from tidelog.coordinators.groups.modern.views import GroupView
    from tidelog.coordinators.groups.now import Now

__all__ = ["is_too_early", "target_records"]

T = TypeVar("T")


def is_too_early(group: GroupView[Any, Any], now: Now) -> bool:
    """Return whether the last target assignment is younger than the assignment interval of the
    group's settings (KIP-1263). Members that come meanwhile wait for the next one."""
    elapsed_ms = now.wall_ms - group.assignment_ms  # below 0 if the clock was set back
    return 0 <= elapsed_ms < group.limits.assignment_interval_ms


def target_records(
    records: GroupRecords[Any, T], group_id: str, before: Mapping[str, T], after: Mapping[str, T]
) -> list[Record]:
    """Return the records of the targets that change; that of the target's epoch follows them."""
    return [
        records.target_record(group_id, member_id, after[member_id])
        for member_id in sorted(after)
        if (known := before.get(member_id)) is not after[member_id] and known != after[member_id]
    ]
