"""The settings that count for one streams group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.group_settings import effective
from tidelog.coordinators.groups.streams.views import StreamsLimits

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig

__all__ = ["limits_of"]


def limits_of(config: BrokerConfig, image: ClusterImage, group_id: str) -> StreamsLimits:
    """Return the settings of a group: its own within the broker's limits, else the broker's.
    `config` has the broker's dynamic settings."""
    own = image.group_config(group_id)
    delay = "streams.initial.rebalance.delay.ms"  # the only one without limits
    return StreamsLimits(
        session_timeout_ms=effective(config, own, "streams.session.timeout.ms"),
        heartbeat_interval_ms=effective(config, own, "streams.heartbeat.interval.ms"),
        size_max=config.group_streams_max_size,
        assignment_interval_ms=effective(config, own, "streams.assignment.interval.ms"),
        initial_rebalance_delay_ms=int(
            own.get(delay, config.group_streams_initial_rebalance_delay_ms)
        ),
        standby_replicas=effective(config, own, "streams.num.standby.replicas"),
    )
