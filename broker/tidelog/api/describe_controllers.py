"""DescribeCluster (API 60) of the controllers, which admin clients ask with `bootstrap.controllers`
(KIP-919).

Behaviour. Served on the controllers' listeners: the registered controllers with the addresses of
the listener that is asked, and the leader among them, -1 if none is known. A request for the other
type of endpoint, there or on the clients' listeners, is refused; so is each one while
`metadata.version` is below 3.7, which has no registrations.

Version notes. Version 0 cannot ask for controllers: INVALID_REQUEST. 1 (KIP-919): endpoint type. 2
(KIP-1073): fenced brokers, which controllers never are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.metadata.features import registers_controllers
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster import DescribeClusterResponse

if TYPE_CHECKING:
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.cluster import DescribeClusterRequest, MetadataRequest

__all__ = [
    "CLUSTER_OPERATIONS",
    "ENDPOINT_BROKERS",
    "DescribeControllersApi",
    "asked_operations",
    "refused_endpoint",
]

CLUSTER_OPERATIONS = 0b1_1111_1010_0000
"""Bits of AclOperation (KIP-430): all that exist for the cluster."""
ENDPOINT_BROKERS, ENDPOINT_CONTROLLERS = 1, 2
_NAMES = {ENDPOINT_BROKERS: "BROKER", ENDPOINT_CONTROLLERS: "CONTROLLER"}
_NOT_ASKED = -(1 << 31)


class DescribeControllersApi:
    """Answers DescribeCluster on a controllers' listener."""

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handler by API key."""
        return {ApiKey.DESCRIBE_CLUSTER: self.describe_cluster}

    def describe_cluster(
        self, context: RequestContext, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        """Answer a DescribeCluster request."""
        image = self._metadata.image
        if not registers_controllers(image.features):
            return DescribeClusterResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                error_message="Direct-to-controller communication is not supported with the"
                " current MetadataVersion.",
            )
        refused = refused_endpoint(request, context.api_version, ENDPOINT_CONTROLLERS)
        if refused is not None:
            return refused
        controllers = [
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=node_id, host=endpoint.host, port=endpoint.port
            )
            for node_id, controller in sorted(image.controllers.items())
            for endpoint in controller.end_points
            if endpoint.name == context.listener
        ]
        leader = self._metadata.leader_id
        return DescribeClusterResponse(
            endpoint_type=ENDPOINT_CONTROLLERS,
            cluster_id=image.cluster_id,
            controller_id=leader if any(each.broker_id == leader for each in controllers) else -1,
            brokers=controllers,
            cluster_authorized_operations=asked_operations(request),
        )


def asked_operations(request: DescribeClusterRequest | MetadataRequest) -> int:
    """Return all operations on the cluster if they are asked for: there is no authorizer here."""
    return CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else _NOT_ASKED


def refused_endpoint(
    request: DescribeClusterRequest, version: int, served: int
) -> DescribeClusterResponse | None:
    """Return the refusal of a request for another type of endpoint than what this listener serves
    (Kafka: AuthHelper.computeDescribeClusterResponse)."""
    asked = request.endpoint_type
    if asked == served:
        return None
    if asked in _NAMES:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = (
            f"The request was sent to an endpoint of type {_NAMES[served]}, "
            f"but we wanted an endpoint of type {_NAMES[asked]}"
        )
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {asked}"
    if version == 0:
        code = ErrorCode.INVALID_REQUEST
    return DescribeClusterResponse(error_code=code, error_message=message)
