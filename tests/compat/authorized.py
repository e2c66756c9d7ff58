"""What clients with few rights are answered: all APIs in all versions, by three principals.

    python -m compat.authorized [--record]      with tests/ on the path: Kafka and tidelog, compared

Listeners without authentication have one user, so the principals are hosts: 127.0.0.1 may do
everything, 127.0.0.2 nothing, 127.0.0.3 may describe what is called `x`, and 127.0.0.4 owns it.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compat.brokers import Tidelog
from compat.conformance.compare import differences
from compat.conformance.messages import APIS, decode, request_payload
from compat.conformance.normalise import Normaliser
from compat.conformance.runner import served_ranges
from compat.eventually import eventually
from compat.raw import RawConnection
from compat.reference import ApacheKafka
from tidelog.security.acls import Operation, PatternType, Permission, ResourceType
from tidelog_protocol.compiler import codec
from tidelog_protocol.primitives import ZERO_UUID
from tidelog_protocol.schema import StructType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compat.conformance.runner import Transcript

RECORDED = Path(__file__).parent / "authorized.json"
SETTINGS: Mapping[str, str] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Until the first ACL is there, which the broker needs for its own registration.
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
}
ADMIN, NOBODY, READER, OWNER = (f"127.0.0.{n}" for n in (1, 2, 3, 4))
NAMES = ("x", "hidden", "missing")
_NEEDS = re.compile(r"Request .* needs (\w+) permission\.", re.DOTALL)
# The owner's requests of these APIs are refused or have no effect.
OF_OWNERS = frozenset(
    {
        "ListOffsets",
        "Metadata",
        "OffsetFetch",
        "FindCoordinator",
        "DescribeGroups",
        "ListGroups",
        "CreateTopics",
        "OffsetForLeaderEpoch",
        "AddPartitionsToTxn",
        "DescribeConfigs",
        "DescribeAcls",
        "DescribeLogDirs",
        "DescribeCluster",
        "DescribeProducers",
        "DescribeTransactions",
        "ListTransactions",
        "DescribeTopicPartitions",
        "ConsumerGroupDescribe",
        "ListConfigResources",
    }
)
# Not asked: they are free, wait for members, or close the connection in Kafka's decoder.
LEFT_OUT = frozenset(
    {"ApiVersions", "SaslHandshake", "SaslAuthenticate", "GetTelemetrySubscriptions"}
    | {"PushTelemetry", "Envelope"}
)


def filled(table: Any, names: tuple[str, ...] = NAMES) -> Any:
    """A request that names topics, groups and transactional ids of these names."""
    values: dict[str, Any] = {}
    for field in table.FIELDS:
        if field.kind == "array" and isinstance(field.element, StructType):
            inner = {each.name for each in field.element.FIELDS}
            many = inner & {"name", "topic", "topic_name", "group_id", "resource_name"}
            values[field.name] = [filled(field.element, (name,)) for name in names if many] or [
                filled(field.element, names[:1])
            ]
        elif field.kind == "array":
            values[field.name] = list(names) if field.element == "string" else [0]
            if field.element == "uuid":
                values[field.name] = [bytes(16)]
        elif field.kind == "string":
            values[field.name] = names[0]
    return table(**values)


def request_of(api: str, version: int, ids: Mapping[str, bytes]) -> Any:
    request = filled(APIS[api].request)
    special = {
        "Produce": {"acks": -1, "timeout_ms": 1000, "transactional_id": None},
        "Fetch": {"replica_id": -1, "session_epoch": -1, "max_bytes": 1000, "replica_state": None},
        "ListOffsets": {"replica_id": -1},
        "Metadata": {"allow_auto_topic_creation": version % 2 == 0},
        "DescribeTopicPartitions": {"cursor": None, "response_partition_limit": 100},
        "OffsetForLeaderEpoch": {"replica_id": -1},
        "DescribeCluster": {"endpoint_type": 1},
        "FindCoordinator": {"key_type": version % 2},
        "ListTransactions": {"state_filters": [], "producer_id_filters": []},
        "ListGroups": {"states_filter": [], "types_filter": []},
        "InitProducerId": {"producer_id": -1, "producer_epoch": -1},
        "ListPartitionReassignments": {"timeout_ms": 1000},
        "DeleteTopics": {"timeout_ms": 30_000},
        "ListConfigResources": {"resource_types": []},
    }
    for name, value in special.get(api, {}).items():
        if hasattr(request, name):
            setattr(request, name, value)
    for name in request.__slots__:
        if name.startswith("include_"):
            setattr(request, name, True)
    if api in ("DescribeAcls", "DeleteAcls"):
        _ask_for_any(request)
    if api == "CreateAcls":
        for each in request.creations:
            each.resource_type, each.operation, each.permission_type = 2, 3, 3
    if "Configs" in api:
        for each in request.resources:
            each.resource_type = 2
    _set_ids(request, ids)
    if api in ("Metadata", "DeleteTopics"):
        for each in request.topics or ():
            by_id = version == 13 or (api == "DeleteTopics" and version >= 6)
            each.topic_id = ids.get(each.name, b"\7" * 16) if by_id else ZERO_UUID
            each.name = None if by_id else each.name
    return request


def _ask_for_any(request: Any) -> None:
    for each in getattr(request, "filters", [request]):
        each.resource_type_filter = each.pattern_type_filter = 1
        each.operation = each.permission_type = 1


def _set_ids(struct: Any, ids: Mapping[str, bytes]) -> None:
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if field.name == "topic_id":
            name = getattr(struct, "name", None) or getattr(struct, "topic", None) or "x"
            struct.topic_id = ids.get(name, b"\7" * 16)
        elif field.kind == "array" and isinstance(field.element, StructType):
            for each in value or ():
                _set_ids(each, ids)


class Play:
    """The play on one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._connections: dict[str, RawConnection] = {}
        self.ids: dict[str, bytes] = {}

    def ask(self, host: str, api: str, version: int, request: Any) -> dict[str, Any]:
        """Ask as one principal; a closed connection is an answer too."""
        tables = APIS[api]
        if host not in self._connections:
            self._connections[host] = RawConnection(self.bootstrap, 4.0, host)
        body = codec(tables.request, version).encode(request)
        self._connections[host].send_frame(request_payload(tables, version, 1, "c", body))
        try:
            frame = self._connections[host].read_frame()
        except TimeoutError:
            print("no answer", host, api, version, flush=True)
            frame = None
        if frame is None:
            self._connections.pop(host).close()
            return {"closed": "without an answer"}
        return decode(tables, version, frame)

    def close(self) -> None:
        """Close the connections of all principals."""
        while self._connections:
            self._connections.popitem()[1].close()

    def prepare(self) -> None:
        """Make topics, and ACLs of the principals."""
        every = [
            (host, kind, "kafka-cluster" if kind == ResourceType.CLUSTER else "*", Operation.ALL)
            for host in (ADMIN,)
            for kind in (
                ResourceType.CLUSTER,
                ResourceType.TOPIC,
                ResourceType.GROUP,
                ResourceType.TRANSACTIONAL_ID,
            )
        ]
        kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        own = [(READER, kind, "x", Operation.DESCRIBE) for kind in kinds]
        own += [(OWNER, kind, "x", Operation.ALL) for kind in kinds]
        for host, kind, name, operation in every + own:
            self._allow(host, kind, name, operation)
        create = APIS["CreateTopics"].request
        Topic = create.CreatableTopic  # type: ignore[attr-defined] # noqa: N806 - a class
        topics = [Topic(name=n, num_partitions=1, replication_factor=1) for n in NAMES[:2]]
        self.ask(ADMIN, "CreateTopics", 7, create(topics=topics, timeout_ms=30_000))

        def known(answer: dict[str, Any]) -> bool:
            self.ids = {each["name"]: each["topic_id"] for each in answer["topics"]}
            return self.ids.keys() >= {"x", "hidden"}

        listing = APIS["Metadata"].request(topics=None)
        eventually(lambda: self.ask(ADMIN, "Metadata", 12, listing), known, 30.0)
        for key_type in (0, 1):  # creates the coordinators' topics
            asked = APIS["FindCoordinator"].request(key_type=key_type, coordinator_keys=["x"])
            eventually(
                lambda asked=asked: self.ask(ADMIN, "FindCoordinator", 4, asked),
                lambda answer: not answer["coordinators"][0]["error_code"],
                30.0,
            )

    def _allow(self, host: str, kind: ResourceType, name: str, operation: Operation) -> None:
        create = APIS["CreateAcls"].request
        acl = create.AclCreation(  # type: ignore[attr-defined]
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=PatternType.LITERAL,
            principal="User:ANONYMOUS",
            host=host,
            operation=operation,
            permission_type=Permission.ALLOW,
        )
        answer = self.ask(ADMIN, "CreateAcls", 3, create(creations=[acl]))
        assert not answer["results"][0]["error_code"], answer

    def transcripts(self) -> dict[str, Transcript]:
        """All answers, by API, principal and version."""
        found: dict[str, Transcript] = {}
        ranges = served_ranges(self.bootstrap)
        for api in sorted(APIS):
            low, high = ranges.get(APIS[api].key, (0, -1))
            first, last = APIS[api].versions()
            if api in LEFT_OUT:
                continue
            for version in range(max(low, first), min(high, last) + 1):
                for host in (NOBODY, READER, OWNER):
                    if host == OWNER and api not in OF_OWNERS:
                        continue
                    request = request_of(api, version, self.ids)
                    answer = self.ask(host, api, version, request)
                    if api in ("Produce", "DeleteTopics"):  # in the order of hash maps, or none
                        answer["responses"].sort(key=_of_error)
                    if api == "DeleteTopics" and version >= 6:  # ids are sorted, but by chance
                        for each in answer["responses"]:
                            del each["topic_id"]
                    normal = Normaliser(self.bootstrap).normal(api, answer)
                    kept = json.loads(json.dumps(_named(normal), default=repr))
                    found[f"{api}-{host}-v{version}"] = [{"api": api, "answer": kept}]
        return found


def _of_error(response: dict[str, Any]) -> tuple[int, str]:
    (inner,) = response.get("partition_responses", [response])
    return inner["error_code"], str(response.get("name"))


def _named(value: Any) -> Any:
    """Leave out how Kafka prints a request."""
    if isinstance(value, dict):
        return {key: _named(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_named(each) for each in value]
    return _NEEDS.sub(r"Request needs \1 permission.", value) if isinstance(value, str) else value


def played(kind: str) -> dict[str, Transcript]:
    """Start a broker of a kind, play, stop it."""
    with tempfile.TemporaryDirectory(prefix="authorized-") as folder:
        broker = {"kafka": ApacheKafka, "tidelog": Tidelog}[kind](Path(folder) / "b", SETTINGS)
        broker.start()
        try:
            play = Play(broker.bootstrap)
            play.prepare()
            found = play.transcripts()
            play.close()
            return found
        finally:
            broker.stop()


def unlike(reference: dict[str, Transcript], heard: dict[str, Transcript]) -> list[str]:
    """The differences, as text; of what both serve."""
    return [
        str(one)
        for key in sorted(reference.keys() & heard.keys())
        for one in differences(key, reference[key], heard[key])
    ]


def recorded() -> dict[str, Transcript]:
    """Kafka's answers, kept."""
    kept: dict[str, Transcript] = json.loads(RECORDED.read_text())
    return kept


if __name__ == "__main__":
    if "--record" in sys.argv:
        lines = [
            f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}"
            for key, value in sorted(played("kafka").items())
        ]
        RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    found = unlike(recorded(), played("tidelog"))
    print(*found, f"{len(found)} differences", sep="\n")
