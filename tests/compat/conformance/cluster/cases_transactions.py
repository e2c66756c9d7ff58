"""Cases: transactions over three brokers, and what the brokers say that coordinate or lead none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.cluster.cases_groups import settled as group_settled
from compat.conformance.cluster.registry import case
from compat.conformance.session import NONE
from compat.conformance.transactional import FOREVER_MS, NOT_YET, TIMEOUT_MS, TRANSACTION, shown
from tidelog_protocol.records import Record, build_batch

if TYPE_CHECKING:
    from compat.conformance.cluster.session import ClusterSession

NOT_COORDINATOR = 16


class Spread:
    """A producer, the connection of its coordinator (`home`) and of a broker that is none."""

    def __init__(self, s: ClusterSession) -> None:
        self.transactional_id = f"{s.name}.id"
        found = s.wait(
            "a coordinator",
            "FindCoordinator",
            1,
            lambda answer: answer["error_code"] == NONE,
            key=self.transactional_id,
            key_type=TRANSACTION,
        )
        self.home = str(found["node_id"])
        self.other = str(next(one for one in s.alive if one != found["node_id"]))
        asked = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": TIMEOUT_MS,
        }
        s.wait(
            "the others know",
            "InitProducerId",
            4,
            lambda answer: answer["error_code"] == NOT_COORDINATOR,
            connection=self.other,
            **asked,
        )
        made = s.wait(
            "a producer id",
            "InitProducerId",
            4,
            lambda answer: answer["error_code"] not in NOT_YET,
            connection=self.home,
            **asked,
        )
        self.producer_id, self.epoch = made["producer_id"], made["producer_epoch"]

    def who(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def settle(self, s: ClusterSession) -> None:
        """Wait for the markers."""
        s.wait(
            "the transaction ends",
            "DescribeTransactions",
            0,
            lambda answer: (
                not answer["transaction_states"][0]["transaction_state"].startswith("Prepare")
            ),
            connection=self.home,
            transactional_ids=[self.transactional_id],
        )

    def batch(self, value: bytes, sequence: int = 0) -> bytes:
        return build_batch(
            [Record(0, 1_700_000_000_000, None, value)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )


@case("InitProducerId", 0, 3, 5)
def not_the_coordinator_begins(s: ClusterSession, version: int) -> None:
    one = Spread(s)
    fields = {"transactional_id": one.transactional_id, "transaction_timeout_ms": TIMEOUT_MS}
    s.ask("InitProducerId", version, connection=one.other, **fields)
    fields["transaction_timeout_ms"] = 0
    s.ask("InitProducerId", version, connection=one.other, **fields)


@case("AddPartitionsToTxn", 0, 3, 5)
def not_the_coordinator_adds(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1])
    one = Spread(s)
    rows = [{"name": topic, "partitions": [0]}]
    if version < 4:
        fields: dict[str, Any] = {f"v3_and_below_{key}": value for key, value in one.who().items()}
        fields["v3_and_below_topics"] = rows
    else:
        wanted = {**one.who(), "topics": rows}
        fields = {"transactions": [wanted, {**wanted, "verify_only": True}]}
    s.ask("AddPartitionsToTxn", version, connection=one.other, **fields)


@case("AddOffsetsToTxn", 0, 4)
def not_the_coordinator_adds_offsets(s: ClusterSession, version: int) -> None:
    one = Spread(s)
    s.ask("AddOffsetsToTxn", version, connection=one.other, **one.who(), group_id=s.name)


@case("EndTxn", 0, 5)
def not_the_coordinator_ends(s: ClusterSession, version: int) -> None:
    one = Spread(s)
    for committed in (True, False):
        s.ask("EndTxn", version, connection=one.other, **one.who(), committed=committed)


@case("DescribeTransactions", 0)
def not_the_coordinator_describes(s: ClusterSession, version: int) -> None:
    one = Spread(s)
    asked = {"transactional_ids": [one.transactional_id, ""]}
    s.ask("DescribeTransactions", version, connection=one.other, **asked)
    answer = s.quietly("ListTransactions", 2, connection=one.other)
    ids = [each["transactional_id"] for each in answer["transaction_states"]]
    assert one.transactional_id not in ids


@case("WriteTxnMarkers", 1, 2)
def not_the_leader_marks(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2], [2, 1])
    one = Spread(s)
    marker = {
        "producer_id": one.producer_id,
        "producer_epoch": one.epoch,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "topics": [{"name": topic, "partition_indexes": [0, 1]}],
    }
    for node_id in s.alive:
        s.ask("WriteTxnMarkers", version, connection=str(node_id), markers=[marker])


@case("DescribeProducers", 0)
def at_followers(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2])
    one = Spread(s)
    sent(s, one, topic, 0, leader=1, version=12)
    asked = [{"name": topic, "partition_indexes": [0, 5]}]

    def is_there(answer: dict[str, Any]) -> bool:
        return bool(answer["topics"][0]["partitions"][0]["active_producers"])

    # acks=-1: the follower in sync has the batch, and with it the producer.
    s.ask_until("DescribeProducers", version, is_there, connection="2", topics=asked)
    s.at_each("DescribeProducers", version, topics=asked)


def sent(
    s: ClusterSession, one: Spread, topic: str, index: int, *, leader: int, version: int
) -> None:
    where = {"topic_id": s.topic_id(topic)} if version >= 13 else {"name": topic}
    rows = [{"index": index, "records": one.batch(b"value")}]
    s.ask(
        "Produce",
        version,
        connection=str(leader),
        transactional_id=one.transactional_id,
        acks=-1,
        timeout_ms=60_000,
        topic_data=[{**where, "partition_data": rows}],
    )


@case("Produce", 11, 12, 13)
def leaders_ask_the_coordinator(s: ClusterSession, version: int) -> None:
    """At each leader, wherever the coordinator is; the end reaches all of them."""
    topic = s.replicated([1, 2], [2, 3], [3, 1], segment_ms=FOREVER_MS)
    one = Spread(s)
    for committed in (True, False):
        for index in range(3):
            sent(s, one, topic, index, leader=index + 1, version=version)
        fields = {f"v3_and_below_{key}": value for key, value in one.who().items()}
        fields["v3_and_below_topics"] = [{"name": topic, "partitions": [0, 1, 2]}]
        s.ask("AddPartitionsToTxn", 3, connection=one.home, **fields)
        if version < 12:
            for index in range(3):
                sent(s, one, topic, index, leader=index + 1, version=version)
        answer = s.ask("EndTxn", 5, connection=one.home, **one.who(), committed=committed)
        one.settle(s)
        one.epoch = answer["producer_epoch"]
    for index in range(3):
        rows = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1_000_000}]
        fields = {"isolation_level": 1, "max_wait_ms": 50, "min_bytes": 1, "max_bytes": 1_000_000}
        fields["topics"] = [{"topic": topic, "partitions": rows}]
        read = s.quietly("Fetch", 4, connection=str(index + 1), replica_id=-1, **fields)
        part = read["responses"][0]["partitions"][0]
        s.record("Fetch", {**part, "records": shown(part["records"])})


@case("TxnOffsetCommit", 0, 3, 4, 5)
def offsets_elsewhere(s: ClusterSession, version: int) -> None:
    """The group's coordinator need not be the transaction's; a broker that is neither refuses."""
    topic = s.replicated([1])
    one = Spread(s)
    home, other = group_settled(s)
    row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    fields: dict[str, Any] = {"group_id": s.name, **one.who()}
    fields["topics"] = [{"name": topic, "partitions": [row]}]
    if version >= 3:
        fields["member_id"] = ""
    s.ask("TxnOffsetCommit", version, connection=other, **fields)
    s.ask("TxnOffsetCommit", version, connection=home, **fields)
    s.ask("AddOffsetsToTxn", 3, connection=one.home, **one.who(), group_id=s.name)
    s.ask("TxnOffsetCommit", version, connection=home, **fields)
    asked = {"group_id": s.name, "topics": [{"name": topic, "partition_indexes": [0]}]}
    s.ask("OffsetFetch", 7, connection=home, require_stable=True, **asked)
    s.ask("EndTxn", 3, connection=one.home, **one.who(), committed=True)
    one.settle(s)
    s.ask("OffsetFetch", 7, connection=home, require_stable=True, **asked)
