"""The console tools that change a cluster: offsets, records, leaders, replicas, transactions."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from tidelog.__main__ import main
from tidelog.config.broker import BrokerConfig
from tidelog.config.vocabulary import ConfigError
from tidelog.embedded.cluster_client import ClusterClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS_MAX = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[tidelog.RunningCluster]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    settings["transaction.state.log.num.partitions"] = "1"
    with tidelog.run(settings, brokers=2) as running:
        yield running


@pytest.fixture
def tool(
    cluster: tidelog.RunningCluster, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a command; returns its exit code, output and errors."""

    def run(name: str, *words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([name, "-b", cluster.bootstrap_servers, *words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def topic_with_records(cluster: tidelog.RunningCluster, name: str, partitions: int = 2) -> None:
    """Five records in each partition, of the times 1000, 2000, …"""
    from aiokafka import AIOKafkaProducer

    cluster.create_topic(name, partitions=partitions)

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(5 * partitions):
                at_ms = 1000 * (1 + number // partitions)
                partition = number % partitions
                await producer.send_and_wait(name, b"x", partition=partition, timestamp_ms=at_ms)

    asyncio.run(produce())


def cells(out: str) -> list[list[str]]:
    """The rows of a table without its titles."""
    return [line.split() for line in out.splitlines()[1:]]


def test_a_groups_offsets_are_reset(cluster: tidelog.RunningCluster, tool: Any) -> None:
    topic_with_records(cluster, "read")
    code, _, err = tool("groups", "reset", "new", "--to", "earliest")
    assert (code, err) == (1, "tidelog groups: group new has no offsets; name the topics\n")
    rows = [["read", "0", "-", "5"], ["read", "1", "-", "5"]]
    code, out, err = tool("groups", "reset", "new", "read", "--to", "latest")
    assert (code, cells(out), err) == (0, rows, "")
    rows = [["read", "1", "5", "2"]]
    words = ["read", "--partition", "1", "--to", "1970-01-01T00:00:02.001"]
    assert cells(tool("groups", "reset", "new", *words)[1]) == rows
    rows = [["read", "0", "5", "0"], ["read", "1", "2", "0"]]
    assert cells(tool("groups", "reset", "new", "--to", "earliest", "--dry-run")[1]) == rows
    rows = [["read", "0", "5", "3"], ["read", "1", "2", "3"]]
    assert cells(tool("groups", "reset", "new", "--to", "3")[1]) == rows
    rows = [["read", "0", "3", "5"], ["read", "1", "3", "5"]]
    assert cells(tool("groups", "reset", "new", "--to", "-1h")[1]) == rows  # no record since
    described = json.loads(tool("groups", "describe", "new", "--json")[1])
    assert [(row["committed"], row["lag"]) for row in described] == [(5, 0), (5, 0)]
    code, _, err = tool("groups", "reset", "new", "--to", "6")
    assert (code, err) == (1, "tidelog groups: read-0 has offsets 0 to 5, not 6\n")
    code, _, err = tool("groups", "reset", "new", "read", "--to", "soon")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("tidelog groups: 'soon' is not a time such as")
    code, _, err = tool("groups", "reset", "new", "read", "--partition", "7", "--to", "latest")
    assert (code, err) == (1, "tidelog groups: read has no partition 7\n")


def test_a_group_with_members_keeps_its_offsets(cluster: tidelog.RunningCluster, tool: Any) -> None:
    from aiokafka import AIOKafkaConsumer

    cluster.create_topic("busy", partitions=1)

    async def reset_while_read() -> tuple[int, str, str]:
        servers = cluster.bootstrap_servers
        async with AIOKafkaConsumer("busy", bootstrap_servers=servers, group_id="busy") as consumer:
            assert consumer.assignment()
            words = ("groups", "reset", "busy", "busy", "--to", "latest")
            return await asyncio.to_thread(tool, *words)

    code, _, err = asyncio.run(reset_while_read())
    assert (code, err) == (1, "tidelog groups: group busy has members; stop them first\n")


def test_records_are_deleted_before_an_offset_or_a_time(
    cluster: tidelog.RunningCluster, tool: Any
) -> None:
    topic_with_records(cluster, "old")
    words = ["records", "delete", "old", "--before"]
    assert cells(tool(*words, "1970-01-01T00:00:02")[1]) == [["old", "0", "1"], ["old", "1", "1"]]
    assert cells(tool(*words, "3", "--partition", "1")[1]) == [["old", "1", "3"]]
    described = json.loads(tool("topics", "describe", "old", "--json")[1])
    assert [(row["first"], row["next"]) for row in described] == [(1, 5), (3, 5)]
    code, _, err = tool(*words, "2", "--partition", "1")
    assert (code, err) == (1, "tidelog records: old-1 has offsets 3 to 5, not 2\n")
    assert cells(tool(*words, "latest")[1]) == [["old", "0", "5"], ["old", "1", "5"]]
    code, _, err = tool("records", "delete", "absent", "--before", "latest")
    assert (code, err) == (1, "tidelog records: absent: UNKNOWN_TOPIC_OR_PARTITION\n")


def test_a_partition_moves_and_its_preferred_leader_is_elected(
    cluster: tidelog.RunningCluster, tool: Any
) -> None:
    topic_with_records(cluster, "moved", partitions=1)
    for brokers in ("2", "1,2", "2,1"):
        words = ["partitions", "move", "moved", "0", "--to", brokers]
        assert tool(*words) == (0, f"moved-0: on {brokers}\n", "")
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        code, _, err = tool("leaders", "elect", "moved")
        assert (code, err) == (0, "")
        with ClusterClient(cluster.bootstrap_servers) as client:
            (topic,) = client.topics(["moved"])
        placed = (topic.partitions[0].replica_nodes, topic.partitions[0].leader_id)
        if placed == ([2, 1], 2):
            break
        assert time.monotonic() < deadline, placed
        time.sleep(0.05)
    assert tool("leaders", "elect", "moved", "--partition", "0") == (
        0,
        "0 elected, 1 did not need it\n",
        "",
    )
    code, _, err = tool("partitions", "move", "moved", "0", "--to", "9")
    assert (code, err.count("\n"), "INVALID_REPLICA_ASSIGNMENT" in err) == (1, 1, True)
    code, _, err = tool("partitions", "move", "moved", "3", "--to", "1")
    assert (code, err) == (1, "tidelog partitions: moved has no partition 3\n")
    with pytest.raises(SystemExit) as ended:
        tool("partitions", "move", "moved", "0", "--to", "one")
    assert ended.value.code == 2


def test_a_misspelled_setting_or_command_is_answered_with_the_nearest(
    cluster: tidelog.RunningCluster, tool: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic("spelled")
    for words in (
        ["configs", "set", "topic", "spelled", "retention.mss=1"],
        ["topics", "create", "unspelled", "--config", "retention.mss=1"],
    ):
        code, _, err = tool(*words)
        assert (code, err.count("\n")) == (1, 1)
        assert err.endswith("; did you mean retention.ms?\n"), err
    code, _, err = tool("configs", "set", "topic", "spelled", "retention.ms=soon")
    assert (code, "did you mean" in err) == (1, False)
    code, _, err = tool("configs", "set", "group", "spelled", "consumer.session.timeout.mss=50000")
    assert (code, err.count("did you mean consumer.session.timeout.ms?")) == (1, 1)
    text = "Unknown configuration 'num.partition'; did you mean num.partitions?"
    with pytest.raises(ConfigError, match=re.escape(text)):
        BrokerConfig.from_properties({"node.id": "1", "num.partition": "1"})
    assert main(["topic"]) == 2
    assert capsys.readouterr().err == "tidelog: unknown command 'topic'; did you mean topics?\n"


def test_a_subscription_of_clients_metrics(cluster: tidelog.RunningCluster, tool: Any) -> None:
    subscription = ("client-metrics", "all")
    code, _, err = tool("configs", "set", *subscription, "metrics=*", "interval.ms=1000")
    assert (code, err) == (0, "")
    code, out, _ = tool("configs", "describe", *subscription, "--json")
    assert code == 0
    assert json.loads(out) == [
        {"setting": "interval.ms", "value": "1000", "from": "client-metrics"},
        {"setting": "metrics", "value": "*", "from": "client-metrics"},
    ]
    assert tool("configs", "unset", *subscription, "metrics", "interval.ms")[0] == 0
    code, _, err = tool("configs", "set", *subscription, "metric=*")
    assert (code, err.endswith("; did you mean metrics?\n")) == (1, True)


def test_an_open_transaction_is_listed_and_aborted(
    cluster: tidelog.RunningCluster, tool: Any
) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    cluster.create_topic("paid", partitions=1)

    async def abort_while_open() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, transactional_id="pay"
        )
        await producer.start()
        try:
            await producer.begin_transaction()
            await producer.send_and_wait("paid", b"x")
            words = ("transactions", "list", "--state", "Ongoing", "--json")
            (listed,) = json.loads((await asyncio.to_thread(tool, *words))[1])
            assert (listed["transactional_id"], listed["state"]) == ("pay", "Ongoing")
            aborted = await asyncio.to_thread(tool, "transactions", "abort", "pay")
            assert aborted == (0, "pay: aborted, its producer is fenced\n", "")
            with pytest.raises(KafkaError):
                await producer.commit_transaction()
        finally:
            await producer.stop()

    asyncio.run(abort_while_open())
    words = ["consume", "paid", "--from-beginning", "--until-end"]
    assert tool(*words, "--committed")[:2] == (0, "")
    assert tool(*words)[:2] == (0, "x\n")
    code, _, err = tool("transactions", "abort", "pay")
    assert code == 1
    assert err.startswith("tidelog transactions: transaction pay is not open, its state is ")
    code, _, err = tool("transactions", "abort", "absent")
    assert (code, "TRANSACTIONAL_ID_NOT_FOUND" in err) == (1, True)
    assert "absent" not in tool("transactions", "list")[1]
    code, _, err = tool("transactions", "list", "--state", "Open")
    assert (code, err) == (1, "tidelog transactions: there is no state 'Open'\n")
