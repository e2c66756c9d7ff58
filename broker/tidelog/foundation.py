"""The first parts of a broker's start: listeners for clients, log directories and the settings of
the metadata log.

`server.py` uses them, listeners first: a taken port is found before any file is changed.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.cluster.formatting import (
    begins_with_voters,
    look,
    not_formatted,
    own_voter,
    random_cluster_id,
)
from tidelog.cluster.metadata.features import KRAFT_FEATURE, supported_levels, unsupported
from tidelog.cluster.metadata.image import is_of_the_brokers
from tidelog.cluster.metadata.levels_on_disk import levels_on_disk
from tidelog.cluster.metadata.quorum_state import is_of_named_voters
from tidelog.cluster.metadata.settings import METADATA_PARTITION, MetadataLogSettings
from tidelog.start_error import StartError, system_words
from tidelog_storage.checkpoints import PARTITION_METADATA
from tidelog_storage.config import ConfigError, LogConfig
from tidelog_storage.manager import LogManager

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.cluster.metadata.levels_on_disk import ReadSnapshot
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.config.broker import BrokerConfig, Endpoint
    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.metrics.meters import Meters
    from tidelog.metrics.prometheus import PrometheusEndpoint
    from tidelog.network.connections import Connections
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Listener, Network, Runtime

__all__ = [
    "ClientListeners",
    "check_features",
    "check_first_voters",
    "check_metadata_log",
    "check_tier",
    "metadata_log_settings",
    "metrics_endpoint",
    "open_logs",
    "settle_voters",
    "warn_of_open",
]

log = logging.getLogger("tidelog.server")


class ClientListeners:
    """The listeners for clients of this broker: those of the start, and those added since."""

    def __init__(self, config: BrokerConfig, connections: Connections, runtime: Runtime) -> None:
        """`connections` are those of the listeners."""
        self._config = config
        self._connections = connections
        self._runtime = runtime
        self.bound: dict[str, Listener] = {}
        self._wanted: dict[str, Endpoint] = {}  # bound, or being bound
        self._is_closed = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._advertised: list[Endpoint] = []

    @property
    def advertised(self) -> Endpoint:
        """Return the first advertised address; only after `open`."""
        assert self._advertised, "start() comes first"
        return self._advertised[0]

    @property
    def registered(self) -> list[Endpoint]:
        """Return all advertised addresses, the one for brokers first; only after `open`."""
        name = self._config.inter_broker_listener()
        return sorted(self._advertised, key=lambda endpoint: endpoint.name != name)

    async def open(self, network: Network) -> None:
        """Bind all listeners; StartError or ConfigError if one fails; `close` then closes those
        bound before."""
        config = self._config
        self._network = network
        for endpoint in config.client_listeners():
            self._connections.guard(config.listener_settings(endpoint.name), self._runtime)
        for endpoint in config.client_listeners():
            try:
                listener = await self._listen(endpoint)
            except OSError as error:
                address = f"{endpoint.host or '*'}:{endpoint.port}"
                raise StartError(f"cannot listen on {address}: {system_words(error)}") from error
            self.bound[endpoint.name] = listener
            self._wanted[endpoint.name] = endpoint
        warn_of_open(config)
        self._advertised = [
            self._completed(endpoint, self.bound[endpoint.name])
            for endpoint in config.advertised_endpoints()
        ]

    async def _listen(self, endpoint: Endpoint) -> Listener:
        guard = self._connections.guards.get(endpoint.name)
        factory = partial(self._connections.factory, endpoint.name)
        tls = None if guard is None else guard.tls
        return await self._network.listen(endpoint.host, endpoint.port, factory, tls)

    def _completed(self, advertised: Endpoint, bound: Listener) -> Endpoint:
        """Fill in the bound port, and the machine's name for an empty host."""
        host, port = advertised.host, advertised.port
        if not host:
            import socket  # noqa: PLC0415 - asyncio has imported it; a name, not a connection

            host = socket.gethostname()
        return advertised._replace(host=host, port=port or bound.port)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Open listeners that `listeners` starts to name, and close those that it no longer names,
        also those of the start (DynamicListenerConfig). Added ones are not advertised: the
        registration names those of the start, as in Kafka."""
        if self._is_closed:
            return
        named = {one.name: one for one in config.client_listeners()}
        missing = [one for name, one in named.items() if name not in self._wanted]
        gone = self._wanted.keys() - named.keys()
        # A listener that stays keeps its first address, also while it is being bound.
        self._wanted = {name: self._wanted.get(name, one) for name, one in named.items()}
        self._connections.renew(config.listener_settings)
        for name in gone:
            self._remove(name)
        for endpoint in missing:
            try:
                self._connections.guard(config.listener_settings(endpoint.name), self._runtime)
            except ConfigError as error:
                log.error("listener %s is not open: %s", endpoint.name, error.message)
                self._forget(endpoint)
                continue
            task = asyncio.get_running_loop().create_task(
                self._add(endpoint), name=f"listener {endpoint.name}"
            )
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    def _forget(self, endpoint: Endpoint) -> None:
        """Open a listener that could not be opened with the next settings."""
        if self._wanted.get(endpoint.name) is endpoint:
            del self._wanted[endpoint.name]

    def _remove(self, name: str) -> None:
        """Close a listener and its connections."""
        listener = self.bound.pop(name, None)
        if listener is not None:  # else it could not be bound, or is still being bound
            listener.close()
        self._connections.close_of(name)
        guard = self._connections.guards.pop(name, None)
        if guard is not None:
            guard.close()
        log.info("listener %s is closed", name)

    async def _add(self, endpoint: Endpoint) -> None:
        try:
            listener = await self._listen(endpoint)
        except OSError as error:
            address = f"{endpoint.host or '*'}:{endpoint.port}"
            log.error("cannot listen on %s: %s", address, system_words(error))
            self._forget(endpoint)
            return
        if self._wanted.get(endpoint.name) is not endpoint:  # changed meanwhile
            listener.close()
            return
        self.bound[endpoint.name] = listener
        log.info("listener %s is open on port %d", endpoint.name, listener.port)

    def close(self) -> None:
        """Accept no more connections."""
        self._is_closed = True
        self._wanted = {}
        for listener in self.bound.values():
            listener.close()


def warn_of_open(config: BrokerConfig) -> None:
    """Warn of listeners on which others on other machines need no authentication."""
    names, unsecured = [], []
    for endpoint in (*config.client_listeners(), *config.controller_listeners()):
        if endpoint.host.startswith("127.") or endpoint.host in ("localhost", "::1"):
            continue
        settings = config.listener_settings(endpoint.name)
        if settings.is_sasl:
            unsecured += [endpoint.name] * settings.takes_unsecured_tokens
        elif not settings.is_tls or settings.value("ssl.client.auth") != "required":
            names.append(endpoint.name)
    if names:
        log.warning(
            "clients on other machines need no authentication on listener %s: use SASL, or"
            " ssl.client.auth=required, or listen on 127.0.0.1",
            ", ".join(names),
        )
    if unsecured:
        log.warning(
            "clients on other machines may be any user on listener %s, whose tokens of OAUTHBEARER"
            " anyone can make: set sasl.server.callback.handler.class, or listen on 127.0.0.1",
            ", ".join(unsecured),
        )


def open_logs(
    config: BrokerConfig, runtime: Runtime, new_cluster_id: str | None = None
) -> tuple[LogManager, str, ReadSnapshot | None]:
    """Open the log directories; return their manager, the cluster id and the newest snapshot of the
    metadata, which was read for the levels of features in it.

    New directories are formatted for `new_cluster_id`; those of the only voter for a new id. A node
    of an existing cluster with an empty disk must not vote as if it were new, so the operator
    formats its directories.

    LogDirectoryError, CheckpointError, StartError, StorageError and OSError on failure.
    """
    present = look([config], runtime.files)
    cluster_id, new_directory_id = present.cluster_id, None
    if present.is_new and (config.is_only_voter() or new_cluster_id):
        cluster_id = new_cluster_id or random_cluster_id(runtime.rng.uuid)
        new_directory_id = runtime.rng.uuid
    elif present.missing or cluster_id is None:
        raise not_formatted(present)
    snapshot = _check_levels_on_disk(config, runtime, cluster_id)
    logs = LogManager(
        runtime.files,
        config.log_directories(),
        LogConfig.from_broker(config.given),
        producer_expiration_ms=config.producer_id_expiration_ms,
        remote_storage_system_enable=config.remote_log_storage_system_enable,
        report=log.warning,
    )
    logs.add_metadata_dir(config.metadata_directory())
    try:
        config.check_cordoned()
    except ConfigError as error:
        raise StartError(error.message) from error
    logs.cordoned = frozenset(config.cordoned_directories())
    logs.open(
        now_ms=runtime.clock.wall_ms(),
        cluster_id=cluster_id,
        node_id=config.node_id,
        new_directory_id=new_directory_id,
    )
    return logs, cluster_id, snapshot


def _check_levels_on_disk(
    config: BrokerConfig, runtime: Runtime, cluster_id: str
) -> ReadSnapshot | None:
    """StartError or ProtocolError for what a newer Kafka wrote, while no file is changed."""
    directory, listener = config.metadata_directory(), config.inter_broker_listener()
    try:
        on_disk = levels_on_disk(runtime.files, directory, cluster_id, listener)
    except OSError:
        return None  # opening the logs says what it is
    check_levels(on_disk.levels)
    return on_disk.newest


def settle_voters(config: BrokerConfig, runtime: Runtime) -> BrokerConfig:
    """Return the configuration for a node whose metadata log names the voters (KIP-853), if its
    directory was formatted or written so; else the given one. ConfigError, StorageError."""
    if config.controller_quorum_voters or not config.controller_quorum_bootstrap_servers:
        return config
    folder = f"{config.metadata_directory()}/{METADATA_PARTITION}"
    is_dynamic = is_of_named_voters(runtime.files, folder)
    if is_dynamic is None:  # Kafka writes the file when it first starts
        import socket  # noqa: PLC0415 - asyncio has imported it; a name, not a connection

        is_dynamic = begins_with_voters(runtime.files, folder)
        is_dynamic = is_dynamic or config.asks_others(socket.gethostname())
    return config.with_voters_of_log() if is_dynamic else config


def check_first_voters(config: BrokerConfig, runtime: Runtime, metadata: MetadataLog) -> None:
    """StartError for a node that was formatted to join others, if its settings name none: it would
    elect itself, of a cluster of its own."""
    folder = f"{config.metadata_directory()}/{METADATA_PARTITION}"
    is_new = not metadata.names_voters and not metadata.log.log_end_offset
    if is_new and is_of_named_voters(runtime.files, folder):
        raise StartError(
            f"{folder} was formatted with --no-initial-controllers, to join other controllers: set"
            " controller.quorum.bootstrap.servers to their addresses"
        )


def check_metadata_log(config: BrokerConfig, runtime: Runtime, logs: LogManager) -> None:
    """StartError if there are logs but no metadata log: all of them would become strays."""
    partitions = sorted(logs.topic_ids())
    folder = f"{config.metadata_directory()}/{METADATA_PARTITION}"
    if partitions and not runtime.files.exists(f"{folder}/{PARTITION_METADATA}"):
        raise StartError(
            f"metadata.log.dir: {folder} has no metadata log, but {','.join(logs.log_dirs)} has"
            f" {len(partitions)} logs of topics, such as {partitions[0]}: set it to the directory"
            " of their metadata log, or move these logs away"
        )


def check_features(
    image: ClusterImage, levels: Mapping[str, int], *, is_alone: bool = False
) -> None:
    """StartError if a finalized level of a feature promises what this broker cannot keep.

    `levels` are those at the end of the log, behind the image. `is_alone`: the settings have no
    controller listener.
    """
    if image.voters and is_alone:
        raise StartError(
            "the metadata log names the voters of its quorum (kraft.version 1): add a controller"
            " listener to listeners, and set controller.quorum.bootstrap.servers"
        )
    check_levels(levels)


def check_levels(levels: Mapping[str, int]) -> None:
    """StartError if a level of a feature promises what this broker cannot keep."""
    names = unsupported(levels)
    if not names:
        return
    known = supported_levels()
    lower = [
        f"--feature {name}={known.get(name, (0, 0))[1]}"
        for name in (text.split()[0] for text in names)
    ]
    advice = (
        f"{KRAFT_FEATURE} cannot be lowered: move the records with MirrorMaker 2"
        if KRAFT_FEATURE in levels
        else "Start the Apache Kafka that wrote these directories, run `kafka-features downgrade"
        f" {' '.join(lower)}`, and stop it"
    )
    raise StartError(
        f"the cluster has features that tidelog does not know: {', '.join(names)}. {advice}"
    )


def check_tier(config: BrokerConfig, image: ClusterImage) -> None:
    """StartError if a topic uses a remote tier and this broker's settings have none."""
    if config.remote_log_storage_system_enable:
        return
    for name, settings in image.topic_configs.items():
        if settings.get("remote.storage.enable", "false").strip().lower() == "true":
            raise StartError(
                "You have to delete all topics with the property remote.storage.enable=true before"
                f" disabling tiered storage cluster-wide: {name} still has it"
            )


def metadata_log_settings(
    config: BrokerConfig,
    runtime: Runtime,
    logs: LogManager,
    cluster_id: str,
    on_failure: Callable[[BaseException], None],
) -> MetadataLogSettings:
    """Return the settings of a node's metadata log."""
    voters = tuple(voter.node_id for voter in config.quorum_voters())
    return MetadataLogSettings(
        files=logs.files_of(config.metadata_directory()),
        executor=runtime.executor,
        clock=runtime.clock,
        directory=config.metadata_directory(),
        node_id=config.node_id,
        cluster_id=cluster_id,
        voters=() if config.is_dynamic() else voters or (config.node_id,),
        own=None
        if config.is_alone()
        else own_voter(config, logs.directory_id(config.metadata_directory())),
        listener=config.inter_broker_listener(),
        min_insync_replicas=config.log_defaults.min_insync_replicas,
        segment_bytes=config.metadata_log_segment_bytes,
        snapshot_bytes=config.metadata_log_max_record_bytes_between_snapshots,
        snapshot_interval_s=config.metadata_log_max_snapshot_interval_ms / 1000,
        on_failure=on_failure,
        report=log.warning,
    )


def metrics_endpoint(
    meters: Meters,
    config: BrokerConfig,
    replicas: ReplicaManager,
    groups: GroupCoordinator,
    metadata: MetadataLog,
) -> PrometheusEndpoint | None:
    """Return the endpoint of `metrics.prometheus.listener`, with the gauges of these; StartError
    on failure."""
    key, address = "metrics.prometheus.listener", config.metrics_prometheus_listener
    if not address:
        return None
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise StartError(f"{key}: {address!r} is not of the form HOST:PORT")
    try:
        from tidelog.cluster.gauges import tell_controller  # noqa: PLC0415 - with the endpoint only
        from tidelog.coordinators.groups.gauges import tell_groups  # noqa: PLC0415 - too
        from tidelog.metrics.broker_gauges import tell_logs, tell_purgatories  # noqa: PLC0415 - too
        from tidelog.metrics.prometheus import (  # noqa: PLC0415 - an extra, and few ask for it
            PrometheusEndpoint,
        )
        from tidelog.replication.gauges import tell_partitions  # noqa: PLC0415 - too
    except ModuleNotFoundError as error:
        raise StartError(
            f"{key}: needs prometheus-client (pip install 'tidelog[metrics]')"
        ) from error
    tell_logs(meters, replicas.logs)
    purgatories = {
        "DeleteRecords": replicas.delete_records_purgatory,
        "Fetch": replicas.fetch_purgatory,
        "Produce": replicas.produce_purgatory,
    }
    tell_purgatories(meters, purgatories)
    tell_partitions(meters, replicas)
    tell_groups(meters, groups, replicas)
    if "controller" in config.process_roles:
        tell_controller(meters, metadata)
    try:
        is_hidden = None if config.metrics_prometheus_internal_topics else is_of_the_brokers
        return PrometheusEndpoint(meters, host.strip("[]"), int(port), is_hidden)
    except (OSError, OverflowError) as error:
        raise StartError(f"{key}: cannot listen on {address}: {error}") from error
