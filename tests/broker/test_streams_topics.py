"""The internal topics of streams groups, beside what Apache Kafka 4.3.1 decided.

`vectors/kafka-4.3.1-streams-topologies.jsonl` has random topologies as records, the topics there
are, and what Kafka's InternalTopicManager made of them: tasks, topics to create, or what is wrong.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.streams.internal_topics import configure_topics, required_topics
from tidelog.coordinators.groups.streams.topology import Status
from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.streams_group_records import StreamsGroupTopologyValue

VECTORS = Path(__file__).parent / "vectors" / "kafka-4.3.1-streams-topologies.jsonl"
CASES = [json.loads(line) for line in VECTORS.read_text().splitlines()]

Subtopology = StreamsGroupTopologyValue.Subtopology
TopicInfo = StreamsGroupTopologyValue.TopicInfo


def found_of(case: dict[str, Any]) -> dict[str, Any]:
    topology = codec(StreamsGroupTopologyValue, 0).decode(bytes.fromhex(case["topology"]))
    try:
        result = configure_topics(topology, case["topics"].get, 7)
    except RefusedError as error:
        if error.code is not ErrorCode.STREAMS_INVALID_TOPOLOGY:
            raise
        return {"error": ["StreamsInvalidTopologyException", error.message]}
    assert (result.epoch, result.metadata_hash) == (3, 7)
    assert result.is_ready == (result.problem is None)
    subtopologies = result.subtopologies
    return {
        "subtopologies": subtopologies
        and {
            key: [
                each.tasks,
                {name: topic.partitions for name, topic in each.repartition_source_topics.items()},
                {name: topic.partitions for name, topic in each.changelog_topics.items()},
            ]
            for key, each in subtopologies.items()
        },
        "create": {
            each.name: [each.partitions, each.replication_factor or -1, dict(each.configs)]
            for each in result.missing_topics
        },
        "status": result.problem and [result.problem.status, result.problem.detail],
    }


@pytest.mark.parametrize("part", range(4))
def test_topics_are_those_of_kafkas_class(part: int) -> None:
    """In four parts, so that a failure names few cases."""
    wrong = [
        (number, found)
        for number, case in enumerate(CASES)
        if number % 4 == part and (found := found_of(case)) != case["result"]
    ]
    assert wrong == []


def test_the_cases_have_every_outcome() -> None:
    outcomes = Counter(
        "error" if "error" in result else str(result["status"] and result["status"][0])
        for case in CASES
        for result in (case["result"],)
    )
    assert set(outcomes) == {"error", "None", "1", "2", "3"}
    assert min(outcomes.values()) > 5


def test_more_than_three_topics_are_counted() -> None:
    names = ["e", "d", "c", "b", "a"]
    topology = StreamsGroupTopologyValue(
        epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=names)]
    )
    result = configure_topics(topology, {"a": 1}.get, 0)
    assert result.problem == (
        Status.MISSING_SOURCE_TOPICS,
        "Source topics b, c, d and 1 additional topics are missing.",
    )
    assert not result.is_ready
    assert result.subtopologies is None


def test_required_topics_are_read_and_written_ones_once() -> None:
    topology = StreamsGroupTopologyValue(
        epoch=0,
        subtopologies=[
            Subtopology(
                subtopology_id="0",
                source_topics=["in"],
                repartition_sink_topics=["r"],
                state_changelog_topics=[TopicInfo(name="s")],
            ),
            Subtopology(
                subtopology_id="1",
                source_topics=["in"],
                repartition_source_topics=[TopicInfo(name="r")],
            ),
        ],
    )
    assert sorted(required_topics(topology)) == ["in", "r", "s"]
    result = configure_topics(topology, {"in": 3}.get, 0)
    assert result.subtopologies is not None
    assert [each.is_stateful for each in result.subtopologies.values()] == [True, False]
