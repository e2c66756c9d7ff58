"""Sessions of applications: verifiable clients, and Kafka Streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat.console.sessions import session
from compat.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compat.console.console import Console

SOON: Mapping[str, str] = {
    "group.streams.assignment.interval.ms": "0",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.min.heartbeat.interval.ms": "300",
}
TASKS = ["0_0", "0_1", "1_0", "1_1"]


@session()
def verifiable_clients(console: Console) -> None:
    """kafka-verifiable-producer, kafka-verifiable-consumer and kafka-verifiable-share-consumer."""
    console.run("kafka-topics --create --topic t --partitions 1")
    console.run("kafka-verifiable-producer --topic t --max-messages 3")
    values = "--value-prefix 7 --repeating-keys 2 --message-create-time 1000"
    console.run(f"kafka-verifiable-producer --topic t --max-messages 3 --acks 1 {values}")
    read = "--topic t --max-messages 6 --verbose"
    console.run(f"kafka-verifiable-consumer {read} --group-id g")
    console.run(f"kafka-verifiable-consumer {read} --group-id h --group-protocol consumer")
    console.run(
        f"kafka-verifiable-share-consumer {read} --group-id s --acknowledgement-mode sync"
        " --offset-reset-strategy earliest"
    )
    for group in ("g", "h"):
        console.run(f"kafka-consumer-groups --describe --group {group}")
    console.run("kafka-share-groups --describe --group s")


@session(SOON)
def streams_groups(console: Console) -> None:
    """kafka-streams-groups of an application that runs, and that has ended."""
    for topic in ("lines", "counts"):
        console.run(f"kafka-topics --create --topic {topic} --partitions 2")
    console.run(
        "kafka-console-producer --topic lines --reader-property parse.key=true",
        "k1\ta b\nk2\ta\nk3\tb\nk4\tc\n",
    )
    steady = "--add-config streams.session.timeout.ms=45000"  # however slow the machine is
    console.run(f"kafka-configs --entity-type groups --entity-name wordcount --alter {steady}")
    topics = {"from": "lines", "to": "counts", "folder": str(console.folder / "application")}
    at = {"bootstrap": console.bootstrap, "application": "wordcount", "protocol": "streams"}
    console.jvm.call("wordcount_start", **at, **topics)
    eventually(lambda: console.jvm.call("wordcount_state")["tasks"], TASKS.__eq__, 60)
    none_left = r"counts-repartition 0 0\n.*counts-repartition 1 0\n.*lines 0 0\n.*lines 1 0\n"
    console.run("kafka-streams-groups --describe --group wordcount", until=none_left, ordered=False)
    console.run(
        "kafka-streams-groups --describe --group wordcount --verbose", numbers=True, ordered=False
    )
    for command in (
        "--list --state",
        "--list --state stable",
        "--list --state empty",
        "--describe --group wordcount --state",
        "--describe --group wordcount --state --verbose",
        "--describe --group wordcount --members",
        "--describe --group wordcount --members --verbose",
        "--describe --all-groups --state",
        "--describe --group none",
        "--group wordcount --input-topic lines --reset-offsets --to-earliest --execute",
        "--delete-offsets --group wordcount --input-topic lines",
        "--delete --group wordcount",
    ):
        console.run(f"kafka-streams-groups {command}", ordered=False)
    console.run("kafka-groups --list")
    console.run("kafka-groups --list --streams")
    console.run("kafka-consumer-groups --describe --group wordcount")
    console.run("kafka-share-groups --describe --group wordcount")
    console.jvm.call("wordcount_stop")
    for command in (
        "--describe --group wordcount --state",
        "--describe --group wordcount --members",
        "--describe --group wordcount",
        "--group wordcount --input-topic lines --reset-offsets --to-earliest --dry-run",
        "--group wordcount --input-topic lines --reset-offsets --to-earliest --execute",
        "--group wordcount --input-topic lines:0 --reset-offsets --shift-by 1 --execute",
        "--group wordcount --input-topic lines --reset-offsets --to-latest --export --dry-run",
        "--group wordcount --input-topic none --reset-offsets --to-earliest --execute",
        "--group none --input-topic lines --reset-offsets --to-earliest --execute",
        "--delete-offsets --group wordcount --input-topic none",
        "--delete-offsets --group wordcount --input-topic lines",
        "--delete --group none",
        "--delete --group wordcount",
        "--list",
    ):
        console.run(f"kafka-streams-groups {command}", ordered=False)
