"""Build the handlers of each listener: every API family, with what it needs.

`server.py` calls it once all parts of the broker exist. `membership.py` adds the handlers of a
cluster's node.
"""

# ruff: noqa: PLC0415 - what a request needs first is imported by it

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.api.fetch import FetchApi
from tidelog.api.metadata import MetadataApi
from tidelog.api.produce import ProduceApi
from tidelog.api.topics import TopicsApi
from tidelog.network.late_handlers import late_handlers
from tidelog_protocol.apis import API, ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Protocol

    from tidelog.api.offsets_remote import RemoteOffsets
    from tidelog.cluster.auto_topics import AutoTopics
    from tidelog.cluster.controller.controller import Controller
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinators.groups.admin import GroupAdmin
    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.coordinators.groups.share.share_groups import ShareGroups
    from tidelog.coordinators.share.share_states import ShareStates
    from tidelog.coordinators.transactions.transactions import Transactions
    from tidelog.metrics.meters import Meters
    from tidelog.network.dispatch import Dispatcher, Handler
    from tidelog.quotas.client_quotas import ClientQuotas
    from tidelog.replication.log_dir_moves import LogDirMoves
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Runtime
    from tidelog.security.authorizer import Authorizer
    from tidelog.security.scram import Credentials
    from tidelog.shares.share_partitions import SharePartitions
    from tidelog.tiered.tier import RemoteTier

    class Family(Protocol):
        """The handlers of one API family."""

        def handlers(self) -> dict[ApiKey, Handler]:
            """Return the handlers by API key."""
            ...


__all__ = [
    "Parts",
    "client_handlers",
    "config_gate",
    "config_handlers",
    "credentials_of",
    "envelope_handlers",
    "guard",
    "joined",
    "keys_of",
    "log_dir_moves",
    "new_authorizer",
    "principal_handlers",
    "sasl_handlers",
    "share_partitions",
    "token_gate",
]


class Parts(NamedTuple):
    """The parts of a broker that answer its clients.

    `volume_bytes` returns total and usable bytes of a directory's volume. `moves` creates the mover
    of replicas between log directories on first use, `shares` the share partitions, `share_groups`
    what serves members of their groups.
    """

    config: BrokerConfig
    authorizer: Authorizer | None
    runtime: Runtime
    meters: Meters
    metadata: MetadataLog
    controller: Controller
    replicas: ReplicaManager
    groups: GroupCoordinator
    group_admin: GroupAdmin
    transactions: Transactions
    share_states: ShareStates
    share_groups: Callable[[], ShareGroups]
    topics: AutoTopics
    quotas: ClientQuotas
    tier: RemoteTier | None
    volume_bytes: Callable[[str], tuple[int, int]]
    moves: Callable[[], LogDirMoves]
    shares: Callable[[], SharePartitions]


def client_handlers(parts: Parts) -> dict[ApiKey, Handler]:
    """Return the handlers for clients and followers that every broker has. Call it on the running
    loop."""
    config, replicas, metadata = parts.config, parts.replicas, parts.metadata
    remote_fetches = remote_offsets = None
    if parts.tier is not None:  # both tell metrics from the start on
        from tidelog.api.fetch_remote import RemoteFetches
        from tidelog.api.offsets_remote import RemoteOffsets

        loop = asyncio.get_running_loop()
        remote_fetches = RemoteFetches(replicas, parts.tier.reads, loop)
        remote_offsets = RemoteOffsets(replicas, parts.tier.reads, loop)
    fetches = FetchApi(replicas, config, parts.runtime.rng, remote_fetches, parts.authorizer)
    parts.quotas.limit_fetches(fetches.limit_by)
    handlers = joined(
        (
            ProduceApi(replicas, parts.transactions, parts.runtime.executor),
            fetches,
            MetadataApi(metadata, parts.topics, config),
            TopicsApi(parts.controller),
        )
    )
    of_offsets = [ApiKey.LIST_OFFSETS, ApiKey.DELETE_RECORDS, ApiKey.OFFSET_FOR_LEADER_EPOCH]
    of_log_dirs = [ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.DESCRIBE_LOG_DIRS]
    of_groups = keys_of("groups", "group_offsets", "group_admin")
    of_consumer_groups = keys_of("consumer_groups")
    of_transactions = keys_of("txns", "txn_admin")
    of_resources = [ApiKey.LIST_CONFIG_RESOURCES]
    return {
        **handlers,
        **late_handlers(of_offsets, lambda: _offset_handlers(replicas, remote_offsets)),
        **late_handlers(of_log_dirs, lambda: _log_dir_handlers(parts)),
        **config_handlers(metadata, parts.controller, config),
        **late_handlers(of_groups, lambda: _group_handlers(parts)),
        **late_handlers(of_consumer_groups, lambda: _consumer_group_handlers(parts)),
        **late_handlers(of_transactions, lambda: _transaction_handlers(parts)),
        **principal_handlers(metadata, parts.controller, config),
        **late_handlers(of_resources, lambda: _resource_handlers(metadata)),
        **(_telemetry_handlers(parts) if config.metrics_prometheus_listener else {}),
        **sasl_handlers(),
        **_share_handlers(parts),
        **late_handlers(keys_of("streams_groups"), lambda: _streams_handlers(parts)),
    }


def _offset_handlers(
    replicas: ReplicaManager, remote: RemoteOffsets | None
) -> dict[ApiKey, Handler]:
    from tidelog.api.offsets import OffsetsApi

    return OffsetsApi(replicas, remote).handlers()


def _log_dir_handlers(parts: Parts) -> dict[ApiKey, Handler]:
    from tidelog.api.log_dirs import LogDirsApi
    from tidelog.cluster.metadata.features import CORDONED_SINCE, METADATA_FEATURE

    def may_cordon() -> bool:
        return parts.metadata.image.features.get(METADATA_FEATURE, 0) >= CORDONED_SINCE

    api = LogDirsApi(parts.replicas.logs, parts.volume_bytes, parts.moves, may_cordon)
    return api.handlers()


def config_handlers(
    metadata: MetadataLog, controller: Controller, config: BrokerConfig
) -> dict[ApiKey, Handler]:
    """Return the handlers of configurations."""

    def of_configs() -> dict[ApiKey, Handler]:
        from tidelog.api.configs import ConfigsApi

        return ConfigsApi(metadata, controller, config).handlers()

    keys = [ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS]
    return late_handlers(keys, of_configs)


def config_gate(
    handlers: Mapping[ApiKey, Handler],
    metadata: MetadataLog,
    controller: Controller,
    config: BrokerConfig,
) -> dict[ApiKey, Handler]:
    """Return the handlers that alter configurations, behind the checks of the broker asked."""

    def gated() -> dict[ApiKey, Handler]:
        from tidelog.api.configs import ConfigsApi

        return ConfigsApi(metadata, controller, config).forwarding_alterations(handlers)

    return late_handlers([ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS], gated)


def sasl_handlers() -> dict[ApiKey, Handler]:
    """Return what refuses SASL requests outside of an authentication."""

    def build() -> dict[ApiKey, Handler]:
        from tidelog.api.sasl import SaslApi

        return SaslApi().handlers()

    return late_handlers([ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE], build)


def _share_handlers(parts: Parts) -> dict[ApiKey, Handler]:
    def of_states() -> dict[ApiKey, Handler]:
        from tidelog.api.share_state import ShareStateApi

        return ShareStateApi(parts.share_states).handlers()

    def of_consumers() -> dict[ApiKey, Handler]:
        from tidelog.api.share_fetch import ShareFetchApi

        fetches = ShareFetchApi(
            parts.shares(), max_bytes=parts.config.fetch_max_bytes, authorizer=parts.authorizer
        )
        parts.quotas.limit_fetches(fetches.limit_by)
        return fetches.handlers()

    def of_groups() -> dict[ApiKey, Handler]:
        from tidelog.api.share_group_offsets import ShareGroupOffsetsApi
        from tidelog.api.share_groups import ShareGroupsApi

        metadata, made = parts.metadata, parts.share_groups()
        return joined(
            (
                ShareGroupsApi(parts.group_admin, lambda: metadata.image, made.membership),
                ShareGroupOffsetsApi(made.offsets, lambda: metadata.image),
            )
        )

    parts.group_admin.share_states = lambda: parts.share_groups().states
    return {
        **late_handlers(keys_of("share_state"), of_states),
        **late_handlers(keys_of("share_consumers"), of_consumers),
        **late_handlers(keys_of("share_groups", "share_group_offsets"), of_groups),
    }


def _streams_handlers(parts: Parts) -> dict[ApiKey, Handler]:
    from tidelog.api.streams_groups import StreamsGroupsApi
    from tidelog.coordinators.groups.streams.membership import StreamsMembership
    from tidelog.coordinators.groups.streams.topic_creation import TopicCreation

    metadata = parts.metadata
    creation = TopicCreation(parts.topics.create_all, parts.runtime.sessions.time)
    return StreamsGroupsApi(
        parts.group_admin,
        lambda: metadata.image,
        StreamsMembership(parts.groups, creation),
        parts.authorizer,
        is_allowed="streams" in parts.config.group_coordinator_rebalance_protocols,
    ).handlers()


def principal_handlers(
    metadata: MetadataLog, controller: Controller, config: BrokerConfig
) -> dict[ApiKey, Handler]:
    """Return the handlers of what principals have: quotas, ACLs, credentials, tokens."""
    return {
        **_quota_handlers(metadata, controller),
        **_acl_handlers(metadata, controller, config),
        **_user_handlers(metadata, controller),
        **_token_handlers(metadata, controller, config),
    }


def _quota_handlers(metadata: MetadataLog, controller: Controller) -> dict[ApiKey, Handler]:
    """Return the handlers of client quotas."""

    def of_quotas() -> dict[ApiKey, Handler]:
        from tidelog.api.client_quotas import ClientQuotasApi

        return ClientQuotasApi(metadata, controller).handlers()

    return late_handlers(keys_of("quotas"), of_quotas)


def new_authorizer(config: BrokerConfig, metadata: MetadataLog) -> Authorizer | None:
    """Return the authorizer that is configured, or None."""
    if not config.authorizer_class_name:
        return None
    from tidelog.security.authorizer import Authorizer

    return Authorizer(config, lambda: metadata.image.acls)


def guard(parts: Parts, dispatcher: Dispatcher, *, is_controller: bool = False) -> None:
    """Let the authorizer, if there is one, be asked before the handlers of a dispatcher."""
    authorizer, metadata = parts.authorizer, parts.metadata
    if authorizer is None:
        return
    from tidelog.authorization.guard import Guards
    from tidelog.authorization.table import broker_guards, controller_guards

    if is_controller:
        table = controller_guards()
    else:
        table = broker_guards(creates_topics=parts.config.auto_create_topics_enable)
    guards = Guards(authorizer, lambda: metadata.image, table, trusts_brokers=is_controller)
    dispatcher.guard(guards.wrap)


def _acl_handlers(
    metadata: MetadataLog, controller: Controller, config: BrokerConfig
) -> dict[ApiKey, Handler]:
    """Return the handlers of ACLs."""

    def of_acls() -> dict[ApiKey, Handler]:
        from tidelog.api.acls import AclsApi

        has_authorizer = bool(config.authorizer_class_name)
        return AclsApi(metadata, controller, has_authorizer=has_authorizer).handlers()

    return late_handlers(keys_of("acls"), of_acls)


def _user_handlers(metadata: MetadataLog, controller: Controller) -> dict[ApiKey, Handler]:
    """Return the handlers of users' credentials."""

    def of_users() -> dict[ApiKey, Handler]:
        from tidelog.api.user_credentials import UserCredentialsApi

        return UserCredentialsApi(metadata, controller).handlers()

    return late_handlers(keys_of("users"), of_users)


def _token_handlers(
    metadata: MetadataLog, controller: Controller, config: BrokerConfig
) -> dict[ApiKey, Handler]:
    """Return the handlers of delegation tokens, for callers that may ask (`token_gate`)."""

    def of_tokens() -> dict[ApiKey, Handler]:
        from tidelog.api.delegation_tokens import DelegationTokensApi

        authorizer = new_authorizer(config, metadata)
        secret = config.delegation_token_secret_key
        return DelegationTokensApi(metadata, controller, authorizer, secret).handlers()

    return late_handlers(keys_of("tokens"), of_tokens)


def token_gate(
    handlers: Mapping[ApiKey, Handler], metadata: MetadataLog, config: BrokerConfig
) -> dict[ApiKey, Handler]:
    """Return the handlers of delegation tokens behind the checks of their callers."""

    def gated() -> dict[ApiKey, Handler]:
        from tidelog.api.delegation_tokens import gated

        return gated(handlers, config, new_authorizer(config, metadata))

    return late_handlers(keys_of("tokens"), gated)


def envelope_handlers(dispatcher: Callable[[], Dispatcher]) -> dict[ApiKey, Handler]:
    """Return the handler of requests in envelopes, which the controller's dispatcher answers."""

    def build() -> dict[ApiKey, Handler]:
        from tidelog.api.envelope import EnvelopeApi

        return EnvelopeApi(dispatcher).handlers()

    return late_handlers([ApiKey.ENVELOPE], build)


def credentials_of(
    metadata: MetadataLog, config: BrokerConfig, runtime: Runtime
) -> Callable[[], Credentials]:
    """Return what returns the credentials of SCRAM, which are in the metadata."""

    def credentials() -> Credentials:
        from tidelog.security.delegation_tokens import token_logins
        from tidelog.security.scram import Credentials

        return Credentials(
            lambda user, number: metadata.image.scram_credentials.get((user, number)),
            token_logins(
                lambda: metadata.image.delegation_tokens,
                config.delegation_token_secret_key,
                runtime.rng.bytes,
            ),
        )

    return credentials


def _telemetry_handlers(parts: Parts) -> dict[ApiKey, Handler]:
    def build() -> dict[ApiKey, Handler]:
        from tidelog.api.telemetry import TelemetryApi

        bytes_max = parts.config.telemetry_max_bytes
        api = TelemetryApi(parts.metadata, parts.runtime, parts.meters, bytes_max=bytes_max)
        return api.handlers()

    return late_handlers(keys_of("telemetry"), build)


def _resource_handlers(metadata: MetadataLog) -> dict[ApiKey, Handler]:
    from tidelog.api.config_resources import ConfigResourcesApi

    return ConfigResourcesApi(metadata).handlers()


def _group_handlers(parts: Parts) -> dict[ApiKey, Handler]:
    from tidelog.api.group_admin import GroupAdminApi
    from tidelog.api.group_offsets import GroupOffsetsApi
    from tidelog.api.groups import GroupsApi
    from tidelog.coordinators.groups.classic.membership import ClassicMembership

    metadata, admin = parts.metadata, parts.group_admin
    members = ClassicMembership(parts.groups, parts.runtime.rng)
    return joined(
        (
            GroupsApi(members, lambda: metadata.image, parts.topics, parts.authorizer),
            GroupOffsetsApi(
                admin,
                lambda: metadata.image,
                parts.runtime.clock,
                metadata_bytes_max=parts.config.offset_metadata_max_bytes,
            ),
            GroupAdminApi(admin),
        )
    )


def _consumer_group_handlers(parts: Parts) -> dict[ApiKey, Handler]:
    from tidelog.api.consumer_groups import ConsumerGroupsApi
    from tidelog.coordinators.groups.consumer.membership import ConsumerMembership

    return ConsumerGroupsApi(
        parts.group_admin,
        partial(getattr, parts.metadata, "image"),  # each heartbeat asks: no Python function
        ConsumerMembership(parts.groups, parts.runtime.rng),
        parts.authorizer,
        is_allowed="consumer" in parts.config.group_coordinator_rebalance_protocols,
    ).handlers()


def _transaction_handlers(parts: Parts) -> dict[ApiKey, Handler]:
    from tidelog.api.transactions import TransactionsApi
    from tidelog.api.txn_admin import TxnAdminApi
    from tidelog.api.txn_offsets import TxnOffsetsApi

    transactions, replicas, clock = parts.transactions, parts.replicas, parts.runtime.clock
    group_partition = parts.groups.partition_for
    return joined(
        (
            TransactionsApi(transactions, group_partition),
            TxnOffsetsApi(parts.group_admin, transactions, clock, group_partition, replicas),
            TxnAdminApi(transactions, replicas, clock),
        )
    )


def log_dir_moves(replicas: ReplicaManager, config: BrokerConfig, runtime: Runtime) -> LogDirMoves:
    """Create the mover of replicas between log directories; it follows their roles from now on."""
    from tidelog.replication.log_dir_moves import LogDirMoves

    moves = LogDirMoves(replicas, config, runtime)
    replicas.follow_roles(moves)
    return moves


def share_partitions(
    replicas: ReplicaManager,
    config: BrokerConfig,
    runtime: Runtime,
    persister: ShareStates,
    tier: RemoteTier | None,
    *,
    meters: Meters | None,
) -> SharePartitions:
    """Create the share partitions; they follow the roles of replicas from now on, and have metrics
    if there are meters."""
    from tidelog.shares.settings import SettingsOfGroups
    from tidelog.shares.share_partitions import SharePartitions

    shares = SharePartitions(
        replicas,
        persister,
        runtime.sessions,
        SettingsOfGroups(config, replicas),
        sessions_max=config.group_share_max_share_sessions,
        remote=None if tier is None else tier.reads,
    )
    if meters is not None:
        from tidelog.shares.gauges import tell_shares

        tell_shares(meters, shares)
    return shares


def keys_of(*modules: str) -> list[ApiKey]:
    """Return the APIs whose tables are in these modules of the protocol."""
    return [api.key for api in API.values() if api.module in modules]


def joined(families: Iterable[Family]) -> dict[ApiKey, Handler]:
    """Join the handlers of all families; each API has one."""
    handlers: dict[ApiKey, Handler] = {}
    for family in families:
        served = family.handlers()
        assert not handlers.keys() & served.keys(), "an API has one handler"
        handlers.update(served)
    return handlers
