"""DescribeConfigs (API 32), AlterConfigs (33) and IncrementalAlterConfigs (44).

Behaviour. Resources: topics, groups, subscriptions of clients' metrics (KIP-714), this broker by
its id, and "" for the settings that all brokers share. Groups have settings whether they exist or
not.
A change takes effect at once, for existing topics too: the image changes, and the replica manager
updates the logs. Values, sources, synonyms and error texts are Kafka's (`metadata/describe.py`,
`controller/configs.py`). A resource is altered as a whole or not at all; one failure does not stop
the others. If nothing can be written, every resource gets KAFKA_STORAGE_ERROR.

Left out: loggers (answered as by a Kafka broker without loggers), AlterConfigs policies.

Version notes. DescribeConfigs 1 (KIP-226): synonyms; 3 (KIP-569): types and, when asked,
documentation. AlterConfigs replaces all settings of a resource; IncrementalAlterConfigs (KIP-339)
sets, deletes, appends and subtracts single ones.
"""

# ruff: noqa: PLC0415 - what answers config requests is imported by the first of them

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.cluster.controller.decisions import RefusedError
from tidelog.cluster.controller.names import invalid_topic_reason
from tidelog.cluster.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from tidelog.network.wide_requests import PART_MAX, TWICE_MAX, in_turns
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence
    from typing import Any

    from tidelog.cluster.controller.configs import Resource, ResourceResult
    from tidelog.cluster.controller.controller import Controller
    from tidelog.cluster.metadata.describe import ConfigEntry
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.config.broker import BrokerConfig
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.configs import (
        AlterConfigsRequest,
        AlterConfigsResponse,
        DescribeConfigsRequest,
        DescribeConfigsResponse,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

    Result = DescribeConfigsResponse.DescribeConfigsResult

__all__ = ["ENTRIES_AT_ONCE", "ConfigsApi"]

ENTRIES_AT_ONCE = 500
"""Settings described in a turn of the loop: about 15 ms."""

_NO_NAME = {
    RESOURCE_BROKER_LOGGER: "Broker id must not be empty",
    RESOURCE_CLIENT_METRICS: "Client metrics subscription name must not be empty",
    RESOURCE_GROUP: "Group name must not be empty",
}
_KNOWN_TYPES = frozenset(
    {
        RESOURCE_TOPIC,
        RESOURCE_BROKER,
        RESOURCE_BROKER_LOGGER,
        RESOURCE_CLIENT_METRICS,
        RESOURCE_GROUP,
    }
)
_MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details."
)


class ConfigsApi:
    """Handlers of configuration."""

    def __init__(self, metadata: MetadataLog, controller: Controller, config: BrokerConfig) -> None:
        self._metadata = metadata
        self._controller = controller
        self._config = config

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.DESCRIBE_CONFIGS: self.describe_configs,
            ApiKey.ALTER_CONFIGS: self.alter_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.alter_configs,
        }

    # ---- describe -----------------------------------------------------------------------------

    def describe_configs(self, context: RequestContext, request: DescribeConfigsRequest) -> Any:
        """Answer a DescribeConfigs request. An unknown resource type fails all of it."""
        return in_turns(self._described(request), context)

    def _described(
        self, request: DescribeConfigsRequest
    ) -> Generator[None, None, DescribeConfigsResponse]:
        """Answer, with a `yield` between parts of about `ENTRIES_AT_ONCE` settings."""
        from tidelog_protocol.messages.configs import DescribeConfigsResponse

        resources = request.resources
        if len(resources) > TWICE_MAX:
            resources = _once(resources)
        if any(resource.resource_type not in _KNOWN_TYPES for resource in resources):
            refusal = RefusedError(ErrorCode.INVALID_REQUEST, _MALFORMED)
            return DescribeConfigsResponse(
                results=[_refused_description(resource, refusal) for resource in resources]
            )
        results = []
        room = ENTRIES_AT_ONCE
        alike: dict[Any, Any] = {}  # what topics with the same settings have in common
        image = self._metadata.image
        for resource in resources:
            if room <= 0:
                yield
                room = ENTRIES_AT_ONCE
                if self._metadata.image is not image:
                    image = self._metadata.image
                    alike.clear()
            room -= 1
            key = _settings_of(image, resource)
            configs = alike.get(key)
            if configs is None:
                try:
                    entries = self._describe(
                        resource.resource_type,
                        resource.resource_name,
                        resource.configuration_keys or (),
                    )
                except RefusedError as refusal:
                    results.append(_refused_description(resource, refusal))
                    continue
                room -= len(entries) + len(resource.configuration_keys or ())
                configs = _described_entries(entries, request)
                if key is not None:
                    alike[key] = configs
            results.append(_description(resource, configs))
        return DescribeConfigsResponse(results=results)

    def _describe(self, resource_type: int, name: str, keys: Collection[str]) -> list[ConfigEntry]:
        from tidelog.cluster.metadata.describe import (
            describe_broker_defaults,
            describe_client_metrics,
            describe_group,
            describe_topic,
        )

        image = self._metadata.image
        if resource_type == RESOURCE_TOPIC:
            reason = invalid_topic_reason(name)
            if reason is not None:
                raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
            if name not in image.topics:
                raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
            return describe_topic(self._config, image, name, keys)
        if not name:
            if resource_type == RESOURCE_BROKER:
                return describe_broker_defaults(self._config, image, keys)
            raise _invalid(_NO_NAME[resource_type])
        if resource_type == RESOURCE_GROUP:
            return describe_group(self._config, image, name, keys)
        if resource_type == RESOURCE_CLIENT_METRICS:
            return describe_client_metrics(image, name, keys)
        return self._describe_broker(resource_type, name, keys)

    def _describe_broker(
        self, resource_type: int, name: str, keys: Collection[str]
    ) -> list[ConfigEntry]:
        from tidelog.cluster.controller.configs import parse_node_id
        from tidelog.cluster.metadata.describe import describe_broker

        node_id = parse_node_id(name)
        if node_id is None:
            raise _invalid(f"Broker id must be an integer, but it is: {name}")
        if node_id != self._config.node_id:
            mine = f"{self._config.node_id}"
            mine += " or empty string," if resource_type == RESOURCE_BROKER else ""
            raise _invalid(f"Unexpected broker id, expected {mine} but received {name}")
        if resource_type == RESOURCE_BROKER_LOGGER:
            return []
        return describe_broker(self._config, self._metadata.image, keys)

    # ---- alter --------------------------------------------------------------------------------

    async def alter_configs(
        self,
        context: RequestContext,
        request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    ) -> AlterConfigsResponse | IncrementalAlterConfigsResponse:
        """Answer an AlterConfigs or IncrementalAlterConfigs request."""
        resources = _resources(request)
        response = _response(request)
        answers = await self._alter(
            resources,
            validate_only=request.validate_only,
            is_forwarded=context.peer.is_forwarded,
        )
        if len(answers) > PART_MAX:
            await asyncio.sleep(0)
        response.responses += [_row(response, *answer) for answer in answers]
        return response

    def forwarding_alterations(self, handlers: Mapping[ApiKey, Handler]) -> dict[ApiKey, Handler]:
        """Wrap the forwarding handlers that alter configs: settings of another broker are refused
        here, wherever the active controller is."""
        keys = (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
        return {key: self._forwarding(handlers[key]) for key in keys}

    def _forwarding(self, forward: Handler) -> Handler:
        async def handle(context: RequestContext, request: Any) -> Any:
            from tidelog.cluster.controller.configs import refused_by_the_asked

            dynamic = self._metadata.image.broker_config(self._config.node_id)
            refused = refused_by_the_asked(self._config, dynamic, _resources(request))
            if not refused:
                return await forward(context, request)
            asked = list(request.resources)
            request.resources = [one for index, one in enumerate(asked) if index not in refused]
            response = await forward(context, request) if request.resources else _response(request)
            for number, (index, refusal) in enumerate(sorted(refused.items()), 1):
                if number % PART_MAX == 0:
                    await asyncio.sleep(0)
                resource = asked[index]
                row = _row(
                    response,
                    resource.resource_type,
                    resource.resource_name,
                    refusal.code,
                    refusal.message,
                )
                response.responses.insert(index, row)
            return response

        return handle

    async def _alter(
        self, resources: Sequence[Resource], *, validate_only: bool, is_forwarded: bool
    ) -> list[ResourceResult]:
        """Return the answer for each resource; one for those that are named twice."""
        from tidelog.cluster.controller.configs import ResourceResult

        try:
            return await self._controller.alter_configs(
                resources, validate_only=validate_only, is_forwarded=is_forwarded
            )
        except StorageError as error:
            return [ResourceResult(*one[:2], error.code, error.message) for one in resources]


def _resources(request: AlterConfigsRequest | IncrementalAlterConfigsRequest) -> list[Resource]:
    from tidelog.cluster.controller.configs import incremental_resources, legacy_resources
    from tidelog_protocol.messages.configs import AlterConfigsRequest

    if isinstance(request, AlterConfigsRequest):
        return legacy_resources(request)
    return incremental_resources(request)


def _response(
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
) -> AlterConfigsResponse | IncrementalAlterConfigsResponse:
    """Return an empty response to this request."""
    from tidelog_protocol.messages.configs import (
        AlterConfigsRequest,
        AlterConfigsResponse,
        IncrementalAlterConfigsResponse,
    )

    if isinstance(request, AlterConfigsRequest):
        return AlterConfigsResponse(responses=[])
    return IncrementalAlterConfigsResponse(responses=[])


def _row(
    response: AlterConfigsResponse | IncrementalAlterConfigsResponse,
    resource_type: int,
    resource_name: str,
    code: int,
    message: str | None,
) -> Any:
    """Return the part of either response for one resource."""
    return response.AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource_type,
        resource_name=resource_name,
    )


def _once(resources: Sequence[Any]) -> list[Any]:
    """Leave out what asks the same as an earlier one: a broker has hundreds of settings, and a
    request may name it thousands of times."""
    kept: dict[Any, Any] = {}
    for each in resources:
        keys = each.configuration_keys
        key = (each.resource_type, each.resource_name, None if keys is None else tuple(keys))
        kept.setdefault(key, each)
    return list(kept.values())


def _settings_of(
    image: ClusterImage, resource: DescribeConfigsRequest.DescribeConfigsResource
) -> Any:
    """Return what the description of a topic depends on, None for other resources."""
    if resource.resource_type != RESOURCE_TOPIC or resource.resource_name not in image.topics:
        return None
    own = image.topic_config(resource.resource_name)
    return tuple(own.items()), tuple(resource.configuration_keys or ())


def _description(
    resource: DescribeConfigsRequest.DescribeConfigsResource, configs: list[Any]
) -> Result:
    from tidelog_protocol.messages.configs import DescribeConfigsResponse

    return DescribeConfigsResponse.DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _described_entries(entries: Sequence[ConfigEntry], request: DescribeConfigsRequest) -> Any:
    from tidelog_protocol.messages.configs import DescribeConfigsResponse

    described = DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult
    synonym = described.DescribeConfigsSynonym
    return [
        described(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
            synonyms=(
                [synonym(name=s.name, value=s.value, source=s.source) for s in entry.synonyms]
                if request.include_synonyms
                else []
            ),
            config_type=entry.type_code,
            documentation=entry.documentation if request.include_documentation else None,
        )
        for entry in entries
    ]


def _refused_description(
    resource: DescribeConfigsRequest.DescribeConfigsResource, refusal: RefusedError
) -> Result:
    from tidelog_protocol.messages.configs import DescribeConfigsResponse

    return DescribeConfigsResponse.DescribeConfigsResult(
        error_code=refusal.code,
        error_message=refusal.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, message)
