"""The interface of this room: the state of share groups, wherever it is. Implements `Persister`.

The coordinator is built when the first request needs it, or when the cluster has share groups: most
test runs have none, and all of them wait for the start.
"""

# ruff: noqa: PLC0415 - built when first needed, and imported then

from __future__ import annotations

import asyncio
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from tidelog.awaiting import all_of, called_back, drive
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.image import SHARE_GROUP_STATE_TOPIC
from tidelog.replication.internal_topics import ensure, partition_for
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinators.share.coordinator import ShareCoordinator
    from tidelog.coordinators.share.coordinator_peers import CoordinatorPeers
    from tidelog.coordinators.share.values import (
        Deletion,
        Initialization,
        Outcome,
        Reading,
        SharePartition,
        StateOutcome,
        SummaryOutcome,
        Writing,
    )
    from tidelog.coordinators.share.wire import Operation
    from tidelog.network.peers import PeerChannel
    from tidelog.replication.internal_topics import Topics
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Timeline

__all__ = ["ShareStates"]

# Before each further try: about as long as Kafka's PersisterStateManager goes on, 15 s.
PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, *[1.0] * 13)
_NO_NODE = -1
ITEMS_AT_ONCE = 200  # of one request; the loop has a turn before the next ones

_RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class ShareStates:
    """The share coordinator of a broker, and the way to those of other brokers."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        sessions: Timeline,
        work: Timeline,
        replica_manager: ReplicaManager,
        topics: Topics,
        new_channel: Callable[[str, int], PeerChannel] | None = None,
    ) -> None:
        """`topics` creates the internal topic; `new_channel` connects to other brokers' client
        listeners, None for a lone broker."""
        self._config = config
        self._sessions, self._work = sessions, work
        self._replicas = replica_manager
        self._topics = topics
        self._new_channel = new_channel
        self._image: ClusterImage | None = None
        self._coordinator: ShareCoordinator | None = None
        self._peers: CoordinatorPeers | None = None
        self._writes: dict[SharePartition, asyncio.Future[None]] = {}  # the last of each
        self._is_closed = False

    @property
    def coordinator(self) -> ShareCoordinator:
        """The coordinator of the share partitions whose states this broker keeps."""
        if self._coordinator is None:
            from tidelog.coordinators.share.coordinator import ShareCoordinator

            self._coordinator = ShareCoordinator(
                config=self._config,
                sessions=self._sessions,
                work=self._work,
                replica_manager=self._replicas,
            )
            if self._image is not None:
                self._coordinator.on_image(MetadataDelta(None, self._image), self._image)
        return self._coordinator

    @property
    def image(self) -> ClusterImage:
        """The latest image that this room received."""
        assert self._image is not None, "the first image comes before the first request"
        return self._image

    # -- the cluster -----------------------------------------------------------------------------

    def on_image(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Follow the cluster."""
        self._image = image
        if self._coordinator is not None:
            self._coordinator.on_image(delta, image)
        elif SHARE_GROUP_STATE_TOPIC in image.topics:
            _ = self.coordinator  # loads what this broker leads

    def close(self) -> None:
        """Stop: nothing is tried again."""
        self._is_closed = True
        if self._coordinator is not None:
            self._coordinator.close()
        if self._peers is not None:
            self._peers.close()

    # -- requests of this broker -----------------------------------------------------------------

    async def initialize(self, group_id: str, items: Sequence[Initialization]) -> list[Outcome]:
        """Begin states."""
        return await self._ask(ApiKey.INITIALIZE_SHARE_GROUP_STATE, group_id, items)

    async def read(self, group_id: str, items: Sequence[Reading]) -> list[StateOutcome]:
        """Read states as a leader."""
        return await self._ask(ApiKey.READ_SHARE_GROUP_STATE, group_id, items)

    async def write(self, group_id: str, items: Sequence[Writing]) -> list[Outcome]:
        """Change states. Writes of one share partition take effect in the order of the calls: an
        earlier one that is tried again would move the start offset back."""
        from tidelog.coordinators.share.values import SharePartition

        keys = [SharePartition(group_id, each.topic_id, each.partition) for each in items]
        earlier = [self._writes[key] for key in keys if key in self._writes]
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writes.update(dict.fromkeys(keys, done))
        try:
            if earlier:
                await asyncio.wait(earlier)
            return await self._ask(ApiKey.WRITE_SHARE_GROUP_STATE, group_id, items)
        finally:
            done.set_result(None)
            for key in keys:
                if self._writes.get(key) is done:
                    del self._writes[key]

    async def delete(self, group_id: str, items: Sequence[Deletion]) -> list[Outcome]:
        """Delete states."""
        return await self._ask(ApiKey.DELETE_SHARE_GROUP_STATE, group_id, items)

    async def read_summary(self, group_id: str, items: Sequence[Reading]) -> list[SummaryOutcome]:
        """Read summaries."""
        return await self._ask(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, group_id, items)

    async def _ask(self, key: ApiKey, group_id: str, items: Sequence[Any]) -> list[Any]:
        """Ask each item's coordinator, and again while that loads, moves or is out of reach."""
        from tidelog.coordinators.share.wire import OPERATIONS

        operation = OPERATIONS[key]
        outcomes: dict[int, Any] = {}
        left: Sequence[int] = range(len(items))
        for pause_s in (*PAUSES_S, None):
            await ensure(self._topics, lambda: self.image, SHARE_GROUP_STATE_TOPIC)
            for start in range(0, len(left), ITEMS_AT_ONCE):
                if start:
                    await asyncio.sleep(0)
                part = {each: items[each] for each in left[start : start + ITEMS_AT_ONCE]}
                outcomes.update(await self._try(operation, group_id, part))
            left = [each for each in left if outcomes[each].error in _RETRIABLE]
            if not left or pause_s is None or self._is_closed:
                break
            await asyncio.sleep(pause_s)
        return [outcomes[each] for each in range(len(items))]

    async def _try(
        self, operation: Operation, group_id: str, items: Mapping[int, Any]
    ) -> dict[int, Any]:
        """Ask each item's coordinator once; return the outcomes by the items' numbers."""
        by_node: dict[int, list[int]] = {}
        for number, item in items.items():
            by_node.setdefault(self._node_of(group_id, item), []).append(number)
        answers = await asyncio.gather(
            *(
                self._ask_node(node_id, operation, group_id, [items[each] for each in asked])
                for node_id, asked in by_node.items()
            )
        )
        numbers = chain.from_iterable(by_node.values())
        return dict(zip(numbers, chain.from_iterable(answers), strict=True))

    async def _ask_node(
        self, node_id: int, operation: Operation, group_id: str, items: Sequence[Any]
    ) -> list[Any]:
        if node_id == self._replicas.node_id:
            coordinator = self.coordinator
            works = (coordinator.perform(operation, group_id, each) for each in items)
            return await called_back(partial(drive, all_of(works)))
        if node_id == _NO_NODE or self._new_channel is None or self._is_closed:
            missing = operation.outcome(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available."
            )
            return [missing] * len(items)
        if self._peers is None:
            from tidelog.coordinators.share.coordinator_peers import CoordinatorPeers

            self._peers = CoordinatorPeers(self._new_channel, lambda: self.image)
        return await self._peers.ask(node_id, operation, group_id, items)

    def _node_of(self, group_id: str, item: Any) -> int:
        """Return the broker that coordinates a share partition, -1 if there is none now."""
        from tidelog.coordinators.share.values import SharePartition

        topic = self.image.topics.get(SHARE_GROUP_STATE_TOPIC)
        if topic is None:
            return _NO_NODE
        key = SharePartition(group_id, item.topic_id, item.partition).coordinator_key
        leader: int = topic.partitions[partition_for(key, len(topic.partitions))].leader
        return leader if leader >= 0 else _NO_NODE
