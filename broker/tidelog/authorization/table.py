"""The guard of each API (Kafka: KafkaApis, ControllerApis). An API without an entry is refused a
place in a dispatcher with an authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.authorization import cluster, groups, metadata, topics, transactions
from tidelog.authorization.descriptions import (
    OF_TOPOLOGY,
    described_groups,
    of_assignments,
    of_topology,
)
from tidelog.security.acls import Operation, check_creations, check_filters, filter_of
from tidelog_protocol.apis import ApiKey

if TYPE_CHECKING:
    from tidelog.authorization.guard import Guard

__all__ = ["broker_guards", "controller_guards"]


def broker_guards(*, creates_topics: bool) -> dict[ApiKey, Guard | None]:
    """Return the guards of the clients' listeners. None: the API is free, or its handler asks the
    authorizer itself (Fetch, whose sessions have the partitions; delegation tokens)."""
    return {
        **_both(),
        ApiKey.PRODUCE: topics.produce,
        ApiKey.FETCH: None,
        ApiKey.LIST_OFFSETS: topics.each(Operation.DESCRIBE),
        ApiKey.DELETE_RECORDS: topics.each(Operation.DELETE),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: topics.offset_for_leader_epoch,
        ApiKey.METADATA: metadata.metadata(creates_topics=creates_topics),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: metadata.describe_topic_partitions,
        ApiKey.FIND_COORDINATOR: groups.find_coordinator,
        ApiKey.JOIN_GROUP: groups.join_group,
        ApiKey.SYNC_GROUP: groups.with_group(Operation.READ),
        ApiKey.HEARTBEAT: groups.with_group(Operation.READ),
        ApiKey.LEAVE_GROUP: groups.with_group(Operation.READ),
        ApiKey.OFFSET_COMMIT: groups.with_group(Operation.READ, Operation.READ),
        ApiKey.OFFSET_FETCH: groups.offset_fetch,
        ApiKey.OFFSET_DELETE: groups.with_group(Operation.DELETE, Operation.READ, at_the_top=True),
        ApiKey.DESCRIBE_GROUPS: described_groups("groups"),
        ApiKey.LIST_GROUPS: groups.list_groups,
        ApiKey.DELETE_GROUPS: groups.delete_groups,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: groups.heartbeat,
        ApiKey.CONSUMER_GROUP_DESCRIBE: described_groups("group_ids", of_assignments),
        ApiKey.SHARE_GROUP_HEARTBEAT: groups.heartbeat,
        ApiKey.SHARE_GROUP_DESCRIBE: described_groups("group_ids", of_assignments),
        ApiKey.SHARE_FETCH: groups.with_group(Operation.READ, at_the_top=True),
        ApiKey.SHARE_ACKNOWLEDGE: groups.with_group(Operation.READ, at_the_top=True),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: groups.describe_share_group_offsets,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: groups.alter_share_group_offsets,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: groups.delete_share_group_offsets,
        ApiKey.STREAMS_GROUP_HEARTBEAT: groups.streams_heartbeat,
        ApiKey.STREAMS_GROUP_DESCRIBE: described_groups("group_ids", of_topology, OF_TOPOLOGY),
        ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
        ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
        ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
        ApiKey.END_TXN: transactions.end_txn,
        ApiKey.WRITE_TXN_MARKERS: cluster.brokers_or(Operation.ALTER),
        ApiKey.TXN_OFFSET_COMMIT: transactions.txn_offset_commit,
        ApiKey.DESCRIBE_PRODUCERS: transactions.describe_producers,
        ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
        ApiKey.LIST_TRANSACTIONS: transactions.list_transactions,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: None,
        ApiKey.PUSH_TELEMETRY: None,
    }


def controller_guards() -> dict[ApiKey, Guard | None]:
    """Return the guards of the controller's listener."""
    return {
        **_both(),
        ApiKey.FETCH: cluster.brokers,
        ApiKey.DESCRIBE_CLUSTER: metadata.describe_controllers,
    }


def _both() -> dict[ApiKey, Guard | None]:
    return {
        **{key: cluster.needs(each) for key, each in cluster.CLUSTER_OPERATIONS.items()},
        ApiKey.DESCRIBE_ACLS: cluster.needs(Operation.DESCRIBE, filter_of),
        ApiKey.CREATE_ACLS: cluster.needs(Operation.ALTER, check_creations),
        ApiKey.DELETE_ACLS: cluster.needs(Operation.ALTER, check_filters),
        ApiKey.API_VERSIONS: None,
        ApiKey.SASL_HANDSHAKE: None,
        ApiKey.SASL_AUTHENTICATE: None,
        ApiKey.CREATE_DELEGATION_TOKEN: None,
        ApiKey.RENEW_DELEGATION_TOKEN: None,
        ApiKey.EXPIRE_DELEGATION_TOKEN: None,
        ApiKey.DESCRIBE_DELEGATION_TOKEN: None,
        ApiKey.DESCRIBE_CLUSTER: metadata.describe_cluster,
        ApiKey.CREATE_TOPICS: topics.create_topics,
        ApiKey.DELETE_TOPICS: topics.delete_topics,
        ApiKey.CREATE_PARTITIONS: topics.each(Operation.ALTER),
        ApiKey.DESCRIBE_CONFIGS: topics.describe_configs,
        ApiKey.ALTER_CONFIGS: topics.alter_configs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: topics.alter_configs,
    }
