"""Formatting: marking directories as those of one node of one cluster, before it first starts.

As in Apache Kafka, a directory without `meta.properties` is not formatted, and a node of a cluster
does not start on it: with an empty disk it would vote as a new node, and a quorum of such votes
loses committed records. `tidelog format` formats directories. Entry points that start a whole
cluster do so themselves if every directory of every broker is new (`format_new`).

Used by `foundation.py`, the entry points and the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.cluster.metadata.features import initial_levels
from tidelog.cluster.metadata.settings import METADATA_PARTITION
from tidelog.start_error import StartError
from tidelog_protocol.primitives import uuid_to_str
from tidelog_storage.checkpoints import (
    CheckpointError,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from tidelog_storage.folders import make_durable_folder, scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog.config.broker import BrokerConfig
    from tidelog.seams import Runtime
    from tidelog_storage.seams import FileSystem

__all__ = [
    "Formatting",
    "format_directories",
    "format_new",
    "look",
    "not_formatted",
    "random_cluster_id",
]

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"


class Formatting(NamedTuple):
    """The state of the directories of one or several nodes."""

    cluster_id: str | None
    """Cluster id of the formatted directories; None if there are none."""
    formatted: list[str]
    missing: list[tuple[BrokerConfig, str]]
    """Directories that are not formatted, each with its node."""
    used: list[str]
    """Unformatted directories that contain logs."""

    @property
    def is_new(self) -> bool:
        """Return whether all directories are new."""
        return not self.formatted and not self.used


def directories_of(config: BrokerConfig) -> list[str]:
    """Return all directories of a node, including that of the metadata log."""
    return list(dict.fromkeys([*config.log_directories(), config.metadata_directory()]))


def look(configs: Iterable[BrokerConfig], files: FileSystem) -> Formatting:
    """Read the `meta.properties` of all directories. StartError if they contradict each other or
    are invalid."""
    found = Formatting(None, [], [], [])
    for config in configs:
        for path in directories_of(config):
            try:
                owner = read_meta_properties(files, path)
                if owner is None:
                    found.missing.append((config, path))
                    if _has_logs(files, path):
                        found.used.append(path)
                    continue
            except CheckpointError as error:
                raise StartError(str(error)) from error
            found = _with(found, config, path, owner)
    return found


def _with(found: Formatting, config: BrokerConfig, path: str, owner: MetaProperties) -> Formatting:
    expected = found.cluster_id or owner.cluster_id
    if owner.cluster_id != expected or owner.node_id != config.node_id:
        raise StartError(
            f"log directory {path} belongs to node {owner.node_id} of cluster {owner.cluster_id},"
            f" not to node {config.node_id} of cluster {expected}"
        )
    return found._replace(cluster_id=expected, formatted=[*found.formatted, path])


def _has_logs(files: FileSystem, path: str) -> bool:
    if not files.exists(path):
        return False
    if files.exists(f"{path}/{METADATA_PARTITION}"):
        return True
    found = scan(files, path)
    return bool(found.current or found.futures or found.without_id)


def not_formatted(found: Formatting) -> StartError:
    """Return why a node does not start on these directories, and what to do."""
    config, path = found.missing[0]
    flag = ""
    if found.used:
        advice = f"log directory {found.used[0]} has logs, but no meta.properties: restore it, or"
    elif found.formatted:
        advice = (
            f"log directory {path} is not formatted, but {found.formatted[0]} belongs to cluster"
            f" {found.cluster_id}: restore it, or"
        )
        flag = " --ignore-formatted"
    else:
        advice = f"log directory {path} is not formatted:"
    command = (
        f"tidelog format --cluster-id {found.cluster_id or 'ID'} --node-id {config.node_id}"
        f" --set log.dirs={','.join(config.log_directories())}"
    )
    if config.metadata_directory() not in config.log_directories():
        command += f" --set metadata.log.dir={config.metadata_directory()}"
    return StartError(f"{advice} run `{command}{flag}`")


def format_new(
    configs: Sequence[BrokerConfig], runtime: Runtime, cluster_id: str | None = None
) -> str:
    """Format all directories of a new cluster; return the cluster id, new or not.

    StartError if only some are formatted: the data of the others is lost, and the formatted ones
    may belong to a cluster.
    """
    found = look(configs, runtime.files)
    if not found.missing:
        assert found.cluster_id is not None
        return found.cluster_id
    if not found.is_new:
        raise not_formatted(found)
    cluster_id = cluster_id or random_cluster_id(runtime.rng.uuid)
    format_directories(found, runtime, cluster_id)
    return cluster_id


def format_directories(
    found: Formatting, runtime: Runtime, cluster_id: str
) -> list[tuple[str, bytes]]:
    """Format the unformatted directories; return their paths and new ids.

    `meta.properties` is written last: a directory without it is not formatted. Other files are
    kept.
    """
    files, now_ms = runtime.files, runtime.clock.wall_ms()
    done = []
    for config, path in found.missing:
        make_durable_folder(files, path)
        files.write_atomic(f"{path}/{BOOTSTRAP_CHECKPOINT}", bootstrap_checkpoint(now_ms))
        directory_id = runtime.rng.uuid()
        owner = MetaProperties(cluster_id, config.node_id, directory_id)
        write_meta_properties(files, path, owner)
        done.append((path, directory_id))
    return done


def bootstrap_checkpoint(now_ms: int) -> bytes:
    """Return the first records of a new metadata log (KIP-778), as a snapshot, as Kafka's
    controller does."""
    from tidelog.cluster.metadata.image import ClusterImage  # noqa: PLC0415 - only a new cluster's brokers
    from tidelog.cluster.metadata.snapshots import encode_snapshot  # noqa: PLC0415 - pay for them

    image = ClusterImage(cluster_id="", features=initial_levels())
    return encode_snapshot(image, now_ms)[1]


def random_cluster_id(new_uuid: Callable[[], bytes]) -> str:
    """Return a cluster id like Kafka's: 22 characters that do not begin with a hyphen."""
    while (cluster_id := uuid_to_str(new_uuid())).startswith("-"):
        pass
    return cluster_id
