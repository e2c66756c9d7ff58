"""AddRaftVoter (80), RemoveRaftVoter (81) and UpdateRaftVoter (82): the voters of the metadata
quorum (KIP-853).

Behaviour. Only the leader of the quorum answers; another node answers NOT_LEADER_OR_FOLLOWER.
Checks of the request's fields come first, in Kafka's order; `VoterChanges` decides the rest. Static
voters (`kraft.version` 0) cannot be added to or removed (UNSUPPORTED_VERSION), and what one reports
is only checked: Kafka keeps it for an upgrade of `kraft.version`, here the leader asks then.
Clients may add and remove voters at any broker; UpdateRaftVoter is for controllers alone.

Version notes. AddRaftVoter 1 (KIP-1186): whether the answer waits until the change is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.metadata.voters import NO_DIRECTORY, Voter
from tidelog.cluster.quorum.core import Role
from tidelog.cluster.quorum.voter_changes import Outcome
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.raft_voters import (
    AddRaftVoterResponse,
    RemoveRaftVoterResponse,
    UpdateRaftVoterResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.api.describe_quorum import Voter as Endpoint
    from tidelog.cluster.quorum.driver import Quorum
    from tidelog.cluster.quorum.voter_changes import VoterChanges
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.raft_voters import (
        AddRaftVoterRequest,
        RemoveRaftVoterRequest,
        UpdateRaftVoterRequest,
    )

__all__ = ["RaftVotersApi"]


class RaftVotersApi:
    """Handlers of the requests that change voters."""

    def __init__(
        self,
        quorum: Quorum,
        changes: VoterChanges,
        endpoints: Callable[[], Sequence[Endpoint]],
    ) -> None:
        """`endpoints` returns the voters' addresses on the controllers' listener."""
        self._quorum = quorum
        self._changes = changes
        self._endpoints = endpoints
        self._listener = changes.listener

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers of clients' requests by API key."""
        return {ApiKey.ADD_RAFT_VOTER: self.add, ApiKey.REMOVE_RAFT_VOTER: self.remove}

    def of_voters(self) -> dict[ApiKey, Handler]:
        """Return the handlers of other voters' requests by API key."""
        return {ApiKey.UPDATE_RAFT_VOTER: self.update}

    async def add(
        self, context: RequestContext, request: AddRaftVoterRequest
    ) -> AddRaftVoterResponse:
        """Answer an AddRaftVoter request."""
        del context
        outcome = self._refusal(request, "Add") or self._no_listener(request)
        if outcome is None:
            voter = Voter(request.voter_id, request.voter_directory_id, _endpoints_in(request))
            outcome = await self._changes.add(voter, waits=request.ack_when_committed)
        return AddRaftVoterResponse(error_code=outcome.error, error_message=outcome.message)

    async def remove(
        self, context: RequestContext, request: RemoveRaftVoterRequest
    ) -> RemoveRaftVoterResponse:
        """Answer a RemoveRaftVoter request."""
        del context
        outcome = self._refusal(request, "Remove")
        if outcome is None:
            outcome = await self._changes.remove(request.voter_id, request.voter_directory_id)
        return RemoveRaftVoterResponse(error_code=outcome.error, error_message=outcome.message)

    def update(
        self, context: RequestContext, request: UpdateRaftVoterRequest
    ) -> UpdateRaftVoterResponse:
        """Answer an UpdateRaftVoter request."""
        del context
        error = self._update_error(request)
        core, leader_id = self._quorum.core, self._quorum.metadata.leader_id
        addresses = {each.node_id: (each.host, each.port) for each in self._endpoints()}
        host, port = addresses.get(leader_id, ("", 0))
        leader = UpdateRaftVoterResponse.CurrentLeader(
            leader_id=leader_id, leader_epoch=core.epoch, host=host, port=port
        )
        return UpdateRaftVoterResponse(error_code=error, current_leader=leader)

    def _update_error(self, request: UpdateRaftVoterRequest) -> ErrorCode:
        epoch, asked = self._quorum.core.epoch, request.current_leader_epoch
        if self._is_of_another_cluster(request.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if asked != epoch:
            is_old = asked < epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        if not self._leads:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        known = request.kraft_version_feature
        levels = (known.min_supported_version, known.max_supported_version)
        names_no_voter = request.voter_id < 0 or request.voter_directory_id == NO_DIRECTORY
        if (
            names_no_voter
            or self._listener not in _names(request)
            or not 0 <= levels[0] <= levels[1]
        ):
            return ErrorCode.INVALID_REQUEST
        directory_id = request.voter_directory_id
        voter = Voter(request.voter_id, directory_id, _endpoints_in(request), levels)
        return self._changes.update(voter)

    # ---- checks -------------------------------------------------------------------------------

    def _refusal(
        self, request: AddRaftVoterRequest | RemoveRaftVoterRequest, verb: str
    ) -> Outcome | None:
        """Return why the fields that adding and removing share are refused, if they are."""
        if self._is_of_another_cluster(request.cluster_id):
            return Outcome(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f'The given id "{request.cluster_id}" doesn\'t match the cluster id'
                f' "{self._quorum.cluster_id}"',
            )
        if not self._leads:
            return Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if request.voter_id < 0 or request.voter_directory_id == NO_DIRECTORY:
            message = f"{verb} voter request didn't include a valid voter"
            return Outcome(ErrorCode.INVALID_REQUEST, message)
        return None

    def _no_listener(self, request: AddRaftVoterRequest) -> Outcome | None:
        if self._listener in _names(request):
            return None
        # Java's texts of its maps and addresses, which clients show.
        listed = ", ".join(
            f"ListenerName({one.name.upper()})={one.host}/<unresolved>:{one.port}"
            for one in request.listeners
        )
        return Outcome(
            ErrorCode.INVALID_REQUEST,
            f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{listed}}}))"
            f" for the default listener ListenerName({self._listener})",
        )

    @property
    def _leads(self) -> bool:
        return self._quorum.core.role is Role.LEADER and not self._quorum.is_out

    def _is_of_another_cluster(self, cluster_id: str | None) -> bool:
        return cluster_id is not None and cluster_id != self._quorum.cluster_id


def _names(request: AddRaftVoterRequest | UpdateRaftVoterRequest) -> list[str]:
    return [listener.name.upper() for listener in request.listeners]


def _endpoints_in(
    request: AddRaftVoterRequest | UpdateRaftVoterRequest,
) -> tuple[tuple[str, str, int], ...]:
    return tuple((each.name.upper(), each.host, each.port) for each in request.listeners)
