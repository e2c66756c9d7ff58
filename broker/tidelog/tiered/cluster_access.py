"""How the remote tier reaches its cluster: the image, the controllers and the other brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.listeners import ListenerSettings
    from tidelog.network.peers import PeerChannel
    from tidelog_protocol.errors import ErrorCode
    from tidelog_protocol.messages.admin import CreateTopicsRequest

__all__ = ["ClusterAccess"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """`channels_to` returns what connects to other brokers by these settings, and by the SASL
    mechanism behind the key that names it; None for a lone broker.

    `catch_up` returns when this broker's image has all that is committed now; PeerError or
    StorageError if no controller answers.
    """

    cluster_id: str
    image: Callable[[], ClusterImage]
    create_topic: Callable[[CreateTopicsRequest.CreatableTopic], Awaitable[ErrorCode]]
    channels_to: Callable[
        [Callable[[BrokerConfig], ListenerSettings], tuple[str, str]],
        Callable[[str, int], PeerChannel] | None,
    ]
    catch_up: Callable[[], Awaitable[None]]
