"""Links that are cut, slowed and healed, and frozen brokers, as brokers and clients see them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

import tidelog
from support.clusters import FAST, librdkafka
from support.http_door import LOOPBACK
from support.wire_client import WireClient
from tidelog.control.errors import ControlError
from tidelog.control.faults.gates import OPEN, Gate, GatedNetwork, Passage
from tidelog.control.http import HttpDoor
from tidelog.control.http_client import HttpControl
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_protocol.messages.data import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.control.state import ClusterState

SHORT_LAG = {"replica.lag.time.max.ms": "600"}


class Wire:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_reading = True
        self.closing = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.closing

    def get_protocol(self) -> Requests:
        return Requests()

    def extra(self) -> str:
        return "extra"


class Requests:
    """A protocol with two requests under way."""

    awaited = 2

    def go_through(self, gate: Callable[[Any], Any]) -> None:
        raise AssertionError("it has its gate")


def test_a_gate_holds_delays_and_lets_go_in_order() -> None:
    async def test() -> None:
        wire = Wire()
        gate = Gate(wire)
        gate.write(b"a")
        gate.set(Passage(sends=False))
        gate.write(memoryview(b"b"))
        gate.writelines([b"c", b"d"])
        assert wire.sent == [b"a"]
        assert wire.is_reading
        gate.set(Passage(delay_s=0.01))
        gate.write(b"e")
        assert wire.sent == [b"a"] or wire.sent == [b"a", b"b", b"cd"]
        await asyncio.sleep(0.05)
        assert wire.sent == [b"a", b"b", b"cd", b"e"]
        gate.set(Passage(receives=False))
        assert not wire.is_reading
        gate.pause_reading()
        gate.set(OPEN)
        assert not wire.is_reading, "the protocol has paused it as well"
        gate.resume_reading()
        assert wire.is_reading
        assert gate.extra() == "extra"
        wire.closing = True
        gate.set(Passage(receives=False))
        assert wire.is_reading, "a closing transport is left alone"

    asyncio.run(test())


def test_a_gate_counts_the_requests_that_it_holds_or_slows() -> None:
    async def test() -> None:
        held: list[int] = []
        gate = Gate(Wire(), held.append)
        gate.write(b"a")
        gate.set(Passage(sends=False))
        assert held == [], "answers to what is under way arrive"
        gate.write(b"b")
        gate.set(Passage(sends=False, receives=False))
        gate.set(Passage(receives=False, delay_s=0.01))
        gate.writelines([b"c", b"d"])
        gate.set(OPEN)
        gate.write(b"e")
        assert held == [1, 2, 1]

    asyncio.run(test())


def test_a_new_connection_waits_until_both_ways_are_open() -> None:
    class Net:
        async def connect(self, host: str, port: int, factory: Callable[[], Any], tls: None) -> Any:
            return Wire(), factory()

    async def test() -> None:
        passages = {1: Passage(sends=False)}
        held: list[Any] = []
        network = GatedNetwork(
            Net(),  # type: ignore[arg-type]
            lambda host, port: passages.get(port, OPEN),
            lambda *waits: held.append(waits),
        )
        await network.connect("h", 2, asyncio.Protocol)
        connecting = asyncio.ensure_future(network.connect("h", 1, asyncio.Protocol))
        await asyncio.sleep(0)
        assert not connecting.done()
        network.change()
        await asyncio.sleep(0)
        assert held == [("h", 1, 1)], "it waits once"
        passages.clear()
        network.change()
        await asyncio.wait_for(connecting, 10)

    asyncio.run(test())


async def until(what: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await what():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)


def test_a_broker_cut_from_the_others_leaves_the_isr_and_comes_back() -> None:
    async def test() -> None:
        async with tidelog.Cluster(FAST | SHORT_LAG, brokers=3) as cluster:
            await cluster.create_topic("t", partitions=1, replication_factor=3)

            async def isr() -> set[int]:
                state = await cluster.state()
                return set(state.partition("t", 0).isr)

            for other in (1, 2):
                await cluster.network.cut(3, other)

            async def is_out() -> bool:
                return await isr() == {1, 2}

            await until(is_out)
            async with AIOKafkaProducer(
                bootstrap_servers=cluster.brokers[0].bootstrap_server, acks="all"
            ) as producer:
                await producer.send_and_wait("t", b"without 3")
                await cluster.network.heal()

                async def is_whole() -> bool:
                    return await isr() == {1, 2, 3}

                await until(is_whole)
                await producer.send_and_wait("t", b"with 3")

    asyncio.run(test())


def test_a_slow_link_slows_what_needs_it() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=2) as cluster:
            await cluster.create_topic("t", partitions=1, replication_factor=2)
            async with AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers, acks="all"
            ) as producer:
                await producer.send_and_wait("t", b"fast")
                await cluster.network.slow(1, 2, 0.2)
                (link,) = await cluster.network.list()
                assert (link.ends, link.seconds) == ({1, 2}, 0.2)
                started = time.monotonic()
                for _ in range(2):  # the follower's next fetch may be on its way already
                    await producer.send_and_wait("t", b"slow")
                assert time.monotonic() - started >= 0.2
                assert await cluster.network.wait(2, 1, 2) >= 2
                await cluster.network.heal(2, 1)
                assert await cluster.network.list() == ()

    asyncio.run(test())


def test_every_door_counts_what_a_link_holds_and_waits_for_it() -> None:
    """Of isolated brokers, too; `examples/typed` has the blocking door."""

    def over_http(url: str) -> None:
        network = HttpControl(url).network
        assert network.wait(2, 1) >= 1
        assert network.wait(1, "clients") == 1
        cut, slow, clients = network.list()
        assert (cut.holds, slow.seconds, clients.other) == ("both", 0.01, "clients")
        assert cut.hits >= slow.hits, "what was under way waits for a link that is cut"
        assert clients.hits == 1

    async def test() -> None:
        async with tidelog.Cluster(FAST, brokers=2, isolated=True) as cluster:
            await cluster.network.cut(1, 2)
            await cluster.network.cut(1, 2)
            async with await WireClient.connect(cluster.brokers[0].bootstrap_server) as client:
                await cluster.network.slow(1, 2, 0.01)
                await cluster.network.cut(1, "clients")
                with pytest.raises(ControlError, match="clients has 0 of 1 hits after 0 s"):
                    await cluster.network.wait(1, "clients", seconds=0)
                asked = asyncio.ensure_future(client.ask(MetadataRequest(topics=[]), 12))
                door = HttpDoor(LOOPBACK, cluster.ask)
                await door.start()
                await asyncio.to_thread(over_http, door.url)
                await door.stop()
                await cluster.network.heal()
                assert (await asyncio.wait_for(asked, 20)).brokers
                with pytest.raises(ControlError, match="has no fault: add one first") as raised:
                    await cluster.network.wait(1, 2)
                assert (raised.value.field, raised.value.status) == ("other", 409)

    asyncio.run(test())


@pytest.mark.parametrize("holds", ["received", "sent", "both"])
def test_clients_that_are_cut_off_wait_and_get_their_answers_when_it_heals(holds: Any) -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            node_id = cluster.brokers[0].node_id
            async with await WireClient.connect(cluster.bootstrap_servers) as client:
                await cluster.network.cut(node_id, "clients", holds=holds)
                asked = asyncio.ensure_future(client.ask(MetadataRequest(topics=[]), 12))
                done, _ = await asyncio.wait([asked], timeout=0.1)
                assert not done
                await cluster.network.heal(node_id, "clients")
                assert len((await asyncio.wait_for(asked, 20)).brokers) == 1

    asyncio.run(test())


@pytest.mark.parametrize("holds", ["sent", "both"])
def test_a_fetch_that_waited_before_the_cut_gets_its_answer_when_it_heals(holds: Any) -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            node_id = cluster.brokers[0].node_id
            await cluster.create_topic("t", partitions=1)
            async with await WireClient.connect(cluster.bootstrap_servers) as client:
                partition = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)
                topic = FetchRequest.FetchTopic(topic="t", partitions=[partition])
                fetch = FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[topic])
                asked = asyncio.ensure_future(client.ask(fetch, 12))
                await cluster.wait_for(
                    lambda state: state.broker(node_id).purgatories["Fetch"] == 1
                )
                await cluster.network.cut(node_id, "clients", holds=holds)
                await cluster.clock.advance(minutes=2)  # the fetch has waited long enough
                assert await cluster.network.wait(node_id, "clients") == 1
                done, _ = await asyncio.wait([asked], timeout=0.1)
                assert not done
                await cluster.network.heal(node_id, "clients")
                assert len((await asyncio.wait_for(asked, 20)).responses) == 1

    asyncio.run(test())


def test_a_frozen_broker_of_this_process_answers_when_it_thaws() -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            (node,) = cluster.brokers
            async with await WireClient.connect(cluster.bootstrap_servers) as client:
                await node.freeze()
                late = await WireClient.connect(cluster.bootstrap_servers)
                asked = [
                    asyncio.ensure_future(each.ask(MetadataRequest(topics=[]), 12))
                    for each in (client, late)
                ]
                done, _ = await asyncio.wait(asked, timeout=0.1)
                assert not done
                described = await cluster.ask("brokers.describe", {})
                assert (described.brokers[0].is_frozen, described.brokers[0].running) == (
                    True,
                    None,
                )
                with pytest.raises(ControlError, match="is frozen already"):
                    await cluster.ask("brokers.freeze", {"broker": node.node_id})
                with pytest.raises(tidelog.ClusterError, match="is frozen already"):
                    await node.freeze()
                await node.thaw()
                for each in asked:
                    assert (await asyncio.wait_for(each, 20)).brokers
                await late.close()
                with pytest.raises(ControlError, match="is not frozen"):
                    await cluster.ask("brokers.thaw", {"broker": node.node_id})
                with pytest.raises(tidelog.ClusterError, match="is not frozen"):
                    await node.thaw()
                await node.freeze()  # and stops all the same

    asyncio.run(test())


def test_a_frozen_broker_of_this_process_is_fenced_and_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As an isolated one, of which the next test is. It was the controller, and went on fencing
    the others, whose heartbeats it held: now its timers stand still."""

    async def test() -> None:
        async with tidelog.Cluster(FAST, brokers=3) as cluster:
            await cluster.create_topic("t", partitions=3, replication_factor=3)
            frozen = (await cluster.state()).controller
            node = cluster.brokers[frozen - 1]
            others = [each for each in cluster.brokers if each is not node]
            ran: list[str] = []
            runtime = node.server.runtime
            await node.freeze()
            for name, line in (("work", runtime.work), ("sessions", runtime.sessions)):
                line.call_at(line.time(), ran.append, name)

            def has_lost(state: ClusterState) -> bool:
                return state.controller not in (-1, frozen) and all(
                    partition.leader not in (-1, frozen) and frozen not in partition.isr
                    for partition in state.topic("t").partitions
                )

            await cluster.wait_for(has_lost)

            async def is_fenced() -> bool:
                return not any([frozen in await other.known() for other in others])

            await until(is_fenced)
            assert ran == [], "its timers stand still"
            await node.thaw()
            await cluster.wait_for(
                lambda state: all(len(one.isr) == 3 for one in state.topic("t").partitions)
            )
            assert not await is_fenced()
            assert f"broker {frozen} is fenced: its session timed out" in caplog.messages
            assert sorted(ran) == ["sessions", "work"]

    asyncio.run(test())


@pytest.mark.slow
def test_librdkafka_goes_on_after_a_frozen_leader_was_replaced() -> None:
    """Isolated, a frozen broker is a stopped process; the others lead in its place."""
    with tidelog.run(FAST, brokers=3, isolated=True) as cluster:
        cluster.create_topic("t", 1, 3)
        # By default it waits 10 s and longer for answers of the frozen one.
        waits = {"socket.timeout.ms": 2000, "api.version.request.timeout.ms": 1000}
        producer = Producer(librdkafka(cluster.bootstrap_servers, acks="all") | waits)
        errors: list[Any] = []
        leader = cluster.state().partition("t", 0).leader
        cluster.brokers[leader - 1].freeze()
        pid = cluster.brokers[leader - 1].pid
        deadline = time.monotonic() + 20
        while state_of(pid) != "T":  # the signal is on its way
            assert time.monotonic() < deadline
            time.sleep(0.01)
        producer.produce("t", b"a", callback=lambda error, _: errors.append(error))
        assert producer.flush(30) == 0
        assert errors == [None]
        cluster.brokers[leader - 1].thaw()

        def is_whole_again(state: ClusterState) -> bool:  # not as the broker that woke up knows it
            partition = state.partition("t", 0)
            return len(partition.isr) == 3 and partition.leader != leader

        assert is_whole_again(cluster.wait_for(is_whole_again))


def state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_links_that_cannot_be_are_refused() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=2) as cluster:
            for call, args, field in (
                ("cut", {"broker": 7, "other": 1}, "broker"),
                ("cut", {"broker": 1, "other": 7}, "other"),
                ("cut", {"broker": 1, "other": 1}, "other"),
                ("cut", {"broker": 1, "other": "client"}, "other"),
                ("cut", {"broker": 1, "other": 2, "holds": "nothing"}, "holds"),
                ("cut", {"broker": 1, "other": 2, "holds": "all"}, "holds"),
                ("cut", {"broker": 1, "other": 2, "seconds": 1}, "seconds"),
                ("slow", {"broker": 1, "other": 2, "seconds": -1}, "seconds"),
                ("slow", {"broker": 1, "other": 2, "seconds": 0}, "seconds"),
                ("slow", {"broker": 1, "other": 2}, "seconds"),
                ("slow", {"broker": 1, "other": "clients", "seconds": 1}, "other"),
                ("wait", {"broker": 1, "other": 3}, "other"),
                ("wait", {"broker": 1, "other": 2}, "other"),
            ):
                with pytest.raises(ControlError) as raised:
                    await cluster.ask(f"network.{call}", args)
                assert raised.value.field == field
            assert await cluster.network.list() == ()

    asyncio.run(test())
