"""Cases: which configurations of tiered topics are accepted, and how the tier's keys are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.cases_admin import configs, wanted
from compat.conformance.cases_configs import BROKER, SET, TOPIC
from compat.conformance.tiered.registry import case

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compat.conformance.tiered.session import TieredSession

REMOTE, COPYING_OFF, DELETED = (
    "remote.storage.enable",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
)
LOCAL_MS, LOCAL_BYTES = "local.retention.ms", "local.retention.bytes"
MS, BYTES, POLICY = "retention.ms", "retention.bytes", "cleanup.policy"
ON, OFF = "true", "false"

# What is said of a topic that is tiered by its first line, unless a row says otherwise.
MATRIX: tuple[Mapping[str, str], ...] = (
    {},
    {REMOTE: OFF},
    {REMOTE: "maybe"},
    {POLICY: "compact"},
    {POLICY: "compact,delete"},
    {POLICY: ""},
    {REMOTE: OFF, POLICY: "compact"},
    {MS: "60000", LOCAL_MS: "30000"},
    {MS: "1000", LOCAL_MS: "1000"},
    {MS: "1000", LOCAL_MS: "1001"},
    {MS: "1000", LOCAL_MS: "-1"},
    {MS: "-1", LOCAL_MS: "-1"},
    {MS: "1000", LOCAL_MS: "-2"},
    {MS: "-2"},
    {LOCAL_MS: "-3"},
    {LOCAL_MS: "soon"},
    {BYTES: "512", LOCAL_BYTES: "256"},
    {BYTES: "512", LOCAL_BYTES: "512"},
    {BYTES: "512", LOCAL_BYTES: "513"},
    {BYTES: "512", LOCAL_BYTES: "-1"},
    {BYTES: "512", LOCAL_BYTES: "-2"},
    {LOCAL_BYTES: "-3"},
    {MS: "1000", LOCAL_MS: "1001", BYTES: "512", LOCAL_BYTES: "513"},
    {REMOTE: OFF, MS: "1000", LOCAL_MS: "1001"},
    {REMOTE: OFF, BYTES: "512", LOCAL_BYTES: "513"},
    {COPYING_OFF: ON},
    {COPYING_OFF: ON, DELETED: ON},
    {COPYING_OFF: OFF, DELETED: ON},
    {COPYING_OFF: "maybe"},
    {COPYING_OFF: ON, MS: "1000", LOCAL_MS: "100"},
    {COPYING_OFF: ON, MS: "1000", LOCAL_MS: "1000"},
    {COPYING_OFF: ON, MS: "1000", LOCAL_MS: "-2"},
    {COPYING_OFF: ON, BYTES: "1000", LOCAL_BYTES: "100"},
    {COPYING_OFF: ON, BYTES: "1000", LOCAL_BYTES: "1000"},
    {REMOTE: OFF, COPYING_OFF: ON, MS: "1000", LOCAL_MS: "100"},
    {REMOTE: OFF, COPYING_OFF: ON},
    {REMOTE: OFF, DELETED: ON},
)
OF_THE_TIER = ("remote.", "local.retention.", "follower.fetch.last", "log.local.", "rsm.", "rlmm.")
# What names a class or a place is each broker's own.
OWN = (
    "remote.log.storage.manager.class.name",
    "remote.log.metadata.manager.class.name",
    "rsm.config.dir",
)


def told(answer: dict[str, Any]) -> list[Any]:
    """What decides: the codes and texts."""
    rows = answer.get("topics") or answer["responses"]
    return [[row["error_code"], row["error_message"]] for row in rows]


@case("CreateTopics", 5, 7)
def tiered_configurations(s: TieredSession, version: int) -> None:
    for row in MATRIX:
        given = {REMOTE: ON, **row}
        listed = [{"name": name, "value": value} for name, value in given.items()]
        topic = wanted(f"{s.name}.a", 1, 1, configs=listed)
        fields: dict[str, Any] = {"topics": [topic], "timeout_ms": 60_000, "validate_only": True}
        s.record("CreateTopics", [given, told(s.quietly("CreateTopics", version, **fields))])


@case("CreateTopics", 7)
def tiered_under_odd_names(s: TieredSession, version: int) -> None:
    assert s.layouts["spread"], "the last of them is there once something is tiered"
    for name in ("__consumer_offsets", "__transaction_state", "__remote_log_metadata", "__mine"):
        topic = wanted(name, 1, 1, configs=configs(remote_storage_enable=ON))
        fields: dict[str, Any] = {"topics": [topic], "timeout_ms": 60_000, "validate_only": True}
        s.record("CreateTopics", [name, told(s.quietly("CreateTopics", version, **fields))])


@case("CreateTopics", 7)
def created_as_tiered(s: TieredSession, version: int) -> None:
    """The configuration that the answer tells."""
    asked = configs(remote_storage_enable=ON, local_retention_ms="5000")
    topic = wanted(f"{s.name}.a", 1, 1, configs=asked)
    answer = s.quietly("CreateTopics", version, topics=[topic], timeout_ms=60_000)
    s.record("CreateTopics", [one for one in answer["topics"][0]["configs"] if of_tier(one)])


@case("IncrementalAlterConfigs", 1)
def tiered_topics_altered(s: TieredSession, version: int) -> None:
    """The same matrix laid over topics that are there; nothing is changed."""
    made = {
        "untiered": s.small_segments([1]),
        "tiered": s.small_segments([1], remote_storage_enable=ON),
        "short": s.small_segments([1], remote_storage_enable=ON, retention_ms="5000"),
        "stopped": s.small_segments([1], remote_storage_enable=ON, remote_log_copy_disable=ON),
    }
    for kind, name in made.items():
        for row in MATRIX:
            rows = [
                {"name": key, "config_operation": SET, "value": value} for key, value in row.items()
            ]
            resource = {"resource_type": TOPIC, "resource_name": name, "configs": rows}
            fields: dict[str, Any] = {"resources": [resource], "validate_only": True}
            answer = s.quietly("IncrementalAlterConfigs", version, **fields)
            s.record("IncrementalAlterConfigs", [kind, dict(row), told(answer)])


@case("IncrementalAlterConfigs", 1)
def keys_removed(s: TieredSession, version: int) -> None:
    """Without its line a topic is not tiered: as if it was switched off."""
    for more in ({}, {"remote_log_delete_on_disable": ON}):
        name = s.small_segments([1], remote_storage_enable=ON, **more)
        for key in (REMOTE, DELETED, LOCAL_MS):
            rows = [{"name": key, "config_operation": 1, "value": None}]
            resource = {"resource_type": TOPIC, "resource_name": name, "configs": rows}
            fields: dict[str, Any] = {"resources": [resource], "validate_only": True}
            s.ask("IncrementalAlterConfigs", version, **fields)


@case("AlterConfigs", 2)
def tiered_topics_replaced(s: TieredSession, version: int) -> None:
    name = s.small_segments([1], remote_storage_enable=ON)
    for row in ({}, {REMOTE: ON}, {REMOTE: OFF}, {DELETED: ON}, {REMOTE: OFF, DELETED: ON}):
        rows = [{"name": key, "value": value} for key, value in row.items()]
        resource = {"resource_type": TOPIC, "resource_name": name, "configs": rows}
        s.ask("AlterConfigs", version, resources=[resource], validate_only=True)


def of_tier(one: Mapping[str, Any]) -> bool:
    return one["name"].startswith(OF_THE_TIER)


def shown(s: TieredSession, version: int, kind: int, name: str) -> None:
    """Every key of the tier, a line each, without what is each broker's own."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    fields: dict[str, Any] = {"include_synonyms": True}
    if version >= 3:
        fields["include_documentation"] = True
    answer = s.quietly("DescribeConfigs", version, resources=[resource], **fields)
    listed = [one for one in answer["results"][0]["configs"] if of_tier(one)]
    for one in listed:
        if one["name"] in OWN:
            one["value"] = one["synonyms"] = "<own>"
        if "documentation" in one:
            one["documentation"] = bool(one["documentation"])
    s.record("DescribeConfigs", {one["name"]: one for one in listed})


@case("DescribeConfigs", 1, 4)
def keys_of_topics(s: TieredSession, version: int) -> None:
    shown(s, version, TOPIC, s.layouts["spread"])
    shown(s, version, TOPIC, s.layouts["untiered"])


@case("DescribeConfigs", 1, 4)
def keys_of_brokers(s: TieredSession, version: int) -> None:
    shown(s, version, BROKER, "1")
    shown(s, version, BROKER, "")


DYNAMIC: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("remote.log.index.file.cache.total.size.bytes", ("2000000", "1", "0", "-1", "much")),
    ("remote.log.index.file.cache.ttl.ms", ("1000",)),
    ("remote.log.manager.copier.thread.pool.size", ("5", "20", "21", "4", "0", "-1", "x")),
    ("remote.log.manager.expiration.thread.pool.size", ("5", "20", "21", "4", "0", "-1")),
    ("remote.log.manager.follower.thread.pool.size", ("1", "2", "4", "5", "0", "-1")),
    ("remote.log.manager.thread.pool.size", ("4", "-1")),
    ("remote.log.manager.task.interval.ms", ("1000", "0")),
    ("remote.log.reader.threads", ("5", "20", "21", "4", "0", "-1")),
    ("remote.log.reader.max.pending.tasks", ("200",)),
    ("remote.fetch.max.wait.ms", ("1", "1000", "0", "-1")),
    ("remote.list.offsets.request.timeout.ms", ("1", "1000", "0", "-1")),
    ("remote.log.manager.copy.max.bytes.per.second", ("1000", "1", "0", "-1")),
    ("remote.log.manager.fetch.max.bytes.per.second", ("1000", "1", "0", "-1")),
    ("remote.log.manager.copy.quota.window.num", ("10",)),
    ("remote.log.manager.fetch.quota.window.size.seconds", ("10",)),
    ("remote.log.storage.system.enable", ("true", "false")),
    ("remote.log.storage.manager.class.name", ("a.b.C",)),
    ("remote.log.metadata.custom.metadata.max.bytes", ("100",)),
    ("rsm.config.anything", ("x",)),
    ("rlmm.config.remote.log.metadata.topic.num.partitions", ("7",)),
    ("log.local.retention.ms", ("1000", "-1", "-2", "-3")),
    ("log.local.retention.bytes", ("1000", "-1", "-2", "-3")),
    ("follower.fetch.last.tiered.offset.enable", ("true", "false", "perhaps")),
)


@case("IncrementalAlterConfigs", 1)
def keys_of_brokers_altered(s: TieredSession, version: int) -> None:
    """What may be changed while a broker runs, for one or for all; nothing is changed."""
    for key, values in DYNAMIC:
        for value in values:
            for broker in ("1", ""):
                rows = [{"name": key, "config_operation": SET, "value": value}]
                resource = {"resource_type": BROKER, "resource_name": broker, "configs": rows}
                fields: dict[str, Any] = {"resources": [resource], "validate_only": True}
                answer = s.quietly("IncrementalAlterConfigs", version, **fields)
                s.record("IncrementalAlterConfigs", [key, value, broker, *told(answer)])
