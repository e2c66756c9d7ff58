"""The configuration of a topic's logs on this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_storage.config import LogConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.cluster.metadata.image import ClusterImage

__all__ = ["topic_configs"]


def topic_configs(
    properties: Mapping[str, str], node_id: int
) -> Callable[[ClusterImage, str], LogConfig]:
    """Return a topic's configuration in an image: its own, then the broker's dynamic and static
    one."""
    dynamic: dict[str, str] | None = None
    defaults: LogConfig | None = None

    def config_of(image: ClusterImage, topic: str) -> LogConfig:
        nonlocal dynamic, defaults
        settings = image.broker_config(node_id)
        if defaults is None or settings != dynamic:
            dynamic = settings
            defaults = LogConfig.from_broker({**properties, **settings})
        overrides = image.topic_config(topic)
        return LogConfig.from_overrides(defaults, overrides) if overrides else defaults

    return config_of
