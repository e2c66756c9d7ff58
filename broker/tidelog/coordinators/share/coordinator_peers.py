"""Requests for the state of share partitions to their coordinators on other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.coordinators.share.wire import outcomes_of, request_of
from tidelog.network.peers import Channels, PeerError
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.coordinators.share.wire import Operation
    from tidelog.network.peers import PeerChannel

__all__ = ["CoordinatorPeers"]


class CoordinatorPeers:
    """Channels to other brokers' client listeners."""

    def __init__(
        self, new_channel: Callable[[str, int], PeerChannel], image: Callable[[], ClusterImage]
    ) -> None:
        """`image` returns the current image."""
        self._channels = Channels(new_channel, lambda node_id: image().address_of(node_id))

    async def ask(
        self, node_id: int, operation: Operation, group_id: str, items: Sequence[Any]
    ) -> list[Any]:
        """Return the outcome of each item; NETWORK_EXCEPTION if it is unknown."""
        try:
            request = request_of(operation, group_id, items)
            response = await self._channels.to(node_id).ask(request)
        except PeerError as error:
            return [operation.outcome(ErrorCode.NETWORK_EXCEPTION, str(error))] * len(items)
        return outcomes_of(operation, items, response)

    def close(self) -> None:
        """Close all channels; pending requests end with NETWORK_EXCEPTION."""
        self._channels.close()
