"""The share coordinator: states of the share partitions whose partition of `__share_group_state`
this broker leads. Kafka's ShareCoordinatorService.

It writes what a shard decides, and answers once that is committed. It owns the shards that
`LedPartitions` loads and unloads. Requests are work for `awaiting.drive`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.awaiting import answer_of, drive
from tidelog.cluster.metadata.image import SHARE_GROUP_STATE_TOPIC
from tidelog.coordinators.led_partitions import WRITE_ERRORS, LedPartitions
from tidelog.coordinators.share.records import decode, encode
from tidelog.coordinators.share.shard import ShareShard
from tidelog.coordinators.share.values import SharePartition
from tidelog.replication.internal_topics import InternalTopic, partition_for
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.cluster.metadata.delta import MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinators.share.records import ShareRecord
    from tidelog.coordinators.share.wire import Operation
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Timeline, TimerHandle
    from tidelog_protocol.records import BatchHeader, Record

__all__ = ["ShareCoordinator"]

logger = logging.getLogger(__name__)

BATCH_BYTES = 1 << 18  # of records written together: below max.message.bytes
RECORD_BYTES = 64  # what a record has beside its key and its value, at most

# Kafka's messages
_WORDS = {
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (
        "The coordinator is loading and hence can't process requests."
    ),
}


class ShareCoordinator:
    """States by partition, and their records."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        sessions: Timeline,
        work: Timeline,
        replica_manager: ReplicaManager,
    ) -> None:
        """Loads are in the time of `sessions`, snapshots and pruning in that of `work`."""
        self.config = config
        self.topic = InternalTopic(
            SHARE_GROUP_STATE_TOPIC,
            replica_manager,
            commit_timeout_ms=config.share_coordinator_write_timeout_ms,
            codec=config.share_coordinator_state_topic_compression_codec,
            load_buffer_bytes=config.share_coordinator_load_buffer_size,
        )
        self.led: LedPartitions[ShareShard] = LedPartitions(
            self.topic, replica_manager.node_id, sessions, self
        )
        self._clock = replica_manager.clock
        self._work = work
        self._image: ClusterImage | None = None
        self._sweeps: dict[str, TimerHandle] = {}
        self._sweep_every(config.share_coordinator_state_topic_prune_interval_ms, self.prune)
        self._sweep_every(
            config.share_coordinator_cold_partition_snapshot_interval_ms, self.snapshot_cold
        )

    # ---- elections -----------------------------------------------------------------------------

    def on_image(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Follow the cluster: delete the states of deleted topics."""
        self._image = image
        self.led.on_image(delta, image)
        deleted = {topic.topic_id for topic in delta.deleted_topics}
        for shard in self.led.shards.values() if deleted else ():
            if shard.is_loading:
                shard.deleted_topics |= deleted
            else:
                self._append(shard, shard.of_topics(deleted))

    def close(self) -> None:
        """Unload all states, as if another broker had taken over."""
        for sweep in self._sweeps.values():
            sweep.cancel()
        self.led.close()

    def new_shard(self, index: int, leader_epoch: int) -> ShareShard:
        """Create a shard; this and the next three methods are for `LedPartitions`."""
        updates = self.config.share_coordinator_snapshot_update_records_per_snapshot
        return ShareShard(index, leader_epoch, updates)

    def replay(self, shard: ShareShard, header: BatchHeader, record: Record) -> None:
        """Apply a record of the log."""
        change = None if header.is_control else decode(record.key, record.value)
        if change is not None:
            shard.replay(change, record.offset)

    def loaded(self, shard: ShareShard) -> None:
        """Serve a loaded shard."""
        shard.is_loading = False
        self._append(shard, shard.of_topics(shard.deleted_topics))
        shard.deleted_topics.clear()

    def resigned(self, shard: ShareShard) -> None:
        """Unload it: what waits for a commit gets NOT_COORDINATOR."""

    # ---- requests ------------------------------------------------------------------------------

    def partition_for(self, key: SharePartition) -> int:
        """Return a share partition's partition of `__share_group_state`."""
        count = self.led.partition_count or self.config.share_coordinator_state_topic_num_partitions
        return partition_for(key.coordinator_key, count)

    async def perform(self, operation: Operation, group_id: str, item: Any) -> Any:
        """Answer one item of a request, once everything is committed that the answer is from."""
        key = SharePartition(group_id, item.topic_id, item.partition)
        shard = self.led.at(self.partition_for(key))
        if isinstance(shard, ErrorCode):
            return _failed(operation, shard)
        outcome, record = operation.decide(
            shard, key, item, self._clock.wall_ms(), is_known=self._is_known(key)
        )
        if outcome.error is not ErrorCode.NONE:
            return outcome
        error = ErrorCode.NONE if record is None else self._append(shard, [record])
        if error is ErrorCode.NONE:
            error = await self._settled(shard)
        return outcome if error is ErrorCode.NONE else _failed(operation, error)

    def _is_known(self, key: SharePartition) -> bool:
        assert self._image is not None, "an image makes this broker lead a shard"
        topic = self._image.topic_by_id(key.topic_id)
        return topic is not None and key.partition < len(topic.partitions)

    async def _settled(self, shard: ShareShard) -> ErrorCode:
        """Return when everything written so far is committed."""
        try:
            if self.topic.high_watermark(shard.index) >= shard.end_offset:
                return ErrorCode.NONE
        except StorageError:
            return ErrorCode.NOT_COORDINATOR  # the partition has left this broker
        committing = partial(self.topic.commit, shard.index, shard.end_offset)
        error: ErrorCode = await answer_of(committing)
        return WRITE_ERRORS.get(error, error)

    def _append(self, shard: ShareShard, records: Sequence[ShareRecord]) -> ErrorCode:
        """Append records in batches and apply them; stop at the first error."""
        for some in _batches(records):
            try:
                end_offset = self.topic.append(
                    shard.index,
                    [each for _, each in some],
                    leader_epoch=shard.leader_epoch,
                    now_ms=self._clock.wall_ms(),
                )
            except StorageError as error:
                return WRITE_ERRORS.get(error.code, error.code)
            first_offset = end_offset - len(some)
            for number, (record, _) in enumerate(some):
                shard.replay(record, first_offset + number)
        return ErrorCode.NONE

    # ---- periodic work -------------------------------------------------------------------------

    def _sweep_every(self, interval_ms: int, sweep: Callable[[], None]) -> None:
        def run() -> None:
            self._sweep_every(interval_ms, sweep)
            sweep()

        self._sweeps[sweep.__name__] = self._work.call_at(
            self._work.time() + interval_ms / 1000, run
        )

    def snapshot_cold(self) -> None:
        """Write snapshots of states without one for an interval."""
        interval_ms = self.config.share_coordinator_cold_partition_snapshot_interval_ms
        for shard in self.led.active():
            records = shard.cold_snapshots(self._clock.wall_ms(), interval_ms)
            if records:
                drive(self._written(shard, records), _log_failure)

    async def _written(self, shard: ShareShard, records: Sequence[ShareRecord]) -> ErrorCode:
        error = self._append(shard, records)
        return await self._settled(shard) if error is ErrorCode.NONE else error

    def prune(self) -> None:
        """Delete the records before all states' last snapshots."""
        for shard in self.led.active():
            drive(self._prune(shard, shard.redundant_offset), _log_failure)

    async def _prune(self, shard: ShareShard, offset: int) -> ErrorCode:
        """Wait first until the snapshots are committed: another leader may not have them."""
        if offset <= shard.pruned_offset:
            return ErrorCode.NONE
        error = await self._settled(shard)
        if error is ErrorCode.NONE and self.led.holds(shard):
            try:
                self.topic.delete_before(shard.index, offset)
            except StorageError as refusal:
                return refusal.code
            except OSError:
                return ErrorCode.KAFKA_STORAGE_ERROR
            shard.pruned_offset = offset
        return error


def _batches(
    records: Sequence[ShareRecord],
) -> list[list[tuple[ShareRecord, tuple[bytes, bytes | None]]]]:
    """Return the records with their bytes, in batches that are not too large."""
    batches: list[list[tuple[ShareRecord, tuple[bytes, bytes | None]]]] = []
    left = 0
    for record in records:
        key, value = encode(record)
        size = len(key) + len(value or b"") + RECORD_BYTES
        if size > left:
            batches.append([])
            left = BATCH_BYTES
        left -= size
        batches[-1].append((record, (key, value)))
    return batches


def _failed(operation: Operation, error: ErrorCode) -> Any:
    words = _WORDS.get(error, error.name)
    return operation.outcome(error, f"Unable to {operation.words}: {words}")


def _log_failure(error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        logger.warning("__share_group_state keeps old records for now: %s", error.name)
