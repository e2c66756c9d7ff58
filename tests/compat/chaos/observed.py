"""The history of a chaos run: what the load programs noted, as `histories.calls` has it."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from compat.chaos.load import value_of
from histories.calls import ClientHistory, Outcome, Poll, Send, Span, Transaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from compat.chaos.load import Acknowledgement, Found


def add_sends(
    history: ClientHistory, topic: str, producer: str, sends: Sequence[Acknowledgement]
) -> None:
    """Records that a producer had acknowledged, in the order in which it sent them."""
    for each in sorted(sends, key=lambda one: (one.partition, one.number)):
        send = Send(
            client=producer,
            place=(topic, each.partition),
            value=value_of(producer, each.partition, each.number),
            span=each.span,
            outcome=Outcome.OK,
            offset=each.offset,
            is_once=True,
        )
        history.sends.append(send)


def add_polls(history: ClientHistory, topic: str, reader: str, found: Iterable[Found]) -> None:
    """What a consumer saw that never seeks: each read begins where the last one ended."""
    positions: dict[int, int] = {}
    for (partition, span), records in itertools.groupby(
        found, key=lambda one: (one.partition, one.span)
    ):
        pairs = tuple((each.offset, each.value) for each in records)
        start, end = positions.get(partition, 0), pairs[-1][0] + 1
        positions[partition] = end
        history.polls.append(Poll(reader, (topic, partition), start, end, pairs, span))


def add_transactions(
    history: ClientHistory, topic: str, transactions: Iterable[Mapping[str, Any]]
) -> None:
    """Transactions with the reads that are part of them (`aiokafka_load.Writer`)."""
    for noted in transactions:
        ended = Span(math.inf) if noted["ended"] is None else _span(*noted["ended"])
        transaction = Transaction(noted["name"], Outcome(noted["outcome"]), ended)
        history.transactions.append(transaction)
        client = noted["name"].partition("/")[0]
        for partition, value, offset, asked, answered in noted["sends"]:
            send = Send(
                client=client,
                place=(topic, partition),
                value=value.encode(),
                span=_span(asked, answered),
                outcome=Outcome.UNKNOWN if answered is None else Outcome.OK,
                offset=None if offset is None or offset < 0 else offset,
                is_once=True,
                transaction=transaction,
            )
            history.sends.append(send)
        for partition, start, end, records, asked, answered in noted["polls"]:
            poll = Poll(
                client=client,
                place=(topic, partition),
                start=start,
                end=end,
                records=tuple((offset, value.encode()) for offset, value in records),
                span=_span(asked, answered),
                is_committed=True,
                transaction=transaction,
            )
            history.polls.append(poll)


def _span(asked: int, answered: int | None) -> Span:
    return Span(asked / 1e9, math.inf if answered is None else answered / 1e9)


def longest_gap_s(acknowledged: Sequence[Acknowledgement]) -> float:
    """The longest time in which a producer got no acknowledgement for one of its partitions."""
    times: dict[int, list[float]] = {}
    for entry in sorted(acknowledged, key=lambda one: one.span.completed):
        times.setdefault(entry.partition, []).append(entry.span.completed)
    return max(
        after - before for each in times.values() for before, after in itertools.pairwise(each)
    )
