"""SASL on the wire: what may come when, errors as clients see them, sessions that end.

The texts are those of Kafka's SaslServerAuthenticator, PlainSaslServer, OAuthBearerSaslServer.
"""

from __future__ import annotations

import base64
import json
import struct
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from support.certificates import authority
from support.clusters import run
from support.wire_client import WireClient
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster import ApiVersionsRequest, MetadataRequest
from tidelog_protocol.messages.quotas import DescribeClientQuotasRequest
from tidelog_protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PLAIN_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' user_alice="alice-secret" user_bob="b";'
)
BEARER_JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
OWN = "listener.name.sasl_plaintext"
HANDLER = "sasl.server.callback.handler.class"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    f"{OWN}.plain.sasl.jaas.config": PLAIN_JAAS,
    f"{OWN}.oauthbearer.sasl.jaas.config": BEARER_JAAS,
    "connection.failed.authentication.delay.ms": "1",
}
METADATA = MetadataRequest(topics=[])


@asynccontextmanager
async def connected(**more: str) -> AsyncIterator[tuple[WireClient, Any]]:
    settings = {**SETTINGS, **{key.replace("_", "."): text for key, text in more.items()}}
    async with (
        tidelog.Cluster(settings) as cluster,
        await WireClient.connect(cluster.bootstrap_servers) as client,
    ):
        yield client, cluster.brokers[0].server


async def log_in(client: WireClient, token: bytes, mechanism: str = "PLAIN") -> Any:
    """The answer to the token."""
    shaken = await client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    assert shaken.error_code == ErrorCode.NONE
    assert sorted(shaken.mechanisms) == ["OAUTHBEARER", "PLAIN"]
    return await client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)


def bearer(**claims: object) -> bytes:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    text = f"{part({'alg': 'none'})}.{part(claims)}."
    return f"n,,\x01auth=Bearer {text}\x01\x01".encode()


def test_an_authenticated_client_is_its_user() -> None:
    async def test() -> None:
        async with connected() as (client, server):
            await client.ask(ApiVersionsRequest(), 0)
            answer = await log_in(client, b"\0alice\0alice-secret")
            assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
            assert [each.node_id for each in (await client.ask(METADATA, 9)).brokers] == [1]
            assert [str(each.principal) for each in server.connections] == ["User:alice"]
            late = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert late.error_code == ErrorCode.ILLEGAL_SASL_STATE
            late = await client.ask(SaslAuthenticateRequest(), 1)
            assert late.error_code == ErrorCode.ILLEGAL_SASL_STATE

    run(test)


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0carol\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"a\0b\0c\0d\0e", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            b"bob\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from"
            " username",
        ),
    ],
)
def test_a_refused_token_of_plain(token: bytes, text: str) -> None:
    async def test() -> None:
        async with connected() as (client, _):
            answer = await log_in(client, token)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.error_message == text
            assert await client.closed()

    run(test)


def test_an_authorizer_knows_the_user_and_lets_refusals_through() -> None:
    authorizer = {
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": "User:ANONYMOUS;User:alice",
    }

    async def test() -> None:
        async with connected(**authorizer) as (client, _):
            answer = await log_in(client, b"\0alice\0wrong")
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        async with connected(**authorizer) as (client, _):
            await log_in(client, b"\0bob\0b")
            answer = await client.ask(DescribeClientQuotasRequest(), 1)
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            late = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert late.error_code == ErrorCode.ILLEGAL_SASL_STATE

    run(test)


def test_a_token_of_oauthbearer() -> None:
    now = time.time()

    async def test() -> None:
        async with connected() as (client, server):
            good = bearer(sub="carol", iat=now - 1, exp=now + 3600)
            answer = await log_in(client, good, "OAUTHBEARER")
            assert answer.error_code == ErrorCode.NONE
            assert 3500_000 < answer.session_lifetime_ms <= 3600_000
            assert [str(each.principal) for each in server.connections] == ["User:carol"]
        async with connected() as (client, _):
            answer = await log_in(client, bearer(sub="carol", exp=now - 1), "OAUTHBEARER")
            assert answer.auth_bytes == b'{"status":"invalid_token"}'
            answer = await client.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 1)
            assert answer.error_message == '{"status":"invalid_token"}'
            assert await client.closed()
        async with connected() as (client, _):
            answer = await log_in(client, b"no token", "OAUTHBEARER")
            assert answer.error_message == (
                "Authentication failed during authentication due to invalid credentials with SASL"
                " mechanism OAUTHBEARER"
            )

    run(test)


def test_nothing_else_is_served_before() -> None:
    async def test() -> None:
        async with connected() as (client, _):
            client.send(METADATA, 9)
            assert await client.closed()
        async with connected() as (client, _):
            await client.ask(ApiVersionsRequest(), 0)
            client.send(ApiVersionsRequest(), 0)
            assert await client.closed()
        async with connected() as (client, _):
            await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            answer = await client.ask(ApiVersionsRequest(), 0)
            assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert await client.closed()
        async with connected(sasl_server_max_receive_size="1000") as (client, _):
            client.send_bytes(struct.pack(">i", 1001))
            assert await client.closed()

    run(test)


def test_another_mechanism_is_refused_and_names_those_there_are() -> None:
    async def test() -> None:
        async with connected() as (client, _):
            answer = await client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
            assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert sorted(answer.mechanisms) == ["OAUTHBEARER", "PLAIN"]
            assert await client.closed()

    run(test)


def test_bare_tokens_of_handshake_version_0() -> None:
    async def test() -> None:
        async with connected() as (client, server):
            await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
            token = b"\0bob\0b"
            client.send_bytes(struct.pack(">i", len(token)) + token)
            assert await client.receive_frame() == b""
            await client.ask(METADATA, 9)
            assert [str(each.principal) for each in server.connections] == ["User:bob"]

    run(test)


def test_a_session_ends_unless_it_is_authenticated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        now_s = 100.0
        monkeypatch.setattr("tidelog.network.authentication._now_s", lambda: now_s)
        async with connected(connections_max_reauth_ms="300") as (client, _):
            answer = await log_in(client, b"\0alice\0alice-secret")
            assert answer.session_lifetime_ms == 300
            await client.ask(METADATA, 9)
            answer = await log_in(client, b"\0alice\0alice-secret")
            assert answer.session_lifetime_ms == 300
            # Not twice within a second: then it counts as one too many.
            late = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert late.error_code == ErrorCode.ILLEGAL_SASL_STATE
            now_s += 0.35
            client.send(METADATA, 9)
            assert await client.closed()

    run(test)


def test_another_user_or_mechanism_cannot_take_over_a_session() -> None:
    async def test() -> None:
        async with connected(connections_max_reauth_ms="60000") as (client, _):
            await log_in(client, b"\0alice\0alice-secret")
            answer = await log_in(client, b"\0bob\0b")
            assert answer.error_message == (
                "Cannot change principals during re-authentication from User.alice: User.bob"
            )
            assert await client.closed()
        async with connected(connections_max_reauth_ms="60000") as (client, _):
            await log_in(client, b"\0alice\0alice-secret")
            await client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
            client.send(SaslAuthenticateRequest(auth_bytes=b"x"), 2)
            assert await client.closed()

    run(test)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms"),
        ({f"{OWN}.plain.sasl.jaas.config": "?"}, f"{OWN}.plain.sasl.jaas.config"),
        ({f"{OWN}.plain.sasl.jaas.config": BEARER_JAAS}, f"{OWN}.plain.sasl.jaas.config"),
        ({"listeners": "SASL_PLAINTEXT://:0,SASL_SSL://:0"}, "ssl.keystore.location"),
        ({f"{OWN}.plain.{HANDLER}": "com.example.Mine"}, f"{OWN}.plain.{HANDLER}"),
        ({HANDLER: "com.example.Mine"}, HANDLER),
    ],
)
def test_a_start_with_wrong_settings_is_refused(settings: dict[str, str], key: str) -> None:
    async def test() -> None:
        with pytest.raises(tidelog.StartError) as caught:
            async with tidelog.Cluster({**SETTINGS, **settings}):
                pass
        assert key in str(caught.value)
        assert "alice-secret" not in str(caught.value)

    run(test)


@pytest.mark.compat
def test_a_client_of_librdkafka_over_tls() -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    own = "listener.name.sasl_ssl"
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        f"{own}.plain.sasl.jaas.config": PLAIN_JAAS,
        **authority().listener("broker"),
    }
    with tidelog.run(settings) as cluster:
        client = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
            "ssl.ca.pem": authority().pem,
        }
        producer = confluent_kafka.Producer(client)
        for number in range(100):
            producer.produce("t", b"x" * 20_000, key=str(number))
        assert producer.flush(30) == 0
        reader = {"group.id": "g", "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer({**client, **reader})
        consumer.subscribe(["t"])
        count = 0
        deadline = time.monotonic() + 60
        while count < 100 and time.monotonic() < deadline:
            message = consumer.poll(1)
            count += message is not None and message.error() is None
        consumer.close()
        assert count == 100
