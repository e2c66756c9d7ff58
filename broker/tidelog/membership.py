"""Build the parts of a broker that talk to other nodes.

The controller listener for requests of other nodes; the channel to the active controller;
forwarding; the broker's life cycle; AlterPartition. Built by `server.py`. A lone broker is a
quorum of one: it takes the same path, calls its own controller, and has none of what is for other
nodes (`BrokerConfig.is_alone`), which is imported when it is built.

Start: `listen` first of all, `build` when the broker's own parts are there, `open` when the
metadata log is open, `join` when the broker follows images. Stop is the reverse: `leave` while
everything still serves, `stop_fetching` when clients have gone, `close` before the metadata log
closes.
"""

# ruff: noqa: PLC0415 - a lone broker does not import what is for other nodes

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.api.brokers import BrokersApi
from tidelog.api.topics import TopicsApi
from tidelog.api.versions import VersionsApi
from tidelog.assembly import (
    config_gate,
    config_handlers,
    credentials_of,
    envelope_handlers,
    joined,
    keys_of,
    principal_handlers,
    sasl_handlers,
    token_gate,
)
from tidelog.cluster.controller.controller import TICK_SECONDS
from tidelog.cluster.forwarding import ControllerDoor, Forwarding
from tidelog.cluster.lifecycle import BrokerLifecycle
from tidelog.cluster.metadata.log import MetadataLog
from tidelog.cluster.quorum.core import Timeouts
from tidelog.cluster.quorum.driver import Quorum
from tidelog.network.connection import TURN_S_MAX
from tidelog.network.connections import Connections
from tidelog.network.dispatch import Dispatcher
from tidelog.network.late_handlers import late_handlers
from tidelog.publisher import MetadataPublisher
from tidelog_protocol.apis import API, ApiKey
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from tidelog.api.describe_quorum import Voter
    from tidelog.api.raft_voters import RaftVotersApi
    from tidelog.cluster.auto_topics import AutoTopics
    from tidelog.cluster.controller.controller import Controller
    from tidelog.cluster.controller_registration import ControllerRegistration
    from tidelog.cluster.metadata.settings import MetadataLogSettings
    from tidelog.cluster.quorum.channels import Addresses
    from tidelog.cluster.quorum.core import QuorumCore
    from tidelog.cluster.quorum.voter_changes import VoterChanges
    from tidelog.config.broker import BrokerConfig, Endpoint
    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.coordinators.share.share_states import ShareStates
    from tidelog.coordinators.transactions.transactions import Transactions
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog.network.peer_securities import PeerSecurities, SettingsOf
    from tidelog.network.peers import PeerChannel
    from tidelog.replication.directory_assignment import DirectoryAssignments
    from tidelog.replication.fetcher_manager import FetcherManager
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_fetcher import ReplicaFetcher
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Listener, Network, Runtime
    from tidelog.tiered.cluster_access import ClusterAccess
    from tidelog.tiered.tier import RemoteTier
    from tidelog_storage.manager import LogManager

__all__ = ["LEAVE_S_MAX", "Membership"]

log = logging.getLogger("tidelog.membership")

OF_ADMINS = (
    *keys_of("cluster_admin"),
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
)
_TO_BROKERS = ("replica", "transactions")  # purposes of channels; others are to controllers
LEAVE_S_MAX = 3.0  # limit for moving leaderships when this broker stops


class _Parts(NamedTuple):
    """The parts that `build` creates."""

    controller: Controller
    dispatcher: Dispatcher
    door: ControllerDoor
    forwarding: Forwarding
    lifecycle: BrokerLifecycle
    of_admins: dict[ApiKey, Handler]


class Membership:
    """One node's part in its cluster."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        new_fetcher: Callable[..., ReplicaFetcher] | None = None,
    ) -> None:
        """`FetcherManager` takes `new_fetcher`."""
        self._config = config
        self._runtime = runtime
        self._new_fetcher = new_fetcher
        self._listener: Listener | None = None
        self._connections = Connections(
            frame_bytes_max=config.socket_request_max_bytes,
            idle_ms_max=config.connections_max_idle_ms,
            unfinished_bytes_max=config.queued_max_request_bytes,
            turn_s_max=TURN_S_MAX,
        )
        self._metadata: MetadataLog | None = None
        self._quorum: Quorum | None = None
        self._addresses: Addresses | None = None  # of the voters that the log names
        self._entry: asyncio.Task[None] | None = None  # keeps this node's entry among them right
        self._voter_changes: VoterChanges | None = None
        self._built: _Parts | None = None
        self._registration: ControllerRegistration | None = None  # that others need
        self._fetchers: FetcherManager | None = None
        self._assignments: DirectoryAssignments | None = None
        self._ticking: list[asyncio.Task[None]] = []
        self._is_frozen = False
        self._network = runtime.network
        self._channels: list[PeerChannel] = []
        self._securities: PeerSecurities | None = None

    @property
    def _parts(self) -> _Parts:
        assert self._built is not None, "build() comes first"
        return self._built

    @property
    def connections(self) -> Connections:
        """The connections of the controller's listener."""
        return self._connections

    @property
    def core(self) -> QuorumCore | None:
        """The state machine of the quorum, once it has started."""
        return self._quorum.core if self._quorum is not None and self._quorum.has_started else None

    def resign_controller(self) -> None:
        """Let another voter be the active controller, if this one is."""
        if self._quorum is not None and self._quorum.has_started:
            self._quorum.resign()

    def truncate_follower(self, partition: Partition, offset: int, *, stops: bool) -> bool:
        """Truncate the log of a followed partition, as `FetcherManager.truncate` does; whether it
        is fetched now."""
        fetchers = self._fetchers
        return fetchers is not None and fetchers.truncate(partition, offset, stops=stops)

    async def elect_behind(self, topic: str, partition: int, node_id: int) -> None:
        """Elect a replica as `Controller.elect_behind` does, if this is the active controller."""
        await self._parts.controller.elect_behind(topic, partition, node_id)

    @property
    def dispatcher(self) -> Dispatcher:
        """Serves the requests of other nodes to the controller."""
        return self._parts.dispatcher

    @property
    def forwarding(self) -> Forwarding:
        """Forwards clients' requests to the active controller."""
        return self._parts.forwarding

    def wrap(self, handlers: Mapping[ApiKey, Handler]) -> dict[ApiKey, Handler]:
        """Add to the clients' handlers, and forward requests that the active controller decides."""
        parts = self._parts
        wrapped = parts.forwarding.wrap({**handlers, **parts.of_admins})
        assert self._metadata is not None
        return {
            **wrapped,
            **config_gate(wrapped, self._metadata, parts.controller, self._config),
            **token_gate(wrapped, self._metadata, self._config),
        }

    async def allocate_producer_ids(self) -> range:
        """Return a block of producer ids for this broker; StorageError if it gets none."""
        return await self.forwarding.allocate_producer_ids(self._config.node_id, self.broker_epoch)

    @property
    def broker_epoch(self) -> int:
        """Epoch of this broker's registration; -1 before it."""
        return -1 if self._built is None else self._built.lifecycle.broker_epoch

    def _of_admins(self, controller: Controller, quorum: Quorum) -> dict[ApiKey, Handler]:
        """Return the handlers of what clients ask of the active controller."""
        from tidelog.api.describe_quorum import DescribeQuorumApi
        from tidelog.api.elections import ElectionsApi
        from tidelog.api.quorum import view_of

        describing = DescribeQuorumApi(lambda: view_of(quorum), self._endpoints)
        return joined((describing, ElectionsApi(controller), self._raft_voters(quorum)))

    def _of_controllers(self, metadata: MetadataLog) -> dict[ApiKey, Handler]:
        """Return the handlers of what clients of controllers ask each controller for."""
        from tidelog.api.describe_controllers import DescribeControllersApi

        return {
            **DescribeControllersApi(metadata).handlers(),
            **sasl_handlers(),
        }

    def _of_voters(self, quorum: Quorum) -> dict[ApiKey, Handler]:
        """Return the handlers of what other nodes ask of a voter."""
        from tidelog.api.quorum import QuorumApi

        quorum_api = QuorumApi(quorum, self._address_of)
        handlers = {**quorum_api.handlers(), **self._raft_voters(quorum).of_voters()}
        return {key: _while_in(quorum, handler) for key, handler in handlers.items()}

    def _raft_voters(self, quorum: Quorum) -> RaftVotersApi:
        from tidelog.api.raft_voters import RaftVotersApi
        from tidelog.cluster.quorum.voter_changes import VoterChanges

        if self._voter_changes is None:
            self._voter_changes = VoterChanges(
                quorum,
                self._config.controller_listener_names[0],
                lambda host, port: self._channel("voter", host, port),
            )
        return RaftVotersApi(quorum, self._voter_changes, self._endpoints)

    async def _name_voters(self, validate_only: bool) -> str | None:
        assert self._voter_changes is not None
        assert self._addresses is not None
        addresses = self._addresses.of_settings()
        return await self._voter_changes.name_static(addresses, validate_only=validate_only)

    def _endpoints(self) -> list[Voter]:
        """Return the voters' controller addresses, all with the same listener name; no port for an
        only voter without a controller listener."""
        from tidelog.api.describe_quorum import Voter

        config, metadata = self._config, self._metadata
        name = config.controller_listener_names[0]
        if config.is_alone():
            return [Voter(config.node_id, "", "", 0)]
        if metadata is not None and metadata.own is not None:
            return [
                Voter(voter.node_id, name, *(voter.address(name) or ("", 0)))
                for voter in metadata.voter_set
            ]
        voters = config.quorum_voters()
        if not voters:
            own = config.controller_listeners()[0]
            return [Voter(config.node_id, name, own.host, own.port)]
        return [Voter(voter.node_id, name, voter.host, voter.port) for voter in voters]

    def _address_of(self, node_id: int) -> tuple[str, int] | None:
        for voter in self._endpoints():
            if voter.node_id == node_id and voter.port:
                return voter.host, voter.port
        return None

    # -- start -------------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Bind the controller listener, and read what secures connections to other nodes; OSError
        when its address is taken, ConfigError."""
        connections = self._connections
        if not self._config.is_alone():
            from tidelog.network.peer_securities import PeerSecurities

            self._securities = PeerSecurities(self._config, self._runtime)
            self._securities.load()
        for endpoint in self._config.controller_listeners():
            connections.guard(self._config.listener_settings(endpoint.name), self._runtime)
            guard = connections.guards.get(endpoint.name)
            self._listener = await self._runtime.network.listen(
                endpoint.host,
                endpoint.port,
                partial(connections.factory, endpoint.name),
                None if guard is None else guard.tls,
            )

    def new_metadata_log(self, settings: MetadataLogSettings) -> MetadataLog:
        """Create this node's copy of the metadata log, and its part in the quorum."""
        config, runtime = self._config, self._runtime
        metadata = self._metadata = MetadataLog(settings)
        self._connections.credentials = credentials_of(metadata, config, runtime)
        if not config.is_alone():
            from tidelog.cluster.quorum.channels import Addresses

            name = config.controller_listener_names[0]
            voters = {each.node_id: (each.host, each.port) for each in config.quorum_voters()}
            self._addresses = Addresses(metadata, name, config.bootstrap_servers(), voters)
        self._quorum = Quorum(
            metadata,
            self._controller_channels("quorum"),
            node_id=config.node_id,
            clock=runtime.clock,
            rng=runtime.rng,
            timeouts=Timeouts(
                election_s=config.controller_quorum_election_timeout_ms / 1000,
                fetch_s=config.controller_quorum_fetch_timeout_ms / 1000,
                backoff_max_s=config.controller_quorum_election_backoff_max_ms / 1000,
                request_s=config.controller_quorum_request_timeout_ms / 1000,
            ),
        )
        if self._addresses is not None:
            self._quorum.learn = self._addresses.learn
        return metadata

    def _controller_channels(self, purpose: str) -> Mapping[int, PeerChannel]:
        """Return channels to the other controllers, by node id."""
        if self._addresses is not None:
            from tidelog.cluster.quorum.channels import ControllerChannels

            return ControllerChannels(
                self._addresses, lambda host, port: self._channel(purpose, host, port)
            )
        return {}

    def build(
        self,
        *,
        controller: Controller,
        replicas: ReplicaManager,
        endpoints: Sequence[Endpoint],
        cluster_id: str,
        logs: LogManager,
    ) -> None:
        """Build the parts; `endpoints` are the addresses for clients, the first one also for
        brokers."""
        config, runtime, metadata, quorum = (
            self._config,
            self._runtime,
            self._metadata,
            self._quorum,
        )
        assert metadata is not None
        assert quorum is not None
        if config.is_alone():
            of_admins = late_handlers(OF_ADMINS, lambda: self._of_admins(controller, quorum))
        else:
            of_admins = self._of_admins(controller, quorum)
            controller.name_voters = self._name_voters
        of_brokers = joined((BrokersApi(controller), TopicsApi(controller)))
        of_configs = config_handlers(metadata, controller, config)
        of_principals = principal_handlers(metadata, controller, config)
        handlers = {**of_admins, **of_brokers, **of_configs, **of_principals}
        if not config.is_alone():
            handlers |= self._of_voters(quorum)
            handlers |= self._of_controllers(metadata)
        handlers = {key: each for key, each in handlers.items() if API[key].on_controllers}
        handlers |= envelope_handlers(lambda: self.dispatcher)
        versions = VersionsApi(
            served=handlers,
            cluster_id=cluster_id,
            node_id=config.node_id,
            image=lambda: metadata.image,
        )
        door = ControllerDoor(
            metadata,
            handlers,
            self._controller_channels("controller"),
        )
        forwarding = Forwarding(
            door,
            metadata,
            runtime.clock,
            catch_up=quorum.catch_up,
            request_timeout_ms=config.request_timeout_ms,
        )
        lifecycle = BrokerLifecycle(
            config=config,
            ask=door.ask,
            metadata=metadata,
            runtime=runtime,
            endpoints=endpoints,
            logs=logs,
        )
        gated = token_gate(handlers, metadata, config)
        dispatcher = Dispatcher({**handlers, **gated, **versions.handlers()})
        self._built = _Parts(controller, dispatcher, door, forwarding, lifecycle, of_admins)
        if not config.is_alone():
            self._replicate(replicas, door, lifecycle)
        if config.controller_listeners():
            self._registration = self._new_registration(metadata, door, lifecycle)

    def _new_registration(
        self, metadata: MetadataLog, door: ControllerDoor, lifecycle: BrokerLifecycle
    ) -> ControllerRegistration:
        """Return what keeps the registration of this node's controller, at its addresses."""
        from tidelog.cluster.controller_registration import ControllerRegistration
        from tidelog.cluster.formatting import controller_endpoints

        registration = ControllerRegistration(
            self._config,
            metadata,
            ask=door.ask,
            endpoints=controller_endpoints(self._config),
            incarnation_id=lifecycle.incarnation_id,
        )
        metadata.subscribe(registration.on_image)
        return registration

    def _replicate(
        self, replicas: ReplicaManager, door: ControllerDoor, lifecycle: BrokerLifecycle
    ) -> None:
        """Build what follows other leaders, and what other followers need of this broker."""
        from tidelog.replication.directory_assignment import DirectoryAssignments
        from tidelog.replication.fetcher_manager import FetcherManager

        config = self._config
        replicas.use_controller(
            door.ask, lambda: lifecycle.broker_epoch, config.replica_lag_time_max_ms
        )
        self._fetchers = FetcherManager(
            replicas,
            lambda host, port: self._channel(
                "replica", host, port, config.replica_socket_timeout_ms / 1000
            ),
            config=config,
            rng=self._runtime.rng,
            broker_epoch=lambda: lifecycle.broker_epoch,
            new_fetcher=self._new_fetcher,
        )
        self._assignments = DirectoryAssignments(replicas)

    def publisher(
        self,
        replicas: ReplicaManager,
        share_states: ShareStates,
        groups: GroupCoordinator,
        transactions: Transactions,
        tier: RemoteTier | None,
    ) -> MetadataPublisher:
        """Return the publisher of images to these parts and to those that follow the cluster."""
        return MetadataPublisher(
            lifecycle=self._parts.lifecycle,
            replicas=replicas,
            fetchers=self._fetchers,
            directories=self._assignments,
            share_states=share_states,
            groups=groups,
            transactions=transactions,
            tier=tier,
        )

    def _channel(
        self, purpose: str, host: str, port: int, timeout_s: float | None = None
    ) -> PeerChannel:
        from tidelog.network.peers import PeerChannel

        config, runtime = self._config, self._runtime
        if timeout_s is None:
            timeout_s = config.controller_quorum_request_timeout_ms / 1000
        channel = PeerChannel(
            self._network,
            runtime.clock,
            (host, port),
            client_id=f"broker-{config.node_id}-{purpose}",
            request_timeout_s=timeout_s,
            rng=runtime.rng,
        )
        securities = self._securities
        if securities is not None:
            to_brokers = purpose in _TO_BROKERS
            channel.security = (
                securities.of_brokers() if to_brokers else securities.of_controllers()
            )
        self._channels = [other for other in self._channels if not other.is_closed]
        self._channels.append(channel)
        return channel

    def stand_still(self, *, is_frozen: bool) -> None:
        """Hold the timers of the quorum and of the controller, or let them go on."""
        self._is_frozen = is_frozen
        if self._quorum is not None:
            self._quorum.hold(is_held=is_frozen)

    def go_through(self, network: Network, gate: Callable[[Any, str, int], Any]) -> None:
        """Connect to other nodes by this network from now on; see `PeerChannel.go_through`."""
        self._network = network
        for channel in self._channels:
            channel.go_through(network, gate)

    def node_at(self, host: str, port: int) -> int:
        """Return the node that has this address; -1 if none is known."""
        for voter in self._config.quorum_voters():
            if (voter.host, voter.port) == (host, port):
                return voter.node_id
        known = {} if self._addresses is None else self._addresses.all()
        for node_id, address in known.items():
            if address == (host, port) and node_id >= 0:
                return node_id
        assert self._metadata is not None
        for node_id, broker in self._metadata.image.brokers.items():
            addresses = [(broker.host, broker.port), *(each[1:3] for each in broker.endpoints)]
            if (host, port) in addresses:
                return node_id
        return -1

    @property
    def new_channel(self) -> Callable[[str, int], PeerChannel] | None:
        """Connects to another broker's client listener; None for a lone broker."""
        if self._config.is_alone():
            return None
        timeout_s = self._config.request_timeout_ms / 1000
        return lambda host, port: self._channel("transactions", host, port, timeout_s)

    def cluster_access(self, cluster_id: str, topics: AutoTopics) -> ClusterAccess:
        """Return what the remote tier uses of the cluster."""
        from tidelog.tiered.cluster_access import ClusterAccess

        metadata, quorum = self._metadata, self._quorum
        assert metadata is not None
        assert quorum is not None
        return ClusterAccess(
            cluster_id=cluster_id,
            image=lambda: metadata.image,
            create_topic=topics.create,
            channels_to=self._channels_to,
            catch_up=quorum.catch_up,
        )

    def _channels_to(
        self, settings_of: SettingsOf, mechanism: tuple[str, str]
    ) -> Callable[[str, int], PeerChannel] | None:
        new_channel, securities = self.new_channel, self._securities
        if new_channel is None or securities is None:
            return None
        security = securities.new(settings_of, *mechanism)

        def connect(host: str, port: int) -> PeerChannel:
            channel = new_channel(host, port)
            channel.security = security
            return channel

        return connect

    def _keep_entry(self) -> None:
        """Begin to keep this node's entry among the voters, once the log names them."""
        config, metadata, quorum = self._config, self._metadata, self._quorum
        assert metadata is not None
        assert quorum is not None
        if self._entry is not None or not metadata.names_voters or quorum.is_out:
            return
        from tidelog.cluster.quorum.joining import keep_entry

        entry = keep_entry(
            quorum,
            config.controller_quorum_fetch_timeout_ms / 1000,
            joins=config.controller_quorum_auto_join_enable,
        )
        name = f"quorum-{config.node_id}-entry"
        self._entry = asyncio.get_running_loop().create_task(entry, name=name)

    def open(self) -> None:
        """Take part in the quorum; the metadata log is open. OSError if its disk fails."""
        assert self._quorum is not None
        self._quorum.start()
        if self._config.delegation_token_secret_key:
            self._repeat("tokens", self._expire_tokens())
        if self._config.is_alone():
            return
        assert self._metadata is not None
        self._metadata.on_voters.append(self._keep_entry)
        self._keep_entry()
        self._connections.open(self._parts.dispatcher)
        self._repeat("tick", self._tick())

    def _repeat(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Begin periodic work of this node's controller."""
        task_name = f"controller-{self._config.node_id}-{name}"
        self._ticking.append(asyncio.get_running_loop().create_task(work, name=task_name))

    async def _expire_tokens(self) -> None:
        """Remove delegation tokens that have expired, if this node leads."""
        seconds = self._config.delegation_token_expiry_check_interval_ms / 1000
        while True:
            await self._runtime.work.sleep(seconds)
            try:
                await self._parts.controller.expire_tokens()
            except StorageError as error:
                log.warning("expired delegation tokens could not be removed: %s", error)

    async def _tick(self) -> None:
        """Run the controller's periodic work."""
        controller = self._parts.controller
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self._is_frozen:
                continue
            try:
                await controller.tick()
            except StorageError as error:
                log.warning("the controller's periodic work failed: %s", error)

    async def join(self) -> None:
        """Register, and return when this broker is unfenced; LifecycleError on failure."""
        registration = self._registration
        if registration is not None:
            self._repeat("registration", registration.run())
        await self._parts.lifecycle.start()
        if registration is not None:
            await registration.wait(self._config.initial_broker_registration_timeout_ms / 1000)
        if self._config.is_alone():
            await self._parts.controller.settle()

    # -- stop --------------------------------------------------------------------------------------

    async def stop_fetching(self) -> None:
        """Stop following leaders; no other node changes the logs after this."""
        if self._fetchers is not None:
            await self._fetchers.close()
        if self._assignments is not None:
            await self._assignments.close()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Follow dynamic settings."""
        if self._fetchers is not None:
            self._fetchers.reconfigure(config)
        if self._securities is not None:
            self._securities.renew(config)
        self._connections.renew(config.listener_settings)
        self._parts.lifecycle.reconfigured()

    def directory_failed(self, log_dir: str, error: OSError) -> None:
        """Tell the controller of a failed log directory; a lone broker has no other to lead."""
        if not self._config.is_alone():
            self._parts.lifecycle.directory_failed(log_dir, error)

    async def leave(self) -> None:
        """Have this broker's leaderships moved while it still serves (controlled shutdown)."""
        if self._built is not None and self._config.controlled_shutdown_enable:
            await self._built.lifecycle.shut_down(LEAVE_S_MAX)

    async def close(self) -> None:
        """Stop sending requests and responses."""
        for task in self._ticking:
            task.cancel()
        await asyncio.gather(*self._ticking, return_exceptions=True)
        if self._built is not None:
            self._built.lifecycle.close()
            self._built.forwarding.close()
            self._built.door.close()
            await self._built.dispatcher.stop()

    async def leave_quorum(self) -> None:
        """Leave the quorum; if this node leads, the others elect at once."""
        await self._leave_entry()
        if self._quorum is not None:
            await self._quorum.stop()

    async def _leave_entry(self) -> None:
        if self._entry is not None:
            self._entry.cancel()
            await asyncio.gather(self._entry, return_exceptions=True)

    async def abandon(self) -> None:
        """Leave the quorum without notice."""
        await self._leave_entry()
        if self._quorum is not None:
            self._quorum.abandon()
            await self._quorum.stop()

    def hang_up(self) -> None:
        """Close the controller listener and its connections; last, as a voter votes to its end."""
        if self._listener is not None:
            self._listener.close()
        self._connections.stop()
        self._connections.abort()

    def close_channels(self) -> None:
        """Close what connections to other nodes are left; after all that uses them."""
        for channel in self._channels:
            channel.close()
        if self._securities is not None:
            self._securities.close()


def _while_in(quorum: Quorum, handler: Handler) -> Handler:
    """Wrap a handler so that it refuses requests after this node has left."""

    def guarded(context: RequestContext, request: Any) -> Any:
        if quorum.is_out:
            context.close()
            return None
        return handler(context, request)

    return guarded
