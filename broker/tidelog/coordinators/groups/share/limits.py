"""The settings that count for one share group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.group_settings import effective
from tidelog.coordinators.groups.share.views import ShareLimits

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig

__all__ = ["limits_of"]


def limits_of(config: BrokerConfig, image: ClusterImage, group_id: str) -> ShareLimits:
    """Return the settings of a group: its own within the broker's limits, else the broker's.
    `config` has the broker's dynamic settings."""
    own = image.group_config(group_id)
    retry_ms = config.group_share_initialize_retry_interval_ms
    return ShareLimits(
        session_timeout_ms=effective(config, own, "share.session.timeout.ms"),
        heartbeat_interval_ms=effective(config, own, "share.heartbeat.interval.ms"),
        size_max=config.group_share_max_size,
        assignment_interval_ms=effective(config, own, "share.assignment.interval.ms"),
        # A first attempt has its result by then, as in Kafka's GroupCoordinatorConfig.
        initialize_retry_ms=max(retry_ms, config.offsets_commit_timeout_ms),
    )
