"""Offsets and leaders in real-time order, where Kafka promises it.

A leader that was deposed and does not know it may answer with what was true before (KIP-207 covers
new leaders alone). So while there are faults, answers about the end of a log are compared by leader
epoch: within an epoch they never go back in real time, and no later epoch ends below an earlier
one's high watermark. After the last fault (`quiet_since`) real time alone decides, and committed
offsets are compared too: a coordinator that was deposed may answer with old ones before.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from histories.calls import Anomaly, Outcome

OFFSETS = "__consumer_offsets"

if TYPE_CHECKING:
    from collections.abc import Iterator

    from histories.calls import ClientHistory, Commit, Listed, Place


def check_real_time(history: ClientHistory) -> Iterator[Anomaly]:
    """All anomalies of offsets and leaders."""
    listed: dict[tuple[Place, bool], list[Listed]] = defaultdict(list)
    for each in history.listed:
        listed[each.place, each.is_end].append(each)
    for (place, is_end), answers in sorted(listed.items()):
        yield from _going_back(history, place, is_end, answers)
    yield from _ends_below_acknowledged(history, listed)
    yield from _committed(history)
    yield from _two_leaders(history)


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _going_back(
    history: ClientHistory, place: Place, is_end: bool, answers: list[Listed]
) -> Iterator[Anomaly]:
    what = "end" if is_end else "start"
    by_epoch: dict[int, list[Listed]] = defaultdict(list)
    for answer in answers:
        by_epoch[answer.epoch].append(answer)
        if answer.span.invoked >= history.quiet_since:
            by_epoch[-2].append(answer)  # all of them, whatever their epoch
    for epoch, same in sorted(by_epoch.items()):
        if epoch == -1:
            continue
        same.sort(key=lambda each: each.span.completed)
        highest, position = None, 0
        for later in sorted(same, key=lambda each: each.span.invoked):
            while position < len(same) and same[position].span.is_before(later.span):
                if highest is None or same[position].offset > highest.offset:
                    highest = same[position]
                position += 1
            if highest is None or highest.offset <= later.offset:
                continue
            at = highest.span.completed
            if not history.is_void(place, later.offset, at, later.span.completed):
                yield Anomaly(
                    f"log {what} went back",
                    f"{_name(place)}: {highest.offset} for {highest.client}, then {later.offset}"
                    f" for {later.client} (epochs {highest.epoch} and {later.epoch})",
                )
    if is_end and not history.has_losses([place]):
        yield from _epochs_overlap(place, by_epoch)


def _epochs_overlap(place: Place, by_epoch: dict[int, list[Listed]]) -> Iterator[Anomaly]:
    epochs = [(epoch, answers) for epoch, answers in sorted(by_epoch.items()) if epoch >= 0]
    for (epoch, old), (later, new) in pairwise(epochs):
        highest = max(each.offset for each in old)
        lowest = min(each.offset for each in new)
        if lowest < highest:
            yield Anomaly(
                "log end went back",
                f"{_name(place)}: {highest} in epoch {epoch}, {lowest} in epoch {later}",
            )


def _ends_below_acknowledged(
    history: ClientHistory, listed: dict[tuple[Place, bool], list[Listed]]
) -> Iterator[Anomaly]:
    """After the last fault, no end is below a record that was acknowledged before the question."""
    for send in history.sends:
        if send.outcome is not Outcome.OK or not send.is_all or send.offset is None:
            continue
        for answer in listed.get((send.place, True), ()):
            if (
                answer.span.invoked >= history.quiet_since
                and send.span.is_before(answer.span)
                and answer.offset <= send.offset
                and send.transaction is None  # the question may be for the last stable offset
                and not history.is_void(
                    send.place, send.offset, send.span.completed, answer.span.completed
                )
            ):
                yield Anomaly(
                    "stale log end",
                    f"{_name(send.place)} ends at {answer.offset} for {answer.client}, and"
                    f" {send.offset} was acknowledged before",
                )
                break


def _committed(history: ClientHistory) -> Iterator[Anomaly]:
    commits: dict[tuple[str, Place], list[Commit]] = defaultdict(list)
    for commit in history.commits:
        commits[commit.group, commit.place].append(commit)
    for answer in history.committed:
        tried = commits[answer.group, answer.place]
        where = f"{answer.group} has {answer.offset} of {_name(answer.place)} for {answer.client}"
        if answer.offset >= 0 and not any(
            commit.offset == answer.offset and commit.span.invoked <= answer.span.completed
            for commit in tried
        ):
            yield Anomaly("phantom commit", f"{where}, and no client committed it")
        if answer.span.invoked < history.quiet_since:
            continue
        newest = max(
            (
                commit.offset
                for commit in tried
                if commit.outcome is Outcome.OK
                and commit.span.is_before(answer.span)
                and not any(
                    commit.span.completed <= loss.at <= answer.span.completed
                    for loss in history.losses
                    if loss.place is None or loss.place[0] == OFFSETS
                )
            ),
            default=-1,
        )
        if answer.offset < newest:
            yield Anomaly("lost commit", f"{where}, and {newest} was acknowledged before")


def _two_leaders(history: ClientHistory) -> Iterator[Anomaly]:
    """One leader epoch of a partition has one leader."""
    leaders: dict[tuple[Place, int], int] = {}
    for led in history.led:
        if led.leader < 0:
            continue
        known = leaders.setdefault((led.place, led.epoch), led.leader)
        if known != led.leader:
            yield Anomaly(
                "two leaders",
                f"{_name(led.place)} in epoch {led.epoch}: {known} and {led.leader}",
            )
