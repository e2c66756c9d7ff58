"""Requests of nodes to the active controller: BrokerRegistration (API 62), BrokerHeartbeat (63),
AlterPartition (56), AllocateProducerIds (67), AssignReplicasToDirs (73), ControllerRegistration
(70).

Behaviour. Served on the controller listener. The controller decides each request against the latest
metadata and answers when the change is committed. Errors: `controller/brokers.py`,
`controller/partitions.py` and `controller/registrations.py`.

Version notes. AlterPartition 2 (KIP-841): topic ids. 3 (KIP-903): broker epochs with the ISR.
BrokerRegistration 2 (KIP-858): log directories. 3 (KIP-966): the epoch before a clean stop.
BrokerHeartbeat 1 (KIP-858): failed directories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.decided import decided
from tidelog_protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.cluster.controller.controller import Controller
    from tidelog.network.dispatch import Handler

__all__ = ["BrokersApi"]


class BrokersApi:
    """Handlers of brokers' requests; `controller` is that of this node."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        own = self._controller
        return {
            ApiKey.ALTER_PARTITION: decided(
                lambda context, request: own.alter_partition(request, context.api_version)
            ),
            ApiKey.ASSIGN_REPLICAS_TO_DIRS: decided(
                lambda _, request: own.assign_replicas_to_dirs(request)
            ),
            ApiKey.BROKER_REGISTRATION: decided(lambda _, request: own.register_broker(request)),
            ApiKey.CONTROLLER_REGISTRATION: decided(
                lambda _, request: own.register_controller(request)
            ),
            ApiKey.BROKER_HEARTBEAT: decided(lambda _, request: own.heartbeat(request)),
            ApiKey.ALLOCATE_PRODUCER_IDS: decided(
                lambda _, request: own.allocate_producer_ids_for(request)
            ),
        }
