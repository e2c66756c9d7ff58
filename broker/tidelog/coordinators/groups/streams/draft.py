"""The records of one heartbeat of a streams group's member, and of the first assignment. Pure.

`StreamsGroup.heartbeat` makes a draft for each heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.modern.draft import is_too_early, target_records
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.streams.assignor import Assignee, TaskCount, sticky_assignor
from tidelog.coordinators.groups.streams.internal_topics import configure_topics, required_topics
from tidelog.coordinators.groups.streams.reconciliation import Target, next_step
from tidelog.coordinators.groups.streams.records import RECORDS, topology_record
from tidelog.coordinators.groups.streams.requests import is_no_topology, points_outside
from tidelog.coordinators.groups.streams.tasks import NO_TASKS
from tidelog.coordinators.groups.streams.topology import GroupStatus, Status
from tidelog.coordinators.groups.streams.views import STANDBY_REPLICAS
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tidelog.coordinators.groups.modern.records import Record
    from tidelog.coordinators.groups.modern.topics import Topics
    from tidelog.coordinators.groups.now import Now
    from tidelog.coordinators.groups.streams.member import Description, StreamsMember
    from tidelog.coordinators.groups.streams.requests import StreamsHeartbeat
    from tidelog.coordinators.groups.streams.tasks import TaskSets
    from tidelog.coordinators.groups.streams.topology import ConfiguredTopology
    from tidelog.coordinators.groups.streams.views import StreamsGroupView
    from tidelog_protocol.messages.streams_group_records import StreamsGroupTopologyValue

__all__ = ["Draft", "first_assignment"]

_NOT_VALIDATED = -1


class Draft:
    """The member after a heartbeat, and the records so far. The group is only read."""

    def __init__(
        self, group: StreamsGroupView, before: StreamsMember, request: StreamsHeartbeat
    ) -> None:
        self.member = before._replace(description=_merged(before.description, request))
        self.records: list[Record] = []
        self.status: list[GroupStatus] = []
        self.epoch = group.epoch
        self.is_moved = False  # by the step towards the target
        self._group = group
        self._request = request
        is_new = before.member_id not in group.members
        self._is_changed = is_new or self.member.description != before.description
        if self._is_changed:
            self.records.append(RECORDS.member_record(group.group_id, self.member))

    def configure(self, topics: Topics) -> ConfiguredTopology:
        """Add the topology if it is the group's first, and look at its topics."""
        topology = self._topology()
        group, configured = self._group, self._group.configured
        if group.topology is None or configured is None or group.is_stale:
            metadata_hash = topics.hash_of(required_topics(topology))
            if (
                group.topology is None
                or configured is None
                or configured.metadata_hash != metadata_hash
            ):
                configured = configure_topics(topology, _counts(topics), metadata_hash)
            group.topics_seen(configured)
        if configured.is_ready:
            self._must_own_tasks_of(configured)
        self._begin_epoch(configured)
        return configured

    def _topology(self) -> StreamsGroupTopologyValue:
        """Return the group's topology; RefusedError if the member has another one."""
        group, mine = self._group, self._request.topology
        known = group.topology
        if mine is not None and is_no_topology(mine):
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka's code fails here and below
        if known is None:
            if mine is None or any(map(points_outside, mine.subtopologies)):
                raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
            self.records.append(topology_record(group.group_id, mine))
            return mine
        if mine is not None and mine.epoch >= known.epoch and not _is_same(mine, known):
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        if self.member.description.topology_epoch < known.epoch:
            detail = (
                f"The member's topology epoch {self.member.description.topology_epoch} is behind "
                f"the group's topology epoch {known.epoch}."
            )
            self.status.append(GroupStatus(Status.STALE_TOPOLOGY, detail))
        return known

    def _must_own_tasks_of(self, configured: ConfiguredTopology) -> None:
        counts = configured.subtopologies or {}
        for tasks in (self._request.active, self._request.standby, self._request.warmup):
            for key, partitions in sorted((tasks or {}).items()):
                if key not in counts:
                    message = f"Subtopology {key} does not exist in the topology."
                    raise RefusedError(ErrorCode.INVALID_REQUEST, message)
                outside = sorted(partitions - {*range(counts[key].tasks)})
                if outside:
                    raise RefusedError(
                        ErrorCode.INVALID_REQUEST,
                        f"Task {outside[0]} for subtopology {key} is invalid. Number of tasks for "
                        f"this subtopology: {counts[key].tasks}",
                    )

    def _begin_epoch(self, configured: ConfiguredTopology) -> None:
        """Begin an epoch if the member, the topics or the settings of the assignor have changed."""
        group = self._group
        validated = configured.epoch if configured.is_ready else _NOT_VALIDATED
        configs = {STANDBY_REPLICAS: str(group.limits.standby_replicas)}
        if (
            self._is_changed
            or configured.metadata_hash != group.metadata_hash
            or validated != group.validated_epoch
            or configs != group.configs
        ):
            self.epoch += 1
            record = RECORDS.validated_epoch_record(
                group.group_id, self.epoch, configured.metadata_hash, validated, configs
            )
            self.records.append(record)

    def reconcile(self, configured: ConfiguredTopology, now: Now) -> None:
        """Add the target assignment of the group's epoch if it is due, and move the member."""
        group, before = self._group, self.member
        target = self._target(configured, now)
        self.member = next_step(before, target, self._request.owned, group.holders)
        self.is_moved = self.member != before
        if self.is_moved:
            self.records.append(RECORDS.assignment_record(group.group_id, self.member))

    def _target(self, configured: ConfiguredTopology, now: Now) -> Target:
        """Return the member's target."""
        group, member = self._group, self.member
        if group.is_delayed:
            self._delayed("initial rebalance delay")
            return Target(group.assignment_epoch, NO_TASKS)
        known = group.targets.get(member.member_id, NO_TASKS)
        if group.assignment_epoch >= self.epoch:
            return Target(group.assignment_epoch, known)
        if is_too_early(group, now):
            self._delayed("assignment interval")
            return Target(group.assignment_epoch, known)
        members = {**group.members, member.member_id: member}
        standby = group.limits.standby_replicas
        targets = _targets(members, group.targets, configured, standby)
        self.records += _target_records(group, targets, self.epoch, now)
        return Target(self.epoch, targets[member.member_id])

    def _delayed(self, why: str) -> None:
        detail = f"Assignment delayed due to the configured {why}."
        self.status.append(GroupStatus(Status.ASSIGNMENT_DELAYED, detail))


def first_assignment(group: StreamsGroupView, now: Now) -> list[Record]:
    """Return the records of a new group's first target assignment, once it has waited."""
    configured = group.configured
    is_due = group.members and group.epoch > group.assignment_epoch
    if configured is None or not is_due or is_too_early(group, now):
        return []
    standby = int(group.configs.get(STANDBY_REPLICAS, 0))
    targets = _targets(group.members, group.targets, configured, standby)
    return _target_records(group, targets, group.epoch, now)


def _target_records(
    group: StreamsGroupView, targets: Mapping[str, TaskSets], epoch: int, now: Now
) -> list[Record]:
    """Return the records of a target assignment."""
    return [
        *target_records(RECORDS, group.group_id, group.targets, targets),
        RECORDS.target_epoch_record(group.group_id, epoch, now.wall_ms),
    ]


def _targets(
    members: Mapping[str, StreamsMember],
    known: Mapping[str, TaskSets],
    configured: ConfiguredTopology,
    standby_replicas: int,
) -> dict[str, TaskSets]:
    """Return a new target assignment; without tasks while topics are missing."""
    if not configured.is_ready:
        return dict.fromkeys(members, NO_TASKS)
    assignees = {
        member_id: Assignee(each.description.process_id, known.get(member_id, NO_TASKS))
        for member_id, each in members.items()
    }
    counts = {
        key: TaskCount(each.tasks, each.is_stateful)
        for key, each in (configured.subtopologies or {}).items()
    }
    return sticky_assignor(assignees, counts, standby_replicas)


def _counts(topics: Topics) -> Callable[[str], int | None]:
    """Return the numbers of partitions by topic."""

    def count_of(name: str) -> int | None:
        found = topics.find(name)
        return None if found is None else found[1]

    return count_of


def _is_same(one: StreamsGroupTopologyValue, other: StreamsGroupTopologyValue) -> bool:
    """Return whether two topologies are equal; the order of subtopologies does not count."""
    return one.epoch == other.epoch and (
        {each.subtopology_id: each for each in one.subtopologies}
        == {each.subtopology_id: each for each in other.subtopologies}
    )


def _merged(before: Description, request: StreamsHeartbeat) -> Description:
    """Return what a member says about itself, with what this heartbeat changes."""
    changes: dict[str, Any] = {
        "rack_id": request.rack_id,
        "process_id": request.process_id,
        "user_endpoint": request.user_endpoint,
        "client_tags": request.client_tags,
        "topology_epoch": None if request.topology is None else request.topology.epoch,
        "rebalance_timeout_ms": None
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
    }
    return before._replace(
        client_id=request.client_id,
        client_host=request.client_host,
        **{name: value for name, value in changes.items() if value is not None},
    )
