"""Build the handlers of each listener: every API family, with what it needs.

`server.py` calls it once all parts of the broker exist. `membership.py` adds the handlers of a
cluster's node.
"""

# ruff: noqa: PLC0415 - what a request needs first is imported by it

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.api.configs import ConfigsApi
from tidelog.api.fetch import FetchApi
from tidelog.api.log_dirs import LogDirsApi
from tidelog.api.metadata import MetadataApi
from tidelog.api.offsets import OffsetsApi
from tidelog.api.produce import ProduceApi
from tidelog.api.topics import TopicsApi
from tidelog_protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Any, Protocol

    from tidelog.api.fetch_remote import RemoteFetches
    from tidelog.api.offsets_remote import RemoteOffsets
    from tidelog.cluster.auto_topics import AutoTopics
    from tidelog.cluster.controller.controller import Controller
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinators.groups.admin import GroupAdmin
    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.coordinators.transactions.transactions import Transactions
    from tidelog.metrics.meters import Meters
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog.network.peers import PeerChannel
    from tidelog.replication.log_dir_moves import LogDirMoves
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Runtime
    from tidelog.tiered.reads.remote_reads import RemoteReads
    from tidelog.tiered.tier import RemoteTier

    class Family(Protocol):
        """The handlers of one API family."""

        def handlers(self) -> dict[ApiKey, Handler]:
            """Return the handlers by API key."""
            ...


__all__ = ["client_handlers", "joined", "late_handlers", "log_dir_moves", "remote_tier"]


_OF_GROUPS = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_DELETE,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.LIST_GROUPS,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS,
)
_OF_TRANSACTIONS = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
)


def client_handlers(
    *,
    config: BrokerConfig,
    runtime: Runtime,
    metadata: MetadataLog,
    controller: Controller,
    replicas: ReplicaManager,
    groups: GroupCoordinator,
    group_admin: GroupAdmin,
    topics: AutoTopics,
    transactions: Transactions,
    volume_bytes: Callable[[str], tuple[int, int]],
    moves: Callable[[], LogDirMoves],
    reads: RemoteReads | None = None,
) -> dict[ApiKey, Handler]:
    """Return the handlers for clients and followers that every broker has.

    `moves` creates the mover of replicas between log directories on first use; `reads` is None
    without a remote tier.
    """
    remote_fetches = remote_offsets = None
    if reads is not None:
        remote_fetches, remote_offsets = remote_parts(replicas, reads)

    handlers = joined(
        (
            ProduceApi(replicas, transactions),
            FetchApi(replicas, config, runtime.rng, remote_fetches),
            OffsetsApi(replicas, remote_offsets),
            LogDirsApi(replicas.logs, volume_bytes, moves),
            MetadataApi(metadata, topics, config),
            TopicsApi(controller),
            ConfigsApi(metadata, controller, config),
        )
    )
    clock, group_partition = runtime.clock, groups.partition_for

    def group_handlers() -> dict[ApiKey, Handler]:
        from tidelog.api.group_admin import GroupAdminApi
        from tidelog.api.group_offsets import GroupOffsetsApi
        from tidelog.api.groups import GroupsApi
        from tidelog.api.txn_offsets import TxnOffsetsApi

        bytes_max = config.offset_metadata_max_bytes
        return joined(
            (
                GroupsApi(groups, lambda: metadata.image, topics),
                GroupOffsetsApi(
                    group_admin, lambda: metadata.image, clock, metadata_bytes_max=bytes_max
                ),
                TxnOffsetsApi(group_admin, transactions, clock, group_partition, replicas),
                GroupAdminApi(group_admin),
            )
        )

    def transaction_handlers() -> dict[ApiKey, Handler]:
        from tidelog.api.transactions import TransactionsApi

        return TransactionsApi(transactions, group_partition).handlers()

    return {
        **handlers,
        **late_handlers(_OF_GROUPS, group_handlers),
        **late_handlers(_OF_TRANSACTIONS, transaction_handlers),
        **txn_admin_handlers(transactions, replicas, runtime),
    }


def log_dir_moves(replicas: ReplicaManager, config: BrokerConfig, runtime: Runtime) -> LogDirMoves:
    """Create the mover of replicas between log directories; it follows their roles from now on."""
    from tidelog.replication.log_dir_moves import LogDirMoves

    moves = LogDirMoves(replicas, config, runtime)
    replicas.follow_roles(moves)
    return moves


def remote_tier(
    *,
    config: BrokerConfig,
    runtime: Runtime,
    cluster_id: str,
    replicas: ReplicaManager,
    metadata: MetadataLog,
    topics: AutoTopics,
    new_channel: Callable[[str, int], PeerChannel] | None,
    catch_up: Callable[[], Awaitable[None]],
    meters: Meters,
    on_failure: Callable[[BaseException], None],
) -> RemoteTier | None:
    """Open the remote tier; None if this broker has none. StartError, OSError."""
    if not config.remote_log_storage_system_enable:
        return None
    from tidelog.tiered.cluster_access import ClusterAccess
    from tidelog.tiered.tier import RemoteTier

    cluster = ClusterAccess(
        cluster_id=cluster_id,
        image=lambda: metadata.image,
        create_topic=topics.create,
        new_channel=new_channel,
        catch_up=catch_up,
    )
    tier = RemoteTier(
        config, runtime, replicas=replicas, cluster=cluster, meters=meters, on_failure=on_failure
    )
    tier.open()
    return tier


def remote_parts(
    replicas: ReplicaManager, reads: RemoteReads
) -> tuple[RemoteFetches, RemoteOffsets]:
    """Return the purgatories of the remote tier's reads and look-ups. Call it on the running
    loop."""
    from tidelog.api.fetch_remote import RemoteFetches
    from tidelog.api.offsets_remote import RemoteOffsets

    loop = asyncio.get_running_loop()
    return RemoteFetches(replicas, reads, loop), RemoteOffsets(replicas, reads, loop)


def txn_admin_handlers(
    transactions: Transactions, replicas: ReplicaManager, runtime: Runtime
) -> dict[ApiKey, Handler]:
    """Return the handlers that inspect transactions."""

    def build() -> dict[ApiKey, Handler]:
        from tidelog.api.txn_admin import TxnAdminApi

        return TxnAdminApi(transactions, replicas, runtime.clock).handlers()

    return late_handlers(
        (ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS), build
    )


def late_handlers(
    keys: Iterable[ApiKey], build: Callable[[], dict[ApiKey, Handler]]
) -> dict[ApiKey, Handler]:
    """Return handlers that the first request imports and builds: a start is faster without them."""
    built: dict[ApiKey, Handler] = {}

    def late(key: ApiKey) -> Handler:
        def handle(context: RequestContext, request: Any) -> Any:
            if not built:
                built.update(build())
                assert built.keys() == handlers.keys(), "each API that is served has its handler"
            return built[key](context, request)

        return handle

    handlers = {key: late(key) for key in keys}
    return handlers


def joined(families: Iterable[Family]) -> dict[ApiKey, Handler]:
    """Join the handlers of all families; each API has one."""
    handlers: dict[ApiKey, Handler] = {}
    for family in families:
        served = family.handlers()
        assert not handlers.keys() & served.keys(), "an API has one handler"
        handlers.update(served)
    return handlers
