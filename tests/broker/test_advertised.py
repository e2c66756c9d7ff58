"""Brokers behind mapped ports: clients use the advertised addresses, brokers their own."""

from __future__ import annotations

import asyncio

import pytest

import tidelog
from support.wire_client import WireClient
from tidelog.config.vocabulary import ConfigError
from tidelog.embedded.cluster_settings import advertised_beside_inner
from tidelog_protocol.messages.cluster import MetadataRequest

THREE = {"listeners": "PLAINTEXT://:1", "controller.quorum.voters": "1@h:1,2@h:2,3@h:3"}


@pytest.mark.parametrize(
    ("advertised", "expected"),
    [
        ("PLAINTEXT://out:9000", "PLAINTEXT://out:9001"),
        ("PLAINTEXT://out:0", "PLAINTEXT://out:0"),
        ("PLAINTEXT://a:7,PLAINTEXT://[::1]:8,PLAINTEXT://c:7", "PLAINTEXT://[::1]:8"),
    ],
)
def test_each_broker_has_an_address(advertised: str, expected: str) -> None:
    properties = advertised_beside_inner(THREE, advertised, 1, "127.0.0.1:5")
    assert properties["listeners"] == "PLAINTEXT://:1,BROKER://127.0.0.1:5"
    assert properties["advertised.listeners"] == f"{expected},BROKER://127.0.0.1:5"


@pytest.mark.parametrize(
    ("advertised", "reason"),
    [
        ("PLAINTEXT://a:1,PLAINTEXT://b:2", "has 2 addresses for 3 brokers"),
        ("OUTSIDE://a:1", "OUTSIDE is not PLAINTEXT"),
        ("a:1", "Unable to parse a:1"),
    ],
)
def test_a_bad_address_is_refused(advertised: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        advertised_beside_inner(THREE, advertised, 1, "127.0.0.1:5")


@pytest.mark.parametrize("isolated", [False, True])
def test_brokers_that_clients_reach_elsewhere_replicate(isolated: bool) -> None:
    """Nothing listens at the advertised addresses here, as inside a container."""

    async def test() -> None:
        advertised = "PLAINTEXT://localhost:1"
        settings = {"advertised.listeners": advertised}
        async with tidelog.Cluster(settings, brokers=2, isolated=isolated) as cluster:
            assert cluster.bootstrap_servers == "localhost:1,localhost:2"
            port = cluster.brokers[1].config.client_listeners()[0].port
            async with await WireClient.connect(f"127.0.0.1:{port}") as client:
                answer = await client.ask(MetadataRequest(topics=None), 12)
            assert [(each.host, each.port) for each in answer.brokers] == [
                ("localhost", 1),
                ("localhost", 2),
            ]
            with pytest.raises(tidelog.ClusterError, match=r"advertised\.listeners has no address"):
                await cluster.add_broker()

    asyncio.run(test())
