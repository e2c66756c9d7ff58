"""Each partition as a queue: what clients know of a record holds for every other client.

A *fact* is a value at an offset that a client knows of: acknowledged with acks=all, or read. A read
of a range has every fact of that range in it, however early or late it was made: what was readable
once stays (replication spec, section 13).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING

from histories.calls import Anomaly, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from histories.calls import ClientHistory, Place, Poll, Send


def check_queues(history: ClientHistory) -> Iterator[Anomaly]:
    """All anomalies of records, by partition."""
    sends: dict[Place, list[Send]] = defaultdict(list)
    polls: dict[Place, list[Poll]] = defaultdict(list)
    for send in history.sends:
        sends[send.place].append(send)
    for poll in history.polls:
        polls[poll.place].append(poll)
    for place in sorted({*sends, *polls}):
        queue = _Queue(history, place, sends[place], polls[place])
        yield from queue.inconsistent_offsets()
        yield from queue.phantoms()
        yield from queue.lost()
        yield from queue.outlived()
        yield from queue.unseen()
        yield from queue.duplicates()
        yield from queue.reordered()
        yield from queue.out_of_order()
        yield from queue.skips()


class _Queue:
    """One partition of a history."""

    def __init__(
        self, history: ClientHistory, place: Place, sends: list[Send], polls: list[Poll]
    ) -> None:
        self.history, self.place, self.sends, self.polls = history, place, sends, polls
        self.name = f"{place[0]}-{place[1]}"
        self.first = history.deleted.get(place, 0)  # facts below it may be gone
        self.by_value = {send.value: send for send in sends}
        self.facts: dict[int, tuple[bytes, float]] = {}  # by offset: value, since when it is known
        self.contradictions: list[Anomaly] = []
        for send in sends:
            if send.outcome is Outcome.OK and send.is_all and send.offset is not None:
                self._learn(send.offset, send.value, send.span.completed)
        for poll in polls:
            for offset, value in poll.records:
                self._learn(offset, value, poll.span.completed)
        self.offsets = sorted(self.facts)

    def _learn(self, offset: int, value: bytes, at: float) -> None:
        known = self.facts.get(offset)
        if known is None or (known[0] != value and self._is_void(offset, known[1], at)):
            self.facts[offset] = (value, at)
        elif known[0] == value:
            self.facts[offset] = (value, min(at, known[1]))
        elif not self._is_void(offset, at, known[1]):
            self.contradictions.append(
                Anomaly(
                    "inconsistent offset",
                    f"{self.name} has {known[0][:40]!r} and {value[:40]!r} at {offset}",
                )
            )

    def _is_void(self, offset: int, known: float, asked: float) -> bool:
        return self.history.is_void(self.place, offset, known, asked)

    def inconsistent_offsets(self) -> Iterator[Anomaly]:
        """Two values at one offset."""
        yield from self.contradictions

    def phantoms(self) -> Iterator[Anomaly]:
        """A value that no client sent."""
        for offset in self.offsets:
            value, _ = self.facts[offset]
            if value not in self.by_value:
                yield Anomaly("phantom", f"{self.name} has {value[:40]!r} at {offset}")

    def lost(self) -> Iterator[Anomaly]:
        """A read passes over an offset at which a record is known.

        Of a compacted topic the last record of each key is looked for.
        """
        is_compacted = self.place[0] in self.history.compacted
        offsets = self._newest() if is_compacted else self.offsets
        for poll in self.polls:
            read = {offset for offset, _ in poll.records}
            begin = bisect_left(offsets, max(poll.start, self.first))
            for offset in offsets[begin : bisect_left(offsets, poll.end)]:
                value, known = self.facts[offset]
                if offset in read or self._is_hidden(poll, value):
                    continue
                if not self._is_void(offset, known, poll.span.completed):
                    yield Anomaly(
                        "lost",
                        f"{poll.client} read {self.name} from {poll.start} to {poll.end}"
                        f" without {value[:40]!r} at {offset}",
                    )

    def _newest(self) -> list[int]:
        """The last offset of each key of which it is known where all of its records are, unless
        that record deletes the key."""
        at = {value: offset for offset, (value, _) in self.facts.items()}
        newest: dict[bytes | None, int] = {}
        unknown: set[bytes | None] = {None}
        deletions: set[int] = set()
        for send in self.sends:
            if send.value in at:
                newest[send.key] = max(newest.get(send.key, -1), at[send.value])
            else:
                unknown.add(send.key)  # it may lie behind all the others
            if send.is_deletion:
                deletions.add(at.get(send.value, -1))
        return sorted(
            offset
            for key, offset in newest.items()
            if key not in unknown and offset not in deletions
        )

    def outlived(self) -> Iterator[Anomaly]:
        """Of a compacted topic: a read finds a record of a key, and not a later one of that key,
        perhaps its deletion. Compaction takes the older ones first.

        A replica that comes back has older ones, and what is compacted by then it never gets.
        """
        since = self.history.together.get(self.place[0])
        if since is None:
            return
        for poll in self.polls:
            read = {offset for offset, _ in poll.records}
            older: dict[bytes | None, int] = {}
            begin = bisect_left(self.offsets, max(poll.start, self.first))
            for offset in self.offsets[begin : bisect_left(self.offsets, poll.end)]:
                send = self.by_value.get(self.facts[offset][0])
                if send is None or send.key is None or send.span.invoked < since:
                    continue
                if offset in read:
                    older.setdefault(send.key, offset)
                elif send.key in older:
                    yield Anomaly(
                        "outlived",
                        f"{poll.client} read {self.name} from {poll.start} to {poll.end} with"
                        f" {send.key!r} at {older[send.key]}, and without the later one at"
                        f" {offset}",
                    )

    def _is_hidden(self, poll: Poll, value: bytes) -> bool:
        """Whether read_committed leaves a value out: its transaction was not committed for sure."""
        send = self.by_value.get(value)
        transaction = None if send is None else send.transaction
        return (
            poll.is_committed and transaction is not None and transaction.outcome is not Outcome.OK
        )

    def unseen(self) -> Iterator[Anomaly]:
        """An acknowledged record below the end of what was read, which no read has found.

        It also finds losses of records whose producer was not given an offset.
        """
        if self.place[0] in self.history.compacted or self.history.deleted.get(self.place):
            return
        seen = {value for poll in self.polls for _, value in poll.records}
        last = max((poll.span.invoked for poll in self.polls), default=0.0)
        for send in self.sends:
            is_promised = send.outcome is Outcome.OK and send.is_all and send.offset is None
            of = send.transaction
            if not is_promised or send.value in seen or send.span.completed > last:
                continue
            is_lost = not self._is_void(0, send.span.completed, last)
            if is_lost and (of is None or of.outcome is Outcome.OK):
                yield Anomaly("unseen", f"{self.name}: {send.value[:40]!r} was acknowledged")

    def duplicates(self) -> Iterator[Anomaly]:
        """A record that its producer numbers lies at two offsets.

        A broker may forget a producer with its records: what was deleted may come again.
        """
        found: dict[bytes, int] = {}
        for offset in self.offsets:
            value, known = self.facts[offset]
            send = self.by_value.get(value)
            if send is None or not send.is_once:
                continue
            other = found.setdefault(value, offset)
            if other == offset or other < self.first:
                continue
            if not self._is_void(min(other, offset), 0, known):
                yield Anomaly("duplicate", f"{self.name}: {value[:40]!r} at {other} and {offset}")

    def reordered(self) -> Iterator[Anomaly]:
        """A record acknowledged before another one was sent lies behind it (any clients)."""
        known = [
            send
            for send in self.sends
            if send.outcome is Outcome.OK and send.is_all and send.offset is not None
        ]
        known.sort(key=lambda send: send.span.completed)
        highest: Send | None = None
        position = 0
        for later in sorted(known, key=lambda send: send.span.invoked):
            while position < len(known) and known[position].span.is_before(later.span):
                one = known[position]
                if highest is None or (one.offset or 0) > (highest.offset or 0):
                    highest = one
                position += 1
            if highest is None or (highest.offset or 0) < (later.offset or 0):
                continue
            if not self._is_void(highest.offset or 0, highest.span.completed, later.span.completed):
                yield Anomaly(
                    "reordered",
                    f"{self.name}: {later.value[:40]!r} at {later.offset} was sent after"
                    f" {highest.value[:40]!r} was acknowledged at {highest.offset}",
                )

    def out_of_order(self) -> Iterator[Anomaly]:
        """A producer that numbers its records finds two of them in another order than it sent."""
        at = {self.facts[offset][0]: offset for offset in reversed(self.offsets)}  # the first
        last: dict[str, Send] = {}
        for send in self.sends:
            if not send.is_once or send.outcome is not Outcome.OK:
                continue
            if at.get(send.value, -1) < self.first:
                continue  # not found, or deleted, and so perhaps written again
            before = last.get(send.client)
            last[send.client] = send
            if before is None or at[before.value] < at[send.value]:
                continue
            if not self._is_void(at[send.value], before.span.completed, send.span.completed):
                yield Anomaly(
                    "out of order",
                    f"{self.name}: {before.value[:40]!r} at {at[before.value]}, and"
                    f" {send.value[:40]!r}, sent later, at {at[send.value]}",
                )

    def skips(self) -> Iterator[Anomaly]:
        """A consumer that did not seek goes back, or passes over a record."""
        ends: dict[tuple[str, int], Poll] = {}
        for poll in self.polls:
            before = ends.get((poll.client, poll.assignment))
            ends[poll.client, poll.assignment] = poll
            if before is None:
                continue
            if poll.start < before.end:
                yield Anomaly(
                    "nonmonotonic poll",
                    f"{poll.client} read {self.name} to {before.end}, then from {poll.start}",
                )
            begin = bisect_left(self.offsets, max(before.end, self.first))
            for offset in self.offsets[begin : bisect_left(self.offsets, poll.start)]:
                value, known = self.facts[offset]
                if self._is_hidden(poll, value) or self.place[0] in self.history.compacted:
                    continue
                if not self._is_void(offset, known, poll.span.completed):
                    yield Anomaly(
                        "poll skip",
                        f"{poll.client} read {self.name} to {before.end}, then from"
                        f" {poll.start}, without {value[:40]!r} at {offset}",
                    )
