"""The remote tier of one broker (KIP-405; Kafka: RemoteLogManager): builds the parts of this room.

Exists if `remote.log.storage.system.enable` is on. Knows which tiered partitions this broker leads
and follows. The start waits for nothing here; the stop does not wait for a store that hangs.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.tiered import gauges, plugins
from tidelog.tiered.metadata.topic import TopicBasedMetadata
from tidelog.tiered.pools import Pools
from tidelog.tiered.quotas import RateQuota
from tidelog.tiered.reads.remote_reads import RemoteReads
from tidelog.tiered.segments import RemoteSegments, id_of
from tidelog.tiered.tasks.aux_state import DamagedSegmentError, fetch_aux_state
from tidelog.tiered.tasks.copying import Copying
from tidelog.tiered.tasks.deletion import Deletions
from tidelog.tiered.tasks.partition import TieredPartition
from tidelog.tiered.tasks.removal import PartitionRemover
from tidelog.tiered.tasks.repeated import Pace
from tidelog_storage.remote.chunk_cache import ChunkCache
from tidelog_storage.remote.index_cache import IndexCache
from tidelog_storage.remote.lineage import aux_segment
from tidelog_storage.remote.sources import Sources

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.cluster.metadata.delta import MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig
    from tidelog.metrics.meters import Meters
    from tidelog.replication.aux_state import AuxState
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Runtime
    from tidelog.tiered.cluster_access import ClusterAccess
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import RemoteLogMetadata, RemoteSegment, TopicIdPartition
    from tidelog_storage.types import TopicPartition

__all__ = ["RemoteTier"]

log = logging.getLogger("tidelog.tiered")

COPY_S_MAX = 1.0  # how long copies in progress may take when the broker stops
CLOSE_S_MAX = 0.5


class RemoteTier:
    """A broker's remote tier. `partitions` has its tiered partitions by topic name and number."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        *,
        replicas: ReplicaManager,
        cluster: ClusterAccess,
        meters: Meters,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_failure` stops the broker. StartError if a plug-in can't be built."""
        self.partitions: dict[tuple[str, int], TieredPartition] = {}
        self.on_damage: Callable[[TopicPartition], None] | None = None
        self._config = config
        self._runtime = runtime
        self._replicas = replicas
        self._is_stopped = False
        self.storage = plugins.new_storage(config, runtime.files, cluster.cluster_id)
        self.metadata: RemoteLogMetadata = plugins.metadata_manager(
            config, runtime, replicas, cluster, on_failure
        )
        self.pools = Pools(runtime.new_executor, config, meters)
        self._copy_quota = RateQuota.of_copies(config)
        self._fetch_quota = RateQuota.of_fetches(config)
        self.reads = self._new_reads(meters)
        self.segments = RemoteSegments(
            node_id=config.node_id,
            clock=runtime.clock,
            metadata=self.metadata,
            storage=self.storage,
            meters=meters,
            forget=self.reads.forget,
        )
        self._copying = Copying(
            segments=self.segments,
            pool=self.pools.copier,
            quota=self._copy_quota,
            runtime=runtime,
            purgatory=replicas.fetch_purgatory,
            custom_metadata_bytes_max=config.remote_log_metadata_custom_metadata_max_bytes,
        )
        self._pace = Pace.of(config)
        self._deletions = Deletions(
            self.segments,
            self.pools.expiration,
            pace=self._pace,
            runtime=runtime,
            has_topic=lambda topic: any(name == topic for name, _ in self.partitions),
            catch_up=cluster.catch_up,
        )
        self._topic: TopicBasedMetadata | None = None  # the metadata, unless it is a plug-in
        self.remover: PartitionRemover | None = None
        if isinstance(self.metadata, TopicBasedMetadata):
            self._topic = topic = self.metadata
            topic.on_ready = self._ready
            interval_s = config.remote_partition_remover_task_interval_ms / 1000
            self.remover = PartitionRemover(
                config.node_id, topic, self._deletions, runtime.work, interval_s
            )
        self._register_gauges(meters)

    def _new_reads(self, meters: Meters) -> RemoteReads:
        config, runtime = self._config, self._runtime
        self.index_cache = IndexCache(
            runtime.files,
            self._replicas.logs.log_dirs[0],
            config.remote_log_index_file_cache_total_size_bytes,
            ttl_ms=config.remote_log_index_file_cache_ttl_ms,
        )
        reads = RemoteReads(
            Sources(self.storage, self.index_cache, ChunkCache()),
            self.metadata,
            self.pools.reader,
            quota=self._fetch_quota,
            runtime=runtime,
            meters=meters,
        )
        reads.watch_damage(self._suspect)
        reads.reconfigure(config)
        return reads

    def _register_gauges(self, meters: Meters) -> None:
        gauges.register_partitions(meters, self.partitions, self.metadata)
        gauges.register_index_cache(meters, self.index_cache)
        if self._topic is not None:
            gauges.register_passed_over(meters, self._topic)
        gauges.register_quota(meters, "copy", self._copy_quota, self._runtime.clock)
        gauges.register_quota(meters, "fetch", self._fetch_quota, self._runtime.clock)

    # -- following the broker ----------------------------------------------------------------------

    def open(self) -> None:
        """Follow roles and rolls from now on; call it before the first image. OSError if the local
        folders can't be used."""
        self.index_cache.open(self._runtime.clock.wall_ms())
        if self._topic is not None:
            folder = self._topic.files.folder
            self._runtime.files.make_dirs(folder)
            self._runtime.files.list(folder)  # fails if a file is in its place
        self._replicas.follow_roles(self)
        self._replicas.aux_state_of = self.aux_state
        self._replicas.on_follower_begins = self._follower_begins
        self._replicas.logs.on_roll = self.on_roll

    def on_image(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Follow the cluster."""
        if self._is_stopped:
            return
        if self._topic is not None and self.remover is not None:
            self._topic.on_image()
            if delta.old is None:
                self._topic.start()
                self.remover.start(image)
            else:
                self.remover.on_deleted(delta.deleted_topics, delta.old, image)
        if delta.configures(self._config.node_id):
            settings = image.broker_config(self._config.node_id)
            self._reconfigure(self._config.with_dynamic(settings))

    def _reconfigure(self, config: BrokerConfig) -> None:
        self.pools.resize(config)
        self._copy_quota.bytes_per_second = config.remote_log_manager_copy_max_bytes_per_second
        self._fetch_quota.bytes_per_second = config.remote_log_manager_fetch_max_bytes_per_second
        self.reads.reconfigure(config)

    # -- roles (see `RoleListener`) ----------------------------------------------------------------

    def became_leader(self, partition: Partition) -> None:
        """Follow the start of a leadership, in a new leader epoch."""
        if self._is_stopped:
            return
        name = id_of(partition)
        if partition.log.is_tiered:
            self._tiered(name, partition).lead(partition)
            self.metadata.on_leadership_changes({name}, set())
        elif _is_to_be_purged(partition):
            self.metadata.on_leadership_changes({name}, set())
            self._deletions.disabled(self._new(name, partition), delete=True)

    def became_follower(self, partition: Partition) -> None:
        """Follow the start of a followership, in a new leader epoch."""
        if self._is_stopped:
            return
        name = id_of(partition)
        if partition.log.is_tiered:
            self._tiered(name, partition).follow(partition)
            self.metadata.on_leadership_changes(set(), {name})
        else:
            self._deletions.led_elsewhere(name)

    def stopped(self, partition: Partition, *, delete: bool) -> None:
        """End the tasks of a replica that leaves this broker; `delete` if its topic was deleted."""
        if self._is_stopped:
            return
        tiered = self.partitions.pop(partition.topic_partition, None)
        if tiered is None:
            if not delete:
                self._deletions.led_elsewhere(id_of(partition))
            return
        if delete:
            self._deletions.topic_deleted(tiered)
        else:
            self._deletions.left(tiered)

    def config_changed(self, partition: Partition) -> None:
        """Follow a change of the log's configuration, which may make it tiered or not."""
        if self._is_stopped:
            return
        tiered = self.partitions.get(partition.topic_partition)
        if partition.log.is_tiered:
            if tiered is not None:
                tiered.wake()
            elif partition.is_leader:
                self.became_leader(partition)
            else:
                self.became_follower(partition)
        elif tiered is not None:
            del self.partitions[partition.topic_partition]
            self._deletions.disabled(tiered, delete=tiered.leads and _is_to_be_purged(partition))

    def _tiered(self, name: TopicIdPartition, partition: Partition) -> TieredPartition:
        key = partition.topic_partition
        tiered = self.partitions.get(key)
        if tiered is None:
            tiered = self.partitions[key] = self._new(name, partition)
            tiered.wait_for(self._deletions.enabled(name))
        return tiered

    def _new(self, name: TopicIdPartition, partition: Partition) -> TieredPartition:
        pool = self.pools.expiration
        return TieredPartition(self._copying, pool, self._pace, name, partition)

    def on_roll(self, rolled: Log) -> None:
        """Wake the copy task: an append has sealed a segment."""
        tiered = self.partitions.get(rolled.topic_partition)
        if tiered is not None:
            tiered.rolled()

    def _ready(self, name: TopicIdPartition) -> None:
        tiered = self.partitions.get((name.topic, name.partition))
        if tiered is not None and tiered.partition == name:
            tiered.wake()

    def _suspect(self, segment: RemoteSegment) -> None:
        """Report a segment that a read found damaged, unless its leader knows of the damage."""
        tiered = self.partitions.get((segment.topic, segment.partition))
        if (
            tiered is not None
            and tiered.leads
            and tiered.partition == segment.topic_id_partition
            and segment.segment_id not in tiered.damaged
            and self.on_damage is not None
        ):
            tiered.suspects[segment.segment_id] = segment
            self.on_damage(tiered.replica.topic_partition)

    def _follower_begins(self, partition: Partition, replica_id: int) -> None:
        """Suspect the segments that a follower may be to begin behind, if it asks again and again
        where that is: what it needs of them may be damaged. With KIP-1023 it is the last one."""
        tiered = self.partitions.get(partition.topic_partition)
        if tiered is None or not tiered.leads or not tiered.has_asked_often(replica_id):
            return
        name, held = id_of(partition), partition.log
        for offset in sorted({held.local_log_start_offset - 1, held.highest_remote_offset}):
            epoch = held.epochs.epoch_for_offset(offset)
            if epoch is not None and self.metadata.is_ready(name):
                segment = aux_segment(self.metadata.segments(name, epoch), epoch, offset)
                if segment is not None:
                    self._suspect(segment)

    def is_deleting(self, partition: TopicIdPartition) -> bool:
        """Return whether this broker deletes the remote part of a partition that left it."""
        return partition in self._deletions

    async def aux_state(self, partition: Partition, leader_epoch: int, offset: int) -> AuxState:
        """Fetch the state at the end of the remote segment with this offset, for a follower."""
        name, pool = id_of(partition), self.pools.follower
        tiered = self.partitions.get(partition.topic_partition)
        try:
            state = await fetch_aux_state(self.segments, pool, name, leader_epoch, offset)
        except DamagedSegmentError as error:
            if tiered is not None:
                tiered.note_unusable(error)
            raise
        if tiered is not None:
            tiered.unusable = None
        return state

    # -- stop --------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop all tasks; copies in progress may end within a second."""
        await self._stop_tasks()
        ending = [asyncio.ensure_future(each.end()) for each in self.partitions.values()]
        if ending:
            await asyncio.wait(ending, timeout=COPY_S_MAX)
            for task in ending:
                task.cancel()
        await self._cancel()
        if self._topic is not None:
            await self._topic.stop()
        self._close_metadata()
        await self._close_storage()

    async def abandon(self) -> None:
        """Stop without writing anything, like a crash."""
        await self._stop_tasks()
        await self._cancel()
        if self._topic is not None:
            await self._topic.stop(saves=False)
        self._close_metadata()

    async def _stop_tasks(self) -> None:
        self._is_stopped = True
        if self.remover is not None:
            await self.remover.stop()
        await self._deletions.stop()

    async def _cancel(self) -> None:
        await asyncio.gather(*[each.cancel() for each in self.partitions.values()])
        await self.reads.close()
        self.pools.close()

    def _close_metadata(self) -> None:
        try:
            self.metadata.close()
        except Exception:
            log.exception("closing the remote metadata failed")

    async def _close_storage(self) -> None:
        """Close the store on a separate thread, because the call may hang."""
        executor = self._runtime.new_executor("remote-close", 1)
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                await executor.run(self.storage.close)
        except TimeoutError:
            log.warning("the remote store does not close within %g s", CLOSE_S_MAX)
        except Exception:
            log.exception("closing the remote store failed")
        executor.close()


def _is_to_be_purged(partition: Partition) -> bool:
    """Return whether the topic left the remote tier and its remote part is deleted (KIP-950)."""
    config = partition.log.config
    return config.remote_log_delete_on_disable and not config.remote_storage_enable
