"""What transactions cost: small ones a second, and a copy that commits records with their offsets.

Only the Java client, the usual reference (java/TransactionLoad.java).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidelog_bench.cases import Case, Topic
from tidelog_bench.loads.java_tools import run_java
from tidelog_bench.peers.peer import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog_bench.peers.peer import Served

__all__ = ["TRANSACTION_CASES"]

PROGRAM = Path(__file__).parent / "java" / "TransactionLoad.java"
COPIED_BYTES = 100
WARM_UP = 1.1  # what the program does of which it measures one


class TransactionRate(Case):
    """One transaction after the other, of so many records of 100 bytes."""

    warm_up_share = 1.0  # of a JVM that has not yet compiled this

    def __init__(self, records: int, transactions: int) -> None:
        self.records = records
        self.transactions = transactions
        plural = "s" if records > 1 else ""
        self.name = f"transactions, java, {records} record{plural} each"

    def run(self, peer: Served, scale: float) -> dict[str, float]:
        """CPU over the program's whole life."""
        count = max(100, int(self.transactions * scale))
        with Topic(peer, PARTITIONS) as topic:
            before = peer.cpu_seconds()
            seconds = _load("rate", peer.bootstrap, topic, self.records, count)
            spent = peer.cpu_seconds() - before
        each_us = 1e6 * spent / (WARM_UP * count)
        return {"transactions": count / seconds, "transaction CPU": each_us}


class Copy(Case):
    """Read, send on, commit records and offsets together: what each poll gives (500 at most)."""

    warm_up_share = 1.0  # of a JVM that has not yet compiled this

    def __init__(self, records: int) -> None:
        self.records = records
        self.name = f"transactions, java, copy of {COPIED_BYTES} B"

    def run(self, peer: Served, scale: float) -> dict[str, float]:
        """CPU of filling the topic is in it."""
        count = max(2000, int(self.records * scale))
        with Topic(peer, PARTITIONS) as source, Topic(peer, PARTITIONS) as target:
            before = peer.cpu_seconds()
            seconds = _load("copy", peer.bootstrap, source, target, count, COPIED_BYTES)
            spent = peer.cpu_seconds() - before
        return {"copied": count / seconds, "copy CPU": 1e6 * spent / count}


def _load(*arguments: str | int) -> float:
    return float(run_java(str(PROGRAM), [str(argument) for argument in arguments]))


TRANSACTION_CASES: Sequence[Case] = (
    TransactionRate(1, 2000),
    TransactionRate(100, 1000),
    Copy(300_000),
)
