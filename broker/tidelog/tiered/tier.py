"""The remote tier of one broker (KIP-405; Kafka: RemoteLogManager): the door of this room.

Built by `server.py` if `remote.log.storage.system.enable` is on. Follows which tiered partitions
this broker leads and follows, and owns what they share: the store, the metadata, pools, quotas,
the readers' caches. Start-up waits for nothing here; the stop waits for no store that hangs.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from uuid import UUID

from tidelog.cluster.metadata.image import REMOTE_LOG_METADATA_TOPIC
from tidelog.start_error import StartError
from tidelog.tiered import plugins
from tidelog.tiered.aux_state import fetch_aux_state
from tidelog.tiered.deletion import Deletions, PartitionRemover
from tidelog.tiered.gauges import (
    tell_gauges,
    tell_index_cache,
    tell_passed_over,
    tell_quota,
)
from tidelog.tiered.metadata.client import MetadataTopicClient
from tidelog.tiered.metadata.client_settings import ClientSettings
from tidelog.tiered.metadata.files import MetadataFiles
from tidelog.tiered.metadata.topic import TopicBasedMetadata
from tidelog.tiered.pools import Pools
from tidelog.tiered.quotas import RateQuota
from tidelog.tiered.reads.remote_reads import RemoteReads
from tidelog.tiered.shared import Shared, id_of
from tidelog.tiered.tasks import Pace, TieredPartition
from tidelog_storage.remote.api import TopicIdPartition
from tidelog_storage.remote.chunk_cache import ChunkCache
from tidelog_storage.remote.index_cache import IndexCache
from tidelog_storage.remote.metadata_records import metadata_partition
from tidelog_storage.remote.sources import Sources

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from tidelog.cluster.metadata.delta import MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage, TopicImage
    from tidelog.config.broker import BrokerConfig
    from tidelog.metrics.meters import Meters
    from tidelog.network.peers import PeerChannel
    from tidelog.replication.aux_state import AuxState
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Runtime
    from tidelog_protocol.errors import ErrorCode
    from tidelog_protocol.messages.admin import CreateTopicsRequest
    from tidelog_storage.log_state import LogState
    from tidelog_storage.manager import LogManager
    from tidelog_storage.remote.api import RemoteLogMetadata, RemoteSegment, RemoteStorage
    from tidelog_storage.types import TopicPartition

__all__ = ["RemoteTier"]

log = logging.getLogger("tidelog.tiered")

METADATA_FOLDER = "remote-log-metadata"  # in the first log directory
COPY_S_MAX = 1.0  # how long copies under way may take when the broker stops
CLOSE_S_MAX = 0.5


class RemoteTier:
    """A broker's remote tier. `partitions` are the tiered ones here, by topic name and number."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        runtime: Runtime,
        cluster_id: str,
        replicas: ReplicaManager,
        logs: LogManager,
        image: Callable[[], ClusterImage],
        create_topic: Callable[[CreateTopicsRequest.CreatableTopic], Awaitable[ErrorCode]],
        new_channel: Callable[[str, int], PeerChannel] | None,
        catch_up: Callable[[], Awaitable[None]],
        meters: Meters,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`create_topic` makes the metadata topic; `new_channel` goes to other brokers, if there
        are any; `catch_up` as in `Shared`. StartError if a plug-in can't be had."""
        self.partitions: dict[tuple[str, int], TieredPartition] = {}
        self._config = config
        self._runtime = runtime
        self._replicas = replicas
        self._logs = logs
        self._image = image
        self.remover: PartitionRemover | None = None
        self._resuming: asyncio.Task[None] | None = None
        self._removing: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._client: MetadataTopicClient | None = None  # these of our own metadata alone
        self._topic: TopicBasedMetadata | None = None
        self._files: MetadataFiles | None = None
        self.storage: RemoteStorage = plugins.new_storage(config, runtime.files, cluster_id)
        self.metadata: RemoteLogMetadata = self._new_metadata(
            cluster_id, create_topic, new_channel, on_failure
        )
        self.pools = Pools(runtime.new_executor, config, meters)
        self._copy_quota = RateQuota(
            config.remote_log_manager_copy_max_bytes_per_second,
            windows_max=config.remote_log_manager_copy_quota_window_num,
            window_s=config.remote_log_manager_copy_quota_window_size_seconds,
        )
        self._fetch_quota = RateQuota(
            config.remote_log_manager_fetch_max_bytes_per_second,
            windows_max=config.remote_log_manager_fetch_quota_window_num,
            window_s=config.remote_log_manager_fetch_quota_window_size_seconds,
        )
        self.reads = self._new_reads(meters)
        self.reads.watch_damage(self._suspect)
        self.on_damage: Callable[[TopicPartition], None] | None = None
        self.reads.reconfigure(config)
        self._shared = Shared(
            node_id=config.node_id,
            clock=runtime.clock,
            rng=runtime.rng,
            executor=runtime.executor,
            files=runtime.files,
            replicas=replicas,
            metadata=self.metadata,
            storage=self.storage,
            pools=self.pools,
            copy_quota=self._copy_quota,
            meters=meters,
            custom_metadata_bytes_max=config.remote_log_metadata_custom_metadata_max_bytes,
            forget=self.reads.forget,
            catch_up=catch_up,
        )
        self._pace = Pace.of(config)
        self._deletions = Deletions(self._shared, self._pace, self._topic, self._has_topic)
        self._tell(meters)

    def _tell(self, meters: Meters) -> None:
        tell_gauges(meters, self.partitions, self.metadata)
        tell_index_cache(meters, self.index_cache)
        if self._topic is not None:
            tell_passed_over(meters, self._topic)
        tell_quota(meters, "copy", self._copy_quota, self._runtime.clock)
        tell_quota(meters, "fetch", self._fetch_quota, self._runtime.clock)

    def _new_metadata(
        self,
        cluster_id: str,
        create_topic: Callable[[CreateTopicsRequest.CreatableTopic], Awaitable[ErrorCode]],
        new_channel: Callable[[str, int], PeerChannel] | None,
        on_failure: Callable[[BaseException], None],
    ) -> RemoteLogMetadata:
        config = self._config
        if not plugins.is_topic_based(config):
            return plugins.new_metadata(config, cluster_id)
        properties = plugins.metadata_properties(config, cluster_id)
        self._files = MetadataFiles(
            self._runtime.async_files, f"{properties['log.dir']}/{METADATA_FOLDER}"
        )
        timeout_ms = config.request_timeout_ms
        try:
            self._client = MetadataTopicClient(
                REMOTE_LOG_METADATA_TOPIC,
                replicas=self._replicas,
                image=self._image,
                new_channel=new_channel,
                settings=ClientSettings.of(properties, request_timeout_ms=timeout_ms),
                listener=(config.remote_log_metadata_manager_listener_name or "").upper(),
            )
            topic = self._topic = TopicBasedMetadata(
                self._client, create_topic, on_failure=on_failure, files=self._files
            )
            topic.configure(properties)
        except ValueError as error:
            prefix = config.remote_log_metadata_manager_impl_prefix
            raise StartError(f"{prefix}{error}") from error
        topic.on_ready = self._ready
        return topic

    def _new_reads(self, meters: Meters) -> RemoteReads:
        config, runtime = self._config, self._runtime
        self.index_cache = IndexCache(
            runtime.files,
            self._logs.log_dirs[0],
            config.remote_log_index_file_cache_total_size_bytes,
            ttl_ms=config.remote_log_index_file_cache_ttl_ms,
        )
        return RemoteReads(
            Sources(self.storage, self.index_cache, ChunkCache()),
            self.metadata,
            self.pools.reader,
            quota=self._fetch_quota,
            clock=runtime.clock,
            rng=runtime.rng,
            meters=meters,
        )

    # -- following the broker ----------------------------------------------------------------------

    def open(self) -> None:
        """Before the first image: from now on be told of roles and rolls. OSError if the local
        folders can't be used."""
        self.index_cache.open(self._runtime.clock.wall_ms())
        if self._files is not None:
            self._runtime.files.make_dirs(self._files.folder)
            self._runtime.files.list(self._files.folder)  # a file may be in its place
        self._replicas.follow_roles(self)
        self._replicas.aux_state_of = self.aux_state
        self._logs.on_roll = self.on_roll

    def on_image(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Follow the cluster."""
        if self._is_stopped:
            return
        if self._topic is not None:
            self._topic.on_image()
            if delta.old is None:
                self._topic.start()
                self._resume(image)
            else:
                self._mind_vanished(delta.old, delta.deleted_topics, image)
        if delta.configures(self._config.node_id):
            settings = image.broker_config(self._config.node_id)
            self._reconfigure(self._config.with_dynamic(settings))

    def _reconfigure(self, config: BrokerConfig) -> None:
        self.pools.resize(config)
        self._copy_quota.bytes_per_second = config.remote_log_manager_copy_max_bytes_per_second
        self._fetch_quota.bytes_per_second = config.remote_log_manager_fetch_max_bytes_per_second
        self.reads.reconfigure(config)

    def _mind_vanished(
        self, old: ClusterImage, deleted: Iterable[TopicImage], new: ClusterImage
    ) -> None:
        """Who leads a metadata partition answers for topics whose replicas were all away when they
        were deleted: they may never come back."""
        assert self._client is not None
        count = self._client.partition_count
        for topic in deleted if count else ():
            if old.topic_config(topic.name).get("remote.storage.enable") != "true":
                continue
            for state in topic.partitions:
                name = TopicIdPartition(UUID(bytes=topic.topic_id), topic.name, state.partition)
                index = metadata_partition(name.topic_id, state.partition, count)
                is_mine = self._client.leader_of(index) == self._config.node_id
                if is_mine and not any(new.is_alive(replica) for replica in state.replicas):
                    self.metadata.on_leadership_changes(set(), {name})
                    self._deletions.vanished(name)

    def _resume(self, image: ClusterImage) -> None:
        """Go on with what an earlier life has left, and begin to look for what others have."""
        assert self._topic is not None
        assert self._client is not None
        loop = asyncio.get_running_loop()
        known = frozenset(image.topic_names)
        self._resuming = loop.create_task(self._find_orphans(known), name="remote orphans")
        interval_s = self._config.remote_partition_remover_task_interval_ms / 1000
        self.remover = PartitionRemover(
            self._shared, self._client, self._topic, self._deletions, interval_s
        )
        self._removing = loop.create_task(self.remover.run(), name="remote partition remover")

    async def _find_orphans(self, known_topic_ids: frozenset[bytes]) -> None:
        """Topics that were deleted while this broker was away."""
        assert self._files is not None
        try:
            orphans = await self._files.partitions(known_topic_ids)
        except OSError as error:
            log.warning("%s: %s", self._files.folder, error)
            return
        for partition in orphans:
            self.metadata.on_leadership_changes(set(), {partition})
            self._deletions.orphaned(partition)

    # -- roles (see `RoleListener`) ----------------------------------------------------------------

    def became_leader(self, partition: Partition) -> None:
        """This broker leads, in a leader epoch that is new to it."""
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
        """This broker follows, in a leader epoch that is new to it."""
        if self._is_stopped:
            return
        name = id_of(partition)
        if partition.log.is_tiered:
            self._tiered(name, partition).follow(partition)
            self.metadata.on_leadership_changes(set(), {name})
        else:
            self._deletions.led_elsewhere(name)

    def stopped(self, partition: Partition, *, delete: bool) -> None:
        """The replica leaves this broker, because its topic was deleted or for another reason."""
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
        """The log has another configuration, which may make it tiered or not."""
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
        return TieredPartition(self._shared, name, partition, self._pace)

    def _has_topic(self, topic: str) -> bool:
        return any(name == topic for name, _ in self.partitions)

    def on_roll(self, rolled: LogState) -> None:
        """A segment was sealed, in the middle of an append: it may be copied soon."""
        tiered = self.partitions.get(rolled.topic_partition)
        if tiered is not None:
            tiered.rolled()

    def _ready(self, name: TopicIdPartition) -> None:
        tiered = self.partitions.get((name.topic, name.partition))
        if tiered is not None and tiered.partition == name:
            tiered.wake()

    def _suspect(self, segment: RemoteSegment) -> None:
        """A read has met a segment that cannot be right. What its leader knows of is not news."""
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

    def is_deleting(self, partition: TopicIdPartition) -> bool:
        """Whether this broker is at the remote part of a partition that has left it."""
        return partition in self._deletions

    async def aux_state(self, partition: Partition, leader_epoch: int, offset: int) -> AuxState:
        """What a follower needs of the remote segment that holds this offset of this epoch."""
        return await fetch_aux_state(self._shared, id_of(partition), leader_epoch, offset)

    # -- stop --------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Copies under way may end within a second; then nothing is begun any more."""
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
        """End as a crash would: write nothing."""
        await self._stop_tasks()
        await self._cancel()
        if self._topic is not None:
            await self._topic.stop(saves=False)
        self._close_metadata()

    async def _stop_tasks(self) -> None:
        self._is_stopped = True
        tasks = [task for task in (self._resuming, self._removing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
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
        """On a thread of its own: it may hang as any call."""
        executor = self._runtime.new_executor("remote-close", 1)
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                await executor.run(self.storage.close)
        except TimeoutError:
            log.warning("the remote store does not close")
        except Exception:
            log.exception("closing the remote store failed")
        executor.close()


def _is_to_be_purged(partition: Partition) -> bool:
    """Whether the topic has left the remote tier, with all that it had there (KIP-950)."""
    config = partition.log.config
    return config.remote_log_delete_on_disable and not config.remote_storage_enable
