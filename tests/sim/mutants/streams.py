"""Planted bugs of streams groups: tasks and their copies, sessions, fencing, topics, loading.

They are looked for where members come and go and little else is done (`sim/streams_groups.py`);
those of `EXACTLY_ONCE` where they copy in transactions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.mutants.groups import heartbeats_renew_no_session, no_time_to_revoke, not_loaded
from tidelog.coordinators.groups.streams import commits, draft, group
from tidelog.coordinators.groups.streams.group import StreamsGroup
from tidelog.coordinators.groups.streams.holders import TaskHolders
from tidelog.coordinators.groups.streams.tasks import TaskSets
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMetadataKey,
    StreamsGroupTopologyKey,
)

Patch = Callable[..., None]


def tasks_are_given_before_they_are_free(patch: Patch) -> None:
    """A member gets tasks that another one has not given back."""
    original = draft.next_step
    patch(draft, "next_step", lambda *args: original(*args[:3], TaskHolders()))


def tasks_are_free_before_they_are_given_back(patch: Patch) -> None:
    """What a member must give back is free at once, whatever it says that it owns."""
    patch(TaskSets, "has_any", lambda *_: False)


def tasks_given_back_stay_taken(patch: Patch) -> None:
    """A task that was given back counts as taken for ever."""
    patch(TaskHolders, "remove", lambda *_: None)


def a_task_is_left_over(patch: Patch) -> None:
    """The assignor forgets the last task of a subtopology."""
    original = draft.sticky_assignor

    def assign(members: Any, subtopologies: Any, *args: Any) -> Any:
        fewer = {
            key: each._replace(tasks=max(1, each.tasks - 1)) for key, each in subtopologies.items()
        }
        return original(members, fewer, *args)

    patch(draft, "sticky_assignor", assign)


def processes_count_by_member(patch: Patch) -> None:
    """Each member counts as a process: a standby task may be beside its active one."""
    original = draft.sticky_assignor

    def assign(members: Any, *args: Any) -> Any:
        apart = {name: each._replace(process_id=name) for name, each in members.items()}
        return original(apart, *args)

    patch(draft, "sticky_assignor", assign)


def instances_stay_without_heartbeats(patch: Patch) -> None:
    """No session ends."""
    original = StreamsGroup.expire

    def expire(self: StreamsGroup, topics: Any, now: Any) -> Any:
        original(self, topics, now)  # so that it is not due again
        return []

    patch(StreamsGroup, "expire", expire)


def no_session_of_instances_begins_at_load(patch: Patch) -> None:
    """A coordinator that has loaded a group waits for its members for ever."""
    patch(StreamsGroup, "resume", lambda *_: None)


def a_lost_answer_costs_the_tasks(patch: Patch) -> None:
    """A member that has not heard of its new epoch is fenced (KIP-1071 accepts the one before)."""
    original = group._check_epoch

    def check_epoch(member: Any, request: Any) -> None:
        original(member._replace(previous_epoch=-1), request)

    patch(group, "_check_epoch", check_epoch)


def topics_of_the_topology_are_passed_over(patch: Patch) -> None:
    """A group does not look at topics again that come later."""
    patch(StreamsGroup, "topics_changed", lambda _self: None)


def epochs_of_applications_are_not_loaded(patch: Patch) -> None:
    """A group begins again with epoch 1 at its next coordinator."""
    not_loaded(patch, StreamsGroupMetadataKey)


def tasks_are_not_loaded(patch: Patch) -> None:
    """The next coordinator does not know which tasks each member has."""
    not_loaded(patch, StreamsGroupCurrentMemberAssignmentKey)


def topologies_are_not_loaded(patch: Patch) -> None:
    """The next coordinator does not know the application."""
    not_loaded(patch, StreamsGroupTopologyKey)


def zombie_instances_commit(patch: Patch) -> None:
    """Offsets are taken in a transaction from instances that the group has gone on without."""
    patch(commits, "commit_error", lambda *_: ErrorCode.NONE)


EXACTLY_ONCE = {"zombie-instances-commit": zombie_instances_commit}
MUTANTS: dict[str, Callable[[Patch], None]] = {
    "a-lost-answer-costs-the-tasks": a_lost_answer_costs_the_tasks,
    "a-task-is-left-over": a_task_is_left_over,
    "epochs-of-applications-are-not-loaded": epochs_of_applications_are_not_loaded,
    "heartbeats-renew-no-session-of-instances": heartbeats_renew_no_session,
    "instances-stay-without-heartbeats": instances_stay_without_heartbeats,
    "no-session-of-instances-begins-at-load": no_session_of_instances_begins_at_load,
    "no-time-to-give-back": no_time_to_revoke,
    "processes-count-by-member": processes_count_by_member,
    "tasks-are-free-before-they-are-given-back": tasks_are_free_before_they_are_given_back,
    "tasks-are-given-before-they-are-free": tasks_are_given_before_they_are_free,
    "tasks-are-not-loaded": tasks_are_not_loaded,
    "tasks-given-back-stay-taken": tasks_given_back_stay_taken,
    "topics-of-the-topology-are-passed-over": topics_of_the_topology_are_passed_over,
    "topologies-are-not-loaded": topologies_are_not_loaded,
}
