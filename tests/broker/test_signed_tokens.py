"""Signed tokens of OAUTHBEARER: what is refused, and where the keys come from."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import warnings
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

import tidelog
from support.clusters import run, until
from tidelog.config.broker import BrokerConfig
from tidelog.runtime import system_runtime
from tidelog.security import jwks
from tidelog.security.jwks import KeySet, KeySetError, Pauses, parsed
from tidelog.security.oauthbearer import Rules, TokenError
from tidelog.security.signed_tokens import Expected, SignedTokens
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

NOW = 1_700_000_000
GOOD = {"sub": "dave", "iat": NOW - 10, "exp": NOW + 100, "iss": "issuer", "aud": "us"}
EXPECTED = Expected(("us", "them"), "issuer", 5000, "scope", "sub")
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
CLASS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
OLD_CLASS = CLASS.replace(".OAuth", ".secured.OAuth")
JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"


def public(key: Any, **more: str) -> dict[str, Any]:
    algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
    maker = jwt.get_algorithm_by_name(algorithm)
    return {**maker.to_jwk(key.public_key(), as_dict=True), **more}  # type: ignore[dict-item]


KEYS = (public(RSA, kid="rsa", alg="RS256", use="sig"), public(EC, kid="ec"))


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "rsa", **claims: Any) -> str:
    known = {name: value for name, value in {**GOOD, **claims}.items() if value is not None}
    return jwt.encode(known, key, algorithm, {"kid": kid} if kid else None)


class Keys:
    """A key set that notes that a key is missing."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.keys = keys or KEYS
        self.wanted = 0

    def want(self) -> None:
        self.wanted += 1


def checked(value: str, *keys: dict[str, Any], expected: Expected = EXPECTED) -> Any:
    known: Any = Keys(*keys)
    return SignedTokens(expected, known, lambda: NOW * 1000).verify(value)


GOOD_TOKENS = [
    token(),
    token(kid=None),
    token(EC, "ES256", "ec"),
    token(aud=["others", "them"]),
    token(scope="a b"),
    token(scope=["a"]),
    token(scope=5),  # BrokerJwtValidator takes what is no text and no array as none
    token(scope=True),
    token(scope={" ": 1}),
    token(scope=[]),
    token(exp=NOW - 4),
    token(nbf=NOW + 5),
    token(iat=NOW + 50),
]


@pytest.mark.parametrize("number", range(len(GOOD_TOKENS)))
def test_good_tokens(number: int) -> None:
    assert checked(GOOD_TOKENS[number]).user == "dave"


def test_the_end_and_the_claims_are_those_of_the_settings() -> None:
    expected = EXPECTED._replace(audience=(), issuer=None, sub_claim="name", scope_claim="roles")
    found = checked(token(aud=None, name=" erin ", roles=["x"], scope=7), expected=expected)
    assert found == ("erin", (NOW + 100) * 1000)
    with pytest.raises(TokenError):
        checked(token(name="erin"), expected=expected)  # it has an audience


REFUSED_TOKENS = [
    *("", "x", "a.b.c", token()[:-4] + "AAAA"),
    token(exp=None),
    token(exp=NOW - 5),
    token(exp=NOW - 20, iat=NOW - 30),
    token(exp="later"),
    token(exp=NOW + 1, iat=NOW + 2),
    token(iat=None),
    token(nbf=NOW + 6),
    token(nbf="x"),
    token(aud="others"),
    token(aud=None),
    token(iss="others"),
    token(iss=None),
    token(sub=None),
    token(sub=" "),
    token(sub=7),
    token(scope=" "),
    token(scope=["a", 1]),
    token(scope=["a", ["b"]]),
    token(scope=["a", "b", " a"]),
    f"{base64.urlsafe_b64encode(b'[' * 30000).decode()}.e30.AAAA",
    jwt.PyJWS().encode(b'{"scope":' + b"[" * 30000, RSA, "RS256", {"kid": "rsa"}),
    token(kid="others"),
    token(EC, "ES256", "rsa"),
    token(RSA, "RS512"),
    token("secret" * 10, "HS256"),
    jwt.encode(GOOD, None, "none", {"kid": "rsa"}),
]


@pytest.mark.parametrize("number", range(len(REFUSED_TOKENS)))
def test_refused_tokens(number: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(TokenError) as caught:
        checked(REFUSED_TOKENS[number])
    assert caught.value.status == "invalid_token"
    assert caplog.records == []


def test_a_public_key_is_no_secret_and_a_short_one_no_key() -> None:
    shared = base64.urlsafe_b64encode(b"x" * 32).decode().rstrip("=")
    secret = {"kty": "oct", "kid": "oct", "k": shared}
    assert checked(token(b"x" * 32, "HS256", "oct"), secret).user == "dave"
    with pytest.raises(TokenError):
        checked(token(b"x" * 32, "HS256", "oct"), public(RSA, kid="oct"))
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    with warnings.catch_warnings(action="ignore"):  # of PyJWT
        weak = token(short), token(b"x" * 31, "HS256", "oct")
    with pytest.raises(TokenError):
        checked(weak[0], public(short, kid="rsa"))
    shared = base64.urlsafe_b64encode(b"x" * 31).decode().rstrip("=")
    with pytest.raises(TokenError):
        checked(weak[1], {**secret, "k": shared})


@pytest.mark.parametrize(
    "damage", [{"n": 5}, {"n": ""}, {"n": "AQAB"}, {"e": "AA"}, {"n": [1]}, {"n": None}]
)
def test_a_damaged_key_of_a_set_refuses_tokens(damage: dict[str, Any]) -> None:
    with pytest.raises(TokenError):
        checked(token(), {**KEYS[0], **damage})


def test_an_unknown_key_is_asked_for() -> None:
    keys: Any = Keys()
    with pytest.raises(TokenError):
        SignedTokens(EXPECTED, keys, lambda: NOW * 1000).verify(token(kid="new"))
    assert keys.wanted == 1


@pytest.mark.parametrize("scope", [5, True, {"a": 1}, [["a"]], [1]])
def test_scopes_of_unsecured_tokens_are_texts(scope: object) -> None:
    with pytest.raises(TokenError, match="invalid_token"):
        unsecured(scope)


@pytest.mark.parametrize("scope", [None, "", [], "a", ["a", " ", "b "]])
def test_good_scopes_of_unsecured_tokens(scope: object) -> None:
    assert unsecured(scope).user == "dave"


def unsecured(scope: object) -> Any:
    value = jwt.encode({**GOOD, "scope": scope}, None, "none")
    return Rules.of("key", {}).verify(value, NOW * 1000)


# ---- key sets


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": [1]}', b"[" * 9999])
def test_what_is_no_key_set(data: bytes) -> None:
    with pytest.raises(KeySetError):
        parsed(data)


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 60), (1, 0.1), (3, 0.4), (9, 10), (9999, 10)]
)
def test_pauses(failures: int, seconds: float) -> None:
    assert Pauses(60_000, 100, 10_000).after(failures) == seconds


SET = json.dumps({"keys": KEYS}).encode()
FINE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(SET), SET)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
QUICK = Pauses(3_600_000, 1, 1)


class Served:
    """A server of key sets; each request gets the next answer, the last one again and again."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.running = 0  # connections

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.running += 1
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            while answer is None:  # drips, for ever
                writer.write(b"H")
                await writer.drain()
                await asyncio.sleep(0.01)
            writer.write(answer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            self.running -= 1


def with_server(
    test: Callable[[Served, KeySet], Awaitable[None]], *answers: bytes | None
) -> Served:
    served = Served(*answers)

    async def play() -> None:
        server = await asyncio.start_server(served.answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        keys = KeySet("key", f"http://127.0.0.1:{port}/keys?a=b", QUICK, system_runtime())
        try:
            await test(served, keys)
        finally:
            keys.close()
            server.close()
            await until(lambda: served.running == 0)

    run(play)
    return served


@pytest.mark.parametrize("answer", [FINE, CHUNKED % (len(SET), SET)], ids=["whole", "in chunks"])
def test_keys_come_over_http_and_again_when_one_is_missing(answer: bytes) -> None:
    async def test(served: Served, keys: KeySet) -> None:
        await until(lambda: keys.keys)
        assert keys.keys == KEYS
        while len(served.requests) < 2:
            keys.want()
            await asyncio.sleep(0.005)

    served = with_server(test, answer)
    assert served.requests[0].startswith(b"GET /keys?a=b HTTP/1.0\r\nHost: 127.0.0.1:")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "status 404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", "no HTTP response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nx" % (10**30), "no HTTP response"),
        (b"SSH-2.0-x\r\n\r\n", "no HTTP response"),
        (b"", "no HTTP response"),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", "no JSON Web Key Set"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (jwks.BYTES_MAX + 1), "larger than 1048576 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (jwks.BYTES_MAX + 99_999), "larger than"),
        (None, "longer than 0.1 s"),
    ],
    ids=["404", "cut", "endless", "other", "empty", "no keys", "large", "larger", "drips"],
)
def test_failures_are_told_once_and_tried_again(
    answer: bytes | None,
    problem: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if answer is None:
        monkeypatch.setattr(jwks, "FETCH_S_MAX", 0.1)

    async def test(served: Served, keys: KeySet) -> None:
        await until(lambda: len(served.requests) > 2)
        assert keys.keys == ()
        found.extend(one.getMessage() for one in caplog.records if one.name == jwks.log.name)
        served.answers = [FINE]
        monkeypatch.setattr(jwks, "FETCH_S_MAX", 60.0)
        await until(lambda: keys.keys)

    found: list[str] = []
    with_server(test, answer)
    assert [problem in one for one in found] == [True]


def settings_of(tmp_path: Path, **changes: str | None) -> dict[str, str]:
    file = tmp_path / "keys.json"
    file.write_bytes(SET)
    own = "listener.name.sasl_plaintext.oauthbearer"
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{own}.sasl.jaas.config": JAAS,
        f"{own}.sasl.server.callback.handler.class": CLASS,
        "sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        "sasl.oauthbearer.expected.audience": "us",
    }
    for name, value in changes.items():
        key = f"{own}.sasl.server.callback.handler.class" if name == "handler" else name
        settings[key.replace("_", ".") if name != "handler" else key] = value or ""
        if value is None:
            del settings[key.replace("_", ".") if name != "handler" else key]
    return settings


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"handler": "com.example.Mine"}, "callback.handler.class"),
        ({"sasl_oauthbearer_jwks_endpoint_url": None}, "jwks.endpoint.url"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "ftp://x/y"}, "jwks.endpoint.url"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "file:///missing"}, "jwks.endpoint.url"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "file:///a%00b"}, "jwks.endpoint.url"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "http://[::1"}, "jwks.endpoint.url"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "http://h:x/"}, "jwks.endpoint.url"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "http://h:99999/"}, "jwks.endpoint.url"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "file:///etc/passwd"}, "jwks.endpoint.url"),
    ],
)
def test_wrong_settings_refuse_the_start(
    changes: dict[str, str | None], key: str, tmp_path: Path
) -> None:
    async def test() -> None:
        with pytest.raises(tidelog.StartError, match=key):
            async with tidelog.Cluster(settings_of(tmp_path, **changes)):
                pass

    run(test)


@pytest.mark.parametrize("handler", [CLASS, OLD_CLASS])
def test_a_client_of_another_implementation(handler: str, tmp_path: Path) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            import time

            now = int(time.time())
            return token(iat=now, exp=now + 600)

    async def test() -> None:
        async with tidelog.Cluster(settings_of(tmp_path, handler=handler)) as cluster:
            server = cluster.brokers[0].server
            async with AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauth_token_provider=Provider(),
            ):
                assert {str(each.principal) for each in server.connections} == {"User:dave"}

    run(test)


def test_without_pyjwt_the_start_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    from tidelog.security.sasl import server_exchanges

    monkeypatch.setitem(sys.modules, "tidelog.security.signed_tokens", None)
    config = BrokerConfig.from_properties({"node.id": "1", **settings_of(tmp_path)})
    runtime: Any = SimpleNamespace(rng=None, clock=SimpleNamespace(wall_ms=None))
    nothing: Any = None
    with pytest.raises(ConfigError, match=r"pip install 'tidelog\[security\]'"):
        server_exchanges(config.listener_settings("SASL_PLAINTEXT"), runtime, nothing, [])


def test_a_running_broker_takes_no_url_that_it_was_not_started_with() -> None:
    known = "https://issuer.example/keys"
    config = BrokerConfig.from_properties(
        {"node.id": "1", "sasl.oauthbearer.jwks.endpoint.url": known}
    )
    for name in ("jwks", "token"):
        key = f"listener.name.new.oauthbearer.sasl.oauthbearer.{name}.endpoint.url"
        assert config.with_dynamic({key: known}).given[key] == known
        with pytest.raises(ConfigError, match="settings at the start"):
            config.with_dynamic({key: "http://192.0.2.1/keys"})
