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
from tidelog.cluster.metadata.settings import BOOTSTRAP_CHECKPOINT, METADATA_PARTITION
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

    from tidelog.cluster.metadata.voters import Voter, Voters
    from tidelog.config.broker import BrokerConfig
    from tidelog.seams import Runtime
    from tidelog_protocol.messages.metadata_records import UserScramCredentialRecord
    from tidelog_storage.seams import FileSystem

__all__ = [
    "FirstVoters",
    "Formatting",
    "format_directories",
    "format_new",
    "look",
    "not_formatted",
    "random_cluster_id",
]


class Formatting(NamedTuple):
    """The state of the directories of one or several nodes."""

    cluster_id: str | None
    """Cluster id of the formatted directories; None if there are none."""
    formatted: list[str]
    missing: list[tuple[BrokerConfig, str]]
    """Directories that are not formatted, each with its node."""
    used: list[str]
    """Unformatted directories that contain logs."""
    unread: list[OSError]
    """Errors of directories that cannot be read, other than those of the metadata log."""

    @property
    def is_new(self) -> bool:
        """Return whether all directories are new."""
        return not self.formatted and not self.used and not self.unread


class FirstVoters(NamedTuple):
    """How the metadata log of a new node begins if it names the voters (KIP-853)."""

    voters: Voters = ()
    """Those of a new cluster, the same for each of them; empty for a node that joins a cluster."""
    is_standalone: bool = False
    """This node is the first and only voter of a new cluster."""

    def directory_of(self, node_id: int, drawn: bytes) -> bytes:
        """Return the directory id of a node's metadata log: the one given, or a new one."""
        given = (each.directory_id for each in self.voters if each.node_id == node_id)
        return next(given, drawn)


def directories_of(config: BrokerConfig) -> list[str]:
    """Return all directories of a node, including that of the metadata log."""
    return list(dict.fromkeys([*config.log_directories(), config.metadata_directory()]))


def look(configs: Iterable[BrokerConfig], files: FileSystem) -> Formatting:
    """Read the `meta.properties` of all directories. StartError if they contradict each other or
    are invalid; OSError if that of the metadata log cannot be read."""
    found = Formatting(None, [], [], [], [])
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
            except OSError as error:
                if path == config.metadata_directory():
                    raise
                found.unread.append(error)
                continue
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
    configs: Sequence[BrokerConfig],
    runtime: Runtime,
    cluster_id: str | None = None,
    users: Callable[[], Sequence[UserScramCredentialRecord]] = tuple,
) -> str:
    """Format all directories of a new cluster; return the cluster id, new or not. `users` returns
    the first ones of a new cluster.

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
    format_directories(found, runtime, cluster_id, users=users())
    return cluster_id


def format_directories(
    found: Formatting,
    runtime: Runtime,
    cluster_id: str,
    first: FirstVoters | None = None,
    users: Sequence[UserScramCredentialRecord] = (),
) -> list[tuple[str, bytes]]:
    """Format the unformatted directories; return their paths and new ids. `first` is None if the
    settings name the voters; `users` are those of a new cluster.

    `meta.properties` is written last: a directory without it is not formatted. Other files are
    kept.
    """
    files, now_ms = runtime.files, runtime.clock.wall_ms()
    done = []
    for config, path in found.missing:
        make_durable_folder(files, path)
        files.write_atomic(f"{path}/{BOOTSTRAP_CHECKPOINT}", bootstrap_checkpoint(now_ms, users))
        directory_id = runtime.rng.uuid()
        if first is not None and path == config.metadata_directory():
            directory_id = first.directory_of(config.node_id, directory_id)
            begin_log(files, config, first, directory_id, now_ms)
        owner = MetaProperties(cluster_id, config.node_id, directory_id)
        write_meta_properties(files, path, owner)
        done.append((path, directory_id))
    return done


def bootstrap_checkpoint(now_ms: int, users: Sequence[UserScramCredentialRecord] = ()) -> bytes:
    """Return the first records of a new metadata log (KIP-778), as a snapshot, as Kafka's
    controller does."""
    from tidelog.cluster.metadata.image import ClusterImage  # noqa: PLC0415 - only a new cluster's brokers
    from tidelog.cluster.metadata.snapshots import encode_snapshot  # noqa: PLC0415 - pay for them

    image = ClusterImage(
        cluster_id="",
        features=initial_levels(),
        scram_credentials={(user.name, user.mechanism): user for user in users},
    )
    return encode_snapshot(image, now_ms)[1]


def begin_log(
    files: FileSystem, config: BrokerConfig, first: FirstVoters, directory_id: bytes, now_ms: int
) -> None:
    """Write the files of a metadata log that names the voters, as `kafka-storage format` does:
    the voters of a new cluster are in a snapshot of nothing else."""
    from tidelog.cluster.metadata.image import ClusterImage  # noqa: PLC0415 - few logs name voters
    from tidelog.cluster.metadata.quorum_state import Election, write_quorum_state  # noqa: PLC0415
    from tidelog.cluster.metadata.snapshots import write_snapshot  # noqa: PLC0415

    folder = f"{config.metadata_directory()}/{METADATA_PARTITION}"
    make_durable_folder(files, folder)
    voters = first.voters
    if first.is_standalone:
        voters = (own_voter(config, directory_id),)
    if voters:
        write_snapshot(files, folder, ClusterImage(cluster_id="", voters=voters), now_ms)
    write_quorum_state(files, folder, Election(), None)


def own_voter(config: BrokerConfig, directory_id: bytes) -> Voter:
    """Return a node as a voter that its metadata log may name (KIP-853)."""
    from tidelog.cluster.metadata.voters import Voter  # noqa: PLC0415 - few logs name voters

    return Voter(config.node_id, directory_id, controller_endpoints(config))


def controller_endpoints(config: BrokerConfig) -> tuple[tuple[str, str, int], ...]:
    """Return where other nodes reach a node's controller: names, hosts and ports of listeners."""
    import socket  # noqa: PLC0415 - asyncio has imported it; a name, not a connection

    return tuple(
        (each.name, each.host or socket.gethostname(), each.port)
        for each in config.advertised_controllers()
    )


def begins_with_voters(files: FileSystem, folder: str) -> bool:
    """Return whether a metadata log begins with a snapshot of voters. ProtocolError for a damaged
    one."""
    from tidelog.cluster.metadata.snapshots import SnapshotId, read_snapshot  # noqa: PLC0415

    first = SnapshotId(0, 0)
    if not files.exists(f"{folder}/{first.file_name}"):
        return False
    return bool(read_snapshot(files, folder, first, "").voters)


def random_cluster_id(new_uuid: Callable[[], bytes]) -> str:
    """Return a cluster id like Kafka's: 22 characters that do not begin with a hyphen."""
    while (cluster_id := uuid_to_str(new_uuid())).startswith("-"):
        pass
    return cluster_id
