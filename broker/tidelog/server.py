"""The composition root: builds every object of one broker, in order, and takes them down again.

Start, each step needing the ones before:

1. listen: a taken port is known before any file is touched; clients that come early wait unread
2. log directories: lock, identity, recovery of what was not closed in order
3. metadata log: replay, a new controller epoch
4. replica manager and coordinators, which follow the metadata log's images in this order
5. register the broker with its address: the first image is published, partitions open and lead
6. handlers, timers; then requests are read: ready

Stop is the reverse, so that nobody is called after what it needs has gone: listener and
connections, handlers, timers, coordinators, metadata log, and last the logs, whose clean-shutdown
mark says that everything before was in order.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.api.configs import ConfigsApi
from tidelog.api.fetch import FetchApi
from tidelog.api.group_admin import GroupAdminApi
from tidelog.api.group_offsets import GroupOffsetsApi
from tidelog.api.groups import GroupsApi
from tidelog.api.log_dirs import LogDirsApi, unknown_volume
from tidelog.api.metadata import MetadataApi
from tidelog.api.offsets import OffsetsApi
from tidelog.api.produce import ProduceApi
from tidelog.api.producer_ids import ProducerIdsApi
from tidelog.api.topics import TopicsApi
from tidelog.api.versions import VersionsApi
from tidelog.connections import Connections
from tidelog.controller.controller import Controller
from tidelog.dispatch import Dispatcher
from tidelog.groups.admin import GroupAdmin
from tidelog.groups.coordinator import GroupCoordinator
from tidelog.maintenance import Maintenance
from tidelog.metadata.log import MetadataLog
from tidelog.metadata.replay import ReplayError
from tidelog.replication.replica_manager import ReplicaManager, topic_configs
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.primitives import uuid_to_str
from tidelog_storage.checkpoints import CheckpointError, read_meta_properties
from tidelog_storage.config import LogConfig
from tidelog_storage.directory import LogDirectoryError
from tidelog_storage.manager import LogManager
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.broker import BrokerConfig, Endpoint
    from tidelog.dispatch import Handler
    from tidelog.metadata.image import ClusterImage
    from tidelog.seams import Listener, Runtime
    from tidelog_protocol.apis import ApiKey

__all__ = ["BrokerServer", "StartError"]

log = logging.getLogger("tidelog.server")

CLOSE_SECONDS_MAX = 1.0  # how long clients may take to read their last answers


class StartError(Exception):
    """The broker can't start; the text is one line for the operator."""


class BrokerServer:
    """One broker: `start()` returns when it answers clients, `stop()` when its data is safe."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        *,
        volume_bytes: Callable[[str], tuple[int, int]] = unknown_volume,
    ) -> None:
        """`volume_bytes` tells total and usable bytes of a directory's volume."""
        self.config = config
        self.runtime = runtime
        self.failure: BaseException | None = None
        """Why the broker must be stopped: what is on disk is no longer known."""
        self.on_failure: Callable[[], None] | None = None
        """Called when there is a `failure`, by whom the broker is to be stopped."""
        self._volume_bytes = volume_bytes
        self._listeners: list[Listener] = []
        self._connections = Connections(
            frame_bytes_max=config.socket_request_max_bytes,
            idle_ms_max=config.connections_max_idle_ms,
            connections_max=config.max_connections,
        )
        self._advertised: Endpoint | None = None
        self._logs: LogManager | None = None
        self._metadata: MetadataLog | None = None
        self._controller: Controller | None = None
        self._replicas: ReplicaManager | None = None
        self._groups: GroupCoordinator | None = None
        self._group_admin: GroupAdmin | None = None
        self._maintenance: Maintenance | None = None
        self._dispatcher: Dispatcher | None = None
        self._broker_epoch = -1

    @property
    def bootstrap_servers(self) -> str:
        """The address that clients are told; only after `start`."""
        assert self._advertised is not None, "start() comes first"
        _, host, port = self._advertised
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    # -- start -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start; StartError with one line that says why not, and nothing left behind."""
        try:
            await self._listen()
            cluster_id = self._open_logs()
            await self._start_on_logs(cluster_id)
        except (
            LogDirectoryError,
            CheckpointError,
            StorageError,
            ReplayError,
            ProtocolError,
            OSError,
        ) as error:
            await self._abandon()
            raise StartError(_one_line(error)) from error
        except BaseException:
            await self._abandon()
            raise

    async def _listen(self) -> None:
        protocols = dict(
            entry.split(":") for entry in self.config.listener_security_protocol_map.split(",")
        )
        for endpoint in self.config.client_listeners():
            if protocols.get(endpoint.name, "PLAINTEXT") != "PLAINTEXT":
                raise StartError(
                    f"listeners: {endpoint.name} asks for {protocols[endpoint.name]}, "
                    "and only PLAINTEXT is served"
                )
            try:
                listener = await self.runtime.network.listen(
                    endpoint.host, endpoint.port, self._connections.factory
                )
            except OSError as error:
                address = f"{endpoint.host or '*'}:{endpoint.port}"
                raise StartError(f"cannot listen on {address}: {_reason(error)}") from error
            self._listeners.append(listener)
        self._advertised = self._address_for_clients()

    def _address_for_clients(self) -> Endpoint:
        """The first listener's, with what only binding it could tell."""
        advertised = self.config.advertised_endpoints()[0]
        host, port = advertised.host, advertised.port
        if not host:
            import socket  # noqa: PLC0415 - asyncio has imported it; a name, not a connection

            host = socket.gethostname()
        return advertised._replace(host=host, port=port or self._listeners[0].port)

    def _open_logs(self) -> str:
        """Take the log directories; returns the cluster's id, a new one for new directories."""
        config, runtime = self.config, self.runtime
        directories = config.log_directories()
        owner = None
        for directory in directories:
            owner = owner or read_meta_properties(runtime.files, directory)
        cluster_id = owner.cluster_id if owner is not None else _new_cluster_id(runtime.rng.uuid)
        logs = LogManager(
            runtime.files,
            directories,
            LogConfig.from_broker(config.given),
            producer_expiration_ms=config.producer_id_expiration_ms,
            report=log.warning,
        )
        logs.open(
            now_ms=runtime.clock.wall_ms(),
            cluster_id=cluster_id,
            node_id=config.node_id,
            new_directory_id=runtime.rng.uuid,
        )
        self._logs = logs
        return cluster_id

    async def _start_on_logs(self, cluster_id: str) -> None:
        config, runtime, logs = self.config, self.runtime, self._logs
        assert logs is not None
        loop = asyncio.get_running_loop()
        metadata = self._metadata = MetadataLog(
            files=runtime.files,
            executor=runtime.executor,
            clock=runtime.clock,
            directory=config.metadata_directory(),
            node_id=config.node_id,
            cluster_id=cluster_id,
            segment_bytes=config.metadata_log_segment_bytes,
            on_failure=self._fail,
            report=log.warning,
        )
        replicas = self._replicas = ReplicaManager(
            config.node_id, runtime.clock, loop, logs, topic_configs(config.given, config.node_id)
        )
        groups = self._groups = GroupCoordinator(
            config=config,
            clock=runtime.clock,
            rng=runtime.rng,
            timers=loop,
            replica_manager=replicas,
        )
        self._group_admin = GroupAdmin(groups, loop)
        self._controller = Controller(metadata, config, runtime.rng)
        metadata.subscribe(replicas.apply)
        metadata.subscribe(groups.on_image)
        metadata.open()
        await self._register()
        self._maintenance = Maintenance(
            logs=logs,
            config=config,
            clock=runtime.clock,
            executor=runtime.executor,
            on_failure=self._fail,
        )
        self._dispatcher = Dispatcher(self._handlers(replicas, cluster_id))
        self._group_admin.start()
        self._maintenance.start()
        self._connections.open(self._dispatcher)

    async def _register(self) -> None:
        assert self._controller is not None
        assert self._logs is not None
        assert self._advertised is not None
        name, host, port = self._advertised
        self._broker_epoch = await self._controller.register_broker(
            host=host,
            port=port,
            listener=name,
            rack=self.config.broker_rack,
            log_dirs=[directory.directory_id for directory in self._logs.directories],
        )

    def _handlers(self, replicas: ReplicaManager, cluster_id: str) -> dict[ApiKey, Handler]:
        """Every API family, built with what it needs."""
        config, runtime = self.config, self.runtime
        metadata, controller = self._metadata, self._controller
        groups, group_admin = self._groups, self._group_admin
        assert metadata is not None
        assert controller is not None
        assert groups is not None
        assert group_admin is not None

        def image() -> ClusterImage:
            return metadata.image

        families = (
            ProduceApi(replicas),
            FetchApi(replicas, config, runtime.rng),
            OffsetsApi(replicas),
            ProducerIdsApi(controller.allocate_producer_ids, config),
            LogDirsApi(replicas.logs, self._volume_bytes),
            MetadataApi(metadata, controller, config),
            TopicsApi(controller),
            ConfigsApi(metadata, controller, config),
            GroupsApi(groups, image, controller),
            GroupOffsetsApi(
                group_admin,
                image,
                runtime.clock,
                metadata_bytes_max=config.offset_metadata_max_bytes,
            ),
            GroupAdminApi(group_admin),
        )
        handlers: dict[ApiKey, Handler] = {}
        for family in families:
            served = family.handlers()
            assert not handlers.keys() & served.keys(), "an API has one handler"
            handlers.update(served)
        versions = VersionsApi(served=handlers, cluster_id=cluster_id, node_id=config.node_id)
        return {**handlers, **versions.handlers()}

    # -- stop --------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop in order; everything acknowledged is on disk then."""
        for listener in self._listeners:
            listener.close()
        await self._close_connections()
        if self._dispatcher is not None:
            await self._dispatcher.stop()
        if self._maintenance is not None:
            await self._maintenance.stop()
        if self._group_admin is not None:
            self._group_admin.stop()
        if self._groups is not None:
            self._groups.close()
        if self._replicas is not None:
            self._replicas.close()
        if self._controller is not None:
            await self._controller.close()
        if self._metadata is not None:
            await self._metadata.close()
        if self._logs is not None:
            self._logs.shutdown(self.runtime.clock.wall_ms(), broker_epoch=self._broker_epoch)
        self.runtime.executor.close()

    async def _close_connections(self) -> None:
        """Let clients read what they were answered, for a moment."""
        connections = self._connections
        connections.stop()
        if connections.live:
            loop = asyncio.get_running_loop()
            all_closed: asyncio.Future[None] = loop.create_future()
            connections.on_empty = lambda: all_closed.set_result(None)
            await asyncio.wait([all_closed], timeout=CLOSE_SECONDS_MAX)
            connections.abort()

    async def _abandon(self) -> None:
        """Undo a start that failed, writing nothing."""
        for listener in self._listeners:
            listener.close()
        self._connections.stop()
        self._connections.abort()
        if self._maintenance is not None:
            await self._maintenance.stop()
        if self._groups is not None:
            self._groups.close()
        if self._replicas is not None:
            self._replicas.close()
        if self._logs is not None:
            self._logs.abandon()
        self.runtime.executor.close()

    def _fail(self, error: BaseException) -> None:
        """The disk can't be trusted any more: whoever runs the broker has to stop it."""
        log.error("the broker must stop: %s", error)
        if self.failure is None:
            self.failure = error
            if self.on_failure is not None:
                self.on_failure()


def _new_cluster_id(new_uuid: Callable[[], bytes]) -> str:
    """As Kafka's: 22 characters, the first of which does not make command lines trip."""
    while (cluster_id := uuid_to_str(new_uuid())).startswith("-"):
        pass
    return cluster_id


def _reason(error: OSError) -> str:
    """The system's words. asyncio puts its own around them for failed binds.

    The resolver's numbers are negative, and its words are in the error.
    """
    if error.errno is not None and error.errno > 0:
        import os  # noqa: PLC0415 - only on the way out

        return os.strerror(error.errno)
    return error.strerror or str(error)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
