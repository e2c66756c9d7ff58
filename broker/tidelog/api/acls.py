"""DescribeAcls (API 29), CreateAcls (30), DeleteAcls (31): ACLs (KIP-140, KIP-290).

Behaviour. A description is that of this broker's image. The active controller creates and deletes;
the answer comes when that is committed, a moment before the last broker has it. Without an
authorizer everything is refused with SECURITY_DISABLED, as in Kafka. A request with UNKNOWN closes
the connection. A creation with ANY or MATCH fails its whole request, because Kafka does not expect
it.

Version notes. 1 (KIP-290): prefixed resources. 2 is flexible. 3 (KIP-373): resources of type user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.security.acls import check_creations, check_filters, filter_of, is_of_filters
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.acls import (
    CreateAclsResponse,
    DeleteAclsResponse,
    DescribeAclsResponse,
)
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog.cluster.controller.controller import Controller
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.acls import (
        CreateAclsRequest,
        DeleteAclsRequest,
        DescribeAclsRequest,
    )

__all__ = ["AclsApi"]

_DISABLED = "No Authorizer is configured."


class AclsApi:
    """Handlers of ACLs; `controller` is this node's."""

    def __init__(
        self, metadata: MetadataLog, controller: Controller, *, has_authorizer: bool
    ) -> None:
        self._metadata = metadata
        self._controller = controller
        self._has_authorizer = has_authorizer

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.DESCRIBE_ACLS: self.describe_acls,
            ApiKey.CREATE_ACLS: self.create_acls,
            ApiKey.DELETE_ACLS: self.delete_acls,
        }

    def describe_acls(
        self, context: RequestContext, request: DescribeAclsRequest
    ) -> DescribeAclsResponse:
        """Answer a DescribeAcls request."""
        del context
        wanted = filter_of(request)
        if not self._has_authorizer:
            return DescribeAclsResponse(
                error_code=ErrorCode.SECURITY_DISABLED,
                error_message="No Authorizer is configured on the broker",
            )
        Resource = DescribeAclsResponse.DescribeAclsResource  # noqa: N806 - a class
        resources: dict[tuple[int, str, int], DescribeAclsResponse.DescribeAclsResource] = {}
        for acl in self._metadata.image.acls.values():
            if not wanted.matches(acl):
                continue
            key = acl.resource_type, acl.resource_name, acl.pattern_type
            if key not in resources:
                resources[key] = Resource(
                    resource_type=acl.resource_type,
                    resource_name=acl.resource_name,
                    pattern_type=acl.pattern_type,
                    acls=[],
                )
            resources[key].acls.append(
                Resource.AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission_type,
                )
            )
        return DescribeAclsResponse(resources=list(resources.values()))

    async def create_acls(
        self, context: RequestContext, request: CreateAclsRequest
    ) -> CreateAclsResponse:
        """Answer a CreateAcls request."""
        del context
        check_creations(request)
        try:
            if not self._has_authorizer:
                raise StorageError(ErrorCode.SECURITY_DISABLED, _DISABLED)
            if any(is_of_filters(each) for each in request.creations):
                raise StorageError(ErrorCode.UNKNOWN_SERVER_ERROR)
            return await self._controller.create_acls(request)
        except StorageError as error:
            refused = CreateAclsResponse.AclCreationResult(
                error_code=error.code, error_message=error.message
            )
            return CreateAclsResponse(results=[refused] * len(request.creations))

    async def delete_acls(
        self, context: RequestContext, request: DeleteAclsRequest
    ) -> DeleteAclsResponse:
        """Answer a DeleteAcls request."""
        del context
        check_filters(request)
        try:
            if not self._has_authorizer:
                raise StorageError(ErrorCode.SECURITY_DISABLED, _DISABLED)
            return await self._controller.delete_acls(request)
        except StorageError as error:
            refused = DeleteAclsResponse.DeleteAclsFilterResult(
                error_code=error.code, error_message=error.message, matching_acls=[]
            )
            return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
