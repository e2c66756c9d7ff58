"""Requests of brokers to the active controller: BrokerRegistration (API 62), BrokerHeartbeat (63),
AlterPartition (56), AllocateProducerIds (67), AssignReplicasToDirs (73).

Behaviour. Served on the controller listener. The controller decides each request against the latest
metadata and answers when the change is committed. A node that is not the active controller, or
loses that role before the change is committed, answers NOT_CONTROLLER: the change may have happened
or not. Errors: `controller/brokers.py` and `controller/partitions.py`.

Version notes. AlterPartition 2 (KIP-841): topic ids. 3 (KIP-903): broker epochs with the ISR.
BrokerRegistration 2 (KIP-858): log directories. 3 (KIP-966): the epoch before a clean stop.
BrokerHeartbeat 1 (KIP-858): failed directories.
"""

# ruff: noqa: PLC0415 - the tables of a cluster are imported by its first request

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.decisions import RefusedError
from tidelog_protocol.apis import ApiKey
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog.cluster.controller.controller import Controller
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.controller import (
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
        AlterPartitionRequest,
        AlterPartitionResponse,
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
        BrokerHeartbeatRequest,
        BrokerHeartbeatResponse,
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
    )

__all__ = ["BrokersApi"]


class BrokersApi:
    """Handlers of brokers' requests; `controller` is that of this node."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.ALTER_PARTITION: self.alter_partition,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS: self.assign_replicas_to_dirs,
            ApiKey.BROKER_REGISTRATION: self.register,
            ApiKey.BROKER_HEARTBEAT: self.heartbeat,
            ApiKey.ALLOCATE_PRODUCER_IDS: self.allocate_producer_ids,
        }

    async def alter_partition(
        self, context: RequestContext, request: AlterPartitionRequest
    ) -> AlterPartitionResponse:
        """Answer an AlterPartition request."""
        from tidelog_protocol.messages.controller import AlterPartitionResponse

        try:
            return await self._controller.alter_partition(request, context.api_version)
        except (RefusedError, StorageError) as error:
            return AlterPartitionResponse(error_code=error.code)

    async def assign_replicas_to_dirs(
        self, context: RequestContext, request: AssignReplicasToDirsRequest
    ) -> AssignReplicasToDirsResponse:
        """Answer an AssignReplicasToDirs request."""
        from tidelog_protocol.messages.controller import AssignReplicasToDirsResponse

        del context
        try:
            return await self._controller.assign_replicas_to_dirs(request)
        except (RefusedError, StorageError) as error:
            return AssignReplicasToDirsResponse(error_code=error.code)

    async def register(
        self, context: RequestContext, request: BrokerRegistrationRequest
    ) -> BrokerRegistrationResponse:
        """Answer a BrokerRegistration request."""
        from tidelog_protocol.messages.controller import BrokerRegistrationResponse

        del context
        try:
            return await self._controller.register_broker(request)
        except (RefusedError, StorageError) as error:
            return BrokerRegistrationResponse(error_code=error.code)

    async def heartbeat(
        self, context: RequestContext, request: BrokerHeartbeatRequest
    ) -> BrokerHeartbeatResponse:
        """Answer a BrokerHeartbeat request."""
        from tidelog_protocol.messages.controller import BrokerHeartbeatResponse

        del context
        try:
            return await self._controller.heartbeat(request)
        except (RefusedError, StorageError) as error:
            return BrokerHeartbeatResponse(error_code=error.code)

    async def allocate_producer_ids(
        self, context: RequestContext, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        """Answer an AllocateProducerIds request."""
        from tidelog_protocol.messages.controller import AllocateProducerIdsResponse

        del context
        try:
            return await self._controller.allocate_producer_ids_for(request)
        except (RefusedError, StorageError) as error:
            return AllocateProducerIdsResponse(error_code=error.code)
