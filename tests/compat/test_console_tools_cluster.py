"""Apache Kafka's console tools for clusters, as users run them against three tidelogs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from compat.brokers import Tidelog
from compat.eventually import eventually
from compat.test_console_tools import Tools
from support.clusters import FAST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compat.jvm import Jvm

pytestmark = [
    pytest.mark.compat,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("tools of a cluster"),
]

SETTINGS = {
    **FAST,
    "auto.leader.rebalance.enable": "false",  # elections are the tests' own
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "log.dirs": "disk-1,disk-2",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[tidelog.RunningCluster]:
    with tidelog.run(SETTINGS, brokers=3, isolated=True, racks=["a", "b", "c"]) as running:
        yield running


@pytest.fixture
def tools(java: Jvm, cluster: tidelog.RunningCluster) -> Tools:
    return Tools(java, cluster.bootstrap_servers)


def described(tools: Tools, topic: str) -> list[dict[str, Any]]:
    """kafka-topics --describe: leader, replicas and isr of each partition."""
    row = re.compile(r"Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)")
    out = tools.topics("--describe", "--topic", topic)
    return [
        {
            "leader": match[2],
            "replicas": [int(one) for one in match[3].split(",")],
            "isr": sorted(int(one) for one in match[4].split(",") if one),
        }
        for match in row.finditer(out)
    ]


def create(tools: Tools, topic: str, *replicas: str) -> None:
    """A topic with the replicas of each partition given as "1:2:3"."""
    tools.topics("--create", "--topic", topic, "--replica-assignment", ",".join(replicas))
    expected = [[int(one) for one in row.split(":")] for row in replicas]

    def replicas_of() -> list[list[int]]:
        try:
            return [one["replicas"] for one in described(tools, topic)]
        except AssertionError as error:  # the broker that was asked has not heard of it yet
            if "does not exist" not in str(error):
                raise
            return []

    eventually(replicas_of, expected.__eq__)


def describe_quorum(tools: Tools, what: str) -> str:
    """kafka-metadata-quorum, which wants the address before its command."""
    tool = ["MetadataQuorumCommand", "--bootstrap-server", tools.bootstrap, "describe", what]
    result = tools.jvm.tool(*tool)
    assert result.exit == 0, result
    return result.out


def test_topics_of_several_replicas(tools: Tools, fresh: Callable[[str], str]) -> None:
    topic = fresh("replicated")
    numbers = ["--partitions", "3", "--replication-factor", "3"]
    tools.topics("--create", "--topic", topic, *numbers)
    rows = described(tools, topic)
    assert [sorted(row["replicas"]) for row in rows] == [[1, 2, 3]] * 3
    assert sorted(row["leader"] for row in rows) == ["1", "2", "3"]
    tools.topics(
        *["--alter", "--topic", topic, "--partitions", "4", "--replica-assignment"],
        "1:2:3,1:2:3,1:2:3,3:1:2",
    )
    rows = eventually(lambda: described(tools, topic), lambda seen: len(seen) == 4)
    assert rows[3]["replicas"] == [3, 1, 2]
    refused = tools.jvm.tool(
        *["TopicCommand", "--create", "--topic", fresh("four"), "--partitions", "1"],
        *["--replication-factor", "4", "--bootstrap-server", tools.bootstrap],
    )
    assert refused.exit == 1
    assert "replication factor" in refused.out + refused.err


def test_reassign_partitions(tools: Tools, fresh: Callable[[str], str], tmp_path: Path) -> None:
    topic = fresh("moved")
    create(tools, topic, "1:2")
    tools.produce(topic, "".join(f"line {number}\n" for number in range(100)))
    named = tmp_path / "topics.json"
    named.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generated = tools.run(
        "reassign.ReassignPartitionsCommand",
        *["--generate", "--topics-to-move-json-file", str(named), "--broker-list", "2,3"],
    )
    _, _, proposed = generated.partition("Proposed partition reassignment configuration")
    wanted = tmp_path / "wanted.json"
    wanted.write_text(proposed.strip())
    replicas = json.loads(proposed)["partitions"][0]["replicas"]
    assert sorted(replicas) == [2, 3]
    file = ["--reassignment-json-file", str(wanted)]
    executed = tools.run("reassign.ReassignPartitionsCommand", "--execute", *file)
    assert f"Successfully started partition reassignment for {topic}-0" in executed
    eventually(
        lambda: tools.run("reassign.ReassignPartitionsCommand", "--verify", *file),
        lambda said: f"Reassignment of partition {topic}-0 is completed" in said,
    )
    assert described(tools, topic)[0]["replicas"] == replicas
    listed = tools.run("reassign.ReassignPartitionsCommand", "--list")
    assert "No partition reassignments found." in listed
    lines = tools.consume(topic, 100, "--from-beginning").splitlines()
    assert lines == [f"line {number}" for number in range(100)]


def test_a_throttled_reassignment_sends_no_more_than_its_rate_until_it_is_lifted(
    tools: Tools, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    topic, reassign = fresh("limited"), "reassign.ReassignPartitionsCommand"
    create(tools, topic, "1:2")
    tools.produce(topic, f"{'x' * 8000}\n" * 1000)  # more than a fetch may bring at once

    def bytes_at(broker: int) -> int:
        return sum(
            one["size"] for found in log_dirs(tools, topic, broker).values() for one in found
        )

    total = eventually(lambda: bytes_at(1), lambda size: size > 8_000_000)
    wanted = tmp_path / "wanted.json"
    entry = {"topic": topic, "partition": 0, "replicas": [2, 3]}
    wanted.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    file = ["--reassignment-json-file", str(wanted)]
    executed = tools.run(reassign, "--execute", *file, "--throttle", "1")
    assert "The inter-broker throttle limit was set to 1 B/s" in executed
    # A byte a second: what the first fetch brings is more than the rate of a whole measurement.
    eventually(lambda: bytes_at(3), lambda size: size > 0)
    described = tools.configs("--describe", "--entity-type", "brokers")
    for kind in ("leader", "follower"):
        assert described.count(f"{kind}.replication.throttled.rate=1 sensitive=false") == 3
    said = tools.run(reassign, "--verify", *file)
    assert f"Reassignment of partition {topic}-0 is still in progress" in said
    assert 0 < bytes_at(3) < total / 2
    tools.run(reassign, "--execute", "--additional", *file, "--throttle", "1000000000")
    said = eventually(
        lambda: tools.run(reassign, "--verify", *file),
        lambda said: f"Reassignment of partition {topic}-0 is completed" in said,
    )
    assert f"Clearing topic-level throttles on topic {topic}" in said
    assert bytes_at(3) == bytes_at(2) == total
    for kind, name in (("brokers", []), ("topics", ["--entity-name", topic])):
        described = tools.configs("--describe", "--entity-type", kind, *name)
        assert "throttled" not in described


def log_dirs(tools: Tools, topic: str, broker: int) -> dict[str, list[dict[str, Any]]]:
    """kafka-log-dirs --describe: what each directory of a broker has of a topic."""
    options = ["--describe", "--topic-list", topic, "--broker-list", str(broker)]
    said = tools.run("LogDirsCommand", *options)
    (document,) = [line for line in said.splitlines() if line.startswith("{")]
    (described,) = json.loads(document)["brokers"]
    return {one["logDir"]: one["partitions"] for one in described["logDirs"]}


def test_reassign_partitions_to_other_log_directories(
    tools: Tools, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    topic = fresh("dirs")
    create(tools, topic, "1:2")
    tools.produce(topic, "".join(f"line {number}\n" for number in range(100)))
    before = eventually(
        lambda: log_dirs(tools, topic, 1), lambda found: sum(map(bool, found.values())) == 1
    )
    assert sorted(where.rpartition("/")[2] for where in before) == ["disk-1", "disk-2"]
    (target,) = [where for where, partitions in before.items() if not partitions]
    # The second replica goes to another broker, and there to a directory of the admin's choice.
    chosen = sorted(log_dirs(tools, topic, 3))[1]
    wanted = tmp_path / "wanted.json"
    entry = {"topic": topic, "partition": 0, "replicas": [1, 3], "log_dirs": [target, chosen]}
    wanted.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    file = ["--reassignment-json-file", str(wanted)]
    execute = ["--execute", "--additional", "--replica-alter-log-dirs-throttle", "1000000"]
    options = [*execute, *file, "--bootstrap-server", tools.bootstrap]
    # The tool gives up where a broker has not heard of the topic yet: then it is asked again.
    eventually(
        lambda: tools.jvm.tool("reassign.ReassignPartitionsCommand", *options).out,
        lambda said: all(
            f"Successfully started moving log directory to {where} for replica {topic}-0"
            f" with broker {broker}" in said
            for broker, where in ((1, target), (3, chosen))
        ),
    )
    eventually(
        lambda: tools.run("reassign.ReassignPartitionsCommand", "--verify", *file),
        lambda said: (
            f"Reassignment of partition {topic}-0 is completed" in said
            and all(
                f"Reassignment of replica {topic}-0-{broker} completed successfully" in said
                for broker in (1, 3)
            )
        ),
    )
    for broker, where in ((1, target), (3, chosen)):
        (moved,) = log_dirs(tools, topic, broker)[where]
        assert (moved["partition"], moved["isFuture"]) == (f"{topic}-0", False)
    lines = tools.consume(topic, 100, "--from-beginning").splitlines()
    assert lines == [f"line {number}" for number in range(100)]


def test_a_broker_goes_and_its_leaderships_come_back(
    tools: Tools, cluster: tidelog.RunningCluster, fresh: Callable[[str], str]
) -> None:
    topic = fresh("led")
    create(tools, topic, "3:1:2", "1:2:3")
    gone = cluster.brokers[2]
    gone.kill()

    def under_replicated() -> str:
        return tools.topics("--describe", "--topic", topic, "--under-replicated-partitions")

    said = eventually(under_replicated, lambda said: said.count(f"Topic: {topic}") == 2)
    assert "Isr: 1,2" in said
    assert [row["leader"] for row in described(tools, topic)] == ["1", "1"]
    gone.start()
    eventually(under_replicated, lambda said: topic not in said)
    assert described(tools, topic)[0]["leader"] == "1"
    election = ["--topic", topic, "--partition", "0", "--election-type", "preferred"]
    elected = tools.run("LeaderElectionCommand", *election)
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in elected
    eventually(lambda: described(tools, topic)[0]["leader"], "3".__eq__)
    again = tools.run("LeaderElectionCommand", *election)
    assert "Valid replica already elected" in again


def test_metadata_quorum(tools: Tools) -> None:
    status = describe_quorum(tools, "--status")
    shown = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    assert shown["LeaderId"].strip() in ("1", "2", "3")
    voters = json.loads(shown["CurrentVoters"])
    assert sorted(voter["id"] for voter in voters) == [1, 2, 3]
    assert all(voter["endpoints"][0].startswith("CONTROLLER://127.0.0.1:") for voter in voters)
    assert json.loads(shown["CurrentObservers"]) == []
    replication = describe_quorum(tools, "--replication")
    rows = [line.split() for line in replication.splitlines()[1:] if line.strip()]
    assert sorted(row[0] for row in rows) == ["1", "2", "3"]
    assert sorted(row[-1] for row in rows) == ["Follower", "Follower", "Leader"]


def test_cluster_and_versions(tools: Tools) -> None:
    assert "Cluster ID: " in tools.run("ClusterTool", "cluster-id")
    endpoints = tools.run("ClusterTool", "list-endpoints")
    rows = [line.split() for line in endpoints.splitlines()[1:]]
    assert [(row[0], row[1]) for row in rows] == [(str(node), "127.0.0.1") for node in (1, 2, 3)]
    refused = tools.jvm.tool(
        "ClusterTool", "unregister", "--id", "9", "--bootstrap-server", tools.bootstrap
    )
    assert "not currently registered" in refused.out + refused.err, refused
    versions = tools.run("BrokerApiVersionsCommand")
    assert len(re.findall(r"\(id: \d rack: [abc] isFenced: false\) ->", versions)) == 3
    assert "UNKNOWN" not in versions
    assert "DescribeQuorum(55): 0 to 2" in versions


def test_groups_of_a_cluster(tools: Tools, fresh: Callable[[str], str]) -> None:
    topic, group = fresh("read"), fresh("group")
    create(tools, topic, "1:2:3", "2:3:1")
    tools.produce(topic, "".join(f"line {number}\n" for number in range(50)))
    tools.consume(topic, 50, "--from-beginning", "--group", group)
    rows = tools.groups("--describe", "--group", group).splitlines()
    shown = [line.split() for line in rows if line.startswith(group)]
    assert sum(int(row[3]) for row in shown) == 50
    state = tools.groups("--describe", "--group", group, "--state")
    assert re.search(rf"{group}\s+127\.0\.0\.1:\d+\s+\([123]\)", state)


def test_the_quorum_of_a_single_broker(java: Jvm, tmp_path: Path) -> None:
    broker = Tidelog(tmp_path)
    broker.start()
    try:
        tools = Tools(java, broker.bootstrap)
        status = describe_quorum(tools, "--status")
        assert re.search(r"LeaderId:\s+1\n", status)
        replication = describe_quorum(tools, "--replication")
        (row,) = [line.split() for line in replication.splitlines()[1:] if line.strip()]
        assert (row[0], row[-1]) == ("1", "Leader")
        listed = tools.run("reassign.ReassignPartitionsCommand", "--list")
        assert "No partition reassignments found." in listed
        create(tools, "t", "1")
        election = ["--topic", "t", "--partition", "0", "--election-type", "preferred"]
        assert "Valid replica already elected" in tools.run("LeaderElectionCommand", *election)
    finally:
        broker.stop()
