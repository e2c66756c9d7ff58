"""How the console tools reach a cluster: `--bootstrap-server`, and `--command-config` with the
properties of a client for brokers that ask for security.

Secrets are in the file, because every user of a machine sees the arguments of commands.
"""

# ruff: noqa: PLC0415 - after the arguments are good

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.cli.common import DEFAULT_BOOTSTRAP, CommandError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from tidelog.embedded.client_security import ClientSecurity
    from tidelog.embedded.cluster_client import ClusterClient

    T = TypeVar("T")

__all__ = ["aiokafka_config", "connect", "connected", "properties_of", "servers_of"]


def properties_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the properties of `--command-config`; CommandError if the file cannot be read."""
    path = options.command_config
    if path is None:
        return {}
    from tidelog.config.properties import parse_properties

    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    with _named(options):
        return parse_properties(data)


def servers_of(options: argparse.Namespace) -> str:
    """Return the address of brokers: that of the arguments, of the file, or Kafka's default."""
    given: str | None = options.bootstrap_server
    return given or properties_of(options).get("bootstrap.servers") or DEFAULT_BOOTSTRAP


def connect(options: argparse.Namespace, servers: str | None = None) -> ClusterClient:
    """Connect to the first of these brokers that answers; CommandError if none does. They are those
    of the arguments, if none are given."""
    from tidelog.embedded.cluster_client import ClusterClient

    return connected(ClusterClient, options, servers)


def connected(
    make: Callable[[str, ClientSecurity | None], T],
    options: argparse.Namespace,
    servers: str | None = None,
) -> T:
    """Return the result of `make` for these brokers; CommandError if none answers."""
    address = servers or servers_of(options)
    security = _security(options)
    try:
        return make(address, security)
    except ValueError:
        raise CommandError(f"{address!r} is not of the form HOST:PORT") from None
    except OSError as error:
        raise CommandError(f"no broker at {address}: {error.strerror or error}") from None


def aiokafka_config(options: argparse.Namespace) -> dict[str, Any]:
    """Return the keywords of aiokafka's clients that say where the brokers are and what they ask
    for."""
    security = _security(options)
    with _named(options):
        more = {} if security is None else security.aiokafka_config()
    return {"bootstrap_servers": servers_of(options), **more}


def _security(options: argparse.Namespace) -> ClientSecurity | None:
    properties = properties_of(options)
    if not properties:
        return None
    from tidelog.embedded.client_security import ClientSecurity

    with _named(options):
        return ClientSecurity(properties)


@contextmanager
def _named(options: argparse.Namespace) -> Iterator[None]:
    """Raise a CommandError that names the file for a property that is wrong."""
    from tidelog_storage.config_key import ConfigError

    try:
        yield
    except ConfigError as error:
        raise CommandError(f"{options.command_config}: {error.message}") from None
