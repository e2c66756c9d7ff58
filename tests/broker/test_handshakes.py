"""Connections in their TLS handshake count for the limits of connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from functools import partial
from typing import Any

import pytest

import tidelog
from support.certificates import authority
from support.clusters import run, until
from support.wire_client import WireClient
from tidelog.config.broker import DEVELOPER_PROFILE, BrokerConfig
from tidelog.handshakes import Handshakes
from tidelog.runtime import SystemNetwork
from tidelog.security.tls import server_context
from tidelog_protocol.messages.cluster import ApiVersionsRequest


def secured() -> ssl.SSLContext:
    given = {**DEVELOPER_PROFILE, "listeners": "SSL://:1", **authority().listener("broker")}
    return server_context(BrokerConfig.from_properties(given).listener_settings("SSL"))


def client() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority().pem)


@pytest.mark.parametrize("limit", ["max.connections", "max.connections.per.ip"])
def test_silent_clients_count_before_their_handshake(limit: str) -> None:
    settings = {"listeners": "SSL://127.0.0.1:0", limit: "2", **authority().listener("localhost")}

    async def scenario() -> None:
        async with tidelog.Cluster(settings) as cluster:
            server: Any = cluster.brokers[0].server
            host, _, port = cluster.bootstrap_servers.rpartition(":")
            silent = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
            await until(lambda: len(server.connections) == 2)
            reader, writer = await asyncio.open_connection(host, int(port))
            with contextlib.suppress(ConnectionError):  # closed as well
                assert await reader.read() == b""
            writer.close()
            assert len(server.connections) == 2
            silent[0][1].close()
            silent[1][1].write(b"no TLS")  # a handshake that fails
            await until(lambda: not server.connections)
            silent[1][1].close()
            async with await WireClient.connect(cluster.bootstrap_servers, client()) as one:
                assert (await one.ask(ApiVersionsRequest(), 0)).error_code == 0
            await until(lambda: not server.connections)

    run(scenario)


def test_new_clients_wait_for_the_rate_from_when_they_are_accepted() -> None:
    """Those of the handshake count too, and its end does not count again."""
    settings = {"listeners": "SSL://127.0.0.1:0", **authority().listener("localhost")}

    async def scenario() -> None:
        async with tidelog.Cluster(settings) as cluster:
            server: Any = cluster.brokers[0].server
            asked: list[str] = []

            def delay_s(listener: str) -> float:
                asked.append(listener)
                return 0.001

            server._connections.slow_new(delay_s)
            async with await WireClient.connect(cluster.bootstrap_servers, client()) as one:
                assert asked == ["SSL"]
                assert (await one.ask(ApiVersionsRequest(), 0)).error_code == 0
            assert asked == ["SSL"]

    run(scenario)


def test_other_protocol_objects_are_told_after_the_handshake() -> None:
    async def scenario() -> None:
        ends: list[str] = []

        class Told(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                ends.append(transport.get_extra_info("cipher")[1])
                transport.close()

        listener = await SystemNetwork().listen("127.0.0.1", 0, Told, secured())
        tls = client()
        tls.check_hostname = False
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=tls)
        assert await reader.read() == b""
        assert ends == ["TLSv1.3"]
        writer.close()
        listener.close()

    run(scenario)


def test_the_log_says_whose_handshake_failed_why_and_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "tidelog.network.authentication")
    required = authority().listener("localhost", ssl_client_auth="required")

    def said(begins: str, advice: str = "") -> bool:
        return any(each.startswith(begins) and advice in each for each in caplog.messages)

    def knock(host: str, port: int, tls: ssl.SSLContext | None) -> str:
        """Connect until the broker closes; asyncio would not send why it refuses a certificate."""
        with socket.create_connection((host, port)) as plain, contextlib.suppress(OSError):
            address = f"127.0.0.1:{plain.getsockname()[1]}"
            with plain if tls is None else tls.wrap_socket(plain, server_hostname=host) as one:
                one.sendall(b"no TLS" * 10)
                one.recv(1)
        return address

    async def scenario() -> None:
        async with tidelog.Cluster({"listeners": "SSL://127.0.0.1:0", **required}) as cluster:
            host, _, port = cluster.bootstrap_servers.rpartition(":")
            for tls, advice in (
                (None, "WRONG_VERSION_NUMBER; the client does not speak TLS"),
                (client(), "PEER_DID_NOT_RETURN_A_CERTIFICATE; ssl.client.auth is required"),
                (ssl.create_default_context(), "UNKNOWN_CA; the client does not trust"),
            ):
                caplog.clear()
                address = await asyncio.to_thread(knock, host, int(port), tls)
                begins = f"failed TLS handshake of {address} on the listener SSL: "
                await until(partial(said, begins))
                assert said(begins, advice)

    run(scenario)


class Wire(asyncio.Transport):
    """An accepted connection, without a socket."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Any = None
        self.written = b""
        self.is_read = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def receive(self, data: bytes) -> None:
        assert self.is_read
        self.protocol.get_buffer(-1)[: len(data)] = data
        self.protocol.buffer_updated(len(data))


def hello() -> bytes:
    """The first bytes of a client."""
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        client().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    return sent.read()


def test_hellos_that_come_together_are_answered_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.handshakes.TURN_S_MAX", 0.0)  # one in each turn of the loop

    async def scenario() -> None:
        accept = Handshakes(asyncio.Protocol, secured())
        wires = [Wire() for _ in range(3)]
        for wire in wires:
            accept().connection_made(wire)
        assert len({id(wire.protocol.get_buffer(-1).obj) for wire in wires}) == 1, "it is shared"
        for wire in wires:
            wire.receive(hello())
        for answered in range(4):
            assert [bool(wire.written) for wire in wires] == [n < answered for n in range(3)]
            assert [wire.is_read for wire in wires] == [n < answered for n in range(3)]
            await asyncio.sleep(0)
        for wire in wires:
            wire.protocol.connection_lost(None)

    run(scenario)
