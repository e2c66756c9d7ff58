"""Topics in both tiers that many cases read and none changes, each made when it is first asked for.

spread      offsets 0-7 only remote, 8-11 in both tiers, 12-13 only local; the log begins at 1, in
            the middle of the first remote segment. Segments of two batches of one record; leader
            epochs 0 (0-4), 1 (5-12) and 2 (13); the first broker leads
several     three partitions: of 0 and 1 the offsets 0-3 are remote, 4 is local; of 2 all (0) is
            local. The first broker leads all
undecided   one batch a segment, of transactions: aborted, committed, none, aborted; the last one
            is open. All but the last two batches are remote
untiered    offsets 0-4, and no remote storage
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat.conformance.batches import TIME
from compat.conformance.registry import Case, Run
from compat.conformance.tiered.session import SECOND_MS, TieredSession, one, several
from compat.conformance.transactional import FOREVER_MS, TRANSACTION, Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BOTH = [1, 2]
OPEN_MS = 900_000


def _spread(s: TieredSession) -> str:
    topic = s.tiered(BOTH)
    s.produce_at(1, topic, *several(0, 5))
    s.await_tier(topic, local=4, tiered=3)
    s.moved_to(topic, [2, 1])
    s.produce_at(2, topic, *several(5, 9))
    s.await_tier(topic, local=8, tiered=7)
    s.set_configs(topic, local_retention_bytes="-1")
    s.produce_at(2, topic, *several(9, 13))
    s.await_tier(topic, local=8, tiered=11)
    s.moved_to(topic, [1, 2])
    s.produce_at(1, topic, one(13))
    s.await_tier(topic, local=8, tiered=11)
    s.delete_records(topic, 1)
    s.await_offset(topic, -2, 1, node="2")
    s.await_offset(topic, -1, 14, node="2")
    return topic


def _several(s: TieredSession) -> str:
    topic = s.tiered(BOTH, BOTH, BOTH)
    for partition, behind in enumerate((5, 5, 1)):
        s.produce_at(1, topic, *several(0, behind), partition=partition)
    for partition in (0, 1):
        s.await_tier(topic, local=4, tiered=3, partition=partition)
    return topic


def producer_of(s: TieredSession) -> Producer:
    """A transactional producer whose coordinator is the first broker."""
    for number in range(1000):
        suffix = f".{number}"
        found = s.wait(
            "a coordinator",
            "FindCoordinator",
            1,
            lambda answer: answer["error_code"] == 0,
            key=f"{s.name}.id{suffix}",
            key_type=TRANSACTION,
        )
        if found["node_id"] == 1:
            return Producer(s, suffix)
    raise AssertionError("the first broker coordinates nothing")


def _undecided(s: TieredSession) -> str:
    topic = s.tiered(BOTH, batches=1, segment_ms=FOREVER_MS)
    writer = producer_of(s)
    for commit in (False, True):  # offsets 0-2 aborted, 3-5 committed
        writer.added(topic, 0)
        for _ in range(2):
            writer.sent(topic, b"of a transaction", timestamp=TIME)
        writer.ended(commit=commit)
    s.produce_at(1, topic, one(6))
    writer.added(topic, 0)
    writer.sent(topic, b"aborted", timestamp=TIME + 7 * SECOND_MS)
    writer.ended(commit=False)  # 7-8
    writer.added(topic, 0)
    writer.sent(topic, b"open", timestamp=TIME + 9 * SECOND_MS)
    s.produce_at(1, topic, one(10))
    s.await_tier(topic, local=9, tiered=8)
    s.await_offset(topic, -1, 11, node="2")
    return topic


def _untiered(s: TieredSession) -> str:
    topic = s.small_segments(BOTH)
    s.produce_at(1, topic, *several(0, 5))
    return topic


class Layouts:
    """The topics by the names above; `layouts["spread"]` makes it, if it isn't there."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        self._addresses = addresses
        self._made: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._made:
            makers: dict[str, Callable[[TieredSession], str]] = {
                "spread": _spread,
                "several": _several,
                "undecided": _undecided,
                "untiered": _untiered,
            }
            run = Run(Case(name, "layout", 0, 0, lambda *_: None), 0)
            session = TieredSession(run, self._addresses)
            try:
                self._made[name] = makers[name](session)
            finally:
                session.close()
        return self._made[name]
