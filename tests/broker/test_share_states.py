"""The state of share groups from any broker: its coordinator is found, and asked again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from broker.share_broker import ShareBroker
from support.clusters import FAST, image_of, is_led_by_another, run, until
from tidelog.cluster.metadata.image import SHARE_GROUP_STATE_TOPIC
from tidelog.coordinators.share import share_states
from tidelog.coordinators.share.coordinator_peers import CoordinatorPeers
from tidelog.coordinators.share.values import (
    Deletion,
    Initialization,
    Outcome,
    Reading,
    StateBatch,
    StateOutcome,
    SummaryOutcome,
    Writing,
)
from tidelog.coordinators.share.wire import OPERATIONS, items_of, response_of
from tidelog.network.peers import PeerError
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.coordinators.share.persister import Persister

TOPIC_ID = b"a" * 16
BATCH = StateBatch(10, 19, 2, 1)
PARTITIONS = 3


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_states, "PAUSES_S", (0.001, 0.001))


def test_a_lone_broker_asks_itself_and_creates_the_topic() -> None:
    async def test() -> None:
        broker = ShareBroker(state_partitions=0)
        assert SHARE_GROUP_STATE_TOPIC not in broker.topics
        states: Persister = broker.share_states
        items = [Initialization(TOPIC_ID, each, 1) for each in range(PARTITIONS)]
        assert await states.initialize("g", items) == [Outcome()] * PARTITIONS
        assert broker.created == [SHARE_GROUP_STATE_TOPIC]
        written = [
            Writing(TOPIC_ID, each, 1, 1, each, batches=(BATCH,)) for each in range(PARTITIONS)
        ]
        assert await states.write("g", written) == [Outcome()] * PARTITIONS
        readings = [Reading(TOPIC_ID, each, 1) for each in range(PARTITIONS)]
        assert await states.read("g", readings) == [
            StateOutcome(state_epoch=1, start_offset=each, batches=(BATCH,))
            for each in range(PARTITIONS)
        ]
        assert await states.delete("g", [Deletion(TOPIC_ID, 1)]) == [Outcome()]
        summaries = await states.read_summary("g", readings)
        assert [each.start_offset for each in summaries] == [0, -1, 2]

    asyncio.run(test())


def test_a_coordinator_that_does_not_come_ends_the_tries() -> None:
    async def test() -> None:
        broker = ShareBroker()
        broker.lead(leader=2, epoch=1)  # which a lone broker cannot reach
        [outcome] = await broker.share_states.read("g", [Reading(TOPIC_ID, 0)])
        assert outcome.error is ErrorCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(test())


class Tries:
    """A coordinator that fails some times, and notes what it does."""

    def __init__(self, broker: ShareBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failures: list[ErrorCode] = []
        self.done: list[Any] = []
        coordinator = broker.share_states.coordinator
        perform = coordinator.perform

        async def perform_or_fail(operation: Any, group_id: str, item: Any) -> Any:
            if self.failures:
                return operation.outcome(self.failures.pop(0))
            self.done.append(item)
            return await perform(operation, group_id, item)

        monkeypatch.setattr(coordinator, "perform", perform_or_fail)


def test_only_what_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        broker = ShareBroker()
        tries = Tries(broker, monkeypatch)
        tries.failures = [ErrorCode.NOT_COORDINATOR, ErrorCode.FENCED_STATE_EPOCH]
        items = [Initialization(TOPIC_ID, each, 1) for each in range(PARTITIONS)]
        outcomes = await broker.share_states.initialize("g", items)
        assert [each.error for each in outcomes] == [
            ErrorCode.NONE,
            ErrorCode.FENCED_STATE_EPOCH,
            ErrorCode.NONE,
        ]
        assert tries.done == [items[2], items[0]]

    asyncio.run(test())


def test_writes_of_a_share_partition_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        broker = ShareBroker()
        tries = Tries(broker, monkeypatch)
        states = broker.share_states
        await states.initialize("g", [Initialization(TOPIC_ID, each, 1, 0) for each in (0, 1)])
        tries.done.clear()
        tries.failures = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        writes = [
            Writing(TOPIC_ID, partition, 1, 1, start)
            for start, partition in ((5, 0), (7, 0), (3, 1))
        ]
        await asyncio.gather(*(states.write("g", [each]) for each in writes))
        assert tries.done == [writes[2], writes[0], writes[1]]
        [state] = await states.read("g", [Reading(TOPIC_ID, 0)])
        assert state.start_offset == 7

    asyncio.run(test())


def test_a_cancelled_write_lets_the_next_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        broker = ShareBroker()
        states = broker.share_states
        await states.initialize("g", [Initialization(TOPIC_ID, 0, 1, 0)])
        monkeypatch.setattr(share_states, "PAUSES_S", (60.0,))
        Tries(broker, monkeypatch).failures = [ErrorCode.NOT_COORDINATOR]
        stuck = asyncio.create_task(states.write("g", [Writing(TOPIC_ID, 0, 1, 1, 5)]))
        after = asyncio.create_task(states.write("g", [Writing(TOPIC_ID, 0, 1, 1, 7)]))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not after.done()
        stuck.cancel()
        assert await after == [Outcome()]

    asyncio.run(test())


def test_a_closed_room_tries_once() -> None:
    async def test() -> None:
        broker = ShareBroker()
        broker.share_states.close()
        [outcome] = await broker.share_states.read("g", [Reading(TOPIC_ID, 0)])
        assert outcome.error is ErrorCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(test())


class Channel:
    """A connection to a broker that answers with these outcomes, or fails."""

    host, port = "127.0.0.1", 22412

    def __init__(self, operation: Any, outcomes: list[Any] | None) -> None:
        self.operation, self.outcomes = operation, outcomes
        self.is_closed = False

    async def ask(self, request: Any) -> Any:
        if self.outcomes is None:
            raise PeerError("no answer")
        codec = API[request.API_KEY]
        version = codec.max_version
        data = codec.request_codec(version).encode(request)
        items = items_of(self.operation, codec.request_codec(version).decode(data))
        response = response_of(self.operation, items[: len(self.outcomes)], self.outcomes)
        data = codec.response_codec(version).encode(response)
        return codec.response_codec(version).decode(data)

    def close(self) -> None:
        self.is_closed = True


OUTCOMES = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Outcome(ErrorCode.FENCED_STATE_EPOCH, "no"),
    ApiKey.READ_SHARE_GROUP_STATE: StateOutcome(ErrorCode.NONE, None, 1, 5, (BATCH,)),
    ApiKey.WRITE_SHARE_GROUP_STATE: Outcome(),
    ApiKey.DELETE_SHARE_GROUP_STATE: Outcome(),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: SummaryOutcome(ErrorCode.NONE, None, 1, 2, 5, 7),
}
ITEMS = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Initialization(TOPIC_ID, 0, 1, 5),
    ApiKey.READ_SHARE_GROUP_STATE: Reading(TOPIC_ID, 0, 3),
    ApiKey.WRITE_SHARE_GROUP_STATE: Writing(TOPIC_ID, 0, 1, 3, 5, 7, (BATCH,)),
    ApiKey.DELETE_SHARE_GROUP_STATE: Deletion(TOPIC_ID, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Reading(TOPIC_ID, 0, 3),
}


@pytest.mark.parametrize("key", OPERATIONS)
def test_another_brokers_answer_comes_back(key: ApiKey) -> None:
    async def test() -> None:
        operation, outcome, item = OPERATIONS[key], OUTCOMES[key], ITEMS[key]
        image = ShareBroker().image
        channel: Any = Channel(operation, [outcome])
        peers = CoordinatorPeers(lambda _host, _port: channel, lambda: image)
        other = item._replace(partition=1)
        answers = await peers.ask(1, operation, "g", [item, other])
        assert answers[0] == outcome
        assert answers[1].error is ErrorCode.UNKNOWN_SERVER_ERROR, "it has no answer"
        channel.outcomes = None
        assert [each.error for each in await peers.ask(1, operation, "g", [item, other])] == [
            ErrorCode.NETWORK_EXCEPTION
        ] * 2
        peers.close()
        assert channel.is_closed

    asyncio.run(test())


SETTINGS = {**FAST, "share.coordinator.state.topic.num.partitions": str(PARTITIONS)}


def test_states_stay_when_their_coordinator_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_states, "PAUSES_S", (0.05,) * 300)

    async def test() -> None:
        async with tidelog.Cluster(SETTINGS, brokers=3) as cluster:
            await cluster.create_topic("t", partitions=6)
            first = cluster.brokers[0]
            await until(lambda: "t" in image_of(first).topics)
            topic_id = image_of(first).topics["t"].topic_id
            states: list[Persister] = [node.server.parts.share_states for node in cluster.brokers]
            items = [Initialization(topic_id, each, 1) for each in range(6)]
            assert await states[0].initialize("g", items) == [Outcome()] * 6
            written = [Writing(topic_id, each, 1, 1, each, 0, (BATCH,)) for each in range(6)]
            assert await states[1].write("g", written) == [Outcome()] * 6
            dying = image_of(first).partition(SHARE_GROUP_STATE_TOPIC, 0).leader
            await cluster.brokers[dying - 1].kill()
            await until(lambda: is_led_by_another(cluster, SHARE_GROUP_STATE_TOPIC, dying))
            left = states[dying % 3]
            readings = [Reading(topic_id, each, 2) for each in range(6)]
            assert await left.read("g", readings) == [
                StateOutcome(state_epoch=1, start_offset=each, batches=(BATCH,))
                for each in range(6)
            ]
            late = await left.write("g", written)
            assert {each.error for each in late} == {ErrorCode.FENCED_LEADER_EPOCH}

    run(test)
