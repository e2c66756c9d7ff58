"""TLS and SASL of a channel to another node, over real sockets."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from support.certificates import Authority, authority
from support.clusters import run, until
from support.handler_broker import HandlerBroker
from support.secured import BEARER_JAAS, SCRAM_JAAS, credential, plain_jaas
from tidelog.config.broker import DEVELOPER_PROFILE, BrokerConfig, ConfigError
from tidelog.network.peer_securities import PeerSecurities
from tidelog.network.peers import PeerChannel, PeerError
from tidelog.runtime import SystemClock, system_runtime
from tidelog.security.refused import RefusedError
from tidelog.security.scram import Credentials
from tidelog_protocol.messages.groups import HeartbeatRequest
from tidelog_protocol.messages.sasl import (
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tidelog_protocol.schema import Message

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")
ON = "listener.name.inner"


def config(protocol: str, mechanism: str = "", **more: str) -> BrokerConfig:
    """A node that connects to a listener INNER."""
    settings = {
        **DEVELOPER_PROFILE,
        "listeners": "INNER://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
        "listener.security.protocol.map": f"INNER:{protocol},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INNER",
        "connection.failed.authentication.delay.ms": "1",
        **authority().listener("broker"),
    }
    if mechanism:
        settings["sasl.enabled.mechanisms"] = mechanism
        settings["sasl.mechanism.inter.broker.protocol"] = mechanism
    return BrokerConfig.from_properties({**settings, **more})


class Inner:
    """A listener INNER with settings of its own, and channels to it."""

    def __init__(self) -> None:
        self.runtime = system_runtime()
        self.broker = HandlerBroker()
        self.port = 0
        self._made: list[tuple[PeerChannel, PeerSecurities]] = []

    def channel(self, settings: BrokerConfig, host: str = "127.0.0.1") -> PeerChannel:
        securities = PeerSecurities(settings, self.runtime)
        channel = PeerChannel(
            self.runtime.network, self.runtime.clock, (host, self.port), client_id="test"
        )
        channel.security = securities.of_brokers()
        self._made.append((channel, securities))
        return channel

    def close(self) -> None:
        for channel, securities in self._made:
            channel.close()
            securities.close()


@asynccontextmanager
async def inner(settings: BrokerConfig) -> AsyncIterator[Inner]:
    it = Inner()
    connections = it.broker.connections
    connections.guard(settings.listener_settings("INNER"), it.runtime)
    connections.credentials = lambda: Credentials(credential)
    listener = await it.runtime.network.listen(
        "127.0.0.1",
        0,
        lambda: connections.factory("INNER"),
        connections.guards["INNER"].tls,
    )
    it.port = listener.port
    try:
        yield it
    finally:
        it.close()
        listener.close()
        connections.abort()
        connections.stop()
        await it.broker.dispatcher.stop()


@pytest.mark.parametrize("step", ["handshake", "authenticate"])
def test_an_error_code_that_is_unknown_here_refuses(step: str) -> None:
    async def ask(message: Message, _version: int) -> Any:
        if isinstance(message, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=31_000 if step == "handshake" else 0)
        return SaslAuthenticateResponse(error_code=31_000, error_message=None)

    async def test() -> None:
        securities = PeerSecurities(config("SASL_PLAINTEXT", "PLAIN", **PLAIN), system_runtime())
        security = securities.of_brokers()
        assert security is not None
        with pytest.raises(RefusedError, match="31000"):
            await security.authenticate(ask)
        securities.close()

    run(test)


def principals(it: Inner) -> set[str]:
    return {str(one.principal) for one in it.broker.connections.live}


@pytest.mark.parametrize(
    ("protocol", "mechanism", "more", "user"),
    [
        ("SSL", "", {"ssl.client.auth": "required"}, "CN=broker,OU=tests"),
        ("SSL", "", {}, "CN=broker,OU=tests"),
        (
            "SASL_SSL",
            "PLAIN",
            {f"{ON}.plain.sasl.jaas.config": plain_jaas(broker="inner-secret")},
            "broker",
        ),
        (
            "SASL_PLAINTEXT",
            "SCRAM-SHA-256",
            {f"{ON}.scram-sha-256.sasl.jaas.config": SCRAM_JAAS},
            "bro=k,er",
        ),
        (
            "SASL_SSL",
            "SCRAM-SHA-512",
            {f"{ON}.scram-sha-512.sasl.jaas.config": SCRAM_JAAS},
            "bro=k,er",
        ),
        (
            "SASL_PLAINTEXT",
            "OAUTHBEARER",
            {f"{ON}.oauthbearer.sasl.jaas.config": BEARER_JAAS},
            "broker",
        ),
    ],
)
def test_a_channel_authenticates(
    protocol: str, mechanism: str, more: dict[str, str], user: str
) -> None:
    settings = config(protocol, mechanism, **more)
    if protocol == "SSL" and not more:
        user = "ANONYMOUS"

    async def test() -> None:
        async with inner(settings) as it:
            channel = it.channel(settings)
            asked = [channel.ask(HEARTBEAT) for _ in range(3)]
            assert [each.throttle_time_ms for each in await asyncio.gather(*asked)] == [7, 7, 7]
            assert principals(it) == {"User:ANONYMOUS" if user == "ANONYMOUS" else f"User:{user}"}
            assert len(it.broker.connections.live) == 1

    run(test)


OAUTH = "org.apache.kafka.common.security.oauthbearer"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
SIGNED = {
    f"{ON}.oauthbearer.sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
    f"{ON}.oauthbearer.sasl.login.callback.handler.class": (
        f"{OAUTH}.OAuthBearerLoginCallbackHandler"
    ),
}


def signed(key: ec.EllipticCurvePrivateKey, lifetime_s: int = 3600) -> str:
    now_s = SystemClock().wall_ms() // 1000
    claims = {"sub": "node", "iat": now_s - 7200, "exp": now_s + lifetime_s}
    return jwt.encode(claims, key, "ES256")


def test_a_channel_shows_the_signed_token_of_a_file(tmp_path: Path) -> None:
    key, file, keys = ec.generate_private_key(ec.SECP256R1()), tmp_path / "t", tmp_path / "keys"
    public = jwt.get_algorithm_by_name("ES256").to_jwk(key.public_key(), as_dict=True)
    keys.write_text(json.dumps({"keys": [public]}))
    file.write_text(signed(key) + "\n")
    checks = f"{OAUTH}.OAuthBearerValidatorCallbackHandler"
    settings = config(
        "SASL_PLAINTEXT",
        "OAUTHBEARER",
        **SIGNED,
        **{f"{ON}.oauthbearer.sasl.server.callback.handler.class": checks},
        **{"sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(), TOKEN_URL: file.as_uri()},
    )

    async def test() -> None:
        async with inner(settings) as it:
            assert (await it.channel(settings).ask(HEARTBEAT)).throttle_time_ms == 7
            assert principals(it) == {"User:node"}
            channel = it.channel(settings)
            for text, reason in ((signed(key, -60), "invalid_token"), ("", "there is no token")):
                file.write_text(text)  # it is read again
                with pytest.raises(PeerError, match=reason):
                    await channel.ask(HEARTBEAT)
            file.write_text(signed(key))
            assert (await channel.ask(HEARTBEAT)).throttle_time_ms == 7

    run(test)


PLAIN = {f"{ON}.plain.sasl.jaas.config": plain_jaas(broker="inner-secret")}


@pytest.mark.parametrize(
    ("server", "client", "reason"),
    [
        (
            config("SASL_PLAINTEXT", "PLAIN", **PLAIN),
            config(
                "SASL_PLAINTEXT",
                "PLAIN",
                **{f"{ON}.plain.sasl.jaas.config": plain_jaas(password="wrong")},
            ),
            "Authentication failed: Invalid username or password",
        ),
        (
            config("SASL_PLAINTEXT", "PLAIN", **PLAIN),
            config(
                "SASL_PLAINTEXT",
                "SCRAM-SHA-256",
                **{f"{ON}.scram-sha-256.sasl.jaas.config": SCRAM_JAAS},
            ),
            "SCRAM-SHA-256 is not enabled there, PLAIN is",
        ),
        (
            config(
                "SASL_PLAINTEXT",
                "SCRAM-SHA-256",
                **{f"{ON}.scram-sha-256.sasl.jaas.config": SCRAM_JAAS},
            ),
            config(
                "SASL_PLAINTEXT",
                "SCRAM-SHA-256",
                **{
                    f"{ON}.scram-sha-256.sasl.jaas.config": SCRAM_JAAS.replace(
                        "inner-secret", "wrong"
                    )
                },
            ),
            "Authentication failed during authentication due to invalid credentials with SASL"
            " mechanism SCRAM-SHA-256",
        ),
        (
            config(
                "SASL_PLAINTEXT",
                "OAUTHBEARER",
                **{f"{ON}.oauthbearer.sasl.jaas.config": BEARER_JAAS},
            ),
            config(
                "SASL_PLAINTEXT",
                "OAUTHBEARER",
                **{
                    f"{ON}.oauthbearer.sasl.jaas.config": BEARER_JAAS.replace(
                        "required", 'required unsecuredLoginLifetimeSeconds="-9"'
                    )
                },
            ),
            '{"status":"invalid_token"}',
        ),
    ],
)
def test_a_refused_channel_says_why_in_one_line(
    server: BrokerConfig, client: BrokerConfig, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with inner(server) as it:
            channel = it.channel(client)
            for _ in range(2):
                with pytest.raises(PeerError) as caught:
                    await channel.ask(HEARTBEAT)
                assert str(caught.value) == f"127.0.0.1:{it.port}: {reason}"
            text = f"no authenticated connection to 127.0.0.1:{it.port}: {reason}"
            assert [each.getMessage() for each in caplog.records] == [text]

    with caplog.at_level(logging.WARNING, "tidelog.network.peers"):
        run(test)


def test_certificates_are_checked_both_ways(caplog: pytest.LogCaptureFixture) -> None:
    ours = config("SSL", **{"ssl.client.auth": "required"})
    others = config("SSL", **Authority("other").listener("broker"))
    elsewhere = authority().sign("broker", hosts=("elsewhere",))
    moved = {
        "ssl.keystore.key": elsewhere.key_pem,
        "ssl.keystore.certificate.chain": elsewhere.chain_pem,
    }

    async def failure(server: BrokerConfig, client: BrokerConfig) -> str:
        async with inner(server) as it:
            with pytest.raises(PeerError) as caught:
                await it.channel(client).ask(HEARTBEAT)
            return str(caught.value).removeprefix(f"127.0.0.1:{it.port}: ")

    async def test() -> None:
        trusting = {"ssl.truststore.certificates": authority().pem}
        stranger = config("SSL", **{**Authority("other").listener("broker"), **trusting})
        assert (await failure(ours, others)).startswith("its certificate is not trusted: ")
        assert "alert unknown ca" in await failure(ours, stranger)
        assert "is not valid for '127.0.0.1'" in await failure(config("SSL", **moved), ours)
        careless = config("SSL", **{"ssl.endpoint.identification.algorithm": ""})
        async with inner(config("SSL", **moved)) as it:
            assert (await it.channel(careless).ask(HEARTBEAT)).throttle_time_ms == 7

    with caplog.at_level(logging.WARNING, "tidelog.network.peers"):
        run(test)
    assert len(caplog.records) == 3


def test_a_connection_is_replaced_before_its_session_ends() -> None:
    limited = {**PLAIN, "connections.max.reauth.ms": "300000"}

    async def test() -> None:
        settings = config("SASL_PLAINTEXT", "PLAIN", **limited)
        async with inner(settings) as it:
            channel = it.channel(settings)
            await channel.ask(HEARTBEAT)
            (first,) = it.broker.connections.live
            link = channel._link
            assert link is not None
            assert link.replace_at is not None
            ahead_s = link.replace_at - it.runtime.clock.monotonic()
            assert 200 < ahead_s < 300
            await channel.ask(HEARTBEAT)
            assert list(it.broker.connections.live) == [first]
            link.replace_at = it.runtime.clock.monotonic()
            assert (await channel.ask(HEARTBEAT)).throttle_time_ms == 7
            assert channel._link is not link
            assert not link.is_open
            await until(lambda: first not in it.broker.connections.live)

    run(test)


@pytest.mark.parametrize(
    ("made", "key"),
    [
        (lambda: config("SASL_SSL", "PLAIN"), f"{ON}.plain.sasl.jaas.config"),
        (
            lambda: config(
                "SASL_SSL", "PLAIN", **{f"{ON}.plain.sasl.jaas.config": plain_jaas(password="")}
            ),
            f"{ON}.plain.sasl.jaas.config",
        ),
        (
            lambda: config("SASL_SSL", "GSSAPI"),
            "sasl.mechanism.inter.broker.protocol",
        ),
        (
            lambda: config("SASL_SSL", **PLAIN),
            "sasl.mechanism.inter.broker.protocol",
        ),
        (
            lambda: config(
                "SASL_SSL",
                "OAUTHBEARER",
                **{f"{ON}.oauthbearer.sasl.jaas.config": BEARER_JAAS.replace("_sub", "_x")},
            ),
            f"{ON}.oauthbearer.sasl.jaas.config",
        ),
        (
            lambda: config("SASL_SSL", "OAUTHBEARER", **SIGNED),
            TOKEN_URL,
        ),
        (
            lambda: config("SASL_SSL", "OAUTHBEARER", **SIGNED, **{TOKEN_URL: "http://h/token"}),
            TOKEN_URL,
        ),
        (
            lambda: config("SASL_SSL", "OAUTHBEARER", **SIGNED, **{TOKEN_URL: "file:///not/there"}),
            TOKEN_URL,
        ),
        (
            lambda: config(
                "SASL_SSL",
                "OAUTHBEARER",
                **{key: text.replace("LoginC", "C") for key, text in SIGNED.items()},
            ),
            f"{ON}.oauthbearer.sasl.login.callback.handler.class",
        ),
        (
            lambda: config("SSL", **{f"{ON}.ssl.truststore.certificates": "?"}),
            f"{ON}.ssl.truststore.certificates",
        ),
    ],
)
def test_what_is_wrong_names_its_key(made: Callable[[], BrokerConfig], key: str) -> None:
    securities = None
    with pytest.raises(ConfigError) as caught:  # noqa: PT012 - some are found with the files
        settings = made()
        securities = PeerSecurities(settings, system_runtime())
        securities.load()
    if securities is not None:
        securities.close()
    assert caught.value.key == key
    assert key in caught.value.message
    assert "inner-secret" not in caught.value.message
    assert "\n" not in caught.value.message


def test_a_controllers_listener_needs_a_protocol_beside_others_that_have_one() -> None:
    with pytest.raises(ConfigError, match="No security protocol defined for listener CONTROLLER"):
        config("SSL", **{"listener.security.protocol.map": "INNER:SSL"})


def test_a_server_that_cannot_prove_the_password_is_refused() -> None:
    settings = config(
        "SASL_PLAINTEXT", "SCRAM-SHA-256", **{f"{ON}.scram-sha-256.sasl.jaas.config": SCRAM_JAAS}
    )
    good = credential("bro=k,er", 1)
    assert good is not None
    good.server_key = bytes(32)

    async def test() -> None:
        async with inner(settings) as it:
            it.broker.connections.credentials = lambda: Credentials(lambda _user, _number: good)
            with pytest.raises(PeerError, match="Invalid server signature"):
                await it.channel(settings).ask(HEARTBEAT)

    run(test)
