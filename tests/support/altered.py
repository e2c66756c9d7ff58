"""A request that alters settings, decided in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.configs import Alteration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.cluster.controller.configs import Resource, ResourceResult
    from tidelog.cluster.controller.decisions import Decision
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig


def alter_configs(
    image: ClusterImage, config: BrokerConfig, resources: Sequence[Resource]
) -> Decision[ResourceResult]:
    """Decide all of a request's changes."""
    return Alteration(config, resources).step(image, len(resources))
