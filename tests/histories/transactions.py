"""Transactions as clients see them: whole or absent, never read before their end, no read cycles.

Kafka isolates reads from writes that are not committed, and no more. Two transactions may write to
two partitions in opposite orders (Adya's G0), and what a transaction read may be overwritten before
it commits (G2): neither is an anomaly here. Reads of aborted records (G1a), reads
before any request to commit, and cycles of reads (G1c) are, and records that a group consumes in
two transactions.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from histories.calls import Anomaly, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from histories.calls import ClientHistory, Place, Transaction


def check_transactions(history: ClientHistory) -> Iterator[Anomaly]:
    """All anomalies of transactions."""
    owners = {
        (send.place, send.value): send.transaction
        for send in history.sends
        if send.transaction is not None
    }
    yield from _aborted_and_early_reads(history, owners)
    yield from _torn(history)
    yield from _cycles(history, owners)
    yield from _consumed_twice(history)


def _aborted_and_early_reads(
    history: ClientHistory, owners: Mapping[tuple[Place, bytes], Transaction]
) -> Iterator[Anomaly]:
    for poll in history.polls:
        if not poll.is_committed:
            continue
        for offset, value in poll.records:
            transaction = owners.get((poll.place, value))
            if transaction is None or transaction is poll.transaction:
                continue
            where = f"{poll.client} read {value[:40]!r} of {transaction.name} at {offset}"
            if transaction.outcome is Outcome.FAILED:
                yield Anomaly("aborted read", f"{where}, which was not committed")
            elif poll.span.completed < transaction.ended.invoked:
                yield Anomaly("early read", f"{where} before its commit was asked for")


def _torn(history: ClientHistory) -> Iterator[Anomaly]:
    """A transaction of which committed reads that cover all of its places find a part."""
    seen: dict[Place, set[bytes]] = defaultdict(set)
    read_to: dict[Place, int] = defaultdict(int)  # whole, from the beginning, by one reader
    position: dict[tuple[str, Place], int] = {}
    for poll in history.polls:
        if poll.is_committed:
            seen[poll.place].update(value for _, value in poll.records)
            key = (poll.client, poll.place)
            if poll.start <= position.get(key, 0):
                position[key] = max(position.get(key, 0), poll.end)
                read_to[poll.place] = max(read_to[poll.place], position[key])
    sent: dict[int, list[tuple[Place, bytes, int | None]]] = defaultdict(list)
    for send in history.sends:
        if send.transaction is not None and send.outcome is not Outcome.FAILED:
            sent[id(send.transaction)].append((send.place, send.value, send.offset))
    for transaction in history.transactions:
        records = sent[id(transaction)]
        found = [value for place, value, _ in records if value in seen[place]]
        if not found and transaction.outcome is not Outcome.OK:
            continue
        missing = [
            value
            for place, value, offset in records
            if value not in seen[place] and offset is not None and offset < read_to[place]
        ]
        if missing and not history.has_losses(place for place, _, _ in records):
            yield Anomaly(
                "torn transaction",
                f"{transaction.name} ({transaction.outcome.value}): {len(found)} records are"
                f" visible, {missing[0][:40]!r} is not",
            )


def _cycles(
    history: ClientHistory, owners: Mapping[tuple[Place, bytes], Transaction]
) -> Iterator[Anomaly]:
    """G1c: transactions that each read what the next one wrote."""
    reads: dict[int, set[int]] = defaultdict(set)
    names: dict[int, str] = {}
    for poll in history.polls:
        reader = poll.transaction
        if reader is None or not poll.is_committed or reader.outcome is Outcome.FAILED:
            continue
        for _, value in poll.records:
            writer = owners.get((poll.place, value))
            if writer is not None and writer is not reader:
                reads[id(reader)].add(id(writer))
                names[id(reader)], names[id(writer)] = reader.name, writer.name
    for cycle in find_cycles(reads):
        yield Anomaly("read cycle", " reads from ".join(names[each] for each in cycle))


def _consumed_twice(history: ClientHistory) -> Iterator[Anomaly]:
    """A record that two committed transactions of a group have read, and committed their offsets:
    of one that reads, writes and commits all in a transaction, each takes effect once (KIP-98). A
    read for no group consumes nothing."""
    known: dict[tuple[str, Place, int], Transaction] = {}
    for poll in history.polls:
        own = poll.transaction
        if own is None or own.outcome is not Outcome.OK or not poll.group:
            continue
        if history.has_losses([poll.place]):
            continue
        for offset, value in poll.records:
            other = known.setdefault((poll.group, poll.place, offset), own)
            if other is not own:
                yield Anomaly(
                    "consumed twice",
                    f"{poll.group}: {value[:40]!r} at {offset} by {other.name} and {own.name}",
                )
                break


def find_cycles(edges: Mapping[int, set[int]]) -> Iterator[list[int]]:
    """A cycle of each strongly connected part of a graph, its first node again at its end."""
    state: dict[int, int] = {}  # 1: on the path, 2: done
    for root in sorted(edges):
        if root in state:
            continue
        path: list[int] = []
        work: list[tuple[int, Iterator[int]]] = [(root, iter(sorted(edges.get(root, ()))))]
        state[root] = 1
        path.append(root)
        while work:
            node, rest = work[-1]
            after = next(rest, None)
            if after is None:
                work.pop()
                path.pop()
                state[node] = 2
            elif state.get(after) == 1:
                yield [*path[path.index(after) :], after]
            elif after not in state:
                state[after] = 1
                path.append(after)
                work.append((after, iter(sorted(edges.get(after, ())))))
