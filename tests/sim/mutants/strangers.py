"""Planted bugs: processes and clients that are believed what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cluster.controller import brokers as controller_brokers
from tidelog.cluster.controller.partitions import Changes
from tidelog.cluster.controller.sessions import Sessions
from tidelog.cluster.lifecycle import BrokerLifecycle
from tidelog.cluster.metadata import log as metadata_log
from tidelog.cluster.metadata.log import MetadataLog
from tidelog.cluster.metadata.quorum_state import QuorumStateError, read_quorum_state
from tidelog.cluster.quorum.core import QuorumCore
from tidelog.replication.partition import Partition
from tidelog_protocol import fitting
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.metadata_records import UnregisterBrokerRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    Patch = Callable[..., None]


def known_directory_overrides_a_session(patch: Patch) -> None:
    """Whoever has a broker's directory id is its next life, and not a process on a copy."""
    original = controller_brokers.register_broker

    def register_broker(image: Any, config: Any, request: Any, **rest: Any) -> Any:
        old = image.brokers.get(request.broker_id)
        known = old is not None and set(old.log_dirs) & set(request.log_dirs)
        rest["is_taken"] = rest["is_taken"] and not known
        return original(image, config, request, **rest)

    patch(controller_brokers, "register_broker", register_broker)


def no_sessions_after_an_election(patch: Patch) -> None:
    """A new controller lets anybody register whose predecessor it has not heard itself."""
    original = Sessions.is_taken

    def is_taken(self: Sessions, image: Any, node_id: int, now: float) -> bool:
        return node_id in self.heard() and original(self, image, node_id, now)

    patch(Sessions, "is_taken", is_taken)


def follow_the_image_of_another_life(patch: Patch) -> None:
    """A broker acts on what the image says of another process with its id."""

    def start_publishing(self: MetadataLog, _broker_epoch: int = -1) -> None:
        original(self)

    original = MetadataLog.start_publishing
    patch(MetadataLog, "start_publishing", start_publishing)


def believe_a_claimed_replica_epoch(patch: Patch) -> None:
    """The highest epoch that a Fetch has named is the follower's."""

    def record_fetch(self: Partition, request: Any, params: Any) -> bool:
        replica = self.remotes[params.replica_id]
        if 0 <= params.replica_epoch < replica.broker_epoch:
            return False
        replica.record_fetch(
            request.fetch_offset,
            request.fetcher_log_start_offset,
            leader_end=self.log.log_end_offset,
            now_ms=self._rules.now_ms(),
            broker_epoch=params.replica_epoch,
        )
        return True

    patch(Partition, "record_fetch", record_fetch)


def believe_any_quorum_epoch(patch: Patch) -> None:
    """A request may push the epoch as far as int32 goes."""

    def refusal(self: QuorumCore, sender: int, epoch: int) -> ErrorCode:
        if sender not in self.others:
            return ErrorCode.INCONSISTENT_VOTER_SET
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.epoch else ErrorCode.NONE

    patch(QuorumCore, "_refusal", refusal)


def rotten_vote_is_no_vote(patch: Patch) -> None:
    """A damaged quorum-state reads as one of a voter that has never voted."""

    def read(files: Any, folder: str) -> Any:
        try:
            return read_quorum_state(files, folder) or metadata_log.Election()
        except QuorumStateError:
            return metadata_log.Election()

    patch(metadata_log, "read_quorum_state", read)


def an_unregistered_broker_goes_on(patch: Patch) -> None:
    """A broker that the cluster knows no more sends its heartbeats as before."""
    follow_the_image_of_another_life(patch)
    patch(BrokerLifecycle, "_end_here", lambda _self: None)


def unregister_the_only_broker(patch: Patch) -> None:
    """An administrator may unregister any broker."""

    def unregister_broker(image: Any, config: Any, node_id: int) -> Any:
        changes = Changes(image, config, leaving=node_id)
        changes.without(node_id)
        epoch = image.brokers[node_id].epoch
        return [*changes.records, UnregisterBrokerRecord(broker_id=node_id, broker_epoch=epoch)]

    patch(controller_brokers, "unregister_broker", unregister_broker)


def answers_are_as_long_as_they_are(patch: Patch) -> None:
    """An answer that its fields cannot hold is not cut: nothing is sent."""
    patch(fitting, "fit", lambda _message: True)


MUTANTS = {
    "known-directory-overrides-a-session": known_directory_overrides_a_session,
    "no-sessions-after-an-election": no_sessions_after_an_election,
    "follow-the-image-of-another-life": follow_the_image_of_another_life,
    "believe-a-claimed-replica-epoch": believe_a_claimed_replica_epoch,
    "believe-any-quorum-epoch": believe_any_quorum_epoch,
    "rotten-vote-is-no-vote": rotten_vote_is_no_vote,
}
CARELESS = {
    "an-unregistered-broker-goes-on": an_unregistered_broker_goes_on,
    "answers-are-as-long-as-they-are": answers_are_as_long_as_they_are,
    "unregister-the-only-broker": unregister_the_only_broker,
}
