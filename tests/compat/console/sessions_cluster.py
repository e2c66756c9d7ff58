"""Sessions with three brokers: replicas that move, leaders that are elected."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from compat.console.sessions import session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compat.console.console import Console

STEADY: Mapping[str, str] = {"auto.leader.rebalance.enable": "false"}  # elections are the user's
FILES = "--reassignment-json-file {folder}/move.json"


def moves(**replicas: Sequence[int]) -> str:
    """A file for kafka-reassign-partitions, of topics with one partition."""
    rows = [{"topic": name, "partition": 0, "replicas": on} for name, on in replicas.items()]
    return json.dumps({"version": 1, "partitions": rows})


@session(STEADY, brokers=3)
def reassignments(console: Console) -> None:
    """kafka-reassign-partitions, with throttles."""
    console.run("kafka-topics --create --topic t --replica-assignment 1:2")
    console.run("kafka-topics --create --topic u --replica-assignment 3")
    console.run("kafka-console-producer --topic t", "a\nb\nc\n")
    console.file("topics.json", json.dumps({"version": 1, "topics": [{"topic": "u"}]}))
    generate = "--generate --topics-to-move-json-file {folder}/topics.json --broker-list"
    console.run(f"kafka-reassign-partitions {generate} 2 --bootstrap-server {{bootstrap}}")
    at = f"{FILES} --bootstrap-server {{bootstrap}}"
    console.file("move.json", moves(t=(2, 3), u=(1,)))
    console.run(f"kafka-reassign-partitions {at} --execute --throttle 1000000")
    verified = "Reassignment of partition [tu]-0 is completed.*Clearing topic-level throttles"
    console.run(f"kafka-reassign-partitions {at} --verify", until=verified, ordered=False)
    console.run("kafka-reassign-partitions --list")
    console.run("kafka-topics --describe --topic t")
    console.run("kafka-configs --entity-type topics --entity-name t --describe")
    console.run("kafka-configs --entity-type brokers --entity-name 2 --describe")
    console.run(f"kafka-reassign-partitions {at} --cancel")
    for name, text in (
        ("no such broker", moves(t=(1, 9))),
        ("no such topic", moves(none=(1,))),
        ("a broker twice", moves(t=(1, 1))),
        ("no replicas", moves(t=())),
        ("no JSON", "{"),
    ):
        console.file("move.json", text)
        console.note(name)
        console.run(f"kafka-reassign-partitions {at} --execute")


@session(STEADY, brokers=3)
def elections(console: Console) -> None:
    """kafka-leader-election."""
    console.run("kafka-topics --create --topic t --replica-assignment 1:2:3")
    console.run("kafka-topics --describe --topic t")
    elect = "kafka-leader-election --election-type preferred"
    console.run(f"{elect} --topic t --partition 0")
    console.run(f"{elect} --topic t --partition 7")
    console.run(f"{elect} --topic none --partition 0")
    console.file("move.json", moves(t=(2, 3, 1)))
    at = f"{FILES} --bootstrap-server {{bootstrap}}"
    console.run(f"kafka-reassign-partitions {at} --execute")
    console.run("kafka-topics --describe --topic t")
    console.run(f"{elect} --topic t --partition 0")
    console.run("kafka-topics --describe --topic t")
    console.run(f"{elect} --all-topic-partitions")
    console.run("kafka-leader-election --election-type unclean --topic t --partition 0")
    rows = {"partitions": [{"topic": "t", "partition": 0}]}
    console.file("elect.json", json.dumps(rows))
    at = "--path-to-json-file {folder}/elect.json --bootstrap-server {bootstrap}"
    console.run(f"{elect} {at}")


@session(STEADY, brokers=3)
def brokers(console: Console) -> None:
    """kafka-cluster, kafka-log-dirs, kafka-metadata-quorum and kafka-topics of three brokers."""
    console.run(
        "kafka-topics --create --topic t --partitions 3 --replication-factor 3", numbers=True
    )
    console.run("kafka-topics --create --topic u --replication-factor 4")
    console.run("kafka-topics --create --topic u --replica-assignment 1:9")
    console.run("kafka-topics --create --topic u --replica-assignment 1:1")
    console.run("kafka-topics --describe --under-min-isr-partitions")
    console.run("kafka-topics --describe --at-min-isr-partitions")
    console.run("kafka-cluster list-endpoints", ordered=False)
    console.run("kafka-metadata-quorum describe --status", numbers=True)
    console.run("kafka-metadata-quorum describe --replication", numbers=True)
    console.run("kafka-configs --entity-type brokers --entity-name 9 --describe")


@session(STEADY, brokers=3)
def replica_verification(console: Console) -> None:
    """kafka-replica-verification, which goes on for ever."""
    console.run("kafka-topics --create --topic t --partitions 1 --replication-factor 3")
    console.run("kafka-console-producer --topic t", "a\nb\nc\n")
    at = "--broker-list {bootstrap} --report-interval-ms 500"
    console.watch(f"kafka-replica-verification {at} --topics-include t", "at offset 3 among")
    console.watch(f"kafka-replica-verification {at} --topics-include none", "(?!)")
