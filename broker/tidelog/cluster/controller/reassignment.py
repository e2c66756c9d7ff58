"""Pure decisions about moving replicas: AlterPartitionReassignments and its list (KIP-455, 860).

A reassignment has three steps, each a committed change: (1) New replicas are added, and replicas to
be removed are marked; the partition has both. (2) The leader adds the new ones to the ISR as they
catch up. (3) The change that adds the last of them also removes the marked ones (`changes.py`), and
elects another leader if the leader is removed. If the ISR has all target replicas already, all
steps are one change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.changes import RECOVERING
from tidelog.cluster.controller.decisions import RefusedError
from tidelog.cluster.controller.partitions import Changes
from tidelog.cluster.controller.placement import assignment_problem
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.cluster.controller.changes import PartitionDraft
    from tidelog.cluster.metadata.image import ClusterImage, PartitionImage, TopicImage
    from tidelog.config.broker import BrokerConfig
    from tidelog_protocol.messages.cluster_admin import (
        AlterPartitionReassignmentsRequest,
        ListPartitionReassignmentsRequest,
    )
    from tidelog_protocol.schema import Message

    Topic = ListPartitionReassignmentsResponse.OngoingTopicReassignment


def alter_reassignments(
    image: ClusterImage, config: BrokerConfig, request: AlterPartitionReassignmentsRequest
) -> tuple[list[Message], AlterPartitionReassignmentsResponse]:
    """Decide an AlterPartitionReassignments; each partition has its own result, in order."""
    changes = Changes(image, config)
    responses = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            try:
                _alter(
                    changes,
                    topic.name,
                    asked.partition_index,
                    asked.replicas,
                    may_resize=request.allow_replication_factor_change,
                )
            except RefusedError as refusal:
                code, message = refusal.code, refusal.message
            else:
                code, message = ErrorCode.NONE, None
            answers.append(
                AlterPartitionReassignmentsResponse.ReassignableTopicResponse.ReassignablePartitionResponse(
                    partition_index=asked.partition_index, error_code=code, error_message=message
                )
            )
        responses.append(
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
                name=topic.name, partitions=answers
            )
        )
    return changes.records, AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None if request.topics else "",
        responses=responses,
    )


def _alter(
    changes: Changes, name: str, index: int, target: Sequence[int] | None, *, may_resize: bool
) -> None:
    topic = changes.image.topics.get(name)
    if topic is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
        )
    partition = changes.partition(topic, index)
    if partition is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}."
        )
    if target is None:
        _cancel(changes, topic, partition)
    else:
        _begin(changes, topic, partition, target, may_resize=may_resize)


def is_moving(partition: PartitionImage) -> bool:
    """Return whether a reassignment is in progress."""
    return bool(partition.adding_replicas or partition.removing_replicas)


def _begin(
    changes: Changes,
    topic: TopicImage,
    partition: PartitionImage,
    target: Sequence[int],
    *,
    may_resize: bool,
) -> None:
    problem = assignment_problem(changes.image, target)
    if problem is not None:
        raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    heading_for = set(partition.replicas) - set(partition.removing_replicas)
    if not may_resize and len(heading_for) != len(target):
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(heading_for)} to {len(target)}",
        )

    def move(draft: PartitionDraft) -> None:
        # A replica that an earlier reassignment added, and this one keeps, is still a new one.
        still_coming = partition.adding_replicas
        draft.removing = sorted(set(partition.replicas) - set(target))
        draft.adding = sorted(
            replica
            for replica in target
            if replica in still_coming or replica not in partition.replicas
        )
        draft.replicas = [*target, *draft.removing]

    changes.change(topic, partition, move)


def _cancel(changes: Changes, topic: TopicImage, partition: PartitionImage) -> None:
    """Revert a reassignment: remove the added replicas and keep the marked ones."""
    if not is_moving(partition):
        raise RefusedError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    added = partition.adding_replicas
    replicas = [replica for replica in partition.replicas if replica not in added]
    isr = [replica for replica in partition.isr if replica not in added]
    if not isr and not changes.unclean_allowed(topic.name):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic.name}:{partition.partition} "
            "because it would require an unclean leader election.",
        )

    def revert(draft: PartitionDraft) -> None:
        if isr:
            draft.isr = isr
        else:  # all in-sync replicas are removed: the first of the others may lack records
            draft.isr = replicas[:1]
            draft.recovery_state = RECOVERING
        draft.replicas = replicas
        draft.adding = []
        draft.removing = []

    changes.change(topic, partition, revert)


def list_reassignments(
    image: ClusterImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return the reassignments in progress, of all topics or of the named ones."""
    asked: Iterable[tuple[str, Iterable[int] | None]] = (
        [(name, None) for name in sorted(image.topics)]
        if request.topics is None
        else [(topic.name, topic.partition_indexes) for topic in request.topics]
    )
    topics = []
    for name, indexes in asked:
        topic = image.topics.get(name)
        if topic is not None and (moving := _moving(topic, indexes)):
            topics.append(
                ListPartitionReassignmentsResponse.OngoingTopicReassignment(
                    name=name, partitions=moving
                )
            )
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


def _moving(
    topic: TopicImage, indexes: Iterable[int] | None
) -> list[Topic.OngoingPartitionReassignment]:
    count = len(topic.partitions)
    found = [
        topic.partitions[index]
        for index in (range(count) if indexes is None else indexes)
        if 0 <= index < count
    ]
    return [
        ListPartitionReassignmentsResponse.OngoingTopicReassignment.OngoingPartitionReassignment(
            partition_index=partition.partition,
            replicas=list(partition.replicas),
            adding_replicas=list(partition.adding_replicas),
            removing_replicas=list(partition.removing_replicas),
        )
        for partition in found
        if is_moving(partition)
    ]
