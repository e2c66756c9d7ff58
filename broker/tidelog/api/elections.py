"""An admin's requests to the cluster: ElectLeaders (API 43), AlterPartitionReassignments (45),
ListPartitionReassignments (46), UpdateFeatures (57), UnregisterBroker (64).

Behaviour. The active controller decides each request as a whole and answers when the change is
committed: an election is complete then; a reassignment has only begun (or is complete, if all
replicas are in sync). Each partition has its own error. Errors and texts: `elections.py`,
`reassignment.py`, `features.py` and `brokers.py` of `controller/`.

An ElectLeaders or AlterPartitionReassignments with partitions and a `timeout_ms` of 0 or less
gets REQUEST_TIMED_OUT and changes nothing, as in Kafka.

Left out: a `timeout_ms` above 0 (nothing here waits for other brokers).

Version notes. ElectLeaders 1 (KIP-460): unclean elections, an error for the whole answer; before,
it is each partition's. AlterPartitionReassignments 1 (KIP-860): the number of replicas may be kept
fixed. UpdateFeatures 0: every update is an upgrade, as in Kafka, whatever `allow_downgrade` says; 2
(KIP-1022): no results of single updates.
"""

# ruff: noqa: PLC0415 - the tables of a cluster are imported by its first request

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.decided import decided, refuse_without_time, refused_everywhere
from tidelog_protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.cluster.controller.controller import Controller
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.cluster_admin import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        ElectLeadersRequest,
        ElectLeadersResponse,
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
        UnregisterBrokerRequest,
        UnregisterBrokerResponse,
    )

__all__ = ["ElectionsApi"]


class ElectionsApi:
    """Handlers of elections and reassignments; `controller` is this node's."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        own = self._controller
        return {
            ApiKey.ELECT_LEADERS: decided(self._elect_leaders, refused_everywhere),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: decided(
                self._alter_reassignments, refused_everywhere
            ),
            ApiKey.LIST_PARTITION_REASSIGNMENTS: decided(self._list_reassignments),
            ApiKey.UPDATE_FEATURES: decided(
                lambda context, request: own.update_features(request, context.api_version)
            ),
            ApiKey.UNREGISTER_BROKER: decided(self._unregister),
        }

    async def _elect_leaders(
        self, context: RequestContext, request: ElectLeadersRequest
    ) -> ElectLeadersResponse:
        if context.api_version == 0:
            request.election_type = 0  # the version knows no other
        if request.topic_partitions != []:  # null is all
            refuse_without_time(request.timeout_ms)
        return await self._controller.elect_leaders(request)

    async def _alter_reassignments(
        self, _context: RequestContext, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        from tidelog_protocol.messages.cluster_admin import AlterPartitionReassignmentsResponse

        if not request.topics:
            return AlterPartitionReassignmentsResponse(error_message="")  # Kafka's default
        refuse_without_time(request.timeout_ms)
        return await self._controller.alter_reassignments(request)

    async def _list_reassignments(
        self, _context: RequestContext, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        return self._controller.list_reassignments(request)

    async def _unregister(
        self, _context: RequestContext, request: UnregisterBrokerRequest
    ) -> UnregisterBrokerResponse:
        from tidelog_protocol.messages.cluster_admin import UnregisterBrokerResponse

        await self._controller.unregister_broker(request.broker_id)
        return UnregisterBrokerResponse()
