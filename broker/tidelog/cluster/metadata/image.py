"""This broker's view of the cluster: immutable, replaced as a whole when records apply.

Built by `replay.py` from the metadata log; every handler and the replica manager read it. Nothing
here is changed in place, so a reader may keep an image across an await and see one consistent state
(it must get the new image to see the present).

Ids of topics and directories are 16 bytes; broker ids, epochs and partition numbers are ints.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.cluster.metadata.voters import Voters
    from tidelog.security.acls import Acl
    from tidelog_protocol.messages.metadata_records import (
        DelegationTokenRecord,
        RegisterControllerRecord,
        UserScramCredentialRecord,
    )

NO_LEADER = -1
NO_CONTROLLER = -1

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"  # KIP-405; Kafka does not call it internal
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

# Kafka's Topic.isInternal. The metadata topic is not among them: no image lists it.
INTERNAL_TOPICS = frozenset(
    {GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC}
)

# Resource types of ConfigRecord and of the config APIs (Kafka's ConfigResource.Type).
RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_BROKER_LOGGER = 8
RESOURCE_CLIENT_METRICS = 16
RESOURCE_GROUP = 32

DEFAULT_BROKER_RESOURCE = ""  # the broker resource whose settings hold for every broker

_NOTHING: Mapping[Any, Any] = MappingProxyType({})

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""Types of the entities that quotas are for (KIP-124, KIP-612)."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Types and names of an entity with quotas, in the order of `quota_entity`; None: the default."""

_ENTITY_ORDER = {CLIENT_ID: 0, USER: 1, IP: 2}


EndpointImage = tuple[str, str, int, int]
"""One listener of a broker: name, host, port, Kafka's number of the security protocol."""

FeatureRange = tuple[str, int, int]
"""A feature (KIP-584): name, lowest and highest level that a broker can work with."""


class BrokerImage(NamedTuple):
    """A registered broker. `epoch` is the offset of its registration; fenced ones lead nothing.

    `host` and `port` are where this broker reaches it: at the endpoint of the image's `listener`,
    else at the first one, which is that of its own inter-broker listener.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None
    epoch: int = -1
    fenced: bool = False
    incarnation_id: bytes = bytes(16)
    log_dirs: tuple[bytes, ...] = ()
    in_controlled_shutdown: bool = False
    endpoints: tuple[EndpointImage, ...] = ()
    features: tuple[FeatureRange, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] = ()

    @property
    def is_cordoned(self) -> bool:
        """Return whether the broker gets no new replicas: all its directories are cordoned."""
        return bool(self.log_dirs) and set(self.log_dirs) <= set(self.cordoned_log_dirs)

    def has_online(self, directory: bytes) -> bool:
        """Return whether a log directory is online, as far as it is known: zero is not known, and a
        broker that names no directories has one (DirectoryId.isOnline)."""
        return not self.log_dirs or directory == ZERO_UUID or directory in self.log_dirs

    def address(self, listener: str) -> tuple[str, int] | None:
        """Return the address advertised on this listener, or None.

        An empty name, of a broker's own request, means the first listener.
        """
        if not listener or not self.endpoints:
            return self.host, self.port
        for name, host, port, _ in self.endpoints:
            if name == listener:
                return host, port
        return None


class PartitionImage(NamedTuple):
    """One partition (Kafka's PartitionRegistration).

    Invariants: `isr` is part of `replicas`; `leader` is in `isr` or -1; `leader_epoch` grows with
    every change of leader, `partition_epoch` with every change at all; `directories` is as long as
    `replicas`.
    """

    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_eligible_leader_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0  # 0 recovered, 1 recovering from an unclean election

    def directory_of(self, node_id: int) -> bytes:
        """Return the log directory of a broker's replica (KIP-858); zero if it is unknown."""
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == node_id:
                return directory
        return ZERO_UUID


class TopicImage(NamedTuple):
    """A topic; `partitions[n].partition == n`."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...]
    is_internal: bool = False


class ClusterImage(NamedTuple):
    """The cluster as of metadata offset `offset` (-1: nothing applied yet).

    `acls` has the ACLs by their ids, `scram_credentials` those of users by name and number of the
    mechanism, `delegation_tokens` the tokens by their ids. `controllers` has the registrations of
    controllers (KIP-919), which stay when a controller goes.

    `topic_names` has the names of `topics` by id. `topic_configs` and `broker_configs` hold only
    dynamic settings, as strings; `broker_configs` is keyed by the broker id as a string, with ""
    for the cluster-wide defaults. `group_configs` has the settings of groups, which need not exist.
    `client_quotas` has the quotas of each entity by their keys,
    `client_metrics` the subscriptions of clients' metrics (KIP-714). `voters` are those of the
    metadata quorum if the log names them (KIP-853), else empty. `listener` is the name of this
    broker's inter-broker listener, if it has one.
    """

    cluster_id: str
    controller_id: int = NO_CONTROLLER
    brokers: Mapping[int, BrokerImage] = _NOTHING
    controllers: Mapping[int, RegisterControllerRecord] = _NOTHING
    topics: Mapping[str, TopicImage] = _NOTHING
    topic_names: Mapping[bytes, str] = _NOTHING
    topic_configs: Mapping[str, Mapping[str, str]] = _NOTHING
    broker_configs: Mapping[str, Mapping[str, str]] = _NOTHING
    group_configs: Mapping[str, Mapping[str, str]] = _NOTHING
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = _NOTHING
    client_metrics: Mapping[str, Mapping[str, str]] = _NOTHING
    features: Mapping[str, int] = _NOTHING
    acls: Mapping[bytes, Acl] = _NOTHING
    scram_credentials: Mapping[tuple[str, int], UserScramCredentialRecord] = _NOTHING
    delegation_tokens: Mapping[str, DelegationTokenRecord] = _NOTHING
    voters: Voters = ()
    next_producer_id: int = 0
    offset: int = -1
    leader_epoch: int = 0
    listener: str = ""

    def __repr__(self) -> str:
        return (
            f"ClusterImage(offset={self.offset}, brokers={len(self.brokers)}, "
            f"topics={len(self.topics)})"
        )

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """Return the partition, or None if the topic or the number is unknown."""
        image = self.topics.get(topic)
        if image is None or not 0 <= index < len(image.partitions):
            return None
        return image.partitions[index]

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """Return the topic of an id, or None."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """Return the dynamic settings of a topic, empty if it has none."""
        return self.topic_configs.get(topic, _NOTHING)

    def group_config(self, group_id: str) -> Mapping[str, str]:
        """Return the settings of a group, empty if it has none."""
        return self.group_configs.get(group_id, _NOTHING)

    def broker_config(self, node_id: int) -> dict[str, str]:
        """Return the dynamic settings of a broker: its own over the cluster-wide ones."""
        return {
            **self.broker_configs.get(DEFAULT_BROKER_RESOURCE, _NOTHING),
            **self.broker_configs.get(str(node_id), _NOTHING),
        }

    def address_of(self, node_id: int) -> tuple[str, int] | None:
        """Return the address of a broker, None if it is not registered."""
        broker = self.brokers.get(node_id)
        return None if broker is None else (broker.host, broker.port)

    def alive_brokers(self) -> list[BrokerImage]:
        """Return brokers that are not fenced, by id."""
        return [self.brokers[node_id] for node_id in sorted(self.brokers) if self.is_alive(node_id)]

    def is_alive(self, node_id: int) -> bool:
        """Return whether a broker is registered and not fenced."""
        broker = self.brokers.get(node_id)
        return broker is not None and not broker.fenced

    def has_online(self, partition: PartitionImage, node_id: int) -> bool:
        """Return whether a broker is alive, and so is its replica's log directory."""
        broker = self.brokers.get(node_id)
        if broker is None or broker.fenced:
            return False
        return not partition.directories or broker.has_online(partition.directory_of(node_id))

    def is_active(self, node_id: int) -> bool:
        """Return whether a broker is alive and not shutting down: it may lead, and join an ISR."""
        broker = self.brokers.get(node_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def quota_entity(names: Mapping[str, str | None]) -> QuotaEntity:
    """Return an entity as the key of its quotas; Kafka's hash maps have them in this order."""
    kinds = sorted(names, key=lambda kind: _ENTITY_ORDER.get(kind, len(_ENTITY_ORDER)))
    return tuple((kind, names[kind]) for kind in kinds)


def is_of_the_brokers(name: str) -> bool:
    """Topics that brokers create for themselves: Kafka's internal ones, and the remote tier's."""
    return is_internal_topic(name) or name == REMOTE_LOG_METADATA_TOPIC


def is_internal_topic(name: str) -> bool:
    """Kafka's own topics: offsets, transaction state, share group state."""
    return name in INTERNAL_TOPICS
