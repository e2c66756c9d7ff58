"""What thousands of partitions need is done in steps, and no controller leaves it half done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from support.controller_cluster import beat, isr_change, registration
from support.three_brokers import Three
from tidelog.cluster.controller import partitions
from tidelog.cluster.controller.brokers import fence, heartbeat
from tidelog.cluster.controller.sessions import Sessions
from tidelog.cluster.metadata.log_replay import LogReplay
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from tidelog_protocol.schema import Message

STEPS = ([1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2], [1, 2, 3])


def in_steps(
    test: Callable[[Three], Coroutine[None, None, None]],
) -> Callable[[pytest.MonkeyPatch], None]:
    """Run a test on three joined brokers and five partitions, of which one batch changes two."""

    def run(monkeypatch: pytest.MonkeyPatch) -> None:
        async def start() -> None:
            three = Three()
            for node_id in (1, 2, 3):
                await three.join(node_id)
            await three.create(*STEPS)
            await test(three)

        monkeypatch.setattr(partitions, "CHANGES_PER_STEP_MAX", 2)
        asyncio.run(start())

    run.__name__ = test.__name__
    return run


def batch_sizes(three: Three, since: int) -> list[int]:
    log = three.metadata.log.log
    return [header.records_count for header, _ in LogReplay(log).batches(since, log.log_end_offset)]


def are_without(three: Three, node_id: int) -> bool:
    found = [three.partition(index=index) for index in range(len(STEPS))]
    return all(node_id != one.leader != -1 and node_id not in one.isr for one in found)


async def fence_by_half(three: Three, node_id: int) -> None:
    """The controller ends when the first step of the fencing is committed."""
    log = three.metadata.log
    await log.commit(fence(log.latest, three.metadata.config, node_id))
    assert three.broker(node_id).fenced
    assert not are_without(three, node_id)
    three.take_over()


@in_steps
async def test_a_silent_broker_is_fenced_in_steps(three: Three) -> None:
    since = three.metadata.log.next_offset
    await three.pass_time(9.1, 2, 3)
    assert batch_sizes(three, since) == [3, 2, 1], "its registration is in the first"
    assert are_without(three, 1)
    await three.pass_time(1, 2, 3)
    assert batch_sizes(three, since) == [3, 2, 1]


@in_steps
async def test_the_next_controller_finishes_a_fencing(three: Three) -> None:
    await fence_by_half(three, 1)
    await three.pass_time(1, 2, 3)
    assert are_without(three, 1)


@in_steps
async def test_a_broker_fenced_by_half_comes_back_in_the_same_life(three: Three) -> None:
    await fence_by_half(three, 1)
    before = three.partition(index=4)
    assert not (await three.ask(beat(1, three.broker(1).epoch))).is_fenced
    await three.pass_time(1, 1, 2, 3)
    assert three.partition(index=4) == before, "it leads on where it was not yet missed"


@in_steps
async def test_a_new_life_of_a_broker_fenced_by_half_leads_nothing(three: Three) -> None:
    await fence_by_half(three, 1)
    assert (await three.ask(registration(1, life=77))).error_code == 0
    assert are_without(three, 1)


@in_steps
async def test_a_step_that_fails_is_made_up_for(three: Three) -> None:
    log = three.metadata.log
    append, appended = log.append, 0

    def refuse_the_second(records: Sequence[Message]) -> int:
        nonlocal appended
        appended += 1
        if appended == 2:
            raise StorageError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")
        return append(records)

    log.append = refuse_the_second  # type: ignore[method-assign]
    with pytest.raises(StorageError):
        await three.pass_time(9.1, 2, 3)
    assert not are_without(three, 1)
    await three.pass_time(1, 2, 3)
    assert are_without(three, 1)


@in_steps
async def test_a_controlled_shutdown_in_steps(three: Three) -> None:
    since, epoch = three.metadata.log.next_offset, three.broker(1).epoch
    assert not (await three.ask(beat(1, epoch, want_shut_down=True))).should_shut_down
    assert batch_sizes(three, since) == [3, 2, 1]
    assert are_without(three, 1)
    offset = three.metadata.log.image.offset
    for known, may_go in ((offset - 1, False), (offset, True)):
        for node_id in (2, 3):
            await three.ask(beat(node_id, three.broker(node_id).epoch, offset=known))
        answer = await three.ask(beat(1, epoch, want_shut_down=True))
        assert answer.should_shut_down is may_go, "when all know of the last step"


@in_steps
async def test_the_only_replicas_come_back_in_steps(three: Three) -> None:
    await three.pass_time(9.1)
    since = three.metadata.log.next_offset
    assert {three.partition(index=index).leader for index in range(5)} == {-1}
    (last,) = three.partition().eligible_leader_replicas
    await three.ask(beat(last, three.broker(last).epoch))
    assert batch_sizes(three, since) == [3, 2, 1]
    assert {three.partition(index=index).leader for index in range(5)} == {last}


@in_steps
async def test_the_next_controller_finishes_a_return(three: Three) -> None:
    await three.pass_time(9.1)
    (last,) = three.partition().eligible_leader_replicas
    log = three.metadata.log
    request = beat(last, three.broker(last).epoch)
    sessions = Sessions(log.latest, 0.0, 9.0)
    await log.commit(heartbeat(log.latest, three.metadata.config, request, sessions, 0.0)[0])
    assert three.partition(index=4).leader == -1
    three.take_over()
    await three.pass_time(1, last)
    assert {three.partition(index=index).leader for index in range(5)} == {last}


@in_steps
async def test_leadership_goes_back_in_one_round_of_steps(three: Three) -> None:
    await three.pass_time(9.1, 2, 3)
    epoch = await three.join(1)
    for index in range(len(STEPS)):
        before = three.partition(index=index)
        request = isr_change(
            [*before.isr, (1, epoch)],
            sender=before.leader,
            sender_epoch=three.broker(before.leader).epoch,
            topic_id=three.metadata.log.image.topics["t"].topic_id,
            index=index,
            leader_epoch=before.leader_epoch,
            partition_epoch=before.partition_epoch,
        )
        assert (await three.ask(request)).topics[0].partitions[0].error_code == 0
    since = three.metadata.log.next_offset
    await three.pass_time(291, 1, 2, 3)
    assert batch_sizes(three, since) == [2, 1]
    assert [three.partition(index=index).leader for index in range(5)] == [1, 2, 3, 1, 1]


@in_steps
async def test_replicas_that_return_from_a_stop_of_all_stay_in_sync(three: Three) -> None:
    """The leader was not heard of yet: its disk may be lost, and what is registered has all."""
    three.take_over()
    clean = {node_id: three.broker(node_id).epoch for node_id in (2, 3)}
    for node_id, epoch in clean.items():
        request = registration(node_id, life=77 + node_id, previous_broker_epoch=epoch)
        assert (await three.ask(request)).error_code == 0
    assert set(three.partition().isr) == {1, 2, 3}
    await three.pass_time(0)
    assert set(three.partition().isr) == {1, 2, 3}
    await three.pass_time(9.1, 2, 3)
    assert set(three.partition().isr) == {2, 3}
    assert three.partition().leader in (2, 3)
