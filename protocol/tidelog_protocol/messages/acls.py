"""Tables of ACLs: describing, creating and deleting them (KIP-140, KIP-290).

Types of resources, operations, pattern types and permissions are Kafka's numbers
(`tidelog.security.acls`).
"""

from __future__ import annotations

from tidelog_protocol.schema import Message, Struct, array, int8, int16, int32, string

__all__ = [
    "CreateAclsRequest",
    "CreateAclsResponse",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
    "DescribeAclsRequest",
    "DescribeAclsResponse",
]


class DescribeAclsRequest(Message, api_key=29, versions="1-3", flexible="2+"):
    """Ask for the ACLs that a filter matches; null matches every name.

    v2: flexible. v3: resources of type user
    """

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResponse(Message, api_key=29, versions="1-3", flexible="2+"):
    """The ACLs by resource.

    v2: flexible. v3: resources of type user
    """

    class DescribeAclsResource(Struct):
        class AclDescription(Struct):
            principal: str = string()
            host: str = string()
            operation: int = int8()
            permission_type: int = int8()

        resource_type: int = int8()
        resource_name: str = string()
        pattern_type: int = int8(default=3)
        acls: list[AclDescription] = array(AclDescription)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)


class CreateAclsRequest(Message, api_key=30, versions="1-3", flexible="2+"):
    """Create ACLs.

    v2: flexible. v3: resources of type user
    """

    class AclCreation(Struct):
        resource_type: int = int8()
        resource_name: str = string()
        resource_pattern_type: int = int8(default=3)
        principal: str = string()
        host: str = string()
        operation: int = int8()
        permission_type: int = int8()

    creations: list[AclCreation] = array(AclCreation)


class CreateAclsResponse(Message, api_key=30, versions="1-3", flexible="2+"):
    """A result for each creation, in the order of the request.

    v2: flexible. v3: resources of type user
    """

    class AclCreationResult(Struct):
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)


class DeleteAclsRequest(Message, api_key=31, versions="1-3", flexible="2+"):
    """Delete all ACLs that filters match; null matches every name.

    v2: flexible. v3: resources of type user
    """

    class DeleteAclsFilter(Struct):
        resource_type_filter: int = int8()
        resource_name_filter: str | None = string(nullable="0+")
        pattern_type_filter: int = int8(default=3)
        principal_filter: str | None = string(nullable="0+")
        host_filter: str | None = string(nullable="0+")
        operation: int = int8()
        permission_type: int = int8()

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsResponse(Message, api_key=31, versions="1-3", flexible="2+"):
    """The deleted ACLs for each filter, in the order of the request.

    v2: flexible. v3: resources of type user
    """

    class DeleteAclsFilterResult(Struct):
        class DeleteAclsMatchingAcl(Struct):
            error_code: int = int16()
            error_message: str | None = string(nullable="0+")
            resource_type: int = int8()
            resource_name: str = string()
            pattern_type: int = int8(default=3)
            principal: str = string()
            host: str = string()
            operation: int = int8()
            permission_type: int = int8()

        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
