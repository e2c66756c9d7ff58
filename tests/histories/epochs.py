"""Groups whose members have epochs (KIP-848), by their heartbeats and commits alone.

- In one epoch a partition has one owner. Over epochs it has one at a time: no member gets it while
  another one certainly has it.
- A member that says all about itself is told what it may have.
- No epoch goes back: that of a member, and those in which members of a group join.
- No member commits to a partition that another one has, or got in a later epoch.
- An instance has one process at a time, and what a process had that has left for a while is kept
  for the next one. A process that was replaced by another one
  gets an error that says so, and no other answer.
- A member whose heartbeats are answered in time is not put out of its group.

What is certain: a member stays for a session after a heartbeat that its coordinator answered, and
keeps a partition until it says that it has it no more. It may have less time for that, its
rebalance timeout, from a heartbeat that tells it to give something up, and from one whose answer is
lost. A request without an answer may be done much later, so that what it does not name as owned is
in doubt from then on. A deposed coordinator may answer as well: only answers with a term count.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from histories.calls import Anomaly, Outcome
from histories.tenures import Tenure, overlaps

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from histories.calls import Beat, ClientHistory, Commit, Place

AWAY = -2  # the epoch with which a process of an instance ends, whose place is kept
CLOCK_RATE_MIN = 0.99  # a coordinator's second may be so much shorter
LOST_MAX = 1  # heartbeats whose answers are lost, after which the next one is accepted
PUT_OUT = frozenset(
    {"FENCED_INSTANCE_ID", "FENCED_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND", "UNKNOWN_MEMBER_ID"}
)


def check_epochs(history: ClientHistory) -> Iterator[Anomaly]:
    """All anomalies of groups with member epochs."""
    groups: dict[str, list[Beat]] = defaultdict(list)
    for beat in history.beats:
        groups[beat.group].append(beat)
    for group, beats in groups.items():
        commits = [
            commit
            for commit in history.commits
            if commit.group == group and commit.member_id and commit.outcome is Outcome.OK
        ]
        yield from _stays(group, beats, commits, history.sessions[group])
        yield from _answers(group, beats)
        yield from _left(group, beats, commits)
        if not any(beat.is_classic for beat in beats):  # else its epochs may begin again
            yield from _owners(group, beats)
            yield from _joins(group, beats)
            yield from _fencing(beats, commits)


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _owners(group: str, beats: list[Beat]) -> Iterator[Anomaly]:
    """One owner of each partition in an epoch; the processes of an instance are one."""
    owners: dict[tuple[int, Place], str] = {}
    for beat in beats:
        owner = beat.member_id if beat.instance is None else beat.instance
        for place in sorted(beat.assigned or ()):
            known = owners.setdefault((beat.answered_epoch, place), owner)
            if known != owner:
                yield Anomaly(
                    "two owners",
                    f"{_name(place)} is of {known} and {owner} in epoch {beat.answered_epoch}"
                    f" of {group}",
                )


def _stays(
    group: str, beats: list[Beat], commits: list[Commit], session_s: float
) -> Iterator[Anomaly]:
    stays: dict[str, _Stay] = {}
    for beat in beats:
        stay = stays.setdefault(beat.member_id, _Stay(beat, session_s))
        if beat.instance is not None and beat.epoch == 0:
            for other in stays.values():
                if other is stay or other.instance != beat.instance:
                    continue
                if beat.outcome is Outcome.OK and beat.span.completed < other.certain_until:
                    text = f"{other.member_id} is certainly there until {other.certain_until:.3f}"
                    yield Anomaly(
                        "two processes of an instance",
                        f"{beat.member_id} has {beat.instance} of {group} at"
                        f" {beat.span.completed:.3f}, and {text}",
                    )
                other.replaced(beat.span.invoked)
                if beat.outcome is Outcome.OK and beat.term is not None:
                    other.replaced_at = beat.span.completed
            stay.replaced_at = math.inf
        elif stay.replaced_at < beat.span.invoked and beat.term and _is_known(beat):
            yield Anomaly(
                "two processes of an instance",
                f"{beat.member_id} of {group} is answered as a member at"
                f" {beat.span.completed:.3f}, and another one has been {beat.instance} since"
                f" {stay.replaced_at:.3f}",
            )
        if stay.is_put_out(beat):
            yield Anomaly(
                "needless fence",
                f"{beat.member_id} of {group} was answered {beat.error} at"
                f" {beat.span.completed:.3f}, and is certainly a member until"
                f" {stay.certain_until:.3f}",
            )
        stay.add(beat)
    tenures = [tenure for stay in stays.values() for tenure in stay.all_tenures()]
    owners = {stay.member_id: stay.owner for stay in stays.values()}
    yield from _intrusions(commits, tenures, owners)
    for earlier, later in overlaps(tenures):
        yield Anomaly(
            "two owners at a time",
            f"{_name(earlier.thing)} of {group} is given to {later.owner} by {later.start:.3f}, and"  # type: ignore[arg-type]
            f" {earlier.owner} has it until {earlier.end:.3f}",
        )


def _is_known(beat: Beat) -> bool:
    """Whether the answer is one to a member, in the right epoch or not."""
    return beat.outcome is Outcome.OK or beat.error == "FENCED_MEMBER_EPOCH"


class _Stay:
    """What is certain of one member, one heartbeat after the other."""

    def __init__(self, first: Beat, session_s: float) -> None:
        self.member_id, self.instance = first.member_id, first.instance
        self.replaced_at = math.inf  # by another process of the instance
        self._session_s = session_s * CLOCK_RATE_MIN
        self._session_end = self._revoked_by = -math.inf
        self._rebalance_s = math.inf
        self._since: dict[Place, float] = {}  # what it has
        self._told: frozenset[Place] = frozenset()  # what it may have
        self._holds: frozenset[Place] = frozenset()  # what it has by its own words, and was told
        self._kept: frozenset[Place] | None = None  # all that is not in doubt; None: nothing is
        self._joined_at = math.inf  # of a classic member that has not synced since, and has things
        self._epoch = 0  # as it was answered
        self._away: tuple[dict[Place, float], float] = ({}, -math.inf)  # kept for its instance
        self._lost: list[int] = []  # the epochs of heartbeats without an answer
        self._tenures: list[Tenure] = []

    @property
    def owner(self) -> str:
        """The instance, or the member if it is dynamic."""
        return self.member_id if self.instance is None else self.instance

    @property
    def certain_until(self) -> float:
        """Until then it is in the group."""
        return min(self._session_end, self._revoked_by)

    def is_put_out(self, beat: Beat) -> bool:
        """Whether the answer is that it is no member, which it certainly is.

        One lost heartbeat may have moved its epoch: then it has to say that it owns nothing but
        what it did.
        """
        if len(self._lost) > LOST_MAX or (self._lost and beat.owned is None):
            return False
        if self._kept is not None and not (beat.owned or frozenset()) <= self._kept:
            return False
        return (
            beat.outcome is Outcome.FAILED
            and beat.error in PUT_OUT
            and beat.epoch == self._epoch > 0
            and beat.term is not None
            and beat.span.completed < self.certain_until
        )

    def add(self, beat: Beat) -> None:
        """One more heartbeat."""
        at = beat.span.invoked
        if beat.rebalance_s is not None:
            self._rebalance_s = beat.rebalance_s * CLOCK_RATE_MIN
        if beat.owned is not None or beat.epoch <= 0:
            self._holds = beat.owned or frozenset()
        if beat.epoch == AWAY and beat.outcome is Outcome.OK and not self._lost:
            self._leave_for_a_while(at)
        elif beat.is_classic and beat.epoch == 0 and beat.owned:
            self._give_up(self._since.keys() - beat.owned, at)
            is_lost = beat.outcome is Outcome.UNKNOWN
            self._joined_at = min(self._joined_at, at if is_lost else beat.span.completed)
        elif beat.epoch <= 0:
            self._give_up(set(self._since), at)
            self._session_end = -math.inf
            self._revoked_by = math.inf
        elif beat.owned is not None:
            self._give_up(self._since.keys() - beat.owned, at)
        if beat.outcome is Outcome.UNKNOWN:
            self._doubt(beat)
        elif beat.outcome is Outcome.OK and beat.epoch >= 0:
            self._answered(beat)
        elif beat.error in PUT_OUT:
            self._give_up(set(self._since), at)
            self._session_end = -math.inf

    def replaced(self, at: float) -> None:
        """Another process of the instance joins: what this one had is its own now."""
        self._give_up(set(self._since), at)
        self._give_up_away(at)

    def all_tenures(self) -> list[Tenure]:
        """Those that have ended, and what it has now."""
        self.replaced(math.inf)
        return self._tenures

    def _leave_for_a_while(self, at: float) -> None:
        """A process of an instance ends: until its session does, its place is kept."""
        self._give_up(self._since.keys() - self._told, at)
        self._away = (dict(self._since), self.certain_until)
        self._give_up(set(self._since), at)
        self._session_end = -math.inf

    def _give_up_away(self, at: float) -> None:
        kept, until = self._away
        for place, start in kept.items():
            self._tenures.append(Tenure(place, self.owner, start, min(at, until)))
        self._away = ({}, -math.inf)

    def _doubt(self, beat: Beat) -> None:
        self._lost += [beat.epoch] * (1 if beat.epoch >= 0 else LOST_MAX + 1)
        self._revoked_by = min(self._revoked_by, beat.span.invoked + self._rebalance_s)
        if beat.epoch <= 0:
            self._kept = frozenset()
        elif beat.owned is not None:
            self._kept = beat.owned if self._kept is None else self._kept & beat.owned

    def _answered(self, beat: Beat) -> None:
        at = beat.span.invoked
        if beat.answered_epoch > self._epoch and not beat.is_classic:
            self._forget_lost()
        self._epoch = beat.answered_epoch
        if beat.assigned is not None:
            self._told = beat.assigned
            self._holds |= beat.assigned
            if beat.is_classic:
                self._give_up(self._since.keys() - beat.assigned, at)
                self._joined_at = math.inf
        if beat.term is None or (beat.is_classic and beat.epoch == 0):
            return
        self._session_end = max(self._session_end, at + self._session_s)
        for place in beat.assigned or ():
            if self._kept is None or place in self._kept:
                self._since.setdefault(place, beat.span.completed)
        if beat.is_classic:
            self._revoked_by = at + self._rebalance_s
        elif not self._holds <= self._told:
            self._revoked_by = min(self._revoked_by, at + self._rebalance_s)
        elif beat.assigned is not None or not self._lost:
            self._revoked_by = math.inf

    def _forget_lost(self) -> None:
        """Its epoch moves again: it is refused whatever still arrives of one before the last."""
        self._lost = [epoch for epoch in self._lost if not 0 < epoch < self._epoch]
        if not self._lost:
            self._kept = None

    def _give_up(self, places: set[Place], at: float) -> None:
        end = min(at, self.certain_until, self._joined_at)
        for place in sorted(places):
            start = self._since.pop(place)
            self._tenures.append(Tenure(place, self.owner, start, end))


def _answers(group: str, beats: list[Beat]) -> Iterator[Anomaly]:
    for beat in beats:
        if beat.outcome is Outcome.OK and beat.says_all and beat.assigned is None:
            yield Anomaly(
                "assignment not told",
                f"{beat.member_id} of {group} said all in epoch {beat.epoch}, and was not told what"
                " it may have",
            )
        if beat.outcome is Outcome.OK and beat.epoch > 0 and beat.answered_epoch < beat.epoch:
            yield Anomaly(
                "epoch went back",
                f"{beat.member_id} of {group} is in epoch {beat.epoch}, and was answered"
                f" {beat.answered_epoch}",
            )


def _joins(group: str, beats: list[Beat]) -> Iterator[Anomaly]:
    """Who joins gets the epoch of the target assignment: no earlier one than anybody was in."""
    answered = [
        beat
        for beat in beats
        if beat.outcome is Outcome.OK
        and beat.answered_epoch > 0
        and not (beat.is_classic and beat.epoch == 0)
    ]
    answered.sort(key=lambda beat: beat.span.completed)
    newest, position = 0, 0
    for join in sorted(answered, key=lambda beat: beat.span.invoked):
        if join.epoch != 0 or join.term is None:
            continue
        while position < len(answered) and answered[position].span.is_before(join.span):
            newest = max(newest, answered[position].answered_epoch)
            position += 1
        if join.answered_epoch < newest:
            yield Anomaly(
                "epoch went back",
                f"{join.member_id} joins {group} in epoch {join.answered_epoch}, and another member"
                f" was in {newest} before",
            )


def _intrusions(
    commits: list[Commit], tenures: list[Tenure], owners: dict[str, str]
) -> Iterator[Anomaly]:
    """No commit while another one certainly has the partition."""
    by_place: dict[Hashable, list[Tenure]] = defaultdict(list)
    for tenure in tenures:
        by_place[tenure.thing].append(tenure)
    for commit in commits:
        own = owners.get(commit.member_id, commit.member_id)
        for other in by_place[commit.place]:
            if (
                other.owner != own
                and other.start <= commit.span.invoked
                and commit.span.completed <= other.end
            ):
                yield Anomaly(
                    "fenced member",
                    f"{commit.member_id} commits to {_name(commit.place)} at"
                    f" {commit.span.invoked:.3f}, which {other.owner} has from {other.start:.3f} to"
                    f" {other.end:.3f}",
                )


def _left(group: str, beats: list[Beat], commits: list[Commit]) -> Iterator[Anomaly]:
    """No commit of a member that has left, and did not come back."""
    left: dict[str, Beat] = {}
    for beat in beats:
        if beat.outcome is Outcome.OK and beat.epoch < 0:
            left[beat.member_id] = beat
        else:
            left.pop(beat.member_id, None)
    for commit in commits:
        end = left.get(commit.member_id)
        if end is not None and end.span.is_before(commit.span):
            yield Anomaly(
                "fenced member", f"{commit.member_id} commits, and has left {group} before"
            )


def _fencing(beats: list[Beat], commits: list[Commit]) -> Iterator[Anomaly]:
    """No commit of an epoch before the one in which another member got the partition."""
    given: dict[Place, list[Beat]] = defaultdict(list)
    for beat in beats:
        if beat.outcome is Outcome.OK:
            for place in beat.assigned or ():
                given[place].append(beat)
    for commit in commits:
        for other in given[commit.place]:
            if (
                other.member_id != commit.member_id
                and other.answered_epoch > commit.epoch
                and other.span.is_before(commit.span)
            ):
                yield Anomaly(
                    "fenced member",
                    f"{commit.member_id} commits to {_name(commit.place)} in epoch {commit.epoch},"
                    f" which {other.member_id} got in epoch {other.answered_epoch}",
                )
                break
