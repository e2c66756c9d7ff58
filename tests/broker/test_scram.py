"""SCRAM: the conversation of RFC 7677, refusals, and a client of another implementation."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from typing import TYPE_CHECKING

import pytest

import tidelog
from support.clusters import run
from tidelog.security.delegation_tokens import token_hmac, token_logins
from tidelog.security.refused import RefusedError
from tidelog.security.scram import SCRAM, Credentials, ScramServer, credential
from tidelog_protocol.messages.metadata_records import DelegationTokenRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog_protocol.messages.metadata_records import UserScramCredentialRecord

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT = "rOprNGfwEbeRWgbNEkqO"
SERVER = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"n,,n=user,r={CLIENT}"
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
FINAL = f"c=biws,r={CLIENT}{SERVER},p={PROOF}"
TOKEN = DelegationTokenRecord(owner="User:alice", token_id="token", expiration_timestamp=77)
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def of_user(name: str, iterations: int = 4096) -> UserScramCredentialRecord:
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, iterations)
    return credential(SCRAM["SCRAM-SHA-256"], name, SALT, salted, iterations)


USERS = {
    ("user", 1): of_user("user"),
    ("a,=b", 1): of_user("a,=b"),
    ("weak", 1): of_user("weak", 4095),
}


@pytest.fixture
def server() -> ScramServer:
    logins = token_logins(lambda: {"token": TOKEN}, "key", bytes)
    credentials = Credentials(lambda *key: USERS.get(key), logins)
    return ScramServer(SCRAM["SCRAM-SHA-256"], credentials, lambda: SERVER)


def test_the_conversation_of_rfc_7677(server: ScramServer) -> None:
    first = server.evaluate(FIRST.encode())
    assert first.decode() == f"r={CLIENT}{SERVER},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert server.user is None
    last = server.evaluate(FINAL.encode())
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"
    with pytest.raises(RefusedError, match="Unexpected challenge"):
        server.evaluate(FINAL.encode())


def proof_of(password: bytes, salt: bytes, said: str) -> str:
    """What a client of SCRAM-SHA-256 sends at the end."""
    key = hmac.digest(hashlib.pbkdf2_hmac("sha256", password, salt, 4096), b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), said.encode(), "sha256")
    return base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()


def test_a_delegation_token_proves_its_owner(server: ScramServer) -> None:
    bare = "n=token,r=x,tokenauth=true"
    first = server.evaluate(f"n,,{bare}".encode()).decode()
    password = base64.b64encode(token_hmac("key", "token"))
    final = f"c=biws,r=x{SERVER}"
    proof = proof_of(password, bytes(20), f"{bare},{first},{final}")
    assert server.evaluate(f"{final},p={proof}".encode()).startswith(b"v=")
    assert (server.user, server.expires_ms, server.is_of_token) == ("alice", 77, True)


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


def test_clients_of_others_set_users_and_are_them() -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )

    own = "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config"
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        own: JAAS,
    }

    def use(open_: str, closed: str) -> None:
        admin = AdminClient({"bootstrap.servers": open_})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsertion = UserScramCredentialUpsertion("user", info, b"pencil")
        assert admin.alter_user_scram_credentials([upsertion])["user"].result(30) is None
        of_user = {
            "bootstrap.servers": closed,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "user",
            "sasl.password": "pencil",
        }
        assert AdminClient(of_user).list_topics(timeout=30).brokers
        removal = UserScramCredentialDeletion("user", ScramMechanism.SCRAM_SHA_512)
        assert admin.alter_user_scram_credentials([removal])["user"].result(30) is None
        with pytest.raises(KafkaException, match="does not exist"):
            admin.alter_user_scram_credentials([removal])["user"].result(30)

    async def test() -> None:
        async with tidelog.Cluster(settings) as cluster:
            (broker,) = cluster.brokers[0].server.metadata.image.brokers.values()
            addresses = [f"{host}:{port}" for _, host, port, _ in broker.endpoints]
            await asyncio.to_thread(use, *addresses)

    run(test)
