"""A controller's own entry among the voters that the log names (KIP-853).

From time to time a follower compares it with itself: other addresses are reported to the leader
(UpdateRaftVoter). With `controller.quorum.auto.join.enable` (KIP-1186) a controller that is no
voter asks to be added; an entry of its id with another directory, which it has lost, is removed
first. Kafka: KafkaRaftClient.pollFollowerAsVoter and pollFollowerAsObserver.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.cluster.quorum.core import Role
from tidelog.network.peers import PeerError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.raft_voters import (
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
)

if TYPE_CHECKING:
    from tidelog.cluster.metadata.voters import Voter
    from tidelog.cluster.quorum.driver import Quorum
    from tidelog_protocol.schema import Message

__all__ = ["keep_entry"]

log = logging.getLogger("tidelog.cluster.quorum")


async def keep_entry(quorum: Quorum, period_s: float, *, joins: bool) -> None:
    """Run until this node leaves the quorum; `joins`: it asks to be added."""
    while not quorum.is_out:
        await asyncio.sleep(period_s)
        channel = quorum.channels.get(quorum.core.leader_id)
        request = _request(quorum, joins=joins)
        if request is None or channel is None or quorum.is_out:
            continue
        try:
            response = await channel.ask(request, timeout_s=quorum.request_timeout_s)
        except PeerError as error:
            log.debug("no answer to %s: %s", type(request).__name__, error)
            continue
        log.info(
            "the leader answers %s: %s",
            type(request).__name__,
            ErrorCode(response.error_code).name,
        )


def _request(quorum: Quorum, *, joins: bool) -> Message | None:
    """Return what this node asks of the leader now, if anything."""
    own, known = quorum.metadata.own, quorum.metadata.voter(quorum.node_id)
    if own is None or quorum.core.role is not Role.FOLLOWER or not own.endpoints:
        return None
    if known is not None and known.directory_id == own.directory_id:
        return None if known == own else _report(quorum, own)
    if not joins or not quorum.metadata.voter_set:
        return None
    if known is not None:
        return RemoveRaftVoterRequest(
            cluster_id=quorum.cluster_id,
            voter_id=known.node_id,
            voter_directory_id=known.directory_id,
        )
    return AddRaftVoterRequest(
        cluster_id=quorum.cluster_id,
        timeout_ms=int(quorum.request_timeout_s * 1000),
        voter_id=own.node_id,
        voter_directory_id=own.directory_id,
        listeners=[
            AddRaftVoterRequest.Listener(name=name, host=host, port=port)
            for name, host, port in own.endpoints
        ],
        ack_when_committed=False,  # this node's copy is needed to commit it
    )


def _report(quorum: Quorum, own: Voter) -> UpdateRaftVoterRequest:
    return UpdateRaftVoterRequest(
        cluster_id=quorum.cluster_id,
        current_leader_epoch=quorum.core.epoch,
        voter_id=own.node_id,
        voter_directory_id=own.directory_id,
        listeners=[
            UpdateRaftVoterRequest.Listener(name=name, host=host, port=port)
            for name, host, port in own.endpoints
        ],
        kraft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
            min_supported_version=own.levels[0], max_supported_version=own.levels[1]
        ),
    )
