"""Cases: kafka-get-offsets and kafka-consumer-groups --reset-offsets of tiered topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat.conformance.tiered.registry import tool

if TYPE_CHECKING:
    from compat.conformance.tiered.session import TieredSession

TIMES = (
    "latest",
    "earliest",
    "max-timestamp",
    "earliest-local",
    "latest-tiered",
    "earliest-pending-upload",
    "1700000006000",
    "1800000000000",
)
# 2023-11-14T22:13:20Z is when the first record was.
RESETS = (
    ("--to-earliest",),
    ("--to-latest",),
    ("--by-duration", "P7300D"),
    ("--by-duration", "PT1M"),
    ("--to-datetime", "2023-11-14T22:13:26.000Z"),
    ("--to-datetime", "2023-11-14T22:13:32.500Z"),
    ("--to-offset", "5"),
    ("--to-offset", "0"),
)


@tool("ListOffsets", 11)
def console_get_offsets(s: TieredSession, version: int) -> None:
    del version
    for time in TIMES:
        s.tool("GetOffsetShell", "--topic", s.layouts["spread"], "--time", time)
    for time in ("earliest-local", "latest-tiered", "earliest-pending-upload"):
        s.tool("GetOffsetShell", "--topic", s.layouts["untiered"], "--time", time)


@tool("ListOffsets", 11)
def console_groups_reset(s: TieredSession, version: int) -> None:
    """A plan alone: nothing is committed."""
    del version
    s.group_coordinator()
    for how in RESETS:
        group = ("--reset-offsets", "--group", s.name, "--topic", s.layouts["spread"])
        s.tool("consumer.group.ConsumerGroupCommand", *group, *how, "--dry-run")


@tool("Fetch", 17)
def console_consumed(s: TieredSession, version: int) -> None:
    """The Java consumer reads across the tiers; who reads committed data sees no other."""
    del version
    s.group_coordinator()
    shown = ("--formatter-property", "print.offset=true", "--formatter-property", "print.key=true")
    for name, count, level in (
        ("spread", 13, "read_uncommitted"),
        ("spread", 13, "read_committed"),
        ("undecided", 7, "read_uncommitted"),
        ("undecided", 3, "read_committed"),
    ):
        asked = ("--topic", s.layouts[name], "--from-beginning", "--max-messages", str(count))
        s.tool("consumer.ConsoleConsumer", *asked, "--isolation-level", level, *shown)
