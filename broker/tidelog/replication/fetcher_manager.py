"""Assign the partitions of this broker to fetchers of their leaders, by the cluster's image.

It owns the replica fetchers: one for each incarnation of a leader and fetcher id, created with its
first partition and stopped with its last. The replica manager has changed roles before it follows
a new image: `partition.py` fences answers of the old leader epoch until the new one is in a
fetcher.

Built by `membership`. Kafka: ReplicaFetcherManager.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.replication.fetch_state import State
from tidelog.replication.leader_end_point import RemoteLeader
from tidelog.replication.replica_fetcher import FetcherContext, ReplicaFetcher
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.cluster.metadata.delta import BrokerDelta, MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage, PartitionImage, TopicImage
    from tidelog.config.broker import BrokerConfig
    from tidelog.network.peers import PeerChannel
    from tidelog.replication.leader_end_point import LeaderEndPoint
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Rng

    NewFetcher = Callable[[str, LeaderEndPoint, FetcherContext], ReplicaFetcher]

__all__ = ["FetcherManager"]

_log = logging.getLogger(__name__)

_Key = tuple[bytes, int]  # topic id and partition


class _Source(NamedTuple):
    """The source of a fetcher; a leader that restarts or moves is another source."""

    leader: int
    broker_epoch: int
    host: str
    port: int
    fetcher_id: int


class FetcherManager:
    """The fetchers of one broker. Invariant: `_sources` has the source of each followed
    partition."""

    def __init__(
        self,
        replicas: ReplicaManager,
        new_channel: Callable[[str, int], PeerChannel],
        *,
        config: BrokerConfig,
        rng: Rng,
        broker_epoch: Callable[[], int],
        new_fetcher: NewFetcher | None = None,
    ) -> None:
        """`new_channel` creates a channel to a broker's client listener; `broker_epoch` is this
        broker's own; `new_fetcher` replaces `ReplicaFetcher`."""
        self._replicas = replicas
        self._new_channel = new_channel
        self._config = config
        self._fetchers_max = config.num_replica_fetchers  # of each leader
        self._rng = rng
        self._broker_epoch = broker_epoch
        self._make_fetcher = new_fetcher or ReplicaFetcher
        self._fetchers: dict[_Source, ReplicaFetcher] = {}
        self._sources: dict[_Key, _Source] = {}
        self._ending: dict[asyncio.Task[None], None] = {}
        self._closed = False
        replicas.on_opening.append(self._follow_some)

    # ---- the image ----------------------------------------------------------------------------

    def on_image(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Follow a new image."""
        if self._closed:
            return
        for topic in delta.deleted_topics:
            for state in topic.partitions:
                self._remove((topic.topic_id, state.partition))
        for change in delta.topics.values():
            for state in change.partitions:
                self._follow(image, change.new, state)
        moved = [node_id for node_id, broker in delta.brokers.items() if _has_moved(broker)]
        for topic in image.topics.values() if moved else ():
            for state in topic.partitions:
                if state.leader in moved:
                    self._follow(image, topic, state)
        self._stop_idle()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Follow `num.replica.fetchers`: partitions move to other fetchers of their leader
        (AbstractFetcherManager.resizeThreadPool)."""
        if config.num_replica_fetchers == self._fetchers_max:
            return
        self._fetchers_max = config.num_replica_fetchers
        image = self._replicas.image
        for topic in () if image is None else image.topics.values():
            self._follow_some(topic, topic.partitions)

    def _follow_some(self, topic: TopicImage, states: Iterable[PartitionImage]) -> None:
        image = self._replicas.image
        if image is not None and not self._closed:
            for state in states:
                self._follow(image, topic, state)
            self._stop_idle()

    def _follow(self, image: ClusterImage, topic: TopicImage, state: PartitionImage) -> None:
        key = (topic.topic_id, state.partition)
        source = self._source(image, topic, state)
        if self._sources.get(key) != source:
            self._remove(key)
        if source is None:
            return
        partition = self._replicas.partition(topic.name, state.partition)
        if isinstance(partition, ErrorCode) or partition.leader_epoch != state.leader_epoch:
            self._remove(key)  # offline
            return
        fetcher = self._fetchers.get(source)
        if fetcher is None:
            fetcher = self._fetchers[source] = self._new_fetcher(source)
        self._sources[key] = source
        fetcher.add(partition, state.leader_epoch)

    def _source(
        self, image: ClusterImage, topic: TopicImage, state: PartitionImage
    ) -> _Source | None:
        """Return the source of a partition; None if it is not followed."""
        node_id = self._config.node_id
        leader = image.brokers.get(state.leader)
        if leader is None or state.leader == node_id or node_id not in state.replicas:
            return None
        # Neighbouring partitions go to different fetchers, as in Kafka.
        number = int.from_bytes(topic.topic_id[:4], "big") + state.partition
        fetcher_id = number % self._fetchers_max
        return _Source(state.leader, leader.epoch, leader.host, leader.port, fetcher_id)

    def truncate(self, partition: Partition, offset: int, *, stops: bool = False) -> bool:
        """Truncate the log of a followed partition, and fetch the rest again, unless it `stops`
        until it has another leader epoch; whether it is fetched now."""
        key = (partition.topic_id, partition.topic_partition.partition)
        source = self._sources.get(key)
        if source is None:
            return False
        fetcher = self._fetchers[source]
        state = fetcher.state(*key)
        if state is None or state.state is not State.FETCHING:
            return False
        fetcher.cut(state, offset)
        if stops:
            fetcher.fail(state, "a tester lets it lead with what it has", fatal=True)
        else:
            fetcher.fetch_soon(state)
        return True

    # ---- fetchers -----------------------------------------------------------------------------

    def _new_fetcher(self, source: _Source) -> ReplicaFetcher:
        _log.info("following broker %d at %s:%d", source.leader, source.host, source.port)
        return self._make_fetcher(
            f"{self._config.node_id}-{source.leader}-{source.fetcher_id}",
            RemoteLeader(self._new_channel(source.host, source.port), self._config.node_id),
            FetcherContext(
                config=self._config,
                clock=self._replicas.clock,
                rng=self._rng,
                broker_epoch=self._broker_epoch,
                on_advanced=self._replicas.appended,
                on_disk_failure=self._replicas.disk_failed,
                aux_state_of=self._replicas.aux_state_of,
                from_last_tiered=self._from_last_tiered,
                quota=lambda: self._replicas.follower_quota,
            ),
        )

    def _from_last_tiered(self) -> bool:
        """Return the current follower.fetch.last.tiered.offset.enable."""
        assert self._replicas.image is not None
        name = "follower.fetch.last.tiered.offset.enable"
        text = self._replicas.image.broker_config(self._config.node_id).get(name)
        if text is None:
            return self._config.follower_fetch_last_tiered_offset_enable
        return text.strip().lower() == "true"

    def _remove(self, key: _Key) -> None:
        source = self._sources.pop(key, None)
        if source is not None:
            self._fetchers[source].remove(*key)

    def _stop_idle(self) -> None:
        for source, fetcher in list(self._fetchers.items()):
            if fetcher.is_idle:
                del self._fetchers[source]
                self._stop(fetcher)

    def _stop(self, fetcher: ReplicaFetcher) -> None:
        fetcher.stop()
        task = asyncio.get_running_loop().create_task(fetcher.stopped(), name=f"end of {fetcher!r}")
        self._ending[task] = None
        task.add_done_callback(self._ending.pop)

    def stop(self) -> None:
        """Stop all fetchers; no log changes after this."""
        self._closed = True
        self._sources.clear()
        fetchers, self._fetchers = self._fetchers, {}
        for fetcher in fetchers.values():
            self._stop(fetcher)

    async def close(self) -> None:
        """`stop`, and return when all tasks have ended."""
        self.stop()
        if self._ending:
            await asyncio.gather(*self._ending, return_exceptions=True)


def _has_moved(broker: BrokerDelta) -> bool:
    """Return whether its followers need another fetcher."""
    old, new = broker
    if old is None or new is None:
        return True
    return (old.epoch, old.host, old.port) != (new.epoch, new.host, new.port)
