"""ListConfigResources (API 74): the resources that have, or may have, settings.

Behaviour: all topics, the brokers that are not fenced, once as brokers and once with their loggers,
the subscriptions of clients' metrics, and the groups that have settings of their own, in Kafka's
order. An unknown type is refused with UNSUPPORTED_VERSION.

Version notes. 0 (KIP-714) lists client metrics only; 1 (KIP-1142) lists the types that are asked
for, all if none is named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.configs import (
        ListConfigResourcesRequest,
        ListConfigResourcesResponse,
    )

__all__ = ["ConfigResourcesApi"]


class ConfigResourcesApi:
    """Lists resources of the image."""

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {ApiKey.LIST_CONFIG_RESOURCES: self.list_config_resources}

    def list_config_resources(
        self, context: RequestContext, request: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse:
        """Answer a ListConfigResources request."""
        from tidelog_protocol.messages.configs import ListConfigResourcesResponse  # noqa: PLC0415 - rare

        named = self._names()
        wanted = set(request.resource_types) or named.keys()
        if context.api_version == 0:
            wanted = {RESOURCE_CLIENT_METRICS}
        if not wanted <= named.keys():
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return ListConfigResourcesResponse(
            config_resources=[
                ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
                for kind, names in named.items()
                if kind in wanted
                for name in names
            ]
        )

    def _names(self) -> dict[int, Iterable[str]]:
        image = self._metadata.image
        brokers = [str(broker.node_id) for broker in image.alive_brokers()]
        return {
            RESOURCE_GROUP: image.group_configs,
            RESOURCE_CLIENT_METRICS: image.client_metrics,
            RESOURCE_BROKER_LOGGER: brokers,
            RESOURCE_BROKER: brokers,
            RESOURCE_TOPIC: image.topics,
        }
