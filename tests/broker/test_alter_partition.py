"""Changes of the ISR on their way to the controller: batches, retries, answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import DataPath, batch, topic_id
from tidelog.cluster.metadata.image import BrokerImage
from tidelog.replication import alter_partition
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.controller import AlterPartitionResponse
from tidelog_protocol.messages.data import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_Topic = AlterPartitionResponse.TopicData
_Answer = AlterPartitionResponse.PartitionData

ISR_NOW = {"isr": [1, 2], "leader_epoch": 0, "partition_epoch": 1}


class Controller:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.waiting: list[asyncio.Future[Any]] = []

    async def ask(self, request: Any) -> Any:
        self.requests.append(request)
        future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        return await future

    async def asked(self, count: int) -> Any:
        """The n-th request, once it has come."""
        for _ in range(100):
            if len(self.requests) >= count:
                break
            await asyncio.sleep(0)
        return self.requests[count - 1]

    async def answer(self, *partitions: _Answer, topic: str = "foo", error: int = 0) -> None:
        response = AlterPartitionResponse(
            error_code=error,
            topics=[_Topic(topic_id=topic_id(topic), partitions=list(partitions))],
        )
        await self.finish(response)

    async def finish(self, response: Any) -> None:
        future = self.waiting.pop(0)
        if isinstance(response, Exception):
            future.set_exception(response)
        else:
            future.set_result(response)
        for _ in range(5):
            await asyncio.sleep(0)


class Leader:
    """A data path that leads partitions with a follower outside the ISR."""

    def __init__(self, folder: Path) -> None:
        self.path = DataPath(folder)
        self.controller = Controller()
        self.path.apply(brokers={n: BrokerImage(n, "h", 1, epoch=40 + n) for n in (1, 2, 3)})
        self.path.replicas.use_controller(self.controller.ask, lambda: 41, 30_000)

    def fetch(self, *offsets: int, topic: str = "foo", replica: int = 2, epoch: int = 42) -> Any:
        return self.path.fetch(
            *((topic_id(topic), index, offset) for index, offset in enumerate(offsets)),
            version=17,
            replica_state=FetchRequest.ReplicaState(replica_id=replica, replica_epoch=epoch),
        )


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    leader = Leader(tmp_path)
    yield leader
    leader.path.logs.abandon()


def test_a_follower_that_has_caught_up_joins(leader: Leader) -> None:
    async def run() -> None:
        path = leader.path
        path.create("foo", replicas=(1, 2), isr=(1,))
        partition = path.partition("foo")
        leader.fetch(0)
        assert partition.maximal_isr == (1, 2)
        assert partition.isr == (1,)
        request = await leader.controller.asked(1)
        assert (request.broker_id, request.broker_epoch) == (1, 41)
        asked = request.topics[0].partitions[0]
        assert [(b.broker_id, b.broker_epoch) for b in asked.new_isr_with_epochs] == [
            (1, 41),
            (2, 42),
        ]
        assert (asked.leader_epoch, asked.partition_epoch) == (0, 0)
        assert asked.leader_recovery_state == 0
        path.produce("foo", 0, batch(), acks=1)
        assert partition.log.high_watermark == 0  # not before the joiner has it
        leader.fetch(0)
        assert len(leader.controller.requests) == 1  # one change at a time
        await leader.controller.answer(_Answer(**ISR_NOW))
        assert partition.isr == partition.maximal_isr == (1, 2)
        assert partition.partition_epoch == 1
        leader.fetch(1)
        assert partition.log.high_watermark == 1
        assert len(leader.controller.requests) == 1
        await path.replicas.stop()

    asyncio.run(run())


def test_a_request_has_few_changes(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands at once would hold the loop of the controller."""
    monkeypatch.setattr(alter_partition, "ELEMENTS_AT_ONCE", 8)  # two of two replicas

    async def run() -> None:
        path = leader.path
        path.create("foo", 5, replicas=(1, 2), isr=(1,))
        leader.fetch(0, 0, 0, 0, 0)
        for number, indexes in enumerate(([0, 1], [2, 3], [4])):
            request = await leader.controller.asked(number + 1)
            assert [one.partition_index for one in request.topics[0].partitions] == indexes
            await leader.controller.answer(
                *(_Answer(partition_index=index, **ISR_NOW) for index in indexes)
            )
        assert [path.partition("foo", index).isr for index in range(5)] == [(1, 2)] * 5
        assert len(leader.controller.requests) == 3

    asyncio.run(run())


def test_changes_meanwhile_go_together(leader: Leader) -> None:
    async def run() -> None:
        path = leader.path
        path.create("foo", 3, replicas=(1, 2), isr=(1,))
        leader.fetch(0)
        await leader.controller.asked(1)
        leader.fetch(0, 0, 0)
        await leader.controller.answer(_Answer(**ISR_NOW))
        second = await leader.controller.asked(2)
        assert [p.partition_index for p in second.topics[0].partitions] == [1, 2]
        await path.replicas.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    "refusal", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED]
)
def test_a_change_that_was_not_made_is_given_up(leader: Leader, refusal: ErrorCode) -> None:
    async def run() -> None:
        path = leader.path
        path.create("foo", replicas=(1, 2), isr=(1,))
        leader.fetch(0)
        await leader.controller.asked(1)
        await leader.controller.answer(_Answer(error_code=refusal))
        assert path.replicas.isr_changes is not None
        assert path.replicas.isr_changes.failed == 1
        assert path.partition("foo").pending_change is None
        assert path.partition("foo").isr == (1,)
        leader.fetch(0)  # and later tried again
        await leader.controller.asked(2)
        await path.replicas.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    "refusal",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_after_some_answers_only_newer_metadata_helps(leader: Leader, refusal: ErrorCode) -> None:
    async def run() -> None:
        path = leader.path
        path.create("foo", replicas=(1, 2), isr=(1,))
        partition = path.partition("foo")
        leader.fetch(0)
        await leader.controller.asked(1)
        await leader.controller.answer(_Answer(error_code=refusal))
        leader.fetch(0)
        assert partition.maximal_isr == (1, 2)
        assert len(leader.controller.requests) == 1
        path.change("foo", isr=(1,))
        assert partition.maximal_isr == (1,)
        leader.fetch(0)
        again = await leader.controller.asked(2)
        assert again.topics[0].partitions[0].partition_epoch == 1
        await path.replicas.stop()

    asyncio.run(run())


@pytest.mark.parametrize("trouble", ["lost", "whole", "one", "silent"])
def test_anything_else_is_asked_again(
    leader: Leader, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.replication.alter_partition.RETRY_PAUSE_S", 0)

    async def run() -> None:
        path = leader.path
        path.create("foo", replicas=(1, 2), isr=(1,))
        leader.fetch(0)
        await leader.controller.asked(1)
        if trouble == "lost":
            await leader.controller.finish(ConnectionError("gone"))
        elif trouble == "whole":
            await leader.controller.answer(error=ErrorCode.STALE_BROKER_EPOCH)
        elif trouble == "one":
            await leader.controller.answer(_Answer(error_code=ErrorCode.NOT_CONTROLLER))
        else:
            await leader.controller.answer()
        await leader.controller.asked(2)
        await leader.controller.answer(_Answer(**ISR_NOW))
        assert path.partition("foo").isr == (1, 2)
        await path.replicas.stop()

    asyncio.run(run())


def test_metadata_that_comes_first_decides(leader: Leader) -> None:
    async def run() -> None:
        path = leader.path
        path.create("foo", replicas=(1, 2, 3), isr=(1,))
        partition = path.partition("foo")
        leader.fetch(0)
        await leader.controller.asked(1)
        path.change("foo", isr=(1, 3), partition_epoch=2)
        await leader.controller.answer(_Answer(**ISR_NOW))
        assert partition.isr == (1, 3)
        assert partition.partition_epoch == 2
        changes = path.replicas.isr_changes
        assert changes is not None
        assert (changes.shrinks, changes.expands, changes.failed) == (0, 1, 0)
        await path.replicas.stop()

    asyncio.run(run())


def test_metadata_that_comes_second_brings_the_replicas(leader: Leader) -> None:
    async def run() -> None:
        path = leader.path
        path.create("foo", replicas=(1, 3, 2), isr=(1,))
        partition = path.partition("foo")
        leader.fetch(0)
        await leader.controller.asked(1)
        await leader.controller.answer(_Answer(**ISR_NOW))
        leader.fetch(0, replica=3, epoch=43)
        await leader.controller.asked(2)
        path.change("foo", isr=(1, 2), replicas=(1, 2, 3))  # a reassignment ended with it
        assert partition.replicas == (1, 2, 3)
        assert partition.maximal_isr == (1, 2, 3)  # and the change since then is still in flight
        await path.replicas.stop()

    asyncio.run(run())


def test_an_unclean_leader_says_that_it_has_recovered(leader: Leader) -> None:
    async def run() -> None:
        path = leader.path
        path.create("foo", replicas=(1, 2), isr=(1,))
        path.change("foo", leader_epoch=1, leader_recovery_state=1)
        request = await leader.controller.asked(1)
        asked = request.topics[0].partitions[0]
        assert [b.broker_id for b in asked.new_isr_with_epochs] == [1]
        assert (asked.leader_epoch, asked.leader_recovery_state) == (1, 0)
        await leader.controller.answer(_Answer(isr=[1], leader_epoch=1, partition_epoch=2))
        assert path.partition("foo").pending_change is None
        await path.replicas.stop()

    asyncio.run(run())


def test_lagging_followers_are_looked_for_every_half_of_the_lag(leader: Leader) -> None:
    async def run() -> None:
        path = leader.path
        path.create("foo", replicas=(1, 2, 3), isr=(1, 2, 3))
        partition = path.partition("foo")
        waiting = path.produce("foo", 0, batch(2), acks=-1, timeout_ms=100_000)
        parked = path.context
        assert waiting is None
        leader.fetch(2)
        path.timers.advance_ms(30_000)
        leader.fetch(2)
        assert not leader.controller.requests
        path.timers.advance_ms(15_000)  # 3 has been away for more than 30 s
        request = await leader.controller.asked(1)
        assert [b.broker_id for b in request.topics[0].partitions[0].new_isr_with_epochs] == [1, 2]
        assert partition.log.high_watermark == 0  # a shrink counts when it is committed
        await leader.controller.answer(_Answer(**ISR_NOW))
        assert partition.log.high_watermark == 2
        assert path.answer_of(parked).responses[0].partition_responses[0].error_code == 0
        await path.replicas.stop()
        changes = path.replicas.isr_changes
        assert changes is not None
        assert changes._task is None
        assert (changes.shrinks, changes.expands, changes.failed) == (1, 0, 0)

    asyncio.run(run())
