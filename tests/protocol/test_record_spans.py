"""Spans of records say what the records themselves say, and join to the same bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_protocol.batch import read_header
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.record_spans import join_spans, record_spans
from tidelog_protocol.records import Record, build_batch, iter_payload, records_payload

NOW = 1_700_000_000_000
fields = st.none() | st.binary(max_size=200)
records = st.lists(
    st.tuples(
        st.integers(-70_000, 70_000),
        st.integers(1, 3000),
        fields,
        fields,
        st.lists(st.tuples(st.text(max_size=5), fields), max_size=2),
    ),
    min_size=1,
    max_size=8,
)


def batch_of(drawn):
    offset = 0
    listed = []
    for delta, step, key, value, headers in drawn:
        listed.append(Record(offset, NOW + delta, key, value, tuple(headers)))
        offset += step
    batch = build_batch(listed)
    header = read_header(batch)
    return header, records_payload(batch, header)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(records, st.data())
def test_spans_equal_records(drawn: list[Record], data: st.DataObject) -> None:
    header, payload = batch_of(drawn)
    spans = record_spans(payload, header.records_count)
    whole = list(iter_payload(header, payload))
    assert [
        (span.offset_delta, header.base_timestamp + span.timestamp_delta, span.key, span.has_value)
        for span in spans
    ] == [
        (record.offset, record.timestamp, record.key, record.value is not None) for record in whole
    ]
    assert join_spans(payload, spans, [span.timestamp_delta for span in spans]) == payload
    # Some of them, told from another base timestamp: as the builder writes them.
    chosen = data.draw(st.lists(st.sampled_from(range(len(spans))), min_size=1, unique=True))
    chosen.sort()
    shift = data.draw(st.sampled_from([0, 1, -5, 86_400_000]))
    kept = [spans[index] for index in chosen]
    joined = join_spans(payload, kept, [span.timestamp_delta + shift for span in kept])
    moved = header._replace(base_timestamp=header.base_timestamp - shift, records_count=len(chosen))
    assert list(iter_payload(moved, joined)) == [whole[index] for index in chosen]


def test_what_does_not_fit_is_refused() -> None:
    header, payload = batch_of([(0, 1, b"k", b"v" * 100, [("h", None)]), (1, 1, None, None, [])])
    for end in range(len(payload)):
        with pytest.raises(ProtocolError):
            record_spans(payload[:end], header.records_count)
    with pytest.raises(ProtocolError):
        record_spans(payload + b"\0", header.records_count)
    with pytest.raises(ProtocolError):
        record_spans(payload, 1)
    assert record_spans(b"", 0) == []


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.binary(max_size=40), st.integers(0, 3))
def test_noise_is_refused_in_words(noise: bytes, count: int) -> None:
    try:
        record_spans(noise, count)
    except ProtocolError:
        return
