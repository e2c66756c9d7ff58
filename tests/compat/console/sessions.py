"""Sessions, and those with one broker: what a user of each tool types."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from compat.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compat.console.console import Console

AUTHORIZER: Mapping[str, str] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class Session(NamedTuple):
    """One transcript. `is_in_ci`: else the nightly run plays it."""

    name: str
    play: Callable[[Console], None]
    settings: Mapping[str, str]
    is_in_ci: bool
    brokers: int


SESSIONS: dict[str, Session] = {}


def session(
    settings: Mapping[str, str] | None = None, *, in_ci: bool = False, brokers: int = 1
) -> Callable[[Callable[[Console], None]], Callable[[Console], None]]:
    """Name a session after its function."""

    def keep(play: Callable[[Console], None]) -> Callable[[Console], None]:
        name = play.__name__.replace("_", "-")
        SESSIONS[name] = Session(name, play, settings or {}, in_ci, brokers)
        return play

    return keep


@session(in_ci=True)
def topics(console: Console) -> None:
    """kafka-topics."""
    for command in (
        "--list",
        "--create --topic t --partitions 2 --config retention.ms=1000000",
        "--create --topic t",
        "--create --topic t --if-not-exists",
        "--create --topic bad/name",
        "--create --topic u --partitions 0",
        "--create --topic u --replication-factor 2",
        "--create --topic u --config no.such=1",
        "--create --topic u --config retention.ms=x",
        "--create --topic a.b",
        "--create --topic a_b",
        "--list",
        "--describe --topic t",
        "--describe --topics-with-overrides",
        "--describe --under-replicated-partitions",
        "--describe --unavailable-partitions",
        "--describe --topic none",
        "--alter --topic t --partitions 3",
        "--alter --topic t --partitions 2",
        "--alter --topic t --partitions 3",
        "--describe --topic t",
        "--delete --topic none",
        "--delete --topic none --if-exists",
        "--delete --topic t",
        "--list",
    ):
        console.run(f"kafka-topics {command}")


@session()
def records(console: Console) -> None:
    """What is written is read, offsets are told, records are deleted."""
    console.run("kafka-topics --create --topic t --partitions 1")
    for lines in ("k1\tv1\nk2\tv2\n", "k3\tv3\n"):  # the last one's timestamp is the greatest
        console.run("kafka-console-producer --topic t --reader-property parse.key=true", lines)
    console.run(
        "kafka-console-consumer --topic t --from-beginning --max-messages 3 --timeout-ms 20000"
        " --formatter-property print.key=true --formatter-property print.offset=true"
        " --formatter-property print.partition=true"
    )
    console.run(
        "kafka-console-consumer --topic t --partition 0 --offset 2 --max-messages 1"
        " --timeout-ms 20000"
    )
    for time in ("-1", "-2", "-3", "-4", "-5", "-6", "0", "9999999999999"):
        console.run(f"kafka-get-offsets --topic t --time {time}")
    console.run("kafka-get-offsets --topic none")
    console.run("kafka-get-offsets --topic-partitions t:0,t:7")
    for offset in (2, 9, -1):
        rows = [{"topic": "t", "partition": 0, "offset": offset}]
        console.file("delete.json", json.dumps({"version": 1, "partitions": rows}))
        console.run("kafka-delete-records --offset-json-file {folder}/delete.json")
        console.run("kafka-get-offsets --topic t --time earliest")
    console.run("kafka-topics --describe --topic __consumer_offsets --exclude-internal")


@session()
def configs(console: Console) -> None:
    """kafka-configs of topics, brokers and groups."""
    console.run("kafka-topics --create --topic t")
    for entity, changes in (
        (
            "--entity-type topics --entity-name t",
            ("retention.ms=123", "cleanup.policy=[compact,delete]", "retention.ms=x", "none=1"),
        ),
        (
            "--entity-type groups --entity-name g",
            (
                "consumer.session.timeout.ms=50000",
                "consumer.session.timeout.ms=1",
                "share.auto.offset.reset=earliest",
                "streams.num.standby.replicas=1",
                "none=1",
            ),
        ),
        (
            "--entity-type brokers --entity-name 1",
            ("log.retention.ms=1000000", "log.cleaner.threads=x", "node.id=2", "none.such=1"),
        ),
        ("--entity-type brokers --entity-default", ("message.max.bytes=2000000",)),
        ("--entity-type topics --entity-name none", ("retention.ms=1",)),
    ):
        for change in changes:
            console.run(f"kafka-configs {entity} --alter --add-config {change}")
        console.run(f"kafka-configs {entity} --describe", ordered=False)
        keys = ",".join(dict.fromkeys(each.partition("=")[0] for each in changes[:1]))
        console.run(f"kafka-configs {entity} --alter --delete-config {keys}")
        console.run(f"kafka-configs {entity} --alter --delete-config never.set")
        console.run(f"kafka-configs {entity} --describe", ordered=False)
    console.run("kafka-configs --entity-type groups --describe", ordered=False)


@session()
def quotas(console: Console) -> None:
    """kafka-configs of users, clients and addresses."""
    for entity, change in (
        ("--entity-type users --entity-name u", "producer_byte_rate=1024"),
        ("--entity-type users --entity-default", "consumer_byte_rate=2048"),
        ("--entity-type clients --entity-name c", "request_percentage=50"),
        ("--entity-type clients --entity-default", "controller_mutation_rate=10"),
        (
            "--entity-type users --entity-name u --entity-type clients --entity-name c",
            "producer_byte_rate=4096",
        ),
        ("--entity-type ips --entity-name 192.0.2.7", "connection_creation_rate=5"),
        ("--entity-type ips --entity-default", "connection_creation_rate=50"),
    ):
        console.run(f"kafka-configs {entity} --alter --add-config {change}")
        console.run(f"kafka-configs {entity} --describe", ordered=False)
    for entity in ("users", "clients", "ips"):
        console.run(f"kafka-configs --entity-type {entity} --describe", ordered=False)
    for entity, change in (
        ("--entity-type users --entity-name u", "producer_byte_rate=-1"),
        ("--entity-type users --entity-name u", "connection_creation_rate=1"),
        ("--entity-type ips --entity-name 192.0.2.7", "producer_byte_rate=1"),
        ("--entity-type ips --entity-name no-such-host.invalid", "connection_creation_rate=1"),
        ("--entity-type clients --entity-name c", "none=1"),
    ):
        console.run(f"kafka-configs {entity} --alter --add-config {change}")
    console.run(
        "kafka-configs --entity-type users --entity-name u --alter"
        " --delete-config producer_byte_rate"
    )
    console.run("kafka-configs --entity-type users --describe", ordered=False)


@session()
def scram_users(console: Console) -> None:
    """kafka-configs of users that have passwords."""
    entity = "--entity-type users --entity-name alice"
    password = "SCRAM-SHA-256=[iterations=8192,password=secret]"
    console.run(f"kafka-configs {entity} --alter --add-config {password}")
    console.run(f"kafka-configs {entity} --describe")
    few = "SCRAM-SHA-512=[iterations=1,password=secret]"
    console.run(f"kafka-configs {entity} --alter --add-config {few}")
    console.run(f"kafka-configs {entity} --alter --delete-config SCRAM-SHA-512")
    console.run("kafka-configs --entity-type users --describe")
    console.run(f"kafka-configs {entity} --alter --delete-config SCRAM-SHA-256")
    console.run("kafka-configs --entity-type users --describe")


@session()
def features(console: Console) -> None:
    """kafka-features."""
    for command in (
        "describe",
        "downgrade --feature transaction.version=1 --dry-run",
        "downgrade --feature transaction.version=1",
        "upgrade --feature transaction.version=2",
        "upgrade --feature transaction.version=9",
        "upgrade --feature none=1",
        "disable --feature share.version",
        "upgrade --feature share.version=1",
        "downgrade --metadata 3.3-IV3",
        "upgrade --release-version 4.3 --dry-run",
        "version-mapping --release-version 4.2",
        "feature-dependencies --feature transaction.version=2",
        "describe",
    ):
        console.run(f"kafka-features {command}", ordered=False)


@session()
def cluster_and_quorum(console: Console) -> None:
    """kafka-cluster, kafka-metadata-quorum and kafka-broker-api-versions."""
    console.run("kafka-cluster cluster-id")
    console.run("kafka-cluster list-endpoints")
    console.run("kafka-cluster unregister --id 7")
    console.run("kafka-metadata-quorum describe --status", numbers=True)
    console.run("kafka-metadata-quorum describe --replication", numbers=True)
    console.run(
        "kafka-metadata-quorum remove-controller --controller-id 9"
        " --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ"
    )
    console.run("kafka-broker-api-versions")


@session()
def classic_groups(console: Console) -> None:
    """kafka-consumer-groups of a group whose consumer has left."""
    console.run("kafka-topics --create --topic t --partitions 1")
    console.run("kafka-topics --create --topic u --partitions 1")
    console.run("kafka-console-producer --topic t", "a\nb\nc\nd\n")
    console.run("kafka-console-producer --topic u", "e\n")
    console.run(
        "kafka-console-consumer --topic t --group g --from-beginning --max-messages 4"
        " --timeout-ms 20000 --command-property group.protocol=classic"
    )
    for command in (
        "--list",
        "--list --state",
        "--list --type",
        "--list --state Stable",
        "--list --type consumer",
        "--describe --group g",
        "--describe --group g --verbose",
        "--describe --group g --members",
        "--describe --group g --members --verbose",
        "--describe --group g --state",
        "--describe --group g --state --verbose",
        "--describe --group none",
        "--describe --group none --state",
        "--group g --topic t --reset-offsets --to-earliest --dry-run",
        "--group g --topic t:0 --reset-offsets --to-offset 2 --execute",
        "--group g --topic t --reset-offsets --shift-by 7 --execute",
        "--group g --topic t --reset-offsets --shift-by -1 --execute",
        "--group g --all-topics --reset-offsets --to-latest --export --dry-run",
        "--group g --topic u --reset-offsets --to-earliest --execute",
        "--group new --topic u --reset-offsets --to-latest --execute",
        "--group g --topic none --reset-offsets --to-latest --execute",
        "--describe --group g",
        "--describe --all-groups --state",
        "--delete-offsets --group g --topic u",
        "--delete-offsets --group g --topic none",
        "--delete-offsets --group none --topic t",
        "--delete --group g",
        "--delete --group none",
        "--delete --group new",
        "--list",
    ):
        console.run(f"kafka-consumer-groups {command}", ordered=False)


@session()
def consumer_groups(console: Console) -> None:
    """The same of a group of KIP-848 with a member, and of it when the member has left."""
    console.run("kafka-topics --create --topic t --partitions 1")
    console.run("kafka-console-producer --topic t", "a\nb\n")
    member = {"bootstrap": console.bootstrap, "member": "m"}
    console.jvm.call("join", group="g", topic="t", protocol="consumer", **member)
    eventually(lambda: console.jvm.call("consumed", **member)["records"], lambda r: len(r) == 2, 60)
    console.jvm.call("commit", **member)
    described = [
        f"--describe --group g{kind}{verbose}"
        for kind in ("", " --members", " --state")
        for verbose in ("", " --verbose")
    ]
    for command in (
        "--list --state --type",
        "--list --type consumer",
        "--list --type classic",
        *described,
        "--group g --topic t --reset-offsets --to-earliest --execute",
        "--delete-offsets --group g --topic t",
        "--delete --group g",
    ):
        console.run(f"kafka-consumer-groups {command}")
    console.run("kafka-groups --list", ordered=False)
    console.run("kafka-groups --list --consumer", ordered=False)
    console.run("kafka-share-groups --describe --group g")
    console.run("kafka-streams-groups --describe --group g")
    console.jvm.call("leave", **member)
    for command in (
        *described,
        "--group g --topic t --reset-offsets --to-earliest --execute",
        "--delete-offsets --group g --topic t",
        "--delete --group g",
        "--list",
    ):
        console.run(f"kafka-consumer-groups {command}")


@session(in_ci=True)
def share_groups(console: Console) -> None:
    """kafka-share-groups."""
    console.run("kafka-topics --create --topic t --partitions 1")
    console.run("kafka-console-producer --topic t", "a\nb\nc\n")
    earliest = "--add-config share.auto.offset.reset=earliest"
    console.run(f"kafka-configs --entity-type groups --entity-name g --alter {earliest}")
    bound = "--max-messages 3 --timeout-ms 20000"
    console.run(f"kafka-console-share-consumer --topic t --group g {bound}")
    for command in (
        "--list",
        "--list --state",
        "--describe --group g --state",
        "--describe --group g --state --verbose",
        "--describe --group g --members",
        "--describe --group g --members --verbose",
        "--describe --group none",
        "--group g --topic t --reset-offsets --to-earliest --dry-run",
        "--group g --topic t --reset-offsets --to-earliest --execute",
        "--describe --group g",
        "--describe --group g --verbose",
        "--group g --topic none --reset-offsets --to-latest --execute",
        "--group g --topic t --reset-offsets --to-latest --execute",
        "--delete-offsets --group g --topic none",
        "--delete-offsets --group g --topic t",
        "--delete --group none",
        "--delete --group g",
        "--list",
    ):
        console.run(f"kafka-share-groups {command}")
    console.run("kafka-consumer-groups --describe --group g")


@session()
def client_metrics(console: Console) -> None:
    """kafka-client-metrics."""
    for command in (
        "--list",
        "--alter --name m --metrics org.apache.kafka.consumer. --interval 10000",
        "--alter --name n --metrics '' --interval 60000 --match client_id=a.*",
        "--alter --name bad --interval 1",
        "--alter --name bad --match no_such=a",
        "--describe --name m",
        "--describe",
        "--describe --name none",
        "--alter --name m --interval",
        "--delete --name m",
        "--delete --name none",
        "--list",
    ):
        console.run(f"kafka-client-metrics {command}", ordered=False)
    console.run("kafka-configs --entity-type client-metrics --describe", ordered=False)


@session(AUTHORIZER)
def acls(console: Console) -> None:
    """kafka-acls."""
    for command in (
        "--list",
        "--add --allow-principal User:alice --operation Read --operation Write --topic t",
        "--add --deny-principal User:bob --deny-host 192.0.2.7 --operation All --topic t",
        "--add --allow-principal User:alice --producer --topic p --resource-pattern-type prefixed",
        "--add --allow-principal User:alice --consumer --topic t --group g",
        "--add --allow-principal User:alice --operation Alter --cluster",
        "--add --allow-principal User:alice --operation Write --transactional-id x",
        "--list",
        "--list --topic t",
        "--list --topic p --resource-pattern-type match",
        "--list --principal User:bob",
        "--remove --topic t --allow-principal User:alice --operation Read --force",
        "--remove --topic t --force",
        "--remove --topic none --force",
        "--list --topic t",
    ):
        console.run(f"kafka-acls {command}", ordered=False)


@session()
def no_authorizer(console: Console) -> None:
    """kafka-acls of a broker that has none."""
    console.run("kafka-acls --list")
    console.run("kafka-acls --add --allow-principal User:a --operation Read --topic t")


@session()
def log_dirs(console: Console) -> None:
    """kafka-log-dirs."""
    console.run("kafka-topics --create --topic t --partitions 1")
    console.run("kafka-console-producer --topic t", "a\n")
    console.run("kafka-log-dirs --describe --topic-list t")
    console.run("kafka-log-dirs --describe --topic-list none --broker-list 1")
    console.run("kafka-log-dirs --describe --topic-list t --broker-list 7")


@session()
def transactions(console: Console) -> None:
    """kafka-transactions."""
    console.run("kafka-topics --create --topic t --partitions 1")
    options = {"transactional_id": "id", "timeout_ms": 600_000}
    console.jvm.call("txn_open", bootstrap=console.bootstrap, producer="p", **options)
    records = [{"key": None, "value": "YQ==", "headers": [], "partition": 0}]
    console.jvm.call("txn_send", producer="p", topic="t", records=records, begin=True)
    console.run("kafka-transactions list", numbers=True)
    console.run("kafka-transactions list --duration-filter 9999999")
    console.run("kafka-transactions describe --transactional-id id", numbers=True)
    console.run("kafka-transactions describe --transactional-id none")
    console.run("kafka-transactions describe-producers --topic t --partition 0", numbers=True)
    console.run("kafka-transactions find-hanging --broker-id 1")
    console.jvm.call("txn_end", producer="p", commit=True)
    console.jvm.call("txn_close", producer="p")
    console.run("kafka-transactions list", numbers=True)
    console.run("kafka-transactions abort --topic t --partition 0 --start-offset 0")
    console.run("kafka-transactions forceTerminateTransaction --transactionalId id")


@session()
def figures(console: Console) -> None:
    """The tools that measure; their numbers are left out."""
    console.run("kafka-topics --create --topic t --partitions 1")
    console.run(
        "kafka-producer-perf-test --topic t --num-records 200 --record-size 100 --throughput -1"
        " --producer-props bootstrap.servers={bootstrap} acks=all",
        numbers=True,
    )
    console.run(
        "kafka-consumer-perf-test --topic t --num-records 200 --timeout 20000", numbers=True
    )
    console.run(
        "kafka-e2e-latency --topic t --num-records 20 --producer-acks all --record-size 20",
        numbers=True,
    )
    earliest = "--add-config share.auto.offset.reset=earliest"
    console.run(f"kafka-configs --entity-type groups --entity-name g --alter {earliest}")
    console.run(
        "kafka-share-consumer-perf-test --topic t --group g --num-records 200 --timeout 20000",
        numbers=True,
    )


@session()
def storage(console: Console) -> None:
    """kafka-storage tells of the folder of the broker."""
    (meta,) = console.folder.glob("broker/**/meta.properties")
    console.file(
        "server.properties",
        "node.id=1\nprocess.roles=broker,controller\ncontroller.quorum.voters=1@127.0.0.1:9093\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={meta.parent}\n",
    )
    console.run("kafka-storage info --config {folder}/server.properties")
    again = "--cluster-id AAAAAAAAAAAAAAAAAAAAAQ"
    console.run(f"kafka-storage format --config {{folder}}/server.properties {again}")
