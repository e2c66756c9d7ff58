"""What clients say of what is wrong on request: at every door of a secured cluster the same."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Protocol

from compat.secured_clients import JAVA, THROUGH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidelog.control.credentials.wishes import Wishes

VERIFY = "certificate verify failed"
REFUSALS: Mapping[str, tuple[Wishes, Mapping[str, str]]] = {
    "expired": (
        {"certificate": "expired"},
        {
            "aiokafka": VERIFY,
            "confluent-kafka": VERIFY,
            "franz-go": "certificate has expired",
            "kafka-python": VERIFY,
            "kafkajs": "certificate has expired",
            JAVA: "SSL handshake failed",
        },
    ),
    "wrong-host": (
        {"certificate": "wrong-host"},
        {
            "aiokafka": VERIFY,
            "confluent-kafka": VERIFY,
            "franz-go": "doesn't contain any IP SANs",
            "kafka-python": VERIFY,
            "kafkajs": "does not match certificate's altnames",
            JAVA: "SSL handshake failed",
        },
    ),
    "self-signed": (
        {"certificate": "self-signed"},
        {
            "aiokafka": VERIFY,
            "confluent-kafka": VERIFY,
            "franz-go": "certificate signed by unknown authority",
            "kafka-python": VERIFY,
            "kafkajs": "self-signed certificate",
            JAVA: "SSL handshake failed",
        },
    ),
    "password": (
        {"password": "wrong"},
        {
            "aiokafka": "Invalid username or password",
            "confluent-kafka": "Invalid username or password",
            "franz-go": "SASL_AUTHENTICATION_FAILED",
            "kafka-python": "Invalid username or password",
            "kafkajs": "Invalid username or password",
            JAVA: "Invalid username or password",
        },
    ),
    "token": (  # Kafka answers with the reason, which these four do not read
        {"token": "expired"},
        {
            # It takes the reason for a success, and its first request gets an answer without
            # brokers. Whether the connection is closed then or later is chance.
            "aiokafka": "No broker metadata found in MetadataResponse",
            "confluent-kafka": "invalid_token",
            "franz-go": "unexpected data in oauth response",
            "kafka-python": "socket disconnected",
            "kafkajs": "current SASL state",
            JAVA: "invalid_token",
        },
    ),
}
NO_RIGHTS: Mapping[str, str] = {
    "aiokafka": "TopicAuthorizationFailedError",
    "confluent-kafka": "Topic authorization failed",
    "franz-go": "TOPIC_AUTHORIZATION_FAILED",
    "kafka-python": "TopicAuthorizationFailedError",
    "kafkajs": "Not authorized to access topics",
    JAVA: "Not authorized to access topics",
}
"""What they say on brokers with AUTHORIZER that have no ACLs."""
AUTHORIZER: Mapping[str, Any] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": False,
}


class Door(Protocol):
    """What gives configurations to clients: `Cluster`, `TidelogContainer`, `CommandLine`."""

    def client_config(self, client: str, **wishes: Any) -> Any: ...


class CommandLine:
    """The configurations that `tidelog client-config` prints."""

    def __init__(self, bootstrap_servers: str, folder: str) -> None:
        self._place = ["-b", bootstrap_servers, "--security-dir", folder]

    def client_config(self, client: str, **wishes: Any) -> Any:
        words = [word for name, text in wishes.items() for word in (f"--{name}", text)]
        done = subprocess.run(
            [sys.executable, "-m", "tidelog", "client-config", client, *self._place, *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout if client == JAVA else json.loads(done.stdout)


def topics_of(clients: Iterable[str]) -> list[str]:
    """The topics that must be there: that of refusals, and one for each client."""
    return ["t", *(f"of-{client}" for client in clients)]


def unlike(
    door: Door, clients: Iterable[str], others: Mapping[str, Callable[..., str]] | None = None
) -> dict[tuple[str, str], str]:
    """What clients said that is not in the table, by client and what was wrong. The brokers have
    an authorizer, and the topics of these clients."""
    through = {**THROUGH, **(others or {})}
    found = {}
    for client in clients:
        cases = {name: (wishes, said[client]) for name, (wishes, said) in REFUSALS.items()}
        for name, (wishes, said) in {**cases, "rights": ({}, NO_RIGHTS[client])}.items():
            answer = through[client](door, wishes, "t")
            if not (answer.startswith("error:") and said in answer):
                found[client, name] = answer
        allowed = through[client](door, {"user": "admin"}, f"of-{client}")
        if allowed != client:
            found[client, "nothing"] = allowed
    return found
