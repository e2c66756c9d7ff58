"""Send commit and abort markers from a coordinator to the leaders of the partitions.

Kafka's TransactionMarkerChannelManager. A decided transaction is a `Marking`. Each of its
partitions is retried at its leader until the marker is written or no longer possible; then the
coordinator is called. Markers for partitions led here are written at once. Those for another broker
wait for its answer to the previous request, and go as one request.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.awaiting import drive
from tidelog.network.peers import PeerError
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
    from typing import Any

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.coordinators.transactions.shard import TransactionShard
    from tidelog.seams import TimerHandle, Timers
    from tidelog_storage.types import TopicPartition

    Outcome = dict[TopicPartition, ErrorCode]
    AskLeader = Callable[[int, "list[Marker]"], Awaitable["list[Outcome]"]]
    WriteMarkers = Callable[[Sequence["Marker"]], Coroutine[Any, Any, list[Outcome]]]

__all__ = ["Marker", "MarkerSender", "Marking"]

logger = logging.getLogger(__name__)

RETRY_S = 0.05
MARKERS_MAX = 500  # in one request
PARTITIONS_MAX = 5_000  # in one request of several markers; a broker takes 25,000 elements

# INVALID_PRODUCER_EPOCH: the partition has a newer epoch of the producer, so it needs no marker.
# Kafka's TransactionMarkerRequestCompletionHandler drops the other partitions too: their readers
# then wait until the coordinator moves.
_DONE = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)


class Marker(NamedTuple):
    """The end of one transaction for some partitions of one leader."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True, eq=False)
class Marking:
    """A transaction whose markers are not all written yet.

    `left` are the partitions without one; when it is empty, `on_done` is called, once.
    """

    shard: TransactionShard
    producer_id: int
    producer_epoch: int
    _: KW_ONLY
    is_commit: bool
    transaction_version: int
    left: set[TopicPartition]
    on_done: Callable[[None], None]
    is_over: bool = False

    def marker(self, partitions: Iterable[TopicPartition]) -> Marker:
        """Return the marker for these partitions, with the coordinator's current epoch."""
        return Marker(
            self.producer_id,
            self.producer_epoch,
            self.is_commit,
            self.shard.leader_epoch,
            self.transaction_version,
            tuple(sorted(partitions)),
        )


_Portion = tuple[Marking, "set[TopicPartition]"]


class MarkerSender:
    """Markings by the leader that they wait for.

    Invariant: each partition of a marking's `left` is in a queue, in a sent request, being written
    here, or in `_later`.
    """

    def __init__(
        self,
        *,
        node_id: int,
        timers: Timers,
        write_here: WriteMarkers,
        ask_leader: AskLeader | None,
    ) -> None:
        """`write_here` writes markers of partitions led here (work for `awaiting.drive`).
        `ask_leader` sends to another broker, PeerError on failure; None for a lone broker."""
        self._node_id = node_id
        self._timers = timers
        self._write_here = write_here
        self._ask_leader = ask_leader
        self._image: ClusterImage | None = None
        self._markings: dict[Marking, None] = {}
        self._queues: dict[int, list[_Portion]] = {}
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._later: dict[Marking, set[TopicPartition]] = {}
        self._retry: TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of transactions whose markers are not all written."""
        return len(self._markings)

    def on_image(self, image: ClusterImage) -> None:
        """Route waiting partitions again, because leaders may have moved."""
        self._image = image
        self._again()

    def send(self, marking: Marking) -> None:
        """Retry until every marker is written, or `forget` is called for the shard."""
        self._markings[marking] = None
        if not self._settle(marking):
            self._route(marking, set(marking.left))

    def forget(self, shard: TransactionShard) -> None:
        """Drop the markings of a shard that has another coordinator now."""
        for marking in [each for each in self._markings if each.shard is shard]:
            self._end(marking)

    def close(self) -> None:
        """Stop sending."""
        for marking in list(self._markings):
            self._end(marking)
        for request in self._requests.values():
            request.cancel()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _end(self, marking: Marking) -> None:
        marking.is_over = True
        self._later.pop(marking, None)
        del self._markings[marking]

    def _settle(self, marking: Marking) -> bool:
        """Call the coordinator if no partition is left."""
        if not marking.is_over and not marking.left:
            self._end(marking)
            marking.on_done(None)
        return marking.is_over

    # -- to the leaders --------------------------------------------------------------------------

    def _route(self, marking: Marking, partitions: set[TopicPartition]) -> None:
        """Give each partition to its leader's queue; a deleted topic needs no marker."""
        assert self._image is not None, "a coordinator leads by an image"
        by_leader: dict[int, set[TopicPartition]] = {}
        for one in sorted(partitions):  # sorted, so that runs are deterministic
            topic = self._image.topics.get(one.topic)
            if topic is None or one.partition >= len(topic.partitions):
                marking.left.discard(one)
                continue
            leader = topic.partitions[one.partition].leader
            if leader < 0 or (leader != self._node_id and self._ask_leader is None):
                self._delay(marking, {one})
            else:
                by_leader.setdefault(leader, set()).add(one)
        for leader, owned in by_leader.items():
            if leader == self._node_id:
                self._write([(marking, owned)])
            else:
                self._queues.setdefault(leader, []).append((marking, owned))
                self._ask(leader)
        self._settle(marking)

    def _write(self, portions: list[_Portion]) -> None:
        markers = [marking.marker(owned) for marking, owned in portions]
        drive(self._write_here(markers), partial(self._answered, portions))

    def _ask(self, leader: int) -> None:
        """Send one request at a time to each broker; later markers wait for the next one."""
        if leader in self._requests:
            return
        queue = self._queues.pop(leader, [])
        count = _fitting(queue)
        portions = [portion for portion in queue[:count] if not portion[0].is_over]
        if queue[count:]:
            self._queues[leader] = queue[count:]
        if portions:
            task = asyncio.get_running_loop().create_task(self._request(leader, portions))
            self._requests[leader] = task

    async def _request(self, leader: int, portions: list[_Portion]) -> None:
        assert self._ask_leader is not None
        outcomes: list[Outcome] = []
        try:
            outcomes = await self._ask_leader(
                leader, [marking.marker(owned) for marking, owned in portions]
            )
        except PeerError as error:
            logger.info("markers for broker %s: %s", leader, error)
        finally:
            del self._requests[leader]
        self._answered(portions, outcomes)
        if leader in self._queues:
            self._ask(leader)

    def _answered(self, portions: list[_Portion], outcomes: list[Outcome]) -> None:
        """Retry partitions without an outcome or with a transient error."""
        for number, (marking, owned) in enumerate(portions):
            if marking.is_over:
                continue
            outcome = outcomes[number] if number < len(outcomes) else {}
            errors = {one: outcome.get(one, ErrorCode.NETWORK_EXCEPTION) for one in owned}
            if ErrorCode.TRANSACTION_COORDINATOR_FENCED in errors.values():
                logger.info(
                    "producer %d: a newer coordinator completes its transaction",
                    marking.producer_id,
                )
                self._end(marking)
                continue
            for one in (o for o, e in errors.items() if e is ErrorCode.INVALID_PRODUCER_EPOCH):
                logger.warning("%s has a newer epoch of producer %d", one, marking.producer_id)
            marking.left -= {one for one, error in errors.items() if error in _DONE}
            self._delay(marking, {one for one, error in errors.items() if error not in _DONE})
            self._settle(marking)

    def _delay(self, marking: Marking, partitions: set[TopicPartition]) -> None:
        if not partitions:
            return
        self._later.setdefault(marking, set()).update(partitions)
        if self._retry is None:
            self._retry = self._timers.call_at(self._timers.time() + RETRY_S, self._again)

    def _again(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        waiting, self._later = self._later, {}
        for marking, partitions in waiting.items():
            if not marking.is_over:
                self._route(marking, partitions & marking.left)


def _fitting(queue: list[_Portion]) -> int:
    """Return how many of a queue's portions go into one request, the first one in any case."""
    partitions = 0
    for count, (_, owned) in enumerate(queue[:MARKERS_MAX]):
        partitions += len(owned)
        if count and partitions > PARTITIONS_MAX:
            return count
    return min(len(queue), MARKERS_MAX)
