"""The settings in docs/security.md start a broker, which asks for what the page says."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import jwt

import tidelog
from support.certificates import authority
from support.clusters import run
from support.snippets import ALL
from tidelog.config.properties import parse_properties
from tidelog.control.errors import ClusterError
from tidelog.embedded.cluster_client import opened
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.configs import DescribeConfigsRequest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MODULES = "org.apache.kafka.common.security"
KEY = "a shared key that is as long as HS256 needs it"


def recipe(folder: Path, *titles: str) -> dict[str, str]:
    """The settings below these titles, with files of this test, and ports that are free."""
    pair = authority().sign("broker")
    shared = jwt.get_algorithm_by_name("HS256").to_jwk(KEY, as_dict=True)
    files = {
        "broker.pem": pair.key_pem + pair.chain_pem,
        "authority.pem": authority().pem,
        "keys.json": json.dumps({"keys": [{**shared, "kid": "test"}]}),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    found: dict[str, str] = {}
    for title in titles:
        (text,) = (
            each.text
            for each in ALL
            if each.language == "properties" and each.place.startswith(f"security: {title}:")
        )
        for port in (":9093", ":9094"):
            text = text.replace(port, ":0")
        found |= parse_properties(text.replace("/etc/", f"{folder}/").encode())
    return found


def by_password(login: str) -> dict[str, str]:
    """A client that logs in with PLAIN."""
    module = f"{MODULES}.plain.PlainLoginModule required"
    return {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{module} {login};"}


def by_token(folder: Path, audience: str) -> dict[str, str]:
    """A client that shows a signed token."""
    now = int(time.time())
    claims = {"sub": "dave", "iat": now, "exp": now + 3600, "aud": audience}
    claims["iss"] = "https://issuer.example"
    token = folder / f"token-{audience}"
    token.write_text(jwt.encode(claims, KEY, "HS256", {"kid": "test"}))
    module = f"{MODULES}.oauthbearer.OAuthBearerLogin"
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{module}Module required;",
        "sasl.login.callback.handler.class": f"{module}CallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
    }


def answers(
    settings: Mapping[str, str], folder: Path, *clients: Mapping[str, str]
) -> list[ErrorCode | str]:
    """What each client gets that asks for the settings of the broker, or why it is refused."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1")
    asked = DescribeConfigsRequest(resources=[resource])

    def answer(servers: str, login: Mapping[str, str]) -> ErrorCode | str:
        config = {
            **login,
            "bootstrap.servers": servers,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "authority.pem"),
        }
        try:
            with opened(config) as client:
                return ErrorCode(client.broker(1).ask(asked).results[0].error_code)
        except ClusterError as error:
            return str(error)

    async def test() -> None:
        async with tidelog.Cluster(settings) as cluster:
            at = cluster.bootstrap_servers
            found.extend([await asyncio.to_thread(answer, at, login) for login in clients])

    found: list[ErrorCode | str] = []
    run(test)
    return found


OK = ErrorCode.NONE
REFUSED = "not authenticated: Authentication failed: Invalid username or password"


def test_a_listener_with_tls_and_passwords(tmp_path: Path) -> None:
    right, wrong = (by_password(f'username="alice" password="{text}"') for text in ("secret", "x"))
    assert answers(recipe(tmp_path, "Listeners"), tmp_path, right, wrong) == [OK, REFUSED]


def test_signed_tokens(tmp_path: Path) -> None:
    settings = recipe(tmp_path, "Listeners", "Signed tokens")
    clients = (by_token(tmp_path, "brokers"), by_token(tmp_path, "others"))
    good, refused = answers(settings, tmp_path, *clients)
    assert good == OK
    assert "invalid_token" in str(refused)


def test_a_node_among_others(tmp_path: Path) -> None:
    """It knows itself as a controller and as a broker."""
    settings = recipe(tmp_path, "Between brokers")
    clients = (by_password(f'username="broker" password="{text}"') for text in ("inner", "x"))
    assert answers(settings, tmp_path, *clients) == [OK, REFUSED]


def test_an_authorizer(tmp_path: Path) -> None:
    settings = recipe(tmp_path, "Listeners", "The authorizer")
    clients = [by_password('username="alice" password="secret"')]
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answers(settings, tmp_path, *clients) == [denied]
    admin = {**settings, "super.users": "User:alice"}
    assert answers(admin, tmp_path, *clients) == [OK]
