"""DeleteTopics by name and id; answers are a Kafka 4.3.1's, but for their order."""

from __future__ import annotations

from typing import Any

import pytest

from support.metadata import cluster, names_of, topic
from tidelog.cluster.controller.deletion import delete_topics, refuse_deletion
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import DeleteTopicsRequest

ZERO = bytes(16)
ONE, TWO, LOST = ((number).to_bytes(16, "big") for number in (1, 2, 99))
IMAGE = cluster(topic("one", 1), topic("two", 2))


def by_state(*states: tuple[str | None, bytes]) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=n, topic_id=i) for n, i in states]
    )


def answers(request: DeleteTopicsRequest) -> list[tuple[Any, ...]]:
    return [
        (result.name, result.topic_id, result.error_code, result.error_message)
        for result in delete_topics(IMAGE, request).results
    ]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([("one", ZERO)], [("one", ONE, 0, None)]),
        ([(None, ONE)], [("one", ONE, 0, None)]),
        (
            [("nix", ZERO)],
            [("nix", ZERO, 3, "This server does not host this topic-partition.")],
        ),
        ([("", ZERO)], [("", ZERO, 3, "This server does not host this topic-partition.")]),
        ([(None, LOST)], [(None, LOST, 100, "This server does not host this topic ID.")]),
        ([(None, ZERO)], [(None, ZERO, 42, "Neither topic name nor id were specified.")]),
        (
            [("one", ONE)],
            [("one", ONE, 42, "You may not specify both topic name and topic id.")],
        ),
        ([("one", ZERO), ("one", ZERO)], [("one", ZERO, 42, "Duplicate topic name.")]),
        ([(None, ONE), (None, ONE)], [(None, ONE, 42, "Duplicate topic id.")]),
        (
            [("one", ZERO), (None, ONE)],
            [("one", ONE, 42, "The provided topic name maps to an ID that was already supplied.")],
        ),
        (
            [("two", ZERO), (None, ONE), ("nix", ZERO)],
            [
                ("two", TWO, 0, None),
                ("one", ONE, 0, None),
                ("nix", ZERO, 3, "This server does not host this topic-partition."),
            ],
        ),
    ],
)
def test_answers(states: list[tuple[str | None, bytes]], expected: list[tuple[Any, ...]]) -> None:
    assert answers(by_state(*states)) == expected


def test_names_of_the_older_versions() -> None:
    request = DeleteTopicsRequest(topic_names=["one", "nix", "two"])
    assert [answer[2] for answer in answers(request)] == [0, 3, 0]


def test_records_are_of_the_deleted_alone() -> None:
    decision = delete_topics(IMAGE, by_state(("two", ZERO), ("nix", ZERO), ("one", ONE)))
    assert names_of(decision.records) == ["RemoveTopicRecord"]
    assert decision.records[0].topic_id == TWO


def test_deletion_switched_off() -> None:
    results = refuse_deletion(by_state(("one", ZERO)), ErrorCode.TOPIC_DELETION_DISABLED)
    assert [(r.name, r.error_code) for r in results] == [("one", ErrorCode.TOPIC_DELETION_DISABLED)]
    old = DeleteTopicsRequest(topic_names=["one"])
    assert refuse_deletion(old, ErrorCode.INVALID_REQUEST)[0].name == "one"
