"""The first parts of a broker's start: listeners for clients, log directories and the settings of
the metadata log.

`server.py` uses them, listeners first: a taken port is found before any file is changed.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.cluster.formatting import look, not_formatted, random_cluster_id
from tidelog.cluster.metadata.image import is_of_the_brokers
from tidelog.cluster.metadata.settings import METADATA_PARTITION, MetadataLogSettings
from tidelog.start_error import StartError, system_words
from tidelog_storage.checkpoints import PARTITION_METADATA
from tidelog_storage.config import LogConfig
from tidelog_storage.manager import LogManager

if TYPE_CHECKING:
    from asyncio import BaseProtocol
    from collections.abc import Callable

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.config.broker import BrokerConfig, Endpoint
    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.metrics.meters import Meters
    from tidelog.metrics.prometheus import PrometheusEndpoint
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Listener, Network, Runtime

__all__ = [
    "ClientListeners",
    "check_metadata_log",
    "check_tier",
    "metadata_log_settings",
    "metrics_endpoint",
    "open_logs",
]

log = logging.getLogger("tidelog.server")


class ClientListeners:
    """The listeners for clients of this broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.bound: list[Listener] = []
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

    async def open(self, network: Network, factory: Callable[[str], BaseProtocol]) -> None:
        """Bind all listeners; StartError if one fails; `close` then closes those bound before.

        `factory` creates the protocol object of a connection on the listener of that name.
        """
        config = self._config
        protocols = dict(
            entry.split(":") for entry in config.listener_security_protocol_map.split(",")
        )
        for endpoint in (*config.controller_listeners(), *config.client_listeners()):
            if protocols.get(endpoint.name, "PLAINTEXT") != "PLAINTEXT":
                raise StartError(
                    f"listeners: {endpoint.name} uses {protocols[endpoint.name]}, "
                    "but only PLAINTEXT is supported"
                )
        for endpoint in config.client_listeners():
            try:
                listener = await network.listen(
                    endpoint.host, endpoint.port, partial(factory, endpoint.name)
                )
            except OSError as error:
                address = f"{endpoint.host or '*'}:{endpoint.port}"
                raise StartError(f"cannot listen on {address}: {system_words(error)}") from error
            self.bound.append(listener)
        listeners = [endpoint.name for endpoint in config.client_listeners()]
        self._advertised = [
            self._completed(endpoint, self.bound[listeners.index(endpoint.name)])
            for endpoint in config.advertised_endpoints()
        ]

    def _completed(self, advertised: Endpoint, bound: Listener) -> Endpoint:
        """Fill in the bound port, and the machine's name for an empty host."""
        host, port = advertised.host, advertised.port
        if not host:
            import socket  # noqa: PLC0415 - asyncio has imported it; a name, not a connection

            host = socket.gethostname()
        return advertised._replace(host=host, port=port or bound.port)

    def close(self) -> None:
        """Accept no more connections."""
        for listener in self.bound:
            listener.close()


def open_logs(
    config: BrokerConfig, runtime: Runtime, new_cluster_id: str | None = None
) -> tuple[LogManager, str]:
    """Open the log directories; return their manager and the cluster id.

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
    logs = LogManager(
        runtime.files,
        config.log_directories(),
        LogConfig.from_broker(config.given),
        producer_expiration_ms=config.producer_id_expiration_ms,
        remote_storage_system_enable=config.remote_log_storage_system_enable,
        report=log.warning,
    )
    logs.add_metadata_dir(config.metadata_directory())
    logs.open(
        now_ms=runtime.clock.wall_ms(),
        cluster_id=cluster_id,
        node_id=config.node_id,
        new_directory_id=new_directory_id,
    )
    return logs, cluster_id


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
        voters=voters or (config.node_id,),
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
