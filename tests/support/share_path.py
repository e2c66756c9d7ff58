"""Share consumers over a broker's data path, with a share coordinator that a test holds in hand.

async def story(shares): ...
path = DataPath(tmp_path)
shares = SharePath(path)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from support.handler_calls import RecordingPeer
from tidelog.api.share_fetch import ShareFetchApi
from tidelog.cluster.metadata.features import SHARE_FEATURE
from tidelog.coordinators.share.batches import merge
from tidelog.coordinators.share.values import Outcome, StateOutcome
from tidelog.network.dispatch import Deferred, RequestContext
from tidelog.shares.settings import ShareSettings
from tidelog.shares.share_partitions import SharePartitions
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.share_consumers import (
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.data_path import DataPath
    from tidelog.coordinators.share.values import Reading, Writing

VERSION = 2


class StateInHand:
    """A persister: remembers, refuses with `error`, and waits while it is `held`."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, bytes, int], StateOutcome] = {}
        self.error = ErrorCode.NONE
        self.held: asyncio.Event | None = None
        self.writes: list[Writing] = []

    def hold(self) -> None:
        """Answer nothing until `let_go`."""
        self.held = asyncio.Event()

    def let_go(self) -> None:
        """Answer what waits."""
        assert self.held is not None
        self.held.set()
        self.held = None

    async def read(self, group_id: str, items: Sequence[Reading]) -> list[StateOutcome]:
        """Return the state; a new one begins at the group's first offset."""
        await self._wait()
        if self.error:
            return [StateOutcome(self.error)] * len(items)
        return [
            self.states.get(
                (group_id, each.topic_id, each.partition), StateOutcome(start_offset=-1)
            )
            for each in items
        ]

    async def write(self, group_id: str, items: Sequence[Writing]) -> list[Outcome]:
        """Merge into the state."""
        await self._wait()
        if self.error:
            return [Outcome(self.error)] * len(items)
        for each in items:
            self.writes.append(each)
            key = (group_id, each.topic_id, each.partition)
            old = self.states.get(key, StateOutcome())
            batches = merge(old.batches, each.batches, each.start_offset)
            self.states[key] = StateOutcome(start_offset=each.start_offset, batches=batches)
        return [Outcome()] * len(items)

    async def _wait(self) -> None:
        if self.held is not None:
            await self.held.wait()


class SharePath:
    """The handlers of share consumers over a data path."""

    def __init__(
        self, path: DataPath, settings: ShareSettings | None = None, **options: Any
    ) -> None:
        self.path = path
        path.apply(features={SHARE_FEATURE: 1})
        self.settings = settings or ShareSettings(offset_reset="earliest")
        self.state = StateInHand()
        self.partitions = SharePartitions(
            path.replicas,
            self.state,  # type: ignore[arg-type]
            path.timers,
            lambda _group: self.settings,
            sessions_max=options.pop("sessions_max", 10),
            **options,
        )
        self.api = ShareFetchApi(self.partitions, max_bytes=1 << 20)
        self.epochs: dict[str, int] = {}
        self.peers: dict[str, RecordingPeer] = {}

    def send(self, key: ApiKey, request: Any, member: str, version: int = VERSION) -> Any:
        """Send; the answer if it is there at once, else the context."""
        peer = self.peers.setdefault(member, RecordingPeer())
        self.context = context = RequestContext(peer, key, version, 1, "test")
        response = self.api.handlers()[key](context, request)
        if isinstance(response, Deferred):
            assert response is context.deferred
            if not response.done:
                return context
            response = peer.responses.pop()
        API[key].response_codec(version).encode(response)
        return response

    async def answer(self, context: Any) -> Any:
        """The answer of what was sent, once it is there."""
        if not isinstance(context, RequestContext):
            return context
        peer = context.peer
        assert isinstance(peer, RecordingPeer)
        for _ in range(2000):
            if peer.responses:
                return peer.responses.pop()
            await asyncio.sleep(0.001)
        raise AssertionError("no answer")

    def fetch(
        self, *topics: Any, member: str = "m", epoch: int | None = None, **options: Any
    ) -> Any:
        """A ShareFetch of a member's session: topics are (id, partition, ack batches...)."""
        epoch = self.epochs.get(member, 0) if epoch is None else epoch
        self.epochs[member] = epoch + 1
        fields = {
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            **options,
        }
        version = fields.pop("version", VERSION)
        request = ShareFetchRequest(
            group_id=fields.pop("group_id", "g"),
            member_id=member,
            share_session_epoch=epoch,
            topics=[_topic(ShareFetchRequest.FetchTopic, *each) for each in topics],
            **fields,
        )
        return self.send(ApiKey.SHARE_FETCH, request, member, version)

    async def fetched(self, *topics: Any, **options: Any) -> Any:
        """A ShareFetch, and its answer."""
        return await self.answer(self.fetch(*topics, **options))

    async def acknowledged(
        self, *topics: Any, member: str = "m", epoch: int | None = None, **options: Any
    ) -> Any:
        """A ShareAcknowledge, and its answer."""
        epoch = self.epochs.get(member, 0) if epoch is None else epoch
        self.epochs[member] = epoch + 1
        version = options.pop("version", VERSION)
        request = ShareAcknowledgeRequest(
            group_id=options.pop("group_id", "g"),
            member_id=member,
            share_session_epoch=epoch,
            topics=[
                _topic_of(
                    ShareAcknowledgeRequest.AcknowledgeTopic,
                    ShareAcknowledgeRequest.AcknowledgePartition,
                    *each,
                )
                for each in topics
            ],
            **options,
        )
        return await self.answer(self.send(ApiKey.SHARE_ACKNOWLEDGE, request, member, version))

    def disconnect(self, member: str) -> None:
        """Close a member's connection."""
        for callback in self.peers.pop(member).callbacks:
            callback()


def _topic(kind: Any, topic_id: bytes, index: int, *acks: tuple[int, int, list[int]]) -> Any:
    return _topic_of(kind, kind.FetchPartition, topic_id, index, *acks)


def _topic_of(kind: Any, partition: Any, topic_id: bytes, index: int, *acks: Any) -> Any:
    batches = [
        partition.AcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=types
        )
        for first, last, types in acks
    ]
    data = partition(partition_index=index, acknowledgement_batches=batches)
    return kind(topic_id=topic_id, partitions=[data])


def acquired(response: Any, at: int = 0) -> list[tuple[int, int, int]]:
    """What a response's partition gives: first offset, last offset, delivery count."""
    assert not isinstance(response, RequestContext), "the request waits"
    assert response.error_code == 0, response.error_message
    if not response.responses:
        return []
    data = response.responses[0].partitions[at]
    assert data.error_code == 0, data.error_message
    return [(a.first_offset, a.last_offset, a.delivery_count) for a in data.acquired_records]
