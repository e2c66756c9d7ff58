"""Cases: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.brokers import SETTINGS
from compat.conformance.registry import case

if TYPE_CHECKING:
    from compat.conformance.session import Session

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
# What a node's own address, folders and the harness' economies decide.
OF_THE_MACHINE = {
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.cleaner.dedupe.buffer.size",
    "log.dirs",
    "num.io.threads",
    "num.network.threads",
}
SET, DELETE, APPEND, SUBTRACT = range(4)
HOUR = "by_duration:PT1H"
RETENTION = SETTINGS["log.retention.ms"]  # a topic's own default


def describe(
    s: Session, version: int, kind: int, name: str, *keys: str, **more: Any
) -> dict[str, Any]:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": list(keys) or None,
    }
    return s.ask("DescribeConfigs", version, resources=[resource], **more)


@case("DescribeConfigs")
def every_topic_config(s: Session, version: int) -> None:
    """Names, values, sources, types: one step a config, so that each difference is one line."""
    name = s.topic(retention_ms="1234", cleanup_policy="compact,delete")
    resource = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}
    fields: dict[str, Any] = {"include_synonyms": True}
    answer = s.quietly("DescribeConfigs", version, resources=[resource], **fields)
    listed = answer["results"][0].pop("configs")
    s.record("DescribeConfigs", answer)
    s.record("DescribeConfigs", {one["name"]: one for one in listed})


@case("DescribeConfigs", first=3)
def documentation(s: Session, version: int) -> None:
    """That there is a text is compared; the text is each project's own."""
    resource = {"resource_type": TOPIC, "resource_name": s.topic(), "configuration_keys": None}
    fields: dict[str, Any] = {"include_documentation": True}
    answer = s.quietly("DescribeConfigs", version, resources=[resource], **fields)
    listed = answer["results"][0]["configs"]
    s.record("DescribeConfigs", {one["name"]: bool(one["documentation"]) for one in listed})


@case("DescribeConfigs")
def some_topic_configs(s: Session, version: int) -> None:
    name = s.topic(retention_ms="1234")
    describe(s, version, TOPIC, name, "retention.ms", "segment.bytes", "no.such.key")
    fields: dict[str, Any] = {"include_synonyms": True}
    describe(s, version, TOPIC, name, "retention.ms", "segment.bytes", **fields)


@case("DescribeConfigs")
def every_group_config(s: Session, version: int) -> None:
    resource = {"resource_type": GROUP, "resource_name": s.name, "configuration_keys": None}
    answer = s.quietly("DescribeConfigs", version, resources=[resource], include_synonyms=True)
    listed = answer["results"][0].pop("configs")
    s.record("DescribeConfigs", answer)
    s.record("DescribeConfigs", {one["name"]: one for one in listed})
    describe(s, version, GROUP, s.name, "consumer.session.timeout.ms", "no.such.key")
    describe(s, version, GROUP, "")


@case("DescribeConfigs")
def unknown_resources(s: Session, version: int) -> None:
    describe(s, version, TOPIC, f"{s.name}.none")
    describe(s, version, TOPIC, "in valid")
    describe(s, version, TOPIC, "")
    describe(s, version, BROKER, "77", "log.dirs")
    describe(s, version, BROKER, "one")
    describe(s, version, 99, "x")
    s.ask("DescribeConfigs", version, resources=[])


@case("DescribeConfigs")
def some_broker_configs(s: Session, version: int) -> None:
    keys = ("node.id", "num.partitions", "log.retention.hours", "compression.type")
    describe(s, version, BROKER, "1", *keys, "auto.create.topics.enable")
    fields: dict[str, Any] = {"include_synonyms": True}
    describe(s, version, BROKER, "1", "log.segment.bytes", "log.roll.hours", **fields)
    describe(s, version, BROKER, "", "log.segment.bytes")


@case("DescribeConfigs", first=4)
def every_broker_config(s: Session, version: int) -> None:
    resource = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": None}
    answer = s.quietly("DescribeConfigs", version, resources=[resource])
    listed = answer["results"][0]["configs"]
    listed = [one for one in listed if one["name"] not in OF_THE_MACHINE]
    s.record(
        "DescribeConfigs",
        {one["name"]: [one["value"], one["config_type"], one["read_only"]] for one in listed},
    )


def alter(s: Session, version: int, kind: int, name: str, *ops: Any, **more: Any) -> None:
    rows = [{"name": key, "config_operation": op, "value": value} for key, op, value in ops]
    resource = {"resource_type": kind, "resource_name": name, "configs": rows}
    s.ask("IncrementalAlterConfigs", version, resources=[resource], **more)


def seen(s: Session, name: str, kind: int = TOPIC, **values: str) -> None:
    """Describe these settings; the broker knows what its controller decided a moment later."""
    wanted = {name.replace("_", "."): value for name, value in values.items()}
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": list(wanted)}

    def known(answer: dict[str, Any]) -> bool:
        (result,) = answer["results"]
        return {one["name"]: one["value"] for one in result["configs"]} == wanted

    s.ask_until("DescribeConfigs", 1, known, resources=[resource])


@case("IncrementalAlterConfigs")
def topic_configs(s: Session, version: int) -> None:
    name = s.topic()
    alter(s, version, TOPIC, name, ("retention.ms", SET, "5000"), ("segment.ms", SET, "70000"))
    seen(s, name, retention_ms="5000", segment_ms="70000")
    alter(s, version, TOPIC, name, ("retention.ms", DELETE, None))
    alter(s, version, TOPIC, name, ("cleanup.policy", APPEND, "compact"))
    seen(s, name, retention_ms=RETENTION, cleanup_policy="delete,compact")
    alter(s, version, TOPIC, name, ("cleanup.policy", SUBTRACT, "delete"))
    alter(s, version, TOPIC, name, ("segment.ms", SET, "1"), validate_only=True)
    seen(s, name, segment_ms="70000", cleanup_policy="compact")


@case("IncrementalAlterConfigs")
def bad_topic_configs(s: Session, version: int) -> None:
    name = s.topic()
    for op in (
        ("retention.ms", SET, "soon"),
        ("no.such.key", SET, "1"),
        ("no.such.key", DELETE, None),
        ("retention.ms", SET, None),
        ("retention.ms", APPEND, "5"),
        ("cleanup.policy", SET, "throw"),
        ("segment.bytes", SET, "1"),
        ("retention.ms", 9, "5"),
        ("", SET, "5"),
    ):
        alter(s, version, TOPIC, name, op)
    alter(s, version, TOPIC, name, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    alter(s, version, TOPIC, name)
    alter(s, version, TOPIC, f"{s.name}.none", ("retention.ms", SET, "5000"))
    alter(s, version, TOPIC, "", ("retention.ms", SET, "5000"))
    alter(s, version, 99, "x", ("retention.ms", SET, "5000"))
    row = {"resource_type": TOPIC, "resource_name": name, "configs": []}
    s.ask("IncrementalAlterConfigs", version, resources=[row, row])
    s.ask("IncrementalAlterConfigs", version, resources=[])


@case("IncrementalAlterConfigs")
def group_configs(s: Session, version: int) -> None:
    """Those of a group that does not exist."""
    group = f"{s.name}.group"
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    alter(s, version, GROUP, group, (session, SET, "50000"), (heartbeat, SET, "6000"))
    alter(s, version, GROUP, group, ("share.auto.offset.reset", SET, HOUR))
    seen(s, group, GROUP, consumer_session_timeout_ms="50000", share_auto_offset_reset=HOUR)
    alter(s, version, GROUP, group, (heartbeat, DELETE, None))
    alter(s, version, GROUP, group, (session, SET, "51000"), validate_only=True)
    seen(
        s, group, GROUP, consumer_session_timeout_ms="50000", consumer_heartbeat_interval_ms="5000"
    )
    for op in (
        (session, SET, "soon"),
        (session, SET, "0"),
        (session, SET, "100"),
        (session, SET, "70000"),
        (session, SET, None),
        (session, APPEND, "5"),
        (session, 9, "5"),
        (heartbeat, SET, "4000"),
        (heartbeat, SET, "16000"),
        ("consumer.assignment.interval.ms", SET, "20000"),
        ("share.auto.offset.reset", SET, "first"),
        ("share.isolation.level", SET, "all"),
        ("share.renew.acknowledge.enable", SET, "perhaps"),
        ("share.delivery.count.limit", SET, "100"),
        ("streams.num.standby.replicas", SET, "3"),
        ("streams.initial.rebalance.delay.ms", SET, "-1"),
        ("no.such.key", SET, "1"),
        ("no.such.key", DELETE, None),
    ):
        alter(s, version, GROUP, group, op)
    alter(s, version, GROUP, group, ("no.such.key", SET, "1"), (session, SET, "1"))
    alter(s, version, GROUP, "", (session, SET, "50000"))


@case("IncrementalAlterConfigs")
def broker_configs(s: Session, version: int) -> None:
    """Read only and unknown names; nothing is changed for the cases that follow."""
    only: dict[str, Any] = {"validate_only": True}
    alter(s, version, BROKER, "1", ("log.retention.ms", SET, "100000"), **only)
    alter(s, version, BROKER, "1", ("node.id", SET, "3"), **only)
    alter(s, version, BROKER, "1", ("no.such.key", SET, "3"), **only)
    alter(s, version, BROKER, "1", ("log.retention.ms", SET, "soon"), **only)
    alter(s, version, BROKER, "77", ("log.retention.ms", SET, "100000"), **only)
    alter(s, version, BROKER, "", ("log.retention.ms", SET, "100000"), **only)


@case("IncrementalAlterConfigs")
def dynamic_broker_configs(s: Session, version: int) -> None:
    """What a running broker takes and what it refuses; nothing is changed."""
    for name in ("1", ""):
        for key, value in (
            ("log.cleaner.threads", "2"),
            ("log.cleaner.threads", "3"),
            ("log.cleaner.backoff.ms", "1"),
            ("log.cleaner.io.buffer.load.factor", "most"),
            ("max.connections", "-1"),
            ("max.connections.per.ip", "5"),
            ("producer.id.expiration.ms", "0"),
            ("transaction.partition.verification.enable", "false"),
            ("telemetry.max.bytes", "5"),
            ("log.retention.check.interval.ms", "5"),
        ):
            alter(s, version, BROKER, name, (key, SET, value), validate_only=True)
    alter(s, version, BROKER, "", ("listeners", SET, "PLAINTEXT://:1"), validate_only=True)


@case("IncrementalAlterConfigs")
def client_metrics(s: Session, version: int) -> None:
    """Subscriptions of clients' metrics (KIP-714)."""
    name = f"{s.name}.metrics"

    def ask(*ops: Any, of: str = name, **more: Any) -> None:
        alter(s, version, CLIENT_METRICS, of, *ops, **more)

    ask(("metrics", SET, "a.,b."), ("interval.ms", SET, "1000"))
    seen(s, name, CLIENT_METRICS, metrics="a.,b.", interval_ms="1000", match="")
    resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configuration_keys": None}
    answer = s.quietly("DescribeConfigs", 4, resources=[resource], include_synonyms=True)
    listed = answer["results"][0].pop("configs")
    s.record("DescribeConfigs", {**answer, **{one["name"]: one for one in listed}})
    for op in (
        ("metrics", SET, ""),
        ("metrics", SET, "a,,b"),
        ("metrics", SET, "a,a"),
        ("metrics", APPEND, "c."),
        ("metrics", SET, None),
        ("metrics", 9, "c."),
        ("interval.ms", SET, "99"),
        ("interval.ms", SET, "3600001"),
        ("interval.ms", SET, "soon"),
        ("match", SET, "client_id"),
        ("match", SET, "client_id="),
        ("match", SET, "client_id=a="),
        ("match", SET, "client_id=a=b"),
        ("match", SET, "=a"),
        ("match", SET, "no_such=a"),
        ("match", SET, "client_id=("),
        ("match", SET, "client_id=a.*,client_id=b,client_software_name=[a-z]+"),
        ("no.such.key", SET, "1"),
        ("no.such.key", DELETE, None),
    ):
        ask(op, validate_only=True)
    ask(("metrics", SET, "*"), of="")
    ask(*[(key, DELETE, None) for key in ("metrics", "interval.ms", "match")])
    seen(s, name, CLIENT_METRICS, metrics="", interval_ms="300000", match="")
    describe(s, 4, CLIENT_METRICS, "")


@case("AlterConfigs")
def replaced(s: Session, version: int) -> None:
    name = s.topic(retention_ms="7000")

    def ask(topic: str, *pairs: tuple[str, str | None], **more: Any) -> None:
        rows = [{"name": key, "value": value} for key, value in pairs]
        resource = {"resource_type": TOPIC, "resource_name": topic, "configs": rows}
        s.ask("AlterConfigs", version, resources=[resource], **more)

    ask(name, ("segment.ms", "70000"))
    seen(s, name, retention_ms=RETENTION, segment_ms="70000")
    ask(name, ("segment.ms", "x"))
    ask(name, ("no.such.key", "x"))
    ask(name, ("segment.ms", None))
    ask(name, ("segment.ms", "1000"), validate_only=True)
    ask(f"{s.name}.none", ("segment.ms", "70000"))
    ask(name)
    seen(s, name, segment_ms="604800000")


@case("ListConfigResources")
def resources_of_types(s: Session, version: int) -> None:
    """A group with settings is listed, a group without is not; likewise clients' metrics."""
    topic, group, metrics = s.topic(), f"{s.name}.group", f"{s.name}.metrics"
    alter(s, 1, GROUP, group, ("consumer.session.timeout.ms", SET, "50000"))
    seen(s, group, GROUP, consumer_session_timeout_ms="50000")
    alter(s, 1, CLIENT_METRICS, metrics, ("metrics", SET, "*"))
    seen(s, metrics, CLIENT_METRICS, metrics="*")
    for types in ([GROUP], [TOPIC, GROUP], [BROKER], [BROKER, LOGGER], [CLIENT_METRICS], []):
        answer = s.quietly("ListConfigResources", version, **listing(version, types))
        mine = [
            one
            for one in answer.pop("config_resources")
            if one["resource_name"] in ("1", topic, group, metrics)
        ]
        s.record("ListConfigResources", {**answer, "mine": mine})
    if version > 0:
        for types in ([0], [GROUP, 99]):
            s.ask("ListConfigResources", version, **listing(version, types))


def listing(version: int, types: list[int]) -> dict[str, Any]:
    return {"resource_types": types} if version > 0 else {}
