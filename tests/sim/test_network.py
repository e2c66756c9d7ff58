"""The simulated network is a stream: in order, torn, slow, and broken when the seed says so."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.simulation.loop import simulate
from tidelog.simulation.network import HIGH_WATER_BYTES, SimNetwork


class Collector(asyncio.Protocol):
    def __init__(self):
        self.data = bytearray()
        self.pieces = 0
        self.transport = None
        self.lost = asyncio.get_running_loop().create_future()
        self.paused = []

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.pieces += 1
        self.data += data

    def connection_lost(self, exc):
        self.lost.set_result(exc)

    def pause_writing(self):
        self.paused.append(True)

    def resume_writing(self):
        self.paused.append(False)


class Echo(Collector):
    def data_received(self, data):
        self.transport.write(data)


class Buffered(asyncio.BufferedProtocol):
    def __init__(self):
        self.buffer = bytearray(7)
        self.data = bytearray()

    def get_buffer(self, sizehint):
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes):
        self.data += self.buffer[:nbytes]

    def eof_received(self):
        return False


def run(main, seed=1):
    result, loop = simulate(seed, lambda loop: main(SimNetwork(loop, seed)))
    assert loop.failures == []
    return result


def test_bytes_arrive_in_order_in_pieces() -> None:
    async def main(network):
        await network.door("b").listen("b", 9, Echo)
        transport, protocol = await network.door("a").connect("b", 9, Collector)
        for n in range(50):
            transport.write(bytes([n]) * 20)
        await asyncio.sleep(1)
        return bytes(protocol.data), protocol.pieces

    data, pieces = run(main)
    assert data == b"".join(bytes([n]) * 20 for n in range(50))
    assert pieces > 10


def test_buffered_protocols_are_filled_to_their_size() -> None:
    made = []

    async def main(network):
        def factory():
            made.append(Buffered())
            return made[-1]

        await network.door("b").listen("b", 9, factory)
        transport, _ = await network.door("a").connect("b", 9, Collector)
        transport.write(b"abcdefghijklmnopqrstuvwxyz")
        await asyncio.sleep(1)
        return bytes(made[0].data)

    assert run(main) == b"abcdefghijklmnopqrstuvwxyz"


def test_a_port_without_a_listener_refuses() -> None:
    async def main(network):
        with pytest.raises(ConnectionRefusedError):
            await network.door("a").connect("b", 9, Collector)

    run(main)


def test_a_close_arrives_after_what_was_written() -> None:
    async def main(network):
        made = []

        def factory():
            made.append(Collector())
            return made[-1]

        await network.door("b").listen("b", 9, factory)
        transport, here = await network.door("a").connect("b", 9, Collector)
        transport.write(b"last words")
        transport.close()
        there = made[0] if made else None
        await asyncio.sleep(1)
        there = made[0]
        return bytes(there.data), await there.lost, await here.lost

    assert run(main) == (b"last words", None, None)


def test_a_dead_hosts_peers_see_a_reset_and_it_sees_nothing() -> None:
    async def main(network):
        await network.door("b").listen("b", 9, Collector)
        _, here = await network.door("a").connect("b", 9, Collector)
        network.drop_host("b")
        error = await here.lost
        assert network.listeners == {}
        return error

    assert isinstance(run(main), ConnectionResetError)


def test_a_reader_that_pauses_makes_the_writer_pause() -> None:
    async def main(network):
        made = []

        def factory():
            made.append(Collector())
            return made[-1]

        await network.door("b").listen("b", 9, factory)
        transport, here = await network.door("a").connect("b", 9, Collector)
        await asyncio.sleep(0.1)
        made[0].transport.pause_reading()
        transport.write(bytes(HIGH_WATER_BYTES + 1))
        await asyncio.sleep(1)
        assert here.paused == [True]
        assert len(made[0].data) == 0
        made[0].transport.resume_reading()
        await asyncio.sleep(1)
        assert here.paused == [True, False]
        return len(made[0].data)

    assert run(main) == HIGH_WATER_BYTES + 1


def test_messages_over_a_slow_link_are_overtaken() -> None:
    async def main(network):
        order = []

        class Listener(asyncio.Protocol):
            def data_received(self, data):
                order.append(bytes(data))

        await network.door("hub").listen("hub", 9, Listener)
        slow, _ = await network.door("far").connect("hub", 9, Collector)
        fast, _ = await network.door("near").connect("hub", 9, Collector)
        network.slow_links["far", "hub"] = (0.5, 0.5)
        slow.write(b"1")
        fast.write(b"2")
        await asyncio.sleep(1)
        return order

    assert run(main) == [b"2", b"1"]
