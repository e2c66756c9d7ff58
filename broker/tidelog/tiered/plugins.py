"""Builds the store and the metadata manager that the configuration names (KIP-405).

A class is named `module.Class` or `module:Class`. Kafka's class names stand for tidelog's own
equivalents, so that Kafka's configuration files work.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
from typing import TYPE_CHECKING, Any, cast

from tidelog.cluster.metadata.image import REMOTE_LOG_METADATA_TOPIC
from tidelog.config.tiered_keys import is_known_to_our_stores, is_our_store
from tidelog.start_error import StartError, one_line
from tidelog.tiered.metadata import access
from tidelog.tiered.metadata.client import MetadataTopicClient
from tidelog.tiered.metadata.files import MetadataFiles
from tidelog.tiered.metadata.settings import ClientSettings, MetadataSettings
from tidelog.tiered.metadata.topic import TopicBasedMetadata
from tidelog_storage.remote.api import RemoteLogMetadata, RemoteStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidelog.config.broker import BrokerConfig
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Runtime
    from tidelog.tiered.cluster_access import ClusterAccess
    from tidelog_storage.remote.directory_store import DirectoryStore
    from tidelog_storage.seams import FileSystem

__all__ = [
    "load_class",
    "metadata_manager",
    "metadata_properties",
    "new_metadata",
    "new_storage",
]

log = logging.getLogger("tidelog.tiered")

_DIRECTORY_STORE = "tidelog_storage.remote.directory_store.DirectoryStore"
_OURS = {
    # of Kafka's tests, with the same setting `dir`
    "org.apache.kafka.server.log.remote.storage.LocalTieredStorage": _DIRECTORY_STORE,
}
_CLASS_NAME = ".class.name"
_NAMES_KEY = re.compile(r"[\w.-]+: ")  # an error of a setting begins with its name
_TOPIC_BASED = re.compile(  # Kafka's name, and those that tidelog's own class has and had
    r"org\.apache\.kafka\.server\.log\.remote\.metadata\.storage\.TopicBasedRemoteLogMetadataManager"
    r"|tidelog\.(tiered|remote)\.metadata[._]topic[.:]TopicBasedMetadata"
)


def load_class(key: str, name: str, path: str | None) -> type[Any]:
    """Load the class that the setting `key` names; StartError if there is none.

    `path` has folders to search first, as in PYTHONPATH.
    """
    name = _OURS.get(name, name)
    for folder in reversed((path or "").split(os.pathsep)):
        if folder and folder not in sys.path:
            sys.path.insert(0, folder)
    module_name, colon, class_name = name.partition(":")
    if not colon:
        module_name, _, class_name = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        reason = one_line(error)
        if isinstance(error, ModuleNotFoundError) and not path and key.endswith(_CLASS_NAME):
            folders = key.removesuffix(_CLASS_NAME) + ".class.path"
            reason += f" ({folders} can name folders to look in)"
        raise StartError(f"{key}: no class {name}: {reason}") from error
    if not isinstance(found, type):
        raise StartError(f"{key}: {name} is not a class")
    return found


def new_storage(config: BrokerConfig, files: FileSystem, cluster_id: str) -> RemoteStorage:
    """Build the remote store: the directory store unless another is named."""
    key = "remote.log.storage.manager.class.name"
    name = config.remote_log_storage_manager_class_name or _DIRECTORY_STORE
    wanted = load_class(key, name, config.remote_log_storage_manager_class_path)
    names = [f"{each.__module__}.{each.__qualname__}" for each in wanted.__mro__]
    arguments = (files,) if _DIRECTORY_STORE in names else ()
    prefix = config.remote_log_storage_manager_impl_prefix
    given = config.given_with_prefix(prefix)
    if is_our_store(config.remote_log_storage_manager_class_name):
        _warn_of_unknown(prefix, [key for key in given if not is_known_to_our_stores(key)])
    properties = given | _place(config, cluster_id)
    storage: RemoteStorage = _built(key, wanted, RemoteStorage, prefix, properties, *arguments)
    if arguments:
        try:
            cast("DirectoryStore", storage).prepare()
        except ValueError as error:
            raise StartError(f"{prefix}{error}") from error
    return storage


def _is_topic_based(config: BrokerConfig) -> bool:
    """Return whether tidelog's own topic keeps the metadata."""
    return _TOPIC_BASED.fullmatch(config.remote_log_metadata_manager_class_name) is not None


def _warn_of_unknown(prefix: str, keys: Iterable[str]) -> None:
    """Warn of unknown settings. They are not refused, because Kafka's configuration files have
    settings of Kafka's own plug-ins and clients."""
    for key in keys:
        log.warning("%s%s: tidelog has no such setting, it has no effect", prefix, key)


def metadata_properties(config: BrokerConfig, cluster_id: str) -> dict[str, str]:
    """Return the properties of the metadata manager: its settings, its broker, and the address of
    the listener that it may use. Its own settings win over the address, as in Kafka."""
    prefix = config.remote_log_metadata_manager_impl_prefix
    given = config.given_with_prefix(prefix)
    if _is_topic_based(config):
        known = (MetadataSettings.knows, ClientSettings.knows, access.knows)
        _warn_of_unknown(prefix, [key for key in given if not any(knows(key) for knows in known)])
    properties = _reaching_the_listener(config) | given | _place(config, cluster_id)
    properties["log.dir"] = config.log_directories()[0]
    return properties


def _reaching_the_listener(config: BrokerConfig) -> dict[str, str]:
    """Return the address of the named listener, nothing if none is named; StartError if it does not
    exist."""
    listener = config.remote_log_metadata_manager_listener_name
    if listener is None:
        return {}
    endpoints = {endpoint.name: endpoint for endpoint in config.advertised_endpoints()}
    endpoint = endpoints.get(listener.upper())
    if endpoint is None:
        raise StartError(
            "remote.log.metadata.manager.listener.name: "
            f"{listener} is not among the listeners, {','.join(endpoints)}"
        )
    return {
        f"{access.CLIENTS}bootstrap.servers": f"{endpoint.host}:{endpoint.port}",
        f"{access.CLIENTS}security.protocol": config.listener_settings(endpoint.name).protocol,
    }


def metadata_manager(
    config: BrokerConfig,
    runtime: Runtime,
    replicas: ReplicaManager,
    cluster: ClusterAccess,
    on_failure: Callable[[BaseException], None],
) -> RemoteLogMetadata:
    """Build the metadata manager: tidelog's own topic unless a class is named."""
    if not _is_topic_based(config):
        return new_metadata(config, cluster.cluster_id)
    properties = metadata_properties(config, cluster.cluster_id)
    timeout_ms = config.request_timeout_ms
    try:
        client = MetadataTopicClient(
            REMOTE_LOG_METADATA_TOPIC,
            replicas=replicas,
            image=cluster.image,
            new_channel=cluster.channels_to(access.client_settings, access.mechanism_of(config)),
            settings=ClientSettings.of(
                properties,
                request_timeout_ms=timeout_ms,
                protocol=access.client_settings(config).protocol,
            ),
            listener=(config.remote_log_metadata_manager_listener_name or "").upper(),
        )
        files = MetadataFiles(runtime.async_files, properties["log.dir"])
        topic = TopicBasedMetadata(client, files, cluster.create_topic, on_failure)
        topic.configure(properties)
    except ValueError as error:
        prefix = config.remote_log_metadata_manager_impl_prefix
        raise StartError(f"{prefix}{error}") from error
    return topic


def new_metadata(config: BrokerConfig, cluster_id: str) -> RemoteLogMetadata:
    """Build a user's metadata manager."""
    key = "remote.log.metadata.manager.class.name"
    wanted = load_class(
        key,
        config.remote_log_metadata_manager_class_name,
        config.remote_log_metadata_manager_class_path,
    )
    prefix = config.remote_log_metadata_manager_impl_prefix
    properties = metadata_properties(config, cluster_id)
    metadata: RemoteLogMetadata = _built(key, wanted, RemoteLogMetadata, prefix, properties)
    return metadata


def _place(config: BrokerConfig, cluster_id: str) -> dict[str, str]:
    node_id = str(config.node_id)
    return {"node.id": node_id, "broker.id": node_id, "cluster.id": cluster_id}


def _built(
    key: str,
    wanted: type[Any],
    protocol: type[Any],
    prefix: str,
    properties: Mapping[str, str],
    *arguments: object,
) -> Any:
    """Build and configure an object of the class that the setting `key` names. StartError if it
    lacks a method of the protocol, or for any error that it raises."""
    name = f"{wanted.__module__}.{wanted.__qualname__}"
    methods = [method for method in vars(protocol) if not method.startswith("_")]
    for method in methods:
        if not callable(getattr(wanted, method, None)):
            raise StartError(f"{key}: {name} is no {protocol.__name__}: it has no {method}")
    try:
        plug_in = wanted(*arguments)
        plug_in.configure(properties)
    except (ValueError, ImportError, OSError) as error:
        text = one_line(error)
        where = prefix if _NAMES_KEY.match(text) else f"{key}: {name}: "
        raise StartError(f"{where}{text}") from error
    except Exception as error:
        raise StartError(f"{key}: {name}: {type(error).__name__}: {one_line(error)}") from error
    return plug_in
