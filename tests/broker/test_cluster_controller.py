"""The controller of a cluster of several, asked through its handlers, over a real metadata log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from support.controller_cluster import beat, isr_change, registration
from support.three_brokers import Three
from tidelog.cluster.controller.configs import SET, Change, Resource
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from tidelog_protocol.messages.controller import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    ControllerRegistrationRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


Moves = AlterPartitionReassignmentsRequest.ReassignableTopic
ALL_KEYS = (
    ApiKey.ALTER_PARTITION,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.UPDATE_FEATURES,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.CONTROLLER_REGISTRATION,
)


def running(
    test: Callable[[Three], Coroutine[None, None, None]],
) -> Callable[[], None]:
    """Run a test on three joined brokers and a topic of two partitions."""

    def run() -> None:
        async def start() -> None:
            three = Three()
            for node_id in (1, 2, 3):
                await three.join(node_id)
            await three.create([1, 2, 3], [2, 3, 1])
            await test(three)

        asyncio.run(start())

    run.__name__ = test.__name__
    return run


@pytest.mark.parametrize("version", range(5))
def test_registration_in_every_version(version: int) -> None:
    async def run() -> None:
        three = Three()
        answer = await three.ask(registration(1), version)
        if version < 2:
            assert answer.error_code == ErrorCode.INVALID_REGISTRATION, "without directories"
            return
        assert answer.error_code == 0
        assert three.broker(1).epoch == answer.broker_epoch
        answer = await three.ask(beat(1, answer.broker_epoch, offset=answer.broker_epoch - 1))
        assert (answer.is_caught_up, answer.is_fenced) == (False, True)

    asyncio.run(run())


@running
async def test_a_silent_broker_is_fenced_and_comes_back(three: Three) -> None:
    await three.pass_time(5, 2, 3)
    assert not three.broker(1).fenced
    await three.pass_time(4.1, 2, 3)
    assert three.broker(1).fenced
    assert (three.partition().leader, three.partition().isr) == (2, (2, 3))
    assert three.partition(index=1).isr == (2, 3)
    answer = await three.ask(beat(1, three.broker(1).epoch))
    assert not answer.is_fenced
    assert (three.partition().leader, three.partition().isr) == (2, (2, 3)), "it has to catch up"


@running
async def test_all_silent_are_fenced_one_after_the_other(three: Three) -> None:
    await three.pass_time(9.1)
    assert all(three.broker(node_id).fenced for node_id in (1, 2, 3))
    assert (three.partition().leader, three.partition().isr) == (-1, ())
    (last,) = three.partition().eligible_leader_replicas
    assert three.partition().last_known_eligible_leader_replicas == (last,)


@running
async def test_an_election_of_controllers_fences_no_broker(three: Three) -> None:
    three.metadata.clock.wall += 8_000
    three.take_over()
    await three.pass_time(8)
    assert not three.broker(1).fenced, "the sessions began with the first question"
    await three.pass_time(9.1, 2, 3)
    assert three.broker(1).fenced


@running
async def test_a_broker_that_was_killed_comes_back_when_its_session_is_over(three: Three) -> None:
    for log_dirs in ([b"another-one-of-1"], [b"directory-of-001"]):
        answer = await three.ask(registration(1, life=77, log_dirs=log_dirs))
        assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    old = three.broker(1).epoch
    three.take_over()
    answer = await three.ask(registration(1, life=77))
    assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION, "a session of its own"
    await three.pass_time(9.1, 2, 3)
    answer = await three.ask(registration(1, life=77))
    assert answer.error_code == 0
    assert answer.broker_epoch > old
    assert (three.partition().leader, three.partition().isr) == (2, (2, 3))
    assert (await three.ask(beat(1, old))).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_the_only_voters_broker_comes_back_at_once_after_a_kill() -> None:
    """Its own process proves that its earlier life is over. A second process is refused."""

    async def run() -> None:
        three = Three(node_id="1")
        for node_id in (1, 2):
            await three.join(node_id)
        three.take_over()
        answer = await three.ask(registration(2, life=77))
        assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        epoch = await three.join(1)
        answer = await three.ask(registration(1, life=77))
        assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert three.broker(1).epoch == epoch

    asyncio.run(run())


@running
async def test_a_broker_known_to_be_dead_comes_back_at_once(three: Three) -> None:
    old = three.broker(1).epoch
    answer = await three.ask(beat(1, old, want_fence=True, want_shut_down=True))
    assert answer.is_fenced
    answer = await three.ask(registration(1, life=77))
    assert answer.error_code == 0
    assert answer.broker_epoch > old
    assert (three.partition().leader, three.partition().isr) == (2, (2, 3))
    assert (await three.ask(beat(1, old))).error_code == ErrorCode.STALE_BROKER_EPOCH


@running
async def test_controlled_shutdown(three: Three) -> None:
    epoch = three.broker(1).epoch
    answer = await three.ask(beat(1, epoch, want_shut_down=True))
    assert (answer.is_fenced, answer.should_shut_down) == (False, False)
    assert three.partition().leader == 2
    offset = three.metadata.log.image.offset
    for node_id in (2, 3):
        await three.ask(beat(node_id, three.broker(node_id).epoch, offset=offset - 1))
    assert not (await three.ask(beat(1, epoch, want_shut_down=True))).should_shut_down
    for node_id in (2, 3):
        await three.ask(beat(node_id, three.broker(node_id).epoch, offset=offset))
    answer = await three.ask(beat(1, epoch, want_shut_down=True))
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    await three.join(1)
    assert not three.broker(1).in_controlled_shutdown


@running
async def test_the_log_keeps_all_of_it(three: Three) -> None:
    await three.ask(beat(1, three.broker(1).epoch, want_shut_down=True))
    before = three.metadata.log.image
    three.metadata.disk.power_failure()
    three.metadata.start()
    after = three.metadata.log.image
    assert after.brokers == before.brokers
    assert after.topics == before.topics
    assert after.brokers[1].in_controlled_shutdown


@pytest.mark.parametrize("version", [2, 3])
def test_the_isr_changes(version: int) -> None:
    async def run() -> None:
        three = Three()
        epochs = [await three.join(node_id) for node_id in (1, 2, 3)]
        await three.create([1, 2, 3])
        topic_id = three.metadata.log.image.topics["t"].topic_id
        request = isr_change(
            [(1, epochs[0]), (3, epochs[2])],
            sender_epoch=epochs[0],
            topic_id=topic_id,
            leader_epoch=0,
            partition_epoch=0,
        )
        request.topics[0].partitions[0].new_isr = [1, 3]
        answer = (await three.ask(request, version)).topics[0].partitions[0]
        assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, [1, 3], 1)
        assert three.partition().isr == (1, 3)
        stale = AlterPartitionRequest(broker_id=1, broker_epoch=epochs[0] - 1)
        assert (await three.ask(stale)).error_code == ErrorCode.STALE_BROKER_EPOCH

    asyncio.run(run())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_elections_on_request(version: int) -> None:
    async def run() -> None:
        three = Three()
        for node_id in (1, 2, 3):
            await three.join(node_id)
        await three.create([1, 2, 3])
        await three.pass_time(9.1, 2, 3)
        await three.join(1)
        topic = ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])
        request = ElectLeadersRequest(topic_partitions=[topic])
        (result,) = (await three.ask(request, version)).replica_election_results
        assert result.partition_result[0].error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        if version:
            request.election_type = 7
            answer = await three.ask(request, version)
            assert answer.error_code == ErrorCode.INVALID_REQUEST

    asyncio.run(run())


@running
async def test_leadership_goes_back_in_rounds(three: Three) -> None:
    await three.pass_time(9.1, 2, 3)
    epoch = await three.join(1)
    leader = three.partition()
    assert leader.leader == 2
    request = isr_change(
        [2, 3, (1, epoch)],
        sender=2,
        sender_epoch=three.broker(2).epoch,
        topic_id=three.metadata.log.image.topics["t"].topic_id,
        leader_epoch=leader.leader_epoch,
        partition_epoch=leader.partition_epoch,
    )
    assert (await three.ask(request)).topics[0].partitions[0].error_code == 0
    await three.pass_time(290, 1, 2, 3)
    assert three.partition().leader == 2
    await three.pass_time(1, 1, 2, 3)
    assert three.partition().leader == 1


@running
async def test_unclean_elections_when_the_setting_changes_and_in_rounds(three: Three) -> None:
    for node_id in (3, 2):
        await three.pass_time(9.1, *range(1, node_id))
    await three.join(2)
    await three.pass_time(9.1, 2)
    assert (three.partition().leader, three.partition().isr) == (-1, ())
    assert three.partition().eligible_leader_replicas == (1,)
    change = Change("unclean.leader.election.enable", SET, "true")
    resource = Resource(2, "t", [change], replaces=False)
    await three.controller.alter_configs([resource], validate_only=True)
    assert three.partition().leader == -1
    await three.controller.alter_configs([resource], validate_only=False)
    assert (three.partition().leader, three.partition().isr) == (2, (2,))
    assert three.partition().eligible_leader_replicas == ()
    assert three.partition().leader_recovery_state == 1


@running
async def test_a_reassignment(three: Three) -> None:
    move = Moves(
        name="t", partitions=[Moves.ReassignablePartition(partition_index=0, replicas=[2, 3])]
    )
    answer = await three.ask(AlterPartitionReassignmentsRequest(topics=[move]))
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
    assert (three.partition().replicas, three.partition().leader) == ((2, 3), 2)
    answer = await three.ask(ListPartitionReassignmentsRequest())
    assert (answer.error_code, answer.topics) == (0, [])


@running
async def test_a_broker_is_forgotten(three: Three) -> None:
    answer = await three.ask(UnregisterBrokerRequest(broker_id=1))
    assert answer.error_code == 0
    assert sorted(three.metadata.log.image.brokers) == [2, 3]
    answer = await three.ask(UnregisterBrokerRequest(broker_id=1))
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert answer.error_message == "Broker ID 1 is not currently registered"
    await three.pass_time(9.1, 2, 3)


@running
async def test_producer_ids(three: Three) -> None:
    blocks = []
    for node_id in (2, 3, 2):
        epoch = three.broker(node_id).epoch
        answer = await three.ask(AllocateProducerIdsRequest(broker_id=node_id, broker_epoch=epoch))
        assert answer.error_code == 0
        blocks.append((answer.producer_id_start, answer.producer_id_len))
    assert blocks == [(0, 1000), (1000, 1000), (2000, 1000)]
    answer = await three.ask(AllocateProducerIdsRequest(broker_id=2, broker_epoch=0))
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH


@running
async def test_a_node_that_does_not_lead_says_so(three: Three) -> None:
    epoch = three.broker(1).epoch
    three.metadata.executor.error = OSError("gone")
    await three.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))
    assert not three.metadata.log.is_leader
    partitions = ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])
    moved = AlterPartitionReassignmentsRequest.ReassignableTopic(name="t")
    requests = (
        AlterPartitionRequest(broker_id=1, broker_epoch=epoch),
        registration(1),
        beat(1, epoch),
        AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch),
        ElectLeadersRequest(topic_partitions=[partitions]),
        AlterPartitionReassignmentsRequest(topics=[moved]),
        ListPartitionReassignmentsRequest(),
        UnregisterBrokerRequest(broker_id=1),
        UpdateFeaturesRequest(),
        AssignReplicasToDirsRequest(broker_id=1, broker_epoch=epoch),
        ControllerRegistrationRequest(controller_id=1),
    )
    assert tuple(request.API_KEY for request in requests) == ALL_KEYS
    assert set(three.handlers) == set(ALL_KEYS)
    for request in requests:
        answer = await three.ask(request)
        assert answer.error_code == ErrorCode.NOT_CONTROLLER, request
    await three.controller.tick()
