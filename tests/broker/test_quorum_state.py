"""`quorum-state` is read strictly: a damaged file is no empty one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidelog.cluster.metadata.quorum_state import (
    Election,
    QuorumStateError,
    is_of_named_voters,
    read_quorum_state,
    write_quorum_state,
)
from tidelog.simulation.disk import SimDisk

if TYPE_CHECKING:
    from tidelog.simulation.disk import SimFiles

WRITTEN = Election(7, -1, 2)


@pytest.fixture
def files() -> SimFiles:
    files = SimDisk(0).files()
    files.make_dirs("q")
    return files


def content(files: SimFiles) -> bytes:
    write_quorum_state(files, "q", WRITTEN, (1, 2, 3))
    return files.read_bytes("q/quorum-state")


def test_what_was_written_is_read(files: SimFiles) -> None:
    assert read_quorum_state(files, "q") is None
    content(files)
    assert read_quorum_state(files, "q") == WRITTEN


def test_kafkas_version_1_is_read(files: SimFiles) -> None:
    state = (
        b'{"leaderId":-1,"leaderEpoch":7,"votedId":2,'
        b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}\n'
    )
    files.write_atomic("q/quorum-state", state)
    assert read_quorum_state(files, "q") == WRITTEN


def test_version_1_has_the_directory_of_the_vote(files: SimFiles) -> None:
    assert is_of_named_voters(files, "q") is None
    voted = WRITTEN._replace(voted_directory=bytes(range(16)))
    write_quorum_state(files, "q", voted, None)
    assert read_quorum_state(files, "q") == voted
    assert is_of_named_voters(files, "q") is True
    content(files)
    assert is_of_named_voters(files, "q") is False


def test_no_flipped_bit_reads_as_never_voted(files: SimFiles) -> None:
    """The file has no checksum: some flips of a digit give another number, none gives nothing."""
    good = content(files)
    for position in range(len(good)):
        for bit in range(8):
            bad = bytearray(good)
            bad[position] ^= 1 << bit
            files.write_atomic("q/quorum-state", bytes(bad))
            try:
                election = read_quorum_state(files, "q")
            except QuorumStateError:
                continue
            assert election is not None
            assert chr(bad[position]).isdigit() or chr(good[position]) == "-", bytes(bad)


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"{}",
        b'{"leaderEpoch":7}',
        b'{"clusterId":"","leaderId":-1,"leaderEpoch":7,"votedId":2,"appliedOffset":0,'
        b'"currentVoters":[],"data_version":2}',
        b'{"leaderId":-1,"leaderEpoch":7,"votedId":2,"data_version":1}',
        b'{"clusterId":"","leaderId":-1,"leaderEpoch":7,"votedId":2,"appliedOffset":0,'
        b'"currentVoters":[],"other":1,"data_version":0}',
        b'{"clusterId":"","leaderId":-1,"leaderEpoch":-1,"votedId":2,"appliedOffset":0,'
        b'"currentVoters":[],"data_version":0}',
        b'{"clusterId":"","leaderId":-1,"leaderEpoch":2147483648,"votedId":2,"appliedOffset":0,'
        b'"currentVoters":[],"data_version":0}',
        b'{"clusterId":"","leaderId":9999999999,"leaderEpoch":7,"votedId":2,"appliedOffset":0,'
        b'"currentVoters":[],"data_version":0}',
        b'{"clusterId":"","leaderId":"1","leaderEpoch":7,"votedId":2,"appliedOffset":0,'
        b'"currentVoters":[],"data_version":0}',
        b"\xff",
    ],
)
def test_a_damaged_file_is_refused(files: SimFiles, state: bytes) -> None:
    files.write_atomic("q/quorum-state", state)
    with pytest.raises(QuorumStateError, match=r"quorum-state is damaged.* format them again"):
        read_quorum_state(files, "q")
