"""One streams group (KIP-1071): it answers heartbeats and says which records to write.

`heartbeat` and `expire` write nothing: they return records, and `replay` applies each once it is
appended, as it does while loading. Only what no record holds changes at once: deadlines, endpoints,
a wish to shut down, and what the topology is beside the topics. Pure: the time and the topics are
given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.consumer.member import FIRST_EPOCH, LEAVING
from tidelog.coordinators.groups.consumer.requests import RefusedError
from tidelog.coordinators.groups.member import NO_TIMESTAMP
from tidelog.coordinators.groups.streams.deadlines import Deadlines
from tidelog.coordinators.groups.streams.draft import Draft, first_assignment
from tidelog.coordinators.groups.streams.endpoints import endpoints_of
from tidelog.coordinators.groups.streams.holders import TaskHolders
from tidelog.coordinators.groups.streams.member import StreamsMember
from tidelog.coordinators.groups.streams.records import (
    epoch_record,
    removal,
    target_of,
    tombstones,
    with_assignment,
    with_description,
)
from tidelog.coordinators.groups.streams.requests import StreamsAnswer
from tidelog.coordinators.groups.streams.states import StreamsGroupState
from tidelog.coordinators.groups.streams.tasks import NOTHING
from tidelog.coordinators.groups.streams.topology import GroupStatus, InternalTopic, Status
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Literal

    from tidelog.coordinators.groups.consumer.views import Topics
    from tidelog.coordinators.groups.member import Now
    from tidelog.coordinators.groups.member_records import Record
    from tidelog.coordinators.groups.streams.endpoints import EndpointPartitions
    from tidelog.coordinators.groups.streams.requests import StreamsHeartbeat
    from tidelog.coordinators.groups.streams.tasks import TaskSets
    from tidelog.coordinators.groups.streams.topology import ConfiguredTopology
    from tidelog.coordinators.groups.streams.views import StreamsLimits

__all__ = ["StreamsGroup", "StreamsStep"]


class StreamsStep(NamedTuple):
    """What to do about a heartbeat: append the records as one batch, replay them, create the
    missing topics, and answer."""

    answer: StreamsAnswer
    records: list[Record]
    missing_topics: tuple[InternalTopic, ...] = ()


class StreamsGroup:
    """The members of a Kafka Streams application, as their records say.

    Invariant: a member of `targets` is in `members`; every task that a member has, or must give
    back, is in `holders`.
    """

    type: Literal["streams"] = "streams"
    protocol_type = "streams"
    retention_start_ms = NO_TIMESTAMP

    def __init__(self, group_id: str, limits: StreamsLimits) -> None:
        self.group_id = group_id
        self.limits = limits
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.validated_epoch = 0  # of the topology whose topics are all there
        self.configs: dict[str, str] = {}  # of the assignor, in this epoch
        self.topology: StreamsGroupTopologyValue | None = None
        self.configured: ConfiguredTopology | None = None
        self.described: ConfiguredTopology | None = None  # as descriptions show it
        self._was_configured = False  # by a heartbeat after the one that brought the topology
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_ms = 0  # wall time of the target assignment
        self.members: dict[str, StreamsMember] = {}
        self.targets: dict[str, TaskSets] = {}
        self.holders = TaskHolders()
        self._deadlines = Deadlines()
        self._endpoint_epoch = 0
        self._shutdown_by: str | None = None  # the member that asked for it first
        self._is_stale = True  # topics may have changed since the last look

    @property
    def state(self) -> StreamsGroupState:
        """The state, which follows from the members."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        if all(each.is_reconciled(self.assignment_epoch) for each in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        """Return whether the group has no members."""
        return not self.members

    def is_subscribed(self, topic: str) -> bool:
        """Return whether tasks of members read a topic."""
        return bool(self.members) and self.subtopology_of(topic) is not None

    def subtopology_of(self, topic: str) -> str | None:
        """Return the subtopology whose tasks read a topic."""
        for each in () if self.topology is None else self.topology.subtopologies:
            internal = (one.name for one in each.repartition_source_topics)
            if topic in each.source_topics or topic in internal:
                return each.subtopology_id
        return None

    # ---- heartbeats --------------------------------------------------------------------------

    def heartbeat(self, request: StreamsHeartbeat, topics: Topics, now: Now) -> StreamsStep:
        """Return what to do about a heartbeat whose fields are checked; RefusedError changes
        nothing."""
        if request.epoch == LEAVING:
            return self._leave(request, topics)
        member = self._member_of(request)
        draft = Draft(self, member, request)
        configured = draft.configure(topics)
        self._was_configured = self.topology is not None
        delay_ms = self.limits.initial_rebalance_delay_ms
        if not self.members and delay_ms > 0:
            self._deadlines.delay(delay_ms, now)
        draft.reconcile(configured, now)
        after = draft.member
        self._deadlines.alive(after.member_id, self.limits.session_timeout_ms, now)
        if draft.is_moved:
            self._deadlines.changed(after, now)
        if request.shuts_down:
            self._shut_down(request.member_id)
        status = [*draft.status, *self._status(configured)]
        is_shown = request.epoch == 0 or after.assigned != member.assigned
        endpoint_epoch, endpoints = self._endpoints(request, after, topics, is_shown=is_shown)
        answer = StreamsAnswer(
            after.member_id,
            after.epoch,
            self.limits.heartbeat_interval_ms,
            after.assigned if is_shown else None,
            tuple(status),
            endpoint_epoch,
            endpoints,
        )
        return StreamsStep(answer, draft.records, configured.missing_topics)

    def _member_of(self, request: StreamsHeartbeat) -> StreamsMember:
        """Return the member of a heartbeat, a new one if it joins."""
        if request.epoch != 0:
            member = self.must_have(request.member_id)
            _check_epoch(member, request)
            return member
        if len(self.members) >= self.limits.size_max:  # also for a member that joins again
            raise RefusedError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The streams group has reached its maximum capacity of "
                f"{self.limits.size_max} members.",
            )
        return self.members.get(request.member_id, StreamsMember(request.member_id))

    def must_have(self, member_id: str) -> StreamsMember:
        """Return a member, or refuse."""
        member = self.members.get(member_id)
        if member is None:
            raise RefusedError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def _leave(self, request: StreamsHeartbeat, topics: Topics) -> StreamsStep:
        self.must_have(request.member_id)
        if request.shuts_down:
            self._shut_down(request.member_id)
        answer = StreamsAnswer(request.member_id, request.epoch)
        return StreamsStep(answer, self.fence([request.member_id], topics))

    def fence(self, member_ids: Iterable[str], topics: Topics) -> list[Record]:
        """Return the records that remove these members; the next heartbeat computes the targets
        and looks at the topics."""
        records = [record for each in sorted(member_ids) for record in removal(self.group_id, each)]
        return [
            *records,
            epoch_record(
                self.group_id,
                self.epoch + 1,
                self.metadata_hash,
                self.validated_epoch,
                self.configs,
            ),
        ]

    def _shut_down(self, member_id: str) -> None:
        """Have all members of the application end, while the group has any."""
        self._shutdown_by = self._shutdown_by or member_id

    def _status(self, configured: ConfiguredTopology) -> list[GroupStatus]:
        found = [] if configured.problem is None else [configured.problem]
        if self._shutdown_by is not None:
            detail = (
                f"Streams group member {self._shutdown_by} encountered a fatal error and requested "
                "a shutdown for the entire application."
            )
            found.append(GroupStatus(Status.SHUTDOWN_APPLICATION, detail))
        return found

    def _endpoints(
        self, request: StreamsHeartbeat, member: StreamsMember, topics: Topics, *, is_shown: bool
    ) -> tuple[int, tuple[EndpointPartitions, ...] | None]:
        """Return the epoch of the endpoints, and them if the member does not know them.

        The epoch of a new group's first member is not kept, as in Kafka.
        """
        assert self.configured is not None
        epoch = self._endpoint_epoch
        if is_shown and member.description.user_endpoint is not None:
            epoch += 1
        endpoints = None
        if epoch != request.endpoint_epoch:
            others = (each for name, each in self.members.items() if name != member.member_id)
            endpoints = endpoints_of((*others, member), self.configured, topics)
        if self.topology is None:
            return 0, endpoints
        self._endpoint_epoch = epoch
        return epoch, endpoints

    # ---- time --------------------------------------------------------------------------------

    def topics_changed(self) -> None:
        """Note that the next heartbeat must look at the topics."""
        self._is_stale = True

    def topics_seen(self, configured: ConfiguredTopology) -> None:
        """Note what the topology is beside the current topics."""
        self._is_stale = False
        self.configured = configured

    @property
    def is_stale(self) -> bool:
        """Return whether topics may have changed since the last look."""
        return self._is_stale

    @property
    def is_delayed(self) -> bool:
        """Return whether the first assignment waits for more members."""
        return self._deadlines.is_delayed

    def resume(self, now: Now) -> None:
        """Begin the sessions of all members, after loading."""
        self._is_stale = True
        for member in self.members.values():
            self._deadlines.alive(member.member_id, self.limits.session_timeout_ms, now)
            self._deadlines.changed(member, now)

    def next_deadline_ms(self) -> int | None:
        """Return when `expire` is due, None if nothing is."""
        return self._deadlines.next_ms(self.members)

    def expire(self, topics: Topics, now: Now) -> list[Record]:
        """Return the records that remove members whose session or rebalance timeout has passed, or
        else those of a new group's first assignment, if it is due."""
        late = self._deadlines.late(self.members, now)
        if late:
            return self.fence(late, topics)
        return first_assignment(self, now) if self._deadlines.end_delay(now) else []

    # ---- records -----------------------------------------------------------------------------

    def replay(self, record: Record) -> None:
        """Apply a record of this group that has been appended or loaded."""
        if self._was_configured:  # Kafka describes what was so at the group's last write
            self.described = self.configured
        key, value = record
        if isinstance(key, StreamsGroupMetadataKey):
            if value is not None:  # a tombstone removes the group, which its shard does
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
                self.validated_epoch = value.validated_topology_epoch
                configs = value.last_assignment_configs or ()
                self.configs = {each.key: each.value for each in configs}
        elif isinstance(key, StreamsGroupTopologyKey):
            self.topology = value
        elif isinstance(key, StreamsGroupTargetAssignmentMetadataKey):
            self.assignment_epoch = -1 if value is None else value.assignment_epoch
            self.assignment_ms = 0 if value is None else value.assignment_timestamp
        elif isinstance(key, StreamsGroupTargetAssignmentMemberKey):
            self.targets.pop(key.member_id, None)
            if value is not None:
                self.targets[key.member_id] = target_of(value)
        elif isinstance(key, StreamsGroupMemberMetadataKey):
            self._replay_member(key.member_id, value)
        elif isinstance(key, StreamsGroupCurrentMemberAssignmentKey):
            self._replay_assignment(key.member_id, value)

    def _replay_member(self, member_id: str, value: Any) -> None:
        member = self._taken(member_id)
        if value is not None:
            self._put(with_description(member or StreamsMember(member_id), value))
        elif not self.members:
            self._shutdown_by = None

    def _replay_assignment(self, member_id: str, value: Any) -> None:
        member = self._taken(member_id)
        if value is not None:
            self._put(with_assignment(member or StreamsMember(member_id), value))
        elif member is not None:  # the tombstone of the member itself follows
            self._put(
                member._replace(
                    epoch=LEAVING, previous_epoch=LEAVING, assigned=NOTHING, revoking=NOTHING
                )
            )

    def _taken(self, member_id: str) -> StreamsMember | None:
        """Take a member out."""
        member = self.members.pop(member_id, None)
        if member is not None:
            for held in (member.assigned, member.revoking):
                self.holders.remove(held, member.description.process_id)
        return member

    def _put(self, member: StreamsMember) -> None:
        self.members[member.member_id] = member
        for held in (member.assigned, member.revoking):
            self.holders.add(held, member.description.process_id)

    def tombstones(self) -> list[Record]:
        """Return the records that remove the group and its members."""
        return tombstones(self.group_id, self.members)


def _check_epoch(member: StreamsMember, request: StreamsHeartbeat) -> None:
    """Refuse a wrong epoch. The previous one is right for a member that owns no more than it has,
    because the last answer may be lost."""
    received, known = request.epoch, member.epoch
    if received == known:
        return
    owned = request.owned
    is_previous = received < known and received == member.previous_epoch
    if is_previous and owned is not None and member.assigned.covers(owned):
        return
    raise RefusedError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {'greater' if received > known else 'smaller'} member "
        f"epoch ({received}) than the one known by the group coordinator ({known}). The member "
        "must abandon all its partitions and rejoin.",
    )
