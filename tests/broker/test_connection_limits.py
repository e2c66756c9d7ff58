"""Connections: their end, idleness, back-pressure; over real sockets."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from support.clusters import until
from support.handler_broker import (
    FETCH_VERSION,
    HEARTBEAT_VERSION,
    HandlerBroker,
    answers,
    fetch,
    heartbeat,
    produce,
    run,
    settle,
)
from support.memory_transport import MemoryTransport
from support.wire_client import WireClient, request_bytes
from tidelog.network import connection as connection_module
from tidelog.network.connections import Connections
from tidelog.runtime import SystemNetwork
from tidelog_protocol.messages.data import FetchRequest
from tidelog_protocol.messages.groups import HeartbeatRequest

if TYPE_CHECKING:
    from tidelog.network.connection import Connection

# -- the end ---------------------------------------------------------------------------------------


def test_a_lost_connection_cancels_what_is_parked() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        transport = broker.connect()
        transport.feed(fetch(1) + fetch(2))
        transport.lose(ConnectionResetError())
        assert broker.cancelled == [1, 2]
        for _, deferred in broker.parked:
            deferred.complete(broker.fetched(1))  # too late, and no harm
        assert transport.received == b""
        assert not broker.connections.live

    run(test)


def test_stop_closes_connections_and_abort_drops_slow_ones() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        quick, slow = broker.connect(), broker.connect(room=0)
        quick.feed(heartbeat(1))
        slow.feed(heartbeat(2))
        broker.connections.stop()
        await settle()
        assert list(broker.connections.live) == [slow.protocol]
        broker.connections.abort()
        await settle()
        assert not broker.connections.live
        assert (quick.aborted, slow.aborted) == (False, True)

    run(test)


def test_idle_connections_are_closed() -> None:
    class FakeLoop:
        now = 0.0

        def time(self) -> float:
            return self.now

        def call_later(self, delay: float, *args: Any) -> None: ...

    async def test() -> None:
        broker = HandlerBroker(idle_ms_max=10_000)
        loop: Any = FakeLoop()
        idle, busy, waiting = broker.connect(), broker.connect(), broker.connect()
        waiting.feed(fetch(1))
        for second in range(12):
            loop.now = float(second)
            busy.feed(heartbeat(second))
            broker.connections._sweep(loop)
            assert idle.closed == (second >= 10)
        assert not busy.closed
        assert not waiting.closed  # it waits for us
        broker.connections.stop()

    run(test)


def test_connections_above_the_limit_are_closed() -> None:
    async def test() -> None:
        broker = HandlerBroker(connections_max=2)
        transports = [broker.connect() for _ in range(3)]
        assert [transport.aborted for transport in transports] == [False, False, True]

    run(test)


def test_a_listener_may_have_a_limit_of_its_own() -> None:
    async def test() -> None:
        connections = HandlerBroker(connections_max=9).connections
        connections.listener_limits = {"SSL": 1}
        names = ("SSL", "SSL", "PLAINTEXT", "PLAINTEXT")
        transports = [MemoryTransport(connections.factory(name)) for name in names]
        assert [transport.aborted for transport in transports] == [False, True, False, False]

    run(test)


def test_clients_make_room_for_other_brokers() -> None:
    async def test() -> None:
        connections = HandlerBroker(connections_max=2).connections
        connections.protected_listener = "INTERNAL"
        connect = connections.factory
        oldest = MemoryTransport(connect("CLIENTS"))
        newer = MemoryTransport(connect("CLIENTS"))
        first, second = connections.live
        first.idle_since, second.idle_since = 1.0, 2.0
        assert MemoryTransport(connect("CLIENTS")).aborted
        peers = [MemoryTransport(connect("INTERNAL"))]
        assert (oldest.aborted, newer.aborted) == (True, False)
        await settle()
        peers += [MemoryTransport(connect("INTERNAL")) for _ in range(2)]
        assert newer.aborted
        assert not any(peer.aborted for peer in peers)

    run(test)


def test_connections_of_one_address_above_its_limit_are_closed() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        unlimited = broker.connect()
        broker.connections.connections_per_ip_max = 2
        transports = [broker.connect() for _ in range(3)]
        assert [transport.aborted for transport in transports] == [False, True, True]
        await settle()
        first = next(iter(broker.connections.live))
        first.client_host = "192.0.2.9"  # of another address from now on
        assert not broker.connect().aborted
        assert not unlimited.aborted

    run(test)


def test_an_address_may_have_a_limit_of_its_own() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        connections = broker.connections
        broker.connect()
        (first,) = connections.live
        connections.connections_per_ip = {"192.0.2.9": 1}
        assert not broker.connect().aborted
        connections.connections_per_ip = {first.client_host: 2}
        connections.connections_per_ip_max = 1
        assert broker.connect().aborted
        connections.connections_per_ip = {first.client_host: 9}
        assert not broker.connect().aborted

    run(test)


def test_a_connection_that_waited_for_the_rate_counts_for_its_address() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        counted: list[str] = []

        def delay_s(address: str) -> float:
            counted.append(address)
            return 0.01 if len(counted) > 2 else 0.0

        broker.connections.slow_new(lambda _: 0.01)
        broker.connections.limit_new(delay_s)
        transports = [broker.connect() for _ in range(3)]
        for transport in transports:
            transport.feed(heartbeat(1))
        assert counted == []  # as behind an acceptor of Kafka that sleeps
        await until(lambda: len(broker.connections.live) == 2 and all(map(answers, transports[:2])))
        assert len(counted) == 3
        assert [answers(transport) for transport in transports] == [[1], [1], []]
        assert transports[2].closed

    run(test)


def test_early_clients_wait_until_the_broker_is_open() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        connections = Connections()
        transport = MemoryTransport(connections.factory())
        transport.feed(heartbeat(1))
        await settle()
        assert transport.unread > 0
        connections.open(broker.dispatcher)
        await settle()
        assert answers(transport) == [1]

    run(test)


def test_unfinished_frames_of_all_connections_are_bounded() -> None:
    """20 connections with 90 MB of a 100 MiB frame each, then silence, held 2.1 GB."""

    async def test() -> None:
        mib = 1 << 20
        broker = HandlerBroker(unfinished_bytes_max=10 * mib)
        frame = produce(1, b"x" * (7 * mib // 2))
        first, second, third = (broker.connect() for _ in range(3))
        first.feed(frame[: 3 * mib])  # in a buffer of the frame's size
        second.feed(frame[: 3 * mib])
        first.feed(frame[3 * mib : 3 * mib + 1])  # now the second one is silent for longer
        third.feed(frame[: 3 * mib])
        assert [one.aborted for one in (first, second, third)] == [False, True, False]
        first.feed(frame[3 * mib + 1 :])
        assert [len(records) for records in broker.asked] == [7 * mib // 2]
        fourth = broker.connect()
        fourth.feed(frame[: 3 * mib])  # there is room again
        await settle()
        assert list(broker.connections.live) == [one.protocol for one in (first, third, fourth)]
        third.lose()
        fourth.lose()
        assert broker.connections._unfinished_bytes == 0

    run(test)


def test_a_single_large_frame_always_has_room() -> None:
    async def test() -> None:
        broker = HandlerBroker(unfinished_bytes_max=1)
        transport = broker.connect()
        transport.feed(produce(1, b"x" * (3 << 20)))
        assert [len(records) for records in broker.asked] == [3 << 20]

    run(test)


# -- back-pressure ---------------------------------------------------------------------------------


def test_a_reader_that_does_not_read_bounds_what_is_queued() -> None:
    """1,000 fetches of 1 MiB from one 100 KB wake-up: nobody holds a gigabyte for that."""

    async def test() -> None:
        broker = HandlerBroker()
        size = 1 << 20
        transport = broker.connect(room=100_000)
        transport.feed(b"".join(fetch(number, min_bytes=0, size=size) for number in range(1000)))
        await settle()
        queued = connection_module.QUEUED_BYTES_MAX + 3 * size  # and what the transport holds
        assert len(broker.asked) * size <= queued
        assert not transport.reading
        assert transport.waiting_max <= queued
        largest_step = 0
        while len(broker.asked) < 1000 or transport.waiting:
            before = len(broker.asked)
            transport.make_room(3 * size + 12345)
            await settle()
            largest_step = max(largest_step, len(broker.asked) - before)
        transport.make_room(None)
        assert largest_step <= 10
        assert answers(transport) == list(range(1000))
        assert transport.reading

    run(test)


def test_large_answers_arrive_whole_through_any_room() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        broker.records = bytes(range(256)) * 4
        sizes = [0, 10, 70_000, 300_000, 3, 2_000_000, 64 << 10]
        whole, slow = broker.connect(), broker.connect(room=1000)
        requests = b"".join(fetch(n, min_bytes=0, size=size) for n, size in enumerate(sizes))
        whole.feed(requests)
        slow.feed(requests)
        while slow.waiting:
            slow.make_room(77_777)
            await settle()
        slow.make_room(None)
        assert answers(whole) == list(range(len(sizes)))
        assert whole.received == slow.received

    run(test)


def test_a_full_transport_without_a_socket_holds_at_most_a_chunk() -> None:
    async def test() -> None:
        transport = HandlerBroker().connect(room=10)
        transport.feed(fetch(1, min_bytes=0, size=3 << 20))
        assert transport.waiting_max <= connection_module.CHUNK_BYTES_MAX

    run(test)


def test_requests_in_flight_are_bounded() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        transport = broker.connect()
        transport.feed(b"".join(fetch(number) for number in range(1000)))
        limit = connection_module.IN_FLIGHT_MAX
        assert len(broker.parked) == limit
        assert not transport.reading
        completed = 0
        while completed < 1000:
            assert len(broker.parked) - completed <= limit
            broker.parked[completed][1].complete(broker.fetched(1))
            completed += 1
            await settle()
        assert answers(transport) == list(range(1000))
        assert transport.reading

    run(test)


def test_bytes_of_requests_in_flight_are_bounded() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        transport = broker.connect()
        client_id = "x" * 30_000
        request = FetchRequest(min_bytes=1)
        padded = b"".join(
            request_bytes(request, FETCH_VERSION, number, client_id) for number in range(256)
        )
        transport.feed(padded)
        await settle()
        parked = len(broker.parked)
        assert parked * 30_000 <= connection_module.QUEUED_BYTES_MAX + 100_000
        assert transport.unread > 0
        for number in range(256):
            broker.parked[number][1].complete(broker.fetched(1))
            await settle()
        assert answers(transport) == list(range(256))

    run(test)


# -- real sockets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [3_000, 1 << 20])
def test_large_answers_arrive_whole_through_a_full_socket(piece: int) -> None:
    """Vectors go to the socket itself; what it does not take stays here, but for a little."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        broker = HandlerBroker()
        broker.records = bytes(range(256)) * 4
        sizes = [300_000, 10, 70_000, 2_000_000, 3, 64 << 10, 900_000, 0, 100_000]
        requests = b"".join(fetch(n, min_bytes=0, size=size) for n, size in enumerate(sizes))
        whole = broker.connect()
        whole.feed(requests)
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 50_000)
        theirs.setblocking(False)
        transport, _ = await loop.create_connection(broker.connections.factory, sock=ours)
        received = bytearray()
        with theirs:
            await loop.sock_sendall(theirs, requests)
            while len(received) < len(whole.received):
                await settle()
                assert transport.get_write_buffer_size() <= connection_module.JOINED_BYTES_MAX
                received += await loop.sock_recv(theirs, piece)
        await settle()
        assert bytes(received) == bytes(whole.received)
        broker.connections.abort()
        await settle()
        assert not broker.connections.live

    run(test)


def test_a_client_that_vanishes_in_the_middle_of_a_large_answer_is_forgotten() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        broker = HandlerBroker()
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        await loop.create_connection(broker.connections.factory, sock=ours)
        with theirs:
            request = b"".join(fetch(n, min_bytes=0, size=3 << 20) for n in range(2))
            await loop.sock_sendall(theirs, request)
            await loop.sock_recv(theirs, 1000)
        while broker.connections.live:
            await settle()

    run(test)


def test_over_a_real_socket() -> None:
    async def test() -> None:
        broker = HandlerBroker(frame_bytes_max=100_000)
        accepted: list[Connection] = []

        def factory() -> Connection:
            accepted.append(broker.connections.factory())
            return accepted[-1]

        listener = await SystemNetwork().listen("127.0.0.1", 0, factory)
        address = f"127.0.0.1:{listener.port}"
        async with (
            await WireClient.connect(address) as good,
            await WireClient.connect(address) as bad,
        ):
            bad.send_bytes(b"\x16\x03\x01\x02\x00\x01\x00\x01")  # TLS
            assert await bad.closed()
            for number in range(50):
                good.send(HeartbeatRequest(generation_id=number), HEARTBEAT_VERSION)
            for number in range(50):
                assert (await good.receive()).throttle_time_ms == number
            response = await good.ask(FetchRequest(min_bytes=0, max_bytes=10 << 20), FETCH_VERSION)
            assert len(response.responses[0].partitions[0].records) == 10 << 20
            # Too many unread answers: the kernel's buffers fill up, then ours, then reading stops.
            for _ in range(200):
                good.send(FetchRequest(min_bytes=0, max_bytes=1 << 20), FETCH_VERSION)
            for _ in range(200):
                response = await good.receive()
                assert len(response.responses[0].partitions[0].records) == 1 << 20
            accepted_socket = accepted[0]._transport.get_extra_info("socket")
            assert accepted_socket.getsockopt(6, 1) != 0  # IPPROTO_TCP, TCP_NODELAY
            assert accepted[0].client_host == "127.0.0.1"
        listener.close()
        broker.connections.stop()
        await settle()

    run(test)


def test_a_connection_that_is_accepted_too_late_is_closed() -> None:
    async def test() -> None:
        broker = HandlerBroker()
        broker.connections.stop()
        assert broker.connect().aborted

    run(test)
