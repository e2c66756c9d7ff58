"""What a broker of several has beside a broker of one: the parts that talk to other nodes.

The controller listener, where the other nodes ask this one; the door to the active controller;
forwarding; the broker's life cycle; AlterPartition. Built by `server.py`, only if
`controller.quorum.voters` names several nodes; imported only then.

Start: `listen` first of all, `build` when the broker's own parts are there, `open` when the
metadata log is open, `join` when the broker follows images. Stop is the reverse: `leave` while
everything still serves, `stop_fetching` when clients have gone, `close` before the metadata log
closes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.api.versions import VersionsApi
from tidelog.assembly import controller_handlers
from tidelog.connections import Connections
from tidelog.dispatch import Dispatcher
from tidelog.forwarding import ControllerDoor, Forwarding
from tidelog.lifecycle import BrokerLifecycle
from tidelog.peers import PeerChannel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.config.broker import BrokerConfig, Endpoint
    from tidelog.controller.controller import Controller
    from tidelog.metadata.log import MetadataLog
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Listener, Runtime

__all__ = ["Membership"]

LEAVE_S_MAX = 3.0  # how long leaderships may take to move when this broker stops


class Membership:
    """One node's part in its cluster. Attributes are there once `build` was called."""

    def __init__(self, config: BrokerConfig, runtime: Runtime) -> None:
        self._config = config
        self._runtime = runtime
        self._listener: Listener | None = None
        self._connections = Connections(
            frame_bytes_max=config.socket_request_max_bytes,
            idle_ms_max=config.connections_max_idle_ms,
        )
        self._dispatcher: Dispatcher | None = None
        self._door: ControllerDoor | None = None
        self._lifecycle: BrokerLifecycle | None = None
        self._forwarding: Forwarding | None = None

    @property
    def forwarding(self) -> Forwarding:
        """Carries clients' requests to the active controller."""
        assert self._forwarding is not None, "build() comes first"
        return self._forwarding

    async def allocate_producer_ids(self) -> range:
        """A block of producer ids for this broker; StorageError if nobody gives one."""
        return await self.forwarding.allocate_producer_ids(self._config.node_id, self.broker_epoch)

    @property
    def broker_epoch(self) -> int:
        """Of this broker's registration; -1 before it has one."""
        return -1 if self._lifecycle is None else self._lifecycle.broker_epoch

    # -- start -------------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Bind the controller listener; OSError when its address is taken."""
        for endpoint in self._config.controller_listeners():
            self._listener = await self._runtime.network.listen(
                endpoint.host, endpoint.port, self._connections.factory
            )

    def build(
        self,
        *,
        metadata: MetadataLog,
        controller: Controller,
        replicas: ReplicaManager,
        endpoint: Endpoint,
        cluster_id: str,
        log_dirs: Sequence[bytes],
    ) -> None:
        """Build the parts; `endpoint` is where clients and followers reach this broker."""
        config, runtime = self._config, self._runtime
        handlers = controller_handlers(config=config, metadata=metadata, controller=controller)
        versions = VersionsApi(served=handlers, cluster_id=cluster_id, node_id=config.node_id)
        self._dispatcher = Dispatcher({**handlers, **versions.handlers()})
        door = self._door = ControllerDoor(
            metadata, handlers, self._controller_channel, config.quorum_voters()
        )
        self._forwarding = Forwarding(
            door, metadata, runtime.clock, request_timeout_ms=config.request_timeout_ms
        )
        lifecycle = self._lifecycle = BrokerLifecycle(
            config=config,
            ask=door.ask,
            metadata=metadata,
            clock=runtime.clock,
            rng=runtime.rng,
            endpoint=endpoint,
            cluster_id=cluster_id,
            log_dirs=log_dirs,
        )
        replicas.use_controller(door.ask, lambda: lifecycle.broker_epoch)

    def _controller_channel(self, host: str, port: int) -> PeerChannel:
        config, runtime = self._config, self._runtime
        return PeerChannel(
            runtime.network,
            runtime.clock,
            asyncio.get_running_loop(),
            host,
            port,
            client_id=f"broker-{config.node_id}-to-controller",
            request_timeout_s=config.controller_quorum_request_timeout_ms / 1000,
            rng=runtime.rng,
        )

    def open(self) -> None:
        """Answer the other nodes: from now on the quorum can work."""
        assert self._dispatcher is not None
        self._connections.open(self._dispatcher)

    async def join(self) -> None:
        """Register, and return when this broker is unfenced; LifecycleError if it can't be."""
        assert self._lifecycle is not None
        await self._lifecycle.start()

    # -- stop --------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Have this broker's leaderships moved while it still serves (controlled shutdown)."""
        if self._lifecycle is not None and self._config.controlled_shutdown_enable:
            await self._lifecycle.shut_down(LEAVE_S_MAX)

    async def close(self) -> None:
        """Ask and answer nobody any more."""
        if self._lifecycle is not None:
            self._lifecycle.close()
        if self._forwarding is not None:
            self._forwarding.close()
        if self._door is not None:
            self._door.close()
        if self._dispatcher is not None:
            await self._dispatcher.stop()

    def hang_up(self) -> None:
        """Close the controller listener and its connections; last, as a voter votes to its end."""
        if self._listener is not None:
            self._listener.close()
        self._connections.stop()
        self._connections.abort()
