"""Brokers behind mapped ports: clients use the advertised addresses, brokers their own."""

from __future__ import annotations

import asyncio

import pytest

import tidelog
from support.wire_client import WireClient
from tidelog.config.vocabulary import ConfigError
from tidelog.embedded.cluster_settings import advertised_at, beside_inner
from tidelog_protocol.messages.cluster import MetadataRequest

THREE = {"listeners": "PLAINTEXT://:1"}


@pytest.mark.parametrize(
    ("advertised", "expected"),
    [
        ("PLAINTEXT://out:9000", "PLAINTEXT://out:9001"),
        ("PLAINTEXT://out:0", "PLAINTEXT://out:0"),
        ("PLAINTEXT://a:7,PLAINTEXT://[::1]:8,PLAINTEXT://c:7", "PLAINTEXT://[::1]:8"),
    ],
)
def test_each_broker_has_an_address(advertised: str, expected: str) -> None:
    properties = beside_inner(THREE, advertised_at(advertised, 1, 3), "127.0.0.1:5")
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
        advertised_at(advertised, 1, 3)


@pytest.mark.parametrize(
    ("cluster_s", "own", "reason"),
    [
        ("PLAINTEXT://a:1,PLAINTEXT://b:2", None, "has no address for one more broker"),
        (None, "PLAINTEXT://a:1", "must be that of the whole cluster"),
    ],
)
def test_one_more_broker_is_mapped_as_the_others_are(
    cluster_s: str | None, own: str | None, reason: str
) -> None:
    async def test() -> None:
        async with tidelog.Cluster({"advertised.listeners": cluster_s}, brokers=2) as cluster:
            with pytest.raises(tidelog.ClusterError, match=reason):
                await cluster.add_broker({"advertised.listeners": own})

    asyncio.run(test())


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
            await cluster.add_broker()
            asked = {"advertised_listeners": "PLAINTEXT://elsewhere:7"}
            await cluster.ask("cluster.add_broker", asked)
            servers = "localhost:1,localhost:2,localhost:3,elsewhere:7"
            assert cluster.bootstrap_servers == servers
            await cluster.create_topic("t", replication_factor=4)
            await cluster.wait_for(lambda state: len(state.partition("t").isr) == 4)

    asyncio.run(test())
