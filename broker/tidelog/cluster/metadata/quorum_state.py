"""`quorum-state`: the durable election state of a voter of the metadata quorum (KIP-595).

A small JSON file beside the metadata log, as Kafka writes it: version 0 for static voters, version
1 for those of the log (KIP-853), which have directories. Both are read. It is written durably
before any message that depends on it. It is read strictly: a voter that takes a damaged file for an
empty one votes twice in an epoch.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.primitives import uuid_from_str, uuid_to_str
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog_storage.seams import FileSystem

QUORUM_STATE = "quorum-state"
NO_NODE = -1
NO_DIRECTORY = bytes(16)
_NAMED = b'"data_version":1}'
EPOCH_MAX = (1 << 31) - 1  # epochs are int32 on the wire

_INT = r"(-1|0|[1-9][0-9]{0,9})"
_UNUSED = r"-?[0-9]{1,19}"
# Every field, in the order in which Kafka's QuorumStateDataJsonConverter writes them.
_VERSIONS = (
    re.compile(
        rf'\{{"clusterId":"[^"\\]*","leaderId":{_INT},"leaderEpoch":{_INT},"votedId":{_INT},'
        rf'"appliedOffset":{_UNUSED},"currentVoters":'
        rf'(?:null|\[(?:\{{"voterId":{_UNUSED}\}},?)*\]),"data_version":0\}}'
    ),
    re.compile(
        rf'\{{"leaderId":{_INT},"leaderEpoch":{_INT},"votedId":{_INT},'
        rf'"votedDirectoryId":"([A-Za-z0-9_-]{{22}})","data_version":1\}}'
    ),
)


class QuorumStateError(StorageError):
    """The file is missing or damaged; the text is one line, with what to do."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{path} {problem}: this node cannot know how it voted. If most other voters have their"
            " data, empty this node's log directories and format them again as this node",
        )


class Election(NamedTuple):
    """A voter's epoch, the leader, and the vote of this node in it: a node, and its directory if
    the log names the voters."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory: bytes = NO_DIRECTORY


def read_quorum_state(files: FileSystem, folder: str) -> Election | None:
    """Read the file; None if it is missing. QuorumStateError if it is damaged."""
    path = f"{folder}/{QUORUM_STATE}"
    try:
        text = files.read_bytes(path).decode("ascii").rstrip()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise QuorumStateError(path, "is damaged") from None
    match = next(filter(None, (version.fullmatch(text) for version in _VERSIONS)), None)
    if match is None:
        raise QuorumStateError(path, "is damaged")
    leader_id, epoch, voted_id = map(int, match.groups()[:3])
    directory = match.groups()[3:]
    # The last epoch cannot be followed by an election.
    if not 0 <= epoch < EPOCH_MAX or max(leader_id, voted_id) > EPOCH_MAX:
        raise QuorumStateError(path, "is damaged")
    try:
        voted_directory = uuid_from_str(directory[0]) if directory else NO_DIRECTORY
    except ValueError:
        raise QuorumStateError(path, "is damaged") from None
    return Election(epoch, leader_id, voted_id, voted_directory)


def is_of_named_voters(files: FileSystem, folder: str) -> bool | None:
    """Return whether the file is of a quorum whose voters the log names (KIP-853); None without
    it."""
    try:
        return files.read_bytes(f"{folder}/{QUORUM_STATE}").rstrip().endswith(_NAMED)
    except FileNotFoundError:
        return None


def write_quorum_state(
    files: FileSystem, folder: str, election: Election, voters: Sequence[int] | None
) -> None:
    """Write the file durably; `voters` are the static ones, None if the log names them."""
    if voters is None:
        state = (
            f'{{"leaderId":{election.leader_id},"leaderEpoch":{election.epoch},'
            f'"votedId":{election.voted_id},'
            f'"votedDirectoryId":"{uuid_to_str(election.voted_directory)}","data_version":1}}'
        )
        files.write_atomic(f"{folder}/{QUORUM_STATE}", state.encode())
        return
    listed = ",".join(f'{{"voterId":{voter}}}' for voter in voters)
    state = (
        f'{{"clusterId":"","leaderId":{election.leader_id},"leaderEpoch":{election.epoch},'
        f'"votedId":{election.voted_id},"appliedOffset":0,"currentVoters":[{listed}],'
        '"data_version":0}'
    )
    files.write_atomic(f"{folder}/{QUORUM_STATE}", state.encode())
