"""The APIs of this codec: key, name, versions, header versions and the module of their tables.

The tables are imported and compiled when an API is first used. This module says what can be read
and written; the broker's dispatcher decides what is served.
"""

from __future__ import annotations

from enum import IntEnum
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from tidelog_protocol.compiler import Codec, codec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog_protocol.schema import Message

__all__ = ["API", "Api", "ApiKey"]


class ApiKey(IntEnum):
    """Numbers of the APIs, by Kafka's names."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


_ON_BOTH = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.API_VERSIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
_ON_CONTROLLERS_ALONE = frozenset(
    {
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.UPDATE_RAFT_VOTER,
    }
)
# The listeners of 4.3's ApiMessageType; all other APIs are for the clients' listeners alone.

NEVER = 32768
"""`flexible_from` of an API without flexible versions."""


class Api:
    """One API: versions `min_version` to `max_version`, flexible from `flexible_from` on.

    `advertised_min_version` is what the ApiVersions answer says: lower than `min_version` for
    Produce, because librdkafka infers features from Produce 0 to 2 (KAFKA-18659). `module` has its
    tables. `on_brokers` and `on_controllers` say which listeners serve it, those of clients, those
    of controllers or both.
    """

    __slots__ = (
        "_request_codecs",
        "_response_codecs",
        "advertised_min_version",
        "flexible_from",
        "key",
        "max_version",
        "min_version",
        "module",
        "name",
        "on_brokers",
        "on_controllers",
    )

    def __init__(
        self,
        key: ApiKey,
        versions: tuple[int, int],
        flexible_from: int,
        module: str,
        advertised_min_version: int | None = None,
    ) -> None:
        self.key = key
        self.name = "".join(word.capitalize() for word in key.name.split("_"))
        self.min_version, self.max_version = versions
        self.flexible_from = flexible_from
        lowest = advertised_min_version
        self.advertised_min_version = self.min_version if lowest is None else lowest
        self.module = module
        self.on_controllers = key in _ON_BOTH or key in _ON_CONTROLLERS_ALONE
        self.on_brokers = key not in _ON_CONTROLLERS_ALONE
        self._request_codecs: dict[int, Codec[Any]] = {}
        self._response_codecs: dict[int, Codec[Any]] = {}

    def __repr__(self) -> str:
        return f"<Api {self.name}({int(self.key)}) {self.min_version}-{self.max_version}>"

    @property
    def request(self) -> type[Message]:
        """The request's table."""
        return self._table("Request")

    @property
    def response(self) -> type[Message]:
        """The response's table."""
        return self._table("Response")

    def _table(self, kind: str) -> type[Message]:
        module = import_module(f"tidelog_protocol.messages.{self.module}")
        return cast("type[Message]", getattr(module, self.name + kind))

    def request_codec(self, version: int) -> Codec[Any]:
        """Codec of requests in a version; ProtocolError when there is no such version."""
        known = self._request_codecs.get(version)
        if known is None:
            known = self._request_codecs[version] = codec(self.request, version)
        return known

    def response_codec(self, version: int) -> Codec[Any]:
        """Codec of responses in a version; ProtocolError when there is no such version."""
        known = self._response_codecs.get(version)
        if known is None:
            known = self._response_codecs[version] = codec(self.response, version)
        return known

    def request_header_version(self, version: int) -> int:
        """1, or 2 (with tagged fields) for flexible versions, unknown ones included."""
        return 2 if version >= self.flexible_from else 1

    def response_header_version(self, version: int) -> int:
        """0, or 1 (with tagged fields) for flexible versions.

        Always 0 for ApiVersions: its clients don't know yet what the broker understands (KIP-511).
        """
        return 1 if version >= self.flexible_from and self.key is not ApiKey.API_VERSIONS else 0


_APIS = (
    Api(ApiKey.PRODUCE, (3, 13), 9, "data", advertised_min_version=0),
    Api(ApiKey.FETCH, (4, 18), 12, "data"),
    Api(ApiKey.LIST_OFFSETS, (1, 11), 6, "data"),
    Api(ApiKey.METADATA, (0, 13), 9, "cluster"),
    Api(ApiKey.OFFSET_COMMIT, (2, 10), 8, "group_offsets"),
    Api(ApiKey.OFFSET_FETCH, (1, 10), 6, "group_offsets"),
    Api(ApiKey.FIND_COORDINATOR, (0, 6), 3, "groups"),
    Api(ApiKey.JOIN_GROUP, (0, 9), 6, "groups"),
    Api(ApiKey.HEARTBEAT, (0, 4), 4, "groups"),
    Api(ApiKey.LEAVE_GROUP, (0, 5), 4, "groups"),
    Api(ApiKey.SYNC_GROUP, (0, 5), 4, "groups"),
    Api(ApiKey.DESCRIBE_GROUPS, (0, 6), 5, "group_admin"),
    Api(ApiKey.LIST_GROUPS, (0, 5), 3, "group_admin"),
    Api(ApiKey.SASL_HANDSHAKE, (0, 1), NEVER, "sasl"),
    Api(ApiKey.API_VERSIONS, (0, 5), 3, "cluster"),
    Api(ApiKey.CREATE_TOPICS, (2, 7), 5, "admin"),
    Api(ApiKey.DELETE_TOPICS, (1, 6), 4, "admin"),
    Api(ApiKey.DELETE_RECORDS, (0, 2), 2, "data"),
    Api(ApiKey.INIT_PRODUCER_ID, (0, 5), 2, "txns"),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), 4, "data"),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), 3, "txns"),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), 3, "txns"),
    Api(ApiKey.END_TXN, (0, 5), 3, "txns"),
    Api(ApiKey.WRITE_TXN_MARKERS, (1, 2), 1, "txns"),
    Api(ApiKey.TXN_OFFSET_COMMIT, (0, 5), 3, "txns"),
    Api(ApiKey.DESCRIBE_ACLS, (1, 3), 2, "acls"),
    Api(ApiKey.CREATE_ACLS, (1, 3), 2, "acls"),
    Api(ApiKey.DELETE_ACLS, (1, 3), 2, "acls"),
    Api(ApiKey.DESCRIBE_CONFIGS, (1, 4), 4, "configs"),
    Api(ApiKey.ALTER_CONFIGS, (0, 2), 2, "configs"),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, (1, 2), 2, "admin"),
    Api(ApiKey.DESCRIBE_LOG_DIRS, (1, 5), 2, "admin"),
    Api(ApiKey.SASL_AUTHENTICATE, (0, 2), 2, "sasl"),
    Api(ApiKey.CREATE_PARTITIONS, (0, 3), 2, "admin"),
    Api(ApiKey.CREATE_DELEGATION_TOKEN, (1, 3), 2, "tokens"),
    Api(ApiKey.RENEW_DELEGATION_TOKEN, (1, 2), 2, "tokens"),
    Api(ApiKey.EXPIRE_DELEGATION_TOKEN, (1, 2), 2, "tokens"),
    Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, (1, 3), 2, "tokens"),
    Api(ApiKey.DELETE_GROUPS, (0, 3), 2, "group_admin"),
    Api(ApiKey.ELECT_LEADERS, (0, 2), 2, "cluster_admin"),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), 1, "configs"),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), 0, "cluster_admin"),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), 0, "cluster_admin"),
    Api(ApiKey.OFFSET_DELETE, (0, 0), NEVER, "group_offsets"),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, (0, 1), 1, "quotas"),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, (0, 1), 1, "quotas"),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0), 0, "users"),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), 0, "users"),
    Api(ApiKey.VOTE, (0, 2), 0, "quorum"),
    Api(ApiKey.BEGIN_QUORUM_EPOCH, (0, 1), 1, "quorum"),
    Api(ApiKey.END_QUORUM_EPOCH, (0, 1), 1, "quorum"),
    Api(ApiKey.DESCRIBE_QUORUM, (0, 2), 0, "quorum"),
    Api(ApiKey.ALTER_PARTITION, (2, 3), 0, "controller"),
    Api(ApiKey.UPDATE_FEATURES, (0, 2), 0, "cluster_admin"),
    Api(ApiKey.ENVELOPE, (0, 0), 0, "controller"),
    Api(ApiKey.FETCH_SNAPSHOT, (0, 1), 0, "quorum"),
    Api(ApiKey.DESCRIBE_CLUSTER, (0, 2), 0, "cluster"),
    Api(ApiKey.DESCRIBE_PRODUCERS, (0, 0), 0, "txn_admin"),
    Api(ApiKey.BROKER_REGISTRATION, (0, 4), 0, "controller"),
    Api(ApiKey.BROKER_HEARTBEAT, (0, 2), 0, "controller"),
    Api(ApiKey.UNREGISTER_BROKER, (0, 0), 0, "cluster_admin"),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), 0, "txn_admin"),
    Api(ApiKey.LIST_TRANSACTIONS, (0, 2), 0, "txn_admin"),
    Api(ApiKey.ALLOCATE_PRODUCER_IDS, (0, 0), 0, "controller"),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), 0, "consumer_groups"),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), 0, "consumer_groups"),
    Api(ApiKey.CONTROLLER_REGISTRATION, (0, 0), 0, "controller"),
    Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, (0, 0), 0, "telemetry"),
    Api(ApiKey.PUSH_TELEMETRY, (0, 0), 0, "telemetry"),
    Api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, (0, 0), 0, "controller"),
    Api(ApiKey.LIST_CONFIG_RESOURCES, (0, 1), 0, "configs"),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), 0, "cluster"),
    Api(ApiKey.SHARE_GROUP_HEARTBEAT, (1, 1), 0, "share_groups"),
    Api(ApiKey.SHARE_GROUP_DESCRIBE, (1, 1), 0, "share_groups"),
    Api(ApiKey.SHARE_FETCH, (1, 2), 0, "share_consumers"),
    Api(ApiKey.SHARE_ACKNOWLEDGE, (1, 2), 0, "share_consumers"),
    Api(ApiKey.ADD_RAFT_VOTER, (0, 1), 0, "raft_voters"),
    Api(ApiKey.REMOVE_RAFT_VOTER, (0, 0), 0, "raft_voters"),
    Api(ApiKey.UPDATE_RAFT_VOTER, (0, 0), 0, "raft_voters"),
    Api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, (0, 0), 0, "share_state"),
    Api(ApiKey.READ_SHARE_GROUP_STATE, (0, 0), 0, "share_state"),
    Api(ApiKey.WRITE_SHARE_GROUP_STATE, (0, 1), 0, "share_state"),
    Api(ApiKey.DELETE_SHARE_GROUP_STATE, (0, 0), 0, "share_state"),
    Api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, (0, 1), 0, "share_state"),
    Api(ApiKey.STREAMS_GROUP_HEARTBEAT, (0, 0), 0, "streams_groups"),
    Api(ApiKey.STREAMS_GROUP_DESCRIBE, (0, 0), 0, "streams_groups"),
    Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1), 0, "share_group_offsets"),
    Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, (0, 0), 0, "share_group_offsets"),
    Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, (0, 0), 0, "share_group_offsets"),
)

API: Mapping[int, Api] = MappingProxyType({int(api.key): api for api in _APIS})
"""All APIs by key."""
