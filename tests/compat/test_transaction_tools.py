"""Apache Kafka's own tools for transactions: kafka-transactions, the copier of its system tests,
and the verifiable producer and consumer."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from compat.brokers import Tidelog
from compat.clients.protocol import decoded, encoded
from compat.conftest import Client
from compat.eventually import eventually
from compat.jvm import FAST_START, QUIET
from compat.line_process import WorkerError
from compat.reference import ApacheKafka
from support.txn_client import Nodes, TxnProducer
from tidelog_bench.peers import kafka_jars
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compat.brokers import Broker
    from compat.conftest import ClientPool
    from compat.jvm import Jvm

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]


@pytest.fixture
def client(broker: Broker, client_pool: ClientPool) -> Client:
    """One that is quick to answer; the tools are what is tested."""
    return Client("librdkafka", client_pool.get("librdkafka"), broker.bootstrap)


@pytest.fixture
def topic(client: Client, fresh: Callable[[str], str]) -> str:
    name = fresh("tool")
    client.call("create_topic", topic=name, partitions=1, configs={})
    return name


def transactions(java: Jvm, bootstrap: str, *args: str) -> list[dict[str, str]]:
    """What kafka-transactions prints as a table, row by row."""
    result = java.tool("TransactionsCommand", "--bootstrap-server", bootstrap, *args)
    assert result.exit == 0, result
    lines = [[cell.strip() for cell in line.split("\t")] for line in result.out.splitlines()]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def numbers(client: Client, topic: str, count: int) -> list[int]:
    fields: dict[str, Any] = {"topic": topic, "partition": 0, "from": "earliest"}
    answer = client.call("consume", count=count, committed=True, **fields)
    return [int(decoded(each["value"]) or b"-1") for each in answer["records"]]


def records(count: int) -> list[dict[str, Any]]:
    return [{"key": None, "value": encoded(b"%d" % n), "partition": 0} for n in range(count)]


def test_an_open_transaction_is_listed_described_and_does_not_hang(
    java: Jvm, client: Client, topic: str, fresh: Callable[[str], str]
) -> None:
    transactional_id = fresh("id")
    client.call("txn_open", producer="p", transactional_id=transactional_id, timeout_ms=50_000)
    client.call("txn_send", producer="p", topic=topic, records=records(3), begin=True)

    def tool(*args: str) -> list[dict[str, str]]:
        return transactions(java, client.bootstrap, *args)

    (listed,) = [row for row in tool("list") if row["TransactionalId"] == transactional_id]
    assert listed["TransactionState"] == "Ongoing"
    assert listed["Coordinator"] == "1"
    (row,) = tool("describe", "--transactional-id", transactional_id)
    assert row["ProducerId"] == listed["ProducerId"]
    assert row["TransactionState"] == "Ongoing"
    assert row["TransactionTimeoutMs"] == "50000"
    assert row["TopicPartitions"] == f"{topic}-0"
    assert int(row["TransactionDurationMs"]) >= 0
    place = ["--topic", topic, "--partition", "0"]
    (producer,) = tool("describe-producers", *place)
    assert tool("describe-producers", *place, "--broker-id", "1") == [producer]
    assert producer["ProducerId"] == row["ProducerId"]
    assert producer["ProducerEpoch"] == row["ProducerEpoch"]
    assert producer["LastSequence"] == "2"
    assert producer["CurrentTransactionStartOffset"] == "0"
    assert tool("find-hanging", *place, "--max-transaction-timeout", "0") == []
    client.call("txn_end", producer="p", commit=True)
    (row,) = eventually(
        lambda: tool("describe", "--transactional-id", transactional_id),
        lambda rows: rows[0]["TransactionState"] == "CompleteCommit",
    )
    assert row["TopicPartitions"] == ""
    (producer,) = tool("describe-producers", *place)
    assert producer["CurrentTransactionStartOffset"] == "None"
    assert producer["LatestCoordinatorEpoch"] == "0"
    client.call("txn_close", producer="p")
    unknown = ["describe", "--transactional-id", fresh("unknown")]
    refused = java.tool("TransactionsCommand", "--bootstrap-server", client.bootstrap, *unknown)
    assert refused.exit == 1
    assert "transaction" in refused.err.lower()


@pytest.fixture
def trusting(broker: Broker, tmp_path: Path) -> Iterator[Broker]:
    """A broker that doesn't ask the coordinator whether a transaction has begun."""
    settings = {"transaction.partition.verification.enable": "false"}
    made: Broker = {"tidelog": Tidelog, "kafka": ApacheKafka}[broker.name](tmp_path, settings)
    made.start()
    yield made
    made.stop()


async def leave_hanging(bootstrap: str, topic: str, transactional_id: str) -> None:
    """Records of a transaction of which the coordinator never hears."""
    async with Nodes(bootstrap) as nodes:
        await nodes.create(topic)
        producer = TxnProducer(nodes, transactional_id, version=1)
        assert await producer.init() is ErrorCode.NONE
        sent = await producer.send(topic, b"1", b"2", add=False, ago_ms=3_600_000)
        assert sent is ErrorCode.NONE


def of_row(row: dict[str, str]) -> list[str]:
    """The older way to name a transaction: by its producer."""
    epochs = ["--producer-epoch", row["ProducerEpoch"], "--coordinator-epoch", "0"]
    return ["--producer-id", row["ProducerId"], *epochs]


@pytest.mark.parametrize(
    "named_by",
    [lambda row: ["--start-offset", row["StartOffset"]], of_row],
    ids=["start-offset", "producer"],
)
def test_a_hanging_transaction_is_found_and_aborted(
    java: Jvm,
    client_pool: ClientPool,
    trusting: Broker,
    named_by: Callable[[dict[str, str]], list[str]],
) -> None:
    asyncio.run(leave_hanging(trusting.bootstrap, "hangs", "lost"))
    client = Client("librdkafka", client_pool.get("librdkafka"), trusting.bootstrap)
    client.call(
        "produce", topic="hangs", records=records(2), codec="none", acks="all", idempotent=True
    )
    place = ["--topic", "hangs", "--partition", "0"]

    def hanging(*where: str) -> list[dict[str, str]]:
        return transactions(java, trusting.bootstrap, "find-hanging", *where)

    (found,) = hanging(*place)
    assert found["StartOffset"] == "0"
    assert int(found["Duration(min)"]) >= 60
    assert hanging("--broker-id", "1") == [found]
    assert hanging(*place, "--max-transaction-timeout", "120") == []
    transactions(java, trusting.bootstrap, "abort", *place, *named_by(found))
    assert hanging(*place) == []
    assert numbers(client, "hangs", 2) == [0, 1]


def test_a_transaction_is_ended_by_force(
    java: Jvm, client: Client, topic: str, fresh: Callable[[str], str]
) -> None:
    transactional_id = fresh("id")
    client.call("txn_open", producer="p", transactional_id=transactional_id, timeout_ms=50_000)
    client.call("txn_send", producer="p", topic=topic, records=records(3), begin=True)
    by_id = ["--transactionalId", transactional_id]
    transactions(java, client.bootstrap, "forceTerminateTransaction", *by_id)

    def described() -> dict[str, str]:
        by_name = ["--transactional-id", transactional_id]
        (row,) = transactions(java, client.bootstrap, "describe", *by_name)
        return row

    ended = eventually(described, lambda row: row["TransactionState"] in ("CompleteAbort", "Empty"))
    assert ended["TopicPartitions"] == ""
    with pytest.raises(WorkerError, match=r"(?i)fenced|epoch|newer"):
        client.call("txn_end", producer="p", commit=True)
    client.call(
        "produce", topic=topic, records=records(2), codec="none", acks="all", idempotent=True
    )
    assert numbers(client, topic, 2) == [0, 1]


def test_transactions_are_listed_by_age_and_name(
    java: Jvm, client: Client, topic: str, fresh: Callable[[str], str]
) -> None:
    ids = [fresh("left"), fresh("right")]
    for name in ids:
        client.call("txn_open", producer=name, transactional_id=name)
        client.call("txn_send", producer=name, topic=topic, records=records(1), begin=True)

    def listed(*filters: str) -> list[str]:
        rows = transactions(java, client.bootstrap, "list", *filters)
        return sorted({row["TransactionalId"] for row in rows} & set(ids))

    assert listed() == sorted(ids)
    assert listed("--transactional-id-pattern", f"{ids[0][:-1]}.") == ids[:1]
    assert listed("--transactional-id-pattern", "nobody.*") == []
    assert listed("--duration-filter", "0") == sorted(ids)
    assert listed("--duration-filter", "3600000") == []
    for name in ids:
        client.call("txn_end", producer=name, commit=False)
        client.call("txn_close", producer=name)


def run_java(main: str, *args: str) -> str:
    """A tool that ends its JVM, in one of its own."""
    command = [kafka_jars.java(), *FAST_START, *QUIET, "-cp", kafka_jars.classpath()]
    done = subprocess.run(
        [*command, f"org.apache.kafka.tools.{main}", *args],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout


def test_the_copier_of_kafkas_system_tests(
    java: Jvm, client: Client, topic: str, fresh: Callable[[str], str]
) -> None:
    to = fresh("copies")
    client.call("create_topic", topic=to, partitions=1, configs={})
    client.call(
        "produce", topic=topic, records=records(1000), codec="none", acks="all", idempotent=True
    )
    out = run_java(
        "TransactionalMessageCopier",
        *["--broker-list", client.bootstrap, "--input-topic", topic, "--input-partition", "0"],
        *["--output-topic", to, "--consumer-group", fresh("group"), "--transaction-size", "50"],
        *["--transactional-id", fresh("id"), "--enable-random-aborts", "--use-group-metadata"],
    )
    last = json.loads(out.splitlines()[-1])
    assert last["totalProcessed"] == 1000
    assert last["remaining"] == 0
    assert numbers(client, to, 1000) == list(range(1000)), "lost or doubled"


def test_verifiable_producer_and_consumer(
    java: Jvm, client: Client, topic: str, fresh: Callable[[str], str]
) -> None:
    common = ["--bootstrap-server", client.bootstrap, "--topic", topic, "--max-messages", "500"]
    # What it sent is awaited, and told, as its JVM ends.
    said = [json.loads(line) for line in run_java("VerifiableProducer", *common).splitlines()]
    sent = [int(line["value"]) for line in said if line["name"] == "producer_send_success"]
    assert sorted(sent) == list(range(500))
    group = ["--group-id", fresh("group"), "--reset-policy", "earliest"]
    consumed = java.tool("VerifiableConsumer", *common, *group)
    assert consumed.exit == 0, consumed
    said = [json.loads(line) for line in consumed.out.splitlines()]
    assert sum(line["count"] for line in said if line["name"] == "records_consumed") == 500
    committed = [line for line in said if line["name"] == "offsets_committed"]
    assert committed[-1]["success"]
    assert committed[-1]["offsets"][0]["offset"] == 500
