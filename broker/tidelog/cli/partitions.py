"""`tidelog partitions`: move a partition to other brokers."""

# ruff: noqa: PLC0415 - message tables are imported by the subcommand that needs them

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cli import common, connection, positions
from tidelog.cli.topics import TIMEOUT_MS, metadata

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_POLL_S = 0.1


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    return common.run("partitions", lambda: options.action(options))


def _parser() -> argparse.ArgumentParser:
    parser = common.parser("partitions", "Move partitions to other brokers.")
    move = common.subcommands(parser)("move", help="move a partition, and wait until it is there")
    move.add_argument("topic")
    move.add_argument("partition", type=int)
    move.add_argument(
        "--to",
        required=True,
        type=_brokers,
        metavar="ID,ID,…",
        help="the brokers that shall have it, the preferred leader first",
    )
    move.add_argument(
        "--wait", type=float, default=60.0, metavar="SECONDS", help="wait this long (60)"
    )
    move.set_defaults(action=move_partition)
    return parser


def _brokers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def move_partition(options: argparse.Namespace) -> None:
    """Ask the controller to move a partition (KIP-455), and wait for the end of it."""
    from tidelog_protocol.messages.cluster_admin import (
        AlterPartitionReassignmentsRequest as Request,
    )

    name = f"{options.topic}-{options.partition}"
    with connection.connect(options) as client:
        positions.only(metadata(client, [options.topic]), options.partition)
        wanted = Request.ReassignablePartition(
            partition_index=options.partition, replicas=options.to
        )
        topic = Request.ReassignableTopic(name=options.topic, partitions=[wanted])
        answer = client.ask(Request(topics=[topic], timeout_ms=TIMEOUT_MS))
        common.check(name, answer.error_code, answer.error_message)
        (result,) = answer.responses[0].partitions
        common.check(name, result.error_code, result.error_message)
        _wait(client, options, name)
    print(f"{name}: on {','.join(map(str, options.to))}")


def _wait(client: Any, options: argparse.Namespace, name: str) -> None:
    """Return once the controller lists no move of the partition; CommandError if that takes too
    long."""
    import time

    from tidelog_protocol.messages.cluster_admin import ListPartitionReassignmentsRequest as Request

    topic = Request.ListPartitionReassignmentsTopics(
        name=options.topic, partition_indexes=[options.partition]
    )
    for _ in range(max(1, int(options.wait / _POLL_S))):
        answer = client.ask(Request(topics=[topic], timeout_ms=TIMEOUT_MS))
        common.check(name, answer.error_code, answer.error_message)
        if not answer.topics:
            return
        time.sleep(_POLL_S)
    raise common.CommandError(f"{name} is still moving after {options.wait:g} s; it goes on")
