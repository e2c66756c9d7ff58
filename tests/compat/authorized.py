"""What clients with few rights are answered: all APIs in all versions, by three principals; and
the table of `support/rights.py`, by one with the rights of each row, and those that lack one.

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
from compat.conformance.messages import APIS, ApiTables, decode, request_payload
from compat.conformance.normalise import Normaliser
from compat.conformance.runner import served_ranges
from compat.eventually import eventually
from compat.raw import RawConnection
from compat.reference import ApacheKafka
from support import rights
from tidelog.security.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compat.conformance.runner import Transcript
    from support.rights import Right, Row

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
ROWS_LEFT_OUT: Mapping[str, str] = {
    "controller:DescribeUserScramCredentials v0-0": "controllers of Kafka never answer",
}
"""Rows of the table that nobody can play, and why."""
NOT_COMPARED: Mapping[str, str] = {
    "controller:DescribeDelegationToken-": "controllers of Kafka list it and fail",
}
"""Beginnings of keys whose answers are not compared, and why."""
_TABLES = {
    api.name: ApiTables(api.name, api.key, api.request, api.response)
    for api in (API[key] for key in ApiKey)
}
_DENIED = {int(code): code.name for code in ErrorCode if code.name.endswith("AUTHORIZATION_FAILED")}


def request_of(api: str, version: int, ids: Mapping[str, bytes]) -> Any:
    """A request that names what is there, what is another's, and what is missing."""
    request = rights.request_of(API[APIS[api].key], version, ids, NAMES)
    if api == "Metadata":
        request.allow_auto_topic_creation = version % 2 == 0
    if api == "FindCoordinator":
        request.key_type = version % 2
    return request


class Play:
    """The play on one broker, which is its own controller."""

    def __init__(self, bootstrap: str, controller: str = "") -> None:
        self.bootstrap = bootstrap
        self._addresses = {"broker": bootstrap, "controller": controller}
        self._connections: dict[tuple[str, str], RawConnection] = {}
        self.ids: dict[str, bytes] = {}

    def ask(
        self, host: str, api: str, version: int, request: Any, at: str = "broker"
    ) -> dict[str, Any]:
        """Ask as one principal; a closed connection is an answer too."""
        tables = _TABLES[api]
        who = (at, host)
        if who not in self._connections:
            self._connections[who] = RawConnection(self._addresses[at], 60.0, host)
        body = codec(tables.request, version).encode(request)
        self._connections[who].send_frame(request_payload(tables, version, 1, "c", body))
        try:
            frame = self._connections[who].read_frame()
        except TimeoutError:
            print("no answer", at, host, api, version, flush=True)
            frame = None
        if frame is None:
            self._connections.pop(who).close()
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
        self._allow(every + own)
        self._make_topics()
        for key_type in (0, 1):  # creates the coordinators' topics
            asked = APIS["FindCoordinator"].request(key_type=key_type, coordinator_keys=["x"])
            eventually(
                lambda asked=asked: self.ask(ADMIN, "FindCoordinator", 4, asked),
                lambda answer: not answer["coordinators"][0]["error_code"],
                30.0,
            )
        self._commit()

    def _make_topics(self) -> None:
        """Make the topics that are not there, and learn their ids."""
        create = APIS["CreateTopics"].request
        Topic = create.CreatableTopic  # type: ignore[attr-defined] # noqa: N806 - a class
        topics = [Topic(name=n, num_partitions=1, replication_factor=1) for n in NAMES[:2]]
        made = self.ask(ADMIN, "CreateTopics", 7, create(topics=topics, timeout_ms=30_000))
        made_ids = {each["topic_id"] for each in made["topics"] if not each["error_code"]}

        def known(answer: dict[str, Any]) -> bool:
            self.ids = {each["name"]: each["topic_id"] for each in answer["topics"]}
            return self.ids.keys() >= set(NAMES[:2]) and made_ids <= set(self.ids.values())

        listing = APIS["Metadata"].request(topics=None)
        eventually(lambda: self.ask(ADMIN, "Metadata", 12, listing), known, 30.0)

    def _commit(self) -> None:
        """Make a group and a transactional id of the name `x`, for lists to show or hide, and an
        empty share group."""
        commit = request_of("OffsetCommit", 8, self.ids)
        commit.generation_id_or_member_epoch, commit.member_id, commit.group_instance_id = (
            -1,
            "",
            None,
        )
        commit.topics = commit.topics[:2]
        begin = request_of("InitProducerId", 4, self.ids)
        begin.transaction_timeout_ms = 60_000
        eventually(
            lambda: self.ask(ADMIN, "OffsetCommit", 8, commit),
            lambda answer: not answer["topics"][0]["partitions"][0]["error_code"],
            30.0,
        )
        eventually(
            lambda: self.ask(ADMIN, "InitProducerId", 4, begin),
            lambda answer: not answer["error_code"],
            30.0,
        )
        join = request_of("ShareGroupHeartbeat", 1, self.ids)
        join.group_id, join.member_id, join.subscribed_topic_names = (
            rights.NEW,
            rights.MEMBER,
            ["x"],
        )
        for join.member_epoch in (0, -1):
            eventually(
                lambda: self.ask(ADMIN, "ShareGroupHeartbeat", 1, join),
                lambda answer: not answer["error_code"],
                30.0,
            )

    def _allow(self, acls: Iterable[tuple[str, ResourceType, str, Operation]]) -> None:
        create = APIS["CreateAcls"].request
        creations = [
            create.AclCreation(  # type: ignore[attr-defined]
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=PatternType.LITERAL,
                principal="User:ANONYMOUS",
                host=host,
                operation=operation,
                permission_type=Permission.ALLOW,
            )
            for host, kind, name, operation in acls
        ]
        answer = self.ask(ADMIN, "CreateAcls", 3, create(creations=creations))
        assert not any(each["error_code"] for each in answer["results"]), answer

    def rows(self) -> dict[str, Transcript]:
        """What callers of each row of the table are refused with, by row and version: nobody, one
        with its rights, and those that lack one of them."""
        rows = [each for each in rights.rows() if each.key not in ROWS_LEFT_OUT]
        # What is deleted is asked for by others.
        rows.sort(key=lambda row: row.api.key in (ApiKey.DELETE_TOPICS, ApiKey.DELETE_GROUPS))
        callers = {row.key: _callers(number, row) for number, row in enumerate(rows)}
        for row in rows:
            for _, host, held in callers[row.key]:
                self._allow(acl for right in held for acl in _acls(host, right))
        self._await_acls(host)
        served = {at: served_ranges(address) for at, address in self._addresses.items()}
        found: dict[str, Transcript] = {}
        for row in rows:
            first, last = served[row.listener].get(row.api.key, (0, -1))
            for version in (each for each in row.versions if first <= each <= last):
                answers = {
                    name: sorted(_refusals(self._row_answer(row, version, host)))
                    for name, host, _ in (("nobody", NOBODY, ()), *callers[row.key])
                }
                found[f"{row.key}-v{version}"] = [{"api": row.api.name, "answer": answers}]
            self.close()
        return found

    def _row_answer(self, row: Row, version: int, host: str) -> Any:
        if row.api.key == ApiKey.DELETE_TOPICS:
            self._make_topics()
        if row.api.key == ApiKey.SHARE_ACKNOWLEDGE:  # of a session
            self.ask(host, "ShareFetch", version, request_of("ShareFetch", version, self.ids))
        request = row.request(version, self.ids)
        return self.ask(host, row.api.name, version, request, row.listener)

    def _await_acls(self, host: str) -> None:
        """Wait until both listeners know the last ACLs."""
        asked = APIS["DescribeAcls"].request(
            resource_type_filter=1,
            pattern_type_filter=1,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=host,
            operation=1,
            permission_type=1,
        )
        for at in self._addresses:
            eventually(
                lambda at=at: self.ask(ADMIN, "DescribeAcls", 3, asked, at),
                lambda answer: bool(answer["resources"]),
                30.0,
            )

    def transcripts(self) -> dict[str, Transcript]:
        """All answers, by listener, API, principal and version."""
        found: dict[str, Transcript] = {}
        for at, prefix in (("broker", ""), ("controller", "controller:")):
            ranges = served_ranges(self._addresses[at])
            for api in sorted(APIS):
                low, high = ranges.get(APIS[api].key, (0, -1))
                first, last = APIS[api].versions()
                if api in LEFT_OUT or any(row.startswith(f"{at}:{api} ") for row in ROWS_LEFT_OUT):
                    continue
                for version in range(max(low, first), min(high, last) + 1):
                    for host in (NOBODY, READER, OWNER):
                        if host == OWNER and (prefix or api not in OF_OWNERS):
                            continue
                        answer = self._answer(host, api, version, at)
                        found[f"{prefix}{api}-{host}-v{version}"] = [{"api": api, "answer": answer}]
        return found

    def _answer(self, host: str, api: str, version: int, at: str) -> Any:
        """An answer that can be compared."""
        answer = self.ask(host, api, version, request_of(api, version, self.ids), at)
        if api in ("Produce", "DeleteTopics"):  # in the order of hash maps, or none
            answer["responses"].sort(key=_of_error)
        if api == "DeleteTopics" and version >= 6:  # ids are sorted, but by chance
            for each in answer["responses"]:
                del each["topic_id"]
        normal = Normaliser(self.bootstrap).normal(api, answer)
        return json.loads(json.dumps(unprinted(normal), default=repr))


def _callers(number: int, row: Row) -> list[tuple[str, str, tuple[Right, ...]]]:
    """The principals of a row beside nobody: name, host and rights."""
    held = [("granted", each) for each in row.rights]
    for alternative in row.rights:
        for operation, kind in alternative if len(alternative) > 1 else ():
            rest = tuple(one for one in alternative if one != (operation, kind))
            held.append((f"without {operation.name} {kind.name}", rest))
    return [
        (f"{name} {n}" if len(row.rights) > 1 else name, f"127.1.{number}.{n}", each)
        for n, (name, each) in enumerate(held, 1)
    ]


def _acls(host: str, right: Right) -> list[tuple[str, ResourceType, str, Operation]]:
    operation, kind = right
    names = [CLUSTER_NAME] if kind == ResourceType.CLUSTER else ["x", rights.NEW]
    return [(host, kind, name, operation) for name in names]


def _refusals(answer: Any) -> set[str]:
    """The refusals for want of rights in an answer."""
    if isinstance(answer, list):
        return {each for one in answer for each in _refusals(one)}
    if not isinstance(answer, dict):
        return set()
    found = {each for one in answer.values() for each in _refusals(one)}
    return found | {
        _DENIED[value]
        for name, value in answer.items()
        if name.endswith("error_code") and value in _DENIED
    }


def _of_error(response: dict[str, Any]) -> tuple[int, str]:
    (inner,) = response.get("partition_responses", [response])
    return inner["error_code"], str(response.get("name"))


def unprinted(value: Any) -> Any:
    """Leave out how Kafka prints a request."""
    if isinstance(value, dict):
        return {key: unprinted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [unprinted(each) for each in value]
    return _NEEDS.sub(r"Request needs \1 permission.", value) if isinstance(value, str) else value


def started(kind: str, folder: Path) -> ApacheKafka | Tidelog:
    """Start a broker that is its own controller, on a listener that can be asked."""
    broker = (
        ApacheKafka(folder, SETTINGS)
        if kind == "kafka"
        else Tidelog(folder, SETTINGS, has_controller_listener=True)
    )
    broker.start()
    return broker


def played(kind: str) -> dict[str, Transcript]:
    """Start a broker of a kind, play, stop it."""
    with tempfile.TemporaryDirectory(prefix="authorized-") as folder:
        broker = started(kind, Path(folder) / "b")
        try:
            play = Play(broker.bootstrap, broker.controller)
            play.prepare()
            found = play.transcripts() | play.rows()
            play.close()
            return found
        finally:
            broker.stop()


def unlike(reference: dict[str, Transcript], heard: dict[str, Transcript]) -> list[str]:
    """The differences, as text; of what the reference serves."""
    return [
        str(one)
        for key in sorted(reference)
        if not key.startswith(tuple(NOT_COMPARED))
        for one in differences(key, reference[key], heard.get(key, []))
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
