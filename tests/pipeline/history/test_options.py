"""Options: the Kafka source's names, values and errors."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="the spark extra is not installed")

from tidelog_pipeline.history.options import HistoryOptions, LimitKind

SERVERS = {"kafka.bootstrap.servers": "b:1"}
TOPIC = {**SERVERS, "subscribe": "t"}


def test_defaults_are_those_of_the_kafka_source() -> None:
    options = HistoryOptions.parse(TOPIC)
    assert (options.starting.kind, options.ending.kind) == (LimitKind.EARLIEST, LimitKind.LATEST)
    assert not options.is_committed
    assert options.fails_on_data_loss
    assert not options.includes_headers
    assert HistoryOptions.parse(TOPIC, is_stream=True).starting.kind is LimitKind.LATEST


def test_names_are_case_insensitive() -> None:
    options = HistoryOptions.parse(
        {
            "KAFKA.Bootstrap.Servers": "b:1",
            "SUBSCRIBE": " a , b,a",
            "IncludeHeaders": "TRUE",
            "kafka.Isolation.Level": "READ_COMMITTED",
            "startingOffsetsByTimestampStrategy": "Latest",
            "minpartitions": "7",
            "failondataloss": "False",
        }
    )
    assert options.subscription.topics == ("a", "b")
    assert options.includes_headers
    assert options.is_committed
    assert options.is_latest_unmatched
    assert options.partitions_min == 7
    assert not options.fails_on_data_loss


def test_timestamps_go_before_offsets() -> None:
    given = {**TOPIC, "startingOffsets": '{"t":{"1":-2,"0":3}}'}
    options = HistoryOptions.parse(given)
    assert options.starting.by_partition == ((("t", 0), 3), (("t", 1), -2))
    given["startingOffsetsByTimestamp"] = '{"t":{"0":77}}'
    assert HistoryOptions.parse(given).starting.kind is LimitKind.TIMESTAMPS
    given["startingTimestamp"] = " 99 "
    assert HistoryOptions.parse(given).starting.timestamp == 99


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (SERVERS, "One of the following options must be specified for Kafka source"),
        ({**TOPIC, "assign": "{}"}, "Only one of the following options can be specified"),
        ({"subscribe": "t"}, "Option 'kafka.bootstrap.servers' must be specified"),
        ({**SERVERS, "subscribe": " ,"}, "No topics to subscribe to"),
        ({**SERVERS, "subscribePattern": " "}, "Pattern to subscribe is empty"),
        ({**SERVERS, "subscribePattern": "("}, "subscribePattern: "),
        ({**SERVERS, "assign": "t"}, "No topicpartitions to assign"),
        ({**SERVERS, "assign": '{"t":[-1]}'}, "Expected e.g."),
        ({**SERVERS, "assign": '{"t":0}'}, "Expected e.g."),
        ({**TOPIC, "startingOffsets": "latest"}, "starting offset can't be latest"),
        ({**TOPIC, "endingOffsets": "earliest"}, "ending offset can't be earliest"),
        ({**TOPIC, "startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 can't be latest"),
        ({**TOPIC, "endingOffsets": '{"t":{"0":-2}}'}, "ending offset for t-0 can't be earliest"),
        ({**TOPIC, "startingOffsets": "soon"}, "Expected e.g."),
        ({**TOPIC, "startingOffsets": '{"t":{"0":1.5}}'}, "Expected e.g."),
        ({**TOPIC, "startingOffsets": '{"t":3}'}, "Expected e.g."),
        ({**TOPIC, "startingTimestamp": "today"}, "Expected a single long value, got today"),
        ({**TOPIC, "minPartitions": "0"}, "minPartitions must be positive"),
        ({**TOPIC, "minPartitions": "x"}, "For input string"),
        ({**TOPIC, "includeHeaders": "yes"}, "For input string"),
        ({**TOPIC, "kafka.isolation.level": "none"}, "kafka.isolation.level: 'none' is none of"),
        ({**TOPIC, "kafka.auto.offset.reset": "latest"}, "'auto.offset.reset' is not supported"),
        (
            {**TOPIC, "kafka.security.protocol": "TLS"},
            "kafka.security.protocol: 'TLS' is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        (
            {**TOPIC, "kafka.security.protocol": "sasl_plaintext"},
            "kafka.sasl.jaas.config is missing beside kafka.security.protocol",
        ),
        (
            {
                **TOPIC,
                "kafka.security.protocol": "SSL",
                "kafka.ssl.truststore.location": "/no/such/file",
            },
            "kafka.ssl.truststore.location: /no/such/file: No such file or directory",
        ),
        (
            {**TOPIC, "kafka.sasl.client.callback.handler.class": "x"},
            "kafka.sasl.client.callback.handler.class is not supported",
        ),
        (
            {**TOPIC, "startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":5}}'},
            "start offset 9 greater than end offset 5",
        ),
        (
            {**TOPIC, "startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"1":5}}'},
            "differ: t-0 and t-1",
        ),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is checked below
        HistoryOptions.parse(given)
    assert text in str(caught.value)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ValueError, match="ending offset not valid in streaming"):
        HistoryOptions.parse({**TOPIC, "endingOffsets": "latest"}, is_stream=True)
    with pytest.raises(ValueError, match="ending timestamp not valid in streaming"):
        HistoryOptions.parse({**TOPIC, "endingTimestamp": "1"}, is_stream=True)
    with pytest.raises(ValueError, match="maxOffsetsPerTrigger: Spark tells a Python data source"):
        HistoryOptions.parse({**TOPIC, "MaxOffsetsPerTrigger": "5"}, is_stream=True)


def test_the_stores_properties_are_shown_nowhere() -> None:
    given = {**TOPIC, "rsm.config.access.key": "hush", "rsm.config.bucket": "b"}
    options = HistoryOptions.parse(given)
    assert options.store == (("access.key", "hush"), ("bucket", "b"))
    assert "hush" not in repr(options)
