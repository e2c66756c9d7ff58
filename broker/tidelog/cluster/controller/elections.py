"""Pure decisions about elections that no broker's failure causes: ElectLeaders, and the periodic
elections of preferred and of unclean leaders (KIP-183, 460).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.changes import Election
from tidelog.cluster.controller.decisions import RefusedError
from tidelog.cluster.controller.partitions import Changes
from tidelog.cluster.metadata.image import NO_LEADER
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster_admin import ElectLeadersResponse

if TYPE_CHECKING:
    from tidelog.cluster.controller.changes import PartitionDraft
    from tidelog.cluster.metadata.image import ClusterImage, PartitionImage, TopicImage
    from tidelog.config.broker import BrokerConfig
    from tidelog_protocol.messages.cluster_admin import ElectLeadersRequest
    from tidelog_protocol.schema import Message

PREFERRED, UNCLEAN = 0, 1  # election types of the request

_TEXTS = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}


def elect_leaders(
    image: ClusterImage, config: BrokerConfig, request: ElectLeadersRequest
) -> tuple[list[Message], ElectLeadersResponse]:
    """Decide an ElectLeaders; RefusedError for an unknown type, unless no partition is named.

    If the request is for all partitions, the response omits those that need no election.
    """
    if request.topic_partitions != [] and request.election_type not in (PREFERRED, UNCLEAN):
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        )
    changes = Changes(image, config)
    names_all = request.topic_partitions is None
    asked = (
        [(name, range(len(image.topics[name].partitions))) for name in sorted(image.topics)]
        if request.topic_partitions is None
        else [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    )
    results = []
    for name, indexes in asked:
        answers = []
        for index in indexes:
            try:
                _elect(changes, name, index, request.election_type)
            except RefusedError as refusal:
                if names_all and refusal.code is ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                code, message = refusal.code, refusal.message
            else:
                code, message = ErrorCode.NONE, None
            answers.append(
                ElectLeadersResponse.ReplicaElectionResult.PartitionResult(
                    partition_id=index, error_code=code, error_message=message
                )
            )
        results.append(
            ElectLeadersResponse.ReplicaElectionResult(topic=name, partition_result=answers)
        )
    return changes.records, ElectLeadersResponse(replica_election_results=results)


def elect_behind(
    image: ClusterImage, config: BrokerConfig, of: tuple[str, int], node_id: int
) -> list[Message]:
    """Decide an unclean election of a replica as if it were the only one that runs."""
    changes = Changes(image, config, heard=(node_id,))
    topic, partition = _find(changes, *of)
    if partition.leader == node_id:
        return []
    if node_id not in partition.replicas or not changes.may_lead(partition, node_id):
        raise _refused(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)

    def leave(draft: PartitionDraft) -> None:
        draft.isr = []

    changes.change(topic, partition, leave, election=Election.UNCLEAN)
    return changes.records


def _find(changes: Changes, name: str, index: int) -> tuple[TopicImage, PartitionImage]:
    topic = changes.image.topics.get(name)
    if topic is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = changes.partition(topic, index)
    if partition is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
        )
    return topic, partition


def _elect(changes: Changes, name: str, index: int, election_type: int) -> None:
    topic, partition = _find(changes, name, index)
    is_preferred = election_type == PREFERRED
    settled = (
        partition.leader == partition.replicas[0] if is_preferred else partition.leader != NO_LEADER
    )
    if settled:
        raise _refused(ErrorCode.ELECTION_NOT_NEEDED)
    election = Election.PREFERRED if is_preferred else Election.UNCLEAN
    if changes.change(topic, partition, election=election) is None:
        raise _refused(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if is_preferred
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )


def _refused(code: ErrorCode) -> RefusedError:
    return RefusedError(code, _TEXTS[code])


def prefer_leaders(image: ClusterImage, config: BrokerConfig) -> list[Message]:
    """Move leadership to first replicas that are in sync: one step."""
    changes = Changes(image, config, in_steps=True)
    for topic, partition in changes.partitions():
        if partition.leader != partition.replicas[0]:
            changes.change(topic, partition, election=Election.PREFERRED)
    return changes.records


def elect_unclean(image: ClusterImage, config: BrokerConfig) -> list[Message]:
    """Elect a living replica for leaderless partitions of topics that allow it: one step."""
    changes = Changes(image, config, in_steps=True)
    for topic, partition in changes.partitions():
        if partition.leader == NO_LEADER and changes.unclean_allowed(topic.name):
            changes.change(topic, partition, election=Election.UNCLEAN)
    return changes.records
