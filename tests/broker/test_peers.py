"""Peer channels over real sockets: answers, pipelining, and every way a peer can fail."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from support.handler_broker import HandlerBroker, run
from tidelog.network.peers import Channels, PeerChannel, PeerError
from tidelog.runtime import SystemClock, SystemNetwork, SystemRng
from tidelog_protocol.messages.data import FetchRequest
from tidelog_protocol.messages.groups import HeartbeatRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tidelog.seams import Listener


class Host:
    """A listening broker that can go away and come back at its port."""

    def __init__(self) -> None:
        self.broker = HandlerBroker()
        self.listener: Listener | None = None
        self.port = 0

    async def up(self) -> None:
        self.listener = await SystemNetwork().listen(
            "127.0.0.1", self.port, self.broker.connections.factory
        )
        self.port = self.listener.port

    def down(self) -> None:
        assert self.listener is not None
        self.listener.close()
        self.broker.connections.abort()

    def channel(self, timeout_s: float = 10.0) -> PeerChannel:
        return channel_to(self.port, timeout_s)


def channel_to(port: int, timeout_s: float = 10.0) -> PeerChannel:
    return PeerChannel(
        SystemNetwork(),
        SystemClock(),
        ("127.0.0.1", port),
        client_id="test",
        request_timeout_s=timeout_s,
        rng=SystemRng(),
    )


@asynccontextmanager
async def host() -> AsyncIterator[Host]:
    there = Host()
    await there.up()
    try:
        yield there
    finally:
        there.down()
        there.broker.connections.stop()
        await there.broker.dispatcher.stop()


def heartbeat(number: int = 0, group: str = "g") -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=number, member_id="m")


def fetch(size: int = 0) -> FetchRequest:
    return FetchRequest(min_bytes=0 if size else 1, max_bytes=size, topics=[])


def is_connected(channel: PeerChannel) -> bool:
    """Whether a request would be sent at once."""
    return channel._link is not None and channel._link.is_open


async def parked(broker: HandlerBroker, count: int) -> None:
    while len(broker.parked) < count:  # noqa: ASYNC110 - real sockets: no event to wait for
        await asyncio.sleep(0)


def test_an_answer_comes_back_and_the_connection_stays() -> None:
    async def test() -> None:
        async with host() as there:
            channel = there.channel()
            assert not is_connected(channel)
            assert (await channel.ask(heartbeat(3))).throttle_time_ms == 3
            assert is_connected(channel)
            assert (await channel.ask(heartbeat(4))).throttle_time_ms == 4
            assert len(there.broker.connections.live) == 1
            channel.close()

    run(test)


def test_requests_of_many_tasks_are_pipelined_on_one_connection() -> None:
    async def test() -> None:
        async with host() as there:
            channel = there.channel()
            answers = await asyncio.gather(*(channel.ask(heartbeat(n)) for n in range(100)))
            assert [answer.throttle_time_ms for answer in answers] == list(range(100))
            assert len(there.broker.connections.live) == 1
            channel.close()

    run(test)


@pytest.mark.parametrize("size", [10, 100_000, 5_000_000])
def test_records_belong_to_the_caller(size: int) -> None:
    async def test() -> None:
        async with host() as there:
            channel = there.channel()
            there.broker.records = b"a" * 1000
            first = await channel.ask(fetch(size), version=12)
            there.broker.records = b"b" * 1000
            await channel.ask(fetch(size), version=12)
            records = first.responses[0].partitions[0].records
            assert bytes(records) == b"a" * size
            channel.close()

    run(test)


def test_no_listener_at_the_address() -> None:
    async def test() -> None:
        async with host() as there:
            port = there.port
        channel = channel_to(port)
        for _ in range(3):  # the second and third after a pause
            with pytest.raises(PeerError, match=str(port)):
                await channel.ask(heartbeat())
        channel.close()

    run(test)


def test_the_connection_is_made_again_after_it_broke() -> None:
    async def test() -> None:
        async with host() as there:
            channel = there.channel()
            await channel.ask(heartbeat())
            waiting = asyncio.gather(
                *(channel.ask(fetch(), version=12) for _ in range(3)), return_exceptions=True
            )
            await parked(there.broker, 3)
            there.down()
            assert [type(answer) for answer in await waiting] == [PeerError] * 3
            with pytest.raises(PeerError):
                await channel.ask(heartbeat())
            await there.up()
            assert (await channel.ask(heartbeat(7))).throttle_time_ms == 7
            channel.close()

    run(test)


def test_a_connection_on_its_way_out_takes_no_request() -> None:
    """From Python 3.12 on its transport fails with TypeError then, or leaves a dead socket with the
    selector; the request was left waiting for an answer that nobody would look at."""

    async def test() -> None:
        async with host() as there:
            channel = there.channel()
            await channel.ask(heartbeat())
            link = channel._link
            assert link is not None
            link._transport.close()
            assert is_connected(channel), "it hears of it later"
            with pytest.raises(PeerError, match="connection lost"):
                await channel.ask(heartbeat())
            assert link._waiting == {}
            await asyncio.sleep(0)
            assert (await channel.ask(heartbeat(2))).throttle_time_ms == 2
            channel.close()

    run(test)


def test_no_answer_in_time_ends_the_connection() -> None:
    async def test() -> None:
        async with host() as there:
            channel = there.channel(timeout_s=0.02)
            behind = asyncio.ensure_future(channel.ask(fetch(), version=12, timeout_s=60))
            with pytest.raises(PeerError, match="no answer to Fetch within"):
                await channel.ask(fetch(), version=12)
            with pytest.raises(PeerError):
                await behind
            assert not is_connected(channel)
            assert (await channel.ask(heartbeat(5), timeout_s=60)).throttle_time_ms == 5
            channel.close()

    run(test)


def test_a_caller_that_gives_up_leaves_the_others_alone() -> None:
    async def test() -> None:
        async with host() as there:
            channel = there.channel()
            given_up = asyncio.ensure_future(channel.ask(fetch(), version=12))
            await parked(there.broker, 1)
            other = asyncio.ensure_future(channel.ask(heartbeat(1)))
            given_up.cancel()
            await asyncio.wait([given_up])
            there.broker.parked[0][1].complete(there.broker.fetched(1))
            assert (await other).throttle_time_ms == 1
            channel.close()

    run(test)


def test_close_fails_pending_and_later_requests() -> None:
    async def test() -> None:
        async with host() as there:
            channel = there.channel()
            connecting = asyncio.ensure_future(channel.ask(heartbeat()))
            await asyncio.sleep(0)
            channel.close()
            with pytest.raises(PeerError, match="closed"):
                await connecting
            with pytest.raises(PeerError, match="closed"):
                await channel.ask(heartbeat())

    run(test)


def test_close_does_not_swallow_the_callers_cancellation() -> None:
    async def test() -> None:
        async with host() as there:
            channel = there.channel()
            connecting = asyncio.ensure_future(channel.ask(heartbeat()))
            await asyncio.sleep(0)
            connecting.cancel()
            channel.close()
            with pytest.raises(asyncio.CancelledError):
                await connecting

    run(test)


def answering(reply: Callable[[bytes], bytes]) -> type[asyncio.Protocol]:
    class Liar(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            assert isinstance(self.transport, asyncio.Transport)
            self.transport.write(reply(data[8:12]))

    return Liar


@pytest.mark.parametrize(
    "reply",
    [
        lambda _: struct.pack(">i", -1),
        lambda _: struct.pack(">ii", 4, 99),
        lambda correlation_id: struct.pack(">i", 4) + correlation_id,
        lambda _: struct.pack(">i", 2) + b"xx",
    ],
    ids=["negative size", "unknown correlation id", "no body", "short header"],
)
def test_malformed_answers(reply: Callable[[bytes], bytes]) -> None:
    async def test() -> None:
        listener = await SystemNetwork().listen("127.0.0.1", 0, answering(reply))
        channel = channel_to(listener.port)
        with pytest.raises(PeerError, match="malformed"):
            await channel.ask(heartbeat())
        assert not is_connected(channel)
        channel.close()
        listener.close()

    run(test)


class NamedChannel:
    def __init__(self, host: str, port: int) -> None:
        self.host, self.port, self.is_closed = host, port, False

    def close(self) -> None:
        self.is_closed = True


def test_a_broker_that_has_moved_gets_a_new_channel() -> None:
    addresses = {1: ("a", 1), 2: ("b", 2)}
    channels = Channels(NamedChannel, addresses.get)
    first, second = channels.to(1), channels.to(2)
    assert (first.host, first.port) == ("a", 1)
    assert channels.to(1) is first
    addresses[1] = ("a", 3)
    moved = channels.to(1)
    assert moved.port == 3
    assert (first.is_closed, second.is_closed) == (True, False)
    with pytest.raises(PeerError, match="broker 3 is not registered"):
        channels.to(3)
    channels.close()
    assert moved.is_closed
    assert second.is_closed
