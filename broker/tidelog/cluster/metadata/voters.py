"""The voters of a metadata quorum that the metadata log itself names (KIP-853, `kraft.version` 1).

A VotersRecord replaces the set, and counts from the moment that it is in a node's log, committed or
not. Kafka: VoterSet, VoterSetHistory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.cluster.metadata.features import DYNAMIC_LEVEL
from tidelog.cluster.metadata.quorum_state import NO_DIRECTORY
from tidelog_protocol.messages.quorum_records import (
    KRaftVersionRecord,
    VotersRecord,
    control_record,
    read_control_record,
)
from tidelog_protocol.primitives import uuid_to_str
from tidelog_protocol.records import ControlType, control_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog_protocol.records import Record

__all__ = [
    "NO_DIRECTORY",
    "UncommittedVoters",
    "Voter",
    "Voters",
    "has_key",
    "key_text",
    "level_and_voters",
    "voters_in",
    "voters_record",
    "without",
]


class Voter(NamedTuple):
    """A voter: its node, the directory of its metadata log, the listeners of its controller."""

    node_id: int
    directory_id: bytes
    endpoints: tuple[tuple[str, str, int], ...] = ()
    """Name, host and port of each listener."""
    levels: tuple[int, int] = (0, DYNAMIC_LEVEL)
    """Lowest and highest `kraft.version` that it can work with."""

    def address(self, listener: str) -> tuple[str, int] | None:
        """Return host and port of a listener, None if it has none of this name."""
        return next(((host, port) for name, host, port in self.endpoints if name == listener), None)


Voters = tuple[Voter, ...]
"""A set of voters, by id."""


class UncommittedVoters:
    """The sets of voters above the high watermark, oldest first, by the offset of their record."""

    def __init__(self) -> None:
        self._sets: list[tuple[int, Voters]] = []

    @property
    def latest(self) -> Voters | None:
        """The newest set, None if all are committed."""
        return self._sets[-1][1] if self._sets else None

    @property
    def before_latest(self) -> Voters | None:
        """The set before the newest one, None if it is committed."""
        return self._sets[-2][1] if len(self._sets) > 1 else None

    def add(self, offset: int, voters: Voters) -> None:
        """Add the set of a new record."""
        assert not self._sets or offset > self._sets[-1][0]
        self._sets.append((offset, voters))

    def truncate_to(self, end: int) -> None:
        """Forget the sets of records from `end` on."""
        self._sets = [each for each in self._sets if each[0] < end]

    def committed(self, offset: int) -> None:
        """Forget the sets up to `offset`, which the image has."""
        self._sets = [each for each in self._sets if each[0] > offset]

    def clear(self) -> None:
        """Forget all."""
        self._sets.clear()


def voters_in(record: Record) -> Voters | None:
    """Return the voters that a control record names, None for one of another type."""
    if control_type(record) != ControlType.KRAFT_VOTERS:
        return None
    message = read_control_record(record)
    assert isinstance(message, VotersRecord)
    voters = [
        Voter(
            one.voter_id,
            one.voter_directory_id,
            tuple((each.name, each.host, each.port) for each in one.endpoints),
            (
                one.kraft_version_feature.min_supported_version,
                one.kraft_version_feature.max_supported_version,
            ),
        )
        for one in message.voters
    ]
    return tuple(sorted(voters))


def voters_record(voters: Voters, timestamp: int, offset: int = 0) -> Record:
    """Build the control record of a set of voters."""
    rows = [
        VotersRecord.Voter(
            voter_id=voter.node_id,
            voter_directory_id=voter.directory_id,
            endpoints=[
                VotersRecord.Endpoint(name=name, host=host, port=port)
                for name, host, port in voter.endpoints
            ],
            kraft_version_feature=VotersRecord.KRaftVersionFeature(
                min_supported_version=voter.levels[0], max_supported_version=voter.levels[1]
            ),
        )
        for voter in voters
    ]
    return control_record(VotersRecord(voters=rows), timestamp=timestamp, offset=offset)


def level_and_voters(voters: Voters, timestamp: int, offset: int) -> list[Record]:
    """Build the two control records that a log or snapshot with voters begins with."""
    level = control_record(
        KRaftVersionRecord(kraft_version=DYNAMIC_LEVEL), timestamp=timestamp, offset=offset
    )
    return [level, voters_record(voters, timestamp, offset + 1)]


def has_key(voters: Iterable[Voter], own: Voter) -> bool:
    """Return whether a node is among the voters, with this directory. One that was a static voter
    may have none in its record."""
    return any(
        voter.node_id == own.node_id and voter.directory_id in (own.directory_id, NO_DIRECTORY)
        for voter in voters
    )


def without(voters: Iterable[Voter], node_id: int) -> Voters:
    """Return the voters but this node."""
    return tuple(voter for voter in voters if voter.node_id != node_id)


def key_text(node_id: int, directory_id: bytes) -> str:
    """Return a voter's key as Kafka's ReplicaKey shows it."""
    return f"ReplicaKey(id={node_id}, directoryId={uuid_to_str(directory_id)})"
