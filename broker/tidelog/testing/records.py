"""Write, read and compare records in tests, without a client library.

It works with any Kafka broker: each function takes `bootstrap_servers` first, `host:port` or, where
brokers ask for security, properties of a client: `cluster.client_config("tidelog")`.

    produce(servers, "orders", [b"1", TopicRecord(b"2", key=b"k")])
    assert_records(servers, "orders", [b"1", TopicRecord(b"2", key=b"k")])

Topics must exist. An error of Kafka for which a client tries again is tried again, for 30 s.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.embedded.cluster_client import BrokerGoneError, ClusterClient, opened
from tidelog.embedded.cluster_settings import ClusterError
from tidelog.runtime import SystemClock
from tidelog.testing.retries import Retries
from tidelog_protocol.batch import iter_batches
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchRequest, ListOffsetsRequest, ProduceRequest
from tidelog_protocol.records import ControlType, Record, build_batch, control_type, iter_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidelog.embedded.cluster_client import Servers
    from tidelog_protocol.batch import BatchHeader
    from tidelog_protocol.schema import Message

__all__ = [
    "TopicRecord",
    "assert_records",
    "list_offsets",
    "produce",
    "produce_json_lines",
    "read_all",
]

API_PRODUCE, API_FETCH = 0, 1
BY_ID_LATER = (API_PRODUCE, API_FETCH)
BY_NAME = 12  # later versions name topics by their ids (KIP-516)
NOT_WRITTEN = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
FETCH_BYTES = 4 << 20
BATCH_BYTES_MAX = 500_000  # half of Kafka's default limit
EARLIEST, LATEST = -2, -1  # timestamps of ListOffsets
SHOWN_MAX = 20
ISOLATED = {False: 0, True: 1}


@dataclass(frozen=True)
class TopicRecord:
    """A record to write, or one that was read.

    `timestamp` is in ms; None is the time of writing. `control` is set in control records that were
    read: "COMMIT" or "ABORT".
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = 0
    timestamp: int | None = None
    offset: int | None = None
    control: str | None = None


Given = TopicRecord | bytes | str | None


def produce(bootstrap_servers: Servers, topic: str, records: Iterable[Given]) -> list[TopicRecord]:
    """Write records with acks=all; return them with their offsets and timestamps.

    A value alone goes to partition 0, without a key; a string is written as UTF-8.
    """
    now_ms = SystemClock().wall_ms()
    written = [_record(given) for given in records]
    written = [
        replace(record, timestamp=now_ms) if record.timestamp is None else record
        for record in written
    ]
    placed: list[TopicRecord] = []
    with opened(bootstrap_servers) as client:
        for partition in sorted({record.partition for record in written}):
            own = [record for record in written if record.partition == partition]
            for part in _batches(own):
                base = _append(client, topic, partition, part)
                placed += [replace(one, offset=base + n) for n, one in enumerate(part)]
    return placed


def produce_json_lines(
    bootstrap_servers: Servers,
    lines: str | os.PathLike[str] | Iterable[str],
    topic: str | None = None,
) -> int:
    """Write the records of a file, or of lines, as `tidelog consume --json` prints them; return
    their number.

    A line has `value`, and may have `key`, `headers`, `partition`, `timestamp`, and `topic` unless
    that is an argument. ValueError names the line that is wrong; then no record is written.
    """
    if isinstance(lines, str | os.PathLike):
        lines = Path(lines).read_text(encoding="utf-8").splitlines()
    by_topic: dict[str, list[TopicRecord]] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                name, record = _from_json(json.loads(line), topic)
            except (ValueError, TypeError, AttributeError) as error:
                raise ValueError(f"line {number}: {error}") from None
            by_topic.setdefault(name, []).append(record)
    for name, records in by_topic.items():
        produce(bootstrap_servers, name, records)
    return sum(len(records) for records in by_topic.values())


def read_all(
    bootstrap_servers: Servers,
    topic: str,
    *,
    partition: int | None = None,
    committed: bool = True,
    control: bool = False,
) -> list[TopicRecord]:
    """Read the records of a topic from its start to its present end, by partition and offset.

    `committed` leaves out open and aborted transactions, as read_committed does; `control` adds the
    markers that end transactions.
    """
    found: list[TopicRecord] = []
    with opened(bootstrap_servers) as client:
        for number, start in list_offsets(client, topic, EARLIEST).items():
            if partition in (None, number):
                end = list_offsets(client, topic, LATEST, committed=committed)[number]
                reading = _Reading(client, topic, number, committed=committed)
                found += (one for one in reading.records(start, end) if control or not one.control)
    return found


def assert_records(
    bootstrap_servers: Servers,
    topic: str,
    expected: Sequence[Given],
    *,
    in_order: bool = True,
    timeout_s: float = 0.0,
) -> None:
    """Check that a topic has these committed records and no others, within `timeout_s`.

    Value, key, headers and partition count; timestamp and offset too if they are given. Without
    `in_order`, records of any order match.
    """
    wanted = [_record(given) for given in expected]
    retries = Retries(timeout_s)
    while True:
        found = read_all(bootstrap_servers, topic)
        wrong = _difference(found, wanted) if in_order else _missing(found, wanted)
        if wrong is None:
            return
        if not retries.again():
            shown = "\n".join(f"  {one}" for one in found[:SHOWN_MAX])
            more = f"\n  ... and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
            raise AssertionError(f"{topic}: {wrong}; it has {len(found)} records:\n{shown}{more}")


def list_offsets(
    client: ClusterClient, topic: str, timestamp: int, *, committed: bool = False
) -> dict[int, int]:
    """Return the offset of each partition for a timestamp, or a special one of Kafka's."""
    asked = ListOffsetsRequest.ListOffsetsTopic
    offsets: dict[int, int] = {}
    for number in _leaders(client, topic):
        one = asked.ListOffsetsPartition(partition_index=number, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=ISOLATED[committed],
            topics=[asked(name=topic, partitions=[one])],
            timeout_ms=10_000,
        )
        answer = _at_leader(client, (topic, number), request, _first_offset)
        offsets[number] = answer.offset
    return offsets


# -- records ---------------------------------------------------------------------------------------


def _record(given: Given) -> TopicRecord:
    if isinstance(given, TopicRecord):
        return given
    return TopicRecord(given.encode() if isinstance(given, str) else given)


def _batches(records: Sequence[TopicRecord]) -> Iterator[list[TopicRecord]]:
    """Split records so that a broker takes each batch."""
    batch: list[TopicRecord] = []
    size = 0
    for record in records:
        own = len(record.value or b"") + len(record.key or b"") + 100
        own += sum(len(name) + len(value or b"") + 10 for name, value in record.headers)
        if batch and size + own > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += own
    if batch:
        yield batch


def _from_json(line: Any, topic: str | None) -> tuple[str, TopicRecord]:
    name = topic or line.get("topic")
    if name is None:
        raise ValueError("it names no topic")
    if "value" not in line:
        raise ValueError("it has no value")
    headers = line.get("headers") or {}
    pairs = headers.items() if isinstance(headers, dict) else headers
    return name, TopicRecord(
        _bytes(line["value"]),
        key=_bytes(line.get("key")),
        headers=tuple((str(key), _bytes(value)) for key, value in pairs),
        partition=int(line.get("partition", 0)),
        timestamp=line.get("timestamp"),
    )


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return json.dumps(value, ensure_ascii=False).encode()  # a document in place of text


def _matches(found: TopicRecord, wanted: TopicRecord) -> bool:
    timestamp = found.timestamp if wanted.timestamp is None else wanted.timestamp
    offset = found.offset if wanted.offset is None else wanted.offset
    return found == replace(wanted, timestamp=timestamp, offset=offset)


def _difference(found: Sequence[TopicRecord], wanted: Sequence[TopicRecord]) -> str | None:
    wanted = sorted(wanted, key=lambda record: record.partition)
    for number, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if not _matches(one, other):
            return f"record {number} is {one}, expected {other}"
    if len(found) != len(wanted):
        return f"{len(found)} records, expected {len(wanted)}"
    return None


def _missing(found: Sequence[TopicRecord], wanted: Sequence[TopicRecord]) -> str | None:
    left = list(found)
    for other in wanted:
        match = next((one for one in left if _matches(one, other)), None)
        if match is None:
            return f"{other} is missing"
        left.remove(match)
    return f"{left[0]} is not expected" if left else None


# -- requests --------------------------------------------------------------------------------------


def _leaders(client: ClusterClient, topic: str) -> dict[int, int]:
    """Return the leader of each partition, by its number."""
    (found,) = client.topics([topic])
    if found.error_code:
        raise ClusterError(f"topic {topic}: {ErrorCode(found.error_code).name}")
    leaders = {one.partition_index: one.leader_id for one in found.partitions}
    return dict(sorted(leaders.items()))


def _at_leader(
    client: ClusterClient,
    where: tuple[str, int],
    request: Message,
    part: Callable[[Any], Any],
) -> Any:
    """Ask the leader of a partition; return the part of its answer about it.

    What may have been done is not done twice. ClusterError for an error for which a client does not
    try again, or after 30 s.
    """
    topic, partition = where
    is_read = request.API_KEY != API_PRODUCE
    retries = Retries()
    while True:
        try:
            leaders = _leaders(client, topic)
            if partition not in leaders:
                raise ClusterError(f"topic {topic} has no partition {partition}")
            version_max = BY_NAME if request.API_KEY in BY_ID_LATER else 32767
            leader = client.broker(leaders[partition])
            answer = part(leader.ask(request, version_max=version_max))
            code = ErrorCode(answer.error_code)
        except OSError as error:
            is_unsent = isinstance(error, BrokerGoneError)
            if not (is_read or is_unsent) or not retries.again():
                raise ClusterError(f"{topic}-{partition}: {error}") from error
            client.reconnect()
            continue
        if not code:
            return answer
        is_repeated = code.retriable if is_read else code in NOT_WRITTEN
        if not is_repeated or not retries.again():
            raise ClusterError(f"{topic}-{partition}: {code.name}")


def _first_offset(answer: Any) -> Any:
    return answer.topics[0].partitions[0]


def _append(
    client: ClusterClient, topic: str, partition: int, records: Sequence[TopicRecord]
) -> int:
    """Append one batch; return the offset of its first record."""
    batch = build_batch(
        Record(n, one.timestamp or 0, one.key, one.value, one.headers)
        for n, one in enumerate(records)
    )
    data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = _at_leader(
        client, (topic, partition), request, lambda got: got.responses[0].partition_responses[0]
    )
    return int(answer.base_offset)


class _Reading:
    """One partition, read as a consumer does."""

    def __init__(
        self, client: ClusterClient, topic: str, partition: int, *, committed: bool
    ) -> None:
        self._client = client
        self._topic = topic
        self._partition = partition
        self._committed = committed
        self._aborted: set[int] = set()
        """Producer ids whose transaction at this place was aborted."""

    def records(self, offset: int, end: int) -> Iterator[TopicRecord]:
        """Yield the records of these offsets, control records too."""
        while offset < end:
            data = self._fetch(offset)
            batches = bytes(data.records or b"")
            aborted = sorted(
                data.aborted_transactions or (), key=lambda one: (one.first_offset, one.producer_id)
            )
            before = offset
            for position, header in iter_batches(batches):
                while aborted and aborted[0].first_offset <= header.last_offset:
                    self._aborted.add(aborted.pop(0).producer_id)
                for one in self._of_batch(batches, position, header):
                    if offset <= (one.offset or 0) < end:
                        yield one
                offset = max(offset, header.next_offset)
            if offset == before:
                raise ClusterError(
                    f"{self._topic}-{self._partition}: no batch at offset {offset}, below {end}"
                )

    def _of_batch(
        self, batches: bytes, position: int, header: BatchHeader
    ) -> Iterator[TopicRecord]:
        """Yield what a consumer of this isolation level gets."""
        is_control = header.is_control
        is_aborted = header.is_transactional and header.producer_id in self._aborted
        if self._committed and is_aborted and not is_control:
            return
        for record in iter_records(batches, position):
            kind = control_type(record) if is_control else None
            if kind == ControlType.ABORT:
                self._aborted.discard(header.producer_id)
            yield TopicRecord(
                record.value,
                record.key,
                record.headers,
                self._partition,
                record.timestamp,
                record.offset,
                None if kind is None else _name_of(kind),
            )

    def _fetch(self, offset: int) -> Any:
        asked = FetchRequest.FetchPartition(
            partition=self._partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
        )
        request = FetchRequest(
            max_wait_ms=1000,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=ISOLATED[self._committed],
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=self._topic, partitions=[asked])],
        )
        place = (self._topic, self._partition)
        return _at_leader(self._client, place, request, lambda got: got.responses[0].partitions[0])


def _name_of(kind: int) -> str:
    return ControlType(kind).name if kind in set(ControlType) else str(kind)
