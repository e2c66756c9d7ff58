"""ElectLeaders, and the rounds of preferred and unclean elections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.controller_cluster import CONFIG, apply, broker, image_of, partition, state
from tidelog.cluster.controller.decisions import RefusedError
from tidelog.cluster.controller.elections import (
    PREFERRED,
    UNCLEAN,
    elect_behind,
    elect_leaders,
    elect_unclean,
    prefer_leaders,
)
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster_admin import ElectLeadersRequest

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import ClusterImage

FENCED = (broker(1, fenced=True), broker(2), broker(3))
UNCLEAN_ALLOWED = {"unclean.leader.election.enable": "true"}


def elect(
    image: ClusterImage, kind: int, *asked: tuple[str, list[int]] | None
) -> tuple[list[tuple[str, list[tuple[int, int, str | None]]]], ClusterImage]:
    """Answers by topic as (partition, code, text), and the image after. `None` asks for all."""
    topics: Any = None
    if asked != (None,):
        topics = [
            ElectLeadersRequest.TopicPartitions(topic=topic[0], partitions=topic[1])
            for topic in asked
            if topic is not None
        ]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=topics)
    records, response = elect_leaders(image, CONFIG, request)
    answers = [
        (
            result.topic,
            [
                (each.partition_id, each.error_code, each.error_message)
                for each in result.partition_result
            ],
        )
        for result in response.replica_election_results
    ]
    return answers, apply(image, records)


def test_preferred() -> None:
    image = image_of(partition(leader=2), partition(), partition(isr=(2, 3)))
    answers, after = elect(image, PREFERRED, ("t", [0, 1, 2, 0]), ("u", [0]), ("t", [3]))
    needless = (84, "Leader election not needed for topic partition.")
    assert answers == [
        (
            "t",
            [
                (0, 0, None),
                (1, *needless),
                (2, 80, "The preferred leader was not available."),
                (0, *needless),
            ],
        ),
        ("u", [(0, 3, "No such topic as u")]),
        ("t", [(3, 3, "No such partition as t-3")]),
    ]
    assert state(after, 0) == (1, 6, (1, 2, 3), 8)


def test_all_leaves_out_what_needs_nothing() -> None:
    image = image_of(partition(leader=2), partition(), partition(isr=(2,)))
    answers, _ = elect(image, PREFERRED, None)
    assert [(name, [each[:2] for each in found]) for name, found in answers] == [
        ("t", [(0, 0), (2, 80)])
    ]


def test_unclean() -> None:
    dead = partition(isr=(1,), leader=-1)
    image = image_of(dead, partition(leader=2), partition((1,), leader=-1), brokers=FENCED)
    answers, after = elect(image, UNCLEAN, ("t", [0, 1, 2]))
    assert [each[:2] for each in answers[0][1]] == [(0, 0), (1, 84), (2, 83)]
    assert answers[0][1][2][2] == "Eligible topic partition leaders are not available."
    assert state(after, 0) == (2, 6, (2,), 8)
    assert after.topics["t"].partitions[0].leader_recovery_state == 1


def test_a_replica_is_elected_as_if_it_were_the_only_one() -> None:
    image = image_of(partition(), partition(leader=2), partition(isr=(1, 2)), brokers=FENCED)
    after = apply(image, elect_behind(image, CONFIG, ("t", 0), 2))
    assert state(after, 0) == (2, 6, (2,), 8)
    assert after.topics["t"].partitions[0].leader_recovery_state == 1
    assert elect_behind(image, CONFIG, ("t", 1), 2) == [], "it leads already"
    assert state(apply(image, elect_behind(image, CONFIG, ("t", 2), 3)), 2)[0] == 3
    for of, node_id, code in (
        (("t", 1), 1, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),  # fenced
        (("t", 0), 7, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        (("t", 9), 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("x", 0), 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        with pytest.raises(RefusedError) as refused:
            elect_behind(image, CONFIG, of, node_id)
        assert refused.value.code is code


def test_no_such_type() -> None:
    with pytest.raises(RefusedError) as refused:
        elect(image_of(), 2, None)
    assert (refused.value.code, refused.value.message) == (
        ErrorCode.INVALID_REQUEST,
        "Unknown election type 2",
    )
    assert elect(image_of(), 2)[0] == []  # it asks for nothing


def test_rounds_of_preferred_elections() -> None:
    image = image_of(
        partition(leader=3), partition(isr=(2, 3)), partition(), partition(isr=(3, 1), leader=3)
    )
    records = prefer_leaders(image, CONFIG)
    after = apply(image, records)
    assert [state(after, index)[0] for index in range(4)] == [1, 2, 1, 1]
    assert len(records) == 2
    assert prefer_leaders(after, CONFIG) == []


@pytest.mark.parametrize(("settings", "leader"), [(None, -1), (UNCLEAN_ALLOWED, 2)])
def test_rounds_of_unclean_elections(settings: dict[str, str] | None, leader: int) -> None:
    image = image_of(partition(isr=(1,), leader=-1), brokers=FENCED, topic_config=settings)
    after = apply(image, elect_unclean(image, CONFIG))
    assert state(after)[0] == leader
    assert elect_unclean(after, CONFIG) == []


def test_rounds_have_an_end() -> None:
    image = image_of(*(partition(leader=2) for _ in range(1200)))
    records = prefer_leaders(image, CONFIG)
    assert len(records) == 1000
    assert len(prefer_leaders(apply(image, records), CONFIG)) == 200
