"""What a read of a topic's history asks of the brokers: offsets, epochs, segments, batches.

A request is repeated while leaders move. Connections are secured as a Kafka client's are.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.embedded.client_security import ClientSecurity
from tidelog.embedded.cluster_settings import ClusterError
from tidelog.embedded.tier_view import TierViewer
from tidelog_protocol.errors import ErrorCode, error_name
from tidelog_protocol.messages.data import FetchRequest, ListOffsetsRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.embedded.simple_client import SimpleClient
    from tidelog_protocol.schema import Message

__all__ = ["EARLIEST", "LATEST", "HistoryClient", "UnknownTopicError"]

EARLIEST, LATEST = -2, -1
KAFKA_PREFIX = "kafka."  # of a client's properties, as options of the Kafka source
FETCH_BYTES = 8 << 20
FETCH_WAIT_MS = 500
PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.2
_MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,  # the remote tier does not answer now
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)

T = TypeVar("T")


class UnknownTopicError(ClusterError):
    """There is no such topic, or no such partition of it."""


class _MovedError(ClusterError):
    """The leader is another one now, or can't answer yet."""


class HistoryClient(TierViewer):
    """Connections to the brokers of one cluster, of one task; ClusterError or OSError."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        is_committed: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """With `is_committed`, offsets end before the first open transaction. `properties` are a
        Kafka client's, those of its security; ConfigError if they do not fit."""
        security = ClientSecurity(properties, KAFKA_PREFIX) if properties else None
        super().__init__(bootstrap_servers, security)
        self._isolation_level = int(is_committed)
        self._leaders: dict[tuple[str, int], int] = {}

    def partitions_of(self, topic: str) -> tuple[bytes, list[int]]:
        """The topic's id and partitions; UnknownTopicError."""
        (described,) = self.topics([topic])
        if described.error_code:
            raise UnknownTopicError(f"{topic}: {error_name(described.error_code)}")
        self._leaders |= {
            (topic, each.partition_index): each.leader_id for each in described.partitions
        }
        return described.topic_id, sorted(each.partition_index for each in described.partitions)

    def offset(self, topic: str, partition: int, timestamp: int) -> int:
        """The first offset at or after a time in ms, -1 without one; or `EARLIEST`, `LATEST`."""
        return self.offsets({(topic, partition): timestamp})[topic, partition]

    def offsets(self, times: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """As `offset`, of many partitions: each leader is asked once."""
        found: dict[tuple[str, int], int] = {}
        end = time.perf_counter() + PATIENCE_SECONDS
        while left := {each: at for each, at in times.items() if each not in found}:
            try:
                for leader, asked in self._by_leader(left).items():
                    found |= self._offsets_of(leader, asked)
            except (_MovedError, OSError):
                if time.perf_counter() > end:
                    raise
                self.forget_leaders()
                time.sleep(_PAUSE_SECONDS)
                self.reconnect()
        return found

    def _by_leader(
        self, times: Mapping[tuple[str, int], int]
    ) -> dict[int, dict[tuple[str, int], int]]:
        for topic in {topic for topic, _ in times.keys() - self._leaders.keys()}:
            self.partitions_of(topic)
        found: dict[int, dict[tuple[str, int], int]] = {}
        for each, at in times.items():
            if each not in self._leaders:
                raise UnknownTopicError(f"{each[0]} has no partition {each[1]}")
            found.setdefault(self._leaders[each], {})[each] = at
        return found

    def _offsets_of(
        self, leader: int, times: Mapping[tuple[str, int], int]
    ) -> dict[tuple[str, int], int]:
        topics: dict[str, list[Any]] = {}
        for (topic, partition), at in times.items():
            one = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=at)
            topics.setdefault(topic, []).append(one)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self._isolation_level,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
            timeout_ms=30_000,
        )
        found = {}
        for answered in self.broker(leader).ask(request).topics:
            for one in answered.partitions:
                _check(answered.name, one.partition_index, one.error_code)
                found[answered.name, one.partition_index] = int(one.offset)
        return found

    def fetch(
        self, topic: str, topic_id: bytes, partition: int, offset: int, *, size: int = FETCH_BYTES
    ) -> Any:
        """A partition's answer to one Fetch: batches from `offset` on, and what was aborted.

        OFFSET_OUT_OF_RANGE and unknown topics are left to the caller, in `error_code`.
        """
        asked = FetchRequest.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=size
        )
        one = FetchRequest.FetchTopic(topic=topic, topic_id=topic_id, partitions=[asked])
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=size,
            isolation_level=self._isolation_level,
            topics=[one],
        )

        def ask(leader: SimpleClient) -> Any:
            found = leader.ask(request).responses[0].partitions[0]
            if found.error_code in _MOVED:
                _check(topic, partition, found.error_code)
            return found

        return self._on_leader(topic, partition, ask)

    def aborted_behind(
        self, topic: str, topic_id: bytes, partition: int, offset: int
    ) -> list[tuple[int, int]]:
        """(producer id, first offset) of transactions open at an offset and aborted since."""
        answer = self.fetch(topic, topic_id, partition, offset, size=1)
        _check(topic, partition, answer.error_code)
        return [(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()]

    def ask_leader(self, topic: str, partition: int, request: Message, *, version_max: int) -> Any:
        """The leader's answer to any request; OSError if the leader is another one now."""
        if (topic, partition) not in self._leaders:
            self.partitions_of(topic)
        return self.broker(self._leaders[topic, partition]).ask(request, version_max=version_max)

    def forget_leaders(self) -> None:
        """Ask for the leaders again: they may have moved."""
        self._leaders.clear()

    def _on_leader(self, topic: str, partition: int, ask: Callable[[SimpleClient], T]) -> T:
        """The leader's answer; for a while, another leader is looked for after an error."""
        end = time.perf_counter() + PATIENCE_SECONDS
        while True:
            try:
                if (topic, partition) not in self._leaders:
                    self.partitions_of(topic)
                if (topic, partition) not in self._leaders:
                    raise UnknownTopicError(f"{topic} has no partition {partition}")
                return ask(self.broker(self._leaders[topic, partition]))
            except (_MovedError, OSError):
                if time.perf_counter() > end:
                    raise
            self._leaders.pop((topic, partition), None)
            time.sleep(_PAUSE_SECONDS)
            self.reconnect()


def _check(topic: str, partition: int, error_code: int) -> None:
    if not error_code:
        return
    text = f"{topic}-{partition}: {error_name(error_code)}"
    if error_code in _MOVED:
        raise _MovedError(text)
    if error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        raise UnknownTopicError(text)
    raise ClusterError(text)
