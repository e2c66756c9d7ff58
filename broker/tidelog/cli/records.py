"""`tidelog records`: delete the records of a topic before an offset or a time."""

# ruff: noqa: PLC0415 - message tables are imported by the subcommand that needs them

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cli import common, connection, positions
from tidelog.cli.topics import TIMEOUT_MS, metadata

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(positions.join_past(arguments, ["--before"]))
    return common.run("records", lambda: options.action(options))


def _parser() -> argparse.ArgumentParser:
    parser = common.parser("records", "Delete records.")
    delete = common.subcommands(parser)("delete", help="delete the records before a place")
    delete.add_argument("topic")
    delete.add_argument("--before", required=True, metavar="PLACE", help=positions.FORM)
    delete.add_argument("--partition", type=int, help="this partition only")
    delete.set_defaults(action=delete_records)
    return parser


def delete_records(options: argparse.Namespace) -> None:
    """Move log start offsets up (KIP-107), and print the new ones."""
    from tidelog_protocol.messages.data import DeleteRecordsRequest as Request

    rows = []
    with connection.connect(options) as client:
        topics = metadata(client, [options.topic])
        positions.only(topics, options.partition)
        before = positions.resolve(client, topics, options.before)
        for partition in sorted(topics[0].partitions, key=lambda each: each.partition_index):
            index = partition.partition_index
            wanted = Request.DeleteRecordsPartition(
                partition_index=index, offset=before[options.topic, index]
            )
            topic = Request.DeleteRecordsTopic(name=options.topic, partitions=[wanted])
            request = Request(topics=[topic], timeout_ms=TIMEOUT_MS)
            (answer,) = client.broker(partition.leader_id).ask(request).topics
            (result,) = answer.partitions
            common.check(f"{options.topic}-{index}", result.error_code)
            rows.append((options.topic, index, result.low_watermark))
    common.print_table(("topic", "partition", "first"), rows)
