"""Cases: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch and DeleteRecords at any replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.batches import batch, records
from compat.conformance.cases_fetch import MAX_BYTES, of_topic, part
from compat.conformance.cases_offsets import at
from compat.conformance.cases_produce import topic_data
from compat.conformance.cluster.registry import case

if TYPE_CHECKING:
    from compat.conformance.cluster.session import ClusterSession

DEBUGGING = -2  # a "replica" that may ask followers, too
HERE, THERE, NOWHERE = "1", "2", "3"  # leads, follows, has no replica of most topics here


def produce(
    s: ClusterSession, version: int, topic: str, node: str, acks: int = -1, partition: int = 0
) -> Any:
    data = [topic_data(s, version, topic, (partition, batch()))]
    fields: dict[str, Any] = {"acks": acks, "timeout_ms": 60_000, "topic_data": data}
    return s.ask("Produce", version, connection=node, **fields)


def fetch_fields(
    s: ClusterSession, version: int, topic: str, *parts: dict[str, Any], **more: Any
) -> dict[str, Any]:
    return {
        "max_wait_ms": 20,
        "min_bytes": 1,
        "max_bytes": MAX_BYTES,
        "topics": [of_topic(s, version, topic, *parts)],
        **more,
    }


def fetch(
    s: ClusterSession, version: int, topic: str, node: str, *parts: dict[str, Any], **more: Any
) -> Any:
    fields = fetch_fields(s, version, topic, *(parts or (part(),)), **more)
    return s.ask("Fetch", version, connection=node, **fields)


def fetch_until(
    s: ClusterSession, version: int, topic: str, node: str, wanted: Any, **more: Any
) -> Any:
    """Until the only partition's answer is as wanted: followers hear of things a bit later."""
    fields = fetch_fields(s, version, topic, part(), **more)
    return s.ask_until(
        "Fetch",
        version,
        lambda answer: wanted(answer["responses"][0]["partitions"][0]),
        connection=node,
        **fields,
    )


@case("Produce", 3, 7, 9, 10, 12, 13)
def to_every_kind_of_broker(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2])
    for node in (HERE, THERE, NOWHERE):
        for acks in (-1, 1):
            produce(s, version, topic, node, acks)


@case("Produce", 9, 10, 13)
def several_leaders(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2], [2, 3], [3, 1])
    data = [topic_data(s, version, topic, *((index, batch()) for index in range(3)))]
    s.at_each("Produce", version, acks=-1, timeout_ms=60_000, topic_data=data)


@case("Produce", 9, 13)
def unacknowledged_to_a_follower(s: ClusterSession, version: int) -> None:
    """Nobody can be told, so the connection is closed."""
    topic = s.replicated([1, 2])
    data = [topic_data(s, version, topic, (0, batch()))]
    fields: dict[str, Any] = {"acks": 0, "timeout_ms": 1000, "topic_data": data}
    s.send("Produce", version, connection="2:unheard", **fields)
    s.record("Produce", {"closed": s.connection("2:unheard").read_frame() is None})


@case("Produce", 9, 13)
def more_in_sync_than_replicas(s: ClusterSession, version: int) -> None:
    """min.insync.replicas asks for no more than there can be."""
    topic = s.replicated([1, 2], min_insync_replicas="3")
    produce(s, version, topic, HERE)


@case("Produce", 9, 10, 13)
def after_a_move(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2, 3])
    produce(s, version, topic, HERE)
    s.moved_to(topic, [2, 1, 3])
    s.await_leaders(topic, [[2, 1, 3]], 1)
    produce(s, version, topic, THERE)
    produce(s, version, topic, HERE)


@case("Fetch", 4, 7, 10, 11, 12, 13, 16, 17)
def from_every_kind_of_broker(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2])
    s.produce_at(1, topic, batch(), batch(records(2)))
    fetch_until(s, version, topic, HERE, lambda answer: answer["high_watermark"] == 5)
    refused = version < 11
    fetch_until(s, version, topic, THERE, lambda answer: refused or answer["high_watermark"] == 5)
    fetch(s, version, topic, THERE, part(offset=3))
    fetch(s, version, topic, NOWHERE)


@case("Fetch", 11, 13, 16, 17)
def nearest_replica(s: ClusterSession, version: int) -> None:
    """KIP-392: the leader names a replica in the consumer's rack; there it is served."""
    topic = s.replicated([1, 2, 3])
    s.produce_at(1, topic, batch())
    for rack, replica in (("b", 2), ("c", 3)):
        fetch_until(
            s,
            version,
            topic,
            HERE,
            lambda answer, replica=replica: answer["preferred_read_replica"] == replica,
            rack_id=rack,
        )
        fetch_until(
            s,
            version,
            topic,
            str(replica),
            lambda answer: answer["high_watermark"] == 3,
            rack_id=rack,
        )
    for rack in ("a", "nowhere", ""):
        fetch(s, version, topic, HERE, rack_id=rack)


@case("Fetch", 11, 13, 17)
def beyond_what_a_follower_has(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2])
    s.produce_at(1, topic, batch())
    fetch_until(s, version, topic, THERE, lambda answer: answer["high_watermark"] == 3)
    for offset in (3, 4, 100, -1):
        fetch(s, version, topic, THERE, part(offset=offset))


@case("Fetch", 12, 14, 15, 17)
def no_replica_of_it(s: ClusterSession, version: int) -> None:
    """Who asks as a follower has to be one."""
    topic = s.replicated([1, 2])
    s.produce_at(1, topic, batch())
    for replica in (3, 9):
        who: dict[str, Any] = {"replica_id": replica}
        if version >= 15:
            who = {"replica_state": {"replica_id": replica, "replica_epoch": -1}}
        fetch(s, version, topic, HERE, part(), **who)


def moved(s: ClusterSession) -> str:
    """Two epochs: three records of the first leader, broker 1, then two of the second."""
    topic = s.replicated([1, 2, 3])
    s.produce_at(1, topic, batch())
    s.moved_to(topic, [2, 3, 1])
    s.produce_at(2, topic, batch(records(2)))
    return topic


@case("Fetch", 9, 11, 12, 13, 16, 17)
def leader_epochs(s: ClusterSession, version: int) -> None:
    topic = moved(s)
    fetch_until(s, version, topic, THERE, lambda answer: answer["high_watermark"] == 5)
    if version >= 11:
        fetch_until(s, version, topic, HERE, lambda answer: answer["high_watermark"] == 5)
    for node in (THERE, HERE):
        for epoch in (-1, 0, 1, 2):
            fetch(s, version, topic, node, part(offset=5, current_leader_epoch=epoch))


@case("Fetch", 12, 13, 17)
def diverging_epochs(s: ClusterSession, version: int) -> None:
    topic = moved(s)
    fetch_until(s, version, topic, THERE, lambda answer: answer["high_watermark"] == 5)
    for epoch, offset in ((0, 3), (0, 4), (1, 4), (1, 5), (1, 9), (2, 5), (0, 1)):
        known = part(offset=offset, last_fetched_epoch=epoch, current_leader_epoch=1)
        fetch(s, version, topic, THERE, known)


@case("ListOffsets", 1, 2, 4, 6, 7, 11)
def at_every_kind_of_broker(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2])
    s.produce_at(1, topic, batch())
    topics = [{"name": topic, "partitions": [at(-1)]}]
    s.at_each("ListOffsets", version, replica_id=-1, topics=topics)
    s.ask_until(
        "ListOffsets",
        version,
        lambda answer: answer["topics"][0]["partitions"][0].get("offset", 3) == 3,
        connection=THERE,
        replica_id=DEBUGGING,
        topics=topics,
    )
    s.ask("ListOffsets", version, connection=NOWHERE, replica_id=DEBUGGING, topics=topics)


@case("ListOffsets", 4, 6, 11)
def offsets_by_epoch(s: ClusterSession, version: int) -> None:
    topic = moved(s)
    for node in (THERE, HERE):
        for epoch in (-1, 0, 1, 2):
            for timestamp in (-1, -2):
                row = at(timestamp, current_leader_epoch=epoch)
                topics = [{"name": topic, "partitions": [row]}]
                s.ask("ListOffsets", version, connection=node, replica_id=-1, topics=topics)


@case("ListOffsets", 7, 11)
def times_after_a_move(s: ClusterSession, version: int) -> None:
    topic = moved(s)
    for timestamp in (-1, -2, -3, 0):
        topics = [{"name": topic, "partitions": [at(timestamp)]}]
        s.ask("ListOffsets", version, connection=THERE, replica_id=-1, topics=topics)


@case("OffsetForLeaderEpoch")
def end_offsets(s: ClusterSession, version: int) -> None:
    topic = moved(s)

    def ask(node: str, epoch: int, current: int = -1, replica: int = -1) -> None:
        row = {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": current}
        topics = [{"topic": topic, "partitions": [row]}]
        fields: dict[str, Any] = {"replica_id": replica} if version >= 3 else {}
        s.ask("OffsetForLeaderEpoch", version, connection=node, topics=topics, **fields)

    for epoch in (-1, 0, 1, 2, 7):
        ask(THERE, epoch)
    for current in (0, 1, 2):
        ask(THERE, 0, current)
        ask(HERE, 0, current)
    ask(HERE, 0)
    ask(HERE, 0, replica=DEBUGGING)
    ask(NOWHERE, 0, replica=9)


@case("DeleteRecords", 2)
def of_a_replicated_log(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2, 3])
    s.produce_at(1, topic, batch(), batch(records(2)))
    for node, offset in ((THERE, 1), (HERE, 2), (HERE, 9), (HERE, -1)):
        wanted = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
        s.ask("DeleteRecords", version, connection=node, topics=wanted, timeout_ms=60_000)


@case("DescribeLogDirs", first=2)
def of_replicas(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2], [2, 3])
    s.produce_at(1, topic, batch())
    s.produce_at(2, topic, batch(), partition=1)
    topics = [{"topic": topic, "partitions": [0, 1]}]
    s.at_each("DescribeLogDirs", version, topics=topics)
