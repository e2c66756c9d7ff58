"""Metadata, DescribeCluster, DescribeTopicPartitions: what a Kafka 4.3.1 answered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.handler_calls import make_context
from support.metadata import CLUSTER_ID, NODE_ID, Metadata, cluster, topic
from support.turns import counting_turns
from tidelog.api.describe_controllers import CLUSTER_OPERATIONS
from tidelog.api.metadata import TOPIC_OPERATIONS, MetadataApi
from tidelog.cluster.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidelog.network.wide_requests import PART_MAX
from tidelog.replication.directory_assignment import LOST_DIRECTORY
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
)
from tidelog_protocol.primitives import ZERO_UUID

VECTORS = Path(__file__).parent / "vectors" / "metadata"
ONE, LOST = ((number).to_bytes(16, "big") for number in (1, 99))
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOT_ASKED = -(1 << 31)


class Published:
    """Stands where the metadata log stands, with an image as a test needs it."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image


def api(image: ClusterImage, metadata: Metadata | None = None) -> MetadataApi:
    metadata = metadata or Metadata()
    return MetadataApi(Published(image), metadata.auto_topics, metadata.config)  # type: ignore[arg-type]


def encoded(key: ApiKey, version: int, response: Any) -> Any:
    """Through the wire and back: what that version can say."""
    codec = API[key].response_codec(version)
    return codec.decode(codec.encode(response))


def ask(
    image: ClusterImage, version: int, *topics: str | tuple[str | None, bytes] | None, **fields: Any
) -> Any:
    wanted = (
        None
        if topics == (None,)
        else [
            MetadataRequest.MetadataRequestTopic(name=t[0], topic_id=t[1])
            if isinstance(t, tuple)
            else MetadataRequest.MetadataRequestTopic(name=t)
            for t in topics
        ]
    )
    fields.setdefault("allow_auto_topic_creation", False)
    request = MetadataRequest(topics=wanted, **fields)
    response = api(image).metadata(make_context(ApiKey.METADATA, version), request)
    return encoded(ApiKey.METADATA, version, response)


# ---- Metadata -----------------------------------------------------------------------------------


def kafkas_frames(name: str) -> tuple[bytes, bytes]:
    lines = dict(line.split() for line in (VECTORS / f"{name}.hex").read_text().splitlines())
    return bytes.fromhex(lines["request"]), bytes.fromhex(lines["response"])


def image_of(response: Any) -> ClusterImage:
    return ClusterImage(
        cluster_id=response.cluster_id or CLUSTER_ID,
        controller_id=response.controller_id,
        brokers={b.node_id: BrokerImage(b.node_id, b.host, b.port) for b in response.brokers},
        topics={
            t.name: TopicImage(
                t.name,
                t.topic_id,
                tuple(
                    PartitionImage(
                        p.partition_index,
                        p.leader_id,
                        p.leader_epoch,
                        0,
                        tuple(p.replica_nodes),
                        tuple(p.isr_nodes),
                    )
                    for p in t.partitions
                ),
                t.is_internal,
            )
            for t in response.topics
        },
        topic_names={t.topic_id: t.name for t in response.topics},
    )


@pytest.mark.parametrize(
    ("name", "version"), [("v1-all", 1), ("v4-none", 4), ("v12-all", 12), ("v13-all", 13)]
)
def test_bytes_of_a_kafka(name: str, version: int) -> None:
    served = API[ApiKey.METADATA]
    request_frame, response_frame = kafkas_frames(f"metadata-{name}")
    flexible = version >= served.flexible_from
    client_id_end = 10 + int.from_bytes(request_frame[8:10], "big")
    request = served.request_codec(version).decode(request_frame, client_id_end + flexible)
    body = response_frame[4 + flexible :]
    image = image_of(served.response_codec(version).decode(body))
    context = make_context(ApiKey.METADATA, version)
    assert served.response_codec(version).encode(api(image).metadata(context, request)) == body


@pytest.mark.parametrize("version", range(14))
def test_every_version_names_the_topic(version: int) -> None:
    response = ask(cluster(topic("t", 1)), version, "t")
    (found,) = response.topics
    assert (found.name, found.error_code) == ("t", ErrorCode.NONE)
    assert found.topic_id == (ONE if version >= 10 else bytes(16))
    assert found.partitions[0].leader_id == NODE_ID
    assert response.brokers[0].port == 9092
    assert response.cluster_id == (CLUSTER_ID if version >= 2 else None)
    assert response.controller_id == (NODE_ID if version >= 1 else -1)
    assert response.error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "topics", "expected"),
    [
        (0, (), ["a", "b"]),
        (1, (), []),
        (1, (None,), ["a", "b"]),
        (12, (), []),
        (12, (None,), ["a", "b"]),
        (12, ("b", "a", "b"), ["b", "a"]),
    ],
)
def test_all_none_and_some(version: int, topics: Any, expected: list[str]) -> None:
    response = ask(cluster(topic("a", 1), topic("b", 2)), version, *topics)
    assert [found.name for found in response.topics] == expected


def test_missing_topics_come_after_the_known() -> None:
    response = ask(cluster(topic("a", 1)), 12, "nix", "a b", "", "__transaction_state", "a")
    assert [(t.name, t.error_code, t.is_internal) for t in response.topics] == [
        ("a", ErrorCode.NONE, False),
        ("nix", UNKNOWN, False),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION, False),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION, False),
        ("__transaction_state", UNKNOWN, True),
    ]
    assert all(t.partitions == [] and t.topic_id == bytes(16) for t in response.topics[1:])


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ([(None, ONE)], [("a", ONE, 0)]),
        ([("b", ONE)], [("a", ONE, 0)]),
        ([(None, ONE), ("b", bytes(16))], [("a", ONE, 0)]),
        ([(None, LOST)], [(None, LOST, 100)]),
        ([("b", LOST), (None, ONE), (None, ONE)], [(None, LOST, 100), ("a", ONE, 0)]),
    ],
)
def test_by_id(topics: Any, expected: list[tuple[Any, ...]]) -> None:
    response = ask(cluster(topic("a", 1), topic("b", 2)), 12, *topics)
    assert [(t.name, t.topic_id, t.error_code) for t in response.topics] == expected


@pytest.mark.parametrize(
    ("version", "asked", "code"),
    [
        (10, (None, ONE), ErrorCode.INVALID_REQUEST),
        (11, ("x", ONE), ErrorCode.INVALID_REQUEST),
        (11, (None, bytes(16)), ErrorCode.INVALID_REQUEST),
        (12, (None, bytes(16)), ErrorCode.UNKNOWN_SERVER_ERROR),
        (13, (None, bytes(16)), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_malformed_requests(version: int, asked: Any, code: ErrorCode) -> None:
    response = ask(cluster(topic("a", 1)), version, asked)
    assert (response.brokers, response.controller_id, response.cluster_id) == ([], -1, None)
    assert [(t.name, t.error_code) for t in response.topics] == [(asked[0] or "", code)]
    assert response.error_code == (code if version >= 13 else 0)


@pytest.mark.parametrize(("version", "clusters"), [(8, True), (10, True), (12, False)])
def test_authorized_operations(version: int, clusters: bool) -> None:
    response = ask(
        cluster(topic("a", 1)),
        version,
        "a",
        "nix",
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=clusters,
    )
    assert [t.topic_authorized_operations for t in response.topics] == [3576, 3576]
    assert response.cluster_authorized_operations == (8096 if clusters else NOT_ASKED)
    quiet = ask(cluster(topic("a", 1)), version, "a")
    assert quiet.topics[0].topic_authorized_operations == NOT_ASKED
    assert quiet.cluster_authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", [5, 12])
def test_a_broker_without_the_clients_listener_is_left_out(version: int) -> None:
    here, there = ("PLAINTEXT", "here", 1, 0), ("OUTSIDE", "there", 2, 0)
    partitions = tuple(PartitionImage(n, 1 + n, 0, 0, (1, 2), (1, 2)) for n in range(2))
    image = ClusterImage(
        cluster_id=CLUSTER_ID,
        brokers={
            1: BrokerImage(1, "there", 2, endpoints=(there, here)),
            2: BrokerImage(2, "there", 2, endpoints=(there,)),
        },
        topics={"t": TopicImage("t", ONE, partitions)},
        topic_names={ONE: "t"},
    )
    response = ask(image, version, "t")
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [(1, "here", 1)]
    hidden = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    (found,) = response.topics
    assert [(p.error_code, p.leader_id) for p in found.partitions] == [(0, 1), (hidden, -1)]


def test_brokers_that_are_away() -> None:
    image = cluster(
        topic("a", 1, replicas=(1, 2)),
        topic("b", 2, replicas=(2, 1)),
        brokers=[BrokerImage(1, "h", 1, rack="r"), BrokerImage(2, "h", 2, fenced=True)],
    )
    response = ask(image, 12, "a", "b")
    assert [(b.node_id, b.rack) for b in response.brokers] == [(1, "r")]
    (led,), (orphan,) = (t.partitions for t in response.topics)
    assert (led.error_code, led.leader_id, led.offline_replicas) == (0, 1, [2])
    assert led.replica_nodes == led.isr_nodes == [1, 2]
    assert (orphan.error_code, orphan.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    old = ask(image, 0, "a", "b")
    (led,), (orphan,) = (t.partitions for t in old.topics)
    assert (led.error_code, led.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [1])
    assert orphan.error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_replicas_in_offline_directories() -> None:
    one, two, gone = (bytes([n]) * 16 for n in (1, 2, 3))
    brokers = [BrokerImage(1, "h", 1, log_dirs=(one,)), BrokerImage(2, "h", 2, log_dirs=(two,))]
    image = cluster(topic("a", 1, replicas=(1, 2)), brokers=brokers)
    (state,) = image.topics["a"].partitions
    for directories, offline in (
        ((), []),
        ((one, two), []),
        ((one, ZERO_UUID), []),
        ((one, gone), [2]),
        ((gone, LOST_DIRECTORY), [1, 2]),
    ):
        known = image.topics["a"]._replace(partitions=(state._replace(directories=directories),))
        response = ask(image._replace(topics={"a": known}), 12, "a")
        assert response.topics[0].partitions[0].offline_replicas == offline


@pytest.mark.parametrize("version", [0, 1, 3, 4, 9, 12, 13])
def test_automatic_creation_answers_unknown_first(version: int) -> None:
    async def run() -> None:
        metadata = Metadata()
        await metadata.register()
        handler = MetadataApi(metadata.log, metadata.auto_topics, metadata.config)
        context = make_context(ApiKey.METADATA, version)
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="new")])
        for _ in range(2):  # the second finds it being created
            (found,) = handler.metadata(context, request).topics
            assert (found.name, found.error_code, found.partitions) == ("new", UNKNOWN, [])
        await metadata.auto_topics.close()
        (found,) = handler.metadata(context, request).topics
        assert (found.error_code, len(found.partitions)) == (ErrorCode.NONE, 1)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [({"auto_create_topics_enable": "false"}, True), ({}, False)],
)
def test_automatic_creation_may_be_forbidden(settings: dict[str, str], allowed: bool) -> None:
    async def run() -> None:
        metadata = Metadata(**settings)
        await metadata.register()
        handler = MetadataApi(metadata.log, metadata.auto_topics, metadata.config)
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name="new")],
            allow_auto_topic_creation=allowed,
        )
        handler.metadata(make_context(ApiKey.METADATA, 12), request)
        await metadata.auto_topics.close()
        assert metadata.log.image.topics == {}

    asyncio.run(run())


# ---- DescribeCluster ----------------------------------------------------------------------------


def describe_cluster(version: int, **fields: Any) -> Any:
    image = cluster(brokers=[BrokerImage(2, "b", 2, fenced=True), BrokerImage(1, "a", 1, rack="r")])
    context = make_context(ApiKey.DESCRIBE_CLUSTER, version)
    response = api(image).describe_cluster(context, DescribeClusterRequest(**fields))
    return encoded(ApiKey.DESCRIBE_CLUSTER, version, response)


@pytest.mark.parametrize("version", range(3))
def test_cluster(version: int) -> None:
    response = describe_cluster(version, include_cluster_authorized_operations=True)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    assert (response.cluster_id, response.controller_id) == (CLUSTER_ID, NODE_ID)
    assert [(b.broker_id, b.host, b.port, b.rack) for b in response.brokers] == [(1, "a", 1, "r")]
    assert response.cluster_authorized_operations == CLUSTER_OPERATIONS == 8096
    assert describe_cluster(version).cluster_authorized_operations == NOT_ASKED


@pytest.mark.parametrize(("fenced", "expected"), [((), 1), ((1,), 2), ((1, 2), 3), ((1, 2, 3), -1)])
def test_clients_ask_a_broker_they_can_reach_if_the_controllers_broker_is_fenced(
    fenced: tuple[int, ...], expected: int
) -> None:
    image = cluster(
        brokers=[BrokerImage(number, "h", number, fenced=number in fenced) for number in (1, 2, 3)]
    )
    assert image.controller_id == 1
    assert ask(image, 13).controller_id == expected
    for version in (0, 2):
        context = make_context(ApiKey.DESCRIBE_CLUSTER, version)
        asked = DescribeClusterRequest(include_fenced_brokers=version == 2)
        assert api(image).describe_cluster(context, asked).controller_id == expected


def test_fenced_brokers_when_asked() -> None:
    response = describe_cluster(2, include_fenced_brokers=True)
    assert [(b.broker_id, b.is_fenced) for b in response.brokers] == [(1, False), (2, True)]


@pytest.mark.parametrize(
    ("endpoint", "code", "text"),
    [
        (
            2,
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER",
        ),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 3"),
    ],
)
def test_other_endpoints(endpoint: int, code: ErrorCode, text: str) -> None:
    response = describe_cluster(1, endpoint_type=endpoint)
    assert (response.error_code, response.error_message) == (code, text)
    assert (response.cluster_id, response.controller_id, response.brokers) == ("", -1, [])
    assert response.endpoint_type == 1


# ---- DescribeTopicPartitions --------------------------------------------------------------------

TOPICS = cluster(topic("p5", 1, partitions=5), topic("auto1", 2), topic("__consumer_offsets", 3))


def describe(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else DescribeTopicPartitionsRequest.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    context = make_context(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
    response = api(TOPICS).describe_topic_partitions(context, request)
    return encoded(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, response)


def test_an_empty_name_fails_all_that_is_asked() -> None:
    """As in Kafka, whose code fails on it."""
    found = describe("p5", "").topics
    unknown = ErrorCode.UNKNOWN_SERVER_ERROR
    assert [(each.name, each.error_code) for each in found] == [("p5", unknown), ("", unknown)]


@pytest.mark.parametrize(
    ("names", "limit", "cursor", "topics", "next_cursor"),
    [
        (
            ["p5", "auto1", "nix"],
            2000,
            None,
            [("auto1", [0]), ("nix", []), ("p5", [0, 1, 2, 3, 4])],
            None,
        ),
        (["p5", "auto1"], 2, None, [("auto1", [0]), ("p5", [0])], ("p5", 1)),
        ([], 1, None, [("__consumer_offsets", [0])], ("auto1", 0)),
        (["p5", "auto1"], 2, ("p5", 2), [("p5", [2, 3])], ("p5", 4)),
        (["p5"], 2, ("p5", 4), [("p5", [4])], None),
        (["p5"], 2, ("p5", 9), [("p5", [])], None),
        (["p5"], 0, None, [("p5", [0])], ("p5", 1)),
        (["p5"], -3, None, [("p5", [0])], ("p5", 1)),
        (["nix"], 10, ("nix", 0), [("nix", [])], None),
        (["p5", "p5"], 1, None, [("p5", [0])], ("p5", 1)),
        (["p5", "auto1", "zz"], 6, None, [("auto1", [0]), ("p5", [0, 1, 2, 3, 4])], ("zz", 0)),
        (["p5", "auto1", "zz"], 5, None, [("auto1", [0]), ("p5", [0, 1, 2, 3])], ("p5", 4)),
        ([], 2000, ("b", 0), [("p5", [0, 1, 2, 3, 4])], None),
    ],
)
def test_pages(
    names: list[str],
    limit: int,
    cursor: tuple[str, int] | None,
    topics: list[tuple[str, list[int]]],
    next_cursor: tuple[str, int] | None,
) -> None:
    response = describe(*names, limit=limit, cursor=cursor)
    found = [(t.name, [p.partition_index for p in t.partitions]) for t in response.topics]
    assert found == topics
    end = response.next_cursor
    assert (None if end is None else (end.topic_name, end.partition_index)) == next_cursor
    assert all(t.topic_authorized_operations == TOPIC_OPERATIONS == 3576 for t in response.topics)


def test_the_pages_together_are_the_whole() -> None:
    seen = []
    cursor = None
    for _ in range(20):
        response = describe(limit=2, cursor=cursor)
        seen += [(t.name, p.partition_index) for t in response.topics for p in t.partitions]
        if response.next_cursor is None:
            break
        cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
    assert seen == [
        ("__consumer_offsets", 0),
        ("auto1", 0),
        *(("p5", index) for index in range(5)),
    ]


def test_lists_are_empty_not_null() -> None:
    (partition,) = describe("auto1").topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch) == (1, 0)
    assert partition.eligible_leader_replicas == partition.last_known_elr == []
    assert partition.offline_replicas == []


@pytest.mark.parametrize("cursor", [("zzz", 0), ("p5", -1)])
def test_cursors_that_lead_nowhere(cursor: tuple[str, int]) -> None:
    response = describe("p5", limit=2, cursor=cursor)
    assert [(t.name, t.error_code) for t in response.topics] == [("p5", ErrorCode.INVALID_REQUEST)]
    assert response.topics[0].topic_authorized_operations == NOT_ASKED


def test_errors_of_topics() -> None:
    assert [(t.name, t.error_code) for t in describe("a b", "nix").topics] == [
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nix", UNKNOWN),
    ]


def wide_topic(name: str, width: int) -> TopicImage:
    partitions = tuple(
        PartitionImage(index, NODE_ID, 0, 0, (NODE_ID,), (NODE_ID,)) for index in range(width)
    )
    return TopicImage(name, ONE, partitions)


@pytest.mark.parametrize("asks_all", [True, False])
@pytest.mark.parametrize(
    ("widths", "parts"),
    [((1, 2), 1), ((PART_MAX - 1,), 1), ((3 * PART_MAX,), 3), ((1,) * (2 * PART_MAX), 4)],
)
def test_many_partitions_are_described_in_turns(
    widths: tuple[int, ...], parts: int, *, asks_all: bool
) -> None:
    topics = {f"t{number}": wide_topic(f"t{number}", width) for number, width in enumerate(widths)}
    image = cluster()._replace(topics=topics)
    asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    request = MetadataRequest(topics=None if asks_all else asked)
    context = make_context(ApiKey.METADATA, 12)
    response, turns = counting_turns(api(image).metadata, context, request)
    assert [each.name for each in response.topics] == [*topics]
    for each, width in zip(response.topics, widths, strict=True):
        assert [entry.partition_index for entry in each.partitions] == [*range(width)]
    assert turns == 0 if parts == 1 else turns >= parts
