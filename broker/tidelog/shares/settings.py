"""The settings of one share group that count for its share partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.group_settings import GROUP_KEYS, effective
from tidelog.replication.reads import HIGH_WATERMARK, TRANSACTION_COMMITTED
from tidelog.shares.partition_state import ShareLimits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tidelog.config.broker import BrokerConfig
    from tidelog.replication.replica_manager import ReplicaManager

__all__ = ["SettingsOfGroups", "ShareSettings", "settings_of"]


class ShareSettings(NamedTuple):
    """`isolation` is the bound of reads (`replication/reads.py`), `offset_reset` where a group
    begins to read: earliest, latest or by_duration:PnDTnHnMn.nS."""

    limits: ShareLimits = ShareLimits()
    isolation: int = HIGH_WATERMARK
    offset_reset: str = "latest"


def settings_of(config: BrokerConfig, own: Mapping[str, str]) -> ShareSettings:
    """Return the settings of a group: its own within the broker's limits, else the broker's."""
    is_committed = _own(own, "share.isolation.level") == "read_committed"
    return ShareSettings(
        ShareLimits(
            lock_ms=effective(config, own, "share.record.lock.duration.ms"),
            deliveries_max=effective(config, own, "share.delivery.count.limit"),
            in_flight_max=effective(config, own, "share.partition.max.record.locks"),
            renews=_own(own, "share.renew.acknowledge.enable"),
        ),
        isolation=TRANSACTION_COMMITTED if is_committed else HIGH_WATERMARK,
        offset_reset=_own(own, "share.auto.offset.reset"),
    )


class SettingsOfGroups:
    """The settings of groups under the latest image, kept until a configuration changes."""

    def __init__(self, config: BrokerConfig, replicas: ReplicaManager) -> None:
        self._config = config
        self._replicas = replicas
        self._configs: tuple[object, object] = (None, None)
        self._known: dict[str, ShareSettings] = {}

    def __call__(self, group_id: str) -> ShareSettings:
        """Return the settings of a group."""
        image = self._replicas.image
        assert image is not None, "the first image comes before the first request"
        brokers, groups = self._configs
        if brokers is not image.broker_configs or groups is not image.group_configs:
            self._configs = (image.broker_configs, image.group_configs)
            self._known.clear()
        settings = self._known.get(group_id)
        if settings is None:
            config = self._config.with_dynamic(image.broker_config(self._config.node_id))
            settings = settings_of(config, image.group_config(group_id))
            self._known[group_id] = settings
        return settings


def _own(own: Mapping[str, str], name: str) -> Any:
    """Return a setting that brokers do not have."""
    key = GROUP_KEYS[name]
    return key.parse(own[name]) if name in own else key.default
