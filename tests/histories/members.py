"""Static members (KIP-345) as their processes see them.

A process that comes back within its session takes its place again: the generation and the
assignment stay. From then on the process before it is fenced.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from histories.calls import Anomaly, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from histories.calls import ClientHistory, MemberCall

OUT_OF_THE_GROUP = frozenset({"ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID"})


def check_members(history: ClientHistory) -> Iterator[Anomaly]:
    """All anomalies of static members."""
    yield from _assignments(history)
    yield from _fencing(history)
    yield from _rebalances(history)


def _assignments(history: ClientHistory) -> Iterator[Anomaly]:
    """In one generation an instance has one assignment, whichever of its processes asks."""
    known: dict[tuple[str, str, int], bytes] = {}
    for call in history.member_calls:
        if call.kind == "sync" and call.outcome is Outcome.OK:
            before = known.setdefault((call.group, call.instance, call.generation), call.assignment)
            if before != call.assignment:
                yield Anomaly(
                    "assignment changed",
                    f"{call.instance} of {call.group} has {call.assignment!r} in generation"
                    f" {call.generation}, and had {before!r}",
                )


def _fencing(history: ClientHistory) -> Iterator[Anomaly]:
    """A process that was replaced commits nothing, and the broker that knows refuses it all.

    Another broker may be a deposed coordinator: it cannot commit, and may answer heartbeats.
    """
    of_instance: dict[tuple[str, str], list[MemberCall]] = defaultdict(list)
    for call in history.member_calls:
        if call.outcome is Outcome.OK:
            of_instance[call.group, call.instance].append(call)
    for calls in of_instance.values():
        joined: dict[str, MemberCall] = {}
        synced: dict[str, MemberCall] = {}  # what joined is written down by then
        for call in calls:
            if call.kind == "join":
                joined.setdefault(call.member_id, call)
            elif call.kind == "sync":
                synced.setdefault(call.member_id, call)
        for call in calls:
            own = joined.get(call.member_id)
            for other, sync in synced.items():
                later = joined.get(other)
                if own is None or later is None or not own.span.is_before(later.span):
                    continue
                if sync.span.is_before(call.span) and (
                    call.kind == "commit" or call.host == sync.host
                ):
                    yield Anomaly(
                        "fenced member",
                        f"{call.kind} of {call.member_id} in {call.group} is accepted after {other}"
                        f" took its place as {call.instance}",
                    )


def _rebalances(history: ClientHistory) -> Iterator[Anomaly]:
    """A steady group stays in its generation, and nobody is out of it."""
    generations: dict[str, int] = {}
    for call in history.member_calls:
        if call.span.invoked < history.steady.get(call.group, float("inf")):
            continue
        where = f"{call.kind} of {call.instance} in {call.group}"
        if call.outcome is Outcome.OK:
            known = generations.setdefault(call.group, call.generation)
            if call.generation != known:
                text = f"{where} is of generation {call.generation}, and the group of {known}"
                yield Anomaly("needless rebalance", text)
        elif call.outcome is Outcome.FAILED and call.error in OUT_OF_THE_GROUP:
            yield Anomaly("needless rebalance", f"{where} was answered {call.error}")
