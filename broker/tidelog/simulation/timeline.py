"""What happened in a run, as lines for the reader of a failure.

    12.345 s  broker-2          leads base-0-1 in epoch 4

Faults, lives and deaths, elections and changes of the in-sync replicas are lines of their own;
acknowledgements are many, and those between two other lines become one, as do the lives of a broker
that end the same way one after the other.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Event(NamedTuple):
    """One thing that happened. `end`: of the log that `text` names, if this is an
    acknowledgement."""

    at_s: float
    subject: str
    text: str
    end: int = -1


def lines(events: Iterable[Event]) -> Iterator[str]:
    """The events as readable lines."""
    for _, alike in itertools.groupby(events, _kind):
        *earlier, last = alike
        text = last.text
        if last.end >= 0:
            ends = dict(sorted((event.text, event.end) for event in (*earlier, last)))
            text = "acknowledged: " + ", ".join(f"{log} up to {end}" for log, end in ends.items())
        elif earlier:
            text += f" ({len(earlier) + 1} times since {earlier[0].at_s:.3f} s)"
        yield f"{last.at_s:9.3f} s  {last.subject:<16} {text}"


def _kind(event: Event) -> tuple[str, str]:
    """What consecutive events of one line have in common: of a broker, whatever life it is in."""
    is_acked = event.end >= 0
    return event.subject.partition(".")[0], "acknowledged" if is_acked else event.text
