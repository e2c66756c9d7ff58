"""Values of the share state, Kafka's key of a share coordinator, and the persister of tests."""

from __future__ import annotations

import asyncio

from support.share_persister import MemoryPersister, persister
from tidelog.coordinators.share.values import (
    UNINITIALIZED,
    Deletion,
    Initialization,
    Reading,
    SharePartition,
    StateBatch,
    StateOutcome,
    Writing,
)
from tidelog_protocol.errors import ErrorCode

TOPIC_ID = bytes(range(16))


def test_coordinator_key_is_kafkas() -> None:
    assert SharePartition("g:1", TOPIC_ID, 7).coordinator_key == "g:1:AAECAwQFBgcICQoLDA0ODw:7"


def test_an_offset_that_is_not_decided_is_minus_one() -> None:
    assert Initialization(bytes(16), 0, 1).start_offset == UNINITIALIZED == -1


def test_a_state_is_read_as_it_was_written() -> None:
    async def scenario() -> None:
        states = persister()
        assert (await states.read("g", [Reading(TOPIC_ID, 0, 1)]))[0].error == (
            ErrorCode.INVALID_REQUEST
        )
        await states.initialize("g", [Initialization(TOPIC_ID, 0, 3)])
        batch = StateBatch(10, 19, 2, 1)
        written = Writing(TOPIC_ID, 0, 3, 5, start_offset=10, batches=(batch,))
        assert (await states.write("g", [written]))[0].error == ErrorCode.NONE
        expected = StateOutcome(state_epoch=3, start_offset=10, batches=(batch,))
        assert await states.read("g", [Reading(TOPIC_ID, 0, 6)]) == [expected]
        late = await states.write("g", [written, written._replace(state_epoch=2, leader_epoch=6)])
        assert [each.error for each in late] == [
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.FENCED_STATE_EPOCH,
        ]
        [summary] = await states.read_summary("g", [Reading(TOPIC_ID, 0)])
        assert (summary.state_epoch, summary.leader_epoch, summary.start_offset) == (3, 6, 10)
        await states.delete("g", [Deletion(TOPIC_ID, 0)])
        [summary] = await states.read_summary("g", [Reading(TOPIC_ID, 0)])
        assert summary.start_offset == UNINITIALIZED

    asyncio.run(scenario())


def test_a_failure_changes_nothing() -> None:
    async def scenario() -> None:
        states = MemoryPersister()
        states.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
        [outcome] = await states.initialize("g", [Initialization(TOPIC_ID, 0, 3)])
        assert outcome.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert states.states == {}

    asyncio.run(scenario())
