"""How the remote tier reaches its cluster: the image, the controllers and the other brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.network.peers import PeerChannel
    from tidelog_protocol.errors import ErrorCode
    from tidelog_protocol.messages.admin import CreateTopicsRequest

__all__ = ["ClusterAccess"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """`new_channel` connects to another broker; None for a lone broker.

    `catch_up` returns when this broker's image has all that is committed now; PeerError or
    StorageError if no controller answers.
    """

    cluster_id: str
    image: Callable[[], ClusterImage]
    create_topic: Callable[[CreateTopicsRequest.CreatableTopic], Awaitable[ErrorCode]]
    new_channel: Callable[[str, int], PeerChannel] | None
    catch_up: Callable[[], Awaitable[None]]
