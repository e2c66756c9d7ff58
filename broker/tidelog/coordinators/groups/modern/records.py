"""Records of consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071) in
`__consumer_offsets`, from and to Kafka's bytes.

A key is an int16 record type and its body, a value an int16 version and its body. Five kinds of
records are alike in all three types of groups: `GroupRecords`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from tidelog.coordinators.groups.modern.member import Partitions
from tidelog.coordinators.groups.modern.states import MemberState
from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages import (
    consumer_records,
    share_group_records,
    streams_group_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType
    from typing import Any

    from tidelog.coordinators.groups.modern.member import AnyMember, Subscribing

__all__ = [
    "GroupRecords",
    "PartitionRecords",
    "Record",
    "decode",
    "encode",
    "group_type",
    "removes_group",
]

M = TypeVar("M", bound="AnyMember")
S = TypeVar("S", bound="Subscribing")
T = TypeVar("T")

_VERSION = Struct(">h")
_KINDS = {
    "consumer": consumer_records.TABLES,
    "share": share_group_records.TABLES,
    "streams": streams_group_records.TABLES,
}
_TABLES = {number: table for tables in _KINDS.values() for number, table in tables.items()}
_CODECS = {
    key: (_VERSION.pack(number), codec(key, 0), codec(value, 0))
    for number, (key, value) in _TABLES.items()
}
_VALUE_PREFIX = _VERSION.pack(0)
_KIND_OF = {key: kind for kind, tables in _KINDS.items() for key, _ in tables.values()}
_GROUP_KEYS = (
    consumer_records.ConsumerGroupMetadataKey,
    share_group_records.ShareGroupMetadataKey,
    streams_group_records.StreamsGroupMetadataKey,
)


class Record(NamedTuple):
    """A key and a value of the tables of group records; None removes."""

    key: Any
    value: Any | None = None


class GroupRecords(Generic[M, T]):
    """The records of one type of group, whose members are M and whose targets are T.

    A group has a record of its epoch and one of its target assignment's epoch; each member has one
    of what it says about itself, one of its target, and one of what it has.
    """

    def __init__(self, messages: ModuleType, prefix: str, *, first_state: int = 0) -> None:
        """`messages` has the tables; their names begin with `prefix`. Numbers of members' states
        begin with `first_state`."""
        self._first_state = first_state
        self._states = {each + first_state: each for each in MemberState}

        def tables(name: str) -> tuple[Any, Any]:
            return getattr(messages, f"{prefix}{name}Key"), getattr(
                messages, f"{prefix}{name}Value"
            )

        self.group_key, self.group_value = tables("Metadata")
        self.target_epoch_key, self.target_epoch_value = tables("TargetAssignmentMetadata")
        self.member_key, self.member_value = tables("MemberMetadata")
        self.target_key, self.target_value = tables("TargetAssignmentMember")
        self.current_key, self.current_value = tables("CurrentMemberAssignment")

    def epoch_record(self, group_id: str, epoch: int, metadata_hash: int, **more: Any) -> Record:
        """Return the record of a group's epoch, of the hash of its topics and of more fields."""
        value = self.group_value(epoch=epoch, metadata_hash=metadata_hash, **more)
        return Record(self.group_key(group_id=group_id), value)

    def target_epoch_record(self, group_id: str, epoch: int, timestamp: int) -> Record:
        """Return the record of a target assignment's epoch and time; it follows the members'."""
        value = self.target_epoch_value(assignment_epoch=epoch, assignment_timestamp=timestamp)
        return Record(self.target_epoch_key(group_id=group_id), value)

    def removal(self, group_id: str, member_ids: Iterable[str]) -> list[Record]:
        """Return the tombstones of members, in Kafka's order."""
        return [
            Record(key(group_id=group_id, member_id=each))
            for each in sorted(member_ids)
            for key in (self.current_key, self.target_key, self.member_key)
        ]

    def current_record(self, group_id: str, member: M, **held: Any) -> Record:
        """Return the record of a member's epoch and of what it has."""
        value = self.current_value(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=min(MemberState.UNKNOWN, member.state + self._first_state),
            **held,
        )
        return Record(self.current_key(group_id=group_id, member_id=member.member_id), value)

    def state_of(self, number: int) -> MemberState:
        """Return the state that has this number in a record of what a member has."""
        return self._states.get(number, MemberState.UNKNOWN)

    def new_member(self, member_id: str) -> M:
        """Return a member that has said nothing yet."""
        raise NotImplementedError

    def with_metadata(self, member: M, value: Any) -> M:
        """Return a member with what its record says about it."""
        raise NotImplementedError

    def with_assignment(self, member: M, value: Any) -> M:
        """Return a member with the epoch of its record and what it has."""
        raise NotImplementedError

    def leaving(self, member: M) -> M:
        """Return a member that has nothing any more; its own tombstone follows."""
        raise NotImplementedError

    def target_record(self, group_id: str, member_id: str, target: T) -> Record:
        """Return the record of a member's target assignment."""
        raise NotImplementedError

    def target_of(self, value: Any) -> T:
        """Return the target assignment of a record."""
        raise NotImplementedError


class PartitionRecords(GroupRecords[S, Partitions]):
    """Records of a type of group whose members subscribe to topics."""

    def subscription_record(self, group_id: str, member: S, **more: Any) -> Record:
        """Return the record of what a member says about itself, with more fields."""
        said = member.subscription
        value = self.member_value(
            rack_id=said.rack_id,
            client_id=said.client_id,
            client_host=said.client_host,
            subscribed_topic_names=sorted(said.topic_names),
            **more,
        )
        return Record(self.member_key(group_id=group_id, member_id=member.member_id), value)

    def target_record(self, group_id: str, member_id: str, target: Partitions) -> Record:
        """Return the record of a member's target assignment."""
        table = self.target_value
        return Record(
            self.target_key(group_id=group_id, member_id=member_id),
            table(
                topic_partitions=[
                    table.TopicPartition(topic_id=topic, partitions=sorted(target[topic]))
                    for topic in sorted(target)
                ]
            ),
        )

    def target_of(self, value: Any) -> Partitions:
        """Return the target assignment of a record."""
        return {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}


def group_type(record: Record) -> str:
    """Return the type of a record's group."""
    return _KIND_OF[type(record.key)]


def removes_group(record: Record) -> bool:
    """Return whether a record is the tombstone of a whole group."""
    return record.value is None and isinstance(record.key, _GROUP_KEYS)


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """Return the bytes of a record."""
    key, value = record
    prefix, key_codec, value_codec = _CODECS[type(key)]
    encoded = prefix + key_codec.encode(key)
    if value is None:
        return encoded, None
    return encoded, _VALUE_PREFIX + value_codec.encode(value)


def decode(key: bytes, value: bytes | None) -> Record | None:
    """Return a record, None for one of another type; ProtocolError if it is corrupt."""
    tables = _TABLES.get(int.from_bytes(key[:2], "big", signed=True)) if len(key) > 1 else None
    if tables is None:
        return None
    decoded_key = codec(tables[0], 0).decode(key, _VERSION.size)
    if value is None:
        return Record(decoded_key)
    if value[: _VERSION.size] != _VALUE_PREFIX:
        raise ProtocolError(f"a {tables[1].__name__} with an unknown version")
    return Record(decoded_key, codec(tables[1], 0).decode(value, _VERSION.size))
