"""Consumer groups of KIP-848: ConsumerGroupHeartbeat.

Behaviour. The protocol is not served yet, so each heartbeat is refused with UNSUPPORTED_VERSION, as
by an Apache Kafka whose `group.version` is 0. The API is listed nevertheless: librdkafka waits
without an error for a broker that lists it, but fails at once if it is refused. Only clients with
`group.protocol=consumer` send it. ConsumerGroupDescribe is not listed, so admin clients describe
all groups as classic ones.

Version notes. ConsumerGroupHeartbeat 1: regular expressions, member ids of the client (KIP-1082).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.consumer_groups import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest

__all__ = ["ConsumerGroupsApi"]

_REFUSAL = (
    "The broker does not serve the consumer group protocol of KIP-848. "
    "Set group.protocol=classic in the client."
)


class ConsumerGroupsApi:
    """Handlers of KIP-848."""

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {ApiKey.CONSUMER_GROUP_HEARTBEAT: self.heartbeat}

    def heartbeat(
        self, _context: RequestContext, _request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        """Refuse a ConsumerGroupHeartbeat request."""
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=_REFUSAL
        )
