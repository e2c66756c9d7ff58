"""What each API asks the authorizer for: all of them in all versions, without a right, and the
parts of requests that a caller may see."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

import pytest

from support import rights
from support.handler_calls import RecordingPeer, make_context
from support.metadata import cluster, topic
from support.turns import counting_turns
from tidelog.authorization.guard import ASKED_AT_ONCE, Guards
from tidelog.authorization.table import broker_guards, controller_guards
from tidelog.config.broker import BrokerConfig
from tidelog.network.dispatch import Dispatcher
from tidelog.network.wide_requests import WIDE_BYTES
from tidelog.security.acls import (
    CLUSTER_NAME,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tidelog.security.authorizer import Authorizer
from tidelog.security.principal import Principal
from tidelog_bench.loads import hostile
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.frames import RequestHeader, request_frame
from tidelog_protocol.messages.admin import CreateTopicsResponse
from tidelog_protocol.messages.cluster import DescribeTopicPartitionsResponse, MetadataResponse
from tidelog_protocol.messages.data import ProduceRequest, ProduceResponse
from tidelog_protocol.messages.groups import FindCoordinatorRequest
from tidelog_protocol.schema import StructType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.authorization.guard import Guard

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
IMAGE = cluster(topic("x", 1), topic("y", 2))
TABLES: Mapping[str, Mapping[ApiKey, Guard | None]] = {
    "broker": broker_guards(creates_topics=True),
    "controller": controller_guards(),
}
ROWS = {row.key: row for row in rights.rows()}
GUARDED = [
    key
    for key, row in ROWS.items()
    if TABLES[row.listener][row.api.key] is not None and row.refusal != rights.FREE
]


def guards(listener: str = "broker", *acls: Acl) -> Guards:
    config = BrokerConfig.from_properties(
        {"node.id": "1", "authorizer.class.name": STANDARD, "super.users": "User:root"}
    )
    known = {bytes([n]): acl for n, acl in enumerate(acls)}
    return Guards(
        Authorizer(config, lambda: known),
        lambda: IMAGE,
        TABLES[listener],
        trusts_brokers=listener == "controller",
    )


def allow(operation: Operation, kind: ResourceType, name: str) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, "User:alice", "*", operation, Permission.ALLOW)


IDS = {name: known.topic_id for name, known in IMAGE.topics.items()}


def request_of(key: ApiKey, version: int) -> Any:
    return rights.request_of(API[key], version, IDS, ("x",))


def refusals_in(struct: Any) -> set[str]:
    return {
        name.removesuffix("_AUTHORIZATION_FAILED")
        for name in (ErrorCode(code).name for code in errors_in(struct))
        if name.endswith("_AUTHORIZATION_FAILED")
    }


def errors_in(struct: Any) -> set[int]:
    found = set()
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if field.name.endswith("error_code"):
            found.add(value)
        elif field.kind == "array" and isinstance(field.element, StructType):
            for each in value or ():
                found |= errors_in(each)
    return found - {0}


def unreachable(context: Any, request: Any) -> Any:
    raise AssertionError(f"the handler was asked by {context.peer.principal}: {request}")


def nothing(context: Any, request: Any) -> Any:
    del request
    return API[context.api_key].response()


def ask(
    key: ApiKey,
    request: Any,
    version: int,
    *acls: Acl,
    listener: str = "broker",
    user: str = "alice",
    handler: Any = unreachable,
) -> Any:
    peer = RecordingPeer()
    peer.principal = Principal("User", user)
    context = make_context(key, version, peer=peer)
    answer = guards(listener, *acls).wrap(key, handler)(context, request)
    return "closed" if peer.closed else answer


@pytest.mark.parametrize("key", GUARDED)
def test_each_row_asks_for_its_rights(key: str) -> None:
    row = ROWS[key]
    for version in row.versions:
        request = row.request(version, IDS)
        held = [
            tuple(
                allow(operation, kind, name)
                for operation, kind in alternative
                for name in _names_of(kind)
            )
            for alternative in row.rights
        ]
        for acls in ((), *held):
            answer = ask(
                row.api.key, request, version, *acls, listener=row.listener, handler=nothing
            )
            expected = set() if acls or row.refusal == rights.LESS else {row.refusal}
            codec = row.api.response_codec(version)
            if answer.__class__ is not list:  # a body that is encoded already
                answer = codec.decode(codec.encode(answer))
                assert refusals_in(answer) == expected, (version, acls)


def _names_of(kind: ResourceType) -> tuple[str, ...]:
    return (CLUSTER_NAME,) if kind == ResourceType.CLUSTER else ("x", rights.NEW)


def test_each_api_has_a_row_for_each_listener_and_version() -> None:
    covered: dict[tuple[str, ApiKey], set[int]] = {}
    for row in ROWS.values():
        covered.setdefault((row.listener, row.api.key), set()).update(row.versions)
    served = {
        (listener, key): set(range(API[key].min_version, API[key].max_version + 1))
        for key in ApiKey
        for listener, is_served in (
            ("broker", API[key].on_brokers),
            ("controller", API[key].on_controllers),
        )
        if is_served
    }
    assert covered == served
    assert {"broker", "controller"} == {row.listener for row in ROWS.values()}


@pytest.mark.parametrize("listener", TABLES)
def test_super_users_pass(listener: str) -> None:
    for key, guard in TABLES[listener].items():
        if guard is not None:
            answer = ask(
                key, request_of(key, 4), 4, listener=listener, user="root", handler=nothing
            )
            assert errors_in(answer) == set()


def test_every_api_has_an_entry() -> None:
    assert TABLES["broker"].keys() | TABLES["controller"].keys() == set(ApiKey)


def test_brokers_pass_on_the_controllers_listener() -> None:
    own = allow(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    request = request_of(ApiKey.CREATE_TOPICS, 7)
    kept = ask(ApiKey.CREATE_TOPICS, request, 7, own, listener="controller", handler=nothing)
    assert kept.topics == []
    refused = ask(ApiKey.CREATE_TOPICS, request, 7, own, handler=nothing)
    assert errors_in(refused) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


# ---- parts of requests ------------------------------------------------------------------------

WRITE_X = allow(Operation.WRITE, ResourceType.TOPIC, "x")


def produce(*names: str, acks: int = 1, records: bytes = bytes(61)) -> ProduceRequest:
    Topic = ProduceRequest.TopicProduceData  # noqa: N806 - a class
    part = Topic.PartitionProduceData(index=3, records=records)
    return ProduceRequest(
        acks=acks, topic_data=[Topic(name=name, partition_data=[part]) for name in names]
    )


def produced(context: Any, request: Any) -> Any:
    """Answer as the data path does: with an encoded body."""
    Topic = ProduceResponse.TopicProduceResponse  # noqa: N806 - a class
    done = [Topic.PartitionProduceResponse(index=3, base_offset=7)]
    answer = ProduceResponse(
        responses=[Topic(name=each.name, partition_responses=done) for each in request.topic_data]
    )
    return API[0].response_codec(context.api_version).encode_parts(answer)


def test_a_producer_is_told_of_each_topic() -> None:
    answer = ask(ApiKey.PRODUCE, produce("x", "y"), 9, WRITE_X, handler=produced)
    parts = {each.name: each.partition_responses[0] for each in answer.responses}
    assert (parts["x"].error_code, parts["x"].base_offset) == (0, 7)
    assert (parts["y"].error_code, parts["y"].base_offset) == (29, -1)
    untouched = ask(ApiKey.PRODUCE, produce("x"), 9, WRITE_X, handler=produced)
    assert isinstance(untouched, list)


def test_a_producer_without_acknowledgements_is_cut_off() -> None:
    assert ask(ApiKey.PRODUCE, produce("y", acks=0), 9) == "closed"
    some = produce("x", "y", acks=0)
    assert ask(ApiKey.PRODUCE, some, 9, WRITE_X, handler=lambda *_: None) == "closed"


def test_transactional_records_need_the_transactional_id() -> None:
    records = bytearray(61)
    records[22] = 0x10
    request = produce("x", records=bytes(records))
    request.transactional_id = "t"
    refused = ask(ApiKey.PRODUCE, request, 9, WRITE_X)
    assert errors_in(refused) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    own = allow(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "t")
    assert isinstance(ask(ApiKey.PRODUCE, request, 9, WRITE_X, own, handler=produced), list)


def test_offsets_of_share_groups_are_altered_topic_by_topic() -> None:
    own = allow(Operation.READ, ResourceType.GROUP, "x")
    request = request_of(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0)
    refused = ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, request, 0, own, handler=nothing)
    assert errors_in(refused) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_a_late_response_is_completed_when_it_is_encoded() -> None:
    parked: list[Any] = []

    def park(context: Any, request: Any) -> Any:
        parked.append((context, request))
        return context.defer()

    dispatcher = Dispatcher({ApiKey.FIND_COORDINATOR: park})
    own = allow(Operation.DESCRIBE, ResourceType.GROUP, "x")
    dispatcher.guard(guards("broker", own).wrap)
    peer = RecordingPeer()
    peer.principal = Principal("User", "alice")
    api = API[ApiKey.FIND_COORDINATOR]
    request = FindCoordinatorRequest(coordinator_keys=["x", "z"])
    frame = b"".join(request_frame(api, RequestHeader(10, 4, 1, "c"), request))[4:]
    context = dispatcher.dispatch(peer, frame)
    assert context.deferred is not None
    assert parked[0][1].coordinator_keys == ["x"]
    Coordinator = api.response.Coordinator  # type: ignore[attr-defined] # noqa: N806 - a class
    answer = api.response(coordinators=[Coordinator(key="x", node_id=1, host="h", port=1)])
    body = b"".join(dispatcher.encode(context, answer))[9:]
    found = api.response_codec(4).decode(body).coordinators
    assert [(each.key, each.error_code) for each in found] == [("x", 0), ("z", 30)]


def test_metadata_hides_topics_and_shows_the_callers_operations() -> None:
    def all_topics(context: Any, request: Any) -> Any:
        del context
        names = "xy" if request.topics is None else [each.name for each in request.topics]
        Topic = MetadataResponse.MetadataResponseTopic  # noqa: N806 - a class
        return MetadataResponse(topics=[Topic(name=name) for name in names])

    request = API[ApiKey.METADATA].request(topics=None, include_topic_authorized_operations=True)
    answer = ask(ApiKey.METADATA, request, 9, WRITE_X, handler=all_topics)
    (shown,) = answer.topics
    operations = 1 << Operation.WRITE | 1 << Operation.DESCRIBE
    assert (shown.name, shown.topic_authorized_operations) == ("x", operations)
    named = request_of(ApiKey.METADATA, 9)
    named.topics = [type(named.topics[0])(name=name) for name in ("x", "y", "new")]
    answer = ask(ApiKey.METADATA, named, 9, WRITE_X, handler=all_topics)
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("x", 0),
        ("y", 29),
        ("new", 29),
    ]


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS])
def test_the_operations_on_thousands_of_topics_are_looked_up_in_turns(key: ApiKey) -> None:
    """On each topic the authorizer is asked for each operation."""
    api, count = API[key], 3 * ASKED_AT_ONCE
    response_of: Any = {
        ApiKey.METADATA: lambda: MetadataResponse(
            topics=[MetadataResponse.MetadataResponseTopic(name="x") for _ in range(count)]
        ),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda: DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(name="x")
                for _ in range(count)
            ],
            next_cursor=None,
        ),
    }[key]
    peer = RecordingPeer()
    peer.principal = Principal("User", "alice")
    request = request_of(key, api.max_version)
    if key == ApiKey.METADATA:
        request.include_topic_authorized_operations = True
    handler = guards("broker", WRITE_X).wrap(key, lambda _, __: response_of())
    narrow, wide = (make_context(key, api.max_version, peer=peer) for _ in range(2))
    at_once = handler(narrow, request)
    wide.size = WIDE_BYTES + 1
    answer, turns = counting_turns(handler, wide, request)
    assert answer == at_once
    assert {each.topic_authorized_operations for each in answer.topics[:count]} == {
        1 << Operation.WRITE | 1 << Operation.DESCRIBE
    }
    assert turns > 3


@pytest.mark.parametrize(
    "name",
    [
        "AlterShareGroupOffsets topics",
        "CreateTopics topics",
        "DeleteGroups groups_names",
        "DeleteRecords topics",
        "DeleteShareGroupOffsets topics",
        "DeleteTopics topics",
        "DescribeConfigs resources",
        "DescribeGroups groups",
        "DescribeProducers topics",
        "DescribeShareGroupOffsets groups",
        "DescribeShareGroupOffsets groups.topics",
        "DescribeTopicPartitions topics",
        "DescribeTransactions transactional_ids",
        "FindCoordinator coordinator_keys",
        "IncrementalAlterConfigs resources",
        "ListOffsets topics",
        "Metadata topics",
        "OffsetDelete topics",
        "OffsetFetch groups",
        "TxnOffsetCommit topics",
    ],
)
def test_thousands_of_names_are_refused_in_turns(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = 8
    monkeypatch.setattr(hostile, "elements_max", lambda _: parts * ASKED_AT_ONCE + 2)
    served = {key for key, guard in TABLES["broker"].items() if guard is not None}
    names = hostile.Names("plain", bytes(16), "a-group")
    attack = next(each for each in hostile.requests(served, names) if each.name == name)
    key = ApiKey(struct.unpack(">h", attack.frame()[4:6])[0])
    acls = [
        allow(Operation.ALL, ResourceType.GROUP, "a-group"),
        allow(Operation.ALL, ResourceType.TRANSACTIONAL_ID, "plain"),
    ]

    async def test() -> int:
        dispatcher = Dispatcher({key: nothing})
        dispatcher.guard(guards("broker", *acls).wrap)
        peer = RecordingPeer()
        peer.principal = Principal("User", "alice")
        dispatcher.dispatch(peer, attack.frame()[4:])
        turns = 0
        while not peer.responses:
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert asyncio.run(test()) > parts


def test_a_long_answer_to_a_short_request_is_completed_in_turns() -> None:
    Topic = MetadataResponse.MetadataResponseTopic  # noqa: N806 - a class

    async def all_topics(context: Any, request: Any) -> Any:
        del request
        context.took_turns = True
        return MetadataResponse(topics=[Topic(name="x") for _ in range(3 * ASKED_AT_ONCE)])

    async def test() -> int:
        dispatcher = Dispatcher({ApiKey.METADATA: all_topics})
        dispatcher.guard(guards("broker", WRITE_X).wrap)
        peer = RecordingPeer()
        peer.principal = Principal("User", "alice")
        api = API[ApiKey.METADATA]
        request = api.request(topics=None)
        frame = b"".join(request_frame(api, RequestHeader(3, 12, 1, "c"), request))[4:]
        dispatcher.dispatch(peer, frame)
        turns = 0
        while not peer.responses:
            turns += 1
            await asyncio.sleep(0)
        assert [each.name for each in peer.responses[0].topics] == ["x"] * 3 * ASKED_AT_ONCE
        return turns

    assert asyncio.run(test()) > 4


@pytest.mark.parametrize(
    "key", [ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.DESCRIBE_ACLS], ids=lambda key: key.name
)
def test_a_malformed_request_about_acls_is_not_refused_but_closed(key: ApiKey) -> None:
    request = request_of(key, 3)
    parts = {ApiKey.CREATE_ACLS: "creations", ApiKey.DELETE_ACLS: "filters"}
    acl = getattr(request, parts[key])[0] if key in parts else request
    acl.operation = 0
    with pytest.raises(ProtocolError):
        ask(key, request, 3)


@pytest.mark.parametrize(
    ("key", "operation", "version"),
    [
        (ApiKey.CREATE_TOPICS, Operation.CREATE, 7),
        (ApiKey.CREATE_PARTITIONS, Operation.ALTER, 3),
        (ApiKey.DELETE_TOPICS, Operation.DELETE, 5),
        (ApiKey.DELETE_TOPICS, None, 5),
    ],
)
def test_a_request_without_time_is_asked_whole(
    key: ApiKey, operation: Operation | None, version: int
) -> None:
    """Kafka's controller drops it, with the topics that are denied."""
    request = rights.request_of(API[key], version, IDS, ("x", "y"))
    request.timeout_ms = 0
    acls = () if operation is None else (allow(operation, ResourceType.TOPIC, "x"),)
    asked = []

    def handler(_: Any, seen: Any) -> Any:
        asked.append(seen)
        return API[key].response()

    ask(key, request, version, *acls, handler=handler)
    assert asked == [request]


def test_denied_offsets_of_share_groups_have_a_text_and_an_id() -> None:
    request = rights.request_of(API[ApiKey.ALTER_SHARE_GROUP_OFFSETS], 0, IDS, ("x", "y", "none"))
    group = allow(Operation.READ, ResourceType.GROUP, "x")
    answer = ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, request, 0, group, handler=nothing)
    denied = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    assert {
        each.topic_name: (
            each.topic_id,
            each.partitions[0].error_code,
            each.partitions[0].error_message,
        )
        for each in answer.responses
    } == {name: (IDS.get(name, bytes(16)), *denied) for name in ("x", "y", "none")}


def test_settings_of_a_new_topic_are_hidden() -> None:
    create = allow(Operation.CREATE, ResourceType.TOPIC, "x")
    request = request_of(ApiKey.CREATE_TOPICS, 7)
    Result = CreateTopicsResponse.CreatableTopicResult  # noqa: N806 - a class
    config = Result.CreatableTopicConfigs(
        name="k", value="v", read_only=False, config_source=5, is_sensitive=False
    )

    def made(*_: Any) -> Any:
        result = Result(name="x", num_partitions=1, replication_factor=1, configs=[config])
        return CreateTopicsResponse(topics=[result])

    (hidden,) = ask(ApiKey.CREATE_TOPICS, request, 7, create, handler=made).topics
    assert hidden.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (hidden.configs, hidden.num_partitions, hidden.replication_factor) == ([], -1, -1)


def test_coordinators_of_share_partitions_are_refused_by_name() -> None:
    request = API[ApiKey.FIND_COORDINATOR].request(key_type=2, coordinator_keys=["a:b:0", "c"])
    answer = ask(ApiKey.FIND_COORDINATOR, request, 6, handler=nothing)
    denied = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.", -1, -1)
    assert [
        (each.key, each.error_code, each.error_message, each.node_id, each.port)
        for each in answer.coordinators
    ] == [("a:b:0", *denied), ("c", *denied)]


class Counted(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize(
    ("key", "operation", "kind", "field"),
    [
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, Operation.DESCRIBE, ResourceType.TOPIC, "topics"),
        (ApiKey.DESCRIBE_GROUPS, Operation.DESCRIBE, ResourceType.GROUP, "groups"),
        (ApiKey.DELETE_GROUPS, Operation.DELETE, ResourceType.GROUP, "groups_names"),
        (ApiKey.FIND_COORDINATOR, Operation.DESCRIBE, ResourceType.GROUP, "coordinator_keys"),
    ],
)
def test_thousands_of_names_are_not_searched_in_lists(
    key: ApiKey, operation: Operation, kind: ResourceType, field: str
) -> None:
    """10,000 names, of which half were refused, were compared with each other: half a second."""
    count, version = 400, API[key].max_version
    names = [Counted(f"name-{number}") for number in range(count)]
    acls = [allow(operation, kind, str(name)) for name in names[::2]]
    request = request_of(key, version)
    asked: list[Any] = list(names)
    if key == ApiKey.DESCRIBE_TOPIC_PARTITIONS:
        request.cursor = None
        asked = [type(request).TopicRequest(name=name) for name in names]
    setattr(request, field, asked)
    Counted.compared = 0
    answer = ask(key, request, version, *acls, handler=nothing)
    assert Counted.compared < 20 * count
    assert errors_in(answer) & {29, 30}
