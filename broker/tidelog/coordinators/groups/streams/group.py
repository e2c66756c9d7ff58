"""One streams group (KIP-1071): it answers heartbeats and says which records to write. Pure.

Beside deadlines, no record holds endpoints, a wish to shut down, and what the topology is beside
the topics: these change at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.modern.group import ModernGroup
from tidelog.coordinators.groups.modern.member import LEAVING
from tidelog.coordinators.groups.modern.records import Record
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.modern.states import MemberState
from tidelog.coordinators.groups.streams.draft import Draft, first_assignment
from tidelog.coordinators.groups.streams.endpoints import endpoints_of
from tidelog.coordinators.groups.streams.holders import TaskHolders
from tidelog.coordinators.groups.streams.member import StreamsMember
from tidelog.coordinators.groups.streams.records import RECORDS
from tidelog.coordinators.groups.streams.requests import StreamsAnswer
from tidelog.coordinators.groups.streams.tasks import TaskSets
from tidelog.coordinators.groups.streams.topology import GroupStatus, InternalTopic, Status
from tidelog.coordinators.groups.streams.views import StreamsLimits
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.streams_group_records import (
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Literal

    from tidelog.coordinators.groups.modern.topics import Topics
    from tidelog.coordinators.groups.now import Now
    from tidelog.coordinators.groups.streams.endpoints import EndpointPartitions
    from tidelog.coordinators.groups.streams.requests import StreamsHeartbeat
    from tidelog.coordinators.groups.streams.topology import ConfiguredTopology

__all__ = ["StreamsGroup", "StreamsStep"]


class StreamsStep(NamedTuple):
    """What to do about a heartbeat: append the records as one batch, replay them, create the
    missing topics, and answer."""

    answer: StreamsAnswer
    records: list[Record]
    missing_topics: tuple[InternalTopic, ...] = ()


class StreamsGroup(ModernGroup[StreamsMember, TaskSets, StreamsLimits]):
    """The members of a Kafka Streams application.

    Invariant: every task that a member has, or must give back, is in `holders`.
    """

    type: Literal["streams"] = "streams"
    protocol_type = "streams"
    records = RECORDS

    def __init__(self, group_id: str, limits: StreamsLimits) -> None:
        super().__init__(group_id, limits)
        self.validated_epoch = 0  # of the topology whose topics are all there
        self.configs: dict[str, str] = {}  # of the assignor, in this epoch
        self.topology: StreamsGroupTopologyValue | None = None
        self.configured: ConfiguredTopology | None = None
        self.described: ConfiguredTopology | None = None  # as descriptions show it
        self._was_configured = False  # by a heartbeat after the one that brought the topology
        self.holders = TaskHolders()
        self._first_assignment_ms: int | None = None  # ticks; set while a new group waits for it
        self._endpoint_epoch = 0
        self._shutdown_by: str | None = None  # the member that asked for it first

    @property
    def is_ready(self) -> bool:
        """Return whether all topics of the topology are there, and fit."""
        return self.topology is not None and self.topology.epoch == self.validated_epoch

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
        if not self.members and delay_ms > 0 and self._first_assignment_ms is None:
            self._first_assignment_ms = now.ticks_ms + delay_ms
        draft.reconcile(configured, now)
        after = draft.member
        self.alive(after, now)
        if draft.is_moved:
            self.moved(after, now)
        if request.shuts_down:
            self._shut_down(request.member_id)
        status = [*draft.status, *self._status(configured)]
        if self.topology is None:
            self._shutdown_by = None  # as in Kafka, that of a group's first heartbeat is lost
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

    def _leave(self, request: StreamsHeartbeat, topics: Topics) -> StreamsStep:
        if request.shuts_down:  # as in Kafka, also of a stranger
            self._shut_down(request.member_id)
        self.must_have(request.member_id)
        answer = StreamsAnswer(request.member_id, request.epoch)
        return StreamsStep(answer, self.fence([request.member_id], topics))

    def fence(self, member_ids: Iterable[str], topics: Topics) -> list[Record]:
        """Return the records that remove these members; the next heartbeat computes the targets
        and looks at the topics."""
        return [
            *RECORDS.removal(self.group_id, member_ids),
            RECORDS.validated_epoch_record(
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

    def topics_seen(self, configured: ConfiguredTopology) -> None:
        """Note what the topology is beside the current topics."""
        self.is_stale = False
        self.configured = configured

    @property
    def is_delayed(self) -> bool:
        """Return whether the first assignment waits for more members."""
        return self._first_assignment_ms is not None

    def revocation_ms(self, member: StreamsMember) -> int | None:
        """Return how long a member may take to give tasks back, None if it need not."""
        is_revoking = member.state is MemberState.UNREVOKED
        return member.description.rebalance_timeout_ms if is_revoking else None

    def next_deadline_ms(self) -> int | None:
        """Return when `expire` is due, None if nothing is."""
        found = (super().next_deadline_ms(), self._first_assignment_ms)
        return min((each for each in found if each is not None), default=None)

    def expire(self, topics: Topics, now: Now) -> list[Record]:
        """Return the records that remove members whose session or time for a step has ended, or
        else those of a new group's first assignment, if it is due."""
        records = super().expire(topics, now)
        first_ms = self._first_assignment_ms
        if records or first_ms is None or first_ms > now.ticks_ms:
            return records
        self._first_assignment_ms = None
        return first_assignment(self, now)

    # ---- records -----------------------------------------------------------------------------

    def replay(self, record: Record) -> None:
        """Apply a record of this group that has been appended or loaded."""
        if self._was_configured:  # Kafka describes what was so at the group's last write
            self.described = self.configured
        super().replay(record)

    def _replay_epoch(self, value: Any) -> None:
        super()._replay_epoch(value)
        self.validated_epoch = value.validated_topology_epoch
        self.configs = {each.key: each.value for each in value.last_assignment_configs or ()}

    def _replay_other(self, _key: Any, value: Any) -> None:
        self.topology = value

    def _removed(self, member: StreamsMember) -> None:
        for held in (member.assigned, member.revoking):
            self.holders.remove(held, member.description.process_id)

    def _added(self, member: StreamsMember) -> None:
        for held in (member.assigned, member.revoking):
            self.holders.add(held, member.description.process_id)

    def _replay_member(self, member_id: str, value: Any) -> None:
        super()._replay_member(member_id, value)
        if not self.members:
            self._shutdown_by = None

    def tombstones(self) -> list[Record]:
        """Return the records that remove the group and its members, in Kafka's order."""
        return [
            *RECORDS.removal(self.group_id, self.members),
            Record(RECORDS.target_epoch_key(group_id=self.group_id)),
            Record(RECORDS.group_key(group_id=self.group_id)),
            Record(StreamsGroupTopologyKey(group_id=self.group_id)),
        ]


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
