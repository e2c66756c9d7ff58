"""kafka-acls against brokers whose clients log in: who may change ACLs, and what they do then.

python -m compat.acl_tools --record      with tests/ on the path: from a live Apache Kafka
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from compat.conformance.sasl.doors import USERS
from compat.token_tools import Terminal, record

if TYPE_CHECKING:
    from collections.abc import Mapping

RECORDED = Path(__file__).with_suffix(".txt")
AUTHORIZER: Mapping[str, str] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:alice;User:ANONYMOUS",  # the broker itself is the second
}
ACLS = "AclCommand"


def play(terminal: Terminal) -> list[str]:
    """A super user gives another user rights, and takes them away."""
    alice, bob = (terminal.client("PLAIN", _login(name), name) for name in ("alice", "bob"))
    topic = ("--topic", "orders", "--partitions", "1", "--replication-factor", "1")
    terminal.run("TopicCommand", "--create", *topic, *alice)
    terminal.run(ACLS, "--list", *bob)
    terminal.run("TopicCommand", "--list", *bob)
    reads = ("--allow-principal", "User:bob", "--operation", "Read", "--topic", "orders")
    terminal.run(ACLS, "--add", *reads, *alice)
    prefix = ("--topic", "secret", "--resource-pattern-type", "prefixed")
    terminal.run(ACLS, "--add", "--deny-principal", "User:carol", *prefix, *alice)
    terminal.run("TopicCommand", "--list", *bob)
    terminal.run(ACLS, "--add", *reads, *bob)
    terminal.run(ACLS, "--list", *alice)
    terminal.run(ACLS, "--remove", "--force", *reads, *alice)
    terminal.run(ACLS, "--list", "--topic", "orders", *alice)
    terminal.run("TopicCommand", "--list", *bob)
    return terminal.lines


def _login(user: str) -> str:
    return f'username="{user}" password="{USERS[user]}"'


if __name__ == "__main__":
    record(RECORDED, play, AUTHORIZER)
