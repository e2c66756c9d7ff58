"""A transactional producer for cases: what it does is not recorded, only what the case asks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from compat.conformance.batches import TIME, batch
from compat.conformance.session import PATIENCE_MS, WAIT_S
from tidelog_protocol.records import Record, iter_batches, iter_records

if TYPE_CHECKING:
    from compat.conformance.session import Session

NONE = 0
NOT_YET = (14, 15, 16, 51)  # the coordinator loads or moves, or ends the transaction before
TIMEOUT_MS = 60_000
TRANSACTION = 1  # key type of FindCoordinator
FOREVER_MS = str(2**62)
GROUP_PARTITIONS = 8


class Producer:
    """A transactional id with the producer id and epoch it was given last, both protocols."""

    def __init__(self, s: Session, suffix: str = "") -> None:
        self._session = s
        self.transactional_id = f"{s.name}.id{suffix}"
        self.producer_id = self.epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}
        self._done("FindCoordinator", 1, key=self.transactional_id, key_type=TRANSACTION)
        self.init()

    def init(self) -> None:
        """The next epoch."""
        fields = {"transactional_id": self.transactional_id, "transaction_timeout_ms": TIMEOUT_MS}
        self.took(self._done("InitProducerId", 4, **fields))

    def took(self, answer: dict[str, Any]) -> None:
        """Go on with the producer id and epoch of an answer, if it has some."""
        if answer.get("producer_epoch", -1) >= 0:
            self.producer_id = answer["producer_id"]
            self.epoch = answer["producer_epoch"]
            self._sequences.clear()

    def who(self, **changes: Any) -> dict[str, Any]:
        """Its fields in a request."""
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            **changes,
        }

    def added(self, topic: str, *partitions: int) -> None:
        """AddPartitionsToTxn."""
        fields = {f"v3_and_below_{name}": value for name, value in self.who().items()}
        topics = [{"name": topic, "partitions": list(partitions)}]
        end = time.monotonic() + WAIT_S
        while True:
            answer = self._session.quietly(
                "AddPartitionsToTxn", 3, **fields, v3_and_below_topics=topics
            )
            parts = answer["results_by_topic_v3_and_below"][0]["results_by_partition"]
            codes = {one["partition_error_code"] for one in parts}
            if codes == {NONE}:
                return
            assert codes <= set(NOT_YET), answer
            assert time.monotonic() < end, answer
            time.sleep(0.02)

    def batch(
        self, *values: bytes, sequence: int = 0, timestamp: int = TIME, **changes: Any
    ) -> bytes:
        """Records of this producer."""
        rows = [Record(delta, timestamp + delta, None, value) for delta, value in enumerate(values)]
        fields: dict[str, Any] = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "transactional": True,
            **changes,
        }
        return batch(rows, base_sequence=sequence, **fields)

    def sent(self, topic: str, *values: bytes, partition: int = 0, timestamp: int = TIME) -> None:
        """A batch whose partition belongs to the transaction from now on, if it did not before."""
        sequence = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = sequence + len(values)
        data = self.batch(*values, sequence=sequence, timestamp=timestamp)
        rows = [{"index": partition, "records": data}]
        fields = {
            "transactional_id": self.transactional_id,
            "acks": -1,
            "timeout_ms": PATIENCE_MS,
            "topic_data": [{"name": topic, "partition_data": rows}],
        }
        end = time.monotonic() + WAIT_S
        while True:
            answer = self._session.quietly("Produce", 12, **fields)
            code = answer["responses"][0]["partition_responses"][0]["error_code"]
            if code == NONE:
                return
            assert code in NOT_YET, answer
            assert time.monotonic() < end, answer
            time.sleep(0.02)

    def ended(self, *, commit: bool, version: int = 4) -> None:
        """EndTxn, and its markers."""
        self.took(self._done("EndTxn", version, **self.who(committed=commit)))
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is left to do of a transaction that was ended."""
        end = time.monotonic() + WAIT_S
        while self.state()["transaction_state"].startswith("Prepare"):
            assert time.monotonic() < end, "the transaction does not end"
            time.sleep(0.01)

    def state(self) -> dict[str, Any]:
        """What DescribeTransactions says."""
        asked = {"transactional_ids": [self.transactional_id]}
        answer = self._session.quietly("DescribeTransactions", 0, **asked)
        found: dict[str, Any] = answer["transaction_states"][0]
        found["topics"].sort(key=lambda each: str(each["topic"]))
        for each in found["topics"]:
            each["partitions"].sort()
        return found

    def _done(self, api: str, version: int, **fields: Any) -> dict[str, Any]:
        end = time.monotonic() + WAIT_S
        while True:
            answer = self._session.quietly(api, version, **fields)
            if answer["error_code"] == NONE:
                return answer
            assert answer["error_code"] in NOT_YET, answer
            assert time.monotonic() < end, answer
            time.sleep(0.02)


def new_topic(s: Session, partitions: int = 1) -> str:
    """One whose markers, of today, may stand behind records of long ago in the same segment."""
    return s.topic(partitions, segment_ms=FOREVER_MS)


def shown(data: bytes | None) -> Any:
    """Batches without what is of the moment: a marker's timestamp, checksums."""
    return [
        {
            "base_offset": header.base_offset,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "transactional": header.is_transactional,
            "control": header.is_control,
            "records": [
                [bytes(each.key or b""), bytes(each.value or b"")]
                for each in iter_records(data or b"", position)
            ],
        }
        for position, header in iter_batches(data or b"")
    ]


def log_of(s: Session, topic: str, partition: int = 0) -> None:
    """Record all that is in a partition, and how far it is stable."""
    rows = [{"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1_000_000}]
    fields: dict[str, Any] = {"replica_id": -1, "max_wait_ms": 50, "min_bytes": 1}
    fields["topics"] = [{"topic": topic, "partitions": rows}]
    answer = s.quietly("Fetch", 4, max_bytes=1_000_000, **fields)
    one = answer["responses"][0]["partitions"][0]
    s.record("Fetch", {**one, "records": shown(one["records"])})


def group_in(s: Session, *, same_partition: bool) -> str:
    """A group beside the case's own in `__consumer_offsets`, or elsewhere."""
    home = partition_of_group(s.name)
    return next(
        name
        for name in (f"{s.name}.{number}" for number in range(1000))
        if (partition_of_group(name) == home) is same_partition
    )


def partition_of_group(name: str) -> int:
    """Where in `__consumer_offsets`: String.hashCode of ASCII, without its sign."""
    result = 0
    for each in name.encode():
        result = (31 * result + each) & 0xFFFFFFFF
    return min(result, 0x1_0000_0000 - result) % GROUP_PARTITIONS


def own_transactions(s: Session, version: int, **filters: Any) -> None:
    """Record ListTransactions, of the case's own ids and in their order."""
    answer = s.quietly("ListTransactions", version, **filters)
    mine = [
        each
        for each in answer["transaction_states"]
        if each["transactional_id"].startswith(f"{s.name}.id")
    ]
    mine.sort(key=lambda each: str(each["transactional_id"]))
    s.record("ListTransactions", {**answer, "transaction_states": mine})


def offsets_pending(s: Session, one: Producer, topic: str, *partitions: int) -> None:
    """Offsets of the case's group, 5 and up, in the producer's transaction."""
    added = s.quietly("AddOffsetsToTxn", 3, **one.who(), group_id=s.name)
    assert added["error_code"] == NONE, added
    rows = [
        {"partition_index": index, "committed_offset": 5 + index, "committed_metadata": ""}
        for index in partitions
    ]
    fields = {"group_id": s.name, "member_id": "", "topics": [{"name": topic, "partitions": rows}]}
    answer = s.quietly("TxnOffsetCommit", 3, **one.who(), **fields)
    codes = {each["error_code"] for each in answer["topics"][0]["partitions"]}
    assert codes == {NONE}, answer
