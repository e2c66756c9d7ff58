"""Request faults as values: refused rules, triggers, what requests name, error answers."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.control.errors import ControlError
from tidelog.control.faults.answers import stale
from tidelog.control.faults.rules import Count, Effect, Match, Rule, Trigger, checked
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.error_answers import add_answers, error_answer
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster import MetadataResponse
from tidelog_protocol.messages.data import ListOffsetsRequest, ProduceRequest
from tidelog_protocol.messages.group_offsets import OffsetFetchRequest
from tidelog_protocol.messages.groups import FindCoordinatorRequest
from tidelog_protocol.messages.txns import AddPartitionsToTxnRequest
from tidelog_protocol.naming import names_in, names_of, only

ERROR = Effect("error", error="NOT_LEADER_OR_FOLLOWER")


@pytest.mark.parametrize(
    ("match", "trigger", "effect", "field", "message"),
    [
        ({"api": "Produced"}, {}, ERROR, "match.api", "no API 'Produced'; did you mean Produce?"),
        ({"api": 999}, {}, ERROR, "match.api", "no API 999"),
        ({"api": "Heartbeat", "topic": "t"}, {}, ERROR, "match.topic", "Heartbeat name none"),
        ({"api": "Produce", "group": "g"}, {}, ERROR, "match.group", "Produce name none"),
        ({"api": "CreateTopics", "partition": 1}, {}, ERROR, "match.partition", "name none"),
        ({}, {"times": 0}, ERROR, "trigger.times", "at least 1, not 0"),
        ({}, {"every": -1}, ERROR, "trigger.every", "at least 1, not -1"),
        ({}, {"probability": 1.1}, ERROR, "trigger.probability", "at most 1, not 1.1"),
        ({}, {"times": 1, "every": 2}, ERROR, "trigger.every", "cannot go with times"),
        ({}, {}, Effect("error", error="NOPE"), "effect.error", "no error 'NOPE'"),
        ({}, {}, Effect("error", error="not_leader"), "effect.error", "did you mean NOT_LEADER"),
        ({}, {}, Effect("error", error="NONE"), "effect.error", "no error 'NONE'"),
        ({}, {}, Effect("error"), "effect.error", "error needs it"),
        ({}, {}, Effect("throttle", error="NONE"), "effect.error", "throttle does not take it"),
        ({}, {}, Effect("delay", after_work=True), "effect.seconds", "delay needs it"),
        ({}, {}, Effect("swallow_answer", after_work=True), "effect.after_work", "not take it"),
        ({}, {}, Effect("delay_answer", seconds=-1), "effect.seconds", "between 0 and 3600"),
        ({}, {}, Effect("throttle"), "effect.seconds", "throttle needs it"),
        ({"api": "Produce"}, {}, Effect("cut_short"), "match.api", "needs the API Fetch"),
        ({"api": 1}, {}, Effect("cut_short", size=-1), "effect.size", "at least 0"),
        ({}, {}, Effect("stale_leader"), "match.api", "needs the API Metadata"),
        ({"partition": -1}, {}, ERROR, "match.partition", "at least 0, not -1"),
        ({"connection": "mine"}, {}, ERROR, "match.connection", "not the HOST:PORT of a client"),
        ({"api": "Vote"}, {}, Effect("throttle", seconds=1), "match.api", "no throttle time"),
    ],
)
def test_a_rule_that_cannot_apply_is_refused(
    match: dict[str, Any], trigger: dict[str, Any], effect: Effect, field: str, message: str
) -> None:
    with pytest.raises(ControlError) as raised:
        checked(Rule(1, Match(**match), Trigger(**trigger), effect))
    assert raised.value.field == field
    assert message in raised.value.message
    assert "mean NONE" not in raised.value.message


def test_apis_and_errors_have_names_and_numbers() -> None:
    for api in ("Produce", "PRODUCE", 0, "0"):
        for error in ("NOT_LEADER_OR_FOLLOWER", 6):
            rule = checked(Rule(1, Match(api=api), Trigger(), Effect("error", error=error)))
            assert (rule.match.api, rule.effect.error) == ("Produce", "NOT_LEADER_OR_FOLLOWER")


@pytest.mark.parametrize(
    ("trigger", "applied"),
    [
        (Trigger(), [1, 2, 3, 4, 5, 6]),
        (Trigger(times=2), [1, 2]),
        (Trigger(on_call=3), [3]),
        (Trigger(every=2), [2, 4, 6]),
        (Trigger(probability=1.0), [1, 2, 3, 4, 5, 6]),
    ],
)
def test_triggers(trigger: Trigger, applied: list[int]) -> None:
    count = Count()
    assert [call for call in range(1, 7) if count.applies(trigger)] == applied
    assert (count.calls, count.hits) == (6, len(applied))


def test_a_throttle_leaves_responses_alone_that_have_no_throttle_time() -> None:
    everywhere = checked(Rule(1, Match(), Trigger(), Effect("throttle", seconds=1)))
    for api in API.values():
        has_time = hasattr(api.response, "throttle_time_ms")
        assert everywhere.is_for(api) is has_time, api.name
    assert not everywhere.is_for(API[ApiKey.ENVELOPE])
    error = checked(Rule(1, Match(api="Vote"), Trigger(), ERROR))
    assert [api.name for api in API.values() if error.is_for(api)] == ["Vote"]


def test_chance_comes_from_the_seed() -> None:
    def drawn(seed: int) -> list[bool]:
        count = Count()
        return [count.applies(Trigger(probability=0.3, seed=seed)) for _ in range(200)]

    assert drawn(7) == drawn(7) != drawn(8)
    assert 30 < sum(drawn(7)) < 90


def test_the_names_of_requests() -> None:
    topic = ProduceRequest.TopicProduceData
    produced = ProduceRequest(
        transactional_id="tx",
        topic_data=[
            topic(name="a", partition_data=[topic.PartitionProduceData(index=n) for n in (0, 2)]),
            topic(
                topic_id=b"i" * 16,
                partition_data=[topic.PartitionProduceData(index=1)],
            ),
        ],
    )
    names = names_of(produced, {b"i" * 16: "by-id"})
    assert names.partitions == [("a", 0), ("a", 2), ("by-id", 1)]
    assert names.transactional_ids == ["tx"]
    coordinator = FindCoordinatorRequest(key_type=1, coordinator_keys=["x", "y"])
    assert names_of(coordinator, {}).transactional_ids == ["x", "y"]
    coordinator.key_type = 0
    assert names_of(coordinator, {}).groups == ["x", "y"]
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    fetched = OffsetFetchRequest(
        groups=[
            group(
                group_id="g",
                topics=[
                    group.OffsetFetchRequestTopics(name="a", partition_indexes=[3]),
                ],
            )
        ]
    )
    assert names_of(fetched, {}) == ([("a", 3)], ["g"], [])


def test_what_requests_can_name() -> None:
    named = {
        "Produce": {"topic", "partition", "transactional_id"},
        "Fetch": {"topic", "partition"},
        "Metadata": {"topic"},
        "Heartbeat": {"group"},
        "OffsetCommit": {"topic", "partition", "group"},
        "OffsetFetch": {"topic", "partition", "group"},
        "FindCoordinator": {"group", "transactional_id"},
        "AddPartitionsToTxn": {"topic", "partition", "transactional_id"},
        "DescribeGroups": {"group"},
        "DeleteTopics": {"topic"},
        "JoinGroup": {"group"},
        "DescribeConfigs": set(),
        "ApiVersions": set(),
    }
    for api in API.values():
        if api.name in named:
            assert names_in(api.request) == named[api.name], api.name


def partitions(answer: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.index): each.error_code
        for topic in answer.responses
        for each in topic.partition_responses
    }


def test_an_error_of_some_partitions_leaves_the_others() -> None:
    topic = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        topic_data=[
            topic(name=name, partition_data=[topic.PartitionProduceData(index=n) for n in (0, 1)])
            for name in ("a", "b")
        ]
    )
    match = Match(topic="a", partition=1)
    failed, count = only(request, match.names, {})
    assert count == 1
    rest, count = only(request, lambda *each: not match.names(*each), {})
    assert count == 3
    api = API[ApiKey.PRODUCE]
    answer = error_answer(api, rest, ErrorCode.NONE)
    add_answers(answer, error_answer(api, failed, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert partitions(answer) == {("a", 0): 0, ("a", 1): 6, ("b", 0): 0, ("b", 1): 0}
    assert len(answer.responses) == 2


def test_error_answers_of_nested_requests() -> None:
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    topic = next(f.element for f in transaction.FIELDS if f.name == "topics")
    assert topic is not None
    request = AddPartitionsToTxnRequest(
        transactions=[transaction(transactional_id="x", topics=[topic(name="a", partitions=[4])])]
    )
    answer: Any = error_answer(
        API[ApiKey.ADD_PARTITIONS_TO_TXN], request, ErrorCode.PRODUCER_FENCED
    )
    (result,) = answer.results_by_transaction
    assert (result.transactional_id, answer.error_code) == ("x", 0)
    (of_topic,) = result.topic_results
    (of_partition,) = of_topic.results_by_partition
    assert (of_topic.name, of_partition.partition_index) == ("a", 4)
    assert of_partition.partition_error_code == ErrorCode.PRODUCER_FENCED
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    fetch = OffsetFetchRequest(
        groups=[
            group(
                group_id="g",
                topics=[group.OffsetFetchRequestTopics(name="a", partition_indexes=[3])],
            )
        ]
    )
    fetched: Any = error_answer(API[ApiKey.OFFSET_FETCH], fetch, ErrorCode.NOT_COORDINATOR)
    assert [(each.group_id, each.error_code, each.topics) for each in fetched.groups] == [
        ("g", ErrorCode.NOT_COORDINATOR, [])
    ]
    keys = FindCoordinatorRequest(coordinator_keys=["g"])
    found: Any = error_answer(API[ApiKey.FIND_COORDINATOR], keys, ErrorCode.NOT_COORDINATOR)
    assert [(each.key, each.error_code) for each in found.coordinators] == [("g", 16)]
    offsets = ListOffsetsRequest(
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name="a",
                partitions=[
                    ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(partition_index=5)
                ],
            )
        ]
    )
    listed: Any = error_answer(API[ApiKey.LIST_OFFSETS], offsets, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    (of_topic,) = listed.topics
    assert [(each.partition_index, each.error_code) for each in of_topic.partitions] == [(5, 6)]


@pytest.mark.parametrize("api", API.values(), ids=lambda api: api.name)
def test_every_api_has_an_error_answer_in_every_version(api: Any) -> None:
    """An empty request gets the error at the top, if the answer has one there."""
    for version in range(api.min_version, api.max_version + 1):
        answer = error_answer(api, api.request(), ErrorCode.UNKNOWN_SERVER_ERROR)
        data = b"".join(api.response_codec(version).encode_parts(answer))
        decoded = api.response_codec(version).decode(memoryview(data), 0)
        assert getattr(decoded, "error_code", -1) in (-1, 0)


def test_a_stale_leader_is_another_broker_of_the_epoch_before() -> None:
    topic = MetadataResponse.MetadataResponseTopic
    partition = topic.MetadataResponsePartition(
        partition_index=0, leader_id=2, leader_epoch=7, replica_nodes=[2, 3]
    )
    answer = MetadataResponse(topics=[topic(name="a", partitions=[partition])])
    stale(answer, Match(topic="b"), {})
    assert (partition.leader_id, partition.leader_epoch) == (2, 7)
    stale(answer, Match(topic="a"), {})
    assert (partition.leader_id, partition.leader_epoch) == (3, 6)
