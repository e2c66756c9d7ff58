"""The settings that count for one consumer group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.group_keys import ASSIGNOR_CLASSES
from tidelog.config.group_settings import effective
from tidelog.coordinators.groups.consumer.views import ConsumerLimits

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig

__all__ = ["assignor_names", "limits_of"]


def limits_of(config: BrokerConfig, image: ClusterImage, group_id: str) -> ConsumerLimits:
    """Return the settings of a group: its own within the broker's limits, else the broker's.

    They may change with an image whose delta has the group among `group_configs`, or this broker
    among `broker_configs`; `config` has the broker's dynamic settings.
    """
    own = image.group_config(group_id)
    return ConsumerLimits(
        session_timeout_ms=effective(config, own, "consumer.session.timeout.ms"),
        heartbeat_interval_ms=effective(config, own, "consumer.heartbeat.interval.ms"),
        size_max=config.group_consumer_max_size,
        assignment_interval_ms=effective(config, own, "consumer.assignment.interval.ms"),
        assignors=assignor_names(config),
    )


def assignor_names(config: BrokerConfig) -> tuple[str, ...]:
    """Return the names of the assignors; a setting may have their classes."""
    names = config.group_consumer_assignors
    return tuple(dict.fromkeys(ASSIGNOR_CLASSES.get(name, name) for name in names))
