"""Clusters whose nodes authenticate to each other: replication, failover, the remote tier."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from support.certificates import Authority, authority
from support.clusters import (
    FAST,
    STEADY,
    consume,
    create_topic,
    has_isr_of,
    in_thread,
    librdkafka,
    partition_of,
    run,
    until,
)
from support.flaky_store import new_faults
from support.secured import SCRAM_JAAS, SecuredCluster, plain_jaas
from support.tiered_cluster import SETTINGS, TieredCluster, segmented
from support.wire_client import WireClient
from tidelog.cluster.metadata.image import RESOURCE_BROKER
from tidelog.start_error import StartError
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def sasl(mechanism: str, jaas: str) -> dict[str, str]:
    """Settings of nodes that authenticate by this mechanism."""
    names = ("sasl_ssl", "controller")
    return {
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "sasl.mechanism.controller.protocol": mechanism,
        **{f"listener.name.{one}.{mechanism.lower()}.sasl.jaas.config": jaas for one in names},
    }


def client_settings(bootstrap: str, protocol: str) -> dict[str, Any]:
    own = authority().sign("client")
    return {
        **librdkafka(bootstrap),
        "security.protocol": protocol,
        "ssl.ca.pem": authority().pem,
        "ssl.certificate.pem": own.chain_pem,
        "ssl.key.pem": own.key_pem,
        **(
            {"sasl.mechanism": "PLAIN", "sasl.username": "broker", "sasl.password": "inner-secret"}
            if protocol == "SASL_SSL"
            else {}
        ),
    }


def produce(settings: dict[str, Any], values: list[bytes]) -> None:
    from confluent_kafka import Producer

    producer = Producer({**settings, "acks": "all"})
    for value in values:
        producer.produce("t", value, partition=0)
    assert producer.flush(60) == 0


def shows(cluster: SecuredCluster, user: str) -> bool:
    """Whether brokers are connected to others as this user, and nothing comes as none."""
    doors = [door for node in cluster.brokers for door in node.server.doors[:1]]
    names = [str(one.principal) for door in doors for one in door.live]
    return any(name.startswith(f"User:{user}") for name in names) and "User:ANONYMOUS" not in names


@pytest.mark.parametrize("mechanism", ["", "PLAIN", "SCRAM-SHA-512"])
def test_a_cluster_replicates_and_fails_over(mechanism: str) -> None:
    settings = {"ssl.client.auth": "required", **FAST}
    protocol, user = ("SASL_SSL", "broker") if mechanism else ("SSL", "CN=broker")
    if mechanism:
        settings |= sasl("PLAIN", plain_jaas(broker="inner-secret"))
    if mechanism.startswith("SCRAM"):  # controllers learn their users from each other
        user = "bro=k,er"
        own = "listener.name.sasl_ssl"
        settings |= {
            "sasl.mechanism.inter.broker.protocol": mechanism,
            f"{own}.sasl.enabled.mechanisms": f"PLAIN,{mechanism}",
            f"{own}.{mechanism.lower()}.sasl.jaas.config": SCRAM_JAAS,
        }

    async def test() -> None:
        async with SecuredCluster(protocol, settings) as cluster:
            to = client_settings(cluster.bootstrap_servers, protocol)
            await in_thread(create_topic, to, "t", 1, 3)
            await in_thread(produce, to, [b"1", b"2"])
            await until(lambda: has_isr_of(cluster, "t", 3))
            await until(lambda: shows(cluster, user), f"brokers come as {user}")
            if not mechanism:  # one failover is enough
                leader = cluster.brokers[partition_of(cluster, "t").leader - 1]
                await leader.kill()
                await in_thread(produce, to, [b"3"])
                await leader.start()
                await until(lambda: has_isr_of(cluster, "t", 3))
                assert await in_thread(consume, to, "t") == [b"1", b"2", b"3"]

    run(test)


def listeners_of(cluster: SecuredCluster, *node_ids: int) -> set[str]:
    """The names of the listeners of these brokers with connections."""
    servers = [node.server for node in cluster.brokers if node.node_id in node_ids]
    return {each.listener for server in servers for each in server.connections}


def test_brokers_change_to_another_listener_one_by_one() -> None:
    """Each connects to the others on its own inter-broker listener."""

    def own(node_id: str, given: Mapping[str, str]) -> dict[str, str]:
        listeners = f"{given['listeners']},SSL://127.0.0.1:0"
        changed = {"security.inter.broker.protocol": "SSL"} if node_id == "2" else {}
        return {"listeners": listeners, "ssl.client.auth": "required", **changed}

    async def test() -> None:
        async with SecuredCluster("PLAINTEXT", STEADY, own) as cluster:
            await in_thread(create_topic, cluster.bootstrap_servers, "t", 3, 3)
            await until(lambda: "SSL" in listeners_of(cluster, 1, 3), "the second follows with TLS")
            assert "SSL" not in listeners_of(cluster, 2)
            to = librdkafka(cluster.bootstrap_servers)
            await in_thread(produce, to, [b"1", b"2"])
            await until(lambda: has_isr_of(cluster, "t", 3))

    run(test)


def test_a_node_with_a_foreign_certificate_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """It trusts itself, but others do not."""
    other = Authority("other")
    foreign = other.sign("broker")

    def own(node_id: str, _given: Mapping[str, str]) -> dict[str, str]:
        if node_id != "3":
            return {}
        return {
            "ssl.keystore.key": foreign.key_pem,
            "ssl.keystore.certificate.chain": foreign.chain_pem,
            "ssl.truststore.certificates": authority().pem + other.pem,
        }

    async def test() -> None:
        cluster = SecuredCluster("SSL", {"ssl.client.auth": "required"}, own)
        starting = asyncio.ensure_future(cluster.start())
        try:
            await until(lambda: caplog.records, "a line in the log")
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    with caplog.at_level(logging.WARNING, "tidelog.network.peers"):
        run(test)
    reasons = {each.getMessage().split(": ", 1)[1] for each in caplog.records}
    refused = "TLS failed: tlsv1 alert unknown ca"
    assert all(one == refused or one.startswith("its certificate is not") for one in reasons)


def test_a_node_that_does_not_trust_itself_does_not_start() -> None:
    foreign = Authority("other").sign("broker")
    own = {
        "ssl.keystore.key": foreign.key_pem,
        "ssl.keystore.certificate.chain": foreign.chain_pem,
    }

    async def test() -> None:
        cluster = SecuredCluster("SSL", own=lambda _node_id, _given: own)
        with pytest.raises(StartError, match=r"^ssl.truststore.location: brokers would not") as it:
            await cluster.start()
        assert "\n" not in str(it.value)

    run(test)


async def alter(at: str, node_id: int, changes: Mapping[str, str]) -> str | None:
    """Change the settings that a broker's listener SSL has for itself; the error."""
    config = IncrementalAlterConfigsRequest.AlterableConfig
    own = [
        config(name=f"listener.name.ssl.{name}", config_operation=0, value=value)
        for name, value in changes.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=RESOURCE_BROKER, resource_name=str(node_id), configs=own
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with await WireClient.connect(at, context) as client:
        answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        message: str | None = answer.responses[0].error_message
        return message


def test_an_authority_is_replaced_broker_by_broker() -> None:
    """First all trust both, then each gets a new certificate. Any other order is refused."""
    new = Authority("new")
    both = authority().pem + new.pem

    async def test() -> None:
        async with SecuredCluster("SSL", FAST) as cluster:
            to = client_settings(cluster.bootstrap_servers, "SSL") | {"ssl.ca.pem": both}
            await in_thread(create_topic, to, "t", 1, 3)

            async def change(changes: Mapping[str, str]) -> list[str | None]:
                servers = cluster.bootstrap_servers.split(",")
                return [
                    await alter(server, node.node_id, changes)
                    for server, node in zip(servers, cluster.brokers, strict=True)
                ]

            pair = new.sign("broker")
            own = {
                "ssl.keystore.key": pair.key_pem,
                "ssl.keystore.certificate.chain": pair.chain_pem,
            }
            for early in (own, {"ssl.truststore.certificates": new.pem}):
                refused = await change(early)
                assert all("brokers would not connect" in (each or "") for each in refused)
            for step in (
                {"ssl.truststore.certificates": both},
                own,
                {"ssl.truststore.certificates": new.pem},
            ):
                assert await change(step) == [None, None, None]
            await in_thread(produce, to, [b"1", b"2"])
            leader = cluster.brokers[partition_of(cluster, "t").leader - 1]
            await leader.kill()
            await in_thread(produce, to, [b"3"])
            await leader.start()
            await until(lambda: has_isr_of(cluster, "t", 3))
            assert await in_thread(consume, to, "t") == [b"1", b"2", b"3"]

    run(test)


def of_tier(cluster: SecuredCluster) -> set[str]:
    """As what clients are connected to the listeners TIER."""
    connections = [one for node in cluster.brokers for one in node.server.connections]
    return {str(one.principal) for one in connections if one.listener == "TIER"}


def test_the_metadata_of_the_remote_tier_has_its_own_listener(tmp_path: Path) -> None:
    """With settings of its clients over those of the listener."""
    client = authority().sign("metadata-client")
    prefix = "rlmm.config.remote.log.metadata.common.client"
    faults = new_faults(f"{tmp_path}/tier")
    settings = {
        **SETTINGS,
        "rsm.config.dir": f"{tmp_path}/tier",
        "remote.log.metadata.manager.listener.name": "TIER",
        f"{prefix}.security.protocol": "SSL",
        f"{prefix}.ssl.keystore.key": client.key_pem,
        f"{prefix}.ssl.keystore.certificate.chain": client.chain_pem,
        "listener.name.tier.ssl.client.auth": "required",
    }

    def own(_node_id: str, properties: Mapping[str, str]) -> dict[str, str]:
        protocols = properties["listener.security.protocol.map"]
        return {
            "listeners": f"{properties['listeners']},TIER://127.0.0.1:0",
            "listener.security.protocol.map": f"{protocols},TIER:SSL",
        }

    async def test() -> None:
        async with SecuredCluster(
            "PLAINTEXT", settings, own, data_dir=f"{tmp_path}/data", tiered=True
        ) as cluster:
            it = TieredCluster(cluster, str(tmp_path), faults)
            await it.create("a", 1, 3, **segmented(1))
            await it.produce("a", ["v0", "v1", "v2"])
            await it.offloaded("a", {0: ["v0"], 1: ["v1"]}, local_start=2)
            user = "User:CN=metadata-client,OU=tests"
            await until(lambda: of_tier(cluster) == {user}, f"{user} is connected")

    run(test)
