"""Read all replicas of a cluster as a consumer does, and check the records.

Every replica, also of Apache Kafka, answers a consumer below its high watermark (KIP-392). The
broker fetches records from the remote tier too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.embedded.simple_client import Closing, SimpleClient
from tidelog_protocol.errors import ErrorCode, ProtocolError, error_name
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_protocol.messages.data import FetchRequest, ListOffsetsRequest
from tidelog_protocol.records import crc_is_valid, iter_batches
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.embedded.client_security import ClientSecurity

__all__ = ["CheckedReplica", "ReplicaChecker"]

_FETCH_BYTES = 8 << 20
_FETCH_VERSION = 12  # the last version with topic names
_FAULTS_MAX = 20  # of a replica; further ones are not reported


class CheckedReplica(NamedTuple):
    """The result of a replica: `seen` offsets, and the faults."""

    partition: TopicPartition
    replica: int
    seen: int
    faults: list[str]


class ReplicaChecker(Closing):
    """Reads the replicas of each broker."""

    def __init__(self, bootstrap_server: str, security: ClientSecurity | None = None) -> None:
        """OSError if no broker answers."""
        self._security = security
        self._client = SimpleClient(bootstrap_server, security=security)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def check_all(self) -> Iterator[CheckedReplica]:
        """Check all replicas of all topics, broker by broker."""
        metadata = self._client.ask(MetadataRequest(topics=None))
        for broker in sorted(metadata.brokers, key=lambda each: each.node_id):
            held = [
                TopicPartition(topic.name, partition.partition_index)
                for topic in metadata.topics
                for partition in topic.partitions
                if broker.node_id in partition.replica_nodes
            ]
            address = f"{broker.host}:{broker.port}"
            try:
                with SimpleClient(address, security=self._security) as client:
                    for partition in sorted(held):
                        yield _check(client, partition, broker.node_id)
            except OSError as error:
                for partition in held:
                    yield CheckedReplica(partition, broker.node_id, 0, [f"can't be read: {error}"])


def _check(client: SimpleClient, partition: TopicPartition, replica: int) -> CheckedReplica:
    faults: list[str] = []
    offset = seen = 0
    while len(faults) < _FAULTS_MAX:
        data = _fetch(client, partition, offset)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and not seen:
            start = _start(client, partition)
            if start > offset:
                offset = start
                continue
        if data.error_code:
            faults.append(f"offset {offset}: {error_name(data.error_code)}")
            if data.error_code != ErrorCode.CORRUPT_MESSAGE:
                break
            offset += 1
            continue
        after = _check_batches(bytes(data.records or b""), offset, faults)
        if after <= offset:
            break
        seen += after - offset
        offset = after
    return CheckedReplica(partition, replica, seen, faults)


def _check_batches(records: bytes, offset: int, faults: list[str]) -> int:
    """Check the batches; return the offset after the last one."""
    try:
        for position, header in iter_batches(records):
            if not crc_is_valid(records, header, position):
                faults.append(f"the batch at {header.base_offset} has a bad checksum")
            if header.last_offset < offset:
                faults.append(f"a batch of {header.base_offset} where {offset} should come")
            offset = max(offset, header.next_offset)
    except ProtocolError as error:
        faults.append(f"behind offset {offset}: {error}")
    return offset


def _fetch(client: SimpleClient, partition: TopicPartition, offset: int) -> Any:
    asked = FetchRequest.FetchTopic.FetchPartition(
        partition=partition.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
    )
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=0,
        max_bytes=_FETCH_BYTES,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=partition.topic, partitions=[asked])],
    )
    return client.ask(request, version_max=_FETCH_VERSION).responses[0].partitions[0]


def _start(client: SimpleClient, partition: TopicPartition) -> int:
    """Return the log start offset of this replica; -1 if it does not answer."""
    topic = ListOffsetsRequest.ListOffsetsTopic
    asked = topic.ListOffsetsPartition(partition_index=partition.partition, timestamp=-2)
    request = ListOffsetsRequest(
        replica_id=-2, topics=[topic(name=partition.topic, partitions=[asked])]
    )
    answer = client.ask(request).topics[0].partitions[0]
    return int(answer.offset) if not answer.error_code else -1
