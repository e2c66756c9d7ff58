"""Changes of the voters by the leader of a quorum whose log names them, or shall (KIP-853).

One at a time: a change is refused while another one is decided or not committed, so that the
majorities of two sets that follow each other have a voter in common. Checks, their order and texts
are those of Kafka's AddVoterHandler, RemoveVoterHandler and UpdateVoterHandler.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cluster.metadata.features import DYNAMIC_LEVEL, KRAFT_FEATURE
from tidelog.cluster.metadata.log import NotControllerError
from tidelog.cluster.metadata.voters import NO_DIRECTORY, Voter, key_text, without
from tidelog.cluster.quorum.core import Role
from tidelog.network.peers import PeerError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster import ApiVersionsRequest
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from tidelog.cluster.metadata.voters import Voters
    from tidelog.cluster.quorum.driver import Quorum
    from tidelog.network.peers import PeerChannel

__all__ = ["DONE", "Outcome", "VoterChanges"]

CAUGHT_UP_S_MAX = 3600.0  # since a replica had all records; as in Kafka's LeaderState


class Outcome(NamedTuple):
    """The answer to a change."""

    error: ErrorCode
    message: str = ""


DONE = Outcome(ErrorCode.NONE)


class VoterChanges:
    """Decides changes while this node leads."""

    def __init__(
        self, quorum: Quorum, listener: str, new_channel: Callable[[str, int], PeerChannel]
    ) -> None:
        """`listener` is the name of the controllers' listener; `new_channel` connects to one."""
        self._quorum = quorum
        self.listener = listener
        self._new_channel = new_channel
        self._is_pending = False

    # ---- changes ------------------------------------------------------------------------------

    async def add(self, voter: Voter, *, waits: bool) -> Outcome:
        """Add a voter that has caught up; return when that is committed, or at once if it does not
        wait. As in Kafka, the request's own timeout does not count."""
        refusal = self._refusal("adding")
        if refusal is not None:
            return refusal
        key = key_text(voter.node_id, voter.directory_id)
        voters = self._quorum.metadata.voter_set
        if self._quorum.metadata.voter(voter.node_id) is not None:
            return Outcome(
                ErrorCode.DUPLICATE_VOTER,
                f"The voter id for {key} is already part of the set of voters {_keys(voters)}.",
            )
        return await self._decided(self._add(voter, waits=waits))

    async def remove(self, node_id: int, directory_id: bytes) -> Outcome:
        """Remove a voter; return when that is committed. A leader that removes itself resigns."""
        refusal = self._refusal("removing")
        if refusal is not None:
            return refusal
        voters = self._quorum.metadata.voter_set
        known = self._quorum.metadata.voter(node_id)
        if known is None or known.directory_id != directory_id or len(voters) == 1:
            key = key_text(node_id, directory_id)
            return Outcome(
                ErrorCode.VOTER_NOT_FOUND,
                f"Cannot remove voter {key} from the set of voters {_keys(voters)}",
            )
        removal = self._append(without(voters, node_id), waits=True)
        return await self._decided(removal)

    def update(self, voter: Voter) -> ErrorCode:
        """Note the addresses and levels that a voter reports; they need not be committed yet."""
        metadata = self._quorum.metadata
        refusal = self._refusal("updating")
        if refusal is not None and metadata.voter_set:
            return refusal.error
        level = DYNAMIC_LEVEL if metadata.voter_set else 0
        if not voter.levels[0] <= level <= voter.levels[1]:
            return ErrorCode.INVALID_REQUEST
        if not metadata.voter_set:
            is_voter = voter.node_id in metadata.voters
            return ErrorCode.NONE if is_voter else ErrorCode.VOTER_NOT_FOUND
        known = metadata.voter(voter.node_id)
        if known is None or known.directory_id != voter.directory_id:
            return ErrorCode.VOTER_NOT_FOUND
        return ErrorCode.NONE if known == voter else self._replace(voter)

    def _replace(self, voter: Voter) -> ErrorCode:
        metadata = self._quorum.metadata
        voters = without(metadata.voter_set, voter.node_id)
        try:
            metadata.append_voters(tuple(sorted((*voters, voter))))
        except StorageError as error:
            return error.code
        return ErrorCode.NONE

    async def name_static(
        self, addresses: Mapping[int, tuple[str, int]], *, validate_only: bool
    ) -> str | None:
        """Let the log name the voters of the settings: `kraft.version` 1. Return why it cannot be.

        `addresses` are those of the settings. Kafka's followers report directory and levels to each
        new leader; here the leader knows the directory from fetches, and asks for the levels now.
        Kafka: LeaderState.maybeAppendUpgradedKRaftVersion. NotControllerError, StorageError.
        """
        metadata, epoch = self._quorum.metadata, self._quorum.core.epoch
        if metadata.names_voters:
            return None
        what = f"{KRAFT_FEATURE} to KRAFT_VERSION_{DYNAMIC_LEVEL}"
        if self._is_pending:
            return f"Unable to upgrade version for {what} due to changing voters"
        self._is_pending = True
        try:
            async with asyncio.timeout(self._quorum.request_timeout_s):
                voters = await self._static_voters(addresses)
        except TimeoutError:
            voters = None
        finally:
            self._is_pending = False
        if voters is None:
            return f"Invalid upgrade of {what} because not all of the voters support it"
        if not metadata.is_leader or self._quorum.core.epoch != epoch:
            raise NotControllerError
        if not validate_only:
            metadata.append_voters(voters)
        return None

    async def _static_voters(self, addresses: Mapping[int, tuple[str, int]]) -> Voters | None:
        """Return the voters of the settings, None unless all answer and support the upgrade."""
        core, own = self._quorum.core, self._quorum.metadata.own_entry
        assert own is not None, "a node that is alone has no changes of voters"
        voters = [own]
        for node_id in core.others:
            directory_id = core.progress[node_id].directory_id
            voters.append(Voter(node_id, directory_id, ((self.listener, *addresses[node_id]),)))
        found = await asyncio.gather(*map(self._levels, voters[1:]))
        knows_all = all(voter.directory_id != NO_DIRECTORY for voter in voters)
        if not knows_all or any(levels is None or levels[1] < DYNAMIC_LEVEL for levels in found):
            return None
        return tuple(sorted(voters))

    # ---- steps --------------------------------------------------------------------------------

    def _refusal(self, verb: str) -> Outcome | None:
        """Return why no change can be decided now."""
        metadata = self._quorum.metadata
        if self._is_pending:
            return _later("leader to handle previous voter change request")
        if not metadata.is_leader:
            return _later("leader to establish HWM and fence previous voter changes")
        if not metadata.voter_set:
            return Outcome(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Cluster doesn't support {verb} voter because the {KRAFT_FEATURE} feature is 0",
            )
        if metadata.has_uncommitted_voters:
            return _later("voters to commit the latest voter change")
        return None

    async def _decided(self, change: Coroutine[Any, Any, Outcome]) -> Outcome:
        self._is_pending = True
        try:
            async with asyncio.timeout(self._quorum.request_timeout_s):
                return await change
        except TimeoutError:
            return Outcome(ErrorCode.REQUEST_TIMED_OUT, "The request timed out.")
        except NotControllerError:
            return Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        except StorageError as error:
            return Outcome(error.code, str(error))
        finally:
            self._is_pending = False

    async def _add(self, voter: Voter, *, waits: bool) -> Outcome:
        core, metadata = self._quorum.core, self._quorum.metadata
        epoch = core.epoch
        levels = await self._levels(voter)
        if core.role is not Role.LEADER or core.epoch != epoch:
            return Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        key = key_text(voter.node_id, voter.directory_id)
        if levels is None:
            return Outcome(
                ErrorCode.REQUEST_TIMED_OUT, f"New voter {key} is not ready to receive requests"
            )
        if not levels[0] <= DYNAMIC_LEVEL <= levels[1]:
            return Outcome(
                ErrorCode.INVALID_REQUEST,
                f"Aborted add voter operation for {key} since the {KRAFT_FEATURE} range"
                f" (min: {levels[0]}, max: {levels[1]}) doesn't support the finalized version"
                f" {DYNAMIC_LEVEL}",
            )
        if not self._has_caught_up(voter):
            return Outcome(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Aborted add voter operation for {key} since it is lagging behind",
            )
        new = voter._replace(levels=levels)
        return await self._append(tuple(sorted((*metadata.voter_set, new))), waits=waits)

    async def _levels(self, voter: Voter) -> tuple[int, int] | None:
        """Ask a new voter which levels of `kraft.version` it can work with; None if it does not
        answer."""
        address = voter.address(self.listener)
        assert address is not None, "the request was checked"
        channel = self._new_channel(*address)
        request = ApiVersionsRequest(
            client_software_name="tidelog", client_software_version="0", node_id=voter.node_id
        )
        try:
            response = await channel.ask(request)
        except PeerError:
            return None
        finally:
            channel.close()
        if response.error_code:
            return None
        ranges = {each.name: each for each in response.supported_features}
        known = ranges.get(KRAFT_FEATURE)
        return (0, 0) if known is None else (known.min_version, known.max_version)

    def _has_caught_up(self, voter: Voter) -> bool:
        """Return whether a replica has had all records lately, so that it delays no commit."""
        progress = self._quorum.core.progress.get(voter.node_id)
        if progress is None or progress.directory_id != voter.directory_id:
            return False
        return self._quorum.clock.monotonic() - progress.caught_up_at <= CAUGHT_UP_S_MAX

    async def _append(self, voters: Voters, *, waits: bool) -> Outcome:
        metadata = self._quorum.metadata
        metadata.append_voters(voters)
        if waits:
            await metadata.commit()
        return DONE


def _later(what: str) -> Outcome:
    return Outcome(ErrorCode.REQUEST_TIMED_OUT, f"Request timed out waiting for {what}")


def _keys(voters: Voters) -> str:
    return f"[{', '.join(key_text(each.node_id, each.directory_id) for each in voters)}]"
