"""Wide requests are handled in parts, with the same answer as in one step."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.handler_calls import RecordingPeer, make_context
from support.turns import counting_turns
from tidelog.network.wide_requests import (
    IN_ONE_TURN,
    PART_MAX,
    TWICE_MAX,
    WIDE,
    WIDE_BYTES,
    Wide,
    in_parts,
    in_turns,
)
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_protocol.messages.cluster_admin import ElectLeadersRequest
from tidelog_protocol.messages.data import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from tidelog_protocol.messages.group_admin import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog_protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchResponse
from tidelog_protocol.messages.txns import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tidelog.network.dispatch import RequestContext

Answer = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
Asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic


def described(request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    group = DescribeGroupsResponse.DescribedGroup
    return DescribeGroupsResponse(groups=[group(group_id=each) for each in request.groups])


def epochs(context: RequestContext, request: OffsetForLeaderEpochRequest) -> Any:
    del context
    ends = [
        Answer(
            topic=topic.topic,
            partitions=[
                OffsetForLeaderEpochResponse.EpochEndOffset(partition=each.partition)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(topics=ends)


def asked(topic: str, count: int) -> OffsetForLeaderEpochRequest.OffsetForLeaderTopic:
    partition = Asked.OffsetForLeaderPartition
    return Asked(topic=topic, partitions=[partition(partition=number) for number in range(count)])


@pytest.mark.parametrize(
    ("api_key", "wide"), [(key, wide) for key, arrays in WIDE.items() for wide in arrays]
)
def test_the_arrays_are_those_of_the_messages(api_key: ApiKey, wide: Wide) -> None:
    api = API[api_key]

    def array(table: Any, name: str) -> Any:
        (field,) = [each for each in table.FIELDS if each.name == name]
        assert field.kind == "array"
        return field.element

    asked_of, answer_of = api.request, api.response
    while True:
        asked_of, answer_of = array(asked_of, wide.asked), array(answer_of, wide.answered)
        if wide.inner is None:
            break
        assert wide.keys or wide.is_whole
        for key in wide.keys:
            assert key in {each.name for each in answer_of.FIELDS}
        wide = wide.inner._replace(is_whole=wide.is_whole)


def test_others_are_served_between_the_parts() -> None:
    sizes: list[int] = []
    turns: list[int] = []

    def handler(context: RequestContext, request: DescribeGroupsRequest) -> Any:
        del context
        sizes.append(len(request.groups))
        asyncio.get_running_loop().call_soon(lambda: turns.append(len(sizes)))
        return described(request)

    async def test() -> Any:
        request = DescribeGroupsRequest(groups=[f"g{number}" for number in range(1200)])
        handle = in_parts(ApiKey.DESCRIBE_GROUPS, handler)
        return await handle(make_context(ApiKey.DESCRIBE_GROUPS, 6), request)

    response = asyncio.run(test())
    assert [each.group_id for each in response.groups] == [f"g{n}" for n in range(1200)]
    assert sizes == [500, 500, 200] or (max(sizes) <= PART_MAX and sum(sizes) == 1200)
    assert turns == [*range(1, len(sizes) + 1)]


@pytest.mark.parametrize(
    "widths", [(1200,), (3, 1200, 2), (PART_MAX,), (PART_MAX + 1,), (0, 499, 0, 501), (1,) * 600]
)
def test_what_is_divided_within_is_joined_again(widths: tuple[int, ...]) -> None:
    topics = [asked(f"t{number}", width) for number, width in enumerate(widths)]
    request = OffsetForLeaderEpochRequest(topics=topics)
    sizes: list[int] = []

    def handler(context: RequestContext, part: OffsetForLeaderEpochRequest) -> Any:
        sizes.append(sum(len(topic.partitions) for topic in part.topics))
        return epochs(context, part)

    async def test() -> Any:
        handle = in_parts(ApiKey.OFFSET_FOR_LEADER_EPOCH, handler)
        return await handle(make_context(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4), request)

    response = asyncio.run(test())
    assert response == epochs(make_context(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4), request)
    assert max(sizes) <= PART_MAX


Marker = WriteTxnMarkersRequest.WritableTxnMarker
Written = WriteTxnMarkersResponse.WritableTxnMarkerResult


def marker(producer_id: int, *widths: int) -> WriteTxnMarkersRequest.WritableTxnMarker:
    topics = [
        Marker.WritableTxnMarkerTopic(name=f"t{number}", partition_indexes=[*range(width)])
        for number, width in enumerate(widths)
    ]
    return Marker(producer_id=producer_id, topics=topics)


def written(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    topic = Written.WritableTxnMarkerTopicResult
    return WriteTxnMarkersResponse(
        markers=[
            Written(
                producer_id=each.producer_id,
                topics=[
                    topic(
                        name=one.name,
                        partitions=[
                            topic.WritableTxnMarkerPartitionResult(partition_index=index)
                            for index in one.partition_indexes
                        ],
                    )
                    for one in each.topics
                ],
            )
            for each in request.markers
        ]
    )


@pytest.mark.parametrize(
    "markers",
    [
        [marker(1, 1000)],
        [marker(1, *[1] * 300)],
        [marker(1, 3, 250, 2), marker(2, 97), marker(2, 98, 99, 100)],
        [marker(number, 1) for number in range(200)],
        [marker(1, 40)] * 7,
        [marker(1), marker(1, 0, 150, 0), marker(1)],
    ],
)
def test_markers_are_divided_down_to_their_partitions(markers: list[Any]) -> None:
    """10,000 partitions of one topic were one part, of a second and more."""
    request = WriteTxnMarkersRequest(markers=markers)
    sizes: list[int] = []

    def handler(context: RequestContext, part: WriteTxnMarkersRequest) -> Any:
        topics = [topic for each in part.markers for topic in each.topics]
        sizes.append(sum(len(topic.partition_indexes) for topic in topics))
        return written(part)

    async def test() -> Any:
        handle = in_parts(ApiKey.WRITE_TXN_MARKERS, handler)
        return await handle(make_context(ApiKey.WRITE_TXN_MARKERS, 2), request)

    assert asyncio.run(test()) == written(request)
    assert max(sizes) <= WIDE[ApiKey.WRITE_TXN_MARKERS][0].part_max


Fetched = OffsetFetchRequest.OffsetFetchRequestGroup


@pytest.mark.parametrize("version", [7, 9])
def test_the_array_that_a_version_has_is_divided(version: int) -> None:
    """OffsetFetch: topics of one group before version 8, then groups."""
    topics = [
        Fetched.OffsetFetchRequestTopics(name=f"t{number}", partition_indexes=[*range(width)])
        for number, width in enumerate((3, 1200, 0, 700))
    ]
    request = OffsetFetchRequest(topics=topics)
    if version == 9:
        all_topics = Fetched(group_id="all", topics=None)
        request = OffsetFetchRequest(groups=[all_topics, Fetched(group_id="g", topics=topics)])
    sizes: list[int] = []
    answer = OffsetFetchResponse.OffsetFetchResponseGroup
    found = answer.OffsetFetchResponseTopics

    def answered(asked: list[Any] | None) -> list[Any]:
        sizes.append(sum(len(topic.partition_indexes) for topic in asked or ()))
        one = found.OffsetFetchResponsePartitions
        return [
            found(
                name=topic.name,
                partitions=[one(partition_index=index) for index in topic.partition_indexes],
            )
            for topic in asked or ()
        ]

    def handler(context: RequestContext, part: OffsetFetchRequest) -> Any:
        del context
        return OffsetFetchResponse(
            topics=answered(part.topics),
            groups=[answer(group_id=g.group_id, topics=answered(g.topics)) for g in part.groups],
        )

    async def test() -> Any:
        handle = in_parts(ApiKey.OFFSET_FETCH, handler)
        return await handle(make_context(ApiKey.OFFSET_FETCH, version), request)

    response = asyncio.run(test())
    assert max(sizes) <= PART_MAX
    assert response == handler(make_context(ApiKey.OFFSET_FETCH, version), request)


def test_a_transaction_is_whole_and_counts_as_its_partitions() -> None:
    """Hundreds of transactions of many partitions were one part."""
    added = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    topics = [added.AddPartitionsToTxnTopic(name="t", partitions=[*range(300)])]
    large = [added.AddPartitionsToTxnTopic(name="t", partitions=[*range(2 * PART_MAX)])]
    request = AddPartitionsToTxnRequest(
        transactions=[
            added(transactional_id=name, topics=large if name == "c" else topics)
            for name in "abcde"
        ]
    )
    parts: list[str] = []

    def handler(context: RequestContext, part: AddPartitionsToTxnRequest) -> Any:
        del context
        parts.append("".join(each.transactional_id for each in part.transactions))
        return AddPartitionsToTxnResponse()

    async def test() -> None:
        handle = in_parts(ApiKey.ADD_PARTITIONS_TO_TXN, handler)
        await handle(make_context(ApiKey.ADD_PARTITIONS_TO_TXN, 5), request)

    asyncio.run(test())
    assert parts == ["a", "b", "c", "d", "e"]


def test_a_request_for_all_is_not_wide() -> None:
    request = ElectLeadersRequest(topic_partitions=None)
    handle = in_parts(ApiKey.ELECT_LEADERS, lambda _, asked: asked)
    assert handle(make_context(ApiKey.ELECT_LEADERS, 2), request) is request


def wide_context(api_key: ApiKey, version: int) -> RequestContext:
    context = make_context(api_key, version)
    context.size = WIDE_BYTES + 1
    return context


def test_a_long_request_of_few_elements_has_turns_between_its_steps() -> None:
    """DescribeShareGroupOffsets of one group was answered in one turn, whatever its length."""
    api = API[ApiKey.DESCRIBE_GROUPS]
    request = DescribeGroupsRequest(groups=["g" * WIDE_BYTES])
    handle = in_parts(api.key, lambda _, asked: described(asked))
    narrow = make_context(api.key, api.max_version)
    assert handle(narrow, request) == described(request)
    response, turns = counting_turns(handle, wide_context(api.key, api.max_version), request)
    assert response == described(request)
    assert turns > 2


@pytest.mark.parametrize("answers", ["at once", "later", "by a coroutine", "in turns"])
def test_any_wide_request_is_handled_after_others_had_a_turn(answers: str) -> None:
    api, events = API[ApiKey.DELETE_RECORDS], list[str]()
    request = api.request()

    async def soon() -> Any:
        return api.response()

    def parts() -> Generator[None, None, Any]:
        yield
        return api.response()

    def handler(context: RequestContext, asked: Any) -> Any:
        assert asked is request
        events.append("handled")
        if answers == "at once":
            return api.response()
        if answers == "by a coroutine":
            return soon()
        if answers == "in turns":
            return in_turns(parts(), context)
        waiting = context.defer()
        asyncio.get_running_loop().call_soon(waiting.complete, api.response())
        return waiting

    async def test() -> Any:
        loop = asyncio.get_running_loop()
        work = in_parts(api.key, handler)(wide_context(api.key, api.max_version), request)
        task = loop.create_task(work)
        loop.call_soon(events.append, "others")
        response = await task
        assert events == ["others", "handled"]
        return response

    assert asyncio.run(test()) == api.response()


def test_narrow_requests_and_those_of_other_apis_go_straight_to_the_handler() -> None:
    def handler(context: RequestContext, request: Any) -> Any:
        del context
        return request

    for api_key in IN_ONE_TURN:
        assert in_parts(api_key, handler) is handler
    narrow = DescribeGroupsRequest(groups=["g"] * PART_MAX)  # each group is described once
    context = make_context(ApiKey.DESCRIBE_GROUPS, 6)
    assert in_parts(ApiKey.DESCRIBE_GROUPS, handler)(context, narrow) is narrow
    assert in_parts(ApiKey.METADATA, handler)(context, MetadataRequest()) == MetadataRequest()


def test_what_many_names_ask_for_twice_is_answered_once() -> None:
    """Ten thousand times the name of a large group would fill the memory."""
    seen: list[str] = []

    def handler(context: RequestContext, request: DescribeGroupsRequest) -> Any:
        del context
        seen.extend(request.groups)
        return described(request)

    few = ["b", "a", "b", "b", "a"] * (TWICE_MAX // 5)
    handle = in_parts(ApiKey.DESCRIBE_GROUPS, handler)
    for groups, answered in ((few, few), ([*few, "a"], ["b", "a"])):
        seen.clear()
        twice = DescribeGroupsRequest(groups=groups)
        response = handle(make_context(ApiKey.DESCRIBE_GROUPS, 6), twice)
        assert [each.group_id for each in response.groups] == seen == answered
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = group.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    request = OffsetFetchRequest(
        groups=[
            group(group_id=name, topics=topics)
            for name in "ab"
            for topics in (None, [topic], *[None] * TWICE_MAX)
        ]
    )
    in_parts(ApiKey.OFFSET_FETCH, lambda _, asked: asked)(
        make_context(ApiKey.OFFSET_FETCH, 9), request
    )
    assert [(each.group_id, each.topics) for each in request.groups] == [
        ("a", None),
        ("a", [topic]),
        ("b", None),
        ("b", [topic]),
    ]


@pytest.mark.parametrize("kind", ["at once", "later", "a coroutine"])
def test_parts_are_answered_in_any_way(kind: str) -> None:
    def handler(context: RequestContext, request: DescribeGroupsRequest) -> Any:
        async def answer() -> DescribeGroupsResponse:
            return described(request)

        if kind == "a coroutine":
            return answer()
        deferred = context.defer()
        complete: Callable[[], None] = lambda: deferred.complete(described(request))  # noqa: E731
        if kind == "later":
            asyncio.get_running_loop().call_soon(complete)
        else:
            complete()
        return deferred

    async def test() -> Any:
        handle = in_parts(ApiKey.DESCRIBE_GROUPS, handler)
        request = DescribeGroupsRequest(groups=[f"g{number}" for number in range(1001)])
        return await handle(make_context(ApiKey.DESCRIBE_GROUPS, 6), request)

    assert len(asyncio.run(test()).groups) == 1001


def test_a_part_that_fails_closes_the_connection_and_ends_the_request() -> None:
    peer = RecordingPeer()
    handled = 0

    def handler(context: RequestContext, request: DescribeGroupsRequest) -> Any:
        nonlocal handled
        handled += 1
        deferred = context.defer()
        deferred.fail()
        return deferred

    async def test() -> Any:
        handle = in_parts(ApiKey.DESCRIBE_GROUPS, handler)
        request = DescribeGroupsRequest(groups=[f"g{number}" for number in range(1001)])
        return await handle(make_context(ApiKey.DESCRIBE_GROUPS, 6, peer=peer), request)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(test())
    assert peer.closed
    assert handled == 1
