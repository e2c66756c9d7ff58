"""The console tools of Apache Kafka's own jars, as users run them: kafka-topics and its kin."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from compat.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compat.brokers import Broker
    from compat.jvm import Jvm, ToolResult

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

BOOTSTRAP = "--bootstrap-server"


class Tools:
    """Each tool by its shell name; asserts success and returns what it printed."""

    def __init__(self, jvm: Jvm, bootstrap: str) -> None:
        self.jvm = jvm
        self.bootstrap = bootstrap

    def run(self, main: str, *args: str, stdin: str = "") -> str:
        result = self.jvm.tool(main, *args, BOOTSTRAP, self.bootstrap, stdin=stdin)
        assert result.exit == 0, result
        return result.out

    def topics(self, *args: str) -> str:
        return self.run("TopicCommand", *args)

    def configs(self, *args: str) -> str:
        return self.run("kafka.admin.ConfigCommand", *args)

    def groups(self, *args: str) -> str:
        return self.run("consumer.group.ConsumerGroupCommand", *args)

    def produce(self, topic: str, lines: str, *args: str) -> str:
        return self.run("ConsoleProducer", "--topic", topic, *args, stdin=lines)

    def consume(self, topic: str, count: int, *args: str) -> str:
        bound = ["--max-messages", str(count), "--timeout-ms", "20000"]
        return self.run("consumer.ConsoleConsumer", "--topic", topic, *bound, *args)


@pytest.fixture
def tools(java: Jvm, broker: Broker) -> Tools:
    return Tools(java, broker.bootstrap)


@pytest.fixture
def topic(tools: Tools, fresh: Callable[[str], str]) -> str:
    name = fresh("tool")
    created = tools.topics("--create", "--topic", name, "--partitions", "2")
    assert f"Created topic {name}." in created
    return name


def test_topics(tools: Tools, topic: str) -> None:
    assert topic in tools.topics("--list").split()
    described = tools.topics("--describe", "--topic", topic)
    assert re.search(rf"Topic: {topic}\s+TopicId: \S{{22}}\s+PartitionCount: 2", described)
    assert described.count("Leader: ") == 2
    tools.topics("--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in tools.topics("--describe", "--topic", topic)
    tools.topics("--delete", "--topic", topic)
    assert topic not in tools.topics("--list").split()


def test_produce_and_consume(tools: Tools, topic: str) -> None:
    lines = "".join(f"k{index}\tv{index}\n" for index in range(100))
    with_key = ["--reader-property", "parse.key=true", "--compression-codec", "zstd"]
    tools.produce(topic, lines, *with_key)
    shown = ["--from-beginning", "--formatter-property", "print.key=true"]
    consumed = tools.consume(topic, 100, *shown)
    assert sorted(consumed.splitlines()) == sorted(lines.splitlines())


def test_get_offsets_and_delete_records(tools: Tools, topic: str, tmp_path: Path) -> None:
    tools.produce(topic, "a\nb\nc\nd\n")
    latest = tools.run("GetOffsetShell", "--topic", topic, "--time", "-1")
    ends = {line.rsplit(":", 2)[1]: int(line.rsplit(":", 1)[1]) for line in latest.splitlines()}
    assert sum(ends.values()) == 4
    fullest = max(ends, key=lambda partition: ends[partition])
    wanted = tmp_path / "delete.json"
    wanted.write_text(
        f'{{"partitions": [{{"topic": "{topic}", "partition": {fullest}, "offset": 1}}],'
        ' "version": 1}'
    )
    deleted = tools.run("DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert re.search(rf"{topic}-{fullest}\s+low_watermark: 1", deleted)
    earliest = tools.run("GetOffsetShell", "--topic", topic, "--time", "-2")
    assert f"{topic}:{fullest}:1" in earliest


def test_configs(tools: Tools, topic: str) -> None:
    entity = ["--entity-type", "topics", "--entity-name", topic]
    tools.configs(*entity, "--alter", "--add-config", "retention.ms=123456,cleanup.policy=compact")
    described = tools.configs(*entity, "--describe")
    assert "retention.ms=123456" in described
    assert "cleanup.policy=compact" in described
    tools.configs(*entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in tools.configs(*entity, "--describe")
    everything = tools.configs(*entity, "--describe", "--all")
    assert "segment.bytes=1073741824" in everything
    brokers = tools.configs("--entity-type", "brokers", "--describe", "--all")
    assert "offsets.topic.num.partitions=8" in brokers


def test_configs_of_groups(tools: Tools, fresh: Callable[[str], str]) -> None:
    entity = ["--entity-type", "groups", "--entity-name", fresh("group")]
    tools.configs(*entity, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    eventually(
        lambda: tools.configs(*entity, "--describe"),
        lambda text: "consumer.session.timeout.ms=50000" in text,
    )
    tools.configs(*entity, "--alter", "--delete-config", "consumer.session.timeout.ms")
    eventually(
        lambda: tools.configs(*entity, "--describe"),
        lambda text: "consumer.session.timeout.ms=50000" not in text,
    )
    refused = tools.jvm.tool(
        *["kafka.admin.ConfigCommand", BOOTSTRAP, tools.bootstrap, *entity],
        *["--alter", "--add-config", "consumer.session.timeout.ms=1"],
    )
    assert refused.exit == 1
    assert "consumer.session.timeout.ms" in refused.out + refused.err


def test_end_to_end_latency(tools: Tools, topic: str) -> None:
    numbers = ["--num-records", "100", "--producer-acks", "all", "--record-size", "20"]
    measured = tools.run("EndToEndLatency", "--topic", topic, *numbers)
    assert re.search(r"Avg latency: \d+\.\d+ ms", measured), measured
    assert "Percentiles: 50th = " in measured


def test_consumer_groups(tools: Tools, topic: str, fresh: Callable[[str], str]) -> None:
    group = fresh("group")
    tools.produce(topic, "".join(f"line {index}\n" for index in range(10)))
    tools.consume(topic, 10, "--from-beginning", "--group", group)
    assert group in tools.groups("--list").split()
    described = tools.groups("--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert sum(int(row[3]) for row in rows) == 10
    assert all(row[5] == "0" for row in rows), "lag"
    assert "Empty" in tools.groups("--describe", "--group", group, "--state")
    rows = [row.split() for row in tools.run("GroupsCommand", "--list").splitlines()]
    assert rows[0] == ["GROUP", "TYPE", "PROTOCOL"]
    assert [group, "Classic", "consumer"] in rows
    reset = ["--group", group, "--topic", topic, "--reset-offsets"]
    tools.groups(*reset, "--to-earliest", "--execute")
    described = tools.groups("--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert sum(int(row[5]) for row in rows) == 10, "lag"
    tools.groups("--delete-offsets", "--group", group, "--topic", topic)
    assert topic not in tools.groups("--describe", "--group", group)
    tools.groups("--delete", "--group", group)
    assert group not in tools.groups("--list").split()


def test_performance_tools(tools: Tools, topic: str) -> None:
    produced = tools.jvm.tool(
        "ProducerPerformance",
        *["--topic", topic, "--num-records", "20000", "--record-size", "200"],
        *["--throughput", "-1", "--producer-props", f"bootstrap.servers={tools.bootstrap}"],
        "acks=all",
    )
    assert produced.exit == 0, produced
    assert "20000 records sent" in produced.out
    measured = tools.run(
        "ConsumerPerformance",
        *["--topic", topic, "--num-records", "20000", "--timeout", "20000", "--hide-header"],
    )
    assert int(measured.split(",")[4]) >= 20000


def test_client_quotas(tools: Tools, topic: str, fresh: Callable[[str], str]) -> None:
    client = fresh("client")
    entity = ["--entity-type", "clients", "--entity-name", client]
    tools.configs(*entity, "--alter", "--add-config", "producer_byte_rate=100000")
    shown = f"Quota configs for client-id '{client}' are producer_byte_rate=100000.0"
    eventually(lambda: tools.configs(*entity, "--describe").strip(), lambda text: text == shown)
    address = ["--entity-type", "ips", "--entity-name", "192.0.2.77"]
    tools.configs(*address, "--alter", "--add-config", "connection_creation_rate=5")
    shown = "Quota configs for ip '192.0.2.77' are connection_creation_rate=5.0"
    eventually(lambda: tools.configs(*address, "--describe").strip(), lambda text: text == shown)
    user = ["--entity-type", "users", "--entity-name", client]
    assert tools.configs(*user, "--describe").strip() == ""
    produced = tools.jvm.tool(
        "ProducerPerformance",
        *["--topic", topic, "--num-records", "5500", "--record-size", "200", "--print-metrics"],
        *["--throughput", "-1", "--producer-props", f"bootstrap.servers={tools.bootstrap}"],
        f"client.id={client}",
    )
    assert produced.exit == 0, produced
    throttled = re.search(r"produce-throttle-time-max:\{client-id=\S+\}\s*: (\d+)", produced.out)
    assert throttled is not None, produced.out
    assert int(throttled[1]) > 0
    tools.configs(*entity, "--alter", "--delete-config", "producer_byte_rate")
    tools.configs(*address, "--alter", "--delete-config", "connection_creation_rate")
    eventually(lambda: tools.configs(*entity, "--describe").strip(), lambda text: not text)


def test_broker_api_versions_and_cluster(tools: Tools) -> None:
    versions = tools.run("BrokerApiVersionsCommand")
    assert "Produce(0): 0 to 13" in versions
    assert "UNKNOWN" not in versions
    cluster = tools.run("ClusterTool", "cluster-id")
    assert "Cluster ID: " in cluster
    directories = tools.run("LogDirsCommand", "--describe")
    assert '"logDirs"' in directories


GROUP_OF_CONSUMERS = """\
--describe
GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID
<group> <topic> 0 0 0 0 <member> /127.0.0.1 <client>
<group> <topic> 1 1 1 0 <member> /127.0.0.1 <client>
--describe --verbose
GROUP TOPIC PARTITION LEADER-EPOCH CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID
<group> <topic> 0 - 0 0 0 <member> /127.0.0.1 <client>
<group> <topic> 1 0 1 1 0 <member> /127.0.0.1 <client>
--describe --members
GROUP CONSUMER-ID HOST CLIENT-ID #PARTITIONS
<group> <member> /127.0.0.1 <client> 2
--describe --members --verbose
GROUP CONSUMER-ID HOST CLIENT-ID #PARTITIONS CURRENT-EPOCH CURRENT-ASSIGNMENT \
TARGET-EPOCH TARGET-ASSIGNMENT
<group> <member> /127.0.0.1 <client> 2 2 <topic>:0,1 2 <topic>:0,1
--describe --state
GROUP COORDINATOR (ID) ASSIGNMENT-STRATEGY STATE #MEMBERS
<group> <coordinator> uniform Stable 1
--describe --state --verbose
GROUP COORDINATOR (ID) ASSIGNMENT-STRATEGY STATE GROUP-EPOCH TARGET-ASSIGNMENT-EPOCH #MEMBERS
<group> <coordinator> uniform Stable 2 2 1
GROUP COORDINATOR (ID) ASSIGNMENT-STRATEGY STATE #MEMBERS
<group> <coordinator> uniform Empty 0
GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID
<group> <topic> 0 0 0 0 - - -
<group> <topic> 1 1 1 0 - - -
"""
"""As the tool prints it of Apache Kafka 4.3.1."""


def described_group(java: Jvm, tools: Tools, topic: str, group: str) -> str:
    """What the tool prints of a group with one member of the consumer protocol."""
    join = {"bootstrap": tools.bootstrap, "group": group, "topic": topic, "protocol": "consumer"}
    java.call("join", member=group, **join)
    tools.produce(topic, "key\tvalue\n", "--reader-property", "parse.key=true")
    eventually(
        lambda: java.call("consumed", member=group, bootstrap=tools.bootstrap)["records"], len
    )
    java.call("commit", member=group, bootstrap=tools.bootstrap)
    lines = []
    for options in (
        ("--describe",),
        ("--describe", "--verbose"),
        ("--describe", "--members"),
        ("--describe", "--members", "--verbose"),
        ("--describe", "--state"),
        ("--describe", "--state", "--verbose"),
    ):
        lines.append(" ".join(options))
        lines += tools.groups(*options, "--group", group).splitlines()
    java.call("leave", member=group, bootstrap=tools.bootstrap)
    lines += tools.groups("--describe", "--state", "--group", group).splitlines()
    lines += tools.groups("--describe", "--group", group).splitlines()
    text = "\n".join(" ".join(line.split()) for line in lines if line.strip()) + "\n"
    for pattern, name in (
        (re.escape(group), "<group>"),
        (re.escape(topic), "<topic>"),
        (r"(?<= )[\w-]{22}(?= )", "<member>"),
        (r"consumer-<group>-\d+", "<client>"),
        (r"\S+:\d+ \(1\)", "<coordinator>"),
        (r"\b20\d\d-\S+|\d{13}", "<time>"),
    ):
        text = re.sub(pattern, name, text)
    return text


def test_a_group_of_consumers(
    tools: Tools, java: Jvm, topic: str, fresh: Callable[[str], str]
) -> None:
    assert described_group(java, tools, topic, fresh("group")) == GROUP_OF_CONSUMERS


def test_features(java: Jvm, broker: Broker) -> None:
    def features(*args: str) -> ToolResult:
        return java.tool("FeatureCommand", BOOTSTRAP, broker.bootstrap, *args)

    def described() -> dict[str, list[str]]:
        rows = features("describe").out.splitlines()
        fields = [re.findall(r"\w+: (\S+)", row) for row in rows]
        assert all(int(epoch) > 0 for *_, epoch in fields), rows
        return {name: levels for name, *levels, _ in fields}

    before = described()
    assert before["group.version"] == ["0", "1", "1"]
    assert before["transaction.version"] == ["0", "2", "2"]
    assert before["metadata.version"] == ["3.3-IV3", "4.3-IV0", "4.3-IV0"]
    level = ("--feature", "transaction.version=1")
    for args, exit_code, text in (
        (("downgrade", *level, "--dry-run"), 0, "transaction.version can be downgraded to 1."),
        (("downgrade", *level), 0, "transaction.version was downgraded to 1."),
        (("upgrade", "--feature", "transaction.version=2"), 0, "was upgraded to 2."),
        (("disable", "--feature", "transaction.version", "--dry-run"), 0, "can be disabled."),
        (("upgrade", *level), 1, "Could not upgrade transaction.version to 1. The update failed"),
        (("upgrade", "--feature", "none=1"), 1, "does not support this feature"),
        (("downgrade", "--metadata", "4.2"), 1, "Refusing to perform the requested downgrade"),
    ):
        result = features(*args)
        assert (result.exit, text in result.out + result.err) == (exit_code, True), result
    assert described() == before
