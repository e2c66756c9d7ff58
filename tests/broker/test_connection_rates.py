"""max.connection.creation.rate: of a broker and of a listener, and which connections wait."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise

import pytest

import tidelog
from support.clusters import run
from support.wire_client import WireClient
from tidelog.config.broker import BrokerConfig
from tidelog.quotas.client_quotas import ClientQuotas
from tidelog.quotas.connection_rates import UNLIMITED, ConnectionRates
from tidelog.quotas.windows import RateWindows
from tidelog_protocol.messages.cluster import ApiVersionsRequest
from tidelog_storage.config_key import ConfigError

RATE = "max.connection.creation.rate"


def rates(broker: int = UNLIMITED, spared: str = "", **listeners: int) -> ConnectionRates:
    made = ConnectionRates(partial(RateWindows, 11, 1), 1000)
    made.change(broker, listeners, spared)
    return made


def test_a_burst_is_free_and_what_is_above_waits_in_turn() -> None:
    """The ten windows before the one that has begun hold 100 connections at 10 a second."""
    limited = rates(10)
    waits = [limited.delay_s("PLAINTEXT", 0.0) for _ in range(130)]
    assert waits[:100] == [0.0] * 100
    # Each one waits for those before it, as behind an acceptor of Kafka that sleeps.
    assert all(before <= after for before, after in pairwise(waits))
    assert waits[-1] > 1
    assert limited.delay_s("PLAINTEXT", 60_000.0) == 0.0


def test_a_listener_has_its_own_rate_and_its_own_queue() -> None:
    limited = rates(A=1)
    assert [limited.delay_s("B", 0.0) for _ in range(1000)] == [0.0] * 1000
    assert max(limited.delay_s("A", 0.0) for _ in range(20)) > 1


def test_the_listener_of_other_brokers_is_spared_the_brokers_rate() -> None:
    limited = rates(1, spared="INNER")
    assert max(limited.delay_s("OUTER", 0.0) for _ in range(20)) > 1
    assert [limited.delay_s("INNER", 0.0) for _ in range(100)] == [0.0] * 100


def test_a_rate_of_zero_lets_one_connection_in_each_window() -> None:
    limited = rates(0)
    assert [limited.delay_s("A", 0.0) for _ in range(3)] == [1.0, 2.0, 3.0]


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {
            "node.id": "1",
            "log.dirs": "/d",
            "listeners": "A://:1,B://:2",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        }
        | {"inter.broker.listener.name": "A", **settings}
    )


class Clock:
    def monotonic(self) -> float:
        return 0.0


def test_settings_of_all_and_of_one_listener() -> None:
    quotas = ClientQuotas(config(), Clock(), None)  # type: ignore[arg-type]
    assert quotas.connection_delays(config()) is None
    delay_s = quotas.connection_delays(config(**{f"listener.name.b.{RATE}": "1", RATE: "5"}))
    assert delay_s is not None
    assert max(delay_s("B") for _ in range(30)) > 1
    assert max(delay_s("A") for _ in range(30)) == 0  # brokers come by it
    assert quotas.connection_delays(config()) is None
    with pytest.raises(ConfigError, match=RATE):
        quotas.connection_delays(config(**{f"listener.name.b.{RATE}": "-1"}))


def test_the_number_of_connections_of_listeners_and_whom_they_make_room_for() -> None:
    own = config(**{"listener.name.b.max.connections": "7"})
    assert own.of_listeners("max.connections") == {"B": 7}
    assert own.protected_listener() == "A"
    assert config(listeners="A://:1").protected_listener() is None


def test_a_connection_that_waits_is_answered_later() -> None:
    async def test() -> None:
        async with tidelog.Cluster({RATE: "0"}) as cluster:
            loop = asyncio.get_running_loop()
            began = loop.time()
            async with await WireClient.connect(cluster.bootstrap_servers) as client:
                await client.ask(ApiVersionsRequest(), 0)
            assert loop.time() - began >= 0.9, "a window is a second"

    run(test)
