"""The partitions of this broker: from the cluster's image to open logs, and the doors append and
read.

Owns: which partitions are here, the purgatories of Produce, Fetch and DeleteRecords, and the order
"append to all, then wake". Called by the API handlers, the internal topics and, first of all
listeners, by the metadata log when a new image applies. Knows no wire versions.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.replication.partition import Partition, ReadResult
from tidelog.replication.purgatory import DelayedOperation, Purgatory
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.primitives import ZERO_UUID
from tidelog_storage.checkpoints import CheckpointError
from tidelog_storage.config import LogConfig
from tidelog_storage.types import StorageError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tidelog.metadata.image import ClusterImage, TopicImage
    from tidelog.replication.fetch_sessions import FetchedPartition
    from tidelog.replication.partition import FetchParams
    from tidelog.replication.purgatory import Timers
    from tidelog.seams import Clock
    from tidelog_storage.manager import LogManager
    from tidelog_storage.types import AppendResult

__all__ = ["DelayedAnswers", "ReplicaManager", "topic_configs"]

_log = logging.getLogger(__name__)

_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class DelayedAnswers(DelayedOperation[tuple[str, int]]):
    """DelayedProduce and DelayedDeleteRecords: some partitions of a request are not decided yet.

    Case A: the high watermark (Produce) or the low watermark (DeleteRecords) reached the offset:
    answered.
    Case B: this broker no longer leads the partition, or it is gone: NOT_LEADER_OR_FOLLOWER.
    Case C: the deadline: REQUEST_TIMED_OUT for those still undecided; what was appended stays.
    Woken by: the partitions, whenever a watermark moves or their role changes.
    """

    __slots__ = ("_ask", "_errors", "_on_done", "_pending")

    def __init__(
        self,
        waits: Sequence[tuple[Partition, int]],
        ask: Callable[[Partition, int], ErrorCode | None],
        on_done: Callable[[list[ErrorCode]], None],
    ) -> None:
        """`ask(partition, offset)` decides one; `on_done` gets the error codes in the order of
        `waits`."""
        super().__init__()
        self._ask = ask
        self._on_done = on_done
        self._errors: list[ErrorCode] = [ErrorCode.REQUEST_TIMED_OUT] * len(waits)
        self._pending: dict[int, tuple[Partition, int]] = dict(enumerate(waits))
        self._poll(None)

    @property
    def decided(self) -> bool:
        """Whether nothing is pending."""
        return not self._pending

    @property
    def errors(self) -> list[ErrorCode]:
        """One code per wait."""
        return self._errors

    def pending_keys(self) -> list[tuple[str, int]]:
        """What to watch."""
        return list({p.topic_partition: None for p, _ in self._pending.values()})

    def touch(self, key: tuple[str, int]) -> bool:
        """Ask again for one partition."""
        self._poll(key)
        return not self._pending

    def complete(self, *, expired: bool) -> None:
        """Answer; what is undecided stays REQUEST_TIMED_OUT."""
        self._on_done(self._errors)

    def _poll(self, key: tuple[str, int] | None) -> None:
        for index, (partition, offset) in list(self._pending.items()):
            if key is None or partition.topic_partition == key:
                error = self._ask(partition, offset)
                if error is not None:
                    self._errors[index] = error
                    del self._pending[index]


def topic_configs(
    properties: Mapping[str, str], node_id: int
) -> Callable[[ClusterImage, str], LogConfig]:
    """A topic's configuration under an image: its own, then the broker's dynamic and fixed one."""
    dynamic: dict[str, str] | None = None
    defaults: LogConfig | None = None

    def config_of(image: ClusterImage, topic: str) -> LogConfig:
        nonlocal dynamic, defaults
        settings = image.broker_config(node_id)
        if defaults is None or settings != dynamic:
            dynamic = settings
            defaults = LogConfig.from_broker({**properties, **settings})
        overrides = image.topic_config(topic)
        return LogConfig.from_overrides(defaults, overrides) if overrides else defaults

    return config_of


class ReplicaManager:
    """Hosts the partitions of this broker.

    Invariant: `_partitions` has exactly the partitions of `image` whose replicas name this broker
    and whose log could be opened; the others of them are in `_offline`.
    """

    def __init__(
        self,
        node_id: int,
        clock: Clock,
        timers: Timers,
        logs: LogManager,
        log_config: Callable[[ClusterImage, str], LogConfig],
    ) -> None:
        """`timers` is the running loop; `log_config` the configuration of a topic under an
        image."""
        self.node_id = node_id
        self.clock = clock
        self.logs = logs
        self.image: ClusterImage | None = None
        self.fetch_purgatory: Purgatory[tuple[str, int]] = Purgatory(timers)
        self.produce_purgatory: Purgatory[tuple[str, int]] = Purgatory(timers)
        self.delete_records_purgatory: Purgatory[tuple[str, int]] = Purgatory(timers, purge_min=1)
        self._log_config = log_config
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._offline: dict[tuple[str, int], bytes] = {}  # to the topic id

    # ---- the image ----------------------------------------------------------------------------

    def apply(self, old: ClusterImage | None, new: ClusterImage) -> None:
        """Follow a new image: delete, create, lead, reconfigure; then wake whom that concerns."""
        self.image = new
        if old is None:
            self._delete_strays(new)
        else:
            for name, topic in old.topics.items():
                if topic.topic_id not in new.topic_names:
                    self._delete_topic(name, topic)
        defaults_changed = old is None or old.broker_configs != new.broker_configs
        for name, topic in new.topics.items():
            before = None if old is None else old.topics.get(name)
            if before is not topic:
                self._apply_topic(topic)
            if before is not None and (
                defaults_changed
                or (old is not None and old.topic_config(name) != new.topic_config(name))
            ):
                self._reconfigure(topic)

    def _apply_topic(self, topic: TopicImage) -> None:
        config: LogConfig | None = None
        for state in topic.partitions:
            if self.node_id not in state.replicas:
                self._leave((topic.name, state.partition))
                continue
            key = TopicPartition(topic.name, state.partition)
            partition = self._partitions.get(key)
            if partition is None:
                assert self.image is not None
                config = config or self._log_config(self.image, topic.name)
                partition = self._open(key, topic.topic_id, config)
                if partition is None:
                    continue
            if state.partition_epoch > partition.partition_epoch:
                partition.update(state)
                self._wake_all(key)

    def _open(self, key: TopicPartition, topic_id: bytes, config: LogConfig) -> Partition | None:
        """Open or create a log; a directory that fails makes this partition offline, not the
        broker."""
        try:
            log = self.logs.get(key)
            if log is not None and log.topic_id not in (None, topic_id):
                self._delete_log(key)  # of a topic of that name which is gone
                log = None
            if log is None:
                log = self.logs.create(key, topic_id, config)
            else:
                log.config = config
        except (OSError, StorageError, CheckpointError) as error:
            _log.error("%s is offline: %s", key, error)
            self._offline[key] = topic_id
            return None
        self._offline.pop(key, None)
        partition = self._partitions[key] = Partition(key, topic_id, log, self.node_id)
        return partition

    def _reconfigure(self, topic: TopicImage) -> None:
        assert self.image is not None
        config = self._log_config(self.image, topic.name)
        for state in topic.partitions:
            partition = self._partitions.get((topic.name, state.partition))
            if partition is not None:
                partition.log.config = config
                partition.config_changed()
                self._wake_all(partition.topic_partition)

    def _delete_topic(self, name: str, topic: TopicImage) -> None:
        for state in topic.partitions:
            self._leave((name, state.partition))

    def _leave(self, key: tuple[str, int]) -> None:
        self._offline.pop(key, None)
        partition = self._partitions.pop(key, None)
        if partition is not None:
            partition.remove()
            self._delete_log(partition.topic_partition)
            self._wake_all(partition.topic_partition)

    def _delete_log(self, key: TopicPartition) -> None:
        try:
            self.logs.delete(key, self.clock.wall_ms())
        except OSError as error:
            _log.error("the log of %s could not be deleted: %s", key, error)

    def _delete_strays(self, image: ClusterImage) -> None:
        """Delete logs that no topic owns: their topic went just before the broker stopped."""
        for key, log in list(self.logs.items()):
            topic = image.topics.get(key.topic)
            if topic is None or log.topic_id not in (None, topic.topic_id):
                _log.warning("deleting the stray log of %s", key)
                self._delete_log(key)

    # ---- look-up ------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | ErrorCode:
        """The replica here, or what to tell who asks for it."""
        partition = self._partitions.get((topic, index))
        return self._missing(topic, index) if partition is None else partition

    def partition_by_id(self, topic_id: bytes, index: int) -> Partition | ErrorCode:
        """Like `partition`, by topic id."""
        name = None if self.image is None else self.image.topic_names.get(topic_id)
        return ErrorCode.UNKNOWN_TOPIC_ID if name is None else self.partition(name, index)

    def _missing(self, topic: str, index: int) -> ErrorCode:
        if (topic, index) in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.image is not None and self.image.partition(topic, index) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def partitions(self) -> Iterator[Partition]:
        """All replicas here."""
        return iter(list(self._partitions.values()))

    # ---- appending ----------------------------------------------------------------------------

    def append(
        self,
        partition: Partition,
        records: memoryview,
        *,
        acks: int,
        now_ms: int,
        produce_version: int = 13,
        from_client: bool = True,
    ) -> AppendResult:
        """Append one batch; StorageError says why not. Nobody is woken before `appended`."""
        return partition.append(
            records,
            acks=acks,
            now_ms=now_ms,
            produce_version=produce_version,
            from_client=from_client,
        )

    def appended(self, keys: Sequence[tuple[str, int]]) -> None:
        """All appends of one request are done: wake fetches, and produces if a high watermark
        moved."""
        if len(keys) == 1:
            self.fetch_purgatory.check(keys[0])
            if self.produce_purgatory:
                self.produce_purgatory.check(keys[0])
        else:
            self.fetch_purgatory.check_all(keys)
            if self.produce_purgatory:
                self.produce_purgatory.check_all(keys)

    def await_acks(
        self,
        waits: Sequence[tuple[Partition, int]],
        timeout_ms: int,
        on_done: Callable[[list[ErrorCode]], None],
    ) -> DelayedAnswers:
        """acks=-1: wait until each partition's high watermark reaches its offset.

        If the answer has `decided`, it is there already and `on_done` will not be called; else
        `on_done` is, exactly once, unless the operation is cancelled.
        """
        operation = DelayedAnswers(waits, Partition.acknowledged, on_done)
        if not operation.decided:
            self.produce_purgatory.park(operation, operation.pending_keys(), timeout_ms)
        return operation

    def _wake_all(self, key: tuple[str, int]) -> None:
        """Role, in-sync replicas or configuration changed: everything parked here looks again."""
        self.fetch_purgatory.check(key)
        self.produce_purgatory.check(key)
        self.delete_records_purgatory.check(key)

    # ---- reading ------------------------------------------------------------------------------

    def read(
        self,
        requests: Iterable[FetchedPartition],
        params: FetchParams,
        *,
        max_bytes: int,
        min_one_batch: bool = True,
    ) -> list[ReadResult]:
        """Read partitions in order, together at most `max_bytes`, but at least one batch if there
        is one."""
        results: list[ReadResult] = []
        partitions = self._partitions
        for request in requests:
            topic = request.topic
            partition = None if topic is None else partitions.get((topic, request.partition))
            if partition is None:
                result = self._missing_for(request)
            elif request.topic_id not in (partition.topic_id, ZERO_UUID):
                result = ReadResult(ErrorCode.INCONSISTENT_TOPIC_ID)
            else:
                limit = request.max_bytes
                try:
                    result = partition.read(
                        request,
                        params,
                        min(limit, max_bytes),
                        min_one_batch=min_one_batch,
                    )
                except StorageError as error:
                    _log.error("read of %s failed: %s", partition.topic_partition, error)
                    result = ReadResult(error.code)
                if result.size:
                    min_one_batch = False
                    max_bytes = max(0, max_bytes - result.size)
            results.append(result)
        return results

    def _missing_for(self, request: FetchedPartition) -> ReadResult:
        if request.topic is None:
            result = ReadResult(ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            result = ReadResult(self._missing(request.topic, request.partition))
        if result.error in _UNKNOWN:
            result.aborted = ()  # an empty list, not null: Kafka answers these without the log
        return result

    # ---- deleting -----------------------------------------------------------------------------

    def await_deletion(
        self,
        waits: Sequence[tuple[Partition, int]],
        timeout_ms: int,
        on_done: Callable[[list[ErrorCode]], None],
    ) -> DelayedAnswers:
        """DeleteRecords: wait until every live replica's log start reached the offset; as
        `await_acks`."""
        operation = DelayedAnswers(waits, Partition.records_deleted, on_done)
        if not operation.decided:
            self.delete_records_purgatory.park(operation, operation.pending_keys(), timeout_ms)
        return operation

    def close(self) -> None:
        """Orderly stop: parked requests are answered with what there is."""
        for purgatory in (
            self.fetch_purgatory,
            self.produce_purgatory,
            self.delete_records_purgatory,
        ):
            purgatory.close()
