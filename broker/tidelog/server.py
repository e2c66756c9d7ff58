"""The composition root: build every object of one broker in order, and close them again.

Start; each step needs the ones before:

1. listen: a taken port is known before any file is touched; clients that come early wait unread
2. log directories: lock, identity, recovery of what was not closed in order
3. metadata log: replay, a new controller epoch
4. replica manager, coordinators and remote tier, which follow the metadata log's images
   (`publisher.py`)
5. register the broker with its address: the first image is published, partitions open and lead
6. handlers, timers; then requests are read: ready

Stop is the reverse, so that a part stops before what it needs: listener and connections, handlers,
timers, coordinators, remote tier, metadata log, and last the logs, whose clean-shutdown mark says
that everything before stopped cleanly.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.api.versions import VersionsApi
from tidelog.assembly import (
    Parts,
    client_handlers,
    credentials_of,
    guard,
    log_dir_moves,
    new_authorizer,
    share_partitions,
)
from tidelog.cluster.auto_topics import AutoTopics
from tidelog.cluster.controller.controller import Controller
from tidelog.cluster.metadata.replay import ReplayError
from tidelog.coordinators.groups.admin import GroupAdmin
from tidelog.coordinators.groups.coordinator import GroupCoordinator
from tidelog.coordinators.share.share_states import ShareStates
from tidelog.coordinators.transactions.transactions import Transactions
from tidelog.disk_watch import DiskWatch
from tidelog.dynamic_settings import DynamicSettings
from tidelog.foundation import (
    ClientListeners,
    check_features,
    check_first_voters,
    check_metadata_log,
    check_tier,
    metadata_log_settings,
    metrics_endpoint,
    open_logs,
    settle_voters,
)
from tidelog.healing.schedule import Healing
from tidelog.maintenance import Maintenance
from tidelog.membership import Membership
from tidelog.metrics.meters import DataPathCounts, Meters
from tidelog.network.connection import TURN_S_MAX
from tidelog.network.connections import Connections
from tidelog.network.dispatch import Dispatcher
from tidelog.network.observer import RequestObserver
from tidelog.quotas.client_quotas import ClientQuotas
from tidelog.quotas.replication import ReplicationQuotas
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.replication.topic_configs import topic_configs
from tidelog.seams import unknown_volume
from tidelog.start_error import StartError, one_line
from tidelog_protocol.errors import ProtocolError
from tidelog_storage.checkpoints import CheckpointError
from tidelog_storage.config_key import ConfigError
from tidelog_storage.directory import LogDirectoryError
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.cluster.metadata.levels_on_disk import ReadSnapshot
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinators.groups.share.share_groups import ShareGroups
    from tidelog.metrics.prometheus import PrometheusEndpoint
    from tidelog.network.connection import Connection
    from tidelog.network.dispatch import Handler
    from tidelog.replication.log_dir_moves import LogDirMoves
    from tidelog.replication.replica_fetcher import ReplicaFetcher
    from tidelog.seams import Runtime
    from tidelog.shares.share_partitions import SharePartitions
    from tidelog.tiered.tier import RemoteTier
    from tidelog_protocol.apis import ApiKey
    from tidelog_storage.manager import LogManager

__all__ = ["FLUSH_SECONDS_A_LOG", "FLUSH_SECONDS_MAX", "BrokerServer", "StartError"]

_log = logging.getLogger("tidelog.server")

CLOSE_SECONDS_MAX = 1.0  # time for clients to read their last responses
FLUSH_SECONDS_A_LOG = 0.03  # it syncs about seven files and folders
FLUSH_SECONDS_MAX = 30.0
CLOSING_SLICE_S = 0.002  # then other work of the loop has a turn


class BrokerServer:
    """One broker: `start()` returns when it answers clients, `stop()` when its data is safe."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        *,
        volume_bytes: Callable[[str], tuple[int, int]] = unknown_volume,
        new_cluster_id: str | None = None,
        new_fetcher: Callable[..., ReplicaFetcher] | None = None,
    ) -> None:
        """`volume_bytes` returns total and usable bytes of a directory's volume; `open_logs` takes
        `new_cluster_id`, `FetcherManager` takes `new_fetcher`."""
        self.config = config = settle_voters(config, runtime)
        self.runtime = runtime
        self.failure: BaseException | None = None
        """Why the broker must stop: the state of its disk is unknown."""
        self.on_failure: Callable[[], None] | None = None
        """Called on a `failure`, to stop the broker; `start` raises it."""
        self.at_end: list[Callable[[], object]] = []
        """Called first when the broker stops or is killed."""
        self._volume_bytes = volume_bytes
        self._new_cluster_id = new_cluster_id
        self._connections = Connections(
            frame_bytes_max=config.socket_request_max_bytes,
            idle_ms_max=config.connections_max_idle_ms,
            unfinished_bytes_max=config.queued_max_request_bytes,
            turn_s_max=TURN_S_MAX,
            connections_max=config.max_connections,
        )
        self._listeners = ClientListeners(config, self._connections, runtime)
        self._settings = DynamicSettings(config)
        self._membership = Membership(config, runtime, new_fetcher)
        self._logs: LogManager | None = None
        self._disks: DiskWatch | None = None
        self._metadata: MetadataLog | None = None
        self._controller: Controller | None = None
        self._auto_topics: AutoTopics | None = None
        self._replicas: ReplicaManager | None = None
        self._moves: LogDirMoves | None = None
        self._groups: GroupCoordinator | None = None
        self._transactions: Transactions | None = None
        self._share_states: ShareStates | None = None
        self._shares: SharePartitions | None = None
        self._share_group_parts: ShareGroups | None = None
        self._tier: RemoteTier | None = None
        self._group_admin: GroupAdmin | None = None
        self._maintenance: Maintenance | None = None
        self.healing: Healing | None = None
        self._parts: Parts | None = None
        self.handlers: dict[ApiKey, Handler] = {}
        """Those of the clients' listener; only after `start`."""
        self._dispatcher: Dispatcher | None = None
        self.meters = Meters()
        self._served_meters = self.meters if config.metrics_prometheus_listener else None
        self._quotas = ClientQuotas(config, runtime.clock, self._served_meters)
        self._metrics: PrometheusEndpoint | None = None
        self._requests: RequestObserver | None = None
        self._broker_epoch = -1
        self._joining: asyncio.Task[None] | None = None
        self._is_started = False

    @property
    def bootstrap_servers(self) -> str:
        """The advertised address; only after `start`."""
        _, host, port = self._listeners.advertised
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def is_built(self) -> bool:
        """Whether `parts` are there: they come with the logs, while the broker starts."""
        return self._parts is not None

    @property
    def logs(self) -> LogManager | None:
        """Its logs, once they are loaded."""
        return self._logs

    @property
    def metadata(self) -> MetadataLog:
        """Its metadata log; only after `start`."""
        assert self._metadata is not None, "start() comes first"
        return self._metadata

    @property
    def replicas(self) -> ReplicaManager:
        """Its partitions; only after `start`."""
        assert self._replicas is not None, "start() comes first"
        return self._replicas

    @property
    def parts(self) -> Parts:
        """Its parts that answer clients; only after `start`."""
        assert self._parts is not None, "start() comes first"
        return self._parts

    @property
    def connections(self) -> Iterable[Connection]:
        """The open connections of clients and followers."""
        return tuple(self._connections.live)

    @property
    def dispatchers(self) -> list[Dispatcher]:
        """What serves its clients and, of a controller, the other nodes; only after `start`."""
        assert self._dispatcher is not None, "start() comes first"
        return [self._dispatcher, self._membership.dispatcher]

    @property
    def requests(self) -> RequestObserver:
        """What logs and counts requests; only after `start`."""
        assert self._requests is not None, "start() comes first"
        return self._requests

    @property
    def maintenance(self) -> Maintenance:
        """Its periodic work; only after `start`."""
        assert self._maintenance is not None, "start() comes first"
        return self._maintenance

    @property
    def membership(self) -> Membership:
        """Its part in the cluster."""
        return self._membership

    @property
    def doors(self) -> list[Connections]:
        """The connections of its listeners: of clients, and of the controller."""
        return [self._connections, self._membership.connections]

    @property
    def tier(self) -> RemoteTier | None:
        """Its remote tier, if it has one."""
        return self._tier

    @property
    def shares(self) -> SharePartitions | None:
        """Its share partitions, if it has had any."""
        return self._shares

    @property
    def metrics_port(self) -> int | None:
        """The port of its Prometheus endpoint, if it has one."""
        return None if self._metrics is None else self._metrics.port

    @property
    def flush_seconds_max(self) -> float:
        """How long its logs may take to become durable when it stops."""
        unflushed = 0 if self._logs is None else self._logs.unflushed
        return min(unflushed * FLUSH_SECONDS_A_LOG, FLUSH_SECONDS_MAX)

    # -- start -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start; StartError with a one-line reason, after cleaning up."""
        try:
            await self._listen()
            self._logs, cluster_id, snapshot = open_logs(
                self.config, self.runtime, self._new_cluster_id
            )
            self._disks = DiskWatch(
                self._logs,
                self.config.metadata_directory(),
                on_failure=self._fail,
            )
            check_metadata_log(self.config, self.runtime, self._logs)
            await self._start_on_logs(cluster_id, snapshot)
            self.healing = Healing(
                self.config, self.runtime, self.replicas, self._membership.new_channel, self._tier
            )
            check_tier(self.config, self.metadata.image)
            self._check_disk()
            if self.config.loop_watchdog_ms:
                limit_ms = self.config.loop_watchdog_ms
                self.at_end.append(self.runtime.watch_loop(limit_ms, _tell_slow))
            self._is_started = True
        except (
            LogDirectoryError,
            CheckpointError,
            StorageError,
            ReplayError,
            ProtocolError,
            ConfigError,
            OSError,
        ) as error:
            await self._undo()
            raise StartError(one_line(error)) from error
        except GeneratorExit:  # the loop is gone: nothing can be awaited
            raise
        except BaseException:
            await self._undo()
            raise

    async def _listen(self) -> None:
        await self._listeners.open(self.runtime.network)
        await self._membership.listen()

    async def _start_on_logs(self, cluster_id: str, snapshot: ReadSnapshot | None) -> None:
        logs, disks, membership = self._logs, self._disks, self._membership
        assert logs is not None
        assert disks is not None
        parts = self._parts = self._build(cluster_id, logs, disks)
        guard(parts, membership.dispatcher, is_controller=True)
        if logs.future_partitions():
            self._log_dir_moves()
        self._follow_images(parts.metadata, parts.replicas)
        image = parts.metadata.open(snapshot)
        levels = parts.metadata.levels_at_end()
        check_features(image, levels, is_alone=self.config.is_alone())
        check_first_voters(self.config, self.runtime, parts.metadata)
        membership.open()
        await self._join(membership, logs)
        parts.group_admin.start()
        self._maintain(logs, disks)
        self._serve(cluster_id)

    def _build(self, cluster_id: str, logs: LogManager, disks: DiskWatch) -> Parts:
        """Make the parts that answer clients, and the broker's part in the cluster."""
        config, runtime, membership = self.config, self.runtime, self._membership
        metadata = self._metadata = self._new_metadata_log(cluster_id)
        self._connections.credentials = credentials_of(metadata, config, runtime)
        replicas = self._replicas = ReplicaManager(
            config.node_id,
            runtime.clock,
            asyncio.get_running_loop(),
            logs,
            topic_configs(config.given, config.node_id),
            on_disk_failure=disks.failed,
        )
        if config.metrics_prometheus_listener:
            replicas.counts = DataPathCounts(self.meters)
        disks.on_spare_failure += [replicas.directory_failed, membership.directory_failed]
        groups = self._groups = GroupCoordinator(
            config=config,
            clock=runtime.clock,
            timers=runtime.sessions,
            replica_manager=replicas,
        )
        group_admin = self._group_admin = GroupAdmin(groups, runtime.work)
        controller = self._controller = Controller(
            metadata, config, runtime.rng, runtime.clock, runtime.work.time
        )
        membership.build(
            controller=controller,
            replicas=replicas,
            endpoints=self._listeners.registered,
            cluster_id=cluster_id,
            logs=logs,
        )
        transactions = self._transactions = Transactions(
            config=config,
            sessions=runtime.sessions,
            work=runtime.work,
            replica_manager=replicas,
            allocate_producer_ids=membership.allocate_producer_ids,
            end_of_offsets=groups.end_transaction,
            new_channel=membership.new_channel,
        )
        topics = self._auto_topics = AutoTopics(
            membership.forwarding.create_topics,
            config,
        )
        self.at_end.append(topics.end)
        share_states = self._share_states = self._new_share_states(replicas, topics)
        self._tier = self._remote_tier(cluster_id, replicas)
        return Parts(
            config=config,
            authorizer=new_authorizer(config, metadata),
            runtime=runtime,
            meters=self.meters,
            metadata=metadata,
            controller=controller,
            replicas=replicas,
            groups=groups,
            group_admin=group_admin,
            transactions=transactions,
            share_states=share_states,
            share_groups=self._share_groups,
            topics=topics,
            quotas=self._quotas,
            tier=self._tier,
            volume_bytes=self._volume_bytes,
            moves=self._log_dir_moves,
            shares=self._share_partitions,
        )

    def _new_share_states(self, replicas: ReplicaManager, topics: AutoTopics) -> ShareStates:
        return ShareStates(
            config=self.config,
            sessions=self.runtime.sessions,
            work=self.runtime.work,
            replica_manager=replicas,
            topics=topics,
            new_channel=self._membership.new_channel,
        )

    def _maintain(self, logs: LogManager, disks: DiskWatch) -> None:
        self._maintenance = Maintenance(
            logs=logs,
            config=self.config,
            clock=self.runtime.clock,
            work=self.runtime.work,
            executor=self.runtime.executor,
            on_failure=disks.file_failed,
        )
        self._settings.follow(self._maintenance.reconfigure)
        self._settings.follow(self._reconfigure)
        self._settings.follow(self._listeners.reconfigure)
        self._settings.follow(self._membership.reconfigure)
        self._maintenance.start()

    def _reconfigure(self, config: BrokerConfig) -> None:
        """Follow dynamic settings of small parts."""
        assert self._logs is not None
        assert self._transactions is not None
        self._connections.connections_max = config.max_connections
        self._connections.listener_limits = config.of_listeners("max.connections")
        self._connections.protected_listener = config.protected_listener()
        self._connections.connections_per_ip_max = config.max_connections_per_ip
        self._logs.cordoned = frozenset(config.cordoned_directories())
        self._connections.connections_per_ip = config.connections_per_ip()
        self._connections.slow_new(self._quotas.connection_delays(config))
        self._logs.expire_producers_after(config.producer_id_expiration_ms)
        self._transactions.reconfigure(config)

    def _serve(self, cluster_id: str) -> None:
        """Answer clients; the broker has joined."""
        self.handlers = self._handlers(cluster_id)
        self._dispatcher = Dispatcher(self.handlers)
        guard(self.parts, self._dispatcher)
        self._requests = RequestObserver(
            self.config.node_id, self.runtime.clock, self.dispatchers, self._served_meters
        )
        assert self._groups is not None
        self._metrics = metrics_endpoint(
            self.meters, self.config, self.replicas, self._groups, self.metadata
        )
        self._quotas.throttle(self._dispatcher)
        self._quotas.limit_connections(self._connections.limit_new)
        self._connections.open(self._dispatcher)

    def _share_partitions(self) -> SharePartitions:
        """Return the share partitions, made on first use: few brokers have share groups."""
        if self._shares is None:
            assert self._replicas is not None
            assert self._share_states is not None
            self._shares = share_partitions(
                self._replicas,
                self.config,
                self.runtime,
                self._share_states,
                self._tier,
                meters=self._served_meters,
            )
        return self._shares

    def _share_groups(self) -> ShareGroups:
        """Return what serves share groups, created on first use."""
        if self._share_group_parts is None:
            from tidelog.coordinators.groups.share.share_groups import (  # noqa: PLC0415 - few have
                ShareGroups,
            )

            assert self._groups is not None
            assert self._share_states is not None
            assert self._replicas is not None
            assert self._metadata is not None
            metadata = self._metadata
            self._share_group_parts = ShareGroups(
                self._groups,
                self._share_states,
                self._replicas,
                lambda: metadata.image,
                self._membership.new_channel,
            )
        return self._share_group_parts

    def _log_dir_moves(self) -> LogDirMoves:
        """Return the mover of replicas between log directories, created on first use."""
        if self._moves is None:
            assert self._replicas is not None
            assert self._disks is not None
            self._moves = log_dir_moves(self._replicas, self.config, self.runtime)
            self._disks.on_spare_failure.insert(0, self._moves.directory_failed)
        return self._moves

    def _remote_tier(self, cluster_id: str, replicas: ReplicaManager) -> RemoteTier | None:
        """Open the remote tier; None if this broker has none. StartError, OSError."""
        if not self.config.remote_log_storage_system_enable:
            return None
        from tidelog.tiered.tier import RemoteTier  # noqa: PLC0415 - few brokers have one

        assert self._auto_topics is not None
        cluster = self._membership.cluster_access(cluster_id, self._auto_topics)
        tier = RemoteTier(
            self.config,
            self.runtime,
            replicas=replicas,
            cluster=cluster,
            meters=self.meters,
            on_failure=self._fail,
        )
        tier.open()
        return tier

    def _follow_images(self, metadata: MetadataLog, replicas: ReplicaManager) -> None:
        assert self._groups is not None
        assert self._transactions is not None
        assert self._share_states is not None
        publisher = self._membership.publisher(
            replicas, self._share_states, self._groups, self._transactions, self._tier
        )
        metadata.subscribe(publisher.publish)
        metadata.subscribe(self._settings.on_image)
        self._follow_quotas(metadata, replicas)

    def _follow_quotas(self, metadata: MetadataLog, replicas: ReplicaManager) -> None:
        assert self._controller is not None
        quotas, config = self._quotas, self.config
        self._controller.charges = quotas.mutations
        metadata.subscribe(quotas.on_image)
        if not config.is_alone():
            limits = ReplicationQuotas(config, self.runtime.clock, replicas.limit_replication)
            metadata.subscribe(limits.on_image)

    async def _join(self, membership: Membership, logs: LogManager) -> None:
        """Join the cluster, unless this broker's own disk fails while it waits for the others."""
        self._check_disk()
        joining = self._joining = asyncio.ensure_future(membership.join())
        try:
            await joining
        except asyncio.CancelledError:
            self._check_disk()
            raise
        finally:
            self._joining = None
        self._broker_epoch = membership.broker_epoch
        if not self.config.is_alone():
            with suppress(OSError):  # otherwise the next start waits for the end of the session
                logs.note_broker_epoch(self._broker_epoch)

    def _check_disk(self) -> None:
        if self.failure is not None:
            raise StartError(one_line(self.failure)) from self.failure

    def _new_metadata_log(self, cluster_id: str) -> MetadataLog:
        assert self._logs is not None
        settings = metadata_log_settings(
            self.config, self.runtime, self._logs, cluster_id, self._fail
        )
        return self._membership.new_metadata_log(settings)

    def _handlers(self, cluster_id: str) -> dict[ApiKey, Handler]:
        """Return the handlers of the clients' listener."""
        handlers = self._membership.wrap(client_handlers(self.parts))
        metadata = self.parts.metadata
        versions = VersionsApi(
            served=handlers,
            cluster_id=cluster_id,
            node_id=self.config.node_id,
            image=lambda: metadata.image,
        )
        return {**handlers, **versions.handlers()}

    # -- stop --------------------------------------------------------------------------------------

    async def stop(self, *, controlled: bool = True, keeps_data: bool = True) -> None:
        """Stop cleanly; everything acknowledged is on disk then, unless the data is temporary.

        `controlled` first moves this broker's leaderships, which is useless if all brokers stop
        together. After a disk failure the broker ends like a crash: the next start recovers.
        """
        if self._is_to_crash:
            await self.kill()
            return
        self._begin_end()
        membership = self._membership
        if controlled:
            await membership.leave()
        self._listeners.close()
        await self._close_connections()
        await self._stop_serving()
        if self._tier is not None:
            await self._tier.stop()
        await self._stop_sharing()
        self.runtime.executor.close()
        await self.runtime.executor.wait_closed()  # no checkpoint may follow the last one
        if self._logs is None:
            return
        if keeps_data and not self._is_to_crash:
            await self._close_logs(self._logs)
        else:
            self._logs.abandon()

    async def _close_logs(self, logs: LogManager) -> None:
        """Close the logs in slices: each one syncs files, and other brokers may share this loop."""
        clock = self.runtime.clock
        begun_s = clock.monotonic()
        try:
            for _ in logs.closing(self._broker_epoch):
                if clock.monotonic() - begun_s >= CLOSING_SLICE_S:
                    await asyncio.sleep(0)
                    begun_s = clock.monotonic()
        except asyncio.CancelledError:
            logs.abandon()  # a crash: the next start recovers
            raise

    @property
    def _is_to_crash(self) -> bool:
        """Return whether the state of the disk is unknown; a StartError is about settings."""
        return self.failure is not None and not isinstance(self.failure, StartError)

    async def _stop_serving(self) -> None:
        """Stop handlers, timers and coordinators."""
        if self._metrics is not None:
            await self._metrics.stop()
        if self._dispatcher is not None:
            await self._dispatcher.stop()
        if self.healing is not None:
            await self.healing.stop()
        if self._maintenance is not None:
            await self._maintenance.stop()
        if self._group_admin is not None:
            self._group_admin.stop()
        await self._close_coordinators()

    async def _close_coordinators(self) -> None:
        if self._transactions is not None:
            self._transactions.close()
        if self._groups is not None:
            self._groups.close()
        if self._shares is not None:
            await self._shares.close()
        if self._share_group_parts is not None:
            self._share_group_parts.close()
        if self._share_states is not None:
            self._share_states.close()

    async def _stop_sharing(self) -> None:
        """Stop partitions, then the channels to other nodes, then the metadata log."""
        membership = self._membership
        await membership.stop_fetching()
        if self._moves is not None:
            await self._moves.close()
        if self._replicas is not None:
            self._replicas.finish_deletions()
            await self._replicas.stop()
            self._replicas.close()
        await membership.close()
        if self._auto_topics is not None:
            await self._auto_topics.close()
        await membership.leave_quorum()
        if self._metadata is not None:
            await self._metadata.close()
        membership.hang_up()
        membership.close_channels()

    async def _close_connections(self) -> None:
        """Let clients read their last responses for a moment."""
        connections = self._connections
        connections.stop()
        if connections.live:
            loop = asyncio.get_running_loop()
            all_closed: asyncio.Future[None] = loop.create_future()
            connections.on_empty = lambda: all_closed.set_result(None)
            await asyncio.wait([all_closed], timeout=CLOSE_SECONDS_MAX)
            connections.abort()

    async def kill(self) -> None:
        """End like a crash, as far as possible in a live process: write no marks."""
        self._begin_end()
        await self._abandon()

    def _begin_end(self) -> None:
        for call in self.at_end:
            call()

    async def _undo(self) -> None:
        """Abandon, again if cancelled meanwhile: locks and ports must be released."""
        while True:
            with suppress(asyncio.CancelledError):
                return await self._abandon()

    async def _abandon(self) -> None:
        """Undo what was started without writing; may be repeated."""
        self._listeners.close()
        self._connections.stop()
        self._connections.abort()
        self._membership.hang_up()
        await self._membership.stop_fetching()
        await self._membership.close()
        await self._membership.abandon()
        await self._stop_serving()
        if self._tier is not None:
            await self._tier.abandon()
        if self._moves is not None:
            await self._moves.close()
        if self._replicas is not None:
            await self._replicas.stop()
            self._replicas.close()
        self._membership.close_channels()
        self.runtime.executor.close()
        await self.runtime.executor.wait_closed()  # no write may follow the locks' release
        if self._logs is not None:
            self._logs.abandon()

    def _fail(self, error: BaseException) -> None:
        """Record the first reason to end the broker."""
        if self.failure is None:
            self.failure = error
            if self._joining is not None:
                self._joining.cancel()
            if self._is_started and self.on_failure is not None:
                self.on_failure()


def _tell_slow(callback: object) -> None:
    _log.warning("the event loop stood still for %s", callback)
