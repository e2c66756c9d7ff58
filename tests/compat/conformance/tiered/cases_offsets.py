"""Cases: ListOffsets and OffsetForLeaderEpoch across the tiers, and what DeleteRecords leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.batches import TIME, batch
from compat.conformance.cases_offsets import at
from compat.conformance.tiered.registry import case
from compat.conformance.tiered.session import (
    DEBUGGING,
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    PENDING_UPLOAD,
    SECOND_MS,
    several,
)
from tidelog_protocol.compression import Codec
from tidelog_protocol.records import Record

if TYPE_CHECKING:
    from compat.conformance.tiered.session import TieredSession

SPECIALS = (LATEST, EARLIEST, -3, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD, -7)
NODES = ("1", "2")
NOT_AVAILABLE = 9


def ask(s: TieredSession, version: int, topic: str, timestamp: int, **more: Any) -> None:
    fields: dict[str, Any] = {"replica_id": -1, "timeout_ms": 60_000, **more}
    topics = [{"name": topic, "partitions": [at(timestamp)]}]
    s.ask("ListOffsets", version, topics=topics, **fields)


def ask_when_ready(s: TieredSession, version: int, topic: str, timestamp: int) -> None:
    """The reference reads the remote metadata of a new topic first, whatever is asked by time."""
    topics = [{"name": topic, "partitions": [at(timestamp)]}]
    s.ask_until(
        "ListOffsets",
        version,
        lambda answer: answer["topics"][0]["partitions"][0]["error_code"] != NOT_AVAILABLE,
        replica_id=-1,
        timeout_ms=60_000,
        topics=topics,
    )


def borders(s: TieredSession, topic: str, node: str = "1") -> None:
    """All that is special, in the last version, as one line each."""
    for timestamp in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD, LATEST):
        who = -1 if node == "1" else DEBUGGING
        ask(s, 11, topic, timestamp, connection=node, replica_id=who)


@case("ListOffsets")
def specials(s: TieredSession, version: int) -> None:
    for timestamp in SPECIALS:
        ask(s, version, s.layouts["spread"], timestamp)


@case("ListOffsets")
def specials_untiered(s: TieredSession, version: int) -> None:
    for timestamp in SPECIALS:
        ask(s, version, s.layouts["untiered"], timestamp)


@case("ListOffsets", 1, 9, 11)
def specials_at_a_follower(s: TieredSession, version: int) -> None:
    for timestamp in SPECIALS:
        for who in (-1, DEBUGGING, 1):
            ask(s, version, s.layouts["spread"], timestamp, connection="2", replica_id=who)


@case("ListOffsets", 4, 11)
def specials_with_epochs(s: TieredSession, version: int) -> None:
    for epoch in (1, 2, 3):
        for timestamp in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, TIME):
            if version >= 9 or timestamp in (EARLIEST, TIME):
                row = at(timestamp, current_leader_epoch=epoch)
                topics = [{"name": s.layouts["spread"], "partitions": [row]}]
                s.ask("ListOffsets", version, replica_id=-1, topics=topics, timeout_ms=60_000)


@case("ListOffsets")
def times(s: TieredSession, version: int) -> None:
    """Below the log start, in the first, middle and last remote segment, at the borders, local."""
    for offset in (0, 1, 2, 5, 7, 8, 11, 12, 13):
        for shift in (-1, 0, 1):
            ask(s, version, s.layouts["spread"], TIME + offset * SECOND_MS + shift)
    ask(s, version, s.layouts["spread"], 0)


@case("ListOffsets", 1, 11)
def times_at_a_follower(s: TieredSession, version: int) -> None:
    for offset in (0, 6, 10, 13, 14):
        for who in (-1, DEBUGGING):
            moment = TIME + offset * SECOND_MS
            ask(s, version, s.layouts["spread"], moment, connection="2", replica_id=who)


@case("ListOffsets", 11)
def times_out_of_order(s: TieredSession, version: int) -> None:
    """Segments that are not as new as those before them."""
    topic = s.tiered()
    moments = [TIME + at * SECOND_MS for at in (5, 6, 1, 2, 9, 10, 3, 4, 7)]
    s.produce_at(1, topic, *[batch([Record(0, moment, None, b"v")]) for moment in moments])
    s.await_tier(topic, local=8, tiered=7)
    for at_second in range(12):
        ask(s, version, topic, TIME + at_second * SECOND_MS)


@case("ListOffsets", 11)
def times_inside_batches(s: TieredSession, version: int) -> None:
    """Of three records each, compressed or not; above and below a log start inside of one."""
    for codec in (Codec.NONE, Codec.GZIP, Codec.LZ4):
        topic = s.tiered()
        for first in range(0, 15, 3):
            moments = [TIME + (first + delta) * SECOND_MS for delta in range(3)]
            content = [Record(delta, moment, None, b"v") for delta, moment in enumerate(moments)]
            s.produce_at(1, topic, batch(content, codec=codec))
        s.await_tier(topic, local=12, tiered=11)
        for offset in range(16):
            ask(s, version, topic, TIME + offset * SECOND_MS)
        s.delete_records(topic, 4)
        for offset in range(3, 7):
            ask(s, version, topic, TIME + offset * SECOND_MS)


@case("ListOffsets", 2, 6, 11)
def committed(s: TieredSession, version: int) -> None:
    for level in (0, 1):
        for timestamp in (LATEST, EARLIEST, TIME, TIME + 6000, TIME + 9000, TIME + 10_000):
            ask(s, version, s.layouts["undecided"], timestamp, isolation_level=level)


@case("ListOffsets", 7, 11)
def partitions_of_both_tiers(s: TieredSession, version: int) -> None:
    for timestamp in (LATEST, EARLIEST, -3, TIME + 1000, TIME + 4000, TIME + 9000):
        rows = [at(timestamp, partition) for partition in (0, 1, 2, 3)]
        topics = [
            {"name": s.layouts["several"], "partitions": rows},
            {"name": s.layouts["untiered"], "partitions": rows[:1]},
        ]
        s.ask("ListOffsets", version, replica_id=-1, topics=topics, timeout_ms=60_000)


@case("ListOffsets", 11)
def nothing_copied_yet(s: TieredSession, version: int) -> None:
    topic = s.tiered()
    for records in ((), several(0, 1)):
        s.produce_at(1, topic, *records)
        for timestamp in SPECIALS:
            ask(s, version, topic, timestamp)
    ask_when_ready(s, version, topic, TIME)


@case("ListOffsets", 11)
def all_is_remote(s: TieredSession, version: int) -> None:
    """The active segment breaks local retention: it is rolled, copied and deleted as others are."""
    topic = s.all_tiered()
    s.await_tier(topic, local=3, tiered=2)
    for timestamp in (*SPECIALS, TIME, TIME + 2000, TIME + 2001):
        ask(s, version, topic, timestamp)


@case("OffsetForLeaderEpoch")
def end_offsets(s: TieredSession, version: int) -> None:
    def asked(node: str, epoch: int, current: int = -1, replica: int = -1) -> None:
        row = {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": current}
        topics = [{"topic": s.layouts["spread"], "partitions": [row]}]
        fields: dict[str, Any] = {"replica_id": replica} if version >= 3 else {}
        s.ask("OffsetForLeaderEpoch", version, connection=node, topics=topics, **fields)

    for epoch in (-1, 0, 1, 2, 3):
        asked("1", epoch)
        asked("2", epoch, replica=DEBUGGING)
    for current in (0, 2, 3):
        asked("1", 0, current, replica=2)


@case("DeleteRecords", 2)
def across_the_tiers(s: TieredSession, version: int) -> None:
    """Two epochs; into the middle of a remote segment, to its end, to the border, into the local
    log, to its end."""
    topic = s.tiered()
    s.produce_at(1, topic, *several(0, 5))
    s.moved_to(topic, [2, 1])
    s.moved_to(topic, [1, 2])
    s.produce_at(1, topic, *several(5, 10))
    s.await_tier(topic, local=8, tiered=7)
    for offset in (1, 2, 5, 8, 7, 9, 11, -2, -1):
        rows = [{"partition_index": 0, "offset": offset}]
        topics = [{"name": topic, "partitions": rows}]
        s.ask("DeleteRecords", version, topics=topics, timeout_ms=60_000)
        start = s.listed(topic, EARLIEST)["offset"]
        s.await_offset(topic, EARLIEST, start, node="2")
        borders(s, topic)
        row = {"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}
        asked: dict[str, Any] = {"topics": [{"topic": topic, "partitions": [row]}]}
        s.ask("OffsetForLeaderEpoch", 4, replica_id=-1, **asked)


@case("DeleteRecords", 2)
def without_a_cleanup_policy(s: TieredSession, version: int) -> None:
    """Local retention goes on, and what is asked to go goes."""
    topic = s.tiered(cleanup_policy="")
    s.produce_at(1, topic, *several(0, 5))
    s.await_tier(topic, local=4, tiered=3)
    borders(s, topic)
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 3}]}]
    s.ask("DeleteRecords", version, topics=topics, timeout_ms=60_000)
    borders(s, topic)


@case("ListOffsets", 1, 11)
def times_of_lost_objects(s: TieredSession, version: int) -> None:
    for ending in (".log", ".timeindex"):
        topic = s.tiered()
        s.produce_at(1, topic, *several(0, 5))
        s.await_tier(topic, local=4, tiered=3)
        s.lose(topic, ending)
        for offset in (0, 3, 4):
            ask(s, version, topic, TIME + offset * SECOND_MS)


@case("ListOffsets", 11)
def expired_by_size(s: TieredSession, version: int) -> None:
    topic = s.tiered()
    s.produce_at(1, topic, *several(0, 5))
    s.await_tier(topic, local=4, tiered=3)
    s.set_configs(topic, retention_bytes="1")
    for node in NODES:
        s.await_offset(topic, EARLIEST, 4, node=node)
        borders(s, topic, node)
    for offset in (0, 3, 4):
        ask(s, version, topic, TIME + offset * SECOND_MS)


@case("ListOffsets", 11)
def expired_by_time(s: TieredSession, version: int) -> None:
    """The records are years old: all of them go, the active segment's as well."""
    topic = s.tiered()
    s.produce_at(1, topic, *several(0, 5))
    s.await_tier(topic, local=4, tiered=3)
    s.set_configs(topic, retention_ms="1000")
    for node in NODES:
        s.await_offset(topic, EARLIEST, 5, node=node)
        s.await_offset(topic, LATEST_TIERED, 4, node=node)
        borders(s, topic, node)
    ask(s, version, topic, TIME)
