"""The next step of a member towards its target assignment (KIP-1071: revoke first, then assign).

Pure; the steps are those of Kafka's CurrentAssignmentBuilder of streams groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.modern.reconciliation import must_wait
from tidelog.coordinators.groups.modern.states import MemberState
from tidelog.coordinators.groups.streams.tasks import NOTHING, HeldTasks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.coordinators.groups.streams.holders import Task, TaskHolders
    from tidelog.coordinators.groups.streams.member import StreamsMember
    from tidelog.coordinators.groups.streams.tasks import Tasks, TaskSets

__all__ = ["Target", "next_step"]

_REFUSAL = (
    "The streams group member is in a unknown state. The member must abandon all its tasks and "
    "rejoin."
)


class Target(NamedTuple):
    """The target assignment of a member and its epoch."""

    epoch: int
    tasks: TaskSets


def next_step(
    member: StreamsMember, target: Target, owned: TaskSets | None, holders: TaskHolders
) -> StreamsMember:
    """Return the member after its next step, or the same one if it must wait.

    `owned` is what the member says that it owns, None if it does not say. RefusedError for a member
    in an unknown state that still owns tasks.
    """
    if must_wait(
        member,
        target.epoch,
        owns_any=owned is None or any(owned),
        owns_revoked=owned is None or owned.has_any(member.revoking),
        refusal=_REFUSAL,
    ):
        return member
    epoch = member.epoch + (member.state is MemberState.UNREVOKED)
    return _moved(member, epoch, target, owned, holders)


def _moved(
    member: StreamsMember,
    epoch: int,
    target: Target,
    owned: TaskSets | None,
    holders: TaskHolders,
) -> StreamsMember:
    """Return the member in this epoch if it must revoke tasks first, else in the target's."""
    process_id = member.description.process_id
    before, wanted = member.assigned, target.tasks

    def blocks_active(task: Task) -> bool:
        return holders.blocks_active(task, process_id)

    def blocks_copy(task: Task) -> bool:
        return holders.blocks_copy(task, process_id)

    epochs = {key: frozenset(each) for key, each in before.active.items()}
    active = _split(epochs, wanted.active, blocks_active)
    standby = _split(before.standby, wanted.standby, blocks_copy)
    warmup = _split(before.warmup, wanted.warmup, blocks_copy)
    revoking = HeldTasks(_of(before.active, active.revoked), standby.revoked, warmup.revoked)
    kept = _of(before.active, active.kept)
    if any(revoking) and (owned is None or owned.has_any(revoking)):
        assigned = HeldTasks(kept, standby.kept, warmup.kept)
        return member.moved(MemberState.UNREVOKED, epoch, assigned, revoking)
    assigned = HeldTasks(
        {
            key: {**kept.get(key, {}), **dict.fromkeys(active.added.get(key, ()), target.epoch)}
            for key in sorted({*kept, *active.added})
        },
        _merged(standby.kept, standby.added),
        _merged(warmup.kept, warmup.added),
    )
    is_waiting = active.is_waiting or standby.is_waiting or warmup.is_waiting
    state = MemberState.UNRELEASED if is_waiting else MemberState.STABLE
    return member.moved(state, target.epoch, assigned, NOTHING)


class _Split(NamedTuple):
    """Tasks of one role: to keep, to give back, to get now; and whether others must release some
    of the target first."""

    kept: Tasks
    revoked: Tasks
    added: Tasks
    is_waiting: bool


def _split(current: Tasks, target: Tasks, is_taken: Callable[[Task], bool]) -> _Split:
    kept: dict[str, frozenset[int]] = {}
    revoked: dict[str, frozenset[int]] = {}
    added: dict[str, frozenset[int]] = {}
    is_waiting = False
    for key in sorted({*current, *target}):
        has = current.get(key, frozenset())
        wanted = target.get(key, frozenset())
        new = wanted - has
        free = frozenset(each for each in new if not is_taken((key, each)))
        is_waiting |= free != new
        for place, tasks in ((kept, has & wanted), (revoked, has - wanted), (added, free)):
            if tasks:
                place[key] = tasks
    return _Split(kept, revoked, added, is_waiting)


def _of(epochs: Mapping[str, Mapping[int, int]], tasks: Tasks) -> dict[str, dict[int, int]]:
    """Return these tasks with their epochs."""
    return {key: {each: epochs[key][each] for each in sorted(tasks[key])} for key in tasks}


def _merged(one: Tasks, other: Tasks) -> dict[str, frozenset[int]]:
    return {
        key: one.get(key, frozenset()) | other.get(key, frozenset())
        for key in sorted({*one, *other})
    }
