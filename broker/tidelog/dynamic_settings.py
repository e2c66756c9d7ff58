"""A broker's settings while it runs: those it was given, under the dynamic ones (KIP-226).

Some parts of a broker read dynamic settings in the image themselves: topics' defaults, groups, the
fetchers and the remote tier. This is for the parts below the cluster's metadata.
Kafka: DynamicBrokerConfig.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.cluster.metadata.delta import MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig

__all__ = ["DynamicSettings"]

log = logging.getLogger("tidelog.dynamic_settings")


class DynamicSettings:
    """The settings of one broker, and the parts that follow them."""

    def __init__(self, config: BrokerConfig) -> None:
        """`config` has the settings that the broker was given."""
        self._given = config
        self._now = config
        self._followers: list[Callable[[BrokerConfig], None]] = []

    def follow(self, reconfigure: Callable[[BrokerConfig], None]) -> None:
        """Call `reconfigure` now and after each change."""
        self._followers.append(reconfigure)
        reconfigure(self._now)

    def on_image(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Follow the cluster."""
        node_id = self._given.node_id
        if not delta.configures(node_id):
            return
        try:
            self._now = self._given.with_dynamic(image.broker_config(node_id))
        except ConfigError as error:  # written by a newer broker or by Kafka
            log.warning("dynamic settings have no effect until this one is mended: %s", error)
            return
        for reconfigure in self._followers:
            reconfigure(self._now)
