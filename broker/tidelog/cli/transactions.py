"""`tidelog transactions`: list transactions and abort one."""

# ruff: noqa: PLC0415 - message tables are imported by the subcommand that needs them

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cli import common, connection
from tidelog.cli.groups import coordinator

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_TIMEOUT_MS = 1000  # of the transaction that the new epoch could begin; it begins none
_ATTEMPTS_MAX = 300
_RETRY_S = 0.1


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    return common.run("transactions", lambda: options.action(options))


def _parser() -> argparse.ArgumentParser:
    parser = common.parser("transactions", "Look at transactions and abort them.")
    add_parser = common.subcommands(parser)

    listing = add_parser("list", help="transactional ids, their producers and states")
    listing.add_argument(
        "--state", action="append", default=[], help="only this state; can be repeated"
    )
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(action=list_transactions)

    abort = add_parser("abort", help="abort the open transaction of an id, and fence its producer")
    abort.add_argument("transactional_id")
    abort.set_defaults(action=abort_transaction)
    return parser


def list_transactions(options: argparse.Namespace) -> None:
    """Print the transactional ids that the brokers know."""
    from tidelog_protocol.messages.txn_admin import ListTransactionsRequest

    rows = []
    with connection.connect(options) as client:
        for node_id in client.nodes():  # each broker lists those that it coordinates
            answer = client.broker(node_id).ask(
                ListTransactionsRequest(state_filters=options.state)
            )
            common.check(f"broker {node_id}", answer.error_code)
            if answer.unknown_state_filters:
                raise common.CommandError(f"there is no state {answer.unknown_state_filters[0]!r}")
            rows += [
                (each.transactional_id, each.producer_id, each.transaction_state)
                for each in answer.transaction_states
            ]
    titles = ("transactional id", "producer id", "state")
    if options.json:
        keys = ("transactional_id", "producer_id", "state")
        common.print_json([dict(zip(keys, row, strict=True)) for row in sorted(rows)])
    elif rows:
        common.print_table(titles, sorted(rows))


def abort_transaction(options: argparse.Namespace) -> None:
    """Take the next epoch of the producer, as Kafka's Admin.fenceProducers: its coordinator aborts
    the open transaction first."""
    import time

    from tidelog_protocol.errors import ErrorCode
    from tidelog_protocol.messages.txns import InitProducerIdRequest

    name = options.transactional_id
    with coordinator(options, name, "transaction") as client:
        _check_is_open(client, name)
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_TIMEOUT_MS)
        for _ in range(_ATTEMPTS_MAX):
            answer = client.ask(request)
            if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:  # it is still aborting
                break
            time.sleep(_RETRY_S)
    common.check(f"transaction {name}", answer.error_code)
    print(f"{name}: aborted, its producer is fenced")


def _check_is_open(client: Any, name: str) -> None:
    """Raise CommandError if the id has no open transaction: a request would create the id."""
    from tidelog_protocol.messages.txn_admin import DescribeTransactionsRequest

    request = DescribeTransactionsRequest(transactional_ids=[name])
    (described,) = client.ask(request).transaction_states
    common.check(f"transaction {name}", described.error_code)
    if described.transaction_state not in ("Ongoing", "PrepareAbort", "PrepareEpochFence"):
        state = described.transaction_state
        raise common.CommandError(f"transaction {name} is not open, its state is {state}")
