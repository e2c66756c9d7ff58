"""The hot answers written by hand are byte for byte those of the message tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_protocol.apis import API
from tidelog_protocol.messages.data import FetchResponse, ProduceResponse
from tidelog_protocol.plain_answers import (
    FETCH_FLEXIBLE_FROM,
    PRODUCE_FLEXIBLE_FROM,
    fetch_body,
    fetched,
    produce_body,
    produced,
    produced_fields,
    with_throttle_time,
)

PRODUCE_VERSIONS = range(PRODUCE_FLEXIBLE_FROM, API[0].max_version + 1)
FETCH_VERSIONS = range(FETCH_FLEXIBLE_FROM, API[1].max_version + 1)

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.one_of(st.text(max_size=8), st.sampled_from(["n" * 126, "n" * 127, "n" * 249]))
ids = st.binary(min_size=16, max_size=16)
# Around the sizes where lengths take another byte, and where records stop being copied.
records = st.one_of(
    st.just(()),
    st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=3).map(tuple),
    st.sampled_from([126, 127, 511, 512, 513, 16382, 16383, 70_000]).map(
        lambda size: (memoryview(bytes(size)),)
    ),
)
lots = st.sampled_from([126, 127, 200])


def topics_of(partitions: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few = st.lists(partitions, max_size=3)
    many = st.builds(lambda one, count: [one] * count, partitions, lots)
    return st.lists(st.tuples(names, ids, st.one_of(few, many)), max_size=3)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(derandomize=True, max_examples=60, deadline=None)
@given(topics=topics_of(st.tuples(int32s, int64s, int64s, int64s)))
def test_a_produce_answer_is_the_tables(version: int, topics: Any) -> None:
    topic = ProduceResponse.TopicProduceResponse
    message = ProduceResponse(
        responses=[
            topic(
                name=name,
                topic_id=topic_id,
                partition_responses=[
                    topic.PartitionProduceResponse(
                        index=index,
                        error_code=0,
                        base_offset=base,
                        log_append_time_ms=time,
                        log_start_offset=start,
                    )
                    for index, base, time, start in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ]
    )
    packed = [
        (name, topic_id, [produced(*fields) for fields in partitions])
        for name, topic_id, partitions in topics
    ]
    parts = produce_body(version, packed)
    assert b"".join(parts) == API[0].response_codec(version).encode(message)
    unpacked = [produced_fields(part) for _, _, partitions in packed for part in partitions]
    assert unpacked == [fields for _, _, partitions in topics for fields in partitions]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    session_id=int32s,
    topics=topics_of(st.tuples(int32s, int64s, int64s, int64s, st.booleans(), records)),
)
def test_a_fetch_answer_is_the_tables(version: int, session_id: int, topics: Any) -> None:
    topic = FetchResponse.FetchableTopicResponse
    message = FetchResponse(
        session_id=session_id,
        responses=[
            topic(
                topic=name,
                topic_id=topic_id,
                partitions=[
                    topic.PartitionData(
                        partition_index=index,
                        error_code=0,
                        high_watermark=high_watermark,
                        last_stable_offset=last_stable,
                        log_start_offset=start,
                        aborted_transactions=[] if is_committed else None,
                        records=data or b"",
                    )
                    for index, high_watermark, last_stable, start, is_committed, data in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ],
    )
    packed = [
        (
            name,
            topic_id,
            [
                (
                    fetched(*fields, is_committed=is_committed, size=sum(map(len, data))),
                    data,
                    sum(map(len, data)),
                )
                for *fields, is_committed, data in partitions
            ],
        )
        for name, topic_id, partitions in topics
    ]
    parts = fetch_body(version, session_id, packed)
    assert b"".join(parts) == API[1].response_codec(version).encode(message)


def test_large_records_go_out_as_they_are() -> None:
    data = memoryview(bytes(70_000))
    partition = (fetched(0, 1, 1, 0, is_committed=False, size=len(data)), (data,), len(data))
    parts = fetch_body(12, 0, [("t", bytes(16), [partition])])
    assert any(part is data for part in parts)


def test_a_throttle_time_is_put_into_an_encoded_body() -> None:
    produce = produce_body(9, [("t", bytes(16), [produced(0, 5, -1, 0)])])
    partition = fetched(0, 5, 5, 0, is_committed=False, size=1000)
    records: list[Any] = [memoryview(bytes(1000))]
    fetch = fetch_body(12, 7, [("t", bytes(16), [(partition, records, 1000)])])
    for key, version, body in ((0, 9, produce), (1, 12, fetch)):
        codec = API[key].response_codec(version)
        expected = codec.decode(b"".join(body))
        expected.throttle_time_ms = 77
        throttled = with_throttle_time(body, 77, is_last=key == 0)
        assert codec.decode(b"".join(throttled)) == expected
