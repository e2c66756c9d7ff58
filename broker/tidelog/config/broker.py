"""`BrokerConfig`: the settings of one broker, all checked before anything starts.

The names are those of Kafka's `server.properties` (`properties.py` parses files). An undeclared key
or a value out of range is refused in one line that names the key.
"""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from tidelog.config import group_keys
from tidelog.config import keys as config_keys
from tidelog.config.authorizer_keys import OF_AUTHORIZER, AuthorizerKeys, check_authorizer
from tidelog.config.group_limits import check_group_keys
from tidelog.config.inert_keys import InertKeys
from tidelog.config.listeners import (
    ListenerSettings,
    broken_listeners,
    check_listener_name,
    listed,
    parse_own,
    security_protocols,
    shared_port,
)
from tidelog.config.security_keys import URLS, SaslKeys, TlsKeys, TokenKeys
from tidelog.config.tiered_keys import TieredKeys, is_place_of_store
from tidelog.config.unavailable_keys import UnavailableKeys
from tidelog.config.vocabulary import CLUSTER_WIDE, READ_ONLY, BrokerKey, ConfigError
from tidelog_storage.config import BROKER_KEYS, LogConfig
from tidelog_storage.config_key import collect_keys, refuse
from tidelog_storage.config_rules import validate_broker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog_storage.config_key import ConfigKey

# Settings of a broker on a developer's machine, under the user's own: internal topics fit on one
# broker, and the first member of a group does not wait for others.
DEVELOPER_PROFILE: Mapping[str, str] = {
    "node.id": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

_NO_LISTENER = (
    "There must be at least one broker advertised listener. Perhaps all listeners appear in"
    " controller.listener.names?"
)
_UNROUTABLE = "0.0.0.0"  # noqa: S104 - refused as an advertised address, never bound here
_OWN_HOSTS = ("localhost", "127.0.0.1", "::1")


class Endpoint(NamedTuple):
    """One entry of listeners or advertised.listeners."""

    name: str
    host: str
    port: int


class Voter(NamedTuple):
    """One entry of controller.quorum.voters: a node of the metadata quorum."""

    node_id: int
    host: str
    port: int


class BrokerConfig(
    config_keys.ProcessKeys,
    config_keys.TopicKeys,
    config_keys.QuorumKeys,
    config_keys.FetchKeys,
    config_keys.QuotaKeys,
    config_keys.LogKeys,
    config_keys.GroupKeys,
    group_keys.ConsumerGroupKeys,
    group_keys.ShareGroupKeys,
    group_keys.ShareCoordinatorKeys,
    group_keys.StreamsGroupKeys,
    config_keys.TransactionKeys,
    TlsKeys,
    SaslKeys,
    TokenKeys,
    AuthorizerKeys,
    TieredKeys,
    InertKeys,
    UnavailableKeys,
):
    """The settings of one broker, immutable; attributes are Kafka's names with underscores.

    `given` holds the strings the user set, `KEYS` every declared key by its Kafka name (those of
    `keys.py`, `group_keys.py` and `tiered_keys.py` and the topic defaults of
    `tidelog_storage.config`), `log_defaults` the configuration of topics without settings of their
    own.
    """

    KEYS: Mapping[str, ConfigKey] = {}
    given: Mapping[str, str]
    log_defaults: LogConfig
    log_names_voters = False
    """Whether the metadata log names the voters; `with_voters_of_log` sets it."""

    def __init__(
        self, values: Mapping[str, object], given: Mapping[str, str], log_defaults: LogConfig
    ) -> None:
        self.__dict__.update(values)
        self.__dict__["given"] = given
        self.__dict__["log_defaults"] = log_defaults

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: a BrokerConfig does not change; build a new one")

    def __repr__(self) -> str:
        shown = {
            name: text if self.shows(name) else "[hidden]" for name, text in self.given.items()
        }
        return f"BrokerConfig({shown!r})"

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Build the configuration from these settings; ConfigError names the first invalid key."""
        values: dict[str, object] = {}
        for name, key in cls.KEYS.items():
            text = properties.get(name)
            if text is not None:
                values[name.replace(".", "_")] = key.parse(text)
            elif key.required:
                raise ConfigError(
                    name, f'Missing required configuration "{name}" which has no default value.'
                )
            else:
                values[name.replace(".", "_")] = key.default
        if values["broker_id"] == -1:
            values["broker_id"] = values["node_id"]  # the old name has the same id
        log_defaults = LogConfig.from_broker(properties)
        config = cls(values, dict(properties), log_defaults)
        config._check_names()
        validate_broker(
            log_defaults, remote_storage_system_enabled=config.remote_log_storage_system_enable
        )
        config._check_together()
        return config

    def with_dynamic(self, overrides: Mapping[str, str]) -> BrokerConfig:
        """Return this configuration with dynamic settings over the given ones.

        Undeclared names are left out: a downgraded broker may find some. ConfigError for an invalid
        value.
        """
        known = {
            name: text
            for name, text in overrides.items()
            if name in self.KEYS or check_listener_name(name) is not None
        }
        if not known:
            return self
        self._check_urls(known)
        return _with_dynamic(self, frozenset(known.items()))

    def _check_urls(self, overrides: Mapping[str, str]) -> None:
        """Let clients name no URL that the broker would read, but those that it was started with
        (Kafka: org.apache.kafka.sasl.oauthbearer.allowed.urls, of its JVM)."""
        allowed = {text for name, text in self.given.items() if name.endswith(URLS)}
        for name, text in overrides.items():
            if name.endswith(URLS) and text not in allowed:
                raise ConfigError(
                    name, f"{name}: {text} is not among the URLs of the settings at the start"
                )

    def value(self, name: str) -> object:
        """Return the value of a key by its Kafka name."""
        value: object = getattr(self, name.replace(".", "_"))
        return value

    def _check_names(self) -> None:
        prefixes = (
            self.remote_log_storage_manager_impl_prefix,
            self.remote_log_metadata_manager_impl_prefix,
        )
        for name in self.given:
            if name in DYNAMIC_ONLY_KEYS:
                raise ConfigError(
                    name, f"{name} can only be set while the broker runs, as with kafka-configs"
                )
            own = check_listener_name(name)
            if own is not None:
                parse_own(name, self.given[name], own)
            elif name not in self.KEYS and not name.startswith(prefixes):
                raise ConfigError(name, f"Unknown configuration '{name}'{self._hint(name)}")

    def _hint(self, unknown: str) -> str:
        """Return what an unknown name may have meant."""
        import difflib  # noqa: PLC0415 - errors are rare

        lower = unknown.lower()
        if check_listener_name(lower) is not None:
            return f"; did you mean {lower}?"
        near = difflib.get_close_matches(unknown, self.KEYS, n=1)
        return f"; did you mean {near[0]}?" if near else ""

    def given_with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the settings with this prefix, without it: the configuration of a plug-in."""
        return {
            name[len(prefix) :]: text
            for name, text in self.given.items()
            if name.startswith(prefix) and len(name) > len(prefix)
        }

    def shows(self, name: str) -> bool:
        """Return whether a key's value may be shown: an undeclared one may be a plug-in's
        secret."""
        if name in OF_AUTHORIZER:
            return False
        key = ALTERABLE_KEYS.get(name) or check_listener_name(name)
        if key is not None:
            return not key.sensitive
        prefix, text = self.remote_log_storage_manager_impl_prefix, self.given.get(name)
        return (
            text is not None
            and name.startswith(prefix)
            and is_place_of_store(
                self.remote_log_storage_manager_class_name, name[len(prefix) :], text
            )
        )

    def _check_together(self) -> None:
        """Check the rules between keys."""
        voters = self.quorum_voters()
        is_lone = self.is_only_voter() and "controller" in self.process_roles
        if not is_lone or (voters and self.controller_listeners()):
            self._check_quorum(voters)
        if self.broker_id not in (-1, self.node_id):
            raise ConfigError(
                "broker.id",
                f"You must set `node.id` to the same value as `broker.id`: "
                f"{self.node_id} is not {self.broker_id}.",
            )
        for name in ("listeners", "controller.listener.names"):
            if not self.value(name):
                raise ConfigError(
                    name,
                    f"Configuration '{name}' must not be empty. Valid values include: any non-empty"
                    " value",
                )
        if not self.client_listeners():
            raise ConfigError("listeners", _NO_LISTENER)
        if not self.connections_per_ip() and not self.max_connections_per_ip:
            raise ConfigError(
                "max.connections.per.ip",
                "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides"
                " property is set.",
            )
        if 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ConfigError(
                "queued.max.request.bytes",
                "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
            )
        self._check_protocols()
        self._check_advertised()
        self._check_mechanisms()
        check_group_keys(self.value)
        check_authorizer(self.value)

    def _check_protocols(self) -> None:
        if self.inter_broker_listener_name and "security.inter.broker.protocol" in self.given:
            raise ConfigError(
                "inter.broker.listener.name",
                "Only one of inter.broker.listener.name and security.inter.broker.protocol should"
                " be set.",
            )
        for endpoint in (*self.client_listeners(), *self.controller_listeners()):
            self.listener_settings(endpoint.name)

    def _check_mechanisms(self) -> None:
        for listener, key in (
            (self.inter_broker_listener(), "sasl.mechanism.inter.broker.protocol"),
            (self.controller_listener_names[0], "sasl.mechanism.controller.protocol"),
        ):
            if not self.is_alone() or key in self.given:
                self._check_mechanism(listener, key)

    def _check_mechanism(self, listener: str, key: str) -> None:
        """Check that nodes can authenticate to each other on a listener."""
        settings = self.listener_settings(listener)
        is_here = listener in [
            endpoint.name for endpoint in (*self.client_listeners(), *self.controller_listeners())
        ]
        if not settings.is_sasl or not is_here:
            return
        enabled = settings.value("sasl.enabled.mechanisms")
        if settings.value(key) not in enabled:
            raise ConfigError(
                key,
                f"{key}: {settings.value(key)} must be included in"
                f" {settings.key('sasl.enabled.mechanisms')}, {','.join(enabled)}, when SASL is"
                f" used on {listener}",
            )

    def listener_settings(self, listener: str) -> ListenerSettings:
        """Return the settings of one listener; ConfigError if its protocol is unknown."""
        key = "listener.security.protocol.map"
        protocols = security_protocols(self.listener_security_protocol_map)
        # As in Kafka: until the map is set, controllers' listeners of other names have no security,
        # unless another listener has some.
        if key not in self.given and listener in self.controller_listener_names:
            names = [endpoint.name for endpoint in parse_endpoints("listeners", self.listeners)]
            if not any(protocols.get(name, "PLAINTEXT") != "PLAINTEXT" for name in names):
                protocols.setdefault(listener, "PLAINTEXT")
        if listener not in protocols:
            raise broken_listeners(
                key, self.listeners, f"No security protocol defined for listener {listener}"
            )
        return ListenerSettings(self.__dict__, self.given, listener, protocols[listener])

    def of_listeners(self, key: str) -> dict[str, Any]:
        """Return the values of the clients' listeners that have their own."""
        names = [endpoint.name for endpoint in self.client_listeners()]
        every = [self.listener_settings(name) for name in names]
        return {each.listener: each.value(key) for each in every if each.is_own(key)}

    def protected_listener(self) -> str | None:
        """Return the listener that other brokers do not share with clients, if there is one."""
        return self.inter_broker_listener() if len(self.client_listeners()) > 1 else None

    def _check_advertised(self) -> None:
        """Check them in Kafka's order (KafkaConfig.validateValues)."""
        key, of_brokers = "advertised.listeners", "inter.broker.listener.name"
        given = self._given_advertised()
        advertised = [endpoint.name for endpoint in self.advertised_endpoints()]
        if not advertised:
            raise ConfigError(key, _NO_LISTENER)
        listener = self.inter_broker_listener()
        if listener not in advertised:
            known = security_protocols(self.listener_security_protocol_map)
            if listener not in known and listener not in self.controller_listener_names:
                raise ConfigError(
                    of_brokers,
                    f"Listener with name {listener} defined in {of_brokers} not found in"
                    " listener.security.protocol.map.",
                )
            raise ConfigError(
                of_brokers,
                f"{of_brokers} must be a listener name defined in {key}. The valid options based on"
                f" currently configured listeners are {','.join(advertised)}",
            )
        listeners = [endpoint.name for endpoint in parse_endpoints("listeners", self.listeners)]
        if not set(advertised) <= set(listeners):
            raise ConfigError(
                key,
                f"{key} listener names must be equal to or a subset of the ones defined in"
                f" listeners. Found {','.join(advertised)}. The valid options based on the current"
                f" configuration are {','.join(listeners)}",
            )
        if any(endpoint.host == _UNROUTABLE for endpoint in (*given, *self.advertised_endpoints())):
            raise ConfigError(
                key,
                f"{key} cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP"
                " address.",
            )

    def _given_advertised(self) -> list[Endpoint]:
        """Return the entries of advertised.listeners; ConfigError for a wrong one."""
        key, entries = "advertised.listeners", self.advertised_listeners
        if entries is None:
            return []
        if not entries:
            raise ConfigError(
                key,
                f"Configuration '{key}' must not be empty. Valid values include: any non-empty"
                " value",
            )
        if "" in entries:
            raise ConfigError(key, f"Configuration '{key}' values must not be empty.")
        given = parse_endpoints(key, entries)
        known = security_protocols(self.listener_security_protocol_map)
        for name in (endpoint.name for endpoint in given):
            if name not in known and name not in self.controller_listener_names:
                reason = f"No security protocol defined for listener {name}"
                raise broken_listeners(key, entries, reason)
        return given

    def _check_quorum(self, voters: list[Voter]) -> None:
        key = "controller.quorum.voters"
        is_controller = "controller" in self.process_roles
        ids = [voter.node_id for voter in voters]
        if not self.is_dynamic() and is_controller != (self.node_id in ids):
            named = f"the set of voters {key}=Set({', '.join(map(str, ids))})"
            raise ConfigError(
                key,
                f"If process.roles contains the 'controller' role, the node id {self.node_id} must"
                f" be included in {named}"
                if is_controller
                else "If process.roles contains just the 'broker' role, the node id"
                f" {self.node_id} must not be included in {named}",
            )
        self._check_controller_listeners(is_controller=is_controller)

    def _check_controller_listeners(self, *, is_controller: bool) -> None:
        key = "controller.listener.names"
        names = [endpoint.name for endpoint in self.controller_listeners()]
        of_listeners = "appearing in the 'listeners' configuration when running"
        problem = None
        if not is_controller and names:
            problem = f"must not contain a value {of_listeners} KRaft with just the broker role"
        elif is_controller and not names:
            problem = f"must contain at least one value {of_listeners} the KRaft controller role"
        elif is_controller and not set(self.controller_listener_names) <= set(names):
            problem = f"must only contain values {of_listeners} the KRaft controller role"
        elif len(names) > 1:
            problem = "may name one listener: tidelog's controllers have no second one"
        if problem is not None:
            raise ConfigError(key, f"{key} {problem}")

    def is_only_voter(self) -> bool:
        """Return whether this node alone is the metadata quorum, and stays so."""
        return not self.is_dynamic() and all(
            voter.node_id == self.node_id for voter in self.quorum_voters()
        )

    def is_dynamic(self) -> bool:
        """Return whether the metadata log names the voters (KIP-853)."""
        return self.log_names_voters

    def with_voters_of_log(self) -> BrokerConfig:
        """Return this configuration for directories whose metadata log names the voters;
        ConfigError if it does not fit them."""
        config = copy.copy(self)
        config.__dict__["log_names_voters"] = True
        if not config.bootstrap_servers():
            raise ConfigError(
                "controller.quorum.bootstrap.servers",
                "is missing: the metadata log names the voters of the quorum (kraft.version 1)",
            )
        config._check_quorum([])
        return config

    def bootstrap_servers(self) -> list[tuple[str, int]]:
        """Return host and port of each of controller.quorum.bootstrap.servers."""
        key, found = "controller.quorum.bootstrap.servers", []
        for entry in self.controller_quorum_bootstrap_servers:
            host, colon, port = entry.rpartition(":")
            is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65536
            if not (colon and host and is_port):
                raise ConfigError(key, f"Invalid url in bootstrap.servers: {entry}")
            found.append((host.strip("[]"), int(port)))
        return found

    def asks_others(self, host_name: str) -> bool:
        """Return whether the first controllers to ask are others than this node, on a machine of
        this name: it then joins them, and does not begin a quorum of its own."""
        own = [*self.controller_listeners(), *self.advertised_controllers()]
        hosts = {*_OWN_HOSTS, host_name, *(endpoint.host for endpoint in own)}
        ports = {endpoint.port for endpoint in own}
        asked = self.bootstrap_servers()
        is_controller = "controller" in self.process_roles
        are_own = all(host in hosts and port in ports for host, port in asked)
        return not (is_controller and len(asked) <= 1 and are_own)

    def is_alone(self) -> bool:
        """Return whether no other node can be in this node's cluster.

        It needs nothing that is for other nodes: no fetchers, no channels, no periodic work of the
        controller. It formats its own new directories, keeps its other log directories when one
        fails, and finds its high watermarks in its logs.
        """
        return self.is_only_voter() and not self.controller_listeners()

    def quorum_voters(self) -> list[Voter]:
        """Return the voters of the metadata quorum, by id; empty if it is this node alone."""
        key = "controller.quorum.voters"
        voters: dict[int, Voter] = {}
        for entry in self.controller_quorum_voters:
            node_id, at, address = entry.partition("@")
            host, colon, port = address.rpartition(":")
            form = "Each entry should be in the form `{id}@{host}:{port}`."
            if not at:
                raise ConfigError(key, f"Invalid configuration value for {key}. {form}")
            if not (node_id.isascii() and node_id.isdigit()):
                raise ConfigError(key, f"Failed to parse voter ID as an integer from {node_id}")
            is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65536
            if not (colon and host and is_port):
                raise ConfigError(
                    key,
                    f"Failed to parse host name from entry {entry} for the configuration {key}."
                    f" {form}",
                )
            if int(node_id) in voters:
                raise ConfigError(key, f"voter {node_id} is named twice")
            voters[int(node_id)] = Voter(int(node_id), host.strip("[]"), int(port))
        return [voters[node_id] for node_id in sorted(voters)]

    def controller_listeners(self) -> list[Endpoint]:
        """Return the listeners to which the other nodes of the metadata quorum connect."""
        return [
            endpoint
            for endpoint in parse_endpoints("listeners", self.listeners)
            if endpoint.name in self.controller_listener_names
        ]

    def advertised_controllers(self) -> list[Endpoint]:
        """Return the addresses of this controller that a log of voters names: its listeners, unless
        advertised.listeners has them."""
        advertised = [
            endpoint
            for endpoint in parse_endpoints("advertised.listeners", self.advertised_listeners or [])
            if endpoint.name in self.controller_listener_names
        ]
        return advertised or self.controller_listeners()

    def client_listeners(self) -> list[Endpoint]:
        """Return the listeners of clients and brokers: those that are not the controller's."""
        return [
            endpoint
            for endpoint in parse_endpoints("listeners", self.listeners)
            if endpoint.name not in self.controller_listener_names
        ]

    def advertised_endpoints(self) -> list[Endpoint]:
        """Return the endpoints given to clients; the listeners unless advertised.listeners is set.

        The server later replaces an empty host and port 0 by those that it bound.
        """
        if self.advertised_listeners is None:
            return self.client_listeners()
        return [
            endpoint
            for endpoint in parse_endpoints("advertised.listeners", self.advertised_listeners)
            if endpoint.name not in self.controller_listener_names
        ]

    def inter_broker_listener(self) -> str:
        """Return the listener for brokers: the configured one, else PLAINTEXT, else the first."""
        names = [endpoint.name for endpoint in self.advertised_endpoints()]
        if self.inter_broker_listener_name is not None:
            return self.inter_broker_listener_name
        if "security.inter.broker.protocol" in self.given:
            return self.security_inter_broker_protocol
        return "PLAINTEXT" if "PLAINTEXT" in names else names[0]

    def connections_per_ip(self) -> dict[str, int]:
        """Return the limits of max.connections.per.ip.overrides by address."""
        key, limits = "max.connections.per.ip.overrides", dict[str, int]()
        for entry in filter(None, self.max_connections_per_ip_overrides.split(",")):
            address, colon, count = (part.strip() for part in entry.rpartition(":"))
            if not (colon and address and count.isascii() and count.isdigit()):
                raise ConfigError(key, f"{entry!r} is not of the form ADDRESS:COUNT")
            limits[address] = int(count)
        return limits

    def log_directories(self) -> list[str]:
        """Return log.dirs, or log.dir."""
        return self.log_dirs if self.log_dirs is not None else self.log_dir

    def cordoned_directories(self) -> list[str]:
        """Return the log directories that cordoned.log.dirs names."""
        named = self.cordoned_log_dirs
        return [path for path in self.log_directories() if path in named or named == ["*"]]

    def check_cordoned(self) -> None:
        """ConfigError if cordoned.log.dirs names what is no log directory of this broker. Not for
        settings of other brokers, whose directories only they know."""
        key, named = "cordoned.log.dirs", self.cordoned_log_dirs
        for entry in () if named == ["*"] else named:
            if entry not in self.log_directories():
                raise refuse(
                    key,
                    named,
                    f"Invalid entry in {key}: {entry}. All cordoned log dirs must be entries of"
                    " log.dirs or log.dir.",
                )

    def metadata_directory(self) -> str:
        """Return the directory of `__cluster_metadata-0`."""
        return self.metadata_log_dir or self.log_directories()[0]


BrokerConfig.KEYS = {**collect_keys(BrokerConfig), **BROKER_KEYS}
DYNAMIC_ONLY_KEYS: Mapping[str, ConfigKey] = collect_keys(config_keys.DynamicOnlyKeys)
ALTERABLE_KEYS: Mapping[str, ConfigKey] = {**BrokerConfig.KEYS, **DYNAMIC_ONLY_KEYS}
"""All that a request may name; `update_mode` says what it may change."""

# Topic defaults in units that only a restart can change (KIP-226: the ms keys are dynamic).
_READ_ONLY_TOPIC_DEFAULTS = frozenset(
    {
        "log.flush.scheduler.interval.ms",
        "log.retention.hours",
        "log.retention.minutes",
        "log.roll.hours",
        "log.roll.jitter.hours",
    }
)


def update_mode(name: str) -> str:
    """Return how a declared key may change while the broker runs."""
    key = ALTERABLE_KEYS[name]
    if isinstance(key, BrokerKey):
        return key.mode
    return READ_ONLY if name in _READ_ONLY_TOPIC_DEFAULTS else CLUSTER_WIDE


def parse_endpoints(key: str, entries: list[str]) -> list[Endpoint]:
    """Parse `name://host:port` entries; IPv6 hosts in brackets. ConfigError names `key`."""
    endpoints = []
    for entry in entries:
        name, separator, address = entry.partition("://")
        host, colon, port = address.rpartition(":")
        if not (separator and colon and name and port.isascii() and port.isdigit()):
            reason = f"Unable to parse {entry} to a broker endpoint"
            raise broken_listeners(key, entries, reason)
        if int(port) > 65535:
            reason = f"Unable to parse {entry} to a broker endpoint: port {port}"
            raise broken_listeners(key, entries, reason)
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        endpoints.append(Endpoint(name.upper(), host, int(port)))
    names = [endpoint.name for endpoint in endpoints]
    if len(set(names)) != len(names):
        reason = f"Each listener must have a different name, listeners: {listed(entries)}"
        raise broken_listeners(key, entries, reason)
    if key == "listeners":
        shared = shared_port([(endpoint.host, endpoint.port) for endpoint in endpoints], entries)
        if shared is not None:
            raise broken_listeners(key, entries, shared)
    return endpoints


@lru_cache(maxsize=16)
def _with_dynamic(config: BrokerConfig, dynamic: frozenset[tuple[str, str]]) -> BrokerConfig:
    """Return a configuration with dynamic settings; thousands of topics of one request ask for the
    same."""
    made = BrokerConfig.from_properties({**config.given, **dict(dynamic)})
    return made.with_voters_of_log() if config.log_names_voters else made
