"""LogAppendTime: the time at which the leader appended a record, as its clients learn it.

A producer is answered the time that every reader finds in the record. In one leader epoch times do
not go back with the offsets, unless the leader's clock was set back.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from histories.calls import Anomaly, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from histories.calls import ClientHistory, Place, Stamp


def check_stamps(history: ClientHistory) -> Iterator[Anomaly]:
    """All anomalies of append times."""
    found: dict[Place, dict[int, Stamp]] = defaultdict(dict)
    for poll in history.polls:
        stamps = found[poll.place]
        for stamp in poll.stamps:
            known = stamps.setdefault(stamp.offset, stamp)
            if known != stamp and not history.has_losses([poll.place]):
                yield Anomaly("append time", f"{poll.place}: read as {known} and as {stamp}")
    for send in history.sends:
        if send.outcome is not Outcome.OK or not send.is_all or send.offset is None:
            continue
        read = found[send.place].get(send.offset)
        is_other = read is not None and read.time_ms != send.appended_ms
        if read is not None and is_other and not history.has_losses([send.place]):
            yield Anomaly(
                "append time",
                f"{send.place}: {send.appended_ms} was answered for {send.offset}, read is"
                f" {read.time_ms}",
            )
    if history.clocks_are_steady:
        for place, stamps in sorted(found.items()):
            yield from _going_back(place, [stamps[offset] for offset in sorted(stamps)])


def _going_back(place: Place, stamps: list[Stamp]) -> Iterator[Anomaly]:
    last: dict[int, Stamp] = {}
    for stamp in stamps:
        before = last.get(stamp.epoch)
        if before is not None and before.time_ms > stamp.time_ms:
            yield Anomaly("append time went back", f"{place}: {before}, then {stamp}")
        last[stamp.epoch] = stamp
