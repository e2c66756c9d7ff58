"""Which handlers serve which listener: every API family, built with what it needs.

Called by `server.py` when all parts of the broker are there. What a broker of several serves beside
this is in `membership/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.configs import ConfigsApi
from tidelog.api.fetch import FetchApi
from tidelog.api.group_admin import GroupAdminApi
from tidelog.api.group_offsets import GroupOffsetsApi
from tidelog.api.groups import GroupsApi
from tidelog.api.log_dirs import LogDirsApi
from tidelog.api.metadata import MetadataApi
from tidelog.api.offsets import OffsetsApi
from tidelog.api.produce import ProduceApi
from tidelog.api.producer_ids import ProducerIdsApi
from tidelog.api.topics import TopicsApi

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Protocol

    from tidelog.auto_topics import AutoTopics
    from tidelog.config.broker import BrokerConfig
    from tidelog.controller.controller import Controller
    from tidelog.dispatch import Handler
    from tidelog.groups.admin import GroupAdmin
    from tidelog.groups.coordinator import GroupCoordinator
    from tidelog.metadata.image import ClusterImage
    from tidelog.metadata.log import MetadataLog
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Runtime
    from tidelog_protocol.apis import ApiKey

    class Family(Protocol):
        """The handlers of one API family."""

        def handlers(self) -> dict[ApiKey, Handler]:
            """By api key."""
            ...


__all__ = ["client_handlers", "joined"]


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
    allocate_producer_ids: Callable[[], Awaitable[range]],
    volume_bytes: Callable[[str], tuple[int, int]],
) -> dict[ApiKey, Handler]:
    """What clients and following brokers ask."""

    def image() -> ClusterImage:
        return metadata.image

    return joined(
        (
            ProduceApi(replicas),
            FetchApi(replicas, config, runtime.rng),
            OffsetsApi(replicas),
            ProducerIdsApi(allocate_producer_ids, config),
            LogDirsApi(replicas.logs, volume_bytes),
            MetadataApi(metadata, topics, config),
            TopicsApi(controller),
            ConfigsApi(metadata, controller, config),
            GroupsApi(groups, image, topics),
            GroupOffsetsApi(
                group_admin,
                image,
                runtime.clock,
                metadata_bytes_max=config.offset_metadata_max_bytes,
            ),
            GroupAdminApi(group_admin),
        )
    )


def joined(families: Iterable[Family]) -> dict[ApiKey, Handler]:
    """The handlers of all families; each API has one."""
    handlers: dict[ApiKey, Handler] = {}
    for family in families:
        served = family.handlers()
        assert not handlers.keys() & served.keys(), "an API has one handler"
        handlers.update(served)
    return handlers
