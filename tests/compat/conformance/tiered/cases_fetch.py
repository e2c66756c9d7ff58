"""Cases: Fetch of the remote tier, as a consumer and as a follower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.cases_fetch import MAX_BYTES, of_topic, part
from compat.conformance.tiered.registry import case
from compat.conformance.tiered.session import several
from compat.conformance.transactional import shown

if TYPE_CHECKING:
    from compat.conformance.tiered.session import TieredSession

# Below the log start, at it, remote, at the borders, in both tiers, local, at the end, beyond.
OFFSETS = (-1, 0, 1, 2, 4, 5, 7, 8, 10, 11, 12, 13, 14, 15, 100)
SIZE = len(several(0, 1)[0])
SHARE = 10 * SIZE  # what a partition may take of a request that many share


def fields_of(s: TieredSession, version: int, topic: str, *parts: Any, **more: Any) -> Any:
    return {
        "max_wait_ms": 50,
        "min_bytes": 1,
        "max_bytes": MAX_BYTES,
        "topics": [of_topic(s, version, topic, *parts)] if parts else [],
        **more,
    }


def shared(partition: int, offset: int = 0) -> dict[str, Any]:
    """A partition that leaves something of the request's bytes to others."""
    return part(partition, offset, partition_max_bytes=SHARE)


def fetch(s: TieredSession, version: int, topic: str, *parts: Any, **more: Any) -> Any:
    return s.ask("Fetch", version, **fields_of(s, version, topic, *parts, **more))


@case("Fetch", 4, 5, 7, 11, 12, 13, 15, 17, 18)
def at_every_offset(s: TieredSession, version: int) -> None:
    for offset in OFFSETS:
        fetch(s, version, s.layouts["spread"], part(offset=offset))


@case("Fetch", 11, 13, 17)
def from_a_follower(s: TieredSession, version: int) -> None:
    """KIP-392: it serves consumers of what is remote, too."""
    for offset in OFFSETS:
        fetch(s, version, s.layouts["spread"], part(offset=offset), connection="2")


@case("Fetch", 4, 12, 17)
def remote_limits(s: TieredSession, version: int) -> None:
    topic = s.layouts["spread"]
    for limit in (0, 1, SIZE, SIZE + 1, 2 * SIZE, 3 * SIZE):
        fetch(s, version, topic, part(offset=2), max_bytes=limit)
        fetch(s, version, topic, part(offset=2, partition_max_bytes=limit))
        fetch(s, version, topic, part(offset=3, partition_max_bytes=limit))


@case("Fetch", 4, 12, 17)
def waits(s: TieredSession, version: int) -> None:
    topic = s.layouts["spread"]
    for wait_ms, least in ((0, 0), (0, 1), (10, 100_000), (1, 1)):
        fetch(s, version, topic, part(offset=2), max_wait_ms=wait_ms, min_bytes=least)


@case("Fetch", 9, 12, 17)
def epochs(s: TieredSession, version: int) -> None:
    topic = s.layouts["spread"]
    for current in (0, 1, 2, 3):
        fetch(s, version, topic, part(offset=2, current_leader_epoch=current))


@case("Fetch", 12, 17)
def last_fetched_epochs(s: TieredSession, version: int) -> None:
    """KIP-595: who has read a branch that is gone is told where the two part."""
    topic = s.layouts["spread"]
    for epoch, offset in ((0, 2), (0, 5), (0, 6), (1, 6), (1, 14), (2, 6), (3, 6)):
        row = part(offset=offset, last_fetched_epoch=epoch, current_leader_epoch=2)
        fetch(s, version, topic, row)


@case("Fetch", 4, 5, 11, 12, 14, 15, 17)
def as_a_follower(s: TieredSession, version: int) -> None:
    """What is only remote has moved to tiered storage; no other broker than the follower may ask.

    Offsets of the local log are left out: the leader would believe that the follower is there.
    """
    for replica in (2, 9, -2):
        who: dict[str, Any] = {"replica_id": replica}
        if version >= 15:
            who = {"replica_state": {"replica_id": replica, "replica_epoch": -1}}
        for offset in (0, 1, 2, 5, 7, 15):
            fetch(s, version, s.layouts["spread"], part(offset=offset), **who)


@case("Fetch", 12, 17)
def as_a_follower_with_epochs(s: TieredSession, version: int) -> None:
    who: dict[str, Any] = {"replica_id": 2}
    if version >= 15:
        who = {"replica_state": {"replica_id": 2, "replica_epoch": -1}}
    for epoch in (0, 1):
        row = part(offset=2, last_fetched_epoch=epoch, current_leader_epoch=2)
        fetch(s, version, s.layouts["spread"], row, **who)


@case("Fetch", 4, 11, 13, 17)
def several_partitions(s: TieredSession, version: int) -> None:
    topic = s.layouts["several"]
    for offsets in ((0, 0, 0), (0, 2, 0), (1, 4, 0), (0, 9, 0), (4, 4, 0), (3, 3, 1)):
        rows = [shared(number, offset) for number, offset in enumerate(offsets)]
        fetch(s, version, topic, *rows)
        fetch(s, version, topic, *reversed(rows))


@case("Fetch", 4, 13, 17)
def several_with_limits(s: TieredSession, version: int) -> None:
    topic = s.layouts["several"]
    for limit in (1, SIZE, 2 * SIZE, 3 * SIZE):
        for order in ((0, 1, 2), (2, 1, 0)):
            rows = [part(number) for number in order]
            fetch(s, version, topic, *rows, max_bytes=limit)


@case("Fetch", 7, 12, 13, 17)
def session_of_a_consumer(s: TieredSession, version: int) -> None:
    """Partitions of a session are remote, then local, then nothing is new; one is forgotten."""
    topic = s.layouts["several"]
    rows = [shared(0), shared(1, 2), shared(2)]
    first = fetch(s, version, topic, *rows, session_id=0, session_epoch=0)
    session = first["session_id"]
    fetch(s, version, topic, session_id=session, session_epoch=1)
    fetch(s, version, topic, shared(0, 2), shared(1, 4), session_id=session, session_epoch=2)
    fetch(
        s,
        version,
        topic,
        shared(0, 5),
        shared(1, 5),
        shared(2, 1),
        session_id=session,
        session_epoch=3,
    )
    fetch(s, version, topic, session_id=session, session_epoch=4)
    fetch(s, version, topic, shared(0, 1), session_id=session, session_epoch=5)
    gone = {"partitions": [0]}
    gone |= {"topic_id": s.topic_id(topic)} if version >= 13 else {"topic": topic}
    fetch(s, version, topic, session_id=session, session_epoch=6, forgotten_topics_data=[gone])
    fetch(s, version, topic, session_id=session, session_epoch=-1)


@case("Fetch", 4, 11, 13, 17)
def committed(s: TieredSession, version: int) -> None:
    """Aborted transactions from remote transaction indexes; nothing that is undecided."""
    topic = s.layouts["undecided"]
    for level in (1, 0):
        for offset in range(12):
            fields = fields_of(s, version, topic, part(offset=offset), isolation_level=level)
            answer = s.quietly("Fetch", version, **fields)
            for row in answer["responses"][0]["partitions"]:
                row["records"] = shown(row["records"])
            s.record("Fetch", answer)


@case("Fetch", 17)
def of_an_empty_local_log(s: TieredSession, version: int) -> None:
    topic = s.all_tiered()
    s.await_tier(topic, local=3, tiered=2)
    for offset in (0, 2, 3, 4):
        fetch(s, version, topic, part(offset=offset))


@case("Fetch", 4, 13, 17)
def of_lost_objects(s: TieredSession, version: int) -> None:
    """What the metadata knows and the store has lost is no reason to go elsewhere: an error that
    clients try again. The local part is as ever."""
    for ending in (".log", ".index"):
        topic = s.tiered()
        s.produce_at(1, topic, *several(0, 5))
        s.await_tier(topic, local=4, tiered=3)
        s.lose(topic, ending)
        for offset in (0, 3, 4):
            fetch(s, version, topic, part(offset=offset))
