"""Turn the arguments of users into Kafka's properties, for a lone broker or each of a cluster.

Settings have Kafka's `server.properties` names, passed as a mapping or as keywords with underscores
for dots. `cluster.py`, `running.py` and the command line use it; it imports nothing heavy.
"""

# ruff: noqa: PLC0415 - `import tidelog` and its users pay for what they use

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from tidelog.control.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.seams import Rng

__all__ = [
    "ClusterError",
    "Setting",
    "advertised_at",
    "beside",
    "beside_inner",
    "broker_properties",
    "has_data_dir",
    "log_dirs_in",
    "metrics_listener",
    "node_properties",
    "profile_of",
    "properties_of",
    "temporary_data_dir",
]

READY_WORDS = "tidelog ready bootstrap.servers="
FAILED_WORDS = "tidelog failed: "
# A failure to start is reported to the parent process, like the answers to its calls.
TELL_STARTER = "--tell-starter"

Setting = str | int | float | bool | None

# Keys that the node's place in its cluster sets, and users may not.
_OF_THE_CLUSTER = (
    "node.id",
    "broker.id",
    "process.roles",
    "listeners",
    "advertised.listeners",
    "controller.quorum.voters",
    "controller.listener.names",
)
_MAPPED_PROTOCOLS = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"


@contextlib.contextmanager
def beside(error: BaseException | None) -> Iterator[None]:
    """Stop at the end of a `with` block that raised `error`. A ClusterError of the stop becomes a
    note of `error`, because it is often the cause."""
    try:
        yield
    except ClusterError as stop_error:
        if error is None:
            raise
        error.add_note(str(stop_error))


def properties_of(
    settings: Mapping[str, Setting] | None, more: Mapping[str, Setting]
) -> dict[str, str]:
    """Return settings as Kafka's properties; None leaves a key at its default."""
    named = dict(settings or {})
    named.update((key.replace("_", "."), value) for key, value in more.items())
    properties = {}
    for key, value in named.items():
        if isinstance(value, bool):
            properties[key] = "true" if value else "false"
        elif value is not None:
            properties[key] = str(value)
    return properties


def broker_properties(
    settings: Mapping[str, str],
    *,
    host: str | None = None,
    port: int | None = None,
    data_dir: str | None = None,
) -> dict[str, str]:
    """Return the properties of a developer's broker: the profile, the user's settings over it, the
    listener and the data folder.

    `listeners` in the settings sets the address. ConfigError for a host or port beside it, which
    would be ignored. Without any of them the broker listens on 127.0.0.1:9092.
    """
    from tidelog.config.broker import DEVELOPER_PROFILE
    from tidelog.config.vocabulary import ConfigError

    properties = {**DEVELOPER_PROFILE, **settings}
    if "listeners" in settings:
        for name, value in (("host", host), ("port", port)):
            if value is not None:
                raise ConfigError(
                    "listeners",
                    f"already sets the address: remove the {name} {value}, or listeners",
                )
    else:
        name = _listener_host("127.0.0.1" if host is None else host)
        properties["listeners"] = f"PLAINTEXT://{name}:{9092 if port is None else port}"
    if data_dir is not None:
        properties["log.dirs"] = ",".join(log_dirs_in(data_dir, settings))
    return properties


def _listener_host(name: str) -> str:
    """Return a host in the form of `listeners`."""
    if name in ("0.0.0.0", "::"):  # noqa: S104 - the user asked for all interfaces
        return ""
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def log_dirs_in(data_dir: str, settings: Mapping[str, str]) -> list[str]:
    """Return the log directories of a broker with this data folder: the folder, or the folders in
    it that `log.dirs` names."""
    folder = os.path.abspath(data_dir)
    names = [name.strip() for name in settings.get("log.dirs", "").split(",")]
    if len(names) < 2 or any(os.path.isabs(name) for name in names):
        return [folder]
    return [f"{folder}/{name}" for name in names]


def has_data_dir(properties: Mapping[str, str]) -> bool:
    """Return whether the settings name a directory for the data."""
    return "log.dirs" in properties or "log.dir" in properties


def temporary_data_dir(rng: Rng) -> str:
    """Return the name of a temporary folder, without the start-up cost of `tempfile`."""
    parent = os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - the name is random, the mode ours alone
    return f"{os.path.abspath(parent)}/tidelog-{os.getpid()}-{rng.bytes(6).hex()}"


def profile_of(brokers: int) -> dict[str, str]:
    """Return a developer's profile for this many brokers: topics survive the loss of one."""
    factor, enough = str(min(3, brokers)), str(max(1, min(2, brokers - 1)))
    return {
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": enough,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": enough,
    }


def advertised_at(advertised: str, index: int, count: int) -> str:
    """Return the address at which clients reach node `index` of `count`.

    `advertised` has an address for each node, or that of the first: node N is at its port + N.
    """
    from tidelog.config.broker import parse_endpoints
    from tidelog.config.vocabulary import ConfigError

    key = "advertised.listeners"
    entries = advertised.split(",")
    if len(entries) not in (1, count):
        raise ConfigError(
            key, f"has {len(entries)} addresses for {count} brokers: give one for each, or one"
        )
    (at,) = parse_endpoints(key, [entries[index if len(entries) > 1 else 0]])
    if at.name != "PLAINTEXT":
        raise ConfigError(key, f"{at.name} is not PLAINTEXT: give PLAINTEXT://HOST:PORT")
    port = at.port + index if at.port and len(entries) == 1 else at.port
    host = f"[{at.host}]" if ":" in at.host else at.host
    return f"PLAINTEXT://{host}:{port}"


def beside_inner(
    properties: Mapping[str, str], advertised: str | None, inner: str
) -> dict[str, str]:
    """Return the listeners of a node whose clients come by another one than the other nodes, which
    reach it at `inner`. `advertised` is where clients reach it, if that is not its listener: a
    mapped port, which may lead nowhere from inside."""
    own = properties["listeners"].split(",", 1)[0]
    return {
        "listeners": f"{properties['listeners']},BROKER://{inner}",
        "advertised.listeners": f"{advertised or own},BROKER://{inner}",
        "listener.security.protocol.map": f"{_MAPPED_PROTOCOLS},BROKER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
    }


def metrics_listener(settings: Mapping[str, str], index: int) -> dict[str, str]:
    """Return the metrics listener of node `index`: port + `index`."""
    key = "metrics.prometheus.listener"
    host, _, port = settings.get(key, "").rpartition(":")
    if not port.isascii() or not port.isdigit() or not int(port):
        return {}
    return {key: f"{host}:{int(port) + index}"}


def node_properties(
    settings: Mapping[str, str],
    *,
    node_id: int,
    voters: Mapping[int, str],
    host: str,
    port: int,
    data_dir: str | None,
) -> dict[str, str]:
    """Return the properties of a node of a cluster: the profile, the user's settings, its place.

    `voters` are the controllers' `host:port` by node id; a node that is not among them is a broker
    only. ConfigError for a setting that the cluster decides.
    """
    from tidelog.config.broker import DEVELOPER_PROFILE
    from tidelog.config.vocabulary import ConfigError

    for key in _OF_THE_CLUSTER:
        if key in settings:
            raise ConfigError(key, "is set by the cluster: remove it")
    listeners = f"PLAINTEXT://{_listener_host(host)}:{port}"
    is_voter = node_id in voters
    if is_voter:
        listeners += f",CONTROLLER://{voters[node_id]}"
    properties = {
        **DEVELOPER_PROFILE,
        **profile_of(len(voters)),
        **settings,
        "node.id": str(node_id),
        "process.roles": "broker,controller" if is_voter else "broker",
        "listeners": listeners,
        "listener.security.protocol.map": _MAPPED_PROTOCOLS,
        "controller.quorum.voters": ",".join(f"{n}@{at}" for n, at in sorted(voters.items())),
    }
    if data_dir is not None:
        properties["log.dirs"] = ",".join(log_dirs_in(data_dir, settings))
    return properties
