"""`tidelog topics`: list, create, describe, grow and delete topics."""

# ruff: noqa: PLC0415 - message tables are imported by the subcommand that needs them

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidelog.cli import common, connection

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from tidelog.embedded.cluster_client import ClusterClient
    from tidelog.embedded.simple_client import SimpleClient

TIMEOUT_MS = 30_000


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    return common.run("topics", lambda: options.action(options))


def _parser() -> argparse.ArgumentParser:
    parser = common.parser("topics", "Look at topics and change them.")
    add_parser = common.subcommands(parser)

    listing = add_parser("list", help="names and sizes of topics")
    listing.add_argument("--internal", action="store_true", help="internal topics too")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(action=list_topics)

    create = add_parser("create", help="create topics")
    create.add_argument("topic", nargs="+")
    create.add_argument("--partitions", type=int, default=-1, help="the broker's default if unset")
    create.add_argument("--replication-factor", type=int, default=-1)
    create.add_argument("--config", action="append", default=[], metavar="KEY=VALUE")
    create.add_argument(
        "--if-not-exists", action="store_true", help="do not fail if the topic exists"
    )
    create.set_defaults(action=create_topics)

    describe = add_parser("describe", help="leaders, replicas and offsets of partitions")
    describe.add_argument("topic", nargs="*", help="all topics if none is given")
    describe.add_argument("--json", action="store_true", help="print JSON")
    describe.set_defaults(action=describe_topics)

    grow = add_parser("grow", help="give a topic more partitions")
    grow.add_argument("topic")
    grow.add_argument("--partitions", type=int, required=True, help="new number of partitions")
    grow.set_defaults(action=grow_topic)

    delete = add_parser("delete", help="delete topics with all their records")
    delete.add_argument("topic", nargs="+")
    delete.set_defaults(action=delete_topics)
    return parser


def list_topics(options: argparse.Namespace) -> None:
    """Print the topics by name."""
    with connection.connect(options) as client:
        topics = metadata(client, None)
    shown = sorted(
        (topic for topic in topics if options.internal or not topic.is_internal),
        key=lambda topic: topic.name,
    )
    if options.json:
        common.print_json([{"name": t.name, "partitions": len(t.partitions)} for t in shown])
    elif shown:
        common.print_table(("topic", "partitions"), [(t.name, len(t.partitions)) for t in shown])


def create_topics(options: argparse.Namespace) -> None:
    """Create one or several topics of the same shape."""
    from tidelog_protocol.errors import ErrorCode
    from tidelog_protocol.messages.admin import CreateTopicsRequest
    from tidelog_storage.config import TOPIC_KEYS

    configs = common.key_values(options.config, "--config")
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=options.partitions,
            replication_factor=options.replication_factor,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                for key, value in configs.items()
            ],
        )
        for name in options.topic
    ]
    with connection.connect(options) as client:
        response = client.ask(CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS))
    for result in response.topics:
        if options.if_not_exists and result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            print(f"{result.name}: already exists")
            continue
        common.check_settings(result.name, result, configs, TOPIC_KEYS)
        print(f"{result.name}: created")


def describe_topics(options: argparse.Namespace) -> None:
    """Print the partitions of topics with their leaders, replicas and offsets."""
    with connection.connect(options) as client:
        topics = metadata(client, options.topic or None)
        names = [topic.name for topic in topics]
        earliest = offsets(client, topics, EARLIEST)
        latest = offsets(client, topics, LATEST)
    rows = [
        {
            "topic": name,
            "partition": partition.partition_index,
            "leader": partition.leader_id,
            "replicas": partition.replica_nodes,
            "in-sync": partition.isr_nodes,
            "first": earliest.get((name, partition.partition_index), "-"),
            "next": latest.get((name, partition.partition_index), "-"),
        }
        for name, topic in sorted(zip(names, topics, strict=True), key=lambda pair: pair[0])
        for partition in sorted(topic.partitions, key=lambda p: p.partition_index)
    ]
    if options.json:
        common.print_json(rows)
    elif rows:
        common.print_table(
            list(rows[0]),
            [
                [",".join(map(str, v)) if isinstance(v, list) else v for v in row.values()]
                for row in rows
            ],
        )


def grow_topic(options: argparse.Namespace) -> None:
    """Add partitions to a topic."""
    from tidelog_protocol.messages.admin import CreatePartitionsRequest

    topic = CreatePartitionsRequest.CreatePartitionsTopic(
        name=options.topic, count=options.partitions, assignments=None
    )
    with connection.connect(options) as client:
        response = client.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
    for result in response.results:
        common.check(result.name, result.error_code, result.error_message)
        print(f"{result.name}: {options.partitions} partitions")


def delete_topics(options: argparse.Namespace) -> None:
    """Delete topics."""
    from tidelog_protocol.messages.admin import DeleteTopicsRequest

    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in options.topic],
        topic_names=options.topic,
        timeout_ms=TIMEOUT_MS,
    )
    with connection.connect(options) as client:
        response = client.ask(request)
    for result in response.responses:
        common.check(result.name, result.error_code, result.error_message)
        print(f"{result.name}: deleted")


EARLIEST, LATEST = -2, -1


def metadata(client: ClusterClient, names: Sequence[str] | None) -> list[Any]:
    """Return topics as a broker describes them (all if None); CommandError for a missing one."""
    topics = client.topics(names)
    for topic in topics:
        common.check(topic.name, topic.error_code)
    return topics


def offsets(
    client: ClusterClient, topics: Sequence[Any], timestamp: int
) -> dict[tuple[str, int], int]:
    """Ask leaders for the first (EARLIEST) or next (LATEST) offsets; omit partitions in error."""
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        for partition in topic.partitions:
            led = by_leader.setdefault(partition.leader_id, {})
            led.setdefault(topic.name, []).append(partition.partition_index)
    by_leader.pop(-1, None)
    found: dict[tuple[str, int], int] = {}
    for leader, led in by_leader.items():
        with suppress(OSError):  # the broker may have gone since
            found |= _offsets_of(client.broker(leader), led, timestamp)
    return found


def _offsets_of(
    client: SimpleClient, led: dict[str, list[int]], timestamp: int
) -> dict[tuple[str, int], int]:
    from tidelog_protocol.messages.data import ListOffsetsRequest

    topics = [
        ListOffsetsRequest.ListOffsetsTopic(
            name=name,
            partitions=[
                ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                for index in indexes
            ],
        )
        for name, indexes in led.items()
    ]
    response = client.ask(ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=TIMEOUT_MS))
    return {
        (topic.name, partition.partition_index): partition.offset
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code == 0
    }
