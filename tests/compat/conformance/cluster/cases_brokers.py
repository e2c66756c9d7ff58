"""Cases: settings of brokers, the metadata quorum, brokers that leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.cases_configs import BROKER, DELETE, SET
from compat.conformance.cluster.registry import case
from compat.conformance.quorum import described, quorum_fields

if TYPE_CHECKING:
    from compat.conformance.cluster.session import ClusterSession

KEYS = ("log.retention.ms", "broker.rack", "node.id", "message.max.bytes", "log.cleanup.policy")


def describe(s: ClusterSession, version: int, name: str, node_id: int, *keys: str) -> Any:
    row = {"resource_type": BROKER, "resource_name": name, "configuration_keys": list(keys)}
    fields: dict[str, Any] = {"include_synonyms": True}
    return s.ask("DescribeConfigs", version, resources=[row], connection=str(node_id), **fields)


def alter(
    s: ClusterSession, version: int, broker: str, *changes: tuple[str, int, str | None], at: int = 1
) -> Any:
    rows = [{"name": key, "config_operation": op, "value": value} for key, op, value in changes]
    resources = [{"resource_type": BROKER, "resource_name": broker, "configs": rows}]
    return s.ask("IncrementalAlterConfigs", version, resources=resources, connection=str(at))


def await_value(s: ClusterSession, broker: str, node_id: int, key: str, value: str | None) -> None:
    """Until a broker knows of a setting (None: of none by that name)."""
    row = {"resource_type": BROKER, "resource_name": broker, "configuration_keys": [key]}

    def seen(answer: dict[str, Any]) -> bool:
        found = answer["results"][0]["configs"]
        return (found[0]["value"] if found else None) == value

    s.wait(f"{key} at {node_id}", "DescribeConfigs", 4, seen, resources=[row],
           connection=str(node_id))  # fmt: skip


@case("DescribeConfigs")
def of_each_broker(s: ClusterSession, version: int) -> None:
    for node_id in s.alive:
        describe(s, version, str(node_id), node_id, *KEYS)
    describe(s, version, "2", 1, *KEYS)
    describe(s, version, "7", 1, *KEYS)
    describe(s, version, "", 3, *KEYS)


@case("IncrementalAlterConfigs")
def of_one_broker(s: ClusterSession, version: int) -> None:
    """Only the broker itself takes them: by its own rules, of its own version."""
    alter(s, version, "2", ("log.retention.ms", SET, "54321"), at=2)
    await_value(s, "2", 2, "log.retention.ms", "54321")
    describe(s, 4, "2", 2, "log.retention.ms")
    describe(s, 4, "1", 1, "log.retention.ms")
    alter(s, version, "2", ("log.retention.ms", DELETE, None), at=2)
    await_value(s, "2", 2, "log.retention.ms", "-1")
    describe(s, 4, "2", 2, "log.retention.ms")


@case("IncrementalAlterConfigs")
def of_all_brokers(s: ClusterSession, version: int) -> None:
    alter(s, version, "", ("message.max.bytes", SET, "2000000"), at=2)
    for node_id in s.alive:
        await_value(s, str(node_id), node_id, "message.max.bytes", "2000000")
        describe(s, 4, str(node_id), node_id, "message.max.bytes")
        describe(s, 4, "", node_id, "message.max.bytes")
    alter(s, version, "3", ("message.max.bytes", SET, "3000000"), at=3)
    await_value(s, "3", 3, "message.max.bytes", "3000000")
    describe(s, 4, "3", 3, "message.max.bytes")
    alter(s, version, "3", ("message.max.bytes", DELETE, None), at=3)
    alter(s, version, "", ("message.max.bytes", DELETE, None))
    for node_id in s.alive:
        await_value(s, str(node_id), node_id, "message.max.bytes", "1048588")


@case("IncrementalAlterConfigs")
def refused(s: ClusterSession, version: int) -> None:
    for node_id in (1, 2):
        alter(s, version, "2", ("node.id", SET, "9"), at=node_id)
        alter(s, version, "2", ("log.retention.ms", SET, "soon"), at=node_id)
        alter(s, version, "7", ("log.retention.ms", SET, "1"), at=node_id)
        alter(s, version, "two", ("log.retention.ms", SET, "1"), at=node_id)
        alter(s, version, "", ("broker.rack", SET, "x"), at=node_id)


@case("AlterConfigs")
def replaced(s: ClusterSession, version: int) -> None:
    asked = [("3", "777777", "3"), ("3", None, "3"), ("3", "777777", "2"), ("7", "777777", "3")]
    for broker, value, node in asked:
        rows = [] if value is None else [{"name": "log.retention.ms", "value": value}]
        resources = [{"resource_type": BROKER, "resource_name": broker, "configs": rows}]
        s.ask("AlterConfigs", version, resources=resources, connection=node)
        if broker == node:
            await_value(s, "3", 3, "log.retention.ms", value or "-1")
            describe(s, 4, "3", 3, "log.retention.ms")


@case("DescribeQuorum")
def quorum(s: ClusterSession, version: int) -> None:
    """At each broker, once the leader has heard of all."""

    def all_heard(answer: dict[str, Any]) -> bool:
        voters = answer["topics"][0]["partitions"][0]["current_voters"]
        return len(voters) == 3 and all(one["log_end_offset"] > 0 for one in voters)

    for node_id in s.alive:
        asked = {"connection": str(node_id), **quorum_fields()}
        answer = s.wait("the quorum", "DescribeQuorum", version, all_heard, **asked)
        s.record("DescribeQuorum", described(answer))


@case("DescribeQuorum")
def no_such_quorum(s: ClusterSession, version: int) -> None:
    for topic, partition in (("__cluster_metadata", 1), ("t", 0)):
        s.at_each("DescribeQuorum", version, **quorum_fields(topic, partition))
    s.at_each("DescribeQuorum", version, topics=[])


@case("UnregisterBroker")
def not_registered(s: ClusterSession, version: int) -> None:
    for broker in (7, -1):
        s.at_each("UnregisterBroker", version, broker_id=broker)
