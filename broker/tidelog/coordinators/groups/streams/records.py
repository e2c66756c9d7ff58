"""Records of a streams group in `__consumer_offsets`, from and to its members and topology."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.modern.member import LEAVING
from tidelog.coordinators.groups.modern.records import GroupRecords, Record
from tidelog.coordinators.groups.streams.member import Description, Endpoint, StreamsMember
from tidelog.coordinators.groups.streams.tasks import NOTHING, HeldTasks, TaskSets
from tidelog_protocol.messages import streams_group_records
from tidelog_protocol.messages.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.coordinators.groups.streams.tasks import Epochs, Tasks

__all__ = ["RECORDS", "topology_record"]

_Current = StreamsGroupCurrentMemberAssignmentValue.TaskIds
_Target = StreamsGroupTargetAssignmentMemberValue.TaskIds


class _StreamsRecords(GroupRecords[StreamsMember, TaskSets]):
    """Records of streams groups."""

    def new_member(self, member_id: str) -> StreamsMember:
        """Return a member that has said nothing yet."""
        return StreamsMember(member_id)

    def validated_epoch_record(
        self,
        group_id: str,
        epoch: int,
        metadata_hash: int,
        validated_epoch: int,
        configs: Mapping[str, str],
    ) -> Record:
        """Return the record of a group's epoch and of what it was computed of."""
        table = StreamsGroupMetadataValue.LastAssignmentConfig
        return self.epoch_record(
            group_id,
            epoch,
            metadata_hash,
            validated_topology_epoch=validated_epoch,
            last_assignment_configs=[table(key=key, value=configs[key]) for key in sorted(configs)],
        )

    def member_record(self, group_id: str, member: StreamsMember) -> Record:
        """Return the record of what a member says about itself."""
        said = member.description
        endpoint = said.user_endpoint
        table = StreamsGroupMemberMetadataValue
        value = table(
            instance_id=said.instance_id,
            rack_id=said.rack_id,
            client_id=said.client_id,
            client_host=said.client_host,
            rebalance_timeout_ms=said.rebalance_timeout_ms,
            topology_epoch=said.topology_epoch,
            process_id=said.process_id,
            user_endpoint=None
            if endpoint is None
            else table.Endpoint(host=endpoint.host, port=endpoint.port),
            client_tags=[table.KeyValue(key=key, value=value) for key, value in said.client_tags],
        )
        return Record(self.member_key(group_id=group_id, member_id=member.member_id), value)

    def with_metadata(
        self, member: StreamsMember, value: StreamsGroupMemberMetadataValue
    ) -> StreamsMember:
        """Return a member with what its record says about it."""
        endpoint = value.user_endpoint
        return member._replace(
            description=Description(
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                topology_epoch=value.topology_epoch,
                process_id=value.process_id,
                user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
                client_tags=tuple(sorted((each.key, each.value) for each in value.client_tags)),
            )
        )

    def target_record(self, group_id: str, member_id: str, target: TaskSets) -> Record:
        """Return the record of a member's target assignment."""
        value = StreamsGroupTargetAssignmentMemberValue(
            active_tasks=_targets(target.active),
            standby_tasks=_targets(target.standby),
            warmup_tasks=_targets(target.warmup),
        )
        return Record(self.target_key(group_id=group_id, member_id=member_id), value)

    def target_of(self, value: StreamsGroupTargetAssignmentMemberValue) -> TaskSets:
        """Return the target assignment of a record."""
        return TaskSets(
            _sets(value.active_tasks), _sets(value.standby_tasks), _sets(value.warmup_tasks)
        )

    def assignment_record(self, group_id: str, member: StreamsMember) -> Record:
        """Return the record of a member's epoch and tasks."""
        assigned, revoking = member.assigned, member.revoking
        return self.current_record(
            group_id,
            member,
            active_tasks=_with_epochs(assigned.active),
            standby_tasks=_current(assigned.standby),
            warmup_tasks=_current(assigned.warmup),
            active_tasks_pending_revocation=_with_epochs(revoking.active),
            standby_tasks_pending_revocation=_current(revoking.standby),
            warmup_tasks_pending_revocation=_current(revoking.warmup),
        )

    def with_assignment(
        self, member: StreamsMember, value: StreamsGroupCurrentMemberAssignmentValue
    ) -> StreamsMember:
        """Return a member with the epoch and the tasks of its record."""
        epoch = value.member_epoch
        return member._replace(
            epoch=epoch,
            previous_epoch=value.previous_member_epoch,
            state=self.state_of(value.state),
            assigned=HeldTasks(
                _epochs(value.active_tasks, epoch),
                _sets(value.standby_tasks),
                _sets(value.warmup_tasks),
            ),
            revoking=HeldTasks(
                _epochs(value.active_tasks_pending_revocation, epoch),
                _sets(value.standby_tasks_pending_revocation),
                _sets(value.warmup_tasks_pending_revocation),
            ),
        )

    def leaving(self, member: StreamsMember) -> StreamsMember:
        """Return a member that has nothing any more; its own tombstone follows."""
        return member._replace(
            epoch=LEAVING, previous_epoch=LEAVING, assigned=NOTHING, revoking=NOTHING
        )


RECORDS = _StreamsRecords(streams_group_records, "StreamsGroup", first_state=1)


def topology_record(group_id: str, topology: StreamsGroupTopologyValue) -> Record:
    """Return the record of a group's topology."""
    return Record(StreamsGroupTopologyKey(group_id=group_id), topology)


def _targets(tasks: Tasks) -> list[_Target]:
    return [_Target(subtopology_id=key, partitions=sorted(tasks[key])) for key in sorted(tasks)]


def _current(tasks: Tasks) -> list[_Current]:
    return [_Current(subtopology_id=key, partitions=sorted(tasks[key])) for key in sorted(tasks)]


def _with_epochs(tasks: Epochs) -> list[_Current]:
    return [
        _Current(
            subtopology_id=key,
            partitions=sorted(tasks[key]),
            assignment_epochs=[tasks[key][each] for each in sorted(tasks[key])],
        )
        for key in sorted(tasks)
    ]


def _sets(listed: Iterable[_Current] | Iterable[_Target]) -> dict[str, frozenset[int]]:
    return {each.subtopology_id: frozenset(each.partitions) for each in listed if each.partitions}


def _epochs(listed: Iterable[_Current], epoch: int) -> dict[str, dict[int, int]]:
    """Return tasks with their epochs; those of older records have the member's epoch."""
    found = {}
    for each in listed:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            epochs = [epoch] * len(each.partitions)
        if each.partitions:
            found[each.subtopology_id] = dict(zip(each.partitions, epochs, strict=True))
    return found
