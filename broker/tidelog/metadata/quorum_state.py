"""`quorum-state`: what a voter of the metadata quorum must not forget (KIP-595).

A small JSON file beside the metadata log, as Kafka writes it for fixed voters (data version 0).
Written whole and durably before anything is said that depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog_storage.seams import FileSystem

QUORUM_STATE = "quorum-state"
NOBODY = -1


class Election(NamedTuple):
    """A voter's epoch, who leads in it, and whom this node voted for in it."""

    epoch: int = 0
    leader_id: int = NOBODY
    voted_id: int = NOBODY


def read_quorum_state(files: FileSystem, folder: str) -> Election | None:
    """What the file says; None if it is missing or makes no sense."""
    try:
        text = files.read_bytes(f"{folder}/{QUORUM_STATE}").decode()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    epoch = _number(text, "leaderEpoch")
    if epoch is None:
        return None
    leader_id, voted_id = _number(text, "leaderId"), _number(text, "votedId")
    return Election(
        epoch,
        NOBODY if leader_id is None else leader_id,
        NOBODY if voted_id is None else voted_id,
    )


def write_quorum_state(
    files: FileSystem, folder: str, election: Election, voters: Sequence[int]
) -> None:
    """Durable when it returns."""
    listed = ",".join(f'{{"voterId":{voter}}}' for voter in voters)
    state = (
        f'{{"clusterId":"","leaderId":{election.leader_id},"leaderEpoch":{election.epoch},'
        f'"votedId":{election.voted_id},"appliedOffset":0,"currentVoters":[{listed}],'
        '"data_version":0}'
    )
    files.write_atomic(f"{folder}/{QUORUM_STATE}", state.encode())


def _number(text: str, key: str) -> int | None:
    """The number behind a key; the `json` module would cost every start its import."""
    _, _, rest = text.partition(f'"{key}":')
    rest = rest.lstrip()
    sign = -1 if rest.startswith("-") else 1
    digits = rest.removeprefix("-")
    end = next((i for i, character in enumerate(digits) if not character.isdigit()), 0)
    return sign * int(digits[:end]) if end else None
