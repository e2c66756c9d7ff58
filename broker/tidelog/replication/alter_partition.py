"""Propose changes of the in-sync replicas to the controller (AlterPartition, API 56; KIP-497).

It owns the timer that finds lagging followers, the waiting changes and the one request in flight.
Changes that come meanwhile go together in the next request. `replica_manager.py` reports followers
that have fetched and leaders that have recovered; the partitions decide what to propose, and what
an answer means.

The request is retried until it is answered, with a pause if the controller is away or not active. A
change is dropped if its partition has newer metadata by then.

Kafka: AlterPartitionManager, Partition (maybeExpandIsr, maybeShrinkIsr), isr-expiration.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_state import IsrChange
    from tidelog.seams import TimerHandle, Timers

__all__ = ["AlterPartitionManager"]

_log = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.05
ELEMENTS_AT_ONCE = 5000  # in one request, about 20 ms of the controller's loop; Kafka's has all

_Key = tuple[bytes, int]  # topic id and partition


class AlterPartitionManager:
    """The proposals of one broker; it runs one task while there are any.

    `shrinks` and `expands` are numbers of changes that the controller made, `failed` of those it
    refused (Kafka: IsrShrinksPerSec, IsrExpandsPerSec, FailedIsrUpdatesPerSec).

    Invariant: the timer is set between `watch` and `close`.
    """

    def __init__(
        self,
        node_id: int,
        ask_controller: Callable[[Any], Awaitable[Any]],
        broker_epoch: Callable[[], int],
        on_settled: Callable[[Any], None],
    ) -> None:
        """`ask_controller` sends a request to the active controller, and raises if it cannot now;
        `on_settled` is called with a partition whose change was made or refused."""
        self._node_id = node_id
        self._ask_controller = ask_controller
        self._broker_epoch = broker_epoch
        self._on_settled = on_settled
        self._unsent: dict[_Key, IsrChange] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._timer: TimerHandle | None = None
        self.shrinks = self.expands = self.failed = 0

    def watch(
        self, partitions: Callable[[], Iterable[Partition]], timers: Timers, lag_ms_max: int
    ) -> None:
        """Propose from now on that lagging followers leave.

        `partitions` returns all current ones of this broker; `lag_ms_max` is
        replica.lag.time.max.ms, half of which passes between two checks, as in Kafka.
        """

        def shrink() -> None:
            for partition in partitions():
                if partition.remotes:
                    self.submit(partition.propose_shrink())
            set_timer()

        def set_timer() -> None:
            self._timer = timers.call_at(timers.time() + lag_ms_max / 2000, shrink)

        set_timer()

    def submit(self, change: IsrChange | None) -> None:
        """Queue a change, if there is one. A later change of the same partition replaces it."""
        if change is None or self._closed:
            return
        partition = change.partition
        key = (partition.topic_id, partition.topic_partition.partition)
        self._unsent.pop(key, None)
        self._unsent[key] = change
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._run(), name=f"alter-partition-{self._node_id}"
            )

    async def close(self) -> None:
        """Drop unanswered changes; the partitions' roles have ended."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._unsent.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._unsent:
                batch = self._next_batch()
                if batch and not await self._send(batch):
                    await asyncio.sleep(RETRY_PAUSE_S)
        finally:
            self._task = None

    def _next_batch(self) -> dict[_Key, IsrChange]:
        """Take the changes of the next request."""
        batch: dict[_Key, IsrChange] = {}
        room = ELEMENTS_AT_ONCE
        while self._unsent and room > 0:
            key = next(iter(self._unsent))
            change = self._unsent.pop(key)
            if _is_current(change):
                batch[key] = change
                room -= 2 + len(change.members)  # with its topic
        return batch

    async def _send(self, batch: dict[_Key, IsrChange]) -> bool:
        """Send once. False if a change must be sent again; it is queued then."""
        try:
            response = await self._ask_controller(self._request(batch))
            error = response.error_code
        except Exception as failure:  # noqa: BLE001 - whatever it is, the ISR still has to change
            _log.debug("cannot send AlterPartition: %s", failure)
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        again = batch
        if not error:
            answers = {
                (topic.topic_id, answer.partition_index): answer
                for topic in response.topics
                for answer in topic.partitions
            }
            again = {
                key: change
                for key, change in batch.items()
                if self._settle(change, answers.get(key))
            }
        else:
            _log.debug("AlterPartition failed: %s", error)
        for key, change in again.items():
            self._unsent.setdefault(key, change)
        return not again

    def _settle(self, change: IsrChange, answer: Any) -> bool:
        """Pass the answer to the partition; return whether to send again."""
        partition = change.partition
        self._count(change, answer)
        if not _is_current(change):
            return False
        if answer is None:
            return True
        if answer.error_code:
            again: bool = partition.change_refused(change, answer.error_code)
            _log.info(
                "%s: the controller refused the in-sync replicas %s: %s",
                partition.topic_partition,
                change.isr,
                answer.error_code,
            )
            if not again:
                self._on_settled(partition)
            return again
        if partition.change_committed(
            change, tuple(answer.isr), answer.leader_epoch, answer.partition_epoch
        ):
            _log.info("%s: the in-sync replicas are %s", partition.topic_partition, partition.isr)
            self._on_settled(partition)
        return False

    def _count(self, change: IsrChange, answer: Any) -> None:
        """Count what became of a change; the metadata with it may have come first."""
        if answer is None:
            return
        if answer.error_code:
            self.failed += 1
        elif change.joining >= 0:
            self.expands += 1
        else:
            self.shrinks += change.is_shrink

    def _request(self, batch: dict[_Key, IsrChange]) -> Any:
        # A lone broker never needs these messages.
        from tidelog_protocol.messages.controller import AlterPartitionRequest  # noqa: PLC0415

        epoch = self._broker_epoch()
        topics: dict[bytes, Any] = {}
        for (topic_id, index), change in batch.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = AlterPartitionRequest.TopicData(
                    topic_id=topic_id, partitions=[]
                )
            topic.partitions.append(
                AlterPartitionRequest.PartitionData(
                    partition_index=index,
                    leader_epoch=change.leader_epoch,
                    partition_epoch=change.partition_epoch,
                    new_isr_with_epochs=[
                        AlterPartitionRequest.BrokerState(
                            broker_id=node_id,
                            broker_epoch=epoch if node_id == self._node_id else known,
                        )
                        for node_id, known in change.members
                    ],
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=epoch, topics=list(topics.values())
        )


def _is_current(change: IsrChange) -> bool:
    """Return whether the partition still waits for the change."""
    return change.partition.pending_change is change
