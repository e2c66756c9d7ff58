"""Reassignments: begun, finished by the ISR, changed, cancelled, listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.controller_cluster import (
    CONFIG,
    apply,
    broker,
    directory,
    image_of,
    isr_change,
    partition,
    state,
)
from tidelog.cluster.controller.partitions import alter_partition
from tidelog.cluster.controller.reassignment import alter_reassignments, list_reassignments
from tidelog_protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
)

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import ClusterImage

Asked = AlterPartitionReassignmentsRequest.ReassignableTopic
FIVE = tuple(broker(node_id) for node_id in range(1, 6))


def reassign(
    image: ClusterImage, *targets: list[int] | None, name: str = "t", resize: bool = True
) -> tuple[list[tuple[int, str | None]], ClusterImage]:
    """Move partitions 0, 1, … to these replicas: (code, text) of each, and the image after."""
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=resize,
        topics=[
            Asked(
                name=name,
                partitions=[
                    Asked.ReassignablePartition(partition_index=index, replicas=target)
                    for index, target in enumerate(targets)
                ],
            )
        ],
    )
    records, response = alter_reassignments(image, CONFIG, request)
    assert response.error_code == 0
    assert response.allow_replication_factor_change is resize
    answers = response.responses[0].partitions
    return [(each.error_code, each.error_message) for each in answers], apply(image, records)


def replicas(image: ClusterImage) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Replicas, those that come and those that go, of partition 0."""
    found = image.topics["t"].partitions[0]
    return found.replicas, found.adding_replicas, found.removing_replicas


def sync(image: ClusterImage, *isr: int) -> tuple[int, ClusterImage]:
    """The leader changes the ISR: the code, and the image after."""
    found = image.topics["t"].partitions[0]
    request = isr_change(
        isr,
        sender=found.leader,
        leader_epoch=found.leader_epoch,
        partition_epoch=found.partition_epoch,
    )
    records, response = alter_partition(image, CONFIG, request, 3)
    return response.topics[0].partitions[0].error_code, apply(image, records)


def test_a_move_from_begin_to_end() -> None:
    image = image_of(partition(), brokers=FIVE)
    answers, image = reassign(image, [4, 5, 3])
    assert answers == [(0, None)]
    assert replicas(image) == ((4, 5, 3, 1, 2), (4, 5), (1, 2))
    assert state(image) == (1, 5, (1, 2, 3), 8)
    assert image.topics["t"].partitions[0].directories == tuple(
        directory(node_id) for node_id in (4, 5, 3, 1, 2)
    )
    code, image = sync(image, 1, 2, 3, 4)
    assert (code, state(image)[0]) == (0, 1)
    code, image = sync(image, 1, 2, 3, 4, 5)
    assert code == 108, "NEW_LEADER_ELECTED"
    assert state(image) == (4, 6, (3, 4, 5), 10)
    assert replicas(image) == ((4, 5, 3), (), ())


def test_another_order_is_there_at_once() -> None:
    answers, image = reassign(image_of(partition(), brokers=FIVE), [3, 1, 2])
    assert answers == [(0, None)]
    assert replicas(image) == ((3, 1, 2), (), ())
    assert state(image) == (1, 5, (1, 2, 3), 8)


def test_fewer_replicas_are_there_at_once() -> None:
    _, image = reassign(image_of(partition(), brokers=FIVE), [2, 3])
    assert replicas(image) == ((2, 3), (), ())
    assert state(image) == (2, 6, (2, 3), 8)


def test_the_same_replicas_change_nothing() -> None:
    image = image_of(partition(), brokers=FIVE)
    answers, after = reassign(image, [1, 2, 3])
    assert answers == [(0, None)]
    assert state(after) == state(image)


def test_a_replica_that_stays_and_is_behind_holds_no_move_up() -> None:
    """Only the new ones are awaited, unless fewer come than go (PartitionReassignmentReplicas)."""
    behind = image_of(partition(isr=(1, 2)), brokers=FIVE)
    _, image = reassign(behind, [1, 4, 3])
    _, image = sync(image, 1, 2, 4)
    assert replicas(image) == ((1, 4, 3), (), ())
    assert state(image)[2] == (1, 4)
    _, image = reassign(behind, [1, 3])
    assert replicas(image) == ((1, 3, 2), (), (2,))
    _, image = reassign(behind, [1, 3, 2, 4])
    _, image = sync(image, 1, 2, 4)
    assert replicas(image) == ((1, 3, 2, 4), (), ())


def test_a_move_is_changed_under_way() -> None:
    _, image = reassign(image_of(partition(), brokers=FIVE), [1, 2, 4])
    assert replicas(image) == ((1, 2, 4, 3), (4,), (3,))
    _, image = reassign(image, [1, 4, 5])
    assert replicas(image) == ((1, 4, 5, 2, 3), (4, 5), (2, 3))
    _, image = reassign(image, None)
    assert replicas(image) == ((1, 2, 3), (), ())


def test_back_to_the_replicas_before_by_name() -> None:
    _, image = reassign(image_of(partition(), brokers=FIVE), [1, 2, 4])
    _, image = reassign(image, [1, 2, 3])
    assert replicas(image) == ((1, 2, 3), (), ())


def test_cancelled() -> None:
    _, image = reassign(image_of(partition(), brokers=FIVE), [4, 5])
    _, image = sync(image, 1, 2, 3, 4)
    answers, image = reassign(image, None)
    assert answers == [(0, None)]
    assert replicas(image) == ((1, 2, 3), (), ())
    assert state(image) == (1, 6, (1, 2, 3), 10)
    answers, _ = reassign(image, None)
    assert answers == [(85, None)]


@pytest.mark.parametrize("allowed", ["false", "true"])
def test_cancelled_when_only_new_replicas_are_in_sync(allowed: str) -> None:
    moving = partition((4, 1, 2), isr=(4,), adding_replicas=(4,), removing_replicas=(2,))
    settings = {"unclean.leader.election.enable": allowed}
    image = image_of(moving, brokers=FIVE, topic_config=settings)
    answers, after = reassign(image, None)
    if allowed == "false":
        assert answers == [
            (
                39,
                "Unable to revert partition assignment for t:0 because it would require an "
                "unclean leader election.",
            )
        ]
        assert replicas(after) == replicas(image)
    else:
        assert replicas(after) == ((1, 2), (), ())
        assert state(after) == (1, 6, (1,), 8)
        assert after.topics["t"].partitions[0].leader_recovery_state == 1


def test_refusals() -> None:
    image = image_of(partition(), brokers=FIVE)
    assigned = "The manual partition assignment includes"
    cases: list[tuple[list[int], int, str]] = [
        ([], 39, f"{assigned} an empty replica list."),
        ([1, 9], 39, f"{assigned} broker 9, but no such broker is registered."),
        ([1, 2, 1], 39, f"{assigned} the broker 1 more than once."),
    ]
    for target, code, text in cases:
        assert reassign(image, target)[0] == [(code, text)]
    assert reassign(image, [1], name="u")[0] == [(3, "Unable to find a topic named u.")]
    assert reassign(image, [1, 2, 3], [1])[0] == [(0, None), (3, "Unable to find partition t:1.")]


def test_the_number_of_replicas_may_be_held() -> None:
    image = image_of(partition(), brokers=FIVE)
    text = "The replication factor is changed from 3 to 2"
    assert reassign(image, [4, 5], resize=False)[0] == [(38, text)]
    answers, image = reassign(image, [1, 2, 4], resize=False)
    assert answers == [(0, None)]
    assert reassign(image, [1, 2, 5], resize=False)[0] == [(0, None)]
    assert reassign(image, [1, 2], resize=False)[0] == [(38, text)]


def listed(image: ClusterImage, topics: Any = None) -> list[tuple[str, list[Any]]]:
    request = ListPartitionReassignmentsRequest(topics=topics)
    return [
        (
            found.name,
            [
                (each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas)
                for each in found.partitions
            ],
        )
        for found in list_reassignments(image, request).topics
    ]


def test_listed() -> None:
    image = image_of(partition(), partition(), partition(), brokers=FIVE)
    assert listed(image) == []
    _, image = reassign(image, [4, 2, 3], [1, 2, 3], [1, 2, 3, 5])
    first = (0, [4, 2, 3, 1], [4], [1])
    third = (2, [1, 2, 3, 5], [5], [])
    assert listed(image) == [("t", [first, third])]
    named = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    assert listed(image, [named(name="t", partition_indexes=[2, 1, 9])]) == [("t", [third])]
    assert listed(image, [named(name="u", partition_indexes=[0])]) == []
