"""Places in a topic as users give them: an offset, `earliest`, `latest` or a time."""

# ruff: noqa: PLC0415 - start-up time

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidelog.cli.common import CommandError
from tidelog.cli.topics import EARLIEST, LATEST, offsets

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tidelog.embedded.cluster_client import ClusterClient

__all__ = ["FORM", "TIME_FORM", "join_past", "only", "resolve", "time_ms"]

TIME_FORM = "a time such as 2026-01-01T00:00 (UTC unless it has a zone) or -1h"
FORM = f"earliest, latest, an offset, or {TIME_FORM}"

_PAST = re.compile(r"-(\d{1,12})(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def join_past(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the words with `--from -1h` as `--from=-1h`: argparse takes `-1h` for an option."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in options and _PAST.fullmatch(word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def time_ms(text: str) -> int:
    """Return a time in milliseconds since 1970; CommandError for another form.

    A time without a zone is UTC, as in Kafka's own tools.
    """
    past = _PAST.fullmatch(text)
    if past is not None:
        from tidelog.runtime import SystemClock

        now_ms = SystemClock().wall_ms()
        return max(0, now_ms - int(past[1]) * _UNIT_MS[past[2]])
    from datetime import UTC, datetime

    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"{text!r} is not {TIME_FORM}") from None
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return max(0, int(time.timestamp() * 1000))


def only(topics: Sequence[Any], partition: int | None) -> None:
    """Keep this partition of a single topic; all partitions if it is None."""
    if partition is None:
        return
    if len(topics) != 1:
        raise CommandError("--partition needs one topic")
    (topic,) = topics
    kept = [each for each in topic.partitions if each.partition_index == partition]
    if not kept:
        raise CommandError(f"{topic.name} has no partition {partition}")
    topic.partitions = kept


def resolve(client: ClusterClient, topics: Sequence[Any], text: str) -> dict[tuple[str, int], int]:
    """Return the offset of a place in each partition; CommandError if a partition lacks it.

    A time is the first record of that time or later, or the end if there is none.
    """
    earliest = offsets(client, topics, EARLIEST)
    latest = offsets(client, topics, LATEST)
    for topic in topics:
        for partition in topic.partitions:
            if (topic.name, partition.partition_index) not in latest:
                raise CommandError(f"{topic.name}-{partition.partition_index} does not answer")
    if text == "earliest":
        return earliest
    if text == "latest":
        return latest
    if not (text.isascii() and text.isdigit()):
        found = offsets(client, topics, time_ms(text))
        return {
            place: end if found.get(place, -1) < 0 else found[place]
            for place, end in latest.items()
        }
    offset = int(text)
    for place, end in latest.items():
        if not earliest.get(place, 0) <= offset <= end:
            name = f"{place[0]}-{place[1]}"
            raise CommandError(
                f"{name} has offsets {earliest.get(place, 0)} to {end}, not {offset}"
            )
    return dict.fromkeys(latest, offset)
