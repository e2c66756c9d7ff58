"""`tidelog leaders`: elect the leaders of partitions."""

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
    options = _parser().parse_args(arguments)
    return common.run("leaders", lambda: options.action(options))


def _parser() -> argparse.ArgumentParser:
    parser = common.parser("leaders", "Elect leaders of partitions.")
    elect = common.subcommands(parser)("elect", help="elect the preferred leaders")
    elect.add_argument("topic", nargs="*", help="all topics if none is given")
    elect.add_argument("--partition", type=int, help="this partition only, of one topic")
    elect.add_argument(
        "--unclean",
        action="store_true",
        help="elect a live replica that is not in sync, where there is no leader: records are lost",
    )
    elect.set_defaults(action=elect_leaders)
    return parser


def elect_leaders(options: argparse.Namespace) -> None:
    """Ask the controller for elections (KIP-183, KIP-460), and print the new leaders."""
    from tidelog_protocol.errors import ErrorCode
    from tidelog_protocol.messages.cluster_admin import ElectLeadersRequest as Request

    with connection.connect(options) as client:
        topics = metadata(client, options.topic or None)
        positions.only(topics, options.partition)
        request = Request(
            election_type=int(options.unclean),
            topic_partitions=[
                Request.TopicPartitions(
                    topic=topic.name, partitions=[p.partition_index for p in topic.partitions]
                )
                for topic in topics
            ],
            timeout_ms=TIMEOUT_MS,
        )
        answer = client.ask(request)
    common.check("elections", answer.error_code)
    results = {
        f"{topic.topic}-{result.partition_id}": result
        for topic in answer.replica_election_results
        for result in topic.partition_result
    }
    needed = {k: r for k, r in results.items() if r.error_code != ErrorCode.ELECTION_NOT_NEEDED}
    elected = sorted(name for name, result in needed.items() if result.error_code == 0)
    for name in elected:
        print(f"{name}: elected")
    for name, result in sorted(needed.items()):
        common.check(name, result.error_code, result.error_message)
    print(f"{len(elected)} elected, {len(results) - len(needed)} did not need it")
