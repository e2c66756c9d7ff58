"""AlterPartition and what becomes of partitions when brokers come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.controller_cluster import (
    CONFIG,
    TOPIC_ID,
    apply,
    broker,
    directory,
    image_of,
    isr_change,
    partition,
    state,
)
from support.metadata import broker_config
from tidelog.cluster.controller.decisions import RefusedError
from tidelog.cluster.controller.partitions import (
    Changes,
    alter_partition,
    has_leaderships,
    settle,
)
from tidelog.cluster.metadata.features import ELIGIBLE_FEATURE
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog_protocol.messages.controller import AlterPartitionRequest


def alter(
    image: ClusterImage, request: AlterPartitionRequest, version: int = 3
) -> tuple[Any, ClusterImage]:
    """The answer for the first partition, and the image after."""
    records, response = alter_partition(image, CONFIG, request, version)
    return response.topics[0].partitions[0], apply(image, records)


def test_expansion_and_shrink() -> None:
    image = image_of(partition(isr=(1, 2)))
    answer, image = alter(image, isr_change([(1, 101), (2, 102), (3, 103)]))
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, [1, 2, 3], 8)
    assert (answer.leader_id, answer.leader_epoch) == (1, 5)
    assert state(image) == (1, 5, (1, 2, 3), 8)
    answer, image = alter(image, isr_change([1], partition_epoch=8))
    assert state(image) == (1, 5, (1,), 9), "a shrink begins no leader epoch"


def test_version_2_has_no_broker_epochs() -> None:
    request = isr_change([])
    request.topics[0].partitions[0].new_isr = [1, 3]
    answer, image = alter(image_of(partition(isr=(1,))), request, 2)
    assert (answer.error_code, state(image)[2]) == (0, (1, 3))


def test_the_same_isr_again_changes_nothing() -> None:
    image = image_of(partition())
    records, response = alter_partition(image, CONFIG, isr_change([1, 2, 3]), 3)
    assert records == []
    assert response.topics[0].partitions[0].partition_epoch == 7


E = ErrorCode
REFUSALS: list[tuple[str, dict[str, Any], ErrorCode]] = [
    ("partition", {"index": 4, "leader_epoch": 9}, E.UNKNOWN_TOPIC_OR_PARTITION),
    ("topic", {"topic_id": bytes(16), "leader_epoch": 9}, E.UNKNOWN_TOPIC_ID),
    ("leader epoch above", {"leader_epoch": 6, "sender": 2}, E.NOT_CONTROLLER),
    ("partition epoch above", {"partition_epoch": 8, "leader_epoch": 4}, E.NOT_CONTROLLER),
    ("leader epoch below", {"leader_epoch": 4, "sender": 2}, E.FENCED_LEADER_EPOCH),
    ("not the leader", {"sender": 2, "partition_epoch": 6}, E.INVALID_REQUEST),
    ("partition epoch below", {"partition_epoch": 6, "isr": [9]}, E.INVALID_UPDATE_VERSION),
    ("not a replica", {"isr": [1, 9]}, E.INVALID_REQUEST),
    ("twice", {"isr": [1, 2, 2]}, E.INVALID_REQUEST),
    ("without the leader", {"isr": [2, 4]}, E.INVALID_REQUEST),
    ("nobody", {"isr": []}, E.INVALID_REQUEST),
    ("recovering with others", {"recovery": 1}, E.INVALID_REQUEST),
    ("recovering again", {"isr": [1], "recovery": 1}, E.INVALID_REQUEST),
    ("no such recovery state", {"recovery": 2}, E.INVALID_REQUEST),
    ("fenced", {"isr": [1, 4]}, E.INELIGIBLE_REPLICA),
    ("leaving", {"isr": [1, 5]}, E.INELIGIBLE_REPLICA),
    ("not registered", {"isr": [1, 6]}, E.INELIGIBLE_REPLICA),
    ("another life", {"isr": [(1, 101), (2, 99)]}, E.INELIGIBLE_REPLICA),
]


@pytest.mark.parametrize(
    ("asked", "code"), [(asked, code) for _, asked, code in REFUSALS], ids=[r[0] for r in REFUSALS]
)
def test_refusals_in_the_specification_s_order(asked: dict[str, Any], code: ErrorCode) -> None:
    brokers = [broker(1), broker(2), broker(4, fenced=True), broker(5, in_controlled_shutdown=True)]
    image = image_of(partition((1, 2, 4, 5, 6), isr=(1,)), brokers=brokers)
    arguments = {"isr": [1, 2], **asked}
    answer, after = alter(image, isr_change(arguments.pop("isr"), **arguments))
    assert answer.error_code == code
    assert state(after) == state(image)


@pytest.mark.parametrize(("sender", "epoch"), [(1, 99), (9, 109)])
def test_an_earlier_life_is_refused_as_a_whole(sender: int, epoch: int) -> None:
    with pytest.raises(RefusedError) as refusal:
        alter_partition(
            image_of(partition()), CONFIG, isr_change([1], sender=sender, sender_epoch=epoch), 3
        )
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_recovery_is_over_when_the_leader_says_so() -> None:
    image = image_of(partition(isr=(1,), leader_recovery_state=1))
    answer, after = alter(image, isr_change([1], recovery=0))
    assert (answer.error_code, answer.leader_recovery_state, answer.partition_epoch) == (0, 0, 8)
    assert state(after) == (1, 5, (1,), 8)


def test_the_end_of_a_reassignment_may_take_the_leader_away() -> None:
    moving = partition(
        (2, 3, 1), isr=(1, 2), leader=1, adding_replicas=(3,), removing_replicas=(1,)
    )
    answer, image = alter(image_of(moving), isr_change([1, 2, 3]))
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    assert state(image) == (2, 6, (2, 3), 8)
    assert image.topics["t"].partitions[0].replicas == (2, 3)


def test_a_partition_named_twice_is_judged_twice() -> None:
    request = isr_change([1])
    request.topics[0].partitions *= 2
    records, response = alter_partition(image_of(partition()), CONFIG, request, 3)
    codes = [answer.error_code for answer in response.topics[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
    assert len(records) == 1


def test_a_replica_that_moved_to_another_disk_is_noted_when_it_is_in_sync() -> None:
    fresh = broker(2, log_dirs=(b"new-directory-02",))
    image = image_of(partition(isr=(1,)), brokers=[broker(1), fresh, broker(3)])
    _, after = alter(image, isr_change([1, 2]))
    assert after.topics["t"].partitions[0].directories == (
        directory(1),
        b"new-directory-02",
        directory(3),
    )


def test_a_broker_with_another_disk_does_not_lead_what_it_lost() -> None:
    fresh = broker(1, log_dirs=(b"new-directory-01",))
    image = image_of(partition(isr=(1,), leader=-1), brokers=[fresh, broker(2)])
    changes = Changes(image, CONFIG)
    changes.elect_leaderless()
    assert changes.records == []


def test_several_directories_are_the_broker_s_own_choice() -> None:
    many = broker(1, log_dirs=(b"a" * 16, b"b" * 16))
    image = image_of(
        partition((1,), leader=-1, directories=(bytes(16),)), brokers=[many, broker(2)]
    )
    changes = Changes(image, CONFIG)
    changes.elect_leaderless()
    assert state(apply(image, changes.records))[0] == 1


def test_a_new_controller_elects_last_known_leaders_that_are_back() -> None:
    """The previous one ended between two steps of the return of the broker."""
    left = partition(isr=(), leader=-1, last_known_eligible_leader_replicas=(1,))
    gone = partition(isr=(), leader=-1, last_known_eligible_leader_replicas=(2,))
    brokers = [broker(1), broker(2, fenced=True)]
    image = image_of(left, gone, brokers=brokers, features={ELIGIBLE_FEATURE: 1})
    (record,) = settle(image, CONFIG, {1})
    after = apply(image, [record])
    elected, waiting = after.topics["t"].partitions
    assert (elected.leader, elected.isr, elected.leader_recovery_state) == (1, (1,), 1)
    assert waiting.leader == -1
    assert settle(after, CONFIG, {1}) == []


# ---- settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "dynamic", "static", "allowed"),
    [
        (None, None, "false", False),
        (None, None, "true", True),
        (None, "true", "false", True),
        ("false", "true", "true", False),
        ("true", None, "false", True),
    ],
)
def test_where_unclean_elections_are_allowed(
    topic: str | None, dynamic: str | None, static: str, allowed: bool
) -> None:
    key = "unclean.leader.election.enable"
    image = image_of(partition(), topic_config={key: topic} if topic else None)
    image = image._replace(broker_configs={"": {key: dynamic}} if dynamic else {})
    config = broker_config(unclean_leader_election_enable=static)
    assert Changes(image, config).unclean_allowed("t") is allowed


def test_leaderships() -> None:
    image = image_of(partition(), partition(leader=2))
    assert [has_leaderships(image, node_id) for node_id in (1, 2, 3)] == [True, True, False]
    assert image.topics["t"].topic_id == TOPIC_ID
