"""SCRAM: the conversation of RFC 7677, refusals, and a client of another implementation."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING

import pytest

import tidelog
from support.clusters import run
from tidelog.security.refused import RefusedError
from tidelog.security.scram import SCRAM, ScramServer
from tidelog_protocol.messages.metadata_records import UserScramCredentialRecord

if TYPE_CHECKING:
    from collections.abc import Callable

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT = "rOprNGfwEbeRWgbNEkqO"
SERVER = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"n,,n=user,r={CLIENT}"
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
FINAL = f"c=biws,r={CLIENT}{SERVER},p={PROOF}"
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def credential(name: str, mechanism: str, iterations: int = 4096) -> UserScramCredentialRecord:
    number, hash_name = SCRAM[mechanism]
    salted = hashlib.pbkdf2_hmac(hash_name, b"pencil", SALT, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    return UserScramCredentialRecord(
        name=name,
        mechanism=number,
        salt=SALT,
        stored_key=hashlib.new(hash_name, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", hash_name),
        iterations=iterations,
    )


USERS = {
    ("user", 1): credential("user", "SCRAM-SHA-256"),
    ("a,=b", 1): credential("a,=b", "SCRAM-SHA-256"),
    ("weak", 1): credential("weak", "SCRAM-SHA-256", 4095),
}


@pytest.fixture
def server() -> ScramServer:
    return ScramServer(SCRAM["SCRAM-SHA-256"], lambda *key: USERS.get(key), lambda: SERVER)


def test_the_conversation_of_rfc_7677(server: ScramServer) -> None:
    first = server.evaluate(FIRST.encode())
    assert first.decode() == f"r={CLIENT}{SERVER},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert server.user is None
    last = server.evaluate(FINAL.encode())
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"
    with pytest.raises(RefusedError, match="Unexpected challenge"):
        server.evaluate(FINAL.encode())


def test_names_are_escaped_and_other_extensions_ignored(server: ScramServer) -> None:
    assert server.evaluate(b"n,,n=a=2C=3Db,r=x,later=1").startswith(b"r=x%hv")


@pytest.mark.parametrize(
    ("message", "reason", "is_shown"),
    [
        ("", "Invalid SCRAM client first message format", False),
        ("y,,n=user,r=x", "Invalid SCRAM client first message format", False),
        ("n,,n=us=er,r=x", "Invalid SCRAM client first message format", False),
        ("n,,n=nobody,r=x", "Invalid user credentials", False),
        ("n,,n=weak,r=x", "Iterations 4095 is less than 4096", False),
        ("n,a=other,n=user,r=x", "authorization id that is different", True),
        ("n,,n=user,r=x,tokenauth=true", "Invalid tokenId : user", False),
    ],
)
def test_first_messages_that_are_refused(
    server: ScramServer, message: str, reason: str, is_shown: bool
) -> None:
    with pytest.raises(RefusedError, match=reason) as caught:
        server.evaluate(message.encode())
    assert (caught.value.shown is not None) is is_shown


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text.replace("p=d", "p=e"), "Invalid client credentials"),
        (lambda text: text[: -len(PROOF)], "Invalid client credentials"),
        (lambda text: text.replace(PROOF, "AAAA" + PROOF), "Invalid client credentials"),
        (lambda text: text.replace(CLIENT, "x"), "Invalid client nonce"),
        (lambda text: "c=biws", "Invalid SCRAM client final message format"),
    ],
)
def test_final_messages_that_are_refused(
    server: ScramServer, change: Callable[[str], str], reason: str
) -> None:
    server.evaluate(FIRST.encode())
    with pytest.raises(RefusedError, match=reason):
        server.evaluate(change(FINAL).encode())
    assert server.user is None


def test_a_client_of_another_implementation() -> None:
    from aiokafka import AIOKafkaProducer

    own = "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config"
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        own: JAAS,
    }

    async def test() -> None:
        async with tidelog.Cluster(settings) as cluster:
            server = cluster.brokers[0].server
            await server.parts.controller._log.commit([credential("user", "SCRAM-SHA-512")])
            async with AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="SCRAM-SHA-512",
                sasl_plain_username="user",
                sasl_plain_password="pencil",
            ):
                assert {str(each.principal) for each in server.connections} == {"User:user"}

    run(test)
