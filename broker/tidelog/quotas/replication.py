"""Limits of replication for chosen replicas, at the leader and at the follower (KIP-73).

Topics name the replicas, `leader.` and `follower.replication.throttled.replicas`, and brokers the
rates, `leader.` and `follower.replication.throttled.rate`; `kafka-reassign-partitions --throttle`
sets all of them. Replicas that are in sync are never held back. Kafka: ReplicationQuotaManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.cluster.metadata.delta import MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig
    from tidelog.quotas.windows import RateWindows
    from tidelog.seams import Clock

__all__ = ["ReplicationQuota", "ReplicationQuotas", "throttled_partitions"]

Throttled = frozenset[int] | None
"""Partitions of a topic; None for all."""


class ReplicationQuota:
    """The limit of one direction, while there is one."""

    def __init__(self, rate: RateWindows, now_ms: Callable[[], float]) -> None:
        self._rate = rate
        self._now_ms = now_ms
        self._limit = 0.0
        self._throttled: Mapping[str, Throttled] = {}
        self._image: ClusterImage | None = None

    def change(self, limit: float, throttled: Mapping[str, Throttled], image: ClusterImage) -> None:
        """Let this limit hold from now on, for these partitions."""
        self._limit, self._throttled, self._image = limit, throttled, image

    def follow(self, image: ClusterImage) -> None:
        """Take the in-sync replicas from this image."""
        self._image = image

    def _names(self, topic: str, partition: int) -> bool:
        if topic not in self._throttled:
            return False
        partitions = self._throttled[topic]
        return partitions is None or partition in partitions

    def holds_back(self, topic: str, partition: int, replica_id: int) -> bool:
        """Return whether this replica must get nothing now."""
        if not self._names(topic, partition):
            return False
        state = None if self._image is None else self._image.partition(topic, partition)
        if state is not None and replica_id in state.isr:
            return False
        return self._rate.rate(self._now_ms()) > self._limit

    def record(self, topic: str, partition: int, size: int) -> None:
        """Count bytes of a replica, if it is throttled."""
        if self._names(topic, partition):
            self._rate.record(size, self._now_ms())


class ReplicationQuotas:
    """Follows the settings of both directions for one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        on_change: Callable[[ReplicationQuota | None, ReplicationQuota | None], None],
    ) -> None:
        """`on_change` gets the quotas of the leader and of the follower, None without a limit."""
        self._config = config
        self._clock = clock
        self._on_change = on_change
        self._kept: dict[str, ReplicationQuota] = {}
        self._active: dict[str, ReplicationQuota | None] = {"leader": None, "follower": None}

    def on_image(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Follow the settings and in-sync replicas of a new image."""
        if delta.configures(self._config.node_id) or delta.topic_configs:
            self._active = {kind: self._quota(kind, image) for kind in self._active}
            self._on_change(self._active["leader"], self._active["follower"])
        for quota in self._active.values():
            if quota is not None:
                quota.follow(image)

    def _quota(self, kind: str, image: ClusterImage) -> ReplicationQuota | None:
        node_id = self._config.node_id
        limit = _rate_of(image.broker_config(node_id).get(f"{kind}.replication.throttled.rate"))
        if limit is None:
            return None
        name = f"{kind}.replication.throttled.replicas"
        named = {
            topic: throttled_partitions(configs[name], node_id)
            for topic, configs in image.topic_configs.items()
            if configs.get(name)
        }
        throttled = {topic: parts for topic, parts in named.items() if parts is None or parts}
        if not throttled:
            return None
        quota = self._kept.get(kind)
        if quota is None:
            quota = self._kept[kind] = self._new_quota()
        quota.change(limit, throttled, image)
        return quota

    def _new_quota(self) -> ReplicationQuota:
        from tidelog.quotas.windows import RateWindows  # noqa: PLC0415 - few brokers have quotas

        config = self._config
        rate = RateWindows(
            config.replication_quota_window_num,
            config.replication_quota_window_size_seconds,
            is_simple=True,
        )
        return ReplicationQuota(rate, lambda: 1000 * self._clock.monotonic())


def throttled_partitions(replicas: str, node_id: int) -> Throttled:
    """Return the partitions whose replica on this broker a setting names: `partition:broker` with
    commas between, or `*` for all."""
    items = [item.strip() for item in replicas.split(",")]
    if items == ["*"]:
        return None
    pairs = (item.split(":") for item in items if item)
    return frozenset(int(pair[0]) for pair in pairs if len(pair) == 2 and pair[1] == str(node_id))


def _rate_of(text: str | None) -> float | None:
    """Return a rate in bytes per second; None if it is unset, or no number (unknown broker settings
    are not checked)."""
    try:
        return None if text is None else float(int(text))
    except ValueError:
        return None
