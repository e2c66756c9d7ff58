"""A controller's registration in its cluster (KIP-919): its addresses and features.

It is asked of the active controller once `metadata.version` has such registrations, and again when
the image shows that of another process of this node, or none. Kafka: ControllerRegistrationManager.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidelog.cluster.metadata.features import registers_controllers, supported_levels
from tidelog.config.security_keys import PROTOCOLS
from tidelog.network.peers import PeerError
from tidelog_protocol.errors import error_name
from tidelog_protocol.messages.controller import ControllerRegistrationRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from tidelog.cluster.metadata.delta import MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.config.broker import BrokerConfig
    from tidelog_protocol.schema import Message

__all__ = ["ControllerRegistration"]

_log = logging.getLogger("tidelog.lifecycle")

RETRY_S, RETRY_S_MAX = 0.1, 10.0  # after a failed attempt; doubled each time


class ControllerRegistration:
    """Keeps the registration of one process."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataLog,
        *,
        ask: Callable[[Message], Coroutine[Any, Any, Any]],
        endpoints: Iterable[tuple[str, str, int]],
        incarnation_id: bytes,
    ) -> None:
        """`ask` sends a request to the active controller; `endpoints` are names, hosts and ports of
        the controller's listeners."""
        self._metadata = metadata
        self._ask = ask
        self._changed = asyncio.Event()
        self._is_known = asyncio.Event()
        self._request = ControllerRegistrationRequest(
            controller_id=config.node_id,
            incarnation_id=incarnation_id,
            listeners=[
                ControllerRegistrationRequest.Listener(
                    name=name,
                    host=host,
                    port=port,
                    security_protocol=PROTOCOLS.index(config.listener_settings(name).protocol),
                )
                for name, host, port in endpoints
            ],
            features=[
                ControllerRegistrationRequest.Feature(
                    name=name, min_supported_version=low, max_supported_version=high
                )
                for name, (low, high) in supported_levels().items()
            ],
        )

    def on_image(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Look whether to register; a listener of the metadata log."""
        old = delta.old
        if old is None or (old.controllers, old.features) != (image.controllers, image.features):
            self._changed.set()
        if not self.is_due():
            self._is_known.set()

    def is_due(self) -> bool:
        """Return whether the cluster has registrations, and not this one."""
        image = self._metadata.image
        known = image.controllers.get(self._request.controller_id)
        is_known = known is not None and known.incarnation_id == self._request.incarnation_id
        return registers_controllers(image.features) and not is_known

    async def wait(self, seconds_max: float) -> None:
        """Return once the image has the registration, at the latest after so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                if self.is_due():
                    await self._is_known.wait()

    async def run(self) -> None:
        """Keep the registration until the task is cancelled."""
        retry_s = RETRY_S
        while True:
            self._changed.clear()
            problem = await self._register() if self.is_due() else None
            if problem is None:
                retry_s = RETRY_S
                await self._changed.wait()
                continue
            _log.info("the controller could not register, in %g s again: %s", retry_s, problem)
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, RETRY_S_MAX)

    async def _register(self) -> str | None:
        """Ask once; return why it failed."""
        try:
            response = await self._ask(self._request)
        except PeerError as error:
            return str(error)
        if not response.error_code:
            return None
        return f"{error_name(response.error_code)} ({response.error_message})"
