"""The metrics that clients push, decoded."""

from __future__ import annotations

import struct

import pytest

from support.otlp import counter, field, gauge, metrics_data
from tidelog.metrics import otlp
from tidelog.metrics.otlp import Point, decode, prometheus_name
from tidelog_protocol.compression import Codec, compress
from tidelog_protocol.errors import ProtocolError

DATA = metrics_data(
    gauge("org.apache.kafka.producer.request.latency.avg", 1.5, node_id="node-1"),
    counter("org.apache.kafka.producer.record.send.total", 7.0),
    counter("all.time", 9.0, delta=False),
    group_id="g",
)
POINTS = [
    Point(
        "org_apache_kafka_producer_request_latency_avg",
        False,
        False,
        (("group_id", "g"), ("node_id", "node-1")),
        1.5,
    ),
    Point("org_apache_kafka_producer_record_send", True, True, (("group_id", "g"),), 7.0),
    Point("all_time", True, False, (("group_id", "g"),), 9.0),
]


@pytest.mark.parametrize("codec", Codec)
def test_gauges_and_sums_by_every_codec(codec: Codec) -> None:
    assert decode(codec, compress(codec, DATA), 1 << 20) == (POINTS, 0)


def test_whole_numbers_and_values_of_attributes() -> None:
    attributes = b"".join(
        field(7, field(1, key) + field(2, value))
        for key, value in (
            ("b", field(2, 1)),
            ("i", field(3, -5)),
            ("d", field(4, 0.5)),
            ("other", field(6, b"")),
            ("1st.key", field(1, "x")),
        )
    )
    point = b"\x31" + struct.pack("<q", -3) + attributes
    (made,) = decode(0, metrics_data(field(1, "n") + field(5, field(1, point))), 1 << 20).points
    assert made.value == -3
    assert dict(made.labels) == {"b": "true", "i": "-5", "d": "0.5", "other": "", "_1st_key": "x"}


def test_unknown_fields_are_skipped() -> None:
    more = field(77, "later") + field(78, 5) + field(79, 1.0) + b"\xfd\x04\x01\x02\x03\x04"
    assert decode(0, more + DATA + more, 1 << 20) == (POINTS, 0)


def test_a_point_without_a_value_or_a_name_is_dropped() -> None:
    nameless = field(5, field(1, field(4, 1.0)))
    empty = field(1, "n") + field(5, field(1, b""))
    assert decode(0, metrics_data(nameless, empty), 1 << 20) == ([], 2)


def test_every_cut_is_refused_or_whole() -> None:
    """A message that ends at a field's end is whole; anywhere else it is refused."""
    outcomes = set()
    for size in range(1, len(DATA)):
        try:
            outcomes.add(bool(decode(0, DATA[:size], 1 << 20).points))
        except ProtocolError:
            outcomes.add(None)
    assert outcomes == {None}


@pytest.mark.parametrize(
    "data",
    [
        b"\x0b",  # a group
        b"\x80" * 11,  # a varint without end
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a length of 2^64
        field(1, 5),  # a number where a message belongs
        metrics_data(field(1, 5)),
        metrics_data(field(1, "n") + field(5, field(1, field(4, 5)))),
        metrics_data(field(1, "n") + field(5, field(1, field(7, 5)))),
        metrics_data(field(1, "n") + field(5, 5)),
    ],
)
def test_bytes_that_are_no_metrics(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(0, data, 1 << 20)


def test_the_limit_holds_for_what_is_decompressed() -> None:
    bomb = compress(Codec.ZSTD, bytes(1 << 20))
    assert len(bomb) < 1000
    with pytest.raises(ProtocolError, match="zstd"):
        decode(Codec.ZSTD, bomb, 65536)


def test_points_labels_and_texts_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "POINTS_MAX", 2)
    many = {f"k{index}": "v" * 1000 for index in range(50)}
    points, dropped = decode(0, metrics_data(*[gauge("n" * 1000, 1.0, **many)] * 5), 1 << 24)
    assert (len(points), dropped) == (2, 3)
    assert len(points[0].name) == 128
    assert [len(text) for _, text in points[0].labels] == [128] * 16


def test_names_for_prometheus() -> None:
    assert prometheus_name("a.b-c/ä1") == "a_b_c__1"
    assert prometheus_name("1a") == "_1a"
