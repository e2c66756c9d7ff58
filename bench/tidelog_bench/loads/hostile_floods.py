"""What a hostile client asks for more of than one request may have: connections, members, small
requests in one piece, partitions, and resources that thousands of ACLs are about.

`hostile.py` has single requests as wide as they may be.
"""

from __future__ import annotations

import ssl
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.embedded.simple_client import SimpleClient, create_topic
from tidelog_bench.loads.hostile import (
    HANGS_UP,
    NOTHING,
    PLAIN,
    TO_THE_END,
    Attack,
    frame_of,
    repeated,
)
from tidelog_protocol.messages.acls import CreateAclsRequest
from tidelog_protocol.messages.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeLogDirsRequest,
)
from tidelog_protocol.messages.cluster import (
    ApiVersionsRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
)
from tidelog_protocol.messages.configs import DescribeConfigsRequest
from tidelog_protocol.messages.data import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from tidelog_protocol.messages.groups import FindCoordinatorRequest, JoinGroupRequest
from tidelog_protocol.messages.txn_admin import ListTransactionsRequest
from tidelog_protocol.messages.txns import InitProducerIdRequest, WriteTxnMarkersRequest
from tidelog_protocol.records import Record, build_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["WITH_ACLS", "add_acls", "floods", "joins"]

MANY = "many"
PARTITIONS = 10_000
ACLS = 5_000
ACLS_AT_ONCE = 2_000
LATEST = -1
WAIT_S_MAX = 120.0
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
PREFIXED, LITERAL = 4, 3
WRITE, ALLOW = 4, 3
TRANSACTION = 1
PIPELINED = 200_000  # bytes of small requests in one piece
WITH_ACLS = (
    "CreateTopics topics",
    "DeleteTopics topics",
    "Metadata topics",
    "DescribeTopicPartitions topics",
    "DescribeConfigs resources",
    "IncrementalAlterConfigs resources",
    "ListOffsets topics.partitions in pairs",
    "Produce topic_data.partition_data in pairs",
    "Fetch topics.partitions in pairs",
    "FindCoordinator coordinator_keys",
    "DescribeGroups groups",
    "OffsetFetch groups",
    "OffsetCommit topics.partitions in pairs",
    "AddPartitionsToTxn transactions.topics",
    "WriteTxnMarkers markers.topics",
    "TxnOffsetCommit topics.partitions in pairs",
    "CreateAcls creations",
    "DeleteAcls filters",
)
"""Wide requests that ask the authorizer for each of their elements."""


def floods() -> Iterator[Attack]:
    """Yield them."""
    yield from _connections()
    yield from _members()
    yield from _small_requests()
    yield from _names()
    yield from _partitions()


# -- connections -----------------------------------------------------------------------------------


def _connections() -> Iterator[Attack]:
    many = partial(repeated, b"", b"\1\0")
    yield Attack("95 MB of tagged fields before SASL", partial(many, 47_000_000), door="sasl")
    yield Attack("500 KB of tagged fields before SASL", partial(many, 250_000), door="sasl")
    yield Attack(
        "200 TLS handshakes that stay silent",
        lambda: b"\x16",
        door="tls",
        answers=NOTHING,
        connections=200,
    )
    for count in (8, 100):
        name = f"TLS hellos of {count} clients"
        yield Attack(name, _hello, door="tls", answers=HANGS_UP, connections=count)
    get = b"GET /metrics HTTP/1.0\r\n\r\n"
    yield Attack(
        "200 silent connections to the metrics",
        lambda: get[:9],
        door="metrics",
        answers=NOTHING,
        connections=200,
    )
    yield Attack(
        "4 clients read the metrics", lambda: get, TO_THE_END, connections=4, door="metrics"
    )


def _hello() -> bytes:
    """Return the first bytes of a TLS client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    sent = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        return sent.read()
    raise AssertionError("a handshake ended without a server")


# -- groups and transactions -----------------------------------------------------------------------


def _members() -> Iterator[Attack]:
    yield Attack(
        "10,000 members join a group",
        partial(joins, "flooded", 250),
        answers=NOTHING,
        connections=40,
    )
    yield Attack(
        "50,000 first JoinGroups",
        partial(joins, "flooded", 5_000, version=9),
        5_000,
        connections=10,
    )
    yield Attack(
        "a pattern of ListTransactions, 10 KB",
        lambda: frame_of(ListTransactionsRequest(transactional_id_pattern="a?" * 5_000), 2),
        prepare=_begin_transactions,
    )


def joins(group_id: str, count: int, *, version: int = 3, timeout_ms: int = 60_000) -> bytes:
    """Return JoinGroups of so many new members; each may be silent for so long."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(20))
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=timeout_ms,
        rebalance_timeout_ms=timeout_ms,
        protocol_type="consumer",
        protocols=[protocol],
    )
    return frame_of(request, version) * count


def _begin_transactions(bootstrap: str) -> None:
    with SimpleClient(bootstrap) as client:
        client.ask(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["a"]))
        end = time.monotonic() + WAIT_S_MAX
        number = 0
        while number < 300:
            name = "a" * 100 + str(number)
            asked = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            number += not client.ask(asked).error_code
            if time.monotonic() > end:
                raise TimeoutError("no transactions")


# -- small requests --------------------------------------------------------------------------------


def _small_requests() -> Iterator[Attack]:
    """Each is cheap to send, and thousands arrive at the same moment."""
    broker = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name="1", configuration_keys=None
    )
    every: dict[str, bytes] = {
        "ApiVersions": frame_of(
            ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3
        ),
        "Metadata": frame_of(MetadataRequest(topics=None), 12),
        "DescribeConfigs": frame_of(DescribeConfigsRequest(resources=[broker]), 4),
        "DescribeLogDirs": frame_of(DescribeLogDirsRequest(topics=None), 4),
        "a pattern": frame_of(ListTransactionsRequest(transactional_id_pattern="a?" * 5_000), 2),
    }
    for name, frame in every.items():
        count = PIPELINED // len(frame)
        yield Attack(
            f"200 KB of small requests: {name}",
            partial(bytes.__mul__, frame, count),
            answers=count,
            patience_s=30.0,
        )


# -- topics ----------------------------------------------------------------------------------------


def _names() -> Iterator[Attack]:
    yield Attack("9,000 names that collide by . and _", _colliding)


def _colliding() -> bytes:
    names = [f"{number:014b}".replace("0", ".").replace("1", "_") + "x" for number in range(9_000)]
    return frame_of(CreateTopicsRequest(topics=[_topic(name, 1) for name in names]), 7)


def _topic(name: str, partitions: int) -> Any:
    return CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1
    )


def _partitions() -> Iterator[Attack]:
    made = CreateTopicsRequest(topics=[_topic("made", PARTITIONS)])
    deleted = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name="made")], timeout_ms=60_000
    )
    grown = CreatePartitionsRequest.CreatePartitionsTopic(
        name="made", count=PARTITIONS, assignments=None
    )
    small = CreateTopicsRequest(topics=[_topic("made", 1)])
    names = [f"made-{number}" for number in range(PARTITIONS)]
    topics = CreateTopicsRequest(topics=[_topic(name, 1) for name in names[: PARTITIONS // 2]])
    gone = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in names[:5_000]],
        timeout_ms=60_000,
    )
    grow = frame_of(CreatePartitionsRequest(topics=[grown], timeout_ms=60_000), 3)
    every = {
        "10,000 partitions made and deleted": [frame_of(made, 7), frame_of(deleted, 6)],
        "10,000 partitions added and deleted": [frame_of(small, 7), grow, frame_of(deleted, 6)],
        "5,000 topics made and deleted": [frame_of(topics, 7), frame_of(gone, 6)],
    }
    for name, frames in every.items():
        yield Attack(name, partial(b"".join, frames), answers=len(frames), patience_s=60.0)
    for name, frame in _questions().items():
        yield Attack(
            f"10,000 partitions asked for by {name}",
            partial(bytes, frame),
            patience_s=60.0,
            prepare=_make_many,
        )
    yield Attack(
        "10,000 partitions in the metrics",
        lambda: b"GET /metrics HTTP/1.0\r\n\r\n",
        TO_THE_END,
        door="metrics",
        patience_s=60.0,
        prepare=_make_many,
    )


def _questions() -> dict[str, bytes]:
    numbers = range(PARTITIONS)
    offsets, epochs = ListOffsetsRequest.ListOffsetsTopic, OffsetForLeaderEpochRequest
    fetched = FetchRequest.FetchTopic
    epoch = epochs.OffsetForLeaderTopic.OffsetForLeaderPartition
    markers = WriteTxnMarkersRequest.WritableTxnMarker
    marker = markers(
        producer_id=1,
        topics=[markers.WritableTxnMarkerTopic(name=MANY, partition_indexes=[*numbers])],
    )
    batch = build_batch([Record(0, int(time.time() * 1000), None, bytes(100))])
    data = ProduceRequest.TopicProduceData(
        name=MANY,
        partition_data=[
            ProduceRequest.TopicProduceData.PartitionProduceData(index=n, records=batch)
            for n in numbers
        ],
    )
    asked: list[tuple[Any, int]] = [
        (MetadataRequest(topics=None), 12),
        (_list_offsets(offsets), 7),
        (
            FetchRequest(
                max_wait_ms=0,
                max_bytes=1 << 20,
                session_epoch=-1,
                topics=[
                    fetched(
                        topic=MANY,
                        partitions=[
                            fetched.FetchPartition(
                                partition=n, fetch_offset=0, partition_max_bytes=1 << 20
                            )
                            for n in numbers
                        ],
                    )
                ],
            ),
            12,
        ),
        (
            DescribeTopicPartitionsRequest(
                topics=[DescribeTopicPartitionsRequest.TopicRequest(name=MANY)],
                response_partition_limit=PARTITIONS,
                cursor=None,
            ),
            0,
        ),
        (
            epochs(
                replica_id=-2,
                topics=[
                    epochs.OffsetForLeaderTopic(
                        topic=MANY, partitions=[epoch(partition=n, leader_epoch=0) for n in numbers]
                    )
                ],
            ),
            4,
        ),
        (DescribeLogDirsRequest(topics=None), 4),
        (WriteTxnMarkersRequest(markers=[marker]), 1),
        (ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), 9),
    ]
    return {
        type(request).__name__.removesuffix("Request"): frame_of(request, version)
        for request, version in asked
    }


def _list_offsets(table: type[ListOffsetsRequest.ListOffsetsTopic]) -> ListOffsetsRequest:
    parts = [
        table.ListOffsetsPartition(partition_index=n, timestamp=LATEST) for n in range(PARTITIONS)
    ]
    return ListOffsetsRequest(replica_id=-1, topics=[table(name=MANY, partitions=parts)])


def _make_many(bootstrap: str) -> None:
    """Make the topic, and wait until each partition has its leader."""
    create_topic(bootstrap, MANY, PARTITIONS, {})
    asked = _list_offsets(ListOffsetsRequest.ListOffsetsTopic)
    with SimpleClient(bootstrap, timeout_s=WAIT_S_MAX) as client:
        end = time.monotonic() + WAIT_S_MAX
        while any(each.error_code for each in client.ask(asked).topics[0].partitions):
            if time.monotonic() > end:
                raise TimeoutError(f"partitions of {MANY} have no leader")
            time.sleep(0.1)


# -- ACLs ------------------------------------------------------------------------------------------


def add_acls(bootstrap: str) -> None:
    """Add ACLs of topics that the attacks do not name, and prefixes of the one that they do, for
    another user; and one that lets all write to the topic of the quiet producer."""
    made = [_acl(f"other-{number}", LITERAL, "User:other") for number in range(ACLS)]
    made += [_acl(PLAIN[:length], PREFIXED, "User:other") for length in range(1, len(PLAIN))]
    made.append(_acl(PLAIN, LITERAL, "User:*"))
    with SimpleClient(bootstrap) as client:
        for start in range(0, len(made), ACLS_AT_ONCE):
            client.ask(CreateAclsRequest(creations=made[start : start + ACLS_AT_ONCE]))


def _acl(name: str, pattern: int, principal: str) -> CreateAclsRequest.AclCreation:
    return CreateAclsRequest.AclCreation(
        resource_type=TOPIC_RESOURCE,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host="*",
        operation=WRITE,
        permission_type=ALLOW,
    )
