"""The settings that count for one group of any type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.group_keys import ASSIGNOR_CLASSES
from tidelog.config.group_settings import effective
from tidelog.coordinators.groups.classic.states import GroupLimits
from tidelog.coordinators.groups.consumer.views import ConsumerLimits
from tidelog.coordinators.groups.share.views import ShareLimits
from tidelog.coordinators.groups.streams.views import StreamsLimits

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig

    LimitsOf = Callable[[str, str], Any]
    """The settings of a group, by its type and its id."""

__all__ = ["DEFAULTS", "assignor_names", "limits_of"]

DEFAULTS = {
    "classic": GroupLimits(),
    "consumer": ConsumerLimits(),
    "share": ShareLimits(),
    "streams": StreamsLimits(),
}


def limits_of(config: BrokerConfig, image: ClusterImage, group_type: str, group_id: str) -> Any:
    """Return the settings of a group: its own within the broker's limits, else the broker's.

    They may change with an image whose delta has the group among `group_configs`, or this broker
    among `broker_configs`; `config` has the broker's dynamic settings. Classic groups have none of
    their own.
    """
    if group_type == "classic":
        return GroupLimits(config.group_initial_rebalance_delay_ms, config.group_max_size)
    own = image.group_config(group_id)
    shared: dict[str, Any] = {
        name: effective(config, own, f"{group_type}.{name.replace('_', '.')}")
        for name in ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")
    }
    if group_type == "consumer":
        size_max = config.group_consumer_max_size
        return ConsumerLimits(**shared, size_max=size_max, assignors=assignor_names(config))
    if group_type == "share":
        # A first attempt has its result by then, as in Kafka's GroupCoordinatorConfig.
        retry_ms = max(
            config.group_share_initialize_retry_interval_ms, config.offsets_commit_timeout_ms
        )
        size_max = config.group_share_max_size
        return ShareLimits(**shared, size_max=size_max, initialize_retry_ms=retry_ms)
    delay = "streams.initial.rebalance.delay.ms"  # the only one without limits
    return StreamsLimits(
        **shared,
        size_max=config.group_streams_max_size,
        initial_rebalance_delay_ms=int(
            own.get(delay, config.group_streams_initial_rebalance_delay_ms)
        ),
        standby_replicas=effective(config, own, "streams.num.standby.replicas"),
    )


def assignor_names(config: BrokerConfig) -> tuple[str, ...]:
    """Return the names of the assignors; a setting may have their classes."""
    names = config.group_consumer_assignors
    return tuple(dict.fromkeys(ASSIGNOR_CLASSES.get(name, name) for name in names))
