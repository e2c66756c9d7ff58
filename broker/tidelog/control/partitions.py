"""The calls on single partitions: delete records, elect a leader, move replicas.

They perform the requests of admin clients; a move returns when it is complete.
"""

# ruff: noqa: PLC0415 - the tables of admin requests are needed in a broker only

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tidelog.control.calls import Call, Nothing
from tidelog.control.errors import MISSING, REFUSED, ControlError
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl

__all__ = ["CALLS", "Place", "lead", "placed"]

REQUEST_MS_MAX = 30_000
_FIELDS = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "before_offset",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "replicas",
}


@dataclass(frozen=True)
class Records:
    """The records of a partition before an offset; -1 is the high watermark."""

    topic: str
    partition: int
    before_offset: int = -1


@dataclass(frozen=True)
class Election:
    """A partition; `unclean` lets a replica lead that is not in sync."""

    topic: str
    partition: int
    unclean: bool = False


@dataclass(frozen=True)
class Move:
    """A partition and the brokers that shall have it, the preferred leader first."""

    topic: str
    partition: int
    replicas: tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """A partition by topic and number."""

    topic: str
    partition: int


@dataclass(frozen=True)
class Placed:
    """Where a partition is, as one broker knows it."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    is_moving: bool


async def _delete_records(control: ClusterControl, args: Records) -> Nothing:
    """Delete the records of a partition before an offset."""
    where = await placed(control, args.topic, args.partition)
    if where.leader == -1:
        text = f"{args.topic}-{args.partition} has no leader"
        raise ControlError(text, field="partition", status=REFUSED)
    await control.node(where.leader).ask("broker.delete_records", asdict(args))
    return Nothing()


async def _elect(control: ClusterControl, args: Election) -> Nothing:
    """Elect the preferred leader of a partition; unclean: any live replica, if none in sync is."""
    await placed(control, args.topic, args.partition)
    await control.first_of_majority().ask("broker.elect_leader", asdict(args))
    return Nothing()


async def _move(control: ClusterControl, args: Move) -> Nothing:
    """Move a partition to other brokers, and wait until they have it."""
    await placed(control, args.topic, args.partition)
    await control.first_of_majority().ask("broker.move_partition", asdict(args))

    async def look() -> str | None:
        where = await placed(control, args.topic, args.partition)
        is_there = where.replicas == args.replicas and not where.is_moving
        return None if is_there else f"{args.topic}-{args.partition} is on {where.replicas}"

    await control.until(look)
    return Nothing()


async def lead(control: ClusterControl, topic: str, partition: int, broker: int) -> None:
    """Let a broker lead a partition. It gets a replica in the place of the last one, if it has
    none."""
    replicas = (await placed(control, topic, partition)).replicas
    wanted = (broker, *(each for each in replicas if each != broker))[: len(replicas)]
    if wanted != replicas:
        await _move(control, Move(topic, partition, wanted))

    async def look() -> str | None:
        where = await placed(control, topic, partition)
        if where.leader == broker:
            return None
        if broker in where.isr:
            await _elect(control, Election(topic, partition))
        return f"{topic}-{partition} is led by broker {where.leader}, not by {broker}"

    await control.until(look)


async def placed(control: ClusterControl, topic: str, partition: int) -> Placed:
    """Return where a partition is."""
    asked = {"topic": topic, "partition": partition}
    where: Placed = await control.first().ask("broker.placed", asked)
    return where


def _placed_here(control: BrokerControl, args: Place) -> Placed:
    """Return where a partition is."""
    image = control.server.metadata.image
    if args.topic not in image.topics:
        raise ControlError(f"there is no topic {args.topic!r}", field="topic", status=MISSING)
    found = image.partition(args.topic, args.partition)
    if found is None:
        text = f"{args.topic} has no partition {args.partition}"
        raise ControlError(text, field="partition", status=MISSING)
    is_moving = bool(found.adding_replicas or found.removing_replicas)
    return Placed(found.leader, found.replicas, found.isr, is_moving)


async def _delete_here(control: BrokerControl, args: Records) -> Nothing:
    """Delete records of a partition that this broker leads."""
    from tidelog.control.requests import check, perform_request
    from tidelog_protocol.messages.data import DeleteRecordsRequest as Request

    wanted = Request.DeleteRecordsPartition(
        partition_index=args.partition, offset=args.before_offset
    )
    topic = Request.DeleteRecordsTopic(name=args.topic, partitions=[wanted])
    request = Request(topics=[topic], timeout_ms=REQUEST_MS_MAX)
    (answer,) = (await perform_request(control.server, request)).topics
    code = answer.partitions[0].error_code
    text = f"must be -1, or an offset up to the high watermark, not {args.before_offset}"
    check(code, text if code == ErrorCode.OFFSET_OUT_OF_RANGE else None, _FIELDS)
    return Nothing()


async def _elect_here(control: BrokerControl, args: Election) -> Nothing:
    """Ask the controller for an election; no error if the leader is the preferred one already."""
    from tidelog.control.requests import check, perform_request
    from tidelog_protocol.messages.cluster_admin import ElectLeadersRequest as Request

    request = Request(
        election_type=int(args.unclean),
        topic_partitions=[Request.TopicPartitions(topic=args.topic, partitions=[args.partition])],
        timeout_ms=REQUEST_MS_MAX,
    )
    answer = await perform_request(control.server, request)
    check(answer.error_code, None, _FIELDS)
    for topic in answer.replica_election_results:
        for result in topic.partition_result:
            if result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                check(result.error_code, result.error_message, _FIELDS)
    return Nothing()


async def _move_here(control: BrokerControl, args: Move) -> Nothing:
    """Ask the controller to move a partition."""
    from tidelog.control.requests import check, perform_request
    from tidelog_protocol.messages.cluster_admin import (
        AlterPartitionReassignmentsRequest as Request,
    )

    wanted = Request.ReassignablePartition(
        partition_index=args.partition, replicas=list(args.replicas)
    )
    topic = Request.ReassignableTopic(name=args.topic, partitions=[wanted])
    request = Request(topics=[topic], timeout_ms=REQUEST_MS_MAX)
    answer = await perform_request(control.server, request)
    check(answer.error_code, answer.error_message, _FIELDS)
    for result in answer.responses[0].partitions:
        check(result.error_code, result.error_message, _FIELDS)
    return Nothing()


CALLS = (
    Call("topics.delete_records", "cluster", Records, Nothing, _delete_records),
    Call("topics.elect", "cluster", Election, Nothing, _elect),
    Call("topics.move", "cluster", Move, Nothing, _move),
    Call("broker.placed", "broker", Place, Placed, _placed_here),
    Call("broker.delete_records", "broker", Records, Nothing, _delete_here),
    Call("broker.elect_leader", "broker", Election, Nothing, _elect_here),
    Call("broker.move_partition", "broker", Move, Nothing, _move_here),
)
