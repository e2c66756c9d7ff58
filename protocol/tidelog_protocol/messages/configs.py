"""Tables of configuration: describing, altering and listing resources."""

from __future__ import annotations

from tidelog_protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string

__all__ = [
    "AlterConfigsRequest",
    "AlterConfigsResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
    "ListConfigResourcesRequest",
    "ListConfigResourcesResponse",
]


class DescribeConfigsRequest(Message, api_key=32, versions="1-4", flexible="4+"):
    """Ask for configuration; resource types: 2 topic, 4 broker, 8 broker logger, 32 group.

    v1: synonyms; the oldest version since Kafka 4.0
    v3: type and documentation (KIP-569)
    v4: flexible
    """

    class DescribeConfigsResource(Struct):
        resource_type: int = int8()
        resource_name: str = string()
        configuration_keys: list[str] | None = array(string, nullable="0+")  # null: all

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


class DescribeConfigsResponse(Message, api_key=32, versions="1-4", flexible="4+"):
    """Configuration entries and where each value comes from.

    v1: source and synonyms (KIP-226)
    v3: type and documentation (KIP-569)
    v4: flexible
    """

    class DescribeConfigsResult(Struct):
        class DescribeConfigsResourceResult(Struct):
            class DescribeConfigsSynonym(Struct):
                name: str = string()
                value: str | None = string(nullable="0+")
                source: int = int8()

            name: str = string()
            value: str | None = string(nullable="0+")
            read_only: bool = boolean()
            config_source: int = int8("1+", default=-1)
            is_sensitive: bool = boolean()
            synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+")
            config_type: int = int8("3+")
            documentation: str | None = string("3+", nullable="0+")

        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        resource_type: int = int8()
        resource_name: str = string()
        configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)

    DescribeConfigsResourceResult = DescribeConfigsResult.DescribeConfigsResourceResult
    DescribeConfigsSynonym = DescribeConfigsResourceResult.DescribeConfigsSynonym


class AlterConfigsRequest(Message, api_key=33, versions="0-2", flexible="2+"):
    """Replace all of a resource's configuration.

    v2: flexible
    """

    class AlterConfigsResource(Struct):
        class AlterableConfig(Struct):
            name: str = string()
            value: str | None = string(nullable="0+")

        resource_type: int = int8()
        resource_name: str = string()
        configs: list[AlterableConfig] = array(AlterableConfig)

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()

    AlterableConfig = AlterConfigsResource.AlterableConfig


class AlterConfigsResponse(Message, api_key=33, versions="0-2", flexible="2+"):
    """A result for each resource.

    v2: flexible
    """

    class AlterConfigsResourceResponse(Struct):
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        resource_type: int = int8()
        resource_name: str = string()

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+"):
    """Change single entries: 0 set, 1 delete, 2 append, 3 subtract (KIP-339).

    v1: flexible
    """

    class AlterConfigsResource(Struct):
        class AlterableConfig(Struct):
            name: str = string()
            config_operation: int = int8()  # 0 set, 1 delete, 2 append, 3 subtract
            value: str | None = string(nullable="0+")

        resource_type: int = int8()
        resource_name: str = string()
        configs: list[AlterableConfig] = array(AlterableConfig)

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()

    AlterableConfig = AlterConfigsResource.AlterableConfig


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    """A result for each resource.

    v1: flexible
    """

    class AlterConfigsResourceResponse(Struct):
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        resource_type: int = int8()
        resource_name: str = string()

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+"):
    """Ask which resources have, or may have, configuration.

    v0: client metrics only (KIP-714)
    v1: the types that are asked for, all if none is named (KIP-1142)
    """

    resource_types: list[int] = array(int8, "1+")


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    """Names of resources.

    v1: their types (KIP-1142)
    """

    class ConfigResource(Struct):
        resource_name: str = string()
        resource_type: int = int8("1+", default=16)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
