"""The next step of a member towards its target assignment (KIP-848: revoke first, then assign).

Pure; the steps are those of Kafka's CurrentAssignmentBuilder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.consumer.member import NO_PARTITIONS
from tidelog.coordinators.groups.modern.reconciliation import must_wait
from tidelog.coordinators.groups.modern.states import MemberState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from tidelog.coordinators.groups.consumer.member import ConsumerMember, Epochs
    from tidelog.coordinators.groups.modern.member import Partitions

__all__ = ["Target", "next_step"]

_REFUSAL = (
    "The consumer group member is in a unknown state. The member must abandon all its partitions "
    "and rejoin."
)


class Target(NamedTuple):
    """The target assignment of a member, of topics that it subscribes to, and its epoch."""

    epoch: int
    partitions: Partitions


def next_step(
    member: ConsumerMember,
    target: Target,
    owned: Partitions | None,
    taken: Callable[[bytes, Iterable[int]], set[int]],
    new_topics: Collection[bytes] | None = None,
) -> ConsumerMember:
    """Return the member after its next step, or the same one if it must wait.

    `owned` is what the member says that it owns, None if it does not say; `taken` returns those of
    a topic's partitions that another member still has. `new_topics` are what it subscribes to, if
    this heartbeat changes that: a new target assignment may have to wait, but a topic that the
    member no longer wants is taken away at once. RefusedError for a member in an unknown state.
    """
    if must_wait(
        member,
        target.epoch,
        owns_any=owned is None or bool(owned),
        owns_revoked=_owns_any(owned, member.revoking),
        refusal=_REFUSAL,
    ):
        return member if new_topics is None else _without_unwanted(member, owned, new_topics)
    targets = target.partitions
    kept: dict[bytes, Mapping[int, int]] = {}
    revoking: dict[bytes, Mapping[int, int]] = {}
    for topic, partitions in member.assigned.items():
        wanted = targets.get(topic, frozenset())
        if partitions.keys() <= wanted:
            kept[topic] = partitions
            continue
        revoking[topic] = {each: partitions[each] for each in partitions.keys() - wanted}
        if len(revoking[topic]) < len(partitions):
            kept[topic] = {each: partitions[each] for each in partitions.keys() & wanted}
    if revoking and _owns_any(owned, revoking):
        return member.moved(MemberState.UNREVOKED, member.epoch, kept, revoking)
    is_waiting = False
    for topic, wanted in targets.items():
        held = kept.get(topic, {})
        missing = wanted - held.keys()
        others = taken(topic, missing)
        is_waiting = is_waiting or bool(others)
        if len(others) < len(missing):
            kept[topic] = {**held, **dict.fromkeys(missing - others, target.epoch)}
    state = MemberState.UNRELEASED if is_waiting else MemberState.STABLE
    return member.moved(state, target.epoch, kept, NO_PARTITIONS)


def _without_unwanted(
    member: ConsumerMember, owned: Partitions | None, topics: Collection[bytes]
) -> ConsumerMember:
    """Return the member without partitions of topics that it no longer subscribes to."""
    gone = {topic: each for topic, each in member.assigned.items() if topic not in topics}
    if not gone:
        return member
    kept = {topic: each for topic, each in member.assigned.items() if topic in topics}
    revoking = {
        topic: {**member.revoking.get(topic, {}), **gone.get(topic, {})}
        for topic in {*member.revoking, *gone}
    }
    if _owns_any(owned, revoking):
        return member.moved(MemberState.UNREVOKED, member.epoch, kept, revoking)
    return member.moved(member.state, member.epoch, kept, member.revoking)


def _owns_any(owned: Partitions | None, revoking: Epochs) -> bool:
    """Return whether the member may still own one of these; it may if it does not say."""
    if owned is None:
        return True
    return any(
        not owned.get(topic, frozenset()).isdisjoint(partitions)
        for topic, partitions in revoking.items()
    )
